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
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iocourse.console import with_progress_bar
from iocourse.data.records import run_metadata
from iocourse.doctor import install_command
from iocourse.doctor.thread_settings import environment
from iocourse.errors import UsageError
from tools.bench import Row as Record
from tools.bench.lowrank.text import text
from tools.bench.lowrank.timing import QUICK, WHOLE, Plan

if TYPE_CHECKING:
    from iocourse.course.explore.draw.picture import Picture

NAME = "lowrank"
HELP = "low-rank and exact attention on the CPU: the published rows, gradients, scaling (needs torch)"
# glibc keeps freed memory, for all implementations, so that only the first lap includes page faults.
WARM_HEAP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
# Sections to which every job adds rows.
LISTS = ("forward", "gradient", "causal", "scaling", "scaling_errors", "panels", "heads")
Job = tuple[str, Callable[[], Any]]  # a section of the record, and the work


def run(quick: bool, threads: int = 1) -> Record:
    """Measure everything in a new process and return the record.

    Args:
        quick: the five small rows, shorter sequences and fewer laps.
        threads: of all implementations.

    Raises:
        UsageError: torch is not installed, threads is below 1, or the process failed; its output is printed.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"torch is not installed here: {install_command.command('torch')}")
    if threads < 1:
        raise UsageError(f"--threads must be 1 or more, got {threads}")
    return {"quick": quick} | in_own_process(replace(QUICK if quick else WHOLE, threads=threads))


def in_own_process(plan: Plan) -> Record:
    """Measure a plan in a new process with its number of threads set for all libraries. Return the record."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "record.json")
        wanted = environment(plan.threads) | WARM_HEAP
        asked = [sys.executable, "-c", f"from {__name__} import main; main()", plan.to_json(), str(file)]
        if subprocess.run(asked, env=os.environ | wanted, check=False).returncode or not file.is_file():
            raise UsageError("the measuring process ended early. Its last output is above")
        record: Record = json.loads(file.read_text(encoding="utf-8"))
    return record


def measured(plan: Plan) -> Record:
    """Measure a plan in this process and return the record."""
    import torch

    from iocourse.lowrank import numba_backend
    from tools.bench.lowrank.scaling import fits

    torch.set_num_threads(plan.threads)
    started, load = time.perf_counter(), os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    found: Record = {name: [] for name in LISTS}
    for section, work in with_progress_bar(list(jobs(plan)), "low rank"):
        made = work()
        if section in LISTS:
            found[section] += made if isinstance(made, list) else [made]
        else:
            found[section] = made
    return {
        "subject": NAME, **run_metadata("torch", "numpy", "numba"), "device": {"name": processor()},
        "load": load, "threads": plan.threads, "engine": "Numba" if numba_backend.installed() else "NumPy",
        **found, "fits": fits(found["scaling"]), "seconds": round(time.perf_counter() - started),
    }  # fmt: skip


def jobs(plan: Plan) -> Iterator[Job]:
    """Yield every piece of the measurement."""
    from tools.bench.lowrank import linear_time_baselines, rows, scaling

    for d in plan.rows:
        yield "forward", partial(rows.forward, d, plan)
        yield "gradient", partial(rows.gradient, d, plan)
        yield "causal", partial(rows.causal, d, plan)
    for d, degrees in plan.shapes:
        for n in plan.lengths:
            yield "scaling", partial(scaling.times, n, d, degrees, plan)
            yield "scaling_errors", partial(scaling.errors, n, d, degrees)
    yield "memory", partial(scaling.memory, plan.memory, 12, 3, plan.threads)
    for spread in plan.spreads:
        yield "panels", partial(linear_time_baselines.panel, spread, plan)
    for at in range(plan.heads):
        yield "heads", partial(linear_time_baselines.head_panel, at, plan)


def processor() -> str:
    """Return the name of the CPU."""
    told = Path("/proc/cpuinfo")
    if told.is_file():
        for line in told.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def show(result: Record) -> str:
    """Format the record: all tables, the goals with their verdicts, and the source."""
    return text(result)


def pictures(result: Record) -> dict[str, Picture]:
    """Return figures of the rows, the scaling and the baselines, by file name."""
    from iocourse.course.explore import lowrank_baselines, lowrank_scaling, lowrank_vs_published

    return {
        "rows": lowrank_vs_published(result),
        "gradient": lowrank_vs_published(result, section="gradient"),
        "scaling": lowrank_scaling(result),
        "contenders": lowrank_baselines(result),
    }


def main() -> None:
    """Measure the plan of the first argument and write the record to the file of the second."""
    record = measured(Plan.from_json(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(record), encoding="utf-8")
