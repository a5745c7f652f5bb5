"""Several small charts beside one another, with one legend below them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from .chart import Axis, Line, every_line, key_line
from .frame import Frame, Scale
from .palette import QUIET
from .picture import LARGE, SMALL, Element, Picture, Text, centred, text_width, titled

COLUMNS = 2
WIDTH, HEIGHT = 430.0, 320.0  # of one panel
TOP, LEGEND_LINE = 66.0, 24.0
CHARACTERS, NOTE_LINE = 120, 18.0  # of a line of the note, and from line to line


class Panel(NamedTuple):
    """One chart: what goes upwards, what to the right, the lines, and both axes' bases (None: linear)."""

    ylabel: str
    xlabel: str
    lines: Sequence[Line]
    bases: tuple[int | None, int | None]

    @property
    def in_words(self) -> str:
        """Its axes, and where each line begins and ends."""
        said = "; ".join(f"{line.label}: {line.ends}" for line in self.lines)
        return f"{self.ylabel} against {self.xlabel}: {said}."


def panels_picture(title: str, panels: Sequence[Panel], source: str, numbers: str, note: str = "") -> Picture:
    """Panels in two columns; lines of the same label share their stroke and stand once in the legend.

    Args:
        title: of the picture.
        panels: one or more.
        source: where the numbers come from.
        numbers: what is shown, as text.
        note: what a reader has to know of them; drawn below the legend.

    Raises:
        ValueError: there is no panel, or one without a line.
    """
    if not panels or not all(panel.lines for panel in panels):
        raise ValueError("panels needs one panel or more, each with a line or more")
    width = max(COLUMNS * WIDTH, 36 + 1.08 * text_width(title, LARGE), 36 + text_width(source, SMALL))
    drawn: list[Element] = [Text(18, 50, source, SMALL, colour=QUIET)]
    for at, panel in enumerate(panels):
        drawn += _panel(panel, WIDTH * (at % COLUMNS), TOP + HEIGHT * (at // COLUMNS))
    y = TOP + HEIGHT * -(-len(panels) // COLUMNS) + 18
    keys = list(_legend([line for panel in panels for line in panel.lines], y, width))
    bottom = max((e.y for e in keys if isinstance(e, Text)), default=y)
    bottom += 6 if note else 0
    for line in wrap(note, CHARACTERS):
        bottom += NOTE_LINE
        drawn.append(Text(18, bottom, line, SMALL, colour=QUIET))
    said = " ".join(filter(None, [*(panel.in_words for panel in panels), note]))
    alt = f"{title}. {said} Measured: {source}."
    words = "\n".join(filter(None, (numbers, note, source)))
    return titled(title, (width, bottom + 18), alt, words, (*drawn, *keys))


def _panel(panel: Panel, left: float, top: float) -> Iterator[Element]:
    points = [point for line in panel.lines for point in line.points]
    x = _scale([p[0] for p in points], Axis(left + 76, left + WIDTH - 24, panel.bases[0], 1.12))
    y = _scale([p[1] for p in points], Axis(top + HEIGHT - 58, top + 36, panel.bases[1], 1.25))
    frame = Frame(x, y)
    yield from frame.elements(panel.xlabel, panel.ylabel)
    yield from every_line(frame, panel.lines)


def _scale(values: Sequence[float], axis: Axis) -> Scale:
    """A linear scale here begins at the least value and not at 0."""
    if axis.base is not None:
        return axis.over(values)
    room = 0.04 * (max(values) - min(values)) or 1.0
    return Scale(min(values) - room, max(values) + room, axis.start, axis.stop)


def _legend(lines: Sequence[Line], y: float, width: float) -> Iterator[Element]:
    """Every label once, as many in a line as fit."""
    x = 18.0
    for line in {line.label: line for line in lines}.values():
        needed = 44 + text_width(line.label, SMALL) + 18
        if x > 18 and x + needed > width:
            x, y = 18.0, y + LEGEND_LINE
        yield from key_line(line, x, x + 34, y)
        yield Text(x + 42, centred(y, SMALL), line.label, SMALL)
        x += needed
