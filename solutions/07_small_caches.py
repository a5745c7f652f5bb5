# %% [markdown]
# # 07 Small caches
#
# Look once more at the left end of the picture in lesson 04. Where fast memory is small, even naive attention moves fewer words than FlashAttention in any of its orders. This lesson is about that end, $M < d^2$, where a handful of rows fills fast memory, or not even one fits. One way out is to cut $d$ as well: you will write an attention that runs in five words of fast memory. Another is to keep whole rows of one array at a time, and with that the old order takes over again exactly where the papers say, at $M = d^2$.
#
# Who has so little memory? At $d = 64$ the line is $d^2 = 4096$ words. The fast memory of a GPU is larger, but one level further in it is not: the 32 vector registers of a processor core with AVX-512, 16 float32 numbers each, are 512 words.
#
# **What you will learn**
#
# - to make a tile of scores from columns of $Q$ and $K$, and why that beats whole rows when $M \ll d^2$;
# - to write attention with safe softmax in about $4N^2d/\sqrt M + N^2$ words;
# - to say whether scores must be written to slow memory, and what it costs not to;
# - to keep whole rows of one array at a time, and why that pays below $d^2$;
# - to find the schedule for any $M$, by search and by formula, and what Theorem B′ says of it.
#
# **Prerequisites**: lesson 02 (the matrix product in tiles), lesson 03 (log-sum-exp), lesson 04 (F3). Section 7.7 quotes lessons 05 and 05b. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->. [Lesson 07b](07b_input_gradient.ipynb), a second evening, has a gradient made of the same parts, the proof of Theorem B′, and a schedule to repair.
#
# <!-- exercises -->

# %% tags=["setup"]
from math import sqrt

import numpy as np

from iocourse import bounds, costs, exact, explore, run, schedules, sweeps
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.machine import probabilities

# %%
explore.blocked_product(24, 18, Br=6, Bc=8, Bd=6)

# %% [markdown]
# Attention in a small cache, in two halves. Left: a tile of scores stays in fast memory, and columns of $Q$ and $K$ pass it, one pair after the other, each cut to the tile. Right: a tile of the output stays, and columns of $S$ and rows of $V$ pass. Nothing in fast memory is as long as a row. How one gets there, and what it is worth, is this evening's subject.
#
# ## 7.1 When a row is too long
#
# F3, the best order of lesson 04, keeps $B_r$ rows of $Q$ and of $O$ in fast memory, $d$ words each. It moves $2Nd + 2Nd\lceil N/B_r\rceil$ words, with $B_r = \lfloor (M-d)/(2d+3) \rfloor$. What happens as $M$ shrinks?
#
# Think of a single word of $K$ that is loaded. It meets one word of each of the $B_r$ rows that are there, so it serves $B_r$ products, about $M/2d$. For $M = d^2/4$ that is $d/8$.
#
# **Predict** (compute). $N = 4096$, $d = 64$, $M = 1024 = d^2/4$. How many times $N^2$ words does F3 move? (For comparison: writing all scores to slow memory and reading them back is $2N^2$.)

# %% tags=["predict"]
predict("7.1", f3_squares=9)  #> predict("7.1", f3_squares=...)

# %%
N, d = 4096, 64


def squares(name, N, d, M):
    """Words in units of N², with the tiles the schedule picks for M; None where none fits."""
    s = schedules.get(name)
    if s.smallest_M(N, d) > M:
        return None
    return s.cost(N, d, **s.tiles(N, d, M)).total / N**2


for M in (4096, 2048, 1024, 512, 256, 195, 194):
    f3, naive = squares("flash_optimal", N, d, M), squares("naive", N, d, M)
    shown = f"{f3:7.2f} N²" if f3 else "does not run"
    print(f"M = {M:4}: F3 {shown:12}  naive {naive:6.2f} N²")
measured("7.1", f3_squares=squares("flash_optimal", N, d, 1024))

# %% [markdown]
# <details><summary>What seven rows are worth</summary>
#
# 18.34 times $N^2$: there is room for seven rows, and a loaded word of $K$ or $V$ serves seven products. At 1024 words and below, naive attention moves less: it holds whole rows as well, but of one array at a time. From 256 words down a single row of $Q$ is left to F3, and below $3d + 3 = 195$ words it does not run at all.
#
# </details>
#
# In lesson 02 a loaded word did much better. With a square tile of the result of side $b$ it served $b$ products, and $b \approx \sqrt M$: 31 at $M = 1024$. That schedule never held a row.
# <!-- 31 = bounds.square_side(1024) -->
#
# ## 7.2 A tile of scores, made from columns
#
# $S = QK^\top/\sqrt d$ is a matrix product, with $d$ as its depth. So take lesson 02 at its word, as in the left half of the picture: a tile of scores with $B_r$ rows and $B_c$ columns stays in fast memory, and $Q$ and $K$ stream past it *by columns*. A step loads one column of $Q$, cut to the tile's rows, and the same column of $K$, cut to the tile's keys: $B_r + B_c$ words for $B_r B_c$ products. After $d$ steps the tile is complete. We call this *tiling over $d$*. If every tile is stored, all scores cost
#
# $$ W_S = Nd\left\lceil \frac{N}{B_c} \right\rceil + Nd\left\lceil \frac{N}{B_r} \right\rceil + N^2, \qquad \text{footprint } B_rB_c + B_r + B_c , \tag{7.1} $$
#
# which is (2.4). With square tiles it is $2N^2d/\sqrt M + N^2$. Notice that $d$ has left the footprint: the tile fits however long a row is.
#
# **Predict** (compute). The same $N$, $d$ and $M = 1024$. A tile of $30 \times 32$ fits. How many times $N^2$ words do all scores cost, made by columns and stored?

