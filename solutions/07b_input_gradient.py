# %% [markdown]
# # 07b A gradient, a proof, and a schedule to repair
#
# A second evening in small caches, in three parts that do not need one another. In sections 7.8 and 7.9 attention turns up inside a larger gradient, where the stretches of lesson 07 return with other numbers. Section 7.10 proves Theorem B′. In section 7.11 a schedule computes the right thing and moves too much, and you find out where.
#
# **What you will learn**
#
# - to see attention inside another problem, $dL/dX$, and to reuse everything there;
# - which matrices that gradient should store, and from which $M$ on;
# - why $4$ is the best constant for $M \ll d^2$ even if scores may be computed twice;
# - to find two faults of a schedule by its ledger and its timeline, before reading its code.
#
# **Prerequisites**: [lesson 07](07_small_caches.ipynb). Sections 7.8 and 7.9 use the gradients of lesson 06, the proof builds on that of section 5.9 in lesson [05b](05b_lower_bound_proof.ipynb), and section 7.11 rests on section 7.6 alone. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 7F -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, explore, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.machine import probabilities

# %%
explore.resident_and_streamed("rows", rows=("Q", "dO", "dQ"), columns=("K", "V"),
                              sums=("dQ",), title="dQ")

# %% [markdown]
# The sweep of lesson 06 that makes $dQ$: rows of three arrays stay, keys and values pass, and it moves 6 times $N^2d^2/M$ words. It is the larger part of this evening's gradient, and the part that is taken apart where memory is small.
#
# ## 7.8 Attention inside another problem
#
# The paper *On Fine-Grained I/O Complexity of Attention Backward Passes* studies the backward pass in this form. Given are $A_1, A_2, A_3, E$ of shape $(n, d)$ and $X, Y$ of shape $(d, d)$. The loss and what is wanted are
#
# $$ L(X) = \tfrac12 \bigl\| \mathrm{softmax}\bigl(A_1 X A_2^\top\bigr)\, A_3 Y - E \bigr\|^2, \qquad \frac{dL}{dX} . \tag{7.9} $$
#
# $\|\cdot\|^2$ is the sum of the squares of all words, and there is no factor $1/\sqrt d$. $X$ stands for the product $W_Q W_K^\top$ of two weight matrices, $Y$ for $W_V$; $E$ is the output one would like to have. The paper computes the gradient from the matrices $f = \mathrm{softmax}(A_1XA_2^\top)$, $h = A_3Y$, $q = (fh - E)h^\top$ and $p = f\circ q - \mathrm{diag}\bigl((f\circ q)\mathbf 1\bigr) f$, as $A_1^\top p\, A_2$. That is a page of new letters. But you know this problem.
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
# <details><summary>Where you have seen such rows</summary>
#
# 0, like the rows of $dS$ in lesson 06. The next exercise makes the rest of the resemblance precise.
#
# </details>
#
# <!-- exercise 7E --> Write $dL/dX$ in a few lines of NumPy, with one call of `forward` and one of `backward`, which the check hands to you: `forward(Q, K, V)` returns $O = \mathrm{softmax}(QK^\top)V$, and `backward(Q, K, V, dO)` returns $(dQ, dK, dV)$, both without the factor $1/\sqrt d$. What plays the part of $Q$, $K$, $V$? What is $dO$, the gradient of this loss with respect to $O$? And how does the gradient get from $Q$ to $X$? The check counts the calls, and compares with the paper's formula and with what the loss does when $X$ is nudged. In one of its cases `forward` and `backward` leave out the keys after the query, as a causal mask does: use only what `forward` and `backward` return, and the mask takes care of itself. If you are stuck after six minutes, run `hint("7E")` in a cell of your own.


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
# Six digits agree. So it is ordinary attention with
#
# $$ Q = A_1X, \quad K = A_2, \quad V = A_3Y, \quad dO = O - E, \qquad\text{and}\quad \frac{dL}{dX} = A_1^\top dQ . \tag{7.10} $$
#
# The paper's $p$ is $dS$, its $pA_2$ is $dQ$. $dK$ and $dV$ are not needed. Whatever we know about moving words in attention applies.
#
# ## 7.9 The gradient, from small caches to large
#
# Blocked products make $Q = A_1X$ and $H = A_3Y$, and at the end $A_1^\top dQ$. Between lie the sweeps of a forward pass, which leaves $dO = O - E$, and those of $dQ$. With whole rows these are F3 and the sweep in the picture above: $4x^2 + 6x^2$ in units of $n^2$ words, with $x = d/\sqrt M$. This is the schedule `gradient`. It stores no $n \times n$ matrix.
#
# **Predict** (guess). $n = 2^{22}$, $d = 256$, $M = d^2$, so that `gradient` moves about $10\,n^2$ words. To store a matrix and read it back costs $2n^2$. How many percent does the best schedule save that stores what it likes?

