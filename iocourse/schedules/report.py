"""Report on one schedule: words per array, footprint, lower bound and, if it is run, its values and errors.

`iocourse count` and `python -m iocourse.schedules` print it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import exact
from ..bounds import lower_bound
from ..console import progress_meter
from ..errors import UsageError
from ..exact import Array
from ..ledger import Ledger, without_zeros
from ..machine import FastMemoryFull, run
from ..masks import BlockMask, Mask
from .registry import REGISTRY, Schedule, mask_of

SEED = 0  # of the random input of a run
ROUNDING = (1e-12, 1e-11, 1e-10)  # errors below the last one are printed as a bound


@dataclass(frozen=True)
class CountRequest:
    """One schedule with N, d, M and tile sizes. `settings` has its other arguments: mask, w, g and lse."""

    schedule: Schedule
    N: int
    d: int
    M: int
    settings: dict[str, Any]
    tiles: dict[str, int]
    note: str
    mask_name: str = ""
    recompute: bool = True  # False also considers the bound for schedules that compute no score twice

    @property
    def parameters(self) -> dict[str, Any]:
        """Settings and tiles together, the keyword arguments of the schedule."""
        return self.settings | self.tiles

    @property
    def grid(self) -> BlockMask | None:
        """The mask of square tiles, or None."""
        return self.settings.get("mask")

    @property
    def seen(self) -> Mask | None:
        """The mask, also that of a window; None if every query attends to every key."""
        return mask_of(self.N, self.settings)


def count_report(q: CountRequest, *, run_it: bool) -> tuple[dict[str, Any], Ledger]:
    """Return the record of the report and the closed form. Raises UsageError if the tiles do not fit."""
    form = q.schedule.cost(q.N, q.d, **q.parameters)
    if form.peak > q.M:
        raise UsageError(_does_not_fit(q, form.peak))
    bound, bound_id = lower_bound(
        q.schedule.pass_,
        q.N,
        q.d,
        q.M,
        mask=q.seen,
        recompute=q.recompute,
        approximate=q.schedule.approximates is not None,
        given_weights=q.schedule.given_weights,
    )
    note = q.note
    if q.schedule.approximates is not None:
        note = f"{note}; an approximation: max_abs_error is against {q.schedule.approximates.name}"
    record = {"schedule": q.schedule.name, "N": q.N, "d": q.d, "M": q.M, **_seen(q), "tiles": q.tiles}
    record |= {"reads": without_zeros(form.reads), "writes": without_zeros(form.writes), "total": form.total}
    record |= {"footprint": form.peak, "lower_bound": bound, "bound_id": bound_id}
    record |= {"ratio": form.total / bound, "note": note}
    return record | (_run(q, form) if run_it else {}), form


def _does_not_fit(q: CountRequest, needed: int) -> str:
    """Return the error message: words needed, the first tile that does not fit, and tile sizes that fit."""
    shown = ", ".join(f"{name} = {size}" for name, size in q.tiles.items())
    what = f"{q.schedule.name} with {shown}" if q.tiles else q.schedule.name
    advice = q.schedule.advice(q.N, q.d, q.M, **q.parameters)
    return f"{what} needs {needed:,} words, but M = {q.M:,} ({_first_overflow(q)}); {advice}"


def _first_overflow(q: CountRequest) -> str:
    given: dict[str, Any] = {**q.schedule.shapes(q.N, q.d, **q.parameters), **q.parameters}
    try:
        run(q.schedule, M=q.M, dry=True, max_moves=None, **given)
    except FastMemoryFull as error:
        return error.asked
    raise AssertionError(f"the closed form of {q.schedule.name} has a footprint that its run does not need")


def _seen(q: CountRequest) -> dict[str, Any]:
    if q.grid is None:
        return {name: q.settings[name] for name in ("w", "g") if name in q.settings}
    tiles = {"tiles_seen": int(q.grid.tiles.sum()), "tiles": q.grid.tiles.size}
    return {"mask": {"name": q.mask_name, "block": q.grid.Br, **tiles, "pairs_seen": q.grid.nnz}}


def _run(q: CountRequest, form: Ledger) -> dict[str, Any]:
    """Run the schedule on the emulator; return peak, errors and any difference from the closed form."""
    drawn = q.schedule.drawn(np.random.default_rng(SEED), q.N, q.d, q.seen, q.settings)
    arrays = {name: drawn[name] for name in q.schedule.operands}
    with progress_meter(f"{q.schedule.name} moves {form.total:,} words on the emulator", form.total) as watch:
        given = {**arrays, **q.parameters}
        done = run(q.schedule, M=q.M, trace=False, watch=watch, max_moves=None, **given)
    right = q.schedule.expected(drawn, q.seen, q.settings)
    found: dict[str, Any] = {"peak": done.ledger.peak, "max_abs_error": _error(done.outputs, right)}
    if difference := done.ledger - form:
        found["difference"] = difference.lines()
    if q.schedule.approximates is None:
        return found
    return found | {"softmax_error": _error(done.outputs, q.schedule.problem.exact(drawn, q.seen))}


def _error(got: Iterable[Array], right: Iterable[Array]) -> float:
    return max(map(exact.max_abs_error, got, right))


def text(record: dict[str, Any], ledger: Ledger) -> str:
    """Return the record as text: the ledger's table, the lower bound and, after a run, its errors."""
    sizes = ", ".join(f"{name}={record[name]}" for name in ("N", "d", "M", "w", "g") if name in record)
    tiles = ", ".join(f"{name}={size}" for name, size in record["tiles"].items())
    lines = [f"{record['schedule']} at {sizes}, tiles {tiles or 'none'}", *_mask_line(record), repr(ledger)]
    bound = f"lower bound ({record['bound_id']}) {record['lower_bound']:,} words"
    lines.append(f"{bound}, ratio {record['ratio']:.3f}")
    if record["note"]:
        lines.append(f"note: {record['note']}")
    if "peak" in record:
        approximates = REGISTRY[record["schedule"]].approximates
        right = "exact values" if approximates is None else approximates.name
        error = f"largest error against {right} {_bounded(record['max_abs_error'])}"
        moved = "not the words of the closed form" if "difference" in record else "the same words moved"
        lines.append(f"emulator: {moved}, peak {record['peak']:,} words, {error}")
        lines += record.get("difference", [])
    if "softmax_error" in record:
        lines.append(f"largest error against softmax attention {record['softmax_error']:.2e}")
    return "\n".join(lines)


def _bounded(error: float) -> str:
    """Format an error; a rounding error as a bound, because its digits depend on the processor."""
    return next((f"below {bound:.0e}" for bound in ROUNDING if error < bound), f"{error:.2e}")


def _mask_line(record: dict[str, Any]) -> list[str]:
    if "mask" not in record:
        return []
    mask, N = record["mask"], record["N"]
    tiles = f"{mask['tiles_seen']:,} of {mask['tiles']:,} blocks of side {mask['block']} not empty"
    return [f"mask {mask['name']}: {tiles}, {mask['pairs_seen']:,} of {N * N:,} pairs visible"]
