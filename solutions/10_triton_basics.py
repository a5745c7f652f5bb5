# %% [markdown]
# # 10 Triton basics
#
# The machine of lesson 02 has one worker. A GPU runs thousands of threads. You write a *kernel* for it: one function that many *programs* run, each on its own block of the data. In this lesson you write a transposed copy, a row softmax and a matrix product in Triton, and count the words that they move.
#
# **What you will learn**
#
# - to divide a problem among programs, and to mask what is out of bounds;
# - to compute the offset of an element from the strides of any view;
# - to write kernels for sizes that are not multiples of the tile;
# - to compare the traffic of a kernel with a formula and a lower bound;
# - to state what the interpreter, the compiler and a GPU each show.
#
# **Prerequisites**: lesson 02 (matrix product, formulas (2.4) and (2.6)) and lesson 03 (online softmax); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# No GPU is needed. On a computer with a GPU, `iocourse gpu 10D` compiles your kernel and times it. Triton needs Linux, as in Colab; without it, each cell that needs it prints what to install.

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact
from iocourse.course import attempt, check, explore, hint, measured, predict

# %% [markdown]
# ## 10.1 A first kernel
#
# The kernel below copies $n$ words. Program $p$ copies block $p$, which has `BLOCK` words. Each position in a block is a *lane*. The compiler divides the lanes of a program among its threads, 128 if the launch sets no other number. In the figure below, four lanes of the last block are *out of bounds*: they have no word. A *mask* is True in the lanes that have a word. A lane whose mask is False is *masked*: it loads nothing and stores nothing.
#
# **Predict** (compute). $n = 1000$ and `BLOCK` = 128. How many programs copy the words, and how many of their lanes are masked?
# <!-- 128 as input -->

# %%
explore.program_grid(1, 20, 1, 8, title="20 words in blocks of 8, one program per block")

# %% tags=["given"]
import os

os.environ["TRITON_INTERPRET"] = "1"  # interpret and count, even if there is a GPU
from iocourse import gpu, traffic
from iocourse.course import TritonMissing, missing_package

try:
    from iocourse import kernels

    assert kernels.INTERPRETED, "triton was imported earlier: restart the notebook"
    import torch
    import triton
    import triton.language as tl
except TritonMissing as missing:
    kernels = torch = triton = tl = missing_package(missing)
else:
    print("Kernels run in Triton's interpreter here, and every word they move is counted.")

