# %% [markdown]
# # 14c What the chip said
#
# For four lessons a ledger has said, to the word, what the programs of a kernel ask for. Each time a caution stood beside it: what is asked for need not come from slow memory. Here we follow the words further down. Some are answered by the L2 cache, the others come from DRAM, and DRAM has a rate; so bytes turn into microseconds, and a count into a prediction that a clock can refute.
#
# **What you will learn**
#
# - to follow a ledger through L2 to DRAM, with an emulated cache of ten lines, and to say when DRAM sees each word once and when it sees the whole ledger;
# - to compute the bytes, the intensity and the least time of a forward pass, a backward pass and a decode step, and to name the roof that limits each;
# - to read grouped-query attention as I/O: the words of $K$ and $V$ for each head of queries;
# - to predict a time before you read one, recorded on an H200 or taken on your own GPU.
# <!-- "recorded on an H200" if all(device(name)["name"] == "NVIDIA H200" for name in ("decode", "attention", "varlen", "sparse", "small-cache")) -->
#
# **Prerequisites**: lesson 11 (the forward kernel and its words), section 11.12 of lesson 11b (the roofline). Section 14.5 mentions the backward pass of lesson 12. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# All of it runs on any machine, in NumPy. A GPU adds one measurement at the end, and the text says what has been recorded and what has not. Part b, [14b](14b_decode_and_varlen.ipynb), has two kernels, for a decode step and for texts of different lengths, and the counters.

# %% tags=["setup"]
from collections import OrderedDict
from itertools import chain, repeat, zip_longest

import numpy as np

from iocourse import costs
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.gpu import CHIPS

# %% [markdown]
# ## 14.1 Two lines to count at
#
# We want to know which memory a ledger is about. On a GPU three lie one below the other:
#
# | memory | on an H200 | who uses it |
# | --- | --- | --- |
# | registers and shared memory | 256 KB and 227 KB in each of 132 multiprocessors | the programs that run on that multiprocessor |
# | L2 cache | 60 MiB | all programs |
# | DRAM | 141 GB, at 4,800 GB/s | all programs |
#
# (DRAM is the kind of memory; HBM, on an H200, is how it is built. Between shared memory and registers there is a third line, which we leave to the compiler.) Words can be counted at two lines. What loads and stores ask for crosses the upper one, between a program and L2: that is the ledger. What L2 does not have crosses the lower one, between L2 and DRAM. The two-level model fits at either line, with an $M$ of its own: at the upper line $M$ is what a program holds, at the lower line it is L2. (All registers and shared memories together are 62 MiB, more than L2. But they are 132 pieces, and a word that every program wants has to be brought to every piece.)
#
# At the lower line the lower bounds leave everything open. For $N = 8192$, $d = 64$ and an $M$ of 60 MiB in 16 bits, Theorem A asks for fewer words than the compulsory $4Nd$; so no bound forbids that DRAM sees each word once, although the ledger of F2 has each word of $K$ and $V$ cross the upper line $\lceil N/B_M\rceil$ times. Whether L2 can answer all but the first time depends on *when* the others ask. So we need the programs in their order, side by side.
# <!-- "Theorem A asks for fewer words than the compulsory" if bounds.theorem_A(8192, 64, 60 * 2**20 // 2) < bounds.compulsory(8192, 64) -->
#
# Here they are, in NumPy's terms: F2 as lesson 11 launches it, 8 heads of 512 queries, tiles of 64. The unit is a row of 64 words: in 16 bits that is 128 bytes, one line of the cache.
# <!-- 128 = 2 * 64 -->
# <!-- 60 = load_record("profile")["device"]["l2_bytes"] / 2**20 -->
# <!-- 141 from https://www.nvidia.com/en-us/data-center/h200/ -->
# <!-- h200 = CHIPS[90] -->
# <!-- 256, 227, 4,800 = h200.registers * 4 / 2**10, h200.shared_bytes / 2**10, h200.gbytes_per_s -->
# <!-- 132 = device("profile")["multiprocessors"] -->
# <!-- on_chip = device("profile")["multiprocessors"] * (h200.registers * 4 + h200.shared_bytes) / 2**20 -->
# <!-- 62 = on_chip -->
# <!-- "more than L2" if on_chip > device("profile")["l2_bytes"] / 2**20 -->

# %%
H, N, d, BM = 8, 512, 64, 64
TILES = N // BM  # programs a head


def program(head, tile):
    """The rows that one program of F2 asks for: its queries, then a list a round."""
    def rows(array, t):
        return [(array, head, row) for row in range(t * BM, (t + 1) * BM)]

    yield rows("Q", tile)
    for t in range(TILES):
        yield rows("K", t) + rows("V", t)


