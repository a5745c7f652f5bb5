"""What the widgets share: sliders of sizes, and how a widget shows itself with and without a kernel."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, TypeVar

from ..draw.picture import Picture

F = TypeVar("F", bound=Callable[..., Any])

EXPLORERS: dict[str, Callable[..., Any]] = {}


def explorer(make: F) -> F:
    """Register the function that makes a widget, or its picture where there are no widgets."""
    EXPLORERS[make.__name__] = make
    return make


VIEW = "application/vnd.jupyter.widget-view+json"


def without_widgets() -> bool:
    """Whether the reader asked for pictures alone: the environment variable IOCOURSE_WIDGETS is 0."""
    return os.environ.get("IOCOURSE_WIDGETS") == "0"


class Explorer(ABC):
    """A widget around a picture: `box` holds the controls and the SVG, `picture` is what they show now.

    A notebook saves the picture as PNG with its alternative text, and as plain text: what is seen where no
    kernel runs.
    """

    box: Any
    _quiet = False

    @property
    @abstractmethod
    def picture(self) -> Picture:
        """What is shown now."""

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Controls changed in this block draw nothing by themselves."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = self.picture._repr_mimebundle_()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {VIEW: view, **data}, metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def slider_values(first: int, last: int, per_octave: int) -> list[int]:
    """Whole numbers from first to last, `per_octave` of them evenly between a number and its double."""
    values = set()
    power = first
    while power <= last:
        values |= {power + power * k // per_octave for k in range(per_octave)}
        power *= 2
    return sorted(value for value in values if value <= last)


def size_slider(label: str, first: int, last: int, per_octave: int, value: int) -> Any:
    """A slider over `slider_values` and `value`, where it starts."""
    return steps_slider(label, slider_values(first, last, per_octave), value)


def steps_slider(label: str, values: Iterable[int], value: int) -> Any:
    """A slider over these values and `value`, where it starts."""
    import ipywidgets as widgets

    options = options_of([*values, value])
    return widgets.SelectionSlider(
        options=options, value=value, description=label, continuous_update=True, **wide("430px")
    )


def options_of(values: Iterable[int]) -> list[tuple[str, int]]:
    """Positions of a slider, each with its label, from the least to the largest."""
    return [(f"{value:,}", value) for value in sorted(set(values))]


def move_to(slider: Any, value: int) -> None:
    """Put a size slider on a value, which becomes one of its positions."""
    values = [option[1] for option in slider.options]
    if value not in values:
        slider.options = options_of([*values, value])
    slider.value = value


def wide(width: str, description_width: str = "110px") -> dict[str, Any]:
    """Layout and style of a control: its width, and that of its description."""
    import ipywidgets as widgets

    return {"layout": widgets.Layout(width=width), "style": {"description_width": description_width}}


def choice(options: Iterable[str], value: str, label: str) -> Any:
    """One of a few names, as buttons: JupyterLab keeps the arrow keys that a drop-down list would need."""
    import ipywidgets as widgets

    return widgets.ToggleButtons(
        options=list(options), value=value, description=label, style={"button_width": "auto"}
    )


def wrapped(controls: Iterable[Any]) -> Any:
    """Controls in a row that goes on below where the page is narrow."""
    import ipywidgets as widgets

    return widgets.HBox(list(controls), layout=widgets.Layout(flex_flow="row wrap"))


def in_html(lines: Iterable[str]) -> str:
    """Plain lines as the text beside a picture, the first in bold."""
    first, *others = (escape(line) for line in lines)
    return f'<div style="font-size:14px;line-height:1.5">{"<br>".join([f"<b>{first}</b>", *others])}</div>'


def as_table(rows: Iterable[Iterable[str]]) -> str:
    """Rows of text as a table, the first row in bold; numbers to the right."""
    head, *body = ([escape(cell) for cell in row] for row in rows)
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in body]
    look = "font-size:13px;line-height:1.4;text-align:right;border-collapse:separate;border-spacing:18px 1px"
    return f'<table style="{look}">{"".join(f"<tr>{line}</tr>" for line in lines)}</table>'
