# %% [markdown]
# # 07b Input gradient, Theorem B′ and two more schedules
#
# This part b of lesson 07 has four topics that do not depend on each other: the gradient with respect to a matrix inside attention (7.8, 7.9), the proof of Theorem B′ (7.10), a schedule to repair (7.11), and a schedule that stores no scores (7.12).
#
# **What you will learn**
#
# - to compute $dL/dX$ with one forward and one backward pass, and to choose what to store for it;
# - why $4$ is the best constant for $M \ll d^2$, even if scores may be recomputed;
# - to find two faults of a schedule in its ledger and its timeline;
# - how much traffic a fused schedule needs in a small cache.
#
# **Prerequisites**: [lesson 07](07_small_caches.ipynb). Sections 7.8 and 7.9 use the gradients of lesson 06; the proof extends that of section 5.9 in lesson [05b](05b_lower_bound_proof.ipynb). Formulas (7.6) and (7.4) are in sections 7.11 and 7.12. Symbols and terms: [notation](notation.md).
#
# **Minutes**: <!-- minutes without 7F -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.machine import probabilities

# %%
# Explained in section 7.9
explore.resident_and_streamed("rows", rows=("Q", "dO", "dQ"), columns=("K", "V"),
                              sums=("dQ",), title="dQ")

# %% [markdown]
# ## 7.8 Attention inside another problem
#
# A paper on the I/O complexity of the backward pass (Li and others, see the references) studies it in this form. $A_1, A_2, A_3, E$ have shape $(n, d)$ and $X, Y$ have shape $(d, d)$. The loss, and the gradient to be computed, are
#
# $$ L(X) = \tfrac12 \bigl\| \mathrm{softmax}\bigl(A_1 X A_2^\top\bigr)\, A_3 Y - E \bigr\|^2, \qquad \frac{dL}{dX} . \tag{7.9} $$
# <!-- (7.9) not evaluated: entries of arrays -->
#
# With $f = \mathrm{softmax}(A_1XA_2^\top)$, $h = A_3Y$, $q = (fh - E)h^\top$ and $p = f\circ q - \mathrm{diag}\bigl((f\circ q)\mathbf 1\bigr) f$, the paper computes the gradient as $A_1^\top p\, A_2$.
#
# **Predict** (guess). What does each row of $p$ sum to?

# %% tags=["predict"]
predict("7.8", row_sum=0)  #> predict("7.8", row_sum=...)

# %%
n, d = 12, 3
rng = np.random.default_rng(8)
A1, A2, A3, E = rng.standard_normal((4, n, d))
X, Y = rng.standard_normal((2, d, d))
f, h = exact.softmax(A1 @ X @ A2.T), A3 @ Y      # (n, n), (n, d)
q = (f @ h - E) @ h.T                            # (n, n)
p = f * q - (f * q).sum(axis=1, keepdims=True) * f  # (n, n)
measured("7.8", row_sum=round(abs(p.sum(axis=1)).max(), 9))

# %% [markdown]
# <details><summary>Rows that you know from lesson 06</summary>
#
# The sum is 0, as for the rows of $dS$ in lesson 06: each row of $f$ sums to 1, so both terms of $p$ have the same row sum. The next exercise shows how far the similarity goes.
#
# </details>
#
# $\|\cdot\|^2$ is the sum of the squares of all entries, and there is no factor $1/\sqrt d$. In a model, $X$ is the product $W_Q W_K^\top$ of two weight matrices, $Y$ is $W_V$, and $E$ is the desired output.
#
# <!-- exercise 7E --> Write $dL/dX$ in a few lines of NumPy, with one call of `forward` and one of `backward`, which the check passes to your function. `forward(Q, K, V)` returns $O = \mathrm{softmax}(QK^\top)V$, and `backward(Q, K, V, dO)` returns $(dQ, dK, dV)$, both without the factor $1/\sqrt d$. Which arrays take the places of $Q$, $K$ and $V$? What is $dO$, the gradient of this loss with respect to $O$? And how does the gradient with respect to $Q$ give the one with respect to $X$? The check counts the calls and compares your result with the paper's formula and with finite differences of the loss. In one of its cases `forward` and `backward` apply a causal mask, so use what they return, and compute no softmax yourself. If you are stuck after six minutes, run `hint("7E")` in a new cell.


# %% [raw] name="about-7E"
# title = "The gradient with respect to X"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "Which three matrices are Q, K and V here? Then two questions are left: what is dO for this loss, and how does Q depend on X?",
#   "The loss is half a sum of squares of O - E, so its gradient with respect to O is a difference. One call of forward gives O, one call of backward gives dQ.",
#   "Q is A1 times X. The element of X in row a and column b enters every row of Q in column b, with the factor in column a of A1. Sum over the rows: which matrix product is this?",
# ]

