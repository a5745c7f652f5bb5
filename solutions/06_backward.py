# %% [markdown]
# # 06 The backward pass
#
# Training asks attention a second question: if the loss changes with $O$ in this way, how does it change with $Q$, $K$ and $V$? Lesson 01 answered it with three $N \times N$ matrices. This lesson gets by without any of them: the weights are computed again from one word a row, and the one row sum that seems to need all of a row does not. Then it is a matter of orders, as in lesson 04. FlashAttention's backward pass moves $20\,N^2d^2/M$ words, a better order of the same work $16$, and an order that computes all scores *twice* moves $14$. That no order of this kind gets below $12$ can be proved; what lies between is open.
#
# **What you will learn**
#
# - to replace a stored matrix by a recomputation, and to compute a tile of $dS$ without the other keys of its rows;
# - to write FlashAttention's backward pass for the machine, in 16 instead of 20 times $N^2d^2/M$ words;
# - to predict the constant of a sweep without running it, and to find the cheapest way to divide the work;
# - to say what is proved about the backward pass, and what is not known.
#
# **Prerequisites**: lesson 01 (the gradients), lesson 03 (log-sum-exp), lesson 04 (the three forward orders) and, for sections 6.10 and 6.11, lesson 05. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: 80, of which <!-- minutes --> are for the exercises.
#
# <!-- exercises -->
#
# Section 6.9, on causal masks, stands by itself: if time runs short, read it another day. Section 6.11, a proof in full, is optional and takes 15 minutes more.

# %% tags=["setup"]
import numpy as np

from iocourse import FastMemoryFull, bounds, exact, explore, masks, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head
from iocourse.machine import probabilities

# %% [markdown]
# ## 6.1 Three gradients, once more
#
# We want the gradients of a loss with respect to $Q$, $K$ and $V$. What we are given is $dO$, its gradient with respect to $O$. Lesson 01 went back from there step by step. Here are its formulas for single words, since words are what we are going to count. The forward pass,
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


# %%
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
# **Predict.** Count the table: how many times $N^2$ words move for the three matrices together?

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
# 182,190,080 words, and nine times $N^2$ of them, 83%, go to the three large matrices. More fast memory would hardly help with those. They have to go.

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
# <!-- exercise 6.4 --> Compute the tile of $P$ and the tile of $dS$ for some queries and some keys. The other keys are not there, and the check looks at tiles with all keys and with a few. This is plain NumPy, without a machine. If you are stuck after five minutes, run `hint("6.4")` in a cell of your own.

# %% tags=["exercise"] name="ex-6.4"
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


# %% tags=["check"] name="check-6.4"
check("6.4", my_scores_gradient)

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
# **Predict.** $d = 8$, $M = 512$, so $B_c = 16$. $K_j$, $V_j$, $dK_j$ and $dV_j$ are in fast memory. How many words are left for everything else?

# %% tags=["predict"]
predict("6.5", left=0)  #> predict("6.5", left=...)

# %%
small = dict(zip(("Q", "K", "V", "dO"), rng.standard_normal((4, 64, 8)), strict=True))
small |= schedules.forward_leaves(small["Q"], small["K"], small["V"])  # O, P, LSE, m and l
given = {name: small[name] for name in schedules.flash1_backward.operands}
try:
    run(schedules.flash1_backward, M=512, **given, Br=1, Bc=16)
except FastMemoryFull as full:
    print(full)
measured("6.5", left=512 - 4 * 16 * 8)

# %% [markdown]
# Nothing is left, not even for one row of $Q$: four tiles of $M/4d$ rows fill $M$ exactly. In the forward pass these sizes fit from $8d^2 + 8d$ words on; here they never do. The paper argues up to constant factors, where a smaller block is as good. To the word, the largest block goes with $B_r = 1$, and then $B_c \approx M/(4d+1)$:
#
# $$ \frac{W_{\mathrm{B1}}M}{N^2d^2} \to 20\left(1 + \frac{2}{5d}\right)\left(1 + \frac{1}{4d}\right) . $$
#
# Five arrays for each of $4Nd/M$ blocks: $Q$, $O$, $dO$, $dQ$ in, and $dQ$ out. The brackets are the statistics and the tile of scores. Which of the five can be spared?

