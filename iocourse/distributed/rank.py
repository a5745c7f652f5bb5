"""Communication calls of a rank: `me.shift(K=k, V=v)`, `me.all_gather(…)` and so on, with word counts.

The argument names are the names of the arrays in the ledger. This module counts the words; an engine moves
them. A rank posts the arrays to send, collects the received ones from its engine, and records both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .layouts import row_indices
from .ledger import Exchange, RankLedger
from .partial_attention import Array, at_least_float32, namespace
from .shape_arrays import FLOATS, ShapeArray, type_name

MOST_CALLS = 100_000  # per rank: far more than any schedule of the course makes
TYPES = (*reversed(FLOATS), "int64", "int32", "int8", "uint8", "bool")  # those that gloo sends in every call
Blocks = Callable[[int], tuple[range, ...]]  # rank (global number) -> the ranges of rows that it owns


class Rank:
    """Handle of one rank, passed to its schedule as `me`: its number, its rows and its communication calls.

    `shift`, `all_gather`, `all_to_all` and `reduce_scatter` are collective: all ranks of the group must make
    them in the same order with the same names and types. `send` and `recv` are between two ranks. Each
    returns one array, or a tuple in the order of the names. Sent arrays are copied immediately.
    """

    def __init__(
        self, transport: Transport, group: Group, number: int, account: RankAccount, blocks: Blocks
    ) -> None:
        self._transport, self._group, self._number, self._account = transport, group, number, account
        self._blocks = blocks
        self._calls = 0
        self._messages: dict[tuple[int, int], int] = {}
        self._grids = 0
        self._moving: list[PendingTransfer] = []

    @property
    def rank(self) -> int:
        """Number of this rank in its group, from 0."""
        return self._group.members.index(self._number)

    @property
    def size(self) -> int:
        """Number of ranks in the group."""
        return len(self._group.members)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def blocks(self, rank: int | None = None) -> tuple[range, ...]:
        """Return the rows of the first array that a rank (default: this one) owns at the start, as ranges."""
        return self._blocks(self._number if rank is None else self._group.members[self._known("rank", rank)])

    def rows(self, rank: int | None = None) -> NDArray[np.int64]:
        """Return `blocks` as one array: the positions of the rank's rows in the sequence."""
        return row_indices(self.blocks(rank))

    def cut(self, array: Array) -> list[Array]:
        """Cut the rows of an array into one part per rank of this group; the inverse of `all_gather`.

        Raises ValueError if the number of rows is not that of the group.
        """
        if not hasattr(array, "shape"):
            raise TypeError(
                f"cut needs an array, got a {type(array).__name__} (attend returns the tuple o, L)"
            )
        ends = list(accumulate((sum(map(len, self.blocks(rank))) for rank in range(self.size)), initial=0))
        if len(array) != ends[-1]:
            raise ValueError(
                f"cut needs the {ends[-1]} rows of the {self.size} ranks of this group, got {len(array)}"
            )
        return [array[start:stop] for start, stop in pairwise(ends)]

    def shift(self, *, by: int = 1, **arrays: Array | None) -> Any:
        """Send the arrays to rank + by, and return those of rank - by. None sends no array."""
        return self._start_shift(by, arrays).wait()

    def start_shift(self, *, by: int = 1, **arrays: Array | None) -> PendingTransfer:
        """Start a shift; its `wait()` returns the received arrays. Until then do not change the sent ones."""
        moving = self._start_shift(by, arrays)
        # The current values, for detecting changes in wait().
        moving._watched = [(name, a, _print_of(a)) for name, a in arrays.items() if a is not None]
        return moving

    def _start_shift(self, by: int, arrays: dict[str, Array | None]) -> PendingTransfer:
        call = Call("shift", tuple(arrays), f"by={by}" if by != 1 else "")
        self._refuse(call, arrays.items())
        if not isinstance(by, int) or (by % self.size == 0 and self.size > 1):
            raise ValueError(
                f"by in {call} must be an integer that is not a multiple of {self.size}, got {by!r}"
            )
        outgoing, sources = {(self.rank + by) % self.size: arrays}, [(self.rank - by) % self.size]
        return self._post(call, outgoing, sources)

    def all_gather(self, **arrays: Array) -> Any:
        """Return the arrays of all ranks, concatenated along their rows in the order of the ranks."""
        call = Call("all_gather", tuple(arrays))
        self._refuse(call, arrays.items())
        moving = self._post(call, dict.fromkeys(self._others, arrays), self._others)
        came = zip(arrays, moving.all_that_came(), arrays.values(), strict=True)
        return _one_or_all([joined(self._alike(call, name, each, own)) for name, each, own in came])

    def all_to_all(self, **pieces: Sequence[Array | None]) -> Any:
        """Send one piece to every rank and return the list of pieces received, for each name.

        `pieces[name]` is a list with one piece per rank. The piece for this rank is kept. None sends nothing.
        """
        call = Call("all_to_all", tuple(pieces))
        for name, parts in pieces.items():
            self._refuse_pieces(call, name, parts)
        outgoing = {to: {name: parts[to] for name, parts in pieces.items()} for to in self._others}
        moving = self._post(call, outgoing, self._others)
        came = zip(pieces, moving.all_that_came(), pieces.values(), strict=True)
        return _one_or_all([self._alike(call, name, each, parts[self.rank]) for name, each, parts in came])

    def reduce_scatter(self, **pieces: Sequence[Array]) -> Any:
        """Exchange pieces as `all_to_all` does; return the sum of the pieces for this rank, for each name.

        Pieces of a 16-bit type are summed in float32.
        """
        for name, parts in pieces.items():
            self._refuse_pieces(Call("reduce_scatter", tuple(pieces)), name, parts)
        came = self.all_to_all(**pieces)
        lists = [came] if len(pieces) == 1 else list(came)
        return _one_or_all([_summed(parts) for parts in lists])

    def send(self, to: int, **arrays: Array) -> None:
        """Send the arrays to one rank, which must call `recv` with the same names. Does not wait."""
        call = Call("message", tuple(arrays))
        self._refuse(call, arrays.items())
        self._post(call, {self._partner("to", to): arrays}, [], "send")

    def recv(self, source: int, *names: str) -> Any:
        """Wait for the arrays that rank `source` sends with these names, and return them."""
        call = Call("message", names)
        return self._post(call, {}, [self._partner("source", source)], "recv").wait()

    def grid(self, a: int) -> tuple[Rank, Rank]:
        """Return (row, col): this rank in its row group and in its column group of a grid of `a` rows.

        With b = size/a, rank p is in row p // b and column p % b. `row` has b ranks and `col` has a ranks.
        All ranks must call it. Raises ValueError if `a` does not divide the number of ranks.
        """
        if not isinstance(a, int) or a < 1 or self.size % a:
            fits = ", ".join(str(n) for n in range(1, self.size + 1) if self.size % n == 0)
            raise ValueError(f"a must divide the number of ranks, {self.size}: one of {fits}, got {a!r}")
        b = self.size // a
        i, j = divmod(self.rank, b)
        self._grids += 1
        return self._among(range(i * b, i * b + b), "row"), self._among(range(j, self.size, b), "col")

    def _among(self, ranks: Iterable[int], kind: str) -> Rank:
        members = tuple(self._group.members[rank] for rank in ranks)
        group = Group(members, (*self._group.key, kind, self._grids, members[0]))
        made = Rank(self._transport, group, self._number, self._account, self._blocks)
        made._moving = self._moving
        return made

    def leave(self) -> None:
        """Check, after the schedule has returned, that wait() was called on every start_shift.

        Raises RankError if one is missing.
        """
        if self._moving:
            raise RankError(f"rank {self._number} ended without wait() on its {self._moving[0]._transfer}")

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _partner(self, name: str, rank: int) -> int:
        if self._known(name, rank) == self.rank:
            raise ValueError(f"{name} must be another rank, got {rank}, which is this rank itself")
        return int(rank)

    def _known(self, name: str, rank: int) -> int:
        if not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.size:
            raise ValueError(
                f"{name} must be one of the {self.size} ranks, 0 to {self.size - 1}, got {rank!r}"
            )
        return int(rank)

    def _refuse(self, call: Call, arrays: Iterable[tuple[str, Any]]) -> None:
        for name, array in arrays:
            if array is None:
                continue
            if not hasattr(array, "shape"):
                raise TypeError(f"{name} in {call} must be an array or None, got {type(array).__name__}")
            if type_name(array) not in TYPES:
                known = ", ".join(TYPES)
                raise TypeError(f"{name} in {call} has type {type_name(array)}, expected one of {known}")
        if not call.names:
            raise TypeError(f"{call.kind}() got no arrays. Pass them by name: {call.kind}(K=k)")

    def _refuse_pieces(self, call: Call, name: str, parts: Any) -> None:
        if not isinstance(parts, (list, tuple)) or len(parts) != self.size:
            got = f"{len(parts)} pieces" if isinstance(parts, (list, tuple)) else type(parts).__name__
            raise ValueError(
                f"{name} in {call} must be a list of {self.size} pieces, one for each rank, got {got}"
            )
        self._refuse(call, [(name, part) for part in parts])

    def _alike(self, call: Call, name: str, came: dict[int, Array | None], own: Any) -> list[Array | None]:
        """Return the pieces in the order of the ranks. Raises RankError if they differ in type."""
        pieces = _in_order(came, self.rank, own)
        kinds = {rank: type_name(piece) for rank, piece in enumerate(pieces) if piece is not None}
        if len(set(kinds.values())) > 1:
            told = ", ".join(f"{kind} from rank {rank}" for rank, kind in kinds.items())
            raise RankError(f"rank {self._number} receives {name} in {call} as {told}; expected one type")
        return pieces

    def _post(
        self,
        call: Call,
        outgoing: dict[int, dict[str, Array | None]],
        sources: Sequence[int],
        role: str = "",
    ) -> PendingTransfer:
        """Copy the arrays to send and post them to the transport. Ranks are numbers in this group."""
        if len(self._account.exchanges) >= MOST_CALLS:
            raise RankError(f"rank {self._number} has made {MOST_CALLS:,} calls. Check for an endless loop")
        members = self._group.members
        copies = {
            members[to]: tuple(map(contiguous_copy, arrays.values())) for to, arrays in outgoing.items()
        }
        came_from = tuple(members[source] for source in sources)
        group, number = self._numbered(role, [*copies, *came_from])
        transfer = Transfer(call, group, number, copies, came_from, role)
        moving = PendingTransfer(self, transfer)
        self._moving.append(moving)
        if list(copies) == [self._number]:  # a shift in a group of one
            moving.own = copies[self._number]
            return moving
        self._transport.post(transfer)
        if role == "send":
            moving.wait()
        return moving

    def _numbered(self, role: str, partner: list[int]) -> tuple[Group, int]:
        """Return the group and the call number that identify this call on all ranks that take part."""
        if not role:
            self._calls += 1
            return self._group, self._calls
        pair = (self._number, partner[0]) if role == "send" else (partner[0], self._number)
        self._messages[pair] = self._messages.get(pair, 0) + 1
        return Group(pair, (*self._group.key, "message", *pair)), self._messages[pair]


