"""What every explorer stands on: controls and a picture that can be touched, in one small widget.

An explorer is plain Python: `set("Br", 64)`, `press("best")`, `touched("down", x, y)` do what a hand does on
the page, and `value("M")`, `words` and `svg` say what came of it. No browser, and no widget, is needed for
that. Shown in a notebook it makes a widget (anywidget) of `shell.js`, which knows nothing of any explorer:

    Python → page   controls, picture (SVG), words (HTML), one sentence for the live region, where to grab
    page → Python   a control and the name of its new value; a pressed button; the pointer, in pixels

The page has one message on its way at a time, and of what follows meanwhile the newest alone, with the places
that the pointer has passed: a drag never lags behind. Who paints draws the line from each to the next.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cache
from html import unescape
from importlib import resources
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

from ..draw.picture import Picture
from ..facts.chosen import among
from .panel import Control, NotOffered

VIEW = "application/vnd.jupyter.widget-view+json"
POINTER = ("down", "move", "up")

F = TypeVar("F", bound=Callable[..., Any])

EXPLORERS: dict[str, Callable[..., Any]] = {}


def explorer(make: F) -> F:
    """Register the function that makes an explorer, or its picture where there are no widgets."""
    EXPLORERS[make.__name__] = make
    return make


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


class Explorer(ABC):
    """Controls → `setting` → `picture` and words, anew at each change.

    A kind of explorer says what its controls mean (`setting`), what is seen (`picture`, `_said`), and, where
    it has them, what buttons do (`actions`) and what the pointer does (`grabs`, `_pointed`). `note` is a
    remark about what was done last. Controls stand below the picture in the order in which they are given.

    A notebook saves the picture as PNG with its alternative text, and as plain text: what is seen where no
    kernel runs.
    """

    note = ""
    words_below = False  # a table of words stands below the picture, a headline above it
    paints = False  # it wants the places too that the pointer passed between two messages
    _turn = ""  # the message of the page that was answered last
    _shell: Any = None

    def __init__(self, controls: Iterable[Control]) -> None:
        self.controls = {control.name: control for control in controls}
        self._draw()

    # ------------------------------------------------------------------ what each kind has of its own
    @property
    @abstractmethod
    def setting(self) -> Any:
        """Where the controls stand."""

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

    def actions(self) -> dict[str, Callable[[], None]]:
        """What each button does."""
        return {}

    def grabs(self) -> Iterable[Grab]:
        """Where the pointer can take hold of the picture."""
        return ()

    def frames(self) -> dict[str, tuple[float, float]]:
        """Groups of controls that stand in the picture for now, each with the place that it hangs from."""
        return {}

    def _pointed(self, kind: str, x: float, y: float) -> None:  # noqa: B027
        """What the pointer does: "down" on a grab, then "move", and "up" wherever it is by then."""

    def _after(self, name: str) -> None:  # noqa: B027
        """What a control's new value does to the others."""

    def _fit(self) -> None:  # noqa: B027
        """Bring the controls in line with what is to be drawn."""

    # ------------------------------------------------------------------ what a hand does, and a script
    def value(self, name: str) -> Any:
        """Where a control stands. Raises ValueError, naming those there are."""
        return self._control(name).value

    def set(self, name: str, value: Any) -> None:
        """Move a control. Raises ValueError for a control or a value that there is not."""
        self._control(name).move_to(value)
        self._after(name)
        self._draw()

    def press(self, name: str) -> None:
        """Press a button. Raises ValueError, naming those there are."""
        among("button", self.actions(), [name])
        self.actions()[name]()
        self._draw()

    def touched(self, kind: str, x: float, y: float) -> None:
        """The pointer went "down", goes on ("move") or "up" at a place of the picture, in its pixels."""
        among("touch", POINTER, [kind])
        self._pointed(kind, x, y)
        self._draw()

    def _control(self, name: str) -> Control:
        among("control", self.controls, [name])
        return self.controls[name]

    def _values(self, *names: str) -> list[Any]:
        return [self.controls[name].value for name in names]

    # ------------------------------------------------------------------ from controls to picture
    def _draw(self) -> None:
        self._fit()
        self.words, self.svg = self._said(), self.picture.to_svg()
        self._show()

    def page(self) -> dict[str, Any]:
        """All that the page is told."""
        return {
            "name": re.sub("(?<!^)(?=[A-Z])", " ", type(self).__name__).lower(),
            "turn": self._turn,
            "controls": [control.on_page() for control in self.controls.values()],
            "svg": self.svg,
            "words": self.words,
            "below": self.words_below,
            "spoken": self._spoken(),
            "grabs": list(self.grabs()),
            "frames": self.frames(),
        }

    def _show(self) -> None:
        if self._shell is not None:
            self._shell.page = self.page()

    def _meanwhile(self, words: str) -> None:
        """Words for the page while what it asked for takes its time; all else stays as it is."""
        self.words = words
        if self._shell is not None:
            self._shell.page = {**self._shell.page, "words": words}

    def _heard(self, _shell: Any, message: dict[str, Any], _buffers: Any) -> None:
        """Do what a message of the page asks; it is answered in any case, for the page waits for that."""
        self._turn = message["turn"]
        try:
            self._do(**message)
        except NotOffered:  # the page was behind: these are no longer the options
            pass
        finally:
            if self._shell.page["turn"] != self._turn:
                self._show()

    def _do(self, do: str, turn: str, name: str = "", text: str = "", **pointer: Any) -> None:
        if do == "set":
            self.set(name, self._control(name).named(text))
        elif do == "press":
            if name in self.actions():  # else the page was behind
                self.press(name)
        else:
            for passed in pointer.get("passed", ()) if self.paints else ():
                self._pointed(do, *passed)
            self.touched(do, pointer["x"], pointer["y"])

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

    def _still(self) -> Picture:
        """What a page without a kernel shows."""
        return self.picture

    def _stands(self) -> dict[str, Any]:
        """Names and values for `repr`."""
        return dict(self.setting._asdict())

    def __repr__(self) -> str:
        stands = ", ".join(f"{name}={value!r}" for name, value in self._stands().items())
        return f"{type(self).__name__}({stands})"

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        live, live_metadata = self.shell._repr_mimebundle_()  # in Colab: where the widget's code is found
        data, metadata = self._still()._repr_mimebundle_()
        return {VIEW: live[VIEW], **data}, live_metadata | metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


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
