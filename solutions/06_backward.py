# %% [markdown]
# # 06 The backward pass
#
# Lesson 01 computed the gradients of attention from three stored $N \times N$ matrices; here you store none of them. FlashAttention's loop order moves $20\,N^2d^2/M$ words. You reduce the constant 20 by computing one row sum in advance, and again by computing all scores *twice*.
#
# **What you will learn**
#
# - to recompute the weights, and to compute a tile of $dS$ without the other keys;
# - to write a backward pass with constant 16 instead of 20;
# - to predict the constant of a loop order before you write it.
#
# **Prerequisites**: lessons 01 (gradients), 03 (log-sum-exp) and 04 (loop orders). Symbols and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import FastMemoryFull, bounds, exact, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data import real_head
from iocourse.machine import probabilities

# %% [markdown]
# ## 6.1 The three gradients
#
# Given $dO$, the gradient of a loss with respect to $O$, we want its gradients with respect to $Q$, $K$ and $V$. The figure shows the goal, one tile at a time. $L$ and $D$, with one word per row, follow in sections 6.3 and 6.4.

# %%
explore.backward_tile("columns", d=8, Br=4, Bc=16, title="One tile of a backward pass")

# %% [markdown]
# Here are the formulas of lesson 01 for single words. The forward pass is
#
# $$ s_{ij} = \frac{1}{\sqrt d}\sum_c q_{ic} k_{jc}, \qquad p_{ij} = \frac{e^{s_{ij}}}{\sum_{j'} e^{s_{ij'}}}, \qquad o_{ic} = \sum_j p_{ij} v_{jc} . \tag{6.1} $$
# <!-- (6.1) not evaluated: entries of arrays -->
#
# For the backward pass: if $x$ is used to compute $y_1, y_2, \dots$, then $dx = \sum_k dy_k\,\partial y_k/\partial x$. (Section 1.3 derives (6.3) from this rule.)
#
# $$ dv_{jc} = \sum_i p_{ij}\, do_{ic}, \qquad dp_{ij} = \sum_c do_{ic}\, v_{jc} , \tag{6.2} $$
# <!-- (6.2) not evaluated: derivative -->
#
# $$ ds_{ij} = p_{ij}\,(dp_{ij} - D_i), \qquad D_i = \sum_{j'} p_{ij'}\,dp_{ij'} , \tag{6.3} $$
# <!-- (6.3) not evaluated: derivative -->
#
# $$ dq_{ic} = \frac{1}{\sqrt d}\sum_j ds_{ij}\, k_{jc}, \qquad dk_{jc} = \frac{1}{\sqrt d}\sum_i ds_{ij}\, q_{ic} . \tag{6.4} $$
# <!-- (6.4) not evaluated: derivative -->
#
# In code, these are five matrix products:

# %%
def gradients(Q, K, V, dO):
    """dQ, dK, dV, each (N, d), and dS (N, N), with all matrices stored."""
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
    print("equal to exact.attention_backward:", np.allclose(got, right, rtol=0, atol=1e-12))
print(f"largest row sum of dS: {abs(dS.sum(axis=1)).max():.9f}")

# %% [markdown]
# The gradients agree with those of the library. Each row of $dS$ sums to 0, because adding a constant to its scores does not change the loss.
#
# ## 6.2 Traffic of the standard backward pass
#
# Suppose that the forward pass has stored $P$, and that each formula is computed separately for complete matrices:
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
# **Predict** (compute). Each entry "read" or "written" is $N^2$ words. Which multiple of $N^2$ do the three matrices move together?

# %% tags=["predict"]
predict("6.2", squares=9)  #> predict("6.2", squares=...)

# %%
def counted(name, N, d, M):
    """The ledger of a dry run of a backward schedule, with its best tiles for M."""
    schedule = schedules.get(name)
    arrays, tiles = schedule.shapes(N, d), schedule.tiles(N, d, M)
    return run(schedule, M=M, dry=True, **arrays, **tiles).ledger


