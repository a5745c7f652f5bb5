"""Exercises of lesson 17: a law of growth, bounded logits, what a printed error says, the final project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, factorial, inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import costs, masks, schedules
from ...guard import library_answer
from ...ledger import Ledger
from ..exercise import Case, Exercise, Trial
from ..judging import TOLERANCE, difference, each, only_where

Array = NDArray[np.float64]


# ------------------------------------------------------------------ 17.1 two laws of growth
POWER, EXPONENTIAL = "power", "exponential"


def _growth_cases(rng: np.random.Generator) -> list[Case]:
    """Each law with a little noise, tiny errors, several measurements a number of layers, out of order."""
    deep = np.array([1, 2, 4, 8, 12, 16, 24])
    repeated = rng.permutation(np.repeat([1, 2, 4, 8, 12], 3))
    a, b = rng.uniform(0.3, 1.2), rng.uniform(0.15, 0.4)
    laws = [
        (POWER, deep, 1e-5 * deep**a),
        (EXPONENTIAL, deep, 1e-4 * np.exp(b * deep)),
        (POWER, repeated, 3.0 * repeated**a),
        (EXPONENTIAL, repeated, 1e-9 * np.exp(b * repeated)),
        ("shrinking power", deep, 0.1 * deep**-a),
        ("shrinking exponential", deep, 0.1 * np.exp(-b * deep)),
    ]
    return [_growth_case(rng, *law) for law in laws]


def _growth_case(rng: np.random.Generator, label: str, layers: NDArray[np.int_], errors: Array) -> Case:
    noisy = errors * np.exp(0.02 * rng.standard_normal(len(errors)))
    inputs = {"layers": layers.tolist(), "errors": noisy.tolist()}
    return Case(f"{label}, {len(layers)} measurements", inputs, growth(layers, noisy))


@library_answer
def growth(layers: NDArray[np.int_], errors: Array) -> tuple[float, float, str]:
    """(a of error ~ mᵃ, b of error ~ e^(bm), the law that leaves the smaller squares), m the layers."""
    heights = np.log(errors)
    found = []
    for places in (np.log(layers), layers.astype(float)):
        x, y = places - places.mean(), heights - heights.mean()
        slope = float(x @ y / (x @ x))
        found.append((slope, float(((y - slope * x) ** 2).sum())))
    (a, off_power), (b, off_exponential) = found
    return a, b, POWER if off_power <= off_exponential else EXPONENTIAL


def _part(k: int, what: str) -> Callable[[Trial], str | None]:
    """Compare part k of three results."""

    def judge(trial: Trial) -> str | None:
        if not isinstance(trial.value, (tuple, list)) or len(trial.value) != 3:
            return "expected three results: the exponent, the rate, the law"
        got, want = trial.value[k], trial.case.expected[k]
        if isinstance(want, str):
            return None if got == want else f"yours is {got!r}, closer lies {want!r}"
        complaint = difference(got, want, 1e-6)
        return f"{what}: {complaint}" if complaint else None

    return judge


GROWTH = Exercise(
    id="17.1",
    title="Which law?",
    function="my_growth",
    difficulty=2,
    importance=4,
    minutes=8,
    hints=(
        "Take the logarithm of either law. What becomes of the power, what of the exponential, and which "
        "number is then the slope of a line?",
        "The logarithm of the error against the logarithm of m is a line of slope a for a power; against m "
        "itself it is a line of slope b for an exponential. np.polyfit with degree 1 fits a line.",
        "Fit both lines to the same logarithms of errors. For each, add up the squares of what is left, "
        "logarithm of the error less slope times place less the constant. The smaller sum names the law.",
    ),
    cases=_growth_cases,
    properties=(
        each("the exponent of the power is fitted", _part(0, "a")),
        each("the rate of the exponential is fitted", _part(1, "b")),
        only_where(
            "errors that shrink are fitted too", lambda case: "shrinking" in case.label, _part(0, "a")
        ),
        each("the law is the one that lies closer", _part(2, "law")),
    ),
)


# ------------------------------------------------------------------ 17.2 logits that cannot grow
ZERO, TINY, HEADS = "a row of zeros", "rows of every size", "heads in front"


def _bounded_cases(rng: np.random.Generator) -> list[Case]:
    """Ordinary rows, rows from 1e-12 to 1e12, axes in front, rows of zeros, one column."""
    n, d = int(rng.integers(5, 9)), int(rng.integers(3, 7))
    sizes = 10.0 ** rng.uniform(-12, 12, (n, 1))
    with_zero = rng.standard_normal((n, d))
    with_zero[int(rng.integers(n))] = 0
    given = [
        ("ordinary rows", rng.standard_normal((n, d))),
        (TINY, sizes * rng.standard_normal((n, d))),
        (HEADS, rng.standard_normal((2, 3, n, d))),
        (ZERO, with_zero),
        ("one column", rng.standard_normal((n, 1))),
    ]
    return [_bounded_case(rng, label, X) for label, X in given]


def _bounded_case(rng: np.random.Generator, label: str, X: Array) -> Case:
    length, dY = float(rng.uniform(0.5, 3)), rng.standard_normal(X.shape)
    inputs = {"X": X, "length": length, "dY": dY}
    return Case(f"{label}, shape {X.shape}, length {length:.2f}", inputs, bounded(X, length, dY))


@library_answer
def bounded(X: Array, length: float, dY: Array) -> tuple[Array, Array]:
    """Rows of X (…, d) stretched to `length`, and dX for dY; rows of zeros give zeros in both."""
    norms = np.sqrt((X * X).sum(axis=-1, keepdims=True))
    there = norms > 0
    safe = np.where(there, norms, 1.0)
    U = X / safe
    across = dY - (dY * U).sum(axis=-1, keepdims=True) * U
    return length * U, np.where(there, length / safe * across, 0.0)


def _two(trial: Trial) -> tuple[Array, Array] | None:
    """Both results where they are two arrays of the shape of X."""
    if not isinstance(trial.value, (tuple, list)) or len(trial.value) != 2:
        return None
    found = [np.asarray(part, dtype=np.float64) for part in trial.value]
    return (found[0], found[1]) if all(x.shape == trial.case.inputs["X"].shape for x in found) else None


def _are_two(trial: Trial) -> str | None:
    return None if _two(trial) else "expected two arrays of the shape of X: Y and dX"


def _long_as_asked(trial: Trial) -> str | None:
    found = _two(trial)
    if found is None:
        return "there is no Y to look at"
    X, length = (trial.case.inputs[name] for name in ("X", "length"))
    want = np.where(np.any(X != 0, axis=-1), length, 0.0)
    return difference(np.linalg.norm(found[0], axis=-1), want)


def _no_logit_beyond(trial: Trial) -> str | None:
    """Y as queries, and as keys of length 1: no product is larger than `length`."""
    found = _two(trial)
    if found is None:
        return "there is no Y to look at"
    Y, length = found[0], trial.case.inputs["length"]
    largest = float(np.abs(Y @ np.swapaxes(Y, -1, -2) / length).max(initial=0.0))
    return None if largest <= length * (1 + TOLERANCE) else f"one is {largest:.4g}, the bound is {length:.4g}"


def _same_rows(trial: Trial) -> str | None:
    found = _two(trial)
    return "there is no Y to look at" if found is None else difference(found[0], trial.case.expected[0])


def _row_by_row(got: Array, want: Array) -> str | None:
    """Compared in units of each row's own size, because 1/|x| reaches from 1e-12 to 1e12."""
    size = np.abs(want).max(axis=-1, keepdims=True)
    scale = np.where(size > 0, size, 1.0)
    return difference(got / scale, want / scale, 1e-6)