def side_by_side(programs, at_once, late=0):
    """All rows asked for, in order: `at_once` programs run together, and take turns round
    by round; each begins `late` rounds after the one before it."""
    for first in range(0, len(programs), at_once):
        wave = (chain(repeat([], late * n), program(*one))
                for n, one in enumerate(programs[first:first + at_once]))
        for turn in zip_longest(*wave, fillvalue=[]):
            yield from chain(*turn)


together = [(head, tile) for head in range(H) for tile in range(TILES)]
explore.program_grid(H, TILES, 1, 1, order=together,
                     title="64 programs: a head a row, a tile of queries a column")


# %% [markdown]
# In the picture the programs of a head come one after the other, as lesson 11 launches them. $n_p$ programs are at work, one for each multiprocessor, say; when they are done the next $n_p$ start. Is this what the ledger counts?

# %%
asked = sum(1 for _ in side_by_side(together, at_once=4))
ledger = costs.flash2(N, d, Br=BM, Bc=BM)
print(f"{len(together)} programs ask for {asked:,} rows, {asked * d:,} words")
print(f"F2 reads {H * ledger.read:,} words in {H} heads, at least {H * 3 * N * d:,}")

# %% [markdown]
# 64 programs ask for 69,632 rows, which are the 4,456,448 words of (11.1). The inputs have 786,432. Stores we leave out: $O$ is written once, at either line.
# <!-- 64 as output -->
#
# ## 14.2 A cache between
#
# The cache is a set of rows with room for so many. A row that is there is answered. One that is not is *fetched* from DRAM and stays; if there is no room, the row that was asked for the longest time ago leaves (*least recently used*, LRU). An `OrderedDict` keeps its entries in the order of use, so the whole emulator is this:

# %%
def fetched(asked, room):
    """Rows that come from DRAM, through a cache with room for `room` rows."""
    cache, misses = OrderedDict(), 0
    for row in asked:
        if row in cache:
            cache.move_to_end(row)
        else:
            misses += 1
            cache[row] = None
            if len(cache) > room:
                cache.popitem(last=False)  # the first is the least recently used
    return misses


def readings(programs, at_once, room, late=0):
    """How many times DRAM is read for K and V; Q is read once whatever happens."""
    return (fetched(side_by_side(programs, at_once, late), room) / (H * N) - 1) / 2


# %% [markdown]
# The same 64 programs can be numbered in two ways. *Together*: all tiles of one head, then the next head; that is the order of section 11.10. *Scattered*: the first tile of every head, then the second of every head. Neither changes a load of any program, so both have the same ledger.
# <!-- 64 as input -->
#
# **Predict** (guess). Four programs run at once, and the cache has room for 2,048 rows, which is all of $K$ and $V$ of two heads. The programs ask for each word of $K$ and $V$ 8 times. How many times does DRAM deliver it, in either order?
# <!-- reads = lambda rows: costs.flash2(512, 64, Br=rows, Bc=64).reads["K"] / (512 * 64) -->
# <!-- 8 = reads(64) -->

# %% tags=["predict"]
predict("14.2", together=1, scattered=4)  #> predict("14.2", together=..., scattered=...)

# %%
scattered = [(head, tile) for tile in range(TILES) for head in range(H)]
orders = {"together": together, "scattered": scattered}
measured("14.2", **{name: readings(order, 4, room=2048) for name, order in orders.items()})

# %% [markdown]
# <details><summary>Once, or all the times</summary>
#
# Once and 8 times. Together, four programs of one head ask for the same rows in the same round; the first one brings them, and when the other four programs of the head come, $K$ and $V$ are still there. Scattered, a head comes back only after all the others have passed, and by then its rows have left: LRU answers nothing at all. The compulsory traffic and the whole ledger, from the same kernel, by the order of its programs.
# <!-- 8 as input -->
#
# </details>
#
# Now for every size of cache:

# %%
rooms = [2**k for k in range(5, 15)]
explore.curve({name: [(room, readings(order, 4, room)) for room in rooms]
               for name, order in orders.items()},
              title="How often DRAM delivers K and V: one ledger, two orders",
              xlabel="room of the cache (rows)", ylabel="readings of K and V")


