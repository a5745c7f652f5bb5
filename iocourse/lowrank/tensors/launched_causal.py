"""The causal passes as Triton kernels, for every head at once; see `kernels.lowrank_causal`.

Exact within tiles of CAUSAL_TILE tokens, as the passes in NumPy and torch are: the same function, not only
the same limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...kernels.host.launches import rows, scratch, start
from ...kernels.host.operators import as_asked, on_device
from ...kernels.host.tiles import architecture, padded
from ...kernels.lowrank_causal import (
    before_kernel,
    causal_keys_kernel,
    causal_output_kernel,
    causal_queries_kernel,
)
from ...kernels.lowrank_kernels import Cut, keys_state_kernel, queries_state_kernel
from ...monomials import Plan
from ..passes import CAUSAL_TILE
from .launched import (
    LowRankTiles,
    RowsByFeatures,
    checked,
    constants_of,
    panels_of,
    readable,
    spans_of,
    table_of_features,
    tiles_of,
    variance_of,
)
from .passes import BatchForward, BatchSetting


def causal_tiles_of(p: Plan, dv: int, arch: int | None = None) -> LowRankTiles:
    """The tiles for monomials p and dv columns of V on an architecture such as 90; None: the interpreter.

    As large as compiles for sm_80 and sm_90 without a spill up to d = dv = 31: products of float32 hold whole
    rows of both sides in registers.
    """
    narrow, every = max(p.d, dv) < 32, padded(p.rank)
    rows, output, gradient = (32, 64, 32) if narrow else (16, 32, 16)
    return LowRankTiles(
        tiles_of(p.rank, dv, arch).state,
        RowsByFeatures(rows, min(every, output)),
        RowsByFeatures(rows, min(every, gradient)),
    )


class _Walk(NamedTuple):
    """What the launches of one pass share: their tiles, how tokens are cut, and what kernels are given."""

    plan: Plan
    tile: LowRankTiles
    weights: Tensor
    table: Tensor
    pairs: int  # of a batch and a head
    spans: int
    last: tuple[Any, ...]  # arguments of every kernel

    @property
    def programs(self) -> int:
        return self.pairs * self.spans


def causal_low_rank_forward(
    q: Tensor, k: Tensor, v: Tensor, p: Plan, weights: Tensor, variance: Tensor | None = None, *,
    scale: float = 1.0, tiles: LowRankTiles | None = None, spans: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Causal attention: exp of scale · q·k within a tile of CAUSAL_TILE tokens, Σₐ wₐ φₐ(scale · q) φₐ(k) for
    the keys of earlier tiles; three launches, or one where a span is all tokens.

    Args and errors as of `low_rank_forward`, with as many keys as queries, and nothing taken off the keys:
    their mean knows the future. tiles: with CAUSAL_TILE rows for O and for gradients.

    Returns:
        O (B, H, N, dv) in q's type, and the denominators (B, H, N) in float32.
    """
    weights, variance = _checked(q, k, v, p, weights, variance, tiles)
    asked, arch = q, architecture(q.device)
    q, k, v = readable(arch, q, k, v)
    o, den = scratch(*v.shape, like=q, dtype=q.dtype), scratch(*q.shape[:3], like=q)
    with on_device(q.device, arch):
        walk = _walk(arch, q, v, p, weights, tiles, spans)
        states = _states(keys_state_kernel, walk, (*rows(k, v), None), (), False)
        start(
            causal_output_kernel, walk.programs,
            *rows(q, k, v), states, weights, walk.table, variance, *rows(o), den, scale, *walk.last,
            TOKENS=CAUSAL_TILE, **_constants(p, v.shape[3], walk.tile.output),
        )  # fmt: skip
    return o.to(asked.dtype), den


