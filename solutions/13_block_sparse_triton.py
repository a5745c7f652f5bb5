# %% [markdown]
# # 13 Block-sparse attention and small caches in Triton
#
# Lesson 07 cut $d$ into slices, because a row was too long for fast memory. Lesson 08 passed over tiles that nobody sees. Both were schedules for a machine that counts words. What becomes of them on a GPU? When is a row too long there, on which chip, and what does it cost not to keep it? And how does a kernel, whose programs all run the same code, get to know which tiles it may leave out? The answers are a table of compiled tiles, five lists, and a kernel, with every byte counted.
#
# **What you will learn**
#
# - to say from a table of compiled kernels on which chips whole rows fit, and to decide between whole rows and slices by counting bytes;
# - to turn a boolean mask into lists, and to write a kernel that loops over a list;
# - to say which masks save bytes and which do not.
#
# **Prerequisites**: lesson 07 (F5), lesson 07b (F6, section 7.12), sections 8.1 to 8.6 of lesson 08, lesson 11 (the forward kernel), section 11.9 of lesson 11b (rows that attend to no key), and section 12.7 of lesson 12 (words and bytes). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Sections 13.1 to 13.5 need NumPy only, and hold the ideas and two of the exercises. From section 13.6 on cells run Triton kernels. Part b, [13b](13b_atomics_and_wide_heads.ipynb), has the kernel whose outputs travel, the order of programs, the lists of the backward pass, and three wrong kernels to diagnose.

# %% tags=["setup"]
from collections import Counter

import numpy as np

from iocourse import exact, masks
from iocourse.costs.kernel_masks import BlockLists
from iocourse.costs.kernels import KernelProblem, attention_forward, sliced_forward
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source
from iocourse.gpu import CHIPS

# %% [markdown]
# ## 13.1 How many rows fit
#
# A program of the forward kernel keeps a tile of $B_M$ queries, the sum for as many rows of $O$, and a tile or two of keys and values, all of them $d$ columns wide. Here is such a program on an A100 at $d = 512$: its tiles, what the compiler took for them, and the words that one head of 4,096 tokens moves under a causal mask. (Click a tile in the map, or move the sliders with the arrow keys, best after the prediction below. Without a running kernel you see a still picture.)

# %%
explore.kernel_tuner(arch=80, d=512, kernel="forward")

# %% [markdown]
# 32 rows of queries and as many keys take 164 KB of the 419 KB that a multiprocessor has. What is full are the registers: 219 for each of 256 threads, 56,064 of 65,536. When $d$ doubles, all of this doubles. So for a larger $d$ the largest tile that fits has fewer rows, and fewer rows mean more words: $K$ and $V$ are read $\lceil N/B_M \rceil$ times, and here they are nearly all of the 274,731,008 words.
# <!-- masked = kernel_costs.attention_forward(kernel_costs.KernelProblem(4096, 4096, 512, high=0), BM=32, BN=32) -->
# <!-- 274,731,008 = masked.total -->
# <!-- "nearly all of the 274,731,008 words" if masked.reads["K"] + masked.reads["V"] > 0.98 * masked.total -->
# <!-- 164, 419 = sum(one.bytes for one in course.explore.models.kernel_tuner.tiles_held("forward", 32, 32, 512, 2).values()) / 2**10, (CHIPS[80].shared_bytes + 4 * CHIPS[80].registers) / 2**10 -->
#
# In the model of lesson 07 the line is near $M = d^2$. With less, a schedule that cuts $d$ too moves fewer words. A program on a T4 has 64 KB of shared memory, 32,768 numbers of 16 bits: less than $d^2$ from $d = 182$ on. One on an H200 has 227 KB, 116,224 numbers: less than $d^2$ from $d = 341$ on. But the model knows no registers, and a multiprocessor has 256 KB of those beside its shared memory. We need not guess. `python -m tools.bench resources` has compiled the library's kernels for each chip, and for each head size its table has the first tile, from large to small, that fits and spills no register in its hot loop, or the smallest where none does; on an H200, at $d = 64$ and $128$, the one that was measured to be fastest. (*Spilled*: a value that found no register and is kept in slow memory. *Hot loop*: the loop without a mask. What is spilled outside it is stored and loaded once a program.)
# <!-- "measured to be fastest" if all(min(one["tried"], key=lambda it: it["ms"][n] if it.get("ms") else math.inf)["tile"][:2] == list(tile("forward", 90, one["d"], mask=("full", "causal")[n])) for one in rows("tune", "kernels", kernel="forward") for n in (0, 1)) -->
#
# **Predict** (guess). Tiles of whole rows for the forward pass, 16 bits. At $d = 64$ there are 64 rows of queries on an H200 and on a T4. How many are left on an H200 at $d = 512$, and on a T4 at $d = 256$?
# <!-- "At $d = 64$ there are 64 rows of queries on an H200 and on a T4" if {tile("forward", arch, 64, mask=mask)[0] for arch in (75, 90) for mask in ("full", "causal")} == {64} -->
# <!-- 32,768, 64 = CHIPS[75].shared_bytes / 2, CHIPS[75].shared_bytes / 2**10 -->
# <!-- 116,224, 227, 256 = CHIPS[90].shared_bytes / 2, CHIPS[90].shared_bytes / 2**10, CHIPS[90].registers * 4 / 2**10 -->
# <!-- 219, 256, 56,064, 65,536 = (row := next(row for row in load_record("resources")["shipped"] if [row[key] for key in ("kernel", "arch", "d", "bytes", "causal")] == ["forward", 80, 512, 2, True]))["registers"], 32 * row["warps"], 32 * row["warps"] * row["registers"], CHIPS[80].registers -->
# <!-- 182, 341 = (math.isqrt(CHIPS[arch].shared_bytes // 2) + 1 for arch in (75, 90)) -->

# %% tags=["predict"]
predict("13.1", h200_512=64, t4_256=16)  #> predict("13.1", h200_512=..., t4_256=...)

# %%
record = load_record("resources")


def compiled(kernel, arch, d, itemsize=2):
    """The recorded row of a kernel, causal or not: of the two the one that spills more."""
    asked = {"kernel": kernel, "arch": arch, "d": d, "bytes": itemsize, "pairs": "band"}
    rows = [hot(row) for row in record["shipped"] if asked.items() <= row.items()]
    return max(rows, key=lambda row: row.get("spill_bytes", 10**6))


def hot(row):
    """The row without the bytes that are spilled outside its hot loop."""
    loop = row.get("hot_loop")
    return row | {"spill_bytes": 0} if loop and not loop["spills"] else row


def fits(row):
    room = CHIPS[row["arch"]].shared_bytes
    return "error" not in row and row["spill_bytes"] == 0 and row["shared_bytes"] <= room


def shown(row):
    return f"{row['BM']} × {row['BN']}" + ("" if fits(row) else " !")


