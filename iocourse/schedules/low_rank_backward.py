"""Backward pass of low-rank attention, with two states: T from keys to queries, U from queries to keys.

The forward pass stores T = ψ(K)ᵀ[1, V], (r, d + 1). Each query computes its gradient from T and adds its part
to U = φ(Q)ᵀ[-D, dO]/l, of the same shape; each key computes its gradients from U.
If both states fit, two passes suffice: each row of Q, dO, K and V is read once, 7Nd words and T. Otherwise
the states are processed tile by tile, T first.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import factorial

import numpy as np

from .. import costs, exact
from ..costs import distinct_sizes
from ..exact import Array
from ..machine import Block, Features, Machine, SlowArray, Tile
from ..monomials import features, plan, rank_of
from ..sizes import Shape
from .low_rank import averages, columns_of_values, listed_features, require_features_that_can_be_listed
from .registry import Approximates, ForwardExtras, Outputs, Tiles, schedule


def low_rank_backward_tiles(N: int, d: int, M: int, g: int) -> Tiles:
    """Return complete states if they fit, otherwise the best tile; tries each width with its largest rc."""
    r = rank_of(d, g)
    whole = {"rc": r, "Bd": d + 1}
    if costs.low_rank_backward(1, d, g=g, **whole).peak <= M:
        return whole

    def tile(Bd: int) -> Tiles:
        return {"rc": min(r - (Bd > d), (M - 2 * d - Bd) // Bd), "Bd": Bd}

    fitting = [tile(Bd) for Bd in distinct_sizes(d + 1) if M - 2 * d - Bd >= Bd]
    return min(fitting, key=lambda picked: costs.low_rank_backward(N, d, g=g, **picked).total)


def polynomial_gradient(a: Mapping[str, Array], *, g: int) -> tuple[Array, ...]:
    """Return dQ, dK, dV of Σ dO∘O, where O = p(QKᵀ/√d)V / row sums and p is the Taylor polynomial of exp."""
    Q, K, V, dO = (a[name] for name in ("Q", "K", "V", "dO"))
    S, scale = exact.scores(Q, K), Q.shape[1] ** -0.5
    slopes = sum((S**l / factorial(l) for l in range(1, g)), start=S**0)  # (N, N): p' has one degree less
    weights = slopes + S**g / factorial(g)
    l = weights.sum(axis=1, keepdims=True)  # (N, 1)
    P, dP = weights / l, dO @ V.T
    dS = slopes / l * (dP - (P * dP).sum(axis=1, keepdims=True))  # (N, N)
    return scale * dS @ K, scale * dS.T @ Q, P.T @ dO


def state_shape(N: int, d: int, *, g: int) -> dict[str, Shape]:
    """Return {"T": (r, d + 1)}, the shape of the state that the forward pass stores."""
    return {"T": (rank_of(d, g), d + 1)}


def state_left(a: Mapping[str, Array], *, g: int) -> dict[str, Array]:
    """Return T = ψ(K)ᵀ[1, V], (r, d + 1), with the features in the order of `listed_features`."""
    p = plan(a["K"].shape[1], g)
    weights = p.multiplicities / np.array([factorial(l) for l in range(g + 1)])[p.degrees]  # (r,): 1/a!
    ones = np.ones((len(a["V"]), 1))
    return {"T": weights[:, None] * (features(a["K"], p) @ np.hstack([ones, a["V"]]))}


def low_rank_backward_note(N: int, d: int, M: int, g: int) -> str:
    """Return a remark with the rank and the number of tiles of the states for M."""
    picked, r = low_rank_backward_tiles(N, d, M, g), rank_of(d, g)
    if _whole(r, d, **picked):
        return f"rank {r}: both states of {r * (d + 1)} words fit"
    pieces = costs.ceil_div(r, picked["rc"]) * costs.ceil_div(d + 1, picked["Bd"])
    return f"rank {r}: each state of {r * (d + 1)} words in {pieces} tiles"


def _whole(r: int, d: int, *, rc: int, Bd: int) -> bool:
    return rc >= r and Bd > d


@schedule(
    pass_="backward",
    regime="bounded scores, N above the rank",
    source="a schedule of this course, after Liang and others, 2408.13233; Taylor features",
    tiles=low_rank_backward_tiles,
    note=low_rank_backward_note,
    approximates=Approximates(
        "the gradient of dense attention with the same polynomial", polynomial_gradient
    ),
    forward_extras=ForwardExtras(state_shape, state_left),
)
def low_rank_backward(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    dO: SlowArray,
    T: SlowArray,
    *,
    g: int,
    rc: int,
    Bd: int,
) -> Outputs:
    """Low-rank backward pass: dQ from T while U accumulates over the queries, then dK and dV from U.

    Row sums and D are recomputed from T, in the first pass if the states are complete, otherwise in a
    separate pass. Degrees as for `low_rank`. Traffic: `costs.low_rank_backward`, 7Nd words and T if both
    states fit.
    """
    require_features_that_can_be_listed(Q.shape[1], g, rc)
    dQ, dK, dV = (m.new(name, Q.shape) for name in ("dQ", "dK", "dV"))
    if _whole(T.shape[0], Q.shape[1], rc=rc, Bd=Bd):
        _in_two_sweeps(m, Q, K, V, dO, T, dQ, dK, dV, g)
    else:
        _tile_by_tile(m, Q, K, V, dO, T, dQ, dK, dV, g, rc, Bd)
    return dQ, dK, dV


def _in_two_sweeps(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    dO: SlowArray,
    T: SlowArray,
    dQ: SlowArray,
    dK: SlowArray,
    dV: SlowArray,
    g: int,
) -> None:
    d, p, c = Q.shape[1], Block(0, T.shape[0]), Block(0, T.shape[1])
    phi, scale = listed_features(d, g, p), d**-0.5
    with m.zeros(p, c) as u:  # (r, d + 1)
        with m.load(T, p) as t:  # (r, d + 1)
            for i in m.blocks(Q.shape[0], 1):
                with m.load(Q, i) as q, _gradient_of_sums(m, dO, i, phi, q, t, scale) as ge:  # (1, d + 1)
                    with m.zeros(i, d) as dq:
                        phi.add_gradient(dq, q, t, ge)
                        dq *= scale
                        m.store(dq, dQ, i)
                    phi.add_outer(u, q, ge)
        # T is freed here, because the keys need only U.
        _answer_keys(m, K, V, dK, dV, u, listed_features(d, g, p, weighted=True), c, p)


def _gradient_of_sums(
    m: Machine, dO: SlowArray, i: Block, phi: Features, q: Tile, t: Tile, scale: float
) -> Tile:
    """Scale q and return [-D_i, dO_i]/l_i (1, d + 1), the gradient with respect to [l_i, N_i] = φ(q_i)T.

    It overwrites the tile of [l_i, N_i].
    """
    q *= scale
    ge = m.zeros(1, t.shape[1])
    phi.add_matmul(ge, q, t)
    with m.load(dO, i) as do, m.zeros(i) as D:  # (1, d), (1,)
        D.add_row_dots(do, ge[:, 1:])
        D /= ge[:, 0]  # D_i = dO_i·N_i/l_i
        D /= ge[:, 0]  # the gradient of l_i is -D_i/l_i
        D *= -1.0
        ge[:, 1:] = do
        ge[:, 1:] /= ge[:, :1]
        ge[:, 0] = D
    return ge


def _tile_by_tile(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, dO: SlowArray, T: SlowArray, dQ: SlowArray, dK:
        SlowArray, dV: SlowArray,
    g: int, rc: int, Bd: int,
) -> None:  # fmt: skip
    (N, d), (r, columns) = Q.shape, T.shape
    l, D = m.new("l", (N,)), m.new("D", (N,))
    # Every gradient needs l and D, which are complete only after the last tile of T.
    for c in m.blocks(columns, Bd):
        for p in m.blocks(r, rc):
            with m.load(T, p, c) as t:  # (rc, Bd)
                _make_sums(m, Q, dO, l, D, t, listed_features(d, g, p), c, p)
    for c in m.blocks(columns, Bd):
        for p in m.blocks(r, rc):
            phi = listed_features(d, g, p)
            with m.load(T, p, c) as t:
                _answer_queries(m, Q, dO, dQ, l, D, t, phi, c, p)
            with m.zeros(p, c) as u:  # (rc, Bd)
                _take_in_queries(m, Q, dO, l, D, u, phi, c)
                _answer_keys(m, K, V, dK, dV, u, listed_features(d, g, p, weighted=True), c, p)


def _make_sums(
    m: Machine,
    Q: SlowArray,
    dO: SlowArray,
    l: SlowArray,
    D: SlowArray,
    t: Tile,
    phi: Features,
    c: Block,
    p: Block,
) -> None:
    """Accumulate row sums l (first columns of T) and D_i = dO_i·N_i/l_i (divided after the last tile)."""
    for i in m.blocks(Q.shape[0], 1):
        with m.load(Q, i) as q:  # (1, d)
            q *= Q.shape[1] ** -0.5
            if c.first:
                with m.zeros(i) if p.first else m.load(l, i) as total:  # (1,)
                    phi.add_matmul(total[:, None], q, t[:, :1])
                    m.store(total, l, i)
            if averages(c):
                n = m.zeros(i, columns_of_values(c))  # (1, Bd), one less in the tile of row sums
                phi.add_matmul(n, q, t[:, int(c.first) :])
        # q is freed here, so that dO_i can use its words.
        with m.zeros(i) if c.first and p.first else m.load(D, i) as products:  # (1,)
            if averages(c):
                with n, m.load(dO, i, columns_of_values(c)) as do:  # (1, Bd)
                    products.add_row_dots(do, n)
            if c.last and p.last:
                with m.load(l, i) as total:
                    products /= total
            m.store(products, D, i)


def _answer_queries(
    m: Machine,
    Q: SlowArray,
    dO: SlowArray,
    dQ: SlowArray,
    l: SlowArray,
    D: SlowArray,
    t: Tile,
    phi: Features,
    c: Block,
    p: Block,
) -> None:
    """Add the part of tile t to dQ, for every query."""
    for i in m.blocks(Q.shape[0], 1):
        with m.load(Q, i) as q:  # (1, d)
            q *= Q.shape[1] ** -0.5
            parts = _gradient_parts(m, dO, l, D, t, i, c)
            with m.zeros(i, Q.shape[1]) if c.first and p.first else m.load(dQ, i) as dq:  # (1, d)
                for columns, ge in parts:
                    phi.add_gradient(dq, q, columns, ge.reshape(1, -1))
                    ge.free()
                if c.last and p.last:
                    dq *= Q.shape[1] ** -0.5
                m.store(dq, dQ, i)


def _take_in_queries(
    m: Machine, Q: SlowArray, dO: SlowArray, l: SlowArray, D: SlowArray, u: Tile, phi: Features, c: Block
) -> None:
    for i in m.blocks(Q.shape[0], 1):
        with m.load(Q, i) as q:  # (1, d)
            q *= Q.shape[1] ** -0.5
            for columns, ge in _gradient_parts(m, dO, l, D, u, i, c):
                phi.add_outer(columns, q, ge.reshape(1, -1))
                ge.free()


def _gradient_parts(
    m: Machine, dO: SlowArray, l: SlowArray, D: SlowArray, state: Tile, i: Block, c: Block
) -> list[tuple[Tile, Tile]]:
    """Return pairs: columns of a state, and the entries of [-D_i, dO_i]/l_i for them, (1,) or (1, Bd)."""
    parts = []
    with m.load(l, i) as total:  # (1,)
        if c.first:
            products = m.load(D, i)  # (1,)
            products /= total
            products *= -1.0
            parts.append((state[:, :1], products))
        if averages(c):
            do = m.load(dO, i, columns_of_values(c))  # (1, Bd)
            do /= total[:, None]
            parts.append((state[:, int(c.first) :], do))
    return parts


def _answer_keys(
    m: Machine,
    K: SlowArray,
    V: SlowArray,
    dK: SlowArray,
    dV: SlowArray,
    u: Tile,
    psi: Features,
    c: Block,
    p: Block,
) -> None:
    """Add the part of tile u to dK and dV, for every key."""
    for j in m.blocks(K.shape[0], 1):
        with m.load(K, j) as k:  # (1, d)
            with m.zeros(j, K.shape[1]) if c.first and p.first else m.load(dK, j) as dk:  # (1, d)
                if c.first:
                    with m.full(1, 1, 1.0) as one:
                        psi.add_gradient(dk, k, u[:, :1], one)
                if averages(c):
                    with m.load(V, j, columns_of_values(c)) as v:  # (1, Bd)
                        psi.add_gradient(dk, k, u[:, int(c.first) :], v)
                m.store(dk, dK, j)
            if averages(c):
                with (
                    m.zeros(j, columns_of_values(c)) if p.first else m.load(dV, j, columns_of_values(c)) as dv
                ):
                    psi.add_matmul(dv, k, u[:, int(c.first) :])
                    m.store(dv, dV, j, columns_of_values(c))
