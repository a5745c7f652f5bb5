"""How to move less: the schedules, each a file of its own, collected in `REGISTRY`."""

from .matmul import matmul, matmul_tiles

from .naive import naive  # isort: skip
from .flash1 import flash1  # isort: skip  (the registry keeps the order of the course)
from .flash2 import flash2
from .flash_optimal import flash_optimal
from .registry import REGISTRY, Schedule, get

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
