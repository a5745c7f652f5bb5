# %% [markdown]
# # 00 Start here
#
# How many numbers must be moved between memory and arithmetic to compute attention? The figure shows the same attention, computed in two ways.

# %% tags=["setup"]
import numpy as np

from iocourse import FastMemoryFull, Ledger, doctor, run
from iocourse.course import attempt, check, hint, measured, predict, progress
from iocourse.course.explore import memory_timeline, two_memories
from iocourse.schedules import flash2

# %% tags=["shown"]
two_memories()

# %% [markdown]
# Each square is one number. Attention compares each of $N$ queries with each of $N$ keys, which gives $N \times N$ scores $S$. Softmax turns each row of $S$ into weights $P$, and a row of the output $O$ is the sum of the values with these weights. Naive attention writes $S$ and $P$ to slow memory and reads them back. FlashAttention computes and uses them piece by piece in fast memory. $O$ is the same.

# %% [markdown] tags=["student-only"]
# Run the cell above the figure to step through it. If you see *model not found*, run it again.

# %% [markdown]
# **What you will learn**
#
# - the minimum number of words that attention must move
# - how to read a ledger, the traffic record of a run
# - how predictions, exercises, checks and hints work
#
# **Prerequisites**: Python with a little NumPy, the matrix product. No GPU.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Symbols and terms: [notation](notation.md).

# %% [markdown]
# ## 0.1 Compulsory traffic
#
# Arithmetic uses **words** (numbers) in fast memory. The *memory traffic* (I/O), $W$, is the number of words moved between slow and fast memory, in either direction. Inputs start in slow memory and results must end there, so every input word that the result depends on is read, and every result word is written:
#
# $$ W \;\ge\; \text{words of all inputs} \;+\; \text{words of all results} \tag{0.1} $$
# <!-- (0.1) not evaluated: definition -->
#
# The right-hand side is the *compulsory traffic*. For $y = Ax$ with $A$ of 100 rows and 50 columns it is 5,150 words: 5,000 for $A$, 50 for $x$, 100 for $y$.
#
# <!-- exercise 0A -->
# Attention takes $N_q$ queries $Q$, $N_k$ keys $K$ and $N_k$ values $V$, and returns one row of output $O$ per query. Each row has $d$ words. Return the compulsory traffic.
#
# Replace `raise NotImplementedError` with your code.


# %% [raw] name="about-0A"
# title = "The words attention must move"
# difficulty = 1
# importance = 4
# minutes = 5
# hints = [
#   "Which arrays must exist before attention starts, and which one is its result?",
#   "There are four arrays. Two have one row per query, the other two one row per key.",
#   "The size of an array is its number of rows times its number of columns, and all four have d columns. Add the four sizes. The scores are neither inputs nor outputs, so they are not counted.",
# ]

# %% tags=["exercise"] name="ex-0A"
def my_compulsory(Nq, Nk, d):
    """Return the compulsory traffic of attention in words, by formula (0.1).

    Nq: number of queries. Nk: number of keys, and of values. d: words per row.
    The result is an integer.
    """
    ### BEGIN SOLUTION add up the words of every input and every result
    words_Q, words_K, words_V = Nq * d, Nk * d, Nk * d
    words_O = Nq * d
    return words_Q + words_K + words_V + words_O
    ### END SOLUTION


# %% tags=["check"] name="check-0A"
check("0A", my_compulsory)

# %% [markdown]
# `check` calls your function with new random sizes and tests *properties*. Each holds, fails, or is not reached. This is the report on a function that omits one array:
#
# ```text
# 0A The words attention must move
#   FAILS  counts every array that has one row per query: 3 more queries with d=89 add 267 words: 1 × d per row
#   holds  counts every array that has one row per key
#   ...
#   FAILS  returns the compulsory traffic: got 78320 words, which is too few (Nq=378, Nk=251, d=89)
# Read "counts every array that has one row per query" first: the others may fail for the same reason.
# Not solved yet. Same inputs again: seed=7. Stuck? hint("0A")
# ```
#
# The text after the colon describes your function: 3 more queries added 267 words, $d$ for each query. To repeat a check with the same sizes: `check("0A", my_compulsory, seed=7)`.
#
# If you are stuck after five minutes, use `hint`. It has three levels and costs nothing. This is the first:
# <!-- given = course.exercise.find("0A").cases(np.random.default_rng(7))[0].inputs -->
# <!-- 378, 251, 267 = given["Nq"], given["Nk"], 3 * given["d"] -->
# <!-- 78320 = (given["Nq"] + 2 * given["Nk"]) * given["d"] -->

