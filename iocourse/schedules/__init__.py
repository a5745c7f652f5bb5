"""How to move less: the schedules, each a file of its own, collected in `REGISTRY`.

A file here is a schedule of the same name, found without being listed; `iocourse.schedules.flash2` is the
schedule, not the file. The order is that of the course: dense schedules by pass, then those that must be told
more (a mask, a width, a degree), and among these by the lesson that teaches them.
"""

from ..discovery import files_of
from .best import Choice, best
from .bound_ratio import Comparison, against_bound
from .matmul import matmul, matmul_tiles
from .optimality_gaps import Gap, best_given_weights, optimality_gap_table, optimality_gaps
from .pass_specs import PASSES, Pass, saved_for_backward
from .registry import REGISTRY, Schedule, Stand, get, mask_of, of_pass, register_files

NO_SCHEDULES = (
    "best",
    "bound_ratio",
    "break_even",
    "optimality_gaps",
    "matmul",
    "pass_specs",
    "registry",
)  # the other files here

register_files(files_of(__name__, __path__, beside=NO_SCHEDULES))
globals().update(REGISTRY)

from .break_even import BreakEven, break_even_length  # noqa: E402 - between two schedules, so after them

__all__ = [
    "PASSES",
    "REGISTRY",
    "BreakEven",
    "Choice",
    "Comparison",
    "Gap",
    "Pass",
    "Schedule",
    "Stand",
    "against_bound",
    "best",
    "best_given_weights",
    "break_even_length",
    "get",
    "mask_of",
    "matmul",
    "matmul_tiles",
    "of_pass",
    "optimality_gap_table",
    "optimality_gaps",
    "saved_for_backward",
]
__all__ += sorted(REGISTRY)
