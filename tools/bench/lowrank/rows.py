"""Measurement of the published rows with our, exact and the published code: forward, gradient and causal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from iocourse.gpu.timing import Timing
from iocourse.monomials import rank_of
from tools.bench import Row
from tools.bench.lowrank import published_protocol
from tools.bench.lowrank.exact_baselines import IN_PLACE, SDPA, forward_runs, gradient_runs, sdpa, truth
from tools.bench.lowrank.library_calls import Ours
from tools.bench.lowrank.timing import Plan, Work, interleaved

THEIRS = "theirs"
SKIPPED = "skipped: not enough memory"
MASKED = "not made: SDPA skips the masked half of the pairs, a matrix that is masked in place does not"
NAMES = ("O", "dQ", "dK", "dV")
FIVE_TO = 8  # the largest d at which degree 5 takes part
SEED = 1  # of dO


def degrees(d: int) -> tuple[int, ...]:
    """Return the degrees to measure: 2 to 4, and 5 for small ranks."""
    return tuple(range(2, 6 if d <= FIVE_TO else 5))


def forward(d: int, plan: Plan) -> Row:
    """Measure errors and times of O for one row: softmax in both metrics, the published operator in its own.

    In the row, `their_error` and `their_ms` belong to the reimplemented published script. In a degree,
    `judged_error` and `ms` belong to softmax, `their_error` and `their_operator_ms` to their operator.
    All speed-ups are over exact softmax, never over another operator.
    """
    data = published_protocol.row(d)
    q, k, v = data.q, data.k, data.v
    theirs, (o,) = published_protocol.their_operator(q, k, v), truth(q, k, v)
    works = _two_baselines(forward_runs(q, k, v))
    works |= {THEIRS: lambda: published_protocol.their_algorithm(q, k, v)}
    found = []
    for g in degrees(d):
        ours = Ours(q, k, v, None, g, plan.threads)
        works |= {("ours", g): ours.forward, ("torch", g): ours.torch_forward}
        works |= {("operator", g): ours.their_operator}
        softmax, operator = torch.from_numpy(ours.forward()), torch.from_numpy(ours.their_operator())
        found.append(_degree(d, g) | {
            "judged_error": published_protocol.their_error(softmax, o),
            "error": published_protocol.relative_error(softmax, o),
            "their_error": published_protocol.their_error(operator, theirs),
        })  # fmt: skip
    took = interleaved(works, plan.seconds)
    head = _head(data) | _baselines(took) | {"in_place_note": SKIPPED}
    head |= {
        "their_error": published_protocol.their_error(published_protocol.their_algorithm(q, k, v), theirs)
    }
    head |= {"their_ms": took[THEIRS].ms}
    return head | {"degrees": [one | _times(one, took, head) for one in found]}


def gradient(d: int, plan: Plan) -> Row:
    """Measure O, dQ, dK, dV of one row and the time of both passes; the same of SDPA and of in-place code."""
    return _both_passes(d, plan, causal=False)


def causal(d: int, plan: Plan) -> Row:
    """Measure the same as `gradient` with a causal mask, and the time of the forward pass alone."""
    return _both_passes(d, plan, causal=True)


def _both_passes(d: int, plan: Plan, causal: bool) -> Row:
    data = published_protocol.row(d)
    do = torch.randn(data.v.shape, generator=torch.Generator().manual_seed(SEED))
    exact = truth(data.q, data.k, data.v, do, causal)
    works = _two_baselines(gradient_runs(data.q, data.k, data.v, do, causal))
    if causal:
        works["SDPA forward"] = lambda: sdpa(data.q, data.k, data.v, causal=True)
    found = []
    for g in degrees(d):
        ours = Ours(data.q, data.k, data.v, do, g, plan.threads, causal)
        works |= {("ours", g): ours.backward, ("torch", g): ours.torch_backward}
        if causal:
            works["forward", g] = ours.forward
        got = [torch.from_numpy(x) for x in ours.backward()]
        found.append(_degree(d, g) | _gradient_errors(got, exact))
    took = interleaved(works, plan.seconds)
    head = _head(data) | _baselines(took) | {"in_place_note": MASKED if causal else SKIPPED}
    if causal:
        head["sdpa_forward_ms"] = took["SDPA forward"].ms
    return head | {"degrees": [one | _times(one, took, head) for one in found]}


def _two_baselines(runs: Mapping[str, Work]) -> dict[Any, Work]:
    return {name: run for name, run in runs.items() if name in (IN_PLACE, SDPA)}


def _gradient_errors(got: Sequence[Tensor], exact: Sequence[Tensor]) -> Row:
    """Return both error metrics of O, dQ, dK, dV, and the worst gradient in the published metric."""
    pairs = list(zip(NAMES, got, exact, strict=True))
    theirs = {name: published_protocol.their_error(x, y) for name, x, y in pairs}
    usual = {name: published_protocol.relative_error(x, y) for name, x, y in pairs}
    return {"their_errors": theirs, "errors": usual, "worst": max(theirs[name] for name in NAMES[1:])}


def _head(data: published_protocol.Data) -> Row:
    error, speedup = published_protocol.TABLE[data.d]
    return {"d": data.d, "n": len(data.q), "published_error": error, "published_speedup": speedup}


def _degree(d: int, g: int) -> Row:
    return {"g": g, "rank": rank_of(d, g)}


def _baselines(took: Mapping[Any, Timing]) -> Row:
    """Return the times of exact attention, and the faster one, which is the baseline of speed-ups."""
    times = {name: took[name].ms for name in (IN_PLACE, SDPA) if name in took}
    baseline = min(times, key=lambda name: times[name])
    return {
        "in_place_ms": times.get(IN_PLACE), "sdpa_ms": times[SDPA],
        "baseline": baseline, "baseline_ms": times[baseline],
    }  # fmt: skip


def _times(one: Row, took: Mapping[Any, Timing], head: Row) -> Row:
    """Return milliseconds and speed-ups of one degree: from arrays, from tensors, and others if timed."""
    ours, tensors, baseline_ms = took["ours", one["g"]], took["torch", one["g"]], head["baseline_ms"]
    found: Row = asdict(ours) | {"speedup": baseline_ms / ours.ms}
    found |= {"torch_ms": tensors.ms, "torch_speedup": baseline_ms / tensors.ms}
    if ("operator", one["g"]) in took:
        found["their_operator_ms"] = took["operator", one["g"]].ms
    if ("forward", one["g"]) in took:
        alone = took["forward", one["g"]].ms
        found |= {"forward_ms": alone, "forward_speedup": head["sdpa_forward_ms"] / alone}
    return found
