# %% [markdown]
# # 01 Naive attention
#
# Before we can move fewer words we need to know which words there are. So this lesson writes one head of attention in the plainest way there is, forward and backward, a line of NumPy for each formula. It keeps every intermediate result and takes no short cut, so it is the yardstick that the other lessons are held against. At its end stands a count that explains why the rest of the course exists.
#
# **What you will learn**
#
# - to write attention's forward pass, with its scale and its mask, and to say what each line is for;
# - why softmax subtracts a maximum, and which rows of a real head break where it does not;
# - to derive the backward pass step by step, and to check a gradient without trusting anybody;
# - how many words the scores and the weights take beside everything else, and from which $N$ on they dominate.
#
# **Prerequisites**: NumPy (matrix products, axes, broadcasting), the chain rule; [00 Start here](00_start_here.ipynb) for how checks and hints work. All signs stand on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import costs, exact
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head, real_heads
from iocourse.explore import attention_map, bars, curve

# %% [markdown]
# ## 1.1 Scores, and a softmax that survives
#
# A language model reads a text as *tokens*, which are words or pieces of words, and works on them layer by layer. In each layer several *heads* let every token collect something from the others. A head receives three arrays of shape $(N, d)$: for each of $N$ tokens a query, a key and a value. Query $i$ is compared with every key, and the better key $j$ fits, the more of value $j$ goes into the answer. The comparison is a scalar product, one for each pair $(i, j)$:
#
# $$ S = \frac{QK^\top}{\sqrt d} \tag{1.1} $$
#
# An entry of $S$, one *score*, is written $s_{ij}$, in lower case. Without the division the scores would grow with $d$: a sum of $d$ independent products, each of size about 1, has size about $\sqrt d$.
#
# Our heads are real. They come from the sentence encoder all-MiniLM-L6-v2, where $d = 32$, reading a text of $N = 471$ tokens that was written for this course. `real_head(layer, head)` gives one of them. We take three that behave very differently, and look at their scores, which are also called logits: all of them, and the largest one of each row.

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
    print(f"scores from {S.min():.2f} to {S.max():.2f}, a row's largest", end=" ")
    print(f"from {top.min():.2f} to {top.max():.2f}, median {np.median(top):.2f}")
labels = ["broad (0, 11)", "ahead (1, 8)", "sharp (0, 2)"]
largest = [round(float(scores(head).max()), 2) for head in (broad, ahead, sharp)]
bars(
    dict(zip(labels, largest, strict=True)),
    dict.fromkeys(labels, 11.09),
    title="The largest score of three real heads",
    unit="score",
    mark="e^s lost above",
)

# %% [markdown]
# The broad head's scores stay between −3.88 and 4.55. The sharp head's bar is eighteen times as long: its scores run from −63.81 to 83.07, and no input was made up for that: a trained head computes them for an ordinary page of text. The page is longer than what the model was tuned on, at most 128 tokens, and this has a part in it; the first 128 tokens alone reach 41.08.
#
# Softmax turns each row of scores into weights. The exponential makes them positive, the division makes them sum to 1:
#
# $$ P_{ij} = \frac{e^{s_{ij}}}{\sum_k e^{s_{ik}}} $$
#
# On paper this is complete. In a computer, numbers end: float16 at 65,504, so that $e^s$ is lost for $s > 11.09$, the black mark in the picture, and float32 at $3.4 \cdot 10^{38}$, so that it is lost for $s > 88.72$.
#
# **Predict** (guess). We compute the formula as it stands, in float16. In how many of the 471 rows do the weights come out wrong, for each of the three heads? The scores printed above are enough for an estimate. Write your numbers in place of `...`, then run the cells.
# <!-- head = real_head(0, 2) -->
# <!-- 41.08 = exact.scores(head.Q[:128], head.K[:128]).max() -->
# <!-- 65,504, 11.09 = np.finfo(np.float16).max, math.log(np.finfo(np.float16).max) -->
# <!-- 3.4 \cdot 10^{38}, 88.72 = np.finfo(np.float32).max, math.log(np.finfo(np.float32).max) -->

# %% tags=["predict"]
predict("1.1", sharp=471, ahead=230, broad=0)  #> predict("1.1", sharp=..., ahead=..., broad=...)


# %%
def naive_softmax(S):
    """The formula as it stands."""
    E = np.exp(S)
    return E / E.sum(axis=-1, keepdims=True)


