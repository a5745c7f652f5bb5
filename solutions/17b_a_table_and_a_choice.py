# %% [markdown]
# # 17b A table, and a choice
#
# What has been published about attention by polynomials: what was measured, and how? This lesson reads one table, reproduces its digits first, and redoes it with one baseline. Then come problems of every kind, for which you choose a schedule and defend it with its ledger; and somebody else's defence, a table that lies although each of its numbers was measured.
#
# **What you will learn**
#
# - to read a table of results: its metric, its operator, its data, its clock, its baseline;
# - to choose between exact, sparse, small-cache and low-rank schedules, with a ledger and a claim;
# - to see what a table of measured numbers can hide, and to compute it anew.
#
# **Prerequisites**: lessons 04, 07 and 08 (the schedules to choose from), lesson 15 (degrees, ranks, the Poisson rule), and of [lesson 17](17_error_growth_and_training.ipynb) the idea of a control. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 17E -->.
#
# <!-- exercises -->
#
# Exercises need NumPy only. One cell draws the published data and needs PyTorch; without it, it prints the line that installs it. If Numba is installed (extra `fast`) our passes run compiled, after some seconds of compiling the first time.

# %% tags=["setup"]
import time
from importlib.util import find_spec
from math import comb, factorial

import numpy as np

from iocourse import costs, exact, lowrank, masks
from iocourse.course import attempt, check, explore, hint, measured, misleading_table, predict
from iocourse.data.records import load_record, record_source
from iocourse.doctor import install_command


def with_torch(work, *arguments):
    """work(*arguments); where PyTorch is not installed, None and a sentence."""
    if not find_spec("torch"):
        print("torch is not installed here:", install_command.command("torch"))
        return None
    import torch

    torch.set_num_threads(1)  # small products: more threads would only wait for each other
    return work(*arguments)


# %% [markdown]
# ## 17.7 A table: its metric
#
# The paper on multi-layer gradients, 2408.13233, has a table of measurements of the forward pass. $n$ is the number of tokens, which grows with $d$ as $n = 10 \cdot 2^d$:
#
# | $d$ | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | relative error, percent | 4.673 | 2.505 | 2.846 | 1.838 | 2.005 | 1.620 | 1.286 | 1.558 | 0.773 |
# | speed-up | 1.42 | 1.73 | 2.58 | 3.90 | 9.43 | 26.4 | 26.7 | 40.3 | 79.0 |
#
# Drawn, both rows together:
# <!-- 4.673, 2.505, 2.846, 1.838, 2.005, 1.620, 1.286, 1.558, 0.773 from https://arxiv.org/abs/2408.13233 -->
# <!-- 1.42, 1.73, 2.58, 3.90, 9.43, 26.4, 26.7, 40.3, 79.0 from https://arxiv.org/abs/2408.13233 -->

# %%
PRINTED = {4: (4.673, 1.42), 5: (2.505, 1.73), 6: (2.846, 2.58), 7: (1.838, 3.90),
           8: (2.005, 9.43), 9: (1.620, 26.4), 10: (1.286, 26.7), 11: (1.558, 40.3),
           12: (0.773, 79.0)}
explore.curve({"relative error, percent": [(d, error) for d, (error, _) in PRINTED.items()],
               "speed-up, times": [(d, factor) for d, (_, factor) in PRINTED.items()]},
              title="The table as it is printed", xlabel="d (n = 10 · 2ᵈ)",
              ylabel="number printed", log=(False, True))

# %% [markdown]
# From left to right the error falls, not evenly, from 4.673 to 0.773 percent, and the speed-up grows from 1.42 to 79.0. Better *and* faster, row by row: why both at once? The authors have published their script (in `JamesSand/MultiLayer`), and a script says exactly what a number means. We read its metric first, then its operator, its data and its clock. The table's error of an approximation $x$ of $y$ is
# <!-- 4.673, 0.773 from https://arxiv.org/abs/2408.13233 -->
# <!-- "Better *and* faster" from https://arxiv.org/abs/2408.13233 -->
#
# $$ e = \frac{\lVert x - y \rVert}{\lVert x + y \rVert} , \qquad\text{where the usual relative error is}\qquad u = \frac{\lVert x - y \rVert}{\lVert y \rVert} . \tag{17.5} $$
# <!-- (17.5) not evaluated: definition -->
#
# If $x$ is close to $y$, then $x + y$ is close to $2y$, so $e$ is about half of $u$. How close to half, if only $e$ is known?
#
# <!-- exercise 17C --> Give the least and the largest usual error that go with a printed one. Both as fractions, not in percent; `float("inf")` where there is no limit. The triangle inequality is enough, and the range has to be as narrow as possible. If you are stuck after four minutes, run `hint("17C")` in a cell of your own.

# %% [raw] name="about-17C"
# title = "What a printed error says"
# difficulty = 2
# importance = 4
# minutes = 6
# hints = [
#   "Both errors have the same numerator. So what must you know about the length of x + y if y has length 1?",
#   "x + y is 2y + (x - y). By the triangle inequality its length differs from 2 by at most the length of x - y, which is the usual error u if y has length 1.",
#   "So the printed error is between u/(2 + u) and u/|2 - u|. Solve each end for u. A printed error below 1 gives one solution of u/(2 - u), one above 1 gives another of u/(u - 2). Only for exactly 1 is there no limit: return infinity there.",
# ]

# %% tags=["exercise"] name="ex-17C"
def my_usual_range(theirs):
    """The least and the largest |x - y| / |y| for a given |x - y| / |x + y|.

    theirs: a number of at least 0. Returns (least, largest).
    """
    ### BEGIN SOLUTION |x + y| lies between |2 - u| and 2 + u times |y|
    least = 2 * theirs / (1 + theirs)
    largest = 2 * theirs / abs(1 - theirs) if theirs != 1 else float("inf")
    return least, largest
    ### END SOLUTION


