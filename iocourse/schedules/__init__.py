"""How to move less: the schedules, each a file of its own, collected in `REGISTRY`."""

# The registry keeps the order of these imports, which is the order of the course.
# isort: off
from .matmul import matmul, matmul_tiles
from .naive import naive
from .flash1 import flash1
from .flash2 import flash2
from .flash_optimal import flash_optimal
from .square_tiling import square_tiling
from .small_cache import small_cache
from .small_cache_fused import small_cache_fused
from .standard_backward import standard_backward
from .flash1_backward import flash1_backward
from .flash2_backward import flash2_backward
from .fused_backward import fused_backward
from .split_backward import split_backward
from .small_cache_backward import small_cache_backward
from .gradient import gradient
from .gradient_small_cache import gradient_small_cache
from .gradient_reassociated import gradient_reassociated
from .block_sparse import block_sparse
from .window import window
from .low_rank import low_rank
from .passes import PASSES, Pass, forward_leaves
from .registry import REGISTRY, Schedule, Stand, get, of_pass
from .best import Choice, best
from .comparison import Comparison, against_bound, mask_of
from .crossing import Crossing, crossing
# isort: on

__all__ = [
    "PASSES",
    "REGISTRY",
    "Choice",
    "Comparison",
    "Crossing",
    "Pass",
    "Schedule",
    "Stand",
    "against_bound",
    "best",
    "block_sparse",
    "crossing",
    "flash1",
    "flash1_backward",
    "flash2",
    "flash2_backward",
    "flash_optimal",
    "forward_leaves",
    "fused_backward",
    "get",
    "gradient",
    "gradient_reassociated",
    "gradient_small_cache",
    "low_rank",
    "mask_of",
    "matmul",
    "matmul_tiles",
    "naive",
    "of_pass",
    "small_cache",
    "small_cache_backward",
    "small_cache_fused",
    "split_backward",
    "square_tiling",
    "standard_backward",
    "window",
]
