# %% [markdown]
# # 09 The map
#
# Eight lessons have left behind a dozen schedules and half a dozen lower bounds. This lesson puts them on one picture, over fast memory $M$ and sequence length $N$. One rule draws nearly all of it, and a search of a few lines finds the schedules. With the map in hand you choose schedules for three real chips, from two kilobytes to fifty megabytes. And where the picture shows a gap that no theorem explains, you close it with a schedule that the library does not have.
#
# **What you will learn**
#
# - to read words, bounds and regimes off one picture;
# - to find all sequences of sweeps for a pass, and which of them wins at which $M$;
# - to predict the best schedule and its words from $N$, $d$ and $M$;
# - where the schedules are close to what is possible, and what is open;
# - to turn the bytes of a data sheet into words.
#
# **Prerequisites**: lessons 04, 06 and 07 (the schedules F3, F7, F5, B3, B4) and 05 (the bounds). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, explore, run, schedules, sweeps
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.machine import probabilities

# %%
explore.traffic_map(8192, 64, M=58368)

# %% [markdown]
# ## 9.1 One picture
#
# The forward pass over fast memory: a line for each schedule, grey for what is proved impossible, a strip at the foot that says who moves the fewest words, and a shaded area for each regime. The vertical line stands at $M = 58\,368$, the size of section 4.7. (F3c, at the right of the strip, comes in section 9.4.)
#
# Each area is a regime, and each takes one sentence:
#
# - **Blocked products**, up to $d^2/4$: not even a few rows fit, so cut $d$ too, let scores travel, and move $4N^2d/\sqrt M + N^2$ words.
# - **$N \times N$ stored**, $d^2/4$ to $d^2$: rows fit, but of one array at a time, so scores go out after the first product and come back for the second.
# - **Row blocks**, $d^2$ to about $Nd$: rows of $Q$ and $O$ stay, $K$ and $V$ pass by, no score travels, and $4N^2d^2/M$ words move.
# - **Compulsory**, from there on: one pass is enough, and $4Nd$ words move, whatever $M$ is.
#
# $M$ by itself says little. What counts is $M/d^2$, how many times a square of side $d$ fits, and $M/Nd$, how many times one of the arrays fits.
#
# **Predict** (guess). How many times the bound does the best schedule move where that is most, and at what $M/d^2$ is it? Look from $M = 16$ on, for below that no block has more than three rows. (Read it off; from mark to mark is a factor of 10.)

# %% tags=["predict"]
predict("9.1", gap=2, at=1)  #> predict("9.1", gap=..., at=...)

# %%
N, d = 8192, 64
gaps = {gap.M: gap.ratio for gap in
        schedules.optimality_gaps("forward", N, d, [round(2 ** (k / 2)) for k in range(8, 47)])}
for M in (16, 128, 1024, 4096, 16384, 65536, 524288, 2**22):
    print(f"M = {M:9,} = {M / d**2:8.3f} d² = {M / (N * d):7.4f} Nd: {gaps[M]:.2f} × the bound")
widest = max(gaps, key=gaps.get)
measured("9.1", gap=gaps[widest], at=widest / d**2)

# %% [markdown]
# <details><summary>Where the gap is widest</summary>
#
# The gap is widest at two borders: 1.95 at $d^2$, and 1.84 at $M = Nd$. Deep inside a regime one bound is close to one schedule; at a border two ideas meet, and the proofs do not combine them. (The 1.85 at 16 words has another reason: blocks of two and three rows.)
#
# </details>
#
# ## 9.2 All sequences of sweeps
#
# In lesson 06 a sweep goes once through all pairs and costs what stays times what passes, (6.9). As F7 showed, it can also write an $N \times N$ matrix for a later sweep to read. In units of $N^2$ words, with $x = d/\sqrt M$ as in lesson 07, a sweep costs
#
# $$ r\,t\,x^2 + n , \tag{9.1} $$
#
# where $r$ arrays stay, $t$ pass, and $n$ matrices travel. Here is every sweep of the forward pass, by what slow memory holds before it. $O$ passes twice where it is read and written, and is named twice.

# %%
FORWARD = {  # before: (what stays, what passes, matrices that travel, what is there afterwards)
    "inputs": [("Q O", "K V", 0, "outputs"), ("K V", "Q O O", 0, "outputs"),
               ("Q", "K", 1, "S"), ("K", "Q", 1, "S")],
    "S": [("O", "V", 1, "outputs"), ("V", "O O", 1, "outputs"), ("Q O", "K V", 0, "outputs")],
}

