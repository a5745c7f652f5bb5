"""What is known about the exercises of lesson 17: mistakes, other right answers, cheats."""

from math import comb, exp, factorial, inf, isqrt, log, sqrt

import numpy as np
from harness import Mutant, Suite, called

from iocourse import costs, masks, schedules
from iocourse.course.checking import OWN, RUNS
from iocourse.course.exercises import lesson17

# ---------------------------------------------------------------------- 17A
EXPONENT, RATE = "the exponent of the power is fitted", "the rate of the exponential is fitted"
SHRINK, LAW = "errors that shrink are fitted too", "the law is the one that lies closer"


def by_normal_equations(layers, errors):
    y = np.log(np.asarray(errors))
    found = []
    for x in (np.log(layers), np.asarray(layers)):
        A = np.column_stack([np.ones(len(x)), x])
        line, rest, *_ = np.linalg.lstsq(A, y, rcond=None)
        found.append((line[1], float(rest[0])))
    return [found[0][0], found[1][0], "exponential" if found[1][1] < found[0][1] else "power"]


def by_correlation(layers, errors):
    """The law whose places correlate more with the logarithms; sums by hand."""
    y = [log(e) for e in errors]
    slopes, correlations = [], []
    for x in ([log(m) for m in layers], layers):
        mx, my = sum(x) / len(x), sum(y) / len(y)
        xy = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
        xx, yy = sum((a - mx) ** 2 for a in x), sum((b - my) ** 2 for b in y)
        slopes.append(xy / xx)
        correlations.append(xy * xy / (xx * yy))
    return slopes[0], slopes[1], ["exponential", "power"][correlations[0] > correlations[1]]


def first_and_last(layers, errors):
    a = log(errors[-1] / errors[0]) / log(layers[-1] / layers[0]) if layers[-1] != layers[0] else 0.0
    return a, a, "power"


SQUARES = "((heights - slope * places - start) ** 2).sum()"

GROWTH = Suite(
    id="17A",
    mutants=(
        Mutant("errors-themselves", EXPONENT, ("np.log(errors)", "np.array(errors)")),
        Mutant("logarithms-to-base-ten", RATE, ("np.log(errors)", "np.log10(errors)")),
        Mutant("layers-twice-as-logarithms", RATE, ("np.array(layers, dtype=float)", "np.log(layers)")),
        Mutant("layers-never-as-logarithms", EXPONENT, ("(np.log(layers),", "(np.array(layers),")),
        Mutant("slopes-without-a-sign", SHRINK, ("slopes.append(slope)", "slopes.append(abs(slope))")),
        Mutant(
            "line-through-the-origin",
            EXPONENT,
            ("np.polyfit(places, heights, 1)", "(places @ heights / (places @ places), 0.0)"),
        ),
        Mutant("the-worse-law", LAW, ("off[0] <= off[1]", "off[0] > off[1]")),
        Mutant("sizes-for-squares", LAW, (SQUARES, "np.abs(heights - slope * places - start).sum()")),
        Mutant("largest-for-squares", LAW, (SQUARES, "np.abs(heights - slope * places - start).max()")),
        Mutant(
            "a-mean-for-each-number-of-layers",
            EXPONENT,
            (
                "heights = np.log(errors)",
                "there, logs = np.array(layers), np.log(errors)\n    layers = sorted(set(layers))\n"
                "    heights = np.array([logs[there == m].mean() for m in layers])",
            ),
        ),
        Mutant("always-a-power", LAW, ("off[0] <= off[1]", "True")),
        Mutant("smaller-slope", LAW, ("off[0] <= off[1]", "abs(slopes[0]) <= abs(slopes[1])")),
        Mutant(
            "squares-of-the-errors-themselves",
            LAW,
            (
                "(heights - slope * places - start) ** 2",
                "(np.exp(heights) - np.exp(slope * places + start)) ** 2",
            ),
        ),
        Mutant("complex", EXPONENT, ("slopes.append(slope)", "slopes.append(slope + 1j)")),
        Mutant("text", RATE, ("slopes.append(slope)", "slopes.append(str(slope))")),
        Mutant("constant-left-in", LAW, ("slope * places - start", "slope * places")),
    ),
    right=(by_normal_equations, by_correlation),
    cheats=((first_and_last, EXPONENT), (lesson17.growth, OWN)),
)

