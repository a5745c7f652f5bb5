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
from .seen import Seen, packed_of

# The operators' schemas are read off the annotations, and Optional is the spelling that every torch reads.


@torch.library.custom_op("iocourse::attention", mutates_args=())
def attention(
    q: Tensor, k: Tensor, v: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: Optional[int], high: Optional[int], lower_right: bool, longest_q: int, longest_k: int,  # noqa: UP045
    scale: float, deterministic: bool, way: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(O, row log-sum-exp). `deterministic` says how the backward pass is to be computed.

    lists: of a block mask, or none. cu: cu_q and cu_k of packed sequences, or none; with them lower_right and
    the lengths of the longest (-1: read off cu, and cu is checked).
    """
    seen = Seen(Band(low, high), lists, packed_of(q, k, cu, (longest_q, longest_k), lower_right))
    return launch.forward(q, k, v, seen, scale, way)


@attention.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: int | None, high: int | None, lower_right: bool, longest_q: int, longest_k: int,
    scale: float, deterministic: bool, way: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("iocourse::attention_backward", mutates_args=())
def attention_backward(
    do: Tensor, dlse: Optional[Tensor],  # noqa: UP045
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: Optional[int], high: Optional[int], lower_right: bool, longest_q: int, longest_k: int,  # noqa: UP045
    scale: float, deterministic: bool, way: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV."""
    seen = Seen(Band(low, high), lists, packed_of(q, k, cu, (longest_q, longest_k), lower_right))
    return launch.backward(do, dlse, q, k, v, o, lse, seen, scale, deterministic, way)


@attention_backward.register_fake
def _(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: int | None, high: int | None, lower_right: bool, longest_q: int, longest_k: int,
    scale: float, deterministic: bool, way: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, lists, cu, *options = inputs
    ctx.save_for_backward(q, k, v, *output, *lists, *cu)
    ctx.lists, ctx.cu, ctx.options = len(lists), len(cu), options
    ctx.set_materialize_grads(False)  # a log-sum-exp nobody used has no gradient, rather than zeros to read


def _backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, o, lse, *rest = ctx.saved_tensors
    lists, cu = rest[: ctx.lists], rest[ctx.lists :]
    do = torch.zeros_like(o) if do is None else do
    gradients = attention_backward(do, dlse, q, k, v, o, lse, lists, cu, *ctx.options)
    return *gradients, [None] * ctx.lists, [None] * ctx.cu, *[None] * len(ctx.options)


attention.register_autograd(_backward, setup_context=_keep)
