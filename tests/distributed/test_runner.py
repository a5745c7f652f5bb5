"""Runs on ranks: peaks, copies, changed arrays, deadlocks, and error messages (rank, argument, remedy)."""

import queue
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

from iocourse import distributed
from iocourse.course import guard
from iocourse.distributed import runner

Q, K, V = np.random.default_rng(0).standard_normal((3, 20, 4))


def ring(me, Q, K, V):
    k, v = K, V
    o, L = distributed.attend(Q, k, v)
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        o, L = distributed.merge(o, L, *distributed.attend(Q, k, v))
    return o


def run(schedule, P=4, **told):
    return distributed.run(schedule, P, Q=Q, K=K, V=V, **told)


def fails(schedule, error, says, P=4, **told):
    with pytest.raises(error) as caught:
        run(schedule, P, **told)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schedule_of_ones_own_runs_on_numbers_and_on_shapes():
    done = run(ring)
    shape = (20, 4)
    assert done.ledgers == distributed.run(ring, 4, on="dry", Q=shape, K=shape, V=shape).ledgers
    assert done.ledgers == distributed.get("ring").ledgers(4, 20, 4)
    assert (done.words, done.peak) == (2 * 15 * 4, 4 * 5 * 4)


def gathering(me, Q, K, V):
    return distributed.attend(Q, *me.all_gather(K=K, V=V))[0]


def keeping(me, Q, K, V):
    ks, vs = [K], [V]
    for _ in range(1, me.size):
        k, v = me.shift(K=ks[-1], V=vs[-1])
        ks.append(k)
        vs.append(v)
    return distributed.attend(Q, np.concatenate(ks), np.concatenate(vs))[0]


def slices_kept(me, Q, K, V):
    ks, vs = [K], [V]
    k, v = K, V
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        ks.append(k[:])
        vs.append(v[:])
    return distributed.attend(Q, distributed.joined(ks), distributed.joined(vs))[0]


@pytest.mark.parametrize("schedule", [gathering, keeping, slices_kept])
def test_only_the_peak_tells_a_ring_from_gathering(schedule):
    done, wanted = run(schedule), run(ring)
    assert np.allclose(done.O, wanted.O)
    assert [one.words for one in done.ledgers] == [one.words for one in wanted.ledgers]
    assert {one.peak for one in done.ledgers} == {2 * 15 * 4}
    assert {one.peak for one in wanted.ledgers} == {4 * 5 * 4}


def test_a_run_does_not_touch_what_it_was_given():
    before = K.copy()

    def spoiling(me, Q, K, V):
        K += 1
        return me.shift(K=K)

    run(spoiling)
    assert np.array_equal(K, before)


def test_what_arrives_is_a_copy_even_where_one_process_holds_all():
    def spoiling(me, Q, K, V):
        moved = me.shift(K=K)
        moved += 1
        me.all_gather(V=V)
        return K

    assert np.array_equal(run(spoiling).O, K)


def changed(me, Q, K, V):
    moving = me.start_shift(K=K)
    K *= 2
    moving.wait()
    return Q


def test_an_array_changed_while_it_is_sent_is_found_out():
    says = "rank 0 changed K between start_shift and wait(), while it was being sent. Call wait() first"
    fails(changed, distributed.ChangedWhileSent, says)
    with pytest.raises(distributed.ChangedWhileSent):
        distributed.run(changed, 4, on="dry", Q=(20, 4), K=(20, 4), V=(20, 4))


def test_an_array_changed_through_another_slice_is_found_out_too():
    def changed_by_a_slice(me, Q, K, V):
        moving = me.start_shift(K=K[:3])
        other = K[:2]
        other *= 7.0
        return moving.wait()

    says = "rank 0 changed K between start_shift and wait()"
    fails(changed_by_a_slice, distributed.ChangedWhileSent, says)
    with pytest.raises(distributed.ChangedWhileSent):
        distributed.run(changed_by_a_slice, 4, on="dry", Q=(20, 4), K=(20, 4), V=(20, 4))


