# %% [markdown]
# # 06 The backward pass
#
# Training asks attention a second question: if the loss changes with $O$ in this way, how does it change with $Q$, $K$ and $V$? Lesson 01 answered it with three $N \times N$ matrices. This lesson gets by without any of them: the weights are computed again from one word a row, and the one row sum that seems to need all of a row does not. Then it is a matter of orders, as in lesson 04: $20\,N^2d^2/M$ words for FlashAttention's, $16$ with one sum made first, and fewer still for an order that computes all scores *twice*. How little is possible at all is the subject of a second evening, [06b](06b_backward_lower_bounds.ipynb).
#
# **What you will learn**
#
# - to replace a stored matrix by a recomputation, and to compute a tile of $dS$ without the other keys of its rows;
# - to write FlashAttention's backward pass for the machine, in 16 instead of 20 times $N^2d^2/M$ words;
# - to predict the constant of a sweep without running it, and to find the cheapest way to divide the work.
#
# **Prerequisites**: lesson 01 (the gradients), lesson 03 (log-sum-exp) and lesson 04 (the three forward orders). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import FastMemoryFull, bounds, exact, explore, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head
from iocourse.machine import probabilities

# %% [markdown]
# ## 6.1 Three gradients, once more
#
# We want the gradients of a loss with respect to $Q$, $K$ and $V$. What we are given is $dO$, its gradient with respect to $O$. In the end a schedule will do it tile by tile, as the picture shows.

# %%
explore.backward_tile("columns", d=8, Br=4, Bc=16, title="One tile")

# %% [markdown]
# Blue is what stays in fast memory, for a block of keys; hatched is what a block of queries brings as it passes by, and $dQ$ it takes away again. Inside, four matrices are made for these pairs alone, and none of them ever leaves. Where $L$ and $D$ come from, one word a row, is the subject of sections 6.3 and 6.4; what should stay and what should pass, that of the others.
#
# First the formulas. Lesson 01 went back from $O$ step by step. Here are its formulas for single words, since words are what we are going to count. The forward pass,
#
# $$ s_{ij} = \frac{1}{\sqrt d}\sum_c q_{ic} k_{jc}, \qquad p_{ij} = \frac{e^{s_{ij}}}{\sum_{j'} e^{s_{ij'}}}, \qquad o_{ic} = \sum_j p_{ij} v_{jc} , \tag{6.1} $$
#
# and back through it, from $O$ to $V$ and $P$, from $P$ to $S$, from $S$ to $Q$ and $K$:
#
# $$ dv_{jc} = \sum_i p_{ij}\, do_{ic}, \qquad dp_{ij} = \sum_c do_{ic}\, v_{jc} , \tag{6.2} $$
#
# $$ ds_{ij} = p_{ij}\,(dp_{ij} - D_i), \qquad D_i = \sum_{j'} p_{ij'}\,dp_{ij'} , \tag{6.3} $$
#
# $$ dq_{ic} = \frac{1}{\sqrt d}\sum_j ds_{ij}\, k_{jc}, \qquad dk_{jc} = \frac{1}{\sqrt d}\sum_i ds_{ij}\, q_{ic} . \tag{6.4} $$
#
# One rule gives all of them: look at everything a word goes into, multiply the gradient found there by the slope with which it goes in, and add up. So $v_{jc}$ goes into $o_{ic}$ for every query $i$, with slope $p_{ij}$.
#
# These are five products of matrices: $S$, $dP$, $dV$, $dQ$, $dK$. As code:

# %%
def gradients(Q, K, V, dO):
    """dQ, dK, dV, each (N, d), and dS (N, N), with every matrix written out."""
    scale = Q.shape[1] ** -0.5
    P = exact.softmax(scale * Q @ K.T)                   # (N, N)
    dV = P.T @ dO                                        # (N, d)
    dP = dO @ V.T                                        # (N, N)
    dS = P * (dP - (P * dP).sum(axis=1, keepdims=True))  # (N, N)
    return scale * dS @ K, scale * dS.T @ Q, dV, dS


rng = np.random.default_rng(6)
named = dict(zip(("Q", "K", "V", "dO"), rng.standard_normal((4, 12, 3)), strict=True))
dQ, dK, dV, dS = gradients(**named)
for got, right in zip((dQ, dK, dV), exact.attention_backward(**named), strict=True):
    print("as exact.attention_backward:", np.allclose(got, right, rtol=0, atol=1e-12))
print(f"largest sum of a row of dS: {abs(dS.sum(axis=1)).max():.9f}")

# %% [markdown]
# The three gradients agree with those of lesson 01, which were tested against finite differences there. And the rows of $dS$ sum to 0: adding the same number to all scores of a row changes no weight, so it cannot change the loss.

