# %% [markdown]
# # 15 Polynomials instead of exponentials
#
# Fourteen lessons computed softmax attention exactly, and Theorem A says what that must cost: about $4N^2d^2/M$ words, whatever the order. This lesson moves fewer. It can, because it computes something else. Where the scores are small, $e^s$ is nearly a polynomial; a polynomial of a scalar product is a scalar product of longer rows; and then the $N \times N$ weights need not be formed, so that attention moves $4Nd$ words, as many as its input and output have. The price is an error and a number of features. Both can be known before anything is computed, and both grow fast with the scores. So the lesson ends with the question for whom this is any use, and for the heads of a trained model the answer is sobering.
#
# **What you will learn**
#
# - to write a polynomial of $q \cdot k$ as a scalar product of $\binom{d+g}{g}$ features, and not of $1 + d + d^2 + \dots$;
# - to certify how far a polynomial is from $e^s$ on $[-R, R]$, and to find the smallest degree that will do;
# - why each row can have a polynomial of its own at the same rank, and how well its error can be predicted;
# - to compute attention in two passes over the tokens, for $4Nd$ words, and what changes when the state does not fit;
# - when a row sum can become zero, and how that is excluded beforehand;
# - to say for given data whether low rank is worth it, and when it is hopeless.
#
# **Prerequisites**: lessons 02 (the machine) and 04 (words of F3); section 15.7 mentions Theorem A of lesson 05. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: 85, of which <!-- minutes --> are for the exercises.
#
# <!-- exercises -->
#
# Sections 15.4 and 15.10 stand by themselves: if time runs short, read them another day. Everything here is NumPy, also the calls of `lowrank.attention`, which get `engine="numpy"`. Without that, and with Numba installed (`pip install "iocourse[fast]"`), they would run compiled: faster, after some seconds of compiling the first time.

# %% tags=["setup"]
from itertools import combinations_with_replacement
from math import comb, exp, factorial, lgamma, log

import numpy as np
from numpy.polynomial import Polynomial

from iocourse import Machine, bounds, costs, exact, explore, lowrank, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head, real_heads
from iocourse.machine import Features

# %% [markdown]
# ## 15.1 A matrix that is nearly low-rank
#
# We want to avoid the $N \times N$ matrix of weights. A matrix that is a product of an $(N, r)$ and an $(r, N)$ one has *rank* at most $r$, and with small $r$ it is never needed as a whole. So: what rank does $P = \mathrm{softmax}(S)$ have? Exactly, nearly always $N$. But how close to it is a matrix of smaller rank?
#
# That depends on how large the scores are. Let all entries of $Q$ and $K$ be at most $B$ in size. Then
#
# $$ |s_{ij}| = \Bigl|\frac{q_i \cdot k_j}{\sqrt d}\Bigr| \le \frac{d\,B^2}{\sqrt d} = B^2\sqrt d =: R . \tag{15.1} $$
#
# This is the assumption of *bounded entries*. If $R$ is tiny, every $e^{s}$ is close to 1, and a matrix of ones has rank 1. If $R$ is large, each row picks out keys of its own.
#
# The best matrix of rank $r$ is known: keep the $r$ largest singular values. What it leaves out, relative to $P$ and in the root mean square of the entries, is the root of the sum of the other squares over the sum of all.
#
# **Predict.** 400 tokens, $d = 4$. Which rank is needed to come within 1 percent of $P$, for $B = 0.5$ and for $B = 2$?

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
# 5 of 400 for $B = 0.5$, and 77 for $B = 2$. So for small entries the matrix *is* nearly of low rank. But singular values are found by computing the whole matrix first, which costs what we wanted to save. We need factors that can be written down row by row, without looking at the other side.

# %% [markdown]
# ## 15.2 A polynomial is a scalar product
#
# Here is a way. (From here on $q$ stands for a query times $1/\sqrt d$, so that the score is $s = q \cdot k$.) Take two coordinates and the square of the score:
#
# $$ (q \cdot k)^2 = (q_1k_1 + q_2k_2)^2 = q_1^2\,k_1^2 + 2\,q_1q_2\,k_1k_2 + q_2^2\,k_2^2 = \phi(q)\cdot\phi(k), \qquad \phi(x) = (x_1^2,\ \sqrt2\,x_1x_2,\ x_2^2). $$
#
# A square of a scalar product is a scalar product again, of *features* that are made from one row alone. The same holds for every power, and so for every polynomial $p(s) = \sum_l c_l s^l$ in place of $e^s$. With features of all degrees up to $g$, one behind the other,
#
# $$ p(q \cdot k) = \phi(q)\cdot\psi(k) . \tag{15.2} $$
#
# How many features are there? Whoever multiplies $(q_1k_1 + \dots + q_dk_d)^l$ out without collecting gets $d^l$ products, the *Kronecker* powers, and $1 + d + \dots + d^g$ in all. But $q_1q_2$ and $q_2q_1$ are the same number. What differs is how often each coordinate occurs, which a list of exponents $a = (a_1, \dots, a_d)$ says, and
#
# $$ (q \cdot k)^l = \sum_{|a| = l} \frac{l!}{a_1!\cdots a_d!}\; q^a\,k^a , \qquad q^a = q_1^{a_1}\cdots q_d^{a_d} . \tag{15.3} $$
#
# The number in front, $l!/a!$, counts the orders in which the $l$ factors can be written. The $q^a$ are the *symmetric monomials*. One of degree at most $g$ is a choice of $g$ things out of $d$ coordinates and the number 1, with repetition, and without order:
#
# $$ r = \binom{d+g}{g} . \tag{15.4} $$
#
# **Predict.** $d = 12$ and $g = 3$. How many features are there with and without collecting?

# %% tags=["predict"]
predict("15.2", collected=455, kronecker=1885)  #> predict("15.2", collected=..., kronecker=...)

# %%
def kronecker(d, g):
    return sum(d**l for l in range(g + 1))


