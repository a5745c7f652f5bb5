"""The list of figures: every function that draws a picture for a reader registers here. For those that draw a
recorded run: where its numbers come from, and what stands there before there is one. And checks of arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from typing import Any, ParamSpec

from ...data.records import NONE_YET, record_source
from .palette import QUIET
from .picture import NORMAL, Picture, Text, titled

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


# ---------------------------------------------------------------------- pictures of a recorded run
Record = Mapping[str, Any]


def source_of(record: Record, also: str = "") -> str:
    """Device, versions and date of a record, what else is to be said, and whether it was a quick run."""
    if "date" not in record:
        return "measured just now"
    return record_source(dict(record)) + also + (", a quick run" if record.get("quick") else "")


def none_yet(title: str, subject: str) -> Picture:
    """The picture that says that nobody recorded `python -m tools.bench SUBJECT` yet."""
    said = f"{NONE_YET}: `python -m tools.bench {subject}` makes one"
    alt = f"{title}: nothing is drawn, because there is {said}."
    return titled(title, (480.0, 80.0), alt, f"0 rows: {said}", [Text(18, 58, said, NORMAL, colour=QUIET)])


# ---------------------------------------------------------------------- arguments that several figures take
def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raises ValueError where an argument is none of its few values."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be {' or '.join(map(repr, choices))}")


def check_count(name: str, values: Sized, most: int) -> None:
    """Raises ValueError where an argument is empty or has more entries than a figure has room for."""
    if not 1 <= len(values) <= most:
        raise ValueError(f"{name} has {len(values)} entries; allowed are 1 to {most}")
