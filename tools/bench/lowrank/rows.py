"""Measurement of one shape with our and all exact runs: forward, both passes, and both with a causal mask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import iocourse.lowrank as lowrank
from iocourse.lowrank import numba_backend
from iocourse.lowrank.numpy_backend import CAUSAL_TILE
from iocourse.monomials import rank_of
from tools.bench import Row
from tools.bench.lowrank import published_protocol
from tools.bench.lowrank.exact_baselines import forward_runs, gradient_runs, truth
from tools.bench.lowrank.timing import Plan, Work, interleaved

SECTIONS = {False: ("forward", "gradient"), True: ("causal", "causal_gradient")}
NAMES = ("O", "dQ", "dK", "dV")
FIVE_TO = 8  # the largest d at which degree 5 is measured
MOST_RANK = 7000
SEED = 1  # of dO
COMPILED = 256  # tokens of the runs that compile


def draw(d: int, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return q, k, v of the published protocol, and normal dO, each (n, d) float32."""
    do = torch.randn(n, d, generator=torch.Generator().manual_seed(SEED))
    return *published_protocol.draw(d, n), do


def degrees(d: int) -> list[int]:
    """Return the degrees to measure: 2 to 4 below a limit of the rank, and 5 for small d."""
    return [g for g in range(2, 6 if d <= FIVE_TO else 5) if rank_of(d, g) <= MOST_RANK]


def engine() -> str:
    """Return the engine of our runs: by default small calls would run in NumPy, to save the compilation."""
    return "numba" if numba_backend.installed() else "numpy"


def ours(inputs: Sequence[Tensor], g: int, threads: int, causal: bool = False) -> Work:
    """Return the library's call for q, k, v (n, d), which computes O, or the gradients too if dO is there."""
    d = inputs[0].shape[1]
    known: Row = {"key_variance": 1 / d} if causal else {}  # of the keys' distribution, so of no later key
    known["engine"] = engine()
    call = lowrank.attention if len(inputs) == 3 else lowrank.gradient
    arrays = [x.numpy() for x in inputs]
    return partial(call, *arrays, degree=g, scale=1.0, causal=causal, threads=threads, **known)


def exact_runs(inputs: Sequence[Tensor], causal: bool = False) -> dict[str, Work]:
    """Return the exact runs for q, k, v, and dO if there are gradients, compiled by a run on few tokens."""
    make: Any = forward_runs if len(inputs) == 3 else gradient_runs
    for run in make(*(x[:COMPILED] for x in inputs), causal).values():
        run()
    runs: dict[str, Work] = make(*inputs, causal)
    return runs


def measure(d: int, n: int, causal: bool, plan: Plan) -> dict[str, Row]:
    """Return the rows of both sections: times of the exact runs, and times and errors of every degree.

    In a degree, `judged` is the error of O in the published metric, or with gradients the largest of dQ, dK
    and dV. `mean_of_v_error` has the same errors of equal weights for all keys that a row attends to.
    `their_ms`, `their_error` and `their_softmax_error` (forward) belong to the published script: its error on
    its own operator, and that of its features on softmax.
    """
    q, k, v, do = draw(d, n)
    exact, control = truth(q, k, v, do, causal), equal_weights(q, v, do, causal)
    error, speedup = published_protocol.TABLE[d] if (d, n) in published_protocol.ROWS else (None, None)
    found: dict[str, Row] = {}
    for section, inputs in zip(SECTIONS[causal], ((q, k, v), (q, k, v, do)), strict=True):
        shown = 1 if len(inputs) == 3 else 4
        works: dict[Any, Work] = {g: ours(inputs, g, plan.threads, causal) for g in degrees(d)}
        row: Row = {"d": d, "n": n, "published_error": error, "published_speedup": speedup}
        row["mean_of_v_error"] = errors(control[:shown], exact)
        off = {g: errors(_outputs(work()), exact) for g, work in works.items()}
        runs = exact_runs(inputs, causal)
        if section == "forward":
            works["script"] = partial(published_protocol.their_algorithm, q, k, v)
        took = interleaved(works | runs, plan.seconds)
        if section == "forward":
            row |= script(q, k, v, exact[0]) | {"their_ms": took["script"].ms}
        row["exact_ms"] = {name: took[name].ms for name in runs}
        row["baseline"] = min(row["exact_ms"], key=row["exact_ms"].__getitem__)
        row["baseline_ms"] = row["exact_ms"][row["baseline"]]
        row["degrees"] = [
            {"g": g, "rank": rank_of(d, g), "ms": took[g].ms, "quartiles_ms": took[g].quartiles_ms,
             "repeats": took[g].repeats, "speedup": row["baseline_ms"] / took[g].ms,
             "multiply_adds": multiply_adds(n, n, d, rank_of(d, g), causal, shown > 1)} | off[g]
            for g in off
        ]  # fmt: skip
        found[section] = row
    return found


