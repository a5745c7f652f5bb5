# %% [markdown]
# # 15 Polynomial attention
#
# Fourteen lessons computed softmax attention exactly, and Theorem A says what that must cost: about $4N^2d^2/M$ words, whatever the order. This lesson moves fewer. It can, because it computes something else. Where the scores are small, $e^s$ is nearly a polynomial; a polynomial of a scalar product is a scalar product of longer rows; and then the $N \times N$ weights need not be formed, so that attention moves $4Nd$ words, as many as its input and output have. The price is an error and a number of features. Both can be known before anything is computed, and both grow fast with the scores. Which polynomial is best, when its row sums can be trusted, and for whom all this is any use: these are the questions of part b, [15b](15b_polynomial_error_certificates.ipynb).
#
# **What you will learn**
#
# - to write a polynomial of $q \cdot k$ as a scalar product of $\binom{d+g}{g}$ features, and not of $1 + d + d^2 + \dots$;
# - to certify how far a polynomial is from $e^s$ on $[-R, R]$, and to find the smallest degree that will do;
# - to compute attention in two passes over the tokens, for $4Nd$ words;
# - what changes when the state does not fit, and from which length on low rank moves fewer words than exact attention.
#
# **Prerequisites**: lessons 02 (the machine) and 04 (words of F3); section 15.5 mentions Theorem A of lesson 05. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Everything here is NumPy. First a picture of what the two passes keep, and of what they never form:

# %% tags=["setup"]
from itertools import combinations_with_replacement
from math import comb, exp, factorial

import numpy as np
from numpy.polynomial import Polynomial

from iocourse import Machine, bounds, costs, exact, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.machine import Features

# %%
explore.lowrank_passes(512, 8, 2)

# %% [markdown]
# All areas are in one scale. Exact attention works through the square. Low rank of degree 2 lets the keys and values go into the blue sliver $T$, and the queries take the output from it: 405 words between the two sides, whatever $N$ is.
#
# ## 15.1 A matrix that is nearly low-rank
#
# We want to avoid the $N \times N$ matrix of weights. A matrix that is a product of an $(N, r)$ and an $(r, N)$ one has *rank* at most $r$, and with small $r$ it is never needed as a whole. So: what rank does $P = \mathrm{softmax}(S)$ have? Exactly, nearly always $N$. But how close to it is a matrix of smaller rank?
#
# That depends on how large the scores are. Let all entries of $Q$ and $K$ be at most $B$ in size. Then
#
# $$ |s_{ij}| = \Bigl|\frac{q_i \cdot k_j}{\sqrt d}\Bigr| \le \frac{d\,B^2}{\sqrt d} = B^2\sqrt d =: R . \tag{15.1} $$
# <!-- (15.1) not evaluated: definition -->
#
# This is the assumption of *bounded entries*. If $R$ is tiny, every $e^{s}$ is close to 1, and a matrix of ones has rank 1. If $R$ is large, each row picks out keys of its own.
#
# The best matrix of rank $r$ is known: keep the $r$ largest singular values. What it leaves out, relative to $P$ and in the root mean square of the entries, is the root of the sum of the other squares over the sum of all.
#
# **Predict** (guess). 400 tokens, $d = 4$. Which rank is needed to come within 1 percent of $P$, for $B = 0.5$ and for $B = 2$?
# <!-- 1 as input -->

# %% tags=["predict"]
predict("15.1", small=10, large=100)  #> predict("15.1", small=..., large=...)

# %%
def ranks_needed(P, errors):
    squares = np.linalg.svd(P, compute_uv=False) ** 2
    left_out = np.sqrt(squares[::-1].cumsum()[::-1] / squares.sum())  # cut before the k-th
    return [int((left_out > error).sum()) for error in errors]


N, d = 400, 4
rng = np.random.default_rng(15)
entries = rng.uniform(-1, 1, (2, N, d))
needed = {}
for B in (0.25, 0.5, 1, 2):
    P = exact.softmax(exact.scores(*(B * entries)))
    needed[B] = ranks_needed(P, (1e-2, 1e-4))
    print(f"B = {B:4}, R = {B**2 * d**0.5:5.3f}: rank {needed[B][0]:3} for 1 percent, "
          f"{needed[B][1]:3} for 0.01 percent")
measured("15.1", small=needed[0.5][0], large=needed[2][0])

