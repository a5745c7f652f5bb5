# %% [markdown]
# # 01 Naive attention
#
# This lesson writes one attention head in the simplest way, forward and backward, with a line of NumPy per formula. It keeps every intermediate result.
#
# **What you will learn**
#
# - the sequence length above which the scores have more words than the inputs and the output together
# - the forward pass, with a softmax that does not overflow, and a causal mask
# - the backward pass, and how to test a gradient
#
# **Prerequisites**: NumPy (matrix products, axes, broadcasting), the chain rule, [00 Start here](00_start_here.ipynb).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Symbols and terms: [notation](notation.md).

# %% tags=["setup"]
import numpy as np

from iocourse import costs, exact
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.course.explore import attention_map, bars, curve
from iocourse.data import real_head, real_heads

# %% [markdown]
# ## The size of the score matrix
#
# A language model splits a text into $N$ *tokens*, which are words or pieces of words. In each layer, several *heads* let every token collect information from the others. A head receives a query, a key and a value per token, as arrays $Q$, $K$, $V$ of shape $(N, d)$. It compares each query with each key:
#
# $$ S = \frac{QK^\top}{\sqrt d} \tag{1.1} $$
# <!-- (1.1) not evaluated: entries of arrays -->
#
# An entry $s_{ij}$ of $S$ is called a *score* (or logit). Softmax turns each row of scores into weights $P$, and the output is $O = PV$. So $Q$, $K$, $V$ and $O$ have $Nd$ words each, but $S$ and $P$ have $N^2$ words each. The bars below show $N = 128$, $d = 64$.
#
# **Predict** (guess). Now let $N = 4096$, with $d = 64$. What is the ratio of the words of $S$ to the words of $Q, K, V, O$ together? And from which $N$ on is $S$ at least as large as these four arrays?

# %%
d = 64
short = {"Q, K, V, O together": 4 * 128 * d, "S": 128**2, "P": 128**2}
bars(short, title="Words of each array, N = 128, d = 64", unit="words")

# %% tags=["predict"]
predict("1.5", ratio=64, crossover=64)  #> predict("1.5", ratio=..., crossover=...)

# %%
lengths = [2**k for k in range(4, 18)]  # 16 to 131,072
print(f"{'N':>8} {'Q, K, V, O':>14} {'S':>16} {'ratio':>8}")
for length in [*lengths[::2], 131_072]:
    print(f"{length:>8,} {4 * length * d:>14,} {length**2:>16,} {length / (4 * d):>8g}")
