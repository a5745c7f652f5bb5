# %% [markdown]
# # 03 Online softmax
#
# Standard softmax needs a complete row of scores before it has the first weight. Standard attention computes all $N^2$ scores first and stores them. *Online softmax* loads the scores in pieces and updates the maximum, the sum and the output with each piece. The result is exact.
#
# **What you will learn**
#
# - to compute the output of a query from pieces that are loaded once;
# - to merge partial results in any order;
# - to handle large and masked scores;
# - to count the words of each version.
#
# **Prerequisites**: lessons 01 and 02. Symbols and terms: [notation](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from functools import reduce

import numpy as np

from iocourse import exact, run
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.course.explore import merge_tree, running_max_rescaling
from iocourse.data import real_head

# %% [markdown]
# ## The idea in one picture
#
# Online softmax is like changing money into another currency. A sum is stored as a count and a *unit*, the largest number so far. If a larger number arrives, the count is converted to the new unit. In this lesson, the numbers are $e^s$ of the scores $s$ of a row.

# %%
running_max_rescaling([[1, 1], [4, 2], [1]])

# %% [markdown]
# Each bar is the sum so far, above a ruler in the current unit. The bar of piece 1 is also the blue part of piece 2; only the ruler is new.
#
# ## 3.1 Three loops over a row
#
# The weight of score $s_j$ in its row is
#
# $$ p_j = \frac{e^{\,s_j-m}}{\sum_k e^{\,s_k-m}}, \qquad m = \max_k s_k \tag{3.1} $$
# <!-- (3.1) not evaluated: entries of arrays -->
#
# Computed as written, (3.1) needs three loops over the row: for $m$, the sum and the weights. If the row does not fit in fast memory, each loop loads it again. After your prediction, the code does this for $N = 128$ rows of 128 scores, one row at a time, in pieces of 16 scores, with $M = 80$.
#
# **Predict** (compute). $S$ has $128 \cdot 128 = 16{,}384$ words, and so has $P$. How many words are moved?

# %% tags=["predict"]
predict("3.1", words=49152)  #> predict("3.1", words=...)


# %%
def three_loops(m, S, *, Bc):
    """Softmax of each row of S; `top` and `total` are tiles of one word.

    m: the machine.
    """
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
# <details><summary>Words in each direction</summary>
#
# $S$ is read three times, 49,152 words, and $P$ is written once. Together these are $W = 4N^2 = 65{,}536$ words. (The answer 49,152 counts only the reads.) Fast memory holds at most three tiles of 16 words, `top` and `total`, together 50 words.
#
# </details>
#
# Subtracting $m$ changes no weight, because $e^{-m}$ cancels; it keeps every exponent at or below 0. A separate loop for the weights is necessary, because no weight $p_j$ is known before the last score has been loaded. Attention, however, needs the weights only inside the sum $\sum_j p_j v_j$, and a sum can be updated piece by piece. Section 3.2 does this for the denominator of (3.1), section 3.4 for the output.
#
# ## 3.2 A running maximum and a running sum
#
# We want $m$ and $\ell = \sum_j e^{s_j - m}$ of a row from one loop that loads each piece once. Such an algorithm is called online: it processes its input as it arrives, without knowing the rest.
#
# After some pieces, $m$ is the largest score so far, the *running maximum*, and $\ell$ is the count: the sum of all $e^s$ so far, in units of $e^m$. If the next piece contains a larger score, the running maximum becomes $m'$ and the unit grows to $e^{m'}$. The old sum must then be multiplied by $e^{m-m'}$. This multiplication is called *rescaling*.
#
# $$ m' = \max\bigl(m, \max_j s_j\bigr), \qquad \ell' = e^{\,m-m'}\,\ell + \sum_j e^{\,s_j-m'} \tag{3.2} $$
# <!-- (3.2) not evaluated: entries of arrays -->
#
# Before the first piece, $m = -\infty$ and $\ell = 0$, so the first factor is $e^{-\infty} = 0$. In the figure at the top, when 4 arrives, two old units are worth half a new one.
#
# The two numbers $m$ and $\ell$ are called the *row statistics*. For finite scores, $\ell$ is between 1 and the number of scores: the largest score adds 1, and scores far below it add almost 0.
#
# As an example with simple numbers, take scores with $e^{s} = 2, 1$ in the first piece, $8, 4, 4$ in the second and $1$ in the third. After the first piece, $e^m = 2$ and $\ell = 1 + \tfrac12 = 1.5$.
#
# **Predict** (compute). Use (3.2) by hand. What is the rescaling factor for the second piece, and what is $\ell$ after it?