# ---------------------------------------------------------------------- 17B
LENGTH = "every row has the length that was asked for"
ACROSS = "the gradient is orthogonal to its row"
GRADIENT = "the gradient is right, for short and for long rows"
ZEROS, HEADS = "a row of zeros has zeros in both", "axes in front are carried along"
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


def with_a_jacobian(X, length, dY):
    """The matrix (I - u uᵀ) length / |x| of every row, written out."""
    norms = np.sqrt(np.einsum("...i,...i->...", X, X))[..., None]
    there = norms > 0
    U = np.divide(X, norms, out=np.zeros_like(X), where=there)
    J = np.eye(X.shape[-1]) - U[..., :, None] * U[..., None, :]
    scale = np.divide(length, norms, out=np.zeros_like(norms), where=there)
    return [U * length, scale * np.einsum("...ij,...j->...i", J, dY)]


def clipped(X, length, dY):
    """Long rows are shortened, short ones left: bounded too, and another model."""
    norms = np.linalg.norm(X, axis=-1, keepdims=True)
    scale = np.minimum(1, length / np.where(norms > 0, norms, 1))
    return X * scale, dY * scale


def through_torch(X, length, dY):
    import torch

    x = torch.tensor(X, requires_grad=True)
    Y = length * torch.nn.functional.normalize(x, dim=-1)
    Y.backward(torch.tensor(dY))
    return Y.detach().numpy(), x.grad.numpy()


SAFE = "np.where(norms > 0, norms, 1)"

BOUNDED = Suite(
    id="17B",
    mutants=(
        Mutant("length-forgotten", LENGTH, ("return length * U", "return U")),
        Mutant("length-forgotten-in-dX", GRADIENT, ("length / safe * across", "across / safe")),
        Mutant("scaled-by-the-square", LENGTH, ("U = X / safe", "U = X / safe**2")),
        Mutant(
            "columns-normalised",
            LENGTH,
            ("np.linalg.norm(X, axis=-1, keepdims=True)", "np.linalg.norm(X, axis=-2, keepdims=True)"),
        ),
        Mutant(
            "last-axis-counted-from-the-front",
            HEADS,
            ("(dY * U).sum(axis=-1, keepdims=True)", "(dY * U).sum(axis=1, keepdims=True)"),
        ),
        Mutant("norm-held-constant", ACROSS, ("dY - (dY * U).sum(axis=-1, keepdims=True) * U", "dY")),
        Mutant("part-along-added", ACROSS, ("across = dY -", "across = dY +")),
        Mutant("part-along-by-X", GRADIENT, ("keepdims=True) * U\n", "keepdims=True) * X\n")),
        Mutant("not-divided-by-the-length", GRADIENT, ("length / safe * across", "length * across")),
        Mutant(
            "zeros-divided",
            ZEROS,
            ("np.where(norms > 0, norms, 1)", "norms"),
            ("np.where(norms > 0, length / safe * across, 0)", "length / safe * across"),
        ),
        Mutant(
            "gradient-at-zero",
            ZEROS,
            ("np.where(norms > 0, length / safe * across, 0)", "length / safe * across"),
        ),
        Mutant("a-small-number-added", LENGTH, ("np.where(norms > 0, norms, 1)", "norms + 1e-6")),
        Mutant("turned-round", DIRECTION, ("U = X / safe", "U = -X / safe")),
        Mutant("the-usual-epsilon", LENGTH, (SAFE, "np.maximum(norms, 1e-12)")),
        Mutant("a-small-epsilon-added", LENGTH, (SAFE, "norms + 1e-30")),
        Mutant(
            "a-zero-makes-a-row-of-zeros",
            GRADIENT,
            ("np.where(norms > 0, length", "np.where((X != 0).all(axis=-1, keepdims=True), length"),
        ),
        Mutant("X-divided-in-place", RUNS, ("U = X / safe", "X /= safe; U = X")),
        Mutant("dY-projected-in-place", RUNS, ("across = dY -", "dY -="), (" * U\n", " * U; across = dY\n")),
        Mutant(
            "kept-by-shape",
            DIRECTION,
            ("(X, length, dY)", "(X, length, dY, kept={})"),
            ("return length * U, ", "return kept.setdefault((X.shape, length), length * U), "),
        ),
        Mutant(
            "one-buffer-a-shape",
            RUNS,
            ("(X, length, dY)", "(X, length, dY, kept={})"),
            ("return length * U, ", "return np.multiply(length, U, out=kept.setdefault(X.shape, U)), "),
        ),
    ),
    right=(row_by_row, with_a_jacobian),
    cheats=((clipped, LENGTH), (through_torch, ZEROS), (lesson17.bounded, OWN)),
)

