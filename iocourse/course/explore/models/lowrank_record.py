"""Read a record of `python -m tools.bench lowrank`: a row at one degree, the method with the least time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Row = Mapping[str, Any]
LIMITS = (10.0, 1.0, 0.1)  # error limits in per cent for `fastest`
# Remark for every ratio to the exact attention of the record.
FASTER_EXACT = (
    "At d = 8 to 12 an exact run of compiled loops was measured 1.1 to 3.8 times faster than this baseline, "
    "by another factor in each row and pass, so every ratio is an upper limit."
)
WHAT = {"forward": "forward", "gradient": "forward and backward", "causal": "the same, causal"}


# ------------------------------------------------------------------ the published rows
class Measured(NamedTuple):
    """One method: name, milliseconds, speed-up over the baseline, and error in per cent (None if exact)."""

    who: str
    ms: float
    speedup: float
    error: float | None


class Compared(NamedTuple):
    """One row of one section: the baseline, the published script (forward only), then ours.

    Errors use the published metric: of O for the forward pass, otherwise the largest of dQ, dK and dV.
    """

    what: str
    rows: tuple[Measured, ...]


def sizes(record: Row) -> list[int]:
    """Return all d in the record."""
    return [row["d"] for row in record["forward"]]


def degrees(record: Row, d: int) -> list[int]:
    """Return the recorded degrees of the forward pass at d. Raises ValueError if d is not recorded."""
    if d not in sizes(record):
        raise ValueError(f"d must be one of {', '.join(map(str, sizes(record)))} (recorded), got {d}")
    return [one["g"] for one in _row(record, "forward", d)["degrees"]]


def compared(record: Row, d: int, g: int) -> list[Compared]:
    """Return the comparison in every section that has this d and degree.

    Raises:
        ValueError: d or g is not recorded; the message lists the recorded values.
    """
    known = degrees(record, d)
    if g not in known:
        raise ValueError(f"g must be one of {', '.join(map(str, known))} (recorded at d = {d}), got {g}")
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
