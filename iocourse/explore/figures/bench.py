"""A recorded run of attention on a GPU: TFLOP/s of every contender, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...console import table
from ...data.recorded import NONE_YET, provenance
from ..draw.palette import BLUE, INK, PAPER, QUIET, SKY, WRONG, Fill
from ..draw.picture import (
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    centred,
    figure,
    source_of,
    text_width,
    titled,
)
from ..draw.text import figures

# The first heading, from bar to bar, a heading, a bar's thickness.
TOP, LINE, HEAD, BAR = 82.0, 19.0, 40.0, 13.0
LONGEST, GAP = 84.0, 20.0  # pixels of the longest bar, between the columns
RIVAL_OF_ALL = "SDPA flash"  # every ratio is to this one
OURS = {
    "fused": Fill(BLUE, ""),
    "two-pass": Fill(SKY, "/"),
    "rows by descriptors": Fill(SKY, ""),
}
RIVAL = Fill("#BDBDBD", "")
KINDS = {False: "full", True: "causal"}


class _Entry(NamedTuple):
    """One contender at one shape: its rate, or why it refused."""

    tflops: float | None
    ratio: float | None
    refused: str

    @property
    def short(self) -> str:
        """512, or refused."""
        return "refused" if self.tflops is None else figures(self.tflops)

    @property
    def long(self) -> str:
        """512 (1.31×), or refused."""
        return self.short if self.ratio is None else f"{self.short} ({self.ratio:.2f}×)"


class _Shape(NamedTuple):
    """A sequence length, with the batch and heads it was measured with."""

    N: int
    B: int
    H: int

    def __str__(self) -> str:
        return f"N = {self.N:,}"


_Table = dict[tuple[bool, _Shape, str], _Entry]


class _Rows(NamedTuple):
    """What is shown: rows of the record by causal or not, shape and contender."""

    entries: _Table
    causal: tuple[bool, ...]
    shapes: tuple[_Shape, ...]
    contenders: tuple[str, ...]
    kind: str  # forward pass, d = 128, bfloat16

    def of(self, causal: bool) -> list[str]:
        """The contenders that have a row among these."""
        return [
            c for c in self.contenders if any((causal, shape, c) in self.entries for shape in self.shapes)
        ]

    @property
    def fastest(self) -> float:
        """TFLOP/s of the longest bar."""
        return max((entry.tflops or 0.0 for entry in self.entries.values()), default=0.0) or 1.0


@figure
def bench_bars(
    record: dict[str, Any] | None,
    *,
    pass_: str = "forward",
    d: int = 128,
    dtype: str = "bfloat16",
    causal: bool | None = None,
    title: str | None = None,
) -> Picture:
    """TFLOP/s of each contender at each N, causal below full attention, ours in blue.

    A black line across the bars marks SDPA's FlashAttention in the same run. Who refused a shape is named.

    Args:
        record: of dense attention, as `iocourse.data.recorded.recorded("attention")` gives it.
        pass_: "forward", "backward" or "forward+backward".
        d: the head size.
        dtype: of the inputs, such as "float16".
        causal: only these rows; full and causal ones, if None.
        title: of the picture.

    Raises:
        ValueError: no record, or one without such rows.
    """
    if record is None:
        raise ValueError(f"record is None: {NONE_YET}; `python -m tools.bench gpu` makes one")
    rows = _read(record, pass_, d, dtype, causal)
    source = source_of(record)
    name = title or f"TFLOP/s of attention, {rows.kind}"
    places = _Places.of(rows)
    drawn: list[Element] = [Text(18, 52, source, SMALL, colour=QUIET)]
    y = TOP
    for kind in rows.causal:
        drawn += _block(rows, kind, y, places)
        y += HEAD + LINE * len(rows.of(kind))
    if any(contender == RIVAL_OF_ALL for contender in rows.contenders):
        drawn.append(Text(18, y, f"black line: {RIVAL_OF_ALL} in the same run", SMALL, colour=QUIET))
    width = max(places.column(len(rows.shapes)), 36 + text_width(source, SMALL), 420.0)
    return titled(name, (width, y + 16), _alt(name, source, rows), _numbers(record, rows), drawn)


def _read(record: dict[str, Any], pass_: str, d: int, dtype: str, causal: bool | None) -> _Rows:
    asked = {"pass": pass_, "d": d, "dtype": dtype} | ({} if causal is None else {"causal": causal})
    wanted = [row for row in record["rows"] if all(row[name] == value for name, value in asked.items())]
    if not wanted:
        there = sorted({(row["pass"], row["d"], row["dtype"]) for row in record["rows"]})
        raise ValueError(f"record has no rows with {asked}; it has these (pass, d, dtype): {there}")
    entries = {(row["causal"], _shape(row), row["contender"]): _entry(row) for row in wanted}
    return _Rows(
        entries,
        tuple(sorted({row["causal"] for row in wanted})),
        tuple(sorted({_shape(row) for row in wanted})),
        tuple(dict.fromkeys(row["contender"] for row in wanted)),
        f"{pass_} pass, d = {d}, {dtype}",
    )


def _shape(row: Mapping[str, Any]) -> _Shape:
    return _Shape(row["N"], row["B"], row["H"])


def _entry(row: Mapping[str, Any]) -> _Entry:
    if "refused" in row:
        return _Entry(None, None, str(row["refused"]))
    return _Entry(row["tflops"], row["ratio"], "")


# ---------------------------------------------------------------------- the bars
class _Places(NamedTuple):
    """Where the columns stand."""

    left: float
    step: float

    @classmethod
    def of(cls, rows: _Rows) -> _Places:
        """Room for the longest name and the longest number."""
        number = max(text_width(entry.short, SMALL) for entry in rows.entries.values())
        return cls(40 + max(text_width(c, SMALL) for c in rows.contenders), LONGEST + number + GAP)

    def column(self, number: int) -> float:
        """The left edge of a column."""
        return self.left + number * self.step


def _block(rows: _Rows, causal: bool, top: float, places: _Places) -> Iterator[Element]:
    """Full or causal attention: a line for each contender, a column for each N."""
    contenders = rows.of(causal)
    yield Text(18, top, KINDS[causal], SMALL, bold=True)
    for k, contender in enumerate(contenders):
        middle = top + 10 + LINE * k + LINE / 2
        yield Text(places.left - 8, centred(middle, SMALL), contender, SMALL, "end")
    for number, shape in enumerate(rows.shapes):
        x = places.column(number)
        yield Text(x, top, str(shape), SMALL, bold=True)
        yield Poly(((x, top + 8), (x, top + 12 + LINE * len(contenders))), QUIET, 1.0)
        rival = rows.entries.get((causal, shape, RIVAL_OF_ALL))
        if rival is not None and rival.tflops is not None:
            at = x + LONGEST * rival.tflops / rows.fastest
            yield Poly(((at, top + 8), (at, top + 12 + LINE * len(contenders))), INK, 1.2)
        for k, contender in enumerate(contenders):
            entry = rows.entries.get((causal, shape, contender))
            if entry is not None:
                yield from _bar(x, top + 10 + LINE * k + LINE / 2, rows.fastest, contender, entry)


def _bar(x: float, middle: float, fastest: float, contender: str, entry: _Entry) -> Iterator[Element]:
    length = LONGEST * (entry.tflops or 0.0) / fastest
    fill = OURS.get(contender, RIVAL)
    if length:
        yield Rect(x, middle - BAR / 2, length, BAR, fill.colour, fill.hatch, INK, 0.8)
    yield Rect(x + length + 2, middle - BAR / 2, text_width(entry.short, SMALL), BAR, PAPER)  # hides the line
    colour = INK if entry.tflops is not None else WRONG
    yield Text(x + length + 5, centred(middle, SMALL), entry.short, SMALL, "start", colour)


# ---------------------------------------------------------------------- in words
def _alt(name: str, source: str, rows: _Rows) -> str:
    told = [f"{name}: bars for {', '.join(rows.contenders)} at each N, measured with {source}"]
    told += [_ours(rows, causal) for causal in rows.causal if "fused" in rows.of(causal)]
    refusals = sum(entry.tflops is None for entry in rows.entries.values())
    told.append(f"{refusals} of {len(rows.entries)} bars are missing: the contender refused the shape")
    return ". ".join(told if refusals else told[:-1]) + "."


def _ours(rows: _Rows, causal: bool) -> str:
    found = [(shape, rows.entries.get((causal, shape, "fused"))) for shape in rows.shapes]
    said = [f"{entry.long} at {shape}" for shape, entry in found if entry is not None]
    return f"Ours, {KINDS[causal]} (beside it the ratio to {RIVAL_OF_ALL}): {', '.join(said)}"


def _numbers(record: dict[str, Any], rows: _Rows) -> str:
    heads = [f"{shape}, BH = {shape.B * shape.H}" for shape in rows.shapes]
    lines = [
        [contender, KINDS[causal], *(_cell(rows, causal, shape, contender) for shape in rows.shapes)]
        for causal in rows.causal
        for contender in rows.of(causal)
    ]
    shown = table([[f"TFLOP/s (ratio to {RIVAL_OF_ALL})", "", *heads], *lines], left=0)
    return "\n".join([shown, *_refusals(rows), provenance(record)])


def _cell(rows: _Rows, causal: bool, shape: _Shape, contender: str) -> str:
    entry = rows.entries.get((causal, shape, contender))
    return "not measured" if entry is None else entry.long


def _refusals(rows: _Rows) -> Sequence[str]:
    """Each reason once, with the shapes it was given for."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (causal, shape, contender), entry in rows.entries.items():
        if entry.tflops is None:
            reasons.setdefault((contender, entry.refused), []).append(f"N = {shape.N:,} {KINDS[causal]}")
    return [f"{contender} refused {', '.join(at)}: {reason}" for (contender, reason), at in reasons.items()]