def broken_rows(softmax, S, dtype):
    """How many rows of softmax(S) hold a NaN, and how many are zero throughout."""
    with np.errstate(all="ignore"):  # NumPy would warn; we count instead
        P = softmax(S.astype(dtype))
    return int(np.isnan(P).any(axis=1).sum()), int((P == 0).all(axis=1).sum())


# %%
for name, head in {"sharp": sharp, "ahead": ahead, "broad": broad}.items():
    nan, zero = broken_rows(naive_softmax, scores(head), np.float16)
    print(f"{name}: {nan} rows with NaN, {zero} rows of zeros")
    measured("1.1", **{name: nan + zero})

# %% [markdown]
# <details><summary>How many rows broke, and in which two ways</summary>
#
# All 471 rows of the sharp head break, and none of the broad one. In the middle stands head (1, 8) with 249 rows, a few more than the rows whose largest score lies above 11.09, for they break in two ways. In 228 rows an exponential became infinite, and infinity over infinity is NaN, which nobody overlooks. In 21 more rows every exponential still fitted, but their *sum* did not: each weight is a number divided by infinity, which is 0. Such a row looks healthy and attends to nothing.
#
# </details>
#
# Is float32 enough, then? Here is the sharp head as it is, then with scores a tenth larger, then with the division by $\sqrt d$ forgotten.

# %%
for factor in (1.0, 1.1, np.sqrt(32)):
    S = factor * scores(sharp)
    broken = sum(broken_rows(naive_softmax, S, np.float32))
    print(f"scores × {factor:.2f}: largest {S.max():.2f}, broken rows in float32: {broken}")

# %% [markdown]
# As it is, no row breaks: 83.07 leaves 5.65 to the limit of 88.72. A tenth more, and 2 rows are gone; without the scale, 470 of 471. A wider format moves the cliff and does not remove it.
#
# What removes it costs one subtraction. Multiply numerator and denominator by the same $e^{-m_i}$, and the weights stay as they are. Choose $m_i$ as the largest score of the row, and the largest exponent becomes 0:
#
# $$ P_{ij} = \frac{e^{s_{ij} - m_i}}{\sum_k e^{s_{ik} - m_i}}, \qquad m_i = \max_k s_{ik} \tag{1.2} $$
#
# Every exponential now lies between 0 and 1 and one of them is 1, so the sum lies between 1 and $N$. Nothing can overflow while the format can hold $N$, and the sum cannot vanish. A score far below the maximum still underflows to 0, which is its weight to all the digits there are. The same goes for a score of $-\infty$, and we will use that soon.
#
# <!-- exercise 1A --> Write (1.2) for a matrix of scores, each row for itself. Leave `S` as it is: make new arrays instead of updating it in place. If you are stuck after five minutes, run `hint("1A")` in a cell of your own.
# <!-- 5.65 = math.log(np.finfo(np.float32).max) - head.stats["logit_max"] -->

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
# Not one row breaks, in the format that had lost every row of the sharp head.
#
# ## 1.2 The output, and who may look at whom
#
# Row $i$ of $P$ says how much of each value query $i$ takes, so its output is a weighted average of the rows of $V$:
#
# $$ O = PV \tag{1.3} $$
#
# That is the whole forward pass. What a head *does* can be seen in its $P$. The sharp head is said to look at the token before.
#
# **Predict** (guess). In how many of its 471 rows does the largest weight lie on the token just before? Row 0 has none. Remember that the tuning never went beyond 128 tokens: which rows would you trust least?

# %% tags=["predict"]
predict("1.2a", previous=450)  #> predict("1.2a", previous=...)

# %%
def on_previous(P):
    """For each row, whether its largest weight lies on the token just before; shape (N,)."""
    return P.argmax(axis=1) == np.arange(len(P)) - 1


P_sharp, P_broad = exact.softmax(scores(sharp)), exact.softmax(scores(broad))  # (N, N) each
N = len(P_sharp)
hit = on_previous(P_sharp)
print(f"rows 0 to 127: {hit[:128].sum()} of 128, rows 128 to 470: {hit[128:].sum()} of 343")
measured("1.2a", previous=int(hit.sum()))
attention_map(P_sharp, sharp.tokens, title="Head (0, 2): the token before")