# %% [markdown]
# <details><summary>Which ranks are needed</summary>
#
# 5 of 400 for $B = 0.5$, and 77 for $B = 2$. So for small entries the matrix *is* nearly of low rank.
#
# </details>
#
# Singular values are found by computing the whole matrix first, which costs what we wanted to save. We need factors that can be written down row by row, without looking at the other side.
#
# ## 15.2 A polynomial is a scalar product
#
# Here is a way. (From here on $q$ stands for a query times $1/\sqrt d$, so that the score is $s = q \cdot k$.) Take two coordinates and the square of the score:
#
# $$ (q \cdot k)^2 = (q_1k_1 + q_2k_2)^2 = q_1^2\,k_1^2 + 2\,q_1q_2\,k_1k_2 + q_2^2\,k_2^2 = \phi(q)\cdot\phi(k), \qquad \phi(x) = (x_1^2,\ \sqrt2\,x_1x_2,\ x_2^2). $$
# <!-- (above) not evaluated: entries of arrays -->
#
# A square of a scalar product is a scalar product again, of *features* that are made from one row alone. The same holds for every power, and so for every polynomial $p(s) = \sum_l c_l s^l$ in place of $e^s$. With features of all degrees up to $g$, one behind the other,
#
# $$ p(q \cdot k) = \phi(q)\cdot\psi(k) . \tag{15.2} $$
# <!-- (15.2) not evaluated: entries of arrays -->
#
# How many features are there? Whoever multiplies $(q_1k_1 + \dots + q_dk_d)^l$ out without collecting gets $d^l$ products, the *Kronecker* powers, and $1 + d + \dots + d^g$ in all. But $q_1q_2$ and $q_2q_1$ are the same number. What differs is how often each coordinate occurs, which a list of exponents $a = (a_1, \dots, a_d)$ says, and
#
# $$ (q \cdot k)^l = \sum_{|a| = l} \frac{l!}{a_1!\cdots a_d!}\; q^a\,k^a , \qquad q^a = q_1^{a_1}\cdots q_d^{a_d} . \tag{15.3} $$
# <!-- (15.3) not evaluated: sum over a set -->
#
# The number in front, $l!/a!$, counts the orders in which the $l$ factors can be written. The $q^a$ are the *symmetric monomials*. (Others use them for attention as well: SATA, 2602.00294, keeps each of Taylor's monomials once.) One of degree at most $g$ is a choice of $g$ things out of $d$ coordinates and the number 1, with repetition, and without order:
#
# $$ r = \binom{d+g}{g} . \tag{15.4} $$
# <!-- (15.4) r = monomials.rank_of(d, g) where g <= 12 and d <= 1000 -->

# %%
def kronecker(d, g):
    return sum(d**l for l in range(g + 1))


for size in (4, 12, 64):
    row = (f"{comb(size + g, g):9,} of {kronecker(size, g):10,}" for g in (2, 3, 4))
    print(f"d = {size:2}, g = 2, 3, 4:", "; ".join(row))

# %% [markdown]
# At $d = 12$ and $g = 3$ there are 455 features instead of 1,885. Collecting gains up to $g!$, for a monomial of $g$ different coordinates occurs in $g!$ orders. Keep an eye on the last row: at $d = 64$ degree 4 has 814,385 features.
#
# The monomials are cheap to make. List them by degree, and within a degree by their smallest coordinate. For $d = 3$ and $g = 2$:
#
# $$ 1 \mid x_1,\ x_2,\ x_3 \mid x_1x_1,\ x_1x_2,\ x_1x_3,\ x_2x_2,\ x_2x_3,\ x_3x_3 $$
#
# The monomials of degree 2 that begin with $x_2$ are $x_2$ times those of degree 1 that begin with $x_2$ or later, which stand at the end of their list. So each feature is one of lower degree times one coordinate: one multiplication a feature, whatever the degree.
#
# <!-- exercise 15A --> Take the *Taylor polynomial* $p(s) = \sum_{l \le g} s^l/l!$. Its $c_l\,l!/a!$ is $1/a!$, with $a! = a_1!\cdots a_d!$. Give its square root to either side, so that both have the same features, $\phi(x)_a = x^a/\sqrt{a!}$. Write a function that makes them for every row. The check multiplies your features of $Q$ with those of $K$; their order is up to you. If you are stuck after seven minutes, run `hint("15A")` in a cell of your own.

