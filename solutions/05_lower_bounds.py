# %% [markdown]
# # 05 How little is possible
#
# Lesson 04 brought attention down to 4 times $N^2d^2/M$ words, by the order of the loops and by the tile. Will somebody bring it down to 2? To answer that we need a statement about *every* schedule, those that nobody has thought of included. On graphs of a dozen vertices a search tries everything, and the exact answer holds a surprise. For real sizes we count. Where rows travel whole and no score is kept, three lines prove the 4. Where rows may be cut and scores kept it takes Theorem A, which says the same: 4 cannot be improved. Its proof is the [second evening](05b_lower_bound_proof.ipynb).
#
# **What you will learn**
#
# - to play the red-blue pebble game, and what it says about computing a number twice;
# - to prove the 4 in three lines for whole rows, by counting how often two rows meet;
# - what Theorem A says, and what it does not cover;
# - how far the schedules of lesson 04 are from it, and why 4 is the exact constant.
#
# **Prerequisites**: lesson 04 (F1, F2, F3). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from itertools import product

from iocourse import bounds, explore, pebbling, schedules
from iocourse.course import attempt, check, hint, measured, predict

# %% [markdown]
# ## 5.1 Red and blue pebbles
#
# First we say what a computation is, without any order in it: a *graph*. Each vertex is one word. The words it is computed from are its *parents*; a vertex without parents is an input, and one that is nobody's parent is an output. Here is the scalar product of two vectors of two words:

# %%
graph = pebbling.dot(2)
explore.pebbles(graph, M=4)

# %% [markdown]
# Four inputs at the bottom, two products, their sum. On this graph we play a game with two kinds of pebbles. A **red** pebble on a vertex says that its word is in fast memory; there are $M$ red pebbles. A **blue** one says that it is in slow memory; of these there are as many as we like. At the start every input is blue. At the end every output must be. The moves are those of our machine, for single words:
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
# **Predict** (guess). With $M = 4$ red pebbles, how many words does this scalar product move at least?

# %% tags=["predict"]
predict("5.1", words=5)  #> predict("5.1", words=...)

# %%
moves = [
    "load a1", "load b1", "compute p1", "delete a1", "delete b1",
    "load a2", "load b2", "compute p2", "delete a2", "delete b2", "compute s", "store s",
]
measured("5.1", words=pebbling.cost_of(graph, moves, M=4))

# %% [markdown]
# <details><summary>Whether fewer are possible</summary>
#
# 5 words: four inputs and one output. Fewer is impossible, because every input that is used has to be loaded and every output has to be stored. This is the *compulsory* traffic of a graph, `pebbling.compulsory(graph)`.
#
# </details>
#
# With three red pebbles this order breaks a rule. The referee says which, and the board shows where the four pebbles were needed:

# %%
try:
    pebbling.replay(graph, moves, M=3)
except pebbling.IllegalMove as error:
    print(error)
explore.pebbles(graph, 8, moves, M=4)

# %% [markdown]
# While `p1` waits, the factors take two pebbles, and with three `p2` has nowhere to go.
#
# ## 5.2 A scalar product by hand
#
# To form a product takes three red pebbles, for two factors and the product. If there are only three, the sum so far has to wait in slow memory meanwhile, and every wait costs two words, a store and a load.
#
# For longer vectors, `pebbling.dot(d)` has inputs `a1`, …, `ad` and `b1`, …, `bd`, products `p1`, …, `pd`, and sums from left to right: `s_2` from `p1` and `p2`, then `s_3` from `s_2` and `p3`, and so on; the last sum is called `s`. For $d = 2$ there is only `s`.
#
# <!-- exercise 5A --> Write a function that returns the moves for $M = 3$ and any $d \ge 2$, as a list of texts such as `"load a1"`. They may move $4d - 1$ words. Begin with $d = 2$ on paper. If you are stuck after six minutes, run `hint("5A")` in a cell of your own.

# %% [raw] name="about-5A"
# title = "A dot product with three pebbles"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "A product needs three red pebbles, and there are only three. Where is the partial sum in the meantime?",
#   "It is in slow memory. So one iteration is: load two factors, form the product, delete the factors, load the partial sum, add, and make room again. The first iteration has no partial sum, and the last one stores the result.",
#   "The first product is the first partial sum. After an iteration, delete its two parents and store the new sum; delete it too, unless it is the last one. The sums are called s_2, s_3, and the last one s.",
# ]

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
#
# ## 5.3 The cheapest of all
#
# For small graphs we can try everything. Where the pebbles stand is a *state*, a move leads from one to another, and what we look for is a shortest way. `pebbling.optimum` finds it with A*: it always goes on from the state for which the cost so far, plus the words that surely must follow, is smallest. The answer is exact, and comes with the moves.
#
# **Predict** (guess). For $d = 3$ with three red pebbles yours moves the words of (5.1). Does the search find fewer?

