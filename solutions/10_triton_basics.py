# %% [markdown]
# # 10 Triton basics
#
# The machine of lesson 02 had one worker, which made one move after the other. A GPU has many thousand workers, and no single list of moves. What we write for it is a *kernel*: one function that each of many *programs* runs on its own block of the data. This lesson turns a copy, a row softmax and a matrix product into kernels, first in NumPy and then in Triton, and counts what they move: the closed forms of the earlier lessons, to the word.
#
# **What you will learn**
#
# - to cut a problem into programs with a block each, and to switch off what hangs over the edge;
# - to find an element in memory by a pointer and strides, whatever view of an array you are given;
# - to write copy, softmax and matrix product in Triton, for sizes that are no multiples of anything;
# - to count the words of a kernel and compare them with a formula and a lower bound;
# - to say what Triton's interpreter shows, and what only a GPU, or its compiler, can.
#
# **Prerequisites**: lesson 02 (the matrix product, formulas (2.4) and (2.6)), lesson 03 (online softmax). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Sections 10.1 to 10.3 need NumPy only, the others triton, which is published for Linux (Colab runs Linux). No GPU is needed.

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact
from iocourse.course import attempt, check, explore, hint, measured, predict

# %% [markdown]
# ## 10.1 A program and its block
#
# We want to copy 1000 words, and we have many workers. So we cut the words into blocks of `BLOCK` words, and *program* number $p$ copies block $p$:
#
# $$ \text{program } p \text{ owns the words } pB, \; pB + 1, \; \dots, \; pB + B - 1, \qquad p = 0, \dots, \lceil n/B \rceil - 1 . \tag{10.1} $$
# <!-- (10.1) not evaluated: definition -->
#
# All programs run the same function. What tells them apart is their number. They run in any order, many at once: a program must not need what another one writes. A matrix is cut into tiles, and a program has two numbers, its row and its column of tiles:

# %%
explore.program_grid(100, 70, 32, 32, title="A matrix in tiles of 32 x 32, a program each")

# %% [markdown]
# $4 \times 3 = 12$ programs for 7,000 words. The last row and the last column of tiles hang over the edge: 5,288 places, hatched, belong to a program and not to the matrix.
#
# A program handles its block as a whole, `BLOCK` numbers at a time. Each place in the block is called a *lane*. Where a block hangs over the edge, some lanes must do nothing. A *mask* says which lanes are on: True where the word exists. (The masks of lesson 08 hid pairs of tokens; these hide lanes.) `load` and `store` below are the only two ways to memory, and they count the words of lanes that are on.
#
# **Predict** (guess). $n = 1000$ and $B = 128$: how many programs are there, and how many lanes are off, in all of them together?
#
# <!-- 7,000 = 100 * 70 -->
# <!-- 4 \times 3, 12 as output -->

# %%
words = {"read": 0, "written": 0}


def load(x, at, mask, other=0.0):
    """x[at] in lanes that are on; `other` where the mask is off, and nothing is read there."""
    words["read"] += int(mask.sum())
    return np.where(mask, x[np.where(mask, at, 0)], other)


def store(x, at, value, mask):
    words["written"] += int(mask.sum())
    x[at[mask]] = value[mask]


def copy_program(program, X, Y, n, BLOCK):
    at = program * BLOCK + np.arange(BLOCK)  # (BLOCK,)
    mask = at < n                            # (BLOCK,)
    store(Y, at, load(X, at, mask), mask)


# %% tags=["predict"]
predict("10.1", programs=8, lanes_off=24)  #> predict("10.1", programs=..., lanes_off=...)