N, d, M = 4096, 64, 16384
b0 = counted("standard_backward", N, d, M)
squares = sum(read + written for name, read, written in b0.rows() if name in ("P", "dP", "dS"))
print(f"{b0.total:,} words, {squares / b0.total:.0%} of them for P, dP and dS")
measured("6.2", squares=squares // N**2)

# %% [markdown]
# <details><summary>Traffic of the standard backward pass</summary>
#
# It moves 182,190,080 words. The three large matrices account for $9N^2$ of them, which is 83%.
#
# </details>
#
# This is the standard backward pass (`standard_backward` in code), the baseline of the FlashAttention paper. The steps for $D_i$ and for $dS$ each read $P$ and $dP$, because $D_i$ needs the complete row before the first $ds_{ij}$ can be computed. (If a row of both fits in fast memory, as here, merging these steps would save $2N^2$ words.) More fast memory does not reduce the multiple of $N^2$, so we avoid storing the matrices.
# <!-- standard = schedules.standard_backward.count(4096, 64, 16384) -->
# <!-- 83 = 10**2 * sum(sum(part.get(name, 0) for part in (standard.reads, standard.writes)) for name in ("P", "dP", "dS")) / standard.total -->

# %% [markdown]
# ## 6.3 Recomputing the weights from one word per row
#
# The fused forward pass did not store $P$, but the backward pass needs it. To compute it again, the maximum and the sum of each row are enough. Both fit in one word, the log-sum-exp $L_i = m_i + \log \ell_i$ of lesson 03:
#
# $$ p_{ij} = \frac{e^{s_{ij} - m_i}}{\ell_i} = e^{s_{ij} - L_i} . \tag{6.5} $$
# <!-- (6.5) p_ij = exact.softmax([[a, b]])[0, 0] with e = math.e, sij = a, mi = max(a, b), elli = 1 + math.exp(-abs(a - b)) where a <= 40 and b <= 40 -->
# <!-- (6.5) p_ij = exact.softmax([[a, b]])[0, 0] with e = math.e, sij = a, Li = exact.log_sum_exp([[a, b]])[0] where a <= 40 and b <= 40 -->
#
# A tile of $P$ can therefore be computed without the other tiles of its rows, which was not possible in the forward pass.

# %%
N, d = 512, 16
Q, K, V, dO = rng.standard_normal((4, N, d))
S = exact.scores(Q, K)               # (N, N)
L = exact.log_sum_exp(S)             # (N,)
P = np.exp(S - L[:, None])           # (N, N)
print(f"(6.5) is softmax: {np.allclose(P, exact.softmax(S), rtol=0, atol=1e-12)}")
print(f"P has {P.size:,} words, L has {L.size}")

# %% [markdown]
# 512 words replace 262,144. The cost is arithmetic: $N^2d$ multiply-adds for the scores. The only added traffic is $L$, because $dQ$ and $dK$ need $K_j$ and $Q_i$ in fast memory anyway. This exchange of arithmetic for memory is recomputation (lesson 05); section 6.8 uses it a second time.

# %% [markdown]
# ## 6.4 The row sum D without the other keys
#
# In (6.3), $D_i$ is a sum over all keys, but a tile of $dS$ contains only some of them. As in (1.9), we substitute $dp_{ij'}$ and exchange the two sums:
#
# $$ D_i = \sum_{j'} p_{ij'} \sum_c do_{ic}\, v_{j'c} = \sum_c do_{ic} \sum_{j'} p_{ij'}\, v_{j'c} = \sum_c do_{ic}\, o_{ic} . \tag{6.6} $$
# <!-- (6.6) not evaluated: entries of arrays -->
#
# The forward pass has already computed the sum over the keys; its result is the output. (This step is in the FlashAttention paper.) The code compares (6.6) with (6.3), and with a sum over the keys of one tile only.

# %%
O, dP = P @ V, dO @ V.T                        # (N, d), (N, N)
over_keys = (P * dP).sum(axis=1)               # (N,)
over_64 = (P * dP)[:, :64].sum(axis=1)         # (N,), only the keys of one tile
over_columns = (dO * O).sum(axis=1)            # (N,)
for i in (0, 1, 2):
    keys, columns = over_keys[i], over_columns[i]
    print(f"D[{i}]: {keys:9.6f} over all keys, {columns:9.6f} over the columns, "
          f"{over_64[i]:9.6f} over 64 keys")
print(f"all {N} agree: {np.allclose(over_keys, over_columns, rtol=0, atol=1e-12)}")

# %% [markdown]
# The sum over the columns is correct. It reads $2Nd$ words instead of $2N^2$, less by a factor of $N/d = 32$. The sum over the keys of one tile is a different number. With (6.5) and (6.6), each tile of $dS$ can be computed independently of the others.
#
# <!-- exercise 6A --> Compute the tile of $P$ and the tile of $dS$ for some queries and some keys, in plain NumPy, without a machine. The inputs contain only the rows of these queries and keys. The check uses tiles with all keys and tiles with a few of them. If you are stuck after five minutes, run `hint("6A")` in a new cell.

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
# ## 6.5 Keys in the outer loop: FlashAttention-1's backward pass
#
# We want to compute all three gradients from such tiles, as in the figure of section 6.1, without an $N \times N$ matrix in slow memory. Tile $(i, j)$ contributes
#
# $$ dV_j \mathrel{+}= P_{ij}^\top dO_i, \qquad dK_j \mathrel{+}= dS_{ij}^\top Q_i/\sqrt d, \qquad dQ_i \mathrel{+}= dS_{ij} K_j/\sqrt d . $$
#
# Two of the gradients belong to keys and one to queries. FlashAttention-1 therefore puts the key blocks in the outer loop, as in its forward pass: $K_j$, $V_j$, $dK_j$ and $dV_j$ are resident. For each query block, $Q_i$, $O_i$ (for $D_i$), $dO_i$, $dQ_i$ and $m_i$, $\ell_i$ (instead of $L_i$ and $D_i$ in the figure) are loaded, and $dQ_i$ is stored again. This is the FlashAttention-1 backward (B1, `flash1_backward` in code):
#
# $$ W_{\mathrm{B1}} = 7Nd + \left\lceil \frac{N}{B_c} \right\rceil (5Nd + 2N), \qquad \text{footprint } 4B_c d + B_r(4d + 2 + B_c) . \tag{6.7} $$
# <!-- (6.7) W_B1 = costs.flash1_backward(N, d, Br=Br, Bc=Bc).total -->
# <!-- (6.7) footprint = costs.flash1_backward(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N -->
#
# The term $7Nd$ consists of reading $K$ and $V$, writing zeros to the three gradients (as in the paper; only $dQ$ needs them), and writing $dK$ and $dV$. In fast memory, $L_i$ and $D_i$ replace $m_i$ and $\ell_i$. As in the forward pass, $B_r$ does not appear in $W$.
#
# The paper uses the block size of its forward pass, $B_c = M/(4d)$.
#
# **Predict** (compute). $d = 8$ and $M = 512$, so $B_c = 16$. $K_j$, $V_j$, $dK_j$ and $dV_j$ are in fast memory. How many words are free?

# %% tags=["predict"]
predict("6.5", left=0)  #> predict("6.5", left=...)

# %%
small = dict(zip(("Q", "K", "V", "dO"), rng.standard_normal((4, 64, 8)), strict=True))
small |= schedules.saved_for_backward(small["Q"], small["K"], small["V"])  # O, P, LSE, m, l
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
# <details><summary>Free words</summary>
#
# No word is free, not even for one row of $Q$, because four tiles of $M/(4d)$ rows fill $M$ exactly. The published sizes never fit. With the paper's $B_r = \min(M/(4d), d) = 8$, the footprint exceeds $M$ by 400 words. The paper states its traffic up to constant factors, and a smaller block changes only such a factor.
#
# </details>
#
# The best tile, the default of the library, has $B_r = 1$ and $B_c \approx M/(4d+1)$. For large $N$ and $M$,
#
# $$ \frac{W_{\mathrm{B1}}M}{N^2d^2} \to 20\left(1 + \frac{2}{5d}\right)\left(1 + \frac{1}{4d}\right) . $$
# <!-- (above) \frac{W_{\mathrm{B1}}M}{N^2d^2} ~ schedules.flash1_backward.count(N, d, M).total * M / (N * d) ** 2 within 1e-4 with M = 10**6 * d, N = 10**6 * M -->
#
# There are about $4Nd/M$ key blocks, each with five transfers of $Nd$ words: $Q$, $O$, $dO$ and $dQ$ are read, and $dQ$ is written. The brackets are corrections for the statistics and for the tile of scores. Here is the algorithm, with the words of the whole run and $T_c = \lceil N/B_c \rceil$:
#
# <!-- algorithm flash1_backward -->
# | | **FlashAttention-1 backward.** Resident: $K_j$, $V_j$, $dK_j$, $dV_j$. Streamed: $Q_i$, $O_i$, $dO_i$, $dQ_i$, $m_i$, $\ell_i$. | words |
# | --- | :--- | ---: |
# | 1 | store $dQ$, $dK$, $dV$, filled with zeros | $3Nd$ |
# | 2 | **for** each key block $j$ | |
# | 3 | &emsp; load $K_j$, $V_j$; set $dK_j = dV_j = 0$ | $2Nd$ |
# | 4 | &emsp; **for** each query block $i$ | |
# | 5 | &emsp;&emsp; load $Q_i$, $O_i$, $dO_i$, $dQ_i$, $m_i$, $\ell_i$ | $T_c(4Nd + 2N)$ |
# | 6 | &emsp;&emsp; $P_{ij}$ by (6.5), $D_i$ by (6.6), $dS_{ij}$ by (6.3) | |
# | 7 | &emsp;&emsp; update $dV_j$, $dK_j$ and $dQ_i$ | |
# | 8 | &emsp;&emsp; store $dQ_i$ | $T_cNd$ |
# | 9 | &emsp; store $dK_j$, $dV_j$ | $2Nd$ |
#
# Which of the five transfers can be avoided?
# <!-- best = schedules.flash1_backward.tiles(4096, 64, 16384) -->
# <!-- "the default of the library" if best["Br"] == 1 and best["Bc"] == (16384 - 4 * 64) // (4 * 64 + 1) -->

# %% [markdown]
# ## 6.6 D in advance, and dQ in dO's buffer
#
# $O_i$ is loaded once per key block, only to compute the same $D_i$ again. FlashAttention-2 computes $D$ first, in a loop over the rows that moves $2Nd + N$ words. After that, it reads one word per row. (In kernels this array is often called *delta*, and a preprocess kernel computes it.) In the loop below, `add_row_dots` adds the row sums of $dO_i \circ O_i$ to `D_i` without a temporary.

# %%
def row_products(m, O, dO, *, Br):
    """Store D_i = Σ_c dO_ic O_ic for all rows."""
    D = m.new("D", (O.shape[0],))
    for i in m.blocks(O.shape[0], Br):
        with m.load(O, i) as o, m.load(dO, i) as do, m.zeros(i) as D_i:
            D_i.add_row_dots(do, o)
            m.store(D_i, D, i)
    return D


run(row_products, M=200, O=small["O"], dO=small["dO"], Br=10).ledger

# %% [markdown]
# For $N = 64$ and $d = 8$ this takes $2Nd + N = 1{,}088$ words, once.
#
# Two more savings are possible. First, on the first visit $dQ_i$ need not be read, because it starts as zeros in fast memory. (A block `j` of `m.blocks` knows whether it is the first one: `j.first`.) Second, $dO_i$ is needed for $dV_j$ and $dS_{ij}$, and $dQ_i$ only after that, so both can use the same buffer, which saves fast memory. This is the fused backward (B3, `fused_backward` in code):
#
# $$ W_{\mathrm{B3}} = 5Nd + N + \left\lceil \frac{N}{B_c} \right\rceil (4Nd + 2N), \qquad \text{footprint } 4B_c d + B_r(2d + 2 + B_c) . \tag{6.8} $$
# <!-- (6.8) W_B3 = costs.fused_backward(N, d, Br=Br, Bc=Bc).total -->
# <!-- (6.8) footprint = costs.fused_backward(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N -->
#
# The term $5Nd + N$ is $O$ and $dO$ read and $D$ written in advance, $K$ and $V$ read, $dK$ and $dV$ written, minus the first read of $dQ$. (The FlashAttention-2 backward, `flash2_backward`, has separate buffers for $dO_i$ and $dQ_i$, so $3d$ replaces $2d$. With $B_r = 1$ the shared buffer saves $d$ words, but one more key needs $4d$, so for most $M$ the traffic is equal.) With $B_c \approx M/(4d+1)$, about $4Nd/M$ key blocks move $4Nd$ words each ($Q$, $dO$ and $dQ$ read, $dQ$ written), which gives the constant $4 \cdot 4 = 16$ for both.
#
# **Predict** (compute). $N = 65\,536$, $d = 64$, $M = 64d^2$. With best tiles and without the terms that lack $N^2$, what is the ratio of the FlashAttention-1 backward's traffic to that of the fused backward? And which fraction of the fused backward's traffic is written? (The rest is read.)

# %% tags=["predict"]
predict("6.6", b1_over_b3=1.25, written=0.25)  #> predict("6.6", b1_over_b3=..., written=...)

# %%
N, d, M = 65536, 64, 64 * 64**2
b1, b3 = counted("flash1_backward", N, d, M), counted("fused_backward", N, d, M)
print(f"FlashAttention-1 backward: {b1.total:,} words")
print(f"fused backward: {b3.total:,} words, {b3.read:,} read and {b3.written:,} written")
measured("6.6", b1_over_b3=b1.total / b3.total, written=b3.written / b3.total)

# %% [markdown]
# <details><summary>The ratio, and the written fraction</summary>
#
# The ratio is 1.251: five transfers compared with four. A quarter of the fused backward's traffic is written, because $Q$, $dO$ and $dQ$ are read and only $dQ$ is written. So the constant 16 is the sum of 12 for reads and 4 for writes. Section 6.10 in part b concludes that a bound on reads alone cannot exceed 12.
#
# </details>
#
# Two more operations of the machine work in place. `probabilities(s, L_i)` turns scores into weights by (6.5). `s.multiply_by_matmul(do, v.T, less=D_i)` multiplies `s`, entry by entry, by $dO_iV_j^\top - D_i$. One tile can therefore hold $S_{ij}$, then $P_{ij}$, then $dS_{ij}$. Transposes are views, as in `dv.add_matmul(s.T, do)`. Zeros for a gradient are `m.zeros(j, d)`.
#
# <!-- exercise 6B --> Write the fused backward, with key blocks in the outer loop and query blocks in the inner loop. The first lines, which compute $D$, are given. The factor $1/\sqrt d$ belongs to $S$, to $dQ$ and to $dK$. If you scale $Q_i$ in place (`q *= d**-0.5`), $dK$ contains it already, but $dQ$ does not. Your function may move at most the words of (6.8). The available fast memory is the footprint of (6.8) plus one tile of scores and four words per row. The check uses $B_c + 4 < d$, so separate buffers of $dO_i$ and $dQ_i$ do not fit: free $dO_i$ as in exercise 4C. If you are stuck after twelve minutes, run `hint("6B")` in a new cell. Section 6.9 explains the lower bound that the check prints.
# <!-- 1.251 = schedules.flash1_backward.count(65536, 64, 64**3).total / schedules.fused_backward.count(65536, 64, 64**3).total -->

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
    """dQ, dK, dV with key blocks in the outer loop, and dQ_i in dO_i's buffer.

    m: the machine. Q, K, V, O, dO: slow arrays (N, d). LSE: slow array of L, (N,).
    Br, Bc: rows per query block and per key block.
    Returns the slow arrays (dQ, dK, dV), each (N, d).
    """
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    for i in m.blocks(N, Br):
        with m.load(O, i) as o, m.load(dO, i) as do, m.zeros(i) as D_i:
            D_i.add_row_dots(do, o)
            m.store(D_i, D, i)
    ### BEGIN SOLUTION loop over key blocks, then query blocks; j.first: the first key block
    for j in m.blocks(N, Bc):  # resident: k, v, dk, dv (Bc, d)
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):  # streamed: q (Br, d), L_i and D_i (Br,), s (Br, Bc)
                with m.load(Q, i) as q, m.load(LSE, i) as L_i, m.load(D, i) as D_i:
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L_i)
                        with m.load(dO, i) as do:  # (Br, d)
                            dv.add_matmul(s.T, do)
                            s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        s *= d**-0.5
                        with m.zeros(i, d) if j.first else m.load(dQ, i) as dq:  # do's buffer
                            dq.add_matmul(s, k)
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV
    ### END SOLUTION


