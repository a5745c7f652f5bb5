"""Tiles of a record of the step `tune`: the form of its list `tiles`, and tiles that certainly cannot run.

`tools.bench gpu --install` checks the list before it stores the record and writes its tiles into
`iocourse/data/choices.json` (`tools.bench.choices`), where launches look them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from iocourse.data.records import load_record
from iocourse.errors import UsageError
from iocourse.gpu.chips import CHIPS, REGISTERS_A_THREAD, chip_of

KERNELS = ("forward", "fused", "queries", "keys")  # `choices.WHOLE`, which needs torch
WIDTHS = (64, 128, 256, 512)  # of rows, as tiles have them
ADDRESSES = 32  # minimum of registers per thread for everything except sums and scores


class Place(NamedTuple):
    """Launches for which a tile was measured: architecture, kernel, row width, bytes per number, and mask."""

    arch: int
    kernel: str
    d: int
    itemsize: int
    causal: bool


Sizes = tuple[int, int, int, int]  # BM, BN, warps, stages
ALLOWED: dict[str, tuple[Any, ...]] = {
    "arch": tuple(CHIPS), "kernel": KERNELS, "d": WIDTHS, "itemsize": (2, 4), "causal": (False, True),
}  # fmt: skip


_REMEDY = "write it again by `python -m tools.bench gpu --only tune`"


def tiles_of(record: Any) -> dict[Place, Sizes]:
    """Return the tiles of a record of the step `tune`.

    Args:
        record: a dict whose "tiles" is a list of rows, dicts with the keys of `ALLOWED` and "tile".

    Raises:
        UsageError: there is no list of tiles, or a row has an invalid value or a tile that cannot run.
    """
    rows = record.get("tiles") if isinstance(record, dict) else None
    if not isinstance(rows, list):
        raise UsageError(f"The record of tune has no list of `tiles`: {_REMEDY}")
    faults = _faults()
    return dict(_checked(row, faults) for row in rows)


def _checked(row: Any, faults: dict[tuple[Any, ...], str]) -> tuple[Place, Sizes]:
    wanted = {*ALLOWED, "tile"}
    if not isinstance(row, dict) or row.keys() != wanted:
        raise UsageError(f"A measured tile must be a row of {', '.join(sorted(wanted))}; got {row!r}")
    for name, allowed in ALLOWED.items():
        if (type(row[name]), row[name]) not in [(type(one), one) for one in allowed]:
            raise UsageError(
                f"{name} of a measured tile must be one of {', '.join(map(str, allowed))}; got {row[name]!r}"
            )
    place, tile = Place(**{name: row[name] for name in ALLOWED}), row["tile"]
    if not _is_tile(tile) or not may_run(place.kernel, tile, place.arch, place.d, place.itemsize):
        raise UsageError(
            f"the measured tile {tile!r} of {place.kernel} cannot run on sm_{place.arch} with d = {place.d}. "
            "It must be [BM, BN, warps, stages], BM and BN 16, 32, 64, …, within registers and shared memory"
        )
    if fault := faults.get((*place, *tile)):
        raise UsageError(
            f"the measured tile {tile!r} of {place.kernel} {fault} on sm_{place.arch} with d = {place.d}, by "
            "the record of resources. A tile must spill nothing there and wait fewer times than it has "
            "products. Use fewer queries or keys, or more warps"
        )
    return place, tuple(tile)


def _faults() -> dict[tuple[Any, ...], str]:
    """Return the recorded faults of inner loops, by place and tile: spills, or serialised products."""
    found = {}
    for row in (load_record("resources") or {"shipped": []})["shipped"]:
        if not (loop := row.get("hot_loop")) or row["pairs"] != "band" or row.get("group", 1) != 1:
            continue
        at = Place(row["arch"], row["kernel"], row["d"], row["bytes"], row["causal"])
        tile = (row["BM"], row["BN"], row["warps"], row["stages"])
        if loop["spills"]:
            found[*at, *tile] = f"spills {loop['spills']} registers per iteration"
        elif 0 < loop["wgmma"] <= (loop.get("waits") or 0):
            found[*at, *tile] = f"waits for each of its {loop['wgmma']} products"
    return found


def _is_tile(tile: Any) -> bool:
    """Return True for four valid sizes: powers of two, at least 16 for BM and BN, and at least one stage."""
    if not isinstance(tile, list) or [type(size) for size in tile] != [int] * 4:
        return False
    *sizes, stages = tile
    least = zip(sizes, (16, 16, 1), strict=True)
    return stages >= 1 and all(size >= at_least and not size & (size - 1) for size, at_least in least)


def may_run(kernel: str, tile: Sequence[int], arch: int, d: int, itemsize: int = 2) -> bool:
    """Return False if a tile certainly cannot run: a lower bound of its registers or shared memory
    is too large.

    Registers: the resident float32 sums and the tiles of scores; the fused pass' tile of dQ is not counted,
    because it is not kept. Shared memory: the two streamed arrays, `stages` tiles each.
    """
    BM, BN, warps, stages = tile
    stays, streams = (BM, BN) if kernel in ("forward", "queries") else (BN, BM)
    sums = stays if kernel in ("forward", "queries") else 2 * stays
    scores = BM * BN * (1 if kernel == "forward" else 2)
    registers = (sums * d + scores) / (32 * warps)
    shared = 2 * streams * d * itemsize * stages
    return registers + ADDRESSES <= REGISTERS_A_THREAD and shared <= chip_of(arch).shared_bytes
