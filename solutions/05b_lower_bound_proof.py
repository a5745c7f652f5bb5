# %% [markdown]
# # 05b Proof of the lower bound
#
# Theorem A (section 5.7) holds for every schedule of its class, no matter how it cuts rows, keeps scores or recomputes them. Its proof rests on one question: how many products can be computed from $R$ words?
#
# **What you will learn**
#
# - to turn the answer to this question into a lower bound for any schedule;
# - to prove Theorem A and know which step needs which hypothesis;
# - to compare it with schedules that compute no score twice, and with published bounds.
#
# **Prerequisites**: [lesson 05](05_lower_bounds.ipynb), and lesson 02 for the matrix product. Symbols and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 5E -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from itertools import combinations, product

import numpy as np

from iocourse import bounds, pebbling, schedules
from iocourse.course import attempt, challenge, check, explore, hint, measured, predict

# %% [markdown]
# ## 5.8 Segments
#
# We start with the matrix product $C = AB$, with $A$ $(m, k)$ and $B$ $(k, n)$. It consists of $mnk$ multiply-adds $c_{ij} \leftarrow c_{ij} + a_{il}b_{lj}$. Each one needs three words: $a_{il}$, $b_{lj}$ and $c_{ij}$.
#
# **Predict** (guess). You may choose 4 words of $A$, 4 of $B$ and 4 of $C$. How many multiply-adds can be computed from them at most?

# %% tags=["predict"]
predict("5.8a", most=8)  #> predict("5.8a", most=...)

# %%
def most_multiply_adds(words, side):
    """Return the maximum over all choices of `words` words of each array, side x side."""
    choices = list(combinations(range(side * side), words))
    chosen = np.zeros((len(choices), side * side), int)
    np.put_along_axis(chosen, np.array(choices), 1, axis=1)
    chosen = chosen.reshape(-1, side, side)
    uses = np.einsum("xil,ylj->xyij", chosen, chosen)  # multiply-adds of each word of C
    return int(np.sort(uses.reshape(-1, side * side))[:, -words:].sum(axis=1).max())


measured("5.8a", most=most_multiply_adds(4, 3))
corner, apart = np.zeros((3, 3), int), np.eye(3, dtype=int)
corner[:2, :2] = apart[0, 2] = 1
explore.loomis_whitney({"a corner": [corner, corner, corner],
                        "scattered": [apart[::-1], apart, apart.T[::-1]]},
                       title="4 words of each array, in two ways")

# %% [markdown]
# <details><summary>Which words give the most multiply-adds</summary>
#
# At most 8, if the words of each array form a square of side 2. In 3 × 3 matrices no choice gives more. The scattered words on the right do not fit together and give only 3.
#
# </details>
#
# In the figure, $i$ runs to the lower left, $j$ to the lower right and $l$ upwards. Each multiply-add $(i, j, l)$ is a small cube, and its three words are its projections (its shadows) on the three walls.
#
# Now take any run of any schedule and divide it into *segments*. A segment ends when $T$ words have been loaded since its start.
#
# ```
# present at the start: ≤ M        ≤ M        ≤ M               ≤ M
# run:                | segment  | segment  | segment  | ... | the last one |
# words loaded:          T          T          T               fewer than T
# ```
#
# A segment has at most $R = M + T$ different words to work with. Suppose that $R$ words allow at most $F(R)$ multiply-adds. The incomplete last segment computes fewer than $F(R)$ (step 5 of section 5.9 shows why), so all $mnk$ multiply-adds need at least $\lfloor mnk/F(R) \rfloor$ full segments. Each full segment loads $T$ words:
#
# $$ W \ge T \left\lfloor \frac{mnk}{F(M + T)} \right\rfloor . \tag{5.4} $$
# <!-- (5.4) W >= T * bounds.segments.segments_A(m * n * k, M + T, d) with F = lambda R: bounds.products_per_segment(R, d) where T >= 1 -->
#
# (A word of $C$ may start as a zero. This counts as one of the $T$ loads; as in section 5.6, we count its store for it.) The order of the operations does not appear, so (5.4) holds for every schedule. Every $T$ gives a valid bound, and we take the best one. It remains to find $F$.
# <!-- 3 × 3 as input -->

