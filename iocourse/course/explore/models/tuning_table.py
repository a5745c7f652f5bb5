"""Data of the tuning table: timed configurations, a column that is known without a run, and a rule on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ....gpu.timed_tiles import RECORDS, tables
from ...tuning import chance_of_best
from .kernel_explorer import Configuration

Row = Mapping[str, Any]
RULES = ("smallest", "largest")
SAMPLE = 3  # configurations timed for "best of three"
OWN = "rows of the call"  # name of a table that is given as rows
# Columns of `timed_tiles.tables` by their description in a figure.
COLUMNS = {
    "words": "words moved per head",
    "warps_per_sm": "warps per SM",
    "blocks": "programs per SM",
    "warpgroups_per_sm": "warpgroups per SM",
    "rows_per_warpgroup": "rows per warpgroup",
    "registers": "registers per thread",
    "shared_bytes": "shared memory per program (bytes)",
    "spills": "spills per iteration of the inner loop",
    "instructions": "instructions per score",
    "exponentials": "exponentials per score",
    "products": "tensor-core products per iteration",
    "waits": "waits for products per iteration",
    "stall_clocks": "stall clocks per score",
    "clock_model_tflops": "TFLOP/s of the clock model",
    "BM": "BM (queries per tile)",
    "BN": "BN (keys per tile)",
    "warps": "warps per program",
    "stages": "stages",
}


class TuningState(NamedTuple):
    """Values of all controls. `stages` keeps one number of stages; `rows` and `warpgroups` are the smallest
    numbers of rows per warpgroup and warpgroups per SM that are kept. 0 keeps all.
    """

    table: str
    column: str
    rule: str
    stages: int = 0
    rows: int = 0
    warpgroups: int = 0


@lru_cache(maxsize=1)
def shipped_tables() -> dict[str, list[Row]]:
    """Return all timed tables by name: those of the draft first."""
    return {name: list(rows) for record in RECORDS for name, rows in tables(record).items()}


def rows_of(table: str | Sequence[Row]) -> list[Row]:
    """Return the rows of a named table, or the given rows.

    Raises ValueError for an unknown name, no rows, or a row without a time.
    """
    if isinstance(table, str):
        known = shipped_tables()
        if table not in known:
            raise ValueError(f"table must be one of {'; '.join(known)}; or a list of rows; got {table!r}")
        return known[table]
    rows = list(table)
    if not rows:
        raise ValueError("table must have at least one row, got none")
    for at, row in enumerate(rows):
        if not isinstance(row.get("ms"), int | float) or not row["ms"] > 0:
            raise ValueError(
                f"table has no times: row {at} needs ms, a positive number, got {row.get('ms')!r}"
            )
    return rows


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns of numbers that are known without a run, described ones first."""
    numbers = [name for name, value in rows[0].items() if isinstance(value, int | float) and name != "ms"]
    numbers = [name for name in numbers if all(name in row for row in rows) and name not in ("d", "causal")]
    return sorted(numbers, key=lambda name: list(COLUMNS).index(name) if name in COLUMNS else len(COLUMNS))


def checked(s: TuningState, rows: Sequence[Row]) -> TuningState:
    """Return a state. Raises ValueError that names an unknown column or rule, or a negative filter."""
    known = columns_of(rows)
    if s.column not in known:
        why = " (ms is the time itself)" if s.column == "ms" else ""
        raise ValueError(f"column must be one of {', '.join(known)}; got {s.column!r}{why}")
    if s.rule not in RULES:
        raise ValueError(f"rule must be {' or '.join(RULES)}; got {s.rule!r}")
    for name in ("stages", "rows", "warpgroups"):
        if not isinstance(getattr(s, name), int) or getattr(s, name) < 0:
            raise ValueError(
                f"{name} must be an integer of at least 0, or None for all; got {getattr(s, name)!r}"
            )
    return s


def keeps(s: TuningState, row: Row) -> bool:
    """Return True if the filters of a state keep a row; a column that it lacks keeps it."""
    stages = not s.stages or row.get("stages", s.stages) == s.stages
    rows = row.get("rows_per_warpgroup", s.rows) >= s.rows
    return bool(stages and rows and row.get("warpgroups_per_sm", s.warpgroups) >= s.warpgroups)


class Dot(NamedTuple):
    """One configuration: value of the column, time / best of the table, if it is kept, and its row."""

    x: float
    y: float
    kept: bool
    row: Row

    @property
    def name(self) -> str:
        """The configuration in words."""
        if not set(Configuration._fields) <= self.row.keys():
            return "a configuration"
        return str(Configuration(*(self.row[name] for name in Configuration._fields)))


def dots(s: TuningState, rows: Sequence[Row]) -> list[Dot]:
    """Return the configurations of a table in order of time."""
    best = min(row["ms"] for row in rows)
    found = [Dot(row[s.column], row["ms"] / best, keeps(s, row), row) for row in rows]
    return sorted(found, key=lambda one: one.y)


class Result(NamedTuple):
    """Result of a rule among the kept configurations.

    chosen: those with the smallest (largest) value; several if tied. regret: their mean time / best. place:
    of the kept one with the shortest time in the order of the rule, ties counted against it. tied: the kept
    ones with its value of the column, itself included. one, three:
    expected time / best of one kept configuration at random, and of the best of three.
    """

    chosen: list[Dot]
    regret: float
    place: int
    tied: int
    kept: int
    one: float
    three: float


def result(s: TuningState, found: Sequence[Dot]) -> Result | None:
    """Return the result of a rule, or None if the filters keep nothing. `found` is in order of time."""
    kept = [one for one in found if one.kept]
    if not kept:
        return None
    sign = 1 if s.rule == "smallest" else -1
    edge = min(sign * one.x for one in kept)
    chosen = [one for one in kept if sign * one.x == edge]
    place = sum(sign * one.x <= sign * kept[0].x for one in kept)
    tied = sum(one.x == kept[0].x for one in kept)
    regret = sum(one.y for one in chosen) / len(chosen)
    rows = [dict(one.row) for one in kept]
    mean, three = (kept[0].y * chance_of_best(rows, min(k, len(kept))) for k in (1, SAMPLE))
    return Result(chosen, regret, place, tied, len(kept), mean, three)


def verdict(found: Result) -> str:
    """Return a sentence that compares the rule with chance."""
    one, three = f"one at random ({found.one:.2f})", f"timing three at random ({found.three:.2f})"
    if found.regret <= found.three:
        return f"At least as good as {three}; {one}"
    if found.regret < found.one:
        return f"Better than {one}, not as good as {three}"
    return f"No better than {one}; {three}"