# %% [raw] name="about-15A"
# title = "Features of a row"
# difficulty = 2
# importance = 5
# minutes = 12
# hints = [
#   "For d = 2 and g = 2, write all six features with their denominators. What is a! for x₁x₁, and for x₁x₂?",
#   "A monomial is a selection of coordinates with repetition and without order. The setup cell imports a function of itertools that lists them for each degree from 0 to g.",
#   "For one selection, take those columns of X (with repetition) and multiply along axis 1; an empty selection gives ones. Count how often each coordinate is selected, and divide by the square root of the product of the factorials of these counts. Stack the results as columns.",
# ]

# %% tags=["exercise"] name="ex-15A"
def my_features(X, g):
    """Features whose scalar products are the Taylor polynomial of degree g of x·y.

    X: rows, shape (N, d). g: the degree, at least 1.
    Returns an array (N, r) with r = C(d + g, g) columns.
    """
    d = X.shape[1]
    ### BEGIN SOLUTION one column for each choice of coordinates, with repetition
    columns = []
    for l in range(g + 1):
        for axes in combinations_with_replacement(range(d), l):
            orders = np.prod([factorial(axes.count(i)) for i in set(axes)])  # a!
            columns.append(X[:, list(axes)].prod(axis=1) / np.sqrt(orders))  # (N,)
    return np.stack(columns, axis=1)  # (N, r)
    ### END SOLUTION

# %% tags=["check"] name="check-15A"
check("15A", my_features)

# %% [markdown]
# Your features on the data of section 15.1, $B = 1$: the rows of $\phi(Q)\phi(K)^\top$ divided by their sums, beside the softmax weights.

# %%
Q, K = entries  # B = 1
P = exact.softmax(exact.scores(Q, K))


def approximate_weights(g):
    A = my_features(Q * d**-0.5, g) @ my_features(K, g).T  # (N, N), to look at
    return A / A.sum(axis=1, keepdims=True)


for g in (1, 2, 3, 4, 5):
    error = np.linalg.norm(attempt(approximate_weights, g) - P) / np.linalg.norm(P)
    print(f"g = {g}: rank {comb(d + g, g):3}, relative error of the weights {error:.5f}")

# %% [markdown]
# Degree 3, rank 35, is within 1 percent: 0.00423. The best matrix would have needed rank 15. That is the price of features that do not look at the data. In return nothing was searched for.
# <!-- 1 as input -->
#
# ## 15.3 How far off is a polynomial?
#
# We want a *certificate*: an error that no score in $[-R, R]$ exceeds, known beforehand. The right thing to bound is the relative error, the $\varepsilon$ in
#
# $$ \varepsilon = \max_{|s| \le R} \bigl|p(s)\,e^{-s} - 1\bigr| . \tag{15.5} $$
# <!-- (15.5) not evaluated: sum over a set -->
#
# Here is why. If every $p(s_{ij})$ is $e^{s_{ij}}$ times a factor between $1 - \varepsilon$ and $1 + \varepsilon$, then so is the row sum, for it is a sum of such. The weight is their quotient, so it is off by at most a factor $(1 + \varepsilon)/(1 - \varepsilon)$, and with $\varepsilon < 1$
#
# $$ |\tilde P_{ij} - P_{ij}| \le \frac{2\varepsilon}{1 - \varepsilon}\,P_{ij} , \qquad |\tilde O_{ic} - O_{ic}| \le \frac{2\varepsilon}{1 - \varepsilon}\,\max_j |V_{jc}| , \tag{15.6} $$
# <!-- (15.6) not evaluated: step of a proof -->
#
# the second because the weights of a row sum to 1. Nothing in it depends on $N$.
#
# How is a maximum over all of $[-R, R]$ found, without a grid that may miss it? Where $p(s)e^{-s}$ has an extremum inside, its derivative $(p'(s) - p(s))\,e^{-s}$ is zero. So the largest error is at a real root of $p' - p$, or at an end. These are at most $g + 2$ places.
#
# For Taylor's polynomial $p' - p = -s^g/g!$, whose only root is 0, and there the error is 0. So the largest error is at an end. Which one?
#
# **Predict** (guess). Taylor's polynomial of degree 4 on $[-2, 2]$: how large is $|p(s)e^{-s} - 1|$ at $s = -2$, and at $s = 2$?

# %% tags=["predict"]
predict("15.3", left=1.5, right=0.05)  #> predict("15.3", left=..., right=...)

# %%
def taylor(g, R=None):
    return np.array([1 / factorial(l) for l in range(g + 1)])  # coefficients of 1, s, s², …


p = Polynomial(taylor(4))
off = {s: p(s) * exp(-s) - 1 for s in (-2, -1, 0, 1, 2)}
for s, error in off.items():
    print(f"s = {s:2}: p = {p(s):.4f}, exp = {exp(s):.4f}, relative error {error:+.4f}")