# %%
n, BLOCK = 1000, 128
X, Y = np.arange(1000.0), np.zeros(1000)
programs = -(-n // BLOCK)
for program in np.random.default_rng(10).permutation(programs):  # any order will do
    copy_program(program, X, Y, n, BLOCK)
print(f"copied: {(X == Y).all()}, {words['read']:,} words read, {words['written']:,} written")
measured("10.1", programs=programs, lanes_off=programs * BLOCK - words["read"])

# %% [markdown]
# <details><summary>How many lanes are off, and what that costs</summary>
#
# 8 programs with 1,024 lanes, 24 of them off. 1,000 words read and 1,000 written: $W = 2n$, whatever the block. A lane that is off moves nothing.
#
# </details>
#
# ## 10.2 Memory is one row of words
#
# A kernel is not given a matrix. It is given a *pointer*: the place in memory where the matrix starts. Memory itself is one long row of words, so a program must work out where element $(i, j)$ lies. The rule needs two numbers, the *strides*: how many words lie between one row and the next, and between one column and the next,
#
# $$ \text{place of } (i, j) = \text{start} + i\, s_0 + j\, s_1 . \tag{10.2} $$
# <!-- (10.2) not evaluated: definition -->
#
# A $5 \times 12$ matrix stored row by row has the strides $(12, 1)$. Views of the same memory differ in start and strides only: the columns 2 to 8 of that matrix start at word 2 and keep the strides $(12, 1)$; its transpose has the strides $(1, 12)$. Nothing is copied to make a view.
#
# **Predict** (compute). The matrix lies at the words 0 to 59, row by row. At which word lies element $(3, 4)$ of the matrix, of its columns 2 to 8, and of its transpose?
# <!-- 8, 1,024, 24 = len(range(0, 1000, 128)), 8 * 128, 8 * 128 - 1000 -->
# <!-- 5 \times 12 as input -->

# %% tags=["predict"]
predict("10.2", matrix=40, columns=42, transpose=51)  #> predict("10.2", matrix=..., columns=..., transpose=...)

# %%
places = np.arange(60).reshape(5, 12)  # each word holds its own place
views = {"matrix": places, "columns": places[:, 2:9], "transpose": places.T}
for name, view in views.items():
    strides = tuple(step // view.itemsize for step in view.strides)  # NumPy gives them in bytes
    print(f"{name:9} {view.shape!s:8} start {view[0, 0]}, strides {strides!s:7} "
          f"(3, 4) at {view[3, 4]}")
measured("10.2", **{name: int(view[3, 4]) for name, view in views.items()})

# %% [markdown]
# <details><summary>Where the three views find it</summary>
#
# $3 \cdot 12 + 4 = 40$, two words later in the slice, and $3 + 4 \cdot 12 = 51$ in the transpose. A kernel that takes strides works on all three; one that assumes $s_0$ = number of columns is wrong on the second and the third.
#
# </details>
#
# Blocks of a matrix are tiles, and programs get two numbers: program $(p, q)$ owns the tile of $b_m$ rows and $b_n$ columns that starts at row $p\,b_m$ and column $q\,b_n$. All places of a tile come from one sum. The rows as a column of shape $(b_m, 1)$ plus the columns as a row of shape $(1, b_n)$ broadcast to $(b_m, b_n)$.
#
# <!-- exercise 10A --> Give the places of all elements of a tile, counted from the start of the matrix, and the mask. At the edges a tile hangs over, in rows, in columns or in both. Places of lanes that are off do not matter. (Of the $5 \times 12$ matrix in tiles of $4 \times 8$, program $(1, 1)$ has the words 56 to 59.) If you are stuck after five minutes, run `hint("10A")` in a cell of your own.
#
# <!-- 56, 59 = 4 * 12 + 8, 4 * 12 + 11 -->
# <!-- 5 \times 12, 4 \times 8 as input -->

# %% [raw] name="about-10A"
# title = "Addresses of a tile"
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
    """Places and mask of the tile that program (p, q) owns.

    rows, columns: of the matrix. s0, s1: its strides, in words. BM, BN: sizes of a tile.
    Returns two arrays (BM, BN): whole numbers, and True where the element exists.
    """
    ### BEGIN SOLUTION rows as a column, columns as a row
    i = p * BM + np.arange(BM)[:, None]  # (BM, 1)
    j = q * BN + np.arange(BN)[None, :]  # (1, BN)
    return i * s0 + j * s1, (i < rows) & (j < columns)
    ### END SOLUTION


# %% tags=["check"] name="check-10A"
check("10A", my_tile)

# %% [markdown]
# ## 10.3 Softmax and product, program by program
#
# Two more programs complete the set. *Row softmax*: a program owns a row. The block is the row, rounded up. The lanes that hang over must change neither the maximum nor the sum, so they get the value $-\infty$, and $e^{-\infty} = 0$.
#
# *Matrix product*: program $(p, q)$ owns a tile of $C$, as in section 2.4. It keeps $b_m \times b_n$ sums and goes along $k$ in pieces of depth $b_k$. Lanes that hang over get 0, which adds nothing to a sum of products.

# %%
def softmax_program(row, X, Y, n, BLOCK):
    j = np.arange(BLOCK)
    s = load(X, row * n + j, j < n, other=-np.inf)
    e = np.exp(s - s.max())
    store(Y, row * n + j, e / e.sum(), j < n)


def product_program(p, q, A, B, C, m, n, k, BM, BN, BK):
    i, j = p * BM + np.arange(BM)[:, None], q * BN + np.arange(BN)[None, :]
    c = np.zeros((BM, BN))
    for start in range(0, k, BK):
        x = start + np.arange(BK)
        a = load(A, i * k + x[None, :], (i < m) & (x[None, :] < k))  # (BM, BK)
        b = load(B, x[:, None] * n + j, (x[:, None] < k) & (j < n))  # (BK, BN)
        c += a @ b
    store(C, i * n + j, c, (i < m) & (j < n))


# %% [markdown]
# What do they move? Softmax reads each word once and writes each once, $W = 2mn$ for $m$ rows of $n$ words. For the product, (2.4) took one column of $A$ and one row of $B$ at a time; now they come $b_k$ at a time.
#
# **Predict** (compute). $m = 100$, $n = 90$, $k = 70$, tiles of $32 \times 32$. How many words move with pieces of depth 16? With pieces of depth 32?
# <!-- 32 \times 32 as input -->
# <!-- ($W = 2mn$) W = m * (softmax.reads["S"] + softmax.writes["P"]) // n with softmax = costs.naive(n, 1, Br=1, Bc=n, Bm=1, Bn=1) -->

# %% tags=["predict"]
predict("10.3", depth_16=55200, depth_32=55200)  #> predict("10.3", depth_16=..., depth_32=...)

# %%
rng = np.random.default_rng(10)
m, n, k = 100, 90, 70
A, B = rng.standard_normal((m, k)), rng.standard_normal((k, n))


def counted_product(BM, BN, BK):
    words.update(read=0, written=0)
    C = np.zeros(m * n)
    for p in range(-(-m // BM)):
        for q in range(-(-n // BN)):
            product_program(p, q, A.ravel(), B.ravel(), C, m, n, k, BM, BN, BK)
    print("right:", np.allclose(C.reshape(m, n), A @ B), words)
    return words["read"] + words["written"]


measured("10.3", depth_16=counted_product(32, 32, 16), depth_32=counted_product(32, 32, 32))

# %% [markdown]
# <details><summary>What the depth does to the words</summary>
#
# 55,200 both times. There are 4 rows of tiles and 3 columns of tiles, so $A$ is read three times and $B$ four times, in pieces of any depth: nothing has changed since (2.4), and $b_k$ does not occur in
#
# $$ W = mk\lceil n/b_n\rceil + kn\lceil m/b_m\rceil + mn . \tag{10.3} $$
# <!-- (10.3) W = costs.matmul(m, n, k, bm=bm, bn=bn).total -->
#
# </details>
#
# ## 10.4 The same in Triton
#
# Triton is a language for kernels inside Python. A function under `@triton.jit` is not run by Python: it is compiled for a GPU, or *interpreted*, one program after the other, with NumPy. Interpreted kernels run anywhere triton does, and their loads and stores can be counted; that is what this lesson does, also where there is a GPU. The next cell says so before anything may import triton. Where it is missing, that cell and each later one that needs it say in a line what to install.

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

# %% [markdown]
# Here is the copy of a matrix. It reads like its NumPy version, with five new words:
#
# | NumPy | Triton | what it is |
# | --- | --- | --- |
# | the arguments `p`, `q` | `tl.program_id(0)`, `tl.program_id(1)` | the program's own number, one for each axis of the grid |
# | `np.arange(BM)` | `tl.arange(0, BM)` | one number a lane; `BM` must be a power of two |
# | `load(X, at, mask, 0.0)` | `tl.load(X + at, mask=mask, other=0.0)` | `X` is the pointer, `X + at` a tile of pointers |
# | `store(Y, at, value, mask)` | `tl.store(Y + at, value, mask=mask)` | the tile goes where its pointers say |
# | a plain number | `BM: tl.constexpr` | a number the compiler knows: sizes of tiles must be such |
#
# One thing differs. Without `other`, Triton promises nothing about what a lane that is off holds. The copy needs no `other`, because these lanes are never stored.
#
# The second function below, the *launcher*, runs on the host. It makes room for the result, chooses the *grid*, how many programs there are along each axis, and launches them: `kernel[grid](X, Y, ...)`. A tensor given to a kernel arrives as its pointer; sizes and strides are given beside it. (`stride(0)` of a torch tensor is in words, and `triton.cdiv` is $\lceil a/b \rceil$.)
# <!-- 0.0 as input -->

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


# %% [markdown]
# `traffic.count()` counts what the kernels of a `with` block load and store, lane by lane, and gives the ledger you know. Arrays appear under the names of the kernel's parameters. Words have sizes now, so the ledger has bytes too: 4 a word in float32, 2 in float16. We copy the columns 10 to 79 of a matrix of 100 rows, 7,000 words.

# %%
room = torch.from_numpy(rng.standard_normal((100, 96), dtype=np.float32))
X = room[:, 10:80]
with traffic.count() as ledger:
    Y = copied(X)
print(ledger)
print("right:", bool((Y == X).all()))
with traffic.count() as half:
    copied(X.half())
print(f"in float16: {half.total:,} words, {half.bytes:,} bytes")

# %% [markdown]
# 14,000 words, 56,000 bytes, and half of that in float16. The programs are those of the first picture: 12,288 lanes, and the 5,288 that hang over moved nothing.
#
# What happens without a mask? On a GPU the answer is: something. The program reads what happens to lie behind the array, or stops with an illegal address, or writes into an array of somebody else. While bytes are counted you are told:
#
# <!-- 12,288 = 12 * 32 * 32 -->
# <!-- 14,000, 56,000 = 2 * np.zeros((100, 70)).size, 2 * np.zeros((100, 70), np.float32).nbytes -->

# %%
@triton.jit
def careless_kernel(X, Y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at))


def copied_carelessly(X):
    Y = torch.zeros_like(X)
    try:
        with traffic.count() as ledger:
            careless_kernel[(triton.cdiv(X.numel(), 64),)](X, Y, BLOCK=64)
    except triton.runtime.errors.InterpreterError as error:
        return type(error.__cause__).__name__
    return f"{ledger.total} words moved"


for length in (128, 100):
    print(length, "words:", copied_carelessly(torch.ones(length)))


# %% [markdown]
# With 128 words, two whole blocks, there is nothing to mask and all is well. With 100 words the second program reaches for 28 words that are not there: `OutsideEveryArray`. This is a help and no proof: where the overhang lies inside the array, as the columns beside `X` in `room` do, nobody complains.
#
# <!-- exercise 10B --> Write the kernel; the launcher stands there. `X` may be any view, so both of its strides count. `Y` is new and lies row by row, so its strides are known. The tile is loaded as it lies in `X`: where does its element $(i, j)$ go? The check gives sizes that are no multiples of the tile, slices and transposes, compares the words with $2 \cdot \text{rows} \cdot \text{columns}$, and asks that each program write some of them. While a check runs, torch may make tensors and views, but neither copy nor compute. If you are stuck after six minutes, run `hint("10B")` in a cell of your own.
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
    ### BEGIN SOLUTION load the tile, store it with i and j in the other's place
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
# The check has counted: a transpose moves as many words as a copy. A GPU would see a difference. It does not fetch single words but *sectors* of 32 bytes. In the plain copy the lanes of a row lie side by side, and all bytes of a sector are used. Here either the loads or the stores jump from row to row and touch one word of each sector, unless the hardware still has the sector at hand when the next row of the tile comes. Our counts are words that programs ask for.
#
# ## 10.5 Softmax: a program, a row
#
# The second kernel. A power of two at least as long as the row is the block; the mask takes care of the rest.
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


# %%
S = torch.from_numpy(3 * rng.standard_normal((64, 300), dtype=np.float32))
with traffic.count() as ledger:
    P = row_softmax(S)
print("right:", np.allclose(P, exact.softmax(S.double().numpy()), atol=1e-6))
print(f"{triton.next_power_of_2(300)} lanes a row, {ledger.total:,} words")

# %% [markdown]
# 64 rows of 300 numbers: a block has 512 lanes, 212 of them off, and 38,400 words move, each number read once and written once. That is the compulsory traffic of a softmax. The three loops of section 3.1 would move $4mn = 76{,}800$, twice as much. All it takes is that the row *fits*: the block is the program's fast memory.
#
# A row of $2^{18}$ numbers does not fit: all the fast memory that a program can have on an H200 holds 123,648 words (10.7 says where). Then the row must come in pieces, more than once, because no weight can be given before the last score was seen (section 3.1). How often? Lesson 03 has the answer: maximum and sum can be had in *one* pass, if the old sum is rescaled when the maximum rises. The second pass gives the weights:
#
# $$ W = \underbrace{2mn}_{\text{reads}} + mn = 3mn . \tag{10.4} $$
# <!-- (10.4) W = m * (softmax.reads["S"] + softmax.writes["P"]) // n with softmax = costs.naive(n, 1, Br=1, Bc=1, Bm=1, Bn=1) where n > 1 -->
#
# <!-- exercise 10C --> Write the kernel of (10.4) for rows of any length: pieces of `BLOCK` numbers, two passes. (One row of the check is longer than the $2^{20}$ numbers that Triton allows in a block; one that fits may be read once.) Loop over pieces by `for` and `range(0, n, BLOCK)`, as in Python. Start with `m = -float("inf")` and `l = 0.0`; `tl.maximum(a, b)` compares two numbers, `tl.max(s, axis=0)` and `tl.sum(e, axis=0)` reduce a piece to one number. Rows of `X` may lie apart; `Y` lies row by row. Numbers of `X` may lie astronomically far below zero: what stands for minus infinity should lie below them. If you are stuck after seven minutes, run `hint("10C")` in a cell of your own.
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
for BLOCK in (32, 128, 512):
    with traffic.count() as ledger:
        P = attempt(my_long_softmax, S, BLOCK)
    print(f"BLOCK = {BLOCK:3}: {ledger.read:,} words read, {ledger.written:,} written")

# %% [markdown]
# 38,400 read and 19,200 written for every block, 57,600 together. Between a row that fits, $2mn$, and three passes, $4mn$, the online softmax stands at $3mn$. (With `BLOCK = 512` the row would fit, and the kernel, which does not know, still reads it twice.) In attention the weights themselves are not wanted, so there the second pass goes away too; that is lesson 11.
# <!-- 57,600 = 3 * 64 * 300 -->
#
# ## 10.6 The product
#
# The third kernel is yours. You have it in NumPy already (10.3), and it needs one more word of Triton: `tl.dot(a, b)` multiplies a tile $(b_m, b_k)$ by a tile $(b_k, b_n)$. We add `input_precision="ieee"`: float32 is multiplied as float32. (Without it Triton may round the inputs to 11 significant bits, for the sake of the tensor cores of section 10.8.) Sums are kept in float32 whatever the inputs: `tl.zeros((BM, BN), dtype=tl.float32)`.
#
# <!-- exercise 10D --> Write kernel *and* grid. Rows of `A` and `B` may lie further apart than they are long; `C` is new and lies row by row. Think about each mask: what may a lane that hangs over in $k$ bring into a sum? (While the check runs, a lane that is off holds NaN if it was given no `other`.) The words must be those of (10.3). If you are stuck after ten minutes, run `hint("10D")` in a cell of your own.

# %% [raw] name="about-10D"
# title = "The matrix product with tiles"
# difficulty = 3
# importance = 5
# minutes = 15
# hints = [
#   "Compare product_program of section 10.3 with copy_kernel: which lines change, and which only change their names?",
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
A32, B32 = torch.from_numpy(A).float(), torch.from_numpy(B).float()
with traffic.count() as ledger:
    attempt(my_product, A32, B32, 32, 32, 16)
print(ledger)

# %% [markdown]
# 21,000 words of $A$, 25,200 of $B$, 9,000 of $C$, together 55,200: the ledger of (10.3), and the one `costs.matmul` gives. A schedule for one worker is now done by 12 programs, and not one word has changed, because its tiles of $C$ need nothing from each other.
#
# ## 10.7 Against the bound
#
# No schedule moves fewer than $2mnk/\sqrt M - 2M$ words (2.6). What is $M$ for a kernel? It is what one program holds: a tile of sums and two pieces,
#
# $$ M = b_m b_n + b_k(b_m + b_n) . \tag{10.5} $$
# <!-- (10.5) M = costs.matmul(bm, bn, bk, bm=bm, bn=bn).total -->
#
# Run one after the other, the programs are a schedule for a machine with so many words, and the bound holds for them. (The four single words that lesson 02 gives away are left out here: they change no bound below by more than 0.4 percent.) On a GPU the sums live in *registers*, the private words of the workers, and the pieces in *shared memory*, which the workers of one program have in common. Both belong to a *multiprocessor*, the part of the chip that a program runs on:
# <!-- 0.4 = 100 * (bounds.matmul(1024, 1024, 1024, 512) / bounds.matmul(1024, 1024, 1024, 512 + 4) - 1) -->
# <!-- 12 = len(range(0, 100, 32)) * len(range(0, 90, 32)) -->
# <!-- 55,200 = costs.matmul(100, 90, 70, bm=32, bn=32).total -->
# <!-- ($2mnk/\sqrt M - 2M$) = bounds.matmul(m, n, k, M) rounded down where bounds.matmul(m, n, k, M) > m * n + m * k + n * k -->

# %%
for arch in (75, 80, 90):
    chip = gpu.chip_of(arch)
    print(f"{chip.name:15} {chip.registers:,} registers, "
          f"{chip.shared_bytes // 1024:3} KB of shared memory")

# %% [markdown]
# A register holds one word of float32. On the H200 registers and shared memory make $65{,}536 + 227 \cdot 1024 / 4 = 123{,}648$ words. A tile of $128 \times 128$ sums takes 16,384 registers, a quarter of them.
#
# **Predict** (compute). All matrices are $1024 \times 1024$. With square tiles of side 128 and pieces of depth 32: how many times the bound does the kernel move? And with pieces of depth 1, as in lesson 02?
# <!-- 128 \times 128, 1024 \times 1024 as input -->
# <!-- 16,384 = CHIPS[90].registers / 4 -->
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
# <details><summary>What deep pieces cost</summary>
#
# 1.306 and 1.073. The words are the same, but deep pieces take room, and in that room a larger tile would move fewer words. A kernel pays for depth with good reason: `tl.dot` wants an inner size of at least 16 (10.8), and at depth 1 the lanes that load $A$ touch one word of each sector (10.4).
#
# </details>
#
# The picture shows five tiles, from side 16 to side 256. Doubling the side halves the words of $A$ and $B$. Where the tile of sums is most of the room this takes nearly four times the room, and the points run along the bound with its slope of $1/\sqrt M$.
#
# One thing the ledger does not see is the order of the programs. Between memory and all multiprocessors lies one more fast memory, the *L2 cache*, which they share. Programs that run at the same time and need the same rows of $A$ can get them from there. Suppose 32 programs run together, on a grid of $16 \times 16$ tiles, and let a *strip* be all rows of $A$, or all columns of $B$, that one tile needs. Which 32 tiles should run together?
#
# **Predict** (guess). A wave that runs row by row covers two rows of tiles: $2 + 16 = 18$ strips, 144 in all eight waves. How many are needed when waves cover 4 rows and 8 columns?
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
# <details><summary>What the order of programs is worth</summary>
#
# 96 instead of 144: the rule of lesson 02 holds one level up, and waves that come close to a square need a third less from the large memory if each wave reads its strips once, and all by renumbering the programs. In the picture a square is a tile of $C$: the programs 0 to 31 fill the block of 4 rows and 8 columns at the top left, the next wave the block beside it. A kernel does this in two lines of whole-number arithmetic on `tl.program_id`.
#
# </details>
#
# The ledger of the kernel stays the same. Real programs start roughly in the order of their numbers, and nothing promises it: an order may make a kernel faster, it must never make it right.
#
# ## 10.8 What the interpreter is, and is not
#
# The interpreter runs the programs one after the other, in the order of their numbers, each line with NumPy. What it shows, and what it does not:
#
# | question | interpreter | GPU |
# | --- | --- | --- |
# | which words are loaded and stored | exactly, lane by lane | the same words; sectors and caches decide what travels |
# | values in float32 | right to rounding | right to rounding, sums in another order |
# | lanes that are off, without `other` | 0, or NaN while a check runs | anything: no promise |
# | bfloat16 arithmetic | right, because `iocourse.kernels` repairs the interpreter | right |
# | time | says nothing | what you came for |
# | registers, shared memory, legality | says nothing; a check asks the compiler about the last | decided by the compiler |
#
# *Programs that disturb each other.* Here 64 programs add 1 to the same word. One kernel loads, adds and stores; the other uses `tl.atomic_add`, which does all three as one step that nothing can come between.
#
# **Predict** (guess). What do the two words hold afterwards, in the interpreter?
# <!-- "faster" as definition -->
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
# <details><summary>What the two words hold</summary>
#
# 64 and 64. On a GPU only the second is sure. Two programs may load the same 5, and both store 6, so `plain` may end at any number from 1 to 64. The interpreter cannot show this mistake: the rule of section 10.1 is yours to keep. In the ledger an atomic word counts as one read and one write, 64 of each, and `ledger.atomics` tells how many of them there were. Lesson 12 needs them.
#
# </details>
#
# *What the compiler says.* `gpu.resources` compiles a kernel for a chip that need not be here, and reads the machine code; sm_90 is the name of an H200's *architecture*, as sm_75 is of a T4's and sm_80 of an A100's. We ask about one tile product of side $S$. *Tensor cores* are the units of a GPU that multiply small tiles, many times faster than its ordinary arithmetic.
#
# **Predict** (guess). True or False, for float16 and for float32 on an H200: a product of two $64 \times 64$ tiles runs on the tensor cores.
# <!-- 64 \times 64 as input -->
# <!-- "many times faster" if CHIPS[90].tensor_tflops > 10 * device("roofs")["multiprocessors"] * 128 * 2 * 1.98e-3 -->

# %%
@triton.jit
def one_tile_kernel(A, B, C, S: tl.constexpr):
    at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    product = tl.dot(tl.load(A + at), tl.load(B + at), input_precision="ieee")
    tl.store(C + at, product.to(C.dtype.element_ty))  # in the type of C's words


def on_a_chip(S, dtype, arch=90):
    """How one tile product of side S is compiled."""
    tiles = [torch.empty(S, S, dtype=dtype) for _ in range(3)]
    try:
        found = gpu.resources(one_tile_kernel, arch, *tiles, S=S)
    except gpu.CompilationFailed:
        return "refused by the compiler"
    return "on tensor cores" if found.tensor_core else "without tensor cores"


# %% tags=["predict"]
predict("10.8b", float16=True, float32=False)  #> predict("10.8b", float16=..., float32=...)

# %%
answers = {name: on_a_chip(64, getattr(torch, name)) for name in ("float16", "float32")}
for name, answer in answers.items():
    print(f"64 x 64, {name}: {answer}")
print("8 x 8, float16:", on_a_chip(8, torch.float16))
measured("10.8b", **{name: answer == "on tensor cores" for name, answer in answers.items()})
small = torch.from_numpy(rng.standard_normal((2, 8, 8))).half()
C = torch.empty(8, 8, dtype=torch.float16)
one_tile_kernel[(1,)](*small, C, S=8)
want = small[0].double() @ small[1].double()
print("8 x 8 in the interpreter, right:", bool(abs(C.double() - want).max() < 0.01))

# %% [markdown]
# <details><summary>Who is served by the tensor cores</summary>
#
# float16 runs on tensor cores. float32 with `input_precision="ieee"` does not, because these units would round its inputs to fewer bits.
#
# </details>
#
# The tile of side 8 is refused, because an inner size of 8 is too small for `tl.dot`, while the interpreter computes it without a word. So a kernel that runs here is right in values and words, and not yet known to compile, to fit or to be fast. A check asks a little more: it hands what you launch to the first stage of the compiler too. That stage refuses this tile, and whatever is Python and not Triton, as `break`, a function of NumPy, or a number of the notebook that is not `tl.constexpr`. Lesson 11b asks the compiler about registers and shared memory.
#
# ## Misconceptions
#
# - **"A masked lane costs a word."** It moves nothing: 12,288 lanes, 14,000 words for reading and writing 7,000 (10.4).
# - **"Deeper pieces mean fewer words."** $b_k$ is not in (10.3): 55,200 words at depth 16 and at depth 32. It takes room instead (10.7).
# - **"It ran in the interpreter, so it runs on a GPU."** A race gave 64 (10.8), and a tile of side 8 was computed that the compiler refuses.
#
# ## Take-away
#
# - A kernel is one function for many programs. The program's number gives it a block, strides give it places, a mask switches off what does not exist.
# - Words are a property of the cut into blocks, not of the worker: copy $2mn$, softmax $2mn$ where a row fits and $3mn$ where it does not, product (10.3).
# - Interpreter for values and words, compiler for what fits, GPU for time.
#
# ## References
#
# - P. Tillet, H. T. Kung, D. Cox: *Triton: an intermediate language and compiler for tiled neural network computations*, MAPL 2019, [doi 10.1145/3315508.3329973](https://doi.org/10.1145/3315508.3329973).
# - The [Triton documentation](https://triton-lang.org), with tutorials on softmax and on the matrix product; the order in groups is from the latter.
# - NVIDIA: [CUDA C++ best practices guide](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/), on coalesced access to global memory: the 32 bytes of section 10.4.
# - T. Smith, B. Lowery, J. Langou, R. van de Geijn: *A tight I/O lower bound for matrix multiplication*, 2017, [arXiv 1702.02017](https://arxiv.org/abs/1702.02017). The bound of 10.7.
#
# **What comes next.** <!-- next -->
# <!-- 32 from https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/ -->
