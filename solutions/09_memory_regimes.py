# %% [markdown]
# # 09 Memory regimes
#
# You compare the schedules and lower bounds so far for every $M$, and choose schedules for three real chips.
#
# **What you will learn**
#
# - to read schedules, lower bounds and regimes from one figure;
# - to search for the best sequence of passes for each $M$;
# - to predict the best schedule and its traffic from $N$, $d$ and $M$;
# - to find where a schedule or a bound can be improved.
#
# **Prerequisites**: lessons 04, 05, 06 and 07; [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, run, schedules, sweeps
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.machine import probabilities

# %%
explore.traffic_map(8192, 64, M=58368)

# %% [markdown]
# ## 9.1 One figure
#
# The figure shows the memory traffic of the forward pass against $M$. Each line is a schedule. The grey area is below the lower bounds: the compulsory traffic, Theorem A (section 5.7) and Theorem B' (section 7.7). The strip at the bottom has the marker of the best schedule for each $M$. Two variants in the strip are not in the table: `scores_stored_tiled` (section 7.6) and `resident_keys` (section 9.4).
#
# The shaded areas are *memory regimes*: ranges of $M$ in which one schedule is the best.
#
# | regime | $M$ | best schedule | words |
# | --- | --- | --- | --- |
# | blocked products | up to $d^2/4$ | split-d (F5): $d$ is split too, scores are stored | $4N^2d/\sqrt M + N^2$ |
# | $N \times N$ stored | $d^2/4$ to $d^2$ | stored scores (F7): rows of one array at a time, scores are stored | section 9.2 |
# | row blocks | $d^2$ to about $Nd$ | buffer reuse (F3): rows of $Q$ and $O$ are resident | $4N^2d^2/M$ |
# | compulsory | from there on | one pass | $4Nd$; exactly from $M \approx 2Nd$ on |
#
# Two ratios decide: $M/d^2$ is the number of $d \times d$ squares that fit, and $M/Nd$ the number of complete arrays.
#
# **Predict** (guess). At which $M/d^2$ is the ratio of the best schedule's traffic to the lower bound largest, and how large is it? Consider only $M \ge 16$. (Read it from the figure. The marks are a factor of 10 apart vertically, and 8 horizontally.)
# <!-- 10 as definition -->

# %% tags=["predict"]
predict("9.1", gap=2, at=1)  #> predict("9.1", gap=..., at=...)

# %%
N, d = 8192, 64
gaps = {gap.M: gap.ratio for gap in
        schedules.optimality_gaps("forward", N, d, [round(2 ** (k / 2)) for k in range(8, 47)])}
for M in (16, 128, 1024, 4096, 16384, 65536, 524288, 2**22):
    print(f"M = {M:9,} = {M / d**2:8.3f} d² = {M / (N * d):7.4f} Nd: ratio {gaps[M]:.2f}")
widest = max(gaps, key=gaps.get)
measured("9.1", gap=gaps[widest], at=widest / d**2)

# %% [markdown]
# <details><summary>Where the ratio is largest</summary>
#
# The ratio is largest near two borders: 1.95 at $M = d^2$, and 1.84 at $M = Nd$. Deep inside a regime, one bound is close to one schedule. At a border, two bounds are about equal, but only the larger one is proved, not their sum. (The ratio 1.85 at 16 words has another reason: tiles of two or three rows. The border at $Nd$ is where $4N^2d^2/M = 4Nd$; counted with rounding, the traffic is compulsory only from a little over $2Nd$ on.)
#
# </details>
# <!-- sizes = [round(2 ** (k / 2)) for k in range(8, 47)] -->
# <!-- gaps = {gap.M: gap.ratio for gap in schedules.optimality_gaps("forward", 8192, 64, sizes)} -->
# <!-- "The ratio is largest near two borders" if max(gaps, key=gaps.get) == 64**2 and max((M for M in gaps if M > 2 * 64**2), key=gaps.get) == 8192 * 64 -->
# <!-- "tiles of two or three rows" if {size for name, size in schedules.small_cache.tiles(8192, 64, 16).items() if name != "Bd"} == {2, 3} -->
# <!-- least_of = lambda share: schedules.best(8192, 64, int(share * 2**19)).cost.total -->
# <!-- "the traffic is compulsory only from a little over $2Nd$ on" if least_of(2) > 5 * 2**19 and least_of(2.05) == bounds.compulsory(8192, 64) -->
#
# ## 9.2 All sequences of passes
#
# A pass over the data (lesson 06) processes all pairs once. Its traffic is resident rows × streamed words per row, (6.9). A pass can also store an $N \times N$ matrix for a later pass, as stored scores does. In units of $N^2$ words, and with $x = d/\sqrt M$ as in lesson 07, one pass (a `sweep` in code) moves
#
# $$ r\,t\,x^2 + n , \tag{9.1} $$
# <!-- (9.1) = lesson09.words_of(("resident " * r, "streamed " * t, n, ""), x) -->
#
# if $r$ arrays are resident, $t$ are streamed, and $n$ matrices are written or read. Here is every pass of the forward computation, by the contents of slow memory before it. A streamed $O$ is both read and written, so it is named twice.

# %%
FORWARD = {  # before: (resident, streamed, matrices written or read, contents afterwards)
    "inputs": [("Q O", "K V", 0, "outputs"), ("K V", "Q O O", 0, "outputs"),
               ("Q", "K", 1, "S"), ("K", "Q", 1, "S")],
    "S": [("O", "V", 1, "outputs"), ("V", "O O", 1, "outputs"), ("Q O", "K V", 0, "outputs")],
}

