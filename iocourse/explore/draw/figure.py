"""The list of figures: every function that draws a picture for a reader registers here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec

from .picture import Picture

P = ParamSpec("P")
Draws = Callable[P, Picture]

FIGURES: dict[str, Callable[..., Picture]] = {}
EXAMPLES: dict[str, list[Callable[[], Picture]]] = {}


def figure(draw: Draws[P]) -> Draws[P]:
    """Register a figure under its name; the tests take every figure they hold to account from `FIGURES`."""
    FIGURES[draw.__name__] = draw
    return draw


def example(*arguments: Any, **named: Any) -> Callable[[Draws[P]], Draws[P]]:
    """Name a call that the tests draw and hold to account: `@example(3, title="Three")` above `@figure`."""

    def keep(draw: Draws[P]) -> Draws[P]:
        EXAMPLES.setdefault(draw.__name__, []).append(partial(draw, *arguments, **named))
        return draw

    return keep
