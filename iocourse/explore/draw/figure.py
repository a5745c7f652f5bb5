"""The list of figures: every function that draws a picture for a reader registers here."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from .picture import Picture

P = ParamSpec("P")

FIGURES: dict[str, Callable[..., Picture]] = {}


def figure(draw: Callable[P, Picture]) -> Callable[P, Picture]:
    """Register a figure under its name; the tests take every figure they hold to account from `FIGURES`."""
    FIGURES[draw.__name__] = draw
    return draw