# %% [markdown]
# ## 6.2 The price of writing it down
#
# We want to know what (6.2) to (6.4) cost when each formula is carried out by itself, for whole matrices, as a first implementation does. The forward pass has left $P$ in slow memory. Then:
#
# | step | $P$ | $dP$ | $dS$ |
# | --- | --- | --- | --- |
# | $dV = P^\top dO$ | read | | |
# | $dP = dO\,V^\top$ | | written | |
# | $D_i$, row by row | read | read | |
# | $dS = P \circ (dP - D)$ | read | read | written |
# | $dQ = dS\,K/\sqrt d$ | | | read |
# | $dK = dS^\top Q/\sqrt d$ | | | read |
#
# $P$ and $dP$ are read twice in the middle, because the whole row has to be seen for $D_i$ before its first $ds_{ij}$ can be formed. (If a row of both fits in fast memory, once is enough.) This is B0, in code `standard_backward`, the backward pass that FlashAttention was compared with.
#
# **Predict** (compute). Count the table: how many times $N^2$ words move for the three matrices together?

# %% tags=["predict"]
predict("6.2", squares=9)  #> predict("6.2", squares=...)

# %%
def counted(name, N, d, M, **problem):
    """A dry run of a backward schedule, with the tiles it picks for M."""
    schedule = schedules.get(name)
    tiles = schedule.tiles(N, d, M, **problem)
    arrays = schedule.shapes(N, d)
    return run(schedule, M=M, dry=True, **arrays, **tiles, **problem).ledger


