# %% [markdown]
# # 08 Sparse attention
#
# So far every query met every key, and the best schedules moved $4N^2d^2/M$ words. Many models let a query see only some of the keys: those before it, those near it, a few chosen ones. Pairs that are never seen need not be computed, and the words they would have needed can stay where they are. How many words is that, exactly? It turns out that the number of hidden pairs says little. What counts is *where* they lie: a window can cost as little as reading and writing everything once, and a mask with one pair in a thousand can cost as much as no mask at all.
#
# **What you will learn**
#
# - to count the words of block-sparse attention exactly, from the grid of its tiles;
# - to write a schedule that passes hidden tiles over, with the diagonal of a causal mask done right;
# - to compute a sliding window of any width for $4Nd$ words;
# - to say why two masks of the same density differ in words, and what random pairs cost.
#
# **Prerequisites**: lesson 04 (the schedule F3). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# The backward pass and the lower bounds are a second evening, [08b](08b_sparse_bounds.ipynb).

# %% tags=["setup"]
from collections import deque

import numpy as np

from iocourse import Machine, costs, exact, explore, masks, run
from iocourse.course import attempt, challenge, check, hint, measured, predict
from iocourse.data import real_head

# %%
explore.mask_tiles(masks.Window(256, 48), 32,
                   title="A window of 48 keys to either side, N = 256")

# %% [markdown]
# All pairs of 256 queries and 256 keys, in tiles of $32 \times 32$. A query sees itself and the 48 keys to either side. Of the 64 tiles 8 are *whole*: every pair is seen. 26 are *cut*: some pairs are seen, the tile is computed whole, and its other pairs are hidden afterwards. The other 30 are never loaded. This evening is about those 30: which words they save, and which not.
#
# ## 8.1 Most weights are near zero
#
# Recall the two heads of section 4.9, on a text of 471 tokens: one looks sharply at the token before, the other looks everywhere. We cut the $471 \times 471$ weights into tiles of $16 \times 16$, 30 rows of 30 tiles, and add up the weight that lies in each. Each row of $P$ sums to 1, so all tiles together hold 471. In the map below, a row stands for 16 queries and a column for 16 keys.
#
# **Predict** (guess). How many of the 900 tiles are needed to hold 99 percent of the weight, if the heaviest are taken first?
# <!-- 900, 99 = math.ceil(471 / 16) ** 2, 0.99 * 10**2 -->

# %% tags=["predict"]
predict("8.1", sharp=90, flat=800)  #> predict("8.1", sharp=..., flat=...)

