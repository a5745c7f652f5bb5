# %% [markdown]
# # 13b Atomics, wide heads and three wrong kernels
#
# You order programs by their work, write a kernel that keeps partial outputs in slow memory, find the bug in three kernels from their reports, and add up $dQ$ with atomic additions.
#
# **What you will learn**
#
# - to predict how the order of programs changes the time of a launch;
# - to write a kernel whose registers and shared memory do not depend on $d$ (optional);
# - to read what the library launches for a chip and a head size, and why;
# - to use the block lists in the backward pass;
# - to find a bug from the properties that hold and fail;
# - to add up $dQ$ from many programs with atomic additions.
#
# **Prerequisites**: lessons 06 and 07, 12 (exercises 12A to 12C), and 13; [symbols and terms](notation.md).
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
    ledger_bytes,
    scores_forward,
    sliced_forward,
)
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source
from iocourse.gpu import CHIPS, choices

# %% [markdown]
# ## 13.9 Programs with more blocks first
#
# A GPU starts a program when an SM is free. With a block mask, the work of programs differs. In the figure, a BigBird mask, the first row of blocks has 16 blocks and no other row more than 6.
# <!-- work = masks.bigbird(1024, 64, 1, 1, 2).tiles.sum(axis=1) -->
# <!-- "the first row of blocks has 16 blocks and no other row more than 6" if work[0] == 16 and max(work[1:]) == 6 -->

# %%
mask = masks.bigbird(1024, 64, 1, 1, 2)
print("blocks per row:", *mask.tiles.sum(axis=1))
explore.mask_tiles(mask, 64, title="A BigBird mask in blocks of 64 queries and 64 keys")

# %% [markdown]
# In a simple model, each of $n$ SMs runs one program at a time, a program takes one step per block, and a free SM starts the next program of the order. (A real SM can run several programs at once.)

# %% tags=["listing"]
def timelines(work, order, n):
    """Per SM, the last digit of the program that it runs in each step."""
    lines = [""] * n
    for program in order:
        free = min(range(n), key=lambda sm: len(lines[sm]))
        lines[free] += str(program % 10) * int(work[program])
    return lines


work = masks.causal(512, 64).tiles.sum(axis=1)  # 1, 2, …, 8
for order in (range(8), np.argsort(-work)):
    print("order", *order)
    print("\n".join(timelines(work, order, 3)))


# %% [markdown]
# Under a causal mask with 8 rows of blocks, three SMs need 15 steps if short programs start first, because the longest one starts last. They need 13 steps if long programs start first. An even division of all 36 blocks takes 12 steps.
#
# **Predict** (guess). Now 64 rows, 16 SMs, and program $t$ has $t + 1$ blocks. An even division of all 2,080 blocks takes 130 steps. How many steps do the orders $0, 1, 2, \dots$ and longest-first need?
# <!-- 2,080, 130 = sum(range(65)), sum(range(65)) / 16 -->
# <!-- 16 as input -->

# %% tags=["predict"]
predict("13.9", in_order=160, longest_first=130)  #> predict("13.9", in_order=..., longest_first=...)

# %%
def steps(work, order, n=16):
    return max(map(len, timelines(work, order, n)))


work = masks.causal(4096, 64).tiles.sum(axis=1)  # 1, 2, …, 64
measured("13.9", in_order=steps(work, range(64)),
         longest_first=steps(work, np.argsort(-work)))

# %% [markdown]
# <details><summary>Steps of the two orders</summary>
#
# 160 and 130. With the longest programs first, no SM is idle before the end.
#
# </details>
#
# An upper bound on the steps of any order: let $w_{\text{all}}$ be the number of blocks, and $w_{\text{last}}$ the blocks of the program that ends last. All SMs are busy until that program starts, and the blocks that they complete by then belong to other programs. So it starts after at most $(w_{\text{all}} - w_{\text{last}})/n$ steps, and ends $w_{\text{last}}$ steps later:
#
# $$ t_{\text{end}} \le \frac{w_{\text{all}}}{n} + \left(1 - \frac1n\right) w_{\text{last}} . \tag{13.8} $$
# <!-- (13.8) not evaluated: step of a proof -->
#
# The second term is small if a short program ends last, so long programs should start first. (Graham proved in 1969 that this order needs at most $\frac43 - \frac1{3n}$ times the minimum.) Under a causal mask the library starts the last rows first (section 11.5). For other masks it uses the array `order`. The next cell has a mask whose last row attends to all keys, such as a summary token at the end of a sequence:

