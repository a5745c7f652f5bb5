"""Polynomials in place of exp: how far off they are on [-R, R], and how their rank grows with the degree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from ...console import table
from ...lowrank.polynomials import (
    CLIP,
    LARGEST_RADIUS,
    NAMES,
    hermite,
    largest_error,
    polynomial,
    positive_to,
    relative_error_at,
)
from ...monomials import Array, rank_of
from ...sizes import positive_int
from ..draw.figure import figure
from ..draw.frame import Frame, Scale, tick_label, words
from ..draw.lines import Line, end_labels, line_elements, scale_over
from ..draw.palette import BOUNDS, QUIET, STROKES, stroke_of
from ..draw.picture import LARGE, NORMAL, SMALL, Element, Picture, Poly, Text, text_width
from ..facts.lowrank_explorer import LARGEST_R, big, percent

WIDTH, HEIGHT = 860.0, 470.0
POINTS = 601
LOWEST, HIGHEST = 1e-12, 100.0  # of the axis of errors
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
    """The relative error |p(s)e⁻ˢ - 1| of polynomials over [-R, R], on a logarithmic axis.

    `curves` are (name, degree), up to seven; "chebyshev" and "minimax" are made for this R, "hermite" is the
    polynomial of a row with logits of this `variance`, clipped at 0.8, times e^(variance/2). `error` draws
    a dashed line. Raises ValueError for no or too many curves, another name, a degree below 1, an R that is
    not positive or beyond 300, an error that is not positive and finite, a variance that is negative.
    """
    if not 0 < R <= LARGEST_R:
        raise ValueError(f"R is {R}; it must be positive and at most {LARGEST_R:g}")
    if not 0 <= variance < inf:
        raise ValueError(f"variance is {variance}; it must be 0 or more, and finite")
    if error is not None and not 0 < error < inf:
        raise ValueError(f"error is {error}; it must be positive and finite")
    if not 1 <= len(curves) <= len(STROKES):
        raise ValueError(f"curves has {len(curves)} entries; allowed are 1 to {len(STROKES)}")
    s = np.linspace(-R, R, POINTS)
    made = [(_label(*one), _coefficients(*one, R, variance)) for one in curves]
    values = [abs(relative_error_at(p, s)) for _, p in made]
    low, high = _range([*values, *([] if error is None else [np.array([error])])])
    lines = [
        Line(label, _points(s, at, low, high), stroke_of(k), marker_every=POINTS // 8)
        for k, ((label, _), at) in enumerate(zip(made, values, strict=True))
    ]
    heading = title or f"How far polynomials are from exp on [-{R:g}, {R:g}]"
    room = max(text_width(label, NORMAL) for label, _ in made) + 74
    frame = Frame(Scale(-R, R, 78.0, WIDTH - room), Scale(low, high, HEIGHT - 58.0, 74.0, 10))
    drawn: list[Element] = [Text(18, 28, heading, LARGE, bold=True)]
    drawn += frame.elements("logit s", "relative error |p(s)e⁻ˢ - 1|")
    if error is not None:
        y = frame.y(error)
        drawn.append(Poly(((frame.x.start, y), (frame.x.stop, y)), QUIET, 1.6, (7, 3)))
    for line in lines:
        drawn += line_elements(frame, line)
    drawn += end_labels(frame, lines)
    rows = [_row(label, p, R) for (label, p) in made]
    width = max(WIDTH, 36 + 1.08 * text_width(heading, LARGE))
    alt = f"{heading}: relative error against the logit, logarithmic. " + " ".join(_said(row) for row in rows)
    alt += "" if error is None else f" A dashed line stands at {percent(error)}."
    head = ["polynomial", f"largest error on [-{R:g}, {R:g}]", "is positive for"]
    return Picture(width, HEIGHT, heading, alt, table([head, *rows], left=0), tuple(drawn))


def _label(name: str, g: int) -> str:
    return f"{name}, g = {g}"


def _coefficients(name: str, g: int, R: float, variance: float) -> Array:
    if name not in NAMES:
        raise ValueError(f"curves names the polynomial {name!r}; it must be one of {', '.join(NAMES)}")
    if LARGEST_RADIUS.get(name, inf) < R:
        raise ValueError(f"R is {R:g}; {name} can be made for R up to {LARGEST_RADIUS[name]:g}")
    made = polynomial(name, g, R)
    if not made.per_row:
        return made.coefficients
    clipped = min(variance, CLIP)
    found: Array = np.exp(clipped / 2) * hermite(g, np.array([clipped]))[:, 0]
    return found


def _range(values: Sequence[Array]) -> tuple[float, float]:
    """Whole powers of ten around the errors; not below what a dip at a root would ask for."""
    largest = [max(float(one.max()), LOWEST) for one in values]
    typical = [max(float(np.median(one)) / 30, LOWEST) for one in values]
    low = 10.0 ** np.floor(np.log10(min(*typical, min(largest) / 10)))
    high = 10.0 ** np.ceil(np.log10(max(largest) * 1.2))
    return float(low), float(min(max(high, 100 * low), max(HIGHEST, 100 * low)))


def _points(s: Array, values: Array, low: float, high: float) -> tuple[tuple[float, float], ...]:
    """The curve, kept between the ends of the axis."""
    kept = np.clip(values, low, high)
    return tuple((float(x), float(y)) for x, y in zip(s, kept, strict=True))


def _row(label: str, p: Array, R: float) -> list[str]:
    root = positive_to(p)
    return [label, percent(largest_error(p, R)), "all s" if root == inf else f"|s| < {root:.3g}"]


def _said(row: Sequence[str]) -> str:
    label, largest, positive = row
    return f"{label}: off by up to {largest}, positive for {positive}."


# ---------------------------------------------------------------------- rank
@figure
def rank_growth(
    ds: Sequence[int] = (4, 8, 12, 16, 32, 64),
    degrees: Sequence[int] = range(1, 9),
    *,
    of: str = "state",
    lines: Mapping[str, float] | None = None,
    title: str | None = None,
) -> Picture:
    """The rank r = C(d + g, g) against the degree g for several d, or the words r(d + 1) of the state.

    `of` is "state" or "rank"; `lines` are horizontal, label → words or rank, by default three memories for
    the state and none for the rank. Raises ValueError for an empty or too long list, a size below 1, another
    `of`, a line that is not positive and finite.
    """
    if of not in ("state", "rank"):
        raise ValueError(f"of is {of!r}; it must be 'state' or 'rank'")
    if not 1 <= len(ds) <= len(STROKES):
        raise ValueError(f"ds has {len(ds)} entries; allowed are 1 to {len(STROKES)}")
    if not degrees:
        raise ValueError("degrees is empty; give at least one")
    for d in ds:
        positive_int("d", d)
    for g in degrees:
        positive_int("degree", g)
    levels = _levels(of, lines)
    wide = [(d, of == "state") for d in ds]
    drawn_lines = [
        Line(
            f"d = {d}",
            tuple((float(g), float(rank_of(d, g) * (d + 1 if state else 1))) for g in sorted(degrees)),
            stroke_of(k),
            marker_every=1,
        )
        for k, (d, state) in enumerate(wide)
    ]
    first, last = float(min(degrees)), float(max(degrees))
    drawn_lines += [
        Line(label, ((first, at), (last, at)), BOUNDS[k % len(BOUNDS)], marker_every=0)
        for k, (label, at) in enumerate(levels.items())
    ]
    what = "words of the state, r(d + 1)" if of == "state" else "rank r = C(d + g, g)"
    heading = title or f"How the {'state' if of == 'state' else 'rank'} of low-rank attention grows"
    return _growth(heading, what, drawn_lines, ds, sorted(degrees), of, levels)


def _levels(of: str, lines: Mapping[str, float] | None) -> dict[str, float]:
    levels = dict(lines if lines is not None else MEMORIES if of == "state" else {})
    for label, value in levels.items():
        if not 0 < value < inf:
            raise ValueError(f"lines[{label!r}] is {value}; it must be positive and finite")
    return {label: float(value) for label, value in levels.items()}


def _growth(
    heading: str, what: str, lines: Sequence[Line], ds: Sequence[int], degrees: Sequence[int], of: str,
    levels: Mapping[str, float],
) -> Picture:  # fmt: skip
    room = max(text_width(line.label, NORMAL) for line in lines) + 74
    values = [point[1] for line in lines for point in line.points]
    first, last = float(degrees[0]), float(degrees[-1])
    x = Scale(first, last if last > first else first + 1, 78.0, WIDTH - room)
    frame = Frame(x, scale_over(values, HEIGHT - 58.0, 74.0, 10, 1.5))
    drawn: list[Element] = [Text(18, 28, heading, LARGE, bold=True), *_degree_axis(frame, degrees, what)]
    for line in lines:
        drawn += line_elements(frame, line)
    drawn += end_labels(frame, lines)
    ranks = [["degree", *[f"r, d = {d}" for d in ds]]]
    ranks += [[str(g), *[big(rank_of(d, g)) for d in ds]] for g in degrees]
    over = [_over(label, level, ds, degrees, of) for label, level in levels.items()]
    g, grown = degrees[-1], ", ".join(f"{big(rank_of(d, degrees[-1]))} for d = {d}" for d in ds)
    alt = f"{heading}: {what}, against the degree, on a logarithmic axis. The rank of degree {g} is {grown}."
    width = max(WIDTH, 36 + 1.08 * text_width(heading, LARGE))
    return Picture(
        width, HEIGHT, heading, " ".join([alt, *over]), "\n".join([table(ranks, left=0), *over]), tuple(drawn)
    )


def _degree_axis(frame: Frame, degrees: Sequence[int], what: str) -> list[Element]:
    """The frame, with the whole degrees alone as ticks."""
    drawn: list[Element] = []
    bottom, top = frame.y.start, frame.y.stop
    step = -(-len(degrees) // 12)
    for g in degrees[::step]:
        at = frame.x(float(g))
        drawn.append(Poly(((at, bottom), (at, top)), "#D9D9D9", 1))
        drawn.append(Text(at, bottom + 18, str(g), SMALL, "middle", QUIET))
    for tick in frame.y.ticks():
        at = frame.y(tick)
        drawn.append(Poly(((frame.x.start, at), (frame.x.stop, at)), "#D9D9D9", 1))
        drawn.append(Text(frame.x.start - 7, at + 0.36 * SMALL, tick_label(tick, 10), SMALL, "end", QUIET))
    left, right = frame.x.start, frame.x.stop
    drawn.append(Poly(((left, top), (left, bottom), (right, bottom))))
    drawn.append(Text((left + right) / 2, bottom + 40, "degree g", anchor="middle"))
    drawn.append(Text(left - 7, top - 12, what))
    return drawn


def _over(label: str, level: float, ds: Sequence[int], degrees: Sequence[int], of: str) -> str:
    """Which degree of each d is the last below a line."""
    parts = []
    for d in ds:
        below = [g for g in degrees if rank_of(d, g) * (d + 1 if of == "state" else 1) <= level]
        parts.append(f"{max(below)} at d = {d}" if below else f"none at d = {d}")
    return f"{label} ({words(level)}): the last degree within is {', '.join(parts)}."
