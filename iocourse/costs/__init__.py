"""What each schedule must cost: closed forms in words, as functions of the sizes and the tiles.

Each function returns a `Ledger` whose `peak` is the footprint, the exact number of words of fast
memory the schedule needs. The formulas are stated for the loop orders in `iocourse.schedules`; a
property test holds that machine and formula agree to the word.
"""

from .backward import (
    flash1_backward,
    flash2_backward,
    fused_backward,
    small_cache_backward,
    split_backward,
    standard_backward,
)
from .forward import (
    flash1,
    flash2,
    flash_optimal,
    matmul,
    naive,
    small_cache,
    small_cache_fused,
    square_tiling,
)
from .gradient import gradient, gradient_reassociated, gradient_small_cache
from .low_rank import low_rank
from .parts import best_pair, ceil_div, distinct_sizes
from .sparse import block_sparse, window

__all__ = [
    "best_pair",
    "block_sparse",
    "ceil_div",
    "distinct_sizes",
    "flash1",
    "flash1_backward",
    "flash2",
    "flash2_backward",
    "flash_optimal",
    "fused_backward",
    "gradient",
    "gradient_reassociated",
    "gradient_small_cache",
    "low_rank",
    "matmul",
    "naive",
    "small_cache",
    "small_cache_backward",
    "small_cache_fused",
    "split_backward",
    "square_tiling",
    "standard_backward",
    "window",
]
