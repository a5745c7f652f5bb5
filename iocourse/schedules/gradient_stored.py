"""dL/dX with the scores stored: they are made once, and read for O and again for dQ."""

from __future__ import annotations

from ..machine import Block, Machine, Slow, probabilities
from .gradient import gradient_tiles, subtract, times_small, transposed_times
from .registry import Outputs, Tiles, schedule


def gradient_stored_tiles(N: int, d: int, M: int) -> Tiles:
    """What stays takes all of M in each part."""
    return {
        **sides_tiles(N, d, M),
        "Bs": min(N, (M - d) // (d + 3)),
        "Bo": min(N, (M - d) // (d + 2)),
        "Bq": min(N, (M - d) // (2 * d + 3)),
    }


def sides_tiles(N: int, d: int, M: int) -> Tiles:
    """The tiles of Q = A1·X, H = A3·Y and dX = A1ᵀdQ, as `gradient` picks them."""
    picked = gradient_tiles(N, d, M)
    return {name: picked[name] for name in ("Bm", "Bn", "Bg")}


@schedule(
    pass_="gradient",
    lesson=(7, 9, 4),
    regime="d^2 <= M <= 4d^2/3",
    source="a schedule of this course: the scores stored, then dO and dQ stay",
    tiles=gradient_stored_tiles,
)
def gradient_stored(
    m: Machine,
    A1: Slow,
    A2: Slow,
    A3: Slow,
    X: Slow,
    Y: Slow,
    E: Slow,
    *,
    Bm: int,
    Bn: int,
    Bs: int,
    Bo: int,
    Bq: int,
    Bg: int,
) -> Outputs:
    """Q_i stays and S is stored; O_i stays; dO_i, dQ_i stay; dX = A1ᵀdQ. 6N²d²/M + 3N² words.

    Costs `costs.gradient_stored`.
    """
    N, d = A1.shape
    Q, H, dO, dQ = (m.new(name, (N, d)) for name in ("Q", "H", "dO", "dQ"))
    S, LSE, D, dX = m.new("S", (N, N)), m.new("LSE", (N,)), m.new("D", (N,)), m.new("dX", (d, d))
    times_small(m, A1, X, Q, Bm, Bn)
    times_small(m, A3, Y, H, Bm, Bn)
    store_scores(m, Q, A2, S, LSE, Bs)
    store_residuals(m, S, H, E, LSE, dO, D, Bo, d)
    for i in m.blocks(N, Bq):
        _queries_gradient(m, S, A2, H, dO, LSE, D, dQ, i)
    transposed_times(m, A1, dQ, dX, Bg)
    return dX


def store_scores(m: Machine, Q: Slow, K: Slow, S: Slow, LSE: Slow, Bs: int) -> None:
    """S = QKᵀ and the log-sum-exp of its rows: Q_i and the row statistics stay, K passes."""
    N = Q.shape[0]
    for i in m.blocks(N, Bs):
        with m.load(Q, i) as q, m.row_stats(i) as stats:  # (Bs, d), 2·Bs
            for j in m.blocks(N, 1):
                with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Bs, 1)
                    m.store(s, S, i, j)
                    stats.update(s)
            m.store(stats.lse(), LSE, i)


def store_residuals(
    m: Machine, S: Slow, V: Slow, E: Slow, LSE: Slow, dO: Slow, D: Slow, Bo: int, Bd: int
) -> None:
    """O = softmax(S)·V, stored as dO = O - E, and D = rowsum(dO∘O): Bo x Bd tiles of O stay, S and V pass."""
    N, d = V.shape
    for i in m.blocks(N, Bo):
        for c in m.blocks(d, Bd):
            with m.zeros(i, c) as o:  # (Bo, Bd)
                with m.load(LSE, i) as log_sums:  # (Bo,)
                    for j in m.blocks(N, 1):
                        with m.load(S, i, j) as s, m.load(V, j, c) as v:  # (Bo, 1), (1, Bd)
                            o.add_product(probabilities(s, log_sums), v)
                with m.load(D, i) if c.start else m.zeros(i) as products:  # (Bo,), where LSE_i was
                    for column in m.blocks((c.start, c.stop), 1):
                        with m.load(E, i, column) as e:  # (Bo, 1)
                            subtract(e, o[:, column.start - c.start : column.stop - c.start], products)
                    m.store(products, D, i)
                m.store(o, dO, i, c)


def _queries_gradient(
    m: Machine, S: Slow, K: Slow, V: Slow, dO: Slow, LSE: Slow, D: Slow, dQ: Slow, i: Block
) -> None:
    N, d = K.shape
    with m.load(dO, i) as do, m.zeros(i, d) as dq:  # 2 x (Bq, d)
        with m.load(LSE, i) as log_sums, m.load(D, i) as products:  # 2·Bq
            for j in m.blocks(N, 1):
                with m.load(S, i, j) as s:  # (Bq, 1)
                    probabilities(s, log_sums)
                    with m.load(V, j) as v:  # (1, d)
                        s.times_product(do, v.T, less=products)
                    with m.load(K, j) as k:  # (1, d), where v_j was
                        dq.add_product(s, k)
        m.store(dq, dQ, i)
