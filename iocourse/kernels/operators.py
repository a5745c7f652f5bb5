"""Attention as PyTorch operators, so that autograd, torch.compile and opcheck know it.

They are custom operators, opaque to the compiler, because the same call must also run in Triton's
interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from . import launch
from .band import Band

# The operators' schemas are read off the annotations, and Optional is the spelling that every torch reads.


@torch.library.custom_op("iocourse::attention", mutates_args=())
def attention(
    q: Tensor, k: Tensor, v: Tensor,
    low: Optional[int], high: Optional[int], scale: float, deterministic: bool,  # noqa: UP045
    blocks: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(O, row log-sum-exp). `deterministic` says how the backward pass is to be computed."""
    return launch.forward(q, k, v, Band(low, high), scale, blocks)


@attention.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, low: int | None, high: int | None, scale: float, deterministic: bool,
    blocks: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("iocourse::attention_backward", mutates_args=())
def attention_backward(
    do: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,  # noqa: UP045
    low: Optional[int], high: Optional[int], scale: float, deterministic: bool,  # noqa: UP045
    blocks: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV."""
    return launch.backward(do, dlse, q, k, v, o, lse, Band(low, high), scale, deterministic, blocks)


@attention_backward.register_fake
def _(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    low: int | None, high: int | None, scale: float, deterministic: bool, blocks: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *options, blocks = inputs
    ctx.save_for_backward(q, k, v, *output, *blocks)
    ctx.options = options
    ctx.set_materialize_grads(False)  # a log-sum-exp nobody used has no gradient, rather than zeros to read


def _backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, o, lse, *blocks = ctx.saved_tensors
    do = torch.zeros_like(o) if do is None else do
    gradients = attention_backward(do, dlse, q, k, v, o, lse, *ctx.options, blocks)
    return *gradients, None, None, None, None, [None] * len(blocks)


attention.register_autograd(_backward, setup_context=_keep)
