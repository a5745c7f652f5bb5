# %% [markdown]
# # 00 Start here
#
# Attention is usually taught as arithmetic. This course asks about something else: how many numbers have to travel between memory and the arithmetic, and how few would do. That question decides how fast attention runs, it has exact answers, and you will write the programs that reach them. This first lesson shows how the course works, and lets you disagree with it before it has begun.
#
# **What you will learn**
#
# - what it means to count the words an algorithm moves, and why a word is worth counting
# - the least that attention must move, whatever the algorithm
# - how to read a ledger, the record that every program of this course leaves behind
# - how predictions, exercises, checks, hints and progress work
#
# **Prerequisites**: Python with a little NumPy, and the matrix product. No GPU.
#
# **Minutes**: 35, of which <!-- minutes --> are for the exercise.
#
# <!-- exercises -->
#
# Signs and terms of all lessons are explained on the page [notation](notation.md).

# %% tags=["setup"]
import numpy as np

from iocourse import FastMemoryFull, Ledger, doctor, run
from iocourse.course import attempt, check, hint, measured, predict, progress
from iocourse.schedules import flash2

# %% [markdown]
# ## Your machine
#
# The doctor looks at the versions you have and says which lessons they touch. Lessons 00 to 09 need NumPy, matplotlib and ipywidgets only. If torch is installed, this cell takes a few seconds.

# %% tags=["nbval-ignore-output"]
doctor.examine()

# %% [markdown]
# ## What this course is about
#
# A processor multiplies much faster than its memory delivers numbers to multiply. The numbers live in a large, slow memory. Arithmetic happens beside a small, fast one. Every number that takes part has to make the trip, and so does every result on its way back. One number on this trip is a **word moved**. On a large GPU, one word takes as long as about two hundred multiply-adds; section 0.4 works that figure out. A program that does less with each word spends its time waiting, and cheaper arithmetic would not help it.
#
# Attention does have work for every word: each query meets each key. Whether the words arrive in time depends on the *order* in which they are fetched, used and dropped. Such an order is called a **schedule**. FlashAttention became famous as a schedule: it computes what attention always computed, and moves fewer words.
#
# So every lesson asks the same two questions: how many words does this schedule move, and how many must any schedule move? Both have answers to the word. And this is the one habit the course asks of you: **keep claims checkable.** "FlashAttention uses memory efficiently" cannot be checked. "For these $N$, $d$ and $M$ this schedule moves so many words" can, because a machine counts them. It works on our claims as well as on anyone's.

# %% [markdown]
# ## 0.1 What must move
#
# We want a number that no schedule can go below. Here is the plainest one. Inputs start in slow memory, and each word of them that the result depends on must be read at least once. Results end in slow memory, so each word of them must be written at least once. With $W$ for the words moved:
#
# $$ W \;\ge\; \text{words of all inputs} \;+\; \text{words of all results} \tag{0.1} $$
#
# This is called the **compulsory** traffic. It says nothing about what happens in between: an array that is neither input nor result may never see slow memory at all.
#
# **Predict.** Take $y = Ax$, where $A$ has 100 rows and 50 columns. How many words must move at the least? Write a number in place of the dots, then run the cell; the dots stand for "not yet".

# %% tags=["predict"]
predict("0.1", words=5_050)  #> predict("0.1", words=...)

# %%
rows, cols = 100, 50
words_A, words_x, words_y = rows * cols, cols, rows
print(f"A {words_A:,} + x {words_x} + y {words_y}")
measured("0.1", words=words_A + words_x + words_y)

