# %% [markdown]
# # 13 Block-sparse attention and small caches in Triton
#
# You turn a mask into lists of blocks and write a kernel that loops over the lists, so that it loads no block without a visible pair. Then you compare two ways to compute attention for a large head size $d$, complete rows and slices of $d$, first by bytes and then by recorded times.
#
# **What you will learn**
#
# - to turn any mask into block lists, and to write a kernel that loops over them;
# - to predict how many bytes a mask saves;
# - to select the tile with the fewest bytes, and to find where this rule fails.
#
# **Prerequisites**: lessons 07 and 07b (split-d schedules), 08 (sparse masks), 11 and 11b (the forward kernel), 12 (words and bytes); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Sections 13.4 and 13.5 need Triton, which is published for Linux (Colab runs Linux). The other sections need NumPy only. No GPU is needed.

# %% tags=["setup"]
import numpy as np

from iocourse import exact, masks
from iocourse.costs.kernel_masks import BlockLists
from iocourse.costs.kernels import (
    KernelProblem,
    attention_forward,
    ledger_bytes,
    sliced_forward,
)
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source
from iocourse.gpu import CHIPS, choices

# %%
explore.mask_tiles(masks.bigbird(256, 32, 1, 1, 1), 32, 64,
                   title="A BigBird mask in blocks of 32 queries and 64 keys")

# %% [markdown]
# ## 13.1 From a mask to lists
#
# A mask has a boolean for each pair of a query and a key, which is True if the pair is *visible*. Divide it into blocks of $B_M$ queries and $B_N$ keys, one block per tile of scores of the kernel. A block is *full* if all its pairs are visible, *empty* if no pair is, and *partial* otherwise. The figure has all three kinds. Its mask is defined by blocks of $32 \times 32$, so a block is partial if its two halves differ.
# <!-- 32 \times 32 as input -->
#
# **Predict** (compute). A causal mask, 256 queries and keys, blocks of 32 queries and 64 keys. How many blocks are full, and how many are partial?

# %% tags=["predict"]
predict("13.1", full=12, partial=8)  #> predict("13.1", full=..., partial=...)

