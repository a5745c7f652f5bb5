"""Closed forms of the low-rank Triton kernels: what their loads and stores move, in words.

With one block of features for the whole state of a head, a pass reads each token once: the forward pass
moves Nd + Ndv for K and V, Nd for Q and Ndv for O, which is 4Nd where dv = d, and besides it N denominators
and the states, whose number is that of the spans and not of the tokens. With k blocks the first pass reads K
and V k times, and the second reads the state once for each tile of queries.

Causal, each span has a state of its own, of the tokens before it: its r(dv + 1) words are read once for each
block of queries, and read and written once more for each tile of TOKENS tokens that is added to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..ledger import Ledger
from ..monomials import rank_of
from ..sizes import plain_ints, positive_int
from .each_kernel import Counts, added, ledger_of
from .parts import ceil_div

TOKENS = 64  # of a causal tile, within which attention is exact
FLOAT32 = ("den", "parts", "state", "states", "T", "variance", "shift", "weights", "coordinates")  # or int32


class Block(Protocol):
    """Rows of a tile and features of a block."""

    @property
    def rows(self) -> int: ...
    @property
    def features(self) -> int: ...


class Tiles(Protocol):
    """As `iocourse.lowrank.tensors.launched.LowRankTiles`."""

    @property
    def state(self) -> Block: ...
    @property
    def output(self) -> Block: ...
    @property
    def gradient(self) -> Block: ...


@dataclass(frozen=True)
class LowRank:
    """Nq queries and N keys of d coordinates, dv columns of V, degree g, for B batches of H heads.

    variance: whether every query brings its own σ². shift: whether something is taken off every key.
    """

    n_q: int
    n_k: int
    d: int
    dv: int
    g: int
    B: int = 1
    H: int = 1
    variance: bool = False
    shift: bool = False

    def __post_init__(self) -> None:
        plain_ints(self)

    @property
    def rank(self) -> int:
        """C(d + g, g)."""
        return rank_of(self.d, self.g)

    @property
    def state(self) -> int:
        """Words of a head's state."""
        return self.rank * (self.dv + 1)

    def blocks(self, features: int) -> int:
        """k: how many blocks of so many features the state is cut into."""
        return ceil_div(self.rank, positive_int("features", features))


def spans_of(n: int, rows: int, asked: int) -> int:
    """Into how many spans of whole tiles n rows are cut, where `asked` are wanted; 1 at least."""
    tiles = max(1, ceil_div(n, positive_int("rows", rows)))
    length = ceil_div(tiles, min(positive_int("spans", asked), tiles)) * rows
    return max(1, ceil_div(n, length))


def low_rank_forward(p: LowRank, *, tiles: Tiles, spans: int) -> Ledger:
    """O, its denominators and the state: three launches.

    Args:
        p: the sizes.
        tiles: rows and features of each kernel.
        spans: into how many stretches tokens are cut at most; sums over tokens
            leave rank / 2 rows at least to each.
    """
    parts = _spans_of_sums(p, p.n_k, tiles.state.rows, spans)
    keys = _parts(p, tiles.state, parts, _keys(p, p.n_k) | _shift(p, parts))
    programs = spans_of(p.n_q, tiles.output.rows, spans)
    query_side = {"Q": p.n_q * p.d} | _variance(p, p.n_q) | _state("state", p, p.n_q, tiles.output, programs)
    queries = ledger_of(query_side, {"O": p.n_q * p.dv, "den": p.n_q})
    return _of_heads(p, added(keys, _sum(p, parts), queries))


def low_rank_backward(p: LowRank, *, tiles: Tiles, spans: int) -> Ledger:
    """dQ, dK and dV: three launches, or four where the state is cut into blocks.

    For one block 4Nd + 4Ndv + N words and the states: Q, O, dO, den, K and V once; dQ, dK, dV once. With k
    blocks the query side, 2Ndv + Nd + N, is read 1 + k' times, k' = blocks of `state`.
    """
    tile = tiles.gradient
    single = p.blocks(tile.features) == 1
    parts = _spans_of_sums(p, p.n_q, (tile if single else tiles.state).rows, spans)
    rows = _queries(p, p.n_q) | _variance(p, p.n_q)
    passes = [] if single else [_parts(p, tiles.state, parts, rows)]
    programs = parts if single else spans_of(p.n_q, tile.rows, spans)
    writes = {"dQ": p.n_q * p.d} | ({"parts": parts * p.state} if single else {})
    passes.append(ledger_of(rows | _state("T", p, p.n_q, tile, programs), writes))
    passes.append(_sum(p, parts))
    programs = spans_of(p.n_k, tile.rows, spans)
    keys = _keys(p, p.n_k) | _shift(p, programs)
    keys |= _state("state", p, p.n_k, tile, programs)
    passes.append(ledger_of(keys, {"dK": p.n_k * p.d, "dV": p.n_k * p.dv}))
    return _of_heads(p, added(*passes))


