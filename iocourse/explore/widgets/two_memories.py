"""The two memories of the first page as a player: naive attention beside FlashAttention, word by word."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from ..draw.html import in_html
from ..draw.picture import Picture
from ..figures.two_memories import FILM, last_step, two_memories_picture, two_memories_words
from . import controls as ui
from .explorer import Explorer, explorer, without_widgets

INTERVAL = 100  # milliseconds of a step


class Moment(NamedTuple):
    """How far the words are."""

    step: int


@explorer
def two_memories() -> TwoMemories | Picture:
    """Naive attention beside FlashAttention, played step by step; it starts paused, before the first word.

    Where no kernel runs a page shows `two_memories_picture`, moving: the film that is shipped. Where the
    environment variable IOCOURSE_WIDGETS is 0: the picture alone.
    """
    return two_memories_picture() if without_widgets() else TwoMemories()


class TwoMemories(Explorer):
    """The widget; its controls: play, step, back, forward."""

    def __init__(self) -> None:
        player = ui.player(INTERVAL, **ui.wide("560px", "60px"))
        for control in player.values():
            control.max = last_step()
        buttons = {"back": "one step back", "forward": "one step on"}
        super().__init__(
            player | {name: ui.button(name, does, width="auto") for name, does in buttons.items()}
        )

    @property
    def setting(self) -> Moment:
        return Moment(*self._values("step"))

    @property
    def picture(self) -> Picture:
        return two_memories_picture(self.setting.step)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"back": partial(self._by, -1), "forward": partial(self._by, 1)}

    def _by(self, steps: int) -> None:
        step = self.controls["step"]
        step.value = min(max(step.value + steps, 0), step.max)

    def _arranged(self) -> list[Any]:
        return [ui.wrapped(self._named("play", "back", "forward", "step")), self.words, self.view]

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
