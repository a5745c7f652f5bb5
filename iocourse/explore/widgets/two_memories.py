"""The two memories of the first page as a player: naive attention beside FlashAttention, word by word."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from importlib import resources
from typing import Any, NamedTuple

from ..draw.html import in_html
from ..draw.picture import Picture
from ..figures.two_memories import FILM, last_step, two_memories_picture, two_memories_words
from .explorer import Explorer, explorer, without_widgets
from .panel import player

INTERVAL = 100  # milliseconds of a step


class Moment(NamedTuple):
    """How far the words are."""

    step: int


@explorer
def two_memories() -> TwoMemories | Picture:
    """Naive attention beside FlashAttention, played step by step; it starts paused, before the first word.

    Where no kernel runs a page shows `two_memories_picture`, moving: the film that is shipped. Where there
    are no widgets: the picture alone.
    """
    return two_memories_picture() if without_widgets() else TwoMemories()


class TwoMemories(Explorer):
    """The explorer; its one control: step."""

    def __init__(self) -> None:
        super().__init__([player(INTERVAL, last_step())])

    @property
    def setting(self) -> Moment:
        return Moment(*self._values("step"))

    @property
    def picture(self) -> Picture:
        return two_memories_picture(self.setting.step)

    def _said(self) -> str:
        return in_html(two_memories_words(self.setting.step))

    def _still(self) -> Picture:
        return two_memories_picture()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The film stands in place of the still picture: its first frame is that picture."""
        data, metadata = super()._repr_mimebundle_(include, exclude)
        film = resources.files("iocourse").joinpath("data", FILM).read_bytes()
        return data | {"image/png": b64encode(film).decode("ascii")}, metadata