for size in (4, 12, 64):
    row = (f"{comb(size + g, g):9,} of {kronecker(size, g):10,}" for g in (2, 3, 4))
    print(f"d = {size:2}, g = 2, 3, 4:", "; ".join(row))
measured("15.2", collected=comb(15, 3), kronecker=kronecker(12, 3))

# %% [markdown]
# 455 instead of 1,885. Collecting gains up to $g!$, for a monomial of $g$ different coordinates occurs in $g!$ orders. Keep an eye on the last row: at $d = 64$ degree 4 has 814,385 features.
#
# The monomials are cheap to make. List them by degree, and within a degree by their smallest coordinate. For $d = 3$ and $g = 2$:
#
# $$ 1 \mid x_1,\ x_2,\ x_3 \mid x_1x_1,\ x_1x_2,\ x_1x_3,\ x_2x_2,\ x_2x_3,\ x_3x_3 $$
#
# The monomials of degree 2 that begin with $x_2$ are $x_2$ times those of degree 1 that begin with $x_2$ or later, which stand at the end of their list. So each feature is one of lower degree times one coordinate: one multiplication a feature, whatever the degree.
#
# <!-- exercise 15A --> Take the *Taylor polynomial* $p(s) = \sum_{l \le g} s^l/l!$. Its $c_l\,l!/a!$ is $1/a!$, with $a! = a_1!\cdots a_d!$. Give its square root to either side, so that both have the same features, $\phi(x)_a = x^a/\sqrt{a!}$. Write a function that makes them for every row. The check multiplies your features of $Q$ with those of $K$; their order is up to you. If you are stuck after seven minutes, run `hint("15A")` in a cell of your own.

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

# %% [markdown]
# ## 15.3 How far off is a polynomial?
#
# We want a *certificate*: an error that no score in $[-R, R]$ exceeds, known beforehand. The right thing to bound is the relative error, the $\varepsilon$ in
#
# $$ \varepsilon = \max_{|s| \le R} \bigl|p(s)\,e^{-s} - 1\bigr| . \tag{15.5} $$
#
# Here is why. If every $p(s_{ij})$ is $e^{s_{ij}}$ times a factor between $1 - \varepsilon$ and $1 + \varepsilon$, then so is the row sum, for it is a sum of such. The weight is their quotient, so it is off by at most a factor $(1 + \varepsilon)/(1 - \varepsilon)$, and with $\varepsilon < 1$
#
# $$ |\tilde P_{ij} - P_{ij}| \le \frac{2\varepsilon}{1 - \varepsilon}\,P_{ij} , \qquad |\tilde O_{ic} - O_{ic}| \le \frac{2\varepsilon}{1 - \varepsilon}\,\max_j |V_{jc}| , \tag{15.6} $$
#
# the second because the weights of a row sum to 1. Nothing in it depends on $N$.
#
# How is a maximum over all of $[-R, R]$ found, without a grid that may miss it? Where $p(s)e^{-s}$ has an extremum inside, its derivative $(p'(s) - p(s))\,e^{-s}$ is zero. So the largest error is at a real root of $p' - p$, or at an end. These are at most $g + 2$ places.
#
# For Taylor's polynomial $p' - p = -s^g/g!$, whose only root is 0, and there the error is 0. So the largest error is at an end. Which one?
#
# **Predict.** Taylor's polynomial of degree 4 on $[-2, 2]$: how large is $|p(s)e^{-s} - 1|$ at $s = -2$, and at $s = 2$?

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
# 1.463 on the left, 0.05265 on the right. In absolute terms the two are alike, 0.198 and 0.389; but at $-2$ the exponential itself is only 0.1353. So Taylor's largest error is the one at $-R$, and integrating $p' - p$ gives it in closed form:
#
# $$ \varepsilon_{\text{Taylor}}(g, R) = \frac{1}{g!}\int_0^R t^g e^{t}\,dt . \tag{15.7} $$
#
# <!-- exercise 15B --> `make(g, R)` gives the coefficients $c_0, \dots, c_g$ of some polynomial of degree $g$ meant for $[-R, R]$: Taylor's, or one that you have never seen, whose largest error may be anywhere. Return the smallest degree, counted from 1, whose largest relative error is at most `error`, and that largest error. A larger degree need not be better, so go through them in order. NumPy finds all roots of a polynomial, also complex ones: `Polynomial(c).roots()`; `.deriv()` and `-` do the rest. The error must be right to eight digits. If you are stuck after six minutes, run `hint("15B")` in a cell of your own.
# <!-- p = lambda s: sum(s**l / math.factorial(l) for l in range(5)) -->
# <!-- 0.198, 0.389 = (abs(p(s) - math.exp(s)) for s in (-2, 2)) -->

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

# %%
def line(R):
    g, largest = my_degree(taylor, R, 0.01)
    return f"degree {g:2}, error {largest:.4f}, rank {comb(12 + g, g):14,} at d = 12"


for R in (0.5, 1, 2, 4, 8):
    print(f"R = {R:3}:", attempt(line, R))

# %% [markdown]
# Degree 3 for $R = 0.5$, 5 for 1, 8 for 2, and 30 for 8. The degree grows about in proportion to $R$; the rank grows from 455 over 6,188 and 125,970 to 11,058,116,888.

# %% [markdown]
# ## 15.4 A lower degree
#
# Taylor's polynomial is excellent near 0, where nobody needs so many digits, and bad at $-R$. Can the same degree do better on the whole interval?
#
# **Chebyshev.** A polynomial of degree $g$ is fixed by its values at $g + 1$ points. Choose those that crowd towards the ends, $s = R\cos\bigl(\pi(j + \tfrac12)/(g + 1)\bigr)$, the Chebyshev nodes. This spreads the *absolute* error nearly evenly.
#
# **Relative minimax.** What we certify is the relative error, and there is a best polynomial for it. At the best one the largest error is taken $g + 2$ times, with signs in turn; as long as it is taken less often, a small polynomial could be added that lowers all its peaks. By section 15.3 there are at most $g + 2$ places where the error has an extremum, namely $g$ roots of $p' - p$ and two ends, so at the best polynomial all of them are peaks. This gives *Remez' exchange*: guess $g + 2$ points; solve for the $p$ whose error is $+E, -E, +E, \dots$ there, which is a linear system for $c_0, \dots, c_g$ and $E$; move the points to where the error of this $p$ is extremal; repeat.

