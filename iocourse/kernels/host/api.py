"""Public functions of the kernels: `attention`, `attention_varlen` for packed sequences of different lengths,
and `decode` for one query per sequence with a KV cache. Their arguments are checked in `checks`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from ...sizes import positive_int
from .checks import (
    LARGEST_DECODE,
    LARGEST_HEAD,
    LARGEST_WHOLE,
    band_of,
    check_names,
    check_one_shape,
    checked_inputs,
    checked_longest,
    checked_starts,
    checked_way,
    fixed_order,
    heads_first,
    own_band,
    plain,
)
from .choices import Case, architecture
from .launches import MOST_PARTS
from .masks import TiledMask, tiled_mask, with_values
from .ranges import Band
from .torch_operator import decode_operator, run_attention

P = ParamSpec("P")
R = TypeVar("R")


def _with_arguments_of(model: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Return a decorator that gives a function the signature of `model`, except for the type of its result.

    So each signature is written once, and type checkers, editors and help() show it for both functions. A
    call with other arguments raises an error that names the equivalent ones (see `checks.ELSEWHERE`). The
    parameters of the decorated function are not annotated, because jedi, the completion of Jupyter, would
    then omit q.
    """
    signature = inspect.signature(model)
    parameters = signature.parameters.values()
    positional = tuple(one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD)
    by_name = tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)

    def decorate(call: Callable[..., R]) -> Callable[P, R]:
        called, many = call.__name__, len(positional)

        @wraps(call)
        def explained(*arguments: P.args, **options: P.kwargs) -> R:
            # `check_names` would take longer, so it is called only if the names are not the usual ones.
            usual = len(arguments) == many
            for name in options:
                if name not in by_name:
                    usual = False
            if not usual:
                check_names(called, positional, by_name, arguments, options)
            return call(*arguments, **options)

        result = inspect.signature(call).return_annotation
        explained.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
        explained.__annotations__ = {**model.__annotations__, "return": result}
        return explained

    return decorate


def _explains_names(call: Callable[P, R]) -> Callable[P, R]:
    """Decorator: let a call with wrong arguments raise the errors of `checks.check_names`."""
    return _with_arguments_of(call)(call)