def test_waiting_late_or_twice_or_not_at_all():
    def late(me, Q, K, V):
        moving = me.start_shift(K=K, V=V)
        o, L = distributed.attend(Q, K, V)
        return distributed.merge(o, L, *distributed.attend(Q, *moving.wait()))[0]

    assert run(late).peak == 2 * 5 * 4

    def twice(me, Q, K, V):
        moving = me.start_shift(K=K)
        moving.wait()
        moving.wait()

    def never(me, Q, K, V):
        me.start_shift(K=K)
        return Q

    fails(twice, distributed.RankError, "calls wait() on its shift(K) a second time")
    fails(never, distributed.RankError, "rank 0 ended without wait() on its shift(K)")


def test_two_shifts_under_way_are_both_in_the_peak():
    def both(me, Q, K, V):
        up, down = me.start_shift(K=K), me.start_shift(V=V, by=-1)
        up.wait()  # freed immediately, but the buffer for V had been allocated before
        down.wait()
        return Q

    assert {one.peak for one in run(both).ledgers} == {2 * 5 * 4}


def test_a_call_that_does_not_match_names_both_ranks():
    def other(me, Q, K, V):
        return me.all_gather(K=K) if me.rank == 1 else me.shift(K=K)

    def names(me, Q, K, V):
        return me.shift(V=K) if me.rank == 2 else me.shift(K=K)

    def way(me, Q, K, V):
        return me.shift(K=K, by=2 if me.rank == 3 else 1)

    fails(other, distributed.Mismatch, "rank 1 calls all_gather(K) where rank 0 calls shift(K)")
    fails(names, distributed.Mismatch, "rank 2 calls shift(V) where rank 1 calls shift(K)")
    fails(way, distributed.Mismatch, "calls shift(K, by=2)")


def test_ranks_that_wait_for_each_other_are_told_without_a_clock():
    def facing(me, Q, K, V):
        got = me.recv(me.rank ^ 1, "K")
        me.send(me.rank ^ 1, K=K)
        return got

    def one_less(me, Q, K, V):
        return Q if me.rank == 0 else me.shift(K=K)

    said = "rank 0 waits in recv(K) for rank 1; rank 1 waits in recv(K) for rank 0"
    fails(facing, distributed.Deadlock, said)
    fails(one_less, distributed.Deadlock, "rank 1 waits in shift(K) for rank 0 (finished)")


BOX, RUNG = queue.Queue(), threading.Event()


@pytest.mark.parametrize("waits", [BOX.get, RUNG.wait, threading.Barrier(2).wait])
def test_a_rank_that_waits_for_something_else_than_a_call_is_stopped(waits):
    def waiting(me, Q, K, V):
        if me.rank == 0:
            waits()
        return Q

    before = threading.active_count()
    said = (
        "rank 0 was still waiting for a queue, an event or a lock after 0.2 seconds. Ranks run one at a time"
    )
    fails(waiting, distributed.TimedOut, said, timeout=0.2)
    while threading.active_count() > before:  # a stopped thread needs a moment to end
        time.sleep(0.01)


def test_runs_in_several_threads_leave_the_output_as_it_was(capsys):
    """A counting run prints nothing, also if another one begins before it and ends after it."""
    inside, outside = threading.Event(), threading.Event()

    def first():
        with runner._muted():
            print("not shown")
            inside.set()
            outside.wait()

    thread, before = threading.Thread(target=first), sys.stdout
    thread.start()
    inside.wait()
    with runner._muted():
        print("not shown either")
        outside.set()
        thread.join()
        print("not shown after the other has ended")
    print("shown")
    assert sys.stdout is before and capsys.readouterr().out == "shown\n"


