# %% [markdown]
# # 03 Online softmax
#
# Attention as it is written down needs all scores of a row before it can give the first weight, and so it keeps $N^2$ of them somewhere. This lesson takes that obstacle apart. The maximum and the sum of a row can be kept up to date while its scores go past, and so can the weighted sum of the values. Nothing is approximated; what it costs is one multiplication when the maximum rises, and we measure how often that happens on heads of a real model and what it does to rounding.
#
# **What you will learn**
#
# - to carry maximum, sum and output of a row through pieces that are seen once, with one rescaling factor;
# - to merge two partial results so that neither order nor grouping matters;
# - which inputs break the formulas (scores of 10,000, masked pieces, 16-bit sums), and what protects them;
# - to count it: scores read three times, twice, once.
#
# **Prerequisites**: lesson 01 (attention, softmax with its maximum subtracted) and lesson 02 (the machine, loads and stores, the ledger). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from functools import reduce

import numpy as np

from iocourse import exact, run
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head
from iocourse.explore import bars, merge_tree, running_max_rescaling

# %% [markdown]
# ## The idea in one picture
#
# This lesson is an exchange of currency. A sum is counted in a *unit*, the largest number so far. When a larger one comes, what has been counted is exchanged into the new unit, and nothing is counted again. Here 1 and 1 arrive, then 4 and 2, then 1.

# %%
running_max_rescaling([[1, 1], [4, 2], [1]])

# %% [markdown]
# A bar is the sum so far, 2, then 8, then 9; the ruler below it is the unit. When 4 arrives, the 2 old units are worth half a new one: the blue bar is as long as before, and only the ruler has changed. In section 3.2 the numbers are $e^{s}$ for the scores of a row.
#
# ## 3.1 What softmax waits for
#
# We want to know how often a score has to come to fast memory before its weight can leave it.
#
# The weight of score $s_j$ in its row is
#
# $$ p_j = \frac{e^{\,s_j-m}}{\sum_k e^{\,s_k-m}}, \qquad m = \max_k s_k \tag{3.1} $$
#
# Subtracting $m$ changes no weight, because $e^{-m}$ cancels, and it keeps every exponent at or below 0. Read as a recipe, the formula is three loops over the row: one finds $m$, one adds up the sum, one forms the weights. Where the row does not fit in fast memory, each loop loads it again.
#
# The next cell follows the recipe for $N = 128$ rows of 128 scores, 16 at a time, in a fast memory of $M = 80$ words, too small for a row.
#
# **Predict** (compute). $S$ has $128 \cdot 128 = 16{,}384$ words, and so has $P$. How many words move altogether?

# %% tags=["predict"]
predict("3.1", words=49152)  #> predict("3.1", words=...)


# %%
def three_loops(m, S, *, Bc):
    """m: the machine. A row's maximum and sum are tiles of one word, `top` and `total`."""
    N, n = S.shape
    P = m.new("P", (N, n))
    for i in m.blocks(N, 1):
        with m.full(1, 1, -np.inf) as top, m.zeros(1, 1) as total:
            for j in m.blocks(n, Bc):  # the maximum
                with m.load(S, i, j) as s:
                    np.maximum(top, s.max(axis=1, keepdims=True), out=top)
            for j in m.blocks(n, Bc):  # the sum
                with m.load(S, i, j) as s, np.exp(s - top) as e:
                    total += e.sum(axis=1, keepdims=True)
            for j in m.blocks(n, Bc):  # the weights
                with m.load(S, i, j) as s, np.exp(s - top) as e, e / total as p:
                    m.store(p, P, i, j)
    return P


# %%
S = 3 * np.random.default_rng(3).standard_normal((128, 128))
three = run(three_loops, M=80, S=S, Bc=16)
print(three.ledger)
measured("3.1", words=three.ledger.total)

