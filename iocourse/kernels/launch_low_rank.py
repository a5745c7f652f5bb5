"""Launches of the low-rank kernels, forward and backward: torch tensors in, torch tensors out.

Nothing here waits for the GPU, so that a CUDA graph can hold it (after one call that put the table of
features on the device).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..monomials import Plan, coordinates, plan
from . import mode
from .arguments import check_tensors
from .decode import cut
from .layout import as_asked, given
from .low_rank_kernels import (
    keys_gradient_kernel,
    keys_state_kernel,
    queries_gradient_kernel,
    queries_output_kernel,
    queries_state_kernel,
    sum_kernel,
)
from .start import start
from .tiles import padded

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


def forward(
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
    weights, variance, shift = _checked(q, k, v, p, weights, variance, shift)
    asked, (q, k, v) = q, _readable(q, k, v)
    B, H, n_q, d = q.shape
    n_k, dv, r = k.shape[2], v.shape[3], p.rank
    tile = tiles or tiles_of(r, dv, mode.architecture(q.device))
    o = torch.empty((B, H, n_q, dv), dtype=q.dtype, device=q.device)
    den = torch.empty((B, H, n_q), dtype=torch.float32, device=q.device)
    with mode.on(q.device):
        table = _table(p.d, p.g, q.device)
        parts, cut_k = _parts(k, r, dv, tile.state, spans)
        start(
            keys_state_kernel, _panels(r, tile.state) * cut_k[0] * B * H,
            *given(k, v), shift, table, parts, *cut_k, _panels(r, tile.state), H, n_k, r, d, dv,
            **_constants(p, dv, "BN", tile.state), HAS_SHIFT=shift is not None,
        )  # fmt: skip
        T = _summed(parts, weights, (B, H, r, dv + 1))
        cut_q = _spans(q, tile.output, 1, spans)
        start(
            queries_output_kernel, cut_q[0] * B * H,
            *given(q), T, table, variance, *given(o), den, scale, *cut_q, H, n_q, r, d, dv,
            **_constants(p, dv, "BM", tile.output),
            SINGLE=r <= tile.output.features, HAS_VARIANCE=variance is not None,
        )  # fmt: skip
    return o.to(asked.dtype), den, T


def backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, den: Tensor, T: Tensor, do: Tensor,
    p: Plan, weights: Tensor, variance: Tensor | None = None, *,
    scale: float = 1.0, shift: Tensor | None = None, tiles: LowRankTiles | None = None,
    spans: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV of <O, dO>, like q, k and v, in three launches, four where the state is cut into blocks.

    σ² and shift are taken for constants. o, den and T are what `forward` gave for the same arguments; do has
    the shape and type of o. Sums are taken in a fixed order, so that the same call gives the same bits.

    Raises:
        TypeError, ValueError: an argument is not as described; the message names it.
    """
    weights, variance, shift = _checked(q, k, v, p, weights, variance, shift)
    asked = q, k, v
    q, k, v, o, do = _readable(q, k, v, o, do)
    B, H, n_q, d = q.shape
    n_k, dv, r = k.shape[2], v.shape[3], p.rank
    tile = tiles or tiles_of(r, dv, mode.architecture(q.device))
    single = r <= tile.gradient.features
    adaptive = variance is not None
    dq, dk, dv_ = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    den = den.contiguous()
    with mode.on(q.device):
        table = _table(p.d, p.g, q.device)
        state_tile = tile.gradient if single else tile.state
        parts, cut_q = _parts(q, r, dv, state_tile, spans)
        if not single:
            panels = _panels(r, tile.state)
            start(
                queries_state_kernel, panels * cut_q[0] * B * H,
                *given(q, o, do), den, variance, table, parts, scale, *cut_q, panels, H, n_q, r, d, dv,
                **_constants(p, dv, "BM", tile.state), HAS_VARIANCE=adaptive,
            )  # fmt: skip
            cut_q = _spans(q, tile.gradient, 1, spans)
        start(
            queries_gradient_kernel, cut_q[0] * B * H,
            *given(q, o, do), den, variance, T.contiguous(), table, parts, *given(dq),
            scale, *cut_q, H, n_q, r, d, dv,
            **_constants(p, dv, "BM", tile.gradient), DIM=padded(d), SINGLE=single, HAS_VARIANCE=adaptive,
        )  # fmt: skip
        U = _summed(parts, weights, (B, H, r, dv + 1))
        cut_k = _spans(k, tile.gradient, 1, spans)
        start(
            keys_gradient_kernel, cut_k[0] * B * H,
            *given(k, v), shift, U, table, *given(dk, dv_), *cut_k, H, n_k, r, d, dv,
            **_constants(p, dv, "BN", tile.gradient), DIM=padded(d), SINGLE=single,
            HAS_SHIFT=shift is not None,
        )  # fmt: skip
    dq, dk, dv_ = (as_asked(x, got) for x, got in zip(asked, (dq, dk, dv_), strict=True))
    return dq, dk, dv_


def _checked(
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


def _readable(*tensors: Tensor) -> list[Tensor]:
    """With unit last stride, and no bfloat16 where Triton interprets, which computes it wrongly."""
    wide = [x.to(torch.float32) if mode.interpreting() and x.dtype == torch.bfloat16 else x for x in tensors]
    return [x if x.stride(-1) == 1 else x.contiguous() for x in wide]


@cache
def _table(d: int, g: int, device: torch.device) -> Tensor:
    return torch.from_numpy(coordinates(plan(d, g))).to(device)


def _panels(rank: int, tile: RowsByFeatures) -> int:
    return -(-rank // tile.features)


def _spans(
    x: Tensor, tile: RowsByFeatures, others: int, asked: int | None, shortest: int = 1
) -> tuple[int, int]:
    """How many spans the rows of x are cut into, and rows in each: whole tiles.

    As many as fill the chip beside B · H · `others` programs, one to a multiprocessor, but not such that a
    span has fewer rows than `shortest`.
    """
    B, H, n, _ = x.shape
    enough = asked or max(1, _programs(x.device) // max(1, B * H * others))
    return cut(n, tile.rows, max(1, min(enough, n // shortest)))


def _programs(device: torch.device) -> int:
    if mode.architecture(device) is None or not torch.cuda.is_available():
        return INTERPRETED_PROGRAMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _parts(
    x: Tensor, rank: int, dv: int, tile: RowsByFeatures, asked: int | None
) -> tuple[Tensor, tuple[int, int]]:  # fmt: skip
    """Room for one state a span, and the spans, of rank / 2 rows at least, lest parts outweigh tokens."""
    spans = _spans(x, tile, _panels(rank, tile), asked, max(1, rank // 2))
    shape = (*x.shape[:2], spans[0], rank, dv + 1)
    return torch.empty(shape, dtype=torch.float32, device=x.device), spans


def _summed(parts: Tensor, weights: Tensor, shape: tuple[int, ...]) -> Tensor:
    state = torch.empty(shape, dtype=torch.float32, device=parts.device)
    B, H, r, width = shape
    blocks = -(-r // 4)
    start(
        sum_kernel, blocks * B * H,
        parts, weights, state, parts.shape[2], blocks, r, width,
        SPANS=32, BR=4, WIDE=padded(width), num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return state


def _constants(p: Plan, dv: int, rows: str, tile: RowsByFeatures) -> dict[str, Any]:
    return {
        rows: tile.rows, "BR": tile.features, "G": p.g, "DX": padded(p.d + 1), "DV": padded(dv + 1),
        "num_warps": tile.warps, "num_stages": 1, "enable_fp_fusion": True,
    }  # fmt: skip