# %% tags=["check"] name="check-6B"
check("6B", my_fused_backward)

# %% [markdown]
# Here is the algorithm, with the words of the whole run. The order of lines 6 and 7 allows one buffer for $dO_i$ and $dQ_i$.
#
# <!-- algorithm fused_backward -->
# | | **Fused backward.** Resident: $K_j$, $V_j$, $dK_j$, $dV_j$. Streamed: $Q_i$, $dO_i$, $dQ_i$, $L_i$, $D_i$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$: load $O_i$, $dO_i$ | $2Nd$ |
# | 2 | &emsp; $D_i$ (delta) by (6.6); store $D_i$ | $N$ |
# | 3 | **for** each key block $j$: load $K_j$, $V_j$; set $dK_j = dV_j = 0$ | $2Nd$ |
# | 4 | &emsp; **for** each query block $i$: load $Q_i$, $L_i$, $D_i$ | $T_c(Nd + 2N)$ |
# | 5 | &emsp;&emsp; $P_{ij}$ by (6.5) | |
# | 6 | &emsp;&emsp; load $dO_i$; update $dV_j$; $dS_{ij}$ by (6.3); free $dO_i$ | $T_cNd$ |
# | 7 | &emsp;&emsp; update $dK_j$; load $dQ_i$, or set it to 0 for the first $j$ | $(T_c - 1)Nd$ |
# | 8 | &emsp;&emsp; update $dQ_i$; store $dQ_i$ | $T_cNd$ |
# | 9 | &emsp; store $dK_j$, $dV_j$ | $2Nd$ |
#
# The next cell runs your function on a head of all-MiniLM-L6-v2 with 471 tokens and $d = 32$. The gradient $dO$ is random, because none was recorded.

