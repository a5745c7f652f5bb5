"""Figure of the Loomis-Whitney inequality: words of A, B and C on three walls, multiply-adds in the box."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....console import table, with_unit
from ..draw.palette import GREEN, GRID, INK, ORANGE, PAPER, QUIET, SKY
from ..draw.picture import LARGE, SMALL, Element, Picture, Point, Poly, Text, figure, titled

Bits = NDArray[np.bool_]
Corner = tuple[float, float, float]

MOST = 6  # words along an edge of the box
ACROSS, DOWN, UP = 22.0, 10.0, 26.0  # pixels per step: i or j sideways and down, l up
APART = 0.7  # steps between the box and the walls
MARGIN, HEAD, FOOT = 26.0, 78.0, 46.0
COLOURS = {"A": SKY, "B": ORANGE, "C": GREEN}


@dataclass(frozen=True)
class _Choice:
    """One selection of available words: a (m, k), b (k, n), c (m, n)."""

    name: str
    a: Bits
    b: Bits
    c: Bits

    @property
    def size(self) -> tuple[int, int, int]:
        """(m, n, k), the size of the box of all triples (i, j, l)."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    @property
    def counts(self) -> dict[str, int]:
        """Number of available words per array."""
        return {"A": int(self.a.sum()), "B": int(self.b.sum()), "C": int(self.c.sum())}

    @property
    def points(self) -> list[tuple[int, int, int]]:
        """The triples whose three words are available, from back to front."""
        box = product(*(range(edge) for edge in self.size))
        found = [(i, j, l) for i, j, l in box if self.a[i, l] and self.b[l, j] and self.c[i, j]]
        return sorted(found, key=sum)

    @property
    def limit(self) -> float:
        """The Loomis-Whitney upper bound on the number of triples, √(A·B·C)."""
        return sqrt(prod(self.counts.values()))


@figure
def loomis_whitney(
    choices: Mapping[str, Sequence[ArrayLike]], title: str = "Words and multiply-adds"
) -> Picture:
    """Available words of C = AB on three walls, and the multiply-adds for which all three are available.

    Args:
        choices: name → (a, b, c), True or 1 for an available word: a (m, k), b (k, n), c (m, n). One box is
            drawn for each; an edge has at most 6 words.
        title: of the figure.

    Raises:
        ValueError: no choices, shapes that do not match, or a box that is too large.
    """
    read = [_checked(name, arrays) for name, arrays in choices.items()]
    if not read:
        raise ValueError("choices must contain at least one choice of words, got none")
    boxes = [_Box(choice) for choice in read]
    height = HEAD + max(box.height for box in boxes) + FOOT
    left, drawn = MARGIN, list[Element]()
    for box in boxes:
        drawn += box.elements(left)
        left += box.width + MARGIN
    width = max(left, 36 + 0.75 * LARGE * len(title))
    rows: list[list[Any]] = [["", "A", "B", "C", "words", "multiply-adds", "√(A·B·C)"]]
    for one in read:
        counts = one.counts.values()
        rows.append([one.name, *counts, sum(counts), len(one.points), f"{one.limit:.2f}"])
    return titled(title, (width, height), " ".join(map(_sentence, read)), table(rows, left=0), drawn)


def _checked(name: str, arrays: Sequence[ArrayLike]) -> _Choice:
    shapes = [np.shape(array) for array in arrays]
    if len(shapes) != 3 or any(len(shape) != 2 or 0 in shape for shape in shapes):
        raise ValueError(f"choices[{name!r}] must be three matrices a, b, c, got the shapes {shapes}")
    (m, k), (rows, n), last = shapes
    if rows != k or last != (m, n):
        raise ValueError(f"choices[{name!r}] must be a (m, k), b (k, n), c (m, n), got the shapes {shapes}")
    if max(m, n, k) > MOST:
        raise ValueError(
            f"choices[{name!r}] must have at most {MOST} words along an edge, got a box of {m} x {n} x {k}"
        )
    a, b, c = (np.asarray(array, dtype=bool) for array in arrays)
    return _Choice(name, a, b, c)


