"""Schedules with torch.distributed: values, ledgers, independent traffic counts, and handling of failures."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import traffic_validation
from distributed_cases import NAMES, arrays_of, expected, settings_of, sizes, worst_error
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from iocourse import distributed, exact
from iocourse.distributed.engines import multiprocess, torch_backend
from iocourse.distributed.rank import CannotShip
from iocourse.doctor import install_command

Q, K, V = np.random.default_rng(0).standard_normal((3, 2048, 64))
RANDOM_SHAPES = 22  # per schedule


def told_of(schedule, P, N):
    """Return options of a schedule, other than P and N, that use most of its features."""
    told = {"a": max(a for a in (1, 2, 3) if P % a == 0)} if "a" in schedule.options else {}
    if schedule.heads or schedule.pass_ in ("causal", "backward"):
        told["H"] = P
    if schedule.pass_ == "states":
        told["r"] = 5
    if schedule.name == "packed":
        told |= {"texts": (N // 3, N - N // 3), "layout": "zigzag"}
    return told


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=RANDOM_SHAPES, deadline=None)
@drawn(data=st.data(), seed=st.integers(0, 10**6))
def test_gloo_moves_the_same_words_and_finds_the_same_values(name, data, seed):
    P, N, d, told = data.draw(sizes(name, most_ranks=5, most_rows=40))
    check_on_gloo(distributed.get(name), P, N, d, told, seed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("P", "N"), [(4, 24), (3, 23), (4, 2), (1, 5)])
def test_gloo_at_the_edges(name, P, N):
    schedule = distributed.get(name)
    check_on_gloo(schedule, P, N, 3, told_of(schedule, P, N), seed=P)


def check_on_gloo(schedule, P, N, d, told, seed):
    """Run on gloo; assert that all ledgers equal the closed form and that the values are exact."""
    given = arrays_of(schedule, N, d, told, seed)
    run = schedule.run(P, on="gloo", **given, **settings_of(schedule, told))
    assert run.ledgers == schedule.ledgers(P, N, d, **told)
    assert worst_error(run, expected(schedule, given, told)) < 1e-11


def test_there_are_three_hundred_random_shapes_on_gloo():
    assert RANDOM_SHAPES * len(NAMES) >= 300


def test_a_step_on_gloo_takes_less_than_five_seconds_of_a_core_with_its_start():
    started = time.process_time()
    run = distributed.get("ring").run(4, on="gloo", Q=Q, K=K, V=V)
    assert time.process_time() - started < 5.0
    assert exact.max_abs_error(run.O, exact.attention(Q, K, V)) < 1e-12


@pytest.mark.parametrize(("name", "told"), [("ring", {}), ("grid", {"a": 2}), ("ring_backward_rows", {})])
@pytest.mark.parametrize("N", [64, 61])
def test_pytorchs_dispatcher_counts_the_same_words(name, told, N):
    schedule = distributed.get(name)
    given = arrays_of(schedule, N, 3, told, 1)
    seen = traffic_validation.observe_dispatcher(schedule, 4, **given, **told)
    ledgers = schedule.ledgers(4, N, 3, **told)
    assert [sum(one.received.values()) for one in seen] == [one.words_received for one in ledgers]
    assert [sum(one.sent.values()) for one in seen] == [one.words_sent for one in ledgers]
    if N % 4 == 0:
        calls = {"recv_"} if "ring" in name else {"_allgather_base_", "alltoall_base_"}
        assert set(seen[0].received) == calls


def test_the_loopback_interface_carries_eight_bytes_a_word():
    try:
        traffic_validation.loopback_bytes()
    except RuntimeError:
        pytest.skip("no /proc/net/dev here")
    ratio = np.inf
    for _ in range(20):  # other processes use the interface too, so the minimum is closest to our traffic
        moved, words = traffic_validation.observe_loopback(distributed.get("ring"), 4, Q=Q, K=K, V=V)
        ratio = min(ratio, moved / words)
        if ratio < 1.1:
            break
    assert 1.0 <= ratio < 1.1


def breaking(monkeypatch, *breaks, late=False):
    """Make the formation of a group fail for these (rank, attempt), and return the list of attempts made.

    With `late` the group is formed first and then lost.
    """
    tried, form = [], torch_backend.process_group

    def broken(store, rank, *told):
        attempt = sum(other == rank for other, _ in tried)
        tried.append((rank, attempt))
        if (rank, attempt) not in breaks:
            return form(store, rank, *told)
        lost = form(store, rank, *told) if late else None
        del lost
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(torch_backend, "process_group", broken)
    monkeypatch.setattr(torch_backend, "FORMING", 1.0)
    return tried


@pytest.mark.parametrize("late", [False, True])  # True: the other ranks have formed the group
@pytest.mark.parametrize("breaks", [[(1, 0)], [(0, 0), (1, 0), (2, 0)], [(0, 0), (2, 1)]])
def test_a_group_that_breaks_as_it_forms_is_formed_again_by_all_its_ranks(breaks, late, monkeypatch):
    tried = breaking(monkeypatch, *breaks, late=late)
    check_on_gloo(distributed.get("ring"), 3, 24, 3, {}, 0)
    attempts = 2 + max(attempt for _, attempt in breaks)
    assert sorted(tried) == [(rank, attempt) for rank in range(3) for attempt in range(attempts)]


def test_a_group_that_breaks_in_every_attempt_is_given_up(monkeypatch):
    monkeypatch.setattr(torch_backend, "ATTEMPTS", 2)
    tried = breaking(monkeypatch, *((1, attempt) for attempt in range(9)))
    with pytest.raises(distributed.TimedOut, match=r"rank \d could not reach the others: the connection"):
        distributed.get("ring").run(2, on="gloo", Q=Q[:4], K=K[:4], V=V[:4])
    assert sorted(tried) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_an_interface_that_does_not_exist_is_named(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nonexist0")
    said = (
        r"rank \d could not reach the others: the connection broke \(Unable to find address for: nonexist0; "
        r"GLOO_SOCKET_IFNAME is nonexist0\)$"
    )
    with pytest.raises(distributed.TimedOut, match=said):
        distributed.get("ring").run(2, on="gloo", Q=Q[:4], K=K[:4], V=V[:4])


def test_runs_of_several_threads_at_once_are_right():
    found = {}

    def one(number):
        found[number] = distributed.get("ring").run(3, on="gloo", Q=Q[:9] + number, K=K[:9], V=V[:9]).O

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for number, O in found.items():
        assert exact.max_abs_error(O, exact.attention(Q[:9] + number, K[:9], V[:9])) < 1e-11


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
SAYS_FULL = r"the temporary folder \S+ is full, and the ranks exchange their results there\. Delete files, or"


def raising(error):
    def fail(*_):
        raise error

    return fail


def test_a_rank_that_cannot_write_its_result_ends_with_a_code_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(multiprocess, "atomic_write", raising(NO_SPACE))
    monkeypatch.setattr(multiprocess.os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        multiprocess._write_result(tmp_path, 0, None)
    assert ended.value.code == multiprocess.FULL
    monkeypatch.setattr(multiprocess, "atomic_write", raising(PermissionError("no")))
    with pytest.raises(PermissionError):
        multiprocess._write_result(tmp_path, 0, None)


def test_a_full_temporary_folder_is_named(tmp_path, monkeypatch):
    class Ended:
        returncode = multiprocess.FULL

        def poll(self):
            return self.returncode

    with pytest.raises(distributed.RankError, match=SAYS_FULL):
        multiprocess._results(tmp_path, Ended(), 2, 1)
    monkeypatch.setattr(multiprocess, "_start", raising(NO_SPACE))
    with pytest.raises(distributed.RankError, match=SAYS_FULL):
        distributed.get("ring").run(2, on="processes", Q=Q[:4], K=K[:4], V=V[:4])
    monkeypatch.setattr(multiprocess, "_start", raising(OSError(errno.EMFILE, "too many files")))
    with pytest.raises(OSError, match="too many files"):
        distributed.get("ring").run(2, on="processes", Q=Q[:4], K=K[:4], V=V[:4])


SMALL_FOLDER = """
import numpy as np
from iocourse import distributed

