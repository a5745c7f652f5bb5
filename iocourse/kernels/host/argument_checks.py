"""What `attention` accepts. Each error names the argument, what came and what is allowed."""

from __future__ import annotations

import math
import sys
import warnings
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from .backend import INTERPRETED
from .mask_types import Band

TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
LARGEST_HEAD = 1024
LARGEST_WHOLE = 512  # of the kernels that know no slices of d
LARGEST_DECODE = 256
ALIGNMENTS = ("upper_left", "lower_right")
SMALLEST, LARGEST = 1e-30, 1e30  # of a scale: beyond these, float32 has 0 and ∞

SDPA = "torch.nn.functional.scaled_dot_product_attention"
FLEX = "torch.nn.attention.flex_attention.flex_attention"
# What other attentions call their arguments (PyTorch's, FlashAttention's, FlexAttention's), and what to write
# here instead, or which of them has it.
MASK = f"{SDPA}(q, k, v, attn_mask=…), or block_mask=tiled_mask(mask, q, k)"
_SCORES = f"{FLEX}(q, k, v, score_mod=…)"
_LENGTHS = f"{SDPA}(q, k, v, attn_mask=torch.arange(k.shape[2]) < lengths[:, None, None, None])"
ELSEWHERE = {
    "is_causal": "causal=True (each query's own key is key i: align='upper_left')",
    "enable_gqa": "nothing, as heads of k are shared wherever their number divides that of q",
    **dict.fromkeys(("attn_mask", "mask", "key_padding_mask", "attn_bias", "bias"), MASK),
    **dict.fromkeys(("score_mod", "softcap", "alibi_slopes", "sinks", "s_aux"), _SCORES),
    "mask_mod": "block_mask=tiled_mask(mask_mod, q, k)",
    **dict.fromkeys(("dropout_p", "dropout"), f"{SDPA}(q, k, v, dropout_p=…)"),
    "softmax_scale": "scale=…",
    "window_size": "window=(left, right), with align='lower_right' for FlashAttention's diagonal",
    **dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), "attention_varlen(q, k, v, cu_q, cu_k)"),
    **dict.fromkeys(("max_seqlen_q", "max_seqlen_k"), "attention_varlen(…, longest=(queries, keys))"),
    **dict.fromkeys(("lengths", "seqlens", "cache_seqlens", "seqused_k"), _LENGTHS),
    **dict.fromkeys(("return_lse", "return_softmax_lse"), "attention_with_lse(q, k, v)"),
}


def plain(value: Any) -> Any:
    """NumPy's numbers and booleans as Python's; anything else as it came."""
    return value.item() if isinstance(value, np.generic) else value


def accepted(
    q: Any, k: Any, v: Any, scale: Any, largest: int = LARGEST_HEAD
) -> tuple[Tensor, Tensor, Tensor, float]:
    """q, k, v as autocast wants them, checked, with heads no larger than `largest`, and a positive factor of
    QKᵀ.

    The kernels find the largest score before they scale it: so the sign of a scale goes into Q.
    """
    q, k, v = autocast(q, k, v)
    check_tensors(q, k, v, largest)
    if not torch.compiler.is_compiling():
        refuse_transforms(q, k, v)
        _warn_of_layout(q, k)
    factor = check_scale(scale, q.shape[3])
    if factor <= 0:
        q, factor = (-q, -factor) if factor else (q * 0, 1.0)
    return q, k, v, factor


def autocast(*tensors: Any) -> tuple[Any, ...]:
    """The tensors in the type that torch.autocast asks for, where it is on; others are left as they came."""
    if not all(isinstance(x, Tensor) for x in tensors):
        return tensors
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    # As PyTorch's own: float64 is left alone.
    casts = (x.is_floating_point() and x.dtype != torch.float64 for x in tensors)
    return tuple(x.to(dtype) if cast else x for x, cast in zip(tensors, casts, strict=True))


def refuse_transforms(*tensors: Tensor) -> None:
    """Raise NotImplementedError for forward-mode derivatives, which would silently be zero, and for the
    transforms of torch.func.
    """
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(
            "q, k or v carries a tangent: attention has no forward-mode derivative; allowed: reverse mode"
        )
    if any(functorch_says("is_functorch_wrapped_tensor", x) for x in tensors):
        raise NotImplementedError(
            "q, k or v is within a transform of torch.func (grad, vjp, jacrev, vmap), which the kernels do "
            "not know; allowed: torch.autograd.grad, with a mapped axis as batches of q, k and v"
        )


