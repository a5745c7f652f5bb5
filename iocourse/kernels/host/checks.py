"""Checks of the arguments of the public functions in `api`, and the form in which launches take them.

Each error names the argument, the expected value and the value passed.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from .backend import INTERPRETED
from .ranges import Band

TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
LARGEST_HEAD = 1024
LARGEST_WHOLE = 512  # head size of the kernels without slices of d
LARGEST_DECODE = 256
ALIGNMENTS = ("upper_left", "lower_right")
SMALLEST, LARGEST = 1e-30, 1e30  # magnitude of a scale; float32 rounds others to 0 or ∞
MOST_HEADS = 256  # more than models have (Llama 3.1 405B and DeepSeek-V3: 128)

SDPA = "torch.nn.functional.scaled_dot_product_attention"
FLEX = "torch.nn.attention.flex_attention.flex_attention"
# Argument names of other libraries (PyTorch, FlashAttention, FlexAttention), and the equivalent here or the
# function that supports them.
MASK = f"{SDPA}(q, k, v, attn_mask=…), or block_mask=tiled_mask(mask, q, k)"
_SCORES = f"{FLEX}(q, k, v, score_mod=…)"
_LENGTHS = f"{SDPA}(q, k, v, attn_mask=torch.arange(k.shape[2]) < lengths[:, None, None, None])"
ELSEWHERE = {
    "is_causal": "causal=True (each query's own key is key i: align='upper_left')",
    "enable_gqa": "no option, because heads of k are shared if their number divides that of q",
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
# Values of tile_d, and the kernels that they select; "": the recorded choice.
TILE_D = {None: "", "never": "complete rows", "fused": "slices", "materialised": "materialised"}


def check_names(
    name: str, positional: Sequence[str], by_name: Collection[str], arguments: Sequence[Any],
    options: Mapping[str, Any],
) -> None:  # fmt: skip
    """Raise TypeError unless the function `name`, whose parameters are `positional` and `by_name`, can be
    called with these arguments. The error for an unknown argument names the equivalent one.
    """
    if len(arguments) > len(positional):
        raise TypeError(
            f"{name} takes {len(positional)} positional arguments, got {len(arguments)}. Pass options by "
            f"name; for a mask, use {MASK}"
        )
    for option in options:
        if option not in positional and option not in by_name:
            instead = ELSEWHERE.get(option, ", ".join((*positional, *by_name)))
            raise TypeError(f"{option} is not an argument of {name}; use: {instead}")
    for at, parameter in enumerate(positional):
        if at >= len(arguments) and parameter not in options:
            raise TypeError(f"{name} must be called with {', '.join(positional)}, got no {parameter}")
        if at < len(arguments) and parameter in options:
            raise TypeError(f"{name} got {parameter} by position and by name. Pass it once")


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number or bool; return any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def checked_inputs(
    q: Any, k: Any, v: Any, scale: Any, largest: int = LARGEST_HEAD
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Check q, k, v and scale. Return q, k, v in autocast's type, and a positive factor of QKᵀ.

    largest: maximum head size. The kernels take the maximum of the scores before they scale it, so the sign
    of a negative scale is moved into Q.
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
    """Cast the tensors to the type of torch.autocast if it is on; otherwise return them unchanged."""
    if not all(isinstance(x, Tensor) for x in tensors):
        return tensors
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    # Like PyTorch, do not cast float64.
    casts = (x.is_floating_point() and x.dtype != torch.float64 for x in tensors)
    return tuple(x.to(dtype) if cast else x for x, cast in zip(tensors, casts, strict=True))


def refuse_transforms(*tensors: Tensor) -> None:
    """Raise NotImplementedError for forward-mode derivatives, which would silently be zero, and within
    transforms of torch.func.
    """
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(
            "q, k or v carries a tangent, but attention has no forward-mode derivative. Use reverse mode"
        )
    wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
    if wrapped and any(map(wrapped, tensors)):  # private: some versions lack it
        raise NotImplementedError(
            "q, k or v is within a transform of torch.func (grad, vjp, jacrev, vmap), which the kernels do "
            "not support. Use torch.autograd.grad, with a mapped axis as batches of q, k and v"
        )


def _warn_of_layout(q: Tensor, k: Tensor) -> None:
    """Warn once per calling line if q has more heads than a model, and fewer rows, as (B, N, H, d) has.

    With fewer heads it may be a short prompt, which has fewer rows than heads, too.
    """
    heads, n_q, n_k = q.shape[1], q.shape[2], k.shape[2]
    if heads > max(MOST_HEADS, n_q) and k.shape[1] == heads and n_q > 1 and n_k > 0 and n_q % n_k == 0:
        here = __name__.rpartition(".host")[0]
        level = next(at for at in count(1) if not sys._getframe(at).f_globals["__name__"].startswith(here))
        warnings.warn(
            f"q is read as (B, H, N, d): {heads} heads of {n_q} queries, and {n_k} keys in k. If it is "
            "(B, N, H, d), as for FlashAttention, pass q.transpose(1, 2), and the same for k and v",
            stacklevel=level,
        )


def check_tensors(q: Any, k: Any, v: Any, largest: int) -> None:
    """Raise TypeError or ValueError unless q, k, v are valid queries, keys and values of one attention."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch tensor (B, H, N, d), got a {type(x).__name__}")
        if x.ndim != 4:
            raise ValueError(f"{name} must have four axes (B, H, N, d), got shape {tuple(x.shape)}")
        if x.dtype not in TYPES:
            raise TypeError(f"{name} must be one of {', '.join(TYPES.values())}; got {_type(x)}")
    _check_alike(q, k, v)
    _check_sizes(q, k, v, largest)
    _check_device(q.device)