def _right_gradient(trial: Trial) -> str | None:
    found = _two(trial)
    return "there is no dX to look at" if found is None else _row_by_row(found[1], trial.case.expected[1])


def _across(trial: Trial) -> str | None:
    """dX of a row is orthogonal to the row: its length has no say in Y."""
    found = _two(trial)
    if found is None:
        return "there is no dX to look at"
    X, dX = trial.case.inputs["X"], found[1]
    if not np.isfinite(dX).all():
        return "dX holds numbers that are not finite"
    along = np.abs((X * dX).sum(axis=-1))  # of the size of |dY|, if it does not cancel
    return None if along.max(initial=0.0) <= 1e-6 else f"x·dx is {along.max():.3g} in some row"


BOUNDED = Exercise(
    id="17.2",
    title="Logits that cannot grow",
    function="my_bounded",
    difficulty=3,
    importance=5,
    minutes=10,
    hints=(
        "If a row is made longer in its own direction, what becomes of Y? What does that say about the "
        "part of dX along the row?",
        "Write u for the row divided by its length. Y is length times u. dX is dY with its part along u "
        "taken away, divided by the length of the row, and times the length that was asked for.",
        "The part of dY along u is the product of both, summed over the last axis with keepdims, times u. "
        "Rows of zeros have no direction: divide them by 1 instead, and set their gradient to zero.",
    ),
    cases=_bounded_cases,
    properties=(
        each("returns two arrays of the shape of X", _are_two),
        each("every row has the length that was asked for", _long_as_asked),
        each("no logit is beyond the bound", _no_logit_beyond),
        each("rows keep their direction", _same_rows),
        each("the gradient is orthogonal to its row", _across),
        each("the gradient is right, for short and for long rows", _right_gradient),
        only_where("a row of zeros has zeros in both", lambda case: ZERO in case.label, _right_gradient),
        only_where("axes in front are carried along", lambda case: HEADS in case.label, _right_gradient),
    ),
)


