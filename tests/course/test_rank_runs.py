"""Tests of checks of distributed schedules: each failure gives one sentence in time, with the rank."""

import collections
import functools
import queue
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from iocourse import distributed, exact
from iocourse.course.checking import OWN, RUNS, UNWRITTEN, judge
from iocourse.course.exercise import FORM, Exercise, find
from iocourse.course.trials import rank_runs
from iocourse.course.trials.rank_runs import (
    MANY,
    RankTrial,
    arrays_outside,
    holds_within,
    nothing_else_moves,
    on_each_rank,
    rank_case,
    rank_words_within,
    reachable_words,
    receives,
    right_on_every_rank,
    run_distributed,
    sends,
)
from iocourse.distributed import rank as rank_module

_NOTEBOOKS = np.ones((4, 3))


def gather(me, Q, K, V):
    return distributed.attend(Q, *me.all_gather(K=K, V=V))[0]


def cases(rng):
    Q, K, V = rng.standard_normal((3, 13, 3))
    return [rank_case("ring", 4, {"Q": Q, "K": K, "V": V}, exact.attention(Q, K, V))]


def few_calls(rank, got, want):
    return None if len(got.exchanges) < 9 else f"rank {rank} makes {len(got.exchanges)} calls"


EXERCISE = Exercise(
    "18A", "", "my_ring", 1, 1, 1, ("", "", ""), cases,
    (right_on_every_rank("values"), receives("K and V", "K", "V"), nothing_else_moves("nothing else"),
     holds_within("peak"), rank_words_within("W"), sends("sent", "K"), on_each_rank("calls", few_calls)),
    run_case=run_distributed,
)  # fmt: skip


def failed(schedule):
    return {name: said for name, said in judge(EXERCISE, schedule, 0) if said is not None}


def test_what_is_gathered_is_right_and_received_once_but_held_whole_and_sent_by_its_owner():
    assert failed(gather) == {
        "peak": "rank 0 holds 54 words of other ranks, expected at most 36 (ragged, P=4, N=13, d=3)",
        "sent": "rank 0 sends 36 words of K, expected 30 (ragged, P=4, N=13, d=3)",
    }


def test_wrong_values_name_their_ranks():
    def last_rank_doubles(me, Q, K, V):
        return gather(me, Q, K, V) * (2 if me.rank == 3 else 1)

    assert "; wrong on rank 3 (" in failed(last_rank_doubles)["values"]
    assert "; wrong on every rank (" in failed(lambda *_, **a: np.zeros_like(a["Q"]))["values"]


def test_ranks_that_are_wrong_in_one_result_or_another_are_all_named():
    rng = np.random.default_rng(0)
    wanted = tuple(rng.standard_normal((2, 8, 3)))
    case = replace(rank_case("ring", 4, dict.fromkeys("QKV", wanted[0])), expected=wanted)
    value = tuple(x.copy() for x in wanted)
    value[0][7, 0], value[1][2:4] = 5.0, 6.0
    said = right_on_every_rank("values").judge([RankTrial(case, value)])
    assert "; wrong on ranks 1, 3 (" in said


def test_words_name_rank_array_and_number():
    def own_name(me, Q, K, V):
        k, v = me.all_gather(k=K, V=V)
        return distributed.attend(Q, k, v)[0]

    found = failed(own_name)
    assert found["K and V"].startswith("rank 0 receives 0 words of K, expected 27 (it moves k; use ")
    assert found["nothing else"].startswith("rank 0 receives 27 words of k, expected none")
    assert found["sent"].startswith("rank 0 sends 0 words of K, expected 30")


def test_more_words_than_the_closed_form():
    def twice(me, Q, K, V):
        me.shift(K=K)
        return gather(me, Q, K, V)

    found = failed(twice)
    assert found["W"].startswith("rank 0 has W = 63 words, expected at most 54")
    assert found["K and V"].startswith("rank 0 receives 36 words of K, expected 27")


def test_a_property_of_ones_own():
    def chatty(me, Q, K, V):
        for _ in range(9):
            me.shift(K=K[:0])
        return gather(me, Q, K, V)

    assert failed(chatty)["calls"].startswith("rank 0 makes 10 calls")