# %% [markdown]
# <!-- exercise 9A --> Find the cheapest sequence of passes, by (9.1), from one state of slow memory to another. The check also uses other tables of the same form, some with more states. No pass leads back to an earlier state, and the goal can be reached from every state. If you are stuck after six minutes, run `hint("9A")` in a new cell.

# %% [raw] name="about-9A"
# title = "Passes in sequence"
# difficulty = 3
# importance = 4
# minutes = 12
# hints = [
#   "Two smaller questions: what does one pass cost? And if you knew the cheapest sequence from each state that a pass leads to, which first pass would you choose?",
#   "The function may call itself: the cheapest sequence from a state is one pass followed by the cheapest sequence from its end state. At the goal the sequence is empty and costs nothing.",
#   "Split the texts at spaces and count the names: one product, times x squared, plus the matrices. For each pass of the state, add its words to those of the rest and prepend it to the list; return the pair with the fewest words.",
# ]

# %% tags=["exercise"] name="ex-9A"
def my_cheapest(sweeps, x, state, goal):
    """Return (words, passes) of the cheapest sequence, with words in units of N².

    sweeps: for each state a list of passes (resident, streamed, matrices, next state), with
    array names separated by spaces. x: d/√M. state, goal: the first state and the last.
    """
    ### BEGIN SOLUTION at the goal nothing; otherwise a pass and the cheapest sequence after it
    if state == goal:
        return 0, []
    found = []
    for sweep in sweeps[state]:
        resident, streamed, matrices, after = sweep
        words = len(resident.split()) * len(streamed.split()) * x**2 + matrices
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
        f"{resident} resident, {streamed} streamed" for resident, streamed, *_ in path)


for times in (2, 1.05, 0.95, 0.5):  # M in units of d²
    print(f"M = {times:4} d²:", attempt(cheapest_at, times))

# %% [markdown]
# The search finds buffer reuse above $d^2$ and stored scores below, because $4x^2 = 2x^2 + 2$ at $x = 1$.
#
# A pass with one product can also be split, as in lesson 07. Example: $O$ resident, $V$ streamed, $S$ read. If the pass computes half of the columns of $O$ at a time, twice as many rows of $O$ fit. Each half costs $x^2/4$, so both cost $x^2/2$ instead of $x^2$, but $S$ is read twice. In tiles of $\sqrt M \times \sqrt M$ words, reading the two factors (here $S$ and $V$) costs $x$ each, so the pass costs $2x$ plus the words that it writes. The library's search, `iocourse.sweeps`, includes both variants, the five products of the backward pass, and a third problem, `given`: the backward pass if a forward pass has already stored $P$.
#
# **Predict** (guess). The two-pass backward of lesson 06 moves $14x^2$, so $14N^2$ words at $M = d^2$. How many units of $N^2$ words does the best sequence of passes move there?

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
# <details><summary>What two stored matrices save</summary>
#
# The best sequence moves $10N^2$ words, from $5x^2 + 5$. It stores $P$ and later overwrites $P$ with $dS$. At most two arrays are resident at a time.
#
# </details>
#
# With names, for $x$ up to 4:
#
# | $M$ | forward | $M$ | backward | $P$ already stored (`given`) |
# | --- | --- | --- | --- | --- |
# | from $d^2$ | buffer reuse (F3), $4x^2$ | from $2.5d^2$ | two-pass (B4), $14x^2$ | two-pass (B4), $14x^2$ |
# | from $d^2/2$ | stored scores (F7), $2x^2 + 2$ | from $4d^2/3$ | stored dS (B6), $9x^2 + 2$ | `weights_precomputed`, $4x^2 + 4$ |
# | from $d^2/4$ | stored scores in slices (F7d), $1.5x^2 + 3$ | from $d^2/2$ | stored P (B7), $5x^2 + 5$ | the same |
# | | | from $d^2/4$ | stored P in slices, $4x^2 + 7$ | in slices, $3x^2 + 6$ |
# | below | split-d (F5), $4x + 1$ | below | split-d backward (B5), $10x + 3$ | `small_cache_precomputed`, $8x + 2$ |
#
# In stored dS (`score_gradients_stored`), the pass for $dK$ and $dV$ stores $dS$, so the pass for $dQ$ computes no scores. Stored P (`weights_stored`) is the printed sequence (with $K$ instead of $Q$ in its first pass, for the same words). The split-d backward (`small_cache_backward`) computes five products in tiles. The `precomputed` schedules are the last two without the product for $P$. All run on the machine.
#
# These are the best *sequences of passes*, not lower bounds. A schedule of another kind moves fewer words (section 9.4).
# <!-- 2.5 = (14 - 9) / 2 -->
#
# ## 9.3 An envelope of eight schedules
#
# Formula (9.1) leaves out the words that are moved once in any case, and it allows less than one pass. Eight closed forms correct both (terms of $N$ words for statistics are left out). With $k$ resident arrays, $R_k$ rows of each are resident:
#
# | | words | resident |
# | --- | --- | --- |
# | F3, buffer reuse | $2Nd + 2Nd\lceil N/R_2\rceil$ | $R_2$ rows of $Q$ and of $O$ |
# | F7, stored scores | $2Nd + 2Nd\lceil N/R_1\rceil + 2N^2$ | $R_1$ rows of $Q$, then of $O$ |
# | F5, split-d | $Nd + 3Nd\lceil N/b\rceil + N^2(1 + \lceil d/b\rceil)$ | a square tile, side $b$, of $S$, then of $O$ |
# | B3, fused | $5Nd + 4Nd\lceil N/R_4\rceil$ | $R_4$ rows each of $K$, $V$, $dK$, $dV$ |
# | B4, two-pass | $8Nd + 2Nd\lceil N/R_3\rceil + 2Nd\lceil N/R_4\rceil$ | $R_3$ rows each of $Q$, $dO$, $dQ$; then $R_4$ rows each of $K$, $V$, $dK$, $dV$ |
# | B6, stored dS | $6Nd + 2Nd\lceil N/R_4\rceil + Nd\lceil N/R_1\rceil + 2N^2$ | $R_4$ rows each of $K$, $V$, $dK$, $dV$; then $R_1$ rows of $dQ$ |
# | B7, stored P | $6Nd + 3Nd\lceil N/R_1\rceil + Nd\lceil N/R_2\rceil + 5N^2$ | $R_1$ rows of $K$, then $dK$, then $dQ$; $R_2$ of $V$ and $dV$ |
# | B5, split-d backward | $5Nd + 7Nd\lceil N/b\rceil + 3N^2(1 + \lceil d/b\rceil)$ | a square tile, side $b$, of each product |
#
# We simplify them by a rule in two parts:
#
# $$ \text{the resident arrays fill all of } M, \qquad\text{and}\qquad \lceil y \rceil \;\to\; \max(1, y) . \tag{9.2} $$
# <!-- (9.2) not evaluated: definition -->
#
# The first part gives the block size: with buffer reuse, two arrays of $R_2$ rows of $d$ words fill $M$. The second part drops the rounding and keeps at least one pass. The *envelope* is the minimum of these formulas for each $M$. (Slices, which save at most 6 percent, are left out.)
#
# <!-- exercise 9B --> For given $N$, $d$, $M$ and the forward or the backward pass, return the label of the schedule with the fewest words by (9.2), such as `"F3"`, and these words. Each schedule takes one line of arithmetic, without search or rounding. If you are stuck after seven minutes, run `hint("9B")`.
# <!-- 6 = 10**2 * max(1 - sweeps.min_cost("forward", x).cost / min(2 * x**2 + 2, 4 * x + 1) for x in np.linspace(1, 2)) -->

