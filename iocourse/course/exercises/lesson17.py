"""Exercises of lesson 17: a law of growth, bounded logits, a printed error, a choice, a table that lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, factorial, inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import costs, masks, schedules
from ...ledger import Ledger
from .. import misleading_table
from ..exercise import Case, Sample, Trial, WrongForm, exercise, run_function
from ..guard import library_solution
from ..kinds.function import EVERY, function_exercise
from ..properties import (
    TOLERANCE,
    Form,
    difference,
    each,
    idle,
    is_number,
    one_array,
    several,
    shortened,
)
from ..side_effects import after, does_not_modify_results

Array = NDArray[np.float64]


# ------------------------------------------------------------------ 17A two laws of growth
POWER, EXPONENTIAL = "power", "exponential"


# Logarithms of errors at 1, 2, 4, 8, 12, 16 and 24 layers. The law named lies closer to them by far, and the
# other one to the errors themselves, where the largest alone decides.
SCATTERED_POWER = np.array([-0.6, 1.4, 3.1, 4.5, 4.7, 4.9, 7.6])
SCATTERED_EXPONENTIAL = np.array([-0.2, -0.5, 0.0, 1.7, 3.6, 5.1, 6.0])
# And four more at which squares name another law than what is left without its sign, summed up or at most.
UNLIKE_SUMS = {
    POWER: np.array([-0.8, 1.8, 3.4, 2.4, 3.3, 4.0, 5.8]),
    EXPONENTIAL: np.array([0.0, 0.9, 2.4, 1.9, 4.7, 5.9, 6.9]),
}
UNLIKE_LARGEST = {
    POWER: np.array([-1.0, 0.0, -0.4, 1.4, 2.0, 2.4, 2.8]),
    EXPONENTIAL: np.array([0.9, 0.9, 1.5, 2.9, 5.8, 4.8, 7.3]),
}


SHRINKING, SCATTERED = "shrinking", "scattered"


def _growths(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield each law with little noise, tiny and scattered errors, and repeated and unordered layers."""
    deep = np.array([1, 2, 4, 8, 12, 16, 24])
    repeated = rng.permutation(np.repeat([1, 2, 4, 8, 12], [5, 1, 2, 1, 4]))
    a, b = rng.uniform(0.3, 1.2), rng.uniform(0.15, 0.4)
    yield _measured(rng, deep, 1e-5 * deep**a, POWER)
    yield _measured(rng, deep, 1e-4 * np.exp(b * deep), EXPONENTIAL)
    yield _measured(rng, repeated, 3.0 * repeated**a, POWER)
    yield _measured(rng, repeated, 1e-9 * np.exp(b * repeated), EXPONENTIAL)
    yield _measured(rng, deep, a * 1e-3 * np.exp(SCATTERED_POWER), POWER, SCATTERED)
    yield _measured(rng, deep, a * 1e-3 * np.exp(SCATTERED_EXPONENTIAL), EXPONENTIAL, SCATTERED)
    yield _measured(rng, deep, 0.1 * deep**-a, POWER, SHRINKING)
    yield _measured(rng, deep, 0.1 * np.exp(-b * deep), EXPONENTIAL, SHRINKING)
    for kind in (UNLIKE_SUMS, UNLIKE_LARGEST):
        for name in kind:
            yield _measured(rng, deep, 1e-3 * np.exp(kind[name]), name, SCATTERED)


def _measured(rng: np.random.Generator, layers: NDArray[np.int_], errors: Array, *tags: str) -> Sample:
    noisy = errors * np.exp(0.02 * rng.standard_normal(len(errors)))
    inputs = {"layers": layers.tolist(), "errors": noisy.tolist()}
    results = dict(zip(("exponent", "rate", "law"), growth(layers, noisy), strict=True))
    return Sample({"measurements": len(layers)}, inputs, results, tags=tags)


@library_solution
def growth(layers: NDArray[np.int_], errors: Array) -> tuple[float, float, str]:
    """Return a of error ~ mᵃ, b of error ~ e^(bm), and the law that fits better; m are the layers."""
    heights = np.log(errors)
    found = []
    for places in (np.log(layers), layers.astype(float)):
        x, y = places - places.mean(), heights - heights.mean()
        slope = float(x @ y / (x @ x))
        found.append((slope, float(((y - slope * x) ** 2).sum())))
    (a, off_power), (b, off_exponential) = found
    return a, b, POWER if off_power <= off_exponential else EXPONENTIAL