# ---------------------------------------------------------------------- 17C
PAIRS, LEAST = "every pair of vectors lies in the range", "the least is reached"
LARGEST, NO_END = "the largest is reached", "from 1 on there is no upper end"


def by_bisection(theirs):
    """The printed error of the farthest x + y and of the nearest one, each solved for u by halving."""

    def solve(printed):
        low, high = 0.0, 1e6
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if printed(middle) < theirs else (low, middle)
        return (low + high) / 2

    least = solve(lambda u: u / (2 - u) if u < 2 else inf)
    return least, inf if theirs >= 1 else solve(lambda u: u / (2 + u))


def from_two_pairs(theirs):
    """x = (1 + t) y on one line with y, in both directions, t from |t| / |2 + t| = theirs."""
    ends = [2 * theirs / (1 - theirs)] if theirs != 1 else []
    ends.append(-2 * theirs / (1 + theirs))
    sizes = sorted(abs(t) for t in ends)
    return [sizes[0], sizes[-1] if theirs < 1 else float("inf")]


RANGE = Suite(
    id="17C",
    mutants=(
        Mutant("ends-exchanged", PAIRS, ("return least, largest", "return largest, least")),
        Mutant("half-of-it", LEAST, ("least = 2 * theirs", "least = theirs")),
        Mutant("twice-at-the-least", PAIRS, ("least = 2 * theirs / (1 + theirs)", "least = 2 * theirs")),
        Mutant("twice-at-the-most", PAIRS, ("2 * theirs / (1 - theirs)", "2 * theirs")),
        Mutant("too-wide", LARGEST, ("2 * theirs / (1 - theirs)", "3 * theirs / (1 - theirs)")),
        Mutant("an-end-where-there-is-none", NO_END, ('float("inf")', "2 * theirs")),
        Mutant("nine-at-one", NO_END, (' if theirs < 1 else float("inf")', " if theirs != 1 else 9")),
        Mutant("infinity-in-words", NO_END, ('float("inf")', '"inf"')),
        Mutant("no-end-too-early", LARGEST, ("theirs < 1", "theirs <= 0.99")),
        Mutant("no-end-anywhere", LARGEST, ("if theirs < 1", "if theirs < 0")),
    ),
    right=(by_bisection, from_two_pairs),
    cheats=(
        (called("twice", lambda theirs: (2 * theirs, 2 * theirs)), PAIRS),
        (called("generous", lambda theirs: (theirs, inf)), LARGEST),
        (lesson17.usual_range, OWN),
    ),
)

# ---------------------------------------------------------------------- 17D
OWN_KIND = "it computes the attention that was asked for"
FIT, LEDGER = "its tiles fit in fast memory", "the words are those of its ledger"
RULE = "the claim is what the rule gives, and 0 for exact attention"
HOLDS = "the claim holds for this problem"
PAYS = "an approximation is chosen only where it moves fewer words"
FEWEST = "within a tenth of the fewest words"