Q = np.ones((600, 16))
try:
    distributed.get("ring").run(2, on="processes", Q=Q, K=Q, V=Q)
except distributed.RankError as error:
    print(error)
"""


@pytest.mark.parametrize("kilobytes", [16, 64])
def test_a_small_temporary_folder_is_named_by_whoever_fills_it(kilobytes, tmp_path):
    mount = f'mount -t tmpfs -o size={kilobytes}k none "$TMPDIR"'
    command = ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, SMALL_FOLDER]
    told = {**os.environ, "TMPDIR": str(tmp_path)}
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command[:4], mount], env=told, capture_output=True, check=False).returncode
    ):
        pytest.skip("needs unshare, and the permission to mount a folder")
    ended = subprocess.run(command, env=told, capture_output=True, text=True, check=False)
    assert re.match(SAYS_FULL, ended.stdout), ended


def test_a_rank_that_never_comes_to_form_a_group_is_not_waited_for_longer_than_told():
    alone = torch_backend.dist.HashStore()
    said = "rank 0 could not reach the others: the connection timed out"
    with pytest.raises(distributed.TimedOut, match=said):
        torch_backend.TorchTransport(0, 2, alone, {}, timeout=0.3)


@pytest.mark.parametrize("call", ["shift", "all_gather"])
def test_a_call_waits_as_long_as_told_not_as_long_as_forming_may_take(call, monkeypatch):
    monkeypatch.setattr(torch_backend, "FORMING", 0.5)

    def late(me, Q):
        if me.rank == 1 and not isinstance(Q, distributed.ShapeArray):
            time.sleep(1.5)
        getattr(me, call)(Q=Q)
        return Q

    assert len(distributed.run(late, 2, on="gloo", Q=Q[:4]).ledgers) == 2


def test_a_rank_that_raises_ends_all_at_once_on_gloo():
    def raising(me, Q):
        q = me.shift(Q=Q)
        if me.rank == 2 and not isinstance(Q, distributed.ShapeArray):
            raise ValueError("no such block")
        return me.shift(Q=q)

    before = set(threading.enumerate())
    with pytest.raises(distributed.RankFailed, match="rank 2 raised ValueError: no such block"):
        distributed.run(raising, 4, on="gloo", Q=Q, timeout=250)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=120)  # far less than the time-out of a rank that receives no answer
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("on", ["gloo", "processes"])
def test_a_rank_that_is_late_is_named(on):
    def sleeping(me, Q):
        if me.rank == 1 and not isinstance(Q, distributed.ShapeArray):
            time.sleep(6)
        return me.shift(Q=Q)

    said = (
        r"rank 0 waited in shift\(Q\) for rank 1: .*; rank 1 had not ended\. If still computing, increase the"
    )
    with pytest.raises(distributed.TimedOut, match=said):
        distributed.run(sleeping, 2, on=on, Q=Q[:2], timeout=1)


@pytest.mark.parametrize("on", ["count", "gloo", "processes"])
@pytest.mark.parametrize("moves", [False, True])
def test_a_loop_that_never_ends_is_ended(on, moves):
    def turning(me, Q):
        while me.rank == 1 or moves:
            Q = me.shift(Q=Q) if moves else Q
        return me.shift(Q=Q)

    with pytest.raises(distributed.TimedOut, match=r"rank \d was still computing after 0\.5 seconds"):
        distributed.run(turning, 2, on=on, Q=Q[:2], timeout=0.5)


CALLER = """
import threading, time
import numpy as np
from iocourse import distributed

