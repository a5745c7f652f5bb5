"""Tests of `pair_residency`: charges agree with the shortest-path search, and invalid walks are refused."""

from itertools import permutations

import pytest

from iocourse.bounds import row_schedules
from iocourse.course import explore
from iocourse.course.explore.draw.picture import Poly, Rect

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


FORWARD = {"q": "load q", "o": "o enters", "k": "load k", "v": "load v"}


@pytest.mark.parametrize("order", [*permutations("qokv")], ids="".join)
def test_with_arrows_the_later_row_of_each_row_pair_is_charged(order):
    walk = [FORWARD[row] for row in order]
    bars, arrows = (
        explore.pair_residency(walk, pair=row_schedules.FORWARD, arrows=arrows) for arrows in (False, True)
    )
    assert arrows.title == bars.title == "Events of one pair: charged 4"
    charged = {row: set() for row in order}
    for one, other in ("qk", "qv", "ok", "ov"):
        later, earlier = (one, other) if order.index(one) > order.index(other) else (other, one)
        charged[later].add(earlier)
    lines = [line.split(None, 3) for line in arrows.numbers.splitlines()[1:]]
    assert [row for row, *_ in lines] == [*order]
    for row, _, number, earlier in lines:
        assert {*earlier.replace("none", "").replace(",", " ").split()} == charged[row]
        assert int(number) == len(charged[row])


@pytest.mark.parametrize("order", [*permutations("qokv")], ids="".join)
def test_every_arrowhead_touches_the_box_of_the_row_that_is_charged(order):
    picture = explore.pair_residency([FORWARD[row] for row in order], pair=row_schedules.FORWARD, arrows=True)
    # outlined boxes in the order in which they are drawn; the swatches of the legend are smaller
    q, o, k, v = [e for e in picture.elements if isinstance(e, Rect) and e.stroke and e.width > 50]
    heads = [e.points[0] for e in picture.elements if isinstance(e, Poly) and e.fill]
    touched = dict.fromkeys(order, 0)
    for x, y in heads:
        for name, box in zip("qokv", (q, o, k, v), strict=True):
            inner = box.x + box.width if name in "qo" else box.x
            touched[name] += x == inner and box.y < y < box.y + box.height
    expected = {row: len({*"kv"} & {*order[:n]} if row in "qo" else {*"qo"} & {*order[:n]})
                for n, row in enumerate(order)}  # fmt: skip
    assert len(heads) == 4 and touched == expected


@pytest.mark.parametrize(
    "walk",
    [
        ["load q", "load k", "o enters"],
        ["load q", "load k", "drop q", "load q", "o enters", "load v"],
        ["load q", "load k", "o enters", "load v", "drop q"],
    ],
)
def test_arrows_need_every_row_loaded_once(walk):
    with pytest.raises(ValueError, match="arrows=True the walk must load each of k, o, q and v once"):
        explore.pair_residency(walk, pair=row_schedules.FORWARD, arrows=True)


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
