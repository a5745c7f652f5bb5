"""The lower bounds that a picture can draw: those of a pass with all their constants, for the machine."""

from __future__ import annotations

import inspect
from functools import cache, lru_cache

from ... import bounds
from ...bounds.best import COMPULSORY, SEGMENT
from ...guard import library_answer
from ...machine import FREE_REGISTERS

LONGEST = 20  # letters of a title beside the end of a line


@cache
def bounds_of(pass_: str) -> tuple[str, ...]:
    """The ids of the bounds of a pass that are a number of words for (N, d, M) or (N, d)."""
    return tuple(
        bound.id
        for bound in bounds.BOUNDS.values()
        if pass_ in bound.passes and bound.in_words and _parameters(bound)[:2] == ["N", "d"]
    )


@cache
def usual(pass_: str) -> tuple[str, ...]:
    """The ids of the bounds whose largest is `bounds.lower_bound`."""
    return (COMPULSORY[pass_].id, *(bound.id for bound in SEGMENT[pass_]))


def _parameters(bound: bounds.Bound) -> list[str]:
    return list(inspect.signature(bound.evaluate).parameters)


def label(name: str) -> str:
    """A bound's title, cut after the first word behind a comma; its id where that is still long."""
    if name.startswith("compulsory"):
        return "compulsory"
    title, _, more = bounds.BOUNDS[name].title.partition(", ")
    short = f"{title}, {more.split()[0]}" if more else title
    return short if len(short) <= LONGEST else name.replace("_", " ")


@library_answer
def at(name: str, N: int, d: int, M: int) -> int:
    """A bound in words on a machine of M words, its free registers included; 0 where it says nothing."""
    return _at(name, N, d, M)


@lru_cache(maxsize=50_000)
def _at(name: str, N: int, d: int, M: int) -> int:
    bound = bounds.BOUNDS[name]
    try:
        return bound(N, d, M + FREE_REGISTERS) if "M" in _parameters(bound) else bound(N, d)
    except bounds.OutsideRegime:
        return 0


def best_bound(pass_: str, N: int, d: int, M: int) -> tuple[int, str]:
    """`bounds.lower_bound` in words, and the title of the bound that gives it."""
    name = max(usual(pass_), key=lambda name: at(name, N, d, M))
    return at(name, N, d, M), bounds.BOUNDS[name].title


CACHES = (_at,)  # what a measurement of redrawing must forget
