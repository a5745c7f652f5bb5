"""Figure of the low-rank explorer: error of a polynomial over the logits, and histogram of the logits."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np

from ....console import table
from ....lowrank.polynomials import LARGEST_RADIUS, relative_error_at
from ....monomials import Array
from ..draw.line_chart import Frame, Scale
from ..draw.palette import BLACK, BLUE, INK, MAROON, PAPER, QUIET, SKY, SUM, VERMILION, Fill
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    centred,
    figure,
    text_width,
    titled,
)
from ..draw.shapes import swatch
from ..draw.text import big, figures
from ..models.lowrank_explorer import (
    Facts,
    Logits,
    LowRankState,
    gaussian_logits,
    head_logits,
    logits_of,
    lowrank_title,
    number_rows,
    smallest_covering_B,
)

WIDTH, HEIGHT = 980.0, 552.0
LEFT, STOP = 84.0, 556.0  # of both charts
ERRORS = (128.0, 300.0)  # top and bottom of the error chart
SHARES = (358.0, 470.0)  # of the histogram
RIGHT, RIGHT_WIDTH = 600.0, 356.0  # the column of numbers
NAMES, BAR = 64.0, 130.0  # widths of the bar labels and of the longest bar
ERROR_RANGE = (1e-8, 10.0)
REACH = 12.0  # pixels on each side of the line at R
POINTS, BINS = 481, 48
WIDEST = 2.5  # limit of the axis as a multiple of the largest logit
NEGATIVE = Fill(PAPER, "x")
QUANTILES = (0.01, 0.5, 0.99)


@figure
def low_rank_explorer_picture(
    degree: int = 3,
    n: int | None = None,
    M: int = 16_384,
    *,
    d: int | None = None,
    polynomial: str = "hermite",
    B: float | None = None,
    error: float = 0.01,
    sigma: float = 0.3,
    head: tuple[int, int] | None = None,
    Q: Any = None,
    K: Any = None,
) -> Picture:
    """Traffic and error of low-rank attention of one degree, above a histogram of the logits.

    Logits are q·(k - mean of the keys)/√d, without a mask. Upper chart: |p(s)e⁻ˢ - 1| of the polynomial; a
    per-row polynomial is drawn for a row with standard deviation σ. Lower chart: the share of the logits, and
    of the attention weight, in each of 48 bins. Traffic is that of `schedules.low_rank` and
    `schedules.flash_optimal`.

    Args:
        degree: g, 1 to 12.
        n: queries and keys for the traffic; None means all keys of the data, or 40,960 for Gaussian logits.
        M: words of fast memory.
        d: head dimension; None means that of the data, or 12 for Gaussian logits.
        polynomial: "hermite", "taylor", or for the interval [-R, R] "chebyshev" or "minimax".
        B: bound on the entries of Q and of K minus its mean, so that |s| ≤ R = B²√d. None: the smallest value
            with three significant digits whose R covers the sampled logits.
        error: allowed relative error of the softmax weights.
        sigma: standard deviation of Gaussian logits, used if neither head nor Q and K are given.
        head: (layer, head) of a shipped head.
        Q: queries (n_q, d), given together with K.
        K: keys (n_k, d); up to 32,768 logits are sampled.

    Raises:
        ValueError, TypeError: an argument is not as described, or no tile fits in M; the message names it.
    """
    return draw_lowrank_explorer(facts_of(degree, n, M, d, polynomial, B, error, sigma, head, Q, K))


def facts_of(
    degree: int, n: int | None, M: int, d: int | None, polynomial: str, B: float | None, error: float,
    sigma: float, head: tuple[int, int] | None, Q: Any, K: Any,
) -> Facts:  # fmt: skip
    """Return the results for the checked arguments of `low_rank_explorer_picture`."""
    data = _data(d, sigma, head, Q, K)
    keys = n if n is not None else 40_960 if data.drawn else data.n
    s = LowRankState(
        degree, keys, M, polynomial, smallest_covering_B(data) if B is None else B, error
    ).checked()
    facts = Facts(s, data)
    _ = facts.break_even  # raises if no tile fits in M
    return facts


def _data(d: int | None, sigma: float, head: tuple[int, int] | None, Q: Any, K: Any) -> Logits:
    if (Q is None) != (K is None):
        raise ValueError(f"Q and K must be given together, got {'Q' if Q is None else 'K'} = None")
    if head is not None and Q is not None:
        raise ValueError(f"head must be None if Q and K are given, got {head}")
    if head is None and Q is None:
        return gaussian_logits(12 if d is None else d, sigma)
    found = head_logits(*head) if head is not None else logits_of(Q, K)
    if d not in (None, found.d):
        raise ValueError(f"d must be {found.d}, the number of columns of the data, got {d}")
    return found


def draw_lowrank_explorer(f: Facts) -> Picture:
    """Return the figure of a state."""
    x, whose = _axis(f), ", for a row with this σ" if f.p is not None and f.p.per_row else ""
    s = np.linspace(x.low, x.high, POINTS)
    errors = Frame(x, Scale(*ERROR_RANGE, ERRORS[1], ERRORS[0], 10))
    counts, weights = _shares(f, x)
    shares = Frame(x, Scale(0.0, 1.05 * max(counts.max(), weights.max()), SHARES[1], SHARES[0]))
    drawn = [
        *_lines(f.verdict[0]),
        Text(18, ERRORS[0] - 28, f"Relative error of p: |p(s)e⁻ˢ - 1|{whose}", NORMAL, bold=True),
        *_negative(f, errors, s),
        *errors.elements("", ""),
        *_interval(f, errors, shares),
        *_curve(f, errors, s),
        Text(18, SHARES[0] - 16, f"Sampled logits: {f.data.name}", NORMAL, bold=True),
        *shares.elements("logit s = q·(k - mean)/√d", ""),
        *_histogram(shares, counts, weights),
        *swatch(LEFT, 528, Fill(SKY, ""), "share of the logits"),
        Poly(((LEFT + 166, 535), (LEFT + 190, 535)), MAROON, 1.8),
        Text(LEFT + 198, 540, "of attention weight", NORMAL),
        *swatch(LEFT + 350, 528, NEGATIVE, "p is not positive"),
    ]
    for k, (name, value) in enumerate(number_rows(f)):
        drawn.append(Text(RIGHT, 104 + 22.0 * k, name, SMALL))
        drawn.append(Text(RIGHT + RIGHT_WIDTH, 104 + 22.0 * k, value, SMALL, "end", bold=True))
    drawn += _words_moved(f)
    return titled(lowrank_title(f), (WIDTH, HEIGHT), _alt(f), _numbers(f), drawn)


def _axis(f: Facts) -> Scale:
    """Return the common axis of both charts: all sampled logits, and R if it is not far outside."""
    most = max(f.data.largest, 1e-3)
    reach = 1.04 * max(most, min(f.R, WIDEST * most))
    return Scale(-reach, reach, LEFT, STOP)


def bound_line(f: Facts) -> tuple[float, float, float, float]:
    """Return the draggable region of the line at R: x, y, width and height in pixels."""
    x = min(_axis(f)(f.R), STOP)
    return x - REACH, ERRORS[0] - 20, 2 * REACH, SHARES[1] - ERRORS[0] + 20


def B_at(f: Facts, x: float) -> float:
    """Return the B whose line at R = B²√d is at pixel x, with three significant digits."""
    axis = _axis(f)
    R = max(axis.high * (x - (LEFT + STOP) / 2) / (STOP - (LEFT + STOP) / 2), 1e-6)
    return float(f"{(R / f.data.d**0.5) ** 0.5:.3g}")


def _lines(text: str) -> Iterator[Element]:
    """Yield a sentence, wrapped to the width of the figure."""
    line, y = "", 52.0
    for word in text.split():
        longer = f"{line} {word}".strip()
        if text_width(longer, NORMAL) > WIDTH - 36:
            yield Text(18, y, line, NORMAL)
            longer, y = word, y + 18
        line = longer
    yield Text(18, y, line, NORMAL)


# ---------------------------------------------------------------------- the error
def _curve(f: Facts, frame: Frame, s: Array) -> Iterator[Element]:
    if f.curve is None:
        middle = (frame.y.start + frame.y.stop) / 2
        said = f"{f.s.polynomial} needs R of at most {LARGEST_RADIUS[f.s.polynomial]:g}"
        yield Text((LEFT + STOP) / 2, middle, said, NORMAL, "middle")
        return
    values = np.clip(abs(_errors(f.curve, s)), *ERROR_RANGE)
    yield Poly(tuple(frame.at((float(a), float(b))) for a, b in zip(s, values, strict=True)), VERMILION, 2.2)


def _errors(p: Array, s: Array) -> Array:
    """Return p(s)e⁻ˢ - 1, which may be infinite for large |s|."""
    with np.errstate(over="ignore"):
        return relative_error_at(p, s)


def _negative(f: Facts, frame: Frame, s: Array) -> Iterator[Element]:
    """Yield hatched areas where p is not positive, so weights would have the wrong sign."""
    if f.curve is None:
        return
    wrong = _errors(f.curve, s) <= -1
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wrong, [False]]).astype(int)))
    top, bottom = frame.y.stop, frame.y.start
    for first, last in edges.reshape(-1, 2):
        left, right = frame.x(float(s[first])), frame.x(float(s[last - 1]))
        yield Rect(left, top, right - left, bottom - top, PAPER, NEGATIVE.hatch, "", ink=QUIET)


def _interval(f: Facts, errors: Frame, shares: Frame) -> Iterator[Element]:
    """Yield lines at ±R through both charts, and the largest error between them."""
    x = errors.x
    yield Poly(((LEFT, errors.y(1.0)), (STOP, errors.y(1.0))), QUIET, 1.2, (2, 3))
    if x.high < f.R:
        yield Text(STOP, ERRORS[0] - 8, f"R = {f.R:.3g} is beyond the axis", SMALL, "end")
        return
    left, right = x(-f.R), x(f.R)
    for at in (left, right):
        yield Poly(((at, ERRORS[0]), (at, ERRORS[1])), BLACK, 1.4, (7, 3))
        yield Poly(((at, SHARES[0]), (at, SHARES[1])), BLACK, 1.4, (7, 3))
    if right - left > 90:
        yield Text(left, ERRORS[0] - 8, "-R", SMALL, "middle")
        yield Text(right, ERRORS[0] - 8, f"R = {f.R:.3g}", SMALL, "middle")
    else:
        yield Text((left + right) / 2, ERRORS[0] - 8, f"±R = ±{f.R:.3g}", SMALL, "middle")
    if ERROR_RANGE[0] < f.off < ERROR_RANGE[1]:
        yield Poly(((left, errors.y(f.off)), (right, errors.y(f.off))), BLACK, 1.6)


# ---------------------------------------------------------------------- the logits
def _shares(f: Facts, x: Scale) -> tuple[Array, Array]:
    """Return the shares of the logits and of the attention weight in each bin."""
    place = ((f.data.S.ravel() - x.low) * (BINS / (x.high - x.low))).astype(np.intp)
    counts = np.bincount(place, minlength=BINS) / f.data.S.size
    weights = np.bincount(place, f.data.weights.ravel(), minlength=BINS) / len(f.data.S)
    return counts, weights


def _histogram(frame: Frame, counts: Array, weights: Array) -> Iterator[Element]:
    """Yield a bar per bin for the logits, and a step line for the attention weight."""
    width, floor = (STOP - LEFT) / BINS, SHARES[1]
    corners = [(LEFT, floor)]
    for k, (share, weight) in enumerate(zip(counts.tolist(), weights.tolist(), strict=True)):
        left, y = LEFT + k * width, frame.y(weight)
        if share:
            yield Rect(left, frame.y(share), width, floor - frame.y(share), SKY, "", BLUE, 0.5)
        corners += [(left, y), (LEFT + (k + 1) * width, y)]
    yield Poly((*corners, (STOP, floor)), MAROON, 1.8)


# ---------------------------------------------------------------------- numbers and words
def _words_moved(f: Facts) -> Iterator[Element]:
    low, exact = f.low_rank.total, f.exact.total
    yield Text(RIGHT, 402, f"Traffic (words) at n = {f.s.n:,}", NORMAL, bold=True)
    for k, (name, total, fill) in enumerate((("exact", exact, SUM), ("low rank", low, SKY))):
        y, length = 416 + 30.0 * k, BAR * total / max(low, exact)
        yield Text(RIGHT + NAMES - 8, centred(y + 10, SMALL), name, SMALL, "end")
        yield Rect(RIGHT + NAMES, y, max(length, 1.0), 20, fill, "", INK, 0.6)
        yield Text(RIGHT + NAMES + length + 8, centred(y + 10, SMALL), big(total), SMALL)


def _alt(f: Facts) -> str:
    told = [f"{lowrank_title(f)}. {' '.join(f.verdict)}"]
    told.append(
        "The relative error of the polynomial is drawn above a histogram of "
        f"{f.data.S.size:,} logits with standard deviation {f.data.std:.3g} and largest magnitude "
        f"{f.data.largest:.3g}, on one axis."
    )
    if f.p is not None and f.p.positive_to < inf:
        told.append(f"The polynomial is positive only for |s| < {f.p.positive_to:.3g}.")
    low, exact = f.low_rank.total, f.exact.total
    told.append(f"Traffic: exact attention {big(exact)} words, low rank {big(low)} words.")
    return " ".join(told)


def _numbers(f: Facts) -> str:
    rows = [[name, value] for name, value in number_rows(f)]
    rows += [["words, flash_optimal", big(f.exact.total)], ["words, low_rank", big(f.low_rank.total)]]
    of_logits, of_weight = f.data.quantiles(QUANTILES)
    lies = [["quantiles of the logits", *[f"{share:.0%}" for share in QUANTILES]]]
    lies.append(["unweighted, all logits", *[figures(float(one)) for one in of_logits]])
    lies.append(["weighted by attention weight", *[figures(float(one)) for one in of_weight]])
    return "\n".join([f.verdict[0], table(rows, left=0), table(lies, left=0)])