N, d, M = 4096, 64, 16384
b0 = counted("standard_backward", N, d, M)
squares = sum(read + written for name, read, written in b0.rows() if name in ("P", "dP", "dS"))
print(f"{b0.total:,} words, {squares / b0.total:.0%} of them for P, dP and dS")
measured("6.2", squares=squares // N**2)

# %% [markdown]
# <details><summary>What B0 moves</summary>
#
# 182,190,080 words, and nine times $N^2$ of them, 83%, go to the three large matrices.
#
# </details>
#
# More fast memory would hardly help with the three matrices. They have to go.

# %% [markdown]
# ## 6.3 The weights again, from one word a row
#
# In the forward pass $S$ and $P$ never left fast memory. The backward pass wants $P$ again. We can store it after all, $N^2$ words, or compute it a second time. For that the row's maximum and sum are enough, and the two fit in one word, the log-sum-exp $L_i = m_i + \log \ell_i$ of lesson 03:
#
# $$ p_{ij} = \frac{e^{s_{ij} - m_i}}{\ell_i} = e^{s_{ij} - L_i} . \tag{6.5} $$
#
# No maximum has to be looked for and no sum to be formed: each weight follows from its own score. So a tile of $P$ can be made without its neighbours, which the forward pass could not do.

# %%
N, d = 512, 16
Q, K, V, dO = rng.standard_normal((4, N, d))
S = exact.scores(Q, K)               # (N, N)
L = exact.log_sum_exp(S)             # (N,)
P = np.exp(S - L[:, None])           # (N, N)
print(f"(6.5) is softmax: {np.allclose(P, exact.softmax(S), rtol=0, atol=1e-12)}")
print(f"P has {P.size:,} words, L has {L.size}")

# %% [markdown]
# 512 words instead of 262,144. The price is arithmetic, $N^2d$ multiply-adds for the scores. Words it costs none: $K_j$ and $Q_i$ have to be in fast memory anyway, for $dQ$ and $dK$. This is the bargain of *recomputation*, and we will strike it a second time in section 6.8.

# %% [markdown]
# ## 6.4 A row sum without the row
#
# One obstacle is left. $D_i$ of (6.3) is a sum over all keys, and a tile of $dS$ holds only some of them. Lesson 01 had the way out as a remark, (1.9): write out $dp_{ij'}$ and exchange the sums.
#
# $$ D_i = \sum_{j'} p_{ij'} \sum_c do_{ic}\, v_{j'c} = \sum_c do_{ic} \sum_{j'} p_{ij'}\, v_{j'c} = \sum_c do_{ic}\, o_{ic} . \tag{6.6} $$
#
# The sum over the keys was done in the forward pass, and its result is the output. FlashAttention's paper has this step. What if a tile took (6.3) all the same, with the keys it has?

# %%
O, dP = P @ V, dO @ V.T                        # (N, d), (N, N)
over_keys = (P * dP).sum(axis=1)               # (N,)
over_64 = (P * dP)[:, :64].sum(axis=1)         # (N,), the keys of one tile only
over_columns = (dO * O).sum(axis=1)            # (N,)
for i in (0, 1, 2):
    keys, columns = over_keys[i], over_columns[i]
    print(f"D[{i}]: {keys:9.6f} over all keys, {columns:9.6f} over the columns, "
          f"{over_64[i]:9.6f} over 64 keys")
print(f"all {N} agree: {np.allclose(over_keys, over_columns, rtol=0, atol=1e-12)}")

# %% [markdown]
# The sum over columns is right, and it takes $2Nd$ words instead of $2N^2$: fewer by a factor of $N/d = 32$. The sum over a tile's own keys is another number. With (6.5) and (6.6) every tile of $dS$ stands on its own.
#
# <!-- exercise 6A --> Compute the tile of $P$ and the tile of $dS$ for some queries and some keys. The other keys are not there, and the check looks at tiles with all keys and with a few. This is plain NumPy, without a machine. If you are stuck after five minutes, run `hint("6A")` in a cell of your own.

# %% [raw] name="about-6A"
# title = "One tile of score gradients"
# difficulty = 2
# importance = 5
# minutes = 8
# hints = [
#   "Four steps: scores, weights, D, score gradients. Which of them would need keys outside the tile by its definition?",
#   "The weights: do not divide by a sum over the tile, because L contains the sum over all keys. D has two formulas; only one of them does not need the other keys.",
#   "p is the exponential of scores minus L, per row. D is the row sum of do times o. The rest is (6.3), with dp from do and v.",
# ]

# %% tags=["exercise"] name="ex-6A"
def my_scores_gradient(q, k, v, do, o, L):
    """The tile of P and the tile of dS for some queries and some keys.

    q, do, o: (Br, d). k, v: (Bc, d). L: (Br,), the log-sum-exp of each row over all N keys.
    Returns (p, ds), each (Br, Bc).
    """
    ### BEGIN SOLUTION scores, weights by (6.5), D by (6.6), and (6.3)
    s = q @ k.T / np.sqrt(q.shape[1])   # (Br, Bc)
    p = np.exp(s - L[:, None])          # (Br, Bc)
    D = (do * o).sum(axis=1)            # (Br,)
    return p, p * (do @ v.T - D[:, None])
    ### END SOLUTION


# %% tags=["check"] name="check-6A"
check("6A", my_scores_gradient)

# %% [markdown]
# ## 6.5 Keys outside: FlashAttention-1's backward pass
#
# We want all three gradients from such tiles, and no $N \times N$ matrix in slow memory. What one tile $(i, j)$ contributes:
#
# $$ dV_j \mathrel{+}= P_{ij}^\top dO_i, \qquad dK_j \mathrel{+}= dS_{ij}^\top Q_i/\sqrt d, \qquad dQ_i \mathrel{+}= dS_{ij} K_j/\sqrt d . $$
#
# Two gradients belong to the keys and one to the queries. So FlashAttention-1 takes the keys outside again: $K_j$, $V_j$, $dK_j$, $dV_j$ stay, and $dQ_i$ travels. A block of queries brings $Q_i$, $O_i$ (for $D_i$), $dO_i$, $dQ_i$ and two statistics a row, and $dQ_i$ goes back. This is B1, in code `flash1_backward`:
#
# $$ W_{\mathrm{B1}} = 7Nd + \left\lceil \frac{N}{B_c} \right\rceil (5Nd + 2N), \qquad \text{footprint } 4B_c d + B_r(4d + 2 + B_c) . \tag{6.7} $$
#
# The $7Nd$ are $K$ and $V$ in, zeros for the three gradients out, $dK$ and $dV$ out. As in the forward pass, $B_r$ does not occur in $W$.
#
# The paper takes the block size of its forward pass, $B_c = M/4d$.
#
# **Predict** (compute). $d = 8$, $M = 512$, so $B_c = 16$. $K_j$, $V_j$, $dK_j$ and $dV_j$ are in fast memory. How many words are left for everything else?

# %% tags=["predict"]
predict("6.5", left=0)  #> predict("6.5", left=...)

# %%
small = dict(zip(("Q", "K", "V", "dO"), rng.standard_normal((4, 64, 8)), strict=True))
small |= schedules.saved_for_backward(small["Q"], small["K"], small["V"])  # O, P, LSE, m and l
given = {name: small[name] for name in schedules.flash1_backward.operands}
try:
    run(schedules.flash1_backward, M=512, **given, Br=1, Bc=16)
except FastMemoryFull as full:
    print(full)
try:
    schedules.flash1_backward.tiles(64, 8, 512, published=True)
except ValueError as short:
    print(short)
measured("6.5", left=512 - 4 * 16 * 8)

# %% [markdown]
# <details><summary>How much is left</summary>
#
# Nothing is left, not even for one row of $Q$: four tiles of $M/4d$ rows fill $M$ exactly. The published sizes never fit, and with the paper's $B_r = \min(M/4d, d) = 8$ the library names the words that are short, 400. The paper argues up to constant factors, where a smaller block is as good.
#
# </details>
#
# As in lesson 04, the order is one thing and the tile another. The best tile, which the library takes unless told otherwise, has $B_r = 1$ and $B_c \approx M/(4d+1)$:
#
# $$ \frac{W_{\mathrm{B1}}M}{N^2d^2} \to 20\left(1 + \frac{2}{5d}\right)\left(1 + \frac{1}{4d}\right) . $$
#
# Five arrays for each of $4Nd/M$ blocks: $Q$, $O$, $dO$, $dQ$ in, and $dQ$ out. The brackets are the statistics and the tile of scores. Which of the five can be spared?

# %% [markdown]
# ## 6.6 D first, and dQ in dO's place
#
# $O_i$ comes once for each block of keys, only to give the same $D_i$ again. FlashAttention-2 computes $D$ first, in a pass of $2Nd + N$ words, and from then on reads one word a row. Here is that pass. `add_row_dots` adds to each row's word the sum over columns of the products of two tiles, without a temporary.

# %%
def row_products(m, O, dO, *, Br):
    """D_i = Σ_c dO_ic O_ic for all rows, to slow memory."""
    D = m.new("D", (O.shape[0],))
    for i in m.blocks(O.shape[0], Br):
        with m.load(O, i) as o, m.load(dO, i) as do, m.zeros(i) as D_i:
            D_i.add_row_dots(do, o)
            m.store(D_i, D, i)
    return D


run(row_products, M=200, O=small["O"], dO=small["dO"], Br=10).ledger

# %% [markdown]
# $2Nd + N = 1{,}088$ words, once.
#
# Two more things are saved. On the first visit there is nothing to read of $dQ_i$: it begins as zeros in fast memory. (A block `j` of `m.blocks` knows whether it is the first: `j.first`.) And look at the room: $dO_i$ is needed for $dV_j$ and for $dS_{ij}$, $dQ_i$ only afterwards, so $dQ_i$ can have $dO_i$'s place. This is B3, in code `fused_backward`:
#
# $$ W_{\mathrm{B3}} = 5Nd + N + \left\lceil \frac{N}{B_c} \right\rceil (4Nd + 2N), \qquad \text{footprint } 4B_c d + B_r(2d + 2 + B_c) . \tag{6.8} $$
#
# (B2, `flash2_backward`, is the same order with $dO_i$ and $dQ_i$ side by side, so $3d$ instead of $2d$. Sharing the place is worth $d$ words of room, and one more key takes $4d$ words of it.) With $B_r = 1$ and $B_c \approx M/(4d+1)$ the four arrays make $4 \cdot 4 = 16$ for both.
#
# **Predict** (compute). $N = 65\,536$, $d = 64$, $M = 64d^2$. How many times as many words as B3 does B1 move? And which part of B3's words is written, the rest being read?

# %% tags=["predict"]
predict("6.6", b1_over_b3=1.25, written=0.25)  #> predict("6.6", b1_over_b3=..., written=...)

# %%
N, d, M = 65536, 64, 64 * 64**2
b1, b3 = counted("flash1_backward", N, d, M), counted("fused_backward", N, d, M)
print(f"B1 {b1.total:,} words, B3 {b3.total:,} words: {b3.read:,} read, {b3.written:,} written")
measured("6.6", b1_over_b3=b1.total / b3.total, written=b3.written / b3.total)

# %% [markdown]
# <details><summary>B1 against B3, and what is written</summary>
#
# A factor of 1.251, the five arrays against four. A quarter of B3's words is written: of $Q$, $dO$, $dQ$ in and $dQ$ out only the last. So 16 is $12 + 4$, and section 6.10, in the second evening, comes back to the 12.
#
# </details>
#
# On the machine two more operations help, and neither takes room: `probabilities(s, L_i)` turns scores into weights by (6.5), and `s.multiply_by_matmul(do, v.T, less=D_i)` multiplies `s` by $dO_iV_j^\top - D_i$, entry by entry. So one tile is $S_{ij}$, then $P_{ij}$, then $dS_{ij}$. Transposes are views: `dv.add_matmul(s.T, do)`. Zeros for a gradient are `m.zeros(j, d)`.
#
# <!-- exercise 6B --> Write B3: blocks of keys outside, blocks of queries inside. The first lines, with the pass for $D$, are there. Mind the factor $1/\sqrt d$, which belongs to $S$, to $dQ$ and to $dK$. The check allows the words of (6.8). As fast memory it gives the footprint, one more tile of scores and four words a row; that is no room for $dO_i$ and $dQ_i$ side by side. If you are stuck after twelve minutes, run `hint("6B")` in a cell of your own.

# %% [raw] name="about-6B"
# title = "The fused backward pass"
# difficulty = 4
# importance = 5
# minutes = 20
# hints = [
#   "Outer loop: one block of keys with its four tiles. Two of them are loaded, two start at zero. Which tiles does a block of queries need, and what is the last line that needs each of them?",
#   "One iteration: scale q; compute scores, and weights from L; load dO; add the transposed weights times dO to dV; turn the weights into score gradients; free dO; update dK; load dQ, update it, store it.",
#   "multiply_by_matmul turns weights into score gradients in place, so one tile serves for s, p and ds. q is already scaled, which is correct for dK; dQ still needs the scale. For the first block of keys (j.first), create dQ with zeros instead of loading it.",
# ]

# %% tags=["exercise"] name="ex-6B"
def my_fused_backward(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """dQ, dK, dV with blocks of keys outside, and dQ_i in dO_i's place.

    m: the machine. Q, K, V, O, dO: slow arrays (N, d). LSE: slow array (N,).
    Br, Bc: rows in a block of queries, of keys.
    Returns the slow arrays (dQ, dK, dV), each (N, d).
    """
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    for i in m.blocks(N, Br):
        with m.load(O, i) as o, m.load(dO, i) as do, m.zeros(i) as D_i:
            D_i.add_row_dots(do, o)
            m.store(D_i, D, i)
    ### BEGIN SOLUTION loop over keys and queries; j.first is True on the first block of keys
    for j in m.blocks(N, Bc):  # stays: k, v, dk, dv (Bc, d)
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):  # passes by: q (Br, d), L_i and D_i (Br,), s (Br, Bc)
                with m.load(Q, i) as q, m.load(LSE, i) as L_i, m.load(D, i) as D_i:
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L_i)
                        with m.load(dO, i) as do:  # (Br, d)
                            dv.add_matmul(s.T, do)
                            s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        s *= d**-0.5
                        with m.zeros(i, d) if j.first else m.load(dQ, i) as dq:  # where do was
                            dq.add_matmul(s, k)
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV
    ### END SOLUTION