def functorch_says(question: str, x: Tensor) -> bool:
    """Return what a private predicate of torch._C._functorch says of x; False if this torch has none."""
    known = getattr(getattr(torch._C, "_functorch", None), question, None)
    return bool(known and known(x))


def _warn_of_layout(q: Tensor, k: Tensor) -> None:
    """Warn once for each caller where (B, N, H, d) seems to have come as (B, H, N, d)."""
    heads, n_q, n_k = q.shape[1], q.shape[2], k.shape[2]
    if k.shape[1] == heads > n_q > 1 and n_k > 0 and n_q % n_k == 0:
        here = __name__.rpartition(".host")[0]
        level = next(at for at in count(1) if not sys._getframe(at).f_globals["__name__"].startswith(here))
        warnings.warn(
            f"q is read as (B, H, N, d), {heads} heads of {n_q} queries and k's {n_k} keys; if it is "
            "(B, N, H, d), as for FlashAttention: pass q.transpose(1, 2), and the same for k and v",
            stacklevel=level,
        )


def check_tensors(q: Any, k: Any, v: Any, largest: int) -> None:
    """Raise TypeError or ValueError where q, k, v are no queries, keys and values of one attention."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; allowed: a torch tensor (B, H, N, d)")
        if x.ndim != 4:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed: four axes (B, H, N, d)")
        if x.dtype not in TYPES:
            raise TypeError(f"{name} is {_type(x)}; allowed: {', '.join(TYPES.values())}")
    _check_alike(q, k, v)
    _check_sizes(q, k, v, largest)
    _check_device(q.device)


def _type(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _check_alike(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {_type(x)}, q is {_type(q)}; allowed: one type for q, k and v")
        if x.device != q.device:
            raise ValueError(f"{name} is on {x.device}, q on {q.device}; allowed: one device for q, k and v")


def _check_sizes(q: Tensor, k: Tensor, v: Tensor, largest: int) -> None:
    B, H, _, d = q.shape
    if not 1 <= d <= largest:
        why = "" if largest == LARGEST_HEAD or d > LARGEST_HEAD else " here"
        raise ValueError(f"q has head size d = {d}; allowed{why}: 1 to {largest}")
    check_one_shape(k, v)
    if k.shape[0] != B:
        raise ValueError(f"k has {k.shape[0]} batches, q {B}; allowed: as many as q")
    if k.shape[3] != d:
        raise ValueError(f"k has head size {k.shape[3]}, q {d}; allowed: the same head size")
    if (k.shape[1] == 0 and H) or (k.shape[1] and H % k.shape[1]):
        raise ValueError(
            f"k has {k.shape[1]} heads, q {H}; allowed: a number of heads of k that divides that of q, and "
            "the layout (B, H, N, d)"
        )


def check_one_shape(k: Tensor, v: Tensor) -> None:
    """Raise ValueError unless v has k's shape."""
    if v.shape != k.shape:
        other = "" if v.shape[:-1] != k.shape[:-1] else f"; for another head size of v {SDPA}(q, k, v)"
        raise ValueError(
            f"v has shape {tuple(v.shape)}, k {tuple(k.shape)}; allowed: one shape for both{other}"
        )


def check_scale(scale: Any, d: int) -> float:
    """The factor of QKᵀ: 1/√d where None. Raises ValueError unless it is 0 or of a size float32 can hold."""
    if scale is None:
        return 1 / math.sqrt(d)
    scale = plain(scale)
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
    if not number or not (scale == 0 or SMALLEST <= abs(scale) <= LARGEST):
        raise ValueError(
            f"scale is {scale!r}; allowed: None for 1/√d, 0, or a number of size {SMALLEST:g} to {LARGEST:g}"
        )
    return float(scale)


def check_deterministic(deterministic: Any) -> bool | None:
    """None, True or False, else ValueError."""
    deterministic = plain(deterministic)
    if deterministic is not None and not isinstance(deterministic, bool):
        raise ValueError(f"deterministic is {deterministic!r}; allowed: None, True or False")
    return deterministic


