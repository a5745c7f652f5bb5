"""Launches of `attention` and `decode`: tiles of complete rows, d in slices, and materialised scores.

Each pass takes its `Inputs`, tensors in a form that kernels can read (see `passes.readable`), and a backward
pass also the `Results` of the forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ...costs.kernel_masks import rows_of_delta
from ..backward_delta import row_products_kernel
from ..backward_dkdv import backward_keys_kernel
from ..backward_dq import backward_queries_kernel
from ..forward import forward_kernel
from ..jit_helpers import LAST_ROW, MaskKind, RowNumbers, Rows, Shape, Slicing, Tiling
from ..materialised_scores import (
    averages_kernel,
    key_gradients_kernel,
    query_gradients_kernel,
    scores_kernel,
    weights_kernel,
)
from ..sliced_head_dim import sliced_forward_kernel, sliced_keys_kernel, sliced_queries_kernel
from ..split_kv_decode import Parts, last_merges_kernel, merge_kernel, parts_kernel
from . import backend
from .backend import targeting
from .choices import (
    Case,
    SlicedTileConfig,
    TileConfig,
    choice,
    decode_tile,
    matrix_bytes,
    matrix_bytes_of,
    padded,
    sliced_tile,
    tile,
)
from .ranges import Side, View, VisiblePairs

PROGRAMS_A_PROCESSOR = 2  # that `enough_parts` aims at
MOST_PARTS = 264  # two per SM of an H200
AT_ONCE = 64  # parts merged at once, one row of O each; also the default limit if a second launch merges
# Default limit of the rows of O that a last program merges. One SM reads them, at most 64 bytes per clock:
# half a megabyte (d = 128) in 5 µs, about the time of the launch that is saved. Too high for 32 query
# heads that share one head of keys: on an H200 such a step took 38 to 56 µs more than with a second launch.
MERGED_BY_ONE = 1024


class Inputs(NamedTuple):
    """Inputs of a pass: its case, q (B, H, Nq, d), k and v (B, H_kv, Nk, d), and the factor of QKᵀ."""

    case: Case
    q: Tensor
    k: Tensor
    v: Tensor
    visible: VisiblePairs
    scale: float


class Results(NamedTuple):
    """Inputs of a backward pass besides `Inputs`: O, dO (B, H, Nq, d), LSE (B, H, Nq), and dLSE or None.

    needed: letters of the gradients to compute, of "qkv".
    """

    o: Tensor
    do: Tensor
    lse: Tensor
    dlse: Tensor | None
    needed: str = "qkv"


# Start of a kernel: run it, or record the launch so that resources can be reported.


class Launch(NamedTuple):
    """A recorded kernel launch that was not run: its name, kernel, arguments and compile-time constants."""

    name: str
    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


_written: list[Launch] | None = None  # a list while launches are recorded


@contextmanager
def record_launches(arch: int) -> Iterator[list[Launch]]:
    """Record the launches of this block, as on architecture `arch`, instead of running them. Yields a list to
    which each `Launch` is appended.
    """
    global _written
    with targeting(arch):
        launches: list[Launch] = []
        _written = launches
        try:
            yield launches
        finally:
            _written = None


def start(name: str, kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Start `programs` programs of a kernel, or record the launch. All programs are on the first axis of the
    grid, the only one that may be longer than 65,535. name: of the launch in `resources_of`.
    """
    if _written is not None:
        _written.append(Launch(name, kernel, arguments, constants))
    elif programs:
        kernel[(programs,)](*arguments, **constants)


# Arguments of kernels.


class ListedSide(NamedTuple):
    """A `Side` of a block mask as kernel argument. Strides over shared batches or heads are 0.

    The strides are separate fields, because Triton 3.6 loses those that are 1 from a nested tuple in a loop.
    """

    spans: Tensor
    spans_batch: int
    spans_head: int
    spans_tile: int
    entries: Tensor
    slots: Tensor
    patterns: Tensor
    pattern_row: int
    pattern_column: int
    order: Tensor
    order_batch: int
    order_head: int


def leading_strides(x: Tensor) -> tuple[int, ...]:
    """Return the strides over the first three axes; 0 for an axis of length 1, whose stride is arbitrary."""
    return tuple([0 if n == 1 else step for n, step in zip(x.shape[:3], x.stride(), strict=False)])