# %%
def tile_weights(head, B):
    Q, K = head.Q.astype(float), head.K.astype(float)
    N, n = len(Q), -(-len(Q) // B)
    P = np.zeros((n * B, n * B))  # with room for a full last tile
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
# <details><summary>How many tiles hold nearly everything</summary>
#
# 89 tiles for the sharp head, 870 for the flat one. For the sharp head nine tenths of all scores could be left out, and nearly all the weight would still be there. This is the hope behind sparse attention.
#
# </details>
#
# Two cautions before we spend it (the masks in this cell are those of section 8.2):

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
# First, a mask changes the answer, here by 3.5 percent. Whether that is good enough is for the model to say: from here on the mask is *given*, and we compute attention under it exactly. Second, these tiles were found by computing all weights, which costs what we wanted to save. A mask that is fixed beforehand, such as the 88 tiles near the diagonal, holds 79 percent: in the first eight rows of the map much of the weight lies far from the diagonal. Masks in practice are chosen from positions, or by something cheaper than attention.
#
# ## 8.2 Counting tiles, counting words
#
# We want the exact words of attention under a mask. The unit is the tile. A `BlockMask` holds a grid of True and False, one for each tile of $B_r$ queries and $B_c$ keys: True is *seen*, False is *hidden*. With $N = 4096$ and square tiles of side $B = 64$ there are $n_b = 64$ tiles a side, 4096 in all. The library builds five kinds:
#
# | mask | tiles that are seen | their number |
# | --- | --- | --- |
# | `causal(N, B)` | on and below the diagonal | $n_b(n_b+1)/2$ |
# | `sliding_window(N, B, w)` | at most $w$ tiles from the diagonal | $n_b(2w+1) - w(w+1)$ |
# | `strided(N, B, s)` | the diagonal and every $s$-th column | $n_b\lceil n_b/s\rceil + n_b - \lceil n_b/s\rceil$ |
# | `bigbird(N, B, g, w, r)` | $g$ global rows and columns, a window, $r$ random tiles in each row that is not global | $g(2n_b - g) + n'(2w+1) - w(w+1) + rn'$ with $n' = n_b - g$ |
# | `random(N, B, p)` | the diagonal, any other with probability $p$ | $n_b + p\,n_b(n_b-1)$ on average |
#
# The window loses $w(w+1)$ tiles at the two ends, where there is nothing before the first and after the last token.

# %%
explore.block_mask(masks.bigbird(1024, 64, 1, 1, 2), 64, title="BigBird, g = 1, w = 1, r = 2")

# %% [markdown]
# The first row and the first column of tiles are global, the band along the diagonal is the window, and the rest was drawn at random. What the bars say comes next; the bound is a subject of lesson 08b.
#
# What does a tile cost? Take F3 of lesson 04: a block of $B_r$ queries and its outputs stay, keys and values pass by. Under a mask only those keys pass that the block sees. So each query comes once, each output goes once, and each tile that is seen brings the keys and the values of its columns. For tile $(i, j)$ let $c_j$ be the number of keys in its block of keys:
#
# $$ W = 2Nd + 2d \sum_{(i,j)\ \text{seen}} c_j , \qquad \text{with equal blocks } W = 2Nd + 2dB \cdot (\text{number of tiles seen}) . \tag{8.1} $$
#
# The footprint is still that of (4.3), for the rows of queries are as many as before. With $B_r = 64$ and $B_c = 1$ it is 8,448 words.
#
# **Predict** (guess). Under `causal`, and under `sliding_window` with $w = 1$: which part of the words without a mask is left?

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
    print(f"{name:14} {mask.tiles.sum():5,} tiles, density {mask.tiles.mean():.3f}: "
          f"{words[name]:11,} words, by (8.1) {by_formula:11,}")
part = {name: words[name] / words["dense"] for name in words}
measured("8.2", causal=part["causal"], window=part["window 1"])

# %% [markdown]
# <details><summary>Against their density</summary>
#
# Both are a little more than their density: 0.5154 for 0.508, and 0.06106 for 0.046. The $2Nd = 524{,}288$ words of queries and outputs come whatever is hidden, and under the window they are a quarter of everything. A causal mask sees a little more than half of the tiles, because the 64 tiles on the diagonal count whole. The rest of the table is (8.1) line by line. The random mask drew 484 tiles where 467 were to be expected.
#
# </details>
#
# Blocks need not be equal. The last one may be ragged, and where several texts are packed into one sequence it is natural to cut at their ends. Then $c_j$ differs from block to block.
#
# <!-- exercise 8A --> Count the words of (8.1) for any grid. Queries are cut into blocks of the given heights, keys into blocks of the given widths. A row of tiles may be hidden altogether; its queries are loaded and its outputs stored all the same. If you are stuck after five minutes, run `hint("8A")` in a cell of your own.
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
    """Words that F3 moves under a mask of tiles.

    tiles: boolean array, True where a tile is seen, shape (len(heights), len(widths)).
    heights, widths: lists, queries in each block of rows, keys in each block of columns.
    d: head dimension.
    """
    ### BEGIN SOLUTION queries and outputs once, then keys and values of every tile that is seen
    N = sum(heights)
    keys_met = int((tiles @ np.array(widths)).sum())
    return 2 * N * d + 2 * d * keys_met
    ### END SOLUTION


# %% tags=["check"] name="check-8A"
check("8A", my_block_words)

# %%
blocks = [B] * (N // B)
for name in ("causal", "bigbird 1,1,2"):
    print(name, attempt(my_block_words, given[name].tiles, blocks, blocks, d))

# %% [markdown]
# Words as in the table.
#
# The next cell lets you paint masks of your own. Start from a preset and drag over the tiles: the first one decides whether the stroke shows or hides. A click is one tile, and *undo* takes a whole stroke back. (By keyboard: Tab goes from control to control; on the box that names a tile the arrow keys go to another tile, and Space shows or hides it.) Words, density and a lower bound follow. (Without a running kernel you see a still picture.) Try to find two masks with equally many tiles and different words. You will not: at this block size (8.1) counts tiles and nothing else. Section 8.5 changes that.

# %%
explore.mask_painter()

# %% [markdown]
# ## 8.3 Passing hidden tiles over
#
# Now the schedule. F3 asks `m.blocks(N, Bc)` for blocks of keys; under a mask it asks the mask first. `mask.columns(start, stop)` gives the keys that the queries `start` … `stop - 1` need, as ranges from left to right. This is a rule on positions and moves no words.

# %%
small = masks.bigbird(64, 8, 1, 1, 1)
for start in (0, 8, 32):
    print(f"queries {start} to {start + 7} need keys {small.columns(start, start + 8)}")

# %% [markdown]
# The first block of queries is global and needs all 64 keys. Others need the global keys 0 to 7, their neighbours, and one random tile; ranges that touch are joined.
#
# Two details decide whether the values come out right. *Cut tiles.* On the diagonal of a causal mask key $j$ is hidden from query $i$ where $j > i$. The tile is computed whole, and then `m.hide(s, i, j, mask)` sets the scores of hidden pairs to $-\infty$. After the softmax their weight is 0. *Rows that see nothing.* If a query sees no key, its softmax is $0/0$, and `BlockMask` refuses such a mask unless you say that you want it. Both in one cell:

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
# With `allow_empty=True` the row of $O$ is zero, the sum over no keys. `stats.normalise(o)` does that by itself: a row whose $\ell_i$ is 0 becomes zeros.
#
# <!-- exercise 8B --> Write F3 under a mask. A block `i` from `m.blocks` knows its first row, `i.start`, and the row after its last, `i.stop`; and `m.blocks` takes a range such as `(8, 24)` where it took $N$. `m.hide` takes blocks only. (On a dry machine one block stands for all equal ones. Under a mask they are not equal, so give the blocks of queries `alike=mask.alike`. The check runs on numbers; once it is solved, it counts your schedule on shapes as well, at a larger size.) $B_r$ and $B_c$ need not be those of the tiles: `mask.columns` gives what some query of the block needs. The check allows the words of this schedule, and as fast memory the footprint of (4.3) for the largest block of keys that occurs, one more tile of scores and four words a row. If you are stuck after seven minutes, run `hint("8B")` in a cell of your own.

# %% [raw] name="about-8B"
# title = "Skipping empty blocks"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "Start from your F3 of lesson 04. Which single line determines the keys that a block of queries attends to?",
#   "The loop over all keys becomes two loops: over the ranges that the mask returns for these queries, and over the blocks of one range. m.blocks accepts a range instead of N.",
#   "After the scores are computed and before the update, set the scores of masked pairs to -inf: m.hide with the scores, both blocks and the mask. It is also correct for full blocks, so no distinction is needed.",
# ]

# %% tags=["exercise"] name="ex-8B"
def my_block_sparse(m, Q, K, V, *, mask, Br, Bc):
    """softmax(QKᵀ/√d) V over the pairs that the mask lets through.

    m: the machine. Q, K, V: slow arrays (N, d). mask: from iocourse.masks, for N queries.
    Br, Bc: rows in a block of queries, of keys. Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION as F3, but the keys come from the mask, and hidden pairs are hidden
    for i in m.blocks(N, Br, alike=mask.alike):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for needed in mask.columns(i.start, i.stop):
                for j in m.blocks(needed, Bc):
                    with m.load(K, j) as k:     # (Bc, d)
                        s = q @ k.T             # (Br, Bc)
                    m.hide(s, i, j, mask)
                    with s, m.load(V, j) as v:  # (Bc, d), where k was
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
    print(f"{mask.tiles.sum():2} tiles: {mine.ledger.total:6,} words, counted {count:6,}, "
          f"values right: {right}")

# %% [markdown]
# Your schedule under four masks of 256 tokens, its words beside your count of exercise 8A: emulator and count agree, and the values are exact attention under the mask. Nothing was approximated.
#
# ## 8.4 A window for 4Nd
#
# Now a window of *tokens*: query $i$ sees the keys $i - w, \dots, i + w$, no matter where blocks begin. In blocks of $B_r$ queries F3 needs $B_r + 2w$ keys for each block, $w$ beyond either end. Each of the $T_r - 1$ borders between two blocks so costs $2w$ extra keys, $2d$ words each:
#
# $$ W = 4Nd + 4dw\,(T_r - 1) , \qquad w \le B_r,\ B_r \text{ divides } N . \tag{8.2} $$
#
# Can we do better? Look at what changes from query $i$ to query $i + 1$: one key leaves the window, one comes. All others are needed again. So let the keys and values of the window stay, and let the *queries* pass by, one at a time. This is a *ring*: rows come in at one end and go at the other, and each key is loaded once in its life.
#
# $$ W = 4Nd , \qquad \text{footprint } 2d(2w+1) + 2d + 3 . \tag{8.3} $$
#
# The footprint counts $2w + 1$ keys and as many values, $q_i$ and $o_i$, two statistics and one score. $W$ does not depend on $w$.
#
# **Predict** (compute). $N = 4096$, $d = 64$, $w = 63$. How many times the words of the ring do blocks of 64 queries move? And for $w = 15$?

# %% tags=["predict"]
predict("8.4", w63=2, w15=1.25)  #> predict("8.4", w63=..., w15=...)

# %%
ratio = {}
for w in (63, 15):
    rows = costs.block_sparse(N, d, mask=masks.Window(N, w), Br=64, Bc=1)
    ring = costs.window(N, d, w=w)
    ratio[w] = rows.total / ring.total
    print(f"w = {w:2}: blocks {rows.total:9,} words on {rows.peak:6,}; "
          f"ring {ring.total:9,} words on {ring.peak:6,}")
measured("8.4", w63=ratio[63], w15=ratio[15])

# %% [markdown]
# <details><summary>What the ring buys, and what it pays with</summary>
#
# 1.969 and 1.231: the factor is $1 + w(T_r-1)/N$, nearly $1 + w/B_r$. The ring moves 1,048,576 words for both windows, and no schedule moves fewer: $4Nd$ is the compulsory traffic. It pays in room. For $w = 63$ it takes 16,387 words where the blocks take 8,448; for $w = 15$ it takes 4,099 and wins on both counts.
#
# </details>
#
# A ring needs tiles that outlive the loop in which they were loaded. Python lists, dicts and deques may hold tiles: the tiles count, the container does not. Here is a ring in a small problem. Row $i$ of $Y$ is the sum of the rows $i - 2$, $i - 1$ and $i$ of $A$:

# %%
def moving_sum(m, A, *, back):
    """Y_i = A_{i-back} + … + A_i; each row of A is loaded once."""
    N, d = A.shape
    Y = m.new("Y", (N, d))
    ring = deque()                     # oldest row on the left
    for i in range(N):
        if i > back:
            ring.popleft().free()      # out of sight
        ring.append(m.load(A, i))      # (1, d)
        with m.zeros(1, d) as y:
            for a in ring:
                y += a
            m.store(y, Y, i)
    return Y


done = run(moving_sum, M=32, A=np.ones((6, 4)), back=2)
print(done.O[:, 0], done.ledger)

# %% [markdown]
# Each row of $A$ was read once; the peak of 16 words is three rows of $A$ and one of $Y$. At the end of a run the machine frees what is left in the ring.
#
# <!-- exercise 8C --> Write the window for $4Nd$ words. It looks both ways, so keys must come *before* their own query does. Near the ends it is cut off, and $w$ may be 0 or larger than $N$. Free what leaves the ring, for a name may still hold it. The check gives the footprint of (8.3), with $\min(2w+1, N)$ keys, and room for one more row of $d$ words, one score for each key in the window and four words. If you are stuck after nine minutes, run `hint("8C")` in a cell of your own.

# %% [raw] name="about-8C"
# title = "A sliding window"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "From one query to the next, which key leaves the window, and which one enters it?",
#   "Before query i is processed, every key up to i + w must be resident, and key i - w - 1 must be freed. Near the start nothing is freed, near the end nothing is loaded.",
#   "Keep pairs (tile of K, tile of V) in a deque: append loaded pairs on the right, free pairs on the left. A counter of loaded rows tells which one is next. Each query is one iteration of F3 with Br = 1 over the keys in the deque.",
# ]

# %% tags=["exercise"] name="ex-8C"
def my_window(m, Q, K, V, *, w):
    """softmax(QKᵀ/√d) V where query i sees keys i - w … i + w.

    m: the machine. Q, K, V: slow arrays (N, d). w: a whole number, 0 or more.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION a ring of keys and values stays, queries pass by
    ring, come = deque(), 0  # pairs (k, v), oldest first; rows loaded so far
    for i in range(N):
        if i > w:
            for tile in ring.popleft():
                tile.free()
        while come < min(i + w + 1, N):
            ring.append((m.load(K, come), m.load(V, come)))  # (1, d), (1, d)
            come += 1
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
# 16,384 words for every width, which is $4Nd$ for $N = 256$ and $d = 16$. The blocks start near it and grow with $w$.
#
# What if the ring does not fit? $N = 4096$, $d = 64$, $w = 256$ would take 65,795 words. With $M = 16\,384$ we are back to blocks, as large as fit:

# %%
M, w = 16384, 256
Br = (M - d) // (2 * d + 3)  # as in (4.4)
rows = costs.block_sparse(N, d, mask=masks.Window(N, w), Br=Br, Bc=1)
print(f"ring: {costs.window(N, d, w=w).peak:,} words of room; M = {M:,}")
print(f"blocks of {Br}: {rows.total:,} words, {rows.total / (4 * N * d):.2f} times 4Nd; "
      f"1 + w/Br = {1 + w / Br:.2f}")

# %% [markdown]
# About $1 + w/B_r$ times $4Nd$ again. With $B_r \approx M/2d$ this is $4Nd + 8wNd^2/M$: linear in $N$ in any case.

# %% [markdown]
# ## 8.5 The same density, other words
#
# At $B_r = B$ equation (8.1) sees only the number of tiles. But fast memory may hold more than one row of tiles. A block of queries that spans several rows of tiles shares what its rows have in common, and (8.1) becomes
#
# $$ W = 2Nd + 2d \sum_I \bigl|\mathrm{cols}(I)\bigr| , \tag{8.4} $$
#
# where $I$ runs over the blocks of queries and $\mathrm{cols}(I)$ is the *union* of the keys that queries of $I$ see. Take three masks with exactly 190 tiles of 4096 each: the window with $w = 1$; the diagonal and the first two columns, keys that everyone sees; and the diagonal with 126 tiles thrown at random.
#
# **Predict** (guess). From $B_r = 64$ to $B_r = 512$, eight rows of tiles, dense attention moves 7.2 times fewer words. How many times fewer do the window and the random mask move?
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
    print(f"{name:10} {same_density[name].tiles.sum()} tiles:", *(f"{x:10,}" for x in row))
measured("8.5", window=moved["window"][0] / moved["window"][-1],
         scattered=moved["scattered"][0] / moved["scattered"][-1])
shown = {"window, columns": moved["window"], "scattered": moved["scattered"],
         "4Nd": [4 * N * d] * len(heights)}
explore.curve({}, {name: list(zip(heights, row, strict=True)) for name, row in shown.items()},
              title="Three masks of 190 tiles", xlabel="Br", ylabel="words moved",
              log=(True, False))

# %% [markdown]
# <details><summary>Who gains from more room</summary>
#
# They start at the same 2,080,768 words and part at once. Eight rows of tiles under the window need $8 + 2$ columns of tiles, and under `columns` $8 + 2$ as well: these two fall together, towards $4Nd$. Eight rows of the scattered mask have about as many tiles, 24, and these lie in 20 different columns: at $B_r = 512$ it moves 1,818,624 words, against 1,163,264.
#
# So density is the wrong number to look at. More fast memory helps where *neighbouring queries agree* on the keys they need. **Structure beats density.**
#
# </details>
# <!-- 24, 20 = 190 / 8, (1818624 - 2 * 4096 * 64) / (2 * 64 * 64) / 8 -->
#
# ## 8.6 What random sparsity costs
#
# Now the opposite of structure: single pairs, each seen with probability $\rho$ by itself. If we keep tiles of $B \times B$, a tile can be passed over only where *none* of its $B^2$ pairs is seen.
#
# **Predict** (guess). $N = 4096$, $B = 64$. One pair in a thousand is seen, $\rho = 0.001$. Which part of the tiles must be worked on?

# %% tags=["predict"]
predict("8.6", part_of_tiles=0.98)  #> predict("8.6", part_of_tiles=...)

# %%
draw = np.random.default_rng(8).random((N, N), dtype=np.float32)
for rho in (0.01, 0.001, 0.0001):
    pairs = draw < rho
    hit = masks.covering_blocks(pairs, B)  # the tiles that hold a pair
    moved_by_tiles = costs.block_sparse(N, d, mask=hit, Br=B, Bc=1).total
    print(f"density {rho:6}: expected {1 - (1 - rho) ** B**2:.3f}, "
          f"found {hit.tiles.mean():.3f} of the tiles, {moved_by_tiles:10,} words")
    if rho == 0.001:
        measured("8.6", part_of_tiles=hit.tiles.mean())

# %% [markdown]
# <details><summary>A thousandth of the pairs, and the tiles they hit</summary>
#
# 98 percent, and at one pair in a hundred every tile: 34,078,720 words, as without a mask.
#
# </details>
#
# A tile is hit with probability
#
# $$ 1 - (1 - \rho)^{B^2} , \tag{8.5} $$
#
# so tiles start to save where $\rho$ comes down to about $1/B^2 = 0.00024$. Smaller tiles hit less. F3 can take single keys, $B_c = 1$, and load for each block exactly the union of (8.4). A key is then needed by a block of $B_r$ queries with probability $1 - (1-\rho)^{B_r}$:
# <!-- 98, 0.00024 = 10**2 * (1 - (1 - 0.001) ** 64**2), 1 / 64**2 -->

# %%
pairs = draw < 0.001
exactly = masks.BlockMask(N, pairs, 1, allow_empty=True)  # tiles of one query and one key
for Br in (64, 8, 1):
    words_of_pairs = costs.block_sparse(N, d, mask=exactly, Br=Br, Bc=1).total
    print(f"Br = {Br:2}: {words_of_pairs:9,} words")
print(f"2Nd + 2d for each of {pairs.sum():,} pairs: {2 * N * d + 2 * d * int(pairs.sum()):,}")

# %% [markdown]
# That is far less than 33.5 million. But look at the last two lines: with $B_r = 1$ every pair pays for its own key and value, $2d$ words, and 64 queries together save less than three percent of it. Queries that share no keys gain nothing from being in fast memory together. Dense attention pays $2d/B_r$ words for a pair, because $B_r$ queries share each key. So random pairs are worth leaving out only where $\rho$ is well below $1/B_r$, and there they cost about $2d\rho N^2$ words, whatever $B_r$ is.
#
# The same density in whole tiles is another matter. `random 0.1` of section 8.2, 484 of 4096 *tiles*, moved 4,489,216 words; a tenth of all *pairs* moves 34,034,048 with $B_r = 64$, for of 64 queries nearly always one wants the key.
# <!-- tenth = masks.BlockMask(4096, np.random.default_rng(8).random((4096, 4096), dtype=np.float32) < 0.1, 1) -->
# <!-- 34{,}034{,}048 = costs.block_sparse(4096, 64, mask=tenth, Br=64, Bc=1).total -->
#
# ## 8.7 An order for the tokens
#
# Structure may be there and not show. Reformer, in essence, hashes tokens into *buckets*, and a token sees the tokens of its own bucket only. Tokens of one bucket lie anywhere in the sequence, so the mask looks scattered:

# %%
rng = np.random.default_rng(8)
buckets = rng.permutation(np.repeat(np.arange(8), 32))  # 256 tokens, 8 buckets of 32
pairs = buckets[:, None] == buckets[None, :]
scattered = masks.covering_blocks(pairs, 32)
print(f"{pairs.mean():.3f} of the pairs are seen, "
      f"{scattered.tiles.mean():.3f} of the tiles are hit")

# %% [markdown]
# Attention does not care about the order of its keys, and each query works by itself. If we arrange $Q$, $K$ and $V$ in another order and the mask along with them, the rows of $O$ come out in that order and are otherwise the same. So we may choose it.
#
# **Predict** (guess). How many of the 64 tiles are hit when the tokens of each bucket stand together?

# %% tags=["predict"]
predict("8.7", tiles_hit=8)  #> predict("8.7", tiles_hit=...)

# %% [markdown]
# <!-- exercise 8D --> You get the pairs and not the buckets. Give an order in which buckets stand together: `order[0]` is the token that comes first, `order[1]` the next. In some cases the mask is also causal, as in Reformer: a token sees those of its bucket that do not come after it. Then tokens of one bucket should keep their order, so that tiles above the diagonal stay empty. The check builds the mask of your order and counts its words. If you are stuck after six minutes, run `hint("8D")` in a cell of your own.

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
    """An order of the tokens in which those of one bucket stand together.

    pairs: boolean (N, N), True where query i sees key j: both in one bucket, perhaps j <= i.
    Returns an array of the N positions: the token that comes first, the next, ...
    """
    ### BEGIN SOLUTION every token can tell the first one of its bucket
    first = pairs.argmax(axis=1)  # the first key each token sees: the first token of its bucket
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
    O[order] = done.O  # back to the places they came from
    want = exact.attention(Q, K, V, mask=np.where(pairs, 0.0, -np.inf))
    return int(mask.tiles.sum()), done.ledger.total, bool(abs(O - want).max() < 1e-12)


found = attempt(in_my_order)
print(f"{costs.block_sparse(256, 16, mask=scattered, Br=32, Bc=8).total:,} words as they came, "
      f"{found[1]:,} in order; values right: {found[2]}")
measured("8.7", tiles_hit=found[0])

# %% [markdown]
# <details><summary>What an order is worth</summary>
#
# 8 tiles instead of 64, and 16,384 words instead of 73,728, for the very same output. $16{,}384 = 4Nd$: nothing below it is possible. The number of pairs has not changed at all.
#
# </details>
#
# Arranging $Q$, $K$, $V$ anew in slow memory would itself move words: $6Nd$ to read and write the three, $2Nd$ to bring $O$ back. The model does not ask for it. A load of 32 rows that lie apart costs as many words as one of 32 neighbours, so a schedule may *gather* its blocks.
# <!-- 16{,}384 = 4 * 256 * 16 -->

# %% [markdown]
# ## 8.8 Two open challenges
#
# So far every exercise had a budget, and a schedule that meets it. Here are two questions without: nobody in this course knows the best answer. `challenge` is the referee. It tries a schedule on fresh numbers and ragged shapes, as a check does, counts its words at one fixed size, and keeps your fewest. In both $N = 2048$, $d = 32$ and $M = 16\,384$, and $Nd$ is the unit of the score.
#
# - `"window"`: $w = 256$ keys to either side. The ring of (8.3) would take twice the memory there is.
# - `"sparsity"`: of $64 \times 64$ tiles 441 are seen, one in ten, drawn at random.
#
# Your schedule of exercise 8B is an entry already:

# %%
challenge("window", my_block_sparse, Br=64, Bc=1)
challenge("sparsity", my_block_sparse, Br=32, Bc=1)

# %% [markdown]
# "Proved" is the compulsory $4Nd$, each input once and each output once; lesson 08b says how such bounds are made. Between that and the best known there is room, and it is open. Larger blocks are the first step. The next ones are ideas. Does a block of queries have to leave as a whole? Which rows share keys, and must they be neighbours? Is the room that is left over worth a few keys that stay? A schedule may take any tile sizes you like, and `challenge` passes them on. There is no hint, and no hurry.

# %% [markdown]
# ## Misconceptions
#
# - **"A mask of density $s$ moves $s$ times the words."** Of tiles as large as the block of queries, plus $2Nd$ (8.2). A tenth of all pairs, at random, moved 34,034,048 words of 34,078,720 (8.6).
# - **"Same density, same words."** Only at one block size. At $B_r = 512$ the window of 190 tiles moved 1,163,264 words, 190 scattered tiles 1,818,624 (8.5).
# - **"A cut tile costs a part of a whole one."** It is loaded whole and computed whole; what is hidden in it saves nothing (8.3).
#
# ## Take-away
#
# - $W = 2Nd + 2d\sum_I |\mathrm{cols}(I)|$: queries once, and for each block of queries the union of the keys it sees. Everything else in this lesson follows from it.
# - Structure beats density: words are saved by what queries in fast memory *share*. Windows, columns and buckets share much, random pairs next to nothing. An order that puts sharing tokens together is worth as much as a better mask.
# - A window whose keys fit costs $4Nd$, the compulsory traffic, whatever its width: more room, and no more words.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Section 3.3 is block-sparse FlashAttention.
# - M. Zaheer et al.: *Big Bird*, 2020, [arXiv 2007.14062](https://arxiv.org/abs/2007.14062). Global, window and random tiles.
# - R. Child, S. Gray, A. Radford, I. Sutskever: *Generating long sequences with sparse Transformers*, 2019, [arXiv 1904.10509](https://arxiv.org/abs/1904.10509). Strided and fixed patterns; every $s$-th column is of the second kind.
# - I. Beltagy, M. Peters, A. Cohan: *Longformer*, 2020, [arXiv 2004.05150](https://arxiv.org/abs/2004.05150). Sliding windows.
# - N. Kitaev, Ł. Kaiser, A. Levskaya: *Reformer*, 2020, [arXiv 2001.04451](https://arxiv.org/abs/2001.04451). Buckets, and sorting by them.
#
# **What comes next.** A second evening, 08b, has masks in the backward pass, and what can be proved about them. Lesson 09 puts all schedules and bounds on one map, and asks which of them a real chip wants.
