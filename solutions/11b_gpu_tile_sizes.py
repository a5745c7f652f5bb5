# %% [markdown]
# # 11b Bands, heads and tile sizes on a GPU
#
# You extend the kernel of lesson 11 to windows and to many heads. Then you compare tile sizes by the roofline, by the limits of one SM, and by the compiler's instructions.
#
# **What you will learn**
#
# - to compute attention under any band of visible pairs, also for rows that attend to no key;
# - to compute all heads of a layer in one launch, for any memory layout;
# - to find the limit that decides how many programs one SM can hold;
# - to find the lines of a kernel that cost the most instructions, and to repair them.
#
# **Prerequisites**: [lesson 11](11_flash_attention_forward_triton.ipynb); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes without 11E -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import costs, exact, masks
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source
from iocourse.gpu import CHIPS

rng = np.random.default_rng(11)

# %%
explore.mask_tiles(masks.Window(64, 20), 16, 16,
                   title="A band: query i attends to keys i - 20 to i + 20")

# %% [markdown]
# ## 11.9 Bands and rows that attend to no key
#
# In a *band*, query $i$ attends to key $j$ if
#
# $$ \text{low} \le j - i \le \text{high} . \tag{11.8} $$
# <!-- (11.8) not evaluated: definition -->
#
# The figure has $\text{low} = -20$ and $\text{high} = 20$. A causal mask has $\text{high} = 0$ and no lower limit. A window of 4 keys, the last one the query's own, has $\text{low} = -3$ and $\text{high} = 0$.
#
# With more queries than keys, and a causal mask aligned so that the *last* query attends to all keys, $\text{high} = N_k - N_q < 0$. Then the first $N_q - N_k$ queries attend to no key. By definition, their output is 0 and their log-sum-exp $L$ (`LSE` in code) is $-\infty$, the logarithm of an empty sum.
#
# A band can also break rows that do attend to keys. The next cell computes row sums with the arithmetic of your kernel: the running maximum, block by block. If $f$ is the first query of a program, no row of it attends to a key before $f + \text{low}$. So its loop starts at $\max(0, f + \text{low})$, rounded down to a multiple of $B_N$.
#
# **Predict** (compute). 12 queries and 12 keys, $\text{low} = -3$, $\text{high} = 0$, $B_M = 4$, $B_N = 2$. Every row attends to a key. How many of the 12 row sums are NaN?
# <!-- 20 as input -->

# %%
def windowed(S, low, high, BM, BN):
    """Row sums ℓ of softmax under a band, without care for rows that attend to no key."""
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
# <details><summary>Which row sums are NaN</summary>
#
# Six, in the second and the third program. The second program has queries 4 to 7. Its loop starts at key $4 - 3 = 1$, rounded down to 0, so its first block has keys 0 and 1. Query 4 attends to key 1. Queries 5 to 7 attend to neither key, so their running maximum is still $-\infty$, and $-\infty - (-\infty)$ is NaN. Later blocks cannot remove a NaN from $\ell$.
#
# </details>
#
# The cells from here on run Triton kernels in the interpreter. Without Triton, each of them prints in one line what to install.

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