# %% tags=["predict"]
predict("5.3", fewer=True)  #> predict("5.3", fewer=...)

# %%
found = {(d, M): pebbling.optimum(pebbling.dot(d), M) for d in (2, 3) for M in (3, 4)}
for (d, M), best in found.items():
    print(f"d = {d}, M = {M}: {best.cost:2} words, {best.states} states looked at")
measured("5.3", fewer=found[3, 3].cost < 4 * 3 - 1)

# %% [markdown]
# <details><summary>Are your pebblings the cheapest?</summary>
#
# They are. That (5.1) is the least cost is known by search for $d$ from 2 to 6; for longer vectors it is what your pebblings need. With four pebbles the compulsory 7 words do for $d = 3$: with three every sum waits, with four none does.
#
# </details>
#
# ## 5.4 Computing twice on purpose
#
# Now a row of softmax: $e_j = e^{x_j}$, their sum $\ell$, and $p_j = e_j/\ell$ for $n$ scores. (The maximum is left out, to keep the graph small.) `pebbling.softmax_row(n)` has inputs `x1`, …, `xn`, exponentials `e1`, …, `en`, sums `l_2`, `l_3`, …, the last called `l`, and outputs `p1`, …, `pn`, each computed from its `e` and `l`.
#
# Every exponential is needed twice: for the sum, and for its own weight when the sum is there. With three pebbles it cannot stay in between. Either it is stored and loaded, or it is computed again; with `recompute=False` the search computes each vertex once only.
#
# **Predict** (guess). $n = 3$ and $M = 3$; three inputs and three outputs are compulsory. How many words does the cheapest pebbling move if each vertex is computed once, and how many if it may be computed again?

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
# <details><summary>Once or again</summary>
#
# 10 against 8. Both are exact: for $n = 3$ the search leaves nothing out, and with each vertex computed once it finds nothing below 10.
#
# </details>
#
# A cheapest pebbling that computes each vertex once, with the deletes left out:

# %%
print("; ".join(str(move) for move in once.moves if move.kind != "delete"))

# %% [markdown]
# Two exponentials are stored once they have gone into the sum, and loaded again at the end: four words. That is naive attention's way with its matrix $P$. With recomputation each of the two costs one word, its score once more.
#
# <!-- exercise 5B --> Write a function that returns the moves for $M = 3$ and any $n \ge 2$. Vertices may be computed again. Your moves may move $3n - 1$ words. If you are stuck after seven minutes, run `hint("5B")` in a cell of your own.

# %% [raw] name="about-5B"
# title = "A softmax row with three pebbles"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "What is cheaper later: to store an exponential and load it again, or to recompute it from its score?",
#   "Use two passes. In the first pass, each exponential is only added to the sum. In the second pass, keep the sum and compute one weight after the other. One exponential is still in fast memory when the second pass starts.",
#   "In the second pass the pebbles are on the sum, on one exponential, and on first its score, then its weight. Start with the exponential that ended the first pass: its score need not be loaded again.",
# ]

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
# <details><summary>How the two go on</summary>
#
# The optima are 8, 11, 14 and 17 with recomputation and 10, 14, 18 and 22 without. As far as the search goes, for $n$ from 2 to 7,
#
# $$ W_\text{again} = 3n - 1, \qquad W_\text{once} = 4n - 2 . \tag{5.2} $$
#
# With recomputation every score but one is read twice, and no exponential ever travels.
#
# </details>
#
# This is FlashAttention's backward pass in miniature: it needs the weights of the forward pass once more, and instead of reading them it computes them again from $Q$ and $K$ (lesson 06). So a bound for all schedules must allow recomputing.
#
# The next cell is a board. It plays the cheapest pebbling; or click a vertex, and it is your game: what is legal there is done, or offered where there is a choice, and your words stand beside the fewest. (By keyboard, take *try yourself* and choose the vertex from its list. Without a running kernel you see how the cheapest one ends.)

# %%
explore.pebble_player(pebbling.softmax_row(3))

# %% [markdown]
# ## 5.5 Where searching ends
#
# Three queries, three keys and $d = 1$ make a graph of 42 vertices:

# %%
for max_states in (20_000, 200_000):
    try:
        pebbling.optimum(pebbling.attention(3, 3), 4, max_states=max_states)
    except pebbling.TooLarge as refusal:
        print(refusal)

