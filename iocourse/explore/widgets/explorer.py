"""What the widgets share: the way from controls to picture and words."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from ..draw.picture import Picture

VIEW = "application/vnd.jupyter.widget-view+json"

F = TypeVar("F", bound=Callable[..., Any])

EXPLORERS: dict[str, Callable[..., Any]] = {}


def explorer(make: F) -> F:
    """Register the function that makes a widget, or its picture where there are no widgets."""
    EXPLORERS[make.__name__] = make
    return make


def without_widgets() -> bool:
    """Whether the reader asked for pictures alone: the environment variable IOCOURSE_WIDGETS is 0."""
    return os.environ.get("IOCOURSE_WIDGETS") == "0"


class Explorer(ABC):
    """A widget around a picture: controls → `setting` → words and `picture`, anew at each change.

    Controls are plain ipywidgets in `controls`, by name; `words` and `view` are the HTML widgets they write
    to, `box` holds them all, `note` is a remark about what was done last. A kind of explorer says what its
    controls mean and where they stand; a button does what `actions` has under its name.

    A notebook saves the picture as PNG with its alternative text, and as plain text: what is seen where no
    kernel runs.
    """

    note = ""
    _quiet = False

    def __init__(self, controls: Mapping[str, Any]) -> None:
        import ipywidgets as widgets

        self.controls = dict(controls)
        self.words, self.view = widgets.HTML(), widgets.HTML()
        actions = self.actions()
        for name, control in self.controls.items():
            if name in actions:
                control.on_click(partial(self._pressed, actions[name]))
            elif name != "play":  # a player moves the slider of the step
                control.observe(partial(self._changed, name), "value")
        self.box = widgets.VBox(self._arranged())
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

    @abstractmethod
    def _arranged(self) -> list[Any]:
        """Controls, words and view, from the top down."""

    def actions(self) -> dict[str, Callable[[], None]]:
        """What each button does."""
        return {}

    def _after(self, name: str) -> None:  # noqa: B027
        """What a control's new value does to the others."""

    def _fit(self) -> None:  # noqa: B027
        """Bring the controls in line with what is to be drawn."""

    # ------------------------------------------------------------------ from controls to picture
    def _changed(self, name: str, _change: Any) -> None:
        if not self._quiet:
            self._after(name)
            self._draw()

    def _pressed(self, action: Callable[[], None], _button: Any) -> None:
        action()

    def _draw(self) -> None:
        with self._together():
            self._fit()
        self.words.value = self._said()
        self.view.value = self.picture.to_svg()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Controls changed in this block draw nothing by themselves."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _values(self, *names: str) -> list[Any]:
        return [self.controls[name].value for name in names]

    def _named(self, *names: str) -> list[Any]:
        return [self.controls[name] for name in names]

    # ------------------------------------------------------------------ how it shows itself
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
        data, metadata = self._still()._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {VIEW: view, **data}, metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
