"""The same passes in torch, for many heads at once and on any device: Q (H, n, d), K (H, n_k, d), V (H, n_k,
d_v).

Features of one tile of tokens exist at a time; nothing of size n × rank is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import torch
from torch import Tensor

from ...monomials import Plan
from ...solution_guard import library_solution
from ..numpy_backend import CAUSAL_TILE, slices
from ..polynomials import CLIP, Polynomial

FEATURE_WORDS = 1 << 22  # of one tile of features, over all heads
CPU_WORDS = 1 << 19  # where several of them lie in a cache


@dataclass(frozen=True)
class BatchSetting:
    """As `Setting`, for H heads: weights (rank, 1), shift (H, 1, d) or None, covariance (H, d, d) or None."""

    plan: Plan
    polynomial: Polynomial
    weights: Tensor
    factor: float
    shift: Tensor | None
    covariance: Tensor | None

    def keys(self, K: Tensor) -> Tensor:
        return K if self.shift is None else K - self.shift

    def times_row_factors(self, found: Tensor, x: Tensor, true_scale: bool = False) -> Tensor:
        """The features (H, rank, n) of x (H, n, d) times `Setting.row_factors`, in place."""
        if self.covariance is None:
            return found
        g, starts = self.plan.g, self.plan.starts
        variance = ((x @ self.covariance) * x).sum(-1).clamp(max=CLIP)  # (H, n)
        terms = [(-variance / 2) ** m / factorial(m) for m in range(g // 2 + 1)]
        series = torch.stack(terms, 1).cumsum(1)  # (H, ⌊g/2⌋ + 1, n)
        if true_scale:
            series *= (variance / 2).exp()[:, None]
        for degree in range(g + 1 if true_scale else g - 1):  # of the others it is 1
            found[:, starts[degree] : starts[degree + 1]] *= series[:, None, (g - degree) // 2]
        return found


class BatchForward(NamedTuple):
    """O (H, n, d_v), den (H, n), T (H, rank, d_v + 1)."""

    O: Tensor
    den: Tensor
    T: Tensor


def features(x: Tensor, p: Plan) -> Tensor:
    """The monomials of x (H, n, d): (H, rank, n)."""
    found = x.new_empty(len(x), p.rank, x.shape[1])
    found[:, 0] = 1
    found[:, 1 : p.d + 1] = x.mT
    for step in p.steps:
        source = found[:, step.source : step.source + step.last - step.first]
        torch.mul(source, x[:, None, :, step.axis], out=found[:, step.first : step.last])
    return found


@library_solution
def features_vjp(dfeatures: Tensor, found: Tensor, x: Tensor, p: Plan) -> Tensor:
    """The gradient of x (H, n, d) from that of its features, which is used up."""
    dx = torch.zeros_like(x)
    for step in reversed(p.steps):
        source = slice(step.source, step.source + step.last - step.first)
        up = dfeatures[:, step.first : step.last]
        dx[:, :, step.axis] += (up * found[:, source]).sum(1)
        dfeatures[:, source] += up * x[:, None, :, step.axis]
    return dx + dfeatures[:, 1 : p.d + 1].mT


def _with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)


def _over_denominators(f: BatchForward, dO: Tensor, rows: slice) -> Tensor:
    """[dO, -δ] / den of these rows."""
    g = dO[:, rows]
    return torch.cat([g, -(g * f.O[:, rows]).sum(-1, keepdim=True)], -1) / f.den[:, rows, None]


def _room(Q: Tensor, V: Tensor, T: Tensor) -> BatchForward:
    """O and den, which are not yet known, and T."""
    n = Q.shape[1]
    return BatchForward(V.new_empty(len(Q), n, V.shape[-1]), V.new_empty(len(Q), n), T)


def _divide(f: BatchForward, rows: slice, found: Tensor) -> None:
    """O and den of these rows, from their [N, den]."""
    f.den[:, rows] = found[..., -1]
    torch.div(found[..., :-1], found[..., -1:], out=f.O[:, rows])


def _tile(Q: Tensor, rank: int) -> int:
    words = FEATURE_WORDS if Q.is_cuda else CPU_WORDS
    return max(64, words // (len(Q) * rank))


def covariance(K: Tensor, shift: Tensor) -> Tensor:
    """(H, d, d): of the rows of K (H, n, d) about shift (H, 1, d), tile by tile."""
    n, d = K.shape[1:]
    tiles = (K[:, rows] - shift for rows in slices(n, _tile(K, d)))
    found: Tensor = sum(x.mT @ x for x in tiles) / n
    return found


@library_solution
def forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchSetting) -> BatchForward:
    """As `passes.forward`, for every head."""
    tile = _tile(Q, s.plan.rank)
    T = Q.new_zeros(len(Q), s.plan.rank, V.shape[-1] + 1)
    for rows in slices(K.shape[1], tile):
        T += features(s.keys(K[:, rows]), s.plan) @ _with_ones(V[:, rows])
    T *= s.weights
    found = _room(Q, V, T)
    for rows in slices(Q.shape[1], tile):
        x = Q[:, rows] * s.factor
        _divide(found, rows, s.times_row_factors(features(x, s.plan), x).mT @ T)
    return found


@library_solution
def backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchSetting
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV, as `passes.backward`, for every head."""
    tile = _tile(Q, s.plan.rank)
    dQ, dK, dV = torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)
    U = torch.zeros_like(f.T)
    for rows in slices(Q.shape[1], tile):
        dQ[:, rows] = _queries_back(U, Q[:, rows] * s.factor, f.T, _over_denominators(f, dO, rows), s)
    U *= s.weights
    for rows in slices(K.shape[1], tile):
        dK[:, rows], dV[:, rows] = _keys_back(U, s.keys(K[:, rows]), V[:, rows], s)
    return dQ, dK, dV