# %% [markdown]
# It gives up both times. The first estimate is for 14 words alone: with ten times the states the search has ruled out all costs below 17, and is not over either. When a graph grows a little, the number of states is multiplied: in section 5.3 four vertices more took it from 7 to 42. A head of attention has millions of vertices, and so we need an argument in place of a search.
#
# ## 5.6 Whole rows: three lines
#
# F1, F2 and F3 move whole rows and keep no scores. For all schedules that do, it is enough to count how often rows meet:
#
# - rows of $Q$, $K$, $V$ and $O$ are read, begun, merged, stored and dropped as wholes, and these are *distinct arrays*: no word of one serves as a word of another;
# - the run can be cut into *steps*, in each of which at most $t$ words come in; between steps no score, weight or part of one is in fast memory, and none ever travels.
#
# All else is free. In F3 a step is one key and its value, so $t = 2d$.
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
# **Three: to come in costs $d$ words.** A row of an input is read. A row of $O$ is read or begins as zeros, and one store for each row of $O$ pays for its one beginning ([05b](05b_lower_bound_proof.ipynb), section 5.9, says why once is enough). So at most $W/d$ rows come in, and
#
# $$ 4N^2 \le \frac Wd \cdot \frac{M + t}{d} , \qquad \text{so} \qquad W \ge \frac{4N^2d^2}{M + t} . $$
#
#
# This is bound `A_rows`. Why $t$? When F3's key has left to make room for its value, it has still been there in that step. Now count on a run of F3, with $N = 4$ and blocks of $B_r$ queries: $4N^2 = 64$ meetings.
#
# **Predict** (guess). For $B_r = 2$: how many of the 64 meetings are charged to rows of $Q$ and $O$?

# %% tags=["predict"]
predict("5.6", to_queries=0)  #> predict("5.6", to_queries=...)

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
    """(meetings charged to the rows of each array, rows that came in)."""
    there, meetings, rows = set(), dict.fromkeys("qokv", 0), 0
    for event, row in events:
        if event == "out":
            there.remove(row)
            continue
        other_side = "kv" if row[0] in "qo" else "qo"  # a row meets those of the other side
        meetings[row[0]] += sum(name in other_side for name, _ in there)
        rows += 1
        there.add(row)
    return meetings, rows


counted = {Br: charged(f3_rows(4, Br)) for Br in (1, 2, 4)}
for Br, (meetings, rows) in counted.items():
    told = ", ".join(f"{name} {number}" for name, number in meetings.items())
    print(f"Br = {Br}: {sum(meetings.values())} meetings ({told}), {rows} rows come in")
measured("5.6", to_queries=counted[2][0]["q"] + counted[2][0]["o"])

# %% [markdown]
# <details><summary>Who pays</summary>
#
# None. The rows of a block come in by steps of their own. When a block comes in, no key is there; the keys and values that pass it pay for all 64, four for each of $4^2$ pairs. The larger the block, the more rows each of them finds, and the fewer come: that is why F3 fills fast memory with the block.
#
# </details>
#
# Could a pair pay less by leaving and coming back at the right moments? `bounds.min_pair_cost` tries all its comings and goings. (In lesson 06 a pair has seven rows, and the search is needed.) Below it F3 beside the bound; and at $M = 1024$, a quarter of $d^2$, F5 of lesson 07, which cuts rows and stores scores.

# %%
walk = bounds.min_pair_cost(bounds.row_schedules.FORWARD, bounds.row_schedules.ENTRIES)
print(f"the cheapest walk of a pair pays {walk.cost:g}: {', '.join(walk.walk)}")
for M, schedule in ((58368, schedules.flash_optimal), (1024, schedules.small_cache)):
    words = schedule.cost(8192, 64, **schedule.tiles(8192, 64, M)).total
    ratio = words / bounds.theorem_A_rows(8192, 64, M + 4)
    print(f"M = {M:6,}: {schedule.name} moves {words:,} words, {ratio:.2f} × A_rows")