# ------------------------------------------------------------------ 17.3 what a printed error says
def _range_cases(rng: np.random.Generator) -> list[Case]:
    """Printed errors from zero to beyond 1, from where there is no upper end."""
    printed = [
        0.0,
        float(rng.uniform(1e-4, 0.02)),
        float(rng.uniform(0.1, 0.4)),
        float(rng.uniform(0.5, 0.9)),
    ]
    printed += [1.0, float(rng.uniform(1.1, 3.0)), 0.04673]
    return [Case(f"theirs={e:.5g}", {"theirs": e}, usual_range(e)) for e in printed]


@library_answer
def usual_range(theirs: float) -> tuple[float, float]:
    """The least and the largest ‖x - y‖/‖y‖ that go with ‖x - y‖/‖x + y‖ = theirs."""
    return 2 * theirs / (1 + theirs), inf if theirs >= 1 else 2 * theirs / (1 - theirs)


def _bound(k: int) -> Callable[[Trial], str | None]:
    def judge(trial: Trial) -> str | None:
        if not isinstance(trial.value, (tuple, list)) or len(trial.value) != 2:
            return "expected two numbers, the least and the largest"
        return difference(trial.value[k], trial.case.expected[k])

    return judge


def _holds_every_pair(trial: Trial) -> str | None:
    """Pairs x, y with this printed error, in every direction of x - y: their usual error is in the range."""
    theirs = trial.case.inputs["theirs"]
    if not isinstance(trial.value, (tuple, list)) or len(trial.value) != 2:
        return "there is no range to look at"
    least, largest = (float(end) for end in trial.value)
    for angle in np.linspace(0, np.pi, 25):
        usual = usual_error_at(theirs, angle)
        slack = TOLERANCE * (1 + (usual or 0))
        if usual is not None and not least - slack <= usual <= largest + slack:
            return f"some x and y with this printed error have a usual one of {usual:.5g}"
    return None


def usual_error_at(theirs: float, angle: float) -> float | None:
    """‖x - y‖/‖y‖ of the pair whose x - y and x + y meet at this angle; None where y is 0.

    With x + y of length 1 and x - y of length `theirs`, y is half of their difference.
    """
    twice_y = sqrt(max(0.0, 1 + theirs**2 - 2 * theirs * float(np.cos(angle))))
    return None if twice_y < 1e-12 else 2 * theirs / twice_y


