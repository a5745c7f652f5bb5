"""Exercises of lesson 14: a rule on trial, pairs that differ in one setting, three timings, a stopwatch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ...gpu.timed_tiles import ROWS, tables
from ..exercise import Case, NotJudged, Sample, Trial, exercise, student_call, trial_from_error
from ..guard import library_solution
from ..kinds.function import EVERY, function_exercise
from ..made_up_device import BURST, PERIOD, Kernel, simulated
from ..properties import Form, idle, is_number, one_array
from ..tuning import (
    CALLS,
    SETTINGS,
    Row,
    Rule,
    TooManyCalls,
    chance_of_best,
    scores_of,
    settings_of,
    stopwatch_of,
    times_of,
    untimed,
)

TILES = [(64, 32), (64, 64), (64, 128), (128, 64), (128, 128)]


def _row(chosen: tuple[tuple[int, int], int, int], ms: float, score: float) -> Row:
    tile, warps, stages = chosen
    settings = ("draft", 64, False, *tile, warps, stages)
    return {**dict(zip(SETTINGS, settings, strict=True)), "ms": ms, "score": score}


# ------------------------------------------------------------------ 14E a rule on trial
TIES, CONSTANT = "several rows with the smallest number", "the same number for every row"


def _trials(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield rules without ties, with ties of the choice, of the best row alone, and a constant rule."""
    for n in map(int, rng.integers(9, 30, size=3)):
        yield _on_trial(rng, rng.permutation(n) - n / 2)
    n = int(rng.integers(12, 30))
    scores = rng.permutation(n) + 2.0
    yield _on_trial(rng, np.where(scores < 7, 1.0, scores), TIES, fastest=int(scores.argmax()))
    yield _on_trial(rng, np.where(scores < 6, 1.0, scores), TIES, fastest=int(scores.argmin()))
    yield _on_trial(rng, np.full(n, 3.0), CONSTANT)
    yield _on_trial(rng, np.zeros(1), CONSTANT)


def _on_trial(rng: np.random.Generator, scores: Any, tag: str = "", fastest: int | None = None) -> Sample:
    """Return a table with a column `score`; the row number `fastest` has the smallest time, default: any."""
    n = len(scores)
    times = rng.uniform(1.0, 3.0, n)
    times[int(rng.integers(n)) if fastest is None else fastest] = rng.uniform(0.7, 0.9)
    settings = list(product(TILES, (4, 8), (2, 3, 4)))
    rows = [
        _row(settings[k], float(time), float(score))
        for k, time, score in zip(rng.permutation(len(settings))[:n], times, scores, strict=True)
    ]
    tags = (tag,) if tag else ()
    results = dict(zip(("regret", "place", "chance"), on_trial(rows, _score), strict=True))
    return Sample({"rows": n}, {"rows": rows, "rule": _score}, results, tags=tags)


def _score(row: Row) -> float:
    return float(row["score"])


@library_solution
def on_trial(rows: Sequence[Row], rule: Rule) -> tuple[float, int, float]:
    """Return regret (14.1), place, and chance (14.2) of a rule on one table. Raises as the two columns."""
    times, scores = np.array(times_of(rows)), np.array(scores_of(rows, rule))
    chosen, best = scores == scores.min(), times.min()
    place = int((scores <= scores[times.argmin()]).sum())
    return float(times[chosen].mean() / best), place, float(times.mean() / best)


TRIAL = function_exercise(
    "14E",
    "regret place chance",
    _trials,
    {
        ("regret", EVERY): "regret is the time of the choice divided by the best time",
        ("regret", TIES): "several rows with the smallest number count by their mean time",
        ("regret", CONSTANT): "the regret of a constant rule is that of one row at random",
        ("place", EVERY): "place is the position of the best row in the order of the rule, from 1",
        ("place", TIES): "ties are counted against the rule",
        ("place", CONSTANT): "a constant rule places the best row last",
        ("chance", EVERY): "chance is the mean regret of one row at random",
    },
)


