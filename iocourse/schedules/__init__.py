"""Schedules of attention on the two-level machine, one file each, collected in `REGISTRY`.

Each file registers the schedule of its name; no list of files is needed. `iocourse.schedules.flash2` is the
schedule, not the file. The registry has dense schedules by pass, then schedules that need a mask, a width or
a degree, and within these the order of `registry.ORDER`. `python -m iocourse.schedules flash2` runs one on a
small input and prints its traffic, its errors and the lower bound.
"""

from ..discovery import files_of
from .comparison import (
    BreakEven,
    Choice,
    Comparison,
    Gap,
    against_bound,
    best,
    best_given_weights,
    break_even_length,
    optimality_gap_table,
    optimality_gaps,
)
from .matmul import matmul, matmul_tiles
from .pass_specs import PASSES, Pass, saved_for_backward
from .registry import REGISTRY, Approximates, Schedule, get, mask_of, of_pass, register_files

NO_SCHEDULES = ("comparison", "matmul", "pass_specs", "registry", "report")  # the other files here

register_files(files_of(__name__, __path__, beside=NO_SCHEDULES))
globals().update(REGISTRY)


def __getattr__(name: str) -> Schedule:
    """Raise an error that lists the schedules; type checkers read here that other names are schedules."""
    raise AttributeError(f"iocourse.schedules has no {name}; its schedules are {', '.join(REGISTRY)}")


__all__ = [
    "PASSES",
    "REGISTRY",
    "Approximates",
    "BreakEven",
    "Choice",
    "Comparison",
    "Gap",
    "Pass",
    "Schedule",
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
