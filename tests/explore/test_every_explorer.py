"""Tests of all explorers: one redraw per change, named controls, and complete page data."""

import re
import sys
from fractions import Fraction
from html import unescape
from importlib import resources

import pytest
import skips
from IPython.core.formatters import DisplayFormatter

from iocourse.course import explore
from iocourse.course.explore import Picture
from iocourse.course.explore.draw.picture import Text
from iocourse.course.explore.widgets.explorer import EXPLORERS, VIEW

skips.unless_installed("anywidget")

explorers = pytest.mark.parametrize("make", EXPLORERS.values(), ids=EXPLORERS)


def other_value(control):
    """Return an option of a control other than its value."""
    return next(value for value in reversed(control.options.values()) if value != control.value)


def moved(explorer):
    """Return the visible controls with a value, by name."""
    return {
        name: control
        for name, control in explorer.controls.items()
        if control.kind != "button" and not control.hidden and len(control.options) > 1
    }


# Pictures by the figure's own name, of where the controls stand.
FIGURE = {
    "distributed_explorer": lambda s: explore.distributed_traffic(**s._asdict()),
    "kernel_explorer": lambda s: explore.kernel_explorer_picture(**s._asdict()),
    "tuning_table": lambda s: explore.tuning_table_picture(**s._asdict()),
    "tile_tuner": lambda s: explore.tile_tuner_picture(*s),
    "traffic_explorer": lambda s: explore.traffic_map(*s[:6], (s.low, s.high)),
}


@pytest.mark.parametrize("name", EXPLORERS)
def test_each_change_is_drawn_once_and_goes_all_the_way(name, monkeypatch):
    explorer = EXPLORERS[name]()
    drawn, draw = [], explorer._draw
    monkeypatch.setattr(explorer, "_draw", lambda: drawn.append(draw()))
    for control in moved(explorer).values():
        if control.disabled:  # it shows a value of the data, which a user cannot set
            continue
        drawn.clear()
        value = other_value(control)
        explorer.set(control.name, value)
        assert len(drawn) == 1, control
        assert explorer.value(control.name) == value
        assert explorer.svg == explorer.shown().picture.to_svg(), control
        if name in FIGURE:
            assert explorer.svg == FIGURE[name](explorer.state).to_svg(), control


# Which changes nothing where an explorer starts: a rule of a game whose optimum does not need it.
IDLE = {("pebble_player", "recompute")}


@pytest.mark.parametrize("name", EXPLORERS)
def test_each_control_changes_what_is_seen(name):
    for control in moved(EXPLORERS[name]()).values():
        explorer = EXPLORERS[name]()
        before = explorer.svg, explorer.words
        explorer.set(control.name, other_value(control))
        assert ((explorer.svg, explorer.words) == before) == ((name, control.name) in IDLE), control


@explorers
def test_looking_ahead_shows_nothing_of_what_it_finds(make):
    explorer = make()
    for name in explorer.ahead:
        explorer.set(name, other_value(explorer.controls[name]))
        page, shown = explorer.page(), explorer.shown()
        explorer._look_ahead(explorer._turn)
        assert explorer.page() == page and explorer.shown() == shown, name


@explorers
def test_every_button_has_something_to_do_and_every_control_a_name(make):
    explorer = make()
    buttons = {name for name, control in explorer.controls.items() if control.kind == "button"}
    assert buttons == set(explorer.buttons)
    for name, control in explorer.controls.items():
        assert control.label.strip(), name
        assert all(text.strip() for text in control.options), name
        assert control.kind == "button" or control.value in control.options.values()
    for name in buttons:
        explorer.press(name)
        assert explorer.controls[name].hidden or explorer.note in explorer.spoken, "it is heard what it did"
        assert explorer.svg == explorer.shown().picture.to_svg(), name


@explorers
def test_a_value_is_called_by_what_it_is_and_never_by_its_place(make):
    for control in moved(make()).values():
        if control.kind in ("slider", "player"):
            for text, value in control.options.items():
                said = float(Fraction(text.replace(",", "")))
                assert said == pytest.approx(value, rel=0.01) or control.kind == "player"


@explorers
def test_words_follow_the_controls_and_one_sentence_of_them_is_spoken(make):
    explorer = make()
    said = {explorer.page()["spoken"]}
    for name, control in moved(explorer).items():
        explorer.set(name, other_value(control))
        page = explorer.page()
        assert page["words"] == explorer.words and page["svg"] == explorer.svg
        assert page["spoken"].strip() and not re.search("<[^>]+>|&[a-z]+;", page["spoken"])
        said.add(page["spoken"])
    assert len(said) > 1


@explorers
def test_no_sentence_stands_beside_the_picture_and_in_it(make):
    explorer = make()
    drawn = " ".join(one.text for one in explorer.picture.elements if isinstance(one, Text))
    lines = re.split("<br>|<[/]?(?:div|table|tr)[^>]*>", explorer.words)
    said = [unescape(re.sub("<[^>]+>", "", line)) for line in lines if line]
    assert [line for line in said if line in drawn] == []


