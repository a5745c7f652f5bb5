# %% [markdown]
# # 11 FlashAttention forward in Triton
#
# Lesson 04 wrote F2, the loop order of FlashAttention-2, for a machine that counts words. Lesson 10 wrote kernels for a machine that computes. Here the two become one: F2 as a Triton kernel of some thirty lines, whose loads and stores are counted and move the words of F2's closed form, to the word. Then come the things that a paper's pseudo-code leaves out and every kernel needs: sizes that no tile divides, masks that cost nothing where nothing is hidden, rows that see no key, heads. What a chip makes of such a kernel is the subject of [lesson 11b](11b_gpu_tile_sizes.ipynb).
#
# **What you will learn**
#
# - to turn a schedule into a kernel: what becomes a grid, what a loop, what a mask;
# - to write the forward pass in powers of two, with ragged sizes, a causal mask in two loops, bands, and heads that share keys;
# - to predict the words of each of these to the word, and to check the prediction.
#
# **Prerequisites**: lessons 03 and 04 (online softmax, F2), lesson 10 (programs, blocks, masks, counting). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Sections 11.1 and 11.2 run on any machine, in NumPy. From section 11.3 on cells need Triton, which is published for Linux only (Colab runs Linux); no GPU is needed.

# %% tags=["setup"]
import numpy as np

from iocourse import costs, exact, masks, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict

# %% [markdown]
# ## 11.1 The outer loop becomes a grid
#
# We want F2 as a kernel. Look at its two loops once more. A round of the *outer* loop takes one block of queries through all keys and stores finished rows of $O$. No round needs anything from another round: the rounds may run in any order, or all at once. That is what lesson 10 called a program. So the outer loop disappears: its rounds become the programs of a grid, and the number of the round becomes the number of the program. The *inner* loop stays a loop, for its rounds hand on $m_i$, $\ell_i$ and the outputs so far.

# %%
explore.tile_order("flash2", 100, 16, {"Br": 32, "Bc": 16})

# %% [markdown]
# A row of tiles in the picture is a round of the outer loop: here four rounds, and so four programs, each of which meets all seven tiles of keys.
#
# Kernels call the tile sizes `BM` and `BN` where the schedules say $B_r$ and $B_c$; in formulas we write $B_M$ and $B_N$. One program in NumPy, with the words it reads from its arrays:

# %%
def program(number, Q, K, V, O, LSE, BM, BN):
    """BM rows of O and LSE, from row number · BM on. Returns the words read."""
    N, d = Q.shape
    i = slice(number * BM, min((number + 1) * BM, N))
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


# %% [markdown]
# The last line also stores $L_i = m_i + \log \ell_i$, the log-sum-exp of the row, which the backward pass will want. This is `flash2(…, lse=True)`. Reads and writes, for any sizes:
#
# $$ W_{\text{read}} = Nd + 2Nd\left\lceil \frac{N}{B_M} \right\rceil, \qquad W_{\text{written}} = Nd + N . \tag{11.1} $$
# <!-- (11.1) W_read = costs.flash2(N, d, Br=BM, Bc=1, lse=True).read -->
# <!-- (11.1) W_written = costs.flash2(N, d, Br=BM, Bc=1, lse=True).written -->
#
# **Predict** (guess). $N = 100$, $d = 16$, $B_M = 32$. The first program makes 32 rows of $O$, the last one 4. How many times as many words does the first one read?

# %% tags=["predict"]
predict("11.1", times=1.1)  #> predict("11.1", times=...)

