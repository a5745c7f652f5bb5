"""A check that takes long: print which case is running, and name the case in which it was interrupted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import solved

SECONDS = 20.0


class Interrupted(KeyboardInterrupt):
    """An interrupted check. A notebook's cell, and Run All, end with its message and without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Doing:
    """What is being done now, in words; a check says so as it goes on."""

    def __init__(self) -> None:
        self.now = "the inputs are drawn"

    def __call__(self, words: str) -> None:
        self.now = words


@contextmanager
def signs_of_life() -> Iterator[Doing]:
    """Within this block, "still running: …" after 20 s, then after 40, 80 and so on.

    Never where outputs are compared with others and must not depend on time: in a solved notebook, and where
    IOCOURSE_SEED is set.
    """
    doing, over = Doing(), threading.Event()
    teller = threading.Thread(target=_tell, args=(doing, over), daemon=True)
    if not (solved.runs_here() or os.environ.get("IOCOURSE_SEED")):
        with suppress(RuntimeError):  # there are no threads in a browser
            teller.start()
    try:
        yield doing
    finally:
        over.set()


def _tell(doing: Doing, over: threading.Event) -> None:
    waits = SECONDS
    while not over.wait(waits):
        print(f"still running: {doing.now}", flush=True)
        waits *= 2
