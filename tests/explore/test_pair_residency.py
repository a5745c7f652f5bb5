"""Tests of `pair_residency`: charges agree with the shortest-path search, and invalid walks are refused."""

import pytest

from iocourse import explore
from iocourse.bounds import row_schedules

CHARGED = [
    (row_schedules.BACKWARD, row_schedules.LOADS_AND_EXITS),
    (row_schedules.FORWARD, row_schedules.LOADS_AND_EXITS),
]


@pytest.mark.parametrize(("pair", "charged"), CHARGED)
def test_the_cheapest_walk_is_charged_what_the_search_says_and_does_every_task(pair, charged):
    cost, walk = row_schedules.min_pair_cost(pair, charged)
    picture = explore.pair_residency(walk, pair=pair)
    paid = [int(line.split()[-1]) for line in picture.numbers.splitlines()[1:]]
    assert picture.title.endswith(f": charged {cost:g}") and sum(paid[:-1]) == paid[-1] == cost
    told = {
        name
        for name in pair.accumulators
        if f"{name} " in picture.alt.split("together: ")[1].replace(",", " ")
    }
    assert told == pair.accumulators


def test_what_an_event_pays():
    picture = explore.pair_residency(["load k", "load v", "load q", "drop v", "dq enters", "dk enters"])
    paid = [line.rsplit(None, 1) for line in picture.numbers.splitlines()[1:]]
    assert [(event.strip(), int(words)) for event, words in paid] == [
        *(("load q", 2), ("dq enters", 1), ("dk enters", 2), ("all", 5))
    ]
    assert "together: never." in picture.alt


@pytest.mark.parametrize(
    ("walk", "message"),
    [
        ([], "walk must contain at least one event"),
        (["load q", "load q"], "'load q': q is already in fast memory"),
        (["drop q"], "'drop q': q is not in fast memory"),
        (["load dq"], "unknown event 'load dq'; expected .*, of dk, do, dq, dv, k, q and v"),
        (["q enters"], "unknown event 'q enters'"),
        (["load o"], "unknown event 'load o'"),
        ([3], "unknown event 3"),
    ],
)
def test_what_is_refused(walk, message):
    with pytest.raises(ValueError, match=message):
        explore.pair_residency(walk)
