"""Schedules that distribute attention over ranks, collected in `REGISTRY` by pass.

Each file contains one family, the forward pass together with its backward pass. Every function decorated with
`@schedule` is registered automatically: `iocourse.distributed.schedules.ring` is the schedule, not the file.
"""

from ...discovery import files_of
from .registry import PASSES, REGISTRY, RankSchedule, collect, get

collect(files_of(__name__, __path__, beside=("registry",)))
globals().update(REGISTRY)

__all__ = ["PASSES", "REGISTRY", "RankSchedule", "get"]
__all__ += sorted(REGISTRY)
