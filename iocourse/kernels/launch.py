"""From torch tensors to kernel launches: strides, grids, tiles, and what to allocate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ..guard import refuse_in_exam
from . import mode
from .backward_keys import backward_keys_kernel
from .backward_queries import backward_queries_kernel
from .band import Band
from .block_lists import Side, given
from .forward import forward_kernel
from .mode import architecture
from .row_products import row_products_kernel
from .tiles import ROW_PRODUCTS, TOO_LARGE, Tile, Tiles, padded, tiles_for


class Launch(NamedTuple):
    """One kernel launch, written down instead of made."""

    kernel: Any
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


_written: list[Launch] | None = None  # a list while launches are written down


@contextmanager
def written_down(arch: int) -> Iterator[list[Launch]]:
    """Within this block launches are as on architecture `arch`, and are written down instead of made."""
    global _written
    with mode.pretending(arch):
        launches: list[Launch] = []
        _written = launches
        try:
            yield launches
        finally:
            _written = None


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Start `programs` programs of a kernel on one axis, which is the one that may be longer than 65,535."""
    refuse_in_exam(f"{kernel.fn.__module__}.{kernel.fn.__name__}")
    if _written is not None:
        _written.append(Launch(kernel, arguments, constants))
    elif programs:
        kernel[(programs,)](*arguments, **constants)


def forward(
    q: Tensor, k: Tensor, v: Tensor, band: Band, scale: float, blocks: Sequence[Tensor] = ()
) -> tuple[Tensor, Tensor]:
    """O (like q) and its row log-sum-exp, float32 (B, H, Nq).

    q (B, H, Nq, d), k and v (B, H_kv, Nk, d), one dtype and device, unit last stride. `blocks` are the lists of a
    block mask (see `block_mask.lists`), whose first side is the forward pass's; empty where the band decides.
    """
    (q, k, v), dtype = _computable(q, k, v)
    with mode.on(q.device):
        o, lse = _forward(q, k, v, band, scale, blocks)
    return o.to(dtype), lse