def causal_low_rank_backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, den: Tensor, do: Tensor,
    p: Plan, weights: Tensor, variance: Tensor | None = None, *,
    scale: float = 1.0, tiles: LowRankTiles | None = None, spans: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK, dV of <O, dO>, like q, k and v, in six launches, or two where a span is all tokens.

    o and den are what `causal_low_rank_forward` gave for the same arguments; no state is kept between the
    two, since there is one for each span. Otherwise as `low_rank_backward`.
    """
    weights, variance = _checked(q, k, v, p, weights, variance, tiles)
    asked, arch = (q, k, v), architecture(q.device)
    q, k, v, o, do = readable(arch, q, k, v, o, do)
    dq, dk, dv = (scratch(*x.shape, like=x, dtype=x.dtype) for x in (q, k, v))
    den = den.contiguous()
    with on_device(q.device, arch):
        walk = _walk(arch, q, v, p, weights, tiles, spans)
        inputs, given = (*rows(q, k, v, o, do), den), (weights, walk.table, variance)
        constants = {"TOKENS": CAUSAL_TILE} | _constants(p, v.shape[3], walk.tile.gradient)
        states = _states(keys_state_kernel, walk, (*rows(k, v), None), (), False)
        start(
            causal_queries_kernel, walk.programs,
            *inputs, states, *given, *rows(dq), scale, *walk.last, **constants,
        )  # fmt: skip
        states = _states(queries_state_kernel, walk, (*rows(q, o, do), den, variance), (scale,), True)
        start(
            causal_keys_kernel, walk.programs,
            *inputs, states, *given, *rows(dk, dv), scale, *walk.last, **constants,
        )  # fmt: skip
    dq, dk, dv = (as_asked(x, got) for x, got in zip(asked, (dq, dk, dv), strict=True))
    return dq, dk, dv


def _checked(
    q: Any, k: Any, v: Any, p: Plan, weights: Any, variance: Any, tiles: LowRankTiles | None
) -> tuple[Tensor, Tensor | None]:
    """Weights and variance as the kernels take them, or the error that says what is wrong."""
    weights, variance, _ = checked(q, k, v, p, weights, variance, None)
    if q.shape[2] != k.shape[2]:
        raise ValueError(f"k has {k.shape[2]} rows and q {q.shape[2]}; allowed: the same, as it is causal")
    for tile in tiles[1:] if tiles else ():
        if CAUSAL_TILE % tile.rows:
            raise ValueError(f"tiles has one of {tile.rows} rows; allowed: parts of {CAUSAL_TILE}")
    return weights, variance


def _walk(
    arch: int | None, q: Tensor, v: Tensor, p: Plan, weights: Tensor, tiles: LowRankTiles | None,
    asked: int | None,
) -> _Walk:  # fmt: skip
    """Spans are whole tiles, of rank / 2 rows at least, lest their states outweigh tokens."""
    (B, H, n, d), dv = q.shape, v.shape[3]
    tile = tiles or causal_tiles_of(p, dv, arch)
    whole = tile.output._replace(rows=CAUSAL_TILE)
    spans, length = spans_of(arch, q, whole, 1, asked, max(1, p.rank // 2))
    sizes = Cut(H, p.rank, d, dv, panels_of(p.rank, tile.state))
    table = table_of_features(p.d, p.g, q.device)
    return _Walk(p, tile, weights, table, B * H, spans, (spans, length, n, sizes))


def _states(
    kernel: Any, walk: _Walk, arrays: tuple[Any, ...], numbers: tuple[float, ...], reversed_: bool
) -> Tensor:
    """(B · H, spans, rank, dv + 1): what a kernel sums of the tokens before each span, or after it."""
    sizes, like = walk.last[-1], walk.weights
    r, width = sizes.r, sizes.dv + 1
    shape = (walk.pairs, walk.spans, r, width)
    if walk.spans == 1:
        return torch.zeros(shape, device=like.device)
    parts, states = (scratch(*shape, like=like) for _ in range(2))
    start(
        kernel, sizes.panels * walk.programs,
        *arrays, walk.table, parts, *numbers, *walk.last, **_constants(walk.plan, sizes.dv, walk.tile.state),
    )  # fmt: skip
    blocks = -(-r // 4)
    start(
        before_kernel, blocks * walk.pairs,
        parts, walk.weights, states, walk.spans, blocks, r, width,
        REVERSED=reversed_, SPANS=32, BR=4, WIDE=padded(width), num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip
    return states


def _constants(p: Plan, dv: int, tile: RowsByFeatures) -> dict[str, Any]:
    """As `constants_of`; gradients are as wide as rows with their 1, and near and far on one scale."""
    made = constants_of(p, dv, tile)
    return made | {"TILE": made["TILE"]._replace(DIM=padded(p.d + 1), TRUE_SCALE=True)}


def causal_forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchSetting) -> BatchForward:
    """As `passes.causal_forward`, also of 16-bit types, with no state handed back."""
    O, den = causal_low_rank_forward(
        Q[None], K[None], V[None], s.plan, s.weights[:, 0], variance_of(Q, s), scale=s.factor
    )
    return BatchForward(O[0], den[0], den.new_empty(0))


def causal_backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchSetting
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV, as `tensors.passes.causal_backward`."""
    dQ, dK, dV = causal_low_rank_backward(
        Q[None], K[None], V[None], f.O[None], f.den[None], dO[None], s.plan, s.weights[:, 0],
        variance_of(Q, s), scale=s.factor,
    )  # fmt: skip
    return dQ[0], dK[0], dV[0]
