"""`iocourse count`: one schedule's ledger, as a table or as JSON that others script against."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..console import table
from ..errors import UsageError
from ..schedules import REGISTRY
from .arguments import DEGREE, TILE_OPTIONS, question
from .mask_specs import FORMS, SIDE
from .report import answer, text

# Schedules between ranks are imported for --ranks and --list alone: what their options allow is written here.
RANK_OPTIONS = ("ranks", "heads", "grid", "layout", "queries", "features", "seq_lens", "placement")
LAYOUTS = ("contiguous", "zigzag", "striped")
PLACES = ("split", "whole", "tokens")


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `count` to the subparsers of the command line and set its handler."""
    meaning = "count the words one schedule moves"
    parser = commands.add_parser("count", help=meaning, description=meaning, allow_abbrev=False)
    parser.set_defaults(handler=count)
    parser.add_argument("name", metavar="NAME", nargs="?", help="the schedule; see --list")
    for size, meaning in (("N", "sequence length"), ("d", "head dimension"), ("M", "words of fast memory")):
        parser.add_argument(f"--{size}", type=int, help=meaning)
    for tile in TILE_OPTIONS:
        parser.add_argument(f"--{tile}", metavar="b", type=int, help=f"the tile size {tile}")
    parser.add_argument(
        "--tile", metavar="NAME=INT", type=_tile, nargs="+", action="extend", default=[], help="a tile size"
    )
    parser.add_argument(
        "--published", action="store_true", help="tile sizes as the schedule's paper gives them"
    )
    _add_problem(parser)
    parser.add_argument(
        "--no-recompute",
        action="store_true",
        help="hold it against schedules that form no score twice: bound B counts too",
    )
    parser.add_argument("--run", action="store_true", help="run it on random input and check the values")
    _add_rank_options(parser)
    parser.add_argument("--list", action="store_true", help="list the schedules")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_problem(parser: argparse.ArgumentParser) -> None:
    """What is computed, beside N and d."""
    parser.add_argument("--lse", action="store_true", help="also store the rows' log-sum-exp")
    parser.add_argument(
        "--mask",
        metavar="MASK",
        help=f"{FORMS}; a grid of square tiles, of which W, G, R and S count whole ones",
    )
    parser.add_argument(
        "--block", metavar="B", type=int, help=f"side of the mask's tiles; --Br where given, else {SIDE}"
    )
    parser.add_argument("--w", type=int, help="keys that `window` sees to either side of a query")
    parser.add_argument("--g", type=int, help=f"degree of the polynomial of `low_rank`; else {DEGREE}")


def _add_rank_options(parser: argparse.ArgumentParser) -> None:
    """The options of schedules between ranks."""
    group = parser.add_argument_group("schedules between ranks")
    group.add_argument("--ranks", metavar="P", type=int, help="count what each of P ranks moves")
    group.add_argument("--heads", metavar="H", type=int, help="heads; else 1")
    group.add_argument(
        "--grid",
        metavar="AxB",
        help="rows and columns of a grid of ranks; else the one with the fewest words",
    )
    group.add_argument(
        "--layout", choices=LAYOUTS, help="how rows lie: `causal --layout zigzag` is causal_zigzag"
    )
    group.add_argument("--queries", metavar="m", type=int, help="queries of `decode`; else 1")
    group.add_argument("--features", metavar="r", type=int, help="features of states; else d")
    group.add_argument(
        "--seq-lens", metavar="n,n,...", help="lengths of the sequences of `packed`; N is their sum"
    )
    group.add_argument(
        "--placement",
        choices=PLACES,
        help="how sequences are placed: `split` by work, `whole` by work, or equal `tokens` (default: split)",
    )


def _tile(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    try:
        return name, int(size)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=INT, got {text!r}") from None


def count(arguments: argparse.Namespace) -> int:
    """Print what was asked for. Raises UsageError, which the command line turns into exit code 2."""
    if arguments.list:
        from . import distributed

        listed = _listing() + distributed.listing()
        print(_json(listed) if arguments.json else _listing_text(listed))
        return 0
    try:
        record, shown = _counted(arguments)
    except ValueError as error:
        raise UsageError(str(error)) from None
    print(_json(record) if arguments.json else shown)
    return 0


def _counted(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The record that --json prints, and the table."""
    if arguments.ranks is not None:
        from . import distributed

        record, of_rank = distributed.answer(distributed.question(arguments))
        return record, distributed.text(record, of_rank)
    _refuse_without_ranks(arguments)
    record, ledger = answer(question(arguments), run_it=arguments.run)
    return record, text(record, ledger)


def _refuse_without_ranks(arguments: argparse.Namespace) -> None:
    """Raise UsageError where an option or the name belongs to ranks, and --ranks is not given."""
    named = [
        f"--{option.replace('_', '-')}" for option in RANK_OPTIONS if getattr(arguments, option) is not None
    ]
    if arguments.name not in (None, *REGISTRY):
        from .. import distributed

        named += [arguments.name] if arguments.name in distributed.REGISTRY else []
    if named:
        raise UsageError(f"{named[0]} is about schedules between ranks: say on how many with --ranks P")


def _json(record: Any) -> str:
    return json.dumps(record, indent=1, ensure_ascii=False)


def _listing() -> list[dict[str, str]]:
    found = REGISTRY.values()
    return [{"name": s.name, "pass": s.pass_, "regime": s.regime, "source": s.source} for s in found]


def _listing_text(listed: list[dict[str, str]]) -> str:
    rows = [list(listed[0]), *(list(one.values()) for one in listed)]
    return table(rows, left=4)
