"""Run time of the emulator: a run with values, a dry count, and the import of the library."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import numpy as np

from iocourse import exact
from iocourse.console import table
from iocourse.data.records import record_source, run_metadata
from iocourse.machine import run as run_schedule
from iocourse.schedules.flash_optimal import flash_optimal
from tools.bench import laps

NAME = "emulator"
HELP = "run time of the emulator, of a dry count and of import iocourse"
REPEATS = 5
REAL = (1024, 64, 16384)  # N, d, M
DRY = (65536, 64, 16384)
GOALS_S = {"run": 2.0, "dry": 5.0, "import": 0.3}
IMPORT = "import time; t = time.perf_counter(); import iocourse; print(time.perf_counter() - t)"


def run(quick: bool) -> dict[str, Any]:
    """Measure wall seconds of `flash_optimal` with values and dry, and of the import in a new interpreter.

    Args:
        quick: once each instead of five times.
    """
    repeats = 1 if quick else REPEATS
    measured = {"run": _with_values, "dry": _dry, "import": _import}
    timed = {
        name: laps([measure() for _ in range(repeats)], 5) | {"goal_s": GOALS_S[name]}
        for name, measure in measured.items()
    }
    timed["run"] |= _case(*REAL)
    timed["dry"] |= _case(*DRY)
    return {"subject": NAME, **run_metadata("numpy"), "repeats": repeats, "measured": timed}


def _case(N: int, d: int, M: int) -> dict[str, Any]:
    tiles: dict[str, Any] = flash_optimal.tiles(N, d, M)
    words = flash_optimal.cost(N, d, **tiles).total
    return {"schedule": flash_optimal.name, "N": N, "d": d, "M": M, "tiles": tiles, "words": words}


def _with_values() -> float:
    """Return the seconds of `flash_optimal` on random input, with its trace; values are checked untimed."""
    N, d, M = REAL
    rng = np.random.default_rng(0)
    Q, K, V = (rng.standard_normal((N, d)) for _ in range(3))
    tiles: dict[str, Any] = flash_optimal.tiles(N, d, M)
    start = time.perf_counter()
    done = run_schedule(flash_optimal, M=M, Q=Q, K=K, V=V, **tiles)
    seconds = time.perf_counter() - start
    assert exact.max_abs_error(done.O, exact.attention(Q, K, V)) < 1e-12, "the emulator's values are wrong"
    return seconds


def _dry() -> float:
    N, d, M = DRY
    start = time.perf_counter()
    tiles: dict[str, Any] = flash_optimal.tiles(N, d, M)
    run_schedule(flash_optimal, M=M, dry=True, Q=(N, d), K=(N, d), V=(N, d), **tiles)
    return time.perf_counter() - start


def _import() -> float:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    return float(done.stdout)


def show(result: dict[str, Any]) -> str:
    """Format the times and their goals as plain text."""
    rows = [
        [_label(name, one), f"{one['median_s']:.4f} s", f"goal below {one['goal_s']} s"]
        for name, one in result["measured"].items()
    ]
    how = f"median of {result['repeats']}, {result['cores']} cores, {record_source(result)}"
    return f"{table(rows)}\n{how}"


def _label(name: str, one: dict[str, Any]) -> str:
    if name == "import":
        return "import iocourse"
    kind = "with values" if name == "run" else "counted dry"
    return f"{one['schedule']} {kind}, N={one['N']}, d={one['d']}, M={one['M']}"
