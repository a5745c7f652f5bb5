"""Lesson 17: alternative correct answers, and wrong answers that no recorded mutant covers."""

from math import comb, exp, factorial, inf, isqrt, log, sqrt

import numpy as np
from harness import Mutant, Suite


# ---------------------------------------------------------------------- 17A
def by_correlation(layers, errors):
    """Choose the law with the higher correlation to the logarithms, with explicit sums."""
    y = [log(e) for e in errors]
    slopes, correlations = [], []
    for x in ([log(m) for m in layers], layers):
        mx, my = sum(x) / len(x), sum(y) / len(y)
        xy = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
        xx, yy = sum((a - mx) ** 2 for a in x), sum((b - my) ** 2 for b in y)
        slopes.append(xy / xx)
        correlations.append(xy * xy / (xx * yy))
    return slopes[0], slopes[1], ["exponential", "power"][correlations[0] > correlations[1]]


GROWTH = Suite(
    "17A",
    right=by_correlation,
    wrong={
        "no operator makes it": (
            Mutant(
                "law-by-the-exponent",
                "returns the law that fits better",
                ("off[0] <= off[1]", "abs(slopes[0]) > 1"),
            ),
        )
    },
)

# ---------------------------------------------------------------------- 17B
LENGTH = "every row has the requested length"
DIRECTION = "rows keep their direction"


def row_by_row(X, length, dY):
    Y, dX = np.zeros_like(X), np.zeros_like(X)
    for at in np.ndindex(X.shape[:-1]):
        x, dy = X[at], dY[at]
        size = sqrt(float(x @ x))
        if size > 0:
            u = x / size
            Y[at] = length * u
            dX[at] = length * (dy - u * float(u @ dy)) / size
    return Y, dX


