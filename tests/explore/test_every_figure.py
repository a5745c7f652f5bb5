"""Tests of all figures: alternative text, reproducible bytes, and nothing cut off."""

import base64
import struct
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pkgutil import iter_modules

import matplotlib
import pytest
from figure_examples import CASES, EXAMPLES, drawn, drawn_anew
from figure_layout import check_layout
from long_runs import many

from iocourse.course import explore
from iocourse.course.explore import FIGURES, Picture, figures, widgets
from iocourse.course.explore.draw import palette
from iocourse.course.explore.draw.picture import Poly, Raster, Rect, Text, hatch_lines
from iocourse.course.explore.widgets import controls, explorer
from iocourse.course.explore.widgets.explorer import EXPLORERS, Explorer

SVG = "{http://www.w3.org/2000/svg}"
KILOBYTES = 68  # a map of all ten backward schedules and their bounds

pictures = pytest.mark.parametrize("draw", [draw for _, draw in CASES], ids=[name for name, _ in CASES])


def test_every_public_figure_has_examples():
    assert {name.rsplit("-", 1)[0] for name, _ in CASES} == set(FIGURES)


def test_figures_and_explorers_are_found_in_their_files():
    explorers = {kind.__module__ for kind in Explorer.__subclasses__()}
    assert {draw.__module__ for draw in FIGURES.values()} == _modules(figures)
    assert explorers == {make.__module__ for make in EXPLORERS.values()}
    assert explorers == _modules(widgets) - {controls.__name__, explorer.__name__}
    faces = {*FIGURES, *EXPLORERS, *(kind.__name__ for kind in Explorer.__subclasses__())}
    assert set(explore.__all__) == faces | {"FIGURES", "Picture"} == set(dir(explore))
    assert all(getattr(explore, name) for name in faces)
    with pytest.raises(AttributeError, match="no attribute 'no_such_figure'"):
        _ = explore.no_such_figure


def _modules(folder):
    return {file.name for file in iter_modules(folder.__path__, f"{folder.__name__}.")}


@pictures
def test_a_figure_says_in_words_what_it_shows(draw):
    picture = drawn(draw)
    assert picture.alt.endswith(".") and len(picture.alt.split()) >= 8
    assert picture.numbers.strip() and any(character.isdigit() for character in picture.numbers)
    assert repr(picture) == picture.text == drawn_anew(draw).text


@pictures
def test_svg_is_well_formed_and_carries_title_and_description(draw):
    picture = drawn(draw)
    svg = picture.to_svg()
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == picture.title
    assert root.find(f"{SVG}desc").text == picture.alt
    assert svg == drawn_anew(draw).to_svg()


@pytest.mark.parametrize("name", FIGURES)
def test_png_is_small_and_carries_no_date(name):
    """Only the example with the most elements is rendered per figure, because a PNG is slow."""
    examples = [drawn(draw) for case, draw in CASES if case.rsplit("-", 1)[0] == name]
    for picture in many([max(examples, key=lambda one: len(one.elements))], examples):
        png = picture.to_png()
        assert png.startswith(b"\x89PNG") and len(png) <= KILOBYTES * 1000
        assert set(chunks_of(png)) == {b"IHDR", b"PLTE", b"IDAT", b"IEND"}


def chunks_of(png):
    """Yield the kinds of the chunks of a PNG, parsed because their letters may also occur in pixel data."""
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8]
        at += length + 12


def test_png_is_the_same_on_every_call():
    """One figure with each kind of element suffices, because SVG and PNG use the same elements."""
    missing = {Rect, Poly, Text, Raster}
    for _, draw in CASES:
        kinds = {type(element) for element in drawn(draw).elements}
        if kinds & missing:
            assert draw().to_png() == draw().to_png()
            missing -= kinds
    assert not missing


@pictures
def test_nothing_is_cut_off_and_no_text_lies_on_another(draw):
    check_layout(drawn(draw))


@pictures
def test_text_is_large_enough_to_read(draw):
    assert all(text.size >= 9 for text in drawn(draw).elements if isinstance(text, Text))


def test_in_a_notebook_a_figure_is_a_png_with_alternative_text():
    picture = EXAMPLES["bars"][0]()
    data, metadata = picture._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == picture.to_png()
    assert data["text/plain"] == picture.text
    assert metadata["image/png"]["alt"] == picture.alt


def test_live_a_figure_is_an_svg_image_with_its_words(monkeypatch):
    picture, shown = EXAMPLES["bars"][0](), []
    monkeypatch.setattr(
        "iocourse.course.explore.draw.picture.display_then_replace", lambda *given: shown.append(given)
    )
    picture._ipython_display_()
    saved, metadata = picture._repr_mimebundle_()
    assert shown == [(saved, picture.to_html(), metadata)] and "text/html" not in saved
    image = ET.fromstring(f"{picture.to_html().removesuffix('>')}/>")
    assert (image.tag, image.get("alt"), image.get("title")) == ("img", picture.alt, picture.title)
    kind, data = image.get("src").split(";base64,")
    assert kind == "data:image/svg+xml" and base64.b64decode(data).decode() == picture.to_svg()


def test_the_users_matplotlib_settings_change_nothing():
    png = EXAMPLES["bars"][0]().to_png()
    with matplotlib.rc_context({"font.size": 30, "path.sketch": (3, 100, 2), "savefig.dpi": 10}):
        assert EXAMPLES["bars"][0]().to_png() == png


def test_dollar_signs_and_angle_brackets_are_text():
    draw = FIGURES["bars"]
    picture = draw({"<$\\frac$> & co": 1.0}, title="a < b & $x_1$")
    assert ET.fromstring(picture.to_svg()).find(f"{SVG}title").text == "a < b & $x_1$"
    assert picture.to_png()


@pytest.mark.parametrize("missing", ["title", "alt", "numbers"])
def test_a_picture_without_words_is_refused(missing):
    words = {"title": "T", "alt": "A.", "numbers": "1"} | {missing: " "}
    with pytest.raises(ValueError, match=f"{missing} of a picture must not be empty"):
        Picture(10, 10, **words, elements=())


# ---------------------------------------------------------------------- without colour
def _grey(colour):
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_areas_differ_without_colour():
    # O and its accumulator are one thing in two places, and so are row statistics, m, l and LSE.
    kinds = ("Q", "K", "V", "O", "row statistics", "scores", "S", "P", "temporary")
    for one, other in combinations([palette.ARRAY_FILLS[kind] for kind in kinds], 2):
        assert one.hatch != other.hatch or abs(_grey(one.colour) - _grey(other.colour)) > 25


def test_lines_differ_without_colour():
    assert len({stroke.dash for stroke in palette.STROKES}) == len(palette.STROKES)
    assert len({stroke.marker for stroke in palette.STROKES}) == len(palette.STROKES)


def test_the_ramp_gets_steadily_darker():
    greys = [_grey(palette.ramp(k / 50)) for k in range(51)]
    assert all(a > b for a, b in pairwise(greys))


@pytest.mark.parametrize("hatch", ["/", "\\", "-", "|", "x", "."])
def test_hatches_stay_inside_their_rectangle(hatch):
    rect = Rect(3.5, 10, 41, 23, "#FFFFFF", hatch)
    lines = hatch_lines(rect)
    assert lines
    for line in lines:
        for x, y in line:
            assert 3.5 <= x <= 44.5 and 10 <= y <= 33
