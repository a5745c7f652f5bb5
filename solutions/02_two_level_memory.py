# %% [markdown]
# # 02 A two-level memory machine
#
# A processor computes only with data in a small memory close to it. Most data are in a large memory far away, and many programs spend most of their time moving data between them. Here you program a machine that counts these moves.
#
# **What you will learn**
#
# - to load, compute and store with $M$ words of fast memory;
# - to count the words that a program moves and those that it needs at once;
# - to tile a matrix product and compare its traffic with a lower bound;
# - to find the arrays that make naive attention expensive.
#
# **Prerequisites**: lesson 01; slices, `@` and `with` in Python. Symbols and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 2D -->.
#
# <!-- exercises -->

# %% tags=["setup"]
from math import isqrt

import numpy as np

from iocourse import FastMemoryFull, Machine, MachineError, bounds, costs, exact, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.course.explore import bars, curve, memory_timeline

# %% [markdown]
# ## 2.1 Load, compute, store
#
# **Slow memory** has no limit. It holds inputs at the start and results at the end. **Fast memory** has a *capacity* of $M$ words (a *word* is one number). Arithmetic is possible only there. A **load** copies words into fast memory, where they form a *tile*. A **store** copies a tile to slow memory. The machine counts
#
# $$ W = \text{words loaded} + \text{words stored}. \tag{2.1} $$
# <!-- (2.1) not evaluated: definition -->
#
# **Predict** (compute). $A$ has 3 rows of 4 words. For each row, a program loads it, doubles it in place, stores it in $Y$ and frees its words. How many words move, and how many are in fast memory at most?

# %% tags=["predict"]
predict("2.1", words=24, peak=8)  #> predict("2.1", words=..., peak=...)

# %%
m = Machine(M=8)
A = m.slow("A", np.arange(12.0).reshape(3, 4))  # an input: in slow memory at the start
Y = m.new("Y", (3, 4))  # space in slow memory for a result; nothing has been stored yet
for i in m.blocks(3, 1):
    with m.load(A, i) as a:  # (1, 4)
        a *= 2
        m.show(a)
        m.store(a, Y, i)
print(m.ledger)
measured("2.1", words=m.ledger.total, peak=m.ledger.peak)
memory_timeline(m.ledger, 8, title="Fast memory while A is doubled row by row")

# %% [markdown]
# <details><summary>Words moved and peak</summary>
#
# 24 words moved, because each of the 12 words was read once and written once. The peak is 4 words and not 8: `a *= 2` changes the row in place, and the end of the `with` block frees its words before the next row is loaded.
#
# </details>
#
# The figure shows the words in fast memory after each move, from left to right; here a new or freed tile is also a move. The dashed line is the capacity $M$. The printed record is the **ledger**; every run in this course returns one. Arithmetic is not counted, because on real chips it has become much cheaper than access to slow memory.
#
# The program makes three calls:
#
# - `m.blocks(n, b)` yields the *blocks* of $b$ rows that cover $n$ rows; the last block is smaller if $b$ does not divide $n$;
# - `m.load(A, i)` makes a tile of the rows in block `i`, and the end of its `with` block frees the words of the tile;
# - `m.store(a, Y, i)` copies the tile `a` to the rows in block `i` of `Y`.
#
# Instead of a block you can pass a slice, a pair such as `(0, 4)`, or the position of one row. `m.show(a)` prints the name, the shape and the rounded values of a tile. It moves no words and uses none; remove it when your program works.
#
# An array in slow memory has a name, a shape and a type, but no arithmetic. After a run, `m.take(Y)` returns its values:

# %%
print(A)
try:
    A * 2
except MachineError as error:
    print(f"{type(error).__name__}: {error}")
m.take(Y)