# %% [markdown]
# (Where the two orders agree, the square hides the dot.) Together there are three steps. With room for 64 rows the cache is of no use: 8 readings. From 128 rows on, one tile of $K$ and one of $V$, it serves the programs that run at the same time: 2 readings. With room for $K$ and $V$ of one head (1,024 rows, and some for what passes by) it also serves the programs that come later: 1. The scattered order has no use for less than all heads, 8,192 rows and some more.
#
# The step in the middle is worth a formula. $n_p$ programs of one head in step read $K$ and $V$ once for all of them. So they are one large program with $n_pB_M$ rows of queries, and at the lower line (11.1) holds once more. With $T_r = \lceil N/B_M \rceil$ programs a head, DRAM delivers
#
# $$ W_{\text{DRAM}} = Nd + 2Nd \cdot r, \qquad r = \begin{cases} 1 & \text{if the keys and values of a head stay in L2,} \\ \lceil T_r/n_p \rceil & \text{if a tile of each does,} \\ T_r & \text{if nothing does.} \end{cases} \tag{14.1} $$
# <!-- (14.1) W_DRAM = costs.flash2(N, d, Br=Br, Bc=1).read with r = costs.ceil_div(N, Br) -->
# <!-- (14.1) r = costs.flash2(N, d, Br=N, Bc=1).reads["K"] / (N * d) -->
# <!-- (14.1) r = costs.flash2(N, d, Br=np * BM, Bc=1).reads["K"] / (N * d) with Tr = costs.ceil_div(N, BM) -->
# <!-- (14.1) r = costs.flash2(N, d, Br=BM, Bc=1).reads["K"] / (N * d) with Tr = costs.ceil_div(N, BM) -->

# %%
for at_once in (1, 2, 4, 8):
    r = readings(together, at_once, room=256)
    print(f"{at_once} at once, room for 256 rows: K and V read {r:g} times")


# %% [markdown]
# 8, 4, 2 and 1: $\lceil 8/n_p \rceil$. But programs on a chip do not keep step. Let each begin one round after the one before it:

# %%
for room in (256, 512, 1280):
    print(f"room for {room:5,} rows: in step {readings(together, 4, room):g}, "
          f"a round apart {readings(together, 4, room, late=1):g}")


# %% [markdown]
# With 256 rows nearly everything is lost, 7.75 readings instead of 2, and with 512 still 5.75: the cache must now span the distance between the first program and the last. With $K$ and $V$ of a whole head in it, 1,280 rows here, it makes no difference how the programs drift. That is the case to aim for, and by size it is the usual one on an H200. $K$ and $V$ of one head with $N = 8192$ and $d = 64$ are 2 MiB in 16 bits, $B_M = 64$ makes 128 programs of it, and 132 multiprocessors with two programs each are at work on three heads: 6 MiB of the 60. Scattered over 32 heads it would be 64 MiB. One head fills L2 at 245,760 tokens.
# <!-- 132 = device("profile")["multiprocessors"] -->
# <!-- at_once = 2 * device("profile")["multiprocessors"] -->
# <!-- "$B_M = 64$ makes 128 programs" if 8192 // tile("forward", 90, 64)[0] == 128 -->
# <!-- "with two programs each are at work on three heads" if all(len({(first + n) // 128 for n in range(at_once)}) == 3 for first in range(0, 32 * 128 - at_once, at_once)) -->
#
# This cache is a model, and simpler than the chip's. How an H200 chooses the line that leaves is, as far as we know, not published; a line can lie in certain places only; it fetches sectors of 32 bytes, not whole lines; and it holds what is written as well. What it shows is what can happen, and why the order of programs is part of a kernel. What did happen, counters say (lesson 14b).
# <!-- 32 as definition -->
# <!-- 2, 6, 64 = (heads * 2 * 8192 * 64 * 2 / 2**20 for heads in (1, 3, 32)) -->
# <!-- 60, 245,760 = device("profile")["l2_bytes"] / 2**20, device("profile")["l2_bytes"] / (2 * 64 * 2) -->
# <!-- 128 = 8192 / 64 -->
#
# ## 14.3 One new token
#
# There is one kind of attention for which no cache helps. A model that writes text makes one token at a time: a *decode step* has one query a head, against the keys and values of all tokens before it, which are kept in the *KV cache*. (That is an array in DRAM, and no cache in the sense of section 14.2.) With one query there is one tile of queries, so every word of $K$ and $V$ is asked for once. Both lines see the same words, and these are the compulsory ones. For $B$ texts, $H$ heads of queries and $H_{kv}$ heads of keys,
#
# $$ W = \underbrace{2BH_{kv}Nd}_{K,\ V} + \underbrace{2BHd}_{q,\ O}, \qquad t \ge \frac{\beta W}{\text{bandwidth}}, \tag{14.2} $$
# <!-- (14.2) W = step.reads["Q"] + step.reads["K"] + step.reads["V"] + step.writes["O"] with H = group * Hkv, step = kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), parts=1) -->
# <!-- (14.2) t >= (roofline.compulsory_bytes("forward", step, beta) - 4 * B * H) / bandwidth with H = group * Hkv, step = kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), W = roofline.compulsory_bytes("forward", step, 1) - 4 * B * H -->
#
# with $\beta$ bytes a word. (The log-sum-exp, one word a head, we leave out.) The work is $4BHNd$ operations, or FLOP: two products, a multiplication and an addition each. Without the small second term the intensity is
#
# $$ I = \frac{4BHNd}{\beta \cdot 2BH_{kv}Nd} = \frac{2}{\beta} \cdot \frac{H}{H_{kv}} , \tag{14.3} $$
# <!-- (14.3) I = roofline.arithmetic_intensity(roofline.flops("forward", B=B, H=H, N=N, d=d) / N, beta * (step.reads["K"] + step.reads["V"])) with H = group * Hkv, step = kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), parts=1) -->
#
# in 16 bits one FLOP a byte for each head of queries that shares a head of keys. Neither $N$ nor $d$ nor $B$ is left: no length and no batch takes decode away from the slope of the roof.
#
# In these terms the roof of section 11.12 (lesson 11b) is $\min(\text{peak},\ I \cdot \text{bandwidth})$, the FLOP a second that a chip can attain: a slope up to the bend at $I = \text{peak}/\text{bandwidth}$, and flat from there on.
#
# <!-- exercise 14A --> Compute (14.2): the bytes of a decode step and the least time they take, in microseconds. A bandwidth of 1 GB/s is $10^9$ bytes a second, as on data sheets. If you are stuck after five minutes, run `hint("14A")` in a cell of your own.
# <!-- 1 as definition -->
# <!-- 132 = device("attention")["multiprocessors"] -->

