# %% [markdown]
# # 02 A machine with two memories
#
# A processor adds and multiplies only what lies close to it, and little lies close to it. Everything else waits in a memory that is large and far away, and a program often spends most of its time carrying numbers between the two. In this lesson you get a machine that counts the carrying, to the word, and nothing else. On it you write a *schedule*: an order of loads, arithmetic and stores that computes a result. The problem is the matrix product, because for it we know very nearly how few words are possible. At the end naive attention runs on the same machine, and its ledger says where its words go.
#
# **What you will learn**
# - to load, compute and store on a machine with $M$ words of fast memory, and to read the ledger it writes;
# - what takes room in fast memory, what takes none, and how to use the error that says it is full;
# - to derive traffic and footprint of the blocked matrix product, and to choose its tile for a given $M$;
# - how close that schedule comes to the lower bound $2mnk/\sqrt M - 2M$;
# - which arrays make naive attention expensive.
#
# **Prerequisites**: lesson 01; slices and `@` in NumPy; `with` in Python. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 2D -->. Later lessons do not need 2D.
#
# <!-- exercises -->

# %% tags=["setup"]
from math import isqrt

import numpy as np

from iocourse import FastMemoryFull, Machine, MachineError, bounds, costs, exact, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.explore import bars, curve, memory_timeline

# %% [markdown]
# ## 2.1 Load, compute, store
#
# We want a count of moved words that we can trust, whatever the program does. So we build the rules into a machine.
#
# It has two memories. **Slow memory** has no limit; inputs start there, and results must end there. **Fast memory** holds $M$ words and no more. Arithmetic happens in fast memory only. A *word* is one number. Two moves connect the memories: a **load** copies words into fast memory, where they form a *tile*; a **store** copies a tile back. The machine counts both, and nothing else:
#
# $$ W = \text{words loaded} + \text{words stored}. \tag{2.1} $$
#
# Arithmetic is free here. That is a choice: multiplications have become cheap on real chips, and the way to slow memory has not.
#
# You have met the machine in lesson 00. Here is its last schedule for $y = Ax$ once more, on 6 rows of 4 numbers, two rows at a time, with a picture of fast memory after every move.

# %%
def x_stays(m, A, x):
    y = m.new("y", (6,))
    with m.load(x, slice(None)) as v:  # (4,)
        for i in m.blocks(6, 2):
            with m.load(A, i) as a, a @ v as part:  # (2, 4), (2,)
                m.store(part, y, i)
    return y


done = run(x_stays, M=20, A=np.ones((6, 4)), x=np.ones(4))
memory_timeline(done.ledger, 20, title="y = Ax, move by move: x stays, A and y pass by")

# %% [markdown]
# Read it from left to right. The 4 words of $x$ come first and lie at the bottom all the time. Three times two rows of $A$ arrive, 8 words, then their product with $x$, 2 words; then both make room. The dashed line is $M$, and the peak is what the schedule needs of it.
#
# An array in slow memory shows its name, its shape and the type of its words. It has no values to compute with, and it says so:

# %%
m = Machine(M=8)
A = m.slow("A", np.arange(12.0).reshape(3, 4))  # an input: in slow memory before we begin
Y = m.new("Y", (3, 4))  # room in slow memory for a result, nothing written yet
print(A)
try:
    A * 2
except MachineError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# To double $A$ we therefore load a piece, work on the piece, and store it. The whole of $A$ has 12 words and does not fit in $M = 8$, so we go row by row. Three calls do it:
#
# - `m.blocks(n, b)` yields the blocks of $b$ rows that cover $n$ rows; the last one is smaller where $b$ does not divide $n$;
# - `m.load(A, i)` makes a tile of the rows in block `i`, and a tile opened by `with` gives its room back when the `with` ends;
# - `m.store(a, Y, i)` copies the tile `a` to the rows in block `i` of `Y`.
#
# Instead of a block you can give a slice, a pair such as `(0, 4)`, or one row's number. And where you want to see what a tile holds, `m.show(a)` prints its name, its shape and its values, rounded. It moves nothing and takes no room; use it while you write, and take it out when you are done.
#
# **Predict** (compute). For each row we load it, double it where it is (`a *= 2`), and store it. How many words move, and how many are in fast memory at most?

# %% tags=["predict"]
predict("2.1", words=24, peak=8)  #> predict("2.1", words=..., peak=...)

# %%
for i in m.blocks(3, 1):
    with m.load(A, i) as a:  # (1, 4)
        a *= 2
        m.show(a)
        m.store(a, Y, i)