def backward(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    band: Band, scale: float, deterministic: bool, blocks: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV (like q, k, v) from dO, the gradient of lse (or None) and what `forward` kept."""
    _check_that_it_fits(q, "keys" if deterministic else "fused")
    wide, dtype = _computable(do, q, k, v, o)
    do, q, k, v, o = (x if x.stride(-1) == 1 else x.contiguous() for x in wide)
    dlse = None if dlse is None else dlse.to(torch.float32).contiguous()
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    way = _split if deterministic else _fused
    with mode.on(q.device):
        dq = way(q, k, v, o, do, lse.contiguous(), dlse, dk, dv, band, scale, blocks)
    return dq.to(dtype), dk.to(dtype), dv.to(dtype)


def _computable(*tensors: Tensor) -> tuple[tuple[Tensor, ...], torch.dtype]:
    """The tensors as the kernel takes them, and their own type: the interpreter computes bfloat16 wrongly."""
    dtype = tensors[0].dtype
    if mode.interpreting() and dtype == torch.bfloat16:
        return tuple(x.to(torch.float32) for x in tensors), dtype
    return tensors, dtype


def _forward(
    q: Tensor, k: Tensor, v: Tensor, band: Band, scale: float, blocks: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    B, H, n_q, d = q.shape
    o = torch.empty_like(q)
    lse = torch.empty((B, H, n_q), dtype=torch.float32, device=q.device)
    tile = tiles_of(q).forward
    tiles = -(-n_q // tile.BM)
    fast = _descriptors_fit(k, v)
    _launch(
        forward_kernel, tiles * B * H,
        *_given(q), *_given(*_streamed(fast, tile.BN, k, v)), *_given(o), lse,
        scale, *band.numbers, _listed(blocks, 0), tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **_constants(q, tile, band, fast), LISTED=bool(blocks), RAGGED=k.shape[2] % tile.BN != 0,
    )  # fmt: skip
    return o, lse


def _split(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    dk: Tensor, dv: Tensor, band: Band, scale: float, blocks: Sequence[Tensor],
) -> Tensor:  # fmt: skip
    """dQ first, which leaves D behind, then dK and dV: the scores twice, and sums in a fixed order."""
    B, H, n_q, d = q.shape
    dq, delta = torch.empty_like(q), torch.empty_like(lse)
    tile = tiles_of(q).queries
    tiles = -(-n_q // tile.BM)
    fast = _descriptors_fit(k, v)
    _launch(
        backward_queries_kernel, tiles * B * H,
        *_given(q), *_given(*_streamed(fast, tile.BN, k, v)), *_given(o, do), lse, dlse, delta, *_given(dq),
        scale, *band.numbers, _listed(blocks, 1), tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **_constants(q, tile, band, fast), LISTED=bool(blocks), RAGGED=k.shape[2] % tile.BN != 0,
        HAS_DLSE=dlse is not None,
    )  # fmt: skip
    _keys(q, k, v, do, lse, delta, None, dk, dv, band, scale, tiles_of(q).keys, _listed(blocks, 2))
    return dq


def _fused(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    dk: Tensor, dv: Tensor, band: Band, scale: float, blocks: Sequence[Tensor],
) -> Tensor:  # fmt: skip
    """D first, then everything else in one kernel, dQ by reduction into float32 zeros."""
    B, H, n_q, d = q.shape
    delta = torch.empty_like(lse)
    tile = ROW_PRODUCTS
    tiles = -(-n_q // tile.BM)
    _launch(
        row_products_kernel, tiles * B * H,
        *_given(o, do), dlse, lse, delta, tiles, H, n_q, d,
        BM=tile.BM, DIM=padded(d), PADDED=padded(d) != d, HAS_DLSE=dlse is not None,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    total = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    _keys(q, k, v, do, lse, delta, total, dk, dv, band, scale, tiles_of(q).fused, _listed(blocks, 1))
    return torch.mul(total, scale, out=torch.empty_like(q))


def _keys(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, dq: Tensor | None,
    dk: Tensor, dv: Tensor, band: Band, scale: float, tile: Tile, columns: tuple[Any, ...] | None,
) -> None:  # fmt: skip
    B, H, n_q, d = q.shape
    kv_heads, n_k = k.shape[1], k.shape[2]
    tiles = -(-n_k // tile.BN)
    fast = _descriptors_fit(q, do, dq)
    rows, gradient_rows, sums = _streamed(fast, tile.BM, q, do, dq)
    _launch(
        backward_keys_kernel, tiles * B * kv_heads,
        *_given(rows, k, v, gradient_rows), lse, delta, *_given(sums, dk, dv),
        scale, *band.numbers, columns, tiles, kv_heads, H // max(1, kv_heads), n_q, n_k, d,
        **_constants(q, tile, band, fast), LISTED=columns is not None,
        RAGGED=n_k % tile.BN != 0, RAGGED_ROWS=n_q % tile.BM != 0, ADD_DQ=dq is not None,
    )  # fmt: skip


def _check_that_it_fits(q: Tensor, kernel: str) -> None:
    reason = TOO_LARGE.get((architecture(q.device) or 0, padded(q.shape[-1]), q.element_size(), kernel))
    if reason and _written is None:
        raise ValueError(
            f"q has head size {q.shape[-1]} in float32, too large for this chip's backward pass: {reason}; "
            "allowed: d to 128, or float16"
        )


def _listed(blocks: Sequence[Tensor], side: int) -> tuple[Any, ...] | None:
    """One of the sides in `blocks`, as the kernels take it: with its strides, patterns as they stand on its side."""
    return given(Side(*blocks[5 * side : 5 * side + 5])) if blocks else None


def tiles_of(q: Tensor) -> Tiles:
    """The tiles of the table for these queries, or those chosen by hand."""
    return tiles_for(architecture(q.device), q.shape[-1], q.element_size())


def _given(*arrays: Tensor | TensorDescriptor | None) -> list[Any]:
    """Each array followed by its strides over B, H and N, as the kernels take them; None for no array."""
    return [part for x in arrays for part in (x, None if x is None else tuple(_tensor(x).stride()[:3]))]


def _tensor(x: Tensor | TensorDescriptor) -> Tensor:
    return x.base if isinstance(x, TensorDescriptor) else x


def _descriptors_fit(*arrays: Tensor | None) -> bool:
    """Whether sm_90's copy engine is to read these: 16-bit inputs, all of them on 16-byte borders.

    Products of float32 run on the ordinary cores, which want their operands in registers; what the copy
    engine leaves in shared memory then costs spills (compiled for sm_90: 0.2 to 5 KB a thread).
    """
    first = arrays[0]
    assert first is not None
    arch = architecture(first.device)
    wanted = arch is not None and arch >= 90 and first.element_size() == 2
    return wanted and all(x is None or _aligned(x) for x in arrays)


def _aligned(x: Tensor) -> bool:
    borders = [x.data_ptr(), *(stride * x.element_size() for stride in x.stride()[:3])]
    return x.numel() > 0 and 0 not in x.stride() and all(border % 16 == 0 for border in borders)


def _streamed(fast: bool, rows: int, *arrays: Tensor | None) -> list[Any]:
    """The arrays that stream past, as descriptors of tiles of `rows` rows where those are used."""
    if not fast:
        return list(arrays)
    return [
        None
        if x is None
        else TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, padded(x.shape[-1])])
        for x in arrays
    ]


def _constants(q: Tensor, tile: Tile, band: Band, fast: bool) -> dict[str, Any]:
    d = q.shape[-1]
    return {
        "BM": tile.BM,
        "BN": tile.BN,
        "DIM": padded(d),
        "PADDED": padded(d) != d,
        "HAS_LOW": band.low is not None,
        "HAS_HIGH": band.high is not None,
        "DESCRIPTORS": fast,
        "PRECISION": "ieee" if q.dtype == torch.float32 else None,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        "enable_fp_fusion": True,
    }
