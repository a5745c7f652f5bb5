"""Tests of the ledger: equality, the text of a difference, and conversion to and from JSON."""

import json

import pytest

from iocourse import Ledger, costs, schedules
from iocourse.ledger import Move, PhaseTotal
from iocourse.machine import run


def measured(**options):
    tiles = {"Br": 4, "Bc": 3}
    shapes = dict.fromkeys("QKV", (10, 2))
    return run(schedules.flash2, M=99, dry=True, unroll=True, **shapes, **tiles, **options).ledger


def test_totals():
    ledger = Ledger(reads={"Q": 10, "K": 20}, writes={"O": 5, "Q": 0}, peak=7)
    assert (ledger.read, ledger.written, ledger.total) == (30, 5, 35)
    assert ledger.arrays == ["Q", "K", "O"]
    assert ledger.rows() == [("Q", 10, 0), ("K", 20, 0), ("O", 0, 5)]


def test_equality_is_about_words_and_peak_alone():
    base = Ledger(reads={"Q": 1}, writes={"O": 2}, peak=3)
    same = Ledger(
        reads={"Q": 1, "K": 0}, writes={"O": 2}, peak=3, sizes={"Q": 1}, phases={"a": PhaseTotal(1, 0)}
    )
    assert base == same and not base - same
    for other in (
        Ledger(reads={"Q": 2}, writes={"O": 2}, peak=3),
        Ledger(reads={"Q": 1}, writes={"O": 1}, peak=3),
        Ledger(reads={"Q": 1}, writes={"O": 2}, peak=4),
        Ledger(reads={"Q": 1}, writes={"O": 2}, peak=3, atomics={"O": 1}),
    ):
        assert base != other and base - other
    assert base != "a ledger"


def test_a_difference_reads_in_multiples_of_the_array():
    form = costs.flash2(16, 2, Br=4, Bc=4)
    twice = form.copy()
    twice.reads["K"] *= 2
    twice.reads["S"] = 7
    twice.writes["O"] += 3
    twice.peak += 1
    twice.measured = True
    assert (twice - form).lines() == [
        "K read 8×, closed form says 4×",
        "S read 7 words, closed form says 0 words",
        "O written 35 words (1.09×), closed form says 1×",
        f"peak of fast memory {form.peak + 1} words, closed form says {form.peak}",
    ]
    assert (twice - form).words == 4 * 32 + 7 + 3
    assert repr(form - form) == "no difference"


def test_a_copy_is_independent():
    ledger = measured()
    other = ledger.copy()
    assert other == ledger and other.moves == ledger.moves and other.sizes == ledger.sizes
    other.reads["Q"] = other.peak = 0
    other.moves.clear()
    assert ledger.reads["Q"] == 20 and ledger.peak and ledger.moves


def test_json_there_and_back():
    ledger = measured(lse=True)
    ledger.phases["all"] = PhaseTotal(1, 2)
    ledger.atomics["dQ"] = 4
    back = Ledger.from_json(ledger.to_json())
    assert back == ledger
    assert (back.moves, back.phases, back.sizes) == (ledger.moves, ledger.phases, ledger.sizes)
    assert isinstance(back.moves[0], Move) and isinstance(back.moves[0].rows, tuple)


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"reads": 1}', None])
def test_text_that_is_no_ledger_is_refused(text):
    with pytest.raises(ValueError, match="not a ledger"):
        Ledger.from_json(text)


def test_a_ledger_with_a_broken_move_is_refused():
    record = json.loads(measured().to_json())
    record["moves"] = [["load", "Q"]]
    with pytest.raises(ValueError, match="not a ledger"):
        Ledger.from_json(json.dumps(record))


def test_plain_text_and_html_show_the_same_numbers():
    ledger = Ledger(reads={"<Q>": 12345}, writes={"O": 7}, peak=99, phases={"scores": PhaseTotal(3, 4)})
    text, html = repr(ledger), ledger._repr_html_()
    assert (
        "12,345" in text
        and "12,352 words moved; at most 99" in text
        and "phase scores: 3 read, 4 written" in text
    )
    assert "&lt;Q&gt;" in html and "12,345" in html and "<caption>12,352 words moved" in html


def test_a_trace_pairs_each_tile_with_its_end():
    moves = measured().moves
    made = [move.tile for move in moves if move.kind in ("load", "new")]
    freed = [move.tile for move in moves if move.kind == "free"]
    assert len(set(made)) == len(made) and sorted(made) == sorted(freed)
    resident = 0
    for move in moves:
        resident += {"load": 1, "new": 1, "free": -1, "store": 0}[move.kind] * move.words
        assert move.resident == resident