# %% [markdown]
# Loomis and Whitney proved in 1949 that a set of points whose projections on the three walls have $n_A$, $n_B$ and $n_C$ points has at most $\sqrt{n_A n_B n_C}$ points. The corner reaches this maximum, $\sqrt{4 \cdot 4 \cdot 4} = 8$. Here $n_A$, $n_B$ and $n_C$ are the words of the three arrays, so
#
# $$ \text{multiply-adds} \le \sqrt{n_A\, n_B\, n_C} \le \left(\frac{R}{3}\right)^{3/2} = F_\times(R) , \tag{5.5} $$
# <!-- (5.5) \text{multiply-adds} <= not evaluated: step of a proof -->
# <!-- (5.5) \text{multiply-adds} <= bounds.products_per_segment(R, d) where R < 3 * d**2 -->
# <!-- (5.5) \text{multiply-adds} <= not evaluated: definition -->
#
# because a product of three numbers with the sum $R$ is largest when they are equal.
#
# **If this is new**: the first inequality is named after [Loomis and Whitney](https://en.wikipedia.org/wiki/Loomis%E2%80%93Whitney_inequality). The second is the inequality of the arithmetic and geometric means ([AM–GM](https://en.wikipedia.org/wiki/AM%E2%80%93GM_inequality)); for two numbers it is $\sqrt{xy} \le (x + y)/2$.
#
# The ratio $T/F_\times(M + T)$ is largest for $T = 2M$ (set its derivative to 0). Then $R = 3M$ and $F_\times(R) = M^{3/2}$. Rounding down costs at most one segment, so (5.4) with $F_\times$ for $F$ becomes the bound of lesson 02:
#
# $$ W \ge 2M\left\lfloor \frac{mnk}{M^{3/2}} \right\rfloor \ge \frac{2mnk}{\sqrt M} - 2M . \tag{5.6} $$
# <!-- (5.6) W >= 2 * M * bounds.segments.segments_B(m * n * k, 3 * M) -->
# <!-- (5.6) W >= bounds.matmul(m, n, k, M) rounded down where bounds.matmul(m, n, k, M) > m * k + k * n + m * n -->
#
# ### How many products do R words allow?
#
# Attention consists of two products, $S = QK^\top$ and $O = PV$, and the scores between them need not be stored. We count the $N^2d$ products $p_{ij}v_{jc}$. For one of them, a segment needs the word $v_{jc}$, the *accumulator* $o_{ic}$ (the sum to which the product is added) and $p_{ij}$. There are two ways to have $p_{ij}$:
#
# - The score, a partial sum of the score or its exponential is *at hand*: it was in fast memory at the start of the segment or was read. This takes one word.
# - The weight is *computed from nothing* within the segment, which means from complete rows, without any word of the pair $(i, j)$. This needs all $d$ words of $q_i$ and all $d$ words of $k_j$.
#
# The second way makes attention different from a matrix product. A complete row is expensive, with $d$ words. But $x$ complete rows of $Q$ and $y$ of $K$ give $xy$ scores that take no words.
#
# <!-- exercise 5C --> Five boolean arrays state which words a segment has. Count the products $p_{ij}v_{jc}$ that it can compute. The numbers of queries and keys may differ. If you are stuck after six minutes, run `hint("5C")` in a new cell.

# %% [raw] name="about-5C"
# title = "The products of one segment"
# difficulty = 3
# importance = 5
# minutes = 10
# hints = [
#   "First find the pairs (i, j) whose weight is available. There are two ways to have it.",
#   "A row of q is complete if all its words are resident. A weight can be computed if row i of q and row j of k are both complete. Combine this with s so that no pair counts twice.",
#   "For each pair, count the columns in which both the value and the accumulator are resident. Over all pairs this is a matrix product followed by an elementwise product, after the booleans are converted to numbers.",
# ]

# %% tags=["exercise"] name="ex-5C"
def my_products(q, k, v, o, s):
    """Return the number of products p_ij v_jc that can be computed.

    q, o: (queries, d). k, v: (keys, d). s: (queries, keys). Boolean arrays, True if the word of
    Q, the accumulator of O, the word of K or V, or the score of the pair is present. NumPy's @
    and einsum do not count booleans: convert them to numbers first, with .astype(int).
    """
    ### BEGIN SOLUTION which pairs have a weight, then in how many columns
    made = q.all(axis=1)[:, None] & k.all(axis=1)[None, :]  # (queries, keys)
    pairs = (s | made).astype(int)
    return int((pairs @ v.astype(int) * o).sum())
    ### END SOLUTION


# %% tags=["check"] name="check-5C"
check("5C", my_products)

# %% [markdown]
# Step 4 of section 5.9 derives the maximum for $R$ words; until then we take it as given:
#
# $$ F(R) = \begin{cases} \dfrac{(R + d^2)^2}{16d} & R \ge 3d^2, \\[1ex] \left(\dfrac R3\right)^{3/2} & R < 3d^2. \end{cases} \tag{5.7} $$
# <!-- (5.7) F(R) = bounds.products_per_segment(R, d) where R >= 3 * d**2 -->
# <!-- (5.7) F(R) = bounds.products_per_segment(R, d) where R < 3 * d**2 -->
#
# The second case is (5.5): complete rows are too expensive, and attention is like a matrix product with scores in place of $A$. We test (5.7) for two queries, two keys and $d = 1$, which have 8 words of $Q$, $K$, $V$ and $O$ and 4 scores, by trying every choice of words.
#
# **Predict** (guess). From all 12 words one can compute $N^2d = 4$ products. What is the smallest number of words that is enough for all four?

# %% tags=["predict"]
predict("5.8", enough=8)  #> predict("5.8", enough=...)

# %%
def try_everything(count):
    """Return the maximum of products for each number of words, over all 4096 choices."""
    most = dict.fromkeys(range(13), 0)
    for choice in product((False, True), repeat=12):
        words, s = np.array(choice[:8]).reshape(4, 2, 1), np.array(choice[8:]).reshape(2, 2)
        most[sum(choice)] = max(most[sum(choice)], count(*words, s))
    return most


def fewest_words(count):
    return min(R for R, products in try_everything(count).items() if products == 4)


most = attempt(try_everything, my_products)
for R in (3, 5, 7, 8):
    F = bounds.products_per_segment(R, d=1)
    print(f"{R:2} words: at most {most[R]} products, F(R) = {F:.2f}")
