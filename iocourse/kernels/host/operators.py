"""Attention as PyTorch operators, so that autograd, torch.compile and opcheck know it; and what each does
before it launches kernels: which way to go, and which tensors are copied first.

They are custom operators, opaque to the compiler, because the same call must also run in Triton's
interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Optional

import torch
from torch import Tensor
from torch._C import _functorch

from ...gpu import CHIPS
from . import runtime
from .dispatch import Backward, automatic, shared_bytes, why_fused
from .launches import BACKWARD, FORWARD, decode_launches
from .tiles import Table, table_for
from .visibility import Band, Packed, Seen, packed_of

# The operators' schemas are read off the annotations, and Optional is the spelling that every torch reads.


@torch.library.custom_op("iocourse::attention", mutates_args=())
def attention_operator(
    q: Tensor, k: Tensor, v: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: Optional[int], high: Optional[int], lower_right: bool, longest_q: int, longest_k: int,  # noqa: UP045
    scale: float, deterministic: Optional[bool], way: str,  # noqa: UP045
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(O, row log-sum-exp). `deterministic` says how the backward pass is to be computed.

    lists: of a block mask, or none. cu: cu_q and cu_k of packed sequences, or none; with them lower_right and
    the lengths of the longest (-1: read off cu, and cu is checked).
    """
    seen = Seen(Band(low, high), lists, _packed(q, k, cu, longest_q, longest_k, lower_right))
    return forward(q, k, v, seen, scale, way)


