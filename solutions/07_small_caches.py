# %% [markdown]
# # 07 Small caches
#
# When fast memory is small, $M < d^2$, FlashAttention is not the best order. At the left end of the figure in lesson 04, even standard attention moves fewer words. In this lesson you split $d$ as well and write attention that runs in five words of fast memory.
#
# **What you will learn**
#
# - to compute scores and outputs from columns, with a safe softmax;
# - to store the scores and keep rows of one array at a time;
# - to find the best schedule for each $M$ and its ratio to the lower bound.
#
# **Prerequisites**: lessons 02 (matrix product in tiles), 03 (log-sum-exp) and 04 (buffer reuse); section 7.7 uses 05 and 05b. **If this is new**: $W = \Theta(g)$ means that $W$ grows like $g$, up to constant factors. Symbols and terms: [notation](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from math import sqrt

import numpy as np

from iocourse import bounds, costs, exact, run, schedules, sweeps
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.machine import probabilities

# %%
# Left: section 7.2; right: section 7.4
explore.blocked_product(24, 18, Br=6, Bc=8, Bd=6)

# %% [markdown]
# ## 7.1 When a row is too long
#
# The best order of lesson 04, buffer reuse (`flash_optimal`), keeps $B_r = \lfloor (M-d)/(2d+3) \rfloor$ rows of $Q$ and of $O$ resident. It moves $2Nd + 2Nd\lceil N/B_r\rceil$ words.
#
# **Predict** (compute). $N = 4096$, $d = 64$, $M = 1024 = d^2/4$. What is this traffic, in units of $N^2$ words? (Writing all scores and reading them back takes $2N^2$.)

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
    reuse, standard = squares("flash_optimal", N, d, M), squares("naive", N, d, M)
    shown = f"{reuse:7.2f} N²" if reuse else "does not run"
    print(f"M = {M:4}: buffer reuse {shown:12}  standard attention {standard:6.2f} N²")
measured("7.1", f3_squares=squares("flash_optimal", N, d, 1024))

# %% [markdown]
# <details><summary>Traffic with seven resident rows</summary>
#
# The traffic is $18.34\,N^2$. Only seven rows of $Q$ and $O$ fit, so a loaded word of $K$ or $V$ is used for seven products. With $M = 1024$ or less, standard attention moves fewer words, because it never keeps $Q$ and $O$ at the same time, so more rows fit. With fewer than $5d + 6 = 326$ words, buffer reuse keeps only one row of $Q$ and of $O$, and with fewer than $3d + 3 = 195$ it does not run.
#
# </details>
# <!-- 326 = 2 * (2 * 64 + 3) + 64 -->
# <!-- "With $M = 1024$ or less, standard attention moves fewer words" if [M for M in (2048, 1024, 512, 256) if schedules.naive.count(4096, 64, M).total < schedules.flash_optimal.count(4096, 64, M).total] == [1024, 512, 256] -->
# <!-- "Only seven rows" if schedules.flash_optimal.tiles(4096, 64, 1024)["Br"] == 7 -->
#
# A loaded word of $K$ is used once per resident query, so for $B_r$ products. That is about $M/2d$ products, and only about $d/8 = 8$ for $M = d^2/4$. In lesson 02, a square tile of the result with side $b$ gave $b$ products per word, and $b \approx \sqrt M$: 31 at $M = 1024$. That schedule never kept a complete row.
# <!-- 31 = bounds.square_side(1024) -->
#
# Are there memories as small as $d^2$, 4096 words for $d = 64$? The fast memory of a GPU is larger. But the vector registers of a CPU core hold at most 512 words: 32 registers of 16 float32 numbers each (AVX-512).
#
# ## 7.2 A tile of scores from columns
#
# $S = QK^\top/\sqrt d$ is a matrix product of depth $d$, so it can be computed as in lesson 02. The left half of the figure above shows how. A tile of scores with $B_r$ rows and $B_c$ columns is resident, and $Q$ and $K$ are streamed *by columns*. Each step loads one column of $Q$, cut to the rows of the tile, and the same column of $K$, cut to the keys of the tile. These are $B_r + B_c$ words for $B_r B_c$ products. After $d$ steps the tile is complete. If every tile is stored, computing all scores takes
#
# $$ W_S = Nd\left\lceil \frac{N}{B_c} \right\rceil + Nd\left\lceil \frac{N}{B_r} \right\rceil + N^2, \qquad \text{footprint } B_rB_c + B_r + B_c , \tag{7.1} $$
# <!-- (7.1) W_S = costs.matmul(N, N, d, bm=Br, bn=Bc).total -->
# <!-- (7.1) footprint = costs.matmul(N, N, d, bm=Br, bn=Bc).peak where Br <= N and Bc <= N -->
# <!-- "a tile of $30 \times 32$ fits" if costs.matmul(4096, 4096, 64, bm=30, bn=32).peak <= 1024 -->
#
# which is (2.4). With square tiles this is about $2N^2d/\sqrt M + N^2$. $d$ does not appear in the footprint, so the tile fits for any length of a row.
#
# **Predict** (compute). $N$, $d$ and $M = 1024$ are as before, and a tile of $30 \times 32$ fits. What is $W_S$ in units of $N^2$ words?
# <!-- 32 as definition -->
# <!-- 30 \times 32 as input -->

