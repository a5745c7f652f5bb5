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
    meaning = "measure the bytes of one launch on a GPU, beside the closed form"
    listed = "; ".join(f"{name}: {one.meaning}" for name, one in LAUNCHES.items())
    parser = commands.add_parser(
        "profile", help=meaning, description=f"{meaning}. WHAT is one of: {listed}.", allow_abbrev=False
    )
    parser.set_defaults(handler=profile)
    parser.add_argument("what", metavar="WHAT", nargs="?", default="", help="the launch")
    parser.add_argument("--N", type=int, help="sequence length (4096)")
    parser.add_argument("--d", type=int, help="head dimension (128; small caches 512)")
    parser.add_argument("--heads", type=int, help="heads of queries (16)")
    parser.add_argument("--kv-heads", type=int, help="heads of keys and values (as many)")
    parser.add_argument("--batch", type=int, help="batches (1)")
    parser.add_argument("--dtype", help=f"{', '.join(DTYPES)} (bfloat16)")
    parser.add_argument("--causal", action="store_true", help="query i sees keys 0 … i")
    parser.add_argument("--block-mask", metavar="SPEC", help="for block-sparse: as --mask of iocourse count")
    parser.add_argument("--block", metavar="B", type=int, help="side of that mask's blocks (64)")
    parser.add_argument("--lengths", metavar="L1,L2,…", help="for packed: rows of each sequence")
    parser.add_argument("--parts", type=int, help="for decode: stretches of keys (enough to fill the chip)")
    parser.add_argument(
        "--closed-form", action="store_true", help="measure nothing: needs neither a GPU nor ncu"
    )
    parser.add_argument("--arch", type=int, help="with --closed-form: whose tiles, such as 90 for sm_90 (90)")
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
