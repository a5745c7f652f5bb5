"""Forward pass with scores materialised: Q_i, later O_i is resident, so row blocks are twice as large."""

from __future__ import annotations

from ..machine import Block, Machine, RowStats, SlowArray
from .registry import Outputs, Tiles, schedule
from .small_cache import weighted_values


def scores_stored_tiles(N: int, d: int, M: int) -> Tiles:
    """Return the largest Br that fits with one key: ⌊(M - d)/(d + 3)⌋, about twice that of flash_optimal."""
    return {"Br": min(N, (M - d) // (d + 3))}


@schedule(
    label="F7",
    pass_="forward",
    regime="d^2/2 <= M <= d^2",
    source="a derivation of this course: rows of Q, then of O are resident, with raw scores stored between",
    tiles=scores_stored_tiles,
)
def scores_stored(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, lse: bool = False
) -> Outputs:
    """Forward pass in two steps per row block: Q_i resident (K streamed, S_i stored), then O_i (S_i, V).

    The row statistics are resident in both; slow memory holds Br x N raw scores at a time. Safe for scores of
    any size. Traffic about 2N²d²/M + 2N² words, exactly `costs.scores_stored`.
    """
    N, d = Q.shape
    O, S = m.new("O", (N, d)), m.new("S", (min(Br, N), N))
    L = m.new("LSE", (N,)) if lse else None
    for i in m.blocks(N, Br):
        with m.row_stats(i) as stats:  # 2·Br
            store_scores(m, Q, K, S, stats, i, (0, i.size))
            log_sums = stats.lse()
            stats.l.free()  # the weights need only LSE_i
            weighted_values(m, S, V, O, log_sums, i, (0, i.size), (0, d))
            if L is not None:
                m.store(log_sums, L, i)
    return O if L is None else (O, L)


def store_scores(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    S: SlowArray,
    stats: RowStats,
    i: Block,
    rows: Block | tuple[int, int],
) -> None:
    """Store QᵢKᵀ/√d in `rows` of S, one key at a time, and update `stats` with it.

    Uses Br·(d + 1) + d words of fast memory in addition to `stats`.
    """
    N, d = K.shape
    with m.load(Q, i) as q:  # (Br, d)
        q *= d**-0.5
        for j in m.blocks(N, 1):
            with m.load(K, j) as k, q @ k.T as s:  # (1, d), (Br, 1)
                m.store(s, S, rows, j)
                stats.update(s)
