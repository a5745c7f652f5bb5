"""Figures of a recorded run of `tools.bench lowrank`.

They show the published rows, one of these rows as bars, time against length, and other methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log
from textwrap import wrap
from typing import Any

from ....console import table, with_unit
from ..draw.line_chart import Line, Panel, panels_picture
from ..draw.palette import BLACK, BLUE, INK, QUIET, SKY, Fill, Stroke, stroke_of
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Record,
    Rect,
    Text,
    centred,
    figure,
    none_yet,
    source_of,
    titled,
)
from ..draw.text import figures
from ..models.lowrank_record import FASTER_EXACT, Compared, Measured, compared, degrees, sizes

Row = Mapping[str, Any]
ELSEWHERE = "published (forward), another machine"
PUBLISHED = Stroke(BLACK, (), "square")
THEIRS = Stroke(QUIET, (5, 3), "plus")
EXTRAPOLATED = Stroke(QUIET, (2, 4), "")
SECTIONS = ("forward", "gradient", "causal")
PASSES = ("forward", "forward+backward")


@figure
def lowrank_vs_published(
    record: Record | None, *, section: str = "forward", title: str | None = None
) -> Picture:
    """Error and speed-up of each published row: published values and ours for every degree.

    All speed-ups except the published ones are over one baseline, the exact softmax attention of the record
    that takes less time. Errors use the published metric ‖x - y‖ / ‖x + y‖. They are errors of O for
    "forward", the largest of dQ, dK and dV for "gradient" (time of both passes), and of O for "causal" (time
    of the forward pass).

    Args:
        record: the record `load_record("lowrank")`; None draws a placeholder.
        section: "forward", "gradient" or "causal".
        title: of the figure.

    Raises:
        ValueError: unknown section, or a section without rows.
    """
    if section not in SECTIONS:
        raise ValueError(f"section must be one of {', '.join(SECTIONS)}, got {section!r}")
    name = title or f"Low rank and the published rows: {section}"
    if record is None:
        return none_yet(name, "lowrank")
    rows: Sequence[Row] = record[section]
    if not rows:
        raise ValueError(f"record must have rows of {section}, got none")
    error, speed = _ERROR_AND_SPEED[section]
    lines = [_row_lines(rows, error, "published_error"), _row_lines(rows, speed, "published_speedup")]
    if section == "forward":
        points = tuple((float(row["d"]), row["baseline_ms"] / row["their_ms"]) for row in rows)
        lines[1].append(Line("published script, this machine", points, THEIRS, marker_every=1))
    panels = [
        Panel("error in the published metric, %", "d (n = 10 · 2ᵈ)", lines[0], (None, 10)),
        Panel("speed-up over exact attention", "d (n = 10 · 2ᵈ)", lines[1], (None, 10)),
    ]
    return panels_picture(name, panels, _source(record), _rows_table(rows, error, speed), FASTER_EXACT)


_ERROR_AND_SPEED: dict[str, tuple[Callable[[Row], float], Callable[[Row], float]]] = {
    "forward": (lambda one: float(one["judged_error"]), lambda one: float(one["speedup"])),
    "gradient": (lambda one: float(one["worst"]), lambda one: float(one["speedup"])),
    "causal": (lambda one: float(one["their_errors"]["O"]), lambda one: float(one["forward_speedup"])),
}


def _row_lines(rows: Sequence[Row], number: Callable[[Row], float], published: str) -> list[Line]:
    """Return one line for the published values and one for each degree."""
    known = tuple((float(row["d"]), float(row[published])) for row in rows if row[published] is not None)
    lines = [Line(ELSEWHERE, known, PUBLISHED, marker_every=1)]
    for g in sorted({one["g"] for row in rows for one in row["degrees"]}):
        points = tuple(
            (float(row["d"]), number(one)) for row in rows for one in row["degrees"] if one["g"] == g
        )
        lines.append(Line(f"ours, g = {g}", points, stroke_of(g - 2), marker_every=1))
    return lines


def _rows_table(rows: Sequence[Row], error: Callable[[Row], float], speed: Callable[[Row], float]) -> str:
    degrees = sorted({one["g"] for row in rows for one in row["degrees"]})
    lines = [["d", "n", "published", *(f"g = {g}" for g in degrees)]]
    for row in rows:
        by_degree = {one["g"]: f"{error(one):.3g} %, {speed(one):.3g}×" for one in row["degrees"]}
        published = f"{row['published_error']:.3f} %, {row['published_speedup']:.3g}×"
        cells = [by_degree.get(g, "") for g in degrees]
        lines.append([str(row["d"]), f"{row['n']:,}", published, *cells])
    return table(lines, left=0)


@figure
def lowrank_scaling(record: Record | None, *, title: str | None = None) -> Picture:
    """Milliseconds against tokens on logarithmic axes, forward and forward with backward.

    Beyond the measured lengths, SDPA is extrapolated by the line fitted for n ≥ 2¹³.

    Args:
        record: the record of `python -m tools.bench lowrank`; None draws a placeholder.
        title: of the figure.
    """
    name = title or "Time against tokens, low rank and exact"
    if record is None:
        return none_yet(name, "lowrank")
    rows = [row for row in record["scaling"] if row["threads"] == record["threads"]]
    last = max(row["n"] for row in rows)
    panels = []
    for pass_ in PASSES:
        some = [row for row in rows if row["pass"] == pass_]
        kinds = sorted({_kind(row) for row in some}, key=lambda kind: (kind.startswith("SDPA"), kind))
        lines = []
        for at, kind in enumerate(kinds):
            points = tuple((float(row["n"]), float(row["ms"])) for row in some if _kind(row) == kind)
            lines.append(Line(kind, points, stroke_of(at), marker_every=1))
        for fit in record["fits"]:  # from the last measured length on; all d share one label
            if (fit["pass"], fit["contender"], fit["threads"]) == (pass_, "SDPA", 1) and fit["to"] < last:
                points = tuple((float(n), fit["ms_at_1"] * n ** fit["exponent"]) for n in (fit["to"], last))
                lines.append(Line("SDPA, extrapolated", points, EXTRAPOLATED, marker_every=0))
        panels.append(Panel(f"milliseconds, {pass_}", "tokens n", lines, (10, 10)))
    return panels_picture(name, panels, _source(record), _lengths_table(rows, record["fits"]))


def _kind(row: Row) -> str:
    degree = "" if row["g"] is None else f", g = {row['g']}"
    return f"{row['contender']}, d = {row['d']}{degree}"


def _lengths_table(rows: Sequence[Row], fits: Sequence[Row]) -> str:
    lengths = sorted({row["n"] for row in rows})
    kinds = list(dict.fromkeys((_kind(row), row["pass"]) for row in rows))
    slopes = {
        (_kind(fit), fit["pass"]): fit["exponent"] for fit in fits if fit["threads"] == rows[0]["threads"]
    }
    lines = [["n", *(f"{n:,}" for n in lengths), "exponent"]]
    for kind in kinds:
        times = {row["n"]: f"{row['ms']:.3g}" for row in rows if (_kind(row), row["pass"]) == kind}
        slope = f"{slopes[kind]:.3f}" if kind in slopes else ""
        lines.append([f"{kind[0]}, {kind[1]}", *(times.get(n, "") for n in lengths), slope])
    return f"milliseconds; exponents over n ≥ 8,192\n{table(lines, left=0)}"


@figure
def lowrank_baselines(
    record: Record | None, *, against: str = "features", title: str | None = None
) -> Picture:
    """Error of O against the number of features or the measured time, one panel per spread of the logits.

    Args:
        record: the record of `python -m tools.bench lowrank`; None draws a placeholder.
        against: "features" or "ms".
        title: of the figure.

    Raises:
        ValueError: `against` is neither.
    """
    if against not in ("features", "ms"):
        raise ValueError(f"against must be features or ms, got {against!r}")
    name = title or f"Error of linear attentions against {'features' if against == 'features' else 'time'}"
    if record is None:
        return none_yet(name, "lowrank")
    rows = [row for row in record["panels"] if "refused" not in row and row[against] is not None]
    names = list(dict.fromkeys(row["contender"] for row in rows))
    panels = []
    for spread in dict.fromkeys(row["spread"] for row in rows):
        shown = []
        for at, who in enumerate(names):
            some = [row for row in rows if (row["spread"], row["contender"]) == (spread, who)]
            if points := tuple((float(row[against]), float(row["error"])) for row in some):
                shown.append(Line(who, points, stroke_of(at), len(points) > 1, 1))
        xlabel = "features" if against == "features" else "milliseconds"
        panels.append(Panel(f"error of O in %, logits spread by {spread:g}", xlabel, shown, (10, 10)))
    return panels_picture(name, panels, _source(record), _contenders_table(record["panels"]))


def _contenders_table(rows: Sequence[Row]) -> str:
    counts = sorted({row["features"] for row in rows}, key=lambda m: m or 0)
    lines = [["logits", "features", *("none" if m is None else str(m) for m in counts)]]
    for spread, who in dict.fromkeys((row["spread"], row["contender"]) for row in rows):
        cells = {
            row["features"]: "refused" if "refused" in row else f"{row['error']:.3g} ({row['ms']:.2g})"
            for row in rows
            if (row["spread"], row["contender"]) == (spread, who)
        }
        lines.append([f"± {spread:g}", who, *(cells.get(m, "") for m in counts)])
    return f"error of O in per cent, median over draws (milliseconds)\n{table(lines, left=0)}"


# ---------------------------------------------------------------------- source
def _source(record: Record) -> str:
    return source_of(record, f", {with_unit(record['threads'], 'thread')}")


# ---------------------------------------------------------------------- bars of one row
LEFT, LONGEST, TOP, STEP, BAR = 150.0, 330.0, 84.0, 24.0, 15.0
CHARACTERS, LINE = 110, 18.0  # characters and height of a text line below the bars
FILLS = (Fill("#BDBDBD", ""), Fill(BLUE, ""), Fill(SKY, "/"))  # exact, ours, the script


@figure
def lowrank_times(record: Record | None, d: int = 12, g: int = 3) -> Picture:
    """Bars of milliseconds for one row at degree g: forward, both passes and causal, on a logarithmic scale.

    Each bar is labelled with its speed-up over exact attention of the same run and its error in per cent. The
    metric is ‖x - y‖ / ‖x + y‖, of O, or of the largest of dQ, dK and dV if there is a gradient.

    Args:
        record: the record of `python -m tools.bench lowrank`; None draws a placeholder.
        d: head dimension; n = 10 · 2ᵈ.
        g: degree.

    Raises:
        ValueError: d or g is not recorded; the message lists the recorded values.
    """
    if record is None:
        return none_yet("One row of the table", "lowrank")
    found = compared(record, d, g)
    title = f"d = {d}, n = {10 * 2**d:,}: milliseconds of exact attention and of degree {g}"
    times = [  # of all rows, so that all figures have the same scale
        row.ms
        for columns in sizes(record)
        for degree in degrees(record, columns)
        for one in compared(record, columns, degree)
        for row in one.rows
    ]
    source = f"{source_of(record)}; bars on one logarithmic scale"
    drawn: list[Element] = [Text(18, 50, source, SMALL, colour=QUIET)]
    y = TOP
    for one in found:
        drawn.append(Text(18, y, one.what, NORMAL, bold=True))
        drawn += _bars(one.rows, y + 8, min(times), max(times))
        y += STEP * len(one.rows) + 40
    for line in wrap(FASTER_EXACT, CHARACTERS):
        drawn.append(Text(18, y, line, SMALL, colour=QUIET))
        y += LINE
    rows = [[one.what, *_facts(row)] for one in found for row in one.rows]
    numbers = table([["passes", "who", "ms", "speed-up", "error"], *rows], left=2)
    sentences = ". ".join(f"{what}: {who} {ms} {times} {off}".rstrip() for what, who, ms, times, off in rows)
    alt = f"{title}. {sentences}. {FASTER_EXACT} {source}."
    return titled(title, (780.0, y), alt, f"{numbers}\n{FASTER_EXACT}\n{source}", drawn)


def _bars(rows: Sequence[Measured], top: float, low: float, high: float) -> Iterator[Element]:
    for at, row in enumerate(rows):
        y, fill = top + STEP * at, FILLS[0 if at == 0 else 1 if at == len(rows) - 1 else 2]
        length = 6 + LONGEST * log(row.ms / low) / max(log(high / low), 1e-9)
        yield Text(18, centred(y + BAR / 2, SMALL), row.who, SMALL)
        yield Rect(LEFT, y, length, BAR, *fill, INK, 0.7)
        said = ", ".join(filter(None, _facts(row)[1:]))
        yield Text(LEFT + length + 8, centred(y + BAR / 2, SMALL), said, SMALL)


def _facts(row: Measured) -> list[str]:
    """Return name, milliseconds, speed-up and error as text."""
    exact = row.error is None
    off = "" if exact else f"off by {figures(row.error or 0.0)} %"
    return [row.who, f"{figures(row.ms)} ms", "" if exact else f"{figures(row.speedup)}×", off]


def lowrank_times_words(found: Sequence[Compared]) -> str:
    """Return the headline: our forward pass compared with the published script."""
    _, script, ours = found[0].rows
    better = "a smaller error" if (ours.error or 0.0) < (script.error or 0.0) else "a larger error"
    faster = "and less time" if ours.ms < script.ms else "and more time"
    times = f"{figures(ours.speedup)} times as fast as exact attention, the script {figures(script.speedup)}"
    return f"Forward: {better} {faster} than the published script; {times}. {FASTER_EXACT}"
