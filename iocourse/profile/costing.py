"""What a launch must move, in bytes: its closed form for an architecture's tiles, and what none can avoid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..costs.closed_form import ceil_div
from ..costs.kernel_masks import BlockLists, PackedSequences
from ..costs.kernels import (
    KernelProblem,
    attention_decode,
    kernel_words,
    row_products,
    sum_ledgers,
    widths_of,
)
from ..errors import UsageError
from ..kernels.host.argument_checks import LARGEST_DECODE, LARGEST_HEAD, LARGEST_WHOLE
from ..kernels.host.block_masks import within_blocks
from ..kernels.host.launches import MOST_PARTS, cut, enough_parts
from ..kernels.host.tile_table import decode_tile, sliced_tiles_for, tiles_for
from ..ledger import Ledger
from .question import LAUNCHES, Question

Tiles = dict[str, tuple[int, ...]]
Bytes = dict[str, Any]


@dataclass(frozen=True)
class Cost:
    """What a launch costs with the tiles of one architecture."""

    asked: Question
    problem: KernelProblem
    tiles: Tiles
    words: Ledger  # by the closed form
    visits: int  # tiles of scores that it meets

    @property
    def bytes(self) -> Bytes:
        """The closed form in bytes."""
        return bytes_of(self.words, widths_of(self.words, self.asked.itemsize))

    @property
    def compulsory(self) -> Bytes:
        """Every input read once and every result written once."""
        p, itemsize = self.problem, self.asked.itemsize
        queries, keys, sums = p.queries * p.d * itemsize, p.keys * p.d * itemsize, 4 * p.queries
        if self.asked.what.endswith("backward"):
            return moved(3 * queries + 2 * keys + sums, 0, queries + 2 * keys)
        return moved(queries + 2 * keys, 0, queries + sums)

    @property
    def chosen(self) -> Tiles:
        """The tiles as `iocourse.kernels.using` takes them."""
        return {name: tile for name, tile in self.tiles.items() if name != "decode"}


def moved(read: int | None, added: int | None, written: int | None) -> Bytes:
    """Bytes one way and the other, and all of them; None: not known. Atomic additions stand apart: a program
    sends each once, and nothing comes back.
    """
    counts = {"read": read, "added": added, "written": written}
    known = [count for count in counts.values() if count is not None]
    return counts | {"total": sum(known) if len(known) == len(counts) else None}


def bytes_of(words: Ledger, widths: Mapping[str, int]) -> Bytes:
    """A ledger in bytes; an addition is one of its reads and one of its writes, and counts once here."""
    read, added, written = (
        sum(count * widths[name] for name, count in counts.items() if count)
        for counts in (words.reads, words.atomics, words.writes)
    )
    return moved(read - added, added, written - added)


def cost(asked: Question, arch: int, processors: int | None = None) -> Cost:
    """What the launch must move with the tiles of an architecture, a row of their table, such as 90.

    Decode is cut to fill `processors`, in four where they are unknown. Raises UsageError where d is too
    large.
    """
    decode = asked.what == "decode"
    largest = LARGEST_DECODE if decode else LARGEST_HEAD if asked.sliced else LARGEST_WHOLE
    if asked.d > largest:
        raise UsageError(f"--d is {asked.d}; allowed with {asked.what}: 1 to {largest}")
    if decode:
        return _decode(asked, _problem(asked), arch, processors)
    p, tiles = _problem(asked), _tiles(asked, arch)
    sizes: dict[str, Any] = {
        name: dict(zip(("BM", "BN", "BD"), tile[:-2], strict=False)) for name, tile in tiles.items()
    }
    rows = max(one["BM"] for one in sizes.values())
    words = [kernel_words(name, p, **one, pad=rows) for name, one in sizes.items()]
    if "row_products_kernel" in LAUNCHES[asked.what].kernels:
        words.append(row_products(p, False, rows, zeros=True))
    return Cost(
        asked, p, tiles, sum_ledgers(*words), sum(_visits(name, p, **one) for name, one in sizes.items())
    )


def _problem(asked: Question) -> KernelProblem:
    rows = 1 if asked.what == "decode" else asked.N
    band = (None, 0 if asked.causal else None)
    sizes = (rows, asked.N, asked.d, *band, asked.batch, asked.heads, asked.kv_heads)
    if asked.what == "packed":
        return PackedSequences(*sizes, tuple((n, n) for n in asked.lengths))
    if asked.what == "block-sparse":
        return BlockLists(*sizes, asked.mask.pairs()[None, None])
    return KernelProblem(*sizes)


def _tiles(asked: Question, arch: int) -> Tiles:
    itemsize = asked.itemsize
    if asked.what == "block-sparse":
        BM, BN, *rest = tiles_for(arch, asked.d, itemsize, listed=True).forward
        return {"forward": (*within_blocks((BM, BN), (asked.mask.Br, asked.mask.Bc)), *rest)}
    if asked.sliced:
        row: Any = sliced_tiles_for(arch, itemsize)
    else:
        measured = None if asked.what == "packed" else asked.causal  # as `operators` launches them
        row = tiles_for(arch, asked.d, itemsize, causal=measured)
    return {name: tuple(getattr(row, name)) for name in LAUNCHES[asked.what].tiles}


def _visits(kernel: str, p: KernelProblem, BM: int, BN: int, BD: int = 0) -> int:
    """Tiles of scores that a kernel meets, each once for every slice of d."""
    if kernel in ("fused", "keys"):
        return ceil_div(p.queries_met(BM, BN), BM)
    met = ceil_div(p.keys_met(BM, BN), BN) * (ceil_div(p.d, BD) if BD else 1)
    return 2 * met if kernel == "sliced_forward" else met


def _decode(asked: Question, p: KernelProblem, arch: int, processors: int | None) -> Cost:
    if asked.parts > MOST_PARTS:
        raise UsageError(f"--parts is {asked.parts}; allowed: 1 to {MOST_PARTS}")
    group = asked.heads // asked.kv_heads
    tile = decode_tile(arch, asked.d, asked.itemsize, group)
    tiles = ceil_div(group, tile.BM)
    programs = asked.batch * asked.kv_heads * tiles
    parts, _ = cut(p.Nk, tile.BN, asked.parts or enough_parts(processors, programs))
    words = attention_decode(p, parts=parts, tiles=tiles)
    visits = programs * (ceil_div(p.Nk, tile.BN) + parts)
    return Cost(replace(asked, parts=parts), p, {"decode": tuple(tile)}, words, visits)
