"""What is drawn follows the key: a colour means what the key says, and all that the key says is drawn.

A key is made of samples, small boxes or pieces of a line, each with its words to the right. A colour may also
be said by a name to the left of what has it, such as that of a bar. A name that stands in the key has the
key's colour everywhere.
"""

import re

import pytest
from figure_contrast import TINTS
from figure_examples import CASES, drawn
from figure_layout import box_of as box_of_text

from iocourse.explore.draw import palette
from iocourse.explore.draw.picture import Poly, Raster, Rect, Text

HATCHES = {"read": "", "written": "\\"}  # said of a bar of any colour
GROUND = TINTS | {palette.INK, palette.QUIET, palette.GRID, palette.SUM, palette.BLACK}

pictures = pytest.mark.parametrize(("name", "draw"), CASES, ids=[name for name, _ in CASES])


# ------------------------------------------------------------------ finding the key
def key_of(picture):
    """The elements of each sample, and its words."""
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
    """The first part of a bar of several."""
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
    """What stands to the left of a mark, on its line and no more than so many pixels away."""
    left, top, _, bottom = box_of(mark)
    for text in elements:
        if isinstance(text, Text) and text not in labels and top <= text.y <= bottom + 4:
            near = text.anchor == "end" and left - within <= text.x <= left + 1
            if near or (text.x == 18 and box_of(text)[2] < left):
                return text.text
    return ""


def looks(one):
    """Colour, and hatch or dash, of an area and of a line without one."""
    if isinstance(one, Rect) and one.fill:
        yield one.fill, one.hatch
    elif isinstance(one, Poly):
        yield (one.fill, "") if one.fill else (one.stroke, one.dash)
    elif isinstance(one, Raster):
        yield from {("#" + one.pixels[at : at + 3].hex().upper(), "") for at in range(0, len(one.pixels), 3)}


# ------------------------------------------------------------------ the laws
STAYS = {  # words of a key that stay while a reader steps or drags: nothing of the kind may be there just now
    "low_rank_explorer_picture": {"p is not positive"},
    "pebbles": {"red pebble: in fast memory", "output, to be stored", "the vertex of this move"},
    "roofline_explorer_picture": {"measured"},
}
SAID_ELSEWHERE = {  # colours that no key says, and where the reader finds what they mean
    ("low_rank_explorer_picture", palette.VERMILION): "the only curve of its chart, whose heading names it",
    ("blocked_product", "#EFEFEF"): "what passes in the end, of which the key names the part at work",
    ("lowrank_passes", palette.PURPLE): "the square, which has its name and size written on it",
    ("pebbles", "#8C8C8C"): "the edges of the graph",
    ("resident_and_streamed", "#E3F1FA"): "a light band that goes on from the block that stays",
    ("tile_tuner_picture", palette.INDIGO): "the pairs of tiles that just fit, said below their chart",
    ("tile_tuner_picture", palette.VERMILION): "too much, said in words where it happens",
}


def drawn_in(picture, key):
    """The looks of everything beside the samples, each with one element that has it."""
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
        assert stays or hatch_alone or as_shown, f"the key says {text.text!r}, and nothing is drawn so"


@pictures
def test_each_colour_is_said_in_the_key_or_beside_it(name, draw):
    picture = drawn(draw)
    key = key_of(picture)
    there, labels = drawn_in(picture, key), {text for _, text in key}
    said = GROUND | {look[0] for sample, _ in key for one in sample for look in looks(one)}
    said |= {look[0] for look, one in there.items() if name_of(one, picture.elements, labels)}
    elsewhere = {colour for figure, colour in SAID_ELSEWHERE if figure == name.rsplit("-", 1)[0]}
    unsaid = sorted({look[0] for look in there} - said - elsewhere) if key else []
    assert not unsaid, f"the key {[text.text for text in labels]} does not say what {unsaid} mean"


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
                        f"{text.text} is {seen}, and not as the key says"
                    )


def names_in(label):
    """What a label names: `Q 4,096`, `Q: 4,096` and `stay: Q and O`."""
    head, _, tail = label.partition(": ")
    if tail and not re.search(r"\d", tail):
        return re.split(", | and ", tail)
    return [re.sub(r" [\d,]+$", "", head)]


def named_by(elements, at):
    """What a name stands at: the bar to its right, or what is drawn just before it."""
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
