"""Player of `two_memories_picture`: naive attention and FlashAttention side by side, word by word."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

from ..draw.picture import Picture
from ..draw.text import in_html
from ..figures.two_memories import FILM, last_step, two_memories_picture, two_memories_words
from .controls import player
from .explorer import Explorer, Shown, explorer

INTERVAL = 100  # milliseconds per step


class Moment(NamedTuple):
    """The step of the player."""

    step: int = 0


class Film(Picture):
    """The figure whose PNG is the shipped animation; its first frame is the figure."""

    def to_png(self) -> bytes:
        return resources.files("iocourse.course.explore").joinpath(FILM).read_bytes()


@explorer
class TwoMemories(Explorer):
    """Step player of naive attention and FlashAttention side by side, paused before the first word.

    A page without a kernel shows the animation of `two_memories_picture`. Control: step.
    """

    def __init__(self) -> None:
        super().__init__(Moment(), [player(INTERVAL, last_step())])

    def shown(self) -> Shown:
        step = self.state.step
        return Shown(two_memories_picture(step), in_html(two_memories_words(step)))

    def still(self) -> Picture:
        return Film(**vars(two_memories_picture()))
