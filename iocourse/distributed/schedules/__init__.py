"""How ranks share a pass: the schedules, collected in `REGISTRY` in the order of the lessons.

A file here has a family of them, a pass and its backward together. Each function under `@schedule` is found
without being listed: `iocourse.distributed.schedules.ring` is the schedule, not the file.
"""

from ...discovery import files_of
from .registry import PASSES, REGISTRY, RankSchedule, collect, get

collect(files_of(__name__, __path__, beside=("registry",)))
globals().update(REGISTRY)

__all__ = ["PASSES", "REGISTRY", "RankSchedule", "get"]
__all__ += sorted(REGISTRY)