# %% [raw] name="about-9B"
# title = "An envelope of eight schedules"
# difficulty = 2
# importance = 5
# minutes = 15
# hints = [
#   "Take one schedule at a time. How many arrays are resident, with how many rows of d words each? Set their sum equal to M and solve for the rows; insert this into the closed form.",
#   "See the last column of the table: buffer reuse has two resident arrays, stored scores one at a time, the fused backward four, the two-pass backward first three and then four. A square tile of side b has b² words. Then replace each rounded-up quotient by the quotient, or by 1 if that is larger.",
#   "A small helper that returns the larger of 1 and length / block size implements the second part of the rule everywhere, also for columns of a tile. Collect the words of the pass by label and return the pair with the fewest words.",
# ]

# %% tags=["exercise"] name="ex-9B"
def my_envelope(N, d, M, pass_):
    """Return the label of the schedule with the fewest words by (9.2), and these words.

    N, d, M: integers of at least 1. pass_: "forward" (three schedules) or "backward" (five).
    """
    ### BEGIN SOLUTION block sizes from M, the closed forms, and the smallest of the pass
    def blocks(length, size):
        return max(1, length / size)

    side = M**0.5  # side of a square tile that fills M
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
# Now the plane of $N$ and $M$ for $d = 64$, with one row for each $N$ and one column for each $M$. First by your envelope:

# %%
MEMORIES = [2**k for k in range(8, 25)]
LENGTHS = [4**k for k in range(4, 11)]


def plane(pass_, choose, d=64):
    """Return one line for each N, with the label of the best schedule for each M."""
    lines = ["    log2 M =  " + " ".join(f"{M.bit_length() - 1:2}" for M in MEMORIES)]
    for N in LENGTHS:
        lines.append(f"N = {N:9,} " + " ".join(choose(N, d, M, pass_)[0] for M in MEMORIES))
    return "\n".join(lines)


print(attempt(plane, "forward", my_envelope))
print(attempt(plane, "backward", my_envelope))

# %% [markdown]
# Borders at multiples of $d^2$ are vertical: they do not depend on $N$, if $N$ is well above $d$. The border between the two-pass and the fused backward is slanted: with four times the $N$, it is at four times the $M$. The two-pass backward moves $14N^2d^2/M + 8Nd$ words, and the fused backward $16N^2d^2/M + 5Nd$. They are equal where $2N^2d^2/M = 3Nd$, at $M = \frac23 Nd$.
# <!-- slanted = lambda share: lesson09.envelope(2**20, 64, int(share * 2**26), "backward") -->
# <!-- saved_by_fused = lambda share: slanted(share)["B4"] - slanted(share)["B3"] -->
# <!-- "They are equal where $2N^2d^2/M = 3Nd$, at $M = \frac23 Nd$" if saved_by_fused(0.65) < 0 < saved_by_fused(0.68) -->
#
# Next we count, with the tiles that the library selects for $M$. The two planes have 238 places. How often does the envelope have the label of the count, and how accurate are its words?
# <!-- 238 = 2 * 7 * 17 -->

# %%
NAMED = {
    "forward": {"F3": "flash_optimal", "F5": "small_cache",
                "F7": "scores_stored_tiled"},  # with one slice: scores_stored
    "backward": {"B3": "fused_backward", "B4": "split_backward", "B6": "score_gradients_stored",
                 "B7": "weights_stored", "B5": "small_cache_backward"},
}


