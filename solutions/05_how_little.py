# %% [markdown]
# # 05 How little is possible
#
# Lesson 04 brought attention down to 4 times $N^2d^2/M$ words, by the order of the loops and by the tile. Will somebody bring it down to 2? To answer that we need a statement about *every* schedule, those that nobody has thought of included. On graphs of a dozen vertices a search tries everything, and the exact answer holds a surprise: the cheapest way to a row of softmax computes its exponentials twice. For real sizes we count. Where rows travel whole and no score is kept, three lines prove the 4. Where rows may be cut and scores kept it takes Theorem A, which says the same: 4 cannot be improved.
#
# **What you will learn**
#
# - to play the red-blue pebble game, and why computing a number twice can be cheaper than keeping it;
# - to prove the 4 in three lines for whole rows, by counting how often two rows meet;
# - to turn "how many products do $R$ words allow?" into a lower bound for any schedule;
# - Theorem A with its whole proof, and what it does not cover;
# - how far the schedules of lesson 04 are from it, and why 4 is the exact constant.
#
# **Prerequisites**: lesson 02 (traffic of the matrix product), lesson 04 (F1, F2, F3). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: 100, of which <!-- minutes --> are for the exercises. The proof in section 5.9 takes 30 minutes more.
#
# <!-- exercises -->
#
# Sections 5.10 and 5.11 use what section 5.9 proves and not how, so the proof can wait for another day.

# %% tags=["setup"]
from itertools import product

import numpy as np

from iocourse import bounds, explore, pebbling, schedules
from iocourse.course import attempt, check, hint, measured, predict

# %% [markdown]
# ## 5.1 Red and blue pebbles
#
# First we say what a computation is, without any order in it: a *graph*. Each vertex is one word. The words it is computed from are its *parents*; a vertex without parents is an input, and one that is nobody's parent is an output. The scalar product of two vectors of two words:

# %%
graph = pebbling.dot(2)
for vertex in graph.vertices:
    print(f"{vertex:3} from {', '.join(graph.parents[vertex]) or 'slow memory: an input'}")

# %% [markdown]
# On this graph we play a game with two kinds of pebbles. A **red** pebble on a vertex says that its word is in fast memory; there are $M$ red pebbles. A **blue** one says that it is in slow memory; of these there are as many as we like. At the start every input is blue. At the end every output must be. The moves are those of our machine, for single words:
#
# | move | allowed when | words moved |
# | --- | --- | --- |
# | `load a` | `a` has a blue pebble: it gets a red one too | 1 |
# | `store a` | `a` has a red pebble: it gets a blue one too | 1 |
# | `compute c` | all parents of `c` are red: `c` gets a red pebble | 0 |
# | `delete a` | `a` has a red pebble: it goes back into the box | 0 |
#
# The fewest loads and stores with which the game can be finished is what the computation must move, whatever the order. Hong and Kung invented the game for this in 1981.
#
# **Predict.** With $M = 4$ red pebbles, how many words does the scalar product of two and two words move at least?

# %% tags=["predict"]
predict("5.1", words=5)  #> predict("5.1", words=...)

# %%
moves = [
    "load a1", "load b1", "compute p1", "delete a1", "delete b1",
    "load a2", "load b2", "compute p2", "delete a2", "delete b2", "compute s", "store s",
]
measured("5.1", words=pebbling.cost_of(graph, moves, M=4))

# %% [markdown]
# 5 words: four inputs and one output. Fewer is impossible, because every input that is used has to be loaded and every output has to be stored. This is the *compulsory* traffic of a graph, `pebbling.compulsory(graph)`. The picture shows the board after the eighth move:

# %%
explore.pebbles(graph, 8, moves, M=4)

# %% [markdown]
# All four red pebbles are in use: on `a2`, `b2` and their product, and on `p1`, which waits. With three, this order breaks a rule:

# %%
try:
    pebbling.replay(graph, moves, M=3)
except pebbling.IllegalMove as error:
    print(error)

# %% [markdown]
# The referee, `pebbling.replay`, names the move and the rule: while `p1` waits, the factors take the other two pebbles, and `p2` has nowhere to go.

# %% [markdown]
# ## 5.2 A scalar product by hand
#
# To form a product takes three red pebbles, for two factors and the product. If there are only three, the sum so far has to wait in slow memory meanwhile, and every wait costs two words, a store and a load.
#
# For longer vectors, `pebbling.dot(d)` has inputs `a1`, …, `ad` and `b1`, …, `bd`, products `p1`, …, `pd`, and sums from left to right: `s_2` from `p1` and `p2`, then `s_3` from `s_2` and `p3`, and so on; the last sum is called `s`. For $d = 2$ there is only `s`.
#
# <!-- exercise 5A --> Write a function that returns the moves for $M = 3$ and any $d \ge 2$, as a list of texts such as `"load a1"`. They may move $4d - 1$ words. Begin with $d = 2$ on paper. If you are stuck after six minutes, run `hint("5A")` in a cell of your own.