def script(q: Tensor, k: Tensor, v: Tensor, softmax: Tensor) -> Row:
    """Return the script's errors, on its own operator and on softmax, and its quotient of multiply-adds."""
    own = published_protocol.their_algorithm(q, k, v), published_protocol.their_operator(q, k, v)
    other = published_protocol.their_algorithm(q, k, v, softmax=True), softmax
    error = published_protocol.their_error
    features = published_protocol.their_features(q[:1]).shape[1]
    adds = multiply_adds(len(q), len(k), q.shape[1], features, causal=False, both=False)
    return {"their_error": error(*own), "their_softmax_error": error(*other), "their_multiply_adds": adds}


def equal_weights(q: Tensor, v: Tensor, do: Tensor, causal: bool) -> list[Tensor]:
    """Return O, dQ, dK, dV (n, d) if every row outputs the mean of V over the keys that it attends to."""
    values = v.double().requires_grad_()
    counts = torch.arange(1, len(v) + 1)[:, None]
    o = values.cumsum(0) / counts if causal else values.mean(0).expand_as(values)
    (dv,) = torch.autograd.grad(o, values, do.double())
    return [o.detach(), torch.zeros_like(q), torch.zeros_like(q), dv]


def errors(got: Sequence[Tensor], exact: Sequence[Tensor]) -> Row:
    """Return the usual and the published errors by output, in per cent, and the judged one."""
    pairs = list(zip(NAMES, got, exact, strict=False))
    theirs = {name: published_protocol.their_error(x, y) for name, x, y in pairs}
    usual = {name: published_protocol.relative_error(x, y) for name, x, y in pairs}
    judged = max(list(theirs.values())[1:] or theirs.values())
    return {"errors": usual, "their_errors": theirs, "judged": judged}


def _outputs(found: Any) -> list[Tensor]:
    return [torch.from_numpy(x) for x in (found if isinstance(found, tuple) else (found,))]


def multiply_adds(n: int, n_k: int, d: int, rank: int, causal: bool, both: bool) -> float:
    """Return the multiply-adds of the products of exact attention, divided by those of low rank.

    Exact attention has two products of d per pair of a query and a key (S, O), and four more for both passes
    (dP, dQ, dK, dV) if each score is computed once. A product of low rank has r (d + 1) per row: forward, one
    per query and one per key (T, [N, den]); for both passes three of each (T, U, and the derivatives of the
    features). Without a mask both quotients are therefore 2 n n_k d / ((n + n_k) r (d + 1)).

    With a causal mask, exact attention has n (n + 1) / 2 pairs. Low rank computes tiles of C tokens exactly,
    2d + 1 per pair of a tile forward and 9d + 4 for both passes, and computes T again in the backward pass:
    two products per row forward, seven for both passes. The features themselves, about one multiplication per
    monomial and row, are not counted.
    """
    pairs = n * (n + 1) / 2 if causal else n * n_k
    exact = pairs * d * (6 if both else 2)
    products = (7 if both else 2) * n if causal else (3 if both else 1) * (n + n_k)
    tiles = n * min(CAUSAL_TILE, n) * (9 * d + 4 if both else 2 * d + 1) if causal else 0
    return exact / (products * rank * (d + 1) + tiles)
