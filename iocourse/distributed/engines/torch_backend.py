"""Transport between ranks with torch.distributed process groups.

Shifts and messages are point-to-point operations. Calls of a whole group use one collective per array.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions

from ..rank import (
    CallKey,
    Form,
    Forms,
    Group,
    Plan,
    Planned,
    RankError,
    TimedOut,
    Transfer,
    call_key,
    forms_of,
    name_late_ranks,
)
from .simulated import rank_error

SHIFTS, MESSAGES = 0, 1  # tags
PATIENCE = 1.0  # seconds in which ranks should end once one has failed
ATTEMPTS = 5  # to form a group: on a busy machine about one in a thousand attempts fails
FORMING = 10.0  # seconds that an attempt may take, once all ranks are present
Works = list[tuple[int, Any]]  # (rank at the other end, operation in progress); -1: all ranks of the group
InProgress = tuple[Works, dict[int, tuple[Any, ...]]]  # with the arrays that it fills, by sending rank


def run_threads(
    body: Callable[[int, TorchTransport], Any], plans: Sequence[Plan], timeout: float
) -> list[Any]:
    """Run body(rank, transport) in one thread per rank, connected by gloo, and return the results by rank.

    Raises the RankError of the first rank that fails immediately; the other threads end at their time-out.
    """
    size, store = len(plans), dist.HashStore()
    ended: queue.SimpleQueue[tuple[int, Any, RankError | None]] = queue.SimpleQueue()

    def run_rank(rank: int) -> None:
        torch.set_num_threads(1)
        try:
            transport = TorchTransport(rank, size, store, plans[rank], timeout)
        except BaseException as error:
            ended.put((rank, None, rank_error(rank, error)))
            return
        try:
            ended.put((rank, body(rank, transport), None))
        except BaseException as error:
            ended.put((rank, None, rank_error(rank, error)))
        finally:
            transport.close()

    threads = [threading.Thread(target=run_rank, args=(rank,), daemon=True) for rank in range(size)]
    width = torch.get_num_threads()
    for thread in threads:
        thread.start()
    try:
        return _results(ended, size, timeout)
    finally:
        torch.set_num_threads(width)
        for thread in threads:
            thread.join(timeout=PATIENCE)


def _results(ended: Any, size: int, timeout: float) -> list[Any]:
    """Collect the results of all ranks from the queue and return them by rank.

    Raises the RankError of a rank that failed immediately. If a rank timed out, raises TimedOut with the
    ranks that were late.
    """
    results: dict[int, Any] = {}
    waited: dict[int, RankError] = {}
    until = time.monotonic() + timeout + PATIENCE  # the error of a rank that times out names the rank awaited
    while len(results) + len(waited) < size:
        try:
            rank, result, failure = ended.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if isinstance(failure, TimedOut):
            waited[rank], until = failure, min(until, time.monotonic() + PATIENCE)
        elif failure is not None:
            raise failure
        else:
            results[rank] = result
    late = [rank for rank in range(size) if rank not in results and rank not in waited]
    if waited:
        raise name_late_ranks(waited[min(waited)], late)
    if late:
        raise TimedOut(f"rank {', '.join(map(str, late))} did not end within {timeout:g} seconds")
    return [results[rank] for rank in range(size)]


class TorchTransport:
    """Transport of one rank. `plan` has the types and shapes of all calls; `post` allocates the buffers."""

    def __init__(
        self, rank: int, size: int, store: Any, plan: Plan, timeout: float, backend: str = "gloo"
    ) -> None:
        self.rank, self.plan, self.store = rank, plan, store
        self.timeout, self.backend = timeout, backend
        # Without a limit gloo's messages wait only FORMING seconds; with one, NCCL would block this process.
        self.limit = (timedelta(seconds=timeout),) if backend == "gloo" else ()
        self.device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
        self.groups: dict[tuple[Any, ...], Any] = {}
        self.in_progress: dict[CallKey, InProgress] = {}
        self.leaving: list[tuple[Transfer, int, Any]] = []
        self.world = Group(tuple(range(size)))
        self._group(self.world)

    def _group(self, group: Group) -> Any:
        if group.key not in self.groups:
            store = dist.PrefixStore(repr(group.key), self.store)
            at, size = group.members.index(self.rank), len(group.members)
            try:
                self.groups[group.key] = self._formed(store, at, size)
            except RuntimeError as error:  # another rank has ended, or all attempts failed
                raise TimedOut(
                    f"rank {self.rank} could not reach the others: the {_how_it_ended(error)}"
                ) from None
        return self.groups[group.key]

    def _formed(self, store: Any, at: int, size: int) -> Any:
        """Form the process group and return it; repeat the attempt if it failed on any rank of the group.

        Each rank writes to the store that it is present, and after each attempt whether it succeeded. So
        either all ranks make the next attempt, under a new prefix, or none does.
        """
        until = time.monotonic() + self.timeout
        _exchange_states(store, "there", at, size, "", until)
        broke = RuntimeError("a connection broke in every attempt")
        for attempt in range(ATTEMPTS):
            made, fresh = None, dist.PrefixStore(f"attempt {attempt}", store)
            try:
                made = process_group(fresh, at, size, self.backend, self.timeout)
            except RuntimeError as error:
                broke = error
            said = "broke" if made is None else "formed"
            if "broke" not in _exchange_states(store, f"after {attempt}", at, size, said, until):
                return made
        raise broke

    def post(self, transfer: Transfer) -> None:
        planned = self.plan.get(call_key(transfer))
        if planned is None:
            raise RankError(
                f"rank {self.rank} calls {transfer}, which it did not call in the counting run. A schedule "
                "must make the same calls in every run"
            )
        self._refuse_unplanned(transfer, planned)
        if len(transfer.group.members) == 1:
            self.in_progress[call_key(transfer)] = [], {}
            return
        collective = transfer.call.kind in ("all_gather", "all_to_all")
        move = self._all_together if collective else self._between_two
        try:
            self.in_progress[call_key(transfer)] = move(transfer, planned.arrive)
        except RankError:
            raise
        except RuntimeError as error:
            raise self._timed_out(transfer, -1, error) from None

    def _refuse_unplanned(self, transfer: Transfer, planned: Planned) -> None:
        """Raise RankError unless every array leaves as the receiver's buffer was planned."""
        for to, forms in forms_of(transfer.outgoing).items():
            expected = planned.leave.get(to, ())
            named = zip(transfer.call.names, transfer.outgoing[to], forms, expected, strict=True)
            for name, array, form, wanted in named:
                who = f"rank {self.rank} sends {name} in {transfer}"
                if array is not None and not isinstance(array, torch.Tensor):
                    raise RankError(
                        f"{who} as a NumPy array; on this engine arrays are tensors: torch.as_tensor({name})"
                    )
                if form != wanted:
                    raise RankError(
                        f"{who} as {form}, but the counting run sent {wanted}. A schedule must send the same "
                        "types and shapes in every run"
                    )

    def collect(self, transfer: Transfer) -> dict[int, tuple[Any, ...]]:
        works, came = self.in_progress.pop(call_key(transfer))
        # The rank computes on while its message leaves; `finish` waits for it.
        if transfer.role == "send":
            self.leaving += [(transfer, *work) for work in works]
            return came
        for other, work in works:
            self._wait(transfer, other, work)
        return came

    def finish(self) -> None:
        """Wait until all messages have left."""
        for transfer, other, work in self.leaving:
            self._wait(transfer, other, work)

    def close(self) -> None:
        """Close the connections; a rank that still waits on one fails immediately."""
        self.leaving.clear()
        self.in_progress.clear()
        self.groups.clear()

    def _wait(self, transfer: Transfer, other: int, work: Any) -> None:
        try:
            work.wait(*self.limit)
        except RuntimeError as error:
            raise self._timed_out(transfer, other, error) from None

    def _timed_out(self, transfer: Transfer, other: int, error: RuntimeError) -> RankError:
        who = f"rank {other}" if other >= 0 else "the others"
        return TimedOut(f"rank {self.rank} waited in {transfer} for {who}: the {_how_it_ended(error)}")

    def _between_two(self, transfer: Transfer, forms: Mapping[int, Forms]) -> InProgress:
        message = transfer.call.kind == "message"
        group = self.world if message else transfer.group
        pg, tag = self._group(group), MESSAGES if message else SHIFTS
        place = group.members.index
        came = {source: tuple(map(self._empty, wanted)) for source, wanted in forms.items()}
        works: Works = []
        with _batched(pg, self.device, works):
            for to, arrays in transfer.outgoing.items():
                works += [(to, pg.send([a], place(to), tag)) for a in arrays if _has_words(a)]
            for source, arrays in came.items():
                works += [(source, pg.recv([a], place(source), tag)) for a in arrays if _has_words(a)]
        return works, came

    def _empty(self, form: Form | None) -> Any:
        if form is None:
            return None
        return torch.empty(form.shape, dtype=getattr(torch, form.kind), device=self.device)

    def _all_together(self, transfer: Transfer, forms: Mapping[int, Forms]) -> InProgress:
        came = {source: tuple(map(self._empty, wanted)) for source, wanted in forms.items()}
        works: Works = []
        for at in range(len(transfer.call.names)):
            leaves = {to: arrays[at] for to, arrays in transfer.outgoing.items()}
            works.append((-1, self._one_array(transfer, leaves, {at_: a[at] for at_, a in came.items()})))
        return works, came

    def _one_array(self, transfer: Transfer, leaves: dict[int, Any], comes: dict[int, Any]) -> Collective:
        """Start one collective for pieces of different lengths, with one send and one receive buffer."""
        pg, members = self._group(transfer.group), transfer.group.members
        sent, due = ([_words(side.get(rank)) for rank in members] for side in (leaves, comes))
        lengths = {_words(a) for a in (*leaves.values(), *comes.values())}
        if transfer.call.kind == "all_gather" and len(lengths) == 1 and 0 not in lengths:
            return self._gather(pg, members, next(iter(leaves.values())), comes)
        # All pieces have one type, which the counting run has checked.
        kind = next((a.dtype for a in (*leaves.values(), *comes.values()) if a is not None), torch.float64)
        nothing = torch.empty(0, dtype=kind, device=self.device)
        flat = {rank: array.flatten() for rank, array in leaves.items() if array is not None}
        out = torch.cat([flat.get(rank, nothing) for rank in members])
        into = torch.empty(sum(due), dtype=kind, device=self.device)
        work = pg.alltoall_base(into, out, due, sent, dist.AllToAllOptions())
        return Collective(work, into.split(due), [comes.get(rank) for rank in members])

    def _gather(self, pg: Any, members: Sequence[int], own: Any, comes: dict[int, Any]) -> Collective:
        """Start PyTorch's all_gather, for pieces of equal length."""
        n = own.numel()
        into = torch.empty(len(members) * n, dtype=own.dtype, device=self.device)
        work = pg._allgather_base(into, own.flatten(), AllgatherOptions())
        return Collective(work, into.split(n), [comes.get(rank) for rank in members])


