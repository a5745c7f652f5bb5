"""What a user calls: `attention`, `attention_varlen` for sequences of different lengths packed one behind the
other with no padding to read, and `decode` for one query of each sequence against its cache; below them what
their arguments may be. Each error names the argument, what came and what is allowed.
"""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from collections.abc import Callable
from functools import cache, wraps
from itertools import count
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from ...sizes import positive_int
from .backend import INTERPRETED
from .dispatch import attend, decode_operator
from .launches import MOST_PARTS
from .tile_table import table_for
from .visible_pairs import Band, TiledMask, tiled_mask

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
TILE_D = (None, "never", "fused", "materialised")

P = ParamSpec("P")
R = TypeVar("R")


def _explains_names(call: Callable[P, R]) -> Callable[P, R]:
    """`call`, which says of an argument it does not have what to write instead (see `ELSEWHERE`)."""
    parameters = inspect.signature(call).parameters
    most = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters.values())

    @wraps(call)
    def explained(*arguments: P.args, **options: P.kwargs) -> R:
        if len(arguments) > most:
            raise TypeError(
                f"{call.__name__} has {len(arguments)} arguments without a name; allowed: {most}, and "
                f"options by name; for a mask {MASK}"
            )
        for name in options:
            if name not in parameters:
                instead = ELSEWHERE.get(name, ", ".join(parameters))
                raise TypeError(f"{name} is no argument of {call.__name__}; allowed: {instead}")
        return call(*arguments, **options)

    return explained


@_explains_names
def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, align: str | None = None,
    block_mask: TiledMask | None = None, deterministic: bool | None = None, tile_d: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """softmax(scale · QKᵀ) V and the natural logarithm of each row's sum of exponentials.

    Both results can be differentiated. See `attention` for the arguments.

    Returns:
        O (B, H, Nq, d), in q's type and layout; LSE (B, H, Nq), float32. A query that sees no key has O = 0,
        LSE = -∞ and zero gradients.
    """
    way, causal = _way(tile_d, block_mask), plain(causal)
    q, k, v, factor = checked_inputs(q, k, v, scale, LARGEST_WHOLE if way == "whole" else LARGEST_HEAD)
    fixed = fixed_order(deterministic)
    if block_mask is None:
        band, lists = band_of(causal, window, q.shape[2], k.shape[2], align), []
    else:
        if causal is not False or window is not None or align is not None:
            raise ValueError(
                "block_mask comes with causal, window or align; allowed: one without the others, and a block "
                "mask can hide what they hide"
            )
        band, lists = Band(None, None), _lists(block_mask, q, k, fixed is True)
    return attend(*_unit_steps(q, k, v), lists, [], *band, False, -1, -1, factor, fixed, way)


@_explains_names
def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, align: str | None = None,
    block_mask: TiledMask | None = None, deterministic: bool | None = None, tile_d: str | None = None,
) -> Tensor:  # fmt: skip
    """softmax(scale · QKᵀ) V by Triton kernels that keep no N × N matrix, forward and backward, with one
    exception that is known to be faster (see tile_d).

    Args:
        q: (B, H, Nq, d), float16, bfloat16 or float32, d from 1 to 1024. Any strides; on a GPU a tensor whose
            rows are no multiples of 16 numbers, or not on 16-byte borders, is copied first.
        k: (B, H_kv, Nk, d), of the same type; H_kv divides H, and each head serves H / H_kv heads of q.
        v: (B, H_kv, Nk, d), of the same type.
        causal: False; True: query i sees no key after its own; 'upper_left' or 'lower_right': the same, and
            which key is its own (see align).
        scale: factor of QKᵀ; 1/√d where None.
        window: (left, right): query i sees at most `left` keys before its own and `right` after it; None or
            -1: no limit.
        align: which key is query i's own: 'upper_left', key i, as PyTorch's SDPA has it; 'lower_right', key
            i + Nk - Nq, as FlashAttention has it: code written for FlashAttention needs it wherever Nq ≠ Nk.
            None: as causal says, else 'upper_left'.
        block_mask: which keys each query attends to, instead of causal and window, d to 512: a mask that
            `tiled_mask` returned. torch.compile takes it in one graph, and compiles less after a first call.
        deterministic: True: compute the backward pass in two kernels with a fixed order of every sum,
            bit-equal from run to run, as torch.use_deterministic_algorithms(True) does. False: in one kernel
            with atomic additions. None: the way that was measured to be faster (`dispatch.FUSED`): two
            kernels on sm_90 in 16 bits at d = 64 and 128, full or causal; otherwise one.
        tile_d: whether d is cut into slices as well as N. None: where whole rows do not fit the chip, or move
            more bytes, by the recorded table of resources and the closed forms; and beyond d = 256 on sm_90
            in 16 bits the backward pass of full and causal attention writes the weights and their gradients,
            for as many heads at once as fit in 1 GiB (`dispatch.SLICES`). 'never' (d to 512); 'fused':
            always, and nothing is materialised; 'materialised': always, with N × N scores written out.

    Under torch.autocast q, k and v are cast as PyTorch's own attention casts them. Gradients can be taken
    once, in reverse mode.

    Returns:
        O (B, H, Nq, d), in q's type and layout.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    return attention_with_lse(
        q, k, v, causal=causal, scale=scale, window=window, align=align, block_mask=block_mask,
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


def _lists(block_mask: TiledMask, q: Tensor, k: Tensor, deterministic: bool) -> list[Tensor]:
    if not isinstance(block_mask, TiledMask):
        came = f"block_mask is a {type(block_mask).__name__}"
        raise TypeError(f"{came}, expected a TiledMask: write block_mask=tiled_mask(mask, q, k)")
    mask = tiled_mask(block_mask, q, k)
    tiles = table_for(q.device, q.shape[3], q.element_size(), listed=True).whole
    assert tiles is not None, "heads with a block mask are no larger than LARGEST_WHOLE"
    return mask.lists(tiles, q.device, q.shape[1] // max(1, k.shape[1]), deterministic)


def _unit_steps(*tensors: Tensor) -> list[Tensor]:
    """The tensors, or copies whose numbers of one row lie side by side."""
    return [x if x.stride(-1) == 1 else x.contiguous() for x in tensors]


@_explains_names
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    longest: tuple[int, int] | None = None, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, align: str | None = None,
    deterministic: bool | None = None,
) -> Tensor:  # fmt: skip
    """softmax(scale · QKᵀ) V within each of several sequences that lie one behind the other.

    Args:
        q: (T_q, H, d), float16, bfloat16 or float32, d from 1 to 512: the queries of all sequences.
        k: (T_k, H_kv, d), of the same type; H_kv divides H.
        v: (T_k, H_kv, d), of the same type.
        cu_q: (sequences + 1,) int32 on q's device: sequence s has queries cu_q[s] … cu_q[s + 1] - 1. It rises
            from 0 to T_q; a sequence may be empty. With `longest` it may end before: rows after the last
            sequence are padding, whose results and gradients are 0 (their LSE -∞).
        cu_k: the same for keys, up to T_k. A query whose sequence has no key gets 0.
        longest: (queries, keys) of the longest sequence. None: read off cu_q and cu_k, and a GPU is waited
            for once in each pass. Given: a GPU is not waited for, and cu_q and cu_k are not checked there, so
            that wrong ones make the kernels access memory out of bounds. On the CPU they are always checked.
        causal: as in `attention`, with each sequence's own diagonal.
        scale: factor of QKᵀ; 1/√d where None.
        window: as in `attention`.
        align: as in `attention`.
        deterministic: as in `attention`.

    Returns:
        O (T_q, H, d), in q's type and layout.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    return attention_varlen_with_lse(
        q, k, v, cu_q, cu_k, longest=longest, causal=causal, scale=scale, window=window, align=align,
        deterministic=deterministic,
    )[0]  # fmt: skip


