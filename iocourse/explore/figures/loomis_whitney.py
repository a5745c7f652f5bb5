"""Loomis and Whitney in a box: the words of A, B and C on its walls, the multiply-adds they allow inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...console import table, with_unit
from ..draw.palette import GREEN, GRID, INK, ORANGE, PAPER, QUIET, SKY
from ..draw.picture import LARGE, SMALL, Element, Picture, Point, Poly, Text, figure, titled

Bits = NDArray[np.bool_]
Corner = tuple[float, float, float]

MOST = 6  # words along an edge of the box
ACROSS, DOWN, UP = 22.0, 10.0, 26.0  # of a step along i or j to the side and down, of a step along l upwards
APART = 0.7  # steps between the box and what stands clear of it
MARGIN, HEAD, FOOT = 26.0, 78.0, 46.0
COLOURS = {"A": SKY, "B": ORANGE, "C": GREEN}


@dataclass(frozen=True)
class _Choice:
    """Which words are at hand: a (m, k), b (k, n), c (m, n)."""

    name: str
    a: Bits
    b: Bits
    c: Bits

    @property
    def size(self) -> tuple[int, int, int]:
        """m, n, k: the box of all triples (i, j, l)."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    @property
    def counts(self) -> dict[str, int]:
        """Words at hand of each array."""
        return {"A": int(self.a.sum()), "B": int(self.b.sum()), "C": int(self.c.sum())}

    @property
    def points(self) -> list[tuple[int, int, int]]:
        """The triples whose three words are at hand, from the back to the front."""
        box = product(*(range(edge) for edge in self.size))
        found = [(i, j, l) for i, j, l in box if self.a[i, l] and self.b[l, j] and self.c[i, j]]
        return sorted(found, key=sum)

    @property
    def limit(self) -> float:
        """The most that as many words allow, by Loomis and Whitney."""
        return sqrt(prod(self.counts.values()))


@figure
def loomis_whitney(
    choices: Mapping[str, Sequence[ArrayLike]], title: str = "Words and multiply-adds"
) -> Picture:
    """The words at hand of C = AB on three walls, and the multiply-adds that have all three words.

    Args:
        choices: name → (a, b, c), True or 1 where the word is at hand: a (m, k), b (k, n), c (m, n). One box
            is drawn for each; an edge has at most 6 words.
        title: of the picture.

    Raises ValueError for no choices, for shapes that do not belong together, and for larger boxes.
    """
    read = [_checked(name, arrays) for name, arrays in choices.items()]
    if not read:
        raise ValueError("choices is empty: name at least one choice of words")
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
        raise ValueError(f"choices[{name!r}]: three matrices a, b, c are wanted, got the shapes {shapes}")
    (m, k), (rows, n), last = shapes
    if rows != k or last != (m, n):
        raise ValueError(
            f"choices[{name!r}]: a (m, k), b (k, n), c (m, n) are wanted, got the shapes {shapes}"
        )
    if max(m, n, k) > MOST:
        raise ValueError(
            f"choices[{name!r}]: a box of {m} x {n} x {k}, at most {MOST} along an edge are drawn"
        )
    a, b, c = (np.asarray(array, dtype=bool) for array in arrays)
    return _Choice(name, a, b, c)


# ---------------------------------------------------------------------- one box
class _Box:
    """A choice of words drawn in oblique view: i runs to the left, j to the right, l upwards."""

    def __init__(self, choice: _Choice) -> None:
        self.choice = choice
        self.m, self.n, self.k = choice.size
        self.gap = max(choice.size) + APART
        reach = self.gap + max(self.m, self.n)
        self.width = max(2 * reach * ACROSS, 300.0)
        self.top = self.gap * DOWN + self.k * UP
        self.height = self.top + self.gap * UP + (self.m + self.n) * DOWN

    def elements(self, left: float) -> list[Element]:
        """The walls, the edges of the box, the multiply-adds, and the labels."""
        self.left = left
        flat = [*self._walls(), *self._edges()]
        return [*flat, *(face for point in self.choice.points for face in self._cube(point)), *self._labels()]

    def at(self, i: float, j: float, l: float) -> Point:
        """Where a corner of the box is, in pixels."""
        middle = self.left + self.width / 2
        return middle + (j - i) * ACROSS, HEAD + self.top + (i + j) * DOWN - l * UP

    def _tile(self, corners: Sequence[Corner], fill: str, stroke: str = INK) -> Poly:
        return Poly(tuple(self.at(*corner) for corner in corners), stroke, 1.0, (), fill)

    def _walls(self) -> Iterator[Element]:
        """A on the wall to the left, B on the wall to the right, C on the floor; coloured where at hand."""
        words = {"A": self.choice.a, "B": self.choice.b, "C": self.choice.c}
        for name, there in words.items():
            for row, column in np.ndindex(there.shape):
                fill = COLOURS[name] if there[row, column] else PAPER
                yield self._tile(self._word(name, row, column), fill, QUIET)

    def _word(self, name: str, row: int, column: int) -> list[Corner]:
        """The corners of a word's tile on its wall."""
        steps = [(row + x, column + y) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))]
        if name == "A":
            return [(i, -self.gap, l) for i, l in steps]
        return [(-self.gap, j, l) for l, j in steps] if name == "B" else [(i, j, -self.gap) for i, j in steps]

    def _edges(self) -> Iterator[Element]:
        """The edges of the box of all triples."""
        corners = product((0, self.m), (0, self.n), (0, self.k))
        for one, other in combinations(corners, 2):
            if sum(x != y for x, y in zip(one, other, strict=True)) == 1:
                yield Poly((self.at(*one), self.at(*other)), GRID, 1.0)

    def _cube(self, point: tuple[int, int, int]) -> Iterator[Element]:
        """The three faces one sees, each in the colour of the wall behind it."""
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
        f"on three walls; in it {made}, drawn as cubes whose shadows are on these words."
    )