# %% tags=["exercise"] name="ex-5A"
def my_dot_moves(d):
    """The moves of a scalar product of d words with three red pebbles.

    d: a whole number of at least 2. Returns a list of texts: "load a1", "compute p1", ...
    """
    moves = ["load a1", "load b1", "compute p1", "delete a1", "delete b1"]
    ### BEGIN SOLUTION one round for each further product
    so_far = "p1"
    for l in range(2, d + 1):
        total = "s" if l == d else f"s_{l}"
        moves += [f"store {so_far}", f"delete {so_far}"]
        moves += [f"load a{l}", f"load b{l}", f"compute p{l}", f"delete a{l}", f"delete b{l}"]
        moves += [f"load {so_far}", f"compute {total}"]
        moves += [f"delete {so_far}", f"delete p{l}"]
        so_far = total
    return [*moves, "store s"]
    ### END SOLUTION


# %% tags=["check"] name="check-5A"
check("5A", my_dot_moves)

# %% [markdown]
# The words of your pebblings beside the compulsory ones:

# %%
def words_of_mine(d):
    return pebbling.cost_of(pebbling.dot(d), my_dot_moves(d), M=3)


for d in (2, 3, 10, 100):
    least = pebbling.compulsory(pebbling.dot(d))
    print(f"d = {d:3}: {attempt(words_of_mine, d)} words, compulsory {least}")

# %% [markdown]
# 7, 11, 39 and 399 words, where 5, 7, 21 and 201 are compulsory. There are $d - 1$ waits of two words each, so your pebblings move
#
# $$ W = \underbrace{2d + 1}_{\text{compulsory}} + \underbrace{2(d - 1)}_{\text{waiting}} = 4d - 1 . \tag{5.1} $$
#
# Does no other order do it in fewer with three pebbles?

# %% [markdown]
# ## 5.3 The cheapest of all
#
# For small graphs we can try everything. Where the pebbles stand is a *state*, a move leads from one to another, and what we look for is a shortest way. `pebbling.optimum` finds it with A*: it always goes on from the state for which the cost so far, plus the words that surely must follow, is smallest. The answer is exact, and comes with the moves.
#
# **Predict.** What does the search find for $d = 2$ and $d = 3$ with three red pebbles, and for $d = 3$ with four?

# %% tags=["predict"]
predict("5.3", d2_M3=7, d3_M3=11, d3_M4=7)  #> predict("5.3", d2_M3=..., d3_M3=..., d3_M4=...)

# %%
found = {(d, M): pebbling.optimum(pebbling.dot(d), M) for d in (2, 3) for M in (3, 4)}
for (d, M), best in found.items():
    print(f"d = {d}, M = {M}: {best.cost:2} words, {best.states} states looked at")
measured("5.3", d2_M3=found[2, 3].cost, d3_M3=found[3, 3].cost, d3_M4=found[3, 4].cost)

# %% [markdown]
# 7 and 11: your pebblings are cheapest, and so it goes on with (5.1) as far as the search goes. With four pebbles the compulsory 7 words do for $d = 3$: with three every sum waits, with four none does.

# %% [markdown]
# ## 5.4 Computing twice on purpose
#
# Now a row of softmax: $e_j = e^{x_j}$, their sum $\ell$, and $p_j = e_j/\ell$ for $n$ scores. (The maximum is left out, to keep the graph small.) `pebbling.softmax_row(n)` has inputs `x1`, …, `xn`, exponentials `e1`, …, `en`, sums `l_2`, `l_3`, …, the last called `l`, and outputs `p1`, …, `pn`, each computed from its `e` and `l`.
#
# Every exponential is needed twice: for the sum, and for its own weight when the sum is there. With three pebbles it cannot stay in between. Either it is stored and loaded, or it is computed again; with `recompute=False` the search computes each vertex once only.
#
# **Predict.** $n = 3$ and $M = 3$; three inputs and three outputs are compulsory. How many words does the cheapest pebbling move if each vertex is computed once, and how many if it may be computed again?

# %% tags=["predict"]
predict("5.4", once=10, again=8)  #> predict("5.4", once=..., again=...)

# %%
row = pebbling.softmax_row(3)
print(" M   once  again")
for M in (3, 4, 5):
    costs_at_M = [pebbling.optimum(row, M, recompute=allowed).cost for allowed in (False, True)]
    print(f"{M:2}   {costs_at_M[0]:4}  {costs_at_M[1]:5}")
once = pebbling.optimum(row, 3, recompute=False)
measured("5.4", once=once.cost, again=pebbling.optimum(row, 3).cost)

# %% [markdown]
# 10 against 8. Both are exact: for $n = 3$ the search leaves nothing out, and with each vertex computed once it finds nothing below 10. An optimal pebbling of that kind, with the deletes left out:

# %%
print("; ".join(str(move) for move in once.moves if move.kind != "delete"))

