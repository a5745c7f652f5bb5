"""Tests of legends: colours are used as in the legend, and each entry of the legend is drawn.

A legend consists of samples, small boxes or pieces of a line, each with a label to the right. A colour may
also be explained by a name to the left of an element, such as a bar. A name in the legend has its colour
everywhere.
"""

import re

import pytest
from figure_contrast import TINTS
from figure_examples import CASES, drawn
from figure_layout import box_of as box_of_text

from iocourse.course.explore.draw import palette
from iocourse.course.explore.draw.picture import Poly, Raster, Rect, Text

HATCHES = {"read": "", "written": "\\"}  # for bars of any colour
GROUND = TINTS | {palette.INK, palette.QUIET, palette.GRID, palette.SUM, palette.BLACK}

pictures = pytest.mark.parametrize(("name", "draw"), CASES, ids=[name for name, _ in CASES])


# ------------------------------------------------------------------ finding the key
def key_of(picture):
    """Return the legend of a figure: the elements of each sample, and its label."""
    found, labels = [], set()
    for at, text in enumerate(picture.elements):
        if isinstance(text, Text) and text.anchor == "start":
            before = picture.elements[:at]
            sample = [one for one in before[-3:] if _is_sample(one, text)]
            if sample and not name_of(_whole(sample[0], before), before, labels, within=14):
                labels.add(text)
                found.append((sample, text))
    return found


def _is_sample(one, text):
    if isinstance(one, (Text, Raster)) or not (one.stroke or one.fill):
        return False
    left, top, right, bottom = box_of(one)
    middle = text.y - 0.36 * text.size
    beside = 4 <= text.x - right <= 24 and right - left <= 40 and abs((top + bottom) / 2 - middle) <= 3
    return beside and bottom - top <= 24 and text.x - left >= 16


def _whole(part, elements):
    """Return the leftmost rectangle of the stacked bar that `part` belongs to."""
    for one in reversed(elements):
        if (
            isinstance(one, Rect)
            and isinstance(part, Rect)
            and (one.x + one.width, one.y) == (part.x, part.y)
        ):
            part = one
    return part


def box_of(element):
    if isinstance(element, Text):
        return box_of_text(element)
    if isinstance(element, Poly):
        xs, ys = zip(*element.points, strict=True)
        return min(xs), min(ys), max(xs), max(ys)
    return element.x, element.y, element.x + element.width, element.y + element.height


def name_of(mark, elements, labels, within=10_000):
    """Return the text to the left of an element on its line, at most `within` pixels away, or ""."""
    left, top, _, bottom = box_of(mark)
    for text in elements:
        if isinstance(text, Text) and text not in labels and top <= text.y <= bottom + 4:
            near = text.anchor == "end" and left - within <= text.x <= left + 1
            if near or (text.x == 18 and box_of(text)[2] < left):
                return text.text
    return ""


def looks(one):
    """Yield (colour, hatch or dash) of an area, or of a line without fill."""
    if isinstance(one, Rect) and one.fill:
        yield one.fill, one.hatch
    elif isinstance(one, Poly):
        yield (one.fill, "") if one.fill else (one.stroke, one.dash)
    elif isinstance(one, Raster):
        yield from {("#" + one.pixels[at : at + 3].hex().upper(), "") for at in range(0, len(one.pixels), 3)}


# ------------------------------------------------------------------ the laws
STAYS = {  # permanent entries of a legend: the figure need not show an element of this kind
    "low_rank_explorer_picture": {"p is not positive"},
    "pebbles": {"red pebble: in fast memory", "output, to be stored", "the vertex of this move"},
}
SAID_ELSEWHERE = {  # colours outside the legend, and where they are explained
    ("low_rank_explorer_picture", palette.VERMILION): "the only curve of its chart, whose heading names it",
    ("blocked_product", "#EFEFEF"): "everything streamed; the legend names the part of the current step",
    ("kernel_explorer_picture", palette.BLUE): "recorded launches, each named at the right of the chart",
    (
        "kernel_explorer_picture",
        palette.RUST,
    ): "this tile, named at the right of the chart and outlined in the map",
    ("lowrank_passes", palette.PURPLE): "the square, labelled with name and size",
    ("pebbles", "#8C8C8C"): "the edges of the graph",
    ("resident_and_streamed", "#E3F1FA"): "a light band that continues the resident block",
    ("tile_tuner_picture", palette.INDIGO): "the largest tiles that fit, explained below the chart",
    ("tile_tuner_picture", palette.VERMILION): "over the limit, explained next to it",
    ("tuning_table_picture", palette.BLUE): "all configurations; the legend names the shapes by their stages",
}


