"""The same passes as Triton kernels, for every head at once: compiled on a GPU, interpreted elsewhere.

Nothing here waits for the GPU, so that a CUDA graph can hold it (after one call that put the table of
features on the device).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...kernels.host.arguments import check_tensors
from ...kernels.host.launches import cut, processors, rows, scratch, start
from ...kernels.host.operators import as_asked, on_device
from ...kernels.host.tiles import architecture, padded
from ...kernels.lowrank_kernels import (
    Block,
    Cut,
    keys_gradient_kernel,
    keys_state_kernel,
    queries_gradient_kernel,
    queries_output_kernel,
    queries_state_kernel,
    sum_kernel,
)
from ...monomials import Plan, coordinates, plan
from ..polynomials import CLIP
from .passes import BatchForward, BatchSetting

LARGEST_HEAD = 64
INTERPRETED_PROGRAMS = 4  # where no GPU says how many multiprocessors there are to fill
HELD = 8192  # numbers of a state that a program of 8 warps keeps in registers without a spill
HELD_BACKWARD = 4096  # where it also makes gradients
HELD_BACKWARD_T4 = 2048  # whose 64 KB of shared memory a larger one would not fit into


class RowsByFeatures(NamedTuple):
    """Rows of a tile and features of a block, powers of two of at least 16, and warps of a program.

    The compiler wants 32 · warps numbers at least in a tile of rows of Q or K.
    """

    rows: int
    features: int
    warps: int = 8


class LowRankTiles(NamedTuple):
    """For sums over tokens, for O, and for gradients; all of a state in one block where it fits."""

    state: RowsByFeatures
    output: RowsByFeatures
    gradient: RowsByFeatures


def tiles_of(rank: int, dv: int, arch: int | None = None) -> LowRankTiles:
    """The tiles for a state (rank, dv + 1) on an architecture such as 90; None: the interpreter."""
    wide, every = padded(dv + 1), padded(rank)
    both = HELD_BACKWARD_T4 if arch == 75 else HELD_BACKWARD
    held, held_backward = (max(16, most // wide) for most in (HELD, both))
    rows = 16 if every >= held else 32
    return LowRankTiles(
        RowsByFeatures(rows, min(every, held)),
        RowsByFeatures(rows, every) if every <= held else RowsByFeatures(64, 64),
        RowsByFeatures(min(32, HELD_BACKWARD // every), every)
        if every <= held_backward
        else RowsByFeatures(32, 32 if wide < 64 else 16),
    )


def low_rank_forward(
    q: Tensor, k: Tensor, v: Tensor, p: Plan, weights: Tensor, variance: Tensor | None = None, *,
    scale: float = 1.0, shift: Tensor | None = None, tiles: LowRankTiles | None = None,
    spans: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention with Σₐ wₐ φₐ(scale · q) φₐ(k - shift) for exp(scale · q·k), in three launches.

    Args:
        q: (B, H, Nq, d), float16, bfloat16 or float32, d up to 64.
        k: (B, H, N, d), of the same type.
        v: (B, H, N, dv), of the same type, dv up to 64.
        p: the monomials, of d coordinates.
        weights: (rank,), of each monomial.
        variance: (B, H, Nq), σ² of each query's logits for the row-adaptive factors, clipped by the caller;
            None for no such factors.
        scale: factor of q.
        shift: (B, H, d), taken off every key, or None.
        tiles: other tiles than `tiles_of` has.
        spans: into how many stretches tokens are cut at most; None: enough to fill the chip.

    Returns:
        O (B, H, Nq, dv) in q's type; the denominators (B, H, Nq) and the state T (B, H, rank, dv + 1) in
        float32.
        A denominator of 0, as of a query without keys, has O = 0; whether the others are positive is the
        caller's business.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    weights, variance, shift = checked(q, k, v, p, weights, variance, shift)
    asked, arch = q, architecture(q.device)
    q, k, v = readable(arch, q, k, v)
    B, H, n_q, d = q.shape
    n_k, dv, r = k.shape[2], v.shape[3], p.rank
    tile = tiles or tiles_of(r, dv, arch)
    o, den = scratch(B, H, n_q, dv, like=q, dtype=q.dtype), scratch(B, H, n_q, like=q)
    with on_device(q.device, arch):
        table = table_of_features(p.d, p.g, q.device)
        parts, cut_k = _parts(arch, k, r, dv, tile.state, spans)
        panels = panels_of(r, tile.state)
        start(
            keys_state_kernel, panels * cut_k[0] * B * H,
            *rows(k, v), shift, table, parts, *cut_k, n_k, Cut(H, r, d, dv, panels),
            **constants_of(p, dv, tile.state),
        )  # fmt: skip
        T = _summed(parts, weights, (B, H, r, dv + 1))
        cut_q = spans_of(arch, q, tile.output, 1, spans)
        start(
            queries_output_kernel, cut_q[0] * B * H,
            *rows(q), T, table, variance, *rows(o), den, scale, *cut_q, n_q, Cut(H, r, d, dv, 1),
            **constants_of(p, dv, tile.output),
        )  # fmt: skip
    return o.to(asked.dtype), den, T


def low_rank_backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, den: Tensor, T: Tensor, do: Tensor,
    p: Plan, weights: Tensor, variance: Tensor | None = None, *,
    scale: float = 1.0, shift: Tensor | None = None, tiles: LowRankTiles | None = None,
    spans: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV of <O, dO>, like q, k and v, in three launches, four where the state is cut into blocks.

    σ² and shift are taken for constants. o, den and T are what `low_rank_forward` gave for the same
    arguments; do has the shape and type of o. Sums are taken in a fixed order, so that the same call gives
    the same bits.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    weights, variance, shift = checked(q, k, v, p, weights, variance, shift)
    asked, arch = (q, k, v), architecture(q.device)
    q, k, v, o, do = readable(arch, q, k, v, o, do)
    B, H, n_q, d = q.shape
    n_k, dv, r = k.shape[2], v.shape[3], p.rank
    tile = tiles or tiles_of(r, dv, arch)
    single = r <= tile.gradient.features
    dq, dk, dv_ = (scratch(*x.shape, like=x, dtype=x.dtype) for x in (q, k, v))
    den, sizes = den.contiguous(), Cut(H, r, d, dv, 1)
    with on_device(q.device, arch):
        table = table_of_features(p.d, p.g, q.device)
        parts, cut_q = _parts(arch, q, r, dv, tile.gradient if single else tile.state, spans)
        if not single:
            panels = panels_of(r, tile.state)
            start(
                queries_state_kernel, panels * cut_q[0] * B * H,
                *rows(q, o, do), den, variance, table, parts, scale, *cut_q, n_q,
                sizes._replace(panels=panels), **constants_of(p, dv, tile.state),
            )  # fmt: skip
            cut_q = spans_of(arch, q, tile.gradient, 1, spans)
        start(
            queries_gradient_kernel, cut_q[0] * B * H,
            *rows(q, o, do), den, variance, T.contiguous(), table, parts, *rows(dq),
            scale, *cut_q, n_q, sizes, **constants_of(p, dv, tile.gradient),
        )  # fmt: skip
        U = _summed(parts, weights, (B, H, r, dv + 1))
        cut_k = spans_of(arch, k, tile.gradient, 1, spans)
        start(
            keys_gradient_kernel, cut_k[0] * B * H,
            *rows(k, v), shift, U, table, *rows(dk, dv_), *cut_k, n_k, sizes,
            **constants_of(p, dv, tile.gradient),
        )  # fmt: skip
    dq, dk, dv_ = (as_asked(x, got) for x, got in zip(asked, (dq, dk, dv_), strict=True))
    return dq, dk, dv_


def checked(
    q: Any, k: Any, v: Any, p: Plan, weights: Any, variance: Any, shift: Any
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The float32 arguments as the kernels take them, or the error that says what is wrong."""
    check_tensors(q, k, k, LARGEST_HEAD)
    B, H, n_q, d = q.shape
    if k.shape[1] != H:
        raise ValueError(f"k has {k.shape[1]} heads, q {H}; allowed: as many as q, low rank knows no groups")
    if not isinstance(v, Tensor):
        raise TypeError(f"v is a {type(v).__name__}; allowed: a torch tensor (B, H, N, dv)")
    if v.shape[:-1] != k.shape[:-1] or not 1 <= v.shape[-1] <= LARGEST_HEAD:
        raise ValueError(
            f"v has shape {tuple(v.shape)}, k {tuple(k.shape)}; "
            f"allowed: k's, with 1 to {LARGEST_HEAD} columns"
        )
    if (v.dtype, v.device) != (q.dtype, q.device):
        raise TypeError(f"v is {v.dtype} on {v.device}, q {q.dtype} on {q.device}; allowed: the same")
    if p.d != d:
        raise ValueError(f"p is a plan for {p.d} coordinates, q has {d}; allowed: as many")
    shapes = {"weights": (p.rank,), "variance": (B, H, n_q), "shift": (B, H, d)}
    found = {"weights": weights, "variance": variance, "shift": shift}
    for name, x in found.items():
        if x is None and name != "weights":
            continue
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; allowed: a torch tensor {shapes[name]}")
        if tuple(x.shape) != shapes[name] or x.device != q.device:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)} on {x.device}; allowed: {shapes[name]} on {q.device}"
            )
        found[name] = x.detach().to(torch.float32).contiguous()
    return found["weights"], found["variance"], found["shift"]


