"""Gradient dL/dX with one resident array at a time: the scores are stored and later overwritten by dS."""

from __future__ import annotations

from ..costs import best_pair, ceil_div
from ..machine import Block, Machine, SlowArray, probabilities
from .gradient import loss_gradient_and_delta
from .gradient_dp_materialised import sides_tiles
from .registry import Outputs, Tiles, schedule
from .standard_backward import output_tile, product


def gradient_scores_materialised_tiles(N: int, d: int, M: int) -> Tiles:
    """Return tile sizes with which the resident arrays fill fast memory, and the best tiles of O and dQ."""
    Bd, Bo = best_pair(
        lambda Bd, Bo: (N + 3) * ceil_div(d, Bd) + d * ceil_div(N, Bo),
        d,
        lambda Bd: min(N, (M - Bd) // (Bd + 2)),
    )
    gradient_of_queries = output_tile(N, d, M, "Bq")
    return {
        **sides_tiles(N, d, M),
        "Bs": min(N, (M - d) // (d + 3)),
        "Bo": Bo,
        "Bd": Bd,
        "Bq": gradient_of_queries["Bq"],
        "Be": gradient_of_queries["Bd"],
    }


@schedule(
    pass_="gradient",
    regime="d^2/4 <= M <= d^2",
    source="a schedule of this course: the scores stored, then dS over them",
    tiles=gradient_scores_materialised_tiles,
)
def gradient_scores_materialised(
    m: Machine,
    A1: SlowArray,
    A2: SlowArray,
    A3: SlowArray,
    X: SlowArray,
    Y: SlowArray,
    E: SlowArray,
    *,
    Bm: int,
    Bn: int,
    Bs: int,
    Bo: int,
    Bd: int,
    Bq: int,
    Be: int,
    Bg: int,
) -> Outputs:
    """Gradient dX in passes with one resident array: Q_i (stores S), O, dO_i (dS replaces S), dQ.

    Traffic about 4N²d²/M + 5N² words, and (2 + 2/k)N²d²/M + (3 + 2k)N² with tiles of O and dQ that are d/k
    wide; exactly `costs.gradient_scores_materialised`.
    """
    N, d = A1.shape
    Q, H, dO, dQ = (m.new(name, (N, d)) for name in ("Q", "H", "dO", "dQ"))
    S, LSE, D, dX = m.new("S", (N, N)), m.new("LSE", (N,)), m.new("D", (N,)), m.new("dX", (d, d))
    product(m, A1, X, Q, Bm, Bn)
    product(m, A3, Y, H, Bm, Bn)
    _store_scores(m, Q, A2, S, LSE, Bs)
    _store_residuals(m, S, H, E, LSE, dO, D, Bo, Bd)
    for i in m.blocks(N, Bs):
        _scores_gradient(m, dO, H, S, LSE, D, i)
    product(m, S, A2, dQ, Bq, Be)
    product(m, A1, dQ, dX, Bg, Bg, transposed=True)
    return dX


def _store_scores(m: Machine, Q: SlowArray, K: SlowArray, S: SlowArray, LSE: SlowArray, Bs: int) -> None:
    """Store S = QKᵀ and the log-sum-exp of its rows: Q_i and the row statistics are resident, K streamed."""
    N = Q.shape[0]
    for i in m.blocks(N, Bs):
        with m.load(Q, i) as q, m.row_stats(i) as stats:  # (Bs, d), 2·Bs
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Bs, 1)
                    m.store(s, S, i, j)  # raw, because later keys can raise the maximum
                    stats.update(s)
            m.store(stats.lse(), LSE, i)


def _store_residuals(
    m: Machine,
    S: SlowArray,
    V: SlowArray,
    E: SlowArray,
    LSE: SlowArray,
    dO: SlowArray,
    D: SlowArray,
    Bo: int,
    Bd: int,
) -> None:
    """Compute O = softmax(S)·V by resident Bo x Bd tiles; store dO = O - E and D = rowsum(dO∘O)."""
    N, d = V.shape
    for i in m.blocks(N, Bo):
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:  # (Bo, Bd)
                with m.load(LSE, i) as log_sums:  # (Bo,)
                    for j in m.blocks(N, 1):
                        with m.load(S, i, j) as s, m.load(V, j, c) as v:  # (Bo, 1), (1, Bd)
                            o.add_matmul(probabilities(s, log_sums), v)
                # D_i is a sum over all columns of O_i, so each tile adds its part.
                with m.load(D, i) if c.start else m.zeros(i) as products:  # (Bo,), in the words of LSE_i
                    for column in m.blocks((c.start, c.stop), 1):
                        with m.load(E, i, column) as e:  # (Bo, 1)
                            loss_gradient_and_delta(
                                e, o[:, column.start - c.start : column.stop - c.start], products
                            )
                    m.store(products, D, i)
                m.store(o, dO, i, c)


def _scores_gradient(
    m: Machine, dO: SlowArray, V: SlowArray, S: SlowArray, LSE: SlowArray, D: SlowArray, i: Block
) -> None:
    with m.load(dO, i) as do, m.load(LSE, i) as log_sums, m.load(D, i) as products:  # (Bs, d), 2·Bs
        for j in m.blocks(V.shape[0], 1):
            with m.load(S, i, j) as s, m.load(V, j) as v:  # (Bs, 1), (1, d)
                probabilities(s, log_sums)
                s.multiply_by_matmul(do, v.T, less=products)
                m.store(s, S, i, j)