# %% tags=["predict"]
predict("7.9", percent_less=0)  #> predict("7.9", percent_less=...)

# %% [markdown]
# With less memory the trade is that of section 7.6: store an $n \times n$ matrix, and fewer arrays stay at a time.
#
# | $M$ | schedule | what it stores | words, in $n^2$ |
# | --- | --- | --- | --- |
# | above $\frac32d^2$ | `gradient` | nothing | $10x^2$ |
# | $d^2$ to $\frac32d^2$ | `gradient_dp_materialised` | $dP$ | $7x^2 + 2$ |
# | $d^2/2$ to $d^2$ | `gradient_scores_materialised` | $S$, then $dS$ in its place | $4x^2 + 5$ |
# | $d^2/4$ to $d^2/2$ | the same, in two slices | the same | $3x^2 + 7$ |
# | below $d^2/4$ | `gradient_small_cache` | the same, all in tiles | $8x + 3$ |
#
# Read a row of it as sweeps, arrays that stay times arrays that pass. `gradient_dp_materialised` makes $O$ with two rows staying, $4x^2$; then $dP$ with $dO$ alone staying while $V$ passes, $x^2$, and stores it; then $dQ$ from $dP$ with $Q$ and $dQ$ staying while $K$ passes, $2x^2$. That is $7x^2$, and $2$ for $dP$, out and in. `gradient_scores_materialised` never keeps two arrays at a time: it makes scores, output, $dS$ and $dQ$ in four sweeps of $x^2$ each, and five times a whole matrix goes out or comes in.
#
# Again these are the least among sweeps. For the second row we had stored $S$ by hand, $6x^2 + 3$; the search stores $dP$, and is nowhere above that.
#
# In a small cache the products with a $d \times d$ matrix count as well, $2nd^2/\sqrt M$ for each of the three:
#
# $$ W \approx \frac{8n^2d}{\sqrt M} + \frac{6nd^2}{\sqrt M} + 3n^2 . \tag{7.11} $$
#
# In a very large one a product may be bracketed in another way: $s_{ij} = a_{1i}\,(X a_{2j}^\top)$. If $X$, $Y$ and the growing $dL/dX$, $3d^2$ words, stay, then $Q$, $V$ and $dQ$ need not exist, and the second sweep costs another $4$ in place of the $6$. This is `gradient_reassociated`, $8\,n^2d^2/M$.

# %%
n, d = 2**22, 256
for share in (2**-6, 1 / 8, 3 / 8, 3 / 4, 1, 1.25, 4, 64):
    s, _, cost = schedules.best(n, d, int(share * d**2), "gradient")
    ratio = cost.total / bounds.lower_bound("gradient", n, d, int(share * d**2))[0]
    print(f"M = {share:7.4f} d²: {s.name:24} {cost.total / n**2:7.3f} n², ratio {ratio:.2f}")
plain = schedules.gradient.cost(n, d, **schedules.gradient.tiles(n, d, d**2)).total
least = schedules.best(n, d, d**2, "gradient").cost.total
measured("7.9", percent_less=100 * (1 - least / plain))