# %% [markdown]
# Two exponentials are stored once they have gone into the sum, and loaded again at the end: four words. That is naive attention's way with its matrix $P$. With recomputation each of the two costs one word, its score once more.
#
# <!-- exercise 5B --> Write a function that returns the moves for $M = 3$ and any $n \ge 2$. Vertices may be computed again. Your moves may move $3n - 1$ words, which is 8 for $n = 3$. If you are stuck after seven minutes, run `hint("5B")` in a cell of your own.

# %% tags=["exercise"] name="ex-5B"
def my_softmax_moves(n):
    """The moves of a softmax row of n scores with three red pebbles; recomputing is allowed.

    n: a whole number of at least 2. Returns a list of texts: "load x1", "compute e1", ...
    """
    moves = ["load x1", "compute e1", "delete x1"]
    ### BEGIN SOLUTION eight words in all when n is 3
    so_far = "e1"
    for j in range(2, n + 1):
        total = "l" if j == n else f"l_{j}"
        moves += [f"load x{j}", f"compute e{j}", f"delete x{j}"]
        moves += [f"compute {total}", f"delete {so_far}"]
        if j < n:
            moves.append(f"delete e{j}")
        so_far = total
    moves += [f"compute p{n}", f"store p{n}", f"delete p{n}", f"delete e{n}"]
    for j in range(1, n):
        moves += [f"load x{j}", f"compute e{j}", f"delete x{j}", f"compute p{j}"]
        moves += [f"store p{j}", f"delete p{j}", f"delete e{j}"]
    return moves
    ### END SOLUTION


# %% tags=["check"] name="check-5B"
check("5B", my_softmax_moves)

# %% [markdown]
# Yours beside both optima, as far as the search is quick:

# %%
def words_of_my_row(n):
    return pebbling.cost_of(pebbling.softmax_row(n), my_softmax_moves(n), M=3)


for n in (3, 4, 5, 6):
    row = pebbling.softmax_row(n)
    once, again = (pebbling.optimum(row, 3, recompute=r).cost for r in (False, True))
    mine = attempt(words_of_my_row, n)
    print(f"n = {n}: yours {mine}, optimum {again}, each vertex once {once}")

# %% [markdown]
# The optima are 8, 11, 14 and 17 with recomputation and 10, 14, 18 and 22 without. As far as the search goes, then,
#
# $$ W_\text{again} = 3n - 1, \qquad W_\text{once} = 4n - 2 . \tag{5.2} $$
#
# With recomputation every score but one is read twice, and no exponential ever travels. This is FlashAttention's backward pass in miniature: it needs the weights of the forward pass once more, and instead of reading them it computes them again from $Q$ and $K$ (lesson 06). So a bound for all schedules must allow recomputing.
#
# The next cell is a board. It plays the cheapest pebbling, or, under *try yourself*, yours. (Without a running kernel you see how the cheapest one ends.)

# %%
explore.pebble_player(pebbling.softmax_row(3))

# %% [markdown]
# ## 5.5 In place, and where searching ends
#
# Our machine has a rule that the game still lacks: `o.add_product(s, v)` adds a product to a tile *in place*. In the game this is a fifth move, `slide a to c`: `c` is computed and takes over the red pebble of its parent `a`. Product and sum are then one vertex, $c \leftarrow c + ab$ (`fma=True`, a fused multiply-add).
#
# **Predict.** Attention with two queries, two keys and $d = 1$ has 6 inputs and 2 outputs. With how few red pebbles do 8 words suffice?

# %% tags=["predict"]
predict("5.5", pebbles=7)  #> predict("5.5", pebbles=...)

# %%
tiny = pebbling.attention(2, 2, fma=True)
least = pebbling.compulsory(tiny)
print(f"{tiny}; compulsory {least} words")
cheapest = {M: pebbling.optimum(tiny, M, slide=True).cost for M in (4, 5, 6, 7)}
print("; ".join(f"M = {M}: {words} words" for M, words in cheapest.items()))
measured("5.5", pebbles=min(M for M, words in cheapest.items() if words == least))

# %% [markdown]
# Four pebbles need 11 words, and with 7 the compulsory 8 are enough: less memory than there are inputs and outputs. These are 18 vertices. Three queries and three keys make 42 with products and sums apart:

# %%
try:
    pebbling.optimum(pebbling.attention(3, 3), 4, max_states=20_000)
except pebbling.TooLarge as refusal:
    print(refusal)

# %% [markdown]
# It gives up. When a graph grows a little, the number of states is multiplied: in section 5.3 four vertices more took it from 7 to 42. A head of attention has millions of vertices, and so we need an argument in place of a search.

