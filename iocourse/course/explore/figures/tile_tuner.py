"""Figure of the tile tuner: scores, traffic, footprint and fast memory of one tile size at one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from .... import schedules
from ....console import table, with_unit
from ....costs import ceil_div
from ....ledger import Ledger
from ..draw.line_chart import Frame, Scale
from ..draw.palette import BLACK, GRID, INDIGO, INK, PAPER, QUIET, SUM, TOO_MUCH, VERMILION, fill_of, ramp
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Point,
    Poly,
    Rect,
    Text,
    centred,
    figure,
    text_width,
    titled,
)
from ..draw.shapes import (
    Moved,
    Square,
    circle,
    framed,
    outline,
    place,
    read_and_written,
    read_written_legend,
    span,
    swatch,
)
from ..draw.text import bold, paragraph
from ..models.memory_states import move_sentence, moved_rows, totals
from ..models.tile_tuner import (
    Frontier,
    Playback,
    TileTunerState,
    best_tile_words,
    bound_of,
    frontier,
    parts_of,
    play,
    ratio_to_bound,
    tile_ledger,
    tile_sizes,
)
from .fast_memory import by_presence, fit_remark, footprint, limit_line, stacked

WIDTH, HEIGHT = 940.0, 640.0
GRID_X, GRID_Y, SIDE = 62.0, 110.0, 268.0
LENS, TINY = 156.0, 10.5  # side of the detail view over the scores, and its text size
STRIPS = (
    ("Q", GRID_X - 18, GRID_Y, 12.0, SIDE),
    ("K", GRID_X, GRID_Y - 34, SIDE, 12.0),
    ("V", GRID_X, GRID_Y - 18, SIDE, 12.0),
)
RIGHT, RIGHT_WIDTH = 392.0, 530.0
SHOWN = 48  # moves shown in the timeline
FULL = 4  # the longest bar of traffic, as a multiple of the traffic with the best tile


@figure
def tile_tuner_picture(N: int, d: int, M: int, Br: int, Bc: int, schedule: str, step: int = 0) -> Picture:
    """Traffic per array, footprint against M, and fast memory after a move, for one tile size.

    Args:
        N: sequence length.
        d: head dimension.
        M: words of fast memory.
        Br: rows per query block.
        Bc: rows per key block.
        schedule: one of the schedules in `ROW_TILED`.
        step: index of the move that is shown.

    Raises:
        ValueError, TypeError: a size below 1, an unknown schedule, or a step beyond the moves of the player.
    """
    setting = TileTunerState(N, d, M, Br, Bc, schedule, step).checked()
    played = play(setting)
    if not 0 <= step < len(played.moves):
        raise ValueError(f"step must be from 0 to {len(played.moves) - 1} for these sizes, got {step}")
    ledger, parts = tile_ledger(setting), parts_of(setting)
    drawn = [
        *_scores(setting, played),
        *_words(setting, ledger),
        Text(RIGHT, 304, "Memory footprint (words)", NORMAL, bold=True),
        *footprint(parts, M, RIGHT, 340, RIGHT_WIDTH),
        *_timeline(setting, played, ledger.peak),
    ]
    sizes = ", ".join(f"{name} = {value:,}" for name, value in tile_sizes(setting).items())
    heading = f"{schedules.get(schedule).title}: N = {N:,}, d = {d:,}, M = {M:,}, {sizes}"
    return titled(heading, (WIDTH, HEIGHT), *_in_words(heading, setting, played, ledger, parts), drawn)


# ---------------------------------------------------------------------- the N x N scores
def _scores(s: TileTunerState, played: Playback) -> Iterator[Element]:
    yield Text(18, 58, f"Score matrix, {s.N:,} × {s.N:,}", NORMAL, bold=True)
    square = Square(GRID_X, GRID_Y, SIDE, s.N)
    yield square.paper()
    for began, rows, columns in played.visited:
        if began <= s.step:
            yield square.box(rows, columns, ramp(0.35))
    for y in _borders(GRID_Y, s.Br, s.N):
        yield Poly(((GRID_X, y), (GRID_X + SIDE, y)), GRID, 0.8)
    for x in _borders(GRID_X, s.Bc, s.N):
        yield Poly(((x, GRID_Y), (x, GRID_Y + SIDE)), GRID, 0.8)
    yield from _strips(s, played)
    state, everything = played.states[s.step], (0, s.N)
    if state.rows or state.columns:
        yield from outline(square.box(state.rows or everything, state.columns or everything), 3)
    yield from _first_tile(s)
    yield Text(GRID_X, GRID_Y + SIDE + 20, _where(s, played), SMALL)


class Plane(NamedTuple):
    """A square with the first `rows` rows and columns of the scores: corner and side in pixels."""

    x: float
    y: float
    side: float
    rows: int

    def corner(self, s: TileTunerState) -> Point:
        """Return the lower right corner of the first tile, clipped to the square."""
        return self.at(s.Br, s.Bc)

    def at(self, Br: int, Bc: int) -> Point:
        """Return the lower right corner of a first tile of Br x Bc, clipped to the square."""
        scale = self.side / self.rows
        return self.x + min(Bc, self.rows) * scale, self.y + min(Br, self.rows) * scale

    def tile_at(self, corner: Point) -> tuple[int, int]:
        """Return (Br, Bc) of the tile whose corner is nearest to a point of the figure."""
        rows, columns = ((corner[1] - self.y) / self.side, (corner[0] - self.x) / self.side)
        Br, Bc = (min(max(round(share * self.rows), 1), self.rows) for share in (rows, columns))
        return Br, Bc


def plane_of(s: TileTunerState) -> Plane:
    """Return the square in which the tile is dragged: all scores, or an enlarged detail for small tiles."""
    line = frontier(s.schedule, s.N, s.d, s.M)
    rows, most = s.N, max((max(tile) for tile in line), default=s.N)
    while 3 * most <= rows:
        rows = ceil_div(rows, 2)
    whole = Plane(GRID_X, GRID_Y, SIDE, s.N)
    return whole if rows == s.N else Plane(GRID_X + SIDE - LENS, GRID_Y + SIDE - LENS, LENS, rows)


def _first_tile(s: TileTunerState) -> Iterator[Element]:
    """Yield the draggable tile with its handle, and the line of the largest tiles that fit."""
    whole, held = Plane(GRID_X, GRID_Y, SIDE, s.N), plane_of(s)
    over = tile_ledger(s).peak > s.M
    line = frontier(s.schedule, s.N, s.d, s.M)
    if held != whole:
        yield from _tile_in(whole, s, over, line)
        yield Rect(held.x, held.y, held.side, held.side, PAPER, "", INK, 1.2)
        said = f"Detail: first {held.rows:,} × {held.rows:,}"
        yield Text(held.x + held.side - 6, held.y + held.side - 7, said, TINY, "end", QUIET)
    yield from _tile_in(held, s, over, line)
    yield circle(held.corner(s), 5, VERMILION if over else INK, 1, 16)
    fits = f"Dashed line: largest tiles that fit in M = {s.M:,}"
    if not line or line[-1] == (s.N, s.N):
        fits = f"{'All tiles fit' if line else 'No tile fits'} in M = {s.M:,}"
    yield Text(GRID_X, GRID_Y + SIDE + 37, fits, SMALL, colour=QUIET)


def _tile_in(plane: Plane, s: TileTunerState, over: bool, line: Frontier) -> Iterator[Element]:
    x, y = plane.corner(s)
    hatch = TOO_MUCH.hatch if over else ""
    yield Rect(plane.x, plane.y, x - plane.x, y - plane.y, "", hatch, INK, 1.5, TOO_MUCH.colour)
    if line and line[-1] != (s.N, s.N):
        yield Poly(tuple(plane.at(*tile) for tile in line), INDIGO, 2, (6, 3))


def _borders(start: float, size: int, N: int) -> list[float]:
    """Return the tile borders in pixels; empty if they are less than 4 pixels apart."""
    step = size * SIDE / N
    return [start + k * step for k in range(1, ceil_div(N, size))] if step >= 4 else []


def _strips(s: TileTunerState, played: Playback) -> Iterator[Element]:
    """Yield strips next to the scores that mark the rows of Q, K and V in fast memory."""
    state, scale = played.states[s.step], SIDE / s.N
    held = {tile.kind for tile in state.tiles}
    for name, x, y, across, down in STRIPS:
        yield Rect(x, y, across, down, PAPER, "", QUIET, 0.8)
        yield Text(x - 6, centred(y + 6, SMALL), name, SMALL, "end")
    for name, x, y, across, down in STRIPS:
        part = state.rows if name == "Q" else state.columns
        if part and name in held:
            start, length = part[0] * scale, max(1.5, (part[1] - part[0]) * scale)
            box = (x, y + start, across, length) if name == "Q" else (x + start, y, length, down)
            yield Rect(*box, *fill_of(name, 0), INK, 0.6)


def _where(s: TileTunerState, played: Playback) -> str:
    state = played.states[s.step]
    if state.rows and state.columns:
        return place((state.rows, state.columns))
    if state.rows:
        return f"query {span('row', state.rows)}, no keys loaded yet"
    if state.columns:
        return f"key {span('column', state.columns)}, no queries loaded yet"
    return "none in fast memory"


# ---------------------------------------------------------------------- words moved
def _words(s: TileTunerState, ledger: Ledger) -> Iterator[Element]:
    least, title = bound_of(s)
    # The scale depends on N, d, M and the schedule, not on the tile: the length of a bar follows its words.
    scale = 0.36 * RIGHT_WIDTH / (FULL * max(best_tile_words(s), least))
    yield Text(RIGHT, 58, "Memory traffic (words)", NORMAL, bold=True)
    yield from read_written_legend(RIGHT + RIGHT_WIDTH - 170, 46)
    y, left, most = 72.0, RIGHT + 46, 0.36 * RIGHT_WIDTH
    for name, read, written in ledger.rows():
        colour, said = fill_of(name, 0).colour, read_and_written(read, written)
        yield from Moved(name, colour, read, written, said).bar(left, y, scale, most)
        y += 23
    said = f"{ledger.total:,}, {ratio_to_bound(s)}"
    yield from Moved("total", SUM, ledger.read, ledger.written, said).bar(left, y + 4, scale, most)
    yield from Moved("bound", BLACK, least, 0, f"{least:,}: {title}").bar(left, y + 29, scale, most)


# ---------------------------------------------------------------------- fast memory, move by move
def _timeline(s: TileTunerState, played: Playback, peak: int) -> Iterator[Element]:
    start = s.step // SHOWN * SHOWN
    window = [totals(state) for state in played.states[start : start + SHOWN]]
    right = WIDTH - 40 - text_width(f"M = {s.M:,}", NORMAL)
    frame = Frame(Scale(0, SHOWN, 78, right), Scale(0, 1.08 * max(s.M, peak), 582, 462))
    kinds = by_presence([totals(state) for state in played.states])
    x = frame.x(s.step - start)
    yield Text(18, 440, move_in_words(s), NORMAL, bold=True)
    words = played.states[s.step].words
    over = f", {words - s.M:,} over M" if words > s.M else ""
    yield Text(WIDTH - 18, 440, f"{with_unit(words, 'word')} in use{over}", NORMAL, "end")
    yield from _axis(frame, played.first + start + 1)
    yield Rect(x, 458, frame.x(1) - frame.x(0), 124, "#E6E6E6")
    yield from stacked(frame, window, kinds)
    yield from framed(Rect(x, 458, frame.x(1) - frame.x(0), 124, "", "", VERMILION, 2))
    yield from limit_line(frame, s.M)
    yield from _held(totals(played.states[s.step]), window, kinds)


def move_in_words(s: TileTunerState) -> str:
    """Format the shown move: its number, the tile and its words."""
    played = play(s)
    return f"Move {played.first + s.step + 1:,}: {move_sentence(played.moves[s.step])}"


def _axis(frame: Frame, first: int) -> Iterator[Element]:
    left, right, bottom, top = frame.x.start, frame.x.stop, frame.y.start, frame.y.stop
    yield Poly(((left, top), (left, bottom), (right, bottom)), INK, 1.2)
    for tick in frame.y.ticks()[::2]:
        yield Text(left - 7, centred(frame.y(tick), SMALL), f"{tick:,.0f}", SMALL, "end", QUIET)
    for k in range(0, SHOWN, 8):
        yield Text(frame.x(k + 0.5), bottom + 16, f"{first + k:,}", SMALL, "middle", QUIET)
    yield Text(right + 6, bottom + 16, "move", SMALL, colour=QUIET)


def _held(amounts: Mapping[str, int], window: Sequence[Mapping[str, int]], kinds: list[str]) -> list[Element]:
    """Return the legend: each kind of tile in the timeline with its words in fast memory now."""
    x, drawn = 18.0, list[Element]()
    for kind in kinds:
        if any(kind in held for held in window):
            label = f"{kind} {amounts.get(kind, 0):,}"
            drawn += swatch(x, 610, fill_of(kind, kinds.index(kind)), label)
            x += 40 + text_width(label, NORMAL)
    return drawn


# ---------------------------------------------------------------------- in words
def _in_words(
    heading: str, s: TileTunerState, played: Playback, ledger: Ledger, parts: Mapping[str, int]
) -> tuple[str, str]:
    least, title = bound_of(s)
    held = totals(played.states[s.step])
    listed = ", ".join(f"{kind} {words:,}" for kind, words in held.items()) or "nothing"
    alt = f"Tile tuner, {heading}. Traffic {ledger.total:,} words, {ratio_to_bound(s, f' ({title})')}. "
    alt += f"Footprint {ledger.peak:,} words; {fit_remark(ledger.peak, s.M)}. "
    alt += f"Move {played.first + s.step + 1:,}: {move_sentence(played.moves[s.step])}. "
    alt += f"Tile of scores: {_where(s, played)}. In fast memory: {listed}."
    split = ", ".join(f"{kind} {words:,}" for kind, words in parts.items())
    numbers = [
        table([["", "read", "written"], *moved_rows(ledger)], left=0),
        f"lower bound {least:,} words ({title}): {ledger.total:,} words moved, {ratio_to_bound(s)}",
        f"footprint {ledger.peak:,} words ({split}); M {s.M:,}: {fit_remark(ledger.peak, s.M)}",
    ]
    return alt, "\n".join(numbers)


def tile_tuner_headline(s: TileTunerState, note: str = "") -> str:
    """Return the headline of a state as HTML: traffic, ratio to the lower bound, footprint, and `note`."""
    ledger, (least, title) = tile_ledger(s), bound_of(s)
    said = fit_remark(ledger.peak, s.M)
    return paragraph(
        [
            f"{bold(f'Traffic {ledger.total:,} words')}, {ratio_to_bound(s, f' of {least:,} ({title})')}.",
            f"Footprint {ledger.peak:,} of M = {s.M:,} words: {bold(said, ledger.peak > s.M)}.",
            escape(note),
        ]
    )
