# %% [markdown]
# # 14b Decoding and packed sequences
#
# Two kernels whose I/O is nearly their whole cost, or nearly their whole point: one that merges what was found in parts of a long cache of keys, and one that runs over texts of different lengths without reading a word of padding. At the end the counters of a GPU, and what they would have to show.
#
# **What you will learn**
#
# - to split the keys of one query over many programs, and to merge the parts in a kernel;
# - to pack texts of different lengths, so that no program reads padding or a neighbour;
# - which counters stand behind the two lines of lesson 14, and what to compare them with.
#
# **Prerequisites**: lesson 11b, lesson 03 (merging partial results), lesson 11 (the forward kernel). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 14D -->.
#
# <!-- exercises -->
#
# Sections 14.7 and 14.8 run on any machine, in NumPy. From section 14.9 on cells need Triton, which is published for Linux only (Colab runs Linux); no GPU is needed.

# %% tags=["setup"]
from itertools import pairwise

import numpy as np

from iocourse import exact
from iocourse.costs.kernels import KernelProblem, attention_decode, attention_forward
from iocourse.course import attempt, check, explore, hint, measured, predict

# %% [markdown]
# ## 14.7 Too few programs
#
# Decode as section 14.4 has it makes one program for each text and head of keys: for one text and $H_{kv} = 8$, eight programs. An H200 has 132 multiprocessors. 124 of them would be idle, and (14.2) could be reached only if each of the other eight took in 600 GB/s. So the keys are cut into *parts*, and each program takes one part. With 16 parts there are 128 programs, a row of them for each head:
#
# <!-- processors = device("decode")["multiprocessors"] -->
# <!-- 132, 124, 600 = processors, processors - 8, CHIPS[90].gbytes_per_s / 8 -->
# <!-- 128 = 8 * 16 -->

# %%
explore.program_grid(8, 32768, 1, 2048,
                     title="8 heads of keys, 32,768 keys each in 16 parts: 128 programs")


# %% [markdown]
# What a program then has is attention over some of the keys: outputs $O_p$ and log-sum-exps $L_p$. Lesson 03 merged such results. For any number of parts,
#
# $$ L = \log \sum_p e^{L_p}, \qquad O = \sum_p e^{L_p - L}\, O_p . \tag{14.6} $$
# <!-- (14.6) not evaluated: sum over a set -->
#
# Each part's output counts by its share of the row sum. Since $e^{L_p}$ would overflow, the largest $L_p$ is subtracted first, as for any softmax.
#
# **Predict** (compute). One part has $L_1 = 5$ and $O_1 = 0$, another $L_2 = 5 + \log 3$ and $O_2 = 4$ ($d = 1$). What is $O$?

# %% tags=["predict"]
predict("14.7", O=3)  #> predict("14.7", O=...)

# %%
def merge(O_parts, L_parts):
    """O (group, d) and L (group,) from O_parts (parts, group, d), L_parts (parts, group)."""
    m = L_parts.max(axis=0)
    weights = np.exp(L_parts - m)                   # (parts, group)
    total = weights.sum(axis=0)
    return (weights[:, :, None] * O_parts).sum(axis=0) / total[:, None], m + np.log(total)


O, L = merge(np.array([[[0.0]], [[4.0]]]), np.array([[5.0], [5 + np.log(3)]]))
measured("14.7", O=float(O[0, 0]))

# %% [markdown]
# <details><summary>The two parts, merged</summary>
#
# 3: the second part has three times the weight, $\frac14 \cdot 0 + \frac34 \cdot 4$.
#
# </details>
#
# Now a decode step as programs. `part` is the loop of lesson 11 over some of the keys, for the queries of a group at once; `with_keys` is one round of it.

# %%
def with_keys(acc, m, l, q, k, v):
    """One tile of keys, as in section 11.1: new acc (rows, d), m and l (rows,)."""
    s = q @ k.T                                     # (rows, keys)
    m_new = np.maximum(m, s.max(axis=1))
    p, old = np.exp(s - m_new[:, None]), np.exp(m - m_new)
    return acc * old[:, None] + p @ v, m_new, l * old + p.sum(axis=1)