BOUNDED = Suite(
    "17B",
    right=row_by_row,
    wrong={
        "no recorded mutant fails this property alone": (
            Mutant("turned-round", DIRECTION, ("U = X / safe", "U = -X / safe")),
        ),
        "its size": (
            Mutant("a-small-epsilon-added", LENGTH, ("np.where(norms > 0, norms, 1)", "norms + 1e-30")),
        ),
        "no operator makes it": (
            Mutant(
                "short-rows-stay",
                "every row has the requested length",
                ("return length * U,", "return np.minimum(norms, length) * U,"),
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 17C
def by_bisection(theirs):
    """Solve the printed error of the farthest and the nearest x + y for u by bisection.

    Returns an array of two numbers. Above 1 the nearest x + y is behind y, at u - 2, and falls with u.
    """

    def solve(printed, low=0.0, high=1e6):
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if printed(middle) < theirs else (low, middle)
        return (low + high) / 2

    least = solve(lambda u: u / (2 - u) if u < 2 else inf)
    if theirs > 1:
        return np.array([least, 1 / solve(lambda v: 1 / (1 - 2 * v) if v < 0.5 else inf, 0.0, 0.5)])
    return np.array([least, inf if theirs == 1 else solve(lambda u: u / (2 + u))])


RANGE = Suite(
    "17C",
    right=by_bisection,
    wrong={
        "it leaves out the absolute value": (
            Mutant(
                "no-end-above-1",
                "the upper end is correct for errors above 1",
                ("if theirs != 1", "if theirs < 1"),
            ),
        ),
        "no operator makes it": (
            Mutant(
                "lower-end-of-0",
                "the lower end is the smallest usual error",
                ("least = 2 * theirs / (1 + theirs)", "least = 0.0"),
            ),
            Mutant("upper-end-of-2e", "every pair of vectors is in the range", ("/ abs(1 - theirs)", "")),
        ),
    },
)


# ---------------------------------------------------------------------- 17D
def even_degree(sigma, error):
    """The smallest even degree within `error`, and its bound: the complement of the first terms."""
    if sigma * sigma > 0.8:
        return None
    for g in range(2, 40, 2):
        claim = sqrt(exp(-sigma * sigma) * sum(sigma ** (2 * l) / factorial(l) for l in range(g + 1, 60)))
        if claim <= error:
            return g, claim
    return None


def by_own_formulas(N, d, M, sigma, error, w):
    """Compute words and footprints without the library, by (4.5), 4Nd, (15.9) and others."""
    Br = min(N, (M - d) // (2 * d + 3))
    if w is not None:
        if 2 * d * min(2 * w + 1, N) + 2 * d + 3 <= M:
            return "window", {}, 4 * N * d, 0
        met = sum(min(N, min(a + Br, N) + w) - max(0, a - w) for a in range(0, N, Br))
        return "block_sparse", {"Br": Br, "Bc": 1}, 2 * N * d + 2 * d * met, 0
    options = []
    if Br >= 1:
        options.append((2 * N * d * (1 + -(-N // Br)), 0, "flash_optimal", {"Br": Br, "Bc": 1}))
    b = isqrt(M + 4) - 2
    r, e = min(b, N), min(b, d)
    square = N * d * (1 + 3 * -(-N // r)) + N * N * (1 + -(-d // e))
    options.append((square, 0, "small_cache", {"Br": r, "Bc": r, "Bd": e}))
    if found := even_degree(sigma, error):
        g, claim = found
        rank = comb(d + g, g)
        for c in range(1, d + 2):
            Bd = -(-(d + 1) // c)
            rc = min(rank, (M - d - Bd) // Bd)
            if rc >= 1:
                k, n = -(-rank // rc), -(-(d + 1) // Bd)
                words = 2 * N * d * k * n + N * d * k + N * d * (2 * k - 1)
                words += 2 * N * (k - 1) if n == 1 else N * (2 * k + n - 2)
                options.append((words, claim, "low_rank", {"g": g, "rc": rc, "Bd": Bd}))
    words, claim, name, tiles = min(options, key=lambda one: (one[0], one[2] == "low_rank"))
    return [name, tiles, words, claim]


CHOICE = Suite(
    "17D",
    right=by_own_formulas,
    wrong={
        "no operator makes it": (
            Mutant(
                "claim-as-allowed",
                "the claim follows the rule and is 0 for exact attention",
                ("return name, tiles, words, claim", "return name, tiles, words, error"),
            ),
            Mutant(
                "words-of-another",
                "the words equal those of the closed form",
                (
                    "return name, tiles, words, claim",
                    "return name, tiles, max(found, key=lambda one: one[0])[0], claim",
                ),
            ),
        )
    },
)

# ---------------------------------------------------------------------- 17E
NOBODY = "uses only measured baselines"


def from_one_baseline_a_place(claims, runs):
    """Collect the baselines in a dictionary, then process every claim."""
    baseline, measured = {}, {}
    for run in runs:
        place = run["d"], run["n"], run["passes"]
        if run["threads"] != 1:
            continue
        if run["exact"]:
            baseline[place] = min(run["median"], baseline.get(place, inf))
        else:
            measured[place, run["method"]] = run["median"], sorted(run["errors"].values())[-1]
    rows = []
    for claim in claims:
        place = claim["d"], claim["n"], claim["passes"]
        ms, error = measured[place, claim["method"]]
        speedup = baseline[place] / ms if place in baseline else None
        fast = speedup is not None and claim["speedup"] / speedup <= 1.05
        rows.append([speedup, error, fast and error / claim["error"] <= 1.05])
    return rows


EXPOSED = Suite(
    "17E",
    right=from_one_baseline_a_place,
    wrong={
        "no recorded mutant fails this property alone": (
            Mutant("infinitely-faster", NOBODY, ("speedup, stands = None", 'speedup, stands = float("inf")')),
        ),
        "no operator makes it": (
            Mutant(
                "runs-sorted",
                "does not modify its inputs",
                ("    table = []\n", '    table = []\n    runs.sort(key=lambda run: run["median"])\n'),
            ),
            Mutant(
                "speedup-as-claimed",
                "the baseline is the fastest exact attention",
                (
                    "table.append((speedup, error, stands))",
                    'table.append((speedup and claim["speedup"], error, stands))',
                ),
            ),
            Mutant(
                "error-as-claimed",
                "the error is that of the worst output",
                ("table.append((speedup, error, stands))", 'table.append((speedup, claim["error"], stands))'),
            ),
            Mutant(
                "speedup-only",
                "accepts a claim only if both numbers hold",
                (' and claim["error"] >= error / 1.05', ""),
            ),
        ),
    },
)

SUITES = (GROWTH, BOUNDED, RANGE, CHOICE, EXPOSED)
