"""Tile sizes, warps and stages: one small table for each architecture, head size and width of a number.

Nothing is tuned when this is imported and nothing is compiled to decide. Each row was compiled for its
architecture (`tools.bench resources`). What `tools.bench gpu` measured goes before them (see
`gpu.tuned_tiles`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
import triton

from ...costs.kernel_masks import rows_of_delta
from ...gpu.tuned_tiles import made_with_another_triton, measured_for
from ...sizes import positive_int
from . import backend


class Tile(NamedTuple):
    """BM queries by BN keys, by so many warps of 32 threads, with loads running `stages` tiles ahead."""

    BM: int
    BN: int
    warps: int = 4
    stages: int = 1


class Tiles(NamedTuple):
    """One tile for each kernel: forward, fused backward, and the two passes of the split backward."""

    forward: Tile
    fused: Tile
    queries: Tile
    keys: Tile


class SlicedTile(NamedTuple):
    """BM queries by BN keys, d in slices of BD, by so many warps, loads running `stages` slices ahead."""

    BM: int
    BN: int
    BD: int
    warps: int = 4
    stages: int = 1


class SlicedTiles(NamedTuple):
    """One tile for each kernel that cuts d: the fused schedule's three, and the materialised one's five."""

    sliced_forward: SlicedTile
    sliced_queries: SlicedTile
    sliced_keys: SlicedTile
    scores: SlicedTile
    averages: SlicedTile
    weights: SlicedTile
    query_gradients: SlicedTile
    key_gradients: SlicedTile


class Table(NamedTuple):
    """What the tables say for a device, a head size and a width: None of whole rows where none fit.

    arch: the row, such as 90; None where kernels are interpreted. width: of rows (see `padded`). untimed:
    those of UNTIMED that `using` turned on.
    """

    arch: int | None
    width: int
    whole: Tiles | None
    sliced: SlicedTiles
    untimed: tuple[str, ...] = ()


def _row(*tiles: tuple[int, int, int, int]) -> Tiles:
    return Tiles(*(Tile(*tile) for tile in tiles))


def _sliced(*tiles: tuple[int, int, int, int, int]) -> SlicedTiles:
    return SlicedTiles(*(SlicedTile(*tile) for tile in tiles))


# In the interpreter a tile costs the same whatever its size, up to about 128 × 128.
INTERPRETED = Tiles(*[Tile(128, 128)] * 4)
SLICED_INTERPRETED = SlicedTiles(*[SlicedTile(128, 128, 128)] * 8)

# One line: forward, fused, queries, keys, each as BM, BN, warps, stages.
# fmt: off
TABLE: dict[tuple[int, int, int], Tiles] = {
    # architecture, head size, bytes a number
    (75, 64, 2): _row((64, 32, 8, 1), (16, 32, 8, 1), (32, 32, 8, 1), (16, 32, 8, 1)),
    (75, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (75, 128, 2): _row((32, 32, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (75, 128, 4): _row((32, 32, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
    (75, 256, 2): _row((16, 16, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (75, 256, 4): _row((32, 16, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (75, 512, 2): _row((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (75, 512, 4): _row((16, 16, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (80, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 3), (128, 64, 8, 2), (64, 128, 8, 2)),
    (80, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (80, 128, 2): _row((128, 64, 8, 3), (64, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2)),
    (80, 128, 4): _row((32, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (80, 256, 2): _row((64, 64, 8, 2), (32, 32, 8, 1), (64, 64, 8, 1), (32, 64, 8, 2)),
    (80, 256, 4): _row((16, 16, 4, 1), (16, 32, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
    (80, 512, 2): _row((32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1)),
    (80, 512, 4): _row((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (89, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 3), (128, 64, 8, 2), (64, 128, 8, 2)),
    (89, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (89, 128, 2): _row((128, 64, 8, 2), (64, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2)),
    (89, 128, 4): _row((32, 32, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (89, 256, 2): _row((64, 32, 8, 1), (32, 32, 8, 1), (64, 32, 8, 1), (32, 32, 8, 1)),
    (89, 256, 4): _row((32, 16, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1), (16, 32, 16, 1)),
    (89, 512, 2): _row((32, 32, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (89, 512, 4): _row((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (90, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 2), (128, 64, 8, 3), (64, 128, 8, 3)),
    (90, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (90, 128, 2): _row((128, 128, 8, 3), (64, 128, 8, 2), (128, 64, 8, 3), (64, 128, 8, 3)),
    (90, 128, 4): _row((32, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (90, 256, 2): _row((128, 64, 8, 2), (32, 32, 8, 1), (64, 32, 8, 2), (32, 32, 8, 1)),
    (90, 256, 4): _row((32, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (90, 512, 2): _row((64, 32, 8, 2), (16, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1)),
    (90, 512, 4): _row((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (100, 64, 2): _row((128, 64, 4, 3), (64, 128, 8, 2), (128, 64, 8, 2), (64, 128, 8, 2)),
    (100, 64, 4): _row((64, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 1)),
    (100, 128, 2): _row((128, 128, 8, 2), (32, 128, 8, 2), (128, 64, 8, 2), (64, 128, 8, 2)),
    (100, 128, 4): _row((32, 32, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
    (100, 256, 2): _row((128, 64, 8, 2), (32, 64, 8, 2), (64, 64, 8, 1), (32, 64, 8, 2)),
    (100, 256, 4): _row((32, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    (100, 512, 2): _row((64, 32, 8, 2), (16, 16, 8, 1), (32, 32, 8, 1), (16, 16, 8, 1)),
    (100, 512, 4): _row((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
}
# fmt: on

# Instead of those, where a block mask's lists and patterns need registers and shared memory too.
LISTED: dict[tuple[int, int, int, str], Tile] = {
    (75, 64, 2, "forward"): Tile(32, 32, 8, 1),
    (80, 64, 2, "fused"): Tile(32, 128, 8, 2),
    (80, 64, 2, "keys"): Tile(32, 128, 8, 2),
    (89, 64, 2, "forward"): Tile(128, 64, 8, 3),
    (89, 64, 2, "fused"): Tile(32, 128, 8, 2),
    (89, 64, 2, "keys"): Tile(32, 128, 8, 2),
    (89, 128, 2, "queries"): Tile(64, 64, 8, 2),
    (90, 128, 2, "fused"): Tile(64, 128, 8, 3),  # with two stages one register of the loop is spilled
}

# Kernels that cut d into slices: BM, BN, BD, warps, stages. They hold scores and slices: any d will do.
# fmt: off
SLICED: dict[tuple[int, int], SlicedTiles] = {
    # architecture, bytes a number; then sliced_forward, sliced_queries, sliced_keys, scores, averages,
    # weights, query_gradients, key_gradients
    (75, 2): _sliced(
        (64, 64, 16, 8, 1), (64, 64, 16, 8, 1), (64, 64, 16, 8, 1), (64, 64, 32, 8, 1),
        (64, 32, 64, 8, 1), (64, 64, 16, 8, 1), (64, 32, 64, 8, 1), (32, 64, 64, 8, 1),
    ),
    (75, 4): _sliced(
        (64, 64, 16, 8, 1), (64, 64, 32, 8, 1), (128, 64, 32, 8, 1), (64, 64, 32, 8, 1),
        (128, 32, 128, 16, 1), (64, 64, 32, 8, 1), (128, 32, 128, 16, 1), (32, 128, 64, 8, 1),
    ),
    (80, 2): _sliced(
        (128, 128, 64, 8, 3), (128, 128, 32, 8, 2), (128, 64, 64, 8, 2), (64, 64, 32, 4, 2),
        (128, 64, 64, 8, 2), (64, 64, 32, 8, 1), (128, 64, 128, 8, 3), (64, 128, 64, 8, 2),
    ),
    (80, 4): _sliced(
        (64, 64, 16, 8, 1), (64, 64, 32, 8, 1), (128, 64, 32, 8, 1), (64, 64, 32, 8, 1),
        (128, 32, 128, 16, 1), (64, 64, 32, 8, 1), (128, 32, 128, 16, 1), (32, 128, 64, 8, 1),
    ),
    (89, 2): _sliced(
        (128, 128, 64, 8, 3), (128, 128, 32, 8, 2), (128, 64, 64, 8, 2), (64, 64, 32, 4, 2),
        (128, 64, 64, 8, 2), (64, 64, 32, 8, 1), (128, 64, 128, 8, 3), (64, 128, 64, 8, 2),
    ),
    (89, 4): _sliced(
        (64, 64, 16, 8, 1), (64, 64, 16, 8, 1), (64, 64, 16, 8, 1), (128, 64, 32, 8, 1),
        (128, 32, 128, 16, 1), (64, 64, 32, 8, 1), (128, 32, 128, 16, 1), (32, 128, 64, 8, 1),
    ),
    (90, 2): _sliced(
        (128, 128, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 32, 8, 2), (128, 128, 64, 8, 1),
        (128, 64, 128, 8, 3), (64, 128, 64, 8, 2), (128, 64, 128, 8, 3), (64, 128, 128, 8, 2),
    ),
    (90, 4): _sliced(
        (64, 64, 16, 8, 1), (64, 64, 16, 8, 1), (128, 64, 32, 8, 1), (128, 64, 32, 8, 1),
        (128, 32, 128, 16, 1), (64, 64, 32, 8, 1), (128, 32, 128, 16, 1), (32, 128, 64, 8, 1),
    ),
    (100, 2): _sliced(
        (128, 128, 64, 8, 2), (128, 128, 32, 8, 2), (128, 64, 64, 8, 2), (128, 64, 64, 8, 2),
        (128, 64, 128, 8, 3), (64, 64, 32, 8, 1), (128, 64, 128, 8, 3), (64, 128, 128, 8, 2),
    ),
    (100, 4): _sliced(
        (64, 64, 16, 8, 1), (64, 64, 32, 8, 1), (128, 64, 32, 8, 1), (128, 64, 32, 8, 1),
        (128, 32, 64, 8, 1), (64, 64, 32, 8, 1), (64, 32, 64, 8, 1), (32, 128, 64, 8, 1),
    ),
}
# fmt: on

# What `using` knows: one name for each kernel that has a tile of its own.
CHOOSABLE = (*Tiles._fields, *SlicedTiles._fields)
# Options that no GPU has timed. Their values and words are tested; all of them are off by default.
UNTIMED = ("packed_descriptors", "row_descriptors", "last_merges")
MATRIX_BYTES = 2**30  # for P and dS: what was timed, 16 heads of N = 4,096 in 16 bits
# Chosen by `using`, for the whole process: autograd runs backward passes in threads of its own.
_chosen: dict[str, Any] = {}


def architecture(device: torch.device) -> int | None:
    """The row of the tables for a device: its architecture, or None where kernels are interpreted."""
    if backend.target_arch is not None:
        return backend.target_arch
    return None if backend.INTERPRETED else _device_row(device.index or 0)


def _device_row(index: int) -> int:
    """The row for a CUDA device."""
    return _device_row_once(index)


# torch.compile calls it without tracing torch.cuda's functions. `torch.compiler.assume_constant_result` sets
# the same mark, but imports the compiler, which doubles the time that importing the kernels takes.
_device_row._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _device_row_once(index: int) -> int:
    major, minor = torch.cuda.get_device_capability(index)
    arch = row_of(int(major * 10 + minor))
    if line := made_with_another_triton(arch, triton.__version__):
        warnings.warn(line, stacklevel=2)
    return arch


def row_of(capability: int) -> int:
    """The architecture of the table whose rows a chip of this compute capability takes (86 -> 89, say)."""
    if capability in (86, 89, 120, 121):  # the same 99 KB of shared memory
        return 89
    return max((known for known in (75, 80, 90, 100) if known <= capability), default=0)


def padded(d: int) -> int:
    """The width of a tile's rows: the power of two at or above d, 16 at least, as tl.dot asks for."""
    return max(16, 1 << (d - 1).bit_length())


