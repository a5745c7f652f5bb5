# %% [markdown]
# # 15b Error certificates for polynomials
#
# [Lesson 15](15_polynomial_attention.ipynb) put Taylor's polynomial in place of the exponential, because it is the first that comes to mind. This lesson asks three things. Which polynomial of the same degree is better? When can its row sums be trusted, for a polynomial may be negative where $e^s$ never is? And for which scores is low rank any use? All three are answered before a single pair is formed; for the heads of a trained model the last answer is sobering.
#
# **What you will learn**
#
# - why each row can have a polynomial of its own at the same rank, and how well its error can be predicted;
# - what the best polynomial on a whole interval gains;
# - when a row sum can become zero, and how that is excluded beforehand;
# - to say for given data whether low rank is worth it, and when it is hopeless;
# - to find what is wrong with a schedule from its ledger and its timeline.
#
# **Prerequisites**: lesson 15: features and their number (15.4), the certificate (15.5), two passes. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 15E -->.
#
# <!-- exercises -->
#
# Everything here is NumPy, also the calls of `lowrank.attention`, which get `engine="numpy"`. Without that, and with Numba installed (extra `fast`), large ones would run compiled, after some seconds of compiling the first time. Here are three polynomials of degree 4, and how far each is from $e^s$:

# %% tags=["setup"]
from math import comb, factorial, lgamma, log

import numpy as np
from numpy.polynomial import Polynomial

from iocourse import exact, lowrank, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.course.exercises.lesson15 import columns_gone_wrong, features_of
from iocourse.data import real_head, real_heads


# %%
def taylor(g, R=None):
    return np.array([1 / factorial(l) for l in range(g + 1)])  # coefficients of 1, s, s², …


explore.polynomial_errors(2.0, [("taylor", 4), ("hermite", 4), ("minimax", 4)],
                          variance=0.25, error=0.01)

# %% [markdown]
# ## 15.6 Each row its own polynomial
#
# A certificate (15.5) guards against the worst score. But the worst is rare: most scores of a row lie near its mean, a few standard deviations either way. In the picture that is the middle, where Taylor's and Hermite's errors are small; at the left end Taylor's is above 1; minimax (section 15.7) trades the one for the other. Two observations turn the spread of the scores into a better polynomial of the same rank.
#
# *First*, softmax does not change when a number is added to all scores of a row. Subtracting the mean key from every key does just that, $q \cdot (k_j - \bar k) = s_j - q \cdot \bar k$, and now each row of scores has mean 0 and variance
#
# $$ \sigma_i^2 = q_i^\top C\, q_i , \qquad C = \text{covariance of the keys}, \ (d, d) . $$
#
# All $\sigma_i^2$ together take $O(Nd^2)$ operations, and no pair is formed.
#
# *Second*, in (15.2) the coefficients $c_l$ may be different for every query: multiply the features of degree $l$ of row $i$ with $c_l^{(i)}$, on the side of the query. The features of the keys and the rank stay as they are.
#
# So which polynomial is best for a row whose scores are about normal with variance $\sigma^2$? Best in the mean square, since errors of many keys add up like that. The *Hermite polynomials* $\mathrm{He}_l$ (1, $x$, $x^2 - 1$, …, of degree $l$) have the generating function $e^{xt - t^2/2} = \sum_l \mathrm{He}_l(x)\,t^l/l!$. With $x = s/\sigma$ and $t = \sigma$ it says
#
# $$ e^{s} = e^{\sigma^2/2} \sum_{l \ge 0} \frac{\sigma^l}{l!}\,\mathrm{He}_l\!\left(\frac s\sigma\right) , $$
#
# and for normal $s$ these terms are orthogonal, the square of $\mathrm{He}_l$ having mean $l!$. Hence the best polynomial of degree $g$ is this series cut after $l = g$, and what is cut off has the mean square $e^{\sigma^2}\sum_{l > g} \sigma^{2l}/l!$. Divide by the mean square of $e^s$, which is $e^{2\sigma^2}$:
#
# $$ \text{relative error} \approx \sqrt{\,e^{-\sigma^2} \sum_{l > g} \frac{\sigma^{2l}}{l!}\,} = \sqrt{\Pr[\mathrm{Poisson}(\sigma^2) > g]} . \tag{15.10} $$
# <!-- (15.10) not evaluated: sum over a set -->
#
# This is the *Poisson rule*. It speaks of the weights, all pairs taken together; and of $O$ as far as the values have mean zero and know nothing of the weights. Written in powers of $s$ the best polynomial is Taylor's with coefficients that are corrected a little, and the factor $e^{\sigma^2/2}$ cancels against the row sum:
#
# $$ p_i(s) = \sum_{l=0}^{g} \frac{s^l}{l!} \sum_{m=0}^{\lfloor (g-l)/2 \rfloor} \frac{(-\sigma_i^2/2)^m}{m!} . \tag{15.11} $$
# <!-- (15.11) pi(s) = np.polynomial.polynomial.polyval(float(s), lowrank.polynomials.hermite(g, np.array([sigmai**2]))[:, 0]) with sigmai = 0.85 / (1 + j % 8) where g <= 9 and s <= 12 -->
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
# **Predict** (guess). 2000 normal keys of $d = 8$ coordinates, and queries whose scores have $\sigma = 0.5$. At degree 4 Taylor leaves an error of 0.645 percent. What does each row's own polynomial leave?
# <!-- 0.645 = 100 * 6.45e-03 -->

