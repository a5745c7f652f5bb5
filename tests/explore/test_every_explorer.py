"""What holds for every widget: it draws once for each change, into HTML, and is seen without a kernel too."""

import ipywidgets
import pytest

from iocourse.explore import Picture
from iocourse.explore.widgets.explorer import EXPLORERS, VIEW, Explorer

explorers = pytest.mark.parametrize("make", EXPLORERS.values(), ids=EXPLORERS)
BESIDE = {"play"}  # moves the slider of the step, in the page


def inside(widget):
    """A widget and all that stand in it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from inside(child)


def other_value(control):
    """A value that the control does not stand on."""
    if hasattr(control, "options"):
        values = [option[1] if isinstance(option, tuple) else option for option in control.options]
        return next(value for value in reversed(values) if value != control.value)
    if isinstance(control.value, bool):
        return not control.value
    return control.max if control.value != control.max else control.min


@explorers
def test_each_change_is_drawn_once_and_goes_all_the_way(make, monkeypatch):
    explorer = make()
    assert isinstance(explorer, Explorer)
    drawn, draw = [], explorer._draw
    monkeypatch.setattr(explorer, "_draw", lambda: drawn.append(draw()))
    for name, control in explorer.controls.items():
        if name in explorer.actions() or name in BESIDE or control.layout.display == "none":
            continue
        drawn.clear()
        control.value = other_value(control)
        assert len(drawn) == 1, name
        assert explorer.view.value == explorer.picture.to_svg(), name


@explorers
def test_every_button_has_something_to_do_and_every_control_a_name(make):
    explorer = make()
    buttons = {name for name, control in explorer.controls.items() if isinstance(control, ipywidgets.Button)}
    assert buttons == set(explorer.actions())
    shown = list(inside(explorer.box))
    for name, control in explorer.controls.items():
        assert control.description or len(control.options) > 1, name
        assert control in shown, name


@explorers
def test_it_draws_into_html_and_never_into_output(make):
    explorer = make()
    shown = list(inside(explorer.box))
    assert explorer.view in shown and explorer.words in shown
    assert type(explorer.view) is type(explorer.words) is ipywidgets.HTML
    assert ipywidgets.Output not in {type(widget) for widget in shown}


@explorers
def test_a_notebook_gets_the_widget_a_picture_and_text(make, monkeypatch):
    explorer, shown = make(), []
    monkeypatch.setattr("IPython.display.display", lambda data, **named: shown.append((data, named)))
    explorer._ipython_display_()
    ((data, named),) = shown
    assert named["raw"] is True and set(data) == {VIEW, "image/png", "text/plain"}
    assert data[VIEW]["model_id"] == explorer.box.model_id
    monkeypatch.setenv("IOCOURSE_WIDGETS", "0")
    alone = make()  # without widgets it is the picture that a page without a kernel shows
    assert isinstance(alone, Picture) and alone.numbers in data["text/plain"]
    assert named["metadata"]["image/png"]["alt"] in data["text/plain"]


@explorers
def test_its_name_says_where_its_controls_stand(make):
    explorer = make()
    assert repr(explorer).startswith(f"{type(explorer).__name__}({explorer.setting._fields[0]}=")
