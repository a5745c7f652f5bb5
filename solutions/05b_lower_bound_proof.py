# %% [markdown]
# # 05b The proof of Theorem A
#
# Theorem A (section 5.7) speaks of every schedule, whatever it cuts, keeps or computes again. Here is why it holds. The idea is one question, "how many products do $R$ words allow?", asked of each stretch of a run. The proof has five steps, and behind each stands a short cell that tries to break it.
#
# **What you will learn**
#
# - to turn "how many products do $R$ words allow?" into a lower bound for any schedule;
# - the whole proof of Theorem A, and which step needs which hypothesis;
# - what changes if no score is computed twice, and what the papers prove.
#
# **Prerequisites**: [lesson 05](05_lower_bounds.ipynb), and lesson 02 for the matrix product. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 5E -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from itertools import product

import numpy as np

from iocourse import bounds, explore, pebbling, schedules
from iocourse.course import attempt, challenge, check, hint, measured, predict

# %% [markdown]
# ## 5.8 Segments
#
# We begin with the matrix product $C = AB$, with $A$ $(m, k)$, $B$ $(k, n)$ and $mnk$ multiply-adds $c_{ij} \leftarrow c_{ij} + a_{il}b_{lj}$. Take any run of any schedule, and cut it into *segments*: each segment ends when $T$ words have come into fast memory.
#
# ```
# there at the start:   ≤ M        ≤ M        ≤ M               ≤ M
# run:                | segment  | segment  | segment  | ... | the last one |
# words that come in:    T          T          T               fewer than T
# ```
#
# A segment works with at most $R = M + T$ different words. Suppose we knew that $R$ words allow at most $F(R)$ multiply-adds. Then $mnk$ of them take at least $\lfloor mnk/F(R) \rfloor$ full segments, and each brings in $T$ words:
#
# $$ W \ge T \left\lfloor \frac{mnk}{F(M + T)} \right\rfloor . \tag{5.4} $$
#
# The order of the work does not appear, so this holds for every schedule. Each choice of $T$ gives a true bound, and we take the best one.
#
# So how many multiply-adds do $R$ words allow? A multiply-add is a triple $(i, j, l)$, a point in a box, and needs $a_{il}$, $b_{lj}$ and $c_{ij}$, its shadows on three walls. Here $i$ runs to the lower left, $j$ to the lower right and $l$ upwards; each multiply-add is a small cube:

# %%
corner, apart = np.zeros((3, 3), int), np.eye(3, dtype=int)
corner[:2, :2] = apart[0, 2] = 1
explore.loomis_whitney({"a corner": [corner, corner, corner],
                        "scattered": [apart[::-1], apart, apart.T[::-1]]},
                       title="4 words of each array, in two ways")

# %% [markdown]
# Both times 4 words of each array are there. A full cube of side 2 has them as its shadows; words that do not fit together allow 3 points. Loomis and Whitney showed in 1949 that a set of points is at most the square root of the product of the sizes of its shadows: on the left it is, $\sqrt{4 \cdot 4 \cdot 4} = 8$. With $n_A$, $n_B$, $n_C$ words of the three,
#
# $$ \text{multiply-adds} \le \sqrt{n_A\, n_B\, n_C} \le \left(\frac{R}{3}\right)^{3/2} = F_\times(R) , \tag{5.5} $$
#
# because a product of three numbers with sum $R$ is largest when they are equal. Now choose $T$. The best balance is $T = 2M$, where $T/F_\times(M + T)$ is largest: then $R = 3M$, $F_\times(R) = M^{3/2}$, and (5.4), with $F_\times$ for $F$, becomes the bound of lesson 02, for rounding down costs at most one segment:
#
# $$ W \ge 2M\left\lfloor \frac{mnk}{M^{3/2}} \right\rfloor \ge \frac{2mnk}{\sqrt M} - 2M . \tag{5.6} $$
#
# A word of $C$ may begin as a zero, which is not moved; as with whole rows, its one store pays for that.
#
# ### How many products do R words allow?
#
# Attention is two products in a row, $S = QK^\top$ and $O = PV$, and the scores between them need not travel. We count the products $p_{ij}v_{jc}$: there are $N^2d$. Which of them can a segment form? It needs the word $v_{jc}$ and the *accumulator* $o_{ic}$, the sum to which the product is added. And it needs $p_{ij}$, for which there are two ways:
#
# - the score, or its exponential, or a part of its sum, is *at hand*: it was in fast memory at the start or was read; this takes one word;
# - it is *made* in the segment from nothing. Then all $d$ words of $q_i$ and all $d$ words of $k_j$ must be there.
#
# The second way is what makes attention different. Whole rows are dear, $d$ words each, but $x$ whole rows of $Q$ and $y$ of $K$ give $xy$ scores that count as no word at all.
#
# <!-- exercise 5C --> Five boolean arrays say which words a segment has. Count the products $p_{ij}v_{jc}$ that it can form. Queries and keys may differ in number. If you are stuck after six minutes, run `hint("5C")` in a cell of your own.

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
    """The number of products p_ij v_jc that can be formed.

    q, o: (queries, d). k, v: (keys, d). s: (queries, keys). Boolean arrays, True where the word
    of Q, the accumulator of O, the word of K, of V, and the score of the pair is there. NumPy's
    @ and einsum do not count booleans: make them numbers first, with .astype(int).
    """
    ### BEGIN SOLUTION which pairs have a weight, then in how many columns
    made = q.all(axis=1)[:, None] & k.all(axis=1)[None, :]  # (queries, keys)
    pairs = (s | made).astype(int)
    return int((pairs @ v.astype(int) * o).sum())
    ### END SOLUTION