# %% tags=["predict"]
predict("7.2", squares=5)  #> predict("7.2", squares=...)

# %%
M = 1024
product = schedules.matmul  # lesson 02's schedule; K is handed over turned
by_columns = run(product, M=M, dry=True, A=(N, d), B=(d, N), bm=30, bn=32).ledger
print(f"{by_columns.total:,} words, footprint {by_columns.peak:,}")
measured("7.2", squares=by_columns.total / N**2)

# %% [markdown]
# <details><summary>Beside F3</summary>
#
# 5.141 times $N^2$, and $N^2$ of it is the store: less than a third of what F3 moves in all. (F3 makes scores *and* output, so compare it with twice this number.)
#
# </details>
#
# <!-- exercise 7A --> Make one tile of $S$: the scores of the queries in block `i` against the keys in block `j`, divided by $\sqrt d$. The tile is what the function returns, so it must still be in fast memory at the end, and nothing else may be. Beside it there is room for one column of $B_r$ words and one of $B_c$. The check calls your function for every tile of $S$ and stores what it gets. If you are stuck after five minutes, run `hint("7A")` in a cell of your own.


# %% [raw] name="about-7A"
# title = "A tile of scores from columns"
# difficulty = 2
# importance = 5
# minutes = 8
# hints = [
#   "This is one tile of the matrix product of lesson 02. The depth is d here, and the second matrix is the transpose of K.",
#   "Create a tile of zeros with the rows of block i and the columns of block j. Then use one loop over d columns: load a column of Q for the rows of i and the same column of K for the rows of j.",
#   "A column of Q has shape (Br, 1), the transposed column of K (1, Bc); add_matmul takes both. Scale the column of Q in place. The tile must outlive the function, so do not open it in a with statement.",
# ]

# %% tags=["exercise"] name="ex-7A"
def my_scores_tile(m, Q, K, i, j):
    """The tile (Br, Bc) of QKᵀ/√d for queries i and keys j, made column by column.

    m: the machine. Q, K: slow arrays (N, d). i, j: blocks, as m.blocks yields them.
    Returns a tile in fast memory.
    """
    d = Q.shape[1]
    ### BEGIN SOLUTION one loop over the columns
    s = m.zeros(i, j)  # (Br, Bc)
    for c in m.blocks(d, 1):
        with m.load(Q, i, c) as q, m.load(K, j, c) as k:  # (Br, 1), (Bc, 1)
            q *= d**-0.5
            s.add_matmul(q, k.T)
    return s
    ### END SOLUTION


# %% tags=["check"] name="check-7A"
check("7A", my_scores_tile)


# %%
def tile_of_scores(m, Q, K):
    """Eight queries against eight keys, stored as an 8 x 8 array."""
    S = m.new("S", (8, 8))
    for i in m.blocks(8, 8):
        with my_scores_tile(m, Q, K, i, i) as s:
            m.store(s, S, i, i)
    return S


rng = np.random.default_rng(7)
Q, K, V = rng.standard_normal((3, 32, 256))
mine = attempt(run, tile_of_scores, M=80, Q=Q, K=K)
print(mine.ledger)

# %% [markdown]
# 80 words of fast memory, and the rows are 256 words long. One row of $Q$ would not have fitted.
#
# ## 7.3 The published algorithm
#
# Saha and Ye give an algorithm for $M < d^2$, SquareTilingAttention. Here it is F4, in code `square_tiling`. It is two matrix products, one after the other, with square blocks of side $B = \lfloor\sqrt{M/4}\rfloor$ throughout:
#
# - for each block of $A = e^{S}$: multiply blocks of $Q$ and $K$, take the exponential, store the block, and add its row sums to $D_i$;
# - for each block of $O$: multiply blocks of $A$ and $V$, divide by $D_i$, store.
#
# Each of the two products streams two arrays past a tile of side $B$:
#
# $$ W_4 = 2Nd\left\lceil \frac NB \right\rceil + N^2 + 2N + N^2\left\lceil \frac dB \right\rceil + Nd\left\lceil \frac NB \right\rceil + Nd \;\approx\; \frac{8N^2d}{\sqrt M} + N^2 . \tag{7.2} $$
#
# Three full blocks and a vector take $3B^2 + B$ words, so $B = \sqrt M/2$ is safe, and the paper, which is after the order of growth, asks for no more. (The largest square that fits has $4\sqrt3 = 6.93$ in place of 8.) Notice that no maximum is subtracted: $A$ is the bare exponential.
#
# **Predict** (guess). 32 queries meet 32 keys. Their scores reach to $\pm 3000$, with a standard deviation of 900. In how many of the 32 rows is the output of F4 usable, that is, not NaN?
# <!-- Q, K = np.random.default_rng(7).standard_normal((3, 32, 8))[:2] -->
# <!-- S = exact.scores(1000 * Q, K) -->
# <!-- 3000, 900 = round(abs(S).max(), -3), round(S.std(), -2) -->
# <!-- 6.93 = 4 * math.sqrt(3) -->

