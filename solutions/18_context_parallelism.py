# %% [markdown]
# # 18 Context parallelism
#
# If a sequence does not fit on one device, its rows are distributed over several devices (*context parallelism*). The *network* between the devices then plays the role of slow memory. How many words must cross it?
#
# **What you will learn**
#
# - to write what one of $P$ chips does, and to count the words that it receives and sends;
# - to send keys and values round a ring, holding no more than two blocks of others;
# - to say how few words are possible, and why a ring stays far above that;
# - to share attention by a grid, by travelling rows and by heads, and to choose among them.
#
# **Prerequisites**: lesson 03 (merging partial results) and lesson 06 (the gradients). The bound of section 18.4 goes back to 05b. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# NumPy is enough: all ranks run in this notebook, one at a time, and what moves between them is counted. One cell, in section 18.8, does the same over PyTorch's network library if torch is installed.

# %% tags=["setup"]
import warnings
from importlib.util import find_spec

import numpy as np

from iocourse import distributed, exact
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.doctor import install_command

# %% [markdown]
# ## 18.1 What a rank owns
#
# $P$ chips, called *ranks* and numbered from 0, share the rows of one attention: rank $p$ owns $N/P$ rows of $Q$, of $K$ and of $V$, and must end with the same rows of $O$. There is no common memory: what a rank does not own, somebody has to send it. Here four ranks make the pairs of queries and keys that belong to their own queries.

# %%
explore.rank_work(4, 4)

# %% [markdown]
# Rank 1 has the queries it needs, and a quarter of the keys.
#
# A schedule is one function, which every rank runs. It gets `me`, which knows the rank's number `me.rank`, the number of ranks `me.size`, and how to talk to the others; and it gets the rank's own rows. Here is the simplest: everybody asks everybody for everything. `all_gather` returns the rows of all ranks, joined: of one name the array, of several a tuple in their order; `distributed.attend(q, k, v)` is attention with the keys at hand, and returns outputs and the log-sum-exp of each row of scores.

# %%
def gather_all(me, Q, K, V):
    """The rank's rows of O, (n, d), from its own rows Q, K, V (n, d)."""
    k, v = me.all_gather(K=K, V=V)                  # (N, d) each
    o, _ = distributed.attend(Q, k, v)              # (n, d), and L (n,)
    return o


N, d, P = 12, 4, 4
rng = np.random.default_rng(18)
Q, K, V = rng.standard_normal((3, N, d))
done = distributed.run(gather_all, P, Q=Q, K=K, V=V)
print("as exact attention:", np.allclose(done.O, exact.attention(Q, K, V)))
print(done.ledgers[0])

# %% [markdown]
# `run` cuts the arrays into rows, lets each rank run, puts the outputs together, and returns a ledger for every rank. The names given to a call, `K=` and `V=`, are the lines of the ledger. Rank 0 owns 3 rows of each; it received the other 9 of $K$ and of $V$, and sent its own 3 to three others.
# <!-- 9 = 12 - 3 -->
#
# Both ends of a wire see the same word, so we must say whose it is. We count for rank $p$
#
# $$ W_p = \text{words of inputs that it receives} \;+\; \text{words of partial sums that it sends} . \tag{18.1} $$
# <!-- (18.1) not evaluated: definition -->
#
# Inputs are paid by who needs them; what is a sum over some of the keys, such as an unfinished row of $O$, is paid by who made it. Nothing is counted twice. And there is a second number, the *peak*: words that came from others and are held at once. Here both are 72. Peak and words being equal is no accident: nothing that came has been let go.
#
# ## 18.2 Two halves meet
#
# To let keys go before all have come, a rank must finish with them. Lesson 03 says how. Attention over some of the keys gives $O_1$, normalised, with the log-sum-exp $L_1$ of its scores; attention over others gives $O_2$ and $L_2$. Together they are
#
# $$ L = \log\left(e^{L_1} + e^{L_2}\right), \qquad O = e^{L_1 - L}\, O_1 + e^{L_2 - L}\, O_2 . \tag{18.2} $$
# <!-- (18.2) L = distributed.merge(np.array([[float(O1)]]), np.array([float(L1)]), np.array([[float(O2)]]), np.array([float(L2)]))[1] with e = math.e where L1 <= 300 and L2 <= 300 -->
# <!-- (18.2) O = distributed.merge(np.array([[float(O1)]]), np.array([float(L1)]), np.array([[float(O2)]]), np.array([float(L2)]))[0] with e = math.e, L = distributed.merge(np.array([[float(O1)]]), np.array([float(L1)]), np.array([[float(O2)]]), np.array([float(L2)]))[1].item() where L1 <= 300 and L2 <= 300 -->
#
# Where neither side has a key, $L_1 = L_2 = -\infty$, the result is empty too: $O = 0$ and $L = -\infty$.
#
# A pair $(O, L)$ is $d + 1$ words a row, however many keys stand behind it. That will matter: it can travel too.