RANGE = Exercise(
    id="17.3",
    title="What a printed error says",
    function="my_usual_range",
    difficulty=2,
    importance=4,
    minutes=6,
    hints=(
        "The numerators of both errors are the same. So what has to be known about the length of x + y, if "
        "y has length 1?",
        "x + y is 2y and x - y together. By the triangle inequality its length lies between 2 less and 2 "
        "more than the length of x - y, which for y of length 1 is the usual error u itself.",
        "So the printed error lies between u/(2 + u) and u/(2 - u). Solve each end for u. Where the printed "
        "error is 1 or more, one of the two ends gives no limit: then it is infinite.",
    ),
    cases=_range_cases,
    properties=(
        each("every pair of vectors lies in the range", _holds_every_pair),
        each("the least is reached", _bound(0)),
        only_where("the largest is reached", lambda case: case.inputs["theirs"] < 1, _bound(1)),
        only_where("from 1 on there is no upper end", lambda case: case.inputs["theirs"] >= 1, _bound(1)),
    ),
)


# ------------------------------------------------------------------ 17.4 the final project
EXACT = ("flash_optimal", "small_cache")
SPARSE = ("window", "block_sparse")
LOW_RANK = "low_rank"
NAMES = (*EXACT, *SPARSE, LOW_RANK)
CLIP = 0.8  # of σ²: beyond it the Poisson rule claims nothing about the clipped polynomial
MOST_DEGREE = 30
LEEWAY = 1.1  # on words: a tenth more than the fewest is as good


class Problem(NamedTuple):
    """N tokens, d columns, M words of fast memory; σ of the logits, the error allowed, a window or None."""

    N: int
    d: int
    M: int
    sigma: float
    error: float
    w: int | None = None


class Answer(NamedTuple):
    """A schedule's name, its tiles, the words it moves, and the error that is claimed for it."""

    name: str
    tiles: Mapping[str, int]
    words: int
    claim: float


def _choice_cases(rng: np.random.Generator) -> list[Case]:
    """Problems in which one of the five moves clearly fewer words, or where the fewest words are a trap."""
    N = int(rng.integers(30_000, 60_000))
    spread = float(rng.uniform(0.30, 0.42))  # degree 3 would reach 1 percent, and an odd one is not certified
    narrow = float(rng.uniform(0.1, 0.3))
    found = {
        "small logits, the state fits": Problem(N, 12, 40_000, spread, 0.01),
        "small logits, the state does not fit": Problem(N, 12, 4096, spread, 0.01),
        "not even a column of the state fits": Problem(4 * N, 12, 1024, spread, 0.01),
        "a strict error": Problem(N, 32, 16_384, 0.5, 1e-7),
        "logits just within the rule": Problem(20 * N, 8, 4096, float(rng.uniform(0.82, 0.88)), 0.05),
        "logits just beyond the rule": Problem(20 * N, 8, 4096, float(rng.uniform(0.91, 0.99)), 0.05),
        "wide rows in a small memory": Problem(N, 512, int(rng.integers(600, 1400)), 3.0, 0.01),
        "a small memory": Problem(N, 128, int(rng.integers(1000, 2000)), 1.5, 0.01),
        "everything fits": Problem(int(rng.integers(200, 400)), 8, 2**18, narrow, 0.05),
        "a short text": Problem(int(rng.integers(60, 120)), 12, 1024, 0.4, 0.01),
        "a window that fits": Problem(N, 32, 58_368, 2.0, 0.01, int(rng.integers(120, 300))),
        "a window that does not fit": Problem(N, 12, 8192, narrow, 0.05, int(rng.integers(1500, 2500))),
        "an ordinary head": Problem(N, 64, 58_368, float(rng.uniform(0.6, 0.85)), 0.01),
    }
    return [
        Case(f"{label}: {_said(problem)}", problem._asdict(), (problem, fewest(problem)))
        for label, problem in found.items()
    ]