def fixed_order(deterministic: Any) -> bool | None:
    """Whether sums are to have a fixed order: asked for here, or of all of PyTorch. None: either will do."""
    asked = check_deterministic(deterministic)
    return True if torch.are_deterministic_algorithms_enabled() else asked


def _check_device(device: torch.device) -> None:
    if INTERPRETED:
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"q is on {device}; allowed: cpu or cuda")
        return
    if device.type != "cuda":
        raise ValueError(
            f"q is on {device}, and kernels are compiled for CUDA here; allowed: a cuda tensor, "
            "or set TRITON_INTERPRET=1 before iocourse.kernels is imported"
        )
    _check_chip(device.index or 0)


@torch.compiler.assume_constant_result  # torch.compile calls it without tracing torch.cuda's functions
def _check_chip(index: int) -> None:
    """Raise ValueError if Triton has no backend for this device; warn if it is a Turing GPU."""
    _check_chip_once(index)


@cache
def _check_chip_once(index: int) -> None:
    name = torch.cuda.get_device_name(index)
    if torch.version.hip:
        raise ValueError(f"q is on {name}; allowed: an NVIDIA GPU, these tiles are chosen for no other")
    major, minor = torch.cuda.get_device_capability(index)
    if (major, minor) < (7, 5):
        raise ValueError(
            f"q is on {name}, compute capability {major}.{minor}; allowed: 7.5 (T4) or later, "
            "or set TRITON_INTERPRET=1 before iocourse.kernels is imported"
        )
    if (major, minor) < (8, 0):
        warnings.warn(
            f"{name} (compute capability {major}.{minor}): the answer is right and slow, because Triton uses "
            "tensor cores from 8.0 on and computes every product here on the ordinary cores. "
            "torch.nn.functional.scaled_dot_product_attention is faster on this chip.",
            stacklevel=5,
        )


def band_of(causal: Any, window: Any, n_q: int, n_k: int, align: Any = None) -> Band:
    """The band that `attention`'s arguments ask for; n_q queries, n_k keys. A limit that hides no pair of
    these sizes is None: the kernel then needs no mask for it.

    Raises:
        ValueError: `causal`, `window` or `align` is none of the allowed values, or two contradict each other.
    """
    left, right, alignment = band_parts(causal, window, align, max(n_q, n_k))
    diagonal = n_k - n_q if alignment == "lower_right" else 0
    low = None if left is None or diagonal - left <= 1 - n_q else diagonal - left
    high = None if right is None or diagonal + right >= n_k - 1 else diagonal + right
    return Band(low, high)


def band_parts(
    causal: Any, window: Any, align: Any, rows: int
) -> tuple[int | None, int | None, str]:  # fmt: skip
    """Keys to the left and to the right of a query's own, None for no limit; and which key is its own, one of
    `ALIGNMENTS`.

    No sequence has more than `rows` queries or keys, and so many in either direction are all: no kernel is
    given such a limit, which might not fit its 32-bit numbers.
    """
    alignment = _alignment(causal, align)
    left, right = (None if side is None or side >= rows else side for side in _window(window))
    return left, right if causal is False else 0, alignment


def _alignment(causal: Any, align: Any) -> str:
    if not isinstance(causal, bool) and not _names_alignment(causal):
        raise ValueError(f"causal is {causal!r}; allowed: False, True, 'upper_left', 'lower_right'")
    if align is not None and not _names_alignment(align):
        raise ValueError(f"align is {align!r}; allowed: None, 'upper_left', 'lower_right'")
    if align is not None and causal not in (False, True, align):
        raise ValueError(f"align is {align!r} and causal {causal!r}; allowed: one alignment for both")
    return align or (causal if isinstance(causal, str) else ALIGNMENTS[0])


def _names_alignment(value: Any) -> bool:
    return isinstance(value, str) and value in ALIGNMENTS


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    allowed = "a pair (left, right) of whole numbers of keys, each 0 or more, or None (or -1) for no limit"
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(f"window is {window!r}; allowed: None, or {allowed}")
    sides: list[int | None] = []
    for side in map(plain, window):
        if side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < -1):
            raise ValueError(f"window is {window!r}; allowed: {allowed}")
        sides.append(None if side is None or side == -1 else side)
    return sides[0], sides[1]