# %% tags=["check"] name="check-17C"
check("17C", my_usual_range)

# %%
def print_ranges():
    for percent in (4.673, 0.773):
        least, largest = my_usual_range(percent / 100)
        print(f"printed {percent} percent: usual error between {least:.3%} and {largest:.3%}")


attempt(print_ranges);

# %% [markdown]
# <details><summary>What the first and the last row mean</summary>
#
# The 4.673 percent of the first row are between 8.929 and 9.804 percent in the usual metric, and the 0.773 of the last between 1.534 and 1.558.
# <!-- 4.673, 0.773 from https://arxiv.org/abs/2408.13233 -->
# <!-- 8.929, 9.804 = (100 * one for one in lesson17.usual_range(4.673 / 100)) -->
# <!-- 1.534, 1.558 = (100 * one for one in lesson17.usual_range(0.773 / 100)) -->
#
# </details>
#
# The metric is a legitimate one, symmetric in $x$ and $y$. It is not what a reader takes a relative error to be.
#
# ## 17.8 Its operator, its data, its clock
#
# **The operator.** With $A = e^{QK^\top}$ and its row sums on the diagonal of $D$, softmax attention is $D^{-1}AV$. In the script the sums are transposed before the division, so that what is divided by the sum of row $j$ is *column* $j$: it computes $A D^{-1} V$. It does so in the exact and in the approximate code alike, so both are compared consistently; the comparison is of another operator. Here are the two on three tokens:

# %%
A = np.exp(np.array([[1.0, 0.0, -1.0], [0.5, 0.5, 0.0], [-1.0, 2.0, 0.0]]))
sums = A.sum(axis=1)
for name, weights in (("D⁻¹A", A / sums[:, None]), ("AD⁻¹", A / sums[None, :])):
    print(name, "rows sum to", np.round(weights.sum(axis=1), 3))

# %% [markdown]
# Rows of softmax weights sum to 1. Those of $AD^{-1}$ sum to 0.94, 0.901 and 1.924: its outputs are not means of values.
#
# **The data.** Queries and keys are normal, divided by $\sqrt d$, and the scores are not scaled again. So the standard deviation of a score is $1/\sqrt d$, 0.5 in the first row and 0.29 in the last. From row to row $n$ doubles *and* $d$ grows; which of the two brings the error down?
#
# **Predict** (guess). Taylor's degree 2, softmax, the usual error. By what factor does it change from $n = 160$ to $n = 2560$ with $d = 4$, and by what factor from $d = 4$ to $d = 12$ with $n = 640$?

# %% tags=["predict"]
predict("17.8", more_tokens=1, more_columns=0.2)  #> predict("17.8", more_tokens=..., more_columns=...)

# %%
def taylor_weights(S, g=4):
    A = sum(S**l / factorial(l) for l in range(g + 1))
    return A / A.sum(axis=-1, keepdims=True)


def error_of_degree_2(n, d, seeds=5):
    found = []
    for seed in range(seeds):
        q, k, v = np.random.default_rng(seed).standard_normal((3, n, d))
        S = q @ k.T / d  # both divided by √d
        o = exact.softmax(S) @ v
        found.append(np.linalg.norm(taylor_weights(S, 2) @ v - o) / np.linalg.norm(o))
    return np.mean(found)


here = {(n, d): error_of_degree_2(n, d)
        for n, d in ((160, 4), (640, 4), (2560, 4), (640, 8), (640, 12))}
for (n, d), error in here.items():
    print(f"n = {n:4}, d = {d:2}: σ = {d**-0.5:.2f}, error {error:.1%}")
measured("17.8", more_tokens=here[2560, 4] / here[160, 4],
         more_columns=here[640, 12] / here[640, 4])

# %% [markdown]
# <details><summary>Tokens or columns</summary>
#
# Sixteen times the tokens change little, by a factor of 1.14, and if anything upwards. Three times the columns divide the error by 6.1. In the table it falls because $1/\sqrt d$ does. With $d$ fixed and $n$ growing it would stand still, as (15.6) and the Poisson rule say it must. So the two rows of the table have two causes: the error falls with $d$, and the speed-up grows with $n$.
#
# </details>
#
# Now the first rows themselves. Everything is drawn from one generator, row after row, $d = 4$ first. The features are those of degree 2 without collecting, $1 + d + d^2$ of them, and single precision throughout. If we have read the script correctly, the printed digits must come out.
# <!-- 6.1 = 1 / 0.1634 -->
# <!-- 1.14 as output -->

# %%
def drawn_rows(last):
    """(d, q, k, v) of the published rows from d = 4 to `last`, arrays (n, d) in float32."""
    import torch

    source = torch.Generator().manual_seed(2)
    for d in range(4, last + 1):
        n = 10 * 2**d
        q, k, v = (torch.randn(1, 1, n, d, generator=source)[0, 0].numpy() for _ in range(3))
        yield d, q / d**0.5, k / d**0.5, v


def their_features(x):
    """1, x and all products of two entries over √2, shape (n, 1 + d + d²)."""
    squares = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1) / 2**0.5
    return np.concatenate([np.ones_like(x[:, :1]), x, squares], axis=1)


def their_exact(q, k, v):
    A = np.exp(q @ k.T)
    return A @ (v / A.sum(axis=1)[:, None])


def their_algorithm(q, k, v):
    left, right = their_features(q), their_features(k)
    sums = left @ right.sum(axis=0)
    return left @ (right.T @ (v / sums[:, None]))