def _nearer_law(trial: Trial) -> str | None:
    found, want = several(trial.value, 3), trial.case.expected[2]
    if found is None:
        return WrongForm("expected 3 results: exponent, rate, law")
    return None if found[2] == want else f"got {found[2]!r}, but {want!r} fits better"


GROWTH = function_exercise(
    "17A",
    "exponent rate law",
    _growths,
    {
        ("exponent", EVERY): "fits the exponent of the power law",
        ("rate", EVERY): "fits the rate of the exponential law",
        ("exponent", SHRINKING): "fits decreasing errors",
    },
    after=(each("returns the law that fits better", _nearer_law),),
    tolerance=1e-6,
)


# ------------------------------------------------------------------ 17B logits that cannot grow
ZERO, TINY, HEADS = "a row of zeros", "rows of every size", "leading axes"


def _bounded_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of ordinary rows, rows of length 1e-12 to 1e12, leading axes, zero rows, and one column.

    One ordinary row contains a single zero, and the first shapes occur again.
    """
    n, d = int(rng.integers(5, 9)), int(rng.integers(3, 7))
    sizes = 10.0 ** rng.uniform(-12, 12, (n, 1))
    sizes[0] = 1e-100
    ordinary = rng.standard_normal((n, d))
    ordinary[1, 2] = 0
    with_zero = rng.standard_normal((n, d))
    with_zero[int(rng.integers(n))] = 0
    given = [
        ("ordinary rows", ordinary),
        (TINY, sizes * rng.standard_normal((n, d))),
        (HEADS, rng.standard_normal((2, 3, n, d))),
        (ZERO, with_zero),
        ("one column", rng.standard_normal((n, 1))),
    ]
    found = [_bounded_case(rng, label, X, float(rng.uniform(0.5, 3))) for label, X in given]
    other = _bounded_case(rng, "ordinary rows", rng.standard_normal((n, d)), found[0].inputs["length"])
    return [*found, after(found[0], other)]


def _bounded_case(rng: np.random.Generator, label: str, X: Array, length: float) -> Case:
    dY = rng.standard_normal(X.shape)
    inputs = {"X": X, "length": length, "dY": dY}
    said = f"{label}, shape {X.shape}, length {length:.2f}"
    return Case(said, inputs, bounded(X, length, dY), tags=frozenset([label]))


@library_solution
def bounded(X: Array, length: float, dY: Array) -> tuple[Array, Array]:
    """Return rows of X (…, d) scaled to `length`, and dX for dY; rows of zeros give zeros in both."""
    norms = np.sqrt((X * X).sum(axis=-1, keepdims=True))
    there = norms > 0
    safe = np.where(there, norms, 1.0)
    U = X / safe
    across = dY - (dY * U).sum(axis=-1, keepdims=True) * U
    return length * U, np.where(there, length / safe * across, 0.0)


Pair = tuple[Array, Array]


def _two(trial: Trial) -> Pair | None:
    parts = [one_array(part) for part in several(trial.value, 2) or ()]
    fit = [x for x in parts if x is not None and x.shape == trial.case.inputs["X"].shape]
    return (fit[0], fit[1]) if len(fit) == 2 else None


Y_AND_DX = Form("returns two arrays of the shape of X", _two, "two arrays of the shape of X: Y and dX")


def _long_as_asked(trial: Trial, found: Pair) -> str | None:
    X, length = (trial.case.inputs[name] for name in ("X", "length"))
    want = np.where(np.any(X != 0, axis=-1), length, 0.0)
    return difference(np.linalg.norm(found[0], axis=-1), want)


def _no_logit_beyond(trial: Trial, found: Pair) -> str | None:
    """Test that no product of Y, as queries and as keys of length 1, is larger than `length`."""
    Y, length = found[0], trial.case.inputs["length"]
    largest = float(np.abs(Y @ np.swapaxes(Y, -1, -2) / length).max(initial=0.0))
    return (
        None
        if largest <= length * (1 + TOLERANCE)
        else f"a logit is {largest:.4g}, but the bound is {length:.4g}"
    )


def _same_rows(trial: Trial, found: Pair) -> str | None:
    return difference(found[0], trial.case.expected[0])


def _right_gradient(trial: Trial, found: Pair) -> str | None:
    """Compare each row by relative error, because 1/|x| is between 1e-12 and 1e12."""
    got, want = found[1], trial.case.expected[1]
    size = np.abs(want).max(axis=-1, keepdims=True)
    scale = np.where(size > 0, size, 1.0)
    return difference(got / scale, want / scale, 1e-6)


def _across(trial: Trial, found: Pair) -> str | None:
    """Return None if each row of dX is orthogonal to the same row of X, otherwise a message with max |x·dx|.

    They are orthogonal because Y does not depend on the length of a row.
    """
    X, dX = trial.case.inputs["X"], found[1]
    if not np.isfinite(dX).all():
        return "dX has entries that are not finite"
    along = np.abs((X * dX).sum(axis=-1))  # of the size of |dY| if it does not cancel
    return None if along.max(initial=0.0) <= 1e-6 else f"x·dx is {along.max():.3g} in a row, expected 0"


def _zero_rows_stay(trial: Trial, found: Pair) -> str | None:
    zero = np.all(trial.case.inputs["X"] == 0, axis=-1)
    parts = zip(("Y", "dX"), found, strict=True)
    other = next((name for name, part in parts if part[zero].any()), None)  # NaN counts as True
    return other and f"{other} is not zero where the row of X is"


BOUNDED = exercise(
    "17B",
    cases=_bounded_cases,
    properties=(
        Y_AND_DX.kept(),
        Y_AND_DX.must("every row has the requested length", _long_as_asked),
        idle(Y_AND_DX.must("no logit exceeds the bound", _no_logit_beyond)),
        Y_AND_DX.must("rows keep their direction", _same_rows),
        idle(Y_AND_DX.must("the gradient is orthogonal to its row", _across)),
        Y_AND_DX.must("the gradient is correct for short and long rows", _right_gradient),
        idle(Y_AND_DX.must("a row of zeros gives zeros in both results", _zero_rows_stay, ZERO)),
        Y_AND_DX.must("is correct for arrays with leading axes", _right_gradient, HEADS),
    ),
    run_case=does_not_modify_results(run_function),
)


# ------------------------------------------------------------------ 17C the meaning of a printed error
BELOW, ABOVE, ONE = "below 1", "above 1", "1"


def _ranges(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield printed errors from zero to just below 1, from just above 1 to 40, and 1, which has no limit."""
    small, medium, large = (float(rng.uniform(*ends)) for ends in ((1e-4, 0.02), (0.1, 0.4), (0.5, 0.9)))
    above = float(rng.uniform(1.1, 3.0))
    for theirs in (0.0, small, medium, large, 0.999, 1.0, above, 0.04673, 1.001, 2.0, 40.0):
        least, largest = usual_range(theirs)
        tag = ONE if theirs == 1 else BELOW if theirs < 1 else ABOVE
        yield Sample(
            {"theirs": f"{theirs:.5g}"}, {"theirs": theirs}, {"least": least, "largest": largest}, tags=(tag,)
        )