# %% tags=["predict"]
predict("15.6", percent=0.25)  #> predict("15.6", percent=...)

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
measured("15.6", percent=100 * found[0.5, 4][1])

# %% [markdown]
# <details><summary>What its own polynomial leaves</summary>
#
# 0.2305 percent, and the rule said 0.257. The gain over Taylor grows with the degree: at $\sigma = 0.5$ it is 1.5 times at degree 2, 2.8 times at degree 4 and 5.4 times at degree 6, for the same features.
#
# </details>
#
# One thing needs care. For $g = 2$, (15.11) is $p_i(s) = \tfrac12(s + 1)^2 + \tfrac12(1 - \sigma_i^2)$, which is negative at $s = -1$ once $\sigma_i^2 > 1$. For the even degrees 4, 6 and 8 the limits are 0.83, 0.81 and 0.83, and from there on they rise. So the library *clips*: it takes $\min(\sigma_i^2, 0.8)$ in (15.11). Then every even degree (the tests go up to 24) is positive for every $s$, whatever the data. For larger $\sigma$ the polynomial is no longer the best one (at $\sigma = 1$, $g = 4$ it left 0.0536 where the unclipped one would leave 0.0504), and it is still better than Taylor's. This is the library's default, called `"hermite"`.
# <!-- 0.257 = 100 * 2.57e-03 -->
# <!-- 0.8 = lowrank.polynomials.CLIP -->
# <!-- 0.2305 as output -->
# <!-- 2, 4 as definition -->
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
# ## 15.7 The best polynomial on an interval
#
# Hermite's polynomial knows how scores are spread. Who knows nothing but that they lie in $[-R, R]$ wants the smallest certified error (15.5) there. A polynomial through $e^s$ at the *Chebyshev nodes*, $s = R\cos\bigl(\pi(j + \tfrac12)/(g + 1)\bigr)$, which crowd towards the ends, spreads the *absolute* error nearly evenly. For the relative error there is a best polynomial, the *minimax*. At the best one the largest error is taken $g + 2$ times, with signs in turn; as long as it is taken less often, a small polynomial could be added that lowers all its peaks. By section 15.3 there are at most $g + 2$ places where the error has an extremum, so all of them are peaks. This gives *Remez' exchange*: guess $g + 2$ points; solve for the $p$ whose error is $+E, -E, +E, \dots$ there, a linear system for $c_0, \dots, c_g$ and $E$; move the points to where the error of this $p$ is extremal; repeat.
# <!-- 2 as definition -->

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
# **Predict** (guess). $R = 4$ and 1 percent. Taylor needs degree 15. What do Chebyshev and minimax need?
# <!-- 1, 4 as input -->

# %% tags=["predict"]
predict("15.7", chebyshev=11, minimax=8)  #> predict("15.7", chebyshev=..., minimax=...)

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
measured("15.7", chebyshev=degrees[4, 1e-2][1], minimax=degrees[4, 1e-2][2])