# %% [markdown]
# It takes 5,150 words: 5,000 for $A$, 50 for $x$ and 100 for $y$. Whoever predicted 5,050 left out that the result has to be written.
#
# That was a **prediction**, and every measurement of the course has one before it. The two calls belong together by their number: `predict("0.1", …)` writes your guess down, `measured("0.1", …)` sets it beside what came out. Nothing depends on being right. A number you have committed to makes you look twice at the one you get.
#
# **Exercises** work in a similar way. You write a function, and `check` tries it on fresh random sizes. It reports *properties*, each a sentence that holds or fails. This is what it says about a function that forgot something:
#
# ```text
# 0.1 The words attention must move
#   FAILS  a query counts in every array that has a row for it: 3 more queries with d=89 add 267 words to yours: 1 × d for each
#   holds  a key counts in every array that has a row for it
#   holds  nothing moves that is neither input nor output
#   holds  rows of twice the length are twice the words
#   holds  each word counts once, and words are counted, not bytes
#   FAILS  as many words as must move: yours says 78320, which is fewer (Nq=378, Nk=251, d=89)
# Read "a query counts in every array that has a row for it" first: the others may fail for the same reason.
# Not solved yet. Same inputs again: seed=7. Stuck? hint("0A")
# ```
#
# In the failing lines, the part after the colon is what your function did. The seed repeats the same sizes: `check("0A", my_compulsory, seed=7)`. Checks look at your function and never at your notebook, so rename, print and try out as much as you like.
#
# ### Exercise 0A
#
# <!-- exercise 0A -->
# Attention takes queries $Q$, keys $K$ and values $V$, and returns one row of output $O$ for each query. A row has $d$ words in all four. Usually there are as many queries as keys. When a model writes its answer piece by piece there is one new query and a long row of keys, so let the two numbers differ: $N_q$ queries, and $N_k$ keys with a value each. Return the compulsory traffic of one attention.
#
# Your lines go in place of `raise NotImplementedError`, which says "not written yet".
# <!-- given = course.exercise.find("0A").cases(np.random.default_rng(7))[0].inputs -->
# <!-- 378, 251, 267 = given["Nq"], given["Nk"], 3 * given["d"] -->
# <!-- 78320 = (given["Nq"] + 2 * given["Nk"]) * given["d"] -->


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
# If five minutes have passed and you are still stuck, there is `hint`. It has three levels, from a nudge to nearly the whole idea, and gives one more each time you call it. Hints cost nothing. This is the first level, shown as an example and not counted:

# %% tags=["hint"]
hint("0A", count=False)

# %% [markdown]
# Later cells use your function through `attempt(my_compulsory, …)`. As long as it is not written, or raises an error, they say so and go on, so you may run a whole notebook before you have solved anything in it.

# %%
for Nq, Nk in [(4096, 4096), (1, 4096)]:
    words = attempt(my_compulsory, Nq, Nk, 64)
    print(f"{Nq:>4} queries, {Nk} keys, d = 64: words at the least {words:>10,}")

# %% [markdown]
# One query alone costs 524,416 words, about half of the 1,048,576 that 4,096 queries cost together: the keys and values have to be read for one query as well as for many.
#
# Your **progress** is kept in one small file on this machine. It records what you have seen, tried and solved, how many hints you took, and your predictions; nothing is sent anywhere. In a terminal, `iocourse progress` shows it and names the file, and `iocourse progress --export FILE` writes a copy that `--import FILE` merges on another machine.

# %%
print(progress.table(progress.load()))

# %% [markdown]
# ## 0.2 Three claims
#
# Here are three claims about FlashAttention that you can meet in talks, in posts and in answers to questions. Each is either true or false. In all three, $d$ and the size $M$ of fast memory are fixed, and an access is a word moved.
#
# | Name | Claim | It says |
# | --- | --- | --- |
# | `constant_traffic` | "FlashAttention's HBM accesses are $O(1)$." | However long the sequence, the words moved stay below one fixed number. |
# | `linear_traffic` | "FlashAttention's HBM accesses are $O(N)$." | A sequence of twice the length moves at most about twice the words, however long it is. |
# | `smaller_tiles_move_less` | "Smaller tiles mean less I/O." | For the same $N$ and $d$, cutting the work into smaller pieces moves fewer words. |
#
# ($O(\cdot)$ with brackets is an order of growth, and has nothing to do with the output $O$. HBM is the slow memory of a GPU.)
#
# **Predict.** Write `True` or `False` for each. Hold every claim against what you know so far; where that does not decide it, trust your guess. We do not answer here: in lesson 04 you run FlashAttention yourself, count its words for growing $N$ and for different tiles, and the answers you give here come back beside your counts.

# %% tags=["predict", "quiz"]
predict("0.2", constant_traffic=False, linear_traffic=True, smaller_tiles_move_less=True)  #> predict("0.2", constant_traffic=..., linear_traffic=..., smaller_tiles_move_less=...)

