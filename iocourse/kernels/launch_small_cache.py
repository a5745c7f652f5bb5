"""Launches of the kernels that cut d into slices and materialise nothing (`small_cache`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .launch_whole import constants_of, row_products
from .layout import given
from .mode import architecture
from .seen import Seen
from .small_cache import sliced_forward_kernel, sliced_keys_kernel, sliced_queries_kernel
from .start import start
from .tiles import SlicedTile, sliced_tiles_for


def forward(q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float) -> tuple[Tensor, Tensor]:
    """O (like q) and LSE (B, H, Nq) float32; a float32 copy of O is scratch."""
    B, H, n_q, d = q.shape
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tile = sliced_tiles_for(architecture(q.device), q.element_size()).sliced_forward
    tiles = -(-n_q // tile.BM)
    start(
        sliced_forward_kernel, tiles * B * H,
        *given(q, k, v, _scratch(q), o), lse,
        scale, *seen.band.numbers, tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **sliced_constants(q, tile, seen),
    )  # fmt: skip
    return o, lse


def backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    seen: Seen, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ, dK and dV: D first, then a pass over rows and one over columns, each sum in a fixed order."""
    B, H, n_q, d = q.shape
    kv_heads, n_k = k.shape[1], k.shape[2]
    dq = torch.empty_like(q)
    # With no head of queries the kernel has nothing to add, and writes nothing.
    dk, dv = (torch.empty_like(x) if H else torch.zeros_like(x) for x in (k, v))
    products = row_products(q, o, do, lse, dlse, seen)
    table = sliced_tiles_for(architecture(q.device), q.element_size())
    sizes = (H // max(1, kv_heads), n_q, n_k, d)
    tiles = -(-n_q // table.sliced_queries.BM)
    start(
        sliced_queries_kernel, tiles * B * H,
        *given(q, k, v, do), lse, products, *given(_scratch(q), dq),
        scale, *seen.band.numbers, tiles, H, *sizes, **sliced_constants(q, table.sliced_queries, seen),
    )  # fmt: skip
    tiles = -(-n_k // table.sliced_keys.BN)
    dk_sum, dv_sum = _scratch(k), _scratch(k)
    start(
        sliced_keys_kernel, tiles * B * kv_heads,
        *given(q, k, v, do), lse, products, dk_sum, *given(dv_sum), *given(dk, dv),
        scale, *seen.band.numbers, tiles, kv_heads, *sizes, **sliced_constants(q, table.sliced_keys, seen),
    )  # fmt: skip
    return dq, dk, dv


def _scratch(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=torch.float32, device=x.device)


def sliced_constants(q: Tensor, tile: SlicedTile, seen: Seen) -> dict[str, Any]:
    """What the kernels that cut d are compiled for."""
    return constants_of(q, tile) | {"BD": tile.BD} | seen.band.flags
