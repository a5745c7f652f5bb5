"""Figures of fast memory: words in use after each move, and a footprint against M."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ....console import table, with_unit
from ....ledger import Ledger
from ....machine import positive_int
from ..draw.line_chart import Frame, Scale, spread
from ..draw.palette import INK, PAPER, QUIET, TOO_MUCH, VERMILION, WRONG, fill_of
from ..draw.picture import NORMAL, Element, Picture, Poly, Rect, Text, centred, figure, text_width, titled
from ..draw.shapes import swatch
from ..models.memory_states import memory_states, totals

WIDTH, HEIGHT = 860.0, 430.0
COLUMNS = 240  # for more moves, each column shows the maximum over several moves

Amounts = dict[str, int]


# ---------------------------------------------------------------------- timeline
@figure
def memory_timeline(ledger: Ledger, M: int, *, title: str = "Fast memory, move by move") -> Picture:
    """Words in fast memory after each move of a ledger, stacked by array, with M and the peak.

    Raises:
        ValueError: M is below 1, or the ledger has no moves (a dry run records none unless unrolled).
    """
    M = positive_int("M", M)
    if not ledger.moves:
        raise ValueError("ledger has no moves: run the schedule with trace=True and dry=False")
    amounts = [totals(state) for state in memory_states(ledger.moves)]
    columns, per_column = condensed(amounts)
    peak_at = max(range(len(amounts)), key=lambda k: sum(amounts[k].values()))
    peak = sum(amounts[peak_at].values())
    kinds = by_presence(columns)
    room = 40 + max(text_width(kind, NORMAL) for kind in kinds)
    frame = Frame(
        Scale(0, len(columns) * per_column, 78, WIDTH - room), Scale(0, 1.15 * max(M, peak), HEIGHT - 58, 74)
    )
    drawn = [
        *frame.elements("moves", "words in fast memory"),
        *stacked(frame, columns, kinds, per_column),
        *limit_line(frame, M),
        *_peak(frame, peak_at, peak, len(amounts)),
        *_kind_labels(frame, kinds, M),
    ]
    alt, numbers = _timeline_words(ledger, M, amounts, kinds, peak_at, per_column)
    return titled(title, (WIDTH, HEIGHT), alt, numbers, drawn)


def condensed(amounts: Sequence[Amounts]) -> tuple[list[Amounts], int]:
    """Return at most COLUMNS columns, each the maximum over its moves, and the number of moves per column."""
    share = -(-len(amounts) // COLUMNS)
    groups = [amounts[k : k + share] for k in range(0, len(amounts), share)]
    return [max(group, key=lambda one: sum(one.values())) for group in groups], share


def by_presence(columns: Iterable[Amounts]) -> list[str]:
    """Return the kinds of tile, the most persistent first, as a stable base of the stack."""
    return [kind for kind, _ in Counter(kind for amounts in columns for kind in amounts).most_common()]


def stacked(
    frame: Frame, columns: Sequence[Amounts], kinds: Sequence[str], width: int = 1
) -> Iterator[Element]:
    """Yield stacked step areas; equal adjacent steps are drawn as one rectangle."""
    for position, kind in enumerate(kinds):
        below = [sum(one.get(k, 0) for k in kinds[:position]) for one in columns]
        spans = [(low, low + one.get(kind, 0)) for low, one in zip(below, columns, strict=True)]
        last = 0
        for (low, high), run in groupby(spans):
            first, last = last, last + len(list(run))
            if low == high:
                continue
            x, y = frame.at((first * width, high))
            right, bottom = frame.at((last * width, low))
            edge = INK if bottom - y >= 2 and right - x >= 2 else ""
            yield Rect(x, y, right - x, bottom - y, *fill_of(kind, position), edge, 0.5)


def limit_line(frame: Frame, M: int) -> list[Element]:
    """Return the line at M words with its label."""
    across = ((frame.x.start, frame.y(M)), (frame.x.stop, frame.y(M)))
    return [
        Poly(across, PAPER, 4.5),  # makes the line visible on every colour
        Poly(across, INK, 2.2, (9, 4)),
        Text(frame.x.stop + 6, centred(frame.y(M), NORMAL), f"M = {M:,}", NORMAL, bold=True),
    ]


def _peak(frame: Frame, move: int, peak: int, moves: int) -> list[Element]:
    x, y = frame.at((move + 0.5, peak))
    label = f"peak {peak:,}"
    half = text_width(label, NORMAL) / 2
    at = min(max(x, frame.x.start + half + 4), frame.x.stop - half - 4)
    top = frame.y.stop + 12  # the scale has space above M and the peak
    return [Poly(((x, y), (x, top + 5)), INK, 1), Text(at, top, label, NORMAL, "middle", bold=True)]


def _kind_labels(frame: Frame, kinds: Sequence[str], M: int) -> Iterator[Element]:
    """Yield a swatch and a name for each kind, in the order of the stack, avoiding the label of M."""
    places = (frame.y.start - 12 - 24 * k for k in range(len(kinds) + 2))
    wanted = [y for y in places if abs(y - frame.y(M)) >= 20][: len(kinds)]
    heights = spread(wanted, 24, frame.y.stop + 30, frame.y.start - 10)
    x = frame.x.stop + 8
    for position, (kind, y) in enumerate(zip(kinds, heights, strict=True)):
        yield from swatch(x, y - 8, fill_of(kind, position), kind)


def _timeline_words(
    ledger: Ledger, M: int, amounts: Sequence[Amounts], kinds: Sequence[str], peak_at: int, per_column: int
) -> tuple[str, str]:
    peak = sum(amounts[peak_at].values())
    held = ", ".join(f"{kind} {words:,}" for kind, words in amounts[peak_at].items())
    against = f"below M = {M:,}" if peak < M else f"exactly M = {M:,}" if peak == M else f"above M = {M:,}"
    alt = f"Words in fast memory over {len(amounts):,} moves, stacked by array ({', '.join(kinds)}). "
    alt += f"The peak, {peak:,} words after move {peak_at + 1:,}, is {against}; it holds {held}."
    if per_column > 1:
        alt += f" Each column shows the fullest of {per_column:,} moves."
    rows = [["at the peak", "words"], *[[k, f"{w:,}"] for k, w in amounts[peak_at].items()]]
    rows += [["together", f"{peak:,}"], ["M", f"{M:,}"]]
    return alt, table(rows, left=0)


# ---------------------------------------------------------------------- footprint
@figure
def footprint_bar(
    parts: Mapping[str, int], M: int, *, title: str = "Footprint against fast memory"
) -> Picture:
    """Bar of a memory footprint by parts against M words; the excess over M is marked.

    Args:
        parts: name → words, such as `{"Q": 4096, "scores": 2048}`.
        M: words of fast memory.
        title: of the figure.

    Raises:
        ValueError: no parts, a negative part, or M below 1.
    """
    M = positive_int("M", M)
    if not parts or any(words < 0 for words in parts.values()):
        raise ValueError(f"parts must contain at least one part, none below 0 words, got {dict(parts)}")
    drawn = list(footprint(parts, M, 24, 66, WIDTH - 48))
    for k, (name, words) in enumerate(parts.items()):
        drawn += swatch(24 + 275 * (k % 3), 152 + 26 * (k // 3), fill_of(name, k), f"{name}: {words:,}")
    total = sum(parts.values())
    listed = ", ".join(f"{name} {words:,}" for name, words in parts.items())
    alt = f"A bar of {total:,} words ({listed}) against M = {M:,} words: {fit_remark(total, M)}."
    rows = [[name, f"{words:,}"] for name, words in [*parts.items(), ("together", total), ("M", M)]]
    height = 172 + 26.0 * -(-len(parts) // 3)
    numbers = f"{table(rows, left=0)}\n{fit_remark(total, M)}"
    return titled(title, (WIDTH, height), alt, numbers, drawn)


def fit_remark(total: int, M: int) -> str:
    """Return "fits, … free" or "does not fit, … over M" for a footprint of `total` words."""
    if total > M:
        return f"does not fit, {with_unit(total - M, 'word')} over M"
    return f"fits, {with_unit(M - total, 'word')} free"


def footprint(parts: Mapping[str, int], M: int, x: float, y: float, width: float) -> Iterator[Element]:
    """Yield the bar: parts side by side, the excess over M hatched, and a labelled tick at M."""
    total = sum(parts.values())
    scale = width / (1.02 * max(total, M))
    yield Rect(x, y, M * scale, 34, "#FFFFFF", "", QUIET)
    left = x
    for position, (name, words) in enumerate(parts.items()):
        yield Rect(left, y, words * scale, 34, *fill_of(name, position), INK, 0.6)
        left += words * scale
    limit = x + M * scale
    if total > M:
        yield Rect(limit, y, left - limit, 34, "#FFFFFF", TOO_MUCH.hatch, VERMILION, 2.5, VERMILION)
    yield Poly(((limit, y - 10), (limit, y + 44)), INK, 3)
    label, half = f"M = {M:,}", text_width(f"M = {M:,}", NORMAL) / 2
    at = min(max(limit, x + half), x + width - half)
    yield Text(at, y - 15, label, NORMAL, "middle", bold=True)
    said = f"{total:,} words: {fit_remark(total, M)}"
    yield Text(x, y + 58, said, NORMAL, bold=total > M, colour=WRONG if total > M else INK)
