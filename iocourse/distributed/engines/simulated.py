"""Simulated ranks: threads of which exactly one runs at a time, in a fixed order.

A rank runs until it must wait for another rank, so a deadlock is detected without a time-out.
"""

from __future__ import annotations

import contextvars
import ctypes
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...errors import error_text
from ..rank import (
    Deadlock,
    Mismatch,
    Plan,
    Planned,
    RankError,
    RankFailed,
    Stopped,
    TimedOut,
    Transfer,
    call_key,
    forms_of,
)

Key = tuple[Any, ...]  # of a transfer to wait for: the group, the rank that must post, the number of its call
PATIENCE = 1.0  # seconds in which all ranks should end once they are stopped
LONGER = ", or increase the limit with timeout=…"


def run_in_turns(
    body: Callable[[int, SimulatedTransport], Any], size: int, timeout: float | None = None
) -> list[Any]:
    """Run body(rank, transport) for each rank, one thread at a time, and return the results by rank.

    Raises:
        RankError: the error of a rank with its number, Mismatch or Deadlock.
        TimedOut: after `timeout` seconds.
    """
    turns, box, results = RoundRobin(size), dict[Key, Transfer](), [None] * size
    profile, context = sys.getprofile(), contextvars.copy_context()

    def run_rank(rank: int) -> None:
        try:
            turns.take(rank)
            if callable(profile):
                sys.setprofile(profile)  # a profiler of the caller also profiles the ranks
            results[rank] = context.copy().run(body, rank, SimulatedTransport(rank, turns, box))
        # The run has failed elsewhere, and that error is the one to raise.
        except Stopped:
            return
        except BaseException as error:
            turns.fail(rank_error(rank, error))
        turns.finished.add(rank)
        if turns.failure is None:
            turns.give()

    threads = [threading.Thread(target=run_rank, args=(rank,), daemon=True) for rank in range(size)]
    _run_all(threads, turns, timeout)
    if turns.failure is not None:
        raise turns.failure
    _require_all_received(box)
    return results


def _run_all(threads: list[threading.Thread], turns: RoundRobin, timeout: float | None) -> None:
    """Start all threads, let the first run, and return when all have ended; an interrupt ends them too."""
    for thread in threads:
        thread.start()
    turns.give()
    try:
        in_time = turns.over.wait(timeout)
    except BaseException:
        _end_all(threads, turns, RankError("the run was interrupted"))
        raise
    if not in_time:
        _end_all(threads, turns, TimedOut(_late_text(threads, turns.running, f"{timeout:g} seconds")))
    elif turns.failure is not None:
        _joined(threads, PATIENCE)
    else:
        for thread in threads:
            thread.join()


def _joined(threads: Sequence[threading.Thread], seconds: float) -> bool:
    """Wait for the threads, at most this number of seconds in all; return whether all have ended."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(timeout=max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _late_text(threads: Sequence[threading.Thread], rank: int, limit: str) -> str:
    if _waiter(threads[rank]) is None:
        said = f"rank {rank} was still computing after {limit}. "
        return f"{said}Check for an endless loop, a lock or a sleep{LONGER}"
    return (
        f"rank {rank} was still waiting for a queue, an event or a lock after {limit}. "
        "Ranks run one at a time; exchange data with me.send and me.recv"
    )


def _end_all(threads: Sequence[threading.Thread], turns: RoundRobin, why: RankError) -> None:
    """End the ranks: those that wait for others at once, the rest by an exception that is raised in them.

    An exception raised while an object is being destroyed is lost, so it is raised again until the rank ends.
    A rank in a long call of C, such as a sleep, ends after it; its daemon thread is not waited for.
    """
    turns.fail(why)
    for _ in range(20):
        if _joined(threads, PATIENCE / 20):
            return
        for thread in threads:
            if thread.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Stopped)
                )
                waiter = _waiter(thread)
                if waiter is not None and waiter.locked():
                    waiter.release()  # the thread leaves its wait, and the exception is raised


def _waiter(thread: threading.Thread) -> Any:
    """Return the lock on which a thread waits in `Condition.wait` (also of a queue or an event), or None.

    None too if it waits for its turn.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or frame.f_code is not threading.Condition.wait.__code__:
        return None
    caller = frame.f_back
    while caller is not None:
        if caller.f_code is RoundRobin.take.__code__:
            return None
        caller = caller.f_back
    return frame.f_locals.get("waiter")