# %% [markdown]
# <details><summary>How many words moved, and in which direction</summary>
#
# $S$ was read 49,152 words, three times its size, and $P$ was written once: together $W = 4N^2 = 65{,}536$. (Whoever says 49,152 has counted the reads alone.)
#
# </details>
#
# The last loop is there for a reason: no weight $p_j$ can be given away before the last score has been seen. But attention does not want the weights. It wants $o = \sum_j p_j v_j$, a sum over the row, and a sum can be kept up to date while the row goes past. Section 3.2 does that for the sum below the fraction, section 3.4 for $o$.
#
# ## 3.2 A running maximum and a running sum
#
# We want $m$ and $\ell = \sum_j e^{s_j - m}$ of a row in one loop over its pieces, without ever going back to one.
#
# The sum is counted in a *unit*: $e^{m}$, the weight of the largest score. After a few pieces we know the largest score so far, and the sum in that unit. A larger score makes the unit larger, and what has been counted is then worth less of it, by the factor $e^{m-m'}$.
#
# $$ m' = \max\bigl(m, \max_j s_j\bigr), \qquad \ell' = e^{\,m-m'}\,\ell + \sum_j e^{\,s_j-m'} \tag{3.2} $$
#
# Before the first piece, $m = -\infty$ and $\ell = 0$.
#
# Plain numbers show it best. Take scores that are logarithms, with $e^{s} = 2, 1$ in the first piece $8, 4, 4$ in the second, $1$ in the third. After the first piece $e^m = 2$ and $\ell = 1 + \tfrac12 = 1.5$.
#
# **Predict** (compute). By hand, with (3.2): what is the factor when the second piece arrives, and what is $\ell$ after it?

# %% tags=["predict"]
predict("3.2", factor=0.25, l=2.375)  #> predict("3.2", factor=..., l=...)

# %% [markdown]
# The cell adds up each beginning of the row from scratch. That is the work (3.2) saves us; here it checks our arithmetic.

# %%
row = np.log([2, 1, 8, 4, 4, 1])
for n in (2, 5, 6):
    m = row[:n].max()
    unit, l = np.exp(m), np.exp(row[:n] - m).sum()
    print(f"after {n} scores: unit e^m = {unit:.0f}, l = {l:.3f}, sum of e^s = {unit * l:.0f}")
before, after = row[:2].max(), row[:5].max()
factor, l = np.exp(before - after), np.exp(row[:5] - after).sum()
measured("3.2", factor=round(float(factor), 9), l=round(float(l), 9))

# %% [markdown]
# <details><summary>The factor and the count</summary>
#
# The unit grew from 2 to 8, a factor of 0.25: the old 1.5 became 0.375, and the second piece added $1 + \tfrac12 + \tfrac12$. The sixth score brought no larger one, so its factor is 1 and it adds $\tfrac18$. In the end 2.5 units of 8 are 20, the sum of all $e^s$.
#
# </details>
#
# <!-- exercise 3A --> Write the update as a loop. `pieces` is an iterator: it has no length and no index, a piece may hold any number of scores from 1 up, and a second loop over it finds nothing. The check also hands over a row of 32,001 scores and watches how much your function keeps: a list of all pieces is too much. If you are stuck after five minutes, run `hint("3A")` in a cell of your own.
# <!-- 0.375 = 1.5 * 2 / 8 -->
# <!-- 32,001 = max(case.inputs["row"].size for case in course.exercise.find("3A").cases(np.random.default_rng(0))) -->


# %% [raw] name="about-3A"
# title = "Maximum and sum in one pass"
# difficulty = 2
# importance = 5
# minutes = 8
# hints = [
#   "Which two numbers summarise the scores of all earlier pieces? Carry them through the loop.",
#   "Before the first piece there are no scores. What is the maximum of no scores, and what is their sum?",
#   "For each piece: first the new maximum of the old one and the piece; then rescale the old sum to it; then add the terms of the piece; then replace the old maximum.",
# ]

# %% tags=["exercise"] name="ex-3A"
def my_running(pieces):
    """Maximum and sum of one row of scores.

    pieces: iterator of arrays of shape (b,), where b may differ; each comes by once.
    Returns (m, l): the largest score, and the sum of exp(s - m) over all the scores.
    """
    ### BEGIN SOLUTION start with no score seen, then (3.2) for each piece
    m, l = -np.inf, 0.0
    for s in pieces:
        m_new = max(m, s.max())
        l = np.exp(m - m_new) * l + np.exp(s - m_new).sum()
        m = m_new
    return m, l
    ### END SOLUTION


# %% tags=["check"]
check("3A", my_running)

# %% [markdown]
# ## 3.3 How often does the maximum change?
#
# The factor $e^{m-m'}$ differs from 1 only when a piece brings a new maximum. We want to know how often that is.
#
# Suppose the scores of a row come in random order, no two equal. The largest of those seen so far is then equally likely to be any of them, so a piece of $b_k$ scores holds it with probability $b_k/(b_1 + \dots + b_k)$, and the expected number of pieces that bring a new maximum, the first included, is
#
# $$ \sum_k \frac{b_k}{b_1 + \dots + b_k}, \qquad\text{for single scores}\quad H_n = 1 + \frac12 + \frac13 + \dots + \frac1n \approx \log n + 0.577 \tag{3.3} $$
#
# the *harmonic number*. For $n = 471$ single scores it is 6.73, not 471.
#
# The rows of a real head are in no random order, because many heads prefer certain places in the text. We take three heads of the model all-MiniLM-L6-v2 on a text of 471 tokens, named (layer, head). Nothing is masked: each query has scores with all 471 keys. Head (0, 2) looks at the token before, and its scores reach 83; (0, 11) looks everywhere; (4, 5) rests on the first token.
#
# **Predict** (guess). For each of the three: how many new maxima does an average row have, counted score by score?
# <!-- 0.577, 6.73, 83 = np.euler_gamma, sum(1 / k for k in range(1, 471 + 1)), real_head(0, 2).stats["logit_max"] -->