def test_a_half_imported_torch_is_not_asked_for_its_tensors(monkeypatch):
    """Another thread may be importing torch: the module exists without Tensor, and no array is a tensor."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert run(ring).ledgers == distributed.get("ring").ledgers(4, 20, 4)


def test_a_message_that_nobody_receives_is_found():
    def lost(me, Q, K, V):
        if me.rank == 2:
            me.send(0, K=K)
        return Q

    fails(lost, distributed.RankError, "rank 2 calls send(K) to rank 0, which never calls recv for it")


def test_a_rank_that_raises_ends_all_with_its_message():
    def raising(me, Q, K, V):
        if me.rank == 2:
            raise ValueError("no such block")
        return me.shift(K=K)

    fails(raising, distributed.RankFailed, "rank 2 raised ValueError: no such block")

    def catching(me, Q, K, V):
        try:
            return raising(me, Q, K, V)
        except Exception:
            return K

    assert isinstance(run(catching, 2).O, np.ndarray)
    fails(catching, distributed.Deadlock, "for rank 2 (finished)")


def test_a_loop_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr("iocourse.distributed.rank.MOST_CALLS", 50)

    def endless(me, Q, K, V):
        while True:
            K = me.shift(K=K)

    fails(endless, distributed.RankError, "has made 50 calls. Check for an endless loop")


def wrong_call(call):
    def schedule(me, Q, K, V):
        call(me, K)
        return Q

    return schedule


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda me, K: me.shift(K=3), "K in shift(K) must be an array or None, got int"),
        (lambda me, K: me.shift(), "shift() got no arrays. Pass them by name: shift(K=k)"),
        (
            lambda me, K: me.shift(K=K, by=4),
            "by in shift(K, by=4) must be an integer that is not a multiple of 4, got 4",
        ),
        (lambda me, K: me.shift(K=K, by=1.5), "that is not a multiple of 4, got 1.5"),
        (
            lambda me, K: me.all_to_all(K=[K]),
            "K in all_to_all(K) must be a list of 4 pieces, one for each rank, got 1 pieces",
        ),
        (
            lambda me, K: me.all_to_all(K=K),
            "K in all_to_all(K) must be a list of 4 pieces, one for each rank, got ndarray",
        ),
        (lambda me, K: me.all_gather(K=[1]), "K in all_gather(K) must be an array or None, got list"),
        (lambda me, K: me.send(9, K=K), "to must be one of the 4 ranks, 0 to 3, got 9"),
        (lambda me, K: me.recv(-1, "K"), "source must be one of the 4 ranks, 0 to 3, got -1"),
        (
            lambda me, K: me.recv(me.rank, "K"),
            "source must be another rank, got 0, which is this rank itself",
        ),
        (
            lambda me, K: me.send(me.rank, K=K),
            "to must be another rank, got 0, which is this rank itself",
        ),
        (lambda me, K: me.grid(3), "a must divide the number of ranks, 4: one of 1, 2, 4, got 3"),
        (lambda me, K: me.cut(K), "cut needs the 20 rows of the 4 ranks of this group, got 5"),
        (lambda me, K: me.cut((K, K)), "cut needs an array, got a tuple (attend returns the tuple o, L)"),
        (lambda me, K: me.rows(4), "rank must be one of the 4 ranks, 0 to 3, got 4"),
    ],
)
def test_a_wrong_call_names_the_argument_and_the_rank(call, says):
    fails(wrong_call(call), distributed.RankFailed, says)
    fails(wrong_call(call), distributed.RankFailed, "rank 0 raised ")


@pytest.mark.parametrize(
    ("told", "error", "says"),
    [
        ({"P": 0}, ValueError, "P must be at least 1, got 0"),
        ({"P": 2.0}, TypeError, "P must be an integer of at least "),
        ({"P": 5000}, ValueError, "P must be at most 1024, got 5000"),
        ({"on": "mpi"}, ValueError, "on must be one of count, dry, gloo, processes, got 'mpi'"),
        (
            {"layout": "snake"},
            ValueError,
            "layout must be one of contiguous, zigzag, striped, or ranges for each rank, got 'snake'",
        ),
        (
            {"layout": [[range(20)]]},
            ValueError,
            "layout must contain the blocks of P = 2 ranks, got those of 1",
        ),
        ({"layout": [[range(9)], [range(8, 20)]]}, ValueError, "row 8 has none or several"),
        (
            {"layout": [[range(9)], [range(9, 21)]]},
            ValueError,
            "must assign each of the 20 rows to exactly one rank",
        ),
        (
            {"layout": [[range(9, 12), range(9)], [range(12, 20)]]},
            ValueError,
            "must list the rows of each rank in increasing order; rank 0 differs",
        ),
        ({"shared": ("X",)}, ValueError, "shared must contain names of arrays (Q, K, V), got X"),
        ({"Q": np.full((20, 4), np.nan)}, ValueError, "Q holds 80 NaN"),
        ({"Q": np.ones((20, 4), int)}, TypeError, "Q must have a floating-point dtype, got int64"),
        ({"Q": np.ones(())}, ValueError, "Q must be an array with rows, shape (N, …), got shape ()"),
        ({"Q": Q * 1e200, "K": K * 1e200}, ValueError, "overflow"),
    ],
)
def test_wrong_arguments_of_run_are_named(told, error, says):
    with pytest.raises(error) as caught:
        distributed.run(ring, **{"P": 2, "Q": Q, "K": K, "V": V, **told})
    assert says in str(caught.value)


def test_a_run_without_arrays_is_refused():
    with pytest.raises(TypeError, match="run got no arrays"):
        distributed.run(ring, 2)


def test_what_is_returned_must_be_the_ranks_own_rows():
    def part(me, Q, K, V):
        return Q[:2] if me.rank == 1 else Q

    def nothing(me, Q, K, V):
        me.shift(K=K)

    def more(me, Q, K, V):
        return (Q, K) if me.rank else Q

    def different(me, Q, K, V):
        return Q + me.rank

    def narrow(me, Q, K, V):
        return Q[:, :1] if me.rank else Q

    says = "rank 1 returned an array of shape (2, 4), but it owns 5 of the 20 rows of Q"
    fails(part, distributed.RankError, says)
    fails(nothing, distributed.RankError, "returned NoneType; a schedule must return the rows of its result")
    fails(more, distributed.RankError, "rank 1 returned 2 arrays, rank 0 returned 1")
    fails(narrow, distributed.RankError, "rank 1 returned an array of shape (5, 1), rank 0 one of (5, 4)")
    fails(different, distributed.RankError, "rank 1 and rank 0 returned different results", shared="Q")


def test_heads_that_cannot_be_dealt_out_are_refused():
    heads = np.ones((8, 6, 2))
    said = r"H = 6 heads cannot be distributed evenly over 4 ranks\. Use 1, 2, 3, 6 ranks"
    with pytest.raises(distributed.RankFailed, match=said):
        distributed.get("ulysses").run(4, Q=heads, K=heads, V=heads)


def test_the_librarys_answers_step_aside_in_an_exam_and_tools_do_not():
    def own(me, Q, K, V):
        return distributed.attend(Q, *me.all_gather(K=K, V=V))[0]

    with guard.solutions_blocked():
        run(own)
        fails(ring, distributed.RankFailed, "solves the exercise and cannot be called while a check runs")
        with pytest.raises(distributed.RankFailed, match="solves the exercise and cannot be called"):
            distributed.get("ring").run(2, Q=Q, K=K, V=V)


def test_who_watches_the_caller_watches_its_ranks():
    def sly(me, Q, K, V):
        np.linalg.norm(Q)
        return Q

    with (
        pytest.raises((distributed.RankFailed, guard.LibrarySolutionUsed)),
        guard.no_calls_into(("numpy.linalg",), "is out"),
    ):
        run(sly)


def test_shapes_follow_numpy_and_say_what_they_cannot():
    a, b = distributed.ShapeArray((3, 4)), distributed.ShapeArray((4, 2))
    found = [a @ b, a.T, a[1:, None], np.exp(a), a.sum(-1), a.max(0, keepdims=True), a.reshape(2, -1)]
    found += [np.concatenate([a, a]), np.stack([a, a]), np.where(a > 0, a, 0.0), a.swapaxes(0, 1), a - 1]
    real, other = np.ones((3, 4)), np.ones((4, 2))
    wanted = [real @ other, real.T, real[1:, None], np.exp(real), real.sum(-1), real.max(0, keepdims=True)]
    wanted += [real.reshape(2, -1), np.concatenate([real, real]), np.stack([real, real])]
    wanted += [np.where(real > 0, real, 0.0), real.swapaxes(0, 1), real - 1]
    assert [one.shape for one in found] == [one.shape for one in wanted]
    with pytest.raises(ValueError, match=r"matmul: shapes \(3, 4\) and \(3, 4\) do not match"):
        a @ a
    with pytest.raises(
        distributed.ShapesOnly, match=r"does not support np.linalg.svd|does not support np.svd"
    ):
        np.linalg.svd(a)
    with pytest.raises(distributed.ShapesOnly, match="has only shapes, no values"):
        float(a.sum())


def test_the_room_is_opened_without_torch():
    said = "import sys, iocourse.distributed; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False).returncode == 0
