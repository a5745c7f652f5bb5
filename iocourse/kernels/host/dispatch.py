"""Attention as PyTorch operators (for autograd, torch.compile and opcheck): choose the variant of each pass,
copy tensors that kernels cannot read, and launch.

The operators are custom ones, opaque to the compiler, because the same call must also run in Triton's
interpreter. In eager mode `run_attention` calls their bodies directly if the dispatcher would add nothing.

A variant uses tiles of complete rows, slices of d, or matrices (P and dS). It is chosen by times measured on
a GPU (`FUSED`, `SLICES`), otherwise by `WHOLE_UP_TO`, and never by compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.nn import Parameter

from ...data.records import load_record
from ...gpu import CHIPS
from . import backend
from .launches import BACKWARD, FORWARD, decode_launches, matrix_bytes_of
from .ranges import Band, Packed, VisiblePairs, packed_of, sizes_of
from .tile_table import MATRIX_BYTES, Table, architecture, matrix_bytes, padded, table_for

# PyTorch derives the operators' schemas from annotations, and every version understands Optional.


def _attention(
    q: Tensor, k: Tensor, v: Tensor, lists: Sequence[Tensor], cu: Sequence[Tensor],
    low: Optional[int], high: Optional[int], lower_right: bool, longest_q: int, longest_k: int,  # noqa: UP045
    scale: float, deterministic: Optional[bool], way: str,  # noqa: UP045
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (O, row log-sum-exp). `deterministic` selects the algorithm of the backward pass.

    lists: of a block mask, or empty. cu: cu_q and cu_k of packed sequences, or empty; they come with
    lower_right and the longest lengths (-1: computed from cu, which is then checked).
    """
    seen = VisiblePairs(Band(low, high), lists, _packed(q, k, cu, longest_q, longest_k, lower_right))
    return launch_forward(q, k, v, seen, scale, way)


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
    """Return dQ, dK, dV; an empty tensor for a letter of "qkv" that is not in `needed`.

    deterministic: None selects by `FUSED`.
    """
    seen = VisiblePairs(Band(low, high), lists, _packed(q, k, cu, longest_q, longest_k, lower_right))
    found = launch_backward(do, dlse, q, k, v, o, lse, seen, scale, deterministic, way, needed)
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
    torch.func, a mode that intercepts operators or functions, a subclass of Tensor, or a meta tensor.
    """
    if torch.compiler.is_compiling() or torch.overrides.has_torch_function(tensors):
        return True
    return _dispatches_more() or any(x.is_meta or type(x) not in (Tensor, Parameter) for x in tensors)


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
    arch = architecture(q.device)
    with on_device(q.device, arch):
        fit_q, fit_k, fit_v = readable(arch is None, q, k, v)
        o, lse = decode_launches(arch, fit_q, fit_k, fit_v, scale, parts)
    return o if fit_q is q else in_form_of(q, o), lse


decode_operator.register_autograd(
    _refusing("decode has no backward pass. Use attention(q, k, v), or call decode within torch.no_grad()")
)


@decode_operator.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def launch_forward(
    q: Tensor, k: Tensor, v: Tensor, seen: VisiblePairs, scale: float, way: str = ""
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute O (like q) and its row log-sum-exp, float32 (B, H, Nq).

    q (B, H, Nq, d), k and v (B, H_kv, Nk, d), one dtype and device, unit last stride. way: "whole",
    "fused", "materialised", or "" for the chip's default (see `way_for`).
    """
    table = _table(q, seen)
    fit_q, fit_k, fit_v = readable(table.arch is None, q, k, v)
    chosen = way or way_for("forward", table.arch, fit_q, seen)
    _check_room(chosen, "forward", table.arch, fit_q, seen)
    with on_device(q.device, table.arch):
        o, lse = FORWARD[chosen](table, fit_q, fit_k, fit_v, seen, scale)
    return o if fit_q is q else in_form_of(q, o), lse


