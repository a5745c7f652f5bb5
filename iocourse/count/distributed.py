"""`iocourse count NAME --ranks P`: traffic, memory and lower bound of a schedule between ranks."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from .. import distributed
from ..console import with_unit
from ..distributed import RankLedger, RankSchedule, load_balance
from ..distributed.bounds import lower_bound
from ..distributed.time_model import best_grid, ledgers_of, memory_of
from ..errors import UsageError
from ..ledger import without_zeros
from ..sizes import positive_int

PLACES = {
    "split": load_balance.split_texts,
    "whole": load_balance.whole_texts,
    "tokens": load_balance.equal_tokens,
}
OF_TWO_MEMORIES = (
    *("M", "Br", "Bc", "Bd", "tile", "published", "lse", "mask", "block", "w", "g"),
    *("no_recompute", "run"),
)
BOUNDED = {"forward": ("forward", False), "backward": ("backward", False), "causal": ("forward", True)}


class RankRequest(NamedTuple):
    """One schedule on P ranks. `sizes`: further arguments of its closed form (H, a, m, r, texts, layout)."""

    schedule: RankSchedule
    P: int
    N: int
    d: int
    sizes: dict[str, Any]
    note: str


def parse_request(arguments: argparse.Namespace) -> RankRequest:
    """Parse the arguments into a RankRequest. Raises UsageError, or ValueError naming an argument."""
    for option in OF_TWO_MEMORIES:
        given = getattr(arguments, option)
        if given is not None and given is not False and given != []:  # --g 0 counts as given
            raise UsageError(
                f"{_flag(option)} is for schedules of one machine and cannot be used with --ranks; "
                "remove one of them"
            )
    schedule = _schedule(arguments.name, arguments.layout)
    sizes = _sizes(schedule, arguments)
    if "texts" in schedule.options:
        return _packed(schedule, arguments, sizes)
    _require(arguments, "N", "d")
    P, N, d = (positive_int(f"--{name}", getattr(arguments, name)) for name in ("ranks", "N", "d"))
    if "a" not in schedule.options:
        return RankRequest(schedule, P, N, d, sizes, "")
    if arguments.grid is not None:
        return RankRequest(schedule, P, N, d, sizes | {"a": _rows(arguments.grid, P)}, "grid as given")
    a = best_grid(schedule, P, N, d, **sizes)
    return RankRequest(schedule, P, N, d, sizes | {"a": a}, "the grid with the least traffic")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _require(arguments: argparse.Namespace, *names: str) -> None:
    missing = [_flag(name) for name in names if getattr(arguments, name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given")


def _packed(schedule: RankSchedule, arguments: argparse.Namespace, sizes: dict[str, Any]) -> RankRequest:
    """Return the request for packed sequences: N is the sum of their lengths, the layout their placement."""
    _require(arguments, "seq_lens", "d")
    P, d = (positive_int(f"--{name}", getattr(arguments, name)) for name in ("ranks", "d"))
    texts = _lengths(arguments.seq_lens)
    if arguments.N not in (None, sum(texts)):
        raise UsageError(f"--N must be the sum of --seq-lens, {sum(texts)}, got {arguments.N}; or omit it")
    placed = PLACES[arguments.placement or "split"](texts, P)
    work, split = load_balance.imbalance(placed.pairs), with_unit(len(placed.split), "sequence")
    note = f"busiest rank {work:.2f} times the mean work, {split} on more than one rank"
    return RankRequest(schedule, P, sum(texts), d, sizes | {"texts": texts, "layout": placed.layout}, note)


def _lengths(told: str) -> list[int]:
    try:
        lengths = [int(one) for one in told.split(",")]
    except ValueError:
        raise UsageError(f"--seq-lens must be lengths such as 4096,512,64, got {told!r}") from None
    return [positive_int("each length in --seq-lens", length) for length in lengths]


def _schedule(name: str | None, layout: str | None) -> RankSchedule:
    built = ", ".join(distributed.REGISTRY)
    if name is None:
        raise UsageError(f"NAME is missing; schedules between ranks are {built}")
    found = distributed.REGISTRY.get(f"{name}_{layout}") or distributed.REGISTRY.get(name)
    if found is None:
        raise UsageError(f"unknown schedule between ranks {name!r}; known ones are {built}")
    if layout not in (None, found.layout):
        raise UsageError(f"--layout {layout}: the layout of {name} is {found.layout}")
    return found


def _sizes(schedule: RankSchedule, arguments: argparse.Namespace) -> dict[str, int]:
    """Return H, m and r for the closed form. Raises UsageError for an option that does not apply."""
    takes = {
        "queries": bool(schedule.shared),
        "features": schedule.pass_ == "states",
        "heads": schedule.pass_ != "states",
        "grid": "a" in schedule.options,
        "seq_lens": "texts" in schedule.options,
        "placement": "texts" in schedule.options,
    }
    for option, taken in takes.items():
        if getattr(arguments, option) is not None and not taken:
            raise UsageError(f"{schedule.name} does not accept {_flag(option)}")
    named = {"H": "heads", "m": "queries", "r": "features"}
    given = {size: getattr(arguments, option) for size, option in named.items()}
    sizes = {size: positive_int(f"--{named[size]}", n) for size, n in given.items() if n is not None}
    return {"H": 1} | sizes


def _rows(grid: str, P: int) -> int:
    """Return A of a grid AxB. Raises UsageError unless A·B = P."""
    try:
        a, b = map(int, grid.split("x"))
    except ValueError:
        raise UsageError(f"--grid must be rows and columns such as 4x2, got {grid!r}") from None
    if a < 1 or b < 1 or a * b != P:
        raise UsageError(f"--grid {grid} has {a * b} ranks, but --ranks is {P}; both must be equal")
    return a


# ---------------------------------------------------------------------- the report
def count_report(q: RankRequest) -> tuple[dict[str, Any], RankLedger]:
    """Return the record that --json prints, and the closed form of the rank with the most traffic."""
    ledgers = ledgers_of(q.schedule, q.P, q.N, q.d, **q.sizes)
    each = [ledger.words for ledger in ledgers]
    rank = each.index(max(each))
    busiest = ledgers[rank]
    record = {"schedule": q.schedule.name, "N": q.N, "d": q.d, "ranks": q.P, "heads": q.sizes["H"]}
    record |= {"grid": [q.sizes["a"], q.P // q.sizes["a"]]} if "a" in q.sizes else {}
    record |= {"texts": q.sizes["texts"]} if "texts" in q.sizes else {}
    record |= {"layout": "as placed" if "layout" in q.sizes else q.schedule.layout, "rank": rank}
    record |= {"received": without_zeros(busiest.received), "sent": without_zeros(busiest.sent)}
    record |= {"words": busiest.words}
    record |= {"mean": sum(each) / q.P, "memory": memory_of(q.schedule, ledgers, q.N, q.d, **q.sizes)}
    return record | _bound(q, busiest.words) | {"note": q.note}, busiest


def _bound(q: RankRequest, words: int) -> dict[str, Any]:
    """Return the best lower bound, its id, and the ratio of `words` to it; None if no bound is known."""
    if q.schedule.pass_ not in BOUNDED:
        return {"lower_bound": None, "bound_id": None, "ratio": None}
    pass_, causal = BOUNDED[q.schedule.pass_]
    least, id = lower_bound(pass_, q.N, q.d, q.P, H=q.sizes["H"], causal=causal)
    return {"lower_bound": least, "bound_id": id, "ratio": words / least if least else None}


def text(record: dict[str, Any], ledger: RankLedger) -> str:
    """Return the record as text: the busiest rank's table, the mean, the memory and the lower bound."""
    grid = f", grid {'x'.join(map(str, record['grid']))}" if "grid" in record else ""
    sizes = ", ".join(f"{name}={record[name]}" for name in ("N", "d", "ranks", "heads"))
    lines = [f"{record['schedule']} at {sizes}{grid}, layout {record['layout']}", repr(ledger)]
    lines.append(
        f"rank {record['rank']} has the most traffic; the mean over ranks is {record['mean']:,.0f} words"
        if record["words"]
        else "no rank moves words"
    )
    lines.append(f"memory per rank: {record['memory']:,} words, its own rows and the received data it keeps")
    lines.append(_bound_line(record))
    return "\n".join([*lines, *([f"note: {record['note']}"] if record["note"] else [])])


def _bound_line(record: dict[str, Any]) -> str:
    if record["bound_id"] is None:
        return "no lower bound is known for this pass"
    said = f"lower bound ({record['bound_id']}) {record['lower_bound']:,} words of some rank"
    return said if record["ratio"] is None else f"{said}, ratio {record['ratio']:.3f}"


def listing() -> list[dict[str, str]]:
    """Return the rows of `count --list` for schedules between ranks; their regime begins with --ranks."""
    return [
        {"name": s.name, "pass": s.pass_, "regime": f"--ranks: {s.regime}", "source": s.source}
        for s in distributed.REGISTRY.values()
    ]
