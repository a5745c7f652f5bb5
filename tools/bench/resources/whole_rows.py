"""Derive `WHOLE_UP_TO` of kernels/host/dispatch.py, the maximum head sizes for tiles of complete rows, from
the record of resources and the closed forms: such tiles fit the chip and move no more bytes than slices of d.
"""

from __future__ import annotations

from iocourse.costs.kernels import (
    KernelProblem,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
    ledger_bytes,
    sliced_backward,
    sliced_forward,
)
from iocourse.gpu import Resources
from iocourse.kernels.host.dispatch import recorded_rows
from iocourse.kernels.host.tile_table import (
    INTERPRETED,
    SLICED,
    SLICED_INTERPRETED,
    TABLE,
    has_row,
    padded,
)
from iocourse.ledger import Ledger

N = 4096  # for the comparison of bytes; for larger N both variants grow equally


def variant(which: str, arch: int | None, d: int, itemsize: int) -> str:
    """Return the expected `choose_variant` of a pass, "forward", "fused" or "split": "whole" or "fused"."""
    if not fits(which, arch, d, itemsize):
        return "fused"
    whole, sliced = (bytes_moved(which, way, arch, d, itemsize) for way in ("whole", "fused"))
    return "whole" if whole <= sliced else "fused"


def fits(which: str, arch: int | None, d: int, itemsize: int) -> bool:
    """Return True if the kernels of a pass with complete rows fit a chip; interpreted: up to d = 256.

    They fit if the record has them compiled with the table's tile, with no spills in the hot loop and no more
    shared memory than the chip has.
    """
    if not has_row(arch, d):
        return False
    if arch is None:
        return True
    rows = recorded_rows(which, arch, d, itemsize)
    return bool(rows) and all(Resources.of(row).fits for row in rows)


def bytes_moved(which: str, way: str, arch: int | None, d: int, itemsize: int) -> int:
    """Return the bytes of a pass for one head of N = 4096 without a mask, by the closed forms for the table's
    tiles. `using` has no effect.
    """
    return ledger_bytes(_ledger(which, way, arch, d, itemsize), itemsize)


def _ledger(which: str, way: str, arch: int | None, d: int, itemsize: int) -> Ledger:
    problem = KernelProblem(N, N, d)
    if way == "fused":
        cut = SLICED_INTERPRETED if arch is None else SLICED[arch, itemsize]
        if which == "forward":
            return sliced_forward(problem, BM=cut.sliced_forward.BM, BN=cut.sliced_forward.BN)
        return sliced_backward(problem, queries=cut.sliced_queries[:2], keys=cut.sliced_keys[:2])
    table = INTERPRETED if arch is None else TABLE[arch, max(64, padded(d)), itemsize]
    if which == "forward":
        return attention_forward(problem, BM=table.forward.BM, BN=table.forward.BN)
    if which == "fused":
        return attention_fused_backward(problem, BM=table.fused.BM, BN=table.fused.BN)
    return attention_split_backward(problem, queries=table.queries[:2], keys=table.keys[:2])
