"""Benchmark of low-rank attention on the CPU: the published rows, gradients, causal, scaling and baselines.

Everything is timed in one run with the same number of threads, in a separate process in which this number is
set before libraries are loaded. Errors are relative to exact attention of the same run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from iocourse.console import with_progress_bar
from iocourse.data.records import run_metadata
from iocourse.doctor import install_command
from iocourse.doctor.thread_settings import environment
from iocourse.errors import UsageError
from tools.bench import Row as Record
from tools.bench.lowrank import text
from tools.bench.lowrank.timing import QUICK, Plan

NAME = "lowrank"
HELP = "low-rank and exact attention on the CPU: the published rows, gradients, scaling (needs torch)"
# glibc keeps freed memory, for all implementations, so that only the first lap includes page faults.
WARM_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
VECTORS = {"avx512f": 512, "avx2": 256, "avx": 256, "sse2": 128, "asimd": 128}  # bits by flag of the CPU
show, pictures = text.text, text.pictures


def run(quick: bool, threads: int = 1) -> Record:
    """Measure everything in a new process and return the record; `quick`: small rows, few laps.

    Raises UsageError if torch is not installed, threads is below 1, or the process failed.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"torch is not installed here: {install_command.command('torch')}")
    if threads < 1:
        raise UsageError(f"--threads must be 1 or more, got {threads}")
    plan = Plan(**QUICK) if quick else Plan()
    return {"quick": quick} | in_own_process(replace(plan, threads=threads))


def in_own_process(plan: Plan) -> Record:
    """Measure a plan in a new process with its number of threads set for all libraries. Return the record."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "record.json")
        code = f"from {__name__} import main; main()"
        command = [sys.executable, "-c", code, json.dumps(asdict(plan)), str(file)]
        wanted = os.environ | environment(plan.threads) | WARM_HEAP
        if subprocess.run(command, env=wanted, check=False).returncode or not file.is_file():
            raise UsageError("the measuring process ended early. Its last output is above")
        record: Record = json.loads(file.read_text(encoding="utf-8"))
    return record


def measured(plan: Plan) -> Record:
    """Measure a plan in this process and return the record."""
    import torch

    from iocourse.lowrank import numba_backend
    from tools.bench.lowrank import linear_time_baselines, rows, scaling

    torch.set_num_threads(plan.threads)
    started, load = time.perf_counter(), os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    found: Record = {"forward": [], "gradient": [], "causal": [], "causal_gradient": []}
    shapes = [(d, n, causal) for d, n in plan.rows for causal in (False, True)]
    for d, n, causal in with_progress_bar(shapes, "rows"):
        for section, row in rows.measure(d, n, causal, plan).items():
            found[section].append(row)
    lengths = [(n, d, degrees) for d, degrees in plan.shapes for n in plan.lengths]
    found["scaling"] = []
    for n, d, degrees in with_progress_bar(lengths, "scaling"):
        found["scaling"] += scaling.times(n, d, degrees, plan)
    found["fits"] = scaling.fits(found["scaling"])
    found["memory"] = scaling.memory(plan.memory, 12, 3, plan.threads)
    found["panels"], found["heads"] = [], []
    for spread in with_progress_bar(plan.spreads, "panels"):
        found["panels"] += linear_time_baselines.panel(spread, plan)
    for at in with_progress_bar(range(plan.heads), "heads"):
        found["heads"] += linear_time_baselines.head_panel(at, plan)
    return {
        "subject": NAME, **run_metadata("torch", "numpy", "numba"), "device": processor(), "load": load,
        "threads": plan.threads, "engine": "Numba" if numba_backend.installed() else "NumPy", **found,
        "seconds": round(time.perf_counter() - started),
    }  # fmt: skip


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Record:
    """Return the name of the CPU and the bits of its widest vectors, None if they are not known."""
    content = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.is_file() else ""
    pairs = [map(str.strip, line.split(":", 1)) for line in content.splitlines() if ":" in line]
    facts = {key.lower(): value for key, value in pairs}
    flags = facts.get("flags", facts.get("features", "")).split()
    name = facts.get("model name") or platform.processor() or platform.machine()
    return {"name": name, "vector_bits": max((VECTORS[one] for one in flags if one in VECTORS), default=None)}


def main() -> None:
    """Measure the plan of the first argument and write the record to the file of the second."""
    record = measured(Plan(**json.loads(sys.argv[1])))
    Path(sys.argv[2]).write_text(json.dumps(record), encoding="utf-8")
