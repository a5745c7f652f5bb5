"""Traffic record of one rank: words received and sent per array, and the peak of other ranks' words held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from ..console import display_then_replace
from ..ledger import without_zeros

# Arrays that are sums over keys or queries, of which each rank computes a part: (O, L) and the gradients,
# which are reduced, and KV, the sum of φ(k)vᵀ. All other names are inputs, also the statistics LSE and D.
PARTIAL_SUMS = frozenset({"O", "L", "dQ", "dK", "dV", "KV"})


class Exchange(NamedTuple):
    """One call of a rank: its kind, the words sent and received per array, and the ranks that took part."""

    kind: str  # "shift", "all_gather", "all_to_all", "send" or "recv"
    sent: dict[str, int]
    received: dict[str, int]
    ranks: tuple[int, ...]  # those of the call, in the numbers of the whole run


@dataclass(eq=False)
class RankLedger:
    """Words that one rank received from and sent to other ranks.

    `received` and `sent` map the name of an array to words; a word that is sent to three ranks counts three
    times. `peak` is the maximum number of words of other ranks that were held at once, counted from the
    moment their buffer is allocated; the rank's own rows are not included. Two ledgers are equal if these
    three are equal. `exchanges` lists the calls in order.
    """

    received: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    exchanges: list[Exchange] = field(default_factory=list)
    measured: bool = False

    @property
    def words_received(self) -> int:
        """Words received from other ranks, of inputs and of partial sums."""
        return sum(self.received.values())

    @property
    def words_sent(self) -> int:
        """Words sent to other ranks, of inputs and of partial sums."""
        return sum(self.sent.values())

    @property
    def words(self) -> int:
        """W of this rank as the bounds count it: words of inputs received plus words of partial sums sent."""
        inputs = sum(words for name, words in self.received.items() if name not in PARTIAL_SUMS)
        return inputs + sum(words for name, words in self.sent.items() if name in PARTIAL_SUMS)

    @property
    def arrays(self) -> list[str]:
        """Names of the arrays with traffic, in the order of first appearance."""
        return list(dict.fromkeys([*without_zeros(self.received), *without_zeros(self.sent)]))

    def rows(self) -> list[tuple[str, int, int]]:
        """Return (array, words received, words sent) for every array with traffic."""
        return [(name, self.received.get(name, 0), self.sent.get(name, 0)) for name in self.arrays]

    def _counts(self) -> tuple[dict[str, int], dict[str, int], int]:
        return without_zeros(self.received), without_zeros(self.sent), self.peak

    def __eq__(self, other: object) -> bool:
        return self._counts() == other._counts() if isinstance(other, RankLedger) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __sub__(self, other: RankLedger) -> RankDifference:
        """Return the difference of two ledgers, usually `measured - closed_form`."""
        return RankDifference(self, other) if isinstance(other, RankLedger) else NotImplemented

    def __repr__(self) -> str:
        lines = [f"{'array':<10}{'words received':>16}{'words sent':>16}"]
        lines += [f"{name:<10}{received:>16,}{sent:>16,}" for name, received, sent in self.rows()]
        lines.append(f"{'total':<10}{self.words_received:>16,}{self.words_sent:>16,}")
        return "\n".join([*lines, self._summary()])

    def _summary(self) -> str:
        return f"W = {self.words:,} words; at most {self.peak:,} words of others held at once"

    def _ipython_display_(self) -> None:
        display_then_replace({"text/plain": repr(self)}, self._repr_html_())

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope='col'>{title}</th>" for title in ("array", "words received", "words sent"))
        body = "".join(
            f"<tr><th scope='row'>{escape(name)}</th><td>{received:,}</td><td>{sent:,}</td></tr>"
            for name, received, sent in [*self.rows(), ("total", self.words_received, self.words_sent)]
        )
        return (
            f"<table><caption>{self._summary()}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )


@dataclass(frozen=True)
class RankDifference:
    """Differences between the ledgers `got` and `expected`; falsy if they are equal."""

    got: RankLedger
    expected: RankLedger

    def __bool__(self) -> bool:
        return self.got != self.expected

    @property
    def words(self) -> int:
        """W of `got` minus W of `expected`; negative if `got` moved fewer words."""
        return self.got.words - self.expected.words

    @property
    def _other(self) -> str:
        return "closed form:" if self.got.measured and not self.expected.measured else "other ledger:"

    def lines(self) -> list[str]:
        """Return one line for each array and direction, and for the peak, that differs."""
        found = self._lines_for("received", self.got.received, self.expected.received)
        found += self._lines_for("sent", self.got.sent, self.expected.sent)
        if self.got.peak != self.expected.peak:
            found.append(
                f"peak of words held {self.got.peak:,} words, {self._other} {self.expected.peak:,} words"
            )
        return found

    def _lines_for(self, verb: str, got: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
        return [
            f"{name} {verb} {got.get(name, 0):,} words, {self._other} {expected.get(name, 0):,} words"
            for name in dict.fromkeys([*got, *expected])
            if got.get(name, 0) != expected.get(name, 0)
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines()) or "no difference"
