# %% [markdown]
# # 04 FlashAttention's forward pass
#
# In lesson 01 the $N \times N$ scores went to slow memory and came back. Lesson 02 gave us a machine that counts every word, lesson 03 a softmax that takes its scores in pieces. Now the three meet: scores are made tile by tile, used, and forgotten, and never travel. Two things are left to decide. One is an *order*: which of $Q$, $K$, $V$ and $O$ stay in fast memory while the others pass by? The other is a *tile*: how many rows of each at a time? FlashAttention and FlashAttention-2 are two orders, called F1 and F2 here. You will write both, find the best tile of each, and see how much is owed to the order and how much to the tile.
#
# **What you will learn**
#
# - to write the forward pass of FlashAttention in both orders of its loops, and to read off the loops how often each array moves;
# - to choose the tile for given $N$, $d$ and $M$, with a footprint that is right to the word;
# - to measure four leading constants, two orders times two tiles, and to say where each comes from;
# - to compare a schedule with what no schedule can beat.
#
# **Prerequisites**: lessons 01 (attention), 02 (the machine: load, store, footprint) and 03 (online softmax). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# A second evening, [04b](04b_debugging_a_schedule.ipynb), takes the schedules to a real head and into memories that are too small, and hands you one to repair. Lesson 05 does not need it.

# %% tags=["setup"]
import numpy as np

from iocourse import RowStats, bounds, costs, exact, explore, run, schedules
from iocourse.course import attempt, check, hint, measured, predict

# %% [markdown]
# ## 4.1 Queries stay
#
# We want $O = \mathrm{softmax}(QK^\top/\sqrt d)\,V$ without ever storing a score. So we cut $Q$ and $O$ into blocks of $B_r$ rows, $K$ and $V$ into blocks of $B_c$ rows. One block $Q_i$ and one block $K_j$ make a tile of scores, $B_r \times B_c$ words, which is gone before the next one is made.
#
# With $T_r = \lceil N/B_r \rceil$ blocks of queries and $T_c = \lceil N/B_c \rceil$ blocks of keys there are $T_r T_c$ such tiles, and every one of them must be made. In which order? We begin with the simpler one, that of FlashAttention-2, in code `flash2`: the *queries* are outside. (It is called F2 although it comes first here: the names follow the papers.) $Q_i$ stays, and with it $O_i$ and the row statistics, while all blocks of keys and values pass by. The picture numbers the tiles of scores in that order.

# %%
explore.tile_order("flash2", 64, 8, {"Br": 16, "Bc": 16})

# %% [markdown]
# The numbers run along the rows: a row is a block of queries, which comes once. For each of its queries lesson 03 is at work: $m$, $\ell$ and $o$ take in the scores of one block of keys after the other. At the end of the row $O_i$ is divided by $\ell$ and stored; the statistics never leave fast memory.
#
# **Predict** (compute). $N = 64$ and $B_r = 16$, so there are four blocks of queries. How many times is all of $K$ read, and how many times is all of $O$ written?

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
# <details><summary>Who moves how often</summary>
#
# $K$ and $V$ are read 4 times, once for each block of queries; $Q$ and $O$ move once.
#
# </details>
#
# Counted for any sizes,
#
# $$ W_2 = 2Nd + 2Nd\left\lceil \frac{N}{B_r} \right\rceil, \qquad \text{footprint } B_r(2d + 2 + B_c) + 2B_c d . \tag{4.1} $$
#
# The footprint counts $Q_i$, $O_i$, two statistics a row and the scores, then $K_j$ and $V_j$. Look for $B_c$ in $W_2$: it is not there.
#
# You will write it in two steps. The first takes one block of queries, and its scores still lie in slow memory. What stays is `o` and the row statistics of section 3.8; what passes by is a tile of scores and the values that belong to it. `o.add_matmul(s, v)` adds $sv$ to `o` without a temporary.

