"""Three wrong kernels and eight suspects: `check` reports, and its reader says which line is at fault.

Every report is made by trying the kernel, on the same inputs each time. Nothing is recorded.
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
_CULPRITS = {"A": 5, "B": 7, "C": 3}


def lineup() -> None:
    """Print the suspects, with their numbers."""
    for number, said in enumerate(SUSPECTS, 1):
        print(f"{number}  {said}")


def culprit(kernel: str) -> int:
    """The number of the suspect in kernel "A", "B" or "C". Raises ValueError for any other name."""
    if kernel not in _CULPRITS:
        raise ValueError(f"kernel must be A, B or C, got {kernel!r}")
    return _CULPRITS[kernel]


def show(which: str | int) -> None:
    """Print what `check` says of kernel "A", "B" or "C", or of the kernel with that suspect, 1 to 8.

    Raises ValueError for any other name or number, NeedsTriton where a kernel cannot be tried.
    """
    print(said_of(which if isinstance(which, int) else culprit(which)))


def said_of(suspect: int) -> str:
    """The report on the kernel whose only fault is this suspect. Raises as `show` does."""
    if isinstance(suspect, bool) or not 1 <= suspect <= len(SUSPECTS):
        raise ValueError(f"suspect must be a number from 1 to {len(SUSPECTS)}, got {suspect!r}")
    return _tried(suspect)


@cache
def _tried(suspect: int) -> str:
    from .wrong_kernels import launcher

    exercise = find(EXERCISE)
    return report(exercise, judge(exercise, launcher(suspect), SEED), SEED)