def counted(N, d, M, pass_):
    """Return the label of the schedule with the fewest counted words, and these words."""
    words = {}
    for label, name in NAMED[pass_].items():
        s = schedules.get(name)
        if s.smallest_M(N, d) <= M:
            words[label] = s.cost(N, d, **s.tiles(N, d, M)).total
    return min(words.items(), key=lambda item: item[1])


def compare(choose, d=64):
    """Compare labels and words of `choose` with those of the count."""
    agree, factors = 0, []
    for pass_ in NAMED:
        for N in LENGTHS:
            for M in MEMORIES:
                guess, by_guess = choose(N, d, M, pass_)
                label, words = counted(N, d, M, pass_)
                agree += guess == label
                factors.append(words / by_guess)
    return (f"correct labels: {agree} of {len(factors)}; counted / envelope's words: "
            f"from {min(factors):.2f} to {max(factors):.2f}")


print(attempt(compare, my_envelope))

# %% [markdown]
# The envelope has the correct label in 232 of 238 places, and its words are correct within a factor of 1.5. All six exceptions are in one column, $M = 2^{12}$ of the forward pass. There $M = d^2$, and buffer reuse and stored scores are equal by (9.2). The count favours stored scores by 3 or 4 percent. Both have fewer resident rows than the envelope assumes, 30 instead of 32 and 60 instead of 64, because streamed rows also need words. This raises all of the $4x^2$ of buffer reuse, but only the $2x^2$ of stored scores, not the $2N^2$ words of its matrix. (If your envelope returns stored scores in a tie, only one place differs.) The factor 1.5 comes from rounding: slightly more than one block is two blocks, and buffer reuse then moves $6Nd$ words where the envelope gives $4Nd$.
# <!-- by_rule = lesson09.envelope(8192, 64, 64**2, "forward") -->
# <!-- "buffer reuse and stored scores are equal by (9.2)" if by_rule["F3"] == by_rule["F7"] < by_rule["F5"] -->
# <!-- "30 instead of 32 and 60 instead of 64" if [schedules.get(name).tiles(8192, 64, 64**2)["Br"] for name in ("flash_optimal", "scores_stored", "scores_stored_tiled")] == [30, 60, 60] -->
# <!-- at_border = lambda name, N: schedules.get(name).count(N, 64, 64**2).total -->
# <!-- "only one place differs" if [k for k in range(4, 11) if at_border("flash_optimal", 4**k) < at_border("scores_stored_tiled", 4**k)] == [4] -->
#
# So the choice is robust, but the number of words is not. If you need the number, count.
#
# ## 9.4 Traffic against N
#
# Now fix $M = 58\,368$ (228 KB in float32) and $d = 64$, and let the sequence grow. Up to $N = 445$, one query block holds all of $Q$ and $O$. Buffer reuse then makes a single pass, and its traffic is compulsory.
#
# **Predict** (compute). By what factor does the traffic of buffer reuse grow with one more token, from 445 to 446? And from $N = 8192$ to $16\,384$?
# <!-- 1.5 as output -->
# <!-- 228 = 58368 * 4 / 2**10 -->
# <!-- tie = lambda N, name: schedules.get(name).cost(N, 64, **schedules.get(name).tiles(N, 64, 2**12)).total -->
# <!-- saved = [10**2 * (tie(4**k, "flash_optimal") / tie(4**k, "scores_stored_tiled") - 1) for k in range(5, 11)] -->
# <!-- 3, 4 = min(saved), max(saved) -->

# %% tags=["predict"]
predict("9.4", one_more=1.5, doubled=3.8)  #> predict("9.4", one_more=..., doubled=...)

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
    title="Traffic in units of 4Nd, d = 64, M = 58,368", xlabel="N", ylabel="words / 4Nd",
)

# %% [markdown]
# <details><summary>One more token</summary>
#
# With 446 tokens the traffic is larger by a half, because the second query block makes a second pass over $K$ and $V$. For large $N$, the traffic grows about in proportion to $N^2$: doubling 8192 multiplies it by 3.8.
#
# </details>
#
# So FlashAttention's traffic is linear in $N$ below $N = M/2d$, and quadratic above.
#
# Does the second block need a complete pass? With 600 queries, buffer reuse has one block of 445 rows and one of 155, and during the second one much of $M$ is unused. With two blocks of 300 rows, half as many words are free, but in both passes. They can hold keys and values from the first pass, which the second pass need not read again. We call this schedule resident keys (F3c, `resident_keys` in code). With $k$ row blocks of equal size $B_r$ and $C$ resident keys, each with its value,
# <!-- unused = lambda Br: 58368 - costs.flash_optimal(600, 64, Br=Br, Bc=1).peak -->
# <!-- "half as many words are free, but in both passes" if math.isclose(unused(155), 2 * unused(300), rel_tol=0.001) -->
#
# $$ W = 2Nd + 2Nd\,k - 2Cd\,(k - 1) , \qquad \text{footprint } 2Cd + B_r(2d + 3) + d . \tag{9.3} $$
# <!-- (9.3) W = costs.resident_keys(N, d, Br=Br, places=C + 1).total with k = costs.ceil_div(N, Br) where C <= N -->
# <!-- (9.3) footprint = costs.resident_keys(N, d, Br=Br, places=C + 1).peak where C < N and Br <= N -->
#
# For $C < N$, the last $d$ words of the memory footprint are one buffer for the streamed keys and values. With $C = 0$ this is buffer reuse with $B_c = 1$.
#
# **Predict** (compute). $N = 600$ in two blocks of 300 rows, $d = 64$ and $M = 58\,368$. How many words are free with $C = 0$? How many keys can then be resident with their values, and how many words of traffic does that save?
# <!-- 155, 300 = 600 - 445, schedules.resident_keys.tiles(600, 64, 58368)["Br"] -->

