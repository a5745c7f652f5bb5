"""Error against the number of features, one panel a spread of logits: ours beside other linear attentions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from iocourse.lowrank.guards import NotCertified
from iocourse.monomials import rank_of

from . import _lowrank_contenders as others
from ._lowrank_clock import interleaved
from ._lowrank_exact import sdpa
from ._lowrank_plan import Plan
from ._published import relative_error

Row = dict[str, Any]
D = 8
DEGREES = range(1, 7)
COUNTS = (16, 45, 165, 495, 1287)  # features of those who may have any number
HERMITE, TAYLOR = "Hermite (ours)", "Taylor"
FAVOR, NYSTROM, ELU = "FAVOR+", "Nyström (float64)", "elu + 1"


def draw(n: int, spread: float, seed: int) -> list[Tensor]:
    """q, k, v (n, 8) float32, normal; the logits q·k have this standard deviation, the values have mean 0."""
    source = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, D, generator=source) for _ in range(3))
    scale = spread**0.5 / D**0.25
    return [q * scale, k * scale, v]


def field(most: int) -> Iterator[tuple[str, int, others.Contender]]:
    """Who takes part, with how many features, up to `most`."""
    for name, polynomial in ((TAYLOR, "taylor"), (HERMITE, "hermite")):
        for g in DEGREES:
            if rank_of(D, g) <= most:
                yield name, rank_of(D, g), others.polynomial(polynomial, g)
    for m in COUNTS:
        if m <= most:
            yield FAVOR, m, others.favor
            yield NYSTROM, m, others.nystrom
    yield ELU, D, others.elu


def panel(spread: float, plan: Plan) -> list[Row]:
    """Every contender at one spread of logits; who is refused keeps the reason.

    Errors are usual relative ones of O, in per cent: their median over seeds, the least and the largest; a
    mean would be that of the worst draw, FAVOR+ having heavy tails. Milliseconds are those of one forward
    pass.
    """
    drawn = [draw(plan.panel, spread, seed) for seed in range(plan.seeds)]
    exact = [sdpa(q.double(), k.double(), v.double()) for q, k, v in drawn]
    rows: list[Row] = []
    works: dict[int, Callable[[], object]] = {}
    for name, m, attend in field(plan.most_features):
        row: Row = {"spread": spread, "contender": name, "features": m, "n": plan.panel, "d": D}
        try:
            found = [attend(q, k, v, m, seed) for seed, (q, k, v) in enumerate(drawn)]
        except NotCertified as error:
            rows.append(row | {"refused": str(error)})
            continue
        errors = [relative_error(x, o) for x, o in zip(found, exact, strict=True)]
        q, k, v = drawn[0]
        works[len(rows)] = partial(attend, q, k, v, m, 0)
        rows.append(row | {"error": median(errors), "least": min(errors), "largest": max(errors)})
    for at, took in interleaved(works, plan.seconds / 10).items():
        rows[at] |= {"ms": took.ms, "repeats": took.repeats}
    return rows
