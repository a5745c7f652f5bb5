"""Tables of speed-ups made from real measurements by common but unfair practices.

A *run* is one measurement: "method", "exact", "d", "n", "passes" ("forward" or "both"), "threads",
milliseconds ("median", and the quartiles "lower" and "upper" or None if they were not recorded), and
"errors", percent by compared output, empty for exact attention. A *claim* is a row of a table: "method", "d",
"n", "passes", "speedup" and "error" in percent. The table states that it is for one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Run = dict[str, Any]
Claim = dict[str, Any]
Numbers = tuple[float, float]  # a speed-up, an error
PLACE = ("d", "n", "passes")
SHOWN = 3  # digits of a claim


# ------------------------------------------------------------------ measurements
def runs_of(record: Mapping[str, Any]) -> list[Run]:
    """Return the runs of a record of `lowrank`: those of lengths up to a million, and of its other shapes."""
    found = [_scaling_run(row) for row in record["scaling"]]
    timed = {(row["d"], row["n"]) for row in record["scaling"]}
    for name, passes in (("forward", "forward"), ("gradient", "both")):
        for row in record[name]:
            if (row["d"], row["n"]) not in timed:
                found += _table_runs(row, passes)
    return found


def _scaling_run(row: Mapping[str, Any]) -> Run:
    passes, exact = "forward" if row["pass"] == "forward" else "both", row["g"] is None
    off = {name: error for name, error in row["errors"].items() if passes == "both" or name == "O"}
    name = row["contender"] if exact else f"degree {row['g']}"
    return _run(row, name, exact, passes, row["ms"], row["quartiles_ms"], off, row["threads"])


def _table_runs(row: Mapping[str, Any], passes: str) -> Iterator[Run]:
    for name, ms in row["exact_ms"].items():
        yield _run(row, name, True, passes, ms, (None, None), {})
    for one in row["degrees"]:
        yield _run(row, f"degree {one['g']}", False, passes, one["ms"], one["quartiles_ms"], one["errors"])


def _run(
    row: Mapping[str, Any],
    method: str,
    exact: bool,
    passes: str,
    median: float,
    quartiles: Sequence[float | None],
    errors: Mapping[str, float],
    threads: int = 1,
) -> Run:
    return {
        "method": method, "exact": exact, "d": row["d"], "n": row["n"], "passes": passes, "threads": threads,
        "median": median, "lower": quartiles[0], "upper": quartiles[1], "errors": dict(errors),
    }  # fmt: skip


# ------------------------------------------------------------------ claims
def row(runs: Sequence[Run], trick: str, method: str, d: int, n: int, passes: str) -> Claim:
    """Return the claim that a trick of `TRICKS` makes from these runs.

    Raises KeyError for an unknown trick, and ValueError if a run that the trick needs is missing.
    """
    own = _one(runs, method=method, d=d, n=n, passes=passes, threads=1)
    numbers = zip(("speedup", "error"), TRICKS[trick](own, runs), strict=True)
    place = {"method": method, "d": d, "n": n, "passes": passes}
    return place | {name: float(f"{number:.{SHOWN}g}") for name, number in numbers}


def _exact(runs: Sequence[Run], own: Run, **others: Any) -> list[Run]:
    wanted = {key: own[key] for key in PLACE} | {"threads": 1, "exact": True} | others
    return [run for run in runs if all(run[key] == value for key, value in wanted.items())]


def _one(runs: Sequence[Run], **wanted: Any) -> Run:
    for run in runs:
        if all(run[key] == value for key, value in wanted.items()):
            return run
    raise ValueError(f"no run has {wanted}")


def _instead(runs: Sequence[Run], own: Run, **others: Any) -> Run:
    """Return the run that equals `own` in method, d, n, passes and threads, except for `others`."""
    return _one(runs, **({key: own[key] for key in ("method", *PLACE, "threads")} | others))


def _fastest(runs: Sequence[Run], own: Run) -> Run:
    return min(_exact(runs, own), key=lambda run: float(run["median"]))


def _worst(own: Run) -> float:
    return max(map(float, own["errors"].values()))


def _honest(own: Run, runs: Sequence[Run]) -> Numbers:
    return _fastest(runs, own)["median"] / own["median"], _worst(own)


def _slower_baseline(own: Run, runs: Sequence[Run]) -> Numbers:
    return max(run["median"] for run in _exact(runs, own)) / own["median"], _worst(own)


def _kind_quartiles(own: Run, runs: Sequence[Run]) -> Numbers:
    return _fastest(runs, own)["upper"] / own["lower"], _worst(own)


def _more_threads(own: Run, runs: Sequence[Run]) -> Numbers:
    return _fastest(runs, own)["median"] / _instead(runs, own, threads=2)["median"], _worst(own)


def _one_pass_for_two(own: Run, runs: Sequence[Run]) -> Numbers:
    return _fastest(runs, own)["median"] / _instead(runs, own, passes="forward")["median"], _worst(own)


def _nobody_ran_it(own: Run, runs: Sequence[Run]) -> Numbers:
    """Extrapolate a baseline's least time from the longest measured length, by the square of the length."""
    there = {key: own[key] for key in ("d", "passes")}
    shorter = [run for run in runs if run["exact"] and run["threads"] == 1 and there.items() <= run.items()]
    last = max(shorter, key=lambda run: (int(run["n"]), -float(run["median"])))
    return last["median"] * (own["n"] / last["n"]) ** 2 / own["median"], _worst(own)


def _mean_error(own: Run, runs: Sequence[Run]) -> Numbers:
    return _honest(own, runs)[0], sum(own["errors"].values()) / len(own["errors"])


TRICKS: dict[str, Callable[[Run, Sequence[Run]], Numbers]] = {
    "none": _honest,
    "a slower baseline": _slower_baseline,
    "own lower quartile, their upper one": _kind_quartiles,
    "two threads against one": _more_threads,
    "one pass against two": _one_pass_for_two,
    "a baseline that nobody ran": _nobody_ran_it,
    "the mean of the errors": _mean_error,
}

# The rows of a table of lesson 17: trick, method, d, n, passes.
TABLE = (
    ("none", "degree 3", 12, 40_960, "forward"),
    ("a slower baseline", "degree 2", 12, 40_960, "forward"),
    ("the mean of the errors", "degree 3", 12, 40_960, "both"),
    ("two threads against one", "degree 3", 12, 16_384, "both"),
    ("one pass against two", "degree 3", 8, 16_384, "both"),
    ("own lower quartile, their upper one", "degree 2", 12, 16_384, "both"),
    ("a baseline that nobody ran", "degree 2", 12, 1_048_576, "forward"),
    ("none", "degree 3", 8, 8192, "both"),
)


def table(runs: Sequence[Run]) -> list[Claim]:
    """Return the claims of `TABLE`, made from the runs of a record of `lowrank`."""
    return [row(runs, *one) for one in TABLE]