# %% [markdown]
# <details><summary>What storing is worth at $d^2$</summary>
#
# 10.9 percent: with $x = 1$ the second and the third row of the table both give $9\,n^2$. The more one stores, the less passes, and here the two balance.
#
# </details>
#
# `gradient_reassociated` overtakes `gradient` where $3d^2$ words are a small part of $M$.
#
# The last column is over the best lower bound with a constant that the course has, which counts only the forward part. How much of the gap is real is open; 6 for the sweep that makes $dQ$ is *not* a lower bound, as `gradient_reassociated` shows.
#
# The paper's theorem (bound `theta_gradient`, *asymptotic only*) is
#
# $$ W = \Theta\left( \min\left\{ \frac{n^2d^2 + nd^3}{M},\; \frac{n^2d + nd^2}{\sqrt M} \right\} \right), \tag{7.12} $$
#
# to which for $M > nd$ the compulsory words belong, as in (7.8). Its $nd^3/M$ is $X$, $d^2$ words, read once for each block of about $M/d$ rows of $A_1$. From $M = d^2$ on that is at most about $nd$, no more than $A_1$ itself.
#
# ## 7.10 The proof of Theorem B′
#
# Section 5.9 proves Theorem A in five steps, and section 5.10 says in a few lines how B′ follows. Here are all steps, with what changes in each.
#
# **Step 1: which products count.** For a pair $(i, j)$ a schedule may form the sum of $q_{ic}k_{jc}$ over $c$ several times. Choose the one that is completed first. Its $d$ products are the *chosen* ones. A sum that is begun and never finished, and every later sum, is not chosen. To these we add the useful products $p_{ij}v_{jc}$ of section 5.9. Together there are $N^2d + N^2d = 2N^2d$ products to count.
#
# **Step 2: accumulators.** The outputs $o_{ic}$ are accumulators, as before. The chosen sum of a pair is one too, from its first product until it is completed; after that a score is an ordinary word. Several partial sums of one chosen sum are no problem: (5.9) holds for every accumulator, so its entries are at most its reads and one more.
#
# **Step 3: segments.** Let $E$ count the reads of everything that is no accumulator, and the entries of accumulators. The one more in (5.9) is now added up over $Nd$ outputs and $N^2$ scores, so the run reads at least $E - Nd - N^2$ words. Storing the outputs pays for $Nd$. Nothing need ever be stored for a score, and so
#
# $$ W \ge E - N^2 . \tag{7.13} $$
#
# Cut the run into segments of $T$ events. A segment works with at most $R = M + T$ different words.
#
# **Step 4: at most $F_b(R)$ products in a segment.** Of the $R$ words let $n_q, n_k, n_v$ be words of $Q$, $K$ and $V$, and $n_o$ accumulators of the output. Let $n_s$ be the number of pairs of which a word was there at the start or was read (of a sum, chosen or not, of the score, or of the weight), or whose chosen sum entered. Then $n_q + n_k + n_v + n_o + n_s \le R$. There are three sorts of products to count:
#
# - *Chosen products $q_{ic}k_{jc}$.* Each needs its chosen sum, so its pair is one of the $n_s$. By Loomis and Whitney there are at most $\sqrt{n_s n_q n_k}$.
# - *Products $p_{ij}v_{jc}$ of these $n_s$ pairs.* Loomis and Whitney again: at most $\sqrt{n_s n_v n_o}$.
# - *Products $p_{ij}v_{jc}$ of all other pairs.* No word of such a pair came from outside and its chosen sum was not there, so $p_{ij}$ comes from another sum, made from nothing within the segment. For that $q_i$ and $k_j$ must be whole. At most $n_q/d$ rows of $Q$ and $n_k/d$ of $K$ are, and (5.12) gives at most $\sqrt{n_q n_k n_v n_o}/d$ products.
#
# Write $a = \sqrt{n_q n_k}$ and $b = \sqrt{n_v n_o}$. A geometric mean is at most the arithmetic one, so $a + b \le (R - n_s)/2$, and $ab \le (a + b)^2/4$. The three sorts together are
#
# $$ \sqrt{n_s}\,(a + b) + \frac{ab}{d} \;\le\; \frac{\sqrt{n_s}\,(R - n_s)}{2} + \frac{(R - n_s)^2}{16d} . \tag{7.14} $$
#
# $F_b(R)$ is the right side for the $n_s$ between 0 and $R$ where it is largest. (It is the function of Theorem C: (6.12) has the same left side.)
#
# As in lesson 05b, let us not take step 4 on trust. Two queries, two keys and $d = 1$ have 8 words of $Q$, $K$, $V$, $O$ and 4 pairs: we try all 4096 choices of words and pairs. (`s` says which pairs are among the $n_s$.)
#
# **Predict** (guess). Each pair has one product of either kind, 8 in all. The 8 words alone are enough to make every score. What is the fewest of words and pairs together with which step 4 counts all 8 products?
# <!-- 4096 = 2**12 -->

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
    print(f"{R:2} words: at most {most[R]} products, "
          f"F_b(R) = {bounds.all_products_per_segment(R, d=1):.2f}")
