"""Figures of resident and streamed arrays: in one pass over the pairs, and in one tile of a backward pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ....console import table, with_unit
from ....sizes import positive_int
from ..draw.palette import INK, PAPER, QUIET, Fill
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    centred,
    check_choice,
    example,
    figure,
    titled,
)
from ..draw.shapes import READ, READ_AND_WRITTEN, STAYS, arrow, outline, swatch
from ..draw.text import join_names

# ---------------------------------------------------------------------- one pass over the pairs
X, Y, SIDE = 176.0, 190.0, 250.0
STRIP, STEP = 20.0, 30.0  # width of an array, and from one array to the next
BLOCK, PASSING = (
    (SIDE / 3, 2 * SIDE / 3),
    (0.5 * SIDE, 0.56 * SIDE),
)  # the resident block, and the row that is streamed now
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
    """The N x N pairs, the arrays of both sides, and the current tile: a resident block and a streamed row.

    Args:
        stays: the resident side, "rows" or "columns".
        rows: names of the arrays with one row per query, one to four.
        columns: names of the arrays with one row per key, one to four.
        sums: names of accumulators; streamed ones are read and written.
        title: of the figure.

    Raises:
        ValueError: unknown `stays`, a side without arrays or with more than 4, or a sum on neither side.
    """
    check_choice("stays", stays, ("rows", "columns"))
    for side, names in (("rows", rows), ("columns", columns)):
        if not 1 <= len(names) <= MOST:
            raise ValueError(f"{side} must have 1 to {MOST} arrays, got {len(names)}")
    for name in sums:
        if name not in (*rows, *columns):
            raise ValueError(f"sums must be in rows or columns, got {name!r}")
    here, there = (rows, columns) if stays == "rows" else (columns, rows)
    back = [name for name in there if name in sums]
    moved = len(there) + len(back)
    heading = (
        f"{title or 'One pass'}: {len(here)} arrays resident, {moved} streamed, product {len(here) * moved}"
    )
    drawn = [*_square(stays), *_arrays(stays, rows, columns, sums), *_key(here, there, back)]
    return titled(heading, (760.0, 480.0), *_in_words(heading, stays, here, there, back), drawn)


def _spans(stays: str) -> tuple[Span, Span]:
    """Return the position of the current tile, down and across."""
    return (BLOCK, PASSING) if stays == "rows" else (PASSING, BLOCK)


def _square(stays: str) -> Iterator[Element]:
    down, across = _spans(stays)
    yield Rect(X, Y, SIDE, SIDE, PAPER, "", QUIET)
    if stays == "rows":
        yield Rect(X, Y + down[0], SIDE, down[1] - down[0], BAND)
    else:
        yield Rect(X + across[0], Y, across[1] - across[0], SIDE, BAND)
    yield from outline(Rect(X + across[0], Y + down[0], across[1] - across[0], down[1] - down[0]))
    far, middle = PASSING[1] + 8, SIDE / 2
    onwards = (X + far, Y + middle) if stays == "rows" else (X + middle, Y + far)
    yield arrow(onwards, down=stays != "rows")
    yield Text(X + SIDE, Y + SIDE + 20, "N x N pairs", SMALL, "end", QUIET)


def _arrays(
    stays: str, rows: Sequence[str], columns: Sequence[str], sums: Collection[str]
) -> Iterator[Element]:
    """Yield the arrays of the rows to the left of the square, and those of the columns above it."""
    down, across = _spans(stays)
    for k, name in enumerate(rows):
        left = X - 14 - STEP * (len(rows) - k) + STEP - STRIP
        fill = _fill(stays == "rows", name in sums)
        yield Rect(left, Y, STRIP, SIDE, PAPER, "", QUIET, 0.8)
        yield Rect(left, Y + down[0], STRIP, down[1] - down[0], *fill, INK, 0.7)
        yield Text(left + STRIP / 2, Y + SIDE + 20, name, NORMAL, "middle")
    for k, name in enumerate(columns):
        top = Y - 14 - STEP * (len(columns) - k) + STEP - STRIP
        fill = _fill(stays == "columns", name in sums)
        yield Rect(X, top, SIDE, STRIP, PAPER, "", QUIET, 0.8)
        yield Rect(X + across[0], top, across[1] - across[0], STRIP, *fill, INK, 0.7)
        yield Text(X + SIDE + 8, centred(top + STRIP / 2, NORMAL), name, NORMAL)


def _fill(stays: bool, added: bool) -> Fill:
    return STAYS if stays else READ_AND_WRITTEN if added else READ


def _key(here: Sequence[str], there: Sequence[str], back: Sequence[str]) -> Iterator[Element]:
    only = [name for name in there if name not in back]
    lines = [(STAYS, f"resident: {join_names(here)}")]
    lines += [(READ, f"streamed, read: {join_names(only)}")] if only else []
    lines += [(READ_AND_WRITTEN, f"streamed, read and written: {join_names(back)}")] if back else []
    for k, (fill, said) in enumerate(lines):
        yield from swatch(490, 224 + 30 * k, fill, said)
    moved = len(there) + len(back)
    yield Text(490, 340, f"r = {len(here)}: M/{len(here)}d rows fit", NORMAL)
    yield Text(490, 362, f"t = {moved}: {moved}Nd words streamed per block", NORMAL)
    yield Text(490, 384, f"r · t = {len(here) * moved}", NORMAL, bold=True)


def _in_words(
    heading: str, stays: str, here: Sequence[str], there: Sequence[str], back: Sequence[str]
) -> tuple[str, str]:
    side, other = ("rows", "columns") if stays == "rows" else ("columns", "rows")
    alt = f"{heading}. A square of pairs, the arrays of its rows to the left and those of its columns above: "
    alt += f"a block of {side} of {join_names(here)} is resident, and the {other} of "
    alt += f"{join_names(there)} are streamed one by one; the current tile is outlined."
    if back:
        alt += f" Read and written for every resident block: {join_names(back)}."
    moved = len(there) + len(back)
    counts = [["resident, r", str(len(here))], ["streamed, t", str(moved)], ["r · t", str(len(here) * moved)]]
    return alt, table([["arrays", "number"], *counts], left=0)


# ---------------------------------------------------------------------- a tile of a backward pass
TILE_X, TILE_Y, ACROSS, DOWN = 246.0, 206.0, 200.0, 132.0  # corner, width and height of the tile
BROAD, THIN, TALL, GAP = (
    34.0,
    12.0,
    30.0,
    10.0,
)  # widths: rows of d words, rows of one word; height of columns; gap
RIGHT = 520.0
MADE = Fill("#F3E3ED", "")  # light background for text
GRADIENTS = ("dQ", "dK", "dV")
SCORES = ("S = QKᵀ/√d", "P = exp(S − L)")
SLOPES = ("dP = dO Vᵀ", "dS = P ∘ (dP − D)")
ADDS = {"dQ": "dQ += dS K/√d", "dK": "dK += dSᵀQ/√d", "dV": "dV += PᵀdO"}


class Array(NamedTuple):
    """The rows of one array in the tile: name, words, and fill (resident, streamed, updated)."""

    name: str
    words: int
    fill: Fill
    thin: bool = False

    @property
    def thickness(self) -> float:
        """Pixels per row."""
        return THIN if self.thin else BROAD


@example("columns", d=8, Br=4, Bc=16, title="B3")
@example("rows", gradients={"dQ"}, d=64, Br=1300, Bc=1)
@example("columns", gradients={"dV"}, d=64, Br=1, Bc=1000)
@figure
def backward_tile(
    stays: str,
    *,
    gradients: Collection[str] = GRADIENTS,
    d: int,
    Br: int,
    Bc: int,
    title: str | None = None,
) -> Picture:
    """One tile of a backward pass: arrays of its rows to the left, of its columns above, temporaries inside.

    Args:
        stays: the resident side, "rows" or "columns"; the other side is streamed.
        gradients: the gradients that this pass computes, of dQ, dK and dV; D is an input.
        d: head dimension.
        Br: rows per query block.
        Bc: rows per key block.
        title: of the figure.

    Raises:
        ValueError: unknown `stays`, no or unknown gradients, or a size below 1.
    """
    check_choice("stays", stays, ("rows", "columns"))
    if not gradients or not set(gradients) <= set(GRADIENTS):
        raise ValueError(f"gradients must be one or more of {join_names(GRADIENTS)}, got {gradients!r}")
    d, Br, Bc = positive_int("d", d), positive_int("Br", Br), positive_int("Bc", Bc)
    wanted = [name for name in GRADIENTS if name in gradients]
    rows, columns = _sides(stays, wanted, d, Br, Bc)
    makes = (*SCORES, *(() if wanted == ["dV"] else SLOPES))
    here, there = (rows, columns) if stays == "rows" else (columns, rows)
    heading = (
        f"{title or 'A tile'}: {join_names(_names(here))} resident, {join_names(_names(there))} streamed"
    )
    drawn = [*_left_of_tile(rows), *_above_tile(columns), *_tile(makes), _passing(stays, rows, columns)]
    drawn += _tile_key((*here, *there), makes, wanted)
    words = _tile_in_words(heading, (*rows, *columns), makes, wanted, Br * Bc)
    return titled(heading, (860.0, 380.0), *words, drawn)


def _sides(stays: str, wanted: Sequence[str], d: int, Br: int, Bc: int) -> tuple[list[Array], list[Array]]:
    """Return the arrays of rows and of columns of the tile; only dV does not need V and D."""
    slopes = wanted != ["dV"]
    inside, passing = (STAYS, READ) if stays == "rows" else (READ, STAYS)
    rows = [Array(name, Br * d, inside) for name in ("Q", "dO")]
    rows += [Array("dQ", Br * d, _of_sum(inside))] if "dQ" in wanted else []
    rows += [Array(name, Br, inside, thin=True) for name in ("L", "D")[: 1 + slopes]]
    columns = [Array(name, Bc * d, passing) for name in ("K", "V")[: 1 + slopes]]
    columns += [Array(name, Bc * d, _of_sum(passing)) for name in wanted if name != "dQ"]
    return rows, columns


def _of_sum(fill: Fill) -> Fill:
    return READ_AND_WRITTEN if fill == READ else fill


def _names(arrays: Sequence[Array]) -> list[str]:
    return [array.name for array in arrays]


# ---------------------------------------------------------------------- the drawing
def _left_of_tile(rows: Sequence[Array]) -> Iterator[Element]:
    left = TILE_X - 14 + GAP
    for array in reversed(rows):
        left -= array.thickness + GAP
        yield Rect(left, TILE_Y, array.thickness, DOWN, *array.fill, INK, 0.7)
        yield Text(left + array.thickness / 2, TILE_Y + DOWN + 18, array.name, NORMAL, "middle")


def _above_tile(columns: Sequence[Array]) -> Iterator[Element]:
    top = TILE_Y - 14 + GAP
    for array in reversed(columns):
        top -= TALL + GAP
        yield Rect(TILE_X, top, ACROSS, TALL, *array.fill, INK, 0.7)
        yield Text(TILE_X + ACROSS + 8, centred(top + TALL / 2, NORMAL), array.name, NORMAL)


def _passing(stays: str, rows: Sequence[Array], columns: Sequence[Array]) -> Poly:
    """Return the arrow next to the streamed arrays."""
    if stays == "rows":
        return arrow((TILE_X, TILE_Y - 12 - len(columns) * (TALL + GAP)), down=False)
    across = sum(array.thickness + GAP for array in rows)
    return arrow((TILE_X - 18 - across, TILE_Y), down=True)


def _tile(makes: Sequence[str]) -> Iterator[Element]:
    box = Rect(TILE_X, TILE_Y, ACROSS, DOWN, MADE.colour)
    yield box
    yield from outline(box, 2.5)
    step = DOWN / (len(makes) + 1)
    for k, made in enumerate(makes, 1):
        yield Text(TILE_X + ACROSS / 2, centred(TILE_Y + k * step, SMALL), made, SMALL, "middle")


def _tile_key(arrays: Sequence[Array], makes: Sequence[str], wanted: Sequence[str]) -> Iterator[Element]:
    y = 84.0
    for fill, does in FATES.items():
        if names := [array.name for array in arrays if array.fill == fill]:
            yield from swatch(RIGHT, y, fill, f"{does}: {join_names(names)}")
            y += 30
    yield from swatch(RIGHT, y, MADE, f"temporary, not stored: {join_names(_made(makes))}")
    yield Text(RIGHT, TILE_Y + 34, "Updates by the tile", NORMAL, bold=True)
    for k, name in enumerate(wanted, 1):
        yield Text(RIGHT, TILE_Y + 34 + 24 * k, ADDS[name], NORMAL)


FATES = {STAYS: "resident", READ: "streamed, read", READ_AND_WRITTEN: "streamed, read and written"}


def _made(makes: Sequence[str]) -> list[str]:
    return [made.split(" = ")[0] for made in makes]


# ---------------------------------------------------------------------- and in words
def _tile_in_words(
    heading: str, arrays: Sequence[Array], makes: Sequence[str], wanted: Sequence[str], pairs: int
) -> tuple[str, str]:
    alt = f"{heading}. A tile of {with_unit(pairs, 'pair')}, with the arrays of its queries to the left and "
    alt += "those of its keys above. "
    for fill, does in FATES.items():
        if named := [f"{one.name} of {with_unit(one.words, 'word')}" for one in arrays if one.fill == fill]:
            alt += f"{does.capitalize()}: {join_names(named)}. "
    alt += f"Temporaries that are not stored: {'; '.join(makes)}. "
    alt += f"Updates: {'; '.join(ADDS[name] for name in wanted)}."
    lines = [[array.name, FATES[array.fill], f"{array.words:,}"] for array in arrays]
    lines += [[", ".join(_made(makes)), "temporary, not stored", f"{pairs:,}"]]
    return alt, table([["", "", "words"], *lines], left=2)