# %%
def one_block(m, S, V, *, Bc):
    """softmax(S) V for one block of queries, whose scores S (Br, n) are in slow memory."""
    (rows, n), d = S.shape, V.shape[1]
    O = m.new("O", (rows, d))
    with m.zeros(rows, d) as o, m.row_stats(rows) as stats:  # stay: (Br, d), 2·Br
        for j in m.blocks(n, Bc):
            with m.load(S, (0, rows), j) as s, m.load(V, j) as v:  # pass by: (Br, Bc), (Bc, d)
                stats.update(s, o)  # s becomes weights, o changes its unit
                o.add_matmul(s, v)
        stats.normalise(o)
        m.store(o, O, (0, rows))
    return O


stored = run(one_block, M=800, S=exact.scores(Q[:16], K), V=V, Bc=16)
print("as exact attention:", np.allclose(stored.O, exact.attention(Q[:16], K, V)))
print(stored.ledger)

# %% [markdown]
# $V$ came once and $O$ left once, for all 16 queries; the statistics never moved. Only the scores, 1,024 words of them, should not have come from slow memory at all. That is the second step.
# <!-- 1,024 = 16 * 64 -->
#
# <!-- exercise 4A --> Write the forward pass with blocks of queries outside and blocks of keys inside: the step above for every block of queries, with scores made in fast memory from $Q_i$ and $K_j$. Loop with `m.blocks`, which deals with ragged last blocks and makes dry runs fast. The check allows the words of (4.1). As fast memory it gives the footprint and a little for temporaries: one more tile of scores, and four words a row. If you are stuck after nine minutes, run `hint("4A")` in a cell of your own.

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
    """softmax(QKᵀ/√d) V with blocks of queries outside.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows in a block of queries, of keys.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION what stays is loaded or made outside, what passes by in the inner loop
    for i in m.blocks(N, Br):  # stays: q (Br, d), o (Br, d), stats 2·Br
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):  # passes by: k (Bc, d), v (Bc, d), s (Br, Bc)
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
# A ledger minus a closed form says where they differ. Yours, on the input from above with the tiles of the picture (a higher peak means temporaries, which the check allows):

# %%
def beside(budget, mine):
    ledger = run(mine, M=1200, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
    print(f"{budget.total:,} words by the closed form, footprint {budget.peak:,};",
          "yours differs by:", ledger - budget)


attempt(beside, costs.flash2(N, d, Br=16, Bc=16), my_flash2)

# %% [markdown]
# <!-- algorithm flash2 -->
#
# | | **FlashAttention-2 order.** Resident: $Q_i$, $O_i$, $m$, $\ell$. Streamed: $K_j$, $V_j$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$ | |
# | 2 | &emsp; load $Q_i$ | $Nd$ |
# | 3 | &emsp; $O_i = 0$, $m = -\infty$, $\ell = 0$ | |
# | 4 | &emsp; **for** each key block $j$ | |
# | 5 | &emsp;&emsp; load $K_j$, $V_j$ | $2T_r Nd$ |
# | 6 | &emsp;&emsp; $S = Q_i K_j^\top/\sqrt d$ | |
# | 7 | &emsp;&emsp; update $m$, $\ell$ with $S$; rescale $O_i$; $S$ becomes weights | |
# | 8 | &emsp;&emsp; add $S V_j$ to $O_i$ | |
# | 9 | &emsp; divide $O_i$ by $\ell$ | |
# | 10 | &emsp; store $O_i$ | $Nd$ |
#
# 5,120 words on 800 words of fast memory. For comparison: the scores alone are $64 \times 64 = 4{,}096$ words, and naive attention moves at least 16,384, for it writes and reads $S$ and $P$. On so small an input there is little to gain; the gain grows with $N$ and $M$.
#
# ## 4.2 Keys stay
#
# Exchange the loops. This is the order of FlashAttention-1, in code `flash1`: $K_j$ and $V_j$ stay, and all blocks of queries pass by.

# %%
explore.tile_order("flash1", 64, 8, {"Br": 16, "Bc": 16})

# %% [markdown]
# The same sixteen tiles, now column by column. A row is visited four times, once in each column. When $Q_i$ leaves, its output is not finished, for it has seen only the keys up to block $K_j$. What has been gathered must wait in slow memory until the next visit: the rows $O_i$, and for each row $m_i$ and $\ell_i$.
#
# **Predict** (guess). $N = 64$ and $B_c = 16$, four blocks of keys. How many times is all of $Q$ read, and how many times is all of $O$ written?

# %% tags=["predict"]
predict("4.2", q_reads=4, o_writes=4)  #> predict("4.2", q_reads=..., o_writes=...)

# %%
first = run(schedules.flash1, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
print(first)
measured("4.2", q_reads=first.reads["Q"] // (N * d), o_writes=first.writes["O"] // (N * d))

# %% [markdown]
# <details><summary>How often Q comes and O leaves</summary>
#
# $Q$ is read 4 times and $O$ is written 5 times: once for each block of keys, and once before the first, because the first visit must find something to read. The same holds for $m$ and $\ell$.
#
# </details>
#
# Counted for any sizes,
#
# $$ W_1 = 3Nd + 2N + \left\lceil \frac{N}{B_c} \right\rceil (3Nd + 4N), \qquad \text{footprint } 2B_c d + B_r(2d + 2 + B_c) . \tag{4.2} $$
#
# Before the first round $O$, $m$ and $\ell$ are written, $Nd + 2N$ words; $K$ and $V$ come once, $2Nd$: together $3Nd + 2N$. A round of the outer loop moves $Q$ in, $O$ in and $O$ out: the 3 in $3Nd$, where a round of F2 has 2, $K$ in and $V$ in. The footprint is that of F2, tile for tile, but now it is $B_r$ that is missing from the words.
#
# This one too is written in two steps. The first is what is new for the machine, statistics that wait in slow memory. They are two slow arrays with one word for each row. Here they wait while the rows of a $4 \times 6$ matrix of scores come by, two columns at a time. `RowStats` makes statistics of two loaded tiles, and its `with` frees both:

# %%
def row_sums(m, S):
    """Σ_j exp(s_ij - m_i) for each row i; the statistics wait in slow memory between visits."""
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
# Three visits: maxima and sums, 4 words each, were read 3 times and written 4 times, which makes 12 and 16.
#
# In the second step the outputs travel along: `stats.update(s, o)` changes their unit as before. They are divided when their last keys have been seen, and a block `j` of the loop knows whether it is the last: `j.last`. (The paper divides at every visit and multiplies back at the next: more arithmetic, and not one word more or less.)
#
# <!-- exercise 4B --> Write the forward pass with blocks of keys outside. Keep outputs, maxima and sums in the slow arrays that the first lines make. The check allows the words of (4.2), and fast memory as before. If you are stuck after nine minutes, run `hint("4B")` in a cell of your own.

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
    """softmax(QKᵀ/√d) V with blocks of keys outside.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows in a block of queries, of keys.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O, maxima, sums = m.new("O", (N, d)), m.new("m", (N,)), m.new("l", (N,))
    ### BEGIN SOLUTION store first values of O, m and l, then loop over keys and over queries
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), 2·Br
            m.store(o, O, i)
            m.store(stats.m, maxima, i)
            m.store(stats.l, sums, i)
    for j in m.blocks(N, Bc):  # stays: k (Bc, d), v (Bc, d)
        with m.load(K, j) as k, m.load(V, j) as v:
            for i in m.blocks(N, Br):  # passes by: q (Br, d), o (Br, d), stats 2·Br, s (Br, Bc)
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
attempt(beside, costs.flash1(N, d, Br=16, Bc=16), my_flash1)

