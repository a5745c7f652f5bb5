"""Run time of each solved notebook, including the start of its kernel."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from iocourse.console import table, with_progress_bar
from iocourse.course.project_paths import find_checkout
from iocourse.data.records import run_metadata
from iocourse.errors import UsageError
from tools.bench import laps
from tools.build.notebook_execution import cannot_run, execute, lesson_environment

NAME = "notebooks"
HELP = "run time of every solved notebook"
REPEATS = 3


def run(quick: bool) -> dict[str, Any]:
    """Measure wall seconds of every solved notebook of the checkout.

    Args:
        quick: each notebook once instead of three times.

    Raises:
        UsageError: there are no solved notebooks, or triton is missing for one that runs kernels.
        ExecutionFailed: a notebook fails.
    """
    root = find_checkout()
    paths = sorted((root / "solutions").glob("[0-9]*.ipynb"))
    if not paths:
        raise UsageError(f"no solved notebooks in {root / 'solutions'}. Run python -m tools.build first")
    for path in paths:
        if reason := cannot_run(path.read_text(encoding="utf-8")):
            raise UsageError(f"{path.name} {reason}")
    repeats = 1 if quick else REPEATS
    runs = with_progress_bar([path for path in paths for _ in range(repeats)], "notebooks run")
    seconds: dict[str, list[float]] = {path.stem: [] for path in paths}
    for path in runs:
        seconds[path.stem].append(_seconds(path, root))
    timed = {name: laps(taken, 3) for name, taken in seconds.items()}
    facts = run_metadata("numpy", "matplotlib", "ipykernel")
    return {"subject": NAME, **facts, "repeats": repeats, "notebooks": timed}


def _seconds(path: Path, root: Path) -> float:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with lesson_environment(root, strict=True) as env:
        start = time.perf_counter()
        execute(notebook, name=path.name, folder=path.parent, env=env)
        return time.perf_counter() - start


def show(result: dict[str, Any]) -> str:
    """Format the run times as a plain-text table."""
    medians = {name: one["median_s"] for name, one in result["notebooks"].items()}
    medians["all"] = sum(medians.values())
    shown = table([[name, f"{seconds:.1f} s"] for name, seconds in medians.items()])
    return f"{shown}   (median of {result['repeats']}, {result['cores']} cores)"
