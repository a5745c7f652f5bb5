"""Animated figure of words moving between two memories: naive attention and FlashAttention side by side.

Both runs are real ones (`models.memory_states`). They move words at the same rate, so time is proportional to
traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from ....console import table
from ....costs import ceil_div
from ....machine import positive_int
from ..draw.palette import INK, QUIET, fill_of
from ..draw.picture import (
    LARGE,
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Raster,
    Rect,
    Text,
    centred,
    example,
    figure,
    text_width,
    titled,
)
from ..models.memory_states import MovedWord, MoveSequence, sample_run

N, D, M = 32, 4, 192  # small enough that each word is visible
NAIVE, FLASH = "naive", "flash2"
FILM = "two_memories.png"  # made by `tools.film`
ARRAYS = ("Q", "K", "V", "S", "P", "O")  # from left to right
STEP = 32  # words that start to move per step
FLIGHT = 96  # words that move at the same time

WIDTH, HEIGHT = 872.0, 462.0
PANEL, GAP, EDGE = 408.0, 20.0, 18.0
CELL, FINE = 4, 2  # pixels per word; raster pixels per pixel
FAST_COLUMNS, FAST_TOP, SLOW_TOP, BOTTOM = 24, 88, 206, 346
FAST_LEFT = (int(PANEL) - FAST_COLUMNS * CELL) // 2
EMPTY = "#EBEBEB"  # an empty cell of fast memory
SPACE = 12  # between arrays, and at both ends
BAR_TOP, BAR_LEFT, BAR_RIGHT = 398.0, 92.0, 742.0


class Side(NamedTuple):
    """One half of the figure: a run, its name, and a remark on S and P shown at the end."""

    run: MoveSequence
    called: str
    lesson: str

    @property
    def words(self) -> int:
        """Total words moved."""
        return len(self.run.words)


@cache
def sides() -> tuple[Side, Side]:
    """Return the two runs of the figure."""
    naive, flash = sample_run(NAIVE, N, D, M), sample_run(FLASH, N, D, M)
    carried = naive.moved(len(naive.words))
    both = carried["S"] + carried["P"]
    return (
        Side(naive, "Naive attention", f"done: {both:,} of these words are S and P"),
        Side(flash, "FlashAttention", "done: no word of S or P ever left fast memory"),
    )


def steps_of(side: Side) -> int:
    """Return the step at which the last word of a run has arrived."""
    return ceil_div(side.words + FLIGHT, STEP)


def last_step() -> int:
    """Return the step at which both runs are finished."""
    return max(steps_of(side) for side in sides())


@example(5)
@example(0)
@example()
@figure
def two_memories_picture(step: int | None = None) -> Picture:
    """Naive attention and FlashAttention after `step` times 32 words; None: the end of both runs.

    N = 32, d = 4, M = 192 words; each run uses its best tiles.

    Raises:
        ValueError, TypeError: `step` is not an integer from 0 to `last_step()`.
    """
    last = last_step()
    step = last if step is None else positive_int("step", step) if step else 0
    if step > last:
        raise ValueError(f"step must be from 0 to {last}, got {step}")
    drawn: list[Element] = []
    for at, side in enumerate(sides()):
        drawn += _half(side, step, EDGE + at * (PANEL + GAP))
    naive, flash = (side.words for side in sides())
    title = f"The same attention, the same result: {naive:,} words moved, or {flash:,}"
    return titled(title, (WIDTH, HEIGHT), *_in_words(step), [*drawn, *_ledgers(step)])


def arrived(side: Side, step: int) -> int:
    """Return the number of words of a run that have arrived at a step."""
    return min(max(step * STEP - FLIGHT, 0), side.words)


# ---------------------------------------------------------------------- two memories
def _half(side: Side, step: int, x: float) -> Iterator[Element]:
    words = arrived(side, step)
    fast_height = ceil_div(M, FAST_COLUMNS) * CELL
    yield Text(x, 58, side.called, NORMAL, bold=True)
    yield Text(x + 1.25 * text_width(side.called, NORMAL), 58, side.run.schedule.title, SMALL, colour=QUIET)
    yield Text(x + PANEL, 60, f"{words:,} words", LARGE, "end", bold=True)
    yield _cells(side, step, x)
    yield Rect(x + FAST_LEFT - 4, FAST_TOP - 4, FAST_COLUMNS * CELL + 8, fast_height + 8, "", "", INK, 1.6)
    yield Text(x + FAST_LEFT - 12, FAST_TOP + 14, "fast memory", SMALL, "end")
    yield Text(x + FAST_LEFT - 12, FAST_TOP + 30, f"{M} words", SMALL, "end", QUIET)
    yield Rect(x, SLOW_TOP - 34, PANEL, BOTTOM - SLOW_TOP + 34, "", "", INK, 1.6)
    yield Text(x + 4, SLOW_TOP - 40, "slow memory", SMALL)
    for name, left in _array_corners().items():
        yield from _array_frame(side, name, x + left)
    if words == side.words:
        yield Text(x + PANEL / 2, FAST_TOP + fast_height + 26, side.lesson, SMALL, "middle", bold=True)


def _array_frame(side: Side, name: str, x: float) -> Iterator[Element]:
    """Yield the outline of an array and its name; dashed if the run does not store it in slow memory."""
    width, height = _columns(name) * CELL, N * CELL
    yield Text(x + width / 2, SLOW_TOP - 12, name, NORMAL, "middle", bold=True)
    if name in side.run.ledger.sizes:
        yield Rect(x - 1, SLOW_TOP - 1, width + 2, height + 2, "", "", QUIET, 0.8)
    else:
        right, bottom = x + width, float(SLOW_TOP + height)
        around = ((x, float(SLOW_TOP)), (right, float(SLOW_TOP)), (right, bottom), (x, bottom))
        yield Poly((*around, around[0]), QUIET, 1, (4, 4))
        middle = SLOW_TOP + height / 2
        yield Text(x + width / 2, centred(middle, SMALL), "never here", SMALL, "middle", QUIET)


def _columns(name: str) -> int:
    return N if name in "SP" else D


@cache
def _array_corners() -> dict[str, int]:
    """Return the left edge of each array, relative to its half."""
    taken = sum(_columns(name) for name in ARRAYS) * CELL + SPACE * (len(ARRAYS) - 1)
    x, found = (int(PANEL) - taken) // 2, dict[str, int]()
    for name in ARRAYS:
        found[name] = x
        x += _columns(name) * CELL + SPACE
    return found


# ---------------------------------------------------------------------- words as cells
Place = tuple[float, float]


def _cells(side: Side, step: int, x: float) -> Raster:
    """Return both memories and the moving words as pixels, one small square per word."""
    width, height = int(PANEL) * FINE, (BOTTOM - FAST_TOP) * FINE
    pixels = np.full((height, width, 3), 255, np.uint8)
    here = arrived(side, step)
    _stamp(pixels, [*_resting(side, here), *_flying(side.run.words[here : step * STEP], here, step)])
    return Raster(x, FAST_TOP, PANEL, BOTTOM - FAST_TOP, width, height, pixels.tobytes())


def _resting(side: Side, words: int) -> Iterator[tuple[Place, str]]:
    """Yield the words in slow memory, inputs first, and all cells of fast memory, empty ones pale."""
    written, held = side.run.stored(words), side.run.held(words)
    for name in "QKV":
        yield from (_slow(name, row, column) for row in range(N) for column in range(D))
    yield from (_slow(*place) for place in sorted(written))
    for cell in range(M):
        yield _fast(cell), fill_of(held[cell], 0).colour if cell in held else EMPTY


def _flying(words: Iterable[MovedWord], first: int, step: int) -> Iterator[tuple[Place, str]]:
    """Yield the moving words, the first nearest to its destination, and black marks at their origins."""
    for number, word in enumerate(words, first):
        slow, colour = _slow(word.array, word.row, word.column)
        ends = (slow, _fast(word.cell)) if word.loaded else (_fast(word.cell), slow)
        if word.loaded:
            yield slow, INK
        share = (step * STEP - number) / FLIGHT
        (x0, y0), (x1, y1) = ends
        yield (x0 + (x1 - x0) * share, y0 + (y1 - y0) * share), colour


def _slow(name: str, row: int, column: int) -> tuple[Place, str]:
    """Return the position (in the half, from the top of fast memory) and colour of a word in slow memory."""
    x = _array_corners()[name] + column * CELL
    return (x, SLOW_TOP - FAST_TOP + row * CELL), fill_of(name, 0).colour


def _fast(cell: int) -> Place:
    row, column = divmod(cell, FAST_COLUMNS)
    return FAST_LEFT + column * CELL, row * CELL


def _stamp(pixels: np.ndarray, squares: Iterable[tuple[Place, str]]) -> None:
    """Paint a square for each word, with a thin gap between them."""
    side = np.arange(CELL * FINE - FINE)
    places, colours = zip(*squares, strict=True)
    corners = np.rint(np.array(places) * FINE).astype(int)  # (words, 2)
    xs = corners[:, 0, None, None] + side[None, None, :]
    ys = corners[:, 1, None, None] + side[None, :, None]
    pixels[ys, xs] = np.array([list(bytes.fromhex(one[1:])) for one in colours], np.uint8)[:, None, None]


# ---------------------------------------------------------------------- the ledgers
def _ledgers(step: int) -> Iterator[Element]:
    """Yield the bars of traffic so far by array, in one scale for both runs."""
    scale = (BAR_RIGHT - BAR_LEFT) / max(side.words for side in sides())
    yield Text(EDGE, BAR_TOP - 16, "Words moved, read and written", NORMAL, bold=True)
    scaled = f"each square is a word: N = {N} rows, d = {D} columns"
    yield Text(WIDTH - EDGE, BAR_TOP - 16, scaled, SMALL, "end", QUIET)
    for at, side in enumerate(sides()):
        y, x, words = BAR_TOP + 30 * at, BAR_LEFT, arrived(side, step)
        yield Text(x - 8, centred(y + 11, SMALL), side.run.schedule.title, SMALL, "end")
        moved, done = side.run.moved(words), words == side.words
        for name in (name for name in ARRAYS if name in moved):
            width = moved[name] * scale
            yield Rect(x, y, width, 22, fill_of(name, 0).colour, "", INK, 0.6)
            for label in [f"{name} {moved[name]:,}"] * done + [name]:
                if 1.15 * text_width(label, SMALL) < width - 4:  # the first label that fits
                    yield Text(x + 5, centred(y + 11, SMALL), label, SMALL)
                    break
            x += width
        if done:  # before that, the total is at the top
            yield Text(x + 8, centred(y + 11, NORMAL), f"{words:,}", NORMAL, bold=True)


# ---------------------------------------------------------------------- in words
def _in_words(step: int) -> tuple[str, str]:
    counts = [side.run.moved(arrived(side, step)) for side in sides()]
    names = [side.run.schedule.title for side in sides()]
    totals = [sum(count.values()) for count in counts]
    alt = (
        f"Two runs of the same attention side by side, N = {N}, d = {D}, each with {M} words of fast memory "
    )
    alt += "above a slow one."
    for side, name, count, total in zip(sides(), names, counts, totals, strict=True):
        parts = ", ".join(f"{array} {count[array]:,}" for array in ARRAYS if array in count)
        split = f"{total:,} words ({parts})" if parts else "no words yet"
        alt += (
            f" {side.called} ({name}) has moved {split}{', and is finished' if total == side.words else ''}."
        )
    rows = [["words moved", *names]]
    rows += [[name, *(f"{count.get(name, 0):,}" for count in counts)] for name in ARRAYS]
    return alt, table([*rows, ["total", *(f"{total:,}" for total in totals)]], left=0)


def two_memories_words(step: int) -> list[str]:
    """Return the text next to the figure at a step, as lines."""
    naive, flash = sides()
    here = [arrived(side, step) for side in (naive, flash)]
    first = f"{naive.called} {here[0]:,} words, {flash.called} {here[1]:,}"
    if not step:
        return [f"{first}.", "Q, K and V are in slow memory; no word has moved yet. Press play."]
    if here[1] < flash.words:
        return [f"{first}.", "Words move at the same rate on both sides; black marks their origins."]
    if here[0] < naive.words:
        return [f"{first}.", f"{flash.called} is finished; the other run continues at the same rate."]
    return [f"{first}; the ratio is {here[0] / here[1]:.1f}.", "Both are finished, with the same O."]