# %% tags=["predict"]
predict("3.2", factor=0.25, l=2.375)  #> predict("3.2", factor=..., l=...)

# %% [markdown]
# The next cell computes $m$ and $\ell$ of the first 2, 5 and 6 scores from scratch. Formula (3.2) avoids this repeated work; here the cell checks our arithmetic.

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
# <details><summary>The factor and the sum</summary>
#
# The unit grows from 2 to 8, so the factor is 0.25. The old sum 1.5 becomes 0.375, the second piece adds $1 + \tfrac12 + \tfrac12$, and $\ell$ is 2.375. The sixth score is not a new maximum, so its factor is 1 and it adds $\tfrac18$. The result is 2.5 units of 8, which is 20, the sum of all $e^s$.
#
# </details>
#
# <!-- exercise 3A --> Compute the maximum and the sum of a row with a loop over its pieces, by (3.2). `pieces` is an iterator: it has no length and no index, and you can loop over it only once. Each piece contains one or more scores. The check includes a row of 32,001 scores and measures how much memory your function uses, so do not store all pieces in a list. If you are stuck after five minutes, run `hint("3A")` in a new cell.
# <!-- 0.375 = 1.5 * 2 / 8 -->
# <!-- 32,001 = max(case.inputs["row"].size for case in course.exercise.find("3A").cases(np.random.default_rng(0))) -->
# <!-- 0.25 as output -->
# <!-- 1 = 4 / 4 -->

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

    pieces: iterator of arrays of shape (b,), where b may differ; each can be read once.
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
# The factor $e^{m-m'}$ differs from 1 only if a piece contains a new maximum. Suppose that the scores of a row are all different and in random order. Then piece $k$, with $b_k$ scores, contains the largest score so far with probability $b_k/(b_1 + \dots + b_k)$, because each of these $b_1 + \dots + b_k$ scores is equally likely to be the largest. The expected number of pieces with a new maximum, including the first piece, is
#
# $$ \sum_k \frac{b_k}{b_1 + \dots + b_k}, \qquad\text{for single scores}\quad H_n = 1 + \frac12 + \frac13 + \dots + \frac1n \approx \log n + 0.577 \tag{3.3} $$
# <!-- (3.3) not evaluated: sum over a set -->
#
# which is the *harmonic number* for single scores. A row of $n = 471$ single scores has 6.73 new maxima on average.
#
# If this is new: an *expected* number is the average over many random orders ([expected value](https://en.wikipedia.org/wiki/Expected_value)).
#
# The scores of a real attention head are not in random order. We counted single scores in three heads of all-MiniLM-L6-v2, a small sentence encoder, on a text of 471 tokens (not printed here). In these heads, the mean number of new maxima per row is between 1.00 and 9.21, and no single row has more than 16. The smallest mean belongs to head 5 of layer 4, whose largest score is always at the first token. The largest mean belongs to head 2 of layer 0, which attends mostly to the previous token. On average its scores are larger for keys closer to the query, so new maxima still occur late in the row. Neighbouring scores are also similar, so a rise often takes several steps. (Head 11 of layer 0 is in between.)
# <!-- 0.577, 6.73 = np.euler_gamma, sum(1 / k for k in range(1, 471 + 1)) -->
# <!-- 471 = len(real_head(0, 2).tokens) -->
# <!-- heads = [real_head(0, 2), real_head(0, 11), real_head(4, 5)] -->
# <!-- tops = [np.maximum.accumulate(exact.scores(head.Q.astype(float), head.K.astype(float)), axis=1) for head in heads] -->
# <!-- counts = [1 + (np.diff(top, axis=1) > 0).sum(axis=1) for top in tops] -->
# <!-- 1.00, 9.21 = counts[2].mean(), counts[0].mean() -->
# <!-- 16 = max(count.max() for count in counts) -->
#
# ## 3.4 The output in the same loop
#
# We want the output of a query, $\sum_j p_j v_j$, without a second loop for the weights.
#
# The numerator and the denominator of (3.1) have the same unit. We therefore keep a third running quantity $o$, the sum of the values multiplied by $e^{s_j-m}$, and rescale it together with $\ell$:
#
# $$ o' = e^{\,m-m'}\,o + \sum_j e^{\,s_j-m'}\, v_j, \qquad\text{and after the last piece the output is}\quad o/\ell \tag{3.4} $$
# <!-- (3.4) not evaluated: entries of arrays -->
#
# We divide only once, after the last piece. Here $o$ is always the weighted sum before this division; dividing it by $\ell$, which has the same unit, gives the weighted mean.
#
# Take two scores with $e^{s} = 1$ and $e^s = 3$, and values 8 and 4, one score at a time.
#
# **Predict** (compute). What is the output? What is the result if $\ell$ is rescaled but $o$ is not?