print(m.ledger)
measured("2.1", words=m.ledger.total, peak=m.ledger.peak)

# %% [markdown]
# <details><summary>Words and peak</summary>
#
# 24 words moved: each of the 12 words was read once and written once. The peak is 4 words and not 8, because `a *= 2` changed the row where it was, and the end of the `with` gave its room back before the next row came.
#
# </details>
#
# This record is the **ledger**. Everything the course runs writes one. After a run, `m.take(Y)` shows what stands in slow memory:

# %%
m.take(Y)

# %% [markdown]
# ## 2.2 What takes room
#
# Words that move are one cost. The other limit is room: fast memory has $M$ words, and every tile counts, scratch included. The rule is the one you know from NumPy's own memory:
#
# **Predict** (compute). A tile `a` of shape $(4, 8)$ is in fast memory. How many *more* words does each of these take: `a.T`, `a -= 1.0`, `a.sum(axis=1)`, `a - 1.0`?

# %% tags=["predict"]
predict("2.2", view=32, in_place=0, sums=4, difference=32)  #> predict("2.2", view=..., in_place=..., sums=..., difference=...)

# %%
m = Machine(M=100)
a = m.load(m.slow("A", np.ones((4, 8))), (0, 4))  # (4, 8)
used = [m.used]  # words in fast memory now
turned = a.T
used.append(m.used)
a -= 1.0
used.append(m.used)
sums = a.sum(axis=1)  # (4,)
used.append(m.used)
difference = a - 1.0  # (4, 8)
used.append(m.used)
view, in_place, new_sums, new_difference = np.diff(used).tolist()
measured("2.2", view=view, in_place=in_place, sums=new_sums, difference=new_difference)

# %% [markdown]
# <details><summary>What the four took</summary>
#
# A view took 0 words, an update in place 0, the sums 4, and the difference 32: as much as `a` itself. A view that cost 32 words would have been a copy.
#
# </details>
#
# What may be written, and what it takes:
#
# | what you write | room it takes |
# | --- | --- |
# | `a - b`, `np.exp(a)`, `a @ b`, `a.sum(axis=1)` | as many words as the result has |
# | `a -= b`, `np.exp(a, out=a)` | none: in place |
# | `a.T`, `a[2:4]`, `a[:, None]` | none: a *view*, the same words seen differently |
# | `c.add_matmul(a, b)` | none: adds $ab$ to $c$ in place, each entry formed in a register |
#
# A *register* holds a single word beside the arithmetic. Four of them are free.
#
# A tile lives until its `with` ends or until `free()` is called. A result that no name holds is given back by itself. A name keeps its tile, also into the next round of a loop: after `mean = a.mean(axis=1)` the old means are still there when the next block arrives. `with a.mean(axis=1) as mean:` gives them back. The same holds for `a = m.load(...)`.
#
# Now 68 of the 100 words are in use, by `a`, `sums` and `difference`. An expression that asks for more than there is stops with an error, which we catch and print:
# <!-- 68 = 32 + 4 + 32 -->

# %%
try:
    weights = np.exp(a - a.max())
except FastMemoryFull as error:
    print(error)
print(m)

# %% [markdown]
# Read the message as a packing list. It says what was being done, what that needs and what is free; then everything that is resident, with sizes; then what would help. A temporary is named after the expression it came from. Here `a.max()` took one word, 31 were left, and the difference (NumPy calls it `subtract`) needs one more than that. After the error fast memory is empty, what was stored stays in slow memory, and the machine can be used again.
#
# From here on we put a schedule into a function and let `run` do the rest. A schedule takes the machine first, then the slow arrays, then its tile sizes, and returns the slow array it filled. `run(schedule, M=…, A=…, b=…)` makes a machine of $M$ words, places the NumPy arrays in slow memory, calls the schedule, and returns the values as `.O` and the ledger as `.ledger`.
#
# <!-- exercise 2A --> Subtract from each row of $A$, shape $(N, d)$, its mean:
#
# $$ Y_{ij} = A_{ij} - \frac1d \sum_{l} A_{il}. \tag{2.2} $$
#
# Work on $b$ rows at a time. Read each word of $A$ once and write each word of $Y$ once. Fast memory has room for $b$ rows and two more words for each of them: $M = bd + 2b$. A second copy of the block does not fit. If you are stuck after eight minutes, `hint("2A")`.


