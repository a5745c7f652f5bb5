"""Triton kernels of the course's schedules, one idea per file, and `attention`, the function that calls them.

Read them in this order: `jit_helpers` (tiles and masks), `forward`, `backward_delta`, `backward_dq`,
`backward_dkdv`; then `split_kv_decode`, `sliced_head_dim` (d in slices) and `materialised_scores` (d in
slices, with the scores stored). `host` launches them, and decides once whether they are interpreted or
compiled (see `host.backend`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doctor.triton_missing import require_triton
from ..errors import renamed

require_triton()

from .host.backend import INTERPRETED  # noqa: E402  # before anything that imports triton

if INTERPRETED:
    from ..doctor.fast_interpreter import patch_interpreter

    patch_interpreter()

# isort: split
from .host.api import (  # noqa: E402
    attention,
    attention_varlen,
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
)
from .host.choices import SlicedTileConfig, TileConfig, choices_of, using  # noqa: E402
from .host.masks import TiledMask, tiled_mask  # noqa: E402
from .host.resources import resources_of  # noqa: E402

__all__ = [
    "INTERPRETED",
    "SlicedTileConfig",
    "TileConfig",
    "TiledMask",
    "attention",
    "attention_varlen",
    "attention_varlen_with_lse",
    "attention_with_lse",
    "choices_of",
    "decode",
    "resources_of",
    "tiled_mask",
    "using",
]

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = renamed(__name__, {"SlicedTile": "SlicedTileConfig", "Tile": "TileConfig"})
