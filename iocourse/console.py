"""What is said in a terminal: tables of text, and how far long work has come (not in tests, not in files)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

PATIENCE = 1.0  # seconds before a word is said
PACE = 0.5  # seconds between two

T = TypeVar("T")


def table(rows: Sequence[Sequence[object]], *, left: int = 1, gap: int = 2, least: Sequence[int] = ()) -> str:
    """Rows of cells in columns as wide as their widest cell, `left` of them to the left, others to the right.

    Args:
        rows: cells, which are shown by `str`; every row has as many as the first.
        left: how many columns stand to the left.
        gap: spaces between columns.
        least: widths that the first columns have at least.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = [max(pair) for pair in zip(widths, [*least, *[0] * len(widths)], strict=False)]
    sides = [str.ljust if at < left else str.rjust for at in range(len(widths))]
    lines = (
        [side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)] for row in cells
    )
    return "\n".join((" " * gap).join(line).rstrip() for line in lines)


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
