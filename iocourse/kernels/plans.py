"""The launches that `attention` makes for one architecture, head size and type: what resource reports are
about.
"""

from __future__ import annotations

import torch

from ..gpu import Resources, chip_of, resources
from . import launch
from .band import Band
from .launch import Launch
from .tiles import Tile, using

KERNELS = ("forward", "row_products", "fused", "queries", "keys")


def launches(
    arch: int, d: int, dtype: torch.dtype, *, causal: bool = True, **tiles: Tile | tuple[int, ...]
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


def resources_of(
    kernel: str, arch: int, *, d: int = 128, dtype: torch.dtype = torch.bfloat16, causal: bool = True,
    tile: Tile | tuple[int, ...] | None = None,
) -> Resources:  # fmt: skip
    """What a shipped kernel takes of a chip, compiled here and now: a few seconds, and no GPU.

    Args:
        kernel: forward, row_products, fused, queries or keys.
        arch: 75, 80, 89, 90 or 100.
        d: head size.
        dtype: float16, bfloat16 or float32.
        causal: with the diagonal's masked loop, or the plain one alone.
        tile: (BM, BN, warps, stages) instead of the table's.

    Raises:
        ValueError: no such kernel, architecture or tile.
        CompilationFailed: the compiler refuses.
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}; allowed: {', '.join(KERNELS)}")
    chip_of(arch)
    chosen = {} if tile is None else {kernel: tile}
    made = launches(arch, d, dtype, causal=causal, **chosen)[kernel]
    return resources(made.kernel, arch, *made.arguments, **made.constants)