# %% tags=["hint"]
hint("0A", count=False)  # do not record this call as a hint that you used

# %% [markdown]
# Later cells call your function through `attempt(my_compulsory, …)`. If it is not written yet, they print a message and continue.
#
# Before each measurement there is a **prediction**. `predict` records your number, and `measured` prints it next to the measured one. A prediction is *right* if the measured value, rounded to the digits you wrote, equals your number, and the error is at most 5 %. A prediction marked "compute" follows from the text; for a "guess", an estimate is enough. Predictions are not graded. They show where your expectation was wrong.
#
# **Predict** (guess). A model that generates text computes one new query at a time. Let this query use 4,096 keys, with $d = 64$. What is its compulsory traffic, as a percentage of the compulsory traffic of 4,096 queries with the same keys? Replace the dots with a number.
# <!-- 5 = 10**2 * course.predictions.CLOSE -->

# %% tags=["predict"]
predict("0.1", percent=1)  #> predict("0.1", percent=...)

# %%
def one_query_and_all(compulsory):
    one_query, all_queries = compulsory(1, 4096, 64), compulsory(4096, 4096, 64)
    print(f"   1 query,   4096 keys: compulsory words {one_query:>10,}")
    print(f"4096 queries, 4096 keys: compulsory words {all_queries:>10,}")
    measured("0.1", percent=100 * one_query / all_queries)


attempt(one_query_and_all, my_compulsory)

# %% [markdown]
# <details><summary>Result and explanation</summary>
#
# A single query needs 524,416 words, because it needs all keys and values. All queries together need 1,048,576, only about twice as many.
#
# </details>

# %% [markdown]
# Your **progress** is stored in one small file on this machine, and nothing is sent anywhere. `iocourse progress` prints its path.

# %%
print(progress.table(progress.load()))

# %% [markdown]
# `doctor` lists the installed versions, and the lessons that you can run with them.

# %% tags=["nbval-ignore-output"]
doctor.inspect_environment()

# %% [markdown]
# ## 0.2 Three claims about FlashAttention
#
# A **schedule** is the order in which words are loaded, used and freed. This course has two questions. How many words does a given schedule move, and how many must any schedule move? (Nothing is timed in lessons 00 to 09b. Lesson 14c compares counts with times recorded on a GPU.)
#
# A count can be checked. "FlashAttention uses memory efficiently" cannot; "for $N = 32$, $d = 4$ and 192 words of fast memory it moves 768 words" can.
#
# These claims appear in talks and posts. In all three, $d$ and the size $M$ of fast memory are fixed. HBM is a GPU's slow memory, and an access is a word moved.
#
# | Name | Claim | Meaning |
# | --- | --- | --- |
# | `constant_traffic` | "FlashAttention's HBM accesses are $O(1)$." | For any sequence length, the traffic stays below one fixed number. |
# | `linear_traffic` | "FlashAttention's HBM accesses are $O(N)$." | For any length, a sequence twice as long needs at most about twice the traffic. |
# | `smaller_tiles_move_less` | "Smaller tiles mean less I/O." | For the same $N$ and $d$, splitting the work into smaller pieces reduces the traffic. |
#
# (Here $O(\cdot)$ is an order of growth, not the output $O$.)
#
# **Predict** (guess). Write `True` or `False` for each claim. In lesson 04 you count the words yourself, and your answers are printed next to your counts.

# %% tags=["predict", "quiz"]
predict("0.2", constant_traffic=False, linear_traffic=True, smaller_tiles_move_less=True)  #> predict("0.2", constant_traffic=..., linear_traffic=..., smaller_tiles_move_less=...)

# %% [markdown]
# ## 0.3 A first ledger
#
# The machine of this course is a *two-level memory model*: a fast memory of $M$ words (SRAM on a GPU) and an unlimited slow memory (HBM). A schedule loads blocks of arrays into fast memory as **tiles**, computes with tiles, and stores the results. The machine counts every word that is loaded or stored.
#
# The next schedule computes $y = Ax$ in blocks of $b$ rows. The product `a @ v` is also a tile. All three tiles are freed at the end of the `with` block.


# %%
def x_loaded_again(m, A, x, *, b):
    """y = Ax, b rows at a time.

    m is the machine; A (rows, cols) and x (cols,) are in slow memory.
    """
    y = m.new("y", (A.shape[0],))  # a new array in slow memory
    for i in m.blocks(A.shape[0], b):  # i: b rows; slice(None): all of x
        # a (b, cols), v (cols,), part (b,)
        with m.load(A, i) as a, m.load(x, slice(None)) as v, a @ v as part:
            m.store(part, y, i)
    return y


