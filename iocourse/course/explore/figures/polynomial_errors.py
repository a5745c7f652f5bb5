"""Figures of polynomials that replace exp: their error on [-R, R], and their rank against the degree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

import numpy as np

from ....console import table
from ....lowrank.polynomials import (
    LARGEST_RADIUS,
    NAMES,
    largest_error,
    polynomial,
    positive_to,
    relative_error_at,
)
from ....monomials import Array, rank_of
from ....sizes import positive_int
from ..draw.line_chart import Axis, Frame, Line, Scale, chart, end_labels, every_line, label_room
from ..draw.palette import BOUNDS, QUIET, STROKES, stroke_of
from ..draw.picture import Element, Picture, Poly, check_choice, check_count, example, figure, titled
from ..draw.text import big, words
from ..models.lowrank_explorer import LARGEST_R, of_row, percent

WIDTH, HEIGHT, LEFT = 860.0, 470.0, 78.0
POINTS = 601
LOWEST, HIGHEST = 1e-12, 100.0  # limits of the error axis
MEMORIES = {"M = 16,384 words": 2**14, "227 KB of float32": 227 * 256, "80 GB of float32": 20 * 2**30}


@figure
def polynomial_errors(
    R: float,
    curves: Sequence[tuple[str, int]],
    *,
    variance: float = 0.0,
    error: float | None = None,
    title: str | None = None,
) -> Picture:
    """Relative error |p(s)e⁻ˢ - 1| of polynomials over [-R, R], on a logarithmic axis.

    Args:
        R: half the width of the interval, at most 300; "chebyshev" and "minimax" are computed for it.
        curves: one to seven pairs (name, degree).
        variance: of the logits of a row, clipped at 0.8: "hermite" is the polynomial of such a row times
            e^(variance/2).
        error: if given, draws a dashed line.
        title: of the figure.

    Raises:
        ValueError: an argument is outside its range, or a name is unknown.
    """
    if not 0 < R <= LARGEST_R:
        raise ValueError(f"R must be positive and at most {LARGEST_R:g}, got {R}")
    if not 0 <= variance < inf:
        raise ValueError(f"variance must be 0 or more and finite, got {variance}")
    if error is not None and not 0 < error < inf:
        raise ValueError(f"error must be positive and finite, got {error}")
    check_count("curves", curves, len(STROKES))
    s = np.linspace(-R, R, POINTS)
    made = {f"{name}, g = {g}": _coefficients(name, g, R, variance) for name, g in curves}
    values = [abs(relative_error_at(p, s)) for p in made.values()]
    low, high = _range([*values, *([] if error is None else [np.array([error])])])
    lines = []
    for k, (label, at) in enumerate(zip(made, values, strict=True)):
        points = zip(s.tolist(), np.clip(at, low, high).tolist(), strict=True)  # clipped to the axis
        lines.append(Line(label, tuple(points), stroke_of(k), marker_every=POINTS // 8))
    heading = title or f"Relative error of polynomials for exp on [-{R:g}, {R:g}]"
    frame = Frame(Scale(-R, R, LEFT, WIDTH - label_room(lines)), Scale(low, high, HEIGHT - 58.0, 74.0, 10))
    drawn = list(frame.elements("logit s", "relative error |p(s)e⁻ˢ - 1|"))
    rows = [["polynomial", f"largest error on [-{R:g}, {R:g}]", "positive for"]]
    alt = f"{heading}, against the logit, on a logarithmic axis."
    for label, p in made.items():
        root, largest = positive_to(p), percent(largest_error(p, R))
        rows.append([label, largest, "all s" if root == inf else f"|s| < {root:.3g}"])
        alt += f" {label}: largest error {largest}, positive for {rows[-1][-1]}."
    if error is not None:
        alt += f" A dashed line marks {percent(error)}."
        y = frame.y(error)
        drawn.append(Poly(((frame.x.start, y), (frame.x.stop, y)), QUIET, 1.6, (7, 3)))
    drawn += [*every_line(frame, lines), *end_labels(frame, lines)]
    return titled(heading, (WIDTH, HEIGHT), alt, table(rows, left=0), drawn)


def _coefficients(name: str, g: int, R: float, variance: float) -> Array:
    if name not in NAMES:
        raise ValueError(f"curves must name polynomials among {', '.join(NAMES)}, got {name!r}")
    if LARGEST_RADIUS.get(name, inf) < R:
        raise ValueError(f"R must be at most {LARGEST_RADIUS[name]:g} for {name}, got {R:g}")
    made = polynomial(name, g, R)
    return of_row(g, variance) if made.per_row else made.coefficients


def _range(values: Sequence[Array]) -> tuple[float, float]:
    """Return limits of the error axis, powers of ten; the dips at the roots of the error are cut off."""
    largest = [max(float(one.max()), LOWEST) for one in values]
    typical = [max(float(np.median(one)) / 30, LOWEST) for one in values]
    low = 10.0 ** np.floor(np.log10(min(*typical, min(largest) / 10)))
    high = 10.0 ** np.ceil(np.log10(max(largest) * 1.2))
    return float(low), float(min(max(high, 100 * low), max(HIGHEST, 100 * low)))


# ---------------------------------------------------------------------- rank
@example()
@figure
def rank_growth(
    ds: Sequence[int] = (4, 8, 12, 16, 32, 64),
    degrees: Sequence[int] = range(1, 9),
    *,
    of: str = "state",
    lines: Mapping[str, float] | None = None,
    title: str | None = None,
) -> Picture:
    """Rank r = C(d + g, g), or the r(d + 1) words of the state, against the degree g for several d.

    Args:
        ds: head dimensions, one to seven.
        degrees: degrees g.
        of: "state" or "rank".
        lines: label → value of horizontal lines. None: three memory sizes for the state.
        title: of the figure.

    Raises:
        ValueError: an argument is outside its range.
    """
    check_choice("of", of, ("state", "rank"))
    check_count("ds", ds, len(STROKES))
    if not degrees:
        raise ValueError("degrees must contain at least one degree, got none")
    ds = [positive_int("d", d) for d in ds]
    degrees = sorted(positive_int("degree", g) for g in degrees)
    levels = dict(lines if lines is not None else MEMORIES if of == "state" else {})
    for label, value in levels.items():
        if not 0 < value < inf:
            raise ValueError(f"lines[{label!r}] must be positive and finite, got {value}")
    what = "words of the state, r(d + 1)" if of == "state" else "rank r = C(d + g, g)"
    heading = title or f"Growth of the {of} of low-rank attention"
    ranks = [["degree", *[f"r, d = {d}" for d in ds]]]
    ranks += [[str(g), *[big(rank_of(d, g)) for d in ds]] for g in degrees]
    over = [_over(label, level, ds, degrees, of) for label, level in levels.items()]
    grown = ", ".join(f"{big(rank_of(d, degrees[-1]))} for d = {d}" for d in ds)
    alt = f"{heading}: {what} against the degree, on a logarithmic axis. "
    alt += " ".join([f"The rank of degree {degrees[-1]} is {grown}.", *over])
    drawn = []
    for k, d in enumerate(ds):
        points = tuple((float(g), float(_size(d, g, of))) for g in degrees)
        drawn.append(Line(f"d = {d}", points, stroke_of(k), marker_every=1))
    for k, (label, value) in enumerate(levels.items()):
        ends = ((float(degrees[0]), float(value)), (float(degrees[-1]), float(value)))
        drawn.append(Line(label, ends, BOUNDS[k % len(BOUNDS)], marker_every=0))
    shown = _growth(drawn, degrees, what)
    return titled(heading, (WIDTH, HEIGHT), alt, "\n".join([table(ranks, left=0), *over]), shown)


def _size(d: int, g: int, of: str) -> int:
    """Return the rank, or the words of the state."""
    return rank_of(d, g) * (d + 1 if of == "state" else 1)


def _growth(lines: Sequence[Line], degrees: Sequence[int], what: str) -> Iterator[Element]:
    """Return the chart, with ticks at integer degrees only."""
    first, last = float(degrees[0]), float(degrees[-1])
    ticks = tuple(map(float, degrees[:: -(-len(degrees) // 12)]))
    x = Scale(first, last if last > first else first + 1, LEFT, WIDTH - label_room(lines), marks=ticks)
    y = Axis(HEIGHT - 58.0, 74.0, 10, 1.5).over([y for line in lines for _, y in line.points])
    return chart(Frame(x, y), lines, "degree g", what)


def _over(label: str, level: float, ds: Sequence[int], degrees: Sequence[int], of: str) -> str:
    """Return a sentence on the largest degree below a line for each d."""
    parts = []
    for d in ds:
        below = [g for g in degrees if _size(d, g, of) <= level]
        parts.append(f"{max(below)} at d = {d}" if below else f"none at d = {d}")
    return f"{label} ({words(level)}): the largest degree within this limit is {', '.join(parts)}."
