"""The controls of the widgets, and how they stand beside one another: plain ipywidgets with our looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Options = list[tuple[str, Any]]


# ---------------------------------------------------------------------- sliders
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
    return options_slider(label, options_of([*values, value]), value)


def options_slider(label: str, options: Options, value: Any) -> Any:
    """A slider over pairs of a label and a value."""
    import ipywidgets as widgets

    return widgets.SelectionSlider(options=options, value=value, description=label, **wide("430px"))


def options_of(values: Iterable[int]) -> Options:
    """Positions of a slider, each with its label, from the least to the largest."""
    return [(f"{value:,}", value) for value in sorted(set(values))]


def move_to(slider: Any, value: int) -> None:
    """Put a size slider on a value, which becomes one of its positions."""
    values = [option[1] for option in slider.options]
    if value not in values:
        slider.options = options_of([*values, value])
    slider.value = value


def int_slider(label: str, low: int, high: int, value: int, **look: Any) -> Any:
    """A slider over all whole numbers from low to high."""
    import ipywidgets as widgets

    return widgets.IntSlider(value=value, min=low, max=high, description=label, **look)


def player(interval: int, **look: Any) -> dict[str, Any]:
    """A slider of moves, "step", and what plays them, "play", one move each `interval` milliseconds."""
    import ipywidgets as widgets

    step = int_slider("move", 0, 1, 0, **look)
    play = widgets.Play(value=0, min=0, max=1, interval=interval, description="play the moves")
    widgets.jslink((play, "value"), (step, "value"))
    return {"step": step, "play": play}


# ---------------------------------------------------------------------- choices and buttons
def choice(options: Iterable[str], value: str, label: str = "", button_width: str = "auto") -> Any:
    """One of a few names, as buttons: JupyterLab keeps the arrow keys that a drop-down list would need."""
    import ipywidgets as widgets

    return widgets.ToggleButtons(
        options=list(options), value=value, description=label, style={"button_width": button_width}
    )


def key_of(names: Mapping[str, Any], value: Any) -> str:
    """The name under which a value is offered."""
    return next(name for name, one in names.items() if one == value)


def checkbox(label: str, value: bool, **look: Any) -> Any:
    """A tick with its label."""
    import ipywidgets as widgets

    return widgets.Checkbox(value=value, description=label, **look)


def button(label: str, tooltip: str, **layout: str) -> Any:
    """A button with its label, and what it does."""
    import ipywidgets as widgets

    return widgets.Button(description=label, tooltip=tooltip, layout=widgets.Layout(**layout))


def mouse_button(label: str, tooltip: str, layout: Any) -> Any:
    """A button for the mouse, left out by the Tab key: the keyboard has other ways to the same."""
    import ipywidgets as widgets

    off_the_keyboard = {"tabbable": False} if hasattr(widgets.Button, "tabbable") else {}
    return widgets.Button(description=label, tooltip=tooltip, layout=layout, **off_the_keyboard)


# ---------------------------------------------------------------------- where they stand
def wide(width: str, description_width: str = "110px") -> dict[str, Any]:
    """Layout and style of a control: its width, and that of its description."""
    import ipywidgets as widgets

    return {"layout": widgets.Layout(width=width), "style": {"description_width": description_width}}


def wrapped(controls: Iterable[Any]) -> Any:
    """Controls in a row that goes on below where the page is narrow."""
    import ipywidgets as widgets

    return widgets.HBox(list(controls), layout=widgets.Layout(flex_flow="row wrap"))


def column(controls: Iterable[Any], **layout: str) -> Any:
    """Controls one below the other."""
    import ipywidgets as widgets

    return widgets.VBox(list(controls), layout=widgets.Layout(**layout))