class PendingTransfer:
    """A call in progress; `wait()` returns the received arrays."""

    def __init__(self, me: Rank, transfer: Transfer) -> None:
        self._me, self._transfer = me, transfer
        self._held = [[HeldWords(me._account) for _ in transfer.call.names] for _ in transfer.sources]
        self._watched: list[tuple[str, Array, Any]] = []
        self._sent = _sent_words(transfer)
        self.own: tuple[Array | None, ...] | None = (
            None  # arrays that the only rank of a group shifts to itself
        )

    def __repr__(self) -> str:
        return f"<{self._transfer} of rank {self._me.rank}: wait() returns the arrays>"

    def wait(self) -> Any:
        """Return the received arrays: one array, or a tuple in the order of the names.

        Raises ChangedWhileSent if a sent array has been changed since, and RankError if called twice.
        """
        return _one_or_all([next(iter(came.values()), None) for came in self.all_that_came()])

    def all_that_came(self) -> list[dict[int, Array | None]]:
        """Return, for each name, the received arrays by the sender's rank in the group; only once."""
        if self not in self._me._moving:
            raise RankError(f"rank {self._me._number} calls wait() on its {self._transfer} a second time")
        self._me._moving.remove(self)
        self._refuse_changes()
        if self.own is None:
            came = self._me._transport.collect(self._transfer)
            self._write_down(came)
        else:
            came = {self._me._number: self.own}
        members, names = self._me._group.members, range(len(self._transfer.call.names))
        # The partner of a message need not be in the group; its number is not used then.
        place = {rank: members.index(rank) if rank in members else rank for rank in came}
        return [{place[rank]: arrays[at] for rank, arrays in came.items()} for at in names]

    def _refuse_changes(self) -> None:
        for name, array, before in self._watched:
            if not _unchanged(array, before):
                raise ChangedWhileSent(
                    f"rank {self._me._number} changed {name} between start_shift and wait(), while it was "
                    "being sent. Call wait() first, or change a copy"
                )
        self._watched = []

    def _write_down(self, came: dict[int, tuple[Array | None, ...]]) -> None:
        transfer, received = self._transfer, dict.fromkeys(self._transfer.call.names if self._held else (), 0)
        for all_held, source in zip(self._held, transfer.sources, strict=True):
            for name, held, array in zip(transfer.call.names, all_held, came[source], strict=True):
                received[name] += _words(array)
                if array is not None:
                    held.fill(_words(array), array)
        self._held, self._transfer = [], transfer._replace(outgoing={})
        members = transfer.group.members
        self._me._account.add(Exchange(transfer.role or transfer.call.kind, self._sent, received, members))


