"""The launches that `attention` makes for one architecture, head size and type: what resource reports are
about.
"""

from __future__ import annotations

import torch

from . import launch
from .band import Band
from .launch import Launch
from .tiles import Tile, using

KERNELS = ("forward", "row_products", "fused", "queries", "keys")


def launches(
    arch: int, d: int, dtype: torch.dtype, *, causal: bool = True, **tiles: Tile
) -> dict[str, Launch]:
    """The launch of each kernel as `attention` makes it for N = 1024: forward, and backward both ways.

    Args:
        arch: a row of the tile table, such as 90.
        d: head size.
        dtype: float16, bfloat16 or float32.
        causal: with the diagonal's masked loop, or the plain one alone.
        tiles: tiles other than the table's, by kernel.
    """
    q, k, v, o, do = (torch.empty(1, 2, 1024, d, dtype=dtype) for _ in range(5))
    lse = torch.empty(1, 2, 1024)
    band = Band(None, 0 if causal else None)
    with using(**tiles), launch.written_down(arch) as written:
        launch.forward(q, k, v, band, 1.0)
        for deterministic in (False, True):
            launch.backward(do, None, q, k, v, o, lse, band, 1.0, deterministic)
    return dict(zip(KERNELS, written, strict=True))