@explorers
def test_what_can_be_grabbed_lies_in_the_picture_and_changes_it(make):
    explorer = make()
    wide, high = explorer.picture.width, explorer.picture.height
    for grab, told in zip(explorer.grabs, explorer.page()["grabs"], strict=True):
        (x, y), (left, top, width, height, cursor) = grab.middle, told
        assert 0 <= x <= wide and 0 <= y <= high
        assert ((left + width / 2) * wide, (top + height / 2) * high) == pytest.approx((x, y))
        assert min(grab.width, grab.height) >= 20 and cursor, "too small for a finger"


@explorers
def test_what_a_script_asks_wrongly_is_refused_in_a_sentence(make):
    explorer = make()
    before = explorer.page()
    with pytest.raises(ValueError, match="unknown control 'size'; expected one of "):
        explorer.set("size", 3)
    with pytest.raises(ValueError, match="unknown button 'size'; expected one of"):
        explorer.press("size")
    with pytest.raises(ValueError, match="unknown touch 'hover'; expected one of down, move, up"):
        explorer.touched("hover", 0, 0)
    for name in moved(explorer):
        with pytest.raises(ValueError, match=f"{name} must be .*, got 'no such'"):
            explorer.set(name, "no such")
    assert explorer.page() == before


@explorers
def test_a_message_of_the_page_is_answered_also_where_it_is_behind(make):
    explorer = make()
    widget = explorer.widget
    name, control = next(iter(moved(explorer).items()))
    text = next(text for text, value in control.options.items() if value == other_value(control))
    explorer._heard(widget, {"turn": "me 1", "do": "set", "name": name, "text": text}, [])
    assert widget.page["turn"] == "me 1" and control.options[text] == control.value
    assert widget.page["svg"] == explorer.shown().picture.to_svg()
    explorer._heard(widget, {"turn": "me 2", "do": "set", "name": name, "text": "no longer there"}, [])
    assert widget.page["turn"] == "me 2" and control.options[text] == control.value
    explorer.close()


def test_two_explorers_in_one_page_do_not_hear_each_other():
    one, other = (EXPLORERS["tile_tuner"]() for _ in range(2))
    assert one.widget.model_id != other.widget.model_id
    one._heard(one.widget, {"turn": "me 1", "do": "set", "name": "M", "text": "8,192"}, [])
    assert one.value("M") == 8192 and other.value("M") == 16384
    assert other.widget.page["turn"] == ""


def test_a_closed_explorer_has_no_widget_and_still_answers():
    tuner = EXPLORERS["tile_tuner"]()
    comm = tuner.widget.comm
    tuner.close()
    assert comm._closed and tuner._widget is None
    tuner.set("M", 8192)
    assert "8,192" in tuner.words


@explorers
def test_a_notebook_gets_the_widget_a_picture_and_text(make, monkeypatch):
    explorer = make()
    data, metadata = DisplayFormatter().format(explorer)
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert data[VIEW]["model_id"] == explorer.widget.model_id
    assert explorer.widget.page == explorer.page()
    monkeypatch.setenv("IOCOURSE_WIDGETS", "0")
    alone = make()  # without widgets it is the picture that a page without a kernel shows
    assert isinstance(alone, Picture) and alone == explorer.still()
    assert alone.numbers in data["text/plain"]
    assert metadata["image/png"]["alt"] in data["text/plain"]


@explorers
def test_where_anywidget_is_missing_there_is_the_picture(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    assert isinstance(make(), Picture)


@explorers
def test_its_name_is_the_call_that_makes_it(make):
    explorer = make()
    again = eval(repr(explorer), {"explore": explore})
    assert type(again) is type(explorer) and again.state == explorer.state


def test_the_page_code_knows_nothing_of_any_explorer():
    code = (
        resources.files("iocourse.course.explore.widgets").joinpath("explorer.js").read_text(encoding="utf-8")
    )
    theirs = ("tile", "mask", "pebble", "schedule", "kernel", "roofline", "memory", *EXPLORERS)
    assert not [name for name in theirs if re.search(rf"\b{name}\b", code)]


def test_a_free_slider_takes_what_stands_between_its_positions():
    tuner = EXPLORERS["tile_tuner"]()
    tuner.set("Br", 37)
    texts = list(tuner.controls["Br"].options)
    assert texts[texts.index("32") :][:3] == ["32", "37", "40"]
    tuner.set("Br", 40)
    assert "37" not in tuner.controls["Br"].options
    for value in (0, 2**14, 1.5):
        with pytest.raises(ValueError, match=f"Br must be an integer from 1 to 8,192, got {value}"):
            tuner.set("Br", value)