def readable(arch: int | None, *tensors: Tensor) -> list[Tensor]:
    """With unit last stride, and no bfloat16 where Triton interprets, which computes it wrongly."""
    wide = [x.to(torch.float32) if arch is None and x.dtype == torch.bfloat16 else x for x in tensors]
    return [x if x.stride(-1) == 1 else x.contiguous() for x in wide]


@cache
def table_of_features(d: int, g: int, device: torch.device) -> Tensor:
    return torch.from_numpy(coordinates(plan(d, g))).to(device)


def panels_of(rank: int, tile: RowsByFeatures) -> int:
    return -(-rank // tile.features)


def spans_of(
    arch: int | None, x: Tensor, tile: RowsByFeatures, others: int, asked: int | None, shortest: int = 1
) -> tuple[int, int]:
    """How many spans the rows of x are cut into, and rows in each: whole tiles.

    As many as fill the chip beside B · H · `others` programs, one to a multiprocessor, but not such that a
    span has fewer rows than `shortest`.
    """
    B, H, n, _ = x.shape
    programs = processors(arch, x.device) or INTERPRETED_PROGRAMS
    enough = asked or max(1, programs // max(1, B * H * others))
    return cut(n, tile.rows, max(1, min(enough, n // shortest)))


def _parts(
    arch: int | None, x: Tensor, rank: int, dv: int, tile: RowsByFeatures, asked: int | None
) -> tuple[Tensor, tuple[int, int]]:  # fmt: skip
    """Room for one state a span, and the spans, of rank / 2 rows at least, lest parts outweigh tokens."""
    spans = spans_of(arch, x, tile, panels_of(rank, tile), asked, max(1, rank // 2))
    return scratch(*x.shape[:2], spans[0], rank, dv + 1, like=x), spans


def _summed(parts: Tensor, weights: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    state = scratch(*shape, like=parts)
    B, H, r, width = shape
    blocks = -(-r // 4)
    start(
        sum_kernel, blocks * B * H,
        parts, weights, state, parts.shape[2], blocks, r, width,
        SPANS=32, BR=4, WIDE=padded(width), num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return state


def constants_of(p: Plan, dv: int, tile: RowsByFeatures) -> dict[str, Any]:
    """What a kernel is compiled for, and options of its launch."""
    widths = padded(p.d + 1), padded(dv + 1), padded(p.d)
    block = Block(tile.rows, tile.features, p.g, *widths, p.rank <= tile.features)
    return {"TILE": block, "num_warps": tile.warps, "num_stages": 1, "enable_fp_fusion": True}


def forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchSetting) -> BatchForward:
    """As `torch_passes.forward`: Q (H, n, d), K (H, n_k, d), V (H, n_k, d_v), also of 16-bit types."""
    found = low_rank_forward(
        Q[None], K[None], V[None], s.plan, s.weights[:, 0], variance_of(Q, s), scale=s.factor, shift=_shift(s)
    )
    return BatchForward(*(x[0] for x in found))


def backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchSetting
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV, as `tensors.passes.backward`."""
    forward_found = (f.O[None], f.den[None], f.T[None])
    dQ, dK, dV = low_rank_backward(
        Q[None], K[None], V[None], *forward_found, dO[None], s.plan, s.weights[:, 0], variance_of(Q, s),
        scale=s.factor, shift=_shift(s),
    )  # fmt: skip
    return dQ[0], dK[0], dV[0]


def variance_of(Q: Tensor, s: BatchSetting) -> Tensor | None:
    """(1, H, n): σ² of each query's logits, clipped; None where all rows share their coefficients."""
    if s.covariance is None:
        return None
    x = Q.float() * s.factor
    return ((x @ s.covariance.float()) * x).sum(-1).clamp(max=CLIP)[None]


def _shift(s: BatchSetting) -> Tensor | None:
    return None if s.shift is None else s.shift[None, :, 0]
