"""`iocourse count`: print the traffic of one schedule as a table or as JSON for scripts.

`count` runs the command, and `parse_request` parses its arguments into the CountRequest of
`iocourse.schedules.report`, which builds the report. `distributed` does the same for schedules between ranks;
`mask_specs` builds the mask of --mask.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..console import table
from ..errors import UsageError
from ..schedules import REGISTRY, Schedule
from ..schedules.report import CountRequest, count_report, text
from ..sizes import positive_int, zero_or_more
from . import mask_specs
from .mask_specs import FORMS, SIDE

TILE_OPTIONS = ("Br", "Bc", "Bd")
DEGREE = 2  # of the polynomial, if --g is not given
# Schedules between ranks are imported for --ranks and --list only, so the choices of their options are here.
RANK_OPTIONS = ("ranks", "heads", "grid", "layout", "queries", "features", "seq_lens", "placement")
LAYOUTS = ("contiguous", "zigzag", "striped")
PLACES = ("split", "whole", "tokens")


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `count` to the subparsers of the command line and set its handler."""
    meaning = "count the words that one schedule moves"
    parser = commands.add_parser("count", help=meaning, description=meaning, allow_abbrev=False)
    parser.set_defaults(handler=count)
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the schedule; see --list")
    for size, meaning in (("N", "sequence length"), ("d", "head dimension"), ("M", "words of fast memory")):
        parser.add_argument(f"--{size}", type=int, help=meaning)
    for tile in TILE_OPTIONS:
        parser.add_argument(f"--{tile}", metavar="b", type=int, help=f"tile size {tile}")
    parser.add_argument(
        "--tile", metavar="NAME=INT", type=_tile, nargs="+", action="extend", default=[], help="a tile size"
    )
    parser.add_argument("--published", action="store_true", help="use the tile sizes of the schedule's paper")
    _add_problem(parser)
    parser.add_argument(
        "--no-recompute",
        action="store_true",
        help="also consider bound B, which holds if no score is computed twice",
    )
    parser.add_argument("--run", action="store_true", help="run it on random input and check the values")
    _add_rank_options(parser)
    parser.add_argument("--list", action="store_true", help="list the schedules")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_problem(parser: argparse.ArgumentParser) -> None:
    """Add the options that define the problem in addition to N and d."""
    parser.add_argument("--lse", action="store_true", help="also store the log-sum-exp of each row")
    parser.add_argument(
        "--mask",
        metavar="MASK",
        help=f"{FORMS}; a grid of square tiles, with W, G, R and S in tiles",
    )
    parser.add_argument(
        "--block",
        metavar="B",
        type=int,
        help=f"side of the mask's tiles (default: --Br if given, otherwise {SIDE})",
    )
    parser.add_argument("--w", type=int, help="number of keys on each side of a query, for `window`")
    parser.add_argument("--g", type=int, help=f"degree of the polynomial, for `low_rank` (default: {DEGREE})")


def _add_rank_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of schedules between ranks."""
    group = parser.add_argument_group("schedules between ranks")
    group.add_argument("--ranks", metavar="P", type=int, help="count the words of each of P ranks")
    group.add_argument("--heads", metavar="H", type=int, help="number of heads (default: 1)")
    group.add_argument(
        "--grid",
        metavar="AxB",
        help="rows and columns of the grid of ranks (default: the grid with the least traffic)",
    )
    group.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="layout of the rows on the ranks; `causal --layout zigzag` selects causal_zigzag",
    )
    group.add_argument(
        "--queries", metavar="m", type=int, help="number of queries, for `decode` (default: 1)"
    )
    group.add_argument("--features", metavar="r", type=int, help="number of features of states (default: d)")
    group.add_argument(
        "--seq-lens", metavar="n,n,...", help="lengths of the sequences of `packed`; N is their sum"
    )
    group.add_argument(
        "--placement",
        choices=PLACES,
        help="placement of sequences: `split` by work, `whole` by work, or equal `tokens` (default: split)",
    )


def _tile(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    try:
        return name, int(size)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=INT, got {text!r}") from None


def count(arguments: argparse.Namespace) -> int:
    """Print the report or the list; return 1 if a run moves other words than its closed form, or 0.

    Raises UsageError, which becomes exit code 2.
    """
    if arguments.list:
        from . import distributed

        listed = [
            {"name": s.name, "pass": s.pass_, "regime": s.regime, "source": s.source}
            for s in REGISTRY.values()
        ]
        listed += distributed.listing()
        rows = [list(listed[0]), *(list(one.values()) for one in listed)]
        print(_json(listed) if arguments.json else table(rows, left=4))
        return 0
    try:
        record, shown = _counted(arguments)
    except ValueError as error:
        raise UsageError(str(error)) from None
    print(_json(record) if arguments.json else shown)
    return int("difference" in record)


def _counted(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Return the record that --json prints, and the same as text."""
    if arguments.ranks is not None:
        from . import distributed

        record, of_rank = distributed.count_report(distributed.parse_request(arguments))
        return record, distributed.text(record, of_rank)
    _refuse_without_ranks(arguments)
    record, ledger = count_report(parse_request(arguments), run_it=arguments.run)
    return record, text(record, ledger)