# %% [markdown]
# <details><summary>Degrees for 1 percent</summary>
#
# 10 and 7, beside 15. For 1 percent minimax takes two thirds of Taylor's degree at $R = 0.5$, less than half of it at $R = 4$ and 0.4 of it at $R = 8$. That is a great deal of rank. For $R = 2$, 1 percent and $d = 12$, Taylor's degree 8 takes 125,970 features and minimax' degree 5 takes 6,188.
#
# </details>
# <!-- 125,970, 6,188 = math.comb(12 + 8, 8), math.comb(12 + 5, 5) -->
# <!-- 1, 2, 4 as input -->
# <!-- shares = {R: lowrank.smallest_degree("minimax", R, 0.01) / lowrank.smallest_degree("taylor", R, 0.01) for R in (0.5, 1, 2, 4, 8)} -->
# <!-- 0.4 = shares[8] -->
# <!-- "two thirds of Taylor's degree at $R = 0.5$, less than half of it at $R = 4$" if round(3 * shares[0.5]) == 2 and shares[4] < 0.5 -->
#
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
# 1. *The polynomial is positive everywhere.* Taylor's of even degree is: at its lowest point $p' = 0$, and since $p' = p - s^g/g!$, there $p = s^g/g! > 0$. Clipped Hermite of even degree is as well (section 15.6).
# 2. *It is positive wherever this row's scores can be.* By Cauchy and Schwarz no score of row $i$ is larger in size than $|q_i|\max_j|k_j|$, and that takes $O(Nd)$ operations. Taylor's of odd degree is positive down to its one real root, at $-1$, $-1.596$, $-2.181$ and $-2.759$ for $g = 1, 3, 5, 7$. Minimax is positive on its interval where its $\varepsilon$ is below 1.
# 3. *The sum came out large enough.* With the mean key subtracted, a row's scores sum to 0, so the exact sum is at least $N$: the mean of $e^s$ is at least $e$ to the mean of $s$ (Jensen). If the computed sum is at least half of that, it is far from zero.
#
# What passes none of the three is refused, with the row, its scores, and what would do. And a last look is at the output: a mean of values is never larger than the largest of them, so where the polynomial may be negative, an output of more than twice that size is refused as well.
#
# <!-- exercise 15D --> Write the second certificate. A row is *safe* if $p(s) > 0$ for every score that a query of its length can have with a key no longer than the longest one. You get any polynomial with $p(0) > 0$. Judge every row by its own length, and form no pairs: the check has a case of 1,000 tokens in which they would show. If you are stuck after five minutes, run `hint("15D")` in a cell of your own.
# <!-- roots = lambda g: np.roots([1 / math.factorial(l) for l in range(g, -1, -1)]) -->
# <!-- 1.596, 2.181, 2.759 = (next(s.real for s in roots(g) if abs(s.imag) < 1e-9) for g in (3, 5, 7)) -->
# <!-- 1,000 = max(len(case.inputs["Q"]) for case in course.exercise.find("15D").cases(np.random.default_rng(0))) -->

