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
# - to say why two masks of the same density differ in words, and what random pairs cost;
# - to read two lower bounds for sparse attention: what they say, and what they do not.
#
# **Prerequisites**: lessons 04 (the schedule F3) and 05 (Theorem A); section 8.8 uses lesson 06. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: 80, of which <!-- minutes --> are for the exercises.
#
# <!-- exercises -->
#
# Sections 8.8 and 8.10 stand by themselves: if time runs short, read them another day.

# %% tags=["setup"]
from collections import deque

import numpy as np

from iocourse import Machine, bounds, costs, exact, explore, masks, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head

# %% [markdown]
# ## 8.1 Most weights are near zero
#
# Recall the two heads of section 4.9, on a text of 471 tokens: one looks sharply at the token before, the other looks everywhere. We cut the $471 \times 471$ weights into tiles of $16 \times 16$, 30 rows of 30 tiles, and add up the weight that lies in each. Each row of $P$ sums to 1, so all tiles together hold 471. In the map below, a row stands for 16 queries and a column for 16 keys.
#
# **Predict.** How many of the 900 tiles are needed to hold 99 percent of the weight, if the heaviest are taken first?
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

# %%
explore.attention_map(in_tiles["sharp"], title="Sharp head: weight in each tile of 16 x 16")

# %% [markdown]
# 89 tiles for the sharp head, 870 for the flat one. For the sharp head nine tenths of all scores could be left out, and nearly all the weight would still be there. This is the hope behind sparse attention. Two cautions before we spend it (the masks in this cell are those of section 8.2):

# %%
def without_the_light_tiles(head, weights, count):
    kept = weights >= np.sort(weights, axis=None)[-count]
    mask = masks.BlockMask(len(head.Q), kept, 16)
    Q, K, V = (part.astype(float) for part in (head.Q, head.K, head.V))
    full, sparse = exact.attention(Q, K, V), exact.attention(Q, K, V, mask=mask.additive())
    return np.linalg.norm(sparse - full) / np.linalg.norm(full)


print(f"sharp head, 89 heaviest tiles: O changes by "
      f"{without_the_light_tiles(sharp, in_tiles['sharp'], 89):.1%}")
near = masks.sliding_window(471, 16, 1)
print(f"sharp head, {near.tiles.sum()} tiles near the diagonal hold "
      f"{in_tiles['sharp'][near.tiles].sum() / 471:.0%} of the weight")

# %% [markdown]
# First, a mask changes the answer, here by 3.5 percent. Whether that is good enough is for the model to say: from here on the mask is *given*, and we compute attention under it exactly. Second, the 89 tiles were found by computing all weights, which costs what we wanted to save. A mask that is fixed beforehand, such as the 88 tiles near the diagonal, holds 79 percent: in the first eight rows of the map much of the weight lies far from the diagonal. Masks in practice are chosen from positions, or by something cheaper than attention.

# %% [markdown]
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
# The first row and the first column of tiles are global, the band along the diagonal is the window, and the rest was drawn at random. What the bars say comes next; the bound is the subject of section 8.9.
#
# What does a tile cost? Take F3 of lesson 04: a block of $B_r$ queries and its outputs stay, keys and values pass by. Under a mask only those keys pass that the block sees. So each query comes once, each output goes once, and each tile that is seen brings the keys and the values of its columns. For tile $(i, j)$ let $c_j$ be the number of keys in its block of keys:
#
# $$ W = 2Nd + 2d \sum_{(i,j)\ \text{seen}} c_j , \qquad \text{with equal blocks } W = 2Nd + 2dB \cdot (\text{number of tiles seen}) . \tag{8.1} $$
#
# The footprint is still that of (4.3), for the rows of queries are as many as before. With $B_r = 64$ and $B_c = 1$ it is 8,448 words.
#
# **Predict.** Under `causal`, and under `sliding_window` with $w = 1$: which part of the words without a mask is left?

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
# Both are a little more than their density: 0.5154 for 0.508, and 0.06106 for 0.046. The $2Nd = 524{,}288$ words of queries and outputs come whatever is hidden, and under the window they are a quarter of everything. A causal mask sees a little more than half of the tiles, because the 64 tiles on the diagonal count whole. The rest of the table is (8.1) line by line. The random mask drew 484 tiles where 467 were to be expected.
#
# Blocks need not be equal. The last one may be ragged, and where several texts are packed into one sequence it is natural to cut at their ends. Then $c_j$ differs from block to block.
#
# <!-- exercise 8A --> Count the words of (8.1) for any grid. Queries are cut into blocks of the given heights, keys into blocks of the given widths. A row of tiles may be hidden altogether; its queries are loaded and its outputs stored all the same. If you are stuck after five minutes, run `hint("8A")` in a cell of your own.
# <!-- 524{,}288, 467 = 2 * 4096 * 64, 64 + 0.1 * 64 * 63 -->

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
# 17,563,648 and 4,128,768 words, as in the table.
#
# The next cell lets you paint masks of your own. Start from a preset, and click tiles to see or hide them; or choose a tile with the two sliders for its row and its column and press the button *show or hide this tile* (Tab moves from control to control, the arrow keys move a slider). Words, density and a lower bound follow. (Without a running kernel you see a still picture.) Try to find two masks with equally many tiles and different words. You will not: at this block size (8.1) counts tiles and nothing else. Section 8.5 changes that.

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
# Two details decide whether the values come out right.
#
# *The diagonal.* A tile on the diagonal of a causal mask is seen, but not all of it: key $j$ is hidden from query $i$ where $j > i$. The tile is computed whole, and then `m.hide(s, i, j, mask)` sets the scores of hidden pairs to $-\infty$. After the softmax their weight is 0. Here it is on a tile of ones:

