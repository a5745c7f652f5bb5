"""Bytes that one launch moves on a GPU, by hardware counters: `python -m tools.bench.counters WHAT …`.

The options are those of `iocourse profile`. NVIDIA Nsight Compute (ncu, `ncu.py`) counts the bytes between
the SMs and L2, and between L2 and DRAM, of one launch in a separate process (`one_launch.py`). The table
compares them with the closed form and the compulsory bytes.
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
from iocourse.kernels.host.choices import table_architecture
from iocourse.profile import LaunchRequest, add_options, parse_request
from iocourse.profile.launch_cost import Bytes, LaunchCost, byte_totals, cost
from tools import run_main
from tools.bench.device import device_facts, environment
from tools.bench.problems import TILES_FASTEST

from . import ncu

COLUMNS = {
    "compulsory": "compulsory", "closed_form": "closed form", "l2": "SMs ↔ L2", "dram": "L2 ↔ DRAM",
}  # fmt: skip
RATIOS = {"L2 / closed form": ("l2", "closed_form"), "DRAM / compulsory": ("dram", "compulsory")}


def record_of(
    asked: LaunchRequest, seconds: float | None = None, order: str = TILES_FASTEST
) -> dict[str, Any]:  # fmt: skip
    """Return a record of the bytes that a launch must move, and of those that ncu counts on this GPU.

    seconds: time limit of ncu. order: of the programs of a forward pass (`program_order`). The entry
    `counters` has the counters of `ncu.MORE` that the chip supports.

    Raises UsageError without a GPU or ncu, or if ncu fails; the message names what is needed.
    """
    tool, reason = ncu.find(), cuda_unavailable_reason()
    try:
        if not tool or reason:
            absent = [reason, "" if tool else "ncu (NVIDIA Nsight Compute) is not on PATH"]
            raise ncu.CannotMeasure(
                f"nothing can be measured here: {', and '.join(filter(None, absent))}. Needed: an NVIDIA GPU "
                "that torch can use, ncu (part of the CUDA toolkit, also available from "
                "developer.nvidia.com/nsight-compute), and permission to read the GPU's counters"
            )
        device = device_facts()
        must = cost(asked, table_architecture(device["arch"]), device["multiprocessors"])
        around = environment(interpret=False)
        found = ncu.measure(tool, must.kernels, _program(must, order), around, seconds)
    except ncu.CannotMeasure as error:
        raise UsageError(
            f"{error}. To print the closed form without them, run `iocourse profile {asked.what} …`"
        ) from None
    return {
        "subject": "profile", **run_metadata("torch", "triton"), "question": asdict(must.request),
        "order": order, "place": device["name"], "device": device | {"ncu": ncu.version(tool)},
        "tiles": must.tiles, "choice": must.reason,
        "bytes": {"compulsory": must.compulsory, "closed_form": must.bytes, **_levels(found)},
        "kernels": [{"name": one.name, **_levels([one])} for one in found],
        "counters": {name: ncu.total(found, name) for name in ncu.MORE if name in found[0].bytes},
    }  # fmt: skip


def _program(must: LaunchCost, order: str) -> list[str]:
    """Return the command that runs the launch with its tiles in a separate process."""
    told = json.dumps({"question": asdict(must.launched), "tiles": must.chosen, "order": order})
    return [sys.executable, "-m", "tools.bench.one_launch", told]


def _levels(found: Sequence[ncu.Kernel]) -> dict[str, Bytes]:
    """Return the bytes at L2 and at DRAM. Additions are executed in L2, so DRAM has reads and writes only."""

    def total(metric: str, *kinds: str) -> int | None:
        return ncu.total(found, *(metric.format(kind) for kind in kinds))

    return {
        "l2": byte_totals(total(ncu.L2, "read"), total(ncu.L2, "red", "atom"), total(ncu.L2, "write")),
        "dram": byte_totals(total(ncu.DRAM, "read"), 0, total(ncu.DRAM, "write")),
    }


# --- the table ---------------------------------------------------------------------------------------------


def show(record: dict[str, Any]) -> str:
    """Format a record: the launch, a table of bytes, each kernel if there are several, and a summary."""
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
    """Yield the summary: ratios of the closed form, of L2 traffic and of DRAM traffic, and remarks."""
    crossed, from_memory = (_quotient(columns, "total", *pair) for pair in RATIOS.values())
    moved = columns["closed_form"]["total"] / columns["compulsory"]["total"]
    clauses = [f"The closed form is {moved:.2f} times the compulsory bytes"]
    if crossed is not None:
        clauses.append(f"L2 traffic is {crossed:.3f} of the closed form")
    if from_memory is not None:
        clauses.append(f"DRAM traffic is {from_memory:.2f} times the compulsory bytes")
        asked, fetched = columns["l2"]["read"], columns["dram"]["read"]
        if asked and fetched <= asked:
            clauses[-1] += f", so L2 served {100 * (1 - fetched / asked):.0f} % of the reads"
    yield "; ".join(clauses) + "."
    if columns["closed_form"]["added"]:
        yield profile.ADDITIONS
    yield "ncu empties the caches before each kernel; bytes left dirty in L2 are not in the DRAM counts."


# --- the command -------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure one launch, print the table and return the exit code; 2 for bad arguments or no measurement."""
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