measured("15.3", left=abs(off[-2]), right=abs(off[2]))

# %% [markdown]
# <details><summary>The two ends</summary>
#
# 1.463 on the left, 0.05265 on the right. In absolute terms the two are alike, 0.198 and 0.389; but at $-2$ the exponential itself is only 0.1353. So Taylor's largest error is the one at $-R$.
#
# </details>
#
# Integrating $p' - p$ gives the larger of the two in closed form:
#
# $$ \varepsilon_{\text{Taylor}}(g, R) = \frac{1}{g!}\int_0^R t^g e^{t}\,dt . \tag{15.7} $$
# <!-- (15.7) not evaluated: sum over a set -->
#
# <!-- exercise 15B --> `make(g, R)` gives the coefficients $c_0, \dots, c_g$ of some polynomial of degree $g$ meant for $[-R, R]$: Taylor's, or one that you have never seen, whose largest error may be anywhere. Return the smallest degree, counted from 1, whose largest relative error is at most `error`, and that largest error. A larger degree need not be better, so go through them in order. NumPy finds all roots of a polynomial, also complex ones: `Polynomial(c).roots()`; `.deriv()` and `-` do the rest. The error must be right to eight digits. If you are stuck after six minutes, run `hint("15B")` in a cell of your own.
# <!-- p = lambda s: sum(s**l / math.factorial(l) for l in range(5)) -->
# <!-- 0.198, 0.389 = (abs(p(s) - math.exp(s)) for s in (-2, 2)) -->

# %% [raw] name="about-15B"
# title = "The smallest degree"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "Start with the largest error of one polynomial. Where can it occur, and how does NumPy find these points?",
#   "Take the roots of p' - p, keep the real ones inside (-R, R), and add the two ends. The largest |p(s)e⁻ˢ - 1| over these points is exact.",
#   "A real root may be returned with a tiny imaginary part: compare its size with 1e-9 and use the real part. Then increase g from 1 and stop at the first g whose largest error is at most `error`; an equal one counts.",
# ]

# %% tags=["exercise"] name="ex-15B"
def my_degree(make, R, error):
    """The smallest degree whose polynomial is within `error` of exp on [-R, R], relatively.

    make: function (g, R) -> coefficients (g + 1,), c_0 first. R, error: positive numbers.
    Returns (g, largest relative error of that polynomial on [-R, R]).
    """
    ### BEGIN SOLUTION the largest error is at a root of p' - p, or at an end
    g = 0
    while True:
        g += 1
        p = Polynomial(make(g, R))
        roots = (p.deriv() - p).roots()
        real = roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]
        s = np.append(real[abs(real) < R], [-R, R])
        largest = abs(p(s) * np.exp(-s) - 1).max()
        if largest <= error:
            return g, largest
    ### END SOLUTION

# %% tags=["check"] name="check-15B"
check("15B", my_degree)

# %% [markdown]
# Taylor's degree for a certified error of 1 percent, and the features it takes at $d = 12$:
# <!-- 1 as input -->

# %%
def line(R):
    g, largest = my_degree(taylor, R, 0.01)
    return f"degree {g:2}, error {largest:.4f}, rank {comb(12 + g, g):14,} at d = 12"


for R in (0.5, 1, 2, 4, 8):
    print(f"R = {R:3}:", attempt(line, R))

# %% [markdown]
# Degree 3 for $R = 0.5$, 5 for 1, 8 for 2, and 30 for 8. The degree grows about in proportion to $R$; the rank grows from 455 over 6,188 and 125,970 to 11,058,116,888.
#
# ## 15.4 Two passes
#
# Now attention itself. With (15.2) in place of $e^s$, output and row sum of query $i$ are
#
# $$ \sum_j p(s_{ij})\,[1, v_j] = \sum_j \phi(q_i)\cdot\psi(k_j)\,[1, v_j] = \phi(q_i)\, T , \qquad T = \sum_j \psi(k_j)^\top\,[1, v_j] , \tag{15.8} $$
# <!-- (15.8) not evaluated: entries of arrays -->
#
# with $\phi$ and $\psi$ as rows. The *state* $T$ has $r$ rows and $d + 1$ columns, and does not grow with $N$. One pass over keys and values builds it, one over the queries uses it, and then $O_i$ is the last $d$ columns divided by the first. In NumPy, with your features:

# %%
def two_passes(Q, K, V, g):
    ones = np.ones((len(K), 1))
    T = my_features(K, g).T @ np.hstack([ones, V])          # (r, d + 1)
    found = my_features(Q * Q.shape[1] ** -0.5, g) @ T      # (N, d + 1)
    return found[:, 1:] / found[:, :1]


V = np.random.default_rng(16).uniform(-1, 1, (N, d))
O = exact.attention(Q, K, V)
for g in (2, 4, 6):
    off_by = abs(attempt(two_passes, Q, K, V, g) - O).max()
    print(f"g = {g}: largest error of O {off_by:.1e}, "
          f"multiply-adds {2 * N * comb(d + g, g) * (d + 1):9,} instead of {2 * N * N * d:,}")

# %% [markdown]
# All that happened is that three matrices are multiplied in another order: $\phi(Q)\,(\psi(K)^\top V)$ instead of $(\phi(Q)\,\psi(K)^\top)\,V$. This takes $2Nr(d+1)$ multiply-adds, where exact attention takes $2N^2d$. A sum of products may be taken in any order; a softmax in between would forbid it. For $N = 400$ and $g = 6$ there is not much to gain, for the rank is 210. It does not grow with $N$.
#
# And the words? On the machine nothing of size $(N, r)$ need exist at all. A feature is needed for one multiply-add with a row of the state, and is made on the spot, in a free register, from one row of $Q$ or $K$. The machine's `Features` does this. Which coordinates each feature multiplies, and with which weight, is part of the program and takes no words:
# <!-- 210 = math.comb(4 + 6, 6) -->

# %%
def coordinates(d, g):
    """The coordinates of every monomial up to degree g: (), (0,), …, (0, 0), (0, 1), …"""
    return [axes for l in range(g + 1) for axes in combinations_with_replacement(range(d), l)]


def taylor_weight(axes):
    return 1 / np.prod([factorial(axes.count(i)) for i in set(axes)])  # 1/a!


phi = Features(coordinates(2, 2))                                      # for queries
psi = Features(coordinates(2, 2), [taylor_weight(axes) for axes in coordinates(2, 2)])
m = Machine(M=32)
K_row, V_row = m.slow("K", np.array([[3.0, 5.0]])), m.slow("V", np.array([[10.0]]))
with m.load(K_row, 0) as k, m.load(V_row, 0) as v, m.zeros(len(psi), 2) as state:
    psi.add_outer(state[:, :1], k)         # state[:, 0] += ψ(k)
    psi.add_outer(state[:, 1:], k, v)      # state[:, 1] += ψ(k) v
    T = m.new("T", state.shape)
    m.store(state, T, (0, len(psi)))
print(m.take(T).T)

# %% [markdown]
# Six features of the key $(3, 5)$: 1, 3, 5, then 9/2, 15, 25/2, and below them the same times 10. `phi.add_matmul(o, q, state)` goes the other way: it adds $\phi(q)\,T$ to the row `o`. Columns of a tile, such as `state[:, 1:]`, are views and take no room.
#
# **Predict** (guess). $N = 512$, $d = 4$, $g = 3$: $r = 35$, and the state has 175 words. Two passes read each word of the input once and write each of the output once, $4Nd$ words. F3 gets the same fast memory, the state and 13 words more, 188 in all. How many times as many words does it move?
# <!-- 175 = math.comb(4 + 3, 3) * (4 + 1) -->

# %% tags=["predict"]
predict("15.4", times=10)  #> predict("15.4", times=...)

# %% [markdown]
# <!-- exercise 15C --> Write both passes on the machine. The features are given, `phi` for queries and `psi` for keys; `psi` carries the weights, which need not be Taylor's. `len(psi)` is $r$. Rows come one at a time, and the scale $1/\sqrt d$ goes to the query, in place. Allowed are $4Nd$ words and, as fast memory, the state, a row of $K$ with one of $V$ (or of $Q$ with one of $O$ and its row sum), and four words more. If you are stuck after seven minutes, run `hint("15C")` in a cell of your own.

# %% [raw] name="about-15C"
# title = "Two passes"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "Which array must be in fast memory all the time, and which ones are streamed? In which order are the three inputs loaded?",
#   "Create the state with len(psi) rows and d + 1 columns. First loop: add a key and its value to the state, and the key alone to one of the columns. Second loop: a query reads d + 1 words from it.",
#   "One add_matmul on a row of d + 1 words gives the output and the row sum together. Divide the view of the output in place by the view of the sum, which has shape (1, 1), and store that view.",
# ]