# %%
def theirs(x, y):
    return 100 * np.linalg.norm(x - y) / np.linalg.norm(x + y)


def usual(x, y):
    return 100 * np.linalg.norm(x - y) / np.linalg.norm(y)


def reproduce(last=7):
    print("d      n   their metric   usual, theirs   usual, softmax:"
          " Taylor 2   own 2   own 3   mean of V")
    for d, q, k, v in drawn_rows(last):
        x, y = their_algorithm(q, k, v), their_exact(q, k, v)
        o = exact.softmax((q @ k.T).astype(float)) @ v
        taylor = taylor_weights((q @ k.T).astype(float), 2) @ v
        own = [lowrank.attention(q, k, v, degree=g, scale=1.0) for g in (2, 3)]
        print(f"{d} {len(q):6} {theirs(x, y):14.3f} {usual(x, y):15.3f}"
              f" {usual(taylor, o):26.3f} {usual(own[0], o):7.2f} {usual(own[1], o):7.2f}"
              f" {usual(v.mean(axis=0), o):11.2f}")


with_torch(reproduce);

# %% [markdown]
# 4.673, 2.505, 2.846, 1.838: digit for digit. Beside them the same approximation in the usual metric, 9.211 percent in the first row; then on softmax, with the same degree, 6.954 percent; then what each row's own polynomial of section 15.6 makes of degree 2 and of degree 3, 5.13 and 1.19. These two have 15 and 35 features in the first row, where the script has 21.
#
# **The clock.** The speed-ups are quotients of single runs, timed with `time.time()`, without a run before to warm up. What does that do? Time the same exact attention first once, then again:
# <!-- 15, 35, 21 = math.comb(6, 2), math.comb(7, 3), 1 + 4 + 4**2 -->
# <!-- 9.211, 6.954 as output -->

# %% tags=["nbval-ignore-output"]
def laps(count=9, n=1280, d=7):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, n, d)).astype(np.float32) / d**0.5
    found = []
    for _ in range(count):
        start = time.perf_counter()
        their_exact(q, k, v)
        found.append(1000 * (time.perf_counter() - start))
    return found


first, *later = laps()
print(f"first run {first:.1f} ms; then median {np.median(later):.1f}, "
      f"from {min(later):.1f} to {max(later):.1f} ms")

# %% [markdown]
# What you see depends on your machine, so no number is quoted. A first run may pay for what later ones do not: fresh pages, threads, code to be loaded. In a quotient that may fall on one side only. So a comparison warms up both sides, interleaves them, repeats, gives a median with the range, and says how many threads both had.
#
# None of this shows that the idea is bad. It shows what the table is: a measurement of the forward pass of one operator, in one metric, on data whose scores shrink with $d$, timed once.
#
# ## 17.9 The table, redone
#
# The same data and metric, on one thread: warm, interleaved, medians. The baseline, exact softmax attention, needs the same care as low rank. PyTorch's attention (SDPA) alone is not enough: with zero columns added up to a multiple of 16 it computes the same output, and at some $d$ it takes less time. So the record has several exact runs: SDPA; padded SDPA; attention that writes its weights in place; and compiled loops that were written for this purpose. Every quotient of times is over the fastest exact run of its row, which is named. "The script" is the published algorithm itself, timed in the same run. (`python -m tools.bench lowrank` does it.)
#
# Next to each quotient of times is the quotient of multiply-adds. Exact attention has $2N^2d$ of them in its products and low rank with $r$ features $2Nr(d + 1)$, so it is $\frac{N}{r} \cdot \frac{d}{d + 1}$. It is the same on every machine and for every program. Each row also has the error of a control that outputs the mean of $V$ for every query.
#
# Degree 4 has the smallest errors of those shown, and in the nine published rows 3.3 to 11.6 times as many features as the script.
# <!-- record = load_record("lowrank") -->
# <!-- published = [row for row in record["forward"] if row["published_error"]] -->
# <!-- 16 as definition -->
# <!-- "at some $d$ it takes less time" if any(row["exact_ms"].get("SDPA, padded", math.inf) < 0.95 * row["exact_ms"]["SDPA"] for row in published) -->
# <!-- "The baseline, exact softmax attention" if all(row["baseline_ms"] == min(row["exact_ms"].values()) for part in ("forward", "gradient", "causal_gradient") for row in record[part]) -->
# <!-- "Every quotient of times is over the fastest exact run" if all(one["speedup"] == row["baseline_ms"] / one["ms"] for row in record["forward"] for one in row["degrees"]) -->
# <!-- "Degree 4 has the smallest errors of those shown" if all(min((one for one in row["degrees"] if one["g"] <= 4), key=lambda one: one["judged"])["g"] == 4 for row in published) -->
#
# **Predict** (guess). In how many of the nine rows is our degree 4 nevertheless faster than the script?
# <!-- "nevertheless faster than the script" if len(published) == 9 -->
# <!-- 3.3, 11.6 = math.comb(8, 4) / (1 + 4 + 4**2), math.comb(16, 4) / (1 + 12 + 12**2) -->

# %% tags=["predict"]
predict("17.9", rows=2)  #> predict("17.9", rows=...)

# %%
def of_degree(row, g):
    return next(one for one in row["degrees"] if one["g"] == g)


def better_than_script(rows, g):
    """In how many rows degree g has a smaller error, and in how many a smaller time too."""
    fine = [row for row in rows if of_degree(row, g)["judged"] < row["their_error"]]
    return len(fine), sum(of_degree(row, g)["ms"] < row["their_ms"] for row in fine)