@_explains_names
def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, align: str | None = None,
    block_mask: TiledMask | None = None, deterministic: bool | None = None, tile_d: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return softmax(scale · QKᵀ) V and the row log-sum-exps (natural logarithm).

    Both results can be differentiated. See `attention` for the arguments.

    Returns:
        O (B, H, Nq, d), in q's type and layout; LSE (B, H, Nq), float32. A query that attends to no key has
        O = 0, LSE = -∞ and zero gradients.
    """
    way, causal = checked_way(tile_d, block_mask), plain(causal)
    q, k, v, factor = checked_inputs(
        q, k, v, scale, LARGEST_WHOLE if way == "complete rows" else LARGEST_HEAD
    )
    fixed = fixed_order(deterministic)
    if block_mask is None:
        band, lists = band_of(causal, window, q.shape[2], k.shape[2], align), []
    else:
        if causal is not False or window is not None or align is not None:
            raise ValueError(
                "block_mask must be passed without causal, window and align. Include their limits in the "
                "mask instead"
            )
        band, lists = Band(None, None), _lists(block_mask, q, k, fixed is True)
    return run_attention(*_unit_steps(q, k, v), lists, [], *band, False, -1, -1, factor, fixed, way)


@_with_arguments_of(attention_with_lse)
def attention(*arguments, **options) -> Tensor:  # noqa: ANN002, ANN003, D417
    """Return softmax(scale · QKᵀ) V, computed by Triton kernels. Neither pass stores an N × N matrix,
    except where this was measured to take less time (see tile_d).

    Args:
        q: (B, H, Nq, d), float16, bfloat16 or float32, d from 1 to 1024. Any strides; on a GPU a tensor is
            copied first if its row length or strides are not multiples of 16 numbers, or if it is
            not 16-byte aligned.
        k: (B, H_kv, Nk, d), of the same type; H_kv divides H, and each head serves H / H_kv heads of q.
        v: (B, H_kv, Nk, d), of the same type.
        causal: False; True: query i attends to no key after its own; 'upper_left' or 'lower_right': the same,
            with this alignment (see align).
        scale: factor of QKᵀ. None: 1/√d.
        window: (left, right): query i attends to at most `left` keys before its own and `right` after it;
            None or -1: no limit.
        align: which key is query i's own. 'upper_left': key i, as in PyTorch's SDPA. 'lower_right': key
            i + Nk - Nq, as in FlashAttention; code written for FlashAttention needs it if Nq ≠ Nk. None: the
            alignment that causal names, otherwise 'upper_left'.
        block_mask: a mask from `tiled_mask`, instead of causal and window; d at most 512. torch.compile
            includes it in one graph, and compiles less after a first call.
        deterministic: True: compute the backward pass in two kernels with a fixed order of every sum,
            bit-equal from run to run, as torch.use_deterministic_algorithms(True) does. False: in one kernel
            with atomic additions; slices of d and materialised weights have a fixed order also then. None:
            two kernels on sm_90 in 16 bits at d = 64 and 128, full or causal, without shared heads of keys
            and with a tile of queries for each SM; otherwise one (`choices_of` has all cases, with reasons).
            If dQ needs no gradient, or dK and dV need none, the kernel of the needed side runs alone, where
            it fits.
        tile_d: use of slices of d. 'never': tiles of complete rows (d at most 512). 'fused': slices, without
            materialised scores. 'materialised': slices, with N × N scores stored. None: slices if complete
            rows do not fit the chip or move more bytes, by the recorded resources and the closed forms, or
            took longer (forward, sm_90, 16 bits, d = 257 to 320); from d = 256 on, on sm_90 in 16 bits, the
            backward pass of full and causal attention materialises the weights and their gradients, for as
            many heads at once as fit in 1 GiB. Both only without shared heads of keys, and with a tile of
            queries for each SM (`choices_of` has the reasons).

    Under torch.autocast, q, k and v are cast as by PyTorch's SDPA. Gradients can be taken once,
    in reverse mode.

    Returns:
        O (B, H, Nq, d), in q's type and layout.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    # <!-- 1 = choices.MATRIX_BYTES / 2**30 -->
    # <!-- two = lambda arch, d, size: choice("backward pass", launch(arch, d, size)).value == "two-pass" -->
    # <!-- "two kernels on" if two(90, 64, 2) and two(90, 128, 2) and not two(90, 256, 2) -->
    # <!-- "otherwise one" if not two(80, 64, 2) and not two(90, 64, 4) -->
    # <!-- sliced = lambda d: choice("forward pass", launch(90, d)).value == "slices" -->
    # <!-- "took longer" if [sliced(d) for d in (256, 257, 320, 321)] == [False, True, True, False] -->
    # <!-- chosen = lambda *case: choice("backward pass", launch(*case)).value -->
    # <!-- stored = lambda *case: chosen(*case) == "materialised" -->
    # <!-- "from d = 256 on" if stored(90, 256, 2) and not stored(90, 255, 2) -->
    # <!-- "on sm_90 in 16 bits" if not stored(80, 256, 2) and not stored(90, 256, 4) -->
    return attention_with_lse(*arguments, **options)[0]


def _lists(block_mask: TiledMask, q: Tensor, k: Tensor, deterministic: bool) -> list[Tensor]:
    if not isinstance(block_mask, TiledMask):
        came = f"block_mask must be a TiledMask, got a {type(block_mask).__name__}"
        raise TypeError(f"{came}. Pass block_mask=tiled_mask(mask, q, k)")
    mask = tiled_mask(block_mask, q, k)
    group = q.shape[1] // max(1, k.shape[1])
    case = Case(architecture(q.device), q.element_size(), q.shape[3], "blocks", group)
    lists = mask.lists(case, with_values(q), deterministic)
    return [x.to(q.device) for x in lists] if q.is_meta else lists


def _unit_steps(*tensors: Tensor) -> list[Tensor]:
    """Return each tensor, or a contiguous copy if its last stride is not 1."""
    return [x if x.stride(-1) == 1 else x.contiguous() for x in tensors]