def _refuse_without_ranks(arguments: argparse.Namespace) -> None:
    """Raise UsageError if an option or the name belongs to schedules between ranks and --ranks is missing."""
    named = [
        f"--{option.replace('_', '-')}" for option in RANK_OPTIONS if getattr(arguments, option) is not None
    ]
    if arguments.name not in (None, *REGISTRY):
        from .. import distributed

        named += [arguments.name] if arguments.name in distributed.REGISTRY else []
    if named:
        raise UsageError(f"{named[0]} is for schedules between ranks; add --ranks P, the number of ranks")


def _json(record: Any) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False)


def parse_request(arguments: argparse.Namespace) -> CountRequest:
    """Parse the arguments into a CountRequest. Raises UsageError, or ValueError naming an argument."""
    schedule = _schedule(arguments.name)
    _refuse_what_it_does_not_take(schedule, arguments)
    missing = [f"--{size}" for size in "NdM" if getattr(arguments, size) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given")
    N, d, M = (positive_int(f"--{name}", getattr(arguments, name)) for name in "NdM")
    given = _given_tiles(schedule, arguments)
    settings = _settings(schedule, arguments, N)
    tiles, note = _tiles(schedule, N, d, M, given, settings, arguments.published)
    return CountRequest(
        schedule, N, d, M, settings, tiles, note, arguments.mask or "", not arguments.no_recompute
    )


def _schedule(name: str | None) -> Schedule:
    built = ", ".join(REGISTRY)
    if name is None:
        raise UsageError(f"NAME is missing; known schedules are {built}")
    if name not in REGISTRY:
        raise UsageError(f"unknown schedule {name!r}; known schedules are {built}")
    return REGISTRY[name]


def _takers(setting: str) -> str:
    return ", ".join(s.name for s in REGISTRY.values() if setting in (*s.needs, *s.options))


def _refuse_what_it_does_not_take(schedule: Schedule, arguments: argparse.Namespace) -> None:
    takes = (*schedule.needs, *schedule.options)
    for option in ("mask", "w", "lse", "g"):
        value = getattr(arguments, option)
        if value is not None and value is not False and option not in takes:  # --g 0 counts as given
            others = f"; schedules with it are {_takers(option)}" if _takers(option) else ""
            raise UsageError(f"{schedule.name} does not accept --{option}{others}")
    if arguments.block is not None and arguments.mask is None:
        raise UsageError("--block is the side of the tiles of --mask; add --mask or remove --block")
    if arguments.no_recompute and schedule.pass_ != "forward":
        raise UsageError(
            f"{schedule.name} does not accept --no-recompute: bound B applies to the forward pass only"
        )
    if arguments.no_recompute and schedule.approximates is not None:
        raise UsageError(
            f"{schedule.name} does not accept --no-recompute: it is an approximation and computes no scores"
        )


def _settings(schedule: Schedule, arguments: argparse.Namespace, N: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"lse": True} if arguments.lse else {}
    if "w" in schedule.needs:
        if arguments.w is None:
            raise UsageError(f"{schedule.name} needs --w W, the number of keys on each side of a query")
        settings["w"] = zero_or_more("--w", arguments.w)
    if "g" in schedule.needs:
        settings["g"] = positive_int("--g", DEGREE if arguments.g is None else arguments.g)
    if arguments.mask is not None:
        side = arguments.block if arguments.block is not None else arguments.Br or SIDE
        settings["mask"] = mask_specs.mask_from_spec(arguments.mask, N, positive_int("--block", side))
    elif "mask" in schedule.needs:
        raise UsageError(f"{schedule.name} needs --mask MASK, one of {FORMS}")
    return settings


def _given_tiles(schedule: Schedule, arguments: argparse.Namespace) -> dict[str, int]:
    by_name = {tile: getattr(arguments, tile) for tile in TILE_OPTIONS}
    given = {tile: size for tile, size in by_name.items() if size is not None}
    for tile, size in arguments.tile:
        if given.setdefault(tile, size) != size:
            raise UsageError(
                f"tile size {tile} was passed twice, as {given[tile]} and {size}; pass one of them"
            )
    for name, size in given.items():
        if name not in schedule.tile_names:
            has = ", ".join(schedule.tile_names) or "none"
            raise UsageError(
                f"{schedule.name} does not accept --{name}"
                if name in TILE_OPTIONS
                else f"unknown tile size {name}; the tile sizes of {schedule.name} are {has}"
            )
        positive_int(f"tile size {name}", size)
    return given


def _tiles(
    schedule: Schedule,
    N: int,
    d: int,
    M: int,
    given: dict[str, int],
    settings: dict[str, Any],
    published: bool,
) -> tuple[dict[str, int], str]:
    """Return the tile sizes to count with, and a note on their origin."""
    problem = {name: value for name, value in settings.items() if name != "lse"}
    if published:
        return _published(schedule, N, d, M, given), "tiles as published"
    picked = schedule.tiles(N, d, M, **problem)
    if not given:
        return picked, schedule.note(N, d, M, **schedule.needed(settings))
    left = [name for name in picked if name not in given]
    note = f"tiles as given; {', '.join(left)} as picked for M" if left else "tiles as given"
    return picked | given, note


def _published(schedule: Schedule, N: int, d: int, M: int, given: dict[str, int]) -> dict[str, int]:
    """Return the tile sizes of its paper. Raises UsageError if others were passed, or if they do not fit."""
    if given:
        raise UsageError(f"--published and --{next(iter(given))} both set tile sizes; pass only one of them")
    try:
        return schedule.tiles(N, d, M, published=True)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
