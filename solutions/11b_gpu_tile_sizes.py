# %% [markdown]
# # 11b Tile sizes on a GPU
#
# Lesson 11 ended where the words of a kernel are those of a formula. Tonight we ask what a chip makes of them: which of its memories the count is about, what limits the kernel there, and why the tile that moves the fewest words is not the one to take. At the end somebody hands in a kernel that is wrong in three places, and you find them from its report, before you read a line of it.
#
# **What you will learn**
#
# - to read a roofline, and to say at which of a GPU's memories the model's count is meant;
# - to say what registers, shared memory and tensor cores want of a tile, and why $B_c = 1$ is not what they want;
# - to find the faults of a kernel from its ledger, and from which of its rows are right.
#
# **Prerequisites**: [lesson 11](11_flash_attention_forward_triton.ipynb) up to section 11.5. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 11E -->.
#
# <!-- exercises -->
#
# Sections 11.11 to 11.13 run on any machine. The kernels of 11.14 and 11.15 need Triton, which is published for Linux only (Colab runs Linux). No GPU is needed, and none has been timed for this lesson: what a clock says stands in lesson 14.

# %% tags=["setup"]
import numpy as np

from iocourse import costs, exact
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source
from iocourse.gpu import CHIPS

rng = np.random.default_rng(11)

# %% [markdown]
# ## 11.9 Rows that see nothing
#
# A window lets a query see only keys near its own. Together with a causal mask, and with keys aligned to either end, all of these are one kind of mask, a *band*: query $i$ sees key $j$ where
#
# $$ \text{low} \le j - i \le \text{high} . \tag{11.8} $$
# <!-- (11.8) not evaluated: definition -->
#
# Causal is $\text{high} = 0$; a window over the query's own key and the 3 before it is $\text{low} = -3$, $\text{high} = 0$. If there are more queries than keys, and a causal mask is aligned so that the *last* query sees all keys, then $\text{high} = N_k - N_q < 0$ and the first $N_q - N_k$ queries see nothing at all. Their output is defined as 0 and their log-sum-exp as $-\infty$, the sum over no keys.
#
# Bands bring a new danger to rows that do see keys. Here is the NumPy program of section 11.1, under a window, with the tile-by-tile arithmetic of your kernel:
#
# **Predict** (guess). 12 queries and 12 keys, each query sees its own key and the 3 before it, $B_M = 4$, $B_N = 2$. Every row sees at least one key. How many of the 12 row sums are not a number?

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


# %% tags=["predict"]
predict("11.9", not_a_number=4)  #> predict("11.9", not_a_number=...)

# %%
with np.errstate(invalid="ignore"):
    sums = windowed(rng.standard_normal((12, 12)), -3, 0, 4, 2)
print(np.isnan(sums).astype(int))
measured("11.9", not_a_number=int(np.isnan(sums).sum()))

# %% [markdown]
# <details><summary>Which rows lose their sum, and when</summary>
#
# Six, in the second and the third program. The second has the queries 4 to 7, and its first tile the keys 0 and 1. Query 4 sees key 1; queries 5 to 7 see neither, their running maximum is still $-\infty$, and $-\infty - (-\infty)$ is not a number. Once it is in $\ell$ it stays there, whatever keys come later.
#
# </details>
#
# From here on cells run Triton kernels, in the interpreter. Where Triton is missing, the next cell and each later one that needs it say in a line what to install.

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

