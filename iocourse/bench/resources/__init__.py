"""What every shipped kernel takes of every chip, and how that changes with the tile: compiled, with no GPU
needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iocourse.bench import circumstances
from iocourse.gpu import CHIPS

from .compiling import GROUP, Compilation, compiled, need_compiler, shipped
from .text import table_of

if TYPE_CHECKING:
    from iocourse.lowrank.tensors.written import Written

NAME = "resources"
HELP = "registers, spills, shared memory and hot loop of every kernel on every chip (compiled, no GPU needed)"
HEADS = (64, 128, 256, 512)
PAIRS_HEADS = (64, 128)
DECODE_HEADS = (64, 128, 256)
SLICED_D = 512  # any d runs the same code
BYTES = (2, 4)
# The forward pass once for each of these, for the picture of lesson 11: BM, BN, warps.
SWEEP = [(BM, BN, warps) for BM in (64, 128) for BN in (16, 32, 64, 128) for warps in (4, 8)]


def run(quick: bool) -> dict[str, Any]:
    """Compile every row of the tile table, and the forward pass over a range of tiles.

    Args:
        quick: sm_80 and sm_90 at d = 128 in 16 bits only.

    Raises:
        Refused: torch or triton is missing.
    """
    need_compiler()
    from iocourse.kernels.host.resources import WHOLE

    arches, heads, widths = ((80, 90), (128,), (2,)) if quick else (tuple(CHIPS), HEADS, BYTES)
    sizes = [(arch, d, width) for arch in arches for d in heads for width in widths]
    table = [asked for size in sizes for name in WHOLE for asked in shipped(*size, name)]
    table += [asked for arch in arches for width in widths for asked in _sliced(arch, width)]
    table += [asked for arch in arches for d in heads for asked in _pairs(arch, d)]
    table += [asked for size in sizes for asked in _decode(*size)]
    table += [asked for size in sizes for asked in _specialised(*size)]
    sweep = [] if quick else [asked for arch in arches for d in (64, 128) for asked in _swept(arch, d)]
    rows = compiled([*table, *sweep, *_low_rank(arches)])
    last = len(table) + len(sweep)
    return {
        "subject": NAME,
        **circumstances("triton"),
        "shipped": rows[: len(table)],
        "forward_by_tile": rows[len(table) : last],
        "low_rank": rows[last:],
    }


def _low_rank(arches: Sequence[int]) -> list[Written]:
    """The kernels of low rank, in 16 bits: what they hold and multiply is float32 in any case."""
    from iocourse.lowrank.tensors.written import SIZES, launches

    return [one for arch in arches for size in SIZES for one in launches(arch, *size, 2)]


def _sliced(arch: int, width: int) -> Iterator[Compilation]:
    """The kernels that cut d, with the diagonal's mask."""
    from iocourse.kernels.host.tiles import sliced_tiles_for

    for kernel, tile in sliced_tiles_for(arch, width)._asdict().items():
        yield Compilation(arch, SLICED_D, width, kernel, True, **tile._asdict())


def _pairs(arch: int, d: int) -> Iterator[Compilation]:
    """The kernels of whole rows for block masks and packed sequences, in 16 bits."""
    from iocourse.kernels.host.tiles import Tiles, tiles_for

    if d in PAIRS_HEADS:
        for pairs in ("block_mask", "packed"):
            for kernel in Tiles._fields:
                tile = getattr(tiles_for(arch, d, 2, listed=pairs == "block_mask"), kernel)
                yield Compilation(arch, d, 2, kernel, True, *tile)._replace(pairs=pairs)


def _decode(arch: int, d: int, width: int) -> Iterator[Compilation]:
    from iocourse.kernels.host.resources import DECODE
    from iocourse.kernels.host.tiles import decode_tile

    if d in DECODE_HEADS:
        tile = decode_tile(arch, d, width, GROUP)
        for kernel in DECODE:
            yield Compilation(arch, d, width, kernel, False, *tile)


def _specialised(arch: int, d: int, width: int) -> Iterator[Compilation]:
    from iocourse.kernels.host.tiles import SPECIALISED

    if (arch, width) == (90, 2) and d in SPECIALISED:
        for causal in (False, True):
            yield Compilation(arch, d, width, "specialised", causal, *SPECIALISED[d])


def _swept(arch: int, d: int) -> Iterator[Compilation]:
    for BM, BN, warps in SWEEP:
        yield Compilation(arch, d, 2, "forward", True, BM, BN, warps, 1 if arch == 75 else 2)


def show(result: dict[str, Any]) -> str:
    """The shipped rows as plain text: one line a kernel."""
    return table_of(result)