# %% tags=["predict"]
predict("3.3", token_before=5, everywhere=6.73, first_token=1)  #> predict("3.3", token_before=..., everywhere=..., first_token=...)


# %%
def new_maxima(S, b):
    """Pieces of b scores that raise their row's maximum, the first included: (N, n) -> (N,)."""
    tops = np.maximum.reduceat(S, np.arange(0, S.shape[1], b), axis=1)  # (N, pieces)
    return 1 + (np.diff(np.maximum.accumulate(tops, axis=1), axis=1) > 0).sum(axis=1)


def expected_new_maxima(n, b):
    """Formula (3.3) for n scores in random order, in pieces of b."""
    sizes = np.minimum(b, n - np.arange(0, n, b))
    return (sizes / np.cumsum(sizes)).sum()


# %%
places = {"token_before": (0, 2), "everywhere": (0, 11), "first_token": (4, 5)}
heads = {name: real_head(*place) for name, place in places.items()}
scores = {name: exact.scores(h.Q.astype(float), h.K.astype(float)) for name, h in heads.items()}
order = np.random.default_rng(3)
found = {}
print("                  scores            new maxima a row           factor is 1,")
print("              from     to    in order  shuffled  (3.3)    in pieces of 32")
for name, s in scores.items():
    found[name] = new_maxima(s, 1).mean()
    shuffled = np.mean([new_maxima(order.permuted(s, axis=1), 1) for _ in range(8)])
    trivial = 1 - (new_maxima(s, 32).mean() - 1) / 14
    print(f"{name:<12}{s.min():>6.1f}{s.max():>7.1f}{found[name]:>12.2f}{shuffled:>10.2f}"
          f"{expected_new_maxima(471, 1):>7.2f}{trivial:>15.0%}")
measured("3.3", **{name: float(count) for name, count in found.items()})

# %%
labels = ["(0, 2) the token before", "(0, 11) everywhere", "(4, 5) the first token"]
bars(
    {label: round(float(mean), 2) for label, mean in zip(labels, found.values(), strict=True)},
    dict.fromkeys(labels, round(float(expected_new_maxima(471, 1)), 2)),
    title="New maxima in an average row of 471 scores",
    unit="new maxima",
    mark="by (3.3)",
)

# %% [markdown]
# <details><summary>Which head climbs longest, and why</summary>
#
# The black marks in the picture are (3.3). Shuffled, eight times over, all three heads come close to 6.73. In their own order they differ. The head that looks at the token before has 9.21 new maxima a row: in 80 % of its rows the largest score stands at that token, so new maxima go on until there, and neighbouring scores are alike, so a climb passes several of them. The head that rests on the first token has 1.00, since nothing after the first score is larger. Cut into 15 pieces of 32, as a kernel would do it, 75 % of the 14 rescalings in the first head multiply by 1, 81 % in the second, all in the third.
#
# </details>
#
# Your own function on one row of the first two heads:
# <!-- heads = [real_head(0, 2), real_head(0, 11)] -->
# <!-- best = exact.scores(heads[0].Q, heads[0].K).argmax(axis=1) -->
# <!-- 80 = 10**2 * (best == np.arange(471) - 1).mean() -->
# <!-- 15 = math.ceil(471 / 32) -->


# %%
def pieces_of(b, *arrays):
    """The rows of each array in pieces of b, one after the other; several arrays as tuples."""
    for j in range(0, len(arrays[0]), b):
        parts = tuple(array[j : j + b] for array in arrays)
        yield parts if len(parts) > 1 else parts[0]


def describe(running):
    for name in ("token_before", "everywhere"):
        m, l = running(pieces_of(32, scores[name][200]))
        print(f"{name}: m = {m:.2f}, l = {l:.2f}")


attempt(describe, my_running)