def print_row(row, degrees=(2, 3, 4)):
    """One row: the fastest exact run, the mean of V, the script, and some degrees."""
    exact_ms = row["baseline_ms"]
    print(f"d = {row['d']}, n = {row['n']:,}: fastest exact run {row['baseline']},"
          f" {exact_ms:.4g} ms; mean of V: error {row['mean_of_v_error']['judged']:.3g} %")
    lines = [(f"degree {one['g']}", one["ms"], one["multiply_adds"], one["judged"])
             for one in row["degrees"] if one["g"] in degrees]
    if "their_ms" in row:
        script = row["their_ms"], row["their_multiply_adds"], row["their_error"]
        lines.insert(0, ("script", *script))
    for name, ms, adds, error in lines:
        print(f"  {name:8} {ms:8.3f} ms: {exact_ms / ms:6.1f}× in time,"
              f" {adds:7.1f}× in multiply-adds, error {error:6.3f} %")


lowrank_run = load_record("lowrank")
print(record_source(lowrank_run))
if lowrank_run:
    table_rows = [row for row in lowrank_run["forward"] if row["published_error"]]
    for row in table_rows:
        print_row(row)
    for g in (2, 3, 4):
        fine, faster = better_than_script(table_rows, g)
        print(f"degree {g}: a smaller error in {fine} rows, and a smaller time too in {faster}")
    measured("17.9", rows=faster)

# %%
explore.lowrank_vs_published(lowrank_run)

# %% [markdown]
# <details><summary>In how many rows, and where not</summary>
#
# The last line of the output has the number. More features can take less time, because none is stored: in the last row degree 4 has 1,820 features and the script 157. Degrees 2 and 3 are more accurate *and* faster in the seven rows from $d = 6$ on. In the first row the script is faster.
# <!-- better = lambda g: [one["ms"] < row["their_ms"] and one["judged"] < row["their_error"] for row in published for one in row["degrees"] if one["g"] == g] -->
# <!-- "more accurate *and* faster in the seven rows from $d = 6$ on" if all(better(2)[2:] + better(3)[2:]) and [row["d"] for row in published] == list(range(4, 13)) -->
# <!-- "In the first row the script is faster" if not any(better(2)[:1] + better(3)[:1]) -->
# <!-- 6 as definition -->
# <!-- "More features can take less time" if any(better(4)) -->
# <!-- 1,820, 157 = math.comb(16, 4), 1 + 12 + 12**2 -->
#
# </details>
#
# The *published* speed-ups in the picture were measured on another machine, and cannot be divided by these. And the script's error is that of its own operator, ours that of softmax.
#
# So the idea is better than its table, with each monomial once in place of all products, each row's own polynomial, and features that are made in a small tile and never stored. The first is not ours: Heinsen and Kozachkov (2602.00294) build Taylor's features on that symmetry. The factors are against exact attention on the *same* CPU, one thread, and they grow with $n$ because exact attention is quadratic, so a large factor can be had by choosing $n$. The record has four more rows, with fewer tokens or more columns:
# <!-- "four more rows" if len(record["forward"]) == len(published) + 4 -->

# %%
if lowrank_run:
    for row in lowrank_run["forward"][len(table_rows):]:
        print_row(row, degrees=(3,))

# %% [markdown]
# At $d = 12$ the quotients of degree 3 fall with $n$. At $d = 32$ degree 3 has more multiply-adds than exact attention of 4,096 tokens, and takes longer. So a quotient needs its $d$, $n$, degree, error and exact run.
# <!-- third = lambda d, n: next(one for row in record["forward"] if (row["d"], row["n"]) == (d, n) for one in row["degrees"] if one["g"] == 3) -->
# <!-- "the quotients of degree 3 fall with $n$" if all(third(12, 4096)[key] < third(12, 10_240)[key] < third(12, 40_960)[key] for key in ("speedup", "multiply_adds")) -->
# <!-- "more multiply-adds than exact attention" if third(32, 4096)["multiply_adds"] < 1 and third(32, 4096)["speedup"] < 1 -->
# <!-- 4,096 = record["forward"][-1]["n"] -->
#
# The paper is about the gradient and did not measure it. Here are both passes, with all keys and under the causal mask, over the fastest exact run of both passes. An error is the worst of $dQ$, $dK$ and $dV$ in the published metric; the mean of $V$ has no gradient by $Q$ and $K$, so its error is 100 percent. In both passes exact attention has $6N^2d$ multiply-adds in its products, if it computes each score once, and low rank $6Nr(d + 1)$: the quotient is that of the forward pass. Under the mask exact attention has half of the pairs.
# <!-- "over the fastest exact run of both passes" if all(row["baseline_ms"] == min(row["exact_ms"].values()) for part in ("gradient", "causal_gradient") for row in record[part]) -->
# <!-- "An error is the worst of $dQ$, $dK$ and $dV$" if all(one["judged"] == max(one["their_errors"][x] for x in ("dQ", "dK", "dV")) for part in ("gradient", "causal_gradient") for row in record[part] for one in row["degrees"]) -->
# <!-- 100 = record["gradient"][0]["mean_of_v_error"]["errors"]["dQ"] -->
# <!-- "the quotient is that of the forward pass" if all(abs(a["multiply_adds"] / b["multiply_adds"] - 1) < 1e-9 for x, y in zip(record["forward"], record["gradient"]) for a, b in zip(x["degrees"], y["degrees"])) -->

# %%
if lowrank_run:
    for section, keys in (("gradient", "all keys"), ("causal_gradient", "causal")):
        print(f"forward and backward, {keys}")
        for row in lowrank_run[section]:
            if row["d"] in (8, 12):
                print_row(row)

