"""Room for the frames of calls in one piece: the same loop may else take twice as long, or five times.

CPython (from 3.11 on) keeps the frames of Python calls in pieces of 16 KB, and gives one back to the system
as soon as it is empty. A loop whose calls happen to cross the end of a piece asks the system for memory, and
gives it back, with every one of them. Whether they do hangs on how deep the loop stands, which nobody sees:
in a notebook deeper than in a script, and deeper yet in a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")
WORDS = 2**16 + 2**10  # of 8 bytes; a piece is the next power of two, so half of it is left


def in_one_piece(work: Callable[[], R]) -> R:
    """What `work()` returns, called where there is room for some 2,000 frames before a piece ends.

    This function says that its own frame is larger than any piece so far. It gets one of a megabyte and
    touches none of it; the frames above it take what is left.
    """
    return work()


in_one_piece.__code__ = in_one_piece.__code__.replace(co_stacksize=WORDS)
