"""Whole rows, slices of d or matrices: answered by what a GPU timed (`FUSED`, `SLICES`), else by the recorded
table of resources and the closed forms, never by a guess or by compiling.

Whole rows fit where the recorded run of `tools.bench resources` compiled the kernel with the table's tile,
with no register spilled in the hot loop and no more shared memory than the chip has. A large d fits at last
with tiles of 16 or 32 rows, which load K and V so often that slices of d in larger tiles move fewer bytes:
then those are it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from ...costs.each_kernel import ledger_bytes
from ...costs.kernels import Problem, attention_forward, attention_fused_backward, attention_split_backward
from ...costs.sliced_kernels import sliced_backward, sliced_forward
from ...data.records import load_record
from ...gpu import Resources
from ...ledger import Ledger
from .tile_table import INTERPRETED, SLICED, SLICED_INTERPRETED, TABLE, has_row, matrix_bytes, padded

# The kernels of each pass that keep whole rows.
PASSES = {"forward": ("forward",), "fused": ("fused",), "split": ("queries", "keys")}
N = 4096  # where bytes are compared; beyond it both ways grow alike


class Backward(NamedTuple):
    """A backward pass: what decides between its ways.

    mask: "full", "causal" or "window". pairs: "band", "block_mask" or "packed". group: heads of queries to
    one of keys. rows: of Q, of all batches and heads. matrix_bytes: of P and dS of one head of keys.
    """

    arch: int | None
    d: int
    itemsize: int
    mask: str
    pairs: str
    group: int
    rows: int
    matrix_bytes: int = 0


Conditions = tuple[tuple[Callable[[Backward], bool], str], ...]
FEW_ROWS = 128 * 132  # one tile of queries for each SM of an H100 or H200
# Conditions under which the fused backward pass is the default, each with its reason. In all other cases the
# two-pass one is, because it was measured to be faster (NVIDIA H200, bfloat16; float16 takes the same
# instructions): 1.05 to 1.38 times as fast wherever the GPU, not the host, set the time.
FUSED: Conditions = (
    (lambda one: one.arch is None, "interpreted: the lessons count the words of one sweep"),
    (lambda one: one.arch != 90, "not timed on this chip"),
    (lambda one: one.itemsize != 2, "float32 is not timed"),
    (lambda one: one.d not in (64, 128), "this head size is not timed"),
    (lambda one: one.pairs == "block_mask", "block masks are not timed both ways"),
    (lambda one: one.pairs == "packed", "packed sequences are not timed both ways"),
    (lambda one: one.mask == "window", "windows are not timed"),
    (lambda one: one.group != 1, "heads that share keys are not timed both ways"),
    (lambda one: one.rows < FEW_ROWS, "so few programs are not timed, and seven products may outlast five"),
)


def why_fused(one: Backward) -> str:
    """Return the reason why the fused backward pass is the default here; "" if the two-pass one is."""
    return _first_reason(FUSED, one)


# Conditions under which the backward pass materialises nothing, each with its reason. In all other cases it
# materialises P and dS, because that was measured to be faster (NVIDIA H200, bfloat16, d = 512): 2.0 times as
# fast as slices of d and 2.8 times as fast as whole rows in full attention, 2.4 and 2.3 times in causal
# attention. The work and the bytes of all three grow in proportion to d.
SLICES: Conditions = (
    (lambda one: one.arch is None, "interpreted: the lessons count the words of slices"),
    (lambda one: one.arch != 90, "not timed on this chip"),
    (lambda one: one.itemsize != 2, "float32 is not timed"),
    (lambda one: one.d <= 256, "no larger head size, no matrix: whole rows fit"),
    (lambda one: one.pairs != "band", "block masks and packed sequences go by whole rows alone"),
    (lambda one: one.mask == "window", "windows are not timed"),
    (lambda one: one.group != 1, "heads that share keys are not timed both ways"),
    (lambda one: one.rows < FEW_ROWS, "so few programs are not timed"),
    (lambda one: one.matrix_bytes > matrix_bytes(), "P and dS of one head take more than matrix_bytes"),
)


def why_no_matrix(one: Backward) -> str:
    """Return the reason why the backward pass materialises nothing by default; "" if it does."""
    return _first_reason(SLICES, one)


def _first_reason(conditions: Conditions, one: Backward) -> str:
    return next((reason for applies, reason in conditions if applies(one)), "")


@cache
def automatic(which: str, arch: int | None, d: int, itemsize: int) -> str:
    """The way to go for an architecture (None: the interpreter), head size and bytes a number: "whole" where
    whole rows fit the chip and move no more bytes, else "fused", the schedule that cuts d and materialises
    nothing.

    which: "forward", "fused" or "split".
    """
    if not fits(which, arch, d, itemsize):
        return "fused"
    whole, sliced = (bytes_moved(which, way, arch, d, itemsize) for way in ("whole", "fused"))
    return "whole" if whole <= sliced else "fused"


@cache
def shared_bytes(which: str, arch: int, d: int, itemsize: int, pairs: str) -> int:
    """The most shared memory that a recorded kernel of a pass with whole rows takes; 0 where none is.

    pairs: "band", "block_mask" or "packed". Lists and packed sequences are recorded for the usual head sizes;
    for others the band's row stands in.
    """
    rows = _rows(which, arch, d, itemsize, pairs) or _rows(which, arch, d, itemsize)
    return max((row["shared_bytes"] for row in rows), default=0)


def fits(which: str, arch: int | None, d: int, itemsize: int) -> bool:
    """Whether the kernels of a pass fit an architecture with whole rows; interpreted, they do to d = 256."""
    if not has_row(arch, d):
        return False
    if arch is None:
        return True
    rows = _rows(which, arch, d, itemsize)
    return bool(rows) and all(Resources.of(row).fits for row in rows)


@cache
def _rows(which: str, arch: int, d: int, itemsize: int, pairs: str = "band") -> list[dict[str, Any]]:
    """The recorded rows of a pass with whole rows; none where a kernel does not compile."""
    record = load_record("resources") or {"shipped": []}
    size = (arch, max(64, padded(d)), itemsize, pairs)
    rows = [
        row
        for row in record["shipped"]
        if (row["arch"], row["d"], row["bytes"], row.get("pairs")) == size and row["kernel"] in PASSES[which]
    ]
    return [] if any("error" in row for row in rows) else rows


def bytes_moved(which: str, way: str, arch: int | None, d: int, itemsize: int) -> int:
    """Bytes of a pass for one head of N = 4096 and no mask, by the closed forms for the table's tiles: those
    chosen by hand change no way.
    """
    return ledger_bytes(_ledger(which, way, arch, d, itemsize), itemsize)


def _ledger(which: str, way: str, arch: int | None, d: int, itemsize: int) -> Ledger:
    problem = Problem(N, N, d)
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