# %% tags=["exercise"] name="ex-7E"
def my_grad_x(X, A1, A2, A3, Y, E, forward, backward):
    """dL/dX for L(X) = ½‖softmax(A1 X A2ᵀ) A3 Y - E‖².

    A1, A2, A3, E: (n, d). X, Y: (d, d).
    forward(Q, K, V) -> O; backward(Q, K, V, dO) -> dQ, dK, dV.
    Returns an array (d, d).
    """
    ### BEGIN SOLUTION attention forward, attention backward, one product
    Q, V = A1 @ X, A3 @ Y  # (n, d), (n, d)
    dO = forward(Q, A2, V) - E  # (n, d)
    dQ, _, _ = backward(Q, A2, V, dO)  # (n, d)
    return A1.T @ dQ
    ### END SOLUTION


# %% tags=["check"] name="check-7E"
check("7E", my_grad_x)


# %%
def forward(Q, K, V):
    return exact.attention(Q, K, V, scale=1.0)


def backward(Q, K, V, dO):
    return exact.attention_backward(Q, K, V, dO, scale=1.0)


mine = attempt(my_grad_x, X, A1, A2, A3, Y, E, forward, backward)
nudge = np.zeros((d, d))
nudge[1, 2] = 1e-5
up, down = (exact.loss_x(X + way * nudge, A1, A2, A3, Y, E) for way in (1, -1))
print(f"yours [1, 2]: {mine[1, 2]:.6f}")
print(f"by nudging:   {(up - down) / 2e-5:.6f}")
print(f"paper's p A2 equals dQ: {np.allclose(p @ A2, backward(A1 @ X, A2, h, f @ h - E)[0])}")

# %% [markdown]
# All printed digits agree. So the problem is ordinary attention with
#
# $$ Q = A_1X, \quad K = A_2, \quad V = A_3Y, \quad dO = O - E, \qquad\text{and}\quad \frac{dL}{dX} = A_1^\top dQ . \tag{7.10} $$
# <!-- (7.10) not evaluated: entries of arrays -->
#
# The paper's $p$ is $dS$, and its $pA_2$ is $dQ$. $dK$ and $dV$ are not needed. Everything that we know about the traffic of attention applies.
#
# ## 7.9 Schedules for the input gradient
#
# Blocked products compute $Q = A_1X$ and $V = A_3Y$ at the beginning and $A_1^\top dQ$ at the end. In between, a forward pass computes $dO = O - E$, $L_i$ and $D_i$, and another pass over the data computes $dQ$. Let $x = d/\sqrt M$. With complete rows, $r$ resident and $t$ streamed arrays take $r\,t\,x^2$ in units of $n^2$ words, because $M/(rd)$ rows of each resident array fit and each streamed array of $nd$ words is loaded once for each such block. The figure at the beginning of this lesson shows the second pass: rows of three arrays are resident, and keys and values are streamed, $6x^2$. The forward pass has two of each, $4x^2$. Both together, $10x^2$, are the schedule `gradient`. It stores no $n \times n$ matrix.
#
# **Predict** (guess). $n = 2^{22}$, $d = 256$, $M = d^2$, so `gradient` moves about $10\,n^2$ words. Storing a matrix and reading it back takes $2n^2$. If a schedule may store any matrices, what percentage does the best one save?

# %% tags=["predict"]
predict("7.9", percent_less=0)  #> predict("7.9", percent_less=...)

