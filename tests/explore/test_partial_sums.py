"""Tests of `partial_sums`: counts of reads and entries, and invalid events."""

import pytest
from figure_layout import texts

from iocourse.course import explore
from iocourse.course.explore.draw.picture import Poly

LIFE = ["begin", "begin", "drop", "drop", "begin", "read", "merge", "read", "merge"]


def test_it_counts_rises_from_nothing_and_reads():
    picture = explore.partial_sums(LIFE)
    assert picture.title == "One output's partial sums: 2 entries, 2 reads"
    last = picture.numbers.splitlines()[-1].split()
    assert last == ["merge", "1", "2", "2"]
    assert [text for text in texts(picture) if text.isdigit()] == ["1", "2", "1", "2"]  # reads, then entries


def test_the_line_is_as_high_as_there_are_partial_sums():
    line = next(e for e in explore.partial_sums(LIFE).elements if isinstance(e, Poly) and e.line == 2.4)
    (_, floor), step = line.points[0], line.points[0][1] - line.points[1][1]
    assert [(floor - y) / step for _, y in line.points[2::2]] == [1, 2, 1, 0, 1, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "events must contain at least one of begin, read, merge, drop, got none"),
        (["begin", "sum"], "event 2 must be one of begin, read, merge, drop, got 'sum'"),
        (["drop"], "event 1, drop, needs 1 partial sum in fast memory, got 0"),
        (["begin", "merge"], "event 2, merge, needs 2 partial sums in fast memory, got 1"),
        (["begin", "read"], "event 2, read, needs 1 partial sum dropped before, got 0"),
    ],
)
def test_what_cannot_happen_is_refused(events, message):
    with pytest.raises(ValueError) as error:
        explore.partial_sums(events)
    assert str(error.value) == message