measured("5.8", enough=attempt(fewest_words, my_products))

# %% [markdown]
# <details><summary>How many of the twelve words are enough</summary>
#
# 3, 5, 7 and 8 words allow 1, 2, 3 and 4 products, and $F(R)$ is 1, 2.25, 4 and 5.06. None of the 4096 choices is above it. 8 words are enough, and none of them is a score: all four scores are computed.
#
# </details>
#
# With many words, complete rows alone almost reach $F$. With $x$ rows of each array, $R = 4dx$ words allow $x^2d = R^2/16d$ products; $F$ has $R + d^2$ in place of $R$. Now insert (5.7) into (5.4), with $N^2d$ products:
#
# $$ W \ge T \left\lfloor \frac{N^2d}{F(M + T)} \right\rfloor \qquad \text{for every integer } T \ge 1 . \tag{5.8} $$
# <!-- (5.8) W >= bounds.theorem_A(N, d, M, T) with F = lambda R: bounds.products_per_segment(R, d) where T >= 1 -->
#
# This is Theorem A, bound `A` of the library, for the class of section 5.7.
#
# <!-- exercise 5D --> Evaluate (5.8) for the best $T$. You may try every $T$ if you know when to stop. If you are stuck after five minutes, run `hint("5D")` in a new cell.

# %% [raw] name="about-5D"
# title = "The best segment"
# difficulty = 2
# importance = 5
# minutes = 8
# hints = [
#   "Every T gives a valid bound. Which T are worth trying, and when does the number of full segments become 0?",
#   "For each T from 1: the words R of a segment, the products F(R), the number of full segments, and T times that number. Keep the largest.",
#   "// gives ⌊x⌋. If N²d is smaller than F(M + T), there is no full segment for this T or any larger one, so the search ends.",
# ]