# %%
def kinds(pairs, BM, BN):
    """One sign per block: # full, + partial, . empty. BM and BN divide the mask."""
    blocks = pairs.reshape(pairs.shape[0] // BM, BM, pairs.shape[1] // BN, BN)
    some = np.where(blocks.any(axis=(1, 3)), "+", ".")
    return np.where(blocks.all(axis=(1, 3)), "#", some)


given = {"causal": masks.Causal(256).pairs(),
         "BigBird": masks.bigbird(256, 32, 1, 1, 1).pairs()}
causal = kinds(given["causal"], 32, 64)
print("\n".join(" ".join(row) for row in causal))
measured("13.1", full=(causal == "#").sum(), partial=(causal == "+").sum())

# %% [markdown]
# <details><summary>Full and partial blocks of the causal mask</summary>
#
# 12 are full and 8 are partial, of 32. Each row of blocks has one block on the diagonal.
#
# </details>
#
# A kernel could test the kind of every block and skip the empty ones. Then a row of blocks needs $\lceil N/B_N\rceil$ tests, however few blocks are visited. Instead, we list the blocks to visit once, before the launch. This is the *compressed* form of a sparse matrix, with blocks in place of numbers. It has five arrays:
#
# | array | type | shape | contents |
# | --- | --- | --- | --- |
# | `spans` | int32 | (rows of blocks, 3) | per row of blocks, three positions in `entries`: its first entry, its first partial block, and its end |
# | `entries` | int32 | (visited blocks) | the column of each full or partial block, by rows of blocks; in each row, full blocks first, then partial ones |
# | `slots` | int32 | (visited blocks) | for a partial block, the index of its pattern; for a full block any number, such as 0 |
# | `patterns` | uint8 | (partial blocks, $B_M$, $B_N$) | one byte per pair of each partial block: 1 if visible, 0 if not |
# | `order` | int32 | (rows of blocks) | the rows of blocks, those with the most entries first (lesson 13b shows why) |
#
# Full blocks are first in each row of blocks, so that a kernel can use two loops and the first one needs no mask (section 11.5).
#
# If $B_M$ or $B_N$ does not divide the mask, the last blocks are partly *out of bounds*. Out-of-bounds queries are never stored, so they must not make a block partial. Out-of-bounds keys would get weights, so a block that contains some is never full, and its pattern is 0 there.
#
# <!-- exercise 13B --> Make the five arrays for any mask. Patterns may be in any order. For out-of-bounds queries, they may have 0 or 1. Rows of blocks with equally many entries may be in any order. If you are stuck after nine minutes, run `hint("13B")` in a new cell.

# %% [raw] name="about-13B"
# title = "Block lists of a mask"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "First reshape the mask into blocks: an array (rows, columns, BM, BN). Which test on a block tells that it has a visible pair, and which that all its pairs are visible? What must you do first if the block size does not divide the mask?",
#   "Use two padded copies. Out-of-bounds keys are masked in both. Out-of-bounds queries are masked in the copy that tests for any visible pair, and visible in the copy that tests for full blocks.",
#   "Loop over the rows of blocks. In each row: the numbers of the full blocks, then those of the partial ones; the positions in the list before, between and after them are the span of the row. A partial block takes the next slot and stores its pattern there. The order sorts rows by their number of entries, largest first.",
# ]

# %% tags=["exercise"] name="ex-13B"
def my_lists(pairs, BM, BN):
    """Return spans, entries, slots, patterns and order of a mask in blocks of BM × BN pairs.

    pairs: boolean (Nq, Nk), True where query i attends to key j.
    Integers are int32 or int64; patterns have 0 and 1 (uint8), or False and True.
    """
    Nq, Nk = pairs.shape
    rows, columns = -(-Nq // BM), -(-Nk // BN)
    ### BEGIN SOLUTION two padded copies, the kind of each block, then row after row
    seen = np.zeros((rows * BM, columns * BN), dtype=bool)
    seen[:Nq, :Nk] = pairs
    unasked = seen.copy()
    unasked[Nq:] = True                                        # queries that do not exist
    shape = (rows, BM, columns, BN)
    tiles = seen.reshape(shape).swapaxes(1, 2)                 # (rows, columns, BM, BN)
    hit, whole = tiles.any(axis=(2, 3)), unasked.reshape(shape).all(axis=(1, 3))
    spans, entries, slots, patterns = [], [], [], []
    for row in range(rows):
        plain = np.flatnonzero(hit[row] & whole[row])
        cut = np.flatnonzero(hit[row] & ~whole[row])
        begin = len(entries)
        spans.append([begin, begin + len(plain), begin + len(plain) + len(cut)])
        entries += [*plain, *cut]
        slots += [0] * len(plain) + [len(patterns) + k for k in range(len(cut))]
        patterns += [tiles[row, column] for column in cut]
    order = np.argsort(-hit.sum(axis=1), kind="stable")
    return (np.array(spans, dtype=np.int32), np.array(entries, dtype=np.int32),
            np.array(slots, dtype=np.int32),
            np.array(patterns, dtype=np.uint8).reshape(-1, BM, BN), order.astype(np.int32))
    ### END SOLUTION


# %% tags=["check"] name="check-13B"
check("13B", my_lists)

# %%
def show_lists(make_lists, pairs, BM, BN):
    spans, entries, slots, _, order = make_lists(pairs, BM, BN)
    for row, (begin, partial, end) in enumerate(spans):
        print(f"row {row}: full {entries[begin:partial]}, partial {entries[partial:end]}, "
              f"their patterns {slots[partial:end]}")
    print("order", order)


attempt(show_lists, my_lists, given["BigBird"], 32, 64)

# %% [markdown]
# Queries of row 0 attend to all keys, so row 0 has the longest list and is first in the order. Row 7 has two full blocks and no partial one. The 11 partial blocks have patterns 0 to 10.
# <!-- hit, partial = (one[0, 0] for one in costs.kernel_masks.BlockLists(256, 256, 16, pairs=masks.bigbird(256, 32, 1, 1, 1).pairs()[None, None]).tiles(32, 64)) -->
# <!-- "row 0 has the longest list" if hit[0].all() and hit.sum(axis=1).argmax() == 0 -->
# <!-- "Row 7 has two full blocks and no partial one" if (hit[7].sum(), partial[7].sum()) == (2, 0) -->
# <!-- "The 11 partial blocks" if partial.sum() == 11 -->
#
# The library makes the same lists in `iocourse/kernels/host/masks.py`, but it evaluates one row of blocks at a time, so that the $N \times N$ booleans never exist. For $N = 65{,}536$ they would be 4.3 GB.
# <!-- 4.3 = 65_536**2 / 1e9 -->
# <!-- 65{,}536 as input -->
#
# ## 13.2 A program that loops over a list
#
# The next cell has the program of section 11.1 with a list in place of `range(0, N, BN)`, in NumPy. A visited block is loaded completely, including keys that no query of the block attends to.

# %% tags=["listing"]
def listed_program(position, Q, K, V, O, lists, BM, BN):
    """The block of queries at this position of the order; returns the rows of K it loads."""
    spans, entries, slots, patterns, order = lists
    row = order[position]
    begin, partial, end = spans[row]
    i = slice(row * BM, min((row + 1) * BM, len(Q)))
    q = Q[i] / np.sqrt(Q.shape[1])
    acc, m, l, loaded = np.zeros_like(q), np.full(len(q), -np.inf), np.zeros(len(q)), 0
    for step in range(begin, end):
        j = slice(entries[step] * BN, min((entries[step] + 1) * BN, len(K)))
        s = q @ K[j].T
        if step >= partial:
            visible = patterns[slots[step]][: s.shape[0], : s.shape[1]]
            s = np.where(visible, s, -np.inf)
        m_new = np.maximum(m, s.max(axis=1))
        shift = np.where(np.isneginf(m_new), 0.0, m_new)     # section 11.9
        p, old = np.exp(s - shift[:, None]), np.exp(m - shift)
        m, l, acc = m_new, l * old + p.sum(axis=1), acc * old[:, None] + p @ V[j]
        loaded += len(K[j])
    O[i] = acc / np.where(l == 0, 1.0, l)[:, None]
    return loaded


def by_lists(make_lists, name, pairs, BM, BN):
    """Print the rows of K that all programs load, and whether O is correct."""
    Q, K, V = np.random.default_rng(4).standard_normal((3, len(pairs), 16))
    lists, O = make_lists(pairs, BM, BN), np.empty_like(Q)
    loaded = sum(listed_program(position, Q, K, V, O, lists, BM, BN)
                 for position in range(len(lists[4])))
    hidden = np.where(pairs, 0.0, -np.inf)
    error = abs(O - exact.attention(Q, K, V, mask=hidden)).max()
    print(f"{name:8} {loaded:5,} rows of K, largest error below 1e-12: {error < 1e-12}")


for name, pairs in given.items():
    attempt(by_lists, my_lists, name, pairs, 32, 64)


# %% [markdown]
# The programs load 1,280 rows of $K$ under the causal mask (20 blocks of 64 keys) and 1,664 under BigBird (26 blocks). Without a mask there are 32 blocks, or 2,048 rows.
# <!-- blocks = lambda mask: costs.kernel_masks.BlockLists(256, 256, 16, pairs=mask.pairs()[None, None]) -->
# <!-- 1,280, 1,664 = blocks(masks.Causal(256)).keys_met(32, 64), blocks(masks.bigbird(256, 32, 1, 1, 1)).keys_met(32, 64) -->
# <!-- "20 blocks of 64 keys" if blocks(masks.Causal(256)).tiles(32, 64)[0].sum() == 20 -->
# <!-- "26 blocks" if blocks(masks.bigbird(256, 32, 1, 1, 1)).tiles(32, 64)[0].sum() == 26 -->
# <!-- 2,048 = 32 * 64 -->
#
# ## 13.3 Block structure and density
#
# A visited block loads $B_N$ keys and $B_N$ values. Its list entry is an integer of 4 bytes. A partial block also has a slot of 4 bytes, and a pattern with one byte per pair. In 16 bits,
# <!-- 4 = kernel_costs.WIDTHS["entries"] -->
#
# $$ 4 B_N d + 4 \quad\text{bytes for a full block}, \qquad 4 + B_M B_N \quad\text{bytes more for a partial one.} \tag{13.1} $$
# <!-- (13.1) = listed(np.ones((BM, BN), bool)) - listed(np.zeros((BM, BN), bool)) with listed = lambda pairs: kernel_costs.ledger_bytes(kernel_costs.attention_forward(costs.kernel_masks.BlockLists(BM, BN, d, pairs=pairs[None, None]), BM=BM, BN=BN), 2) where BM * BN <= 5000 -->
# <!-- (13.1) = listed(np.arange(BM * BN).reshape(BM, BN) > 0) - listed(np.ones((BM, BN), bool)) with listed = lambda pairs: kernel_costs.ledger_bytes(kernel_costs.attention_forward(costs.kernel_masks.BlockLists(BM, BN, d, pairs=pairs[None, None]), BM=BM, BN=BN), 2) where 1 < BM * BN <= 5000 -->
#
# With $d = 64$ and blocks of $64 \times 64$ these are 16,388 bytes for a full block and 20,488 for a partial one, a quarter more. If each pair is visible with probability $\rho$, independently of the others, a block has a visible pair with probability (8.5),
# <!-- 64 \times 64 as input -->
# <!-- listed = lambda pairs, side: kernel_costs.ledger_bytes(kernel_costs.attention_forward(costs.kernel_masks.BlockLists(*pairs.shape, 64, pairs=pairs[None, None]), BM=side, BN=side), 2) -->
# <!-- tile_bytes = lambda pairs: listed(pairs, 64) - listed(np.zeros((64, 64), bool), 64) -->
# <!-- 16,388, 20,488 = tile_bytes(np.ones((64, 64), bool)), tile_bytes(np.arange(64 * 64).reshape(64, 64) > 0) -->
#
# $$ 1 - (1 - \rho)^{B_M B_N} . \tag{13.2} $$
# <!-- (13.2) = costs.kernel_masks.BlockLists(BM, BN, 1, pairs=np.indices((m,) * (BM * BN)).reshape(BN, BM, 1, -1).T == 0).tiles(BM, BN)[0].mean() with rho = 1 / m where BM * BN <= 10 and m ** (BM * BN) <= 5000 -->
#
# **Predict** (compute). $N = 2048$, $d = 64$, blocks of $64 \times 64$, $\rho = 0.001$. What is the ratio of the kernel's bytes to those without a mask? (Most bytes are keys and values.)
# <!-- 64 \times 64 as input -->

# %% tags=["predict"]
predict("13.3", ratio=1.23)  #> predict("13.3", ratio=...)

# %%
N, draw = 2048, np.random.default_rng(6).random((2048, 2048), dtype=np.float32)
blocks = np.zeros((32, 32), dtype=bool)
blocks.flat[np.random.default_rng(6).choice(1024, 94, replace=False)] = True
compared = {
    "dense": np.ones((N, N), dtype=bool),
    "window of blocks": masks.sliding_window(N, 64, 1).pairs(),
    "94 random blocks": np.repeat(np.repeat(blocks, 64, 0), 64, 1),
    "window of tokens": masks.Window(N, 96).pairs(),
    "random pairs, 9.2 %": draw < 0.092,
    "random pairs, 0.1 %": draw < 0.001,
    "random pairs, 0.01 %": draw < 0.0001,
}
moved = {}
for name, pairs in compared.items():
    problem = BlockLists(N, N, 64, pairs=pairs[None, None])
    visited, partial = (one.sum() for one in problem.tiles(64, 64))
    moved[name] = ledger_bytes(attention_forward(problem, BM=64, BN=64), 2)  # with the lists
    print(f"{name:20} {pairs.mean():7.2%} visible, {visited:5,} blocks, {partial:5,} partial, "
          f"{moved[name] / 2**20:6.2f} MiB, {moved[name] / moved['dense']:.3f} of dense")
measured("13.3", ratio=moved["random pairs, 0.1 %"] / moved["dense"])

# %% [markdown]
# <details><summary>The bytes with 0.1 % of the pairs visible</summary>
#
# The ratio is 1.226: the kernel loads more bytes than without a mask. 1,010 of 1,024 blocks have a visible pair, and each of them also loads a pattern.
# <!-- thousandth = listed(np.random.default_rng(6).random((2048, 2048), dtype=np.float32) < 0.001, 64) / listed(np.ones((2048, 2048), bool), 64) -->
# <!-- 1.226 = thousandth -->
# <!-- 0.1 as input -->
#
# </details>
#
# - If 9.2 % of the pairs are visible and form full blocks, the kernel moves 0.120 of the dense bytes. The position of the blocks does not matter here (in section 8.5 it did).
# - The same 9.2 % as random pairs costs 1.242. Random pairs save bytes only if (13.2) is below 0.8, because a partial block costs a quarter more, so only for $\rho < 0.0004$. With $\rho = 0.0001$ the kernel visits 337 blocks and moves 0.430 of the dense bytes.
# - The window of tokens has as many visible pairs as the window of blocks, but 122 of its 154 blocks are partial. A window needs no lists, because its loop borders can be computed (section 11.9); `attention(…, window=)` does so.
#
# So a mask saves bytes only for empty blocks, and full blocks cost less than partial ones.
# <!-- 0.8 = 16_388 / 20_488 -->
# <!-- 0.0004 = 1 - (1 - 0.8) ** (1 / 64**2) -->
# <!-- 9.2 = 100 * 94 / 1024 -->
# <!-- window, tokens = masks.sliding_window(2048, 64, 1).pairs(), masks.Window(2048, 96).pairs() -->
# <!-- 0.120 = listed(window, 64) / listed(np.ones((2048, 2048), bool), 64) -->
# <!-- drawn = lambda share: np.random.default_rng(6).random((2048, 2048), dtype=np.float32) < share -->
# <!-- 1.242, 0.430 = listed(drawn(0.092), 64) / listed(np.ones((2048, 2048), bool), 64), listed(drawn(0.0001), 64) / listed(np.ones((2048, 2048), bool), 64) -->
# <!-- blocks_of = lambda pairs: [int(one.sum()) for one in costs.kernel_masks.BlockLists(2048, 2048, 64, pairs=pairs[None, None]).tiles(64, 64)] -->
# <!-- 337 = blocks_of(drawn(0.0001))[0] -->
# <!-- 122, 154 = blocks_of(tokens)[1], blocks_of(tokens)[0] -->
# <!-- "has as many visible pairs as the window of blocks" if abs(window.mean() / tokens.mean() - 1) < 0.02 -->
#
# ## 13.4 The kernel in Triton
#
# Cells of this section and the next run Triton kernels in the interpreter, because only the interpreter counts words. On a computer with a GPU, `iocourse gpu 13C` compiles and times your kernel. Without Triton, each cell that needs it prints in one line what to install.

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
# `listed_program` becomes a kernel. In Triton the borders of a loop may be loaded numbers. The update of one block is `absorb` of exercise 11C:

# %% tags=["given"]
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """Add a block of keys: return acc (BM, d), m (BM,), l (BM,).

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


# %% [markdown]
# The lists add to the traffic. Each program loads its entry of `order` and three positions of `spans`. For each visited block it loads one entry, and for each partial block also a slot and a pattern:
#
# $$ \underbrace{4 \left\lceil \tfrac{N}{B_M} \right\rceil}_{\texttt{order},\ \texttt{spans}} + \underbrace{\text{visited blocks}}_{\texttt{entries}} + \underbrace{(1 + B_M B_N) \cdot \text{partial blocks}}_{\texttt{slots},\ \texttt{patterns}} \quad\text{words.} \tag{13.3} $$
# <!-- (13.3) = sum(problem.rows_extra(BM, BN).values()) with N = n % 50 + 1, BM = r % 20 + 1, BN = c % 20 + 1, problem = costs.kernel_masks.BlockLists(N, N, d, pairs=(np.random.default_rng(seed).random((N, N)) < density / 4)[None, None]), visited_blocks = int(problem.tiles(BM, BN)[0].sum()), partial_blocks = int(problem.tiles(BM, BN)[1].sum()) -->
#
# <!-- exercise 13C --> Write the kernel. Program $p$ computes the block of queries `order[p]`. It loops over the full blocks of the row, whose scores need no mask, and then over the partial blocks with their patterns. A query that attends to no key has $O = 0$ and $L = -\infty$. $Q$ is loaded also if the row has no block. In the lists of the check, the full blocks of a row, its partial blocks, and all patterns may be in any order. $d$ is a power of two, `scale` is $\lambda$ of (11.2), and `LSE` is a natural logarithm as in (11.3). Load each pattern completely, also out of bounds. The kernel must move the words of $Q$, $K$, $V$, $O$ and $L$ and those of (13.3), and no others. If you are stuck after eleven minutes, run `hint("13C")` in a new cell.

# %% [raw] name="about-13C"
# title = "A loop over a list"
# difficulty = 4
# importance = 5
# minutes = 18
# hints = [
#   "What does each line of the NumPy program of section 13.2 become? Which numbers must be loaded before the first key?",
#   "The program id is a position in the order, and the order has the number of the query block. Three loads give the span. Then use two loops over the steps of the list; the entry of a step gives the key block. Only the second loop loads a slot and a pattern.",
#   "Full blocks have no out-of-bounds keys, so their loads need no mask. A pattern has BM · BN numbers, row by row, from slot · BM · BN; a pair is visible where it is not 0, and it is 0 for out-of-bounds keys. After the loops, a row with l = 0 attends to no key: divide by 1 there, and set its LSE to -inf.",
# ]

# %% tags=["exercise"] name="ex-13C"
@triton.jit
def listed_kernel(Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, Nk, scale,
                  d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """BM rows of O and LSE. Q, O (Nq, d), K, V (Nk, d), LSE (Nq,), and the lists of 13B."""
    c = tl.arange(0, d)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    ### BEGIN SOLUTION the block and its span, queries, full blocks, partial blocks, results
    tile = tl.load(order + tl.program_id(0))
    begin = tl.load(spans + 3 * tile)
    cut = tl.load(spans + 3 * tile + 1)
    end = tl.load(spans + 3 * tile + 2)
    i = tile * BM + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)   # (BM, d)
    for step in range(begin, cut):
        j = tl.load(entries + step) * BN + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c)                                # (BN, d)
        v = tl.load(V + j[:, None] * d + c)
        acc, m, l = absorb(acc, m, l, q, k, v, scale)
    inside = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]    # places in a pattern
    for step in range(cut, end):
        j = tl.load(entries + step) * BN + tl.arange(0, BN)
        seen = tl.load(patterns + tl.load(slots + step) * BM * BN + inside) != 0
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
        acc, m, l = absorb(acc, m, l, q, k, v, scale, seen)
    nothing = l == 0.0
    safe = tl.where(nothing, 1.0, l)
    total = tl.where(nothing, float("-inf"), (m + tl.log2(safe)) * 0.6931471805599453)
    tl.store(O + i[:, None] * d + c, acc / safe[:, None], mask=i[:, None] < Nq)
    tl.store(LSE + i, total, mask=i < Nq)
    ### END SOLUTION


def my_listed_attention(Q, K, V, spans, entries, slots, patterns, order, BM, BN):
    """O (Nq, d), LSE (Nq,). Q (Nq, d), K, V (Nk, d): contiguous float32. Patterns are uint8."""
    Nq, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(Nq)
    programs = triton.cdiv(Nq, BM)
    listed_kernel[(programs,)](Q, K, V, O, LSE, spans, entries, slots, patterns, order,
                               Nq, K.shape[0], 1.4426950408889634 * d**-0.5, d=d, BM=BM, BN=BN)
    return O, LSE


# %% tags=["check"] name="check-13C"
check("13C", my_listed_attention)

# %% [markdown]
# The next cell compares your lists and your kernel with the library's `attention(…, block_mask=)`. `kernels.tiled_mask` accepts booleans for blocks (of 16, 32, 64, 128 or 256), a mask of `iocourse.masks`, or a BlockMask or predicate of FlexAttention.

# %%
def on_lists(make_lists, launcher, pairs, BM, BN):
    """The ledger of your kernel on your lists, and O."""
    lists = [torch.from_numpy(np.asarray(part)) for part in make_lists(pairs, BM, BN)]
    with traffic.count() as ledger:
        o, _ = launcher(q, k, v, *lists, BM, BN)
    return ledger, o


N, d, BM, BN = 200, 32, 32, 64
q, k, v = torch.randn(3, N, d, generator=torch.Generator().manual_seed(13))
for mask in (masks.Causal(N), masks.bigbird(N, 16, 1, 1, 1), masks.Window(N, 20)):
    mine = attempt(on_lists, my_lists, my_listed_attention, mask.pairs(), BM, BN)
    with kernels.using(forward=(BM, BN)), traffic.count() as theirs:
        tiled = kernels.tiled_mask(mask, q[None, None], k[None, None])
        same = kernels.attention(q[None, None], k[None, None], v[None, None], block_mask=tiled)
    print(f"{type(mask).__name__:10} your kernel {mine[0].total:8,} words, library "
          f"{theirs.total:8,}; same values to 1e-6: {abs(mine[1] - same[0, 0]).max() < 1e-6}")


# %% [markdown]
# Both kernels move the same words, 89,339, 137,488 and 85,758. Without tile sizes from you, no side of the library's tiles is larger than a block of the mask or 64, whichever is larger, because larger tiles would be partial more often. A model calls `kernels.tiled_mask(mask, q, k)` once and passes the result to every layer. Masks may differ between heads; then each head has its own lists.
# <!-- words = lambda mask: kernel_costs.attention_forward(costs.kernel_masks.BlockLists(200, 200, 32, pairs=mask.pairs()[None, None]), BM=32, BN=64).total -->
# <!-- 89,339, 137,488, 85,758 = words(masks.Causal(200)), words(masks.bigbird(200, 16, 1, 1, 1)), words(masks.Window(200, 20)) -->
# <!-- "no side of the library's tiles is larger than a block of the mask or 64" if all(kernels.host.masks.within_blocks((tile, tile), (block, block)) == (min(tile, max(64, block)),) * 2 for tile in (16, 32, 64, 256) for block in (16, 64, 128)) -->
#
# ## 13.5 Bytes and times per visited block
#
# If the blocks of the mask are the tiles of the kernel and $B_N$ divides $N$, no block is partial. By (13.1) and (13.3) a launch moves, in 16 bits,
#
# $$ \underbrace{4Nd + 4N + 16\left\lceil \tfrac N{B_M} \right\rceil}_{\text{for any mask}} + \left(4 B_N d + 4\right) \cdot \text{visited blocks} \quad\text{bytes,} \tag{13.4} $$
# <!-- (13.4) = kernel_costs.ledger_bytes(kernel_costs.attention_forward(problem, BM=BM, BN=BN), 2) with BM = r % 12 + 1, BN = c % 12 + 1, N = BN * (n % 9 + 1), blocks = np.random.default_rng(seed).random((costs.ceil_div(N, BM), N // BN)) < density / 4, visited_blocks = int(blocks.sum()), problem = costs.kernel_masks.BlockLists(N, N, d, pairs=np.kron(blocks, np.ones((BM, BN), bool))[None, None, :N]) -->
#
# a straight line in the number of visited blocks. The next cell counts the library's kernel on four masks:

# %%
N, B, d = 512, 64, 64
q, k, v = torch.randn(3, 1, 1, N, d, generator=torch.Generator().manual_seed(13)).half()
for keep in (0.1, 0.4, 0.7, 1.0):
    visited = np.random.default_rng(10).random((8, 8)) < keep
    with kernels.using(forward=(B, B)), traffic.count() as ledger:
        kernels.attention(q, k, v, block_mask=kernels.tiled_mask(visited, q, k))
    line = 4 * N * d + 4 * N + 16 * (N // B) + (4 * B * d + 4) * visited.sum()
    print(f"{visited.sum():2} of 64 blocks: {ledger.bytes:9,} bytes, (13.4): {line:9,}")

# %% [markdown]
# Each visited block costs 16,388 bytes, 4 of which are its list entry. Programs without a block still start, load their span and their queries, and store $O = 0$ and $L = -\infty$.
# <!-- 16,388 = tile_bytes(np.ones((64, 64), bool)) -->
# <!-- 4 = kernel_costs.WIDTHS["entries"] -->
#
# Is the time a line, too? On an H200, `python -m tools.bench gpu` timed random block masks at $N = 8192$ and $d = 128$.
#
# **Predict** (guess). The mask with a sixteenth of the blocks takes what fraction of the time of the mask with all blocks, in the forward pass?
# <!-- 8192, 128 = load_record("sparse-lines")["lines"][0]["N"], load_record("sparse-lines")["lines"][0]["d"] -->

# %% tags=["predict"]
predict("13.5", fraction=0.09)  #> predict("13.5", fraction=...)

# %%
record = load_record("sparse-lines")
print(record_source(record))
line = record["lines"][0]  # the forward pass
for share, ms in line["points"]:
    on_line = line["overhead_ms"] + line["dense_ms"] * share
    print(f"share of blocks {share:.3f}: {ms:.3f} ms, on the line {on_line:.3f} ms")
print(f"without a mask: {line['unmasked_ms']:.3f} ms")
times = [ms for _, ms in line["points"]]
measured("13.5", fraction=times[0] / times[-1])

# %% [markdown]
# <details><summary>The time of a sixteenth of the blocks</summary>
#
# The fraction is 0.092. The mask has 0.065 of the blocks, and the constant 0.080 ms explains the difference. The line differs from the times by at most 2.3 %.
# <!-- points = load_record("sparse-lines")["lines"][0]["points"] -->
# <!-- 0.092, 0.065 = points[0][1] / points[-1][1], points[0][0] -->
# <!-- 0.080 = load_record("sparse-lines")["lines"][0]["overhead_ms"] -->
# <!-- 2.3 = 100 * load_record("sparse-lines")["lines"][0]["deviation"] -->
#
# </details>
#
# If no block is empty, lists cost time: 2.575 ms, where the kernel without a mask takes 2.389 ms.
#
# In the backward pass of this record the line differs from the times by up to 15 %. The two smallest masks take 1.39 and 1.43 ms, although the second one has twice the blocks of the first. A possible reason is that the GPU waits for the Python code that launches the kernels. A run of the next day, the record `sparse`, timed this code on the host separately:
# <!-- 2.575, 2.389 = load_record("sparse-lines")["lines"][0]["points"][-1][1], load_record("sparse-lines")["lines"][0]["unmasked_ms"] -->
# <!-- "If no block is empty" if load_record("sparse-lines")["lines"][0]["points"][-1][0] == 1 -->
# <!-- shortest = load_record("sparse-lines")["lines"][1]["points"] -->
# <!-- 1.39, 1.43 = shortest[0][1], shortest[1][1] -->
# <!-- "the second one has twice the blocks of the first" if 1.9 < shortest[1][0] / shortest[0][0] < 2.1 -->
# <!-- 15 = 100 * load_record("sparse-lines")["lines"][1]["deviation"] -->
# <!-- "timed this code on the host separately" if "host_ms" in row("sparse", contender="fused", d=128, N=4096, B=4, mask="random", pass_="backward") and "host_ms" not in row("sparse-lines", contender="fused", d=128, N=4096, B=4, mask="random", pass_="backward") -->
# <!-- "A run of the next day" if [load_record(name)["date"] for name in ("sparse-lines", "sparse")] == ["2026-11-26", "2026-11-27"] -->

# %%
later = load_record("sparse")
print(record_source(later))
for name in ("forward", "backward"):
    fused = [row for row in later["rows"] if (row["contender"], row["pass"]) == ("fused", name)]
    row = next(row for row in fused if (row["mask"], row["d"]) == ("random", 128))
    speeds = [row["ratio"] for row in fused]
    print(f"{name}, random mask, N = 4096, d = 128: GPU {row['ms']:.2f} ms, host "
          f"{row['host_ms']:.2f} ms")
    print(f"   all masks: {min(speeds):.2f} to {max(speeds):.2f} of the speed of FlexAttention")

# %% [markdown]
# Under the random mask, launching the backward pass takes the host 0.97 ms, more than the time on the GPU, 0.71 ms. This agrees with the reason above, but does not prove it, because the two runs are of different commits. Compared with FlexAttention in PyTorch ($d = 64$ and 128), the forward pass has 0.93 to 1.46 of its speed, and the backward pass has 0.82 to 0.94.
# <!-- of_random = row("sparse", contender="fused", d=128, N=4096, B=4, mask="random", pass_="backward") -->
# <!-- 0.97, 0.71 = of_random["host_ms"], of_random["ms"] -->
# <!-- "the two runs are of different commits" if load_record("sparse")["commit"] != load_record("sparse-lines")["commit"] -->
# <!-- "($d = 64$ and 128)" if {one["d"] for one in rows("sparse", contender="fused")} == {64, 128} -->
# <!-- 0.93, 1.46 = min(speeds("sparse", "FlexAttention", "fused", pass_="forward")), max(speeds("sparse", "FlexAttention", "fused", pass_="forward")) -->
# <!-- 0.82, 0.94 = min(speeds("sparse", "FlexAttention", "fused", pass_="backward")), max(speeds("sparse", "FlexAttention", "fused", pass_="backward")) -->
#
# ## 13.6 Complete rows of a large d
#
# The second half of the lesson is about large head sizes, without a block mask. A program of the forward kernel keeps $B_M$ queries and a sum for as many rows of $O$, and loads tiles of keys and values. All of them have complete rows, $d$ columns wide. If $d$ doubles, so do the registers and the shared memory that a tile of complete rows needs. So the largest tile that fits has fewer rows, and the programs load $K$ and $V$ more often, $\lceil N/B_M \rceil$ times.
#
# In the two-level model of lesson 07, complete rows are worse than slices of $d$ if $M < d^2$. The model has one fast memory, an SM has shared memory and registers. `python -m tools.bench resources` therefore compiled the library's kernels for each chip. The next cell prints their tiles of complete rows. Most are the largest tile that fits and spills no register in the inner loop. On an H200, the tiles for $d = 64$ and $128$ are those that were timed as the fastest (section 11.13), so they can be smaller than the tile for $d = 256$.
# <!-- "timed as the fastest" if all(min(one["tried"], key=lambda it: it["ms"][n] if it.get("ms") else math.inf)["tile"][:2] == list(tile("forward", 90, one["d"], mask=("full", "causal")[n])) for one in rows("tune", "kernels", kernel="forward") for n in (0, 1)) -->
#
# **Predict** (guess). At $d = 64$ the tile has 64 queries on a T4 and 128 on an A100. How many queries does it have on a T4 at $d = 256$, and on an A100 at $d = 512$?
# <!-- "64 queries on a T4 and 128 on an A100" if [tile("forward", arch, 64)[0] for arch in (75, 80)] == [64, 128] -->

# %% tags=["predict"]
predict("13.6", t4_256=16, a100_512=32)  #> predict("13.6", t4_256=..., a100_512=...)

# %%
resources = load_record("resources")
print(f"compiled with {record_source(resources)}")


def compiled(kernel, arch, d):
    """The library's tile for this head size in 16 bits, with the compiler's numbers."""
    wanted = {"kernel": kernel, "arch": arch, "d": d, "bytes": 2, "pairs": "band"}
    return next(row for row in resources["shipped"] if wanted.items() <= row.items())


print(" " * 16 + "".join(f"d = {d:<8}" for d in (64, 128, 256, 512)))
for arch, chip in CHIPS.items():
    tiles = [compiled("forward", arch, d) for d in (64, 128, 256, 512)]
    print(f"{chip.name:16}" + "".join(f"{one['BM']:3} × {one['BN']:<6}" for one in tiles))
measured("13.6", t4_256=compiled("forward", 75, 256)["BM"],
         a100_512=compiled("forward", 80, 512)["BM"])

# %% [markdown]
# <details><summary>Rows at large d</summary>
#
# 16 queries on the T4 and 32 on the A100.
# <!-- forward = lambda arch, d: rows("resources", "shipped", kernel="forward", arch=arch, d=d, bytes=2, pairs="band") -->
# <!-- 16, 32 = forward(75, 256)[0]["BM"], forward(80, 512)[0]["BM"] -->
#
# </details>
#
# In the forward pass some tile of complete rows fits each of these chips, up to $d = 512$. But on a T4 it has only 16 queries, the smallest number that `tl.dot` accepts. The fused backward (section 12.7) keeps more arrays. On a T4 its smallest tile spills at $d = 256$, and at $d = 512$ it needs more shared memory than an SM has.
# <!-- "some tile of complete rows fits each of these chips, up to $d = 512$" if all(gpu.Resources.of(one).fits for arch in CHIPS for d in (64, 128, 256, 512) for one in forward(arch, d)) -->
# <!-- "it has only 16 queries" if {forward(75, d)[0]["BM"] for d in (256, 512)} == {16} -->
# <!-- t4 = lambda d: rows("resources", "shipped", kernel="fused", arch=75, d=d, bytes=2, pairs="band") -->
# <!-- "its smallest tile spills at $d = 256$" if max(one["spill_bytes"] for one in t4(256)) > 0 and (t4(256)[0]["BM"], t4(256)[0]["BN"]) == (16, 16) -->
# <!-- "needs more shared memory than an SM has" if all(one["shared_bytes"] > CHIPS[75].shared_bytes for one in t4(512)) -->
#
# So the question is rarely whether complete rows fit. It is whether a tile with few queries loads $K$ and $V$ too often.
#
# ## 13.7 Complete rows or slices, by bytes
#
# The alternative is the fused split-d schedule (section 7.12, `small_cache_fused`), which splits $d$ into slices of $B_D$ columns. A program has one block of queries. It has three steps for each block of keys:
#
# 1. Add up a tile of scores over the slices of $Q$ and $K$.
# 2. Compute the weights, and update the row statistics.
# 3. For each slice of $V$, load the partial sums of $O$ from an array `O_sum` in slow memory, rescale them, add to them, and store them again.
#
# Only the tile of scores is kept, $B_M B_N$ numbers for any $d$. The first block of keys loads no partial sums. The last one stores no partial sums, but divides them by $\ell$ and stores $O$. So the $Nd$ partial sums are stored and loaded $\lceil N/B_N \rceil - 1$ times each. All of $Q$ is loaded once per block of keys, because a program does not keep its queries. $B_D$ does not change the traffic.
#
# **Predict** (compute). $N = 100$, $d = 24$, $B_M = 32$, $B_N = 16$. How often is all of $Q$ loaded, and how often all of $K$?

# %% tags=["predict"]
predict("13.7", q_loads=7, k_loads=4)  #> predict("13.7", q_loads=..., k_loads=...)

# %%
N, d = 100, 24
form = sliced_forward(KernelProblem(N, N, d), BM=32, BN=16)
loads = {name: form.reads[name] / (N * d) for name in ("Q", "K", "V", "O_sum")}
print("words loaded, per N·d:", loads)
measured("13.7", q_loads=loads["Q"], k_loads=loads["K"])

# %% [markdown]
# <details><summary>Loads of Q and K</summary>
#
# <!-- small = kernel_costs.sliced_forward(kernel_costs.KernelProblem(100, 100, 24), BM=32, BN=16) -->
# <!-- 7, 4, 6 = small.reads["Q"] / 2400, small.reads["K"] / 2400, small.writes["O_sum"] / 2400 -->
# $Q$ is loaded 7 times, once per block of 16 keys, and $K$ and $V$ 4 times, once per block of 32 queries. The partial sums are stored and loaded 6 times.
#
# </details>
#
# Now count bytes. Let $Q$, $K$, $V$ and $O$ have $\beta$ bytes per word (2 in 16 bits). The log-sum-exp and the partial sums are float32, because in 16 bits each of the $\lceil N/B_N \rceil$ additions would be rounded. Then
#
# $$ \text{rows: } \beta\left(2Nd + 2Nd\left\lceil \tfrac N{B_M} \right\rceil\right) + 4N , \tag{13.5} $$
# <!-- (13.5) rows = kernel_costs.ledger_bytes(kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=BN), beta) where N <= 5000 -->
#
# $$ \text{slices: } \beta\left(Nd + Nd\left\lceil \tfrac N{B_N} \right\rceil + 2Nd\left\lceil \tfrac N{B_M} \right\rceil\right) + 8Nd\left(\left\lceil \tfrac N{B_N} \right\rceil - 1\right) + 4N . \tag{13.6} $$
# <!-- (13.6) slices = kernel_costs.ledger_bytes(kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=BN), beta) where N <= 5000 -->
#
# For large $N$, $\beta = 2$ and square tiles of side $b$ for the slices, these are $4/B_M$ and $14/b$ bytes per $N^2d$. So complete rows move fewer bytes if
#
# $$ B_M > \tfrac27\, b . \tag{13.7} $$
# <!-- (13.7) B_M > BM * rows(999 * BM) / slices(999 * b) within 0.01 with rows = lambda N: kernel_costs.ledger_bytes(kernel_costs.attention_forward(kernel_costs.KernelProblem(N, N, d), BM=BM, BN=64), 2) / (N * N * d), slices = lambda N: kernel_costs.ledger_bytes(kernel_costs.sliced_forward(kernel_costs.KernelProblem(N, N, d), BM=b, BN=b), 2) / (N * N * d) -->
#
# <!-- exercise 13A --> Given compiled tiles, return the one with the fewest bytes among those that fit and do not spill, and its bytes for one head. If you are stuck after six minutes, run `hint("13A")` in a new cell.

# %% [raw] name="about-13A"
# title = "The tile with the fewest bytes"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "Which tiles may be used at all? How many bytes does each of those move? There are two formulas, and BD tells which one applies.",
#   "First count words per array, and round up where a block may be ragged. Then multiply by the width of each array: LSE and the partial sums of O have 4 bytes per word, the rest itemsize.",
# # <!-- 4 as definition -->
#   "Complete rows: two arrays once, two arrays once per tile of queries, and N words of LSE. Slices: Q is read once per tile of keys, and between two tiles of keys N·d partial sums are written and read.",
# ]

# %% tags=["exercise"] name="ex-13A"
def my_choice(tiles, limit, N, d, itemsize):
    """Return the tile of the forward pass with the fewest bytes, and its bytes for one head.

    tiles: a list of dicts with BM, BN, BD (None: complete rows), spill_bytes and shared_bytes.
    limit: bytes of shared memory of a program. A tile that spills cannot be chosen.
    itemsize: bytes per word of Q, K, V and O. Returns (one of the tiles, its bytes).
    """
    ### BEGIN SOLUTION bytes by (13.5) or (13.6), then the minimum over tiles that fit
    def bytes_moved(tile):
        rows, keys = -(-N // tile["BM"]), -(-N // tile["BN"])
        if tile["BD"] is None:
            return itemsize * (2 * N * d + 2 * N * d * rows) + 4 * N
        inputs = itemsize * (N * d + N * d * keys + 2 * N * d * rows)
        return inputs + 8 * N * d * (keys - 1) + 4 * N

    good = [tile for tile in tiles
            if tile["spill_bytes"] == 0 and tile["shared_bytes"] <= limit]
    best = min(good, key=bytes_moved)
    return best, bytes_moved(best)
    ### END SOLUTION


# %% tags=["check"] name="check-13A"
check("13A", my_choice)

# %% [markdown]
# Now each chip has two tiles: the tile of complete rows of section 13.6, and the tile of `sliced_forward`, the library's fused split-d kernel. The latter is $128 \times 128$ for all $d$, and $64 \times 64$ on a T4.
# <!-- sliced = lambda arch: rows("resources", "shipped", kernel="sliced_forward", arch=arch, d=512, bytes=2, pairs="band")[0] -->
# <!-- 128 \times 128 = min((sliced(arch)["BM"], sliced(arch)["BN"]) for arch in CHIPS if arch != 75) -->
# <!-- 64 \times 64 = sliced(75)["BM"], sliced(75)["BN"] -->
#
# **Predict** (compute). Which is the smallest of the head sizes 64, 128, 256 and 512 at which slices move fewer bytes, on each chip? Write 1024 if there is none.

# %% tags=["predict"]
predict("13.7b", t4=256, a100=512, h200=1024)  #> predict("13.7b", t4=..., a100=..., h200=...)

# %%
def where_slices_begin(choose):
    """The smallest d at which slices move fewer bytes, per chip, for N = 4096 in 16 bits."""
    begin = dict.fromkeys(CHIPS, 1024)
    for arch, chip in CHIPS.items():
        line = f"{chip.name:16}"
        for d in (512, 256, 128, 64):
            two = [compiled("forward", arch, d), compiled("sliced_forward", arch, 512)]
            tile, moved = choose(two, chip.shared_bytes, 4096, d, 2)
            begin[arch] = d if tile["BD"] else begin[arch]
            kind = "slices" if tile["BD"] else "rows"
            line += f"d = {d:3}: {kind:6} {moved / 2**20:5,.0f} MiB   "
        print(line)
    return begin


begin = attempt(where_slices_begin, my_choice)
measured("13.7b", t4=begin[75], a100=begin[80], h200=begin[90])

# %% [markdown]
# <details><summary>Where slices move fewer bytes</summary>
#
# On the T4 from 256 on, on A100 and L4 at 512, on H200 and B200 at none of them. By (13.7) the limit is $\tfrac27 \cdot 64 = 18.3$ queries on a T4, which has 16, and $\tfrac27 \cdot 128 = 36.6$ on the others. A100 and L4 have 32 queries at $d = 512$; H200 and B200 have 64. On the A100 slices move 884 MiB at $d = 512$, and complete rows 1,032 MiB.
# <!-- fewest = lambda arch, d: "slices" if kernel_costs.ledger_bytes(kernel_costs.sliced_forward(kernel_costs.KernelProblem(4096, 4096, d), BM=sliced(arch)["BM"], BN=sliced(arch)["BN"]), 2) < kernel_costs.ledger_bytes(kernel_costs.attention_forward(kernel_costs.KernelProblem(4096, 4096, d), BM=forward(arch, d)[0]["BM"], BN=64), 2) else "rows" -->
# <!-- "On the T4 from 256 on, on A100 and L4 at 512, on H200 and B200 at none of them" if [next((d for d in (64, 128, 256, 512) if fewest(arch, d) == "slices"), 1024) for arch in (75, 80, 89, 90, 100)] == [256, 512, 512, 1024, 1024] -->
# <!-- 18.3, 36.6 = 2 / 7 * sliced(75)["BM"], 2 / 7 * sliced(90)["BM"] -->
# <!-- "A100 and L4 have 32 queries at $d = 512$; H200 and B200 have 64" if [forward(arch, 512)[0]["BM"] for arch in (80, 89, 90, 100)] == [32, 32, 64, 64] -->
# <!-- problem = kernel_costs.KernelProblem(4096, 4096, 512) -->
# <!-- in_slices = kernel_costs.ledger_bytes(kernel_costs.sliced_forward(problem, BM=sliced(80)["BM"], BN=sliced(80)["BN"]), 2) / 2**20 -->
# <!-- in_rows = kernel_costs.ledger_bytes(kernel_costs.attention_forward(problem, BM=forward(80, 512)[0]["BM"], BN=forward(80, 512)[0]["BN"]), 2) / 2**20 -->
# <!-- 884, 1,032 = in_slices, in_rows -->
#
# </details>
#
# ## 13.8 The rule and the recorded times
#
# On an H200 both kernels were timed at $d = 256$, 320 and 512, with 32, 24 and 16 heads, for $N = 4096$. By bytes, complete rows are better at all three. At $d = 320$ they move 0.59 of the bytes of slices.
# <!-- widths = tuple(dict.fromkeys(one["d"] for one in rows("small-cache", pass_="forward", N=4096))) -->
# <!-- "timed at $d = 256$, 320 and 512" if sorted(widths) == [256, 320, 512] -->
# <!-- 32, 24, 16 = (one["B"] * one["H"] for d in (256, 320, 512) for one in rows("small-cache", pass_="forward", N=4096, d=d, causal=False, contender="whole rows")) -->
# <!-- of_rows = lambda d, loaded: kernel_costs.ledger_bytes(kernel_costs.attention_forward(kernel_costs.KernelProblem(4096, 4096, d), BM=forward(90, loaded)[0]["BM"], BN=64), 2) -->
# <!-- of_slices = lambda d: kernel_costs.ledger_bytes(kernel_costs.sliced_forward(kernel_costs.KernelProblem(4096, 4096, d), BM=128, BN=128), 2) -->
# <!-- 0.59 = of_rows(320, 512) / of_slices(320) -->
# <!-- "complete rows are better at all three" if all(of_rows(d, 256 if d == 256 else 512) < of_slices(d) for d in (256, 320, 512)) -->
#
# **Predict** (guess). At $d = 320$, without a mask, what is the time of complete rows divided by the time of slices?

# %% tags=["predict"]
predict("13.8", ratio=1.2)  #> predict("13.8", ratio=...)

# %%
record, ms = load_record("small-cache"), {}
print(record_source(record))
for d in (256, 320, 512):
    rows = [row for row in record["rows"] if "ms" in row
            and (row["d"], row["pass"], row["causal"]) == (d, "forward", False)]
    ms[d] = {row["contender"]: row["ms"] / (row["B"] * row["H"]) for row in rows}  # per head
    rival = min((name for name in ms[d] if name.startswith("SDPA")), key=ms[d].get)
    print(f"d = {d}, ms per head: complete rows {ms[d]['whole rows']:.3f}, slices "
          f"{ms[d]['fused split-d']:.3f}, in PyTorch {ms[d][rival]:.3f} ({rival})")
measured("13.8", ratio=ms[320]["whole rows"] / ms[320]["fused split-d"])

# %% [markdown]
# <details><summary>Times at d = 320</summary>
#
# Complete rows take 1.22 times as long, although they move fewer bytes. A tile in Triton has a power of two of columns. Lanes past column 320 are masked and move no word, but the products are computed with all 512 columns. So a head takes 0.156 ms, almost as long as at $d = 512$, 0.170 ms. Slices of 64 columns need 5 slices and no padding.
# <!-- timed = lambda d, name: row("small-cache", contender=name, d=d, causal=False, pass_="forward")["ms"] -->
# <!-- 1.22 = timed(320, "whole rows") / timed(320, "fused split-d") -->
# <!-- 0.156, 0.170 = timed(320, "whole rows") / 24, timed(512, "whole rows") / 16 -->
# <!-- 512, 5 = 2 ** math.ceil(math.log2(320)), 320 // sliced(90)["BD"] -->
#
# </details>
#
# The library's choices are entries of a file (`iocourse/data/choices.json`), and each entry has its reason. For 4 batches of 16 heads:
# <!-- 4, 16 as input -->

# %%
for d in (64, 256, 320, 512, 1024):
    choice = choices.recorded("forward pass", choices.Case(90, 2, d, rows=64 * 4096, heads=64))
    print(f"d = {d:4}: {choice.value}, because: {choice.why}")

# %% [markdown]
# At $d = 256$ and 512 the faster kernel is the one with fewer bytes; at $d = 320$ it is not. So the library follows the record. On an H200 in 16 bits it takes slices from $d = 257$ to 320 for full and causal attention, if no key heads are shared and batch × heads × $N$ is at least 16,896. Block masks and packed sequences take complete rows, and all other cases the kernel with fewer bytes. Chips without recorded times use the bytes alone. Section 11.13 has another case in which the tile with more words is faster; lesson 14c returns to this one.
# <!-- "At $d = 256$ and 512 the faster kernel is the one with fewer bytes; at $d = 320$ it is not" if [timed(d, "whole rows") < timed(d, "fused split-d") for d in (256, 320, 512)] == [True, False, True] -->
# <!-- tried = {tuple(it["tile"]): it["ms"][0] for it in next(one for one in rows("tune", "kernels", kernel="forward") if one["d"] == 128)["tried"] if it.get("ms")} -->
# <!-- "the tile with more words is faster" if tried[64, 64, 4, 3] < tried[128, 128, 8, 3] -->
# <!-- taken = lambda d, arch=90: choice("forward pass", launch(arch, d)).value -->
# <!-- "it takes slices from $d = 257$ to 320" if [taken(d) for d in (256, 257, 320, 321, 384, 512)] == ["complete rows", "slices", "slices", *["complete rows"] * 3] -->
# <!-- 257 as input -->
# <!-- 16,896 = min(one.where["rows"][0] for one in choices.read_rows() if (one.name, one.value) == ("forward pass", "slices") and 90 in one.where["arch"] and "rows" in one.where) -->
# <!-- "if no key heads are shared" if choice("forward pass", launch(90, 320)._replace(group=2)).value == "complete rows" -->
# <!-- "for full and causal attention" if [choice("forward pass", launch(90, 320, mask=mask)).value for mask in ("full", "causal", "window")] == ["slices", "slices", "complete rows"] -->
# <!-- "Block masks and packed sequences take complete rows" if all(choice("forward pass", launch(90, d, mask=mask)).value == "complete rows" for d in (256, 257, 320, 512) for mask in ("blocks", "packed")) -->
# <!-- "Chips without recorded times use the bytes alone" if all(taken(d, arch) == dict(rows="complete rows").get(fewest(arch, d), "slices") for arch in (75, 80, 89, 100) for d in (64, 128, 256, 512)) -->
#
# ## Misconceptions
#
# - **"A sparse mask saves in proportion to its masked pairs."** A mask with 0.1 % of its pairs visible moves 1.226 times the bytes of no mask. Only empty blocks are saved (13.3).
# <!-- 0.1 as input -->
# <!-- 1.226 = thousandth -->
# - **"A large head size does not fit a GPU."** In the forward pass some tile of complete rows fits every chip of the table, up to $d = 512$ (13.6).
# - **"The tile with the fewest bytes is the fastest."** At $d = 320$ complete rows move 0.59 of the bytes of slices and take 1.22 times as long (13.8).
# <!-- 0.59, 1.22 = of_rows(320, 512) / of_slices(320), timed(320, "whole rows") / timed(320, "fused split-d") -->
#
# ## Take-away
#
# - A mask is turned into lists once: entries, spans, slots and patterns of partial blocks, and an order. The kernel loops over the lists, and its bytes are linear in the number of visited blocks.
# - In 16 bits, complete rows move fewer bytes than slices while $B_M > \frac27 b$.
# - Bytes compare two kernels only if they compute the same products at a similar rate. Recorded times decide.
#
# ## References
#
# - B. Saha, C. Ye: *The I/O complexity of attention*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The small cache, $M < d^2$.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Section 3.3 is block-sparse FlashAttention.
# - J. Dong, B. Feng, D. Guessous, Y. Liang, H. He: *Flex Attention*, 2024, [arXiv 2412.05496](https://arxiv.org/abs/2412.05496). Masks as functions, and block masks with full and partial blocks.
# - NVIDIA: data sheets of T4, A100, L4, H200 and B200 (`iocourse.gpu.CHIPS` has the source of each); *CUDA C++ Programming Guide*, for shared memory and registers.
#
# **What comes next.** <!-- next -->
