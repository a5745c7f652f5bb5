"""Traffic record of one run: words read and written per array, the peak of fast memory and an optional trace
of moves.

Runs and closed forms both return a Ledger, so `==` compares a run with its formula and `-` lists differences.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from operator import index
from typing import Any, NamedTuple

from .console import display_then_replace

__all__ = ["Difference", "Ledger", "Move", "PhaseTotal", "without_zeros"]


class Move(NamedTuple):
    """One event of a run: a load or store, or a tile that is created or freed."""

    kind: str  # "load", "store", "new" (a tile created in fast memory) or "free"
    array: str  # the slow array, or the name of the tile created or freed
    rows: tuple[int, int] | None  # half-open range of rows of the array; None for "new" and "free"
    cols: tuple[int, int] | None  # range of columns; None if the array has one axis
    words: int
    resident: int  # words in fast memory after the event
    phase: str = ""
    tile: int = 0  # number of the tile in order of creation; its load and its free have the same number


class PhaseTotal(NamedTuple):
    """Words read and written inside one `machine.phase(...)`."""

    read: int
    written: int


def without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts without arrays that have 0 words."""
    return {name: words for name, words in counts.items() if words}


@dataclass(eq=False)
class Ledger:
    """Words moved between slow and fast memory, per array.

    Two ledgers are equal if reads, writes, atomics and peak are equal; the other attributes are not compared.

    Attributes:
        reads, writes: words read and written, by name of the array.
        peak: maximum number of words in fast memory at once, including scratch; in a closed form, the
            footprint.
        atomics: words of atomic additions, each of which is also one read and one write.
        phases: totals of each `machine.phase`, by name.
        sizes: words of each array, so that a difference can print "read 8×".
        moves: trace of the run, or empty.
        itemsizes: bytes per word of each array; empty in the model, where words have no size.
        measured: True for a run, False for a closed form.
    """

    # <!-- 8 as input -->

    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    atomics: dict[str, int] = field(default_factory=dict)
    phases: dict[str, PhaseTotal] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    itemsizes: dict[str, int] = field(default_factory=dict)
    measured: bool = False

    @property
    def read(self) -> int:
        """Words read from slow memory."""
        return sum(map(int, self.reads.values()))

    @property
    def written(self) -> int:
        """Words written to slow memory."""
        return sum(map(int, self.writes.values()))

    @property
    def total(self) -> int:
        """Words moved (W in the lessons): read + written."""
        return self.read + self.written

    @property
    def bytes_read(self) -> int:
        """Bytes read. Raises ValueError if `itemsizes` lacks an array, as in the model."""
        return self._bytes(self.reads)

    @property
    def bytes_written(self) -> int:
        """Bytes written. Raises ValueError if `itemsizes` lacks an array."""
        return self._bytes(self.writes)

    @property
    def bytes(self) -> int:
        """Bytes moved: read + written. Raises ValueError if `itemsizes` lacks an array."""
        return self.bytes_read + self.bytes_written

    def _bytes(self, counts: Mapping[str, int]) -> int:
        moved = without_zeros(counts)
        unsized = [name for name in moved if name not in self.itemsizes]
        if unsized:
            raise ValueError(
                f"the bytes per word of {', '.join(unsized)} are not known; this ledger counts words only"
            )
        return sum(int(words) * int(self.itemsizes[name]) for name, words in moved.items())

    @property
    def arrays(self) -> list[str]:
        """Names of the arrays that were read or written, in order of first appearance."""
        return list(dict.fromkeys([*without_zeros(self.reads), *without_zeros(self.writes)]))

    def _counts(self) -> tuple[dict[str, int], dict[str, int], dict[str, int], int]:
        return (
            without_zeros(self.reads),
            without_zeros(self.writes),
            without_zeros(self.atomics),
            self.peak,
        )

    def __eq__(self, other: object) -> bool:
        return self._counts() == other._counts() if isinstance(other, Ledger) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __sub__(self, other: Ledger) -> Difference:
        """Return the Difference to `other`, as in `measured - closed_form`."""
        return Difference(self, other) if isinstance(other, Ledger) else NotImplemented

    def copy(self) -> Ledger:
        """Return an independent copy."""
        return Ledger(
            reads=dict(self.reads),
            writes=dict(self.writes),
            peak=self.peak,
            atomics=dict(self.atomics),
            phases=dict(self.phases),
            sizes=dict(self.sizes),
            moves=list(self.moves),
            itemsizes=dict(self.itemsizes),
            measured=self.measured,
        )

    def rows(self) -> list[tuple[str, int, int]]:
        """Return (array, words read, words written) for every array that was moved."""
        return [(name, self.reads.get(name, 0), self.writes.get(name, 0)) for name in self.arrays]

    def to_json(self) -> str:
        """Return the ledger as a JSON object; `from_json` is the inverse."""
        record = {
            "reads": self.reads,
            "writes": self.writes,
            "peak": self.peak,
            "atomics": self.atomics,
            "phases": self.phases,
            "sizes": self.sizes,
            "moves": self.moves,
            "itemsizes": self.itemsizes,
            "measured": self.measured,
        }
        return json.dumps(record, default=index)  # converts NumPy integers

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return the ledger that `to_json` wrote. Raises ValueError if the text is not such an object."""
        try:
            record: dict[str, Any] = json.loads(text)
            return cls(
                reads=dict(record["reads"]),
                writes=dict(record["writes"]),
                peak=int(record["peak"]),
                atomics=dict(record["atomics"]),
                phases={name: PhaseTotal(*pair) for name, pair in record["phases"].items()},
                sizes=dict(record["sizes"]),
                moves=[_move_from_json(entry) for entry in record["moves"]],
                itemsizes=dict(record.get("itemsizes", {})),  # absent from records older than kernels
                measured=bool(record.get("measured", False)),
            )
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ValueError(f"text is not a ledger written by Ledger.to_json: {error!r}") from error

    def __repr__(self) -> str:
        lines = [f"{'array':<10}{'words read':>16}{'words written':>16}"]
        lines += [f"{name:<10}{read:>16,}{written:>16,}" for name, read, written in self.rows()]
        lines.append(f"{'total':<10}{self.read:>16,}{self.written:>16,}")
        lines += [
            f"phase {name}: {phase.read:,} read, {phase.written:,} written"
            for name, phase in self.phases.items()
        ]
        lines.append(self._summary())
        return "\n".join(lines)

    def _summary(self) -> str:
        """Return the totals as text: words and, for the machine, the peak; for a kernel, the bytes."""
        moved = f"{self.total:,} words moved"
        if self.itemsizes and not set(self.arrays) - set(self.itemsizes):
            moved += f", {self.bytes:,} bytes"
        return (
            f"{moved}; at most {self.peak:,} in fast memory at once"
            if self.peak or not self.itemsizes
            else moved
        )

    def _ipython_display_(self) -> None:
        display_then_replace({"text/plain": repr(self)}, self._repr_html_())

    def _repr_html_(self) -> str:
        titles = ("array", "words read", "words written")
        head = "".join(f"<th scope='col'>{title}</th>" for title in titles)
        body = "".join(
            f"<tr><th scope='row'>{escape(name)}</th><td>{read:,}</td><td>{written:,}</td></tr>"
            for name, read, written in [*self.rows(), ("total", self.read, self.written)]
        )
        caption = self._summary()
        return (
            f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def _move_from_json(entry: Iterable[Any]) -> Move:
    kind, array, rows, cols, words, resident, phase, tile = entry
    return Move(kind, array, _range(rows), _range(cols), int(words), int(resident), phase, int(tile))


def _range(pair: Iterable[int] | None) -> tuple[int, int] | None:
    if pair is None:
        return None
    start, stop = pair
    return (start, stop)


@dataclass(frozen=True)
class Difference:
    """Difference between the ledgers `got` and `expected`, printed line by line; falsy if they are equal."""

    got: Ledger
    expected: Ledger

    def __bool__(self) -> bool:
        return self.got != self.expected

    @property
    def words(self) -> int:
        """Words moved by `got` minus words moved by `expected`."""
        return self.got.total - self.expected.total

    @property
    def _other(self) -> str:
        """Name of `expected` in the lines: the closed form of a run, or the other ledger of the same kind."""
        return "closed form says" if self.got.measured and not self.expected.measured else "the other"

    def lines(self) -> list[str]:
        """Return one line for each array and direction that differs, and one for the peak."""
        found = self._lines_for("read", self.got.reads, self.expected.reads)
        found += self._lines_for("written", self.got.writes, self.expected.writes)
        found += self._lines_for("updated atomically", self.got.atomics, self.expected.atomics)
        if self.got.peak != self.expected.peak:
            found.append(f"peak of fast memory {self.got.peak:,} words, {self._other} {self.expected.peak:,}")
        return found

    def _lines_for(self, verb: str, got: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
        names = dict.fromkeys([*got, *expected])
        return [
            f"{name} {verb} {self._amount(name, got.get(name, 0))}, "
            f"{self._other} {self._amount(name, expected.get(name, 0))}"
            for name in names
            if got.get(name, 0) != expected.get(name, 0)
        ]

    def _amount(self, name: str, words: int) -> str:
        size = self.expected.sizes.get(name) or self.got.sizes.get(name)
        if size and words % size == 0:
            return f"{words // size}×"
        return f"{words:,} words" + (f" ({words / size:.2f}×)" if size else "")

    def __repr__(self) -> str:
        return "\n".join(self.lines()) or "no difference"
