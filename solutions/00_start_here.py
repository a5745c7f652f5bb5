# %% [markdown]
# # 00 Start here
#
# How many numbers travel between memory and arithmetic while attention is computed, and how few would do? Here is one attention, computed twice.

# %% tags=["setup"]
import numpy as np

from iocourse import FastMemoryFull, Ledger, doctor, run
from iocourse.course import attempt, check, hint, measured, predict, progress
from iocourse.explore import memory_timeline, two_memories
from iocourse.schedules import flash2

# %% tags=["shown"]
two_memories()

# %% [markdown]
# Every square is a number. Naive attention carries the scores $S$ and the weights $P$, $N \times N$ numbers each, to slow memory and back. FlashAttention makes and uses them piece by piece in fast memory, and its result $O$ is the same.

# %% [markdown] tags=["student-only"]
# Run the cell: the picture becomes a player to stop and step through. If it says *model not found* instead, run it again.

# %% [markdown]
# **What you will learn**
#
# - the least that attention must move, whatever the algorithm, and why words are worth counting
# - how to read a ledger, the record that every program here leaves behind
# - how predictions, exercises, checks and hints work
#
# **Prerequisites**: Python with a little NumPy, and the matrix product. No GPU.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Signs and terms are explained on the page [notation](notation.md).

# %% [markdown]
# ## Your machine
#
# The doctor looks at the versions you have and says which lessons they touch.

# %% tags=["nbval-ignore-output"]
doctor.inspect_environment()

# %% [markdown]
# ## What this course is about
#
# Numbers live in a large, slow memory; arithmetic happens beside a small, fast one, and is much faster than the way between them. One number that makes the trip, either way, is a **word moved**. The order in which words are fetched, used and dropped is a **schedule**. Every lesson asks the same two questions: how many words does this schedule move, and how many must any schedule move?
#
# The course asks one habit of you: **keep claims checkable.** "FlashAttention uses memory efficiently" cannot be checked. "For these $N$, $d$ and $M$ it moves so many words" can.

# %% [markdown]
# ## 0.1 What must move
#
# Inputs start in slow memory, and each word of them that the result depends on must be read at least once. Results end there, and each word of them must be written at least once. With $W$ for the words moved:
#
# $$ W \;\ge\; \text{words of all inputs} \;+\; \text{words of all results} \tag{0.1} $$
#
# This is called the **compulsory** traffic. For $y = Ax$ with $A$ of 100 rows and 50 columns it is 5,150 words: 5,000 for $A$, 50 for $x$, and 100 for $y$, which is easily forgotten. What is neither input nor result may never see slow memory at all, as $S$ and $P$ did not above.
#
# In an **exercise** you write a function. `check` tries it on fresh random sizes and reports *properties*, each a sentence that holds or fails. This is what it says about a function that forgot something:
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
# After the colon stands what your function did. The seed repeats the same sizes: `check("0A", my_compulsory, seed=7)`.
#
# ### Exercise 0A
#
# <!-- exercise 0A -->
# Attention takes queries $Q$, keys $K$ and values $V$, and returns one row of output $O$ for each query. A row has $d$ words in all four. There are $N_q$ queries, and $N_k$ keys with a value each. Return the compulsory traffic of one attention.
#
# Your lines go in place of `raise NotImplementedError`.
# <!-- given = course.exercise.find("0A").cases(np.random.default_rng(7))[0].inputs -->
# <!-- 378, 251, 267 = given["Nq"], given["Nk"], 3 * given["d"] -->
# <!-- 78320 = (given["Nq"] + 2 * given["Nk"]) * given["d"] -->


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
    """Words that attention must move at the least, by formula (0.1).

    Nq: number of queries. Nk: number of keys, and of values. d: words in a row.
    Returns a whole number of words.
    """
    ### BEGIN SOLUTION add up the words of every input and every result
    words_Q, words_K, words_V = Nq * d, Nk * d, Nk * d
    words_O = Nq * d
    return words_Q + words_K + words_V + words_O
    ### END SOLUTION


# %% tags=["check"] name="check-0A"
check("0A", my_compulsory)

# %% [markdown]
# If you are stuck after five minutes, there is `hint`: three levels, at no cost. This is the first; `hint("0A", 2)` shows the second.

# %% tags=["hint"]
hint("0A", count=False)

# %% [markdown]
# Later cells use your function through `attempt(my_compulsory, …)`. As long as it is not written, they say so and go on.
#
# Before each measurement stands a **prediction**. `predict` writes your guess down, `measured` sets it beside what came out. A prediction is *right* if what was measured, rounded to the digits you gave, is your number; a single digit may be 5 % off. Nothing depends on it; a number you have committed to makes you look twice.
#
# **Predict** (guess). A model that writes has one new query at a time. It meets 4,096 keys, $d = 64$. At the least, how many percent of the words of 4,096 queries does it cost? Write a number in place of the dots.

# %% tags=["predict"]
predict("0.1", percent=1)  #> predict("0.1", percent=...)