# %%
head = real_head(0, 2)
inputs = {name: getattr(head, name) for name in ("Q", "K", "V")}  # each (471, 32)
dO = np.random.default_rng(7).standard_normal((471, 32))
leaves = schedules.saved_for_backward(**inputs)
tiles = schedules.fused_backward.tiles(471, 32, 4096)
# M = 5000 instead of 4096, in case you use temporaries
mine = attempt(run, my_fused_backward, M=5000, trace=False, **inputs, O=leaves["O"], dO=dO,
               LSE=leaves["LSE"], **tiles)
want = exact.attention_backward(**inputs, dO=dO)
for name, got, right in zip(want._fields, mine.outputs, want, strict=False):
    print(f"{name}: largest error below 1e-10: {abs(got - right).max() < 1e-10}")
budget = schedules.fused_backward.cost(471, 32, **tiles)
print(f"{tiles}: {budget.total:,} words by (6.8)")
print("your ledger minus (6.8):", mine.ledger - budget)
for name in ("standard_backward", "flash1_backward"):
    print(f"{name}: {counted(name, 471, 32, 4096).total:,} words")

# %% [markdown]
# Your function moves 1,055,511 words. The standard backward pass moves 2,463,801 and the FlashAttention-1 backward 1,326,336. (If your ledger has a higher peak, it comes from temporaries.) The scores of this head reach 83. In float16, $e^{83}$ would overflow, but no exponent $s_{ij} - L_i$ exceeds 0.
#
# On a GPU the key blocks are processed in parallel. Several blocks then add to the same streamed $dQ_i$ (atomic additions), or a separate pass computes $dQ$, as in section 6.8.
# <!-- 83 = int(real_head(0, 2).stats["logit_max"]) -->

