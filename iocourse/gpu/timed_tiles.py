"""Timed tiles of forward and backward kernels on one H200, with columns from the compiler and the closed
forms that need no run.

`tables` reads two records. The times of `tiles` are those of a draft of the forward kernel, which is not a
kernel of the library; the times of `tune` are those of the library's kernels, one day later. Each half of the
two-pass backward pass ("queries", "keys") was timed together with the other half, whose tile is the same in
all rows of a table. The compiled columns of `tune` are in the record `tune-compiled`, whose machine code is
that of the commit in the record of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..costs.kernels import KernelProblem, kernel_words
from ..data.records import NONE_YET, load_record
from .compilation import Resources

Row = dict[str, Any]

RECORDS = ("tiles", "tune")
TILE = ("kernel", "d", "causal", "BM", "BN", "warps", "stages")
DRAFT = "draft"  # the kernel of the record `tiles`; its words are those of "forward"
ARCH, SMS, GHZ = 90, 132, 1.755  # of an H200; the clock rate is assumed
N, ITEMSIZE = 4096, 2  # keys and queries of each timed problem, bytes per number
KERNELS = ("forward", "queries", "keys")  # of `tune`, without "fused", for which few tiles were tried
PRODUCTS = {"forward": 2, "queries": 3, "keys": 4}  # matrix products per tile of scores
# Per SM and clock: FLOP of products, exponentials, instructions, bytes from L2 and from shared memory.
TENSOR_FLOP, EXPONENTIALS, INSTRUCTIONS, L2_BYTES, SHARED_BYTES = 4096, 16, 4, 40, 128
ALONE = 4  # clocks per instruction of one warp that nothing overlaps; fitted to published times
SPILL = 8  # issue slots of one load or store of a spilled register; assumed
WARPGROUP, ROWS = 4, 64  # warps that compute a product together on sm_90, and their rows of it


def tables(name: str) -> dict[str, list[Row]]:
    """Return the timed tiles of a record, one list per kernel, head size and mask.

    The keys are names such as "forward, d = 64, causal". A row has `kernel`, `d`, `causal`, `BM`, `BN`,
    `warps`, `stages`, the measured `ms`, and these columns that no run is needed for:
    `registers` per thread; `shared_bytes` per program; `blocks` (programs) and `warps_per_sm`,
    `warpgroups_per_sm` that one SM can hold; `rows_per_warpgroup` of the resident tile; `words` that the
    launch moves per head (closed form, N = 4,096); per iteration of the inner loop `products` (tensor-core
    instructions), `waits` for them, and `spills` (loads and stores of spilled registers); per score of one
    thread `instructions`, `exponentials` and `stall_clocks`; and `clock_model_tflops`.

    Args:
        name: "tiles" or "tune".

    Raises:
        ValueError: another name, a record that is not shipped, or one without the times or the compiler's
            columns of a tile.
    """
    if name not in RECORDS:
        raise ValueError(f"name must be one of {', '.join(RECORDS)}; got {name!r}")
    found: dict[str, list[Row]] = {}
    for row in _tiles(_record("tiles")) if name == "tiles" else _tune(_record("tune")):
        title = f"{row['kernel']}, d = {row['d']}{', causal' * row['causal']}"
        found.setdefault(title, []).append(row)
    return found


def clock_model(row: Mapping[str, Any]) -> tuple[float, str]:
    """Return the TFLOP/s that a simple model of one SM predicts for a tile, and the name of its limit.

    One iteration of the inner loop takes the largest of six numbers of clocks:
    "tensor", for the products; "exponentials"; "issue", for all instructions; "L2", for the streamed tiles;
    "shared memory", for the operands of the products; "alone", for programs without overlap, each of which
    takes `ALONE` clocks per instruction and the clocks of its products, divided by the resident programs.

    `ALONE` is fitted to published times of other kernels, and `SPILL` is assumed. No clock rate was recorded
    with the times; the model assumes `GHZ`.

    Args:
        row: a row of `tables`.
    """
    BM, BN, warps, d = row["BM"], row["BN"], row["warps"], row["d"]
    flop = 2 * PRODUCTS[_pass(row)] * BM * BN * d
    tensor = flop / TENSOR_FLOP
    slots = row["instructions"] * BM * BN / (32 * warps) + SPILL * row["spills"]
    streamed = BM if row["kernel"] == "keys" else BN
    clocks = {
        "tensor": tensor,
        "exponentials": BM * BN * row["exponentials"] / EXPONENTIALS,
        "issue": slots * warps / INSTRUCTIONS,
        "L2": 2 * streamed * d * ITEMSIZE / L2_BYTES,
        "shared memory": flop / 2 / ROWS * ITEMSIZE / SHARED_BYTES,  # ROWS rows read the other factor once
        "alone": (ALONE * slots + tensor * WARPGROUP / warps) / row["blocks"],
    }
    limit = max(clocks, key=clocks.__getitem__)
    return flop / clocks[limit] * SMS * GHZ / 1000, limit


def _record(name: str) -> dict[str, Any]:
    if (record := load_record(name)) is None:
        raise ValueError(f"record {name}: {NONE_YET}")
    return record


def _pass(row: Mapping[str, Any]) -> str:
    """Return the name of the row's kernel in the closed forms."""
    return "forward" if row["kernel"] == DRAFT else str(row["kernel"])