# %% tags=["given"]
def counted(launcher, *arguments, **keywords):
    """The ledger of a launch, and what it returned."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


# %% [markdown]
# <!-- exercise 11C --> Write the forward pass under a band, for $N_q$ queries and $N_k$ keys. The borders of the loop are given, and one loop with a mask in every tile is enough. A row that has seen nothing yet must not spoil what comes, and a row that never sees anything has $O = 0$ and $L = -\infty$. If you are stuck after six minutes, run `hint("11C")` in a cell of your own.

# %% [raw] name="about-11C"
# title = "Rows that attend to no key"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "Where can -inf - (-inf) occur, and where 0 / 0?",
#   "Only the maximum that is subtracted needs care, not the one that is kept: a row whose maximum is still -inf may subtract any finite number, because all its weights are 0.",
#   "After the loop, a row sum of 0 means that the row attends to no key. Divide by 1 there, which leaves O at 0, and set LSE to -inf with tl.where, not by the logarithm of 0.",
# ]

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
    band = costs.kernels.KernelProblem(N, N, 32, low=-63, high=0)
    formula = costs.kernels.attention_forward(band, BM=64, BN=32)
    print(f"N = {N}: {mine[0].total:7,} words, closed form {formula.total:7,}")

# %% [markdown]
# 45,312 and 94,720 words. Each tile of 64 queries meets at most $63 + 64 = 127$ keys, four tiles of 32, and so costs 12,352 words; the first tile has nothing before it and costs 8,256. Hence $8{,}256 + 3 \cdot 12{,}352$ and $8{,}256 + 7 \cdot 12{,}352$: linear in $N$.
# <!-- 127, 12,352 = 63 + 64, 2 * 64 * 32 + 64 + 2 * 4 * 32 * 32 -->
# <!-- 8,256 = kernel_costs.attention_forward(kernel_costs.KernelProblem(64, 64, 32, low=-63, high=0), BM=64, BN=32).total -->
#
# ## 11.10 Many heads
#
# A layer has $B$ texts in a batch and $H$ heads in each, and all of these are attentions of their own: $BH$ times as many programs, and nothing else. A tensor is then $(B, H, N, d)$, and a tile's address has two more terms, one for the batch and one for the head. The *strides* of the tensor say how many words lie from one batch, head, or row to the next; a kernel that takes them from the tensor works on any layout, also on the usual one where heads lie behind tokens, $(B, N, H, d)$ seen with two axes exchanged.
#
# In many models $H$ heads of queries share fewer heads of keys, $H_{kv}$: grouped-query attention. Head $h$ of the queries uses head $\lfloor h / (H/H_{kv}) \rfloor$ of the keys. In slow memory $K$ and $V$ are smaller by the factor $H/H_{kv}$.
#
# **Predict** (guess). $H = 4$ heads of queries, $N = 64$, tiles of 32, one program for each tile of queries of each head. With $H_{kv} = 1$ instead of $H_{kv} = 4$, by what factor do the words that the programs read of $K$ fall?
# <!-- 45,312, 94,720 = (kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, 32, low=-63, high=0), BM=64, BN=32).total for N in (256, 512)) -->

# %% tags=["predict"]
predict("11.10", factor=1)  #> predict("11.10", factor=...)

# %%
shared, own = (costs.kernels.KernelProblem(64, 64, 16, H=4, H_kv=heads) for heads in (1, 4))
reads = [costs.kernels.attention_forward(p, BM=32, BN=32).reads["K"] for p in (shared, own)]
print(f"words of K read: {reads[0]:,} shared, {reads[1]:,} not shared; "
      f"words of K there are: {shared.keys * 16:,} and {own.keys * 16:,}")
measured("11.10", factor=reads[1] / reads[0])

# %% [markdown]
# <details><summary>What shared keys save</summary>
#
# They do not fall: 8,192 words either way, since each program reads the keys for itself. What falls is the *size* of what is read, from 4,096 words to 1,024, and with it the room of the cache of keys and values, and what a second level of cache must hold. To read shared keys less often, a program would have to hold the queries of several heads, as rows of one tile.
#
# </details>
#
# <!-- exercise 11D --> Write the kernel for all heads, on a grid of one axis, without a mask other than for what does not exist. Strides come as tuples of three, over batch, head and row, so that `q_strides[2]` leads from one row of $Q$ to the next; the last axis has stride 1. The kernel reads the tensors where they lie: torch makes no copies of them. If you are stuck after seven minutes, run `hint("11D")` in a cell of your own.

# %% [raw] name="about-11D"
# title = "Many heads"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "How many programs are there now? How do you get the tile, the head and the batch from one program id?",
#   "Number the programs so that neighbours share K and V: the tile runs fastest, then the head, then the batch. Quotient and remainder give the three numbers. The key head is the query head divided by the group size, rounded down.",
#   "Move each pointer to its head once: batch times the first stride plus head times the second. The rest is the kernel of one head, with the third stride instead of d.",
# ]
# # <!-- "the tile runs fastest" as definition -->

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
# In which order program numbers run through tiles, heads and batches is free; it matters to the chip only. If the tile runs fastest, programs that start together belong to one head and read the same keys at nearly the same time: the first brings them into the cache that all share, and the others can find them there.
#
# One trap is left that no small test shows. A program's number is an integer of 32 bits, and so is its product with a stride. A tensor of 65 heads with $2^{25}$ words each has elements beyond $2^{31}$, where such a product overflows, and reads from somewhere else without an error. The library therefore widens the numbers of batch, head and row to 64 bits before it multiplies.
#
# ## 11.11 Where the model and a GPU part ways
#
# The count is exact, and it is the count of the model: the traffic between one program and whatever is below it. On a GPU that is more than one thing. Here is one head with $N = 8192$ and $d = 64$ in 16 bits, under tiles of 128 queries:

# %%
N, d, BM = 8192, 64, 128
chip = CHIPS[90]  # an H200, whose driver reports 60 MiB of L2 cache
sizes = {"programs ask for, by (11.1)": 2 * costs.flash2(N, d, Br=BM, Bc=64).total,
         "the L2 cache holds": 60 * 2**20,
         "Q, K, V and O, once each": 2 * 4 * N * d,
         "registers of a multiprocessor": 4 * chip.registers,
         "shared memory of a program": chip.shared_bytes}
explore.bars({name: size / 2**20 for name, size in sizes.items()}, unit="MiB", log=True,
             title="One head of attention and the memories of an H200")

# %% [markdown]
# *There are several memories.* Below a program lies the L2 cache that all programs share, and below that the HBM. Programs ask for 130 MiB, and all four arrays together are 4 MiB. The programs of a head read $K$ and $V$, 2 MiB of these, at about the same time, so most of the $\lceil N/B_M\rceil$ readings can find them in L2; then HBM sees little more than the compulsory $4Nd$. The formula (11.1) counts what programs request. On an H200 fewer words are read from L2, because requests of several SMs for the same words are merged.
#
# *$M$ is not one number.* A program's fast memory is shared memory, up to 227 KB for a program, and registers, another 256 KB for each multiprocessor: the two short bars. They hold different things: tiles of $Q$, $K$ and $V$ lie in shared memory, accumulators and scores in registers.
#
# *Loads run ahead.* While a tile is multiplied, the next ones are already on their way. That takes room for two or three tiles of $K$ and $V$ where the schedule has one: room that the model would have spent on queries.
#
# *Arithmetic has a shape.* Tensor cores multiply whole tiles, and `tl.dot` takes no inner size below 16. In $PV$ the inner size is $B_N$.
#
# The first point is the next section, the others the one after.
#
# ## 11.12 The roofline
#
# Is a kernel limited by memory or by arithmetic? A chip does at most so many operations a second, its *peak*, and moves at most so many bytes a second, its *bandwidth*. A kernel that does $I$ operations for each byte it moves, its *intensity*, can reach at most
#
# $$ \min\bigl(\text{peak},\ I \cdot \text{bandwidth}\bigr) . \tag{11.9} $$
# <!-- (11.9) = roofline.attainable_tflops(I, type(CHIPS[90])(0, "", 1, 1, peak, 1000 * bandwidth, "")) -->
#
# Drawn over $I$ with both axes logarithmic this is a roof, a slope and then a flat part; they meet at $I = \text{peak} / \text{bandwidth}$. Attention forward does $4N^2d$ operations (two products, a multiplication and an addition each). With $\beta$ bytes a word and the words of F2, $W = 2Nd(1 + N/B_M)$,
#
# $$ I = \frac{4N^2d}{\beta W} = \frac{2}{\beta} \cdot \frac{N}{1 + N/B_M} \approx \frac{2}{\beta} B_M , \tag{11.10} $$
# <!-- (11.10) I = roofline.arithmetic_intensity(roofline.flops("forward", B=1, H=1, N=N, d=d), beta * W) with W = costs.flash2(N, d, Br=BM, Bc=1).total where N % BM == 0 -->
# <!-- (11.10) I ~ roofline.arithmetic_intensity(roofline.flops("forward", B=1, H=1, N=N, d=d), beta * costs.flash2(N, d, Br=BM, Bc=1).total) within 0.02 where N % BM == 0 and N >= 50 * BM -->
#
# and $d$ has dropped out. Naive attention writes and reads $S$ and $P$ once each, $4N^2 + 4Nd$ words if nothing else moves twice.
#
# Where do the three roofs bend? For 16-bit products, a T4's at 203 operations a byte, an A100's at 153, an H200's at 206.
#
# **Predict** (compute). $N = 4096$, $d = 64$ in 16 bits. By its own count, the kernel with 128 rows is limited by memory on how many of these three chips?
#
# <!-- 2, 227, 256 = 2 * 8192 * 64 * 2 / 2**20, CHIPS[90].shared_bytes / 2**10, CHIPS[90].registers * 4 / 2**10 -->
# <!-- 130, 4 = 2 * costs.flash2(8192, 64, Br=128, Bc=64).total / 2**20, 2 * costs.flash2(8192, 64, Br=8192, Bc=64).total / 2**20 -->
# <!-- 203, 153, 206 = (roofline.ridge_point(CHIPS[arch]) for arch in (75, 80, 90)) -->
# <!-- "fewer words are read from L2" if all(one["bytes"]["l2"]["read"] < one["bytes"]["closed_form"]["read"] for one in load_record("profile")["runs"]) -->
# <!-- 203, 153, 206 = [CHIPS[arch].tensor_tflops * 1000 / CHIPS[arch].gbytes_per_s for arch in (75, 80, 90)] -->

# %% tags=["predict"]
predict("11.12", chips=1)  #> predict("11.12", chips=...)

# %%
N, bytes_a_word = 4096, 2


def intensity(words, d):
    return 4 * N**2 * d / (bytes_a_word * words)


tiles = {BM: intensity(costs.flash2(N, 64, Br=BM, Bc=64).total, 64) for BM in (64, 128)}
naive = {d: intensity(4 * N**2 + 4 * N * d, d) for d in (64, 128)}
once = intensity(4 * N * 64, 64)
bends = []
for chip in (CHIPS[75], CHIPS[80], CHIPS[90]):
    meet = 1000 * chip.tensor_tflops / chip.gbytes_per_s
    bends.append(meet)
    print(f"{chip.name:15} {chip.tensor_tflops:4} TFLOP/s, {chip.gbytes_per_s:5,} GB/s: "
          f"they meet at {meet:.0f} operations a byte")
print(f"naive, d = 64: {naive[64]:.1f}, d = 128: {naive[128]:.1f}; BM = 64: {tiles[64]:.1f}")
print(f"BM = 128: {tiles[128]:.1f}; each word once: {once:,.0f}")
measured("11.12", chips=sum(tiles[128] < meet for meet in bends))
explore.roofline([75, 80, 90], {"naive, d = 64": naive[64], "BM = 64": tiles[64],
                                "BM = 128": tiles[128], "each word once": once},
                 title="Attention forward, N = 4,096, 16 bit")


# %% [markdown]
# <details><summary>Which side of the roof the kernel is on</summary>
#
# All three. By its own count, the kernel with 128 rows does 124.1 operations a byte (128 less what $Q$ and $O$ cost), to the left of where any of the three roofs bends (203, 153 and 206): if every word came from HBM, it would be limited by memory on all three chips. (In the picture an operation is a FLOP.) With 64 rows it is 63.0, and naive attention at $d = 128$ has 62.1. By this count the two are equals.
#
# What separates them is not how many words move, but which. $K$ and $V$ of one head, at $d = 64$, are 1 MiB, read again and again while they lie in L2. HBM sees them once, and the point that belongs to HBM's roof is the last one: 2,048 operations a byte, far out on the flat part, limited by tensor cores. The scores of naive attention are 32 MiB for one head, and the weights as many, times all heads: more than L2 holds, and each word is used once for each time it moves. For FlashAttention the slope that matters is that of L2, which lies higher; the data sheets of these chips do not give it. So a kernel may get by with 64 or 128 rows, where (11.10) and HBM would ask for more than 200 on a T4 or an H200.
#
# </details>
#
# The asterisk: a T4 has tensor cores, but Triton makes no use of them (11.13), so its kernels cannot come near this roof.
#
# ## 11.13 What a tile takes of the chip
#
# The words depend on $B_M$ alone, so the model says: give every word of fast memory to queries and take the keys one at a time, $B_N = 1$. For $d = 128$ on an H200, the library takes tiles of $64 \times 64$; tiles of $128 \times 128$ move fewer words and took longer. How much would the model gain in the footprint of the larger tile (4.1)?
#
# <!-- 200 = round(1000 * CHIPS[75].tensor_tflops / CHIPS[75].gbytes_per_s, -2) -->
# <!-- 1, 32 = 2 * 2 * 4096 * 64 / 2**20, 2 * 4096**2 / 2**20 -->
# <!-- 64 \times 64 = tile("forward", 90, 128) -->
# <!-- tried = {tuple(one["tile"]): one["ms"] for one in row("tune", "kernels", d=128, kernel="forward")["tried"]} -->
# <!-- 128 \times 128 = next(tuple(one[:2]) for one in tried if one[:2] == (128, 128)) -->
# <!-- "the library takes tiles" if tile("forward", 90, 128) == tile("forward", 90, 128, mask="causal") -->
# <!-- "move fewer words and took longer" if all(large > small for large, small in zip(tried[128, 128, 8, 3], tried[64, 64, 4, 3])) and costs.flash2(4096, 128, Br=128, Bc=128).total < costs.flash2(4096, 128, Br=64, Bc=64).total -->
# <!-- 203, 153, 206 = (roofline.ridge_point(CHIPS[arch]) for arch in (75, 80, 90)) -->
# <!-- 124.1, 63.0 = (2 * 4096**2 * 64 / costs.flash2(4096, 64, Br=rows, Bc=1).total for rows in (128, 64)) -->
# <!-- "All three." if all(2 * 4096**2 * 64 / costs.flash2(4096, 64, Br=128, Bc=64).total < roofline.ridge_point(CHIPS[arch]) for arch in (75, 80, 90)) -->
# <!-- "more than 200 on a T4 or an H200" if [arch for arch in (75, 80, 90) if roofline.ridge_point(CHIPS[arch]) > 200] == [75, 90] -->
# <!-- "Triton makes no use of them" if not CHIPS[75].tensor_cores_in_triton -->

# %%
N, d = 4096, 128
shipped = costs.flash2(N, d, Br=128, Bc=128)
rows_of_queries = (shipped.peak - 2 * d) // (2 * d + 3)
thin = costs.flash2(N, d, Br=rows_of_queries, Bc=1)
print(f"BM = 128, BN = 128: {shipped.total:,} words, footprint {shipped.peak:,}")
print(f"BM = {rows_of_queries}, BN = 1: {thin.total:,} words, footprint {thin.peak:,}; "
      f"a factor of {shipped.total / thin.total:.2f}")

# %% [markdown]
# A factor of 2.36, and the library does not take it. To see why, ask the compiler. It needs no GPU: it compiles the kernel for a chip, and the machine code says how many registers a thread has (255 is the most), how many bytes a thread had to *spill* to slow memory because registers did not suffice, how much shared memory a program takes, and whether the products became tensor-core instructions. `python -m tools.bench resources` has done so for the library's kernel, for two sizes of $B_M$ and four of $B_N$, in 16 bits and under a causal mask, with 4 and with 8 warps (a *warp* is 32 threads); of the two the picture shows the one that spills less.
#
# **Predict** (guess). $d = 128$. Of the 8 tiles ($B_M$ 64 or 128; $B_N$ 16, 32, 64 or 128), how many spill registers on an A100, how many on an H200, and how many on a T4?
# <!-- wide = costs.flash2(4096, 128, Br=128, Bc=128) -->
# <!-- thin = costs.flash2(4096, 128, Br=(wide.peak - 2 * 128) // (2 * 128 + 3), Bc=1) -->
# <!-- 2.36 = wide.total / thin.total -->
# <!-- 255 = gpu.chips.REGISTERS_A_THREAD -->
# <!-- "the library does not take it" if tile("forward", 90, 128)[1] > 1 -->
# <!-- by_tile = rows("resources", "forward_by_tile", d=128, bytes=2, causal=True) -->
# <!-- 8, 32 = max(one["warps"] for one in by_tile), np.iinfo(np.uint32).bits -->
# <!-- "two sizes of $B_M$ and four of $B_N$" if len({one["BM"] for one in by_tile}) == 2 and len({one["BN"] for one in by_tile}) == 4 -->
# <!-- "A factor of 2.36" if thin.peak <= wide.peak < costs.flash2(4096, 128, Br=(wide.peak - 2 * 128) // (2 * 128 + 3) + 1, Bc=1).peak -->

# %% tags=["predict"]
predict("11.13", a100=1, h200=0, t4=7)  #> predict("11.13", a100=..., h200=..., t4=...)

# %%
record = load_record("resources")
rows = record["forward_by_tile"]
spills = {}
for row in rows:
    key = (row["arch"], row["d"], row["BM"], row["BN"])
    spills[key] = min(spills.get(key, 10**6), row["spill_bytes"])
count = {arch: sum(spills[key] > 0 for key in spills if key[:2] == (arch, 128))
         for arch in CHIPS}
print(f"compiled with {record_source(record)}")
measured("11.13", a100=count[80], h200=count[90], t4=count[75])
explore.kernel_resources(rows, d=128, chips=[75, 80, 90])

# %% [markdown]
# <details><summary>Who spills, and why</summary>
#
# One, none and seven. Read the picture from the bottom.
#
# *H200.* Nothing spills. Shared memory can be reckoned: the tile $128 \times 64$ keeps $Q$ (32 KB) and, because loads run ahead, two tiles each of $K$ and $V$ (16 KB a tile), 96 KB together. The accumulator, $128 \times 128$ in float32, is 64 KB and lies in registers, and so do the scores. The tile $128 \times 128$ takes 225 registers for each of 256 threads, 57,600 of the 65,536 there are: one program fills a multiprocessor.
#
# *A100.* Its tensor cores read tiles from registers only, those of the H200 from shared memory as well. The tile $128 \times 64$ takes 232 registers there and 153 on the H200, and $128 \times 128$ no longer fits: 168 bytes a thread go to slow memory and come back, words that no closed form of ours counts. The table of the library has $128 \times 64$ there.
#
# *T4.* No tensor-core instruction at any tile: this Triton makes none for a T4. The ordinary cores multiply, out of registers, and only the smallest tile does not spill. Five of the eight want more shared memory than the 64 KB there are, and could not even be started. A low bar of registers is no good news here: where more than 5,000 bytes spill, 64 registers are all that the compiler used. The loads and stores of the kernel are those of the formula on this chip too; the spilled words come on top.
#
# </details>
#
# And $B_N = 1$ is the grey bar: it does not exist. `tl.dot` takes 16 keys at least, as the inner size of $PV$; with fewer there are no tensor cores, and on an H200 these are what can do 989 TFLOP/s. Even 16 is few. In every round the accumulator is rescaled, $B_M d$ multiplications for $B_M B_N$ scores: $d / B_N$ for each score, 8 of them with $B_N = 16$ and one with $B_N = 128$. Wide tiles of keys save arithmetic, and the words they cost are words of L2, not of HBM. That is the answer to the question left open in section 4.4.
#
# ## 11.14 What a round costs a thread
#
# Registers say whether a tile fits. How long a round takes is said by what each thread has to do in it, and that too stands in the machine code: the *hot loop*, of the two loops the one without a mask. `gpu.resources` finds it and counts its instructions, among them *multiply-adds* in float32, *wgmma*, which is an H200's tensor-core instruction, and *special* ones: powers of two and reciprocals. We look at the library's kernel for $d = 64$: in 16 bits, where 128 threads share a tile of $64 \times 64$, and in float32, where 256 threads share one of $64 \times 32$ and no tensor core is at work.
#
# **Predict** (guess). In 16 bits, of 100 instructions of a round, how many multiply tiles?
#
# <!-- 989 = CHIPS[90].tensor_tflops -->
# <!-- compiled = lambda arch, BN: row("resources", "forward_by_tile", arch=arch, d=128, BM=128, BN=BN, warps=8) -->
# <!-- thin, wide = compiled(90, 64), compiled(90, 128) -->
# <!-- 32, 16, 96 = (2 * rows * 128 / 2**10 for rows in (thin["BM"], thin["BN"], thin["BM"] + 2 * thin["stages"] * thin["BN"])) -->
# <!-- 64 = 4 * wide["BM"] * 128 / 2**10 -->
# <!-- 64 = CHIPS[75].shared_bytes / 2**10 -->
# <!-- 128 \times 128 = (wide["BM"], wide["BN"]) -->
# <!-- 225, 256, 57,600, 65,536 = compiled(90, 128)["registers"], 32 * compiled(90, 128)["warps"], compiled(90, 128)["registers"] * 256, CHIPS[90].registers -->
# <!-- "two tiles each of $K$ and $V$" if compiled(90, 64)["stages"] == 2 and 0 <= compiled(90, 64)["shared_bytes"] - 96 * 2**10 < 2**10 -->
# <!-- 128 \times 64 = tile("forward", 80, 128) -->
# <!-- "The table of the library has $128 \times 64$ there" if tile("forward", 80, 128) == (128, 64) -->
# <!-- 232, 153, 168 = compiled(80, 64)["registers"], compiled(90, 64)["registers"], compiled(80, 128)["spill_bytes"] -->
# <!-- spilt = lambda arch: {(BM, BN): min(one["spill_bytes"] for one in by_tile if (one["arch"], one["BM"], one["BN"]) == (arch, BM, BN)) for BM in (64, 128) for BN in (16, 32, 64, 128)} -->
# <!-- "One, none and seven." if [sum(map(bool, spilt(arch).values())) for arch in (80, 90, 75)] == [1, 0, 7] -->
# <!-- t4 = [one for one in by_tile if one["arch"] == 75] -->
# <!-- "No tensor-core instruction at any tile" if not any(one["tensor_core"] for one in t4) and all(one["tensor_core"] for one in by_tile if one["arch"] in (80, 90)) -->
# <!-- "only the smallest tile does not spill" if not spilt(75)[64, 16] and all(spilt(75)[tile] for tile in spilt(75) if tile != (64, 16)) -->
# <!-- "Five of the eight want more shared memory" if sum(min((one["spill_bytes"], one["shared_bytes"]) for one in t4 if (one["BM"], one["BN"]) == tile)[1] > CHIPS[75].shared_bytes for tile in spilt(75)) == 5 -->
# <!-- 5,000 = round(min(one["spill_bytes"] for one in t4 if one["registers"] == 64), -3) -->
# <!-- "64 registers are all that the compiler used" if {one["registers"] for one in t4 if one["spill_bytes"] > 5000} == {64} -->
# <!-- half = row("hot-loops", "shipped", kernel="forward", arch=90, d=64, causal=True, pairs="band") -->
# <!-- 128, 64 \times 64 = 32 * half["warps"], (half["BM"], half["BN"]) -->
# <!-- single = rows("resources", "shipped", kernel="forward", arch=90, d=64, bytes=4, causal=True, pairs="band")[0] -->
# <!-- 256, 64 \times 32 = 32 * single["warps"], (single["BM"], single["BN"]) -->
# <!-- "no tensor core is at work" if single["tensor_core"] == 0 < half["tensor_core"] -->
# <!-- 100 as definition -->

# %% tags=["predict"]
predict("11.14", percent=50)  #> predict("11.14", percent=...)

# %%
def a_round(name, loop, warps, BM, BN):
    """One line about a hot loop."""
    a_score = loop["instructions"] * 32 * warps / (BM * BN)
    print(f"{name}: {loop['instructions']:5,} instructions, {a_score:5.1f} a score; "
          f"{loop['fma']:5,} multiply-adds, {loop['wgmma']:2} wgmma, "
          f"{loop['special']:2} special")


half = next(row for row in load_record("hot-loops")["shipped"]
            if (row["kernel"], row["d"], row["causal"]) == ("forward", 64, True))
loop = half["hot_loop"]
a_round("16 bits", loop, half["warps"], half["BM"], half["BN"])
print(f"compiled with {record_source(load_record('hot-loops'))}")
measured("11.14", percent=100 * loop["wgmma"] / loop["instructions"])

# %% [markdown]
# <details><summary>What a thread does with its round</summary>
#
# Three. With one wgmma 128 threads multiply $64 \times 16$ by $16 \times 64$ numbers, so the two products of a tile take 8 of them. Then there is the softmax of 32 scores a thread: for every one at least a maximum, a fused multiply-add, a power of two and a sum, and for the accumulator a rescaling. These are *more than half* of the round.
#
# </details>
#
# No closed form of ours counts the softmax, for it moves no word. It is why the kernels keep a loop without a mask (11.5), why $\log_2 \mathrm e$ is multiplied into $\lambda$ beforehand (11.2), and why FlashAttention-3 lets one half of a program multiply while the other half takes its powers.

# %%
theirs = kernels.resources_of("forward", 90, d=64, dtype=torch.float32, tile=(64, 32, 8, 1))
a_round("float32", vars(theirs.hot_loop), theirs.warps, 64, 32)

# %% [markdown]
# In float32 each thread has 8 scores, and two products of 64 terms each make 1,024 multiply-adds: here the products are the round, and the softmax is the dozen beyond them.
#
# ## 11.15 A kernel to repair
#
# Somebody hands in a causal forward pass in one loop. It runs, and it is wrong in three places. Here it is, and what it does with 128 queries in tiles of $32 \times 16$. The next cell only has to be run. Pass over it: the code comes again in exercise 11E. Read the report below it first.
#
# <!-- 8, 1,024 = (64 * 32 // 256, 2 * 64 * 8) -->
# <!-- 32 \times 16 as input -->

# %% tags=["given"]
@triton.jit
def found_kernel(Q, K, V, O, LSE, N, scale,
                 d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE; query i sees the keys up to key i. Three places are wrong."""
    first, c = tl.program_id(0) * BM, tl.arange(0, d)
    i = first + tl.arange(0, BM)
    rows, here = i[:, None] * d + c, i[:, None] < N
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        columns, there = j[:, None] * d + c, j[:, None] < N
        k = tl.trans(tl.load(K + columns, mask=there, other=0.0))  # (d, BN)
        s = tl.dot(tl.load(Q + rows, mask=here, other=0.0), k, input_precision="ieee") * scale
        s = tl.where(j[None, :] <= i[:, None], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp2(s - m_new[:, None]), tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        v = tl.load(V + columns, mask=there, other=0.0)            # (BN, d)
        acc = tl.dot(p, v, acc, input_precision="ieee")
        m = m_new
    tl.store(O + rows, acc / l[:, None], mask=here)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def launched(kernel, Q, K, V, BM, BN):
    """O (N, d) and LSE (N,) by this kernel. Q, K, V: contiguous float32 tensors (N, d)."""
    N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)
    kernel[(triton.cdiv(N, BM),)](Q, K, V, O, LSE, N, 1.4426950408889634 * d**-0.5,
                                  d=d, BM=BM, BN=BN)
    return O, LSE


