# %% [markdown]
# # 11 FlashAttention forward in Triton
#
# You write FlashAttention's forward pass as a Triton kernel of about thirty lines, first in float32 and then in 16 bits on tensor cores. Its loads and stores equal the closed form of lesson 04, to the word.
#
# **What you will learn**
#
# - to turn a schedule into a kernel;
# - to run full blocks without a mask and to skip empty blocks;
# - to compute both products on tensor cores, with a bound on the error;
# - to tell instructions from time.
#
# **Prerequisites**: lessons 03 (online softmax), 04 (FlashAttention-2 order) and 10 (Triton); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# From section 11.3 on, cells need Triton, which is published for Linux (Colab runs Linux). No GPU is needed.

# %% tags=["setup"]
import numpy as np

from iocourse import costs, exact, masks, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source

# %% [markdown]
# ## 11.1 The outer loop becomes a grid
#
# The FlashAttention-2 order has two loops. One iteration of the outer loop takes one query block through all keys and stores finished rows of $O$. It needs no result of another iteration, so the iterations become the *programs* of a grid.

# %%
explore.tile_order("flash2", 100, 16, {"Br": 32, "Bc": 16})

# %% [markdown]
# Each row of the figure is one program: four programs, each with seven tiles of keys. Kernels call the tile sizes `BM` and `BN` (lesson 04: $B_r$, $B_c$). This is the algorithm of program $t$:
#
# | | **FlashAttention-2 order as a kernel**: $B_M$ rows of $O$ from row $tB_M$ on |
# | --- | :--- |
# | 1 | load $Q_t$ |
# | 2 | $\text{acc} \leftarrow 0$, $m \leftarrow -\infty$, $\ell \leftarrow 0$ |
# | 3 | **for** each key block $j$ |
# | 4 | &emsp; load $K_j$, $V_j$ |
# | 5 | &emsp; $S \leftarrow Q_t K_j^\top/\sqrt d$ |
# | 6 | &emsp; update $m$ and $\ell$ with $S$; rescale acc |
# | 7 | &emsp; $\text{acc} \leftarrow \text{acc} + \exp(S - m)\, V_j$ |
# | 8 | store $\text{acc}/\ell$ as $O_t$ |
# | 9 | store $m + \log \ell$ as $L_t$ |
#
# **Predict** (compute). $N = 100$, $d = 16$, $B_M = 32$. The first program computes 32 rows of $O$, the last one 4. What is the ratio of the words that they read?

# %% tags=["predict"]
predict("11.1", times=1.1)  #> predict("11.1", times=...)

# %%
def program(t, Q, K, V, O, LSE, BM, BN):
    """Compute BM rows of O and LSE, from row t · BM on. Return the words read."""
    N, d = Q.shape
    i = slice(t * BM, min((t + 1) * BM, N))
    q = Q[i] / np.sqrt(d)                                # (BM, d)
    acc, m, l = np.zeros_like(q), np.full(len(q), -np.inf), np.zeros(len(q))
    words = q.size
    for start in range(0, N, BN):
        k, v = K[start : start + BN], V[start : start + BN]
        words += k.size + v.size
        s = q @ k.T                                      # (BM, BN)
        m_new = np.maximum(m, s.max(axis=1))
        p, old = np.exp(s - m_new[:, None]), np.exp(m - m_new)
        l = l * old + p.sum(axis=1)
        acc = acc * old[:, None] + p @ v
        m = m_new
    O[i], LSE[i] = acc / l[:, None], m + np.log(l)
    return words