# %% tags=["given"]
def merged(o, L, other, other_L):
    """(o, L) over both sets of keys. o, other (n, d); L, other_L (n,)."""
    both = np.logaddexp(L, other_L)
    finite = np.maximum(both, -1e300)               # both is -inf without any key
    return (o * np.exp(L - finite)[:, None] + other * np.exp(other_L - finite)[:, None]), both


# %%
one, two = distributed.attend(Q, K[:5], V[:5]), distributed.attend(Q, K[5:], V[5:])
o, L = merged(*one, *two)
print("5 keys and 7 keys, merged, are all 12:", np.allclose(o, exact.attention(Q, K, V)))

# %% [markdown]
# ## 18.3 The ring
#
# Now the ranks stand in a circle. Queries stay where they are. Keys and values go round: each rank hands its block to the next and takes the block of the one before, merges what it finds there, and hands it on. `me.shift(K=k)` does one such step: it sends `k` to rank $p + 1$ (the last one to rank 0) and returns what rank $p - 1$ sent. With two names it returns two arrays, in their order; with one, the array itself. This is Ring Attention.
#
# **Predict** (compute). $N = 12$, $d = 4$, $P = 4$ as above. How many words does a rank of the ring receive, and how many words of others does it hold at most, if it lets a block go when the next has come?

# %% tags=["predict"]
predict("18.3", words=72, peak=48)  #> predict("18.3", words=..., peak=...)

# %%
ring = distributed.get("ring").run(P, Q=Q, K=K, V=V)
print(ring.ledgers[0])
measured("18.3", words=ring.words, peak=ring.peak)

# %% [markdown]
# <details><summary>What came out</summary>
#
# The same 72 words as by gathering: each of the $N - N/P$ foreign rows of $K$ and $V$ must come once. But at most 48 are held: the block in use, and the one that is arriving.
#
# </details>
#
# For any sizes that $P$ divides
#
# $$ W_{\text{ring}} = 2Nd\,\frac{P - 1}{P}, \qquad \text{peak } \frac{4Nd}{P} \text{ if } P \ge 3 . \tag{18.3} $$
# <!-- (18.3) Wring = distributed.get("ring").ledgers(P, N, d)[p].words with N = n * P, p = P // 2 where P <= 200 -->
# <!-- (18.3) peak = distributed.get("ring").ledgers(P, N, d)[p].peak with N = n * P, p = P // 2 where P >= 3 and P <= 200 -->
#
# Words alone do not make a ring; its peak does. A rank holds $4Nd/P$ words of its own and as many of others, so from $P = 3$ on the ring takes a text $P/2$ times as long as one chip with the same memory.
# <!-- 2 as definition -->
#
# <!-- exercise 18A --> Write the ring. The check compares the words of every rank, array by array, with the closed form, and the peak with two blocks of $K$ and $V$. $P$ need not divide $N$: sizes of blocks differ by one then, and `me.shift` does not mind. The library's own merge refuses while a check runs; `merged` is yours, and one case has scores of 10,000. If you are stuck after six minutes, run `hint("18A")` in a cell of your own.

# %% [raw] name="about-18A"
# title = "Ring attention"
# difficulty = 2
# importance = 5
# minutes = 10
# hints = [
#   "A rank can start before any communication: with which keys? How many blocks does it receive then?",
#   "Four variables change from step to step: the current keys and values, and the outputs with their log-sum-exps over all keys so far.",
#   "Attend to the rank's own keys. Then, once per other rank: shift the current block (not the rank's own one), attend to the received block, and merge the two results. Return only the outputs.",
# ]

# %% tags=["exercise"] name="ex-18A"
def my_ring(me, Q, K, V):
    """The rank's rows of O, (n, d), with K and V going round.

    me: the rank. Q, K, V: its own rows (n, d).
    """
    ### BEGIN SOLUTION its own keys first, then a shift and a merge for each other rank
    k, v = K, V
    o, L = distributed.attend(Q, k, v)
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        o, L = merged(o, L, *distributed.attend(Q, k, v))
    return o
    ### END SOLUTION


# %% tags=["check"] name="check-18A"
check("18A", my_ring)

# %% [markdown]
# What do more ranks bring? `on="dry"` runs a schedule on shapes alone, at any size. (It knows operators, slices and most of NumPy's functions; if yours uses another, the cell says which, and your solution stands.)