# %% [markdown]
# In units of its largest score, the whole row of the sharp head weighs 1: one key gets everything. The row of the broad head weighs 110.69. For finite scores $\ell$ always lies between 1 and $n$: it counts, softly, how many scores are near the largest.
#
# ## 3.4 The output comes along
#
# We want the output of a query, $o = \sum_j p_j v_j$, without a second loop for the weights.
#
# Numerator and denominator of (3.1) are sums in the same unit. So we keep a third running quantity, the sum of the values with their weights, and change its unit whenever $\ell$'s is changed:
#
# $$ o' = e^{\,m-m'}\,o + \sum_j e^{\,s_j-m'}\, v_j, \qquad\text{and after the last piece the output is}\quad o/\ell \tag{3.4} $$
#
# The division waits for the end. While the row goes past, $o$ is not a mean of anything; it becomes one when it is divided by the sum that was counted in the same unit.
#
# Take two scores with $e^{s} = 1$ and $e^s = 3$, and values 8 and 4, one score at a time.
#
# **Predict** (compute). What is the output? And what comes out if $\ell$ is rescaled, but rescaling $o$ is forgotten?

# %% tags=["predict"]
predict("3.4", output=5, forgotten=9)  #> predict("3.4", output=..., forgotten=...)

# %%
factor = np.exp(np.log(1) - np.log(3))  # the unit grows from 1 to 3
l = factor * 1 + 1
o = factor * 8 + 4
measured("3.4", output=round(float(o / l), 9), forgotten=round(float((8 + 4) / l), 9))

# %% [markdown]
# <details><summary>Both results</summary>
#
# The output is 5: one quarter of the weight on 8, three quarters on 4. With the old $o$ left in its old unit it is 9, larger than both values.
#
# </details>
#
# A weighted mean lies between the values it is made of, so a result outside their range is a sign that two sums were counted in different units.
#
# ## 3.5 Inputs that break formulas
#
# We want (3.2) and (3.4) to hold for every row that can occur: scores of ±10,000 happen when a model goes wrong in training, and masks put $-\infty$ where a query must not look.
#
# We take four rows of eight scores: all around +10,000; all around -10,000; all equal to 3; all $-\infty$. And two ways to add them up: $\sum_j e^{s_j}$, and $\sum_j e^{s_j - m}$ with the maximum subtracted.
#
# **Predict** (guess). For how many of the four is the sum a positive, finite number: plain, and with the maximum subtracted?

# %% tags=["predict"]
predict("3.5", plain=1, subtracted=4)  #> predict("3.5", plain=..., subtracted=...)

# %%
noise = np.random.default_rng(5).standard_normal(8)
rows = {"around +10,000": 10_000 + noise, "around -10,000": noise - 10_000,
        "all equal to 3": np.full(8, 3.0), "masked throughout": np.full(8, -np.inf)}
good = {"plain": 0, "subtracted": 0}
for name, s in rows.items():
    with np.errstate(over="ignore", invalid="ignore"):
        plain, subtracted = np.exp(s).sum(), np.exp(s - s.max()).sum()
    good["plain"] += int(0 < plain < np.inf)
    good["subtracted"] += int(0 < subtracted < np.inf)
    print(f"{name:<18} plain {plain:>6.1f}   maximum subtracted {subtracted:>5.2f}")
measured("3.5", **good)

# %% [markdown]
# <details><summary>Which sums survive</summary>
#
# Plain sums overflow to `inf` or vanish to 0 for scores that are large in either direction; only one of the four is usable. Subtracting the maximum saves two more. The last row it does not save: there $m = -\infty$, and $-\infty - (-\infty)$ is no number (`nan`).
#
# </details>
#
# A row that is masked throughout is rare, a *piece* that is masked throughout is not: under a causal mask every piece to the right of the diagonal is. From left to right a query never meets one first. It does under a sliding window, which hides the oldest keys, and wherever pieces come in another order: then $m' = -\infty$ at that moment and the `nan` stays in $\ell$ and $o$ for ever. The remedy is to subtract something finite while nothing has been seen:
#
# $$ \hat m = \begin{cases} m' & \text{if } m' > -\infty \\ 0 & \text{otherwise} \end{cases} \qquad \text{factor } e^{\,m-\hat m}, \quad \text{weights } e^{\,s_j-\hat m} \tag{3.5} $$
#
# With $\hat m = 0$ a masked score weighs $e^{-\infty} = 0$, as it should. What we carry to the next piece is still $m'$, not $\hat m$: a maximum of 0 that no score has would let scores around -10,000 vanish. If all of the row is masked, $\ell$ stays 0, and dividing by it would make `nan` once more; this course gives zeros then, the empty sum.
#
# <!-- exercise 3B --> Each piece is now a pair: `b` scores and their `b` values. Carry all three of (3.2) and (3.4) along, with the remedy of (3.5), and return the output of the query, for finite scores, large ones and masked ones. The pieces come by once, as in exercise 3A. If you are stuck after eight minutes, run `hint("3B")` in a cell of your own.