# %% [raw] name="about-14A"
# title = "One token"
# difficulty = 2
# importance = 5
# minutes = 8
# hints = [
#   "Which four arrays are moved, and how many words has each? Two of them have one head per query head, the other two one per key head.",
#   "K and V have B · H_kv · N · d words each; the query and the output of all heads B · H · d each. Every word moves once and has itemsize bytes.",
#   "Bytes divided by bytes per second are seconds. 1 GB/s is 10^9 bytes per second, or 1,000 bytes per microsecond.",
# # <!-- 1, 1,000 as definition -->
# ]

# %% tags=["exercise"] name="ex-14A"
def my_decode_step(B, H, H_kv, N, d, itemsize, gbytes_per_s):
    """(bytes moved, least microseconds) of one query a head against N keys.

    B texts, H heads of queries, H_kv heads of keys, itemsize bytes a word.
    """
    ### BEGIN SOLUTION K and V of the heads of keys, a query and an output of every head
    words = 2 * B * H_kv * N * d + 2 * B * H * d
    moved = itemsize * words
    return moved, moved / (1000 * gbytes_per_s)
    ### END SOLUTION


# %% tags=["check"] name="check-14A"
check("14A", my_decode_step)

# %% [markdown]
# One layer of Llama 3.1 8B has $H = 32$, $H_{kv} = 8$ and $d = 128$. With 32,768 tokens in the cache, in 16 bits:
# <!-- 3.1 from https://arxiv.org/abs/2407.21783 -->

# %%
LAYER = {"B": 1, "H": 32, "H_kv": 8, "N": 32768, "d": 128, "itemsize": 2}
work = 4 * 32 * 32768 * 128  # FLOP
for chip in CHIPS.values():
    step = attempt(my_decode_step, **LAYER, gbytes_per_s=chip.gbytes_per_s)
    print(f"{chip.name:15} {step[0]:,} bytes, {step[1]:6.1f} µs to move them, "
          f"{work / chip.tensor_tflops / 1e6:5.2f} µs to multiply")


