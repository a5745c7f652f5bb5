"""`attention_varlen`: sequences of different lengths packed one behind the other, with no padding to read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..guard import library_answer
from . import operators
from .arguments import LARGEST_WHOLE, accepted, check_deterministic
from .band import Band, band_parts


@library_answer
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    longest: tuple[int, int] | None = None, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, deterministic: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(scale · QKᵀ) V within each of several sequences that lie one behind the other.

    Args:
        q: (T_q, H, d), float16, bfloat16 or float32, d from 1 to 512: the queries of all sequences.
        k: (T_k, H_kv, d), of the same type; H_kv divides H.
        v: (T_k, H_kv, d), of the same type.
        cu_q: (sequences + 1,) int32 on q's device: sequence s has queries cu_q[s] … cu_q[s + 1] - 1. It rises
            from 0 to T_q; a sequence may be empty.
        cu_k: the same for keys, up to T_k. A query whose sequence has no key gets 0.
        longest: (queries, keys) of the longest sequence. None: read off cu_q and cu_k, which are then
            checked; a GPU is waited for once in each pass. Given, nothing is checked, and nothing waits.
        causal: as in `attention`, with each sequence's own diagonal.
        scale: factor of QKᵀ; 1/√d where None.
        window: as in `attention`.
        deterministic: as in `attention`.

    Returns:
        O (T_q, H, d), in q's type and layout.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    return attention_varlen_with_lse(
        q, k, v, cu_q, cu_k, longest=longest, causal=causal, scale=scale, window=window,
        deterministic=deterministic,
    )[0]  # fmt: skip


@library_answer
def attention_varlen_with_lse(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    longest: tuple[int, int] | None = None, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, deterministic: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same, and the row log-sum-exps (H, T_q), float32, natural logarithms; -∞ where no key is seen."""
    heads_first = _heads_first("q", q), _heads_first("k", k), _heads_first("v", v)
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}, k {tuple(k.shape)}; allowed: one shape for both")
    one_q, one_k, one_v, factor = accepted(*heads_first, scale, LARGEST_WHOLE)
    cu = [_starts(name, x, one_q) for name, x in (("cu_q", cu_q), ("cu_k", cu_k))]
    if len(cu[0]) != len(cu[1]):
        raise ValueError(f"cu_k has {len(cu[1])} numbers, cu_q {len(cu[0])}; allowed: as many")
    low, high, lower_right = _band(causal, window)
    fixed_order = check_deterministic(deterministic) or torch.are_deterministic_algorithms_enabled()
    one_q, one_k, one_v = (x if x.stride(-1) == 1 else x.contiguous() for x in (one_q, one_k, one_v))
    o, lse = operators.attention(
        one_q, one_k, one_v, [], cu, low, high, lower_right, *_longest(longest), factor, fixed_order, "whole"
    )
    return o[0].transpose(0, 1), lse[0]


def _heads_first(name: str, x: Any) -> Tensor:
    """(T, H, d) as a batch of one, (1, H, T, d)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__}; allowed: a torch tensor (T, H, d)")
    if x.ndim != 3:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed: three axes (T, H, d)")
    return x.transpose(0, 1)[None]


def _starts(name: str, x: Any, q: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or x.dtype != torch.int32:
        came = str(x.dtype).removeprefix("torch.") if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise TypeError(f"{name} is {came}; allowed: an int32 tensor (sequences + 1,)")
    if x.ndim != 1 or len(x) == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed: (sequences + 1,)")
    if x.device != q.device:
        raise ValueError(f"{name} is on {x.device}, q on {q.device}; allowed: one device for all")
    return x.contiguous()


def _longest(longest: Any) -> tuple[int, int]:
    if longest is None:
        return -1, -1
    pair = isinstance(longest, (tuple, list)) and len(longest) == 2
    if not pair or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in longest):
        raise ValueError(f"longest is {longest!r}; allowed: None, or (queries, keys) of the longest sequence")
    return longest[0], longest[1]


def _band(causal: Any, window: Any) -> tuple[int | None, int | None, bool]:
    """low, high and whether they count from the diagonal that ends in a sequence's last pair."""
    left, right, alignment = band_parts(causal, window)
    band = Band(None if left is None else -left, right)
    return *band, alignment == "lower_right"