@_explains_names
def attention_varlen_with_lse(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *,
    longest: tuple[int, int] | None = None, causal: bool | str = False, scale: float | None = None,
    window: tuple[int | None, int | None] | None = None, align: str | None = None,
    deterministic: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the result of `attention_varlen` and the row log-sum-exps (H, T_q), float32, natural logarithm;
    -∞ for queries that attend to no key.
    """
    one_q, one_k, one_v = heads_first("q", q), heads_first("k", k), heads_first("v", v)
    check_one_shape(k, v)
    one_q, one_k, one_v, factor = checked_inputs(one_q, one_k, one_v, scale, LARGEST_WHOLE)
    cu = [checked_starts(name, x, one_q) for name, x in (("cu_q", cu_q), ("cu_k", cu_k))]
    if len(cu[0]) != len(cu[1]):
        raise ValueError(f"cu_k must have as many numbers as cu_q, {len(cu[0])}, got {len(cu[1])}")
    band, lower_right = own_band(plain(causal), window, align, max(q.shape[0], k.shape[0]))
    o, lse = run_attention(
        *_unit_steps(one_q, one_k, one_v), [], cu, *band, lower_right, *checked_longest(longest), factor,
        fixed_order(deterministic), "complete rows",
    )  # fmt: skip
    return o[0].transpose(0, 1), lse[0]


@_with_arguments_of(attention_varlen_with_lse)
def attention_varlen(*arguments, **options) -> Tensor:  # noqa: ANN002, ANN003, D417
    """Return softmax(scale · QKᵀ) V within each of several packed (concatenated) sequences.

    Args:
        q: (T_q, H, d), float16, bfloat16 or float32, d from 1 to 512: the queries of all sequences.
        k: (T_k, H_kv, d), of the same type; H_kv divides H.
        v: (T_k, H_kv, d), of the same type.
        cu_q: (sequences + 1,) int32 on q's device: sequence s has queries cu_q[s] … cu_q[s + 1] - 1. It rises
            from 0 to T_q; a sequence may be empty. With `longest` it may end before T_q: rows after the last
            sequence are padding, whose results and gradients are 0 (and their LSE -∞).
        cu_k: the same for keys, up to T_k. A query whose sequence has no key gets 0.
        longest: (queries, keys), upper bounds of the lengths of all sequences; they may be constants, as
            FlashAttention's max_seqlen. None: computed from cu_q and cu_k, which on a GPU needs one
            synchronisation per pass. Given: no synchronisation, but on a GPU cu_q and cu_k are not checked,
            and wrong ones make the kernels access memory out of bounds. On the CPU they are always checked.
        causal: as in `attention`, with one diagonal per sequence.
        scale: factor of QKᵀ. None: 1/√d.
        window: as in `attention`.
        align: as in `attention`.
        deterministic: as in `attention`.

    Returns:
        O (T_q, H, d), in q's type and layout.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    return attention_varlen_with_lse(*arguments, **options)[0]


@_explains_names
def decode(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, parts: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return softmax(scale · qKᵀ) V and its log-sum-exp for one query per sequence: one step of decoding.

    The query is the last token, so it attends to every key. K and V are read once for up to 64 heads that
    share them. There is no backward pass.

    Args:
        q: (B, H, 1, d), float16, bfloat16 or float32, d from 1 to 256.
        k: (B, H_kv, N, d), of the same type; H_kv divides H. On a GPU a cache is copied in every step if its
            row length or strides are not multiples of 16 numbers, or if it is not 16-byte aligned.
        v: (B, H_kv, N, d), of the same type.
        scale: factor of qKᵀ. None: 1/√d.
        parts: number of parts into which the keys are split, at most 264. None: enough to fill the GPU.

    Returns:
        O (B, H, 1, d) in q's type; LSE (B, H, 1), float32, natural logarithm.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    # <!-- 264 = kernels.host.launches.MOST_PARTS -->
    q, k, v, factor = checked_inputs(q, k, v, scale, LARGEST_DECODE)
    if q.shape[2] != 1:
        raise ValueError(f"q must have 1 query per head, got {q.shape[2]}. Use attention for more")
    asked = 0 if parts is None else positive_int("parts", parts)
    if asked > MOST_PARTS:
        raise ValueError(f"parts must be None or 1 to {MOST_PARTS}, got {parts}")
    o, lse = decode_operator(q, k, v, factor, asked)
    return o, lse
