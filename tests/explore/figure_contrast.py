"""Contrast (WCAG 2.2) of the elements of a figure to those below and next to them.

Lines, markers and edges need 3, text 4.5. Exempt are grid lines, the white below a line, and the tints of
backgrounds, whose meaning is also given as text.
"""

from collections import Counter
from functools import cache, partial
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from figure_layout import box_of
from page_audit import ratio

from iocourse.course.explore.draw.palette import FORBIDDEN, GRID, PAPER, REGIMES, ramp
from iocourse.course.explore.draw.picture import Poly, Raster, Rect, Text, hatch_lines

LINE, TEXT = 3.0, 4.5
TINTS = {PAPER, FORBIDDEN, *REGIMES.values(), *(ramp(k / 8192) for k in range(8193))}
MARK = 20  # pixels: a smaller polygon is a marker on the background, not an area


class Faint(NamedTuple):
    """An element with too little contrast: its kind, its colour, the other colour, and their contrast."""

    what: str
    colour: str
    ground: str
    ratio: float


@cache
def contrast(one, other):
    """Return the contrast of two colours such as "#E69F00"."""
    return ratio(_channels(one), _channels(other))


def _channels(colour):
    return tuple(int(colour[k : k + 2], 16) for k in (1, 3, 5))


def faint(picture):
    """Return the lines, markers, areas and labels of a figure with too little contrast, each kind once."""
    drawn, found = Drawn(picture), {}
    for at, element in enumerate(picture.elements):
        for one in _KINDS[type(element)](element, at, drawn):
            found.setdefault(one[:3], one)
    return list(found.values())


class Drawn:
    """Index of a figure: the colours at a point, and the lines near it."""

    def __init__(self, picture):
        self.elements = picture.elements
        areas = [(at, one) for at, one in enumerate(self.elements) if _is_area(one)]
        self.order = np.array([at for at, _ in areas], int)
        self.areas = [one for _, one in areas]
        self.bounds = np.array([_bounds(one) for one in self.areas]).reshape(-1, 4)
        self.marks = np.array([_is_mark(one) for one in self.areas], bool)
        self._lines, self._looks = None, Counter()

    def under(self, at, points, *, marks=False):
        """Return the colours at these points before element number `at` is drawn."""
        count = np.searchsorted(self.order, at)
        known = np.full(count, True) if marks else ~self.marks[:count]
        return {self._colour(known, point) for point in points}

    def seen(self, point):
        """Return the final colour at a point."""
        return self._colour(~self.marks, point)

    def _colour(self, known, point):
        left, top, right, bottom = self.bounds[: len(known)].T
        x, y = point
        for k in np.flatnonzero(known & (left <= x) & (x <= right) & (top <= y) & (y <= bottom))[::-1]:
            if colour := _colour_at(self.areas[k], point):
                return colour
        return PAPER

    def seen_often(self, kind):
        """Return True after a dozen edges of this kind, because a mask has thousands of them."""
        self._looks[kind] += 1
        return self._looks[kind] > 12

    def edges_at(self, point):
        """Return the colours of the lines and edges within two pixels of a point."""
        if self._lines is None:
            self._lines = _all_lines(self.elements)
        ends, colours = self._lines
        start, along = ends[:, 0], ends[:, 1] - ends[:, 0]  # (lines, 2)
        length = np.maximum((along**2).sum(axis=1), 1e-9)
        share = np.clip(((point - start) * along).sum(axis=1) / length, 0, 1)
        near = ((start + share[:, None] * along - point) ** 2).sum(axis=1) <= 4
        return set(colours[near])


def _is_area(element):
    return isinstance(element, Raster) or bool(getattr(element, "fill", ""))


def _all_lines(elements):
    pieces = [(one, two, element.stroke) for element in elements for one, two in _sides(element)]
    ends = np.array([(one, two) for one, two, _ in pieces], float).reshape(-1, 2, 2)
    return ends, np.array([colour for *_, colour in pieces], object)


def _sides(element):
    """Return the lines of an element as pairs of points."""
    if not getattr(element, "stroke", ""):
        return []
    corners = _corners(element) if isinstance(element, Rect) else element.points
    last = corners[:1] if isinstance(element, Rect) or element.fill else ()
    return pairwise((*corners, *last))


def _corners(rect):
    left, top, right, bottom = _bounds(rect)
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def _bounds(element):
    if isinstance(element, Poly):
        xs, ys = zip(*element.points, strict=True)
        return min(xs), min(ys), max(xs), max(ys)
    return element.x, element.y, element.x + element.width, element.y + element.height


