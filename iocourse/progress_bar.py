"""How far long work has come, said in a terminal: silent in tests and in files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

PATIENCE = 1.0  # seconds before a word is said
PACE = 0.5  # seconds between two

T = TypeVar("T")


def steps(items: Sequence[T], doing: str) -> Iterator[T]:
    """The items one by one, with a bar on standard error while it is a terminal; `doing` names the work."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return iter(items)
    return iter(tqdm(items, desc=doing, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False))


@contextmanager
def meter(doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to tell of each piece of work done, out of `total`: a line on standard error says the share.

    Nothing is said of what is over within a second, or where standard error is no terminal.
    """
    done, due, said = 0, monotonic() + PATIENCE, ""

    def tell(piece: int) -> None:
        nonlocal done, due, said
        done += piece
        now = monotonic()
        if now >= due:
            due, said = now + PACE, f"{doing}: {100 * done // total} %"
            print(f"\r{said}", end="", file=sys.stderr, flush=True)

    try:
        yield tell if sys.stderr.isatty() else _silent
    finally:
        if said:
            print(f"\r{' ' * len(said)}\r", end="", file=sys.stderr, flush=True)


def _silent(piece: int) -> None:
    pass