# %%
def remez(g, R, rounds=12):
    points, signs = -R * np.cos(np.pi * np.arange(g + 2) / (g + 1)), (-1.0) ** np.arange(g + 2)
    for _ in range(rounds):
        powers = points[:, None] ** np.arange(g + 1)                       # (g + 2, g + 1)
        system = np.column_stack([powers * np.exp(-points)[:, None], signs])
        c = np.linalg.solve(system, np.ones(g + 2))[:-1]                   # p·exp(-s) ± E = 1
        p = Polynomial(c)
        points = np.concatenate([[-R], np.sort((p.deriv() - p).roots().real), [R]])
    return c


p = Polynomial(remez(3, 1.0))
peaks = np.concatenate([[-1], np.sort((p.deriv() - p).roots().real), [1]])
print("peaks at ", np.round(peaks, 3))
print("errors   ", np.round(p(peaks) * np.exp(-peaks) - 1, 6))

# %% [markdown]
# Five peaks for degree 3, all of size 0.005004 and with signs in turn. (`lowrank.polynomial("minimax", g, R)` does the same with more care for high degrees.) A gift comes with the certificate of any polynomial: where $\varepsilon < 1$, $p(s) \ge (1 - \varepsilon)\,e^s > 0$ on the whole interval, so no weight can be negative. Section 15.8 will need that.
#
# **Predict.** $R = 4$ and 1 percent. Taylor needs degree 15. What do Chebyshev and minimax need?

# %% tags=["predict"]
predict("15.4", chebyshev=11, minimax=8)  #> predict("15.4", chebyshev=..., minimax=...)

# %%
def made_by(name):
    return lambda g, R: lowrank.polynomial(name, g, R).coefficients


names = ("taylor", "chebyshev", "minimax")
degrees = {}
for R in (0.5, 1, 2, 4, 8):
    for error in (1e-2, 1e-4):
        degrees[R, error] = [lowrank.smallest_degree(made_by(name), R, error) for name in names]
    print(f"R = {R:3}: 1 percent {degrees[R, 1e-2]}, 0.01 percent {degrees[R, 1e-4]}")
print("in each list:", ", ".join(names))
measured("15.4", chebyshev=degrees[4, 1e-2][1], minimax=degrees[4, 1e-2][2])

# %%
explore.polynomial_errors(2.0, [("taylor", 4), ("chebyshev", 4), ("minimax", 4)], error=0.01)

# %% [markdown]
# 10 and 7, beside 15. For 1 percent minimax takes two thirds of Taylor's degree at $R = 0.5$, less than half of it at $R = 4$ and 0.4 of it at $R = 8$. That is a great deal of rank. For $R = 2$, 1 percent and $d = 12$, Taylor's degree 8 takes 125,970 features and minimax' degree 5 takes 6,188. The picture shows degree 4 on $[-2, 2]$: Taylor's error is tiny in the middle and above 1 at the left end, minimax trades one for the other.
# <!-- 125,970, 6,188 = math.comb(12 + 8, 8), math.comb(12 + 5, 5) -->

# %% [markdown]
# ## 15.5 Each row its own polynomial
#
# A certificate guards against the worst score. But the worst is rare: most scores of a row lie near its mean, a few standard deviations either way. Two observations turn this into a better polynomial of the same rank.
#
# *First*, softmax does not change when a number is added to all scores of a row. Subtracting the mean key from every key does just that, $q \cdot (k_j - \bar k) = s_j - q \cdot \bar k$, and now each row of scores has mean 0 and variance
#
# $$ \sigma_i^2 = q_i^\top C\, q_i , \qquad C = \text{covariance of the keys}, \ (d, d) . \tag{15.8} $$
#
# All $\sigma_i^2$ together take $O(Nd^2)$ operations, and no pair is formed.
#
# *Second*, in (15.2) the coefficients $c_l$ may be different for every query: multiply the features of degree $l$ of row $i$ with $c_l^{(i)}$, on the side of the query. The features of the keys and the rank stay as they are.
#
# So which polynomial is best for a row whose scores are about normal with variance $\sigma^2$? Best in the mean square, since errors of many keys add up like that. The *Hermite polynomials* $\mathrm{He}_l$ (1, $x$, $x^2 - 1$, …, of degree $l$) have the generating function $e^{xt - t^2/2} = \sum_l \mathrm{He}_l(x)\,t^l/l!$. With $x = s/\sigma$ and $t = \sigma$ it says
#
# $$ e^{s} = e^{\sigma^2/2} \sum_{l \ge 0} \frac{\sigma^l}{l!}\,\mathrm{He}_l\!\left(\frac s\sigma\right) , \tag{15.9} $$
#
# and for normal $s$ these terms are orthogonal, the square of $\mathrm{He}_l$ having mean $l!$. Hence the best polynomial of degree $g$ is this series cut after $l = g$, and what is cut off has the mean square $e^{\sigma^2}\sum_{l > g} \sigma^{2l}/l!$. Divide by the mean square of $e^s$, which is $e^{2\sigma^2}$:
#
# $$ \text{relative error} \approx \sqrt{\,e^{-\sigma^2} \sum_{l > g} \frac{\sigma^{2l}}{l!}\,} = \sqrt{\Pr[\mathrm{Poisson}(\sigma^2) > g]} . \tag{15.10} $$
#
# This is the *Poisson rule*. It speaks of the weights, all pairs taken together; and of $O$ as far as the values have mean zero and know nothing of the weights. Written in powers of $s$ the best polynomial is Taylor's with coefficients that are corrected a little, and the factor $e^{\sigma^2/2}$ cancels against the row sum:
#
# $$ p_i(s) = \sum_{l=0}^{g} \frac{s^l}{l!} \sum_{m=0}^{\lfloor (g-l)/2 \rfloor} \frac{(-\sigma_i^2/2)^m}{m!} . \tag{15.11} $$
#
# The inner sum is $e^{-\sigma^2/2}$, cut off the sooner, the higher $l$ is. (Row-adaptive coefficients and this rule are derivations of this course. The tests compare them with the projection computed by quadrature.)

