"""Bytes that a launch moves: the closed form for the tiles of an architecture, and the compulsory bytes."""

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
from ..kernels.host.checks import LARGEST_DECODE, LARGEST_HEAD, LARGEST_WHOLE
from ..kernels.host.launches import MOST_PARTS, enough_parts, split_keys
from ..kernels.host.masks import within_blocks
from ..kernels.host.tile_table import decode_tile, sliced_tiles_for, tiles_for
from ..ledger import Ledger
from . import LAUNCHES, LaunchRequest

Tiles = dict[str, tuple[int, ...]]
Bytes = dict[str, Any]


@dataclass(frozen=True)
class LaunchCost:
    """Traffic of a launch with the tiles of one architecture."""

    request: LaunchRequest
    problem: KernelProblem
    tiles: Tiles
    words: Ledger  # by the closed form

    @property
    def bytes(self) -> Bytes:
        """Bytes by the closed form: read, added, written and total."""
        return ledger_in_bytes(self.words, widths_of(self.words, self.request.itemsize))

    @property
    def compulsory(self) -> Bytes:
        """Compulsory bytes: every input read once and every result written once."""
        p, itemsize = self.problem, self.request.itemsize
        queries, keys, sums = p.queries * p.d * itemsize, p.keys * p.d * itemsize, 4 * p.queries
        if self.request.what.endswith("backward"):
            return byte_totals(3 * queries + 2 * keys + sums, 0, queries + 2 * keys)
        return byte_totals(queries + 2 * keys, 0, queries + sums)

    @property
    def chosen(self) -> Tiles:
        """The tiles as keyword arguments of `iocourse.kernels.using`."""
        return {name: tile for name, tile in self.tiles.items() if name != "decode"}


def byte_totals(read: int | None, added: int | None, written: int | None) -> Bytes:
    """Return bytes read, added and written, and their total; None: unknown. Atomic additions are counted
    separately, because a program sends each once and receives nothing.
    """
    counts = {"read": read, "added": added, "written": written}
    known = [count for count in counts.values() if count is not None]
    return counts | {"total": sum(known) if len(known) == len(counts) else None}


def ledger_in_bytes(words: Ledger, widths: Mapping[str, int]) -> Bytes:
    """Convert a ledger to bytes. An addition is one read and one write of a ledger, and counts once here."""
    read, added, written = (
        sum(count * widths[name] for name, count in counts.items() if count)
        for counts in (words.reads, words.atomics, words.writes)
    )
    return byte_totals(read - added, added, written - added)


def cost(request: LaunchRequest, arch: int, processors: int | None = None) -> LaunchCost:
    """Return the cost of a launch with the tiles of an architecture, such as 90.

    processors: SMs for which the keys of decode are split; None: four parts. Raises UsageError if d
    is too large.
    """
    decode = request.what == "decode"
    largest = LARGEST_DECODE if decode else LARGEST_HEAD if request.sliced else LARGEST_WHOLE
    if request.d > largest:
        raise UsageError(f"--d must be 1 to {largest} with {request.what}, got {request.d}")
    if decode:
        return _decode(request, _problem(request), arch, processors)
    p, tiles = _problem(request), _tiles(request, arch)
    sizes: dict[str, Any] = {
        name: dict(zip(("BM", "BN", "BD"), tile[:-2], strict=False)) for name, tile in tiles.items()
    }
    rows = max(one["BM"] for one in sizes.values())
    words = [kernel_words(name, p, **one, pad=rows) for name, one in sizes.items()]
    if "row_products_kernel" in LAUNCHES[request.what].kernels:
        fused = "fused" in sizes  # its dQ is added to zeros; the other kernels read no row statistics
        words.append(row_products(p, False, rows if fused else sizes["weights"]["BM"], zeros=fused))
    return LaunchCost(request, p, tiles, sum_ledgers(*words))


def _problem(request: LaunchRequest) -> KernelProblem:
    rows = 1 if request.what == "decode" else request.N
    band = (None, 0 if request.causal else None)
    sizes = (rows, request.N, request.d, *band, request.batch, request.heads, request.kv_heads)
    if request.what == "packed":
        return PackedSequences(*sizes, tuple((n, n) for n in request.lengths))
    if request.what == "block-sparse":
        return BlockLists(*sizes, request.mask.pairs()[None, None])
    return KernelProblem(*sizes)


def _tiles(request: LaunchRequest, arch: int) -> Tiles:
    itemsize = request.itemsize
    if request.what == "block-sparse":
        BM, BN, *rest = tiles_for(arch, request.d, itemsize, listed=True).forward
        return {"forward": (*within_blocks((BM, BN), (request.mask.Br, request.mask.Bc)), *rest)}
    if request.sliced:
        row: Any = sliced_tiles_for(arch, itemsize)
    else:
        measured = None if request.what == "packed" else request.causal  # as in `dispatch`
        row = tiles_for(arch, request.d, itemsize, causal=measured)
    return {name: tuple(getattr(row, name)) for name in LAUNCHES[request.what].tiles}


def _decode(request: LaunchRequest, p: KernelProblem, arch: int, processors: int | None) -> LaunchCost:
    if request.parts > MOST_PARTS:
        raise UsageError(f"--parts must be 1 to {MOST_PARTS}, got {request.parts}")
    group = request.heads // request.kv_heads
    tile = decode_tile(arch, request.d, request.itemsize, group)
    tiles = ceil_div(group, tile.BM)
    programs = request.batch * request.kv_heads * tiles
    parts, _ = split_keys(p.Nk, tile.BN, request.parts or enough_parts(processors, programs))
    words = attention_decode(p, parts=parts, tiles=tiles)
    return LaunchCost(replace(request, parts=parts), p, {"decode": tuple(tile)}, words)
