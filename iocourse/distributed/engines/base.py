"""What all engines share: what can go wrong, what an engine does for one rank, and the account of a rank.

A rank posts what leaves; its engine later hands over what came, and the account writes both down.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from ..ledger import Exchange, RankLedger


# ---------------------------------------------------------------------- errors: every message names the rank
class RankError(RuntimeError):
    """Something that ranks may not do, or that one of them did not survive."""


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


def naming_the_late(failure: RankError, late: Sequence[int]) -> RankError:
    """The error of one who waited, and behind it the ranks that had not ended by then."""
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


class Parcel(NamedTuple):
    """What one rank posts in one call: arrays by rank, in the order of the call's names; None is nothing."""

    call: Call
    group: Group
    number: int  # how many calls this rank has made before in this group; of messages, between these two
    outgoing: dict[int, tuple[Any, ...]]
    sources: tuple[int, ...]
    role: str = ""  # "send" or "recv" where the call is a message

    def __str__(self) -> str:
        return str(self.call._replace(kind=self.role or self.call.kind))


Shapes = tuple[tuple[int, ...] | None, ...]  # of the arrays of a call; None is nothing
Place = tuple[tuple[Any, ...], int, str]  # of a call among all those of a rank
Plan = dict[Place, dict[int, Shapes]]  # what arrives in each call, by the rank that sends it


def place_of(parcel: Parcel) -> Place:
    """Where in its rank's life a call stands."""
    return parcel.group.key, parcel.number, parcel.role


def shape_of(array: Any) -> tuple[int, ...] | None:
    """The shape of what was sent, None of nothing."""
    return None if array is None else tuple(array.shape)


class Link(Protocol):
    """One rank's end of an engine. Ranks are numbers in the whole run."""

    def post(self, parcel: Parcel) -> None:
        """Let the parcel's arrays, which are copies, leave. Does not wait."""

    def collect(self, parcel: Parcel) -> dict[int, tuple[Any, ...]]:
        """Wait for what the ranks `sources` post in the same call, and hand it over."""

    def finish(self) -> None:
        """The rank's schedule has returned: let what it sent leave."""


# ---------------------------------------------------------------------- what a rank received, sent and holds
class Room:
    """Words set aside for what arrives: held from now until the last array that shows them is gone."""

    def __init__(self, account: Account) -> None:
        self.account, self.shown = account, 0
        self.entry = [0]  # how much more is held from this moment on
        account.changes.append(self.entry)

    def fill(self, words: int, array: Any) -> None:
        """The words have arrived, and `array` shows them."""
        self.entry[0] = words
        show(array, self)

    def leave(self) -> None:
        """One array less shows the words."""
        self.shown -= 1
        if not self.shown:
            self.account.changes.append([-self.entry[0]])


_SHOWN: dict[int, tuple[weakref.ref[Any], list[Room]]] = {}  # by the id of a living array


def show(array: Any, room: Room) -> None:
    """`array` shows the words of `room`: they are held as long as it, or a slice of it, lives."""
    key = id(array)
    if key not in _SHOWN:
        _SHOWN[key] = (weakref.ref(array, lambda _: _gone(key)), [])
    _SHOWN[key][1].append(room)
    room.shown += 1


def _gone(key: int) -> None:
    for room in _SHOWN.pop(key)[1]:
        room.leave()


def rooms_of(array: Any) -> list[Room]:
    """The rooms whose words this array shows."""
    return list(_SHOWN[id(array)][1]) if id(array) in _SHOWN else []


class Account:
    """What is written down while a rank runs; `ledger` is the book as it stands."""

    def __init__(self) -> None:
        self.received: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.exchanges: list[Exchange] = []
        self.changes: list[list[int]] = []

    def add(self, exchange: Exchange) -> None:
        """One call more."""
        self.exchanges.append(exchange)
        for book, words in ((self.received, exchange.received), (self.sent, exchange.sent)):
            for name, count in words.items():
                book[name] = book.get(name, 0) + count

    @property
    def ledger(self) -> RankLedger:
        """What has been written down so far."""
        held = accumulate(change[0] for change in self.changes)
        return RankLedger(
            dict(self.received), dict(self.sent), max(held, default=0), list(self.exchanges), measured=True
        )