# %% [raw] name="about-3B"
# title = "One query's output in one pass"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "You have m and l from exercise 3A. What else must be rescaled when the maximum rises?",
#   "o is a sum like l, with a value as a factor of each term. Divide by l only after the last piece.",
#   "While the new maximum is still -inf, subtract 0 instead: a masked score then has the weight e^(-inf) = 0. After the last piece, l = 0 means that all scores were masked.",
# ]

# %% tags=["exercise"] name="ex-3B"
def my_online_attention(pieces):
    """The softmax-weighted mean of the values of one row, each piece seen once.

    pieces: iterator of pairs (s, v), scores (b,) and values (b, d), where b may differ.
    Scores may be -inf (masked). Returns the output (d,), zeros where every score is masked.
    """
    ### BEGIN SOLUTION m, l and o change their unit together; divide once
    m, l, o = -np.inf, 0.0, 0.0
    for s, v in pieces:
        m_new = max(m, s.max())
        shift = m_new if m_new > -np.inf else 0.0
        factor, p = np.exp(m - shift), np.exp(s - shift)  # (), (b,)
        l = factor * l + p.sum()
        o = factor * o + p @ v  # (d,)
        m = m_new
    return o / l if l > 0 else o
    ### END SOLUTION


# %% tags=["check"]
check("3B", my_online_attention)

# %% [markdown]
# All 471 queries of two real heads, one after the other, against exact attention in float64:


# %%
def all_rows(online, S, V, dtype):
    S, V = S.astype(dtype), V.astype(dtype)
    return np.array([online(pieces_of(32, s, V)) for s in S])  # (N, d)


def agrees(online):
    for name in ("token_before", "everywhere"):
        h = heads[name]
        O = all_rows(online, scores[name], h.V, np.float64)
        same = exact.max_abs_error(O, exact.attention(h.Q, h.K, h.V)) < 1e-12
        print(f"{name}: equal to exact attention up to 1e-12: {same}")


attempt(agrees, my_online_attention)

# %% [markdown]
# Both are equal up to rounding: online softmax computes the same thing in another order.
#
# ## 3.6 Merging two parts of a row
#
# We want to cut a row in two, have each part worked through by somebody else, and put the results together.
#
# A part that has been worked through is described by its triple $(m, \ell, o)$, with $o$ not yet divided. Two parts are two sums in two units. We take the larger unit for both:
#
# $$ m = \max(m_a, m_b), \qquad \ell = e^{\,m_a-m}\,\ell_a + e^{\,m_b-m}\,\ell_b, \qquad o = e^{\,m_a-m}\,o_a + e^{\,m_b-m}\,o_b \tag{3.6} $$
#
# However a row is cut and in whatever order its parts are merged, every score ends up with weight $e^{s-m}$ for the same $m$, the maximum of all. So merging is *commutative* (a with b is b with a) and *associative* ((a with b) with c is a with (b with c)), and the part that has seen nothing, $(-\infty, 0, 0)$, is its *identity*: it changes nothing. Any tree of merges gives the row's result. Formulas (3.2) and (3.4) are the special case in which the second part is a single piece.
#
# Part a has $(\log 2,\; 3,\; 30)$: its own output would be 10. Part b has $(\log 12,\; 1,\; 4)$: its own output would be 4.
#
# **Predict** (compute). What is the output of the whole row?

# %% tags=["predict"]
predict("3.6", output=7)  #> predict("3.6", output=...)

# %%
weight_a, weight_b = 2 * 3, 12 * 1  # e^m times l: the sum of e^s over each part
measured("3.6", output=(weight_a * 10 + weight_b * 4) / (weight_a + weight_b))

# %% [markdown]
# <details><summary>The output, and whose weight it is</summary>
#
# It is 6, not the average 7: part b holds two thirds of the weight, 12 of 18. In the unit of b, part a counts $\tfrac16 \cdot 3 = 0.5$ beside b's 1.
#
# </details>
#
# Here are four parts and their merges, from the top down, with the unit $e^{m}$ and the count $\ell$ of each. On a way with a thick line the unit changes.
# <!-- 0.5 = 1 / 6 * 3 -->

# %%
merge_tree([(2, 1.5), (8, 2), (1, 2), (4, 1.5)])

