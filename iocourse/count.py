"""`iocourse count`: one schedule's ledger, as a table or as JSON that others script against."""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from . import exact
from .bounds import lower_bound
from .course.checkout import Refused
from .ledger import Ledger
from .machine import run
from .schedules import REGISTRY, Schedule
from .sizes import positive_int

LATER_SCHEDULES = (
    *("square_tiling", "small_cache", "small_cache_fused"),
    *("standard_backward", "flash1_backward", "flash2_backward", "fused_backward", "split_backward"),
    *("small_cache_backward", "gradient", "gradient_small_cache", "gradient_reassociated"),
    *("block_sparse", "window", "low_rank"),
)
LATER_OPTIONS = {"mask": "--mask", "w": "--w", "g": "--g", "no_recompute": "--no-recompute"}
TILE_OPTIONS = ("Br", "Bc", "Bd")
SEED = 0  # of the random input of --run


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `count` to the subparsers of the command line and set its handler."""
    text = "count the words one schedule moves"
    parser = commands.add_parser("count", help=text, description=text, allow_abbrev=False)
    parser.set_defaults(handler=count)
    parser.add_argument("name", metavar="NAME", nargs="?", help="the schedule; see --list")
    for size, meaning in (("N", "sequence length"), ("d", "head dimension"), ("M", "words of fast memory")):
        parser.add_argument(f"--{size}", type=int, help=meaning)
    for tile in TILE_OPTIONS:
        parser.add_argument(f"--{tile}", metavar="b", type=int, help=f"the tile size {tile}")
    parser.add_argument(
        "--tile", metavar="NAME=INT", type=_tile, nargs="+", action="extend", default=[], help="a tile size"
    )
    parser.add_argument("--lse", action="store_true", help="also store the rows' log-sum-exp")
    parser.add_argument(
        "--mask", metavar="MASK", help="causal, window:W, bigbird:G,W,R, strided:S, random:P[,SEED]"
    )
    parser.add_argument("--w", type=int, help="width of the window")
    parser.add_argument("--g", type=int, help="degree of the polynomial")
    parser.add_argument(
        "--no-recompute", action="store_true", help="the bound for schedules that do not recompute"
    )
    parser.add_argument("--run", action="store_true", help="run it on random input and check the values")
    parser.add_argument("--list", action="store_true", help="list the schedules")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _tile(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    try:
        return name, int(size)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=INT, got {text!r}") from None


def count(arguments: argparse.Namespace) -> int:
    """Print what was asked for. Raises Refused, which the command line turns into exit code 2."""
    if arguments.list:
        listed = _listing()
        print(json.dumps(listed, indent=1, ensure_ascii=False) if arguments.json else _listing_text(listed))
        return 0
    try:
        record, ledger = _count(arguments)
    except ValueError as error:
        raise Refused(str(error)) from None
    print(json.dumps(record, indent=1, ensure_ascii=False) if arguments.json else _text(record, ledger))
    return 0


def _listing() -> list[dict[str, str]]:
    found = REGISTRY.values()
    return [{"name": s.name, "pass": s.pass_, "regime": s.regime, "source": s.source} for s in found]


def _listing_text(listed: list[dict[str, str]]) -> str:
    rows = [["name", "pass", "regime", "source"], *(list(one.values()) for one in listed)]
    return "\n".join(f"{name:<15}{pass_:<9}{regime:<12}{source}" for name, pass_, regime, source in rows)


def _count(arguments: argparse.Namespace) -> tuple[dict[str, Any], Ledger]:
    schedule = _schedule(arguments)
    N, d, M = (positive_int(f"--{name}", getattr(arguments, name)) for name in "NdM")
    tiles, note = _tiles(schedule, N, d, M, _given_tiles(arguments))
    form = schedule.cost(N, d, lse=arguments.lse, **tiles)
    if form.peak > M:
        shown = ", ".join(f"{name}={size}" for name, size in tiles.items())
        short = f"it needs {form.peak} words, {form.peak - M} short"
        raise Refused(f"{schedule.name} with {shown} does not fit M = {M}: {short}")
    bound, bound_id = lower_bound(schedule.pass_, N, d, M)
    record = {"schedule": schedule.name, "N": N, "d": d, "M": M, "tiles": tiles, **_words(form)}
    record |= {"footprint": form.peak, "lower_bound": bound, "bound_id": bound_id}
    record |= {"ratio": form.total / bound, "note": note}
    return record | (_run(schedule, N, d, M, tiles, arguments.lse) if arguments.run else {}), form


def _schedule(arguments: argparse.Namespace) -> Schedule:
    name, built = arguments.name, ", ".join(REGISTRY)
    if name is None:
        raise Refused(f"NAME is missing; there are {built}")
    if name in LATER_SCHEDULES:
        raise Refused(f"{name} is not built yet; there are {built}")
    if name not in REGISTRY:
        raise Refused(f"NAME {name!r} is unknown; there are {built}")
    for option, flag in LATER_OPTIONS.items():
        value = getattr(arguments, option)
        if value is not None and value is not False:  # --g 0 is an option given
            raise Refused(f"{name} takes no {flag}")
    missing = [f"--{size}" for size in "NdM" if getattr(arguments, size) is None]
    if missing:
        raise Refused(f"{' and '.join(missing)} must be given")
    return REGISTRY[name]


def _given_tiles(arguments: argparse.Namespace) -> dict[str, int]:
    by_name = {tile: getattr(arguments, tile) for tile in TILE_OPTIONS}
    given = {tile: size for tile, size in by_name.items() if size is not None}
    for tile, size in arguments.tile:
        if given.setdefault(tile, size) != size:
            raise Refused(f"the tile size {tile} is given twice, as {given[tile]} and {size}")
    return given


def _tiles(schedule: Schedule, N: int, d: int, M: int, given: dict[str, int]) -> tuple[dict[str, int], str]:
    """The tile sizes to count with, and where they come from."""
    for name, size in given.items():
        if name not in schedule.tile_names:
            has = ", ".join(schedule.tile_names)
            raise Refused(
                f"{schedule.name} takes no --{name}"
                if name in TILE_OPTIONS
                else f"{schedule.name} has no tile size {name}; it has {has}"
            )
        positive_int(f"the tile size {name}", size)
    picked = schedule.tiles(N, d, M)
    if not given:
        return picked, schedule.note(N, d, M)
    left = [name for name in picked if name not in given]
    note = f"tiles as given; {', '.join(left)} as picked for M" if left else "tiles as given"
    return picked | given, note


def _words(form: Ledger) -> dict[str, Any]:
    reads = {name: words for name, words in form.reads.items() if words}
    writes = {name: words for name, words in form.writes.items() if words}
    return {"reads": reads, "writes": writes, "total": form.total}


def _run(schedule: Schedule, N: int, d: int, M: int, tiles: dict[str, int], lse: bool) -> dict[str, Any]:
    """Run the schedule on the emulator; what it moved must be what the closed form says."""
    rng = np.random.default_rng(SEED)
    Q, K, V = (rng.standard_normal((N, d)) for _ in range(3))
    options: dict[str, Any] = {**tiles, "lse": lse}
    done = run(schedule, M=M, trace=False, Q=Q, K=K, V=V, **options)
    difference = done.ledger - schedule.cost(N, d, lse=lse, **tiles)
    if difference:
        raise AssertionError(f"emulator and closed form disagree: {difference}")
    error = exact.max_abs_error(done.O, exact.attention(Q, K, V))
    return {"peak": done.ledger.peak, "max_abs_error": error}


def _text(record: dict[str, Any], ledger: Ledger) -> str:
    tiles = ", ".join(f"{name}={size}" for name, size in record["tiles"].items())
    lines = [
        f"{record['schedule']} at N={record['N']}, d={record['d']}, M={record['M']}, tiles {tiles}",
        repr(ledger),
        f"lower bound ({record['bound_id']}) {record['lower_bound']:,} words, ratio {record['ratio']:.3f}",
    ]
    if record["note"]:
        lines.append(f"note: {record['note']}")
    if "peak" in record:
        error = f"max |O - exact| = {record['max_abs_error']:.2e}"
        lines.append(f"emulator: the same words moved, peak {record['peak']:,} words, {error}")
    return "\n".join(lines)
