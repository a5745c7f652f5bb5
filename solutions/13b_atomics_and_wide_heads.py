# %% [markdown]
# # 13b Atomics, wide heads and three wrong kernels
#
# What [lesson 13](13_block_sparse_triton.ipynb) counted, and did not build, is here: the kernel that cuts $d$, whose outputs travel to slow memory and back; the order in which programs should start; the lists of the backward pass. At the end you have three reports of `check`, and no code, and say which line is wrong.
#
# **What you will learn**
#
# - to say why heavy rows should start first, and how much it can matter;
# - to write a kernel with $d$ in slices and no $N \times N$ matrix anywhere, and to say when one that stores its scores moves less;
# - why the backward pass needs the same lists turned over;
# - to diagnose a kernel from what holds and what fails;
# - to add up $dQ$ from many programs with atomic additions.
#
# **Prerequisites**: [lesson 13](13_block_sparse_triton.ipynb). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 13D -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import masks
from iocourse.costs.kernel_masks import BlockLists
from iocourse.costs.kernels import (
    KernelProblem,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
    fused_backward_plain,
    scores_forward,
    sliced_forward,
)
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record
from iocourse.gpu import CHIPS

# %% [markdown]
# ## 13.9 Heavy rows first
#
# All programs are given to the chip at once, and it has a limited number of multiprocessors. In dense attention all programs are alike. Under a mask one row of tiles may have 64 tiles and another seven:

# %%
explore.block_mask(masks.bigbird(4096, 64, 1, 1, 2), 64)

# %% [markdown]
# BigBird's first row of tiles sees everything, and there are 440 tiles in 64 rows. Then it matters which row starts when. A model: $n$ processors, each takes the next program in line as soon as it is free, and a program takes one step for each of its tiles. (A multiprocessor may have several programs at work, and starts them only roughly in the order of their numbers.)

# %%
def timelines(work, order, n):
    """What each of n processors does: a program's last digit, once for each of its tiles."""
    lines = [""] * n
    for program in order:
        free = min(range(n), key=lambda p: len(lines[p]))  # the one that is done first takes it
        lines[free] += str(program % 10) * int(work[program])
    return lines


work = masks.causal(512, 64).tiles.sum(axis=1)  # 1, 2, …, 8
for order in (range(8), np.argsort(-work)):
    print("order", *order)
    print("\n".join(timelines(work, order, 3)))


# %% [markdown]
# Eight rows of a causal mask on three processors, 36 tiles. With the light ones first, the heaviest starts when nothing is left to put beside it: 15 steps. With the heavy ones first the light ones fill the gaps: 13 steps, where an even division would take 12.
#
# **Predict** (guess). Now 64 rows, program $t$ with $t + 1$ tiles, 2,080 together, on 16 processors. If the work could be divided at will it would take 130 steps. How many in the order $0, 1, 2, \dots$, and how many with the heavy ones first?
# <!-- 2,080 = sum(range(65)) -->

# %% tags=["predict"]
predict("13.9", in_order=160, heavy_first=130)  #> predict("13.9", in_order=..., heavy_first=...)

# %%
def steps(work, order, n=16):
    return max(map(len, timelines(work, order, n)))


work = masks.causal(4096, 64).tiles.sum(axis=1)  # 1, 2, …, 64
measured("13.9", in_order=steps(work, range(64)), heavy_first=steps(work, np.argsort(-work)))

# %% [markdown]
# <details><summary>With light ones first, and with heavy ones first</summary>
#
# 160 and 130: with the heavy ones first nothing is lost.
#
# </details>
#
# How bad can it be? A program starts as soon as some processor is free. When the one that *ends last* starts, no processor has been idle yet, so they have done at most $w_{\text{all}} - w_{\text{last}}$ of all $w_{\text{all}}$ tiles, and it starts after at most $(w_{\text{all}} - w_{\text{last}})/n$ steps. So the whole takes
#
# $$ t_{\text{end}} \le \frac{w_{\text{all}}}{n} + \left(1 - \frac1n\right) w_{\text{last}} . \tag{13.8} $$
# <!-- (13.8) not evaluated: step of a proof -->
#
# The first term is what an even division would take. What comes on top is as long as the program that ends last: little, if it is a light one. That is why the heavy ones go first. (Graham showed in 1969 that this order never takes more than $\frac43 - \frac1{3n}$ times the least possible.) Under a causal mask it is the order of section 11.5, last rows first. For any other mask it has to be found, and that is the array `order`. A mask with one row that sees everything, as a token that sums up the text at its end:

# %%
summary = masks.bigbird(4096, 64, 1, 1, 2).tiles[::-1].sum(axis=1)  # the global row is the last
for heads in (1, 8):
    work, heavy_first = np.tile(summary, heads), np.argsort(-summary, kind="stable")
    in_each = [64 * head + row for head in range(heads) for row in heavy_first]
    orders = {"as they come": range(len(work)), "heavy first in each head": in_each,
              "heavy first of all": np.argsort(-work, kind="stable")}
    print(f"heads: {heads}, {work.sum():,} tiles, {work.sum() / 16:.1f} for each processor")
    for name, order in orders.items():
        print(f"   {name:25} {steps(work, order):4} steps")


