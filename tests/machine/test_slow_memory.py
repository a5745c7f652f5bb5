"""Tests of the records of written words: a list of boxes agrees with one flag per word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iocourse.machine.slow_memory import BitmapTracker, BoxTracker

pytestmark = pytest.mark.quick
SIDE = 9
sides = st.tuples(st.integers(0, SIDE - 1), st.integers(1, SIDE)).map(
    lambda s: (s[0], min(SIDE, s[0] + s[1]))
)
boxes = st.tuples(sides, sides)


@given(st.lists(boxes, max_size=12), st.lists(boxes, min_size=1, max_size=5))
def test_boxes_and_bitmap_agree(added, asked):
    one, other = BoxTracker(), BitmapTracker((SIDE, SIDE))
    for box in added:
        one.add(box)
        other.add(box)
    assert [one.holds(box) for box in asked] == [other.holds(box) for box in asked]


def test_rows_and_columns_written_in_order_join_to_one_box():
    found = BoxTracker()
    for i in range(50):
        for j in range(20):
            found.add(((i, i + 1), (j, j + 1)))
    assert found.holds(((0, 50), (0, 20))) and not found.holds(((0, 51), (0, 20)))
    assert len(found._boxes) == 1