# %% [markdown]
# On an H200 moving takes 28.0 µs and multiplying 0.54: for 98 percent of the time the tensor cores wait. The order of the chips is that of their bandwidths. An L4 multiplies at almost twice the rate of a T4, 121 TFLOP/s to 65, and is the slower of the two here, 447.4 µs against 419.5.
# <!-- problem = lambda H_kv: kernel_costs.KernelProblem(1, 32768, 128, H=32, H_kv=H_kv) -->
# <!-- moving = lambda chip, H_kv=8: (roofline.compulsory_bytes("forward", problem(H_kv), 2) - 4 * 32) / chip.gbytes_per_s / 1e3 -->
# <!-- multiplying = roofline.flops("forward", B=1, H=32, N=32768, d=128) / 32768 / h200.tensor_tflops / 1e6 -->
# <!-- 28.0, 0.54, 98 = moving(h200), multiplying, 100 * (1 - multiplying / moving(h200)) -->
# <!-- 447.4, 419.5 = moving(CHIPS[89]), moving(CHIPS[75]) -->
# <!-- "almost twice the rate of a T4" if 1.8 < CHIPS[89].tensor_tflops / CHIPS[75].tensor_tflops < 2 -->
# <!-- "slower of the two here" if moving(CHIPS[89]) > moving(CHIPS[75]) -->
# <!-- "order of the chips is that of their bandwidths" if sorted(CHIPS.values(), key=moving) == sorted(CHIPS.values(), key=lambda chip: -chip.gbytes_per_s) -->
# <!-- 121, 65 = CHIPS[89].tensor_tflops, CHIPS[75].tensor_tflops -->
#
# ## 14.4 Heads that share keys
#
# Section 11.10 found that shared heads of keys do not reduce what the programs of a *forward pass* read: each program reads the keys for itself. Decode is different. Where a group of $H/H_{kv}$ heads shares its keys, their queries become the rows of one tile, as 64 queries of one head were before. A program reads a tile of keys once for the whole group. The words of $K$ and $V$ *for each head of queries* are
#
# $$ \frac{2BH_{kv}Nd}{BH} = 2Nd \cdot \frac{H_{kv}}{H} . \tag{14.4} $$
# <!-- (14.4) 2 * kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), parts=1).reads["K"] / (B * H) = 2 * kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, B=B, H=H, H_kv=Hkv), parts=1).reads["K"] / (B * H) with H = group * Hkv -->
#
# Three names for three choices of $H_{kv}$: *multi-head attention* (MHA, $H_{kv} = H$), *grouped-query attention* (GQA), *multi-query attention* (MQA, $H_{kv} = 1$).

# %%
for name, heads in (("MHA", 32), ("GQA", 8), ("MQA", 1)):
    step = attempt(my_decode_step, **LAYER | {"H_kv": heads}, gbytes_per_s=4800)
    words = 2 * 32768 * 128 * heads // 32
    print(f"{name}, H_kv = {heads:2}: {words:9,} words a head of queries, "
          f"{step[0] / 2**20:5.0f} MiB, {step[1]:5.1f} µs on an H200, "
          f"{32 // heads:2} FLOP a byte")


# %% [markdown]
# From 111.9 to 28.0 to 3.5 µs: the least time of a decode step shrinks by the factor by which its cache does, because the cache is nearly all it moves. This is what grouped-query attention is for. The intensity rises by the same factor, so it could also reach the bend of the roof some day.
# <!-- 111.9, 28.0, 3.5 = moving(h200, 32), moving(h200, 8), moving(h200, 1) -->
#
# **Predict** (compute). How many heads of queries would have to share one head of keys, in 16 bits, before an H200 (989 TFLOP/s, 4,800 GB/s) is limited by its tensor cores in decode?
# <!-- 989, 4,800 = h200.tensor_tflops, h200.gbytes_per_s -->

# %% tags=["predict"]
predict("14.4", heads=206)  #> predict("14.4", heads=...)

# %%
for arch in (80, 90, 100):
    chip = CHIPS[arch]
    bend = 1000 * chip.tensor_tflops / chip.gbytes_per_s
    print(f"{chip.name:15} bends at {bend:.0f} FLOP a byte")
heads = int(1000 * CHIPS[90].tensor_tflops / CHIPS[90].gbytes_per_s) + 1
measured("14.4", heads=heads)

# %% [markdown]
# <details><summary>How many heads it takes</summary>
#
# It takes 207. In Llama 3.1 8B four heads share one, and in the multi-query form of our layer 32 do: decode is pure bandwidth. (Several new tokens at once, as in *speculative decoding*, are more rows of the tile: 52 tokens in groups of 4 would do.)
#
# </details>
#
# <!-- 52 = math.ceil(207 / 4) -->
# <!-- 207 = next(heads for heads in range(1, 1000) if heads > roofline.ridge_point(h200)) -->
# <!-- 3.1 from https://arxiv.org/abs/2407.21783 -->
#
# ## 14.5 Which roof
#
# We want the same prediction for every pass. Count FLOP by the field's convention: the forward pass has two products of $2N^2d$ each, the backward pass five (whatever a kernel makes twice), and exponentials are not counted. Count bytes at the lower line and at best, each array once:
#
# | pass, one head | FLOP | reads | writes |
# | --- | --- | --- | --- |
# | forward | $4N^2d$ | $Q$, $K$, $V$ | $O$ |
# | backward | $10N^2d$ | $Q$, $K$, $V$, $O$, $dO$ | $dQ$, $dK$, $dV$ |
# | decode | $4Nd$ | $q$, $K$, $V$ | $O$ |
#
# A chip can move and multiply at the same time, so the least time is the longer of the two,
#
# $$ t \ge \max\left( \frac{\text{FLOP}}{\text{peak}},\ \frac{\text{bytes}}{\text{bandwidth}} \right) , \tag{14.5} $$
# <!-- (14.5) t >= FLOP / (10**12 * roofline.attainable_tflops(roofline.arithmetic_intensity(FLOP, bytes), chip)) with chip = list(CHIPS.values())[k % len(CHIPS)], peak = 10**12 * chip.tensor_tflops, bandwidth = 10**9 * chip.gbytes_per_s -->
#
# and whichever is longer names the limit. This is the roofline, (11.9) of lesson 11b, read as a time.
#
# <!-- exercise 14B --> Compute (14.5) for the three passes, without a mask. Arrays of queries ($Q$, $O$, $dO$, $dQ$) have $H$ heads, arrays of keys ($K$, $V$, $dK$, $dV$) have $H_{kv}$; FLOP count every head of queries. Row sums are left out. If you are stuck after six minutes, run `hint("14B")` in a cell of your own.

