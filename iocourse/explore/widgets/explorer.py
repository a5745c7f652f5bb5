"""What every explorer stands on: controls and a picture that can be touched, in one small widget.

An explorer is plain Python: `set("Br", 64)`, `press("best")`, `touched("down", x, y)` do what a hand does on
the page, and `value("M")`, `words` and `svg` say what came of it. No browser, and no widget, is needed for
that. Shown in a notebook it makes a widget (anywidget) of `shell.js`, which knows nothing of any explorer:

    Python → page   controls, picture (SVG), words (HTML), one sentence for the live region, where to grab
    page → Python   a control and the name of its new value; a pressed button; the pointer

Places of the picture are pixels in Python, and shares of its width and height on their way.

The page has one message on its way at a time, and of what follows meanwhile the newest alone, with the places
that the pointer has passed: a drag never lags behind. Who paints draws the line from each to the next.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, wraps
from html import unescape
from importlib import resources
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

from ..draw.picture import Picture
from ..facts.chosen import among
from .panel import Control

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

    def on_page(self, width: float, height: float) -> tuple[float, float, float, float, str]:
        """What the page is told of it: shares of a picture of this size, and the pointer."""
        return self.x / width, self.y / height, self.width / width, self.height / height, self.cursor

    def holds(self, x: float, y: float) -> bool:
        """Whether a place of the picture lies in it."""
        return 0 <= x - self.x <= self.width and 0 <= y - self.y <= self.height


class Explorer(ABC):
    """Controls → `setting` → `picture` and words, anew at each change.

    A kind of explorer says what is seen (`picture`, `_said`), and, where it has them, what its buttons do
    (the button NAME calls the method `_NAME`) and what the pointer does (`grabs`, `_dragged`). `note` is a
    remark about what was done last. Controls stand below the picture in the order in which they are given.

    A notebook saves the picture as PNG with its alternative text, and as plain text: what is seen where no
    kernel runs.
    """

    note = ""
    words_below = False  # a table of words stands below the picture, a headline above it
    _held: tuple[float, float] | None = None  # from the pointer to the middle of what it took hold of
    _turn = ""  # the message of the page that was answered last
    _shell: Any = None

    def __init__(self, setting: Any, controls: Iterable[Control], **others: Any) -> None:
        """Copies of these controls, where the setting says; `others`: values of those it does not name."""
        self._start = setting
        self.controls = {one.name: replace(one) for one in controls}
        self._place(setting)
        for name, value in others.items():
            self.controls[name].start(value)
        self._draw()

    # ------------------------------------------------------------------ what each kind has of its own
    @property
    def setting(self) -> Any:
        """Where the controls stand, a named tuple; None for what is disabled."""
        stands = {name: None if self.controls[name].disabled else self.value(name) for name in self._named()}
        return self._start._replace(**stands)

    @property
    @abstractmethod
    def picture(self) -> Picture:
        """What is shown now."""

    @abstractmethod
    def _said(self) -> str:
        """The words beside the picture, as HTML."""

    def _spoken(self) -> str:
        """The sentence for the live region: the first line of the words."""
        return unescape(re.sub("<[^>]+>", "", self.words.partition("<br>")[0]))

    def grabs(self) -> list[Grab]:
        """Where the pointer can take hold of the picture."""
        return []

    def _dragged(self, x: float, y: float) -> None:  # noqa: B027
        """What was taken hold of is to have its middle here."""

    def _after(self, name: str) -> None:  # noqa: B027
        """What a control's new value does to the others."""

    def _fit(self) -> None:  # noqa: B027
        """Bring the controls in line with what is to be drawn."""

    def still(self) -> Picture:
        """What a page without a kernel shows."""
        return self.picture

    # ------------------------------------------------------------------ what a hand does, and a script
    def value(self, name: str) -> Any:
        """Where a control stands. Raises ValueError, naming those there are."""
        return self._control(name).value

    def set(self, name: str, value: Any) -> None:
        """Move a control. Raises ValueError for a control or a value that there is not."""
        self._control(name).move_to(value)
        self.note = ""
        self._after(name)
        self._draw()

    def press(self, name: str) -> None:
        """Press a button. Raises ValueError, naming those there are."""
        among("button", self.buttons, [name])
        self._pressed(name)
        self._draw()

    def touched(self, kind: str, x: float, y: float) -> None:
        """The pointer went "down", goes on ("move") or "up" at a place of the picture, in its pixels."""
        among("touch", POINTER, [kind])
        self._pointed(kind, x, y)
        self._draw()

    @property
    def buttons(self) -> list[str]:
        """The names of the controls that are buttons."""
        return [name for name, control in self.controls.items() if control.kind == "button"]

    def _pressed(self, name: str) -> None:
        getattr(self, f"_{name}")()

    def _pointed(self, kind: str, x: float, y: float) -> None:
        """What the pointer does: it drags what it took hold of, as far from its middle as it took it."""
        if kind == "down":
            middle = next((grab.middle for grab in self.grabs() if grab.holds(x, y)), None)
            self._held = middle and (middle[0] - x, middle[1] - y)
        elif kind == "up":
            self._held = None
        elif self._held:
            self._dragged(x + self._held[0], y + self._held[1])

    def _control(self, name: str) -> Control:
        among("control", self.controls, [name])
        return self.controls[name]

    def _place(self, setting: Any) -> None:
        """Move the controls to where a setting stands."""
        for name in self._named():
            if getattr(setting, name) is not None:
                self.controls[name].start(getattr(setting, name))

    def _named(self) -> list[str]:
        """The parts of the setting that are controls."""
        return [name for name in self._start._fields if name in self.controls]

    # ------------------------------------------------------------------ from controls to picture
    def _draw(self) -> None:
        self._fit()
        picture = self.picture
        self._size = picture.width, picture.height
        self.words, self.svg = self._said(), picture.to_svg()
        self._show()

    def page(self) -> dict[str, Any]:
        """All that the page is told."""
        return {
            "name": called(type(self)),
            "turn": self._turn,
            "controls": [control.on_page(*self._size) for control in self.controls.values()],
            "svg": self.svg,
            "words": self.words,
            "below": self.words_below,
            "spoken": self._spoken(),
            "grabs": [grab.on_page(*self._size) for grab in self.grabs()],
        }

    def _show(self) -> None:
        if self._shell is not None:
            self._shell.page = self.page()

    def _meanwhile(self, words: str) -> None:
        """Words for the page while what it asked for takes its time; all else stays as it is."""
        if self._shell is not None:
            self._shell.page = {**self._shell.page, "words": words}

    def _heard(self, _shell: Any, message: dict[str, Any], _buffers: Any) -> None:
        """Do what a message of the page asks; it is answered in any case, for the page waits for that."""
        self._turn = message["turn"]
        try:
            self._do(**message)
        finally:
            if self._shell.page["turn"] != self._turn:
                self._show()

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
    def shell(self) -> Any:
        """The widget, made when it is first asked for."""
        if self._shell is None:
            self._shell = _shell_class()(page=self.page())
            self._shell.on_msg(self._heard)
        return self._shell

    def close(self) -> None:
        """Take the widget off every page that shows it."""
        if self._shell is not None:
            self._shell.close()
            self._shell = None

    def __repr__(self) -> str:
        stands = ", ".join(f"{name}={value!r}" for name, value in self.setting._asdict().items())
        return f"{type(self).__name__}({stands})"

    def _repr_mimebundle_(self, **_asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        live, live_metadata = self.shell._repr_mimebundle_()  # in Colab: where the widget's code is found
        data, metadata = self.still()._repr_mimebundle_()
        return {VIEW: live[VIEW], **data}, live_metadata | metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)


@cache
def _shell_class() -> Any:
    """The class of the widget: a page to be shown, and the JavaScript that shows it."""
    import anywidget
    import traitlets

    files = resources.files(__package__)

    class Shell(anywidget.AnyWidget):
        _esm = files.joinpath("shell.js").read_text(encoding="utf-8")
        _css = files.joinpath("shell.css").read_text(encoding="utf-8")
        page = traitlets.Dict().tag(sync=True)

    return Shell