measured("7.10", fewest=min(R for R in most if most[R] == 8))

# %% [markdown]
# <details><summary>What a score takes</summary>
#
# No choice is above $F_b(R)$. All 8 products take all 12: the products $q_{ic}k_{jc}$ count only where a chosen sum is there, one word for each of the four pairs. Whoever makes scores anew from whole rows has the products of the second kind, and not the first.
#
# </details>
#
# **Step 5: how many segments.** The last segment, with fewer than $T$ events, forms fewer than $F_b(M + T)$ products. So there are at least $\lfloor 2N^2d/F_b(M + T) \rfloor$ full ones, and with (7.13)
#
# $$ W \ge T\left\lfloor \frac{2N^2d}{F_b(M + T)} \right\rfloor - N^2 \qquad \text{for every whole } T \ge 1 . \tag{7.15} $$
#
# This is Theorem B′, bound `B'`. For (7.7) take $T = 2M$, so $R = 3M$. In (7.14) the first term is largest at $n_s = M$, where it is $M^{3/2}$, and the second at $n_s = 0$, where it is $9M^2/16d$. Hence $F_b(3M) \le M^{3/2} + 9M^2/16d$, and rounding down costs at most $T = 2M$ words. $\square$

# %%
N, d, M = 2**20, 4096, 16384
for times in (1, 2, 3, 4):
    products = bounds.all_products_per_segment(M + times * M, d)
    words = times * M * (2 * N**2 * d // products) - N**2
    print(f"T = {times} M: W ≥ {words * M**0.5 / (N**2 * d):.3f} N²d/√M")

# %% [markdown]
# $T = 2M$ is the best of these: by the first term of (7.14) the bound grows like $T/(M + T)^{3/2}$, and that is largest there.
#
# ## 7.11 A schedule to repair
#
# Lesson 07 counted F7d, in (7.6), and did not write it. While rows of $Q$ stay, all scores are stored, and the log-sum-exp of each row with them. Then a tile of $O$ stays, $B_o$ rows and $B_d$ columns of it, and a column of scores comes back for each key. Here it is, as somebody might hand it in.


# %%
def as_found(m, Q, K, V, *, Br, Bo, Bd):
    """F7d with two faults: its values are right."""
    N, d = Q.shape
    O, S, LSE = m.new("O", (N, d)), m.new("S", (N, N)), m.new("LSE", (N,))
    for i in m.blocks(N, Br):  # Q_i stays, scores go out
        q = m.load(Q, i)  # (Br, d)
        q *= d**-0.5
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Br, 1)
                    m.store(s, S, i, j)
                    stats.update(s)
            m.store(stats.lse(), LSE, i)
    for i in m.blocks(N, Bo):  # a tile of O stays, scores come back
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:  # (Bo, Bd)
                for j in m.blocks(N, 1):
                    with m.load(LSE, i) as L, m.load(S, i, j) as s, m.load(V, j, c) as v:
                        o.add_matmul(probabilities(s, L), v)  # (Bo, 1), (1, Bd)
                m.store(o, O, i, c)
    return O


N, d, tiles = 48, 16, {"Br": 16, "Bo": 24, "Bd": 8}
Q, K, V = np.random.default_rng(7).standard_normal((3, N, d))
found = run(as_found, M=1000, Q=Q, K=K, V=V, **tiles)  # more room than it should need
print(f"equal to exact attention: {np.allclose(found.O, exact.attention(Q, K, V))}")
print(found.ledger)

