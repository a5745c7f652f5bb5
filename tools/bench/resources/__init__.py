"""What every shipped kernel takes of every chip, and how that changes with the tile: compiled, with no GPU
needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, product

from iocourse.data.records import run_metadata
from iocourse.gpu import CHIPS
from tools.bench import Row
from tools.bench.resources.compiling import GROUP, Compilation, compiled, need_compiler, shipped
from tools.bench.resources.text import table_of

NAME = "resources"
HELP = "registers, spills, shared memory and hot loop of every kernel on every chip (compiled, no GPU needed)"
HEADS = (64, 128, 256, 512)
PAIRS_HEADS = (64, 128)
DECODE_HEADS = (64, 128, 256)
SLICED_D = 512  # any d runs the same code
BYTES = (2, 4)
# The forward pass once for each of these, for the picture of lesson 11: BM, BN, warps.
SWEEP = [(BM, BN, warps) for BM in (64, 128) for BN in (16, 32, 64, 128) for warps in (4, 8)]
WHOLE_RECORD = tuple(CHIPS), HEADS, BYTES, (64, 128)  # architectures, head sizes, widths, heads of the sweep
show = table_of


def run(quick: bool) -> Row:
    """Compile every row of the tile table, and the forward pass over a range of tiles.

    Args:
        quick: sm_80 and sm_90 at d = 128 in 16 bits only.

    Raises:
        UsageError: torch or triton is missing.
    """
    return record(NAME, *(((80, 90), (128,), (2,)) if quick else WHOLE_RECORD))


def record(
    name: str, arches: Sequence[int], heads: Sequence[int], widths: Sequence[int], swept: Sequence[int] = ()
) -> Row:
    """The record of a subject: what is shipped for these chips, head sizes and bytes a number, and the
    forward pass over a range of tiles for the head sizes of `swept`. Raises as `run`.
    """
    need_compiler()
    parts = asked_for(arches, heads, widths, swept)
    rows = iter(compiled([*chain(*parts.values())]))
    found = {part: [*islice(rows, len(asked))] for part, asked in parts.items()}
    return {"subject": name, **run_metadata("triton"), **found}


def asked_for(
    arches: Sequence[int], heads: Sequence[int], widths: Sequence[int], swept: Sequence[int] = ()
) -> dict[str, list[Compilation]]:
    """What `record` compiles for the same arguments, by part of the record and in its order."""
    return {
        "shipped": [one for arch in arches for one in every(arch, heads, widths)],
        "forward_by_tile": [one for arch in arches for d in swept for one in _swept(arch, d)],
    }


def every(arch: int, heads: Sequence[int], widths: Sequence[int]) -> Iterator[Compilation]:
    """Every kernel of one chip, with the tiles of the tables."""
    from iocourse.kernels.host.resources import WHOLE

    for d, width in product(heads, widths):
        yield from (asked for kernel in WHOLE for asked in shipped(arch, d, width, kernel))
        yield from _of_its_own(arch, d, width)
    for width in widths:
        yield from _sliced(arch, width)
    for d, pairs in product(PAIRS_HEADS, ("block_mask", "packed")):
        if d in heads:
            yield from _pairs(arch, d, pairs)


def _of_its_own(arch: int, d: int, width: int) -> Iterator[Compilation]:
    """The decode step, where there is one."""
    from iocourse.kernels.host.resources import DECODE
    from iocourse.kernels.host.tile_table import decode_tile

    if d in DECODE_HEADS:
        tile = decode_tile(arch, d, width, GROUP)
        yield from (Compilation(arch, d, width, kernel, False, *tile) for kernel in DECODE)


def _sliced(arch: int, width: int) -> Iterator[Compilation]:
    """The kernels that cut d, with the diagonal's mask."""
    from iocourse.kernels.host.tile_table import sliced_tiles_for

    for kernel, tile in sliced_tiles_for(arch, width)._asdict().items():
        yield Compilation(arch, SLICED_D, width, kernel, True, **tile._asdict())


def _pairs(arch: int, d: int, pairs: str) -> Iterator[Compilation]:
    """The kernels of whole rows for block masks or packed sequences, in 16 bits."""
    from iocourse.kernels.host.tile_table import tiles_for

    for kernel, tile in tiles_for(arch, d, 2, listed=pairs == "block_mask")._asdict().items():
        yield Compilation(arch, d, 2, kernel, True, *tile)._replace(pairs=pairs)


def _swept(arch: int, d: int) -> Iterator[Compilation]:
    for BM, BN, warps in SWEEP:
        yield Compilation(arch, d, 2, "forward", True, BM, BN, warps, 1 if arch == 75 else 2)
