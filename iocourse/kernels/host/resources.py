"""Resource use of the shipped kernels: record the launches that `attention` makes on an architecture,
and compile them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ...gpu import Resources, chip_of, resources
from ...gpu.chips import REGISTERS_A_THREAD
from ...sizes import positive_int
from .checks import LARGEST_DECODE, LARGEST_HEAD, LARGEST_WHOLE, TYPES, band_of
from .choices import SLICED, Case, SlicedTileConfig, TileConfig, padded, using
from .launches import Launch, record_launches
from .masks import TiledMask, tiled_mask
from .passes import launch_backward, launch_decode, launch_forward
from .ranges import Packed, VisiblePairs

WHOLE = ("forward", "row_products", "fused", "queries", "keys")
DECODE = ("decode_parts", "decode_merge")
KERNELS = (*WHOLE, *SLICED, *DECODE)
PAIRS = ("band", "block_mask", "packed")
N = 1024


def launches(
    arch: int, d: int, dtype: torch.dtype, *, causal: bool = True, group: int = 1,
    window: tuple[int | None, int | None] | None = None, pairs: str = "band",
    **tiles: TileConfig | SlicedTileConfig | tuple[int, ...],
) -> dict[str, Launch]:  # fmt: skip
    """Return the launches that `attention` and `decode` make for N = 1024, forward and backward, by kernel.

    Args:
        arch: an architecture of the choices, such as 90.
        d: head size.
        dtype: float16, bfloat16 or float32.
        causal: causal attention, whose kernels have a masked loop, or full attention.
        group: query heads per key head.
        window: (left, right) keys.
        pairs: "band"; "block_mask", causal or dense in blocks of 128; or "packed", two sequences.
        tiles: tiles that replace the chosen ones, by kernel.
    """
    q, o, do = (torch.empty(1, 2 * group, N, d, dtype=dtype) for _ in range(3))
    k, v = (torch.empty(1, 2, N, d, dtype=dtype) for _ in range(2))
    lse = torch.empty(1, 2 * group, N)
    band = band_of(causal, window, N, N)
    with using(**tiles), record_launches(arch) as written:
        if d <= LARGEST_WHOLE:
            for fixed in (False, True):
                visible = _visible(pairs, band, causal, arch, q, k, fixed)
                launch_forward(q, k, v, visible, 1.0, "complete rows")
                launch_backward(do, None, q, k, v, o, lse, visible, 1.0, fixed, "complete rows")
        if pairs == "band":
            for way in ("slices", "materialised"):
                launch_forward(q, k, v, VisiblePairs(band), 1.0, way)
                launch_backward(do, None, q, k, v, o, lse, VisiblePairs(band), 1.0, True, way)
        if pairs == "band" and d <= LARGEST_DECODE:
            launch_decode(q[:, :, :1], k, v, 1.0, 0)
    made = {one.name: one for one in reversed(written)}  # of several launches of a name, the first one
    return {name: made[name] for name in KERNELS if name in made}


def _visible(
    pairs: str, band: Any, causal: bool, arch: int, q: torch.Tensor, k: torch.Tensor, fixed: bool
) -> VisiblePairs:
    if pairs == "block_mask":
        mask = _blocks(causal, q.shape, k.shape)
        case = Case(arch, q.element_size(), q.shape[3], "blocks", q.shape[1] // k.shape[1])
        lists = mask.lists(case, q.device, fixed)
        return VisiblePairs(band_of(False, None, N, N), lists)
    if pairs == "packed":
        cu = torch.tensor([0, N // 2, N], dtype=torch.int32)
        return VisiblePairs(band, packed=Packed(cu, cu, N // 2, N // 2, False))
    return VisiblePairs(band)


@cache
def _blocks(causal: bool, of_q: torch.Size, of_k: torch.Size) -> TiledMask:
    """Return a mask in blocks of 128, kept because cutting it into tiles takes longer than a launch."""
    blocks = torch.ones(N // 128, N // 128, dtype=torch.bool)
    q, k = torch.empty(of_q), torch.empty(of_k)
    return tiled_mask(blocks.tril() if causal else blocks, q, k, block=128)


def check_tile(tile: TileConfig | SlicedTileConfig, arch: int, width: int, itemsize: int) -> None:
    """Raise ValueError for a tile so large for the chip that its compilation could take hours. A tile that is
    too large by less is compiled, and reported not to fit.

    width: columns of a tile's rows.
    """
    chip, per_thread = chip_of(arch), tile.BM * tile.BN // (32 * tile.warps)
    if per_thread > 2 * (REGISTERS_A_THREAD + 1):
        raise ValueError(
            f"tile {tuple(tile)} is too large: {tile.BM} × {tile.BN} scores take {per_thread} registers per "
            f"thread, but sm_{arch} has {REGISTERS_A_THREAD}. Use smaller sizes, or more than {tile.warps} "
            "warps"
        )
    rows = max(tile.BM, tile.BN)
    needed = rows * width * itemsize
    if needed > chip.shared_bytes:
        raise ValueError(
            f"tile {tuple(tile)} is too large: {rows} rows of {width} numbers take {needed // 1024} KB of "
            f"shared memory, but sm_{arch} has {chip.shared_bytes // 1024} KB. Use smaller sizes"
        )


def resources_of(
    kernel: str, arch: int, *, d: int = 128, dtype: torch.dtype = torch.bfloat16, causal: bool = True,
    group: int = 1, window: tuple[int | None, int | None] | None = None, pairs: str = "band",
    tile: TileConfig | SlicedTileConfig | tuple[int, ...] | None = None,
) -> Resources:  # fmt: skip
    """Compile a shipped kernel for an architecture and return the resources it uses. Takes a few seconds and
    needs no GPU.

    Args:
        kernel: forward, row_products, fused, queries or keys (tiles of complete rows); sliced_forward,
            sliced_queries, sliced_keys, scores, averages, weights, query_gradients or key_gradients (d in
            slices); decode_parts or decode_merge.
        arch: 75, 80, 89, 90 or 100.
        d: head size, at most 512 for tiles of complete rows and 256 for decode.
        dtype: float16, bfloat16 or float32.
        causal: causal attention, whose kernels have a masked loop, or full attention.
        group: query heads per key head.
        window: (left, right) keys.
        pairs: "band", "block_mask" or "packed"; the last two only for tiles of complete rows.
        tile: (BM, BN, warps, stages), or (BM, BN, BD, warps, stages) with slices. Default: the chosen one.

    Returns:
        Resources: registers, spills, shared memory and limits of the compiled kernel.

    Raises:
        ValueError: unknown kernel, architecture, head size or tile, or a tile far too large for the chip.
        CompilationFailed: the compiler fails, or does not finish in five minutes.
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {', '.join(KERNELS)}; got {kernel!r}")
    if pairs not in PAIRS:
        raise ValueError(f"pairs must be one of {', '.join(PAIRS)}; got {pairs!r}")
    chip_of(arch)
    if isinstance(d, bool) or not isinstance(d, int) or not 1 <= d <= LARGEST_HEAD:
        raise ValueError(f"d must be an integer from 1 to {LARGEST_HEAD}, got {d!r}")
    if dtype not in TYPES:
        raise ValueError(f"dtype must be one of {', '.join(TYPES.values())}; got {dtype}")
    positive_int("group", group)
    chosen: dict[str, Any] = {} if tile is None else {kernel: tile}
    known = launches(arch, d, dtype, causal=causal, group=group, window=window, pairs=pairs, **chosen)
    if kernel not in known:
        raise ValueError(
            f"{kernel} is not launched with d = {d} and pairs = {pairs!r}. Use one of: {', '.join(known)}"
        )
    if tile is not None:
        whole = SlicedTileConfig(*tile) if kernel in SLICED else TileConfig(*tile)
        check_tile(whole, arch, getattr(whole, "BD", padded(d)), dtype.itemsize)
    made = known[kernel]
    return resources(made.kernel, arch, *made.arguments, **made.constants)
