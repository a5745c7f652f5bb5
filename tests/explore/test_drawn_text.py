"""Tests of numbers as text: a time has the unit in which it is read."""

import pytest

from iocourse.course.explore.draw.text import duration


@pytest.mark.parametrize(("microseconds", "text"), [
    (0.0, "0 µs"), (3.333, "3.33 µs"), (999.4, "999 µs"), (999.9, "1 ms"), (71_151, "71.2 ms"),
    (177_879, "178 ms"), (1.5e6, "1.5 s"), (3.6e9, "3,600 s"),
])  # fmt: skip
def test_a_duration_has_three_digits_and_the_unit_that_keeps_it_short(microseconds, text):
    assert duration(microseconds) == text