# %% [raw] name="about-2A"
# title = "Centre the rows"
# difficulty = 2
# importance = 4
# minutes = 8
# hints = [
#   "Only one block of rows must be in fast memory at a time. Which loop gives you the blocks?",
#   "In the loop: load the block in a with statement, compute the mean of each row, subtract it from the block without creating a second block, and store the block.",
#   "A mean along axis 1 takes one word per row; keepdims=True gives it a shape that broadcasts against the block. Subtract it in place. Without a with statement, the old block, or a mean with a name, is still in fast memory when the next block is loaded.",
# ]

# %% tags=["exercise"] name="ex-2A"
def my_centre(m, A, *, b):
    """Y = A with each row's mean subtracted, b rows at a time.

    A: slow, (N, d). Returns Y: slow, (N, d).
    """
    N, d = A.shape
    Y = m.new("Y", (N, d))
    ### BEGIN SOLUTION one loop over blocks of rows
    for i in m.blocks(N, b):
        with m.load(A, i) as a:  # (b, d)
            a -= a.mean(axis=1, keepdims=True)  # (b, 1)
            m.store(a, Y, i)
    ### END SOLUTION
    return Y


# %% tags=["check"] name="check-2A"
check("2A", my_centre)

# %% [markdown]
# Your schedule on a matrix of five rows, two at a time, with $M = 2\cdot6 + 2\cdot2 = 16$:

# %%
centred = attempt(run, my_centre, M=16, A=np.arange(30.0).reshape(5, 6) ** 2, b=2)
centred.ledger

# %% [markdown]
# 60 words for 30 numbers, with never more than half of the matrix in fast memory. No schedule can do with fewer: every input word must be read and every output word written. We call this the *compulsory* traffic.
#
# ## 2.3 The matrix product, one dot product at a time
#
# Centring uses each word once, so there was nothing to gain. The matrix product $C = AB$ is different: with $A$ of shape $(m, k)$ and $B$ of shape $(k, n)$, each word of $A$ takes part in $n$ products, and each word of $B$ in $m$. The compulsory traffic is $mk + kn + mn$ words for $mnk$ products. Whether a loaded word serves many products or only one depends on the schedule.
#
# (In formulas $m$, $n$, $k$ are sizes. In code `m` is the machine, and the sizes are called `rows`, `cols` and `depth`.)
#
# Begin with the definition: every entry of $C$ is a dot product of a row of $A$ and a column of $B$. Load both, multiply, store one word.
#
# **Predict** (compute). Three matrices of $16 \times 16$ have 768 words together. How many words does this schedule move? And how often is each word of $A$ read?
# <!-- 768 = 3 * 16 * 16 -->

# %% tags=["predict"]
predict("2.3", words=8448, reads_of_A=16)  #> predict("2.3", words=..., reads_of_A=...)


# %%
def by_dot_products(m, A, B):
    (rows, depth), (_, cols) = A.shape, B.shape
    C = m.new("C", (rows, cols))
    for i in m.blocks(rows, 1):
        for j in m.blocks(cols, 1):
            # a (1, k), b (k, 1), c (1, 1)
            with m.load(A, i) as a, m.load(B, slice(0, depth), j) as b, a @ b as c:
                m.store(c, C, i, j)
    return C