# %% [markdown]
# <details><summary>Which rows miss it</summary>
#
# 375 rows, and the map shows where the other 96 are: from row 128 on, 341 of 343 rows lie on the line below the diagonal, but in the first 128 rows only 34 do. So it is the early rows, whose places the tuning knew, that fail.
#
# </details>
#
# Have some rows lost their habit, or does something distract them? We can cut the text after 128 tokens and look again. In layer 0 a query or a key depends on its own token and place alone, so the first rows and columns of $S$ are what the shorter text would give.
# <!-- 96 = 471 - 375 -->

# %%
cut = exact.softmax(scores(sharp)[:128, :128])
print("text cut after 128 tokens:", on_previous(cut).sum(), "of 128")

# %% [markdown]
# In the short text 126 of the 128 rows look at the token before. In the long one the same queries meet keys far ahead, which tuning never taught them to tell from their neighbour: the short lines to the right of the diagonal.
#
# The broad head is another matter. Its whole map would be one pale field, so the picture shows the text cut after 32 tokens.

# %%
def keys_needed(P):
    """The median over the rows: how many keys hold 90 % of a row's weight."""
    held = np.sort(P, axis=1)[:, ::-1].cumsum(axis=1)  # (N, N), largest weights first
    return int(np.median((held < 0.9).sum(axis=1) + 1))


print("keys for 90 %: sharp", keys_needed(P_sharp), "broad", keys_needed(P_broad))
first = exact.softmax(scores(broad)[:32, :32])
attention_map(first, broad.tokens[:32], title="Head (0, 11), the text cut after 32 tokens")

# %% [markdown]
# In at least half of the sharp head's rows a single key holds 90 % of the weight. The broad head needs 368 keys for it. What stands out in its map is the *column* of [CLS], a token every text begins with: 21 of the other 31 rows give it more than twice an even share of 1/32, up to 0.25, and [CLS] itself keeps 0.79. The rest of a row is spread over nearly all keys.
# <!-- head = real_head(0, 11) -->
# <!-- P = exact.softmax(exact.scores(head.Q[:32], head.K[:32])) -->
# <!-- 21, 31 = (P[1:, 0] > 2 / 32).sum(), len(P) - 1 -->
# <!-- 0.25, 0.79 = P[1:, 0].max(), P[0, 0] -->
#
# A model that writes text token by token must not look ahead at all: while it learns, the tokens after $i$ are the ones it is asked to guess. A **causal mask** hides key $j$ from query $i$ where $j > i$:
#
# $$ s_{ij} = -\infty \quad \text{where } j > i \tag{1.4} $$
#
# A token may look at itself, so the diagonal stays, and no row is empty. The mask belongs *before* softmax. It is tempting to set weights to 0 afterwards instead.
#
# **Predict** (guess). Head (1, 8) looks at the token after. We set its weights above the diagonal to 0 *after* softmax. What is then the sum of a row, averaged over the rows?

# %% tags=["predict"]
predict("1.2b", row_sum=0.4)  #> predict("1.2b", row_sum=...)

# %%
P_ahead = exact.softmax(scores(ahead))
late = np.tril(P_ahead)  # keeps the diagonal and what lies below it
measured("1.2b", row_sum=float(late.sum(axis=1).mean()))

# %% [markdown]
# <details><summary>How much is left</summary>
#
# Only 0.1545 is left in an average row, and the rest of the weight is lost: the output shrinks, and by another factor in every row.
#
# </details>
#
# With the mask in the scores the visible keys share the whole weight, because the hidden ones never enter the sum.
#
# <!-- exercise 1B --> Write the forward pass: (1.1), with `causal=True` also (1.4), then your softmax, then (1.3). `np.tri(N, dtype=bool)` is True on and below the diagonal. Stuck after seven minutes: `hint("1B")`.

# %% [raw] name="about-1B"
# title = "Attention with a mask"
# difficulty = 2
# importance = 5
# minutes = 10
# hints = [
#   "Compute (1.1), (1.4), (1.2) and (1.3) in this order, one line each. The mask comes before softmax.",
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
# Now your attention can show its own weights. With $V$ the identity matrix, $O = PI = P$. We put a causal mask on the sharp head, which its own model never does, and see what the early rows do when the keys ahead are hidden.


# %%
def causal_map(attention):
    Q, K = sharp.Q.astype(np.float64), sharp.K.astype(np.float64)
    P = attention(Q, K, np.eye(N), True)
    print("largest weight on the token before:", on_previous(P).sum(), "of", N)
    return attention_map(P, sharp.tokens, title="Head (0, 2) with a causal mask")


