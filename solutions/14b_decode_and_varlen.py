# %% [markdown]
# # 14b Decoding and packed sequences
#
# You write two kernels of a server that generates text: one that merges partial results of a long KV cache, and one for sequences of different lengths that loads no padding.
#
# **What you will learn**
#
# - to explain from FLOPs and bytes why a decode step is memory-bound;
# - to split the keys of one query over many programs, and to merge the partial results;
# - to pack sequences of different lengths, so that no program loads padding or words of another sequence.
#
# **Prerequisites**: lesson 03 (merging partial results), [lesson 11](11_flash_attention_forward_triton.ipynb), [lesson 11b](11b_gpu_tile_sizes.ipynb); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes without 14D -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from itertools import pairwise

import numpy as np

from iocourse import exact, masks
from iocourse.costs.kernels import KernelProblem, attention_decode, attention_forward
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source

rng = np.random.default_rng(14)

# %%
explore.mask_tiles(masks.Causal(32), 1, 8,
                   title="A decode step is the last row; here its keys are in 4 parts")

# %% [markdown]
# ## 14.10 A decode step
#
# A language model generates one token at a time. For the new token, each layer computes one query, one key and one value per head. It appends the key and the value to the *KV cache*, the array in HBM that stores them for all tokens so far. Then the query attends to all $N$ keys. This is a *decode step*, the last row of causal attention in the figure.
#
# One query needs $4Nd$ FLOPs, two for each word of $K$ and $V$. If $g = H/H_{kv}$ heads of queries share a head of keys (section 11.10), one program can hold their $g$ queries in one tile. Then each word of $K$ and $V$ is read once per step and used $g$ times. $q$ and $O$ are small. With $\beta$ bytes per word, the arithmetic intensity is
#
# $$ I = \frac{4gNd}{2\beta Nd} = \frac{2g}{\beta} . \tag{14.4} $$
# <!-- (14.4) I = roofline.arithmetic_intensity(roofline.flops("forward", B=1, H=g, N=N, d=d) / N, beta * (step.reads["K"] + step.reads["V"])) with step = kernel_costs.attention_decode(kernel_costs.KernelProblem(1, N, d, H=g, H_kv=1), parts=1) -->
#
# **Predict** (compute). 32 heads of queries, 16 bits. How many FLOPs per byte does a decode step have with 32 heads of keys, and with 8?

# %% tags=["predict"]
predict("14.10", kv_heads_32=1, kv_heads_8=4)  #> predict("14.10", kv_heads_32=..., kv_heads_8=...)

# %%
H, N, d = 32, 32768, 128
intensity = {}
for H_kv in (32, 8, 1):
    step = attention_decode(KernelProblem(1, N, d, H=H, H_kv=H_kv), parts=1)
    intensity[f"H_kv = {H_kv}"] = 4 * H * N * d / (2 * (step.reads["K"] + step.reads["V"]))
measured("14.10", kv_heads_32=intensity["H_kv = 32"], kv_heads_8=intensity["H_kv = 8"])
explore.roofline(90, intensity, title="A decode step with 32 heads of queries, 16 bit")


# %% [markdown]
# <details><summary>The intensity of a decode step</summary>
#
# 1 and 4 FLOPs per byte. $N$ and $d$ cancel, so no length and no head size changes this.
# <!-- decoding = lambda H_kv: roofline.arithmetic_intensity(4 * 32 * 4096 * 64, 2 * 2 * kernel_costs.attention_decode(kernel_costs.KernelProblem(1, 4096, 64, H=32, H_kv=H_kv), parts=1).reads["K"]) -->
# <!-- 1, 4 = decoding(32), decoding(8) -->
#
# </details>
#
# All three points are left of the ridge point, 206 FLOPs per byte on an H200. So a decode step is memory-bound, and its time cannot be shorter than that of one read of $K$ and $V$. A larger tile or a larger L2 cache does not help, because a step needs every word of $K$ and $V$ exactly once. Only fewer bytes help, by fewer heads of keys or fewer bytes per word. A kernel can at best use the full bandwidth of HBM, and that needs all SMs.
# <!-- 206 = roofline.ridge_point(CHIPS[90]) -->
# <!-- "All three points are left of the ridge point" if max(decoding(heads) for heads in (32, 8, 1)) < roofline.ridge_point(CHIPS[90]) -->
# <!-- "cannot be shorter" as definition -->
#
# ## 14.11 Split-KV
#
# If one program processes all keys of a head, a decode step has one program per sequence and head of keys. For one sequence with $H_{kv} = 8$ these are eight programs. An H200 has 132 SMs, so 124 are idle. To use the full bandwidth of 4,800 GB/s, each of the eight SMs would have to load 600 GB/s.
# <!-- processors = device("decode")["multiprocessors"] -->
# <!-- 132, 124 = processors, processors - 8 -->
# <!-- 4,800, 600 = CHIPS[90].gbytes_per_s, CHIPS[90].gbytes_per_s / 8 -->
#
# The effect has been measured on a kernel with such a grid, *SDPA efficient* of PyTorch ([its source](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h)): one program per sequence and head. In the record `decode`, it runs with $H = H_{kv} = 32$ and $N = 32768$, for $B = 1$ sequence and for $B = 8$. (The first line of the output states whether kernels of the library have changed since. The times are those of the recorded code.)
#
# **Predict** (guess). The second step moves eight times the bytes. What is the ratio of the two times?

