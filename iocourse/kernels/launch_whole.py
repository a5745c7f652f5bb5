"""Launches of the kernels whose tiles are whole rows of Q, K and V: what `attention` makes where they fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import block_lists
from .backward_keys import backward_keys_kernel
from .backward_queries import backward_queries_kernel
from .forward import forward_kernel
from .layout import descriptors_fit, given, streamed
from .mode import architecture
from .row_products import row_products_kernel
from .seen import Seen
from .start import start
from .tiles import SlicedTile, Tile, Tiles, padded, row_products_tile, tiles_for


def tiles_of(q: Tensor, *, listed: bool = False) -> Tiles:
    """The tiles of the table for these queries, or those chosen by hand; `listed`: for a block mask."""
    return tiles_for(architecture(q.device), q.shape[-1], q.element_size(), listed=listed)


def _tile(q: Tensor, seen: Seen, kernel: str, side: int) -> Tile:
    """The tile of one kernel, which for a block mask is the one that this side of its lists was cut for."""
    tile: Tile = getattr(tiles_of(q, listed=bool(seen.lists)), kernel)
    return seen.tile(tile, side, columns=kernel in ("fused", "keys"))


def forward(q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float) -> tuple[Tensor, Tensor]:
    H, n_q, d = q.shape[1:]
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tile = _tile(q, seen, "forward", 0)
    B, tiles = seen.queries(q, tile.BM)
    fast = seen.packed is None and descriptors_fit(k, v)
    start(
        forward_kernel, tiles * B * H,
        *given(q), *given(*streamed(fast, tile.BN, k, v)), *given(o), lse,
        *seen.starts, scale, *seen.band.numbers, block_lists.given(seen.lists, 0),
        tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **_constants(q, tile, fast), **seen.flags, RAGGED=seen.ragged(k.shape[2], tile.BN),
    )  # fmt: skip
    return o, lse


def split(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    seen: Seen, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dQ first, which leaves D behind, then dK and dV: the scores twice, and sums in a fixed order."""
    H, n_q, d = q.shape[1:]
    dq, products = torch.empty_like(q), torch.empty_like(lse)
    tile = _tile(q, seen, "queries", 1)
    B, tiles = seen.queries(q, tile.BM)
    fast = seen.packed is None and descriptors_fit(k, v)
    start(
        backward_queries_kernel, tiles * B * H,
        *given(q), *given(*streamed(fast, tile.BN, k, v)), *given(o, do), lse, dlse, products, *given(dq),
        *seen.starts, scale, *seen.band.numbers, block_lists.given(seen.lists, 1),
        tiles, H, H // max(1, k.shape[1]), n_q, k.shape[2], d,
        **_constants(q, tile, fast), **seen.flags,
        RAGGED=seen.ragged(k.shape[2], tile.BN), HAS_DLSE=dlse is not None,
    )  # fmt: skip
    return dq, *_keys(q, k, v, do, lse, products, None, seen, scale, _tile(q, seen, "keys", 2), 2)


def fused(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None,
    seen: Seen, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """D first, then everything else in one kernel, dQ by reduction into float32 zeros."""
    products = row_products(q, o, do, lse, dlse, seen)
    total = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = _keys(q, k, v, do, lse, products, total, seen, scale, _tile(q, seen, "fused", 1), 1)
    return torch.mul(total, scale, out=torch.empty_like(q)), dk, dv


def row_products(
    q: Tensor, o: Tensor, do: Tensor, lse: Tensor, dlse: Tensor | None, seen: Seen
) -> Tensor:  # fmt: skip
    """D = rowsum(dO ∘ O) - dLSE, float32 (B, H, Nq)."""
    products = torch.empty_like(lse)
    d = q.shape[3]
    tile = row_products_tile(d)
    B, tiles = seen.queries(q, tile.BM)
    start(
        row_products_kernel, tiles * B * q.shape[1],
        *given(o, do), dlse, lse, products, seen.starts[0], tiles, q.shape[1], q.shape[2], d,
        BM=tile.BM, DIM=padded(d), PADDED=padded(d) != d, HAS_DLSE=dlse is not None,
        PACKED=seen.packed is not None, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return products


def _keys(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, lse: Tensor, products: Tensor, dq: Tensor | None,
    seen: Seen, scale: float, tile: Tile, side: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    H, n_q, d = q.shape[1:]
    kv_heads, n_k = k.shape[1], k.shape[2]
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    B, tiles = seen.keys(k, tile.BN)
    fast = seen.packed is None and descriptors_fit(q, do, dq)
    rows, gradient_rows, sums = streamed(fast, tile.BM, q, do, dq)
    start(
        backward_keys_kernel, tiles * B * kv_heads,
        *given(rows, k, v, gradient_rows), lse, products, *given(sums, dk, dv),
        *seen.starts, scale, *seen.band.numbers, block_lists.given(seen.lists, side),
        tiles, kv_heads, H // max(1, kv_heads), n_q, n_k, d,
        **_constants(q, tile, fast), **seen.flags,
        RAGGED=seen.ragged(n_k, tile.BN), RAGGED_ROWS=seen.ragged(n_q, tile.BM), ADD_DQ=dq is not None,
    )  # fmt: skip
    return dk, dv


def _constants(q: Tensor, tile: Tile, fast: bool) -> dict[str, Any]:
    d = q.shape[-1]
    return constants_of(q, tile) | {"DIM": padded(d), "PADDED": padded(d) != d, "DESCRIPTORS": fast}


def constants_of(q: Tensor, tile: Tile | SlicedTile) -> dict[str, Any]:
    """What every kernel is compiled for: rows of its tiles, how products are taken, options of the launch."""
    return {
        "BM": tile.BM,
        "BN": tile.BN,
        "PRECISION": "ieee" if q.dtype == torch.float32 else None,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
        "enable_fp_fusion": True,
    }
