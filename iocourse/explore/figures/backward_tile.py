"""One tile of a backward pass: which arrays stay, which pass by, and what is made and never leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ...console import counted, table
from ...sizes import positive_int
from ..draw.palette import INK, Fill
from ..draw.picture import NORMAL, SMALL, Element, Picture, Poly, Rect, Text, centred, example, figure, titled
from ..draw.shapes import READ, READ_AND_WRITTEN, STAYS, arrow, outline, swatch
from ..draw.text import listed

X, Y, ACROSS, DOWN = 246.0, 206.0, 200.0, 132.0  # the tile: its corner, its width and its height
STRIP, THIN, TALL, GAP = 34.0, 12.0, 30.0, 10.0  # rows of d words and of one, columns, what is between them
RIGHT = 520.0
MADE = Fill("#F3E3ED", "")  # light enough to write on
GRADIENTS = ("dQ", "dK", "dV")
SCORES = ("S = QKᵀ/√d", "P = exp(S − L)")
SLOPES = ("dP = dO Vᵀ", "dS = P ∘ (dP − D)")
ADDS = {"dQ": "dQ += dS K/√d", "dK": "dK += dSᵀQ/√d", "dV": "dV += PᵀdO"}


class Array(NamedTuple):
    """Its rows in the tile: their name, their words, and what becomes of them."""

    name: str
    words: int
    fill: Fill
    thin: bool = False

    @property
    def thickness(self) -> float:
        """Pixels of a row."""
        return THIN if self.thin else STRIP


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
    """A tile of Br queries and Bc keys: its rows to the left, its columns above, what it makes inside.

    `stays` is "rows" or "columns": the side whose arrays are in fast memory while the others pass by.
    `gradients` are those that the sweep computes; D is taken as given. Raises ValueError for another
    `stays`, for no gradient or one that is none, and for sizes below 1.
    """
    _check(stays, gradients)
    d, Br, Bc = positive_int("d", d), positive_int("Br", Br), positive_int("Bc", Bc)
    wanted = [name for name in GRADIENTS if name in gradients]
    rows, columns = _sides(stays, wanted, d, Br, Bc)
    makes = (*SCORES, *(() if wanted == ["dV"] else SLOPES))
    here, there = (rows, columns) if stays == "rows" else (columns, rows)
    heading = f"{title or 'A tile'}: {listed(_names(here))} stay, {listed(_names(there))} pass"
    drawn = [*_left(rows), *_above(columns), *_tile(makes), _passing(stays, rows, columns)]
    drawn += _key((*here, *there), makes, wanted)
    words = _in_words(heading, (*rows, *columns), makes, wanted, Br * Bc)
    return titled(heading, (860.0, 380.0), *words, drawn)


def _check(stays: str, gradients: Collection[str]) -> None:
    if stays not in ("rows", "columns"):
        raise ValueError(f"stays is {stays!r}; it must be 'rows' or 'columns'")
    if not gradients or not set(gradients) <= set(GRADIENTS):
        raise ValueError(f"gradients is {gradients!r}; it must name one or more of {listed(GRADIENTS)}")


def _sides(stays: str, wanted: Sequence[str], d: int, Br: int, Bc: int) -> tuple[list[Array], list[Array]]:
    """The arrays of the tile's rows and of its columns; dV alone needs neither V nor D."""
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
def _left(rows: Sequence[Array]) -> Iterator[Element]:
    left = X - 14 + GAP
    for array in reversed(rows):
        left -= array.thickness + GAP
        yield Rect(left, Y, array.thickness, DOWN, *array.fill, INK, 0.7)
        yield Text(left + array.thickness / 2, Y + DOWN + 18, array.name, NORMAL, "middle")


def _above(columns: Sequence[Array]) -> Iterator[Element]:
    top = Y - 14 + GAP
    for array in reversed(columns):
        top -= TALL + GAP
        yield Rect(X, top, ACROSS, TALL, *array.fill, INK, 0.7)
        yield Text(X + ACROSS + 8, centred(top + TALL / 2, NORMAL), array.name, NORMAL)


def _passing(stays: str, rows: Sequence[Array], columns: Sequence[Array]) -> Poly:
    """Beside the arrays that pass, in the way they go."""
    if stays == "rows":
        return arrow((X, Y - 12 - len(columns) * (TALL + GAP)), down=False)
    across = sum(array.thickness + GAP for array in rows)
    return arrow((X - 18 - across, Y), down=True)


def _tile(makes: Sequence[str]) -> Iterator[Element]:
    box = Rect(X, Y, ACROSS, DOWN, MADE.colour)
    yield box
    yield from outline(box, 2.5)
    step = DOWN / (len(makes) + 1)
    for k, made in enumerate(makes, 1):
        yield Text(X + ACROSS / 2, centred(Y + k * step, SMALL), made, SMALL, "middle")


def _key(arrays: Sequence[Array], makes: Sequence[str], wanted: Sequence[str]) -> Iterator[Element]:
    y = 84.0
    for fill, does in FATES.items():
        if names := [array.name for array in arrays if array.fill == fill]:
            yield from swatch(RIGHT, y, fill, f"{does}: {listed(names)}")
            y += 30
    yield from swatch(RIGHT, y, MADE, f"made here, never leave: {listed(_made(makes))}")
    yield Text(RIGHT, Y + 34, "What the tile adds", NORMAL, bold=True)
    for k, name in enumerate(wanted, 1):
        yield Text(RIGHT, Y + 34 + 24 * k, ADDS[name], NORMAL)


FATES = {STAYS: "stay", READ: "pass, read", READ_AND_WRITTEN: "pass, read and written"}


def _made(makes: Sequence[str]) -> list[str]:
    return [made.split(" = ")[0] for made in makes]


# ---------------------------------------------------------------------- and in words
def _in_words(
    heading: str, arrays: Sequence[Array], makes: Sequence[str], wanted: Sequence[str], pairs: int
) -> tuple[str, str]:
    alt = f"{heading}. A tile of {counted(pairs, 'pair')}, the arrays of its queries to the left and "
    alt += "those of its keys above. " + " ".join(_fate(fill, does, arrays) for fill, does in FATES.items())
    alt = f"{alt.strip()} In the tile {'; '.join(makes)} are made and never leave. "
    alt += f"Then {'; '.join(ADDS[name] for name in wanted)}."
    lines = [[array.name, FATES[array.fill], f"{array.words:,}"] for array in arrays]
    lines += [[", ".join(_made(makes)), "made here, never leave", f"{pairs:,}"]]
    return alt, table([["", "", "words"], *lines], left=2)


def _fate(fill: Fill, does: str, arrays: Sequence[Array]) -> str:
    named = [f"{array.name} of {counted(array.words, 'word')}" for array in arrays if array.fill == fill]
    return f"{does.capitalize()}: {listed(named)}." if named else ""