# %% [markdown]
# ## 2.2 Which expressions use fast memory
#
# The words moved are one cost of a program. The other is its use of fast memory. Every tile counts towards the $M$ words, temporary results included. An expression uses fast memory where NumPy would allocate a new array.
#
# **Predict** (compute). A tile `a` of shape $(4, 8)$ is in fast memory. How many *more* words does each of these use: `a.T`, `a -= 1.0`, `a.sum(axis=1)`, `a - 1.0`?

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
# <details><summary>Words used by the four expressions</summary>
#
# The view uses 0 words, the update in place 0, the sums 4, and the difference 32, as many as `a` itself. A transpose that copied would use 32 words.
#
# </details>
#
# These are the rules for all expressions:
#
# | expression | words that it uses |
# | --- | --- |
# | `a - b`, `np.exp(a)`, `a @ b`, `a.sum(axis=1)` | as many as the result has |
# | `a -= b`, `np.exp(a, out=a)` | none, because they work in place |
# | `a.T`, `a[2:4]`, `a[:, None]` | none, because a *view* shows the words of `a` in another shape |
# | `c.add_matmul(a, b)` | none: adds $ab$ to $c$ in place, each entry formed in a register |
#
# A *register* holds a single word next to the arithmetic units. Up to four words in registers are not counted.
#
# A tile is in fast memory until its `with` block ends or `free()` is called. A result without a name is freed automatically. A result with a name keeps its words until the name gets another value. In a loop this is too late: after `mean = a.mean(axis=1)` the old means are still in fast memory when the next *iteration*, that is, the next execution of the body, loads its block. `with a.mean(axis=1) as mean:` frees them in time. Use `with` for loads, too.
#
# Now 68 of the 100 words are in use, by `a`, `sums` and `difference`. An expression that needs more than the free words raises an error:
# <!-- 68 = 32 + 4 + 32 -->

# %%
try:
    weights = np.exp(a - a.max())
except FastMemoryFull as error:
    print(error)
print(m)

# %% [markdown]
# The message names the operation, its words and the free words. Then it lists everything in fast memory and proposes a remedy. A result is listed by its expression, even if it has a name in Python. Here `a.max()` took one word and 31 were left, but the difference (`subtract` in NumPy) needs one more. After the error fast memory is empty, slow memory is unchanged, and the machine can be used again.
#
# From here on, a program is a function, called a schedule, and `run` executes it. The schedule takes the machine, then the slow arrays, then its tile sizes, and returns the slow array that it has filled. `run(schedule, M=…, A=…, b=…)` makes a machine of $M$ words, places the NumPy arrays in slow memory, calls the schedule, and returns the values as `.O` (output) and the ledger as `.ledger`.
#
# <!-- exercise 2A --> Subtract from each row of $A$, shape $(N, d)$, its mean:
#
# $$ Y_{ij} = A_{ij} - \frac1d \sum_{l} A_{il}. \tag{2.2} $$
# <!-- (2.2) not evaluated: entries of arrays -->
#
# Work on $b$ rows at a time. Read each word of $A$ once and write each word of $Y$ once. The capacity is $M = bd + 2b$. Two words per row are left (you need one), so a second copy of the block does not fit. If you are stuck after eight minutes, run `hint("2A")` in a new cell.


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
# Your schedule for a matrix of five rows, two at a time, with $M = 2\cdot6 + 2\cdot2 = 16$ (`attempt` reports an unsolved exercise):

# %%
centred = attempt(run, my_centre, M=16, A=np.arange(30.0).reshape(5, 6) ** 2, b=2)
centred.ledger

# %% [markdown]
# It moves 60 words for 30 numbers, and never has more than half of the matrix in fast memory. No schedule can move fewer words (compulsory traffic, lesson 00).
#
# ## 2.3 The matrix product, one dot product at a time
#
# In centring, all uses of a word happen while its row is in fast memory, so one load is enough. The matrix product $C = AB$ is different. $A$ has shape $(m, k)$ and $B$ has $(k, n)$, so each word of $A$ is used in $n$ products and each word of $B$ in $m$. The compulsory traffic is $mk + kn + mn$ words for $mnk$ products. The schedule decides whether a loaded word is used for many products or only for one.
#
# (In formulas $m$, $n$, $k$ are sizes. In code `m` is the machine, and the sizes are `rows`, `cols` and `depth`. `m.load(B, k, j)` loads rows `k` and columns `j`; `slice(0, depth)` means all rows.)
#
# We start with the definition: every entry of $C$ is the dot product of a row of $A$ and a column of $B$. Load both, multiply, store one word.
#
# **Predict** (compute). Three matrices of $16 \times 16$ have 768 words together. How many words does this schedule move? And how often is each word of $A$ read?
# <!-- 768 = 3 * 16 * 16 -->
# <!-- 16 \times 16 as input -->

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
# <details><summary>Words moved, and reads of A</summary>
#
# The schedule moves 8,448 words, eleven times the compulsory 768. Every word of $A$ is read 16 times, once per column of $B$.
#
# </details>
#
# Each of the $mn$ entries costs $2k$ words loaded and one stored:
#
# $$ W = 2mnk + mn. \tag{2.3} $$
# <!-- (2.3) W = costs.matmul(m, n, k, bm=1, bn=1).total -->
#
# `costs` contains the closed forms: functions that compute the ledger of a schedule without running it. The difference of two ledgers shows where they differ. Here we subtract a ledger in which everything moves once (section 2.4 explains `bm` and `bn`):
# <!-- 16 = costs.matmul(16, 16, 16, bm=1, bn=1).reads["A"] / 16**2 -->

