"""Tests of `roofline`: points are on the roofs, measured rates at their values; bad input is named."""

import subprocess
import sys
from itertools import pairwise

import pytest
from figure_layout import texts
from hypothesis import assume, given
from hypothesis import strategies as st

from iocourse.course import explore
from iocourse.course.explore.draw.palette import INK, STROKES
from iocourse.course.explore.draw.picture import Poly
from iocourse.course.explore.draw.text import words
from iocourse.gpu import CHIPS

arches = st.sampled_from(list(CHIPS))
intensities = st.floats(1e-3, 1e6)


def centre(polygon):
    xs, ys = zip(*polygon.points, strict=True)
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def roof_of(picture, chip=0):
    """Return the three corners of the roof of a chip in pixels."""
    colour = STROKES[chip].colour
    return next(
        e.points for e in picture.elements if isinstance(e, Poly) and e.stroke == colour and not e.fill
    )


def dots(picture, colour):
    return [centre(e) for e in picture.elements if isinstance(e, Poly) and e.fill == colour]


def on(line, x):
    """Return the height of a line at x."""
    (a, low), (b, high) = next((p, q) for p, q in pairwise(line) if p[0] <= x <= q[0])
    return low + (high - low) * (x - a) / (b - a)


@given(arches, intensities)
def test_a_point_stands_on_the_roof_and_the_numbers_say_how_high(arch, intensity):
    chip = CHIPS[arch]
    picture = explore.roofline(arch, {"kernel": intensity})
    (x, y), *_ = dots(picture, STROKES[0].colour)
    assert y == pytest.approx(on(roof_of(picture), x), abs=0.5)
    allowed = min(chip.tensor_tflops, intensity * chip.gbytes_per_s * 1e9 / 1e12)
    limit = "memory" if allowed < chip.tensor_tflops else "products"
    assert picture.numbers.splitlines()[4].split()[-2:] == [words(allowed), f"({limit})"]


@given(intensities, st.floats(1e-3, 1e5))
def test_a_measured_point_stands_above_the_roof_only_if_it_was_measured_there(intensity, measured):
    allowed = min(989, intensity * 4.8)
    assume(abs(measured / allowed - 1) > 1e-3)
    picture = explore.roofline(90, {"kernel": (intensity, measured)})
    (x, y), *_ = dots(picture, STROKES[0].colour)
    ((at, height),) = dots(picture, INK)
    assert at == pytest.approx(x)
    assert (height < y) == (measured > allowed)
    assert "◆" in next(text for text in texts(picture) if "kernel" in text)


def test_rates_ten_times_apart_stand_equally_far_apart():
    heights = [dots(explore.roofline(90, {"a": (100, 10), "b": (100, 100), "c": (100, 1000)}), INK)]
    (_, a), (_, b), (_, c) = sorted(heights[0], reverse=True, key=lambda at: at[1])
    assert a - b == pytest.approx(b - c) and a > b


def test_the_words_say_which_share_of_the_roof_was_measured():
    assert "the measured rate is 50% of that" in explore.roofline(100, {"made up": (1000, 1125)}).alt


def test_several_chips_share_the_points():
    picture = explore.roofline([75, CHIPS[90]], {"a": 10, "b": 500})
    assert [len(dots(picture, STROKES[k].colour)) for k in (0, 1)] == [3, 3]  # and one in the key
    assert "3.2 (memory)" in picture.numbers and "989 (products)" in picture.numbers


def test_only_chips_without_tensor_cores_in_triton_carry_a_caveat():
    caveat = "Triton uses no tensor cores on a T4"
    assert caveat in explore.roofline([75, 80], {}).text and caveat not in explore.roofline([80, 90], {}).text


@pytest.mark.parametrize(
    ("chips", "points", "message"),
    [
        ([], {}, "chips must contain at least one"),
        (86, {}, "arch must be one of 75, 80, 89, 90, 100; got 86"),
        (90, {"x": 0}, r"points\['x'\] must be FLOP per byte, .*, got 0"),
        (90, {"x": float("inf")}, r"points\['x'\] must be FLOP per byte, .*, got inf"),
        (90, {"x": (3, -1)}, r"points\['x'\] must be FLOP per byte, .*, got \(3, -1\)"),
        (90, {"x": (1, 2, 3)}, r"points\['x'\] must be FLOP per byte"),
        ([75, 90], {"x": (3, 4)}, "chips must be the one chip on which the TFLOP/s of points were measured"),
    ],
)
def test_bad_input_is_named(chips, points, message):
    with pytest.raises(ValueError, match=message):
        explore.roofline(chips, points)


def test_the_pictures_need_neither_torch_nor_triton():
    code = "import sys, iocourse.course.explore; print({'torch', 'triton', 'matplotlib'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "set()"