# %%
def own_coefficients(g, variances):
    half = -np.minimum(variances, 0.8) / 2  # clipped: see below
    series = np.cumsum([half**m / factorial(m) for m in range(g // 2 + 1)], axis=0)
    rows = [series[(g - l) // 2] / factorial(l) for l in range(g + 1)]
    return np.array(rows)  # (g + 1, rows)


def weights_off(S, c):
    """Relative error of the softmax weights with polynomial c (g + 1, rows) for each row."""
    A, P = np.zeros_like(S), exact.softmax(S)
    for row in c[::-1]:
        A = A * S + row[:, None]  # Horner's rule
    return np.linalg.norm(A / A.sum(axis=1, keepdims=True) - P) / np.linalg.norm(P)


def poisson_rule(sigma, g):
    terms = (sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 40))
    return np.sqrt(np.exp(-sigma**2) * sum(terms))

# %% [markdown]
# **Predict.** 2000 normal keys of $d = 8$ coordinates, and queries whose scores have $\sigma = 0.5$. At degree 4 Taylor leaves an error of 0.645 percent. What does each row's own polynomial leave?
# <!-- 0.645 = 100 * 6.45e-03 -->

# %% tags=["predict"]
predict("15.5", percent=0.25)  #> predict("15.5", percent=...)

# %%
rng = np.random.default_rng(15)
keys, queries = rng.standard_normal((2000, 8)), rng.standard_normal((200, 8))
keys -= keys.mean(axis=0)
queries /= np.linalg.norm(queries, axis=1, keepdims=True)
found = {}
for sigma in (0.25, 0.5, 1.0):
    S = sigma * queries @ keys.T  # every row has about this spread
    for g in (2, 4, 6):
        shared = np.repeat(taylor(g)[:, None], len(S), axis=1)
        own = own_coefficients(g, S.var(axis=1))
        found[sigma, g] = weights_off(S, shared), weights_off(S, own)
        print(f"σ = {sigma:4}, g = {g}: Taylor {found[sigma, g][0]:.2e}, "
              f"own {found[sigma, g][1]:.2e}, Poisson rule {poisson_rule(sigma, g):.2e}")
measured("15.5", percent=100 * found[0.5, 4][1])

# %% [markdown]
# 0.2305 percent, and the rule said 0.257. The gain over Taylor grows with the degree: at $\sigma = 0.5$ it is 1.5 times at degree 2, 2.8 times at degree 4 and 5.4 times at degree 6, for the same features.
#
# One thing needs care. For $g = 2$, (15.11) is $p_i(s) = \tfrac12(s + 1)^2 + \tfrac12(1 - \sigma_i^2)$, which is negative at $s = -1$ once $\sigma_i^2 > 1$. For the even degrees 4, 6 and 8 the limits are 0.83, 0.81 and 0.83, and from there on they rise. So the library *clips*: it takes $\min(\sigma_i^2, 0.8)$ in (15.11). Then every even degree (the tests go up to 24) is positive for every $s$, whatever the data. For larger $\sigma$ the polynomial is no longer the best one (at $\sigma = 1$, $g = 4$ it left 0.0536 where the unclipped one would leave 0.0504), and it is still better than Taylor's. This is the library's default, called `"hermite"`.
# <!-- 0.257 = 100 * 2.57e-03 -->
# <!-- 1.5, 2.8, 5.4 = 6.86e-02 / 4.54e-02, 6.45e-03 / 2.31e-03, 4.17e-04 / 7.79e-05 -->
# <!-- term = lambda g, l, v: sum((-v / 2) ** m / math.factorial(m) for m in range((g - l) // 2 + 1)) / math.factorial(l) -->
# <!-- real = lambda g, v: (abs(np.roots([term(g, l, v) for l in range(g, -1, -1)]).imag) < 1e-9).any() -->
# <!-- 0.83, 0.81, 0.83 = (next(v for v in np.arange(0.8, 0.9, 0.001) if real(g, v)) for g in (4, 6, 8)) -->
# <!-- draw = np.random.default_rng(15) -->
# <!-- keys, queries = draw.standard_normal((2000, 8)), draw.standard_normal((200, 8)) -->
# <!-- spread = queries / np.linalg.norm(queries, axis=1, keepdims=True) @ (keys - keys.mean(axis=0)).T -->
# <!-- variance = spread.var(axis=1, keepdims=True) -->
# <!-- weights = lambda S, g, v: sum(term(g, l, v) * S**l for l in range(g + 1)) -->
# <!-- apart = lambda A, P: np.linalg.norm(A / A.sum(axis=1, keepdims=True) - P) / np.linalg.norm(P) -->
# <!-- 0.0504 = apart(weights(spread, 4, variance), exact.softmax(spread)) -->

# %% [markdown]
# ## 15.6 Two passes
#
# Now attention itself. With (15.2) in place of $e^s$, output and row sum of query $i$ are
#
# $$ \sum_j p(s_{ij})\,[1, v_j] = \sum_j \phi(q_i)\cdot\psi(k_j)\,[1, v_j] = \phi(q_i)\, T , \qquad T = \sum_j \psi(k_j)^\top\,[1, v_j] , \tag{15.12} $$
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
# Six features of the key $(3, 5)$: 1, 3, 5, then 9/2, 15, 25/2, and below them the same times 10. `phi.add_mean(o, q, state)` goes the other way: it adds $\phi(q)\,T$ to the row `o`. Columns of a tile, such as `state[:, 1:]`, are views and take no room.
#
# **Predict.** $N = 512$, $d = 4$, $g = 3$: $r = 35$, and the state has 175 words. How many words does attention move in two passes, and how many does F3 with the same fast memory, the state and 13 words more, 188 in all?
# <!-- 175 = math.comb(4 + 3, 3) * (4 + 1) -->

# %% tags=["predict"]
predict("15.6", low_rank=8192, flash=140000)  #> predict("15.6", low_rank=..., flash=...)

# %% [markdown]
# <!-- exercise 15C --> Write both passes on the machine. The features are given, `phi` for queries and `psi` for keys; `psi` carries the weights, which need not be Taylor's. `len(psi)` is $r$. Rows come one at a time, and the scale $1/\sqrt d$ goes to the query, in place. Allowed are $4Nd$ words and, as fast memory, the state, a row of $K$ with one of $V$ (or of $Q$ with one of $O$ and its row sum), and four words more. If you are stuck after seven minutes, run `hint("15C")` in a cell of your own.

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
                phi.add_mean(o, q, state)
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
      f"peak {mine.ledger.peak}; F3 moves {flash.total / 8192:.1f} times 4Nd")
measured("15.6", low_rank=mine.ledger.total, flash=flash.total)

# %% [markdown]
# 8,192 words, which is $4Nd$: each word of $Q$, $K$ and $V$ was read once, and each of $O$ written once. No schedule that looks at its whole input moves fewer, exact or not. F3 moves 135,168, which is 16.5 times as many, and with $N$ the factor grows. The library's `schedules.low_rank` is this schedule where the state fits.

# %% [markdown]
# ## 15.7 When the state does not fit
#
# A state of $r(d + 1)$ words soon outgrows fast memory. Then it is made in *tiles*: one tile of $r_c$ rows and $B_d$ columns at a time, and for each of them keys and queries pass by again. Say the tile has all columns and only some of the rows, $k = \lceil r/r_c \rceil$ tiles in all. Each reads $Q$, $K$ and $V$ whole. And since each holds only a part of the sum over features, $O$ is written by the first, read and written again by the others, and so are the row sums:
#
# $$ W = 3Ndk + Nd\,(2k - 1) + 2N(k - 1) \approx 5\,\frac{r\,N d^2}{M} . \tag{15.13} $$
#
# Cut the columns instead, $c = \lceil (d+1)/B_d \rceil$ tiles with all rows. Each again reads $Q$ and $K$ whole, but only its own columns of $V$, and it finishes its own columns of $O$. Row sums come with the first tile and are kept:
#
# $$ W = 2Nd\,(c + 1) + Nc \approx 2\,\frac{r\,N d^2}{M} . \tag{15.14} $$
#
# Compare with F3's $4N^2d^2/M$: it is the same expression with one $N$ replaced by $r/2$. So low rank should move fewer words from about $N = r/2$ on, whatever $M$ is. (Where not even one column fits, rows are cut as well; `schedules.low_rank` takes the cheapest tile.)
#
# **Predict.** $d = 12$, $g = 3$, $M = 4096$: $r = 455$, and the state has 5,915 words. From which $N$ on does low rank move fewer words than F3? And how many times fewer at $N = 40\,960$?
# <!-- 455, 5,915 = math.comb(12 + 3, 3), math.comb(12 + 3, 3) * (12 + 1) -->

# %% tags=["predict"]
predict("15.7", crossing=230, fewer=90)  #> predict("15.7", crossing=..., fewer=...)

# %%
def words(N, d, g, M):
    low = costs.low_rank(N, d, g=g, **schedules.low_rank.tiles(N, d, M, g=g)).total
    return low, costs.flash_optimal(N, d, **schedules.flash_optimal.tiles(N, d, M)).total


cases = (12, 3, 4096), (12, 4, 4096), (12, 4, 16384), (64, 2, 65536), (64, 3, 65536)
for size, g, M in cases:
    best = schedules.crossing(size, g, M)
    rows = schedules.crossing(size, g, M, whole_rows=True)
    print(f"d = {size}, g = {g}, M = {M:6,}: r = {best.rank:6,}; from N = {best.N:6,} = "
          f"{best.ranks:.2f} r on; rows only {rows.N:6,} = {rows.ranks:.2f} r")
low, flash = words(40_960, 12, 3, 4096)
least, which = bounds.lower_bound("forward", 40_960, 12, 4096)
print(f"N = 40,960: {low:,} words, F3 {flash:,}; bound {which} {least:,}")
measured("15.7", crossing=schedules.crossing(12, 3, 4096).N, fewer=flash / low)

# %%
explore.words_against_length(12, 3, [4096, 16384])

# %% [markdown]
# 303, and 88.54 times fewer. The crossing lies between 0.56 and 0.70 ranks with the best tiles, and between 1.00 and 1.40 ranks if rows alone are cut; rounding to whole tiles makes it a little more than $r/2$ and about $5r/4$. It hardly depends on $M$: four times the memory moves the crossing of $d = 12$, $g = 4$ from 1,058 to 1,213. Where the state fits, low rank has $4Nd$, and it is ahead as soon as F3 has to read its keys a second time. At $M = 16\,384$ that is from $N = 607$ on, the right one of the two crossings in the picture. (Words are not everything. By section 15.6 low rank multiplies less from $N = r(d+1)/d$ on, a little above $r$; here that is 493.)
#
# At $N = 40\,960$ low rank moves 3,031,040 words, where Theorem A asks every exact schedule for 227,699,088. That is no contradiction. Theorem A counts products $p_{ij}v_{jc}$, all $N^2d$ of them, and here no $p_{ij}$ is ever formed. What can be said instead is said for low rank's own class: schedules that make each of the $r$ features of a row from the whole row. Count their products, of a feature with a word of $V$ and of a feature with a word of the state, as Theorem A counts its own, and
#
# $$ W \ge \frac{2rNd^2}{M} - M - rd \qquad \text{for } \tfrac12 d^2 \le M < N . \tag{15.15} $$
#
# So the 2 of (15.14) cannot be improved within the class.
# <!-- 493 = math.ceil(455 * 13 / 12) -->

# %%
rank = comb(256 + 2, 2)
room = 4 * rank + 256 + 4  # four columns of the state
low = schedules.low_rank.count(2**24, 256, room, g=2).total
least = bounds.theorem_low_rank(2**24, 256, rank, room + 4)
print(f"r = {rank:,}, M = {room:,}: {low:,} words, bound {least:,}, ratio {low / least:.3f}")

# %% [markdown]
# 1.035 times the bound. It speaks of one class with a given rank, not of every approximation. Papp, Sobczyk and Zouzias (2605.23751) ask that larger question: their abstract announces algorithms after Alman and Song whose words grow almost linearly in $N$ in most regimes, and lower bounds for each regime. We know the abstract alone, so we quote no theorem of theirs.
#
# Storing the features, as a program does that calls for $\phi(Q)$ and $\psi(K)$ as arrays, would throw this away. Writing and reading both once would move $4Nr$ words, and at $r = 455$ that is 38 times $4Nd$.
# <!-- 38 = 455 / 12 -->

# %% [markdown]
# ## 15.8 A sum that can be zero
#
# In exact attention every weight is positive. A polynomial can be negative, and then a row sum can be anything, zero included. Watch it happen once by hand. One query, two keys, degree 1, so $p(s) = 1 + s$. The scores are 0 and one that comes near $-2$; the values are $-1$ and $1$.

# %%
for s in (-1.0, -1.9, -1.99, -1.999):
    exact_weights = exact.softmax(np.array([0.0, s]))
    polynomial = np.array([1.0, 1 + s])
    O = polynomial @ [-1, 1] / polynomial.sum()
    print(f"s = {s:6}: weights {polynomial}, sum {polynomial.sum():.3f}, "
          f"O = {O:8.1f}, exact {exact_weights @ [-1, 1]:.3f}")

# %% [markdown]
# At $-1.999$ the output is $-1999.0$ where the exact one is $-0.761$. No value is larger than 1, and nothing has warned us. In the backward pass the sum stands in the denominator twice, and the factor of two thousand becomes one of millions. So before a result is handed back, its row sums must be *certified*. The library does it in one of three ways, the cheapest first:
#
# 1. *The polynomial is positive everywhere.* Taylor's of even degree is: at its lowest point $p' = 0$, and since $p' = p - s^g/g!$, there $p = s^g/g! > 0$. Clipped Hermite of even degree is as well (section 15.5).
# 2. *It is positive wherever this row's scores can be.* By Cauchy and Schwarz no score of row $i$ is larger in size than $|q_i|\max_j|k_j|$, and that takes $O(Nd)$ operations. Taylor's of odd degree is positive down to its one real root, at $-1$, $-1.596$, $-2.181$ and $-2.759$ for $g = 1, 3, 5, 7$. Minimax is positive on its interval where its $\varepsilon$ is below 1.
# 3. *The sum came out large enough.* With the mean key subtracted, a row's scores sum to 0, so the exact sum is at least $N$: the mean of $e^s$ is at least $e$ to the mean of $s$ (Jensen). If the computed sum is at least half of that, it is far from zero.
#
# What passes none of the three is refused, with the row, its scores, and what would do. And a last look is at the output: a mean of values is never larger than the largest of them, so where the polynomial may be negative, an output of more than twice that size is refused as well.
#
# <!-- exercise 15D --> Write the second certificate. A row is *safe* if $p(s) > 0$ for every score that a query of its length can have with a key no longer than the longest one. You get any polynomial with $p(0) > 0$. Judge every row by its own length, and form no pairs: the check has a case of 1,000 tokens in which they would show. If you are stuck after five minutes, run `hint("15D")` in a cell of your own.
# <!-- roots = lambda g: np.roots([1 / math.factorial(l) for l in range(g, -1, -1)]) -->
# <!-- 1.596, 2.181, 2.759 = (next(s.real for s in roots(g) if abs(s.imag) < 1e-9) for g in (3, 5, 7)) -->
# <!-- 1,000 = max(len(case.inputs["Q"]) for case in course.exercise.find("15D").cases(np.random.default_rng(0))) -->

# %% tags=["exercise"] name="ex-15D"
def my_safe_rows(Q, K, c):
    """Which rows of Q cannot meet a score at which the polynomial is 0 or negative.

    Q, K: (N, d), (Nk, d); the scale is in Q already. c: coefficients c_0, c_1, …, with c_0 > 0.
    Returns a boolean array (N,).
    """
    ### BEGIN SOLUTION the nearest real root, and how far a row's scores can reach
    roots = Polynomial(c).roots()
    real = roots.real[abs(roots.imag) < 1e-9 * (1 + abs(roots))]
    nearest = abs(real).min(initial=np.inf)
    reach = np.linalg.norm(Q, axis=1) * np.linalg.norm(K, axis=1).max()  # (N,)
    return reach < nearest
    ### END SOLUTION


# %% tags=["check"] name="check-15D"
check("15D", my_safe_rows)

# %%
rng = np.random.default_rng(18)
Q, K = rng.standard_normal((2, 1000, 8))
for g in (1, 3, 5, 7, 4):
    safe = attempt(my_safe_rows, 0.12 * Q, K, taylor(g))
    print(f"degree {g}: {np.sum(safe)} of 1000 rows are safe")

# %% [markdown]
# 47, 459, 883 and 986 of 1000 rows for the odd degrees, and all of them for degree 4: the root moves out slowly, and an even degree has none.
#
# Now the library, asked for something that it cannot certify: degree 3, one query, and six keys with mean 0 of which one is far out.

# %%
far_out = np.array([[-5.0], [1], [1], [1], [1], [1]])
try:
    lowrank.attention(np.ones((1, 1)), far_out, far_out, degree=3, scale=1.0, engine="numpy")
except lowrank.NotCertified as refusal:
    print(refusal)

# %% [markdown]
# The computed sum is $-1.4$ where the exact one is at least 6; so it is refused. Degree 4 is not refused: its weights are positive. That is no promise of accuracy, for positive weights can be wrong as well. Where the scores are small all is certified, also for 40,960 tokens:

# %%
n, size = 40_960, 12
rng = np.random.default_rng(19)
Q, K = rng.standard_normal((2, n, size)) / size**0.5   # scores q·k, with σ = |q|/√12
V = rng.standard_normal((n, size))
O = lowrank.attention(Q, K, V, degree=3, scale=1.0, engine="numpy")
some = rng.choice(n, 200, replace=False)
right = exact.attention(Q[some], K, V, scale=1.0)
error = np.linalg.norm(O[some] - right) / np.linalg.norm(right)
rule = poisson_rule(np.linalg.norm(Q, axis=1) / size**0.5, 3)
print(f"{n * n:,} pairs, {comb(size + 3, 3)} features; relative error of 200 rows {error:.5f}, "
      f"Poisson rule {np.mean(rule**2) ** 0.5:.5f}")

# %% [markdown]
# 0.00329, where the rule, averaged over the squares of all rows, says 0.00203. (Two other seeds gave two thirds of it, and less than half: all rows share the same values, so that chance does not average out.) 1,677,721,600 pairs would have been 13.4 GB of weights in 64 bits, and none of them was formed.
# <!-- 13.4 = 40_960**2 * 8 / 1e9 -->

# %% [markdown]
# ## 15.9 When it is hopeless
#
# The Poisson rule turns the spread $\sigma$ of the scores into a degree, $d$ and the degree make a rank, and the rank says from which length on low rank can pay. All four numbers are known before a single pair is formed.
#
# **Predict.** $\sigma = 0.5$ and an error of 1 percent: which degree? And what is the rank at $d = 64$?

# %% tags=["predict"]
predict("15.9", degree=4, rank=800_000)  #> predict("15.9", degree=..., rank=...)

# %%
def degree_for(sigma, error):
    return next(g for g in range(1, 100) if poisson_rule(sigma, g) <= error)


for sigma in (0.25, 0.5, 1, 1.5, 2):
    g = degree_for(sigma, 0.01)
    ranks = ", ".join(f"{comb(size + g, g):,}" for size in (8, 12, 16, 64))
    print(f"σ = {sigma:4}: degree {g:2}, rank at d = 8, 12, 16, 64: {ranks}")
g = degree_for(0.5, 0.01)
measured("15.9", degree=g, rank=comb(64 + g, g))

# %%
explore.rank_growth(of="rank", lines={"N = 1,048,576 tokens": 2**20})

# %% [markdown]
# At $d = 8$ to 16 and $\sigma \le 0.5$ the ranks are a few hundred to a few thousand, and a long text pays for them. At $d = 64$ degree 2 has 2,145 features; degree 4 has 814,385, nearly as many as a text of a million tokens; degree 6, for $\sigma = 1$, has 131,115,985, as many as 125 such texts together. The rank grows like $d^g/g!$. (Where a few directions of the keys carry most of the scores, one could keep the monomials of those alone. The library does not.)
#
# Where are real heads? Those that ship with the course come from a small trained model with $d = 32$. `lowrank.advise(Q, K)` measures the spread of the scores, applies each row's own polynomial to them, and says which degree would do.
# <!-- 125 = math.comb(64 + 6, 6) / 2**20 -->

# %%
for pair in real_heads():
    head = real_head(*pair)
    advice = lowrank.advise(head.Q, head.K, error=0.01)
    need = "no degree up to 12"
    if advice.rank:
        need = f"{advice.rank:14,} of degree {advice.degree}"
    print(f"layer {pair[0]}, head {pair[1]:2}: σ = {advice.logit_std:5.2f}, "
          f"scores up to ±{advice.logit_limit:5.1f}, features for 1 percent: {need}")

# %% [markdown]
# Three heads find no degree up to 12, four would need billions of features. The kindest one, head 11 of layer 0, has $\sigma = 0.55$ and needs degree 8: by the rule degree 5 would do, but its scores are not normal: one of its 221,841 is 5.3, the next 3.2, and that one row carries the error. At $d = 32$ that is 76,904,685 features, and with $M = 65\,536$ low rank would move fewer words from $N = 39\,639\,822$ on. This text has 471 tokens, and the model takes 512. So for this model exact attention is the better choice at every length it can take; at $d = 64$ degree 8 would cost 11,969,016,345 features.
#
# There are three ways out, and none is free. Fewer dimensions a head, 8 or 12 instead of 64. Scores that are kept small by construction: normalise queries and keys and fix the temperature, so that $|s| \le R$ whatever the model learns, and train it like that (lesson 17). Or exactness where it counts: an exact part for near keys or for the largest scores, and the polynomial for the many small ones (lesson 16 does this for the causal mask).
# <!-- head = real_head(0, 11) -->
# <!-- 471, 221,841 = len(head.Q), len(head.Q) * len(head.K) -->
# <!-- 5.3, 3.2 = np.sort((head.Q / 32**0.5 @ (head.K - head.K.mean(axis=0)).T).ravel())[[-1, -2]] -->
# <!-- 39\,639\,822 = schedules.crossing(32, 8, 65_536).N -->

# %% [markdown]
# ## 15.10 What "almost linear" says
#
# The idea is that of Alman and Song, who proved two statements about it (2302.13214). Let $d$ grow like $\log N$ and ask for an error of $1/N$ to some power. If the entries are bounded by $B = o(\sqrt{\log N})$, attention can be approximated in time $N^{1 + o(1)}$: then the degree grows more slowly than $\log N$, and the rank more slowly than any power of $N$. If $B$ is of the order $\sqrt{\log N}$, with a large enough constant, then no algorithm at all does it in time $N^{2 - \delta}$ with a fixed $\delta > 0$, unless a common conjecture on satisfiability (SETH) is false. So bounded entries are not a weakness of this method. They are where the border runs, for $d$ that grows like $\log N$. (For a *constant* $d$ Gupta, Huang, Saha, Xu and Ye, 2505.14840, announce time $\tilde O(N^{2-1/d})$ whatever the size of the entries, up to a power of its logarithm.) (Their scores are $q \cdot k/d$, so $|s| \le B^2$. The gradient followed in 2402.04497, and for many layers in 2408.13233: lesson 16.)
#
# How fast does the $o(1)$ go to zero? Let $d = \log_2 N$ and $B = \tfrac12$, so that with their scale $R = \tfrac14$, and take the smallest Taylor degree whose error (15.7), which is at most $R^{g+1}e^R/(g + 1)!$, is below $1/N$. Then write the rank as a power of $N$.
#
# **Predict.** $N = 2^{20}$, about a million tokens. $r = N^x$; what is $x$?

# %% tags=["predict"]
predict("15.10", x=0.8)  #> predict("15.10", x=...)

# %%
def exponent(bits, R=0.25):
    """log r / log N for N = 2^bits, d = bits, and an error below 1/N."""
    g = 1
    while (g + 1) * log(R) + R - lgamma(g + 2) > -bits * log(2):
        g += 1
    log_rank = lgamma(bits + g + 1) - lgamma(g + 1) - lgamma(bits + 1)  # of C(d + g, g)
    return g, log_rank / (bits * log(2))


for bits in (10, 20, 40, 80, 1000, 10_000):
    g, x = exponent(bits)
    print(f"N = 2^{bits:<6,} degree {g:4}: r = N^{x:.2f}")
measured("15.10", x=exponent(20)[1])

# %% [markdown]
# 0.78: at a million tokens the work is $Nr = N^{1.78}$, times $d$. The exponent does go down, to 0.58 at $N = 2^{1000}$, and no text has $2^{1000}$ tokens. A theorem about growth says where the border runs. For a given problem count the features. With $d$ and $g$ *fixed*, as in all other sections of this lesson, the time is linear in $N$ outright, and the question is only how large the constant $r$ is.
# <!-- 1.78 = 1 + 0.78 -->

# %% [markdown]
# ## 15.11 Try it
#
# Everything in one place: degree, polynomial, $d$, $N$, $M$ and the spread of the scores; below, the histogram of scores, with the error of the polynomial over the same axis. Compare the certified error of the weights, 470 percent at the beginning, with the measured one, 0.2 percent: the first guards against a score that hardly ever occurs. Then try to find a setting with $d = 64$ in which low rank is worth it. (Without a running kernel you see a still picture.)

# %%
explore.low_rank_explorer()

# %% [markdown]
# ## Misconceptions
#
# - **"Attention is quadratic, and Theorem A proves it."** It proves it for schedules that form the products $p_{ij}v_{jc}$. At $N = 40\,960$ low rank moved 75 times fewer words than Theorem A asks of those (15.7).
# - **"A higher degree is safer."** Degree 3 can have a row sum of zero where degree 2 cannot (15.8). Safe is what is certified.
# - **"The error grows with $N$."** Neither the certificate (15.6) nor the Poisson rule (15.10) contains $N$. What grows with $N$ is the gain.
# - **"Linear time, so it is the better choice for long texts."** Linear with a factor of $r$. At $d = 64$ and $\sigma = 1$ the factor is 131,115,985 (15.9).
#
# ## Take-away
#
# - $p(q \cdot k) = \phi(q)\cdot\psi(k)$ with $r = \binom{d+g}{g}$ features, and $O_i = \phi(q_i)T$ over its first column: two passes, $4Nd$ words where the state of $r(d+1)$ words fits, else about $2rNd^2/M$. Where it does not, it passes F3 at 0.5 to 0.7 ranks.
# - The largest relative error on $[-R, R]$ stands at a root of $p' - p$ or at an end. Minimax needs 0.4 to 0.7 of Taylor's degree; each row's own polynomial is best for normal scores up to $\sigma^2 = 0.8$ and costs no rank.
# - Degree from $\sigma$, rank from degree and $d$, and then the length decides. Small $d$ and small scores, yes; the trained heads here, no.
#
# ## References
#
# - J. Alman, Z. Song: *Fast attention requires bounded entries*, 2023, [arXiv 2302.13214](https://arxiv.org/abs/2302.13214). The approximation, and the border.
# - J. Alman, Z. Song: *The fine-grained complexity of gradient computation for training large language models*, 2024, [arXiv 2402.04497](https://arxiv.org/abs/2402.04497).
# - Y. Liang, Z. Sha, Z. Shi, Z. Song, Y. Zhou: *Multi-layer transformers gradient can be approximated in almost linear time*, 2024, [arXiv 2408.13233](https://arxiv.org/abs/2408.13233).
# - S. Gupta, B. Huang, B. Saha, Y. Xu, C. Ye: *Subquadratic algorithms and hardness for attention with any temperature*, 2025, [arXiv 2505.14840](https://arxiv.org/abs/2505.14840). The abstract.
# - P. A. Papp, A. Sobczyk, A. Zouzias: *Approaching I/O-optimality for approximate attention*, 2026, [arXiv 2605.23751](https://arxiv.org/abs/2605.23751). The abstract.
#
# **What comes next.** Training needs gradients. Lesson 16 computes all of them in two more passes, from the same features, and finds that they lose one degree.
# <!-- 75 = 227_699_088 / 3_031_040 -->