def part(number, q, K, V, length, BN):
    """O and L of keys number · length on, `length` of them, for the group q (group, d)."""
    q = q / np.sqrt(q.shape[1])
    acc, m, l = np.zeros_like(q), np.full(len(q), -np.inf), np.zeros(len(q))
    stop = min((number + 1) * length, len(K))
    for start in range(number * length, stop, BN):
        j = slice(start, min(start + BN, stop))
        acc, m, l = with_keys(acc, m, l, q, K[j], V[j])
    return acc / l[:, None], m + np.log(l)


# %%
rng = np.random.default_rng(14)
q, K, V = rng.standard_normal((4, 64)), *rng.standard_normal((2, 1000, 64))
for parts in (1, 4, 16):
    length = -(-len(K) // (parts * 16)) * 16        # whole tiles of 16 keys
    found = [part(number, q, K, V, length, BN=16) for number in range(-(-len(K) // length))]
    O, L = merge(*(np.array(x) for x in zip(*found, strict=True)))
    error = abs(O - exact.attention(q, K, V)).max()
    print(f"parts: {len(found):2}, largest error below 1e-12: {error < 1e-12}")


# %% [markdown]
# What does the split cost in words? Each part writes $O_p$ and $L_p$, and the merge reads them again; and each part reads the queries for itself. With 16 parts, 128 programs, for the layer of section 14.3:
# <!-- 128 = 8 * 16 -->

# %%
problem = KernelProblem(1, 32768, 128, H=32, H_kv=8)
one, many = (attention_decode(problem, parts=n) for n in (1, 16))
between = many.reads["O_parts"] + many.reads["LSE_parts"]
share = 2 * 4 * between / (2 * 2 * many.reads["K"])
print(f"K and V: {many.reads['K'] + many.reads['V']:,} words; between the kernels: {between:,} "
      f"words written and read again, {share:.1%} in bytes")


# %% [markdown]
# The parts are kept in float32, and still they are 0.4 percent of the bytes: a price well worth paying. It grows with the number of parts and not with $N$, so a short cache deserves fewer parts. The library takes as many as give each multiprocessor two programs.
# <!-- split = kernel_costs.attention_decode(kernel_costs.KernelProblem(1, 32768, 128, H=32, H_kv=8), parts=16) -->
# <!-- percent = 100 * 2 * 4 * (split.reads["O_parts"] + split.reads["LSE_parts"]) / (2 * (split.reads["K"] + split.reads["V"])) -->
# <!-- 0.4 = percent -->
# <!-- "The library takes as many as give each multiprocessor two programs" if kernels.host.launches.enough_parts(processors, 8, 1000) == 2 * processors // 8 -->
#
# ## 14.8 Texts of different length
#
# A batch holds texts, and texts have lengths of their own. To make a tensor $(B, H, N, d)$ of them, the short ones are *padded* to the length of the longest. The padding is stored, loaded, multiplied, and thrown away. Take eight texts:

# %%
lengths = [1000, 600, 350, 200, 120, 64, 30, 0]
longest, tokens = max(lengths), sum(lengths)
print(f"{len(lengths)} texts, {tokens:,} tokens; padded {len(lengths) * longest:,} rows")

# %% [markdown]
# **Predict** (compute). Which share of the rows of the padded tensors holds tokens? Which share of the pairs (query, key) is wanted?

# %% tags=["predict"]
predict("14.8", rows=0.3, pairs=0.2)  #> predict("14.8", rows=..., pairs=...)

# %%
measured("14.8", rows=tokens / (len(lengths) * longest),
         pairs=sum(n * n for n in lengths) / (len(lengths) * longest**2))


# %% [markdown]
# <details><summary>What padding wastes</summary>
#
# 0.2955 of the rows and 0.1927 of the pairs: where lengths differ, most of what padding moves and multiplies is nothing.
# <!-- 0.2955, 0.1927 as output -->
#
# </details>
#
# The other way is to *pack* the texts: one behind the other, without a gap, in tensors of $\sum_s N_s$ rows, $(\sum_s N_s, H, d)$. Where each begins and ends is said by the cumulated lengths, known in the field as `cu_seqlens`:

# %%
cu = np.concatenate([[0], np.cumsum(lengths)])
print("cu_seqlens", cu)

# %% [markdown]
# Text $s$ has the rows $cu_s$ to $cu_{s+1} - 1$; the last one here is empty, and two equal numbers say so. A program belongs to one text: it reads two of these numbers and keeps between them, for its queries and for its keys. In NumPy, with the words it reads:

# %%
def packed_program(text, tile, Q, K, V, O, cu, BM, BN):
    """BM rows of O of one text, one head. Returns the words of Q, K and V read."""
    begin, end = cu[text], cu[text + 1]
    i = slice(begin + tile * BM, min(begin + (tile + 1) * BM, end))
    if i.start >= end:
        return 0                                    # this text has fewer tiles
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
words = sum(packed_program(text, tile, Q, K, V, O, cu, 64, 64)
            for text in range(len(lengths)) for tile in range(-(-longest // 64)))
right = all(abs(O[a:b] - exact.attention(Q[a:b], K[a:b], V[a:b])).max() < 1e-12
            for a, b in pairwise(cu) if a < b)
padded = attention_forward(KernelProblem(longest, longest, 64, B=len(lengths)), BM=64, BN=64)
print(f"every text right: {right}; {words:,} words read, padded {padded.read:,}")
print(f"a share of {words / padded.read:.4f}")

# %% [markdown]
# 3,381,248 words instead of 16,896,000, a share of 0.2001: a little more than that of the pairs, since $Q$ goes with the rows and the last tile of a text is ragged. By (11.1) a text costs $N_sd + 2N_sd\lceil N_s/B_M\rceil$, and the sum over the texts is what the programs read: no row of padding, and none of a neighbour. The grid has as many tiles for every text as the longest one needs, and programs that have none of their own leave at once.
# <!-- lengths = (1000, 600, 350, 200, 120, 64, 30, 0) -->
# <!-- words = lambda problem: sum(kernel_costs.attention_forward(problem, BM=64, BN=64).reads[name] for name in "QKV") -->
# <!-- packed = words(costs.kernel_masks.PackedSequences(2364, 2364, 64, lengths=tuple((n, n) for n in lengths))) -->
# <!-- padded = words(kernel_costs.KernelProblem(1000, 1000, 64, B=len(lengths))) -->
# <!-- 3,381,248, 16,896,000, 0.2001 = packed, padded, packed / padded -->
# <!-- "By (11.1) a text costs" if packed == sum(words(kernel_costs.KernelProblem(n, n, 64)) for n in lengths if n) -->
#
# ## 14.9 The merge as a kernel
#
# From here on cells run Triton kernels, in the interpreter, on CPU tensors. Words can be counted there only, so the next cell asks for it before it imports Triton, even if you have a GPU. Where Triton is missing, that cell and each later one that needs it say in a line what to install; the others run.

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
# First the parts. `absorb` is one round, as you wrote it in lesson 11. In `parts_kernel` the tile of queries has the group's rows. A tensor core multiplies 16 rows at a time, and a tile of fewer would cost as much; so the tile has 16 at least, and a mask for those that exist. The others are multiplied, and no words move for them.

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


# %% tags=["given"]
@triton.jit
def parts_kernel(Q, K, V, O_parts, LSE_parts, parts, length, group, N, scale,
                 d: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr):
    """O and LSE of one part of the keys of one head, for the queries that share them."""
    part, pair = tl.program_id(0) % parts, tl.program_id(0) // parts
    i, c = tl.arange(0, ROWS), tl.arange(0, d)
    there = i[:, None] < group
    q = tl.load(Q + (pair * group + i[:, None]) * d + c, mask=there, other=0.0)
    acc = tl.zeros((ROWS, d), dtype=tl.float32)
    m = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((ROWS,), dtype=tl.float32)
    stop = tl.minimum((part + 1) * length, N)
    for start in range(part * length, stop, BN):
        j = start + tl.arange(0, BN)
        at = (pair * N + j[:, None]) * d + c
        k = tl.load(K + at, mask=j[:, None] < stop, other=0.0)
        v = tl.load(V + at, mask=j[:, None] < stop, other=0.0)
        acc, m, l = absorb(acc, m, l, q, k, v, scale, j[None, :] < stop)
    to = (pair * parts + part) * group + i          # (ROWS,) rows of O_parts
    tl.store(O_parts + to[:, None] * d + c, acc / l[:, None], mask=there)
    tl.store(LSE_parts + to, (m + tl.log2(l)) * 0.6931471805599453, mask=i < group)


# %% [markdown]
# A `pair` is a text and one of its heads of keys. The parts come out as `O_parts` (pairs, parts, group, $d$) and `LSE_parts` (pairs, parts, group), both float32. The merge is yours. It is a small kernel without `tl.dot`: one program for each head of queries takes all parts of that head as one tile, (PARTS, $d$), and (14.6) needs two sums over its first axis, `tl.sum(…, 0)`, and a `tl.max(…, 0)`.
#
# Mind three things. The parts of one head do not lie side by side: between two of them lie the other heads of the group. The number of parts is any number, and a tile has a power of two; a part that does not exist must have no weight. And a part may have seen no key, as where a caller hides some: then its $L_p$ is $-\infty$ and its $O_p$ is 0. If all parts of a head are so, $O = 0$ and $L = -\infty$.
#
# <!-- exercise 14C --> Write the kernel. Each word of the parts is read once: with $R$ = pairs · group heads, $R \cdot \text{parts} \cdot (d + 1)$ words read and $R(d+1)$ written. The logarithms are natural ones. If you are stuck after eight minutes, run `hint("14C")` in a cell of your own.

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
    """One row of O and one number of LSE. PARTS: a power of two, parts at least."""
    pair, member = tl.program_id(0) // group, tl.program_id(0) % group
    p, c = tl.arange(0, PARTS), tl.arange(0, d)
    ### BEGIN SOLUTION where each part lies, its weight, two sums, two stores
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
# Both kernels together are a decode step. The ledger of yours, of the library's (`kernels.decode`, with any strides, float16 and bfloat16), and the closed form:

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
    """The ledger of a launch, and what it returned."""
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


# %%
H, N, d = 8, 500, 64
for H_kv in (8, 2, 1):
    q, k, v = (torch.from_numpy(rng.standard_normal((1, h, n, d)).astype(np.float32))
               for h, n in ((H, 1), (H_kv, N), (H_kv, N)))
    mine = attempt(counted, my_decode, q, k, v, 4)
    theirs = counted(kernels.decode, q, k, v, parts=4)
    formula = attention_decode(KernelProblem(1, N, d, H=H, H_kv=H_kv), parts=4)
    apart = abs(mine[1][0] - theirs[1][0]).max()
    print(f"H_kv = {H_kv}: yours {mine[0].total:7,} words, library {theirs[0].total:7,}, "
          f"closed form {formula.total:7,}; same values to 1e-6: {apart < 1e-6}")


# %% [markdown]
# 518,728 words, then 134,728, then 70,728. $K$ and $V$ have 64,000 words for each head of keys, read once however many heads of queries ask; the 6,728 that remain are queries, parts and results, the same in all three lines. (At $N = 500$ they weigh; at 32,768, with 16 parts, what lay between the kernels was 0.4 percent of the bytes.)
# <!-- step = lambda H_kv: kernel_costs.attention_decode(kernel_costs.KernelProblem(1, 500, 64, H=8, H_kv=H_kv), parts=4) -->
# <!-- 518,728, 134,728, 70,728 = (step(H_kv).total for H_kv in (8, 2, 1)) -->
# <!-- 64,000 = step(1).reads["K"] + step(1).reads["V"] -->
# <!-- 6,728 = step(1).total - 64_000 -->
# <!-- "the same in all three lines" if len({step(H_kv).total - H_kv * 64_000 for H_kv in (8, 2, 1)}) == 1 -->
# <!-- 0.4 = percent -->
#
# ## 14.10 Packed, as a kernel
#
# Now `packed_program`, with heads. A packed tensor is $(\sum_s N_s, H, d)$: the heads of one token lie side by side, so from one token of a head to the next there are $Hd$ words. The grid has three parts in one number: the tile runs fastest, then the head, then the text.
# <!-- "the tile runs fastest" as definition -->
#
# <!-- exercise 14D --> (Optional.) Write the kernel. `absorb` does a round; yours is to find the text's rows, the program's rows among them, and the tiles of keys, and to load them. (`seen` may have one row for all queries, (1, BN).) Lanes beyond the end of the text move nothing, also where another text follows. A program without a row of its own reads no word of $K$ or $V$, and texts may be empty. (A kernel may say `if` about a number that it has loaded.) Words: $Q$, $K$, $V$ and $O$ as by (11.1), text by text, and up to two words of `cu` a program. If you are stuck after eight minutes, run `hint("14D")` in a cell of your own. Without it, go on below its check.

# %% [raw] name="about-14D"
# title = "Packed sequences"
# difficulty = 4
# importance = 4
# minutes = 14
# hints = [
#   "Go through packed_program of section 14.8 line by line. Which two numbers of cu does a program need? Which rows does it process, counted over all sequences?",
#   "Rows of the program: start of the sequence + tile · BM + 0 … BM - 1. All masks compare with the end of the sequence, not with the number of tokens. Tiles of keys start at the start of the sequence.",
#   "The distance between tokens is H · d elements, and a head starts head · d elements after its token. If the first row of the program is past the end of the sequence, the loop must not run: put it and the lines after it under an if.",
# ]

# %% tags=["exercise"] name="ex-14D"
@triton.jit
def packed_kernel(Q, K, V, O, cu, tiles, H, scale,
                  d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of one head of one text; `tiles` programs for each head of each text."""
    tile, pair = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    head, text = pair % H, pair // H
    c = tl.arange(0, d)
    ### BEGIN SOLUTION where the text begins and ends, this tile's rows, a loop over its keys
    begin, end = tl.load(cu + text), tl.load(cu + text + 1)
    i = begin + tile * BM + tl.arange(0, BM)        # (BM,) rows, counted over all texts
    if begin + tile * BM < end:
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
    """O (tokens, H, d). Q, K, V alike, contiguous, float32; cu (texts + 1,), int32."""
    H, d = Q.shape[1:]
    O, tiles = torch.empty_like(Q), triton.cdiv(longest, BM)
    programs = (len(cu) - 1) * H * tiles
    packed_kernel[(programs,)](Q, K, V, O, cu, tiles, H, 1.4426950408889634 * d**-0.5,
                               d=d, BM=BM, BN=BN)
    return O


# %% tags=["check"] name="check-14D"
check("14D", my_packed)

# %% [markdown]
# Its ledger, beside the library's `kernels.attention_varlen` (which has separate `cu_q` and `cu_k`, masks, windows, a backward pass, and keeps the log-sum-exp), and beside the padded batch:

# %%
lengths, H, d, BM = [150, 90, 40, 0, 17], 2, 32, 32
cu = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int32)
q, k, v = torch.from_numpy(rng.standard_normal((3, sum(lengths), H, d)).astype(np.float32))
mine = attempt(counted, my_packed, q, k, v, cu, max(lengths), BM, BM)
with kernels.using(forward=(BM, BM)):
    theirs = counted(kernels.attention_varlen, q, k, v, cu, cu)
padded = attention_forward(KernelProblem(150, 150, d, B=5, H=H, H_kv=H), BM=BM, BN=BM)


def of_rows(ledger):
    """Words of Q, K, V and O: row sums and cu_seqlens are left out."""
    return ledger.reads["Q"] + ledger.reads["K"] + ledger.reads["V"] + ledger.writes["O"]


same = abs(mine[1] - theirs[1]).max() < 1e-6
print(f"yours {of_rows(mine[0]):,} words, library {of_rows(theirs[0]):,}, "
      f"padded {of_rows(padded):,}; same values to 1e-6: {same}")


# %% [markdown]
# 180,992 words from either kernel and 576,000 for the padded batch, for the same outputs. Where padding would have been, there is nothing: no rows, no tiles, no masks for them. A last word on order: programs of one text and one head stand together again, so that their keys meet in L2.
#
# ## 14.11 Counters
#
# A GPU counts while it works, and NVIDIA's profiler, Nsight Compute (`ncu`), reads the counters. Two lines, two pairs of counters:
#
# | line | counter | compare it with |
# | --- | --- | --- |
# | program to L2 | `l1tex__m_xbar2l1tex_read_bytes.sum`, the bytes that the SMs read | the ledger, the closed form |
# | at L2 | `lts__t_sectors_srcunit_tex_op_read.sum` and `…_op_write.sum`, in sectors of 32 bytes | the ledger, which is larger where requests are merged |
# | L2 to DRAM | `dram__bytes_read.sum`, `dram__bytes_write.sum` | the compulsory bytes, (14.1) |
# <!-- 32 as definition -->
#
# On a machine with a GPU and `ncu`, `python -m tools.bench gpu` in a checkout of iocourse launches each kernel once and prints these next to the closed form. (Each multiprocessor also has an L1 cache, in the same silicon as its shared memory: what it answers does not reach the first counter.) Two traps: caches must be emptied before the launch, or the inputs are found where the last launch left them; and what was written may still lie in L2 when the kernel ends, so DRAM's counter can show *fewer* bytes written than there are results.
#
# What would it have to show if the model is right? For one head with $N = 8192$, $d = 64$, $B_M = 128$ in 16 bits:

# %%
forward = attention_forward(KernelProblem(8192, 8192, 64), BM=128, BN=128)
at_l2, at_dram = 2 * forward.read, 2 * 3 * 8192 * 64
print(f"program to L2: {at_l2 / 2**20:.0f} MiB read, "
      f"L2 to DRAM: {at_dram / 2**20:.0f} MiB read, a ratio of {at_l2 / at_dram:.0f}")


# %% [markdown]
# 129 MiB at the upper line, 3 MiB at the lower: of 43 bytes that programs ask for, DRAM delivers 1.
# <!-- asked = lambda BM: 2 * kernel_costs.attention_forward(kernel_costs.KernelProblem(8192, 8192, 64), BM=BM, BN=64).read -->
# <!-- once = roofline.compulsory_bytes("forward", kernel_costs.KernelProblem(8192, 8192, 64), 2) - 2 * 8192 * 64 - 4 * 8192 -->
# <!-- 129, 3, 43 = asked(128) / 2**20, once / 2**20, asked(128) / once -->
#
# `iocourse profile` prints the pass that the library launches, with the reason, and the bytes that it must move, here for one head:

# %%
from iocourse.cli import main

done = main(["profile", "forward", "--N", "8192", "--d", "64", "--heads", "1"])

# %% [markdown]
# The closed form has 269,484,032 bytes read, twice the 129 MiB above because these tiles have 64 queries and not 128, and the compulsory column 3,145,728, its 3 MiB. In the record `profile`, five launches on an H200, the first counter shows the closed form, to the byte in three of them, and in the forward passes the second one is near the compulsory bytes. L2 itself looks up fewer words than the first counter shows, because requests of several SMs for the same words are merged. If the second comes out as large as the first, the programs were scattered, or the cache is not what we took it for; and then the chip has said something that no ledger could.
# <!-- 269,484,032, 129, 3,145,728, 3 = asked(tile("forward", 90, 64)[0]), asked(128) / 2**20, once, once / 2**20 -->
# <!-- "these tiles have 64 queries" if tile("forward", 90, 64)[0] == 64 -->
# <!-- first = lambda run: run["counters"]["l1tex__m_xbar2l1tex_read_bytes.sum"] -->
# <!-- launches = rows("profile", "runs") -->
# <!-- "five launches on an H200" if len(launches) == 5 and device("profile")["name"] == "NVIDIA H200" -->
# <!-- "to the byte in three of them" if sum(first(run) == run["bytes"]["closed_form"]["read"] for run in launches) == 3 -->
# <!-- "near the compulsory bytes" if all(0.99 < run["bytes"]["dram"]["read"] / run["bytes"]["compulsory"]["read"] < 1.01 for run in launches if run["question"]["what"] == "forward") -->
# <!-- "L2 itself looks up fewer words than the first counter shows" if all(run["bytes"]["l2"]["read"] < first(run) for run in launches) -->
#
# ## Misconceptions
#
# - **"A decode step cannot be spread out, it has one query."** Its keys can: 16 parts give 128 programs, for 0.4 percent more bytes (14.7).
# <!-- 128 = 8 * 16 -->
# <!-- 0.4 = percent -->
# - **"Padding costs nothing where it is masked."** It is loaded and multiplied all the same; of the pairs of the padded batch 19 percent were wanted (14.8).
# - **"The profiler's bytes are the ledger."** There are two pairs of counters, at two lines, and the ledger is the upper one (14.11).
#
# ## Take-away
#
# - Split what has too few programs and merge $(O_p, L_p)$; pack what has different lengths. Both cost words that a closed form knows.
# - The ledger predicts what crosses between programs and L2; (14.1) predicts what comes from DRAM, and counters can refute either.
#
# ## References
#
# - T. Dao, D. Haziza, F. Massa, G. Sizov: *Flash-Decoding for long-context inference*, 2023. Keys split over programs, and the merge.
# - NVIDIA: [*NVIDIA Hopper architecture in-depth*](https://developer.nvidia.com/blog/nvidia-hopper-architecture-in-depth/), for the number of multiprocessors; *Nsight Compute*, for the counters.
#
# **What comes next.** <!-- next --> In low-rank attention, pairs are not computed one by one.
# <!-- 19 = 0.1927 * 10**2 -->