# %% [markdown]
# ## 6.6 D first, and dQ in dO's place
#
# $O_i$ comes once for each block of keys, only to give the same $D_i$ again. FlashAttention-2 computes $D$ first, in a pass of $2Nd + N$ words, and from then on reads one word a row. Here is that pass. `add_row_products` adds to each row's word the sum over columns of the products of two tiles, without a temporary.

# %%
def row_products(m, O, dO, *, Br):
    """D_i = Σ_c dO_ic O_ic for all rows, to slow memory."""
    D = m.new("D", (O.shape[0],))
    for i in m.blocks(O.shape[0], Br):
        with m.load(O, i) as o, m.load(dO, i) as do, m.zeros(i) as D_i:
            D_i.add_row_products(do, o)
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
# (B2, `flash2_backward`, is the same order with $dO_i$ and $dQ_i$ side by side, so $3d$ instead of $2d$.) With $B_r = 1$ and $B_c \approx M/(4d+1)$ the four arrays make $4 \cdot 4 = 16$.
#
# **Predict.** $N = 65\,536$, $d = 64$, $M = 64d^2$. How many times as many words as B3 does B1 move? And which part of B3's words is written, the rest being read?

# %% tags=["predict"]
predict("6.6", b1_over_b3=1.25, written=0.25)  #> predict("6.6", b1_over_b3=..., written=...)

# %%
N, d, M = 65536, 64, 64 * 64**2
b1, b3 = counted("flash1_backward", N, d, M), counted("fused_backward", N, d, M)
print(f"B1 {b1.total:,} words, B3 {b3.total:,} words: {b3.read:,} read, {b3.written:,} written")
measured("6.6", b1_over_b3=b1.total / b3.total, written=b3.written / b3.total)

# %% [markdown]
# A factor of 1.251, the five arrays against four. A quarter of B3's words is written: of $Q$, $dO$, $dQ$ in and $dQ$ out only the last. So 16 is $12 + 4$, and section 6.10 comes back to the 12.
#
# On the machine two more operations help, and neither takes room: `probabilities(s, L_i)` turns scores into weights by (6.5), and `s.times_product(do, v.T, less=D_i)` multiplies `s` by $dO_iV_j^\top - D_i$, entry by entry. So one tile is $S_{ij}$, then $P_{ij}$, then $dS_{ij}$. Transposes are views: `dv.add_product(s.T, do)`.
#
# <!-- exercise 6.6 --> Write B3: blocks of keys outside, blocks of queries inside. The first lines, with the pass for $D$, are there. Mind the factor $1/\sqrt d$, which belongs to $S$, to $dQ$ and to $dK$. The check allows the words of (6.8). As fast memory it gives the footprint, one more tile of scores and four words a row; that is no room for $dO_i$ and $dQ_i$ side by side. If you are stuck after twelve minutes, run `hint("6.6")` in a cell of your own.

# %% tags=["exercise"] name="ex-6.6"
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
            D_i.add_row_products(do, o)
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
                            dv.add_product(s.T, do)
                            s.times_product(do, v.T, less=D_i)
                        dk.add_product(s.T, q)
                        s *= d**-0.5
                        with m.zeros(i, d) if j.first else m.load(dQ, i) as dq:  # where do was
                            dq.add_product(s, k)
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV
    ### END SOLUTION


# %% tags=["check"] name="check-6.6"
check("6.6", my_fused_backward)

# %% [markdown]
# Now your pass on a head of all-MiniLM-L6-v2, the one that looks sharply at the token before: 471 tokens, $d = 32$. The gradient $dO$ is drawn at random, since the file holds none.

# %%
head = real_head(0, 2)
inputs = {name: getattr(head, name) for name in ("Q", "K", "V")}  # each (471, 32)
dO = np.random.default_rng(7).standard_normal((471, 32))
leaves = schedules.forward_leaves(**inputs)
tiles = schedules.fused_backward.tiles(471, 32, 4096)
mine = attempt(run, my_fused_backward, M=5000, trace=False, **inputs, O=leaves["O"], dO=dO,
               LSE=leaves["LSE"], **tiles)