# %%
once = costs.matmul(16, 16, 16, bm=16, bn=16)
by_dots.ledger - once

# %% [markdown]
# The first lines name the arrays that are read too often. The last line compares the peaks. To move everything only once, this closed form needs 288 words of fast memory, for all of $C$, a column of $A$ and a row of $B$. Our schedule needs 33.
#
# ## 2.4 Tiling the matrix product
#
# Each pair of loaded words was used for one product and then discarded. To use a word more often, we need several partners for it in fast memory at the same time. So we keep a tile of $C$ with $b_m$ rows and $b_n$ columns in fast memory and step through $k$. In each step we load $b_m$ words of a column of $A$, those in the rows of the tile, and $b_n$ words of a row of $B$, those in its columns. Every word of one piece is multiplied with every word of the other, which gives $b_m b_n$ products for $b_m + b_n$ words. They are added to the tile, and after $k$ steps the tile is complete and is stored once. Dividing loops into blocks in this way is called *tiling* (or blocking). The *loop order* is the second choice: here the loop over $k$ is the innermost one, so the tile of $C$ remains in fast memory.
#
# **Predict** (compute). The same $16 \times 16$ matrices, now with tiles of $4 \times 4$. How many words move, and how many must be in fast memory at once?
# <!-- 16 \times 16, 4 \times 4 as input -->

# %% tags=["predict"]
predict("2.4", words=2304, footprint=32)  #> predict("2.4", words=..., footprint=...)

# %% [markdown]
# `schedules.matmul` is the library's schedule for this order:

# %%
tiled = run(schedules.matmul, M=100, A=A, B=B, bm=4, bn=4)
print(tiled.ledger)
measured("2.4", words=tiled.ledger.total, footprint=tiled.ledger.peak)

# %% [markdown]
# <details><summary>Comparison with the dot products</summary>
#
# The schedule moves 2,304 words instead of 8,448. It needs 24 words of fast memory, 16 for the tile and 4 for each piece. The dot products needed 33, because they load complete rows.
#
# </details>
#
# Count the traffic by array. For the tiles in one column of tiles, all rows of $A$ are loaded, so $A$ is read once per column of tiles, $\lceil n/b_n \rceil$ times. In the same way $B$ is read once per row of tiles, $\lceil m/b_m \rceil$ times. $C$ is written once:
#
# $$ W = mk \left\lceil \frac n{b_n} \right\rceil + kn \left\lceil \frac m{b_m} \right\rceil + mn, \qquad \text{footprint } b_m b_n + b_m + b_n. \tag{2.4} $$
# <!-- (2.4) W = costs.matmul(m, n, k, bm=bm, bn=bn).total -->
# <!-- (2.4) footprint = costs.matmul(m, n, k, bm=bm, bn=bn).peak where bm <= m and bn <= n -->
#
# The *memory footprint* of a schedule is the number of words that it needs in fast memory at once, here the tile and the two pieces. (It is often called the working set.) With $b_m = b_n = b$ it is $b^2 + 2b$.
#
# <!-- exercise 2B --> Write the schedule of (2.4). The capacity is exactly the footprint, so the product of two pieces must not become a new tile: `add_matmul` adds it in place. `m.zeros(i, j)` makes a tile of zeros with the rows of block `i` and the columns of block `j`; `m.store(c, C, i, j)` stores it there. A number is a position in `load` and `store`, and a length in `zeros`. Use `m.blocks` for all three loops, so that the check can count large matrices as well. Sizes need not be multiples of the tile. If you are stuck after fifteen minutes, run `hint("2B")`.


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
    print("your ledger minus (2.4):", yours - costs.matmul(16, 16, 16, bm=4, bn=4))


attempt(against_the_closed_form, my_matmul)

# %% [markdown]
# The figure shows fast memory while the four tiles of a smaller product are computed. It is drawn from the trace, the list of all these moves in a ledger.

# %%
small = run(schedules.matmul, M=24, A=A[:8, :6], B=B[:6, :8], bm=4, bn=4)
memory_timeline(small.ledger, 24)

