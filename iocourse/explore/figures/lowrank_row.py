"""One row of the published table, measured anew: exact attention, the script and one degree of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from textwrap import wrap

from ...console import table
from ..draw.palette import BLUE, INK, QUIET, SKY, Fill
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Record,
    Rect,
    Text,
    centred,
    figure,
    none_yet,
    source_of,
    titled,
)
from ..draw.text import figures
from ..models.lowrank_record import FASTER_EXACT, Compared, Measured, compared, degrees, sizes

LEFT, LONGEST, TOP, STEP, BAR = 150.0, 330.0, 84.0, 24.0, 15.0
CHARACTERS, LINE = 110, 18.0  # of a line of words below the bars
FILLS = (Fill("#BDBDBD", ""), Fill(BLUE, ""), Fill(SKY, "/"))  # exact, ours, the script


@figure
def lowrank_row(record: Record | None, d: int = 12, g: int = 3) -> Picture:
    """Milliseconds of one row at degree g, forward, both passes and causal, on one logarithmic scale.

    Beside each bar its speed-up over exact attention of the same run, and its error in per cent: in the
    published metric, ‖x - y‖ / ‖x + y‖, of O, or where there is a gradient the worst of dQ, dK, dV.

    Args:
        record: of `python -m tools.bench lowrank`; None: the picture says that there is no recorded run yet.
        d: columns; n = 10 · 2ᵈ.
        g: degree.

    Raises:
        ValueError: a row or a degree that the record has not, naming those it has.
    """
    if record is None:
        return none_yet("One row of the table", "lowrank")
    found = compared(record, d, g)
    title = f"d = {d}, n = {10 * 2**d:,}: milliseconds beside exact attention, degree {g}"
    low, high = _range(record)
    source = f"{source_of(record)}; bars on one logarithmic scale"
    drawn: list[Element] = [Text(18, 50, source, SMALL, colour=QUIET)]
    y = TOP
    for one in found:
        drawn.append(Text(18, y, one.what, NORMAL, bold=True))
        drawn += _bars(one.rows, y + 8, low, high)
        y += STEP * len(one.rows) + 40
    for line in wrap(FASTER_EXACT, CHARACTERS):
        drawn.append(Text(18, y, line, SMALL, colour=QUIET))
        y += LINE
    rows = [[one.what, *_said(row)] for one in found for row in one.rows]
    numbers = table([["passes", "who", "ms", "speed-up", "error"], *rows], left=2)
    sentences = ". ".join(f"{what}: {who} {ms} {times} {off}".rstrip() for what, who, ms, times, off in rows)
    alt = f"{title}. {sentences}. {FASTER_EXACT} {source}."
    return titled(title, (780.0, y), alt, f"{numbers}\n{FASTER_EXACT}\n{source}", drawn)


def _range(record: Record) -> tuple[float, float]:
    """The least and the largest time of the record's rows, so that a bar means the same in every picture."""
    every = [row for d in sizes(record) for g in degrees(record, d) for one in compared(record, d, g)
             for row in one.rows]  # fmt: skip
    return min(row.ms for row in every), max(row.ms for row in every)


def _bars(rows: Sequence[Measured], top: float, low: float, high: float) -> Iterator[Element]:
    for at, row in enumerate(rows):
        y, fill = top + STEP * at, FILLS[0 if at == 0 else 1 if at == len(rows) - 1 else 2]
        length = 6 + LONGEST * log(row.ms / low) / max(log(high / low), 1e-9)
        yield Text(18, centred(y + BAR / 2, SMALL), row.who, SMALL)
        yield Rect(LEFT, y, length, BAR, fill.colour, fill.hatch, INK, 0.7)
        said = ", ".join(filter(None, _said(row)[1:]))
        yield Text(LEFT + length + 8, centred(y + BAR / 2, SMALL), said, SMALL)


def _said(row: Measured) -> list[str]:
    """Who, milliseconds, speed-up and error, in words."""
    exact = row.error is None
    off = "" if exact else f"off by {figures(row.error or 0.0)} %"
    return [row.who, f"{figures(row.ms)} ms", "" if exact else f"{figures(row.speedup)}×", off]


def lowrank_row_words(found: Sequence[Compared]) -> str:
    """The first line: what the forward pass of ours says beside the script's."""
    _, script, ours = found[0].rows
    better = "a smaller error" if (ours.error or 0.0) < (script.error or 0.0) else "a larger error"
    faster = "and less time" if ours.ms < script.ms else "and more time"
    times = f"{figures(ours.speedup)} times as fast as exact attention, the script {figures(script.speedup)}"
    return f"Forward: {better} {faster} than the script; {times}. {FASTER_EXACT}"