# %% [markdown]
# <!-- exercise 9A --> Find the cheapest sequence of sweeps by (9.1) that leads from one state of slow memory to another. The check brings other tables of the same form as well, also with more states. No sweep leads back to an earlier state, and from every state there is a way to the goal. If you are stuck after six minutes, run `hint("9A")` in a cell of your own.

# %% [raw] name="about-9A"
# title = "Sweeps in sequence"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "Two smaller questions: what does one sweep cost? And if you knew the cheapest sequence from each state that a sweep leads to, which first sweep would you choose?",
#   "The function may call itself: the cheapest sequence from a state is one sweep followed by the cheapest sequence from its end state. At the goal the sequence is empty and costs nothing.",
#   "Split the texts at blanks and count the names: one product, times x squared, plus the matrices. For each sweep of the state, add its words to those of the rest and prepend it to the list; return the pair with the fewest words.",
# ]

# %% tags=["exercise"] name="ex-9A"
def my_cheapest(sweeps, x, state, goal):
    """The words of the cheapest sequence of sweeps, in units of N², and the sequence.

    sweeps: for each state a list of sweeps (what stays, what passes, matrices, next state),
    arrays separated by blanks. x: d/√M. Returns a number and a list of sweeps out of `sweeps`.
    """
    ### BEGIN SOLUTION nothing at the goal; else a sweep, and the cheapest from where it leads
    if state == goal:
        return 0, []
    found = []
    for sweep in sweeps[state]:
        stays, passes, matrices, after = sweep
        words = len(stays.split()) * len(passes.split()) * x**2 + matrices
        rest, path = my_cheapest(sweeps, x, after, goal)
        found.append((words + rest, [sweep, *path]))
    return min(found, key=lambda one: one[0])
    ### END SOLUTION


# %% tags=["check"] name="check-9A"
check("9A", my_cheapest)


# %%
def cheapest_at(times):
    words, path = my_cheapest(FORWARD, times**-0.5, "inputs", "outputs")
    return f"{words:.2f} N²: " + ", then ".join(
        f"{stays} stay, {passes} pass" for stays, passes, *_ in path)


for times in (2, 1.05, 0.95, 0.5):  # M in units of d²
    print(f"M = {times:4} d²:", attempt(cheapest_at, times))

# %% [markdown]
# F3 above $d^2$, F7 below: $4x^2 = 2x^2 + 2$ at $x = 1$. The papers change regime at $M = d^2$. They look at growth alone, so the border could be anywhere near; with the smallest constants known it is $d^2$ exactly.
#
# A sweep with one product can also be cut. In *two slices* half the width of a sum stays, so twice the rows: $x^2/2$ in place of $x^2$, for one more reading of the matrix. In *tiles* of $\sqrt M \times \sqrt M$ it costs $2x$ plus what it writes, as in F5. The library's search, `iocourse.sweeps`, knows these too, and the five products of the backward pass.
#
# **Predict** (guess). B4 moves $14x^2$. At $M = d^2$ that is $14N^2$ words. How many has the best of all sequences of the backward pass?

# %% tags=["predict"]
predict("9.2", backward=10)  #> predict("9.2", backward=...)

# %%
found = sweeps.min_cost("backward", 1)
print(found)
for pass_ in ("forward", "backward", "given"):
    for piece in reversed(sweeps.lower_envelope(pass_, 0.25, 4)):
        a, b, c = (f"{number:g}" for number in (piece.a, piece.b, piece.c))
        print(f"{pass_:9} M from {1 / piece.x_to**2:6.3f} d²: {a:>3} x² + {b:>2} x + {c}")
measured("9.2", backward=found.cost)