print(f"compiled with {record_source(record)}; a tile with ! does not fit")
for kernel in ("forward", "fused"):
    print(f"{kernel:15}" + "".join(f"d = {d:<8}" for d in (64, 128, 256, 512)))
    for arch, chip in CHIPS.items():
        tiles = [shown(compiled(kernel, arch, d)) for d in (64, 128, 256, 512)]
        print(f"{chip.name:15}" + "".join(f"{tile:12}" for tile in tiles))
measured("13.1", h200_512=compiled("forward", 90, 512)["BM"],
         t4_256=compiled("forward", 75, 256)["BM"])


# %% [markdown]
# <details><summary>How many rows are left</summary>
#
# 64 rows and 16. In the forward pass no chip in the table is *forced* to cut $d$: even at 512 some tile of whole rows keeps its registers on every one of them. But look at its size. `tl.dot` takes no tile below 16, and the T4 is there at $d = 256$ already. In the backward pass (`fused`, section 12.7), which keeps more arrays, it is forced: the $16 \times 16$ tile spills on a T4 at $d = 256$, and at 512 it needs more shared memory than there is.
# <!-- forward = lambda arch, d: rows("resources", "shipped", kernel="forward", arch=arch, d=d, bytes=2, pairs="band") -->
# <!-- "even at 512 some tile of whole rows keeps its registers on every one of them" if all(gpu.Resources.of(one).fits for arch in CHIPS for d in (64, 128, 256, 512) for one in forward(arch, d)) -->
# <!-- "64 rows and 16" if (forward(90, 512)[0]["BM"], forward(75, 256)[0]["BM"]) == (tile("forward", 90, 512)[0], tile("forward", 75, 256)[0]) == (64, 16) -->
# <!-- "In the backward pass (`fused`, section 12.7), which keeps more arrays, it is forced" if all(gpu.Resources.of(one).fits == (arch != 75 or d < 256) for arch in CHIPS for d in (64, 128, 256, 512) for one in rows("resources", "shipped", kernel="fused", arch=arch, d=d, bytes=2, pairs="band")) -->
# <!-- t4 = lambda d: rows("resources", "shipped", kernel="fused", arch=75, d=d, bytes=2, pairs="band") -->
# <!-- 16 \times 16 = t4(256)[0]["BM"], t4(256)[0]["BN"] -->
# <!-- "spills on a T4 at $d = 256$" if max(one["spill_bytes"] for one in t4(256)) > 0 -->
# <!-- "at 512 it needs more shared memory than there is" if all(one["shared_bytes"] > CHIPS[75].shared_bytes and (one["BM"], one["BN"]) == (16, 16) for one in t4(512)) -->
#
# </details>
#
# So on a GPU "does it fit?" is rarely the question. A kernel with few rows fits, and reads $K$ and $V$ so often that something else may be better. That something has to be counted.
#
# ## 13.2 Whole rows or slices, by the byte
#
# What would we keep instead? F6 of lesson 07 keeps a tile of scores, and nothing that grows with $d$. Scores are summed up over slices of $d$; then each slice of $O$ is brought from slow memory, rescaled, added to, and sent back. One program of it in NumPy, with the words that it moves:

# %%
def sliced_program(number, Q, K, V, O, BM, BN, BD):
    """BM rows of O, with d in slices of BD columns. Returns the words moved, array by array."""
    N, d = Q.shape
    i = slice(number * BM, min((number + 1) * BM, N))
    m, l = np.full(len(Q[i]), -np.inf), np.zeros(len(Q[i]))
    moved, O_sum = Counter(), np.zeros_like(Q[i])
    for start in range(0, N, BN):
        j, s = slice(start, start + BN), 0.0
        for c in (slice(at, at + BD) for at in range(0, d, BD)):
            s = s + Q[i, c] @ K[j, c].T / np.sqrt(d)          # (BM, BN)
            moved.update(Q=Q[i, c].size, K=K[j, c].size)
        m_new = np.maximum(m, s.max(axis=1))
        p, old = np.exp(s - m_new[:, None]), np.exp(m - m_new)
        m, l = m_new, l * old + p.sum(axis=1)
        for c in (slice(at, at + BD) for at in range(0, d, BD)):
            O_sum[:, c] = O_sum[:, c] * old[:, None] + p @ V[j, c]
            moved.update(V=V[j, c].size)
            if start > 0:                                     # it was brought back
                moved.update({"O_sum read": O_sum[:, c].size})
            if start + BN < N:                                # it is sent away
                moved.update({"O_sum written": O_sum[:, c].size})
    O[i] = O_sum / l[:, None]
    return moved + Counter(O=O[i].size)


# %% [markdown]
# The last time the sum does not go back to `O_sum`: it is divided by $\ell$ and becomes $O$. The first time there is nothing to bring. So between $\lceil N/B_N \rceil$ tiles of keys the sums travel $\lceil N/B_N \rceil - 1$ times. The tile of queries, on the other hand, does not stay: its slices come once for each tile of keys. The width $B_D$ of a slice does not matter for any of this.
# <!-- 1 as definition -->
#
# **Predict** (compute). $N = 100$, $d = 24$, $B_M = 32$, $B_N = 16$. How many times is all of $Q$ read, and how many times all of $K$?

# %% tags=["predict"]
predict("13.2", q_reads=7, k_reads=4)  #> predict("13.2", q_reads=..., k_reads=...)

