"""Exact pebbling search: compared with brute force and known optima; errors for too large problems."""

import pytest
from brute_force import brute_force
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.pebbling import (
    Game,
    Graph,
    NoPebbling,
    TooLarge,
    attention,
    compulsory,
    cost_of,
    dot,
    matmul,
    optimum,
    softmax_row,
)
from iocourse.pebbling.search import Position, Steps

DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
PYRAMID = {"a": [], "b": [], "c": [], "d": ["a", "b"], "e": ["b", "c"], "f": ["d", "e"]}
SMALL = {
    "dot": dict(dot(2).parents),
    "softmax row": dict(softmax_row(2).parents),
    "outer product": dict(matmul(2, 2, 1).parents),
    "one query, two keys": dict(attention(1, 2, fma=True).parents),
    "scalar product, fma": dict(matmul(1, 1, 3, fma=True).parents),
    "diamond": DIAMOND,
    "pyramid": PYRAMID,
    "two sinks of one path": {
        "a": [],
        "b": ["a"],
        "c": ["b"],
        "d": ["a"],
        "e": ["d"],
        "f": ["d"],
        "g": ["c", "e"],
    },
    "butterfly": {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"], "e": ["c", "d"], "f": ["c", "d"]},
    "tree": {"a": [], "b": [], "c": [], "d": [], "e": ["a", "b"], "f": ["c", "d"], "g": ["e", "f"]},
    "comb": {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["a", "d"], "f": ["b", "e"], "g": ["c", "f"]},
    "no computation": {"a": [], "b": []},
}
RULES = [(True, False), (True, True), (False, False), (False, True)]
NAMES = ["recompute", "recompute, slide", "one-shot", "one-shot, slide"]


def agree(parents, recompute, slide, outputs=None):
    graph = Graph.of(parents, outputs)
    smallest = Game(graph, 1, recompute, slide).smallest_M
    for M in range(smallest, smallest + 3):
        found = optimum(graph, M, recompute=recompute, slide=slide)
        assert found.cost == brute_force(parents, M, recompute, slide, outputs), (parents, outputs, M)
        assert found.cost == cost_of(graph, found.moves, M, recompute=recompute, slide=slide)
        assert found.ledger().total == found.cost and found.ledger().peak <= M


@pytest.mark.parametrize("recompute, slide", RULES, ids=NAMES)
@pytest.mark.parametrize("name", SMALL)
def test_optimum_is_that_of_a_brute_force(name, recompute, slide):
    agree(SMALL[name], recompute, slide)


@st.composite
def small_graphs(draw):
    """Draw (parents, outputs) with at most 7 vertices and at most 3 parents per vertex."""
    size = draw(st.integers(3, 7))
    inputs = draw(st.integers(1, 3))
    parents = {
        v: draw(st.lists(st.integers(0, v - 1), min_size=1, max_size=3, unique=True)) if v >= inputs else []
        for v in range(size)
    }
    outputs = draw(st.none() | st.lists(st.integers(0, size - 1), min_size=1, max_size=3, unique=True))
    return parents, outputs


@pytest.mark.parametrize("recompute, slide", RULES, ids=NAMES)
@settings(max_examples=many(25, 80))
@given(graph=small_graphs())
def test_optimum_is_that_of_a_brute_force_on_any_graph(recompute, slide, graph):
    parents, outputs = graph
    agree(parents, recompute, slide, outputs)


@pytest.mark.parametrize("recompute, slide", RULES, ids=NAMES)
@pytest.mark.parametrize("name", ["softmax row", "two sinks of one path", "butterfly", "comb"])
def test_the_estimate_falls_by_no_more_than_a_step_costs(name, recompute, slide):
    """It is also 0 at the end; so it never exceeds the remaining cost."""
    steps = Steps(Game(Graph.of(SMALL[name]), 3, recompute, slide))
    waiting, seen = [Position(0, 0, 0, 0)], set()
    while waiting:
        at = waiting.pop()
        seen.add(at)
        estimate = steps.at_least(at, steps.todo(at))
        if at.blue == steps.board.outputs:
            assert estimate == at.parked.bit_count() == 0
            continue
        for after, words in (steps.after(at, step) for step in steps.choices(at, steps.todo(at))):
            if after is not None and after not in seen:
                assert steps.at_least(after, steps.todo(after)) >= estimate - words
                waiting.append(after)
    assert len(seen) > 5


def test_a_child_stands_in_only_where_giving_it_up_is_no_dearer():
    """One-shot game with slides: input 0 is dropped without cost, while its child 1 would need a store."""
    parents = {0: [], 1: [0], 2: [1], 3: [0], 4: [3], 5: [3], 6: [2, 4]}
    assert brute_force(parents, 2, False, True) == optimum(parents, 2, recompute=False, slide=True).cost == 4


PLAIN, SLIDE, ONE_SHOT = {}, {"slide": True}, {"recompute": False}
KNOWN = [
    ("dot(2)", dot(2), PLAIN, {3: 7, 4: 5, 9: 5}),
    ("dot(3)", dot(3), PLAIN, {3: 11, 4: 7}),
    ("softmax_row(3)", softmax_row(3), PLAIN, {3: 8, 4: 7, 5: 6}),
    ("softmax_row(3), one-shot", softmax_row(3), ONE_SHOT, {3: 10, 4: 8}),
    ("softmax_row(4)", softmax_row(4), PLAIN, {3: 11, 4: 10, 5: 9, 6: 8}),
    ("softmax_row(4), one-shot", softmax_row(4), ONE_SHOT, {3: 14, 4: 12, 5: 10}),
    ("2x2x2", matmul(2, 2, 2), PLAIN, {3: 25, 4: 17, 5: 14, 6: 13, 7: 12}),
    ("2x2x2 fma", matmul(2, 2, 2, fma=True), SLIDE, {3: 17, 4: 14, 5: 13, 6: 12}),
    ("attention 2, 2", attention(2, 2), PLAIN, {4: 15, 5: 11, 6: 10, 7: 9, 8: 8}),
    ("attention 2, 2 fma", attention(2, 2, fma=True), SLIDE, {4: 11, 5: 10, 6: 9, 7: 8}),
    ("3x2 by 2x2 fma", matmul(3, 2, 2, fma=True), SLIDE, {4: 20, 5: 18, 6: 17, 7: 16}),
    ("2x3 by 3x2 fma", matmul(2, 2, 3, fma=True), SLIDE, {5: 19, 6: 17, 7: 16}),
    ("3x2 by 2x3 fma", matmul(3, 3, 2, fma=True), SLIDE, {9: 21}),
    ("attention 2, 3 fma", attention(2, 3, fma=True), SLIDE, {7: 11, 8: 10}),
    ("attention 3, 2 fma", attention(3, 2, fma=True), SLIDE, {7: 10}),
    ("attention 2, 2, d = 2 fma", attention(2, 2, d=2, fma=True), SLIDE, {7: 16}),
]
SECONDS_EACH = [
    ("attention 2, 2", attention(2, 2), PLAIN, {3: 24}),
    ("attention 2, 2 fma", attention(2, 2, fma=True), SLIDE, {3: 16}),
    ("3x2 by 2x2 fma", matmul(3, 2, 2, fma=True), SLIDE, {3: 25}),
    ("2x3 by 3x2 fma", matmul(2, 2, 3, fma=True), SLIDE, {4: 22}),
    ("3x2 by 2x3 fma", matmul(3, 3, 2, fma=True), SLIDE, {8: 22}),
    ("attention 3, 2 fma", attention(3, 2, fma=True), SLIDE, {6: 12}),
]


@pytest.mark.parametrize(
    "graph, rules, M, cost",
    [
        pytest.param(graph, rules, M, cost, id=f"{name}, M={M}")
        for name, graph, rules, costs in many(KNOWN, KNOWN + SECONDS_EACH)
        for M, cost in costs.items()
    ],
)
def test_known_optima(graph, rules, M, cost):
    found = optimum(graph, M, **rules)
    assert found.cost == cost
    assert cost_of(graph, found.moves, M, **rules) == cost >= compulsory(graph)


def test_the_same_pebbling_every_time():
    assert optimum(softmax_row(4), 3) == optimum(softmax_row(4), 3)


def test_too_small_M_names_the_smallest_one():
    with pytest.raises(NoPebbling, match=r"C11_1, A12, B21.* at least 4"):
        optimum(matmul(1, 1, 2, fma=True), 3)
    with pytest.raises(NoPebbling, match="at least 3"):
        optimum(matmul(1, 1, 2, fma=True), 2, slide=True)
    with pytest.raises(TypeError, match="M must be an integer of at least "):
        optimum(dot(2), 3.0)


def test_refuses_instead_of_running_on():
    with pytest.raises(TooLarge) as refusal:
        optimum(attention(3, 3), 4, max_states=20_000)
    for words in ("20,000 states", "at least", "states. Use fewer than 42 vertices", "M = 4", "fma=True"):
        assert words in str(refusal.value)
    with pytest.raises(TooLarge, match="at most 100 vertices for the search, got 288 vertices"):
        optimum(matmul(6, 6, 6, fma=True), 5, slide=True)


def test_a_step_with_a_thousand_million_choices_is_refused_too():
    wide = {f"x{i}": [] for i in range(60)} | {f"y{i}": [f"x{i}"] for i in range(20)}
    wide |= {"s": list(wide)[:20], "t": list(wide)[60:], "u": list(wide)[40:60], "v": ["s", "t", "u"]}
    with pytest.raises(TooLarge, match="5,000 states"):
        optimum(wide, 30, max_states=5_000)


def test_an_exercise_is_not_solved_by_the_library():
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
        optimum(dot(2), 3)


def test_recomputing_helps_a_row_of_softmax():
    """The optimum has two passes over the row and recomputes exp, as FlashAttention's backward pass does."""
    found = optimum(softmax_row(3), 3)
    computed = [move.vertex for move in found.moves if move.kind == "compute"]
    assert found.cost < optimum(softmax_row(3), 3, recompute=False).cost
    assert any(computed.count(f"e{j}") == 2 for j in (1, 2, 3))