# %% tags=["predict"]
predict("7.3", usable=16)  #> predict("7.3", usable=...)

# %%
N, d, M = 2**20, 4096, 16384
f4 = schedules.square_tiling
published = f4.tiles(N, d, M, published=True)
dry = run(f4, M=M, dry=True, **f4.shapes(N, d), **published).ledger
print(f"{published}: {dry.total:,} words, {dry.total * sqrt(M) / (N**2 * d):.2f} N²d/√M")

Q, K, V = np.random.default_rng(7).standard_normal((3, 32, 8))
Q *= 1000
O = run(f4, M=64, Q=Q, K=K, V=V, B=4).O  # silent: the machine raises no flag on overflow
largest = exact.scores(Q, K).max(axis=1)
usable = int(np.isfinite(O).all(axis=1).sum())
print(f"largest score of a row: from {largest.min():.0f} to {largest.max():.0f}")
measured("7.3", usable=usable)

# %% [markdown]
# <details><summary>Which rows are lost</summary>
#
# One row of 32 is left, while the words are as (7.2) says. In float64 $e^s$ overflows at $s = 709.8$, in float32 at 88.7; the sharp head of lesson 04 had a logit of 83.1. A row is lost when its largest score exceeds the limit: its sum is infinite, and infinity over infinity is not a number. (It would be lost as well if all of its scores lay below $-745$: then $D_i = 0$.)
#
# </details>
#
# The paper proves statements about words that move, and for those it makes no mistake. But an algorithm that is to run needs a maximum. Does that cost words?
# <!-- 709.8, 88.7 = (math.log(np.finfo(kind).max) for kind in (np.float64, np.float32)) -->
# <!-- 745 = math.log(2) - math.log(np.finfo(np.float64).smallest_subnormal) -->
# <!-- 83.1 = real_head(0, 2).stats["logit_max"] -->
#
# ## 7.4 The same idea, safe and with thin slices
#
# The maximum of a row is known only when the row is complete, and then the exponentials have been stored. So store the *raw* scores, and take the exponential later:
#
# For each block of queries $i$:
#
# 1. For each block of keys $j$: make the tile of scores, store it as it is, then let the row statistics take it in (they turn it into exponentials, which nobody needs). The statistics $m_i, \ell_i$ stay in fast memory and cost no words.
# 2. Now $L_i = m_i + \log \ell_i$ is known, one word a row. For each block of $B_d$ columns of $O$: keep a tile of $O$, $B_r \times B_d$, and stream past it, key by key, a column of $S$ and a row of $V$ cut to $B_d$ words: the right half of the picture. The column becomes $p = e^{s - L}$ on arrival.
#
# This is F5, in code `small_cache`. There is a saving beside the safety. As in lesson 02, slices of depth 1 leave the room to the tile that stays, and its side grows from $\sqrt M/2$ to nearly $\sqrt M$. And since a block of queries is finished before the next one begins, the scores need $B_r \times N$ words of slow memory, not $N \times N$. Counted:
#
# $$ W_5 = \underbrace{Nd\left\lceil \frac N{B_c} \right\rceil}_{Q} + \underbrace{2Nd\left\lceil \frac N{B_r} \right\rceil}_{K,\,V} + \underbrace{N^2 + N^2\left\lceil \frac d{B_d} \right\rceil}_{S} + \underbrace{Nd}_{O}, \qquad \text{footprint } \max\bigl(B_rB_c + B_c + 3B_r,\; B_rB_d + B_d + 2B_r\bigr) . \tag{7.3} $$
#
# With all sides near $\sqrt M$ the four streams $Q$, $K$, $V$ and $S$ cost $N^2d/\sqrt M$ each: $W_5 \approx 4N^2d/\sqrt M + N^2$.
#
# **Predict** (compute). $N = 4096$, $d = 64$, $M = 1024$, and $B_r = B_c = B_d = 30$. How many times is each score *read*? And how many times fewer words than with F3 are moved in all?

# %% tags=["predict"]
predict("7.4", score_reads=3, times_fewer=2)  #> predict("7.4", score_reads=..., times_fewer=...)

# %%
N, d, M = 4096, 64, 1024
shapes, tiles = dict.fromkeys("QKV", (N, d)), {"Br": 30, "Bc": 30, "Bd": 30}
f5 = run(schedules.small_cache, M=M, dry=True, **shapes, **tiles)
print(f5.ledger)
reads = f5.ledger.reads["S"] // N**2
measured("7.4", score_reads=reads,
         times_fewer=squares("flash_optimal", N, d, M) / (f5.ledger.total / N**2))

# %% [markdown]
# <details><summary>How often a score is read</summary>
#
# Three times, because $\lceil 64/30 \rceil = 3$: thirty columns of $O$, thirty more, and four that are left over. 1.757 times fewer words than F3. With $B_r = 29$, $B_c = 31$, $B_d = 32$, which fits too, each score is read twice, and $W_5 = 9.53\,N^2$: whole numbers matter here.
#
# </details>
#
# <!-- exercise 7B --> Write F5, with your `my_scores_tile`. Put the raw scores into a slow array `S` of $B_r$ rows and $N$ columns, made once: block `i` goes to its rows `(0, i.size)`. `m.row_stats(i)` makes fresh statistics, `stats.update(s)` takes a tile of scores in and spoils it, `L = stats.lse()` turns them into $L_i$, in place and once; `probabilities(s, L)` turns scores $s$ into $e^{s-L}$, in place, row by row. `m.zeros(i, c)` takes a block of columns `c` as well. The check allows the words of (7.3), and its footprint and four words a row of fast memory. If you are stuck after twelve minutes, run `hint("7B")` in a cell of your own.