# %%
def more_ranks():
    print("   P   gathered: words, peak      ring: words, peak")
    for P in (4, 16, 64):
        shapes = {name: (131072, 128) for name in "QKV"}
        both = [distributed.run(one, P, on="dry", **shapes) for one in (gather_all, my_ring)]
        print(f"{P:4}", *(f"{run.words:14,} {run.peak:11,}" for run in both))


attempt(more_ranks)

# %% [markdown]
# Down the columns: the ring's peak falls with $1/P$, from 16,777,216 words to 1,048,576. Its words do not fall at all; they creep up towards $2Nd$. Each rank has a sixteenth of the work when there are sixteen times as many, and just as much to wait for. Can that be necessary?
#
# ## 18.4 How few words are possible
#
# Look at the $N \times N$ pairs of queries and keys. Some rank makes at least $N^2/P$ of them. Say they lie in $x$ rows and $y$ columns; then $xy \ge N^2/P$. For every such row it needs $q_i$ and has a part of $o_i$ to hand over, $2d$ words; for every such column $k_j$ and $v_j$, again $2d$. Of all these it owns at most its share, $N/P$ rows of four arrays. So it moves
#
# $$ W \ge 2d\,(x + y) - \frac{4Nd}{P} \ge 4d\sqrt{xy} - \frac{4Nd}{P} \ge \frac{4Nd}{\sqrt P} - \frac{4Nd}{P} . $$
# <!-- (above) not evaluated: step of a proof -->
#
# This holds where rows travel whole. A schedule could cut $d$ too. Lesson 05b counted for that case, by Loomis and Whitney, how many products $R$ words allow: $(R + d^2)^2/16d$. The rank with the most products has $N^2d/P$ of them, and that is all the change there is:
#
# $$ W \ge \frac{4Nd}{\sqrt P} - \frac{4Nd}{P} - d^2 \tag{18.4} $$
# <!-- (18.4) W >= distributed.bounds.network(N, d, P) rounded down with N = n * P -->
#
# for some rank, `distributed.bounds.network` in the library. The proof also says what to aim at: equality wants $x = y$. And it shows what is wrong with the ring: its rank has $x = N/P$ rows and all $y = N$ columns, a strip. A square of the same area has a much smaller edge.

# %%
explore.rank_work(16, 16, 4, title="Sixteen ranks: strips, and squares")

# %% [markdown]
# **Predict** (compute). Leave $d^2$ aside. How many times the words of (18.4) does the ring move at $P = 64$?

# %% tags=["predict"]
predict("18.4", times=4.5)  #> predict("18.4", times=...)

# %%
def least(N, d, P):
    """(18.4) without d²."""
    return 4 * N * d / P**0.5 - 4 * N * d / P


for P in (4, 16, 64):
    of_ring = distributed.get("ring").ledgers(P, 131072, 128)[0].words
    print(f"P = {P:2}: ring {of_ring:,} words, at least {least(131072, 128, P):,.0f}, "
          f"{of_ring / least(131072, 128, P):.2f} times; "
          f"{distributed.bounds.network(131072, 128, P):,} with d²")
measured("18.4", times=of_ring / least(131072, 128, 64))

# %% [markdown]
# <details><summary>What came out</summary>
#
# 4.5 times. In general
#
# $$ \frac{2Nd\,(1 - 1/P)}{4Nd\,(1/\sqrt P - 1/P)} = \frac{\sqrt P + 1}{2} , $$
# <!-- (above) distributed.get("ring").ledgers(P, N, d)[0].words / (distributed.bounds.network(N, d, P) + d**2) = distributed.get("ring").ledgers(P, N, d)[0].words / (distributed.bounds.network(N, d, P) + d**2) with k = j + 1, P = k * k, N = n * P where j <= 14 and distributed.bounds.network(N, d, P) > 0 -->
#
# 1.5 at 4 ranks, 2.5 at 16, and growing without end.
# <!-- 4.5 = distributed.get("ring").ledgers(64, 131072, 128)[0].words / (distributed.bounds.network(131072, 128, 64) + 128**2) -->
#
# </details>
#
# ## 18.5 The grid
#
# So give every rank a square. Let the ranks stand in $a$ rows and $b$ columns, $ab = P$. The ranks of one row are in charge of the same $N/a$ queries, those of one column of the same $N/b$ keys, and rank $p = ib + j$ of the pairs where row $i$ and column $j$ meet:

# %%
explore.rank_work(6, 2)

