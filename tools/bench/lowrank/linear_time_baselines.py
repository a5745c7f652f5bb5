"""Comparison of linear-time attention methods: error by number of features and time, one panel per problem.

The problems are normal queries and keys, with one panel per spread of logits, and the stored heads of a real
model. The baselines are those of `iocourse.lowrank.baselines`; ours is `lowrank.attention` at one degree,
including its checks. The mean of V is degree 0. Exact runs have no features and rounding errors only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import numpy as np
import torch

import iocourse.lowrank as lowrank
from iocourse.data.attention_heads import real_head, real_heads
from iocourse.lowrank.baselines import FIELD, Rows, multiply_adds
from iocourse.monomials import rank_of
from tools.bench import Row
from tools.bench.lowrank.exact_baselines import sdpa
from tools.bench.lowrank.published_protocol import relative_error
from tools.bench.lowrank.rows import engine, exact_runs
from tools.bench.lowrank.timing import Plan, Work, interleaved

Inputs = tuple[Rows, Rows, Rows]  # q, k (n, d), v (n, d_v), float32, scores not scaled again
Attend = Callable[[Rows, Rows, Rows, int], Rows]  # the last argument is a seed
Contender = tuple[str, int, Attend]  # name, number of features, function
D = 8
COUNTS = (16, 45, 165, 495, 1287)  # features of the methods that allow any number
POLYNOMIALS = {"Taylor (our passes)": "taylor", "Hermite (ours)": "hermite"}
# Without KDEformer, HyperAttention and Linformer, whose errors exceed that of the mean of V at these sizes.
ANY_NUMBER = ("WildCat", "Nyström", "FAVOR+", "centroids", "PolySketch", "Based", "support basis")
MEAN = "mean of V"
EXACT = 0.01  # per cent: an exact run with a larger error is refused


def mean_of_v(q: Rows, k: Rows, v: Rows, seed: int) -> Rows:
    """Return the mean of V for every query: the control."""
    return np.repeat(v.mean(axis=0, keepdims=True), len(q), axis=0)


def polynomial(name: str, degree: int) -> Attend:
    """Return our attention at one degree, with a Hermite polynomial per row or the Taylor polynomial."""

    def attend(q: Rows, k: Rows, v: Rows, seed: int) -> Rows:
        with warnings.catch_warnings():  # ignore warnings of too low degrees, whose errors are measured
            warnings.simplefilter("ignore", RuntimeWarning)
            found: Rows = lowrank.attention(
                q, k, v, degree=degree, polynomial=name, scale=1.0, engine=engine()
            )
        return found

    return attend


def neighbour(name: str, m: int) -> Contender:
    """Return a method of `FIELD` with m features."""
    return name, m, lambda q, k, v, seed: FIELD[name](q, k, v, m, np.random.default_rng(seed))


def field(most: int, n: int, d: int = D) -> Iterator[Contender]:
    """Yield the methods with up to `most` features; methods with landmarks have at most n, one per key."""
    yield MEAN, 1, mean_of_v
    for g in range(1, 7):
        if (rank := rank_of(d, g)) <= most:
            yield from ((name, rank, polynomial(kind, g)) for name, kind in POLYNOMIALS.items())
            yield neighbour("SATA", rank)
    for m in COUNTS:
        if m <= min(most, n):
            yield from (neighbour(name, m) for name in ANY_NUMBER)
    yield neighbour("elu + 1", d)


def draw(n: int, spread: float, seed: int) -> Inputs:
    """Draw normal q, k, v (n, 8); the logits q·k have standard deviation `spread`, the values mean 0."""
    q, k, v = np.random.default_rng(seed).standard_normal((3, n, D)).astype(np.float32)
    scale = np.float32(spread**0.5 / D**0.25)
    return q * scale, k * scale, v


def panel(spread: float, plan: Plan) -> list[Row]:
    """Measure every method at one spread of logits, and return the rows."""
    drawn = [draw(plan.panel, spread, seed) for seed in range(plan.seeds)]
    return rows({"spread": spread}, drawn, plan.most_features, plan.seconds / 10)


def head_panel(at: int, plan: Plan) -> list[Row]:
    """Measure every method on one stored head of all-MiniLM-L6-v2, with the scale 1/√d in its queries."""
    layer, head = real_heads()[at]
    stored = real_head(layer, head)
    q = stored.Q / np.float32(stored.Q.shape[1] ** 0.5)
    spread = float((q @ (stored.K - stored.K.mean(axis=0)).T).std())
    about: Row = {"layer": layer, "head": head, "spread": spread}
    drawn = [(q, stored.K, stored.V)] * plan.seeds
    return rows(about, drawn, plan.most_head_features, plan.seconds / 10)


def rows(about: Row, drawn: Sequence[Inputs], most: int, seconds: float) -> list[Row]:
    """Return one row per exact run and method with at most `most` features, with the reason if it is refused.

    multiply_adds: of a forward pass, see `baselines.multiply_adds`; milliseconds also depend on the care of
    an implementation.
    Errors are usual relative errors of O in per cent: the median over seeds, because the errors of FAVOR+
    have heavy tails. Milliseconds are for one forward pass.
    """
    tensors = [[torch.from_numpy(x) for x in inputs] for inputs in drawn]
    right = [sdpa(*(x.double() for x in some)) for some in tensors]
    n, d = drawn[0][0].shape
    about = about | {"n": n, "d": d}
    found: list[Row] = []
    works: dict[int, Work] = {}
    for name, run in exact_runs(tensors[0]).items():
        o = torch.as_tensor(run())[:, :d]  # without padding
        off = relative_error(o, right[0])
        outcome: Row = {"error": off} if off <= EXACT else {"refused": "it is not exact for these logits"}
        works |= {len(found): run} if "error" in outcome else {}
        adds = multiply_adds("exact", n, n, d, d, 1)
        about_run = {"contender": f"exact, {name}", "features": None, "multiply_adds": adds}
        found.append({**about, **about_run, **outcome})
    for name, features, attend in field(most, n, d):
        outcome = error_of(attend, drawn, right)
        works |= {len(found): partial(attend, *drawn[0], 0)} if "error" in outcome else {}
        counted = "low rank" if name in POLYNOMIALS else name
        adds = n * d if name == MEAN else multiply_adds(counted, n, n, d, d, features)
        found.append({**about, "contender": name, "features": features, "multiply_adds": adds, **outcome})
    for at, took in interleaved(works, seconds).items():
        found[at]["ms"] = took.ms
    return found


def error_of(attend: Attend, drawn: Sequence[Inputs], right: Sequence[torch.Tensor]) -> Row:
    """Return the median error over the draws, or the reason why there is none."""
    each = []
    for seed, (inputs, o) in enumerate(zip(drawn, right, strict=True)):
        with np.errstate(all="ignore"):
            try:
                each.append(relative_error(torch.from_numpy(attend(*inputs, seed)), o))
            except lowrank.NotCertified as error:
                return {"refused": str(error)}
    return {"error": median(each)} if np.isfinite(each).all() else {"refused": "its result is not finite"}