# %% [markdown]
# ## 5.6 Rows that meet, and segments
#
# ### Whole rows: three lines
#
# F1, F2 and F3 move whole rows and keep no scores. For all schedules that do, it is enough to count how often rows meet:
#
# - rows of $Q$, $K$, $V$ and $O$ are read, begun, merged, stored and dropped as wholes, and these are *distinct arrays*: no word of one serves as a word of another;
# - the run can be cut into *steps*, in each of which at most $t$ words come in; between steps no score, weight or part of one is in fast memory, and none ever travels.
#
# All else is free. In F3 a step is one key and its value, so $t = 2d$; the rows of a block come in by steps of their own.
#
# **One: each pair meets four times.** In some step the product $p_{ij}v_{j1}$ of the first column goes into a sum for $o_i$. The weight was made in that step, so $q_i$ and $k_j$ are there as well. Four times a row of $i$ meets a row of $j$:
#
# | | $k_j$ | $v_j$ |
# | --- | --- | --- |
# | $q_i$ | they make the score | meet in the same step |
# | $o_i$ | meet in the same step | the product is added |
#
# **Two: a row that comes in has few rows to meet.** Charge each meeting to that of its two rows which came in later. In the step in which it came, the other one was there. A step sees the $M$ words of its start and the $t$ that come, so at most $(M + t)/d$ rows. No row that comes in is charged more than that.
#
# **Three: to come in costs $d$ words.** A row of an input is read. A row of $O$ is read or begins as zeros, and for the zeros its store at the end pays (step 2 of section 5.9 says why once is enough). So at most $W/d$ rows come in, and
#
# $$ 4N^2 \le \frac Wd \cdot \frac{M + t}{d} , \qquad \text{so} \qquad W \ge \frac{4N^2d^2}{M + t} . $$
#
# This is bound `A_rows`. Why $t$? When F3's key has left to make room for its value, it has still been there in that step. Now count on a run of F3, with $N = 4$ and blocks of $B_r$ queries.
#
# **Predict.** For $B_r = 2$: how many meetings are charged in all, and how many rows come in?

# %% tags=["predict"]
predict("5.6", meetings=64, rows=24)  #> predict("5.6", meetings=..., rows=...)

# %%
def f3_rows(N, Br):
    """("in" or "out", row) for each row that comes into fast memory or leaves it in F3."""
    for start in range(0, N, Br):
        block = [(name, i) for i in range(start, start + Br) for name in "qo"]
        yield from (("in", row) for row in block)
        for j, name in product(range(N), "kv"):  # one key, then its value
            yield "in", (name, j)
            yield "out", (name, j)
        yield from (("out", row) for row in block)


def charged(events):
    """(meetings, rows that came in). A row that comes in meets those of the other side."""
    there, meetings, rows = set(), 0, 0
    for event, row in events:
        if event == "out":
            there.remove(row)
            continue
        other_side = "kv" if row[0] in "qo" else "qo"
        meetings += sum(name in other_side for name, _ in there)
        rows += 1
        there.add(row)
    return meetings, rows


counted = {Br: charged(f3_rows(4, Br)) for Br in (1, 2, 4)}
for Br, (meetings, rows) in counted.items():
    print(f"Br = {Br}: {meetings} meetings, {rows} rows come in")
measured("5.6", meetings=counted[2][0], rows=counted[2][1])

# %% [markdown]
# 64 meetings each time, four for each of $4^2$ pairs. The keys and values pay for all of them. The larger the block, the more rows each finds, and the fewer come; and F3 fills fast memory with the block.
#
# Could a pair pay less by leaving and coming back at the right moments? `bounds.cheapest_walk` tries all its comings and goings. (In lesson 06 a pair has seven rows, and the search is needed.) Below it F3 beside the bound; and at $M = 1024$, a quarter of $d^2$, F5 of lesson 07, which cuts rows and stores scores.

# %%
walk = bounds.cheapest_walk(bounds.whole_rows.FORWARD, bounds.whole_rows.ENTRIES)
print(f"the cheapest walk of a pair pays {walk.cost:g}: {', '.join(walk.walk)}")
for M, schedule in ((58368, schedules.flash_optimal), (1024, schedules.small_cache)):
    words = schedule.cost(8192, 64, **schedule.tiles(8192, 64, M)).total
    ratio = words / bounds.theorem_A_rows(8192, 64, M + 4)
    print(f"M = {M:6,}: {schedule.name} moves {words:,} words, {ratio:.2f} × A_rows")

