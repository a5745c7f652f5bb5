"""A record of `python -m tools.bench lowrank` read: one row at one degree, and who is fastest at an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
LIMITS = (10.0, 1.0, 0.1)  # errors, per cent, at which the fastest is looked for
# What goes with every quotient over the record's exact attention.
FASTER_EXACT = (
    "Forward, a compiled exact run was measured 1.4 to 3.8 times faster than this baseline, and in both "
    "passes a padded one 2.0 times, so divide the ratios by that factor."
)
WHAT = {"forward": "forward", "gradient": "forward and backward", "causal": "the same, causal"}


# ------------------------------------------------------------------ the published rows
class Measured(NamedTuple):
    """Who, in milliseconds, times as fast as the baseline, and off by so many per cent (exact: None)."""

    who: str
    ms: float
    speedup: float
    error: float | None


class Compared(NamedTuple):
    """One row in one section: the baseline first, then the published script where it has such a pass, then
    ours. Errors are in the published metric: forward of O, else the worst of dQ, dK, dV.
    """

    what: str
    rows: tuple[Measured, ...]


def sizes(record: Row) -> list[int]:
    """Every d there is a row of."""
    return [row["d"] for row in record["forward"]]


def degrees(record: Row, d: int) -> list[int]:
    """Those of the forward pass at this d. Raises ValueError where there is no such row."""
    if d not in sizes(record):
        raise ValueError(f"d is {d}; the record has {', '.join(map(str, sizes(record)))}")
    return [one["g"] for one in _row(record, "forward", d)["degrees"]]


def compared(record: Row, d: int, g: int) -> list[Compared]:
    """Every section that has this d and degree, each over its one baseline. Raises ValueError for what was
    not measured, naming what was.
    """
    known = degrees(record, d)
    if g not in known:
        raise ValueError(f"g is {g}; at d = {d} the record has {', '.join(map(str, known))}")
    rows = ((section, _row(record, section, d)) for section in WHAT)
    return [_compared(section, row, g) for section, row in rows if g in (one["g"] for one in row["degrees"])]


def _row(record: Row, section: str, d: int) -> Row:
    found: Row = next(row for row in record[section] if row["d"] == d)
    return found


def _compared(section: str, row: Row, g: int) -> Compared:
    one, exact = next(one for one in row["degrees"] if one["g"] == g), row["baseline_ms"]
    rows = [Measured(f"exact, {row['baseline']}", exact, 1.0, None)]
    if section == "forward":
        rows.append(Measured("the script", row["their_ms"], exact / row["their_ms"], row["their_error"]))
    error = one["judged_error"] if section == "forward" else one["worst"]
    rows.append(Measured(f"ours, g = {g}", one["ms"], exact / one["ms"], error))
    return Compared(WHAT[section], tuple(rows))


# ------------------------------------------------------------------ the neighbours
def panels_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The contenders' rows by problem, in words."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        who = f"head {row['layer']}.{row['head']}, " if "head" in row else ""
        found.setdefault(f"{who}logits spread by {row['spread']:.3g}", []).append(row)
    return found


def fastest(panel: Sequence[Row], limit: float) -> Row | None:
    """The fastest whose error is at most this many per cent; None where nobody's is."""
    fine = [row for row in panel if "refused" not in row and row["error"] <= limit]
    return min(fine, key=lambda row: float(row["ms"]), default=None)