def _tiles(record: Mapping[str, Any]) -> Iterator[Row]:
    for row in record["rows"]:
        yield _columns({"kernel": DRAFT} | row, row.get("compiled"))


def _tune(record: Mapping[str, Any]) -> Iterator[Row]:
    known = {_tile(row): row["compiled"] for row in _record("tune-compiled")["tiles"]}
    for one, at in ((one, at) for one in record["kernels"] for at in range(2) if one["kernel"] in KERNELS):
        for tried in one["tried"]:
            if "failed" not in tried:
                row = {"kernel": one["kernel"], "d": one["d"], "causal": bool(at)}
                row |= dict(zip(("BM", "BN", "warps", "stages"), tried["tile"], strict=True))
                ms = {"ms": tried["ms"][at]} if at < len(tried["ms"]) else {}
                yield _columns(row | ms, known.get(_tile(row)))


def _tile(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in TILE)


def _columns(row: Mapping[str, Any], compiled: Mapping[str, Any] | None) -> Row:
    """Return a row of `tables`. row: its tile and time. compiled: resources and counts per iteration."""
    tile = dict(zip(TILE, _tile(row), strict=True))
    if "ms" not in row or compiled is None:
        lacks = "no time" if "ms" not in row else "no compiled columns"
        raise ValueError(
            f"the tile {', '.join(map(str, tile.values()))} has {lacks}, so its table is not used"
        )
    BM, BN, warps, d = row["BM"], row["BN"], row["warps"], row["d"]
    registers, shared, loop = compiled["registers"], compiled["shared_bytes"], compiled["hot_loop"]
    blocks = Resources(ARCH, registers, 0, shared, warps, 0, 0, 0, 0.0).programs_at_once
    resident, scores = BN if row["kernel"] == "keys" else BM, BM * BN / (32 * warps)  # scores of a thread
    problem = KernelProblem(N, N, d, high=0 if row["causal"] else None)
    found = tile | {
        "ms": row["ms"],
        "registers": registers,
        "shared_bytes": shared,
        "blocks": blocks,
        "warps_per_sm": blocks * warps,
        "warpgroups_per_sm": blocks * warps // WARPGROUP,
        "rows_per_warpgroup": resident * WARPGROUP // warps,
        "words": kernel_words(_pass(row), problem, BM=BM, BN=BN).total,
        "products": loop["wgmma"],
        "waits": loop["waits"],
        "spills": loop["spills"],
        **{name: loop[name] / scores for name in ("instructions", "exponentials", "stall_clocks")},
    }
    return found | {"clock_model_tflops": clock_model(found)[0]}