# %% [raw] name="about-7B"
# title = "Attention in a small cache"
# difficulty = 4
# importance = 5
# minutes = 20
# hints = [
#   "There are two loops, one after the other, in one loop over blocks of queries. The first computes scores and statistics, the second the output. What must the first one store for the second?",
#   "First loop: for each block of keys, a tile from my_scores_tile; store it before the statistics are updated with it, because the update changes it. Second loop: for each block of Bd columns a tile of output; for each key one column of the stored scores and Bd columns of one row of V.",
#   "Between the two loops the statistics become log-sum-exps, one word per row. In the second loop a column of scores becomes probabilities in place, and column times row is added to the tile of output. No normalisation is needed.",
# ]

# %% tags=["exercise"] name="ex-7B"
def my_small_cache(m, Q, K, V, *, Br, Bc, Bd):
    """softmax(QKᵀ/√d) V, with tiles that do not depend on d.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows in a block of queries, of keys.
    Bd: columns in a block of the output. Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O, S = m.new("O", (N, d)), m.new("S", (min(Br, N), N))
    ### BEGIN SOLUTION for each block of queries: first scores and statistics, then output
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(N, Bc):
                with my_scores_tile(m, Q, K, i, j) as s:  # (Br, Bc)
                    m.store(s, S, (0, i.size), j)
                    stats.update(s)
            L = stats.lse()  # (Br,)
            for c in m.blocks(d, Bd):
                with m.zeros(i, c) as o:  # (Br, Bd)
                    for j in m.blocks(N, 1):
                        with m.load(S, (0, i.size), j) as s, m.load(V, j, c) as v:
                            o.add_matmul(probabilities(s, L), v)  # (Br, 1), (1, Bd)
                    m.store(o, O, i, c)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-7B"
check("7B", my_small_cache)


# %%
# Yours on the input that broke F4.
mine = attempt(run, my_small_cache, M=64, Q=Q, K=K, V=V, Br=4, Bc=6, Bd=6)
f4_words = costs.square_tiling(32, 8, B=4).total
right = attempt(np.allclose, mine.O, exact.attention(Q, K, V))
print(f"F4 {f4_words:,} words; yours {mine.ledger.total:,} words; "
      f"equal to exact attention: {right}")
least = run(schedules.small_cache, M=5, Q=Q, K=K, V=V, Br=1, Bc=1, Bd=1)
right = np.allclose(least.O, exact.attention(Q, K, V))
print(f"on five words: {least.ledger.total:,} words; equal to exact attention: {right}")

# %% [markdown]
# Every row is right, with scores of ±3000, and the words are no more than F4's: a safe softmax costs nothing. And with tiles of one word the footprint of (7.3) is 5. On such a machine the library's F5 moves 34,048 words and is right, whatever $N$ and $d$.
#
# ## 7.5 Must the scores be written?
#
# F4 and F5 write scores to slow memory, and FlashAttention's whole point was not to. Is that the price of a small cache? It is not. F6, in code `small_cache_fused`, a schedule of this course, writes none.
#
# Take a tile of scores made by columns, as before, and use it at once. It has $B_r$ rows, and it concerns $B_r$ rows of $O$, of which not even one need fit. So bring them by columns too: for each column $c$ load $O_{ic}$ and $V_{jc}$, rescale, add $P_{ij}V_{jc}$, store $O_{ic}$ again. The statistics stay in fast memory. It is the order of FlashAttention-2, with $d$ cut. For one tile of scores there pass a column of $Q$ and one of $K$, then $O$ in, $O$ out, and $V$ in, all $d$ times:
#
# $$ W_6 = Nd\left(3\left\lceil \frac N{B_c} \right\rceil - 1 + 2\left\lceil \frac N{B_r} \right\rceil\right), \qquad \text{footprint } B_rB_c + 4B_r + B_c . \tag{7.4} $$
#
# There is no $N^2$ in it. (The $-1$: nothing is there to be read at the first block of keys.)
#
# **Predict** (guess). $N = 4096$, $d = 64$, $M = 1024$, each with its best tiles. Does F6 move fewer words than F5?

# %% tags=["predict"]
predict("7.5", fewer_words=True)  #> predict("7.5", fewer_words=...)

# %%
N, d, M = 4096, 64, 1024
for name in ("small_cache", "small_cache_fused"):
    s = schedules.get(name)
    print(f"{name:17} {s.tiles(N, d, M)}: {squares(name, N, d, M):.2f} N²")
f5, f6 = (squares(name, N, d, M) for name in ("small_cache", "small_cache_fused"))
print(f"F6 moves {f6 / f5:.3f} times the words of F5")
measured("7.5", fewer_words=f6 < f5)

# %% [markdown]
# <details><summary>What each of the two pays for</summary>
#
# 1.105 times as many. F5 pays $N^2$ words for writing its scores, and that makes each further product cheaper: a stored score is read for $B_d$ products at a time. F6 writes none, and pays for partial outputs that travel. With $B_rB_c = M$ the sum $3/B_c + 2/B_r$ in (7.4) is least at $B_r : B_c = 2 : 3$, and then $W_6 \approx 2\sqrt6\,N^2d/\sqrt M = 4.90\,N^2d/\sqrt M$. So whether to write $S$ is a matter of constants. F6 has one advantage that no count of words shows: in slow memory it needs nothing but inputs and output.
#
# </details>
# <!-- 4.90 = 2 * math.sqrt(6) -->
#
# ## 7.6 One array at a time, and which schedule for which memory
#
# F3 keeps rows of two arrays, $Q$ and $O$, since it uses a score where it makes it. F5 cuts every row. In units of $N^2$ words, with $x = d/\sqrt M$, they move $4x^2$ and $4x + 1$, and they meet near $M = 0.7\,d^2$. Each is at home on one side of it.
#
# **Predict** (guess). $N = 2^{13}$, $d = 64$, $M = 2896 = 0.707\,d^2$. A third kind lies between them. How many percent of their words, of whichever moves fewer, does it save there?

# %% tags=["predict"]
predict("7.6", percent_less=5)  #> predict("7.6", percent_less=...)

# %% [markdown]
# Store the scores, as F5 does, but leave the rows whole. Making scores and using them are then two sweeps, and in each of them one array is enough. For each block of queries $i$:
#
# 1. $Q_i$ stays, and one key after the other passes. Each makes a column of raw scores, which is stored; the statistics take it in.
# 2. $Q_i$ leaves, and $O_i$ takes its room. The columns of $S$ come back, each with a row of $V$.
#
# This is F7, in code `scores_stored`:
#
# $$ W_7 = \underbrace{2Nd}_{Q,\,O} + \underbrace{2Nd\left\lceil \frac N{B_r} \right\rceil}_{K,\,V} + \underbrace{2N^2}_{S}, \qquad \text{footprint } B_r(d + 3) + d . \tag{7.5} $$
#
# There is room for nearly twice as many rows as in F3, whose footprint is $B_r(2d + 3) + d$. So $K$ and $V$ pass half as often, and each score costs two words.
#
# <!-- exercise 7C --> Write F7. Everything is as in your F5, except that a column of scores is a product of whole rows; `S` again has $B_r$ rows, made once. The check allows the words of (7.5), and its footprint and four words a row of fast memory: rows of $Q$ and of $O$ do not fit side by side. If you are stuck after eight minutes, run `hint("7C")` in a cell of your own.


# %% [raw] name="about-7C"
# title = "Rows of one array at a time"
# difficulty = 3
# importance = 5
# minutes = 10
# hints = [
#   "Your F5 has two loops over the keys per block of queries. Which array is resident in the first loop, which in the second, and which in both?",
#   "First loop: a block of rows of Q is resident; for each key, compute a column of scores from complete rows, store it, and update the statistics with it. Free the rows of Q before the rows of the output are created.",
#   "A block of Br rows times one transposed row of K is a column of Br scores. In the second loop, load that column again for each key and turn it into probabilities in place; it needs a complete row of V.",
# ]

# %% tags=["exercise"] name="ex-7C"
def my_scores_stored(m, Q, K, V, *, Br):
    """softmax(QKᵀ/√d) V, with rows of one array at a time in fast memory.

    m: the machine. Q, K, V: slow arrays (N, d). Br: rows in a block of queries.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O, S = m.new("O", (N, d)), m.new("S", (min(Br, N), N))
    ### BEGIN SOLUTION first Q_i stays and scores go out, then O_i stays and they come back
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:  # 2·Br
            with m.load(Q, i) as q:  # (Br, d)
                q *= d**-0.5
                for j in m.blocks(N, 1):
                    with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Br, 1)
                        m.store(s, S, (0, i.size), j)
                        stats.update(s)
            L = stats.lse()  # (Br,)
            with m.zeros(i, d) as o:  # (Br, d)
                for j in m.blocks(N, 1):
                    with m.load(S, (0, i.size), j) as s, m.load(V, j) as v:  # (Br, 1), (1, d)
                        o.add_matmul(probabilities(s, L), v)
                m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-7C"
