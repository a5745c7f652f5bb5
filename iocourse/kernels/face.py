"""`attention`: what a user calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..guard import library_answer
from . import operators
from .arguments import autocast, check_deterministic, check_scale, check_tensors, refuse_tangents
from .band import band_of
from .block_mask import block_mask_of
from .launch import tiles_of


@library_answer
def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, deterministic: bool = False, block_mask: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(scale · QKᵀ) V and the natural logarithm of each row's sum of exponentials.

    Both results can be differentiated. See `attention` for the arguments.

    Returns:
        O (B, H, Nq, d), in q's type and layout; LSE (B, H, Nq), float32. A query that sees no key has O = 0,
        LSE = -∞ and zero gradients.
    """
    q, k, v = autocast(q, k, v)
    check_tensors(q, k, v)
    refuse_tangents(q, k, v)
    band = band_of(causal, window, q.shape[2], k.shape[2])
    factor = check_scale(scale, q.shape[3])
    if factor <= 0:  # the kernels find the largest score before they scale it: so the sign goes into Q
        q, factor = (-q, -factor) if factor else (q * 0, 1.0)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    fixed_order = check_deterministic(deterministic) or torch.are_deterministic_algorithms_enabled()
    blocks = [] if block_mask is None else _lists(block_mask, q, k, causal, window, fixed_order)
    o, lse = operators.attention(q, k, v, *band, factor, fixed_order, blocks)
    return o, lse


@library_answer
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, deterministic: bool = False, block_mask: Any = None,
) -> Tensor:  # fmt: skip
    """softmax(scale · QKᵀ) V by Triton kernels that keep no N × N matrix, forward and backward.

    Args:
        q: (B, H, Nq, d), float16, bfloat16 or float32, d from 1 to 256. Any strides; on a GPU a tensor whose
            rows are no multiples of 16 numbers, or not on 16-byte borders, is copied first.
        k: (B, H_kv, Nk, d), of the same type; H_kv divides H, and each head serves H / H_kv heads of q.
        v: (B, H_kv, Nk, d), of the same type.
        causal: False; True or 'upper_left': query i sees keys 0 … i, as PyTorch's SDPA has it; 'lower_right':
            query i sees keys 0 … i + Nk - Nq, as FlashAttention has it.
        scale: factor of QKᵀ; 1/√d where None.
        window: (left, right): query i sees at most `left` keys before its own and `right` after it; None or
            -1: no limit. Its own key is i, or i + Nk - Nq where causal='lower_right'.
        deterministic: compute the backward pass in two kernels with a fixed order of every sum, bit-equal
            from run to run, instead of one with atomic additions. torch.use_deterministic_algorithms(True)
            asks for the same.

    Under torch.autocast q, k and v are cast as PyTorch's own attention casts them. Gradients can be taken
    once, in reverse mode.

    Returns:
        O (B, H, Nq, d), in q's type and layout.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    return attention_with_lse(
        q, k, v, causal=causal, scale=scale, window=window, deterministic=deterministic, block_mask=block_mask
    )[0]


def _lists(block_mask: Any, q: Tensor, k: Tensor, causal: Any, window: Any, deterministic: bool) -> list[Tensor]:
    if causal or window is not None:
        raise ValueError("block_mask comes with causal or window; allowed: one of them, a block mask can hide the same pairs")
    mask = block_mask_of(block_mask, q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.device)
    return mask.lists(tiles_of(q), q.device, q.shape[1] // max(1, k.shape[1]), deterministic)