# %% tags=["predict"]
predict("7.2", squares=5)  #> predict("7.2", squares=...)

# %%
M = 1024
product = schedules.matmul  # the schedule of lesson 02; its second matrix is the transpose of K
by_columns = run(product, M=M, dry=True, A=(N, d), B=(d, N), bm=30, bn=32).ledger
print(f"{by_columns.total:,} words, footprint {by_columns.peak:,}")
measured("7.2", squares=by_columns.total / N**2)

# %% [markdown]
# <details><summary>Comparison with buffer reuse</summary>
#
# $W_S = 5.141\,N^2$, and storing the scores is $N^2$ of it. This is less than a third of the total traffic of buffer reuse. Buffer reuse computes scores *and* output, so a fair comparison is with twice this number.
#
# </details>
# <!-- "less than a third of the total traffic of buffer reuse" if 3 * costs.matmul(4096, 4096, 64, bm=30, bn=32).total < schedules.flash_optimal.count(4096, 64, 1024).total -->
#
# <!-- exercise 7A --> Compute one tile of $S$: the scores of the queries in block `i` and the keys in block `j`, divided by $\sqrt d$. Your function returns the tile, so the tile must still be in fast memory at the end, and nothing else may be. The tools are those of exercise 2B: `m.zeros(i, j)`, `m.load(Q, i, c)` and `add_matmul`. In addition to the tile, one column of $B_r$ words and one of $B_c$ words fit. The check calls your function for every tile of $S$ and stores the result. If you are stuck after five minutes, run `hint("7A")` in a new cell.


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
    """The tile (Br, Bc) of QKᵀ/√d for queries i and keys j, computed column by column.

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
    """Eight queries and eight keys; their scores are stored as an 8 x 8 array."""
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
# This run used 80 words of fast memory, less than one row of 256 words.
#
# ## 7.3 The published algorithm
#
# Saha and Ye give an algorithm for $M < d^2$, SquareTilingAttention. We call it square tiling (F4, `square_tiling` in code). It consists of two matrix products, one after the other, and all blocks are squares of side $B = \lfloor\sqrt{M/4}\rfloor$:
#
# - For each block of $A = e^{S}$, multiply blocks of $Q$ and $K$, take the exponential, store the block, and add its row sums to $\ell_i$ (the paper's $D_i$), which is stored once.
# - For each block of $O$, multiply blocks of $A$ and $V$, divide by $\ell_i$, and store the block.
#
# Each of the two products streams two arrays for each resident tile of side $B$:
#
# $$ W_4 = \underbrace{2Nd\left\lceil \frac NB \right\rceil}_{Q,\,K} + \underbrace{N^2 + N^2\left\lceil \frac dB \right\rceil}_{A} + \underbrace{2N}_{\ell} + \underbrace{Nd\left\lceil \frac NB \right\rceil}_{V} + \underbrace{Nd}_{O} \;\approx\; \frac{8N^2d}{\sqrt M} + N^2 . \tag{7.2} $$
# <!-- (7.2) W_4 = costs.square_tiling(N, d, B=B).total -->
# <!-- (7.2) W_4 ~ costs.square_tiling(N, d, B=B).total within 0.01 with N = i * B, d = c * B, M = 4 * B**2 where i >= 200 -->
#
# A full block of each factor and of the result, and a vector, take $3B^2 + B$ words, so $B = \sqrt M/2$ always fits. The paper studies the order of growth and does not need more. (With the largest square that fits, the constant is $4\sqrt3 = 6.93$ instead of 8.) No maximum is subtracted: $A$ is the plain exponential, which overflows in float64 at $s = 709.8$.
#
# **Predict** (guess). The scores of 32 queries and 32 keys reach $\pm 3000$; the largest score of a row is between 560 and 3148. In how many of the 32 rows is the output of square tiling usable, that is, not NaN?
# <!-- Q, K = np.random.default_rng(7).standard_normal((3, 32, 8))[:2] -->
# <!-- S = exact.scores(1000 * Q, K) -->
# <!-- 3000, 560, 3148 = round(abs(S).max(), -3), S.max(axis=1).min(), S.max() -->
# <!-- 6.93 = 4 * math.sqrt(3) -->
# <!-- 709.8 = math.log(np.finfo(np.float64).max) -->

# %% tags=["predict"]
predict("7.3", usable=16)  #> predict("7.3", usable=...)

# %%
N, d, M = 2**20, 4096, 16384
tiling = schedules.square_tiling
published = tiling.tiles(N, d, M, published=True)
dry = run(tiling, M=M, dry=True, **tiling.shapes(N, d), **published).ledger
print(f"{published}: {dry.total:,} words, {dry.total * sqrt(M) / (N**2 * d):.2f} N²d/√M")

Q, K, V = np.random.default_rng(7).standard_normal((3, 32, 8))
Q *= 1000
O = run(tiling, M=64, Q=Q, K=K, V=V, B=4).O  # the machine does not warn of an overflow
largest = exact.scores(Q, K).max(axis=1)
usable = int(np.isfinite(O).all(axis=1).sum())
print(f"largest score of a row: from {largest.min():.0f} to {largest.max():.0f}")
measured("7.3", usable=usable)

# %% [markdown]
# <details><summary>Rows that overflow</summary>
#
# Only one row of 32 is usable, although the traffic is exactly (7.2). (The printed constant is 8.03, because it contains the stored $N^2$ words.) If the largest score of a row exceeds 709.8, its sum is infinite, and infinity divided by infinity is NaN. In float32 the limit is 88.7; the sharp head of lesson 01 nearly reaches it with 83.07.
#
# </details>
#
# The paper's statements about traffic are correct, but an implementation has to subtract a maximum. Does that cost traffic?
# <!-- 88.7 = math.log(np.finfo(np.float32).max) -->
# <!-- 83.07 = real_head(0, 2).stats["logit_max"] -->
#
# ## 7.4 Split-d: a safe softmax from columns
#
# The maximum of a row is known only when all its scores have been computed, and square tiling has stored the exponentials by then. So store the *raw* scores, and take the exponential when they are read back. For each query block $i$:
#
# 1. For each key block $j$, compute the tile of scores, store it, and update the row statistics with it. The statistics $m_i$ and $\ell_i$ stay in fast memory and cause no traffic.
# 2. Now $L_i = m_i + \log \ell_i$ is known, one word per row. For each block of $B_d$ columns of $O$, keep a tile of $O$ with $B_r \times B_d$ words, and stream the keys one by one: a column of $S$, and a row of $V$ cut to $B_d$ words. This is the right half of the first figure. Each column becomes $p = e^{s - L}$ when it is loaded.
#
# We call this schedule split-d with materialised scores, or split-d for short (F5, `small_cache` in code). It is safe, and it also saves traffic. As in lesson 02, steps of depth 1 leave nearly all of fast memory to the resident tile, whose side grows from $\sqrt M/2$ to almost $\sqrt M$. And because one query block is finished before the next one begins, the scores need only $B_r \times N$ words of slow memory instead of $N \times N$. The traffic is
#
# $$ W_5 = \underbrace{Nd\left\lceil \frac N{B_c} \right\rceil}_{Q} + \underbrace{2Nd\left\lceil \frac N{B_r} \right\rceil}_{K,\,V} + \underbrace{N^2 + N^2\left\lceil \frac d{B_d} \right\rceil}_{S} + \underbrace{Nd}_{O}, \qquad \text{footprint } \max\bigl(B_rB_c + B_c + 3B_r,\; B_rB_d + B_d + 2B_r\bigr) . \tag{7.3} $$
# <!-- (7.3) W_5 = costs.small_cache(N, d, Br=Br, Bc=Bc, Bd=Bd).total -->
# <!-- (7.3) footprint = costs.small_cache(N, d, Br=Br, Bc=Bc, Bd=Bd).peak where Br <= N and Bc <= N and Bd <= d -->
#
# Here $3B_r$ words are the statistics and a column of $Q$, and $2B_r$ are $L_i$ and a column of $S$. With all sides near $\sqrt M$, each of the four streams $Q$, $K$, $V$ and $S$ takes $N^2d/\sqrt M$ words, so $W_5 \approx 4N^2d/\sqrt M + N^2$.
#
# **Predict** (compute). $N = 4096$, $d = 64$, $M = 1024$, and $B_r = B_c = B_d = 30$. How often is each score *read*? And what is the ratio of the $18.34\,N^2$ words of buffer reuse to $W_5$?

# %% tags=["predict"]
predict("7.4", score_reads=3, times_fewer=2)  #> predict("7.4", score_reads=..., times_fewer=...)

# %%
N, d, M = 4096, 64, 1024
shapes, tiles = dict.fromkeys("QKV", (N, d)), {"Br": 30, "Bc": 30, "Bd": 30}
split = run(schedules.small_cache, M=M, dry=True, **shapes, **tiles)
print(split.ledger)
reads = split.ledger.reads["S"] // N**2
measured("7.4", score_reads=reads,
         times_fewer=squares("flash_optimal", N, d, M) / (split.ledger.total / N**2))

# %% [markdown]
# <details><summary>How often a score is read</summary>
#
# Each score is read three times, because $\lceil 64/30 \rceil = 3$: two blocks of thirty columns of $O$, and the last four columns. The ratio is 1.757. With $B_r = 29$, $B_c = 31$, $B_d = 32$, which also fits, each score is read twice and $W_5 = 9.53\,N^2$, so rounding matters here.
#
# </details>
# <!-- 9.53 = schedules.small_cache.cost(4096, 64, Br=29, Bc=31, Bd=32).total / 4096**2 -->
# <!-- "which also fits, each score is read twice" if (twice := costs.small_cache(4096, 64, Br=29, Bc=31, Bd=32)).peak <= 1024 and twice.reads["S"] == 2 * 4096**2 -->
#
# <!-- exercise 7B --> Write the split-d schedule with your `my_scores_tile`. Store the raw scores in a slow array `S` of $B_r$ rows and $N$ columns that is created once; block `i` uses its rows `(0, i.size)`. The tools are: `m.row_stats(i)` creates row statistics, `stats.update(s)` updates them with a tile of scores and overwrites the tile, `L = stats.lse()` turns them into $L_i$ in place (call it once), and `probabilities(s, L)` turns scores $s$ into $e^{s-L}$ in place, row by row. `m.zeros(i, c)` also accepts a block of columns `c`. Your function may move at most the words of (7.3) and use its footprint plus $4B_r$ words. If you are stuck after twelve minutes, run `hint("7B")` in a new cell.
# <!-- 1.757 = schedules.flash_optimal.count(4096, 64, 1024).total / costs.small_cache(4096, 64, Br=30, Bc=30, Bd=30).total -->


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
# The input on which square tiling failed, and a run in five words
mine = attempt(run, my_small_cache, M=64, Q=Q, K=K, V=V, Br=4, Bc=6, Bd=6)
published_words = costs.square_tiling(32, 8, B=4).total
right = attempt(np.allclose, mine.O, exact.attention(Q, K, V))
print(f"square tiling {published_words:,} words; yours {mine.ledger.total:,} words; "
      f"equal to exact attention: {right}")
least = run(schedules.small_cache, M=5, Q=Q, K=K, V=V, Br=1, Bc=1, Bd=1)
right = np.allclose(least.O, exact.attention(Q, K, V))
print(f"in five words: {least.ledger.total:,} words; equal to exact attention: {right}")

# %% [markdown]
# Every row is correct with scores of $\pm 3000$, and your schedule moves no more words than square tiling. So a safe softmax costs no traffic: (7.3) is about $4N^2d/\sqrt M + N^2$, and (7.2) $8N^2d/\sqrt M + N^2$. With tiles of one word, the footprint of (7.3) is 5 words for any $N$ and $d$ (and the four registers of lesson 02). With so little memory, split-d moves 34,048 words here and is correct.
# <!-- "the footprint of (7.3) is 5 words for any $N$ and $d$" if schedules.small_cache.smallest_M(10**6, 512) == 5 -->
#
# As an algorithm, with $T_r = \lceil N/B_r \rceil$, $T_c = \lceil N/B_c \rceil$ and $T_d = \lceil d/B_d \rceil$ blocks:
#
# <!-- algorithm small_cache -->
#
# | | **Split-d.** Resident: first a tile of scores, $m$, $\ell$; then $O_{ic}$, $L_i$. Streamed: $Q_i$, $K_j$, then $S_i$, $V_j$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$ | |
# | 2 | &emsp; **for** each key block $j$, **for** each column $c$ of $d$ | |
# | 3 | &emsp;&emsp; load $Q_{ic}$ | $T_c Nd$ |
# | 4 | &emsp;&emsp; load $K_{jc}$ and add $Q_{ic}K_{jc}^\top/\sqrt d$ to the tile | $T_r Nd$ |
# | 5 | &emsp;&emsp; after the last column: store $S_{ij}$, then update $m$, $\ell$ | $N^2$ |
# | 6 | &emsp; $L_i = m + \log \ell$ | |
# | 7 | &emsp; **for** each block $c$ of $B_d$ columns: $O_{ic} = 0$ | |
# | 8 | &emsp;&emsp; **for** each single key $j$: load $S_{ij}$ | $T_d N^2$ |
# | 9 | &emsp;&emsp;&emsp; load $V_{jc}$ and add $e^{S_{ij} - L_i} V_{jc}$ to $O_{ic}$ | $T_r Nd$ |
# | 10 | &emsp;&emsp; store $O_{ic}$ | $Nd$ |
#
# Section 7.12 in lesson 07b has a fused version that stores no scores.
#
# ## 7.5 Complete rows of one array at a time
#
# Buffer reuse keeps rows of two arrays, $Q$ and $O$, because it uses each score where it computes it. If the scores are stored, as in split-d, computing and using them are two separate steps, and each step needs resident rows of only one array. These rows can be complete. For each query block $i$:
#
# 1. $Q_i$ is resident and the keys are streamed one by one. Each key gives a column of raw scores, which is stored; the row statistics are updated with it.
# 2. $Q_i$ is freed, and $O_i$ uses its memory. The columns of $S$ are loaded again, each with a row of $V$.
#
# We call this schedule stored scores (F7, `scores_stored` in code):
#
# $$ W_7 = \underbrace{2Nd}_{Q,\,O} + \underbrace{2Nd\left\lceil \frac N{B_r} \right\rceil}_{K,\,V} + \underbrace{2N^2}_{S}, \qquad \text{footprint } B_r(d + 3) + d . \tag{7.5} $$
# <!-- (7.5) W_7 = costs.scores_stored(N, d, Br=Br).total -->
# <!-- (7.5) footprint = costs.scores_stored(N, d, Br=Br).peak where Br <= N -->
#
# Nearly twice as many rows fit as with buffer reuse, whose footprint is $B_r(2d + 3) + d$. So $K$ and $V$ are streamed half as often, and in exchange each score takes two words of traffic.
#
# <!-- exercise 7C --> Write the stored-scores schedule. Unlike your split-d schedule, it computes a column of scores from complete rows, and $O$ in complete rows. `S` again has $B_r$ rows and is created once. Your function may move at most the words of (7.5) and use its footprint plus $4B_r$ words, so rows of $Q$ and of $O$ do not fit at the same time. If you are stuck after eight minutes, run `hint("7C")` in a new cell.


# %% [raw] name="about-7C"
# title = "Rows of one array at a time"
# difficulty = 3
# importance = 5
# minutes = 10
# hints = [
#   "Your split-d schedule has two loops over the keys per block of queries. Which array is resident in the first loop, which in the second, and which in both?",
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
    ### BEGIN SOLUTION Q_i is resident and scores are stored; then O_i, and they are read back
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
Q, K, V = np.random.default_rng(7).standard_normal((3, 512, 64))
mine = attempt(run, my_scores_stored, M=2896, Q=Q, K=K, V=V, Br=42)
print(f"yours, M = 2896 = {2896 / 64**2:.3f} d²: {mine.ledger.total / 512**2:.3f} N², "
      f"buffer reuse {squares('flash_optimal', 512, 64, 2896):.3f} N²")

# %% [markdown]
# As an algorithm:
#
# <!-- algorithm scores_stored -->
#
# | | **Stored scores.** Resident: first $Q_i$, $m$, $\ell$; then $O_i$, $L_i$. Streamed: $K_j$, then $S_i$, $V_j$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$ | |
# | 2 | &emsp; load $Q_i$ | $Nd$ |
# | 3 | &emsp; **for** each single key $j$: load $K_j$ | $T_r Nd$ |
# | 4 | &emsp;&emsp; $S_{ij} = Q_i K_j^\top/\sqrt d$; store $S_{ij}$, then update $m$, $\ell$ with it | $N^2$ |
# | 5 | &emsp; free $Q_i$; $L_i = m + \log \ell$; $O_i = 0$ | |
# | 6 | &emsp; **for** each single key $j$: load $S_{ij}$ | $N^2$ |
# | 7 | &emsp;&emsp; load $V_j$ | $T_r Nd$ |
# | 8 | &emsp;&emsp; add $e^{S_{ij} - L_i} V_j$ to $O_i$ | |
# | 9 | &emsp; store $O_i$ | $Nd$ |
#
# ## 7.6 The best schedule for each M
#
# In units of $N^2$ words and with $x = d/\sqrt M$, buffer reuse moves about $4x^2$ and split-d about $4x + 1$. They are equal at $x = (1 + \sqrt2)/2$, that is at $M = 0.69\,d^2$. Stored scores move $2x^2 + 2$.
#
# **Predict** (compute). $N = 2^{13}$, $d = 64$, $M = 2896 = 0.707\,d^2$. With their best tiles, split-d moves $6.07\,N^2$ words and buffer reuse $6.125\,N^2$. Use (7.5) with the largest $B_r$ that fits: what percentage of the $6.07\,N^2$ words do stored scores save?
# <!-- 0.69 = 4 / (1 + math.sqrt(2)) ** 2 -->
# <!-- tiled = lambda s: s.cost(2**13, 64, **s.tiles(2**13, 64, 2896)).total / 2**26 -->
# <!-- 6.07, 6.125 = tiled(schedules.small_cache), tiled(schedules.flash_optimal) -->

# %% tags=["predict"]
predict("7.6", percent_less=5)  #> predict("7.6", percent_less=...)

# %%
N, d, M = 2**13, 64, 2896
print("Br =", schedules.scores_stored.tiles(N, d, M)["Br"])
before = min(squares(name, N, d, M) for name in ("flash_optimal", "small_cache"))
stored = squares("scores_stored", N, d, M)
print(f"before {before:.3f} N², stored scores {stored:.3f} N²")
measured("7.6", percent_less=100 * (1 - stored / before))


def border(left, right, N, d, low, high):
    """The M/d² between low and high from which `right` moves fewer words than `left`."""
    low, high = int(low * d * d), int(high * d * d)
    while high - low > 1:
        M = (low + high) // 2
        ahead = squares(right, N, d, M) < squares(left, N, d, M)
        low, high = (low, M) if ahead else (M, high)
    return high / d**2


ahead = border("scores_stored", "flash_optimal", 2**22, 4096, 0.5, 2)
print(f"N = 2²², d = 4096: buffer reuse moves fewer words from M = {ahead:.3f} d²")

# %% [markdown]
# <details><summary>How much stored scores save</summary>
#
# 16.3 percent. With $B_r = 42$ there are 196 query blocks, and $W_7/N^2 = (2d/N)(1 + 196) + 2 = 5.08$. The saving is largest near this $M$, where split-d and buffer reuse are about equal. (With $N = 512$, in the run above, rounding and the $2Nd$ words add more.)
#
# </details>
# <!-- 196 = math.ceil(2**13 / 42) -->
# <!-- moved = lambda name, M: schedules.get(name).count(2**13, 64, M).total -->
# <!-- left = {M: moved("scores_stored", M) / min(moved("flash_optimal", M), moved("small_cache", M)) for M in range(2048, 4096, 32)} -->
# <!-- "The saving is largest near this $M$" if 0.65 < min(left, key=left.get) / 64**2 < 0.75 -->
#
# Stored scores and buffer reuse are equal at $x = 1$, that is at $M = d^2$. Count the words per score: buffer reuse spends $4x^2$ words on streamed keys and values. Stored scores spend half of that, plus two words to write the score and read it back. At $M = d^2$ both are four. With less memory it is cheaper to store a score, with more it is cheaper to use it where it is computed.
#
# The papers have the same border, $M = d^2$, from the order of growth alone: there $N^2d^2/M$ and $N^2d/\sqrt M$ are equal. With the smallest constants that we know, it is also the border between real schedules.
#
# **Between $d^2/4$ and $d^2/2$** a fourth schedule is the best: stored scores, tiled (`scores_stored_tiled`). It stores all scores as above, and then computes $O$ in tiles of $B_o$ rows and $B_d$ columns. With two slices (blocks of columns) of $B_d = d/2$, a tile of $O$ has twice as many rows. Then streaming $K$ takes $x^2$ and $V$ only $x^2/2$, and each score is written once and read twice, which gives $\frac32x^2 + 3$. Section 7.11 in lesson 07b has its closed form and its code. The map so far:
#
# | $M$ | $x$ | schedule | words, in $N^2$ |
# | --- | --- | --- | --- |
# | above $d^2$ | below $1$ | buffer reuse | $4x^2$ |
# | $d^2/2$ to $d^2$ | $1$ to $\sqrt2$ | stored scores | $2x^2 + 2$ |
# | $d^2/4$ to $d^2/2$ | $\sqrt2$ to $2$ | stored scores, tiled, two slices | $\frac32x^2 + 3$ |
# | below $d^2/4$ | above $2$ | split-d | $4x + 1$ |
#
# <!-- "$4$, $6$ and $9\,N^2$" if [round(sweeps.min_cost("forward", piece.x_to).cost, 9) for piece in sweeps.lower_envelope("forward", 0.5, 4)[:3]] == [4, 6, 9] -->
# At each border the two neighbours move the same number of words: $4$, $6$ and $9\,N^2$. Is there a fifth schedule? All of these are made of passes over the data. Each pass processes all pairs once, with some arrays resident, others streamed, and scores read or stored. (In split-d a tile of the result is resident, and a pass takes $2x$.) The library searches all sequences of passes (module `sweeps`; lesson 09 shows how):
# <!-- 16.3 = 10**2 * (1 - moved("scores_stored", 2896) / min(moved("flash_optimal", 2896), moved("small_cache", 2896))) -->

# %%
for piece in sweeps.lower_envelope("forward", 0.5, 4):
    print(f"x from {piece.x_from:.3f} to {piece.x_to:.3f}: "
          f"{piece.a:.3g} x² + {piece.b:.3g} x + {piece.c:.3g}")

# %% [markdown]
# The search finds the same four schedules with the same borders. They are the best schedules made of passes. This is not a lower bound, because a schedule of another kind could be better; section 7.7 gives a limit.
#
# <!-- exercise 7D --> Now with integers. Return the name of a schedule and its tiles: the pair with the least traffic among all tiles of `flash_optimal` ($B_r$, $B_c$), `scores_stored` ($B_r$), `scores_stored_tiled` ($B_r$, $B_o$, $B_d$) and `small_cache` ($B_r$, $B_c$, $B_d$) whose footprint is at most $M$. Their closed forms are `costs.flash_optimal` and so on, with the traffic in `.total` and the footprint in `.peak`; sizes above $N$ or $d$ count as $N$ or $d$. The footprints are $B_r(2d + 2 + B_c) + B_cd$, (7.5), $\max\bigl(B_r(d + 3) + d,\; B_oB_d + 2B_o + B_d\bigr)$ and (7.3), in this order. $M$ is at least 5, so some tile of `small_cache` always fits. For the last two schedules, loop over one size; the largest other sizes that fit follow from it. If you are stuck after eight minutes, run `hint("7D")` in a new cell.


# %% [raw] name="about-7D"
# title = "A plan for any M"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "A larger tile never moves more words. So if a footprint leaves one size open, only the largest value that fits is worth considering. If two sizes share the capacity, loop over one of them.",
#   "Solve each footprint for its last size. flash_optimal and scores_stored leave one plan each. small_cache leaves one per Br: its footprint is the larger of two, which give Bc and Bd. scores_stored_tiled leaves one per Bd.",
#   "Collect (name, tiles) if all sizes are at least 1: flash_optimal with Bc = 1, scores_stored, small_cache for every Br from 1 to N, scores_stored_tiled for every Bd from 1 to d. Select the one with the smallest total with min(..., key=...).",
# ]

# %% tags=["exercise"] name="ex-7D"
def my_plan(N, d, M):
    """The schedule and the tiles with the fewest words.

    Returns a name and sizes, such as `("small_cache", {"Br": 3, "Bc": 4, "Bd": 4})`.

    N, d, M: integers, M at least 5.
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
        two = min(squares(name, N, d, M) for name in ("flash_optimal", "small_cache"))
        yield (f"{M / d**2:5.3f} d²  {name:19} {words:5.2f} N², "
               f"{100 * (1 - words / two):4.1f} % less")


