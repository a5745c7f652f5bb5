"""Tensors as the kernels take them: which are copied first, their strides, and descriptors of their tiles."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from . import mode
from .tiles import padded


def readable(*tensors: Tensor) -> list[Tensor]:
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


def as_asked(asked: Tensor, got: Tensor) -> Tensor:
    """The result in the type, columns and layout of the tensor that was asked about."""
    like = torch.empty_like(asked, device="meta")
    if (got.shape, got.dtype, got.stride()) == (like.shape, like.dtype, like.stride()):
        return got
    return torch.empty_like(asked).copy_(got[..., : asked.shape[3]])


def given(*arrays: Tensor | TensorDescriptor | None) -> list[Any]:
    """Each array followed by its strides over B, H and N, as the kernels take them; None for no array."""
    return [part for x in arrays for part in (x, None if x is None else strides(_tensor(x)))]


def strides(x: Tensor) -> tuple[int, ...]:
    """Strides over the first three axes; 0 over an axis of one, whose own stride may be anything."""
    return tuple(0 if n == 1 else step for n, step in zip(x.shape[:3], x.stride()[:3], strict=True))


def _tensor(x: Tensor | TensorDescriptor) -> Tensor:
    return x.base if isinstance(x, TensorDescriptor) else x


def descriptors_fit(*arrays: Tensor | None) -> bool:
    """Whether sm_90's copy engine is to read these: 16-bit inputs, all of them on 16-byte borders.

    Products of float32 run on the ordinary cores, which want their operands in registers; what the copy
    engine leaves in shared memory then costs spills (compiled for sm_90: 0.2 to 5 KB a thread).
    """
    first = arrays[0]
    assert first is not None
    arch = mode.architecture(first.device)
    wanted = arch is not None and arch >= 90 and first.element_size() == 2
    return wanted and all(x is None or _aligned(x) for x in arrays)


def _aligned(x: Tensor) -> bool:
    borders = [x.data_ptr(), *(stride * x.element_size() for stride in x.stride()[:3])]
    return x.numel() > 0 and 0 not in x.stride() and all(border % 16 == 0 for border in borders)


def streamed(fast: bool, rows: int, *arrays: Tensor | None) -> list[Any]:
    """The arrays that stream past, as descriptors of tiles of `rows` rows where those are used."""
    if not fast:
        return list(arrays)
    return [
        None
        if x is None
        else TensorDescriptor(x, list(x.shape), list(x.stride()), [1, 1, rows, padded(x.shape[-1])])
        for x in arrays
    ]
