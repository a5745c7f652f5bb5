"""How to move less: the schedules, each a file of its own, collected in `REGISTRY`."""

# The registry keeps the order of these imports, which is the order of the course.
# isort: off
from .matmul import matmul, matmul_tiles
from .naive import naive
from .flash1 import flash1
from .flash2 import flash2
from .flash_optimal import flash_optimal
from .registry import REGISTRY, Schedule, get
# isort: on

__all__ = [
    "REGISTRY",
    "Schedule",
    "flash1",
    "flash2",
    "flash_optimal",
    "get",
    "matmul",
    "matmul_tiles",
    "naive",
]
