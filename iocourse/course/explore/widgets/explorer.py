"""Base class of all explorers: controls and an interactive figure in one widget.

An explorer works without browser and widget: `set("Br", 64)`, `press("best")` and `touched("down", x, y)`
simulate user input; `value("M")`, `words` and `svg` return the result. In a notebook it is shown as a widget
(anywidget) with the generic front end `explorer.js`:

    Python → page   controls, figure (SVG), text (HTML), text of the live region, regions that can be dragged
    page → Python   a control and the name of its new value; a pressed button; pointer positions

The page sends one message at a time and merges later messages into the newest, together with all pointer
positions, so a drag never lags behind. Painting explorers connect these positions by lines.
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
from inspect import signature
from typing import Any, NamedTuple, TypeVar

from ..draw.picture import Picture
from ..models.schedule_selection import among
from .controls import Control

VIEW = "application/vnd.jupyter.widget-view+json"
POINTER = ("down", "move", "up")

Kind = TypeVar("Kind", bound="type[Explorer]")
EXPLORERS: dict[str, Callable[..., Any]] = {}
_LAST: dict[tuple[str, ...], Any] = {}  # the last explorer of each call in each cell


def explorer(kind: Kind) -> Kind:
    """Register a class: `tile_tuner()` returns a TileTuner, or its static figure without widgets."""

    @wraps(kind, updated=())
    def make(*arguments: Any, **named: Any) -> Any:
        made = kind(*arguments, **named)
        if widgets_disabled():
            return made.still()
        if kind.resumes and (cell := running_cell()):
            call = cell, make.__name__, repr(arguments), repr(named)
            made.resume(_LAST.get(call))
            _LAST[call] = made
        return made

    make.__name__ = make.__qualname__ = class_label(kind).replace(" ", "_")
    EXPLORERS[make.__name__] = make
    return kind


def running_cell() -> str:
    """Return the id of the notebook cell that runs now, or "" outside a notebook."""
    from IPython.core.getipython import get_ipython

    parent: dict[str, Any] = getattr(get_ipython(), "get_parent", dict)()
    return str(parent.get("metadata", {}).get("cellId", ""))


def class_label(kind: type) -> str:
    """Return the name of a class in words: "tile tuner" for TileTuner."""
    return re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).lower()


def widgets_disabled() -> bool:
    """Return True if widgets are off: IOCOURSE_WIDGETS is 0 in the environment, or anywidget is missing."""
    return os.environ.get("IOCOURSE_WIDGETS") == "0" or find_spec("anywidget") is None


class Grab(NamedTuple):
    """A draggable region of the figure, in its pixels, and the cursor shown there."""

    x: float
    y: float
    width: float
    height: float
    cursor: str = "pointer"

    @property
    def middle(self) -> tuple[float, float]:
        """The point that is dragged: the centre of the region."""
        return self.x + self.width / 2, self.y + self.height / 2

    def holds(self, x: float, y: float) -> bool:
        """Return True if the point (x, y) of the figure is in the region."""
        return 0 <= x - self.x <= self.width and 0 <= y - self.y <= self.height


class Shown(NamedTuple):
    """The output of an explorer for the current values of its controls."""

    picture: Picture | None  # None if there is nothing to draw
    words: str  # HTML next to the figure
    spoken: str = ""  # text of the live region; default: `words`
    grabs: Sequence[Grab] = ()  # draggable regions of the figure


class Explorer(ABC):
    """Base class of explorers: the controls define `state`, and `shown` is recomputed at each change.

    A subclass implements `shown`, a method `_NAME` for each button NAME, and `_dragged` if its figure has
    draggable regions. A button method may return a remark, which becomes `note`. Controls are shown below the
    figure in the given order.

    A notebook saves the figure as PNG with alternative text and as plain text, for pages without a kernel.
    """

    note = ""
    last = ""  # the last control that was set or pressed; "" after a pointer event
    words_below = False  # True if the text is a table below the figure
    beside = False  # True if a wide page shows the controls to the left of the figure
    resumes = False  # True if the same call in the same cell of a notebook continues where the last one was
    ahead: tuple[str, ...] = ()  # controls whose next values are computed in advance
    _held: tuple[float, float] | None = None  # offset from the pointer to the dragged point
    _size = 1.0, 1.0  # of the figure, in pixels
    _turn = ""  # the last message of the page that was answered
    _widget: Any = None

    def __init__(self, state: Any, controls: Iterable[Control], **others: Any) -> None:
        """Copy the controls and set them to `state`; `others` sets controls that are not in the state."""
        self._start = state
        self.controls = {one.name: replace(one) for one in controls}
        self._place(**state._asdict(), **others)
        self._draw()

    # ------------------------------------------------------------------ to be overridden
    @property
    def state(self) -> Any:
        """The values of the controls as a named tuple; None for disabled controls."""
        parts = [self.controls[name] for name in self._start._fields if name in self.controls]
        return self._start._replace(**{one.name: None if one.disabled else one.value for one in parts})

    @abstractmethod
    def shown(self) -> Shown:
        """Return the figure, its text, the live-region text and the draggable regions."""

    def _dragged(self, x: float, y: float) -> dict[str, Any]:
        """Return the control values that move the dragged point to (x, y)."""
        return {}

    def _after(self, name: str) -> None:  # noqa: B027
        """Update other controls after the control `name` was set."""

    def _fit(self) -> None:  # noqa: B027
        """Update the options of the controls before drawing."""

    def still(self) -> Picture | None:
        """Return the static figure for pages without a kernel."""
        return self.picture

    # ------------------------------------------------------------------ user input
    def value(self, name: str) -> Any:
        """Return the value of a control. Raises ValueError for an unknown control."""
        return self._control(name).value

    def set(self, name: str, value: Any) -> None:
        """Set a control. Raises ValueError for an unknown control or a value that it does not accept."""
        self._control(name).move_to(value)
        self.last, self.note = name, ""
        self._after(name)
        self._draw()

    def press(self, name: str) -> None:
        """Press a button. Raises ValueError for an unknown button."""
        among("button", self.buttons, [name])
        self.last, self.note = name, self._pressed(name) or ""
        self._draw()

    def touched(self, kind: str, x: float, y: float) -> None:
        """Process a pointer event: `kind` is "down", "move" or "up", (x, y) in pixels of the figure."""
        among("touch", POINTER, [kind])
        self.last = ""
        self._pointed(kind, x, y)
        self._draw()

    @property
    def buttons(self) -> list[str]:
        """Names of all controls of the kind "button"."""
        return [name for name, control in self.controls.items() if control.kind == "button"]

    def _pressed(self, name: str) -> Any:
        return getattr(self, f"_{name}")()

    def _pointed(self, kind: str, x: float, y: float) -> None:
        """Drag the region under the pointer, keeping the offset at which it was grabbed."""
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
        """Set controls to these values and add them to their options; None leaves a control unchanged."""
        for name, value in stands.items():
            if name in self.controls and value is not None:
                self.controls[name].value = value
                self.controls[name].offered = self.controls[name].options

    def resume(self, earlier: Explorer | None) -> None:
        """Set the controls to those of an earlier explorer of the same call, if there is one."""
        if earlier is not None:
            stood = [one for one in earlier.controls.values() if one.kind != "button" and not one.hidden]
            self._place(**{one.name: one.value for one in stood})
            self._draw()

    # ------------------------------------------------------------------ output
    def _draw(self) -> None:
        self._fit()
        self.picture, self.words, spoken, self.grabs = self.shown()
        self.svg = self.picture.to_svg() if self.picture else ""
        self._size = (self.picture.width, self.picture.height) if self.picture else self._size
        self.spoken = spoken or unescape(re.sub("<[^>]+>", "", self.words.replace("<br>", " "))).strip()
        self._show()

    def page(self) -> dict[str, Any]:
        """Return the data of the page; positions are fractions of the figure size."""
        wide, high = self._size
        return {
            "name": class_label(type(self)),
            "turn": self._turn,
            "controls": [control.on_page(wide, high) for control in self.controls.values()],
            "svg": self.svg,
            "words": self.words,
            "below": self.words_below,
            "beside": self.beside,
            "spoken": self.spoken,
            "grabs": [(x / wide, y / high, w / wide, h / high, cursor) for x, y, w, h, cursor in self.grabs],
        }

    def _show(self, **meanwhile: str) -> None:
        """Update the page, or only the entries `meanwhile` during a long computation."""
        if self._widget is not None:
            self._widget.page = self._widget.page | meanwhile if meanwhile else self.page()

    def _heard(self, _widget: Any, message: dict[str, Any], _buffers: Any) -> None:
        """Process a message of the page and always answer it, because the page waits for the answer."""
        self._turn = message["turn"]
        try:
            self._do(**message)
        finally:
            self._show()  # an unchanged page is not sent again
            with suppress(RuntimeError):  # no event loop: called from a script
                get_running_loop().call_later(0.1, self._look_ahead, self._turn)  # seconds

    def _look_ahead(self, turn: str) -> None:
        """Compute the neighbouring values of the last control to fill the caches, without showing them."""
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
        """Apply a message; ignore one for a button or value that no longer exists (the page is behind)."""
        if do in POINTER:
            *before, last = ((x * self._size[0], y * self._size[1]) for x, y in passed)
            for place in before:
                self._pointed(do, *place)
            self.touched(do, *last)
        elif do == "press" and name in self.buttons:
            self.press(name)
        elif do == "set" and text in self._control(name).options:
            self.set(name, self._control(name).options[text])

    # ------------------------------------------------------------------ display
    @property
    def widget(self) -> Any:
        """The widget, created at first access."""
        if self._widget is None:
            self._widget = _widget_class()(page=self.page())
            self._widget.on_msg(self._heard)
        return self._widget

    def close(self) -> None:
        """Remove the widget from all pages that show it."""
        if self._widget is not None:
            self._widget.close()
            self._widget = None

    def __repr__(self) -> str:
        """Return the call that makes this explorer. Values that it does not accept follow as a comment."""
        accepted, stands = signature(type(self)).parameters, self.state._asdict()
        call, others = (
            ", ".join(f"{name}={value!r}" for name, value in stands.items() if (name in accepted) == given)
            for given in (True, False)
        )
        name = class_label(type(self)).replace(" ", "_")
        return f"explore.{name}({call})" + f"  # {others}" * bool(others)

    def _repr_mimebundle_(self, **_asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        live, live_metadata = self.widget._repr_mimebundle_()  # Colab needs it to find the code of the widget
        picture = self.still()
        data, metadata = picture._repr_mimebundle_() if picture else ({"text/plain": self.spoken}, {})
        return {VIEW: live[VIEW], **data}, live_metadata | metadata


@cache
def _widget_class() -> Any:
    """Return the widget class: the trait `page` and the front end (JavaScript and CSS)."""
    import anywidget
    import traitlets

    files = resources.files(__package__)

    class Widget(anywidget.AnyWidget):
        _esm = files.joinpath("explorer.js").read_text(encoding="utf-8")
        _css = files.joinpath("explorer.css").read_text(encoding="utf-8")
        page = traitlets.Dict().tag(sync=True)

    return Widget