def launch_backward(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    seen: VisiblePairs, scale: float, deterministic: bool | None, way: str = "", needed: str = "qkv",
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Compute dQ, dK, dV (like q, k, v) from dO, the gradient of lse (or None), and the inputs and
    results of `forward`. needed: letters of the gradients to compute; the others are None.
    """
    asked = q, k, v
    table = _table(q, seen)
    do, q, k, v, o = readable(table.arch is None, do, q, k, v, o)
    fit = q, k, v
    dlse = None if dlse is None else dlse.to(torch.float32).contiguous()
    chosen, fixed = backward_way(table.arch, q, k, seen, deterministic)
    chosen = way or chosen
    fixed = fixed or _one_side_fits(table, q, seen, needed)
    _check_room(chosen, "split" if fixed else "fused", table.arch, q, seen)
    if chosen == "materialised":
        _check_matrices(q, k)
    with on_device(q.device, table.arch):
        run = BACKWARD[chosen][fixed]
        gradients = run(table, q, k, v, o, do, lse.contiguous(), dlse, seen, scale, needed)
    return tuple(
        None if got is None or name not in needed else got if x is one else in_form_of(x, got)
        for name, x, one, got in zip("qkv", asked, fit, gradients, strict=True)
    )


def _one_side_fits(table: Table, q: Tensor, seen: VisiblePairs, needed: str) -> bool:
    """Return True if one two-pass kernel computes all needed gradients: dQ with 3 products per tile of
    scores, or dK and dV with 4, in place of 5 products in the fused kernel.
    """
    if ("q" in needed) == (needed != "q") or table.whole is None:
        return False
    if choose_variant("split", table.arch, q.shape[3], q.element_size()) != "whole":
        return False
    if needed != "q" or not seen.lists:
        return True
    # The lists of a block mask are made before it is known what needs gradients. For dQ those of the forward
    # pass serve, unless their tiles are larger than those with which the kernel of dQ was compiled.
    most = table.whole.queries
    return all(size <= limit for size, limit in zip(sizes_of(seen.lists, 0), most[:2], strict=True))


def _table(q: Tensor, seen: VisiblePairs) -> Table:
    """Return the tiles for q (B, H, Nq, d) and its visible pairs; a window with an upper limit counts as
    causal. Packed sequences use the table's tiles, because none were measured with them.
    """
    causal = None if seen.packed is not None else seen.band.high is not None
    return table_for(q.device, q.shape[3], q.element_size(), listed=bool(seen.lists), causal=causal)


def backward_way(
    arch: int | None, q: Tensor, k: Tensor, seen: VisiblePairs, deterministic: bool | None = None
) -> tuple[str, bool]:  # fmt: skip
    """Return the variant of the backward pass, and True if complete rows use the two-pass kernels. If
    deterministic is None, `FUSED` and `SLICES` select the variant.
    """
    B, H, n_q, d = q.shape
    pairs = "block_mask" if seen.lists else "band" if seen.packed is None else "packed"
    low, high = seen.band
    mask = "window" if low is not None or high not in (None, 0) else "full" if high is None else "causal"
    group = H // max(1, k.shape[1])
    one = Backward(arch, d, q.element_size(), mask, pairs, group, B * H * n_q, matrix_bytes_of(q, k))
    fixed = not why_fused(one) if deterministic is None else deterministic
    if not why_no_matrix(one):
        return "materialised", fixed
    return way_for("split" if fixed else "fused", arch, q, seen), fixed


def way_for(which: str, arch: int | None, q: Tensor, seen: VisiblePairs) -> str:
    """Return the variant of a pass, "forward", "fused" or "split" (see `choose_variant`).

    Only kernels with complete rows support block masks and packed sequences.
    """
    if seen.lists or seen.packed is not None:
        return "whole"
    return choose_variant(which, arch, q.shape[-1], q.element_size())


# Choice of the variant.


# The kernels of each pass with tiles of complete rows.
PASSES = {"forward": ("forward",), "fused": ("fused",), "split": ("queries", "keys")}

# Maximum head sizes for tiles of complete rows; larger ones use slices of d. Up to these sizes the recorded
# kernel fits the chip (`Resources.fits`), and by the closed forms it moves no more bytes than the kernel with
# slices. Larger d would fit only with tiles of 16 or 32 rows, which load K and V so often that slices of d in
# larger tiles move fewer bytes. `tools.bench.resources.whole_rows` derives these numbers; a test compares.
WHOLE_UP_TO: dict[tuple[int | None, int], dict[str, int]] = {
    # architecture (None: interpreted), bytes per number
    (None, 2): {"forward": 256, "fused": 256, "split": 256},
    (None, 4): {"forward": 256, "fused": 256, "split": 256},
    (75, 2): {"forward": 128, "fused": 64, "split": 128},
    (75, 4): {"forward": 256, "fused": 128, "split": 128},
    (80, 2): {"forward": 256, "fused": 256, "split": 512},
    (80, 4): {"forward": 128, "fused": 256, "split": 128},
    (89, 2): {"forward": 256, "fused": 256, "split": 256},
    (89, 4): {"forward": 256, "fused": 256, "split": 128},
    (90, 2): {"forward": 512, "fused": 128, "split": 256},
    (90, 4): {"forward": 256, "fused": 128, "split": 128},
    (100, 2): {"forward": 512, "fused": 256, "split": 512},
    (100, 4): {"forward": 256, "fused": 128, "split": 128},
}


def choose_variant(which: str, arch: int | None, d: int, itemsize: int) -> str:
    """Return the variant for an architecture (None: the interpreter), head size and bytes per number: "whole"
    for complete rows, or "fused" for slices of d without materialised scores. `using` does not change it.

    which: "forward", "fused" or "split".
    """
    return "whole" if d <= WHOLE_UP_TO[arch, itemsize][which] else "fused"


class Backward(NamedTuple):
    """Properties of a backward pass that decide its variant.

    mask: "full", "causal" or "window". pairs: "band", "block_mask" or "packed". group: query heads per key
    head. rows: of Q, over all batches and heads. matrix_bytes: of P and dS of one key head.
    """

    arch: int | None
    d: int
    itemsize: int
    mask: str
    pairs: str
    group: int
    rows: int
    matrix_bytes: int = 0


Conditions = tuple[tuple[Callable[[Backward], bool], str], ...]
FEW_ROWS = 128 * 132  # one tile of queries for each SM of an H100 or H200
# Conditions under which the fused backward pass is the default, each with its reason. In all other cases the
# two-pass one is, because it was measured to be faster (NVIDIA H200, bfloat16; float16 takes the same
# instructions): 1.08 to 1.46 times as fast at N = 4,096 (record `attention`).
FUSED: Conditions = (
    (lambda one: one.arch is None, "interpreted: the lessons count the words of one pass"),
    (lambda one: one.arch != 90, "not timed on this chip"),
    (lambda one: one.itemsize != 2, "float32 is not timed"),
    (lambda one: one.d not in (64, 128), "this head size is not timed"),
    (lambda one: one.pairs == "block_mask", "block masks are not timed both ways"),
    (lambda one: one.pairs == "packed", "packed sequences are not timed both ways"),
    (lambda one: one.mask == "window", "windows are not timed"),
    (lambda one: one.group != 1, "heads that share keys are not timed both ways"),
    (lambda one: one.rows < FEW_ROWS, "so few programs are not timed, and seven products may outlast five"),
)


def why_fused(one: Backward) -> str:
    """Return the reason to select the fused backward pass; "" selects the two-pass one."""
    return _first_reason(FUSED, one)


# Conditions under which the backward pass materialises nothing, each with its reason. In all other cases it
# materialises P and dS, because that was measured to be faster (NVIDIA H200, bfloat16): than slices of d and
# than whole rows, 2.2 times or more at d = 512, 1.8 at d = 320, and 1.7 in full and 1.5 in causal attention
# at d = 256. The work and the bytes of all three grow in proportion to d.
SLICES: Conditions = (
    (lambda one: one.arch is None, "interpreted: the lessons count the words of slices"),
    (lambda one: one.arch != 90, "not timed on this chip"),
    (lambda one: one.itemsize != 2, "float32 is not timed"),
    (lambda one: one.d < 256, "complete rows fit at this head size"),
    (lambda one: one.pairs != "band", "block masks and packed sequences need complete rows"),
    (lambda one: one.mask == "window", "windows are not timed"),
    (lambda one: one.group != 1, "heads that share keys are not timed both ways"),
    (lambda one: one.rows < FEW_ROWS, "so few programs are not timed"),
    (lambda one: one.matrix_bytes > matrix_bytes(), "P and dS of one head take more than matrix_bytes"),
)


def why_no_matrix(one: Backward) -> str:
    """Return the reason to materialise nothing in the backward pass; "" selects P and dS."""
    return _first_reason(SLICES, one)


def _first_reason(conditions: Conditions, one: Backward) -> str:
    return next((reason for applies, reason in conditions if applies(one)), "")


@cache
def shared_bytes(which: str, arch: int, d: int, itemsize: int, pairs: str) -> int:
    """Return the maximum shared memory, in bytes, of the recorded kernels of a pass with complete rows; 0 if
    none is recorded.

    pairs: "band", "block_mask" or "packed". The last two are recorded for the usual head sizes; for other
    sizes the row of "band" is used.
    """
    rows = recorded_rows(which, arch, d, itemsize, pairs) or recorded_rows(which, arch, d, itemsize)
    return max((row["shared_bytes"] for row in rows), default=0)


@cache
def recorded_rows(which: str, arch: int, d: int, itemsize: int, pairs: str = "band") -> list[dict[str, Any]]:
    """Return the recorded rows of a pass with complete rows; [] if one of its kernels does not compile."""
    record = load_record("resources") or {"shipped": []}
    size = (arch, max(64, padded(d)), itemsize, pairs)
    rows = [
        row
        for row in record["shipped"]
        if (row["arch"], row["d"], row["bytes"], row.get("pairs")) == size and row["kernel"] in PASSES[which]
    ]
    return [] if any("error" in row for row in rows) else rows


def _check_room(way: str, which: str, arch: int | None, q: Tensor, seen: VisiblePairs) -> None:
    """Raise ValueError if complete rows are requested and the recorded tile of the pass needs more shared
    memory than the chip has.
    """
    if way != "whole" or arch is None or backend.target_arch is not None:
        return
    pairs = "block_mask" if seen.lists else "band" if seen.packed is None else "packed"
    most, room = shared_bytes(which, arch, q.shape[-1], q.element_size(), pairs), CHIPS[arch].shared_bytes
    if most > room:
        raise ValueError(
            f"q has head size {q.shape[-1]} in {8 * q.element_size()} bits, so tiles of complete rows need "
            f"{most // 1024} KB of shared memory, but sm_{arch} has {room // 1024} KB. "
            "Use a smaller d, 16 bits, or attention without block_mask and with tile_d=None"
        )


def _check_matrices(q: Tensor, k: Tensor) -> None:
    """Raise ValueError if P and dS of one key head take more bytes than `using(matrix_bytes=…)` allows."""
    needed, most = matrix_bytes_of(q, k), matrix_bytes()
    if most < needed and most != MATRIX_BYTES:
        raise ValueError(
            f"matrix_bytes must be at least {needed:,}, got {most:,}: P and dS of one key head take so much "
            f"with {q.shape[2]:,} queries and {k.shape[2]:,} keys. Increase it, or use attention with "
            "tile_d='fused'"
        )


def on_device(device: torch.device, arch: int | None) -> AbstractContextManager[Any]:
    """Make `device` PyTorch's current CUDA device within this block, so that kernels start on it."""
    return torch.cuda.device(device) if device.type == "cuda" and arch is not None else nullcontext()


def _packed(
    q: Tensor, k: Tensor, cu: Sequence[Tensor], longest_q: int, longest_k: int, lower_right: bool
) -> Packed | None:  # fmt: skip
    return packed_of(q, k, cu, (longest_q, longest_k), lower_right) if cu else None


def readable(interpreted: bool, *tensors: Tensor) -> list[Tensor]:
    """Return the tensors in a form that kernels can read: each one itself, or a copy of it."""
    if interpreted:
        return [x if x.stride(-1) == 1 else x.contiguous() for x in tensors]
    # A copy is padded with columns of zeros to a multiple of 16, which do not change any product.
    return [
        x if _on_borders(x) else torch.nn.functional.pad(x, (0, -x.shape[3] % 16)).contiguous()
        for x in tensors
    ]


def _on_borders(x: Tensor) -> bool:
    """Return True if a GPU can use its widest loads: row lengths and strides are multiples of 16 numbers, and
    the first row is 16-byte aligned.

    Otherwise each number is loaded separately, and the addresses spill registers.
    """
    steps = [step for n, step in zip(x.shape[:3], x.stride()[:3], strict=True) if n > 1]
    whole = all(step % 16 == 0 for step in [x.shape[3], *steps])
    return whole and x.stride(3) == 1 and x.data_ptr() % 16 == 0


def in_form_of(x: Tensor, result: Tensor) -> Tensor:
    """Return the result with the type, columns and layout of the tensor x that the caller passed."""
    like = torch.empty_like(x, device="meta")
    if (result.shape, result.dtype, result.stride()) == (like.shape, like.dtype, like.stride()):
        return result
    return torch.empty_like(x).copy_(result[..., : x.shape[3]])
