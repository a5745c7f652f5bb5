"""Tests that lines, markers, edges and labels of all figures have contrast, also with colour blindness."""

from itertools import combinations

import numpy as np
import pytest
from figure_contrast import contrast, faint
from figure_examples import CASES, drawn

from iocourse.course.explore.draw import palette
from iocourse.course.explore.draw.picture import Picture, Poly, Rect, Text
from iocourse.course.explore.draw.shapes import outline


@pytest.mark.parametrize("draw", [draw for _, draw in CASES], ids=[name for name, _ in CASES])
def test_everything_in_a_figure_can_be_seen(draw):
    assert faint(drawn(draw)) == []


# ---------------------------------------------------------------------- what is too faint is found
BLUE_AREA = Rect(0, 0, 60, 60, palette.BLUE)
FAINT = {
    "an orange line": [Poly(((0, 0), (90, 0)), palette.ORANGE)],
    "a sky-blue line": [Poly(((0, 0), (90, 0)), palette.SKY)],
    "a dashed line as pale as the grid": [Poly(((0, 0), (90, 0)), palette.GRID, 1, (4, 4))],
    "a line on an area": [BLUE_AREA, Poly(((70, 30), (90, 30), (30, 30)), palette.VERMILION)],
    "a yellow mark": [Poly(((0, 0), (9, 0), (9, 9)), "", 1, (), palette.YELLOW)],
    "an area without an edge": [Rect(0, 0, 60, 60, palette.SKY)],
    "an area with a faint edge": [Rect(0, 0, 60, 60, palette.SKY, "", palette.GRID)],
    "areas side by side": [Rect(0, 0, 60, 60, palette.SKY, "", ""), Rect(60, 0, 60, 60, palette.ORANGE)],
    "a frame on an area": [Rect(0, 0, 99, 99, palette.GREEN), Rect(9, 9, 9, 9, "", "", palette.VERMILION)],
    "vermilion letters": [Text(0, 40, "refused", colour=palette.VERMILION)],
    "dark letters on a dark area": [BLUE_AREA, Text(5, 40, "word")],
    "white letters beyond their area": [BLUE_AREA, Text(30, 40, "words, words", colour=palette.PAPER)],
}


def picture(elements):
    return Picture(200, 200, "T", "A.", "1", tuple(elements))


@pytest.mark.parametrize("elements", FAINT.values(), ids=FAINT)
def test_what_is_hard_to_see_is_found(elements):
    assert faint(picture(elements))


SEEN = {
    "a line of the palette": [Poly(((0, 0), (90, 0)), stroke.colour) for stroke in palette.STROKES],
    "an area with an edge": [Rect(0, 0, 60, 60, palette.SKY, "", palette.BLUE)],
    "an edge that another draws": [Rect(0, 0, 60, 60, palette.SKY), Rect(0, 0, 60, 60, "", "", palette.INK)],
    "a frame on any ground": [Rect(0, 0, 99, 99, palette.GREEN), *outline(Rect(9, 9, 9, 9))],
    "one area of two pieces": [Rect(x, 0, 9, 9, palette.BLUE) for x in (0, 9)],
}


@pytest.mark.parametrize("elements", SEEN.values(), ids=SEEN)
def test_what_is_easy_to_see_is_not_called_faint(elements):
    assert faint(picture(elements)) == []


# ---------------------------------------------------------------------- the palette
GROUNDS = (palette.PAPER, palette.FORBIDDEN, *palette.REGIMES.values())
LINES = [*palette.STROKES, *palette.BOUNDS, palette.BOUND]


@pytest.mark.parametrize("ground", GROUNDS)
def test_every_line_stands_out_on_every_ground(ground):
    assert min(contrast(stroke.colour, ground) for stroke in LINES) >= 3


def test_the_contrast_of_the_palette_is_that_of_the_tests():
    assert palette.contrast(palette.ORANGE, palette.PAPER) == contrast(palette.ORANGE, palette.PAPER)


def test_letters_can_be_read_on_any_colour():
    greys = [f"#{grey:02X}{grey:02X}{grey:02X}" for grey in range(256)]
    assert min(contrast(palette.ink_on(colour), colour) for colour in greys) >= 4.5


# What remains of linear red, green and blue for whom a kind of cone is missing (Machado, Oliveira and
# Fernandes 2009, severity 1).
SIGHT = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
APART = 10.0  # of CIELAB, in which 2 are just seen side by side; dash and marker differ besides


@pytest.mark.parametrize("matrix", SIGHT.values(), ids=SIGHT)
def test_colours_of_lines_differ_for_eyes_with_fewer_cones(matrix):
    places = [_lab(np.array(matrix) @ _light(stroke.colour)) for stroke in (*palette.STROKES, palette.BOUND)]
    assert min(np.linalg.norm(one - other) for one, other in combinations(places, 2)) >= APART


def _light(colour):
    share = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def _lab(light):
    """Convert linear sRGB to CIELAB, white point D65."""
    share = np.array(XYZ) @ np.clip(light, 0, 1) / (0.95047, 1, 1.08883)
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