def has_row(arch: int | None, d: int) -> bool:
    """Whether the table has tiles of whole rows for this head size; interpreted, they go to d = 256."""
    width = max(64, padded(d))
    return width <= 256 if arch is None else (arch, width, 2) in TABLE


def tiles_for(
    arch: int | None, d: int, itemsize: int, *, listed: bool = False, causal: bool | None = None
) -> Tiles:  # fmt: skip
    """The tiles for an architecture of the table (None: the interpreter), head size d and bytes a number;
    `listed`: for a block mask. `causal`: those that were measured so go before the table's; None: the table.
    """
    width = max(64, padded(d))
    row = INTERPRETED if arch is None else TABLE[arch, width, itemsize]
    if arch is not None and listed:
        own = {kernel: LISTED.get((arch, width, itemsize, kernel)) for kernel in Tiles._fields}
        row = row._replace(**{kernel: tile for kernel, tile in own.items() if tile})
    elif arch is not None and causal is not None:
        measured = measured_for(arch, width, itemsize, causal)
        row = row._replace(**{kernel: Tile(*tile) for kernel, tile in measured.items()}) if measured else row
    if not _chosen:
        return row
    return row._replace(**{name: tile for name, tile in _chosen.items() if name in Tiles._fields})


def sliced_tiles_for(arch: int | None, itemsize: int) -> SlicedTiles:
    """The same for the kernels that cut d into slices, whatever d is."""
    row = SLICED_INTERPRETED if arch is None else SLICED[arch, itemsize]
    if not _chosen:
        return row
    return row._replace(**{name: tile for name, tile in _chosen.items() if name in SlicedTiles._fields})


