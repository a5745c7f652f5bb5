"""The picture of the tile tuner: scores, words, footprint and fast memory of one setting at one step."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from ...console import table
from ...costs import ceil_div
from ...ledger import Ledger
from ..draw.figure import figure
from ..draw.frame import Frame, Scale
from ..draw.palette import BLACK, GRID, INK, PAPER, QUIET, VERMILION, Fill, fill_of, ramp
from ..draw.picture import LARGE, NORMAL, SMALL, Element, Picture, Poly, Rect, Text, centred, text_width
from ..facts.tile_tuner import Playback, Setting, bound_of, cost_of, parts_of, play, tiles_of
from ..facts.trace import amount, in_words, totals
from .grids import place, span
from .memory import by_presence, footprint, limit_line, stacked, swatch, verdict

WIDTH, HEIGHT = 940.0, 640.0
GRID_X, GRID_Y, SIDE = 62.0, 110.0, 268.0
RIGHT, RIGHT_WIDTH = 392.0, 530.0
SHOWN = 48  # moves of the timeline around the current one
WRITTEN = "\\"


@figure
def tile_tuner_picture(N: int, d: int, M: int, Br: int, Bc: int, schedule: str, step: int = 0) -> Picture:
    """What the tile tuner shows: words per array, the footprint against M, and fast memory after move `step`.

    Raises ValueError or TypeError for sizes below 1, for an unknown forward schedule (naming those there
    are), and for a step beyond the moves that are played.
    """
    setting = Setting(N, d, M, Br, Bc, schedule, step).checked()
    played = play(setting)
    if not 0 <= step < len(played.moves):
        raise ValueError(f"step = {step}: this setting plays the moves 0 to {len(played.moves) - 1}")
    ledger, parts = cost_of(setting), parts_of(setting)
    title = _title(setting)
    drawn: list[Element] = [Text(18, 28, title, LARGE, bold=True)]
    drawn += _scores(setting, played) + _words(setting, ledger)
    drawn += [Text(RIGHT, 304, "Footprint", NORMAL, bold=True)]
    drawn += footprint(parts, M, RIGHT, 340, RIGHT_WIDTH)
    drawn += _timeline(setting, played, ledger.peak)
    alt, numbers = _in_words(setting, played, ledger, parts)
    return Picture(WIDTH, HEIGHT, title, alt, numbers, tuple(drawn))


def _title(s: Setting) -> str:
    sizes = ", ".join(f"{name} = {value:,}" for name, value in tiles_of(s).items())
    return f"{s.schedule}: N = {s.N:,}, d = {s.d:,}, M = {s.M:,}, {sizes}"


# ---------------------------------------------------------------------- the N x N scores
def _scores(s: Setting, played: Playback) -> list[Element]:
    drawn: list[Element] = [
        Text(18, 58, f"Scores, {s.N:,} × {s.N:,}", NORMAL, bold=True),
        Rect(GRID_X, GRID_Y, SIDE, SIDE, PAPER, "", QUIET),
    ]
    scale = SIDE / s.N
    for began, rows, columns in played.visited:
        if began <= s.step:
            drawn.append(_tile(rows, columns, scale))
    drawn += _tile_lines(s) + _strips(s, played)
    state = played.states[s.step]
    if state.rows or state.columns:
        box = _tile(state.rows or (0, s.N), state.columns or (0, s.N), scale)
        grow = max(0.0, 4 - min(box.width, box.height)) / 2
        drawn.append(
            Rect(
                box.x - grow, box.y - grow, box.width + 2 * grow, box.height + 2 * grow, "", "", VERMILION, 3
            )
        )
    return [*drawn, Text(GRID_X, GRID_Y + SIDE + 20, _where(s, played), SMALL)]


def _tile(rows: tuple[int, int], columns: tuple[int, int], scale: float) -> Rect:
    (top, bottom), (left, right) = rows, columns
    x, y = GRID_X + left * scale, GRID_Y + top * scale
    return Rect(x, y, (right - left) * scale, (bottom - top) * scale, ramp(0.35))


def _tile_lines(s: Setting) -> list[Element]:
    """Borders of the tiles, where they are far enough apart to be told from each other."""
    drawn: list[Element] = []
    right, bottom = GRID_X + SIDE, GRID_Y + SIDE
    if s.Br * SIDE / s.N >= 4:
        ys = [GRID_Y + k * s.Br * SIDE / s.N for k in range(1, ceil_div(s.N, s.Br))]
        drawn += [Poly(((GRID_X, y), (right, y)), GRID, 0.8) for y in ys]
    if s.Bc * SIDE / s.N >= 4:
        xs = [GRID_X + k * s.Bc * SIDE / s.N for k in range(1, ceil_div(s.N, s.Bc))]
        drawn += [Poly(((x, GRID_Y), (x, bottom)), GRID, 0.8) for x in xs]
    return drawn


def _strips(s: Setting, played: Playback) -> list[Element]:
    """Beside the scores: which rows of Q, K and V are in fast memory."""
    state, scale = played.states[s.step], SIDE / s.N
    held = {tile.kind for tile in state.tiles}
    drawn: list[Element] = []
    drawn += _strip("Q", GRID_X - 18, GRID_Y, 12, SIDE)
    drawn += _strip("K", GRID_X, GRID_Y - 34, SIDE, 12)
    drawn += _strip("V", GRID_X, GRID_Y - 18, SIDE, 12)
    if state.rows and "Q" in held:
        top, bottom = state.rows
        drawn.append(_filled("Q", GRID_X - 18, GRID_Y + top * scale, 12, max(1.5, (bottom - top) * scale)))
    for name, y in (("K", GRID_Y - 34), ("V", GRID_Y - 18)):
        if state.columns and name in held:
            left, right = state.columns
            drawn.append(_filled(name, GRID_X + left * scale, y, max(1.5, (right - left) * scale), 12))
    return drawn


def _strip(name: str, x: float, y: float, width: float, height: float) -> list[Element]:
    label = Text(x - 6, centred(y + 6, SMALL), name, SMALL, "end")
    return [Rect(x, y, width, height, PAPER, "", QUIET, 0.8), label]


def _filled(name: str, x: float, y: float, width: float, height: float) -> Rect:
    fill = fill_of(name, 0)
    return Rect(x, y, width, height, fill.colour, fill.hatch, INK, 0.6)


def _where(s: Setting, played: Playback) -> str:
    state = played.states[s.step]
    if state.rows and state.columns:
        return place((state.rows, state.columns))
    if state.rows:
        return f"{span('row', state.rows)}, no columns yet"
    if state.columns:
        return f"{span('column', state.columns)}, no rows yet"
    return "no tile of scores at work"


# ---------------------------------------------------------------------- words moved
def _words(s: Setting, ledger: Ledger) -> list[Element]:
    least, title = bound_of(s)
    scale = 0.36 * RIGHT_WIDTH / max(ledger.total, least)
    drawn: list[Element] = [
        Text(RIGHT, 58, "Words moved", NORMAL, bold=True),
        *_key(RIGHT + RIGHT_WIDTH - 170, 46),
    ]
    y = 72.0
    for name, read, written in ledger.rows():
        drawn += _word_row(y, name, fill_of(name, 0).colour, scale, read, written, _amount(read, written))
        y += 23
    said = f"{ledger.total:,} = {ledger.total / least:.2f} × the bound"
    drawn += _word_row(y + 4, "total", "#A6A6A6", scale, ledger.read, ledger.written, said, bold=True)
    drawn += _word_row(y + 29, "bound", BLACK, scale, least, 0, f"{least:,}: {title}")
    return drawn


def _key(x: float, y: float) -> list[Element]:
    read, written = Fill("#FFFFFF", ""), Fill("#FFFFFF", WRITTEN)
    return swatch(x, y, read, "read") + swatch(x + 76, y, written, "written")


def _amount(read: int, written: int) -> str:
    parts = [f"{read:,} read"] if read else []
    return ", ".join(parts + ([f"{written:,} written"] if written else []))


def _word_row(
    y: float, name: str, colour: str, scale: float, read: int, written: int, said: str, bold: bool = False
) -> list[Element]:
    left, middle = RIGHT + 46, y + 8
    end = left + (read + written) * scale
    return [
        Text(left - 8, centred(middle, SMALL), name, SMALL, "end", bold=bold),
        Rect(left, y, read * scale, 16, colour, "", INK, 0.6),
        Rect(left + read * scale, y, written * scale, 16, colour, WRITTEN if written else "", INK, 0.6),
        Text(end + 8, centred(middle, SMALL), said, SMALL, bold=bold),
    ]


# ---------------------------------------------------------------------- fast memory, move by move
def _timeline(s: Setting, played: Playback, peak: int) -> list[Element]:
    start = s.step // SHOWN * SHOWN
    window = [totals(state) for state in played.states[start : start + SHOWN]]
    right = WIDTH - 40 - text_width(f"M = {s.M:,}", NORMAL)
    frame = Frame(Scale(0, SHOWN, 78, right), Scale(0, 1.08 * max(s.M, peak), 582, 462))
    kinds = by_presence([totals(state) for state in played.states])
    said = f"Move {played.first + s.step + 1:,}: {in_words(played.moves[s.step])}"
    x = frame.x(s.step - start)
    drawn: list[Element] = [Text(18, 440, said, NORMAL, bold=True)]
    drawn.append(Text(WIDTH - 18, 440, _filling(played.states[s.step].words, s.M), NORMAL, "end"))
    drawn += _axis(frame, played.first + start + 1)
    drawn.append(Rect(x, 458, frame.x(1) - frame.x(0), 124, "#E6E6E6"))
    drawn += stacked(frame, window, kinds)
    drawn.append(Rect(x, 458, frame.x(1) - frame.x(0), 124, "", "", VERMILION, 2))
    drawn += limit_line(frame, s.M)
    return drawn + _held(totals(played.states[s.step]), kinds)


def _filling(words: int, M: int) -> str:
    over = f", {words - M:,} more than M" if words > M else ""
    return f"{amount(words)} in fast memory{over}"


def _axis(frame: Frame, first: int) -> list[Element]:
    left, right, bottom, top = frame.x.start, frame.x.stop, frame.y.start, frame.y.stop
    drawn: list[Element] = [Poly(((left, top), (left, bottom), (right, bottom)), INK, 1.2)]
    for tick in frame.y.ticks()[::2]:
        drawn.append(Text(left - 7, centred(frame.y(tick), SMALL), f"{tick:,.0f}", SMALL, "end", QUIET))
    for k in range(0, SHOWN, 8):
        drawn.append(Text(frame.x(k + 0.5), bottom + 16, f"{first + k:,}", SMALL, "middle", QUIET))
    drawn.append(Text(right + 6, bottom + 16, "move", SMALL, colour=QUIET))
    return drawn


def _held(amounts: Mapping[str, int], kinds: list[str]) -> list[Element]:
    """What is in fast memory now, each with its swatch and words."""
    x, drawn = 18.0, list[Element]()
    for kind in kinds:
        if kind in amounts:
            label = f"{kind} {amounts[kind]:,}"
            drawn += swatch(x, 610, fill_of(kind, kinds.index(kind)), label)
            x += 40 + text_width(label, NORMAL)
    return drawn


# ---------------------------------------------------------------------- in words
def _in_words(s: Setting, played: Playback, ledger: Ledger, parts: Mapping[str, int]) -> tuple[str, str]:
    least, title = bound_of(s)
    held = totals(played.states[s.step])
    listed = ", ".join(f"{kind} {words:,}" for kind, words in held.items()) or "nothing"
    alt = f"{_title(s)}. It moves {ledger.total:,} words, {ledger.total / least:.2f} times the lower bound "
    alt += f"({title}). Its footprint of {ledger.peak:,} words {verdict(ledger.peak, s.M)}. "
    alt += f"Move {played.first + s.step + 1:,} is shown: {in_words(played.moves[s.step])}; "
    alt += f"{_where(s, played)}; in fast memory then: {listed}."
    rows = [["", "read", "written"]]
    rows += [[name, f"{read:,}", f"{written:,}"] for name, read, written in ledger.rows()]
    rows += [["total", f"{ledger.read:,}", f"{ledger.written:,}"]]
    split = ", ".join(f"{kind} {words:,}" for kind, words in parts.items())
    numbers = [
        table(rows, left=0),
        f"lower bound {least:,} words ({title}), ratio {ledger.total / least:.2f}",
    ]
    numbers.append(f"footprint {ledger.peak:,} words ({split}); M {s.M:,}: {verdict(ledger.peak, s.M)}")
    return alt, "\n".join(numbers)


def tile_tuner_words(s: Setting, note: str = "") -> str:
    """The headline of a setting as HTML: words, ratio to the bound, whether it fits, and a remark."""
    ledger, (least, title) = cost_of(s), bound_of(s)
    said = verdict(ledger.peak, s.M)
    fits = f"<b>{said}</b>" if ledger.peak > s.M else said
    ratio = f"{ledger.total / least:.2f} × the lower bound of {least:,} ({title})"
    lines = [
        f"<b>{ledger.total:,} words moved</b>, {ratio}.",
        f"Footprint {ledger.peak:,} of M = {s.M:,} words: {fits}.",
        escape(note),
    ]
    return f'<div style="font-size:14px;line-height:1.5">{"<br>".join(lines)}</div>'