# %%
def one_beside_all(compulsory):
    one_query, all_queries = compulsory(1, 4096, 64), compulsory(4096, 4096, 64)
    print(f"   1 query,   4096 keys: words at the least {one_query:>10,}")
    print(f"4096 queries, 4096 keys: words at the least {all_queries:>10,}")
    measured("0.1", percent=100 * one_query / all_queries)


attempt(one_beside_all, my_compulsory)

# %% [markdown]
# <details><summary>What came out, and why</summary>
#
# One query alone costs 524,416 words, half of the 1,048,576 that all cost together: keys and values have to be read for one query as well as for many.
#
# </details>

# %% [markdown]
# Your **progress** is kept in one small file on this machine, and nothing is sent anywhere. In a terminal, `iocourse progress` names it; with `--export FILE` and `--import FILE` it travels.

# %%
print(progress.table(progress.load()))

# %% [markdown]
# ## 0.2 Three claims
#
# You can meet these claims in talks and in posts. In all three, $d$ and the size $M$ of fast memory are fixed, and an access is a word moved.
#
# | Name | Claim | It says |
# | --- | --- | --- |
# | `constant_traffic` | "FlashAttention's HBM accesses are $O(1)$." | However long the sequence, the words moved stay below one fixed number. |
# | `linear_traffic` | "FlashAttention's HBM accesses are $O(N)$." | A sequence of twice the length moves at most about twice the words, however long it is. |
# | `smaller_tiles_move_less` | "Smaller tiles mean less I/O." | For the same $N$ and $d$, cutting the work into smaller pieces moves fewer words. |
#
# ($O(\cdot)$ with brackets is an order of growth, and has nothing to do with the output $O$. HBM is the slow memory of a GPU.)
#
# **Predict** (guess). Write `True` or `False` for each. In lesson 04 you count the words yourself, and the answers you give here come back beside your counts.

# %% tags=["predict", "quiz"]
predict("0.2", constant_traffic=False, linear_traffic=True, smaller_tiles_move_less=True)  #> predict("0.2", constant_traffic=..., linear_traffic=..., smaller_tiles_move_less=...)

# %% [markdown]
# ## 0.3 A first ledger
#
# The machine of this course has a fast memory of $M$ words and a slow memory without limit. A schedule loads pieces of slow arrays as **tiles** into fast memory, computes with tiles, and stores results. Whatever is loaded or stored is counted.
#
# This schedule computes $y = Ax$ in blocks of $b$ rows. The product `a @ v` is a tile as well; leaving the `with` frees all three.


# %%
def x_comes_anew(m, A, x, *, b):
    """y = Ax, b rows at a time.

    m is the machine; A (rows, cols) and x (cols,) are in slow memory.
    """
    y = m.new("y", (A.shape[0],))
    for i in m.blocks(A.shape[0], b):
        # a (b, cols), v (cols,), part (b,)
        with m.load(A, i) as a, m.load(x, slice(None)) as v, a @ v as part:
            m.store(part, y, i)
    return y


# %% [markdown]
# **Predict** (compute). With $A$ of 100 rows and 50 columns as before, and blocks of 10 rows: how many words does the machine count?

# %% tags=["predict"]
predict("0.3", words=5_150)  #> predict("0.3", words=...)

# %%
rng = np.random.default_rng(0)
A, x = rng.standard_normal((100, 50)), rng.standard_normal(50)
done = run(x_comes_anew, M=600, A=A, x=x, b=10)
measured("0.3", words=done.ledger.total)
done.ledger

# %% [markdown]
# <details><summary>What came out, and why</summary>
#
# The machine counted 5,600 words, 450 more than must move. They are in the line of $x$: 500 words of it were read, and it has 50. With $\lceil \mathrm{rows}/b \rceil$ blocks the schedule moves
#
# $$ W = \mathrm{rows}\cdot\mathrm{cols} \;+\; \left\lceil \frac{\mathrm{rows}}{b} \right\rceil \mathrm{cols} \;+\; \mathrm{rows} \tag{0.2} $$
#
# words, and only the middle term is more than (0.1).
#
# </details>

# %% [markdown]
# This is a **ledger**: the words read and written of each array, and the most that were in fast memory at once. What must move is a ledger too, and one ledger minus another is a difference told in words, array by array. (It calls the one on the right the *closed form*: later that is a formula.)

# %%
least = Ledger(reads={"A": 5_000, "x": 50}, writes={"y": 100}, peak=560)
done.ledger - least

# %% [markdown]
# Now let $x$ stay. The arithmetic is the same:


# %%
def x_stays(m, A, x, *, b):
    """y = Ax, b rows at a time; x is loaded once and stays."""
    y = m.new("y", (A.shape[0],))
    with m.load(x, slice(None)) as v:  # (cols,)
        for i in m.blocks(A.shape[0], b):
            with m.load(A, i) as a, a @ v as part:  # (b, cols), (b,)
                m.store(part, y, i)
    return y


better = run(x_stays, M=600, A=A, x=x, b=10)
print("same result:", np.array_equal(better.O, done.O))
print(f"{better.ledger.total:,} words moved; the least there is:", better.ledger == least)