@library_solution
def usual_range(theirs: float) -> tuple[float, float]:
    """Return the smallest and the largest ‖x - y‖/‖y‖ for ‖x - y‖/‖x + y‖ = theirs.

    With x + y of length 1 and x - y of length `theirs`, 2y is their difference: its length is between
    |1 - theirs| and 1 + theirs, and both are reached.
    """
    return 2 * theirs / (1 + theirs), inf if theirs == 1 else 2 * theirs / abs(1 - theirs)


def _play_range(student: Callable[..., Any], case: Case) -> Trial:
    """Run the function; an array of two numbers is a pair."""
    trial = run_function(student, case)
    is_pair = isinstance(trial.value, np.ndarray) and trial.value.shape == (2,)
    return replace(trial, value=tuple(trial.value)) if is_pair else trial


def _holds_every_pair(trial: Trial) -> str | None:
    """Test pairs x, y with this printed error for many directions of x - y."""
    theirs = trial.case.inputs["theirs"]
    ends = [one_array(end) for end in several(trial.value, 2) or ()]
    if not ends or any(end is None or end.size != 1 for end in ends):
        return WrongForm(f"expected 2 numbers, least and largest, got {shortened(trial.value)}")
    least, largest = (float(end.item()) for end in ends if end is not None)
    for angle in np.linspace(0, np.pi, 25):
        usual = usual_error_at(theirs, angle)
        slack = TOLERANCE * (1 + (usual or 0))
        if usual is not None and not least - slack <= usual <= largest + slack:
            return f"some x and y with this printed error have a usual error of {usual:.5g}"
    return None


