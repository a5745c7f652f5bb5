"""Tables of tile sizes, warps and stages by architecture, head size and bytes per number.

Importing this module tunes and compiles nothing. Each row was compiled for its architecture
(`tools.bench resources`). Tiles measured by `tools.bench gpu` take precedence (see `gpu.tuned_tiles`).
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


class TileConfig(NamedTuple):
    """A tile of BM queries by BN keys, computed by `warps` warps, with a load pipeline of `stages` tiles."""

    BM: int
    BN: int
    warps: int = 4
    stages: int = 1


class Tiles(NamedTuple):
    """One tile per kernel: forward, fused backward, and the two kernels of the two-pass backward."""

    forward: TileConfig
    fused: TileConfig
    queries: TileConfig
    keys: TileConfig


class SlicedTileConfig(NamedTuple):
    """A tile of BM queries by BN keys with d in slices of BD columns, computed by `warps` warps, with a load
    pipeline of `stages` slices.
    """

    BM: int
    BN: int
    BD: int
    warps: int = 4
    stages: int = 1


class SlicedTiles(NamedTuple):
    """One tile per kernel that splits d: three of the fused schedule, five of the materialised one."""

    sliced_forward: SlicedTileConfig
    sliced_queries: SlicedTileConfig
    sliced_keys: SlicedTileConfig
    scores: SlicedTileConfig
    averages: SlicedTileConfig
    weights: SlicedTileConfig
    query_gradients: SlicedTileConfig
    key_gradients: SlicedTileConfig


class Table(NamedTuple):
    """The tiles for one device, head size and number of bytes.

    arch: an architecture such as 90; None for the interpreter. width: columns per row (see `padded`). whole:
    tiles of complete rows, None if none fit. options: those of OPTIONS that `using` turned on.
    """

    arch: int | None
    width: int
    whole: Tiles | None
    sliced: SlicedTiles
    options: tuple[str, ...] = ()


def _row(*tiles: tuple[int, int, int, int]) -> Tiles:
    return Tiles(*(TileConfig(*tile) for tile in tiles))


def _sliced(*tiles: tuple[int, int, int, int, int]) -> SlicedTiles:
    return SlicedTiles(*(SlicedTileConfig(*tile) for tile in tiles))


# In the interpreter every tile takes the same time, up to about 128 × 128.
INTERPRETED = Tiles(*[TileConfig(128, 128)] * 4)
SLICED_INTERPRETED = SlicedTiles(*[SlicedTileConfig(128, 128, 128)] * 8)

# One line: forward, fused, queries, keys, each as BM, BN, warps, stages.
# fmt: off
TABLE: dict[tuple[int, int, int], Tiles] = {
    # architecture, head size, bytes per number
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

# Exceptions for block masks, whose lists and patterns also need registers and shared memory.
LISTED: dict[tuple[int, int, int, str], TileConfig] = {
    (75, 64, 2, "forward"): TileConfig(32, 32, 8, 1),
    (80, 64, 2, "fused"): TileConfig(32, 128, 8, 2),
    (80, 64, 2, "keys"): TileConfig(32, 128, 8, 2),
    (89, 64, 2, "forward"): TileConfig(128, 64, 8, 3),
    (89, 64, 2, "fused"): TileConfig(32, 128, 8, 2),
    (89, 64, 2, "keys"): TileConfig(32, 128, 8, 2),
    (89, 128, 2, "queries"): TileConfig(64, 64, 8, 2),
    (90, 128, 2, "fused"): TileConfig(64, 128, 8, 3),  # with two stages one register of the loop is spilled
}

# Kernels that split d into slices: BM, BN, BD, warps, stages. Their tiles do not depend on d.
# fmt: off
SLICED: dict[tuple[int, int], SlicedTiles] = {
    # architecture, bytes per number; then sliced_forward, sliced_queries, sliced_keys, scores, averages,
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

# Names of tiles that `using` accepts.
CHOOSABLE = (*Tiles._fields, *SlicedTiles._fields)
# Options that `using` turns on. All are off by default, because on an H200 none was faster at every shape.
OPTIONS = ("packed_descriptors", "row_descriptors", "last_merges")
MATRIX_BYTES = 2**30  # of P and dS: the size that was timed, 16 heads of N = 4,096 in 16 bits
# Set by `using` for the whole process, because autograd runs backward passes in its own threads.
_chosen: dict[str, Any] = {}


def architecture(device: torch.device) -> int | None:
    """Return the table's architecture for a device, or None if kernels are interpreted."""
    if backend.target_arch is not None:
        return backend.target_arch
    return None if backend.INTERPRETED else _device_row(device.index or 0)