# %% tags=["check"] name="check-6B"
check("6B", my_fused_backward)

# %% [markdown]
# Now your pass on a head of all-MiniLM-L6-v2, the one that looks sharply at the token before: 471 tokens, $d = 32$. The gradient $dO$ is drawn at random, since the file holds none.

# %%
head = real_head(0, 2)
inputs = {name: getattr(head, name) for name in ("Q", "K", "V")}  # each (471, 32)
dO = np.random.default_rng(7).standard_normal((471, 32))
leaves = schedules.saved_for_backward(**inputs)
tiles = schedules.fused_backward.tiles(471, 32, 4096)
mine = attempt(run, my_fused_backward, M=5000, trace=False, **inputs, O=leaves["O"], dO=dO,
               LSE=leaves["LSE"], **tiles)
want = exact.attention_backward(**inputs, dO=dO)
for name, got, right in zip(want._fields, mine.outputs, want, strict=False):
    print(f"{name}: largest error below 1e-10: {abs(got - right).max() < 1e-10}")
budget = schedules.fused_backward.cost(471, 32, **tiles)
print(f"{tiles}: {budget.total:,} words by (6.8); yours differs by:", mine.ledger - budget)
for name in ("standard_backward", "flash1_backward"):
    print(f"{name}: {counted(name, 471, 32, 4096).total:,} words")

