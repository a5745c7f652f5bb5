"""Eight broken kernels, one faulty line each, for a reader who finds the line from the report of `check`.

Three of them are shown as A, B and C. Every report is made by running the kernel, always on the same inputs.
"""

from __future__ import annotations

from functools import cache

from ..checking import judge, report
from ..exercise import find

EXERCISE, SEED = "13C", 13
SUSPECTS = (
    "its tile of queries is its own number, not that which order names",
    "the loop over the cut tiles ends where it begins",
    "a pattern is read column by column",
    "a score that is hidden becomes -1e9, not minus infinity",
    "the outputs so far are not rescaled",
    "the row sums so far are not rescaled",
    "the maximum of a row starts at 0",
    "a slot is loaded for whole tiles too",
)
_FAULTY = {"A": 5, "B": 7, "C": 3}


def broken_kernels() -> None:
    """Print what may be at fault, one line per broken kernel, with its number."""
    for number, said in enumerate(SUSPECTS, 1):
        print(f"{number}  {said}")


def faulty_line(kernel: str) -> int:
    """The number of the fault in kernel "A", "B" or "C". Raises ValueError for any other name."""
    if kernel not in _FAULTY:
        raise ValueError(f"kernel must be A, B or C, got {kernel!r}")
    return _FAULTY[kernel]


def show(which: str | int) -> None:
    """Print the report of `check` on kernel "A", "B" or "C", or on the kernel with fault number 1 to 8.

    Raises ValueError for any other name or number, TritonMissing where a kernel cannot be tried.
    """
    print(report_for(which if isinstance(which, int) else faulty_line(which)))


def report_for(suspect: int) -> str:
    """The report of `check` on the kernel with this fault alone. Raises as `show` does."""
    if isinstance(suspect, bool) or not 1 <= suspect <= len(SUSPECTS):
        raise ValueError(f"suspect must be a number from 1 to {len(SUSPECTS)}, got {suspect!r}")
    return _tried(suspect)


@cache
def _tried(suspect: int) -> str:
    from .wrong_kernels import launcher

    exercise = find(EXERCISE)
    return report(exercise, judge(exercise, launcher(suspect), SEED), SEED)
