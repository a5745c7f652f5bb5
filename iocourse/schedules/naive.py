"""Standard attention: the three steps of the formula one after another, S and P in slow memory."""

from __future__ import annotations

import numpy as np

from ..costs import best_pair, ceil_div
from ..machine import Block, Machine, SlowArray
from .registry import Outputs, Tiles, schedule


def naive_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest row block of Q, complete rows of S if they fit, and the best tile of O."""
    Bn, Bm = best_pair(
        lambda Bn, Bm: N * ceil_div(d, Bn) + d * ceil_div(N, Bm),
        extent=d,
        partner=lambda Bn: min(N, (M - Bn) // (Bn + 1)),
    )
    return {"Br": min(N, (M - d) // (d + 1)), "Bc": min(N, M - 2), "Bm": Bm, "Bn": Bn}


@schedule(
    label="F0",
    pass_="forward",
    regime="every M",
    source="the definition; blocked products, softmax row by row",
    tiles=naive_tiles,
)
def naive(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    *,
    Br: int,
    Bc: int,
    Bm: int,
    Bn: int,
    lse: bool = False,
) -> Outputs:
    """Compute S = QKᵀ/√d, P = softmax(S) and O = PV one after another.

    Traffic: `costs.naive`, of which 4N² words are for S and P.
    """
    N, d = Q.shape
    S, P, O = m.new("S", (N, N)), m.new("P", (N, N)), m.new("O", (N, d))
    with m.phase("scores"):
        for i in m.blocks(N, Br):
            _scores(m, Q, K, S, i)
    L = m.new("LSE", (N,)) if lse else None
    with m.phase("softmax"):
        for i in m.blocks(N, 1):
            _softmax_row(m, S, P, L, i, Bc)
    with m.phase("output"):
        for i in m.blocks(N, Bm):
            for c in m.blocks(d, Bn):
                _output_tile(m, P, V, O, i, c)
    return O if L is None else (O, L)


def _scores(m: Machine, Q: SlowArray, K: SlowArray, S: SlowArray, i: Block) -> None:
    N, d = Q.shape
    with m.load(Q, i) as q:  # (Br, d)
        q *= d**-0.5
        for j in m.blocks(N, 1):
            with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Br, 1)
                m.store(s, S, i, j)


def _softmax_row(m: Machine, S: SlowArray, P: SlowArray, L: SlowArray | None, i: Block, Bc: int) -> None:
    N = S.shape[1]
    with m.row_stats(i) as stats:  # 2
        if Bc >= N:  # the row is kept between its two uses and read once
            with m.load(S, i) as s:  # (1, N)
                stats.update(s)
                stats.normalise(s)
                m.store(s, P, i)
        else:
            for j in m.blocks(N, Bc):
                with m.load(S, i, j) as s:  # (1, Bc)
                    stats.update(s)
            for j in m.blocks(N, Bc):
                with m.load(S, i, j) as s:  # (1, Bc)
                    s -= stats.m[:, None]
                    np.exp(s, out=s)  # type: ignore[call-overload]  # NumPy's types lack Tile
                    stats.normalise(s)
                    m.store(s, P, i, j)
        if L is not None:
            m.store(stats.lse(), L, i)


def _output_tile(m: Machine, P: SlowArray, V: SlowArray, O: SlowArray, i: Block, c: Block) -> None:
    with m.zeros(i, c) as o:  # (Bm, Bn)
        for j in m.blocks(P.shape[1], 1):
            with m.load(P, i, j) as p, m.load(V, j, c) as v:  # (Bm, 1), (1, Bn)
                o.add_matmul(p, v)
        m.store(o, O, i, c)
