# %% [markdown]
# # 05 Lower bounds for attention
#
# In lesson 04 the loop order and the tile size reduced the traffic to $4N^2d^2/M$ words. Is there a schedule that needs only half? To answer this, we need a statement about *every* schedule, including unknown ones.
#
# **What you will learn**
#
# - to find exact minima with the red–blue pebble game;
# - to prove the constant 4 for schedules that move complete rows;
# - to use Theorem A, a lower bound for every exact schedule.
#
# **Prerequisites**: lesson 04. Symbols and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from itertools import product

from iocourse import bounds, pebbling, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict

# %% [markdown]
# ## 5.1 The red–blue pebble game
#
# A computation is a graph. Each vertex is one word, computed from its *parents*; an input has no parents. Here is the scalar product (dot product) of two vectors of two words, with its inputs at the bottom. The text below the board explains the pebbles:

# %%
graph = pebbling.dot(2)
explore.pebbles(graph, M=4)

# %% [markdown]
# In the *red–blue pebble game*, a **red** pebble on a vertex means that its word is in fast memory; there are $M$ of them. A **blue** pebble means that it is in slow memory. At the start every input has a blue pebble; at the end every output must have one.
#
# | move | needs | effect | words moved |
# | --- | --- | --- | --- |
# | `load a` | blue on `a` | red on `a` | 1 |
# | `store a` | red on `a` | blue on `a` | 1 |
# | `compute c` | red on all parents | red on `c` | 0 |
# | `delete a` | red on `a` | red removed | 0 |
#
# The minimum traffic of a computation is the smallest number of loads and stores in any game.
#
# **Predict** (guess). $M = 4$. What is the minimum traffic of this scalar product?

# %% tags=["predict"]
predict("5.1", words=5)  #> predict("5.1", words=...)

# %%
moves = [
    "load a1", "load b1", "compute p1", "delete a1", "delete b1",
    "load a2", "load b2", "compute p2", "delete a2", "delete b2", "compute s", "store s",
]
measured("5.1", words=pebbling.cost_of(graph, moves, M=4))

# %% [markdown]
# <details><summary>Why 5 is the minimum</summary>
#
# The game above moves 5 words: four inputs and one output. No game moves fewer, because every input that is used must be loaded and every output must be stored. This is the compulsory traffic of a graph, `pebbling.compulsory(graph)`.
#
# </details>
#
# With three red pebbles, one of these moves breaks a rule. The next cell prints which one. The board shows the same move with all four pebbles in use:

# %%
try:
    pebbling.replay(graph, moves, M=3)
except pebbling.IllegalMove as error:
    print(error)
explore.pebbles(graph, 8, moves, M=4)

# %% [markdown]
# The first product keeps one pebble and the factors of the second product take two. With three pebbles, none is free for `p2`.
#
# ## 5.2 A scalar product with three pebbles
#
# To compute a product you need three red pebbles, two for the factors and one for the product. With $M = 3$ the sum of the earlier products (at first, this is `p1`) must therefore be in slow memory during this time. Each time this costs two words, one store and one load.
#
# For longer vectors, `pebbling.dot(d)` has inputs `a1`, …, `ad` and `b1`, …, `bd` and products `p1`, …, `pd`. The sums are computed from left to right: `s_2` from `p1` and `p2`, then `s_3` from `s_2` and `p3`, and so on. The last sum is called `s`; for $d = 2$ it is the only one.
#
# <!-- exercise 5A --> Write a function that returns the moves for $M = 3$ and any $d \ge 2$, as a list of strings such as `"load a1"`. The moves may transfer at most $4d - 1$ words. Start with $d = 2$ on paper. If you are stuck after six minutes, run `hint("5A")` in a new cell.

# %% [raw] name="about-5A"
# title = "A dot product with three pebbles"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "A product needs three red pebbles, and there are only three. Where is the partial sum in the meantime?",
#   "It is in slow memory. So one iteration is: load two factors, form the product, delete the factors, load the partial sum, add, and delete both summands. The first iteration has no partial sum, and the last one stores the result.",
#   "The first product is the first partial sum. After an iteration, delete its two parents and store the new sum; delete it too, unless it is the last one. The sums are called s_2, s_3, and the last one s.",
# ]

# %% tags=["exercise"] name="ex-5A"
def my_dot_moves(d):
    """Return the moves of a scalar product of d words with three red pebbles.

    d: an integer of at least 2. The result is a list of strings: "load a1", "compute p1", ...
    """
    moves = ["load a1", "load b1", "compute p1", "delete a1", "delete b1"]
    ### BEGIN SOLUTION one iteration for each further product
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
# The next cell compares the traffic of your games with the compulsory traffic.

