"""Many chips: the network as slow memory. What ranks receive from each other is counted as words.

A schedule is one function of a rank, `schedule(me, Q, K, V)`; `run` gives each rank its rows, and returns
what the ranks made together, with a ledger for each.
"""

from . import balance, bounds, costs, times
from .communicator import Rank, joined
from .engines.errors import ChangedWhileSent, Deadlock, Mismatch, RankError, RankFailed, TimedOut
from .layouts import LAYOUTS, blocks_of, row_count, rows_of
from .ledger import PARTIAL_SUMS, RankDifference, RankLedger
from .pieces import attend, attend_backward, merge
from .running import ENGINES, RankRun, run
from .schedules import REGISTRY, RankSchedule, get
from .shapes import ShapeArray, ShapesOnly

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
    "balance",
    "blocks_of",
    "bounds",
    "costs",
    "get",
    "joined",
    "merge",
    "row_count",
    "rows_of",
    "run",
    "times",
]
