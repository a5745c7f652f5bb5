"""The kernels that bytes decide, where no times do: complete rows if they fit the chip and move no more bytes
than slices of d. `tools.bench.choices` compares the rows of choices.json with evidence {"bytes": true}.
"""

from __future__ import annotations

from functools import cache

from iocourse.costs.kernels import (
    KernelProblem,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
    ledger_bytes,
    sliced_backward,
    sliced_forward,
)
from iocourse.data.records import load_record
from iocourse.gpu import Resources
from iocourse.kernels.host.choices import Case, TileConfig, padded, sliced_tile, tile
from iocourse.kernels.host.passes import OF_PASS
from iocourse.ledger import Ledger
from tools.bench import Row

N = 4096  # for the comparison of bytes; for larger N both ways grow equally
SLICES = "slices"
# The value of complete rows, by choice. Without times one kernel is preferred to two passes.
WHOLE_VALUE = {
    "forward pass": "complete rows",
    "backward pass, fixed order": "two-pass",
    "backward pass, one kernel": "fused",
    "backward pass": "fused",
}


@cache
def by_bytes(name: str, arch: int, itemsize: int, d: int) -> str:
    """Return the value of a choice, a name in `WHOLE_VALUE`, that fit and bytes decide."""
    value = WHOLE_VALUE[name]
    if not fits(value, arch, d, itemsize):
        return SLICES
    sliced = bytes_moved(name, SLICES, arch, d, itemsize)
    return value if bytes_moved(name, value, arch, d, itemsize) <= sliced else SLICES


def fits(value: str, arch: int, d: int, itemsize: int) -> bool:
    """Return True if the kernels with complete rows of a value, such as "two-pass", fit a chip: the record
    has them compiled, full and causal, with no spills in the hot loop and no more shared memory than the chip
    has.
    """
    rows = recorded_rows(value, arch, d, itemsize)
    return bool(rows) and all("error" not in row and Resources.of(row).fits for row in rows)


def recorded_rows(value: str, arch: int, d: int, itemsize: int) -> list[Row]:
    """Return the recorded rows of the kernels of a value, without heads that share keys."""
    size = (arch, max(64, padded(d)), itemsize)
    return [row for kernel in OF_PASS[value] for row in _recorded().get((kernel, *size), ())]


@cache
def _recorded() -> dict[tuple[str, int, int, int], list[Row]]:
    found: dict[tuple[str, int, int, int], list[Row]] = {}
    for row in (load_record("resources") or {"shipped": []})["shipped"]:
        if row["pairs"] == "band" and row.get("group", 1) == 1:
            found.setdefault((row["kernel"], row["arch"], row["d"], row["bytes"]), []).append(row)
    return found


def bytes_moved(name: str, value: str, arch: int, d: int, itemsize: int) -> int:
    """Return the bytes of a pass for one head of N = 4096 without a mask, by the closed forms for compiled
    tiles.
    """
    case = Case(
        arch, itemsize, d, "packed"
    )  # packed sequences use compiled tiles, also where others are timed
    return ledger_bytes(_ledger(name, value, case), itemsize)


def _ledger(name: str, value: str, case: Case) -> Ledger:
    problem = KernelProblem(N, N, case.d)
    if value == SLICES:
        if name == "forward pass":
            BM, BN, *_ = sliced_tile("sliced_forward", case)
            return sliced_forward(problem, BM=BM, BN=BN)
        queries, keys = (sliced_tile(kernel, case)[:2] for kernel in ("sliced_queries", "sliced_keys"))
        return sliced_backward(problem, queries=queries, keys=keys)
    tiles: dict[str, TileConfig] = {kernel: tile(kernel, case) for kernel in OF_PASS[value]}
    if value == "two-pass":
        return attention_split_backward(problem, queries=tiles["queries"][:2], keys=tiles["keys"][:2])
    if value == "fused":
        return attention_fused_backward(problem, BM=tiles["fused"].BM, BN=tiles["fused"].BN)
    return attention_forward(problem, BM=tiles["forward"].BM, BN=tiles["forward"].BN)