# %% tags=["exercise"] name="ex-15C"
def my_low_rank(m, Q, K, V, *, phi, psi):
    """p(QKᵀ/√d) V over its row sums, for the polynomial p with p(q·k) = φ(q)·ψ(k).

    m: the machine. Q, K, V: slow arrays (N, d). phi, psi: Features of a query and of a key.
    Returns the slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION keys and values go into the state, queries take O from it
    with m.zeros(len(psi), d + 1) as state:  # row sums in column 0
        for j in m.blocks(N, 1):
            with m.load(K, j) as k, m.load(V, j) as v:      # (1, d), (1, d)
                psi.add_outer(state[:, :1], k)
                psi.add_outer(state[:, 1:], k, v)
        for i in m.blocks(N, 1):
            with m.load(Q, i) as q, m.zeros(1, d + 1) as o:  # (1, d), (1, d + 1)
                q *= d**-0.5
                phi.add_matmul(o, q, state)
                o[:, 1:] /= o[:, :1]
                m.store(o[:, 1:], O, i)
    return O
    ### END SOLUTION

# %% tags=["check"] name="check-15C"
check("15C", my_low_rank)

# %%
def features_for(d, g):
    axes = coordinates(d, g)
    return {"phi": Features(axes), "psi": Features(axes, [taylor_weight(a) for a in axes])}


rng = np.random.default_rng(17)
Q, K, V = rng.uniform(-1, 1, (3, 512, 4))
mine = attempt(run, my_low_rank, M=188, Q=Q, K=K, V=V, **features_for(4, 3))
flash = costs.flash_optimal(512, 4, **schedules.flash_optimal.tiles(512, 4, 188))
print(f"largest error {abs(mine.O - exact.attention(Q, K, V)).max():.4f}, "
      f"{mine.ledger.total:,} words, peak {mine.ledger.peak}")
measured("15.4", times=flash.total / (4 * 512 * 4))

# %% [markdown]
# <details><summary>How far apart they are</summary>
#
# 8,192 words against 135,168: F3 moves 16.5 times as many, and with $N$ the factor grows.
#
# </details>
# <!-- 135,168 = costs.flash_optimal(512, 4, **schedules.flash_optimal.tiles(512, 4, 188)).total -->
# <!-- 16.5 = costs.flash_optimal(512, 4, **schedules.flash_optimal.tiles(512, 4, 188)).total / schedules.low_rank.count(512, 4, 188, g=3).total -->
#
# $4Nd$ words: no schedule that looks at its whole input moves fewer, exact or not. The library's `schedules.low_rank` is this schedule where the state fits.
#
# ## 15.5 When the state does not fit
#
# A state of $r(d + 1)$ words soon outgrows fast memory. Then it is made in *tiles*: one tile of $r_c$ rows and $B_d$ columns at a time, and for each of them keys and queries pass by again. Say the tile has all columns and only some of the rows, $k = \lceil r/r_c \rceil$ tiles in all. Each reads $Q$, $K$ and $V$ whole. And since each holds only a part of the sum over features, $O$ is written by the first, read and written again by the others, and so are the row sums. Cut the columns instead, $c = \lceil (d+1)/B_d \rceil \ge 2$ tiles with all rows: each again reads $Q$ and $K$ whole, but only its own columns of $V$, and it finishes its own columns of $O$. Row sums come with the first tile and are kept. In words,
#
# $$ \begin{aligned} & \text{rows cut: } 3Ndk + Nd\,(2k - 1) + 2N(k - 1) && \approx 5\,\frac{r\,N d^2}{M} , \\ & \text{columns cut: } 2Nd\,(c + 1) + Nc && \approx 2\,\frac{r\,N d^2}{M} . \end{aligned} \tag{15.9} $$
# <!-- (15.9) rowscut: = costs.low_rank(N, d, g=g, rc=rc, Bd=d + 1).total with g = 1 + j % 4, k = math.ceil(monomials.rank_of(d, g) / rc) where d <= 200 -->
# <!-- (15.9) ~ costs.low_rank(N, d, g=2, rc=(M - 2 * d - 1) // (d + 1), Bd=d + 1).total within 0.1 with d = 400 + j % 200, r = monomials.rank_of(d, 2), M = (8 + i % 8) * (r + 1) + d, N = 10**6 -->
# <!-- (15.9) columnscut: = costs.low_rank(N, d, g=g, rc=monomials.rank_of(d, g), Bd=Bd).total with g = 1 + j % 4, c = math.ceil((d + 1) / Bd) where d <= 200 and c >= 2 -->
# <!-- (15.9) ~ costs.low_rank(N, d, g=2, rc=r, Bd=(M - d) // (r + 1)).total within 0.1 with d = 400 + j % 200, r = monomials.rank_of(d, 2), M = (8 + i % 8) * (r + 1) + d, N = 10**6 -->
#
# Compare with F3's $4N^2d^2/M$: the second is the same expression with one $N$ replaced by $r/2$. So low rank should move fewer words from about $N = r/2$ on, whatever $M$ is. (Whole columns leave room over, and where not even one fits there is no choice: so both cuts together can pay. In the last of the cases below a whole column would fit, and tiles of 4 columns and a third of the rows are cheaper. `schedules.low_rank` takes the cheapest tile.)
# <!-- in_5 = schedules.break_even_length(64, 3, 65_536) -->
# <!-- "tiles of 4 columns and a third of the rows are cheaper" if in_5.tiles["Bd"] == 4 and math.ceil(in_5.rank / in_5.tiles["rc"]) == 3 -->
# <!-- "a whole column would fit" if in_5.rank + 64 + 1 <= 65_536 -->
#
# **Predict** (compute). $d = 12$, $g = 3$, $M = 4096$: $r = 455$, and the state has 5,915 words. From which $N$ on does low rank move fewer words than F3? And how many times fewer at $N = 40\,960$?
# <!-- 455, 5,915 = math.comb(12 + 3, 3), math.comb(12 + 3, 3) * (12 + 1) -->

# %% tags=["predict"]
predict("15.5", crossing=230, fewer=90)  #> predict("15.5", crossing=..., fewer=...)

# %%
def words(N, d, g, M):
    low = costs.low_rank(N, d, g=g, **schedules.low_rank.tiles(N, d, M, g=g)).total
    return low, costs.flash_optimal(N, d, **schedules.flash_optimal.tiles(N, d, M)).total


cases = (12, 3, 4096), (12, 4, 4096), (12, 4, 16384), (64, 2, 65536), (64, 3, 65536)
for size, g, M in cases:
    best = schedules.break_even_length(size, g, M)
    rows = schedules.break_even_length(size, g, M, whole_rows=True)
    print(f"d = {size}, g = {g}, M = {M:6,}: r = {best.rank:6,}; from N = {best.N:6,} = "
          f"{best.ranks:.2f} r on; rows only {rows.N:6,} = {rows.ranks:.2f} r")
low, flash = words(40_960, 12, 3, 4096)
least, which = bounds.lower_bound("forward", 40_960, 12, 4096)
print(f"N = 40,960: {low:,} words, F3 {flash:,}; bound {which} {least:,}")
measured("15.5", crossing=schedules.break_even_length(12, 3, 4096).N, fewer=flash / low)

# %%
explore.traffic_vs_length(12, 3, [4096, 16384])

# %% [markdown]
# <details><summary>The crossing</summary>
#
# 303, and 88.54 times fewer. The crossing lies between 0.56 and 0.70 ranks with the best tiles, and between 1.00 and 1.40 ranks if rows alone are cut; rounding to whole tiles makes it a little more than $r/2$ and about $5r/4$. It hardly depends on $M$: four times the memory moves the crossing of $d = 12$, $g = 4$ from 1,058 to 1,213. Where the state fits, low rank has $4Nd$, and it is ahead as soon as F3 has to read its keys a second time. At $M = 16\,384$ that is from $N = 607$ on, the right one of the two crossings in the picture. (Words are not everything. By section 15.4 low rank multiplies less from $N = r(d+1)/d$ on, a little above $r$; here that is 493.)
#
# </details>
# <!-- 493 = math.ceil(455 * 13 / 12) -->
# <!-- low = schedules.low_rank.count(40_960, 12, 4096, g=3).total -->
# <!-- cases = (12, 3, 4096), (12, 4, 4096), (12, 4, 16_384), (64, 2, 65_536), (64, 3, 65_536) -->
# <!-- best, by_rows = ([schedules.break_even_length(*one, whole_rows=whole) for one in cases] for whole in (False, True)) -->
# <!-- 0.56, 0.70, 1.00, 1.40 = min(one.ranks for one in best), max(one.ranks for one in best), min(one.ranks for one in by_rows), max(one.ranks for one in by_rows) -->
# <!-- 1,058, 1,213, 607 = best[1].N, best[2].N, schedules.break_even_length(12, 3, 16_384).N -->
# <!-- "as soon as F3 has to read its keys a second time" if schedules.break_even_length(12, 3, 16_384).N == schedules.flash_optimal.tiles(10**6, 12, 16_384)["Br"] + 1 -->
# <!-- 303, 88.54 = schedules.break_even_length(12, 3, 4096).N, schedules.flash_optimal.count(40_960, 12, 4096).total / low -->
#
# At $N = 40\,960$ low rank moves 3,031,040 words, where Theorem A asks every exact schedule for 227,699,088. That is no contradiction. Theorem A counts products $p_{ij}v_{jc}$, all $N^2d$ of them, and here no $p_{ij}$ is ever formed. What can be said instead is said for low rank's own class: schedules that make each of the $r$ features of a row from the whole row. Count their products, of a feature with a word of $V$ and of a feature with a word of the state, as Theorem A counts its own, and
#
# $$ W \ge \frac{2rNd^2}{M} - M - rd \qquad \text{if } \tfrac12 d^2 \le M < N . $$
# <!-- (above) W >= bounds.theorem_low_rank(N, d, r, M) rounded down where d * d <= 2 * M and M < N -->
#
# So the 2 in the second line of (15.9) cannot be improved within the class.

# %%
rank = comb(256 + 2, 2)
room = 4 * rank + 256 + 4  # four columns of the state
low = schedules.low_rank.count(2**24, 256, room, g=2).total
least = bounds.theorem_low_rank(2**24, 256, rank, room + 4)
print(f"r = {rank:,}, M = {room:,}: {low:,} words, bound {least:,}, ratio {low / least:.3f}")

# %% [markdown]
# 1.035 times the bound. It speaks of one class with a given rank, not of every approximation. Papp, Sobczyk and Zouzias (2605.23751) ask that larger question: their abstract announces algorithms after Alman and Song whose words grow almost linearly in $N$ in most regimes, and lower bounds for each regime. We know the abstract alone, so we quote no theorem of theirs.
# <!-- room = 4 * monomials.rank_of(256, 2) + 256 + 4 -->
# <!-- 1.035 = schedules.low_rank.count(2**24, 256, room, g=2).total / bounds.theorem_low_rank(2**24, 256, monomials.rank_of(256, 2), room + 4) -->
#
# Storing the features, as a program does that calls for $\phi(Q)$ and $\psi(K)$ as arrays, would throw this away. Writing and reading both once would move $4Nr$ words, and at $r = 455$ that is 38 times $4Nd$.
# <!-- 38 = 455 / 12 -->
#
# ## Misconceptions
#
# - **"Attention is quadratic, and Theorem A proves it."** It proves it for schedules that form the products $p_{ij}v_{jc}$. At $N = 40\,960$ low rank moved 75 times fewer words than Theorem A asks of those (section 15.5).
# <!-- 75 = bounds.lower_bound("forward", 40_960, 12, 4096)[0] / low -->
# - **"Linear time, so it is the better choice for long texts."** Linear with a factor of $r$. At $d = 64$ a polynomial of degree 4 has 814,385 features (section 15.2).
#
# ## Take-away
#
# - $p(q \cdot k) = \phi(q)\cdot\psi(k)$ with $r = \binom{d+g}{g}$ features, and $O_i = \phi(q_i)T$ over its first column.
# - Two passes move $4Nd$ words where the state of $r(d+1)$ words fits, else about $2rNd^2/M$. Where it does not, low rank passes F3 at 0.5 to 0.7 ranks.
# - The largest relative error on $[-R, R]$ stands at a root of $p' - p$ or at an end. For Taylor's polynomial the degree grows in proportion to $R$, and the rank far faster.
# <!-- "far faster" as definition -->
#
# ## References
#
# - J. Alman, Z. Song: *Fast attention requires bounded entries*, 2023, [arXiv 2302.13214](https://arxiv.org/abs/2302.13214). The approximation by a polynomial, and who needs bounded entries.
# - F. A. Heinsen, L. Kozachkov: *Self-attention at constant cost per token via symmetry-aware Taylor approximation* (SATA), 2026, [arXiv 2602.00294](https://arxiv.org/abs/2602.00294). Each of Taylor's monomials once.
# - P. A. Papp, A. Sobczyk, A. Zouzias: *Approaching I/O-optimality for approximate attention*, 2026, [arXiv 2605.23751](https://arxiv.org/abs/2605.23751). The abstract.
#
# **What comes next.** <!-- next -->