# %% tags=["exercise"] name="ex-5D"
def my_bound(N, d, M):
    """Return the largest number of words that (5.8) proves, over all T.

    N, d, M: integers of at least 1.
    """
    def F(R):
        return (R + d * d) ** 2 / (16 * d) if 3 * d * d <= R else (R / 3) ** 1.5

    ### BEGIN SOLUTION from T = 1 until there is no full segment any more
    most, T = 0, 1
    while F(M + T) <= N * N * d:
        most = max(most, T * int(N * N * d // F(M + T)))
        T += 1
    return most
    ### END SOLUTION


# %% tags=["check"] name="check-5D"
check("5D", my_bound)

# %% [markdown]
# **Predict** (compute). Which $T$ is best for $M = 58\,368$ and $d = 64$? Omit the rounding in (5.8), and find the $T$ for which $T/F(M + T)$ is largest, with the first case of $F$.

# %% tags=["predict"]
predict("5.8b", best_T=62464)  #> predict("5.8b", best_T=...)

# %%
N, d, M = 8192, 64, 58368
lengths = range(1, 4 * M)
rate = [T / bounds.products_per_segment(M + T, d) for T in lengths]
for T in (M // 4, M + d * d, 4 * M):
    print(f"T = {T:7,}: {bounds.theorem_A(N, d, M, T=T):10,} words")
print(f"the best T: {attempt(my_bound, N, d, M):,} words")
measured("5.8b", best_T=lengths[int(np.argmax(rate))])

# %% [markdown]
# <details><summary>The best length of a segment</summary>
#
# The best $T$ is $M + d^2 = 62{,}464$. A quarter of $M$ or four times $M$ proves between 0.6 and 0.7 of this bound. Trying every $T$ gives 17,602,158 words instead of 17,552,384, because the rounding costs almost nothing there. (The library takes $T = M + d^2$ here, which is 0.3 percent below your maximum.)
#
# </details>
# <!-- N, d, M = 8192, 64, 58368 -->
# <!-- 0.3 = round(10**2 * (1 - bounds.theorem_A(N, d, M) / 17602158), 1) -->
# <!-- shares = [bounds.theorem_A(N, d, M, T=T) / bounds.theorem_A(N, d, M, T=M + d**2) for T in (M // 4, 4 * M)] -->
# <!-- 0.6, 0.7 = math.floor(10 * min(shares)) / 10, math.ceil(10 * max(shares)) / 10 -->
#
# ## 5.9 The proof, step by step
#
# **Step 1: useful products.** Take an output word $o_{ic}$ when it is finally stored, and follow the additions that produced it back to products $p_{ij}v_{jc}$. The intermediate results are the *partial sums* of $o_{ic}$. A product that is computed separately and added later is also a partial sum. If a partial sum was used several times, we follow only one use, so the partial sums form a tree. For each key $j$ we choose one product that leads into the tree. These $N^2d$ products are *useful*; the others are not counted. In this example with four keys, two products were computed again and their sum was discarded:
# <!-- "The library takes" if bounds.theorem_A(N, d, M) == bounds.theorem_A(N, d, M, T=M + d**2) -->

# %%
added = {"output": ["left", "right"], "left": ["key 1", "key 2"], "right": ["key 3", "key 4"],
         "discarded": ["key 2, again", "key 3, again"]}


def products_in(word):
    """Return the products that lead into a partial sum."""
    if word not in added:
        return [word]
    return [one for part in added[word] for one in products_in(part)]


formed = [one for word in added for one in added[word] if one not in added]
print(f"{len(formed)} products computed; useful: {', '.join(products_in('output'))}")

# %% [markdown]
# A partial sum is *alive* from its computation until it is added to the next one. If it is rescaled, or if a product is added to it directly, it remains the same partial sum.
#
# **Step 2: one accumulator is enough.** A schedule may keep several partial sums of one output and merge them later. We count them as one accumulator. How many of its entries need no read? The accumulator of $o_{ic}$ is *present* while at least one living partial sum of it is in fast memory, and it *enters* when the first one appears there. Their number changes when one begins with its first product, one is read, two are merged, or one is dropped and read again later. The figure shows a possible history, with a square for each read and a circle for each entry; try others:

# %%
explore.partial_sums(["begin", "begin", "drop", "drop", "begin",
                      "read", "merge", "read", "merge"])

# %% [markdown]
# After the second drop, no partial sum of this output is in fast memory, and a new one begins. This is a second entry for which nothing was read. Are such entries free?
#
# **Predict** (guess). An accumulator enters four times, and at the end one partial sum is left. What is the smallest possible number of reads?

# %% tags=["predict"]
predict("5.9", reads=3)  #> predict("5.9", reads=...)

# %%
def after(n, away, entries, reads):
    """Yield the states after one event; n partial sums are present and `away` are dropped."""
    entered = entries + (n == 0)
    yield n + 1, away, entered, reads  # one begins
    if away:
        yield n + 1, away - 1, entered, reads + 1  # one is read
    if n:
        yield n - 1, away + 1, entries, reads  # one is dropped
    if n > 1:
        yield n - 1, away, entries, reads  # two are merged


states, fewest = {(0, 0, 0, 0)}, {}
for _ in range(14):  # events
    states = {later for state in states for later in after(*state)}
    for n, away, entries, reads in states:
        if (n, away) == (1, 0):
            fewest[entries] = min(reads, fewest.get(entries, reads))
for entries, reads in sorted(fewest.items()):
    print(f"entries {entries}: reads at least {reads}")
measured("5.9", reads=fewest[4])

# %% [markdown]
# <details><summary>How many reads four entries need</summary>
#
# Three. In every history of up to 14 events there is at most one entry more than there are reads. If a new partial sum begins while others are dropped, those must be read later to be merged.
#
# </details>
#
# For each output and the reads of its partial sums, every history satisfies
#
# $$ \text{entries} \le \text{reads} + 1 . \tag{5.9} $$
# <!-- (5.9) not evaluated: step of a proof -->
#
# The appendix (section 5.14) has the proof.
#
# **Step 3: segments.** Let $E$ be the number of entries of accumulators and of reads of all other words (those that are not living partial sums of an output). By (5.9), added up over the $Nd$ outputs, the run reads at least $E - Nd$ words. It also stores at least $Nd$ words, the outputs. So
#
# $$ W \ge (E - Nd) + Nd = E . \tag{5.10} $$
# <!-- (5.10) not evaluated: step of a proof -->
#
# From now on, a segment ends after $T$ of these events, no longer after $T$ loads; the last one may have fewer. A segment works with at most $R = M + T$ different words: those in fast memory at its start, where a present accumulator takes at least one word, and those that enter or are read. Scores and weights that are computed within the segment are not among them.
#
# <!-- exercise 5E --> (Optional; if you skip it, continue below its check.) A run lists the words that enter fast memory and those that are freed. Return the words that each full segment works with. If you are stuck after five minutes, run `hint("5E")` in a new cell.

# %% [raw] name="about-5E"
# title = "Segments of a run"
# difficulty = 2
# importance = 2
# minutes = 10
# hints = [
#   "What must you know at the end of a segment to start the next one?",
#   "Keep two collections: the words that are in fast memory now, which shrinks when a word is freed, and the words that the segment has used, which only grows.",
#   "After the T-th load, output the words that the segment has used. The next segment starts with a copy of the words that are in fast memory now, because the two collections change independently afterwards.",
# ]

# %% tags=["exercise"] name="ex-5E"
def my_segments(run, T):
    """Return the words of each full segment: present at its start, or entering during it.

    run: a list of pairs ("in", word) and ("out", word), in order; first, fast memory is empty.
    T: an integer of at least 1. As soon as T words have entered, a segment ends and the next
    one begins. The result is a list of sets; an incomplete last segment is omitted.
    """
    ### BEGIN SOLUTION words present now, words of the segment, number that entered
    there, words, came, segments = set(), set(), 0, []
    for event, word in run:
        if event == "out":
            there.remove(word)
            continue
        there.add(word)
        words.add(word)
        came += 1
        if came == T:
            segments.append(words)
            words, came = set(there), 0
    return segments
    ### END SOLUTION


# %% tags=["check"] name="check-5E"
check("5E", my_segments)

# %% [markdown]
# Your function now divides a run of the buffer-reuse schedule (F3) with $N = 8$, $d = 2$ and blocks of four rows. `my_products` of exercise 5C counts the products that the words of each segment allow.

# %%
def f3_words(N, d, Br):
    """Yield ("in", word) and ("out", word): q and o resident, keys and values streamed."""
    for start in range(0, N, Br):
        block = list(product("qo", range(start, start + Br), range(d)))
        yield from (("in", word) for word in block)
        for j, name in product(range(N), "kv"):
            yield from ((event, (name, j, c)) for event in ("in", "out") for c in range(d))
        yield from (("out", word) for word in block)


def allowed(words, N, d):
    """Return the number of products p_ij v_jc of these words, with no score at hand."""
    there = [word in words for word in product("qkvo", range(N), range(d))]
    return my_products(*np.reshape(there, (4, N, d)), np.zeros((N, N), bool))


def largest(T, N=8, d=2, Br=4):
    """Return the number of full segments and the maxima of their words and products."""
    cut = my_segments(list(f3_words(N, d, Br)), T)
    return len(cut), max(map(len, cut)), max(allowed(words, N, d) for words in cut)


M = 4 * 2 * 2 + 2  # four rows of q and of o, and a key or a value
for T in (4, 11, 22):
    segments, words, products = attempt(largest, T) or ("…",) * 3
    print(f"T = {T:2}: {segments} full segments; words {words}, allowed {M + T}; "
          f"products {products}, allowed {bounds.products_per_segment(M + T, d=2):.1f}")

# %% [markdown]
# No segment has more than $R = M + T$ words, and the words of no segment allow more than $F(R)$ products. Step 4 proves the second statement.
#
# **Step 4: at most $F(R)$ useful products per segment.** Let $n_v$ of the $R$ words be words of $V$ and $n_o$ be accumulators. Let $n_s$ be the number of pairs $(i, j)$ of which a word (the score, a part of it or the weight) was present at the start or was read. Let $x$ rows $q_i$ and $y$ rows $k_j$ be present with all $d$ words. The arrays are distinct, so no word is counted twice:
#
# $$ d(x + y) + n_v + n_o + n_s \le R . \tag{5.11} $$
# <!-- (5.11) not evaluated: step of a proof -->
#
# A useful product $p_{ij}v_{jc}$ of the segment needs $v_{jc}$. It is added to a partial sum or begins one, so the accumulator of $o_{ic}$ is present. There are two cases.
#
# *The pair $(i, j)$ is one of the $n_s$.* The triples $(i, j, c)$ of these products have their projections among the pairs, the words of $V$ and the accumulators. By Loomis and Whitney there are at most $\sqrt{n_s n_v n_o}$ of them.
#
# *The weight $p_{ij}$ was computed from nothing within the segment.* Then $q_i$ is one of the $x$ rows and $k_j$ one of the $y$ rows. If column $c$ has $a_c \le x$ accumulators and $b_c \le y$ words of $V$ in such rows, the number of these products is at most
#
# $$ \sum_c a_c b_c \le \min(x\, n_v,\; y\, n_o) \le \sqrt{xy\, n_v n_o} . \tag{5.12} $$
# <!-- (5.12) not evaluated: step of a proof -->
#
# (The smaller of two numbers is at most the square root of their product.) Both cases together give at most $\sqrt{n_v n_o}\,\bigl(\sqrt{xy} + \sqrt{n_s}\bigr)$ products. Write $n_v + n_o = 2z$. By AM–GM, $\sqrt{n_v n_o} \le z$ and $\sqrt{xy} \le (x + y)/2$. With (5.11) for $x + y$, the number is at most
#
# $$ z \left( \frac{R - 2z}{2d} + \sqrt{n_s} - \frac{n_s}{2d} \right) \le z \cdot \frac{R - 2z + d^2}{2d} \le \frac{(R + d^2)^2}{16d} . \tag{5.13} $$
# <!-- (5.13) z \left( \frac{R - 2z}{2d} + \sqrt{n_s} - \frac{n_s}{2d} \right) <= not evaluated: step of a proof -->
# <!-- (5.13) z \left( \frac{R - 2z}{2d} + \sqrt{n_s} - \frac{n_s}{2d} \right) <= bounds.products_per_segment(R, d) where R >= 3 * d**2 -->
#
# The first inequality takes the $n_s$ for which $\sqrt{n_s} - n_s/2d$ is largest, which is $d^2$. The second takes the best $z$, which is $(R + d^2)/4$. So (5.13) holds for every $R$, and for $R \ge 3d^2$ the right side is $F(R)$.
#
# If $R < 3d^2$, a smaller maximum follows from $2z + n_s \le R$, because $n_s = d^2$ is possible only for $z \le (R - d^2)/2$. Up to this point the middle of (5.13) grows with $z$, because $(R - d^2)/2 < (R + d^2)/4$. For larger $z$ the best $n_s$ is the rest, $R - 2z < d^2$, and then $x + y = 0$. This gives $z\sqrt{R - 2z}$, which is largest at $z = R/3$, and $R/3 > (R - d^2)/2$; the maximum is $(R/3)^{3/2}$.
#
# The next cell tries every $z$ and $n_s$ in the left side of (5.13):

# %%
d = 4
for R in (30, 60, 240):
    n_s, z = np.meshgrid(np.arange(R + 1), np.arange(0, R / 2 + 0.5, 0.5))
    possible = n_s + 2 * z <= R
    most = (z * ((R - 2 * z - n_s) / (2 * d) + np.sqrt(n_s)))[possible].max()
    print(f"R = {R:3}: at most {most:8.2f}, F(R) = {bounds.products_per_segment(R, d):8.2f}")

# %% [markdown]
# **Step 5: the number of segments.** Let $h$ be the number of full segments. The last segment, with fewer than $T$ events, computes strictly fewer than $F(M + T)$ products, because $F$ grows with $R$. So $N^2d < (h + 1)\,F(M + T)$, which means $h \ge \lfloor N^2d/F(M + T) \rfloor$. Therefore $E \ge T\lfloor N^2d/F(M + T)\rfloor$, and (5.10) completes the proof. $\square$
#
# For the run above:

# %%
N, d = 8, 2
moved = sum(event == "in" for event, _ in f3_words(N, d, Br=4))
for T in (4, 11, 22):
    segments = moved // T
    must = int(N * N * d // bounds.products_per_segment(M + T, d))
    print(f"T = {T:2}: {N * N * d} products need {must} full segments, the run has {segments}; "
          f"{T * must} words proved, {moved} enter")

# %% [markdown]
# 96 words enter. The run also moves 96 words, because each output is stored as often as it begins. The best of these $T$ proves 44. Rounding down costs much if there are two segments, and little if there are thousands.
#
# The two forms of section 5.7 follow: with $T = M + d^2$ we have $R + d^2 = 2(M + d^2)$, so $F = (M + d^2)^2/4d$ and $TN^2d/F = 4N^2d^2/(M + d^2)$; rounding down costs at most $T$. With $T = 2M$ and $M \le d^2$ we have $F = M^{3/2}$.
#
# ## 5.10 Bounds with and without recomputation
#
# Now count the products $q_{ic}k_{jc}$ as well, $2N^2d$ products in all. A score that is being summed is then an accumulator too; when it enters, its pair is one of the $n_s$. A score need not be stored, so no store can be counted for its initial zero, and (5.10) becomes $W \ge E - N^2$. Take $T = 2M$.
#
# **Theorem B: no product $q_{ic}k_{jc}$ is computed twice** (bound `B_line`). Then a score or weight returns to fast memory only by a read, so every product has its pair among the $n_s$. With $n_q$ and $n_k$ words of $Q$ and $K$ there are at most $\sqrt{n_s n_q n_k} + \sqrt{n_s n_v n_o} \le \sqrt{n_s}\,(R - n_s)/2 \le (R/3)^{3/2}$ products (AM–GM for both roots, then the best $n_s$, which is $R/3$):
#
# $$ W \ge \frac{4N^2d}{\sqrt M} - 2M - N^2 . \tag{5.14} $$
# <!-- (5.14) W >= bounds.theorem_B_line(N, d, M) rounded down -->
#
# **Theorem B′: recomputation is allowed** (bound `B'_line`). A weight may then also come from a second sum, computed from two complete rows as in (5.12). This raises the number of products from $M^{3/2}$ to at most $M^{3/2} + 9M^2/16d$; section 7.10 ([07b](07b_input_gradient.ipynb)) has the proof.
#
# $$ W \ge \frac{4N^2d}{\sqrt M\left(1 + \frac{9\sqrt M}{16d}\right)} - 2M - N^2 . \tag{5.15} $$
# <!-- (5.15) W >= bounds.theorem_B_prime_line(N, d, M) rounded down within 1e-9 where math.isqrt(M) ** 2 != M -->
#
# These are closed forms. The library also has `B` and `B'` with the best $T$, and `B'` uses the exact maximum of the number of products. At $M = d^2$ and for large $N$, `B'` gives 2.12 $N^2$ words and (5.15) only 1.56 $N^2$. `B'` is larger than Theorem A up to about $M = d^2$. For schedules that compute no score twice, such as buffer reuse, `recompute=False` admits Theorem B.
#
# **Predict** (guess). $M = 16\,384 = 4d^2$. What is the ratio of the traffic of buffer reuse to the lower bound, first for all schedules, then for those that compute no score twice?
# <!-- 1.56, 2.12 = round(bounds.theorem_B_prime_line(2**22, 4096, 4096**2) / 2**44, 2), round(bounds.theorem_B_prime(2**22, 4096, 4096**2) / 2**44, 2) -->

# %% tags=["predict"]
predict("5.10", all_schedules=1.33, no_recomputing=1.06)  #> predict("5.10", all_schedules=..., no_recomputing=...)

# %%
N, d = 8192, 64


def f3_over_bound(M, recompute=True):
    f3 = schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total
    least, which = bounds.lower_bound("forward", N, d, M, recompute=recompute)
    return f3 / least, which


for M in (4096, 8192, 16384, 32768, 58368, 131072, 262144, 2**20):
    (ratio, which), (once, which_once) = f3_over_bound(M), f3_over_bound(M, recompute=False)
    print(f"M = {M:9,}: {ratio:.2f} × bound {which:10}  {once:.2f} × bound {which_once}")
measured("5.10", all_schedules=f3_over_bound(16384)[0],
         no_recomputing=f3_over_bound(16384, recompute=False)[0])

# %% [markdown]
# <details><summary>How much could be saved at most</summary>
#
# The ratios are 1.33 and 1.06. At $M = 4d^2$ a schedule that computes no score twice can save at most 6 percent of the words of buffer reuse. At 58,368 words, buffer reuse moves 1.19 times the bound. The ratio grows to 1.58 at 262,144 words, where Theorem A and the compulsory traffic are of similar size.
#
# </details>
# <!-- f3 = lambda N, M: schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total -->
# <!-- 6 = 10**2 * (1 - bounds.lower_bound("forward", N, d, 16384, recompute=False)[0] / f3(N, 16384)) -->
#
# ## 5.11 Published bounds
#
# Saha and Ye proved in 2024 that the traffic is at least proportional to $N^2d^2/M$ for $M \ge d^2$ and to $N^2d/\sqrt M$ for $M \le d^2$. They state no constants. If we keep the constants of their argument for $M \ge d^2$, we obtain the bound `saha_ye`:
#
# $$ W \ge \frac{N^2d^2}{4(M + d^2)} - M . \tag{5.16} $$
# <!-- (5.16) W >= bounds.saha_ye(N, d, M) rounded down where M >= d**2 -->
#
# **Predict** (compute). By what factor is Theorem A larger, for $N = 8192$, $d = 64$ and $M = 58\,368$? Use all terms of (5.3) and (5.16), and round to an integer.
# <!-- 1.19 = f3(N, 58368) / bounds.lower_bound("forward", N, d, 58368)[0] -->
# <!-- 1.33, 1.06 = (f3(N, 16384) / bounds.lower_bound("forward", N, d, 16384, recompute=again)[0] for again in (True, False)) -->

# %% tags=["predict"]
predict("5.11", factor=17)  #> predict("5.11", factor=...)

# %%
N, d, M, F3 = 8192, 64, 58368, schedules.flash_optimal
words = {
    "Saha and Ye": bounds.saha_ye(N, d, M + 4),
    "Theorem A": bounds.theorem_A(N, d, M + 4),
    "buffer reuse": F3.cost(N, d, **F3.tiles(N, d, M)).total,
}
measured("5.11", factor=words["Theorem A"] / words["Saha and Ye"])
explore.bars(words, title="Forward pass, N = 8192, d = 64, M = 58,368")

# %% [markdown]
# <details><summary>The factor, and where it comes from</summary>
#
# The factor is 16.85; the ratio of the first terms is 16. Their argument aims at the growth, not at the constant. It counts the scores that a segment can compute, without $V$ and $O$.
#
# </details>
#
# The library records the origin and the status of every bound of the course. (`A` is (5.8), and `A_large` and `A_small` are its two forms (5.3).)
# <!-- 16 = 4 / (1 / 4) -->
# <!-- 16.85 = bounds.theorem_A(N, d, 58368 + 4) / bounds.saha_ye(N, d, 58368 + 4) -->

# %%
for name in ("compulsory", "A_rows", "A", "B", "B'", "saha_ye", "matmul", "theta_attention"):
    print(f"{name:16} {bounds.BOUNDS[name].status}")

# %% [markdown]
# *Proved here* means that the proof is in this course. We found the constants of A, B and B′ in none of the papers we read; the methods are those of the papers below. *Asymptotic only* means that the constant is unknown, so the library refuses to evaluate the bound. `bounds.BOUNDS["A"].holds_for` states the schedules for which a bound holds.
#
# ## 5.12 The theorem compared with the search
#
# For the smallest graphs we know the exact minimum. For this comparison the pebble game needs one more move, because on our machine `o.add_matmul(s, v)` adds a product to a tile *in place*. The move is `slide a to c`: `c` is computed and takes over the red pebble of its parent `a`. Product and sum are then one vertex, $c \leftarrow c + ab$ (`fma=True`, a fused multiply-add).
#
# Attention with two queries, two keys and $d = 1$ has 18 vertices: 6 inputs, four exponentials $e_{ij}$, each computed from $q_i$ and $k_j$, and for each query $\ell_i = e_{i1} + e_{i2}$, the partial sums $e_{i1}v_1$ and $e_{i1}v_1 + e_{i2}v_2$, and the output.
#
# **Predict** (guess). 6 inputs and 2 outputs are compulsory. Which of 4, 5, 6 and 7 is the smallest number of red pebbles with which 8 words are enough?

# %% tags=["predict"]
predict("5.12", pebbles=7)  #> predict("5.12", pebbles=...)

# %%
tiny = pebbling.attention(2, 2, fma=True)
least = pebbling.compulsory(tiny)
print(f"{tiny}; compulsory {least} words")
cheapest = {M: pebbling.optimum(tiny, M, slide=True).cost for M in (4, 5, 6, 7)}
for M, words in cheapest.items():
    print(f"M = {M}: {words:2} words; Theorem A {attempt(my_bound, 2, 1, M)}")
measured("5.12", pebbles=min(M for M, words in cheapest.items() if words == least))

# %% [markdown]
# <details><summary>Minimum traffic for 4 to 7 pebbles, and Theorem A</summary>
#
# Four pebbles need 11 words. With 7 pebbles the compulsory 8 words are enough, although there are more inputs and outputs than pebbles. Theorem A gives only 3 words at $M = 4$, so at this size only the search is useful. For millions of tokens only the theorem is available. At $N = 2^{22}$, $d = 64$ and $M = 64d^2$, buffer reuse moves only 4 percent more words than Theorem A proves.
#
# </details>
# <!-- 4 = round(10**2 * (f3(2**22, 2**18) / bounds.theorem_A(2**22, 2**6, 2**18 + 4) - 1)) -->
#
# ## 5.13 An open challenge
#
# At $M = d^2$ the distance between lower bounds and schedules is largest. The best schedule of the course materialises its scores and tiles the output over $d$ (F7d, lesson 07). The bounds are B′ and, for schedules that compute no score twice, B:

# %%
for N, d in ((8192, 64), (2**22, 4096)):
    best, _, cost = schedules.best(N, d, d * d, "forward")
    parts = [f"{best.label} {cost.total / N**2:.2f} N²"]
    for recompute in (True, False):
        words, which = bounds.lower_bound("forward", N, d, d * d, recompute=recompute)
        parts.append(f"bound {which} {words / N**2:.2f} N²")
    print(f"N = {N:,}, d = {d:,}: {', '.join(parts)}")

# %% [markdown]
# For large $d$ the schedule tends to 4 $N^2$ words and B′ to 2.12 $N^2$. We know neither a schedule with fewer words nor a larger bound that allows recomputation. Can you move fewer words, or prove that more are needed? The rules of the machine apply: three distinct arrays, $M = d^2$ words of fast memory, exact attention. Two ideas are worth a try: a schedule that stores some scores and recomputes the others, and a better count of the products in step 4.
#
# `challenge` tests a schedule like a check, on random numbers and ragged shapes. Then it compares its words at $N = 65{,}536$ and $d = 64$ with the library's best schedule and with the theorem. Start with your schedule of exercise 4C to see the number to beat:

# %%
def my_flash_optimal(m, Q, K, V, *, Br, Bc):
    """Return softmax(QKᵀ/√d) V: your schedule of exercise 4C, copied here."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION the body of exercise 4C
    for i in m.blocks(N, Br):  # resident: q (Br, d), o (Br, d), stats 2·Br
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:     # (Bc, d)
                    s = q @ k.T             # (Br, Bc)
                with s, m.load(V, j) as v:  # (Bc, d), in the buffer of K_j
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


challenge("forward", my_flash_optimal, Br=30, Bc=1)

# %% [markdown]
# The smallest traffic known to us at these sizes is 4.1192 $N^2$, by the same schedule of lesson 07. Your minimum is saved with your progress.
#
# ## Misconceptions
#
# - **"The bounds add up: $4Nd$ plus Theorem A."** Both count the same reads.
# - **"The proof needs one accumulator per output."** A schedule may keep many. By (5.9), this saves at most one word per output.
# - **"A segment is a step of the algorithm."** It is a part of any run, and it ends after a given number of loads or entries, wherever the algorithm is then.
#
# ## Take-away
#
# - Divide a run into segments, bound the products of $R = M + T$ words, count the segments, and choose the best $T$.
# - Complete rows give scores that take no words. This is the origin of $d^2$ and of the constant 4.
# - Each hypothesis is used in one place: distinct arrays in (5.11), products $p_{ij}v_{jc}$ in step 1, a fixed number of outputs in (5.10).
#
# **In the literature's words**: this is an I/O lower bound, also called a communication lower bound. Hong and Kung (1981) divided runs into segments; Irony, Toledo and Tiskin (2004) combined segments with the Loomis–Whitney inequality.
#
# ## References
#
# - J.-W. Hong, H. T. Kung, *I/O complexity: the red-blue pebble game*, STOC 1981. Segments.
# - L. H. Loomis, H. Whitney: *An inequality related to the isoperimetric inequality*, Bulletin of the AMS 55, 1949.
# - D. Irony, S. Toledo, A. Tiskin: *Communication lower bounds for distributed-memory matrix multiplication*, 2004. Segments with Loomis-Whitney.
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). $2mnk/\sqrt M - 2M$ for the matrix product.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The growth of the traffic in both regimes, and fast matrix multiplication.
#
# **What comes next.** <!-- next --> Part b of lesson 06 (06b) applies these five steps to the backward pass (sections 6.10 to 6.12).
#
# ## 5.14 Appendix: proof of (5.9)
#
# Let $n$ be the number of partial sums of $o_{ic}$ that are alive and in fast memory. Before the final drop, it changes in four ways:
#
# - A partial sum begins: $1 + e$ times while $n = 0$ (at least once, so $e \ge 0$), and $e'$ times while $n \ge 1$.
# - One is read: $r_0$ times while $n = 0$, and $r_1$ times while $n \ge 1$. (A read of one that is present changes nothing.)
# - Two are merged: $n$ was at least 2 and falls by 1.
# - One is dropped from fast memory and is read again later: $n$ falls by 1.
#
# There are $r_0 + (1 + e)$ entries and $r_0 + r_1$ reads. All $1 + e + e'$ partial sums that begin end as one, so there are $e + e'$ merges. After each merge $n$ is at least 1.
#
# Compare the steps of $n$ between two neighbouring values $h$ and $h + 1$, for any $h \ge 1$. Because $n$ starts at 0, it falls from $h + 1$ to $h$ at most as often as it rises from $h$ to $h + 1$. Add this up over all $h \ge 1$. The rises are the $r_1 + e'$ events that start from at least 1; the falls include the $e + e'$ merges. So $r_1 + e' \ge e + e'$, and
#
# $$ r_1 \ge e , \qquad \text{hence} \qquad r_0 + (1 + e) \le (r_0 + r_1) + 1 . $$
#
# This is (5.9). $\square$