def sleeping(me, Q):
    if threading.current_thread() is threading.main_thread():  # of a process, not in the counting run
        time.sleep(60)
    return Q

distributed.run(sleeping, 2, on="processes", Q=np.ones((4, 2)))
"""


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc to see processes")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    """Kill the starting process: the ranks end and their folder is deleted nevertheless."""
    caller = subprocess.Popen([sys.executable, "-c", CALLER], env={**os.environ, "TMPDIR": str(tmp_path)})
    wait_for(lambda: len(processes_of(tmp_path)) == 3)  # two ranks and the process that forked them
    caller.kill()
    caller.wait()
    wait_for(lambda: not processes_of(tmp_path) and not list(tmp_path.iterdir()))


def test_a_file_created_during_the_deletion_does_not_keep_the_folder(tmp_path, monkeypatch):
    folder, killed, delete = tmp_path / "ranks", [], shutil.rmtree
    folder.mkdir()

    def interrupted(path, ignore_errors):
        if not (path / "output1").exists():
            (path / "output1").touch()  # by a rank, after the other files have been deleted
        else:
            delete(path)

    monkeypatch.setattr(multiprocess.os, "read", lambda *_: b"")
    monkeypatch.setattr(multiprocess.os, "killpg", lambda *group: killed.append(group))
    monkeypatch.setattr(multiprocess.shutil, "rmtree", interrupted)
    multiprocess._end_with_caller(folder)
    assert not folder.exists() and killed == [(0, signal.SIGKILL)]


def processes_of(folder):
    """Return the ids of the processes with a path in this folder on their command line."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found += [line.parent.name] if str(folder).encode() in line.read_bytes() else []
    return found