# %% tags=["check"] name="check-5C"
check("5C", my_products)

# %% [markdown]
# The most that $R$ words allow is a short calculation (step 4 of section 5.9):
#
# $$ F(R) = \begin{cases} \dfrac{(R + d^2)^2}{16d} & R \ge 3d^2, \\[1ex] \left(\dfrac R3\right)^{3/2} & R < 3d^2. \end{cases} \tag{5.7} $$
#
# In the second case whole rows are too dear, and attention is like a matrix product, with scores in place of $A$. To check it we try everything: two queries, two keys and $d = 1$ have 8 words of $Q$, $K$, $V$ and $O$ and 4 scores.
#
# **Predict** (guess). With all 12 words one can form $N^2d = 4$ products. How many words are enough for all four?

# %% tags=["predict"]
predict("5.8", enough=8)  #> predict("5.8", enough=...)

# %%
def try_everything(count):
    """The most products for each number of words, over all 4096 choices."""
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
# <details><summary>How many of the twelve</summary>
#
# 1, 2, 3 and 4 products, and $F(R)$ is 1, 2.25, 4 and 5.06; none of the 4096 choices is above it. 8 words are enough, and no score is among them: all four are made.
#
# </details>
#
# With many words whole rows come close to $F$: $x$ rows of each array take $R = 4dx$ words and form $x^2d = R^2/16d$ products, where $F$ has $R + d^2$ in place of $R$. Put (5.7) into (5.4), with $N^2d$ products:
#
# $$ W \ge T \left\lfloor \frac{N^2d}{F(M + T)} \right\rfloor \qquad \text{for every whole } T \ge 1 . \tag{5.8} $$
#
# This is Theorem A, bound `A` of the library's list, for the class of section 5.7.
#
# <!-- exercise 5D --> Evaluate (5.8) for the best $T$. You may try every $T$, as long as you know when to stop. If you are stuck after five minutes, run `hint("5D")` in a cell of your own.

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
    """The largest number of words that (5.8) proves, over all T.

    N, d, M: whole numbers of at least 1.
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
# **Predict** (compute). Which $T$ is best? Look at (5.8) without the rounding, $T/F(M + T)$ with $F$ of the first case, and find the $T$ where it is largest, for $M = 58\,368$ and $d = 64$.

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
# The best $T$ is $M + d^2 = 62{,}464$; a quarter of $M$ or four times $M$ proves between 0.6 and 0.7 of that. Trying every $T$ wins a little more, 17,602,158 against 17,552,384 words, where the rounding takes next to nothing away. (The library takes $T = M + d^2$ there, and is 0.3 percent below your best.) With $T = M + d^2$ where $M$ is at least $d^2$, and $T = 2M$ below, (5.8) turns into the two lines of section 5.7.
#
# </details>
# <!-- N, d, M = 8192, 64, 58368 -->
# <!-- 0.3 = round(10**2 * (1 - bounds.theorem_A(N, d, M) / 17602158), 1) -->
# <!-- shares = [bounds.theorem_A(N, d, M, T=T) / bounds.theorem_A(N, d, M, T=M + d**2) for T in (M // 4, 4 * M)] -->
# <!-- 0.6, 0.7 = math.floor(10 * min(shares)) / 10, math.ceil(10 * max(shares)) / 10 -->
#
# ## 5.9 The proof, step by step
#
# **Step 1: useful products.** Take an output word $o_{ic}$ as it is stored at the end, and go back through the additions that made it, down to products $p_{ij}v_{jc}$. On the way are the *partial sums* of $o_{ic}$; a product formed as a word of its own is one as well. Where one was used several times we keep one use, so they form a tree. For each key $j$ we choose one product that leads into the tree. These $N^2d$ products are *useful*; the others are not counted. Here a schedule with four keys computed two products a second time, and threw their sum away:

# %%
added = {"output": ["left", "right"], "left": ["key 1", "key 2"], "right": ["key 3", "key 4"],
         "thrown away": ["key 2, again", "key 3, again"]}


def products_in(word):
    """The products that lead into a partial sum."""
    if word not in added:
        return [word]
    return [one for part in added[word] for one in products_in(part)]


formed = [one for word in added for one in added[word] if one not in added]
print(f"{len(formed)} products formed; useful: {', '.join(products_in('output'))}")

# %% [markdown]
# Four of six, one for each key. A partial sum is *alive* from when it is computed until it goes into the next one. Rescaling it, or adding a product to it that is no word of its own, goes on with the same partial sum.
#
# **Step 2: one accumulator is enough.** A schedule may keep several partial sums of one output and merge them later. We may pretend there is one, at the price of a single word. Let $n$ be the number of partial sums of $o_{ic}$ that are alive and in fast memory. It changes in four ways:
#
# - a partial sum begins, with its first product: $1 + e$ times when $n$ was 0 (at least once, so $e \ge 0$), and $e'$ times when $n$ was at least 1;
# - one is read: $r_0$ times when $n$ was 0, and $r_1$ times when $n$ was at least 1 (to read what is there already changes nothing);
# - two are merged: $n$ was at least 2 and falls by 1;
# - one is dropped from fast memory, and is read again later: $n$ falls by 1.
#
# Say that the accumulator *is there* while $n \ge 1$, and *enters* when $n$ rises from 0. Here is one life; try others:

# %%
explore.partial_sums(["begin", "begin", "drop", "drop", "begin",
                      "read", "merge", "read", "merge"])

# %% [markdown]
# Squares count reads, circles entries. Fast memory is empty of this output once, and a new partial sum begins there: a second entry, and nothing was read for it. Do such entries come for free?
#
# **Predict** (guess). An accumulator enters four times, and at the end one partial sum is left. How few reads can there be?

# %% tags=["predict"]
predict("5.9", reads=3)  #> predict("5.9", reads=...)

# %%
def after(n, away, entries, reads):
    """What one event makes of n partial sums in fast memory and `away` dropped ones."""
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
# <details><summary>The price of an entry</summary>
#
# Three: in every life of up to 14 events there is at most one entry more than there are reads. Who begins anew while others are away must read them some day, to merge.
#
# </details>
#
# It is so in every life. All that have begun, $1 + e + e'$ of them, end as one, so there are $e + e'$ merges, each down to an $n$ of at least 1. Since $n$ starts at 0, it goes from 2 down to 1 no more often than from 1 up to 2, and so on for every height. The steps up from at least 1 are $r_1 + e'$, the steps down to at least 1 include the merges, and so $r_1 + e' \ge e + e'$:
#
# $$ r_1 \ge e , \qquad \text{hence} \qquad r_0 + (1 + e) \le (r_0 + r_1) + 1 . \tag{5.9} $$
#
# The left side counts the entries.
#
# **Step 3: segments.** Let $E$ count the entries of accumulators, and the reads of all words that are no living partial sum of an output. For one output (5.9) says: entries are at most reads of its partial sums, and one more. Added up over the $Nd$ outputs, the run reads at least $E - Nd$ words. It stores at least $Nd$, the outputs. So
#
# $$ W \ge (E - Nd) + Nd = E . \tag{5.10} $$
#
# Cut the run into segments of $T$ of these events; the last one may have fewer. A segment has at most $R = M + T$ different words to work with: those of fast memory at its start, where an accumulator that is there takes at least one, and those that enter or are read. Scores and weights *made* in the segment are not among them.
#
# <!-- exercise 5E --> (Optional.) A run says which words come into fast memory and which leave it. Return the words that each full segment works with. Without it, go on below its check. If you are stuck after five minutes, run `hint("5E")` in a cell of your own.

# %% [raw] name="about-5E"
# title = "Segments of a run"
# difficulty = 2
# importance = 2
# minutes = 10
# hints = [
#   "What must you know at the end of a segment to start the next one?",
#   "Keep two collections: the words that are in fast memory now, which shrinks when a word leaves, and the words that the segment has used, which only grows.",
#   "After the T-th load, output the words that the segment has used. The next segment starts with a copy of the words that are in fast memory now, because the two collections change independently afterwards.",
# ]

# %% tags=["exercise"] name="ex-5E"
def my_segments(run, T):
    """The words that each full segment works with: there at its start, or come in during it.

    run: a list of pairs ("in", word) and ("out", word), in order; at first nothing is there.
    T: a whole number of at least 1. As soon as T words have come in, a segment ends and the
    next one begins. Returns a list of sets; what follows the last full segment is left out.
    """
    ### BEGIN SOLUTION what is there, what the segment has seen, how many have come
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
# F3 with $N = 8$, $d = 2$ and blocks of four rows, cut by your function for three lengths $T$; `my_products` of exercise 5C says how many products each segment's words allow.

# %%
def f3_words(N, d, Br):
    """("in", word) and ("out", word) of F3: q and o stay for a block, keys and values pass."""
    for start in range(0, N, Br):
        block = list(product("qo", range(start, start + Br), range(d)))
        yield from (("in", word) for word in block)
        for j, name in product(range(N), "kv"):
            yield from ((event, (name, j, c)) for event in ("in", "out") for c in range(d))
        yield from (("out", word) for word in block)


def allowed(words, N, d):
    """Products p_ij v_jc that these words allow, when no score is at hand."""
    there = [word in words for word in product("qkvo", range(N), range(d))]
    return my_products(*np.reshape(there, (4, N, d)), np.zeros((N, N), bool))


def largest(T, N=8, d=2, Br=4):
    """(full segments, most words of one, most products of one) in F3's run."""
    cut = my_segments(list(f3_words(N, d, Br)), T)
    return len(cut), max(map(len, cut)), max(allowed(words, N, d) for words in cut)