# %% [markdown]
# 1,055,511 words, where B0 moves 2,463,801 and B1 1,326,336. (A higher peak means temporaries, which the check allows.) The scores of this head reach 83, and $e^{83}$ is no trouble: $s_{ij} - L_i$ is never above 0.
#
# On a GPU the blocks of keys are worked on side by side and not one after the other, so a travelling $dQ_i$ needs atomic additions there, or a sweep of its own as in section 6.8.
# <!-- 83 = int(real_head(0, 2).stats["logit_max"]) -->

# %% [markdown]
# ## 6.7 What stays times what passes
#
# 16 is better than 20. Is it the best order? So far we have written a schedule for each idea and then counted. Now we want the constant *before* the schedule. The constants so far have a common pattern.
#
# Call it a *sweep* when all $N \times N$ pairs are gone through once, blocks of one side staying and the other side passing by. If each row that stays takes $r$ arrays, that is $rd$ words, then $M/(rd)$ rows fit and there are $rNd/M$ blocks. If each row that passes by moves $t$ arrays, then a block moves $tNd$ words. Together
#
# $$ W \approx \frac{rNd}{M} \cdot tNd = r\,t\,\frac{N^2d^2}{M} . \tag{6.9} $$
#
# What stays times what passes. (The side that passes comes one row at a time and takes next to no room. Single words a row, such as $L_i$, do not count either.) A partial result that passes by counts twice, for it is read and written. Let us try it:
#
# | schedule | stays | passes by | $r \cdot t$ |
# | --- | --- | --- | --- |
# | F3, lesson 04 | $Q$, $O$ | $K$, $V$ | $2 \cdot 2 = 4$ |
# | F1 with its best tile | $K$, $V$ | $Q$, $O$ twice | $2 \cdot 3 = 6$ |
# | B1 | $K$, $V$, $dK$, $dV$ | $Q$, $O$, $dO$, $dQ$ twice | $4 \cdot 5 = 20$ |
# | B3 | $K$, $V$, $dK$, $dV$ | $Q$, $dO$, $dQ$ twice | $4 \cdot 4 = 16$ |
#
# The picture shows the sweep of B3, at the tile where one row of queries meets a block of keys.

# %%
explore.resident_and_streamed("columns", rows=("Q", "dO", "dQ"), columns=("K", "V", "dK", "dV"),
                              sums=("dQ", "dK", "dV"), title="B3")

# %% [markdown]
# Now nothing forces us to compute three gradients in one sweep. Two sweeps can share them, or three; each computes the scores again. What does a gradient need? $dV$ needs $P$ and $dO$, hence $Q$, $K$, $dO$. The other two need $dS$, hence $V$ as well. $D$ and $L$ are words a row.
#
# <!-- exercise 6C --> Give the constant $r\,t$ of one sweep. `stays` says which side stays, `gradients` which gradients the sweep computes, such as `{"dK", "dV"}`. Take $D$ and $L$ as given. If you are stuck after five minutes, run `hint("6C")` in a cell of your own.

