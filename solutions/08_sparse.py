# %% [markdown]
# # 08 Sparse attention
#
# So far every query attended to every key, and the best schedules moved $4N^2d^2/M$ words. Many models let a query attend only to some of the keys. How much traffic does that save? The places of the masked pairs matter more than their number. A window can cost as little as reading and writing everything once. But if one pair in a thousand is visible, at random, nearly every tile must be computed.
#
# **What you will learn**
#
# - to count the traffic of block-sparse attention exactly;
# - to write a schedule that skips empty blocks, and a sliding window with $4Nd$ words;
# - to explain why two masks with the same density differ in traffic.
#
# **Prerequisites**: lesson 04 (buffer reuse, section 4.3); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from collections import deque

import numpy as np

from iocourse import Machine, costs, exact, masks, run
from iocourse.course import attempt, challenge, check, explore, hint, measured, predict
from iocourse.data import real_head

# %%
explore.mask_tiles(masks.Window(256, 48), 32,
                   title="A window of 48 keys to either side, N = 256")

# %% [markdown]
# The figure shows all pairs of 256 queries and 256 keys, in tiles of $32 \times 32$. A query attends to itself and to the 48 keys on either side. The tiles of a mask are called blocks. Of the 64 blocks, 8 are *full*: every pair is visible. 26 are *partial*: some pairs are visible. They are computed completely, and the scores of the other pairs are masked afterwards. The other 30 have no visible pair. For an *empty block* no keys are loaded; this lesson is about the traffic that this saves.
#
# ## 8.1 Most weights are near zero
#
# We use two heads of a real model, on a text of 471 tokens. The sharp head attends mostly to the previous token, the flat head to all tokens. We add up the $471 \times 471$ weights in tiles of $16 \times 16$, which gives 30 rows of 30 tiles. Each row of $P$ sums to 1, so the total weight is 471.
#
# **Predict** (guess). How many of the 900 tiles, heaviest first, hold 99 percent of the weight?
# <!-- 900, 99 = math.ceil(471 / 16) ** 2, 0.99 * 10**2 -->
# <!-- 32 \times 32 as input -->
# <!-- 471 \times 471 = (len(real_head(0, 2).tokens), len(real_head(0, 11).tokens)) -->
# <!-- 16 \times 16 as input -->

# %% tags=["predict"]
predict("8.1", sharp=90, flat=800)  #> predict("8.1", sharp=..., flat=...)