# %% [markdown]
# The tile of $C$, labelled accumulator, is at the bottom with its 16 words. On top of it the two pieces are loaded and freed, 4 words each, six times per tile.
#
# ## 2.5 Choosing the tile size for a given M
#
# For a given $M$, the tile should be as large as possible. From $b_m b_n + b_m + b_n \le M$, adding 1 on both sides:
#
# $$ (b_m + 1)(b_n + 1) \le M + 1, \qquad \text{for a square } b = \lfloor \sqrt{M + 1} \rfloor - 1, \qquad W \approx \frac{2mnk}{\sqrt M} + mn. \tag{2.5} $$
# <!-- (2.5) costs.matmul(m, n, k, bm=bm, bn=bn).peak + 1 <= M + 1 where bm <= m and bn <= n -->
# <!-- (2.5) b = bounds.square_side(M) where M >= 3 -->
# <!-- (2.5) W ~ costs.matmul(m, n, k, bm=b, bn=b).total within 0.05 with b = bounds.square_side(M) where 5000 <= M and 50 * b <= m and 50 * b <= n -->
#
# To halve the traffic you need four times the memory.
#
# A popular rule uses the side $\sqrt{M/3}$, so that square tiles of $A$, $B$ and $C$ fit together. But the traffic of (2.4) does not depend on the depth of the loaded pieces. Pieces of depth $b$ use $2b^2$ words. With depth 1, most of these words are free for a larger tile of $C$.
#
# **Predict** (guess). All matrices are $120 \times 120$. By what factor does the traffic *decrease* when $M$ grows from 120 to 480? And by what factor is it *larger* with the side $\lfloor\sqrt{M/3}\rfloor$ at $M = 120$?
# <!-- 120 \times 120 as input -->

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
# <details><summary>Both factors, and why they differ from the formula</summary>
#
# Four times the memory divides the traffic by 1.92, from 360,000 to 187,200 words. The factor is less than 2 because the $mn$ words of $C$ are written for any $M$. Tiles of side 6 move 590,400 words, which is 1.64 times the traffic of side 10; for larger matrices and larger $M$ the factor tends to $\sqrt 3 \approx 1.73$. With side 6 and pieces of depth 1, 72 of the 120 words are not used.
#
# </details>
#
# (`dry=True` runs a schedule on shapes alone, without values.)
#
# <!-- exercise 2C --> A square tile is good if the matrices are large in both directions. If $A$ has only a few rows, part of a square tile is out of bounds and wasted. Write the function that returns the best tile: among all $b_m \times b_n$ with a footprint of at most $M$, one with the least traffic by (2.4). `costs.matmul(m, n, k, bm=bm, bn=bn).total` evaluates the formula. $M$ is at least 3, so a tile of one word always fits. The sizes here are small enough to try every $b_m$. If you are stuck after ten minutes, run `hint("2C")`.
# <!-- 1.73, 72 = math.sqrt(3), 120 - costs.matmul(120, 120, 120, bm=6, bn=6).peak -->
# <!-- 1.64 = costs.matmul(120, 120, 120, bm=6, bn=6).total / costs.matmul(120, 120, 120, bm=10, bn=10).total -->


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


def compare_with_a_square(tile):
    print("your tile:", tile(8, 1024, 256, 1024))
    print(f"words with your tile:     {words_with(tile, 8, 1024, 256, 1024):,}")
    print(f"words with a square tile: {words_with(square_tile, 8, 1024, 256, 1024):,}")


attempt(compare_with_a_square, my_tile)

# %% [markdown]
# For a product with $m = 8$ rows, the best tile has all 8 rows, so $B$ is read once and 290,816 words move. The square tile of side 31 also reads $B$ once, but it has only 31 columns, where a tile of 8 rows can have 112. It moves 339,968 words.
#
# ## 2.6 A lower bound on the traffic
#
# Could a completely different schedule move fewer words? A *lower bound* answers this for all schedules at once.
#
# Here is its idea. While a tile of $b_m \times b_n$ sums is in fast memory, $b_m + b_n$ loaded words give $b_m b_n$ products. With at most $M$ sums this is at most $\sqrt M/2$ products per word, which a square tile nearly reaches. There are $mnk$ products, hence $2mnk/\sqrt M$ words. This argument holds only for schedules that keep a tile of $C$. By the theorem it does not help to keep parts of other arrays. Every schedule that forms each of the $mnk$ products (Strassen's method does not) moves
#
# $$ W \ge \max\left( \frac{2mnk}{\sqrt M} - 2M,\; mk + kn + mn \right). \tag{2.6} $$
# <!-- (2.6) W >= bounds.matmul(m, n, k, M) rounded down -->
#
# Smith, Lowery, Langou and van de Geijn proved the first term; the second is the compulsory traffic. The proof in lesson 05b splits a run into parts of $2M$ moved words and counts only complete parts, hence $-2M$. `bounds.matmul(m, n, k, M)`, bound `matmul`, evaluates both terms. Our machine has four registers in addition to its $M$ words, so its bound is the one at $M + 4$.
#
# **Predict** (guess). For $m = n = k = 1024$ and $M = 1024$: by what percentage does our schedule, with the best tile, exceed the bound?

