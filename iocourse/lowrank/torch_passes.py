"""Forward and backward passes of low-rank attention in torch, on any device and for all heads at once.

Q (…, n, d), K (…, n_k, d), V (…, n_k, d_v) have equal leading axes, also of stride 0: only tiles are copied.
The passes are those of `numpy_backend` for one head. They hold the features of one tile of tokens at a time;
no n × rank array is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import torch
from torch import Tensor

from ..monomials import Plan
from .numpy_backend import CAUSAL_TILE, Gradients, slices
from .polynomials import CLIP, Polynomial

FEATURE_WORDS = 1 << 22  # words of one tile of features, over all heads
CPU_WORDS = 1 << 19  # the same on a CPU: several tiles fit in its cache


@dataclass(frozen=True)
class BatchApproximation:
    """`Approximation` for all heads: weights (rank, 1); shift (…, 1, d) and covariance (…, d, d), or None."""

    plan: Plan
    polynomial: Polynomial
    weights: Tensor
    factor: float
    shift: Tensor | None
    covariance: Tensor | None
    fitted: bool = False

    @property
    def causal(self) -> bool:
        return self.shift is None

    def keys(self, K: Tensor) -> Tensor:
        return K if self.shift is None else K - self.shift

    def times_row_factors(self, found: Tensor, x: Tensor) -> Tensor:
        """Multiply the features (…, rank, n) of x (…, n, d) in place by `Approximation.row_factors`.

        With the true scale if attention is causal, because exact terms are added there.
        """
        if self.covariance is None:
            return found
        g, starts, true_scale = self.plan.g, self.plan.starts, self.causal
        variance = ((x @ self.covariance) * x).sum(-1).clamp(max=CLIP)  # (…, n)
        terms = [(-variance / 2) ** m / factorial(m) for m in range(g // 2 + 1)]
        series = torch.stack(terms, -2).cumsum(-2)  # (…, ⌊g/2⌋ + 1, n)
        if true_scale:
            series *= (variance / 2).exp()[..., None, :]
        for degree in range(g + 1 if true_scale else g - 1):  # of the others it is 1
            found[..., starts[degree] : starts[degree + 1], :] *= series[..., None, (g - degree) // 2, :]
        return found


class BatchForward(NamedTuple):
    """`numpy_backend.Forward` for all heads: O (…, n, d_v), den (…, n), T (…, rank, d_v + 1)."""

    O: Tensor
    den: Tensor
    T: Tensor


# ---- features


def features(x: Tensor, p: Plan) -> Tensor:
    """Return the monomials of x (…, n, d): (…, rank, n)."""
    found = x.new_empty(*x.shape[:-2], p.rank, x.shape[-2])
    found[..., 0, :] = 1
    found[..., 1 : p.d + 1, :] = x.mT
    for step in p.steps:
        source = found[..., step.source : step.source + step.last - step.first, :]
        torch.mul(source, x[..., None, :, step.axis], out=found[..., step.first : step.last, :])
    return found


def features_vjp(dfeatures: Tensor, found: Tensor, x: Tensor, p: Plan) -> Tensor:
    """Return the gradient of x (…, n, d) from that of its features, which is overwritten."""
    dx = torch.zeros_like(x)
    # A feature's gradient is complete when all features made from it have passed theirs on.
    for step in reversed(p.steps):
        source = slice(step.source, step.source + step.last - step.first)
        up = dfeatures[..., step.first : step.last, :]
        dx[..., step.axis] += (up * found[..., source, :]).sum(-2)
        dfeatures[..., source, :] += up * x[..., None, :, step.axis]
    return dx + dfeatures[..., 1 : p.d + 1, :].mT


def weights(p: Plan, made: Polynomial, like: Tensor) -> Tensor:
    """Return the weight of each monomial in the polynomial, (rank, 1)."""
    return torch.as_tensor(made.coefficients[p.degrees] * p.multiplicities).to(like)[:, None]


def with_ones(x: Tensor) -> Tensor:
    """Return [x, 1], (…, n, d + 1)."""
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], -1)


def _tile(X: Tensor, rank: int) -> int:
    """Return the number of rows of X (…, n, d) whose features are computed at a time."""
    words, heads = FEATURE_WORDS if X.is_cuda else CPU_WORDS, int(X.shape[:-2].numel())
    return max(64, words // (heads * rank))


def key_covariance(K: Tensor, shift: Tensor) -> Tensor:
    """Return the covariance (…, d, d) of the rows of K (…, n, d) about shift (…, 1, d), tile by tile."""
    n, d = K.shape[-2:]
    tiles = (K[..., rows, :] - shift for rows in slices(n, _tile(K, d)))
    found: Tensor = sum(x.mT @ x for x in tiles) / n
    return found


# ---- steps that the passes share; each takes one tile


def _room(Q: Tensor, V: Tensor, T: Tensor) -> BatchForward:
    """Return a BatchForward with uninitialised O and den, and the state T."""
    return BatchForward(V.new_empty(*Q.shape[:-1], V.shape[-1]), V.new_empty(Q.shape[:-1]), T)


def _divide(f: BatchForward, rows: slice, found: Tensor) -> None:
    """Store O and den of these rows in f, from their [N, den]."""
    f.den[..., rows] = found[..., -1]
    torch.div(found[..., :-1], found[..., -1:], out=f.O[..., rows, :])


def _over_denominators(f: BatchForward, dO: Tensor, rows: slice) -> Tensor:
    """Return [dO, -δ] / den of these rows."""
    g = dO[..., rows, :]
    delta = (g * f.O[..., rows, :]).sum(-1, keepdim=True)
    return torch.cat([g, -delta], -1) / f.den[..., rows, None]


def _queries_back(x: Tensor, T: Tensor, g: Tensor, s: BatchApproximation, U: Tensor | None = None) -> Tensor:
    """Return the gradient of scaled queries x from g = [dO, -δ] / den, and add them to the state U if given.

    At most two arrays of the size of the tile's features exist at a time.
    """
    phi = features(x, s.plan)
    dx = features_vjp(s.times_row_factors(T @ g.mT, x), phi, x, s.plan)
    if U is not None:
        U += s.times_row_factors(phi, x) @ g
    return dx


def _keys_back(U: Tensor, k: Tensor, values: Tensor, s: BatchApproximation) -> tuple[Tensor, Tensor]:
    """Return the gradients of shifted keys k and of `values`, [V, 1], from the weighted state U."""
    psi = features(k, s.plan)
    return features_vjp(U @ values.mT, psi, k, s.plan), psi.mT @ U


# ---- all keys


def key_sums(K: Tensor, V: Tensor, s: BatchApproximation) -> Tensor:
    """Return the state without weights, Σⱼ ψ(kⱼ) [vⱼ, 1]ᵀ, (…, rank, d_v + 1)."""
    T = K.new_zeros(*K.shape[:-2], s.plan.rank, V.shape[-1] + 1)
    for rows in slices(K.shape[-2], _tile(K, s.plan.rank)):
        T += features(s.keys(K[..., rows, :]), s.plan) @ with_ones(V[..., rows, :])
    return T


def forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchApproximation) -> BatchForward:
    """Return `numpy_backend.forward` of all heads."""
    T = key_sums(K, V, s).mul_(s.weights)
    found = _room(Q, V, T)
    for rows in slices(Q.shape[-2], _tile(Q, s.plan.rank)):
        _divide(found, rows, from_state(Q[..., rows, :], T, s))
    return found


def from_state(Q: Tensor, T: Tensor, s: BatchApproximation) -> Tensor:
    """Return [N, den] (…, n, d_v + 1) from the weighted state T, which may have fewer features than s."""
    tiles = (Q[..., rows, :] * s.factor for rows in slices(Q.shape[-2], _tile(Q, s.plan.rank)))
    found = [s.times_row_factors(features(x, s.plan), x)[..., : T.shape[-2], :].mT @ T for x in tiles]
    return torch.cat(found, -2)


def backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchApproximation
) -> Gradients:
    """Return the gradients of all heads, as `numpy_backend.backward` does for one."""
    found = Gradients(*(X.new_empty(X.shape) for X in (Q, K, V)))
    U = torch.zeros_like(f.T)
    for rows in slices(Q.shape[-2], _tile(Q, s.plan.rank)):
        x, g = Q[..., rows, :] * s.factor, _over_denominators(f, dO, rows)
        found.dQ[..., rows, :] = _queries_back(x, f.T, g, s, U) * s.factor
    _all_keys_back(found.dK, found.dV, U.mul_(s.weights), K, V, s)
    return found


def _all_keys_back(dK: Tensor, dV: Tensor, U: Tensor, K: Tensor, V: Tensor, s: BatchApproximation) -> None:
    """Store the gradients of keys K and values V in dK and dV, from the weighted state U."""
    for rows in slices(K.shape[-2], _tile(K, s.plan.rank)):
        k = s.keys(K[..., rows, :])
        dK[..., rows, :], dvalues = _keys_back(U, k, with_ones(V[..., rows, :]), s)
        dV[..., rows, :] = dvalues[..., :-1]


# ---- causal: the queries are the last tokens, and attention is exact within a tile


def _causal_tiles(n: int, n_k: int) -> list[tuple[slice, slice]]:
    """Return the rows of Q and the rows of K of each tile that has queries."""
    before = n_k - n  # keys before the first query
    keys = [
        slice(at, min(at + CAUSAL_TILE, n_k)) for at in range(before - before % CAUSAL_TILE, n_k, CAUSAL_TILE)
    ]
    return [(slice(max(own.start - before, 0), own.stop - before), own) for own in keys]


def _inside(q: Tensor, k: Tensor) -> Tensor:
    """Return exp of the scores within a tile, whose queries are its last tokens; 0 for later keys."""
    return (q @ k.mT).exp().tril(k.shape[-2] - q.shape[-2])


def causal_forward(
    Q: Tensor, K: Tensor, V: Tensor, s: BatchApproximation, T: Tensor | None = None
) -> BatchForward:
    """Return causal attention of all heads, as `numpy_backend.causal_forward` does for one.

    T: state without weights of the tiles before these keys, or None. That of the result includes the complete
    tiles of these keys.
    """
    tiles = _causal_tiles(Q.shape[-2], K.shape[-2])
    first = tiles[0][1].start
    state = key_sums(K[..., :first, :], V[..., :first, :], s)
    if T is not None:
        state += T
    found = _room(Q, V, state)
    for rows, keys in tiles:
        x, k, values = _loaded(Q, K, V, rows, keys, s)
        phi = s.times_row_factors(features(x, s.plan), x)
        _divide(found, rows, phi.mT @ (s.weights * state) + _inside(x, k) @ values)
        if k.shape[-2] == CAUSAL_TILE:
            state += features(k, s.plan) @ values
    return found


def _loaded(
    Q: Tensor, K: Tensor, V: Tensor, rows: slice, keys: slice, s: BatchApproximation
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scaled queries, shifted keys and [V, 1] of a tile."""
    return Q[..., rows, :] * s.factor, s.keys(K[..., keys, :]), with_ones(V[..., keys, :])


