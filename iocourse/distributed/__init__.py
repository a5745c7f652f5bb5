"""Attention across devices: count the words that each rank receives from and sends to the other ranks.

A schedule is one function, `schedule(me, Q, K, V)`, which every rank runs on its own rows. `run` distributes
the arrays, runs the schedule on all ranks, and returns the joined results and one ledger per rank.
"""

from . import bounds, costs, load_balance, time_model
from .layouts import LAYOUTS, blocks_of, row_count, rows_of
from .ledger import PARTIAL_SUMS, RankDifference, RankLedger
from .partial_attention import attend, attend_backward, merge
from .rank import ChangedWhileSent, Deadlock, Mismatch, Rank, RankError, RankFailed, TimedOut, joined
from .runner import ENGINES, RankRun, run
from .schedules import REGISTRY, RankSchedule, get
from .shape_arrays import ShapeArray, ShapesOnly

__all__ = [
    "ENGINES",
    "LAYOUTS",
    "PARTIAL_SUMS",
    "REGISTRY",
    "ChangedWhileSent",
    "Deadlock",
    "Mismatch",
    "Rank",
    "RankDifference",
    "RankError",
    "RankFailed",
    "RankLedger",
    "RankRun",
    "RankSchedule",
    "ShapeArray",
    "ShapesOnly",
    "TimedOut",
    "attend",
    "attend_backward",
    "blocks_of",
    "bounds",
    "costs",
    "get",
    "joined",
    "load_balance",
    "merge",
    "row_count",
    "rows_of",
    "run",
    "time_model",
]
