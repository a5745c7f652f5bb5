"""Gradient of low-rank attention in the notation of paper 2408.13233, computed in three equivalent ways.

The paper writes attention of X (n, d) as f h with f = D⁻¹ exp(X W Xᵀ), h = X W_V. For any loss with
G = dL/dO it defines p = p₁ - p₂, p₁ = f ∘ q, q = G hᵀ, p₂ = diag(p₁ 1) f. Then

    dW = Xᵀ p X,   dX = p X Wᵀ + pᵀ X W + fᵀ G W_Vᵀ,   dW_V = Xᵀ fᵀ G.

Low rank: f = Φ Ψᵀ with Φ = φ(q) / den and Ψ = w ∘ ψ(k), both (n, r). Since p₁ 1 = Σ G ∘ O =: δ along a row,
with one more column of ones p is a row-wise Kronecker (Khatri–Rao) product of rank r (d_v + 1):

    p = (Φ ⊘ [G, -δ]) (Ψ ⊘ [V, 1])ᵀ.

`kronecker` forms these products, n × r (d_v + 1) numbers, as the paper does. `associative` reorders the sum
so that none is formed. The Jacobian form of `numpy_backend.backward` differentiates the features instead. Its
degree g corresponds to degree g - 1 of these two, because a feature of degree g - 1 times a coordinate is a
feature of degree g.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..monomials import Array, features
from .approximation import Approximation
from .numpy_backend import Gradients, forward, with_ones


class Factors(NamedTuple):
    """Factors of p = (Φ ⊘ Ge)(Ψ ⊘ Ve)ᵀ: Phi (n, r), Psi (n_k, r), Ge (n, d_v + 1), Ve (n_k, d_v + 1)."""

    Phi: Array
    Psi: Array
    Ge: Array
    Ve: Array


class PaperGradients(NamedTuple):
    """Gradients of the inputs and parameters: dX (n, d_x), dW (d_x, d_x), dW_V (d_x, d_v)."""

    dX: Array
    dW: Array
    dW_V: Array


def kronecker_factors(Q: Array, K: Array, V: Array, dO: Array, s: Approximation) -> Factors:
    """Return the four matrices whose row-wise Kronecker products give p; they store n × r numbers."""
    f = forward(Q, K, V, s)
    x = s.queries(Q)
    Phi = (features(x, s.plan) * s.row_factors(x)).T / f.den[:, None]
    Psi = (features(s.keys(K), s.plan) * s.weights(Q)).T
    delta = (dO * f.O).sum(1, keepdims=True)
    return Factors(Phi, Psi, np.concatenate([dO, -delta], axis=1), with_ones(V))


def row_wise_kronecker(A: Array, B: Array) -> Array:
    """Return the Kronecker product of each row of A (n, a) with the same row of B (n, b): (n, a b)."""
    return (A[:, :, None] * B[:, None, :]).reshape(len(A), -1)


def kronecker(Q: Array, K: Array, V: Array, dO: Array, s: Approximation) -> Gradients:
    """Return dQ, dK, dV by forming the row-wise Kronecker products, 2 n r (d_v + 1) numbers."""
    f = kronecker_factors(Q, K, V, dO, s)
    left, right = row_wise_kronecker(f.Phi, f.Ge), row_wise_kronecker(f.Psi, f.Ve)
    dQ = left @ (right.T @ s.keys(K)) * s.factor
    dK = right @ (left.T @ s.queries(Q))
    return Gradients(dQ, dK, f.Psi @ (f.Phi.T @ dO))


def associative(Q: Array, K: Array, V: Array, dO: Array, s: Approximation) -> Gradients:
    """Return dQ, dK, dV column by column of [G, -δ] and [V, 1], without forming the Kronecker products."""
    f = kronecker_factors(Q, K, V, dO, s)
    x, k = s.queries(Q), s.keys(K)
    dQ, dK = np.zeros_like(Q), np.zeros_like(K)
    for g, v in zip(f.Ge.T[:, :, None], f.Ve.T[:, :, None], strict=True):
        dQ += g * (f.Phi @ (f.Psi.T @ (v * k))) * s.factor
        dK += v * (f.Psi @ (f.Phi.T @ (g * x)))
    return Gradients(dQ, dK, f.Psi @ (f.Phi.T @ dO))


def in_paper_notation(X: Array, W: Array, W_V: Array, G: Array, s: Approximation) -> PaperGradients:
    """Return dX, dW, dW_V of a loss with gradient G = dL/dO, for scores X W Xᵀ and values X W_V.

    The queries are X W and the keys X, without a further scale. So p X = dQ and dW = Xᵀ dQ; dX is the sum of
    the contributions of queries, keys and values.
    """
    from .numpy_backend import backward

    Q, V = X @ W, X @ W_V
    found = backward(Q, X, V, forward(Q, X, V, s), G, s)
    return PaperGradients(found.dQ @ W.T + found.dK + found.dV @ W_V.T, X.T @ found.dQ, X.T @ found.dV)