# %% [markdown]
# F3 moves 1.12 times the bound, and as $N$ and $d$ grow the two meet (section 5.10). F5 moves 0.67 times what `A_rows` says. It may: where scores are stored, a pair need not meet four times. A bound for such schedules too takes a second tool.
#
# ### Segments
#
# It is best learnt on the matrix product $C = AB$, with $A$ $(m, k)$, $B$ $(k, n)$ and $mnk$ multiply-adds $c_{ij} \leftarrow c_{ij} + a_{il}b_{lj}$. Take any run of any schedule, and cut it into *segments*: each segment ends when $T$ words have come into fast memory.
#
# ```
# there at the start:   ≤ M        ≤ M        ≤ M               ≤ M
# run:                | segment  | segment  | segment  | ... | the last one |
# words that come in:    T          T          T               fewer than T
# ```
#
# A segment works with at most $R = M + T$ different words. Suppose we knew that $R$ words allow at most $F(R)$ multiply-adds. Then $mnk$ of them take at least $\lfloor mnk/F(R) \rfloor$ full segments, and each brings in $T$ words:
#
# $$ W \ge T \left\lfloor \frac{mnk}{F(M + T)} \right\rfloor . \tag{5.3} $$
#
# The order of the work does not appear, so this holds for every schedule. Each choice of $T$ gives a true bound, and we take the best one.
#
# So how many multiply-adds do $R$ words allow? A multiply-add is a triple $(i, j, l)$, a point in a box, and needs $a_{il}$, $b_{lj}$ and $c_{ij}$, its shadows on three walls. Loomis and Whitney showed in 1949 that a set of points is at most the square root of the product of the sizes of its shadows. With $n_A$, $n_B$, $n_C$ words of the three,
#
# $$ \text{multiply-adds} \le \sqrt{n_A\, n_B\, n_C} \le \left(\frac{R}{3}\right)^{3/2} = F(R) , \tag{5.4} $$
#
# because a product of three numbers with sum $R$ is largest when they are equal. In the picture $i$ runs to the lower left, $j$ to the lower right and $l$ upwards; each multiply-add is a small cube:

# %%
corner, apart = np.zeros((3, 3), int), np.eye(3, dtype=int)
corner[:2, :2] = apart[0, 2] = 1
explore.shadows({"a corner": [corner, corner, corner],
                 "scattered": [apart[::-1], apart, apart.T[::-1]]},
                title="4 words of each array, in two ways")

# %% [markdown]
# Both times 4 words of each array are there. A full cube of side 2 has them as its shadows and $\sqrt{4 \cdot 4 \cdot 4} = 8$ points; words that do not fit together allow 3.
#
# Now choose $T$. The best balance is $T = 2M$, where $T/F(M + T)$ is largest: then $R = 3M$, $F(R) = M^{3/2}$, and (5.3) becomes the bound of lesson 02, for rounding down costs at most one segment:
#
# $$ W \ge 2M\left\lfloor \frac{mnk}{M^{3/2}} \right\rfloor \ge \frac{2mnk}{\sqrt M} - 2M . \tag{5.5} $$
#
# As with whole rows, a word of $C$ may begin as a zero, which is not moved, and its store at the end pays for that.

# %% [markdown]
# ## 5.7 How many products do R words allow?
#
# Attention is two products in a row, $S = QK^\top$ and $O = PV$, and the scores between them need not travel. We count the products $p_{ij}v_{jc}$: there are $N^2d$. Which of them can a segment form? It needs the word $v_{jc}$ and the *accumulator* $o_{ic}$, the sum to which the product is added. And it needs $p_{ij}$, for which there are two ways:
#
# - the score, or its exponential, or a part of its sum, is *at hand*: it was in fast memory at the start or was read; this takes one word;
# - it is *made* in the segment from nothing. Then all $d$ words of $q_i$ and all $d$ words of $k_j$ must be there.
#
# The second way is what makes attention different. Whole rows are dear, $d$ words each, but $x$ whole rows of $Q$ and $y$ of $K$ give $xy$ scores that count as no word at all.
#
# <!-- exercise 5C --> Five boolean arrays say which words a segment has. Count the products $p_{ij}v_{jc}$ that it can form. Queries and keys may differ in number. If you are stuck after six minutes, run `hint("5C")` in a cell of your own.

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
# The most that $R$ words allow is a short calculation (section 5.9):
#
# $$ F(R) = \begin{cases} \dfrac{(R + d^2)^2}{16d} & R \ge 3d^2, \\[1ex] \left(\dfrac R3\right)^{3/2} & R < 3d^2. \end{cases} \tag{5.6} $$
#
# In the second case whole rows are too dear, and attention is like a matrix product, with scores in place of $A$. To check it we try everything: two queries, two keys and $d = 1$ have 8 words of $Q$, $K$, $V$ and $O$ and 4 scores.
#
# **Predict.** With all 12 words one can form $N^2d = 4$ products. How many words are enough for all four?

# %% tags=["predict"]
predict("5.7", enough=8)  #> predict("5.7", enough=...)

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
measured("5.7", enough=attempt(fewest_words, my_products))

# %% [markdown]
# 1, 2, 3 and 4 products, and $F(R)$ is 1, 2.25, 4 and 5.06; none of the 4096 choices is above it. 8 words are enough, and no score is among them: all four are made.
#
# With many words whole rows come close to $F$: $x$ rows of each array take $R = 4dx$ words and form $x^2d = R^2/16d$ products, where $F$ has $R + d^2$ in place of $R$.

