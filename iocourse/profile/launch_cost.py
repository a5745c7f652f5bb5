"""Bytes that a launch moves: the closed form for the kernels and tiles that an architecture takes, and the
compulsory bytes.
"""

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
from ..gpu.choices import Case, loaded_width
from ..kernels.host.checks import LARGEST_DECODE, LARGEST_HEAD, LARGEST_WHOLE
from ..kernels.host.choices import choice, decode_tile
from ..kernels.host.launches import MOST_PARTS, enough_parts, most_parts, split_keys
from ..kernels.host.masks import within_blocks
from ..ledger import Ledger
from . import BACKWARD, LAUNCHES, LaunchRequest

Tiles = dict[str, tuple[int, ...]]
Bytes = dict[str, Any]


@dataclass(frozen=True)
class LaunchCost:
    """Traffic of a launch with the tiles of one architecture.

    launched: the request with the launch that was chosen in `what`, such as fused-backward for backward.
    kernels: their names, in order. reason: the choice and why, or that other kernels were requested.
    """

    request: LaunchRequest
    launched: LaunchRequest
    problem: KernelProblem
    kernels: tuple[str, ...]
    tiles: Tiles
    words: Ledger  # by the closed form
    reason: str

    @property
    def bytes(self) -> Bytes:
        """Bytes by the closed form: read, added, written and total."""
        return ledger_in_bytes(self.words, widths_of(self.words, self.request.itemsize))

    @property
    def compulsory(self) -> Bytes:
        """Compulsory bytes: every input read once and every result written once."""
        p, itemsize = self.problem, self.request.itemsize
        queries, keys, sums = p.queries * p.d * itemsize, p.keys * p.d * itemsize, 4 * p.queries
        if LAUNCHES[self.request.what].choice == BACKWARD:
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
    """Return the cost of a launch with the kernels and tiles of an architecture, such as 90.

    processors: SMs for which the keys of decode are split; None: four parts. Raises UsageError if d
    is too large.
    """
    largest = _largest_head(request)
    if request.d > largest:
        raise UsageError(f"--d must be 1 to {largest} with {request.what}, got {request.d}")
    case, p = case_of(request, arch), _problem(request)
    if request.what == "decode":
        return _decode(request, p, case, processors)
    launched = replace(request, what=_launched(request.what, case))
    launch, tiles = LAUNCHES[launched.what], _tiles(launched, case)
    sizes: dict[str, Any] = {
        name: dict(zip(("BM", "BN", "BD"), tile[:-2], strict=False)) for name, tile in tiles.items()
    }
    rows = max(one["BM"] for one in sizes.values())
    words = [kernel_words(name, p, **one, pad=rows) for name, one in sizes.items()]
    if "row_products_kernel" in launch.kernels:
        # The dQ of the fused kernel is added to zeros.
        words.append(row_products(p, False, *_readers_of_delta(sizes), zeros="fused" in sizes))
    return LaunchCost(
        request, launched, p, launch.kernels, tiles, sum_ledgers(*words), _reason(request.what, case)
    )


def _largest_head(request: LaunchRequest) -> int:
    if request.what == "decode":
        return LARGEST_DECODE
    return LARGEST_HEAD if request.sliced or not LAUNCHES[request.what].kernels else LARGEST_WHOLE


def case_of(request: LaunchRequest, arch: int) -> Case:
    """Return the case of the choices for a request, as `passes.case_of` for the tensors."""
    rows = 1 if request.what == "decode" else request.N
    mask = "blocks" if request.what == "block-sparse" else "packed" if request.what == "packed" else ""
    group = request.heads // request.kv_heads
    return Case(
        arch, request.itemsize, loaded_width(request.d), mask or ("causal" if request.causal else "full"),
        group, request.batch * request.heads * rows, request.batch * request.kv_heads,
        2 * group * rows * request.N * request.itemsize,
    )  # fmt: skip


def _launched(what: str, case: Case) -> str:
    """Return the launch itself, or for one without kernels the launch with the recorded choice."""
    asked = LAUNCHES[what]
    if asked.kernels:
        return what
    value = choice(asked.choice, case).value
    return next(name for name, one in LAUNCHES.items() if (one.choice, one.value) == (asked.choice, value))


def _reason(what: str, case: Case) -> str:
    """Return the recorded choice and why. If other kernels were requested, name both."""
    asked, made = LAUNCHES[what], choice(LAUNCHES[what].choice, case)
    if what == "packed":
        return f"{made}\n{choice('packed descriptors', case)}"
    if asked.value in ("", made.value):
        return str(made)
    return f"{asked.choice}: {asked.value}, as requested; attention would launch\n{made}"


def _readers_of_delta(sizes: Mapping[str, Any]) -> list[int]:
    """Return the queries per tile of the kernels that read the row statistics D and LSE / log 2."""
    readers = ("fused", "weights", "sliced_queries", "sliced_keys")
    return [one["BM"] for name, one in sizes.items() if name in readers]


def _problem(request: LaunchRequest) -> KernelProblem:
    rows = 1 if request.what == "decode" else request.N
    band = (None, 0 if request.causal else None)
    sizes = (rows, request.N, request.d, *band, request.batch, request.heads, request.kv_heads)
    if request.what == "packed":
        return PackedSequences(*sizes, tuple((n, n) for n in request.lengths))
    if request.what == "block-sparse":
        return BlockLists(*sizes, request.mask.pairs()[None, None])
    return KernelProblem(*sizes)


def _tiles(launched: LaunchRequest, case: Case) -> Tiles:
    tiles = {name: tuple(choice(name, case).value) for name in LAUNCHES[launched.what].tiles}
    if launched.what == "block-sparse":
        *tile, warps, stages = tiles["forward"]
        blocks = within_blocks(tile, (launched.mask.Br, launched.mask.Bc))
        return {"forward": (*blocks, warps, stages)}
    return tiles


def _decode(request: LaunchRequest, p: KernelProblem, case: Case, processors: int | None) -> LaunchCost:
    if request.parts > MOST_PARTS:
        raise UsageError(f"--parts must be 1 to {MOST_PARTS}, got {request.parts}")
    tile, made = decode_tile(case), choice("decode step", case)
    last = made.value == "last program"
    kernels = ("last_merges_kernel",) if last else LAUNCHES["decode"].kernels
    tiles = ceil_div(case.group, tile.BM)
    programs = request.batch * request.kv_heads * tiles
    enough = enough_parts(processors, programs, most_parts(case, tile))
    parts, _ = split_keys(p.Nk, tile.BN, request.parts or enough)
    words = attention_decode(p, parts=parts, tiles=tiles, last_merges=last)
    request = replace(request, parts=parts)
    return LaunchCost(request, request, p, kernels, {"decode": tuple(tile)}, words, str(made))