want = exact.attention_backward(**inputs, dO=dO)
for name, got, right in zip(want._fields, mine.outputs, want, strict=False):
    print(f"{name}: largest error below 1e-10: {abs(got - right).max() < 1e-10}")

# %%
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
# Now nothing forces us to compute three gradients in one sweep. Two sweeps can share them, or three; each computes the scores again. What does a gradient need? $dV$ needs $P$ and $dO$, hence $Q$, $K$, $dO$. The other two need $dS$, hence $V$ as well. $D$ and $L$ are words a row.
#
# <!-- exercise 6.7 --> Give the constant $r\,t$ of one sweep. `stays` says which side stays, `gradients` which gradients the sweep computes, such as `{"dK", "dV"}`. Take $D$ and $L$ as given. If you are stuck after five minutes, run `hint("6.7")` in a cell of your own.

# %% tags=["exercise"] name="ex-6.7"
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


# %% tags=["check"] name="check-6.7"
check("6.7", my_constant)

# %% [markdown]
# There are five ways to divide three gradients among sweeps: all in one, three ways to take one of them out, and each for itself. For every sweep we may choose the side that stays.
#
# **Predict.** Which constant has the cheapest of the five ways, the sum over its sweeps?

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
# 14: one sweep for $dQ$ with rows staying, and one for $dK$ and $dV$ with columns staying. No partial result travels in either. The second sweep computes $S$ and $dP$ once more, so it is seven products of matrices instead of five: *more* arithmetic, and *less* traffic. Taking the three gradients one by one goes too far, and is back at 16.

# %% [markdown]
# ## 6.8 Two sweeps
#
# We want this schedule on the machine. It is B4, in code `split_backward`; the order is a derivation of this course, as the rule (6.9) is. In the first sweep $Q_i$, $dO_i$, $dQ_i$ stay and $K_j$, $V_j$ pass by. $D_i$ is found on the way, from $O_i$, before the first key comes, and stored for the second sweep. There $K_j$, $V_j$, $dK_j$, $dV_j$ stay and $Q_i$, $dO_i$ pass by: that is B3 without $dQ$.
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
# <!-- exercise 6.8 --> Write the first sweep: blocks of queries outside, blocks of keys inside. It returns $dQ$ and $D$. The check allows the words of the first bracket in (6.10), and as fast memory the footprint with the allowance of exercise 6.6. So $O_i$ has to leave early. Loop with `m.blocks`: the dry run after the check is fast only then. If you are stuck after six minutes, run `hint("6.8")` in a cell of your own.

# %% tags=["exercise"] name="ex-6.8"
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
                D_i.add_row_products(do, o)
            m.store(D_i, D, i)
            with m.load(Q, i) as q, m.zeros(i, d) as dq:
                q *= d**-0.5
                for j in m.blocks(N, Bc):  # passes by: k, v (Bc, d), s (Br, Bc)
                    with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                        probabilities(s, L_i)
                        s.times_product(do, v.T, less=D_i)
                        dq.add_product(s, k)
                dq *= d**-0.5
                m.store(dq, dQ, i)
    return dQ, D
    ### END SOLUTION


# %% tags=["check"] name="check-6.8"
check("6.8", my_queries_gradient)

# %% [markdown]
# Now the constants, measured. Beside the leading number each has corrections of order $1/d$, for statistics and for the tile of scores:
#
# | | constant | with corrections |
# | --- | --- | --- |
# | B1 | 20 | $20\,(1 + \frac{2}{5d})(1 + \frac{1}{4d})$ |
# | B2 with $B_c = M/8d$ | 32 | $32\,(1 + \frac{1}{2d})$ |
# | B3 | 16 | $16\,(1 + \frac{1}{2d})(1 + \frac{1}{4d})$ |
# | B4 | 14 | $6\,(1 + \frac1d) + 8\,(1 + \frac1d)(1 + \frac{1}{4d})$ |
#
# (The eighth of $M$ for B2 is a choice of this course: half of $M$ for what stays, half for what passes by. With B3's tile it is at 16 too.)
#
# **Predict.** $N = 65\,536$, $d = 64$, $M = 64d^2$, as in section 6.6. What constants $WM/(N^2d^2)$ have the two sweeps of B4, with all terms that do not grow with $N^2$ included?