# %% [markdown]
# In each merge one side alone is exchanged, the one with the smaller unit. The last box holds 3.375 units of 8, which are 27, the sum of all $e^s$ of the four parts.
#
# <!-- exercise 3C --> Write (3.6), with the remedy of (3.5) where two empty parts meet. The check merges in both orders and both groupings, merges with the identity on either side and with itself, merges parts whose maxima are 10,000 apart, and looks whether the parts it handed in are still what they were. If you are stuck after six minutes, run `hint("3C")` in a cell of your own.
# <!-- 27 = 2 * 1.5 + 8 * 2 + 1 * 2 + 4 * 1.5 -->


# %% [raw] name="about-3C"
# title = "Merging two parts of a row"
# difficulty = 2
# importance = 5
# minutes = 10
# hints = [
#   "Each part is relative to its own maximum. Which maximum can both be rescaled to without overflow?",
#   "Use one factor per part, each at most 1; l and o of a part get the same factor.",
#   "Do not divide by l here. For two empty parts the common maximum is -inf: subtract 0 instead, so that both factors are 0. Create new arrays; *= would modify a part that was passed in.",
# ]

# %% tags=["exercise"] name="ex-3C"
def my_merge(a, b):
    """Two parts of one row as one.

    a, b: triples (m, l, o) of a number, a number and an array (d,), o not divided by l.
    (-inf, 0.0, zeros) is the empty part. Returns the triple of both; a and b stay as they are.
    """
    ### BEGIN SOLUTION one unit for both; the shift of (3.5) where both are empty
    m = max(a[0], b[0])
    shift = m if m > -np.inf else 0.0
    factor_a, factor_b = np.exp(a[0] - shift), np.exp(b[0] - shift)
    return m, factor_a * a[1] + factor_b * b[1], factor_a * a[2] + factor_b * b[2]
    ### END SOLUTION


# %% tags=["check"]
check("3C", my_merge)

# %% [markdown]
# A row of head (0, 2) in 15 parts, merged from the left, as a tree, and in a shuffled order:


# %%
def part(s, v):
    p = np.exp(s - s.max())
    return s.max(), p.sum(), p @ v


def as_tree(merge, parts):
    while len(parts) > 1:
        parts = [reduce(merge, parts[k : k + 2]) for k in range(0, len(parts), 2)]
    return parts[0]


def three_ways(merge):
    row, V = scores["token_before"][200], heads["token_before"].V.astype(float)
    parts = [part(s, v) for s, v in pieces_of(32, row, V)]
    shuffled = [parts[k] for k in np.random.default_rng(6).permutation(len(parts))]
    ways = reduce(merge, parts), as_tree(merge, parts), reduce(merge, shuffled)
    outputs = [o / l for m, l, o in ways]
    equal = float(np.ptp(outputs, axis=0).max()) < 1e-12
    print(f"left to right, as a tree, shuffled: equal up to 1e-12: {equal}")


attempt(three_ways, my_merge)

# %% [markdown]
# The three outputs agree up to rounding. Later in the course a single query is shared among many processors in this way (split-K decoding): each takes a stretch of the keys, and a merge at the end is all they need to say to each other.
#
# ## 3.7 What one pass costs in accuracy
#
# We want to know whether rescaling loses digits. Kernels compute in float32, about 7 decimal digits, or hold some things in float16, about 3.
#
# We count right digits as $\lfloor -\log_{10}(\text{root mean square error}) \rfloor$ against float64 (no entry of these outputs is larger than 1.8): once with the three loops of (3.1), once with your function. NumPy works in the precision of the pieces as long as $m$, $\ell$ and $o$ start as plain numbers; from `np.zeros(d)` on it would work in float64.
#
# **Predict** (guess). On the broad head (0, 11), how many digits fewer does one pass keep than three loops: in float32, and in float16?
# <!-- 1.8 = max(abs(exact.attention(head.Q, head.K, head.V)).max() for head in heads) -->

# %% tags=["predict"]
predict("3.7", float32=1, float16=1)  #> predict("3.7", float32=..., float16=...)


# %%
def digits(got, want):
    return int(np.floor(-np.log10(np.sqrt(np.mean((got - want) ** 2)))))


