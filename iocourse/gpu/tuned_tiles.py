"""Tiles that were measured on a GPU: what `python -m tools.bench gpu` found faster than the table's.

The record of its step `tune`, `iocourse/data/bench/tune.json`, is put there by `tools.bench gpu --install`. A
launch looks here first, and takes the table of `kernels/host/tile_table.py`, which compiled code chose, for
everything that was not measured; without the record that is everything.
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
ADDRESSES = 32  # registers a thread that sums and scores must leave for everything else, at the very least


class Place(NamedTuple):
    """Where a measured tile is taken: architecture, kernel, width of rows, bytes a number, and the mask."""

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
    """The measured tiles by kernel, of those that have one. Raises UsageError where the record is none."""
    found = {kernel: measured().get(Place(arch, kernel, width, itemsize, causal)) for kernel in KERNELS}
    return {kernel: tile for kernel, tile in found.items() if tile}


@cache
def measured() -> dict[Place, Sizes]:
    """Every measured tile that is shipped. Raises UsageError where the record is none."""
    try:
        record = load_record("tune")
    except ValueError as error:
        raise UsageError(f"iocourse/data/bench/tune.json is no JSON ({error}): {_REMEDY}") from None
    return {} if record is None else tiles_of(record)


_REMEDY = "move it away, or write it again by `python -m tools.bench gpu --install`"


def tiles_of(record: Any) -> dict[Place, Sizes]:
    """The tiles of a record of the step `tune`, {"tiles": [{"arch": 90, "kernel": …, "tile": […]}, …]}.

    Raises:
        UsageError: it has none, or a row names what is not there, or a tile that cannot run.
    """
    rows = record.get("tiles") if isinstance(record, dict) else None
    if not isinstance(rows, list):
        raise UsageError(f"tune's record has no list of `tiles`: {_REMEDY}")
    faults = _faults()
    return dict(_checked(row, faults) for row in rows)


def _checked(row: Any, faults: dict[tuple[Any, ...], str]) -> tuple[Place, Sizes]:
    wanted = {*ALLOWED, "tile"}
    if not isinstance(row, dict) or row.keys() != wanted:
        raise UsageError(f"a measured tile is {row!r}; allowed: a row of {', '.join(sorted(wanted))}")
    for name, allowed in ALLOWED.items():
        if (type(row[name]), row[name]) not in [(type(one), one) for one in allowed]:
            raise UsageError(
                f"a measured tile has {name} {row[name]!r}; allowed: {', '.join(map(str, allowed))}"
            )
    place, tile = Place(**{name: row[name] for name in ALLOWED}), row["tile"]
    if not _is_tile(tile) or not fits(place.kernel, tile, place.arch, place.d, place.itemsize):
        raise UsageError(
            f"the measured tile {tile!r} of {place.kernel} cannot run on sm_{place.arch} with d = {place.d}; "
            "allowed: [BM, BN, warps, stages], BM and BN 16, 32, 64, …, within registers and shared memory"
        )
    if fault := faults.get((*place, *tile)):
        raise UsageError(
            f"the measured tile {tile!r} of {place.kernel} {fault} on sm_{place.arch} with d = {place.d}, by "
            "the record of resources; allowed: a tile that spills nothing there and waits fewer times than "
            "it has products: fewer queries or keys, or more warps"
        )
    return place, tuple(tile)


def _faults() -> dict[tuple[Any, ...], str]:
    """The recorded faults of inner loops, by place and tile: spills, or serialised products."""
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
    if theirs == version or not any(place.arch == arch for place in measured()):
        return ""
    return (
        f"the tiles of sm_{arch} were measured with Triton {theirs}, and this is {version}: they are used. "
        "To measure again: python -m tools.bench gpu --only tune"
    )


def _is_tile(tile: Any) -> bool:
    """Whether these are four sizes: powers of two, of at least 16 for BM and BN, and at least one stage."""
    if not isinstance(tile, list) or [type(size) for size in tile] != [int] * 4:
        return False
    *sizes, stages = tile
    least = zip(sizes, (16, 16, 1), strict=True)
    return stages >= 1 and all(size >= at_least and not size & (size - 1) for size, at_least in least)


def fits(kernel: str, tile: Sequence[int], arch: int, d: int, itemsize: int = 2) -> bool:
    """Whether a tile could run at all: a lower bound of what it needs, so few that run are left out.

    In registers: the float32 sums that stay and tiles of scores; the fused pass' tile of dQ comes and goes.
    In shared memory: the two arrays that stream past, `stages` tiles deep.
    """
    BM, BN, warps, stages = tile
    stays, streams = (BM, BN) if kernel in ("forward", "queries") else (BN, BM)
    sums = stays if kernel in ("forward", "queries") else 2 * stays
    scores = BM * BN * (1 if kernel == "forward" else 2)
    registers = (sums * d + scores) / (32 * warps)
    shared = 2 * streams * d * itemsize * stages
    return registers + ADDRESSES <= REGISTERS_A_THREAD and shared <= chip_of(arch).shared_bytes