# %% [markdown]
# **Predict** (compute). Again $A$ has 100 rows and 50 columns, and a block has 10 rows. How many words does the machine count?

# %% tags=["predict"]
predict("0.3", words=5_150)  #> predict("0.3", words=...)

# %%
rng = np.random.default_rng(0)
A, x = rng.standard_normal((100, 50)), rng.standard_normal(50)
done = run(x_loaded_again, M=600, A=A, x=x, b=10)
measured("0.3", words=done.ledger.total)
done.ledger

# %% [markdown]
# <details><summary>Result and explanation</summary>
#
# The machine counts 5,600 words, 450 more than the compulsory traffic. The line of $x$ shows why: $x$ has 50 words, but 500 words of it were read, 50 per block. With $\lceil \mathrm{rows}/b \rceil$ blocks the schedule moves
#
# $$ W = \mathrm{rows}\cdot\mathrm{cols} \;+\; \left\lceil \frac{\mathrm{rows}}{b} \right\rceil \mathrm{cols} \;+\; \mathrm{rows} \tag{0.2} $$
# <!-- (0.2) W = costs.matmul(rows, 1, cols, bm=b, bn=1).total -->
#
# words. Only the middle term exceeds (0.1).
#
# </details>

# %% [markdown]
# The table is a **ledger**. It lists the words read and written per array, and the peak, which is the largest number of words in fast memory at one time. The compulsory traffic can be written as a ledger, too. Subtracting the two shows which array is read more often. (The output calls the second ledger the *closed form*, because later lessons compute it from a formula.)

# %%
# peak is the peak of the run, so only the words are compared
least = Ledger(reads={"A": 5_000, "x": 50}, writes={"y": 100}, peak=560)
done.ledger - least

# %% [markdown]
# Now load $x$ once and keep it in fast memory:


# %%
def x_kept(m, A, x, *, b):
    """y = Ax, b rows at a time; x is loaded once and kept in fast memory."""
    y = m.new("y", (A.shape[0],))
    with m.load(x, slice(None)) as v:  # (cols,)
        for i in m.blocks(A.shape[0], b):
            with m.load(A, i) as a, a @ v as part:  # (b, cols), (b,)
                m.store(part, y, i)
    return y


better = run(x_kept, M=600, A=A, x=x, b=10)
print("same result:", np.array_equal(better.O, done.O))
print(f"{better.ledger.total:,} words moved, the compulsory traffic:", better.ledger == least)

# %% [markdown]
# Both schedules compute the same $y$, and the second moves exactly the compulsory traffic. Most of this course does the same for attention. But fast memory is often too small to keep everything that is needed again. With 500 words, even this run fails:

# %%
try:
    run(x_kept, M=500, A=A, x=x, b=10)
except FastMemoryFull as error:
    print(error)

# %% [markdown]
# The last example is the FlashAttention of the first figure, which uses the FlashAttention-2 order (`flash2` in code). Here it loads two keys at a time. The next figure shows the contents of its 208 words of fast memory after each step (a load, a store, a new or a freed tile; labelled "moves" on the axis):

# %%
Q, K, V = rng.standard_normal((3, 32, 4))
small = run(flash2, M=208, Q=Q, K=K, V=V, Br=16, Bc=2)
memory_timeline(small.ledger, 208, title="flash2: fast memory, step by step")

# %% [markdown]
# A block of $Q$, its output and its row statistics (lesson 03) are kept in fast memory while all rows of $K$ and $V$ are loaded. (An output is called *accumulator* while it is being summed.) Then the second block of $Q$ is loaded, and all rows of $K$ and $V$ are loaded again. With a single block for everything, nothing is loaded again:

# %%
Q, K, V = rng.standard_normal((3, 64, 16))
whole = run(flash2, M=10_000, Q=Q, K=K, V=V, Br=64, Bc=64)
attempt(lambda least: print(f"your function gives {least(64, 64, 16):,} words"), my_compulsory)
whole.ledger

# %% [markdown]
# This run moves 4,096 words, the compulsory traffic, but it needs 8,320 words of fast memory: $4Nd = 4{,}096$ for the four arrays, $N^2$, here the same number, for the scores, and 128 for row statistics. With less, how many words must be read again? Lessons 02 to 04 answer this.