def unwritten(me, Q, K, V):
    raise NotImplementedError


def library(me, Q, K, V):
    return distributed.get("ring")(me, Q, K, V)[0]


def merges_with_the_library(me, Q, K, V):
    return distributed.merge(*distributed.attend(Q, K, V), *distributed.attend(Q, K, V))[0]


def raises(me, Q, K, V):
    return Q @ K if me.rank == 0 else Q


def waits_for_nobody(me, Q, K, V):
    return me.recv((me.rank + 1) % me.size, "K")


def other_calls(me, Q, K, V):
    return me.shift(K=K) if me.rank else me.all_gather(K=K)


def reads(me, Q, K, V):
    return distributed.attend(Q, _NOTEBOOKS, V)[0]


def wrong_rows(me, Q, K, V):
    return Q[:-1]


@pytest.mark.parametrize(
    ("schedule", "where", "says"),
    [
        (unwritten, RUNS, UNWRITTEN),
        (library, OWN, "solves the exercise and cannot be called"),
        (merges_with_the_library, OWN, "solves the exercise and cannot be called"),
        (distributed.get("ring"), OWN, "this is the library's own"),
        (raises, RUNS, "rank 0 raised ValueError: matmul"),
        (raises, RUNS, "return Q @ K if me.rank == 0 else Q   with Q (4, 3), K (4, 3)"),
        (waits_for_nobody, RUNS, "no rank can go on: rank 0 waits in recv(K) for rank 1"),
        (other_calls, RUNS, "calls shift(K) where rank"),
        (reads, RUNS, "reads reads _NOTEBOOKS of the notebook"),
        (wrong_rows, FORM, "it owns 4 of the 13 rows of Q"),
        (lambda me, Q: Q, RUNS, "unexpected keyword argument 'K'"),
        (lambda me, Q, K, V: undefined, RUNS, "Is the name spelt correctly"),  # noqa: F821
        (lambda me, Q, K, V: None, FORM, "rank 0 returned NoneType"),
    ],
)
def test_what_goes_wrong_is_told_in_a_sentence(schedule, where, says):
    assert says in failed(schedule)[where]


def loops(me, Q, K, V):
    while me.rank == 1:
        pass
    return Q


def loops_together(me, Q, K, V):
    while True:
        K = me.shift(K=K)


def test_calls_without_end_are_stopped(monkeypatch):
    monkeypatch.setattr(rank_module, "MOST_CALLS", 50)
    assert "has made 50 calls. Check for an endless loop" in failed(loops_together)[RUNS]


def through_a_queue(me, Q, K, V):
    if me.rank == 0:
        return BETWEEN.get()
    BETWEEN.put(Q)
    return Q


def through_an_event(me, Q, K, V):
    if me.rank == 0:
        EVENT.wait(10_000)
    return Q


def catches_all(me, Q, K, V):
    while True:
        try:
            loops_forever = True
            while loops_forever:
                pass
        except Exception:
            pass


BETWEEN, EVENT = queue.Queue(), threading.Event()
ENDLESS = "rank {} was still computing after 0.2 seconds. Check for an endless loop, a lock or a sleep ("
WAITS = (
    "rank 0 was still waiting for a queue, an event or a lock after 0.2 seconds. Ranks run one at a time; "
)


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (loops, ENDLESS.format(1)),
        (catches_all, ENDLESS.format(0)),
        (through_a_queue, WAITS),
        (through_an_event, WAITS),
    ],
)
def test_a_rank_that_does_not_end_is_stopped(schedule, says, monkeypatch):
    monkeypatch.setattr(rank_runs, "SECONDS", 0.2)
    before = threading.active_count()
    assert says in failed(schedule)[RUNS]
    while threading.active_count() > before:  # a stopped thread needs a moment to end
        time.sleep(0.01)


def test_a_rank_in_a_call_that_cannot_be_interrupted_does_not_hang_the_check(monkeypatch):
    monkeypatch.setattr(rank_runs, "SECONDS", 0.2)
    lock = threading.Lock()

    def locked(me, Q, K, V):
        lock.acquire()
        return Q

    with lock:  # released after the check, so that the thread ends
        before = threading.active_count()
        assert ENDLESS.format(0) in failed(locked)[RUNS]
    while threading.active_count() >= before + 1:
        time.sleep(0.01)