# %% [raw] name="about-14B"
# title = "Memory-bound or compute-bound"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "Compute two times per pass: the time of the products alone, and the time of the memory traffic alone. Which of the two can be hidden behind the other?",
#   "Divide the arrays of the table into those with H heads and those with H_kv. The forward pass has two of each kind, the backward pass four; decoding has the count of exercise 14A.",
#   "One microsecond is 10^6 FLOPs per TFLOP/s of the peak, and 1,000 bytes per GB/s. The minimum time is the larger of the two times, and the larger one is the limit.",
# # <!-- 1,000 as definition -->
# ]

# %% tags=["exercise"] name="ex-14B"
def my_least_time(pass_, B, H, H_kv, N, d, itemsize, tflops, gbytes_per_s):
    """(least microseconds, limit) of one pass: "forward", "backward" or "decode".

    tflops: 10**12 FLOP a second; gbytes_per_s: 10**9 bytes a second.
    The limit is "memory" or "products".
    """
    ### BEGIN SOLUTION FLOP and bytes of the pass, then the longer of two times
    if pass_ == "decode":
        flop = 4 * B * H * N * d
        moved, _ = my_decode_step(B, H, H_kv, N, d, itemsize, gbytes_per_s)
    else:
        products, arrays = {"forward": (4, 2), "backward": (10, 4)}[pass_]
        flop = products * B * H * N**2 * d
        moved = itemsize * arrays * B * (H + H_kv) * N * d
    multiplying, moving = flop / (1e6 * tflops), moved / (1e3 * gbytes_per_s)
    return max(multiplying, moving), "memory" if moving > multiplying else "products"
    ### END SOLUTION


# %% tags=["check"] name="check-14B"
check("14B", my_least_time)

# %% [markdown]
# **Predict** (compute). $H = H_{kv}$, 16 bits, an H200. From which $N$ on are the forward pass and the backward pass limited by products? (Divide the FLOP by the bytes first: what is left of $d$?)

# %% tags=["predict"]
predict("14.5", forward=413, backward=330)  #> predict("14.5", forward=..., backward=...)

# %%
H200 = {"itemsize": 2, "tflops": 989, "gbytes_per_s": 4800}


def first_limited_by_products(least_time, pass_):
    """The least N at which the tensor cores are the limit."""
    return next(N for N in range(1, 2000)
                if least_time(pass_, 1, 1, 1, N, 128, **H200)[1] == "products")


measured("14.5", **{pass_: attempt(first_limited_by_products, my_least_time, pass_)
                    for pass_ in ("forward", "backward")})


# %% [markdown]
# <details><summary>From which length on</summary>
#
# 413 and 330. $4N^2d$ FLOP for $4Nd$ words of 2 bytes are $N/2$ FLOP a byte, and $d$ is gone; backward it is $10/16 \cdot N$.
# <!-- intensity = lambda pass_, N: roofline.arithmetic_intensity(roofline.flops(pass_, B=1, H=1, N=N, d=128), roofline.compulsory_bytes(pass_, kernel_costs.KernelProblem(N, N, 128), 2) - 4 * N) -->
# <!-- 413, 330 = (next(N for N in range(1, 2000) if intensity(pass_, N) > roofline.ridge_point(h200)) for pass_ in ("forward", "backward")) -->
# <!-- 2 as definition -->
#
# </details>
#
# Training and reading a prompt lie on the flat part of the roof from a few hundred tokens on, if L2 answers as in section 14.2, and the kernels of lessons 11 and 12 live from their products. Decode never gets there.
#
# The next cell draws all of this for sizes that you choose. Each pass has two points: the coloured one for the compulsory bytes, the grey one for those that the library's kernels ask for; the line below the picture names the kernels of each pass. Move $N$, $d$ and the heads, and watch which points cross the bend. (Tab goes from control to control, the arrow keys move a slider. Without a running kernel you see a still picture.)

