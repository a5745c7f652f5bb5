# %% [markdown]
# # 11 FlashAttention forward in Triton
#
# Lesson 04 wrote F2, the loop order of FlashAttention-2, for a machine that counts words. Lesson 10 wrote kernels for a machine that computes. Here the two become one: F2 as a Triton kernel of some thirty lines, whose loads and stores are counted and move the words of F2's closed form, to the word. Then come the things that a paper's pseudo-code leaves out and every kernel needs: sizes that no tile divides, masks that cost nothing where nothing is hidden, rows that see no key, heads. At the end we leave the model and look at chips: what limits the kernel there, and why the tile that moves the fewest words is not the one to take.
#
# **What you will learn**
#
# - to turn a schedule into a kernel: what becomes a grid, what a loop, what a mask;
# - to write the forward pass in powers of two, with ragged sizes, a causal mask in two loops, bands, and heads that share keys;
# - to predict the words of each of these to the word, and to check the prediction;
# - to read a roofline, and to say at which of a GPU's memories the model's count is meant;
# - to say what registers, shared memory and tensor cores want of a tile, and why $B_c = 1$ is not what they want.
#
# **Prerequisites**: lessons 03 and 04 (online softmax, F2), lesson 10 (programs, blocks, masks, counting). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Sections 11.1 and 11.2 run on any machine, in NumPy. From section 11.3 on cells need Triton, which is published for Linux only (Colab runs Linux); no GPU is needed. Sections 11.9 to 11.12 stand by themselves: if time runs short, read them another day.

# %% tags=["setup"]
import numpy as np

from iocourse import costs, exact, explore, run, schedules
from iocourse.course import attempt, check, hint, measured, predict

# %% [markdown]
# ## 11.1 The outer loop becomes a grid
#
# We want F2 as a kernel. Look at its two loops once more. A round of the *outer* loop takes one block of queries through all keys and stores finished rows of $O$. No round needs anything from another round: the rounds may run in any order, or all at once. That is what lesson 10 called a program. So the outer loop disappears: its rounds become the programs of a grid, and the number of the round becomes the number of the program. The *inner* loop stays a loop, for its rounds hand on $m_i$, $\ell_i$ and the outputs so far.
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
#
# **Predict.** $N = 100$, $d = 16$, $B_M = 32$. How many programs are there, and how many times is all of $K$ read?

# %% tags=["predict"]
predict("11.1", programs=4, k_reads=4)  #> predict("11.1", programs=..., k_reads=...)

