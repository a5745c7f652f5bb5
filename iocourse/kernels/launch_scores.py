"""Launches of the kernels that cut d into slices and write the scores out (`score_kernels`)."""

from __future__ import annotations

import torch
from torch import Tensor

from .launch_small_cache import sliced_constants
from .launch_whole import row_products
from .layout import given
from .mode import architecture
from .score_kernels import (
    averages_kernel,
    key_gradients_kernel,
    query_gradients_kernel,
    scores_kernel,
    weights_kernel,
)
from .seen import Seen
from .start import start
from .tiles import sliced_tiles_for


def forward(q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float) -> tuple[Tensor, Tensor]:
    """O (like q) and LSE (B, H, Nq) float32; the scores, B · H · Nq · Nk float32 words, are scratch."""
    B, H, n_q, d = q.shape
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    scores = torch.empty((B * H, n_q, k.shape[2]), dtype=torch.float32, device=q.device)
    tile = sliced_tiles_for(architecture(q.device), q.element_size()).scores
    tiles = -(-n_q // tile.BM)
    start(
        scores_kernel, tiles * B * H,
        *given(q, k), scores, lse,
        scale, *seen.band.numbers, tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **sliced_constants(q, tile, seen),
    )  # fmt: skip
    o = torch.empty_like(q)
    tile = sliced_tiles_for(architecture(q.device), q.element_size()).averages
    tiles, slices = -(-n_q // tile.BM), -(-d // tile.BD)
    start(
        averages_kernel, slices * tiles * B * H,
        scores, lse, *given(v, o), *seen.band.numbers,
        tiles, slices, H, H // max(1, k.shape[1]), n_q, k.shape[2], d, **sliced_constants(q, tile, seen),
    )  # fmt: skip
    return o, lse


def backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    seen: Seen, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK and dV from P and dS written out, B · H · Nq · Nk words each in q's type."""
    B, H, n_q, d = q.shape
    kv_heads, n_k = k.shape[1], k.shape[2]
    group = H // max(1, kv_heads)
    products = row_products(q, o, do, lse, dlse, seen)
    p, ds = (torch.empty((B * H, n_q, n_k), dtype=q.dtype, device=q.device) for _ in range(2))
    table = sliced_tiles_for(architecture(q.device), q.element_size())
    tiles = -(-n_q // table.weights.BM)
    start(
        weights_kernel, tiles * B * H,
        *given(q, k, v, do), lse, products, p, ds,
        scale, *seen.band.numbers, tiles, H, group, n_q, n_k, d, **sliced_constants(q, table.weights, seen),
    )  # fmt: skip
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    tile = table.query_gradients
    tiles, slices = -(-n_q // tile.BM), -(-d // tile.BD)
    start(
        query_gradients_kernel, slices * tiles * B * H,
        ds, *given(k, dq), scale, *seen.band.numbers,
        tiles, slices, H, group, n_q, n_k, d, **sliced_constants(q, tile, seen),
    )  # fmt: skip
    tile = table.key_gradients
    tiles, slices = -(-n_k // tile.BN), -(-d // tile.BD)
    start(
        key_gradients_kernel, slices * tiles * B * kv_heads,
        p, ds, *given(q, do, dk, dv), scale, *seen.band.numbers,
        tiles, slices, kv_heads, group, n_q, n_k, d, **sliced_constants(q, tile, seen),
    )  # fmt: skip
    return dq, dk, dv
