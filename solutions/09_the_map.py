# %% [markdown]
# # 09 The map
#
# Eight lessons have left behind a dozen schedules and half a dozen lower bounds, each good for something. This lesson puts them on one picture, over fast memory $M$ and sequence length $N$, forward and backward. It turns out that five formulas and one rule draw nearly all of it. With the map in hand you look at three real chips, from two kilobytes to fifty megabytes, say which schedule each of them wants, and count. And where the picture shows a gap that no theorem explains, you close it with a schedule that the library does not have.
#
# **What you will learn**
#
# - to read words, bounds and regimes off one picture, and to say each regime in a sentence;
# - to predict the best schedule and its words from $N$, $d$ and $M$ without a search;
# - to ask the question the other way round: how much fast memory for a given traffic?
# - where the course's schedules are close to what is possible, where not, and what is open;
# - to turn the bytes of a data sheet into words, and to see what the model leaves out.
#
# **Prerequisites**: lessons 04, 06 and 07 (the schedules F3, F5, B3, B4) and 05 (the bounds); section 9.6 mentions lesson 08. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: 75, of which <!-- minutes --> are for the exercises.
#
# <!-- exercises -->
#
# Section 9.6 stands by itself: if time runs short, read it another day.

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, explore, masks, run, schedules
from iocourse.bench import ratios
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.machine import probabilities

# %% [markdown]
# ## 9.1 One picture
#
# We want to see at one glance what each schedule moves, and what any schedule must move, for every size of fast memory. `schedules.best` looks at all dense schedules of a pass; for the numbers of this lesson three of each are enough, under the signs of the lessons they come from. (B5 is `small_cache_backward`: F5's idea for the backward pass, with $P$ and $dS$ in slow memory and five products in square tiles.) Each takes the tiles that the library picks for $M$.

# %%
NAMED = {
    "forward": {"F3": "flash_optimal", "F5": "small_cache", "F6": "small_cache_fused"},
    "backward": {"B3": "fused_backward", "B4": "split_backward", "B5": "small_cache_backward"},
}


def counted(N, d, M, pass_):
    """The sign of the schedule that moves the fewest words, and its words."""
    words = {}
    for sign, name in NAMED[pass_].items():
        s = schedules.get(name)
        if s.smallest_M(N, d) <= M:
            words[sign] = s.cost(N, d, **s.tiles(N, d, M)).total
    return min(words.items(), key=lambda item: item[1])


print(counted(8192, 64, 58368, "forward"), counted(8192, 64, 58368, "backward"))

# %% [markdown]
# Here is the forward pass, with every dense schedule and the bounds of which `bounds.lower_bound` takes the largest. (Section 9.7 has ticks for all others.) The picture has a line for each schedule, grey for what is proved impossible, a strip at the foot that says who moves the fewest words, and three shaded areas. The vertical line stands at $M = 58\,368$, the size of section 4.7.

# %%
explore.memory_map(8192, 64, M=58368)

# %% [markdown]
# Each area is a regime, and each takes one sentence:
#
# - **Blocked products**, $M \ll d^2$: not even a few rows fit, so cut $d$ too, let scores travel, and move $4N^2d/\sqrt M + N^2$ words.
# - **Row blocks**, $d^2 \ll M \ll Nd$: rows of $Q$ and $O$ stay, $K$ and $V$ pass by, no score travels, and $4N^2d^2/M$ words move.
# - **Compulsory**, $M$ from about $Nd$ on: one pass is enough, and $4Nd$ words move, whatever $M$ is.
#
# $M$ by itself says little. What counts is $M/d^2$, how many times a square of side $d$ fits, and $M/Nd$, how many times one of the arrays fits.
#
# **Predict.** Between the lowest line and the grey area lies all that is not known. How many times the bound does the best schedule move where that is most, and at what $M/d^2$ is it? Look from $M = 16$ on, for below that no block has more than three rows and all is rounding. (Read it off. The vertical axis has a factor of 10 from mark to mark.)

# %% tags=["predict"]
predict("9.1", gap=2, at=1)  #> predict("9.1", gap=..., at=...)

# %%
N, d, gaps = 8192, 64, {}
for M in (round(2 ** (k / 2)) for k in range(8, 47)):
    words = counted(N, d, M, "forward")[1]
    gaps[M] = words / bounds.lower_bound("forward", N, d, M)[0]