memories = (512, 1024, 1448, 1800, 2048, 2896, 4096, 4300, 5793)
print("the best plan, and its saving compared with flash_optimal and small_cache alone:")
for line in attempt(lambda: list(plans(my_plan, 2**13, 64, memories))):
    print(line)

# %% [markdown]
# With growing memory, the best plans are split-d, stored scores tiled, stored scores, and buffer reuse. Between $d^2/2$ and $d^2$, stored scores and the tiled version with $B_d = d$ alternate: the latter also moves $L_i$, but sometimes fits one more row of $O$. For this small $d$, buffer reuse takes over a little later, near $1.05\,d^2$.
# <!-- plan = lambda M: lesson07.best_plan(2**13, 64, M) -->
# <!-- "near $1.05\,d^2$" if plan(4239).name != "flash_optimal" and plan(4403).name == "flash_optimal" -->
# <!-- plans = [plan(M) for M in range(2180, 4096, 197)] -->
# <!-- "stored scores and the tiled version with $B_d = d$ alternate" if {one.name for one in plans} == {"scores_stored", "scores_stored_tiled"} and all(one.tiles.get("Bd", 64) == 64 for one in plans) -->
#
# The same for $d = 256$, with the names in code:

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
# From left to right, the lowest lines have the same order. From $d^2/2$ on, the lines of the two stored-scores schedules coincide.
#
# ## 7.7 The lower bound for small caches
#
# The best schedule for $M \ll d^2$ moves $4N^2d/\sqrt M$ words. Theorem A of lesson 05 gives half of that: for $M \le d^2$ it states $W \ge 2N^2d/\sqrt M - 2M$. It counts only the products $p_{ij}v_{jc}$, as if scores cost nothing. For large $M$ this is nearly true, because rows of $Q$ and $K$ that are in fast memory give scores without further traffic. For $M \ll d^2$ very few rows fit, so the products $q_{ic}k_{jc}$ must be counted too. The result is Theorem B′, (5.15) of section 5.10:
#
# $$ W \ge \frac{4N^2d}{\sqrt M\left(1 + \frac{9\sqrt M}{16d}\right)} - 2M - N^2 . \tag{7.7} $$
# <!-- (7.7) W >= bounds.theorem_B_prime_line(N, d, M) rounded down within 1e-8 where math.isqrt(M)**2 < M -->
#
# Theorem B′ holds for the class of Theorem A: scores from $d$ products, outputs from products $p_{ij}v_{jc}$, any order and any tiles, and scores may be recomputed at will. The products of all pairs $(i,j)$ with a score or a partial sum in fast memory are bounded as for two separate matrix products. For every other pair, $p_{ij}$ must be computed from $Q$ and $K$ alone, which takes complete rows of both. For $M \ll d^2$ very few such pairs are possible (they give the term $9\sqrt M/16d$), so recomputation does not help here. Section 7.10 in lesson 07b has the proof. Like Theorem A, it is a derivation of this course. (7.7) is bound `B'_line`, a closed form of the slightly sharper `B'`.
# <!-- "Like Theorem A, it is a derivation of this course" if {bounds.BOUNDS[name].status for name in ("A", "B'", "B'_line")} == {"proved here"} -->
#
# **Predict** (guess). $N = 2^{20}$, $d = 4096$, $M = 16\,384$. What is the ratio of split-d's traffic to the lower bound?