# %% [markdown]
# <details><summary>What storing two matrices saves</summary>
#
# Ten: $5x^2 + 5$. $P$ is stored, $dS$ is written over it, and never do more than two arrays stay.
#
# </details>
#
# With names (and as far as $x = 4$ was asked):
#
# | $M$ | forward | $M$ | backward | backward, $P$ given |
# | --- | --- | --- | --- | --- |
# | from $d^2$ | F3, $4x^2$ | from $2.5d^2$ | B4, $14x^2$ | B4, $14x^2$ |
# | from $d^2/2$ | F7, $2x^2 + 2$ | from $4d^2/3$ | B6, $9x^2 + 2$ | `weights_precomputed`, $4x^2 + 4$ |
# | from $d^2/4$ | F7 in slices (F7d), $1.5x^2 + 3$ | from $d^2/2$ | B7, $5x^2 + 5$ | the same |
# | | | from $d^2/4$ | B7 in slices, $4x^2 + 7$ | in slices, $3x^2 + 6$ |
# | below | F5, $4x + 1$ | below | B5, $10x + 3$ | `small_cache_precomputed`, $8x + 2$ |
#
# B6, `score_gradients_stored`, is B4 with $dS$ stored in the second sweep, so that $dQ$ needs no scores of its own. B7, `weights_stored`, is what you see above. B5, `small_cache_backward`, is F5's idea, five products in tiles. All run on the machine.
#
# They are least *among sweeps*. That is no lower bound: a schedule of another kind may move less, and section 9.4 meets one.
# <!-- 2.5 = (14 - 9) / 2 -->
#
# ## 9.3 The map on an envelope
#
# (9.1) forgets two things: the words that move once in any case, and that nobody makes less than one pass. Eight closed forms have them, without the terms of $N$ words for statistics:
#
# | | words | what stays |
# | --- | --- | --- |
# | F3 | $2Nd + 2Nd\lceil N/B_r\rceil$ | $B_r$ rows of $Q$ and of $O$ |
# | F7 | $2Nd + 2Nd\lceil N/B_r\rceil + 2N^2$ | $B_r$ rows of $Q$, then of $O$ |
# | F5 | $Nd + 3Nd\lceil N/b\rceil + N^2(1 + \lceil d/b\rceil)$ | a square tile, side $b$, of $S$, then of $O$ |
# | B3 | $5Nd + 4Nd\lceil N/B_c\rceil$ | $B_c$ rows each of $K$, $V$, $dK$, $dV$ |
# | B4 | $8Nd + 2Nd\lceil N/B_3\rceil + 2Nd\lceil N/B_4\rceil$ | $B_3$ rows each of $Q$, $dO$, $dQ$; then $B_4$ as in B3 |
# | B6 | $6Nd + 2Nd\lceil N/B_4\rceil + Nd\lceil N/B_1\rceil + 2N^2$ | $B_4$ as in B3; then $B_1$ rows of $dQ$ |
# | B7 | $6Nd + 3Nd\lceil N/B_1\rceil + Nd\lceil N/B_2\rceil + 5N^2$ | $B_1$ rows of $K$, of $dK$, of $dQ$; $B_2$ of $V$ and $dV$ |
# | B5 | $5Nd + 7Nd\lceil N/b\rceil + 3N^2(1 + \lceil d/b\rceil)$ | a square tile, side $b$, of each product |
#
# and one rule in two parts:
#
# $$ \text{what stays fills all of } M, \qquad\text{and}\qquad \lceil x \rceil \;\to\; \max(1, x) . \tag{9.2} $$
#
# The first part gives the size of a block: in F3 two arrays of $B_r$ rows of $d$ words fill $M$. The second drops the rounding. (Slices are left out; they win 6 percent at most.)
#
# <!-- exercise 9B --> For given $N$, $d$, $M$ and a pass, return the sign of the schedule with the fewest words by (9.2), and these words. No search, no rounding: a line of arithmetic for each. If you are stuck after seven minutes, run `hint("9B")` in a cell of your own.

# %% [raw] name="about-9B"
# title = "The map on an envelope"
# difficulty = 2
# importance = 5
# minutes = 15
# hints = [
#   "Take one schedule at a time. How many arrays are resident, with how many rows of d words each? Set their sum equal to M and solve for the rows; insert this into the closed form.",
#   "In F3 two arrays are resident, in F7 one at a time, in B3 four, in B4 first three and then four; the last column of the table has the others. A square tile of side b has b² words. Then replace each rounded-up quotient by the quotient, or by 1 if that is larger.",
#   "A small helper that returns the larger of 1 and length / block size implements the second part of the rule everywhere, also for columns of a tile. Collect the words of the pass by sign and return the pair with the fewest words.",
# ]