# %% [markdown]
# With less memory the trade-off is that of section 7.6: if an $n \times n$ matrix is stored, fewer arrays must be resident at the same time.
#
# | $M$ | schedule | stored | words, in $n^2$ |
# | --- | --- | --- | --- |
# | above $\frac32d^2$ | `gradient` | nothing | $10x^2$ |
# | $d^2$ to $\frac32d^2$ | `gradient_dp_materialised` | $dP$ | $7x^2 + 2$ |
# | $d^2/2$ to $d^2$ | `gradient_scores_materialised` | $S$, later overwritten by $dS$ | $4x^2 + 5$ |
# | $d^2/4$ to $d^2/2$ | the same, in two slices | the same | $3x^2 + 7$ |
# | below $d^2/4$ | `gradient_small_cache` | the same, all in tiles | $8x + 3$ |
#
# `gradient_dp_materialised` has three passes. It computes $O$ with two resident arrays, $4x^2$. It computes $dP$ with only $dO$ resident and $V$ streamed, $x^2$, and stores it. It computes $dQ$ from $dP$ with $Q$ and $dQ$ resident and $K$ streamed, $2x^2$. The sum is $7x^2$, plus $2$ for writing and reading $dP$. `gradient_scores_materialised` never keeps two arrays at a time: it computes scores, output, $dS$ and $dQ$ in four passes of $x^2$ each. A complete $n \times n$ matrix is written or read five times: $S$ is written, read for $O$ and read for $dS$; $dS$ is written and read for $dQ$. In two slices, the passes for $O$ and $dQ$ take $x^2/2$ each and read their matrix twice, which gives $3x^2 + 7$. In `gradient_small_cache` each of the four passes is a matrix product in tiles and takes $2x$. Here the reads of $S$ for $O$ and of $dS$ for $dQ$ are among the streams. In addition, $S$ is written, read again and overwritten by $dS$, which gives $8x + 3$.
#
# As in section 7.6, these are the best schedules made of passes. Storing $S$ instead of $dP$ takes $6x^2 + 3$ (passes of $x^2$, $x^2$ and $4x^2$; $S$ is written once and read twice), which is not less than the table at any $M$.
# <!-- "not less than the table at any $M$" if all(6 * x**2 + 3 >= sweeps.min_cost("gradient", x).cost - 1e-9 for x in np.linspace(0.2, 4, 50)) -->
#
# In a small cache the products with a $d \times d$ matrix count as well, $2nd^2/\sqrt M$ for each of $A_1X$, $A_3Y$ and $A_1^\top dQ$:
#
# $$ W \approx \frac{8n^2d}{\sqrt M} + \frac{6nd^2}{\sqrt M} + 3n^2 . \tag{7.11} $$
# <!-- (7.11) W ~ costs.gradient_small_cache(n, d, B=B).total within 0.01 with n = i * B, d = c * B, M = B**2 where i >= 200 -->
#
# In a very large cache, a product can be bracketed in another way: $s_{ij} = a_{1i}\,(X a_{2j}^\top)$. If $X$, $Y$ and the partial sums of $dL/dX$, $3d^2$ words, are resident, then $Q$, $V$ and $dQ$ are not needed. In the second pass, rows of $A_1$ and $dO$ are resident and $A_2$ and $A_3$ are streamed, which takes $4x^2$ instead of $6x^2$. The forward pass again takes $4x^2$. This is `gradient_reassociated` with $8\,n^2d^2/M$ words.
# <!-- "with $8\,n^2d^2/M$ words" if math.isclose(schedules.gradient_reassociated.count(2**40, 4096, 2**36).total * 2**36, 8 * 2**104, rel_tol=0.01) -->

# %%
n, d = 2**22, 256
for share in (2**-6, 1 / 8, 3 / 8, 3 / 4, 1, 1.25, 4, 64):
    s, _, cost = schedules.best(n, d, int(share * d**2), "gradient")
    ratio = cost.total / bounds.lower_bound("gradient", n, d, int(share * d**2))[0]
    print(f"M = {share:7.4f} d²: {s.name:24} {cost.total / n**2:7.3f} n², ratio {ratio:.2f}")
plain = schedules.gradient.cost(n, d, **schedules.gradient.tiles(n, d, d**2)).total
least = schedules.best(n, d, d**2, "gradient").cost.total
print(f"at M = d²: gradient {plain / n**2:.2f} n², the best {least / n**2:.2f} n²")
measured("7.9", percent_less=100 * (1 - least / plain))

