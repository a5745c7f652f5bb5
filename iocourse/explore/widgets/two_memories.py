"""The two memories of the first page as a player: naive attention beside FlashAttention, word by word."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

from ..draw.picture import Picture
from ..draw.text import in_html
from ..figures.two_memories import FILM, last_step, two_memories_picture, two_memories_words
from .controls import player
from .explorer import Explorer, Shown, explorer

INTERVAL = 100  # milliseconds of a step


class Moment(NamedTuple):
    """How far the words are."""

    step: int = 0


class Film(Picture):
    """The picture, as PNG in motion: the film that is shipped, whose first frame it is."""

    def to_png(self) -> bytes:
        return resources.files("iocourse").joinpath("data", FILM).read_bytes()


@explorer
class TwoMemories(Explorer):
    """Naive attention beside FlashAttention, played step by step; it starts paused, before the first word.

    Where no kernel runs a page shows `two_memories_picture`, moving. Its one control: step.
    """

    def __init__(self) -> None:
        super().__init__(Moment(), [player(INTERVAL, last_step())])

    def shown(self) -> Shown:
        step = self.state.step
        return Shown(two_memories_picture(step), in_html(two_memories_words(step)))

    def still(self) -> Picture:
        return Film(**vars(two_memories_picture()))