# %%
@triton.jit
def copy_words_kernel(X, Y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = offsets < n                                        # (BLOCK,)
    x = tl.load(X + offsets, mask=mask)
    tl.store(Y + offsets, x, mask=mask)


def copied_words(X, BLOCK=128):
    Y = torch.empty_like(X)
    grid = (triton.cdiv(len(X), BLOCK),)  # one program per block, rounded up
    copy_words_kernel[grid](X, Y, len(X), BLOCK=BLOCK)
    return Y


# %% tags=["predict"]
predict("10.1", programs=8, masked=24)  #> predict("10.1", programs=..., masked=...)

# %%
X = torch.arange(1000.0)
with traffic.count() as ledger:
    Y = copied_words(X)
print(ledger)
print("correct:", bool((Y == X).all()))
programs = triton.cdiv(1000, 128)
measured("10.1", programs=programs, masked=programs * 128 - ledger.read)

# %% [markdown]
# <details><summary>Programs and masked lanes</summary>
#
# 8 programs have 1,024 lanes, and 24 of them are masked. The kernel reads 1,000 words and writes 1,000: $W = 2n$ for every block size, because a masked lane has no traffic.
#
# </details>
#
# All programs run the same function. They differ in their number, `tl.program_id(0)`, which selects a block of $B$ = `BLOCK` words:
#
# $$ \text{program } p \text{ owns the words } pB, \; pB + 1, \; \dots, \; pB + B - 1, \qquad p = 0, \dots, \lceil n/B \rceil - 1 . \tag{10.1} $$
# <!-- (10.1) not evaluated: definition -->
#
# On a GPU they run in any order, many at the same time, so a program must not depend on what another one writes.
#
# Triton compiles a function under `@triton.jit` for a GPU, or *interprets* it: the interpreter runs the programs one after the other and computes each line with NumPy. This lesson uses the interpreter, because its loads and stores can be counted. The same program in NumPy:
# <!-- 8, 1,024, 24 = len(range(0, 1000, 128)), 8 * 128, 8 * 128 - 1000 -->

# %%
def copy_program(p, X, Y, n, BLOCK):
    offsets = p * BLOCK + np.arange(BLOCK)
    mask = offsets < n
    x = X[offsets[mask]]
    Y[offsets[mask]] = x


in_numpy, copy = np.arange(1000.0), np.zeros(1000)
for p in np.random.default_rng(10).permutation(8):  # the order of the programs does not matter
    copy_program(p, in_numpy, copy, 1000, 128)
print("correct:", bool((copy == in_numpy).all()))

# %% [markdown]
# | NumPy | Triton | meaning |
# | --- | --- | --- |
# | the argument `p` | `tl.program_id(0)` | the number of the program; the launcher sets how many there are |
# | `np.arange(BLOCK)` | `tl.arange(0, BLOCK)` | one integer per lane; `BLOCK` must be a power of two |
# | `X[offsets[mask]]` | `tl.load(X + offsets, mask=mask)` | `X` is a *pointer*, the address of the first word; `X + offsets` is a block of pointers |
# | `Y[offsets[mask]] = x` | `tl.store(Y + offsets, x, mask=mask)` | each lane stores its value at its pointer |
# | a number | `BLOCK: tl.constexpr` | a number that the compiler knows, as it must know every block size |
#
# `tl.load` returns a value for every lane. `other=0.0` sets it in masked lanes; without `other` it is undefined there. The copy needs no `other`, because it does not store masked lanes.
#
# `copied_words` is the *launcher*. It runs on the host: it allocates the result, chooses the *grid* (a tuple with the number of programs along each axis), and launches them by `kernel[grid](X, Y, ...)`. A tensor becomes a pointer, so sizes and strides are separate arguments. `triton.cdiv(a, b)` is $\lceil a/b \rceil$.
# <!-- 0.0 as input -->
#
# ## 10.2 Offsets and strides
#
# Memory is a sequence of words, and a kernel must compute where element $(i, j)$ of a matrix is stored. The rule needs two *strides*: the number of words between a row and the next, and between a column and the next. The *offset* is counted from the word at the pointer:
#
# $$ \text{offset of } (i, j) = i\, s_0 + j\, s_1 . \tag{10.2} $$
# <!-- (10.2) not evaluated: definition -->
#
# A $5 \times 12$ matrix that is stored row by row has the strides $(12, 1)$. A view uses the same memory with another pointer or other strides. The columns 2 to 8 of that matrix start at word 2 and have the strides $(12, 1)$. Its transpose has the strides $(1, 12)$.
#
# **Predict** (compute). The matrix is stored in the words 0 to 59. In which word is element $(3, 4)$ of the matrix, of its columns 2 to 8, and of its transpose?
# <!-- 5 \times 12 as input -->

# %% tags=["predict"]
predict("10.2", matrix=40, columns=42, transpose=51)  #> predict("10.2", matrix=..., columns=..., transpose=...)

# %%
numbered = np.arange(60).reshape(5, 12)  # each word holds its own number
views = {"matrix": numbered, "columns": numbered[:, 2:9], "transpose": numbered.T}
for name, view in views.items():
    strides = tuple(step // view.itemsize for step in view.strides)  # NumPy's are in bytes
    print(f"{name:9} {view.shape!s:8} pointer {view[0, 0]}, strides {strides!s:7} "
          f"(3, 4) in word {view[3, 4]}")
measured("10.2", **{name: int(view[3, 4]) for name, view in views.items()})

# %% [markdown]
# <details><summary>Element (3, 4) of three views</summary>
#
# $3 \cdot 12 + 4 = 40$ in the matrix, two words later in the slice, and $3 + 4 \cdot 12 = 51$ in the transpose. The number of columns is not $s_0$ in the slice and the transpose.
#
# </details>
#
# A block of a matrix is a tile. Program $(p, q)$ owns the tile of $b_m$ rows and $b_n$ columns that starts at row $p\,b_m$ and column $q\,b_n$. One sum gives all offsets of a tile: the rows as a column of shape $(b_m, 1)$ and the columns as a row of shape $(1, b_n)$ broadcast to $(b_m, b_n)$.
#
# <!-- exercise 10A --> Return the offsets of all elements of a tile, counted from element $(0, 0)$ of the matrix, and the mask, as NumPy arrays. A tile can be out of bounds in rows, columns or both. The offsets of masked lanes are not judged. Example: a $5 \times 12$ matrix in tiles of $4 \times 8$; program $(1, 1)$ owns four words, with the offsets 56 to 59. If you are stuck after five minutes, run `hint("10A")` in a new cell.
# <!-- 56, 59 = 4 * 12 + 8, 4 * 12 + 11 -->
# <!-- 5 \times 12, 4 \times 8 as input -->

# %% [raw] name="about-10A"
# title = "Offsets of a tile"
# difficulty = 2
# importance = 5
# minutes = 8
# hints = [
#   "Which row of the matrix is row a of the tile of program (p, q)? Which column is its column b?",
#   "The rows of a tile are BM consecutive numbers from p times BM. Give them the shape (BM, 1), and the columns the shape (1, BN); sums and comparisons then broadcast to (BM, BN).",
#   "Offsets: rows times s0 plus columns times s1, formula (10.2). Mask: row below rows and column below columns, combined with &.",
# ]

# %% tags=["exercise"] name="ex-10A"
def my_tile(p, q, rows, columns, s0, s1, BM, BN):
    """Return the offsets and the mask of the tile that program (p, q) owns.

    rows, columns: of the matrix. s0, s1: its strides in words. BM, BN: sizes of a tile.
    Two arrays (BM, BN): integers, and True where the element is within bounds.
    """
    ### BEGIN SOLUTION rows as a column, columns as a row
    i = p * BM + np.arange(BM)[:, None]  # (BM, 1)
    j = q * BN + np.arange(BN)[None, :]  # (1, BN)
    return i * s0 + j * s1, (i < rows) & (j < columns)
    ### END SOLUTION

# %% tags=["check"] name="check-10A"
check("10A", my_tile)

# %% [markdown]
# ## 10.3 A kernel on a grid of two axes
#
# The figure shows a matrix of 7,000 words in tiles of $32 \times 32$. The grid has two axes and $4 \times 3 = 12$ programs with 12,288 lanes, of which 5,288 are masked. In the kernel below, $(p, q)$ is `tl.program_id(0)` and `tl.program_id(1)`, and the offsets are those of 10A with $s_1 = 1$. (`X.stride(0)` of a torch tensor is in words.)
#
# `traffic.count()` counts the loads and stores of each lane, under the names of the kernel's parameters. The ledger also has bytes: 4 per word in float32, 2 in float16.
#
# <!-- 32 \times 32 as input -->
# <!-- 7,000 = 100 * 70 -->
# <!-- 4 \times 3, 12 as output -->
# <!-- 12,288 = 12 * 32 * 32 -->

# %%
explore.program_grid(100, 70, 32, 32, title="Tiles of 32 x 32, one program per tile")

# %%
@triton.jit
def copy_kernel(X, Y, rows, columns, s_x, s_y, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)         # (BM,)
    j = tl.program_id(1) * BN + tl.arange(0, BN)         # (BN,)
    mask = (i[:, None] < rows) & (j[None, :] < columns)  # (BM, BN)
    tile = tl.load(X + i[:, None] * s_x + j[None, :], mask=mask)
    tl.store(Y + i[:, None] * s_y + j[None, :], tile, mask=mask)


def copied(X, BM=32, BN=32):
    rows, columns = X.shape
    Y = X.new_empty(rows, columns)
    grid = (triton.cdiv(rows, BM), triton.cdiv(columns, BN))
    copy_kernel[grid](X, Y, rows, columns, X.stride(0), Y.stride(0), BM=BM, BN=BN)
    return Y


# %%
rng = np.random.default_rng(10)
large = torch.from_numpy(rng.standard_normal((100, 96), dtype=np.float32))
X = large[:, 10:80]
with traffic.count() as ledger:
    Y = copied(X)
print(ledger)
print("correct:", bool((Y == X).all()))
with traffic.count() as half:
    copied(X.half())
print(f"in float16: {half.total:,} words, {half.bytes:,} bytes")

# %% [markdown]
# The copy moves 14,000 words, 56,000 bytes, and half of these bytes in float16.
#
# ## 10.4 A missing mask
#
# Without a mask, a GPU reads or overwrites the memory behind the array, or stops with an illegal address. While traffic is counted, an access outside all arrays raises an error:
#
# <!-- 14,000, 56,000 = 2 * np.zeros((100, 70)).size, 2 * np.zeros((100, 70), np.float32).nbytes -->

# %%
@triton.jit
def unmasked_kernel(X, Y, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + offsets, tl.load(X + offsets))


def copied_unmasked(X):
    Y = torch.zeros_like(X)
    try:
        with traffic.count() as ledger:
            unmasked_kernel[(triton.cdiv(len(X), 64),)](X, Y, BLOCK=64)
    except triton.runtime.errors.InterpreterError as error:
        return type(error.__cause__).__name__
    return f"{ledger.total} words moved"


for length in (128, 100):
    print(length, "words:", copied_unmasked(torch.ones(length)))


# %% [markdown]
# 128 words fill two blocks. With 100 words, 28 lanes of the second program are out of bounds, and the load raises `OutsideEveryArray`. This does not find every missing mask: in a matrix, a lane past the end of its row is often inside the next row.
#
# <!-- exercise 10B --> Write the kernel; the launcher is given. `X` may be any view, so use both of its strides. `Y` is new and stored row by row. Load the elements $(i, j)$ of one tile. At which offset of `Y` does element $(i, j)$ belong? The check uses ragged sizes, slices and transposes, expects $2 \cdot \text{rows} \cdot \text{columns}$ words, and requires that each program store part of the result. During a check, torch may allocate and view tensors, but not copy or compute, and a masked lane without `other` is NaN. If you are stuck after six minutes, run `hint("10B")` in a new cell.
# <!-- 28 = 128 - 100 -->

# %% [raw] name="about-10B"
# title = "A transposed copy"
# difficulty = 2
# importance = 4
# minutes = 10
# hints = [
#   "Start from copy_kernel. Which of its lines depend on the two strides of X, and which on the layout of Y?",
#   "Element (i, j) of X is element (j, i) of Y, and a row of Y is as long as X has rows. You do not need to transpose the tile, only the pointers of the store.",
#   "Load from i times s0 plus j times s1, with i as a column and j as a row. Store to j times rows plus i, with the same shapes and the same mask. Both the load and the store need the mask.",
# ]

# %% tags=["exercise"] name="ex-10B"
@triton.jit
def my_transpose_kernel(X, Y, rows, columns, s0, s1, BM: tl.constexpr, BN: tl.constexpr):
    """Program (p, q) copies one tile (BM, BN) of X, transposed, to Y.

    X: pointer to (rows, columns) with strides s0, s1. Y: to (columns, rows), row by row.
    """
    ### BEGIN SOLUTION load a tile of X, store its element (i, j) as element (j, i) of Y
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (i[:, None] < rows) & (j[None, :] < columns)
    tile = tl.load(X + i[:, None] * s0 + j[None, :] * s1, mask=mask)
    tl.store(Y + j[None, :] * rows + i[:, None], tile, mask=mask)
    ### END SOLUTION


def my_transpose(X, BM, BN):
    """The transpose of X as a new tensor. BM, BN: powers of two."""
    rows, columns = X.shape
    Y = X.new_empty(columns, rows)
    grid = (triton.cdiv(rows, BM), triton.cdiv(columns, BN))
    my_transpose_kernel[grid](X, Y, rows, columns, X.stride(0), X.stride(1), BM=BM, BN=BN)
    return Y

# %% tags=["check"] name="check-10B"
check("10B", my_transpose)

# %% [markdown]
# The transpose moves as many words as the copy, but a GPU loads and stores *sectors* of 32 bytes. In the copy, neighbouring lanes use all bytes of a sector. In the transpose, neighbours in a row of `X` are far apart in `Y`, so lanes in that order would store one word per sector. The compiler therefore divides the lanes among the threads along rows of `X` for the load and along rows of `Y` for the store. In between, the threads exchange the tile in *shared memory* (section 10.7). This requests no more words.
#
# ## 10.5 Softmax: one program per row
#
# The block is one row, rounded up to a power of two. The masked lanes must change neither the maximum nor the sum, so `other` is $-\infty$, and $e^{-\infty} = 0$.
# <!-- 32 from https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/ -->

# %%
@triton.jit
def softmax_kernel(X, Y, n, s_x, s_y, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)  # (BLOCK,)
    s = tl.load(X + row * s_x + j, mask=j < n, other=-float("inf"))
    e = tl.exp(s - tl.max(s, axis=0))
    tl.store(Y + row * s_y + j, e / tl.sum(e, axis=0), mask=j < n)


def row_softmax(X):
    rows, n = X.shape
    Y = torch.empty_like(X)
    BLOCK = triton.next_power_of_2(n)
    softmax_kernel[(rows,)](X, Y, n, X.stride(0), Y.stride(0), BLOCK=BLOCK)
    return Y


S = torch.from_numpy(3 * rng.standard_normal((64, 300), dtype=np.float32))
with traffic.count() as ledger:
    P = row_softmax(S)
print("correct:", np.allclose(P, exact.softmax(S.double().numpy()), atol=1e-6))
print(f"{triton.next_power_of_2(300)} lanes per row, {ledger.total:,} words")

# %% [markdown]
# The block of each row has 512 lanes, 212 of them masked. The kernel moves 38,400 words, the compulsory traffic. The three loops of section 3.1 would move $4mn = 76{,}800$ words. This kernel loads a complete row once and keeps it: the row *fits* in fast memory.
#
# A row of $2^{18}$ numbers does not fit: a processor core of an H200 has 123,648 words of fast memory (section 10.7). Such a row is read in pieces, and twice, because no weight is known before the last score. The first pass computes the maximum and the sum by the online softmax of lesson 03, the second the weights. For $m$ rows of $n$ numbers (in the code, `m` is the running maximum),
#
# $$ W = \underbrace{2mn}_{\text{reads}} + mn = 3mn . \tag{10.3} $$
# <!-- (10.3) W = m * (softmax.reads["S"] + softmax.writes["P"]) // n with softmax = costs.naive(n, 1, Br=1, Bc=1, Bm=1, Bn=1) where n > 1 -->
#
# <!-- exercise 10C --> Write the kernel of (10.3) for rows of any length: two passes over pieces of `BLOCK` numbers. (One row of the check is longer than the $2^{20}$ lanes that Triton allows in a block. A row that is not longer than `BLOCK` may be read once.) Loop over the pieces with `range(0, n, BLOCK)`. Start with `m = -float("inf")` and `l = 0.0`. `tl.maximum(a, b)` compares two numbers; `tl.max(s, axis=0)` and `tl.sum(e, axis=0)` reduce a piece to one number. The rows of `X` may have a stride larger than $n$; `Y` is stored row by row. Some rows are so far below zero that no finite number can replace $-\infty$, neither as the first maximum nor as `other`. During a check, a masked lane without `other` is NaN, also in a maximum, and no loop iteration may be completely out of bounds. If you are stuck after seven minutes, run `hint("10C")` in a new cell.
# <!-- 212, 76{,}800 = 512 - 300, 4 * 64 * 300 -->
# <!-- 123,648 = CHIPS[90].registers + CHIPS[90].shared_bytes / 4 -->
# <!-- "A row of $2^{18}$ numbers does not fit" if 2**18 > CHIPS[90].registers + CHIPS[90].shared_bytes / 4 -->

# %% [raw] name="about-10C"
# title = "Softmax of long rows"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "Which two numbers of a row are needed before its first weight can be stored? How did lesson 03 compute both in one pass?",
#   "First loop: load a piece, compute the new maximum, rescale the old sum with exp(m - m_new), add the sum of exp(s - m_new). Second loop: load the same piece again and store exp(s - m) / l.",
#   "Load with other equal to minus infinity, so that out-of-bounds lanes change neither the maximum nor the sum. Rescale the old sum before you add the new terms, and update m last. Row p of X starts p times s_x elements from the pointer, row p of Y p times n.",
# ]

# %% tags=["exercise"] name="ex-10C"
@triton.jit
def my_long_softmax_kernel(X, Y, n, s_x, BLOCK: tl.constexpr):
    """Program p writes the softmax of row p of X to row p of Y.

    X: pointer to rows of n numbers, s_x words apart. Y: to rows of n numbers, row by row.
    """
    row = tl.program_id(0)
    ### BEGIN SOLUTION maximum and sum in one pass, weights in another
    m, l = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        s = tl.load(X + row * s_x + j, mask=j < n, other=-float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        l = l * tl.exp(m - m_new) + tl.sum(tl.exp(s - m_new), axis=0)
        m = m_new
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        s = tl.load(X + row * s_x + j, mask=j < n, other=-float("inf"))
        tl.store(Y + row * n + j, tl.exp(s - m) / l, mask=j < n)
    ### END SOLUTION


def my_long_softmax(X, BLOCK):
    """The softmax of each row of X (rows, n), as a new tensor. BLOCK: a power of two."""
    rows, n = X.shape
    Y = X.new_empty(rows, n)
    my_long_softmax_kernel[(rows,)](X, Y, n, X.stride(0), BLOCK=BLOCK)
    return Y

# %% tags=["check"] name="check-10C"
check("10C", my_long_softmax)

# %%
def softmax_words(launcher):
    for BLOCK in (32, 128, 512):
        with traffic.count() as ledger:
            launcher(S, BLOCK)
        print(f"BLOCK = {BLOCK:3}: {ledger.read:,} words read, {ledger.written:,} written")


attempt(softmax_words, my_long_softmax)

# %% [markdown]
# The kernel reads 38,400 words and writes 19,200 for every block size: $3mn$, between $2mn$ for a row that fits and $4mn$ for three loops. Attention does not need the weights, so its kernel in lesson 11 has no second pass.
#
# ## 10.6 The matrix product
#
# Program $(p, q)$ computes one tile of $C$. It loads $b_k$ columns of $A$ and $b_k$ rows of $B$ at a time:
#
# | | **Tiled product**, program $(p, q)$. Resident: $c$. Streamed: $a$, $b$. |
# | --- | :--- |
# | 1 | $c \leftarrow 0$, a tile $(b_m, b_n)$ in float32 |
# | 2 | **for** each piece of $b_k$ of the $k$ inner indices |
# | 3 | &emsp; load $a$ $(b_m, b_k)$ from $A$: rows of the program, columns of the piece |
# | 4 | &emsp; load $b$ $(b_k, b_n)$ from $B$: rows of the piece, columns of the program |
# | 5 | &emsp; $c \leftarrow c + ab$ |
# | 6 | store $c$ to $C$ |
#
# **Predict** (compute). $m = 100$, $n = 90$, $k = 70$, tiles of $32 \times 32$. How many words are moved with pieces of depth 16, and of depth 32?
# <!-- 32 \times 32 as input -->

# %% tags=["predict"]
predict("10.6", depth_16=55200, depth_32=55200)  #> predict("10.6", depth_16=..., depth_32=...)

# %%
m, n, k = 100, 90, 70
down, across = -(-m // 32), -(-n // 32)


def requested(BK):
    """The words that the programs load and store, piece by piece, without masked lanes."""
    pieces = [min(BK, k - start) for start in range(0, k, BK)]
    read_A, read_B = across * m * sum(pieces), down * n * sum(pieces)
    print(f"depth {BK}: {len(pieces)} pieces, "
          f"{read_A:,} words of A, {read_B:,} of B, {m * n:,} of C")
    return read_A + read_B + m * n


measured("10.6", depth_16=requested(16), depth_32=requested(32))

# %% [markdown]
# <details><summary>Depth and traffic</summary>
#
# 55,200 words both times. There are 4 rows and 3 columns of tiles, so $A$ is read three times and $B$ four times, in pieces of any depth. As in (2.4), $b_k$ does not appear in
#
# $$ W = mk\lceil n/b_n\rceil + kn\lceil m/b_m\rceil + mn . \tag{10.4} $$
# <!-- (10.4) W = costs.matmul(m, n, k, bm=bm, bn=bn).total -->
#
# </details>
#
# `tl.dot(a, b)` multiplies a tile $(b_m, b_k)$ by a tile $(b_k, b_n)$. Pass `input_precision="ieee"`, which multiplies float32 in full precision. (Without it Triton may round float32 inputs to *TF32*, 11 significant bits, for the tensor cores of section 10.8.) Sums are in float32 for every input type: `tl.zeros((BM, BN), dtype=tl.float32)`.
#
# <!-- exercise 10D --> Write the kernel *and* the grid. The row strides of `A` and `B` may be larger than their rows; `C` is new and stored row by row. Choose the mask of each array, and `other` for the two loads: what does a lane that is out of bounds in $k$ add to a sum? No loop iteration may be completely out of bounds. The words must be those of (10.4). If you are stuck after ten minutes, run `hint("10D")` in a new cell.

# %% [raw] name="about-10D"
# title = "The matrix product with tiles"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "Compare the algorithm of section 10.6 with copy_kernel: which lines can you keep, and which are new?",
#   "A program computes BM rows and BN columns of C, so the grid counts tiles of C along both axes; k has no axis. The sums start at zero in float32 and grow in a loop over pieces of depth BK.",
#   "Three masks: for A the row is below m and k is in bounds, for B k is in bounds and the column is below n, for C the row is below m and the column below n. Both loads need other=0.0, otherwise undefined values of masked lanes enter the sums.",
# ]

# %% tags=["exercise"] name="ex-10D"
@triton.jit
def my_product_kernel(A, B, C, m, n, k, s_a, s_b,
                      BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Program (p, q) computes one tile (BM, BN) of C = AB.

    A: pointer to (m, k), rows s_a words apart. B: to (k, n), rows s_b words apart.
    C: to (m, n), row by row. BK: depth of the pieces.
    """
    ### BEGIN SOLUTION a tile of sums, a loop over pieces, one store
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]  # (BM, 1)
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]  # (1, BN)
    c = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        x = start + tl.arange(0, BK)
        along, down = x[None, :], x[:, None]
        a = tl.load(A + i * s_a + along, mask=(i < m) & (along < k), other=0.0)  # (BM, BK)
        b = tl.load(B + down * s_b + j, mask=(down < k) & (j < n), other=0.0)    # (BK, BN)
        c += tl.dot(a, b, input_precision="ieee")
    tl.store(C + i * n + j, c, mask=(i < m) & (j < n))
    ### END SOLUTION


def my_product(A, B, BM, BN, BK):
    """C = AB as a new tensor (m, n). BM, BN, BK: powers of two, at least 16."""
    (m, k), n = A.shape, B.shape[1]
    C = A.new_empty(m, n)
    ### BEGIN SOLUTION how many programs are there along each axis?
    grid = (triton.cdiv(m, BM), triton.cdiv(n, BN))
    ### END SOLUTION
    my_product_kernel[grid](A, B, C, m, n, k, A.stride(0), B.stride(0), BM=BM, BN=BN, BK=BK)
    return C

# %% tags=["check"] name="check-10D"
check("10D", my_product)

# %%
A = torch.from_numpy(rng.standard_normal((m, k), dtype=np.float32))
B = torch.from_numpy(rng.standard_normal((k, n), dtype=np.float32))


def product_words(launcher):
    with traffic.count() as ledger:
        launcher(A, B, 32, 32, 16)
    print(ledger)


attempt(product_words, my_product)

# %% [markdown]
# Below *Solved*, the line *Compiled* is the compiler's report for an H200 (section 10.8). Your ledger equals (10.4). The 12 programs move the words of the schedule for one worker, because no tile of $C$ needs another one.
#
# ## 10.7 Comparison with the lower bound
#
# Every schedule moves at least $2mnk/\sqrt M - 2M$ words (2.6). For a kernel, $M$ is what one program holds, a tile of sums and two pieces:
#
# $$ M = b_m b_n + b_k(b_m + b_n) . \tag{10.5} $$
# <!-- (10.5) M = costs.matmul(bm, bn, bk, bm=bm, bn=bn).total -->
#
# Run one after the other, the programs are a schedule that never holds more than $M$ words (offsets and counters aside), so it obeys the bound. On a GPU the sums are in *registers*, the private words of a thread, and the pieces are in *shared memory*, which all threads of a program share. Both belong to an *SM*, the processor core that runs the program:
# <!-- 12 = len(range(0, 100, 32)) * len(range(0, 90, 32)) -->
# <!-- ($2mnk/\sqrt M - 2M$) = bounds.matmul(m, n, k, M) rounded down where bounds.matmul(m, n, k, M) > m * n + m * k + n * k -->

# %%
for arch in (75, 80, 90):
    chip = gpu.chip_of(arch)
    print(f"{chip.name:15} {chip.registers:,} registers, "
          f"{chip.shared_bytes // 1024:3} KB of shared memory")

# %% [markdown]
# A register holds one word of float32. On the H200, registers and shared memory are $65{,}536 + 227 \cdot 1024 / 4 = 123{,}648$ words per SM, which the programs on it share, and a thread has at most 255 registers. A tile of $128 \times 128$ sums uses a quarter of the registers. $M$ in (10.5) is the least that a program can hold: to load pieces ahead of their use, the compiler keeps two or three copies of them (section 10.8).
#
# **Predict** (compute). All matrices are $1024 \times 1024$, and the tile is $128 \times 128$. What is the ratio of the kernel's traffic to the bound with pieces of depth 32, and with pieces of depth 1, as in lesson 02?
# <!-- 128 \times 128, 1024 \times 1024 as input -->
# <!-- ratio = lambda depth: costs.matmul(1024, 1024, 1024, bm=128, bn=128).total / bounds.matmul(1024, 1024, 1024, 128**2 + 2 * depth * 128) -->
# <!-- 255 = gpu.chips.REGISTERS_A_THREAD -->
# <!-- "a quarter of the registers" if 4 * 128**2 == CHIPS[90].registers -->
# <!-- 65{,}536, 227, 123{,}648 = CHIPS[90].registers, CHIPS[90].shared_bytes / 2**10, CHIPS[90].registers + CHIPS[90].shared_bytes / 4 -->

# %% tags=["predict"]
predict("10.7", depth_32=1.3, depth_1=1.1)  #> predict("10.7", depth_32=..., depth_1=...)

# %%
n = 1024


def footprint(side, BK):
    return side * side + 2 * BK * side


def moved(side):
    return costs.matmul(n, n, n, bm=side, bn=side).total


for BK in (32, 16, 1):
    M = footprint(128, BK)
    print(f"depth {BK:2}: M = {M:,}, {moved(128):,} words, bound {bounds.matmul(n, n, n, M):,}")
sides = [16, 32, 64, 128, 256]
ratios = {f"depth_{BK}": moved(128) / bounds.matmul(n, n, n, footprint(128, BK))
          for BK in (32, 1)}
measured("10.7", **ratios)
explore.curve(
    {f"pieces of depth {BK}": [(footprint(side, BK), moved(side)) for side in sides]
     for BK in (16, 64)},
    {"lower bound": [(M, bounds.matmul(n, n, n, M)) for M in (2**p for p in range(9, 18))]},
    title="Words of the product kernel, m = n = k = 1024",
    xlabel="words that a program holds, M",
    ylabel="words moved",
)

# %% [markdown]
# <details><summary>The cost of deep pieces</summary>
#
# The ratios are 1.306 and 1.073. The traffic is the same, but deep pieces use memory in which a larger tile would move fewer words. But `tl.dot` needs an inner size of at least 16 (section 10.8).
#
# </details>
# <!-- 1.306, 1.073 = ratio(32), ratio(1) -->
#
# The figure has tiles from side 16 to side 256. Twice the side halves the traffic of $A$ and $B$ and needs nearly four times the memory where the sums are most of $M$, so the points follow the slope $1/\sqrt M$ of the bound.
#
# The ledger does not depend on the order of the programs. But all SMs share one more fast memory, the *L2 cache*, and programs that run at the same time can share rows of $A$ there. Suppose 32 programs, a *wave*, run at the same time on a grid of $16 \times 16$ tiles. A *strip* is all rows of $A$, or all columns of $B$, that one tile needs. A wave in row order covers two rows of tiles and needs $2 + 16 = 18$ strips, so the eight waves need 144.
#
# **Predict** (compute). How many strips do the eight waves need if each covers 4 rows and 8 columns of tiles?
# <!-- 32, 16 \times 16 as input -->

# %%
def by_rows(pid):
    return divmod(pid, 16)


def in_groups(pid, height=4):  # down the rows of a group first, then to the next column
    group, rest = divmod(pid, height * 16)
    return group * height + rest % height, rest // height


def strips(order):
    """Strips of A and of B that waves of 32 programs need, all eight waves together."""
    waves = [[order(pid) for pid in range(start, start + 32)] for start in range(0, 256, 32)]
    return sum(len({i for i, _ in wave}) + len({j for _, j in wave}) for wave in waves)


# %% tags=["predict"]
predict("10.7b", grouped=96)  #> predict("10.7b", grouped=...)

# %%
print(f"row by row: {strips(by_rows)} strips")
measured("10.7b", grouped=strips(in_groups))
order = [in_groups(pid) for pid in range(128)]
explore.program_grid(8, 16, 1, 1, order=order, title="The first 128 programs, in groups")

# %% [markdown]
# <details><summary>Strips of two orders</summary>
#
# 96 instead of 144: each wave needs $4 + 8 = 12$ strips. Waves that are nearly square read a third less from the large memory if each wave reads its strips once. In the figure, the programs 0 to 31 fill the block of 4 rows and 8 columns at the top left. In a kernel this order takes two lines of arithmetic on `tl.program_id`.
#
# </details>
#
# On a GPU programs start roughly in the order of their numbers, but this is not guaranteed.
#
# ## 10.8 What the interpreter shows, and what it does not
#
# | question | interpreter | compiled, on a GPU |
# | --- | --- | --- |
# | words loaded and stored | exact, lane by lane | the same requests; sectors and caches decide what is transferred |
# | values in float32 | correct to rounding; `input_precision` is ignored | correct to rounding; `tl.dot` rounds as `input_precision` states |
# | masked lanes without `other` | 0; NaN during a check, also in `tl.max` | undefined |
# | *races*: a program uses a word that another one writes | not visible in the values, because programs run one after the other; the ledger shows words written twice | the result depends on the timing |
# | registers, shared memory, whether it compiles | not known; a check runs the first stage of the compiler | decided by the compiler |
# | time | not known | measured |
#
# **Races.** 64 programs add 1 to each of two words: to one by a load, an addition and a store, to the other by `tl.atomic_add`, one step that no other program can interrupt.
#
# **Predict** (compute). What are the two words afterwards in the interpreter? (`ledger.atomics` counts atomic words, which are also counted as read and written.)
# <!-- 64 as input -->

# %%
@triton.jit
def tally_kernel(plain, atomic):
    tl.store(plain, tl.load(plain) + 1.0)
    tl.atomic_add(atomic, 1.0)


# %% tags=["predict"]
predict("10.8", plain=64, atomic=64)  #> predict("10.8", plain=..., atomic=...)

# %%
plain, atomic = torch.zeros(1), torch.zeros(1)
with traffic.count() as ledger:
    tally_kernel[(64,)](plain, atomic)
print(ledger)
print("atomic:", ledger.atomics)
measured("10.8", plain=int(plain[0]), atomic=int(atomic[0]))

# %% [markdown]
# <details><summary>The two words</summary>
#
# Both are 64 in the interpreter. On a GPU only `atomic` is. There two programs may load the same 5 and both store 6, so `plain` can end at any number from 1 to 64. The values of the interpreter do not show this race, but the ledger does: 64 words are written to an array of one word, and they are not atomic.
#
# </details>
#
# **Look inside: values.** `tl.static_print` prints what the compiler knows, `tl.device_print` the values of a block, after the program and a label:

# %%
@triton.jit
def printing_kernel(X, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.static_print("BLOCK is", BLOCK)
    x = tl.load(X + offsets, mask=offsets < n)
    tl.device_print("x", x)


printing_kernel[(2,)](torch.arange(1.0, 7.0), 6, BLOCK=4)

# %% [markdown]
# The last two lanes of program (1, 0, 0) are masked: 0 here, undefined on a GPU. The guide (`docs/guide/debugging.md`) has more instruments.
#
# **Look inside: machine code.** `gpu.resources` compiles a kernel for a GPU that need not be present. `sm_90` is the *architecture* of an H200, `sm_80` of an A100, `sm_75` of a T4. *Tensor cores* are the units of a GPU that multiply small tiles, many times faster than its ordinary arithmetic: on `sm_90`, one instruction `wgmma`, executed by 128 threads, multiplies a $64 \times 16$ by a $16 \times 64$ tile in float16. They cannot multiply float32 in full precision, so with `"ieee"` each thread executes its share of the multiply-adds one by one.
#
# We compile *your* product with tiles of $64 \times 64$, pieces of depth 32 and 128 threads per program.
#
# **Predict** (compute). One iteration of its loop multiplies $64 \times 32$ by $32 \times 64$. In float32, how many multiply-add instructions does each thread execute? In float16, how many `wgmma` do its 128 threads execute together?
# <!-- 64 \times 64, 64 \times 16, 16 \times 64, 64 \times 32, 32 \times 64 as input -->
# <!-- 128, 32 as input -->
# <!-- "many times faster" if CHIPS[90].tensor_tflops > 10 * device("roofs")["multiprocessors"] * 128 * 2 * 1.98e-3 -->

# %% tags=["predict"]
predict("10.8c", float32=1024, float16=2)  #> predict("10.8c", float32=..., float16=...)

# %%
def inner_loop(launcher, kernel, dtype):
    """Compile a product kernel for an H200, print its resources, and return its loop."""
    launcher(A.to(dtype), B.to(dtype), 64, 64, 32)  # compile only what the interpreter can run
    X = torch.empty(1024, 1024, dtype=dtype)
    found = gpu.resources(kernel, 90, X, X, X, *[1024] * 5, BM=64, BN=64, BK=32)
    print(f"{dtype}: {found}")
    return found.hot_loop


loops = {dtype: attempt(inner_loop, my_product, my_product_kernel, dtype)
         for dtype in (torch.float32, torch.float16)}
measured("10.8c", float32=loops[torch.float32].fma, float16=loops[torch.float16].tensor)

# %% [markdown]
# <details><summary>Instructions of one iteration</summary>
#
# In float32, $64 \cdot 64 \cdot 32$ multiply-adds are divided among 128 threads: 1,024 per thread. In float16, two `wgmma` of depth 16 do the same work. The printed lines have the names of the machine code: `FFMA` is a float32 multiply-add, and `HGMMA.64x64x16.F32` is a `wgmma` with a $64 \times 64$ result, depth 16 and float32 sums. Shared memory holds two copies of the pieces in float32 (16 KB each) and three in float16 (8 KB each).
#
# </details>
# <!-- 128 as input -->
# <!-- 64 \times 64 as input -->
# <!-- 16, 8 = 4 * 2 * 64 * 32 / 2**10, 2 * 2 * 64 * 32 / 2**10 -->
#
# Only `input_precision="ieee"` keeps float32 away from the tensor cores.
#
# A check also passes every launch to the first stage of the compiler. It refuses Python that is not Triton, such as `break`, a function of NumPy, or a number of the notebook that is not `tl.constexpr`, and sizes that the interpreter accepts, such as an inner size of 8 in `tl.dot`:

# %%
def depth_8(kernel, launcher):
    """Run the product with BK = 8 in the interpreter, then compile it."""
    C = launcher(A, B, 32, 32, 8)
    print("interpreter, correct:", np.allclose(C, A.double() @ B.double(), atol=1e-4))
    try:
        gpu.resources(kernel, 90, A, B, C, 100, 90, 70, 70, 90, BM=32, BN=32, BK=8)
    except gpu.CompilationFailed:
        print("compiler: refused")


attempt(depth_8, my_product_kernel, my_product)

# %% [markdown]
# So a kernel that passes a check has correct values and words in the cases of the check, and the first stage of the compiler accepts it.
#
# ## Misconceptions
#
# - **"A masked lane costs a word."** 12,288 lanes move 14,000 words (10.3).
# - **"Deeper pieces move fewer words."** $b_k$ does not appear in (10.4). Depth uses fast memory (10.7).
# - **"It ran in the interpreter, so it runs on a GPU."** So did a race and a `tl.dot` of depth 8 (10.8).
#
# ## Take-away
#
# - A kernel is one function for many programs. The number of a program selects its block, the strides give the offsets, and the mask excludes what is out of bounds.
# - The traffic depends on the division into blocks, not on the number of workers: copy $2mn$; softmax $2mn$ if a row fits, otherwise $3mn$; product (10.4).
# - Use the interpreter for values and words, the compiler for what fits, and a GPU for time.
#
# ## References
#
# - P. Tillet, H. T. Kung and D. Cox, *Triton: an intermediate language and compiler for tiled neural network computations*, MAPL 2019, [doi 10.1145/3315508.3329973](https://doi.org/10.1145/3315508.3329973).
# - The [Triton documentation](https://triton-lang.org), with tutorials on softmax and on the matrix product; the order in groups is from the latter.
# - NVIDIA, [CUDA C++ best practices guide](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/), on coalesced access (the 32 bytes of 10.4).
# - T. Smith, B. Lowery, J. Langou and R. van de Geijn, *A tight I/O lower bound for matrix multiplication*, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). The bound of 10.7.
#
# **What comes next.** <!-- next -->
# <!-- 32 from https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/ -->