# %% [markdown]
# <details><summary>How much is saved at $M = d^2$</summary>
#
# 10.9 percent: `gradient` moves $10.16\,n^2$ words and the best schedule $9.05\,n^2$. Without the smaller terms it would be 10 percent, because at $x = 1$ the second and the third row of the table both give $9\,n^2$. The third row has $3$ more for stored matrices and $3x^2$ less for streamed arrays.
#
# </details>
# <!-- "the second and the third row of the table both give $9\,n^2$" if round(sweeps.min_cost("gradient", 1).cost, 9) == 9 and schedules.best(2**40, 2**13, 2**26 - 2**20, "gradient").schedule.name != schedules.best(2**40, 2**13, 2**26 + 2**20, "gradient").schedule.name -->
#
# `gradient_reassociated` moves fewer words than `gradient` where $3d^2$ words are a small part of $M$.
#
# The ratio in the last column refers to the best lower bound with a constant that the course has, and this bound counts only the forward part. It is open whether better schedules or better bounds exist. The constant 6 for the pass that computes $dQ$ is *not* a lower bound, as `gradient_reassociated` shows.
#
# The paper's theorem (bound `theta_gradient`, without constants) is
#
# $$ W = \Theta\left( \min\left\{ \frac{n^2d^2 + nd^3}{M},\; \frac{n^2d + nd^2}{\sqrt M} \right\} \right), \tag{7.12} $$
# <!-- (7.12) W = bounds.theta_gradient.order(n, d, M) with Theta = lambda order: order where M <= n * d -->
#
# plus the compulsory traffic for $M > nd$, as in (7.8). The term $nd^3/M$ comes from $X$: its $d^2$ words are read once for each block of about $M/d$ rows of $A_1$. For $M \ge d^2$ this is at most about $nd$ words, no more than $A_1$ itself.
# <!-- "this is at most about $nd$ words" if all(schedules.best(2**22, 256, M, "gradient").cost.reads["X"] <= 1.02 * 2**30 for M in (2**16, 2**18, 2**22)) -->
#
# ## 7.10 The proof of Theorem B′
#
# Section 5.9 proves Theorem A in five steps, and section 5.10 outlines how B′ follows. Here are all steps, with the changes in each.
#
# **Step 1: which products count.** For a pair $(i, j)$ a schedule may compute the sum of $q_{ic}k_{jc}$ over $c$ several times. Choose the sum that is completed first, and call its $d$ products *chosen*. Later sums, and sums that are never completed, are not chosen. In addition we count the useful products $p_{ij}v_{jc}$ of section 5.9. In total there are $N^2d + N^2d = 2N^2d$ products to count.
#
# **Step 2: accumulators.** The outputs $o_{ic}$ are accumulators, as before. The chosen sum of a pair is also an accumulator, from its first product until it is completed; after that the score is an ordinary word. A chosen sum may have several partial sums. As in section 5.9, an accumulator enters when it has no partial sum in fast memory and one is begun or read. (5.9) holds for every accumulator, so the number of its entries is at most the number of its reads plus one.
#
# **Step 3: segments.** Let $E$ (here a number, not the matrix of section 7.8) be the number of reads of words that are not accumulators, plus the number of entries of accumulators. The *plus one* in (5.9) now occurs for $Nd$ outputs and $N^2$ scores, so the run reads at least $E - Nd - N^2$ words. Storing the outputs adds $Nd$ words of traffic. A score need not be stored at all, so nothing is added for the $N^2$, and
#
# $$ W \ge E - N^2 . \tag{7.13} $$
# <!-- (7.13) not evaluated: step of a proof -->
#
# Cut the run into segments of $T$ events, that is, of $T$ such reads and entries. A segment uses at most $R = M + T$ different words.
#
# **Step 4: at most $F_b(R)$ products in a segment.** Among the $R$ words let $n_q, n_k, n_v$ be the words of $Q$, $K$ and $V$, and $n_o$ the accumulators of the output. The words of a pair are its partial sums (chosen or not), its score and its weight. Let $n_s$ be the number of pairs whose chosen sum entered in this segment, or of which a word was in fast memory at the start or was read. Then $n_q + n_k + n_v + n_o + n_s \le R$. There are three kinds of products to count:
#
# - *Chosen products $q_{ic}k_{jc}$.* Each needs its chosen sum, so its pair is one of the $n_s$. By Loomis and Whitney there are at most $\sqrt{n_s n_q n_k}$.
# - *Products $p_{ij}v_{jc}$ of these $n_s$ pairs.* Again by Loomis and Whitney, there are at most $\sqrt{n_s n_v n_o}$.
# - *Products $p_{ij}v_{jc}$ of all other pairs.* No word of such a pair was present or read, and its chosen sum did not enter, so $p_{ij}$ is computed from another sum that begins and ends within the segment. This needs the complete rows $q_i$ and $k_j$. At most $n_q/d$ rows of $Q$ and $n_k/d$ rows of $K$ are complete, and (5.12) gives at most $\sqrt{n_q n_k n_v n_o}/d$ products.
#
# Write $a = \sqrt{n_q n_k}$ and $b = \sqrt{n_v n_o}$. A geometric mean is at most the arithmetic mean, so $a + b \le (R - n_s)/2$, and $ab \le (a + b)^2/4$. The three kinds together are
#
# $$ \sqrt{n_s}\,(a + b) + \frac{ab}{d} \;\le\; \frac{\sqrt{n_s}\,(R - n_s)}{2} + \frac{(R - n_s)^2}{16d} . \tag{7.14} $$
# <!-- (7.14) not evaluated: step of a proof -->
#
# $F_b(R)$ is the largest value of the right side for $n_s$ between 0 and $R$. (It is the function of Theorem C: (6.12) has the same left side.)
#
# As in lesson 05b, let us test step 4 by trying everything. Two queries, two keys and $d = 1$ have 8 words of $Q$, $K$, $V$, $O$ and 4 pairs, so there are 4096 choices of words and pairs. (`s` marks the pairs among the $n_s$.)
#
# **Predict** (guess). Each pair has one product $q_{ic}k_{jc}$ and one product $p_{ij}v_{jc}$, so there are 8 products. What is the smallest number of words and pairs together for which step 4 counts all of them?
# <!-- 4096 = 2**12 -->
# <!-- 10.9 = 10**2 * (1 - schedules.best(2**22, 256, 256**2, "gradient").cost.total / schedules.gradient.count(2**22, 256, 256**2).total) -->
# <!-- 10 = 10**2 * (1 - sweeps.min_cost("gradient", 1).cost / 10) -->

# %% tags=["predict"]
predict("7.10", fewest=8)  #> predict("7.10", fewest=...)


# %%
def both_kinds(q, k, v, o, s):
    """Products q·k and p·v for d = 1: q, k, v, o are 0 or 1, each (2,); s is (2, 2)."""
    rows, outputs = np.outer(q, k), np.outer(o, v)  # (2, 2), (2, 2): queries by keys
    return int((s * rows + np.maximum(s, rows) * outputs).sum())