# %% tags=["exercise"] name="ex-9B"
def my_envelope(N, d, M, pass_):
    """The schedule with the fewest words by (9.2), and these words, as ("F3", 123.4).

    N, d, M: whole numbers of at least 1. pass_: "forward" (F3, F5, F7) or "backward" (B3-B7).
    """
    ### BEGIN SOLUTION block sizes from M, the eight forms, and the smallest of a pass
    def blocks(length, size):
        return max(1, length / size)

    side = M**0.5  # of a square tile that fills M
    one, two, three, four = (blocks(N, M / (arrays * d)) for arrays in (1, 2, 3, 4))
    if pass_ == "forward":
        words = {
            "F3": 2 * N * d + 2 * N * d * two,
            "F7": 2 * N * d + 2 * N * d * one + 2 * N * N,
            "F5": N * d + 3 * N * d * blocks(N, side) + N * N * (1 + blocks(d, side)),
        }
    else:
        words = {
            "B3": 5 * N * d + 4 * N * d * four,
            "B4": 8 * N * d + 2 * N * d * (three + four),
            "B6": 6 * N * d + 2 * N * d * four + N * d * one + 2 * N * N,
            "B7": 6 * N * d + 3 * N * d * one + N * d * two + 5 * N * N,
            "B5": 5 * N * d + 7 * N * d * blocks(N, side) + 3 * N * N * (1 + blocks(d, side)),
        }
    return min(words.items(), key=lambda item: item[1])
    ### END SOLUTION


# %% tags=["check"] name="check-9B"
check("9B", my_envelope)

# %% [markdown]
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
# Borders that hang on $d^2$ stand upright: $N$ has no say in them, as long as it is well above $d$. The one between B4 and B3 slants: four times the $N$, four times the $M$. B4 moves $14N^2d^2/M + 8Nd$ words and B3 $16N^2d^2/M + 5Nd$; they are equal where $2N^2d^2/M = 3Nd$, at $M = \frac23 Nd$.
#
# Now we count instead, each schedule with the tiles that the library picks for $M$. In how many of the 238 places does the envelope name the one that really moves the fewest words, and how far are its words off?
# <!-- 238 = 2 * 7 * 17 -->

# %%
NAMED = {
    "forward": {"F3": "flash_optimal", "F7": "scores_stored_tiled", "F5": "small_cache"},
    "backward": {"B3": "fused_backward", "B4": "split_backward", "B6": "score_gradients_stored",
                 "B7": "weights_stored", "B5": "small_cache_backward"},
}


def counted(N, d, M, pass_):
    """The sign of the schedule that moves the fewest words, and its words."""
    words = {}
    for sign, name in NAMED[pass_].items():
        s = schedules.get(name)
        if s.smallest_M(N, d) <= M:
            words[sign] = s.cost(N, d, **s.tiles(N, d, M)).total
    return min(words.items(), key=lambda item: item[1])


def compare(choose, d=64):
    """How many names agree with the count, and words counted over words by `choose`."""
    agree, factors = 0, []
    for pass_ in NAMED:
        for N in LENGTHS:
            for M in MEMORIES:
                guess, by_guess = choose(N, d, M, pass_)
                sign, words = counted(N, d, M, pass_)
                agree += guess == sign
                factors.append(words / by_guess)
    return (f"names right {agree} of {len(factors)}; counted words over the envelope's: "
            f"from {min(factors):.2f} to {max(factors):.2f}")


print(attempt(compare, my_envelope))

# %% [markdown]
# 232 of 238 names, and the words within a factor of 1.5. The six that differ stand in one column, $M = 2^{12}$ in the forward pass. That is $d^2$, where F3 and F7 move equally many words by (9.2), and the count prefers F7 by 3 or 4 percent, for 60 rows of one array waste less of $M$ than 30 rows of two. (If your envelope breaks the tie the other way, only one of the column differs.) The factor 1.5 is the rounding: a little more than one block is two blocks, and F3 then moves $6Nd$ words where the envelope says $4Nd$.
#
# So the choice is robust, and the number is not. Where you need the number, count.
#
# ## 9.4 Along N
#
# Now fix the chip, $M = 58\,368$ and $d = 64$, and let the sequence grow. Up to $N = 445$ one block of queries holds all of $Q$ and $O$: F3 makes a single pass, and the words are compulsory.
#
# **Predict** (guess). By what factor do its words grow with one token more, from 445 to 446? And from $N = 8192$ to $16\,384$?

# %% tags=["predict"]
predict("9.4", one_more=1, doubled=4)  #> predict("9.4", one_more=..., doubled=...)

# %%
d, M = 64, 58368