# %% tags=["predict"]
predict("6.8", rows_stay=6, columns_stay=8)  #> predict("6.8", rows_stay=..., columns_stay=...)

# %%
N, d, M = 65536, 64, 64 * 64**2
rows = {"Br": (M - 2 * d) // (3 * d + 3), "Bc": 1}  # the largest Br that fits beside one key
shapes = schedules.split_backward.shapes(N, d)
first = attempt(run, my_queries_gradient, M=2 * M, dry=True, **shapes, **rows).ledger
b3, b4 = counted("fused_backward", N, d, M), counted("split_backward", N, d, M)
second = b4.phases["columns stay"]
unit = (N * d) ** 2 / M
print(f"B3 {b3.total:,} words, B4 {b4.total:,} words")
measured("6.8", rows_stay=first.total / unit,
         columns_stay=(second.read + second.written) / unit)

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
# 20.24, 32.25, 16.21 and 14.28 at $M = 64d^2$. The table above says 20.20, 32.25, 16.19 and 14.25; what is left over is mostly rounding to whole rows and blocks. B2 shows once more what the tile is worth: the same order as B3, half the block, twice the words.
#
# B4 does not win everywhere. It has $8Nd$ words that come once, B3 has $5Nd$, and where $N$ is only a few blocks long this decides:
# <!-- d = 64 -->
# <!-- 20.20, 32.25 = 20 * (1 + 2 / (5 * d)) * (1 + 1 / (4 * d)), 32 * (1 + 1 / (2 * d)) -->
# <!-- b4_form = 6 * (1 + 1 / d) + 8 * (1 + 1 / d) * (1 + 1 / (4 * d)) -->
# <!-- 16.19, 14.25 = 16 * (1 + 1 / (2 * d)) * (1 + 1 / (4 * d)), b4_form -->

# %%
M = 64 * d**2
for N in (2048, 4096, 8192, 16384):
    b3, b4 = counted("fused_backward", N, d, M), counted("split_backward", N, d, M)
    print(f"N = {N:6,}: B3 {b3.total:11,}  B4 {b4.total:11,}  B4/B3 {b4.total / b3.total:.3f}")

# %% [markdown]
# Up to $N = 4096$, four or five blocks, B3 moves less; from $N = 8192$ on B4 does. `schedules.best(N, d, M, "backward")` picks the cheaper one.

# %% [markdown]
# ## 6.9 With a causal mask
#
# In a language model query $i$ sees the keys $0 \dots i$ only. The weight of a hidden pair is 0, and so is its $ds_{ij}$: a tile above the diagonal contributes nothing to any gradient. So we pass it over, and its words with it. With columns staying, block $j$ meets only the rows from its first column on; with rows staying, block $i$ meets only the columns up to its last row. On the diagonal a tile is computed whole, and `m.hide(s, i, j, mask)` sets the scores of hidden pairs to $-\infty$ before `probabilities` turns them into zeros. The library's backward schedules take the mask as `mask=masks.Causal(N)`.
#
# **Predict.** $N = 4096$, $d = 64$, $M = 16\,384$. Which part of its words does B4 move when the mask is causal?

# %% tags=["predict"]
predict("6.9", part=0.5)  #> predict("6.9", part=...)

# %%
Q, K, V = (small[name] for name in ("Q", "K", "V"))
want = exact.attention_backward(Q, K, V, small["dO"], causal=True)
for label, used in (("no mask", None), ("a causal mask", masks.Causal(64))):
    leaves = schedules.forward_leaves(Q, K, V, used)
    given |= {"O": leaves["O"], "LSE": leaves["LSE"]}
    causal = run(schedules.split_backward, M=1100, **given, Br1=32, Bc1=1, Br2=1, Bc2=32,
                 mask=masks.Causal(64))
    right = np.allclose(causal.outputs, want, rtol=0, atol=1e-9)
    print(f"O and L from a forward pass with {label}: gradients right: {right}")

# %% [markdown]
# A mask belongs to both passes: $O$ and $L$ have to come from a forward pass that used it, for $L$ is a sum over the visible keys alone. Now the words:

# %%
def causal_part(name, N, d, M):
    """Words with a causal mask, divided by words without, for the same tiles."""
    schedule = schedules.get(name)
    tiles = schedule.tiles(N, d, M)
    seen = schedule.cost(N, d, **tiles, mask=masks.Causal(N))
    return seen.total / schedule.cost(N, d, **tiles).total


for N in (256, 1024, 4096, 16384):
    parts = [f"{name} {causal_part(name + '_backward', N, 64, 16384):.3f}"
             for name in ("standard", "fused", "split")]
    print(f"N = {N:6,}  " + "  ".join(parts))
measured("6.9", part=causal_part("split_backward", 4096, 64, 16384))

# %% [markdown]
# 0.523 of the words at $N = 4096$, and 0.506 at 16,384: about half. It is not exactly half, because a tile on the diagonal counts whole and because $8Nd$ words come anyway; at $N = 256$, with four blocks of queries and five of keys, 0.729 is left. B0 saves nothing: its matrices are stored with their zeros.

# %% [markdown]
# ## 6.10 How little is possible, and what is open
#
# From 20 to 16 to 14. Could the next order bring 10? The compulsory traffic gives $W \ge 7Nd$: $Q$, $K$, $V$, $dO$ in, $dQ$, $dK$, $dV$ out, with the row statistics as a gift (bound `compulsory_backward`). Beyond that we have Theorem C, here as bound `C_line`:
#
# $$ W \ge \frac{12N^2d^2}{M + 4d^2} - (M + 4d^2) . \tag{6.11} $$
#
# It holds for every $M$, for every order and every tile, and recomputation is allowed. The class: $s_{ij}$ and $dp_{ij}$ are made from $d$ products each; $p_{ij}$ is any function of $s_{ij}$ and words of row $i$; $dv_{jc}$ sums the products $p_{ij}do_{ic}$; $dq_{ic}$ and $dk_{jc}$ sum products of $k_{jc}$ or $q_{ic}$ with a number that depends on the finished $s_{ij}$ and $dp_{ij}$. Not covered are orders that avoid the pairs, such as $(dO\,V^\top)K = dO\,(V^\top K)$ with the softmax left out, and fast matrix multiplication. The theorem is a derivation of this course, with the technique of Theorem A. Here is the idea; the proof in full stands in section 6.11.
#
# Cut the run into segments in which $T$ words are read. In a segment at most $R = M + T$ words are at hand. Share them out: $R_r$ words belong to rows ($q$, $dO$, $dQ$), $R_c$ to columns ($k$, $v$, $dK$, $dV$), and $n_s$ are scores or weights of single pairs. How many of the $3N^2d$ products of the three gradients can be formed?
#
# - *From rows and columns alone.* A pair whose weight is made in this segment needs all $d$ words of its row and all $d$ words of its column. A column that is complete, with $K$ and $V$ and room for $dK$ and $dV$, takes $4d$ words. With every row it makes $3d$ products, $d$ for each gradient; a row complete with $Q$, $dO$ and $dQ$ takes $3d$ words. So the column makes one product for each word of the rows, $R_r$ products with its $4d$ words. Columns and rows that hold less than all of this do no better. Together at most $R_r R_c/(4d)$ products.
# - *With stored pairs.* A word of $P$ or $dS$ that is at hand needs no complete row or column. The Loomis-Whitney inequality of lesson 05 bounds what $n_s$ such words add by $\sqrt{n_s}\,(R - n_s)/2$.
#
# Since $R_r + R_c \le R - n_s$, the sum is at most
#
# $$ \frac{(R-n_s)^2}{16d} + \frac{\sqrt{n_s}\,(R-n_s)}{2} \le \frac{(R + 4d^2)^2}{16d} . \tag{6.12} $$
#
# With $T = M + 4d^2$ there are at least $12N^2d^2/(M+4d^2)^2$ segments of $T$ reads each, less one that may be incomplete. That is (6.11). (A gradient's word that begins at zero, and is not read, is charged as if it were; the store that ends it pays.)
#
# **Predict.** $N = 32\,768$, $d = 64$, $M = 64d^2$. How many times the best lower bound does B4 move?

# %% tags=["predict"]
predict("6.10", b4_over_bound=14 / 12)  #> predict("6.10", b4_over_bound=...)

# %%
M, ratio = 64 * d**2, {}
for N in (2**13, 2**14, 2**15, 2**16, 2**17):
    least, which = bounds.lower_bound("backward", N, d, M)
    words = counted("split_backward", N, d, M).total
    ratio[N] = words / least
    print(f"N = {N:7,}  B4 {words:13,}  bound {which} {least:13,}  ratio {ratio[N]:.3f}")
measured("6.10", b4_over_bound=ratio[2**15])

# %% [markdown]
# 1.381 at $N = 32\,768$, and it falls as $N$ grows, to 1.285 at $N = 131\,072$. Of this, $14/12$ is the gap between the constants, 1.167. The rest is $M + 4d^2$ where B4 has $M$ (a factor 1.0625), the corrections of section 6.8 (1.02), and what does not grow with $N^2$. The picture leaves the last part out: $N$ is four million, and $M$ grows from $4d^2$ to $1024d^2$.
# <!-- 1.167, 1.0625, 1.02 = 14 / 12, (64**3 + 4 * d**2) / 64**3, b4_form / 14 -->

# %%
N, d = 2**22, 64
memories = [4**k * d**2 for k in range(1, 6)]
unit = {M: (N * d) ** 2 / M for M in memories}
orders = {"B1": schedules.flash1_backward, "B3": schedules.fused_backward,
          "B4": schedules.split_backward}
found = {label: [(M / d**2, s.cost(N, d, **s.tiles(N, d, M)).total / unit[M]) for M in memories]
         for label, s in orders.items()}
bound = {"bound": [(M / d**2, bounds.lower_bound("backward", N, d, M)[0] / unit[M])
                   for M in memories]}
explore.curve(found, bound, title="Backward constants, N = 4,194,304, d = 64",
              xlabel="M/d²", ylabel="W M/(N²d²)", log=(True, False))

# %% [markdown]
# The bound rises to 12, and B4 stays between 14.2 and 14.5. What is known about the two units in between?
#
# - *12 is the best that counting reads can give.* B3 reads $12.2$ and writes $4.0$ times $N^2d^2/M$ words. A row that passes by brings $3d$ words and makes $3d$ products with each of $M/4d$ columns: exactly the rate the proof allows. So a proof of more than 12 must count written words.
# - *B4 keeps this rate in one sweep of two.* Its second sweep makes $2N^2d$ products with 8, its first $N^2d$ with 6 where the rate would ask for 4. That is the 2.
# - *More we do not know.* There may be an order with 12 or 13, and there may be a better proof. For reads and writes together, $12 \le c \le 14$ is **open** (in the library's list `open_backward`, with the status *open*).
#
# The published results are about growth. The paper on fine-grained I/O complexity below treats a gradient of this kind, and shows that $N^2d^2/M$ is the right growth for $M \ge d^2$ and long sequences, and that for a smaller $M$ another schedule is better. The library has `small_cache_backward` for that end, and lesson 07 looks at it.
# <!-- drawn = [constant("split_backward", 2**22, 4**k * d**2) for k in range(1, 6)] -->
# <!-- 14.2, 14.5 = math.floor(10 * min(drawn)) / 10, math.ceil(10 * max(drawn)) / 10 -->
# <!-- b3 = ledger("fused_backward", 2**22, 64**3) -->
# <!-- 12.2, 4.0 = (words * 64**3 / (2**22 * d) ** 2 for words in (b3.read, b3.written)) -->

# %% [markdown]
# ## 6.11 The whole proof (optional)
#
# Theorem C is called *proved here* in this course, so its proof has to stand somewhere. It stands on section 5.9, whose steps it follows.
#
# **Products and segments.** We count the products $p_{ij}do_{ic}$ for $dV$, $g_{ij}k_{jc}$ for $dQ$ and $g_{ij}q_{ic}$ for $dK$, where $g_{ij}$ is made from the finished $s_{ij}$ and $dp_{ij}$. There are $3N^2d$. Steps 1 to 3 of section 5.9 hold word for word with $3Nd$ accumulators in place of $Nd$. So $W \ge E$, where $E$ counts reads and entries of accumulators, and a segment of $T$ of these events works with $R = M + T$ different words. Let $n_s$ be the number of pairs of which a word ($s$, $p$, $dp$, $ds$, or a part of one) was there at the segment's start or was read.
#
# **Products of these pairs.** Those for $dV$ have their shadows among the $n_s$ pairs, $n_{dO}$ words of $dO$ and $n_{dV}$ accumulators of $dV$; those for $dQ$ and $dK$ likewise. Loomis and Whitney bound the three kinds by
#
# $$ \sqrt{n_s}\,\bigl(\sqrt{n_{dO}\,n_{dV}} + \sqrt{n_K\,n_{dQ}} + \sqrt{n_Q\,n_{dK}}\bigr) \le \frac{\sqrt{n_s}\,(R - n_s)}{2} . \tag{6.13} $$
#
# **Products of all other pairs.** There $p_{ij}$, and $g_{ij}$ with it, is made from nothing within the segment. For $p_{ij}$, $q_i$ and $k_j$ must be whole; for $g_{ij}$, $do_i$ and $v_j$ as well. Look at the rows with $q_i$ whole: let $\alpha$ be their words of $Q$ and $\gamma$ their words of $dO$. In those of them where $do_i$ is whole too, let $\beta$ be the words of $dO$ and $\eta$ the accumulators of $dQ$. Then $\eta \le \beta \le \gamma \le \alpha$, and $R_r = \alpha + \gamma + \eta$. Now take one column with $k_j$ whole, $\sigma d$ accumulators of $dV$ and $\tau d$ of $dK$, where $\sigma$ and $\tau$ are between 0 and 1.
#
# - *$v_j$ is not whole.* Only products for $dV$ are possible. Each of $\sigma d$ accumulators meets at most $\alpha/d$ rows, and each word of $dO$ meets one accumulator: at most $\min(\sigma\alpha, \gamma)$ products, with $(1 + \sigma)d$ words. And
#
# $$ \min(\sigma\alpha, \gamma) \le \sqrt{\sigma\alpha\gamma} \le \frac{\sqrt\sigma\,(\alpha + \gamma)}{2} \le \frac{(1 + \sigma)\,R_r}{4} . \tag{6.14} $$
#
# - *$v_j$ is whole.* In addition each accumulator of $dQ$ takes in one product, and each of $\tau d$ accumulators of $dK$ one for each of $\beta/d$ rows. The column has at least $(2 + \sigma + \tau)d$ words. We show
#
# $$ \min(\sigma\alpha, \gamma) + \eta + \tau\beta \le \frac{(2 + \sigma + \tau)\,R_r}{4} . \tag{6.15} $$
#
# Four times the right side less four times the left falls as $\eta$ or $\beta$ grows. With the largest values, $\eta = \beta = \gamma$, it is $(2 + \sigma + \tau)\alpha + 2(\sigma - \tau)\gamma - 4\min(\sigma\alpha, \gamma)$. If $\tau \ge \sigma$, the minimum is at most $\sigma\alpha$, and $\gamma \le \alpha$ leaves at least $(2 - \sigma - \tau)\alpha \ge 0$. If $\tau < \sigma$, the minimum is at most $(\sigma\alpha + \gamma)/2$, which leaves $(2 - \sigma + \tau)\alpha - 2(1 - \sigma + \tau)\gamma \ge (\sigma - \tau)\alpha \ge 0$.
#
# Either way a column makes at most $R_r/4d$ products for each of its words. All columns together make at most $R_rR_c/4d \le (R - n_s)^2/16d$.
#
# **The sum.** With (6.13) this is the left side of (6.12). Write it as $(R - n_s)(R - n_s + 8d\sqrt{n_s})/16d$. A product of two numbers is at most the square of their mean, $(R - n_s + 4d\sqrt{n_s})^2/16d$, and $4d\sqrt{n_s} - n_s$ is at most $4d^2$. That is (6.12).
#
# **How many segments.** Let $F_b(R)$ be the left side of (6.12) for the $n_s$ where it is largest. As in step 5 of section 5.9,
#
# $$ W \ge T\left\lfloor \frac{3N^2d}{F_b(M + T)} \right\rfloor . \tag{6.16} $$
#
# This is Theorem C, bound `C`. With $T = M + 4d^2$, $F_b(M + T) \le (M + 4d^2)^2/4d$, and (6.11) follows. $\square$
#
# **For a small fast memory** there is a stronger relative, bound `C_small`. As in Theorem B′, count also the $N^2d$ products $do_{ic}v_{jc}$ of the first finished sum for each $dp_{ij}$. Such a sum is an accumulator until it is finished. Where it enters, its pair is among the $n_s$, and the first entries of all $N^2$ of them have no store to pay for them. Let these products and those for $dV$ weigh $1/\sqrt2$ each, those for $dQ$ and $dK$ 1. In (6.13) only the term with $dO$ changes, to $\sqrt{n_{dO}}\,(\sqrt{n_{dV}} + \sqrt{n_V})/\sqrt2$. This is at most $\sqrt{n_{dO}(n_{dV} + n_V)}$, so the right side stays; products of all other pairs weigh no more than before. Hence
#
# $$ W \ge T\left\lfloor \frac{(2 + \sqrt2)N^2d}{F_b(M + T)} \right\rfloor - N^2 . \tag{6.17} $$
#
# With $T = 2M$ and $M$ far below $d^2$ this is about $(4 + 2\sqrt2)N^2d/\sqrt M$, a constant of 6.83. `small_cache_backward` has 10; in between it is open too.
# <!-- 6.83 = 4 + 2 * math.sqrt(2) -->

# %% [markdown]
# ## Misconceptions
#
# - **"The backward pass needs the weights, so the forward pass must store them."** It needs one word a row; 512 instead of 262,144 (6.3).
# - **"Recomputation saves room and pays with traffic."** It pays with arithmetic. B4 computes all scores twice, and moves 14 where B3 moves 16 (6.8).
# - **"Softmax's gradient needs the whole row."** Only through $D_i$, and $D_i$ is a product of a row of $dO$ and a row of $O$ (6.4).
# - **"A causal mask halves the traffic."** Of a schedule that passes tiles over, nearly, for long sequences: 0.523 at $N = 4096$, 0.729 at 256. Of B0 it saves nothing (6.9).
# - **"20 is a poor constant, so the paper is wrong."** It claims growth, and the growth is right. Constants are another question.
#
# ## Take-away
#
# - $P$ comes back from $S$ and one word a row, and $D_i = \sum_c do_{ic}o_{ic}$ makes every tile of $dS$ stand on its own.
# - A sweep costs what stays times what passes, and a partial result that passes by counts twice. So give each side's gradients a sweep of their own: $6 + 8 = 14$.
# - No order of the class has a constant below 12. Between 12 and 14 the question is open.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Algorithm 3 is B0, Algorithm 4 is B1; recomputation and the D trick are there.
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 2: $D$ first, the order of B2.
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On fine-grained I/O complexity of attention backward passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). Upper and lower bounds up to constant factors, for the gradient with respect to one weight matrix.
# - D. Irony, S. Toledo, A. Tiskin: *Communication lower bounds for distributed-memory matrix multiplication*, 2004. Segments and Loomis-Whitney, as in the proof of Theorem C.
#
# **What comes next.** Lesson 07 goes to the other end, $M < d^2$, and meets the backward pass again inside a larger gradient.
