"""What a schedule may call on its rank: `me.shift(K=k, V=v)`, `me.all_gather(…)` and so on.

The names of the arguments are the names of the arrays in the ledger. Words are counted here; an engine only
moves them: a rank posts what leaves, its engine later hands over what came, and the account writes both down.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .layouts import row_indices
from .ledger import Exchange, RankLedger
from .partial_attention import Array, namespace
from .shape_arrays import ShapeArray

MOST_CALLS = 100_000  # of one rank: far more than any schedule of the course makes
Blocks = Callable[[int], tuple[range, ...]]  # of a rank, in the numbers of the whole run


class Rank:
    """One rank of `size`, as its schedule sees it: `me`.

    `shift`, `all_gather`, `all_to_all` and `reduce_scatter` are calls that all ranks of the group make, in
    one order and with the same names; `send` and `recv` are between two. Each returns the array, or a tuple
    in the order of the names. What is sent is copied at once.
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
        """Which rank this is, from 0."""
        return self._group.members.index(self._number)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self._group.members)

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def blocks(self, rank: int | None = None) -> tuple[range, ...]:
        """The rows of the first array that a rank (this one, unless told) owned at the start: ranges."""
        return self._blocks(self._number if rank is None else self._group.members[self._known("rank", rank)])

    def rows(self, rank: int | None = None) -> NDArray[np.int64]:
        """As `blocks`, all in one array: the places in the text of the rank's rows."""
        return row_indices(self.blocks(rank))

    def cut(self, array: Array) -> list[Array]:
        """The array's rows cut into those of each rank of this group, as `all_gather` has joined them."""
        if not hasattr(array, "shape"):
            raise TypeError(f"cut got a {type(array).__name__}; it must be an array (attend returns o and L)")
        ends = list(accumulate((sum(map(len, self.blocks(rank))) for rank in range(self.size)), initial=0))
        if len(array) != ends[-1]:
            raise ValueError(f"cut got {len(array)} rows; the {self.size} ranks of this group own {ends[-1]}")
        return [array[start:stop] for start, stop in pairwise(ends)]

    def shift(self, *, by: int = 1, **arrays: Array | None) -> Any:
        """Send the arrays to rank + by, and return those of rank - by. None sends nothing, and arrives so."""
        return self._start_shift(by, arrays).wait()

    def start_shift(self, *, by: int = 1, **arrays: Array | None) -> PendingTransfer:
        """Begin a shift; its `wait()` returns what came. Till then the arrays may be read, not changed."""
        moving = self._start_shift(by, arrays)
        # What the arrays hold now, to see at the end whether they were changed.
        moving._watched = [(name, a, _print_of(a)) for name, a in arrays.items() if a is not None]
        return moving

    def _start_shift(self, by: int, arrays: dict[str, Array | None]) -> PendingTransfer:
        call = Call("shift", tuple(arrays), f"by={by}" if by != 1 else "")
        self._refuse(call, arrays.items())
        if not isinstance(by, int) or (by % self.size == 0 and self.size > 1):
            raise ValueError(f"by = {by!r} in {call} must be a whole number that {self.size} does not divide")
        outgoing, sources = {(self.rank + by) % self.size: arrays}, [(self.rank - by) % self.size]
        return self._post(call, outgoing, sources)

    def all_gather(self, **arrays: Array) -> Any:
        """The arrays of all ranks, joined along their rows in the order of the ranks."""
        call = Call("all_gather", tuple(arrays))
        self._refuse(call, arrays.items())
        moving = self._post(call, dict.fromkeys(self._others, arrays), self._others)
        came = zip(moving.all_that_came(), arrays.values(), strict=True)
        return _one_or_all([joined(_in_order(each, self.rank, own)) for each, own in came])

    def all_to_all(self, **pieces: Sequence[Array | None]) -> Any:
        """For each name a list with a piece for every rank; returns the list of pieces that came.

        The piece for this rank itself stays. None sends nothing.
        """
        call = Call("all_to_all", tuple(pieces))
        for name, parts in pieces.items():
            self._refuse_pieces(call, name, parts)
        outgoing = {to: {name: parts[to] for name, parts in pieces.items()} for to in self._others}
        moving = self._post(call, outgoing, self._others)
        came = zip(moving.all_that_came(), pieces.values(), strict=True)
        return _one_or_all([_in_order(each, self.rank, parts[self.rank]) for each, parts in came])

    def reduce_scatter(self, **pieces: Sequence[Array]) -> Any:
        """`all_to_all` of partial sums: the sum, for each name, of the pieces that came and its own."""
        for name, parts in pieces.items():
            self._refuse_pieces(Call("reduce_scatter", tuple(pieces)), name, parts)
        came = self.all_to_all(**pieces)
        lists = [came] if len(pieces) == 1 else list(came)
        return _one_or_all([_summed(parts) for parts in lists])

    def send(self, to: int, **arrays: Array) -> None:
        """Send the arrays to one rank, which receives them by `recv` with the same names. Does not wait."""
        call = Call("message", tuple(arrays))
        self._refuse(call, arrays.items())
        self._post(call, {self._partner("to", to): arrays}, [], "send")

    def recv(self, source: int, *names: str) -> Any:
        """Wait for the arrays that rank `source` sends under these names."""
        call = Call("message", names)
        return self._post(call, {}, [self._partner("source", source)], "recv").wait()

    def grid(self, a: int) -> tuple[Rank, Rank]:
        """(row, col) of this rank where the ranks stand in a grid of `a` rows: groups with own calls.

        With b = size/a, rank p stands in row p // b and column p % b; `row` has b ranks, `col` has a. All
        ranks call it.
        """
        if not isinstance(a, int) or a < 1 or self.size % a:
            fits = ", ".join(str(n) for n in range(1, self.size + 1) if self.size % n == 0)
            raise ValueError(f"a = {a!r} does not divide the {self.size} ranks into rows; allowed are {fits}")
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
        """What is called when the schedule has returned. Raises RankError where a wait() is missing."""
        if self._moving:
            raise RankError(f"rank {self._number} ended without wait() on its {self._moving[0]._transfer}")

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _partner(self, name: str, rank: int) -> int:
        if self._known(name, rank) == self.rank:
            raise ValueError(f"{name} = {rank} is this rank itself; what it has it need not send")
        return int(rank)

    def _known(self, name: str, rank: int) -> int:
        if not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.size:
            raise ValueError(f"{name} = {rank!r} is none of the {self.size} ranks 0 to {self.size - 1}")
        return int(rank)

    def _refuse(self, call: Call, arrays: Iterable[tuple[str, Any]]) -> None:
        for name, array in arrays:
            if array is not None and not hasattr(array, "shape"):
                raise TypeError(f"{name} in {call} is {type(array).__name__}; it must be an array, or None")
        if not call.names:
            raise TypeError(f"{call.kind}() got no arrays: name them, as in {call.kind}(K=k)")

    def _refuse_pieces(self, call: Call, name: str, parts: Any) -> None:
        if not isinstance(parts, (list, tuple)) or len(parts) != self.size:
            got = f"{len(parts)} pieces" if isinstance(parts, (list, tuple)) else type(parts).__name__
            raise ValueError(
                f"{name} in {call} is {got}; it must be a list of {self.size}, one for each rank"
            )
        self._refuse(call, [(name, part) for part in parts])

    def _post(
        self,
        call: Call,
        outgoing: dict[int, dict[str, Array | None]],
        sources: Sequence[int],
        role: str = "",
    ) -> PendingTransfer:
        """Copy what leaves and let it leave. Ranks are numbers in this group."""
        if len(self._account.exchanges) >= MOST_CALLS:
            raise RankError(f"rank {self._number} has made {MOST_CALLS:,} calls; does its loop end?")
        members = self._group.members
        copies = {members[to]: tuple(map(copied, arrays.values())) for to, arrays in outgoing.items()}
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
        """The group and number by which the partners find this call."""
        if not role:
            self._calls += 1
            return self._group, self._calls
        pair = (self._number, partner[0]) if role == "send" else (partner[0], self._number)
        self._messages[pair] = self._messages.get(pair, 0) + 1
        return Group(pair, (*self._group.key, "message", *pair)), self._messages[pair]


