"""Tied attention (K = V = X): the loop order of flash_optimal, reading X once per row block."""

from __future__ import annotations

from ..machine import Machine, SlowArray
from .registry import Outputs, Tiles, schedule


def shared_key_value_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest Br that fits with one row of X: ⌊(M - d)/(2d + 3)⌋, as in flash_optimal."""
    return {"Br": min(N, (M - d) // (2 * d + 3))}


@schedule(
    pass_="tied",
    regime="keys are values: K = V = X",
    source="a derivation of this course: flash_optimal with a row of X used as key and as value",
    tiles=shared_key_value_tiles,
)
def shared_key_value(m: Machine, Q: SlowArray, X: SlowArray, *, Br: int, lse: bool = False) -> Outputs:
    """Compute O = softmax(QXᵀ/√d) X with resident Q_i and O_i; each row of X serves as key and as value.

    Traffic about 2N²d²/M words, half of that with separate K and V; exactly `costs.shared_key_value`.
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), (Br, d), 2·Br
            q *= d**-0.5
            for j in m.blocks(N, 1):
                with m.load(X, j) as x, q @ x.T as s:  # (1, d), (Br, 1)
                    stats.update(s, o)
                    o.add_matmul(s, x)
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    return O if L is None else (O, L)