# %%
m = Machine(M=32)
S = m.new("S", (4, 4))
for i in m.blocks(4, 4):
    with m.full(i, i, value=1.0) as s:
        m.hide(s, i, i, masks.causal(4, 2))
        m.store(s, S, i)
print(m.take(S))

# %% [markdown]
# *Rows that see nothing.* If a query sees no key, its softmax is $0/0$. `BlockMask` refuses such a mask, unless you say that you want it:

# %%
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
# <!-- exercise 8B --> Write F3 under a mask. A block `i` from `m.blocks` knows its first row, `i.start`, and the row after its last, `i.stop`; and `m.blocks` takes a range such as `(8, 24)` where it took $N$. `m.hide` takes blocks only. (For dry runs give the blocks of queries `alike=mask.alike`, for under a mask one no longer stands for all. The check does not run dry.) $B_r$ and $B_c$ need not be those of the tiles: `mask.columns` gives what some query of the block needs. The check allows the words of this schedule, and as fast memory the footprint of (4.3) for the largest block of keys that occurs, one more tile of scores and four words a row. If you are stuck after seven minutes, run `hint("8B")` in a cell of your own.

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
                        o.add_product(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-8B"
check("8B", my_block_sparse)

# %% [markdown]
# Your schedule under four masks of 256 tokens, its words beside your count of exercise 8A:

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
# Emulator and count agree, and the values are exact attention under the mask. Nothing was approximated.

# %% [markdown]
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
# **Predict.** $N = 4096$, $d = 64$, $w = 63$. How many times the words of the ring do blocks of 64 queries move? And for $w = 15$?

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
# 1.969 and 1.231: the factor is $1 + w(T_r-1)/N$, nearly $1 + w/B_r$. The ring moves 1,048,576 words for both windows, and no schedule moves fewer: $4Nd$ is the compulsory traffic. It pays in room. For $w = 63$ it takes 16,387 words where the blocks take 8,448; for $w = 15$ it takes 4,099 and wins on both counts.
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
# The first two sums are short, for there is nothing before the first row. Each row of $A$ was read once; the peak of 16 words is three rows of $A$ and one of $Y$. At the end of a run the machine frees what is left in the ring.
#
# <!-- exercise 8C --> Write the window for $4Nd$ words. It looks both ways, so keys must come *before* their own query does. Near the ends it is cut off, and $w$ may be 0 or larger than $N$. Free what leaves the ring, for a name may still hold it. The check gives the footprint of (8.3), with $\min(2w+1, N)$ keys, and room for one more row of $d$ words, one score for each key in the window and four words. If you are stuck after nine minutes, run `hint("8C")` in a cell of your own.

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
                    o.add_product(s, v)
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
# **Predict.** From $B_r = 64$ to $B_r = 512$, eight rows of tiles, dense attention moves 7.2 times fewer words. How many times fewer do the window and the random mask move?
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

# %%
shown = {"window, columns": moved["window"], "scattered": moved["scattered"]}
explore.curve({name: list(zip(heights, row, strict=True)) for name, row in shown.items()},
              {"4Nd": [(Br, 4 * N * d) for Br in heights]},
              title="Three masks of 190 tiles", xlabel="Br", ylabel="words moved",
              log=(True, False))

# %% [markdown]
# They start at the same 2,080,768 words and part at once. Eight rows of tiles under the window need $8 + 2$ columns of tiles, and under `columns` $8 + 2$ as well: these two fall together, towards $4Nd$. Eight rows of the scattered mask have about as many tiles, 24, and these lie in 20 different columns: at $B_r = 512$ it moves 1,818,624 words, against 1,163,264.
#
# So density is the wrong number to look at. More fast memory helps where *neighbouring queries agree* on the keys they need. Structure beats density.
# <!-- 24, 20 = 190 / 8, (1818624 - 2 * 4096 * 64) / (2 * 64 * 64) / 8 -->

# %% [markdown]
# ## 8.6 What random sparsity costs
#
# Now the opposite of structure: single pairs, each seen with probability $\rho$ by itself. If we keep tiles of $B \times B$, a tile can be passed over only where *none* of its $B^2$ pairs is seen. It is hit with probability
#
# $$ 1 - (1 - \rho)^{B^2} . \tag{8.5} $$
#
# **Predict.** $N = 4096$, $B = 64$. One pair in a thousand is seen, $\rho = 0.001$. Which part of the tiles must be worked on?

# %% tags=["predict"]
predict("8.6", part_of_tiles=0.98)  #> predict("8.6", part_of_tiles=...)

# %%
draw = np.random.default_rng(8).random((N, N), dtype=np.float32)
for rho in (0.01, 0.001, 0.0001):
    pairs = draw < rho
    hit = masks.covering(pairs, B)  # the tiles that hold a pair
    moved_by_tiles = costs.block_sparse(N, d, mask=hit, Br=B, Bc=1).total
    print(f"density {rho:6}: by (8.5) {1 - (1 - rho) ** B**2:.3f}, "
          f"found {hit.tiles.mean():.3f} of the tiles, {moved_by_tiles:10,} words")
    if rho == 0.001:
        measured("8.6", part_of_tiles=hit.tiles.mean())

# %% [markdown]
# 98 percent, and at one pair in a hundred every tile: 34,078,720 words, as without a mask. Tiles start to save where $\rho$ comes down to about $1/B^2 = 0.00024$.
#
# Smaller tiles hit less. F3 can take single keys, $B_c = 1$, and load for each block exactly the union of (8.4). A key is then needed by a block of $B_r$ queries with probability $1 - (1-\rho)^{B_r}$:
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
# The same density in whole tiles is another matter. `random 0.1` of section 8.2, 484 of 4096 *tiles*, moved 4,489,216 words. A tenth of all *pairs*:

# %%
tenth = masks.BlockMask(N, draw < 0.1, 1)
print(f"{costs.block_sparse(N, d, mask=tenth, Br=B, Bc=1).total:,} words with Br = 64")

# %% [markdown]
# 34.0 million: of 64 queries nearly always one wants the key.

# %% [markdown]
# ## 8.7 An order for the tokens
#
# Structure may be there and not show. Reformer, in essence, hashes tokens into *buckets*, and a token sees the tokens of its own bucket only. Tokens of one bucket lie anywhere in the sequence, so the mask looks scattered:

# %%
rng = np.random.default_rng(8)
buckets = rng.permutation(np.repeat(np.arange(8), 32))  # 256 tokens, 8 buckets of 32
pairs = buckets[:, None] == buckets[None, :]
scattered = masks.covering(pairs, 32)
print(f"{pairs.mean():.3f} of the pairs are seen, "
      f"{scattered.tiles.mean():.3f} of the tiles are hit")

# %% [markdown]
# Attention does not care about the order of its keys, and each query works by itself. If we arrange $Q$, $K$ and $V$ in another order and the mask along with them, the rows of $O$ come out in that order and are otherwise the same. So we may choose it.
#
# **Predict.** How many of the 64 tiles are hit when the tokens of each bucket stand together?

# %% tags=["predict"]
predict("8.7", tiles_hit=8)  #> predict("8.7", tiles_hit=...)

# %% [markdown]
# <!-- exercise 8D --> You get the pairs and not the buckets. Give an order in which buckets stand together: `order[0]` is the token that comes first, `order[1]` the next. In some cases the mask is also causal, as in Reformer: a token sees those of its bucket that do not come after it. Then tokens of one bucket should keep their order, so that tiles above the diagonal stay empty. The check builds the mask of your order and counts its words. If you are stuck after six minutes, run `hint("8D")` in a cell of your own.

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
    mask = masks.covering(pairs[np.ix_(order, order)], 32)
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
# 8 tiles instead of 64, and 16,384 words instead of 73,728, for the very same output. $16{,}384 = 4Nd$: nothing below it is possible. The number of pairs has not changed at all.
#
# Arranging $Q$, $K$, $V$ anew in slow memory would itself move words: $6Nd$ to read and write the three, $2Nd$ to bring $O$ back. The model does not ask for it. A load of 32 rows that lie apart costs as many words as one of 32 neighbours, so a schedule may *gather* its blocks.
# <!-- 16{,}384 = 4 * 256 * 16 -->

# %% [markdown]
# ## 8.8 The backward pass
#
# A hidden pair has weight 0 and gives nothing to any gradient, so the backward schedules of lesson 06 pass the same tiles over. With rows $r_i$ and columns $c_j$ of the tiles that are seen,
#
# $$ W_{\text{B3}} = 5Nd + N + (4d+2)\!\!\sum_{(i,j)\ \text{seen}}\!\! r_i , \qquad W_{\text{B4}} = 8Nd + 2N + \!\!\sum_{(i,j)\ \text{seen}}\!\! \bigl(2d\,c_j + (2d+2)\,r_i\bigr) , \tag{8.6} $$
#
# where every query sees a key. B3 is `fused_backward`, B4 `split_backward`; here what stays is a block of the mask's side $B$. The sums are the density $s$ times what they are without a mask.
#
# **Predict.** The window of 190 tiles has $s = 0.046$. Which part of the dense words does B4 move?

# %% tags=["predict"]
predict("8.8", part=0.075)  #> predict("8.8", part=...)

# %%
part = {}
for name, mask in given.items():
    fused = costs.fused_backward(N, d, Br=1, Bc=B, mask=mask).total
    split = costs.split_backward(N, d, Br1=B, Bc1=1, Br2=1, Bc2=B, mask=mask).total
    part[name] = split
    print(f"{name:14} s = {mask.tiles.mean():.3f}: B3 {fused:10,}, B4 {split:10,} words, "
          f"{split / part['dense']:.3f} of dense")
measured("8.8", part=part["window 1"] / part["dense"])

# %% [markdown]
# 0.07518: $s$ and the $8Nd$ words that come anyway. (At the same block size B3 moves fewer words than B4; B4's advantage of lesson 06, 14 against 16, comes from larger blocks in the same memory.) And the values, on the small input:

# %%
mask = masks.bigbird(256, 32, 1, 1, 1)
leaves = schedules.forward_leaves(Q, K, V, mask)
dO = np.random.default_rng(9).standard_normal((256, 16))
back = run(schedules.split_backward, M=4096, Q=Q, K=K, V=V, O=leaves["O"], dO=dO,
           LSE=leaves["LSE"], mask=mask, Br1=32, Bc1=8, Br2=8, Bc2=32)
want = exact.attention_backward(Q, K, V, dO, mask=mask.additive())
errors = [abs(got - right).max() for got, right in zip(back.outputs, want, strict=True)]
print("dQ, dK and dV right:", max(errors) < 1e-12)

# %% [markdown]
# ## 8.9 What counting pairs can prove
#
# Is there a lower bound for a given mask? The proof of Theorem A in lesson 05 counts the products $p_{ij}v_{jc}$ that a stretch of the run can form, $N^2d$ in all. Under a mask only those of seen pairs are needed. Let $\mathrm{nnz}$ be their number; nothing else in the proof changes. This is Theorem D, bound `D`, a derivation of this course like Theorem A:
#
# $$ W \ge \frac{4\,\mathrm{nnz}\,d^2}{M + d^2} - (M + d^2) . \tag{8.7} $$
#
# Beside it stands the compulsory traffic, bound `compulsory_sparse`: $2d$ words for each query that sees a key and $2d$ for each key that is seen. `bounds.lower_bound(..., mask=mask)` takes the larger one.
#
# Theorem D knows the number of pairs and not their places. Where queries share their keys as well as in dense attention, it is close to what is possible; where they do not, it cannot know.
#
# **Predict.** $N = 65\,536$, $d = 64$, $M = 65\,536$, blocks of 448 queries, seven rows of tiles. A causal mask; a window of 33 tiles in each row; 33 tiles in each row at random. How many times the bound does F3 move?

# %% tags=["predict"]
predict("8.9", causal=1.2, window=1.7, scattered=8)  #> predict("8.9", causal=..., window=..., scattered=...)

# %%
N, M = 2**16, 2**16
rng, anywhere = np.random.default_rng(8), np.zeros((N // 64, N // 64), dtype=bool)
for row in anywhere:
    row[rng.choice(N // 64, 33, replace=False)] = True
long = {"causal": masks.Causal(N), "window": masks.sliding_window(N, 64, 16),
        "scattered": masks.BlockMask(N, anywhere, 64)}
ratio = {}
for name, mask in long.items():
    sparse = costs.block_sparse(N, d, mask=mask, Br=448, Bc=1)
    least, which = bounds.lower_bound("forward", N, d, M, mask=mask)
    ratio[name] = sparse.total / least
    print(f"{name:10} {mask.nnz:13,} pairs: {sparse.total:11,} words, "
          f"bound {which} {least:11,}")
measured("8.9", **ratio)

# %% [markdown]
# 1.251 for the causal mask, 1.699 for the window, 8.006 for the scattered one. Window and scattered mask have nearly the same number of pairs, so nearly the same bound; the words differ by a factor of more than four. We know no schedule that comes near 32 million words for the scattered mask, and (8.7) cannot exclude one.
#
# For a window the bound is right to leading order. The words are $4Nd + 8wNd^2/M$ by section 8.4, and with $\mathrm{nnz} \approx 2wN$ the bound is $8wNd^2/(M+d^2)$: where $w$ is much larger than $B_r$, the second term is what counts.

# %%
for w in (1024, 4096, 16384, 65536):
    window = masks.Window(2**19, w)
    Br = (M - d) // (2 * d + 3)
    sparse = costs.block_sparse(2**19, d, mask=window, Br=Br, Bc=1).total
    least, which = bounds.lower_bound("forward", 2**19, d, M, mask=window)
    print(f"w = {w:6,} = {w / Br:5.1f} Br: {sparse / least:.3f} times bound {which}")

# %% [markdown]
# The ratio goes towards $(1 + d^2/M)(1 + 3/(2d)) = 1.09$, the same remainders as in lesson 04. A narrow window, whose ring fits, moves $4Nd$ words and meets the compulsory bound. In between, where $w$ is about $B_r$, a factor of up to about two is open.
# <!-- 1.09 = (1 + 64**2 / 2**16) * (1 + 3 / (2 * 64)) -->

# %% [markdown]
# ## 8.10 A sparse bound, read correctly
#
# The paper on fine-grained I/O complexity has a lower bound for sparse attention, bound `omega_sparse` of the list, of the form
#
# $$ W = \Omega\left(\min\left\{ \frac{Z_{\mathrm{in}}^2}{M},\; \frac{Z_{\mathrm{in}}\sqrt{Z_{QK}}}{\sqrt M} \right\}\right) . \tag{8.8} $$
#
# $Z_{\mathrm{in}}$ is the number of *nonzero words of $Q$ and $K$*, $Z_{QK}$ that of $QK^\top$. It is a bound for multiplying sparse matrices with sums and products alone, due to Pagh and Stöckel, applied to $QK^\top$, and it speaks of the worst case: among all inputs with these numbers there are some that need so many words. It is *asymptotic only*; the constant in front is not known.
#
# It is tempting to read $Z_{QK}$ as the number of pairs in a mask. It is not that. A score of zero is not a hidden pair: it has the weight $e^0/\ell_i$ in the softmax, and a hidden pair has none. And with dense $Q$ and $K$, (8.8) would contradict what you have built. An $\Omega$ hides a constant, so no single number can contradict it, but growth can. Take a window with fixed $w$ and let $N$ grow:
#
# **Predict.** Put $Z_{\mathrm{in}} = 2Nd$ and $Z_{QK} = \mathrm{nnz}$ of the window into (8.8) and divide by the $4Nd$ words of the ring. By what factor does the quotient grow when $N$ becomes four times as large?

# %% tags=["predict"]
predict("8.10", growth=2)  #> predict("8.10", growth=...)

# %%
w, quotient = 64, []
M = costs.window(4096, d, w=w).peak
for N in (2**12, 2**14, 2**16, 2**18):
    misread = bounds.omega_sparse.order(2 * N * d, masks.Window(N, w).nnz, M)
    ring = costs.window(N, d, w=w).total
    quotient.append(misread / ring)
    print(f"N = {N:7,}: ring {ring:10,} words, (8.8) misread {misread:13,.0f}, "
          f"quotient {quotient[-1]:.2f}")
measured("8.10", growth=quotient[1] / quotient[0])

# %% [markdown]
# The quotient doubles each time, without end: whatever the constant, for large $N$ the misread bound is larger than what your ring moves. So as a statement about masks it is false.
#
# What does (8.8) say, then? Ask which sparse inputs are the hard ones. Put all nonzero words of $Q$ and $K$ into a dense block of $N'$ tokens and $d'$ features, and let everything else be zero. Then $QK^\top$ has $N'^2$ nonzero scores, and up to a constant
#
# $$ N' = \sqrt{Z_{QK}}, \qquad d' = \frac{Z_{\mathrm{in}}}{\sqrt{Z_{QK}}} , \qquad \frac{N'^2d'^2}{M} = \frac{Z_{\mathrm{in}}^2}{M}, \qquad \frac{N'^2d'}{\sqrt M} = \frac{Z_{\mathrm{in}}\sqrt{Z_{QK}}}{\sqrt M} . \tag{8.9} $$
#
# These are the two terms of the dense bound for $N'$ and $d'$, with the same change of regime at $M = d'^2$. For example, $Z_{\mathrm{in}} = 2^{20}$ and $Z_{QK} = 2^{24}$ may be $4{,}096$ tokens with 256 features.
#
# So read (8.8) as *the dense bound of the densest block* that such an input can hide. It says that sparse $Q$ and $K$ do not help in the worst case, because the nonzero words may all sit together. It says nothing about a mask that you know beforehand. For that there are Theorem D and the compulsory traffic. Between them and the schedules of this lesson there is room, and a bound that sees the *places* of the pairs is something we do not have. (The reading as a densest block is this course's.)
# <!-- 4{,}096, 256 = math.sqrt(2**24), 2**20 / math.sqrt(2**24) -->

# %% [markdown]
# ## Misconceptions
#
# - **"A mask of density $s$ moves $s$ times the words."** Of tiles as large as the block of queries, plus $2Nd$ (8.2). A tenth of all pairs, at random, moved 34,034,048 words of 34,078,720 (8.6).
# - **"Same density, same words."** Only at one block size. At $B_r = 512$ the window of 190 tiles moved 1,163,264 words, 190 scattered tiles 1,818,624 (8.5).
# - **"The sparse lower bound is about my mask."** The published one is about zeros in $Q$ and $K$ (8.10); Theorem D is about masks, and counts pairs without looking where they are (8.9).
# - **"A score of zero is a hidden pair."** Its weight is $e^0/\ell_i$ (8.10).
#
# ## Take-away
#
# - $W = 2Nd + 2d\sum_I |\mathrm{cols}(I)|$: queries once, and for each block of queries the union of the keys it sees. Everything else in this lesson follows from it.
# - Words are saved by what queries in fast memory *share*. Windows, columns and buckets share much, random pairs next to nothing. An order that puts sharing tokens together is worth as much as a better mask.
# - A window whose keys fit costs $4Nd$, the compulsory traffic, whatever its width: more room, and no more words.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Section 3.3 is block-sparse FlashAttention.
# - M. Zaheer et al.: *Big Bird*, 2020, [arXiv 2007.14062](https://arxiv.org/abs/2007.14062). Global, window and random tiles.
# - R. Child, S. Gray, A. Radford, I. Sutskever: *Generating long sequences with sparse Transformers*, 2019, [arXiv 1904.10509](https://arxiv.org/abs/1904.10509). Strided and fixed patterns; every $s$-th column is of the second kind.
# - I. Beltagy, M. Peters, A. Cohan: *Longformer*, 2020, [arXiv 2004.05150](https://arxiv.org/abs/2004.05150). Sliding windows.
# - N. Kitaev, Ł. Kaiser, A. Levskaya: *Reformer*, 2020, [arXiv 2001.04451](https://arxiv.org/abs/2001.04451). Buckets, and sorting by them.
# - X. Li et al.: *On fine-grained I/O complexity of attention backward passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). The sparse bound of section 8.10.
# - R. Pagh, M. Stöckel: *The input/output complexity of sparse matrix multiplication*, 2014, [arXiv 1403.3551](https://arxiv.org/abs/1403.3551).
#
# **What comes next.** Lesson 09 puts all schedules and bounds on one map, and asks which of them a real chip wants.