# %% [markdown]
# F3 moves 1.12 times the bound. F5 moves 0.67 times what `A_rows` says. It may: where scores are stored, a pair need not meet four times. A bound for such schedules too takes a second tool.
#
# ## 5.7 What no schedule can beat
#
# The tool turns the question round: how many products $p_{ij}v_{jc}$ can be formed with so and so many words at hand? Divide $N^2d$ by that, and you know how often fast memory must be filled. This is **Theorem A**. Its two lines to remember are
#
# $$ W \ge \frac{4N^2d^2}{M + d^2} - (M + d^2) \quad (M \ge d^2), \qquad W \ge \frac{2N^2d}{\sqrt M} - 2M \quad (M \le d^2), \tag{5.3} $$
#
# the bounds `A_large` and `A_small`. The first was announced in lesson 04. Beside `A_rows` it has $d^2$ for $t$, and something is subtracted: that is the price of the larger class. It holds for every schedule that
#
#
# - forms each score $s_{ij}$ from $d$ products $q_{ic}k_{jc}$, and the weight $p_{ij}$ from the score and from numbers of row $i$, such as $m_i$ and $\ell_i$;
# - forms each output $o_{ic}$ from the products $p_{ij}v_{jc}$ of all keys $j$, up to a factor of the row;
# - has $Q$, $K$ and $V$ as distinct arrays: no word of one serves as a word of another.
#
#
# How the products are counted, and the whole proof, is the [second evening](05b_lower_bound_proof.ipynb); nothing below depends on it. In the map grey is what no schedule of the class can do: below $4Nd$, Theorem A, or, in a small fast memory, its relative Theorem B′ (section 5.10, 05b), each taken at $M + 4$ for the four registers. The shades say what moves the fewest words for large $N$, with three schedules of lesson 07. *Row blocks*, from $d^2$ on, are F3; from $Nd$ on the *compulsory* words suffice. Below $d^2$ it pays to store scores (*N × N stored*): F7, and from $d^2/2$ down F7d. Below $d^2/4$ it is *blocked products*, as in lesson 02: F5. The strip at the foot has the marker of the schedule that wins at this $N$.

# %%
explore.traffic_map(8192, 64, M=58368, M_range=(128, 2**22),
                   schedules=("naive", "flash1", "flash_optimal", "small_cache",
                              "scores_stored", "scores_stored_tiled"))

# %% [markdown]
# F3 and Theorem A run side by side over a wide range; F2 with its best tiles would be nearly the same curve. Is 4 the exact constant, then? Closed forms cost nothing, so we let $d$ and $M/d^2$ grow, with $N = 2^{32}$ to be rid of the rest.
#
# **Predict** (compute). $d = 1024$ and $M = 1024\,d^2$. What are the two constants $WM/(N^2d^2)$, of F3 and of Theorem A?

# %% tags=["predict"]
predict("5.7", f3=4.01, theorem_a=3.996)  #> predict("5.7", f3=..., theorem_a=...)

# %%
N, constant = 2**32, {}
for d, factor in product((64, 256, 1024), (16, 64, 1024)):
    M = factor * d * d
    f3 = schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total
    A = bounds.theorem_A(N, d, M + 4)
    above, below = constant[d, factor] = [words * M / (N * d) ** 2 for words in (f3, A)]
    print(f"d = {d:4}, M = {factor:4} d²: F3 {above:.3f}, Theorem A {below:.3f}")
measured("5.7", f3=constant[1024, 1024][0], theorem_a=constant[1024, 1024][1])

# %% [markdown]
# <details><summary>Do they meet?</summary>
#
# From above F3 comes down with $d$, 4.09, 4.02, 4.01, as $4(1 + 3/2d)$ says; from below Theorem A comes up with $M/d^2$, 3.76, 3.94, 3.996. So for $1 \ll d$ and $d^2 \ll M \ll Nd$ **4 is the exact constant**: lesson 04 ended where every schedule of the class must end.
#
# </details>
#
# ## Misconceptions
#
# - **"Recomputing trades work for room, traffic has nothing to do with it."** A softmax row with three pebbles moves 8 words with it and 10 without (section 5.4).
# - **"A lower bound is about the best schedule we know."** It is about all of a class, known or not; the class must be said. Attention that never forms $p_{ij}$ is outside Theorem A.
#
# ## Take-away
#
# - The fewest words of a computation are the answer to a game with red and blue pebbles, exact for about 20 vertices.
# - Whole rows, no score kept: each pair meets four times, and a row that comes in meets at most $(M + t)/d$ others. So $W \ge 4N^2d^2/(M + t)$.
# - $W \ge 4N^2d^2/(M + d^2) - (M + d^2)$ for every exact schedule that forms scores and weights, recomputation included. F3 attains the 4.
# - A bound is worth as much as its class: say what it covers, whether it allows recomputation, and where its constant comes from.
#
# ## References
#
# - J.-W. Hong, H. T. Kung: *I/O complexity: the red-blue pebble game*, STOC 1981. The game.
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The orders for large and for small fast memory. Section 5.11 (05b) compares constants.
#
# **What comes next.** The [second evening](05b_lower_bound_proof.ipynb) proves Theorem A. Lesson 06 turns to the backward pass, with or without it. There the recomputation of section 5.4 is no miniature any more: to compute all scores twice moves fewer words than to compute them once.
