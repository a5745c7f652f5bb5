"""SquareTilingAttention (Saha and Ye): square blocks, for M below d²."""

from __future__ import annotations

from math import isqrt

import numpy as np

from .. import costs
from ..machine import Block, Machine, SlowArray, Tile
from .registry import Outputs, Tiles, schedule


def square_tiling_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest square block that fits with a slice of Q and of K: about √(M/3)."""
    return {"B": costs.largest_square(costs.square_tiling, N, d, M)}


def published_tiles(N: int, d: int, M: int) -> Tiles:
    """Return B = ⌊√(M/4)⌋, as in 2402.07443."""
    return {"B": min(max(N, d), isqrt(M // 4))}


@schedule(
    label="F4",
    pass_="forward",
    regime="M < d^2",
    source="Saha and Ye, 2402.07443, Algorithm 1",
    tiles=square_tiling_tiles,
    published=published_tiles,
    safe=False,
)
def square_tiling(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, B: int, lse: bool = False
) -> Outputs:
    """Forward pass: store A = exp(S) block by block with its row sums D, then compute O = AV / D.

    No maximum is subtracted, so scores above about 700 overflow. Traffic: `costs.square_tiling`, about
    4√3N²d/√M + N² words with the largest square that fits and 8N²d/√M + N² with the published one.
    """
    N, d = Q.shape
    A, D, O = m.new("A", (N, N)), m.new("D", (N,)), m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, B):
        with m.zeros(i) as total:  # (B,)
            for j in m.blocks(N, B):
                _exponentials(m, Q, K, A, total, i, j, B)
            m.store(total, D, i)
            if L is not None:
                np.log(total, out=total)  # type: ignore[call-overload]  # NumPy's types lack Tile
                m.store(total, L, i)
    for i in m.blocks(N, B):
        with m.load(D, i) as total:
            for c in m.blocks(d, B):
                _outputs(m, A, V, O, total, i, c, B)
    return O if L is None else (O, L)


def _exponentials(
    m: Machine, Q: SlowArray, K: SlowArray, A: SlowArray, total: Tile, i: Block, j: Block, B: int
) -> None:
    with m.zeros(i, j) as a:  # (B, B)
        for c in m.blocks(Q.shape[1], B):
            with m.load(Q, i, c) as q, m.load(K, j, c) as k:  # (B, B), (B, B)
                q *= Q.shape[1] ** -0.5
                a.add_matmul(q, k.T)
        np.exp(a, out=a)  # type: ignore[call-overload]
        m.store(a, A, i, j)
        with a.sum(axis=1) as row:  # (B,), in the words that q and k used
            total += row


def _outputs(
    m: Machine, A: SlowArray, V: SlowArray, O: SlowArray, total: Tile, i: Block, c: Block, B: int
) -> None:
    with m.zeros(i, c) as o:  # (B, B)
        for j in m.blocks(V.shape[0], B):
            with m.load(A, i, j) as a, m.load(V, j, c) as v:  # (B, B), (B, B)
                o.add_matmul(a, v)
        o /= total[:, None]
        m.store(o, O, i, c)