def usual_error_at(theirs: float, angle: float) -> float | None:
    """Return ‖x - y‖/‖y‖ for x - y and x + y at this angle; None if y is 0.

    With x + y of length 1 and x - y of length `theirs`, y is half of their difference.
    """
    twice_y = sqrt(max(0.0, 1 + theirs**2 - 2 * theirs * float(np.cos(angle))))
    return None if twice_y < 1e-12 else 2 * theirs / twice_y


RANGE = function_exercise(
    "17C",
    "least largest",
    _ranges,
    {
        ("least", EVERY): "the lower end is the smallest usual error",
        ("largest", BELOW): "the upper end is the largest usual error",
        ("largest", ABOVE): "the upper end is correct for errors above 1",
        ("largest", ONE): "the upper end is infinite for an error of 1",
    },
    before=(each("every pair of vectors is in the range", _holds_every_pair),),
    run_case=_play_range,
)


# ------------------------------------------------------------------ 17D the final project
EXACT = ("flash_optimal", "small_cache")
SPARSE = ("window", "block_sparse")
LOW_RANK = "low_rank"
NAMES = (*EXACT, *SPARSE, LOW_RANK)
CLIP = 0.8  # of σ²; the Poisson rule does not hold for the clipped polynomial above it
MOST_DEGREE = 30
LEEWAY = 1.1  # allowed ratio of the words to the minimum


class Problem(NamedTuple):
    """N tokens, d columns, M words of fast memory, σ of the logits, allowed error, window or None."""

    N: int
    d: int
    M: int
    sigma: float
    error: float
    w: int | None = None


class Answer(NamedTuple):
    """A schedule's name, its tiles, the words it moves, and the claimed error."""

    name: str
    tiles: Mapping[str, int]
    words: int
    claim: float