for M in (16, 128, 2896, 58368 // 2, 65536, 524288, 2**22):
    M = min(gaps, key=lambda other: abs(other - M))
    print(f"M = {M:9,} = {M / d**2:8.3f} d² = {M / (N * d):7.4f} Nd: {gaps[M]:.2f} × the bound")
widest = max(gaps, key=gaps.get)
measured("9.1", gap=gaps[widest], at=widest / d**2)

# %% [markdown]
# The gap is widest at the two borders: 2.12 at $0.71\,d^2$, and 2.00 again at $M = Nd$. Inside a regime one bound is close to one schedule; at a border two ideas meet, and neither the schedules nor the proofs combine them. (The 1.85 at 16 words has another reason: blocks of two and three rows.)

# %% [markdown]
# ## 9.2 The map on an envelope
#
# Which schedule is best is decided long before the last word is counted. So let us drop everything small and keep what fits on the back of an envelope. Five closed forms, without the terms of $N$ words for statistics:
#
# | | what stays in fast memory | words |
# | --- | --- | --- |
# | F3 | $B_r$ rows of $Q$ and of $O$ | $2Nd + 2Nd\lceil N/B_r\rceil$ |
# | F5 | a square tile, side $b$, of scores, then of $O$ | $Nd + 3Nd\lceil N/b\rceil + N^2(1 + \lceil d/b\rceil)$ |
# | B3 | $B_c$ rows each of $K$, $V$, $dK$, $dV$ | $5Nd + 4Nd\lceil N/B_c\rceil$ |
# | B4 | first $B_r$ rows each of $Q$, $dO$, $dQ$, then $B_c$ as in B3 | $8Nd + 2Nd\lceil N/B_r\rceil + 2Nd\lceil N/B_c\rceil$ |
# | B5 | a square tile, side $b$, of each product | $5Nd + 7Nd\lceil N/b\rceil + 3N^2(1 + \lceil d/b\rceil)$ |
#
# and one rule in two parts:
#
# $$ \text{what stays fills all of } M, \qquad\text{and}\qquad \lceil x \rceil \;\to\; \max(1, x) . \tag{9.1} $$
#
# The first part gives the size of a block: in F3 two arrays of $B_r$ rows of $d$ words fill $M$. The second drops the rounding but keeps the fact that nobody makes less than one pass. (F6 is left out; it wins in a narrow strip only, as section 7.6 found.)
#
# <!-- exercise 9.1 --> For given $N$, $d$, $M$ and a pass, return the sign of the schedule with the fewest words by (9.1), and these words. No search, no rounding: five lines of arithmetic. If you are stuck after seven minutes, run `hint("9.1")` in a cell of your own.

# %% tags=["exercise"] name="ex-9.1"
def my_envelope(N, d, M, pass_):
    """The schedule with the fewest words by (9.1), and these words, as ("F3", 123.4).

    N, d, M: whole numbers of at least 1. pass_: "forward" (F3, F5) or "backward" (B3, B4, B5).
    """
    ### BEGIN SOLUTION block sizes from M, the five forms, and the smallest of a pass
    def blocks(length, size):
        return max(1, length / size)

    side = M**0.5  # of a square tile that fills M
    if pass_ == "forward":
        words = {
            "F3": 2 * N * d + 2 * N * d * blocks(N, M / (2 * d)),
            "F5": N * d + 3 * N * d * blocks(N, side) + N * N * (1 + blocks(d, side)),
        }
    else:
        rows, columns = blocks(N, M / (3 * d)), blocks(N, M / (4 * d))
        words = {
            "B3": 5 * N * d + 4 * N * d * columns,
            "B4": 8 * N * d + 2 * N * d * (rows + columns),
            "B5": 5 * N * d + 7 * N * d * blocks(N, side) + 3 * N * N * (1 + blocks(d, side)),
        }
    return min(words.items(), key=lambda item: item[1])
    ### END SOLUTION


# %% tags=["check"] name="check-9.1"
check("9.1", my_envelope)

# %% [markdown]
# ## 9.3 Over M and N
#
# Now the whole plane: a row for each $N$, a column for each $M$. First as your envelope sees it, with $d = 64$:

# %%
MEMORIES = [2**k for k in range(8, 25)]
LENGTHS = [4**k for k in range(4, 11)]


def plane(pass_, choose, d=64):
    """A line for each N, in it the sign of the best schedule for each M."""
    lines = ["    log2 M =  " + " ".join(f"{M.bit_length() - 1:2}" for M in MEMORIES)]
    for N in LENGTHS:
        lines.append(f"N = {N:9,} " + " ".join(choose(N, d, M, pass_)[0] for M in MEMORIES))
    return "\n".join(lines)


print(attempt(plane, "forward", my_envelope))
print(attempt(plane, "backward", my_envelope))

# %% [markdown]
# In the forward pass there is a single border, between $M = 2^{11}$ and $2^{12}$, and it stands upright: it is at $0.69\,d^2$, and $N$ has no say in it, as long as it is well above $d$. In the backward pass there is a second one, between B4 and B3, and it slants: four times the $N$, four times the $M$.
#
# Where does it come from? B4 moves $14N^2d^2/M + 8Nd$ words and B3 $16N^2d^2/M + 5Nd$. They are equal where $2N^2d^2/M = 3Nd$, at $M = \frac23 Nd$. The best order for long sequences is not the best one for sequences that nearly fit.
#
# **Predict.** Now we count instead. The plane has 119 places for each pass. In how many of the 238 does the envelope name the schedule that really moves the fewest words? And how many times its words does the count come to, where they differ most?
# <!-- 0.69 = (2 / (1 + math.sqrt(2))) ** 2 -->
# <!-- 119, 238 = 7 * 17, 2 * 7 * 17 -->

# %% tags=["predict"]
predict("9.3", right_names=200, worst=2)  #> predict("9.3", right_names=..., worst=...)

# %%
def compare(choose, d=64):
    """Names that agree with the count, and words counted over words by `choose`."""
    agree, factors = 0, []
    for pass_ in NAMED:
        for N in LENGTHS:
            for M in MEMORIES:
                guess, by_guess = choose(N, d, M, pass_)
                sign, words = counted(N, d, M, pass_)
                agree += guess == sign
                factors.append(words / by_guess)
    return agree, min(factors), max(factors)


found = attempt(compare, my_envelope)
print(f"names right {found[0]} of 238; counted words over the envelope's: "
      f"from {found[1]:.2f} to {found[2]:.2f}")
measured("9.3", right_names=found[0], worst=found[2])

# %% [markdown]
# 237 of 238 names, and the words within a factor of 1.5. The one name that is wrong belongs to F6. The factor 1.5 is the rounding that we dropped: a little more than one block is two blocks, and F3 then moves $6Nd$ words where the envelope says $4Nd$.
#
# So the choice is robust, and the number is not. Where you need the number, count.

# %% [markdown]
# ## 9.4 Along N
#
# So far we asked what a given sequence needs. Now fix the chip, $M = 58\,368$ and $d = 64$, and let the sequence grow. As long as one block of queries holds all of $Q$ and $O$, F3 makes a single pass, and the words are compulsory.
#
# **Predict.** Up to which $N$ does F3 move $4Nd$ words? And by what factor do its words grow from $N = 8192$ to $16\,384$?

# %% tags=["predict"]
predict("9.4", compulsory_up_to=445, growth=4)  #> predict("9.4", compulsory_up_to=..., growth=...)

# %%
d, M = 64, 58368


def f3_words(N):
    return costs.flash_optimal(N, d, Br=min(N, (M - d) // (2 * d + 3)), Bc=1).total


whole = max(N for N in range(1, 2000) if f3_words(N) == 4 * N * d)
for N in (whole, whole + 1, 8192, 16384):
    print(f"N = {N:6,}: {f3_words(N):10,} words, {f3_words(N) / (4 * N * d):5.2f} times 4Nd")
measured("9.4", compulsory_up_to=whole, growth=f3_words(16384) / f3_words(8192))

# %%
grid = [round(2 ** (k / 4)) for k in range(24, 67)]
bound = [(N, bounds.lower_bound("forward", N, d, M)[0] / (4 * N * d)) for N in grid]
explore.curve(
    {"F3": [(N, f3_words(N) / (4 * N * d)) for N in grid]}, {"lower bound": bound},
    title="Words as multiples of 4Nd, d = 64, M = 58,368", xlabel="N", ylabel="words / 4Nd",
)

# %% [markdown]
# 445 tokens, and 446 take half as many words again, for the second block of queries makes a second pass over $K$ and $V$. From then on the words climb in steps of $2Nd$, and far to the right in proportion to $N$ for each token, that is, like $N^2$: doubling 8192 multiplies them by 3.8. "Linear" and "quadratic" are both true of FlashAttention, on two sides of $N = M/2d$.
#
# Now turn the question round. You are designing the chip, and F3 may move at most $W$ words: how much fast memory does it take? In the steps of the picture lies the answer: which numbers of passes does $W$ allow, how large must a block of queries be for so few, and what is its footprint?
#
# $$ W = 2Nd + 2Nd\left\lceil \frac N{B_r} \right\rceil, \qquad M = B_r(2d + 3) + d . \tag{9.2} $$
#
# <!-- exercise 9.2 --> Give the smallest $M$ with which F3, with $B_c = 1$, moves at most $W$ words. To the word, and without a search: the check goes up to sizes at which trying every $B_r$ would take too long. You may assume $W \ge 4Nd$. If you are stuck after five minutes, run `hint("9.2")` in a cell of your own.

# %% tags=["exercise"] name="ex-9.2"
def my_smallest_memory(N, d, W):
    """The smallest M with which F3 moves at most W words.

    N, d, W: whole numbers, W at least 4Nd.
    """
    ### BEGIN SOLUTION passes that W allows, rows for so few passes, their footprint
    passes = (W - 2 * N * d) // (2 * N * d)
    Br = -(-N // passes)  # N / passes, rounded up
    return Br * (2 * d + 3) + d
    ### END SOLUTION


# %% tags=["check"] name="check-9.2"
check("9.2", my_smallest_memory)

# %%
N, d, allowed = 8192, 128, (1, 1.5, 2, 4, 8, 16)
budgets = [int(times * 4 * N * d) for times in allowed]
needed = attempt(lambda: [my_smallest_memory(N, d, W) for W in budgets])
for times, M in zip(allowed, needed, strict=False):
    print(f"at most {times:4} × 4Nd: {M:9,} words = {M / (N * d):5.3f} Nd, "
          f"{2 * M / 1024:7,.1f} KB in bf16")

# %% [markdown]
# These are heads of 128 columns in bf16, two bytes a word. The compulsory words alone ask for about 4 MB of fast memory. Half of it costs half as much traffic again. Further down, twice the traffic is the price for a little less than half the memory.

# %% [markdown]
# ## 9.5 The backward pass
#
# The same picture for training. One line is drawn and not ranked: B0, `standard_backward`, is given $P$, which a forward pass had to make and store for it, and the bounds do not count on that.

# %%
explore.memory_map(8192, 64, M=58368, pass_="backward")

# %% [markdown]
# The same three regimes. In the middle stands B4 with its $14N^2d^2/M$, over Theorem C with its $12$. On the left is B5, with $10N^2d/\sqrt M + 3N^2$. With $x = d/\sqrt M$ as in section 7.6, the two meet where $14x^2 = 10x + 3$, at $x = 0.942$: $M = 1.13\,d^2$. (A small $d$ shifts that a little: at $d = 64$ B4 is ahead only from about $1.2\,d^2$ on.)
#
# So from $0.69\,d^2$ to $1.13\,d^2$ the two passes want different ideas: rows forward, square tiles backward.
#
# One remark on B0. For $M \ll d^2$ it moves fewer words than B5: with $d = 128$ and $M = 512$, 3,644,850,176 against 4,284,506,112. To make the scores again costs $2N^2d/\sqrt M$ words there, and to read $P$ only $N^2$. Recomputation is a bargain when whole rows are at hand, and none when they come column by column. F5 puts its scores into slow memory anyway; where there is room to keep all of them, the backward pass saves a fifth of its $10N^2d/\sqrt M$ words. That B4 makes all scores twice and moves fewer words for it (section 6.8) is true for $M \gg d^2$ only.
#
# Now look at the right end, where everything fits.
#
# **Predict.** In units of $Nd$: the compulsory words of the backward pass are $7$. How many does the best of the library's backward schedules move when $M$ is as large as you like?
# <!-- x = (10 + math.sqrt(10**2 + 4 * 14 * 3)) / (2 * 14) -->
# <!-- 0.942, 1.13 = x, 1 / x**2 -->
# <!-- 3,644,850,176, 4,284,506,112 = (s.cost(8192, 128, **s.tiles(8192, 128, 512)).total for s in (schedules.standard_backward, schedules.small_cache_backward)) -->

# %% tags=["predict"]
predict("9.5", nd_words=7)  #> predict("9.5", nd_words=...)

# %%
N, d, M = 8192, 128, 10**9
for s in schedules.of_pass("backward"):
    ledger = s.cost(N, d, **s.tiles(N, d, M))
    times = {array: n // (N * d) for array, n in ledger.reads.items() if n >= N * d}
    often = ", ".join(f"{array} {n}" for array, n in times.items())
    print(f"{s.name:20} {ledger.total / (N * d):8.3f} Nd   reads {often}")
measured("9.5", nd_words=counted(N, d, M, "backward")[1] / (N * d))

# %% [markdown]
# 9.023, and not 7: a factor of 1.29, with all the memory in the world. The reads say why. B3 reads $O$, which is no input of the bound, and it reads $dO$ a second time; both only for $D_i = \sum_c do_{ic}\,o_{ic}$, in a sweep of its own (section 6.6). That was right as long as a block of queries never met all keys at once. When all of $K$ and $V$ stay, it does.
#
# Theorem C says nothing here, the compulsory bound says 7. Either there is a better schedule or a better proof. It is a schedule, and it is yours to write.
#
# <!-- exercise 9.3 --> Write a backward pass that moves $7Nd + N$ words, the $N$ for the log-sum-exp. All of $K$, $V$, $dK$ and $dV$ may stay in fast memory, $4Nd$ words; blocks of $B_r$ queries pass by, once. You are not given $O$, and you do not need it. $D_i$ can be made in fast memory, as in (6.3) or as in (6.6); either way, what you need for it is already there. The check gives $4Nd + B_r(3d + 2N + 6)$ words: beside what stays, for each query of a block three rows of $d$ words, two rows of $N$ scores, and six words. `D_i.add_row_products(A, B)` adds to each row's word the products of two tiles summed over their columns, `s.times_product(A, B, less=D_i)` turns weights into score gradients, both without a temporary. If you are stuck after twelve minutes, run `hint("9.3")` in a cell of your own.

# %% tags=["exercise"] name="ex-9.3"
def my_whole_backward(m, Q, K, V, dO, LSE, *, Br):
    """dQ, dK, dV with all keys in fast memory, each input read once.

    m: the machine. Q, K, V, dO: slow arrays (N, d). LSE: slow array (N,).
    Br: rows in a block of queries. Returns the slow arrays (dQ, dK, dV), each (N, d).
    """
    N, d = Q.shape
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    ### BEGIN SOLUTION keys stay; for each block of queries its weights, D, and three gradients
    for j in m.blocks(N, N):  # one block: all keys
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):  # q, do, dq (Br, d), L_i and D_i (Br,), s (Br, N)
                with m.load(Q, i) as q, m.load(dO, i) as do, m.load(LSE, i) as L_i:
                    q *= d**-0.5
                    with q @ k.T as s, m.zeros(i) as D_i:
                        probabilities(s, L_i)
                        with s @ v as o:  # (Br, d), never stored
                            D_i.add_row_products(do, o)
                        dv.add_product(s.T, do)
                        s.times_product(do, v.T, less=D_i)
                        dk.add_product(s.T, q)
                        with s @ k as dq:  # (Br, d)
                            dq *= d**-0.5
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV
    ### END SOLUTION


# %% tags=["check"] name="check-9.3"
check("9.3", my_whole_backward)

# %%
N, d = 256, 16
rng = np.random.default_rng(9)
Q, K, V, dO = rng.standard_normal((4, N, d))
leaves = schedules.forward_leaves(Q, K, V)
whole = attempt(run, my_whole_backward, M=6 * N * d, Q=Q, K=K, V=V, dO=dO,
                LSE=leaves["LSE"], Br=1)
want = exact.attention_backward(Q, K, V, dO)
error = max(abs(whole.outputs[k] - want[k]).max() for k in range(3))
b3 = costs.fused_backward(N, d, Br=1, Bc=N)
least = bounds.lower_bound("backward", N, d, 6 * N * d)[0]
print(whole.ledger)
print(f"largest error below 1e-12: {error < 1e-12}; B3 {b3.total:,} words, "
      f"yours {whole.ledger.total:,}, bound {least:,}")

# %% [markdown]
# 28,928 words where B3 moves 37,632 and 28,672 are compulsory. The map had a blank, and one look at the reads was enough to see what to do about it. That is what a map with bounds is for: a table of schedules alone would never have said that 9 is too much.

# %% [markdown]
# ## 9.6 Two more layers: dL/dX and masks
#
# *The gradient of 2410.09397.* In lesson 07 it turned out to be attention with a few products around it, and its map looks accordingly:

# %%
explore.memory_map(8192, 64, pass_="gradient")

# %% [markdown]
# Blocked products up to $0.86\,d^2$, where $10x^2 = 8x + 3$; then row blocks with 10, and, as soon as $X$, $Y$ and the result take up a small part of $M$, the reassociated order with 8. The wide band between the schedules and the grey has one known reason: the bound counts the forward part alone.
#
# *Masks.* A mask takes pairs away. So it lowers what is counted in pairs, the lines of the middle, the theorems, and the terms with $N^2$ on the left. What is counted in rows it leaves alone, the compulsory words at the right end. On the map a mask with a share $\rho$ of the pairs shifts lines and bound down by a factor $\rho$ until they reach the floor. If neighbouring queries agree on their keys, that is; lesson 08 showed how far the lines stay above the bound if they do not.
#
# **Predict.** $N = 8192$, $d = 64$. With a causal mask, which part of its words without a mask does F3 move at $M = 16\,384$? And at $M = 2\,000\,000$?
# <!-- 0.86 = (2 * 10 / (8 + math.sqrt(8**2 + 4 * 10 * 3))) ** 2 -->

# %% tags=["predict"]
predict("9.6", middle=0.5, right_end=0.5)  #> predict("9.6", middle=..., right_end=...)

# %%
N, d, part = 8192, 64, {}
for M in (16384, 2_000_000):
    dense = schedules.against_bound("flash_optimal", N, d, M)
    causal = schedules.against_bound("block_sparse", N, d, M, mask=masks.Causal(N))
    part[M] = causal.words / dense.words
    print(f"M = {M:9,}: dense {dense.words:10,}, causal {causal.words:10,} words, "
          f"{causal.ratio:.2f} × bound {causal.bound_id}")
measured("9.6", middle=part[16384], right_end=part[2_000_000])

# %% [markdown]
# 0.518 in the middle. At the right end 1: each row of $Q$, $K$, $V$ and $O$ is still needed, and there was nothing else to save.

# %% [markdown]
# ## 9.7 Your hand on the map
#
# Run the next cell; Tab moves from one control to the next, the arrow keys move a slider, the space bar sets a tick. (Without a running kernel you see a still picture.) Four things to look for:
#
# - `N` up: the right border moves to the right, the left one stays where it is.
# - `d` up: the left border moves to the right, to four times the `M` for twice the `d`.
# - Take all ticks of schedules away but one, and move `M` from left to right: where is it within twice the bound?
# - The pass `backward`: up to which `M` does `standard_backward`, with $P$ as a gift, move fewer words than the rest?

# %%
explore.memory_explorer()

# %% [markdown]
# ## 9.8 How near, and what is open
#
# How far are the best schedules from what is proved? The library keeps that as a table, computed anew each time from closed forms and theorems. The same table comes from `iocourse bench ratios` in a terminal.
#
# **Predict.** B4 with $d = 64$ and $M = 64d^2$, at $N = 32\,768$ and at $N = 2^{22}$: how many times the bound?

# %% tags=["predict"]
predict("9.8", n_32768=1.4, n_4194304=1.17)  #> predict("9.8", n_32768=..., n_4194304=...)

# %%
print(ratios.show(ratios.run(quick=True)))
b4 = {claim.N: found.ratio for claim, found in ratios.comparisons()
      if claim.schedule == "split_backward"}
measured("9.8", n_32768=b4[32768], n_4194304=b4[2**22])

# %% [markdown]
# The last column is what the course set out to reach; the ratios are below it in every line that has one. The first line is F3 on the memory of section 4.7. The second compares F3 with Theorem B, which holds for schedules that form no product $q_{ic}k_{jc}$ twice. The third is F5 with wide heads. The others are B4, which goes down from 1.785 to 1.260 as $N$ grows: at first the $8Nd$ weigh and the rounding, in the end $14/12$ and $M + 4d^2$ against $M$.
#
# These are the good places. Elsewhere on the map more is open; for none of the open lines do we know the answer:
#
# | where | best schedule | bound | open |
# | --- | --- | --- | --- |
# | forward, $M \ll d^2$ | F5, $4N^2d/\sqrt M$ | B', $4N^2d/\sqrt M$ | nothing in the leading term |
# | forward, around $0.7d^2$ | F3, F5, F6, about $6N^2$ | A and B', about half | a factor of 2 |
# | forward, $d^2 \ll M \ll Nd$ | F3, $4N^2d^2/M$ | A, $4N^2d^2/M$ | nothing in the leading term |
# | forward, around $Nd$ | F3, in steps of $2Nd$ | $4Nd$ or A, not their sum | a factor of 2 |
# | backward, $M \ll d^2$ | B5, $10N^2d/\sqrt M$ | C, $6N^2d/\sqrt M$; weighted $6.83$ | 10 against 6.83 |
# | backward, around $d^2$ | B5, B4, about $13N^2$ | C, below $5N^2$ | a factor of 2.8 |
# | backward, $d^2 \ll M \ll Nd$ | B4, $14N^2d^2/M$ | C, $12N^2d^2/M$ | 14 against 12 |
# | backward, $Nd$ to $4Nd$ | B3, in steps of $4Nd$ | $7Nd$ or C, not their sum | a factor of 2.4 |
# | backward, from a little over $4Nd$ on | yours, $7Nd + N$ | $7Nd$ | nothing |
# | $dL/dX$, $d^2 \ll M \ll Nd$ | reassociated, $8N^2d^2/M$ | $4N^2d^2/M$ | the backward part |
#
# All these bounds with numbers are derivations of this course, for the classes of schedules that lessons 05 to 07 state. The papers prove orders of growth, and for the forward pass and for $dL/dX$ their bounds and algorithms meet: up to a constant the shape of the map was known.
# <!-- 6.83 = 4 + 2 * math.sqrt(2) -->
# <!-- moved = lambda name, N, d, M: (lambda s: s.cost(N, d, **s.tiles(N, d, M)).total)(schedules.get(name)) -->
# <!-- apart = lambda name, N, d, M: moved(name, N, d, M) / bounds.lower_bound("backward", N, d, M)[0] -->
# <!-- 2.8 = min(apart(name, 2**22, 4096, 4096**2) for name in ("split_backward", "small_cache_backward")) -->
# <!-- 2.4 = max(min(apart(name, 8192, 64, 8192 * 64 * tenth // 10) for name in ("fused_backward", "split_backward")) for tenth in range(10, 41)) -->

# %% [markdown]
# ## 9.9 Four memories of three chips
#
# Now real sizes. Three chips that could hardly be more different, all with the attention head of a large language model: $N = 8192$ tokens, $d = 128$. Data sheets speak of bytes, with 1 KB = 1024 bytes:
#
# - **uno**: the ATmega328P of an Arduino UNO has 2 KB of SRAM. Numbers in float32. (Its program needs some of that for itself; we give it all.)
# - **stm32**: an STM32F746 microcontroller has 64 KB of data memory that is coupled to its core, the DTCM. It is no cache: the program says what lies there, as in our model. Numbers in float32.
# - **sm**: one streaming multiprocessor of an NVIDIA H100 has up to 228 KB of shared memory, and a program may use 227. Numbers in bf16.
# - **l2**: the level-2 cache of the same H100 has 50 MB, shared by all of its multiprocessors. Numbers in bf16.
#
# Slow memory is what comes after: a memory chip on a bus for the two small ones, HBM for the H100.

# %%
N, d = 8192, 128
CHIPS = {"uno": (2 * 1024, 4), "stm32": (64 * 1024, 4),  # bytes, bytes a word
         "sm": (227 * 1024, 2), "l2": (50 * 1024**2, 2)}
MEMORY = {chip: size // word for chip, (size, word) in CHIPS.items()}  # in words
for chip, M in MEMORY.items():
    print(f"{chip:6} {M:10,} words = {M / d**2:9.3f} d² = {M / (N * d):8.4f} Nd")

# %% [markdown]
# **Predict.** Which schedule moves the fewest words? Write 3 for F3 and 5 for F5 in the first line, and 3 for B3, 4 for B4 and 5 for B5 in the second. The borders are at $0.69\,d^2$ forward, and at $1.13\,d^2$ and $\frac23 Nd$ backward.

# %% tags=["predict"]
predict("9.9a", uno=5, stm32=3, sm=3, l2=3)  #> predict("9.9a", uno=..., stm32=..., sm=..., l2=...)
predict("9.9b", uno=5, stm32=5, sm=4, l2=3)  #> predict("9.9b", uno=..., stm32=..., sm=..., l2=...)

# %% [markdown]
# Now we count, in a dry run of the winner on the machine:

# %%
def by_envelope(pass_):
    return " ".join(f"{chip} {my_envelope(N, d, M, pass_)[0]}" for chip, M in MEMORY.items())


best = {}
for pass_, question in (("forward", "9.9a"), ("backward", "9.9b")):
    print(f"{pass_} by the envelope:", attempt(by_envelope, pass_))
    for chip, M in MEMORY.items():
        sign, _ = counted(N, d, M, pass_)
        s = schedules.get(NAMED[pass_][sign])
        done = run(s, M=M, dry=True, **s.shapes(N, d), **s.tiles(N, d, M)).ledger
        least, which = bounds.lower_bound(pass_, N, d, M)
        print(f"  {chip:6} {sign} {done.total:13,} words, {done.total / least:.2f} × {which}")
        best[chip] = int(sign[1])
    measured(question, **best)

# %% [markdown]
# All eight answers of the envelope are right, and `schedules.best`, which looks at every schedule, finds none that moves fewer words. (`C_small` is the line "Theorem C, weighted" of section 9.5.) Look at the stm32 in both passes. Its 64 KB are 16,384 words, exactly $d^2$. It sits between the two borders, so it wants rows forward and square tiles backward. With $d = 64$ the same chip would be at $4d^2$ and want rows for both. A regime is never a property of a chip; it belongs to the chip *and* the head.
#
# The L2 cache has room for 25 arrays of $Nd$ words. Forward nothing is left to do. Backward B3 moves 1.29 times the compulsory words; now yours:

# %%
M, rows = MEMORY["l2"], (N, d)
yours = attempt(run, my_whole_backward, M=M, dry=True, Q=rows, K=rows, V=rows, dO=rows,
                LSE=(N,), Br=16)
least = bounds.lower_bound("backward", N, d, M)[0]
print(f"yours {yours.ledger.total:,} words, {yours.ledger.total / least:.3f} × the bound, "
      f"on {yours.ledger.peak:,} words of fast memory")

# %% [markdown]
# 7,348,224 words, 1.001 times the bound. From the eight-bit chip to the L2 cache fast memory grows by a factor of 51,200. In the forward pass that makes 415 times fewer words.
# <!-- uno, l2 = 2 * 2**10 // 4, 50 * 2**20 // 2 -->
# <!-- 51,200 = l2 / uno -->
# <!-- small, rows = schedules.small_cache, schedules.flash_optimal -->
# <!-- 415 = small.cost(8192, 128, **small.tiles(8192, 128, uno)).total / rows.cost(8192, 128, **rows.tiles(8192, 128, l2)).total -->

# %% [markdown]
# ## 9.10 Where the map ends
#
# The model has one fast memory, one slow one, and counts words. A GPU differs in ways that later lessons measure:
#
# - **Whose traffic?** The count is between *one* program and the level below it. On a GPU a program runs on one multiprocessor, and below it lies L2, which all share. $K$ and $V$ of one head are 4 MB here; they stay in L2 while many programs read them. So our words for `sm` are words from L2, and HBM sees rather those for `l2`. Two levels, two places on the map, at the same time.
# - **Which fast memory?** The 227 KB are shared memory. Beside it a multiprocessor has registers, 256 KB of them, and real kernels keep $O$ and the scores there. Several programs may share one multiprocessor, then each has a part of $M$; and a program that loads the next block while it works on this one needs room for two.
# - **How large is a word?** In real kernels inputs are bf16, sums float32: a row of $O$ takes twice the room of a row of $Q$.
# - **Which tiles?** Matrix units multiply a tile by a tile. $B_c = 1$ is best in words, and leaves them almost idle.
#
# The last one we can count. Let a block have 64 keys, and take queries in multiples of 16.
#
# **Predict.** How many times the words of F3's best tile does that move, on `sm`?
# <!-- 4 = 2 * 8192 * 128 * 2 / 2**20 -->

# %% tags=["predict"]
predict("9.10", times=1.3)  #> predict("9.10", times=...)

# %%
M, words = MEMORY["sm"], {}
for Bc in (1, 16, 64, 128):
    Br = (M - Bc * d) // (2 * d + 2 + Bc)  # (4.3), solved for Br
    Br = Br if Bc == 1 else Br // 16 * 16
    words[Bc] = costs.flash_optimal(N, d, Br=Br, Bc=Bc).total
    print(f"Br = {Br:3}, Bc = {Bc:3}: {words[Bc]:11,} words, {words[Bc] / words[1]:.2f} times")
measured("9.10", times=words[64] / words[1])

# %% [markdown]
# 1.35 for tiles that matrix units can use. On the map, which spans factors of thousands, it is the width of a pen stroke; on an invoice for a month of training it is not. The map says which order to begin with, and what a step away from it costs.

# %% [markdown]
# ## Misconceptions
#
# - **"A chip has a regime."** A chip and a head have one: 64 KB in float32 are $d^2$ words at $d = 128$ and $4d^2$ at $d = 64$ (9.9).
# - **"The best forward order tells the best backward order."** On the stm32 F3 wins forward and B5 backward (9.9), everywhere between $0.69$ and $1.13\,d^2$.
# - **"With enough memory everything is compulsory."** The library's best backward schedule moves $9Nd$ with a billion words, where $7Nd$ are compulsory; reaching them took a new order (9.5).
# - **"Twice the memory, half the words."** In the middle, about. At the left end twice the memory is a factor of $\sqrt2$, at the right end nothing (9.1).
# - **"FlashAttention is quadratic."** Beyond $N \approx M/2d$. Up to 445 tokens at $d = 64$ and $M = 58\,368$ it moves $4Nd$ words (9.4).
#
# ## Take-away
#
# - Three regimes: square tiles for $M \ll d^2$, row blocks for $d^2 \ll M \ll Nd$, the compulsory words from there on. The borders are at $0.69\,d^2$ forward, $1.13\,d^2$ backward, and around $Nd$.
# - Fill $M$ with what stays, drop the rounding, never go below one pass: five formulas choose the schedule, and give the words within a factor of 1.5.
# - The course is closest to what is possible inside a regime, and farthest at its borders. A gap on the map is a question: a better order or a better proof?
# - The map knows two memories. A GPU has more, and stands at several places of it at once.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691).
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The two regimes of the forward pass, up to constants.
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On Fine-Grained I/O Complexity of Attention Backward Passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). The same for $dL/dX$.
# - *ATmega328P*, data sheet, [docs.arduino.cc](https://docs.arduino.cc/resources/datasheets/ATmega328P-datasheet.pdf): 2 KB of SRAM. That an UNO R3 carries this chip is in its product reference manual, SKU A000066.
# - STMicroelectronics: *STM32F745xx, STM32F746xx*, data sheet DS10916: 320 KB of SRAM, 64 KB of it data TCM. Zephyr's [description of the chip](https://github.com/zephyrproject-rtos/zephyr/blob/main/dts/arm/st/f7/stm32f746.dtsi) has the same number.
# - NVIDIA: *Tuning CUDA Applications for Hopper GPU Architecture*, [docs.nvidia.com](https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html), sections 1.4.1.1 and 1.4.2.2. H100: for each multiprocessor 228 KB of shared memory, 227 for one block of threads, and 64K registers of 32 bits; 50 MB of L2.
#
# **What comes next.** The later lessons leave the emulator: the same schedules as kernels of a GPU, counted, and then timed.