N, d, BM, BN = 100, 16, 32, 16
rng = np.random.default_rng(11)
Q, K, V = rng.standard_normal((3, N, d)).astype(np.float32)
O, LSE = np.empty_like(Q), np.empty(N, dtype=np.float32)
words = [program(t, Q, K, V, O, LSE, BM, BN) for t in range(-(-N // BM))]
error = abs(O - exact.attention(Q, K, V)).max()
emulated = run(schedules.flash2, M=8192, Q=Q, K=K, V=V, Br=BM, Bc=BN, lse=True).ledger
print(f"read {sum(words):,} words, largest error below 1e-5: {error < 1e-5}")
print(emulated)
print("by program:", words)
measured("11.1", times=words[0] / words[-1])

# %% [markdown]
# <details><summary>Words of the first and the last program</summary>
#
# 3,712 and 3,264 words, a ratio of 1.137. Each program reads all of $K$ and $V$, also the last one, which computes an eighth of the rows. A partial query block is nearly as expensive as a full one.
#
# </details>
#
# The four programs together read $K$ four times. For any sizes, with $L$ stored for the backward pass (`flash2(…, lse=True)`),
#
# $$ W_{\text{read}} = Nd + 2Nd\left\lceil \frac{N}{B_M} \right\rceil, \qquad W_{\text{written}} = Nd + N . \tag{11.1} $$
# <!-- (11.1) W_read = costs.flash2(N, d, Br=BM, Bc=1, lse=True).read -->
# <!-- (11.1) W_written = costs.flash2(N, d, Br=BM, Bc=1, lse=True).written -->
#
# Here $1{,}600 + 2 \cdot 1{,}600 \cdot 4 = 14{,}400$ words are read, as the emulator counts. $B_N$ does not appear in (11.1).
# <!-- 1.137 as output -->
#
# ## 11.2 Exponentials as powers of two
#
# A GPU has an instruction for $2^x$ and none for $e^x$, so the compiler multiplies by $\log_2 e$ before each exponential. A score is a product $a = q^\top k$ times $1/\sqrt d$. One factor can replace both:
#
# $$ e^{a/\sqrt d \,-\, m} = 2^{\,\lambda a \,-\, m'}, \qquad \lambda = \frac{\log_2 e}{\sqrt d}, \qquad m' = m \log_2 e . \tag{11.2} $$
# <!-- (11.2) e^{a/\sqrt d - m} = math.exp(exact.scores(np.full((1, d), a / d), np.ones((1, d)))[0, 0] - m) with lambda_ = math.log2(math.e) / math.sqrt(d), mprime = m * math.log2(math.e) where a <= 40 and m <= 40 -->
# <!-- (11.2) \lambda = math.log2(math.e) * exact.scores(np.ones((1, d)), np.ones((1, d)))[0, 0] / d with e = math.e -->
# <!-- (11.2) m' = exact.log_sum_exp([[m]])[0] / math.log(2) with e = math.e -->
#
# The kernel keeps the scaled scores $\lambda a$ and their running maximum $m'$: these are its variables `s` and `m`. The weights and their sum $\ell$ do not change. Only the log-sum-exp is converted when it is stored:
#
# $$ L = \left(m' + \log_2 \ell\right) \ln 2 . \tag{11.3} $$
# <!-- (11.3) L = exact.log_sum_exp([[a, b]])[0] with mprime = max(a, b) * math.log2(math.e), ell = 1 + math.exp(-abs(a - b)) where a <= 40 and b <= 40 -->

# %%
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
row = np.array([1.0, 2.0, 3.0])
natural = np.exp(row - row.max()).sum()
m = (row * LOG2_E).max()
l = np.exp2(row * LOG2_E - m).sum()
print(f"L = {row.max() + np.log(natural):.6f} by e, {(m + np.log2(l)) * LN_2:.6f} by 2")
print(f"m' = {m:.3f}, row sums {natural:.6f} by e, {l:.6f} by 2")

# %% [markdown]
# For scores 1, 2 and 3 (already divided by $\sqrt d$) the maximum is $m' = 3 \log_2 e = 4.328$. The row sums agree, and both ways give $L = 3.407606$.
#
# ## 11.3 The kernel
#
# From here on, cells run Triton kernels in the interpreter, also on a machine with a GPU, because only the interpreter can count words. On a computer with a GPU, `iocourse gpu 11B` runs your compiled kernel and times it. Without Triton, the next cell and each later cell that needs it print one line that states what to install.

# %% tags=["given"]
import os

os.environ["TRITON_INTERPRET"] = "1"

from iocourse import gpu, traffic
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
# The NumPy program becomes a kernel line by line:
#
# | NumPy | kernel |
# | --- | --- |
# | `t` | `tl.program_id(0)` |
# | `Q[i]`, which ends at row `N` | `tl.load` of `BM` rows, with a mask for the rows below `N` |
# | `s = q @ k.T`, with fewer keys in the last tile | `tl.dot` of a complete tile; the scores of out-of-bounds keys are set to $-\infty$ |
# | `O[i] = …` | `tl.store` with the same mask |
#
# New functions are `tl.trans(k)` for $k^\top$, `tl.full`, `tl.where`, `tl.exp2`, `tl.log2` and `tl.minimum`, which work as in NumPy. `tl.max(s, 1)` and `tl.sum(s, 1)` return one number per row. `tl.dot(p, v, acc)` adds the product to `acc`.
#
# The last tile of keys may be partial. A NumPy slice is then shorter, but a tile in a kernel has a fixed size. A masked load fills the other lanes with the value of `other`, here 0. (Without `other` the value is undefined; the check uses NaN.) A key of zeros has the score 0 and would receive weight, so its score must be set to $-\infty$. Out-of-bounds rows of *queries* need no such step, because the mask of the store discards their results.
#
# The kernel handles one head with contiguous rows of $d$ words, where $d$ is a power of two, at least 16. `input_precision="ieee"` requests products in float32. Without it, a tensor core may round the factors to 11 significant bits.
#
# <!-- exercise 11A --> Write the body of the loop over tiles of keys, with `tl.exp2` as the only exponential. `scale` is $\lambda$ of (11.2). `acc`, `m` and `l` are carried from one iteration to the next. The kernel must be correct for all $N$, `BM` and `BN`, also for scores far below 0, and move exactly the words of (11.1). If you are stuck after nine minutes, run `hint("11A")` in a new cell.
# <!-- 11 = np.finfo(np.float16).nmant + 1 -->

# %% [raw] name="about-11A"
# title = "The inner loop"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "What does a program load of K and V in one iteration, and which of its values change? Rewrite the NumPy program of section 11.1 line by line, with powers of two and with loads instead of slices.",
#   "One iteration: load the tile of keys, with a mask and other = 0; compute scores by tl.dot with the transposed tile, times scale; set out-of-bounds scores to -inf; then the new maximum, weights by tl.exp2, and the factor that rescales the old values.",
#   "acc, l and m are carried from one iteration to the next. Multiply l by the factor and add the row sums of the weights. Multiply acc by the factor (as a column) and add the product of weights and values: tl.dot takes an accumulator as its third argument. Update m last.",
# ]

# %% tags=["exercise"] name="ex-11A"
@triton.jit
def forward_kernel(Q, K, V, O, LSE, N, scale,
                   d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE: the query block is resident, keys and values are streamed."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)  # (BM,) rows of Q and O
    c = tl.arange(0, d)                           # (d,) columns
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)  # (BM, d)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)              # (BN,) rows of K and V
        ### BEGIN SOLUTION a tile of keys, its scores, the online softmax, a tile of values
        there = j[:, None] < N
        k = tl.load(K + j[:, None] * d + c, mask=there, other=0.0)  # (BN, d)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # (BM, BN)
        s = tl.where(j[None, :] < N, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        v = tl.load(V + j[:, None] * d + c, mask=there, other=0.0)  # (BN, d)
        acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
        m = m_new
        ### END SOLUTION
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_flash_forward(Q, K, V, BM, BN):
    """O (N, d) and LSE (N,). Q, K, V: contiguous float32 tensors (N, d)."""
    N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)
    programs = triton.cdiv(N, BM)
    forward_kernel[(programs,)](Q, K, V, O, LSE, N, 1.4426950408889634 * d**-0.5,
                                d=d, BM=BM, BN=BN)
    return O, LSE


# %% tags=["check"] name="check-11A"
check("11A", my_flash_forward)

# %% [markdown]
# ## 11.4 The traffic of the kernel
#
# `traffic.count` of lesson 10 counts every load and store in its block, per array and under the names of the kernel's parameters. We take $N = 200$, $d = 32$, $B_M = 64$ and $B_N = 32$.

# %%
def counted(launcher, *arguments, **keywords):
    """Return the ledger of a launch, and the result."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


N, d, BM, BN = 200, 32, 64, 32
q, k, v = torch.from_numpy(rng.standard_normal((3, N, d)).astype(np.float32))
mine = attempt(counted, my_flash_forward, q, k, v, BM, BN)
formula = costs.flash2(N, d, Br=BM, Bc=BN, lse=True)
print(mine[0])
print(f"closed form of the FlashAttention-2 order: {formula.read:,} read, "
      f"{formula.written:,} written")

# %% [markdown]
# 64,200 words: 57,600 are read and 6,600 written, per array as in (11.1), with four bytes per word. The tile sizes do not divide 200, but this does not change the count, because masked lanes move nothing. So the traffic that the emulator predicted in lesson 04 is that of the kernel.
#
# The ledger counts what programs request; lesson 11b compares this with what a GPU reads. It counts elements and not the sectors of 32 bytes that a GPU fetches: a single word costs a complete sector.
#
# ## 11.5 Full blocks without a mask
#
# Your kernel compares the position of every key with $N$, although only the last tile can be partial. Under a causal mask most tiles are also simple. A *full block* is a tile whose pairs are all visible, an *empty block* has no visible pair, and every other tile is a *partial block*. Full blocks are below the diagonal and empty blocks above it. Only the partial blocks, on the diagonal, need a mask. A mask moves no words, but it costs a comparison and a selection per score.
#
# The limits are known before the loop starts, so the kernel needs no branch inside it. Program $t$ runs two loops: first over the full blocks, without a mask, then over the partial blocks. In keys, they end at
#
# $$ \text{full} = B_N\left\lfloor \frac{tB_M + 1}{B_N} \right\rfloor, \qquad \text{end} = \min\bigl((t+1)B_M,\ N\bigr) . \tag{11.4} $$
# <!-- (11.4) full = BN * sum(seen[:, j:j + BN].all() for j in range(0, N - BN + 1, BN)) with seen = masks.Causal(min(N, 200)).pairs()[t * BM:(t + 1) * BM] where N <= 200 and t * BM < N -->
# <!-- (11.4) end = seen.any(axis=0).sum() with seen = masks.Causal(min(N, 200)).pairs()[t * BM:(t + 1) * BM] where N <= 200 and t * BM < N -->
#
# The first row of the program attends to keys $0$ to $tB_M$, which are $tB_M + 1$ keys. A block is full if it ends among them. The last row determines the end. (If $B_M$ and $B_N$ are powers of two above 1, $tB_M + 1$ is odd and no multiple of $B_N$, so the term 1 in (11.4) never completes a block and may be omitted.) Without a causal mask the limits are $B_N\lfloor N/B_N\rfloor$ and $N$. Blocks from `end` on are empty and never loaded. All programs together read of $K$ and $V$, under a causal mask,
#
# $$ 2d \sum_{t=0}^{\lceil N/B_M \rceil - 1} \min\left(N,\ B_N\left\lceil \frac{\min\bigl((t+1)B_M,\ N\bigr)}{B_N} \right\rceil\right) . \tag{11.5} $$
# <!-- (11.5) = words.reads["K"] + words.reads["V"] with words = kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d, high=0), BM=BM, BN=BN) where N <= 200 -->
#
# **Predict** (compute). $N = 512$, $B_M = 64$, $B_N = 32$, which gives $8 \times 16 = 128$ blocks. How many of them are loaded under a causal mask, and how many of these need a mask?
# <!-- 32 as definition -->
# <!-- 8 \times 16 as input -->

# %% tags=["predict"]
predict("11.5", visited=72, masked=16)  #> predict("11.5", visited=..., masked=...)

# %%
N, d, BM, BN = 512, 64, 64, 32
visited = masked = 0
for t in range(-(-N // BM)):
    full, end = (t * BM + 1) // BN * BN, min((t + 1) * BM, N)
    visited += -(-end // BN)
    masked += -(-(end - full) // BN)
# high=0 makes it causal (lesson 11b)
problem = costs.kernels.KernelProblem(N, N, d, high=0)
causal = costs.kernels.attention_forward(problem, BM=BM, BN=BN)
dense = costs.kernels.attention_forward(costs.kernels.KernelProblem(N, N, d), BM=BM, BN=BN)
print(f"K: {causal.reads['K']:,} words causal, {dense.reads['K']:,} without a mask; "
      f"{visited} blocks of {BN * d:,} words are {visited * BN * d:,}")
measured("11.5", visited=visited, masked=masked)
blocks = masks.BlockMask(N, np.ones((N // BM, N // BN), bool), BM, BN, causal=True)
explore.block_mask(blocks, d, title="Blocks of a causal mask")

# %% [markdown]
# <details><summary>Full, partial and empty blocks</summary>
#
# 72 of the 128 blocks are loaded, and 16 of these need a mask, two per program. As $N$ grows, the loaded fraction tends to one half and the masked fraction to 0. The programs read 147,456 words of $K$ instead of 262,144, a little more than half, because partial blocks are loaded completely. In the figure, full blocks are dark ("visible" in the legend), partial blocks light ("visible up to the query") and empty blocks white. (Its bars have the traffic and the lower bound of lessons 08 and 08b, Theorem D, without log-sum-exps.)
# <!-- "visible up to the query" if '"visible up to the query"' in checkout("iocourse/course/explore/figures/block_mask.py") -->
#
# </details>
#
# Both loops do the same work per tile, so we write it once, as a function `absorb` under `@triton.jit` that a kernel can call. Its last argument `seen` is a tile of booleans, or None for a full block. The line `if seen is not None:` is decided when the kernel is compiled, separately for each call, so the first loop contains no mask.
#
# <!-- exercise 11B --> Write `absorb` and the two loops. `absorb` computes the inner loop of 11A for tiles that are already loaded; loads and masks are in the loops. `causal` may be True or False, $N$ any size. The kernel may load no empty block and no key out of bounds. Only partial blocks may have a mask. The check counts the tiles on which scores are masked, by `tl.where` or by adding or multiplying numbers computed from positions. If you are stuck after nine minutes, run `hint("11B")` in a new cell.
# <!-- 128 = 8 * 16 -->
# <!-- "the loaded fraction tends to one half" if 0.5 < kernel_costs.attention_forward(kernel_costs.KernelProblem(2**14, 2**14, 64, high=0), BM=64, BN=32).reads["K"] / kernel_costs.attention_forward(kernel_costs.KernelProblem(2**14, 2**14, 64), BM=64, BN=32).reads["K"] < 0.503 -->

# %% [raw] name="about-11B"
# title = "Two loops"
# difficulty = 4
# importance = 5
# minutes = 15
# hints = [
#   "For one query block: how many keys does its first row attend to, and how many its last? The blocks between the two limits are partial.",
#   "Two limits, both in keys: every row attends to all blocks that end at or before the first limit; the second is the last key of the last row, or the end of the keys. The first must be a multiple of BN, so round down.",
#   "The first row is program number · BM and attends to that many keys plus one. The last existing row is at most program number · BM + BM - 1. Without a causal mask every row attends to N keys. Both loops load two tiles and call absorb; the second masks its loads too, and passes the visible pairs as its last argument.",
# ]

# %% tags=["exercise"] name="ex-11B"
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """Add one tile of keys. Returns the new acc (BM, d), m (BM,) and l (BM,).

    q (BM, d), k and v (BN, d) are loaded; seen (BM, BN): True where the pair is visible,
    None for a full block.
    """
    ### BEGIN SOLUTION as in 11A, with a mask only if `seen` is not None
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s - m_new[:, None])
    old = tl.exp2(m - m_new)
    l = l * old + tl.sum(p, 1)
    acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
    return acc, m_new, l
    ### END SOLUTION


@triton.jit
def two_loops_kernel(Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr,
                     d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE: first the full blocks, then the partial blocks."""
    first = tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    c = tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    ### BEGIN SOLUTION the two limits, then two loops that load k and v and call absorb
    if CAUSAL:
        full = (first + 1) // BN * BN
        end = tl.minimum(first + BM, N)
    else:
        full = N // BN * BN
        end = N
    for start in range(0, full, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c)
        v = tl.load(V + j[:, None] * d + c)
        acc, m, l = absorb(acc, m, l, q, k, v, scale)
    for start in range(full, end, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        acc, m, l = absorb(acc, m, l, q, k, v, scale, seen)
    ### END SOLUTION
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_two_loops(Q, K, V, causal, BM, BN):
    """O (N, d) and LSE (N,), causal or not. Q, K, V: contiguous float32 tensors (N, d)."""
    N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)
    programs = triton.cdiv(N, BM)
    two_loops_kernel[(programs,)](Q, K, V, O, LSE, N, 1.4426950408889634 * d**-0.5,
                                  CAUSAL=causal, d=d, BM=BM, BN=BN)
    return O, LSE


# %% tags=["check"] name="check-11B"
check("11B", my_two_loops)

# %%
q, k, v = torch.from_numpy(rng.standard_normal((3, N, d)).astype(np.float32))
for is_causal, formula in ((False, dense), (True, causal)):
    mine = attempt(counted, my_two_loops, q, k, v, is_causal, BM, BN)
    print(f"causal {is_causal!s:5}: {mine[0].total:9,} words, closed form {formula.total:9,}")

# %% [markdown]
# 590,336 words without a mask and 360,960 with the causal mask, as the closed forms predict. `absorb` is used again: exercise 11F changes it for 16 bits, and lesson 11b uses the same signature for bands and heads.
#
# The order in which the programs run does not change the words, but it can change the time. Under a causal mask the last program has the most work, and programs start roughly in the order of their numbers. If the longest program starts last, other SMs (the parts of a GPU that run programs) are idle until it ends. The library therefore starts with the last rows.
#
# ## 11.6 Sixteen bits
#
# The kernel of 11B multiplies in float32, outside the tensor cores. The compiler shows what this costs on an H200 (sm_90), without a GPU. The threads of a program form *warps* of 32 threads that execute together (`num_warps`). So the number of *instructions per score* is the instructions per thread of one iteration, times 32, times the warps, divided by the $B_MB_N$ scores of a tile:
# <!-- 32 as definition -->

# %%
def inner_loop(launcher, kernel, dtype, BM, BN, warps):
    """Run a kernel, then compile it for an H200 (d = 64, causal) and print its inner loop."""
    launcher(*(x.to(dtype) for x in (q, k, v)), True, BM, BN)
    x, lse = torch.empty(1024, 64, dtype=dtype), torch.empty(1024)
    found = gpu.resources(kernel, 90, x, x, x, x, lse, 1024, 0.18,
                          CAUSAL=True, d=64, BM=BM, BN=BN, num_warps=warps)
    loop, per_score = found.hot_loop, 32 * warps / (BM * BN)  # a warp has 32 threads
    print(f"{dtype}, tile {BM} x {BN}: {loop.instructions} instructions per thread, "
          f"{loop.instructions * per_score:.1f} per score\n"
          f"  multiply-adds per score outside the tensor cores: {loop.fma * per_score:.1f}\n"
          f"  tensor-core instructions: {loop.products}")


attempt(inner_loop, my_two_loops, two_loops_kernel, torch.float32, 64, 32, 8)
for name in ("float16", "bfloat16", "float32"):
    facts = torch.finfo(getattr(torch, name))
    print(f"{name:8}: u = 2^{np.log2(facts.eps / 2):.0f}, largest number {facts.max:.5g}")

# %% [markdown]
# A score needs 172 instructions, of which $2d = 128$ are the multiply-adds of the two products. (The compiler's line below your check belongs to a smaller tile with a smaller $d$.) A *tensor core* multiplies two tiles of 16-bit numbers with one instruction (`wgmma` in NVIDIA's documents) and adds the products in float32. The machine code names the types:
# <!-- stored = checkout("solutions/11_flash_attention_forward_triton.ipynb") -->
# <!-- per_score = [float(n) for n in re.findall(r"instructions per thread, ([\d.]+) per score", stored)] -->
# <!-- 172 = per_score[0] -->
#
# | factors | instruction on an H200, sums in float32 |
# | --- | --- |
# | float16 | `HGMMA….F32` |
# | bfloat16 | `HGMMA….F32.BF16` |
# | TF32: float32, rounded to 11 significant bits | `HGMMA….F32.TF32` |
# | fp8: 8 bits | `QGMMA….F32.…` |
#
# `HGMMA….F16` adds in float16. The *unit roundoff* $u$ of a type is the largest relative error of rounding to it: $2^{-11}$ for float16 and $2^{-8}$ for bfloat16. bfloat16 has the larger error but the range of float32, up to $3.4 \cdot 10^{38}$, while float16 ends at 65,504. Models are trained in bfloat16 because activations and gradients may exceed 65,504. Your kernel must accept both types.
#
# The inputs already have 16 bits, so the scores are as accurate as in float32. Only the weights (before the second product) and the output are rounded, each with a relative error of at most $u$. So the computed output $\hat O$ satisfies, in row $i$ and column $c$,
#
# $$ \bigl|\hat O_{ic} - O_{ic}\bigr| \le u \Bigl( \sum_j P_{ij} |V_{jc}| + |O_{ic}| \Bigr) + \text{terms of float32} . \tag{11.6} $$
# <!-- (11.6) not evaluated: entries of arrays -->
#
# The check computes the terms of float32 as $2^{-18} \max(1, \max_j |S_{ij}|) \sum_j P_{ij} |V_{jc}|$. A weight has the absolute error of its score as relative error, so this error grows with the scores. The check allows $2^{-19}$ per unit of the largest score, once for the weights in the product and once for those in $\ell$; our tests find at most $2^{-20}$. (Where scores are far apart, weights are exact, and 1 replaces the maximum.) In float16 it adds $2^{-25} (\sum_j |V_{jc}| + 1)$, because float16 numbers below $2^{-14}$ have an absolute error.
# <!-- allowed = checkout("iocourse.course.trials.sixteen_bit_inputs") -->
# <!-- "our tests find at most $2^{-20}$" if "single <= 2.0**-20" in checkout("tests/course/test_sixteen_bits.py") -->
# <!-- "The check computes the terms of float32" if 2 * allowed.SINGLE == 2**-18 and allowed.SMALLEST_HALF == 2**-25 and allowed.TYPES == {"float16": 2**-11, "bfloat16": 2**-8} -->
#
# The row sum $\ell$ stays in float32 if the weights are added *before* they are rounded. NumPy can compare both orders:

# %%
N, d, u = 256, 64, 2.0**-11
Q, K, V = rng.standard_normal((3, N, d)).astype(np.float16).astype(float)
S, exactly = exact.scores(Q, K), exact.attention(Q, K, V)
p = np.exp(S - S.max(axis=1, keepdims=True))
p16 = p.astype(np.float16).astype(float)                # rounded weights
l, l16 = p.sum(axis=1), p16.sum(axis=1)
O = (p16 @ V / l[:, None]).astype(np.float16)
bound = u * (p @ abs(V) / l[:, None] + abs(exactly))
print(f"largest error of O / bound: {(abs(O - exactly) / bound).max():.2f}")
print(f"largest error of LSE with rounded weights: {abs(np.log(l16 / l)).max():.1e}")
L = S.max(axis=1) + np.log(l)
print(f"largest error of LSE, rounded to float32: {abs(L.astype(np.float32) - L).max():.1e}")

# %% [markdown]
# $O$ stays at 0.28 of the bound. With rounded weights in the sum, LSE is wrong by up to $5.1 \cdot 10^{-5}$, while rounding it to float32 changes it by at most $2.4 \cdot 10^{-7}$. $O$ would hide this, because the rounded weights would be in its numerator and in its denominator. The backward pass recomputes $P$ from LSE (lesson 12), so there the error returns.
# <!-- 0.28 as output -->
#
# <!-- exercise 11F --> Write `absorb_16` for tensors in float16 or bfloat16. Solve 11B first, because its two loops are given here. Start from your `absorb` and change three things:
#
# 1. Both products multiply 16-bit numbers, so no `input_precision` is needed. Cast the weights to the type of $V$ (`v.dtype`) for the second product.
# 2. Add up the weights of a row *before* they are cast.
# 3. Apply the scale with the subtraction of the maximum, in one multiply-add per score. So take the maximum of the unscaled scores and scale it, one number per row; `m` is still $m'$. (To scale all scores before the maximum costs one more instruction per score; this passes with a remark.)
#
# Scores, `m`, `l` and `acc` stay in float32. The kernel must be correct for all $N$, also for scores far from 0. The check compares each element with the error that rounding allows. It also compiles your kernel for sm_90 and sm_80 and reads the types of the products, the *spills* (values that do not fit in registers and are kept in memory) and the instructions per score, at most 11 on sm_90 and 13.5 on sm_80. These limits are for the given launch options: `num_warps=4`, and `num_stages=3`, which keeps the keys and values of up to three iterations in shared memory. If you are stuck after ten minutes, run `hint("11F")` in a separate cell.
# <!-- limits = checkout("iocourse.course.exercises.lesson11") -->
# <!-- 11, 13.5 = list(limits.ON_90.values())[-1][1], list(limits.ON_80.values())[-1][1] -->
# <!-- answers = [one for one in rows("answers") if "index" in one] -->
# <!-- timed = {one["answer"]: one for one in answers if "ms" in one} -->
# <!-- reference = timed["reference"] -->
# <!-- "one more instruction per score" if 0.8 < timed["scale before the maximum"]["instructions_per_score"] - reference["instructions_per_score"] < 1.1 -->

# %% [raw] name="about-11F"
# title = "Sixteen bits"
# difficulty = 3
# importance = 5
# minutes = 18
# hints = [
#   "Which factors does each of the two products have, and in which type? tl.dot takes two tiles of one type. The first product has it already.",
#   "The maximum can be taken of the unscaled scores and then scaled, one number per row. Then the exponent is one multiplication and one subtraction per score, which the compiler joins.",
#   "Sum the weights of a row in float32, then cast the tile of weights to v.dtype for the second product. A fixed tl.float16 would fail for bfloat16. The rescaled acc is the third argument of tl.dot.",
# ]

# %% tags=["exercise"] name="ex-11F"
@triton.jit
def absorb_16(acc, m, l, q, k, v, scale, seen=None):
    """Add one tile of keys. Returns the new acc (BM, d), m (BM,) and l (BM,) in float32.

    q (BM, d), k and v (BN, d) have 16 bits; seen (BM, BN): True for visible pairs.
    """
    ### BEGIN SOLUTION
    s = tl.dot(q, tl.trans(k))                 # (BM, BN) in float32
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1) * scale)
    p = tl.exp2(s * scale - m_new[:, None])    # one multiply-add per score
    old = tl.exp2(m - m_new)
    l = l * old + tl.sum(p, 1)                 # before p is rounded
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None])
    ### END SOLUTION
    return acc, m_new, l