# %% tags=["predict"]
predict("14.11", ratio=8)  #> predict("14.11", ratio=...)

# %%
record = load_record("decode")


def recorded_us(contender, B, H_kv=32):
    """Microseconds of a recorded step: 32,768 keys, d = 128, 32 heads of queries."""
    (row,) = (row for row in record["rows"] if row["contender"] == contender
              and (row["N"], row["B"], row["H_kv"]) == (32768, B, H_kv))
    return row["us"]


print(record_source(record))
few, many = (recorded_us("SDPA efficient", B) for B in (1, 8))
print(f"SDPA efficient: 32 programs {few:,.0f} µs, 256 programs {many:,.0f} µs")
measured("14.11", ratio=many / few)

# %% [markdown]
# <details><summary>Eight times the bytes</summary>
#
# Only 1.50. With 32 programs, at least 100 of the 132 SMs were idle.
# <!-- efficient = [row("decode", N=32768, B=B, H_kv=32, contender="SDPA efficient") for B in (1, 8)] -->
# <!-- 1.50 = efficient[1]["us"] / efficient[0]["us"] -->
# <!-- 32, 132, 100 = efficient[0]["H"], processors, processors - efficient[0]["H"] -->
#
# </details>
#
# *Split-KV* (Flash-Decoding) creates more programs: it divides the keys of a head into *parts*, and each program processes one part. With 16 parts and 8 heads of keys there are 128 programs. In the figure, each row is a head of keys:
# <!-- 128 = 8 * 16 -->

# %%
explore.program_grid(8, 32768, 1, 2048,
                     title="8 heads of keys, 32,768 keys each in 16 parts: 128 programs")


# %% [markdown]
# Each program computes attention over the keys of its part: the outputs $O_p$ and the log-sum-exps $L_p$. Lesson 03 merged two such partial results. For any number of parts,
#
# $$ L = \log \sum_p e^{L_p}, \qquad O = \sum_p e^{L_p - L}\, O_p . \tag{14.5} $$
# <!-- (14.5) not evaluated: sum over a set -->
#
# The weight of a part, $e^{L_p - L}$, is its fraction of the row sum. $e^{L_p}$ alone could overflow, so the code subtracts the largest $L_p$ first, as in any softmax.
#
# **Predict** (compute). One part has $L_1 = 5$ and $O_1 = 0$, another $L_2 = 5 + \log 3$ and $O_2 = 4$ ($d = 1$). What is $O$?

# %% tags=["predict"]
predict("14.11b", O=3)  #> predict("14.11b", O=...)

# %%
def merge(O_parts, L_parts):
    """O (group, d) and L (group,) from O_parts (parts, group, d), L_parts (parts, group)."""
    m = L_parts.max(axis=0)
    weights = np.exp(L_parts - m)                   # (parts, group)
    total = weights.sum(axis=0)
    return (weights[:, :, None] * O_parts).sum(axis=0) / total[:, None], m + np.log(total)


O, L = merge(np.array([[[0.0]], [[4.0]]]), np.array([[5.0], [5 + np.log(3)]]))
measured("14.11b", O=float(O[0, 0]))

# %% [markdown]
# <details><summary>The merged output</summary>
#
# 3. The second part has three times the weight of the first: $\frac14 \cdot 0 + \frac34 \cdot 4$.
#
# </details>
#
# The next cell computes a decode step in NumPy. `with_keys` adds one block of keys by the online softmax; `part` is its loop over the keys of one part, for the queries of a group.

# %% tags=["listing"]
def with_keys(acc, m, l, q, k, v):
    """Add a block of keys: new acc (rows, d), m and l (rows,)."""
    s = q @ k.T                                     # (rows, keys)
    m_new = np.maximum(m, s.max(axis=1))
    p, old = np.exp(s - m_new[:, None]), np.exp(m - m_new)
    return acc * old[:, None] + p @ v, m_new, l * old + p.sum(axis=1)


