"""The passes of attention: look up their kernels, copy tensors that kernels cannot read, and launch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from ...gpu import CHIPS
from ...gpu.choices import KERNELS_OF
from . import backend
from .choices import MATRIX_BYTES, PASSES, Case, architecture, choice, matrix_bytes, matrix_bytes_of, tile
from .launches import BACKWARD, FORWARD, Inputs, Results, decode_launches
from .ranges import VisiblePairs, sizes_of

# Kernels with complete rows that a pass launches.
OF_PASS = {
    value: kernels
    for choices in KERNELS_OF.values()
    for value, kernels in choices.items()
    if value not in ("slices", "materialised")
}


def launch_forward(
    q: Tensor, k: Tensor, v: Tensor, visible: VisiblePairs, scale: float, way: str = ""
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute O (like q) and its row log-sum-exp, float32 (B, H, Nq).

    q (B, H, Nq, d), k and v (B, H_kv, Nk, d), one dtype and device, unit last stride. way: "complete rows",
    "slices", "materialised", or "" for the recorded choice.
    """
    arch = architecture(q.device)
    fit_q, fit_k, fit_v = readable(arch is None, q, k, v)
    case = case_of(arch, fit_q, fit_k, visible)
    kernels = way or choice(PASSES[0], case).value
    _check_room(kernels, case)
    with on_device(q.device, arch):
        o, lse = FORWARD[kernels](Inputs(case, fit_q, fit_k, fit_v, visible, scale))
    return o if fit_q is q else in_form_of(q, o), lse


def launch_backward(
    do: Tensor, dlse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor,
    visible: VisiblePairs, scale: float, deterministic: bool | None, way: str = "", needed: str = "qkv",
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Compute dQ, dK, dV (like q, k, v) from dO, the gradient of lse (or None), and the inputs and results of
    `launch_forward`. deterministic, way: see `backward_kernels`. needed: letters of the gradients to compute,
    of "qkv"; the others are None.
    """
    given, arch = (q, k, v), architecture(q.device)
    do, q, k, v, o = readable(arch is None, do, q, k, v, o)
    dlse = None if dlse is None else dlse.to(torch.float32).contiguous()
    case = case_of(arch, q, k, visible)
    kernels = backward_kernels(case, deterministic, way)
    if kernels == "fused" and _one_side_fits(case, visible, needed):
        kernels = "two-pass"
    _check_room(kernels, case)
    if kernels == "materialised":
        _check_matrices(q, k)
    with on_device(q.device, arch):
        inputs, results = (
            Inputs(case, q, k, v, visible, scale),
            Results(o, do, lse.contiguous(), dlse, needed),
        )
        gradients = BACKWARD[kernels](inputs, results)
    return tuple(
        None if got is None or name not in needed else got if x is one else in_form_of(x, got)
        for name, x, one, got in zip("qkv", given, (q, k, v), gradients, strict=True)
    )


def launch_decode(q: Tensor, k: Tensor, v: Tensor, scale: float, parts: int) -> tuple[Tensor, Tensor]:
    """Compute O (like q) and its row log-sum-exp for one query per sequence. `parts` of the keys, or 0."""
    arch = architecture(q.device)
    fit_q, fit_k, fit_v = readable(arch is None, q, k, v)
    case = case_of(arch, fit_q, fit_k, VisiblePairs.all())
    with on_device(q.device, arch):
        o, lse = decode_launches(case, fit_q, fit_k, fit_v, scale, parts)
    return o if fit_q is q else in_form_of(q, o), lse


# Choice of the kernels.


def case_of(arch: int | None, q: Tensor, k: Tensor, visible: VisiblePairs) -> Case:
    """Return the `Case` of a call with these tensors and visible pairs."""
    (B, H, n_q, d), kv_heads = q.shape, k.shape[1]
    low, high = visible.band
    mask = "full" if low is None and high is None else "causal" if low is None and high == 0 else "window"
    mask = "blocks" if visible.lists else mask if visible.packed is None else "packed"
    matrices, most = matrix_bytes_of(q, k), matrix_bytes()
    if most != MATRIX_BYTES:  # a limit of `using` replaces that of the rows
        matrices = 0 if matrices <= most else MATRIX_BYTES + 1
    return Case(arch, q.element_size(), d, mask, H // max(1, kv_heads), B * H * n_q, B * kv_heads, matrices)


def backward_kernels(case: Case, deterministic: bool | None = None, way: str = "") -> str:
    """Return the kernels of a backward pass: "fused", "two-pass", "slices" or "materialised".

    deterministic: True for a fixed order of sums, False for one kernel, None for the recorded choice. way:
    "complete rows", "slices", "materialised", or "" for the recorded choice.
    """
    name = PASSES[1] if deterministic is None else PASSES[2] if deterministic else PASSES[3]
    chosen: str = choice(name, case).value
    if way == "complete rows" and chosen not in OF_PASS:
        return "two-pass" if deterministic else "fused"
    return chosen if way in ("", "complete rows") else way


def _one_side_fits(case: Case, visible: VisiblePairs, needed: str) -> bool:
    """Return True if one two-pass kernel computes all needed gradients: dQ with 3 products per tile of
    scores, or dK and dV with 4, in place of 5 products in the fused kernel.
    """
    if ("q" in needed) == (needed != "q") or choice(PASSES[2], case).value != "two-pass":
        return False
    if needed != "q" or not visible.lists:
        return True
    # The lists of a block mask are made before it is known what needs gradients. For dQ those of the forward
    # pass serve, unless their tiles are larger than those with which the kernel of dQ was compiled.
    most = tile("queries", case)
    return all(size <= limit for size, limit in zip(sizes_of(visible.lists, 0), most[:2], strict=True))


def _check_room(kernels: str, case: Case) -> None:
    """Raise ValueError if a recorded tile of complete rows needs more shared memory than the chip has."""
    if case.arch is None or backend.target_arch is not None:
        return
    rows = [choice(kernel, case) for kernel in OF_PASS.get(kernels, ())]
    needed, room = (
        max((row.evidence.get("shared_bytes", 0) for row in rows), default=0),
        CHIPS[case.arch].shared_bytes,
    )
    if needed > room:
        raise ValueError(
            f"q has head size {case.d} in {8 * case.itemsize} bits, so tiles of complete rows need "
            f"{needed // 1024} KB of shared memory, but sm_{case.arch} has {room // 1024} KB. "
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


# Tensors that kernels can read.


def on_device(device: torch.device, arch: int | None) -> AbstractContextManager[Any]:
    """Make `device` PyTorch's current CUDA device within this block, so that kernels start on it."""
    return torch.cuda.device(device) if device.type == "cuda" and arch is not None else nullcontext()


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