# %% [raw] name="about-15D"
# title = "Safe rows"
# difficulty = 2
# importance = 4
# minutes = 8
# hints = [
#   "p(0) is positive. What is the nearest point at which p could change its sign?",
#   "p is positive as long as |s| is smaller than its nearest real root on either side. How large can the score of a query of a given length be with a key that is no longer than the longest one?",
#   "By Cauchy–Schwarz, at most the product of the two lengths, and a key of that length could reach it. So compare, for each row, the length of the query times the largest length of a key with the smallest |root| of the real roots; without real roots, use infinity.",
# ]

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
# The computed sum is $-1.4$ where the exact one is at least 6; so it is refused. Degree 4 is not refused: its weights are positive. That is no promise of accuracy, for positive weights can be wrong as well; the library warns where scores spread so far that in a tenth of the rows or more any polynomial of this degree is off by half. Where the scores are small all row sums are certified, also for 40,960 tokens:

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
#
# ## 15.9 When it is hopeless
#
# The Poisson rule turns the spread $\sigma$ of the scores into a degree, $d$ and the degree make a rank, and the rank says from which length on low rank can pay. All four numbers are known before a single pair is formed.
#
# **Predict** (guess). $\sigma = 0.5$ and an error of 1 percent: which degree? And what is the rank at $d = 64$?
# <!-- 1 as input -->

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
# <details><summary>Degrees, and what they cost</summary>
#
# At $d = 8$ to 16 and $\sigma \le 0.5$ the ranks are a few hundred to a few thousand, and a long text pays for them. At $d = 64$ degree 2 has 2,145 features; degree 4 has 814,385, nearly as many as a text of a million tokens; degree 6, for $\sigma = 1$, has 131,115,985, as many as 125 such texts together. The rank grows like $d^g/g!$. (Where a few directions of the keys carry most of the scores, one could keep the monomials of those alone. The library does not.)
#
# </details>
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
# Three heads find no degree up to 12, four would need billions of features. The kindest one, head 11 of layer 0, has $\sigma = 0.55$ and needs degree 8. The Poisson rule says 4 for this $\sigma$, and 5 averaged over the rows, each with a $\sigma_i$ of its own; but its scores are not normal: one of its 221,841 is 5.3, the next 3.2, and that one row carries the error. At $d = 32$ that is 76,904,685 features, and with $M = 65\,536$ low rank would move fewer words from $N = 39\,639\,822$ on. This text has 471 tokens, about as many as the model can take. So for this model exact attention is the better choice at every length it can take; at $d = 64$ degree 8 would cost 11,969,016,345 features.
#
# There are three ways out, and none is free. Fewer dimensions a head, 8 or 12 instead of 64. Scores that are kept small by construction: normalise queries and keys and fix the temperature, so that $|s| \le R$ whatever the model learns, and train it like that (lesson 17). Or exactness where it counts: an exact part for near keys or for the largest scores, and the polynomial for the many small ones (lesson 16 does this for the causal mask).
# <!-- head = real_head(0, 11) -->
# <!-- advice = {pair: lowrank.advise(real_head(*pair).Q, real_head(*pair).K, error=0.01) for pair in real_heads()} -->
# <!-- kind = advice[0, 11] -->
# <!-- "Three heads find no degree up to 12, four would need billions of features" if [sum(one.degree is None for one in advice.values()), sum((one.rank or 0) > 10**9 for one in advice.values())] == [3, 4] -->
# <!-- "The kindest one, head 11 of layer 0" if min(advice, key=lambda pair: advice[pair].logit_std) == (0, 11) -->
# <!-- 0.55, 76,904,685 = kind.logit_std, kind.rank -->
# <!-- rule = lambda errors: next(g for g, error in enumerate(errors, 1) if error <= 0.01) -->
# <!-- "says 4 for this $\sigma$, and 5 averaged over the rows" if rule(lowrank.advice.predicted_error(np.array([kind.logit_std**2]), g) for g in range(1, 13)) == 4 and rule(kind.predicted) == 5 -->
# <!-- row_of_largest = (head.Q @ (head.K - head.K.mean(axis=0)).T).max(axis=1).argmax() -->
# <!-- "that one row carries the error" if kind.degree == 8 and lowrank.advise(np.delete(head.Q, row_of_largest, axis=0), head.K, error=0.01).degree == 5 -->
# <!-- "exact attention is the better choice at every length it can take" if all(one.exact_is_better for one in advice.values()) -->
# <!-- 65\,536 = 2**16 -->
# <!-- 471, 221,841 = len(head.Q), len(head.Q) * len(head.K) -->
# <!-- 5.3, 3.2 = np.sort((head.Q / 32**0.5 @ (head.K - head.K.mean(axis=0)).T).ravel())[[-1, -2]] -->
# <!-- 39\,639\,822 = schedules.break_even_length(32, 8, 65_536).N -->
#
# ## 15.10 What "almost linear" says
#
# The idea is that of Alman and Song, who proved two statements about it (2302.13214). Let $d$ grow like $\log N$ and ask for an error of $1/N$ to some power. If the entries are bounded by $B = o(\sqrt{\log N})$, attention can be approximated in time $N^{1 + o(1)}$: then the degree grows more slowly than $\log N$, and the rank more slowly than any power of $N$. If $B$ is of the order $\sqrt{\log N}$, with a large enough constant, then no algorithm at all does it in time $N^{2 - \delta}$ with a fixed $\delta > 0$, unless a common conjecture on satisfiability (SETH) is false. So bounded entries are not a weakness of this method. They are where the border runs, for $d$ that grows like $\log N$. (Their scores are $q \cdot k/d$, so $|s| \le B^2$. The gradient followed in 2402.04497, and for many layers in 2408.13233: lesson 16.) For a *fixed* $d$ there is no such border: Gupta, Huang, Saha, Xu and Ye, 2505.14840, announce time $\tilde O(N^{2-1/d})$ times a power of $\log B$, for entries of any size $B$.
#
# How fast does the $o(1)$ go to zero? Let $d = \log_2 N$ and $B = \tfrac12$, so that with their scale $R = \tfrac14$, and take the smallest Taylor degree whose error (15.7), which is at most $R^{g+1}e^R/(g + 1)!$, is below $1/N$. Then write the rank as a power of $N$.
#
# **Predict** (guess). $N = 2^{20}$, about a million tokens. $r = N^x$; what is $x$?

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
# <details><summary>The exponent at a million tokens</summary>
#
# 0.78: the work is $Nr = N^{1.78}$, times $d$. The exponent does go down, to 0.58 at $N = 2^{1000}$, and no text has $2^{1000}$ tokens.
#
# </details>
# <!-- 1.78 = 1 + 0.78 -->
#
# A theorem about growth says where the border runs. For a given problem count the features. With $d$ and $g$ *fixed*, as in all other sections of this lesson, the time is linear in $N$ outright, and the question is only how large the constant $r$ is.
#
# ## 15.11 Try it
#
# Everything in one place: degree, polynomial, $d$, $N$, $M$ and the spread of the scores; below, the histogram of scores, with the error of the polynomial over the same axis. Compare the certified error of the weights, 470 percent at the beginning, with the measured one, 0.2 percent: the first guards against a score that hardly ever occurs. Then try to find a setting with $d = 64$ in which low rank is worth it. (Without a running kernel you see a still picture.)
# <!-- shown = course.explore.low_rank_explorer()._facts -->
# <!-- 470, 0.2 = round(100 * shown.certified, -1), 100 * shown.measured -->