# %% [markdown]
# <!-- algorithm flash1 -->
#
# | | **FlashAttention-1 order.** Resident: $K_j$, $V_j$. Streamed: $Q_i$, $O_i$, $m_i$, $\ell_i$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$: store $O_i$, $m_i$, $\ell_i$ | $Nd + 2N$ |
# | 2 | **for** each key block $j$ | |
# | 3 | &emsp; load $K_j$, $V_j$ | $2Nd$ |
# | 4 | &emsp; **for** each query block $i$ | |
# | 5 | &emsp;&emsp; load $Q_i$ | $T_c Nd$ |
# | 6 | &emsp;&emsp; load $O_i$, $m_i$, $\ell_i$ | $T_c(Nd + 2N)$ |
# | 7 | &emsp;&emsp; $S = Q_i K_j^\top/\sqrt d$; update $m_i$, $\ell_i$; rescale $O_i$; $S$ becomes weights | |
# | 8 | &emsp;&emsp; add $S V_j$ to $O_i$ | |
# | 9 | &emsp;&emsp; if $j$ is the last block: divide $O_i$ by $\ell_i$ | |
# | 10 | &emsp;&emsp; store $O_i$, $m_i$, $\ell_i$ | $T_c(Nd + 2N)$ |
#
# 8,832 words on the input that cost F2 5,120, in the same 800 words of fast memory. Most of them are partial outputs that come and go.
#
# ## 4.3 V in K's place
#
# Look at the inner loop of F2. $K_j$ is needed for the scores, $V_j$ only after them. Yet both are in fast memory at once, from the first line to the last. If $K_j$ goes before $V_j$ comes, one room serves both. This is F3, in code `flash_optimal`.
#
# **Predict** (compute). $N = 64$, $d = 8$, $B_r = B_c = 16$, as before. How many words fewer than F2 does F3 move, and how many words of fast memory does it save?