# %% [markdown]
# Rank 2 needs the queries of ranks 0, 1 and 2, and the keys of ranks 2 and 5. (Keys are drawn in the order of the columns.) `row, col = me.grid(a)` gives a rank its two groups. Each is a `me` of its own: `row` has the $b$ ranks of its row, `col` the $a$ ranks of its column, with their own `rank`, `size` and calls. Then there are three steps:
#
# 1. gather the queries of the row, and the keys and values of the column;
# 2. attend: this gives $(O, L)$ for $N/a$ queries, over $N/b$ keys, and only a $b$-th of those queries are the rank's own;
# 3. send to every rank of the row the part of $(O, L)$ that is due to it, and merge what comes.
#
# For the third step `row.cut(o)` cuts the gathered rows back into the pieces of each rank, and `row.all_to_all(O=pieces)` sends piece $s$ to rank $s$ of the row and returns the list of pieces that came, its own in its place. Together,
#
# $$ W_{\text{grid}} = (2d + 1)\left(\frac Na - \frac NP\right) + 2d\left(\frac Nb - \frac NP\right) . \tag{18.5} $$
# <!-- (18.5) Wgrid = distributed.get("grid").ledgers(P, N, d, a=a)[p].words with P = a * b, N = n * P, p = P // 2 where P <= 200 -->
#
# **Predict** (compute). Twelve ranks. Which $a$ has the fewest words? (3 and 4 are close: who carries the 1?)

# %% tags=["predict"]
predict("18.5", a=4)  #> predict("18.5", a=...)

# %%
words = {}
for a in (1, 2, 3, 4, 6, 12):
    words[a] = distributed.get("grid").ledgers(12, 122880, 128, a=a)[0].words
    print(f"a = {a:2}, b = {12 // a:2}: {words[a]:,} words")
measured("18.5", a=min(words, key=words.get))

# %% [markdown]
# <details><summary>What came out</summary>
#
# 4, by a little: the log-sum-exps travel in rows, so rows should be the short side. $a = 12$ is one column, where nothing is sent within a row: the words of the ring.
#
# </details>
#
# <!-- exercise 18B --> Write the grid, for any $a$ that divides $P$. Call what is sent in the third step `O` and `L`. A warning from experience: on a $2 \times 2$ grid one can take rows for columns and notice nothing. The check has $2 \times 3$ as well. If you are stuck after eight minutes, run `hint("18B")` in a cell of your own.
# <!-- 2 \times 2, 2 \times 3 as input -->

# %% [raw] name="about-18B"
# title = "A 2D grid of ranks"
# difficulty = 3
# importance = 5
# minutes = 14
# hints = [
#   "The ranks of a row share queries, those of a column share keys: which group gathers which array?",
#   "After attention, a rank has results for all queries of its row over the keys of its column. Which ranks have results for the same queries over other keys, and which rank needs the final result?",
#   "Split both o and L into the pieces of the row's ranks and exchange them in one call. You receive two lists of pieces for your own queries; merge them one by one, in any order.",
# ]

# %% tags=["exercise"] name="ex-18B"
def my_grid(me, Q, K, V, *, a):
    """The rank's rows of O, (n, d), on a grid of a rows.

    me: the rank. Q, K, V: its own rows (n, d). a: a divisor of me.size.
    """
    row, col = me.grid(a)
    ### BEGIN SOLUTION gather in the row and in the column, attend, deal out in the row, merge
    q = row.all_gather(Q=Q)                         # (N/a, d)
    k, v = col.all_gather(K=K, V=V)                 # (N/b, d)
    o, L = distributed.attend(q, k, v)
    outputs, sums = row.all_to_all(O=row.cut(o), L=row.cut(L))
    o, L = outputs[0], sums[0]                      # (n, d) and (n,)
    for other, other_L in zip(outputs[1:], sums[1:], strict=True):
        o, L = merged(o, L, other, other_L)
    return o
    ### END SOLUTION


# %% tags=["check"] name="check-18B"
check("18B", my_grid)

# %%
def grid_beside_bound():
    for P, a in ((4, 2), (16, 4), (64, 8)):
        shapes = {name: (131072, 128) for name in "QKV"}
        run = distributed.run(my_grid, P, on="dry", a=a, **shapes)
        lower = distributed.bounds.network(131072, 128, P)
        print(f"{a} × {P // a}: {run.words:,} words, {run.words / lower:.3f} times the bound; "
              f"peak {run.peak:,}")


attempt(grid_beside_bound)

