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


class Packed(NamedTuple):
    """Sequences of any lengths, one after the other along N of a batch of 1.

    cu_q, cu_k (sequences + 1,) int32: where each begins, and the end. longest_q, longest_k: rows of the longest.
    lower_right: each sequence's diagonal ends in its own last pair.
    """

    cu_q: Tensor
    cu_k: Tensor
    longest_q: int
    longest_k: int
    lower_right: bool


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
    q: Tensor, k: Tensor, v: Tensor, band: Band, scale: float, blocks: Sequence[Tensor] = (),
    packed: Packed | None = None,
) -> tuple[Tensor, Tensor]:
    """O (like q) and its row log-sum-exp, float32 (B, H, Nq).

    q (B, H, Nq, d), k and v (B, H_kv, Nk, d), one dtype and device, unit last stride. `blocks` are the lists of a
    block mask (see `block_mask.lists`), whose first side is the forward pass's; empty where the band decides.
    """
    with mode.on(q.device):
        fit_q, fit_k, fit_v = _readable(q, k, v)
        o, lse = _forward(fit_q, fit_k, fit_v, band, scale, blocks, packed)
    return _as(q, o), lse


def backward(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    band: Band, scale: float, deterministic: bool, blocks: Sequence[Tensor] = (), packed: Packed | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV (like q, k, v) from dO, the gradient of lse (or None) and what `forward` kept."""
    _check_that_it_fits(q, "keys" if deterministic else "fused")
    asked = q, k, v
    do, q, k, v, o = _readable(do, q, k, v, o)
    dlse = None if dlse is None else dlse.to(torch.float32).contiguous()
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    way = _split if deterministic else _fused
    with mode.on(q.device):
        dq = way(q, k, v, o, do, lse.contiguous(), dlse, dk, dv, band, scale, blocks, packed)
    return _as(asked[0], dq), _as(asked[1], dk), _as(asked[2], dv)


def _readable(*tensors: Tensor) -> list[Tensor]:
    """The tensors as the kernels take them: where one is not fit, a copy of all their numbers that is."""
    if mode.interpreting():
        # Triton's interpreter, 3.6 to 3.9, computes bfloat16 wrongly; anything else is read where it lies.
        wide = [x.to(torch.float32) if x.dtype == torch.bfloat16 else x for x in tensors]
        return [x if x.stride(-1) == 1 else x.contiguous() for x in wide]
    return [x if _on_borders(x) else _on_new_borders(x) for x in tensors]


def _on_borders(x: Tensor) -> bool:
    """Whether a GPU can read rows in its widest loads: rows of whole sixteens, each from a 16-byte border on.

    Else each number is loaded by itself, and the addresses spill 0.2 to 1.4 KB a thread (d = 100, compiled).
    """
    steps = [step for n, step in zip(x.shape[:3], x.stride()[:3], strict=True) if n > 1]
    whole = all(step % 16 == 0 for step in [x.shape[3], *steps])
    return whole and x.stride(3) == 1 and x.data_ptr() % 16 == 0


def _on_new_borders(x: Tensor) -> Tensor:
    """A copy with columns of zeros up to the next multiple of 16, which change no product."""
    return torch.nn.functional.pad(x, (0, -x.shape[3] % 16)).contiguous()


def _as(asked: Tensor, got: Tensor) -> Tensor:
    """The result in the type, columns and layout of the tensor that was asked about."""
    like = torch.empty_like(asked, device="meta")
    if (got.shape, got.dtype, got.stride()) == (like.shape, like.dtype, like.stride()):
        return got
    return torch.empty_like(asked).copy_(got[..., : asked.shape[3]])


def _forward(
    q: Tensor, k: Tensor, v: Tensor, band: Band, scale: float, blocks: Sequence[Tensor],
    packed: Packed | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    H, n_q, d = q.shape[1:]
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tile = tiles_of(q).forward
    B, tiles = _count(q, packed, tile.BM)
    fast = packed is None and _descriptors_fit(k, v)
    _launch(
        forward_kernel, tiles * B * H,
        *_given(q), *_given(*_streamed(fast, tile.BN, k, v)), *_given(o), lse,
        *_cu(packed), scale, *band.numbers, _listed(blocks, 0), tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **_constants(q, tile, band, fast), LISTED=bool(blocks), **_ragged(packed, k.shape[2] % tile.BN),
    )  # fmt: skip
    return o, lse


def _split(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    dk: Tensor, dv: Tensor, band: Band, scale: float, blocks: Sequence[Tensor], packed: Packed | None,
) -> Tensor:  # fmt: skip
    """dQ first, which leaves D behind, then dK and dV: the scores twice, and sums in a fixed order."""
    H, n_q, d = q.shape[1:]
    dq, delta = torch.empty_like(q), torch.empty_like(lse)
    tile = tiles_of(q).queries
    B, tiles = _count(q, packed, tile.BM)
    fast = packed is None and _descriptors_fit(k, v)
    _launch(
        backward_queries_kernel, tiles * B * H,
        *_given(q), *_given(*_streamed(fast, tile.BN, k, v)), *_given(o, do), lse, dlse, delta, *_given(dq),
        *_cu(packed), scale, *band.numbers, _listed(blocks, 1), tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **_constants(q, tile, band, fast), LISTED=bool(blocks), **_ragged(packed, k.shape[2] % tile.BN),
        HAS_DLSE=dlse is not None,
    )  # fmt: skip
    _keys(q, k, v, do, lse, delta, None, dk, dv, band, scale, tiles_of(q).keys, _listed(blocks, 2), packed)
    return dq


def _fused(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    dk: Tensor, dv: Tensor, band: Band, scale: float, blocks: Sequence[Tensor], packed: Packed | None,
) -> Tensor:  # fmt: skip
    """D first, then everything else in one kernel, dQ by reduction into float32 zeros."""
    H, n_q, d = q.shape[1:]
    delta = torch.empty_like(lse)
    tile = ROW_PRODUCTS
    B, tiles = _count(q, packed, tile.BM)
    _launch(
        row_products_kernel, tiles * B * H,
        *_given(o, do), dlse, lse, delta, _cu(packed)[0], tiles, H, n_q, d,
        BM=tile.BM, DIM=padded(d), PADDED=padded(d) != d, HAS_DLSE=dlse is not None, PACKED=packed is not None,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    total = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    _keys(q, k, v, do, lse, delta, total, dk, dv, band, scale, tiles_of(q).fused, _listed(blocks, 1), packed)
    return torch.mul(total, scale, out=torch.empty_like(q))


def _keys(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, delta: Tensor, dq: Tensor | None,
    dk: Tensor, dv: Tensor, band: Band, scale: float, tile: Tile, columns: tuple[Any, ...] | None,
    packed: Packed | None,
) -> None:  # fmt: skip
    H, n_q, d = q.shape[1:]
    kv_heads, n_k = k.shape[1], k.shape[2]
    B, tiles = (q.shape[0], -(-n_k // tile.BN)) if packed is None else (len(packed.cu_k) - 1, -(-packed.longest_k // tile.BN))
    fast = packed is None and _descriptors_fit(q, do, dq)
    rows, gradient_rows, sums = _streamed(fast, tile.BM, q, do, dq)
    _launch(
        backward_keys_kernel, tiles * B * kv_heads,
        *_given(rows, k, v, gradient_rows), lse, delta, *_given(sums, dk, dv),
        *_cu(packed), scale, *band.numbers, columns, tiles, kv_heads, H // max(1, kv_heads), n_q, n_k, d,
        **_constants(q, tile, band, fast), LISTED=columns is not None,
        **_ragged(packed, n_k % tile.BN), RAGGED_ROWS=packed is not None or n_q % tile.BM != 0, ADD_DQ=dq is not None,
    )  # fmt: skip


def _check_that_it_fits(q: Tensor, kernel: str) -> None:
    reason = TOO_LARGE.get((architecture(q.device) or 0, padded(q.shape[-1]), q.element_size(), kernel))
    if reason and _written is None:
        raise ValueError(
            f"q has head size {q.shape[-1]} in float32, too large for this chip's backward pass: {reason}; "
            "allowed: d to 128, or float16"
        )


def _count(q: Tensor, packed: Packed | None, BM: int) -> tuple[int, int]:
    """Sequences, and tiles of BM queries in the longest."""
    if packed is None:
        return q.shape[0], -(-q.shape[2] // BM)
    return len(packed.cu_q) - 1, -(-packed.longest_q // BM)


def _cu(packed: Packed | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if packed is None else (packed.cu_q, packed.cu_k)


def _ragged(packed: Packed | None, rest: int) -> dict[str, bool]:
    """Whether the last tile of keys passes the end, which in packed sequences nobody can rule out."""
    return {
        "RAGGED": packed is not None or rest != 0,
        "PACKED": packed is not None,
        "LOWER_RIGHT": packed is not None and packed.lower_right,
    }


def _listed(blocks: Sequence[Tensor], side: int) -> tuple[Any, ...] | None:
    """One of the sides in `blocks`, as the kernels take it: with its strides, patterns as they stand on its side."""
    return given(Side(*blocks[5 * side : 5 * side + 5])) if blocks else None


def tiles_of(q: Tensor) -> Tiles:
    """The tiles of the table for these queries, or those chosen by hand."""
    return tiles_for(architecture(q.device), q.shape[-1], q.element_size())


def _given(*arrays: Tensor | TensorDescriptor | None) -> list[Any]:
    """Each array followed by its strides over B, H and N, as the kernels take them; None for no array."""
    return [part for x in arrays for part in (x, None if x is None else _strides(_tensor(x)))]


def _strides(x: Tensor) -> tuple[int, ...]:
    """Strides over B, H and N; 0 over an axis of one, which all sequences of a packed batch share."""
    return tuple(0 if n == 1 else step for n, step in zip(x.shape[:3], x.stride()[:3], strict=True))


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