attempt(causal_map, my_attention)

# %% [markdown]
# Now 468 of 471 rows: what had distracted the early queries lay ahead of them.
#
# ## 1.3 Back through softmax
#
# Training needs the way back. A loss $\mathcal L$ is one number computed from $O$, and some later layer hands us its gradient $dO$. In this course $dX$ always stands for $\partial \mathcal L / \partial X$ and has the shape of $X$. We want $dQ$, $dK$ and $dV$.
#
# Of the three steps forward, two are matrix products. The third is softmax, and we start with it: suppose $dP$ is known, what is $dS$? One row is enough, since rows do not mix. Raising the score $s_k$ raises $p_k$, and lowers all the others, because they share one sum:
#
# $$ \frac{\partial p_j}{\partial s_k} = p_j(\delta_{jk} - p_k), \qquad \delta_{jk} = 1 \text{ if } j = k, \text{ else } 0 \tag{1.5} $$
#
# (Differentiate $e^{s_j} / \sum_l e^{s_l}$ by the quotient rule; the maximum cancels and plays no part.) The chain rule adds up what $s_k$ does to every $p_j$:
#
# $$ ds_k = \sum_j dp_j \, p_j (\delta_{jk} - p_k) = p_k \Big( dp_k - \sum_j p_j \, dp_j \Big) $$
#
# The sum on the right does not depend on $k$: it is one number for the whole row. It is called $D$. For all rows at once, with $\circ$ for the product entry by entry,
#
# $$ dS = P \circ (dP - D), \qquad D_i = \sum_j P_{ij} \, dP_{ij} \tag{1.6} $$
#
# where $D_i$ is subtracted from all of row $i$. $D_i$ is the average of $dP$ over the row, weighted by $P$: a score has a positive slope if its $dP$ lies above the average of its row, and a negative one if it lies below.
#
# **Predict** (guess). What do the numbers in one row of $dS$ sum to? You can find out without computing anything.

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
# <details><summary>What they sum to, and two reasons</summary>
#
# Zero, for any $dP$. The weights sum to 1 whatever the scores are, so what one score gains the others of its row lose. There is another way to see it: a number added to a whole row of scores changes no weight, as we used in (1.2), so the loss has no slope in that direction.
#
# </details>
#
# The matrix in (1.5) has $N^2$ entries for each row, $N^3$ for all rows: 104,487,111 for one of our heads. Formula (1.6) gets by without any of them.
#
# <!-- exercise 1C --> Write (1.6). Stuck after five minutes: `hint("1C")`.
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
# ## 1.4 The way back to Q, K and V
#
# The two matrix products are quicker. In $O = PV$, the number $V_{jc}$ enters $O_{ic}$ with the factor $P_{ij}$, for every query $i$; so its gradient collects $P_{ij} \, dO_{ic}$ over all $i$. In the same way $P_{ij}$ enters $O_{ic}$ with the factor $V_{jc}$, for every column $c$:
#
# $$ dV = P^\top dO, \qquad dP = dO \, V^\top \tag{1.7} $$
#
# And $S = QK^\top / \sqrt d$ is a product like that one, with a factor in front that both gradients inherit:
#
# $$ dQ = \frac{dS \, K}{\sqrt d}, \qquad dK = \frac{dS^\top Q}{\sqrt d} \tag{1.8} $$
#
# If you forget which one is transposed, think of who is summed over: $dQ$ gathers over the keys, $dK$ and $dV$ gather over the queries.
#
# One more step, which looks like a detail and carries FlashAttention's whole backward pass. $D_i$ was a sum over a row of $P$ and a row of $dP$. Put (1.7) in, and exchange the two sums:
#
# $$ D_i = \sum_j P_{ij} \sum_c dO_{ic} V_{jc} = \sum_c dO_{ic} \sum_j P_{ij} V_{jc} = \sum_c dO_{ic} \, O_{ic} \tag{1.9} $$
#
# **Predict** (compute). To compute $D$ by (1.6) one reads all words of $P$ and $dP$. To compute it by (1.9) one reads all words of $dO$ and $O$. By what factor do the two differ on our head, with $N = 471$ and $d = 32$?

# %% tags=["predict"]
predict("1.4a", factor=15)  #> predict("1.4a", factor=...)