# %% [markdown]
# ## 6.7 Resident arrays × streamed arrays
#
# Is there a still better loop order? Now we want to know the constant *before* we write the schedule.
#
# A *pass* over the data processes all $N \times N$ pairs once; blocks of one side are resident and the other side is streamed. Suppose that the resident side has $r$ arrays, so each of its queries (or keys) needs $rd$ words in fast memory. Then $M/(rd)$ of them fit, and there are $rNd/M$ blocks. Suppose also that the streamed side has $t$ arrays. Then one block moves $tNd$ words. Together
#
# $$ W \approx \frac{rNd}{M} \cdot tNd = r\,t\,\frac{N^2d^2}{M} . \tag{6.9} $$
# <!-- (6.9) W ~ schedules.flash1.count(N, d, M).total within 1e-3 with r = 2, t = 3, d = 10**4 * x, M = 10**6 * d, N = 10**6 * M -->
#
# **The constant of a pass is resident arrays × streamed arrays**, $r\,t$. (The streamed side is loaded one row at a time and takes almost no capacity. We also neglect single words per row, such as $L_i$.) A streamed partial result counts twice, because it is read and written. Here is the rule applied to four schedules:
#
# | schedule | resident | streamed | $r \cdot t$ |
# | --- | --- | --- | --- |
# | FA-2 order with K/V buffer reuse (lesson 04) | $Q$, $O$ | $K$, $V$ | $2 \cdot 2 = 4$ |
# | FA-1 order with its best tile (lesson 04) | $K$, $V$ | $Q$, $O$ twice | $2 \cdot 3 = 6$ |
# | FlashAttention-1 backward | $K$, $V$, $dK$, $dV$ | $Q$, $O$, $dO$, $dQ$ twice | $4 \cdot 5 = 20$ |
# | fused backward | $K$, $V$, $dK$, $dV$ | $Q$, $dO$, $dQ$ twice | $4 \cdot 4 = 16$ |
#
# The figure shows the pass of the fused backward. Queries are the rows of the square, keys its columns.

# %%
explore.resident_and_streamed("columns", rows=("Q", "dO", "dQ"), columns=("K", "V", "dK", "dV"),
                              sums=("dQ", "dK", "dV"), title="Fused backward")

# %% [markdown]
# The three gradients can be distributed over two or three passes. Each pass then computes the scores itself. Which arrays does a gradient need? $dV$ needs $P$ and $dO$, hence $Q$, $K$ and $dO$. $dQ$ and $dK$ need $dS$, hence also $V$. $D$ and $L$ are single words per row.
#
# <!-- exercise 6C --> Write a function that returns the constant $r\,t$ of one pass. `stays` names the resident side, and `gradients` is the set of gradients that the pass computes, such as `{"dK", "dV"}`. Assume that $D$ and $L$ are already computed. If you are stuck after five minutes, run `hint("6C")` in a new cell.

# %% [raw] name="about-6C"
# title = "Resident arrays times streamed arrays"
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
    """The constant of one pass: resident arrays times streamed arrays.

    stays: the resident side, "rows" (the side of Q) or "columns" (the side of K).
    gradients: a set of one or more of "dQ", "dK", "dV". Returns an integer.
    """
    ### BEGIN SOLUTION count the inputs of each side, then the gradients of each side
    rows = 2                                                  # Q and dO
    columns = 1 if gradients == {"dV"} else 2                 # K, and V if dP is needed
    on_rows, on_columns = len(gradients & {"dQ"}), len(gradients & {"dK", "dV"})
    if stays == "rows":
        return (rows + on_rows) * (columns + 2 * on_columns)
    return (columns + on_columns) * (rows + 2 * on_rows)
    ### END SOLUTION


