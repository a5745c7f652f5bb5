"""Figure of blocked products in a small cache: a resident tile, and columns and rows that are streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....console import table, with_unit
from ....sizes import check_sizes
from ..draw.palette import INK, PAPER, QUIET, fill_of
from ..draw.picture import NORMAL, Element, Picture, Poly, Rect, Text, centred, example, figure, titled
from ..draw.shapes import outline, swatch

LEFT, TOP, ACROSS = 46.0, 84.0, 300.0  # corner of the first panel; pixels for N + d words
GAP, APART = 16.0, 74.0  # gaps between arrays and between panels
KEY = 122.0  # height of the legend below a panel
BAND = "#EFEFEF"  # everything streamed for the tile
MOST = 64  # words per side: a column of width 1 is visible
ARROW = ((0.0, 0.0), (30.0, 0.0), (23.0, -3.5), (23.0, 3.5), (30.0, 0.0))  # along and across the arrow
Range = tuple[int, int]


class Product(NamedTuple):
    """A resident tile of a product and two streamed arrays: `left` has its rows, `above` its columns."""

    result: str
    left: str
    above: str
    shape: tuple[int, int]  # of the result
    depth: int  # steps of the inner dimension
    tile: tuple[Range, Range]  # resident rows and columns of the result
    kept: Range  # rows of `left` that are in slow memory
    passing: tuple[str, str]  # part of each streamed array loaded per step

    @property
    def height(self) -> int:
        """Rows of the tile, and words of `left` per step."""
        return self.tile[0][1] - self.tile[0][0]

    @property
    def width(self) -> int:
        """Columns of the tile, and words of `above` per step."""
        return self.tile[1][1] - self.tile[1][0]

    @property
    def step(self) -> tuple[str, str]:
        """The two loads of a step as text: "a column of Q, 6 words"."""
        column, row = self.passing
        return f"{column}, {with_unit(self.height, 'word')}", f"{row}, {with_unit(self.width, 'word')}"

    @property
    def worth(self) -> str:
        """Words and products per step as text."""
        products = with_unit(self.height * self.width, "product")
        return f"{with_unit(self.height + self.width, 'word')} per step for {products}"


@example(24, 18, Br=6, Bc=8, Bd=6)
@example(20, 20, Br=20, Bc=1, Bd=20)
@example(1, 1, Br=1, Bc=1, Bd=1)
@figure
def blocked_product(N: int, d: int, *, Br: int, Bc: int, Bd: int) -> Picture:
    """Attention in a small cache: Q and K are streamed for a tile of S, then S and V for a tile of O.

    The tile of S is Br x Bc, that of O is Br x Bd. All sizes are in words and to scale.

    Raises:
        ValueError: N or d is above 64, or a tile is larger than its array.
    """
    N, d, Br, Bc, Bd = check_sizes(N=N, d=d, Br=Br, Bc=Bc, Bd=Bd)
    for name, words, most in (("N", N, MOST), ("d", d, MOST), ("Br", Br, N), ("Bc", Bc, N), ("Bd", Bd, d)):
        if words > most:
            raise ValueError(f"{name} must be at most {most}, got {words}")
    i, j, c = _second(N, Br), _second(N, Bc), _second(d, Bd)
    scores = Product("S", "Q", "Kᵀ", (N, N), d, (i, j), (0, N), ("a column of Q", "a column of K"))
    output = Product("O", "S", "V", (N, d), N, (i, c), i, ("a column of S", "a row of V"))
    scale, right = ACROSS / (N + d), LEFT + ACROSS + GAP + APART
    drawn = [*_panel(scores, LEFT, scale), *_panel(output, right, scale)]
    heading = f"Resident tile, streamed columns: N = {N}, d = {d}, Br = {Br}, Bc = {Bc}, Bd = {Bd}"
    size = (right + ACROSS + GAP + LEFT, _bottom(max(N, d) + N, scale) + KEY)
    return titled(heading, size, *_in_words(heading, (scores, output)), drawn)


def _second(extent: int, size: int) -> Range:
    """Return the second block, or the first if there is only one; it is drawn away from the border."""
    return (size, min(2 * size, extent)) if size < extent else (0, size)


def _bottom(words: int, scale: float) -> float:
    """Return the bottom of a panel with `words` words per column, those of two arrays together."""
    return TOP + words * scale + GAP


def _panel(p: Product, left: float, scale: float) -> Iterator[Element]:
    """Yield a panel: the result, one array to its left and one above it, and the legend below."""
    x, y = left + p.depth * scale + GAP, TOP + p.depth * scale + GAP  # of the result
    width, height = p.shape[1] * scale, p.shape[0] * scale
    start, stop = (y + row * scale for row in p.kept)
    yield Text(left, TOP - 20, f"{p.result}: {with_unit(p.depth, 'step')} per tile", NORMAL, bold=True)
    yield Rect(x, y, width, height, PAPER, "", QUIET)
    yield Rect(left, start, p.depth * scale, stop - start, PAPER, "", QUIET)
    yield Rect(x, TOP, width, p.depth * scale, PAPER, "", QUIET)
    yield from _at_work(p, left, (x, y), scale)
    yield Text(left - 8, centred((start + stop) / 2, NORMAL), p.left, NORMAL, "end")
    yield Text(x + width + 8, centred(TOP + p.depth / 2 * scale, NORMAL), p.above, NORMAL)
    yield Text(x + width + 8, centred(y + height / 2, NORMAL), p.result, NORMAL)
    yield from _key(p, left, _bottom(p.depth + p.shape[0], scale) + 22)


def _at_work(p: Product, left: float, corner: tuple[float, float], scale: float) -> Iterator[Element]:
    """Yield the tile, all streamed words in grey, and one step with arrows to the next."""
    x, y = corner[0] + p.tile[1][0] * scale, corner[1] + p.tile[0][0] * scale
    width, height, depth = p.width * scale, p.height * scale, p.depth * scale
    at = p.depth // 2 * scale
    yield Rect(left, y, depth, height, BAND, "", QUIET, 0.8)
    yield Rect(x, TOP, width, depth, BAND, "", QUIET, 0.8)
    yield Rect(left + at, y, scale, height, *fill_of(p.left, 0), INK, 0.7)
    yield Rect(x, TOP + at, width, scale, *fill_of(p.above[0], 0), INK, 0.7)
    tile = Rect(x, y, width, height, *fill_of(_stays(p), 0))
    yield from (tile, *outline(tile))
    yield Poly(tuple((left + at + a, y - 8 + b) for a, b in ARROW), INK, 1.4)
    yield Poly(tuple((x - 8 + b, TOP + at + a) for a, b in ARROW), INK, 1.4)


def _stays(p: Product) -> str:
    """Return the kind of the resident tile, which selects its fill; scores in fast memory have their own."""
    return "scores" if p.result == "S" else p.result


def _key(p: Product, left: float, y: float) -> Iterator[Element]:
    yield from swatch(left, y, fill_of(_stays(p), 0), f"resident: {p.height} × {p.width} words of {p.result}")
    for k, (array, passes) in enumerate(zip((p.left, p.above[0]), p.step, strict=True), 1):
        yield from swatch(left, y + 24 * k, fill_of(array, 0), f"streamed: {passes}")
    yield Text(left, y + 84, p.worth, NORMAL, bold=True)


def _in_words(heading: str, products: tuple[Product, Product]) -> tuple[str, str]:
    alt = f"{heading}. Two products of matrices, each with one array to the left of its result and one above."
    for p in products:
        alt += f" For {p.result}, a tile of {p.height} × {p.width} words is resident. Each of "
        alt += f"{with_unit(p.depth, 'step')} streams {p.step[0]}, and {p.step[1]}: {p.worth}."
    rows: list[list[object]] = [
        ["", *(p.result for p in products)],
        ["words of the tile", *(p.height * p.width for p in products)],
        ["streamed words per step", *(p.height + p.width for p in products)],
        ["products per step", *(p.height * p.width for p in products)],
        ["steps", *(p.depth for p in products)],
    ]
    return alt, table(rows)