def in_three_loops(S, V, dtype):
    S, V = S.astype(dtype), V.astype(dtype)
    e = np.exp(S - S.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ V


def right_digits(online, name, dtype):
    S, V = scores[name], heads[name].V.astype(float)
    exactly = exact.softmax(S) @ V
    rounded = exact.softmax(S.astype(dtype)) @ V  # only the scores rounded, the rest float64
    ways = (in_three_loops(S, V, dtype), all_rows(online, S, V, dtype), rounded)
    return tuple(digits(O, exactly) for O in ways)


def digits_lost(online):
    """For the broad head, which comes last: digits of three loops minus digits of one pass."""
    lost = {}
    for name in ("token_before", "everywhere"):
        for dtype in (np.float32, np.float16):
            answer = right_digits(online, name, dtype)
            print(f"{name} in {dtype.__name__}: three loops {answer[0]}, one pass {answer[1]}, "
                  f"only the scores rounded {answer[2]}")
            lost[dtype.__name__] = answer[0] - answer[1]
    measured("3.7", float32=lost["float32"], float16=lost["float16"])


attempt(digits_lost, my_online_attention)

# %% [markdown]
# <details><summary>Digits of one pass and of three loops</summary>
#
# None in float32, where one pass keeps 7 digits as three loops do, and one in float16, 3 instead of 4. For the sharp head even the scores alone, rounded to float32 with everything else in float64, leave 7. A score of 83 is known only to a few millionths there, and an error $\delta$ in a score is a relative error $\delta$ in $e^{s-m}$. But in most rows of this head one key has nearly all the weight: its error stands above and below the fraction, and cancels in the division.
#
# </details>
#
# The broad head has many weights of similar size, and in one pass they are added one piece after the other; float16 has 11 binary digits for the sum. A row of 4,096 equal scores, added one at a time, shows how bad this can get: every $e^{s-m}$ is 1.

# %%
l = np.float16(0)
for _ in range(4096):
    l = l + np.float16(1)
print(f"sum of 4096 ones in float16: {l:.0f}")

# %% [markdown]
# The sum stops at 2048: from there on the next number float16 knows is 2050, and $2048 + 1$ is rounded back. For this reason kernels keep $m$, $\ell$ and $o$ in float32 even where $Q$, $K$ and $V$ are float16.
# <!-- 2050 = np.nextafter(np.float16(2048), np.float16(np.inf)) -->
#
# ## 3.8 On the machine
#
# We want the words, not only the numbers. First, one word can stand for both statistics of a row: its *log-sum-exp*,
#
# $$ L_i = m_i + \log \ell_i, \qquad p_{ij} = e^{\,s_{ij} - L_i} \tag{3.8} $$
#
# With it, any weight can be made again from its score alone. The backward pass will live on that, and keep $N$ words instead of $N^2$.
#
# Now the weights once more, with maximum and sum in one loop instead of two.
#
# **Predict** (compute). Three loops moved 65,536 words. How many do two loops move? And how many does it take to write only $L$, with each score read once?

# %% tags=["predict"]
predict("3.8", two_loops=49152, lse=16512)  #> predict("3.8", two_loops=..., lse=...)

# %% [markdown]
# The machine has the running statistics built in, for a block of rows at a time:
#
# | In code | What it does | Room in fast memory |
# | --- | --- | --- |
# | `stats = m.row_stats(i)` | maxima $-\infty$ and sums 0 for the rows of block `i` | 2 words a row |
# | `stats.update(s)` | takes in a tile of scores (rows, columns); `s` becomes $e^{s}$ in the new unit of its row | none |
# | `stats.update(s, o)` | the same, and `o` changes its unit; adding $sv$ to it is left to you | none |
# | `stats.m`, `stats.l` | the tiles of maxima and of sums, one word a row each | counted above |
# | `stats.normalise(o)` | a tile of these rows divided by its sums, row by row | none |
# | `stats.lse()` | a tile with $L$ by (3.8), one word a row; takes the place of the maxima, so call it last | none |
#
# They work row by row in the four words that the machine gives away as registers. `with m.row_stats(i) as stats:` frees its words at the end, as with a tile. With them the two loops are:


# %%
def two_loops(m, S, *, Bc):
    N, n = S.shape
    P = m.new("P", (N, n))
    for i in m.blocks(N, 1):
        with m.row_stats(i) as stats:
            for j in m.blocks(n, Bc):  # maximum and sum
                with m.load(S, i, j) as s:
                    stats.update(s)
            for j in m.blocks(n, Bc):  # the weights
                with m.load(S, i, j) as s, np.exp(s - stats.m[:, None]) as p:
                    stats.normalise(p)
                    m.store(p, P, i, j)
    return P


# %%
two = run(two_loops, M=80, S=S, Bc=16)
print(two.ledger)
print("the same weights up to 1e-12:", exact.max_abs_error(two.O, three.O) < 1e-12)
measured("3.8", two_loops=two.ledger.total)

# %% [markdown]
# <details><summary>Two loops</summary>
#
# $W = 3N^2 = 49{,}152$: one read of $S$ less. The second read stays, because weights are asked for.
#
# </details>
#
# Ask for something that is one word a row, and it goes too.
#
# <!-- exercise 3D --> Write a schedule. `S`, of shape $(N, n)$, is in slow memory and comes to fast memory in tiles of `Br` rows and `Bc` columns, each score once. Rows may be longer than fast memory. The closed form is $W = Nn + N$ and the footprint $B_r B_c + 2 B_r$; the check allows another $B_r B_c + 4 B_r$ words for temporaries. You may use `row_stats`, or your own tiles for maxima and sums; then save room with updates in place, such as `np.exp(s, out=s)`. If you are stuck after six minutes, run `hint("3D")` in a cell of your own.


# %% [raw] name="about-3D"
# title = "Log-sum-exp of every row on the machine"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "Which loop is the outer one: over blocks of rows, or over blocks of columns? Row statistics are needed as long as their rows are being processed.",
#   "For each block of rows: new row statistics. Then for each block of columns: load, update, free.",
#   "After all columns of a block of rows, stats.lse() is a tile with one word per row. Store it into a slow array of shape (N,) created by m.new, and return that array.",
# ]

# %% tags=["exercise"] name="ex-3D"
def my_lse(m, S, *, Br, Bc):
    """The log-sum-exp of every row of S, each score read once.

    m: the machine. S: slow array (N, n). Returns the slow array of shape (N,) that holds L.
    """
    ### BEGIN SOLUTION statistics of a block of rows live until the rows have been seen
    N, n = S.shape
    L = m.new("L", (N,))
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:  # 2·Br
            for j in m.blocks(n, Bc):
                with m.load(S, i, j) as s:  # (Br, Bc)
                    stats.update(s)
            m.store(stats.lse(), L, i)
    return L
    ### END SOLUTION


# %% tags=["check"]
check("3D", my_lse)

# %%
def with_one_loop(lse):
    one = run(lse, M=80, S=S, Br=2, Bc=16)
    print(one.ledger)
    measured("3.8", lse=one.ledger.total)


attempt(with_one_loop, my_lse)

# %% [markdown]
# <details><summary>One loop</summary>
#
# $W = N^2 + N = 16{,}512$ words, in a fast memory that could not hold a single row of 128. That is almost four times fewer than with three loops, and each score was read once.
#
# </details>
#
# In attention the scores need not even be stored before that: they can be made in fast memory from $Q$ and $K$, go into $m$, $\ell$ and $o$, and be forgotten. That is FlashAttention, the subject of lesson 04.
#
# ## Misconceptions
#
# - **"Online softmax is an approximation."** In float64 it equals exact attention up to 1e-12 on two real heads (section 3.5), and in float32 it keeps as many digits as three loops do (section 3.7).
# - **"Online softmax gives the weights in one pass."** It gives sums over the row: $\ell$, $L$, $o$. Whoever wants the weights themselves reads the scores a second time: 49,152 words instead of 16,512 (section 3.8).
# - **"Every score costs a rescaling."** Of 471 scores in a row, 9.21 brought a new maximum in the head with the most, 1.00 in the head with the fewest of our three (section 3.3).
# - **"Two partial outputs can be averaged."** Each has to be weighted with $e^{m}\ell$, the part of the sum it stands for: the answer was 6 where the average is 7 (section 3.6).
#
# ## Take-away
#
# A sum of exponentials is a number and a unit. Keep the unit as large as the largest score, change it by $e^{m-m'}$ when a larger one comes, and let everything that is counted in it change together: $\ell$, and $o$. Then pieces may be seen once, in any cut, and merged in any order.
#
# | What is wanted | Loops over the scores | Words moved | Measured, $N = 128$ |
# | --- | --- | --- | --- |
# | $P$, as the formula is read | 3 | $4N^2$ | 65,536 |
# | $P$, maximum and sum together | 2 | $3N^2$ | 49,152 |
# | $L$ | 1 | $N^2 + N$ | 16,512 |
#
# ## References
#
# - M. Milakov, N. Gimelshein: *Online normalizer calculation for softmax*, 2018, [arXiv 1805.02867](https://arxiv.org/abs/1805.02867). Maximum and sum in one loop, and their merge.
# - M. Rabe, C. Staats: *Self-attention does not need O(n²) memory*, 2021, [arXiv 2112.05682](https://arxiv.org/abs/2112.05682). The output comes along.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). What this does for the words moved.
# - P. Blanchard, D. Higham, N. Higham: *Accurate computation of the log-sum-exp and softmax functions*, 2019, [arXiv 1909.03469](https://arxiv.org/abs/1909.03469). Rounding errors, with and without the maximum subtracted.
#
# **What comes next.** Lesson 04 puts the loop over pieces of keys inside the loop over blocks of queries, or outside, and counts what each choice moves.