# %%
V = sharp.V.astype(np.float64)
dO = np.random.default_rng(0).standard_normal(V.shape)  # (N, d)
dP = dO @ V.T  # (N, N)
O = P_sharp @ V  # (N, d)
wide, narrow = (P_sharp * dP).sum(axis=1), (dO * O).sum(axis=1)  # (N,), (N,)
print("the same D:", np.allclose(wide, narrow))
print(f"words read: {P_sharp.size + dP.size:,} for (1.6), {dO.size + O.size:,} for (1.9)")
measured("1.4a", factor=(P_sharp.size + dP.size) / (dO.size + O.size))

# %% [markdown]
# <details><summary>The factor, and what it grows with</summary>
#
# The same $D$ from 30,144 words instead of 443,682, a factor of $N/d = 14.72$. It grows with the length of the text.
#
# </details>
#
# The mask needs no step of its own on the way back: a hidden pair has the weight 0, and (1.6) makes its $dS$ 0 as well.
#
# <!-- exercise 1D --> Compute the weights once more as in exercise 1B, then walk back through (1.7), (1.6) and (1.8). For $D$ take either formula. Stuck after eight minutes: `hint("1D")`.

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
    ### BEGIN SOLUTION the weights once more, then back, step by step
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
# The check compared you with the library. You need not trust either: a gradient can be tested with nothing but the forward pass. Move one entry $x$ of an input a little to both sides and see what the loss does:
#
# $$ \frac{\partial \mathcal L}{\partial x} \approx \frac{\mathcal L(x + h) - \mathcal L(x - h)}{2h} \tag{1.10} $$
#
# The simplest loss whose gradient with respect to $O$ is $dO$ is $\mathcal L = \sum_{ic} dO_{ic} O_{ic}$. It costs two forward passes for each entry, so we do it on a small head.
#
# **Predict** (compute). How many forward passes would (1.10) take for all of $dQ$, $dK$ and $dV$ on our real head, $N = 471$ and $d = 32$?

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
    """Whether dQ, dK and dV agree with (1.10) for the causal forward pass, N = 6 and d = 3."""
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
# <details><summary>The price of not deriving</summary>
#
# 90,432 forward passes by (1.10), against a single backward pass of five matrix products: $QK^\top$ once more, $P^\top dO$, $dO\,V^\top$, $dS\,K$, $dS^\top Q$. This is why we derive gradients, and why we test the derivation on something small.
#
# </details>
#
# ## 1.5 Counting words
#
# Everything above was correct, and nothing was economical. Look at the shapes: $Q$, $K$, $V$ and $O$ have $Nd$ words each, $S$ and $P$ have $N^2$ each. One word is one number; how many bytes it has is a matter of its format.
#
# **Predict** (guess). How many times the words of $Q, K, V, O$ together does $S$ take at $N = 4096$ and $d = 64$? And from which $N$ on is $S$ at least as large, still at $d = 64$?

# %% tags=["predict"]
predict("1.5", ratio=64, crossover=64)  #> predict("1.5", ratio=..., crossover=...)

# %%
d = 64
lengths = [2**k for k in range(4, 18)]  # 16 to 131,072
print(f"{'N':>8} {'Q, K, V, O':>14} {'S':>16} {'ratio':>8}")
for length in [*lengths[::2], 131_072]:
    print(f"{length:>8,} {4 * length * d:>14,} {length**2:>16,} {length / (4 * d):>8g}")
