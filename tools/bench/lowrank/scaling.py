"""Scaling of time with the number of tokens, and errors and memory of long sequences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iocourse.monomials import rank_of
from tools.bench import Row, grouped
from tools.bench.lowrank.exact_baselines import sampled_truth, sdpa
from tools.bench.lowrank.library_calls import Ours
from tools.bench.lowrank.published_protocol import relative_error
from tools.bench.lowrank.timing import Plan, Work, interleaved

PASSES = ("forward", "forward+backward")
SAMPLED = 64  # queries whose O and dQ are compared with float64
FIT_FROM = 2**13
FIT_LEAST = 3  # minimum number of lengths to fit an exponent
THREADED_FROM = 2**14  # shorter sequences use one thread
OURS, SDPA = "ours", "SDPA"


def draw(n: int, d: int) -> list[Tensor]:
    """Draw q, k, v, dO (n, d) float32; q and k are divided by √d, so logits have standard deviation 1/√d."""
    source = torch.Generator().manual_seed(n + d)
    q, k, v, do = (torch.randn(n, d, generator=source) for _ in range(4))
    return [q / d**0.5, k / d**0.5, v, do]


def times(n: int, d: int, degrees: Sequence[int], plan: Plan) -> list[Row]:
    """Time every degree, number of threads and pass at one length, and SDPA up to `plan.sdpa_to`."""
    q, k, v, do = draw(n, d)
    works: dict[tuple[Any, ...], Work] = {}
    for g, threads in product(degrees, thread_counts(n, plan)):
        ours = Ours(q, k, v, do, g, threads)
        works[OURS, g, threads, PASSES[0]] = ours.forward
        works[OURS, g, threads, PASSES[1]] = ours.backward
    if n <= plan.sdpa_to:
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        works[SDPA, None, plan.threads, PASSES[0]] = lambda: sdpa(q, k, v)
        works[SDPA, None, plan.threads, PASSES[1]] = lambda: torch.autograd.grad(sdpa(*inputs), inputs, do)
    return [
        {"contender": who, "d": d, "g": g, "n": n, "threads": threads, "pass": pass_} | asdict(took)
        for (who, g, threads, pass_), took in interleaved(works, plan.seconds).items()
    ]


def thread_counts(n: int, plan: Plan) -> list[int]:
    """Return the plan's number of threads, and 2 if there are two cores and enough tokens."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({plan.threads} | ({2} if cores >= 2 and n >= THREADED_FROM else set()))


def errors(n: int, d: int, degrees: Sequence[int]) -> list[Row]:
    """Return usual relative errors, in per cent, of O and dQ at some queries spread over the sequence."""
    q, k, v, do = draw(n, d)
    rows = torch.linspace(0, n - 1, min(SAMPLED, n)).long()
    exact = sampled_truth(q, k, v, do, rows)
    found = []
    for g in degrees:
        ours = Ours(q, k, v, do, g).backward()
        got = (torch.from_numpy(x)[rows] for x in (ours.O, ours.dQ))
        each = {name: relative_error(x, y) for name, x, y in zip(("O", "dQ"), got, exact, strict=True)}
        found.append({"d": d, "n": n, "g": g} | each)
    return found


def fits(rows: Sequence[Row]) -> list[Row]:
    """Fit the exponent of every series of times over n ≥ 2¹³, the slope of log time by log n."""
    keys = ("contender", "d", "g", "threads", "pass")
    found = []
    for kind, some in grouped((row for row in rows if row["n"] >= FIT_FROM), keys).items():
        if len(some) >= FIT_LEAST:
            x, y = np.log([row["n"] for row in some]), np.log([row["ms"] for row in some])
            slope, level = np.polyfit(x, y, 1)
            found.append(
                dict(zip(keys, kind, strict=True))
                | {"exponent": float(slope), "ms_at_1": float(np.exp(level)), "lengths": len(some)}
                | {"from": some[0]["n"], "to": some[-1]["n"]}
            )
    return found


def memory(n: int, d: int, g: int, threads: int) -> Row:
    """Measure the peak memory of one gradient in a separate process, and its ratio to the necessary bytes.

    Bytes: `held`: inputs, outputs, gradients and both states; `grown`: growth of the process.
    """
    asked = [sys.executable, "-m", "tools.bench.lowrank.memory", *map(str, (n, d, g, threads))]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(asked, env=plain, capture_output=True, text=True, check=False)
    about: Row = {"n": n, "d": d, "g": g, "threads": threads, "held": held_bytes(n, d, g)}
    if done.returncode:
        return about | {"refused": (done.stderr.strip() or "it ended without output").splitlines()[-1]}
    found: Row = json.loads(done.stdout)
    return about | found | {"ratio": found["grown"] / about["held"]}


def held_bytes(n: int, d: int, g: int) -> int:
    """Return the bytes of Q, K, V, dO, O, dQ, dK, dV and the states T and U, in float32."""
    return 4 * (8 * n * d + 2 * rank_of(d, g) * (d + 1))
