"""Tests of `loomis_whitney`: cubes and squares agree with the available words; bad choices are named."""

import numpy as np
import pytest
from figure_layout import texts
from hypothesis import given
from hypothesis import strategies as st

from iocourse.course import explore
from iocourse.course.explore.draw import palette
from iocourse.course.explore.draw.picture import Poly


def filled(picture, colour):
    return [e for e in picture.elements if isinstance(e, Poly) and e.fill == colour]


def drawn_by_lot(seed, m, n, k):
    rng = np.random.default_rng(seed)
    return rng.random((m, k)) < 0.6, rng.random((k, n)) < 0.6, rng.random((m, n)) < 0.6


@given(st.integers(0, 2**32), *3 * [st.integers(1, 4)])
def test_every_multiply_add_is_a_cube_and_every_word_a_tile(seed, m, n, k):
    a, b, c = words = drawn_by_lot(seed, m, n, k)
    picture = explore.loomis_whitney({"by lot": words})
    made = int(np.einsum("il,lj,ij->", 1 * a, 1 * b, 1 * c))
    for colour, there in ((palette.SKY, a), (palette.ORANGE, b), (palette.GREEN, c)):
        assert len(filled(picture, colour)) == there.sum() + made
    numbers = picture.numbers.split()
    counts = [int(a.sum()), int(b.sum()), int(c.sum())]
    assert numbers[-6:-1] == [str(x) for x in (*counts, sum(counts), made)]
    assert float(numbers[-1]) == pytest.approx(np.prod(counts) ** 0.5, abs=0.005)
    assert made <= np.prod(counts) ** 0.5 + 1e-9


def test_a_cube_throws_its_shadows_along_the_axes():
    """Each side of a cube is the square on its wall, moved along one axis."""
    words = np.zeros((3, 2)), np.zeros((2, 4)), np.zeros((3, 4))
    words[0][2, 1] = words[1][1, 3] = words[2][2, 3] = 1
    picture = explore.loomis_whitney({"one": words})
    for colour, along in (
        (palette.SKY, (1, 10 / 22)),
        (palette.ORANGE, (-1, 10 / 22)),
        (palette.GREEN, (0, -1)),
    ):
        tile, face = filled(picture, colour)
        moved = np.subtract(sorted(face.points), sorted(tile.points))
        assert np.allclose(moved, moved[0]) and np.linalg.det([moved[0], along]) == pytest.approx(0, abs=1e-9)
        assert np.dot(moved[0], along) > 0


def test_labels_count_one_as_one():
    said = set(texts(explore.loomis_whitney({"x": [[[1]], [[1]], [[1]]]})))
    assert {"x: 1 multiply-add", "A: 1 word", "B: 1 word", "C: 1 word"} <= said


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "choices must contain at least one choice"),
        ({"x": [np.ones((2, 2))]}, r"choices\['x'\] must be three matrices"),
        ({"x": 3 * [np.ones(2)]}, "three matrices"),
        ({"x": 3 * [np.ones((0, 2))]}, "three matrices"),
        ({"x": [np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 3))]}, r"a \(m, k\), b \(k, n\), c \(m, n\)"),
        ({"x": 3 * [np.ones((7, 7))]}, "at most 6 words along an edge, got a box of 7 x 7 x 7"),
    ],
)
def test_a_wrong_choice_is_named(choices, message):
    with pytest.raises(ValueError, match=message):
        explore.loomis_whitney(choices)