# %% tags=["predict"]
predict("2.6", percent_above=10.0)  #> predict("2.6", percent_above=...)

# %%
n = 1024


def traffic_of_tiled(M):
    tiles = schedules.matmul_tiles(n, n, n, M)  # the library's answer to exercise 2C
    return run(schedules.matmul, M=M, dry=True, A=(n, n), B=(n, n), **tiles).ledger.total


for M in (64, 1024, 4096, 65_536, 262_144, 4_194_304):
    got, bound = traffic_of_tiled(M), bounds.matmul(n, n, n, M + 4)
    print(f"M = {M:>9,}: {got:>11,} words, bound {bound:>11,}, ratio {got / bound:.2f}")
measured("2.6", percent_above=100 * (traffic_of_tiled(1024) / bounds.matmul(n, n, n, 1028) - 1))

# %% [markdown]
# <details><summary>Ratio to the bound</summary>
#
# At $M = 1024$ the schedule is 6.5 percent above the bound, and no schedule is below it.
#
# </details>
#
# Towards $M = n^2/4 = 262{,}144$ the ratio grows to 1.71. There $2M$ is an eighth of $2mnk/\sqrt M$ and weakens the bound. The table does not show whether the schedule or the bound could be improved. At $M = 4{,}194{,}304$ everything fits and the ratio is 1.00.
#
# The chart has logarithmic axes, so $1/\sqrt M$ is a straight line of slope $-1/2$. To divide the words by 10, $M$ must grow by a factor of 100:
# <!-- n = 2**10 -->
# <!-- 6.5 = 10**2 * (costs.matmul(n, n, n, **schedules.matmul_tiles(n, n, n, n)).total / bounds.matmul(n, n, n, n + 4) - 1) -->
# <!-- 100 = 10**2 -->
# <!-- 1.00 = costs.matmul(n, n, n, **schedules.matmul_tiles(n, n, n, 4 * n**2)).total / bounds.matmul(n, n, n, 4 * n**2 + 4) -->