class PendingTransfer:
    """A call that is under way: `wait()` returns what came."""

    def __init__(self, me: Rank, transfer: Transfer) -> None:
        self._me, self._transfer = me, transfer
        self._held = [[HeldWords(me._account) for _ in transfer.call.names] for _ in transfer.sources]
        self._watched: list[tuple[str, Array, Any]] = []
        self._sent = _sent_words(transfer)
        self.own: tuple[Array | None, ...] | None = None  # what a group of one shifts to itself

    def __repr__(self) -> str:
        return f"<{self._transfer} of rank {self._me.rank}: wait() returns what came>"

    def wait(self) -> Any:
        """What came, as an array or a tuple in the order of the names.

        Raises ChangedWhileSent where an array has been changed since it was sent, RankError the second time.
        """
        return _one_or_all([next(iter(came.values()), None) for came in self.all_that_came()])

    def all_that_came(self) -> list[dict[int, Array | None]]:
        """For each name what came under it, by the sender's rank in the group."""
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
        # Of a message, whose partner need not be in the group, nobody looks at the number.
        place = {rank: members.index(rank) if rank in members else rank for rank in came}
        return [{place[rank]: arrays[at] for rank, arrays in came.items()} for at in names]

    def _refuse_changes(self) -> None:
        for name, array, before in self._watched:
            if not _unchanged(array, before):
                raise ChangedWhileSent(
                    f"rank {self._me._number} changed {name} between start_shift and wait(), while it was "
                    "being sent: call wait() first, or change a copy"
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


def copied(array: Array | None) -> Array | None:
    """An array of its own with the same words, row after row."""
    if array is None:
        return None
    if isinstance(array, ShapeArray):
        return array.copy()
    return np.array(array, order="C") if namespace(array) is np else array.detach().clone().contiguous()


def _print_of(array: Array) -> Any:
    """What tells later whether the array has been changed: its values, or how often it was written to."""
    if isinstance(array, ShapeArray):
        return (array if array.base is None else array.base).changes
    return np.array(array) if namespace(array) is np else array._version


def _unchanged(array: Array, before: Any) -> bool:
    now = _print_of(array)
    return np.array_equal(now, before, equal_nan=True) if isinstance(now, np.ndarray) else bool(now == before)


def joined(arrays: Sequence[Array], axis: int = 0) -> Array:
    """The arrays joined along an axis, rows unless told.

    Those that came from other ranks stay in the peak as long as the result lives.
    """
    made = namespace(arrays[0]).concatenate(list(arrays), axis)
    for held in {id(held): held for array in arrays for held in held_words_of(array)}.values():
        attach(made, held)
    return made


def _in_order(came: dict[int, Array | None], rank: int, own: Array | None) -> list[Array | None]:
    """What came and what stayed, by rank."""
    return [array for _, array in sorted({**came, rank: own}.items(), key=lambda item: item[0])]


def _summed(parts: Sequence[Array]) -> Array:
    total = copied(parts[0])
    for part in parts[1:]:
        total += part
    return total


def _one_or_all(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


# ---------------------------------------------------------------------- errors: every message names the rank
class RankError(RuntimeError):
    """An error of a run on ranks: a call that is not allowed, or a rank that failed."""


class RankFailed(RankError):
    """A rank raised an error of its own, which is this one's cause."""


class Mismatch(RankError):
    """Two ranks that must make the same call made different ones."""


class Deadlock(RankError):
    """No rank can go on: each waits for another that will not answer."""


class ChangedWhileSent(RankError):
    """An array was changed between `start_shift` and `wait()`: on a network that is a race."""


class TimedOut(RankError):
    """A rank got no answer from another within the time that was allowed."""


def name_late_ranks(failure: RankError, late: Sequence[int]) -> RankError:
    """Return the error of a rank that waited, with the ranks that had not ended by then."""
    if not late:
        return failure
    ranks = f"rank {', '.join(map(str, late))}"
    return TimedOut(f"{failure}; {ranks} had not ended: still computing? Then give more time by timeout=…")


class CannotShip(TypeError):
    """Something that a schedule uses cannot be sent to another process."""


class Stopped(BaseException):
    """Ends a rank because another one failed; no `except Exception` of a schedule catches it."""


# ---------------------------------------------------------------------- what an engine does for one rank
class Call(NamedTuple):
    """A call of a rank, as far as all ranks that take part must agree on it."""

    kind: str  # "shift", "all_gather", "all_to_all" or "message"
    names: tuple[str, ...]
    detail: str = ""  # what else must agree, as it is written in the call: "by=2"

    def __str__(self) -> str:
        return f"{self.kind}({', '.join([*self.names, self.detail] if self.detail else self.names)})"


class Group(NamedTuple):
    """Ranks that call together; `key` is another for each group."""

    members: tuple[int, ...]  # in the numbers of the whole run
    key: tuple[Any, ...] = ()


class Transfer(NamedTuple):
    """What one rank posts in one call: arrays by rank, in the order of the call's names, or None."""

    call: Call
    group: Group
    number: int  # how many calls this rank has made before in this group; of messages, between these two
    outgoing: dict[int, tuple[Any, ...]]
    sources: tuple[int, ...]
    role: str = ""  # "send" or "recv" where the call is a message

    def __str__(self) -> str:
        return str(self.call._replace(kind=self.role or self.call.kind))


Shapes = tuple[tuple[int, ...] | None, ...]  # of the arrays of a call; None is nothing
CallKey = tuple[tuple[Any, ...], int, str]  # of a call among all those of a rank
Plan = dict[CallKey, dict[int, Shapes]]  # what arrives in each call, by the rank that sends it


def call_key(transfer: Transfer) -> CallKey:
    """The key that identifies a call among all calls of its rank."""
    return transfer.group.key, transfer.number, transfer.role


def shape_of(array: Any) -> tuple[int, ...] | None:
    """The shape of an array that was sent; None if nothing was sent."""
    return None if array is None else tuple(array.shape)


class Transport(Protocol):
    """How one rank reaches the others. Ranks are numbers in the whole run."""

    def post(self, transfer: Transfer) -> None:
        """Send the transfer's arrays, which are copies, without waiting."""

    def collect(self, transfer: Transfer) -> dict[int, tuple[Any, ...]]:
        """Wait for what the ranks `sources` post in the same call, and return it by rank."""

    def finish(self) -> None:
        """Wait until everything sent has left; called after the schedule has returned."""


# ---------------------------------------------------------------------- what a rank received, sent and holds
class HeldWords:
    """Words reserved for what arrives, from now until the last array that has them is gone."""

    def __init__(self, account: RankAccount) -> None:
        self.account, self.shown = account, 0
        self.entry = [0]  # how much more is held from this moment on
        account.changes.append(self.entry)

    def fill(self, words: int, array: Any) -> None:
        """Count the words, which have arrived in `array`."""
        self.entry[0] = words
        attach(array, self)

    def detach(self) -> None:
        """Count one array less that has the words; with the last one they are free."""
        self.shown -= 1
        if not self.shown:
            self.account.changes.append([-self.entry[0]])


_SHOWN: dict[int, tuple[weakref.ref[Any], list[HeldWords]]] = {}  # by the id of a living array


def attach(array: Any, held: HeldWords) -> None:
    """Let `array` keep the words of `held`: they count as held as long as it, or a slice of it, lives."""
    key = id(array)
    if key not in _SHOWN:
        _SHOWN[key] = (weakref.ref(array, lambda _: _gone(key)), [])
    _SHOWN[key][1].append(held)
    held.shown += 1


def _gone(key: int) -> None:
    for held in _SHOWN.pop(key)[1]:
        held.detach()


def held_words_of(array: Any) -> list[HeldWords]:
    """The words from other ranks that this array keeps."""
    return list(_SHOWN[id(array)][1]) if id(array) in _SHOWN else []


class RankAccount:
    """Record what a rank receives and sends while it runs; `ledger` is the record so far."""

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
        """The ledger of the calls so far."""
        held = accumulate(change[0] for change in self.changes)
        return RankLedger(
            dict(self.received), dict(self.sent), max(held, default=0), list(self.exchanges), measured=True
        )
