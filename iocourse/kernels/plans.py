"""The launches that `attention` makes on one architecture, which is what resource reports are about."""

from __future__ import annotations

from typing import Any

import torch

from ..gpu import Resources, chip_of, resources
from ..sizes import positive_int
from . import launch
from .arguments import LARGEST_HEAD, TYPES
from .band import band_of
from .launch import Launch
from .tiles import Tile, using

KERNELS = ("forward", "row_products", "fused", "queries", "keys")


def launches(
    arch: int, d: int, dtype: torch.dtype, *, causal: bool = True, group: int = 1,
    window: tuple[int | None, int | None] | None = None, **tiles: Tile | tuple[int, ...],
) -> dict[str, Launch]:  # fmt: skip
    """The launch of each kernel as `attention` makes it for N = 1024: forward, and backward both ways.

    Args:
        arch: a row of the tile table, such as 90.
        d: head size.
        dtype: float16, bfloat16 or float32.
        causal: with the diagonal's masked loop, or the plain one alone.
        group: heads of queries for each head of keys.
        window: (left, right) keys.
        tiles: tiles other than the table's, by kernel.
    """
    q, o, do = (torch.empty(1, 2 * group, 1024, d, dtype=dtype) for _ in range(3))
    k, v = (torch.empty(1, 2, 1024, d, dtype=dtype) for _ in range(2))
    lse = torch.empty(1, 2 * group, 1024)
    band = band_of(causal, window, 1024, 1024)
    with using(**tiles), launch.written_down(arch) as written:
        launch.forward(q, k, v, band, 1.0)
        for deterministic in (False, True):
            launch.backward(do, None, q, k, v, o, lse, band, 1.0, deterministic)
    return dict(zip(KERNELS, written, strict=True))


def resources_of(
    kernel: str, arch: int, *, d: int = 128, dtype: torch.dtype = torch.bfloat16, causal: bool = True,
    group: int = 1, window: tuple[int | None, int | None] | None = None,
    tile: Tile | tuple[int, ...] | None = None,
) -> Resources:  # fmt: skip
    """What a shipped kernel takes of a chip, compiled here and now: a few seconds, and no GPU.

    Args:
        kernel: forward, row_products, fused, queries or keys.
        arch: 75, 80, 89, 90 or 100.
        d: head size.
        dtype: float16, bfloat16 or float32.
        causal: with the diagonal's masked loop, or the plain one alone.
        group: heads of queries for each head of keys.
        window: (left, right) keys.
        tile: (BM, BN, warps, stages) instead of the table's.

    Raises:
        ValueError: no such kernel, architecture or tile.
        CompilationFailed: the compiler refuses.
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}; allowed: {', '.join(KERNELS)}")
    chip_of(arch)
    if isinstance(d, bool) or not isinstance(d, int) or not 1 <= d <= LARGEST_HEAD:
        raise ValueError(f"d is {d!r}; allowed: 1 to {LARGEST_HEAD}")
    if dtype not in TYPES:
        raise ValueError(f"dtype is {dtype}; allowed: {', '.join(TYPES.values())}")
    positive_int("group", group)
    chosen: dict[str, Any] = {} if tile is None else {kernel: tile}
    made = launches(arch, d, dtype, causal=causal, group=group, window=window, **chosen)[kernel]
    return resources(made.kernel, arch, *made.arguments, **made.constants)