def even_degree(sigma, error):
    """The smallest even degree within `error`, and its claim: the complement of the first terms' sum."""
    if sigma * sigma > 0.8:
        return None
    for g in range(2, 40, 2):
        claim = sqrt(exp(-sigma * sigma) * sum(sigma ** (2 * l) / factorial(l) for l in range(g + 1, 60)))
        if claim <= error:
            return g, claim
    return None


def by_own_formulas(N, d, M, sigma, error, w):
    """Words and footprints without the library, by (4.5), 4Nd, (15.9) and their like."""
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


def step_by_step(N, d, M, sigma, error, w):
    """Rule after rule, with the library's closed forms; tiles of low rank by halving the state."""
    rows = {"Br": min(N, (M - d) // (2 * d + 3)), "Bc": 1}
    if w is not None:
        ring = costs.window(N, d, w=w)
        if ring.peak <= M:
            return "window", {}, ring.total, 0.0
        under = costs.block_sparse(N, d, mask=masks.Window(N, w), **rows)
        return "block_sparse", rows, under.total, 0.0
    b = isqrt(M + 4) - 2
    name, tiles = "small_cache", {"Br": min(b, N), "Bc": min(b, N), "Bd": min(b, d)}
    ledger = costs.small_cache(N, d, **tiles)
    if rows["Br"] >= 1 and costs.flash_optimal(N, d, **rows).total <= ledger.total:
        name, tiles, ledger = "flash_optimal", rows, costs.flash_optimal(N, d, **rows)
    found = even_degree(sigma, error)
    if found is None:
        return name, tiles, ledger.total, 0
    g, claim = found
    cut = []
    for Bd in range(d + 1, 0, -1):
        rc = min(comb(d + g, d), (M - d - Bd) // Bd)
        if rc > 0:
            cut.append(({"rc": rc, "Bd": Bd, "g": g}, costs.low_rank(N, d, g=g, rc=rc, Bd=Bd).total))
    low, words = min(cut, key=lambda one: one[1])
    if words < ledger.total:
        return "low_rank", low, words, claim
    return name, tiles, ledger.total, 0


def always_flash(N, d, M, sigma, error, w):
    tiles = {"Br": max(1, min(N, (M - d) // (2 * d + 3))), "Bc": 1}
    return "flash_optimal", tiles, costs.flash_optimal(N, d, **tiles).total, 0


def library_tiles(N, d, M, sigma, error, w):
    return "flash_optimal", schedules.flash_optimal.tiles(N, d, M), 0, 0


def boast(N, d, M, sigma, error, w):
    """A right name with words that nobody moves."""
    name, tiles, words, claim = step_by_step(N, d, M, sigma, error, w)
    return name, tiles, words // 2, claim


def not_whole(N, d, M, sigma, error, w):
    """Tiles with a fraction, which no memory has."""
    name, tiles, words, claim = step_by_step(N, d, M, sigma, error, w)
    return name, {key: size + 0.9 for key, size in tiles.items()}, words, claim


def no_degree(N, d, M, sigma, error, w):
    """Low rank of degree 0, with the words of the right one."""
    name, tiles, words, claim = step_by_step(N, d, M, sigma, error, w)
    return name, tiles | ({"g": 0} if name == "low_rank" else {}), words, claim


CHOICE = Suite(
    id="17D",
    mutants=(
        Mutant(
            "window-ignored",
            OWN_KIND,
            ("if w is not None:", "if False:"),
            ("if w is None and sigma", "if sigma"),
        ),
        Mutant("low-rank-under-a-window", OWN_KIND, ("if w is None and sigma", "if sigma")),
        Mutant("footprint-ignored", FIT, ("if ledger.peak <= M:", "if True:")),
        Mutant("rule-beyond-the-clip", HOLDS, ("sigma**2 <= 0.8", "True")),
        Mutant("rule-up-to-one", HOLDS, ("sigma**2 <= 0.8", "sigma <= 1")),
        Mutant("rule-for-the-cube", HOLDS, ("sigma**2 <= 0.8", "sigma**3 <= 0.8")),
        Mutant("limit-for-sigma-itself", FEWEST, ("sigma**2 <= 0.8", "sigma <= 0.8")),
        Mutant("odd-degrees-too", HOLDS, ("g += 2", "g += 1")),
        Mutant("error-ignored", HOLDS, ("while claim > error:", "while g < 2:")),
        Mutant("rule-without-the-root", RULE, ("* tail) ** 0.5", "* tail)")),
        Mutant("rule-one-term-early", RULE, ("range(g + 1, g + 40)", "range(g, g + 40)")),
        Mutant("sigma-for-its-square", RULE, ("sigma ** (2 * l)", "sigma ** l")),
        Mutant("low-rank-claims-nothing", RULE, ('"Bd": Bd}, claim)', '"Bd": Bd}, 0.0)')),
        Mutant("exact-claims-the-allowed-error", RULE, ("claim=0.0", "claim=error")),
        Mutant("low-rank-wins-a-tie", PAYS, ("one[:2]", "(one[0], -one[1])")),
        Mutant("smallest-error-wins", FEWEST, ("one[:2]", "(one[1], one[0])")),
        Mutant("most-words-win", FEWEST, ("min(found", "max(found")),
        Mutant("rows-of-the-state-only", FEWEST, ("range(1, d + 2)", "[d + 1]")),
        Mutant("rows-as-if-one-column", FEWEST, ("(M - d - Bd) // Bd", "M - d - Bd")),
        Mutant("one-column-only", FEWEST, ("range(1, d + 2)", "[1]")),
        Mutant("squares-of-one-word", FEWEST, ("side = int((M + 4) ** 0.5) - 2", "side = 1")),
        Mutant("one-word-too-generous", FEWEST, ("(M + 4)", "(M + 5)")),
        Mutant("one-word-too-few", FEWEST, ("(M + 4)", "(M + 3)")),
        Mutant("one-row-too-few", FEWEST, ("** 0.5) - 2", "** 0.5) - 3")),
        Mutant("ring-forgotten", FEWEST, ('offer("window", {}, w=w)', "pass")),
        Mutant(
            "one-row-at-a-time",
            FEWEST,
            ('"Br": min(N, (M - d) // (2 * d + 3))', '"Br": min(1, (M - d) // (2 * d + 3))'),
        ),
        Mutant(
            "words-of-the-state-alone",
            LEDGER,
            (
                "return name, tiles, words, claim",
                'return name, tiles, 4 * N * d if name == "low_rank" else words, claim',
            ),
        ),
    ),
    right=(by_own_formulas, step_by_step),
    cheats=(
        (always_flash, OWN_KIND),
        (always_flash, FIT),
        (always_flash, FEWEST),
        (boast, LEDGER),
        (not_whole, "returns a name, tiles, words and a claim"),
        (no_degree, RULE),
        (library_tiles, OWN),
        (lesson17.fewest, OWN),
    ),
)

# ---------------------------------------------------------------------- 17E
HONEST, BASELINE = "honest claims keep their numbers", "one baseline: the fastest exact attention"
MEDIANS, LIKE = "medians on both sides", "as many passes and one thread on both sides"
NOBODY, WORST = "what nobody ran is no baseline", "the error is that of the worst output"
STANDS = "a claim stands where both of its numbers do"


def from_one_baseline_a_place(claims, runs):
    """The baselines first, in a dictionary, then every claim in turn."""
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


def by_sorting(claims, runs):
    """Of the single-threaded runs in order of their times the first that fits."""
    in_order = sorted((run for run in runs if run["threads"] < 2), key=lambda run: run["median"])

    def first(claim, key, value):
        return next(
            (
                run
                for run in in_order
                if run[key] == value
                and (run["passes"], run["n"], run["d"]) == (claim["passes"], claim["n"], claim["d"])
            ),
            None,
        )

    def row(claim):
        own, rival = first(claim, "method", claim["method"]), first(claim, "exact", True)
        error = float(np.max(list(own["errors"].values())))
        if rival is None:
            return None, error, False
        speedup = rival["median"] / own["median"]
        return speedup, error, max(claim["speedup"] / speedup, error / claim["error"]) <= 1.05

    return tuple(map(row, claims))


def believed(claims, runs):
    return [(claim["speedup"], claim["error"], True) for claim in claims]


def nothing_stands(claims, runs):
    return [(*row[:2], False) for row in by_sorting(claims, runs)]


MEDIAN, WITHIN = 'min(exact_ones) / own["median"]', 'claim["speedup"] <= 1.05 * speedup'
ENOUGH = 'claim["error"] >= error / 1.05'

EXPOSED = Suite(
    id="17E",
    mutants=(
        Mutant("slower-baseline", BASELINE, ("min(exact_ones)", "max(exact_ones)")),
        Mutant("first-exact-one", BASELINE, ("min(exact_ones)", "exact_ones[0]")),
        Mutant("mean-baseline", BASELINE, ("min(exact_ones)", "np.mean(exact_ones)")),
        Mutant("upside-down", HONEST, (MEDIAN, 'own["median"] / min(exact_ones)')),
        Mutant("own-best", MEDIANS, (MEDIAN, 'min(exact_ones) / own["lower"]')),
        Mutant("threads-ignored", LIKE, ('run["threads"] == 1', "True")),
        Mutant("two-threads", LIKE, ('run["threads"] == 1', 'run["threads"] == 2')),
        Mutant("passes-ignored", LIKE, ('("d", "n", "passes")', '("d", "n")')),
        Mutant("lengths-ignored", NOBODY, ('("d", "n", "passes")', '("d", "passes")')),
        Mutant("dimensions-ignored", HONEST, ('("d", "n", "passes")', '("n", "passes")')),
        Mutant("infinitely-faster", NOBODY, ("speedup, stands = None", 'speedup, stands = float("inf")')),
        Mutant("claim-repeated", NOBODY, ("speedup, stands = None", 'speedup, stands = claim["speedup"]')),
        Mutant(
            "mean-of-the-errors", WORST, ('max(own["errors"].values())', 'np.mean([*own["errors"].values()])')
        ),
        Mutant("error-of-the-output", WORST, ('max(own["errors"].values())', 'own["errors"]["O"]')),
        Mutant("sum-of-the-errors", WORST, ('max(own["errors"].values())', 'sum(own["errors"].values())')),
        Mutant("speed-alone", STANDS, (f"{WITHIN} and {ENOUGH}", WITHIN)),
        Mutant("error-alone", STANDS, (f"{WITHIN} and {ENOUGH}", ENOUGH)),
        Mutant("either-is-enough", STANDS, (f"{WITHIN} and {ENOUGH}", f"{WITHIN} or {ENOUGH}")),
        Mutant("no-leeway", STANDS, ("1.05 * speedup", "speedup"), ("error / 1.05", "error")),
        Mutant("a-tenth", STANDS, ("1.05 * speedup", "1.11 * speedup"), ("error / 1.05", "error / 1.11")),
        Mutant("either-way", STANDS, (WITHIN, 'abs(claim["speedup"] / speedup - 1) < 0.05')),
        Mutant("stands-unmeasured", STANDS, ("stands = None, False", "stands = None, True")),
    ),
    right=(from_one_baseline_a_place, by_sorting),
    cheats=((believed, NOBODY), (believed, STANDS), (nothing_stands, STANDS), (lesson17.honest_row, OWN)),
)

SUITES = (GROWTH, BOUNDED, RANGE, CHOICE, EXPOSED)
