"""Read a record of `python -m tools.bench lowrank`: the methods of a row, and the one with the least time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
LIMITS = (10.0, 1.0, 0.1)  # error limits in per cent for `fastest`
WHAT = {
    "forward": "forward",
    "gradient": "forward and backward",
    "causal": "causal, forward",
    "causal_gradient": "causal, forward and backward",
}


# ------------------------------------------------------------------ rows
class Measured(NamedTuple):
    """One method of a row; what does not apply is None.

    ms: milliseconds. quotient: least time of the exact runs, divided by that of the method. multiply_adds:
    the same quotient of the multiply-adds. error: in the published metric, per cent, of O, or with gradients
    the largest of dQ, dK and dV. usual: the usual relative error of the same outputs.
    """

    who: str
    ms: float | None
    quotient: float | None = None
    multiply_adds: float | None = None
    error: float | None = None
    usual: float | None = None


class Compared(NamedTuple):
    """One row of one section at one degree: exact runs by time, the mean of V, ours last.

    In the forward section the published script is before ours: on its own operator, and on softmax.
    """

    what: str
    rows: tuple[Measured, ...]


def sizes(record: Row) -> list[int]:
    """Return all d in the record."""
    return list(dict.fromkeys(row["d"] for row in record["forward"]))


def tokens(record: Row, d: int) -> list[int]:
    """Return all n recorded at d; the first is the published one if there is one. Raises ValueError for a d
    that is not recorded.
    """
    if d not in sizes(record):
        raise ValueError(f"d must be one of {', '.join(map(str, sizes(record)))} (recorded), got {d}")
    return [row["n"] for row in record["forward"] if row["d"] == d]


def degrees(record: Row, d: int, n: int | None = None) -> list[int]:
    """Return the recorded degrees of the forward pass at d and n (None: the first of `tokens`).

    Raises ValueError if d or n is not recorded.
    """
    return [one["g"] for one in _row(record, "forward", d, n)["degrees"]]


def compared(record: Row, d: int, g: int, n: int | None = None) -> list[Compared]:
    """Return the comparison in every section that has this d, n and degree.

    Raises:
        ValueError: d, n or g is not recorded; the message lists the recorded values.
    """
    known = degrees(record, d, n)
    if g not in known:
        raise ValueError(f"g must be one of {', '.join(map(str, known))} (recorded at d = {d}), got {g}")
    found = []
    for section, what in WHAT.items():
        row = _row(record, section, d, n)
        if one := [one for one in row["degrees"] if one["g"] == g]:
            found.append(Compared(what, tuple(methods(row | {"degrees": one}))))
    return found


def methods(row: Row) -> list[Measured]:
    """Return the methods of a row: exact runs by time, mean of V, published script, degrees."""
    exact = row["baseline_ms"]
    runs = sorted(row["exact_ms"].items(), key=lambda run: float(run[1]))
    found = [Measured(f"exact, {name}", ms) for name, ms in runs]
    control = row["mean_of_v_error"]
    found.append(Measured("mean of V", None, error=control["judged"], usual=worst(control)))
    if "their_ms" in row:
        took, adds = row["their_ms"], row["their_multiply_adds"]
        found.append(Measured("the script", took, exact / took, adds, row["their_error"]))
        found.append(Measured("the script, on softmax", None, error=row["their_softmax_error"]))
    for one in row["degrees"]:
        name, numbers = f"ours, g = {one['g']}", (one["ms"], one["speedup"], one["multiply_adds"])
        found.append(Measured(name, *numbers, one["judged"], worst(one)))
    return found


def worst(one: Row) -> float:
    """Return the usual relative error, in per cent, of O, or with gradients the largest of dQ, dK and dV."""
    each = [float(error) for error in one["errors"].values()]
    return max(each[1:] or each)


def baselines(rows: Sequence[Row]) -> str:
    """Name the baseline of every row's quotients: the exact run with the least time."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(row["baseline"], []).append(f"({row['d']}, {row['n']:,})")
    each = (f"{name} at (d, n) = {', '.join(places)}" for name, places in names.items())
    return f"Quotients are over the fastest exact run: {'; '.join(each)}."


def _row(record: Row, section: str, d: int, n: int | None) -> dict[str, Any]:
    known = tokens(record, d)
    n = known[0] if n is None else n
    if n not in known:
        raise ValueError(f"n must be one of {', '.join(map(str, known))} (recorded at d = {d}), got {n}")
    return next((dict(row) for row in record[section] if (row["d"], row["n"]) == (d, n)), {"degrees": []})


# ------------------------------------------------------------------ other methods
def panels_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of all methods grouped by problem, with the problem as text."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        who = f"head {row['layer']}.{row['head']}, " if "head" in row else ""
        found.setdefault(f"{who}logits spread by {row['spread']:.3g}", []).append(row)
    return found


def fastest(panel: Sequence[Row], limit: float) -> Row | None:
    """Return the row with the least time and an error of at most `limit` per cent, or None."""
    fine = [row for row in panel if "refused" not in row and row["error"] <= limit]
    return min(fine, key=lambda row: float(row["ms"]), default=None)


def fastest_exact(panel: Sequence[Row]) -> Row:
    """Return the exact run (without features) with the least time."""
    exact = [row for row in panel if row["features"] is None and "refused" not in row]
    return min(exact, key=lambda row: float(row["ms"]))
