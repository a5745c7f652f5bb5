"""A tile as text, for whoever writes a schedule and wants to see what is in it."""

from __future__ import annotations

import numpy as np

from .tiles import Tile

DIGITS = 4
MOST_ENTRIES = 100  # above, NumPy leaves out the middle of each axis


def in_words(tile: Tile) -> str:
    """Name, shape and rounded values, as in "A[0:1] (1, 4): [[0. 2. 4. 6.]]"; a dry tile has no values."""
    head = f"{tile.name} {tile.shape}"
    if tile._data is None:
        return f"{head}: no values on a dry machine"
    values = np.array2string(tile._data, precision=DIGITS, threshold=MOST_ENTRIES, max_line_width=100)
    return f"{head}:{chr(10) if chr(10) in values else ' '}{values}"