# %%
def words_of_mine(d):
    return pebbling.cost_of(pebbling.dot(d), my_dot_moves(d), M=3)


for d in (2, 3, 10, 100):
    least = pebbling.compulsory(pebbling.dot(d))
    print(f"d = {d:3}: {attempt(words_of_mine, d)} words, compulsory {least}")

# %% [markdown]
# Your games move 7, 11, 39 and 399 words; the compulsory traffic is 5, 7, 21 and 201 words. The partial sum is stored and loaded again $d - 1$ times, so the traffic is
#
# $$ W = \underbrace{2d + 1}_{\text{compulsory}} + \underbrace{2(d - 1)}_{\text{partial sums}} = 4d - 1 . \tag{5.1} $$
# <!-- (5.1) W = pebbling.optimum(pebbling.dot(d), 3).cost where 2 <= d <= 6 -->
#
# Can another order do better with three pebbles?
#
# ## 5.3 The minimum by search
#
# For small graphs we can try all games. The positions of all pebbles form a *state*, and a move leads from one state to another. A game with minimum traffic is then a shortest path. `pebbling.optimum` finds one with the A* algorithm, which always continues from the state with the smallest sum of two numbers: the words moved so far and a lower bound on the words that must still be moved. The result is exact, and it includes the moves.
#
# **Predict** (guess). For $d = 3$ and three red pebbles, your game moves the words of (5.1). Does the search find a game with fewer?

# %% tags=["predict"]
predict("5.3", fewer=True)  #> predict("5.3", fewer=...)

# %%
found = {(d, M): pebbling.optimum(pebbling.dot(d), M) for d in (2, 3) for M in (3, 4)}
for (d, M), best in found.items():
    print(f"d = {d}, M = {M}: {best.cost:2} words, {best.states} states examined")
measured("5.3", fewer=found[3, 3].cost < 4 * 3 - 1)

# %% [markdown]
# <details><summary>Is (5.1) the minimum?</summary>
#
# Yes, in all our searches, for $d$ from 2 to 6 (the cell shows 2 and 3). It is the minimum for every $d$: a product fills all three pebbles when it is computed. So between two products a sum or a product is stored, which is loaded later. These are $2(d - 1)$ words, in addition to $2d$ loads of the inputs and one store of $s$. For $d = 3$ four pebbles are enough for the compulsory 7 words, because no partial sum has to be stored. With three pebbles every partial sum is stored.
#
# </details>
#
# ## 5.4 Recomputation
#
# The second graph is a row of softmax: $e_j = e^{x_j}$, their sum $\ell$, and $p_j = e_j/\ell$ for $n$ scores. (We omit the maximum to keep the graph small.) `pebbling.softmax_row(n)` has inputs `x1`, …, `xn`, exponentials `e1`, …, `en` and sums `l_2`, `l_3`, …, the last one called `l`. Its outputs are `p1`, …, `pn`; each is computed from its `e` and `l`.
#
# Every exponential is needed twice, first for the sum and later, when the sum is complete, for its own weight. With three pebbles it cannot be kept in between. There are two ways out. Either the exponential is stored and loaded again, or it is computed again from its score, which is called *recomputation*. With `recompute=False`, the search computes each vertex only once.
#
# **Predict** (guess). $n = 3$ and $M = 3$; three inputs and three outputs are compulsory. What is the minimum traffic if each vertex is computed once, and what is it with recomputation?

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
# <details><summary>With and without recomputation</summary>
#
# The minimum is 8 words with recomputation and 10 without. Both are exact, because the search continues until it has found a minimum. With five pebbles the exponentials can be kept, and both minima are the compulsory 6 words.
#
# </details>
#
# The next cell prints a game with minimum traffic in which each vertex is computed once (the deletes are omitted):

# %%
print("; ".join(str(move) for move in once.moves if move.kind != "delete"))