def _sent_words(transfer: Transfer) -> dict[str, int]:
    sent = dict.fromkeys(transfer.call.names if transfer.outgoing else (), 0)
    for arrays in transfer.outgoing.values():
        for name, array in zip(transfer.call.names, arrays, strict=True):
            sent[name] += _words(array)
    return sent


def _words(array: Array | None) -> int:
    return 0 if array is None else prod(array.shape)


def contiguous_copy(array: Array | None) -> Array | None:
    """Return a contiguous copy of the array (NumPy array, tensor or ShapeArray); None remains None."""
    if array is None:
        return None
    if isinstance(array, ShapeArray):
        return array.copy()
    return np.array(array, order="C") if namespace(array) is np else array.detach().clone().contiguous()


def _print_of(array: Array) -> Any:
    """Return a snapshot for detecting changes: a copy of the values, or the number of writes so far."""
    if isinstance(array, ShapeArray):
        return (array if array.base is None else array.base).changes
    return np.array(array) if namespace(array) is np else array._version


def _unchanged(array: Array, before: Any) -> bool:
    now = _print_of(array)
    return np.array_equal(now, before, equal_nan=True) if isinstance(now, np.ndarray) else bool(now == before)


def joined(arrays: Sequence[Array], axis: int = 0) -> Array:
    """Concatenate arrays along an axis.

    Words that were received from other ranks count as held as long as the result exists.
    """
    made = namespace(arrays[0]).concatenate(list(arrays), axis)
    for held in {id(held): held for array in arrays for held in held_words_of(array)}.values():
        attach(made, held)
    return made


