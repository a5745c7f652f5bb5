"""The book of one rank: what it received and sent, and which words of others it still holds."""

from __future__ import annotations

import weakref
from itertools import accumulate
from typing import Any

from ..ledger import Exchange, RankLedger


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