# %% [markdown]
# Two exponentials are stored after they have been added to the sum and are loaded again at the end, which takes four words. Standard attention does the same with its matrix $P$. With recomputation, each of the two costs only one word, because its score is loaded a second time.
#
# <!-- exercise 5B --> Write a function that returns the moves for $M = 3$ and any $n \ge 2$. Vertices may be computed more than once. The moves may transfer at most $3n - 1$ words. If you are stuck after seven minutes, run `hint("5B")` in a new cell.

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
    """Return the moves of a softmax row of n scores: three red pebbles, recomputation allowed.

    n: an integer of at least 2. The result is a list of strings: "load x1", "compute e1", ...
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
# The next cell compares your games with both minima, for the sizes for which the search is fast:

# %%
def words_of_my_row(n):
    return pebbling.cost_of(pebbling.softmax_row(n), my_softmax_moves(n), M=3)


for n in (3, 4, 5, 6):
    row = pebbling.softmax_row(n)
    once, again = (pebbling.optimum(row, 3, recompute=r).cost for r in (False, True))
    mine = attempt(words_of_my_row, n)
    print(f"n = {n}: yours {mine}, minimum {again}, each vertex once {once}")

# %% [markdown]
# <details><summary>Formulas for both minima</summary>
#
# The minima are 8, 11, 14 and 17 words with recomputation and 10, 14, 18 and 22 without. For $n$ from 2 to 7, where we ran the search,
#
# $$ W_\text{again} = 3n - 1, \qquad W_\text{once} = 4n - 2 . \tag{5.2} $$
# <!-- (5.2) W_again = pebbling.optimum(pebbling.softmax_row(n), 3).cost where 2 <= n <= 7 -->
# <!-- (5.2) W_once = pebbling.optimum(pebbling.softmax_row(n), 3, recompute=False).cost where 2 <= n <= 7 -->
#
# With recomputation, every score except one is read twice, and no exponential is ever stored.
#
# </details>
#
# FlashAttention's backward pass does the same on a larger scale. It needs the weights of the forward pass again, and it computes them from $Q$ and $K$ instead of reading them (lesson 06). A lower bound for all schedules must therefore allow recomputation.
#
# The next cell is a board. It plays a game with minimum traffic. Click a vertex to play yourself: a legal move is made at once, and if there are several, you can choose one. Your words are shown next to the minimum. (With the keyboard, select *try yourself* and take the vertex from the list. Without a running kernel, you see the end of a game with minimum traffic.)

# %%
explore.pebble_player(pebbling.softmax_row(3))

# %% [markdown]
# ## 5.5 The limits of the search
#
# Three queries, three keys and $d = 1$ give a graph of 42 vertices: 9 inputs, 9 exponentials, 6 sums of exponentials, 9 products, 6 sums of products and 3 outputs.

# %%
for max_states in (20_000, 200_000):
    try:
        pebbling.optimum(pebbling.attention(3, 3), 4, max_states=max_states)
    except pebbling.TooLarge as refusal:
        print(refusal)

# %% [markdown]
# The search stops at its limit both times. The first message names about 32,000 states, but these only decide whether 14 words are enough. With ten times the states, the search has excluded every cost below 17 words, and it is still not finished. The number of states multiplies when a graph grows a little: in section 5.3, with $M = 3$, four more vertices raised it from 7 to 42. A head with $N = 8192$ and $d = 64$ has billions of vertices, so we replace the search by an argument.
#
# ## 5.6 Complete rows: the constant 4 in three lines
#
# The schedules of lesson 04 are the FlashAttention-1 order (F1), the FlashAttention-2 order (F2) and the FA-2 order with buffer reuse (F3). They move complete rows and store no scores. For all schedules of this kind, the constant 4 has a short proof.
#
# Two rows belong to a query $i$, $q_i$ and $o_i$ (the query side), and two rows to a key $j$, $k_j$ and $v_j$ (the key side). One row of the query side and one of the key side form a *row pair*, so $i$ and $j$ have four row pairs. In these three schedules, both rows of each row pair are in fast memory at the same moment at least once. For $q_i$ and $k_j$ the reason is the score, for $o_i$ and $v_j$ the product $p_{ij}v_j$. The other two row pairs are in fast memory together because these three schedules keep $q_i$ and $o_i$ there while they use first $k_j$ and then $v_j$.
#
# A row *enters* fast memory when it is loaded; a row of $O$ may also enter as zeros, without a load. (A schedule may have several partial sums of $o_i$. Only those that lead to the stored output count. The row $o_i$ is in fast memory while at least one of them is there, and it enters when the first one appears there.) We *charge* each row pair once, to the row whose entry brings the two rows together for the first time. In the figure every row enters once, so each arrow points to the row that enters later:

# %%
PAIR = bounds.row_schedules.FORWARD
explore.pair_residency(["load q", "load k", "o enters", "load v"], pair=PAIR, arrows=True,
                       title="Four row pairs of one query and one key")

# %% [markdown]
# In this order $k$ and $o$ are charged once and $v$ is charged twice. In any order the sum is 4.
#
# **The proof for rows that are present at the same moment.** Assume, as in the three schedules, that both rows of each row pair are in fast memory at the same moment at least once.
#
# 1. There are $N^2$ choices of $i$ and $j$, each with four row pairs. This gives $4N^2$ charges.
# 2. An entry is charged at most once for each row of the other side that is in fast memory at that moment. At most $M/d$ rows fit there, both sides together, so one entry is charged at most $M/d$ times.
# 3. An entry costs $d$ words, the load of the row. Only a row of $O$ can enter without a load, as zeros. For one such entry we count the store of $o_i$ at the end. If $o_i$ enters several times, with or without zeros, $n$ entries need at least $n - 1$ loads and one store (proof: (5.9) in [05b](05b_lower_bound_proof.ipynb)). A run that moves $W$ words therefore has at most $W/d$ entries.
#
# Together $4N^2 \le \frac Wd \cdot \frac Md$, which is $W \ge 4N^2d^2/M$.
#
# **The proof for the whole class.** A schedule might compute a score, free $q_i$ and $k_j$, and only then load $v_j$ and $o_i$. To include it, we state the class as follows (scores and outputs are computed from products as in section 5.7):
#
# - rows of $Q$, $K$, $V$ and $O$ are loaded, started as zeros, merged, stored and freed as complete rows, and these are *distinct arrays*: no word of one serves as a word of another;
# - the run can be divided into *steps*, in each of which rows with at most $t$ words in total are loaded or started as zeros. Between steps, fast memory contains no score, weight or part of one, and none is ever stored: the weight of a pair is computed, from its score, in the step of its product. (The row statistics $m_i$ and $\ell_i$ may stay. Those of a single key determine its score, so they count as one.)
#
# With buffer reuse, a step is one key and its value, so $t = 2d$. The rows of a block enter before that, in steps of one query with $2d$ words, in which nothing is computed.
#
# A row now counts as *present* in a step if it is in fast memory at the start of the step or enters during it. The products $p_{ij}v_{jc}$ of different columns $c$ may be computed in different steps, but one column is enough. Take a product $p_{ij}v_{j1}$ that leads to the stored output, and the step in which it is computed. It is added to a partial sum of $o_i$ or begins one, so $v_j$ and $o_i$ are present. No score, weight or part of one is left from earlier steps, so the weight was computed from $q_i$ and $k_j$ in the same step. All four rows are present in it, and line 1 remains true. For each row pair, take the first step in which both rows are present. At least one of them enters in this step, because otherwise both would have been present in the step before. The row pair is charged once, to that entry. Line 3 does not change. In line 2, the rows present in a step are those of at most $M$ words at its start and of at most $t$ words that enter, so there are at most $(M + t)/d$ of them. Hence
#
# $$ 4N^2 \le \frac Wd \cdot \frac{M + t}{d} , \qquad \text{so} \qquad W \ge \frac{4N^2d^2}{M + t} . $$
# <!-- (above) 4N^2 <= not evaluated: step of a proof -->
# <!-- (above) W >= bounds.theorem_A_rows(N, d, M, t) rounded down -->
#
# This is the bound `A_rows`. Now count the charges in a run with buffer reuse, $N = 4$ and blocks of $B_r$ queries. There are $4N^2 = 64$.
#
# **Predict** (guess). $B_r = 2$. How many of these charges are made to rows of $Q$ and $O$?

# %% tags=["predict"]
predict("5.6", to_queries=0)  #> predict("5.6", to_queries=...)

# %%
def f3_rows(N, Br):
    """Yield ("in" or "out", row) for each row entering or leaving fast memory: buffer reuse."""
    for start in range(0, N, Br):
        block = [(name, i) for i in range(start, start + Br) for name in "qo"]
        yield from (("in", row) for row in block)
        for j, name in product(range(N), "kv"):  # one key, then its value
            yield "in", (name, j)
            yield "out", (name, j)
        yield from (("out", row) for row in block)

def charged(events):
    """Return the charges to the rows of each array, and the number of rows that entered."""
    present, charges, rows = set(), dict.fromkeys("qokv", 0), 0
    for event, row in events:
        if event == "out":
            present.remove(row)
            continue
        other_side = "kv" if row[0] in "qo" else "qo"  # one charge for each of these rows
        charges[row[0]] += sum(name in other_side for name, _ in present)
        rows += 1
        present.add(row)
    return charges, rows


counted = {Br: charged(f3_rows(4, Br)) for Br in (1, 2, 4)}
for Br, (charges, rows) in counted.items():
    of_arrays = ", ".join(f"{name} {number}" for name, number in charges.items())
    print(f"Br = {Br}: {sum(charges.values())} charges ({of_arrays}), {rows} rows enter")
measured("5.6", to_queries=counted[2][0]["q"] + counted[2][0]["o"])

# %% [markdown]
# <details><summary>Which rows are charged</summary>
#
# None. No key is in fast memory when the rows of a block are loaded. All charges are made to the keys and values that are streamed later, four for each of the $4^2$ choices of $i$ and $j$. (The code charges an entry for every row of the other side that is present. In this run the rows of each row pair are brought together only once, so every charge is made at the first time.) The larger the block, the more row pairs are charged to one load, and the fewer loads are needed. This is why buffer reuse fills fast memory with the query block.
#
# </details>
#
# If rows are evicted and loaded again, can $i$ and $j$ have fewer than four charges? No, because the first entry that brings a row pair together is always charged. `bounds.min_pair_cost` finds the same minimum by search, which is needed for the backward pass in lesson 06b. It tries all sequences of entries and evictions (`drop k`, `o leaves`) in which all four rows are present together at least once. As in the code above, every entry is charged, also if the two rows were together before.
#
# The next cell prints the cheapest sequence. It also compares two schedules with the bound: buffer reuse, and at $M = 1024$, a quarter of $d^2$, the split-d schedule of lesson 07. The bound is taken at $M + 4$, because up to four single words do not count towards $M$ on our machine.

# %%
walk = bounds.min_pair_cost(PAIR, bounds.row_schedules.ENTRIES)
print(f"minimum {walk.cost:g} charges: {', '.join(walk.walk)}")
for M, schedule in ((58368, schedules.flash_optimal), (1024, schedules.small_cache)):
    words = schedule.cost(8192, 64, **schedule.tiles(8192, 64, M)).total
    ratio = words / bounds.theorem_A_rows(8192, 64, M + 4)
    print(f"M = {M:6,}: {schedule.name} moves {words:,} words, {ratio:.2f} × A_rows")

# %% [markdown]
# Buffer reuse moves 1.12 times the bound. For the split-d schedule the ratio is 0.67. This does not contradict the bound, because the schedule cuts rows and stores scores, so it is outside the class. A bound for such schedules needs a second tool.
#
# ## 5.7 Theorem A: a lower bound for every exact schedule
#
# The second tool is a different question. How many products $p_{ij}v_{jc}$ can be computed from a given number of words? If we divide $N^2d$ by this number, we know how often fast memory must be refilled. The result is **Theorem A**, formula (5.8) in 05b. Two simpler forms, slightly smaller, are
#
# $$ W \ge \frac{4N^2d^2}{M + d^2} - (M + d^2) \quad (M \ge d^2), \qquad W \ge \frac{2N^2d}{\sqrt M} - 2M \quad (M \le d^2), \tag{5.3} $$
# <!-- (5.3) W >= bounds.theorem_A_large(N, d, M) rounded down where M >= d**2 -->
# <!-- (5.3) W >= bounds.theorem_A_small(N, d, M) rounded down where M <= d**2 -->
#
# the bounds `A_large` and `A_small`. (The first also holds for $M < d^2$, but it is smaller than the second there.) The first was announced in lesson 04. Compared with `A_rows`, it has $d^2$ in place of $t$, and $M + d^2$ is subtracted; this is the price of the larger class. It holds for every schedule that
#
# - computes each score $s_{ij}$ from $d$ products $q_{ic}k_{jc}$, and the weight $p_{ij}$ from the score and from numbers of row $i$, such as $m_i$ and $\ell_i$;
# - computes each output $o_{ic}$ as the sum of the products $p_{ij}v_{jc}$ over all keys $j$; the sum may be multiplied by a number of row $i$, such as $1/\ell_i$;
# - has $Q$, $K$ and $V$ as distinct arrays: no word of one serves as a word of another.
#
# Part b of this lesson ([05b](05b_lower_bound_proof.ipynb)) counts the products and gives the complete proof. Nothing below depends on it.
#
# The map shows three schedules and two bounds. No schedule of the class can reach the grey area, which is below the compulsory traffic $4Nd$ or below Theorem A, again taken at $M + 4$. The coloured bands name the best known kind of schedule for large $N$: row blocks (buffer reuse) from $d^2$ on, and the compulsory traffic from $Nd$ on. The bands below $d^2$ belong to lesson 07. The strip at the bottom shows which of the three schedules moves the fewest words at this $N$.
# <!-- 1.12 = schedules.flash_optimal.count(8192, 64, 58368).total / bounds.theorem_A_rows(8192, 64, 58368 + 4) -->
# <!-- 0.67 = schedules.small_cache.count(8192, 64, 1024).total / bounds.theorem_A_rows(8192, 64, 1024 + 4) -->

# %%
explore.traffic_map(8192, 64, M=58368, M_range=(128, 2**22), bounds=("compulsory", "A"),
                    schedules=("naive", "flash1", "flash_optimal"))

# %% [markdown]
# The curves of buffer reuse and Theorem A are close over a wide range; the FA-2 order with its best tiles would be almost the same curve as buffer reuse. Is 4 the exact constant? To answer this, we compare the constants $WM/(N^2d^2)$ of both for very large $N$ and growing $d$ and $M/d^2$.
#
# For Theorem A, only the first term of (5.3) matters then. For buffer reuse, take (4.3) with $B_c = 1$: a footprint of $M$ words allows $B_r \approx M/(2d + 3)$ queries per block, and the traffic is $W \approx 2N^2d/B_r$.
#
# **Predict** (compute). $d = 1024$ and $M = 1024\,d^2$. What are the two constants, the first to two decimals (because $N/B_r$ is rounded up), the second to three?

# %% tags=["predict"]
predict("5.7", f3=4.01, theorem_a=3.996)  #> predict("5.7", f3=..., theorem_a=...)

# %%
N, constant = 2**32, {}
for d, factor in product((64, 256, 1024), (16, 64, 1024)):
    M = factor * d * d
    f3 = schedules.flash_optimal.cost(N, d, **schedules.flash_optimal.tiles(N, d, M)).total
    A = bounds.theorem_A(N, d, M + 4)
    above, below = constant[d, factor] = [words * M / (N * d) ** 2 for words in (f3, A)]
    print(f"d = {d:4}, M = {factor:4} d²: buffer reuse {above:.3f}, Theorem A {below:.3f}")
measured("5.7", f3=constant[1024, 1024][0], theorem_a=constant[1024, 1024][1])

# %% [markdown]
# <details><summary>Do the two constants have the same limit?</summary>
#
# For buffer reuse, $WM/(N^2d^2)$ is $2(2d + 3)/d = 4(1 + 3/2d)$ and falls with $d$: 4.09, 4.02, 4.01. For Theorem A it is $4M/(M + d^2)$ and rises with $M/d^2$: 3.76, 3.94, 3.996. So for $1 \ll d$ and $d^2 \ll M \ll Nd$ **4 is the exact constant**: buffer reuse tends to it, and in this limit no schedule of the class has a smaller one.
#
# </details>
#
# ## Misconceptions
#
# - **"Recomputation trades work for memory and has no effect on traffic."** A softmax row with three pebbles moves 8 words with recomputation and 10 without (section 5.4).
# - **"A lower bound is about the best schedule we know."** It is about all schedules of a class, known or not, and the class must be stated. Attention that never computes $p_{ij}$ is outside the class of Theorem A.
#
# ## Take-away
#
# - The red–blue pebble game gives the exact minimum traffic of a computation with about 20 vertices.
# - Complete rows, no score kept: each query and key have four row pairs, and a row that enters is charged for at most $(M + t)/d$ others. So $W \ge 4N^2d^2/(M + t)$.
# - $W \ge 4N^2d^2/(M + d^2) - (M + d^2)$ for every exact schedule that computes scores and weights, with or without recomputation. Buffer reuse reaches the constant 4.
# - State with each bound which schedules it covers, whether it allows recomputation, and where its constant comes from.
#
# **In the literature's words**: the minimum traffic is the I/O complexity of a computation, which Hong and Kung (1981) defined by the red–blue pebble game. FlashAttention's backward pass uses recomputation to avoid storing $P$; for the activations of complete layers this is called activation checkpointing.
#
# ## References
#
# - J.-W. Hong, H. T. Kung, *I/O complexity: the red-blue pebble game*, STOC 1981. The game.
# - B. Saha, C. Ye, *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). How the traffic grows for large and for small fast memory. Section 5.11 (05b) compares constants.
#
# **What comes next.** <!-- next --> In the backward pass, computing all scores twice moves fewer words than computing them once.
