"""Rules of the pebble game, tested on pebblings written by hand and against an independent implementation."""

import pytest
from brute_force import every_move

from iocourse.pebbling import (
    Game,
    IllegalMove,
    Move,
    cost_of,
    dot,
    ledger_of,
    replay,
    softmax_row,
)

SUM = {"a": [], "b": [], "c": ["a", "b"]}
BY_HAND = [
    *("load a1", "load b1", "compute p1", "delete a1", "delete b1", "store p1", "delete p1"),
    *("load a2", "load b2", "compute p2", "delete a2", "delete b2", "load p1", "compute s", "store s"),
]


def test_a_pebbling_by_hand():
    states = replay(dot(2), BY_HAND, 3)
    assert len(states) == len(BY_HAND) + 1
    assert states[0].red == set() and states[0].blue == {"a1", "a2", "b1", "b2"} and states[0].move is None
    assert states[3].red == {"a1", "b1", "p1"} and states[3].computed == {"p1"} and states[3].cost == 2
    assert states[-1].blue == {"a1", "a2", "b1", "b2", "p1", "s"}
    assert cost_of(dot(2), BY_HAND, 3) == states[-1].cost == 7


def test_its_ledger():
    ledger = ledger_of(dot(2), BY_HAND, 3)
    assert ledger.reads == {"a1": 1, "b1": 1, "a2": 1, "b2": 1, "p1": 1}
    assert ledger.writes == {"p1": 1, "s": 1}
    assert ledger.peak == 3 and [move.resident for move in ledger.moves[:4]] == [1, 2, 3, 2]


def test_a_slide_keeps_the_number_of_red_pebbles():
    moves = ["load a", "load b", "slide a to c", "store c"]
    assert replay(SUM, moves, 2, slide=True)[3].red == {"b", "c"}
    ledger = ledger_of(SUM, moves, 2, slide=True)
    assert ledger.peak == 2 and ledger.total == 3
    assert [(move.kind, move.resident) for move in ledger.moves[2:4]] == [("free", 1), ("new", 2)]


@pytest.mark.parametrize(
    "moves, message",
    [
        (["load d"], "move 1, load d: the graph has no vertex d"),
        (["fetch a"], "move 1, fetch a: a move must be one of load, store, compute, slide, delete"),
        ([""], "a move must be one of"),
        (["load"], "move 1, load: write it as 'load a'"),
        (["slide a"], "write it as 'slide a to c'"),
        ([3], "a move must be a string such as 'load a' or a Move, got 3"),
        (["load c"], "c has no blue pebble"),
        (["load a", "load a"], "move 2, load a: a has a red pebble already"),
        (["store a"], "a has no red pebble"),
        (["load a", "store a"], "move 2, store a: a has a blue pebble already"),
        (["delete a"], "a has no red pebble"),
        (["compute a"], "a is an input: it is loaded, not computed"),
        (["load a", "compute c"], "move 2, compute c: its parent b has no red pebble"),
        (["load a", "load b", "slide a to c"], "no sliding moves"),
    ],
)
def test_an_illegal_move_names_itself_and_the_rule(moves, message):
    with pytest.raises(IllegalMove) as error:
        replay(SUM, moves, 3)
    assert message in str(error.value)


def test_no_more_red_pebbles_than_M():
    with pytest.raises(IllegalMove, match="compute c: all M = 2 red pebbles are in use: a, b"):
        replay(SUM, ["load a", "load b", "compute c"], 2)
    with pytest.raises(IllegalMove, match="move 2, load b: all M = 1"):
        replay(SUM, ["load a", "load b"], 1)


def test_a_pebble_slides_from_a_parent_only():
    with pytest.raises(IllegalMove, match="x is not a parent of c"):
        replay({**SUM, "x": []}, ["load a", "load b", "load x", "slide x to c"], 3, slide=True)


def test_one_shot_computes_a_vertex_once():
    again = ["load a", "load b", "compute c", "delete c", "compute c"]
    assert len(replay(SUM, again, 3)) == 6
    with pytest.raises(IllegalMove, match="move 5, compute c: c was computed before"):
        replay(SUM, again, 3, recompute=False)


def test_a_pebbling_ends_with_its_outputs_stored():
    with pytest.raises(IllegalMove, match="outputs c are not stored"):
        cost_of(SUM, ["load a", "load b", "compute c"], 3)


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("recompute", [True, False])
def test_legal_moves_are_those_of_the_rules_that_change_something(recompute, slide):
    """Legal moves equal those of the brute force's independent rules in every reachable state."""
    graph = softmax_row(2)
    game = Game(graph, 3, recompute, slide)
    seen, waiting = set(), [game.start()]
    while waiting:
        state = waiting.pop()
        place = (state.red, state.blue, frozenset() if recompute else state.computed)
        if place in seen:
            continue
        seen.add(place)
        after = [game.after(state, move) for move in game.legal(state)]
        waiting += after
        mine = {(s.red, s.blue, frozenset() if recompute else s.computed) for s in after}
        theirs = {reached for _, reached in every_move(graph.parents, place, 3, recompute, slide)}
        assert mine == theirs - {place}
    assert len(seen) > 1000


def test_moves_have_a_text_that_reads_back():
    game = Game({0: [], 1: [0]}, 2, slide=True)
    for move in (Move("load", 0), Move("slide", 1, 0), Move("delete", 0)):
        assert game.move(str(move)) == move == game.move(move)


def test_smallest_M():
    assert Game(SUM, 1).smallest_M == 3 and Game(SUM, 1, slide=True).smallest_M == 2
    assert Game({"a": []}, 1).smallest_M == 1
    with pytest.raises(ValueError, match="M must be at least 1"):
        Game(SUM, 0)