# %%
explore.low_rank_explorer()

# %% [markdown]
# ## 15.12 A schedule to repair
#
# Section 15.5 cut the state into columns. Here somebody has written that another way: the column of row sums stays in fast memory for the whole run, and the columns of $V$ take turns, $B_d$ of them at a time. In each of the $\lceil d/B_d \rceil$ turns keys and queries pass by once. So $Q$ and $K$ should be read once a turn, $V$ and $O$ should move once in all, and the footprint should be $r(B_d + 1)$ words of state and $d + B_d + 1$ for a query, its part of $O$ and its row sum: at $N = 24$, $d = 6$, $g = 2$ and $B_d = 2$, 93 words. Its values are right. Its ledger and its timeline are not:
# <!-- 93 = math.comb(6 + 2, 2) * (2 + 1) + 6 + 2 + 1 -->

# %%
Q, K, V = np.random.default_rng(20).uniform(-1, 1, (3, 24, 6))
problem = {"Q": Q, "K": K, "V": V, "Bd": 2, **features_of(6, taylor(2))}
wrong = run(columns_gone_wrong, M=200, **problem)
print(f"largest error {abs(wrong.O - exact.attention(Q, K, V)).max():.4f}")
print(wrong.ledger)
explore.memory_timeline(wrong.ledger, 93, title="By columns, with two faults")

# %% [markdown]
# **Predict** (compute). Which array is read more than it should be, and by how many words? Give the words too many for each.

# %% tags=["predict"]
predict("15.12", Q=0, K=0, V=288)  #> predict("15.12", Q=..., K=..., V=...)

# %%
should = {"Q": 3 * 24 * 6, "K": 3 * 24 * 6, "V": 24 * 6}
measured("15.12", **{name: wrong.ledger.reads[name] - words for name, words in should.items()})

# %% [markdown]
# <details><summary>What is wrong</summary>
#
# $V$ comes three times, 288 words too many: each turn loads all six columns of a row and uses two. These rows are also what stands above the line in every pass over the keys. The two spikes are the other fault: between two turns the state of the one that is over and that of the next are there together, 140 words with the row sums.
#
# </details>
# <!-- 140 = math.comb(6 + 2, 2) * (1 + 2 + 2) -->
#
# <!-- exercise 15E --> Optional. Repair it. Below the line that stops it is the schedule as it was run, with both faults. The check holds words and footprint to the word: fast memory has $r(B_d + 1) + d + B_d + 1$ words. If you are stuck after five minutes, run `hint("15E")` in a cell of your own.

