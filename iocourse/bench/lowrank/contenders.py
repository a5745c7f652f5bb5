"""Attention in linear time, several ways, and their error against the number of features, a panel a spread.

A contender is a few lines: O (n, d_v) of softmax(QKᵀ) V from m features. It takes q, k (n, d), v (n, d_v), a
number of features m and a seed; scores are not scaled again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
from torch import Tensor

import iocourse.lowrank as lowrank
from iocourse.bench import Row
from iocourse.lowrank.guards import NotCertified
from iocourse.monomials import rank_of

from .exact_side import sdpa
from .measuring import Plan, interleaved
from .published import relative_error

Contender = Callable[[Tensor, Tensor, Tensor, int, int], Tensor]
D = 8
DEGREES = range(1, 7)
COUNTS = (16, 45, 165, 495, 1287)  # features of those who may have any number
HERMITE, TAYLOR = "Hermite (ours)", "Taylor"
FAVOR, NYSTROM, ELU = "FAVOR+", "Nyström (float64)", "elu + 1"


def linear(left: Tensor, right: Tensor, v: Tensor) -> Tensor:
    """(left rightᵀ) V over the sums of its rows, the n × n product never formed; features (n, m)."""
    found: Tensor = left @ (right.T @ v)
    return found / (left @ right.sum(0))[:, None]


def favor(q: Tensor, k: Tensor, v: Tensor, m: int, seed: int) -> Tensor:
    """Performer's FAVOR+: φ(x) = exp(w·x - |x|²/2) / √m with orthogonal blocks of directions w.

    Source: 2009.14794, positive orthogonal random features.
    """
    W = orthogonal_directions(m, q.shape[1], seed).to(q)
    left, right = (torch.exp(x @ W.T - (x * x).sum(1, keepdim=True) / 2) for x in (q, k))
    return linear(left, right, v)


def orthogonal_directions(m: int, d: int, seed: int) -> Tensor:
    """(m, d): blocks of d orthogonal rows, each as long as a normal vector would be."""
    source = torch.Generator().manual_seed(seed)
    Q, R = torch.linalg.qr(torch.randn(-(-m // d), d, d, generator=source))
    blocks = Q * R.diagonal(dim1=1, dim2=2).sign()[:, None]  # else no direction is as likely as its opposite
    lengths = torch.randn(m, d, generator=source).norm(dim=1)
    return blocks.mT.reshape(-1, d)[:m] * lengths[:, None]


def nystrom(q: Tensor, k: Tensor, v: Tensor, m: int, seed: int) -> Tensor:
    """Landmarks and a pseudo-inverse: exp(Q Lᵀ) exp(L Lᵀ)⁺ exp(L Kᵀ), the landmarks L being m keys by lot.

    Source: Nyströmformer, 2102.03902, whose landmarks are means of neighbouring tokens. Means of independent
    tokens are all alike, so that here they are tokens; and the exponential is approximated before its rows
    are divided, as everybody else's is here. In float64: in float32 the inverse would be the error.
    """
    q, k, v = (x.double() for x in (q, k, v))
    L = k[torch.randperm(len(k), generator=torch.Generator().manual_seed(seed))[:m]]
    middle = torch.linalg.pinv(torch.exp(L @ L.T), hermitian=True, rtol=1e-10)
    return linear(torch.exp(q @ L.T) @ middle, torch.exp(k @ L.T), v)


def elu(q: Tensor, k: Tensor, v: Tensor, m: int, seed: int) -> Tensor:
    """Linear attention: elu + 1 of every entry, d features whatever m is; it is not meant to be softmax.

    Source: Katharopoulos et al., 2006.16236.
    """
    return linear(torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1, v)


def polynomial(name: str, degree: int) -> Contender:
    """Ours at one degree: each row's own Hermite polynomial, or Taylor's."""

    def attend(q: Tensor, k: Tensor, v: Tensor, m: int, seed: int) -> Tensor:
        found: Tensor = lowrank.attention(q, k, v, degree=degree, polynomial=name, scale=1.0)
        return found

    return attend


def draw(n: int, spread: float, seed: int) -> list[Tensor]:
    """q, k, v (n, 8) float32, normal; the logits q·k have this standard deviation, the values have mean 0."""
    source = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, D, generator=source) for _ in range(3))
    scale = spread**0.5 / D**0.25
    return [q * scale, k * scale, v]


def field(most: int) -> Iterator[tuple[str, int, Contender]]:
    """Who takes part, with how many features, up to `most`."""
    for name, kind in ((TAYLOR, "taylor"), (HERMITE, "hermite")):
        for g in DEGREES:
            if rank_of(D, g) <= most:
                yield name, rank_of(D, g), polynomial(kind, g)
    for m in COUNTS:
        if m <= most:
            yield FAVOR, m, favor
            yield NYSTROM, m, nystrom
    yield ELU, D, elu


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