def _said(p: Problem) -> str:
    window = "" if p.w is None else f", w={p.w}"
    return f"N={p.N}, d={p.d}, M={p.M}, σ={p.sigma:.3g}, error {p.error:g}{window}"


def poisson_rule(sigma: float, g: int) -> float:
    """√P[Poisson(σ²) > g]: the relative error of each row's own polynomial of degree g."""
    tail = sum(sigma ** (2 * m) / factorial(m) for m in range(g + 1, g + 40))
    return sqrt(exp(-sigma * sigma) * tail)


def even_degree(sigma: float, error: float) -> int | None:
    """The smallest even degree within `error` by the rule; None where the rule does not hold or none is."""
    if sigma * sigma > CLIP:
        return None
    return next((g for g in range(2, MOST_DEGREE + 1, 2) if poisson_rule(sigma, g) <= error), None)


@library_answer
def fewest(p: Problem) -> dict[str, int]:
    """Words of every schedule that may be chosen, each with the library's tiles."""
    found: dict[str, int] = {}
    for name in NAMES:
        if may_be_chosen(p, name):
            s = schedules.get(name)
            needs = _needs(p, name)
            if s.smallest_M(p.N, p.d, **needs) <= p.M:
                found[name] = s.cost(p.N, p.d, **needs, **s.tiles(p.N, p.d, p.M, **needs)).total
    return found


def may_be_chosen(p: Problem, name: str) -> bool:
    """Whether this schedule computes the attention that was asked for, within its error."""
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
    """What the named schedule moves with these tiles, by its closed form; `g` of low rank is among them.

    Raises TypeError or ValueError for tiles that it does not have.
    """
    form: Callable[..., Ledger] = getattr(costs, name)
    return form(p.N, p.d, **(_needs(p, name) if name in SPARSE else {}), **tiles)


def _answer(trial: Trial) -> Answer | None:
    """The four parts, where they are a known name, whole tiles, whole words and a number."""
    value = trial.value
    if not isinstance(value, (tuple, list)) or len(value) != 4 or value[0] not in NAMES:
        return None
    name, tiles, words, claim = value
    if not isinstance(tiles, Mapping) or not all(map(_whole, (*tiles.values(), words))) or not _number(claim):
        return None
    return Answer(name, {str(k): int(v) for k, v in tiles.items()}, int(words), float(claim))


def _number(x: Any) -> bool:
    return isinstance(x, (int, float, np.number)) and not isinstance(x, bool)


def _whole(x: Any) -> bool:
    """A whole number; 4.0 is one, 4.5, infinity and None are not."""
    return _number(x) and float(x).is_integer()


def _is_answer(trial: Trial) -> str | None:
    if _answer(trial) is not None:
        return None
    wanted = f"(name, tiles, words, claim), a name of {', '.join(NAMES)}, tiles and words whole numbers"
    return f"expected {wanted}; yours is {trial.value!r}"


Verdict = Callable[[Problem, Answer, Case], str | None]


def _on_answer(verdict: Verdict) -> Callable[[Trial], str | None]:
    def judge(trial: Trial) -> str | None:
        answer = _answer(trial)
        if answer is None:
            return "there is no answer to look at"
        return verdict(trial.case.expected[0], answer, trial.case)

    return judge


def _own_attention(p: Problem, a: Answer, case: Case) -> str | None:
    if p.w is None and a.name in SPARSE:
        return f"{a.name} leaves out keys that this model looks at"
    if p.w is not None and a.name not in SPARSE:
        return f"{a.name} looks at keys outside the window"
    return None


def _tiles_fit(p: Problem, a: Answer, case: Case) -> str | None:
    if a.name in SPARSE and p.w is None:
        return "there is no window to run it under"
    try:
        peak = ledger_of(p, a.name, a.tiles).peak
    except (TypeError, ValueError) as error:
        return f"{a.name} cannot run with {dict(a.tiles)}: {error}"
    return None if peak <= p.M else f"{a.name} with {dict(a.tiles)} needs {peak:,} words, M is {p.M:,}"