# %% [markdown]
# A diagnosis first. Do not search the code yet: hold the ledger against (7.6). There $Q$ and the log-sum-exps are read once, $K$ $\lceil N/B_r \rceil$ times, $V$ $\lceil N/B_o \rceil$ times and $S$ $\lceil d/B_d \rceil$ times; $S$, the log-sum-exps and $O$ are written once. The footprint is the larger of $B_r(d + 3) + d$ and $B_oB_d + 2B_o + B_d$.
#
# **Predict** (compute). One array is read too often: which, and how many words too many? And how many words is the peak above the footprint?

# %% tags=["predict"]
predict("7.11", words_too_many=4560, peak_too_high=192)  #> predict("7.11", words_too_many=..., peak_too_high=...)

# %%
closed_form = costs.scores_stored_tiled(N, d, **tiles)
wrong = found.ledger - closed_form
print(wrong)
measured("7.11", words_too_many=wrong.words, peak_too_high=found.ledger.peak - closed_form.peak)
explore.memory_timeline(found.ledger, closed_form.peak, title="F7d as found, M as (7.6) says")

# %% [markdown]
# <details><summary>What the two pieces of evidence say</summary>
#
# The array is `LSE`, a vector of 48 words, and 4,608 of its words come in. The peak is 512 in place of 320: of that fault the ledger says no more, and the timeline shows which tile it is.
#
# </details>
#
# <!-- exercise 7F --> Repair it. The cell has the code as found. Write your diagnosis in its first line, in words, delete the line below that raises an error, and change as little as you can. The check allows the words of (7.6) and its footprint, and not one word more. If you are stuck after four minutes, run `hint("7F")` in a cell of your own.


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
    """softmax(QKᵀ/√d) V: scores stored from whole rows of Q, then used by tiles of O.

    m: the machine. Q, K, V: slow arrays (N, d). Br: rows in a block of Q.
    Bo, Bd: rows and columns in a tile of O. Returns the slow array O (N, d).
    """
    ### BEGIN SOLUTION your diagnosis; then delete the next line and repair what follows
    # The last block of Q was never freed; L_i was loaded again for every key.
    ### END SOLUTION
    N, d = Q.shape
    O, S, LSE = m.new("O", (N, d)), m.new("S", (N, N)), m.new("LSE", (N,))
    for i in m.blocks(N, Br):  # Q_i stays, scores go out
        q = m.load(Q, i)  # (Br, d)
        q *= d**-0.5
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Br, 1)
                    m.store(s, S, i, j)
                    stats.update(s)
            m.store(stats.lse(), LSE, i)
        q.free()  #>
    for i in m.blocks(N, Bo):  # a tile of O stays, scores come back
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
# <details><summary>Both faults, and the evidence</summary>
#
# `LSE` came in 96 times, for every key and every slice, where once would do: as many words as the matrix $S$, which is read twice. In the timeline $Q$ lies at the bottom and never leaves. Twice a new block comes while the old one is still there, which is the peak; and the last block lies below every tile of $O$, where nobody uses it.
#
# </details>
#
# ## Misconceptions
#
# - **"The values are right, so the schedule is."** The one of section 7.11 had right values, one array read too often and one tile kept too long.
# - **"A vector is small: it may be read as often as one likes."** Read again for every key, $N$ words become $N^2$ for each slice (7.11).
# - **"To store an $n \times n$ matrix costs words."** At $M = d^2$ storing one, or two, saves about a tenth of the words of $dL/dX$ (7.9).
#
# ## Take-away
#
# - $dL/dX$ is attention with $Q = A_1X$, $K = A_2$, $V = A_3Y$, $dO = O - E$, and has stretches in $M$ like those of lesson 07.
# - Theorem B′: scores made anew have whole rows behind them, and of those hardly one fits where $M \ll d^2$.
# - A ledger says which array and how often, a timeline which tile and when. Look at both before the code.
#
# ## References
#
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On Fine-Grained I/O Complexity of Attention Backward Passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). The problem of section 7.8, its two regimes and (7.12). Its first title was *Fine-grained Attention I/O Complexity: Comprehensive Analysis for Backward Passes*.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). What Theorem B′ goes beyond.
#
# **What comes next.** Lesson 08 leaves out pairs: masks, and what a schedule saves when most scores are never asked for.