# %%
summary = masks.bigbird(4096, 64, 1, 1, 2).tiles[::-1].sum(axis=1)
longest = np.argsort(-summary, kind="stable")
for heads in (1, 8):
    work = np.tile(summary, heads)
    orders = {"0, 1, 2, …": range(len(work)),
              "longest first per head": [64 * h + row for h in range(heads) for row in longest],
              "longest first of all heads": np.argsort(-work, kind="stable")}
    print(f"{heads} head(s), {work.sum():,} blocks, {work.sum() / 16:.1f} per SM")
    for name, order in orders.items():
        print(f"   {name:27} {steps(work, order):4} steps")


# %% [markdown]
# One head needs 82 steps in the order 0, 1, 2, …, and 64 with the long row first. The long row alone takes 64 steps, so only splitting it could save more (lesson 14b splits the keys of a decode step). Eight heads need 274 steps, 250 with the long row of each head first, and 221 with all long rows first. The array `order` sorts the rows of each head. Sorting all heads together would separate programs that load the same keys (section 11.10).
#
# ## 13.10 Partial outputs in slow memory
#
# Cells from here on run Triton kernels in the interpreter. Without Triton, each cell that needs it prints in one line what to install.

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


def counted(launcher, *arguments, **keywords):
    """The ledger of a launch, and its results."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


# %% [markdown]
# Now the schedule with slices of $d$ (section 13.7) as a kernel. It keeps a tile of scores, $B_M B_N$ numbers for any $d$. The head size `d` is a number, and the width of a slice is a constant, so one kernel is correct for every head size. The last slice may be ragged. The first step, a tile of scores, is given here, and the second one in the kernel below:

# %% tags=["given", "listing"]
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
# The third step is yours. For each block of keys, it loads a slice of the partial sums `O_sum`, rescales it, adds to it and stores it. Two iterations differ:
#
# - In the first iteration, `O_sum` holds no valid number, so nothing may be loaded from it.
# - In the last iteration, nothing is stored to it. The sums are divided by $\ell$ and stored to `O`.
#
# A load or store whose mask is False for all lanes moves no word, so no branch is needed. The kernel has two limits for `O_sum`. Rows $i <$ `load_end` are loaded, and rows $i <$ `store_end` are stored. Each limit is $N$, except that `load_end` is 0 in the first iteration and `store_end` is 0 in the last one. The store to `O` needs the opposite limit of `store_end`, $N$ in the last iteration and 0 before.
#
# A thread may load words that another thread of the program stored in the iteration before. `tl.debug_barrier()` makes all threads wait for each other. (The interpreter has one thread, so it cannot show a missing barrier.)
#
# **Predict** (compute). $N = 96$, $d = 40$, $B_N = 32$. How many words are written to `O_sum`?

# %% tags=["predict"]
predict("13.10", o_sum_written=7680)  #> predict("13.10", o_sum_written=...)

# %% [markdown]
# <!-- exercise 13D --> (Optional.) Write the loop over the slices of $V$ and $O$. `scale` is $\lambda$ of (11.2). `p` (BM, BN) are the weights of this block of keys, `old` (BM,) is the factor of the earlier sums, and `l` has the row sums with this block. The kernel must be correct for any $d$, and must move exactly the words that (13.6) counts in bytes. No tile may be larger than $B_M$, $B_N$ and $B_D$. Keep the partial sums in `O_sum`: in 16 bits `O` would round them. If you skip it, continue below its check. If you are stuck after nine minutes, run `hint("13D")` in a new cell.

# %% [raw] name="about-13D"
# title = "Partial outputs in slow memory"
# difficulty = 3
# importance = 4
# minutes = 15
# hints = [
#   "What does this tile of keys add to one slice of O, and what must happen to the partial sum first? Where is the result stored: in slow memory for the next tile of keys, or in O?",
#   "One iteration: load a slice of V for these keys; load the slice of O_sum, if there is one already; rescale it, add, and store it. Rows past N and columns past d exist in neither array.",
#   "Rows of O_sum are loaded up to load_end and stored up to store_end. Rows of O are stored up to N - store_end, which is N only in the last iteration, and divided by l as a column. tl.dot takes the rescaled slice as its third argument.",
# ]

# %% tags=["exercise"] name="ex-13D"
@triton.jit
def sliced_kernel(Q, K, V, O_sum, O, LSE, N, d, scale,
                  BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """BM rows of O and LSE; O_sum has the partial sums of O. All (N, d), contiguous."""
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
        load_end = tl.where(start > 0, N, 0)        # 0 in the first iteration
        store_end = tl.where(start + BN < N, N, 0)  # 0 in the last iteration
        for column in range(0, d, BD):
            c = column + tl.arange(0, BD)
            ### BEGIN SOLUTION a slice of V; the partial sums, rescaled, plus p V; the stores
            there, rows = c[None, :] < d, i[:, None] * d + c
            v = tl.load(V + j[:, None] * d + c, mask=(j[:, None] < N) & there, other=0.0)
            so_far = tl.load(O_sum + rows, mask=(i[:, None] < load_end) & there, other=0.0)
            new = tl.dot(p, v, so_far * old[:, None], input_precision="ieee")      # (BM, BD)
            tl.store(O_sum + rows, new, mask=(i[:, None] < store_end) & there)
            tl.store(O + rows, new / l[:, None], mask=(i[:, None] < N - store_end) & there)
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
N, d, BM, BN = 96, 40, 32, 32
q, k, v = torch.randn(3, N, d, generator=torch.Generator().manual_seed(13))
mine = attempt(counted, my_sliced_attention, q, k, v, BM, BN, 16)
print(mine[0])
print(f"closed form: {sliced_forward(KernelProblem(N, N, d), BM=BM, BN=BN).total:,} words")
measured("13.10", o_sum_written=mine[0].writes.get("O_sum", 0))

# %% [markdown]
# <details><summary>Words written to `O_sum`</summary>
#
# 7,680, which is $2Nd$, because three blocks of keys have two gaps between them. The total, 53,856, is the closed form.
#
# </details>
#
# The compiler's line for this kernel reports some bytes per thread that are spilled at the sizes of the check. They do not grow with $d$, because $d$ is not a constant of the kernel. Triton compiles a separate version if $d$ and $N$ are multiples of 16, and that version may spill less.
# <!-- 16 as definition -->
#
# No array of the ledger is larger than $N \times d$, and no tile is $d$ columns wide. The library's kernel, `sliced_forward_kernel` in `iocourse/kernels/sliced_head_dim.py`, also has heads, masks and strides. Its backward pass has scores in slices too, and partial sums of $dQ$, $dK$ and $dV$ in slow memory.
#
# ## 13.11 Slices or materialised scores, and the library's choices
#
# Lesson 07 has another schedule for small caches, split-d (section 7.4), which stores the scores in slow memory. It is called *materialised* here. As kernels it has two launches. `scores` computes $S$ tile by tile in slices of $d$, stores it, and keeps the row sums. `averages` takes a block of rows and one slice of $V$, loads the scores, and adds up $PV$ in registers. No partial sums are stored. $S$ has $N^2$ words, which are stored once and loaded once per slice of $B_D$ columns. In words, for any tiles,
#
# $$ W = \underbrace{Nd\left\lceil \tfrac N{B_N} \right\rceil + Nd\left\lceil \tfrac N{B_M} \right\rceil + N^2 + N}_{\texttt{scores}} + \underbrace{(N^2 + N)\left\lceil \tfrac d{B_D} \right\rceil + Nd\left\lceil \tfrac N{B_M'} \right\rceil + Nd}_{\texttt{averages}} , \tag{13.9} $$
# <!-- (13.9) W = kernel_costs.scores_forward(kernel_costs.KernelProblem(N, N, d), scores=(BM, BN), averages=(BMprime, BN, BD)).total where N <= 5000 -->
#
# where $B_M'$ is the number of rows of `averages`. If all tiles are squares of side $b$ and $b$ divides $d$, the leading terms, in words per $N^2d$, are
#
# $$ \text{slices: } \frac5b, \qquad \text{materialised: } \frac4b + \frac1d, \qquad \text{complete rows: } \frac2{B_M} . \tag{13.10} $$
# <!-- (13.10) slices = kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, d), BM=b, BN=b).total / (N * N * d) within 0.01 with N = 999 * b -->
# <!-- (13.10) materialised = kernel_costs.scores_forward(kernel_costs.KernelProblem(N, N, d), scores=(b, b), averages=(b, b, b)).total / (N * N * d) within 0.01 with d = b * k, N = 999 * b -->
# <!-- (13.10) complete rows = kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=64).total / (N * N * d) within 0.01 with N = 999 * BM -->
#
# **Predict** (compute). $N = 4096$, $d = 96$, square tiles of side 32. What is the ratio of the words of slices to those of the materialised schedule?

# %% tags=["predict"]
predict("13.11", slices_over_materialised=1.15)  #> predict("13.11", slices_over_materialised=...)

# %%
d, b = 96, 32


def both(N):
    """Closed forms of the two schedules."""
    problem = KernelProblem(N, N, d)
    return {"slices": sliced_forward(problem, BM=b, BN=b),
            "materialised": scores_forward(problem, scores=(b, b), averages=(b, b, b))}


q, k, v = torch.randn(3, 1, 1, 128, d, generator=torch.Generator().manual_seed(13))
for name, form in both(128).items():
    with kernels.using(sliced_forward=(b, b, b), scores=(b, b, b), averages=(b, b, b)):
        tile_d = {"slices": "fused"}.get(name, name)  # the library's name
        ledger, _ = counted(kernels.attention, q, k, v, tile_d=tile_d)
    print(f"N = 128, {name:12} {ledger.total:7,} words, closed form {form.total:7,}")
slices, materialised = both(4096).values()
measured("13.11", slices_over_materialised=slices.total / materialised.total)

# %% [markdown]
# <details><summary>Slices and materialised, in words</summary>
#
# The ratio is 1.15: storing all scores costs fewer words here than storing partial outputs. By (13.10) the materialised schedule moves fewer words if $b < d$.
# <!-- f6, f5 = (lambda N: kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, 96), BM=32, BN=32)), (lambda N: kernel_costs.scores_forward(kernel_costs.KernelProblem(N, N, 96), scores=(32, 32), averages=(32, 32, 32))) -->
# <!-- 1.15 = f6(4096).total / f5(4096).total -->
#
# </details>
#
# Now in bytes and in time, with the library's tiles for $d = 512$ on an H200:

# %%
problem = KernelProblem(4096, 4096, 512)
tile = {name: choices.recorded(name, choices.Case(90, 2, 512)).value
        for name in ("forward", "sliced_forward", "scores", "averages")}
forms = {
    "complete rows": attention_forward(problem, BM=tile["forward"][0], BN=tile["forward"][1]),
    "slices": sliced_forward(problem, BM=tile["sliced_forward"][0],
                             BN=tile["sliced_forward"][1]),
    "materialised": scores_forward(problem, scores=tuple(tile["scores"][:2]),
                                   averages=tuple(tile["averages"][:3]))}
contenders = {"complete rows": "whole rows", "slices": "fused split-d"}  # names in the record
record = load_record("small-cache")
print(f"{record_source(record)}\nN = 4,096, d = 512, no mask; bytes and times per head")
for name, form in forms.items():
    wanted = (contenders.get(name, name), 512, False)
    ms = {row["pass"]: row["ms"] / (row["B"] * row["H"]) for row in record["rows"]
          if (row["contender"], row["d"], row["causal"]) == wanted}
    print(f"{name:14} forward {ledger_bytes(form, 2) / 1e9:.2f} GB, {ms['forward']:.3f} ms; "
          f"backward {ms['backward']:.3f} ms")

# %% [markdown]
# These are times of 16 heads, divided by 16. In the forward pass complete rows move the fewest bytes, 0.55 GB, and are the fastest. The materialised schedule moves fewer bytes than slices, 0.74 GB compared with 0.93 GB, but takes 2.95 times as long. It also needs memory for $S$, 64 MiB per head, which grows as $N^2$. So in the forward pass the library takes it only on request, `tile_d="materialised"`.
# <!-- tiled = lambda kernel: [row[name] for row in rows("resources", "shipped", kernel=kernel, arch=90, d=512, bytes=2, pairs="band")[:1] for name in ("BM", "BN", "BD")] -->
# <!-- wide = kernel_costs.KernelProblem(4096, 4096, 512) -->
# <!-- stored = kernel_costs.scores_forward(wide, scores=tiled("scores")[:2], averages=tiled("averages")) -->
# <!-- 16 = row("small-cache", contender="whole rows", d=512, causal=False, pass_="forward")["B"] * row("small-cache", contender="whole rows", d=512, causal=False, pass_="forward")["H"] -->
# <!-- 0.55 = kernel_costs.ledger_bytes(kernel_costs.attention_forward(wide, BM=tiled("forward")[0], BN=tiled("forward")[1]), 2) / 1e9 -->
# <!-- 0.74 = kernel_costs.ledger_bytes(stored, 2) / 1e9 -->
# <!-- 0.93 = kernel_costs.ledger_bytes(kernel_costs.sliced_forward(wide, BM=tiled("sliced_forward")[0], BN=tiled("sliced_forward")[1]), 2) / 1e9 -->
# <!-- took = lambda name, pass_: row("small-cache", contender=name, d=512, causal=False, pass_=pass_)["ms"] -->
# <!-- 2.95 = took("materialised", "forward") / took("fused split-d", "forward") -->
# <!-- slowest_last = lambda pass_: sorted(("whole rows", "fused split-d", "materialised"), key=lambda name: took(name, pass_)) -->
# <!-- "in the opposite order" if slowest_last("forward") == slowest_last("backward")[::-1] -->
# <!-- "are the fastest" if took("whole rows", "forward") < min(took("fused split-d", "forward"), took("materialised", "forward")) -->
# <!-- 64 = 4 * stored.writes["S"] / 2**20 -->
# <!-- "in the forward pass the library takes it only on request" if not any((one.name, one.value) == ("forward pass", "materialised") for one in choices.read_rows()) -->
#
# In the backward pass the times are in the opposite order. Materialised means here that $P$ and $dS$ are computed once and stored, and that three products in large tiles load them. On an H200 this takes less than half of the time of the other two at $d = 512$. It is the default there for full and causal attention in 16 bits from $d = 256$ on, if no key heads are shared, batch × heads × $N$ is at least 16,896, and $P$ and $dS$ of one head fit in 1 GiB ($N$ up to 16,384). The library keeps the matrices of a few heads at a time. At $d = 256$ this backward pass has 0.60 of the speed of FlashAttention-2 in PyTorch (row *materialised* of the record). The row *default*, with 0.33, is the kernel that the library took at the time of the run.
# <!-- "less than half of the time of the other two at $d = 512$" if all(2 * took("materialised", "backward") < took(name, "backward") for name in ("whole rows", "fused split-d")) -->
# <!-- few = min(row.where["rows"][0] for row in choices.read_rows() if (row.name, row.value) == ("backward pass", "materialised")) -->
# <!-- default = lambda **of: choice("backward pass", launch(90, 256)._replace(**of)).value == "materialised" -->
# <!-- "It is the default there for full and causal attention in 16 bits from $d = 256$ on, if no key heads are shared" if default() and default(mask="causal") and default(d=512) and not any((default(d=255), default(arch=100), default(itemsize=4), default(mask="window"), default(mask="blocks"), default(mask="packed"), default(group=2), default(rows=few - 1))) -->
# <!-- "fit in 1 GiB" if default(matrices=4 * 16384**2) and not default(matrices=4 * 16385**2) -->
# <!-- 1 = choices.MATRIX_BYTES / 2**30 -->
# <!-- 16,384 = math.isqrt(choices.MATRIX_BYTES // 4) -->
# <!-- 0.33 = max(speeds("small-cache", "SDPA flash", "default", d=256, pass_="backward")) -->
# <!-- 16,896 = few -->
# <!-- 0.60 = max(speeds("small-cache", "SDPA flash", "materialised", d=256, pass_="backward")) -->
#
# The next cell prints what `attention` launches, without a mask, in bfloat16, for 4 batches of 16 heads with $N = 4096$. `print(kernels.choices_of(90, d=256))` also prints the tiles and the reasons.

# %%
sizes = (64, 128, 256, 320, 512, 1024)
print(" " * 18 + "".join(f"d = {d:<11}" for d in sizes))
for name, fixed in (("forward pass", None), ("backward pass", None), ("backward pass", True)):
    print(f"{name}{', deterministic=True' if fixed else ''}")
    for arch, chip in CHIPS.items():
        row = [kernels.choices_of(arch, d=d, mask="full", deterministic=fixed)[name].value
               for d in sizes]
        print(f"  {chip.name:16}" + "".join(f"{value:15}" for value in row))


# %% [markdown]
# In the backward pass, *fused* (section 13.14) and *two-pass* have complete rows. In the forward pass each chip takes complete rows up to some $d$ and then slices, by the bytes of exercise 13A. The H200 is the exception of lesson 13 (section 13.8), with slices at $d = 320$ and complete rows again at 512. (No tile of complete rows was compiled for $d = 1024$.) The fused backward keeps more arrays in complete rows, so a T4 takes slices there from $d = 128$ on. With `deterministic=True` an A100 takes complete rows even at $d = 512$, where its forward pass takes slices.
# <!-- pass_of = lambda arch, d, name="forward pass": choice(name, launch(arch, d)).value -->
# <!-- sizes = (64, 128, 256, 320, 512, 1024) -->
# <!-- first_slices = lambda arch, name="forward pass": next(d for d in sizes if pass_of(arch, d, name) == "slices") -->
# <!-- "each chip takes complete rows up to some $d$ and then slices, by the bytes of exercise 13A. The H200 is the exception of lesson 13 (section 13.8), with slices at $d = 320$ and complete rows again at 512" if all([pass_of(arch, d) for d in sizes] == sorted(pass_of(arch, d) for d in sizes) for arch in (75, 80, 89, 100)) and [pass_of(90, d) for d in (256, 320, 512, 1024)] == ["complete rows", "slices", "complete rows", "slices"] -->
# <!-- "so a T4 takes slices there from $d = 128$ on" if first_slices(75, "backward pass") == 128 -->
# <!-- "an A100 takes complete rows even at $d = 512$, where its forward pass takes slices" if (pass_of(80, 512, "backward pass, fixed order"), pass_of(80, 512)) == ("two-pass", "slices") -->
#
# ## 13.12 Block lists of the backward pass
#
# In the second pass of the two-pass backward and in the fused backward, key blocks are resident (section 12.5). A program has a block of keys and needs the query blocks that attend to it. These are the same blocks, listed by column. So the library makes lists of the mask and of its transpose. Patterns are stored once, because a transposed pattern is read with its two strides exchanged. The two orders differ:

# %%
mask = masks.bigbird(256, 32, 1, 1, 1)
for name, blocks in (("rows of queries", mask.tiles), ("columns of keys", mask.tiles.T)):
    work = blocks.sum(axis=1)
    print(f"blocks in {name}: {work}, order {np.argsort(-work, kind='stable')}")


# %% [markdown]
# Rows and columns have 41 blocks each. In the first pass of the two-pass backward ($dQ$) query blocks are resident, so it uses the lists by row.
#
# **Predict** (compute). How many words of `entries` do the two passes load together, and how many does the fused backward load?

# %% tags=["predict"]
predict("13.12", two_pass=82, fused=41)  #> predict("13.12", two_pass=..., fused=...)

# %%
q, k, v = (torch.randn(1, 1, 256, 32, requires_grad=True) for _ in range(3))
problem, tile, read = BlockLists(256, 256, 32, pairs=mask.pairs()[None, None]), (32, 32), {}
forms = {"two_pass": attention_split_backward(problem, queries=tile, keys=tile),
         "fused": attention_fused_backward(problem, BM=32, BN=32)}
for name, form in forms.items():
    with kernels.using(forward=tile, fused=tile, queries=tile, keys=tile):
        tiled = kernels.tiled_mask(mask, q, k)
        o = kernels.attention(q, k, v, block_mask=tiled, deterministic=name == "two_pass")
        ledger, _ = counted(torch.autograd.grad, o, (q, k, v), torch.ones_like(o))
    read[name] = ledger.reads["entries"]
    print(f"{name}: {ledger.total:,} words, closed form {form.total:,}")
measured("13.12", **read)

# %% [markdown]
# <details><summary>Entries of both backward passes</summary>
#
# 82 and 41. The totals, 237,010 and 228,745 words, are (12.5) with the visited blocks in place of all blocks, and the words of the lists.
# <!-- listed = costs.kernel_masks.BlockLists(256, 256, 32, pairs=masks.bigbird(256, 32, 1, 1, 1).pairs()[None, None]) -->
# <!-- two_pass, fused = kernel_costs.attention_split_backward(listed, queries=(32, 32), keys=(32, 32)), kernel_costs.attention_fused_backward(listed, BM=32, BN=32) -->
# <!-- 237,010, 228,745 = two_pass.total, fused.total -->
# <!-- "82 and 41" if (two_pass.reads["entries"], fused.reads["entries"]) == (82, 41) -->
#
# </details>
#
# ## 13.13 Three wrong kernels
#
# Each of three kernels for exercise 13C has one wrong line. Below are eight suspects, and the report of `check` on each kernel. A property that holds excludes suspects, just as one that fails.
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
# <details><summary>The bug in kernel A</summary>
#
# Suspect 5. The log-sum-exp is correct on ordinary scores. It depends on the scores, the patterns and the row sums, so 3, 4 and 6 are excluded. $O$ is wrong on ordinary scores, where a maximum that starts at 0 does no harm, so 7 is excluded. The words are correct, which excludes 1, 2 and 8. In the first case 672 entries, or 21 of 32 rows, differ. The other 11 rows have their largest score in the first of three blocks. Their maximum never changes, so there is nothing to rescale.
# <!-- report = diagnosis.report_for -->
# <!-- 672 = int(report(5).split("O is correct when all blocks are full: ")[1].split()[0]) -->
# <!-- 21, 11 = 672 / 32, 32 - 672 / 32 -->
# <!-- "The log-sum-exp is correct on ordinary scores" if "holds  LSE is the natural" in report(5) and not any("holds  LSE is the natural" in report(n) for n in (3, 4, 6)) -->
# <!-- "a maximum that starts at 0 does no harm" if report(7).count("FAILS") == 1 and "FAILS  scores far from 0" in report(7) -->
# <!-- "The words are correct, which excludes 1, 2 and 8" if "holds  moves exactly" in report(5) and not any("holds  moves exactly" in report(n) for n in (1, 2, 8)) -->
#
# </details>
#
# **Predict** (compute). Which suspect is in kernel B? One property fails.

# %%
diagnosis.show("B")

# %% tags=["predict"]
predict("13.13b", suspect=7)  #> predict("13.13b", suspect=...)

# %%
measured("13.13b", suspect=diagnosis.faulty_line("B"))

# %% [markdown]
# <details><summary>The bug in kernel B</summary>
#
# Suspect 7. On ordinary scores the kernel is correct, because it may subtract any number that is not far below the maximum. In the failing case all scores of some queries are far below 0. The maximum starts at 0 and remains 0, so all weights and the row sum underflow to 0, and the kernel writes 0 as for a row that attends to no key. This affects half of the 384 entries. A test with normally distributed inputs alone accepts this kernel.
# <!-- "half of the 384 entries" if "192 of 384 entries differ" in diagnosis.report_for(7) -->
#
# </details>
#
# **Predict** (compute). Which suspect is in kernel C? The report names the case with a causal mask.

# %%
diagnosis.show("C")

# %% tags=["predict"]
predict("13.13c", suspect=3)  #> predict("13.13c", suspect=...)

# %%
measured("13.13c", suspect=diagnosis.faulty_line("C"))

# %% [markdown]
# <details><summary>The bug in kernel C</summary>
#
# Suspect 3. With full blocks only, $O$ is correct, which excludes 5 and 6. The words are correct, which excludes 1, 2 and 8. Suspect 7 matters only where scores are far below 0. Suspect 4 matters in rows that attend to no key, and where scores are below $-10^9$. The case with the causal mask has neither such rows nor such scores, but all of its 77 rows are wrong. So the pattern is wrong.
# <!-- 77 = int(diagnosis.report_for(3).split("LSE is the natural logarithm of the row sums: ")[1].split()[0]) -->
# <!-- "Suspect 4 matters in rows that attend to no key, and where scores are below" if "FAILS  a row that attends to no key has O = 0" in diagnosis.report_for(4) and "FAILS  scores far from 0" in diagnosis.report_for(4) and "holds  applies the patterns" in diagnosis.report_for(4) -->
# <!-- "With full blocks only, $O$ is correct, which excludes 5 and 6" if "holds  O is correct when all" in diagnosis.report_for(3) and not any("holds  O is correct when all" in diagnosis.report_for(n) for n in (5, 6)) -->
#
# </details>
#
# Which properties of the values hold with suspect 6, and why are the words wrong with 1? Answer before you look; `diagnosis.show(6)` and `diagnosis.show(1)` print the reports.
#
# <details><summary>Suspects 6 and 1</summary>
#
# With 6, only the two about rows that attend to no key hold: their row sums are 0, with or without a factor. With 1, the program never loads its entry of `order`: 0 words are read, and 2 are expected.
# <!-- "only the two about rows that attend to no key hold" if "holds  a row that attends to no key has O = 0" in diagnosis.report_for(6) and diagnosis.report_for(6).split("moves exactly")[0].count("holds") == 4 -->
# <!-- "0 words are read, and 2 are expected" if "reads 0 words of order, expected 2" in diagnosis.report_for(1) -->
#
# </details>
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
# <!-- exercise 12D --> Write the loop over the queries: the loop of 12C (section 12.5), and the contribution to $dQ$, with its scale, as one atomic addition with a mask. `weights_and_gradients` of 12B and the kernel of 12A are given. Keys out of bounds matter here: their weights can be infinite, and $dQ$ multiplies these weights by rows $k = 0$, so set the weights to 0. All arrays are float32. The check expects the words of (12.2) and counts the atomic additions. If you are stuck after five minutes, run `hint("12D")` in a new cell.

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
# - **"The schedule with the fewest bytes is the fastest."** At $d = 512$ on an H200, the materialised forward pass moves fewer bytes than slices and takes 2.95 times as long (13.11).
# <!-- 2.95 = took("materialised", "forward") / took("fused split-d", "forward") -->
# <!-- "moves fewer bytes than slices" if stored.total < kernel_costs.sliced_forward(wide, BM=tiled("sliced_forward")[0], BN=tiled("sliced_forward")[1]).total -->
# - **"Programs run at the same time, so their order does not matter."** There are more programs than SMs. One order takes 82 steps, another 64 (13.9).
# - **"Load, add and store is as good as an atomic addition."** In the interpreter it is, because one program runs after another. On a GPU sums are lost (13.14).
# - **"A kernel that is correct on random inputs is correct."** Kernel B is correct on them, and wrong for each row whose scores are far below 0 (13.13).
#
# ## Take-away
#
# - Start long programs first. The time beyond an even division is at most the length of the program that ends last.
# - Partial outputs in slow memory cost $Nd$ float32 words, stored and loaded, for each further block of keys. No array has $N \times N$ words.
# - `kernels.choices_of` prints each choice of the library with its reason, a recorded time or the bytes.
# - The backward pass uses the same blocks, listed by column where key blocks are resident.
# - The fused backward computes five products per tile instead of seven. $dQ$ is then a shared sum: zeros in float32, and one atomic addition per word and key block.
#
# ## References
#
# - B. Saha, C. Ye: *The I/O complexity of attention*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The small cache, $M < d^2$.
# - R. L. Graham: *Bounds on multiprocessing timing anomalies*, SIAM Journal on Applied Mathematics 17(2), 1969. The order with the longest jobs first.
#
# **What comes next.** <!-- next -->