def part(number, q, K, V, length, BN):
    """O and L of q (group, d) over `length` keys from key number · length on."""
    q = q / np.sqrt(q.shape[1])
    acc, m, l = np.zeros_like(q), np.full(len(q), -np.inf), np.zeros(len(q))
    stop = min((number + 1) * length, len(K))
    for start in range(number * length, stop, BN):
        j = slice(start, min(start + BN, stop))
        acc, m, l = with_keys(acc, m, l, q, K[j], V[j])
    return acc / l[:, None], m + np.log(l)


# %%
q, K, V = rng.standard_normal((4, 64)), *rng.standard_normal((2, 1000, 64))
for parts in (1, 4, 16):
    length = -(-len(K) // (parts * 16)) * 16        # a multiple of the block of 16 keys
    found = [part(number, q, K, V, length, BN=16) for number in range(-(-len(K) // length))]
    O, L = merge(*(np.array(x) for x in zip(*found, strict=True)))
    error = abs(O - exact.attention(q, K, V)).max()
    print(f"parts: {len(found):2}, largest error below 1e-12: {error < 1e-12}")


# %% [markdown]
# Split-KV moves extra words. Each part reads the queries again and writes $O_p$ and $L_p$ in float32; the merge reads them. For 32 heads of queries and 8 heads of keys in 16 bits, with 16 parts:

# %%
problem = KernelProblem(1, 32768, 128, H=32, H_kv=8)
split = attention_decode(problem, parts=16)
keys = split.reads["K"] + split.reads["V"]
between = split.reads["O_parts"] + split.reads["LSE_parts"]
again = split.reads["Q"] - 32 * 128
extra = 2 * 4 * between + 2 * again
print(f"K and V: {keys:,} words; partial results: {between:,} words written and read again; "
      f"queries read again: {again:,}; {extra / (2 * keys):.2%} of the bytes of K and V")


# %% [markdown]
# The extra words are 0.49 % of the bytes of $K$ and $V$. Their number grows with the parts and not with $N$, so the percentage is larger for a short cache. The library takes as many parts as give each SM two programs, rounded down, but at most 64.
# <!-- split = kernel_costs.attention_decode(kernel_costs.KernelProblem(1, 32768, 128, H=32, H_kv=8), parts=16) -->
# <!-- percent = 100 * (2 * 4 * (split.reads["O_parts"] + split.reads["LSE_parts"]) + 2 * (split.reads["Q"] - 32 * 128)) / (2 * (split.reads["K"] + split.reads["V"])) -->
# <!-- 0.49 = percent -->
# <!-- 64 = kernels.host.launches.enough_parts(processors, 1) -->
# <!-- "The library takes as many parts as give each SM two programs" if kernels.host.launches.enough_parts(processors, 8, 1000) == 2 * processors // 8 -->
#
# ## 14.12 The merge as a kernel
#
# The cells of sections 14.12, 14.13 and 14.15 run Triton kernels in the interpreter, which counts their words. Without Triton, each of them prints in one line what to install.

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
# `absorb` is that of exercise 11C. `parts_kernel` computes the partial results: one program per part of a head of keys, and the queries of the group are the rows of its tile. A tensor core multiplies at least 16 rows at a time, so the tile has `ROWS` $\ge 16$ rows. Rows past the group are masked: they are multiplied, but move no words.

# %% tags=["given"]
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """Exercise 11C: add a block of keys, and return acc (BM, d), m (BM,), l (BM,).

    q (BM, d), k and v (BN, d): loaded tiles. scale: log2(e)/√d. seen: True where a pair is
    visible, of a shape that broadcasts to (BM, BN); None for a full block.
    """
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


# %% tags=["given", "listing"]
@triton.jit
def parts_kernel(Q, K, V, O_parts, LSE_parts, parts, length, group, N, scale,
                 d: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr):
    """O and LSE of one part of the keys of one head, for the queries that share them."""
    part, pair = tl.program_id(0) % parts, tl.program_id(0) // parts
    i, c = tl.arange(0, ROWS), tl.arange(0, d)
    q = tl.load(Q + (pair * group + i[:, None]) * d + c, mask=i[:, None] < group, other=0.0)
    acc = tl.zeros((ROWS, d), dtype=tl.float32)
    m = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((ROWS,), dtype=tl.float32)
    stop = tl.minimum((part + 1) * length, N)
    for start in range(part * length, stop, BN):
        j = start + tl.arange(0, BN)
        at = (pair * N + j[:, None]) * d + c        # (BN, d) offsets in K and V
        k = tl.load(K + at, mask=j[:, None] < stop, other=0.0)
        v = tl.load(V + at, mask=j[:, None] < stop, other=0.0)
        acc, m, l = absorb(acc, m, l, q, k, v, scale, j[None, :] < stop)
    to = (pair * parts + part) * group + i          # (ROWS,) rows of O_parts
    tl.store(O_parts + to[:, None] * d + c, acc / l[:, None], mask=i[:, None] < group)
    tl.store(LSE_parts + to, (m + tl.log2(l)) * 0.6931471805599453, mask=i < group)


# %% [markdown]
# A `pair` is a sequence and one of its heads of keys. The results are `O_parts` (pairs, parts, group, $d$) and `LSE_parts` (pairs, parts, group), both float32, with natural logarithms. `merge_kernel` needs no `tl.dot`. It has one program per head of queries, which loads all parts of that head as one tile, (PARTS, $d$). Then (14.5) needs `tl.max` and `tl.sum` over the first axis.
#
# (Exercises 14A and 14B are in lesson 14c.) There are three cases to consider:
#
# - Two parts of one head are not adjacent in memory, because the other heads of the group are stored between them.
# - `parts` is any number, and PARTS is a power of two. Rows past the last part must have weight 0.
# - A part can have no visible key, for example under a mask. Then its $L_p$ is $-\infty$ and its $O_p$ is 0. If this holds for all parts of a head, the result is $O = 0$ and $L = -\infty$.
#
# <!-- exercise 14C --> Write the kernel. It reads each word of the partial results at most once and writes each result once. With $R = \text{pairs} \cdot \text{group}$ heads of queries, these are $R \cdot \text{parts} \cdot (d + 1)$ words read and $R(d+1)$ written. $L$ is a natural logarithm. If you are stuck after eight minutes, run `hint("14C")` in a new cell.

# %% [raw] name="about-14C"
# title = "A merge kernel for split-KV"
# difficulty = 3
# importance = 5
# minutes = 14
# hints = [
#   "Rewrite the NumPy merge for one head: a column of log-sum-exps and a tile of outputs, (PARTS, d). What is the distance in rows of O_parts between one part of a head and the next?",
#   "O_parts is (pairs, parts, group, d): the row of a part is (pair · parts + part) · group + head within the group. LSE_parts has one number per row. Lanes past the last part must have weight 0: choose their log-sum-exp accordingly.",
#   "The largest log-sum-exp may be -inf: subtract 0 then. In that case all weights and their sum are 0: divide by 1 instead, and set LSE to -inf. Otherwise LSE is the largest one plus the logarithm of the sum.",
# ]

# %% tags=["exercise"] name="ex-14C"
@triton.jit
def merge_kernel(O_parts, LSE_parts, O, LSE, parts, group,
                 d: tl.constexpr, PARTS: tl.constexpr):
    """One row of O and one number of LSE. PARTS: a power of two, not less than parts."""
    pair, member = tl.program_id(0) // group, tl.program_id(0) % group
    p, c = tl.arange(0, PARTS), tl.arange(0, d)
    ### BEGIN SOLUTION offsets of the parts, their weights, two sums, two stores
    at = (pair * parts + p) * group + member        # (PARTS,) rows of O_parts
    L = tl.load(LSE_parts + at, mask=p < parts, other=float("-inf"))
    o = tl.load(O_parts + at[:, None] * d + c, mask=p[:, None] < parts, other=0.0)
    m = tl.max(L, 0)
    m = tl.where(m == float("-inf"), 0.0, m)
    weights = tl.exp(L - m)                         # (PARTS,)
    total = tl.sum(weights, 0)
    safe = tl.where(total == 0.0, 1.0, total)
    row = pair * group + member
    tl.store(O + row * d + c, tl.sum(weights[:, None] * o, 0) / safe)
    tl.store(LSE + row, tl.where(total == 0.0, float("-inf"), m + tl.log(safe)))
    ### END SOLUTION


def my_merge(O_parts, LSE_parts):
    """O (pairs, group, d) and LSE (pairs, group), from contiguous float32 parts."""
    pairs, parts, group, d = O_parts.shape
    O, LSE = torch.empty((pairs, group, d)), torch.empty((pairs, group))
    merge_kernel[(pairs * group,)](O_parts, LSE_parts, O, LSE, parts, group,
                                   d=d, PARTS=triton.next_power_of_2(parts))
    return O, LSE


# %% tags=["check"] name="check-14C"
check("14C", my_merge)

# %% [markdown]
# ## 14.13 A decode step, counted and timed
#
# The two kernels together are a decode step. The next cells compare the words of your step with those of the library's `kernels.decode` and with the closed form.

# %%
def my_decode(q, k, v, parts, BN=64):
    """O (B, H, 1, d) and LSE (B, H, 1) of q (B, H, 1, d) against k, v (B, H_kv, N, d)."""
    (B, H, _, d), (_, H_kv, N, _) = q.shape, k.shape
    pairs, group = B * H_kv, H // H_kv
    length = triton.cdiv(triton.cdiv(N, BN), parts) * BN
    parts = triton.cdiv(N, length)
    O_parts, LSE_parts = torch.empty(pairs, parts, group, d), torch.empty(pairs, parts, group)
    parts_kernel[(pairs * parts,)](q, k, v, O_parts, LSE_parts, parts, length, group, N,
                                   1.4426950408889634 * d**-0.5, d=d, BN=BN,
                                   ROWS=max(16, triton.next_power_of_2(group)))
    O, LSE = my_merge(O_parts, LSE_parts)
    return O.view(q.shape), LSE.view(B, H, 1)


def counted(launcher, *arguments, **keywords):
    """The ledger of a launch, and its results."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


# %%
H, N, d = 8, 500, 64
for H_kv in (8, 2, 1):
    q, k, v = (torch.from_numpy(rng.standard_normal((1, *size, d)).astype(np.float32))
               for size in ((H, 1), (H_kv, N), (H_kv, N)))
    mine = attempt(counted, my_decode, q, k, v, 4)
    theirs = counted(kernels.decode, q, k, v, parts=4)
    formula = attention_decode(KernelProblem(1, N, d, H=H, H_kv=H_kv), parts=4)
    apart = abs(mine[1][0] - theirs[1][0]).max()
    print(f"H_kv = {H_kv}: yours {mine[0].total:7,} words, library {theirs[0].total:7,}, "
          f"closed form {formula.total:7,}; same values to 1e-6: {apart < 1e-6}")


# %% [markdown]
# 518,728 words, then 134,728, then 70,728. $K$ and $V$ have 64,000 words per head of keys, and each is read once for all queries of the group. The other 6,728 words are queries, partial results and the output, the same in all three lines.
# <!-- step = lambda H_kv: kernel_costs.attention_decode(kernel_costs.KernelProblem(1, 500, 64, H=8, H_kv=H_kv), parts=4) -->
# <!-- 518,728, 134,728, 70,728 = (step(H_kv).total for H_kv in (8, 2, 1)) -->
# <!-- 64,000 = step(1).reads["K"] + step(1).reads["V"] -->
# <!-- 6,728 = step(1).total - 64_000 -->
# <!-- "the same in all three lines" if len({step(H_kv).total - H_kv * 64_000 for H_kv in (8, 2, 1)}) == 1 -->
#
# The record of section 14.11 also has times of the library's split-KV step and of two other kernels of PyTorch, SDPA flash (FlashAttention-2) and SDPA cuDNN (NVIDIA's library), for one sequence:

# %%
for contender in ("SDPA efficient", "SDPA flash", "SDPA cuDNN", "split-KV"):
    print(f"{contender:15} {recorded_us(contender, B=1):7.1f} µs")

# %% [markdown]
# On an H200, split-KV with a second launch for the merge takes 142 µs and is 7.6 times as fast as SDPA efficient. These are different kernels, but the ratio is consistent with their programs, which are 256 by the rule above and 32. Each then reads 14.8 and 15.6 GB/s. SDPA flash takes 145 µs and SDPA cuDNN 129 µs; the record does not show how they divide the keys. The library's default at this size is now a merge by the last program of a head, 138 µs. Lesson 14c compares the recorded decode steps with their bytes.
# <!-- "On an H200" if device("decode")["name"] == "NVIDIA H200" -->
# <!-- us = lambda name: row("decode", N=32768, B=1, H_kv=32, contender=name)["us"] -->
# <!-- 142, 7.6 = us("split-KV"), us("SDPA efficient") / us("split-KV") -->
# <!-- 138 = us("last program merges") -->
# <!-- "default at this size is now a merge by the last program" if choice("decode step", launch(90, 128, heads=32)).value == "last program" -->
# <!-- 145, 129 = us("SDPA flash"), us("SDPA cuDNN") -->
# <!-- started = 32 * kernels.host.launches.enough_parts(processors, 32) -->
# <!-- 256, 32 = started, efficient[0]["H"] -->
# <!-- each_program = lambda name, programs: row("decode", N=32768, B=1, H_kv=32, contender=name)["gbytes_per_s"] / programs -->
# <!-- 14.8, 15.6 = each_program("split-KV", started), each_program("SDPA efficient", 32) -->
#
# ## 14.14 Packed sequences
#
# The sequences of a batch have different lengths. In a tensor $(B, H, N, d)$, the short ones are *padded* to the length of the longest. The rows of padding are stored, loaded and multiplied, and their results are discarded. An example with eight sequences:

# %%
lengths = [1000, 600, 350, 200, 120, 64, 30, 0]
longest, tokens = max(lengths), sum(lengths)
print(f"{len(lengths)} sequences, {tokens:,} tokens; padded {len(lengths) * longest:,} rows")

# %% [markdown]
# **Predict** (compute). Which fraction of the rows of the padded tensors are tokens? Which fraction of the pairs (query, key) is needed, if there is no mask within a sequence? (The sum of the squared lengths is 1,541,896.)
# <!-- 1,541,896 = sum(n * n for n in (1000, 600, 350, 200, 120, 64, 30, 0)) -->

# %% tags=["predict"]
predict("14.14", rows=0.3, pairs=0.2)  #> predict("14.14", rows=..., pairs=...)

# %%
measured("14.14", rows=tokens / (len(lengths) * longest),
         pairs=sum(n * n for n in lengths) / (len(lengths) * longest**2))


# %% [markdown]
# <details><summary>The share of the padding</summary>
#
# 0.2955 of the rows and 0.1927 of the pairs. The rest is padding.
# <!-- 0.2955, 0.1927 as output -->
#
# </details>
#
# *Packed* sequences are stored one after the other without gaps, in tensors $(\sum_s N_s, H, d)$. The cumulative lengths, called `cu_seqlens` in most libraries, give the first row of each sequence:

# %%
cu = np.concatenate([[0], np.cumsum(lengths)])
print("cu_seqlens", cu)

# %% [markdown]
# Sequence $s$ has the rows $cu_s$ to $cu_{s+1} - 1$. The last sequence is empty, so its two numbers are equal. Each program processes a block of queries of one sequence. It reads the two numbers of this sequence and loads only queries and keys between them. In NumPy, for one head:

# %% tags=["listing"]
def packed_program(sequence, block, Q, K, V, O, cu, BM, BN):
    """Compute BM rows of O of one sequence. Returns the words of Q, K and V read."""
    begin, end = cu[sequence], cu[sequence + 1]
    i = slice(begin + block * BM, min(begin + (block + 1) * BM, end))
    if i.start >= end:
        return 0                                    # this sequence has fewer blocks
    q = Q[i] / np.sqrt(Q.shape[1])
    acc, m, l, words = np.zeros_like(q), np.full(len(q), -np.inf), np.zeros(len(q)), q.size
    for start in range(begin, end, BN):
        j = slice(start, min(start + BN, end))
        acc, m, l = with_keys(acc, m, l, q, K[j], V[j])
        words += K[j].size + V[j].size
    O[i] = acc / l[:, None]
    return words


# %%
Q, K, V = rng.standard_normal((3, tokens, 64))
O = np.full_like(Q, np.nan)
words = sum(packed_program(sequence, block, Q, K, V, O, cu, 64, 64)
            for sequence in range(len(lengths)) for block in range(-(-longest // 64)))
right = all(abs(O[a:b] - exact.attention(Q[a:b], K[a:b], V[a:b])).max() < 1e-12
            for a, b in pairwise(cu) if a < b)
padded = attention_forward(KernelProblem(longest, longest, 64, B=len(lengths)), BM=64, BN=64)
print(f"every sequence is correct: {right}; {words:,} words read, padded {padded.read:,}")
print(f"ratio {words / padded.read:.4f}")

# %% [markdown]
# 3,381,248 words instead of 16,896,000, a ratio of 0.2001. By (11.1), sequence $s$ reads $N_sd + 2N_sd\lceil N_s/B_M\rceil$ words, and the programs read exactly the sum over the sequences. The ratio is larger than that of the pairs for two reasons: a partial last block of queries still loads all keys, and the words of $Q$ have the ratio of the rows. The grid has as many blocks per sequence as the longest one needs; a program without rows returns at once.
# <!-- lengths = (1000, 600, 350, 200, 120, 64, 30, 0) -->
# <!-- words = lambda problem: sum(kernel_costs.attention_forward(problem, BM=64, BN=64).reads[name] for name in "QKV") -->
# <!-- packed = words(costs.kernel_masks.PackedSequences(2364, 2364, 64, lengths=tuple((n, n) for n in lengths))) -->
# <!-- padded = words(kernel_costs.KernelProblem(1000, 1000, 64, B=len(lengths))) -->
# <!-- 3,381,248, 16,896,000, 0.2001 = packed, padded, packed / padded -->
# <!-- "By (11.1), sequence $s$ reads" if packed == sum(words(kernel_costs.KernelProblem(n, n, 64)) for n in lengths if n) -->
#
# ## 14.15 Packed sequences as a kernel
#
# The kernel is `packed_program` with heads. A packed tensor is $(\sum_s N_s, H, d)$, so the heads of one token are adjacent, and two consecutive tokens of one head are $Hd$ words apart. The grid has one axis. In a program id, the block of queries changes fastest, then the head, then the sequence. So programs of one head start one after the other and find its keys in L2 (lesson 14c).
# <!-- "changes fastest" as definition -->
#
# <!-- exercise 14D --> (Optional.) Write the kernel with `absorb`. Find the rows of the sequence, the rows of this program, and the blocks of keys.
#
# - Rows past the end of the sequence move no words, although another sequence may follow there.
# - A program without rows reads no word of $K$ or $V$. Sequences can be empty. (In a kernel, `if` may use a loaded number.)
# - Words: for $Q$, $K$, $V$ and $O$ those of (11.1), summed over the sequences, and at most two words of `cu` per program.
#
# `seen` may have the shape (1, BN). If you are stuck after eight minutes, run `hint("14D")` in a new cell. You can also skip this exercise and continue below its check.

# %% [raw] name="about-14D"
# title = "Packed sequences"
# difficulty = 4
# importance = 4
# minutes = 14
# hints = [
#   "Go through packed_program of section 14.14 line by line. Which two numbers of cu does a program need? Which rows does it process, counted over all sequences?",
#   "Rows of the program: start of the sequence + block · BM + 0 … BM - 1. All masks compare with the end of the sequence, not with the number of tokens. Blocks of keys start at the start of the sequence.",
#   "The distance between tokens is H · d elements, and a head starts head · d elements after its token. If the first row of the program is past the end of the sequence, the loop must not run: put it and the lines after it under an if.",
# ]

# %% tags=["exercise"] name="ex-14D"
@triton.jit
def packed_kernel(Q, K, V, O, cu, blocks, H, scale,
                  d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of one head of one sequence; `blocks` programs per head of each sequence."""
    block, pair = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    head, sequence = pair % H, pair // H
    c = tl.arange(0, d)
    ### BEGIN SOLUTION begin and end of the sequence, rows of this program, a loop over the keys
    begin, end = tl.load(cu + sequence), tl.load(cu + sequence + 1)
    i = begin + block * BM + tl.arange(0, BM)       # (BM,) rows, counted over all sequences
    if begin + block * BM < end:
        rows = (i[:, None] * H + head) * d + c      # (BM, d), as offsets
        q = tl.load(Q + rows, mask=i[:, None] < end, other=0.0)
        acc = tl.zeros((BM, d), dtype=tl.float32)
        m = tl.full((BM,), float("-inf"), dtype=tl.float32)
        l = tl.zeros((BM,), dtype=tl.float32)
        for start in range(begin, end, BN):
            j = start + tl.arange(0, BN)
            at = (j[:, None] * H + head) * d + c
            k = tl.load(K + at, mask=j[:, None] < end, other=0.0)
            v = tl.load(V + at, mask=j[:, None] < end, other=0.0)
            acc, m, l = absorb(acc, m, l, q, k, v, scale, j[None, :] < end)
        tl.store(O + rows, acc / l[:, None], mask=i[:, None] < end)
    ### END SOLUTION


def my_packed(Q, K, V, cu, longest, BM, BN):
    """O (tokens, H, d). Q, K, V alike, contiguous, float32; cu (sequences + 1,), int32."""
    H, d = Q.shape[1:]
    O, blocks = torch.empty_like(Q), triton.cdiv(longest, BM)
    programs = (len(cu) - 1) * H * blocks
    packed_kernel[(programs,)](Q, K, V, O, cu, blocks, H, 1.4426950408889634 * d**-0.5,
                               d=d, BM=BM, BN=BN)
    return O


# %% tags=["check"] name="check-14D"
check("14D", my_packed)

# %% [markdown]
# The next cell compares its ledger with that of the library's `kernels.attention_varlen` and with a padded batch. (The library's kernel has separate `cu_q` and `cu_k`, masks, windows and a backward pass, and also stores the log-sum-exp.)

# %%
lengths, H, d, BM = [150, 90, 40, 0, 17], 2, 32, 32
cu = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int32)
q, k, v = torch.from_numpy(rng.standard_normal((3, sum(lengths), H, d)).astype(np.float32))
mine = attempt(counted, my_packed, q, k, v, cu, max(lengths), BM, BM)
with kernels.using(forward=(BM, BM)):
    theirs = counted(kernels.attention_varlen, q, k, v, cu, cu)
padded = attention_forward(KernelProblem(150, 150, d, B=5, H=H, H_kv=H), BM=BM, BN=BM)


def of_rows(ledger):
    """Words of Q, K, V and O, without log-sum-exps and cu_seqlens."""
    return ledger.reads["Q"] + ledger.reads["K"] + ledger.reads["V"] + ledger.writes["O"]


same = abs(mine[1] - theirs[1]).max() < 1e-6
print(f"yours {of_rows(mine[0]):,} words, library {of_rows(theirs[0]):,}, "
      f"padded {of_rows(padded):,}; same values to 1e-6: {same}")


# %% [markdown]
# Both kernels move 180,992 words, and the padded batch 576,000, for the same outputs.
#
# The record `varlen` has the time on an H200: 16 sequences of 129 to 6,253 tokens, $d = 128$, compared with SDPA flash and SDPA cuDNN on the padded batch. The packed kernel is the library's, "packed by descriptors" in the record. A second line has 16 equal lengths, so nothing is padded.
# <!-- drawn = load_record("varlen")["lengths"]["log-uniform"] -->
# <!-- 16, 129, 6,253 = len(drawn), min(drawn), max(drawn) -->
# <!-- "on an H200" if device("varlen")["name"] == "NVIDIA H200" -->

# %%
print(record_source(load_record("varlen")))
for name in ("log-uniform", "equal"):
    ms = {row["contender"]: row["ms"] for row in load_record("varlen")["rows"]
          if (row["lengths"], row["d"], row["pass"]) == (name, 128, "forward")}
    timed = load_record("varlen")["lengths"][name]
    pairs = len(timed) * max(timed) ** 2 / sum(n * n for n in timed)
    flash, cudnn = (ms[f"SDPA {kernel}"] / ms["packed by descriptors"]
                    for kernel in ("flash", "cuDNN"))
    print(f"{name:11} padding multiplies the pairs by {pairs:.2f}; speed of the packed kernel "
          f"relative to flash {flash:.2f}, to cuDNN {cudnn:.2f}")

# %% [markdown]
# Packing saves a factor of 4.39 in pairs, and it is 4.95 times as fast as SDPA flash. The second line shows why the time gains more: without padding, the packed kernel is already 1.16 times as fast. $4.95/1.16 \approx 4.3$ remains for the padding, slightly less than 4.39. SDPA cuDNN is faster than SDPA flash. Packing is 2.57 times as fast as cuDNN on the padded batch, and at equal lengths cuDNN is 1.52 times as fast as the packed kernel.
# <!-- gain = lambda lengths: speeds("varlen", "SDPA flash", "packed by descriptors", d=128, lengths=lengths, pass_="forward")[0] -->
# <!-- 4.39 = 16 * max(drawn) ** 2 / sum(n * n for n in drawn) -->
# <!-- 4.95, 1.16, 4.3 = gain("log-uniform"), gain("equal"), gain("log-uniform") / gain("equal") -->
# <!-- cudnn = lambda lengths: speeds("varlen", "SDPA cuDNN", "packed by descriptors", d=128, lengths=lengths, pass_="forward")[0] -->
# <!-- 2.57, 1.52 = cudnn("log-uniform"), 1 / cudnn("equal") -->
# <!-- "SDPA cuDNN is faster than SDPA flash" if all(cudnn(lengths) < gain(lengths) for lengths in ("log-uniform", "equal")) -->
# <!-- "slightly less" if 0.9 < gain("log-uniform") / gain("equal") / (16 * max(drawn) ** 2 / sum(n * n for n in drawn)) < 1 -->
#
# ## Misconceptions
#
# - **"A decode step has one query, so it cannot be divided."** Its keys can be divided: 16 parts give 128 programs, for 0.49 % more bytes (14.11).
# <!-- 128 = 8 * 16 -->
# <!-- 0.49 = percent -->
# - **"A larger L2 cache makes decoding faster."** A decode step reads each word of $K$ and $V$ once, so a cache serves no second request within the step (14.10). It could serve the next step only if it held $K$ and $V$ of all layers.
# <!-- "makes decoding faster" as definition -->
# - **"Padding costs nothing if it is masked."** It is loaded and multiplied all the same. In the example, 19 % of the padded pairs were needed (14.14).
# <!-- 19 = 0.1927 * 10**2 -->
#
# ## Take-away
#
# - A decode step has $2g/\beta$ FLOPs per byte, at every length. It is memory-bound, and all SMs must load.
# - If there are too few programs, divide the keys into parts and merge $(O_p, L_p)$. The extra words are a closed form.
# - Packed sequences move and multiply no padding; each program reads its range from `cu_seqlens`.
#
# ## References
#
# - T. Dao, D. Haziza, F. Massa, G. Sizov: *Flash-Decoding for long-context inference*, 2023. Keys split over programs, and the merge.
# - J. Ainslie et al.: *GQA*, 2023, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245). Heads of queries that share keys.
# - NVIDIA: [*NVIDIA Hopper architecture in-depth*](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/), for the number of SMs.
#
# **What comes next.** <!-- next -->