# %%
N, d, BM, BN = 128, 16, 32, 16
arrays = np.random.default_rng(11).standard_normal((3, N, d)).astype(np.float32)
problem = costs.kernels.KernelProblem(N, N, d, high=0)
due = costs.kernels.attention_forward(problem, BM=BM, BN=BN)
due.itemsizes = dict.fromkeys(due.arrays, 4)  # float32
S = np.where(np.tri(N, dtype=bool), exact.scores(*arrays[:2].astype(np.float64)), -np.inf)
print("due, by the closed form:", due, sep="\n")

# %%
def report(launcher):
    """The ledger of a launch, what is too much, and how many rows are right."""
    with traffic.count() as ledger:
        O, LSE = launcher(*map(torch.from_numpy, arrays), BM, BN)
    right_O = abs(O.numpy() - exact.softmax(S) @ arrays[2]).max(axis=1) < 1e-5
    right_LSE = abs(LSE.numpy() - exact.log_sum_exp(S)) < 1e-5
    print(ledger, f"too much: {ledger.bytes - due.bytes:,} bytes", sep="\n")
    print(f"rows that are right, of {N}: {right_LSE.sum()} of LSE, {right_O.sum()} of O")
    print(f"rows 0 to {BN - 1} of O are right: {right_O[:BN].all()}")
    return ledger