A, B = np.random.default_rng(2).standard_normal((2, 16, 16))
by_dots = run(by_dot_products, M=40, A=A, B=B)
print(by_dots.ledger)
print("equal to A @ B:", np.allclose(by_dots.O, A @ B))
measured("2.3", words=by_dots.ledger.total, reads_of_A=by_dots.ledger.reads["A"] // A.size)

# %% [markdown]
# <details><summary>Words, and reads of A</summary>
#
# 8,448 words, eleven times the compulsory 768, and every word of $A$ was read 16 times: once for each column of $B$.
#
# </details>
#
# Each of the $mn$ entries costs $2k$ words loaded and one stored:
#
# $$ W = 2mnk + mn. \tag{2.3} $$
#
# A ledger can be compared with a formula. `costs` holds the *closed forms*: functions that give, without running anything, the ledger a schedule must have. Two ledgers can be subtracted, and the difference says in words where they part. Here we compare with a ledger in which everything moves once (what `bm` and `bn` mean comes in section 2.4):

# %%
once = costs.matmul(16, 16, 16, bm=16, bn=16)
by_dots.ledger - once

# %% [markdown]
# The first lines name the arrays that are read too often. The last one shows the price of the other extreme: to move everything only once, this closed form wants 288 words of fast memory, and our schedule needs 33.
#
# ## 2.4 Keep a tile of the result
#
# Each pair of loaded words served for one product and was thrown away. To get more out of a word, we must have several partners for it at hand. So we keep a tile of $C$ with $b_m$ rows and $b_n$ columns, and go through $k$ one step at a time: load the piece of a column of $A$ that belongs to the tile's rows ($b_m$ words) and the piece of a row of $B$ that belongs to its columns ($b_n$ words). Every word of the one meets every word of the other: $b_m b_n$ products for $b_m + b_n$ words. They are added to the tile, and after $k$ steps the tile is finished and stored, once.
#
# **Predict** (compute). The same $16 \times 16$ matrices, now with tiles of $4 \times 4$. How many words move, and how many must be in fast memory at once?

# %% tags=["predict"]
predict("2.4", words=2304, footprint=32)  #> predict("2.4", words=..., footprint=...)

# %% [markdown]
# `schedules.matmul` is the library's schedule for it:

# %%
tiled = run(schedules.matmul, M=100, A=A, B=B, bm=4, bn=4)
print(tiled.ledger)
measured("2.4", words=tiled.ledger.total, footprint=tiled.ledger.peak)

# %% [markdown]
# <details><summary>Words and room beside the dot products</summary>
#
# 2,304 words where the dot products moved 8,448, and the schedule needs 24 words of room where they needed 33: 16 for the tile, and 4 for each piece. A larger piece of the problem fits in less room, because we no longer keep whole rows.
#
# </details>
#
# Count the traffic by array. For the tiles in one column of tiles, all rows of $A$ pass by, so $A$ is read once for each of the $\lceil n/b_n \rceil$ columns of tiles; $B$ likewise once for each of the $\lceil m/b_m \rceil$ rows of tiles; $C$ is written once:
#
# $$ W = mk \left\lceil \frac n{b_n} \right\rceil + kn \left\lceil \frac m{b_m} \right\rceil + mn, \qquad \text{footprint } b_m b_n + b_m + b_n. \tag{2.4} $$
#
# The *footprint* is the room a schedule needs: here the tile and the two pieces. With $b_m = b_n = b$ it is $b^2 + 2b$.
#
# <!-- exercise 2B --> Write the schedule of (2.4). Fast memory is exactly the footprint, so the product of two pieces must not become a tile of its own: `add_matmul` adds it in place. `m.zeros(i, j)` makes a tile of zeros with the rows of block `i` and the columns of block `j`; `m.load(A, i, k)` loads rows `i` and columns `k`; `m.store(c, C, i, j)` stores to rows `i` and columns `j`. A number is a position in `load` and a length in `zeros` and `row_stats`. Sizes need not be multiples of the tile. If you are stuck after fifteen minutes, `hint("2B")`.


# %% [raw] name="about-2B"
# title = "The matrix product with output tiles"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "There are three loops. Which of A, B and C stays in fast memory during the innermost loop? Where is it created, and where is it stored?",
#   "Outer loops: blocks i of rows and j of columns, with a tile of zeros for C. Inner loop: one k at a time, with a piece of a column of A and a piece of a row of B.",
#   "m.blocks(depth, 1) yields the k. The two loaded pieces have shapes (rows, 1) and (1, columns). add_matmul adds their product to the tile without extra words. Store the tile after the loop over k.",
# ]

# %% tags=["exercise"] name="ex-2B"
def my_matmul(m, A, B, *, bm, bn):
    """C = AB, in tiles of bm x bn.

    A: slow, (rows, depth); B: slow, (depth, cols). Returns C: slow, (rows, cols).
    """
    (rows, depth), (_, cols) = A.shape, B.shape
    C = m.new("C", (rows, cols))
    ### BEGIN SOLUTION two loops over tiles of C, one over the depth
    for i in m.blocks(rows, bm):
        for j in m.blocks(cols, bn):
            with m.zeros(i, j) as c:  # (bm, bn)
                for k in m.blocks(depth, 1):
                    with m.load(A, i, k) as a, m.load(B, k, j) as b:  # (bm, 1), (1, bn)
                        c.add_matmul(a, b)
                m.store(c, C, i, j)
    ### END SOLUTION
    return C


# %% tags=["check"] name="check-2B"
check("2B", my_matmul)

# %%
def against_the_closed_form(matmul):
    yours = run(matmul, M=24, A=A, B=B, bm=4, bn=4).ledger
    print("yours against (2.4):", yours - costs.matmul(16, 16, 16, bm=4, bn=4))


attempt(against_the_closed_form, my_matmul)

# %% [markdown]
# The picture shows fast memory while the four tiles of a smaller product are made. It is drawn from the trace, the list of single moves that a ledger keeps.

# %%
small = run(schedules.matmul, M=24, A=A[:8, :6], B=B[:6, :8], bm=4, bn=4)
memory_timeline(small.ledger, 24)

# %% [markdown]
# The tile of $C$, called accumulator in the picture, lies at the bottom with its 16 words. The two pieces come and go on top of it, 4 words each, six times for each tile. Two thirds of the room hold sums that stay until they are finished. That is what fast memory is for.
#
# ## 2.5 Which tile for which memory
#
# Given $M$, the tile should be as large as fits. From $b_m b_n + b_m + b_n \le M$, adding 1 on both sides:
#
# $$ (b_m + 1)(b_n + 1) \le M + 1, \qquad \text{for a square } b = \lfloor \sqrt{M + 1} \rfloor - 1, \qquad W \approx \frac{2mnk}{\sqrt M} + mn. \tag{2.5} $$
#
# The square root is the law to remember: to halve the traffic you need four times the memory.
#
# There is a popular rule that the tile should have side $\sqrt{M/3}$, so that a square tile of $A$, one of $B$ and one of $C$ fit together. Formula (2.4) does not ask how deep the loaded pieces are. Pieces of depth $b$ move the same words as pieces of depth 1, but they take $2b^2$ words of room that a larger tile of $C$ could have used.
#
# **Predict** (guess). All matrices are $120 \times 120$. How much *smaller* does the traffic become, as a factor, when $M$ grows from 120 to 480? And how much *larger* is it, as a factor, with the tile $\sqrt{M/3}$ at $M = 120$?

# %% tags=["predict"]
predict("2.5", four_times_M=2.0, three_squares=1.73)  #> predict("2.5", four_times_M=..., three_squares=...)

# %%
words = {}
for M, b, rule in [(120, 6, "√(M/3)"), (120, 10, "√(M+1) - 1"), (480, 20, "√(M+1) - 1")]:
    done = run(schedules.matmul, M=M, dry=True, A=(120, 120), B=(120, 120), bm=b, bn=b)
    words[M, b], peak = done.ledger.total, done.ledger.peak
    print(f"M = {M}, b = {b:2} by {rule:10}: {words[M, b]:>8,} words, footprint {peak}")
measured(
    "2.5",
    four_times_M=words[120, 10] / words[480, 20],
    three_squares=words[120, 6] / words[120, 10],
)

# %% [markdown]
# <details><summary>Both factors, and why neither is quite the formula's</summary>
#
# Four times the memory made the traffic 1.92 times smaller, from 360,000 to 187,200 words. It is not quite 2, because the $mn$ words of $C$ are written whatever $M$ is. Tiles of side 6 move 590,400 words, 1.64 times as many as tiles of side 10; the limit for large $M$ is $\sqrt 3 \approx 1.73$. With depth 1 the smaller tile leaves 72 of the 120 words idle: there is no reason to choose it.
#
# </details>
#
# (`dry=True` runs the same schedule on shapes alone: it counts, and computes no values.)
#
# <!-- exercise 2C --> A square tile is right when the matrices are large in both directions. If $A$ has only a few rows, part of a square tile hangs over the edge, and the room is better spent elsewhere. Write the function that picks the best tile: among all $b_m \times b_n$ whose footprint is at most $M$, one that moves the fewest words by (2.4). `costs.matmul(m, n, k, bm=bm, bn=bn).total` evaluates the formula. $M$ is at least 3, so a tile of one word always fits. There is no need to be clever: the sizes here are small enough to try every $b_m$. If you are stuck after ten minutes, `hint("2C")`.
# <!-- 1.73, 72 = math.sqrt(3), 120 - costs.matmul(120, 120, 120, bm=6, bn=6).peak -->


# %% [raw] name="about-2C"
# title = "Choose the tile"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "For a given bm, only one bn is worth considering. Which one?",
#   "Solve bm·bn + bm + bn ≤ M for bn; a bn above n does not help. This leaves one candidate for each bm from 1 to m, and the closed form gives the words of each candidate.",
#   "Loop over all bm that leave a bn of at least 1, and keep the pair with the smallest mk⌈n/bn⌉ + kn⌈m/bm⌉. min(..., key=...) selects it; for integers, ⌈a/b⌉ is -(-a // b).",
# ]

# %% tags=["exercise"] name="ex-2C"
def my_tile(m, n, k, M):
    """(bm, bn) with bm·bn + bm + bn <= M that moves the fewest words.

    The product is C = AB, with A of shape (m, k) and B of shape (k, n).
    """
    ### BEGIN SOLUTION for each bm there is one bn worth trying
    tiles = [(bm, min(n, (M - bm) // (bm + 1))) for bm in range(1, m + 1) if 2 * bm + 1 <= M]
    return min(tiles, key=lambda tile: costs.matmul(m, n, k, bm=tile[0], bn=tile[1]).total)
    ### END SOLUTION


# %% tags=["check"] name="check-2C"
check("2C", my_tile)


# %%
def square_tile(m, n, k, M):
    return isqrt(M + 1) - 1, isqrt(M + 1) - 1


def words_with(choose, m, n, k, M):
    bm, bn = choose(m, n, k, M)
    return costs.matmul(m, n, k, bm=bm, bn=bn).total


def yours_beside_a_square(tile):
    print("your tile:", tile(8, 1024, 256, 1024))
    print(f"words with your tile:     {words_with(tile, 8, 1024, 256, 1024):,}")
    print(f"words with a square tile: {words_with(square_tile, 8, 1024, 256, 1024):,}")


attempt(yours_beside_a_square, my_tile)

# %% [markdown]
# For a product with $m = 8$ rows, the best tile takes all 8 rows, so that $B$ is read once, and moves 290,816 words. The square tile of side 31 reads $B$ once as well, but has room for only 31 columns where a low tile has room for 112: it moves 339,968.
#
# ## 2.6 How little is possible
#
# Could an altogether different schedule do better? A **lower bound** answers for all schedules at once, including those nobody has thought of.
#
# Here is its idea. While a tile of $b_m \times b_n$ sums is in fast memory, $b_m + b_n$ loaded words give $b_m b_n$ products. With at most $M$ sums that is at most $\sqrt M/2$ products for each word, reached by the square. There are $mnk$ products, hence $2mnk/\sqrt M$ words. This much is about schedules that keep a tile of $C$. The theorem says that keeping something else, or mixing, does not help: every schedule that forms all the products one by one moves
#
# $$ W \ge \max\left( \frac{2mnk}{\sqrt M} - 2M,\; mk + kn + mn \right). \tag{2.6} $$
#
# The first term was proved by Smith, Lowery, Langou and van de Geijn; the second is the compulsory traffic. `bounds.matmul(m, n, k, M)`, the bound `matmul` of the library's list, evaluates both. Our machine also gives away four single words as registers, so the bound that holds on it is the one at $M + 4$.
#
# **Predict** (guess). For $m = n = k = 1024$ and $M = 1024$: by how many percent does our schedule, with the best tile, exceed the bound?

# %% tags=["predict"]
predict("2.6", percent_above=10.0)  #> predict("2.6", percent_above=...)

# %%
n = 1024


def tile_of_C_stays(M):
    tiles = schedules.matmul_tiles(n, n, n, M)  # the library's answer to exercise 2C
    return run(schedules.matmul, M=M, dry=True, A=(n, n), B=(n, n), **tiles).ledger.total


for M in (64, 1024, 4096, 65_536, 262_144, 4_194_304):
    got, bound = tile_of_C_stays(M), bounds.matmul(n, n, n, M + 4)
    print(f"M = {M:>9,}: {got:>11,} words, bound {bound:>11,}, ratio {got / bound:.2f}")
measured("2.6", percent_above=100 * (tile_of_C_stays(1024) / bounds.matmul(n, n, n, 1028) - 1))

# %% [markdown]
# <details><summary>How near the bound</summary>
#
# At $M = 1024$ the schedule is 6.5 percent above the bound; whatever anybody may still invent, it can save no more than that. At $M = 4096$ the ratio is 1.06 as well.
#
# </details>
#
# Towards $M = n^2/4$ the ratio grows to 1.71. There the term $-2M$ weakens the bound, and the table cannot say whether a better schedule or a better bound is missing. At $M = 4{,}194{,}304$ everything fits, the ratio is 1.00, and still 3,145,728 words move: the compulsory ones.
#
# The same as a picture, with both axes logarithmic, so that $1/\sqrt M$ is a straight line of slope $-1/2$: it falls by half a decade for each decade of $M$:

# %%
def three_square_tiles(M):
    b = max(1, isqrt(M // 3))
    return costs.matmul(n, n, n, bm=b, bn=b).total


memories = [4**p for p in range(2, 12)]
machine = {"tile of C stays": [(M, tile_of_C_stays(M)) for M in memories]}
formulas = {
    "lower bound": [(M, bounds.matmul(n, n, n, M + 4)) for M in memories],
    "three square tiles": [(M, three_square_tiles(M)) for M in memories],
}
title = "Words moved by a matrix product, m = n = k = 1024"
on_the_bound = {"lower bound": "slope −1/2"}
axes = {"xlabel": "fast memory M (words)", "ylabel": "words moved"}
curve(machine, formulas, title=title, notes=on_the_bound, **axes)

# %% [markdown]
# The points lie just above the bound where $M$ is large enough for a good tile and small beside $n^2$. The rule of three square tiles runs parallel to them, higher by a factor of about 1.7. At the right end all three arrive at the compulsory traffic, and no amount of memory brings them below it.
# <!-- 1.7 = math.sqrt(3) -->
#
# <!-- exercise 2D --> The bound (2.6) is for a product of two *different* matrices. For $G = AA^\top$ with $A$ of shape $(m, k)$, your `my_matmul` would read $A$ twice $\lceil m/b \rceil$ times. But $G_{ij} = G_{ji}$, so half of the tiles need not be computed, and on the diagonal the two pieces are the same one. Write the schedule that moves
#
# $$ W = mk \left\lceil \frac mb \right\rceil + m^2 \quad \text{words, at the footprint } b^2 + 2b. \tag{2.7} $$
#
# $G$ is stored in full, both halves. Blocks compare by their position: `i == j`, `j > i`. If you are stuck after twelve minutes, `hint("2D")`.


# %% [raw] name="about-2D"
# title = "The product of a matrix and its transpose"
# difficulty = 3
# importance = 2
# minutes = 12
# hints = [
#   "G equals its own transpose. How many of the tiles of G do you have to compute?",
#   "Tile (j, i) is the transpose of tile (i, j), and a transposed view takes no words: compute once, store twice. On the diagonal both pieces of A are the same.",
#   "Only use pairs with j up to i. Off the diagonal, load two pieces of the column. On the diagonal, load one and use it twice: a column times its transposed view. After the loop over k, store g at (i, j), and off the diagonal g.T at (j, i).",
# ]

# %% tags=["exercise"] name="ex-2D"
def my_gram(m, A, *, b):
    """G = A Aᵀ. A: slow, (rows, depth). Returns G: slow, (rows, rows), in tiles of b x b."""
    rows, depth = A.shape
    G = m.new("G", (rows, rows))
    ### BEGIN SOLUTION the tiles on and below the diagonal
    for i in m.blocks(rows, b):
        for j in m.blocks(rows, b):
            if j.start > i.start:
                continue
            with m.zeros(i, j) as g:  # (b, b)
                for k in m.blocks(depth, 1):
                    with m.load(A, i, k) as a:  # (b, 1)
                        if i == j:
                            g.add_matmul(a, a.T)
                        else:
                            with m.load(A, j, k) as c:  # (b, 1)
                                g.add_matmul(a, c.T)
                m.store(g, G, i, j)
                if i != j:
                    m.store(g.T, G, j, i)
    ### END SOLUTION
    return G


# %% tags=["check"] name="check-2D"
check("2D", my_gram)

# %%
def with_and_without_symmetry(gram):
    symmetric = run(gram, M=24, A=A, b=4)
    general = run(schedules.matmul, M=24, A=A, B=A.T, bm=4, bn=4)
    print(f"with symmetry:    {symmetric.ledger.total:,} words")
    print(f"without symmetry: {general.ledger.total:,} words")


attempt(with_and_without_symmetry, my_gram)

# %% [markdown]
# 1,280 words instead of 2,304. Transposing cost nothing: `g.T` and `a.T` are views. A lower bound speaks about a class of problems, and a problem with more structure can lie below it.
#
# ## 2.7 Naive attention on the machine
#
# Attention is two matrix products with a softmax between them. Lesson 01 wrote it as the formula stands: $S = QK^\top/\sqrt d$, then $P = \mathrm{softmax}(S)$, then $O = PV$. The library's `naive` does that on the machine, one after the other, with tiles chosen for $M$. Each of the three parts runs inside `with m.phase("scores"):` and so on, and the ledger keeps a total for each phase.
#
# When a row of $N$ scores fits in fast memory, and $B_r$ rows of $Q$, and a tile of $O$ with $B_m$ full rows, the closed form is
#
# $$ W = \underbrace{Nd + Nd\left\lceil \tfrac N{B_r} \right\rceil + N^2}_{\text{scores}} + \underbrace{2N^2}_{\text{softmax}} + \underbrace{N^2 + Nd\left\lceil \tfrac N{B_m} \right\rceil + Nd}_{\text{output}}. \tag{2.8} $$
#
# $S$ is written and read, $P$ is written and read: $4N^2$ words.
#
# **Predict** (compute). For $N = 256$, $d = 32$, $M = 4096$ the tiles have $B_r = B_m = 123$ rows. What percentage of all words belongs to $S$ and $P$? And how many times the compulsory $4Nd$ words is the total?
# <!-- 123 = schedules.get("naive").tiles(256, 32, 4096)["Br"] -->

# %% tags=["predict"]
predict("2.7", percent_S_and_P=90, times_compulsory=8)  #> predict("2.7", percent_S_and_P=..., times_compulsory=...)

# %%
N, d, M = 256, 32, 4096
Q, K, V = np.random.default_rng(3).standard_normal((3, N, d))
naive = schedules.get("naive")
done = run(naive, M=M, Q=Q, K=K, V=V, **naive.tiles(N, d, M))
ledger = done.ledger
print(ledger)
S_and_P = sum(ledger.reads[x] + ledger.writes[x] for x in "SP")
print(f"S and P: {S_and_P:,} words; compulsory: {4 * N * d:,}")
print("equal to exact attention:", np.allclose(done.O, exact.attention(Q, K, V)))
measured(
    "2.7",
    percent_S_and_P=100 * S_and_P / ledger.total,
    times_compulsory=ledger.total / (4 * N * d),
)

# %%
for phase, (read, written) in ledger.phases.items():
    print(f"{phase:8} {read + written:>8,} words")
scores, output = bounds.matmul(N, N, d, M + 4), bounds.matmul(N, d, N, M + 4)
print(f"bounds (2.6): QKᵀ {scores:,} words, PV {output:,} words")
moved = {x: ledger.reads.get(x, 0) + ledger.writes.get(x, 0) for x in ledger.arrays}
bars(moved, title="Naive attention, N = 256, d = 32, M = 4096: words by array")

# %% [markdown]
# <details><summary>Whose words they are</summary>
#
# 80 percent of the 327,680 words belong to $S$ and $P$, two arrays that are neither input nor output, and the total is ten times the compulsory traffic.
#
# </details>
#
# The products themselves are not to blame: each moves 98,304 words, and 81,920 is the least that a product of these sizes can move. It is the way they are joined that costs. The softmax phase moves another 131,072 words only to fetch $S$ and put $P$ back.
#
# More fast memory does not help much as long as $S$ is written out: the $4N^2$ words stay. They would go away if a tile of scores could be turned into weights and used while it is still in fast memory. What stands in the way is softmax, which seems to need a whole row of scores before it can give the first weight. Lesson 03 removes that obstacle.
#
# ## Misconceptions
#
# - **"Smaller tiles move fewer words."** In section 2.5 the tile of side 6 moved 590,400 words, side 10 moved 360,000 and side 20 moved 187,200. A smaller tile needs less *room*; it moves more.
# - **"The tile should be $\sqrt{M/3}$, so that three tiles fit."** In section 2.5 that rule moved 1.64 times as many words as the largest tile of $C$ with thin pieces of $A$ and $B$.
# - **"A transpose or a slice is a copy."** In section 2.2 a view took 0 words, and so does every transpose in exercise 2D.
# - **"If it fits in fast memory, there is no traffic."** In section 2.6 everything fits at $M = 4{,}194{,}304$, and 3,145,728 words move all the same: inputs have to come in, and results have to go out.
#
# ## Take-away
#
# - The model counts words between two memories: $W$ = loaded + stored, with at most $M$ words in fast memory. A ledger records both, and a closed form predicts it to the word.
# - Traffic falls when a loaded word meets many partners. Keep the tile of the result, stream the inputs past it: $b^2 + 2b \le M$ gives $W \approx 2mnk/\sqrt M$.
# - No schedule of the matrix product can do much better: $2mnk/\sqrt M - 2M$ is a lower bound, and we measured a ratio of 1.06.
# - Naive attention pays $4N^2$ words for two arrays nobody asked for.
#
# ## References
#
# - T. M. Smith, B. Lowery, J. Langou, R. A. van de Geijn, *A Tight I/O Lower Bound for Matrix Multiplication*, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017): the first term of (2.6), and the schedule of 2.4.
# - J.-W. Hong, H. T. Kung, *I/O complexity: the red-blue pebble game*, STOC 1981: the model with two memories, and the first bound of order $mnk/\sqrt M$.
# - O. Beaumont, L. Eyraud-Dubois, M. Vérité, J. Langou, *I/O-Optimal Algorithms for Symmetric Linear Algebra Kernels*, [arXiv 2202.10217](https://arxiv.org/abs/2202.10217): for $AA^\top$ even $m^2k/\sqrt{2M}$ is possible, with tiles that are triangles.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré, *FlashAttention*, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135): counts the words of naive attention in this model, and then those of the schedules of lesson 04.
#
# **Next**: lesson 03, a softmax that does not need the whole row at once.
