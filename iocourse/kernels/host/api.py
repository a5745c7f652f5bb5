"""What a user calls: `attention`, `attention_varlen` for sequences of different lengths packed one behind the
other with no padding to read, and `decode` for one query of each sequence against its cache.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from ...sizes import positive_int
from .argument_checks import (
    ELSEWHERE,
    LARGEST_DECODE,
    LARGEST_HEAD,
    LARGEST_WHOLE,
    MASK,
    accepted,
    band_of,
    band_parts,
    check_one_shape,
    fixed_order,
    plain,
)
from .block_masks import TiledMask, tiled_mask
from .launches import MOST_PARTS
from .mask_types import Band
from .tile_table import table_for
from .torch_operators import attend, decode_operator

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
    q, k, v, factor = accepted(q, k, v, scale, LARGEST_WHOLE if way == "whole" else LARGEST_HEAD)
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
    one_q, one_k, one_v, factor = accepted(*heads_first, scale, LARGEST_WHOLE)
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


def _own_band(causal: Any, window: Any, align: Any, rows: int) -> tuple[Band, bool]:
    """The band of each sequence, and whether it counts from the diagonal that ends in the last pair."""
    left, right, alignment = band_parts(causal, window, align, rows)
    return Band(None if left is None else -left, right), alignment == "lower_right"


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
    q, k, v, factor = accepted(q, k, v, scale, LARGEST_DECODE)
    if q.shape[2] != 1:
        raise ValueError(f"q has {q.shape[2]} queries a head; allowed: 1, and attention for more")
    asked = 0 if parts is None else positive_int("parts", parts)
    if asked > MOST_PARTS:
        raise ValueError(f"parts is {parts}; allowed: 1 to {MOST_PARTS}, or None")
    o, lse = decode_operator(q, k, v, factor, asked)
    return o, lse