def counted(launcher, *arguments, **keywords):
    """The ledger of a launch, and its results."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


# %% [markdown]
# <!-- exercise 11C --> Write `absorb`, which adds one block of keys to `acc`, `m` and `l` as in exercise 11B, but is also correct for rows that have attended to no key so far. Then complete the kernel: the visible pairs of (11.8), the call of `absorb`, and the results after the loop. A row that attends to no key has $O = 0$ and $L = -\infty$. The borders of the loop and the loads are given. If you are stuck after six minutes, run `hint("11C")` in a new cell.

# %% [raw] name="about-11C"
# title = "Rows that attend to no key"
# difficulty = 3
# importance = 4
# minutes = 10
# helpers = ["absorb"]
# hints = [
#   "Where can -inf - (-inf) occur, and where 0 / 0?",
#   "Only the maximum that is subtracted needs care, not the one that is kept: a row whose maximum is still -inf may subtract any finite number, because all its weights are 0.",
#   "After the loop, a row sum of 0 means that the row attends to no key. Divide by 1 there, which leaves O at 0, and set LSE to -inf with tl.where, not by the logarithm of 0.",
# ]

# %% tags=["exercise"] name="ex-11C"
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """Add a block of keys: return acc (BM, d), m (BM,), l (BM,).

    q (BM, d), k and v (BN, d): loaded tiles. scale: log2(e)/√d. seen: True where a pair is
    visible, of a shape that broadcasts to (BM, BN); None for a full block.
    """
    ### BEGIN SOLUTION as in 11B, with a maximum that may be -inf
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    shift = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(s - shift[:, None])
    old = tl.exp2(m - shift)
    l = l * old + tl.sum(p, 1)
    acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
    return acc, m_new, l
    ### END SOLUTION


@triton.jit
def band_kernel(Q, K, V, O, LSE, Nq, Nk, low, high, scale,
                d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE; query i attends to key j if low <= j - i <= high."""
    first = tl.program_id(0) * BM
    i, c = first + tl.arange(0, BM), tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    begin = tl.maximum(0, first + low)                       # the first key of the first row
    end = tl.minimum(Nk, tl.minimum(first + BM, Nq) + high)  # after the last row's last key
    end = tl.where(begin < end, end, 0)                      # without keys, no iteration
    for start in range(begin // BN * BN, end, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
        ### BEGIN SOLUTION the visible pairs of this block, and one call of absorb
        apart = j[None, :] - i[:, None]
        seen = (j[None, :] < Nk) & (apart >= low) & (apart <= high)
        acc, m, l = absorb(acc, m, l, q, k, v, scale, seen)
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
# With a window of 64 keys, the traffic of $K$ and $V$ grows like $N$, because each program loads a fixed number of blocks:

# %%
for N in (256, 512):
    q, k, v = torch.from_numpy(rng.standard_normal((3, N, 32)).astype(np.float32))
    mine = attempt(counted, my_band_attention, q, k, v, -63, 0, 64, 32)
    band = costs.kernels.KernelProblem(N, N, 32, low=-63, high=0)
    formula = costs.kernels.attention_forward(band, BM=64, BN=32)
    print(f"N = {N}: {mine[0].total:7,} words, closed form {formula.total:7,}")

# %% [markdown]
# The rows of a program attend to at most $63 + 64 = 127$ keys, which are four blocks of 32. A program moves 12,352 words, and the first one, without earlier keys, 8,256. So 256 rows need $8{,}256 + 3 \cdot 12{,}352 = 45{,}312$ words, and 512 rows need $8{,}256 + 7 \cdot 12{,}352 = 94{,}720$.
# <!-- 127, 12,352 = 63 + 64, 2 * 64 * 32 + 64 + 2 * 4 * 32 * 32 -->
# <!-- 8,256 = kernel_costs.attention_forward(kernel_costs.KernelProblem(64, 64, 32, low=-63, high=0), BM=64, BN=32).total -->
# <!-- 45,312, 94,720 = (kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, 32, low=-63, high=0), BM=64, BN=32).total for N in (256, 512)) -->
#
# ## 11.10 Many heads
#
# A layer computes attention for $H$ heads of $B$ sequences. A launch has one program per block of queries of each of the $BH$ heads. A tensor is $(B, H, N, d)$. Its *strides* are the distances, in words, from one sequence, head or row to the next. A kernel that computes addresses from strides works for any memory layout. The usual layout of a layer is $(B, N, H, d)$ with two axes exchanged.
#
# In *grouped-query attention*, $H$ heads of queries share $H_{kv} < H$ heads of keys. Query head $h$ uses key head $\lfloor h / (H/H_{kv}) \rfloor$. Then $K$ and $V$ are smaller by the factor $H/H_{kv}$.
#
# **Predict** (compute). $H = 4$ heads of queries, $N = 64$, tiles of 32, one program per query block of a head. $H_{kv}$ changes from 4 to 1. What is the ratio of the words of $K$ that the programs read before and after this change?

# %% tags=["predict"]
predict("11.10", factor=1)  #> predict("11.10", factor=...)

# %%
reads = {}
for H_kv in (4, 1):
    problem = costs.kernels.KernelProblem(64, 64, 16, H=4, H_kv=H_kv)
    reads[H_kv] = costs.kernels.attention_forward(problem, BM=32, BN=32).reads["K"]
    print(f"{H_kv} heads of keys: K has {problem.keys * 16:,} words, {reads[H_kv]:,} are read")
measured("11.10", factor=reads[4] / reads[1])

# %% [markdown]
# <details><summary>Effect of shared keys</summary>
#
# The words do not change, because each program reads all keys of its head, 8,192 words in total. Only the size of $K$ changes, from 4,096 words to 1,024. The *KV cache*, which stores the keys and values of all previous tokens during text generation (lesson 14b), is smaller. To read shared keys less often, a program must hold the queries of several heads as rows of one tile.
#
# </details>
#
# <!-- exercise 11D --> Write the kernel for all heads on a grid with one axis. Each query attends to all $N$ keys, so only keys past $N$ are hidden, by `seen`. The kernel calls your `absorb` of 11C. Strides are passed as tuples of three numbers, for batch, head and row: `q_strides[2]` is the distance between rows of $Q$. The last axis has stride 1. Torch must not copy tensors. With a wrong head or batch an address is often outside every array, and the check then reports an error at that load. If you are stuck after seven minutes, run `hint("11D")`.

# %% [raw] name="about-11D"
# title = "Many heads"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "How many programs are there now? How do you get the block, the head and the batch from one program id?",
#   "Number the programs so that neighbours share K and V: the block changes fastest, then the head, then the batch. Quotient and remainder give the three numbers. The key head is the query head divided by the group size, rounded down.",
#   "Move each pointer to its head once: batch times the first stride plus head times the second. The loop is that of one head, with the third stride instead of d, and absorb hides keys past the end if you pass them as not visible.",
# ]
# # <!-- "the block changes fastest" as definition -->

# %% tags=["exercise"] name="ex-11D"
@triton.jit
def heads_kernel(Q, q_strides, K, k_strides, V, v_strides, O, o_strides, H, group, N, scale,
                 d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of one head of O; `group` heads of queries share a head of keys."""
    program, blocks = tl.program_id(0), tl.cdiv(N, BM)
    c = tl.arange(0, d)
    ### BEGIN SOLUTION the block, head and batch; pointers to them; a loop that calls absorb
    block, pair = program % blocks, program // blocks
    batch, head = pair // H, pair % H
    Q += batch * q_strides[0] + head * q_strides[1]
    K += batch * k_strides[0] + head // group * k_strides[1]
    V += batch * v_strides[0] + head // group * v_strides[1]
    O += batch * o_strides[0] + head * o_strides[1]
    i = block * BM + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * q_strides[2] + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * k_strides[2] + c, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + j[:, None] * v_strides[2] + c, mask=j[:, None] < N, other=0.0)
        acc, m, l = absorb(acc, m, l, q, k, v, scale, j[None, :] < N)
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
# If the block changes fastest, programs that start together belong to one head and read the same keys, so the L2 cache can serve most of these reads.
#
# The tests of the check are too small to show one fault, overflow. A program id has 32 bits, and so has its product with a stride. In a tensor of 65 heads with $2^{25}$ words each, offsets exceed $2^{31}$, the product overflows, and the kernel reads wrong words without an error. The library converts the numbers of batch, head and row to 64 bits before it multiplies.
# <!-- "the block changes fastest" as definition -->
# <!-- 65 as input -->
#
# ## 11.11 Where the model and a GPU differ
#
# Formula (11.1) counts the words that programs request. A GPU serves these requests from several memories. The largest of them is *HBM*, the DRAM of a data-centre GPU. Compare sizes for one head with $N = 8192$ and $d = 64$ in 16 bits, with 128 queries per program:

# %%
N, d, BM = 8192, 64, 128
chip = CHIPS[90]
l2_bytes = load_record("profile")["device"]["l2_bytes"]  # as the driver of an H200 reports it
sizes = {"requested by programs, (11.1)": 2 * costs.flash2(N, d, Br=BM, Bc=64).total,
         "L2 cache": l2_bytes,
         "Q, K, V and O, once each": 2 * 4 * N * d,
         "registers of one SM": 4 * chip.registers,
         "shared memory of one program": chip.shared_bytes}
explore.bars({name: size / 2**20 for name, size in sizes.items()}, unit="MiB", log=True,
             title="One head of attention and the memories of an H200")

# %% [markdown]
# Programs run on *SMs* (streaming multiprocessors). Registers (256 KB per SM) hold accumulators and scores, shared memory (up to 227 KB per program) holds tiles of $Q$, $K$ and $V$. All SMs share the L2 cache, 60 MiB by the driver.
#
# Programs request 130 MiB, with the stores of $O$ and without the $N$ log-sum-exps. All programs of a head read the same $K$ and $V$, 2 MiB, at about the same time. So HBM can deliver each word once, and the L2 cache serves the other requests. L2 also delivers fewer words than requested, because an H200 merges requests of several SMs for the same words. `ncu`, NVIDIA's profiler, has counted the bytes. In the last column, HBM is compared with one read of each input:
# <!-- ratios = lambda level, what: [one["bytes"][level]["read"] / one["bytes"]["closed_form"]["read"] for one in load_record("profile")["runs"] if (one["question"]["what"] == "decode") == (what == "decode")] -->
# <!-- 2, 227, 256 = 2 * 8192 * 64 * 2 / 2**20, CHIPS[90].shared_bytes / 2**10, CHIPS[90].registers * 4 / 2**10 -->
# <!-- 130, 60 = 2 * costs.flash2(8192, 64, Br=128, Bc=64).total / 2**20, device("profile")["l2_bytes"] / 2**20 -->
# <!-- "L2 also delivers fewer words than requested" if max(ratios("l2", "others")) < 1 -->

# %%
record = load_record("profile")
print(record_source(record))
print("bytes read:                            BM  causal  L2/formula  HBM/formula  HBM/once")
for one in record["runs"]:
    what, N, d, causal = (one["question"][name] for name in ("what", "N", "d", "causal"))
    (BM, *_), = one["tiles"].values()
    l2, hbm, formula, once = (one["bytes"][level]["read"]
                              for level in ("l2", "dram", "closed_form", "compulsory"))
    print(f"{f'{what}, N = {N:,}, d = {d}':38}{BM:3}  {causal!s:6}  "
          f"{l2 / formula:10.2f} {hbm / formula:12.2f} {hbm / once:9.2f}")

# %% [markdown]
# For the kernels whose programs share $K$ and $V$, L2 reads 0.44 to 0.82 of the formula, and HBM 0.12 or less. In the forward passes the last ratio is 1.00: HBM reads each input once. In a decode step (one new query per head, lesson 14b), each word is requested once, and all three ratios are 1.00.
#
# ## 11.12 The roofline
#
# The *arithmetic intensity* $I$ of a kernel is its floating-point operations (*FLOPs*) per byte moved. A chip reaches at most its *peak* rate, and its memory delivers at most its *bandwidth*. So the rate of a kernel is at most
#
# $$ \min\bigl(\text{peak},\ I \cdot \text{bandwidth}\bigr) . \tag{11.9} $$
# <!-- (11.9) = roofline.attainable_tflops(I, type(CHIPS[90])(0, "", 1, 1, peak, 1000 * bandwidth, "")) -->
#
# The two terms are equal at the *ridge point*, $I = \text{peak} / \text{bandwidth}$. A kernel with a smaller $I$ is *memory-bound*, one with a larger $I$ *compute-bound*. For 16-bit matrix products the ridge point is 203 FLOPs per byte on a T4, 153 on an A100 and 206 on an H200.
#
# Attention has $4N^2d$ FLOPs (two products, each multiply-add counts as two). With $\beta$ bytes per word and the words of (11.1) without the $N$ log-sum-exps,
#
# $$ I = \frac{4N^2d}{\beta W} = \frac{2}{\beta} \cdot \frac{N}{1 + N/B_M} \approx \frac{2}{\beta} B_M . \tag{11.10} $$
# <!-- (11.10) I = roofline.arithmetic_intensity(roofline.flops("forward", B=1, H=1, N=N, d=d), beta * W) with W = costs.flash2(N, d, Br=BM, Bc=1).total where N % BM == 0 -->
# <!-- (11.10) I ~ roofline.arithmetic_intensity(roofline.flops("forward", B=1, H=1, N=N, d=d), beta * costs.flash2(N, d, Br=BM, Bc=1).total) within 0.02 where N % BM == 0 and N >= 50 * BM -->
#
# **Predict** (compute). $N = 4096$ in 16 bits, so $\beta = 2$. By (11.10), on how many of the three chips is the kernel with $B_M = 128$ memory-bound?
#
# <!-- 0.44, 0.82, 0.12 = min(ratios("l2", "others")), max(ratios("l2", "others")), max(ratios("dram", "others")) -->
# <!-- "HBM reads each input once" if all(one["bytes"]["dram"]["read"] < 1.01 * one["bytes"]["compulsory"]["read"] for one in load_record("profile")["runs"] if one["question"]["what"] == "forward") -->
# <!-- once = lambda what: [one["bytes"]["dram"]["read"] / one["bytes"]["compulsory"]["read"] for one in load_record("profile")["runs"] if one["question"]["what"] == what] -->
# <!-- "all three ratios are 1.00" if round(*ratios("l2", "decode"), 2) == round(*ratios("dram", "decode"), 2) == round(*once("decode"), 2) == 1 -->
# <!-- 1.00 = max(once("forward")) -->
# <!-- 203, 153, 206 = (roofline.ridge_point(CHIPS[arch]) for arch in (75, 80, 90)) -->

# %% tags=["predict"]
predict("11.12", chips=1)  #> predict("11.12", chips=...)

# %%
N, bytes_per_word = 4096, 2


def intensity(words, d):
    return 4 * N**2 * d / (bytes_per_word * words)


tiles = {BM: intensity(costs.flash2(N, 64, Br=BM, Bc=64).total, 64) for BM in (64, 128)}
naive, once = intensity(4 * N**2 + 4 * N * 64, 64), intensity(4 * N * 64, 64)
ridges = []
for chip in (CHIPS[75], CHIPS[80], CHIPS[90]):
    ridges.append(1000 * chip.tensor_tflops / chip.gbytes_per_s)
    print(f"{chip.name:15} {chip.tensor_tflops:4} TFLOP/s, {chip.gbytes_per_s:5,} GB/s: "
          f"ridge point {ridges[-1]:.0f} FLOPs per byte")
print(f"standard attention: {naive:.1f}, BM = 64: {tiles[64]:.1f}, "
      f"BM = 128: {tiles[128]:.1f}, each word once: {once:,.0f}")
measured("11.12", chips=sum(tiles[128] < ridge for ridge in ridges))
explore.roofline([75, 80, 90], {"standard, d = 64": naive, "BM = 64": tiles[64],
                                "BM = 128": tiles[128], "each word once": once},
                 title="Attention forward, N = 4,096, 16 bit")


# %% [markdown]
# <details><summary>Memory-bound or compute-bound</summary>
#
# On all three. The kernel has 124.1 FLOPs per byte (128 less the share of $Q$ and $O$), below each ridge point.
#
# But (11.10) counts requests, and HBM delivers each word about once (11.11). For HBM the intensity is the last point, 2,048 FLOPs per byte, far on the compute-bound side. The requests are served by L2. Its bandwidth is higher, but no data sheet of these chips states it. If HBM served all requests, a T4 or an H200 would need more than 200 rows per program; with L2, 64 or 128 rows can be enough.
#
# For standard attention, L2 helps less. Per head it writes and reads 32 MiB of scores and as many weights, 128 MiB in total. The scores of one head fit in the L2 of an H200. A layer computes all heads at the same time: the scores of 16 heads are 512 MiB, too much for L2, so HBM moves them.
#
# </details>
#
# (The asterisk in the figure: Triton does not use the tensor cores of a T4.)
#
# ## 11.13 Tiles and programs per SM
#
# By (11.1) a larger $B_M$ moves fewer words, and $B_N$ does not matter. Compare two tiles of the library's kernel for $d = 128$ on an H200, $128 \times 128$ with 8 warps and $64 \times 64$ with 4 warps. (A *warp* is 32 threads; *stages* are defined below.) For $N = 4096$, the ratio of their words is 1.97: the second tile moves more.
#
# **Predict** (guess). What is the time of the $64 \times 64$ tile, divided by the time of the $128 \times 128$ tile, without a mask?
#
# <!-- 124.1 = 2 * 4096**2 * 64 / costs.flash2(4096, 64, Br=128, Bc=1).total -->
# <!-- 2,048 = 4 * 4096**2 * 64 / (2 * 4 * 4096 * 64) -->
# <!-- "On all three." if all(2 * 4096**2 * 64 / costs.flash2(4096, 64, Br=128, Bc=64).total < roofline.ridge_point(CHIPS[arch]) for arch in (75, 80, 90)) -->
# <!-- 32, 128, 512 = 2 * 4096**2 / 2**20, 4 * 2 * 4096**2 / 2**20, 16 * 2 * 4096**2 / 2**20 -->
# <!-- 16 as input -->
# <!-- "too much for L2" if 16 * 2 * 4096**2 > device("profile")["l2_bytes"] > 2 * 4096**2 -->
# <!-- 200 = round(1000 * CHIPS[75].tensor_tflops / CHIPS[75].gbytes_per_s, -2) -->
# <!-- "a T4 or an H200 would need more than 200 rows per program" if [arch for arch in (75, 80, 90) if roofline.ridge_point(CHIPS[arch]) > 200] == [75, 90] -->
# <!-- "Triton does not use the tensor cores of a T4" if not CHIPS[75].tensor_cores_in_triton -->
# <!-- tried = {tuple(one["tile"]): one["ms"] for one in row("tune", "kernels", d=128, kernel="forward")["tried"]} -->
# <!-- 128 \times 128, 8 = next(tuple(one[:2]) for one in tried if one[:2] == (128, 128)), next(one[2] for one in tried if one[:2] == (128, 128)) -->
# <!-- 64 \times 64, 4 = tile("forward", 90, 128), choice("forward", launch(90, 128)).value[2] -->
# <!-- 32 = np.iinfo(np.uint32).bits -->
# <!-- 1.97 = costs.flash2(4096, 128, Br=64, Bc=64).total / costs.flash2(4096, 128, Br=128, Bc=128).total -->

# %% tags=["predict"]
predict("11.13", time_ratio=1.5)  #> predict("11.13", time_ratio=...)

# %%
record = load_record("tune")
print(record_source(record))
tried = next(one["tried"] for one in record["kernels"]
             if (one["d"], one["kernel"]) == (128, "forward"))
print("BM x BN, warps, stages:  words of a head   ms full, ms causal")
for one in tried:
    BM, BN, warps, stages = one["tile"]
    words, (full, causal) = costs.flash2(4096, 128, Br=BM, Bc=BN).total, one["ms"]
    print(f"{BM:3} x {BN:3}, {warps}, {stages}: {words:22,} {full:10.3f} {causal:10.3f}")
ms = {tuple(one["tile"]): one["ms"] for one in tried}
measured("11.13", time_ratio=ms[64, 64, 4, 3][0] / ms[128, 128, 8, 3][0])

# %% [markdown]
# <details><summary>The tile with more words is faster</summary>
#
# The ratio is 0.95 without a mask and 0.90 with a causal mask, so the $64 \times 64$ tile needs 5 to 10 % less time. The kernels have changed since this record; the library takes the $64 \times 64$ tile today. Words alone predict the wrong order. The model has no registers, shared memory or warps:
#
# </details>
#
# **Registers.** The accumulator ($B_M \times d$) and the scores ($B_M \times B_N$) are in registers, in float32, divided among all threads. A thread has at most 255. The compiler *spills* further values to memory, and our formulas do not count these words. This demand is the *register pressure*; more warps reduce it per thread.
#
# **Warps.** In the library's tile, $B_M = 64$ with 4 warps, a warp owns 16 complete rows of the scores. So the maximum and the sum of a row need no other warp.
#
# **Stages.** Loads run ahead. With $s$ *stages*, shared memory of an H200 holds one tile of $Q$ and up to $s$ tiles each of $K$ and $V$, about $\beta d\,(B_M + 2 s B_N)$ bytes. For the $64 \times 64$ tile, $d = 128$ and 3 stages this is 112 KB; the compiler allocates 1 KB more. On an A100 it allocates less than the formula, on a T4 more. In the table, 2 stages instead of 3 take 14 % more time without a mask and 22 % more with a causal mask.
#
# The figure shows what the compiler reports for the library's kernel with a causal mask, with 2 stages on the A100 and the H200 and 1 on the T4. Each tile was compiled with 4 and with 8 warps. The figure shows the kernel that spills fewer bytes and, if both are equal, needs fewer registers per thread. This is the one with 8 warps for all tiles shown.
#
# <!-- 64 \times 64 = tile("forward", 90, 128) -->
# <!-- best = choice("forward", launch(90, 128)).value -->
# <!-- "The tile with more words is faster" if tried[tuple(best)][0] < tried[128, 128, 8, 3][0] -->
# <!-- 128, 3 = row("tune", "kernels", d=128, kernel="forward")["d"], best[3] -->
# <!-- 2 = next(one[3] for one in tried if one[:2] == (64, 64) and one[3] != best[3]) -->
# <!-- 64, 4 = best[0], best[2] -->
# <!-- 0.95, 0.90 = (small / large for small, large in zip(tried[64, 64, 4, 3], tried[128, 128, 8, 3])) -->
# <!-- 5, 10 = (100 * (1 - small / large) for small, large in zip(tried[64, 64, 4, 3], tried[128, 128, 8, 3])) -->
# <!-- "the library takes the $64 \times 64$ tile today" if tile("forward", 90, 128) == tile("forward", 90, 128, mask="causal") == (64, 64) -->
# <!-- "needs 5 to 10 % less time" if all(small < large for small, large in zip(tried[64, 64, 4, 3], tried[128, 128, 8, 3])) -->
# <!-- 255 = gpu.chips.REGISTERS_A_THREAD -->
# <!-- 16 = best[0] // best[2] -->
# <!-- 112 = 2 * 128 * (64 + 2 * 3 * 64) / 2**10 -->
# <!-- 14, 22 = (100 * (two / three - 1) for two, three in zip(tried[64, 64, 4, 2], tried[64, 64, 4, 3])) -->
# <!-- "about $\beta d\,(B_M + 2 s B_N)$ bytes" if all(0 <= one["shared_bytes"] - 256 * (one["BM"] + 2 * one["stages"] * one["BN"]) < 2**12 for one in rows("resources", "shipped", kernel="forward", arch=90, d=128, bytes=2, pairs="band")) -->
# <!-- by_tile = rows("resources", "forward_by_tile", d=128, bytes=2, causal=True) -->
# <!-- 2, 1 = max(one["stages"] for one in by_tile if one["arch"] in (80, 90)), max(one["stages"] for one in by_tile if one["arch"] == 75) -->
# <!-- 4, 8 = min(one["warps"] for one in by_tile), max(one["warps"] for one in by_tile) -->
# <!-- "with 2 stages on the A100 and the H200" if {one["stages"] for one in by_tile if one["arch"] in (80, 90)} == {2} -->
# <!-- "for all tiles shown" if all(min((one["spill_bytes"], one["registers"], one["warps"]) for one in by_tile if (one["arch"], one["BM"], one["BN"]) == (arch, BM, BN))[2] == 8 for arch in (75, 80, 90) for BM in (64, 128) for BN in (16, 32, 64, 128)) -->
# <!-- allocated = lambda arch: [one["shared_bytes"] - 256 * (one["BM"] + 2 * one["stages"] * one["BN"]) for one in by_tile if one["arch"] == arch] -->
# <!-- "On an A100 it allocates less than the formula, on a T4 more." if max(allocated(80)) < 0 < min(allocated(75)) -->
# <!-- 1 = (row("resources", "shipped", kernel="forward", arch=90, d=128, bytes=2, causal=True, pairs="band", BM=64)["shared_bytes"] - 256 * (64 + 2 * 3 * 64)) / 2**10 -->

# %%
rows = load_record("resources")["forward_by_tile"]
explore.kernel_resources(rows, d=128, chips=[75, 80, 90])

# %% [markdown]
# On the H200 no tile with 8 warps spills, because its tensor cores read tiles from shared memory. (With 4 warps $128 \times 128$ spills 672 bytes per thread, but $64 \times 64$ does not spill.) An A100 reads tiles from registers, and $128 \times 128$ spills 168 bytes. On a T4, ordinary cores multiply, and seven of the eight tiles spill, up to 19,576 bytes. Five of them also need more than its 64 KB of shared memory, so they cannot start.
#
# The grey columns mark $B_N = 1$, the best tile of the model. It cannot be compiled, because `tl.dot` takes at least 16 keys. Few keys also cost arithmetic: each iteration rescales the accumulator, which is $d / B_N$ multiplications per score. This answers the question left open in section 4.4.
#
# **Occupancy.** The *occupancy* of an SM is its number of resident warps, divided by the largest possible number. It follows from the number of programs that one SM can hold at the same time. Each of four resources limits this number:
# <!-- spilt = lambda arch: {(BM, BN): min(one["spill_bytes"] for one in by_tile if (one["arch"], one["BM"], one["BN"]) == (arch, BM, BN)) for BM in (64, 128) for BN in (16, 32, 64, 128)} -->
# <!-- "On the H200 no tile with 8 warps spills" if not any(spilt(90).values()) and not any(one["spill_bytes"] for one in by_tile if (one["arch"], one["warps"]) == (90, 8)) -->
# <!-- four = lambda BM, BN: row("resources", "forward_by_tile", arch=90, d=128, BM=BM, BN=BN, warps=4)["spill_bytes"] -->
# <!-- 128 \times 128, 672 = max(((one["BM"], one["BN"]) for one in by_tile if (one["arch"], one["warps"]) == (90, 4)), key=lambda at: four(*at)), four(128, 128) -->
# <!-- "but $64 \times 64$ does not spill" if four(64, 64) == 0 -->
# <!-- 64 \times 64, 4, 8 = tile("forward", 90, 128), min(one["warps"] for one in by_tile), max(one["warps"] for one in by_tile) -->
# <!-- 19,576 = max(spilt(75).values()) -->
# <!-- 64 = CHIPS[75].shared_bytes / 2**10 -->
# <!-- "Five of them also need more" if len({(one["BM"], one["BN"]) for one in by_tile if one["arch"] == 75 and one["shared_bytes"] > CHIPS[75].shared_bytes and spilt(75)[one["BM"], one["BN"]]}) == 5 -->
# <!-- 128 \times 128, 168 = max(spilt(80), key=spilt(80).get), spilt(80)[128, 128] -->
# <!-- "seven of the eight tiles spill" if (sum(map(bool, spilt(75).values())), len(spilt(75))) == (7, 8) -->
# <!-- "ordinary cores multiply" if not any(one["tensor_core"] for one in by_tile if one["arch"] == 75) -->
# <!-- 16 as definition -->

# %% tags=["given"]
SM = {chip.name: {"registers": chip.registers, "shared_bytes": chip.shared_bytes_per_sm,
                  "reserved_bytes": chip.reserved_bytes,
                  "warps": chip.warps, "blocks": chip.blocks} for chip in CHIPS.values()}
for name, limits in SM.items():
    print(f"{name:15} {limits}")

# %% [markdown]
# - *Registers.* A warp is allocated $32$ times the registers of a thread, rounded up to a multiple of 256.
# - *Shared memory.* `sm["shared_bytes"]` is that of the SM, 228 KB on an H200. The system adds `reserved_bytes` to each program, 1 KB there, so a single program can use at most 227 KB. A T4 reserves nothing; a program without shared memory is then not limited by it.
# - *Warps* and *blocks*. Here a *block* is CUDA's word for a program, not a tile.
#
# (With fewer than four warps this is a simplification.)
#
# <!-- exercise 11H --> Write the function that counts the programs per SM and names the limit. If no program fits, the number is 0. If several limits are equal, any of their names is correct. If you are stuck after four minutes, run `hint("11H")`.
# <!-- 256 = gpu.chips.REGISTER_UNIT -->
# <!-- 228, 1, 227 = CHIPS[90].shared_bytes_per_sm / 2**10, CHIPS[90].reserved_bytes / 2**10, CHIPS[90].shared_bytes / 2**10 -->
# <!-- 32 as definition -->
# <!-- "A T4 reserves nothing" if CHIPS[75].reserved_bytes == 0 -->

# %% [raw] name="about-11H"
# title = "How many programs per SM"
# difficulty = 2
# importance = 3
# minutes = 8
# hints = [
#   "Compute four numbers: how many programs would fit if only this resource were limited?",
#   "Registers: multiply by the threads of a warp, round up to a multiple of the unit, then multiply by the warps. Shared memory: add the reserved bytes before you divide. Use integer divisions.",
#   "The answer is the smallest of the four numbers and its name. Put them into a dict by name and take the key with the smallest value.",
# ]

# %% tags=["exercise"] name="ex-11H"
def my_programs_per_sm(registers, shared_bytes, warps, sm):
    """Return (programs, limit): how many programs one SM holds, and the name of the limit.

    registers: per thread. shared_bytes: per program. warps: per program. sm: a dict as above.
    limit: "registers", "shared memory", "warps" or "blocks".
    """
    ### BEGIN SOLUTION the smallest of four numbers, and its name
    registers_per_warp = -(-registers * 32 // 256) * 256
    shared = shared_bytes + sm["reserved_bytes"]
    fit = {
        "registers": sm["registers"] // (registers_per_warp * warps),
        "shared memory": sm["shared_bytes"] // shared if shared else sm["blocks"],
        "warps": sm["warps"] // warps,
        "blocks": sm["blocks"],
    }
    limit = min(fit, key=fit.get)
    return fit[limit], limit
    ### END SOLUTION


# %% tags=["check"] name="check-11H"
check("11H", my_programs_per_sm)

# %% [markdown]
# Apply it to three tiles of the table above, compiled for an H200 and a causal mask. The last line is the library's choice:

# %%
for tile in ((64, 64, 4, 3), (128, 128, 8, 3), (128, 32, 8, 3)):
    found = kernels.resources_of("forward", 90, d=128, tile=tile)
    needs = found.registers, found.shared_bytes, tile[2]
    held = attempt(my_programs_per_sm, *needs, SM["H200 SXM"])
    print(f"{tile}: {found.registers} registers, {found.shared_bytes:,} bytes: {held} per SM")
print(kernels.choices_of(90, d=128)["forward"].value)

# %% [markdown]
# An SM holds two programs of $64 \times 64$ and one of $128 \times 128$. With the reserve, two programs of $64 \times 64$ need $2 \cdot 116{,}736 = 233{,}472$ bytes, all shared memory of the SM. With both tiles an SM has 8 warps and 128 rows of queries. But two programs are independent: while one waits for its products or loads, the other can compute its softmax. This could explain the shorter time; it is not measured.
#
# The number of programs does not decide alone. An SM also holds two programs of $128 \times 32$, and in the table this tile takes more time than $128 \times 128$. With a fourth stage, $64 \times 64$ needs 144 KB, so one program fits; its time is unmeasured.
#
# ## 11.14 Where the instructions go
#
# Instructions are not time (lesson 11, section 11.7). But an SM issues at most four instructions per clock, one for each of four warps, and a chain of dependent instructions makes a warp wait. In 16 bits, the inner loop of exercise 11F needs 7.8 instructions per score.
#
# **Predict** (compute). A tile of $128 \times 64$ scores, 4 warps. Four threads share a row, and each of them computes the factor `old` of its rows itself. How many exponentials does a thread compute per iteration?
# <!-- small = row("resources", "shipped", kernel="forward", arch=90, d=128, bytes=2, causal=True, pairs="band", BM=64) -->
# <!-- 64 \times 64 = (small["BM"], small["BN"]) -->
# <!-- 144 = 2 * 128 * (small["BM"] + 2 * (small["stages"] + 1) * small["BN"]) / 2**10 -->
# <!-- 116,736 = small["shared_bytes"] + CHIPS[90].reserved_bytes -->
# <!-- 233,472 = CHIPS[90].shared_bytes_per_sm -->
# <!-- "all shared memory of the SM" if 2 * (small["shared_bytes"] + CHIPS[90].reserved_bytes) == CHIPS[90].shared_bytes_per_sm -->
# <!-- held = [int(n) for n in re.findall(r"bytes: \((\d+), '[a-z ]+'\) per SM", checkout("solutions/11b_gpu_tile_sizes.ipynb"))] -->
# <!-- "An SM holds two programs of $64 \times 64$ and one of $128 \times 128$." if held[:2] == [2, 1] -->
# <!-- "also holds two programs of $128 \times 32$" if held[2] == 2 -->
# <!-- "takes more time than $128 \times 128$" if all(a > b for a, b in zip(tried[128, 32, 8, 3], tried[128, 128, 8, 3])) -->
# <!-- 128 \times 128, 128 \times 32 = (one[:2] for one in ((128, 128, 8, 3), (128, 32, 8, 3)) if one in tried) -->
# <!-- answer = lambda text: row("answers", answer=text) -->
# <!-- 7.8 = answer("reference")["instructions_per_score"] -->
# <!-- 8, 128 = 2 * small["warps"], 2 * small["BM"] -->
# <!-- shape = [int(n) for n in re.findall(r"(\d+) x (\d+), (\d+) warps", load_record("answers")["problem"])[0]] -->
# <!-- 128 \times 64, 4 = tuple(shape[:2]), shape[2] -->

# %% tags=["predict"]
predict("11.14", exponentials=64)  #> predict("11.14", exponentials=...)

# %%
record = load_record("answers")
print(record_source(record))
print("per score: instructions, exponentials, stall clocks; ms")
for at in (0, 11, 13, 12):
    one = record["rows"][at]
    kinds = "instructions", "exponentials", "stall_clocks"
    counts = (one[f"{kind}_per_score"] for kind in kinds)
    print(f"{one['answer']:28}", *(f"{n:6.2f}" for n in counts), f"{one['ms']:7.3f}")
per_thread = round(record["rows"][0]["exponentials_per_score"] * 128 * 64 / 128)
measured("11.14", exponentials=per_thread)

# %% [markdown]
# <details><summary>Exponentials of one thread</summary>
#
# A thread computes 68 exponentials. It has $128 \cdot 64 / 128 = 64$ scores, 16 in each of 4 rows. That makes 64 exponentials for the scores and 4 for `old`, or 1.06 per score.
#
# </details>
#
# The table compares the reference with three changes that do not alter its result; no kernel of the table has a causal mask. *Stall clocks* are clocks in which a warp must not issue its next instruction, because it needs an earlier result. They are read from the machine code, per score of a thread, and not measured.
#
# - *Scale before the maximum*: $0.9$ more instructions per score. Scaled scores need one multiplication each. In `s * scale - m_new`, the scale is part of a multiply-add.
# - *One loop, masked throughout*: 1.3 more. Full blocks compute comparisons and selections for nothing, and more under a causal mask.
# - *`tl.exp` for `tl.exp2`*: $5.3$ more instructions, and 1.89 times the time. `tl.exp` keeps *denormals* (results below $2^{-126}$), with one comparison and several multiplications per score. In the machine code, all comparisons write the same *predicate register* (one bit per thread), so each must wait for the previous one, and the stall clocks double. `tl.exp2` rounds denormals to 0, which changes no weight that matters.
#
# Next is a causal kernel that makes all three mistakes. Its result is correct. The next cell compiles it for an H200 and lists its instructions. `FSETP` and `ISETP` compare floating-point numbers and integers, `FSEL` selects, `FMUL` multiplies, `FADD` adds, `FFMA` multiplies and adds, `FMNMX` takes a maximum, `MUFU` computes an exponential.
# <!-- scores = shape[0] * shape[1] // (32 * shape[2]) -->
# <!-- 16, 4, 64 = shape[1] // 4, 4 * scores // shape[1], scores -->
# <!-- 68 = round(scores * answer("reference")["exponentials_per_score"]) -->
# <!-- 1.06 = answer("reference")["exponentials_per_score"] -->
# <!-- 0.9, 1.3, 5.3 = (answer(text)["instructions_per_score"] - answer("reference")["instructions_per_score"] for text in ("scale before the maximum", "one loop, masked throughout", "exp in place of exp2")) -->
# <!-- 1.89 = answer("exp in place of exp2")["ms"] / answer("reference")["ms"] -->
# <!-- "the stall clocks double" if 1.9 < answer("exp in place of exp2")["stall_clocks_per_score"] / answer("reference")["stall_clocks_per_score"] < 2.1 -->
# <!-- 126 as definition -->
# <!-- "no kernel of the table has a causal mask" if "not causal" in load_record("answers")["problem"] -->

# %% tags=["given"]
@triton.jit
def slow_absorb(acc, m, l, q, k, v, scale, seen=None):
    """Add a block of 16-bit keys, as `absorb`. Correct, and slow."""
    s = tl.dot(q, tl.trans(k)) * scale
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp((s - m_new[:, None]) * 0.6931471805599453)  # 2^x as exp(x ln 2)
    old = tl.exp((m - m_new) * 0.6931471805599453)
    l = l * old + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None])
    return acc, m_new, l


@triton.jit
def slow_kernel(Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr,
                d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O (16 bits) and LSE (float32), with or without a causal mask."""
    first, c = tl.program_id(0) * BM, tl.arange(0, d)
    i = first + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    end = tl.minimum(first + BM, N) if CAUSAL else N
    for start in range(0, end, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        acc, m, l = slow_absorb(acc, m, l, q, k, v, scale, seen)
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


# %%
KINDS = ("FSETP", "ISETP", "FSEL", "FMUL", "FADD", "FFMA", "FMNMX", "MUFU")


def instructions(kernel):
    """Print the inner loop of a causal 16-bit kernel for an H200, per score."""
    x, row = torch.empty(4096, 64, dtype=torch.float16), torch.empty(4096)
    loop = gpu.resources(kernel, 90, x, x, x, x, row, 4096, 0.18, CAUSAL=True,
                         d=64, BM=128, BN=64, num_warps=4, num_stages=3).hot_loop
    scores = 128 * 64 // 128  # of one thread
    print(f"{loop.instructions / scores:.2f} instructions, "
          f"{loop.stall_clocks / scores:.1f} stall clocks")
    print(", ".join(f"{loop.named(kind) / scores:.2f} {kind}" for kind in KINDS), end=", ")
    print(f"{(loop.instructions - loop.named(*KINDS)) / scores:.2f} others")


instructions(slow_kernel)

# %% [markdown]
# It needs 19.06 instructions per score, and 7.8 would be enough. Each kind points to a line: `FSETP` to `tl.exp`, `ISETP` and `FSEL` to the mask, and `FMUL` to `tl.exp`, its factor $\ln 2$ and the scale. There are more than two `ISETP` per score, because the positions have 64 bits and one comparison takes two instructions. The others convert the weights to 16 bits, compute addresses, load tiles and multiply them.
#
# <!-- exercise 11G --> Repair the kernel without changing its results. The cell contains it again, with new names. Write your diagnosis as a comment, delete the line below it that raises an error, change the lines that cost the most, and add a loop if one is missing. The check compares values and types as in exercise 11F, and the words with (11.5). It accepts at most 8.3 instructions per score in the inner loop of the compiled kernel. If you are stuck after seven minutes, run `hint("11G")`.
# <!-- per_score = [float(n) for n in re.findall(r"([\d.]+) instructions, [\d.]+ stall clocks", checkout("solutions/11b_gpu_tile_sizes.ipynb"))] -->
# <!-- 19.06, 7.8 = per_score[0], per_score[1] -->
# <!-- 8.3 = lesson11.FEW["3.7.1"][1] -->

# %% [raw] name="about-11G"
# title = "Where the instructions go"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "Three lines of the helper and one loop of the kernel cost more than they must. Which of them computes something that the result does not need, or that a cheaper line computes too?",
#   "scale already contains log2(e), so 2^x is all you need. Keep the scores unscaled until the line that subtracts the maximum; the maximum of the unscaled scores is scaled once per row.",
#   "Where do the full blocks of a program end, with and without a causal mask? Run a first loop up to there that passes no mask, neither to the loads nor to the helper, and let the masked loop begin at its end. Exercise 11B has these borders.",
# ]

# %% tags=["exercise"] name="ex-11G"
@triton.jit
def lean_absorb(acc, m, l, q, k, v, scale, seen=None):
    """Add a block of 16-bit keys, as `absorb`."""
    ### BEGIN SOLUTION your diagnosis; then delete the next line and repair what follows
    # exp tests for denormals; the scale cost a multiplication; full blocks were masked.
    ### END SOLUTION
    s = tl.dot(q, tl.trans(k))  #> s = tl.dot(q, tl.trans(k)) * scale
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1) * scale)  #> m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s * scale - m_new[:, None])  #> p = tl.exp((s - m_new[:, None]) * 0.6931471805599453)  # 2^x as exp(x ln 2)
    old = tl.exp2(m - m_new)  #> old = tl.exp((m - m_new) * 0.6931471805599453)
    l = l * old + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None])
    return acc, m_new, l


