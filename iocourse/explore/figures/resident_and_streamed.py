"""One sweep through the pairs: which arrays stay in fast memory, and which pass by."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ...console import table
from ..draw.palette import INK, PAPER, QUIET, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Rect, Text, centred, example, figure, titled
from ..draw.shapes import READ, READ_AND_WRITTEN, STAYS, arrow, outline, swatch
from ..draw.text import listed

X, Y, SIDE = 176.0, 190.0, 250.0
STRIP, STEP = 20.0, 30.0  # an array's width, and from one array to the next
BLOCK, PASSING = (SIDE / 3, 2 * SIDE / 3), (0.5 * SIDE, 0.56 * SIDE)  # what stays, and what passes just now
BAND = "#E3F1FA"
MOST = 4
Span = tuple[float, float]


@example("rows", rows=("Q", "O"), columns=("K", "V"), sums=("O",), title="F3")
@example("columns", rows=("Q", "dO", "dQ"), columns=("K", "V", "dK", "dV"), sums=("dQ", "dK", "dV"))
@figure
def resident_and_streamed(
    stays: str,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    sums: Collection[str] = (),
    title: str | None = None,
) -> Picture:
    """The N x N pairs, the arrays of both sides, and one tile of a sweep: a block stays, single rows pass.

    `stays` is "rows" or "columns"; `rows` and `columns` name the arrays of each side, at most 4, and `sums`
    those that are added to: where they pass they are read and written. Raises ValueError for another
    `stays`, a side with no array or more than 4, or a sum that is on neither side.
    """
    _check(stays, rows, columns, sums)
    here, there = (rows, columns) if stays == "rows" else (columns, rows)
    back = [name for name in there if name in sums]
    moved = len(there) + len(back)
    heading = (
        f"{title or 'A sweep'}: {len(here)} arrays stay, {moved} move past, {len(here) * moved} together"
    )
    drawn = [*_square(stays), *_arrays(stays, rows, columns, sums), *_key(here, there, back)]
    return titled(heading, (760.0, 480.0), *_in_words(heading, stays, here, there, back), drawn)


def _check(stays: str, rows: Sequence[str], columns: Sequence[str], sums: Collection[str]) -> None:
    if stays not in ("rows", "columns"):
        raise ValueError(f"stays is {stays!r}; it must be 'rows' or 'columns'")
    for side, names in (("rows", rows), ("columns", columns)):
        if not 1 <= len(names) <= MOST:
            raise ValueError(f"{side} has {len(names)} arrays; 1 to {MOST} can be drawn")
    for name in sums:
        if name not in (*rows, *columns):
            raise ValueError(f"sums has {name!r}, which is neither in rows nor in columns")


def _spans(stays: str) -> tuple[Span, Span]:
    """Where the tile at work lies, down and across."""
    return (BLOCK, PASSING) if stays == "rows" else (PASSING, BLOCK)


def _square(stays: str) -> Iterator[Element]:
    down, across = _spans(stays)
    yield Rect(X, Y, SIDE, SIDE, PAPER, "", QUIET)
    if stays == "rows":
        yield Rect(X, Y + down[0], SIDE, down[1] - down[0], BAND)
    else:
        yield Rect(X + across[0], Y, across[1] - across[0], SIDE, BAND)
    yield from outline(Rect(X + across[0], Y + down[0], across[1] - across[0], down[1] - down[0]))
    yield _arrow(stays)
    yield Text(X + SIDE, Y + SIDE + 20, "N x N pairs", SMALL, "end", QUIET)


def _arrow(stays: str) -> Poly:
    """From the tile at work on, the way in which the other side passes."""
    far, middle = PASSING[1] + 8, SIDE / 2
    return (
        arrow((X + far, Y + middle), down=False)
        if stays == "rows"
        else arrow((X + middle, Y + far), down=True)
    )


def _arrays(
    stays: str, rows: Sequence[str], columns: Sequence[str], sums: Collection[str]
) -> Iterator[Element]:
    """The arrays of the rows to the left of the square, those of the columns above it."""
    down, across = _spans(stays)
    for k, name in enumerate(rows):
        left = X - 14 - STEP * (len(rows) - k) + STEP - STRIP
        fill = _fill(stays == "rows", name in sums)
        yield Rect(left, Y, STRIP, SIDE, PAPER, "", QUIET, 0.8)
        yield Rect(left, Y + down[0], STRIP, down[1] - down[0], fill.colour, fill.hatch, INK, 0.7)
        yield Text(left + STRIP / 2, Y + SIDE + 20, name, NORMAL, "middle")
    for k, name in enumerate(columns):
        top = Y - 14 - STEP * (len(columns) - k) + STEP - STRIP
        fill = _fill(stays == "columns", name in sums)
        yield Rect(X, top, SIDE, STRIP, PAPER, "", QUIET, 0.8)
        yield Rect(X + across[0], top, across[1] - across[0], STRIP, fill.colour, fill.hatch, INK, 0.7)
        yield Text(X + SIDE + 8, centred(top + STRIP / 2, NORMAL), name, NORMAL)


def _fill(stays: bool, added: bool) -> Fill:
    return STAYS if stays else READ_AND_WRITTEN if added else READ


def _key(here: Sequence[str], there: Sequence[str], back: Sequence[str]) -> Iterator[Element]:
    only = [name for name in there if name not in back]
    lines = [(STAYS, f"stays: {listed(here)}")]
    lines += [(READ, f"passes, read: {listed(only)}")] if only else []
    lines += [(READ_AND_WRITTEN, f"passes, read and written: {listed(back)}")] if back else []
    for k, (fill, said) in enumerate(lines):
        yield from swatch(490, 224 + 30 * k, fill, said)
    moved = len(there) + len(back)
    yield Text(490, 340, f"r = {len(here)}: M/{len(here)}d rows fit", NORMAL)
    yield Text(490, 362, f"t = {moved}: {moved}Nd words go by for each block", NORMAL)
    yield Text(490, 384, f"r · t = {len(here) * moved}", NORMAL, bold=True)


def _in_words(
    heading: str, stays: str, here: Sequence[str], there: Sequence[str], back: Sequence[str]
) -> tuple[str, str]:
    side, other = ("rows", "columns") if stays == "rows" else ("columns", "rows")
    alt = f"{heading}. A square of pairs, the arrays of its rows to the left and those of its columns above: "
    alt += f"a block of {side} stays with {listed(here)}, while the {other} pass one by one with "
    alt += f"{listed(there)}; the tile at work is outlined."
    if back:
        alt += f" Read and written each time: {listed(back)}."
    moved = len(there) + len(back)
    counts = [["stay, r", str(len(here))], ["move past, t", str(moved)], ["r · t", str(len(here) * moved)]]
    return alt, table([["arrays", "number"], *counts], left=0)