def _require_all_received(box: dict[Key, Transfer]) -> None:
    """Raise RankError if a message in the box has not been received."""
    for (_, sender, _), transfer in box.items():
        if transfer.role == "send" and transfer.outgoing:
            to = next(iter(transfer.outgoing))
            raise RankError(f"rank {sender} calls {transfer} to rank {to}, which never calls recv for it")


def rank_error(rank: int, error: BaseException) -> RankError:
    """The error of a rank, with the rank's number in front; one that names ranks already stays."""
    if isinstance(error, RankError):
        return error
    failed = RankFailed(f"rank {rank} raised {error_text(error)}")
    failed.__cause__ = error
    return failed


class RoundRobin:
    """Scheduler that lets one rank run at a time. There is one semaphore per rank, on which it waits."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.locks = [threading.Semaphore(0) for _ in range(size)]
        self.ready: deque[int] = deque(range(size))
        self.waiting: dict[Key, list[int]] = defaultdict(list)
        self.waits_for: list[Callable[[], str]] = [str] * size  # per rank: a description of the awaited call
        self.finished = set[int]()
        self.running = 0
        self.failure: RankError | None = None
        self.over = threading.Event()

    def take(self, rank: int) -> None:
        """Block until this rank may run. Raises Stopped if another rank has failed."""
        self.locks[rank].acquire()
        self.running = rank
        if self.failure is not None:
            raise Stopped

    def wait_for(self, rank: int, key: Key, waits_for: Callable[[], str]) -> None:
        """Let other ranks run until a transfer is posted under `key`."""
        self.waits_for[rank] = waits_for
        self.waiting[key].append(rank)
        self.give()
        self.take(rank)

    def posted(self, key: Key) -> None:
        """Mark the ranks that waited for `key` as ready to run."""
        self.ready.extend(self.waiting.pop(key, ()))

    def give(self) -> None:
        """Let the next ready rank run. If there is none, end the run: all have finished or are deadlocked."""
        if self.ready:
            self.locks[self.ready.popleft()].release()
        # No rank is ready, and only a rank that runs can post what the others wait for.
        elif any(self.waiting.values()):
            self.fail(Deadlock(self._deadlock_text()))
        else:
            self.over.set()

    def _deadlock_text(self) -> str:
        waiting = sorted(rank for ranks in self.waiting.values() for rank in ranks)
        told = "; ".join(f"rank {rank} {self.waits_for[rank]()}" for rank in waiting[:4])
        more = f"; and {len(waiting) - 4} more" if len(waiting) > 4 else ""
        return (
            f"no rank can go on: {told}{more}. Every recv needs a matching send, and all ranks must make "
            "every collective call"
        )

    def fail(self, failure: RankError) -> None:
        """Record the failure and end all ranks: each raises Stopped at its next call, or where it waits."""
        self.failure = self.failure or failure
        self.over.set()
        for lock in self.locks:
            lock.release()


class SimulatedTransport:
    """Transport of one rank: transfers are stored in a dict that all ranks of the run share."""

    def __init__(self, rank: int, turns: RoundRobin, box: dict[Key, Transfer]) -> None:
        self.rank, self.turns, self.box = rank, turns, box
        self.plan: Plan = {}

    def post(self, transfer: Transfer) -> None:
        if self.turns.failure is not None:
            raise Stopped
        key = (transfer.group.key, self.rank, transfer.number)
        self.plan[call_key(transfer)] = Planned(forms_of(transfer.outgoing), {})
        self.box[key] = transfer
        self.turns.posted(key)

    def collect(self, transfer: Transfer) -> dict[int, tuple[Any, ...]]:
        came = {source: self._from(source, transfer) for source in transfer.sources}
        self.plan[call_key(transfer)].arrive.update(forms_of(came))
        return came

    def finish(self) -> None:
        """Do nothing: posted transfers are in the box already."""

    def _from(self, source: int, transfer: Transfer) -> tuple[Any, ...]:
        key = (transfer.group.key, source, transfer.number)
        while key not in self.box:
            self.turns.wait_for(self.rank, key, partial(self._waits, source, transfer))
        other = self.box[key]
        if other.call != transfer.call:
            raise Mismatch(
                f"rank {self.rank} calls {transfer} where rank {source} calls {other}: "
                "all ranks of a group must make the same calls in the same order"
            )
        # Removed, so that whatever is left at the end was never received.
        return other.outgoing.pop(self.rank)

    def _waits(self, source: int, transfer: Transfer) -> str:
        done = " (finished)" if source in self.turns.finished else ""
        return f"waits in {transfer} for rank {source}{done}"
