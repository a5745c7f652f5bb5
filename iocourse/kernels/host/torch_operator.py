"""Attention as PyTorch operators, for autograd, torch.compile and opcheck; `passes` does the work.

The operators are custom ones, opaque to the compiler, because the same call must also run in Triton's
interpreter. In eager mode `run_attention` calls their bodies directly if the dispatcher would add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import Parameter

from .passes import launch_backward, launch_decode, launch_forward
from .ranges import Band, VisiblePairs, packed_of

# PyTorch derives the operators' schemas from annotations, and every version understands Optional.


def _attention(
    q: Tensor, k: Tensor, v: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: Optional[int], high: Optional[int], lower_right: bool, longest_q: int, longest_k: int,  # noqa: UP045
    scale: float, deterministic: Optional[bool], way: str,  # noqa: UP045
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (O, row log-sum-exp). `deterministic` selects the kernels of the backward pass, `way` those of
    both (see `passes`).

    lists: of a block mask, or empty. cu: cu_q and cu_k of packed sequences, or empty; they come with
    lower_right and the longest lengths (-1: computed from cu, which is then checked).
    """
    visible = _visible(q, k, lists, cu, low, high, lower_right, (longest_q, longest_k))
    return launch_forward(q, k, v, visible, scale, way)


def _visible(
    q: Tensor, k: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor], low: int | None, high: int | None,
    lower_right: bool, longest: tuple[int, int],
) -> VisiblePairs:  # fmt: skip
    return VisiblePairs(Band(low, high), lists, packed_of(q, k, cu, longest, lower_right) if cu else None)


attention_operator = torch.library.custom_op("iocourse::attention", _attention, mutates_args=())


@attention_operator.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _attention_backward(
    do: Tensor, dlse: Optional[Tensor],  # noqa: UP045
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, needed: str,
    lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: Optional[int], high: Optional[int], lower_right: bool, longest_q: int, longest_k: int,  # noqa: UP045
    scale: float, deterministic: Optional[bool], way: str,  # noqa: UP045
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return dQ, dK, dV; an empty tensor for a letter of "qkv" that is not in `needed`."""
    visible = _visible(q, k, lists, cu, low, high, lower_right, (longest_q, longest_k))
    found = launch_backward(do, dlse, q, k, v, o, lse, visible, scale, deterministic, way, needed)
    dq, dk, dv = (x.new_empty(0) if got is None else got for x, got in zip((q, k, v), found, strict=True))
    return dq, dk, dv


backward_operator = torch.library.custom_op(
    "iocourse::attention_backward", _attention_backward, mutates_args=()
)


@backward_operator.register_fake
def _(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, needed: str,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    pairs = zip("qkv", (q, k, v), strict=True)
    dq, dk, dv = (torch.empty_like(x) if name in needed else x.new_empty(0) for name, x in pairs)
    return dq, dk, dv


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, lists, cu, *options = inputs
    ctx.save_for_backward(q, k, v, *output, *lists, *cu)
    ctx.lists, ctx.cu, ctx.options = len(lists), len(cu), options
    ctx.set_materialize_grads(False)  # an unused log-sum-exp gets None as gradient, not a tensor of zeros


def _gradients(ctx: Any, run: Any, do: Tensor | None, dlse: Tensor | None) -> Any:
    """Return dQ, dK, dV from the tensors that `_keep` saved, None for an input that needs no gradient.

    run: the backward operator, or its body.
    """
    q, k, v, o, lse, *rest = ctx.saved_tensors
    lists, cu = rest[: ctx.lists], rest[ctx.lists :]
    batched = getattr(getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", None)
    if batched and any(x is not None and batched(x) for x in (do, dlse)):  # private: some versions lack it
        raise NotImplementedError(
            "dO is a batch (is_grads_batched), which attention does not support. Call the backward pass once "
            "for each"
        )
    do = torch.zeros_like(o) if do is None else do
    needed = "".join(name for name, asked in zip("qkv", ctx.needs_input_grad, strict=False) if asked)
    found = run(do, dlse, q, k, v, o, lse, needed, lists, cu, *ctx.options)
    return [got if name in needed else None for name, got in zip("qkv", found, strict=True)]


def _backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
    gradients = _gradients(ctx, backward_operator, do, dlse)
    return *gradients, [None] * ctx.lists, [None] * ctx.cu, *[None] * len(ctx.options)


def _refusing(line: str) -> Any:
    def refuse(*_: Any) -> Any:
        raise NotImplementedError(line)

    return refuse


attention_operator.register_autograd(_backward, setup_context=_keep)
backward_operator.register_autograd(
    _refusing(
        "attention has no second derivative. Use one backward pass, or for a second one "
        "torch.nn.functional.scaled_dot_product_attention within torch.nn.attention.sdpa_kernel("
        "torch.nn.attention.SDPBackend.MATH)"
    )
)


class _EagerAttention(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch here
    """`attention_operator` without PyTorch's dispatcher, whose Python wrappers take longer than launches."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Return (O, row log-sum-exp), and save tensors for the backward pass."""
        output = _attention(*inputs)
        _keep(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of q, k and v. If a graph of them is needed, call the operator, whose own
        derivative raises an error.
        """
        operator = torch.is_grad_enabled() or _watched(*(x for x in (do, dlse) if x is not None))
        gradients = _gradients(ctx, backward_operator if operator else _attention_backward, do, dlse)
        return *gradients, *[None] * (2 + len(ctx.options))


def _watched(*tensors: Tensor) -> bool:
    """Return True if a call must be dispatched as an operator: for a compiler or tracer, a transform of
    torch.func, a mode that intercepts operators or functions, a subclass of Tensor, a meta tensor, or one
    with the negative bit.
    """
    if torch.compiler.is_compiling() or torch.overrides.has_torch_function(tensors):
        return True
    # The operator resolves the negative bit (lazy negation); a kernel would read numbers without their sign.
    return _dispatches_more() or any(
        x.is_meta or x.is_neg() or type(x) not in (Tensor, Parameter) for x in tensors
    )


def _dispatches_more() -> bool:
    """Return True if anything except autograd intercepts operators in this thread, or if that is unknown."""
    try:
        active, key = torch._C._dispatch_tls_local_include_set, torch._C.DispatchKey
        usual = torch._C.DispatchKeySet(key.BackendSelect).add(key.ADInplaceOrView)
        return bool(active() | usual != usual)
    except (AttributeError, TypeError):  # these names are private to PyTorch
        return True


def run_attention(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Return (O, row log-sum-exp) from `attention_operator` or, where that is the same, its body."""
    run = attention_operator if _watched(*inputs[:3]) else _EagerAttention.apply
    o, lse = run(*inputs)
    return o, lse


@torch.library.custom_op("iocourse::decode", mutates_args=())
def decode_operator(q: Tensor, k: Tensor, v: Tensor, scale: float, parts: int) -> tuple[Tensor, Tensor]:
    """Return (O, row log-sum-exp) for one query per sequence. `parts` of the keys, or 0."""
    return launch_decode(q, k, v, scale, parts)


decode_operator.register_autograd(
    _refusing("decode has no backward pass. Use attention(q, k, v), or call decode within torch.no_grad()")
)


@decode_operator.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