measured("1.5", ratio=4096 // (4 * d), crossover=min(n for n in lengths if n**2 >= 4 * n * d))

# %% [markdown]
# <details><summary>The ratio, and where it is 1</summary>
#
# At $N = 4096$, $S$ alone takes 16 times the words of $Q, K, V$ and $O$ together. A guess of $N/d = 64$ compares $S$ with one of the four. The two are equal at $N = 4d = 256$ tokens, a short page of text.
#
# </details>
#
# In general,
#
# $$ \frac{\text{words of } S}{\text{words of } Q, K, V, O} = \frac{N^2}{4Nd} = \frac{N}{4d} \tag{1.11} $$
#
# At $N = 131{,}072$ the ratio is 512, and $S$ has 17,179,869,184 words; with two bytes for each word this is 34.4 GB, for one head.
# <!-- 34.4 = 2 * 131072**2 / 10**9 -->

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
# Two straight lines on logarithmic axes, one with twice the slope of the other. Together $S$ and $P$ draw level with the rest at $N = 2d = 128$, and from there on they run away.
#
# The backward pass adds two more of them: it needs $P$, $dP$ and $dS$, which is $3N^2$ words beside the $8Nd$ of $Q, K, V, O$ and their four gradients. At $N = 4096$, $d = 64$ this is a factor of $3N/8d = 24$. And all of this is one head. Heads do not look at each other, so a layer is a loop over heads, or the same formulas with one more axis in front. `real_heads()` names the eight heads that come with the course:
# <!-- 128, 24 = 2 * 64, 3 * 4096 / (8 * 64) -->


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
# Eight heads take eight times the words, 1,774,728 of $S$ beside 482,304, and the ratio of 3.68 is that of one head: $N/4d$ knows nothing of the number of heads.
#
# What does this cost? Arithmetic first: $S$ and $O$ take $N^2 d$ multiply-adds each, that is $d$ of them for each word of $S$ and of $P$. Now suppose that $S$ and $P$ are too large for the memory next to the arithmetic and live in a larger, slower one. Then $S$ is written there and read back for softmax, $P$ is written and read back for $PV$, while $Q, K, V$ are read and $O$ is written. We call the words moved $W$:
#
# $$ W = 4N^2 + 4Nd \tag{1.12} $$
#
# The library's closed form for this schedule says the same, with tiles so large that nothing else is read twice, in 266,304 words of fast memory: all of $Q$ or of $O$, and a row or a column of scores at a time. (What the four tile sizes do is a matter for lesson 02.)
# <!-- 3.68 = 471 / (4 * 32) -->

# %%
N_long = 4096
plain = costs.naive(N_long, d, Br=N_long, Bc=N_long, Bm=N_long, Bn=d)
print(plain)
print(f"as (1.12): {4 * N_long**2 + 4 * N_long * d:,}; without S and P: {4 * N_long * d:,}")

# %% [markdown]
# 68,157,440 words, of which 1,048,576 are input and output: for each word that attention is about, 64 more move only because of $S$ and $P$, nobody's input and nobody's output. For each word moved there are $2N^2d / W = 31.5$ multiply-adds, about $d/2$: the last line of section 0.4 in lesson 00. There the data sheet of an A100 came to about two hundred while one word arrives. With a schedule like this one it would spend most of its time waiting.
#
# ## Misconceptions
#
# - *"Subtracting the maximum is a refinement; in float32 one can do without."* The sharp head's largest score is 83.07 and float32 ends at 88.72. Scores a tenth larger broke 2 rows, a forgotten $\sqrt d$ broke 470.
# - *"An overflow shows as NaN."* 21 rows of head (1, 8) became rows of zeros instead, without a single NaN.
# - *"A mask can as well be laid over the weights."* Over head (1, 8) it left rows that sum to 0.1545 on average.
# - *"The backward pass needs $P$ and $dP$ to know $D$."* $dO$ and $O$ suffice: 30,144 words instead of 443,682.
#
# ## Take-away
#
# - Forward: $S = QK^\top/\sqrt d$, mask, softmax minus the maximum, $O = PV$. Backward: $dV$, $dP$, $dS = P \circ (dP - D)$, $dQ$, $dK$.
# - Three numbers are all that softmax must know about a whole row: its maximum and its sum on the way forward, $D_i$ on the way back. Keep this in mind: that is $N$ words each, where $S$ and $P$ have $N^2$.
# - Inputs and outputs grow like $Nd$, the matrices between them like $N^2$. Beyond $N = 4d$, $S$ alone is larger than all of them.
#
# ## References
#
# - Vaswani and others, *Attention Is All You Need*, arXiv 1706.03762: the formula, and the reason for $\sqrt d$ (its footnote 4).
# - Dao and others, *FlashAttention*, arXiv 2205.14135: its appendix B derives the backward pass with $D_i$ as in (1.9).
# - The sentence encoder is [all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2), Apache-2.0. `iocourse.data.provenance()` says how its heads were extracted.
#
# ## What comes next
#
# In this lesson an array was simply there, and reading it was free. In a machine these $N^2$ words must live somewhere, and be moved from there to where the arithmetic is, a limited number at a time. How many words must move then, and who decides? [02 A machine with two memories](02_two_level_memory.ipynb) builds that machine.
# <!-- 64, 31.5 = 4 * 4096**2 / (4 * 4096 * 64), 2 * 4096**2 * 64 / costs.naive(4096, 64, Br=4096, Bc=4096, Bm=4096, Bn=64).total -->