# %% [markdown]
# Within one percent of (18.4), and the words fall at last, in the end with $1/\sqrt P$. The price stands in the last column. This grid gathers whole blocks before it attends, so its rank holds, at 64 ranks, seven times as much as in the ring.
# <!-- one_percent = [distributed.get("grid").ledgers(P, 131072, 128, a=int(P**0.5))[0].words / (distributed.bounds.network(131072, 128, P) + 128**2) for P in (4, 16, 64)] -->
# <!-- "Within one percent of (18.4)" if 1 <= max(one_percent) < 1.01 -->
# <!-- "seven times as much as in the ring" if round(distributed.get("grid").ledgers(64, 131072, 128, a=8)[0].peak / distributed.get("ring").ledgers(64, 131072, 128)[0].peak) == 7 -->
#
# ## 18.6 Backward: what shall travel?
#
# In the backward pass $dQ_i$ is a sum over keys, and $dK_j$, $dV_j$ are sums over queries. On a ring one side stays and the other travels, with its sums behind it. In Ring Attention it is the columns that travel, as in the forward pass: $K$ and $V$ go round, and $dK$ and $dV$ with them. `attend_backward` returns what a block of queries and a block of keys add to the three gradients; it is told the rows' log-sum-exp and $D = \mathrm{rowsum}(dO \circ O)$, as in lesson 06.

# %%
def columns_travel(me, Q, K, V, O, dO, LSE):
    """The rank's rows of dQ, dK, dV, each (n, d). LSE: (n,), of the forward pass."""
    D = (dO * O).sum(axis=-1)                       # (n,)
    dQ, dK, dV = distributed.attend_backward(Q, K, V, dO, LSE, D)
    k, v, dk, dv = K, V, None, None                 # sums over the ranks that k has visited
    for _ in range(1, me.size):
        k, v, dk, dv = me.shift(K=k, V=v, dK=dk, dV=dv)  # None sends nothing
        dq_here, dk_here, dv_here = distributed.attend_backward(Q, k, v, dO, LSE, D)
        dQ += dq_here
        dk, dv = (dk_here, dv_here) if dk is None else (dk + dk_here, dv + dv_here)
    if me.size > 1:
        dk, dv = me.shift(dK=dk, dV=dv)             # home, where their own part waits
        dK, dV = dK + dk, dV + dv
    return dQ, dK, dV