found = report(lambda Q, K, V, BM, BN: launched(found_kernel, Q, K, V, BM, BN))

# %% [markdown]
# A diagnosis first. Each line of the report accuses a place in the kernel. Hold `reads` against what is due, array by array: what does the number of times that $Q$ comes in say about the loop? And what do the rows 0 to 15 have in common, if all log-sum-exps are right?
#
# **Predict** (compute). How many rounds does each program make? And suppose the loop ended where it should, and nothing else were changed: how many words of $Q$ would still be too many?

# %% tags=["predict"]
predict("11.15", rounds=8, still_too_many=8192)  #> predict("11.15", rounds=..., still_too_many=...)

# %%
rounds_due = due.reads["K"] // (BN * d)  # of all programs together
measured("11.15", rounds=found.reads["Q"] // (N * d),
         still_too_many=rounds_due * BM * d - N * d)
first = S.argmax(axis=1) < BN
print(f"rows whose largest score lies in the first tile of keys: {first.sum()}")

# %% [markdown]
# <details><summary>What the three lines of the report accuse</summary>
#
# $Q$ is read 8 times, 16,384 words for 2,048: its tile comes in anew in every round, and a program makes 8 rounds, as many as there are tiles of keys. So the loop runs to the last key, and $K$ and $V$ are read beyond the diagonal: 8,192 words each, where 5,120 are due. If the loop ended at the diagonal, the programs would make 20 rounds together in place of 32, and $Q$ would still be read once in each, 8,192 words too many.
#
# These are two faults. The third moves no word, and it is for you to name. The rows 0 to 15 see keys of the first tile only, and they are right; so is every log-sum-exp, which is made of the maximum and the sum. And 53 rows of $O$ are right, as many as have their largest score in the first tile. What has a round to do where the maximum rises?
#
# </details>
#
# <!-- exercise 11E --> Repair it. The cell has the kernel as found. Write your diagnosis in its first line, as a comment, delete the line below that raises an error, and change as little as you can. The check wants the values and the words of (11.5), for other sizes too. If you are stuck after six minutes, run `hint("11E")` in a cell of your own.
#
# <!-- 32 = 4 * 8 -->
# <!-- 8 = len(range(0, 128, 16)) -->