# %% tags=["predict"]
predict("9.4b", free=19004, kept=148, saved=18944)  #> predict("9.4b", free=..., kept=..., saved=...)

# %%
def both(N, d, M):
    """Return the words of buffer reuse and of resident keys, each with its best tiles."""
    return (s.count(N, d, M).total for s in (schedules.flash_optimal, schedules.resident_keys))


for N, d, M in ((600, 64, 58368), (2048, 64, 64**3), (8192, 64, 58368)):
    reuse, resident = both(N, d, M)
    print(f"N = {N:5,}, M = {M:7,}: buffer reuse {reuse:10,} words, "
          f"resident keys {resident:10,}, {1 - resident / reuse:.1%} fewer")
reuse, resident = both(600, 64, 58368)
free = 58368 - costs.flash_optimal(600, 64, Br=300).peak
kept = schedules.resident_keys.tiles(600, 64, 58368)["places"] - 1  # resident keys + one buffer
measured("9.4b", free=free, kept=kept, saved=reuse - resident)

# %% [markdown]
# <details><summary>A use for the free words</summary>
#
# A resident key and its value occupy $2d = 128$ words, and save the same number of words in every pass except the first. So 148 keys are resident, and they save 18,944 words. In the second line, the traffic is 658,560 words instead of 786,432.
#
# </details>
#
# With many blocks, few words are free, so the gain is small. Resident keys is not a sequence of passes, because some keys are resident while the others are streamed.
#
# ## 9.5 The backward pass
#
# Here is the figure for the backward pass. The schedules with precomputed $P$ (`given`) are not ranked, because a forward pass must compute and store $P$ for them. The bounds, which hold for them too, are Theorem C (section 6.10), its weighted form (6.19), and C'' (section 9.8).

# %%
explore.traffic_map(8192, 64, M=58368, pass_="backward")

# %% [markdown]
# From right to left, the best schedules are fused (the strip shows B2, the FlashAttention-2 backward, which moves as few words with its best tiles), two-pass, stored dS, stored P and split-d, with the borders of sections 9.2 and 9.3.
#
# In lesson 06, the two-pass backward computes all scores twice and still moves fewer words. This holds above $2.5\,d^2$, where even a precomputed $P$ would not be used. Below $2.5\,d^2$, a precomputed $P$ saves words; from $\frac43 d^2$ down, about a fifth of them: $4x^2 + 4$ compared with $5x^2 + 5$, later $8x$ compared with $10x$. So recomputation saves traffic only above $2.5\,d^2$. Below, it is cheaper to store $P$ or $dS$.
# <!-- saving = lambda M: 1 - sweeps.min_cost("given", M**-0.5).cost / sweeps.min_cost("backward", M**-0.5).cost -->
# <!-- "Below $2.5\,d^2$, a precomputed $P$ saves words; from $\frac43 d^2$ down, about a fifth of them" if all(saving(M) > 0 for M in (2.4, 2, 1.4)) and all(0.2 - 1e-9 < saving(M) < 0.24 for M in (4 / 3, 1, 0.5, 0.01)) and saving(2.6) == 0 -->
#
# Now look at the right end, where everything fits.
#
# **Predict** (compute). The compulsory traffic of the backward pass is $7Nd$ words. How many units of $Nd$ does the best backward schedule of section 9.3 move, for an $M$ as large as you like?

# %% tags=["predict"]
predict("9.5", nd_words=9)  #> predict("9.5", nd_words=...)