# %% [markdown]
# At $d = 12$ and 40,960 tokens the worst gradient of degree 3 has a smaller error than the script's *output*, that of degree 2 a larger one. Under the causal mask the quotients are smaller.
# <!-- longest = {part: next(row for row in record[part] if (row["d"], row["n"]) == (12, 40_960)) for part in ("forward", "gradient", "causal_gradient")} -->
# <!-- 40,960 = longest["gradient"]["n"] -->
# <!-- "a smaller error than the script's *output*" if longest["gradient"]["degrees"][1]["judged"] < longest["forward"]["their_error"] < longest["gradient"]["degrees"][0]["judged"] -->
# <!-- "Under the causal mask the quotients are smaller" if all(a["speedup"] > b["speedup"] for a, b in zip(longest["gradient"]["degrees"], longest["causal_gradient"]["degrees"])) -->
#
# Any row and degree, under your hand:

# %%
explore.lowrank_table()

# %% [markdown]
# And lengths up to a million tokens:

# %%
explore.lowrank_scaling(lowrank_run)

# %% [markdown]
# Ours grows like $n$, exact attention like $n^2$, in both passes. Beyond the lengths at which it was timed, the line of exact attention is extrapolated.
#
# **On a GPU** there is no recorded run yet. There both passes run in torch, without a kernel of their own. The time that they take is not known to this course.
# <!-- "no recorded run" if "gpu" not in record -->
#
# ## 17.10 Choose and defend
#
# Somebody comes with a head and a chip: $N$ tokens, $d$ columns, $M$ words of fast memory; the standard deviation $\sigma$ of a row's logits, which are about normal; the largest relative error of $O$ that the model bears; and perhaps a window, if the model was trained to look $w$ tokens to either side. You answer with a schedule, its tiles, the words it moves, and what you claim about its error. Five schedules of the forward pass are on offer:
#
# | name in `costs` | computes | tile |
# | --- | --- | --- |
# | `flash_optimal`, F3 | attention to all keys, exactly | $B_c = 1$ and $B_r = \min\bigl(N, \lfloor (M - d)/(2d + 3) \rfloor\bigr)$ |
# | `small_cache`, F5 | the same | a square, $B_r = B_c = B_d = \lfloor\sqrt{M + 4}\rfloor - 2$, cut to $N$, $N$ and $d$ |
# | `window` | a window, by a ring of keys | none; `costs.window(N, d, w=w)` |
# | `block_sparse` | the same, by F3's order | $B_c = 1$, $B_r$ as in F3; `mask=masks.Window(N, w)` |
# | `low_rank` | about attention to all keys | $g$; any $B_d \le d + 1$ with $r_c = \min\bigl(r, \lfloor (M - d - B_d)/B_d \rfloor\bigr)$ |
#
# And five rules, each of which you have met:
#
# 1. A window belongs to the model. With one, `window` and `block_sparse` compute what was asked for, and the other three do not. Without one it is the other way round.
# 2. What is exact claims an error of 0. Low rank claims what the Poisson rule (15.10) gives for $\sigma$ and its degree, and the claim must not exceed the allowed error. The rule is about normal logits and the unclipped polynomial, so for $\sigma^2 > 0.8$ it claims nothing.
# 3. Nobody has told us a limit on the largest logit. So only even degrees are certified to have positive row sums (section 15.8).
# 4. The footprint, `peak` of the closed form, is at most $M$.
# 5. Fewest words win. At equal words exact attention wins: an approximation has to pay for its error.
#
# <!-- exercise 17D --> Write the choice. `costs.<name>(N, d, …)` gives a ledger for given tiles, with `total` and `peak`; the library's own choosers are not available here. The check has problems of every kind, some of them traps for a chooser that looks at words alone, and allows a tenth more words than the library's best tiles need. If you are stuck after fifteen minutes, run `hint("17D")` in a cell of your own.

# %% [raw] name="about-17D"
# title = "The choice of a schedule"
# difficulty = 4
# importance = 5
# minutes = 24
# hints = [
#   "Consider the five schedules one after the other, with three questions each: does it compute the attention of this model within the error? Which tiles fit in M? What is the total of its ledger? Then select the smallest.",
#   "A window leaves two schedules. Without a window, low rank needs σ² up to 0.8 and an even degree whose claim is small enough; try every number of columns for its tile. If not even one row fits, the schedule does not fit.",
#   "Collect candidates as (words, claim, name, tiles) in a list and take the smallest: for equal words the smaller claim comes first, so an exact schedule wins a tie. Skip candidates with a footprint above M; costs.<name>(…).peak and costs.<name>(…).total give footprint and words.",
# ]

