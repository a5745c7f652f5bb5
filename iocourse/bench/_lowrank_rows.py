"""The published rows, one at a time: forward, gradient and causal, ours beside exact attention and theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from iocourse.gpu.timing import Timing
from iocourse.monomials import rank_of

from . import _published as published
from ._lowrank_clock import Work, interleaved
from ._lowrank_exact import best_in_place, sdpa, truth
from ._lowrank_ours import Ours
from ._lowrank_plan import Plan

Row = dict[str, Any]
IN_PLACE, SDPA, THEIRS = "in place", "SDPA", "theirs"
NAMES = ("O", "dQ", "dK", "dV")
FIVE_TO = 8  # the largest d at which degree 5 takes part
SEED = 1  # of dO


def degrees(d: int, first: int) -> tuple[int, ...]:
    """first … 4, and 5 where the rank is small."""
    return tuple(range(first, 6 if d <= FIVE_TO else 5))


def forward(d: int, plan: Plan) -> Row:
    """O of one row: their operator and metric, true softmax and the usual metric, and all times."""
    data = published.row(d)
    q, k, v = data.q, data.k, data.v
    theirs, (o,) = published.their_operator(q, k, v), truth(q, k, v)
    best = best_in_place(q, k, v)
    works: dict[Any, Work] = {} if best.attend is None else {IN_PLACE: best.attend}
    works |= {SDPA: lambda: sdpa(q, k, v), THEIRS: lambda: published.their_algorithm(q, k, v)}
    found = []
    for g in degrees(d, 2):
        ours = Ours(q, k, v, None, g, plan.threads)
        works |= {("ours", g): ours.forward, ("torch", g): ours.torch_forward}
        works |= {("operator", g): ours.their_operator}
        found.append(_degree(d, g) | {
            "their_error": published.their_error(torch.from_numpy(ours.their_operator()), theirs),
            "error": published.relative_error(torch.from_numpy(ours.forward()), o),
        })  # fmt: skip
    took = interleaved(works, plan.seconds)
    head = _head(data) | _baselines(took) | {"in_place_note": best.note}
    head |= {"their_error": published.their_error(published.their_algorithm(q, k, v), theirs)}
    head |= {"their_ms": took[THEIRS].ms, "their_speedup": head["baseline_ms"] / took[THEIRS].ms}
    return head | {"degrees": [one | _times(one, took, head) for one in found]}


def gradient(d: int, plan: Plan) -> Row:
    """O, dQ, dK, dV of one row and the time of both passes together, beside SDPA's by autograd."""
    return _both_passes(d, plan, causal=False, first=3)


def causal(d: int, plan: Plan) -> Row:
    """The same under the causal mask, and the time of the forward pass alone."""
    return _both_passes(d, plan, causal=True, first=2)


def _both_passes(d: int, plan: Plan, causal: bool, first: int) -> Row:
    data = published.row(d)
    do = torch.randn(data.v.shape, generator=torch.Generator().manual_seed(SEED))
    exact = truth(data.q, data.k, data.v, do, causal)
    works: dict[Any, Work] = {SDPA: _sdpa_both(data, do, causal)}
    if causal:
        works["SDPA forward"] = lambda: sdpa(data.q, data.k, data.v, causal=True)
    found = []
    for g in degrees(d, first):
        ours = Ours(data.q, data.k, data.v, do, g, plan.threads, causal)
        works |= {("ours", g): ours.backward, ("torch", g): ours.torch_backward}
        if causal:
            works["forward", g] = ours.forward
        got = [torch.from_numpy(x) for x in ours.backward()]
        found.append(_degree(d, g) | _gradient_errors(got, exact))
    took = interleaved(works, plan.seconds)
    head = _head(data) | _baselines(took)
    if causal:
        head["sdpa_forward_ms"] = took["SDPA forward"].ms
    return head | {"degrees": [one | _times(one, took, head) for one in found]}


def _sdpa_both(data: published.Data, do: Tensor, causal: bool) -> Work:
    q, k, v = (x.clone().requires_grad_() for x in (data.q, data.k, data.v))
    return lambda: torch.autograd.grad(sdpa(q, k, v, causal), (q, k, v), do)


def _gradient_errors(got: Sequence[Tensor], exact: Sequence[Tensor]) -> Row:
    """Both metrics of O, dQ, dK, dV, and the worst of the three gradients in theirs."""
    pairs = list(zip(NAMES, got, exact, strict=True))
    theirs = {name: published.their_error(x, y) for name, x, y in pairs}
    usual = {name: published.relative_error(x, y) for name, x, y in pairs}
    return {"their_errors": theirs, "errors": usual, "worst": max(theirs[name] for name in NAMES[1:])}


def _head(data: published.Data) -> Row:
    error, speedup = published.TABLE[data.d]
    return {"d": data.d, "n": len(data.q), "published_error": error, "published_speedup": speedup}


def _degree(d: int, g: int) -> Row:
    return {"g": g, "rank": rank_of(d, g)}


def _baselines(took: Mapping[Any, Timing]) -> Row:
    """The times of exact attention, and the faster one, which speed-ups are against."""
    times = {name: took[name].ms for name in (IN_PLACE, SDPA) if name in took}
    baseline = min(times, key=lambda name: times[name])
    return {
        "in_place_ms": times.get(IN_PLACE), "sdpa_ms": times[SDPA],
        "baseline": baseline, "baseline_ms": times[baseline],
    }  # fmt: skip


def _times(one: Row, took: Mapping[Any, Timing], head: Row) -> Row:
    """Milliseconds and speed-ups of one degree, from arrays, from tensors and whatever else was timed."""
    ours, tensors = took["ours", one["g"]], took["torch", one["g"]]
    found: Row = {"ms": ours.ms, "quartiles_ms": list(ours.quartiles_ms), "repeats": ours.repeats}
    found |= {"speedup": head["baseline_ms"] / ours.ms, "torch_ms": tensors.ms}
    found |= {"torch_speedup": head["baseline_ms"] / tensors.ms}
    if ("operator", one["g"]) in took:
        found["their_operator_ms"] = took["operator", one["g"]].ms
    if ("forward", one["g"]) in took:
        alone = took["forward", one["g"]].ms
        found |= {"forward_ms": alone, "forward_speedup": head["sdpa_forward_ms"] / alone}
    return found