@attention_operator.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("iocourse::attention_backward", mutates_args=())
def backward_operator(
    do: Tensor, dlse: Optional[Tensor],  # noqa: UP045
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: Optional[int], high: Optional[int], lower_right: bool, longest_q: int, longest_k: int,  # noqa: UP045
    scale: float, deterministic: Optional[bool], way: str,  # noqa: UP045
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV. deterministic: None for what is known to be faster."""
    seen = Seen(Band(low, high), lists, _packed(q, k, cu, longest_q, longest_k, lower_right))
    fixed = split_by_default(_table(q, seen).arch, q, k, seen) if deterministic is None else deterministic
    return backward(do, dlse, q, k, v, o, lse, seen, scale, fixed, way)


@backward_operator.register_fake
def _(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, lists, cu, *options = inputs
    ctx.save_for_backward(q, k, v, *output, *lists, *cu)
    ctx.lists, ctx.cu, ctx.options = len(lists), len(cu), options
    ctx.set_materialize_grads(False)  # a log-sum-exp nobody used has no gradient, rather than zeros to read


def _backward(ctx: Any, do: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
    q, k, v, o, lse, *rest = ctx.saved_tensors
    lists, cu = rest[: ctx.lists], rest[ctx.lists :]
    if any(x is not None and _functorch.is_legacy_batchedtensor(x) for x in (do, dlse)):
        raise NotImplementedError("dO is a batch (is_grads_batched); allowed: one backward pass for each")
    do = torch.zeros_like(o) if do is None else do
    gradients = backward_operator(do, dlse, q, k, v, o, lse, lists, cu, *ctx.options)
    return *gradients, [None] * ctx.lists, [None] * ctx.cu, *[None] * len(ctx.options)


def _refusing(line: str) -> Any:
    def refuse(*_: Any) -> Any:
        raise NotImplementedError(line)

    return refuse


attention_operator.register_autograd(_backward, setup_context=_keep)
backward_operator.register_autograd(
    _refusing(
        "attention's gradients have no gradients; allowed: one backward pass, or for a second one "
        "torch.nn.functional.scaled_dot_product_attention within torch.nn.attention.sdpa_kernel("
        "torch.nn.attention.SDPBackend.MATH)"
    )
)


@torch.library.custom_op("iocourse::decode", mutates_args=())
def decode_operator(q: Tensor, k: Tensor, v: Tensor, scale: float, parts: int) -> tuple[Tensor, Tensor]:
    """(O, row log-sum-exp) of one query a sequence; parts of the keys, 0 for as many as fill the chip."""
    arch = table_for(q.device, q.shape[3], q.element_size()).arch
    with on_device(q.device, arch):
        fit_q, fit_k, fit_v = readable(arch is None, q, k, v)
        o, lse = decode_launches(arch, fit_q, fit_k, fit_v, scale, parts)
    return as_asked(q, o), lse


decode_operator.register_autograd(
    _refusing("decode keeps nothing for a backward pass; allowed: attention(q, k, v), or torch.no_grad()")
)


@decode_operator.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def forward(
    q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float, way: str = ""
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """O (like q) and its row log-sum-exp, float32 (B, H, Nq).

    q (B, H, Nq, d), k and v (B, H_kv, Nk, d), one dtype and device, unit last stride. way: "whole",
    "fused", "materialised", or "" for what suits the chip (see `way_for`).
    """
    table = _table(q, seen)
    fit_q, fit_k, fit_v = readable(table.arch is None, q, k, v)
    chosen = way or way_for("forward", table.arch, fit_q, seen)
    _check_room(chosen, "forward", table.arch, fit_q, seen)
    with on_device(q.device, table.arch):
        o, lse = FORWARD[chosen](table, fit_q, fit_k, fit_v, seen, scale)
    return as_asked(q, o), lse


def backward(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    seen: Seen, scale: float, deterministic: bool, way: str = "",
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV (like q, k, v) from dO, the gradient of lse (or None) and what `forward` kept."""
    asked = q, k, v
    table = _table(q, seen)
    do, q, k, v, o = readable(table.arch is None, do, q, k, v, o)
    dlse = None if dlse is None else dlse.to(torch.float32).contiguous()
    which = "split" if deterministic else "fused"
    chosen = way or way_for(which, table.arch, q, seen)
    _check_room(chosen, which, table.arch, q, seen)
    with on_device(q.device, table.arch):
        run = BACKWARD[chosen][deterministic]
        gradients = run(table, q, k, v, o, do, lse.contiguous(), dlse, seen, scale)
    dq, dk, dv = (as_asked(x, got) for x, got in zip(asked, gradients, strict=True))
    return dq, dk, dv


def _table(q: Tensor, seen: Seen) -> Table:
    """The tiles for q (B, H, Nq, d) and what is seen; a window's upper edge counts as a causal mask's."""
    causal = seen.band.high is not None
    return table_for(q.device, q.shape[3], q.element_size(), listed=bool(seen.lists), causal=causal)


def split_by_default(arch: int | None, q: Tensor, k: Tensor, seen: Seen) -> bool:
    """Whether the backward pass takes two kernels where nobody says (see `dispatch.why_fused`)."""
    B, H, n_q, d = q.shape
    pairs = "block_mask" if seen.lists else "band" if seen.packed is None else "packed"
    low, high = seen.band
    mask = "window" if low is not None or high not in (None, 0) else "full" if high is None else "causal"
    return not why_fused(
        Backward(arch, d, q.element_size(), mask, pairs, H // max(1, k.shape[1]), B * H * n_q)
    )


def way_for(which: str, arch: int | None, q: Tensor, seen: Seen) -> str:
    """The way to do a pass, "forward", "fused" or "split", that suits the chip (see `dispatch.automatic`).

    Block masks and packed sequences are known to the kernels of whole rows alone.
    """
    if seen.lists or seen.packed is not None:
        return "whole"
    return automatic(which, arch, q.shape[-1], q.element_size())


def _check_room(way: str, which: str, arch: int | None, q: Tensor, seen: Seen) -> None:
    """Raise ValueError where whole rows were asked for, and the recorded tile of the pass takes more shared
    memory than the chip has.
    """
    if way != "whole" or arch is None or runtime.pretended is not None:
        return
    pairs = "block_mask" if seen.lists else "band" if seen.packed is None else "packed"
    most, room = shared_bytes(which, arch, q.shape[-1], q.element_size(), pairs), CHIPS[arch].shared_bytes
    if most > room:
        raise ValueError(
            f"q has head size {q.shape[-1]} in {8 * q.element_size()} bits, whose tiles of whole rows take "
            f"{most // 1024} KB of shared memory, and sm_{arch} has {room // 1024} KB; "
            "allowed here: a smaller d, 16 bits, or attention without block_mask and with tile_d=None"
        )


def on_device(device: torch.device, arch: int | None) -> AbstractContextManager[Any]:
    """Within this block kernels start on `device`, which need not be PyTorch's current one."""
    return torch.cuda.device(device) if device.type == "cuda" and arch is not None else nullcontext()


def _packed(
    q: Tensor, k: Tensor, cu: Sequence[Tensor], longest_q: int, longest_k: int, lower_right: bool
) -> Packed | None:  # fmt: skip
    return packed_of(q, k, cu, (longest_q, longest_k), lower_right) if cu else None


def readable(interpreted: bool, *tensors: Tensor) -> list[Tensor]:
    """The tensors as the kernels take them: where one is not fit, a copy of all its numbers that is."""
    if interpreted:
        # Triton's interpreter, 3.6 to 3.9, computes bfloat16 wrongly; anything else is read where it lies.
        wide = [x.to(torch.float32) if x.dtype == torch.bfloat16 else x for x in tensors]
        return [x if x.stride(-1) == 1 else x.contiguous() for x in wide]
    return [x if _on_borders(x) else _on_new_borders(x) for x in tensors]


def _on_borders(x: Tensor) -> bool:
    """Whether a GPU can read rows in its widest loads: rows of whole sixteens, each from a 16-byte border on.

    Else each number is loaded by itself, and the addresses spill 0.2 to 1.4 KB a thread (d = 100, compiled).
    """
    steps = [step for n, step in zip(x.shape[:3], x.stride()[:3], strict=True) if n > 1]
    whole = all(step % 16 == 0 for step in [x.shape[3], *steps])
    return whole and x.stride(3) == 1 and x.data_ptr() % 16 == 0


def _on_new_borders(x: Tensor) -> Tensor:
    """A copy with columns of zeros up to the next multiple of 16, which change no product."""
    return torch.nn.functional.pad(x, (0, -x.shape[3] % 16)).contiguous()


def as_asked(asked: Tensor, got: Tensor) -> Tensor:
    """The result in the type, columns and layout of the tensor that was asked about."""
    like = torch.empty_like(asked, device="meta")
    if (got.shape, got.dtype, got.stride()) == (like.shape, like.dtype, like.stride()):
        return got
    return torch.empty_like(asked).copy_(got[..., : asked.shape[3]])