# %% [markdown]
# ## 0.4 Arithmetic intensity
#
# The data sheet of the NVIDIA A100 (40 GB) gives two speeds. The first is $312\cdot10^{12}$ operations per second with 16-bit numbers; a multiply-add is two operations. The second is the *bandwidth* of its slow memory, $1555\cdot10^9$ bytes per second; such a number has two bytes. So the chip can do $156\cdot10^{12}$ multiply-adds and move $777.5\cdot10^9$ words per second. Their ratio is the number of multiply-adds that it can do while it moves one word. The number of multiply-adds that an algorithm does per word moved is its *arithmetic intensity*:
#
# $$ I = \frac{\text{multiply-adds}}{W} \tag{0.3} $$
# <!-- (0.3) not evaluated: definition -->
#
# If $I$ is below the ratio of the chip, memory limits the speed, and the algorithm is *memory-bound*. If $I$ is above it, arithmetic limits the speed, and the algorithm is *compute-bound*. (Papers count FLOPs, floating-point operations, per byte. With two bytes per word, that gives the same $I$.)
#
# Attention needs $2 N_q N_k d$ multiply-adds: $d$ for each score, and $d$ to multiply each value by its weight.
#
# **Predict** (compute). What is the arithmetic intensity of one query with 4,096 keys and $d = 64$, if only the compulsory traffic is moved?
# <!-- 156\cdot10^{12}, 777.5\cdot10^9 = 312e12 / 2, 1555e9 / 2 -->
# <!-- 40 from https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf -->
# <!-- 1555\cdot10^9 from https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf -->

# %% tags=["predict"]
predict("0.4", one_query=64)  #> predict("0.4", one_query=...)

# %%
chip = (312e12 / 2) / (1555e9 / 2)  # multiply-adds per second / words per second


def intensities(compulsory):
    one_query, all_queries = compulsory(1, 4096, 64), compulsory(4096, 4096, 64)
    one = 2 * 1 * 4096 * 64 / one_query
    many = 2 * 4096 * 4096 * 64 / all_queries
    naive = 2 * 4096 * 4096 * 64 / (all_queries + 4 * 4096 * 4096)
    print("multiply-adds per word")
    print(f"the chip can do                       {chip:8.1f}")
    print(f"one query, 4096 keys                  {one:8.1f}")
    print(f"4096 queries, 4096 keys               {many:8.1f}")
    print(f"the same, S and P in slow memory      {naive:8.1f}")
    measured("0.4", one_query=one)


attempt(intensities, my_compulsory)

# %% [markdown]
# <details><summary>Result and explanation</summary>
#
# The chip can do 200.6 multiply-adds per word. A single query has an intensity of 1.0: it is memory-bound, and no schedule can change that. With 4,096 queries the intensity is 2,048.0, ten times the ratio of the chip, so attention can be compute-bound.
#
# In the last line $S$ and $P$ are each written to slow memory once and read back once, which adds $4 N^2$ words. The intensity is 31.5, so the same attention is memory-bound.
#
# </details>

# %% [markdown]
# A real chip has more than two memories. With two, every word can be counted exactly.

# %% [markdown]
# ## Misconceptions
#
# - *"Programs with the same result move the same number of words."* In section 0.3 the same $y$ took 5,600 or 5,150 words.
# - *"Attention must move its $N \times N$ scores."* They do not appear in (0.1), and `flash2` moved none of them.
# - *"Fewer multiplications make attention faster."* In section 0.4, attention with $S$ and $P$ in slow memory does 31.5 multiply-adds per word, on a chip that could do 200.6. It waits for memory.
#
# ## Take-away
#
# Count words. The compulsory traffic must be moved, and a ledger records what was moved. The difference is the most that a better schedule could save.
#
# **In the literature's words**: the two-level memory model goes back to Hong and Kung (1981), and the FlashAttention paper calls $W$ HBM accesses. Comparing arithmetic intensity with the ratio of a chip is the roofline model of Williams and others. Unavoidable loads of a cache are called compulsory misses.
#
# ## References
#
# - Tri Dao and others, *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135).
# - NVIDIA, *A100 Tensor Core GPU*, data sheet, and its [white paper](https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf).
# - Samuel Williams, Andrew Waterman, David Patterson, *Roofline: an insightful visual performance model for multicore architectures*, Communications of the ACM 52 (4), 2009.
#
# **What comes next.** <!-- next --> Lesson [04](04_flash_forward.ipynb) answers the three claims. The solutions are in the folder `solutions/`.