# %%
explore.roofline_explorer(90, N=4096, d=128, H=32, H_kv=8, causal=False)

# %% [markdown]
# Read the two points of the forward pass. By what its programs ask for it does 63 FLOP a byte, to the left of the bend at 206 (*ridge* in the picture); by what DRAM must deliver, 3,256. Between the two lies L2: the line from one point to the other is section 14.2. Decode has no such line. Its two points all but coincide, 3.71 and 4 FLOP a byte, and no $N$ moves them over the bend; what moves them far is $H/H_{kv}$. (*Block-sparse* is the forward pass of lesson 13 under a mask that sees a share of the tiles, the *density*.)
# <!-- points = course.explore.models.roofline_explorer.points(course.explore.models.roofline_explorer.RooflineState(90, 4096, 128, 32, 8, causal=False)) -->
# <!-- 63, 3,256 = points[0].ledger_intensity, points[0].intensity -->
# <!-- 206 = roofline.ridge_point(h200) -->
# <!-- 3.71, 4 = points[2].ledger_intensity, points[2].intensity -->
#
# A roof is a promise that nothing can be faster, and none that anything is as fast. A kernel stays below its roof where tiles are ragged, where programs are too few (lesson 14b), or where exponentials take longer than products.
# <!-- "nothing can be faster" as definition -->
#
# ## 14.6 Predict, then read
#
# Everything so far was computed. A prediction is worth something if it can fail, so here are five, each with the run that can refute it:
#
# | prediction | from | step of `python -m tools.bench gpu` |
# | --- | --- | --- |
# | a decode step takes the time of its bytes, whatever $H_{kv}$ is, where that is long beside the time of a launch | (14.2), (14.3) | `decode` |
# | forward and backward are limited by products from some hundred tokens on; a time alone does not show the limit | section 14.5 | `attention` |
# | packing gains what padding wastes, the share of the pairs | lesson 14b | `varlen` |
# | with a block mask, time goes with the number of tiles | lesson 13 | `sparse` |
# | $d$ in slices pays where few whole rows are left | (13.3) | `small-cache` |
#
# Runs on a named chip are kept with the package. Each carries device, versions, date and commit:

# %% tags=["nbval-ignore-output"]
from iocourse.data.records import load_record, record_source

for subject in ("decode", "attention", "varlen", "sparse", "small-cache"):
    print(f"{subject:12} {record_source(load_record(subject))}")


# %% [markdown]
# The roofs of the data sheets say what cannot be exceeded, and nothing about what is reached; these records do. What may one expect? A copy of a large array does nothing but move bytes, and reaches less than the data sheet says. So the step `decode` measures a copy in the same run and reports a decode step as a share of it.
#
# **Predict** (guess). The decode step of section 14.3, on an H200 or on the GPU that you have: how many microseconds? Your function of exercise 14A gives the least; say by how much you expect to miss it.

# %% tags=["predict"]
predict("14.6", microseconds=32)  #> predict("14.6", microseconds=...)

# %%
import os
import subprocess
import sys

from iocourse.gpu.timing import cuda_unavailable_reason

STEP = """
import sys
import torch
from iocourse import kernels
from iocourse.gpu.timing import time_of

B, H, H_kv, N, d = map(int, sys.argv[1:])
q, k, v = (torch.randn(B, heads, n, d, dtype=torch.float16, device="cuda")
           for heads, n in ((H, 1), (H_kv, N), (H_kv, N)))
print(1000 * time_of(lambda: kernels.decode(q, k, v)).ms)
"""