def _in_order(came: dict[int, Array | None], rank: int, own: Array | None) -> list[Array | None]:
    """Return the received pieces and the own one, in the order of the ranks."""
    return [array for _, array in sorted({**came, rank: own}.items(), key=lambda item: item[0])]


def _summed(parts: Sequence[Array]) -> Array:
    total = at_least_float32(parts[0])[0] if type_name(parts[0]) in ("float16", "bfloat16") else parts[0]
    total = contiguous_copy(total)
    for part in parts[1:]:
        total += part
    return total


def _one_or_all(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


# ---------------------------------------------------------------------- errors: every message names the rank
class RankError(RuntimeError):
    """Error of a run on ranks: an invalid call, or a rank that failed."""


class RankFailed(RankError):
    """The schedule raised an exception on a rank; `__cause__` is that exception."""


class Mismatch(RankError):
    """Two ranks that must make the same collective call made different ones."""


class Deadlock(RankError):
    """No rank can continue, because each waits for a call that another rank will not make."""


class ChangedWhileSent(RankError):
    """An array was changed between `start_shift` and `wait()`, which on a network is a race condition."""


class TimedOut(RankError):
    """A rank did not end, or did not receive an answer, within the time limit."""


def name_late_ranks(failure: RankError, late: Sequence[int]) -> RankError:
    """Return the error of a rank that waited, extended by the ranks that had not ended."""
    if not late:
        return failure
    ranks = f"rank {', '.join(map(str, late))}"
    return TimedOut(
        f"{failure}; {ranks} had not ended. If still computing, increase the limit with timeout=…"
    )


class CannotShip(TypeError):
    """An object that a schedule uses cannot be pickled for another process."""


class Stopped(BaseException):
    """Ends a rank after another one failed; `except Exception` in a schedule does not catch it."""


# ---------------------------------------------------------------------- interface of rank and engine
class Call(NamedTuple):
    """Signature of a call, which must be the same on all ranks that take part."""

    kind: str  # "shift", "all_gather", "all_to_all" or "message"
    names: tuple[str, ...]
    detail: str = ""  # further arguments that must agree, as written in the call: "by=2"

    def __str__(self) -> str:
        return f"{self.kind}({', '.join([*self.names, self.detail] if self.detail else self.names)})"


class Group(NamedTuple):
    """Ranks that make collective calls together; each group has a unique `key`."""

    members: tuple[int, ...]  # global rank numbers
    key: tuple[Any, ...] = ()


class Transfer(NamedTuple):
    """Data of one call on one rank: the arrays to send by rank, and the ranks to receive from.

    The arrays (or None) are in the order of the call's names.
    """

    call: Call
    group: Group
    number: (
        int  # of the call, from 1: among this rank's calls in the group, or messages between the two ranks
    )
    outgoing: dict[int, tuple[Any, ...]]
    sources: tuple[int, ...]
    role: str = ""  # "send" or "recv" where the call is a message

    def __str__(self) -> str:
        return str(self.call._replace(kind=self.role or self.call.kind))


class Form(NamedTuple):
    """Type and shape of an array that is sent."""

    kind: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.shape}"