# %% tags=["check"] name="check-6C"
check("6C", my_constant)

# %% [markdown]
# There are five ways to distribute three gradients over passes: all in one pass, one of the three in a separate pass, and a pass for each. In every pass we may choose the resident side.
#
# **Predict** (compute). What is the constant of the cheapest of the five ways, summed over its passes?

# %% tags=["predict"]
predict("6.7", least=14)  #> predict("6.7", least=...)

# %%
WAYS = ("dQ dK dV", "dQ, dK dV", "dK, dQ dV", "dV, dQ dK", "dQ, dK, dV")


def least_of_all_ways():
    totals = []
    for way in WAYS:
        passes = [set(part.split()) for part in way.split(", ")]
        best = [min((my_constant(side, one), side) for side in ("rows", "columns"))
                for one in passes]
        totals.append(sum(constant for constant, side in best))
        shown = " + ".join(f"{constant} (resident {side})" for constant, side in best)
        print(f"{way:12} {shown} = {totals[-1]}")
    return min(totals)


measured("6.7", least=attempt(least_of_all_ways))

# %% [markdown]
# <details><summary>The cheapest way</summary>
#
# The constant is 14, with one pass for $dQ$ with resident rows and one pass for $dK$ and $dV$ with resident columns. Neither pass streams a partial result. The second pass computes $S$ and $dP$ again, so there are seven matrix products instead of five: *more* arithmetic and *less* traffic. With a separate pass for each gradient, the constant is 16 again.
#
# </details>

# %% [markdown]
# ## 6.8 Two passes
#
# We call the cheapest way, one pass for $dQ$ and then one for $dK$ and $dV$, the two-pass backward (B4, `split_backward` in code). Triton's attention tutorial also uses two passes; the formulas (6.9) and (6.10) are derivations of this course. In the first pass, $Q_i$, $dO_i$ and $dQ_i$ are resident, and $K_j$ and $V_j$ are streamed. $D_i$ is computed from $O_i$ before the first key is loaded, and stored for the second pass. (The library loads $O_i$ column by column.) In the second pass, $K_j$, $V_j$, $dK_j$ and $dV_j$ are resident, and $Q_i$ and $dO_i$ are streamed. It equals the fused backward without $dQ$.
#
# $$ W_{\mathrm{B4}} = \underbrace{4Nd + 2N + 2Nd\left\lceil \frac{N}{B_{r1}} \right\rceil}_{\text{resident rows}} + \underbrace{4Nd + \left\lceil \frac{N}{B_{c2}} \right\rceil (2Nd + 2N)}_{\text{resident columns}} . \tag{6.10} $$
# <!-- (6.10) W_B4 = costs.split_backward(N, d, Br1=Br1, Bc1=Bc1, Br2=Br2, Bc2=Bc2).total -->
#
# Its footprint is the larger one of the footprints of the two passes:
#
# $$ \text{footprint } \max\bigl(B_{r1}(3d + 2 + B_{c1}) + 2B_{c1} d,\; 4B_{c2}d + B_{r2}(2d + 2 + B_{c2})\bigr) . $$
# <!-- (above) footprint = costs.split_backward(N, d, Br1=Br1, Bc1=Bc1, Br2=Br2, Bc2=Bc2).peak where max(Br1, Bc1, Br2, Bc2) <= N -->
#
# The figure shows the contents of fast memory during both passes.

# %%
given = {name: small[name] for name in schedules.split_backward.operands}
b4 = run(schedules.split_backward, M=1100, **given, Br1=32, Bc1=1, Br2=1, Bc2=32)
explore.memory_timeline(b4.ledger, M=1100,
                        title="Two-pass backward: resident rows, then resident columns")

# %% [markdown]
# Two query blocks are resident, one after the other, and then two key blocks. The *accumulator* is an array that the schedule creates: $dQ$ (with $D_i$) in the first pass, $dK$ and $dV$ in the second. The streamed single rows are hardly visible.
#
# <!-- exercise 6D --> Write the first pass, with query blocks in the outer loop and key blocks in the inner loop. Return $dQ$ and $D$. Your function may move at most the words of the first bracket in (6.10). The available fast memory is the footprint of the first pass plus the allowance of exercise 6B, again with $B_c + 4 < d$, so you must free $O_i$ early. Loop with `m.blocks`, for a fast dry run. If you are stuck after six minutes, run `hint("6D")` in a new cell.

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
    """dQ and D, with query blocks in the outer loop.

    m: the machine. Q, K, V, O, dO: slow arrays (N, d). LSE: slow array of L, (N,).
    Br, Bc: rows per query block, per key block. Returns the slow arrays dQ (N, d) and D (N,).
    """
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    ### BEGIN SOLUTION first D_i from dO_i and O_i, then the streamed key blocks
    for i in m.blocks(N, Br):  # resident: do, q, dq (Br, d), L_i and D_i (Br,)
        with m.load(dO, i) as do, m.load(LSE, i) as L_i, m.zeros(i) as D_i:
            with m.load(O, i) as o:  # freed before q and dq are allocated
                D_i.add_row_dots(do, o)
            m.store(D_i, D, i)
            with m.load(Q, i) as q, m.zeros(i, d) as dq:
                q *= d**-0.5
                for j in m.blocks(N, Bc):  # streamed: k, v (Bc, d), s (Br, Bc)
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
# Now we measure the constants. Each constant has corrections of order $1/d$ for the statistics and for the tile of scores. For example, $M/(3d + 3)$ queries are resident in the first pass, hence $2(3d + 3)/d = 6(1 + \frac1d)$.
#
# | schedule | constant | with corrections |
# | --- | --- | --- |
# | FlashAttention-1 backward | 20 | $20\,(1 + \frac{2}{5d})(1 + \frac{1}{4d})$ |
# | FlashAttention-2 backward, fused backward | 16 | $16\,(1 + \frac{1}{2d})(1 + \frac{1}{4d})$ |
# | two-pass backward | 14 | $6\,(1 + \frac1d) + 8\,(1 + \frac1d)(1 + \frac{1}{4d})$ |

