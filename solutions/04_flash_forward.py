# %% [markdown]
# # 04 FlashAttention's forward pass
#
# Standard attention (lesson 01) writes the $N \times N$ scores to slow memory and reads them back. *Kernel fusion* joins the steps in one GPU program (kernel), which computes, uses and discards each tile of scores in fast memory.
#
# **What you will learn**
#
# - to write two loop orders, and read their traffic from the loops;
# - to choose the tile size for given $N$, $d$ and $M$;
# - to derive the constants of their leading terms, and compare them with a lower bound.
#
# **Prerequisites**: lessons 01, 02 and 03; [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import RowStats, bounds, costs, exact, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict

# %% [markdown]
# ## 4.1 Queries in the outer loop
#
# We want $O = \mathrm{softmax}(QK^\top/\sqrt d)\,V$ without storing a score in slow memory. We split $Q$ and $O$ into $T_r = \lceil N/B_r \rceil$ blocks of $B_r$ rows, and $K$ and $V$ into $T_c = \lceil N/B_c \rceil$ blocks of $B_c$ rows. A query block $Q_i$ and a key block $K_j$ give one tile of scores.
#
# In the FlashAttention-2 order (FA-2 order, F2; `flash2` in code) the outer loop runs over the query blocks. During one iteration, $Q_i$, $O_i$ and the row statistics are *resident*: kept in fast memory. $K_j$ and $V_j$ are *streamed*: loaded, used and evicted.

# %%
explore.tile_order("flash2", 64, 8, {"Br": 16, "Bc": 16})

# %% [markdown]
# Each row of tiles belongs to one query block. The online softmax updates $m$, $\ell$ and $O_i$ with one key block after another. At the end of the row, $O_i$ is divided by $\ell$ and stored.
#
# **Predict** (compute). $N = 64$ and $B_r = 16$. How often is all of $K$ read, and all of $O$ written?

# %% tags=["predict"]
predict("4.1", k_reads=4, o_writes=1)  #> predict("4.1", k_reads=..., o_writes=...)