# %% [markdown]
# One head on 16 processors takes 82 steps as the rows come, and 64 with the heavy row first. 64 is the heavy row itself: no order can do better, only a row cut in two could (lesson 14b cuts rows in the decode step). With eight heads there is other work to put beside the heavy rows: 274 steps as they come, 250 if each head begins with its heavy row, 221 if all heavy rows come before all others, and an even division would take 220. The array `order` sorts the rows of one head. To sort all heads together would tear apart programs that read the same keys (section 11.10).
#
# ## 13.10 Outputs that travel
#
# From here on cells run Triton kernels, in the interpreter. Where Triton is missing, each cell that needs it says in a line what to install; the others run.

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
# Section 13.2 had `sliced_program` in NumPy. Here is its first half as a function for kernels. $d$ is an ordinary number, not a constant, so one compiled kernel serves every head size; the slice is the constant, and the last slice may be ragged. What stays is the tile of scores: $B_M B_N$ numbers in registers, whatever $d$ is.

# %% tags=["given"]
@triton.jit
def scores_in_slices(Q, K, i, j, N, d, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """Q Kᵀ for the queries i (BM,) and the keys j (BN,), slice by slice of d. (BM, BN)."""
    s = tl.zeros((BM, BN), dtype=tl.float32)
    for column in range(0, d, BD):
        c = column + tl.arange(0, BD)
        there = c[None, :] < d
        # (BM, BD) and (BN, BD)
        q = tl.load(Q + i[:, None] * d + c, mask=(i[:, None] < N) & there, other=0.0)
        k = tl.load(K + j[:, None] * d + c, mask=(j[:, None] < N) & there, other=0.0)
        s = tl.dot(q, tl.trans(k), s, input_precision="ieee")
    return s


# %% [markdown]
# The second half is yours. For each tile of keys the sums come and go, slice by slice. Two things are different from NumPy. In slow memory `O_sum` holds nothing that one may read before the first round has written it, and after the last round nobody reads it again: so in the first round nothing is loaded from it, and in the last nothing is stored to it. A mask that is off for all lanes does that: the numbers `come` and `go` are $N$ or 0, and stand where a mask has $N$ elsewhere. And one round stores what the next one loads, perhaps by another thread of the program: `tl.debug_barrier()` makes all threads wait for each other. (The interpreter has one thread and no need of it. On a GPU a sum could be read before it is there.)
#
# **Predict** (compute). $N = 96$, $d = 40$, $B_N = 32$: how many words are written to `O_sum`?

# %% tags=["predict"]
predict("13.10", o_sum_written=7680)  #> predict("13.10", o_sum_written=...)

# %% [markdown]
# <!-- exercise 13D --> (Optional.) Write the loop over the slices of $V$ and $O$. `scale` holds the $\lambda$ of (11.2), `p` (BM, BN) are the weights of this round, `old` (BM,) is the factor for what is there already, and `l` holds the row sums, this round included. Any $d$ must come out right, and the words of F6 are allowed: those of (13.2), counted as words. Without it, go on below its check. If you are stuck after nine minutes, run `hint("13D")` in a cell of your own.

# %% [raw] name="about-13D"
# title = "Partial outputs in slow memory"
# difficulty = 3
# importance = 4
# minutes = 15
# hints = [
#   "What does this tile of keys add to one slice of O, and what must happen to the partial sum first? Where is the result stored: in slow memory for the next tile of keys, or in O?",
#   "One iteration: load a slice of V for these keys; load the slice of O_sum, if there is one already; rescale it, add, and store it. Rows past N and columns past d exist in neither array.",
#   "Rows of O_sum are loaded up to come and stored up to go. The store into O is active where go is not: up to N - go, and its values are divided by l as a column. tl.dot takes the rescaled slice as its third argument.",
# ]

# %% tags=["exercise"] name="ex-13D"
@triton.jit
def sliced_kernel(Q, K, V, O_sum, O, LSE, N, d, scale,
                  BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """BM rows of O and LSE; the rows of O_sum hold O on its way. All (N, d), contiguous."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        s = scores_in_slices(Q, K, i, j, N, d, BM, BN, BD) * scale
        s = tl.where(j[None, :] < N, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        m = m_new
        come = tl.where(start > 0, N, 0)      # rows of O_sum end here: none in the first round
        go = tl.where(start + BN < N, N, 0)   # and here where they are stored: none in the last
        for column in range(0, d, BD):
            c = column + tl.arange(0, BD)
            ### BEGIN SOLUTION a slice of V; the sums so far, rescaled and added to; and out
            there, rows = c[None, :] < d, i[:, None] * d + c
            v = tl.load(V + j[:, None] * d + c, mask=(j[:, None] < N) & there, other=0.0)
            so_far = tl.load(O_sum + rows, mask=(i[:, None] < come) & there, other=0.0)
            new = tl.dot(p, v, so_far * old[:, None], input_precision="ieee")      # (BM, BD)
            tl.store(O_sum + rows, new, mask=(i[:, None] < go) & there)
            tl.store(O + rows, new / l[:, None], mask=(i[:, None] < N - go) & there)
            ### END SOLUTION
        tl.debug_barrier()
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_sliced_attention(Q, K, V, BM, BN, BD):
    """O (N, d) and LSE (N,). Q, K, V: contiguous float32 tensors (N, d), any d."""
    N, d = Q.shape
    O, O_sum, LSE = torch.empty_like(Q), torch.empty_like(Q), torch.empty(N)
    programs = triton.cdiv(N, BM)
    sliced_kernel[(programs,)](Q, K, V, O_sum, O, LSE, N, d, 1.4426950408889634 * d**-0.5,
                               BM=BM, BN=BN, BD=BD)
    return O, LSE


# %% tags=["check"] name="check-13D"
check("13D", my_sliced_attention)

# %%
def counted(launcher, *arguments, **keywords):
    """The ledger of a launch, and what it returned."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


N, d, BM, BN = 96, 40, 32, 32
q, k, v = torch.randn(3, N, d, generator=torch.Generator().manual_seed(13))
mine = attempt(counted, my_sliced_attention, q, k, v, BM, BN, 16)
print(mine[0])
print(f"closed form: {sliced_forward(KernelProblem(N, N, d), BM=BM, BN=BN).total:,} words")
measured("13.10", o_sum_written=mine[0].writes["O_sum"])

# %% [markdown]
# <details><summary>What is written to `O_sum`</summary>
#
# 7,680 words, two times $Nd$: three tiles of keys have two gaps between them. The total, 53,856, is the closed form.
#
# </details>
#
# No array of the ledger is larger than $N \times d$, and nothing in the kernel is $d$ wide. The library's kernel is `sliced_forward_kernel` in `iocourse/kernels/sliced_head_dim.py`: yours, with heads, masks and strides. Its backward pass is made the same way, from products in slices and sums that travel, $dQ$ along the rows and $dK$, $dV$ along the columns.
#
# ## 13.11 F5 or F6, and what `attention` decides
#
# Lesson 07 had a second schedule for small caches, F5, which writes the scores to slow memory. As kernels it is two launches: `scores` makes $S$ tile by tile, in slices of $d$, writes it and keeps the row sums; `averages` takes a tile of rows and one slice of $V$, reads the scores back, and adds up $PV$, in registers all the time. No sum travels. Instead $S$, $N^2$ words of it, is written once, and read once for each slice of $B_D$ columns.
#
# **Predict** (guess). $N = 4096$, $d = 96$, square tiles of side 32 everywhere. How many times the words of F5 does F6 move, which never writes a score?

# %% tags=["predict"]
predict("13.11", f6_over_f5=1.15)  #> predict("13.11", f6_over_f5=...)

# %%
d, b = 96, 32


def both(N):
    """Closed forms of F6 and F5, square tiles, by the names that `attention` has for them."""
    problem = KernelProblem(N, N, d)
    return {"fused": sliced_forward(problem, BM=b, BN=b),
            "materialised": scores_forward(problem, scores=(b, b), averages=(b, b, b))}


q, k, v = torch.randn(3, 1, 1, 128, d, generator=torch.Generator().manual_seed(13))
for way, form in both(128).items():
    with kernels.using(sliced_forward=(b, b, b), scores=(b, b, b), averages=(b, b, b)):
        ledger, _ = counted(kernels.attention, q, k, v, tile_d=way)
    print(f"{way:12} {ledger.total:7,} words, closed form {form.total:7,}; "
          f"S: {ledger.writes.get('S', 0):,} written, {ledger.reads.get('S', 0):,} read")
f6, f5 = both(4096).values()
measured("13.11", f6_over_f5=f6.total / f5.total)

# %% [markdown]
# <details><summary>Who moves fewer words</summary>
#
# F6 moves 1.15 times the words of F5: to write all scores is cheaper here than to send the outputs. At $N = 128$, where the kernels ran, it is 233,600 words against 225,792. There $S$ is written once and read three times, for the three slices of $O$.
# <!-- f6, f5 = (lambda N: kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, 96), BM=32, BN=32)), (lambda N: kernel_costs.scores_forward(kernel_costs.KernelProblem(N, N, 96), scores=(32, 32), averages=(32, 32, 32))) -->
# <!-- 1.15 = f6(4096).total / f5(4096).total -->
# <!-- "read three times" if f5(128).reads["S"] == 3 * f5(128).writes["S"] -->
#
# </details>
#
# In words, for any tiles,
#
# $$ W_5 = \underbrace{Nd\left\lceil \tfrac N{B_N} \right\rceil + Nd\left\lceil \tfrac N{B_M} \right\rceil + N^2 + N}_{\texttt{scores}} + \underbrace{(N^2 + N)\left\lceil \tfrac d{B_D} \right\rceil + Nd\left\lceil \tfrac N{B_M'} \right\rceil + Nd}_{\texttt{averages}} , \tag{13.9} $$
# <!-- (13.9) W_5 = kernel_costs.scores_forward(kernel_costs.KernelProblem(N, N, d), scores=(BM, BN), averages=(BMprime, BN, BD)).total where N <= 5000 -->
#
# where $B_M'$ is the rows of `averages`. With square tiles of side $b$ everywhere, where $b$ divides $d$, the leading terms, in units of $N^2d$ words, are
#
# $$ \text{F6: } \frac5b, \qquad \text{F5: } \frac4b + \frac1d, \qquad \text{whole rows: } \frac2{B_M} , \tag{13.10} $$
# <!-- (13.10) F6 = kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, d), BM=b, BN=b).total / (N * N * d) within 0.01 with N = 999 * b -->
# <!-- (13.10) F5 = kernel_costs.scores_forward(kernel_costs.KernelProblem(N, N, d), scores=(b, b), averages=(b, b, b)).total / (N * N * d) within 0.01 with d = b * k, N = 999 * b -->
# <!-- (13.10) whole rows = kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=64).total / (N * N * d) within 0.01 with N = 999 * BM -->
#
# so F5 moves fewer words than F6 as long as $b < d$: the same $4 + \sqrt M/d$ against 5 as in lesson 07, with $b = \sqrt M$. (F6 has $2\sqrt6 = 4.90$ there, with tiles of $2:3$.) Now in bytes, with the tiles of an H200 at $d = 512$:
# <!-- 4.90 = 2 * 6**0.5 -->

# %%
def gigabytes(ledger):
    """16-bit inputs; scores, log-sum-exps and sums are float32."""
    ledger.itemsizes = dict.fromkeys("QKVO", 2) | dict.fromkeys(("S", "LSE", "O_sum"), 4)
    return ledger.bytes / 2**30


def recorded_tile(kernel):
    asked = {"kernel": kernel, "arch": 90, "d": 512, "bytes": 2, "pairs": "band"}
    rows = load_record("resources")["shipped"]
    row = next(row for row in rows if asked.items() <= row.items())
    return tuple(row[name] for name in ("BM", "BN", "BD") if row[name])


problem = KernelProblem(4096, 4096, 512)
names = ("forward", "sliced_forward", "scores", "averages")
rows, f6, scores, averages = (recorded_tile(name) for name in names)
f5 = scores_forward(problem, scores=scores[:2], averages=averages)
for name, form in {
    f"whole rows, {rows}": attention_forward(problem, BM=rows[0], BN=rows[1]),
    f"F6, {f6}": sliced_forward(problem, BM=f6[0], BN=f6[1]),
    f"F5, {scores} and {averages}": f5,
}.items():
    print(f"{name:42} {gigabytes(form):.2f} GB")
print(f"scores of one head: {4 * 4096**2 / 2**20:.0f} MiB")

# %% [markdown]
# Whole rows are ahead, with 0.51 GB. Of the two that cut $d$, F5 moves fewer bytes here, 0.69 GB against 0.86 for F6. But it wants 64 MiB of slow memory for the scores of each head, 2 GiB for 32 heads, and four times as much for twice the $N$: the very thing that FlashAttention was made to avoid. So in the forward pass the library's `attention` keeps F5 for those who ask for it, `tile_d="materialised"`, and on a GPU chooses by itself between whole rows and F6 (`tile_d="fused"`). (Its backward pass materialises by itself from $d = 256$ on, on an H200 in 16 bits, without a window or shared heads of keys, and with 16,896 rows of queries or more, where this was measured to be faster. It keeps the matrices of a few heads at a time. At $d = 256$ that is 0.60 of the speed of FlashAttention-2 in PyTorch.) It does so as you did in exercise 13A, with the recorded table and the closed forms at $N = 4096$, except where it was timed. It neither guesses nor tries to compile. `kernels.choices_of` prints each choice with its reason. For the forward pass, and for the two backward passes of lesson 12, under a window, where no weights are materialised:
# <!-- tiled = lambda kernel: [row[name] for row in rows("resources", "shipped", kernel=kernel, arch=90, d=512, bytes=2, pairs="band")[:1] for name in ("BM", "BN", "BD")] -->
# <!-- wide = kernel_costs.KernelProblem(4096, 4096, 512) -->
# <!-- stored = kernel_costs.scores_forward(wide, scores=tiled("scores")[:2], averages=tiled("averages")) -->
# <!-- 0.51 = kernel_costs.ledger_bytes(kernel_costs.attention_forward(wide, BM=tiled("forward")[0], BN=tiled("forward")[1]), 2) / 2**30 -->
# <!-- 0.69 = kernel_costs.ledger_bytes(stored, 2) / 2**30 -->
# <!-- 0.86 = kernel_costs.ledger_bytes(kernel_costs.sliced_forward(wide, BM=tiled("sliced_forward")[0], BN=tiled("sliced_forward")[1]), 2) / 2**30 -->
# <!-- 64, 2 = 4 * stored.writes["S"] / 2**20, 32 * 4 * stored.writes["S"] / 2**30 -->
# <!-- few = min(row.where["rows"][0] for row in choices.read_rows() if (row.name, row.value) == ("backward pass", "materialised")) -->
# <!-- default = lambda **of: choice("backward pass", launch(90, 256)._replace(**of)).value == "materialised" -->
# <!-- "materialises by itself from $d = 256$ on, on an H200 in 16 bits, without a window or shared heads of keys" if default() and default(mask="causal") and default(d=512) and not any((default(d=255), default(arch=100), default(itemsize=4), default(mask="window"), default(group=2), default(rows=few - 1))) -->
# <!-- 16,896 = few -->
# <!-- 0.60 = max(speeds("small-cache", "SDPA flash", "materialised", d=256, pass_="backward")) -->
# <!-- faster = all(it["ms"] < one["ms"] for it in rows("small-cache", contender="materialised", pass_="backward") for name in ("whole rows", "fused split-d") for one in rows("small-cache", d=it["d"], causal=it["causal"], contender=name, pass_="backward")) -->
# <!-- "measured to be faster" if faster -->

# %%
passes = {"forward": ("forward pass", None),
          "fused": ("backward pass", False), "split": ("backward pass", True)}
print(" " * 23 + "".join(f"d = {d:<6}" for d in (64, 128, 256, 512, 1024)))
for which, (name, fixed) in passes.items():
    for arch, chip in CHIPS.items():
        chosen = [kernels.choices_of(arch, d=d, mask="window", deterministic=fixed)[name]
                  for d in (64, 128, 256, 512, 1024)]
        ways = ["slices" if one.value == "slices" else "rows" for one in chosen]
        print(f"{which:7} {chip.name:15}" + "".join(f"{way:10}" for way in ways))


# %% [markdown]
# The first five lines are those of exercise 13A. (At 1024 no tile of whole rows is in the table.) The fused backward pass keeps more arrays in a tile of whole rows, and on three chips turns to slices earlier: on a T4 at 128, on an H200 at 256, on a B200 at 512. The split pass of an A100 keeps whole rows even at 512, where its forward pass does not: it reads $K$, $V$ and $Q$, $dO$ once for each tile, and slices read some of them twice.
# <!-- pass_of = lambda which, arch, d: choice(dict(forward="forward pass", fused="backward pass, one kernel", split="backward pass, fixed order")[which], launch(arch, d, mask="window")).value -->
# <!-- begin = lambda which: [next((d for d in (64, 128, 256, 512, 1024) if pass_of(which, arch, d) == "slices"), 2048) for arch in (75, 80, 89, 90, 100)] -->
# <!-- "At 1024 no tile of whole rows is in the table" if all(max(begin(which)) <= 1024 for which in ("forward", "fused", "split")) -->
# <!-- "on three chips turns to slices earlier: on a T4 at 128, on an H200 at 256, on a B200 at 512" if begin("forward") == [256, 512, 512, 1024, 1024] and begin("fused") == [128, 512, 512, 256, 512] -->
# <!-- "The split pass of an A100 keeps whole rows even at 512" if begin("split") == [256, 1024, 512, 512, 1024] -->
#
# ## 13.12 The lists, turned over
#
# In the backward pass columns stay for $dK$ and $dV$ (section 12.5): a program owns a tile of *keys* and needs to know which tiles of queries see it. These are the same tiles, listed by column. So the mask is compressed twice, once as it is and once transposed. Kinds and patterns are not made twice: a pattern is read with its two strides exchanged. At the edges everything stays as it was, for a query past the last one has the log-sum-exp $+\infty$, and no weight. What changes is the order, for a column may be heavy where no row is:

# %%
mask = masks.bigbird(256, 32, 1, 1, 1)
for name, tiles in (("rows of queries", mask.tiles), ("columns of keys", mask.tiles.T)):
    work = tiles.sum(axis=1)
    print(f"tiles in {name}: {work}, order {np.argsort(-work, kind='stable')}")


# %% [markdown]
# The rows have 41 tiles together, and so have the columns. For $dQ$ rows stay, and the first lists will do.
#
# **Predict** (guess). How many entries do the kernels of the split pass read together, and how many those of the fused pass, in which everything is made from the columns?

# %% tags=["predict"]
predict("13.12", split=82, fused=41)  #> predict("13.12", split=..., fused=...)

# %%
q, k, v = (torch.randn(1, 1, 256, 32, requires_grad=True) for _ in range(3))
problem, tile, read = BlockLists(256, 256, 32, pairs=mask.pairs()[None, None]), (32, 32), {}
forms = {"split": attention_split_backward(problem, queries=tile, keys=tile),
         "fused": attention_fused_backward(problem, BM=32, BN=32)}
for name, form in forms.items():
    with kernels.using(forward=tile, fused=tile, queries=tile, keys=tile):
        tiled = kernels.tiled_mask(mask, q, k)
        o = kernels.attention(q, k, v, block_mask=tiled, deterministic=name == "split")
        ledger, _ = counted(torch.autograd.grad, o, (q, k, v), torch.ones_like(o))
    read[name] = ledger.reads["entries"]
    print(f"{name}: {ledger.total:,} words, closed form {form.total:,}")
measured("13.12", **read)

# %% [markdown]
# <details><summary>One list, or both</summary>
#
# 82 and 41. The closed forms are those of (12.5) with the tiles that are seen in the place of all tiles: 237,010 and 228,745 words.
# <!-- listed = costs.kernel_masks.BlockLists(256, 256, 32, pairs=masks.bigbird(256, 32, 1, 1, 1).pairs()[None, None]) -->
# <!-- split, fused = kernel_costs.attention_split_backward(listed, queries=(32, 32), keys=(32, 32)), kernel_costs.attention_fused_backward(listed, BM=32, BN=32) -->
# <!-- 237,010, 228,745 = split.total, fused.total -->
# <!-- "82 and 41" if (split.reads["entries"], fused.reads["entries"]) == (82, 41) -->
#
# </details>
#
# ## 13.13 Three wrong kernels
#
# Three kernels for exercise 13C, each with one line that is wrong. You do not see them. You see eight suspects, and what `check` says of each kernel. Read a report as a list of experiments: what holds rules out as much as what fails.
#
# **Predict** (compute). Which suspect is in kernel A?

# %%
from iocourse.course import diagnosis

diagnosis.broken_kernels()
print()
diagnosis.show("A")

# %% tags=["predict"]
predict("13.13", suspect=5)  #> predict("13.13", suspect=...)

# %%
measured("13.13", suspect=diagnosis.faulty_line("A"))

# %% [markdown]
# <details><summary>Who is in kernel A</summary>
#
# Suspect 5. The log-sum-exp is right everywhere, and it is made of $m$ and $\ell$: so the scores, the pattern, the maximum and the row sums are innocent, and with them 3, 4, 6 and 7. The words clear 1, 2 and 8. Only the sum of outputs is left. The report even says how it is wrong: in the first case 21 of 32 rows, or 672 entries, differ. The other 11 rows have their largest score in the first of the three tiles that the loop meets; their maximum never moves, and nothing has to be rescaled.
#
# </details>
#
# **Predict** (compute). And in kernel B? One line fails.
# <!-- 21, 11 = 672 / 32, 32 - 672 / 32 -->

# %%
diagnosis.show("B")

# %% tags=["predict"]
predict("13.13b", suspect=7)  #> predict("13.13b", suspect=...)

# %%
measured("13.13b", suspect=diagnosis.faulty_line("B"))

# %% [markdown]
# <details><summary>Who is in kernel B</summary>
#
# Suspect 7. On ordinary scores everything is right, for any number not far below the maximum may be subtracted. Some queries of the failing case have scores that all lie far below 0. There a maximum that starts at 0 stays at 0, every weight is 0 in float32, and so is the row sum: the kernel takes the row for one that sees nothing and writes 0. Rows far above 0 have a maximum of their own. So half of the 192 entries are wrong. A test with random normals alone would have passed this kernel.
#
# </details>
#
# **Predict** (compute). And in kernel C?

# %%
diagnosis.show("C")

# %% tags=["predict"]
predict("13.13c", suspect=3)  #> predict("13.13c", suspect=...)

# %%
measured("13.13c", suspect=diagnosis.faulty_line("C"))

# %% [markdown]
# <details><summary>Who is in kernel C</summary>
#
# Suspect 3. Whole tiles come out right, which clears whatever happens in every round: 5 and 6. No word is missing and none too many, so the order was read (1), all keys were (2), and no slot in vain (8). What is left concerns cut tiles, or scores far from 0. With 7 a causal mask would come out right. A hidden score of $-10^9$ (4) spoils a row that sees nothing, but a row that sees one key gives it all the weight. Here row 0 of the causal mask, which sees one key, is wrong already. So the pattern lets the wrong pairs through.
#
# </details>
#
# `diagnosis.show(4)` prints the report on any suspect: can you say before you look which lines fail with 6, and why the words are wrong with 1?
#
# ## 13.14 The fused backward with atomic additions
#
# The two-pass backward of lesson 12 computes each tile of scores twice. The fused backward (section 6.6) computes it once: the key blocks are resident, and each program also adds its contribution to $dQ$. On a GPU many programs add to the same rows at the same time, so these additions must be atomic (section 12.2): `tl.atomic_add(pointers, values, mask=...)`. It takes a mask as `tl.store` does, and it counts as one read and one write per word.
#
# The traffic is (12.2), which is $Nd$ words more than (6.8). In (6.8) the first key block stores $dQ$ without a load. Here any program may be the first, so $dQ$ starts as zeros, and every program adds to what is there. PyTorch writes the zeros, which are not counted. $D$ must be complete before any program starts, so the kernel of 12A is a separate launch.
#
# $dQ$ is float32 even if inputs and outputs have 16 bits. In float16 each of the $\lceil N/B_N \rceil$ additions per word would be rounded to 11 significant bits. A real launcher converts the finished sum at the end, which reads and writes $Nd$ words each and is not counted either.
# <!-- ($Nd$) = kernel_costs.fused_backward_plain(kernel_costs.KernelProblem(N, N, d), BM, BN).total - costs.fused_backward(N, d, Br=BM, Bc=BN).total where N <= 1000 -->
# <!-- 11 = np.finfo(np.float16).nmant + 1 -->

# %% tags=["given"]
@triton.jit
def my_row_products_kernel(O, dO, D, N, d: tl.constexpr, BM: tl.constexpr):
    """Exercise 12A, for contiguous O and dO."""
    head, i = tl.program_id(1), tl.program_id(0) * BM + tl.arange(0, BM)
    rows, there = (head * N + i)[:, None] * d + tl.arange(0, d), i[:, None] < N
    o = tl.load(O + rows, mask=there, other=0.0).to(tl.float32)
    do = tl.load(dO + rows, mask=there, other=0.0)
    tl.store(D + head * N + i, tl.sum(do * o, 1), mask=i < N)


def my_row_products(O, dO, BM=32):
    """D (H, N). O, dO: (H, N, d), contiguous."""
    H, N, d = O.shape
    D = O.new_empty((H, N), dtype=torch.float32)
    my_row_products_kernel[(triton.cdiv(N, BM), H)](O, dO, D, N, d=d, BM=BM)
    return D


@triton.jit
def weights_and_gradients(a, b, da, db, L, D, scale, seen=None):
    """Exercise 12B, solved. a and da are (BA, d), b and db (BB, d); p and ds are (BA, BB)."""
    s = tl.dot(a, tl.trans(b), input_precision="ieee") * scale
    p = tl.exp(s - L)
    if seen is not None:
        p = tl.where(seen, p, 0.0)
    ds = p * (tl.dot(da, tl.trans(db), input_precision="ieee") - D)
    return p, ds


# %% [markdown]
# <!-- exercise 12D --> Write the loop over the queries: the loop of 12C, and the contribution to $dQ$, with its scale, as one atomic addition with a mask. `weights_and_gradients` of 12B and the kernel of 12A are given. Keys out of bounds matter here: their weights can be infinite, and $dQ$ multiplies them by rows $k = 0$, so set them to 0. The check expects the words of (12.2) and counts the atomic additions. If you are stuck after five minutes, run `hint("12D")` in a new cell.

# %% [raw] name="about-12D"
# title = "One fused kernel"
# difficulty = 3
# importance = 4
# minutes = 8
# hints = [
#   "Take the loop of 12.5. Which of its tiles, transposed, do the rows of dQ need from these keys?",
#   "ds is (keys, queries), k is (keys, columns), and the contribution to dQ is (queries, columns). Out-of-bounds rows of dQ exist in the tile but not in memory. Which weights in ds belong to rows of k that are zero?",
#   "One more product, ds transposed times k, times the scale, added with tl.atomic_add at the addresses from which q was loaded, with the mask of q. Before that, set the weights of out-of-bounds keys to 0.",
# ]

# %% tags=["exercise"] name="ex-12D"
@triton.jit
def my_fused_kernel(Q, K, V, dO, LSE, D, dQ, dK, dV, N, scale, d: tl.constexpr,
                    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """BN rows of dK and dV, and their share of every row of dQ, which begins as zeros."""
    start = tl.program_id(0) * BN
    first = tl.program_id(1) * N
    j, c = start + tl.arange(0, BN), tl.arange(0, d)
    columns = (first + j)[:, None] * d + c
    there = j[:, None] < N
    k = tl.load(K + columns, mask=there, other=0.0)
    v = tl.load(V + columns, mask=there, other=0.0)
    dk = tl.zeros((BN, d), dtype=tl.float32)
    dv = tl.zeros((BN, d), dtype=tl.float32)
    begin = start // BM * BM if CAUSAL else 0
    for at in range(begin, N, BM):
        ### BEGIN SOLUTION as in 12C; then ds transposed times k is what these keys add to dQ
        i = at + tl.arange(0, BM)
        rows = (first + i)[:, None] * d + c
        q = tl.load(Q + rows, mask=i[:, None] < N, other=0.0)
        do = tl.load(dO + rows, mask=i[:, None] < N, other=0.0)
        L_i = tl.load(LSE + first + i, mask=i < N, other=float("inf"))
        D_i = tl.load(D + first + i, mask=i < N, other=0.0)
        seen = there & (j[:, None] <= i[None, :]) if CAUSAL else there
        p, ds = weights_and_gradients(k, q, v, do, L_i[None, :], D_i[None, :], scale, seen)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
        share = tl.dot(tl.trans(ds).to(k.dtype), k, input_precision="ieee") * scale  # (BM, d)
        tl.atomic_add(dQ + rows, share, mask=i[:, None] < N)
        ### END SOLUTION
    tl.store(dK + columns, dk * scale, mask=there)
    tl.store(dV + columns, dv, mask=there)


def my_fused(Q, K, V, O, dO, LSE, BM=32, BN=32, causal=False):
    """dQ, dK, dV (H, N, d). LSE is (H, N), the others (H, N, d), all contiguous."""
    H, N, d = Q.shape
    D = my_row_products(O, dO)
    dQ = torch.zeros(Q.shape, dtype=torch.float32)
    dK, dV = torch.empty_like(K), torch.empty_like(V)
    my_fused_kernel[(triton.cdiv(N, BN), H)](Q, K, V, dO, LSE, D, dQ, dK, dV, N, d**-0.5,
                                             d=d, BM=BM, BN=BN, CAUSAL=causal)
    return dQ, dK, dV


# %% tags=["check"] name="check-12D"
check("12D", my_fused)

# %%
H, N, d = 2, 100, 16
torch.manual_seed(12)
Q, K, V, dO = torch.randn(4, H, N, d)
inputs = [x.double().requires_grad_() for x in (Q, K, V)]
S = inputs[0] @ inputs[1].transpose(1, 2) * d**-0.5
O, LSE = S.softmax(2) @ inputs[2], S.logsumexp(2)
exact_ones = torch.autograd.grad(O, inputs, dO.double())
O, LSE = O.detach().float(), LSE.detach().float()

problem = KernelProblem(N, N, d, H=H, H_kv=H)
with traffic.count(Q=Q, K=K, V=V, O=O, dO=dO, LSE=LSE) as ledger:
    fused = attempt(my_fused, Q, K, V, O, dO, LSE)
budget = fused_backward_plain(problem, 32, 32)
print(f"(12.2): {budget.total:,} words, {budget.atomics['dQ']:,} of dQ added atomically")
print("kernels minus closed form:", ledger - budget)
for name, one, other in zip(("dQ", "dK", "dV"), fused, exact_ones, strict=False):
    print(f"{name}: largest error below 1e-5: {abs(one - other).max() < 1e-5}")

# %% [markdown]
# The fused backward moves 72,200 words, and 75,400 with the zeros, where the two passes of lesson 12 move 78,800. 12,800 words of $dQ$ are added atomically, which counts as 12,800 words read and 12,800 written. The gradients agree with float64. The interpreter adds in one order; on a GPU the result can be any of those of section 12.2.
# <!-- plain_two = kernel_costs.KernelProblem(100, 100, 16, H=2, H_kv=2) -->
# <!-- 75,400 = kernel_costs.fused_backward_plain(plain_two, 32, 32).total + plain_two.queries * plain_two.d -->
# <!-- 72,200, 78,800 = kernel_costs.fused_backward_plain(plain_two, 32, 32).total, kernel_costs.dq_plain(plain_two, 32, 32).total + kernel_costs.dkdv_plain(plain_two, 32, 32).total -->
#
# ## Misconceptions
#
# - **"The schedule with the fewest bytes is the one to take."** F5 moves fewer than F6, but wants 64 MiB of scratch for each head; the library pays that in the backward pass only, where it was measured to be faster (13.11).
# <!-- 64 = 4 * stored.writes["S"] / 2**20 -->
# <!-- "F5 moves fewer than F6" if stored.total < kernel_costs.sliced_forward(wide, BM=tiled("sliced_forward")[0], BN=tiled("sliced_forward")[1]).total -->
# <!-- "the library pays that in the backward pass only, where it was measured to be faster" if faster and default() and not default(d=255) -->
# - **"The order of programs does not matter, they run at once."** More programs than processors stand in line: 82 steps in one order, 64 in another (13.9).
# - **"Load, add and store is as good as an atomic addition."** In the interpreter it is, because one program runs after another. On a GPU sums are lost (13.14).
# - **"Right on random inputs is right."** Kernel B is, and loses every row whose scores lie far below 0 (13.13).
#
# ## Take-away
#
# - A sum that does not fit can travel: $Nd$ words each way for each further tile of keys, in float32, and nothing is $N \times N$.
# - Heavy rows start first, so that light ones can fill the gaps; what comes on top of an even division is as long as the program that ends last.
# - The backward pass loops over the same tiles, listed by column.
# - In a report, what holds clears suspects.
# - The fused backward computes five products per tile instead of seven. $dQ$ is then a shared sum: zeros in float32, and one atomic addition per word and key block.
#
# ## References
#
# - B. Saha, C. Ye: *The I/O complexity of attention*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The small cache, $M < d^2$.
# - R. L. Graham: *Bounds on multiprocessing timing anomalies*, SIAM Journal on Applied Mathematics 17(2), 1969. The heaviest first.
#
# **What comes next.** <!-- next -->