def drawn_in(picture, key):
    """Return the styles of all elements other than the samples, each with one element."""
    samples = {id(one) for sample, _ in key for one in sample}
    return {look: one for one in picture.elements if id(one) not in samples for look in looks(one)}


@pictures
def test_what_the_key_says_is_drawn(name, draw):
    picture = drawn(draw)
    key = key_of(picture)
    there = drawn_in(picture, key)
    colours, hatches = {look[0] for look in there}, {look[1] for look in there}
    for sample, text in key:
        stays = text.text in STAYS.get(name.rsplit("-", 1)[0], ()) or re.search(r": 0( tiles)?$", text.text)
        hatch_alone = text.text in HATCHES and HATCHES[text.text] in hatches
        here = [(one, look) for one in sample for look in looks(one)]
        as_shown = any(look in there or (isinstance(one, Poly) and look[0] in colours) for one, look in here)
        assert stays or hatch_alone or as_shown, (
            f"the legend has {text.text!r}, but nothing is drawn in this style"
        )


@pictures
def test_each_colour_is_said_in_the_key_or_beside_it(name, draw):
    picture = drawn(draw)
    key = key_of(picture)
    there, labels = drawn_in(picture, key), {text for _, text in key}
    said = GROUND | {look[0] for sample, _ in key for one in sample for look in looks(one)}
    said |= {look[0] for look, one in there.items() if name_of(one, picture.elements, labels)}
    elsewhere = {colour for figure, colour in SAID_ELSEWHERE if figure == name.rsplit("-", 1)[0]}
    unsaid = sorted({look[0] for look in there} - said - elsewhere) if key else []
    assert not unsaid, f"the legend {[text.text for text in labels]} does not explain {unsaid}"


@pictures
def test_a_name_in_the_key_has_its_colour_everywhere(name, draw):
    picture = drawn(draw)
    key = key_of(picture)
    labels = {text for _, text in key}
    samples = {id(one) for sample, _ in key for one in sample}
    colour = {
        one: look[0] for sample, text in key for one in names_in(text.text) for look in looks(sample[0])
    }
    for at, text in enumerate(picture.elements):
        if isinstance(text, Text) and text.text in colour and text not in labels:
            for one in named_by(picture.elements, at):
                if id(one) not in samples:
                    seen = {look[0] for look in looks(one)}
                    assert seen <= {colour[text.text], *GROUND}, (
                        f"{text.text} is {seen}, unlike in the legend"
                    )


def names_in(label):
    """Return the names in a label: `Q 4,096`, `Q: 4,096` and `resident: Q and O`."""
    head, _, tail = label.partition(": ")
    if tail and not re.search(r"\d", tail):
        return re.split(", | and ", tail)
    return [re.sub(r" [\d,]+$", "", head)]


def named_by(elements, at):
    """Yield the elements that a name labels: the bar to its right, or what was drawn just before it."""
    text, step = elements[at], 1 if elements[at].anchor == "end" else -1
    for one in elements[at + step :: step]:
        if not isinstance(one, Rect):
            return
        _, top, _, bottom = box_of(one)
        if step == 1 and not top <= text.y <= bottom + 4:
            return
        yield one
        if step == -1:
            return


def test_the_laws_look_at_most_figures():
    with_key = {name.rsplit("-", 1)[0] for name, draw in CASES if key_of(drawn(draw))}
    assert len(with_key) >= 25 and {figure for figure, _ in SAID_ELSEWHERE} | set(STAYS) <= with_key