# %% [markdown]
# ## 5.8 Theorem A
#
# Put (5.6) into (5.3), with $N^2d$ products:
#
# $$ W \ge T \left\lfloor \frac{N^2d}{F(M + T)} \right\rfloor \qquad \text{for every whole } T \ge 1 . \tag{5.7} $$
#
# This is Theorem A, bound `A` of the library's list. It holds for every schedule that
#
# - forms each score $s_{ij}$ from $d$ products $q_{ic}k_{jc}$, and the weight $p_{ij}$ from the score and from numbers of row $i$, such as $m_i$ and $\ell_i$;
# - forms each output $o_{ic}$ from the products $p_{ij}v_{jc}$ of all keys $j$, up to a factor of the row;
# - has $Q$, $K$ and $V$ as distinct arrays: no word of one serves as a word of another.
#
# The last is needed: with $K = V$ a row that comes in does the work of two, and half the words are enough. (Lesson 09 asks which line of the proof breaks.) Order, tiles, partial sums and scores that are kept are free, and *anything may be computed again*. Outside are fast matrix multiplication, such as Strassen's, and attention that never forms a $p_{ij}$, as in low-rank approximations.
#
# <!-- exercise 5D --> Evaluate (5.7) for the best $T$. You may try every $T$, as long as you know when to stop. If you are stuck after five minutes, run `hint("5D")` in a cell of your own.