# %% tags=["predict"]
predict("3.4", output=5, forgotten=9)  #> predict("3.4", output=..., forgotten=...)

# %%
factor = np.exp(np.log(1) - np.log(3))  # the unit grows from 1 to 3
l = factor * 1 + 1
o = factor * 8 + 4  # the first value, 8, is rescaled
forgotten = 8 + 4  # it is not rescaled
measured("3.4", output=round(float(o / l), 9), forgotten=round(float(forgotten / l), 9))

# %% [markdown]
# <details><summary>Both results</summary>
#
# The output is 5, with a weight of one quarter for 8 and three quarters for 4. If $o$ is not rescaled, the result is 9, which is larger than both values.
#
# </details>
#
# A weighted mean is always between the smallest and the largest of its values. A result outside this range shows that two sums were computed with different units.
#
# ## 3.5 Inputs that break the formulas
#
# We want (3.2) and (3.4) to hold for every possible row. Scores of ±10,000 occur when training diverges, and a mask sets a score to $-\infty$ for every key that the query does not attend to.
#
# If this is new: floating-point numbers (IEEE formats) have a largest finite value. A larger result becomes `inf`, a result too close to 0 becomes 0, and an undefined result such as $\infty - \infty$ becomes `nan`, *not a number* ([Wikipedia](https://en.wikipedia.org/wiki/IEEE_754)).
#
# The next cell takes four rows of eight scores: all around +10,000, all around -10,000, all equal to 3, and all $-\infty$. It adds up each row in two ways: $\sum_j e^{s_j}$, and $\sum_j e^{s_j - m}$ with the maximum subtracted.
#
# **Predict** (guess). For how many of the four rows is the plain sum a positive, finite number (`plain`)? For how many is the sum with the maximum subtracted (`subtracted`)?

# %% tags=["predict"]
predict("3.5", plain=1, subtracted=4)  #> predict("3.5", plain=..., subtracted=...)

# %%
noise = np.random.default_rng(5).standard_normal(8)
rows = {"around +10,000": 10_000 + noise, "around -10,000": noise - 10_000,
        "all equal to 3": np.full(8, 3.0), "fully masked": np.full(8, -np.inf)}
