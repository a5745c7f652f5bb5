"""Simulated ranks: threads that take turns, one at a time, in an order that is always the same.

A rank runs until it must wait for another; so who waits for whom is known without a clock.
"""

from __future__ import annotations

import contextvars
import ctypes
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import error_text
from ..rank import (
    Deadlock,
    Mismatch,
    Plan,
    RankError,
    RankFailed,
    Stopped,
    TimedOut,
    Transfer,
    call_key,
    shape_of,
)

Key = tuple[Any, ...]  # what a rank waits for: the group, the rank that must post, the number of its call


def run_in_turns(
    body: Callable[[int, SimulatedTransport], Any], size: int, timeout: float | None = None
) -> list[Any]:
    """What body(rank, transport) returns for each rank, run as threads of which one runs at a time.

    Raises RankError: a rank's own error under its number, Mismatch or Deadlock; TimedOut after so many
    seconds.
    """
    turns, box, results = RoundRobin(size), dict[Key, Transfer](), [None] * size
    profile, context = sys.getprofile(), contextvars.copy_context()

    def run_rank(rank: int) -> None:
        try:
            turns.take(rank)
            if callable(profile):
                sys.setprofile(profile)  # what watches the caller watches its ranks
            results[rank] = context.copy().run(body, rank, SimulatedTransport(rank, turns, box))
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
    """Start all, let the first run, and return when all have ended; an interrupt ends them too."""
    for thread in threads:
        thread.start()
    turns.give()
    try:
        in_time = turns.over.wait(timeout)
    except BaseException:
        _end_all(threads, turns, RankError("the run was interrupted"))
        raise
    if not in_time:
        busy = (
            f"rank {turns.running} was still computing after {timeout:g} seconds in which ranks were counted"
        )
        _end_all(
            threads, turns, TimedOut(f"{busy}: does a loop of it never end? Else give more by timeout=…")
        )
    for thread in threads:
        thread.join(timeout=1.0 if turns.failure else None)


def _end_all(threads: list[threading.Thread], turns: RoundRobin, why: RankError) -> None:
    turns.fail(why)
    for thread in threads:
        if thread.is_alive() and thread.ident is not None:
            # It computes, perhaps for ever: Stopped is raised at its next step.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped)
            )


def _require_all_received(box: dict[Key, Transfer]) -> None:
    """Raise RankError where a message lies in the box that nobody has received."""
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
    """Who may run. One lock a rank: a rank that waits sleeps on its own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.locks = [threading.Semaphore(0) for _ in range(size)]
        self.ready: deque[int] = deque(range(size))
        self.waiting: dict[Key, list[int]] = defaultdict(list)
        self.waits_for: list[Callable[[], str]] = [str] * size  # what each rank waits for, in words
        self.finished = set[int]()
        self.running = 0
        self.failure: RankError | None = None
        self.over = threading.Event()

    def take(self, rank: int) -> None:
        """Sleep until it is this rank's turn. Raises Stopped once another rank has failed."""
        self.locks[rank].acquire()
        self.running = rank
        if self.failure is not None:
            raise Stopped

    def wait_for(self, rank: int, key: Key, waits_for: Callable[[], str]) -> None:
        """Give the turn away until something is posted under `key`."""
        self.waits_for[rank] = waits_for
        self.waiting[key].append(rank)
        self.give()
        self.take(rank)

    def posted(self, key: Key) -> None:
        """Those who waited for `key` may run again."""
        self.ready.extend(self.waiting.pop(key, ()))

    def give(self) -> None:
        """Let the next rank run. Where there is none, all are finished, or no rank can go on."""
        if self.ready:
            self.locks[self.ready.popleft()].release()
        elif any(self.waiting.values()):
            self.fail(Deadlock(self._deadlock_text()))
        else:
            self.over.set()

    def _deadlock_text(self) -> str:
        waiting = sorted(rank for ranks in self.waiting.values() for rank in ranks)
        told = "; ".join(f"rank {rank} {self.waits_for[rank]()}" for rank in waiting[:4])
        more = f"; and {len(waiting) - 4} more" if len(waiting) > 4 else ""
        return f"no rank can go on: {told}{more}. Every recv needs a send before it, every call its partners"

    def fail(self, failure: RankError) -> None:
        """End all ranks: each raises Stopped at its next call, or where it waits."""
        self.failure = self.failure or failure
        self.over.set()
        for lock in self.locks:
            lock.release()


class SimulatedTransport:
    """One rank's end: transfers lie in a box that all ranks of the run share."""

    def __init__(self, rank: int, turns: RoundRobin, box: dict[Key, Transfer]) -> None:
        self.rank, self.turns, self.box = rank, turns, box
        self.plan: Plan = {}

    def post(self, transfer: Transfer) -> None:
        if self.turns.failure is not None:
            raise Stopped
        key = (transfer.group.key, self.rank, transfer.number)
        self.box[key] = transfer
        self.turns.posted(key)

    def collect(self, transfer: Transfer) -> dict[int, tuple[Any, ...]]:
        came = {source: self._from(source, transfer) for source in transfer.sources}
        self.plan[call_key(transfer)] = {
            source: tuple(map(shape_of, arrays)) for source, arrays in came.items()
        }
        return came

    def finish(self) -> None:
        """Nothing is on its way: what was posted lies in the box."""

    def _from(self, source: int, transfer: Transfer) -> tuple[Any, ...]:
        key = (transfer.group.key, source, transfer.number)
        while key not in self.box:
            self.turns.wait_for(self.rank, key, partial(self._waits, source, transfer))
        other = self.box[key]
        if other.call != transfer.call:
            raise Mismatch(
                f"rank {self.rank} calls {transfer} where rank {source} calls {other}: "
                "all ranks of a group make the same calls in the same order"
            )
        return other.outgoing.pop(self.rank)

    def _waits(self, source: int, transfer: Transfer) -> str:
        done = " (finished)" if source in self.turns.finished else ""
        return f"waits in {transfer} for rank {source}{done}"