# %% tags=["predict"]
predict("4.3", words_saved=512, room_saved=128)  #> predict("4.3", words_saved=..., room_saved=...)

# %%
f2 = run(schedules.flash2, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
f3 = run(schedules.flash_optimal, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
measured("4.3", words_saved=f2.total - f3.total, room_saved=f2.peak - f3.peak)

# %% [markdown]
# <details><summary>What is saved, and what is not</summary>
#
# Not one word of traffic is saved: with the same tiles both read $K$ and $V$ four times. What is saved is room, $B_c d = 128$ words of 800.
#
# </details>
#
# In the closed form of F3 one $B_c d$ of (4.1) is gone:
#
# $$ W_3 = 2Nd + 2Nd\left\lceil \frac{N}{B_r} \right\rceil, \qquad \text{footprint } B_r(2d + 2 + B_c) + B_c d . \tag{4.3} $$
#
# The two pictures show one fast memory over time, first for F2, then for F3.

# %%
explore.memory_timeline(f2, M=800, title="F2 flash2: K and V at the same time")

# %%
explore.memory_timeline(f3, M=800, title="F3 flash_optimal: V in K's place")

# %% [markdown]
# In F2 the peak is reached while `K`, `V` and the scores are all there. In F3 `K` and `V` take turns and the peak is 672. The words that are now free can hold more queries, and more queries in a block mean fewer passes over $K$ and $V$. The next section spends them.
#
# <!-- exercise 4C --> Change your F2 so that it runs in the footprint of (4.3). This time the check gives you that many words and not one more. Besides leaving a `with`, two things give room back: `tile.free()`, at once, and `m.load(A, rows, into=tile)`, which frees `tile` just before it loads. And a name keeps its tile into the next round of the loop, as section 2.2 said. If you are stuck after four minutes, run `hint("4C")` in a cell of your own.

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
    """softmax(QKᵀ/√d) V with blocks of queries outside, and V_j where K_j was.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows in a block of queries, of keys.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION as in 4A, but k has gone when v comes
    for i in m.blocks(N, Br):  # stays: q (Br, d), o (Br, d), stats 2·Br
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:     # (Bc, d)
                    s = q @ k.T             # (Br, Bc)
                with s, m.load(V, j) as v:  # (Bc, d), in the room K_j has left
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-4C"
check("4C", my_flash_optimal)

# %% [markdown]
# ## 4.4 The tile for a given M
#
# Fast memory has $M$ words. Which tile should we take? Let your hand find out before a formula says it. Run the next cell, then drag the tile by its dark corner: the dashed line is where it fits no longer. Or press Tab until the slider of `Br` or `Bc` has the focus, and use the arrow keys. (Without a running kernel it is a still picture.) It starts with F2 on $N = 1024$, $d = 64$, $M = 16\,896$, and a square tile of 32. Find the tile that fits and moves the fewest words:
#
# - `Br` up: the words fall, the footprint bar grows, until it says *does not fit* and by how many words.
# - `Bc` up: the footprint grows and the words stay as they are. So which way should `Bc` go, and what can `Br` do then?
# - Choose `flash1` as schedule. The two change roles: find its tile too.
# - `M` up, then the button *Best tile for M*: the words fall in proportion to $1/M$, until they reach the floor $4Nd$.
# - `move` under `flash2`, then under `flash_optimal`: in the strip at the bottom, V comes to K, or in K's place.

# %%
explore.tile_tuner(N=1024, d=64, M=16896)

# %% [markdown]
# **Predict** (guess). Write down what your hand has found for $M = 16\,896$: the $B_r$ and the $B_c$ of F2, and the $B_r$ of F1.

# %% tags=["predict"]
predict("4.4", f2_Br=128, f2_Bc=1, f1_Br=1)  #> predict("4.4", f2_Br=..., f2_Bc=..., f1_Br=...)

# %%
N, d, M = 1024, 64, 16896


def best_tile(cost, sides=range(1, 200)):
    """(words, Br, Bc) of the tile that fits and moves the fewest words: every tile is tried."""
    tried = ((cost(N, d, Br=Br, Bc=Bc), Br, Bc) for Br in sides for Bc in sides)
    return min((form.total, Br, Bc) for form, Br, Bc in tried if form.peak <= M)


f1, f2 = best_tile(costs.flash1), best_tile(costs.flash2)
for name, (words, Br, Bc) in {"F1": f1, "F2": f2}.items():
    print(f"{name}: {words:9,} words with Br = {Br}, Bc = {Bc}")
print(f"F1 moves {f1[0] / f2[0]:.2f} times the words of F2")
measured("4.4", f2_Br=f2[1], f2_Bc=f2[2], f1_Br=f1[1])

# %% [markdown]
# <details><summary>What the hand should have found</summary>
#
# Both orders want the same: what stays fills fast memory, 128 rows of it, and what passes comes one row at a time.
#
# </details>
#
# For F2 and F3 the reason stands in (4.1) and (4.3). $B_r$ rows of queries share one pass over $K$ and $V$, so the traffic depends on $B_r$ alone, but both sizes take room: every word given to $B_c$ is a word taken from $B_r$. So F3 takes the largest $B_r$ with
#
# $$ B_r(2d + 2 + B_c) + B_c d \le M \quad \text{where } B_c = 1 . \tag{4.4} $$
#
# How much is $V$ in $K$'s place worth, if $B_c$ may be chosen? The table gives F2 and F3 each the largest $B_r$ that fits beside $B_c$ keys.

# %%
def largest_that_fits(cost, Bc):
    """The largest Br beside Bc keys, and its words."""
    Br = max(Br for Br in range(1, 200) if cost(N, d, Br=Br, Bc=Bc).peak <= M)
    return f"{Br:8}  {cost(N, d, Br=Br, Bc=Bc).total:9,}"


print("  Bc    F2: Br      words    F3: Br      words")
for Bc in (64, 16, 4, 1):
    of_f2, of_f3 = (largest_that_fits(cost, Bc) for cost in (costs.flash2, costs.flash_optimal))
    print(f"{Bc:4}  {of_f2}  {of_f3}")

# %% [markdown]
# Read down: the smaller tile of keys takes nearly all of the gain. Read across: with $B_c = 64$, $V$ in $K$'s place saves 4,096 words of room, and 3,276,800 words become 2,228,224.
#
# With $B_c = 1$ it saves $d = 64$ words, not half of the $2d + 3 = 131$ that a row of queries takes: F3's block is at most one row larger than F2's, and for about half of all $M$ no larger. One row more can matter. Where F3 has two and F2 one, for $M$ from 326 to 389, it halves the words; from $M = d^2$ on it takes a thirtieth off the constant at most.
# <!-- 4,096, 131 = 64 * 64, 2 * 64 + 3 -->
# <!-- f2, f3 = (cost(1024, 64, Br=2, Bc=1).peak for cost in (costs.flash2, costs.flash_optimal)) -->
# <!-- 326, 389 = f3, f2 - 1 -->
#
# Why then do GPU kernels take many keys at a time, 32, 64 or more? Because their matrix units multiply whole tiles at once, and there the place of $V$ counts. The model counts words and no arithmetic; a later lesson puts the two together.
#
# <!-- exercise 4D --> Give the tile with which F3 moves the fewest words in a fast memory of $M$ words, for any sizes. The cells above tried every tile; solve (4.4) instead. (A tile with more rows than there are queries is cut to $N$, so you need not mind.) You may assume that at least $B_r = B_c = 1$ fits, that is $M \ge 3d + 3$. If you are stuck after six minutes, run `hint("4D")` in a cell of your own.

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
    """The tile (Br, Bc) with which F3 moves the fewest words.

    N, d, M: whole numbers of at least 1.
    """
    ### BEGIN SOLUTION solve (4.4) for Br
    return (M - d) // (2 * d + 3), 1
    ### END SOLUTION


# %% tags=["check"] name="check-4D"
check("4D", my_best_tiles)

# %% [markdown]
# Your F3 with your tile, on the sizes of the table. The run is dry: it moves shapes instead of numbers and counts the same words.

# %%
def with_my_tiles():
    Br, Bc = my_best_tiles(N, d, M)
    Q = K = V = (N, d)
    ledger = run(my_flash_optimal, M=M, dry=True, Q=Q, K=K, V=V, Br=Br, Bc=Bc).ledger
    print(f"{ledger.total:,} words, {ledger.peak:,} of {M:,} words of fast memory used")


attempt(with_my_tiles)

# %% [markdown]
# 1,179,648 words, as in the last line of the table, and 16,832 of the 16,896 words are in use. The 64 that are left are the $d$ words that $V$ saves in $K$'s place: here too few for another query.
#
# ## 4.5 Order times tile
#
# A paper gives an order and a tile together. FlashAttention-1's takes $B_c = \lceil M/4d \rceil$ and $B_r = \min(\lceil M/4d \rceil, d)$: a quarter of $M$ at most for each of $Q_i$, $K_j$, $V_j$, $O_i$. FlashAttention-2's names no sizes for a given $M$; we take the same quarters, with queries and keys exchanged. The library picks the best tile of an order, and these if asked: `schedules.flash1.tiles(N, d, M, published=True)`, or `iocourse count flash1 … --published`.
#
# First your own two schedules, each with both tiles, in a dry run. (If you loop with `range` it visits every block, and takes a quarter of a minute.)

# %%
N, d, M = 8192, 64, 64 * 64**2


def with_both_tiles(order, mine):
    schedule = schedules.get(order)
    for published in (True, False):
        tiles = schedule.tiles(N, d, M, published=published)
        room = 2 * M  # for temporaries, if you have any
        dry = run(mine, M=room, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles).ledger
        print(f"{order} {tiles}: {dry.total:,} words, differs from the closed form by:",
              dry - schedule.cost(N, d, **tiles))


attempt(with_both_tiles, "flash1", my_flash1)
attempt(with_both_tiles, "flash2", my_flash2)

# %% [markdown]
# What you have measured is what (4.1) and (4.2) say, to the word. So they may speak for larger sizes. To compare schedules whatever the size, divide the words by what they all share:
#
# $$ c = \frac{W M}{N^2 d^2} . \tag{4.5} $$
#
# **Predict** (compute). Four million tokens, $N = 2^{22}$, with $d = 64$ and $M = 64d^2 = 262\,144$. What are the four constants $c$: F1 and F2, each with a quarter of $M$ for what stays, and each with its best tile?

# %% tags=["predict"]
predict("4.5", f1_quarter=12, f1_best=6, f2_quarter=8, f2_best=4)  #> predict("4.5", f1_quarter=..., f1_best=..., f2_quarter=..., f2_best=...)

# %%
def constant(order, published, N):
    words = schedules.get(order).count(N, d, M, published=published).total
    return words * M / (N * d) ** 2


print("           N    F1 quarter   best    F2 quarter   best")
for N in (2**16, 2**19, 2**22):
    f1_quarter, f1_best = constant("flash1", True, N), constant("flash1", False, N)
    f2_quarter, f2_best = constant("flash2", True, N), constant("flash2", False, N)
    print(f"{N:12,}    {f1_quarter:10.2f} {f1_best:6.2f}    {f2_quarter:10.2f} {f2_best:6.2f}")
measured("4.5", f1_quarter=f1_quarter, f1_best=f1_best, f2_quarter=f2_quarter, f2_best=f2_best)

# %% [markdown]
# <details><summary>The four, as order times tile</summary>
#
# The last line as a table:
#
# | | a quarter of $M$ stays | best tile |
# | --- | --- | --- |
# | F1, keys outside | 12.25 | 6.18 |
# | F2, queries outside | 8.00 | 4.10 |
#
# Across, the tile is worth a factor of 2. Down, the order is worth $3/2$. F3 with its best tile has 4.10 as well.
#
# </details>
#
# ## 4.6 Where the four come from
#
# The closed forms say it, if of each count one keeps the term that grows with $N^2$:
#
# $$ \frac{W_1 M}{N^2d^2} \to 12\left(1 + \frac{4}{3d}\right) \text{ or } 6\left(1 + \frac{11}{6d}\right), \qquad \frac{W_2 M}{N^2d^2} \to 8 \text{ or } 4\left(1 + \frac{3}{2d}\right) . \tag{4.6} $$
#
# The 12 is $4Nd/M$ blocks of keys times $3Nd$ words, and $4N$ words of statistics beside $3Nd$ make the correction. With its best tile F1 keeps $M/(2d + 1)$ keys instead of $M/4d$: half as many rounds, but for the score that a key takes beside its $2d$ words. The 8 is $4Nd/M$ blocks of queries times $2Nd$; with its best tile F2 keeps $M/(2d + 3)$ queries. For $d = 64$ these are 12.25, 6.17, 8 and 4.09. The last hundredths are whole rows: 2,000 queries where (4.6) has 2001.10.
# <!-- 6.17, 4.09 = 6 * (1 + 11 / (6 * 64)), 4 * (1 + 3 / (2 * 64)) -->
# <!-- 2,000, 2001.10 = schedules.flash2.tiles(2**22, 64, 64 * 64**2)["Br"], 64 * 64**2 / (2 * 64 + 3) -->
#
# Four quarters fill $M$, and the scores need room as well: in a small fast memory the published sizes do not fit. The second evening counts when.
#
# ## 4.7 How little is possible
#
# We went from 12 to 4. Could another idea bring 2? A lower bound answers for all ideas at once. One is short: every input word is read and every output word is written, so $W \ge 4Nd$, the *compulsory* traffic. The other one counts how many products $p_{ij}v_{jc}$ can be formed with the words that are in fast memory during a stretch of the run. We call it Theorem A:
#
# $$ W \ge \frac{4N^2d^2}{M + d^2} - (M + d^2) . \tag{4.7} $$
#
# It holds for every $M$ and for every schedule that computes attention exactly from three distinct arrays, with scores from $d$ products $q_{ic}k_{jc}$ and outputs from products $p_{ij}v_{jc}$; in any order, with any tiles, also if scores are computed twice. It is a derivation of this course, with segments and the Loomis-Whitney inequality as in the papers below; lesson 05 proves it. `bounds.BOUNDS` lists source and class of each; these two are the bounds `compulsory` and `A_large`. `bounds.lower_bound` takes the largest of what is proved, at $M + 4$ words, since four registers are free.
#
# **Predict** (guess). $N = 8192$, $d = 64$, $M = 58\,368$ (228 KiB of float32, the size of a fast memory on a large GPU). How many times the lower bound does F3 move?
# <!-- 228 = 58368 * 4 / 1024 -->

# %% tags=["predict"]
predict("4.7", f3_over_bound=2)  #> predict("4.7", f3_over_bound=...)

# %%
N, d, M = 8192, 64, 58368
least, which = bounds.lower_bound("forward", N, d, M)
tiles = schedules.flash_optimal.tiles(N, d, M)
f3 = run(schedules.flash_optimal, M=M, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles).ledger
print(f"bound {which}: {least:,} words, compulsory {bounds.compulsory(N, d):,}")
print(f"F3 with {tiles}: {f3.total:,} words")
measured("4.7", f3_over_bound=f3.total / least)

# %% [markdown]
# <details><summary>How far F3 is from the least</summary>
#
# 1.195 times the bound. No schedule of that kind, whatever its order, saves more than a sixth of F3's words here. What is above 1 has names: $M + d^2$ in (4.7) where F3 has $M$ (a factor 1.07), $3/(2d)$ (1.02), rounding up to 19 blocks (1.03), and $2Nd$ for $Q$ and $O$ (1.05). The first goes away as $M/d^2$ grows, the second as $d$ grows, the others as $N$ grows: 4 is the best constant there is.
#
# </details>
#
# The picture shows all schedules for fast memories of many sizes.
# <!-- N, d, M = 8192, 64, 58368 -->
# <!-- blocks = math.ceil(N / schedules.flash_optimal.tiles(N, d, M)["Br"]) -->
# <!-- 1.07, 1.02, 19 = (M + d**2) / M, 1 + 3 / (2 * d), blocks -->
# <!-- 1.03, 1.05 = blocks / (N * (2 * d + 3) / M), (blocks + 1) / blocks -->

# %%
explore.traffic_vs_memory(8192, 64)

# %% [markdown]
# Read it from left to right. At the left end even naive attention moves less than the three, for only a few rows of queries fit; what to do with so little memory is a question for lesson 07. Then naive attention is nearly flat, for more memory does not help an algorithm that writes its scores out, while the others fall in proportion to $1/M$. F2 and F3 are one line, closest to the bound, but for the left end, where the $d$ words that F3 saves can make room for one more row; F1 runs above them by the factor $3/2$ of its order. At the right end all of $Q$ fits, and F2 and F3 meet the compulsory $4Nd = 2{,}097{,}152$ words.
#
# ## 4.8 The quiz of lesson 00
#
# In lesson 00 you judged three sentences that are often said of FlashAttention: its traffic is $O(1)$, it is $O(N)$, and smaller tiles move fewer words. Now each can be measured. The first two need $N$ and $2N$ at the same $M$: constant traffic would stay the same, linear traffic would double.
#
# **Predict** (compute). By what factor do F3's words grow when $N$ goes from 4096 to 8192, with $d = 64$ and $M = 16\,384$ fixed?

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
print(f"tile 64 moves {small / large:.2f} times the words of tile 256")
measured("4.8", growth=long / short)
measured("0.2", constant_traffic=long == short, linear_traffic=long <= 2 * short,
         smaller_tiles_move_less=small < large)

# %% [markdown]
# <details><summary>What became of the three sentences</summary>
#
# All three are false. The words grow by 3.886, nearly the factor 4 of $N^2$; what is missing is the part $2Nd$, which only doubles. And the smaller tile moves 3.82 times *more*.
#
# </details>
#
# If you answered the quiz in lesson 00, your answers stand beside the results. There is a grain of truth in "$O(N)$": the *room* FlashAttention needs in slow memory is $4Nd$ words, for it stores no scores. Room and traffic are two numbers.
#
# ## Misconceptions
#
# - **"FlashAttention's traffic is linear in $N$."** At fixed $M$, doubling $N$ multiplied the words by 3.886 (section 4.8). Linear is the room in slow memory.
# - **"FlashAttention-2 moves fewer words because of its block sizes."** With the same tiles it moves about two thirds as many, and with best tiles too: that is its order. The tile is another factor of 2, for either order (section 4.5).
# - **"Smaller tiles fit better, so they move less."** They fit better and move more: tile 64 moved 3.82 times the words of tile 256 (section 4.8). Small pays for what passes, because it leaves room for what stays (section 4.4).
# - **"Freeing K before V comes saves traffic."** By itself it saved 0 words and 128 words of room (section 4.3). Room becomes traffic saved when $B_r$ grows into it, and with one key at a time it is $d$ words (section 4.4).
#
# ## Take-away
#
# - Scores are made, used and forgotten, so the traffic is decided by what stays: with keys outside, partial outputs travel; with queries outside, they do not.
# - Words are order × tile. What stays should fill fast memory, what passes should come one row at a time: $4N^2d^2/M$ for queries outside, $6N^2d^2/M$ for keys outside, and no schedule of this kind has a smaller constant than 4.
# - Count the footprint to the word: scores, statistics and temporaries included.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Algorithm 1 is F1, with the block sizes of section 4.5.
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 1 is F2.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). $N^2d^2/M$ is optimal up to a constant for $M \ge d^2$.
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). Tight constants for the matrix product; Theorem A borrows from its technique.
#
# **What comes next.** Lesson 05 proves Theorem A, and asks what happens when $M$ is smaller than $d^2$. Before it, or never: [04b](04b_debugging_a_schedule.ipynb), the second evening.
