"""The course's schedules as Triton kernels, one idea a file, and `attention`, which a user calls.

Read them in this order: `pieces` (tiles and masks), `forward`, `row_products`, `backward_queries`,
`backward_keys`; then `decode_kernels`, `small_cache` (d in slices), `score_kernels` (and the scores written
out) and `low_rank_kernels` (which `iocourse.lowrank` launches). Whether kernels are interpreted or compiled
is decided here, once (see `mode`).
"""

from __future__ import annotations

from ..needs_triton import require_triton

require_triton()

from .mode import INTERPRETED  # noqa: E402  # before anything that imports triton

# isort: split
from .decode import decode  # noqa: E402
from .face import attention, attention_with_lse  # noqa: E402
from .plans import resources_of  # noqa: E402
from .tiled_mask import TiledMask, tiled_mask  # noqa: E402
from .tiles import SlicedTile, SlicedTiles, Tile, Tiles, using  # noqa: E402
from .varlen import attention_varlen, attention_varlen_with_lse  # noqa: E402

__all__ = [
    "INTERPRETED",
    "SlicedTile",
    "SlicedTiles",
    "Tile",
    "TiledMask",
    "Tiles",
    "attention",
    "attention_varlen",
    "attention_varlen_with_lse",
    "attention_with_lse",
    "decode",
    "resources_of",
    "tiled_mask",
    "using",
]