@triton.jit
def sixteen_bits_kernel(Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr,
                        d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE: full blocks first, then partial blocks, as in exercise 11B."""
    first, c = tl.program_id(0) * BM, tl.arange(0, d)
    i = first + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    if CAUSAL:
        full, end = (first + 1) // BN * BN, tl.minimum(first + BM, N)
    else:
        full, end = N // BN * BN, N
    for start in range(0, full, BN):
        at = (start + tl.arange(0, BN))[:, None] * d + c
        acc, m, l = absorb_16(acc, m, l, q, tl.load(K + at), tl.load(V + at), scale)
    for start in range(full, end, BN):
        j = start + tl.arange(0, BN)
        at, exists = j[:, None] * d + c, j[:, None] < N
        k = tl.load(K + at, mask=exists, other=0.0)
        v = tl.load(V + at, mask=exists, other=0.0)
        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        acc, m, l = absorb_16(acc, m, l, q, k, v, scale, seen)
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)  # in O's type
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_sixteen_bits(Q, K, V, causal, BM, BN):
    """O (N, d) in the type of Q, LSE (N,) in float32. Q, K, V: contiguous tensors (N, d)."""
    N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)
    sixteen_bits_kernel[(triton.cdiv(N, BM),)](
        Q, K, V, O, LSE, N, 1.4426950408889634 * d**-0.5,
        CAUSAL=causal, d=d, BM=BM, BN=BN, num_warps=4, num_stages=3)
    return O, LSE


# %% tags=["check"] name="check-11F"
check("11F", my_sixteen_bits)

# %%
for dtype in (torch.float16, torch.bfloat16):
    attempt(inner_loop, my_sixteen_bits, sixteen_bits_kernel, dtype, 128, 64, 4)

# %% [markdown]
# 7.8 instructions per score instead of 172. (The tiles and the warps differ too, but 128 of the 172 are multiply-adds, which every tile needs.) The 16 tensor-core instructions of an iteration compute both products, with 16-bit factors and float32 sums.
# <!-- 172, 128 = per_score[0], 2 * 64 -->
#
# Values and machine code show different mistakes. Five kinds of answers have correct values, and only their machine code shows the fault: those that convert $V$ to float32, convert all inputs, add up the second product in float16, use `tl.exp`, or mask every block. On the other hand, three wrong answers have the products of the reference and no more instructions, so only values show their fault: $Q$ scaled in 16 bits, $\ell$ not rescaled, and `tl.float16` instead of `v.dtype`, which fails for bfloat16 only.
# <!-- tried = checkout("tests/mutants/lesson11.py") -->
# <!-- "only their machine code shows the fault" if all(re.search(rf'"{name}",\s+{fails}\b', tried) for name, fails in {"v-raised": "CORES", "all-raised": "CORES", "sums-in-16-bits": "CORES", "exp": "FEW", "one-loop": "FEW"}.items()) -->
# <!-- 7.8 = per_score[1] -->
# <!-- 21, 19, 16 = len(answers), len(timed), sum(reference["products"].values()) -->
# <!-- "three wrong answers have the products of the reference and no more instructions" if all(timed[name]["products"] == reference["products"] and timed[name]["instructions_per_score"] <= reference["instructions_per_score"] for name in ("q scaled in 16 bits", "l not rescaled", "p.to(tl.float16) hard-wired")) -->
#
# A record has 21 answers to 11F, of which 19 were timed on an H200. It also counts *stall clocks*, which the compiler writes into the machine code (the clocks that a warp waits after each instruction), and stores to shared memory.
#
# **Predict** (guess). The reference has 7.8 instructions per score. With `tl.exp` in place of `tl.exp2` the loop has 13.2, with $V$ converted to TF32 11.9, and with weights in fp8 9.8. Compute the ratios of the instructions first. What are the ratios of the times to the time of the reference?
# <!-- 7.8 = reference["instructions_per_score"] -->
# <!-- 13.2, 11.9, 9.8 = (timed[name]["instructions_per_score"] for name in ("exp in place of exp2", "v raised to float32, default (tf32)", "p cast to fp8")) -->

# %% tags=["predict"]
predict("11.6b", exp=1.7, tf32=1.5, fp8=1.25)  #> predict("11.6b", exp=..., tf32=..., fp8=...)

# %%
record = load_record("answers")
answers = [row for row in record["rows"] if "index" in row]  # without the float32 kernels
first = answers[0]
print(f"{record_source(record)}\n{record['problem']}\n")
print(f"{'per score, products and stores per iteration:':<67} "
      "instr.  ratio stalls stores    ms  ratio")
for row in answers:
    if "failed" in row:
        print(f"{row['answer']}: {row['failed']}")
        continue
    kinds = ", ".join(f"{n} {kind.split('.', 2)[2]}" for kind, n in row["products"].items())
    more = row["instructions_per_score"] / first["instructions_per_score"]
    print(f"{row['answer']:<48}{kinds:<22}{row['instructions_per_score']:5.1f}{more:7.2f}"
          f"{row['stall_clocks_per_score']:7.1f}{row['shared_stores']:6}"
          f"{row['ms']:8.2f}{row['ms'] / first['ms']:6.2f}")
times = {row["index"]: row["ms"] / first["ms"] for row in answers if "ms" in row}
measured("11.6b", exp=times[12], tf32=times[5], fp8=times[20])

# %% [markdown]
# <details><summary>Times of the three answers</summary>
#
# 1.89, 2.64 and 1.86. The ratios of the instructions (first column of ratios, before rounding) are 1.68, 1.52 and 1.25.
#
# </details>
#
# These times hold for float16, one head, $N = 32{,}768$, no causal mask, and Triton 3.6.0, as recorded; other cases are unmeasured. The inputs have 16 bits also in the rows that raise tiles to float32. Two answers have no time, for the printed reasons. The table omits four kernels for float32 inputs, because they ran at $N = 8{,}192$ with fewer programs than the GPU has SMs. Without a causal mask, the loop that is masked throughout compares positions only with $N$ and has 9.2 instructions per score; in the causal kernel of the check it has more.
# <!-- slow = [timed[name] for name in ("exp in place of exp2", "v raised to float32, default (tf32)", "p cast to fp8")] -->
# <!-- 1.89, 2.64, 1.86 = (one["ms"] / reference["ms"] for one in slow) -->
# <!-- 1.68, 1.52, 1.25 = (one["instructions_per_score"] / reference["instructions_per_score"] for one in slow) -->
# <!-- "Triton 3.6.0, as recorded" if load_record("answers")["versions"]["triton"] == "3.6.0" -->
# <!-- "one head, $N = 32{,}768$, no causal mask" if all(words in load_record("answers")["problem"] for words in ("float16, one head, N = 32,768", "not causal")) -->
# <!-- 9.2 = timed["one loop, masked throughout"]["instructions_per_score"] -->
# <!-- "The table omits four kernels" if len(rows("answers", N=8192)) == len(rows("answers")) - len(answers) == 4 -->
# <!-- "fewer programs than the GPU has SMs" if all(one["programs"] < device("answers")["multiprocessors"] for one in rows("answers", N=8192)) -->
#
# ## 11.7 Instructions are not time
#
# The units of an SM work at the same time. Per clock, an SM of an H200 does 4,096 operations on its tensor cores (989 TFLOP/s on 132 SMs at 1.83 GHz; a multiply-add is two operations), computes 16 exponentials, issues one instruction for each of 4 warps, and moves 128 bytes to or from shared memory ([FlashAttention-3](https://arxiv.org/abs/2407.08608), [CUDA guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/)). A tile takes at least the clocks that each unit needs for it. These are four lower bounds:
#
# $$ \text{products } \frac{4B_MB_Nd}{4096}, \quad \text{exponentials } \frac{B_MB_N}{16}, \quad \text{issue } \frac{\text{instructions} \cdot \text{warps}}{4}, \quad \text{shared memory } \frac{1}{128}\Bigl(2B_Md + \frac{B_MB_Nd}{16} + 4B_Nd\Bigr) . \tag{11.7} $$
# <!-- (11.7) not evaluated: definition -->
#
# <!-- 989, 132 = CHIPS[90].tensor_tflops, device("answers")["multiprocessors"] -->
# <!-- 4,096 = 2 ** round(math.log2(CHIPS[90].tensor_tflops * 1e12 / device("answers")["multiprocessors"] / 1.83e9)) -->
# <!-- 1.83 from https://arxiv.org/abs/2407.08608 -->
# <!-- 16, 4, 128 from https://docs.nvidia.com/cuda/cuda-c-programming-guide/ -->
#
# The bound on issue has the instructions per thread of one iteration. The bytes of shared memory follow from the tensor-core instructions. Each of them multiplies 64 rows by 16 inner elements. It reads 2 KB of its left factor, unless that is in registers, and 32 bytes per column of its right factor. The kernel keeps $Q$ in shared memory and $P$ in registers. $K$ and $V$ are also written to shared memory once, $4B_Nd$ bytes.
# <!-- 64, 16 = int(next(iter(reference["products"])).split(".")[1].split("x")[0]), int(next(iter(reference["products"])).split(".")[1].split("x")[2]) -->
# <!-- 2, 32 = 64 * 16 * 2 / 2**10, 16 * 2 -->
# <!-- hot = row("hot-loops", "shipped", arch=90, d=64, kernel="forward", causal=True, pairs="band", group=1) -->
# <!-- "$Q$ in shared memory and $P$ in registers" if 0 <= hot["shared_bytes"] - 2 * 64 * 64 * (1 + 2 * hot["stages"]) < 2 * 64 * 64 -->
#
# **Predict** (compute). $B_M = B_N = d = 64$, and 4 warps with 299 instructions each per tile. How many clocks is the largest lower bound?
# <!-- 299, 4 = hot["hot_loop"]["instructions"], hot["warps"] -->

# %% tags=["predict"]
predict("11.7b", clocks=320)  #> predict("11.7b", clocks=...)

# %%
def clock_bounds(BM, BN, d, warps, instructions):
    """Return the four lower bounds (11.7) on the clocks of one SM for a tile in 16 bits."""
    shared = 2 * BM * d + BM * BN * d / 16 + 4 * BN * d  # bytes
    return {"products": 4 * BM * BN * d / 4096, "exponentials": BM * BN / 16,
            "issue": instructions * warps / 4, "shared memory": shared / 128}


hot_loops = load_record("hot-loops")
row = next(row for row in hot_loops["shipped"] if row["kernel"] == "forward"
           and (row["arch"], row["d"], row["causal"]) == (90, 64, True))
clocks = clock_bounds(row["BM"], row["BN"], row["d"], row["warps"],
                      row["hot_loop"]["instructions"])
print(f"the library's kernel, compiled with {record_source(hot_loops)}")
print("tile {BM} x {BN}, d = {d}, {warps} warps:".format(**row), clocks)
measured("11.7b", clocks=max(clocks.values()))

# %% [markdown]
# <details><summary>The largest lower bound</summary>
#
# 320 clocks, for shared memory: 40 KB per tile. Issue needs 299 clocks, products and exponentials 256 each. (The loop has 34 exponentials per thread, two of them to rescale, which makes 272 clocks.)
# <!-- bytes_of_a_tile = 2 * hot["BM"] * hot["d"] + hot["BM"] * hot["BN"] * hot["d"] / 16 + 4 * hot["BN"] * hot["d"] -->
# <!-- 320, 40, 299 = bytes_of_a_tile / 128, bytes_of_a_tile / 2**10, hot["hot_loop"]["instructions"] * hot["warps"] / 4 -->
# <!-- 34, 272 = hot["hot_loop"]["exponentials"], hot["hot_loop"]["exponentials"] * 32 * hot["warps"] / 16 -->
#
# </details>
#
# At $d = 64$ the four bounds differ by at most a quarter, so no unit alone limits this tile. The reference of 11F was timed, with a tile of $128 \times 64$. The next cell compares its time with its bounds. For all timed answers the record has the ratio of the largest of the first three bounds to the measured time. These bounds include the exponentials that rescale, and TF32 products at half the rate.
# <!-- 128 \times 64 = tuple(int(n) for n in re.search(r"not causal, (\d+) x (\d+), 4 warps", load_record("answers")["problem"]).groups()) -->

# %%
N, BM, BN, d, warps = 32768, 128, 64, 64, 4  # as recorded
instructions = first["instructions_per_score"] * BM * BN / (32 * warps)
clocks = clock_bounds(BM, BN, d, warps, instructions)
clocks["exponentials"] *= first["exponentials_per_score"]  # also those that rescale
clock = 1.98e9  # Hz, the limit of this GPU
sm_clocks = first["ms"] / 1000 * clock * record["device"]["multiprocessors"]
took = sm_clocks / (N // BM * (N // BN))
print(f"reference: {took:,.0f} clocks per tile, lower bounds",
      ", ".join(f"{unit} {bound:.0f}" for unit, bound in clocks.items()))
print("\nlargest lower bound / measured")
ratios = sorted((row["measured_over_roof"], row["answer"]) for row in answers if "ms" in row)
for ratio, answer in ratios[:4]:
    print(f"{ratio:.2f} {answer}")
print(f"{ratios[4][0]:.2f} to {ratios[-1][0]:.2f}: the other {len(ratios) - 4} answers")

# %% [markdown]
# An SM takes 1,312 clocks per tile, on average, where the largest lower bound is 544. (The frequency during the run was not recorded; we assume the limit, 1,980 MHz.) The ratio is about 0.4 for 15 of the 19 answers, but 0.34 for `tl.exp`, 0.26 for weights in fp8, 0.25 for all inputs in TF32 and 0.22 for $V$ in TF32. No time is below its lower bound, but the bound does not predict the time.
# <!-- tiles = (32768 // 128) * (32768 // 64) -->
# <!-- 1,312 = reference["ms"] / 1000 * 1.98e9 * device("answers")["multiprocessors"] / tiles -->
# <!-- 544 = 128 * 64 / 16 * reference["exponentials_per_score"] -->
# <!-- 1,980 = int(device("answers")["clock_limit"].split()[0]) -->
# <!-- 15, 19, 0.4 = sum(0.39 < one["measured_over_roof"] < 0.44 for one in timed.values()), len(timed), statistics.median(one["measured_over_roof"] for one in timed.values()) -->
# <!-- 0.34, 0.22, 0.26 = (one["measured_over_roof"] for one in slow) -->
# <!-- raised = timed["all three raised to float32, default (tf32)"] -->
# <!-- 0.25 = raised["measured_over_roof"] -->
# <!-- "No time is below its lower bound" if max(one["measured_over_roof"] for one in timed.values()) < 1 -->
#
# Two columns of the table suggest causes. `tl.exp` adds comparisons and multiplications that wait for each other: 33.4 stall clocks per score instead of 16.3. With TF32 or fp8 factors, $V$ is loaded into registers in each iteration, reordered and stored in shared memory again: 32 or 40 stores, where the reference has none. The compiler reports all these counts, but only a timing shows their cost.
# <!-- 33.4, 16.3 = slow[0]["stall_clocks_per_score"], reference["stall_clocks_per_score"] -->
# <!-- 32, 40 = slow[1]["shared_stores"], raised["shared_stores"] -->
# <!-- "stores, where the reference has none" if slow[1]["shared_stores"] == slow[2]["shared_stores"] == 32 and reference["shared_stores"] == 0 -->
#
# ## 11.8 The library's kernel
#
# `kernels.attention(q, k, v)` is the kernel that you wrote, for any tensors: heads, shared keys, bands, strides, and $d$ up to 1,024, padded to a power of two where needed; float16, bfloat16 and float32. It has the same two loops (three for a band, which has two edges) and multiplies by $\lambda$ after the maximum, as in 11F. It is registered with PyTorch, so gradients flow through it (lesson 12) and `torch.compile` accepts it. The kernel is in `iocourse/kernels/forward.py`, and the helpers that it shares with the backward pass are in `iocourse/kernels/jit_helpers.py`. Its traffic is that of your kernels:
# <!-- 1,024 = kernels.host.checks.LARGEST_HEAD -->

# %%
N, d, BM, BN = 200, 32, 64, 32
q, k, v = torch.from_numpy(rng.standard_normal((3, N, d)).astype(np.float32))
for is_causal in (False, True):
    with kernels.using(forward=(BM, BN)):
        theirs = counted(kernels.attention_with_lse, *(x[None, None] for x in (q, k, v)),
                         causal=is_causal)
    mine = attempt(counted, my_two_loops, q, k, v, is_causal, BM, BN)
    apart = abs(mine[1][0] - theirs[1][0][0, 0]).max()
    print(f"causal {is_causal!s:5}: "
          f"library {theirs[0].total:,} words, yours {mine[0].total:,}; "
          f"same values to 1e-6: {apart < 1e-6}")

# %% [markdown]
# Both kernels move 64,200 words without a mask and 50,376 with the causal mask. A test of the library compares its words with the closed forms of `costs.kernels`, for random sizes, bands and heads; they are equal to the byte.
#
# ## Misconceptions
#
# - **"A masked load of zeros hides a key."** A key of zeros has the score 0 and receives weight, so its score must be $-\infty$ (11.3).
# - **"A mask saves words."** A partial block is loaded completely. Empty blocks save words: 72 of 128 blocks are loaded under a causal mask (11.5).
# - **"A kernel with correct values is done."** Values cannot show on which unit the products run (11.6).
# - **"The time is in the instructions."** With $V$ in TF32 the loop has 1.52 times the instructions and takes 2.64 times as long (11.6).
# <!-- 1.52, 2.64 = slow[1]["instructions_per_score"] / reference["instructions_per_score"], slow[1]["ms"] / reference["ms"] -->
#
# ## Take-away
#
# - The outer loop of the FlashAttention-2 order is the grid and its inner loop is the kernel. The kernel reads $Nd + 2Nd\lceil N/B_M\rceil$ words and writes $Nd + N$.
# - Two loops with limits known in advance: full blocks run without a mask, and empty blocks are never loaded.
# - In 16 bits both products run on tensor cores, with float32 sums, and the error is at most (11.6). The row sum and the log-sum-exp stay in float32.
# - Values come from the interpreter, types and instructions from the compiler, and times from a GPU. None of them replaces another.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 1 is the kernel; section 3.1 has the full and the partial blocks of a causal mask.
# - J. Shah et al.: *FlashAttention-3*, 2024, [arXiv 2407.08608](https://arxiv.org/abs/2407.08608). The rates of products and of exponentials on an H100; two programs of warps that overlap them.
# - NVIDIA: *CUDA C++ Programming Guide*, [docs.nvidia.com](https://docs.nvidia.com/cuda/cuda-c-programming-guide/), tables of arithmetic throughput and of compute capabilities.
# - M. Milakov, N. Gimelshein: *Online normalizer calculation for softmax*, 2018, [arXiv 1805.02867](https://arxiv.org/abs/1805.02867).
#
# **What comes next.** <!-- next -->
# <!-- ($Nd + 2Nd\lceil N/B_M\rceil$) = costs.flash2(N, d, Br=BM, Bc=1, lse=True).read -->
# <!-- ($Nd + N$) = costs.flash2(N, d, Br=BM, Bc=1, lse=True).written -->