# %% tags=["predict"]
predict("7.7", f5_over_bound=1.1)  #> predict("7.7", f5_over_bound=...)

# %%
N, d = 2**20, 4096
for M in (4096, 16384, 65536, d**2 // 4, d**2 // 2, d**2):
    least, which = bounds.lower_bound("forward", N, d, M)
    unit = N**2 * d / sqrt(M)
    A = bounds.theorem_A(N, d, M + 4) / unit  # the machine has four registers
    words, s = min((v * N**2, name) for name in four if (v := squares(name, N, d, M)))
    print(f"M = {M:10,}: A {A:.2f}, best bound {which} {least / unit:.2f}, "
          f"{s} {words / unit:.2f}, ratio {words / least:.2f}")
least = bounds.lower_bound("forward", N, d, 16384)[0]
ratio = squares("small_cache", N, d, 16384) * N**2 / least
measured("7.7", f5_over_bound=ratio)

# %% [markdown]
# <details><summary>How much could still be saved</summary>
#
# The ratio is 1.038, so no schedule of this class can save more than 3.7 percent at this $M$. In units of $N^2d/\sqrt M$, traffic and bound both tend to 4 for $M \ll d^2$, so the constant 4 is exact there. (For $M \gg d^2$ it is exact in units of $N^2d^2/M$.) In between, the ratio of the best schedule to the best bound is at most 1.89, reached at $M = d^2$: there buffer reuse and stored scores both move $4N^2$ words, and we know neither a better schedule nor a better bound.
#
# </details>
# <!-- ratio = lambda M: schedules.optimality_gaps("forward", 2**20, 4096, [M])[0].ratio -->
# <!-- "is at most 1.89, reached at $M = d^2$" if max(range(2**22, 2**26, 2**20), key=ratio) == 2**24 and round(ratio(2**24), 2) == 1.89 -->
# <!-- "traffic and bound both tend to 4 for $M \ll d^2$" if 3.9 < bounds.lower_bound("forward", 2**24, 2**16, 2**16)[0] / 2**56 < 4 < schedules.small_cache.count(2**24, 2**16, 2**16).total / 2**56 < 4.1 -->
#
# Where does the constant 4 come from? $QK^\top$ and $PV$ are two matrix products, and each alone takes $2N^2d/\sqrt M$ words (section 2.6). Far below $d^2$, fusing them saves none of the leading term. Far above $d^2$, it saves nearly all of it.
#
# The published result gives the order of growth, with matching algorithms and lower bounds (bound `theta_attention`). If all constants of its argument are kept, it gives, for $M \le d^2$ (`saha_ye_small`), the bound of one of the two products:
# <!-- "The published result gives the order of growth" if bounds.theta_attention.status == "asymptotic only" -->
#
# $$ W \ge \frac{2N^2d}{\sqrt M} - 2M - N^2 . $$
# <!-- (above) W >= bounds.saha_ye_small(N, d, M) rounded down where M <= d**2 -->
#
# With the compulsory traffic, which matters beyond $M = Nd$, the published result reads
#
# $$ W = \Theta\left( Nd + \min\left\{ \frac{N^2d^2}{M},\; \frac{N^2d}{\sqrt M} \right\} \right) . \tag{7.8} $$
# <!-- (7.8) W = bounds.theta_attention.order(N, d, M) + bounds.compulsory(N, d) // 4 with Theta = lambda order: order where M <= N * d -->
#
# | | $M \ll d^2$ | $M \gg d^2$ |
# | --- | --- | --- |
# | best schedule known | split-d, $4N^2d/\sqrt M + N^2$ | buffer reuse, $4N^2d^2/M$ |
# | lower bound, proved in this course | B′, $4N^2d/\sqrt M - N^2$ | A, $4N^2d^2/M$ |
# | published, without a constant | order $N^2d/\sqrt M$ | order $N^2d^2/M$ |
#
# As a figure, for $d = 1024$:
# <!-- words = lambda name, N, d, M: schedules.get(name).cost(N, d, **schedules.get(name).tiles(N, d, M)).total -->
# <!-- over = words("small_cache", 2**20, 4096, 16384) / bounds.lower_bound("forward", 2**20, 4096, 16384)[0] -->
# <!-- 3.7 = 10**2 * (1 - 1 / over) -->
# <!-- 1.038 = schedules.small_cache.count(2**20, 4096, 2**14).total / bounds.lower_bound("forward", 2**20, 4096, 2**14)[0] -->

# %%
shown = ["square_tiling", "small_cache", "scores_stored", "scores_stored_tiled",
         "flash_optimal"]
explore.traffic_vs_memory(2**16, 1024, shown, (2**8, 2**22))

# %% [markdown]
# On the left, square tiling and split-d fall as $1/\sqrt M$, with split-d just above the lower bound. The lines of both stored-scores schedules begin at $2d + 3$ words and that of buffer reuse at $3d + 3 = 3{,}075$ words, far above; they fall as $1/M$, twice as steeply. From $d^2/4$ on, a line of stored scores is the lowest. At $d^2 = 1{,}048{,}576$ buffer reuse takes over and falls together with the bound.
# <!-- 3{,}075, 1{,}048{,}576 = schedules.flash_optimal.smallest_M(2**16, 1024), 1024**2 -->

# %% [markdown]
# ## Misconceptions
#
# - **"FlashAttention always moves the fewest words."** At $d = 64$ and $M = 1024$, its best order moved $18.34\,N^2$ words, standard attention $12.75\,N^2$, and split-d $9.53\,N^2$ (sections 7.1 and 7.4).
# - **"Below $M = d^2$, columns are better than rows."** Below $M = d^2$ it is better to store the scores. Complete rows of one array at a time are best down to $d^2/2$, and for computing the scores down to $d^2/4$ (section 7.6).
# - **"Numerical safety costs traffic."** Split-d subtracts the maximum and moved fewer words than square tiling, which does not subtract it and lost 31 rows of 32 (sections 7.3 and 7.4).
# - **"Recomputing scores would save traffic here too."** Theorem B′ permits recomputation. At $d = 4096$ and $M = 16\,384$, split-d does not recompute and is within 3.8 percent of the bound (section 7.7).
#
# ## Take-away
#
# - When $M \ll d^2$, split $d$ too: keep a tile of scores, or of output, and stream columns. Every loaded word is then used for about $\sqrt M$ products.
# - With raw scores in slow memory and row statistics in fast memory, a safe softmax takes about $4N^2d/\sqrt M + N^2$ words if $\sqrt M$ is not small. It runs in as few as five words, with more than twice this traffic.
# - The best schedules made of passes are buffer reuse above $M = d^2$, stored scores down to $d^2/2$, stored scores tiled down to $d^2/4$, and split-d below.
# - $4$ is the exact leading constant for $M \ll d^2$ (Theorem B′) and for $M \gg d^2$ (Theorem A). In between, the best schedule and the best bound differ by a factor of up to 1.89.
#
# **In the literature's words**: $M < d^2$ is called the small-cache case, and square tiling is SquareTilingAttention (Saha and Ye). A resident block of the result that is updated with one column and one row at a time is the matrix product by rank-1 updates (outer products), as in Smith and others.
#
# ## References
#
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). Algorithm 1 is square tiling; the two regimes and (7.8).
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). The matrix product, with constants; `saha_ye_small` rests on it.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135).
#
# **What comes next.** <!-- next -->
# <!-- 3.8 = 10**2 * (over - 1) -->