# %% [raw] name="about-6C"
# title = "Resident rows times streamed words"
# difficulty = 2
# importance = 4
# minutes = 8
# hints = [
#   "For each side, list the arrays in fast memory: query rows have Q, dO and perhaps dQ; key rows have K, perhaps V, and perhaps dK and dV.",
#   "Gradients on the resident side count once. Gradients on the streamed side count twice, because they are read and written. When is V not needed?",
#   "The answer is the product of two sums, one per side. V is needed for dP, and dP for dQ and dK.",
# ]

# %% tags=["exercise"] name="ex-6C"
def my_constant(stays, gradients):
    """The constant of one sweep: arrays that stay times arrays that pass by.

    stays: "rows" (the side of Q) or "columns" (the side of K). gradients: a set of names out of
    "dQ", "dK", "dV", not empty. Returns a whole number.
    """
    ### BEGIN SOLUTION count the inputs of each side, then the gradients of each side
    rows = 2                                                  # Q and dO
    columns = 1 if gradients == {"dV"} else 2                 # K, and V where dP is needed
    on_rows, on_columns = len(gradients & {"dQ"}), len(gradients & {"dK", "dV"})
    if stays == "rows":
        return (rows + on_rows) * (columns + 2 * on_columns)
    return (columns + on_columns) * (rows + 2 * on_rows)
    ### END SOLUTION


# %% tags=["check"] name="check-6C"
check("6C", my_constant)

# %% [markdown]
# There are five ways to divide three gradients among sweeps: all in one, three ways to take one of them out, and each for itself. For every sweep we may choose the side that stays.
#
# **Predict** (compute). Which constant has the cheapest of the five ways, the sum over its sweeps?

# %% tags=["predict"]
predict("6.7", least=14)  #> predict("6.7", least=...)

# %%
WAYS = ("dQ dK dV", "dQ, dK dV", "dK, dQ dV", "dV, dQ dK", "dQ, dK, dV")


def least_of_all_ways():
    totals = []
    for way in WAYS:
        sweeps = [set(part.split()) for part in way.split(", ")]
        best = [min((my_constant(side, one), side) for side in ("rows", "columns"))
                for one in sweeps]
        totals.append(sum(constant for constant, side in best))
        shown = " + ".join(f"{constant} ({side} stay)" for constant, side in best)
        print(f"{way:12} {shown} = {totals[-1]}")
    return min(totals)


measured("6.7", least=attempt(least_of_all_ways))

# %% [markdown]
# <details><summary>The cheapest way</summary>
#
# 14: one sweep for $dQ$ with rows staying, and one for $dK$ and $dV$ with columns staying. No partial result travels in either. The second sweep computes $S$ and $dP$ once more, so it is seven products of matrices instead of five: *more* arithmetic, and *less* traffic. Taking the three gradients one by one goes too far, and is back at 16.
#
# </details>
#
# In lesson 09 you will search with this rule, in sweeps that may store matrices too.

# %% [markdown]
# ## 6.8 Two sweeps
#
# We want the cheapest way on the machine: two sweeps, one for $dQ$, one for $dK$ and $dV$. It is B4, in code `split_backward`; the order is a derivation of this course, as the rule (6.9) is. In the first sweep $Q_i$, $dO_i$, $dQ_i$ stay and $K_j$, $V_j$ pass by. $D_i$ is found on the way, from $O_i$, before the first key comes, and stored for the second sweep. There $K_j$, $V_j$, $dK_j$, $dV_j$ stay and $Q_i$, $dO_i$ pass by: that is B3 without $dQ$.
#
# $$ W_{\mathrm{B4}} = \underbrace{4Nd + 2N + 2Nd\left\lceil \frac{N}{B_r} \right\rceil}_{\text{rows stay}} + \underbrace{4Nd + \left\lceil \frac{N}{B_c'} \right\rceil (2Nd + 2N)}_{\text{columns stay}} . \tag{6.10} $$
#
# The footprints are $B_r(3d + 2 + B_c) + 2B_c d$ for the first sweep and $4B_c'd + B_r'(2d + 2 + B_c')$ for the second, which has tiles of its own: `Br1`, `Bc1` and `Br2`, `Bc2` in code. The picture shows the second sweep follow the first.

# %%
given = {name: small[name] for name in schedules.split_backward.operands}
b4 = run(schedules.split_backward, M=1100, **given, Br1=32, Bc1=1, Br2=1, Bc2=32)
explore.memory_timeline(b4.ledger, M=1100, title="B4: rows stay, then columns stay")

# %% [markdown]
# First two blocks of queries stay, one after the other, then two blocks of keys. *accumulator* is what a schedule makes for itself: $dQ$ at first, then $dK$ and $dV$. What passes by is so thin, one row at a time, that it hardly shows.
#
# <!-- exercise 6D --> Write the first sweep: blocks of queries outside, blocks of keys inside. It returns $dQ$ and $D$. The check allows the words of the first bracket in (6.10), and as fast memory the footprint with the allowance of exercise 6B. So $O_i$ has to leave early. Loop with `m.blocks`: the dry run after the check is fast only then. If you are stuck after six minutes, run `hint("6D")` in a cell of your own.

