"""`iocourse profile`: what one launch moves on a chip, beside what it must move.

The bytes that pass between the multiprocessors and L2, and between L2 and the memory (DRAM), as NVIDIA Nsight
Compute (ncu) counts them, stand beside the closed form and the interpreter's ledger. Read in this order:
`question` (what is launched), `costing` (what it must move), `one_launch` (the launch, in a process of its
own), `iocourse.gpu.ncu` (how it is measured) and `report` (the table).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from ..refusal import Refused, write_json


class Launch(NamedTuple):
    """Kernels in order, tiles by their names in the table, and those options that not every launch takes."""

    meaning: str
    kernels: tuple[str, ...]
    tiles: tuple[str, ...]
    options: tuple[str, ...] = ("causal",)


LAUNCHES = {
    "forward": Launch("attention, whole rows of Q, K and V in a tile", ("forward_kernel",), ("forward",)),
    "fused-backward": Launch(
        "D, then dQ, dK and dV in one kernel, dQ by atomic additions",
        ("row_products_kernel", "backward_keys_kernel"), ("fused",)),
    "split-backward": Launch(
        "D and dQ, then dK and dV, every sum in a fixed order",
        ("backward_queries_kernel", "backward_keys_kernel"), ("queries", "keys")),
    "decode": Launch(
        "one query a head against N keys, in parts, and the merge",
        ("parts_kernel", "merge_kernel"), (), ("parts",)),
    "small-cache-fused": Launch(
        "forward with d in slices, nothing materialised", ("sliced_forward_kernel",), ("sliced_forward",)),
    "small-cache-materialised": Launch(
        "forward with d in slices, the scores written out",
        ("scores_kernel", "averages_kernel"), ("scores", "averages")),
    "block-sparse": Launch(
        "forward with a block mask", ("forward_kernel",), ("forward",), ("block_mask", "block")),
    "packed": Launch(
        "forward over sequences packed one behind the other", ("forward_kernel",), ("forward",),
        ("causal", "lengths")),
}  # fmt: skip
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes a number


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `profile` to the subparsers of the command line and set its handler."""
    from .question import OPTIONS, option

    meaning = "measure the bytes of one launch on a GPU, beside the closed form"
    listed = "; ".join(f"{name}: {one.meaning}" for name, one in LAUNCHES.items())
    parser = commands.add_parser(
        "profile", help=meaning, description=f"{meaning}. WHAT is one of: {listed}.", allow_abbrev=False
    )
    parser.set_defaults(handler=profile)
    parser.add_argument("what", metavar="WHAT", nargs="?", default="", help="the launch")
    for name, how in OPTIONS.items():
        parser.add_argument(option(name), **how)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to FILE")


def profile(arguments: argparse.Namespace) -> int:
    """Print the table; 1 where the ledger and the closed form differ. Raises Refused (exit code 2)."""
    from .question import question

    asked = question(arguments)
    try:
        from . import report
    except ImportError as error:  # neither tiles nor closed forms are known without the kernels
        raise Refused(str(error)) from None
    record = report.record_of(asked)
    print(report.show(record))
    if arguments.json:
        write_json(arguments.json, record)
    return 1 if record["differences"] else 0