# ---------------------------------------------------------------------- one box
class _Box:
    """A selection of words in oblique view: i to the left, j to the right, l upwards."""

    def __init__(self, choice: _Choice) -> None:
        self.choice = choice
        self.m, self.n, self.k = choice.size
        self.gap = max(choice.size) + APART
        reach = self.gap + max(self.m, self.n)
        self.width = max(2 * reach * ACROSS, 300.0)
        self.top = self.gap * DOWN + self.k * UP
        self.height = self.top + self.gap * UP + (self.m + self.n) * DOWN

    def elements(self, left: float) -> list[Element]:
        """Return walls, edges of the box, multiply-adds and labels."""
        self.left = left
        flat = [*self._walls(), *self._edges()]
        return [*flat, *(face for point in self.choice.points for face in self._cube(point)), *self._labels()]

    def at(self, i: float, j: float, l: float) -> Point:
        """Return a point of the box in pixels."""
        middle = self.left + self.width / 2
        return middle + (j - i) * ACROSS, HEAD + self.top + (i + j) * DOWN - l * UP

    def _tile(self, corners: Sequence[Corner], fill: str, stroke: str = INK) -> Poly:
        return Poly(tuple(self.at(*corner) for corner in corners), stroke, 1.0, (), fill)

    def _walls(self) -> Iterator[Element]:
        """Yield A on the left wall, B on the right wall and C on the floor, coloured if available."""
        words = {"A": self.choice.a, "B": self.choice.b, "C": self.choice.c}
        for name, there in words.items():
            for row, column in np.ndindex(there.shape):
                fill = COLOURS[name] if there[row, column] else PAPER
                yield self._tile(self._word(name, row, column), fill, QUIET)

    def _word(self, name: str, row: int, column: int) -> list[Corner]:
        """Return the corners of the square of a word on its wall."""
        steps = [(row + x, column + y) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))]
        if name == "A":
            return [(i, -self.gap, l) for i, l in steps]
        return [(-self.gap, j, l) for l, j in steps] if name == "B" else [(i, j, -self.gap) for i, j in steps]

    def _edges(self) -> Iterator[Element]:
        """Yield the edges of the box of all triples."""
        corners = product((0, self.m), (0, self.n), (0, self.k))
        for one, other in combinations(corners, 2):
            if sum(x != y for x, y in zip(one, other, strict=True)) == 1:
                yield Poly((self.at(*one), self.at(*other)), GRID, 1.0)

    def _cube(self, point: tuple[int, int, int]) -> Iterator[Element]:
        """Yield the three visible sides of a cube, each in the colour of the array on the parallel wall."""
        i, j, l = point
        yield self._tile([(i, j, l + 1), (i + 1, j, l + 1), (i + 1, j + 1, l + 1), (i, j + 1, l + 1)], GREEN)
        yield self._tile([(i, j + 1, l), (i + 1, j + 1, l), (i + 1, j + 1, l + 1), (i, j + 1, l + 1)], SKY)
        yield self._tile([(i + 1, j, l), (i + 1, j + 1, l), (i + 1, j + 1, l + 1), (i + 1, j, l + 1)], ORANGE)

    def _labels(self) -> Iterator[Element]:
        counts, made = self.choice.counts, len(self.choice.points)
        a, b, c = (f"{name}: {with_unit(count, 'word')}" for name, count in counts.items())
        yield Text(self.left, HEAD - 22, f"{self.choice.name}: {with_unit(made, 'multiply-add')}", bold=True)
        x, y = self.at(self.m, -self.gap, 0)
        yield Text(x, y + 22, a, SMALL)
        x, y = self.at(-self.gap, self.n, 0)
        yield Text(x, y + 22, b, SMALL, "end")
        x, y = self.at(self.m, self.n, -self.gap)
        yield Text(x, y + 22, c, SMALL, "middle")


# ---------------------------------------------------------------------- in words
def _sentence(choice: _Choice) -> str:
    m, n, k = choice.size
    a, b, c = choice.counts.values()
    made = with_unit(len(choice.points), "multiply-add")
    return (
        f"{choice.name}: a box of {m} x {n} x {k} triples, with {a} words of A, {b} of B and {c} of C "
        f"on three walls, and {made} inside, drawn as cubes that project onto these words."
    )