# %%
N, d, M = 8192, 128, 10**9
for label, name in NAMED["backward"].items():
    s = schedules.get(name)
    ledger = s.cost(N, d, **s.tiles(N, d, M))
    times = {array: n // (N * d) for array, n in ledger.reads.items() if n >= N * d}
    often = ", ".join(f"{array} {n}" for array, n in times.items())
    print(f"{label} {name:22} {ledger.total / (N * d):8.3f} Nd   reads {often}")
measured("9.5", nd_words=counted(N, d, M, "backward")[1] / (N * d))

# %% [markdown]
# <details><summary>Traffic with a billion words of fast memory</summary>
#
# With the statistics, the traffic is 9.023 units. It is 9 without them, because the fused backward reads $O$, which is not an input of the bound, and reads $dO$ twice. Both serve only to compute $D_i = \sum_c do_{ic}\,o_{ic}$ in advance. This is needed if keys are loaded block by block, because by (6.3) $D_i$ is a sum over all keys. If all of $K$ and $V$ are resident, a query block can compute its $D_i$ itself.
#
# </details>
#
# Here the compulsory $7Nd$ is the largest bound, and no schedule of the library reaches it. Either a better schedule exists or a better bound. In this case it is a schedule, and you will write it.
# <!-- "no schedule of the library reaches it" if min(s.count(8192, 128, 10**9).total for s in schedules.of_pass("backward")) == schedules.fused_backward.count(8192, 128, 10**9).total > bounds.compulsory_backward(8192, 128) -->
#
# <!-- exercise 9C --> Write a backward pass that moves $7Nd + N$ words, of which $N$ are the log-sum-exp. All of $K$, $V$, $dK$ and $dV$ may be resident, which takes $4Nd$ words (`m.blocks(N, N)` is one block of all rows). Blocks of $B_r$ queries are streamed once. $O$ is not passed, and you do not need it: compute $D_i$ in fast memory, by (6.3) or by (6.6), from tiles that are already there. The available fast memory is $4Nd + B_r(3d + 2N + 6)$ words: the resident arrays and, for each query of a block, three rows of $d$ words, two rows of $N$ scores, and six words. Two methods need no temporary: `D_i.add_row_dots(A, B)` adds the row sums of $A \circ B$ to `D_i`, and `s.multiply_by_matmul(A, B, less=D_i)` turns weights into score gradients. If you are stuck after twelve minutes, run `hint("9C")`.

# %% [raw] name="about-9C"
# title = "A backward pass when everything fits"
# difficulty = 4
# importance = 4
# minutes = 20
# hints = [
#   "Start from your schedule of exercise 6B with one block of all keys. Which of its reads are then redundant? They all serve D. Which sums define D, and which of their terms are in fast memory for a block of queries?",
#   "After the weights of a block of queries are computed, its rows of O are one product away, and so are its rows of dP. Either of them gives D in fast memory and can be freed again.",
#   "For a block: scale q; scores; weights from L; o from weights and v; D from the row products of do and o; free o; update dV; turn the weights into score gradients; update dK; compute, scale and store dq. Store dK and dV once, after the last block.",
# ]

# %% tags=["exercise"] name="ex-9C"
def my_whole_backward(m, Q, K, V, dO, LSE, *, Br):
    """Backward pass with all keys resident; each input is read once.

    m: the machine. Q, K, V, dO: slow arrays (N, d). LSE: slow array (N,).
    Br: rows per query block. Returns the slow arrays (dQ, dK, dV), each (N, d).
    """
    N, d = Q.shape
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    ### BEGIN SOLUTION resident keys; for each query block the weights, D, and three gradients
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
fused = costs.fused_backward(N, d, Br=1, Bc=N)
least = bounds.lower_bound("backward", N, d, 6 * N * d)[0]
print(whole.ledger)
print(f"largest error below 1e-12: {error < 1e-12}; fused {fused.total:,} words, "
      f"yours {whole.ledger.total:,}, lower bound {least:,}")

# %% [markdown]
# Your schedule moves 28,928 words. The fused backward moves 37,632, and 28,672 are compulsory. A table of schedules alone would not have shown that $9Nd$ words are too many.
#
# ## 9.6 Explore the regimes
#
# (Without a running kernel you see a still figure.) Change `N`, then `d`: which borders move, and how far? Then set the pass to `backward`. Up to which `M` do the schedules with precomputed $P$ move fewer words than the others? Compare with section 9.2.

# %%
explore.traffic_explorer()

# %% [markdown]
# ## 9.7 Ratios to the lower bounds
#
# How close are the best schedules to the proved bounds? For backward schedules that compute $P$ themselves, Theorem C' (section 9.8) holds too, so some ratios are smaller than in the figure:

# %%
backward = schedules.optimality_gaps("backward", 8192, 64, [4**k for k in range(2, 12)])
print(schedules.optimality_gap_table(backward, 64))

# %% [markdown]
# The ratio is about 2 or more from $d^2/4$ to $4d^2$, in and near the regime with stored matrices. It is largest at $2Nd$ (the line $256\,d^2$), 2.44, where the fused backward still has three blocks. Your schedule of section 9.5 is not in the table; its ratio in the last line would be 1.00.
# <!-- back = {gap.M: gap for gap in schedules.optimality_gaps("backward", 8192, 64, [round(2 ** (k / 4)) for k in range(16, 85)])} -->
# <!-- wide = [M for M, gap in back.items() if gap.ratio > 1.98 and gap.schedule != "fused_backward"] -->
# <!-- "The ratio is about 2 or more from $d^2/4$ to $4d^2$" if (min(wide), max(wide)) == (64**2 // 4, 4 * 64**2) and all(back[M].ratio > 1.98 for M in back if min(wide) <= M <= max(wide)) -->
# <!-- "where the fused backward still has three blocks" if back[2**20].ratio == max(gap.ratio for gap in back.values()) and back[2**20].schedule == "fused_backward" and math.ceil(8192 / schedules.fused_backward.tiles(8192, 64, 2**20)["Bc"]) == 3 -->
#
# ## 9.8 Open questions
#
# The table is for long sequences, where only the terms with $N^2$ matter.
#
# | where | best schedule | bound | open |
# | --- | --- | --- | --- |
# | forward, $M \ll d^2$ | split-d, $4N^2d/\sqrt M$ | B', the same | nothing in the leading term |
# | forward, around $d^2$ | buffer reuse, stored scores, about $4N^2$ | A and B', about $2.1N^2$ | a factor of 1.9 |
# | forward, $d^2 \ll M \ll Nd$ | buffer reuse, $4N^2d^2/M$ | A, the same | nothing in the leading term |
# | forward, around $Nd$ | resident keys | the larger of $4Nd$ and A | a factor of 1.9 |
# | backward, $M \ll d^2$ | split-d backward, $10N^2d/\sqrt M$ | C', $9.196N^2d/\sqrt M$ | 10 compared with 9.196 |
# | the same, $P$ precomputed | $8N^2d/\sqrt M$ | C'', the same | nothing in the leading term |
# | backward, $d^2/2$ to $2.5d^2$ | stored P, stored dS | C | a factor of 2.2 |
# | backward, $d^2 \ll M \ll Nd$ | two-pass, $14N^2d^2/M$ | C, 12; complete rows: E, 14 | for split rows, 12 to 14 |
# | backward, $Nd$ to $4Nd$ | fused | the larger of $7Nd$ and C | a factor of 2.4 |
# | backward, from a little over $4Nd$ on | yours, $7Nd + N$ | $7Nd$ | nothing |
#
# Theorems C' and C'' are variants of (6.19) in section 6.12; `bounds.BOUNDS` has their formulas. C'' gives the counted products, those for $dQ$, $dK$, $dV$ and $dP$, other weights, and holds for all schedules. C' also counts those for $S$, so it is only for schedules that compute $P$ themselves. Theorem E (section 6.10; E' for schedules that store scores) holds if complete rows are loaded, kept and evicted, as in the two-pass backward; there, the constant 14 is exact. All these bounds are derivations of this course, for the classes that they state. The papers prove orders of growth, so the figure was known up to constants.
#
# All these results are for attention that computes every pair; lessons 15 and 17 discuss approximations. Another hypothesis is easily overlooked: in Theorem A, $K$ and $V$ are distinct arrays. Section 9.11 of part b uses one array for both.
# <!-- 9.196 = bounds.theorem_C_prime(2**40, 2**30, 2**20) / 2**100 -->
# <!-- large = lambda pass_, share: schedules.optimality_gaps(pass_, 2**22, 4096, [int(share * 4096**2)])[0] -->
# <!-- 2.1 = large("forward", 1).bound / (2**22) ** 2 -->
# <!-- 2.2 = large("backward", 4 / 3).ratio -->
# <!-- "about $4N^2$" if math.isclose(large("forward", 1).words, 4 * (2**22) ** 2, rel_tol=0.005) -->
# <!-- middle = [large("backward", share) for share in (0.5, 0.75, 1, 4 / 3, 2, 2.5)] -->
# <!-- "stored P, stored dS | C | a factor of 2.2" if {(gap.schedule, gap.bound_id) for gap in middle} == {("weights_stored", "C"), ("score_gradients_stored", "C")} and all(2.05 < gap.ratio < 2.25 for gap in middle) -->
# <!-- around = schedules.optimality_gaps("forward", 8192, 64, [8192 * 64 * tenth // 10 for tenth in range(6, 20)]) -->
# <!-- "around $Nd$ | resident keys" if {gap.schedule for gap in around} == {"resident_keys"} and round(max(gap.ratio for gap in around), 1) == 1.9 -->
# <!-- 2.4 = max(gap.ratio for gap in schedules.optimality_gaps("backward", 8192, 64, [8192 * 64 * tenth // 10 for tenth in range(10, 41)])) -->
#
# ## 9.9 Four memories of three chips
#
# Take three real chips and the attention head of a large language model, $N = 8192$ tokens and $d = 128$. Data sheets give bytes, with 1 KB = 1024 bytes.
#
# - **uno**: the ATmega328P of an Arduino UNO has 2 KB of SRAM. Numbers in float32.
# - **stm32**: an STM32F746 microcontroller has 64 KB of data memory that is coupled to its core, the DTCM. Numbers in float32.
# - **sm**: one SM (processor core) of an NVIDIA H100 has up to 228 KB of shared memory, and a program may use 227. Numbers in bf16.
# - **l2**: the level-2 cache of the same H100 has 50 MB, shared by all SMs. Numbers in bf16.
#
# Slow memory is the next level: a memory chip on a bus for the two small chips, HBM for the H100.
# <!-- 1.9 = large("forward", 1).ratio -->
# <!-- 1, 1024 as definition -->
# <!-- 2 from https://docs.arduino.cc/resources/datasheets/ATmega328P-datasheet.pdf -->
# <!-- 228, 50 from https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html -->
# <!-- 227 = CHIPS[90].shared_bytes / 2**10 -->
# <!-- 64 as input -->
# <!-- 1.9 = max(gap.ratio for gap in schedules.optimality_gaps("forward", 8192, 64, [8192 * 64 * tenth // 10 for tenth in range(2, 41)])) -->

# %%
N, d = 8192, 128
CHIPS = {"uno": (2 * 1024, 4), "stm32": (64 * 1024, 4),  # bytes, bytes per word
         "sm": (227 * 1024, 2), "l2": (50 * 1024**2, 2)}  # sm: 227 of 228 KB
MEMORY = {chip: size // word for chip, (size, word) in CHIPS.items()}  # in words
for chip, M in MEMORY.items():
    print(f"{chip:6} {M:10,} words = {M / d**2:9.3f} d² = {M / (N * d):8.4f} Nd")

# %% [markdown]
# **Predict** (compute). Which schedule moves the fewest words? Write the digit of its label: in the first line, 3 for buffer reuse, 5 for split-d or 7 for stored scores; in the second line 3 for fused, 4 for two-pass, 5 for split-d, 6 for stored dS or 7 for stored P. The borders are at $d^2/4$ and $d^2$ forward, and at $d^2/4$, $\frac43 d^2$, $2.5\,d^2$ and $\frac23 Nd$ backward. If $M$ is exactly at a border, use the schedule that the count favoured in section 9.3.

# %% tags=["predict"]
predict("9.9a", uno=5, stm32=7, sm=3, l2=3)  #> predict("9.9a", uno=..., stm32=..., sm=..., l2=...)
predict("9.9b", uno=5, stm32=7, sm=4, l2=3)  #> predict("9.9b", uno=..., stm32=..., sm=..., l2=...)

# %% [markdown]
# Now we count, in a dry run of the best schedule on the machine:

# %%
def by_envelope(pass_):
    return " ".join(f"{chip} {my_envelope(N, d, M, pass_)[0]}" for chip, M in MEMORY.items())


best = {}
for pass_, question in (("forward", "9.9a"), ("backward", "9.9b")):
    print(f"{pass_} by the envelope:", attempt(by_envelope, pass_))
    for chip, M in MEMORY.items():
        label, _ = counted(N, d, M, pass_)
        s = schedules.get(NAMED[pass_][label])
        done = run(s, M=M, dry=True, **s.shapes(N, d), **s.tiles(N, d, M)).ledger
        least, which = bounds.lower_bound(pass_, N, d, M, given_weights=False)
        print(f"  {chip:6} {label} {done.total:13,} words, {done.total / least:.2f} × {which}")
        best[chip] = int(label[1])
    measured(question, **best)

# %% [markdown]
# <details><summary>A chip on a border</summary>
#
# The 64 KB of the stm32 are 16,384 words, exactly $d^2$, so in the forward pass it is on the border. The envelope has a tie there, and the count favours stored scores by 2 percent. The other seven labels agree. With $d = 64$, the same chip would hold $4d^2$ words, and row blocks would be best in both passes. A regime is never a property of a chip; it belongs to the chip *and* the head.
#
# </details>
# <!-- moved = lambda name, M: schedules.get(name).cost(8192, 128, **schedules.get(name).tiles(8192, 128, M)).total -->
# <!-- 2 = 10**2 * (moved("flash_optimal", 2**14) / moved("scores_stored_tiled", 2**14) - 1) -->
#
# The L2 cache holds 25 arrays of $Nd$ words. The forward traffic is already compulsory. In the backward pass, the fused backward moves 1.29 times the compulsory words. Now your schedule:
# <!-- "the fused backward moves 1.29 times the compulsory words" if bounds.lower_bound("backward", 8192, 128, 25 * 2**20)[1].startswith("compulsory") and schedules.best(8192, 128, 25 * 2**20, "backward").schedule.name == "fused_backward" -->
# <!-- 1.29 = schedules.fused_backward.count(8192, 128, 25 * 2**20).total / bounds.lower_bound("backward", 8192, 128, 25 * 2**20)[0] -->
# <!-- 64 as input -->

# %%
M, rows = MEMORY["l2"], (N, d)
yours = attempt(run, my_whole_backward, M=M, dry=True, Q=rows, K=rows, V=rows, dO=rows,
                LSE=(N,), Br=16)
least = bounds.lower_bound("backward", N, d, M)[0]
print(f"yours {yours.ledger.total:,} words, {yours.ledger.total / least:.3f} × the bound, "
      f"with {yours.ledger.peak:,} words of fast memory")

# %% [markdown]
# Your schedule moves 7,348,224 words, 1.001 times the lower bound. From the Arduino to the L2 cache, fast memory grows by a factor of 51,200, and the traffic of the forward pass falls by a factor of 415.
# <!-- uno, l2 = 2 * 2**10 // 4, 50 * 2**20 // 2 -->
# <!-- 51,200 = l2 / uno -->
# <!-- small, rows = schedules.small_cache, schedules.flash_optimal -->
# <!-- 415 = small.cost(8192, 128, **small.tiles(8192, 128, uno)).total / rows.cost(8192, 128, **rows.tiles(8192, 128, l2)).total -->
# <!-- 1.001 = 7348224 / bounds.lower_bound("backward", 8192, 128, l2)[0] -->

# %% [markdown]
# ## Misconceptions
#
# - **"The border $d^2$ of the papers is only an order of magnitude."** With the best known constants, $4x^2 = 2x^2 + 2$ at $x = 1$, which is exactly $d^2$ (9.2). In the backward pass it is $2.5\,d^2$, so the two passes have different borders.
# - **"The search found the optimum."** It found the best sequence of passes. Resident keys is not such a sequence, and moves fewer words (9.4).
#
# ## Take-away
#
# - Four memory regimes: square tiles below $d^2/4$, stored matrices up to $d^2$ (backward $2.5\,d^2$), row blocks up to about $Nd$, and then compulsory traffic (forward exactly from about $2Nd$ on).
# - A pass over the data moves $r\,t\,x^2 + n$. The best sequence of passes is not a lower bound.
# - Let the resident arrays fill $M$, drop the rounding, and count at least one pass. Eight closed forms then select the schedule, and give its words within a factor of 1.5.
# - Schedules are closest to the lower bounds where $M$ is far from $d^2$ and $Nd$, and farthest from them near these two. Each gap poses a question: is there a better schedule or a better proof?
#
# **In the literature's words**: the envelope of traffic over $M$ is a Pareto front of traffic and memory. Saha and Ye call the least traffic the I/O complexity; they have two memory regimes, $M < d^2$ (small cache) and $M \ge d^2$ (large cache).
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691).
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443). The two regimes of the forward pass, up to constants.
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On Fine-Grained I/O Complexity of Attention Backward Passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). The same for $dL/dX$.
# - *ATmega328P*, data sheet, [docs.arduino.cc](https://docs.arduino.cc/resources/datasheets/ATmega328P-datasheet.pdf): 2 KB of SRAM.
# - STMicroelectronics: *STM32F745xx, STM32F746xx*, data sheet DS10916. Of its SRAM, 64 KB are data TCM.
# - NVIDIA: *Tuning CUDA Applications for Hopper GPU Architecture*, [docs.nvidia.com](https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html), sections 1.4.1.1 and 1.4.2.2. H100: per SM 228 KB of shared memory, 227 for one block of threads; 50 MB of L2.
#
# **What comes next.** <!-- next -->
# <!-- 2 from https://docs.arduino.cc/resources/datasheets/ATmega328P-datasheet.pdf -->
# <!-- 228, 50 from https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html -->
# <!-- 227 = CHIPS[90].shared_bytes / 2**10 -->
# <!-- 64 as input -->
# <!-- 1.5 = 6 / 4 -->
