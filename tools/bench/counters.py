"""The bytes that one launch moves on a GPU, by its counters: `python -m tools.bench.counters WHAT …`.

The options are those of `iocourse profile`. NVIDIA Nsight Compute (ncu, `ncu.py`) counts the bytes between
the multiprocessors and L2, and between L2 and DRAM, of one launch in a process of its own (`one_launch.py`);
the table puts them next to the closed form and the compulsory bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from iocourse import console, profile
from iocourse.cli import Parser
from iocourse.data.records import run_metadata
from iocourse.errors import UsageError
from iocourse.files import write_json
from iocourse.gpu.timing import cuda_unavailable_reason
from iocourse.kernels.host.tile_table import row_of
from iocourse.profile import LAUNCHES, LaunchRequest, add_options, parse_request
from iocourse.profile.launch_cost import Bytes, LaunchCost, cost, moved
from tools import run_main
from tools.bench.device import device_facts, environment

from . import ncu

COLUMNS = {
    "compulsory": "compulsory", "closed_form": "closed form", "l2": "SMs ↔ L2", "dram": "L2 ↔ DRAM",
}  # fmt: skip
RATIOS = {"L2 / closed form": ("l2", "closed_form"), "DRAM / compulsory": ("dram", "compulsory")}


def record_of(asked: LaunchRequest, seconds: float | None = None) -> dict[str, Any]:
    """The bytes that a launch must move, and those that this GPU moves, by ncu within so many seconds.

    `counters` has the bytes of those counters in `ncu.MORE` that the chip has.

    Raises UsageError without a GPU or ncu, or where ncu fails: what is needed, and what can be had without.
    """
    tool, reason = ncu.find(), cuda_unavailable_reason()
    try:
        if not tool or reason:
            absent = [reason, "" if tool else "ncu (NVIDIA Nsight Compute) is not on PATH"]
            raise ncu.CannotMeasure(
                f"nothing can be measured here: {', and '.join(filter(None, absent))}. Needed: an NVIDIA GPU "
                "that torch can use, ncu (it comes with the CUDA toolkit, and alone from "
                "developer.nvidia.com/nsight-compute), and leave to read the GPU's counters"
            )
        device = device_facts()
        must = cost(asked, row_of(device["arch"]), device["multiprocessors"])
        kernels, around = LAUNCHES[asked.what].kernels, environment(interpret=False)
        found = ncu.measure(tool, kernels, _program(must), around, seconds)
    except ncu.CannotMeasure as error:
        raise UsageError(
            f"{error}. Without them `iocourse profile {asked.what} … --closed-form` prints the closed form"
        ) from None
    return {
        "subject": "profile", **run_metadata("torch", "triton"), "question": asdict(must.request),
        "place": device["name"], "device": device | {"ncu": ncu.version(tool)}, "tiles": must.tiles,
        "bytes": {"compulsory": must.compulsory, "closed_form": must.bytes, **_levels(found)},
        "kernels": [{"name": one.name, **_levels([one])} for one in found],
        "counters": {name: ncu.total(found, name) for name in ncu.MORE if name in found[0].bytes},
    }  # fmt: skip


def _program(must: LaunchCost) -> list[str]:
    """The launch with its tiles, in a process of its own."""
    told = json.dumps({"question": asdict(must.request), "tiles": must.chosen})
    return [sys.executable, "-m", "tools.bench.one_launch", told]


def _levels(found: Sequence[ncu.Kernel]) -> dict[str, Bytes]:
    """Bytes at L2 and at DRAM. Additions are made in L2: the memory sees reads and writes only."""

    def total(metric: str, *kinds: str) -> int | None:
        return ncu.total(found, *(metric.format(kind) for kind in kinds))

    return {
        "l2": moved(total(ncu.L2, "read"), total(ncu.L2, "red", "atom"), total(ncu.L2, "write")),
        "dram": moved(total(ncu.DRAM, "read"), 0, total(ncu.DRAM, "write")),
    }


# --- the table ---------------------------------------------------------------------------------------------


def show(record: dict[str, Any]) -> str:
    """The launch, its bytes as a table, the kernels where there are several, and what the table says."""
    kernels = record["kernels"] if len(record["kernels"]) > 1 else ()
    each, said = "\n".join(map(_each_kernel, kernels)), "\n".join(_sentences(record["bytes"]))
    more = "\n".join(f"{name}: {_amount(count)} bytes" for name, count in record["counters"].items())
    return console.paragraphs(profile.heading(record), _table(record["bytes"]), each, more, said)


def _table(columns: dict[str, Bytes]) -> str:
    lines = [["bytes", *COLUMNS.values(), *RATIOS]]
    for row, name in profile.ROWS.items():
        if row != "added" or any(counts["added"] for counts in columns.values()):
            counts = [columns[column][row] for column in COLUMNS]
            ratios = (_quotient(columns, row, *pair) for pair in RATIOS.values())
            cells = ["" if row == "added" and count == 0 else _amount(count) for count in counts]
            lines.append([name, *cells, *("" if ratio is None else f"{ratio:.3f}" for ratio in ratios)])
    return console.table(lines)


def _amount(count: int | None) -> str:
    return "not available" if count is None else f"{count:,}"


def _quotient(columns: dict[str, Bytes], row: str, over: str, under: str) -> float | None:
    above, below = columns[over][row], columns[under][row]
    return None if above is None or not below else float(above / below)


def _each_kernel(kernel: dict[str, Any]) -> str:
    def said(level: str) -> str:
        counts = ((profile.ROWS[row], count) for row, count in kernel[level].items() if row != "total")
        return ", ".join(f"{name} {_amount(count)}" for name, count in counts if count != 0)

    return f"{kernel['name']}: L2 {said('l2')}; DRAM {said('dram')}"


def _sentences(columns: dict[str, Bytes]) -> Iterator[str]:
    """First what the tiles ask for, what crossed to L2, and what the memory moved."""
    crossed, from_memory = (_quotient(columns, "total", *pair) for pair in RATIOS.values())
    moved = columns["closed_form"]["total"] / columns["compulsory"]["total"]
    clauses = [f"The tiles move {moved:.2f} × the inputs and results"]
    if crossed is not None:
        clauses.append(f"the multiprocessors moved {crossed:.3f} of that to and from L2")
    if from_memory is not None:
        clauses.append(f"the memory moved {from_memory:.2f} × the inputs and results")
        asked, fetched = columns["l2"]["read"], columns["dram"]["read"]
        if asked and fetched <= asked:
            clauses[-1] += f", so L2 answered {100 * (1 - fetched / asked):.0f} % of what was read"
    yield "; ".join(clauses) + "."
    if columns["closed_form"]["added"]:
        yield profile.ADDITIONS
    yield "ncu empties the caches before each kernel, and what it leaves written in L2 is in no DRAM count."


# --- the command -------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure one launch and print the table; 2 where the arguments are bad or nothing can be measured."""
    parser = Parser(prog="python -m tools.bench.counters", description=__doc__, allow_abbrev=False)
    add_options(parser)
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to FILE")
    return run_main(parser, _measured, argv)


def _measured(arguments: argparse.Namespace) -> int:
    record = record_of(parse_request(arguments))
    print(show(record))
    if arguments.json:
        write_json(arguments.json, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
