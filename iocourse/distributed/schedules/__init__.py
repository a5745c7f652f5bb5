"""How ranks share a pass: the schedules, each a file of its own, collected in `REGISTRY`.

A file here is a schedule of the same name, found without being listed: `iocourse.distributed.schedules.ring`
is the schedule, not the file. The order is that of the lessons.
"""

from ...discovery import files_of
from .registry import PASSES, REGISTRY, RankSchedule, get, take_in

take_in(files_of(__name__, __path__, beside=("registry",)))
globals().update(REGISTRY)

__all__ = ["PASSES", "REGISTRY", "RankSchedule", "get"]
__all__ += sorted(REGISTRY)
