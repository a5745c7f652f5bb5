"""What is said in a terminal: tables of text, and a bar for long work."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def table(rows: Sequence[Sequence[object]], *, left: int = 1, gap: int = 2, least: Sequence[int] = ()) -> str:
    """Rows of cells in columns as wide as their widest cell, `left` of them to the left, the rest to the right.

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
    """The items one by one, with a bar on standard error while it is a terminal; `doing` names the work.

    Silent in tests, in files and where tqdm is not installed.
    """
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return iter(items)
    return iter(tqdm(items, desc=doing, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False))
