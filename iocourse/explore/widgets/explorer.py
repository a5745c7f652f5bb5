"""What every explorer stands on: controls and a picture that can be touched, in one small widget.

An explorer is plain Python: `set("Br", 64)`, `press("best")`, `touched("down", x, y)` do what a hand does on
the page, and `value("M")`, `words` and `svg` say what came of it. No browser, and no widget, is needed for
that. Shown in a notebook it makes a widget (anywidget) of `explorer.js`, which knows nothing of any explorer:

    Python → page   controls, picture (SVG), words (HTML), what the live region says, where to grab
    page → Python   a control and the name of its new value; a pressed button; the pointer

The page has one message on its way at a time, and of what follows meanwhile the newest alone, with the places
that the pointer has passed: a drag never lags behind. Who paints draws the line from each to the next.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, wraps
from html import unescape
from importlib import resources
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

from ..draw.picture import Picture
from ..models.schedule_selection import among
from .controls import Control

VIEW = "application/vnd.jupyter.widget-view+json"
POINTER = ("down", "move", "up")

Kind = TypeVar("Kind", bound="type[Explorer]")
EXPLORERS: dict[str, Callable[..., Any]] = {}


def explorer(kind: Kind) -> Kind:
    """Register a kind: `tile_tuner()` makes a TileTuner, or its still picture where there are no widgets."""

    @wraps(kind, updated=())
    def make(*arguments: Any, **named: Any) -> Any:
        made = kind(*arguments, **named)
        return made.still() if without_widgets() else made

    make.__name__ = make.__qualname__ = called(kind).replace(" ", "_")
    EXPLORERS[make.__name__] = make
    return kind


def called(kind: type) -> str:
    """Its name in words: tile tuner for TileTuner."""
    return re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).lower()


def without_widgets() -> bool:
    """Whether there are pictures alone: IOCOURSE_WIDGETS is 0 in the environment, or anywidget is missing."""
    return os.environ.get("IOCOURSE_WIDGETS") == "0" or find_spec("anywidget") is None


class Grab(NamedTuple):
    """Where the picture can be taken hold of, in its pixels, and the shape of the pointer there."""

    x: float
    y: float
    width: float
    height: float
    cursor: str = "pointer"

    @property
    def middle(self) -> tuple[float, float]:
        """What is dragged."""
        return self.x + self.width / 2, self.y + self.height / 2

    def holds(self, x: float, y: float) -> bool:
        """Whether a place of the picture lies in it."""
        return 0 <= x - self.x <= self.width and 0 <= y - self.y <= self.height


class Shown(NamedTuple):
    """What an explorer shows where its controls stand."""

    picture: Picture | None  # None: there is nothing to draw
    words: str  # beside the picture, as HTML
    spoken: str = ""  # for the live region, by default the words
    grabs: Sequence[Grab] = ()  # where the pointer can take hold of the picture


class Explorer(ABC):
    """Controls → `state` → what is `shown`, anew at each change.

    A kind of explorer says what is `shown`, and, where it has them, what its buttons do (the button NAME
    calls the method `_NAME`, which may give a remark) and what is `_dragged`. `note` is the remark about what
    was done last. Controls stand below the picture in the order in which they are given.

    A notebook saves the picture as PNG with its alternative text, and as plain text: what is seen where no
    kernel runs.
    """

    note = ""
    last = ""  # the control that was set or pressed last; none, where the picture was touched
    words_below = False  # a table of words stands below the picture, a headline above it
    ahead: tuple[str, ...] = ()  # controls whose next values are worked out while the page draws
    _held: tuple[float, float] | None = None  # from the pointer to the middle of what it took hold of
    _size = 1.0, 1.0  # of the picture, in its pixels
    _turn = ""  # the message of the page that was answered last
    _widget: Any = None

    def __init__(self, state: Any, controls: Iterable[Control], **others: Any) -> None:
        """Copies of these controls, where the state says; `others`: values of those it does not name."""
        self._start = state
        self.controls = {one.name: replace(one) for one in controls}
        self._place(**state._asdict(), **others)
        self._draw()

    # ------------------------------------------------------------------ what each kind has of its own
    @property
    def state(self) -> Any:
        """Where the controls stand, a named tuple; None for what is disabled."""
        parts = [self.controls[name] for name in self._start._fields if name in self.controls]
        return self._start._replace(**{one.name: None if one.disabled else one.value for one in parts})

    @abstractmethod
    def shown(self) -> Shown:
        """What there is to see and to hear."""

    def _dragged(self, x: float, y: float) -> dict[str, Any]:
        """The values of controls with which what was taken hold of has its middle here."""
        return {}

    def _after(self, name: str) -> None:  # noqa: B027
        """What a control's new value does to the others."""

    def _fit(self) -> None:  # noqa: B027
        """Bring the controls in line with what is to be drawn."""

    def still(self) -> Picture | None:
        """What a page without a kernel shows."""
        return self.picture

    # ------------------------------------------------------------------ what a hand does, and a script
    def value(self, name: str) -> Any:
        """Where a control stands. Raises ValueError, naming those there are."""
        return self._control(name).value

    def set(self, name: str, value: Any) -> None:
        """Move a control. Raises ValueError for a control or a value that there is not."""
        self._control(name).move_to(value)
        self.last, self.note = name, ""
        self._after(name)
        self._draw()

    def press(self, name: str) -> None:
        """Press a button. Raises ValueError, naming those there are."""
        among("button", self.buttons, [name])
        self.last, self.note = name, self._pressed(name) or ""
        self._draw()

    def touched(self, kind: str, x: float, y: float) -> None:
        """The pointer went "down", goes on ("move") or "up" at a place of the picture, in its pixels."""
        among("touch", POINTER, [kind])
        self.last = ""
        self._pointed(kind, x, y)
        self._draw()

    @property
    def buttons(self) -> list[str]:
        """The names of the controls that are buttons."""
        return [name for name, control in self.controls.items() if control.kind == "button"]

    def _pressed(self, name: str) -> Any:
        return getattr(self, f"_{name}")()

    def _pointed(self, kind: str, x: float, y: float) -> None:
        """What the pointer does: it drags what it took hold of, as far from its middle as it took it."""
        if kind == "down":
            middle = next((grab.middle for grab in self.grabs if grab.holds(x, y)), None)
            self._held = middle and (middle[0] - x, middle[1] - y)
        elif kind == "up":
            self._held = None
        elif self._held:
            self.note = ""
            for name, value in self._dragged(x + self._held[0], y + self._held[1]).items():
                self.controls[name].move_near(value)

    def _control(self, name: str) -> Control:
        among("control", self.controls, [name])
        return self.controls[name]

    def _place(self, **stands: Any) -> None:
        """Move controls to these values, which they offer from now on; None moves nothing."""
        for name, value in stands.items():
            if name in self.controls and value is not None:
                self.controls[name].value = value
                self.controls[name].offered = self.controls[name].options

    # ------------------------------------------------------------------ from controls to picture
    def _draw(self) -> None:
        self._fit()
        self.picture, self.words, spoken, self.grabs = self.shown()
        self.svg = self.picture.to_svg() if self.picture else ""
        self._size = (self.picture.width, self.picture.height) if self.picture else self._size
        self.spoken = spoken or unescape(re.sub("<[^>]+>", "", self.words.replace("<br>", " "))).strip()
        self._show()

    def page(self) -> dict[str, Any]:
        """All that the page is told; of places, their shares of the picture."""
        wide, high = self._size
        return {
            "name": called(type(self)),
            "turn": self._turn,
            "controls": [control.on_page(wide, high) for control in self.controls.values()],
            "svg": self.svg,
            "words": self.words,
            "below": self.words_below,
            "spoken": self.spoken,
            "grabs": [(x / wide, y / high, w / wide, h / high, cursor) for x, y, w, h, cursor in self.grabs],
        }

    def _show(self, **meanwhile: str) -> None:
        """Tell the page all, or a part `meanwhile`: what it asked for takes its time, and all else stays."""
        if self._widget is not None:
            self._widget.page = self._widget.page | meanwhile if meanwhile else self.page()

    def _heard(self, _widget: Any, message: dict[str, Any], _buffers: Any) -> None:
        """Do what a message of the page asks; it is answered in any case, for the page waits for that."""
        self._turn = message["turn"]
        try:
            self._do(**message)
        finally:
            self._show()  # which sends nothing twice
            with suppress(RuntimeError):  # no loop runs: the next message comes from a script
                get_running_loop().call_later(0.1, self._look_ahead, self._turn)  # seconds

    def _look_ahead(self, turn: str) -> None:
        """Show nobody where one more step of a control leads: what is worked out for it stays in caches."""
        if turn == self._turn and self.last in self.ahead:
            control = self.controls[self.last]
            values = list(control.options.values())
            at = values.index(control.value)
            try:
                for control.value in values[max(at - 1, 0) : at + 2]:
                    self.shown()
            finally:
                control.value = values[at]

    def _do(self, do: str, name: str = "", text: str = "", passed: Any = (), **_turn: str) -> None:
        """What is no longer there was asked for by a page that is behind."""
        if do in POINTER:
            *before, last = ((x * self._size[0], y * self._size[1]) for x, y in passed)
            for place in before:
                self._pointed(do, *place)
            self.touched(do, *last)
        elif do == "press" and name in self.buttons:
            self.press(name)
        elif do == "set" and text in self._control(name).options:
            self.set(name, self._control(name).options[text])

    # ------------------------------------------------------------------ how it shows itself
    @property
    def widget(self) -> Any:
        """The widget, made when it is first asked for."""
        if self._widget is None:
            self._widget = _widget_class()(page=self.page())
            self._widget.on_msg(self._heard)
        return self._widget

    def close(self) -> None:
        """Take the widget off every page that shows it."""
        if self._widget is not None:
            self._widget.close()
            self._widget = None

    def __repr__(self) -> str:
        stands = ", ".join(f"{name}={value!r}" for name, value in self.state._asdict().items())
        return f"{type(self).__name__}({stands})"

    def _repr_mimebundle_(self, **_asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        live, live_metadata = self.widget._repr_mimebundle_()  # in Colab: where the widget's code is found
        picture = self.still()
        data, metadata = picture._repr_mimebundle_() if picture else ({"text/plain": self.spoken}, {})
        return {VIEW: live[VIEW], **data}, live_metadata | metadata


@cache
def _widget_class() -> Any:
    """The class of the widget: a page to be shown, and the JavaScript that shows it."""
    import anywidget
    import traitlets

    files = resources.files(__package__)

    class Widget(anywidget.AnyWidget):
        _esm = files.joinpath("explorer.js").read_text(encoding="utf-8")
        _css = files.joinpath("explorer.css").read_text(encoding="utf-8")
        page = traitlets.Dict().tag(sync=True)

    return Widget