# %% tags=["exercise"] name="ex-17D"
def my_choice(N, d, M, sigma, error, w):
    """A schedule for this problem, and its defence.

    N, d, M: tokens, columns, words of fast memory. sigma: standard deviation of a row's
    logits. error: the largest relative error allowed. w: half width of the window, or None.
    Returns (name, tiles, words, claim): a name of the table; a dictionary such as
    {"Br": 4, "Bc": 1}, with "g", "rc" and "Bd" for low rank and {} for "window"; whole
    words; the relative error claimed, 0 for what is exact.
    """
    ### BEGIN SOLUTION every candidate that computes the right thing and fits; the smallest
    found = []  # (words, claim, name, tiles)

    def offer(name, tiles, claim=0.0, **problem):
        if min(tiles.values(), default=1) < 1:
            return
        ledger = getattr(costs, name)(N, d, **tiles, **problem)
        if ledger.peak <= M:
            found.append((ledger.total, claim, name, tiles))

    rows = {"Br": min(N, (M - d) // (2 * d + 3)), "Bc": 1}
    if w is not None:
        offer("window", {}, w=w)
        offer("block_sparse", rows, mask=masks.Window(N, w))
    else:
        offer("flash_optimal", rows)
        side = int((M + 4) ** 0.5) - 2
        offer("small_cache", {"Br": min(side, N), "Bc": min(side, N), "Bd": min(side, d)})
    if w is None and sigma**2 <= 0.8:
        g, claim = 0, 1.0
        while claim > error:
            g += 2
            tail = sum(sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 40))
            claim = (np.exp(-(sigma**2)) * tail) ** 0.5
        for Bd in range(1, d + 2):
            rc = min(comb(d + g, g), (M - d - Bd) // Bd)
            offer("low_rank", {"g": g, "rc": rc, "Bd": Bd}, claim)
    words, claim, name, tiles = min(found, key=lambda one: one[:2])
    return name, tiles, words, claim
    ### END SOLUTION


# %% tags=["check"] name="check-17D"
check("17D", my_choice)

# %% [markdown]
# Your choice for seven problems. Four have the head of the published table's last row, and differ in memory, error and logits. Then a head of a large language model, with logits kept small, on one multiprocessor of an H100, as in section 9.9; the same with a window; and the smallest chip of that section.
#
# **Predict** (guess). For how many of the seven will low rank be the choice?

# %% tags=["predict"]
predict("17.10a", low_rank=4)  #> predict("17.10a", low_rank=...)

# %%
PROBLEMS = {
    "the table's last row": (40_960, 12, 16_384, 12**-0.5, 0.01, None),
    "less memory": (40_960, 12, 1024, 12**-0.5, 0.01, None),
    "a strict error": (40_960, 12, 16_384, 12**-0.5, 1e-6, None),
    "trained logits": (40_960, 12, 16_384, 1.5, 0.01, None),
    "a language model": (32_768, 128, 116_224, 0.8, 0.01, None),
    "and its window": (32_768, 128, 116_224, 0.8, 0.01, 400),
    "a very small chip": (8192, 128, 512, 0.8, 0.01, None),
}


def print_choices():
    chosen = []
    for label, (N, d, *rest) in PROBLEMS.items():
        name, tiles, words, claim = my_choice(N, d, *rest)
        chosen.append(name)
        print(f"{label:21} {name:14} {words:13,} words = {words / (4 * N * d):6.2f} × 4Nd, "
              f"error {claim:.1e}, {tiles}")
    measured("17.10a", low_rank=chosen.count("low_rank"))


attempt(print_choices);

# %% [markdown]
# <details><summary>The seven, and why</summary>
#
# With $\sigma = 1/\sqrt{12}$ the rule gives degree 2 an error of 0.95 percent, and the state of $91 \cdot 13 = 1183$ words fits in 16,384: $4Nd$. With 1,024 words it is cut into two tiles of columns, 1.54 times $4Nd$. An error of $10^{-6}$ would take degree 8, whose 125,970 features move more words than F3; with trained logits the rule claims nothing. Both get F3, at 34.5 times $4Nd$: that is the price of an answer without an if. The language model has small logits and wide rows: degree 6 at $d = 128$ has 7,177,979,809 features. Its window of 801 keys would fill 205,315 words, more than there are, so F3 passes hidden tiles over instead. And with 512 words for rows of 128 only square tiles are left.
#
# </details>
#
# One more look at the first line: it claims 0.95 percent of an allowed 1, for normal logits. Would you sign it?
# <!-- 0.95 = 100 * math.sqrt(1 - math.exp(-1 / 12) * (1 + 1 / 12 + 1 / 12**2 / 2)) -->
# <!-- 1183, 125,970, 7,177,979,809 = math.comb(14, 2) * 13, math.comb(20, 8), math.comb(128 + 6, 6) -->
# <!-- 1.54, 34.5 = schedules.low_rank.count(40_960, 12, 1024, g=2).total / (4 * 40_960 * 12), schedules.flash_optimal.count(40_960, 12, 16_384).total / (4 * 40_960 * 12) -->
# <!-- 801, 205,315 = 2 * 400 + 1, costs.window(32_768, 128, w=400).peak -->
#
# ### A table that lies
#
# Somebody else defends low rank with a table, made from the record of section 17.9. Every number in it was computed from runs that took place, and most rows say what is not so. It is headed "low-rank attention against exact attention; one thread; errors in percent".

# %%
runs = misleading_table.runs_of(lowrank_run) if lowrank_run else []
claims = misleading_table.table(runs) if runs else []
for number, row in enumerate(claims, 1):
    print(f"row {number}: {row['method']}, d = {row['d']:2}, n = {row['n']:9,}, "
          f"{row['passes']:7} {row['speedup']:6,.0f}×  error {row['error']:.3g} %")
print(f"beside it {len(runs)} runs, such as", *runs[:1])

# %% [markdown]
# "passes" says whether the forward pass alone was timed or both. A run has its threads, the median of its times in milliseconds (and quartiles, where they were kept), whether it is exact, and the error of each output that was compared. Nothing is invented in such a table. One chooses, row by row, what to put beside what.
#
# **Predict** (guess). How many of the eight rows stand?

# %% tags=["predict"]
predict("17.10b", stand=5)  #> predict("17.10b", stand=...)

# %% [markdown]
# <!-- exercise 17E --> Find out. Compute every claim anew, by four rules.
#
# 1. Like against like: both runs with the claim's $d$, $n$ and passes, and with one thread.
# 2. One baseline: the fastest exact run of that kind among `runs`. Where there is none, the speed-up is `None`.
# 3. Medians on both sides.
# 4. The error is that of the worst output of the method's run.
#
# A claim stands if its speed-up is at most 1.05 times yours, and its error at least yours divided by 1.05; without a speed-up it does not. The check has fresh tables, with more exact attentions and more threads. If you are stuck after six minutes, run `hint("17E")` in a cell of your own.
# <!-- 1.05 = lesson17.BIT -->
# <!-- "the fastest exact run of that kind" as definition -->

# %% [raw] name="about-17E"
# title = "A misleading table"
# difficulty = 2
# importance = 2
# minutes = 12
# hints = [
#   "Two runs may be compared if they did the same work under the same conditions. Which entries of a run describe the work and the conditions?",
#   "For a claim, keep the runs with its d, n and passes on one thread. One of them is the method itself. Which of the exact ones is the fair baseline?",
#   "The speed-up is the smallest median of the exact runs divided by the median of the method, or None without exact runs. The error is the largest of its errors. Then compare both numbers with the claim, with a tolerance of 5 %.",
# ]
# # <!-- 5 = 100 * (lesson17.BIT - 1) -->

# %% tags=["exercise"] name="ex-17E"
def my_honest_table(claims, runs):
    """Every claim computed anew.

    claims: dictionaries with "method", "d", "n", "passes", "speedup" and "error".
    runs: dictionaries with "method", "d", "n", "passes", "threads", "exact" (True or False),
    "median" (milliseconds) and "errors", a dictionary of percentages, empty if exact.
    Returns a list with (speedup or None, error, stands) for each claim, in their order.
    """
    ### BEGIN SOLUTION the runs of a claim's kind; one of them is the method's, some are exact
    table = []
    for claim in claims:
        alike = [run for run in runs if run["threads"] == 1
                 and all(run[key] == claim[key] for key in ("d", "n", "passes"))]
        own = next(run for run in alike if run["method"] == claim["method"])
        error = max(own["errors"].values())
        exact_ones = [run["median"] for run in alike if run["exact"]]
        speedup, stands = None, False
        if exact_ones:
            speedup = min(exact_ones) / own["median"]
            stands = claim["speedup"] <= 1.05 * speedup and claim["error"] >= error / 1.05
        table.append((speedup, error, stands))
    return table
    ### END SOLUTION


# %% tags=["check"] name="check-17E"
check("17E", my_honest_table)

# %%
def exposed():
    table = my_honest_table(claims, runs)
    told_as, anew = {}, {}
    for number, claim in enumerate(claims):
        (factor, error, stands), (trick, *_) = table[number], misleading_table.TABLE[number]
        name = f"row {number + 1}"
        told_as[name] = claim["speedup"]
        anew |= {name: factor} if factor else {}
        honest = f"{factor:.1f}×" if factor else "nobody ran it"
        print(f"{name}: {honest:>13}, error {error:.3g} %: "
              + ("stands" if stands else f"falls, by {trick}"))
    measured("17.10b", stand=sum(stands for *_, stands in table))
    return explore.bars(
        told_as, anew,
        title="Speed-ups as told, and as computed anew",
        unit="times", mark="computed anew", log=True)


attempt(exposed) if claims else print(record_source(lowrank_run))

# %% [markdown]
# <details><summary>Which rows fall, and by what</summary>
#
# Claims 1 and 8 hold. A slower exact run as the baseline gains most, then a forward pass against both passes. Row 6, one's own lower quartile under the other's upper one, gains as much as the two runs spread, and can stand. Row 3 has an honest speed-up, and the mean of its errors in place of the worst. And row 7 may even be true: exact attention *is* quadratic, and was timed up to 40,960 tokens. But then it is a calculation, and has to be called one.
# <!-- runs = course.misleading_table.runs_of(record) -->
# <!-- claimed = course.misleading_table.table(runs) -->
# <!-- judged = [lesson17.honest_row(claim, runs) for claim in claimed] -->
# <!-- gains = [claim["speedup"] / row.speedup if row.speedup else 0 for claim, row in zip(claimed, judged)] -->
# <!-- "Claims 1 and 8 hold" if judged[0].stands and judged[-1].stands -->
# <!-- "A slower exact run as the baseline gains most, then a forward pass against both passes" if sorted(gains)[-2:] == [gains[4], gains[1]] and [course.misleading_table.TABLE[at][0] for at in (1, 4)] == ["a slower baseline", "one pass against two"] -->
# <!-- "Row 3 has an honest speed-up" if abs(gains[2] - 1) < 0.005 and claimed[2]["error"] < judged[2].error / 1.05 -->
# <!-- "it is a calculation" if judged[6].speedup is None -->
# <!-- 40,960 = max(run["n"] for run in runs if run["exact"] and run["d"] == 12) -->
#
# </details>
#
# ## 17.11 In your own words
#
# The checks have judged a choice and a table. They cannot judge an argument: no machine checks this section.
#
# Take one problem that you care about, and write one page: what you would run, and why not the others. Then give a point for each line of this list that your page passes.
#
# | | point |
# | --- | --- |
# | **Sizes** | $N$, $d$, $M$ are stated in words, and it is said which memory $M$ is (lesson 14c). |
# | | It is said which attention the model computes: all keys, causal, window, trained with what. |
# | **Ledger** | Words are given for the choice and for the best alternative, from a closed form or a run. |
# | | A lower bound stands beside them, with the class of schedules that it holds for; for an approximation, that only the compulsory one holds. |
# | **Error** | The metric is written as a formula, and what is compared with what. |
# | | What is claimed is measured, certified or predicted by a rule; it says which, and when the rule fails. |
# | **Logits** | Their spread was measured, or bounded by construction; not assumed. |
# | **Time** | No time is given without the machine, threads, warm-up, repeats and spread; or it says that nothing was timed. |
# | **Against oneself** | One fact is named that would overturn the choice, with the number at which it does. |
# | **Honesty** | What is not known is said to be not known. |
#
# Eight points are a defence. The one before the last is the hardest, and the most useful to a reader.
#
# ## 17.12 What the course has shown, and what stays open
#
# **Shown**, each by a count that you can repeat:
#
# - Attention's words depend on the order of its loops and on its tiles: $12.25$ or $6.18$ times $N^2d^2/M$ for one order, $8.00$ or $4.10$ for another, with the sizes of a paper or with the best (lesson 04), and no order of the exact forward pass does better than 4 in the leading term, for $d^2 \ll M \ll Nd$ (lesson 05).
# - From $M = d^2$ down it pays to store the scores, below $d^2/4$ to cut $d$ as well: $4N^2d/\sqrt M + N^2$, where the 4 is again the best constant for $M \ll d^2$ (lesson 07).
# - The backward pass has 14, no schedule that moves whole rows has less, and none at all less than 12 (lesson 06); where everything fits, $7Nd + N$ (lesson 09).
# - A mask saves words where neighbours agree on their keys, down to $4Nd$ for any window whose keys fit, and next to nothing where pairs are drawn at random (lesson 08).
# - Kernels move what the closed forms say, to the word (lessons 10 to 13), and how much of that reaches DRAM is a matter of the order of programs (lesson 14c).
# - With bounded logits and small $d$ attention and its gradient take a time that is linear in $N$, and $4Nd$ and $7Nd$ words if their states fit; otherwise forward fewer words than exact attention from about half a rank to $1.4$ ranks on (lessons 15 and 16). The error can be certified or predicted beforehand, and at initial weights it grew no faster than about the square root of the depth (lesson 17).
# - It is of no use for the eight heads of a trained model (lesson 17).
# <!-- unit = (2**22 * 64)**2 / 2**18 -->
# <!-- "no faster than about the square root of the depth" if max(law["exponent"] for law in load_record("depth")["layers"]["growth"]) < 0.55 -->
# <!-- ranks = [schedules.break_even_length(*at, whole_rows=whole).ranks for at in ((12, 3, 4096), (12, 4, 4096), (12, 4, 16_384), (64, 2, 65_536)) for whole in (False, True)] -->
# <!-- 1.4 = max(ranks) -->
# <!-- "from about half a rank" if 0.5 < min(ranks) < 0.6 -->
# <!-- 12.25, 6.18 = (schedules.flash1.count(2**22, 64, 2**18, published=p).total / unit for p in (True, False)) -->
# <!-- 8.00, 4.10 = (schedules.flash2.count(2**22, 64, 2**18, published=p).total / unit for p in (True, False)) -->
#
# **Open**, as far as we know:
#
# - The two borders of the map, around $d^2$ and around $Nd$, where the best schedule and the best bound are a factor of 2 apart; and whether cutting rows can bring the backward pass below 14, down to 12 (section 9.8).
# - For approximate attention: the constants, and a bound at a fixed error and our rank. The abstract of Papp, Sobczyk and Zouzias (2605.23751) announces lower bounds for each regime, with algorithms after Alman and Song whose words are almost linear in $N$; and for arithmetic Gupta and others (2505.14840) have about $N^{2 - 1/d}$ steps at fixed $d$, however large the entries. Ours are upper bounds at a fixed error, which fixes the rank $r$: about $\max(4Nd, 2rNd^2/M)$ words forward and $\max(7Nd, 8rNd^2/M)$ back. From below, section 15.5 covers one class and a given rank.
# - Training at scale with bounded logits: how much does a bound cost? Sections 17.3 and 17.5 show two small cases.
#
# You began with the claim "FlashAttention uses memory efficiently". Now you can check such a claim.
# <!-- 2 as definition -->
#
# ## Misconceptions
#
# - **"A relative error is a relative error."** The printed 4.673 percent are 9.211 in the usual metric, and the same degree has 6.954 on softmax (17.8).
# <!-- 4.673 from https://arxiv.org/abs/2408.13233 -->
# - **"The error falls with the number of tokens."** With $d$ fixed it stands still; the table's falls because $1/\sqrt d$ does (17.8).
# - **"Each number was measured, so the table is true."** Ask what stands beside what (17.10).
# - **"Fewest words is best."** Of what computes the right thing, within its error, in the memory there is (17.10).
#
# ## Take-away
#
# - Read a number with its metric, its operator, its data, its clock and its baseline. Reproduce it before you criticise it.
# - A choice is a name, tiles, words and a claim. Each of the four can be checked.
#
# ## References
#
# - Y. Liang, Z. Sha, Z. Shi, Z. Song, Y. Zhou: *Multi-layer transformers gradient can be approximated in almost linear time*, 2024, [arXiv 2408.13233](https://arxiv.org/abs/2408.13233). The script of its table: [JamesSand/MultiLayer](https://github.com/JamesSand/MultiLayer), `low_rank_approx.py`.
# - F. A. Heinsen, L. Kozachkov: *Self-attention at constant cost per token via symmetry-aware Taylor approximation*, 2026, [arXiv 2602.00294](https://arxiv.org/abs/2602.00294). The abstract, and their code.
# - J. Alman, Z. Song: *Fast attention requires bounded entries*, 2023, [arXiv 2302.13214](https://arxiv.org/abs/2302.13214).
# - P. A. Papp, A. Sobczyk, A. Zouzias: *Approaching I/O-optimality for approximate attention*, 2026, [arXiv 2605.23751](https://arxiv.org/abs/2605.23751). The abstract.
# - S. Gupta, B. Huang, B. Saha, Y. Xu, C. Ye: *Subquadratic algorithms and hardness for attention with any temperature*, 2025, [arXiv 2505.14840](https://arxiv.org/abs/2505.14840). The abstract.
#
# **What comes next.** <!-- next --> `iocourse count --list` lists the schedules, and a new schedule takes one file.