# %% [markdown]
# Both computed the same $y$, and this one moved the compulsory traffic to the word. Most of this course is that step, taken with attention, where not everything that is needed again can stay. Fast memory is small; this is the same run with 500 words of it:

# %%
try:
    run(x_stays, M=500, A=A, x=x, b=10)
except FastMemoryFull as error:
    print(error)

# %% [markdown]
# Last, the FlashAttention of the first picture, now with two keys at a time, and what its 208 words of fast memory held:

# %%
Q, K, V = rng.standard_normal((3, 32, 4))
small = run(flash2, M=208, Q=Q, K=K, V=V, Br=16, Bc=2)
memory_timeline(small.ledger, 208, title="F2 flash2: fast memory, move by move")

# %% [markdown]
# A block of $Q$, its output and its row statistics (lesson 03) stay (the output is called *accumulator* while it is summed), while all rows of $K$ and $V$ pass; then the second block, and all rows again. With one block that holds everything:

# %%
Q, K, V = rng.standard_normal((3, 64, 16))
whole = run(flash2, M=10_000, Q=Q, K=K, V=V, Br=64, Bc=64)
attempt(lambda least: print(f"your function says {least(64, 64, 16):,} words"), my_compulsory)
whole.ledger

# %% [markdown]
# It moved 4,096 words, the least there is, and took 8,320 words of fast memory for 64 rows. With less, how much must be read again? Lessons 02 to 04 find out.

# %% [markdown]
# ## 0.4 What a word costs
#
# The data sheet of the NVIDIA A100 (40 GB) gives two speeds: $312\cdot10^{12}$ operations a second with 16-bit numbers, where a multiply-add is two operations, and $1555\cdot10^9$ bytes a second from its main memory, where such a number has two bytes. Their quotient, in multiply-adds and words, is what the chip can do while one word arrives. Against it stands what an algorithm has to do with each word:
#
# $$ I = \frac{\text{multiply-adds}}{W} \tag{0.3} $$
#
# An algorithm with $I$ below the chip's figure waits for memory. Attention needs $2 N_q N_k d$ multiply-adds: $d$ for each score, and again $d$ to weight the values by it.
#
# **Predict** (compute). One query meets 4,096 keys, $d = 64$. How many multiply-adds does it do for each word moved, if it moves as few words as possible?
# <!-- 40 from https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf -->

# %% tags=["predict"]
predict("0.4", one_query=64)  #> predict("0.4", one_query=...)

# %%
chip = (312e12 / 2) / (1555e9 / 2)  # multiply-adds a second / words a second


def for_each_word(compulsory):
    one_query, all_queries = compulsory(1, 4096, 64), compulsory(4096, 4096, 64)
    one = 2 * 1 * 4096 * 64 / one_query
    many = 2 * 4096 * 4096 * 64 / all_queries
    naive = 2 * 4096 * 4096 * 64 / (all_queries + 4 * 4096 * 4096)
    print(f"the chip, while one word arrives      {chip:8.1f}")
    print(f"one query, 4096 keys                  {one:8.1f}")
    print(f"4096 queries, 4096 keys               {many:8.1f}")
    print(f"the same, S and P in slow memory      {naive:8.1f}")
    measured("0.4", one_query=one)


attempt(for_each_word, my_compulsory)

# %% [markdown]
# <details><summary>What came out, and why</summary>
#
# The chip can do 200.6 multiply-adds while one word arrives. A single query has 1.0: it waits for memory, and no schedule can change that. With 4,096 queries there are 2,048.0, ten times what the chip can do meanwhile.
#
# The last line is the same attention if $S$ and $P$ are each written to slow memory once and read back once, which adds $4 N^2$ words: 31.5, and the chip waits again. The last two lines differ in words alone.
#
# </details>

# %% [markdown]
# A real chip has more than two memories. The course's model leaves that out on purpose, so that its answers are exact.

# %% [markdown]
# ## Misconceptions
#
# - *"The result decides how many words move."* In section 0.3 one $y$ took 5,600 words or 5,150.
# - *"Attention must move its $N \times N$ scores."* Formula (0.1) has no place for them, and `flash2` moved none.
# - *"Fewer multiplications make attention faster."* By section 0.4, attention with $S$ and $P$ in slow memory does 31.5 for each word, on a chip that could do 200.6.
#
# ## Take-away
#
# Count words. The compulsory traffic says how many must move, a ledger how many did, and the difference is the room for a better schedule.
#
# ## References
#
# - Tri Dao and others: *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135).
# - NVIDIA: *A100 Tensor Core GPU*, data sheet, and its [white paper](https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf).
# - Samuel Williams, Andrew Waterman, David Patterson: *Roofline: an insightful visual performance model for multicore architectures*, Communications of the ACM 52 (4), 2009.
#
# **Next**: [01 Naive attention](01_naive_attention.ipynb) writes out everything that FlashAttention avoids; then come [a machine with two memories](02_two_level_memory.ipynb), [online softmax](03_online_softmax.ipynb) and [FlashAttention's forward pass](04_flash_forward.ipynb), with an answer to the three claims. Your own copies of the lessons are in the folder `work/`; the line under each title leads to the solved ones.