# %%
N, d = 64, 8
rng = np.random.default_rng(4)
Q, K, V = rng.standard_normal((3, N, d))
first = run(schedules.flash2, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
print(first)
measured("4.1", k_reads=first.reads["K"] // (N * d), o_writes=first.writes["O"] // (N * d))

# %% [markdown]
# <details><summary>How often each array is moved</summary>
#
# $K$ and $V$ are read 4 times, once per query block. $Q$ is read once and $O$ is written once.
#
# </details>
#
# For any sizes, the traffic and the memory footprint are
#
# $$ W_2 = 2Nd + 2Nd\left\lceil \frac{N}{B_r} \right\rceil, \qquad \text{footprint } B_r(2d + 2 + B_c) + 2B_c d . \tag{4.1} $$
# <!-- (4.1) W_2 = costs.flash2(N, d, Br=Br, Bc=Bc).total -->
# <!-- (4.1) footprint = costs.flash2(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N -->
#
# The footprint consists of $Q_i$, $O_i$, two statistics per row and the tile of scores, then $K_j$ and $V_j$. $B_c$ does not appear in $W_2$.
#
# You will write this schedule in two steps. The first step handles one query block and still reads its scores from slow memory. It uses the row statistics of section 3.8. `o.add_matmul(s, v)` adds $sv$ to `o` without a temporary.
# <!-- 4 = costs.flash2(64, 8, Br=16, Bc=16).reads["K"] / (64 * 8) -->

# %%
def one_block(m, S, V, *, Bc):
    """softmax(S) V for one query block, whose scores S (Br, n) are in slow memory."""
    (rows, n), d = S.shape, V.shape[1]
    O, i = m.new("O", (rows, d)), (0, rows)  # i: the only block of queries
    with m.zeros(i, d) as o, m.row_stats(i) as stats:  # resident: (Br, d), 2·Br
        for j in m.blocks(n, Bc):
            with m.load(S, i, j) as s, m.load(V, j) as v:  # streamed: (Br, Bc), (Bc, d)
                stats.update(s, o)  # s becomes weights, o is rescaled
                o.add_matmul(s, v)
        stats.normalise(o)
        m.store(o, O, i)
    return O


stored = run(one_block, M=800, S=exact.scores(Q[:16], K), V=V, Bc=16)
print("equals exact attention:", np.allclose(stored.O, exact.attention(Q[:16], K, V)))
print(stored.ledger)

# %% [markdown]
# For all 16 queries, $V$ was read once and $O$ was written once; the statistics were not moved. The second step will avoid reading the scores, 1,024 words.
# <!-- 1,024 = 16 * 64 -->
#
# <!-- exercise 4A --> Write the forward pass in this order: repeat the step above for every query block, but compute the scores in fast memory. Scale $Q_i$ in place (`q *= d**-0.5`); then `q @ k.T` is a tile of scores. Loop with `m.blocks`, which makes dry runs fast. Pass its blocks to `m.zeros` and `m.row_stats`, because the last one may be partial. Your function may move at most the words of (4.1). The available fast memory is the footprint of (4.1) plus one tile of scores and four words per row for temporaries. If you are stuck after nine minutes, run `hint("4A")` in a new cell. The check also prints a lower bound, which section 4.7 explains.

# %% [raw] name="about-4A"
# title = "FlashAttention-2 order: queries resident"
# difficulty = 2
# importance = 5
# minutes = 15
# hints = [
#   "Which of Q, K, V and O are not reloaded in the inner loop? Load or create them once per outer iteration.",
#   "Outer loop: blocks of queries, with q, o and row statistics. Inner loop: blocks of keys and values.",
#   "Inner loop: compute the scores from q and k.T, update the statistics with o, and add the product of scores and v to o. Divide by the row sum and store after the inner loop.",
# ]

# %% tags=["exercise"] name="ex-4A"
def my_flash2(m, Q, K, V, *, Br, Bc):
    """softmax(QKᵀ/√d) V with query blocks in the outer loop.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows per query block and per key block.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION resident tiles in the outer loop, streamed tiles in the inner loop
    for i in m.blocks(N, Br):  # resident: q (Br, d), o (Br, d), stats 2·Br
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):  # streamed: k (Bc, d), v (Bc, d); s (Br, Bc)
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-4A"
check("4A", my_flash2)

# %% [markdown]
# The last column of this algorithm has the words that each line moves in the whole run; their sum is $W_2$.
#
# <!-- algorithm flash2 -->
#
# | | **FlashAttention-2 order.** Resident: $Q_i$, $O_i$, $m$, $\ell$. Streamed: $K_j$, $V_j$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$ | |
# | 2 | &emsp; load $Q_i$ | $Nd$ |
# | 3 | &emsp; $O_i \leftarrow 0$, $m \leftarrow -\infty$, $\ell \leftarrow 0$ | |
# | 4 | &emsp; **for** each key block $j$ | |
# | 5 | &emsp;&emsp; load $K_j$, $V_j$ | $2T_r Nd$ |
# | 6 | &emsp;&emsp; $S \leftarrow Q_i K_j^\top/\sqrt d$ | |
# | 7 | &emsp;&emsp; update $m$ and $\ell$ with $S$; rescale $O_i$ | |
# | 8 | &emsp;&emsp; $O_i \leftarrow O_i + \exp(S - m)\, V_j$ | |
# | 9 | &emsp; divide $O_i$ by $\ell$ | |
# | 10 | &emsp; store $O_i$ | $Nd$ |
#
# The next cell subtracts the closed form from your ledger, for the tiles of the figure. A higher peak comes from temporaries, which the check allows.

# %%
def difference(closed_form, mine):
    ledger = run(mine, M=1200, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
    print(f"closed form: {closed_form.total:,} words, footprint {closed_form.peak:,}.",
          "Your ledger minus the closed form:", ledger - closed_form)


attempt(difference, costs.flash2(*Q.shape, Br=16, Bc=16), my_flash2)

# %% [markdown]
# The schedule moves 5,120 words with 800 words of fast memory. The scores alone are $64 \times 64 = 4{,}096$ words, and standard attention moves at least 16,384 words because it writes and reads both $S$ and $P$.
#
# ## 4.2 Keys in the outer loop
#
# Now exchange the loops. This is the FlashAttention-1 order (FA-1 order, F1; `flash1` in code): $K_j$ and $V_j$ are resident, and the query blocks are streamed.
# <!-- 64 \times 64 as input -->

# %%
explore.tile_order("flash1", 64, 8, {"Br": 16, "Bc": 16})

# %% [markdown]
# The same sixteen tiles are now computed column by column. When $Q_i$ is evicted, its output is incomplete, because it includes only the keys up to block $K_j$. The partial results, $O_i$, $m_i$ and $\ell_i$, must be kept in slow memory until $Q_i$ is loaded again. The loop has no special case: its first iteration also loads them.
#
# **Predict** (guess). $N = 64$ and $B_c = 16$, so there are four key blocks. How often is all of $Q$ read, and how often is all of $O$ written?

# %% tags=["predict"]
predict("4.2", q_reads=4, o_writes=4)  #> predict("4.2", q_reads=..., o_writes=...)

# %%
first = run(schedules.flash1, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
print(first)
measured("4.2", q_reads=first.reads["Q"] // Q.size, o_writes=first.writes["O"] // Q.size)

# %% [markdown]
# <details><summary>How often Q is read and O is written</summary>
#
# $Q$ is read 4 times, once per key block. $O$ is written 5 times: once per key block, and once before the loop, because the first iteration loads initial values. The same holds for $m$ and $\ell$.
#
# </details>
#
# For any sizes,
#
# $$ W_1 = 3Nd + 2N + \left\lceil \frac{N}{B_c} \right\rceil (3Nd + 4N), \qquad \text{footprint } 2B_c d + B_r(2d + 2 + B_c) . \tag{4.2} $$
# <!-- (4.2) W_1 = costs.flash1(N, d, Br=Br, Bc=Bc).total -->
# <!-- (4.2) footprint = costs.flash1(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N -->
#
# Initialising $O$, $m$ and $\ell$ takes $Nd + 2N$ words, and reading $K$ and $V$ once takes $2Nd$. Each iteration of the outer loop reads $Q$ and reads and writes $O$, hence $3Nd$; it also reads and writes $m$ and $\ell$, hence $4N$. An iteration of the FA-2 order reads only $K$ and $V$, hence $2Nd$. For the same tile, the footprint equals that of (4.1). $B_r$ does not appear in $W_1$.
#
# You will also write this schedule in two steps. The new element comes first: two slow arrays that hold the statistics between iterations, one word per row. In the example, the rows of a $4 \times 6$ matrix of scores are processed two columns at a time. `RowStats(m, l)` builds the statistics from two loaded tiles, and its `with` block frees both:
# <!-- f1 = costs.flash1(64, 8, Br=16, Bc=16) -->
# <!-- 4, 5 = f1.reads["Q"] / (64 * 8), f1.writes["O"] / (64 * 8) -->
# <!-- 4 \times 6 as input -->

# %%
def row_sums(m, S):
    """Σ_j exp(s_ij - m_i) for each row i. m: the machine; slow arrays "m" and "l"."""
    N, i = S.shape[0], (0, S.shape[0])  # all rows are one block
    maxima, sums = m.new("m", (N,)), m.new("l", (N,))
    with m.row_stats(N) as stats:       # m = -inf, l = 0
        m.store(stats.m, maxima, i)
        m.store(stats.l, sums, i)
    for j in m.blocks(S.shape[1], 2):
        with m.load(S, i, j) as s, RowStats(m.load(maxima, i), m.load(sums, i)) as stats:
            stats.update(s)             # s becomes exp(s - new m)
            m.store(stats.m, maxima, i)
            m.store(stats.l, sums, i)
    return sums


run(row_sums, M=16, S=rng.standard_normal((4, 6))).ledger

# %% [markdown]
# In three iterations, the 4 maxima and the 4 sums were read 3 times and written 4 times, which gives 12 and 16 words.
#
# In the second step the outputs are handled in the same way: `stats.update(s, o)` rescales them as before. The outputs are normalised after the last key block; the attribute `j.last` of a block shows whether it is the last one. (FlashAttention's algorithm normalises in every iteration and undoes this in the next, with the same traffic.) The last statistics are stored too, because the backward pass needs them (lesson 06).
#
# <!-- exercise 4B --> Write the forward pass with key blocks in the outer loop. Keep the outputs, maxima and sums in the slow arrays that the first lines create. Your function may move at most the words of (4.2); the available fast memory is as in 4A. If you are stuck after nine minutes, run `hint("4B")`.
# <!-- 3, 4 = 6 / 2, 6 / 2 + 1 -->

# %% [raw] name="about-4B"
# title = "FlashAttention-1 order: keys resident"
# difficulty = 3
# importance = 4
# minutes = 15
# hints = [
#   "There are two parts. First, every row of O, m and l needs an initial value in slow memory. Then there are two loops: which arrays does the inner one reload, and which of these change?",
#   "First part: one loop over blocks of queries that stores zeros and new row statistics. Second part: outer loop over blocks of keys with k and v; inner loop over blocks of queries that loads q, o and the statistics, and stores o and both statistics at the end of each iteration.",
#   "One inner iteration: scale q, compute the scores, update the statistics with o, add the product of scores and v to o, normalise if this is the last key block, store o, m and l.",
# ]

# %% tags=["exercise"] name="ex-4B"
def my_flash1(m, Q, K, V, *, Br, Bc):
    """softmax(QKᵀ/√d) V with key blocks in the outer loop.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows per query block and per key block.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O, maxima, sums = m.new("O", (N, d)), m.new("m", (N,)), m.new("l", (N,))
    ### BEGIN SOLUTION store initial values of O, m and l, then loop over keys and over queries
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), 2·Br
            m.store(o, O, i)
            m.store(stats.m, maxima, i)
            m.store(stats.l, sums, i)
    for j in m.blocks(N, Bc):  # resident: k (Bc, d), v (Bc, d)
        with m.load(K, j) as k, m.load(V, j) as v:
            for i in m.blocks(N, Br):  # streamed: q (Br, d), o (Br, d), stats 2·Br; s (Br, Bc)
                stats = RowStats(m.load(maxima, i), m.load(sums, i))
                with stats, m.load(Q, i) as q, m.load(O, i) as o:
                    q *= d**-0.5
                    with q @ k.T as s:
                        stats.update(s, o)
                        o.add_matmul(s, v)
                    if j.last:
                        stats.normalise(o)
                    m.store(o, O, i)
                    m.store(stats.m, maxima, i)
                    m.store(stats.l, sums, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-4B"
check("4B", my_flash1)

# %%
attempt(difference, costs.flash1(*Q.shape, Br=16, Bc=16), my_flash1)

# %% [markdown]
# The FA-1 order moves 8,832 words for this input and the FA-2 order 5,120, with the same 800 words of fast memory. The algorithm shows why: lines 6 and 10 read partial outputs and write them back.
#
# <!-- algorithm flash1 -->
#
# | | **FlashAttention-1 order.** Resident: $K_j$, $V_j$. Streamed: $Q_i$, $O_i$, $m_i$, $\ell_i$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$: store $O_i$, $m_i$, $\ell_i$ (initial values) | $Nd + 2N$ |
# | 2 | **for** each key block $j$ | |
# | 3 | &emsp; load $K_j$, $V_j$ | $2Nd$ |
# | 4 | &emsp; **for** each query block $i$ | |
# | 5 | &emsp;&emsp; load $Q_i$ | $T_c Nd$ |
# | 6 | &emsp;&emsp; load $O_i$, $m_i$, $\ell_i$ | $T_c(Nd + 2N)$ |
# | 7 | &emsp;&emsp; $S \leftarrow Q_i K_j^\top/\sqrt d$; update $m_i$ and $\ell_i$; rescale $O_i$ | |
# | 8 | &emsp;&emsp; $O_i \leftarrow O_i + \exp(S - m_i)\, V_j$ | |
# | 9 | &emsp;&emsp; **if** $j$ is the last block: divide $O_i$ by $\ell_i$ | |
# | 10 | &emsp;&emsp; store $O_i$, $m_i$, $\ell_i$ | $T_c(Nd + 2N)$ |
#
# ## 4.3 One buffer for K and V
#
# In the inner loop of the FA-2 order, $K_j$ is needed only to compute the scores, and $V_j$ only after that. Yet both are in fast memory during the whole iteration. If $K_j$ is freed before $V_j$ is loaded, one buffer serves both. We call this schedule *buffer reuse* (F3; `flash_optimal` in code).
#
# **Predict** (compute). $N = 64$, $d = 8$, $B_r = B_c = 16$, as before. Compared with the FA-2 order, how many words of traffic does buffer reuse save, and how many words of fast memory (`room_saved`)?

# %% tags=["predict"]
predict("4.3", words_saved=512, room_saved=128)  #> predict("4.3", words_saved=..., room_saved=...)

# %%
f2 = run(schedules.flash2, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
f3 = run(schedules.flash_optimal, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
measured("4.3", words_saved=f2.total - f3.total, room_saved=f2.peak - f3.peak)

# %% [markdown]
# <details><summary>What is saved and what is not</summary>
#
# The traffic does not change: with the same tiles, both schedules read $K$ and $V$ four times. The saving is fast memory, $B_c d = 128$ of 800 words.
#
# </details>
#
# The closed form is that of (4.1), with one term $B_c d$ less in the footprint:
#
# $$ W_3 = 2Nd + 2Nd\left\lceil \frac{N}{B_r} \right\rceil, \qquad \text{footprint } B_r(2d + 2 + B_c) + B_c d . \tag{4.3} $$
# <!-- (4.3) W_3 = costs.flash_optimal(N, d, Br=Br, Bc=Bc).total -->
# <!-- (4.3) footprint = costs.flash_optimal(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N -->
#
# The two figures show the words in fast memory over time, first for the FA-2 order, then for buffer reuse. Creating or freeing a tile also counts as a move. The accumulator is $O_i$.

# %%
explore.memory_timeline(f2, M=800, title="FA-2 order: K and V at the same time")

# %%
explore.memory_timeline(f3, M=800, title="Buffer reuse: V in the buffer of K")

# %% [markdown]
# In the FA-2 order the peak is 800 words, when `K`, `V` and the scores are all in fast memory. With buffer reuse, `K` and `V` are there one after the other, and the peak is 672 words. The free words can hold more queries, so that $K$ and $V$ are read less often (section 4.4).
#
# <!-- exercise 4C --> Change your solution of 4A so that it runs in exactly the footprint of (4.3), without words for temporaries. In addition to the end of a `with` block, two calls free words: `tile.free()` frees a tile at once, and `m.load(A, rows, into=tile)` frees `tile` before it loads. Without `with`, a variable keeps its tile until the next iteration assigns to it (section 2.2), so free the scores too. If you are stuck after four minutes, run `hint("4C")`.

# %% [raw] name="about-4C"
# title = "Buffer reuse: V replaces K"
# difficulty = 2
# importance = 4
# minutes = 5
# hints = [
#   "Start from your answer to 4A. What is the last line that needs k, and the first line that needs v?",
#   "Compute the scores, then free k, and only then load v. The scores are needed longer than k, so do not create them in the same with statement as k and v.",
#   "The option into= of load does this: v is loaded into the buffer of the tile that it names. Free the scores too: if they still exist when the next ones are created, both count.",
# ]

# %% tags=["exercise"] name="ex-4C"
def my_flash_optimal(m, Q, K, V, *, Br, Bc):
    """softmax(QKᵀ/√d) V with query blocks in the outer loop and one buffer for K_j and V_j.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows per query block and per key block.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION as in 4A, but free k before v is loaded
    for i in m.blocks(N, Br):  # resident: q (Br, d), o (Br, d), stats 2·Br
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:     # (Bc, d)
                    s = q @ k.T             # (Br, Bc)
                with s, m.load(V, j) as v:  # (Bc, d), in the words freed by K_j
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-4C"
check("4C", my_flash_optimal)

# %% [markdown]
# The algorithm with one buffer:
#
# <!-- algorithm flash_optimal -->
#
# | | **Buffer reuse.** Resident: $Q_i$, $O_i$, $m$, $\ell$. Streamed: $K_j$, $V_j$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$ | |
# | 2 | &emsp; load $Q_i$ | $Nd$ |
# | 3 | &emsp; $O_i \leftarrow 0$, $m \leftarrow -\infty$, $\ell \leftarrow 0$ | |
# | 4 | &emsp; **for** each key block $j$ | |
# | 5 | &emsp;&emsp; load $K_j$ | $T_r Nd$ |
# | 6 | &emsp;&emsp; $S \leftarrow Q_i K_j^\top/\sqrt d$ | |
# | 7 | &emsp;&emsp; load $V_j$ into the buffer of $K_j$ | $T_r Nd$ |
# | 8 | &emsp;&emsp; update $m$, $\ell$ and $O_i$ as before | |
# | 9 | &emsp; divide $O_i$ by $\ell$ | |
# | 10 | &emsp; store $O_i$ | $Nd$ |
#
# ## 4.4 Choosing the tile size for a given M
#
# Try to find the tile with the least traffic by hand: run the next cell, then drag the tile by its dark corner. Beyond the dashed line it does not fit. Or press Tab until the slider of `Br` or `Bc` has the focus, and use the arrow keys. (Without a running kernel the figure is static.) It starts with the FA-2 order for $N = 1024$, $d = 64$, $M = 16\,896$ and a square tile of 32.
#
# - Increase `Br`: the traffic falls and the footprint grows, until the figure shows *does not fit* and the number of words over $M$.
# - Increase `Bc`: the footprint grows and the traffic does not change. So how should you change `Bc`, and then `Br`?
# - Choose `flash1` as the schedule. $B_r$ and $B_c$ exchange their roles: find its best tile too.
# - Choose `flash2` again. Increase `M`, then press *Best tile for M*: the traffic falls in proportion to $1/M$, down to the compulsory $4Nd$.
# - Move the slider `move` for `flash2` and for `flash_optimal`: in the strip, V is loaded in addition to K, or into its buffer.

# %%
explore.tile_tuner(N=1024, d=64, M=16896)

# %% [markdown]
# **Predict** (compute). Which tiles are best for $M = 16\,896$? Give $B_r$ and $B_c$ of the FA-2 order, and $B_r$ of the FA-1 order.

# %% tags=["predict"]
predict("4.4", f2_Br=128, f2_Bc=1, f1_Br=1)  #> predict("4.4", f2_Br=..., f2_Bc=..., f1_Br=...)

# %%
N, d, M = 1024, 64, 16896


def best_tile(cost, sides=range(1, 200)):
    """(words, Br, Bc) of the tile that fits and has the least traffic, by trying every tile."""
    tried = ((cost(N, d, Br=Br, Bc=Bc), Br, Bc) for Br in sides for Bc in sides)
    return min((form.total, Br, Bc) for form, Br, Bc in tried if form.peak <= M)


best1, best2 = best_tile(costs.flash1), best_tile(costs.flash2)
for name, (words, Br, Bc) in {"FA-1 order": best1, "FA-2 order": best2}.items():
    print(f"{name}: {words:9,} words with Br = {Br}, Bc = {Bc}")
print(f"ratio FA-1 to FA-2: {best1[0] / best2[0]:.2f}")
measured("4.4", f2_Br=best2[1], f2_Bc=best2[2], f1_Br=best1[1])

# %% [markdown]
# <details><summary>The best tile of each order</summary>
#
# In both orders the resident block has 128 rows, and the streamed blocks are loaded one row at a time. In the FA-2 order this fills fast memory; in the FA-1 order one more key fits, with the same traffic.
#
# </details>
#
# With queries in the outer loop, (4.1) and (4.3) give the reason. $B_r$ queries share each load of $K$ and $V$, so the traffic depends only on $B_r$. A larger $B_c$ only leaves fewer words for $B_r$. So buffer reuse takes the largest $B_r$ with
#
# $$ B_r(2d + 2 + B_c) + B_c d \le M \quad \text{with } B_c = 1 . \tag{4.4} $$
# <!-- (4.4) costs.flash_optimal(N, d, Br=Br, Bc=Bc).peak <= M where Br <= N and Bc <= N -->
# <!-- (4.4) B_c = schedules.flash_optimal.tiles(N, d, M)["Bc"] where M >= 3 * d + 3 -->
#
# How much does buffer reuse gain if $B_c$ may be chosen? For each $B_c$, the table gives both schedules the largest $B_r$ that fits.

# %%
N, d, M = 1024, 64, 16896


def largest_that_fits(cost, Bc):
    """The largest Br that fits together with Bc keys, and its traffic."""
    Br = max(Br for Br in range(1, 200) if cost(N, d, Br=Br, Bc=Bc).peak <= M)
    return f"{Br:8}  {cost(N, d, Br=Br, Bc=Bc).total:9,}"


print("  Bc   FA-2 Br      words  reuse Br      words")
for Bc in (64, 16, 4, 1):
    of_f2, of_f3 = (largest_that_fits(cost, Bc) for cost in (costs.flash2, costs.flash_optimal))
    print(f"{Bc:4}  {of_f2}  {of_f3}")

# %% [markdown]
# Read down a column: the smaller key block brings nearly all of the gain. Read across: with $B_c = 64$, buffer reuse saves 4,096 words of fast memory. So $B_r$ grows from 44 to 65, and the traffic falls from 3,276,800 to 2,228,224 words.
#
# With $B_c = 1$ it saves only $d = 64$ words, less than half of the $2d + 2 + B_c = 131$ words per query. So its query block is at most one row larger, and for about half of all $M$ it is equal. One row can matter: for $M$ from 326 to 389 there are two rows instead of one, which halves the traffic. From $M = d^2$ on, the block has at least 30 rows. One more then gains little, except where it saves one of a few iterations.
# <!-- 4,096, 131, 30 = 64 * 64, 2 * 64 + 2 + 1, (64**2 - 64) // (2 * 64 + 2 + 1) -->
# <!-- f2, f3 = (cost(1024, 64, Br=2, Bc=1).peak for cost in (costs.flash2, costs.flash_optimal)) -->
# <!-- 326, 389 = f3, f2 - 1 -->
#
# GPU kernels load 32, 64 or more keys at a time, because their matrix units multiply complete tiles. With such tiles the buffer for $V$ matters. Lesson 11b combines words and arithmetic.
#
# <!-- exercise 4D --> Return the tile with which buffer reuse has the least traffic in a fast memory of $M$ words, for any sizes. The cells above tried every tile; solve (4.4) instead. (You need not cut $B_r$ to $N$.) You may assume that $B_r = B_c = 1$ fits, that is $M \ge 3d + 3$. If you are stuck after six minutes, run `hint("4D")`.

# %% [raw] name="about-4D"
# title = "The best tile for a given M"
# difficulty = 2
# importance = 5
# minutes = 10
# hints = [
#   "Which of the two sizes appears in the number of words, and which only in the footprint?",
#   "Bc takes words of fast memory and saves no traffic, so use the smallest Bc. Put it into the footprint.",
#   "This leaves an inequality in Br: Br times a factor, plus a constant, at most M. Solve it and round down.",
# ]

# %% tags=["exercise"] name="ex-4D"
def my_best_tiles(N, d, M):
    """The tile (Br, Bc) with which buffer reuse has the least traffic.

    N, d, M: positive integers.
    """
    ### BEGIN SOLUTION solve (4.4) for Br
    return (M - d) // (2 * d + 3), 1
    ### END SOLUTION


# %% tags=["check"] name="check-4D"
check("4D", my_best_tiles)

# %% [markdown]
# Now run your solution of 4C with your tile, for the sizes of the table, in a dry run.

# %%
def with_my_tiles():
    N, d, M = 1024, 64, 16896
    Br, Bc = my_best_tiles(N, d, M)
    Q = K = V = (N, d)
    ledger = run(my_flash_optimal, M=M, dry=True, Q=Q, K=K, V=V, Br=Br, Bc=Bc).ledger
    print(f"{ledger.total:,} words, {ledger.peak:,} of {M:,} words of fast memory in use")


attempt(with_my_tiles)

# %% [markdown]
# The traffic is 1,179,648 words, as in the last line of the table. Of $M$, 64 words remain: the $d$ words that buffer reuse saves, too few here for another query.
#
# ## 4.5 Loop order and tile size
#
# FlashAttention gives a loop order and tile sizes, $B_c = \lceil M/(4d) \rceil$ and $B_r = \min(\lceil M/(4d) \rceil, d)$, so each of $Q_i$, $K_j$, $V_j$ and $O_i$ takes about a quarter of $M$ or less. FlashAttention-2 gives only the loop order; we use $B_r = \lceil M/(4d) \rceil$ and $B_c = \min(\lceil M/(4d) \rceil, d)$. In code, `published=True` selects these sizes instead of the best tile.
#
# First run your own two schedules, each with both tiles, as a dry run for $N = 8192$, $d = 64$ and $M = 64d^2$.

# %%
N, d, M = 8192, 64, 64 * 64**2


def with_both_tiles(order, mine):
    schedule = schedules.get(order)
    for published in (True, False):
        tiles = schedule.tiles(N, d, M, published=published)
        capacity = 2 * M  # more than M, in case you use temporaries
        dry = run(mine, M=capacity, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles).ledger
        print(f"{order} {tiles}: {dry.total:,} words, differs from the closed form by:",
              dry - schedule.cost(N, d, **tiles))


attempt(with_both_tiles, "flash1", my_flash1)
attempt(with_both_tiles, "flash2", my_flash2)

# %% [markdown]
# If there is no difference, your counts equal (4.1) and (4.2), and we can use these formulas for larger sizes. For large $N$, each traffic is about a constant times $N^2d^2/M$, as shown below. This constant compares schedules of any size:
#
# $$ c = \frac{W M}{N^2 d^2} . \tag{4.5} $$
# <!-- (4.5) c = 4 within 0.001 with M = 10**6 * d, N = 10**6 * M, W = schedules.flash2.count(N, d, M).total where d >= 3000 -->
#
# For large $N$ one term is enough. If $B$ rows are resident, the outer loop has $N/B$ iterations, and each moves about $3Nd$ words (FA-1 order) or $2Nd$ words (FA-2 order). A quarter of $M$ gives $B = M/(4d)$. The best tile has $B \approx M/(2d)$, because a resident row needs $2d$ words and a few more.
#
# **Predict** (compute). Four million tokens, $N = 2^{22}$, with $d = 64$ and $M = 64d^2 = 262\,144$. What are the four constants $c$, to the nearest integer: each order with a quarter of $M$, and each with its best tile?

# %% tags=["predict"]
predict("4.5", f1_quarter=12, f1_best=6, f2_quarter=8, f2_best=4)  #> predict("4.5", f1_quarter=..., f1_best=..., f2_quarter=..., f2_best=...)

# %%
d, M = 64, 64 * 64**2


def constant(order, published, N):
    words = schedules.get(order).count(N, d, M, published=published).total
    return words * M / (N * d) ** 2


print("           N    FA-1 quarter   best    FA-2 quarter   best")
for N in (2**16, 2**19, 2**22):
    f1_quarter, f1_best = constant("flash1", True, N), constant("flash1", False, N)
    f2_quarter, f2_best = constant("flash2", True, N), constant("flash2", False, N)
    print(f"{N:12,}    {f1_quarter:12.2f} {f1_best:6.2f}    {f2_quarter:12.2f} {f2_best:6.2f}")
measured("4.5", f1_quarter=f1_quarter, f1_best=f1_best, f2_quarter=f2_quarter, f2_best=f2_best)

# %% [markdown]
# <details><summary>The four constants, by loop order and tile size</summary>
#
# | | quarter of $M$ | best tile |
# | --- | --- | --- |
# | FA-1 order | 12.25 | 6.18 |
# | FA-2 order | 8.00 | 4.10 |
#
# The tile size gives a factor of 2 (across), and the loop order gives a factor of $3/2$ (down). Buffer reuse has the same best constant, because its block is at most one row larger.
#
# </details>
#
# ## 4.6 Derivation of the four constants
#
# Keep the term of each closed form that grows with $N^2$, for a quarter of $M$ and then for the best tile:
#
# $$ \frac{W_1 M}{N^2d^2} \to 12\left(1 + \frac{4}{3d}\right) \text{ or } 6\left(1 + \frac{11}{6d}\right), \qquad \frac{W_2 M}{N^2d^2} \to 8 \text{ or } 4\left(1 + \frac{3}{2d}\right) . \tag{4.6} $$
# <!-- (4.6) \frac{W_1 M}{N^2d^2} ~ costs.flash1(N, d, Br=1, Bc=M // (4 * d)).total * M / (N * d) ** 2 within 1e-4 with M = 10**6 * d, N = 10**6 * M -->
# <!-- (4.6) \frac{W_1 M}{N^2d^2} ~ schedules.flash1.count(N, d, M).total * M / (N * d) ** 2 within 1e-3 with M = 10**6 * d, N = 10**6 * M where d >= 32 -->
# <!-- (4.6) \frac{W_2 M}{N^2d^2} ~ costs.flash2(N, d, Br=M // (4 * d), Bc=1).total * M / (N * d) ** 2 within 1e-4 with M = 10**6 * d, N = 10**6 * M -->
# <!-- (4.6) \frac{W_2 M}{N^2d^2} ~ schedules.flash2.count(N, d, M).total * M / (N * d) ** 2 within 1e-4 with M = 10**6 * d, N = 10**6 * M -->
#
# The constant 12 is $4Nd/M$ key blocks times $3Nd$ words, and the statistics add $4N$ words to $3Nd$. The best tile keeps $M/(2d + 1)$ keys resident, because a key needs $2d$ words and one score; this gives $(2d + 1)(3d + 4)/d^2$. The constant 8 is $4Nd/M$ query blocks times $2Nd$ words. The best tile keeps $M/(2d + 3)$ queries resident, because a query needs $2d$ words, two statistics and one score. For $d = 64$ these are 12.25, 6.17, 8 and 4.09. The measured constants differ by a hundredth, because blocks have an integer number of rows.
# <!-- 6.17, 4.09 = 6 * (1 + 11 / (6 * 64)), 4 * (1 + 3 / (2 * 64)) -->
#
# For $M \le 4d^2$, the four quarters fill $M$ and leave no words for the scores, so the published sizes do not fit ([part b](04b_debugging_a_schedule.ipynb), section 4.10).
#
# ## 4.7 A lower bound on the traffic
#
# We reduced the constant from 12 to 4. Could another idea reach 2? A lower bound answers this for all schedules at once. The compulsory traffic (bound `compulsory`) gives one, $W \ge 4Nd$, because every input word is read and every output written. The second, Theorem A, counts how many products $p_{ij}v_{jc}$ can be formed with the words in fast memory during one part of the run. Take it as given here; lesson 05 explains it and 05b proves it:
#
# $$ W \ge \frac{4N^2d^2}{M + d^2} - (M + d^2) . \tag{4.7} $$
# <!-- (4.7) W >= bounds.theorem_A_large(N, d, M) rounded down where M >= d**2 -->
#
# It holds for every $M$, loop order and tile, even if scores are computed twice. Its class of schedules computes attention exactly, each score from $d$ products $q_{ic}k_{jc}$ and each output from products $p_{ij}v_{jc}$, where $Q$, $K$ and $V$ are three different arrays. The theorem is a derivation of this course, with methods of the papers below. `bounds.lower_bound` returns the largest proved bound (at $M + 4$ words, see lesson 05).
#
# **Predict** (guess). $N = 8192$, $d = 64$, $M = 58\,368$ (228 KiB of float32, the size of a fast memory on a large GPU). What is the ratio of the traffic of buffer reuse to the lower bound?
# <!-- 228 = CHIPS[90].shared_bytes / 1024 + 1 -->
# <!-- four = [schedules.get(name).count(2**22, 64, 64**3, published=p).total / 2**38 for name in ("flash1", "flash2") for p in (True, False)] -->
# <!-- 12.25, 6.18, 8.00, 4.10 = four -->
# <!-- 2, 3 = four[0] / four[1], 2 * four[0] / four[2] -->

# %% tags=["predict"]
predict("4.7", f3_over_bound=2)  #> predict("4.7", f3_over_bound=...)

# %%
N, d, M = 8192, 64, 58368
least, which = bounds.lower_bound("forward", N, d, M)
tiles = schedules.flash_optimal.tiles(N, d, M)
shapes = dict(Q=(N, d), K=(N, d), V=(N, d))
reuse = run(schedules.flash_optimal, M=M, dry=True, **shapes, **tiles).ledger
print(f"bound {which}: {least:,} words, compulsory {bounds.compulsory(N, d):,}")
print(f"buffer reuse with {tiles}: {reuse.total:,} words")
measured("4.7", f3_over_bound=reuse.total / least)

# %% [markdown]
# <details><summary>The ratio to the lower bound</summary>
#
# The ratio is 1.195. No schedule of this class saves more than a sixth of these words. The excess has four causes: $M + d^2$ in (4.7) instead of $M$, the $3/(2d)$ of (4.6), rounding up to complete blocks, and the $2Nd$ words of $Q$ and $O$. The first becomes small as $M/d^2$ grows, the second as $d$ grows, and the others as $N$ grows, so 4 is the best possible constant.
#
# </details>
#
# The figure shows all schedules for many $M$.
# <!-- 1.195 = schedules.flash_optimal.count(8192, 64, 58368).total / bounds.lower_bound("forward", 8192, 64, 58368)[0] -->

# %%
explore.traffic_vs_memory(8192, 64)

# %% [markdown]
# At the left end of the figure, even standard attention (`naive`) moves fewer words than the others, because only a few queries fit; lesson 07 is about such small memories. Further right it is nearly flat, because more memory does not help an algorithm that materialises its scores. The other lines fall in proportion to $1/M$. The FA-2 order and buffer reuse coincide, closest to the bound, except at the left end, where the $d$ words saved can hold one more row. The FA-1 order is higher by the factor $3/2$ of its loop order. At the right end, beyond the last row of the table, all of $Q$ fits, and the FA-2 order and buffer reuse reach the compulsory $4Nd = 2{,}097{,}152$ words. The FA-1 order stays at 3,194,880.
#
# ## 4.8 The quiz of lesson 00
#
# In lesson 00 you judged three common statements about FlashAttention: its traffic is $O(1)$, it is $O(N)$, and smaller tiles move fewer words. For the first two, compare $N$ and $2N$ at the same $M$.
#
# **Predict** (compute). By what factor does the traffic of buffer reuse grow when $N$ increases from 4096 to 8192, with $d = 64$ and $M = 16\,384$ fixed?
# <!-- 3 = 2 * four[1] / four[3] -->

# %% tags=["predict"]
predict("4.8", growth=4)  #> predict("4.8", growth=...)

# %%
def f3_words(N, d=64, M=16384):
    tiles = schedules.flash_optimal.tiles(N, d, M)
    done = run(schedules.flash_optimal, M=M, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles)
    return done.ledger.total


short, long = f3_words(4096), f3_words(8192)
small, large = (costs.flash2(4096, 64, Br=b, Bc=b).total for b in (64, 256))
print(f"N = 4096: {short:,} words, N = 8192: {long:,} words")
print(f"traffic of tile 64 divided by that of tile 256: {small / large:.2f}")
measured("4.8", growth=long / short)
measured("0.2", constant_traffic=long == short, linear_traffic=long <= 2 * short,
         smaller_tiles_move_less=small < large)

# %% [markdown]
# <details><summary>Are the three statements true?</summary>
#
# All three are false. The traffic grows by a factor of 3.886, nearly the factor 4 of $N^2$; the $2Nd$ words of $Q$ and $O$ only double. In the FA-2 order at $N = 4096$, a square tile of 64 has 3.82 times the traffic of a square tile of 256.
#
# </details>
#
# Your answers from lesson 00, if you gave them, are printed next to the results. "$O(N)$" is true of another quantity: FlashAttention needs only $4Nd$ words in slow memory, because it stores no scores.
#
# ## Misconceptions
#
# - **"FlashAttention's traffic is linear in $N$."** At fixed $M$, doubling $N$ multiplied the traffic by 3.886 (section 4.8). Only the space in slow memory is linear.
# - **"FlashAttention-2 moves fewer words because of its block sizes."** For large $N$ and $d$, its loop order gives two thirds of the traffic, with the same tiles and with the best tiles. The tile size is another factor of 2, for either order (section 4.5).
# - **"Smaller tiles fit better, so they move less."** Tile 64 moved 3.82 times the traffic of tile 256 (section 4.8). Only the streamed blocks should be small (section 4.4).
# - **"Freeing K before V is loaded saves traffic."** By itself it saved 0 words of traffic and 128 words of fast memory (section 4.3). The traffic falls only when a larger $B_r$ uses the free words (section 4.4).
#
# ## Take-away
#
# - The scores are not materialised, so the loop order decides the traffic. With keys in the outer loop, partial outputs are written and read back; with queries in the outer loop, they are not.
# - The resident arrays should fill fast memory, and the streamed arrays should be loaded one row at a time. The traffic is then $4N^2d^2/M$ with queries in the outer loop and $6N^2d^2/M$ with keys, and no schedule of this class has a smaller constant than 4.
# - Count the footprint exactly, including scores, statistics and temporaries.
#
# **In the literature's words**: these are fused, tiled attention kernels (FlashAttention, FlashAttention-2), with SRAM and HBM as fast and slow memory. The choice of resident and streamed operands is called a dataflow in accelerator design.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Algorithm 1 is the FA-1 order, with the block sizes of section 4.5.
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 1 is the FA-2 order.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). $N^2d^2/M$ is optimal up to a constant for $M \ge d^2$.
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). Tight constants for the matrix product; Theorem A borrows from its technique.
#
# **What comes next.** <!-- next --> Lesson 05 answers which part of this traffic no schedule can avoid.
# <!-- 3.886 = schedules.flash_optimal.count(8192, 64, 16384).total / schedules.flash_optimal.count(4096, 64, 16384).total -->
# <!-- 3.82 = costs.flash2(4096, 64, Br=64, Bc=64).total / costs.flash2(4096, 64, Br=256, Bc=256).total -->
# <!-- 4 = 2**2 -->
# <!-- 3.82 = costs.flash2(4096, 64, Br=64, Bc=64).total / costs.flash2(4096, 64, Br=256, Bc=256).total -->
# <!-- 2 = four[0] / four[1] -->