def _words_are_those_of_the_ledger(p: Problem, a: Answer, case: Case) -> str | None:
    if a.name in SPARSE and p.w is None:
        return "there is no window to count it under"
    try:
        words = ledger_of(p, a.name, a.tiles).total
    except (TypeError, ValueError) as error:
        return f"{a.name} has no ledger with {dict(a.tiles)}: {error}"
    return None if words == a.words else f"yours says {a.words:,} words, its ledger {words:,}"


def _few_words(p: Problem, a: Answer, case: Case) -> str | None:
    least = min(case.expected[1].values())
    if a.words <= LEEWAY * least:
        return None
    return f"{a.name} moves {a.words:,} words by your account, possible within the rules are {least:,}"


def _claim_is_the_rule(p: Problem, a: Answer, case: Case) -> str | None:
    if a.name != LOW_RANK:
        return None if a.claim == 0 else f"{a.name} is exact; yours claims an error of {a.claim:g}"
    if not 1 <= a.tiles.get("g", 0) <= MOST_DEGREE:
        return f"the degree is to be from 1 to {MOST_DEGREE}, yours is {a.tiles.get('g', 'not given')}"
    want = poisson_rule(p.sigma, a.tiles["g"])
    return difference(a.claim / want, 1.0, 1e-3, wanted="in units of what the rule gives")


def _claim_holds(p: Problem, a: Answer, case: Case) -> str | None:
    if a.name != LOW_RANK:
        return None
    if p.sigma**2 > CLIP:
        return f"σ² is {p.sigma**2:.2f}, and beyond {CLIP} the rule claims nothing"
    if not 1 <= a.tiles.get("g", 0) <= MOST_DEGREE:
        return "there is no degree to judge it by"
    if a.tiles["g"] % 2:
        return f"degree {a.tiles['g']}: its row sums may not be positive"
    rule = poisson_rule(p.sigma, a.tiles["g"])
    return None if rule <= p.error else f"degree {a.tiles['g']} leaves {rule:.3g}, allowed is {p.error:g}"


def _exact_where_it_costs_nothing(p: Problem, a: Answer, case: Case) -> str | None:
    if a.name != LOW_RANK:
        return None
    exact = [words for name, words in case.expected[1].items() if name in EXACT]
    least = min(exact, default=a.words + 1)
    return None if a.words < least else f"exact attention moves {least:,} words too, and is exact"


CHOICE = Exercise(
    id="17.4",
    title="Choose and defend",
    function="my_choice",
    difficulty=4,
    importance=5,
    minutes=24,
    hints=(
        "Take the five one after the other. For each, three questions: does it compute what this model "
        "computes, within the error? Which tiles fit in M? What does its ledger say? Then the smallest wins.",
        "A window decides alone which two are left. Without one, low rank needs σ² up to 0.8 and an even "
        "degree whose claim is small enough; its tile is found by trying every number of columns. A tile "
        "without a single row is no tile: then the schedule does not fit.",
        "Collect candidates as (words, claim, name, tiles) in a list and take the smallest: at equal words "
        "the smaller claim comes first, so an exact schedule wins a tie. Skip whatever has a footprint above "
        "M; costs.<name>(…).peak says it, and costs.<name>(…).total the words.",
    ),
    cases=_choice_cases,
    properties=(
        each("returns a name, tiles, words and a claim", _is_answer),
        each("it computes the attention that was asked for", _on_answer(_own_attention)),
        each("its tiles fit in fast memory", _on_answer(_tiles_fit)),
        each("the words are those of its ledger", _on_answer(_words_are_those_of_the_ledger)),
        each("the claim is what the rule gives, and 0 for exact attention", _on_answer(_claim_is_the_rule)),
        each("the claim holds for this problem", _on_answer(_claim_holds)),
        each(
            "an approximation is chosen only where it moves fewer words",
            _on_answer(_exact_where_it_costs_nothing),
        ),
        each("within a tenth of the fewest words", _on_answer(_few_words)),
    ),
)

EXERCISES = (GROWTH, BOUNDED, RANGE, CHOICE)