M = 4 * 2 * 2 + 2  # four rows of q and of o, and a key or a value
for T in (4, 11, 22):
    segments, words, products = attempt(largest, T) or ("…",) * 3
    print(f"T = {T:2}: {segments} full segments; words {words}, allowed {M + T}; "
          f"products {products}, allowed {bounds.products_per_segment(M + T, d=2):.1f}")

# %% [markdown]
# In no segment are there more than $R = M + T$ words, and no segment's words allow more products than $F(R)$. Step 4 says why.
#
# **Step 4: at most $F(R)$ useful products in a segment.** Of the $R$ words let $n_v$ be words of $V$, $n_o$ accumulators, and $n_s$ the pairs $(i, j)$ of which a word, of the score, of a part of it or of the weight, was there at the start or was read. Let $x$ rows $q_i$ and $y$ rows $k_j$ be there with all their $d$ words. No word counts twice, for the arrays are distinct:
#
# $$ d(x + y) + n_v + n_o + n_s \le R . \tag{5.11} $$
#
# A useful product $p_{ij}v_{jc}$ of the segment needs $v_{jc}$, and it goes into a partial sum or begins one, so the accumulator of $o_{ic}$ is there. *Either* $(i, j)$ is one of the $n_s$ pairs. The triples $(i, j, c)$ of these products have their shadows among the pairs, the words of $V$ and the accumulators, so by Loomis and Whitney there are at most $\sqrt{n_s n_v n_o}$. *Or* $p_{ij}$ was made from nothing within the segment. Then row $q_i$ and row $k_j$ are among the $x$ and the $y$. If column $c$ has $a_c \le x$ accumulators in such rows and $b_c \le y$ words of $V$ in such rows, these are at most
#
# $$ \sum_c a_c b_c \le \min(x\, n_v,\; y\, n_o) \le \sqrt{xy\, n_v n_o} . \tag{5.12} $$
#
# Together at most $\sqrt{n_v n_o}\,\bigl(\sqrt{xy} + \sqrt{n_s}\bigr)$. Write $n_v + n_o = 2z$. A geometric mean is at most the arithmetic one: $\sqrt{n_v n_o} \le z$ and $\sqrt{xy} \le (x + y)/2$. With (5.11) for $x + y$, the number is at most
#
# $$ z \left( \frac{R - 2z}{2d} + \sqrt{n_s} - \frac{n_s}{2d} \right) \le z \cdot \frac{R - 2z + d^2}{2d} \le \frac{(R + d^2)^2}{16d} . \tag{5.13} $$
#
# The first step takes the $n_s$ for which $\sqrt{n_s} - n_s/2d$ is largest, $d^2$; the second takes the best $z$, which is $(R + d^2)/4$. That is $F(R)$ for $R \ge 3d^2$. If $R < 3d^2$, there is room for $n_s = d^2$ only while $z \le (R - d^2)/2$, and so far the middle of (5.13) grows with $z$, since $(R - d^2)/2 < (R + d^2)/4$. From there on the best $n_s$ is $R - 2z$, all that is left, and gives $z\sqrt{R - 2z}$, which is largest at $z = R/3$: that is $(R/3)^{3/2}$.
#
# We try every $z$ and $n_s$ in the left side of (5.13), for $d = 4$:

# %%
d = 4
for R in (30, 60, 240):
    n_s, z = np.meshgrid(np.arange(R + 1), np.arange(0, R / 2 + 0.5, 0.5))
    room = n_s + 2 * z <= R
    most = (z * ((R - 2 * z - n_s) / (2 * d) + np.sqrt(n_s)))[room].max()
    print(f"R = {R:3}: at most {most:8.2f}, F(R) = {bounds.products_per_segment(R, d):8.2f}")

# %% [markdown]
# **Step 5: how many segments.** Let $h$ be the number of full segments. The last one, with fewer than $T$ events (perhaps none), forms strictly fewer than $F(M + T)$ products, because $F$ grows with $R$. So $N^2d < (h + 1)\,F(M + T)$, which says $h \ge \lfloor N^2d/F(M + T) \rfloor$. Therefore $E \ge T\lfloor N^2d/F(M + T)\rfloor$, and (5.10) ends the proof. $\square$
#
# The same numbers for F3's run above:

# %%
N, d = 8, 2
moved = sum(event == "in" for event, _ in f3_words(N, d, Br=4))
for T in (4, 11, 22):
    segments = moved // T
    must = int(N * N * d // bounds.products_per_segment(M + T, d))
    print(f"T = {T:2}: {N * N * d} products take {must} full segments, F3 has {segments}; "
          f"{T * must} words proved, {moved} come in")

# %% [markdown]
# F3 moves 96 words, for its outputs are stored as often as they are begun, and the best of these $T$ proves 44. Rounding down costs much where there are two segments, and little where there are thousands.
#
# For the two lines of section 5.7: with $T = M + d^2$ we have $R + d^2 = 2(M + d^2)$, so $F = (M + d^2)^2/4d$ and $TN^2d/F = 4N^2d^2/(M + d^2)$; rounding down costs at most $T$. With $T = 2M$ and $M \le d^2$ we have $F = M^{3/2}$.
#
# *Registers.* On our machine four words beside the $M$ are free. They are fast memory too, so the bound for a run on the machine is taken at $M + 4$.
#
# ## 5.10 Scores computed once, or again
#
# Count the products $q_{ic}k_{jc}$ as well, $2N^2d$ in all, and treat a score that is being summed as an accumulator too; where it enters, its pair is one of the $n_s$. No store pays for its zero: (5.10) becomes $W \ge E - N^2$. Take $T = 2M$.
#
# *Theorem B, no product $q_{ic}k_{jc}$ formed twice* (bound `B_line`). A score or weight comes back only by a read, so every product has its pair among the $n_s$. With $n_q$ and $n_k$ words of $Q$ and $K$ there are at most $\sqrt{n_s n_q n_k} + \sqrt{n_s n_v n_o} \le \sqrt{n_s}\,(R - n_s)/2 \le (R/3)^{3/2}$:
#
# $$ W \ge \frac{4N^2d}{\sqrt M} - 2M - N^2 . \tag{5.14} $$
#
# *Theorem B′, computing again allowed* (bound `B'_line`). A weight may also come from a second sum, made from two whole rows as in (5.12). This raises the number of products from $M^{3/2}$ to $M^{3/2} + 9M^2/16d$ at most; section 7.10 ([07b](07b_input_gradient.ipynb)) proves it step by step.
#
# $$ W \ge \frac{4N^2d}{\sqrt M\left(1 + \frac{9\sqrt M}{16d}\right)} - 2M - N^2 . \tag{5.15} $$
#
# In the map of section 5.7 Theorem B′ is the larger bound below about $d^2$. For schedules that compute no score twice, as F3, `recompute=False` admits Theorem B.
#
# **Predict** (guess). $M = 16\,384 = 4d^2$. How many times the bound does F3 move, first among all schedules, then among those that compute no score twice?

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
# <details><summary>How much is left to win</summary>
#
# 1.33 and 1.06: at $M = 4d^2$ whoever computes no score twice saves at most 6 percent of F3's words. At 58,368 words F3 moves 1.19 times the bound. The distance grows to 1.58 at 262,144, where Theorem A and the compulsory traffic are of the same size. They may not be added, for both count the same reads.
#
# </details>
# <!-- f3 = lambda N, M: schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total -->
# <!-- 6 = 10**2 * (1 - bounds.lower_bound("forward", N, d, 16384, recompute=False)[0] / f3(N, 16384)) -->
#
# ## 5.11 What is published
#
# Saha and Ye proved in 2024 that for $M \ge d^2$ the order $N^2d^2/M$ cannot be improved, and for $M \le d^2$ the order $N^2d/\sqrt M$. They state no constants. If we keep those of their argument for $M \ge d^2$, it gives bound `saha_ye`:
#
# $$ W \ge \frac{N^2d^2}{4(M + d^2)} - M . \tag{5.16} $$
#
# **Predict** (compute). By what factor is Theorem A larger, for $N = 8192$, $d = 64$ and $M = 58\,368$?

# %% tags=["predict"]
predict("5.11", factor=16)  #> predict("5.11", factor=...)

# %%
N, d, M = 8192, 64, 58368
words = {
    "Saha and Ye": bounds.saha_ye(N, d, M + 4),
    "Theorem A": bounds.theorem_A(N, d, M + 4),
    "F3": schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total,
}
measured("5.11", factor=words["Theorem A"] / words["Saha and Ye"])
explore.bars(words, title="Forward pass, N = 8192, d = 64, M = 58,368")

# %% [markdown]
# <details><summary>The factor, and where it comes from</summary>
#
# A factor of 16.9, of which 16 is the ratio of the first terms. Their argument was made for the order: it counts the scores a segment can make and leaves $V$ and $O$ aside.
#
# </details>
#
# Every bound of the course knows where it comes from and how sure it is:
# <!-- 16 = 4 / (1 / 4) -->

# %%
for name in ("compulsory", "A_rows", "A", "B", "B'", "saha_ye", "matmul", "theta_attention"):
    print(f"{name:16} {bounds.BOUNDS[name].status}")

# %% [markdown]
# *Proved here*: the proof is in this course. We found the constants of A, B and B′ in none of the papers we read; the methods are those of the papers below. *Published argument, constants ours*: a paper proves the order, and we kept the constants of its argument. *Asymptotic only*: the constant is unknown; asked for a number of words, such a bound refuses. `bounds.BOUNDS["A"].holds_for` says for which schedules a bound holds.
#
# ## 5.12 Theorem and search
#
# On the smallest graphs there is an exact answer to compare with. One thing the game still lacks: on our machine `o.add_matmul(s, v)` adds a product to a tile *in place*. In the game this is a fifth move, `slide a to c`: `c` is computed and takes over the red pebble of its parent `a`. Product and sum are then one vertex, $c \leftarrow c + ab$ (`fma=True`, a fused multiply-add).
#
# **Predict** (guess). Attention with two queries, two keys and $d = 1$ has 6 inputs and 2 outputs. With how few red pebbles, one of 4, 5, 6 and 7, do 8 words suffice?

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
# <details><summary>How few, and what the theorem says there</summary>
#
# Four pebbles need 11 words, and with 7 the compulsory 8 are enough: less memory than there are inputs and outputs. Theorem A says 3 words at $M = 4$: at this size only the search says something. At millions of tokens no search does, and the theorem comes within a few percent of F3.
#
# </details>
#
# ## 5.13 An open challenge
#
# At $M = d^2$ theorem and schedules are farthest apart. The best schedule of the course stores its scores (F7d, lesson 07); the bounds are B′ and, where no score is computed twice, B:

# %%
for N, d in ((8192, 64), (2**22, 4096)):
    best, _, cost = schedules.best(N, d, d * d, "forward")
    told = [f"{best.label} {cost.total / N**2:.2f} N²"]
    for recompute in (True, False):
        words, which = bounds.lower_bound("forward", N, d, d * d, recompute=recompute)
        told.append(f"bound {which} {words / N**2:.2f} N²")
    print(f"N = {N:,}, d = {d:,}: {', '.join(told)}")

# %% [markdown]
# For large $d$ the schedule tends to 4 $N^2$ words and B′ to 2.12, and we know of nothing in between. Can you do with fewer words, or prove that more are needed? The rules are those of the machine: three distinct arrays in slow memory, $M = d^2$ words of fast memory, exact attention, and a ledger that counts every word. Two places to look: schedules that store some of the scores and make the others again, and the count of products in step 4.
#
# The machine is the referee. `challenge` tries a schedule as a check does, on fresh numbers and ragged shapes; then it counts its words at $N = 65{,}536$ and $d = 64$, and says how they stand to the best schedule of the library and to the theorem. There is no budget, and there are no hints. Begin with yours of exercise 4C, so that you see what there is to beat:

# %%
def my_flash_optimal(m, Q, K, V, *, Br, Bc):
    """softmax(QKᵀ/√d) V: your schedule of exercise 4C, copied here."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    ### BEGIN SOLUTION the body of yours, as in exercise 4C
    for i in m.blocks(N, Br):  # stays: q (Br, d), o (Br, d), stats 2·Br
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k:     # (Bc, d)
                    s = q @ k.T             # (Br, Bc)
                with s, m.load(V, j) as v:  # (Bc, d), in the room K_j has left
                    stats.update(s, o)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O
    ### END SOLUTION


challenge("forward", my_flash_optimal, Br=30, Bc=1)

# %% [markdown]
# The least that is known here is 4.1192 $N^2$, by F7d of lesson 07. Your fewest words are kept with your progress.
#
# ## Misconceptions
#
# - **"The bounds add up: $4Nd$ plus Theorem A."** Both count the same reads (section 5.10).
# - **"The proof needs one accumulator for each output."** Schedules may keep many; (5.9) says that it saves them one word an output at most.
# - **"A segment is a step of the algorithm."** It is a stretch of *any* run, cut by a counter.
#
# ## Take-away
#
# - Cut a run into segments, ask how many products $R = M + T$ words allow, divide, and choose the best $T$.
# - Whole rows make scores that count as no word; that is where $d^2$ and the 4 come from.
# - Each hypothesis has its line: distinct arrays (5.11), products $p_{ij}v_{jc}$ step 1, a fixed number of outputs (5.10).
#
# ## References
#
# - J.-W. Hong, H. T. Kung: *I/O complexity: the red-blue pebble game*, STOC 1981. Segments.
# - L. H. Loomis, H. Whitney: *An inequality related to the isoperimetric inequality*, Bulletin of the AMS 55, 1949.
# - D. Irony, S. Toledo, A. Tiskin: *Communication lower bounds for distributed-memory matrix multiplication*, 2004. Segments with Loomis-Whitney.
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). $2mnk/\sqrt M - 2M$ for the matrix product.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The orders for both regimes, and fast matrix multiplication.
#
# **What comes next.** Lesson 06. Its sections 6.10 to 6.12 carry these five steps over to the backward pass.