most = dict.fromkeys(range(13), 0)
for bits in np.ndindex(*[2] * 12):
    q, k, v, o = np.reshape(bits[:8], (4, 2))
    s = np.reshape(bits[8:], (2, 2))
    most[sum(bits)] = max(most[sum(bits)], both_kinds(q, k, v, o, s))
for R in (3, 6, 9, 12):
    print(f"{R:2} words and pairs: at most {most[R]} products, "
          f"F_b(R) = {bounds.all_products_per_segment(R, d=1):.2f}")
measured("7.10", fewest=min(R for R in most if most[R] == 8))

# %% [markdown]
# <details><summary>Why all 12 are needed</summary>
#
# No choice exceeds $F_b(R)$. All 8 products need all 12: a product $q_{ic}k_{jc}$ counts only if its chosen sum is among the words, one word for each of the four pairs. Scores that are recomputed from complete rows give the products of the second kind only.
#
# </details>
#
# **Step 5: how many segments.** The last segment has fewer than $T$ events. Because $F_b(R)$ grows with $R$, it forms fewer than $F_b(M + T)$ products. So there are at least $\lfloor 2N^2d/F_b(M + T) \rfloor$ full segments, and with (7.13)
#
# $$ W \ge T\left\lfloor \frac{2N^2d}{F_b(M + T)} \right\rfloor - N^2 \qquad \text{for every integer } T \ge 1 . \tag{7.15} $$
# <!-- (7.15) W >= bounds.theorem_B_prime(N, d, M, T) with Fb = lambda R: bounds.all_products_per_segment(R, d) where T >= 1 -->
#
# This is Theorem B′, bound `B'`. For (7.7) take $T = 2M$, so $R = 3M$. In (7.14) the first term is largest at $n_s = M$, where it is $M^{3/2}$, and the second at $n_s = 0$, where it is $9M^2/16d$. Hence $F_b(3M) \le M^{3/2} + 9M^2/16d$, and rounding down loses at most $T = 2M$ words. $\square$
# <!-- "Hence $F_b(3M) \le M^{3/2} + 9M^2/16d$" if all(bounds.all_products_per_segment(3 * M, d) <= (M**1.5 + 9 * M**2 / (16 * d)) * (1 + 1e-9) for d, M in ((4096, 16384), (64, 1024), (8, 4096), (1, 1))) -->

# %%
N, d, M = 2**20, 4096, 16384
for times in (1, 2, 3, 4):
    products = bounds.all_products_per_segment(M + times * M, d)
    words = times * M * (2 * N**2 * d // products) - N**2
    print(f"T = {times} M: W ≥ {words * M**0.5 / (N**2 * d):.3f} N²d/√M")

# %% [markdown]
# Of these, $T = 2M$ is the best. By the first term of (7.14) the bound is about proportional to $T/(M + T)^{3/2}$, which is largest at $T = 2M$.
#
# ## 7.11 A schedule to repair
#
# Between $d^2/4$ and $d^2/2$, the best schedule of lesson 07 is stored scores, tiled (F7d, `scores_stored_tiled` in code). It has two phases. In the first, rows of $Q$ are resident and keys are streamed; all scores are stored, and the log-sum-exp of each row with them. In the second, a tile of $O$ with $B_o$ rows and $B_d$ columns is resident; for each key, a column of $S$ and $B_d$ words of a row of $V$ are streamed.
#
# If the tile has only $B_d = d/k$ columns, it can have more rows, by a factor $k$. Then $V$ is streamed less often, and each score is read $k$ times:
#
# $$ W_{7d} = 2Nd + 2N + Nd\left(\left\lceil \frac N{B_r} \right\rceil + \left\lceil \frac N{B_o} \right\rceil\right) + N^2\left(1 + \left\lceil \frac d{B_d} \right\rceil\right), \qquad \text{footprint } \max\bigl(B_r(d + 3) + d,\; B_oB_d + 2B_o + B_d\bigr) . \tag{7.6} $$
# <!-- (7.6) W_7d = costs.scores_stored_tiled(N, d, Br=Br, Bo=Bo, Bd=Bd).total -->
# <!-- (7.6) footprint = costs.scores_stored_tiled(N, d, Br=Br, Bo=Bo, Bd=Bd).peak where Br <= N and Bo <= N and Bd <= d -->
#
# With one slice this is the schedule of exercise 7C, except that all $N^2$ scores are in slow memory at the same time. With two slices it moves $\frac32x^2 + 3$ in units of $N^2$ words. (Split-d reads each score $k$ times, too, if $B_d = B_c = d/k$. Then $B_r = kM/d$ rows fit. Per score, $Q$ takes $k$ words, $K$ and $V$ take $2x^2/k$, and $S$ takes $1 + k$, together $2x^2/k + 2k + 1$. This is smallest for $k = x$, where it is $4x + 1$.)
# <!-- "This is smallest for $k = x$, where it is $4x + 1$" if all(min(2 * x**2 / k + 2 * k + 1 for k in range(1, 40)) == sweeps.min_cost("forward", x).cost == 4 * x + 1 for x in (2, 3, 4)) -->
#
# Here is an implementation with two faults.


# %%
def as_found(m, Q, K, V, *, Br, Bo, Bd):
    """Stored scores, tiled, with two faults; its values are correct."""
    N, d = Q.shape
    O, S, LSE = m.new("O", (N, d)), m.new("S", (N, N)), m.new("LSE", (N,))
    for i in m.blocks(N, Br):  # Q_i is resident, scores are stored
        q = m.load(Q, i)  # (Br, d)
        q *= d**-0.5
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Br, 1)
                    m.store(s, S, i, j)
                    stats.update(s)
            m.store(stats.lse(), LSE, i)
    for i in m.blocks(N, Bo):  # a tile of O is resident, scores are loaded
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:  # (Bo, Bd)
                for j in m.blocks(N, 1):
                    with m.load(LSE, i) as L, m.load(S, i, j) as s, m.load(V, j, c) as v:
                        o.add_matmul(probabilities(s, L), v)  # (Bo, 1), (1, Bd)
                m.store(o, O, i, c)
    return O