def timed_here(*sizes):
    """Microseconds of a decode step on this machine's GPU; where there are none, why."""
    if cuda_unavailable_reason():
        return f"{cuda_unavailable_reason()}; needed: an NVIDIA GPU and a torch built for it"
    import torch

    if torch.cuda.get_device_capability() < (8, 0):
        return "Triton uses no tensor cores on this GPU, and compiles for minutes"
    done = subprocess.run([sys.executable, "-c", STEP, *map(str, sizes)], check=False,
                          env=os.environ | {"TRITON_INTERPRET": "0"},
                          capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else done.stderr.strip()[-200:]


def recorded_step():
    """Microseconds of that step in the recorded run; where there are none, why."""
    record = load_record("decode")
    wanted = {"B": 1, "H": 32, "H_kv": 8, "N": 32768, "contender": "split-KV"}
    for row in record["rows"] if record else ():
        if wanted.items() <= row.items():
            return row["us"] if "us" in row else row["refused"]
    return "the record has no such step" if record else record_source(record)


# %% [markdown]
# The script runs in a process of its own, where kernels are compiled. `time_of` takes the median of many laps and empties L2 before each.

# %% tags=["nbval-ignore-output"]
for place, found in (("recorded", recorded_step()), ("here", timed_here(1, 32, 8, 32768, 128))):
    if isinstance(found, str):
        print(f"{place}: not measured: {found}")
    else:
        print(f"{place}: {found:.1f} µs, {134_234_112 / found / 1000:,.0f} GB/s")
        measured("14.6", microseconds=found)


# %% [markdown]
# <details><summary>What the time says</summary>
#
# Divide: bytes over microseconds are a bandwidth. The recorded step reaches 0.67 of the bandwidth of a copy in the same run, and with 32 heads of keys, four times the bytes, 0.89. With one head of keys it is 0.16: the step takes 24.5 µs, and a copy of its bytes would take 3.9. Most of such a step is what every step costs, however little it reads.
# <!-- own = [row for row in load_record("decode")["rows"] if (row["contender"], row["B"], row["N"]) == ("split-KV", 1, 32768)] -->
# <!-- 0.89, 0.67, 0.16 = (row["share"] for row in own) -->
# <!-- 24.5, 3.9 = own[-1]["us"], own[-1]["us"] * own[-1]["share"] -->
#
# </details>
#
# ## Misconceptions
#
# - **"FlashAttention reads $K$ and $V$ from HBM $\lceil N/B_M \rceil$ times."** Its programs ask for them so often. Behind the emulated cache DRAM delivered them 1, 2 or 8 times for one and the same ledger, by the room of the cache and the order of the programs (14.2).
# <!-- 1, 2, 8 = (reads(rows) for rows in (512, 4 * 64, 64)) -->
# - **"A larger L2 makes every kernel faster."** A decode step asks for each word once; there is nothing for a cache to answer (14.3).
# <!-- "makes every kernel faster" as definition -->
# - **"Grouped-query attention saves arithmetic."** In attention it has the same FLOP, for each head of queries meets every key. It saves words of $K$ and $V$, and in decode these are the time (14.4).
# - **"Decode needs a faster chip."** It needs faster memory: an L4 multiplies at almost twice the rate of a T4, and the least time of the step is longer (14.3).
# <!-- "Decode needs a faster chip." if CHIPS[89].tensor_tflops > CHIPS[75].tensor_tflops -->
# <!-- "It needs faster memory" if moving(CHIPS[89]) > moving(CHIPS[75]) -->
# - **"On the roof means fast enough."** The roof is a limit on what can be; only a clock says what is (14.6).
#
# ## Take-away
#
# - A ledger is the traffic between programs and L2. DRAM sees what L2 misses: each word once, if the programs that share keys run together and the keys of a head fit.
# - $n_p$ programs side by side are one program with $n_pB_M$ rows; the two-level model holds again one level down.
# - Decode is pure bandwidth: $2/\beta$ FLOP a byte for each head that shares keys, and a time that is bytes over bandwidth. Heads that share keys are the way to fewer bytes.
# - Predict, then measure, and say so where nothing has been measured.
#
# ## References
#
# - S. Williams, A. Waterman, D. Patterson: *Roofline*, Communications of the ACM 52(4), 2009.
# - N. Shazeer: *Fast transformer decoding: one write-head is all you need*, 2019, [arXiv 1911.02150](https://arxiv.org/abs/1911.02150). MQA, argued by memory traffic.
# - J. Ainslie et al.: *GQA*, 2023, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245).
# - A. Grattafiori et al.: *The Llama 3 herd of models*, 2024, [arXiv 2407.21783](https://arxiv.org/abs/2407.21783). The sizes of the 8B model.
# - Y. Leviathan, M. Kalman, Y. Matias: *Fast inference from transformers via speculative decoding*, 2023, [arXiv 2211.17192](https://arxiv.org/abs/2211.17192).
# - NVIDIA: data sheets of the chips (`iocourse.gpu.CHIPS` names the source of each), for the DRAM that of the [H200](https://www.nvidia.com/en-us/data-center/h200/); [*NVIDIA Hopper architecture in-depth*](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/), for the number of multiprocessors and the registers. The size of the L2 is what the driver of the measured H200 reports.
#
# **What comes next.** <!-- next --> So far every schedule computes every pair that its mask keeps. If the entries are small, $e^{QK^\top}$ is nearly a product of two thin matrices, and attention nearly a product of three, which can be computed from either end. Low-rank attention is about *almost-linear time*: its words, and its accuracy.
