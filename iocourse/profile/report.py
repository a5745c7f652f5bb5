"""The record of one launch and its table: what it must move, what was counted, and what a chip moved."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from iocourse.doctor.circumstances import circumstances

from .. import console
from ..gpu import ncu
from ..gpu.device import device_facts, environment
from ..gpu.timing import no_cuda
from ..kernels.host.tiles import row_of
from ..ledger import Ledger
from ..refusal import Refused
from .costing import Bytes, Cost, bytes_of, cost, moved
from .question import ARCH, LAUNCHES, Question

MOST_VISITS = 2000  # tiles of scores that the interpreter meets in about half a minute
SECONDS = 300
COLUMNS = {
    "compulsory": "compulsory", "closed_form": "closed form", "ledger": "ledger", "l2": "SMs ↔ L2",
    "dram": "L2 ↔ DRAM",
}  # fmt: skip
RATIOS = {"L2 / closed form": ("l2", "closed_form"), "DRAM / compulsory": ("dram", "compulsory")}
ROWS = {"read": "read", "added": "added to", "written": "written", "total": "total"}


def record_of(asked: Question) -> dict[str, Any]:
    """What the launch must move and, unless its closed form alone is asked for, what this GPU moves, by ncu.

    Raises Refused without a GPU or ncu, or where ncu fails: what is needed, and what can be had without.
    """
    arch = asked.arch or ARCH
    must, device, found = (cost(asked, arch), None, []) if asked.closed_form else _measured(asked)
    ledger, why_not = counted(must)
    counts = None if ledger is None else bytes_of(ledger, ledger.itemsizes)
    levels = _levels(found) if found else dict.fromkeys(("l2", "dram"))
    return {
        "subject": "profile", **circumstances("torch", "triton"), "question": asdict(must.asked),
        "place": device["name"] if device else f"tiles of sm_{arch}", "device": device, "tiles": must.tiles,
        "bytes": {"compulsory": must.compulsory, "closed_form": must.bytes, "ledger": counts, **levels},
        "kernels": [{"name": one.name, **_levels([one])} for one in found],
        "differences": [] if ledger is None else (ledger - must.words).lines(),
        "note": why_not,
    }  # fmt: skip


def _measured(asked: Question) -> tuple[Cost, dict[str, Any], list[ncu.Kernel]]:
    """The launch with the tiles of this GPU, the facts of that, and the kernels as ncu counted them."""
    tool, reason = ncu.find(), no_cuda()
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
        found = ncu.measure(tool, LAUNCHES[asked.what].kernels, _program(must), environment(interpret=False))
    except ncu.CannotMeasure as error:
        raise Refused(
            f"{error}. Without them `iocourse profile {asked.what} … --closed-form` prints the closed form, "
            "and where the launch is small the ledger"
        ) from None
    return must, device | {"ncu": ncu.version(tool)}, found


def _program(must: Cost) -> list[str]:
    """The launch with its tiles, in a process of its own."""
    told = json.dumps({"question": asdict(must.asked), "tiles": must.chosen})
    return [sys.executable, "-m", "iocourse.profile.one_launch", told]


def counted(must: Cost) -> tuple[Ledger | None, str]:
    """The launch's ledger, counted in Triton's interpreter in a process of its own; or None, and why not."""
    no = "The ledger was not counted: "
    if must.visits > MOST_VISITS:
        met = f"{no}the launch meets {must.visits:,} tiles, and the interpreter is asked for {MOST_VISITS:,}"
        return None, f"{met} at most; the closed form holds without it."
    options: Any = {"capture_output": True, "text": True, "timeout": SECONDS}
    try:
        done = subprocess.run(_program(must), env=environment(interpret=True), **options)
    except subprocess.TimeoutExpired:
        return None, f"{no}the interpreter took more than {SECONDS} seconds."
    if done.returncode:
        return None, no + (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Ledger.from_json(done.stdout), ""


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
    each, said = "\n".join(map(_each_kernel, kernels)), "\n".join(_sentences(record))
    return console.paragraphs(_heading(record), _table(record["bytes"]), each, said)


def _heading(record: dict[str, Any]) -> str:
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


def _table(columns: dict[str, Any]) -> str:
    lines = [["bytes", *COLUMNS.values(), *RATIOS]]
    for row, name in ROWS.items():
        if row != "added" or any(counts["added"] for counts in columns.values() if counts):
            ratios = (_quotient(columns, row, *pair) for pair in RATIOS.values())
            cells = ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
            lines.append([name, *(_cell(column, columns[column], row) for column in COLUMNS), *cells])
    return console.table(lines)


def _cell(name: str, counts: Bytes | None, row: str) -> str:
    if counts is None:
        return "not counted" if name == "ledger" else "not measured"
    return "" if row == "added" and counts[row] == 0 else _amount(counts[row])


def _amount(count: int | None) -> str:
    return "not available" if count is None else f"{count:,}"


def _quotient(columns: dict[str, Any], row: str, over: str, under: str) -> float | None:
    above, below = ((columns[name] or {}).get(row) for name in (over, under))
    return None if above is None or not below else float(above / below)


def _each_kernel(kernel: dict[str, Any]) -> str:
    def said(level: str) -> str:
        counts = ((ROWS[row], count) for row, count in kernel[level].items() if row != "total")
        return ", ".join(f"{name} {_amount(count)}" for name, count in counts if count != 0)

    return f"{kernel['name']}: L2 {said('l2')}; DRAM {said('dram')}"


def _sentences(record: dict[str, Any]) -> Iterator[str]:
    """Those that this record gives reason for."""
    facts = {
        _reading(record["bytes"]): True,
        "An atomic addition is sent to L2 once and done there, so it counts once here; a ledger calls it one "
        "read and one write.": record["bytes"]["closed_form"]["added"],
        f"The ledger is not the closed form: {'; '.join(record['differences'])}.": record["differences"],
        "ncu empties the caches before each kernel, and what it leaves written in L2 is in no DRAM "
        "count.": record["device"],
        record["note"]: record["note"],
    }
    return filter(facts.get, facts)


def _reading(columns: dict[str, Any]) -> str:
    """One sentence: what the tiles ask for, what crossed to L2, and what the memory moved."""
    crossed, from_memory = (_quotient(columns, "total", *pair) for pair in RATIOS.values())
    moved = columns["closed_form"]["total"] / columns["compulsory"]["total"]
    clauses = [f"The tiles move {moved:.2f} × the inputs and results"]
    if columns["l2"] is None:
        clauses.append("how much of that L2 answers, only a GPU can say")
    if crossed is not None:
        clauses.append(f"the multiprocessors moved {crossed:.3f} of that to and from L2")
    if from_memory is not None:
        clauses.append(f"the memory moved {from_memory:.2f} × the inputs and results")
        asked, fetched = columns["l2"]["read"], columns["dram"]["read"]
        if asked and fetched <= asked:
            clauses[-1] += f", so L2 answered {100 * (1 - fetched / asked):.0f} % of what was read"
    return "; ".join(clauses) + "."