N, d, tiles = 48, 16, {"Br": 16, "Bo": 24, "Bd": 8}
Q, K, V = np.random.default_rng(7).standard_normal((3, N, d))
found = run(as_found, M=1000, Q=Q, K=K, V=V, **tiles)  # more than it should need
print(f"equal to exact attention: {np.allclose(found.O, exact.attention(Q, K, V))}")
print(found.ledger)

# %% [markdown]
# Make a diagnosis before you search the code: compare the ledger with (7.6). There $Q$ and the log-sum-exps are read once, $K$ $\lceil N/B_r \rceil$ times, $V$ $\lceil N/B_o \rceil$ times and $S$ $\lceil d/B_d \rceil$ times; $S$, the log-sum-exps and $O$ are written once.
#
# **Predict** (compute). Find the array that is read too often. By how many words do its reads exceed those of (7.6)? And by how many words does the peak exceed the footprint?

# %% tags=["predict"]
predict("7.11", words_too_many=4560, peak_too_high=192)  #> predict("7.11", words_too_many=..., peak_too_high=...)

# %%
closed_form = costs.scores_stored_tiled(N, d, **tiles)
wrong = found.ledger - closed_form
print(wrong)
measured("7.11", words_too_many=wrong.words, peak_too_high=found.ledger.peak - closed_form.peak)
explore.memory_timeline(found.ledger, closed_form.peak,
                        title="The schedule as found, with M from (7.6)")

# %% [markdown]
# <details><summary>What the ledger and the timeline show</summary>
#
# The array is `LSE`. It has 48 words, and 4,608 words of it are read, 4,560 too many. The peak is 512 words instead of 320. The ledger does not show the cause of the second fault, but the timeline shows which tile it is.
#
# </details>
#
# <!-- exercise 7F --> Repair the schedule. The cell contains the code as found. Write your diagnosis in words in its first line, delete the line below it that raises an error, and change as little as you can. Your function may move at most the words of (7.6) and use at most its footprint. If you are stuck after four minutes, run `hint("7F")` in a new cell.


# %% [raw] name="about-7F"
# title = "A schedule to repair"
# difficulty = 2
# importance = 3
# minutes = 8
# hints = [
#   "The ledger names an array and how often it is read. In which loops is it loaded now, and on which loop alone does its content depend?",
#   "In the timeline one tile has no end. A name keeps its tile until it gets another one, or until the tile is freed. When is this tile needed for the last time?",
#   "The log-sum-exps belong to a block of rows of O: load them once, before the loop over its columns, and keep them for all columns. Free the rows of Q after their scores have been stored.",
# ]

# %% tags=["exercise"] name="ex-7F"
def my_scores_stored_tiled(m, Q, K, V, *, Br, Bo, Bd):
    """softmax(QKᵀ/√d) V: scores stored from complete rows of Q, then used by tiles of O.

    m: the machine. Q, K, V: slow arrays (N, d). Br: rows in a block of Q.
    Bo, Bd: rows and columns in a tile of O. Returns the slow array O (N, d).
    """
    ### BEGIN SOLUTION your diagnosis; then delete the next line and repair what follows
    # The last block of Q was never freed; L_i was loaded again for every key.
    ### END SOLUTION
    N, d = Q.shape
    O, S, LSE = m.new("O", (N, d)), m.new("S", (N, N)), m.new("LSE", (N,))
    for i in m.blocks(N, Br):  # Q_i is resident, scores are stored
        q = m.load(Q, i)  # (Br, d)
        q *= d**-0.5
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Br, 1)
                    m.store(s, S, i, j)
                    stats.update(s)
            m.store(stats.lse(), LSE, i)
        q.free()  #>
    for i in m.blocks(N, Bo):  # a tile of O is resident, scores are loaded
        L = m.load(LSE, i)  #>
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:  # (Bo, Bd)
                for j in m.blocks(N, 1):
                    with m.load(S, i, j) as s, m.load(V, j, c) as v:  #> with m.load(LSE, i) as L, m.load(S, i, j) as s, m.load(V, j, c) as v:
                        o.add_matmul(probabilities(s, L), v)  # (Bo, 1), (1, Bd)
                m.store(o, O, i, c)
        L.free()  #>
    return O


