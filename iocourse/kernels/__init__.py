"""The course's schedules as Triton kernels, one idea a file, and `attention`, which a user calls.

Read them in this order: `pieces` (tiles and masks), `forward`, `row_products`, `backward_queries`,
`backward_keys`. Whether kernels are interpreted or compiled is decided here, once (see `mode`).
"""

from __future__ import annotations

from ..needs_triton import require_triton

require_triton()

from .mode import INTERPRETED  # noqa: E402  # before anything that imports triton

# isort: split
from .face import attention, attention_with_lse  # noqa: E402
from .plans import resources_of  # noqa: E402
from .tiles import Tile, Tiles, using  # noqa: E402

__all__ = ["INTERPRETED", "Tile", "Tiles", "attention", "attention_with_lse", "resources_of", "using"]