# %%
N, d, BM, BN = 100, 24, 32, 16
rng = np.random.default_rng(13)
Q, K, V = rng.standard_normal((3, N, d))
O, moved = np.empty_like(Q), Counter()
for number in range(-(-N // BM)):
    moved += sliced_program(number, Q, K, V, O, BM, BN, BD=8)
print(dict(moved))
print("largest error below 1e-12:", abs(O - exact.attention(Q, K, V)).max() < 1e-12)
formula = sliced_forward(KernelProblem(N, N, d), BM=BM, BN=BN)
print(f"{sum(moved.values()):,} words, closed form {formula.total - N:,} and N for LSE")
measured("13.2", q_reads=moved["Q"] / (N * d), k_reads=moved["K"] / (N * d))

# %% [markdown]
# <details><summary>How often each array is read</summary>
#
# Seven times $Q$, for there are seven tiles of keys, and four times $K$ and $V$. 67,200 words.
#
# </details>
#
# On a chip we pay for bytes. Let an input have $\beta$ bytes a word, 2 for float16. The log-sum-exp is float32, and so are sums on their way, as $dQ$ is in section 12.7: rounding them to 16 bits after each tile of keys would add up. For whole rows, and for slices,
#
# $$ \text{rows: } \beta\left(2Nd + 2Nd\left\lceil \tfrac N{B_M} \right\rceil\right) + 4N , \tag{13.1} $$
# <!-- (13.1) rows = kernel_costs.ledger_bytes(kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=BN), beta) where N <= 5000 -->
#
# $$ \text{slices: } \beta\left(Nd + Nd\left\lceil \tfrac N{B_N} \right\rceil + 2Nd\left\lceil \tfrac N{B_M} \right\rceil\right) + 8Nd\left(\left\lceil \tfrac N{B_N} \right\rceil - 1\right) + 4N . \tag{13.2} $$
# <!-- (13.2) slices = kernel_costs.ledger_bytes(kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=BN), beta) where N <= 5000 -->
#
# For large $N$ and $\beta = 2$, with square tiles of side $b$ for the slices, that is $4/B_M$ against $14/b$ bytes, in units of $N^2d$. So whole rows are ahead as long as
#
# $$ B_M > \tfrac27\, b . \tag{13.3} $$
# <!-- (13.3) B_M > BM * rows(999 * BM) / slices(999 * b) within 0.01 with rows = lambda N: kernel_costs.ledger_bytes(kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=64), 2) / (N * N * d), slices = lambda N: kernel_costs.ledger_bytes(kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, d), BM=b, BN=b), 2) / (N * N * d) -->
#
# A tile of scores of $128 \times 128$ fits into registers whatever $d$ is. Then whole rows win down to 37 rows, and lose with 32.
# <!-- sliced = lambda arch: rows("resources", "shipped", kernel="sliced_forward", arch=arch, d=512, bytes=2, pairs="band")[0] -->
# <!-- 128 \times 128 = sliced(90)["BM"], sliced(90)["BN"] -->
#
# <!-- exercise 13A --> You get tiles as a compiler reported them. Return the one that moves the fewest bytes of those that may be used, and its bytes for one head. If you are stuck after six minutes, run `hint("13A")` in a cell of your own.

# %% [raw] name="about-13A"
# title = "The best tile for a GPU"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "Which tiles may be used at all? How many bytes does each of those move? There are two formulas, and BD tells which one applies.",
#   "First count words per array, and round up where a block may be ragged. Then multiply by the width of each array: LSE and the partial sums of O have 4 bytes per word, the rest itemsize.",
# # <!-- 4 as definition -->
#   "Complete rows: two arrays once, two arrays once per tile of queries, and N words of LSE. Slices: Q is read once per tile of keys, and between two tiles of keys N·d partial sums are written and read.",
# ]

# %% tags=["exercise"] name="ex-13A"
def my_choice(tiles, room, N, d, itemsize):
    """The tile of the forward pass that moves the fewest bytes, and how many.

    tiles: a list of dicts with BM, BN, BD (None: whole rows), spill_bytes and shared_bytes.
    room: bytes of shared memory that a program may have. A tile that spills is no good either.
    itemsize: bytes of a word of Q, K, V and O. Returns (one of the tiles, its bytes).
    """
    ### BEGIN SOLUTION bytes by (13.1) or (13.2), then the least of those that fit
    def bytes_moved(tile):
        rows, keys = -(-N // tile["BM"]), -(-N // tile["BN"])
        if tile["BD"] is None:
            return itemsize * (2 * N * d + 2 * N * d * rows) + 4 * N
        inputs = itemsize * (N * d + N * d * keys + 2 * N * d * rows)
        return inputs + 8 * N * d * (keys - 1) + 4 * N

    good = [tile for tile in tiles if tile["spill_bytes"] == 0 and tile["shared_bytes"] <= room]
    best = min(good, key=bytes_moved)
    return best, bytes_moved(best)
    ### END SOLUTION


# %% tags=["check"] name="check-13A"
check("13A", my_choice)

# %% [markdown]
# Now to the chips. For each of them there are two candidates: the recorded tile of whole rows, and the recorded tile of `sliced_forward`, the library's F6, which serves any $d$: $128 \times 128$, on a T4 $64 \times 64$.
# <!-- "the recorded tile of `sliced_forward`" if all(tile("sliced_forward", arch, 512) == tuple(sliced(arch)[size] for size in ("BM", "BN", "BD")) for arch in CHIPS) -->
# <!-- 128 \times 128 = min((sliced(arch)["BM"], sliced(arch)["BN"]) for arch in CHIPS if arch != 75) -->
# <!-- 64 \times 64 = sliced(75)["BM"], sliced(75)["BN"] -->
#
# **Predict** (compute). At which of the head sizes 64, 128, 256, 512 does each chip begin to prefer slices? (Where it never does, say 1024.)

# %% tags=["predict"]
predict("13.2b", t4=256, a100=512, h200=1024)  #> predict("13.2b", t4=..., a100=..., h200=...)

# %%
def where_slices_begin(choose):
    """For each chip the smallest head size at which slices move fewer bytes; 1024: none."""
    begin, lines = dict.fromkeys(CHIPS, 1024), []
    for arch, chip in CHIPS.items():
        line = f"{chip.name:16}"
        for d in (64, 128, 256, 512):
            two = [compiled("forward", arch, d), compiled("sliced_forward", arch, 512)]
            tile, moved = choose(two, chip.shared_bytes, 4096, d, 2)
            if tile["BD"]:
                begin[arch] = min(begin[arch], d)
            line += f"{'slices' if tile['BD'] else 'rows':6}{moved / 2**20:6,.0f} MiB   "
        lines.append(line)
    print(" " * 16 + "".join(f"d = {d:<14}" for d in (64, 128, 256, 512)), *lines, sep="\n")
    return begin


begin = attempt(where_slices_begin, my_choice)
measured("13.2b", t4=begin[75], a100=begin[80], h200=begin[90])

# %% [markdown]
# <details><summary>Where slices begin to pay</summary>
#
# The T4 from 256 on, A100 and L4 at 512, H200 and B200 not at all: they have 64 rows left. Each time it is (13.3). On a T4 slices have $b = 64$, and 16 rows are fewer than $\tfrac27 \cdot 64 = 18.3$; elsewhere 32 are fewer than 36.6. The gain at 512 is modest, 884 MiB instead of 1,032 on an A100. But it grows. Slices cost in proportion to $d$; whole rows cost in proportion to $d$ and to the number of tiles of queries, which doubles when the rows halve.
# <!-- begins = lambda arch, d: choice("forward pass", launch(arch, d)).value -->
# <!-- "Each time it is (13.3)" if all((begins(arch, d) == "slices") == (7 * forward(arch, d)[0]["BM"] < 2 * sliced(arch)["BM"]) for arch in CHIPS for d in (64, 128, 256, 512)) -->
# <!-- "they have 64 rows left" if all(forward(arch, 512)[0]["BM"] == 64 for arch in (90, 100)) -->
# <!-- "The T4 from 256 on, A100 and L4 at 512, H200 and B200 not at all" if [next((d for d in (64, 128, 256, 512) if begins(arch, d) == "slices"), 1024) for arch in (75, 80, 89, 90, 100)] == [256, 512, 512, 1024, 1024] -->
# <!-- whole = row("resources", "shipped", kernel="forward", arch=80, d=512, bytes=2, pairs="band", causal=False) -->
# <!-- problem = kernel_costs.KernelProblem(4096, 4096, 512) -->
# <!-- in_slices = kernel_costs.ledger_bytes(kernel_costs.sliced_forward(problem, BM=sliced(80)["BM"], BN=sliced(80)["BN"]), 2) / 2**20 -->
# <!-- in_rows = kernel_costs.ledger_bytes(kernel_costs.attention_forward(problem, BM=whole["BM"], BN=whole["BN"]), 2) / 2**20 -->
# <!-- 884, 1,032 = in_slices, in_rows -->
#
# Go back to the picture of section 13.1 and choose the kernel `sliced_forward`. Under its causal mask $128 \times 128$ with 64 columns each move 170,921,984 words: $Q$ comes as often as $K$ and $V$ do, and the sums go and come nearly as often. In words slices are further ahead than in bytes, for the sums are 4 bytes wide.
# <!-- under_causal = kernel_costs.sliced_forward(kernel_costs.KernelProblem(4096, 4096, 512, high=0), BM=128, BN=128) -->
# <!-- 170,921,984 = under_causal.total -->
# <!-- "$Q$ comes as often as $K$ and $V$ do" if len({under_causal.reads[name] for name in "QKV"}) == 1 -->
# <!-- 128 \times 128 = sliced(80)["BM"], sliced(80)["BN"] -->
# <!-- 4 = kernel_costs.WIDTHS["O_sum"] -->
#
# </details>
#
# <!-- 18.3, 36.6 = 2 / 7 * sliced(75)["BM"], 2 / 7 * sliced(90)["BM"] -->
# <!-- "16 rows are fewer than $\tfrac27 \cdot 64 = 18.3$; elsewhere 32 are fewer than 36.6" if 16 < 2 / 7 * sliced(75)["BM"] and 32 < min(2 / 7 * sliced(arch)["BM"] for arch in CHIPS if arch != 75) -->
#
# ## 13.3 From a mask to lists
#
# Now the other way to save: not to load what nobody sees. Take a mask, a boolean for each pair of query and key, and lay a kernel's tiles over it, $B_M$ queries by $B_N$ keys. There are three kinds of tiles. *Whole*: every pair is seen. *Unseen*: none is. *Cut*: some are.
#
# **Predict** (compute). A causal mask, 256 queries and keys, tiles of 32 queries by 64 keys. How many tiles are whole, and how many are cut?

# %% tags=["predict"]
predict("13.3", whole=12, cut=8)  #> predict("13.3", whole=..., cut=...)

# %%
def kinds(pairs, BM, BN):
    """One sign a tile, for lengths that the tile divides: # whole, + cut, . unseen."""
    tiles = pairs.reshape(pairs.shape[0] // BM, BM, pairs.shape[1] // BN, BN)
    some = np.where(tiles.any(axis=(1, 3)), "+", ".")
    return np.where(tiles.all(axis=(1, 3)), "#", some)     # (rows, columns)


given = {"causal": masks.Causal(256).pairs(),
         "BigBird": masks.bigbird(256, 32, 1, 1, 1).pairs()}  # blocks of 32 × 32
for signs in zip(*(kinds(pairs, 32, 64) for pairs in given.values()), strict=True):
    print("     ".join(" ".join(row) for row in signs))
causal = kinds(given["causal"], 32, 64)
measured("13.3", whole=(causal == "#").sum(), cut=(causal == "+").sum())

# %% [markdown]
# <details><summary>How many are whole and how many cut</summary>
#
# 12 whole and 8 cut, of 32: each tile of queries has one tile on the diagonal.
#
# </details>
#
# On the right the mask comes in blocks of $32 \times 32$, and tiles are cut where their two halves differ. It does not matter how a mask was described: blocks of any size, a rule on positions, single pairs. Once it is laid under the tiles there are three kinds.
# <!-- 32 \times 32 as input -->
#
# A kernel could look at the kind of every tile and pass over the unseen ones. But then a row of tiles costs $\lceil N/B_N\rceil$ looks, however few of its tiles are seen. Better to write down beforehand, for each row of tiles, which ones there are to do. This is the *compressed* form of a sparse matrix, with tiles for its numbers. Five arrays:
#
# | array | shape | what it holds |
# | --- | --- | --- |
# | `entries` | (tiles that are seen) | the column of each tile, row after row of tiles; within a row the whole tiles first, then the cut ones |
# | `spans` | (rows of tiles, 3) | for each row: where its entries begin, where the whole ones end and the cut ones begin, where it ends |
# | `patterns` | (cut tiles, $B_M$, $B_N$) | for each cut tile the pairs that are seen: 1, or 0 |
# | `slots` | (tiles that are seen) | for a cut entry, the number of its pattern; for a whole one anything, such as 0 |
# | `order` | (rows of tiles) | the rows, that with the most entries first (lesson 13b says why) |
#
# Whole tiles come first for the reason of section 11.5: two loops, one of which has no mask. At the ragged ends the two sides differ. A *query* past the last one has no weight anywhere, whatever the mask says, so it must not make a tile cut. A *key* past the last one would take weight. So a tile that reaches past the last key is never whole, and its pattern is 0 there.
#
# <!-- exercise 13B --> Make the five arrays of any mask. Patterns may be numbered anyhow; in their rows past the last query 0 and 1 are both right; rows with as many entries come in any order. If you are stuck after nine minutes, run `hint("13B")` in a cell of your own.

# %% [raw] name="about-13B"
# title = "Block lists of a mask"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "First reshape the mask into blocks: an array (rows, columns, BM, BN). Which test on a block tells that it has a visible pair, and which that all its pairs are visible? What must you do first if the block size does not divide the mask?",
#   "Use two padded copies. Out-of-bounds keys are masked in both. Out-of-bounds queries are masked in the copy that tests for any visible pair, and visible in the copy that tests for full blocks.",
#   "Loop over the rows of blocks. In each row: the numbers of the full blocks, then those of the partial ones; the positions in the list before, between and after them are the span of the row. A partial block takes the next slot and stores its pattern there. The order sorts rows by their number of entries, largest first.",
# ]

# %% tags=["exercise"] name="ex-13B"
def my_lists(pairs, BM, BN):
    """spans, entries, slots, patterns, order of a mask, for tiles of BM queries by BN keys.

    pairs: boolean (Nq, Nk), True where query i sees key j.
    Whole numbers, such as int32; in the patterns 0 and 1, or False and True.
    """
    Nq, Nk = pairs.shape
    rows, columns = -(-Nq // BM), -(-Nk // BN)
    ### BEGIN SOLUTION two padded copies, the kind of each tile, then row after row
    seen = np.zeros((rows * BM, columns * BN), dtype=bool)
    seen[:Nq, :Nk] = pairs
    unasked = seen.copy()
    unasked[Nq:] = True                                        # queries that do not exist
    shape = (rows, BM, columns, BN)
    tiles = seen.reshape(shape).swapaxes(1, 2)                 # (rows, columns, BM, BN)
    hit, whole = tiles.any(axis=(2, 3)), unasked.reshape(shape).all(axis=(1, 3))
    spans, entries, slots, patterns = [], [], [], []
    for row in range(rows):
        plain = np.flatnonzero(hit[row] & whole[row])
        cut = np.flatnonzero(hit[row] & ~whole[row])
        begin = len(entries)
        spans.append([begin, begin + len(plain), begin + len(plain) + len(cut)])
        entries += [*plain, *cut]
        slots += [0] * len(plain) + [len(patterns) + k for k in range(len(cut))]
        patterns += [tiles[row, column] for column in cut]
    order = np.argsort(-hit.sum(axis=1), kind="stable")
    return (np.array(spans, dtype=np.int32), np.array(entries, dtype=np.int32),
            np.array(slots, dtype=np.int32),
            np.array(patterns, dtype=np.uint8).reshape(-1, BM, BN), order.astype(np.int32))
    ### END SOLUTION


# %% tags=["check"] name="check-13B"
check("13B", my_lists)

# %%
def show_lists(make_lists, pairs, BM, BN):
    spans, entries, slots, _, order = make_lists(pairs, BM, BN)
    for row, (begin, cut, end) in enumerate(spans):
        print(f"row {row}: whole {entries[begin:cut]}, cut {entries[cut:end]}, "
              f"their patterns {slots[cut:end]}")
    print("order", order)


attempt(show_lists, my_lists, given["BigBird"], 32, 64)

# %% [markdown]
# Row 0 is BigBird's global row: it sees everything, so its list is longest, and the order begins with it. Row 7 has two whole tiles and no others. The 11 cut tiles have patterns 0 to 10.
# <!-- hit, cut = (one[0, 0] for one in costs.kernel_masks.BlockLists(256, 256, 16, pairs=masks.bigbird(256, 32, 1, 1, 1).pairs()[None, None]).tiles(32, 64)) -->
# <!-- "so its list is longest" if hit[0].all() -->
# <!-- "Row 7 has two whole tiles and no others" if (hit[7].sum(), cut[7].sum()) == (2, 0) -->
# <!-- "The 11 cut tiles" if cut.sum() == 11 -->
#
# The library does the same in `iocourse/kernels/host/masks.py`, with one difference: it asks the mask for one row of tiles at a time, so that the $N \times N$ booleans never exist. For $N = 65{,}536$ they would be 4 GB.
# <!-- 4 = 65_536**2 / 2**30 -->
#
# ## 13.4 A program that loops over a list
#
# With the lists a program knows what to do. Here it is in NumPy: the program of section 11.1, with a list where it had `range(0, N, BN)`.

# %%
def listed_program(place, Q, K, V, O, lists, BM, BN):
    """One tile of queries, the `place`-th of the order. Returns the keys that it read."""
    spans, entries, slots, patterns, order = lists
    tile = order[place]
    begin, cut, end = spans[tile]
    i = slice(tile * BM, min((tile + 1) * BM, len(Q)))
    q = Q[i] / np.sqrt(Q.shape[1])
    acc, m, l, keys = np.zeros_like(q), np.full(len(q), -np.inf), np.zeros(len(q)), 0
    for step in range(begin, end):
        j = slice(entries[step] * BN, min((entries[step] + 1) * BN, len(K)))
        s = q @ K[j].T
        if step >= cut:
            seen = patterns[slots[step]][: s.shape[0], : s.shape[1]]
            s = np.where(seen, s, -np.inf)
        m_new = np.maximum(m, s.max(axis=1))
        shift = np.where(np.isneginf(m_new), 0.0, m_new)     # section 11.9
        p, old = np.exp(s - shift[:, None]), np.exp(m - shift)
        m, l, acc = m_new, l * old + p.sum(axis=1), acc * old[:, None] + p @ V[j]
        keys += len(K[j])
    O[i] = acc / np.where(l == 0, 1.0, l)[:, None]
    return keys


def by_lists(make_lists, pairs, BM, BN):
    """The keys that all programs read together, and the largest error."""
    Q, K, V = np.random.default_rng(4).standard_normal((3, len(pairs), 16))
    lists, O, keys = make_lists(pairs, BM, BN), np.empty_like(Q), 0
    for place in range(len(lists[4])):
        keys += listed_program(place, Q, K, V, O, lists, BM, BN)
    hidden = np.where(pairs, 0.0, -np.inf)
    return keys, abs(O - exact.attention(Q, K, V, mask=hidden)).max()


for name, pairs in given.items():
    done = attempt(by_lists, my_lists, pairs, 32, 64)
    print(f"{name:8} {done[0]:5,} rows of K, largest error below 1e-12: {done[1] < 1e-12}")


# %% [markdown]
# 1,280 rows of $K$ under the causal mask: 20 tiles of 64 keys, where a dense mask has 32 tiles and 2,048 rows. 1,664 under BigBird, 26 tiles. The values are exact attention under the mask.
# <!-- blocks = lambda mask: costs.kernel_masks.BlockLists(256, 256, 16, pairs=mask.pairs()[None, None]) -->
# <!-- 1,280, 1,664 = blocks(masks.Causal(256)).keys_met(32, 64), blocks(masks.bigbird(256, 32, 1, 1, 1)).keys_met(32, 64) -->
# <!-- "20 tiles of 64 keys" if blocks(masks.Causal(256)).tiles(32, 64)[0].sum() == 20 -->
# <!-- "26 tiles" if blocks(masks.bigbird(256, 32, 1, 1, 1)).tiles(32, 64)[0].sum() == 26 -->
#
# A tile that is cut is loaded whole, keys that no row of it sees included, and so is its pattern. What the lists themselves cost comes next.
# <!-- 2,048 = 32 * 64 -->
#
# ## 13.5 Structure against density
#
# What does a tile cost, and which masks save anything? A tile that is seen brings $B_N$ keys and as many values. Its list entry is a number of 4 bytes. If it is cut, there is a slot of 4 bytes, and a pattern with a byte for each pair. In 16 bits,
# <!-- 4 = kernel_costs.WIDTHS["entries"] -->
#
# $$ 4 B_N d + 4 \quad\text{bytes for a whole tile}, \qquad 4 + B_M B_N \quad\text{bytes more for one that is cut.} \tag{13.4} $$
# <!-- (13.4) = listed(np.ones((BM, BN), bool)) - listed(np.zeros((BM, BN), bool)) with listed = lambda pairs: kernel_costs.ledger_bytes(kernel_costs.attention_forward(costs.kernel_masks.BlockLists(BM, BN, d, pairs=pairs[None, None]), BM=BM, BN=BN), 2) where BM * BN <= 5000 -->
# <!-- (13.4) = listed(np.arange(BM * BN).reshape(BM, BN) > 0) - listed(np.ones((BM, BN), bool)) with listed = lambda pairs: kernel_costs.ledger_bytes(kernel_costs.attention_forward(costs.kernel_masks.BlockLists(BM, BN, d, pairs=pairs[None, None]), BM=BM, BN=BN), 2) where 1 < BM * BN <= 5000 -->
#
# With $d = 64$ and tiles of $64 \times 64$ that makes 16,388 and 20,488 bytes: a cut tile costs a quarter more than a whole one. Under a mask of single pairs, each seen with probability $\rho$ by itself, a tile is hit with the probability (8.5),
# <!-- 64 \times 64 as input -->
# <!-- listed = lambda pairs, side: kernel_costs.ledger_bytes(kernel_costs.attention_forward(costs.kernel_masks.BlockLists(*pairs.shape, 64, pairs=pairs[None, None]), BM=side, BN=side), 2) -->
# <!-- tile_bytes = lambda pairs: listed(pairs, 64) - listed(np.zeros((64, 64), bool), 64) -->
# <!-- 16,388, 20,488 = tile_bytes(np.ones((64, 64), bool)), tile_bytes(np.arange(64 * 64).reshape(64, 64) > 0) -->
#
# $$ 1 - (1 - \rho)^{B_M B_N} , \tag{13.5} $$
# <!-- (13.5) = costs.kernel_masks.BlockLists(BM, BN, 1, pairs=np.indices((m,) * (BM * BN)).reshape(BN, BM, 1, -1).T == 0).tiles(BM, BN)[0].mean() with rho = 1 / m where BM * BN <= 10 and m ** (BM * BN) <= 5000 -->
#
# and every tile that is hit is cut.
#
# **Predict** (guess). $N = 2048$, these tiles, and one pair in a thousand is seen. How many times the bytes of dense attention does the kernel move?

# %% tags=["predict"]
predict("13.5", share=1.2)  #> predict("13.5", share=...)

# %%
def megabytes(pairs, B=64, d=64):
    """Bytes of the forward pass under a mask, one head in 16 bits, in MiB; lists included."""
    problem = BlockLists(*pairs.shape, d, pairs=pairs[None, None])
    ledger = attention_forward(problem, BM=B, BN=B)
    ledger.itemsizes = dict.fromkeys("QKVO", 2) | {"patterns": 1}
    ledger.itemsizes |= dict.fromkeys(("LSE", "order", "spans", "entries", "slots"), 4)
    return ledger.bytes / 2**20


N, draw = 2048, np.random.default_rng(6).random((2048, 2048), dtype=np.float32)
tiles = np.zeros((32, 32), dtype=bool)
tiles.flat[np.random.default_rng(6).choice(1024, 94, replace=False)] = True
compared = {
    "dense": np.ones((N, N), dtype=bool),
    "window of tiles": masks.sliding_window(N, 64, 1).pairs(),
    "94 tiles at random": np.repeat(np.repeat(tiles, 64, 0), 64, 1),
    "window of tokens": masks.Window(N, 96).pairs(),
    "pairs, as many": draw < 0.092,
    "pairs, 1 in 1,000": draw < 0.001,
    "pairs, 1 in 10,000": draw < 0.0001,
}
share = {}
for name, pairs in compared.items():
    hit, cut = BlockLists(N, N, 64, pairs=pairs[None, None]).tiles(64, 64)
    share[name] = megabytes(pairs) / megabytes(compared["dense"])
    print(f"{name:19} {pairs.mean():8.4%} of pairs: {hit.sum():5,} tiles, {cut.sum():5,} cut, "
          f"{megabytes(pairs):5.2f} MiB, {share[name]:.3f} of dense")
measured("13.5", share=share["pairs, 1 in 1,000"])

# %% [markdown]
# <details><summary>What a thousandth of the pairs costs</summary>
#
# 1.226 times: *more* than without any mask, for a thousandth of the pairs. Nearly every tile is hit, 1,010 of 1,024, and brings its pattern along.
# <!-- thousandth = listed(np.random.default_rng(6).random((2048, 2048), dtype=np.float32) < 0.001, 64) / listed(np.ones((2048, 2048), bool), 64) -->
# <!-- 1.226 = thousandth -->
#
# </details>
#
# Nearly a tenth of the pairs in whole tiles costs 0.120 of dense, whether the tiles form a window or lie anywhere: for what programs ask for, the number of tiles is all that counts (section 8.5 had larger blocks of queries, and there it was not). As many single pairs cost 1.242. Tiles of random pairs begin to save where (13.5) comes down to 0.8, to make up for the quarter: at $\rho = 0.0004$, about $1.6/(B_M B_N)$. Even one pair in 10,000, where 337 tiles are hit, costs 0.430.
#
# The window of tokens lies between: as many pairs as the window of tiles, but its two edges cut 122 tiles of 154. (A window needs no lists at all. Its borders can be computed, as in section 11.9, and `attention(…, window=)` does that.) So for a kernel the rule of lesson 08 becomes sharper. What it saves is *tiles nobody sees*, and what it likes are tiles that are seen whole.
# <!-- 0.8 = 16_388 / 20_488 -->
# <!-- 0.0004, 1.6 = 1 - (1 - 0.8) ** (1 / 64**2), -math.log(1 - 0.8) -->
#
# ## 13.6 A kernel that loops over a list
#
# From here on cells run Triton kernels. This lesson counts words, and words can be counted in the interpreter only; so the next cell asks for it before it imports Triton. On a computer with a GPU, `iocourse gpu 13C` runs your compiled kernel and times it. Where Triton is missing, that cell and each later one that needs it say in a line what to install; the others run.

# %% tags=["given"]
import os

os.environ["TRITON_INTERPRET"] = "1"

from iocourse import traffic
from iocourse.course import TritonMissing, missing_package

try:
    from iocourse import kernels

    assert kernels.INTERPRETED, "triton was imported earlier: restart the notebook"
    import torch
    import triton
    import triton.language as tl
except TritonMissing as missing:
    kernels = torch = triton = tl = missing_package(missing)
else:
    print("Kernels run in Triton's interpreter here, and every word they move is counted.")


# %% [markdown]
# We write `listed_program` as a kernel. The loop runs over steps of the list, from one loaded number to another, and the entry says which keys a step is about. In Triton a loop may have borders that are loaded; in the interpreter too. What a step does with its tile of keys you have written in lesson 11, so it is given:

# %% tags=["given"]
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """One tile of keys: new acc (BM, d), m and l (BM,), in powers of two.

    q (BM, d), k and v (BN, d) are loaded; seen (BM, BN) is True where a pair is visible, None
    for a full block.
    """
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if seen is not None:                                  # decided when the kernel is compiled
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    shift = tl.where(m_new == float("-inf"), 0.0, m_new)  # a row without a key so far: -inf - 0
    p = tl.exp2(s - shift[:, None])
    old = tl.exp2(m - shift)
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return acc, m_new, l * old + tl.sum(p, 1)


# %% [markdown]
# What is not given is all that has to do with lists. What do they cost? Each program reads its place in the order and the three numbers of its span; each step reads an entry, and if its tile is cut, a slot and a pattern:
#
# $$ \underbrace{4 \left\lceil \tfrac{N}{B_M} \right\rceil}_{\texttt{order},\ \texttt{spans}} + \underbrace{\text{tiles seen}}_{\texttt{entries}} + \underbrace{(1 + B_M B_N) \cdot \text{tiles cut}}_{\texttt{slots},\ \texttt{patterns}} \quad\text{words.} \tag{13.6} $$
# <!-- (13.6) = sum(problem.rows_extra(BM, BN).values()) with N = n % 50 + 1, BM = r % 20 + 1, BN = c % 20 + 1, problem = costs.kernel_masks.BlockLists(N, N, d, pairs=(np.random.default_rng(seed).random((N, N)) < density / 4)[None, None]), tiles_seen = int(problem.tiles(BM, BN)[0].sum()), tiles_cut = int(problem.tiles(BM, BN)[1].sum()) -->
#
# <!-- exercise 13C --> Write the kernel: which tile of queries it is (the programs begin with those that `order` names first), its span, two loops over the list, and a finish in which rows that see nothing get $O = 0$ and $L = -\infty$. The lists are those of exercise 13B, from the check: within a row whole tiles may come in any order, cut ones too, and patterns may be numbered anyhow. A whole tile needs no mask of any kind. $d$ is a power of two, and `scale` holds the $\lambda$ of (11.2), so that `LSE` ends as in (11.3). The words are those of $Q$, $K$, $V$, $O$ and $L$ and those of (13.6), no more and no fewer: a pattern is loaded whole, at the ragged ends too. If you are stuck after eleven minutes, run `hint("13C")` in a cell of your own.

# %% [raw] name="about-13C"
# title = "A loop over a list"
# difficulty = 4
# importance = 5
# minutes = 18
# hints = [
#   "What does each line of the NumPy program of section 13.4 become? Which numbers must be loaded before the first key?",
#   "The program id is a position in the order, and the order has the number of the query block. Three loads give the span. Then use two loops over the steps of the list; the entry of a step gives the key block. Only the second loop loads a slot and a pattern.",
#   "Full blocks have no out-of-bounds keys, so their loads need no mask. A pattern has BM · BN numbers, row by row, from slot · BM · BN; a pair is visible where it is not 0, and it is 0 for out-of-bounds keys. After the loops, a row with l = 0 attends to no key: divide by 1 there, and set its LSE to -inf.",
# ]

# %% tags=["exercise"] name="ex-13C"
@triton.jit
def listed_kernel(Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, Nk, scale,
                  d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE. Q, O (Nq, d), K, V (Nk, d), LSE (Nq,), and the five lists."""
    c = tl.arange(0, d)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    ### BEGIN SOLUTION the tile and its span, queries, whole tiles, cut tiles, the finish
    tile = tl.load(order + tl.program_id(0))
    begin = tl.load(spans + 3 * tile)
    cut = tl.load(spans + 3 * tile + 1)
    end = tl.load(spans + 3 * tile + 2)
    i = tile * BM + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)   # (BM, d)
    for step in range(begin, cut):
        j = tl.load(entries + step) * BN + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c)                                # (BN, d)
        v = tl.load(V + j[:, None] * d + c)
        acc, m, l = absorb(acc, m, l, q, k, v, scale)
    inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]    # places in a pattern
    for step in range(cut, end):
        j = tl.load(entries + step) * BN + tl.arange(0, BN)
        seen = tl.load(patterns + tl.load(slots + step) * BM * BN + inside) != 0
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
        acc, m, l = absorb(acc, m, l, q, k, v, scale, seen)
    nothing = l == 0.0
    safe = tl.where(nothing, 1.0, l)
    total = tl.where(nothing, float("-inf"), (m + tl.log2(safe)) * 0.6931471805599453)
    tl.store(O + i[:, None] * d + c, acc / safe[:, None], mask=i[:, None] < Nq)
    tl.store(LSE + i, total, mask=i < Nq)
    ### END SOLUTION


def my_listed_attention(Q, K, V, spans, entries, slots, patterns, order, BM, BN):
    """O (Nq, d) and LSE (Nq,). Q (Nq, d), K, V (Nk, d): contiguous float32; lists: tensors."""
    Nq, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(Nq)
    programs = triton.cdiv(Nq, BM)
    listed_kernel[(programs,)](Q, K, V, O, LSE, spans, entries, slots, patterns, order,
                               Nq, K.shape[0], 1.4426950408889634 * d**-0.5, d=d, BM=BM, BN=BN)
    return O, LSE


# %% tags=["check"] name="check-13C"
check("13C", my_listed_attention)

# %% [markdown]
# Your lists and your kernel together, compared with the library's `attention(…, block_mask=)`. It takes a mask from `kernels.tiled_mask`, which evaluates booleans for blocks (of 16, 32, 64, 128 or 256), one of `iocourse.masks`, or a BlockMask or predicate of FlexAttention. The lists are made from it:

# %%
def counted(launcher, *arguments, **keywords):
    """The ledger of a launch, and what it returned."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


def with_lists(make_lists, launcher, q, k, v, pairs, BM, BN):
    """The ledger of a launch with these lists, and O."""
    lists = [torch.from_numpy(np.asarray(part)) for part in make_lists(pairs, BM, BN)]
    ledger, (o, _) = counted(launcher, q, k, v, *lists, BM, BN)
    return ledger, o


N, d, BM, BN = 200, 32, 32, 64
q, k, v = torch.randn(3, N, d, generator=torch.Generator().manual_seed(13))
heads = [x[None, None] for x in (q, k, v)]  # (1, 1, N, d)
for mask in (masks.Causal(N), masks.bigbird(N, 16, 1, 1, 1), masks.Window(N, 20)):
    pairs = mask.pairs()
    with kernels.using(forward=(BM, BN)):
        tiled = kernels.tiled_mask(mask, *heads[:2])
        theirs = counted(kernels.attention, *heads, block_mask=tiled)
    mine = attempt(with_lists, my_lists, my_listed_attention, q, k, v, pairs, BM, BN)
    apart = abs(mine[1] - theirs[1][0, 0]).max()
    form = attention_forward(BlockLists(N, N, d, pairs=pairs[None, None]), BM=BM, BN=BN)
    print(f"{type(mask).__name__:10} yours {mine[0].total:8,}, library {theirs[0].total:8,}, "
          f"closed form {form.total:8,} words; same values to 1e-6: {apart < 1e-6}")


# %% [markdown]
# 89,339, 137,488 and 85,758 words, list for list. A mask given as a rule, as blocks of 16, as a window of tokens: for the kernel they are the same thing. If you set no tile, the library takes none larger than a block of the mask, for that would be cut by many blocks, but none below 64 for its sake. A model calls `kernels.tiled_mask(mask, q, k)` once and passes the result to every layer: it keeps the lists for each tile size. Masks may differ from head to head, and then there are lists for each head.
# <!-- "the library takes none larger than a block of the mask" if kernels.host.masks.within_blocks((256, 256), (128, 64)) == (128, 64) -->
# <!-- "none below 64 for its sake" if kernels.host.masks.within_blocks((256, 256), (16, 16)) == (64, 64) -->
#
# ## 13.7 Work in proportion to tiles
#
# We want the cost of a mask to be the cost of its tiles and nothing else. By (13.4) and (13.6) a launch on blocks of the tile's size, with $B_N$ dividing $N$, moves, in 16 bits,
#
# $$ \underbrace{4Nd + 4N + 16\left\lceil \tfrac N{B_M} \right\rceil}_{\text{whatever is seen}} + \left(4 B_N d + 4\right) \cdot \text{tiles} \quad\text{bytes,} \tag{13.7} $$
# <!-- (13.7) = kernel_costs.ledger_bytes(kernel_costs.attention_forward(problem, BM=BM, BN=BN), 2) with BM = r % 12 + 1, BN = c % 12 + 1, N = BN * (n % 9 + 1), blocks = np.random.default_rng(seed).random((costs.ceil_div(N, BM), N // BN)) < density / 4, tiles = int(blocks.sum()), problem = costs.kernel_masks.BlockLists(N, N, d, pairs=np.kron(blocks, np.ones((BM, BN), bool))[None, None, :N]) -->
#
# a straight line. Four masks, and the line through them:

# %%
N, B, d = 512, 64, 64
q, k, v = torch.randn(3, 1, 1, N, d, generator=torch.Generator().manual_seed(13)).half()
line = []
for keep in (0.1, 0.4, 0.7, 1.0):
    blocks = np.random.default_rng(10).random((8, 8)) < keep
    with kernels.using(forward=(B, B)):
        mask = kernels.tiled_mask(blocks, q, k)
        ledger, _ = counted(kernels.attention, q, k, v, block_mask=mask)
    line.append((int(blocks.sum()), ledger.bytes))
    print(f"{blocks.sum():2} of 64 tiles: {ledger.bytes:9,} bytes")
slope = (line[-1][1] - line[0][1]) // (line[-1][0] - line[0][0])
print(f"{slope:,} bytes a tile, {line[-1][1] - slope * line[-1][0]:,} bytes without any")

# %% [markdown]
# 16,388 bytes a tile, of which 4 are the list, and 133,248 bytes without any tile. With all 64 tiles seen, the lists are 384 bytes of 1,182,080. (A kernel that asks for every tile whether it is seen would pay for the unseen ones too.) Programs without a tile still start, read their span and store zeros. Does the time of a GPU follow the same line? Section 13.8 has a record.
# <!-- 16,388, 133,248 = tile_bytes(np.ones((64, 64), bool)), listed(np.zeros((512, 512), bool), 64) -->
# <!-- 384 = kernel_costs.WIDTHS["entries"] * (4 * 8 + 64) -->
#
# ## 13.8 Measured
#
# Bytes say what a kernel asks for, a clock says how long it takes. On a GPU, `python -m tools.bench gpu` in a checkout times whole rows, F6 and F5 (*fused split-d* and *materialised*) next to PyTorch's attention at large $d$, and masks next to FlexAttention; it also asks whether time follows the line of section 13.7. Two runs at few shapes are kept with the package. The line was fitted in the older one:

# %% tags=["nbval-ignore-output"]
from iocourse.data import records

for name in ("small-cache", "sparse-lines"):
    print(f"{name}: {records.format_record(load_record(name))}", end="\n\n")


# %% [markdown]
# Read them with care. Forward the time follows a line in the share of tiles, off by at most 2.3 percent, where $d = 128$ and $N = 8192$. With the backward pass, a small mask looks slower than it is: the random one at $N = 4096$ took 1.40 ms here, and 0.71 ms in a later run, which times Python's launches separately. At $d = 512$ writing the scores out takes less than half of the time of whole rows or slices in the backward pass, so the library does that there, a few heads at a time.
# <!-- random_mask = lambda record: row(record, contender="fused", d=128, N=4096, B=4, mask="random", pass_="backward")["ms"] -->
# <!-- 1.40, 0.71 = random_mask("sparse-lines"), random_mask("sparse") -->
# <!-- "looks slower than it is" if random_mask("sparse-lines") > 1.5 * random_mask("sparse") and "host_ms" in row("sparse", contender="fused", d=128, N=4096, B=4, mask="random", pass_="backward") -->
# <!-- "takes less than half of the time of whole rows or slices in the backward pass" if all(2 * it["ms"] < one["ms"] for it in rows("small-cache", d=512, contender="materialised", pass_="backward") for name in ("whole rows", "fused split-d") for one in rows("small-cache", d=512, causal=it["causal"], contender=name, pass_="backward")) -->
# <!-- 2.3 = 100 * load_record("sparse-lines")["lines"][0]["deviation"] -->
# <!-- 8192 = load_record("sparse-lines")["lines"][0]["N"] -->
#
# ## Misconceptions
#
# - **"A large head size does not fit a GPU."** In the forward pass some tile of whole rows fits every chip of the table, up to $d = 512$. Rows are lost on a T4, from 64 to 16; an H200 keeps 64 (13.1).
# <!-- "Rows are lost on a T4, from 64 to 16; an H200 keeps 64" if [forward(arch, d)[0]["BM"] for arch in (75, 90) for d in (64, 512)] == [64, 16, 64, 64] -->
# - **"What fits is best."** At $d = 512$ whole rows move 1,032 MiB on an A100 and slices 884 MiB (13.2).
# <!-- 1,032, 884 = in_rows, in_slices -->
# - **"A sparse mask saves what it hides."** A mask with one pair in a thousand moved 1.226 times the bytes of none. Only tiles that nobody sees are saved (13.5).
# <!-- 1.226 = thousandth -->
#
# ## Take-away
#
# - On most chips tiles of whole rows lose rows as $d$ grows, slices do not. In 16 bits whole rows win while $B_M > \frac27 b$; the table of compiled tiles says what $B_M$ is.
# - A mask becomes lists once: entries, spans, patterns of cut tiles, and an order. The kernel loops over a list, and bytes are a straight line in the number of tiles.
#
# ## References
#
# - B. Saha, C. Ye: *The I/O complexity of attention*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The small cache, $M < d^2$. F5 and F6 are schedules of this course (lesson 07).
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Section 3.3 is block-sparse FlashAttention.
# - J. Dong, B. Feng, D. Guessous, Y. Liang, H. He: *Flex Attention*, 2024, [arXiv 2412.05496](https://arxiv.org/abs/2412.05496). Masks as functions, and block masks with full and partial blocks.
# - NVIDIA: data sheets of T4, A100, L4, H200 and B200 (`iocourse.gpu.CHIPS` names the source of each); *CUDA C++ Programming Guide*, for shared memory and registers.
#
# **What comes next.** <!-- next -->