# %% tags=["check"] name="check-7F"
check("7F", my_scores_stored_tiled)

# %%
mine = attempt(run, my_scores_stored_tiled, M=closed_form.peak, Q=Q, K=K, V=V, **tiles)
print(f"yours minus (7.6): {mine.ledger - closed_form}")

# %% [markdown]
# <details><summary>Both faults and their evidence</summary>
#
# `LSE` is read 96 times, once for every key and every slice, although once is enough. That is as many words as for the matrix $S$, which is read twice. In the timeline, $Q$ is at the bottom and is never freed. Twice a new block is loaded while the old one is still in fast memory, which causes the peak. The last block remains below every tile of $O$, where it is not used.
#
# </details>
#
# The repaired schedule, with $T_r = \lceil N/B_r \rceil$, $T_o = \lceil N/B_o \rceil$ and $T_d = \lceil d/B_d \rceil$:
#
# <!-- algorithm scores_stored_tiled -->
#
# | | **Stored scores, tiled.** Resident: first $Q_i$, $m$, $\ell$; then $O_{ic}$, $L_i$. Streamed: $K_j$, then $S_i$, $V_j$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each block $i$ of $B_r$ queries: load $Q_i$ | $Nd$ |
# | 2 | &emsp; **for** each single key $j$: load $K_j$ | $T_r Nd$ |
# | 3 | &emsp;&emsp; $S_{ij} = Q_i K_j^\top/\sqrt d$; store $S_{ij}$, then update $m$, $\ell$ with it | $N^2$ |
# | 4 | &emsp; $L_i = m + \log \ell$; store $L_i$ | $N$ |
# | 5 | **for** each block $i$ of $B_o$ queries: load $L_i$ | $N$ |
# | 6 | &emsp; **for** each block $c$ of $B_d$ columns: $O_{ic} = 0$ | |
# | 7 | &emsp;&emsp; **for** each single key $j$: load $S_{ij}$ | $T_d N^2$ |
# | 8 | &emsp;&emsp;&emsp; load $V_{jc}$ and add $e^{S_{ij} - L_i} V_{jc}$ to $O_{ic}$ | $T_o Nd$ |
# | 9 | &emsp;&emsp; store $O_{ic}$ | $Nd$ |
#
# ## 7.12 A small cache without stored scores
#
# FlashAttention avoids storing the scores, but square tiling and split-d store them. Is this necessary in a small cache? No: fused split-d (F6, `small_cache_fused` in code), a schedule of this course, stores none.
#
# Compute a tile of scores from columns, as in section 7.2, and use it at once. The tile needs $B_r$ rows of $O$, and perhaps not even one row fits. So $O$ is streamed by columns too: for each column $c$, load $O_{ic}$ and $V_{jc}$, rescale, add $P_{ij}V_{jc}$, and store $O_{ic}$ again. The row statistics are resident. This is the FlashAttention-2 order with $d$ split. For one tile of scores, and for each of the $d$ columns, $Q$ and $K$ are loaded, then $O$ is loaded, $V$ is loaded, and $O$ is stored:
#
# $$ W_6 = Nd\left(3\left\lceil \frac N{B_c} \right\rceil - 1 + 2\left\lceil \frac N{B_r} \right\rceil\right), \qquad \text{footprint } B_rB_c + 4B_r + B_c . \tag{7.4} $$
# <!-- (7.4) W_6 = costs.small_cache_fused(N, d, Br=Br, Bc=Bc).total -->
# <!-- (7.4) footprint = costs.small_cache_fused(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N -->
#
# Here $4B_r$ words are the statistics, the factors of the rescaling and a column of $O$. There is no term $N^2$. (The $-1$ is there because no output is loaded for the first key block.)
#
# **Predict** (guess). $N = 4096$, $d = 64$, $M = 1024$, each schedule with its best tiles. Does fused split-d move fewer words than split-d?
# <!-- 96 as output -->

# %% tags=["predict"]
predict("7.5", fewer_words=True)  #> predict("7.5", fewer_words=...)

# %%
N, d, M = 4096, 64, 1024
words = {}
for name in ("small_cache", "small_cache_fused"):
    s = schedules.get(name)
    tiles = s.tiles(N, d, M)
    words[name] = s.cost(N, d, **tiles).total
    print(f"{name:17} {tiles}: {words[name] / N**2:.2f} N²")
split, fused = words.values()
print(f"ratio of fused split-d to split-d: {fused / split:.3f}")
measured("7.5", fewer_words=fused < split)
explore.traffic_vs_memory(2**16, 1024, list(words), (2**8, 2**20))

