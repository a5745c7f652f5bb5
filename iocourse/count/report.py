"""What a question is answered with: words per array, footprint, lower bound, and a run on the emulator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import exact
from ..bounds import lower_bound
from ..console import progress_meter
from ..errors import UsageError
from ..exact import Array
from ..ledger import Ledger, without_zeros
from ..machine import FastMemoryFull, run
from ..schedules import get
from .arguments import Question

SEED = 0  # of the random input of --run


def answer(q: Question, *, run_it: bool) -> tuple[dict[str, Any], Ledger]:
    """The record that --json prints, and the closed form. Raises UsageError where the tiles do not fit."""
    form = q.schedule.cost(q.N, q.d, **q.told)
    if form.peak > q.M:
        raise UsageError(_does_not_fit(q, form.peak))
    bound, bound_id = _bound(q)
    record = {"schedule": q.schedule.name, "N": q.N, "d": q.d, "M": q.M, **_seen(q), "tiles": q.tiles}
    record |= {**_words(form), "footprint": form.peak, "lower_bound": bound, "bound_id": bound_id}
    record |= {"ratio": form.total / bound, "note": _note(q)}
    return record | (_run(q, form) if run_it else {}), form


def _bound(q: Question) -> tuple[int, str]:
    return lower_bound(
        q.schedule.pass_,
        q.N,
        q.d,
        q.M,
        mask=q.seen,
        recompute=q.recompute,
        approximate=q.schedule.stands_for is not None,
        given_weights=q.schedule.given_weights,
    )


def _note(q: Question) -> str:
    """Where the tiles come from; of an approximation also what its error is measured against."""
    if q.schedule.stands_for is None:
        return q.note
    return f"{q.note}; an approximation: max_abs_error is against {q.schedule.stands_for.name}"


def _does_not_fit(q: Question, needed: int) -> str:
    """Which array, how many words short, and the largest tiles that would fit."""
    shown = ", ".join(f"{name}={size}" for name, size in q.tiles.items())
    what = f"{q.schedule.name} with {shown}" if q.tiles else q.schedule.name
    short = f"it needs {needed} words, {needed - q.M} short ({_first_overflow(q)})"
    advice = q.schedule.advice(q.N, q.d, q.M, **q.told)
    return f"{what} does not fit M = {q.M}: {short}; {advice}"


def _first_overflow(q: Question) -> str:
    given: dict[str, Any] = {**q.schedule.shapes(q.N, q.d, **q.told), **q.told}
    try:
        run(q.schedule, M=q.M, dry=True, max_moves=None, **given)
    except FastMemoryFull as error:
        return error.asked
    raise AssertionError(f"the closed form of {q.schedule.name} has a footprint that its run does not need")


def _seen(q: Question) -> dict[str, Any]:
    if q.grid is None:
        return {name: q.settings[name] for name in ("w", "g") if name in q.settings}
    tiles = {"tiles_seen": int(q.grid.tiles.sum()), "tiles": q.grid.tiles.size}
    return {"mask": {"name": q.mask_name, "block": q.grid.Br, **tiles, "pairs_seen": q.grid.nnz}}


def _words(form: Ledger) -> dict[str, Any]:
    reads = without_zeros(form.reads)
    writes = without_zeros(form.writes)
    return {"reads": reads, "writes": writes, "total": form.total}


def _run(q: Question, form: Ledger) -> dict[str, Any]:
    """Run the schedule on the emulator; what it moved must be what the closed form says."""
    drawn = q.schedule.drawn(np.random.default_rng(SEED), q.N, q.d, q.seen, q.settings)
    arrays = {name: drawn[name] for name in q.schedule.operands}
    with progress_meter(f"{q.schedule.name} moves {form.total:,} words on the emulator", form.total) as watch:
        given = {**arrays, **q.told}
        done = run(q.schedule, M=q.M, trace=False, watch=watch, max_moves=None, **given)
    difference = done.ledger - form
    if difference:
        raise AssertionError(f"emulator and closed form disagree: {difference}")
    right = q.schedule.expected(drawn, q.seen, q.settings)
    found = {"peak": done.ledger.peak, "max_abs_error": _error(done.outputs, right)}
    if q.schedule.stands_for is None:
        return found
    return found | {"softmax_error": _error(done.outputs, q.schedule.problem.exact(drawn, q.seen))}


def _error(got: Iterable[Array], right: Iterable[Array]) -> float:
    return max(map(exact.max_abs_error, got, right))


def text(record: dict[str, Any], ledger: Ledger) -> str:
    """The record as a table."""
    lines = [_title(record), *_mask_line(record), repr(ledger)]
    bound = f"lower bound ({record['bound_id']}) {record['lower_bound']:,} words"
    lines.append(f"{bound}, ratio {record['ratio']:.3f}")
    if record["note"]:
        lines.append(f"note: {record['note']}")
    if "peak" in record:
        error = f"largest error against {_right(record)} {record['max_abs_error']:.2e}"
        lines.append(f"emulator: the same words moved, peak {record['peak']:,} words, {error}")
    if "softmax_error" in record:
        lines.append(f"largest error against softmax attention {record['softmax_error']:.2e}")
    return "\n".join(lines)


def _right(record: dict[str, Any]) -> str:
    stands_for = get(record["schedule"]).stands_for
    return "exact values" if stands_for is None else stands_for.name


def _title(record: dict[str, Any]) -> str:
    sizes = ", ".join(f"{name}={record[name]}" for name in ("N", "d", "M", "w", "g") if name in record)
    tiles = ", ".join(f"{name}={size}" for name, size in record["tiles"].items())
    return f"{record['schedule']} at {sizes}, tiles {tiles or 'none'}"


def _mask_line(record: dict[str, Any]) -> list[str]:
    if "mask" not in record:
        return []
    mask, N = record["mask"], record["N"]
    tiles = f"{mask['tiles_seen']:,} of {mask['tiles']:,} tiles of side {mask['block']} seen"
    return [f"mask {mask['name']}: {tiles}, {mask['pairs_seen']:,} of {N * N:,} pairs"]