# %%
def three_square_tiles(M):
    b = max(1, isqrt(M // 3))
    return costs.matmul(n, n, n, bm=b, bn=b).total


memories = [4**p for p in range(2, 12)]
machine = {"tile of C in fast memory": [(M, traffic_of_tiled(M)) for M in memories]}
formulas = {
    "lower bound": [(M, bounds.matmul(n, n, n, M + 4)) for M in memories],
    "three square tiles": [(M, three_square_tiles(M)) for M in memories],
}
title = "Words moved by a matrix product, m = n = k = 1024"
on_the_bound = {"lower bound": "slope −1/2"}
axes = {"xlabel": "fast memory M (words)", "ylabel": "words moved"}
curve(machine, formulas, title=title, notes=on_the_bound, **axes)

# %% [markdown]
# The points are just above the bound where $M$ is large enough for a good tile and small compared with $n^2$. In this range the rule of three square tiles is parallel to them, higher by a factor of about 1.7. At the right end all three reach the compulsory traffic.
# <!-- 1.7 = math.sqrt(3) -->
#
# <!-- exercise 2D --> The bound (2.6) is for a product of two *different* matrices. For $G = AA^\top$ with $A$ of shape $(m, k)$, your `my_matmul` would read $A$ $2\lceil m/b \rceil$ times. But $G_{ij} = G_{ji}$, so half of the tiles need not be computed, and on the diagonal both pieces are the same. Write the schedule that moves
#
# $$ W = mk \left\lceil \frac mb \right\rceil + m^2 \quad \text{words, with the footprint } b^2 + 2b. \tag{2.7} $$
# <!-- (2.7) W = lesson02.half_of_the_tiles(m, k, b).total -->
# <!-- (2.7) footprint = lesson02.half_of_the_tiles(m, k, b).peak where b <= m -->
#
# Store both halves of $G$. This exercise is optional. Blocks are compared by their position: `i == j`, `j > i`. If you are stuck after twelve minutes, run `hint("2D")`.


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
# The symmetric schedule moves 1,280 words instead of 2,304. The bound (2.6) holds for two different matrices; $AA^\top$ has more structure, and its traffic can be below that bound.
#
# ## 2.7 Naive attention on the machine
#
# Attention is two matrix products with a softmax between them. Lesson 01 computed it step by step: $S = QK^\top/\sqrt d$, then $P = \mathrm{softmax}(S)$, then $O = PV$. The library's `naive` does this on the machine, with tiles chosen for $M$. Each step runs in a block such as `with m.phase("scores"):`, and the ledger keeps a total per phase.
#
# The scores phase keeps $B_r$ rows of $Q$, because the depth $d$ is small. It loads one row of $K$ at a time and stores the column of $B_r$ scores at once, so $B_r d + d + B_r \le M$. The output phase keeps $B_m$ full rows of $O$, as in section 2.4, so $B_m d + d + B_m \le M$. If a row of $N$ scores fits for the softmax, the closed form is
#
# $$ W = \underbrace{Nd + Nd\left\lceil \tfrac N{B_r} \right\rceil + N^2}_{\text{scores}} + \underbrace{2N^2}_{\text{softmax}} + \underbrace{N^2 + Nd\left\lceil \tfrac N{B_m} \right\rceil + Nd}_{\text{output}}. \tag{2.8} $$
# <!-- (2.8) W = costs.naive(N, d, Br=Br, Bc=Bc, Bm=Bm, Bn=d).total where N <= Bc -->
#
# $S$ is written and read, and $P$ is written and read, which gives $4N^2$ words.
#
# **Predict** (compute). For $N = 256$, $d = 32$, $M = 4096$ the tiles have $B_r = B_m = 123$ rows. What percentage of all words belongs to $S$ and $P$? And what is the ratio of the total to the compulsory $4Nd$ words?
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
# <details><summary>Arrays with the most traffic</summary>
#
# The schedule moves 327,680 words. 80 percent of them belong to $S$ and $P$, two arrays that are neither input nor output. The total is ten times the compulsory traffic.
#
# </details>
#
# The products themselves are not the problem. Each moves 98,304 words, and the lower bound is its compulsory traffic of 81,920, which includes storing $S$ (or loading $P$). But the softmax phase moves another 131,072 words only to read $S$ and write $P$.
#
# More fast memory does not help much as long as $S$ is written to slow memory, because the $4N^2$ words remain. They would disappear if a tile of scores were turned into weights and used while it is in fast memory. The obstacle is softmax, which seems to need a complete row of scores before the first weight. Lesson 03 removes it.
#
# ## 2.8 The machine on one page
#
# The model itself fits on one page. The next cell is a complete two-level machine in plain NumPy, for schedules that call `new`, `load`, `store`, `zeros`, `row_stats` and `blocks`. You can copy it as one file. Start with `load`, `store` and `new_tile`, which do all the counting. Then read how `Tile` sends each new result to `new_tile`. `RowStats` can wait until lesson 03.
# <!-- naive = schedules.naive.count(256, 32, 4096) -->
# <!-- 80 = 10**2 * sum(naive.reads[name] + naive.writes[name] for name in "SP") / naive.total -->

# %% name="machine-on-one-page"
"""A two-level memory machine on one page: it counts the words that a schedule loads and stores.

Slow memory has no limit. Fast memory holds tiles, at most M words in total. Only `load` and
`store` move words between them. A schedule computes with ufuncs of NumPy on tiles.

Not checked: plain NumPy arrays in a schedule, tiles used after they were freed, words loaded
before they were stored, and positions out of range. Not counted: new arrays that no ufunc makes
(`a.copy()`, `a[[0, 2]]`, `np.dot`). Needs only NumPy. Course iocourse, lesson 02, MIT licence.
"""

from collections import Counter, namedtuple

import numpy as np


class TwoLevelMachine:
    """Counts the words read and written per array, and the peak of the words in fast memory."""

    def __init__(self, M):
        self.M, self.reads, self.writes, self.peak = M, Counter(), Counter(), 0
        self.in_use = {}  # words of each tile in fast memory, by the id of the tile

    @property
    def moved(self):  # the total W
        return sum(self.reads.values()) + sum(self.writes.values())

    def run(self, schedule, **inputs):
        """Call the schedule with its arrays in slow memory; return the values of its result."""
        self.__init__(self.M)  # removes counts of earlier runs, and tiles of a run that failed
        for name, value in inputs.items():
            if isinstance(value, np.ndarray):
                inputs[name] = SlowArray(name, value.astype(float))
        return schedule(self, **inputs).values

    def new(self, name, shape):
        return SlowArray(name, np.full(shape, np.nan))  # NaN marks words that are never stored

    def load(self, array, rows, cols=None):
        tile = self.new_tile(array.part(rows, cols))
        self.reads[array.name] += tile.size  # after the line that fails if M is too small
        return tile

    def store(self, tile, array, rows, cols=None):
        part = array.part(rows, cols)
        if tile.shape != part.shape:  # NumPy would repeat a smaller tile
            raise ValueError(f"tile of shape {tile.shape}, but {array.name} needs {part.shape}")
        part[...] = tile
        self.writes[array.name] += part.size

    def new_tile(self, values):
        """Put a copy of the values into fast memory. Raise an error if M is too small."""
        used = sum(self.in_use.values()) + np.size(values)
        if used > self.M:
            raise MemoryError(f"{used} words needed in fast memory, but M = {self.M}")
        tile = np.array(values, dtype=float).view(Tile)
        tile.machine, self.in_use[id(tile)] = self, tile.size
        self.peak = max(self.peak, used)
        return tile

    def zeros(self, *sides):  # blocks, pairs, or numbers, which are lengths here
        shape = [n[1] - n[0] if isinstance(n, tuple) else n for n in sides]
        return self.new_tile(np.zeros(shape))

    def row_stats(self, rows):
        m, l = self.zeros(rows), self.zeros(rows)
        m[:] = -np.inf
        return RowStats(m, l)

    def blocks(self, n, size):
        """Yield the blocks that cover n rows; the last one may be smaller."""
        for start in range(0, n, size):
            stop = min(start + size, n)
            yield Block(start, stop, stop - start, start == 0, stop == n)


# Rows (or columns) start:stop; `first` and `last` are true for the ends of a loop (lesson 04).
Block = namedtuple("Block", "start stop size first last")


class SlowArray:
    """An array in slow memory. It has no operators, so it must be loaded before it is used."""

    def __init__(self, name, values):
        self.name, self.shape, self.values = name, values.shape, values

    def part(self, *sides):
        """Return a view of some rows and columns: writing to it changes slow memory."""
        index = []
        for side in sides[: len(self.shape)]:  # a vector has no columns
            if isinstance(side, tuple):  # a block or a pair (start, stop)
                side = slice(side[0], side[1])
            elif not isinstance(side, slice | None):  # the position of one row or column
                side = slice(side, side + 1)
            index.append(slice(None) if side is None else side)
        return self.values[tuple(index)]


class InFastMemory:
    """Base class of objects that a `with` statement frees at its end."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.free()


class Tile(InFastMemory, np.ndarray):
    """An array in fast memory. A new result uses words; a view or in-place update does not."""

    def __array_finalize__(self, parent):  # NumPy calls this for each new tile and each view
        self.machine = getattr(parent, "machine", None)  # a new tile gets it from new_tile

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        # NumPy calls this instead of computing: for a - b with the ufunc np.subtract and the
        # method "__call__", for a.sum() with np.add and "reduce", and for a -= b with out=(a,).
        compute = getattr(ufunc, method)
        inputs = [np.asarray(x) for x in inputs]  # with tiles, NumPy would call this again
        if out is None:
            return self.machine.new_tile(compute(*inputs, **options))
        compute(*inputs, out=np.asarray(out[0]), **options)  # writes to the words of out[0]
        return out[0]

    def add_matmul(self, a, b):
        """Add a @ b in place. In the model each entry is formed in a register, not counted."""
        np.asarray(self)[...] += np.asarray(a) @ np.asarray(b)

    def free(self):
        self.machine.in_use.pop(id(self), None)  # views and freed tiles are not in it

    __del__ = free  # Python calls it when no name refers to the tile any more


class RowStats(InFastMemory, namedtuple("RowStats", "m l")):
    """Online softmax (lesson 03): maximum m and sum l of each row of scores."""

    def free(self):
        self.m.free()
        self.l.free()

    def update(self, s, o=None):
        """Replace the scores s by exp(s - m) with the new maximum m; rescale the output o."""
        m, l, s = np.asarray(self.m), np.asarray(self.l), np.asarray(s)
        old_m = m.copy()  # not counted, because in the model each entry is updated in registers
        np.maximum(m, s.max(axis=1), out=m)
        factor = np.exp(old_m - m)
        s[...] = np.exp(s - m[:, None])
        l[:] = l * factor + s.sum(axis=1)
        if o is not None:
            np.asarray(o)[...] *= factor[:, None]

    def normalise(self, o):
        np.asarray(o)[...] /= np.asarray(self.l)[:, None]

# %%
def on_both_machines(matmul):
    library = run(matmul, M=24, A=A, B=B, bm=4, bn=4).ledger
    page = TwoLevelMachine(M=24)
    product = page.run(matmul, A=A, B=B, bm=4, bn=4)
    print("page:   ", dict(page.reads), dict(page.writes), "peak", page.peak)
    print("library:", library.reads, library.writes, "peak", library.peak)
    print("equal to A @ B:", np.allclose(product, A @ B))


attempt(on_both_machines, my_matmul)

# %% [markdown]
# Both machines count the same reads, writes and peak for your exercise 2B. (Remove other calls, such as `m.show`, or add them to the page; `help(Machine.show)` describes a call.) The library's machine has in addition:
#
# - errors for everything that the page does not check, each with a message like that of section 2.2;
# - *dry runs*, which use shapes only, so that large sizes take little time;
# - `slow`, `show`, `take` and `used`; a trace and totals per phase, for the figures;
# - ledgers that can be subtracted from each other and from closed forms;
# - masks, and other calls of later lessons.
#
# ## Misconceptions
#
# - **"Smaller tiles move fewer words."** In section 2.5 the tile of side 6 moved 590,400 words, side 10 moved 360,000 and side 20 moved 187,200.
# - **"The tile should be $\sqrt{M/3}$, so that three tiles fit."** In section 2.5 the traffic with that rule was 1.64 times the traffic with the largest tile of $C$ and thin pieces of $A$ and $B$.
# - **"A transpose or a slice is a copy."** In section 2.2 a view used 0 words, and so does every transpose in exercise 2D.
# - **"If everything fits in fast memory, there is no traffic."** In section 2.6 still 3,145,728 words move at $M = 4{,}194{,}304$, because inputs must be loaded and results stored.
#
# ## Take-away
#
# - The model counts words between two memories: $W$ = loaded + stored, with at most $M$ words in fast memory. A closed form predicts both to the word.
# - Traffic falls if each loaded word is used with many partners. Keep a tile of the result in fast memory and load thin pieces of the inputs. With $b^2 + 2b \le M$ this gives $W \approx 2mnk/\sqrt M$.
# - No schedule of the matrix product can be much better. The lower bound is $2mnk/\sqrt M - 2M$, and at $M = 1024$ we measured a ratio of 1.06.
# - Naive attention moves $4N^2$ words for two arrays that are neither input nor output.
#
# **In the literature's words**: the machine is the two-level memory model of Hong and Kung, $W$ is its I/O complexity or memory traffic, tiling is also called blocking, and a schedule that keeps its tile of $C$ is output-stationary. The FlashAttention paper counts naive attention as $\Theta(Nd + N^2)$ HBM accesses, that is, up to a constant factor $Nd + N^2$ words of slow memory.
#
# ## References
#
# - T. M. Smith, B. Lowery, J. Langou, R. A. van de Geijn, *A Tight I/O Lower Bound for Matrix Multiplication*, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017): the first term of (2.6), and the schedule of section 2.4.
# - J.-W. Hong, H. T. Kung, *I/O complexity: the red-blue pebble game*, STOC 1981. The two-level model, and the first bound of order $mnk/\sqrt M$.
# - O. Beaumont, L. Eyraud-Dubois, M. Vérité, J. Langou, *I/O-Optimal Algorithms for Symmetric Linear Algebra Kernels*, [arXiv 2202.10217](https://arxiv.org/abs/2202.10217): for $AA^\top$ even $m^2k/\sqrt{2M}$ is possible, with triangular tiles.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré, *FlashAttention*, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135): the traffic of naive attention and of the schedules of lesson 04.
#
# **What comes next.** <!-- next -->
# <!-- 1.64 = costs.matmul(120, 120, 120, bm=6, bn=6).total / costs.matmul(120, 120, 120, bm=10, bn=10).total -->
# <!-- 1.06 = costs.matmul(n, n, n, **schedules.matmul_tiles(n, n, n, n)).total / bounds.matmul(n, n, n, n + 4) -->
