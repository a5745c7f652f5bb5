"""Figure of the tuning table: time / best of timed configurations against a column known without a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any, NamedTuple

from ....console import table as text_table
from ....console import with_unit
from ..draw.line_chart import Frame, Scale, marker, spread
from ..draw.palette import BLUE, INK, PAPER, QUIET, RUST, Stroke
from ..draw.picture import LARGE, SMALL, Element, Picture, Poly, Text, centred, figure
from ..draw.shapes import circle
from ..draw.text import figures, in_html, words
from ..models.kernel_explorer import HALVES
from ..models.tuning_table import (
    COLUMNS,
    OWN,
    Dot,
    Result,
    Row,
    TuningState,
    checked,
    dots,
    result,
    rows_of,
    verdict,
)

WIDE, NARROW, HEIGHT = 760.0, 396.0, 456.0
MARKS = (1.0, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)
SHAPES = {1: "diamond", 2: "circle", 3: "triangle", 4: "square"}  # marker by the number of stages


class Table(NamedTuple):
    """A checked state with its dots (in order of time) and the result of its rule (None: nothing kept)."""

    s: TuningState
    dots: list[Dot]
    result: Result | None


def read(s: TuningState, rows: Sequence[Row]) -> Table:
    """Return a checked state with its dots and the result of its rule."""
    found = dots(checked(s, rows), rows)
    return Table(s, found, result(s, found))


@figure
def tuning_table_picture(
    table: str | Sequence[Mapping[str, Any]] = "draft, d = 64",
    column: str = "instructions",
    rule: str = "smallest",
    *,
    stages: int | None = None,
    rows: int | None = None,
    warpgroups: int | None = None,
) -> Picture:
    """Time / best against a column that is known without a run: one dot per timed configuration.

    The configurations that the rule chooses are ringed, and so is the one with the shortest time. Lines: the
    expected time / best of one configuration at random, and of the best of three. Dots of configurations that
    the filters drop are small and hollow.

    Args:
        table: a name in `iocourse.gpu.timed_tiles.tables`, or rows, each a dict with "ms" and columns.
        column: a column of numbers other than "ms".
        rule: "smallest" or "largest" value of the column.
        stages: keep configurations with this number of stages; None or 0 keeps all.
        rows: keep those with at least this number of rows per warpgroup; None or 0 keeps all.
        warpgroups: keep those with at least this number of warpgroups per SM; None or 0 keeps all.

    Raises:
        ValueError: an unknown table, column or rule, a row without a time, or a negative filter.
    """
    name = table if isinstance(table, str) else OWN
    s = TuningState(name, column, rule, stages or 0, rows or 0, warpgroups or 0)
    return draw_tuning_table(read(s, rows_of(table)))


def draw_tuning_table(found: Table, narrow: bool = False) -> Picture:
    """Return the figure of a table that was read; `narrow`: for a narrow page."""
    title = tuning_title(found.s)
    lines = wrap(title, 40 if narrow else 82)
    top, width = 28.0 + 20 * (len(lines) - 1), NARROW if narrow else WIDE
    drawn: list[Element] = [Text(18, 28 + 20 * k, one, LARGE, bold=True) for k, one in enumerate(lines)]
    frame = _frame(found, top, width - (142 if narrow else 166))
    _, label = UNITS.get(found.s.column, (1.0, described(found.s.column)))
    drawn += frame.elements(label, "time / best")
    drawn += [*_lines(found, frame), *_dots(found, frame), *_key(found, top + HEIGHT - 58, narrow)]
    height = top + HEIGHT - 28 + (22 if narrow else 0)
    return Picture(width, height, title, _alt(found), _numbers(found), tuple(drawn))


def tuning_title(s: TuningState) -> str:
    """Return the title of a state: table, rule, column and filters."""
    kept = [f"{s.stages} stages"] * bool(s.stages)
    kept += [f"at least {s.rows} rows per warpgroup"] * bool(s.rows)
    kept += [f"at least {s.warpgroups} warpgroups per SM"] * bool(s.warpgroups)
    return f"{s.table}: {s.rule} {described(s.column)}{''.join(f', {one}' for one in kept)}"


def described(column: str) -> str:
    """Return a column in words, or its name if it has no description."""
    return COLUMNS.get(column, column)


# Units of long columns on the axis.
UNITS = {
    "words": (1e6, "million words moved per head"),
    "shared_bytes": (1024, "shared memory per program (KB)"),
}
FEW = 8  # different values of a column, up to which each has a tick, and the stages of a dot shift it
SHIFT = 12.0  # pixels per stage


def _few(found: Table) -> list[float]:
    """Return the different values of the column in ascending order if they are few, otherwise []."""
    values = sorted({one.x for one in found.dots})
    return values if len(values) <= FEW else []


def _frame(found: Table, top: float, right: float) -> Frame:
    unit, _ = UNITS.get(found.s.column, (1.0, ""))
    xs, worst = [one.x / unit for one in found.dots], max(one.y for one in found.dots)
    low, high = min(xs), max(xs)
    left, bottom = 62.0, top + HEIGHT - 112
    few = tuple(value / unit for value in _few(found))
    if low > 0 and high >= 16 * low:
        across = Scale(low / 1.4, high * 1.4, left, right, 10, few)
    else:
        room = 0.1 * (high - low) or max(1.0, abs(high)) / 2
        marks = _far_apart(few, 36 * (high - low + 2 * room) / (right - left))
        across = Scale(low - room, high + room, left, right, None, marks)
    high_y = 1.08 * max(worst, 1.2)
    marks = tuple(mark for mark in MARKS if mark <= high_y)
    return Frame(across, Scale(0.97, high_y, bottom, top + 38, 10, marks))


def _far_apart(values: Sequence[float], gap: float) -> tuple[float, ...]:
    """Return the ascending values that are at least `gap` from the last one returned before, and the last."""
    kept = list[float]()
    for value in values:
        if not kept or value - kept[-1] >= gap:
            kept.append(value)
    return tuple(kept)


def _at(found: Table, frame: Frame, one: Dot) -> tuple[float, float]:
    """Return the place of a dot. Where many share a value, dots with fewer stages are further to the left."""
    unit, _ = UNITS.get(found.s.column, (1.0, ""))
    x, y = frame.at((one.x / unit, one.y))
    return x + SHIFT * (one.row.get("stages", 3) - 3) * bool(_few(found)), y


def _lines(found: Table, frame: Frame) -> Iterator[Element]:
    """Yield the lines of chance with their names at the right."""
    if found.result is None:
        return
    values = [found.result.one, found.result.three]
    names = [f"one at random: {values[0]:.2f}", f"best of three: {values[1]:.2f}"]
    at = [frame.y(value) for value in values]
    for y, height, name, dash in zip(
        at, spread(at, 17, frame.y.stop, frame.y.start), names, ((9.0, 4.0), (3.0, 3.0)), strict=True
    ):
        yield Poly(((frame.x.start, y), (frame.x.stop, y)), INK, 1.6, dash)
        yield Poly(((frame.x.stop, y), (frame.x.stop + 8, height)), QUIET, 0.7)
        yield Text(frame.x.stop + 11, centred(height, 10.5), name, 10.5)


def _dots(found: Table, frame: Frame) -> Iterator[Element]:
    for one in reversed(found.dots):
        shape = SHAPES.get(one.row.get("stages", 2), "circle")
        yield from _dot(_at(found, frame, one), shape, one.kept)
    for one in found.result.chosen if found.result else ():
        yield _ring(_at(found, frame, one), 8.5, RUST)
    yield _ring(_at(found, frame, found.dots[0]), 12.5, INK)


def _dot(at: tuple[float, float], shape: str, kept: bool) -> Iterator[Element]:
    """Yield the marker of a configuration: filled, or small and hollow if it is dropped."""
    made = marker(at, Stroke(BLUE, (), shape), 5 if kept else 3)
    yield from (
        made if kept else [replace(one, stroke=QUIET, fill=PAPER) for one in made if isinstance(one, Poly)]
    )


def _ring(at: tuple[float, float], radius: float, colour: str) -> Poly:
    return Poly(circle(at, radius, "", 2.4).points, colour, 2.4)


def _key(found: Table, y: float, narrow: bool) -> Iterator[Element]:
    known = sorted({one.row.get("stages", 2) for one in found.dots})
    x = 18.0
    for stages in known:
        yield from marker((x + 6, y), Stroke(BLUE, (), SHAPES.get(stages, "circle")), 5)
        yield Text(x + 16, centred(y, SMALL), with_unit(stages, "stage"), SMALL)
        x += 82
    if narrow:
        x, y = 18.0, y + 24
    rings = [("chosen by the rule", RUST, 7.0)] * bool(found.result)
    for name, colour, radius in (*rings, ("fastest", INK, 8.0)):
        yield _ring((x + 9, y), radius, colour)
        yield Text(x + 24, centred(y, SMALL), name, SMALL)
        x += 154
    if any(not one.kept for one in found.dots):
        yield from _dot((x - 40, y), "circle", kept=False)
        yield Text(x - 30, centred(y, SMALL), "dropped", SMALL)


# ---------------------------------------------------------------------- in words
def chosen_text(found: Table) -> str:
    """Return the choice of the rule with its time / best."""
    if found.result is None:
        return "The filters keep no configuration"
    chosen = found.result.chosen
    tied = f"{len(chosen)} tied configurations, mean" if len(chosen) > 1 else chosen[0].name
    rule = f"{found.s.rule.capitalize()} {described(found.s.column)}"
    return f"{rule}: {tied} {found.result.regret:.2f} × the fastest"


def _sentences(found: Table) -> list[str]:
    if found.result is None:
        return [chosen_text(found)]
    return [chosen_text(found), verdict(found.result), place_text(found, found.result), *both_halves(found)]


def place_text(found: Table, one: Result) -> str:
    """Return the place of the best kept configuration in the order of the rule, with its ties."""
    fastest = next(dot for dot in found.dots if dot.kept)
    start = f"In the order of the rule the fastest ({fastest.name})"
    if one.tied == 1:
        return f"{start} has place {one.place} of {one.kept}"
    if one.place == one.tied:
        return f"{start} is among the first {one.place} of {one.kept}, which are tied"
    return f"{start} is among places {one.place - one.tied + 1} to {one.place} of {one.kept}, which are tied"


def both_halves(found: Table) -> list[str]:
    """Return a sentence if the times of a table include the other half of the backward pass."""
    if found.dots[0].row.get("kernel") not in HALVES:
        return []
    return ["Each time includes the other half of the backward pass, so these ratios are closer to 1"]


def tuning_headline(found: Table) -> str:
    """Return the headline of a table as HTML."""
    return in_html([f"{one}." for one in _sentences(found)])


def _alt(found: Table) -> str:
    kept = sum(one.kept for one in found.dots)
    axes = f"Time / best against {described(found.s.column)}"
    shown = f"{axes}, {kept} of {len(found.dots)} configurations"
    return ". ".join([tuning_title(found.s), shown, *_sentences(found)]) + "."


def _numbers(found: Table) -> str:
    rows = [["configuration", found.s.column, "time / best", ""]]
    chosen = {id(one.row) for one in found.result.chosen} if found.result else set()
    for one in found.dots:
        mark = "chosen" if id(one.row) in chosen else ("" if one.kept else "dropped")
        rows.append(
            [one.name, words(one.x) if float(one.x).is_integer() else figures(one.x, 4), f"{one.y:.3f}", mark]
        )
    return "\n".join([text_table(rows), *(f"{one}." for one in _sentences(found))])