def causal_low_rank_forward(p: LowRank, *, tiles: Tiles, spans: int) -> Ledger:
    """O and its denominators under the causal mask, n_q = n_k: three launches, or one for a single span.

    Args as of `low_rank_forward`; spans are whole tiles of TOKENS tokens.
    """
    walk, met, _ = _walk(p, tiles.output)
    added_again = p.blocks(tiles.output.features) * p.n_k
    reads = {"Q": p.n_q * p.d} | _variance(p, p.n_q) | _keys(p, met + added_again)
    output = ledger_of(reads, {"O": p.n_q * p.dv, "den": p.n_q})
    return _of_heads(p, added(*_before(p, tiles.state, spans, _keys(p, p.n_k)), walk, output))


def causal_low_rank_backward(p: LowRank, *, tiles: Tiles, spans: int) -> Ledger:
    """dQ, dK and dV under the causal mask: six launches, or two for a single span."""
    walk, met, meeting = _walk(p, tiles.gradient)
    again = p.blocks(tiles.gradient.features)
    rows = _queries(p, p.n_q) | _variance(p, p.n_q)
    by_queries = ledger_of(rows | _keys(p, met + again * p.n_k), {"dQ": p.n_q * p.d})
    reads = _keys(p, p.n_k) | _queries(p, meeting + again * p.n_q) | _variance(p, again * p.n_q)
    by_keys = ledger_of(reads, {"dK": p.n_k * p.d, "dV": p.n_k * p.dv})
    before, after = (_before(p, tiles.state, spans, side) for side in (_keys(p, p.n_k), rows))
    return _of_heads(p, added(*before, walk, by_queries, *after, walk, by_keys))


def low_rank_bytes(ledger: Ledger, itemsize: int) -> int:
    """Bytes of such a ledger, with `itemsize` bytes for a number of Q, K and V."""
    counts = [*ledger.reads.items(), *ledger.writes.items()]
    return sum(words * (4 if name in FLOAT32 else itemsize) for name, words in counts)


def _walk(p: LowRank, tile: Block) -> tuple[Ledger, int, int]:
    """What states cost on the way over all tiles; rows of keys that blocks of queries meet in their own tile;
    and rows of queries that blocks of keys meet.
    """
    lengths = [TOKENS] * (p.n_q // TOKENS) + [p.n_q % TOKENS] * (p.n_q % TOKENS > 0)
    blocks = [ceil_div(length, tile.rows) for length in lengths]
    earlier = sum(tile.rows * m * (m - 1) // 2 for m in blocks)
    later = sum(m * length for m, length in zip(blocks, lengths, strict=True)) - earlier - p.n_q
    times = sum(blocks) + len(lengths)
    reads = {"states": times * p.state, "coordinates": times * p.g * p.rank, "weights": len(lengths) * p.rank}
    return ledger_of(reads, {"states": len(lengths) * p.state}), earlier + p.n_q, later + p.n_q


def _before(p: LowRank, tile: Block, asked: int, rows: Counts) -> list[Ledger]:
    """Each span's state of the tokens before it, from these rows; nothing to do for a single span."""
    spans = _spans_of_sums(p, p.n_q, TOKENS, asked)
    if spans == 1:
        return []
    reads = {"parts": (spans - 1) * p.state, "weights": p.rank}
    return [_parts(p, tile, spans, rows), ledger_of(reads, {"states": spans * p.state})]


def _parts(p: LowRank, tile: Block, spans: int, rows: Counts) -> Ledger:
    """A state for each span, of these rows, which are read once for each block of features."""
    again = p.blocks(tile.features)
    reads = {name: again * words for name, words in rows.items()} | {"coordinates": spans * p.g * p.rank}
    return ledger_of(reads, {"parts": spans * p.state})


def _keys(p: LowRank, rows: int) -> Counts:
    return {"K": rows * p.d, "V": rows * p.dv}


def _queries(p: LowRank, rows: int) -> Counts:
    """What gradients ask of queries."""
    return {"Q": rows * p.d, "O": rows * p.dv, "dO": rows * p.dv, "den": rows}


def _spans_of_sums(p: LowRank, n: int, rows: int, spans: int) -> int:
    """Spans of a sum over n tokens: no more than leave each rank / 2 of them, lest parts outweigh tokens."""
    return spans_of(n, rows, max(1, min(spans, n // max(1, p.rank // 2))))


def _state(name: str, p: LowRank, n: int, tile: Block, programs: int) -> Counts:
    """A state and the table of its features: once a program where it is one block, else once a tile."""
    times = programs if p.blocks(tile.features) == 1 else ceil_div(n, tile.rows)
    return {name: times * p.state, "coordinates": times * p.g * p.rank}


def _sum(p: LowRank, parts: int) -> Ledger:
    return ledger_of({"parts": parts * p.state, "weights": p.rank}, {"state": p.state})


def _shift(p: LowRank, programs: int) -> Counts:
    return {"shift": programs * p.d} if p.shift else {}


def _variance(p: LowRank, rows: int) -> Counts:
    return {"variance": rows} if p.variance else {}


def _of_heads(p: LowRank, one: Ledger) -> Ledger:
    """A head's ledger, for all of them."""
    heads = p.B * p.H
    reads, writes = ({name: heads * w for name, w in part.items()} for part in (one.reads, one.writes))
    return ledger_of(reads, writes)