# ------------------------------------------------------------------ 14F one thing at a time
HELD, NO_PAIRS = "a held column", "no pairs"


def _pair_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases of several settings, of several tables in one list, and with held columns."""
    return [
        _pair_case(rng, "stages", 2, 3),
        _pair_case(rng, "warps", 8, 4),
        _pair_case(rng, "BM", 64, 128),
        _pair_case(rng, "causal", False, True),
        _pair_case(rng, "stages", 3, 4, ("blocks",)),
        _pair_case(rng, "warps", 4, 8, ("blocks", "spills")),
        _pair_case(rng, "stages", 5, 6),
    ]


def _pair_case(rng: np.random.Generator, factor: str, a: Any, b: Any, held: tuple[str, ...] = ()) -> Case:
    settings = product(("draft", "forward"), (64, 128), (False, True), (64, 128), (32, 64), (4, 8), (2, 3, 4))
    rows: list[Row] = [
        {
            **dict(zip(SETTINGS, one, strict=True)),
            "ms": float(rng.uniform(1, 3)),
            "blocks": int(rng.integers(1, 3)),
            "spills": int(rng.integers(0, 2)),
        }
        for one in settings
        if rng.random() < 0.35
    ]
    rows = [rows[k] for k in rng.permutation(len(rows))]
    inputs = {"rows": rows, "factor": factor, "a": a, "b": b, "held": held}
    ratios = [x["ms"] / y["ms"] for x, y in pairs_of(rows, factor, a, b, held)]
    tags = {tag for tag, there in ((HELD, held), (NO_PAIRS, not ratios)) if there}
    label = f"{factor} {a} and {b}" + (f", held {' and '.join(held)}" if held else "")
    return Case(label, inputs, ratios, tags=frozenset(tags))


@library_solution
def pairs_of(
    rows: Sequence[Row], factor: str, a: Any, b: Any, held: Sequence[str] = ()
) -> list[tuple[Row, Row]]:
    """Return the rows with `a` and with `b` that have the same other settings and the same held columns."""
    others = [name for name in (*SETTINGS, *held) if name != factor]
    at_b = {tuple(row[name] for name in others): row for row in rows if row[factor] == b}
    found = [(row, at_b.get(tuple(row[name] for name in others))) for row in rows if row[factor] == a]
    return [(row, other) for row, other in found if other is not None]


Ratios = np.ndarray[Any, np.dtype[np.float64]]


def _ratios(trial: Trial) -> Ratios | None:
    found = one_array(trial.value)
    return found if found is not None and found.ndim == 1 else None


RATIOS = Form("returns a list of numbers", _ratios, "a list of ratios, one per pair")
TOGETHER = 1e-12  # relative: ratios of different pairs of one table differ by more


def _rows_of(trial: Trial, ratio: float) -> tuple[Row, Row] | None:
    """Return the two rows whose times have this ratio, the numerator first; None if there are none."""
    rows = trial.case.inputs["rows"]
    times = np.array([row["ms"] for row in rows])
    off = np.abs(times[:, None] / times[None, :] / ratio - 1) if ratio > 0 else np.ones((1, 1))
    np.fill_diagonal(off, 1.0)
    i, j = np.unravel_index(off.argmin(), off.shape)
    return (rows[i], rows[j]) if off[i, j] < TOGETHER else None


def _in_this_order(trial: Trial, found: Ratios) -> str | None:
    """Compare the numerator with the row that has the value `a`."""
    factor, a, b = (trial.case.inputs[name] for name in ("factor", "a", "b"))
    for ratio in found:
        rows = _rows_of(trial, float(ratio))
        if rows is None:
            return f"{ratio:.6g} is not the ratio of two times of the table"
        one, other = (row[factor] for row in rows)
        if (one, other) == (b, a):
            return f"{ratio:.6g} is the time at {factor} = {b} divided by the time at {a}: exchange the two"
    return None


def _one_factor(trial: Trial, found: Ratios) -> str | None:
    """Find a pair of rows that differ in another setting, or not in the two values."""
    factor, a, b = (trial.case.inputs[name] for name in ("factor", "a", "b"))
    for rows in filter(None, (_rows_of(trial, float(ratio)) for ratio in found)):
        one, other = rows
        if {one[factor], other[factor]} != {a, b}:
            return f"a pair has {factor} = {one[factor]} and {other[factor]}, expected {a} and {b}"
        also = [name for name in SETTINGS if name != factor and one[name] != other[name]]
        if also:
            return f"a pair of {factor} {a} and {b} also differs in {' and '.join(also)}"
    return None


def _equal_columns(trial: Trial, found: Ratios) -> str | None:
    held = trial.case.inputs["held"]
    for one, other in filter(None, (_rows_of(trial, float(ratio)) for ratio in found)):
        off = next((name for name in held if one[name] != other[name]), None)
        if off:
            return f"a pair has {off} = {one[off]} and {other[off]}, but {off} is held"
    return None


def _each_once(trial: Trial, found: Ratios) -> str | None:
    """Count the ratios of the expected pairs; other pairs are the matter of the other properties."""
    missing = 0
    for ratio in trial.case.expected:
        same = np.abs(found / ratio - 1) < TOGETHER
        same |= np.abs(found * ratio - 1) < TOGETHER
        if same.sum() > 1:
            return f"a pair is counted {same.sum()} times, expected once"
        missing += not same.any()
    return f"{missing} of {len(trial.case.expected)} pairs are missing" if missing else None


PAIRS = exercise(
    "14F",
    cases=_pair_cases,
    properties=(
        RATIOS.kept(),
        RATIOS.must("counts every pair once", _each_once),
        idle(RATIOS.must("each ratio is the time at a divided by the time at b", _in_this_order)),
        idle(RATIOS.must("the two rows of a pair differ in the factor only", _one_factor)),
        idle(RATIOS.must("held columns are equal in a pair", _equal_columns, HELD)),
    ),
)


# ------------------------------------------------------------------ 14G prune, then time three
ORDERS = 200  # random orders of the rows of each recorded table, and made-up tables per recorded one
SHARE = 0.6  # of the excess of three random rows over the best time
MADE_UP = "made-up kernels"
GROUPS = {
    "the draft": ("draft",),
    "the library's forward pass": ("forward",),
    "its backward halves": ("queries", "keys"),
}
# Of a made-up table: the times of rows on which no effect acts, and the factors of the three effects.
BASE, TWO_STAGES, FEW_ROWS, ONE_WARPGROUP = (1.0, 1.5), (1.1, 1.3), (1.4, 1.8), (1.5, 1.8)
REPEATED = 0.01  # by which such rows that differ in the number of stages differ


@dataclass(frozen=True)
class Chosen:
    """The regrets for one group of tables."""

    regrets: tuple[float, ...]


def timed_groups() -> dict[str, list[list[Row]]]:
    """Return the recorded tables of each group."""
    every = [*tables("tiles").values(), *tables("tune").values()]
    return {
        group: [rows for rows in every if rows[0]["kernel"] in kernels] for group, kernels in GROUPS.items()
    }


def made_up_table(rng: np.random.Generator, rows: Sequence[Row]) -> list[Row]:
    """Return these rows with new times, in which only the three effects of section 14.4 hold.

    The times of rows on which no effect acts do not depend on a column; three and four stages are alike.
    """
    base: dict[tuple[int, int, int], float] = {}
    found = []
    for row in rows:
        group = max(row["rows_per_warpgroup"], ROWS)  # 32 rows: as 64, with the factor
        time = base.setdefault((row["BM"], row["BN"], group), rng.uniform(*BASE))
        time *= 1 + REPEATED * rng.uniform(-1, 1)
        for holds, factors in (
            (row["stages"] < 3, TWO_STAGES),
            (row["rows_per_warpgroup"] < ROWS, FEW_ROWS),
            (row["warpgroups_per_sm"] < 2, ONE_WARPGROUP),
        ):
            time *= rng.uniform(*factors) if holds else 1.0
        found.append({**row, "kernel": MADE_UP, "ms": time})
    return found


def _groups(rng: np.random.Generator) -> list[Case]:
    """Return one case per group of recorded tables, in random orders, and one of made-up tables."""
    recorded = timed_groups()
    new = [made_up_table(rng, rows) for rows in recorded["the draft"] for _ in range(ORDERS)]
    chosen = [(group, found, ORDERS) for group, found in recorded.items()] + [(MADE_UP, new, 1)]
    return [
        Case(
            group,
            {"tables": found, "orders": orders, "seed": int(rng.integers(2**32))},
            fmean(chance_of_best(rows, CALLS) for rows in found),
            tags=frozenset([group]),
        )
        for group, found, orders in chosen
    ]


@trial_from_error
def _choose_often(student: Callable[..., Any], case: Case) -> Trial:
    """Call the function on every table in each order; it gets rows without times, and a new stopwatch.

    A fourth call of the stopwatch ends the trial, also if the function catches its error.
    """
    rng, regrets = np.random.default_rng(case.inputs["seed"]), list[float]()
    for rows in case.inputs["tables"]:
        times = dict(zip(map(settings_of, rows), times_of(rows), strict=True))
        for _ in range(case.inputs["orders"]):
            calls = list[Any]()
            watch, given = stopwatch_of(rows, calls), [untimed(rows[k]) for k in rng.permutation(len(rows))]
            choice = None
            with suppress(TooManyCalls), student_call():
                choice = student(given, watch)
            if len(calls) > CALLS:
                raise NotJudged(FEW_CALLS, f"expected at most {CALLS} calls, got call {CALLS + 1}")
            time = times.get(settings_of(choice))
            if time is None:
                return Trial(case, value=choice)
            regrets.append(time / min(times.values()))
    return Trial(case, value=Chosen(tuple(regrets)))


def _chosen(trial: Trial) -> Chosen | None:
    return trial.value if isinstance(trial.value, Chosen) else None


CHOSEN = Form("returns a row of the table", _chosen, "one of the rows")
BETTER = f"has at most {SHARE} of the excess of three random rows on"
FEW_CALLS = f"calls the stopwatch at most {CALLS} times per table"


def _few_calls(trial: Trial, found: Chosen) -> str | None:
    """Return None: a fourth call has ended the trial with `NotJudged`."""
    return None


def _low_regret(trial: Trial, found: Chosen) -> str | None:
    chance = trial.case.expected
    limit, mean = 1 + SHARE * (chance - 1), fmean(found.regrets)
    if mean <= limit:
        return None
    new = "; these times are new in each check" if trial.case.label == MADE_UP else ""
    return f"mean regret {mean:.3f}, expected at most {limit:.3f}; three random rows have {chance:.3f}{new}"


CHOOSE = exercise(
    "14G",
    cases=_groups,
    properties=(
        CHOSEN.kept(),
        idle(CHOSEN.must(FEW_CALLS, _few_calls)),
        *(CHOSEN.must(f"{BETTER} {group}", _low_regret, group) for group in (*GROUPS, MADE_UP)),
    ),
    run_case=_choose_often,
)


# ------------------------------------------------------------------ 14H an honest stopwatch
DEVICES = PERIOD // BURST  # per case: each launch is disturbed on one of them
OFF, MOST_LAUNCHES, MOST_HOST_MS = 0.05, 50, 0.5
QUEUE, CACHE, LAPS, FIRST, HOST, ALL = (
    "a queue",
    "an L2 cache",
    "disturbed laps",
    "slow first launches",
    "a slow host",
    "all of these",
)
LOOK = {
    QUEUE: "does the host wait for the device before the time is read?",
    CACHE: "are the inputs still in L2 when a lap starts?",
    LAPS: "what do five disturbed laps do to your result?",
    FIRST: "how many launches run before the first lap that counts?",
    HOST: "is the device still busy when the last event of a lap is queued?",
    ALL: "if every property above holds, are slow and disturbed laps together half of your laps?",
}


class Measured(NamedTuple):
    """The results on all devices in milliseconds, and the most launches on one of them."""

    times: tuple[float, ...]
    launches: int


def _devices(rng: np.random.Generator) -> list[Case]:
    """Return one kernel per difficulty, and one with all of them.

    The kernel of `HOST` is so short that flushes for exactly the host time of a launch are too few, also if
    the laps are queued one after another.
    """
    long, short = rng.uniform(0.5, 2, size=4), float(rng.uniform(0.012, 0.019))
    cold, slow = float(rng.uniform(0.4, 0.6)), float(rng.uniform(1.3, 1.6))
    host = float(rng.uniform(0.3, MOST_HOST_MS))
    kernels = {
        QUEUE: Kernel(float(long[0])),
        CACHE: Kernel(float(long[1]), cached=cold),
        LAPS: Kernel(float(long[2]), disturbed=True),
        FIRST: Kernel(float(long[3]), compile_ms=400, slow=slow),
        HOST: Kernel(short, host_ms=MOST_HOST_MS),
        ALL: Kernel(short, cold, host, 400, slow, True),
    }
    return [
        Case(tag, {"kernel": kernel, "seed": int(rng.integers(2**32))}, kernel.ms, tags=frozenset([tag]))
        for tag, kernel in kernels.items()
    ]


def gap_of(**kernel: float) -> float:
    """Return the time between two events around a launch on an idle device in milliseconds; as `Kernel`."""
    device, launch, _ = simulated(Kernel(**kernel))  # type: ignore[arg-type]
    launch()
    device.synchronize()
    start = device.event()
    launch()
    end = device.event()
    device.synchronize()
    return end.ms - start.ms


@trial_from_error
def _time_often(student: Callable[..., Any], case: Case) -> Trial:
    """Measure the kernel on several devices; the value is a `Measured`, or a result that is not a number."""
    found, launches = [], 0
    for k in range(DEVICES):
        device, launch, count = simulated(case.inputs["kernel"], case.inputs["seed"] + k)
        with student_call():
            found.append(student(device, launch))
        launches = max(launches, count())
    if not all(map(is_number, found)):
        return Trial(case, value=next(one for one in found if not is_number(one)))
    return Trial(case, value=Measured(tuple(map(float, found)), launches))


def _measured(trial: Trial) -> Measured | None:
    return trial.value if isinstance(trial.value, Measured) else None


MEASURED = Form("returns one number", _measured, "a time in milliseconds")


def _right_time(trial: Trial, found: Measured) -> str | None:
    want = trial.case.expected
    wrong = [ms for ms in found.times if not abs(ms - want) <= OFF * want]  # so that NaN is wrong
    if not wrong:
        return None
    ms = max(wrong, key=lambda ms: abs(ms - want))
    tag = next(iter(trial.case.tags))
    return f"got {ms:.4g} ms, expected {want:.4g} ms within {OFF:.0%}: {LOOK[tag]}"


def _few_launches(trial: Trial, found: Measured) -> str | None:
    if not found.launches:
        return "the kernel is never launched"
    if found.launches <= MOST_LAUNCHES:
        return None
    return f"{found.launches} launches, expected at most {MOST_LAUNCHES}"


SENTENCES = {
    QUEUE: "waits for the device",
    CACHE: "every lap starts with an empty L2 cache",
    LAPS: "disturbed laps do not change the result",
    FIRST: "the first launches do not change the result",
    HOST: "a slow host does not change the result",
    ALL: "is correct with all of these together",
}
STOPWATCH = exercise(
    "14H",
    cases=_devices,
    properties=(
        MEASURED.kept(),
        *(MEASURED.must(sentence, _right_time, tag) for tag, sentence in SENTENCES.items()),
        idle(MEASURED.must(f"launches the kernel at most {MOST_LAUNCHES} times", _few_launches)),
    ),
    run_case=_time_often,
)

EXERCISES = (TRIAL, PAIRS, CHOOSE, STOPWATCH)
