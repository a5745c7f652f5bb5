"""Tests of `program_grid`: each element belongs to one program, and lanes out of bounds are hatched."""

import pytest
from figure_layout import texts
from hypothesis import given
from hypothesis import strategies as st

from iocourse.course import explore
from iocourse.course.explore.draw.palette import FORBIDDEN, VERMILION
from iocourse.course.explore.draw.picture import Rect, Text

small = st.integers(1, 60)
blocks = st.integers(4, 32)


def shades(picture):
    """Return the parts of tiles inside the matrix."""
    blank = ("", "#FFFFFF", FORBIDDEN)
    return [e for e in picture.elements if isinstance(e, Rect) and e.fill not in blank]


def area(rects):
    return sum(rect.width * rect.height for rect in rects)


@given(small, small, blocks, blocks)
def test_tiles_cover_the_matrix_once_and_the_rest_is_masked(rows, columns, BM, BN):
    picture = explore.program_grid(rows, columns, BM, BN)
    down, across = -(-rows // BM), -(-columns // BN)
    lanes = down * across * BM * BN
    assert len(shades(picture)) == down * across
    everything = next(e for e in picture.elements if isinstance(e, Rect) and e.fill == FORBIDDEN)
    assert area(shades(picture)) / area([everything]) == pytest.approx(rows * columns / lanes)
    said = [line.split("  ")[-1].strip() for line in picture.numbers.splitlines()]
    assert said[0].endswith(f"= {down * across:,}")
    assert said[1:3] == [f"{lanes:,}", f"{rows * columns:,}"]
    assert said[3].split()[0] == f"{lanes - rows * columns:,}"


def test_without_ragged_edges_nothing_is_spoken_of_as_masked():
    picture = explore.program_grid(64, 64, 32, 16)
    assert "No lane is masked" in picture.alt
    assert not any("masked" in text for text in texts(picture))


def test_in_an_order_each_tile_has_its_programs_number():
    order = [(1, 0), (0, 0), (0, 1), (1, 1)]
    picture = explore.program_grid(4, 4, 2, 2, order=order)
    names = {e.text: (e.x, e.y) for e in picture.elements if isinstance(e, Text) and e.text.isdigit()}
    assert names["0"][0] == names["1"][0] and names["0"][1] > names["1"][1]
    assert names["1"][1] == names["2"][1] and names["1"][0] < names["2"][0]
    assert "in the order (1, 0), (0, 0), (0, 1), (1, 1)." in picture.alt
    assert len({rect.fill for rect in shades(picture)}) == 4


def test_an_outlined_tile_is_told_in_rows_and_columns():
    picture = explore.program_grid(100, 70, 32, 16, outlined=(3, 4))
    assert "Tile (3, 4) is outlined: rows 96 to 99, columns 64 to 69." in picture.alt
    assert sum(isinstance(e, Rect) and e.stroke == VERMILION for e in picture.elements) == 1


def test_names_are_given_to_all_tiles_or_to_none():
    crowded = explore.program_grid(2048, 2048, 64, 64, order=[(i, j) for i in range(32) for j in range(32)])
    assert not any(map(str.isdigit, texts(crowded)))


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((0, 4, 2, 2), {}, "rows"),
        ((4, 4, 2, 0), {}, "BN"),
        ((1000, 1000, 8, 8), {}, "BM = 8, BN = 8 give 15,625 tiles; use at most 1,024"),
        (
            (4, 4, 2, 2),
            {"order": [(0, 0)]},
            r"order must contain each tile from \(0, 0\) to \(1, 1\) once, 4 tiles, got 1",
        ),
        (
            (4, 4, 2, 2),
            {"order": [(0, 0), (0, 0), (1, 0), (1, 1)]},
            "order must contain each tile .* once, 4 tiles, got 4",
        ),
        ((4, 4, 2, 2), {"outlined": (2, 0)}, r"outlined must be from \(0, 0\) to \(1, 1\), got \(2, 0\)"),
        ((4, 4, 2, 2), {"outlined": (-1, 0)}, "outlined"),
    ],
)
def test_bad_input_is_named(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        explore.program_grid(*sizes, **options)