# %%
N, d, BM, BN = 100, 16, 32, 16
rng = np.random.default_rng(11)
Q, K, V = rng.standard_normal((3, N, d)).astype(np.float32)
O, LSE = np.empty_like(Q), np.empty(N, dtype=np.float32)
programs = -(-N // BM)
words = [program(number, Q, K, V, O, LSE, BM, BN) for number in range(programs)]
error = abs(O - exact.attention(Q, K, V)).max()
emulated = run(schedules.flash2, M=8192, Q=Q, K=K, V=V, Br=BM, Bc=BN, lse=True).ledger
print(f"read {sum(words):,} words, largest error below 1e-5: {error < 1e-5}")
print(emulated)
print("by program:", words)
measured("11.1", times=words[0] / words[-1])

# %% [markdown]
# <details><summary>What the last program reads</summary>
#
# 3,712 words against 3,264: an eighth of the rows, and nearly all of the words. Every program reads all of $K$ and $V$; only its share of $Q$ is smaller. A ragged end is dear.
#
# </details>
#
# Four programs read $K$ four times, 14,400 words in all, as the emulator counts for F2, and as (11.1) says: $1{,}600 + 2 \cdot 1{,}600 \cdot 4$.
#
# ## 11.2 Powers of two
#
# A GPU has an instruction for $2^x$ and none for $e^x$: the compiler makes $e^x$ by multiplying with $\log_2 e$ first. That multiplication comes on top of the one by $1/\sqrt d$, for each of the $N^2$ scores. Two constants that multiply the same thing are one constant:
#
# $$ e^{s/\sqrt d \,-\, m} = 2^{\,\lambda s \,-\, m'}, \qquad \lambda = \frac{\log_2 e}{\sqrt d}, \qquad m' = m \log_2 e . \tag{11.2} $$
# <!-- (11.2) e^{s/\sqrt d - m} = math.exp(exact.scores(np.full((1, d), s / d), np.ones((1, d)))[0, 0] - m) with lambda_ = math.log2(math.e) / math.sqrt(d), mprime = m * math.log2(math.e) where s <= 40 and m <= 40 -->
# <!-- (11.2) \lambda = math.log2(math.e) * exact.scores(np.ones((1, d)), np.ones((1, d)))[0, 0] / d with e = math.e -->
# <!-- (11.2) m' = exact.log_sum_exp([[m]])[0] / math.log(2) with e = math.e -->
#
# So the kernel keeps scores, and their running maximum, in units of $\log 2$. Sums of weights do not change, since the weights are the same numbers. Only the log-sum-exp has to come back to natural units when it is stored:
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
# For a row with the scores 1, 2 and 3, after scaling by $1/\sqrt d$, the maximum is $m' = 4.328$, which is $3 \log_2 e$, and the sums agree. Both ways give $L = 3.407606$. A score costs $4d$ operations of the tensor cores and one exponential. The smaller $d$ is, the more the exponentials weigh, and the more a multiplication less for each of them.
#
# ## 11.3 The kernel
#
# From here on cells run Triton kernels, in the interpreter. This lesson counts words, and words can be counted in the interpreter only; so the next cell asks for it before it imports Triton, even if you have a GPU. Where Triton is missing, that cell and each later one that needs it say in a line what to install; the others run.

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
# Line by line, the NumPy program turns into this:
#
# | in NumPy | in the kernel |
# | --- | --- |
# | `number` | `tl.program_id(0)` |
# | `Q[i]`, cut off at `N` | `tl.load` of `BM` rows, with a mask for the rows that exist |
# | `s = q @ k.T` of the keys that are left | `tl.dot` on a whole tile; scores of keys that do not exist become $-\infty$ |
# | `O[i] = …` | `tl.store` with the same mask |
#
# Most words you know from lesson 10. New are `tl.trans(k)` for $k^\top$, `tl.full`, `tl.where`, `tl.exp2` and `tl.log2`, which mean what they mean in NumPy, and `tl.minimum` beside `tl.maximum`, of two tiles or two numbers. `tl.max(s, 1)` and `tl.sum(s, 1)` give one number for each row of a tile. `tl.dot(p, v, acc)` adds the product to its third argument.
#
# The third line of the table is the one to think about. The last tile of keys may be ragged. In NumPy a slice gets shorter; in a kernel a tile has one size, known to the compiler, and a masked load fills the rest with what `other` says, here 0. (Without `other` nothing is promised about the rest; the check fills it with NaN.) A key of zeros has the score 0, not no score, and would take weight. So its scores must be hidden. Rows of *queries* that do not exist need no such care: they compute something from zeros, and the masked store forgets it.
#
# We keep to one head, rows of $d$ words one behind the other, and a $d$ that is a power of two, at least 16. `input_precision="ieee"` asks for a product in full float32, where tensor cores would round the inputs to 11 significant bits.
#
# <!-- exercise 11A --> Fill the inner loop: one tile of keys and values, in powers of two. `scale` already holds the $\lambda$ of (11.2); multiply the scores by it. `acc`, `m` and `l` are what the rounds hand on. Every $N$, `BM` and `BN` must come out right, scores astronomically far below zero too, and the words of (11.1) are allowed. If you are stuck after nine minutes, run `hint("11A")` in a cell of your own.
# <!-- 11 = np.finfo(np.float16).nmant + 1 -->

# %% [raw] name="about-11A"
# title = "The inner loop"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "What does a program load of K and V in one iteration, and which of its own values change? Rewrite the NumPy program of section 11.1 line by line, with powers of two and with loads instead of slices.",
#   "One iteration: load the tile of keys, with a mask and other = 0; compute scores by tl.dot with the transposed tile, times scale; set out-of-bounds scores to -inf; then the new maximum, weights by tl.exp2, and the factor that rescales the old values.",
#   "acc, l and m are carried from one iteration to the next. Multiply l by the factor and add the row sums of the weights. Multiply acc by the factor (as a column) and add the product of weights and values: tl.dot takes an accumulator as its third argument. Update m last.",
# ]

# %% tags=["exercise"] name="ex-11A"
@triton.jit
def forward_kernel(Q, K, V, O, LSE, N, scale,
                   d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE: a tile of queries stays, keys and values pass by."""
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
# ## 11.4 Its ledger
#
# Now count. `traffic.count` of lesson 10 watches every load and store of the launches in its block; an array takes the name of the kernel's parameter. We take $N = 200$, $d = 32$, $B_M = 64$ and $B_N = 32$.

# %%
def counted(launcher, *arguments, **keywords):
    """The ledger of a launch, and what it returned."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


N, d, BM, BN = 200, 32, 64, 32
q, k, v = torch.from_numpy(rng.standard_normal((3, N, d)).astype(np.float32))
mine = attempt(counted, my_flash_forward, q, k, v, BM, BN)
formula = costs.flash2(N, d, Br=BM, Bc=BN, lse=True)
print(mine[0])
print(f"the closed form of F2: {formula.read:,} read, {formula.written:,} written")

# %% [markdown]
# 64,200 words: 57,600 read and 6,600 written, array for array what (11.1) says, and in float32 four times as many bytes. The tiles of keys do not divide 200, and the ledger does not notice: lanes that a mask switches off move nothing. Neither does $B_N$ occur in it. What the emulator predicted in lesson 04, from a schedule without a single pointer, is what the kernel's loads and stores do.
#
# Two words of caution. The ledger says what programs *ask for*; lesson 11b asks where it comes from. And it counts elements, not the sectors of 32 bytes in which a chip fetches them: a row of 16 words in 16 bits is one sector, and a lone word costs a whole one too.
#
# ## 11.5 Masks only where they are needed
#
# Your kernel asks of every score whether its key exists, although only the last tile can hold a key that does not. Under a causal mask it is the same: tiles far below the diagonal are seen whole, tiles above it not at all, and only those that the diagonal cuts need a mask. A mask moves no words, but a comparison and a choice for each score is work, on units that are also busy with exponentials.
#
# A branch inside the loop would have to be asked in every round. There is no need to ask: for the program with number $t$, whose first row is $tB_M$, it is known beforehand which tiles are whole and where the keys end. So we write two loops, one after the other: first the whole tiles, without any mask, then the tiles that are cut. Their borders are
#
# $$ \text{whole} = B_N\left\lfloor \frac{tB_M + 1}{B_N} \right\rfloor, \qquad \text{end} = \min\bigl((t+1)B_M,\ N\bigr) . \tag{11.4} $$
# <!-- (11.4) whole = BN * sum(seen[:, j:j + BN].all() for j in range(0, N - BN + 1, BN)) with seen = masks.Causal(min(N, 200)).pairs()[t * BM:(t + 1) * BM] where N <= 200 and t * BM < N -->
# <!-- (11.4) end = seen.any(axis=0).sum() with seen = masks.Causal(min(N, 200)).pairs()[t * BM:(t + 1) * BM] where N <= 200 and t * BM < N -->
#
# The first row sees the keys $0$ to $tB_M$, which are $tB_M + 1$; whole tiles among them are seen by every row of the program. (Where both are powers of two above 1, the 1 never completes a tile, and a kernel may leave it out.) The last row decides where the keys stop. Without a causal mask the borders are $B_N\lfloor N/B_N\rfloor$ and $N$. The tiles behind `end` are never loaded. Summed over the programs, the words of $K$ and $V$ under a causal mask are
#
# $$ 2d \sum_{t=0}^{\lceil N/B_M \rceil - 1} \min\left(N,\ B_N\left\lceil \frac{\min\bigl((t+1)B_M,\ N\bigr)}{B_N} \right\rceil\right) . \tag{11.5} $$
# <!-- (11.5) = words.reads["K"] + words.reads["V"] with words = kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d, high=0), BM=BM, BN=BN) where N <= 200 -->
#
# **Predict** (compute). $N = 512$, $B_M = 64$, $B_N = 32$: the full matrix has $8 \times 16 = 128$ tiles. Under a causal mask, how many are visited, and how many of these need a mask?
# <!-- 32 as definition -->
# <!-- 8 \times 16 as input -->

# %% tags=["predict"]
predict("11.5", visited=72, masked=16)  #> predict("11.5", visited=..., masked=...)

# %%
N, d, BM, BN = 512, 64, 64, 32
visited = masked = 0
for t in range(-(-N // BM)):
    whole, end = (t * BM + 1) // BN * BN, min((t + 1) * BM, N)
    visited += -(-end // BN)
    masked += -(-(end - whole) // BN)
# high=0 makes it causal, as section 11.9 explains
problem = costs.kernels.KernelProblem(N, N, d, high=0)
causal = costs.kernels.attention_forward(problem, BM=BM, BN=BN)
full = costs.kernels.attention_forward(costs.kernels.KernelProblem(N, N, d), BM=BM, BN=BN)
print(f"K: {causal.reads['K']:,} words causal, {full.reads['K']:,} full; "
      f"{visited} tiles of {BN * d:,} words are {visited * BN * d:,}")
measured("11.5", visited=visited, masked=masked)
cut = masks.BlockMask(N, np.ones((N // BM, N // BN), bool), BM, BN, causal=True)
explore.block_mask(cut, d, title="A causal mask in tiles")

# %% [markdown]
# <details><summary>Which tiles are whole, cut and never loaded</summary>
#
# 72 of the 128 tiles are visited and 16 of those need a mask, two for each program. As $N$ grows the visited part tends to one half and the masked part to nothing. $K$ moves 147,456 words instead of 262,144: the diagonal costs whole tiles, so causal attention moves a little more than half. In the picture the dark tiles are whole, the light ones cut by the diagonal, and what is white is never loaded. (Its bars leave out the log-sum-exps.)
#
# </details>
#
# In Triton a loop is compiled with or without the mask by a parameter of type `tl.constexpr`: `if MASKED:` is decided when the kernel is compiled, and leaves no branch behind. A function under `@triton.jit` can be called from a kernel, and is laid out anew for each value of its constants.
#
# <!-- exercise 11B --> Put your inner loop into `absorb`, with masks only where `MASKED`, and let the kernel call it in two loops. `causal` may be True or False, $N$ anything. Loads count: no tile above the diagonal, and nothing behind the last key. The check also counts on how many tiles `tl.where` chooses between scores, and allows those that hold a hidden pair. (It would not see a mask made by arithmetic. A GPU would.) If you are stuck after nine minutes, run `hint("11B")` in a cell of your own.
# <!-- 128 = 8 * 16 -->
# <!-- "the visited part tends to one half" if 0.5 < kernel_costs.attention_forward(kernel_costs.KernelProblem(2**14, 2**14, 64, high=0), BM=64, BN=32).reads["K"] / kernel_costs.attention_forward(kernel_costs.KernelProblem(2**14, 2**14, 64), BM=64, BN=32).reads["K"] < 0.503 -->

# %% [raw] name="about-11B"
# title = "Two loops"
# difficulty = 4
# importance = 5
# minutes = 15
# hints = [
#   "For one tile of queries: how many keys does its first row attend to, and how many its last? The tiles between the two limits need a mask.",
#   "Two limits, both in keys: every row attends to all tiles that end at or before the first limit; the second is the last key of the last row, or the end of the keys. The first must be a multiple of BN, so round down.",
#   "The first row is tile number · BM and attends to that many keys plus one. The last existing row is at most tile number · BM + BM - 1. Without a causal mask every row attends to N keys. Then use two loops over the same step, one compiled with the mask and one without.",
# ]

# %% tags=["exercise"] name="ex-11B"
@triton.jit
def absorb(acc, m, l, q, i, start, K, V, N, scale, CAUSAL: tl.constexpr,
           MASKED: tl.constexpr, d: tl.constexpr, BN: tl.constexpr):
    """One tile of keys, from row `start` on. Returns the new acc (BM, d), m and l (BM,)."""
    c = tl.arange(0, d)
    j = start + tl.arange(0, BN)
    ### BEGIN SOLUTION as in 11A; loads and scores have a mask only if MASKED
    if MASKED:
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
    else:
        k = tl.load(K + j[:, None] * d + c)
        v = tl.load(V + j[:, None] * d + c)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if MASKED:
        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s - m_new[:, None])
    old = tl.exp2(m - m_new)
    acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
    return acc, m_new, l * old + tl.sum(p, 1)
    ### END SOLUTION


@triton.jit
def two_loops_kernel(Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr,
                     d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE: whole tiles first, then the tiles that need a mask."""
    first = tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    c = tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    ### BEGIN SOLUTION the two borders, then two loops
    if CAUSAL:
        whole = (first + 1) // BN * BN
        end = tl.minimum(first + BM, N)
    else:
        whole = N // BN * BN
        end = N
    for start in range(0, whole, BN):
        acc, m, l = absorb(acc, m, l, q, i, start, K, V, N, scale, CAUSAL, False, d, BN)
    for start in range(whole, end, BN):
        acc, m, l = absorb(acc, m, l, q, i, start, K, V, N, scale, CAUSAL, True, d, BN)
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
for is_causal, formula in ((False, full), (True, causal)):
    mine = attempt(counted, my_two_loops, q, k, v, is_causal, BM, BN)
    print(f"causal {is_causal!s:5}: {mine[0].total:9,} words, closed form {formula.total:9,}")

# %% [markdown]
# 590,336 words without the mask, 360,960 with it, as the closed forms say. One more detail moves no word and is meant for a GPU: under a causal mask the last program has the most to do. Programs start roughly in the order of their numbers, and if the longest starts last, the chip may end up waiting for it alone. So the library turns the order round and starts with the last rows.
#
# ## 11.6 Sixteen bits
#
# <!-- exercise 11F --> Write one iteration for tensors in float16 or bfloat16. The two loops are given: they are those of exercise 11B, and they call your `absorb_16`. Start from your `absorb` and change four things. Both products multiply 16-bit numbers, so no `input_precision` is needed. Scores, maximum, sums and `acc` stay in float32. The scale is applied with the subtraction of the maximum, in one multiply-add per score. The weights are rounded to the type of $V$ after their sum is taken, because the second product needs two factors of one type. The check compares each element with the error that rounding allows, compiles your kernel for sm_90 and sm_80, and reads the types of the products, the spills and the instructions per score. If you are stuck after ten minutes, run `hint("11F")` in a separate cell.


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
    """Attend to one tile of keys in 16 bits. Returns the new acc (BM, d), m (BM,) and l (BM,) in float32.

    q (BM, d), k and v (BN, d): tiles in float16 or bfloat16. seen (BM, BN): True for visible pairs.
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
        whole, end = (first + 1) // BN * BN, tl.minimum(first + BM, N)
    else:
        whole, end = N // BN * BN, N
    for start in range(0, whole, BN):
        at = (start + tl.arange(0, BN))[:, None] * d + c
        acc, m, l = absorb_16(acc, m, l, q, tl.load(K + at), tl.load(V + at), scale)
    for start in range(whole, end, BN):
        j = start + tl.arange(0, BN)
        at, exists = j[:, None] * d + c, j[:, None] < N
        k = tl.load(K + at, mask=exists, other=0.0)
        v = tl.load(V + at, mask=exists, other=0.0)
        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        acc, m, l = absorb_16(acc, m, l, q, k, v, scale, seen)
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)  # rounds to O's type
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_sixteen_bits(Q, K, V, causal, BM, BN):
    """O (N, d) in the type of Q, and LSE (N,) in float32. Q, K, V: contiguous 16-bit tensors (N, d)."""
    N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)
    sixteen_bits_kernel[(triton.cdiv(N, BM),)](
        Q, K, V, O, LSE, N, 1.4426950408889634 * d**-0.5,
        CAUSAL=causal, d=d, BM=BM, BN=BN, num_warps=4, num_stages=3)
    return O, LSE


# %% tags=["check"] name="check-11F"
check("11F", my_sixteen_bits)

# %% [markdown]
# ## 11.8 The library's kernel
#
# `kernels.attention(q, k, v)` is what you have written, in one kernel: heads, shared keys, bands, both masks, strides, and the two loops (three for a band, which has two edges); any $d$ up to 1,024, padded to a power of two where needed; float16, bfloat16 and float32. It is registered with PyTorch, so gradients flow through it (lesson 12) and `torch.compile` takes it. One detail differs: it multiplies by $\lambda$ after it has found the maximum, $2^{\lambda s - m'}$ with $\lambda s - m'$ as *one* instruction, a fused multiply-add. The kernel stands in `iocourse/kernels/forward.py`, and what it shares with the backward pass in `iocourse/kernels/jit_helpers.py`. It has more parameters than yours, and the same two loops.
#
# Its words are those of your kernels:
#
# <!-- 1,024 = kernels.host.checks.LARGEST_HEAD -->
# <!-- "the tile runs fastest" as definition -->

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
# 64,200 words and 50,376 words, from either. A test of the library holds this for random sizes, bands and heads: the words of its kernels equal the closed forms of `costs.kernels`, to the byte.
#
# ## Misconceptions
#
# - **"A masked load of zeros hides a key."** A key of zeros has the score 0 and takes weight; its score must become $-\infty$ (11.3).
# - **"A mask saves words."** Of a tile that is visited all rows that exist are loaded. Words are saved by tiles that are not visited: 72 of 128 under a causal mask (11.5).
# - **"Only rows that see nothing can give NaN."** Every row of the window saw a key, and 6 of 12 sums were not a number (11.6).
# - **"Shared heads of keys divide the traffic."** They divide the size. The programs read as many words as before (11.7).
#
# ## Take-away
#
# - The outer loop of F2 is the grid, its inner loop is the kernel, and the kernel moves the words of F2: $Nd + 2Nd\lceil N/B_M\rceil$ read, $Nd + N$ written.
# - Two loops, one with a mask and one without, and borders that are known before: whole tiles pay for no mask, hidden ones are never loaded.
# - $-\infty$ needs care at two places: where a maximum is subtracted, and where a sum divides.
# - The count is what programs ask for. Where it comes from, and what it costs, is for lesson 11b.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 1 is the kernel; section 3.1 has the two kinds of tiles of a causal mask.
# - M. Milakov, N. Gimelshein: *Online normalizer calculation for softmax*, 2018, [arXiv 1805.02867](https://arxiv.org/abs/1805.02867).
# - P. Tillet, H. T. Kung, D. Cox: *Triton: an intermediate language and compiler for tiled neural network computations*, MAPL 2019.
# - J. Ainslie et al.: *GQA*, 2023, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245). Heads that share keys.
#
# **What comes next.** <!-- next -->
# <!-- ($Nd + 2Nd\lceil N/B_M\rceil$) = costs.flash2(N, d, Br=BM, Bc=1, lse=True).read -->
# <!-- ($Nd + N$) = costs.flash2(N, d, Br=BM, Bc=1, lse=True).written -->
