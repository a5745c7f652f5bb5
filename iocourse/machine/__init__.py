"""Emulator of the two-level memory model: load, compute on and store tiles while every word moved is counted.

Arrays in slow memory can only be loaded and stored. Fast memory holds M words, and arithmetic works on its
tiles only. In addition there are four free scalar registers, used by the row-by-row updates
(`Tile.add_matmul`, `RowStats.update`, `Features`).
"""

from ..sizes import positive_int
from .block_ranges import Block
from .errors import (
    FastMemoryFull,
    MachineError,
    MoveLimitExceeded,
    ShapeMismatch,
    SlowMemoryArithmetic,
    UninitialisedRead,
    UntrackedArray,
    UseAfterFree,
)
from .machine import FREE_REGISTERS, Machine, TraceFull
from .polynomial_features import Features
from .row_stats import RowStats, probabilities
from .run import MOST_MOVES, Run, run
from .slow_memory import SlowArray
from .tiles import Tile

__all__ = [
    "FREE_REGISTERS",
    "MOST_MOVES",
    "Block",
    "FastMemoryFull",
    "Features",
    "Machine",
    "MachineError",
    "MoveLimitExceeded",
    "RowStats",
    "Run",
    "ShapeMismatch",
    "SlowArray",
    "SlowMemoryArithmetic",
    "Tile",
    "TraceFull",
    "UninitialisedRead",
    "UntrackedArray",
    "UseAfterFree",
    "positive_int",
    "probabilities",
    "run",
]