Forms = tuple[Form | None, ...]  # of the arrays of a call; None: no array is sent


class Planned(NamedTuple):
    """Forms of the arrays that leave and arrive in a call, by the rank at the other end."""

    leave: dict[int, Forms]
    arrive: dict[int, Forms]


CallKey = tuple[tuple[Any, ...], int, str]  # of a call among all those of a rank
Plan = dict[CallKey, Planned]


def call_key(transfer: Transfer) -> CallKey:
    """Return the key that identifies a call among all calls of its rank."""
    return transfer.group.key, transfer.number, transfer.role


def forms_of(by_rank: Mapping[int, Sequence[Any]]) -> dict[int, Forms]:
    """Return the form of each array, by rank; None where nothing was sent."""
    return {
        rank: tuple(None if a is None else Form(type_name(a), tuple(a.shape)) for a in arrays)
        for rank, arrays in by_rank.items()
    }


class Transport(Protocol):
    """Interface by which one rank exchanges arrays with the others. Ranks are global numbers."""

    def post(self, transfer: Transfer) -> None:
        """Send the transfer's arrays, which are copies, without waiting."""

    def collect(self, transfer: Transfer) -> dict[int, tuple[Any, ...]]:
        """Wait for the arrays that the ranks `sources` post in the same call, and return them by rank."""

    def finish(self) -> None:
        """Wait until all sends are complete; called after the schedule has returned."""


# ---------------------------------------------------------------------- words received, sent and held
class HeldWords:
    """Words of a receive buffer, from its allocation until the last array that uses them is deleted."""

    def __init__(self, account: RankAccount) -> None:
        self.account, self.shown = account, 0
        self.entry = [0]  # change of the words held at this moment; set by `fill`
        account.changes.append(self.entry)

    def fill(self, words: int, array: Any) -> None:
        """Count the words, which have arrived in `array`."""
        self.entry[0] = words
        attach(array, self)

    def detach(self) -> None:
        """Remove one array that uses the words; the last one frees them."""
        self.shown -= 1
        if not self.shown:
            self.account.changes.append([-self.entry[0]])


_SHOWN: dict[int, tuple[weakref.ref[Any], list[HeldWords]]] = {}  # by the id of an existing array


def attach(array: Any, held: HeldWords) -> None:
    """Count the words of `held` as long as `array`, or a slice of it, exists."""
    key = id(array)
    if key not in _SHOWN:
        _SHOWN[key] = (weakref.ref(array, lambda _: _gone(key)), [])
    _SHOWN[key][1].append(held)
    held.shown += 1


def _gone(key: int) -> None:
    for held in _SHOWN.pop(key)[1]:
        held.detach()


def held_words_of(array: Any) -> list[HeldWords]:
    """Return the HeldWords that this array uses."""
    return list(_SHOWN[id(array)][1]) if id(array) in _SHOWN else []


class RankAccount:
    """Record of the words that a rank receives, sends and holds while it runs; `ledger` summarises it."""

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.exchanges: list[Exchange] = []
        self.changes: list[list[int]] = []

    def add(self, exchange: Exchange) -> None:
        """Record one call."""
        self.exchanges.append(exchange)
        for total, words in ((self.received, exchange.received), (self.sent, exchange.sent)):
            for name, count in words.items():
                total[name] = total.get(name, 0) + count

    @property
    def ledger(self) -> RankLedger:
        """Ledger of the calls so far."""
        held = accumulate(change[0] for change in self.changes)
        return RankLedger(
            dict(self.received), dict(self.sent), max(held, default=0), list(self.exchanges), measured=True
        )