def _device_row(index: int) -> int:
    """Return the table's architecture for a CUDA device."""
    return _device_row_once(index)


# torch.compile calls it without tracing torch.cuda's functions. `torch.compiler.assume_constant_result` sets
# the same mark, but imports the compiler, which doubles the time that importing the kernels takes.
_device_row._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _device_row_once(index: int) -> int:
    major, minor = torch.cuda.get_device_capability(index)
    arch = table_architecture(int(major * 10 + minor))
    if line := made_with_another_triton(arch, triton.__version__):
        warnings.warn(line, stacklevel=2)
    return arch


def table_architecture(capability: int) -> int:
    """Return the table's architecture for a compute capability (for example 89 for 86)."""
    if capability in (86, 89, 120, 121):  # the same 99 KB of shared memory
        return 89
    return max((known for known in (75, 80, 90, 100) if known <= capability), default=0)


def padded(d: int) -> int:
    """Return the width of a tile's rows: the power of two at or above d, and at least 16 (for tl.dot)."""
    return max(16, 1 << (d - 1).bit_length())


def has_row(arch: int | None, d: int) -> bool:
    """Return True if the table has tiles of complete rows for head size d; interpreted: up to d = 256."""
    width = max(64, padded(d))
    return width <= 256 if arch is None else (arch, width, 2) in TABLE


def tiles_for(
    arch: int | None, d: int, itemsize: int, *, listed: bool = False, causal: bool | None = None
) -> Tiles:  # fmt: skip
    """Return the tiles of complete rows for an architecture (None: the interpreter) and head size d.

    itemsize: bytes per number. listed: for a block mask. causal: prefer tiles that were measured with a
    causal mask (True) or without one (False); None: the table's.
    """
    width = max(64, padded(d))
    row = INTERPRETED if arch is None else TABLE[arch, width, itemsize]
    if arch is not None and listed:
        own = {kernel: LISTED.get((arch, width, itemsize, kernel)) for kernel in Tiles._fields}
        row = row._replace(**{kernel: tile for kernel, tile in own.items() if tile})
    elif arch is not None and causal is not None:
        measured = measured_for(arch, width, itemsize, causal)
        row = (
            row._replace(**{kernel: TileConfig(*tile) for kernel, tile in measured.items()})
            if measured
            else row
        )
    if not _chosen:
        return row
    return row._replace(**{name: tile for name, tile in _chosen.items() if name in Tiles._fields})


def sliced_tiles_for(arch: int | None, itemsize: int) -> SlicedTiles:
    """Return the tiles of the kernels that split d into slices; they do not depend on d."""
    row = SLICED_INTERPRETED if arch is None else SLICED[arch, itemsize]
    if not _chosen:
        return row
    return row._replace(**{name: tile for name, tile in _chosen.items() if name in SlicedTiles._fields})


def table_for(
    device: torch.device, d: int, itemsize: int, *, listed: bool = False, causal: bool | None = None
) -> Table:  # fmt: skip
    """Return the `Table` for a device, head size and bytes per number; `listed` and `causal`
    as in `tiles_for`.
    """
    arch = architecture(device)
    known = arch is None or (arch, max(64, padded(d)), itemsize) in TABLE
    whole = tiles_for(arch, d, itemsize, listed=listed, causal=causal) if known else None
    options = tuple(way for way in OPTIONS if _chosen.get(way)) if _chosen else ()
    return Table(arch, padded(d), whole, sliced_tiles_for(arch, itemsize), options)