def process_group(store: Any, rank: int, size: int, backend: str, timeout: float) -> Any:
    """Return a new process group that is not registered globally; it ends when it is garbage-collected.

    Raises ValueError if the backend is not gloo or nccl.
    """
    limit = timedelta(seconds=timeout)
    group = dist.ProcessGroup(store, rank, size)
    if backend == "gloo":
        kind, device = dist.ProcessGroup.BackendType.GLOO, torch.device("cpu")
        made = dist.ProcessGroupGloo(store, rank, size, min(limit, timedelta(seconds=FORMING)))
        made._set_default_timeout(limit)
    elif backend == "nccl":
        kind, device = dist.ProcessGroup.BackendType.NCCL, torch.device("cuda")
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = limit
        made = dist.ProcessGroupNCCL(store, rank, size, options)
    else:
        raise ValueError(f"backend must be gloo or nccl, got {backend!r}")
    group._set_default_backend(kind)
    group._register_backend(device, kind, made)
    return group


def tensor(array: Any) -> Any:
    """Convert a NumPy array to a tensor without a copy; return a tensor unchanged."""
    return array if isinstance(array, torch.Tensor) else torch.from_numpy(array)


def array(tensor: Any) -> Any:
    """Convert a tensor to a NumPy array in float64 on the CPU; return anything else unchanged."""
    return tensor.detach().cpu().double().numpy() if isinstance(tensor, torch.Tensor) else tensor