# %%
N, d, BM, BN = 100, 16, 32, 16
rng = np.random.default_rng(11)
Q, K, V = rng.standard_normal((3, N, d)).astype(np.float32)
O, LSE = np.empty_like(Q), np.empty(N, dtype=np.float32)
programs = -(-N // BM)
words = sum(program(number, Q, K, V, O, LSE, BM, BN) for number in range(programs))
error = abs(O - exact.attention(Q, K, V)).max()
emulated = run(schedules.flash2, M=8192, Q=Q, K=K, V=V, Br=BM, Bc=BN, lse=True).ledger
print(f"read {words:,} words, largest error below 1e-5: {error < 1e-5}")
print(emulated)
measured("11.1", programs=programs, k_reads=emulated.reads["K"] // (N * d))

# %% [markdown]
# Four programs, and $K$ is read four times: every program reads all of it. 14,400 words read, as the emulator counts for F2, and as (11.1) says: $1{,}600 + 2 \cdot 1{,}600 \cdot 4$. The last program has 4 rows of queries and reads as much of $K$ and $V$ as the others.

# %% [markdown]
# ## 11.2 Powers of two
#
# A GPU has an instruction for $2^x$ and none for $e^x$: the compiler makes $e^x$ by multiplying with $\log_2 e$ first. That multiplication comes on top of the one by $1/\sqrt d$, for each of the $N^2$ scores. Two constants that multiply the same thing are one constant:
#
# $$ e^{s/\sqrt d \,-\, m} = 2^{\,\lambda s \,-\, m'}, \qquad \lambda = \frac{\log_2 e}{\sqrt d}, \qquad m' = m \log_2 e . \tag{11.2} $$
#
# So the kernel keeps scores, and their running maximum, in units of $\log 2$. Sums of weights do not change, since the weights are the same numbers. Only the log-sum-exp has to come back to natural units when it is stored:
#
# $$ L = \left(m' + \log_2 \ell\right) \ln 2 . \tag{11.3} $$
#
# **Predict.** A row has the scores 1, 2 and 3, after scaling by $1/\sqrt d$. What is its running maximum $m'$ in the kernel, and is the row sum $\ell$ larger than with $e^x$, smaller, or the same? Give the ratio of the two sums.

# %% tags=["predict"]
predict("11.2", m=4.3, ratio_of_sums=1)  #> predict("11.2", m=..., ratio_of_sums=...)

# %%
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
row = np.array([1.0, 2.0, 3.0])
natural = np.exp(row - row.max()).sum()
m = (row * LOG2_E).max()
l = np.exp2(row * LOG2_E - m).sum()
print(f"L = {row.max() + np.log(natural):.6f} by e, {(m + np.log2(l)) * LN_2:.6f} by 2")
measured("11.2", m=m, ratio_of_sums=l / natural)

# %% [markdown]
# $m' = 4.328$, which is $3 \log_2 e$, and the sums agree. Both ways give $L = 3.407606$. A score costs $4d$ operations of the tensor cores and one exponential. The smaller $d$ is, the more the exponentials weigh, and the more a multiplication less for each of them.

# %% [markdown]
# ## 11.3 The kernel
#
# From here on cells run Triton kernels, in the interpreter. This lesson counts words, and words can be counted in the interpreter only; so the next cell asks for it before it imports Triton, even if you have a GPU. Where Triton is missing, that cell and each later one that needs it say in a line what to install; the others run.

# %% tags=["given"]
import os

os.environ["TRITON_INTERPRET"] = "1"

from iocourse import traffic
from iocourse.course import NeedsTriton, stand_in

try:
    from iocourse import kernels

    assert kernels.INTERPRETED, "triton was imported earlier: restart the notebook"
    import torch
    import triton
    import triton.language as tl
except NeedsTriton as missing:
    kernels = torch = triton = tl = stand_in(missing)

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
# We keep to one head, rows of $d$ words one behind the other, and a $d$ that is a power of two, at least 16. `input_precision="ieee"` asks for a product in full float32, where tensor cores would round the inputs to mantissas of 10 bits.
#
# <!-- exercise 11A --> Fill the inner loop: one tile of keys and values, in powers of two. `scale` already holds the $\lambda$ of (11.2); multiply the scores by it. `acc`, `m` and `l` are what the rounds hand on. Every $N$, `BM` and `BN` must come out right, scores astronomically far below zero too, and the words of (11.1) are allowed. If you are stuck after nine minutes, run `hint("11A")` in a cell of your own.

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
# Now count. `traffic.count` of lesson 10 watches every load and store of the launches in its block; an array takes the name of the kernel's parameter.
#
# **Predict.** $N = 200$, $d = 32$, with $B_M = 64$, $B_N = 32$: how many words does your kernel move, reads and writes together?

# %% tags=["predict"]
predict("11.4", words=64200)  #> predict("11.4", words=...)

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
measured("11.4", words=mine[0].total)

# %% [markdown]
# 64,200 words: 57,600 read and 6,600 written, array for array what (11.1) says, and in float32 four times as many bytes. The tiles of keys do not divide 200, and the ledger does not notice: lanes that a mask switches off move nothing. Neither does $B_N$ occur in it. What the emulator predicted in lesson 04, from a schedule without a single pointer, is what the kernel's loads and stores do.
#
# Two words of caution. The ledger says what programs *ask for*; section 11.9 asks where it comes from. And it counts elements, not the sectors of 32 bytes in which a chip fetches them: a row of 16 words in 16 bits is one sector, and a lone word costs a whole one too.

# %% [markdown]
# ## 11.5 Masks only where they are needed
#
# Your kernel asks of every score whether its key exists, although only the last tile can hold a key that does not. Under a causal mask it is the same: tiles far below the diagonal are seen whole, tiles above it not at all, and only those that the diagonal cuts need a mask. A mask moves no words, but a comparison and a choice for each score is work, on units that are also busy with exponentials.
#
# A branch inside the loop would have to be asked in every round. There is no need to ask: for the program with number $t$, whose first row is $tB_M$, it is known beforehand which tiles are whole and where the keys end. So we write two loops, one after the other: first the whole tiles, without any mask, then the tiles that are cut. Their borders are
#
# $$ \text{whole} = B_N\left\lfloor \frac{tB_M + 1}{B_N} \right\rfloor, \qquad \text{end} = \min\bigl((t+1)B_M,\ N\bigr) . \tag{11.4} $$
#
# The first row sees the keys $0$ to $tB_M$, which are $tB_M + 1$; whole tiles among them are seen by every row of the program. The last row decides where the keys stop. Without a causal mask the borders are $B_N\lfloor N/B_N\rfloor$ and $N$. The tiles behind `end` are never loaded. Summed over the programs, the words of $K$ and $V$ under a causal mask are
#
# $$ 2d \sum_{t} \min\left(N,\ B_N\left\lceil \frac{\text{end}_t}{B_N} \right\rceil\right) . \tag{11.5} $$
#
# **Predict.** $N = 512$, $B_M = 64$, $B_N = 32$: the full matrix has $8 \times 16 = 128$ tiles. Under a causal mask, how many are visited, and how many of these need a mask?

# %% tags=["predict"]
predict("11.5", visited=72, masked=16)  #> predict("11.5", visited=..., masked=...)

# %%
N, d, BM, BN = 512, 64, 64, 32
visited = masked = 0
for t in range(-(-N // BM)):
    whole, end = (t * BM + 1) // BN * BN, min((t + 1) * BM, N)
    visited += -(-end // BN)
    masked += -(-(end - whole) // BN)
# high=0 makes it causal, as section 11.6 explains
causal = costs.kernels.attention_forward(costs.kernels.Problem(N, N, d, high=0), BM=BM, BN=BN)
full = costs.kernels.attention_forward(costs.kernels.Problem(N, N, d), BM=BM, BN=BN)
print(f"K: {causal.reads['K']:,} words causal, {full.reads['K']:,} full; "
      f"{visited} tiles of {BN * d:,} words are {visited * BN * d:,}")
measured("11.5", visited=visited, masked=masked)

# %% [markdown]
# 72 of the 128 tiles are visited and 16 of those need a mask, two for each program. As $N$ grows the visited part tends to one half and the masked part to nothing. $K$ moves 147,456 words instead of 262,144: the diagonal costs whole tiles, so causal attention moves a little more than half.
#
# In Triton a loop is compiled with or without the mask by a parameter of type `tl.constexpr`: `if MASKED:` is decided when the kernel is compiled, and leaves no branch behind. A function under `@triton.jit` can be called from a kernel, and is laid out anew for each value of its constants.
#
# <!-- exercise 11B --> Put your inner loop into `absorb`, with masks only where `MASKED`, and let the kernel call it in two loops. `causal` may be True or False, $N$ anything. Loads count: no tile above the diagonal, and nothing behind the last key. The check also counts on how many tiles `tl.where` chooses between scores, and allows those that hold a hidden pair. (It would not see a mask made by arithmetic. A GPU would.) If you are stuck after nine minutes, run `hint("11B")` in a cell of your own.
# <!-- 128 = 8 * 16 -->

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

# %% [markdown]
# ## 11.6 Rows that see nothing
#
# A window lets a query see only keys near its own. Together with a causal mask, and with keys aligned to either end, all of these are one kind of mask, a *band*: query $i$ sees key $j$ where
#
# $$ \text{low} \le j - i \le \text{high} . \tag{11.6} $$
#
# Causal is $\text{high} = 0$; a window over the query's own key and the 3 before it is $\text{low} = -3$, $\text{high} = 0$. If there are more queries than keys, and a causal mask is aligned so that the *last* query sees all keys, then $\text{high} = N_k - N_q < 0$ and the first $N_q - N_k$ queries see nothing at all. Their output is defined as 0 and their log-sum-exp as $-\infty$, the sum over no keys.
#
# Bands bring a new danger to rows that do see keys. Here is the NumPy program of section 11.1, under a window, with the tile-by-tile arithmetic of your kernel:

# %%
def windowed(S, low, high, BM, BN):
    """Row sums ℓ of softmax under a band, without any care for rows that see nothing."""
    N, sums = len(S), np.zeros(len(S))
    j_minus_i = np.arange(N)[None, :] - np.arange(N)[:, None]
    S = np.where((j_minus_i >= low) & (j_minus_i <= high), S, -np.inf)
    for first in range(0, N, BM):
        i, m, l = slice(first, first + BM), np.full(BM, -np.inf), np.zeros(BM)
        for start in range(max(0, first + low) // BN * BN, first + BM, BN):
            s = S[i, start : start + BN]
            m_new = np.maximum(m, s.max(axis=1))
            l = l * np.exp(m - m_new) + np.exp(s - m_new[:, None]).sum(axis=1)
            m = m_new
        sums[i] = l
    return sums


# %% [markdown]
# **Predict.** 12 queries and 12 keys, each query sees its own key and the 3 before it, $B_M = 4$, $B_N = 2$. Every row sees at least one key. How many of the 12 row sums are not a number?

# %% tags=["predict"]
predict("11.6", not_a_number=4)  #> predict("11.6", not_a_number=...)

# %%
with np.errstate(invalid="ignore"):
    sums = windowed(rng.standard_normal((12, 12)), -3, 0, 4, 2)
print(np.isnan(sums).astype(int))
measured("11.6", not_a_number=int(np.isnan(sums).sum()))

# %% [markdown]
# Six, in the second and the third program. The second has the queries 4 to 7, and its first tile the keys 0 and 1. Query 4 sees key 1; queries 5 to 7 see neither, their running maximum is still $-\infty$, and $-\infty - (-\infty)$ is not a number. Once it is in $\ell$ it stays there, whatever keys come later.
#
# <!-- exercise 11C --> Write the forward pass under a band, for $N_q$ queries and $N_k$ keys. The borders of the loop are given, and one loop with a mask in every tile is enough. A row that has seen nothing yet must not spoil what comes, and a row that never sees anything has $O = 0$ and $L = -\infty$. If you are stuck after six minutes, run `hint("11C")` in a cell of your own.

# %% tags=["exercise"] name="ex-11C"
@triton.jit
def band_kernel(Q, K, V, O, LSE, Nq, Nk, low, high, scale,
                d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE; query i sees key j where low <= j - i <= high."""
    first = tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    c = tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    begin = tl.maximum(0, first + low)                        # the first key of the first row
    end = tl.minimum(Nk, tl.minimum(first + BM, Nq) + high)   # behind the last key of the last
    end = tl.where(begin < end, end, 0)                       # no key at all: no round
    for start in range(begin // BN * BN, end, BN):
        j = start + tl.arange(0, BN)
        ### BEGIN SOLUTION as in 11A, with the band as mask and a maximum that may be -inf
        there, apart = j[:, None] < Nk, j[None, :] - i[:, None]
        k = tl.load(K + j[:, None] * d + c, mask=there, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = (j[None, :] < Nk) & (apart >= low) & (apart <= high)
        s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - shift[:, None])
        old = tl.exp2(m - shift)
        l = l * old + tl.sum(p, 1)
        acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
        m = m_new
        ### END SOLUTION
    ### BEGIN SOLUTION o (BM, d) and total (BM,) from acc, m and l, where l may be 0
    nothing = l == 0.0
    safe = tl.where(nothing, 1.0, l)
    o = acc / safe[:, None]
    total = tl.where(nothing, float("-inf"), (m + tl.log2(safe)) * 0.6931471805599453)
    ### END SOLUTION
    tl.store(O + i[:, None] * d + c, o, mask=i[:, None] < Nq)
    tl.store(LSE + i, total, mask=i < Nq)


def my_band_attention(Q, K, V, low, high, BM, BN):
    """O (Nq, d) and LSE (Nq,). Q (Nq, d), K and V (Nk, d): contiguous float32 tensors."""
    Nq, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(Nq, dtype=torch.float32)
    programs = triton.cdiv(Nq, BM)
    band_kernel[(programs,)](Q, K, V, O, LSE, Nq, K.shape[0], low, high,
                             1.4426950408889634 * d**-0.5, d=d, BM=BM, BN=BN)
    return O, LSE


# %% tags=["check"] name="check-11C"
check("11C", my_band_attention)

# %% [markdown]
# A window of $w$ keys makes the traffic of $K$ and $V$ proportional to $N$ (section 8.4 kept them in a ring; a kernel loads whole tiles anew for each tile of queries). Yours, with a window of 64 keys:

# %%
for N in (256, 512):
    q, k, v = torch.from_numpy(rng.standard_normal((3, N, 32)).astype(np.float32))
    mine = attempt(counted, my_band_attention, q, k, v, -63, 0, 64, 32)
    band = costs.kernels.Problem(N, N, 32, low=-63, high=0)
    formula = costs.kernels.attention_forward(band, BM=64, BN=32)
    print(f"N = {N}: {mine[0].total:7,} words, closed form {formula.total:7,}")

# %% [markdown]
# 45,312 and 94,720 words. Each tile of 64 queries meets at most $63 + 64 = 127$ keys, four tiles of 32, and so costs 12,352 words; the first tile has nothing before it and costs 8,256. Hence $8{,}256 + 3 \cdot 12{,}352$ and $8{,}256 + 7 \cdot 12{,}352$: linear in $N$.
# <!-- 127, 12,352 = 63 + 64, 2 * 64 * 32 + 64 + 2 * 4 * 32 * 32 -->
# <!-- 8,256 = kernel_costs.attention_forward(kernel_costs.Problem(64, 64, 32, low=-63, high=0), BM=64, BN=32).total -->

# %% [markdown]
# ## 11.7 Many heads
#
# A layer has $B$ texts in a batch and $H$ heads in each, and all of these are attentions of their own: $BH$ times as many programs, and nothing else. A tensor is then $(B, H, N, d)$, and a tile's address has two more terms, one for the batch and one for the head. The *strides* of the tensor say how many words lie from one batch, head, or row to the next; a kernel that takes them from the tensor works on any layout, also on the usual one where heads lie behind tokens, $(B, N, H, d)$ seen with two axes exchanged.
#
# In many models $H$ heads of queries share fewer heads of keys, $H_{kv}$: grouped-query attention. Head $h$ of the queries uses head $\lfloor h / (H/H_{kv}) \rfloor$ of the keys. In slow memory $K$ and $V$ are smaller by the factor $H/H_{kv}$.
#
# **Predict.** $H = 4$ heads of queries, $N = 64$, tiles of 32, one program for each tile of queries of each head. With $H_{kv} = 1$ instead of $H_{kv} = 4$, by what factor do the words that the programs read of $K$ fall?

# %% tags=["predict"]
predict("11.7", factor=1)  #> predict("11.7", factor=...)

# %%
shared, own = (costs.kernels.Problem(64, 64, 16, H=4, H_kv=heads) for heads in (1, 4))
reads = [costs.kernels.attention_forward(p, BM=32, BN=32).reads["K"] for p in (shared, own)]
print(f"words of K read: {reads[0]:,} shared, {reads[1]:,} not shared; "
      f"words of K there are: {shared.keys * 16:,} and {own.keys * 16:,}")
measured("11.7", factor=reads[1] / reads[0])

# %% [markdown]
# They do not fall: 8,192 words either way, since each program reads the keys for itself. What falls is the *size* of what is read, from 4,096 words to 1,024, and with it the room of the cache of keys and values, and what a second level of cache must hold. To read shared keys less often, a program would have to hold the queries of several heads, as rows of one tile.
#
# <!-- exercise 11D --> Write the kernel for all heads, on a grid of one axis, without a mask other than for what does not exist. Strides come as tuples of three, over batch, head and row, so that `q_strides[2]` leads from one row of $Q$ to the next; the last axis has stride 1. The kernel reads the tensors where they lie: torch makes no copies of them. If you are stuck after seven minutes, run `hint("11D")` in a cell of your own.

# %% tags=["exercise"] name="ex-11D"
@triton.jit
def heads_kernel(Q, q_strides, K, k_strides, V, v_strides, O, o_strides, H, group, N, scale,
                 d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of one head of O; `group` heads of queries share a head of keys."""
    program, tiles = tl.program_id(0), tl.cdiv(N, BM)
    c = tl.arange(0, d)
    ### BEGIN SOLUTION which tile, head and batch; pointers moved there; then the loop of 11.1
    tile, pair = program % tiles, program // tiles
    batch, head = pair // H, pair % H
    Q += batch * q_strides[0] + head * q_strides[1]
    K += batch * k_strides[0] + head // group * k_strides[1]
    V += batch * v_strides[0] + head // group * v_strides[1]
    O += batch * o_strides[0] + head * o_strides[1]
    i = tile * BM + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * q_strides[2] + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        there = j[:, None] < N
        k = tl.load(K + j[:, None] * k_strides[2] + c, mask=there, other=0.0)
        v = tl.load(V + j[:, None] * v_strides[2] + c, mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(j[None, :] < N, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        old = tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
        m = m_new
    to = O + i[:, None] * o_strides[2] + c
    tl.store(to, acc / l[:, None], mask=i[:, None] < N)
    ### END SOLUTION


def my_heads(Q, K, V, BM, BN):
    """O (B, H, N, d). Q (B, H, N, d), K and V (B, H_kv, N, d): float32, any strides."""
    B, H, N, d = Q.shape
    O = torch.empty_like(Q)
    ### BEGIN SOLUTION the number of programs
    programs = B * H * triton.cdiv(N, BM)
    ### END SOLUTION
    heads_kernel[(programs,)](
        Q, Q.stride()[:3], K, K.stride()[:3], V, V.stride()[:3], O, O.stride()[:3],
        H, H // K.shape[1], N, 1.4426950408889634 * d**-0.5, d=d, BM=BM, BN=BN)
    return O


# %% tags=["check"] name="check-11D"
check("11D", my_heads)

# %% [markdown]
# The order of the numbers is for the chip. If the tile runs fastest, programs that start together belong to one head and read the same keys at nearly the same time: the first brings them into the cache that all share, and the others can find them there.
#
# One trap is left that no small test shows. A program's number is an integer of 32 bits, and so is its product with a stride. A tensor of 65 heads with $2^{25}$ words each has elements beyond $2^{31}$, where such a product overflows, and reads from somewhere else without an error. The library therefore widens the numbers of batch, head and row to 64 bits before it multiplies.

# %% [markdown]
# ## 11.8 The library's kernel
#
# `kernels.attention(q, k, v)` is what you have written, in one kernel: heads, shared keys, bands, both masks, strides, and the two loops (three for a band, which has two edges); any $d$ up to 256, padded to a power of two where needed; float16, bfloat16 and float32. It is registered with PyTorch, so gradients flow through it (lesson 12) and `torch.compile` takes it. One detail differs: it multiplies by $\lambda$ after it has found the maximum, $2^{\lambda s - m'}$ with $\lambda s - m'$ as *one* instruction, a fused multiply-add. The source, `iocourse/kernels/forward.py`, is as short as yours; `iocourse/kernels/pieces.py` holds what it shares with the backward pass.
#
# Its words are those of your kernels:

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

# %% [markdown]
# ## 11.9 Where the model and a GPU part ways
#
# The count is exact, and it is the count of the model. On a GPU it is the traffic between one program and whatever is below it. Four things are different there.
#
# *There are several memories.* Below a program lies the L2 cache that all programs share (50 MB on an H200), and below that the HBM. In 16 bits, $K$ and $V$ of one head with $N = 8192$ and $d = 64$ are 2 MB. The programs of a head read them at about the same time, so most of the $\lceil N/B_M\rceil$ readings can find them in L2; then HBM sees little more than the compulsory $4Nd$. The formula (11.1) is the traffic at L2.
#
# *$M$ is not one number.* A program's fast memory is shared memory, up to 227 KB for a program on an H200, and registers, another 256 KB for each multiprocessor. They hold different things: tiles of $Q$, $K$ and $V$ lie in shared memory, accumulators and scores in registers.
#
# *Loads run ahead.* While a tile is multiplied, the next ones are already on their way. That takes room for two or three tiles of $K$ and $V$ where the schedule has one: room that the model would have spent on queries.
#
# *Arithmetic has a shape.* Tensor cores multiply whole tiles, and `tl.dot` takes no inner size below 16. In $PV$ the inner size is $B_N$.
#
# The first point is the next section, the others the one after.
# <!-- 50 from https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/ -->
# <!-- 2, 227, 256 = 2 * 8192 * 64 * 2 / 2**20, CHIPS[90].shared_bytes / 2**10, CHIPS[90].registers * 4 / 2**10 -->

# %% [markdown]
# ## 11.10 The roofline
#
# Is a kernel limited by memory or by arithmetic? A chip does at most so many operations a second, its *peak*, and moves at most so many bytes a second, its *bandwidth*. A kernel that does $I$ operations for each byte it moves, its *intensity*, can reach at most
#
# $$ \min\bigl(\text{peak},\ I \cdot \text{bandwidth}\bigr) . \tag{11.7} $$
#
# Drawn over $I$ with both axes logarithmic this is a roof, a slope and then a flat part; they meet at $I = \text{peak} / \text{bandwidth}$. Attention forward does $4N^2d$ operations (two products, a multiplication and an addition each). With $\beta$ bytes a word and the words of F2, $W = 2Nd(1 + N/B_M)$,
#
# $$ I = \frac{4N^2d}{\beta W} = \frac{2}{\beta} \cdot \frac{N}{1 + N/B_M} \approx \frac{2}{\beta} B_M , \tag{11.8} $$
#
# and $d$ has dropped out. Naive attention writes and reads $S$ and $P$ once each, $4N^2 + 4Nd$ words if nothing else moves twice.
#
# **Predict.** $N = 4096$ in 16 bits. What is the intensity with $B_M = 128$, in operations a byte, and what is it if each of the $4Nd$ words moves once?

# %% tags=["predict"]
predict("11.10", tile_128=128, once=2000)  #> predict("11.10", tile_128=..., once=...)

# %%
from iocourse.gpu import CHIPS

N, bytes_a_word = 4096, 2


def intensity(words, d):
    return 4 * N**2 * d / (bytes_a_word * words)


tiles = {BM: intensity(costs.flash2(N, 64, Br=BM, Bc=64).total, 64) for BM in (64, 128)}
naive = {d: intensity(4 * N**2 + 4 * N * d, d) for d in (64, 128)}
once = intensity(4 * N * 64, 64)
for chip in (CHIPS[75], CHIPS[80], CHIPS[90]):
    meet = 1000 * chip.tensor_tflops / chip.gbytes_per_s
    print(f"{chip.name:15} {chip.tensor_tflops:4} TFLOP/s, {chip.gbytes_per_s:5,} GB/s: "
          f"they meet at {meet:.0f} operations a byte")
print(f"naive, d = 64: {naive[64]:.1f}, d = 128: {naive[128]:.1f}; BM = 64: {tiles[64]:.1f}")
measured("11.10", tile_128=tiles[128], once=once)

# %%
explore.roofline([75, 80, 90], {"naive, d = 64": naive[64], "BM = 64": tiles[64],
                                "BM = 128": tiles[128], "each word once": once},
                 title="Attention forward, N = 4,096, 16 bit")

# %% [markdown]
# By its own count, the kernel with 128 rows does 124.1 operations a byte (128 less what $Q$ and $O$ cost), to the left of where any of the three roofs bends (203, 153 and 206): if every word came from HBM, it would be limited by memory on all three chips. (In the picture an operation is a FLOP.) With 64 rows it is 63.0, and naive attention at $d = 128$ has 62.1. By this count the two are equals.
#
# What separates them is not how many words move, but which. $K$ and $V$ of one head, at $d = 64$, are 1 MB, read again and again while they lie in L2. HBM sees them once, and the point that belongs to HBM's roof is the last one: 2,048 operations a byte, far out on the flat part, limited by tensor cores. The scores of naive attention are 32 MB for one head, and the weights as many, times all heads: more than L2 holds, and each word is used once for each time it moves. For FlashAttention the slope that matters is that of L2, which lies higher; the data sheets of these chips do not give it. So a kernel may get by with 64 or 128 rows, where (11.8) and HBM would ask for more than 200 on a T4 or an H200.
#
# The asterisk: a T4 has tensor cores, but Triton makes no use of them (11.11), so its kernels cannot come near this roof.

# %% [markdown]
# ## 11.11 What a tile takes of the chip
#
# The words depend on $B_M$ alone, so the model says: give every word of fast memory to queries and take the keys one at a time, $B_N = 1$. On a chip, the library takes $B_M = B_N = 128$ for $d = 128$ on an H200. How much would the model gain in the same footprint (4.1)?

# %%
N, d = 4096, 128
shipped = costs.flash2(N, d, Br=128, Bc=128)
rows_of_queries = (shipped.peak - 2 * d) // (2 * d + 3)
thin = costs.flash2(N, d, Br=rows_of_queries, Bc=1)
print(f"BM = 128, BN = 128: {shipped.total:,} words, footprint {shipped.peak:,}")
print(f"BM = {rows_of_queries}, BN = 1: {thin.total:,} words, footprint {thin.peak:,}; "
      f"a factor of {shipped.total / thin.total:.2f}")

# %% [markdown]
# A factor of 2.36, and the library does not take it. To see why, ask the compiler. It needs no GPU: it compiles the kernel for a chip, and the machine code says how many registers a thread has (255 is the most), how many bytes a thread had to *spill* to slow memory because registers did not suffice, how much shared memory a program takes, and whether the products became tensor-core instructions. `iocourse bench resources` has done so for the library's kernel, for two sizes of $B_M$ and four of $B_N$, in 16 bits and under a causal mask, with 4 and with 8 warps (a *warp* is 32 threads); of the two the picture shows the one that spills less.
#
# **Predict.** $d = 128$. Of the 8 tiles ($B_M$ 64 or 128; $B_N$ 16, 32, 64 or 128), how many spill registers on an A100 (sm_80), how many on an H200 (sm_90), and how many on a T4 (sm_75)? A guess will do.

# %% tags=["predict"]
predict("11.11", a100=1, h200=0, t4=7)  #> predict("11.11", a100=..., h200=..., t4=...)

# %%
from iocourse.data.recorded import provenance, recorded

record = recorded("resources")
rows = record["forward_by_tile"]
spills = {}
for row in rows:
    key = (row["arch"], row["d"], row["BM"], row["BN"])
    spills[key] = min(spills.get(key, 10**6), row["spill_bytes"])
count = {arch: sum(spills[key] > 0 for key in spills if key[:2] == (arch, 128))
         for arch in CHIPS}
print(f"compiled with {provenance(record)}")
measured("11.11", a100=count[80], h200=count[90], t4=count[75])

# %%
explore.kernel_resources(rows, d=128, chips=[75, 80, 90])

# %% [markdown]
# One, none and seven. Read the picture from the bottom.
#
# *H200.* Nothing spills. Shared memory can be reckoned: the tile $128 \times 64$ keeps $Q$ (32 KB) and, because loads run ahead, two tiles each of $K$ and $V$ (16 KB a tile), 96 KB together. The accumulator, $128 \times 128$ in float32, is 64 KB and lies in registers, and so do the scores. The tile $128 \times 128$ takes 224 registers for each of 256 threads, 57,344 of the 65,536 there are: one program fills a multiprocessor.
#
# *A100.* Its tensor cores read tiles from registers only, those of the H200 from shared memory as well. The tile $128 \times 64$ takes 234 registers there and 168 on the H200, and $128 \times 128$ no longer fits: 136 bytes a thread go to slow memory and come back, words that no closed form of ours counts. The table of the library has $128 \times 64$ there.
#
# *T4.* No tensor-core instruction at any tile: this Triton makes none for a T4. The ordinary cores multiply, out of registers, and only the smallest tile does not spill. Five of the eight want more shared memory than the 64 KB there are, and could not even be started. A low bar of registers is no good news here: where more than 5,000 bytes spill, 64 registers are all that the compiler used. The loads and stores of the kernel are those of the formula on this chip too; the spilled words come on top.
#
# And $B_N = 1$ is the grey bar: it does not exist. `tl.dot` takes 16 keys at least, as the inner size of $PV$; with fewer there are no tensor cores, and on an H200 these are what can do 989 TFLOP/s. Even 16 is few. In every round the accumulator is rescaled, $B_M d$ multiplications for $B_M B_N$ scores: $d / B_N$ for each score, 8 of them with $B_N = 16$ and one with $B_N = 128$. Wide tiles of keys save arithmetic, and the words they cost are words of L2, not of HBM. That is the answer to the question left open in section 4.4.
# <!-- rows = recorded("resources")["forward_by_tile"] -->
# <!-- tile = lambda arch, BN: next(row for row in rows if [row[key] for key in ("arch", "d", "BM", "BN", "warps")] == [arch, 128, 128, BN, 8]) -->
# <!-- 32, 16, 96, 64 = (2 * 128 * 128 / 2**10, 2 * 64 * 128 / 2**10, 2 * 128 * (128 + 4 * 64) / 2**10, 4 * 128 * 128 / 2**10) -->
# <!-- 224, 57,344, 65,536 = tile(90, 128)["registers"], tile(90, 128)["registers"] * 256, CHIPS[90].registers -->
# <!-- 234, 168, 136 = tile(80, 64)["registers"], tile(90, 64)["registers"], tile(80, 128)["spill_bytes"] -->
# <!-- 989 = CHIPS[90].tensor_tflops -->
# <!-- 5,000 = round(min(row["spill_bytes"] for row in rows if (row["arch"], row["d"], row["registers"]) == (75, 128, 64)), -3) -->

# %% [markdown]
# ## 11.12 What a round costs a thread
#
# Registers say whether a tile fits. How long a round takes is said by what each thread has to do in it, and that too stands in the machine code: the *hot loop*, of your two loops the one without a mask. `gpu.resources` finds it and counts its instructions, among them *multiply-adds* in float32, *wgmma*, which is an H200's tensor-core instruction, and *special* ones: powers of two and reciprocals. We look at three kernels with $d = 64$: yours from exercise 11B and the library's, both in float32 with a tile of $64 \times 32$ and 256 threads, and the library's in 16 bits, whose tile $128 \times 64$ is shared by 128 threads, as it was recorded.
#
# **Predict.** Without tensor cores, how many multiply-adds does one thread issue in a round for the two products of a $64 \times 32$ tile? And how many wgmma for those of the $128 \times 64$ tile, if with one of them 128 threads together multiply $64 \times 16$ by $16 \times 64$ numbers?

# %% tags=["predict"]
predict("11.12", multiply_adds=1024, wgmma=16)  #> predict("11.12", multiply_adds=..., wgmma=...)

# %%
from iocourse import gpu


def a_round(name, found, BM, BN):
    """One line about the hot loop of a compiled kernel."""
    loop = found.hot_loop
    a_score = loop.instructions * 32 * found.warps / (BM * BN)
    print(f"{name:17} {loop.instructions:5,} instructions, {a_score:5.1f} a score; "
          f"{loop.fma:5,} multiply-adds, {loop.wgmma:2} wgmma, {loop.special:2} special")


x, sums, tile = torch.empty(1024, 64), torch.empty(1024), (64, 32)
launch = {"num_warps": 8, "num_stages": 1}
yours = attempt(gpu.resources, two_loops_kernel, 90, x, x, x, x, sums, 1024, 0.18,
                CAUSAL=True, d=64, BM=64, BN=32, **launch)
theirs = kernels.resources_of("forward", 90, d=64, dtype=torch.float32, tile=(*tile, 8, 1))
half = next(row for row in recorded("hot-loops")["shipped"]
            if (row["kernel"], row["d"], row["causal"]) == ("forward", 64, True))
if yours:
    attempt(a_round, "yours, float32", yours, *tile)
a_round("library, float32", theirs, *tile)
a_round("library, 16 bits", gpu.Resources.of(half), half["BM"], half["BN"])
print(f"recorded with {provenance(recorded('hot-loops'))}")
measured("11.12", multiply_adds=theirs.hot_loop.fma, wgmma=half["hot_loop"]["wgmma"])

# %% [markdown]
# In float32 the two kernels hardly differ. Each thread has 8 scores, two products of 64 terms each make 1,024 multiply-adds, and the dozen beyond them is the softmax. In 16 bits 16 instructions multiply, and there is the softmax of 64 scores: for every one at least a maximum, a fused multiply-add, a power of two and a sum, and for the accumulator a rescaling. It is *nearly all* of the round. No closed form of ours counts it, for it moves no word. It is why the kernels keep a loop without a mask (11.5), why $\log_2 \mathrm e$ is multiplied into $\lambda$ beforehand (11.2), and why FlashAttention-3 lets one half of a program multiply while the other half takes its powers.
# <!-- 8, 1,024, 64 = (64 * 32 // 256, 2 * 64 * 8, 128 * 64 // 128) -->

# %% [markdown]
# ## 11.13 Measured
#
# Registers and rooflines say what can be, a clock says what is. `iocourse bench attention` measures the library's kernels on a GPU beside those of PyTorch, and a run on a named chip is kept with the package. Where none has been recorded yet, this cell says so, and there is no number to quote:

# %% tags=["nbval-ignore-output"]
attention_run = recorded("attention")
explore.bench_bars(attention_run, d=128) if attention_run else provenance(attention_run)

# %% [markdown]
# ## Misconceptions
#
# - **"A masked load of zeros hides a key."** A key of zeros has the score 0 and takes weight; its score must become $-\infty$ (11.3).
# - **"A mask saves words."** Of a tile that is visited all rows that exist are loaded. Words are saved by tiles that are not visited: 72 of 128 under a causal mask (11.5).
# - **"Only rows that see nothing can give NaN."** Every row of the window saw a key, and 6 of 12 sums were not a number (11.6).
# - **"Shared heads of keys divide the traffic."** They divide the size. The programs read as many words as before (11.7).
# - **"The best tile is the one with the fewest words."** It is the one that the tensor cores, the registers and the L2 cache can agree on (11.10, 11.11).
#
# ## Take-away
#
# - The outer loop of F2 is the grid, its inner loop is the kernel, and the kernel moves the words of F2: $Nd + 2Nd\lceil N/B_M\rceil$ read, $Nd + N$ written.
# - Two loops, one with a mask and one without, and borders that are known before: whole tiles pay for no mask, hidden ones are never loaded.
# - $-\infty$ needs care at two places: where a maximum is subtracted, and where a sum divides.
# - On tensor cores the two products are a few instructions of a round. What a thread does is the softmax.
# - The count belongs to the traffic between programs and L2. It says what a kernel asks for; registers, tensor cores and caches say what that costs.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 1 is the kernel; section 3.1 has the two kinds of tiles of a causal mask.
# - M. Milakov, N. Gimelshein: *Online normalizer calculation for softmax*, 2018, [arXiv 1805.02867](https://arxiv.org/abs/1805.02867).
# - P. Tillet, H. T. Kung, D. Cox: *Triton: an intermediate language and compiler for tiled neural network computations*, MAPL 2019.
# - J. Ainslie et al.: *GQA*, 2023, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245). Heads that share keys.
# - J. Shah, G. Bikshandi, Y. Zhang, V. Thakkar, P. Ramani, T. Dao: *FlashAttention-3*, 2024, [arXiv 2407.08608](https://arxiv.org/abs/2407.08608). The softmax of one half of a program under the products of the other.
# - S. Williams, A. Waterman, D. Patterson: *Roofline*, Communications of the ACM 52(4), 2009.
# - NVIDIA: data sheets of T4, A100 and H200, for peak rates and bandwidths (`iocourse.gpu.CHIPS` names the source of each); [*NVIDIA Hopper architecture in-depth*](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/), for L2 and registers, which the H200 shares with the H100; *PTX ISA*, for where `mma` and `wgmma` find their operands.
#
# **What comes next.** Lesson 12 writes the backward pass: two ways to share the work, one of which adds to $dQ$ from many programs at once.