# %% [markdown]
# ## 0.3 A first ledger
#
# We want to watch words move. The machine of this course has a fast memory of $M$ words and a slow memory without limit. A schedule loads pieces of slow arrays into fast memory, where they are called **tiles**, computes with tiles, and stores results. Whatever is loaded or stored is counted.
#
# This schedule computes $y = Ax$ in blocks of $b$ rows. For each block it loads those rows of $A$, loads $x$, multiplies, and stores its part of $y$. The product `a @ v` is a tile as well, so it has a name in the `with`. Leaving the `with` frees all three tiles.


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
# **Predict.** With $A$ of 100 rows and 50 columns as before, and blocks of 10 rows: how many words does the machine count?

# %% tags=["predict"]
predict("0.3", words=5_150)  #> predict("0.3", words=...)

# %%
rng = np.random.default_rng(0)
A, x = rng.standard_normal((100, 50)), rng.standard_normal(50)
done = run(x_comes_anew, M=600, A=A, x=x, b=10)
measured("0.3", words=done.ledger.total)
done.ledger

# %% [markdown]
# This is a **ledger**: for each array the words read and the words written, and besides them the most words that were in fast memory at once. The machine counted 5,600, and (0.1) says 5,150. The line of $x$ shows where the other 450 come from: 500 words of it were read, and it has 50.
#
# A formula that says what a schedule moves is a ledger too, so the two can be subtracted. We write down the compulsory traffic and ask for the difference:

# %%
least = Ledger(reads={"A": 5_000, "x": 50}, writes={"y": 100}, peak=560)
done.ledger - least

# %% [markdown]
# With $\lceil \mathrm{rows}/b \rceil$ blocks the schedule moves
#
# $$ W = \mathrm{rows}\cdot\mathrm{cols} \;+\; \left\lceil \frac{\mathrm{rows}}{b} \right\rceil \mathrm{cols} \;+\; \mathrm{rows} \tag{0.2} $$
#
# words, and only the middle term is more than it must be. So let $x$ stay. The arithmetic is the same, one line has moved:


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
# Both computed the same $y$, and this one moved 5,150 words, the compulsory traffic to the word. Only the order of the moves has changed. Most of this course is that step, taken with attention, where not everything that is needed again can stay.
#
# Why not? Because fast memory is small. Here is the same run with 500 words of it:

# %%
try:
    run(x_stays, M=500, A=A, x=x, b=10)
except FastMemoryFull as error:
    print(error)

# %% [markdown]
# The message names what was wanted, what was free and what stood in the way: 10 rows of $A$ need 500 words, and $x$ already holds 50. You will meet such messages often. They are how the machine says no.
#
# Last, a look ahead. The schedule `flash2` of the library is attention in the loop order of FlashAttention-2. We give it one block that holds everything, and a fast memory large enough, so that nothing has to be read twice:

# %%
Q, K, V = rng.standard_normal((3, 64, 16))
whole = run(flash2, M=10_000, Q=Q, K=K, V=V, Br=64, Bc=64)
words = attempt(my_compulsory, 64, 64, 16)
print(f"attention moved {whole.ledger.total:,} words; your function says {words:,}")
whole.ledger

# %% [markdown]
# It moved 4,096 words, four arrays of 1,024, and reached what your function says is the least. It also took 8,320 words of fast memory for 64 rows. When the sequence is long and fast memory is not, something has to be read again. Which words, and how often, is the subject of lessons 02 to 04.

# %% [markdown]
# ## 0.4 What a word costs
#
# We want to know whether words matter as much as we said. The data sheet of the NVIDIA A100 (40 GB) gives two speeds: $312\cdot10^{12}$ operations a second with 16-bit numbers in its matrix units, where a multiply-add is two operations, and $1555\cdot10^9$ bytes a second from its main memory, where such a number has two bytes. The first divided by the second, in multiply-adds and words, is what the chip can do while one word arrives. Against it stands what an algorithm has to do with each word:
#
# $$ I = \frac{\text{multiply-adds}}{W} \tag{0.3} $$
#
# An algorithm with $I$ below the chip's figure waits for memory. Attention needs $2 N_q N_k d$ multiply-adds: $d$ for each score, and again $d$ to weight the values by it. (The exponentials are few beside them, and left out.)
#
# **Predict.** A model writes text piece by piece: each time one query meets 4,096 keys, $d = 64$. How many multiply-adds does it do for each word moved, if it moves as few words as possible?
# <!-- 40 from https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf -->