# %% tags=["exercise"] name="ex-5D"
def my_bound(N, d, M):
    """The largest number of words that (5.7) proves, over all T.

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
# **Predict.** Which $T$ is best? Look at (5.7) without the rounding, $T/F(M + T)$ with $F$ of the first case, and find the $T$ where it is largest, for $M = 58\,368$ and $d = 64$.

# %% tags=["predict"]
predict("5.8", best_T=62464)  #> predict("5.8", best_T=...)

# %%
N, d, M = 8192, 64, 58368
lengths = range(1, 4 * M)
rate = [T / bounds.products_per_segment(M + T, d) for T in lengths]
for T in (M // 4, M + d * d, 4 * M):
    print(f"T = {T:7,}: {bounds.theorem_A(N, d, M, T=T):10,} words")
print(f"the best T: {attempt(my_bound, N, d, M):,} words")
measured("5.8", best_T=lengths[int(np.argmax(rate))])

# %% [markdown]
# The best $T$ is $M + d^2 = 62{,}464$; a quarter of $M$ or four times $M$ proves between 0.6 and 0.7 of that. Trying every $T$ wins a little more, 17,602,158 against 17,552,384 words, where the rounding takes next to nothing away. With $T = M + d^2$ where $M$ is at least $d^2$, and $T = 2M$ below, (5.7) turns into two lines to remember:
#
# $$ W \ge \frac{4N^2d^2}{M + d^2} - (M + d^2) \quad (M \ge d^2), \qquad W \ge \frac{2N^2d}{\sqrt M} - 2M \quad (M \le d^2). \tag{5.8} $$
#
# These are the bounds `A_large` and `A_small`. The first is (4.7) of lesson 04. Beside `A_rows` it has $d^2$ for $t$, and something is subtracted: that is the price of the larger class.
#
# And at the size of section 5.5?
# <!-- N, d, M = 8192, 64, 58368 -->
# <!-- shares = [bounds.theorem_A(N, d, M, T=T) / bounds.theorem_A(N, d, M, T=M + d**2) for T in (M // 4, 4 * M)] -->
# <!-- 0.6, 0.7 = math.floor(10 * min(shares)) / 10, math.ceil(10 * max(shares)) / 10 -->

# %%
tiny_bound = attempt(my_bound, 2, 1, 4)
print(f"N = 2, d = 1, M = 4: Theorem A {tiny_bound} words, compulsory 8, optimum {cheapest[4]}")

# %% [markdown]
# Three words, where 8 are compulsory. At this size only the search says something. At millions of tokens no search does, and the theorem comes within a few percent of F3 (section 5.10).

# %% [markdown]
# ## 5.9 The proof, step by step
#
# **Step 1: useful products.** Take an output word $o_{ic}$ as it is stored at the end, and go back through the additions that made it, down to products $p_{ij}v_{jc}$. On the way are the *partial sums* of $o_{ic}$; a product formed as a word of its own is one as well. Where one was used several times we keep one use, so they form a tree. For each key $j$ we choose one product that leads into the tree. These $N^2d$ products are *useful*; the others are not counted. A partial sum is *alive* from when it is computed until it goes into the next one. Rescaling it, or adding a product to it that is no word of its own, goes on with the same partial sum.
#
# **Step 2: one accumulator is enough.** A schedule may keep several partial sums of one output and merge them later. We may pretend there is one, at the price of a single word. Let $n$ be the number of partial sums of $o_{ic}$ that are alive and in fast memory. It changes in four ways:
#
# - a partial sum begins, with its first product: $1 + e$ times when $n$ was 0 (at least once, so $e \ge 0$), and $e'$ times when $n$ was at least 1;
# - one is read: $r_0$ times when $n$ was 0, and $r_1$ times when $n$ was at least 1 (to read what is there already changes nothing);
# - two are merged: $n$ was at least 2 and falls by 1;
# - one is dropped from fast memory, and is read again later: $n$ falls by 1.
#
# All that have begun, $1 + e + e'$ of them, end as one, so there are $e + e'$ merges, each down to an $n$ of at least 1. Since $n$ starts at 0, it goes from 2 down to 1 no more often than from 1 up to 2, and so on for every height. The steps up from at least 1 are $r_1 + e'$, the steps down to at least 1 include the merges, and so $r_1 + e' \ge e + e'$:
#
# $$ r_1 \ge e , \qquad \text{hence} \qquad r_0 + (1 + e) \le (r_0 + r_1) + 1 . \tag{5.9} $$
#
# Say that the accumulator *is there* while $n \ge 1$, and *enters* when $n$ rises from 0. Then (5.9) says: there is at most one entry more than there are reads. Here is one life, with $n$ as a staircase; try others:

# %%
n = entries = reads = 0
for event in ["begin", "begin", "drop", "drop", "begin", "read", "merge", "read", "merge"]:
    entries += n == 0
    reads += event == "read"
    n += 1 if event in ("begin", "read") else -1
    print(f"{event:6} n = {n} {'█' * n}")
print(f"{entries} entries, {reads} reads")

# %% [markdown]
# **Step 3: segments.** Let $E$ count the entries of accumulators, and the reads of all words that are no living partial sum of an output. By (5.9), added up over the $Nd$ outputs, the run reads at least $E - Nd$ words. It stores at least $Nd$, the outputs. So
#
# $$ W \ge (E - Nd) + Nd = E . \tag{5.10} $$
#
# Cut the run into segments of $T$ of these events; the last one may have fewer. A segment has at most $R = M + T$ different words to work with: those of fast memory at its start, where an accumulator that is there takes at least one, and those that enter or are read. Scores and weights *made* in the segment are not among them.

# %% [markdown]
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
# A check by trying every $z$ and $n_s$ in the left side of (5.13), for $d = 4$:

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
# For (5.8): with $T = M + d^2$ we have $R + d^2 = 2(M + d^2)$, so $F = (M + d^2)^2/4d$ and $TN^2d/F = 4N^2d^2/(M + d^2)$; rounding down costs at most $T$. With $T = 2M$ and $M \le d^2$ we have $F = M^{3/2}$.
#
# *Registers.* On our machine four words beside the $M$ are free. They are fast memory too, so the bound for a run on the machine is taken at $M + 4$.

# %% [markdown]
# **Two relatives.** Count the products $q_{ic}k_{jc}$ as well, $2N^2d$ in all, and treat a score that is being summed as an accumulator too; where it enters, its pair is one of the $n_s$. No store pays for its zero: (5.10) becomes $W \ge E - N^2$. Take $T = 2M$.
#
# *Theorem B, no product $q_{ic}k_{jc}$ formed twice* (bound `B_line`). A score or weight comes back only by a read, so every product has its pair among the $n_s$. With $n_q$ and $n_k$ words of $Q$ and $K$ there are at most $\sqrt{n_s n_q n_k} + \sqrt{n_s n_v n_o} \le \sqrt{n_s}\,(R - n_s)/2 \le (R/3)^{3/2}$:
#
# $$ W \ge \frac{4N^2d}{\sqrt M} - 2M - N^2 . \tag{5.14} $$
#
# *Theorem B′, computing again allowed* (bound `B'_line`). A weight may also come from a second sum, made from two whole rows as in (5.12). This raises the number of products from $M^{3/2}$ to $M^{3/2} + 9M^2/16d$ at most; section 7.10 proves it step by step.
#
# $$ W \ge \frac{4N^2d}{\sqrt M\left(1 + \frac{9\sqrt M}{16d}\right)} - 2M - N^2 . \tag{5.15} $$

# %% [markdown]
# ## 5.10 Bound and schedules over M
#
# Grey is what no schedule of the class can do: below $4Nd$, Theorem A or Theorem B′, each taken at $M + 4$. The shades say what moves the fewest words for large $N$, with three schedules of lesson 07. *Row blocks*, from $d^2$ on, are F3. Below $d^2$ it pays to store scores: F7, and from $d^2/2$ down F7d. Below $d^2/4$ it is blocked products, as in lesson 02: F5.

# %%
explore.memory_map(8192, 64, M=58368, M_range=(128, 2**22),
                   schedules=("naive", "flash1", "flash_optimal", "small_cache"))

# %% [markdown]
# F3 and Theorem A run side by side over a wide range; F2 with its best tiles would be nearly the same curve. Below about $d^2$ Theorem B′ is the larger bound. For schedules that compute no score twice, as F3, `recompute=False` admits Theorem B.
#
# **Predict.** $M = 16\,384 = 4d^2$. How many times the bound does F3 move, first among all schedules, then among those that compute no score twice?

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
# 1.33 and 1.06: at $M = 4d^2$ whoever computes no score twice saves at most 6 percent of F3's words. At 58,368 words F3 moves 1.19 times the bound. The distance grows to 1.58 at 262,144, where Theorem A and the compulsory traffic are of the same size. They may not be added, for both count the same reads.
#
# Is 4 the exact constant? Closed forms cost nothing, so we let $d$ and $M/d^2$ grow, with $N = 2^{32}$ to be rid of the rest.
#
# **Predict.** $d = 1024$ and $M = 1024\,d^2$. What are the two constants $WM/(N^2d^2)$?
# <!-- f3 = lambda N, M: schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total -->
# <!-- 6 = 10**2 * (1 - bounds.lower_bound("forward", N, d, 16384, recompute=False)[0] / f3(N, 16384)) -->

# %% tags=["predict"]
predict("5.10b", f3=4.01, theorem_a=3.996)  #> predict("5.10b", f3=..., theorem_a=...)

# %%
N, constant = 2**32, {}
for d, factor in product((64, 256, 1024), (16, 64, 1024)):
    M = factor * d * d
    f3 = schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total
    A = bounds.theorem_A(N, d, M + 4)
    above, below = constant[d, factor] = [words * M / (N * d) ** 2 for words in (f3, A)]
    print(f"d = {d:4}, M = {factor:4} d²: F3 {above:.3f}, Theorem A {below:.3f}")
measured("5.10b", f3=constant[1024, 1024][0], theorem_a=constant[1024, 1024][1])

# %% [markdown]
# From above F3 comes down with $d$, 4.09, 4.02, 4.01, as $4(1 + 3/2d)$ says; from below Theorem A comes up with $M/d^2$, 3.76, 3.94, 3.996. So for $1 \ll d$ and $d^2 \ll M \ll Nd$ **4 is the exact constant**: lesson 04 ended where every schedule of the class must end.

# %% [markdown]
# ## 5.11 What is published
#
# Saha and Ye proved in 2024 that for $M \ge d^2$ the order $N^2d^2/M$ cannot be improved, and for $M \le d^2$ the order $N^2d/\sqrt M$. They state no constants. If we keep those of their argument for $M \ge d^2$, it gives bound `saha_ye`:
#
# $$ W \ge \frac{N^2d^2}{4(M + d^2)} - M . \tag{5.16} $$
#
# **Predict.** By what factor is Theorem A larger, for $N = 8192$, $d = 64$ and $M = 58\,368$?

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
# A factor of 16.9, of which 16 is the ratio of the first terms. Their argument was made for the order: it counts the scores a segment can make and leaves $V$ and $O$ aside.
#
# Every bound of the course knows where it comes from and how sure it is:
# <!-- 16 = 4 / (1 / 4) -->

# %%
for name in ("compulsory", "A_rows", "A", "B", "B'", "saha_ye", "matmul", "theta_attention"):
    print(f"{name:16} {bounds.BOUNDS[name].status}")

# %% [markdown]
# *Proved here*: the proof is in this course. We found the constants of A, B and B′ in none of the papers we read; the methods are those of the papers below. *Published argument, constants ours*: a paper proves the order, and we kept the constants of its argument. *Asymptotic only*: the constant is unknown; asked for a number of words, such a bound refuses. `bounds.BOUNDS["A"].holds_for` says for which schedules a bound holds.
#
# ## Misconceptions
#
# - **"Recomputing trades work for room, traffic has nothing to do with it."** A softmax row with three pebbles moves 8 words with it and 10 without (section 5.4).
# - **"A lower bound is about the best schedule we know."** It is about all of a class, known or not; the class must be said. Attention that never forms $p_{ij}$ is outside Theorem A.
# - **"The bounds add up: $4Nd$ plus Theorem A."** Both count the same reads (section 5.10).
#
# ## Take-away
#
# - The fewest words of a computation are the answer to a game with red and blue pebbles, exact for about 20 vertices.
# - Whole rows, no score kept: each pair meets four times, and a row that comes in meets at most $(M + t)/d$ others. So $W \ge 4N^2d^2/(M + t)$.
# - For every size: cut a run into segments, ask how many products $R = M + T$ words allow, divide, and choose the best $T$.
# - $W \ge 4N^2d^2/(M + d^2) - (M + d^2)$ for every exact schedule that forms scores and weights, recomputation included. F3 attains the 4.
# - A bound is worth as much as its class: say what it covers, whether it allows recomputation, and where its constant comes from.
#
# ## References
#
# - J.-W. Hong, H. T. Kung: *I/O complexity: the red-blue pebble game*, STOC 1981. The game, and segments.
# - L. H. Loomis, H. Whitney: *An inequality related to the isoperimetric inequality*, Bulletin of the AMS 55, 1949.
# - D. Irony, S. Toledo, A. Tiskin: *Communication lower bounds for distributed-memory matrix multiplication*, 2004. Segments with Loomis-Whitney.
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). $2mnk/\sqrt M - 2M$ for the matrix product.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The orders for both regimes, and fast matrix multiplication.
#
# **What comes next.** Lesson 06 turns to the backward pass. There the recomputation of section 5.4 is no miniature any more: to compute all scores twice moves fewer words than to compute them once.