def _type(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _check_alike(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            raise TypeError(f"{name} must have the type of q, {_type(q)}, got {_type(x)}")
        if x.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, got {x.device}")


def _check_sizes(q: Tensor, k: Tensor, v: Tensor, largest: int) -> None:
    B, H, _, d = q.shape
    if not 1 <= d <= largest:
        why = "" if largest == LARGEST_HEAD or d > LARGEST_HEAD else " here"
        raise ValueError(f"q must have head size d from 1 to {largest}{why}, got d = {d}")
    check_one_shape(k, v)
    if k.shape[0] != B:
        raise ValueError(f"k must have as many batches as q, {B}, got {k.shape[0]}")
    if k.shape[3] != d:
        raise ValueError(f"k must have the head size of q, {d}, got {k.shape[3]}")
    if (k.shape[1] == 0 and H) or (k.shape[1] and H % k.shape[1]):
        raise ValueError(
            f"k must have a number of heads that divides that of q, {H}, got {k.shape[1]}. Is the layout "
            "(B, H, N, d)?"
        )


def check_one_shape(k: Tensor, v: Tensor) -> None:
    """Raise ValueError unless v has k's shape."""
    if v.shape != k.shape:
        other = "" if v.shape[:-1] != k.shape[:-1] else f". For another head size of v, use {SDPA}(q, k, v)"
        raise ValueError(f"v must have the shape of k, {tuple(k.shape)}, got {tuple(v.shape)}{other}")


def check_scale(scale: Any, d: int) -> float:
    """Return scale as a float, or 1/√d for None. Raise ValueError unless it is 0 or in float32's range."""
    if scale is None:
        return 1 / math.sqrt(d)
    scale = plain(scale)
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
    if not number or not (scale == 0 or SMALLEST <= abs(scale) <= LARGEST):
        raise ValueError(
            f"scale must be None for 1/√d, 0, or a number of magnitude {SMALLEST:g} to {LARGEST:g}, got "
            f"{scale!r}"
        )
    return float(scale)


def check_deterministic(deterministic: Any) -> bool | None:
    """Return None, True or False. Raise ValueError for any other value."""
    deterministic = plain(deterministic)
    if deterministic is not None and not isinstance(deterministic, bool):
        raise ValueError(f"deterministic must be None, True or False, got {deterministic!r}")
    return deterministic


def fixed_order(deterministic: Any) -> bool | None:
    """Return True if sums must have a fixed order, by the argument or by a setting of PyTorch; False if not;
    None if neither decides.
    """
    asked = check_deterministic(deterministic)
    return True if torch.are_deterministic_algorithms_enabled() else asked


def _check_device(device: torch.device) -> None:
    if device.type == "meta":  # shapes without values: the operators compute the shapes of the results
        return
    if INTERPRETED:
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"q must be on cpu, cuda or meta, got {device}")
        return
    if device.type != "cuda":
        raise ValueError(
            f"q must be a cuda tensor, because kernels are compiled for CUDA here, got a tensor on {device}. "
            "Move it, or set TRITON_INTERPRET=1 before iocourse.kernels is imported"
        )
    _check_chip(device.index or 0)


def _check_chip(index: int) -> None:
    """Raise ValueError if Triton has no backend for this device; warn if it is a Turing GPU."""
    _check_chip_once(index)


# torch.compile calls it without tracing torch.cuda's functions. `torch.compiler.assume_constant_result` sets
# the same mark, but imports the compiler, which doubles the time that importing the kernels takes.
_check_chip._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _check_chip_once(index: int) -> None:
    name = torch.cuda.get_device_name(index)
    if torch.version.hip:
        raise ValueError(f"q must be on an NVIDIA GPU, got {name}. The tiles are chosen for NVIDIA GPUs only")
    major, minor = torch.cuda.get_device_capability(index)
    if (major, minor) < (7, 5):
        raise ValueError(
            f"q must be on a GPU of compute capability 7.5 (T4) or later, got {name} with {major}.{minor}. "
            "Use another GPU, or set TRITON_INTERPRET=1 before iocourse.kernels is imported"
        )
    if (major, minor) < (8, 0):
        warnings.warn(
            f"{name} (compute capability {major}.{minor}): results are correct but slow, because Triton uses "
            "tensor cores only from 8.0 on and computes products on the ordinary cores here. "
            "torch.nn.functional.scaled_dot_product_attention is faster on this chip.",
            stacklevel=5,
        )


# Visible pairs, and the kernels that an argument selects.


def band_of(causal: Any, window: Any, n_q: int, n_k: int, align: Any = None) -> Band:
    """Return the band of `attention`'s arguments for n_q queries and n_k keys. A limit that masks no pair at
    these sizes is None, so that the kernel needs no mask for it.

    Raises:
        ValueError: `causal`, `window` or `align` has an invalid value, or two contradict each other.
    """
    left, right, alignment = band_parts(causal, window, align, max(n_q, n_k))
    diagonal = n_k - n_q if alignment == "lower_right" else 0
    low = None if left is None or diagonal - left <= 1 - n_q else diagonal - left
    high = None if right is None or diagonal + right >= n_k - 1 else diagonal + right
    return Band(low, high)


def own_band(causal: Any, window: Any, align: Any, rows: int) -> tuple[Band, bool]:
    """Return the band of packed sequences, and True if it is relative to the diagonal that ends in each
    sequence's last pair.

    The lengths of the sequences are on the device and not known here.
    """
    left, right, alignment = band_parts(causal, window, align, rows)
    return Band(None if left is None else -left, right), alignment == "lower_right"


def band_parts(
    causal: Any, window: Any, align: Any, rows: int
) -> tuple[int | None, int | None, str]:  # fmt: skip
    """Return the numbers of keys to the left and right of a query's own key, None for no limit, and the
    alignment, one of `ALIGNMENTS`.

    No sequence has more than `rows` queries or keys, so larger limits mask nothing. They become None, because
    they might not fit in the kernels' 32-bit integers.
    """
    alignment = _alignment(causal, align)
    left, right = (None if side is None or side >= rows else side for side in _window(window))
    return left, right if causal is False else 0, alignment


def _alignment(causal: Any, align: Any) -> str:
    if not isinstance(causal, bool) and not _names_alignment(causal):
        raise ValueError(f"causal must be False, True, 'upper_left' or 'lower_right', got {causal!r}")
    if align is not None and not _names_alignment(align):
        raise ValueError(f"align must be None, 'upper_left' or 'lower_right', got {align!r}")
    if align is not None and causal not in (False, True, align):
        raise ValueError(f"align must name the same alignment as causal, {causal!r}, got {align!r}")
    return align or (causal if isinstance(causal, str) else ALIGNMENTS[0])


def _names_alignment(value: Any) -> bool:
    return isinstance(value, str) and value in ALIGNMENTS


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    allowed = "a pair (left, right) of integers of at least 0, or None (or -1) for no limit"
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(f"window must be None, or {allowed}, got {window!r}")
    sides: list[int | None] = []
    for side in map(plain, window):
        if side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < -1):
            raise ValueError(f"window must be {allowed}, got {window!r}")
        sides.append(None if side is None or side == -1 else side)
    return sides[0], sides[1]