measured("1.5", ratio=4096 // (4 * d), crossover=min(n for n in lengths if n**2 >= 4 * n * d))

# %% [markdown]
# <details><summary>The ratio, and the N where it is 1</summary>
#
# The ratio is $N^2 / (4Nd) = N/(4d)$. At $N = 4096$ it is 16: $S$ alone is 16 times as large as $Q, K, V$ and $O$ together. (The guess $N/d = 64$ compares $S$ with only one of the four arrays.) The ratio is 1 at $N = 4d = 256$ tokens, a short page of text.
#
# </details>
#
# At $N = 131{,}072$ the ratio is 512, and $S$ has 17,179,869,184 words. With two bytes per word this is $34.4\cdot10^9$ bytes for a single head.
# <!-- 34.4\cdot10^9 = 2 * 131072**2 -->
# <!-- 16 = 4096 / (4 * 64) -->
# <!-- 1, 512 = 256 / (4 * 64), 131072 / (4 * 64) -->

# %%
curve(
    measured={},
    predicted={
        "S and P": [(n, 2 * n**2) for n in lengths[::3]],
        "Q, K, V, O": [(n, 4 * n * d) for n in lengths[::3]],
    },
    title="Words of the forward pass, d = 64",
    xlabel="N",
    ylabel="words",
)

# %% [markdown]
# On logarithmic axes both lines are straight, and the line of $S$ and $P$ is twice as steep. The two lines cross at $N = 2d = 128$, half as far as for $S$ alone. Beyond this length $S$ and $P$ have more words than the other arrays, and the difference grows quickly. An array that is written to slow memory completely is *materialised*. Lessons 03 and 04 show that $S$ and $P$ need not be materialised. This lesson materialises them, because that is the simplest way to compute attention.
#
# ## 1.1 A softmax that does not overflow
#
# Why is there a division by $\sqrt d$ in (1.1)? Without it the scores would grow like $\sqrt d$, because a sum of $d$ independent numbers with mean 0 and standard deviation 1 has the standard deviation $\sqrt d$.
#
# The heads of this course are real. They belong to the sentence encoder all-MiniLM-L6-v2, with $d = 32$, and their input is a text of $N = 471$ tokens, written for this course. `real_head(layer, head)` returns one of them. We take three that behave very differently. We call them sharp (large scores), broad (small scores) and ahead (most weight on the next token). The next cell prints the range of the scores, which are also called logits, and of the largest score per row.
# <!-- 128 = 2 * 64 -->

# %%
sharp, ahead, broad = real_head(0, 2), real_head(1, 8), real_head(0, 11)


def scores(head):
    """S of a real head by (1.1), in float64, shape (N, N)."""
    Q, K = head.Q.astype(np.float64), head.K.astype(np.float64)
    return Q @ K.T / np.sqrt(Q.shape[1])


for name, head in {"sharp": sharp, "ahead": ahead, "broad": broad}.items():
    S = scores(head)
    top = S.max(axis=1)  # (N,), the largest score of each row
    print(f"{name} ({head.layer}, {head.head}):", end=" ")
    print(f"scores from {S.min():.2f} to {S.max():.2f}, largest score per row", end=" ")
    print(f"from {top.min():.2f} to {top.max():.2f}, median {np.median(top):.2f}")
labels = ["broad (0, 11)", "ahead (1, 8)", "sharp (0, 2)"]
largest = [round(float(scores(head).max()), 2) for head in (broad, ahead, sharp)]
bars(
    dict(zip(labels, largest, strict=True)),
    dict.fromkeys(labels, 11.09),
    title="The largest score of three real heads",
    unit="score",
    mark="float16 overflows above",
)

# %% [markdown]
# The scores of the broad head are between −3.88 and 4.55. Those of the sharp head run from −63.81 to 83.07, so its bar is eighteen times as long. These scores were not constructed: a trained head computes them for an ordinary page of text. But the model was tuned on sequences of at most 128 tokens, and this text has 471. This explains a part of the large scores: with the first 128 tokens alone, the largest score of this head is 41.08.
#
# Softmax turns each row of scores into weights. The exponential makes them positive, and the division makes them sum to 1:
#
# $$ P_{ij} = \frac{e^{s_{ij}}}{\sum_k e^{s_{ik}}} $$
#
# In mathematics this formula is enough. In a computer, every number format has a largest number. It is 65,504 in float16, so $e^s$ overflows for $s > 11.09$ (the black mark in the figure). It is $3.4 \cdot 10^{38}$ in float32, so $e^s$ overflows for $s > 88.72$.
#
# (If this is new: these are [IEEE formats](https://en.wikipedia.org/wiki/IEEE_754). A larger result becomes infinity, a finite number divided by infinity is 0, and infinity divided by infinity is NaN, *not a number*. A positive result that is too small becomes 0; this is called *underflow*.)
#
# **Predict** (guess). We compute this formula in float16 without any change. In how many of the 471 rows are the weights wrong (NaN, or all 0), for each of the three heads? The printed scores are enough for an estimate. Write your numbers in place of `...`, then run the cells.
# <!-- head = real_head(0, 2) -->
# <!-- 41.08 = exact.scores(head.Q[:128], head.K[:128]).max() -->
# <!-- 65,504, 11.09 = np.finfo(np.float16).max, math.log(np.finfo(np.float16).max) -->
# <!-- 3.4 \cdot 10^{38}, 88.72 = np.finfo(np.float32).max, math.log(np.finfo(np.float32).max) -->

# %% tags=["predict"]
predict("1.1", sharp=471, ahead=230, broad=0)  #> predict("1.1", sharp=..., ahead=..., broad=...)


# %%
def naive_softmax(S):
    """Softmax of each row of S, without subtracting the maximum."""
    E = np.exp(S)
    return E / E.sum(axis=-1, keepdims=True)


def broken_rows(softmax, S, dtype):
    """Return two counts: rows of softmax(S) that contain NaN, and rows that are all zero."""
    with np.errstate(all="ignore"):  # NumPy would print warnings; we count the rows instead
        P = softmax(S.astype(dtype))
    return int(np.isnan(P).any(axis=1).sum()), int((P == 0).all(axis=1).sum())


# %%
for name, head in {"sharp": sharp, "ahead": ahead, "broad": broad}.items():
    nan, zero = broken_rows(naive_softmax, scores(head), np.float16)
    print(f"{name}: {nan} rows with NaN, {zero} rows of zeros")
    measured("1.1", **{name: nan + zero})

# %% [markdown]
# <details><summary>The number of wrong rows, and the two ways in which they fail</summary>
#
# All 471 rows of the sharp head are wrong, and no row of the broad one. The ahead head, (1, 8), is in between, with 249 rows. This is a few more than the rows whose largest score is above 11.09, because rows fail in two ways. In 228 rows an exponential is infinite, and infinity divided by infinity is NaN, which is easy to notice. In 21 more rows every exponential is finite, but their *sum* is infinite, so each weight is a number divided by infinity, which is 0. Such a row contains no NaN, so the error is easy to miss.
#
# </details>
#
# Is float32 enough, then? The next cell tries the sharp head unchanged, then with scores a tenth larger, then without the division by $\sqrt d$.

# %%
for factor in (1.0, 1.1, np.sqrt(32)):
    S = factor * scores(sharp)
    broken = sum(broken_rows(naive_softmax, S, np.float32))
    print(f"scores × {factor:.2f}: largest {S.max():.2f}, broken rows in float32: {broken}")

# %% [markdown]
# Unchanged, no row breaks: the largest score, 83.07, is below the limit of 88.72. With scores a tenth larger, 2 rows break. Without the division by $\sqrt d$, which makes the scores $\sqrt{32} = 5.66$ times as large, 470 of 471 rows break. A wider format moves the limit, but it does not remove the problem.
#
# One subtraction removes it. If we multiply numerator and denominator by the same $e^{-m_i}$, the weights do not change. We choose $m_i$ as the largest score of the row, so that the largest exponent is 0:
#
# $$ P_{ij} = \frac{e^{s_{ij} - m_i}}{\sum_k e^{s_{ik} - m_i}}, \qquad m_i = \max_k s_{ik} \tag{1.2} $$
# <!-- (1.2) not evaluated: entries of arrays -->
#
# Every exponential is now between 0 and 1, and one of them is 1, so the sum is between 1 and $N$. It cannot overflow if the format can represent $N$, and it cannot be 0. The exponential of a score far below the maximum still underflows to 0, because 0 is then the nearest number of the format. A score of $-\infty$ also gives the weight 0, which section 1.2 uses for the mask.
#
# <!-- exercise 1A --> Write (1.2) for a matrix of scores, separately for each row. Do not modify `S`: create new arrays instead of updating it in place. If you are stuck after five minutes, run `hint("1A")` in a new cell.
# <!-- 5.66 = math.sqrt(32) -->

# %% [raw] name="about-1A"
# title = "A numerically stable softmax"
# difficulty = 1
# importance = 5
# minutes = 8
# hints = [
#   "Which number can you subtract from every score of a row so that no exponential can overflow?",
#   "Each row has its own maximum. Keep the axis when you reduce (keepdims=True). The result then has shape (rows, 1), and NumPy broadcasts it over the row.",
#   "Three steps along the last axis: subtract the maximum of each row, take the exponential, divide each row by its sum. Create new arrays, because S belongs to the caller.",
# ]

# %% tags=["exercise"] name="ex-1A"
def my_softmax(S):
    """Softmax of each row of S by (1.2).

    S has shape (rows, columns), floating point; the result has the same shape.
    A row may hold -inf, but has at least one finite score.
    """
    ### BEGIN SOLUTION the row's maximum first; NumPy only
    E = np.exp(S - S.max(axis=-1, keepdims=True))  # (rows, columns)
    return E / E.sum(axis=-1, keepdims=True)
    ### END SOLUTION


# %% tags=["check"] name="check-1A"
check("1A", my_softmax)


# %% [markdown]
# The same three heads in float16, now with your softmax:

# %%
def broken_in_half_precision(softmax):
    for head in (sharp, ahead, broad):
        broken = sum(broken_rows(softmax, scores(head), np.float16))
        print(f"({head.layer}, {head.head}) broken rows in float16:", broken)


attempt(broken_in_half_precision, my_softmax)

# %% [markdown]
# No row breaks, in the same format in which every row of the sharp head was wrong.
#
# ## 1.2 The output and the causal mask
#
# Row $i$ of $P$ contains the weight of each value for query $i$, so the output is a weighted average of the rows of $V$:
#
# $$ O = PV \tag{1.3} $$
# <!-- (1.3) not evaluated: entries of arrays -->
#
# This completes the forward pass. A query *attends to* the keys that it may use. If query $i$ attends to key $j$, then $(i, j)$ is a *visible pair*. Up to now all pairs are visible.
#
# A model that generates text has no later tokens. In training, too, it must predict the tokens after $i$ from the tokens up to $i$ only. A **causal mask** therefore hides key $j$ from query $i$ where $j > i$; such a pair is a *masked pair*:
#
# $$ s_{ij} = -\infty \quad \text{where } j > i \tag{1.4} $$
# <!-- (1.4) not evaluated: entries of arrays -->
#
# A token attends to itself, so the pairs on the diagonal are visible, and every row has at least one visible pair. The mask must be applied *before* softmax. It is tempting to set the weights to 0 afterwards instead.
#
# **Predict** (guess). In the ahead head the weight of the next token is 0.64 on average, and other tokens, earlier and later, share the rest. We set its weights above the diagonal to 0 *after* softmax. What is then the sum of a row, averaged over the rows?
# <!-- 0.64 = np.diag(exact.softmax(exact.scores(real_head(1, 8).Q, real_head(1, 8).K)), 1).mean() -->

# %% tags=["predict"]
predict("1.2b", row_sum=0.4)  #> predict("1.2b", row_sum=...)

# %%
P_ahead = exact.softmax(scores(ahead))
late = np.tril(P_ahead)  # the diagonal and the entries below it
measured("1.2b", row_sum=float(late.sum(axis=1).mean()))

# %% [markdown]
# <details><summary>The sum after the mask</summary>
#
# The average row sums to 0.1545. The weights above the diagonal are lost, so the output is too small, by a different factor in every row.
#
# </details>
#
# If the mask is applied to the scores, the visible pairs of a row share the complete weight 1, because the masked pairs do not contribute to the sum in (1.2).
#
# <!-- exercise 1B --> Write the forward pass: (1.1), with `causal=True` also (1.4), then your softmax, then (1.3). `np.tri(N, dtype=bool)` is True on and below the diagonal. If you are stuck after seven minutes, run `hint("1B")`.

# %% [raw] name="about-1B"
# title = "Attention with a mask"
# difficulty = 2
# importance = 5
# minutes = 10
# hints = [
#   "Compute (1.1), (1.4), (1.2) and (1.3) in this order, one line each. Apply the mask before softmax.",
#   "np.tri(N, dtype=bool) is True where a query may attend to a key. np.where can select the score there and -np.inf elsewhere.",
#   "The scores divided by √d; if causal, -np.inf above the diagonal but not on it; my_softmax; and the product with V.",
# ]

# %% tags=["exercise"] name="ex-1B"
def my_attention(Q, K, V, causal=False):
    """O = softmax(QKᵀ/√d)V, with `causal` only over the keys j ≤ i.

    Q, K have shape (N, d), V has N rows; the result has V's shape.
    """
    ### BEGIN SOLUTION one line for each formula
    S = Q @ K.T / np.sqrt(Q.shape[1])  # (N, N)
    if causal:
        S = np.where(np.tri(len(S), dtype=bool), S, -np.inf)  # (N, N)
    return my_softmax(S) @ V  # (N, d)
    ### END SOLUTION


# %% tags=["check"] name="check-1B"
check("1B", my_attention)

# %% [markdown]
# You can get the weights from your function without a change: if $V$ is the identity matrix $I$, then $O = PI = P$. We apply a causal mask to the sharp head (its own model does not use one) and draw the weights.


# %%
N = len(sharp.Q)


def causal_map(attention):
    Q, K = sharp.Q.astype(np.float64), sharp.K.astype(np.float64)
    P = attention(Q, K, np.eye(N), True)
    previous = P.argmax(axis=1) == np.arange(N) - 1  # (N,), never in row 0
    print("largest weight on the previous token:", previous.sum(), "of", N, "rows")
    return attention_map(P, sharp.tokens, title="Head (0, 2) with a causal mask")


attempt(causal_map, my_attention)

# %% [markdown]
# All weights above the diagonal are 0. The dark line is one row below the diagonal, which is hard to see at this size. The printed count shows what this head does: in 468 of 471 rows, the largest weight is on the token before.
#
# ## 1.3 The gradient of softmax
#
# Training needs the *backward pass*, which computes gradients. A loss $\mathcal L$ is one number computed from $O$, and the later layers provide its gradient $dO$. In this course $dX$ is always $\partial \mathcal L / \partial X$ and has the shape of $X$. We want $dQ$, $dK$ and $dV$.
#
# (If this is new: $\partial p_j / \partial s_k$ is the rate at which $p_j$ changes if $s_k$ alone changes. There is one such number for each pair of indices $j$, $k$. The chain rule with indices is $\partial \mathcal L / \partial s_k = \sum_j (\partial \mathcal L / \partial p_j)(\partial p_j / \partial s_k)$.)
#
# Two of the three steps of the forward pass are matrix products. We start with the other one, softmax. If $dP$ is known, what is $dS$? One row is enough, because the rows do not depend on each other. A larger score $s_k$ increases $p_k$ and decreases all other weights of the row, because they share one sum:
#
# $$ \frac{\partial p_j}{\partial s_k} = p_j(\delta_{jk} - p_k), \qquad \delta_{jk} = 1 \text{ if } j = k, \text{ otherwise } 0 \tag{1.5} $$
# <!-- (1.5) not evaluated: derivative -->
#
# (Differentiate $e^{s_j} / \sum_l e^{s_l}$ by the quotient rule. Subtracting the maximum does not change the result.) The chain rule sums the effects of $s_k$ on every $p_j$:
#
# $$ ds_k = \sum_j dp_j \, p_j (\delta_{jk} - p_k) = p_k \Big( dp_k - \sum_j p_j \, dp_j \Big) $$
#
# The sum on the right does not depend on $k$, so it is one number per row, called $D$. For all rows at once, with $\circ$ for the product entry by entry,
#
# $$ dS = P \circ (dP - D), \qquad D_i = \sum_j P_{ij} \, dP_{ij} \tag{1.6} $$
# <!-- (1.6) not evaluated: derivative -->
#
# where $D_i$ is subtracted from all entries of row $i$. $D_i$ is the average of $dP$ over the row, weighted by $P$. An entry of $dS$ is therefore positive where $dP$ is above the average of its row, and negative where it is below.
#
# **Predict** (guess). What is the sum of the entries in one row of $dS$? You can find out without computing anything.

# %% tags=["predict"]
predict("1.3", row_sum=1)  #> predict("1.3", row_sum=...)

# %%
p = exact.softmax(np.array([2.0, 1.0, 0.0, 0.0, -1.0]))  # (5,)
dp = np.array([1.0, -2.0, 0.5, 0.0, 3.0])  # (5,)
J = np.diag(p) - np.outer(p, p)  # (5, 5), the matrix of (1.5)
ds = J @ dp
print("p ", p.round(3))
print("ds", ds.round(3))
measured("1.3", row_sum=abs(round(float(ds.sum()), 12)))

# %% [markdown]
# <details><summary>The sum, and two reasons for it</summary>
#
# The sum is zero for any $dP$. The weights sum to 1 for all scores, so an increase of some weights decreases the others by the same amount. There is a second reason. Adding $t$ to all scores of a row changes no weight, as we used in (1.2), and so it does not change the loss. The derivative of the loss with respect to $t$ is $\sum_k ds_k$, so this sum is 0.
#
# </details>
#
# The derivatives (1.5) form a matrix of $N^2$ entries for each row of $S$. These are $N^3$ entries for all rows: 104,487,111 for one of our heads. Formula (1.6) needs none of them.
#
# <!-- exercise 1C --> Write (1.6). If you are stuck after five minutes, run `hint("1C")`.
# <!-- 104,487,111 = 471**3 -->

# %% [raw] name="about-1C"
# title = "The gradient of softmax"
# difficulty = 2
# importance = 4
# minutes = 8
# hints = [
#   "(1.6) has two factors. Which one needs a number per row that you must compute first?",
#   "D is the sum of P∘dP along a row. Keep its axis (keepdims=True), so that it is subtracted from its own row.",
#   "First compute D of shape (rows, 1) from P and dP, then apply (1.6): the weight multiplies the difference, not dP alone.",
# ]

# %% tags=["exercise"] name="ex-1C"
def my_softmax_backward(P, dP):
    """dS by (1.6), for the weights P and their gradient dP.

    Both have shape (rows, columns), and so has the result; the rows of P sum to 1.
    """
    ### BEGIN SOLUTION one number for each row, then the formula
    D = (P * dP).sum(axis=-1, keepdims=True)  # (rows, 1)
    return P * (dP - D)
    ### END SOLUTION


# %% tags=["check"] name="check-1C"
check("1C", my_softmax_backward)


# %%
def agrees_with_the_matrix(backward):
    same = np.allclose(backward(p[None], dp[None]), (J @ dp)[None])
    print("same as the matrix of (1.5):", same)


attempt(agrees_with_the_matrix, my_softmax_backward)

# %% [markdown]
# ## 1.4 The gradients of Q, K and V
#
# The two matrix products are simpler. In $O = PV$, the entry $V_{jc}$ contributes to $O_{ic}$ with the factor $P_{ij}$, for every query $i$. Its gradient is therefore the sum of $P_{ij} \, dO_{ic}$ over all $i$. In the same way, $P_{ij}$ contributes to $O_{ic}$ with the factor $V_{jc}$, for every column $c$:
#
# $$ dV = P^\top dO, \qquad dP = dO \, V^\top \tag{1.7} $$
# <!-- (1.7) not evaluated: derivative -->
#
# $S = QK^\top / \sqrt d$ is also a product, with a constant factor that appears in both gradients:
#
# $$ dQ = \frac{dS \, K}{\sqrt d}, \qquad dK = \frac{dS^\top Q}{\sqrt d} \tag{1.8} $$
# <!-- (1.8) not evaluated: derivative -->
#
# To remember which one is transposed, look at the index of the sum: $dQ$ is a sum over the keys, $dK$ and $dV$ are sums over the queries. A sum over the queries means that the left matrix is transposed.
#
# One more step looks like a detail, but FlashAttention's backward pass depends on it. $D_i$ is a sum over a row of $P$ and a row of $dP$. Insert (1.7), and exchange the two sums:
#
# $$ D_i = \sum_j P_{ij} \sum_c dO_{ic} V_{jc} = \sum_c dO_{ic} \sum_j P_{ij} V_{jc} = \sum_c dO_{ic} \, O_{ic} \tag{1.9} $$
# <!-- (1.9) not evaluated: entries of arrays -->
#
# **Predict** (compute). To compute $D$ by (1.6), all words of $P$ and $dP$ are read. To compute it by (1.9), all words of $dO$ and $O$ are read. What is the ratio of the first number of words to the second for our head, with $N = 471$ and $d = 32$?

# %% tags=["predict"]
predict("1.4a", factor=15)  #> predict("1.4a", factor=...)

# %%
V, P_sharp = sharp.V.astype(np.float64), exact.softmax(scores(sharp))  # (N, d), (N, N)
dO = np.random.default_rng(0).standard_normal(V.shape)  # (N, d)
dP = dO @ V.T  # (N, N)
O = P_sharp @ V  # (N, d)
wide, narrow = (P_sharp * dP).sum(axis=1), (dO * O).sum(axis=1)  # (N,), (N,)
print("the same D:", np.allclose(wide, narrow))
print(f"words read: {P_sharp.size + dP.size:,} for (1.6), {dO.size + O.size:,} for (1.9)")
measured("1.4a", factor=(P_sharp.size + dP.size) / (dO.size + O.size))

# %% [markdown]
# <details><summary>The ratio, and how it grows</summary>
#
# Both formulas give the same $D$, but (1.9) reads 30,144 words instead of 443,682. The ratio is $N/d = 14.72$, and it grows with the sequence length.
#
# </details>
#
# $dS$ still needs $P$ and $dP$. But $O$ is known after the forward pass, so (1.9) gives $D$ before the first entry of $dP$ is computed. Then $P$ and $dP$ can be computed and used piece by piece (lesson 06).
#
# The mask needs no extra step in the backward pass. A masked pair has the weight 0, so (1.6) makes its $dS$ 0 as well.
#
# <!-- exercise 1D --> Recompute the weights as in exercise 1B, then apply (1.7), (1.6) and (1.8). Use either formula for $D$. If you are stuck after eight minutes, run `hint("1D")`.

# %% [raw] name="about-1D"
# title = "The backward pass of attention"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "First recompute the weights P as in exercise 1B, with mask and scale. Then go backward: O = PV was the last step, so dV and dP come first.",
#   "The shapes determine most of it: dV is (N, d) and uses P, dP is (N, N). my_softmax_backward turns dP into dS.",
#   "After P: dV and dP by (1.7), dS by my_softmax_backward, dQ and dK by (1.8). Both dQ and dK include the scale. dV and dK sum over the queries, so P and dS are transposed there.",
# ]

# %% tags=["exercise"] name="ex-1D"
def my_attention_backward(Q, K, V, dO, causal=False):
    """The gradients (dQ, dK, dV), a tuple, for the gradient dO of the loss with respect to O.

    Q, K, V, dO have shape (N, d); so have the three results. `causal` as in my_attention.
    """
    ### BEGIN SOLUTION recompute the weights, then apply the backward formulas step by step
    scale = 1 / np.sqrt(Q.shape[1])
    S = scale * (Q @ K.T)  # (N, N)
    if causal:
        S = np.where(np.tri(len(S), dtype=bool), S, -np.inf)  # (N, N)
    P = my_softmax(S)  # (N, N)
    dV = P.T @ dO  # (N, d)
    dP = dO @ V.T  # (N, N)
    dS = my_softmax_backward(P, dP)  # (N, N)
    dQ = scale * (dS @ K)  # (N, d)
    dK = scale * (dS.T @ Q)  # (N, d)
    return dQ, dK, dV
    ### END SOLUTION


# %% tags=["check"] name="check-1D"
check("1D", my_attention_backward)

# %% [markdown]
# The check compares your gradients with those of the library. You can also test a gradient with the forward pass alone, by finite differences. Change one entry $x$ of an input by a small $h$ in both directions and look at the loss:
#
# $$ \frac{\partial \mathcal L}{\partial x} \approx \frac{\mathcal L(x + h) - \mathcal L(x - h)}{2h} \tag{1.10} $$
# <!-- (1.10) not evaluated: derivative -->
#
# Take the loss $\mathcal L = \sum_{ic} dO_{ic} O_{ic}$, whose gradient with respect to $O$ is $dO$. Formula (1.10) takes two forward passes per entry, so we use it for a small head.
#
# **Predict** (compute). How many forward passes would (1.10) take for all of $dQ$, $dK$ and $dV$ of our real head, with $N = 471$ and $d = 32$?

# %% tags=["predict"]
predict("1.4b", passes=90_000)  #> predict("1.4b", passes=...)


# %%
def slopes(loss, X, h=1e-5):
    """The gradient of loss at X by (1.10), entry by entry; same shape as X."""
    G = np.zeros_like(X)
    for entry in np.ndindex(X.shape):
        step = np.zeros_like(X)
        step[entry] = h
        G[entry] = (loss(X + step) - loss(X - step)) / (2 * h)
    return G


# %%
def agrees_with_slopes(attention, backward):
    """Compare dQ, dK and dV with (1.10) for the causal forward pass, N = 6 and d = 3."""
    Q, K, V, dO = np.random.default_rng(1).standard_normal((4, 6, 3))

    def loss(Q, K, V):
        return (dO * attention(Q, K, V, True)).sum()

    dQ, dK, dV = backward(Q, K, V, dO, True)
    agrees = {
        "dQ": np.allclose(dQ, slopes(lambda X: loss(X, K, V), Q), atol=1e-7),
        "dK": np.allclose(dK, slopes(lambda X: loss(Q, X, V), K), atol=1e-7),
        "dV": np.allclose(dV, slopes(lambda X: loss(Q, K, X), V), atol=1e-7),
    }
    print("agrees with finite differences:", agrees)


attempt(agrees_with_slopes, my_attention, my_attention_backward)
measured("1.4b", passes=2 * (sharp.Q.size + sharp.K.size + sharp.V.size))

# %% [markdown]
# <details><summary>The cost of finite differences</summary>
#
# Formula (1.10) takes 90,432 forward passes. Your function takes one backward pass of five matrix products: $QK^\top$ again, $P^\top dO$, $dO\,V^\top$, $dS\,K$ and $dS^\top Q$. So we derive gradients, and we test the derivation on a small example.
#
# </details>
#
# ## 1.5 The memory traffic of naive attention
#
# All results of this lesson are correct, but $S$ and $P$ are materialised. The first section compared the words of $S$ with those of the inputs and the output:
#
# $$ \frac{\text{words of } S}{\text{words of } Q, K, V, O} = \frac{N^2}{4Nd} = \frac{N}{4d} \tag{1.11} $$
# <!-- (1.11) \frac{\text{words of } S}{\text{words of } Q, K, V, O} = costs.naive(N, d, Br=1, Bc=1, Bm=1, Bn=1).sizes["S"] / bounds.compulsory(N, d) -->
#
# The backward pass needs three matrices of $N^2$ words, $P$, $dP$ and $dS$, compared with $8Nd$ words for $Q, K, V, O$ and their four gradients. At $N = 4096$ and $d = 64$ the ratio is $3N/(8d) = 24$.
#
# All of this is for one head. Heads do not depend on each other, so a layer is a loop over heads, or the same formulas with one more axis in front. `real_heads()` lists the eight heads of this course:
# <!-- 24 = 3 * 4096 / (8 * 64) -->


# %%
def all_heads(attention):
    heads = [real_head(*pair) for pair in real_heads()]
    # Q, K and V, and both outputs, have shape (8, N, d)
    Q, K, V = (np.stack([getattr(h, x) for h in heads]).astype(np.float64) for x in "QKV")
    one_by_one = np.stack([attention(q, k, v) for q, k, v in zip(Q, K, V, strict=True)])
    at_once = exact.attention(Q, K, V)
    equal = np.allclose(one_by_one, at_once)
    print(f"Q {Q.shape}, O {at_once.shape}, equal to your loop: {equal}")
    print(f"words of S over all heads: {len(heads) * N * N:,}; of Q, K, V, O: {4 * Q.size:,}")


attempt(all_heads, my_attention)

# %% [markdown]
# For eight heads all counts are eight times as large: 1,774,728 words of $S$, and 482,304 words of $Q$, $K$, $V$ and $O$. Their ratio is 3.68, as for one head, because $N/(4d)$ does not depend on the number of heads.
#
# What is the memory traffic? Suppose that $S$ and $P$ are too large for fast memory and are materialised in slow memory. Then $S$ is written and read back for softmax, and $P$ is written and read back for $PV$. $Q, K, V$ are read, and $O$ is written. The traffic is
#
# $$ W = 4N^2 + 4Nd \tag{1.12} $$
# <!-- (1.12) W = costs.naive(N, d, Br=N, Bc=N, Bm=N, Bn=d).total -->
#
# The library's closed form for this schedule (`naive` in code) gives the same number if every word is read only once. For $N = 4096$ and $d = 64$ this takes 266,304 words of fast memory. The product $QK^\top$ keeps all of $Q$, one row of $K$ and one column of $S$ there; the product $PV$ keeps all of $O$, one row of $V$ and one column of $P$. (Lesson 02 explains the four tile sizes in the call.)
# <!-- 3.68 = 471 / (4 * 32) -->

# %%
N_long = 4096
plain = costs.naive(N_long, d, Br=N_long, Bc=N_long, Bm=N_long, Bn=d)
print(plain)
print(f"as (1.12): {4 * N_long**2 + 4 * N_long * d:,}; without S and P: {4 * N_long * d:,}")

# %% [markdown]
# The total is 68,157,440 words. Only 1,048,576 of them are inputs and output, the compulsory traffic. For each of these, 64 more words are moved because of $S$ and $P$, which are neither inputs nor results.
#
# $S$ and $O$ take $N^2 d$ multiply-adds each. The arithmetic intensity is $2N^2d / W = 31.5$, about $d/2$; it is the last line of the table that section 0.4 in lesson 00 printed. An A100 can do about two hundred multiply-adds per word, so naive attention is memory-bound. Its time depends on the bandwidth of slow memory, and the chip would wait for memory most of the time. Lesson 04 avoids this traffic by kernel fusion, so that attention can become compute-bound.
#
# ## Misconceptions
#
# - *"In float32, subtracting the maximum is not necessary."* The sharp head's largest score is 83.07, and the limit of float32 is 88.72. Scores a tenth larger broke 2 rows, and a missing $\sqrt d$ broke 470.
# - *"An overflow always gives NaN."* In head (1, 8) in float16, 21 rows became rows of zeros without any NaN.
# - *"A mask can be applied to the weights instead of the scores."* In head (1, 8) this left rows that sum to 0.1545 on average.
# - *"The backward pass needs $P$ and $dP$ to compute $D$."* $dO$ and $O$ are enough: 30,144 words instead of 443,682.
#
# ## Take-away
#
# - The inputs and the output have $Nd$ words each, the matrices between them $N^2$. Beyond $N = 4d$, $S$ alone is larger than all inputs and the output together.
# - Forward pass: $S = QK^\top/\sqrt d$, mask, softmax with the maximum subtracted, $O = PV$. Backward pass: $dV$, $dP$, $dS = P \circ (dP - D)$, $dQ$, $dK$.
# - Apart from the entries of its matrices, softmax and its gradient need only three numbers per row: the maximum and the sum in the forward pass, and $D_i$ in the backward pass. These are $N$ words each, while $S$ and $P$ have $N^2$.
#
# **In the literature's words**: formulas (1.1) to (1.3) are *scaled dot-product attention* (Vaswani and others). The FlashAttention paper calls this schedule standard attention; it materialises $S$ and $P$ in HBM.
#
# ## References
#
# - Vaswani and others, *Attention Is All You Need*, arXiv 1706.03762: the formula, and the reason for $\sqrt d$ (its footnote 4).
# - Dao and others, *FlashAttention*, arXiv 2205.14135: its appendix B derives the backward pass with $D_i$ as in (1.9).
# - The sentence encoder is [all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2), Apache-2.0. `iocourse.data.provenance()` returns how its heads were extracted.
#
# **What comes next.** <!-- next --> The code of this lesson reads an array without counting its words. In a machine, the $N^2$ words of $S$ are stored in one memory and must be moved to the arithmetic, a limited number at a time. How many words must be moved?
# <!-- 64, 31.5 = 4 * 4096**2 / (4 * 4096 * 64), 2 * 4096**2 * 64 / costs.naive(4096, 64, Br=4096, Bc=4096, Bm=4096, Bn=64).total -->