check("7C", my_scores_stored)


# %%
def border(left, right, N, d, low, high):
    """The M/d² between low and high from which `right` moves fewer words than `left`."""
    low, high = int(low * d * d), int(high * d * d)
    while high - low > 1:
        M = (low + high) // 2
        ahead = squares(right, N, d, M) < squares(left, N, d, M)
        low, high = (low, M) if ahead else (M, high)
    return high / d**2


Q, K, V = np.random.default_rng(7).standard_normal((3, 512, 64))
mine = attempt(run, my_scores_stored, M=2896, Q=Q, K=K, V=V, Br=42)
print(f"yours, M = 2896 = {2896 / 64**2:.3f} d²: {mine.ledger.total / 512**2:.3f} N², "
      f"F3 {squares('flash_optimal', 512, 64, 2896):.3f} N²")
ahead = border("scores_stored", "flash_optimal", 2**22, 4096, 0.5, 2)
print(f"N = 2²², d = 4096: F3 moves fewer words than F7 from M = {ahead:.3f} d² on")

# %% [markdown]
# F7 moves $2x^2 + 2$, F3 $4x^2$, and the two meet at $x = 1$, that is at $M = d^2$. Reckon it by the score. F3 spends $4x^2$ words a score on keys and values that pass. F7 spends half of that, and two words on the score itself, out and in. At $M = d^2$ both are four; with less memory it is cheaper to store a score, with more to use it where it is made.
#
# And that is the line of the papers, who have it from the growth alone: there $N^2d^2/M$ and $N^2d/\sqrt M$ are the same. F3 and F5 alone would meet at $x = (1 + \sqrt2)/2$, which is $0.69\,d^2$. With the smallest constants that we know, $d^2$ comes back as the border of real schedules.
#
# **Further down** the second sweep can cut its rows, as F5 does, while the first keeps them whole. A tile of $O$ with $B_d = d/k$ columns has room for $k$ times as many rows $B_o$, so $V$ passes less often, and each score is read $k$ times. All scores are stored before the first is read, and $L_i$ with them:
#
# $$ W_{7d} = 2Nd + 2N + Nd\left(\left\lceil \frac N{B_r} \right\rceil + \left\lceil \frac N{B_o} \right\rceil\right) + N^2\left(1 + \left\lceil \frac d{B_d} \right\rceil\right), \qquad \text{footprint } \max\bigl(B_r(d + 3) + d,\; B_oB_d + 2B_o + B_d\bigr) . \tag{7.6} $$
#
# This is F7d, in code `scores_stored_tiled`. With one slice it is F7, but for the $N^2$ words of scores in slow memory; with two it moves $\frac32x^2 + 3$. So there are four stretches:
#
# | $M$ | $x$ | schedule | words, in $N^2$ |
# | --- | --- | --- | --- |
# | above $d^2$ | below $1$ | F3 | $4x^2$ |
# | $d^2/2$ to $d^2$ | $1$ to $\sqrt2$ | F7 | $2x^2 + 2$ |
# | $d^2/4$ to $d^2/2$ | $\sqrt2$ to $2$ | F7d, two slices | $\frac32x^2 + 3$ |
# | below $d^2/4$ | above $2$ | F5 | $4x + 1$ |
#
# At each border two neighbours cost the same: $4$, $6$ and $9\,N^2$. (F5 reads a score a whole number $k$ of times and moves $2x^2/k + 2k + 1$, which touches $4x + 1$ where $x = k$.) F6, with $2\sqrt6\,x$, is nowhere the least. Is there a fifth? All are made of *sweeps*: a sweep goes through all pairs once, some arrays stay, others pass, scores are read or stored. The library searches through all their sequences (lesson 09 shows how):
# <!-- 0.69 = 4 / (1 + math.sqrt(2)) ** 2 -->