# %%
O, dO = exact.attention(Q, K, V), rng.standard_normal((N, d))
LSE = exact.log_sum_exp(exact.scores(Q, K))
backward = {"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "LSE": LSE}
done = distributed.run(columns_travel, 4, **backward)
wanted = exact.attention_backward(Q, K, V, dO)
print("as the exact gradients:",
      all(np.allclose(x, y) for x, y in zip(done.outputs, wanted, strict=True)))
print(done.ledgers[0])

# %% [markdown]
# Sums begin at the first rank that a block visits and end at home, after $P - 1$ hops like everything else. Inputs received and sums sent are $4Nd(P - 1)/P$ words.
#
# **Predict** (compute). Now the rows travel, and $K$, $V$, $dK$ and $dV$ stay. Which arrays go round, if `attend_backward` gets its arguments as they are? Give the words of $W$ for each row of $Q$ and hop, inputs received and sums sent, for $d = 64$.

# %% tags=["predict"]
predict("18.6", words=194)  #> predict("18.6", words=...)

# %%
rows = distributed.get("ring_backward_rows").ledgers(4, 4096, 64)[0]
columns = distributed.get("ring_backward_columns").ledgers(4, 4096, 64)[0]
print(f"columns travel {columns.words:,} words, rows {rows.words:,}, "
      f"{rows.words / columns.words:.3f} times as many")
measured("18.6", words=rows.words / (3 * 1024))

# %% [markdown]
# <details><summary>What came out</summary>
#
# $Q$ and $dO$, with two numbers a row, and $dQ$ behind them: $3d + 2$ words, where columns take $4d$. $O$ stays at home, for $D$ is all that is wanted of it. So
#
# $$ W_{\text{columns}} = 4Nd\,\frac{P-1}{P}, \qquad W_{\text{rows}} = (3d + 2)N\,\frac{P-1}{P} , \tag{18.6} $$
# <!-- (18.6) Wcolumns = distributed.get("ring_backward_columns").ledgers(P, N, d)[p].words with N = n * P, p = P // 2 where P <= 200 -->
# <!-- (18.6) Wrows = distributed.get("ring_backward_rows").ledgers(P, N, d)[p].words with N = n * P, p = P // 2 where P <= 200 -->
#
# a quarter less, but for the two numbers. One number is enough where $e^{s}$ does not overflow: with $e^{-L} dO$ in place of $dO$ and $e^{-L} D$ in place of $D$, $L$ need not travel, and $3d + 1$ words do.
#
# </details>
#
# <!-- exercise 18C --> Let the rows travel. Names for the ledger: those of the arguments, `D`, and `dQ` for the sums. The check allows $3/4$ of the words of columns, and two a row; a scaled `dO` or `D` keeps its name. Hops as in `columns_travel` do that, and a rank holds what is in use and what is arriving, no more. If you are stuck after eight minutes, run `hint("18C")` in a cell of your own.

# %% [raw] name="about-18C"
# title = "Ring backward: query rows are sent"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "attend_backward takes six arrays. Which two of them belong to keys and therefore stay on their rank?",
#   "O is used for one purpose only, before the first shift. Send what a row of queries needs on other ranks, and the partial sum of its gradient, which does not exist before the first step.",
#   "In each step shift the four arrays of the rows and their partial sum together, with None for a sum that does not exist yet. Add the key gradients to your own, and the query gradient to the sum. After all ranks are visited, one more shift returns the sum to its rank; add the part that was computed first.",
# ]

# %% tags=["exercise"] name="ex-18C"
def my_rows_travel(me, Q, K, V, O, dO, LSE):
    """The rank's rows of dQ, dK, dV, each (n, d), with the side of the queries going round.

    me: the rank. Q, K, V, O, dO: its own rows (n, d). LSE: (n,), of the forward pass.
    """
    D = (dO * O).sum(axis=-1)                       # (n,)
    dQ, dK, dV = distributed.attend_backward(Q, K, V, dO, LSE, D)
    ### BEGIN SOLUTION what a row needs travels, its sum behind it; dK and dV grow at home
    q, do, lse, dq = Q, dO, LSE, None
    for _ in range(1, me.size):
        q, do, lse, D, dq = me.shift(Q=q, dO=do, LSE=lse, D=D, dQ=dq)
        dq_here, dk_here, dv_here = distributed.attend_backward(q, K, V, do, lse, D)
        dK += dk_here
        dV += dv_here
        dq = dq_here if dq is None else dq + dq_here
    if me.size > 1:
        dQ = dQ + me.shift(dQ=dq)
    return dQ, dK, dV
    ### END SOLUTION


# %% tags=["check"] name="check-18C"
check("18C", my_rows_travel)

# %% [markdown]
# Beside the grid it is the ring's old trouble. On a grid rows carry three arrays and columns four, so $a : b = 3 : 4$ is best, and the bound of the backward pass is about $4\sqrt3\,Nd/\sqrt P$. At twelve ranks:

# %%
for name, options in (("ring_backward_columns", {}), ("ring_backward_rows", {}),
                      ("grid_backward", {"a": 4}), ("grid_backward", {"a": 3})):
    W = distributed.get(name).ledgers(12, 122880, 128, **options)[0].words
    print(f"{name:22}", *(f"a = {a}" for a in options.values()), f"{W:,} words")
print(f"at least {distributed.bounds.network_backward(122880, 128, 12):,}")

# %% [markdown]
# Travelling rows spare a quarter, the grid of 3 × 4 nearly half of the rest, and nothing can spare much more: the bound lies half a percent below.
# <!-- twelve = {name: distributed.get(name).ledgers(12, 122_880, 128, **options)[0].words for name, options in (("ring_backward_columns", {}), ("ring_backward_rows", {}), ("grid_backward", {"a": 3}))} -->
# <!-- "rows spare a quarter" if round(twelve["ring_backward_rows"] / twelve["ring_backward_columns"], 2) == 0.75 -->
# <!-- "nearly half of the rest" if 0.5 < twelve["grid_backward"] / twelve["ring_backward_rows"] < 0.52 -->
# <!-- "half a percent below" if 1.004 < twelve["grid_backward"] / distributed.bounds.network_backward(122_880, 128, 12) < 1.006 -->
# <!-- 3 × 4 = (distributed.time_model.best_grid(distributed.get("grid_backward"), 12, 122_880, 128), 12 // 3) -->
#
# ## 18.7 Heads
#
# A layer has $H$ heads that know nothing of each other. A rank which had all tokens of *its* heads could work alone. DeepSpeed-Ulysses does that: it exchanges before attention, so that each rank has all $N$ rows of $H/P$ heads, and exchanges back after it. Arrays are $(n, H, d)$ now; $P$ must divide $H$. Each of $Q$, $K$, $V$ and $O$ has $NHd/P$ words on a rank, of which all but a $P$-th leave:
#
# $$ W_{\text{Ulysses}} = 4NHd\,\frac{P - 1}{P^2} . \tag{18.7} $$
# <!-- (18.7) WUlysses = distributed.get("ulysses").ledgers(P, N, d, H=H)[p].words with H = h * P, N = n * P, p = P // 2 where P <= 200 -->
#
# **Predict** (compute). The grid has $H$ times the words of (18.5). Take $a = b = \sqrt P$, leave the 1 aside, and let $P \le H$ be a square. From which $P$ on has Ulysses fewer words?

# %% tags=["predict"]
predict("18.7", P=4)  #> predict("18.7", P=...)

# %%
def of_layer(name, P, H, **options):
    return distributed.get(name).ledgers(P, 131072, 128, H=H, **options)[0].words


fewer = []
for P, a in ((1, 1), (4, 2), (16, 4), (64, 8)):
    one, other = of_layer("ulysses", P, 64), of_layer("grid", P, 64, a=a)
    fewer += [P] if one < other else []
    print(f"P = {P:2}: Ulysses {one:11,}, grid {other:13,} words")
measured("18.7", P=min(fewer))

# %% [markdown]
# <details><summary>What came out</summary>
#
# The grid over Ulysses is $P/(\sqrt P + 1)$, so Ulysses is ahead from $P = 4$ on, the first square above 1: by a third there, 3.2 times at 16 ranks, 7.1 times at 64. And it needs no log-sum-exp to travel.
#
# </details>
#
# <!-- layer = {(n, P): distributed.get(n).ledgers(P, 131072, 128, H=64, **o)[0].words for P in (16, 64) for n, o in (("ulysses", {}), ("grid", {"a": int(P**0.5)}))} -->
# <!-- 3.2, 7.1 = (layer["grid", P] / layer["ulysses", P] for P in (16, 64)) -->
#
# No theorem is hurt: (18.4) is about one head. For heads the library's bound is near $4NHd(P-1)/(P(P+1))$, a factor of $(P + 1)/P$ below (18.7).
#
# <!-- exercise 18D --> Write it. `me.all_to_all` with three lists of pieces does the first exchange; a rank's piece for rank $s$ is its own rows, of the heads of rank $s$, which are $H/P$ heads that follow each other. `np.concatenate` joins pieces along an axis, `distributed.attend` takes (n, H, d) too, and `me.cut` cuts rows into those of each rank. If you are stuck after six minutes, run `hint("18D")` in a cell of your own.

# %% [raw] name="about-18D"
# title = "Ulysses: heads instead of rows"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "Before the exchange a rank has some rows of all heads, afterwards all rows of some heads. Along which axis are the arrays split, and along which are the received pieces joined?",
#   "all_to_all takes, per name, a list of me.size pieces and returns one such list per name.",
#   "The second exchange is the inverse: split the outputs into the rows of each rank, exchange, and join the received pieces along the head axis.",
# ]

# %% tags=["exercise"] name="ex-18D"
def my_ulysses(me, Q, K, V):
    """The rank's rows of O, (n, H, d).

    me: the rank; me.size divides H. Q, K, V: its own rows (n, H, d), of all heads.
    """
    ### BEGIN SOLUTION from rows to heads, attend, and back
    def by_heads(array):
        return np.split(array, me.size, axis=1)     # (n, H/P, d) for each rank

    came = me.all_to_all(Q=by_heads(Q), K=by_heads(K), V=by_heads(V))
    q, k, v = (np.concatenate(pieces) for pieces in came)  # (N, H/P, d)
    o, _ = distributed.attend(q, k, v)
    return np.concatenate(me.all_to_all(O=me.cut(o)), axis=1)
    ### END SOLUTION


# %% tags=["check"] name="check-18D"
check("18D", my_ulysses)

# %% [markdown]
# Where it ends is clear: at $P = H$. Where there are more, several ranks share a head, for example in a ring. Published as USP, it is *ulysses ring* on the map.
#
# ## 18.8 The map, by hand
#
# Run the next cell and drag the line at $P$, or use the sliders. (Without a running kernel it is a still picture.) Look for these:
#
# - $H = 1$: ring and grid start together at $P = 2$. Which is how far above the black line at 64?
# - $H = 16$, and $P$ from 8 to 16 to 32: where does Ulysses end, and who takes over?
# - $H = 1$ and `pass` to *backward*: the two rings keep their distance of a quarter. At which $P$ does the grid leave them?
# - The column *memory*, which counts a rank's own rows too: is the schedule with the fewest words ever the one with the least memory? (At $H = 16$ and $P = 16$ it is.)
#
# The dashed line, *claimed*, is a bound whose proof no second reader has checked yet: no ratio is taken over it.

# %%
explore.distributed_explorer("forward", 16, N=131072, d=128, H=16)

# %% [markdown]
# <details><summary>What the hand should have found</summary>
#
# With one head and 64 ranks the ring stands 4.51 times above the line, and the grid on it. With 16 heads Ulysses ends at 16; at 32 ranks two share a head, and `ulysses ring 2 × 16` is down to 48,234,496 words. Backward the grid is ahead from $P = 4$ on. And with 16 heads on 16 ranks Ulysses has the fewest words and the least memory; with one head and the schedules drawn here, the grid has the fewest words and the ring the least memory.
#
# </details>
#
# <!-- 4.51 = distributed.get("ring").ledgers(64, 131072, 128)[0].words / distributed.bounds.network(131072, 128, 64) -->
# <!-- 48,234,496 = distributed.get("ulysses_ring").ledgers(32, 131072, 128, H=16, a=2)[0].words -->
# <!-- drawn = [{one.name: one for one in distributed.time_model.compare_schedules("forward", 131072, 128, P, distributed.time_model.cluster("nvlink4"), H=1)} for P in (2, 3, 4, 6, 16, 64)] -->
# <!-- "the grid has the fewest words and the ring the least memory" if all(one["grid"].words == min(x.words for x in one.values()) and one["ring"].memory == min(x.memory for x in one.values()) for one in drawn) -->
# <!-- 2 × 16 = (distributed.time_model.best_grid(distributed.get("ulysses_ring"), 32, 131_072, 128, H=16), 32 // 2) -->
#
# The two columns of times are a matter of lesson 19.
#
# And a real network? The same text runs on PyTorch's: `on="gloo"` starts $P$ ranks that are threads of this process and talk through `torch.distributed`, as processes on many machines would. The rows are PyTorch's tensors then, so a ring that makes arrays of its own with NumPy stops here, though it is right. Values and ledgers must be the same. In the next lesson the ranks become processes.

# %%
def on_torch(*schedules):
    """The ring on both engines; where torch is not installed, a sentence."""
    if not find_spec("torch"):
        print("torch is not installed here:", install_command.command("torch"))
        return
    for one in schedules:
        here = distributed.run(one, 4, Q=Q, K=K, V=V)
        with warnings.catch_warnings(action="ignore"):  # np.exp of a torch tensor warns
            there = distributed.run(one, 4, on="gloo", Q=Q, K=K, V=V)
        print(f"same values to 1e-12: {abs(here.O - there.O).max() < 1e-12},",
              f"same ledgers: {here.ledgers == there.ledgers}")


attempt(on_torch, my_ring)

# %% [markdown]
# ## Misconceptions
#
# - **"Twice the chips, half the words for each."** Not on a ring: $2Nd$ words come to every rank, however many there are (18.3).
# - **"The ring is best, it only talks to neighbours."** Of the schedules drawn here for one head it needs the least memory; this is a comparison, not a theorem. In words it is $(\sqrt P + 1)/2$ above what a grid reaches (18.4, 18.5).
# - **"K and V must be what travels."** Backward, the side of the queries is a quarter lighter (18.6).
# <!-- "it needs the least memory" if all(one["ring"].memory == min(x.memory for x in one.values()) for one in drawn) -->
#
# ## Take-away
#
# - A rank pays for inputs it receives and partial sums it sends. For $N^2/P$ pairs a strip has long edges, a square short ones: ring against grid.
# - $(O, L)$ makes attention a sum that can be begun anywhere and finished at home.
# - Where $K$ and $V$ have as many heads as $Q$, heads are the cheapest cut here, while there are enough of them.
# <!-- "heads are the cheapest cut here" if all(min(distributed.time_model.compare_schedules("forward", 131072, 128, P, distributed.time_model.cluster("nvlink4"), H=48), key=lambda one: one.words).name == "ulysses" for P in (3, 4, 8, 16)) -->
#
# ## References
#
# - H. Liu, M. Zaharia, P. Abbeel: *Ring Attention with Blockwise Transformers for Near-Infinite Context*, 2023, [arXiv:2310.01889](https://arxiv.org/abs/2310.01889). Keys and values go round a ring.
# - D. Li and others: *DistFlashAttn: Distributed Memory-efficient Attention for Long-context LLMs Training*, 2023 (first called LightSeq), [arXiv:2310.03294](https://arxiv.org/abs/2310.03294). Sequences shared among chips, with balance under a causal mask: a subject of lesson 19.
# - S. A. Jacobs and others: *DeepSpeed Ulysses*, 2023, [arXiv:2309.14509](https://arxiv.org/abs/2309.14509). From rows to heads and back.
# - J. Fang, S. Zhao: *USP: A Unified Sequence Parallelism Approach for Long Context Generative AI*, 2024, [arXiv:2405.07719](https://arxiv.org/abs/2405.07719). Both together.
# - D. Irony, S. Toledo, A. Tiskin: *Communication lower bounds for distributed-memory matrix multiplication*, 2004. The argument of (18.4) for matrix products.
#
# - A. Sun and others: *BurstAttention: an efficient distributed attention framework for extremely long sequences*, 2024, [arXiv:2403.09347](https://arxiv.org/abs/2403.09347). Its published code lets rows travel backward.
#
# The grid and the bounds are derived here; we have not searched for everybody who had them before.
#
# **What comes next.** <!-- next --> Under a causal mask the last rank has nearly twice the average work, sequences have different lengths, and communication can overlap with computation.