# %% [markdown]
# <details><summary>Stored scores or stored partial outputs</summary>
#
# No, the ratio is 1.105. Split-d writes each score once, and every read of a score serves $B_d$ products. Fused split-d writes no scores, but it reads and writes its partial outputs for every key block, which takes more words.
#
# </details>
#
# In the figure both lines fall as $1/\sqrt M$, and that of fused split-d is above the other, except near $M = d^2$. With $B_rB_c = M$, the sum $3/B_c + 2/B_r$ in (7.4) is smallest for $B_c = \frac32 B_r$, and then $W_6 \approx 2\sqrt6\,N^2d/\sqrt M = 4.90\,N^2d/\sqrt M$. So whether to store $S$ is a question of constants, 4 or 4.90. Fused split-d is not the best of the course's schedules for any $M$. It has an advantage that the traffic does not show: it needs no slow memory except for inputs and output. As an algorithm, with $T_r = \lceil N/B_r \rceil$ and $T_c = \lceil N/B_c \rceil$:
# <!-- 4.90 = 2 * math.sqrt(6) -->
# <!-- "is smallest for $B_c = \frac32 B_r$" if min((costs.small_cache_fused(7776, 1, Br=Br, Bc=7776 // Br).total, Br) for Br in range(1, 7777) if 7776 % Br == 0)[1] == 72 -->
# <!-- "Fused split-d is not the best of the course's schedules for any $M$" if all(2 * math.sqrt(6) * x > sweeps.min_cost("forward", x).cost for x in np.linspace(0.2, 5, 481)) -->
# <!-- "it needs no slow memory except for inputs and output" if {name for name, words in costs.small_cache_fused(9, 4, Br=2, Bc=3).writes.items() if words} == {"O"} -->
#
# <!-- algorithm small_cache_fused -->
#
# | | **Fused split-d.** Resident: a tile of scores, $m$, $\ell$. Streamed: $Q_i$, $K_j$, $V_j$, $O_i$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each query block $i$, **for** each key block $j$ | |
# | 2 | &emsp; **for** each column $c$ of $d$: load $Q_{ic}$ | $T_c Nd$ |
# | 3 | &emsp;&emsp; load $K_{jc}$ and add $Q_{ic}K_{jc}^\top/\sqrt d$ to the tile | $T_r Nd$ |
# | 4 | &emsp; update $m$, $\ell$ with the tile, which becomes $P_{ij}$ | |
# | 5 | &emsp; **for** each column $c$ of $d$ | |
# | 6 | &emsp;&emsp; if $j$ is not the first block: load $O_{ic}$ and rescale it | $(T_c - 1)Nd$ |
# | 7 | &emsp;&emsp; load $V_{jc}$ and add $P_{ij}V_{jc}$ to $O_{ic}$ | $T_r Nd$ |
# | 8 | &emsp;&emsp; if $j$ is the last block: divide $O_{ic}$ by $\ell$ | |
# | 9 | &emsp;&emsp; store $O_{ic}$ | $T_c Nd$ |
#
# ## Misconceptions
#
# - **"The values are correct, so the schedule is correct."** The schedule of section 7.11 had correct values, but it read one array too often and kept one tile too long.
# - **"A vector is small, so it may be read as often as one likes."** If it is read again for every key, $N$ words become $N^2$ for each slice (section 7.11).
# - **"Storing an $n \times n$ matrix increases the traffic."** At $M = d^2$, storing one or two saves about a tenth of the words of $dL/dX$ (section 7.9).
# - **"Below $M = d^2$ the scores have to be stored."** Fused split-d stores none. In section 7.12 it moved 1.105 words for each word of split-d.
#
# ## Take-away
#
# - $dL/dX$ is attention with $Q = A_1X$, $K = A_2$, $V = A_3Y$, $dO = O - E$. Its best schedule depends on $M$, with borders like those of lesson 07.
# - Theorem B′: a recomputed score needs complete rows, and for $M \ll d^2$ very few of them fit.
# - A ledger shows which array is moved and how often, a timeline shows which tile is in fast memory and when. Read both before the code.
# - A fused schedule is possible in a small cache, with $4.90\,N^2d/\sqrt M$ words.
#
# **In the literature's words**: $dL/dX$ is the attention gradient computation of Li and others, with their small-cache and large-cache cases. Steps 3 to 5 of the proof are a segment argument of the Hong–Kung kind, with the Loomis–Whitney inequality as in Irony, Toledo and Tiskin (2004).
#
# ## References
#
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On Fine-Grained I/O Complexity of Attention Backward Passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). The problem of section 7.8, its two regimes and (7.12). Its first title was *Fine-grained Attention I/O Complexity: Comprehensive Analysis for Backward Passes*.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). Theorem B′ goes beyond its lower bound.
#
# **What comes next.** <!-- next -->
# <!-- 1.105 = schedules.small_cache_fused.count(4096, 64, 1024).total / schedules.small_cache.count(4096, 64, 1024).total -->