# %%
for piece in sweeps.lower_envelope("forward", 0.5, 4):
    print(f"x from {piece.x_from:.3f} to {piece.x_to:.3f}: "
          f"{piece.a:.3g} x² + {piece.b:.3g} x + {piece.c:.3g}")

# %% [markdown]
# The same four, at the same borders: the *least among sweeps*. That is no lower bound: what a schedule of another kind could do is the question of section 7.7.
#
# <!-- exercise 7D --> Now in whole numbers. Return the name of a schedule and its tiles: the pair that moves the fewest words among all tiles of `flash_optimal` ($B_r$, $B_c$), `scores_stored` ($B_r$), `scores_stored_tiled` ($B_r$, $B_o$, $B_d$) and `small_cache` ($B_r$, $B_c$, $B_d$) whose footprint is at most $M$. The closed forms (4.3), (7.5), (7.6) and (7.3) are `costs.flash_optimal` and so on; `.total` is the words, `.peak` the footprint, and sizes above $N$ or $d$ count as $N$ or $d$. $M$ is at least 5, so some tile of F5 always fits. Two of the four need a loop; for the other sizes think first. If you are stuck after eight minutes, run `hint("7D")` in a cell of your own.


# %% [raw] name="about-7D"
# title = "A plan for any M"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "A larger tile never moves more words. So if a footprint leaves one size open, only the largest value that fits is worth considering. If two sizes share the capacity, loop over one of them.",
#   "Solve each footprint for its last size. F3 and F7 leave one plan each. F5 leaves one per Br: its footprint is the larger of two, which give Bc and Bd. F7d leaves one per Bd.",
#   "Collect (name, tiles) if all sizes are at least 1: F3 with Bc = 1, F7, F5 for every Br from 1 to N, F7d for every Bd from 1 to d. Select the one with the smallest total with min(..., key=...).",
# ]

