"""Registers, shared memory and inner loops of the tiles in the record `tune`, which `timed_tiles` joins to
their times.

Compile them with the version of Triton that timed them, in a separate folder that Python searches first:

    pip install --no-deps --target FOLDER triton==3.6.0
    PYTHONPATH=FOLDER python -m tools.bench tune-compiled --json iocourse/data/bench/tune-compiled.json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iocourse.console import table, times_joined
from iocourse.data.records import load_record, record_source, run_metadata
from iocourse.errors import UsageError
from tools.bench import Row, tiles
from tools.bench.resources.compiling import Compilation, compiled, need_compiler

NAME = "tune-compiled"
HELP = "compiled resources of the tiles in the record `tune`, with the Triton that Python finds first"
SIZES = ("kernel", "d", "causal", "BM", "BN", "warps", "stages")
FACTS = ("registers", "spill_bytes", "shared_bytes", "hot_loop", "machine_code")
COUNTS = ("instructions", "wgmma", "waits", "spills", "barriers", "exponentials", "stall_clocks")


def run(quick: bool) -> Row:
    """Compile every tile of the record `tune`, full and causal, and return the record; quick: the fused pass.

    Raises UsageError if torch or triton is missing, or a tile that was timed does not compile.
    """
    need_compiler()
    timed = load_record("tune") or {"kernels": []}
    asked = [one for one in compilations(timed) if not quick or one.kernel == "fused"]
    rows = compiled(asked)
    failed = [f"{row['kernel']}, d = {row['d']}: {row['error']}" for row in rows if "error" in row]
    if failed:
        raise UsageError(f"a tile of the record of tune does not compile: {failed[0]}")
    about = {"timed_commit": timed.get("commit"), "arch": timed.get("arch"), "bytes": tiles.BYTES}
    return {"subject": NAME, **run_metadata("triton"), **about, "tiles": [_of(row) for row in rows]}


def compilations(timed: Mapping[str, Any]) -> Iterator[Compilation]:
    """Yield the compilations of the tiles of a record of `tune` that were timed."""
    for one in timed["kernels"]:
        for tried in one["tried"]:
            for causal in tiles.MASKS[: len(tried["ms"])]:
                yield Compilation(timed["arch"], one["d"], tiles.BYTES, one["kernel"], causal, *tried["tile"])


def _of(row: Row) -> Row:
    facts = {name: row[name] for name in FACTS}
    facts["hot_loop"] = {name: row["hot_loop"][name] for name in COUNTS}
    return {**{name: row[name] for name in SIZES}, "compiled": facts}


def show(result: Row) -> str:
    """Format the record as plain text, one line per tile; all columns after shared memory are of one
    iteration of the inner loop.
    """
    cells = [["", "BM×BN×warps×stages", "registers", "KB shared", *COUNTS]]
    for row in result["tiles"]:
        facts, name = row["compiled"], f"{row['kernel']}, d = {row['d']}{', causal' * row['causal']}"
        taken = str(facts["registers"]), f"{facts['shared_bytes'] / 1024:.1f}"
        counts = (str(facts["hot_loop"][count]) for count in COUNTS)
        cells.append([name, times_joined(row[size] for size in SIZES[3:]), *taken, *counts])
    return f"{table(cells)}\n{len(cells) - 1} kernels compiled with {record_source(result)}"
