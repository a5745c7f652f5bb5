# %% [markdown]
# # 04 FlashAttention's forward pass
#
# In lesson 01 the $N \times N$ scores went to slow memory and came back. Lesson 02 gave us a machine that counts every word, lesson 03 a softmax that takes its scores in pieces. Now the three meet: scores are made tile by tile, used, and forgotten, and never travel. What is left to decide is an order: which of $Q$, $K$, $V$ and $O$ stays in fast memory while the others pass by? You will write three answers, called F1, F2 and F3 here. Each differs from the one before by a few lines, and they move $12$, $8$ and $4$ times $N^2d^2/M$ words.
#
# **What you will learn**
#
# - to write the forward pass of FlashAttention as three schedules, and to read off the loops how often each array moves;
# - to choose the tiles for given $N$, $d$ and $M$, with a footprint that is right to the word;
# - to measure the leading constants 12, 8 and 4, and to say where each comes from;
# - to say when the published block sizes do not fit, and why;
# - to compare a schedule with what no schedule can beat.
#
# **Prerequisites**: lessons 01 (attention), 02 (the machine: load, store, footprint) and 03 (online softmax). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: 75, of which <!-- minutes --> are for the exercises.
#
# <!-- exercises -->
#
# Sections 4.6 and 4.9 stand by themselves: if time runs short, read them another day.

# %% tags=["setup"]
import numpy as np

from iocourse import FastMemoryFull, RowStats, bounds, costs, exact, explore, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head

# %% [markdown]
# ## 4.1 Keys outside: the order of FlashAttention-1
#
# We want $O = \mathrm{softmax}(QK^\top/\sqrt d)\,V$ without ever storing a score. So we cut $Q$ and $O$ into blocks of $B_r$ rows, $K$ and $V$ into blocks of $B_c$ rows. One block $Q_i$ and one block $K_j$ make a tile of scores, $B_r \times B_c$ words, which is gone before the next one is made.
#
# There are $T_r T_c$ such tiles, and every one of them must be made. In which order? FlashAttention-1 takes the *keys* outside: $K_j$ and $V_j$ stay, and all blocks of queries pass by. This is F1, in code `flash1`. The picture numbers the tiles of scores in that order.

# %%
explore.tile_order("flash1", 64, 8, {"Br": 16, "Bc": 16})

# %% [markdown]
# The numbers run down the columns: a column is a block of keys, which comes once. A row is a block of queries, and it is visited four times, once in each column.
#
# When $Q_i$ leaves, its output is not finished, for it has seen only the keys up to block $K_j$. So what has been gathered must wait in slow memory until the next visit: the rows $O_i$, and for each row the running maximum $m_i$ and the running sum $\ell_i$ of lesson 03. FlashAttention-1 stores $O_i$ already divided by $\ell_i$, so that slow memory always holds the attention over the keys seen so far. A visit brings the scores $s_{ij}$ of the new keys; here $i$ is a single query and $j$ a single key of the block:
#
# $$ m_i' = \max\bigl(m_i, \max_j s_{ij}\bigr), \qquad \ell_i' = e^{m_i - m_i'}\,\ell_i + \sum_j e^{s_{ij} - m_i'}, \qquad o_i' = \frac{e^{m_i - m_i'}\,\ell_i\, o_i + \sum_j e^{s_{ij} - m_i'} v_j}{\ell_i'} . $$
#
# These are (3.2) and (3.4) with two additions: the factor $\ell_i$ in front of $o_i$ undoes the division of the visit before, and the division comes again at the end.
#
# **Predict.** $N = 64$ and $B_c = 16$, so there are four blocks of keys. How many times is all of $Q$ read, and how many times is all of $O$ written? Put your numbers in place of the dots, then run both cells.

# %% tags=["predict"]
predict("4.1", q_reads=4, o_writes=4)  #> predict("4.1", q_reads=..., o_writes=...)