# %% tags=["exercise"] name="ex-7D"
def my_plan(N, d, M):
    """The schedule and the tiles with the fewest words.

    As a pair of a name and sizes, such as ("small_cache", {"Br": 3, "Bc": 4, "Bd": 4}).

    N, d, M: whole numbers, M at least 5.
    """
    ### BEGIN SOLUTION the largest partners that fit; the closed forms cut them to N and d
    both, one = (M - d) // (2 * d + 3), (M - d) // (d + 3)
    plans = [("flash_optimal", {"Br": both, "Bc": 1}), ("scores_stored", {"Br": one})]
    for Bd in range(1, d + 1):
        plans.append(("scores_stored_tiled", {"Br": one, "Bo": (M - Bd) // (Bd + 2), "Bd": Bd}))
    for Br in range(1, N + 1):
        Bc, Bd = (M - 3 * Br) // (Br + 1), (M - 2 * Br) // (Br + 1)
        plans.append(("small_cache", {"Br": Br, "Bc": Bc, "Bd": Bd}))
    possible = [plan for plan in plans if min(plan[1].values()) >= 1]
    return min(possible, key=lambda plan: getattr(costs, plan[0])(N, d, **plan[1]).total)
    ### END SOLUTION


# %% tags=["check"] name="check-7D"
check("7D", my_plan)


# %%
def plans(choose, N, d, memories):
    for M in memories:
        name, tiles = choose(N, d, M)
        words = getattr(costs, name)(N, d, **tiles).total / N**2
        f3_f5 = min(squares(name, N, d, M) for name in ("flash_optimal", "small_cache"))
        yield (f"{M / d**2:5.3f} d²  {name:19} {words:5.2f} N², "
               f"{100 * (1 - words / f3_f5):4.1f} % less")


memories = (512, 1024, 1448, 1800, 2048, 2896, 4096, 4300, 5793)
# Prediction 7.6 asked: how many percent at M = 2896 = 0.707 d²?
print("the best plan, and how many words it saves beside F3 and F5 alone:")
for line in attempt(lambda: list(plans(my_plan, 2**13, 64, memories))):
    print(line)
f3_f5, f7 = (min(squares(name, 2**13, 64, 2896) for name in names) for names in (
    ("flash_optimal", "small_cache"), ("scores_stored", "scores_stored_tiled")))
measured("7.6", percent_less=100 * (1 - f7 / f3_f5))

# %% [markdown]
# <details><summary>Where the gain is largest</summary>
#
# 16.3 percent at $0.707\,d^2$, near the place where F5 and F3 would have met. From little memory to much the best plans are F5, F7d, F7, F3. Between $d^2/2$ and $d^2$ F7 and F7d with one slice, one family, take turns. At this small $d$ F3 takes over a little late, near $1.05\,d^2$.
#
# </details>
#
# At $d = 256$, as a picture:

# %%
N, d = 2**16, 256
shares = [2 ** (k / 8) for k in range(-20, 9)]  # of d²


def in_squares(name):
    values = ((share, squares(name, N, d, int(share * d**2))) for share in shares)
    return [(share, v) for share, v in values if v < 12]


four = ("flash_optimal", "scores_stored", "scores_stored_tiled", "small_cache")
explore.curve(
    {}, {schedules.get(name).title: in_squares(name) for name in four},
    title=f"Four schedules around M = d², N = {N:,}, d = {d}",
    xlabel="fast memory M (in d²)", ylabel="words moved (in N²)", log=(True, False),
)

# %% [markdown]
# From left to right F5, F7d, F7 and F3 are lowest in turn. From $d^2/2$ on the lines of F7d and F7 lie on each other, and all but F5 meet near $d^2$.
#
# ## 7.7 How little is possible
#
# The best schedule for $M \ll d^2$ moves $4N^2d/\sqrt M$ words. In lesson 05, Theorem A gives half of that: for $M \le d^2$ it reads $W \ge 2N^2d/\sqrt M - 2M$. It counts only the products $p_{ij}v_{jc}$, as if all scores came for free. For large $M$ they nearly do: rows of $Q$ and $K$ that are in fast memory make scores without a further word. For $M \ll d^2$ hardly a row fits. So count the products $q_{ic}k_{jc}$ too. This is Theorem B′, (5.15) of section 5.10:
#
# $$ W \ge \frac{4N^2d}{\sqrt M\left(1 + \frac{9\sqrt M}{16d}\right)} - 2M - N^2 . \tag{7.7} $$
#
# The class is that of Theorem A: scores from $d$ products, outputs from products $p_{ij}v_{jc}$, any order, any tiles, and scores may be computed again at will. Products whose pair $(i,j)$ has a score at hand, finished or growing, are limited as in two matrix products. The others have a $p_{ij}$ made from nothing, and that takes a whole row of $Q$ and of $K$. For $M \ll d^2$ they are a trifle, and *that* is why computing again does not help here. Section 7.10, in lesson 07b, has the proof. Like Theorem A it is a derivation of this course. (7.7) is the bound `B'_line`; `bounds.lower_bound` takes the sharper `B'` into account.
#
# **Predict** (guess). $N = 2^{20}$, $d = 4096$, $M = 16\,384$. How many times the lower bound does F5 move?

# %% tags=["predict"]
predict("7.7", f5_over_bound=1.1)  #> predict("7.7", f5_over_bound=...)

# %%
N, d = 2**20, 4096
for M in (4096, 16384, 65536, d**2 // 4, d**2 // 2, d**2):
    least, which = bounds.lower_bound("forward", N, d, M)
    unit = N**2 * d / sqrt(M)
    A = bounds.theorem_A(N, d, M + 4) / unit
    words, s = min((v * N**2, name) for name in four if (v := squares(name, N, d, M)))
    print(f"M = {M:10,}: A {A:.2f}, best bound {which} {least / unit:.2f}, "
          f"{s} {words / unit:.2f}, ratio {words / least:.2f}")
least = bounds.lower_bound("forward", N, d, 16384)[0]
ratio = squares("small_cache", N, d, 16384) * N**2 / least
measured("7.7", f5_over_bound=ratio)

# %% [markdown]
# <details><summary>How much is left to find</summary>
#
# 1.038 times: whoever finds another schedule of this class saves at most 3.7 percent at this $M$. Both sides tend to 4, so 4 is the exact constant at this end, as it is for $M \gg d^2$. Between the ends up to a factor of 1.89 is open, most at $M = d^2$: there F3 and F7 meet at $4N^2$, and neither a better schedule nor a better bound is known to us.
#
# </details>
#
# What does the 4 mean? $QK^\top$ and $PV$ are two matrix products, and either of them alone costs $2N^2d/\sqrt M$ (section 2.6). Far below $d^2$ joining them saves nothing that grows like $N^2d/\sqrt M$. Far above $d^2$ joining them is everything.
#
# The published result is about the order of growth, with matching algorithms and lower bounds (bound `theta_attention`, status *asymptotic only*). With every constant of its argument kept it gives $2N^2d/\sqrt M - 2M - N^2$ for $M \le d^2$ (`saha_ye_small`): one of the two products. With the compulsory words, which count beyond $M = Nd$, it reads
#
# $$ W = \Theta\left( Nd + \min\left\{ \frac{N^2d^2}{M},\; \frac{N^2d}{\sqrt M} \right\} \right) . \tag{7.8} $$
#
# | | $M \ll d^2$ | $M \gg d^2$ |
# | --- | --- | --- |
# | best schedule known | F5, $4N^2d/\sqrt M + N^2$ | F3, $4N^2d^2/M$ |
# | lower bound, proved in this course | B′, $4N^2d/\sqrt M - N^2$ | A, $4N^2d^2/M$ |
# | published, without a constant | order $N^2d/\sqrt M$ | order $N^2d^2/M$ |
#
# In a picture, with $d = 1024$:
# <!-- words = lambda name, N, d, M: schedules.get(name).cost(N, d, **schedules.get(name).tiles(N, d, M)).total -->
# <!-- over = words("small_cache", 2**20, 4096, 16384) / bounds.lower_bound("forward", 2**20, 4096, 16384)[0] -->
# <!-- 3.7 = 10**2 * (1 - 1 / over) -->

# %%
shown = ["square_tiling", "small_cache", "small_cache_fused", "scores_stored",
         "scores_stored_tiled", "flash_optimal"]
explore.traffic_vs_memory(2**16, 1024, shown, (2**8, 2**22))

# %% [markdown]
# On the left the three small-cache schedules fall like $1/\sqrt M$, F5 just above the bound. F7 and F7d begin at $2d + 3$ and F3 at $3d + 3 = 3{,}075$ words, far above, and fall like $1/M$, twice as steep. F7d and F7 dip below the others before $d^2 = 1{,}048{,}576$, where F3 takes over and falls on with the bound.
# <!-- 3{,}075, 1{,}048{,}576 = schedules.flash_optimal.smallest_M(2**16, 1024), 1024**2 -->

# %% [markdown]
# ## Misconceptions
#
# - **"FlashAttention always moves the fewest words."** At $d = 64$ and $M = 1024$ F3 moved 18.34 $N^2$ words, naive attention 12.75, and F5 9.53 (7.1, 7.4).
# - **"Below $d^2$ the scores have to be written out."** F6 never writes one, and moves 1.105 times the words of F5 (7.5).
# - **"$M = d^2$ is where columns take over from rows."** It is where storing scores begins to pay. Whole rows, of one array at a time, are best down to $d^2/2$, and for making the scores down to $d^2/4$; F5 and F3 alone would change at $0.69\,d^2$ (7.6).
# - **"Numerical safety costs traffic."** F5 subtracts the maximum and moved fewer words than F4, which does not; and F4 lost 31 rows of 32 (7.3, 7.4).
# - **"Computing scores again would save words here too."** Theorem B′ allows it, and at $d = 4096$, $M = 16\,384$ F5, which does not, is within 3.8 percent of it (7.7).
#
# ## Take-away
#
# - When $M \ll d^2$, cut $d$ too: keep a tile of scores, or of output, and stream columns past it. Every loaded word then serves about $\sqrt M$ products.
# - Raw scores in slow memory, statistics in fast memory: $4N^2d/\sqrt M + N^2$ words, safe, on any machine with five words or more. Without writing scores it is $4.90\,N^2d/\sqrt M$.
# - The least among sweeps: F3, from $M = d^2$ down F7, from $d^2/2$ F7d, from $d^2/4$ F5. The first border is that of the papers.
# - $4$ is the exact leading constant for $M \ll d^2$ (Theorem B′) and for $M \gg d^2$ (Theorem A). Between them up to a factor of 1.89 is open.
#
# ## References
#
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). Algorithm 1 is F4; the two regimes and (7.8).
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). The matrix product, with constants; `saha_ye_small` rests on it.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135).
#
# **What comes next.** [07b](07b_input_gradient.ipynb) is a second evening on this subject. Lesson 08 leaves out pairs: masks, and what a schedule saves when most scores are never asked for.
# <!-- 3.8 = 10**2 * (over - 1) -->