def listed_side(lists: Sequence[Tensor], side: int) -> ListedSide | None:
    """Return side number `side` from the concatenated lists of all sides; None if there are no lists."""
    if not lists:
        return None
    parts = len(Side._fields)
    one = Side(*lists[side * parts : (side + 1) * parts])
    row, column = one.patterns.stride()[1:]
    spans_batch, spans_head, spans_tile = leading_strides(one.spans)
    order_batch, order_head, _ = leading_strides(one.order)
    return ListedSide(
        one.spans, spans_batch, spans_head, spans_tile, one.entries, one.slots,
        one.patterns, row, column, one.order, order_batch, order_head,
    )  # fmt: skip


def to_rows(*arrays: Tensor | None) -> list[Rows | None]:
    """Return each array as `Rows`, with its strides over B, H and N; None for None."""
    return [None if x is None else Rows(x, *leading_strides(x)) for x in arrays]


def streamed(fast: bool, case: Case, BLOCK: int, *arrays: Tensor | None) -> list[Any]:
    """Return the streamed arrays as descriptors of BLOCK complete rows if `fast`, else as `Rows`.

    In a descriptor of packed sequences the program's coordinates define where its rows end (see
    `jit_helpers.corner`); its axes and strides are those of `triton.tools.ragged_tma`.
    """
    if not fast:
        return list(to_rows(*arrays))
    packed, width = case.mask == "packed", padded(case.d)
    return [x if x is None else _descriptor(x, packed, BLOCK, width) for x in arrays]


