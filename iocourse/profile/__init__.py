"""`iocourse profile`: what one launch moves on a chip, beside what it must move.

The bytes that pass between the multiprocessors and L2, and between L2 and the memory (DRAM), as NVIDIA Nsight
Compute (ncu) counts them, stand beside the closed form and the interpreter's ledger. Read in this order:
`question` (what is launched), `costing` (what it must move), `one_launch` (the launch, in a process of its
own), `iocourse.gpu.ncu` (how it is measured) and `report` (the table).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..refusal import Refused, write_json
from . import question


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `profile` to the subparsers of the command line and set its handler."""
    meaning = "measure the bytes of one launch on a GPU, beside the closed form"
    listed = "; ".join(f"{name}: {one.meaning}" for name, one in question.LAUNCHES.items())
    parser = commands.add_parser(
        "profile", help=meaning, description=f"{meaning}. WHAT is one of: {listed}.", allow_abbrev=False
    )
    parser.set_defaults(handler=profile)
    parser.add_argument("what", metavar="WHAT", nargs="?", default="", help="the launch")
    for name, how in question.OPTIONS.items():
        parser.add_argument(question.option(name), **how)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to FILE")


def profile(arguments: argparse.Namespace) -> int:
    """Print the table; 1 where the ledger and the closed form differ. Raises Refused (exit code 2)."""
    asked = question.question(arguments)
    try:
        from . import report
    except ImportError as error:  # neither tiles nor closed forms are known without the kernels
        raise Refused(str(error)) from None
    record = report.record_of(asked)
    print(report.show(record))
    if arguments.json:
        write_json(arguments.json, record)
    return 1 if record["differences"] else 0