# %%
N, d = 64, 8
rng = np.random.default_rng(4)
Q, K, V = rng.standard_normal((3, N, d))
first = run(schedules.flash1, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
print(first)
measured("4.1", q_reads=first.reads["Q"] // (N * d), o_writes=first.writes["O"] // (N * d))

# %% [markdown]
# $Q$ is read 4 times and $O$ is written 5 times: once for each block of keys, and once before the first, because the first visit must find something to read. The same holds for $m$ and $\ell$. Counted for any sizes,
#
# $$ W_1 = 3Nd + 2N + \left\lceil \frac{N}{B_c} \right\rceil (3Nd + 4N), \qquad \text{footprint } 2B_c d + B_r(2d + 2 + B_c) . \tag{4.1} $$
#
# A round of the outer loop moves $Q$ in, $O$ in and $O$ out: the 3 in $3Nd$. The footprint counts $K_j$ and $V_j$, then $Q_i$, $O_i$, two statistics a row, and the scores. Look for $B_r$ in $W_1$: it is not there.
#
# One thing is new for the machine: statistics that wait in slow memory. They are two slow arrays with one word for each row. Here they wait while the rows of a $4 \times 6$ matrix of scores come by, two columns at a time. `RowStats` makes statistics of two loaded tiles, and its `with` frees both:

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
# Three visits: `m` and `l`, 4 words each, were read 3 times and written 4 times, which makes 12 and 16.
#
# A tile of outputs can travel along. You know `stats.update(s, o)`, which also rescales `o` to the new maximum, and `stats.normalise(o)`, which divides its rows by $\ell_i$. New is `stats.unnormalise(o)`, which multiplies them by $\ell_i$. None of them takes room, and `o.add_product(s, v)` adds $sv$ to `o` without a temporary.
#
# <!-- exercise 4.1 --> Write the forward pass with blocks of keys outside and blocks of queries inside. Keep $O$, `m` and `l` in the slow arrays that the first lines make. Loop with `m.blocks`, which deals with ragged last blocks and makes dry runs fast. The check allows the words of (4.1). As fast memory it gives the footprint and a little for temporaries: one more tile of scores, and four words a row. If you are stuck after twelve minutes, run `hint("4.1")` in a cell of your own.

# %% tags=["exercise"] name="ex-4.1"
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
                    stats.unnormalise(o)
                    with q @ k.T as s:
                        stats.update(s, o)
                        o.add_product(s, v)
                    stats.normalise(o)
                    m.store(o, O, i)
                    m.store(stats.m, maxima, i)
                    m.store(stats.l, sums, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-4.1"
check("4.1", my_flash1)

# %% [markdown]
# A ledger minus a closed form says where they differ. Yours, on the input from above with the tiles of the picture (a higher peak means temporaries, which the check allows):

# %%
budget = costs.flash1(N, d, Br=16, Bc=16)
mine = attempt(run, my_flash1, M=1200, Q=Q, K=K, V=V, Br=16, Bc=16)
print(f"{budget.total:,} words by (4.1), footprint {budget.peak:,}; yours differs by:",
      mine.ledger - budget)

# %% [markdown]
# 8,832 words on 800 words of fast memory. For comparison: the scores alone are $64 \times 64 = 4{,}096$ words, and naive attention moves four times as many or more, for it writes and reads $S$ and $P$. On so small an input there is little to gain; the gain grows with $N$ and $M$, as section 4.5 measures.

# %% [markdown]
# ## 4.2 Queries outside: the order of FlashAttention-2
#
# Most of the traffic of F1 is partial output: $O_i$ comes and goes once for every block of keys. Exchange the loops, and it stays at home: this is F2, in code `flash2`. $Q_i$, $O_i$ and the statistics remain in fast memory while all of $K$ and $V$ pass by. At the end of the row of tiles $O_i$ is finished, and is stored once. The statistics never leave fast memory.

# %%
explore.tile_order("flash2", 64, 8, {"Br": 16, "Bc": 16})

# %% [markdown]
# The same sixteen tiles, now row by row. Counted as before,
#
# $$ W_2 = 2Nd + 2Nd\left\lceil \frac{N}{B_r} \right\rceil, \qquad \text{footprint } B_r(2d + 2 + B_c) + 2B_c d . \tag{4.2} $$
#
# The footprint is that of F1, tile for tile. Only the traffic differs, and now it is $B_c$ that is missing from $W_2$.
#
# **Predict.** $N = 4096$, $d = 64$, $B_r = B_c = 256$. How many times more words does F1 move than F2?

# %% tags=["predict"]
predict("4.2", f1_over_f2=2)  #> predict("4.2", f1_over_f2=...)

# %%
shape, tiles = (4096, 64), {"Br": 256, "Bc": 256}
f1 = run(schedules.flash1, M=2**18, dry=True, Q=shape, K=shape, V=shape, **tiles).ledger
f2 = run(schedules.flash2, M=2**18, dry=True, Q=shape, K=shape, V=shape, **tiles).ledger
print(f"F1 {f1.total:,} words, F2 {f2.total:,} words")
print(f"footprints {f1.peak:,} and {f2.peak:,}")
measured("4.2", f1_over_f2=f1.total / f2.total)

# %% [markdown]
# A factor of 1.53, in the same 131,584 words of fast memory. For one pair of blocks F1 moves three tiles ($Q_i$ in, $O_i$ in, $O_i$ out) and four words of statistics a row; F2 moves two tiles ($K_j$ in, $V_j$ in). That is $3/2$, and $2/d$ for the statistics.
#
# FlashAttention-2 takes a second step: it divides by $\ell_i$ once, after the last block of keys, and not at every visit. This saves arithmetic and no word.
#
# <!-- exercise 4.2 --> Write the forward pass with blocks of queries outside. Fast memory has the same allowance as before. If you are stuck after six minutes, run `hint("4.2")` in a cell of your own.

# %% tags=["exercise"] name="ex-4.2"
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
                    o.add_product(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-4.2"
check("4.2", my_flash2)

# %%
budget = costs.flash2(N, d, Br=16, Bc=16)
mine = attempt(run, my_flash2, M=1200, Q=Q, K=K, V=V, Br=16, Bc=16)
print(f"{budget.total:,} words by (4.2), footprint {budget.peak:,}; yours differs by:",
      mine.ledger - budget)

# %% [markdown]
# The input that cost 8,832 words now costs 5,120, in the same 800 words.

# %% [markdown]
# ## 4.3 V in K's place
#
# Look at the inner loop of F2. $K_j$ is needed for the scores, $V_j$ only after them. Yet both are in fast memory at once, from the first line to the last. If $K_j$ goes before $V_j$ comes, one room serves both:
#
# $$ W_3 = 2Nd + 2Nd\left\lceil \frac{N}{B_r} \right\rceil, \qquad \text{footprint } B_r(2d + 2 + B_c) + B_c d . \tag{4.3} $$
#
# This is F3, in code `flash_optimal`.
#
# **Predict.** $N = 64$, $d = 8$, $B_r = B_c = 16$, as before. How many words fewer than F2 does F3 move, and how many words of fast memory does it save?

# %% tags=["predict"]
predict("4.3", words_saved=512, room_saved=128)  #> predict("4.3", words_saved=..., room_saved=...)

# %%
f2 = run(schedules.flash2, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
f3 = run(schedules.flash_optimal, M=1024, Q=Q, K=K, V=V, Br=16, Bc=16).ledger
measured("4.3", words_saved=f2.total - f3.total, room_saved=f2.peak - f3.peak)

# %% [markdown]
# Not one word of traffic is saved: with the same tiles both read $K$ and $V$ four times. What is saved is room, $B_c d = 128$ words of 800. The two pictures show one fast memory over time, first for F2, then for F3.

# %%
explore.memory_timeline(f2, M=800, title="F2: K and V at the same time")

# %%
explore.memory_timeline(f3, M=800, title="F3: V in K's place")

# %% [markdown]
# In F2 the peak is reached while `K`, `V` and the scores are all there. In F3 `K` and `V` take turns and the peak is 672. The 128 words that are now free can hold more queries, and more queries in a block mean fewer passes over $K$ and $V$. The next section spends them.
#
# <!-- exercise 4.3 --> Change your F2 so that it runs in the footprint of (4.3). This time the check gives you that many words and not one more. Besides leaving a `with`, two things give room back: `tile.free()`, at once, and `m.load(A, rows, into=tile)`, which frees `tile` just before it loads. And a name keeps its tile into the next round of the loop, as section 2.2 said. If you are stuck after four minutes, run `hint("4.3")` in a cell of your own.

# %% tags=["exercise"] name="ex-4.3"
def my_flash_optimal(m, Q, K, V, *, Br, Bc):
    """softmax(QKᵀ/√d) V with blocks of queries outside, and V_j where K_j was.

    m: the machine. Q, K, V: slow arrays (N, d). Br, Bc: rows in a block of queries, of keys.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION as in 4.2, but k has gone when v comes
    for i in m.blocks(N, Br):  # stays: q (Br, d), o (Br, d), stats 2·Br
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:     # (Bc, d)
                    s = q @ k.T             # (Br, Bc)
                with s, m.load(V, j) as v:  # (Bc, d), in the room K_j has left
                    stats.update(s, o)
                    o.add_product(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-4.3"
check("4.3", my_flash_optimal)

# %% [markdown]
# ## 4.4 The tile for a given M
#
# Fast memory has $M$ words. Which tile should we take? In (4.2) and (4.3) the traffic depends on $B_r$ alone: $B_r$ rows of queries share one pass over $K$ and $V$. Both sizes take room. So every word given to $B_c$ is a word taken from $B_r$, and $B_c$ should be as small as a tile can be: one key at a time. What is then the largest $B_r$?
#
# $$ B_r(2d + 2 + B_c) + B_c d \le M \quad \text{with } B_c = 1 . \tag{4.4} $$
#
# **Predict.** $N = 8192$, $d = 64$, $M = 16\,384$. How many times fewer words does F3 move with $B_c = 1$ than with $B_c = 64$, each with the largest $B_r$ that fits?

# %% tags=["predict"]
predict("4.4", factor=1.5)  #> predict("4.4", factor=...)

# %%
N, d, M = 8192, 64, 16384


def largest_that_fits(cost, Bc):
    return max(Br for Br in range(1, 200) if cost(N, d, Br=Br, Bc=Bc).peak <= M)


words = {}
print("  Bc    F2: Br        words    F3: Br        words")
for Bc in (64, 16, 4, 1):
    Br2, Br3 = largest_that_fits(costs.flash2, Bc), largest_that_fits(costs.flash_optimal, Bc)
    words_f2 = costs.flash2(N, d, Br=Br2, Bc=Bc).total
    words[Bc] = costs.flash_optimal(N, d, Br=Br3, Bc=Bc).total
    print(f"{Bc:4}  {Br2:8}  {words_f2:11,}  {Br3:8}  {words[Bc]:11,}")
measured("4.4", factor=words[64] / words[1])

# %% [markdown]
# A factor of 1.94 for the choice of $B_c$. Read the table across as well. With $B_c = 64$, putting $V$ in $K$'s place brings 206,569,472 words down to 138,412,032, because the room saved is large. With $B_c = 1$ it is 64 words and changes nothing here. The two ideas want the same thing, room for queries, and the smaller tile takes nearly all of it.
#
# Why then do GPU kernels take 32 to 128 keys at a time? Because their matrix units multiply whole tiles at once. The model counts words and no arithmetic; a later lesson puts the two together.
#
# <!-- exercise 4.4 --> Give the tile with which F3 moves the fewest words in a fast memory of $M$ words, for any sizes. The cell above tried every $B_r$; solve (4.4) instead, and mind that there are only $N$ queries. You may assume that at least $B_r = B_c = 1$ fits, that is $M \ge 3d + 3$. If you are stuck after six minutes, run `hint("4.4")` in a cell of your own.

# %% tags=["exercise"] name="ex-4.4"
def my_best_tiles(N, d, M):
    """The tile (Br, Bc) with which F3 moves the fewest words.

    N, d, M: whole numbers of at least 1.
    """
    ### BEGIN SOLUTION solve (4.4) for Br
    return min(N, (M - d) // (2 * d + 3)), 1
    ### END SOLUTION


# %% tags=["check"] name="check-4.4"
check("4.4", my_best_tiles)

# %% [markdown]
# Your F3 with your tile, on the sizes of the table. The run is dry: it moves shapes instead of numbers and counts the same words. (Loops with `range` are right too, but then the run visits every block, and this one takes a quarter of a minute; the next section's takes a minute.)

# %%
def with_my_tiles():
    Br, Bc = my_best_tiles(N, d, M)
    return run(my_flash_optimal, M=M, dry=True, Q=(N, d), K=(N, d), V=(N, d), Br=Br, Bc=Bc)


ledger = attempt(with_my_tiles).ledger
print(f"{ledger.total:,} words, {ledger.peak:,} of {M:,} words of fast memory used")

# %% [markdown]
# 71,303,168 words, as in the last line of the table, and 16,308 of the 16,384 words are in use. The 76 that are left are too few for one more query, which needs $2d + 3 = 131$.
# <!-- 76, 131 = 16384 - costs.flash_optimal(8192, 64, Br=124, Bc=1).peak, 2 * 64 + 3 -->

# %% [markdown]
# ## 4.5 Twelve, eight, four
#
# To compare the three we give each a tile for $M$ words. F1 gets the $B_c = M/4d$ of its paper, a quarter of $M$ for $K_j$. F2 gets the same quarter for $Q_i$, $B_r = M/4d$, and F3 the $B_r = M/(2d+3)$ of (4.4). Of each count we keep the term that grows with $N^2$:
#
# $$ \frac{W_1 M}{N^2d^2} \to 12\left(1 + \frac{4}{3d}\right), \qquad \frac{W_2 M}{N^2d^2} \to 8, \qquad \frac{W_3 M}{N^2d^2} \to 4\left(1 + \frac{3}{2d}\right) . \tag{4.5} $$
#
# The first: $4Nd/M$ blocks of keys times $3Nd$ words makes 12, and $4N$ words of statistics beside $3Nd$ make the correction. The second: $4Nd/M$ blocks of queries times $2Nd$. The third: $(2d+3)N/M$ blocks times $2Nd$, which is $4$, and $3/(2d)$ of it because a row of queries takes $2d + 3$ words, and not $2d$.
#
# **Predict.** $N = 65\,536$, $d = 64$, $M = 64d^2 = 262\,144$. What will the three constants $WM/(N^2d^2)$ be?

# %% tags=["predict"]
predict("4.5", flash1=12, flash2=8, flash_optimal=4)  #> predict("4.5", flash1=..., flash2=..., flash_optimal=...)

# %%
N, d, M = 65536, 64, 64 * 64**2
answers = {"flash1": my_flash1, "flash2": my_flash2, "flash_optimal": my_flash_optimal}
constant = {}
for name, mine in answers.items():
    tiles = schedules.get(name).tiles(N, d, M)
    room = 2 * M  # for temporaries, if you have any
    dry = attempt(run, mine, M=room, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles).ledger
    constant[name] = dry.total * M / (N * d) ** 2
    print(f"{name:14} {tiles}: {dry.total:,} words")
measured("4.5", **constant)

# %% [markdown]
# 12.44, 8.125 and 4.25: near to 12, 8 and 4, and a little above all three. What is left over has two parts. The corrections of (4.5) give 12.25, 8 and 4.09. The rest are terms that do not grow with $N^2$, such as the $2Nd$ of (4.2), and rounding up to whole blocks: they must shrink as $N$ grows. Closed forms cost nothing, so we can look at four million tokens:
# <!-- 12.25, 4.09 = 12 * (1 + 4 / (3 * 64)), 4 * (1 + 3 / (2 * 64)) -->

# %%
for N in (2**16, 2**19, 2**22):
    row = [(s, s.cost(N, d, **s.tiles(N, d, M)).total * M / (N * d) ** 2)
           for s in (schedules.flash1, schedules.flash2, schedules.flash_optimal)]
    print(f"N = {N:9,}  " + "  ".join(f"{s.name} {c:.2f}" for s, c in row))

# %% [markdown]
# 12.25, 8.00 and 4.10. Formula (4.5) says 12.25, 8 and 4.09. The last hundredth is made of small things: 2,000 rows of queries where (4.5) has $M/(2d+3) = 2001.10$, a last block that is not full, and what is left of $2Nd$.
#
# How much of the way from 12 to 4 is the loop order, and how much the tile? Give F1 its best tile, $B_r = 1$ and $B_c$ as large as fits:
# <!-- 2,000, 2001.10 = schedules.flash_optimal.tiles(2**22, 64, 64 * 64**2)["Br"], 64 * 64**2 / (2 * 64 + 3) -->

# %%
N, Bc = 2**22, (M - 2 * d - 2) // (2 * d + 1)
best = costs.flash1(N, d, Br=1, Bc=Bc)
c = best.total * M / (N * d) ** 2
print(f"F1 with Br = 1, Bc = {Bc}: constant {c:.2f}, footprint {best.peak:,}")

# %% [markdown]
# 6.18. So the tile takes 12.25 down to 6.18, a factor of 2, and the loop order takes it on to 4.10, the factor $3/2$ of section 4.2.

# %% [markdown]
# ## 4.6 Block sizes that do not fit
#
# FlashAttention-1's paper sets $B_c = \lceil M/4d \rceil$ and $B_r = \min(\lceil M/4d \rceil, d)$: a quarter of $M$ for each of $Q_i$, $K_j$, $V_j$, $O_i$ at most. The paper argues up to constant factors, and there it is right. To the word, the scores and the statistics need room as well. The sizes fit exactly when
#
# $$ 2B_c d + B_r(2d + 2 + B_c) \le M . \tag{4.6} $$
#
# With $B_r = d$ and $B_c = M/4d$ the left side is $M/2 + 2d^2 + 2d + M/4$, so (4.6) says $M \ge 8d^2 + 8d$.
#
# **Predict.** $d = 8$, $M = 512$: the published sizes are $B_r = 8$ and $B_c = 16$. How many words does the schedule need?

# %% tags=["predict"]
predict("4.6", footprint=512)  #> predict("4.6", footprint=...)

# %%
try:
    run(schedules.flash1, M=512, Q=Q, K=K, V=V, Br=8, Bc=16)
except FastMemoryFull as full:
    print(full)
measured("4.6", footprint=costs.flash1(64, 8, Br=8, Bc=16).peak)

# %% [markdown]
# 528 words: 16 more than there are. Up to the scores everything fits, $Q_i$ and $O_i$ with room to spare; the tile of scores does not. And $8d^2 + 8d = 576$ is indeed more than 512. For $d = 64$ the limit is 33,280:
# <!-- 16, 576, 33,280 = 528 - 512, 8 * 8**2 + 8 * 8, 8 * 64**2 + 8 * 64 -->

# %%
def published(d, M):
    Bc = costs.ceil_div(M, 4 * d)
    return costs.flash1(10**6, d, Br=min(Bc, d), Bc=Bc).peak


for M in (16384, 33279, 33280, 33281, 58368):
    need = published(64, M)
    verdict = "fit" if need <= M else f"short of {need - M:,}"
    print(f"M = {M:6,}: published sizes need {need:6,}  {verdict}")

# %% [markdown]
# Below 33,280 words they do not fit, and at 33,280 they do. One word more and they do not fit again: $\lceil M/4d \rceil$ rounds up to one more key, which takes $2d + B_r = 192$ words. Where $4d$ does not divide $M$, it is (4.6) that decides. When you ask `schedules.flash1.tiles(N, d, M)` for tiles that do not fit as published, it takes the best of the loop order instead and says so: `schedules.flash1.note(N, d, M)`.
# <!-- more, less = (costs.flash1(10**6, 64, Br=64, Bc=math.ceil(M / (4 * 64))).peak for M in (33281, 33280)) -->
# <!-- 192 = more - less -->

# %% [markdown]
# ## 4.7 How little is possible
#
# We went from 12 to 4. Could the next idea bring 2? A lower bound answers for all ideas at once. One is short: every input word is read and every output word is written, so $W \ge 4Nd$, the *compulsory* traffic. The other one counts how many products $p_{ij}v_{jc}$ can be formed with the words that are in fast memory during a stretch of the run. We call it Theorem A:
#
# $$ W \ge \frac{4N^2d^2}{M + d^2} - (M + d^2) . \tag{4.7} $$
#
# It holds for every $M$ and for every schedule that computes attention exactly, with scores from $d$ products $q_{ic}k_{jc}$ and outputs from products $p_{ij}v_{jc}$; in any order, with any tiles, also if scores are computed twice. It is a derivation of this course, with segments and the Loomis-Whitney inequality as in the papers below; lesson 05 proves it. The library keeps a list, `bounds.BOUNDS`, with the source and the class of each: these two are the bounds `compulsory` and `A_large`. `bounds.lower_bound` takes the largest of what is proved, for very small memories also a third bound, which lesson 07 needs; it does so at $M + 4$ words, since four registers are free.
#
# **Predict.** $N = 8192$, $d = 64$, $M = 58\,368$ (228 KiB of float32, the size of a fast memory on a large GPU). How many times the lower bound does F3 move?
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
# 1.195 times the bound. No schedule of that kind, whatever its order, saves more than a sixth of F3's words here. The 20 percent have names: $M + d^2$ in (4.7) where F3 has $M$ (a factor 1.07), $3/(2d)$ (1.02), rounding up to 19 blocks (1.03), and $2Nd$ for $Q$ and $O$ (1.05). The first goes away as $M/d^2$ grows, the second as $d$ grows, the others as $N$ grows: 4 is the best constant there is.
#
# The picture shows all schedules for fast memories of many sizes.
# <!-- N, d, M = 8192, 64, 58368 -->
# <!-- blocks = math.ceil(N / schedules.flash_optimal.tiles(N, d, M)["Br"]) -->
# <!-- 1.07, 1.02, 19 = (M + d**2) / M, 1 + 3 / (2 * d), blocks -->
# <!-- 1.03, 1.05 = blocks / (N * (2 * d + 3) / M), (blocks + 1) / blocks -->

# %%
explore.words_against_memory(8192, 64)

# %% [markdown]
# Read it from left to right. At the left end even naive attention moves less than the three, for only a few rows of queries fit; what to do with so little memory is a question for lesson 07. Then naive attention is nearly flat, for more memory does not help an algorithm that writes its scores out, while F1, F2 and F3 fall in proportion to $1/M$, and F3 runs closest to the bound. Between the points at 32,768 and at 38,968 words F1 and F2 jump *up*. There, from 33,280 words on, the published sizes begin to fit (section 4.6); the library takes them, for F2 the same quarter of $M$, and they are worse than the tiles it took before. At the right end all of $Q$ fits, and F2 and F3 meet the compulsory $4Nd = 2{,}097{,}152$ words.
# <!-- 32,768, 38,968, 33,280 = 2**15, round(2 ** (15 + 1 / 4)), 8 * 64**2 + 8 * 64 -->

# %% [markdown]
# ## 4.8 Your hand on the tile, and the quiz of lesson 00
#
# The next cell puts everything so far under your hands. Run it, then press Tab until the control you want has the focus; the arrow keys move a slider, the space bar presses a button. (Without a running kernel you see a still picture; the numbers follow in the cell after it.) Four things to look for:
#
# - `Br` up: the words fall, the footprint bar grows, until it says *does not fit* and by how many words.
# - `Bc` up: the footprint grows and the words stay as they are. Choose `flash1` as schedule, and the two change roles.
# - `M` up, then *best tiles for M*: the words fall in proportion to $1/M$, until they reach the floor $4Nd$. (Among tiles that move equally few words, the button takes the one with the largest `Bc`.)
# - `move` under `flash2`, then under `flash_optimal`: in the strip at the bottom, V comes to K, or in K's place.

# %%
explore.tile_tuner()

# %% [markdown]
# The numbers without the picture, for F2 with $N = 4096$ and $d = 64$:

# %%
N, d = 4096, 64
for b in (32, 64, 128, 256):
    square = costs.flash2(N, d, Br=b, Bc=b)
    print(f"Br = Bc = {b:3}: {square.total:11,} words, footprint {square.peak:8,}")

# %% [markdown]
# Twice the tile moves about half the words, and takes two to three times the room.
#
# In lesson 00 you judged three sentences that are often said of FlashAttention: its traffic is $O(1)$, it is $O(N)$, and smaller tiles move fewer words. Now each can be measured. The first two need $N$ and $2N$ at the same $M$: constant traffic would stay the same, linear traffic would double.
#
# **Predict.** By what factor do F3's words grow when $N$ goes from 4096 to 8192, with $d = 64$ and $M = 16\,384$ fixed?

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
# All three are false. The words grow by 3.886, nearly the factor 4 of $N^2$; what is missing is the part $2Nd$, which only doubles. And the smaller tile moves 3.82 times *more*. (If you answered the quiz in lesson 00, your answers stand beside the results.) There is a grain of truth in "$O(N)$": the *room* FlashAttention needs in slow memory is $4Nd$ words, for it stores no scores. Room and traffic are two numbers.

# %% [markdown]
# ## 4.9 A real head
#
# So far the inputs were random. Now two heads of all-MiniLM-L6-v2, a small sentence encoder, on one text of 471 tokens, with $d = 32$: head 2 of layer 0 looks sharply at the token before, head 11 looks everywhere. Their logits, the scores before the softmax:

# %%
sharp, flat = real_head(0, 2), real_head(0, 11)
for name, head in (("sharp", sharp), ("flat", flat)):
    low, high, spread = (head.stats[f"logit_{key}"] for key in ("min", "max", "std"))
    weight = head.stats["largest_weight_mean"]
    print(f"{name:6} logits from {low:.1f} to {high:.1f}, deviation {spread:.1f}; "
          f"largest weight of a row {weight:.2f}")

# %% [markdown]
# The logits of the sharp head run from −63.8 to 83.1. $e^{83.1}$ is about $10^{36}$, within a factor of a few hundred of the largest float32; the running maximum of lesson 03 is what keeps such a head safe. The logits of the flat head stay between −3.9 and 4.6.
#
# **Predict.** Both heads go through F3 with $M = 4096$. How many words more does the sharp head move than the flat one?

# %% tags=["predict"]
predict("4.9", words_more=0)  #> predict("4.9", words_more=...)

# %%
M, tiles = 4096, schedules.flash_optimal.tiles(471, 32, 4096)
on_sharp = attempt(run, my_flash_optimal, M=M, Q=sharp.Q, K=sharp.K, V=sharp.V, **tiles)
on_flat = attempt(run, my_flash_optimal, M=M, Q=flat.Q, K=flat.K, V=flat.V, **tiles)
error = abs(on_sharp.O - exact.attention(sharp.Q, sharp.K, sharp.V)).max()
print(f"{tiles}, largest error below 1e-12: {error < 1e-12}")
print(on_sharp.ledger)
measured("4.9", words_more=on_sharp.ledger.total - on_flat.ledger.total)

# %% [markdown]
# The values agree with exact attention, and both heads move 271,296 words: to the word the same, for the loops never look at a value. Naive attention on this head and this memory moves 1,038,084 words:

# %%
naive = schedules.naive.cost(471, 32, **schedules.naive.tiles(471, 32, M)).total
least, which = bounds.lower_bound("forward", 471, 32, M)
f3 = costs.flash_optimal(471, 32, **tiles).total
print(f"naive {naive:,}; F3 {f3:,}; bound {which} {least:,}")

# %% [markdown]
# F3 moves about a quarter of the naive words, and 1.56 times the bound: with $N = 471$ and $M = 4d^2$, the rounding, the $2Nd$ and the $d^2$ of section 4.7 weigh more than at $N = 8192$.
# <!-- f3 = schedules.flash_optimal -->
# <!-- 1.56 = f3.cost(471, 32, **f3.tiles(471, 32, 4096)).total / bounds.lower_bound("forward", 471, 32, 4096)[0] -->

# %% [markdown]
# ## Misconceptions
#
# - **"FlashAttention's traffic is linear in $N$."** At fixed $M$, doubling $N$ multiplied the words by 3.886 (4.8). Linear is the room in slow memory.
# - **"Smaller tiles fit better, so they move less."** They fit better and move more: tile 64 moved 3.82 times the words of tile 256 (4.8). Small pays for $B_c$ alone, because it leaves room for $B_r$ (4.4).
# - **"A quarter of $M$ for each of four tiles, and it fits."** The scores are a tile too: 528 words where there were 512 (4.6).
# - **"Freeing K before V comes saves traffic."** By itself it saved 0 words and 128 words of room (4.3). Room becomes traffic saved when $B_r$ grows into it.
#
# ## Take-away
#
# - Scores are made, used and forgotten, so the traffic is decided by what stays: with keys outside, partial outputs travel; with queries outside, they do not.
# - $W = 2Nd + 2Nd\lceil N/B_r\rceil$: all of fast memory should hold queries and their outputs. One key at a time, then one value in its place, gives $4N^2d^2/M$, and no schedule of this kind has a smaller constant.
# - Count the footprint to the word: scores, statistics and temporaries included.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Algorithm 1 is F1, with its block sizes.
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 1 is F2.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). $N^2d^2/M$ is optimal up to a constant for $M \ge d^2$.
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). Tight constants for the matrix product; Theorem A borrows from its technique.
#
# **What comes next.** Lesson 05 proves Theorem A, and asks what happens when $M$ is smaller than $d^2$.