def row_products_tile(d: int) -> TileConfig:
    """Return the tile of the kernel that computes D, which streams rows and needs no tuning."""
    return TileConfig(rows_of_delta(d), 0, 4, 1)


DECODE_BYTES = 16 * 1024  # per tile of keys, and per tile of values; two of each fit on every chip except T4


def decode_tile(arch: int | None, d: int, itemsize: int, group: int) -> TileConfig:
    """Return the tile of the decode step: BM of the query heads that share keys, and BN keys (16 KB).

    On T4, 16-bit products are computed in 32 bits, and only one stage fits in shared memory.
    """
    # <!-- 16 = tile_table.DECODE_BYTES / 1024 -->
    width = 4 if arch == 75 else itemsize
    BN = max(16, min(128, DECODE_BYTES // (padded(d) * width)))
    BM = max(16, min(64, 1 << (group - 1).bit_length()))
    return TileConfig(BM, BN, 8 if width == 4 else 4, 1 if arch == 75 else 2)


@contextmanager
def using(**tiles: TileConfig | SlicedTileConfig | tuple[int, ...] | int) -> Iterator[None]:
    """Replace the tiles of kernels and other options within a block, as in `using(forward=(64, 32))`.

    Args:
        tiles: (BM, BN), (BM, BN, warps) or (BM, BN, warps, stages) for forward, fused, queries or keys;
            (BM, BN, BD), with warps and stages or without, for sliced_forward, sliced_queries, sliced_keys
            (the fused small-cache schedule), scores, averages, weights, query_gradients or key_gradients
            (the materialised one). True turns an option on:
            packed_descriptors (load packed sequences through descriptors), row_descriptors (load Q and store
            O of the forward pass through descriptors too), last_merges (in a decode step the last program of
            a head merges its partial results). matrix_bytes: maximum size of P and dS that the materialised
            backward pass keeps at once, in bytes (default 1 GiB).

    Raises:
        ValueError: an unknown name, a size that is not a power of two of at least 16, or another invalid
            value.
    """
    # <!-- 1 = tile_table.MATRIX_BYTES / 2**30 -->
    checked = {name: _checked(name, tile) for name, tile in tiles.items()}
    before = dict(_chosen)
    _chosen.update(checked)
    try:
        yield
    finally:
        _chosen.clear()
        _chosen.update(before)


def is_option_on(way: str) -> bool:
    """Return True if `using` turned on this option of OPTIONS."""
    return bool(_chosen.get(way, False))


def matrix_bytes() -> int:
    """Return the maximum size of P and dS in the materialised backward pass, in bytes."""
    return int(_chosen.get("matrix_bytes", MATRIX_BYTES))


def _checked(name: str, tile: Any) -> TileConfig | SlicedTileConfig | int:
    if name == "matrix_bytes":
        return positive_int(name, tile)
    if name in OPTIONS:
        if not isinstance(tile, bool):
            raise ValueError(f"{name} must be True or False, got {tile!r}")
        return tile
    if name not in CHOOSABLE:
        raise ValueError(
            f"{name} is not an option of using; use one of: "
            f"{', '.join((*CHOOSABLE, *OPTIONS, 'matrix_bytes'))}"
        )
    kind = SlicedTileConfig if name in SlicedTiles._fields else TileConfig
    sizes = kind._fields[:-2]
    if not isinstance(tile, (tuple, list)) or not len(sizes) <= len(tile) <= len(sizes) + 2:
        raise ValueError(
            f"{name} must be ({', '.join(sizes)}), then optionally warps and stages, got {tile!r}"
        )
    whole = kind(*(positive_int(part, size) for part, size in zip(kind._fields, tile, strict=False)))
    for part in sizes:
        size = getattr(whole, part)
        if size < 16 or size & (size - 1):
            raise ValueError(f"{name}: {part} must be 16, 32, 64, 128, … (for tl.dot), got {size}")
    return whole
