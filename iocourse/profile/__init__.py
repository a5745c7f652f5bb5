"""`iocourse profile WHAT --closed-form`: the bytes that one launch of the kernels must move.

Read in this order: `question` (the launch and its options), `costing` (its closed form and its compulsory
bytes) and the table below. `tools/bench/counters.py` of a checkout has the bytes that a GPU moves.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import console
from ..data.records import run_metadata
from ..errors import UsageError
from ..files import write_json
from ..gpu.chips import CHIPS
from . import question

ARCH = 90  # by default
ROWS = {"read": "read", "added": "added to", "written": "written", "total": "total"}
ADDITIONS = (
    "An atomic addition is sent to L2 once and done there, so it counts once here; a ledger calls it one "
    "read and one write."
)


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `profile` to the subparsers of the command line and set its handler."""
    meaning = "print the bytes that one launch must move"
    listed = "; ".join(f"{name}: {one.meaning}" for name, one in question.LAUNCHES.items())
    parser = commands.add_parser(
        "profile", help=meaning, description=f"{meaning}. WHAT is one of: {listed}.", allow_abbrev=False
    )
    parser.set_defaults(handler=profile)
    question.add_options(parser)
    parser.add_argument("--closed-form", action="store_true", help="required: nothing is measured here")
    parser.add_argument(
        "--arch", type=int, default=ARCH, help=f"use the tiles of this chip, such as 90 for sm_90 ({ARCH})"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to FILE")


def profile(arguments: argparse.Namespace) -> int:
    """Print the table. Raises UsageError (exit code 2)."""
    asked = question.question(arguments)
    if not arguments.closed_form:
        raise UsageError(
            "--closed-form is missing: it prints the closed form here. Counting bytes on a GPU is "
            "`python -m tools.bench gpu` in a checkout of iocourse"
        )
    if arguments.arch not in CHIPS:
        raise UsageError(f"--arch is {arguments.arch}; allowed: {', '.join(map(str, CHIPS))}")
    try:
        from . import costing
    except ImportError as error:  # neither tiles nor closed forms are known without the kernels
        raise UsageError(str(error)) from None
    must = costing.cost(asked, arguments.arch)
    record = {
        "subject": "profile", **run_metadata("torch", "triton"), "question": asdict(must.asked),
        "place": f"tiles of sm_{arguments.arch}", "tiles": must.tiles,
        "bytes": {"compulsory": must.compulsory, "closed_form": must.bytes},
    }  # fmt: skip
    print(show(record))
    if arguments.json:
        write_json(arguments.json, record)
    return 0


def show(record: dict[str, Any]) -> str:
    """The launch, its bytes as a table, and how many times the compulsory bytes its tiles move."""
    least, moved = record["bytes"]["compulsory"], record["bytes"]["closed_form"]
    lines = [["bytes", "compulsory", "closed form"]]
    for row, name in ROWS.items():
        if row != "added" or moved["added"]:
            lines.append([name, "" if row == "added" else f"{least[row]:,}", f"{moved[row]:,}"])
    said = [f"The tiles move {moved['total'] / least['total']:.2f} × the inputs and results."]
    return console.paragraphs(
        heading(record), console.table(lines), "\n".join(said + [ADDITIONS] * bool(moved["added"]))
    )


def heading(record: dict[str, Any]) -> str:
    """The launch, and below it the place and the tiles."""
    asked = record["question"]
    facts = {
        f"N = {asked['N']}, d = {asked['d']}, {console.counted(asked['heads'], 'head')}": True,
        f"{asked['kv_heads']} of keys": asked["kv_heads"] != asked["heads"],
        f"{asked['batch']} batches": asked["batch"] > 1,
        "causal": asked["causal"],
        f"mask {asked['block_mask']} in blocks of {asked['block']}": asked["block_mask"],
        console.counted(len(asked["lengths"]), "sequence"): asked["lengths"],
        console.counted(asked["parts"], "part"): asked["what"] == "decode",
        asked["dtype"]: True,
    }
    tiles = ", ".join(f"{name} {' × '.join(map(str, tile[:-2]))}" for name, tile in record["tiles"].items())
    told = ", ".join(filter(facts.get, facts))
    return f"{asked['what']}: {told}\n{record['place']}; tiles {tiles}"