def table_for(
    device: torch.device, d: int, itemsize: int, *, listed: bool = False, causal: bool | None = None
) -> Table:  # fmt: skip
    """Both of these, and the architecture they are for; `listed` and `causal` as of `tiles_for`."""
    arch = architecture(device)
    known = arch is None or (arch, max(64, padded(d)), itemsize) in TABLE
    whole = tiles_for(arch, d, itemsize, listed=listed, causal=causal) if known else None
    untimed = tuple(way for way in UNTIMED if _chosen.get(way)) if _chosen else ()
    return Table(arch, padded(d), whole, sliced_tiles_for(arch, itemsize), untimed)


def row_products_tile(d: int) -> Tile:
    """For the kernel that computes D, which streams rows and needs no tuning."""
    return Tile(rows_of_delta(d), 0, 4, 1)


DECODE_BYTES = 16 * 1024  # of a tile of keys, and as much of values: two of each fit every chip but a T4


def decode_tile(arch: int | None, d: int, itemsize: int, group: int) -> Tile:
    """For the decode step: BM of the query heads that share keys, BN keys of 16 KB.

    A T4 computes products of 16 bits in 32, and has room for one tile in flight.
    """
    width = 4 if arch == 75 else itemsize
    BN = max(16, min(128, DECODE_BYTES // (padded(d) * width)))
    BM = max(16, min(64, 1 << (group - 1).bit_length()))
    return Tile(BM, BN, 8 if width == 4 else 4, 1 if arch == 75 else 2)


@contextmanager
def using(**tiles: Tile | SlicedTile | tuple[int, ...] | int) -> Iterator[None]:
    """Choose by hand: within `using(forward=(64, 32))` the kernels named take these tiles.

    Args:
        tiles: (BM, BN), (BM, BN, warps) or (BM, BN, warps, stages) for forward, fused, queries or keys;
            (BM, BN, BD), with warps and stages or without, for sliced_forward, sliced_queries, sliced_keys
            (the fused small-cache schedule), scores, averages, weights, query_gradients or key_gradients
            (the materialised one). True for an option that no GPU has timed, off by default:
            packed_descriptors (load packed sequences through descriptors), row_descriptors (load Q and store
            O of the forward pass through descriptors too), last_merges (in a decode step the last program of
            a head merges its partial results). matrix_bytes: maximum size of P and dS that the materialised
            backward pass keeps at once, in bytes (default 1 GiB).

    Raises:
        ValueError: an unknown name, a size that is no power of two of at least 16, or another value that is
            not allowed.
    """
    checked = {name: _checked(name, tile) for name, tile in tiles.items()}
    before = dict(_chosen)
    _chosen.update(checked)
    try:
        yield
    finally:
        _chosen.clear()
        _chosen.update(before)


def chosen(way: str) -> bool:
    """Return whether `using` turned on one of UNTIMED."""
    return bool(_chosen.get(way, False))


def matrix_bytes() -> int:
    """Return the maximum size of P and dS in the materialised backward pass."""
    return int(_chosen.get("matrix_bytes", MATRIX_BYTES))


def _checked(name: str, tile: Any) -> Tile | SlicedTile | int:
    if name == "matrix_bytes":
        return positive_int(name, tile)
    if name in UNTIMED:
        if not isinstance(tile, bool):
            raise ValueError(f"{name} is {tile!r}; allowed: True or False")
        return tile
    if name not in CHOOSABLE:
        raise ValueError(f"{name} is no kernel; allowed: {', '.join((*CHOOSABLE, *UNTIMED, 'matrix_bytes'))}")
    kind = SlicedTile if name in SlicedTiles._fields else Tile
    sizes = kind._fields[:-2]
    if not isinstance(tile, (tuple, list)) or not len(sizes) <= len(tile) <= len(sizes) + 2:
        raise ValueError(f"{name} is {tile!r}; allowed: ({', '.join(sizes)}), then warps, then stages")
    whole = kind(*(positive_int(part, size) for part, size in zip(kind._fields, tile, strict=False)))
    for part in sizes:
        size = getattr(whole, part)
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name}: {part} is {size}; allowed: 16, 32, 64, 128, … as tl.dot asks for")
    return whole
