"""`attention`: what a user calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..guard import library_answer
from . import operators
from .arguments import LARGEST_HEAD, LARGEST_WHOLE, accepted, check_deterministic
from .band import Band, band_of
from .launch_whole import tiles_of
from .tiled_mask import tiled_mask

TILE_D = (None, "never", "fused", "materialised")


@library_answer
def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, block_mask: Any = None,
    deterministic: bool = False, tile_d: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(scale · QKᵀ) V and the natural logarithm of each row's sum of exponentials.

    Both results can be differentiated. See `attention` for the arguments.

    Returns:
        O (B, H, Nq, d), in q's type and layout; LSE (B, H, Nq), float32. A query that sees no key has O = 0,
        LSE = -∞ and zero gradients.
    """
    way = _way(tile_d, block_mask)
    largest = LARGEST_WHOLE if way == "whole" else LARGEST_HEAD
    q, k, v, factor = accepted(q, k, v, scale, largest)
    fixed_order = check_deterministic(deterministic) or torch.are_deterministic_algorithms_enabled()
    if block_mask is None:
        band, lists = band_of(causal, window, q.shape[2], k.shape[2]), []
    else:
        band, lists = Band(None, None), _lists(block_mask, q, k, causal, window, fixed_order)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    o, lse = operators.attention(q, k, v, lists, [], *band, False, -1, -1, factor, fixed_order, way)
    return o, lse


@library_answer
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, block_mask: Any = None,
    deterministic: bool = False, tile_d: str | None = None,
) -> Tensor:  # fmt: skip
    """softmax(scale · QKᵀ) V by Triton kernels that keep no N × N matrix, forward and backward.

    Args:
        q: (B, H, Nq, d), float16, bfloat16 or float32, d from 1 to 1024. Any strides; on a GPU a tensor whose
            rows are no multiples of 16 numbers, or not on 16-byte borders, is copied first.
        k: (B, H_kv, Nk, d), of the same type; H_kv divides H, and each head serves H / H_kv heads of q.
        v: (B, H_kv, Nk, d), of the same type.
        causal: False; True or 'upper_left': query i sees keys 0 … i, as PyTorch's SDPA has it; 'lower_right':
            query i sees keys 0 … i + Nk - Nq, as FlashAttention has it.
        scale: factor of QKᵀ; 1/√d where None.
        window: (left, right): query i sees at most `left` keys before its own and `right` after it; None or
            -1: no limit. Its own key is i, or i + Nk - Nq where causal='lower_right'.
        block_mask: which blocks of keys each block of queries sees, instead of causal and window, d to 512.
            A boolean tensor (rows, columns), (H, rows, columns) or (B, H, rows, columns) of blocks of 16, 32,
            64, 128 or 256, whichever N asks for; one of `iocourse.masks`; FlexAttention's BlockMask; or what
            `tiled_mask` made of one of these, which is cut into tiles once and can be used again (it is also
            what torch.compile with fullgraph takes). Other masks are remembered while they live and nobody
            changes them, except NumPy's arrays and lists, which are cut in every call.
        deterministic: compute the backward pass in two kernels with a fixed order of every sum, bit-equal
            from run to run, instead of one with atomic additions. torch.use_deterministic_algorithms(True)
            asks for the same.
        tile_d: whether d is cut into slices as well as N. None: where whole rows do not fit the chip, or move
            more bytes, by the recorded table of resources and the closed forms; 'never' (d to 512); 'fused':
            always, and nothing is materialised; 'materialised': always, with N × N scores written out, to be
            counted and timed beside the others.

    Under torch.autocast q, k and v are cast as PyTorch's own attention casts them. Gradients can be taken
    once, in reverse mode.

    Returns:
        O (B, H, Nq, d), in q's type and layout.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    return attention_with_lse(
        q, k, v, causal=causal, scale=scale, window=window, block_mask=block_mask,
        deterministic=deterministic, tile_d=tile_d,
    )[0]  # fmt: skip


def _way(tile_d: Any, block_mask: Any) -> str:
    if not isinstance(tile_d, (str, type(None))) or tile_d not in TILE_D:
        raise ValueError(f"tile_d is {tile_d!r}; allowed: None, 'never', 'fused' or 'materialised'")
    if block_mask is not None and tile_d in ("fused", "materialised"):
        raise ValueError(f"tile_d is {tile_d!r} with a block_mask; allowed with one: None or 'never'")
    if block_mask is not None or tile_d == "never":
        return "whole"
    return tile_d or ""


def _lists(
    block_mask: Any, q: Tensor, k: Tensor, causal: Any, window: Any, deterministic: bool
) -> list[Tensor]:
    if causal is not False or window is not None:
        raise ValueError(
            "block_mask comes with causal or window; allowed: one of them, and a block mask can hide what "
            "they hide"
        )
    mask = tiled_mask(block_mask, q, k)
    return mask.lists(tiles_of(q, listed=True), q.device, q.shape[1] // max(1, k.shape[1]), deterministic)