def _descriptor(x: Tensor, packed: bool, BLOCK: int, width: int) -> TensorDescriptor:
    if not packed:
        return TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, BLOCK, width])
    (_, H, n, d), (_, head, row, one), last = x.shape, x.stride(), int(LAST_ROW.value)
    sizes, strides = [last + 1, n + 1, H, last, d], [2**64 // last - row, row, head, row, one]
    return TensorDescriptor(x, sizes, strides, [1, 1, 1, BLOCK, width])


def descriptors_fit(case: Case, *arrays: Tensor | None) -> bool:
    """Return True if descriptors are used for these arrays: sm_90 or later, 16-bit, and 16-byte aligned.

    Products of float32 run on the ordinary cores, with operands in registers. The copy engine loads into
    shared memory, which then costs spills.
    """
    wanted = case.arch is not None and case.arch >= 90 and case.itemsize == 2
    wanted = wanted and (case.mask != "packed" or choice("packed descriptors", case).value)
    return wanted and all(x is None or _aligned(x) for x in arrays)


def _aligned(x: Tensor) -> bool:
    size, strides = x.element_size(), x.stride()
    if x.numel() == 0 or 0 in strides or x.data_ptr() % 16:
        return False
    return not any([stride * size % 16 for stride in strides[:3]])


def start_whole(name: str, kernel: Any, x: Inputs, view: View, side: int, fast: bool, *arrays: Any) -> None:
    """Start a kernel with complete rows: its arrays, then the visible pairs, the grid, scale and lengths.

    side: index of its side in the lists of a block mask. fast: what it streams is in descriptors.
    """
    tile, width, precision = view.tile, padded(x.case.d), _precision(x.case)
    # The waiting that this avoids occurs with 16-bit products on sm_90 (see the end of `jit_helpers`).
    skipping = x.case.arch in (None, 90) and precision is None  # also interpreted, so that it is tested
    tiling = Tiling(tile.BM, tile.BN, width, width != x.case.d, fast, precision, skipping)
    start(
        name, kernel, view.programs, *arrays, view.cu, listed_side(x.visible.lists, side), view.shape,
        x.scale, *view.numbers, TILE=tiling, MASK=view.mask, **_options(tile),
    )  # fmt: skip


def start_sliced(name: str, kernel: Any, x: Inputs, *arrays: Any, by: str = "queries") -> None:
    """Start a kernel that splits d: its arrays, then the grid, the scale and the lengths. by: "queries" or
    "keys", the side that its programs divide.
    """
    tile = sliced_tile(name, x.case)
    view = _view_of(x, tile, by)
    start(name, kernel, view.programs, *arrays, view.shape, x.scale, *view.numbers, **_slicing(x, tile))


def start_slices(
    name: str, kernel: Any, x: Inputs, *arrays: Any, by: str = "queries", scale: bool = True
) -> None:
    """Start a kernel with one program per slice of d that adds weighted products, as `start_sliced` does.
    scale: the kernel takes it.
    """
    tile = sliced_tile(name, x.case)
    view, slices = _view_of(x, tile, by), -(-x.case.d // tile.BD)
    # Not for float32: in shared memory wgmma transposes only 16-bit operands. Also interpreted, for tests.
    turned = x.case.arch in (None, 90) and _precision(x.case) is None
    factor = (x.scale,) if scale else ()
    start(
        name, kernel, slices * view.programs, *arrays, view.shape, slices, *factor, *view.numbers,
        **_slicing(x, tile), TURNED=turned,
    )  # fmt: skip


def _view_of(x: Inputs, tile: SlicedTileConfig, by: str) -> View:
    return (x.visible.by_queries if by == "queries" else x.visible.by_keys)(x.q, x.k, tile, 0)


def _slicing(x: Inputs, tile: SlicedTileConfig) -> dict[str, Any]:
    """Return the compile-time arguments of a kernel that splits d."""
    slicing = Slicing(tile.BM, tile.BN, tile.BD, _precision(x.case))
    return {"SLICE": slicing, "MASK": x.visible.band.limits, **_options(tile)}


def _precision(case: Case) -> str | None:
    return "ieee" if case.itemsize == 4 else None


def _options(tile: TileConfig | SlicedTileConfig) -> dict[str, Any]:
    return {"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": True}


def with_tail(x: Tensor, visible: VisiblePairs, value: float = 0.0) -> Tensor:
    """Fill x with `value` if rows past the last packed sequence may not be written otherwise; return x."""
    return x.fill_(value) if visible.packed is not None and visible.packed.tail else x


def scratch(*shape: int, like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return an uninitialised tensor on the device of `like`."""
    return torch.empty(shape, dtype=dtype, device=like.device)


# Tiles of complete rows of Q, K and V, which `attention` launches if they fit.


def whole_forward(x: Inputs) -> tuple[Tensor, Tensor]:
    """Return O (like q) and LSE (B, H, Nq) float32."""
    view = x.visible.by_queries(x.q, x.k, tile("forward", x.case), 0)
    o = with_tail(torch.empty_like(x.q), x.visible)
    lse = with_tail(scratch(*x.q.shape[:3], like=x.q), x.visible, -math.inf)
    fast = descriptors_fit(x.case, x.k, x.v)
    streams = streamed(fast, x.case, view.tile.BN, x.k, x.v)
    start_whole("forward", forward_kernel, x, view, 0, fast, *to_rows(x.q), *streams, *to_rows(o), lse)
    return o, lse


def split_backward(x: Inputs, y: Results) -> tuple[Tensor | None, ...]:
    """Return dQ, dK and dV in two kernels: dQ and row statistics, then dK and dV. The scores are computed
    twice, and every sum has a fixed order. If one kernel is needed, the other one is not launched.
    """
    kernel, queries_side, keys_side = "keys", 1, 2
    # The lists of a block mask may have two sides, in tiles of the forward and the fused kernel.
    if len(x.visible.lists) == 2 * len(Side._fields):
        kernel, queries_side, keys_side = "fused", 0, 1
    keys = x.visible.by_keys(x.q, x.k, tile(kernel, x.case), keys_side)
    if "q" not in y.needed:
        prepared = prepare(x, y, None, keys.tile.BM)
        return None, *_whole_keys("keys", x, y, keys, keys_side, prepared, None)
    view = x.visible.by_queries(x.q, x.k, tile("queries", x.case), queries_side)
    dq = with_tail(torch.empty_like(x.q), x.visible)
    tiles = [view.tile.BM] if y.needed == "q" else [view.tile.BM, keys.tile.BM]
    # Padded for the kernel that stores the statistics and for the one that loads them.
    prepared = room_for_row_numbers(x, *tiles)
    fast = descriptors_fit(x.case, x.k, x.v)
    streams = streamed(fast, x.case, view.tile.BN, x.k, x.v)
    arrays = (*to_rows(x.q), *streams, *to_rows(y.o, y.do), y.lse, y.dlse, prepared, *to_rows(dq))
    start_whole("queries", backward_queries_kernel, x, view, queries_side, fast, *arrays)
    if y.needed == "q":
        return dq, None, None
    return dq, *_whole_keys("keys", x, y, keys, keys_side, prepared, None)


def fused_backward(x: Inputs, y: Results) -> tuple[Tensor | None, ...]:
    """Return dQ, dK and dV: row statistics first, then all three in one kernel, which adds dQ atomically
    to float32 zeros. It computes all three, whichever are needed.
    """
    # Uninitialised: the kernel of `prepare` stores the zeros, which saves a launch.
    total = with_tail(scratch(*x.q.shape, like=x.q), x.visible)
    view = x.visible.by_keys(x.q, x.k, tile("fused", x.case), 1)
    dk, dv = _whole_keys("fused", x, y, view, 1, prepare(x, y, total, view.tile.BM), total)
    # One pass over the sums scales them and rounds them to q's type.
    return torch.mul(total, x.scale, out=torch.empty_like(x.q)), dk, dv


def room_for_row_numbers(x: Inputs, *tiles: int) -> RowNumbers:
    """Allocate row statistics of q, padded to full tiles of kernels with these tile sizes (queries)."""
    (B, H, n_q, _), packed, pad = x.q.shape, x.visible.packed, max(tiles)
    # Each packed sequence starts at its row in q, plus one tile of padding for every sequence before it.
    spare = 0 if packed is None else pad * (len(packed.cu_q) - 1)
    rows = -(-n_q // pad) * pad + spare
    return RowNumbers(scratch(B, H, rows, like=x.q), scratch(B, H, rows, like=x.q), rows, pad)


def row_products_tile(d: int) -> TileConfig:
    """Return the tile of the kernel that computes D, which streams rows and needs no tuning."""
    return TileConfig(rows_of_delta(d), 0, 4, 1)


def prepare(x: Inputs, y: Results, total: Tensor | None, *tiles: int) -> RowNumbers:
    """Return D = rowsum(dO ∘ O) - dLSE and LSE / log 2 for kernels with these numbers of queries per tile,
    and store zeros in `total` unless it is None.
    """
    H, n_q, d = x.q.shape[1:]
    tile = row_products_tile(d)
    prepared = room_for_row_numbers(x, tile.BM, *tiles)
    B, each = x.visible.tiles_of_queries(x.q, tile.BM)
    width = padded(d)
    start(
        "row_products", row_products_kernel, each * B * H,
        *to_rows(y.o, y.do), y.dlse, y.lse, prepared, *to_rows(total),
        x.visible.packed and x.visible.packed.cu_q, Shape(each, H, 1, d), n_q,
        BM=tile.BM, DIM=width, PADDED=width != d, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return prepared


def _whole_keys(
    name: str, x: Inputs, y: Results, view: View, side: int, prepared: RowNumbers, dq: Tensor | None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return dK and dV; add dS K to dq (float32 zeros) unless it is None."""
    dk, dv = (with_tail(torch.empty_like(one), x.visible) for one in (x.k, x.v))
    fast = descriptors_fit(x.case, x.q, y.do, dq)
    queries, gradients, sums = streamed(fast, x.case, view.tile.BM, x.q, y.do, dq)
    arrays = (queries, *to_rows(x.k, x.v), gradients, prepared, sums, *to_rows(dk, dv))
    start_whole(name, backward_keys_kernel, x, view, side, fast, *arrays)
    return dk, dv


# d in slices, without materialised scores; each result needs a float32 copy as scratch memory.


def sliced_forward(x: Inputs) -> tuple[Tensor, Tensor]:
    """Return O (like q) and LSE (B, H, Nq) float32."""
    o, lse = torch.empty_like(x.q), scratch(*x.q.shape[:3], like=x.q)
    arrays = to_rows(x.q, x.k, x.v, scratch(*x.q.shape, like=x.q), o)
    start_sliced("sliced_forward", sliced_forward_kernel, x, *arrays, lse)
    return o, lse


def sliced_backward(x: Inputs, y: Results) -> tuple[Tensor | None, ...]:
    """Return dQ, dK and dV: row statistics first, then one kernel for dQ and one for dK and dV. Every sum has
    a fixed order. A kernel that is not needed is not launched.
    """
    kernels = ["sliced_queries"] * ("q" in y.needed) + ["sliced_keys"] * (y.needed != "q")
    prepared = prepare(x, y, None, *(sliced_tile(name, x.case).BM for name in kernels))
    inputs, dq = to_rows(x.q, x.k, x.v, y.do), None
    if "q" in y.needed:
        dq = torch.empty_like(x.q)
        sums = to_rows(scratch(*x.q.shape, like=x.q), dq)
        start_sliced("sliced_queries", sliced_queries_kernel, x, *inputs, prepared, *sums)
    if y.needed == "q":
        return dq, None, None
    # Without query heads the kernel adds nothing and stores nothing.
    dk, dv = (torch.empty_like(one) if x.q.shape[1] else torch.zeros_like(one) for one in (x.k, x.v))
    sums = to_rows(scratch(*x.k.shape, like=x.k), scratch(*x.k.shape, like=x.k), dk, dv)
    start_sliced("sliced_keys", sliced_keys_kernel, x, *inputs, prepared, *sums, by="keys")
    return dq, dk, dv


# d in slices, with materialised scores: B · H · Nq · Nk words of scratch memory.


def scores_forward(x: Inputs) -> tuple[Tensor, Tensor]:
    """Return O (like q) and LSE (B, H, Nq) float32; the materialised scores are float32."""
    o, lse = torch.empty_like(x.q), scratch(*x.q.shape[:3], like=x.q)
    scores = scratch(x.q.shape[0] * x.q.shape[1], x.q.shape[2], x.k.shape[2], like=x.q)
    start_sliced("scores", scores_kernel, x, *to_rows(x.q, x.k), scores, lse)
    start_slices("averages", averages_kernel, x, scores, lse, *to_rows(x.v, o), scale=False)
    return o, lse


def scores_backward(x: Inputs, y: Results) -> tuple[Tensor | None, ...]:
    """Return dQ, dK and dV from P and dS, which are materialised in q's type for a few heads at a time.

    Only dK and dV need P, and a product that is not needed is not launched.
    """
    dq = torch.empty_like(x.q) if "q" in y.needed else None
    dk, dv = (None if y.needed == "q" else torch.empty_like(one) for one in (x.k, x.v))
    for batches, heads in _few_heads(x.k.shape[0], x.k.shape[1], matrix_bytes_of(x.q, x.k)):
        group = x.case.group
        queries, keys = (batches, slice(heads.start * group, heads.stop * group)), (batches, heads)
        _scores_backward(
            x._replace(q=x.q[queries], k=x.k[keys], v=x.v[keys]),
            Results(y.o[queries], y.do[queries], y.lse[queries], None if y.dlse is None else y.dlse[queries]),
            *(None if one is None else one[part] for one, part in ((dq, queries), (dk, keys), (dv, keys))),
        )  # fmt: skip
    return dq, dk, dv


def _few_heads(B: int, heads: int, each: int) -> Iterator[tuple[slice, slice]]:
    """Yield the batches and key heads whose P and dS are materialised at once: as many as fit in
    `matrix_bytes()`, at least one key head. each: bytes per key head.
    """
    at_once = max(1, matrix_bytes() // max(1, each))
    batches = max(1, at_once // max(1, heads))
    part = min(heads, at_once)
    for batch in range(0, B, batches):
        for head in range(0, heads, max(1, part)):
            yield slice(batch, min(B, batch + batches)), slice(head, min(heads, head + part))


def _scores_backward(
    x: Inputs, y: Results, dq: Tensor | None, dk: Tensor | None, dv: Tensor | None
) -> None:  # fmt: skip
    """Materialise P and dS of all heads of these tensors at once; store the gradients in dq, dk and dv."""
    prepared = prepare(x, y, None, sliced_tile("weights", x.case).BM)
    ds = scratch(x.q.shape[0] * x.q.shape[1], x.q.shape[2], x.k.shape[2], like=x.q, dtype=x.q.dtype)
    p = None if dk is None else torch.empty_like(ds)
    start_sliced("weights", weights_kernel, x, *to_rows(x.q, x.k, x.v, y.do), prepared, p, ds)
    if dq is not None:
        start_slices("query_gradients", query_gradients_kernel, x, ds, *to_rows(x.k, dq))
    if dk is not None:
        arrays = to_rows(x.q, y.do, dk, dv)
        start_slices("key_gradients", key_gradients_kernel, x, p, ds, *arrays, by="keys")


FORWARD: dict[str, Callable[[Inputs], tuple[Tensor, Tensor]]] = {
    "complete rows": whole_forward,
    "slices": sliced_forward,
    "materialised": scores_forward,
}
BACKWARD: dict[str, Callable[[Inputs, Results], tuple[Tensor | None, ...]]] = {
    "fused": fused_backward,
    "two-pass": split_backward,
    "slices": sliced_backward,
    "materialised": scores_backward,
}


# The decode step.


def decode_launches(
    case: Case, q: Tensor, k: Tensor, v: Tensor, scale: float, asked: int
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return O (like q) and LSE (B, H, 1) float32. `asked`: number of parts, or 0 for enough parts."""
    (B, H, _, d), (_, kv_heads, n_k, _) = q.shape, k.shape
    group, DIM, tile = case.group, padded(d), decode_tile(case)
    tiles = -(-group // tile.BM)
    last = choice("decode step", case).value == "last program"
    enough = enough_parts(processors(case.arch, q.device), B * kv_heads * tiles, most_parts(case, tile))
    parts, length = split_keys(n_k, tile.BN, asked or enough)
    o, lse = torch.empty_like(q), scratch(B, H, 1, like=q)
    found, sums = scratch(B * kv_heads, parts, group, d, like=q), scratch(B * kv_heads, parts, group, like=q)
    shape = Parts(parts, tiles, kv_heads, group, d)
    # The query heads that share a key head become the rows of a tile: a row is one head further, and the next
    # key head is `group` heads further.
    queries, results = Rows(q, q.stride(0), group * q.stride(1), q.stride(1)), Rows(o, *o.stride()[:3])
    tiling = Tiling(tile.BM, tile.BN, DIM, d != DIM, False, _precision(case))
    attend = {"TILE": tiling, "MASK": MaskKind(False, False), **_options(tile)}
    # A power of two, as tl.arange requires.
    at_once = min(AT_ONCE, 1 << (parts - 1).bit_length())
    merge = {"PARTS": at_once, "MORE": parts > at_once}
    programs = tiles * B * kv_heads
    if last:
        start(
            "decode_last", last_merges_kernel, parts * programs,
            queries, *to_rows(k, v), found, sums, counters(programs, q), results, lse,
            shape, scale, length, n_k, **attend, **merge,
        )  # fmt: skip
        return o, lse
    start(
        "decode_parts", parts_kernel, parts * programs,
        queries, *to_rows(k, v), found, sums, shape, scale, length, n_k, **attend,
    )  # fmt: skip
    start(
        "decode_merge", merge_kernel, B * kv_heads * group,
        found, sums, results, lse, shape, **merge, DIM=DIM, num_warps=tile.warps,
    )  # fmt: skip
    return o, lse


_counters: dict[tuple[torch.device, int], Tensor] = {}


def counters(n: int, like: Tensor) -> Tensor:
    """Return n int32 zeros as counters of programs; the last program to count resets them to zero.

    Filling them takes a separate launch, so they are kept, one tensor per stream, whose launches run one
    after the other. A graph under capture gets new ones, because it may be replayed concurrently with that
    stream; so does the interpreter, where an exception may end a launch early.
    """
    if like.device.type != "cuda" or backend.INTERPRETED or torch.cuda.is_current_stream_capturing():
        return torch.zeros(n, dtype=torch.int32, device=like.device)
    key = (like.device, torch.cuda.current_stream(like.device).cuda_stream)
    if key not in _counters or len(_counters[key]) < n:
        _counters[key] = torch.zeros(n, dtype=torch.int32, device=like.device)
    return _counters[key]


def split_keys(n_k: int, BN: int, parts: int) -> tuple[int, int]:
    """Return the number of parts, at most `parts`, and the keys per part, a multiple of BN."""
    tiles = max(1, -(-n_k // BN))
    length = -(-tiles // min(parts, tiles)) * BN
    # Rounding up to full tiles may make the last parts empty; these are dropped.
    return max(1, -(-n_k // length)), length


def most_parts(case: Case, tile: TileConfig) -> int:
    """Return the largest number of parts that one program merges, or a second launch."""
    if choice("decode step", case).value == "last program":
        return MERGED_BY_ONE // max(1, min(case.group, tile.BM))
    return AT_ONCE


def enough_parts(processors: int | None, programs: int, most: int = AT_ONCE) -> int:
    """Return the number of parts, at most `most`, with which each SM runs a few programs.

    processors: SMs of the GPU; None (no GPU) gives 4 parts. programs: programs per part.
    """
    if processors is None:
        return 4
    return max(1, min(most, MOST_PARTS, PROGRAMS_A_PROCESSOR * processors // max(1, programs)))


def processors(arch: int | None, device: torch.device) -> int | None:
    """Return the number of SMs of a device; None if kernels are interpreted or only prepared."""
    if arch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