# %% [raw] name="about-15E"
# title = "A schedule to repair"
# difficulty = 2
# importance = 2
# minutes = 10
# hints = [
#   "There are two faults, one for words and one for the footprint. Which array is read more often than necessary in an iteration, and which tile exceeds the limit between two iterations?",
#   "An iteration needs Bd columns of V. What does it load? And when its columns of O are finished, which line still needs its columns of the state?",
#   "load takes a second range, for columns; the loaded row is then as wide as the state. A tile whose name is assigned again exists until the new one has been created: free it before that.",
# ]

# %% tags=["exercise"] name="ex-15E"
def my_columns(m, Q, K, V, *, phi, psi, Bd):
    """p(QKᵀ/√d) V over its row sums, for p with p(q·k) = φ(q)·ψ(k): Bd columns of V a turn.

    m: the machine. Q, K, V: slow arrays (N, d). phi, psi: Features of a query and of a key.
    Returns the slow array O (N, d).
    """
    ### BEGIN SOLUTION repair what stands below, and take the next line away
    ### END SOLUTION
    N, d = Q.shape
    O = m.new("O", (N, d))
    with m.zeros(len(psi), 1) as sums:
        for c in m.blocks(d, Bd):
            state = m.zeros(len(psi), c)  # (r, Bd)
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, m.load(V, j, c) as v:  #> with m.load(K, j) as k, m.load(V, j) as v:
                    if c.first:
                        psi.add_outer(sums, k)
                    psi.add_outer(state, k, v)  #> psi.add_outer(state, k, v[:, c.start : c.stop])
            for i in m.blocks(N, 1):
                with m.load(Q, i) as q, m.zeros(1, c) as o, m.zeros(1, 1) as l:
                    q *= d**-0.5
                    phi.add_matmul(o, q, state)
                    phi.add_matmul(l, q, sums)
                    o /= l
                    m.store(o, O, i, c)
            state.free()  #>
    return O

# %% tags=["check"] name="check-15E"
check("15E", my_columns)

# %%
mine = attempt(run, my_columns, M=200, **problem)
print(f"{mine.ledger.total:,} words, at most {mine.ledger.peak:,} in fast memory")

# %% [markdown]
# With the reference solution 1,152 words and 93, where there were 1,440 and 140.
#
# ## Misconceptions
#
# - **"A higher degree is safer."** Degree 3 can have a row sum of zero where degree 2 cannot (section 15.8). A certified row sum is positive; it says nothing about accuracy.
# - **"The error grows with $N$."** Neither the certificate (15.6) nor the Poisson rule (15.10) contains $N$. What grows with $N$ is the gain.
# - **"The best polynomial is the one with the smallest certified error."** A certificate weighs the ends of the interval like its middle, where most scores of a row lie (section 15.6).
# - **"Almost linear is nearly linear."** At a million tokens the exponent says otherwise (section 15.10).
#
# ## Take-away
#
# - Each row's own polynomial costs no rank and is best for normal scores up to $\sigma^2 = 0.8$; its error is known beforehand, $\sqrt{\Pr[\mathrm{Poisson}(\sigma^2) > g]}$.
# - Minimax needs 0.4 to 0.7 of Taylor's degree for the same certificate.
# <!-- 0.4, 0.7 = min(shares.values()), max(shares.values()) -->
# - A row sum is certified by the polynomial, by the row's length, or by its size; else the result is refused.
# - Degree from $\sigma$, rank from degree and $d$, and then the length decides. Small $d$ and small scores, yes; the trained heads here, no.
#
# ## References
#
# - J. Alman, Z. Song: *Fast attention requires bounded entries*, 2023, [arXiv 2302.13214](https://arxiv.org/abs/2302.13214). The approximation, and the border.
# - J. Alman, Z. Song: *The fine-grained complexity of gradient computation for training large language models*, 2024, [arXiv 2402.04497](https://arxiv.org/abs/2402.04497).
# - Y. Liang, Z. Sha, Z. Shi, Z. Song, Y. Zhou: *Multi-layer transformers gradient can be approximated in almost linear time*, 2024, [arXiv 2408.13233](https://arxiv.org/abs/2408.13233).
# - S. Gupta, B. Huang, B. Saha, Y. Xu, C. Ye: *Subquadratic algorithms and hardness for attention with any temperature*, 2025, [arXiv 2505.14840](https://arxiv.org/abs/2505.14840). The abstract.
#
# **What comes next.** <!-- next --> Lesson 17 uses the Poisson rule and the certificates again, when it trains a model with small scores.