def wait_for(happens, seconds=240):
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def test_mistakes_are_told_before_anything_is_sent(monkeypatch):
    def facing(me, Q):
        return me.recv(1 - me.rank, "Q")

    tried = breaking(monkeypatch)
    with pytest.raises(distributed.Deadlock, match=r"rank 0 waits in recv\(Q\) for rank 1"):
        distributed.run(facing, 2, on="gloo", Q=Q)
    assert tried == []


def test_an_array_changed_while_it_is_sent_is_found_on_tensors_too():
    def changing(me, Q):
        if isinstance(Q, distributed.ShapeArray):
            return me.shift(Q=Q)
        moving = me.start_shift(Q=Q)
        Q *= 2
        return moving.wait()

    with pytest.raises(distributed.ChangedWhileSent, match="changed Q between start_shift and wait"):
        distributed.run(changing, 2, on="gloo", Q=Q)


def test_messages_of_any_size_go_round_although_all_send_first():
    def messages(me, Q):
        me.send((me.rank + 1) % me.size, Q=Q)
        return me.recv((me.rank - 1) % me.size, "Q")

    run = distributed.run(messages, 4, on="gloo", Q=Q)
    assert np.array_equal(run.O, np.roll(Q, len(Q) // 4, axis=0))


def test_nothing_is_left_running():
    before = set(threading.enumerate())
    distributed.get("ring").run(4, on="gloo", Q=Q, K=K, V=V)
    assert set(threading.enumerate()) <= before


CELL = """
def scaled(times):
    def scale(o, factor=2.0, *, times_more=0.5):
        return o * factor * times * times_more if times else scale(o)
    return scale

double = scaled(2.0)

def merged(o, L, *other):
    return distributed.merge(o, L, *other)

def my_ring(me, Q, K, V):
    k, v = K, V
    o, L = distributed.attend(Q, k, v)
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        o, L = merged(o, L, *distributed.attend(Q, k, v))
    print("done")
    return double(o)

def fails(me, Q):
    if me.rank == 1 and not isinstance(Q, distributed.ShapeArray):
        os._exit(3) if dies else 1 / 0  # style: ok (code)
    return me.shift(Q=Q)

class Halves:
    def of(self, x):
        return x / 2

def by_a_class(me, Q):
    return Halves().of(Q)

def locked(me, Q):
    with lock:
        return Q
"""


@pytest.fixture
def cell():
    """Return functions defined as in a notebook cell, which another process cannot import."""
    import os

    names = {
        "__name__": "__main__",
        "distributed": distributed,
        "os": os,
        "dies": False,
        "lock": threading.Lock(),
    }
    exec(CELL, names)
    return names


def test_a_cells_function_runs_in_real_processes(cell, capsys):
    run = distributed.run(cell["my_ring"], 3, on="processes", Q=Q[:200], K=K[:200], V=V[:200])
    assert exact.max_abs_error(run.O, 2 * exact.attention(Q[:200], K[:200], V[:200])) < 1e-12
    assert run.ledgers == distributed.get("ring").ledgers(3, 200, 64)
    assert capsys.readouterr().out.splitlines() == [f"rank {rank}: done" for rank in range(3)]


@pytest.mark.parametrize(
    ("dies", "says"), [(False, "rank 1 raised ZeroDivisionError"), (True, "exit code 3")]
)
def test_a_process_that_fails_ends_all_with_its_message(cell, dies, says):
    cell["dies"] = dies
    with pytest.raises(distributed.RankFailed, match=says):
        distributed.run(cell["fails"], 2, on="processes", Q=Q, timeout=250)


def test_what_cannot_be_sent_to_a_process_is_told(cell):
    with pytest.raises(CannotShip, match=r"cannot be sent to other processes: cannot pickle '_thread.lock'"):
        distributed.run(cell["locked"], 2, on="processes", Q=Q)


def test_a_class_of_the_notebook_goes_along(cell):
    run = distributed.run(cell["by_a_class"], 2, on="processes", Q=Q[:9])
    assert exact.max_abs_error(run.O, Q[:9] / 2) == 0


def test_without_cloudpickle_the_command_is_told(monkeypatch):
    monkeypatch.setattr("iocourse.distributed.engines.multiprocess.find_spec", lambda name: None)
    with pytest.raises(distributed.RankError, match=re.escape(install_command.command("torch"))):
        distributed.run(distributed.get("ring"), 2, on="processes", Q=Q, K=K, V=V)
