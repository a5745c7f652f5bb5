"""Figure of a recorded run of attention on a GPU: TFLOP/s of each implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ....console import table
from ....data.records import NONE_YET, record_source
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

# Top of the first heading, distance between bars, height of a heading, thickness of a bar.
TOP, LINE, HEAD, BAR = 82.0, 19.0, 40.0, 13.0
LONGEST, GAP = 84.0, 20.0  # pixels: longest bar, gap between columns
RIVAL_OF_ALL = "SDPA flash"  # the baseline of all ratios
OURS = {
    "fused": Fill(BLUE, ""),
    "two-pass": Fill(SKY, "/"),
    "rows by descriptors": Fill(SKY, ""),
}
RIVAL = Fill("#BDBDBD", "")
KINDS = {False: "full", True: "causal"}


class _Entry(NamedTuple):
    """One implementation at one shape: its rate and ratio to the baseline, or why it refused."""

    tflops: float | None
    ratio: float | None
    refused: str

    @property
    def short(self) -> str:
        """The rate as text, such as "512", or "refused"."""
        return "refused" if self.tflops is None else figures(self.tflops)

    @property
    def long(self) -> str:
        """Rate and ratio as text, such as "512 (1.31×)", or "refused"."""
        # <!-- 1.31 as input -->
        return self.short if self.ratio is None else f"{self.short} ({self.ratio:.2f}×)"


class _Shape(NamedTuple):
    """Sequence length, batch size and heads of a measurement."""

    N: int
    B: int
    H: int

    def __str__(self) -> str:
        return f"N = {self.N:,}"


_Table = dict[tuple[bool, _Shape, str], _Entry]


class _Rows(NamedTuple):
    """Selected rows of the record by mask, shape and implementation."""

    entries: _Table
    causal: tuple[bool, ...]
    shapes: tuple[_Shape, ...]
    contenders: tuple[str, ...]
    kind: str  # forward pass, d = 128, bfloat16

    def of(self, causal: bool) -> list[str]:
        """Return the implementations that have a row with this mask."""
        return [
            c for c in self.contenders if any((causal, shape, c) in self.entries for shape in self.shapes)
        ]

    @property
    def fastest(self) -> float:
        """Largest TFLOP/s, the length of the longest bar."""
        return max((entry.tflops or 0.0 for entry in self.entries.values()), default=0.0) or 1.0


@figure
def benchmark_bars(
    record: dict[str, Any] | None,
    *,
    pass_: str = "forward",
    d: int = 128,
    dtype: str = "bfloat16",
    causal: bool | None = None,
    title: str | None = None,
) -> Picture:
    """TFLOP/s of each implementation at each N, full and causal attention, ours in blue.

    A black line across the bars marks the FlashAttention back end of SDPA in the same run. Shapes that an
    implementation refused are listed.

    Args:
        record: the record `iocourse.data.records.load_record("attention")`.
        pass_: "forward", "backward" or "forward+backward".
        d: head dimension.
        dtype: of the inputs, such as "float16".
        causal: True or False selects one mask; None shows both.
        title: of the figure.

    Raises:
        ValueError: the record is None or has no such rows.
    """
    if record is None:
        raise ValueError(f"record must not be None: {NONE_YET}; run `python -m tools.bench gpu`")
    rows = _read(record, pass_, d, dtype, causal)
    source = source_of(record)
    name = title or f"TFLOP/s of attention, {rows.kind}"
    number = max(text_width(entry.short, SMALL) for entry in rows.entries.values())
    left = 40 + max(text_width(contender, SMALL) for contender in rows.contenders)
    columns = [left + (LONGEST + number + GAP) * k for k in range(len(rows.shapes) + 1)]
    drawn: list[Element] = [Text(18, 52, source, SMALL, colour=QUIET)]
    y = TOP
    for kind in rows.causal:
        drawn += _block(rows, kind, y, columns)
        y += HEAD + LINE * len(rows.of(kind))
    if any(contender == RIVAL_OF_ALL for contender in rows.contenders):
        drawn.append(Text(18, y, f"black line: {RIVAL_OF_ALL} in the same run", SMALL, colour=QUIET))
    width = max(columns[-1], 36 + text_width(source, SMALL), 420.0)
    told = [f"{name}: bars for {', '.join(rows.contenders)} at each N, measured with {source}"]
    for kind in rows.causal:
        fused = [(shape, rows.entries.get((kind, shape, "fused"))) for shape in rows.shapes]
        if said := [f"{entry.long} at {shape}" for shape, entry in fused if entry is not None]:
            told.append(f"Ours, {KINDS[kind]} (ratio to {RIVAL_OF_ALL}): {', '.join(said)}")
    if refused := sum(entry.tflops is None for entry in rows.entries.values()):
        told.append(
            f"{refused} of {len(rows.entries)} bars are missing, because the implementation refused the shape"
        )
    return titled(name, (width, y + 16), ". ".join(told) + ".", _numbers(record, rows), drawn)


def _read(record: dict[str, Any], pass_: str, d: int, dtype: str, causal: bool | None) -> _Rows:
    asked = {"pass": pass_, "d": d, "dtype": dtype} | ({} if causal is None else {"causal": causal})
    wanted = [row for row in record["rows"] if all(row[name] == value for name, value in asked.items())]
    if not wanted:
        there = sorted({(row["pass"], row["d"], row["dtype"]) for row in record["rows"]})
        raise ValueError(f"record has no rows with {asked}; recorded (pass, d, dtype): {there}")
    entries: _Table = {}
    for row in wanted:
        entry = _Entry(row.get("tflops"), row.get("ratio"), str(row.get("refused", "")))
        entries[row["causal"], _Shape(row["N"], row["B"], row["H"]), row["contender"]] = entry
    kinds, shapes = sorted({key[0] for key in entries}), sorted({key[1] for key in entries})
    contenders, kind = dict.fromkeys(key[2] for key in entries), f"{pass_} pass, d = {d}, {dtype}"
    return _Rows(entries, tuple(kinds), tuple(shapes), tuple(contenders), kind)


# ---------------------------------------------------------------------- the bars
def _block(rows: _Rows, causal: bool, top: float, columns: Sequence[float]) -> Iterator[Element]:
    """Yield the bars of full or causal attention: a line per implementation, a column per N."""
    contenders = rows.of(causal)
    bottom = top + 12 + LINE * len(contenders)
    yield Text(18, top, KINDS[causal], SMALL, bold=True)
    for k, contender in enumerate(contenders):
        middle = top + 10 + LINE * k + LINE / 2
        yield Text(columns[0] - 8, centred(middle, SMALL), contender, SMALL, "end")
    for x, shape in zip(columns, rows.shapes, strict=False):
        yield Text(x, top, str(shape), SMALL, bold=True)
        yield Poly(((x, top + 8), (x, bottom)), QUIET, 1.0)
        rival = rows.entries.get((causal, shape, RIVAL_OF_ALL))
        if rival is not None and rival.tflops is not None:
            at = x + LONGEST * rival.tflops / rows.fastest
            yield Poly(((at, top + 8), (at, bottom)), INK, 1.2)
        for k, contender in enumerate(contenders):
            entry = rows.entries.get((causal, shape, contender))
            if entry is not None:
                yield from _bar(x, top + 10 + LINE * k + LINE / 2, rows.fastest, contender, entry)


def _bar(x: float, middle: float, fastest: float, contender: str, entry: _Entry) -> Iterator[Element]:
    length = LONGEST * (entry.tflops or 0.0) / fastest
    if length:
        yield Rect(x, middle - BAR / 2, length, BAR, *OURS.get(contender, RIVAL), INK, 0.8)
    yield Rect(
        x + length + 2, middle - BAR / 2, text_width(entry.short, SMALL), BAR, PAPER
    )  # hides the black line
    colour = INK if entry.tflops is not None else WRONG
    yield Text(x + length + 5, centred(middle, SMALL), entry.short, SMALL, "start", colour)


# ---------------------------------------------------------------------- in words
def _numbers(record: dict[str, Any], rows: _Rows) -> str:
    heads = [f"{shape}, BH = {shape.B * shape.H}" for shape in rows.shapes]
    lines = []
    for causal in rows.causal:
        for contender in rows.of(causal):
            cells = [rows.entries.get((causal, shape, contender)) for shape in rows.shapes]
            longs = ["not measured" if cell is None else cell.long for cell in cells]
            lines.append([contender, KINDS[causal], *longs])
    shown = table([[f"TFLOP/s (ratio to {RIVAL_OF_ALL})", "", *heads], *lines], left=0)
    return "\n".join([shown, *_refusals(rows), record_source(record)])


def _refusals(rows: _Rows) -> Sequence[str]:
    """Return each reason for a refusal once, with its shapes."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (causal, shape, contender), entry in rows.entries.items():
        if entry.tflops is None:
            reasons.setdefault((contender, entry.refused), []).append(f"N = {shape.N:,} {KINDS[causal]}")
    return [f"{contender} refused {', '.join(at)}: {reason}" for (contender, reason), at in reasons.items()]
