"""Scaling of time with the number of tokens, errors of long sequences, and the memory of a gradient.

`python -m tools.bench.lowrank.scaling N D G THREADS` prints the bytes by which a process grows while it
computes a gradient. Before, everything is imported, compiled, and run once on a short sequence.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from iocourse.monomials import rank_of
from tools.bench import Row, grouped
from tools.bench.lowrank.exact_baselines import sampled_truth
from tools.bench.lowrank.published_protocol import relative_error
from tools.bench.lowrank.rows import draw, exact_runs, ours
from tools.bench.lowrank.timing import Plan, Work, interleaved

SAMPLED = 64  # queries whose O and dQ are compared with float64
FIT_FROM, FIT_LEAST = 2**12, 3  # of the lengths to fit an exponent: the first, and how many
THREADED_FROM = 2**14  # shorter sequences use one thread
KIND = ("contender", "d", "g", "threads", "pass")


def times(n: int, d: int, degrees: Sequence[int], plan: Plan) -> list[Row]:
    """Time every degree, number of threads and pass at one length, and the exact runs up to `exact_to`.

    `errors` of our rows: usual relative errors, in per cent, of O and dQ at queries spread over the sequence.
    """
    works: dict[tuple[Any, ...], Work] = {}
    off: dict[int | None, dict[str, float]] = {None: {}}
    drawn, rows = draw(d, n), torch.linspace(0, n - 1, min(SAMPLED, n)).long()
    exact = sampled_truth(*drawn, rows)
    for g in degrees:
        got = (torch.from_numpy(x)[rows] for x in ours(drawn, g, plan.threads)()[:2])
        off[g] = {name: relative_error(*pair) for name, *pair in zip(("O", "dQ"), got, exact, strict=True)}
    counts = {plan.threads} | ({2} if n >= THREADED_FROM and (os.cpu_count() or 1) >= 2 else set())
    for pass_, inputs in (("forward", drawn[:3]), ("forward+backward", drawn)):
        for g, threads in product(degrees, sorted(counts)):
            works["ours", d, g, threads, pass_] = ours(inputs, g, threads)
        if n <= plan.exact_to:
            works |= {(who, d, None, plan.threads, pass_): run for who, run in exact_runs(inputs).items()}
    return [
        dict(zip(KIND, kind, strict=True))
        | {"n": n, "ms": took.ms, "quartiles_ms": took.quartiles_ms, "errors": off[kind[2]]}
        for kind, took in interleaved(works, plan.seconds).items()
    ]


def fits(rows: Sequence[Row]) -> list[Row]:
    """Fit the exponent of every series of times on one thread over n ≥ 2¹²: the slope of log time."""
    found = []
    measured = [row for row in rows if row["n"] >= FIT_FROM and row["threads"] == 1]
    for kind, some in grouped(measured, KIND).items():
        if len(some) >= FIT_LEAST:
            x, y = np.log([row["n"] for row in some]), np.log([row["ms"] for row in some])
            slope, level = np.polyfit(x, y, 1)
            fit = {"exponent": float(slope), "ms_at_1": float(np.exp(level))}
            found.append(dict(zip(KIND, kind, strict=True)) | fit | {"to": some[-1]["n"]})
    return found


def memory(n: int, d: int, g: int, threads: int) -> Row:
    """Measure the growth of a separate process, and its ratio to the bytes that must be held: Q, K, V, dO, O,
    dQ, dK, dV and the states T and U in float32.
    """
    asked = [sys.executable, "-m", __name__, *map(str, (n, d, g, threads))]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(asked, env=plain, capture_output=True, text=True, check=False)
    held = 4 * (8 * n * d + 2 * rank_of(d, g) * (d + 1))
    about: Row = {"n": n, "d": d, "g": g, "threads": threads, "held": held}
    if done.returncode:
        return about | {"refused": (done.stderr.strip() or "it ended without output").splitlines()[-1]}
    grown = json.loads(done.stdout)
    return about | {"grown": grown, "ratio": grown / held}


def resident(name: str) -> int:
    """Return the bytes of a line of /proc/self/status: "VmRSS" now, "VmHWM" at most so far (Linux only)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    tokens, columns, degree, threads = map(int, sys.argv[1:])
    ours(draw(columns, 512), degree, threads)()
    before = resident("VmRSS")
    ours(draw(columns, tokens), degree, threads)()
    print(resident("VmHWM") - before)
