"""What `attention` accepts. Each error names the argument, what came and what is allowed."""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .runtime import INTERPRETED
from .visibility import Band

TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
LARGEST_HEAD = 1024
LARGEST_WHOLE = 512  # of the kernels that know no slices of d
LARGEST_DECODE = 256
ALIGNMENTS = ("upper_left", "lower_right")
SMALLEST, LARGEST = 1e-30, 1e30  # of a scale: beyond these, float32 has 0 and ∞


def accepted(
    q: Any, k: Any, v: Any, scale: Any, largest: int = LARGEST_HEAD
) -> tuple[Tensor, Tensor, Tensor, float]:
    """q, k, v as autocast wants them, checked, with heads no larger than `largest`, and a positive factor of
    QKᵀ.

    The kernels find the largest score before they scale it: so the sign of a scale goes into Q.
    """
    q, k, v = autocast(q, k, v)
    check_tensors(q, k, v, largest)
    refuse_tangents(q, k, v)
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
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in tensors)


def refuse_tangents(*tensors: Tensor) -> None:
    """Raise NotImplementedError for forward-mode derivatives, which would silently be zero."""
    if torch.compiler.is_compiling():
        return
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(
            "q, k or v carries a tangent: attention has no forward-mode derivative; allowed: reverse mode"
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
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}, k {tuple(k.shape)}; allowed: one shape for both")
    if k.shape[0] != B:
        raise ValueError(f"k has {k.shape[0]} batches, q {B}; allowed: as many as q")
    if k.shape[3] != d:
        raise ValueError(f"k has head size {k.shape[3]}, q {d}; allowed: the same head size")
    if (k.shape[1] == 0 and H) or (k.shape[1] and H % k.shape[1]):
        raise ValueError(
            f"k has {k.shape[1]} heads, q {H}; allowed: a number of heads of k that divides that of q"
        )


def check_scale(scale: Any, d: int) -> float:
    """The factor of QKᵀ: 1/√d where None. Raises ValueError unless it is 0 or of a size float32 can hold."""
    if scale is None:
        return 1 / math.sqrt(d)
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
    if not number or not (scale == 0 or SMALLEST <= abs(scale) <= LARGEST):
        raise ValueError(
            f"scale is {scale!r}; allowed: None for 1/√d, 0, or a number of size {SMALLEST:g} to {LARGEST:g}"
        )
    return float(scale)


def check_deterministic(deterministic: Any) -> bool | None:
    """None, True or False, else ValueError."""
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
    """The band that `attention`'s arguments ask for; n_q queries, n_k keys.

    Raises:
        ValueError: `causal`, `window` or `align` is none of the allowed values, or two contradict each other.
    """
    left, right, alignment = band_parts(causal, window, align)
    diagonal = n_k - n_q if alignment == "lower_right" else 0
    # A limit that no pair of these sizes passes is no limit: the kernel then needs no mask for it.
    low = None if left is None or diagonal - left <= 1 - n_q else diagonal - left
    high = None if right is None or diagonal + right >= n_k - 1 else diagonal + right
    return Band(low, high)


def band_parts(
    causal: Any, window: Any, align: Any = None
) -> tuple[int | None, int | None, str]:  # fmt: skip
    """Keys to the left and to the right of a query's own, None for no limit; and which key is its own, one of
    `ALIGNMENTS`.
    """
    alignment = _alignment(causal, align)
    left, right = _window(window)
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
    for side in window:
        if side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < -1):
            raise ValueError(f"window is {window!r}; allowed: {allowed}")
        sides.append(None if side is None or side == -1 else side)
    return sides[0], sides[1]