@_explains_names
def attention_varlen_with_lse(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    longest: tuple[int, int] | None = None, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, align: str | None = None,
    deterministic: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same, and the row log-sum-exps (H, T_q), float32, natural logarithms; -∞ where no key is seen."""
    heads_first = _heads_first("q", q), _heads_first("k", k), _heads_first("v", v)
    check_one_shape(k, v)
    one_q, one_k, one_v, factor = checked_inputs(*heads_first, scale, LARGEST_WHOLE)
    cu = [_starts(name, x, one_q) for name, x in (("cu_q", cu_q), ("cu_k", cu_k))]
    if len(cu[0]) != len(cu[1]):
        raise ValueError(f"cu_k has {len(cu[1])} numbers, cu_q {len(cu[0])}; allowed: as many")
    band, lower_right = _own_band(plain(causal), window, align, max(q.shape[0], k.shape[0]))
    o, lse = attend(
        *_unit_steps(one_q, one_k, one_v), [], cu, *band, lower_right, *_longest(longest), factor,
        fixed_order(deterministic), "whole",
    )  # fmt: skip
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
    sides = [plain(n) for n in longest] if pair else []
    if not pair or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in sides):
        raise ValueError(f"longest is {longest!r}; allowed: None, or (queries, keys) of the longest sequence")
    return sides[0], sides[1]


@_explains_names
def decode(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, parts: int | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(scale · qKᵀ) V for one query a sequence, and its log-sum-exp: the step of generating one token.

    The query is the last token, so it sees every key. K and V are read once for up to 64 heads that share
    them. Nothing is kept for a backward pass.

    Args:
        q: (B, H, 1, d), float16, bfloat16 or float32, d from 1 to 256.
        k: (B, H_kv, N, d), of the same type; H_kv divides H. On a GPU a cache whose rows are no multiples of
            16 numbers, or not on 16-byte borders, is copied first, in every step.
        v: (B, H_kv, N, d), of the same type.
        scale: factor of qKᵀ; 1/√d where None.
        parts: into how many stretches the keys are cut, 264 at most; None: enough to fill the chip.

    Returns:
        O (B, H, 1, d) in q's type; LSE (B, H, 1), float32, natural logarithm.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    q, k, v, factor = checked_inputs(q, k, v, scale, LARGEST_DECODE)
    if q.shape[2] != 1:
        raise ValueError(f"q has {q.shape[2]} queries a head; allowed: 1, and attention for more")
    asked = 0 if parts is None else positive_int("parts", parts)
    if asked > MOST_PARTS:
        raise ValueError(f"parts is {parts}; allowed: 1 to {MOST_PARTS}, or None")
    o, lse = decode_operator(q, k, v, factor, asked)
    return o, lse


# What the arguments may be.


def plain(value: Any) -> Any:
    """NumPy's numbers and booleans as Python's; anything else as it came."""
    return value.item() if isinstance(value, np.generic) else value


def checked_inputs(
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
    wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
    if wrapped and any(map(wrapped, tensors)):  # private: some torch has none
        raise NotImplementedError(
            "q, k or v is within a transform of torch.func (grad, vjp, jacrev, vmap), which the kernels do "
            "not know; allowed: torch.autograd.grad, with a mapped axis as batches of q, k and v"
        )


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


def _own_band(causal: Any, window: Any, align: Any, rows: int) -> tuple[Band, bool]:
    """The band of each packed sequence, and whether it counts from the diagonal that ends in the last pair.

    Where a sequence ends is not known here: that is on the device.
    """
    left, right, alignment = band_parts(causal, window, align, rows)
    return Band(None if left is None else -left, right), alignment == "lower_right"


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