def _queries_back(U: Tensor, x: Tensor, T: Tensor, g: Tensor, s: BatchSetting) -> Tensor:
    """dQ of a tile of scaled queries x, from g = [dO, -δ] / den; what they add to U is added.

    Two arrays as large as the tile's features are alive at a time: each is made, changed and used up here.
    """
    phi = features(x, s.plan)
    dx = features_vjp(s.times_row_factors(T @ g.mT, x), phi, x, s.plan)
    U += s.times_row_factors(phi, x) @ g
    return dx * s.factor


def _keys_back(U: Tensor, x: Tensor, values: Tensor, s: BatchSetting) -> tuple[Tensor, Tensor]:
    """dK and dV of a tile of shifted keys x."""
    psi = features(x, s.plan)
    return features_vjp(U @ _with_ones(values).mT, psi, x, s.plan), (psi.mT @ U)[..., :-1]


def _inside(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mT).exp().tril()


@library_solution
def causal_forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchSetting) -> BatchForward:
    """As `passes.causal_forward`, for every head."""
    T = Q.new_zeros(len(Q), s.plan.rank, V.shape[-1] + 1)
    found = _room(Q, V, T)
    for rows in slices(Q.shape[1], CAUSAL_TILE):
        x, k, values = Q[:, rows] * s.factor, s.keys(K[:, rows]), _with_ones(V[:, rows])
        phi = s.times_row_factors(features(x, s.plan), x, true_scale=True)
        _divide(found, rows, phi.mT @ T + _inside(x, k) @ values)
        T += s.weights * (features(k, s.plan) @ values)
    return found


@library_solution
def causal_backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchSetting
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV, as `passes.causal_backward`, for every head."""
    dQ, dK, dV = torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)
    tiles = slices(Q.shape[1], CAUSAL_TILE)
    T, U = torch.zeros_like(f.T), torch.zeros_like(f.T)
    for rows in tiles:
        x, k, values = Q[:, rows] * s.factor, s.keys(K[:, rows]), _with_ones(V[:, rows])
        g = _over_denominators(f, dO, rows)
        far = s.times_row_factors(T @ g.mT, x, true_scale=True)
        near = _inside(x, k) * (g @ values.mT)
        dQ[:, rows] = (features_vjp(far, features(x, s.plan), x, s.plan) + near @ k) * s.factor
        T += s.weights * (features(k, s.plan) @ values)
    for rows in reversed(tiles):
        x, k, values = Q[:, rows] * s.factor, s.keys(K[:, rows]), _with_ones(V[:, rows])
        near, psi, g = _inside(x, k), features(k, s.plan), _over_denominators(f, dO, rows)
        dV[:, rows] = (psi.mT @ U + near.mT @ g)[..., :-1]
        dK[:, rows] = features_vjp(U @ values.mT, psi, k, s.plan) + (near * (g @ values.mT)).mT @ x
        phi = s.times_row_factors(features(x, s.plan), x, true_scale=True)
        U += s.weights * (phi @ g)
    return dQ, dK, dV