# %% [raw] name="about-6D"
# title = "The pass for dQ"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "Exchange the loops of 6.6 and leave out dK and dV. Which arrays are resident now, and which are streamed?",
#   "D needs O only once per block of queries, before any key is loaded. Where can you free O, so that it is never in fast memory together with q and dq?",
#   "Outer loop: dO, L, D from O, then q and zeros for dq. Inner loop: k, v, weights, score gradients, update of dq. After the inner loop, scale and store dq once.",
# ]

# %% tags=["exercise"] name="ex-6D"
def my_queries_gradient(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """dQ and D, with blocks of queries outside.

    m: the machine. Q, K, V, O, dO: slow arrays (N, d). LSE: slow array (N,).
    Br, Bc: rows in a block of queries, of keys. Returns the slow arrays dQ (N, d) and D (N,).
    """
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    ### BEGIN SOLUTION first D_i from dO_i and O_i, then the keys pass by
    for i in m.blocks(N, Br):  # stays: do, q, dq (Br, d), L_i and D_i (Br,)
        with m.load(dO, i) as do, m.load(LSE, i) as L_i, m.zeros(i) as D_i:
            with m.load(O, i) as o:  # gone before q and dq take room
                D_i.add_row_dots(do, o)
            m.store(D_i, D, i)
            with m.load(Q, i) as q, m.zeros(i, d) as dq:
                q *= d**-0.5
                for j in m.blocks(N, Bc):  # passes by: k, v (Bc, d), s (Br, Bc)
                    with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                        probabilities(s, L_i)
                        s.multiply_by_matmul(do, v.T, less=D_i)
                        dq.add_matmul(s, k)
                dq *= d**-0.5
                m.store(dq, dQ, i)
    return dQ, D
    ### END SOLUTION


# %% tags=["check"] name="check-6D"
check("6D", my_queries_gradient)

# %% [markdown]
# Now the constants, measured. Beside the leading number each has corrections of order $1/d$, for statistics and for the tile of scores:
#
# | | constant | with corrections |
# | --- | --- | --- |
# | B1 | 20 | $20\,(1 + \frac{2}{5d})(1 + \frac{1}{4d})$ |
# | B2 and B3 | 16 | $16\,(1 + \frac{1}{2d})(1 + \frac{1}{4d})$ |
# | B4 | 14 | $6\,(1 + \frac1d) + 8\,(1 + \frac1d)(1 + \frac{1}{4d})$ |

# %%
N, d, M = 65536, 64, 64 * 64**2
rows = {"Br": (M - 2 * d) // (3 * d + 3), "Bc": 1}  # the largest Br that fits beside one key
shapes = schedules.split_backward.shapes(N, d)
first = attempt(run, my_queries_gradient, M=2 * M, dry=True, **shapes, **rows).ledger
b3, b4 = counted("fused_backward", N, d, M), counted("split_backward", N, d, M)
second = b4.phases["columns stay"]
unit = (N * d) ** 2 / M
print(f"B3 {b3.total:,} words, B4 {b4.total:,} words")
print(f"rows stay {first.total / unit:.3f}, "
      f"columns stay {(second.read + second.written) / unit:.3f}")

# %% [markdown]
# 6.377 for your sweep and 8.502 for the second, 14.88 together, where B3 has 16.69. With closed forms we can let $N$ grow to four million, where the terms without $N^2$ vanish:
# <!-- ledger = lambda name, N, M: schedules.get(name).cost(N, 64, **schedules.get(name).tiles(N, 64, M)) -->
# <!-- constant = lambda name, N, M: ledger(name, N, M).total * M / (N * 64) ** 2 -->
# <!-- 14.88, 16.69 = constant("split_backward", 2**16, 64**3), constant("fused_backward", 2**16, 64**3) -->

# %%
N = 2**22
print("                      M = 16d²   M = 64d²")
for name in ("flash1_backward", "flash2_backward", "fused_backward", "split_backward"):
    schedule, found = schedules.get(name), []
    for M in (16 * d**2, 64 * d**2):
        words = schedule.cost(N, d, **schedule.tiles(N, d, M)).total
        found.append(words * M / (N * d) ** 2)
    print(f"{name:20} {found[0]:10.2f} {found[1]:10.2f}")

# %% [markdown]
# 20.24, 16.21 twice and 14.28 at $M = 64d^2$. The table above says 20.20, 16.19 and 14.25; what is left over is mostly rounding to whole rows and blocks. The $d$ words of room between B2 and B3 decide nothing here. The tile does: with $B_c = M/8d$, half the block, B2 would be at 32.25.
#
# **Predict** (compute). $N = 4096$, $d = 64$ and $M = 64d^2$, so four or five blocks. How many times as many words as B3 does B4 move?
# <!-- d = 64 -->
# <!-- 20.20 = 20 * (1 + 2 / (5 * d)) * (1 + 1 / (4 * d)) -->
# <!-- 32.25 = costs.flash2_backward(2**22, 64, Br=1, Bc=64**3 // (8 * 64)).total * 64**3 / (2**22 * 64) ** 2 -->
# <!-- b4_form = 6 * (1 + 1 / d) + 8 * (1 + 1 / d) * (1 + 1 / (4 * d)) -->
# <!-- 16.19, 14.25 = 16 * (1 + 1 / (2 * d)) * (1 + 1 / (4 * d)), b4_form -->

# %% tags=["predict"]
predict("6.8", b4_over_b3=14 / 16)  #> predict("6.8", b4_over_b3=...)

# %%
M, ratios = 64 * d**2, {}
for N in (2048, 4096, 8192, 16384):
    b3, b4 = counted("fused_backward", N, d, M), counted("split_backward", N, d, M)
    ratios[N] = b4.total / b3.total
    print(f"N = {N:6,}: B3 {b3.total:11,}  B4 {b4.total:11,}  B4/B3 {ratios[N]:.3f}")
measured("6.8", b4_over_b3=ratios[4096])

# %% [markdown]
# <details><summary>Where B4 wins</summary>
#
# At $N = 4096$ B4 moves *more*, 1.040 times as much: its $8Nd$ words that come once weigh more than B3's $5Nd$. From $N = 8192$ on it moves less. ($16N^2d^2/M + 5Nd$ and $14N^2d^2/M + 8Nd$ meet at $N = 3M/2d = 6144$.)
#
# </details>
#
# `schedules.best(N, d, M, "backward")` picks the cheaper one.
# <!-- 6144 = 3 * 64**3 // (2 * 64) -->

# %% [markdown]
# ## 6.9 Could the next order bring 10?
#
# From 20 to 16 to 14. Two theorems say where this ends, both derivations of this course. To leading order, for long sequences and $M$ far above $d^2$:
#
# - **Twelve for everybody** (Theorem C). Whoever forms the scores and the gradients from all pairs moves at least $12\,N^2d^2/M$ words, in any order, with any tile, computing again at will.
# - **Fourteen for whole rows** (Theorem E). Whoever, besides, moves the rows of the arrays as wholes and keeps no score beyond its tile, as B1 to B4 do, moves at least $14\,N^2d^2/M$.
#
# The picture has what they say of each $M$, beside what three orders move. $N$ is four million, so that terms without $N^2$ vanish, and $M$ grows from $4d^2$ to $1024d^2$.

# %%
N, d = 2**22, 64
memories = [4**k * d**2 for k in range(1, 6)]
unit = {M: (N * d) ** 2 / M for M in memories}
orders = {"B1 flash1_backward": schedules.flash1_backward,
          "B3 fused_backward": schedules.fused_backward,
          "B4 split_backward": schedules.split_backward}
found = {label: [(M / d**2, one.count(N, d, M).total / unit[M]) for M in memories]
         for label, one in orders.items()}
line = {}
for label, whole in (("all (C)", False), ("whole rows (E)", True)):
    least = [bounds.lower_bound("backward", N, d, M, whole_rows=whole)[0] for M in memories]
    line[label] = [(M / d**2, w / unit[M]) for M, w in zip(memories, least, strict=True)]
explore.curve(found, line, title="Backward constants, N = 4,194,304, d = 64",
              xlabel="M/d²", ylabel="W M/(N²d²)", log=(True, False))

# %% [markdown]
# The line for whole rows lies just below B4, which stays between 14.2 and 14.5; the line for all rises to 12. So no order of whole rows will bring 10, and nobody knows what rows cut into pieces could bring between 12 and 14. [The second evening](06b_backward_lower_bounds.ipynb) states both theorems with all their terms, proves them, and ends with that question as a challenge; it also takes a causal mask through the backward pass.
# <!-- drawn = [constant("split_backward", 2**22, 4**k * d**2) for k in range(1, 6)] -->
# <!-- 14.2, 14.5 = math.floor(10 * min(drawn)) / 10, math.ceil(10 * max(drawn)) / 10 -->

# %% [markdown]
# ## Misconceptions
#
# - **"The backward pass needs the weights, so the forward pass must store them."** It needs one word a row; 512 instead of 262,144 (6.3).
# - **"Recomputation saves room and pays with traffic."** It pays with arithmetic. B4 computes all scores twice, and moves 14 where B3 moves 16 (6.8).
# - **"Softmax's gradient needs the whole row."** Only through $D_i$, and $D_i$ is a product of a row of $dO$ and a row of $O$ (6.4).
#
# ## Take-away
#
# - $P$ comes back from $S$ and one word a row, and $D_i = \sum_c do_{ic}o_{ic}$ makes every tile of $dS$ stand on its own.
# - A sweep costs what stays times what passes, and a partial result that passes by counts twice. So give each side's gradients a sweep of their own: $6 + 8 = 14$.
# - Far above $d^2$ no order that moves whole rows has a constant below 14, and none that works on all pairs one below 12.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Algorithm 3 is B0, Algorithm 4 is B1; recomputation and the D trick are there.
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 2: $D$ first, the order of B2.
#
# **What comes next.** [06b](06b_backward_lower_bounds.ipynb) is the second evening; nothing later needs it. Lesson 07 goes to the other end, $M < d^2$, and meets the backward pass again inside a larger gradient.