def causal_backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchApproximation
) -> Gradients:
    """Return the gradients of all heads, as `numpy_backend.causal_backward` does for one."""
    found = Gradients(*(X.new_empty(X.shape) for X in (Q, K, V)))
    tiles = _causal_tiles(Q.shape[-2], K.shape[-2])
    first = tiles[0][1].start
    T = key_sums(K[..., :first, :], V[..., :first, :], s).mul_(s.weights)
    for rows, keys in tiles:
        x, k, values = _loaded(Q, K, V, rows, keys, s)
        g = _over_denominators(f, dO, rows)
        near = _inside(x, k) * (g @ values.mT)
        found.dQ[..., rows, :] = (_queries_back(x, T, g, s) + near @ k) * s.factor
        T += s.weights * (features(k, s.plan) @ values)
    U = torch.zeros_like(T)
    # In decreasing order, because keys get their gradient from later queries: U is a suffix sum.
    for rows, keys in reversed(tiles):
        x, k, values = _loaded(Q, K, V, rows, keys, s)
        g, near = _over_denominators(f, dO, rows), _inside(x, k)
        dk, dvalues = _keys_back(U, k, values, s)
        found.dK[..., keys, :] = dk + (near * (g @ values.mT)).mT @ x
        found.dV[..., keys, :] = (dvalues + near.mT @ g)[..., :-1]
        U += s.weights * (s.times_row_factors(features(x, s.plan), x) @ g)
    dK, dV, k, v = (X[..., :first, :] for X in (found.dK, found.dV, K, V))
    _all_keys_back(dK, dV, U, k, v, s)
    return found