def f3_words(N):
    return costs.flash_optimal(N, d, Br=min(N, (M - d) // (2 * d + 3)), Bc=1).total


whole = max(N for N in range(1, 2000) if f3_words(N) == 4 * N * d)
for N in (whole, whole + 1, 8192, 16384):
    print(f"N = {N:6,}: {f3_words(N):10,} words, {f3_words(N) / (4 * N * d):5.2f} times 4Nd")
measured("9.4", one_more=f3_words(whole + 1) / f3_words(whole),
         doubled=f3_words(16384) / f3_words(8192))

# %%
grid = [round(2 ** (k / 4)) for k in range(24, 67)]
bound = [(N, bounds.lower_bound("forward", N, d, M)[0] / (4 * N * d)) for N in grid]
explore.curve(
    {"F3 flash_optimal": [(N, f3_words(N) / (4 * N * d)) for N in grid]},
    {"lower bound": bound},
    title="Words as multiples of 4Nd, d = 64, M = 58,368", xlabel="N", ylabel="words / 4Nd",
)

# %% [markdown]
# <details><summary>One token more</summary>
#
# 446 tokens take half as many words again, for the second block of queries makes a second pass over $K$ and $V$. From then on the words climb in steps of $2Nd$, far to the right like $N^2$: doubling 8192 multiplies them by 3.8.
#
# </details>
#
# "Linear" and "quadratic" are both true of FlashAttention, on two sides of $N = M/2d$.
#
# Must the second block cost a whole pass? With 600 queries F3 makes blocks of 445 and of 155 rows, and much of $M$ lies idle while the second is worked on. Make two blocks of 300 rows: then the same room is free all the time. Let it hold keys and values *for good*, which the second block need not read again. This is F3c, `resident_keys`. With $k$ row blocks of equal size and $C$ keys kept, each with its value,
#
# $$ W = 2Nd + 2Nd\,k - 2Cd\,(k - 1) . \tag{9.3} $$
#
# **Predict** (compute). F3's footprint with $B_c = 1$ is $B_r(2d + 3) + d$. For the 600 queries, two blocks of 300: how many words are free, how many keys can stay with their values, and how many words does that save?
# <!-- 155, 300 = 600 - 445, schedules.resident_keys.tiles(600, 64, 58368)["Br"] -->

# %% tags=["predict"]
predict("9.4b", free=19004, kept=148, saved=18944)  #> predict("9.4b", free=..., kept=..., saved=...)

# %%
def both(N, d, M):
    """Words of F3 and of F3c, each with its best tiles."""
    return (s.count(N, d, M).total for s in (schedules.flash_optimal, schedules.resident_keys))


for N, d, M in ((600, 64, 58368), (2048, 64, 64**3), (8192, 64, 58368)):
    f3, f3c = both(N, d, M)
    print(f"N = {N:5,}, M = {M:7,}: F3 {f3:10,} words, F3c {f3c:10,}, {1 - f3c / f3:.1%} fewer")
f3, f3c = both(600, 64, 58368)
free = 58368 - costs.flash_optimal(600, 64, Br=300).peak
kept = schedules.resident_keys.tiles(600, 64, 58368)["places"] - 1  # one for all that pass
measured("9.4b", free=free, kept=kept, saved=f3 - f3c)

# %% [markdown]
# <details><summary>What the idle words are good for</summary>
#
# Each key that stays takes $2d = 128$ words, and saves as many in every pass but the first. 658,560 words in place of 786,432 in the second line.
#
# </details>
#
# With many blocks what is left over is small, and so is the gain. F3c is no sequence of sweeps: some keys stay while others pass.
#
# ## 9.5 The backward pass
#
# The same picture for training. The schedules that are given $P$, which a forward pass had to make and store for them, are drawn and not ranked.

# %%
explore.traffic_map(8192, 64, M=58368, pass_="backward")

# %% [markdown]
# From right to left: B3 (the strip says B2, which with its best tiles moves as few), B4, B6, B7, B5, with the borders that the search found. Matrices are stored in a wider belt than in the forward pass, up to $2.5\,d^2$; between $d^2$ and there the two passes want different ideas.
#
# One remark on $P$ as a gift. Lesson 06 found that B4 makes all scores twice and moves fewer words for it. That holds above $2.5\,d^2$, where nobody would use $P$ even as a gift. Below, it helps, and from $\frac43 d^2$ down it is worth a fifth of the words: $4x^2 + 4$ against $5x^2 + 5$, later $8x$ against $10x$. Recomputation is a bargain when whole rows are at hand, and none when they come column by column.
#
# Now look at the right end, where everything fits.
#
# **Predict** (guess). In units of $Nd$: the compulsory words of the backward pass are $7$. How many does the best of the library's backward schedules move when $M$ is as large as you like?

# %% tags=["predict"]
predict("9.5", nd_words=7)  #> predict("9.5", nd_words=...)

# %%
N, d, M = 8192, 128, 10**9
for sign, name in NAMED["backward"].items():
    s = schedules.get(name)
    ledger = s.cost(N, d, **s.tiles(N, d, M))
    times = {array: n // (N * d) for array, n in ledger.reads.items() if n >= N * d}
    often = ", ".join(f"{array} {n}" for array, n in times.items())
    print(f"{sign} {name:22} {ledger.total / (N * d):8.3f} Nd   reads {often}")
measured("9.5", nd_words=counted(N, d, M, "backward")[1] / (N * d))

# %% [markdown]
# <details><summary>With all the memory in the world</summary>
#
# 9.023, and not 7. The reads say why. B3 reads $O$, which is no input of the bound, and it reads $dO$ a second time; both only for $D_i = \sum_c do_{ic}\,o_{ic}$, in a sweep of its own. That was right as long as a block of queries never met all keys at once. When all of $K$ and $V$ stay, it does.
#
# </details>
#
# Theorem C says nothing here, and the compulsory bound is not met. Either there is a better schedule or a better proof. It is a schedule, and it is yours to write.
#
# <!-- exercise 9C --> Write a backward pass that moves $7Nd + N$ words, the $N$ for the log-sum-exp. All of $K$, $V$, $dK$ and $dV$ may stay in fast memory, $4Nd$ words; blocks of $B_r$ queries pass by, once. You are not given $O$, and you do not need it. $D_i$ can be made in fast memory, as in (6.3) or as in (6.6); either way, what you need for it is already there. The check gives $4Nd + B_r(3d + 2N + 6)$ words: beside what stays, for each query of a block three rows of $d$ words, two rows of $N$ scores, and six words. `D_i.add_row_dots(A, B)` adds to each row's word the products of two tiles summed over their columns, `s.multiply_by_matmul(A, B, less=D_i)` turns weights into score gradients, both without a temporary. If you are stuck after twelve minutes, run `hint("9C")` in a cell of your own.

# %% [raw] name="about-9C"
# title = "A backward pass when everything fits"
# difficulty = 4
# importance = 4
# minutes = 20
# hints = [
#   "Start from your B3 of exercise 6B with one block of all keys. Which of its reads are then redundant? They all serve D. Which sums define D, and which of their terms are in fast memory for a block of queries?",
#   "After the weights of a block of queries are computed, its rows of O are one product away, and so are its rows of dP. Either of them gives D in fast memory and can be freed again.",
#   "For a block: scale q; scores; weights from L; o from weights and v; D from the row products of do and o; free o; update dV; turn the weights into score gradients; update dK; compute, scale and store dq. Store dK and dV once, after the last block.",
# ]

# %% tags=["exercise"] name="ex-9C"
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
                            D_i.add_row_dots(do, o)
                        dv.add_matmul(s.T, do)
                        s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        with s @ k as dq:  # (Br, d)
                            dq *= d**-0.5
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV
    ### END SOLUTION


# %% tags=["check"] name="check-9C"
check("9C", my_whole_backward)

# %%
N, d = 256, 16
rng = np.random.default_rng(9)
Q, K, V, dO = rng.standard_normal((4, N, d))
leaves = schedules.saved_for_backward(Q, K, V)
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
# 28,928 words where B3 moves 37,632 and 28,672 are compulsory. That is what a map with bounds is for: a table of schedules alone would never have said that 9 is too much.
#
# ## 9.6 Your hand on the map
#
# (Without a running kernel you see a still picture.) Move `N`, then `d`: which borders go along, and how far? And in the pass `backward`, up to which `M` do the schedules with $P$ as a gift move fewer words than the rest?

# %%
explore.traffic_explorer()

# %% [markdown]
# ## 9.7 How near
#
# How far are the best schedules from what is proved? For the backward pass:

# %%
backward = schedules.optimality_gaps("backward", 8192, 64, [4**k for k in range(2, 12)])
print(schedules.optimality_gap_table(backward, 64))

# %% [markdown]
# Largest near two borders again: 2.20 at $d^2$, and 2.44 at twice $Nd$. Yours of section 9.5 is not in the table; on its last line it would say 1.00.
#
# ## 9.8 What is open
#
# For long sequences, where what grows with $N^2$ is all there is:
#
# | where | best schedule | bound | open |
# | --- | --- | --- | --- |
# | forward, $M \ll d^2$ | F5, $4N^2d/\sqrt M$ | B', the same | nothing in the leading term |
# | forward, around $d^2$ | F3, F7, about $4N^2$ | A and B', about $2.1N^2$ | a factor of 1.9 |
# | forward, $d^2 \ll M \ll Nd$ | F3, $4N^2d^2/M$ | A, the same | nothing in the leading term |
# | forward, around $Nd$ | F3c | $4Nd$ or A, not their sum | a factor of 1.9 |
# | backward, $M \ll d^2$ | B5, $10N^2d/\sqrt M$ | C', $9.196N^2d/\sqrt M$ | 10 against 9.196 |
# | the same, $P$ given | $8N^2d/\sqrt M$ | C'', the same | nothing in the leading term |
# | backward, $d^2/2$ to $2.5d^2$ | B7, B6 | C | a factor of 2.2 |
# | backward, $d^2 \ll M \ll Nd$ | B4, $14N^2d^2/M$ | C, 12; whole rows: E, 14 | with cut rows 12 to 14 |
# | backward, $Nd$ to $4Nd$ | B3 | $7Nd$ or C, not their sum | a factor of 2.4 |
# | backward, from a little over $4Nd$ on | yours, $7Nd + N$ | $7Nd$ | nothing |
#
# C' is for schedules that make $P$ themselves, C'' for all. Theorem E, with its relative E' for schedules that store scores, holds where rows of $d$ words are read, kept and dropped as wholes, as in B4; there 14 is exact. All these bounds are derivations of this course, for the classes that they state. The papers prove orders of growth: up to a constant the shape of the map was known.
#
# And all are about attention that forms its pairs. Approximations need not. Papp, Sobczyk and Zouzias study their I/O; the abstract, all that we have read, announces I/O almost linear in $n$ in most regimes, and lower bounds near it. Gupta and others ask for *arithmetic*: by their abstract $\tilde O(n^{2 - 1/d})$ steps for constant $d$, times a power of the logarithm of the largest entry. Lessons 15 and 17 come back to both.
#
# One hypothesis is easily overlooked: in Theorem A $K$ and $V$ are distinct arrays. Section 9.11 of the second evening makes one array of them.
# <!-- 9.196 = 4 + 3 * math.sqrt(3) -->
# <!-- large = lambda pass_, share: schedules.optimality_gaps(pass_, 2**22, 4096, [int(share * 4096**2)])[0] -->
# <!-- 2.1 = large("forward", 1).bound / (2**22) ** 2 -->
# <!-- 2.2 = large("backward", 4 / 3).ratio -->
# <!-- 2.4 = max(gap.ratio for gap in schedules.optimality_gaps("backward", 8192, 64, [8192 * 64 * tenth // 10 for tenth in range(10, 41)])) -->
#
# ## 9.9 Four memories of three chips
#
# Three real chips, all with the attention head of a large language model: $N = 8192$ tokens, $d = 128$. Data sheets speak of bytes, with 1 KB = 1024 bytes:
#
# - **uno**: the ATmega328P of an Arduino UNO has 2 KB of SRAM. Numbers in float32.
# - **stm32**: an STM32F746 microcontroller has 64 KB of data memory that is coupled to its core, the DTCM. Numbers in float32.
# - **sm**: one streaming multiprocessor of an NVIDIA H100 has up to 228 KB of shared memory, and a program may use 227. Numbers in bf16.
# - **l2**: the level-2 cache of the same H100 has 50 MB, shared by all of its multiprocessors. Numbers in bf16.
#
# Slow memory is what comes after: a memory chip on a bus for the two small ones, HBM for the H100.

# %%
N, d = 8192, 128
CHIPS = {"uno": (2 * 1024, 4), "stm32": (64 * 1024, 4),  # bytes, bytes a word
         "sm": (227 * 1024, 2), "l2": (50 * 1024**2, 2)}  # sm: 227 of 228 KB
MEMORY = {chip: size // word for chip, (size, word) in CHIPS.items()}  # in words
for chip, M in MEMORY.items():
    print(f"{chip:6} {M:10,} words = {M / d**2:9.3f} d² = {M / (N * d):8.4f} Nd")

# %% [markdown]
# **Predict** (compute). Which schedule moves the fewest words? Write 3, 5 or 7 for F3, F5, F7 in the first line, and 3 to 7 for B3 to B7 in the second. The borders are at $d^2/4$ and $d^2$ forward, and at $d^2/4$, $\frac43 d^2$, $2.5\,d^2$ and $\frac23 Nd$ backward.

# %% tags=["predict"]
predict("9.9a", uno=5, stm32=7, sm=3, l2=3)  #> predict("9.9a", uno=..., stm32=..., sm=..., l2=...)
predict("9.9b", uno=5, stm32=7, sm=4, l2=3)  #> predict("9.9b", uno=..., stm32=..., sm=..., l2=...)

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
        least, which = bounds.lower_bound(pass_, N, d, M, given_weights=False)
        print(f"  {chip:6} {sign} {done.total:13,} words, {done.total / least:.2f} × {which}")
        best[chip] = int(sign[1])
    measured(question, **best)

# %% [markdown]
# <details><summary>A chip on a border</summary>
#
# Look at the stm32. Its 64 KB are 16,384 words, exactly $d^2$: forward it sits *on* the border, the envelope sees a tie, and the count gives it to F7, by 2 percent. The other seven names of the envelope stand. (`schedules.best`, which looks at every schedule, finds 0.2 percent on `sm` with F3c, and nothing elsewhere.) With $d = 64$ the same chip would be at $4d^2$ and want whole rows in both passes. A regime is never a property of a chip; it belongs to the chip *and* the head.
#
# </details>
# <!-- moved = lambda name, M: schedules.get(name).cost(8192, 128, **schedules.get(name).tiles(8192, 128, M)).total -->
# <!-- 2 = 10**2 * (moved("flash_optimal", 2**14) / moved("scores_stored_tiled", 2**14) - 1) -->
# <!-- 0.2 = 10**2 * (1 - moved("resident_keys", 227 * 512) / moved("flash_optimal", 227 * 512)) -->
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
# ## Misconceptions
#
# - **"A chip has a regime."** A chip and a head have one: 64 KB in float32 are $d^2$ words at $d = 128$ and $4d^2$ at $d = 64$ (9.9).
# - **"The border $d^2$ of the papers is only an order of magnitude."** With the best constants known $4x^2 = 2x^2 + 2$ at $x = 1$, exactly $d^2$ (9.2). Backward it is $2.5\,d^2$: what is best in one pass need not be in the other.
# - **"The search found the optimum."** The least among sweeps. F3c is no sweep, and moves less (9.4).
# - **"With enough memory everything is compulsory."** The library's best backward schedule moves $9Nd$ with a billion words, where $7Nd$ are compulsory; reaching them took a new order (9.5).
#
# ## Take-away
#
# - Four regimes: square tiles below $d^2/4$, stored matrices up to $d^2$ (backward $2.5\,d^2$), row blocks from there, the compulsory words from about $Nd$ on.
# - A sweep costs $r\,t\,x^2 + n$. A search over all sequences finds the schedules: least *among sweeps*.
# - Fill $M$ with what stays, drop the rounding, never go below one pass: eight forms choose the schedule, and give the words within a factor of 1.5.
# - The course is closest to what is possible inside a regime, and farthest at its borders. A gap on the map is a question: a better order, a better proof, or a hypothesis that does not hold?
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691).
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The two regimes of the forward pass, up to constants.
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On Fine-Grained I/O Complexity of Attention Backward Passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397) (first called *Fine-grained Attention I/O Complexity: Comprehensive Analysis for Backward Passes*). The same for $dL/dX$.
# - P. A. Papp, A. Sobczyk, A. Zouzias: *Approaching I/O-optimality for Approximate Attention*, 2026, [arXiv 2605.23751](https://arxiv.org/abs/2605.23751). Abstract only.
# - S. Gupta, B. Huang, B. Saha, Y. Xu, C. Ye: *Subquadratic Algorithms and Hardness for Attention with Any Temperature*, 2025, [arXiv 2505.14840](https://arxiv.org/abs/2505.14840). Abstract only.
# - *ATmega328P*, data sheet, [docs.arduino.cc](https://docs.arduino.cc/resources/datasheets/ATmega328P-datasheet.pdf): 2 KB of SRAM. That an UNO R3 carries this chip is in its product reference manual, SKU A000066.
# - STMicroelectronics: *STM32F745xx, STM32F746xx*, data sheet DS10916: 64 KB of its SRAM are data TCM. Zephyr's [description of the chip](https://github.com/zephyrproject-rtos/zephyr/blob/main/dts/arm/st/f7/stm32f746.dtsi) has the same number.
# - NVIDIA: *Tuning CUDA Applications for Hopper GPU Architecture*, [docs.nvidia.com](https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html), sections 1.4.1.1 and 1.4.2.2. H100: for each multiprocessor 228 KB of shared memory, 227 for one block of threads, and 64K registers of 32 bits; 50 MB of L2.
#
# **What comes next.** In a second evening, [09b](09b_beyond_the_model.ipynb), B6 runs on the machine, a theorem seems to be beaten, and the map ends. The later lessons leave the emulator: the same schedules as kernels of a GPU, counted, and then timed.