# %% [raw] name="about-11E"
# title = "A kernel to repair"
# difficulty = 2
# importance = 3
# minutes = 10
# hints = [
#   "Three lines of the report point to three places in the kernel. Which loads are in the loop, and for which of them does the address change from one iteration to the next?",
#   "Which is the last key that the last row of a program attends to, and where do the keys end? The loop ends at the smaller of the two; see formula (11.5) for the end of program t.",
#   "Two values are carried between iterations relative to the old maximum: the sum and the accumulator. Compare how each of them is rescaled to the new maximum.",
# ]

# %% tags=["exercise"] name="ex-11E"
@triton.jit
def repaired_kernel(Q, K, V, O, LSE, N, scale,
                    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE; query i sees the keys up to key i."""
    ### BEGIN SOLUTION your diagnosis; then delete the next line and repair what follows
    # Q came in with every round; the loop ran past the diagonal; acc was not rescaled.
    ### END SOLUTION
    first, c = tl.program_id(0) * BM, tl.arange(0, d)
    i = first + tl.arange(0, BM)
    rows, here = i[:, None] * d + c, i[:, None] < N
    q = tl.load(Q + rows, mask=here, other=0.0)  #>
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, tl.minimum(first + BM, N), BN):  #> for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        columns, there = j[:, None] * d + c, j[:, None] < N
        k = tl.trans(tl.load(K + columns, mask=there, other=0.0))  # (d, BN)
        s = tl.dot(q, k, input_precision="ieee") * scale  #> s = tl.dot(tl.load(Q + rows, mask=here, other=0.0), k, input_precision="ieee") * scale
        s = tl.where(j[None, :] <= i[:, None], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p, old = tl.exp2(s - m_new[:, None]), tl.exp2(m - m_new)
        l = l * old + tl.sum(p, 1)
        v = tl.load(V + columns, mask=there, other=0.0)            # (BN, d)
        acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")  #> acc = tl.dot(p, v, acc, input_precision="ieee")
        m = m_new
    tl.store(O + rows, acc / l[:, None], mask=here)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_repaired(Q, K, V, BM, BN):
    """O (N, d) and LSE (N,) under a causal mask. Q, K, V: contiguous float32 tensors (N, d)."""
    return launched(repaired_kernel, Q, K, V, BM, BN)


# %% tags=["check"] name="check-11E"
check("11E", my_repaired)

# %%
mine = attempt(report, my_repaired)

# %% [markdown]
# And what does the compiler make of *your* kernel? Here is its hot loop for an H200, beside the library's of 11.14, in the same tile and with as many threads.

# %%
def hot_loops(launcher, BM=64, BN=32):
    """Print the hot loop of `repaired_kernel`, which `launcher` runs, and the library's."""
    launcher(*map(torch.from_numpy, arrays), 32, 16)
    x, row = torch.empty(1024, 64), torch.empty(1024)
    yours = gpu.resources(repaired_kernel, 90, x, x, x, x, row, 1024, 0.18,
                          d=64, BM=BM, BN=BN, num_warps=8, num_stages=1)
    a_round("yours", vars(yours.hot_loop), yours.warps, BM, BN)
    a_round("the library's", vars(theirs.hot_loop), theirs.warps, BM, BN)
    return yours.hot_loop


yours = attempt(hot_loops, my_repaired)

# %% [markdown]
# The products are the same, and so are the powers of two. A kernel with one loop also compares positions in every round; the library's has a loop of its own for the tiles that the diagonal cuts (11.5), and this is the other one.
#
# ## Misconceptions
#
# - **"The best tile is the one with the fewest words."** It is the one that the tensor cores, the registers and the L2 cache can agree on (11.12, 11.13).
# - **"FlashAttention is limited by memory, since it is about memory."** By its own count it would be, on all three chips. Most of its words come from L2, and there the products decide, and the softmax (11.12, 11.14).
# - **"The products are a few instructions of a round, so they take little of its time."** One of these instructions keeps the tensor cores at work for many clocks. The number of instructions is not the time (11.14).
# - **"Three wrong lines in a ledger are three faults."** $K$ and $V$ were wrong for one reason, and the third fault moved no word (11.15).
#
# ## Take-away
#
# - The count belongs to the traffic between programs and L2. It says what a kernel asks for; registers, tensor cores and caches say what that costs.
# - $B_c = 1$ is best in the model and does not exist on tensor cores.
# - A report has two halves. The ledger says which array and how often, and the rows that are right say what the wrong ones have in common.
#
# ## References
#
# - J. Shah, G. Bikshandi, Y. Zhang, V. Thakkar, P. Ramani, T. Dao: *FlashAttention-3*, 2024, [arXiv 2407.08608](https://arxiv.org/abs/2407.08608). The softmax of one half of a program under the products of the other.
# - S. Williams, A. Waterman, D. Patterson: *Roofline*, Communications of the ACM 52(4), 2009.
# - NVIDIA: data sheets of T4, A100 and H200, for peak rates and bandwidths (`iocourse.gpu.CHIPS` names the source of each); [*NVIDIA Hopper architecture in-depth*](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/), for L2 and registers, which the H200 shares with the H100; *PTX ISA*, for where `mma` and `wgmma` find their operands.
#
# **What comes next.** <!-- next --> Times measured on a GPU are in lesson 14.
