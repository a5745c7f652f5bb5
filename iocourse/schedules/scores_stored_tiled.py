"""Forward pass with scores materialised from complete rows of Q, then O in narrow tiles of many rows."""

from __future__ import annotations

from ..costs import best_pair, ceil_div
from ..machine import Machine, SlowArray
from .registry import Outputs, Tiles, schedule
from .scores_stored import scores_stored_tiles, store_scores
from .small_cache import weighted_values


def scores_stored_tiled_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the row block of scores_stored, and the tile of O with the least traffic that fits."""
    Bd, Bo = best_pair(
        lambda Bd, Bo: N * ceil_div(d, Bd) + d * ceil_div(N, Bo),
        extent=d,
        partner=lambda Bd: min(N, (M - Bd) // (Bd + 2)),
    )
    return {**scores_stored_tiles(N, d, M), "Bo": Bo, "Bd": Bd}


@schedule(
    label="F7d",
    pass_="forward",
    regime="d^2/4 <= M <= d^2/2",
    source="a derivation of this course: scores_stored, with its outputs in tiles of the blocked product",
    tiles=scores_stored_tiled_tiles,
)
def scores_stored_tiled(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, Bo: int, Bd: int, lse: bool = False
) -> Outputs:
    """Forward pass in two phases: Q_i resident (K streamed, S stored), then tiles of O (S and V streamed).

    Tiles of O are Bo x Bd. With Bd < d more rows of O are resident, and S is read once per slice. Slow memory
    holds all N x N scores and the log-sum-exp of each row. Safe for scores of any size. Traffic about
    1.5N²d²/M + 3N² words with two slices, exactly `costs.scores_stored_tiled`.
    """
    N, d = Q.shape
    O, S, L = m.new("O", (N, d)), m.new("S", (N, N)), m.new("LSE", (N,))
    with m.phase("scores"):
        for i in m.blocks(N, Br):
            with m.row_stats(i) as stats:  # 2·Br
                store_scores(m, Q, K, S, stats, i, i)
                m.store(stats.lse(), L, i)
    with m.phase("output"):
        for i in m.blocks(N, Bo):
            with m.load(L, i) as log_sums:  # (Bo,)
                for c in m.blocks(d, Bd):
                    weighted_values(m, S, V, O, log_sums, i, i, c)
    return (O, L) if lse else O