@triton.jit
def lean_kernel(Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr,
                d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O (16 bits) and LSE (float32), with or without a causal mask."""
    first, c = tl.program_id(0) * BM, tl.arange(0, d)
    i = first + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    full = (first + 1 if CAUSAL else N) // BN * BN  #>
    for start in range(0, full, BN):  #>
        j = start + tl.arange(0, BN)  #>
        k = tl.load(K + j[:, None] * d + c)  #>
        v = tl.load(V + j[:, None] * d + c)  #>
        acc, m, l = lean_absorb(acc, m, l, q, k, v, scale)  #>
    end = tl.minimum(first + BM, N) if CAUSAL else N
    for start in range(full, end, BN):  #> for start in range(0, end, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        acc, m, l = lean_absorb(acc, m, l, q, k, v, scale, seen)
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_lean_attention(Q, K, V, causal, BM, BN):
    """O (N, d), of the type of Q, and LSE (N,). Q, K, V (N, d): contiguous 16-bit tensors."""
    N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)
    lean_kernel[(triton.cdiv(N, BM),)](
        Q, K, V, O, LSE, N, 1.4426950408889634 * d**-0.5, CAUSAL=causal,
        d=d, BM=BM, BN=BN, num_warps=4, num_stages=3)
    return O, LSE


# %% tags=["check"] name="check-11G"
check("11G", my_lean_attention)

# %%
attempt(instructions, lean_kernel)

# %% [markdown]
# In a repaired kernel the inner loop has no comparison per score; a few for the loop itself remain. These are counts, not times. In the record above, the scale needs 1.12 times the instructions and 1.02 times the time; `tl.exp` needs 1.68 times the instructions and 1.89 times the time.
#
# ## 11.15 A kernel to repair
#
# The next kernel is a causal forward pass in one loop, with three bugs. Run the cell, but do not read its code yet; it appears again in exercise 11E. Read the report below it first. It is for 128 queries in tiles of $32 \times 16$.
#
# <!-- grown = lambda text, field: answer(text)[field] / answer("reference")[field] -->
# <!-- 1.12, 1.02 = (grown("scale before the maximum", field) for field in ("instructions_per_score", "ms")) -->
# <!-- 1.68, 1.89 = (grown("exp in place of exp2", field) for field in ("instructions_per_score", "ms")) -->
# <!-- 32 \times 16 as input -->

# %% tags=["given"]
@triton.jit
def found_kernel(Q, K, V, O, LSE, N, scale,
                 d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE; query i attends to keys 0 to i. Three lines are wrong."""
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
print("closed form:", due, sep="\n")


def report(launcher):
    """Print the ledger of a launch, its excess, and the number of correct rows."""
    with traffic.count() as ledger:
        O, LSE = launcher(*map(torch.from_numpy, arrays), BM, BN)
    right_O = abs(O.numpy() - exact.softmax(S) @ arrays[2]).max(axis=1) < 1e-5
    right_LSE = abs(LSE.numpy() - exact.log_sum_exp(S)) < 1e-5
    print(ledger, f"excess: {ledger.bytes - due.bytes:,} bytes", sep="\n")
    print(f"correct rows, of {N}: {right_LSE.sum()} of LSE, {right_O.sum()} of O")
    print(f"rows 0 to {BN - 1} of O are correct: {right_O[:BN].all()}")
    return ledger


found = report(lambda Q, K, V, BM, BN: launched(found_kernel, Q, K, V, BM, BN))

# %% [markdown]
# Compare the words read with the closed form, array by array. How often is the tile of $Q$ loaded? How far does the loop run? Then compare the rows. Every log-sum-exp is correct, but $O$ is correct only in some rows, among them rows 0 to 15. What do these rows have in common?
#
# **Predict** (compute). How many iterations does each program execute? And if only the end of the loop were repaired, how many excess words of $Q$ would remain?

# %% tags=["predict"]
predict("11.15", iterations=8, excess=8192)  #> predict("11.15", iterations=..., excess=...)

# %%
needed = due.reads["K"] // (BN * d)  # iterations of all programs together
measured("11.15", iterations=found.reads["Q"] // (N * d), excess=needed * BM * d - N * d)
first = S.argmax(axis=1) < BN
print(f"rows whose largest score is in the first block of keys: {first.sum()}")

# %% [markdown]
# <details><summary>Three bugs in one report</summary>
#
# $Q$ is read 8 times, 16,384 words instead of 2,048, so its tile is loaded in every iteration. A program executes 8 iterations, one per block of keys. So the loop runs to the last key, and $K$ and $V$ are read beyond the diagonal, 8,192 words each instead of 5,120. If the loop ended at the diagonal, the programs would execute 20 iterations together instead of 32. $Q$ would be read in each of them, still 8,192 words too many.
#
# The third bug moves no words. Rows 0 to 15 attend only to keys of the first block, and they are correct. Every log-sum-exp, which uses the maximum and the sum, is also correct. And 53 rows of $O$ are correct, as many as have their largest score in the first block. Which value must an iteration change when the maximum rises?
#
# </details>
#
# <!-- exercise 11E --> Repair the kernel. Write your diagnosis as a comment, delete the line below it that raises an error, and change as few lines as you can. The loop of a program ends at the *end* of (11.4). The check compares values and the words of (11.5), also for other sizes. If you are stuck after six minutes, run `hint("11E")`.
#
# <!-- 32 = 4 * 8 -->
# <!-- 8 = len(range(0, 128, 16)) -->

# %% [raw] name="about-11E"
# title = "A kernel to repair"
# difficulty = 2
# importance = 3
# minutes = 10
# hints = [
#   "The bugs are in three places of the kernel. Which loads are in the loop, and for which of them does the address change from one iteration to the next?",
#   "Which is the last key that the last row of a program attends to, and where do the keys end? The loop ends at the smaller of these positions; see formula (11.4) for the end of program t.",
#   "Two values are carried between iterations relative to the old maximum: the sum and the accumulator. Compare how each of them is rescaled to the new maximum.",
# ]

# %% tags=["exercise"] name="ex-11E"
@triton.jit
def repaired_kernel(Q, K, V, O, LSE, N, scale,
                    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE; query i attends to keys 0 to i."""
    ### BEGIN SOLUTION your diagnosis; then delete the next line and repair what follows
    # Q was loaded in every iteration; the loop passed the diagonal; acc was not rescaled.
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
# The excess is gone, and all rows are correct.
#
# ## Misconceptions
#
# - **"The best tile is the one with the fewest words."** The $64 \times 64$ tile moves more words by a factor of 1.97, and it is faster (11.13).
# - **"FlashAttention is memory-bound, since it is about memory."** By (11.10) it would be, on all three chips. But most of its words are served by L2, not HBM (11.12).
# - **"Fewer instructions are proportionally less time."** For the scale, the record has 1.12 times the instructions and 1.02 times the time; for `tl.exp`, 1.68 and 1.89 (11.14).
# - **"Three wrong lines in a ledger are three bugs."** $K$ and $V$ had one bug in common, and the third bug moved no words (11.15).
#
# ## Take-away
#
# - Under a band, a row can have $m = -\infty$ in its first blocks, or $\ell = 0$ at the end; both need care. One grid axis numbers blocks, heads and batches, and strides give the addresses.
# - The formula counts the words that programs request. L2 and HBM deliver fewer.
# - Registers, shared memory, warps and blocks limit the programs per SM. More stages need more shared memory. No single number predicts the time of a tile.
# - Count instructions by kind: each kind points to a line of the kernel.
#
# ## References
#
# - J. Shah, G. Bikshandi, Y. Zhang, V. Thakkar, P. Ramani, T. Dao: *FlashAttention-3*, 2024, [arXiv 2407.08608](https://arxiv.org/abs/2407.08608). It computes the softmax of one half of a program during the products of the other half.
# - S. Williams, A. Waterman, D. Patterson: *Roofline*, Communications of the ACM 52(4), 2009.
# - NVIDIA: *CUDA C++ Programming Guide*, "Compute Capabilities", for the limits of an SM; data sheets of T4, A100 and H200, for peak rates and bandwidths (`iocourse.gpu.CHIPS` names the sources); [*NVIDIA Hopper architecture in-depth*](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/).
#
# **What comes next.** <!-- next --> Lessons 14 and 14c compare times measured on a GPU.
# <!-- 1.97 = costs.flash2(4096, 128, Br=64, Bc=64).total / costs.flash2(4096, 128, Br=128, Bc=128).total -->
# <!-- 64 \times 64 = tile("forward", 90, 128) -->
# <!-- "it is faster" if tried[64, 64, 4, 3][0] < tried[128, 128, 8, 3][0] -->
# <!-- 1.12, 1.02 = (grown("scale before the maximum", field) for field in ("instructions_per_score", "ms")) -->
# <!-- 1.68, 1.89 = (grown("exp in place of exp2", field) for field in ("instructions_per_score", "ms")) -->
