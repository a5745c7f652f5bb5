"""Tiles that `python -m tools.bench gpu` found to take less time than those of the table.

`tools.bench gpu --install` stores the record of its step `tune` as `iocourse/data/bench/tune.json`. A launch
looks for its tile here first. Tiles that were not measured are taken from `kernels/host/tile_table.py`, whose
rows were chosen from compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from ..data.records import load_record
from ..errors import UsageError
from .chips import CHIPS, REGISTERS_A_THREAD, chip_of

KERNELS = ("forward", "fused", "queries", "keys")
WIDTHS = (64, 128, 256, 512)  # of rows, as the table has them
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


def measured_for(arch: int, width: int, itemsize: int, causal: bool) -> dict[str, Sizes]:
    """Return the measured tiles by kernel, where there is one. Raises UsageError for an invalid record."""
    found = {kernel: shipped_tiles().get(Place(arch, kernel, width, itemsize, causal)) for kernel in KERNELS}
    return {kernel: tile for kernel, tile in found.items() if tile}


@cache
def shipped_tiles() -> dict[Place, Sizes]:
    """Return every shipped measured tile. Raises UsageError if the record is invalid."""
    try:
        record = load_record("tune")
    except ValueError as error:
        raise UsageError(f"iocourse/data/bench/tune.json is not valid JSON ({error}): {_REMEDY}") from None
    return {} if record is None else tiles_of(record)


_REMEDY = "move it away, or write it again by `python -m tools.bench gpu --install`"


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
        if not (loop := row.get("hot_loop")) or row["pairs"] != "band":
            continue
        at = Place(row["arch"], row["kernel"], row["d"], row["bytes"], row["causal"])
        tile = (row["BM"], row["BN"], row["warps"], row["stages"])
        if loop["spills"]:
            found[*at, *tile] = f"spills {loop['spills']} registers per iteration"
        elif 0 < loop["wgmma"] <= (loop.get("waits") or 0):
            found[*at, *tile] = f"waits for each of its {loop['wgmma']} products"
    return found


def made_with_another_triton(arch: int, version: str) -> str:
    """Return a warning if the tiles of this architecture were measured with another Triton, otherwise ""."""
    theirs = ((load_record("tune") or {}).get("versions") or {}).get("triton", "none that it names")
    if theirs == version or not any(place.arch == arch for place in shipped_tiles()):
        return ""
    return (
        f"the tiles of sm_{arch} were measured with Triton {theirs}, and this is {version}. They are used "
        "anyway. To measure again, run python -m tools.bench gpu --only tune"
    )


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