good = {"plain": 0, "subtracted": 0}
for name, s in rows.items():
    with np.errstate(over="ignore", invalid="ignore"):
        plain, subtracted = np.exp(s).sum(), np.exp(s - s.max()).sum()
    good["plain"] += int(0 < plain < np.inf)
    good["subtracted"] += int(0 < subtracted < np.inf)
    print(f"{name:<18} plain {plain:>6.1f}   maximum subtracted {subtracted:>5.2f}")
measured("3.5", **good)

# %% [markdown]
# <details><summary>Which sums are usable</summary>
#
# If all scores are very large or very negative, the plain sum overflows to `inf` or underflows to 0. Only one of the four plain sums is usable. Subtracting the maximum makes two more usable. It does not help the last row: there $m = -\infty$, and $-\infty - (-\infty)$ is `nan`.
#
# </details>
#
# Fully masked rows are rare, but fully masked *pieces* are not. Under a causal mask, every piece to the right of the diagonal is fully masked. After a visible score such a piece is harmless, because $m$ is finite and the piece adds 0. But the first piece can also be fully masked. For example, a sliding window masks the oldest keys, which are in the first pieces, or the pieces are loaded in another order. Then $m' = -\infty$, and the `nan` remains in $\ell$ and $o$ for the rest of the row. The remedy is to subtract a finite number as long as all scores so far are masked:
#
# $$ \hat m = \begin{cases} m' & \text{if } m' > -\infty \\ 0 & \text{otherwise} \end{cases} \qquad \text{factor } e^{\,m-\hat m}, \quad \text{weights } e^{\,s_j-\hat m} \tag{3.5} $$
# <!-- (3.5) not evaluated: entries of arrays -->
#
# With $\hat m = 0$, a masked score has the weight $e^{-\infty} = 0$, which is correct. We keep $m'$ for the next piece, not $\hat m$: with a maximum of 0, later scores around -10,000 would underflow to 0. If the complete row is masked, $\ell$ is still 0 at the end, and dividing by it would give `nan`. This course returns zeros in this case, the value of an empty sum.
#
# <!-- exercise 3B --> Compute the output of one query from pieces that can be read once, as in exercise 3A. Each piece is now a pair of `b` scores and the matching `b` values. Update $m$, $\ell$ and $o$ by (3.2) and (3.4) with the remedy of (3.5). Scores may be large or masked. If you are stuck after eight minutes, run `hint("3B")` in a new cell.

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
    """The softmax-weighted mean of the values of one row, each piece read once.

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
# The algorithm in short form, where maxima and sums are taken over one piece:
#
# | | **Online softmax for one query.** Kept: $m$, $\ell$, $o$. Loaded once: each piece of scores and values. |
# | --- | :--- |
# | 1 | $m \leftarrow -\infty$, $\ell \leftarrow 0$, $o \leftarrow 0$ |
# | 2 | **for** each piece |
# | 3 | &emsp; load its scores $s_j$ and values $v_j$ |
# | 4 | &emsp; $m' \leftarrow \max(m, \max_j s_j)$ |
# | 5 | &emsp; $\hat m \leftarrow m'$ if $m' > -\infty$, otherwise 0 |
# | 6 | &emsp; $\ell \leftarrow e^{\,m-\hat m}\,\ell + \sum_j e^{\,s_j-\hat m}$ |
# | 7 | &emsp; $o \leftarrow e^{\,m-\hat m}\,o + \sum_j e^{\,s_j-\hat m}\,v_j$ |
# | 8 | &emsp; $m \leftarrow m'$ |
# | 9 | **return** $o/\ell$ if $\ell > 0$, otherwise zeros |
#
# Now apply your function to all 471 queries of two heads of the model of section 3.3 and compare it with exact attention in float64. Head 2 of layer 0 (`sharp`) attends mostly to the previous token, and its scores reach 83. Head 11 of layer 0 (`flat`) attends to all tokens.
# <!-- 83 = real_head(0, 2).stats["logit_max"] -->

# %%
heads = {"sharp": real_head(0, 2), "flat": real_head(0, 11)}
scores = {name: exact.scores(h.Q.astype(float), h.K.astype(float)) for name, h in heads.items()}


def pieces_of(b, s, v):
    """Yield the scores and values of one row in pieces of b."""
    for j in range(0, len(s), b):
        yield s[j : j + b], v[j : j + b]


def agrees(online):
    for name, h in heads.items():
        V = h.V.astype(float)
        O = np.array([online(pieces_of(32, s, V)) for s in scores[name]])  # (N, d)
        same = exact.max_abs_error(O, exact.attention(h.Q, h.K, h.V)) < 1e-12
        print(f"{name}: equal to exact attention up to 1e-12: {same}")


attempt(agrees, my_online_attention)

# %% [markdown]
# Both results are equal to exact attention up to rounding. Online softmax computes the same sums in another order.
#
# ## 3.6 Merging two parts of a row
#
# We want to divide a row into two parts, process them independently, and combine the results.
#
# The result of a part is the triple $(m, \ell, o)$, with $o$ not yet divided by $\ell$. Two parts give two sums in two units. We convert both to the larger unit:
#
# $$ m = \max(m_a, m_b), \qquad \ell = e^{\,m_a-m}\,\ell_a + e^{\,m_b-m}\,\ell_b, \qquad o = e^{\,m_a-m}\,o_a + e^{\,m_b-m}\,o_b \tag{3.6} $$
# <!-- (3.6) m = not evaluated: definition -->
# <!-- (3.6) \ell = math.exp(exact.log_sum_exp(S)[0] - m) with e = math.e, m = max(ma, mb), S = [[ma + math.log(ella), mb + math.log(ellb)]] where ma <= 40 and mb <= 40 -->
# <!-- (3.6) o = math.exp(exact.log_sum_exp(S)[0] - m) * (exact.softmax(S)[0] @ [oa / ella, ob / ellb]) with e = math.e, m = max(ma, mb), S = [[ma + math.log(ella), mb + math.log(ellb)]] where ma <= 40 and mb <= 40 -->
#
# For any division of the row and any order of merges, every score finally has the weight $e^{s-m}$ with the same $m$, the maximum of the row. Merging is therefore *commutative* (merging a with b equals merging b with a) and *associative* (the grouping of three parts does not matter). The empty part $(-\infty, 0, 0)$ is its *identity*: merging with it changes nothing. So any tree of merges gives the result of the row. Formulas (3.2) and (3.4) are the special case in which the second part is a single piece.
#
# Part a has $(\log 2,\; 3,\; 30)$, so its own output would be 10. Part b has $(\log 12,\; 1,\; 4)$, so its own output would be 4.
#
# **Predict** (compute). What is the output of the complete row?

# %% tags=["predict"]
predict("3.6", output=7)  #> predict("3.6", output=...)

# %%
weight_a, weight_b = 2 * 3, 12 * 1  # e^m times l: the sum of e^s over each part
measured("3.6", output=(weight_a * 10 + weight_b * 4) / (weight_a + weight_b))

# %% [markdown]
# <details><summary>The output and the weights of both parts</summary>
#
# The output is 6, not the average 7, because part b has two thirds of the weight, 12 of 18. In the unit of b, the sum of part a is $\tfrac16 \cdot 3 = 0.5$, compared with 1 for part b.
#
# </details>
#
# The next figure shows four parts and their merges, from top to bottom, with the unit $e^{m}$ and the count $\ell$ of each. A thick line marks a change of the unit.
# <!-- 0.5 = 1 / 6 * 3 -->

# %%
merge_tree([(2, 1.5), (8, 2), (1, 2), (4, 1.5)])

# %% [markdown]
# In each merge, only the part with the smaller unit is rescaled. The last box contains 3.375 units of 8, which is 27, the sum of all $e^s$ of the four parts.
#
# <!-- exercise 3C --> Merge two parts by (3.6), with the remedy of (3.5) if both parts are empty. The check merges parts in both orders and both groupings, with the empty part on either side, the empty part with itself, and parts whose maxima are 10,000 apart. Do not modify the parts that are passed in. If you are stuck after six minutes, run `hint("3C")` in a new cell.
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
    """Merge two parts of one row.

    a, b: triples (m, l, o) of a number, a number and an array (d,), o not divided by l.
    (-inf, 0.0, zeros) is the empty part. Returns the triple of both; a and b are not modified.
    """
    ### BEGIN SOLUTION one unit for both; the remedy of (3.5) where both are empty
    m = max(a[0], b[0])
    shift = m if m > -np.inf else 0.0
    factor_a, factor_b = np.exp(a[0] - shift), np.exp(b[0] - shift)
    return m, factor_a * a[1] + factor_b * b[1], factor_a * a[2] + factor_b * b[2]
    ### END SOLUTION


# %% tags=["check"]
check("3C", my_merge)

# %% [markdown]
# The next cell divides one row of the sharp head into 15 parts and merges them from left to right, as a tree, and in a random order.
# <!-- 15 = math.ceil(471 / 32) -->


# %%
def part(s, v):
    p = np.exp(s - s.max())
    return s.max(), p.sum(), p @ v


def as_tree(merge, parts):
    while len(parts) > 1:
        parts = [reduce(merge, parts[k : k + 2]) for k in range(0, len(parts), 2)]
    return parts[0]


def three_ways(merge):
    row, V = scores["sharp"][200], heads["sharp"].V.astype(float)
    parts = [part(s, v) for s, v in pieces_of(32, row, V)]
    shuffled = [parts[k] for k in np.random.default_rng(6).permutation(len(parts))]
    ways = reduce(merge, parts), as_tree(merge, parts), reduce(merge, shuffled)
    outputs = [o / l for m, l, o in ways]
    equal = float(np.ptp(outputs, axis=0).max()) < 1e-12
    print(f"left to right, as a tree, shuffled: equal up to 1e-12: {equal}")


attempt(three_ways, my_merge)

# %% [markdown]
# The three outputs agree up to rounding. Lesson 14b uses this merge to divide the keys of a single query among many workers that run at the same time (split-KV). Each processes a part of the keys, and a merge at the end combines the results.
#
# ## 3.7 Accuracy
#
# Does rescaling lose digits? On the two heads of section 3.5 we compared one loop with the three loops of (3.1), by the root mean square error of the output. In float32 both are correct to 7 digits; the last line of the output shows it for the flat head. The table is for this head in float16, in pieces of 1, 32 and 471 scores (the complete row). In the column "not rescaled", the loop starts with the maximum of the complete row (`known`), as after the first of three loops, so every factor is 1. In the last column, only the scores and values are rounded to float16; the sums are float32.
# <!-- 1 as definition -->

# %%
scores_2, V_2 = scores["flat"], heads["flat"].V.astype(float)
unknown, known = np.full((471, 1), -np.inf), scores_2.max(axis=1, keepdims=True)


def error(b, start, dtype, inputs=np.float16):
    """Root mean square error, in pieces of b scores; start: m before the first piece."""
    S_2, V = scores_2.astype(inputs).astype(dtype), V_2.astype(inputs).astype(dtype)
    m, l, o = start.astype(dtype), dtype(0), dtype(0)
    for j in range(0, len(V), b):
        s, v = S_2[:, j : j + b], V[j : j + b]
        m_new = np.maximum(m, s.max(axis=1, keepdims=True))
        factor, p = np.exp(m - m_new), np.exp(s - m_new)
        l, o = factor * l + p.sum(axis=1, keepdims=True), factor * o + p @ v
        m = m_new
    return np.sqrt(np.mean((o / l - exact.softmax(scores_2) @ V_2) ** 2))


print("pieces of   rescaled   not rescaled   float32 sums")
for b in (1, 32, 471):
    half = error(b, unknown, np.float16), error(b, known, np.float16)
    print(f"{b:9} {half[0]:10.0e} {half[1]:14.0e} {error(b, unknown, np.float32):14.0e}")
single = [error(32, start, np.float32, inputs=np.float32) for start in (unknown, known)]
print(f"all in float32, pieces of 32, rescaled and not: both below 1e-7: {max(single) < 1e-7}")

# %% [markdown]
# Rescaling does not matter: the first two columns are equal. The number of float16 additions matters. Inside a piece, NumPy adds in float32 and rounds the result to float16 once. This result is then added to $\ell$ or $o$ in float16, which rounds once for each piece. A float16 number has only 11 binary digits, and this head has many weights of similar size, so single scores lose the most. In the extreme case, a sum of ones in float16, added one at a time, never exceeds 2,048, because the next float16 number is 2,050 and $2{,}048 + 1$ is rounded back. Kernels therefore keep $m$, $\ell$ and $o$ in float32, even if $Q$, $K$ and $V$ are float16. Then only the rounding of the inputs is left, as in the last column.
# <!-- 2,048 = np.cumsum(np.ones(2**12, np.float16))[-1] -->
# <!-- 2,050 = np.nextafter(np.float16(2048), np.float16(np.inf)) -->
#
# ## 3.8 Counting words on the machine
#
# First, one word can replace the two row statistics: the *log-sum-exp* of the row,
#
# $$ L_i = m_i + \log \ell_i, \qquad p_{ij} = e^{\,s_{ij} - L_i} \tag{3.8} $$
# <!-- (3.8) L_i = exact.log_sum_exp([[a, b]])[0] with mi = max(a, b), elli = 1 + math.exp(-abs(a - b)) where a <= 40 and b <= 40 -->
# <!-- (3.8) p_ij = exact.softmax([[a, b]])[0, 0] with e = math.e, sij = a, Li = exact.log_sum_exp([[a, b]])[0] where a <= 40 and b <= 40 -->
#
# From $L_i$, any weight can be recomputed from its score alone. The backward pass of lesson 06 uses this to store $N$ words instead of $N^2$.
#
# Now we compute the weights again, with the maximum and the sum from one loop instead of two.
#
# **Predict** (compute). Three loops moved 65,536 words. How many words do two loops move? How many words are moved if only $L$ is written and each score is read once?

# %% tags=["predict"]
predict("3.8", two_loops=49152, lse=16512)  #> predict("3.8", two_loops=..., lse=...)

# %% [markdown]
# The machine provides row statistics for a block of rows:
#
# | In code | What it does | Words of fast memory |
# | --- | --- | --- |
# | `stats = m.row_stats(i)` | creates maxima of $-\infty$ and sums of 0 for the rows of block `i` | 2 per row |
# | `stats.update(s)` | updates both with a tile of scores (rows, columns); `s` becomes $e^{s-m'}$ | none |
# | `stats.update(s, o)` | also rescales `o`; you then add `s @ v` to it | none |
# | `stats.m`, `stats.l` | tiles of the maxima and of the sums, one word per row each | counted above |
# | `stats.normalise(o)` | divides each row of a tile by its sum | none |
# | `stats.lse()` | returns a tile with $L$ of (3.8), one word per row; it replaces the maxima, so call it last | none |
#
# These operations need at most four single words at a time in addition. The machine provides these for free, as registers (section 2.2). `update`, `normalise` and `lse` contain the remedy (3.5); a fully masked row gives zeros and $L = -\infty$. The block `with m.row_stats(i) as stats:` frees its words at the end, as for a tile. The two loops are:


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
# $W = 3N^2 = 49{,}152$ words, one read of $S$ less. The second read is still necessary because the weights themselves are the result.
#
# </details>
#
# If the result is only one word per row, the second read is not necessary either.
#
# <!-- exercise 3D --> Write a schedule that returns the log-sum-exp of every row of `S`. `S` has the shape $(N, n)$ and is in slow memory. Load it in tiles of `Br` rows and `Bc` columns, each score once. A row may be larger than fast memory. The closed form is
#
# $$ W = Nn + N, \qquad \text{footprint } B_r B_c + 2 B_r . $$
# <!-- (above) W = lesson03.row_lse_cost(N, n, Br=Br, Bc=Bc).total -->
# <!-- (above) footprint = lesson03.row_lse_cost(N, n, Br=Br, Bc=Bc).peak where Br <= N and Bc <= n -->
#
# Your function may use another $B_r B_c + 4 B_r$ words for temporaries. `m.new("L", (N,))` creates the result; `m.store(tile, L, i)` stores one word for each row of block `i`. Use `row_stats`, or your own tiles for maxima and sums; in the second case save space with updates in place, such as `np.exp(s, out=s)`. If you are stuck after six minutes, run `hint("3D")` in a new cell.

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
    ### BEGIN SOLUTION keep the row statistics until all columns are processed
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
# $W = N^2 + N = 16{,}512$ words, in a fast memory that cannot hold a single row of 128 scores. This is about a quarter of the traffic of three loops, because each score is read once instead of three times and $P$ is not written.
#
# </details>
#
# In attention, the scores need not be stored in slow memory at all. They can be computed in fast memory from $Q$ and $K$, used to update $m$, $\ell$ and $o$, and discarded. This is FlashAttention, the subject of lesson 04.
#
# ## Misconceptions
#
# - **"Online softmax is an approximation."** In float64 it equals exact attention up to 1e-12 on two real heads (section 3.5). In float32 it is correct to as many digits as three loops (section 3.7).
# - **"Online softmax gives the weights in one loop."** It gives sums over the row: $\ell$, $L$, $o$. The weights need a second read of the scores, 49,152 words instead of 16,512 (section 3.8).
# - **"Every score causes a rescaling."** In three real heads, on average 1.00 to 9.21 of the 471 scores of a row were a new maximum (section 3.3).
# - **"Two partial outputs can be averaged."** Each must be weighted with its $e^{m}\ell$: the correct output was 6, the average 7 (section 3.6).
#
# ## Take-away
#
# A sum of exponentials is stored as a count $\ell$ and a unit. The unit is $e^m$ for the running maximum $m$. When $m$ grows to $m'$, rescale $\ell$ and $o$ together by $e^{m-m'}$. Then each piece is loaded only once, and parts can be merged in any order.
#
# | Result | Loops over the scores | Words moved | Measured, $N = 128$ |
# | --- | --- | --- | --- |
# | $P$, computed as written | 3 | $4N^2$ | 65,536 |
# | $P$, with online softmax | 2 | $3N^2$ | 49,152 |
# | $L$ | 1 | $N^2 + N$ | 16,512 |
#
# **In the literature's words**: (3.2) is the *online normalizer calculation* of Milakov and Gimelshein, now called online softmax, and (3.6) without $o$ is their parallel version. The FlashAttention papers call $m$ and $\ell$ softmax statistics; FlashAttention-2 keeps only the log-sum-exp $L$ for the backward pass.
#
# ## References
#
# - M. Milakov, N. Gimelshein: *Online normalizer calculation for softmax*, 2018, [arXiv 1805.02867](https://arxiv.org/abs/1805.02867). Maximum and sum in one loop, and their merge.
# - M. Rabe, C. Staats: *Self-attention does not need O(n²) memory*, 2021, [arXiv 2112.05682](https://arxiv.org/abs/2112.05682). The output in the same loop.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Online softmax tile by tile, to reduce the traffic.
# - P. Blanchard, D. Higham, N. Higham: *Accurate computation of the log-sum-exp and softmax functions*, 2019, [arXiv 1909.03469](https://arxiv.org/abs/1909.03469). Rounding errors, with and without the maximum subtracted.
#
# **What comes next.** <!-- next --> A loop over key blocks inside a loop over query blocks, or the other way round: the two orders have different traffic.
# <!-- 1.00, 9.21 = counts[2].mean(), counts[0].mean() -->