def _choice_cases(rng: np.random.Generator) -> list[Case]:
    """Return problems in which one of the five schedules is clearly best, and misleading ones."""
    N = int(rng.integers(30_000, 60_000))
    spread = float(rng.uniform(0.30, 0.42))  # degree 3 would reach 1 %, but odd degrees are not allowed
    narrow = float(rng.uniform(0.1, 0.3))
    found = {
        "small logits, the state fits": Problem(N, 12, 40_000, spread, 0.01),
        "small logits, the state does not fit": Problem(N, 12, 4096, spread, 0.01),
        "few rows of a wide state fit": Problem(N, 32, 1024, narrow, 0.05),
        "not even a column of the state fits": Problem(4 * N, 12, 1024, spread, 0.01),
        "a strict error": Problem(N, 32, 16_384, 0.5, 1e-7),
        "logits just within the rule": Problem(20 * N, 8, 4096, float(rng.uniform(0.82, 0.88)), 0.05),
        "logits just beyond the rule": Problem(20 * N, 8, 4096, 0.91, 0.05),  # σ² > 0.8, but σ³ < 0.8
        "wide rows in a small memory": Problem(N, 512, int(rng.integers(25, 38)) ** 2 + 7, 3.0, 0.01),
        "a small memory": Problem(N, 128, int(rng.integers(1000, 2000)), 1.5, 0.01),
        "one word too few for another row": Problem(N, 128, int(rng.integers(32, 45)) ** 2 - 5, 1.5, 0.01),
        "just enough for another row": Problem(N, 128, 66**2 - 4, 1.5, 0.01),
        "everything fits": Problem(int(rng.integers(200, 400)), 8, 2**18, narrow, 0.05),
        "a short text": Problem(int(rng.integers(60, 120)), 12, 1024, 0.4, 0.01),
        "a window that fits": Problem(N // 4, 32, 58_368, 2.0, 0.01, int(rng.integers(120, 300))),
        "a window that does not fit": Problem(N // 4, 12, 8192, narrow, 0.05, int(rng.integers(1500, 2500))),
        "an ordinary head": Problem(N, 64, 58_368, float(rng.uniform(0.6, 0.85)), 0.01),
    }
    return [
        Case(f"{label}: {_said(one)}", one._asdict(), (one, words_of_schedules(one)), tags=frozenset([label]))
        for label, one in found.items()
    ]


def _said(p: Problem) -> str:
    window = "" if p.w is None else f", w={p.w}"
    return f"N={p.N}, d={p.d}, M={p.M}, σ={p.sigma:.3g}, error {p.error:g}{window}"


def poisson_rule(sigma: float, g: int) -> float:
    """Return √P[Poisson(σ²) > g], the relative error of the polynomial of degree g."""
    tail = sum(sigma ** (2 * m) / factorial(m) for m in range(g + 1, g + 40))
    return sqrt(exp(-sigma * sigma) * tail)


def even_degree(sigma: float, error: float) -> int | None:
    """Return the smallest even degree within `error` by the rule, or None."""
    if sigma * sigma > CLIP:
        return None
    return next((g for g in range(2, MOST_DEGREE + 1, 2) if poisson_rule(sigma, g) <= error), None)


@library_solution
def words_of_schedules(p: Problem) -> dict[str, int]:
    """Return the words of every allowed schedule, with the tiles of the library."""
    found: dict[str, int] = {}
    for name in NAMES:
        if may_be_chosen(p, name):
            s = schedules.get(name)
            needs = _needs(p, name)
            if s.smallest_M(p.N, p.d, **needs) <= p.M:
                found[name] = s.cost(p.N, p.d, **needs, **s.tiles(p.N, p.d, p.M, **needs)).total
    return found


def may_be_chosen(p: Problem, name: str) -> bool:
    """Return whether this schedule computes the requested attention within its error."""
    if p.w is not None or name in SPARSE:
        return p.w is not None and name in SPARSE
    return name != LOW_RANK or even_degree(p.sigma, p.error) is not None


def _needs(p: Problem, name: str) -> dict[str, Any]:
    if name == LOW_RANK:
        return {"g": even_degree(p.sigma, p.error)}
    if name in SPARSE:
        assert p.w is not None, "sparse schedules are for problems with a window"
        return {"w": p.w} if name == "window" else {"mask": masks.Window(p.N, p.w)}
    return {}


def ledger_of(p: Problem, name: str, tiles: Mapping[str, int]) -> Ledger:
    """Return the closed form of a schedule with these tiles, which include `g` for low rank.

    Raises TypeError or ValueError for invalid tiles.
    """
    form: Callable[..., Ledger] = getattr(costs, name)
    return form(p.N, p.d, **(_needs(p, name) if name in SPARSE else {}), **tiles)


def _answer(trial: Trial) -> Answer | None:
    parts: Sequence[Any] = several(trial.value, 4) or [None] * 4
    name, tiles, words, claim = parts
    if name not in NAMES or not isinstance(tiles, Mapping) or not is_number(claim):
        return None
    if not all(map(_is_whole, (*tiles.values(), words))):
        return None
    return Answer(name, {str(k): int(v) for k, v in tiles.items()}, int(words), float(claim))


def _is_whole(x: Any) -> bool:
    """Return whether x is an integer, also as a float; 4.5, infinity and None are not."""
    return is_number(x) and float(x).is_integer()


AN_ANSWER = Form(
    "returns a name, tiles, words and a claim",
    _answer,
    f"(name, tiles, words, claim), with a name of {', '.join(NAMES)}, and integer tiles and words",
)


def _own_attention(trial: Trial, a: Answer) -> str | None:
    p: Problem = trial.case.expected[0]
    if p.w is None and a.name in SPARSE:
        return f"{a.name} leaves out keys that this model attends to"
    if p.w is not None and a.name not in SPARSE:
        return f"{a.name} attends to keys outside the window"
    return None


def _tiles_fit(trial: Trial, a: Answer) -> str | None:
    p: Problem = trial.case.expected[0]
    ledger = _ledger(p, a)
    if isinstance(ledger, str):
        return ledger
    if ledger.peak <= p.M:
        return None
    return f"{a.name} with {dict(a.tiles)} needs {ledger.peak:,} words, but M = {p.M:,}"


def _ledger(p: Problem, a: Answer) -> Ledger | str:
    """Return the ledger of the chosen schedule and tiles, or the reason why it cannot run."""
    if a.name in SPARSE and p.w is None:
        return f"{a.name} needs a window, but this problem has none"
    try:
        return ledger_of(p, a.name, a.tiles)
    except (TypeError, ValueError) as error:
        return f"{a.name} cannot run with {dict(a.tiles)}: {error}"


def _words_are_those_of_the_ledger(trial: Trial, a: Answer) -> str | None:
    ledger = _ledger(trial.case.expected[0], a)
    if isinstance(ledger, str):
        return ledger
    return None if ledger.total == a.words else f"got {a.words:,} words, but the ledger has {ledger.total:,}"


def _few_words(trial: Trial, a: Answer) -> str | None:
    least = min(trial.case.expected[1].values())
    if a.words <= LEEWAY * least:
        return None
    return f"{a.name} moves {a.words:,} words, but {least:,} are possible within the rules"


def _claim_is_the_rule(trial: Trial, a: Answer) -> str | None:
    p: Problem = trial.case.expected[0]
    if a.name != LOW_RANK:
        return None if a.claim == 0 else f"{a.name} is exact, but an error of {a.claim:g} is claimed"
    if not 1 <= a.tiles.get("g", 0) <= MOST_DEGREE:
        return f"the degree must be from 1 to {MOST_DEGREE}, got {a.tiles.get('g', 'none')}"
    want = poisson_rule(p.sigma, a.tiles["g"])
    right = difference(a.claim / want, 1.0, 1e-3) is None
    return None if right else f"the claim is {a.claim:.4g}, but the rule gives {want:.4g}"


def _claim_holds(trial: Trial, a: Answer) -> str | None:
    p: Problem = trial.case.expected[0]
    if a.name != LOW_RANK:
        return None
    if p.sigma**2 > CLIP:
        return f"σ² is {p.sigma**2:.2f}, but the rule holds only up to {CLIP}"
    if not 1 <= a.tiles.get("g", 0) <= MOST_DEGREE:
        return "the tiles have no valid degree g"
    if a.tiles["g"] % 2:
        return f"degree {a.tiles['g']} is odd, so row sums may not be positive"
    rule = poisson_rule(p.sigma, a.tiles["g"])
    return (
        None
        if rule <= p.error
        else f"degree {a.tiles['g']} has an error of {rule:.3g}, expected at most {p.error:g}"
    )


def _exact_where_it_costs_nothing(trial: Trial, a: Answer) -> str | None:
    if a.name != LOW_RANK:
        return None
    exact = [words for name, words in trial.case.expected[1].items() if name in EXACT]
    least = min(exact, default=a.words + 1)
    return None if a.words < least else f"an exact schedule moves {least:,} words, which is not more"


CHOICE = exercise(
    "17D",
    cases=_choice_cases,
    properties=(
        AN_ANSWER.kept(),
        AN_ANSWER.must("computes the requested attention", _own_attention),
        idle(AN_ANSWER.must("the tiles fit in fast memory", _tiles_fit)),
        idle(AN_ANSWER.must("the words equal those of the closed form", _words_are_those_of_the_ledger)),
        idle(AN_ANSWER.must("the claim follows the rule and is 0 for exact attention", _claim_is_the_rule)),
        idle(AN_ANSWER.must("the claim holds for this problem", _claim_holds)),
        idle(AN_ANSWER.must("approximates only where this moves fewer words", _exact_where_it_costs_nothing)),
        AN_ANSWER.must("moves at most 10 % more words than the best choice", _few_words),
    ),
)


# ------------------------------------------------------------------ 17E a misleading table
BIT = 1.05  # tolerance: a claim may be better than measured by this factor
EXACT_ONES = ("SDPA", "in place", "by blocks")
DEGREES = ("degree 2", "degree 3", "degree 4")
NOBODY = "a baseline that nobody ran"
BETTER, WORSE = "a little better than measured", "worse than measured"  # in one number; both claims hold
TOO_GOOD = "a tenth better than measured"


def _table_cases(rng: np.random.Generator) -> list[Case]:
    """Return tables of runs at several sizes, and of claims with every trick, in random order."""
    return [_table_case(rng, number) for number in (1, 2, 3)]


def _table_case(rng: np.random.Generator, number: int) -> Case:
    places = [(d, n, passes) for d in (8, 12) for n in (1024, 8192) for passes in ("forward", "both")]
    places += [(d, 65536, passes) for d in (8, 12) for passes in ("forward", "both")]  # without exact runs
    runs = [run for place in places for run in _runs_at(rng, *place)]
    rng.shuffle(runs)
    claims = [
        _claim(rng, runs, trick)
        for trick in (*misleading_table.TRICKS, BETTER, WORSE, TOO_GOOD)
        for _ in range(2)
    ]
    rng.shuffle(claims)
    rows = [row for row, _ in claims]
    expected = [(honest_row(row, runs), trick) for row, trick in claims]
    return Case(f"table {number}, {len(rows)} claims", {"claims": rows, "runs": runs}, expected)


def _runs_at(rng: np.random.Generator, d: int, n: int, passes: str) -> list[misleading_table.Run]:
    """Return runs of each degree and, up to n = 8192, of two exact attentions, on one and on two threads."""
    first = 1e-6 * n * n * rng.uniform(0.8, 1.2) * (4 if passes == "both" else 1)  # milliseconds
    exact = dict(
        zip(rng.permutation(EXACT_ONES)[:2], first * np.array([1, rng.uniform(1.3, 1.8)]), strict=True)
    )
    took = {str(name): (True, ms, 0.0) for name, ms in exact.items() if n < 65536}
    for name in DEGREES:
        took[name] = (False, first / rng.uniform(5, 200), rng.uniform(0.1, 5))
    found = []
    for name, (is_exact, ms, error) in took.items():
        errors = {} if is_exact else _errors(rng, error, passes)
        for threads, share in ((1, 1.0), (2, rng.uniform(0.5, 0.7))):
            median, width = float(ms * share), rng.uniform(1.1, 1.2)
            found.append({
                "method": name, "exact": is_exact, "d": d, "n": n, "passes": passes, "threads": threads,
                "median": median, "lower": median / width, "upper": median * width, "errors": errors,
            })  # fmt: skip
    return found


def _errors(rng: np.random.Generator, worst: float, passes: str) -> dict[str, float]:
    """Return the error of every output in percent; a random one is the largest."""
    names = ["O"] if passes == "forward" else list(rng.permutation(["O", "dQ", "dK", "dV"]))
    return {str(name): float(worst * (0.3 if k else 1)) for k, name in enumerate(names)}


def _claim(
    rng: np.random.Generator, runs: Sequence[misleading_table.Run], trick: str
) -> tuple[misleading_table.Claim, str]:
    method, d, n = str(rng.choice(DEGREES)), int(rng.choice([8, 12])), int(rng.choice([1024, 8192]))
    both = trick in ("one pass against two", "the mean of the errors") or bool(rng.integers(2))
    place = (method, d, 65536 if trick == NOBODY else n, "both" if both else "forward")
    factor = {BETTER: 1.03, WORSE: 0.7, TOO_GOOD: 1.1}.get(trick)
    row = misleading_table.row(runs, trick if factor is None else "none", *place)
    if factor is not None:
        side = str(rng.choice(["speedup", "error"]))
        row[side] *= factor if side == "speedup" else 1 / factor
    return row, trick


class Row(NamedTuple):
    """A recomputed claim: speed-up over exact attention (or None), error in percent, and whether it holds."""

    speedup: float | None
    error: float
    stands: bool


@library_solution
def honest_row(claim: misleading_table.Claim, runs: Sequence[misleading_table.Run]) -> Row:
    """Recompute a claim with the fastest exact attention as the baseline and with its worst output."""
    # <!-- "fastest" as definition -->
    kind = {key: claim[key] for key in misleading_table.PLACE} | {"threads": 1}
    alike = [run for run in runs if kind.items() <= run.items()]
    own = next(run for run in alike if run["method"] == claim["method"])
    error = max(own["errors"].values())
    baseline = min((run["median"] for run in alike if run["exact"]), default=None)
    if baseline is None:
        return Row(None, error, False)
    speedup = baseline / own["median"]
    return Row(speedup, error, claim["speedup"] <= BIT * speedup and claim["error"] >= error / BIT)


def _rows(trial: Trial) -> list[Row] | None:
    rows = several(trial.value, len(trial.case.inputs["claims"]))
    parts = [several(row, 3) for row in rows or ()]
    if not parts or any(row is None for row in parts):
        return None
    found = [Row(*row) for row in parts if row is not None]
    fine = all(
        (row.speedup is None or is_number(row.speedup))
        and is_number(row.error)
        and isinstance(row.stands, (bool, np.bool_))
        for row in found
    )
    return found if fine else None


A_TABLE = Form(
    "returns one row per claim", _rows, "a list of (speed-up or None, error, True or False), one per claim"
)


def _told_by(*tricks: str) -> Callable[[Trial, list[Row]], str | None]:
    """Return a test of the speed-ups of claims with these tricks."""

    def judge(trial: Trial, rows: list[Row]) -> str | None:
        for claim, row, (want, trick) in _side_by_side(trial, rows):
            if trick in tricks and (problem := _off(row.speedup, want.speedup)):
                return f"{_named(claim)}: {problem}"
        return None

    return judge


def _off(got: float | None, want: float | None) -> str | None:
    if got is None or want is None:
        return None if got is want else f"the speed-up is {_times(got)}, expected {_times(want)}"
    return difference(got, want)


def _times(speedup: float | None) -> str:
    return "None" if speedup is None else f"{speedup:.5g}"


def _side_by_side(
    trial: Trial, rows: list[Row]
) -> Sequence[tuple[misleading_table.Claim, Row, tuple[Row, str]]]:
    return list(zip(trial.case.inputs["claims"], rows, trial.case.expected, strict=True))


def _named(claim: misleading_table.Claim) -> str:
    return f"{claim['method']}, d = {claim['d']}, n = {claim['n']}, {claim['passes']}"


def _worst_output(trial: Trial, rows: list[Row]) -> str | None:
    for claim, row, (want, _) in _side_by_side(trial, rows):
        if problem := difference(row.error, want.error):
            return f"{_named(claim)}: error: {problem}"
    return None


def _stands_or_falls(trial: Trial, rows: list[Row]) -> str | None:
    for claim, row, (want, _) in _side_by_side(trial, rows):
        if bool(row.stands) != want.stands:
            told_ = f"{claim['speedup']:.4g} times and {claim['error']:.3g} percent"
            return f"{_named(claim)}: the claim of {told_} {'holds' if want.stands else 'does not hold'}"
    return None


EXPOSED = exercise(
    "17E",
    cases=_table_cases,
    properties=(
        A_TABLE.kept(),
        A_TABLE.must("fair claims keep their numbers", _told_by("none", BETTER, WORSE, TOO_GOOD)),
        A_TABLE.must("the baseline is the fastest exact attention", _told_by("a slower baseline")),
        A_TABLE.must("compares medians with medians", _told_by("own lower quartile, their upper one")),
        A_TABLE.must(
            "compares equal passes on one thread",
            _told_by("two threads against one", "one pass against two"),
        ),
        A_TABLE.must("uses only measured baselines", _told_by(NOBODY)),
        A_TABLE.must("the error is that of the worst output", _worst_output),
        A_TABLE.must("accepts a claim only if both numbers hold", _stands_or_falls),
    ),
)

EXERCISES = (GROWTH, BOUNDED, RANGE, CHOICE, EXPOSED)