@pytest.mark.parametrize("id", ["19A", "19B", "19E"])
def test_a_plain_function_that_does_not_end_is_stopped(id, monkeypatch):
    monkeypatch.setattr(rank_runs, "SECONDS", 0.2)

    def endless(*given):
        while True:
            pass

    said = dict(judge(find(id), endless, 0))[RUNS]
    assert "the function was still running after 0.2 seconds. Check for an endless loop" in said


# ------------------------------------------------------------------ words that a rank's functions hold
def in_a_thread(function):
    """Return the result of a function that is called by nothing else, as a rank's is."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def held_by(keep):
    """Return the words that a function holds if it keeps something of an array of 6 words."""

    def holding():
        a = np.ones((2, 3))
        kept = keep(a)  # noqa: F841 - a local variable of the frame that is measured
        return reachable_words(sys._getframe())

    return in_a_thread(holding)


class Box:
    def __init__(self, inside):
        self.inside = inside


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        (lambda a: None, 6),
        (lambda a: a[1:], 6),  # a slice keeps the memory of its array, which is counted once
        (lambda a: a.T.reshape(6), 12),
        (lambda a: [a.copy(), (a.copy(), {"k": a.copy()})], 24),
        (lambda a: a.copy()[:1], 12),
        (lambda a: a.tolist(), 12),
        (lambda a: Box(a.copy()), 12),
        (lambda a: functools.partial(print, a.copy()), 12),
        (lambda a: lambda copy=a.copy(): copy, 12),  # noqa: B008
        (lambda a: (lambda copy: lambda: copy)(a.copy()), 12),
        (lambda a: (x for x in [a.copy()]), 12),
        (lambda a: collections.deque([a.copy()]), 12),
        (lambda a: np.broadcast_to(np.ones(1), (100,)), 7),
        (lambda a: (np, Box, print, distributed.attend, "text", 3), 6),
    ],
)
def test_all_that_variables_reach_is_held(keep, words):
    assert held_by(keep) == words


def test_recursion_holds_the_blocks_of_all_its_calls():
    def deeper(levels):
        block = np.ones(5)  # noqa: F841
        return deeper(levels - 1) if levels else reachable_words(sys._getframe())

    assert in_a_thread(lambda: deeper(3)) == 20


KEPT = []


def test_a_list_of_the_notebook_is_held_and_attributes_of_me_too():
    def in_a_global(me, Q, K, V):
        KEPT.append(K.copy())
        me.own = [V.copy()]
        me.shift(K=K)
        return Q

    KEPT.clear()
    Q, K, V = np.ones((3, 48, 4))
    case = rank_case("ring", 24, {"Q": Q, "K": K, "V": V}, Q, tag=MANY)
    held = run_distributed(in_a_global, case).held
    KEPT.clear()
    assert held[23] >= 24 * 8 + 3 * 8 + 8 and len(held) == 24


def test_arrays_of_the_notebook_are_found_in_helpers_closures_and_inner_functions():
    here = np.ones(3)

    def helper(x):
        return [_NOTEBOOKS @ y for y in x]

    def inner(me, Q, K, V):
        def deeper():
            return here

        return helper(Q) + deeper()

    assert set(arrays_outside(inner)) == {"_NOTEBOOKS", "here"}
    assert arrays_outside(gather) == []
    assert (
        arrays_outside(lambda me, Q: me.here) == []
    )  # an attribute with the name of an array does not count


def test_a_case_may_be_dry_or_in_another_layout():
    shapes = {name: (1000, 8) for name in "QKV"}
    assert run_distributed(gather, rank_case("ring", 4, shapes, on="dry")).ledgers[0].words == 2 * 750 * 8
    rng = np.random.default_rng(0)
    Q, K, V = rng.standard_normal((3, 10, 2))
    striped = rank_case("ring", 4, {"Q": Q, "K": K, "V": V}, exact.attention(Q, K, V), layout="striped")
    assert right_on_every_rank().judge([run_distributed(gather, striped)]) is None