# %%
def tile_weights(head, B):
    Q, K = head.Q.astype(float), head.K.astype(float)
    N, n = len(Q), -(-len(Q) // B)
    P = np.zeros((n * B, n * B))  # padded to complete tiles
    P[:N, :N] = exact.softmax(exact.scores(Q, K))
    return P.reshape(n, B, n, B).sum(axis=(1, 3))  # (n, n)


def tiles_for(weights, share):
    heaviest = np.sort(weights, axis=None)[::-1]
    return int(np.searchsorted(heaviest.cumsum(), share * weights.sum())) + 1


sharp, flat = real_head(0, 2), real_head(0, 11)
in_tiles = {"sharp": tile_weights(sharp, 16), "flat": tile_weights(flat, 16)}
measured("8.1", **{name: tiles_for(weights, 0.99) for name, weights in in_tiles.items()})
explore.attention_map(in_tiles["sharp"], title="Sharp head: weight in each tile of 16 x 16")

# %% [markdown]
# <details><summary>Number of tiles for 99 percent of the weight</summary>
#
# 89 tiles for the sharp head and 870 for the flat head. For the sharp head, nine tenths of the scores could be left out, and nearly all the weight would remain.
#
# </details>
#
# This idea has two limits. The next cell keeps first the heaviest tiles, then all tiles at most one tile from the diagonal:
# <!-- 99 as input -->

# %%
def without_the_light_tiles(head, weights, count):
    kept = weights >= np.sort(weights, axis=None)[-count]
    mask = masks.BlockMask(len(head.Q), kept, 16)
    Q, K, V = (part.astype(float) for part in (head.Q, head.K, head.V))
    full, sparse = exact.attention(Q, K, V), exact.attention(Q, K, V, mask=mask.additive())
    return np.linalg.norm(sparse - full) / np.linalg.norm(full)


heaviest = tiles_for(in_tiles["sharp"], 0.99)
print(f"sharp head, the {heaviest} heaviest tiles: O changes by "
      f"{without_the_light_tiles(sharp, in_tiles['sharp'], heaviest):.1%}")
near = masks.sliding_window(471, 16, 1)
print(f"sharp head, {near.tiles.sum()} tiles near the diagonal hold "
      f"{in_tiles['sharp'][near.tiles].sum() / 471:.0%} of the weight")

# %% [markdown]
# First, a mask changes the output, here by 3.5 percent. Whether this is acceptable depends on the model. From here on the mask is *given*, and we compute attention under it exactly. Second, these tiles were found by computing all weights, which is the cost that we wanted to save. A mask fixed in advance, such as the 88 tiles near the diagonal, holds 79 percent: in the first eight rows of tiles much of the weight is far from the diagonal. In practice masks are chosen from positions, or by a method cheaper than attention.
#
# ## 8.2 Counting blocks and words
#
# A *block mask* (`BlockMask` in code) has one entry per block of $B_r$ queries and $B_c$ keys: True for a visible block (full or partial), False for an empty block. With $N = 4096$ and square blocks of side $B = 64$ there are $n_b = 64$ blocks per side, 4096 in total. The library builds five kinds:
#
# | mask | visible blocks | their number |
# | --- | --- | --- |
# | `causal(N, B)` | on and below the diagonal | $n_b(n_b+1)/2$ |
# | `sliding_window(N, B, w)` | at most $w$ blocks from the diagonal | $n_b(2w+1) - w(w+1)$ |
# | `strided(N, B, s)` | the diagonal and every $s$-th column | $n_b\lceil n_b/s\rceil + n_b - \lceil n_b/s\rceil$ |
# | `bigbird(N, B, g, w, r)` | $g$ global rows and columns, a window, and $r$ random blocks in each row that is not global | $g(2n_b - g) + n'(2w+1) - w(w+1) + rn'$ with $n' = n_b - g$ |
# | `random(N, B, p)` | the diagonal, and any other with probability $p$ | $n_b + p\,n_b(n_b-1)$ on average |
#
# The window has $w(w+1)$ blocks fewer because it ends at the first and at the last token. All visible blocks are full, except that `causal` also masks $j > i$ within the diagonal blocks, so these are partial.
# <!-- 3.5 as output -->
# <!-- 79 as output -->

# %%
explore.block_mask(masks.bigbird(1024, 64, 1, 1, 2), 64, title="BigBird, g = 1, w = 1, r = 2")

# %% [markdown]
# The first row and the first column of blocks are global, the band along the diagonal is the window, and the other blocks were drawn at random. Lesson 08b derives the lower bound, Theorem D.
#
# In buffer reuse (F3) of lesson 04, a query block and its outputs are resident, and keys and values are streamed. Under a mask, only the keys that some query of the block attends to are loaded. Each query is loaded once, each output is stored once, and each visible block adds the keys and values of its columns. Let $c_j$ be the number of keys in key block $j$:
#
# $$ W = 2Nd + 2d \sum_{(i,j)\ \text{visible}} c_j , \qquad \text{with equal blocks } W = 2Nd + 2dB \cdot (\text{number of visible blocks}) . \tag{8.1} $$
# <!-- (8.1) W = not evaluated: sum over a set -->
# <!-- (8.1) W = costs.block_sparse(N, d, mask=mask, Br=B, Bc=1).total with n = drawn % 20 + 1, N = n * B, mask = masks.random(N, B, 0.3, seed=drawn), number_of_visible_blocks = int(mask.tiles.sum()) -->
#
# The footprint is still that of (4.3), because a query block has the same size as without a mask. With $B_r = 64$ and $B_c = 1$ it is 8,448 words.
#
# **Predict** (compute). Which fraction of the traffic without a mask remains under `causal`, and under `sliding_window` with $w = 1$, for $N = 4096$ and $d = 64$?

# %% tags=["predict"]
predict("8.2", causal=0.5, window=0.047)  #> predict("8.2", causal=..., window=...)

# %%
N, d, B = 4096, 64, 64
given = {
    "dense": masks.BlockMask(N, np.ones((N // B, N // B), dtype=bool), B),
    "causal": masks.causal(N, B),
    "window 1": masks.sliding_window(N, B, 1),
    "strided 8": masks.strided(N, B, 8),
    "bigbird 1,1,2": masks.bigbird(N, B, 1, 1, 2),
    "random 0.1": masks.random(N, B, 0.1),
}
words = {name: costs.block_sparse(N, d, mask=mask, Br=B, Bc=1).total
         for name, mask in given.items()}
for name, mask in given.items():
    by_formula = 2 * N * d + 2 * d * B * int(mask.tiles.sum())
    print(f"{name:14} {mask.tiles.sum():5,} blocks, density {mask.tiles.mean():.3f}: "
          f"{words[name]:11,} words, by (8.1) {by_formula:11,}")
part = {name: words[name] / words["dense"] for name in words}
measured("8.2", causal=part["causal"], window=part["window 1"])

# %% [markdown]
# <details><summary>Traffic and density</summary>
#
# Both fractions are larger than the density: 0.5154 compared with 0.508, and for the window 0.06106 compared with 0.046, about a third more. The reason is the $2Nd = 524{,}288$ words of queries and outputs, which every mask moves. Under the window they are a quarter of the total. The causal mask has a little more than half of the blocks, because the 64 partial blocks on the diagonal count completely. The random mask drew 484 blocks, and the expected number is 467.
#
# </details>
# <!-- under = lambda mask, Br: costs.block_sparse(4096, 64, mask=mask, Br=Br, Bc=1) -->
# <!-- "Under the window they are a quarter of the total" if round(2 * 4096 * 64 / under(masks.sliding_window(4096, 64, 1), 64).total, 2) == 0.25 -->
#
# Blocks need not be equal. The last one may be a ragged block, and if several sequences are stored one after the other, a block ends where a sequence ends. Then $c_j$ differs from block to block.
#
# <!-- exercise 8A --> Count the words of (8.1) for any grid. Queries are split into blocks of the given heights, keys into blocks of the given widths. A complete row of blocks may be empty; its queries are still loaded and its outputs are still stored. If you are stuck after five minutes, run `hint("8A")` in a new cell.
# <!-- 524{,}288, 467 = 2 * 4096 * 64, 64 + 0.1 * 64 * 63 -->

# %% [raw] name="about-8A"
# title = "The traffic of a grid of blocks"
# difficulty = 2
# importance = 4
# minutes = 8
# hints = [
#   "Which words are moved even if every block is empty? Which words does one visible block add?",
#   "Every query is read once and every output is written once for any mask. A visible block needs its keys and its values: which of the two lists has their number?",
#   "N is the sum of one list. For the blocks, add the width of the column for every True in the grid. A boolean row times a vector of widths, with @, handles one row of blocks.",
# ]

# %% tags=["exercise"] name="ex-8A"
def my_block_words(tiles, heights, widths, d):
    """Return the traffic of buffer reuse under a block mask.

    tiles: boolean array (len(heights), len(widths)), True for a visible block.
    heights, widths: lists of the queries per query block and the keys per key block.
    d: head dimension.
    """
    ### BEGIN SOLUTION queries and outputs once, then keys and values of every visible block
    N = sum(heights)
    keys_loaded = int((tiles @ np.array(widths)).sum())
    return 2 * N * d + 2 * d * keys_loaded
    ### END SOLUTION


# %% tags=["check"] name="check-8A"
check("8A", my_block_words)

# %%
blocks = [B] * (N // B)
for name in ("causal", "bigbird 1,1,2"):
    print(name, attempt(my_block_words, given[name].tiles, blocks, blocks, d))

# %% [markdown]
# Your counts should agree with the output of section 8.2.
#
# In the next cell you can paint masks. Choose a preset and drag over the blocks, or click on one; *undo* reverts a stroke. (With the keyboard: Tab moves between the controls; in the box that names a block, the arrow keys select another block, and Space shows or hides it.) Words, density and a lower bound are updated if a kernel is running. Paint two masks with equally many blocks. Their traffic is equal, because at this block size (8.1) depends only on the number of blocks.

# %%
explore.mask_painter()

# %% [markdown]
# ## 8.3 Skipping empty blocks
#
# Without a mask, buffer reuse loops over the key blocks of `m.blocks(N, Bc)`. Under a mask, `mask.columns(start, stop)` returns the keys that the queries `start` … `stop - 1` need, as ranges from left to right. A mask is a rule on positions, so this call moves no words.

# %%
small = masks.bigbird(64, 8, 1, 1, 1)
for start in (0, 8, 32):
    print(f"queries {start} to {start + 7} need keys {small.columns(start, start + 8)}")

# %% [markdown]
# The first query block is global and needs all 64 keys. The others need the global keys 0 to 7, the neighbouring keys, and one random block; adjacent ranges are joined.
#
# **Partial blocks.** A diagonal block of `causal` is computed completely; then `m.hide(s, i, j, mask)` sets the scores of masked pairs to $-\infty$. After the softmax their weight is 0.
#
# **Queries without a visible key.** Their softmax is $0/0$. `BlockMask` raises an error for such a mask unless you pass `allow_empty=True`. The next cell shows both.

# %%
m = Machine(M=32)
S = m.new("S", (4, 4))
for i in m.blocks(4, 4):
    with m.full(i, i, value=1.0) as s:
        m.hide(s, i, i, masks.causal(4, 2))
        m.store(s, S, i)
print(m.take(S))

tiles = np.eye(4, dtype=bool)
tiles[2] = False
try:
    masks.BlockMask(16, tiles, 4)
except ValueError as error:
    print(error)
print(masks.BlockMask(16, tiles, 4, allow_empty=True))

# %% [markdown]
# With `allow_empty=True` the row of $O$ is zero, which is the sum over no keys. `stats.normalise(o)` does this: a row with $\ell_i = 0$ becomes zeros.
#
# <!-- exercise 8B --> Write buffer reuse under a mask, with the calls of exercise 4C.
#
# - A block `i` of `m.blocks` has the attributes `i.start`, its first row, and `i.stop`, the row after its last. `m.blocks` also accepts a range such as `(8, 24)` in place of $N$, and the blocks in `m.hide(s, i, j, mask)` may also be such ranges.
# - $B_r$ and $B_c$ need not be those of the mask, because `mask.columns` returns the keys that some query of the block needs. If $B_r$ does not divide $N$, the last query block is shorter.
# - The check also counts a dry run, which computes one of several equal query blocks and multiplies its words. Under a mask they may differ, so pass `alike=mask.alike` to `m.blocks` in the loop over query blocks.
# - Your function may move at most $2Nd$ words plus $2d$ words for each key that `mask.columns` returns for a query block.
# - The available fast memory is the footprint of (4.3), where $B_c$ is the largest key block that occurs, plus one tile of scores and four words per query.
#
# If you are stuck after seven minutes, run `hint("8B")` in a new cell.

# %% [raw] name="about-8B"
# title = "Skipping empty blocks"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "Start from your schedule of exercise 4C. Which single line determines the keys that a block of queries attends to?",
#   "The loop over all keys becomes two loops: over the ranges that the mask returns for these queries, and over the blocks of one range. m.blocks accepts a range instead of N.",
#   "After the scores are computed and before the update, set the scores of masked pairs to -inf: m.hide with the scores, both blocks and the mask. It is also correct for full blocks, so no distinction is needed.",
# ]

# %% tags=["exercise"] name="ex-8B"
def my_block_sparse(m, Q, K, V, *, mask, Br, Bc):
    """Return softmax(QKᵀ/√d) V over the visible pairs of a mask.

    m: the machine. Q, K, V: slow arrays (N, d). mask: from iocourse.masks, for N queries.
    Br, Bc: rows per query block and per key block. Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION buffer reuse over the key ranges of the mask, then m.hide
    for i in m.blocks(N, Br, alike=mask.alike):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for needed in mask.columns(i.start, i.stop):
                for j in m.blocks(needed, Bc):
                    with m.load(K, j) as k:     # (Bc, d)
                        s = q @ k.T             # (Br, Bc)
                    m.hide(s, i, j, mask)
                    with s, m.load(V, j) as v:  # (Bc, d), in the words of k
                        stats.update(s, o)
                        o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-8B"
check("8B", my_block_sparse)


# %%
rng = np.random.default_rng(8)
Q, K, V = rng.standard_normal((3, 256, 16))
for mask in (masks.causal(256, 32), masks.sliding_window(256, 32, 1),
             masks.bigbird(256, 32, 1, 1, 1), masks.strided(256, 32, 4)):
    mine = attempt(run, my_block_sparse, M=4096, Q=Q, K=K, V=V, mask=mask, Br=32, Bc=8)
    right = abs(mine.O - exact.attention(Q, K, V, mask=mask.additive())).max() < 1e-12
    count = attempt(my_block_words, mask.tiles, [32] * 8, [32] * 8, 16)
    print(f"{mask.tiles.sum():2} blocks: {mine.ledger.total:6,} words, counted {count:6,}, "
          f"values correct: {right}")

# %% [markdown]
# Words and counts (exercise 8A) should agree, and the values equal exact attention under the mask.
#
# If $B_r$ does not divide $N$, `m.blocks(N, Br)` makes the last query block the short one. Under a causal mask this is the expensive end, because the last block needs all $N$ keys, however few queries it has. With the short block first, the $k$ blocks end at $N$, $N - B_r$, $N - 2B_r$ and so on, and the traffic is
#
# $$ W = 2Nd + 2d\left(kN - B_r\,\frac{k(k-1)}{2}\right) , \qquad k = \left\lceil \frac{N}{B_r} \right\rceil . $$
# <!-- (above) W = costs.block_sparse(N, d, mask=masks.Causal(N), Br=Br, Bc=1).total with k = costs.ceil_div(N, Br) -->
# <!-- (above) k = costs.flash2(N, d, Br=Br, Bc=1).reads["K"] // (N * d) -->
#
# Take $N = 1024$, $d = 64$ and $M = 58{,}368$ (`n`, `d` and `fast` in the code), where at most 445 queries fit. Each block needs the keys up to its end:


# %%
n, fast = 1024, 58368
for Br in (342, (fast - d) // (2 * d + 3)):  # the second is the largest that fits, by (4.4)
    k = -(-n // Br)
    for place, ends in (("last", [*range(Br, n, Br), n]), ("first", [*range(n, 0, -Br)])):
        print(f"Br = {Br}, short block {place + ',':6} ends {sorted(ends)}: "
              f"{2 * d * (n + sum(ends)):,} words")
    print(f"  closed form {2 * n * d + 2 * d * (k * n - Br * k * (k - 1) // 2):,}, library "
          f"{costs.block_sparse(n, d, mask=masks.Causal(n), Br=Br, Bc=1).total:,}")

# %% [markdown]
# Of the two $B_r$, with the short block last the smaller one moves fewer words, 393,472. With the short block first it is the larger one, with 353,408 words. `m.blocks(N, Br, short_first=mask.short_first(Br))` selects the cheaper end for any mask, as the library does.
#
# ## 8.4 A sliding window with 4Nd words
#
# Now consider a window of *tokens*: query $i$ attends to the keys $i - w, \dots, i + w$, independent of block boundaries. Here $w$ counts keys, not blocks. With blocks of $B_r$ queries, buffer reuse loads $B_r + 2w$ keys per block, $w$ beyond either end. So each of the $T_r - 1$ boundaries between two blocks adds $2w$ keys, with $2d$ words per key:
#
# $$ W = 4Nd + 4dw\,(T_r - 1) , \qquad \text{if } w \le B_r , \text{ where } N = T_rB_r . \tag{8.2} $$
# <!-- (8.2) W = costs.block_sparse(N, d, mask=masks.Window(N, w), Br=Br, Bc=1).total with N = Tr * Br where w <= Br and N == Tr * Br -->
#
# From query $i$ to query $i + 1$, the window loses one key and gains one. All other keys are needed again. So keep the keys and values of the window resident, and stream the *queries*, one at a time. The resident keys and values form a *ring buffer*: each new key replaces the oldest one, and each is loaded once.
#
# $$ W = 4Nd , \qquad \text{footprint } 2d(2w+1) + 2d + 3 . \tag{8.3} $$
# <!-- (8.3) W = costs.window(N, d, w=w).total -->
# <!-- (8.3) footprint = costs.window(N, d, w=w).peak where 2 * w + 1 <= N -->
#
# The footprint, for $2w + 1 \le N$, consists of $2w + 1$ keys and as many values, $q_i$ and $o_i$, two statistics and one score. $W$ does not depend on $w$.
#
# **Predict** (compute). $N = 4096$, $d = 64$, $w = 63$. What is the ratio of the traffic with blocks of 64 queries to the traffic of the ring buffer? And for $w = 15$?

# %% tags=["predict"]
predict("8.4", w63=2, w15=1.25)  #> predict("8.4", w63=..., w15=...)

# %%
ratio = {}
for w in (63, 15):
    rows = costs.block_sparse(N, d, mask=masks.Window(N, w), Br=64, Bc=1)
    ring = costs.window(N, d, w=w)
    ratio[w] = rows.total / ring.total
    print(f"w = {w:2}: blocks {rows.total:9,} words, peak {rows.peak:6,}; "
          f"ring {ring.total:9,} words, peak {ring.peak:6,}")
measured("8.4", w63=ratio[63], w15=ratio[15])

# %% [markdown]
# <details><summary>Traffic and footprint of the ring buffer</summary>
#
# The ratios are 1.969 and 1.231. The formula is $1 + w(T_r-1)/N$, nearly $1 + w/B_r$. The ring buffer moves 1,048,576 words for both windows, and no schedule moves fewer, because $4Nd$ is the compulsory traffic. It needs more fast memory for $w = 63$: 16,387 words instead of 8,448. For $w = 15$ it needs 4,099, so it has both less traffic and a smaller footprint.
#
# </details>
# <!-- by_blocks, ring = (lambda w, Br: under(masks.Window(4096, w), Br)), (lambda w: costs.window(4096, 64, w=w)) -->
# <!-- "The formula is $1 + w(T_r-1)/N$" if all(math.isclose(by_blocks(w, 64).total / ring(w).total, 1 + w * (4096 // 64 - 1) / 4096) for w in (63, 15)) -->
# <!-- "it has both less traffic and a smaller footprint" if ring(15).total < by_blocks(15, 64).total and ring(15).peak < by_blocks(15, 64).peak -->
#
# A ring buffer needs tiles that outlive the iteration in which they were loaded. Python lists, dicts and deques may hold tiles; the machine counts the tiles, not the container. In this small example, row $i$ of $Y$ is the sum of the rows $i - 2$, $i - 1$ and $i$ of $A$:
# <!-- 1.969, 1.231 = (by_blocks(w, 64).total / ring(w).total for w in (63, 15)) -->

# %%
def moving_sum(m, A, *, back):
    """Return Y with Y_i = A_{i-back} + … + A_i; each row of A is loaded once."""
    N, d = A.shape
    Y = m.new("Y", (N, d))
    ring = deque()                     # oldest row on the left
    for i in range(N):
        if i > back:
            ring.popleft().free()      # no longer needed
        ring.append(m.load(A, i))      # (1, d)
        with m.zeros(1, d) as y:
            for a in ring:
                y += a
            m.store(y, Y, i)
    return Y


done = run(moving_sum, M=32, A=np.ones((6, 4)), back=2)
print(done.O[:, 0], done.ledger)

# %% [markdown]
# Each row of $A$ was read once. The peak of 16 words is three rows of $A$ and one of $Y$. At the end of a run the machine frees the tiles that are still in the ring buffer.
#
# <!-- exercise 8C --> Write the window with $4Nd$ words. It extends to both sides, so keys *after* a query must be loaded before it. Near the ends the window is shorter, and $w$ may be 0 or larger than $N$. Call `free()` on each key and value after its last use; otherwise its words remain in use as long as a variable refers to it. `m.row_stats(1)` returns the statistics of one query. The available fast memory is the footprint of (8.3), with $\min(2w+1, N)$ keys, plus one row of $d$ words, one score per key in the window and four words. If you are stuck after nine minutes, run `hint("8C")` in a new cell.

# %% [raw] name="about-8C"
# title = "A sliding window"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "From one query to the next, which key does the window lose, and which one does it gain?",
#   "Before query i is processed, every key up to i + w must be resident, and key i - w - 1 must be freed. Near the start nothing is freed, near the end nothing is loaded.",
#   "Keep pairs (tile of K, tile of V) in a deque: append loaded pairs on the right, free pairs on the left. A counter of loaded rows tells which one is next. Each query is one iteration of buffer reuse with Br = 1 over the keys in the deque.",
# ]

# %% tags=["exercise"] name="ex-8C"
def my_window(m, Q, K, V, *, w):
    """Return softmax(QKᵀ/√d) V where query i attends to keys i - w … i + w.

    m: the machine. Q, K, V: slow arrays (N, d). w: an integer, 0 or more.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION keys and values of the window are resident, queries are streamed
    ring, loaded = deque(), 0  # pairs (k, v), oldest first; rows loaded so far
    for i in range(N):
        if i > w:
            for tile in ring.popleft():
                tile.free()
        while loaded < min(i + w + 1, N):
            ring.append((m.load(K, loaded), m.load(V, loaded)))  # (1, d), (1, d)
            loaded += 1
        with m.load(Q, i) as q, m.zeros(1, d) as o, m.row_stats(1) as stats:
            q *= d**-0.5
            for k, v in ring:
                with q @ k.T as s:  # (1, 1)
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-8C"
check("8C", my_window)

# %%
for w in (2, 8, 32):
    mine = attempt(run, my_window, M=4096, Q=Q, K=K, V=V, w=w)
    block = attempt(run, my_block_sparse, M=4096, Q=Q, K=K, V=V, Br=32, Bc=8,
                    mask=masks.Window(256, w))
    print(f"w = {w:2}: ring {mine.ledger.total:6,} words, blocks {block.ledger.total:6,}; "
          f"same values: {abs(mine.O - block.O).max() < 1e-12}")

# %% [markdown]
# The ring buffer moves $4Nd$, 16,384 words, for every width. The blocks move slightly more for $w = 2$, and their traffic increases with $w$.
#
# What if the ring buffer does not fit? For $N = 4096$, $d = 64$ and $w = 256$ it needs 65,795 words. With $M = 16\,384$ we return to blocks, as large as fit:

# %%
M, w = 16384, 256
Br = (M - d) // (2 * d + 3)  # as in (4.4)
rows = costs.block_sparse(N, d, mask=masks.Window(N, w), Br=Br, Bc=1)
print(f"ring: {costs.window(N, d, w=w).peak:,} words of fast memory; M = {M:,}")
print(f"blocks of {Br}: {rows.total:,} words, {rows.total / (4 * N * d):.2f} times 4Nd; "
      f"1 + w/Br = {1 + w / Br:.2f}")

# %% [markdown]
# The traffic is again about $1 + w/B_r$ times $4Nd$, although $w > B_r$. It is slightly smaller, because blocks near either end need fewer keys. With $B_r \approx M/(2d)$ this is $4Nd + 8wNd^2/M$, which is linear in $N$.
# <!-- "The traffic is again about $1 + w/B_r$ times $4Nd$" if math.isclose(by_blocks(256, 124).total / ring(256).total, 1 + 256 / 124, rel_tol=0.03) -->
#
# ## 8.5 Equal density, different traffic
#
# For $B_r = B$, (8.1) depends only on the number of blocks. But fast memory may hold more than one row of blocks. A query block that spans several rows of blocks needs each key once, even if several of these rows need it. Then (8.1) becomes
#
# $$ W = 2Nd + 2d \sum_I \bigl|\mathrm{cols}(I)\bigr| , \tag{8.4} $$
# <!-- (8.4) not evaluated: sum over a set -->
#
# where $I$ runs over the query blocks and $\mathrm{cols}(I)$ is the *union* of the keys that the queries of $I$ attend to. Take three block masks with exactly 190 of 4096 blocks: the window with $w = 1$; the diagonal and the first two columns, whose keys are visible to every query; and the diagonal with 126 random blocks.
#
# **Predict** (guess). From $B_r = 64$ to $B_r = 512$, which is eight rows of blocks, the traffic of dense attention falls by a factor of 7.2. By what factor does it fall for the window and for the random mask?
# <!-- few, many = (costs.flash_optimal(4096, 64, Br=Br, Bc=1).total for Br in (64, 512)) -->
# <!-- 7.2 = few / many -->

# %% tags=["predict"]
predict("8.5", window=1.8, scattered=1.1)  #> predict("8.5", window=..., scattered=...)

# %%
on_diagonal = np.eye(64, dtype=bool)
thrown, rng = on_diagonal.copy(), np.random.default_rng(8)
thrown.flat[rng.choice(np.flatnonzero(~on_diagonal), 126, replace=False)] = True
same_density = {
    "window": masks.sliding_window(N, B, 1),
    "columns": masks.BlockMask(N, on_diagonal | (np.arange(64) < 2), B),
    "scattered": masks.BlockMask(N, thrown, B),
}
heights = (64, 128, 256, 512)
moved = {name: [costs.block_sparse(N, d, mask=mask, Br=Br, Bc=1).total for Br in heights]
         for name, mask in same_density.items()}
for name, row in moved.items():
    print(f"{name:10} {same_density[name].tiles.sum()} blocks:", *(f"{x:10,}" for x in row))
measured("8.5", window=moved["window"][0] / moved["window"][-1],
         scattered=moved["scattered"][0] / moved["scattered"][-1])
shown = {"window, columns": moved["window"], "scattered": moved["scattered"],
         "4Nd": [4 * N * d] * len(heights)}
explore.curve({}, {name: list(zip(heights, row, strict=True)) for name, row in shown.items()},
              title="Three masks of 190 blocks", xlabel="Br", ylabel="words moved",
              log=(True, False))

# %% [markdown]
# <details><summary>Which mask gains from larger query blocks</summary>
#
# All three start at 2,080,768 words. Under each mask, eight rows have about 24 visible blocks. Under the window these blocks are in $8 + 2$ columns of blocks, and under `columns` also in $8 + 2$. The traffic of these two falls equally, towards $4Nd$. Under the scattered mask they are in about 20 different columns. At $B_r = 512$ this mask moves 1,818,624 words, compared with 1,163,264.
#
# So the density alone does not determine the traffic. More fast memory helps if *neighbouring queries need the same keys*.
#
# </details>
# <!-- 24, 20 = 190 / 8, (1818624 - 2 * 4096 * 64) / (2 * 64 * 64) / 8 -->
# <!-- columns = masks.BlockMask(4096, np.eye(64, dtype=bool) | (np.arange(64) < 2), 64) -->
# <!-- window = masks.sliding_window(4096, 64, 1) -->
# <!-- "The traffic of these two falls equally" if all(under(columns, Br).total == under(window, Br).total for Br in (64, 128, 256, 512)) -->
#
# ## 8.6 The cost of random sparsity
#
# Now consider a mask without structure: each pair is visible with probability $\rho$, independently of the others. A block of $B \times B$ pairs can be skipped only if *none* of its $B^2$ pairs is visible.
#
# **Predict** (guess). $N = 4096$, $B = 64$. One pair in a thousand is visible, $\rho = 0.001$. Which fraction of the blocks must be computed?

# %% tags=["predict"]
predict("8.6", part_of_tiles=0.98)  #> predict("8.6", part_of_tiles=...)

# %%
draw = np.random.default_rng(8).random((N, N), dtype=np.float32)
for rho in (0.01, 0.001, 0.0001):
    pairs = draw < rho
    hit = masks.covering_blocks(pairs, B)  # blocks with a visible pair
    moved_by_blocks = costs.block_sparse(N, d, mask=hit, Br=B, Bc=1).total
    print(f"density {rho:6}: expected {1 - (1 - rho) ** B**2:.3f}, "
          f"found {hit.tiles.mean():.3f} of the blocks, {moved_by_blocks:10,} words")
    if rho == 0.001:
        measured("8.6", part_of_tiles=hit.tiles.mean())

# %% [markdown]
# <details><summary>Blocks with at least one visible pair</summary>
#
# 98 percent. With one visible pair in a hundred, every block is needed, and the traffic is 34,078,720 words, as without a mask.
#
# </details>
#
# A block has at least one visible pair with probability
#
# $$ 1 - (1 - \rho)^{B^2} , \tag{8.5} $$
# <!-- (8.5) = masks.covering_blocks(np.random.default_rng(8).random((480, 480)) < rho, B).tiles.mean() within 0.1 with rho = 1 / one_in where B < 7 and one_in < 10 * B**2 -->
#
# so if complete blocks are loaded, skipping the empty ones saves traffic only if $\rho$ is about $1/B^2 = 0.00024$ or less. The mask above was rounded up to blocks of $64 \times 64$. If it is given pair by pair (blocks of one query and one key), `mask.columns` returns only the keys that some query of a block needs, the union of (8.4), and only these are loaded. A block of $B_r$ queries needs a given key with probability $1 - (1-\rho)^{B_r}$:
# <!-- 98, 0.00024 = 10**2 * (1 - (1 - 0.001) ** 64**2), 1 / 64**2 -->
# <!-- 64 \times 64 as input -->

# %%
pairs = draw < 0.001
exactly = masks.BlockMask(N, pairs, 1, allow_empty=True)  # blocks of one query and one key
for Br in (64, 8, 1):
    words_of_pairs = costs.block_sparse(N, d, mask=exactly, Br=Br, Bc=1).total
    print(f"Br = {Br:2}: {words_of_pairs:9,} words")
print(f"2Nd + 2d for each of {pairs.sum():,} pairs: {2 * N * d + 2 * d * int(pairs.sum()):,}")
tenth = masks.BlockMask(N, draw < 0.1, 1)
words_of_tenth = costs.block_sparse(N, d, mask=tenth, Br=64, Bc=1).total
print(f"density 0.1, Br = 64: {words_of_tenth:,} words")

# %% [markdown]
# For $\rho = 0.001$ this is far less than with complete blocks, which move 33.5 million words. With $B_r = 1$ each pair loads its own key and value, $2d$ words. With $B_r = 64$ the traffic is less than three percent smaller, because queries that share no keys gain nothing from being in fast memory at the same time. Dense attention needs only $2d/B_r$ words per pair, because $B_r$ queries share each key. So even pair by pair, random masking is useful only if $\rho$ is well below $1/B_r$. (With complete blocks the limit was $1/B^2$.) Then the keys and values cost about $2d\rho N^2$ words, for any $B_r$.
#
# A similar density in complete blocks costs much less. `random 0.1` of section 8.2, with density 0.118, moved 4,489,216 words. A tenth of all pairs, drawn at random, moves 34,034,048, because nearly always at least one of 64 queries needs the key.
#
# ## 8.7 Reordering the tokens
#
# Some masks have a hidden structure. Reformer, in essence, hashes tokens into *buckets*, and a token attends only to the tokens of the same bucket. These may be anywhere in the sequence, so the mask looks scattered:

# %%
rng = np.random.default_rng(8)
buckets = rng.permutation(np.repeat(np.arange(8), 32))  # 256 tokens, 8 buckets of 32
pairs = buckets[:, None] == buckets[None, :]
scattered = masks.covering_blocks(pairs, 32)
print(f"{pairs.mean():.3f} of the pairs are visible, "
      f"{scattered.tiles.mean():.3f} of the blocks are not empty")

# %% [markdown]
# Attention does not depend on the order of its keys, and each query is independent of the others. If we permute the rows of $Q$, $K$ and $V$, and the mask in the same way, then the rows of $O$ are permuted and otherwise unchanged. So we may choose the order.
#
# **Predict** (guess). How many of the 64 blocks have a visible pair if the tokens of each bucket are adjacent?

# %% tags=["predict"]
predict("8.7", tiles_hit=8)  #> predict("8.7", tiles_hit=...)

# %% [markdown]
# <!-- exercise 8D --> Your function is passed the pairs, but not the buckets. Return an order in which the tokens of each bucket are adjacent: `order[0]` is the first token, `order[1]` the next. In some cases the mask is also causal, as in Reformer: a token attends to the tokens of its bucket that are not after it. Then the tokens of one bucket should keep their order, so that blocks above the diagonal stay empty. The check builds the mask in your order and counts its words. If you are stuck after six minutes, run `hint("8D")` in a new cell.

# %% [raw] name="about-8D"
# title = "An order for the tokens"
# difficulty = 3
# importance = 3
# minutes = 10
# hints = [
#   "What do the mask rows of two tokens of the same bucket have in common, also under a causal mask?",
#   "The first key that a token attends to is the first token of its bucket, so it identifies the bucket. Tokens of the same bucket should be adjacent, in their original order.",
#   "argmax along a boolean row finds the first True. Sorting tokens by this number puts buckets together; a stable sort keeps the order within a bucket.",
# ]

# %% tags=["exercise"] name="ex-8D"
def my_order(pairs):
    """Return an order of the tokens in which those of each bucket are adjacent.

    pairs: boolean (N, N), True where query i attends to key j (same bucket, perhaps j <= i).
    Returns an array of the N positions: the first token, the next, ...
    """
    ### BEGIN SOLUTION find the bucket of each token from its row, then sort
    first = pairs.argmax(axis=1)  # the first visible key is the first token of the bucket
    return np.argsort(first, kind="stable")
    ### END SOLUTION


# %% tags=["check"] name="check-8D"
check("8D", my_order)

# %%
def in_my_order():
    order = my_order(pairs)
    mask = masks.covering_blocks(pairs[np.ix_(order, order)], 32)
    done = run(my_block_sparse, M=4096, Q=Q[order], K=K[order], V=V[order], mask=mask,
               Br=32, Bc=8)
    O = np.empty_like(done.O)
    O[order] = done.O  # back in the original order
    want = exact.attention(Q, K, V, mask=np.where(pairs, 0.0, -np.inf))
    return int(mask.tiles.sum()), done.ledger.total, bool(abs(O - want).max() < 1e-12)


found = attempt(in_my_order)
print(f"{costs.block_sparse(256, 16, mask=scattered, Br=32, Bc=8).total:,} words in the "
      f"original order, {found[1]:,} in yours; values correct: {found[2]}")
measured("8.7", tiles_hit=found[0])

# %% [markdown]
# <details><summary>Traffic saved by the order</summary>
#
# 8 blocks instead of 64, and 16,384 words instead of 73,728, for the same output. $16{,}384 = 4Nd$ is the compulsory traffic. The number of visible pairs has not changed.
#
# </details>
#
# Permuting $Q$, $K$ and $V$ in slow memory would itself move words: $6Nd$ to read and write the three, and $2Nd$ to restore the order of $O$. In the model this is not necessary. Loading 32 rows from different places costs as many words as loading 32 adjacent rows, so a schedule may *gather* its blocks.
# <!-- 16{,}384 = 4 * 256 * 16 -->
#
# ## 8.8 Two open challenges
#
# The following two problems have no budget, because the best schedule is not known. `challenge` tests a schedule on random numbers and ragged shapes, as a check does, counts its words at one fixed size, and records your best result. In both problems $N = 2048$, $d = 32$ and $M = 16\,384$, and the score is in units of $Nd$.
# <!-- problems = [course.challenges.find_challenge(name) for name in ("window", "sparsity")] -->
# <!-- "and the score is in units of $Nd$" if all((one.N, one.d, one.M, one.score(2048 * 32)) == (2048, 32, 2**14, 1) for one in problems) -->
#
# - `"window"`: $w = 256$ keys to either side. The ring buffer of (8.3) would need twice the available memory.
# - `"sparsity"`: of 4,096 blocks (64 rows of 64 blocks, each of $32 \times 32$ pairs) 441 are visible, about one in ten, drawn at random.
# <!-- "would need twice the available memory" if problems[0].mask(2048).w == 256 and 2 <= costs.window(2048, 32, w=256).peak / 2**14 < 2.1 -->
# <!-- "441 are visible" if problems[1].mask(2048).tiles.sum() == 441 -->
#
# Your schedule of exercise 8B is a valid entry:
# <!-- 32 \times 32 as input -->

# %%
challenge("window", my_block_sparse, Br=64, Bc=1)
challenge("sparsity", my_block_sparse, Br=32, Bc=1)

# %% [markdown]
# The lower bound is the compulsory $4Nd$, each input once and each output once; lesson 08b derives such bounds. Whether a schedule can move fewer words than the best known result is open. Larger blocks are the first step. Three more ideas: free single queries of a block when they are finished; group queries that share keys although they are not adjacent; keep some keys resident in free words. A schedule may take any tile sizes as arguments; `challenge` passes them on. The line *best known* names its idea.
# <!-- "The lower bound is the compulsory $4Nd$" if all(one.lower_bound()[0] == bounds.compulsory(2048, 32) for one in problems) -->
#
# ## Misconceptions
#
# - **"A mask of density $s$ moves the fraction $s$ of the words."** This holds for blocks as high as the query block, apart from the $2Nd$ words of $Q$ and $O$ (8.2). A tenth of all pairs, drawn at random, moved 34,034,048 of 34,078,720 words (8.6).
# - **"Equal density means equal traffic."** Only if $B_r$ is the side of the mask's blocks. At $B_r = 512$ the window of 190 blocks moved 1,163,264 words, and 190 scattered blocks moved 1,818,624 (8.5).
# - **"A partial block costs only a part of a full one."** It is loaded and computed completely; its masked pairs save nothing (8.3).
#
# ## Take-away
#
# - $W = 2Nd + 2d\sum_I |\mathrm{cols}(I)|$: the queries and outputs once, and for each query block the union of the keys that its queries attend to.
# - Masks of equal density can differ in traffic, because only keys that the queries in fast memory *share* save traffic. Windows, columns and buckets share many, random pairs nearly none. Reordering the tokens can turn a scattered mask into a few full blocks.
# - A window whose keys fit in fast memory costs $4Nd$, the compulsory traffic, for every width. A wider window needs more capacity but no more words.
#
# **In the literature's words**: this schedule is block-sparse FlashAttention. The block-sparse mask of PyTorch's FlexAttention, BlockMask, lists full and partial blocks. The window is Longformer's sliding window, and a ring buffer is also called a circular buffer.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Section 3.3 is block-sparse FlashAttention.
# - J. Dong, B. Feng, D. Guessous, Y. Liang, H. He: *Flex Attention*, 2024, [arXiv 2412.05496](https://arxiv.org/abs/2412.05496). Block masks with full and partial blocks.
# - M. Zaheer et al.: *Big Bird*, 2020, [arXiv 2007.14062](https://arxiv.org/abs/2007.14062). Global, window and random blocks.
# - R. Child, S. Gray, A. Radford, I. Sutskever: *Generating long sequences with sparse Transformers*, 2019, [arXiv 1904.10509](https://arxiv.org/abs/1904.10509). Strided and fixed patterns; `strided` of section 8.2 is their fixed pattern.
# - I. Beltagy, M. Peters, A. Cohan: *Longformer*, 2020, [arXiv 2004.05150](https://arxiv.org/abs/2004.05150). Sliding windows.
# - N. Kitaev, Ł. Kaiser, A. Levskaya: *Reformer*, 2020, [arXiv 2001.04451](https://arxiv.org/abs/2001.04451). Buckets, and sorting by them.
#
# **What comes next.** <!-- next -->
