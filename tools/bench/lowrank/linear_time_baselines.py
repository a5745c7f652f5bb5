"""Comparison of linear-time attention methods: error by number of features and time, one panel per problem.

The problems are normal queries and keys, with one panel per spread of logits, and the stored heads of a real
model. The baselines are those of `iocourse.lowrank.baselines`; ours is `lowrank.attention` at one degree,
including its checks. Exact attention is included, without features and with rounding errors only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isfinite
from statistics import median
from typing import NamedTuple

import numpy as np
import torch

import iocourse.lowrank as lowrank
from iocourse.data.attention_heads import real_head, real_heads
from iocourse.lowrank.baselines import FIELD, Rows
from iocourse.lowrank.error_certificates import NotCertified
from iocourse.monomials import rank_of
from tools.bench import Row
from tools.bench.lowrank.exact_baselines import sdpa
from tools.bench.lowrank.published_protocol import relative_error
from tools.bench.lowrank.timing import Plan, interleaved

Inputs = tuple[Rows, Rows, Rows]  # q, k (n, d), v (n, d_v), float32, scores not scaled again
Work = Callable[[Rows, Rows, Rows, int], Rows]  # the last is a seed
D = 8
DEGREES = range(1, 7)
COUNTS = (16, 45, 165, 495, 1287)  # features of the methods that allow any number
HERMITE, TAYLOR, EXACT = "Hermite (ours)", "Taylor (our passes)", "exact (SDPA)"
POLYNOMIALS = {TAYLOR: "taylor", HERMITE: "hermite"}
ANY_NUMBER = ("WildCat", "Nyström", "FAVOR+")


class Contender(NamedTuple):
    """Name, number of features (None for exact attention), and function of one method."""

    name: str
    features: int | None
    attend: Work


def exact(q: Rows, k: Rows, v: Rows, seed: int) -> Rows:
    """Compute exact attention with PyTorch."""
    found: Rows = sdpa(*(torch.from_numpy(x) for x in (q, k, v))).numpy()
    return found


def polynomial(name: str, degree: int) -> Work:
    """Return our attention at one degree, with a Hermite polynomial per row or the Taylor polynomial."""

    def attend(q: Rows, k: Rows, v: Rows, seed: int) -> Rows:
        with warnings.catch_warnings():  # ignore warnings of too low degrees, whose errors are measured
            warnings.simplefilter("ignore", RuntimeWarning)
            found: Rows = lowrank.attention(q, k, v, degree=degree, polynomial=name, scale=1.0)
        return found

    return attend


def neighbour(name: str, m: int) -> Work:
    """Return a method of `FIELD` with m features."""

    def attend(q: Rows, k: Rows, v: Rows, seed: int) -> Rows:
        return FIELD[name](q, k, v, m, np.random.default_rng(seed))

    return attend


def field(most: int, n: int, d: int = D) -> Iterator[Contender]:
    """Yield the methods with up to `most` features; methods with landmarks have at most n, one per key."""
    yield Contender(EXACT, None, exact)
    for g in DEGREES:
        if (rank := rank_of(d, g)) <= most:
            for name, kind in POLYNOMIALS.items():
                yield Contender(name, rank, polynomial(kind, g))
            yield Contender("SATA", rank, neighbour("SATA", rank))
    for m in COUNTS:
        if m <= min(most, n):
            yield from (Contender(name, m, neighbour(name, m)) for name in ANY_NUMBER)
    yield Contender("elu + 1", d, neighbour("elu + 1", d))


def draw(n: int, spread: float, seed: int) -> Inputs:
    """Draw normal q, k, v (n, 8); the logits q·k have standard deviation `spread`, the values mean 0."""
    q, k, v = np.random.default_rng(seed).standard_normal((3, n, D)).astype(np.float32)
    scale = np.float32(spread**0.5 / D**0.25)
    return q * scale, k * scale, v


def panel(spread: float, plan: Plan) -> list[Row]:
    """Measure every method at one spread of logits, and return the rows."""
    drawn = [draw(plan.panel, spread, seed) for seed in range(plan.seeds)]
    about: Row = {"spread": spread, "n": plan.panel, "d": D}
    return rows(about, drawn, field(plan.most_features, plan.panel), plan.seconds / 10)


def head_panel(at: int, plan: Plan) -> list[Row]:
    """Measure every method on one stored head of all-MiniLM-L6-v2, with the scale 1/√d in its queries."""
    layer, head = real_heads()[at]
    stored = real_head(layer, head)
    n, d = stored.Q.shape
    q = stored.Q / np.float32(d**0.5)
    spread = float((q @ (stored.K - stored.K.mean(axis=0)).T).std())
    about: Row = {"layer": layer, "head": head, "spread": spread, "n": n, "d": d}
    drawn = [(q, stored.K, stored.V)] * plan.seeds
    return rows(about, drawn, field(plan.most_head_features, n, d), plan.seconds / 10)


def rows(about: Row, drawn: Sequence[Inputs], taking_part: Iterator[Contender], seconds: float) -> list[Row]:
    """Return one row per method, with the reason if it is refused.

    Errors are usual relative errors of O in per cent: median, minimum and maximum over seeds. There is no
    mean, because the errors of FAVOR+ have heavy tails. Milliseconds are for one forward pass.
    """
    right = [sdpa(*(torch.from_numpy(x).double() for x in inputs)) for inputs in drawn]
    found: list[Row] = []
    works: dict[int, Callable[[], object]] = {}
    for one in taking_part:
        row = {**about, "contender": one.name, "features": one.features}
        outcome = errors(one, drawn, right)
        if "refused" not in outcome:
            works[len(found)] = partial(one.attend, *drawn[0], 0)
        found.append(row | outcome)
    for at, took in interleaved(works, seconds).items():
        found[at] |= {"ms": took.ms, "repeats": took.repeats}
    return found


def errors(one: Contender, drawn: Sequence[Inputs], right: Sequence[torch.Tensor]) -> Row:
    """Return the median, minimum and maximum error over the draws, or the reason why there is none."""
    each = []
    for seed, (inputs, o) in enumerate(zip(drawn, right, strict=True)):
        with np.errstate(all="ignore"):
            try:
                each.append(relative_error(torch.from_numpy(one.attend(*inputs, seed)), o))
            except NotCertified as error:
                return {"refused": str(error)}
    if not all(map(isfinite, each)):
        return {"refused": "its result is not finite"}
    return {"error": median(each), "least": min(each), "largest": max(each)}