def _exchange_states(store: Any, what: str, at: int, size: int, said: str, until: float) -> list[str]:
    """Write this rank's state to the store and return the states of all ranks of the group.

    Raises RuntimeError if a state is still missing at the time `until`.
    """
    store.set(f"{what} {at}", said)
    keys = [f"{what} {rank}" for rank in range(size)]
    store.wait(keys, timedelta(seconds=max(0.001, until - time.monotonic())))
    return [store.get(key).decode() for key in keys]


def _how_it_ended(error: RuntimeError) -> str:
    """Return how a connection ended in one line, with gloo's reason unless it is a time-out."""
    said = str(error).strip()
    if "timed out" in said.lower() or "timeout" in said.lower():
        return "connection timed out"
    # "[enforce fail at …/device.cc:84] ifa != nullptr. Unable to find address for: eth9" names the interface
    reason = said.splitlines()[0].rpartition("] ")[2].removeprefix("ifa != nullptr. ") if said else ""
    if reason.startswith("Unable to find address"):
        reason += f"; GLOO_SOCKET_IFNAME is {os.environ.get('GLOO_SOCKET_IFNAME', 'not set')}"
    return f"connection broke ({reason})" if reason else "connection broke"


class Collective:
    """A collective in progress; `wait` copies its receive buffer to the separate arrays."""

    def __init__(self, work: Any, parts: Sequence[Any], arrays: Sequence[Any]) -> None:
        self.work, self.parts, self.arrays = work, parts, arrays

    def wait(self, *limit: timedelta) -> None:
        """Wait, at most for the limit if there is one, and fill the arrays."""
        self.work.wait(*limit)
        for part, array in zip(self.parts, self.arrays, strict=True):
            if array is not None:
                array.copy_(part.view(array.shape))


def _words(array: Any) -> int:
    return 0 if array is None else int(array.numel())


def _has_words(array: Any) -> bool:
    return _words(array) > 0


@contextmanager
def _batched(pg: Any, device: Any, works: Works) -> Iterator[None]:
    """Combine sends and receives into one batch on NCCL, which needs this; do nothing on gloo."""
    if device.type != "cuda":
        yield
        return
    pg._start_coalescing(device)
    yield
    works[:] = [(-1, pg._end_coalescing(device))]
