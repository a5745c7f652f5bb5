"""What a launch must move, in bytes: its closed form for an architecture's tiles, and what no launch can
avoid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..costs import kernels as costs
from ..costs.each_kernel import widths_of
from ..costs.kernels import Problem
from ..costs.pairs import Listed, PackedSequences
from ..costs.parts import ceil_div
from ..costs.sliced_kernels import scores_forward, sliced_forward
from ..kernels.host.arguments import LARGEST_DECODE, LARGEST_HEAD, LARGEST_WHOLE
from ..kernels.host.block_masks import within_blocks
from ..kernels.host.launches import MOST_PARTS, cut, enough_parts
from ..kernels.host.tiles import decode_tile, sliced_tiles_for, tiles_for
from ..ledger import Ledger
from ..refusal import Refused
from . import LAUNCHES
from .question import Question


@dataclass(frozen=True)
class Bytes:
    """Bytes one way and the other. Atomic additions stand apart: a program sends each once, and nothing comes
    back.
    """

    read: int
    added: int
    written: int

    @property
    def total(self) -> int:
        """All three."""
        return self.read + self.written + self.added

    def facts(self) -> dict[str, int]:
        """As JSON holds it."""
        return asdict(self) | {"total": self.total}


@dataclass(frozen=True)
class Cost:
    """A launch with the tiles of one architecture: its words by the closed form, its bytes, and how many
    tiles of scores it meets.
    """

    asked: Question
    problem: Problem
    tiles: dict[str, tuple[int, ...]]
    words: Ledger
    compulsory: Bytes
    visits: int

    @property
    def bytes(self) -> Bytes:
        """The closed form in bytes."""
        return bytes_of(self.words, widths_of(self.words, self.asked.itemsize))


def bytes_of(words: Ledger, widths: Mapping[str, int]) -> Bytes:
    """A ledger in bytes; an addition is one of its reads and one of its writes, and counts once here."""

    def moved(counts: Mapping[str, int]) -> int:
        return sum(count * widths[name] for name, count in counts.items() if count)

    added = moved(words.atomics)
    return Bytes(moved(words.reads) - added, added, moved(words.writes) - added)


def cost(asked: Question, arch: int, processors: int | None = None) -> Cost:
    """What the launch must move with the tiles of an architecture.

    Args:
        asked: the launch.
        arch: a row of the tile table, such as 90.
        processors: multiprocessors that decode is to fill; None: unknown, and it takes four parts.

    Raises:
        Refused: the head is too large for these kernels.
    """
    _check_head(asked)
    problem = _problem(asked)
    if asked.what == "decode":
        return _decode(asked, problem, arch, processors)
    tiles = _tiles(asked, arch)
    words, visits = _closed_form(asked, problem, tiles)
    return Cost(asked, problem, tiles, words, _compulsory(asked, problem), visits)


def _check_head(asked: Question) -> None:
    largest = LARGEST_DECODE if asked.what == "decode" else LARGEST_WHOLE
    if asked.sliced:
        largest = LARGEST_HEAD
    if asked.d > largest:
        raise Refused(f"--d is {asked.d}; allowed with {asked.what}: 1 to {largest}")


def _problem(asked: Question) -> Problem:
    high = 0 if asked.causal else None
    shared = (asked.batch, asked.heads, asked.kv_heads)
    if asked.what == "decode":
        return Problem(1, asked.N, asked.d, None, None, *shared)
    if asked.what == "packed":
        lengths = tuple((n, n) for n in asked.lengths)
        return PackedSequences(asked.N, asked.N, asked.d, None, high, *shared, lengths)
    if asked.what == "block-sparse":
        return Listed(asked.N, asked.N, asked.d, None, None, *shared, asked.mask.pairs()[None, None])
    return Problem(asked.N, asked.N, asked.d, None, high, *shared)


def _tiles(asked: Question, arch: int) -> dict[str, tuple[int, ...]]:
    itemsize = asked.itemsize
    if asked.what == "block-sparse":
        BM, BN, *rest = tiles_for(arch, asked.d, itemsize, listed=True).forward
        return {"forward": (*within_blocks((BM, BN), (asked.mask.Br, asked.mask.Bc)), *rest)}
    row = sliced_tiles_for(arch, itemsize) if asked.sliced else tiles_for(arch, asked.d, itemsize)
    return {name: tuple(getattr(row, name)) for name in LAUNCHES[asked.what].tiles}


def _closed_form(asked: Question, p: Problem, tiles: dict[str, tuple[int, ...]]) -> tuple[Ledger, int]:
    """Words, and tiles of scores met, each once for every slice of d."""
    every = list(tiles.values())
    first, last = every[0], every[-1]
    BM, BN = first[:2]
    rows = ceil_div(p.keys_met(BM, BN), BN)
    if asked.what == "fused-backward":
        return costs.attention_fused_backward(p, BM=BM, BN=BN), ceil_div(p.queries_met(BM, BN), BM)
    if asked.what == "split-backward":
        words = costs.attention_split_backward(p, queries=(BM, BN), keys=(last[0], last[1]))
        return words, rows + ceil_div(p.queries_met(*last[:2]), last[0])
    if asked.what == "small-cache-fused":
        return sliced_forward(p, BM=BM, BN=BN), 2 * rows * ceil_div(p.d, first[2])
    if asked.what == "small-cache-materialised":
        words = scores_forward(p, scores=(BM, BN), averages=(last[0], last[1], last[2]))
        averages = ceil_div(p.keys_met(*last[:2]), last[1]) * ceil_div(p.d, last[2])
        return words, rows * ceil_div(p.d, first[2]) + averages
    return costs.attention_forward(p, BM=BM, BN=BN), rows


def _decode(asked: Question, p: Problem, arch: int, processors: int | None) -> Cost:
    group = asked.heads // asked.kv_heads
    tile = decode_tile(arch, asked.d, asked.itemsize, group)
    tiles = ceil_div(group, tile.BM)
    programs = asked.batch * asked.kv_heads * tiles
    parts, _ = cut(p.Nk, tile.BN, _allowed(asked.parts) or enough_parts(processors, programs))
    words = costs.attention_decode(p, parts=parts, tiles=tiles)
    visits = programs * (ceil_div(p.Nk, tile.BN) + parts)
    chosen = {"decode": tuple(tile)}
    return Cost(asked.with_parts(parts), p, chosen, words, _compulsory(asked, p), visits)


def _allowed(parts: int) -> int:
    if parts > MOST_PARTS:
        raise Refused(f"--parts is {parts}; allowed: 1 to {MOST_PARTS}")
    return parts


def _compulsory(asked: Question, p: Problem) -> Bytes:
    """Every input read once and every result written once."""
    queries, keys = p.queries * p.d * asked.itemsize, p.keys * p.d * asked.itemsize
    sums = 4 * p.queries
    if asked.what.endswith("backward"):
        return Bytes(read=3 * queries + 2 * keys + sums, added=0, written=queries + 2 * keys)
    return Bytes(read=queries + 2 * keys, added=0, written=queries + sums)


def chosen(cost: Cost) -> dict[str, Any]:
    """The tiles as `iocourse.kernels.using` takes them."""
    return {name: tile for name, tile in cost.tiles.items() if name != "decode"}
