"""A progress bar for long work in a terminal; silent in tests, in files and where tqdm is not installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def steps(items: Sequence[T], doing: str) -> Iterator[T]:
    """The items one by one, with a bar on standard error while it is a terminal; `doing` names the work."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return iter(items)
    return iter(tqdm(items, desc=doing, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False))
