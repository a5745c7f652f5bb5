"""flash_optimal with resident keys: keys and values in the words that its row blocks do not use."""

from __future__ import annotations

from ..costs import best_sizes, ceil_div
from ..machine import Block, Machine, RowStats, SlowArray, Tile
from .registry import Outputs, Tiles, schedule


def resident_keys_tiles(N: int, d: int, M: int) -> Tiles:
    """Return Br and the number of places for keys with the least traffic that fit.

    Tries balanced row blocks of each number, each with as many places as fit. The result usually has as many
    row blocks as flash_optimal; it has the tiles of flash_optimal if no key can be kept.
    """

    def places(Br: int) -> tuple[int]:
        room = M - Br * (2 * d + 3)
        return (N + 1 if room >= 2 * N * d else min(N, (room + d) // (2 * d)),)

    def rows_read(Br: int, places: int) -> int:
        kept = places - 1
        return kept + (N - kept) * ceil_div(N, Br)

    Br, most = best_sizes(rows_read, extent=N, others=places)
    return {"Br": Br, "places": most}


@schedule(
    label="F3c",
    pass_="forward",
    regime="few row blocks: M near 2Nd and below",
    source="a derivation of this course: flash_optimal, with resident keys and values in its unused words",
    tiles=resident_keys_tiles,
)
def resident_keys(
    m: Machine, Q: SlowArray, K: SlowArray, V: SlowArray, *, Br: int, places: int, lse: bool = False
) -> Outputs:
    """Forward pass with C = places - 1 keys and values resident for the complete run, Q_i and O_i per block.

    The other keys are streamed through the last place, one at a time. With places > N all keys are resident;
    with places = 1 it is `flash_optimal`. A resident key saves 2d words in each row block except the first.
    Traffic: `costs.resident_keys`.
    """
    N, d = Q.shape
    C = min(places - 1, N)
    O = m.new("O", (N, d))
    L = m.new("LSE", (N,)) if lse else None
    kept = (m.load(K, (0, C)), m.load(V, (0, C))) if C else ()  # (C, d), (C, d)
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:  # (Br, d), (Br, d), 2·Br
            q *= d**-0.5
            if kept:
                _take_in_kept(m, q, o, stats, *kept)
            if C < N:
                _take_in_passing(m, q, o, stats, K, V, (C, N))
            stats.normalise(o)
            m.store(o, O, i)
            if L is not None:
                m.store(stats.lse(), L, i)
    for tile in kept:
        tile.free()
    return O if L is None else (O, L)


def _take_in_kept(m: Machine, q: Tile, o: Tile, stats: RowStats, keys: Tile, values: Tile) -> None:
    """Update the statistics and o with the resident keys, one at a time, so that scores use only Br words."""
    for j in m.blocks(len(keys), 1):
        with q @ keys[_rows(j)].T as s:  # (Br, 1)
            stats.update(s, o)
            o.add_matmul(s, values[_rows(j)])


def _rows(j: Block) -> slice:
    return slice(j.start, j.stop)


def _take_in_passing(
    m: Machine, q: Tile, o: Tile, stats: RowStats, K: SlowArray, V: SlowArray, passing: tuple[int, int]
) -> None:
    for j in m.blocks(passing, 1):
        with m.load(K, j) as k:  # (1, d)
            s = q @ k.T  # (Br, 1)
        with s, m.load(V, j) as v:  # (1, d), in the words that K_j used
            stats.update(s, o)
            o.add_matmul(s, v)