# %%
N, d, M = 65536, 64, 64 * 64**2
rows = {"Br": (M - 2 * d) // (3 * d + 3), "Bc": 1}  # the largest Br that fits with one key
shapes = schedules.split_backward.shapes(N, d)
# 2M in case you use temporaries
first = attempt(run, my_queries_gradient, M=2 * M, dry=True, **shapes, **rows).ledger
b3, b4 = counted("fused_backward", N, d, M), counted("split_backward", N, d, M)
second = b4.phases["columns stay"]
unit = (N * d) ** 2 / M
for name, ledger in (("fused", b3), ("two-pass", b4)):
    print(f"{name} backward {ledger.total:,} words, constant {ledger.total / unit:.2f}")
print(f"resident rows {first.total / unit:.3f}, "
      f"resident columns {(second.read + second.written) / unit:.3f}")

# %% [markdown]
# Your pass has the constant 6.377 and the second pass 8.502, together 14.88. The fused backward has 16.69. The formulas give 6.09 and 8.16, because they leave out the $4Nd$ words that each pass moves once, and the rounding to complete blocks. At four million tokens, by closed forms, the terms without $N^2$ are negligible:
# <!-- 6.09, 8.16 = 6 * (1 + 1 / 64), 8 * (1 + 1 / 64) * (1 + 1 / (4 * 64)) -->

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
# At $M = 64d^2$ the constants are 20.24, 16.21 (twice) and 14.28. The corrected formulas give 20.20, 16.19 and 14.25; most of the rest is rounding to complete rows and blocks. The tile size matters: with half the block, $B_c = M/(8d)$, the constant of the FlashAttention-2 backward would be 32.25.
#
# Is the two-pass backward also better for a short sequence? Take $N = 4096$, $d = 64$ and $M = 64d^2$. The best tiles give 5 key blocks in the fused backward. In the two-pass backward they give 4 query blocks in the first pass and 5 key blocks in the second.
#
# **Predict** (compute). How large is the ratio of the two-pass backward's traffic to that of the fused backward? Use (6.10) and (6.8), and neglect the terms without $d$.
# <!-- d = 64 -->
# <!-- 20.20 = 20 * (1 + 2 / (5 * d)) * (1 + 1 / (4 * d)) -->
# <!-- 32.25 = costs.flash2_backward(2**22, 64, Br=1, Bc=64**3 // (8 * 64)).total * 64**3 / (2**22 * 64) ** 2 -->
# <!-- b4_form = 6 * (1 + 1 / d) + 8 * (1 + 1 / d) * (1 + 1 / (4 * d)) -->
# <!-- 16.19, 14.25 = 16 * (1 + 1 / (2 * d)) * (1 + 1 / (4 * d)), b4_form -->

# %% tags=["predict"]
predict("6.8", b4_over_b3=26 / 25)  #> predict("6.8", b4_over_b3=...)

# %%
M, ratios = 64 * d**2, {}
for N in (2048, 4096, 8192, 16384):
    b3, b4 = counted("fused_backward", N, d, M), counted("split_backward", N, d, M)
    ratios[N] = b4.total / b3.total
    print(f"N = {N:6,}: fused {b3.total:11,}  two-pass {b4.total:11,}  ratio {ratios[N]:.3f}")
measured("6.8", b4_over_b3=ratios[4096])

# %% [markdown]
# <details><summary>Where the two-pass backward has less traffic</summary>
#
# At $N = 4096$ it moves *more*: $4 + 8 + 4 + 10 = 26$ times $Nd$ words compared with $5 + 20 = 25$, a ratio of 1.040. Its $8Nd$ words that are moved once outweigh the $5Nd$ of the fused backward. From $N = 8192$ on it moves less. ($16N^2d^2/M + 5Nd$ equals $14N^2d^2/M + 8Nd$ at $N = 3M/(2d) = 6144$.)
#
# </details>
#
# `schedules.best(N, d, M, "backward")` returns the schedule with less traffic. Here is the algorithm of both passes, with $T_{r1} = \lceil N/B_{r1} \rceil$ and $T_{c2} = \lceil N/B_{c2} \rceil$:
# <!-- 6144 = 3 * 64**3 // (2 * 64) -->
# <!-- more = lambda N: schedules.split_backward.count(N, 64, 2**18).total > schedules.fused_backward.count(N, 64, 2**18).total -->
# <!-- "it moves *more*" if more(4096) -->
# <!-- "From $N = 8192$ on it moves less." if not any(more(2**k) for k in range(13, 20)) -->
#
# <!-- algorithm split_backward -->
# | | **Two-pass backward, first pass.** Resident: $Q_i$, $dO_i$, $dQ_i$, $D_i$. Streamed: $K_j$, $V_j$. **Second pass.** Resident: $K_j$, $V_j$, $dK_j$, $dV_j$. Streamed: $Q_i$, $dO_i$, $L_i$, $D_i$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$: load $O_i$, $dO_i$, $L_i$, $Q_i$; $D_i$ by (6.6) | $3Nd + N$ |
# | 2 | &emsp; **for** each key block $j$: load $K_j$, $V_j$ | $2T_{r1}Nd$ |
# | 3 | &emsp;&emsp; $P_{ij}$ by (6.5), $dS_{ij}$ by (6.3); update $dQ_i$ | |
# | 4 | &emsp; store $D_i$, $dQ_i$ | $N + Nd$ |
# | 5 | **for** each key block $j$: load $K_j$, $V_j$; set $dK_j = dV_j = 0$ | $2Nd$ |
# | 6 | &emsp; **for** each query block $i$: load $Q_i$, $dO_i$, $L_i$, $D_i$ | $T_{c2}(2Nd + 2N)$ |
# | 7 | &emsp;&emsp; $P_{ij}$ by (6.5), $dS_{ij}$ by (6.3); update $dV_j$ and $dK_j$ | |
# | 8 | &emsp; store $dK_j$, $dV_j$ | $2Nd$ |
# <!-- 26 = schedules.split_backward.count(4096, 64, 2**18).total / (4096 * 64) -->
# <!-- 1.040 = schedules.split_backward.count(4096, 64, 2**18).total / schedules.fused_backward.count(4096, 64, 2**18).total -->

# %% [markdown]
# ## 6.9 Lower bounds: 14 for complete rows, 12 for all schedules
#
# The constant decreased from 20 to 16 to 14. Could it fall further? Two theorems, both derivations of this course, give the limits. To leading order, for long sequences and $M$ far above $d^2$:
#
# - **12 for every schedule** (Theorem C). A schedule that computes $s_{ij}$ and $dp_{ij}$ for all pairs and forms every product of (6.4) and of $dV$ moves at least $12\,N^2d^2/M$ words. This holds for any loop order, any tile size and any amount of recomputation.
# - **14 for complete rows** (Theorem E). If the schedule also moves its arrays only in complete rows and frees the scores of a tile before it computes the next one, it moves at least $14\,N^2d^2/M$ words. The schedules of sections 6.5 to 6.8 belong to this class.
#
# The figure compares both bounds with three schedules. $N$ is four million, so that the terms without $N^2$ are negligible, and $M$ grows from $4d^2$ to $1024d^2$.

# %%
N, d = 2**22, 64
memories = [4**k * d**2 for k in range(1, 6)]
unit = {M: (N * d) ** 2 / M for M in memories}
orders = {"FlashAttention-1 backward": schedules.flash1_backward,
          "fused backward": schedules.fused_backward,
          "two-pass backward": schedules.split_backward}
found = {label: [(M / d**2, one.count(N, d, M).total / unit[M]) for M in memories]
         for label, one in orders.items()}
line = {}
for label, whole in (("all schedules (C)", False), ("complete rows (E)", True)):
    least = [bounds.lower_bound("backward", N, d, M, whole_rows=whole)[0] for M in memories]
    line[label] = [(M / d**2, w / unit[M]) for M, w in zip(memories, least, strict=True)]
explore.curve(found, line, title="Backward constants, N = 4,194,304, d = 64",
              xlabel="M/d²", ylabel="W M/(N²d²)", log=(True, False))

# %% [markdown]
# The bound for complete rows is just below the two-pass backward, whose constant is 14.3 to 14.4. The bound for all schedules has $M + 4d^2$ in place of $M$, so it is lower for small $M$ and rises to 12. For large $M$ no schedule reaches a constant below 12, and it is unknown whether schedules that split rows can reach one between 12 and 14. [Part b](06b_backward_lower_bounds.ipynb) states both theorems with all their terms, proves them, and poses this question as a challenge. It also treats a causal mask in the backward pass.

# %% [markdown]
# ## Misconceptions
#
# - **"The backward pass needs the weights, so the forward pass must store them."** It needs one word per row: 512 words instead of 262,144 (6.3).
# - **"Recomputation saves memory and costs traffic."** It costs arithmetic. The two-pass backward computes all scores twice, and its constant is 14 where the fused backward has 16 (6.8).
# - **"The gradient of softmax needs the complete row."** It needs the row only through $D_i$, the product of a row of $dO$ and a row of $O$ (6.4).
#
# ## Take-away
#
# - With $L_i$ and $D_i = \sum_c do_{ic}o_{ic}$, two words per row, every tile of $P$ and $dS$ can be computed independently.
# - The constant of a pass is resident arrays × streamed arrays, and a streamed partial result counts twice. A separate pass for the gradients of each side therefore gives $6 + 8 = 14$.
# - For $M$ far above $d^2$, schedules that move only complete rows have a constant of at least 14, and all schedules that process every pair have at least 12.
#
# **In the literature's words**: computing $P$ again from $L$ is recomputation (FlashAttention, section 3.1). $D$ is called delta in the preprocess kernel of Triton's attention tutorial, whose backward kernel also uses two passes, one for $dK$ and $dV$ and one for $dQ$.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Algorithm 3 is the standard backward pass, Algorithm 4 the FlashAttention-1 backward; the paper has the recomputation and the formula of $D$.
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Algorithm 2: $D$ in advance, the loop order of the FlashAttention-2 backward.
# - Triton: [*Fused attention*](https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html), tutorial 06.
#
# **What comes next.** <!-- next -->
