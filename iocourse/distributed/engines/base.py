"""What all engines share: the errors, the interface of a transport, and the account of a rank.

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