def checked_way(tile_d: Any, block_mask: Any) -> str:
    """Return the kernels that `tile_d` selects (see `TILE_D`)."""
    if not isinstance(tile_d, (str, type(None))) or tile_d not in TILE_D:
        raise ValueError(f"tile_d must be None, 'never', 'fused' or 'materialised', got {tile_d!r}")
    if block_mask is not None and tile_d in ("fused", "materialised"):
        raise ValueError(f"tile_d must be None or 'never' with a block_mask, got {tile_d!r}")
    return TILE_D["never" if block_mask is not None else tile_d]


# Packed sequences.


def heads_first(name: str, x: Any) -> Tensor:
    """Return x (T, H, d) as a batch of one, (1, H, T, d)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch tensor (T, H, d), got a {type(x).__name__}")
    if x.ndim != 3:
        raise ValueError(f"{name} must have three axes (T, H, d), got shape {tuple(x.shape)}")
    return x.transpose(0, 1)[None]


def checked_starts(name: str, x: Any, q: Tensor) -> Tensor:
    """Return cu_q or cu_k, contiguous. Its numbers are checked later (see `ranges.packed_of`)."""
    if not isinstance(x, Tensor) or x.dtype != torch.int32:
        came = str(x.dtype).removeprefix("torch.") if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise TypeError(f"{name} must be an int32 tensor (sequences + 1,), got {came}")
    if x.ndim != 1 or len(x) == 0:
        raise ValueError(f"{name} must have shape (sequences + 1,), got {tuple(x.shape)}")
    if x.device != q.device:
        raise ValueError(f"{name} must be on the device of q, {q.device}, got {x.device}")
    return x.contiguous()


def checked_longest(longest: Any) -> tuple[int, int]:
    """Return the bounds of the lengths of queries and keys, -1 and -1 for None."""
    if longest is None:
        return -1, -1
    pair = isinstance(longest, (tuple, list)) and len(longest) == 2
    sides = [plain(n) for n in longest] if pair else []
    if not pair or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in sides):
        raise ValueError(f"longest must be None, or (queries, keys), bounds of the lengths, got {longest!r}")
    return sides[0], sides[1]