def _colour_at(area, point):
    """Return the colour of an area at a point of its bounds, or None outside a polygon."""
    if isinstance(area, Raster):
        return _pixel(area, point)
    return area.fill if isinstance(area, Rect) or _inside(point, area.points) else ""


def _pixel(raster, point):
    x, y = point
    column = min(int((x - raster.x) / raster.width * raster.columns), raster.columns - 1)
    row = min(int((y - raster.y) / raster.height * raster.rows), raster.rows - 1)
    place = 3 * (row * raster.columns + column)
    return "#" + raster.pixels[place : place + 3].hex().upper()


def _inside(point, corners):
    """Return True if the point is inside the polygon (a ray crosses its outline an odd number of times)."""
    x, y = point
    crossed = 0
    for (x0, y0), (x1, y1) in zip(corners, (*corners[1:], corners[0]), strict=True):
        if (y0 > y) != (y1 > y):
            crossed += x < x0 + (y - y0) / (y1 - y0) * (x1 - x0)
    return crossed % 2 == 1


# ---------------------------------------------------------------------- each kind of element
def _faint_text(text, at, drawn):
    left, top, right, bottom = box_of(text)
    points = [(x, y) for x in (left + 1, (left + right) / 2, right - 1) for y in (top + 2, bottom - 1)]
    for ground in drawn.under(at, points, marks=True):
        if contrast(text.colour, ground) < TEXT:
            yield Faint(f"the text {text.text!r}", text.colour, ground, contrast(text.colour, ground))


def _faint_poly(poly, at, drawn):
    if poly.fill:
        if poly.fill not in TINTS or poly.stroke not in ("", GRID):
            sides = [(one, _outwards(poly.points, one)) for one in _middles((*poly.points, poly.points[0]))]
            yield from _faint_area(poly, at, drawn, sides)
    elif not _is_grid(poly) and poly.stroke != PAPER:
        for ground in drawn.under(at, _along(poly.points)):
            if contrast(poly.stroke, ground) < LINE:
                yield Faint("a line", poly.stroke, ground, contrast(poly.stroke, ground))


def _is_grid(poly):
    return poly.stroke == GRID and not poly.dash and poly.line <= 1


def _along(points):
    """Return the points of a line and the midpoints between them."""
    return [*points, *_middles(points)]


def _middles(points):
    return [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairwise(points)]


def _outwards(corners, point):
    """Return points two pixels outside the corners, seen from their centre."""
    away = np.subtract(point, np.mean(corners, axis=0))
    return tuple(2 * away / max(np.hypot(*away), 1e-9))


def _faint_rect(rect, at, drawn):
    left, top, right, bottom = _bounds(rect)
    if min(rect.width, rect.height) <= 0 or (rect.fill in TINTS and rect.stroke in ("", GRID)):
        return
    x, y = (left + right) / 2, (top + bottom) / 2
    sides = [((left, y), (-2, 0)), ((right, y), (2, 0)), ((x, top), (0, -2)), ((x, bottom), (0, 2))]
    yield from _faint_area(rect, at, drawn, sides)


def _faint_area(area, at, drawn, sides):
    """Return for each side a point of the edge and the offset to the next element."""
    hatched = isinstance(area, Rect) and hatch_lines(area)
    own = {area.fill, area.stroke, area.ink if hatched else ""} - {""}
    look = _beneath if _is_mark(area) else _beside
    for ground, near in look(area, at, drawn, sides) if own else ():
        if _best(own, ground) >= LINE or drawn.seen_often((*own, ground)):
            continue
        if (best := _best(own | near(), ground)) < LINE:
            yield Faint("an area", area.fill or area.stroke, ground, best)


def _is_mark(area):
    left, top, right, bottom = _bounds(area)
    return isinstance(area, Poly) and max(right - left, bottom - top) < MARK


def _beneath(mark, at, drawn, sides):
    """Return the background colours of a marker."""
    return [(ground, set) for ground in drawn.under(at, [point for point, _ in sides])]


def _beside(area, at, drawn, sides):
    """Yield the colours next to a larger area, each with a function that finds the edges between."""
    for (x, y), (dx, dy) in sides:
        inside, beyond = drawn.seen((x - dx, y - dy)), drawn.seen((x + dx, y + dy))
        if beyond != area.fill and (not area.fill or inside == area.fill):  # neither one with it, nor covered
            yield beyond, partial(drawn.edges_at, np.array((x, y)))


def _best(colours, beyond):
    """Return the highest contrast between two consecutive colours across an edge."""
    return max(contrast(*pair) for pair in combinations((*colours, beyond), 2))


_KINDS = {Rect: _faint_rect, Poly: _faint_poly, Text: _faint_text, Raster: lambda *_: ()}