# %% tags=["predict"]
predict("0.4", one_query=64)  #> predict("0.4", one_query=...)

# %%
chip = (312e12 / 2) / (1555e9 / 2)  # multiply-adds a second / words a second
one = 2 * 1 * 4096 * 64 / attempt(my_compulsory, 1, 4096, 64)
many = 2 * 4096 * 4096 * 64 / attempt(my_compulsory, 4096, 4096, 64)
naive = 2 * 4096 * 4096 * 64 / (attempt(my_compulsory, 4096, 4096, 64) + 4 * 4096 * 4096)
print(f"the chip, while one word arrives      {chip:8.1f}")
print(f"one query, 4096 keys                  {one:8.1f}")
print(f"4096 queries, 4096 keys               {many:8.1f}")
print(f"the same, S and P in slow memory      {naive:8.1f}")
measured("0.4", one_query=one)

# %% [markdown]
# The chip can do 200.6 multiply-adds while one word arrives. A single query has 1.0 for each word: it waits for memory, and no schedule can change that, since $W$ is already as small as it can be. With 4,096 queries there are 2,048.0 for each word, ten times what the chip can do meanwhile, so memory could keep up. The last line is the same attention if the scores $S$ and the weights $P$ are each written to slow memory once and read back once, which adds $4 N^2$ words: 31.5, and the chip waits again. The last two lines have the same arithmetic and the same result. They differ in words alone.
#
# Two speeds on a data sheet are no measurement, and a real chip has more than two memories. The model of this course leaves that out on purpose: it is small enough that its answers are exact.

# %% [markdown]
# ## The map
#
# | Lesson | You will | Then you can answer |
# | --- | --- | --- |
# | 00 Start here | read a ledger, take a position | What must move? |
# | [01 Naive attention](01_naive_attention.ipynb) | write attention forward and backward by hand, on heads of a real model | What are $S$ and $P$, and what do their $N^2$ words cost? |
# | [02 A machine with two memories](02_two_memories.ipynb) | multiply matrices in tiles on the machine you have just seen | How many words does a fast memory of $M$ words save? |
# | [03 Online softmax](03_online_softmax.ipynb) | normalise a row of scores that comes in pieces | Why does nobody have to store $S$? |
# | [04 FlashAttention's forward pass](04_flash_forward.ipynb) | write three schedules for attention and count them | Which of the three claims are true? |
#
# Do them in this order: each uses what the one before it built. The notebooks you opened with `iocourse lab` are your own copies, in the folder `work/`. They are never overwritten. The solved ones, with all outputs, stand in `solutions/`.

# %% [markdown]
# ## Misconceptions
#
# - *"The result decides how many words move."* In section 0.3 two schedules computed the same $y$. One moved 5,600 words, the other 5,150.
# - *"Attention must move its $N \times N$ scores."* Formula (0.1) has no place for them, and in section 0.3 the machine moved $Q$, $K$, $V$ and $O$ and nothing else: 4,096 words.
# - *"Fewer multiplications make attention faster."* By the figures of section 0.4, attention with $S$ and $P$ in slow memory does 31.5 multiply-adds for each word, on a chip that could do 200.6. It is the words that it waits for.
# - *"One query costs next to nothing."* In section 0.1 one query must move 524,416 words, about half as many as 4,096 queries together.
#
# ## Take-away
#
# Count words. The compulsory traffic says how many must move, a ledger says how many did move, and the difference is the room a better schedule has.
#
# ## References
#
# - Tri Dao, Daniel Y. Fu, Stefano Ermon, Atri Rudra, Christopher Ré: *FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Its section 2 has the figures of a GPU's memories.
# - NVIDIA: *A100 Tensor Core GPU*, data sheet, and its [white paper](https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf). 312 TFLOPS in FP16 (dense), 1,555 GB/s for the 40 GB version.
# - Samuel Williams, Andrew Waterman, David Patterson: *Roofline: an insightful visual performance model for multicore architectures*, Communications of the ACM 52 (4), 2009. Where the comparison of section 0.4 comes from.
#
# **Next**: [01 Naive attention](01_naive_attention.ipynb) writes out everything that FlashAttention avoids, so that you know what is being avoided.
# <!-- 312, 1,555 from https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf -->
