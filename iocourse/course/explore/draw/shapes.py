"""Shapes shared by several figures: swatches, bars, markers and the square of N x N scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import cos, pi, sin
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .palette import BLUE, INK, ORANGE, PAPER, QUIET, SKY, VERMILION, Fill
from .picture import NORMAL, SMALL, Element, Point, Poly, Raster, Rect, Text, centred

Range = tuple[int, int]
Tile = tuple[Range, Range]
WRITTEN = "\\"  # the hatch of words that are written
# Fills of an array in one pass over the pairs: resident, streamed, streamed and updated.
STAYS, READ, READ_AND_WRITTEN = Fill(BLUE, ""), Fill(SKY, "/"), Fill(ORANGE, WRITTEN)


# ---------------------------------------------------------------------- marks
def swatch(x: float, y: float, fill: Fill, label: str) -> list[Element]:
    """Return a legend entry: a small filled box and its label."""
    return [
        Rect(x, y, 18, 16, fill.colour, fill.hatch, INK, 0.7),
        Text(x + 24, centred(y + 8, NORMAL), label, NORMAL),
    ]


def outline(box: Rect, line: float = 3.5) -> list[Rect]:
    """Return the highlighted frame of the current tile, enlarged to 4 pixels if the tile is smaller."""
    grow = max(0.0, 4 - min(box.width, box.height)) / 2
    x, y, width, height = box.x - grow, box.y - grow, box.width + 2 * grow, box.height + 2 * grow
    return framed(Rect(x, y, width, height, "", "", VERMILION, line))


def framed(frame: Rect) -> list[Rect]:
    """Return a frame with a wider white frame beneath it, visible on any background."""
    return [replace(frame, stroke=PAPER, line=frame.line + 2.5), frame]


def arrow(start: Point, *, down: bool) -> Poly:
    """Return the arrow of a streamed array, from `start` downwards or to the right."""
    tip, neck, (x, y) = 44.0, 34.0, start
    along = ((0.0, 0.0), (neck, 0.0), (neck, -5.0), (tip, 0.0), (neck, 5.0), (neck, 0.0))
    return Poly(tuple((x + aside, y + far) if down else (x + far, y + aside) for far, aside in along))


def circle(at: Point, radius: float, fill: str, line: float, corners: int = 36) -> Poly:
    """Return a circle, drawn as a polygon with `corners` corners."""
    turns = (2 * k * pi / corners for k in range(corners + 1))
    points = tuple((at[0] + radius * cos(a), at[1] + radius * sin(a)) for a in turns)
    return Poly(points, INK, line, (), fill)


def diamond(at: Point, width: float, height: float) -> Poly:
    """Return the diamond marker of a measured value."""
    x, y = at
    return Poly(((x, y - height), (x + width, y), (x, y + height), (x - width, y)), PAPER, 1, (), INK)


# ---------------------------------------------------------------------- bars of memory traffic
class Moved(NamedTuple):
    """One bar of a traffic chart: array name, colour, words read and written, and the label at its end."""

    name: str
    colour: str
    read: int
    written: int
    said: str

    @property
    def bold(self) -> bool:
        """True for the bar of the total."""
        return self.name == "total"

    def bar(self, left: float, y: float, scale: float, most: float) -> Iterator[Element]:
        """Yield the bar from `left` on, with its name before it and its label behind it.

        A bar longer than `most` pixels is cut there, and a gap near its end shows that it is cut.
        """
        read, end = (min(words * scale, most) for words in (self.read, self.read + self.written))
        middle, hatch = centred(y + 8, SMALL), WRITTEN if self.written else ""
        yield Text(left - 8, middle, self.name, SMALL, "end", bold=self.bold)
        yield Rect(left, y, read, 16, self.colour, "", INK, 0.6)
        yield Rect(left + read, y, end - read, 16, self.colour, hatch, INK, 0.6)
        if (self.read + self.written) * scale > most:
            yield Rect(left + most - 14, y - 2, 5, 20, PAPER)
        yield Text(left + end + 8, middle, self.said, SMALL, bold=self.bold)


def read_and_written(read: int, written: int) -> str:
    """Format words read and written: "64 read, 32 written", one of both, or "0"."""
    parts = [f"{read:,} read"] if read else []
    return ", ".join(parts + ([f"{written:,} written"] if written else [])) or "0"


def read_written_legend(x: float, y: float) -> list[Element]:
    """Return the legend of a traffic bar: plain means read, hatched means written."""
    return swatch(x, y, Fill(PAPER, ""), "read") + swatch(x + 76, y, Fill(PAPER, WRITTEN), "written")


# ---------------------------------------------------------------------- the square of scores
class Square(NamedTuple):
    """The square in which N x N scores are drawn: upper left corner and side, in pixels."""

    x: float
    y: float
    side: float
    N: int

    @property
    def scale(self) -> float:
        """Pixels per row."""
        return self.side / self.N

    def paper(self, fill: str = PAPER) -> Rect:
        """Return the rectangle of all scores."""
        return Rect(self.x, self.y, self.side, self.side, fill, "", QUIET)

    def box(self, rows: Range, columns: Range, fill: str = "") -> Rect:
        """Return the rectangle of a tile of scores."""
        (top, bottom), (left, right) = rows, columns
        x, y = self.x + left * self.scale, self.y + top * self.scale
        return Rect(x, y, (right - left) * self.scale, (bottom - top) * self.scale, fill)

    def names(self, keys: str, queries: str) -> list[Element]:
        """Return the labels of both sides, with the range of their indices."""
        across, down = self.x + self.side / 2, self.y + self.side / 2
        return [
            Text(across, self.y - 10, f"{keys}, 0 to {self.N - 1:,}", SMALL, "middle", QUIET),
            Text(
                self.x - 12, down, f"{queries}, 0 to {self.N - 1:,} downwards", SMALL, "middle", QUIET,
                turned=True,
            ),
        ]  # fmt: skip


def span(name: str, part: Range) -> str:
    """Format a range: "row 5" or "rows 0 to 63"."""
    start, stop = part
    return f"{name} {start:,}" if stop == start + 1 else f"{name}s {start:,} to {stop - 1:,}"


def place(tile: Tile) -> str:
    """Format the position of a tile of scores: "rows 0 to 63, columns 64 to 127"."""
    rows, columns = tile
    return f"{span('row', rows)}, {span('column', columns)}"


def colour_cells(box: Rect, colours: Sequence[str], index: NDArray[Any]) -> Raster:
    """Return `box` filled with cells without borders; `index` (rows, columns) selects each one's colour."""
    channels = np.array([list(bytes.fromhex(colour[1:])) for colour in colours], np.uint8)
    rows, columns = index.shape
    return Raster(box.x, box.y, box.width, box.height, columns, rows, channels[index].tobytes())
