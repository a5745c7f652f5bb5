"""What a submission may use, and the rest of the machine that it may not."""

from __future__ import annotations

import os
from dataclasses import dataclass

_ADDRESSES = 4  # libraries reserve far more addresses than they use


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Attributes:
        seconds: for one exercise, on the clock.
        memory: bytes of data, for the whole process.
        file: bytes of one file; all files together may have five times as many.
        printed: characters that one cell or one trial may print.
        answer: bytes that one answer may have.
    """

    seconds: float = 60.0
    memory: int = 4 << 30
    file: int = 50 << 20
    printed: int = 1 << 20
    answer: int = 64 << 20


def obey(limits: Limits) -> None:
    """Bind this process to `limits`, for good. Where the system knows none, time alone is limited."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    for kind, most in (
        ("RLIMIT_DATA", limits.memory),
        ("RLIMIT_AS", _ADDRESSES * limits.memory),  # also for pages that do not count as data
        ("RLIMIT_FSIZE", limits.file),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NOFILE", 256),
    ):
        if hasattr(resource, kind):
            _lower(getattr(resource, kind), most)


def _lower(kind: int, most: int) -> None:
    import resource

    _, hard = resource.getrlimit(kind)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
