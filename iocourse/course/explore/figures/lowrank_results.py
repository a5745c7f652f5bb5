"""Figures of a recorded run of `tools.bench lowrank`.

They show the published rows, one row as bars, time against length, and other methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Any

from ....console import DASH, table, with_unit
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
from ..models.lowrank_record import (
    LIMITS,
    WHAT,
    Compared,
    Measured,
    baselines,
    compared,
    fastest,
    fastest_exact,
    methods,
    panels_of,
    tokens,
)

Row = Mapping[str, Any]
ELSEWHERE = "published (forward), another machine"
PUBLISHED = Stroke(BLACK, (), "square")
STROKES = {  # of the methods other than ours
    "the script": Stroke(QUIET, (5, 3), "plus"),
    "the script, on softmax": Stroke(QUIET, (1, 3), "star"),
    "mean of V": Stroke(QUIET, (2, 3), "cross"),
}
EXTRAPOLATED = Stroke(QUIET, (2, 4), "")
PASSES = ("forward", "forward+backward")


@figure
def lowrank_vs_published(
    record: Record | None, *, section: str = "forward", title: str | None = None
) -> Picture:
    """Error, quotient of times and quotient of multiply-adds of each published row, for every degree.

    A quotient of times, except a published one, is the least time of the record's exact runs over that of
    the method. The quotient of multiply-adds does not depend on the machine. Errors use the published metric
    ‖x - y‖ / ‖x + y‖, of O, or with gradients of the worst of dQ, dK and dV. The mean of V is the control.
    The rows of other shapes are in the numbers.

    Args:
        record: the record `load_record("lowrank")`; None draws a placeholder.
        section: "forward", "gradient" (both passes), "causal" (forward) or "causal_gradient".
        title: of the figure.

    Raises:
        ValueError: unknown section, or a section without published rows.
    """
    if section not in WHAT:
        raise ValueError(f"section must be one of {', '.join(WHAT)}, got {section!r}")
    name = title or f"Low rank and the published rows: {WHAT[section]}"
    if record is None:
        return none_yet(name, "lowrank")
    rows = [row for row in record[section] if row["published_error"] is not None]
    if not rows:
        raise ValueError(f"record must have published rows of {section}, got none")
    parts = (
        ("error in the published metric, %", "error", _line(rows, "published_error")),
        ("exact time / time, fastest exact run", "quotient", _line(rows, "published_speedup")),
        ("exact / low-rank multiply-adds", "multiply_adds", ()),
    )
    panels = []
    for ylabel, number, published in parts:
        lines = [Line(ELSEWHERE, published, PUBLISHED, marker_every=1)] if published else []
        panels.append(Panel(ylabel, "d (n = 10 · 2ᵈ)", lines + _row_lines(rows, number), (None, 10)))
    numbers = f"{_rows_table(record[section])}\n* ‖x - y‖ / ‖x + y‖; usual: ‖x - y‖ / ‖y‖"
    return panels_picture(name, panels, _source(record), numbers, baselines(record[section]))


def _line(rows: Sequence[Row], key: str) -> tuple[tuple[float, float], ...]:
    return tuple((float(row["d"]), float(row[key])) for row in rows)


def _row_lines(rows: Sequence[Row], number: str) -> list[Line]:
    """Return one line for each method that has this number."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for one in methods(row):
            if (value := getattr(one, number)) is not None:
                points.setdefault(one.who, []).append((float(row["d"]), float(value)))
    return [
        Line(who, tuple(some), STROKES.get(who) or stroke_of(int(who[-1]) - 2), marker_every=1)
        for who, some in points.items()
    ]


def _rows_table(rows: Sequence[Row]) -> str:
    """Format one line per row and method."""
    lines = [["d", "n", "method", "ms", "over exact", "exact run", "multiply-adds", "error*, %", "usual, %"]]
    for row in rows:
        for one in methods(row):
            quotient = ["", ""] if one.quotient is None else [f"{figures(one.quotient)}×", row["baseline"]]
            others = (one.multiply_adds, one.error, one.usual)
            adds, error, usual = ("" if x is None else figures(x) for x in others)
            ms = "" if one.ms is None else figures(one.ms)
            place = [str(row["d"]), f"{row['n']:,}", one.who]
            lines.append([*place, ms, *quotient, f"{adds}×" if adds else "", error, usual])
    return table(lines, left=0)


@figure
def lowrank_scaling(record: Record | None, *, title: str | None = None) -> Picture:
    """Milliseconds against tokens on logarithmic axes, forward and forward with backward.

    Exact attention is the run with the least time at the longest length at which it was timed. Beyond that
    length it is extrapolated by the line fitted for n ≥ 2¹². The other exact runs are in the numbers.

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
        exact = _fastest_exact(some)
        kinds = list(dict.fromkeys(_kind(row) for row in some if row["g"] is not None)) + exact
        lines = []
        for at, kind in enumerate(kinds):
            points = tuple((float(row["n"]), float(row["ms"])) for row in some if _kind(row) == kind)
            lines.append(Line(kind, points, stroke_of(at), marker_every=1))
        for fit in record["fits"]:  # from the last measured length on; all d share one label
            if fit["pass"] == pass_ and _kind(fit) in exact and fit["to"] < last:
                points = tuple((float(n), fit["ms_at_1"] * n ** fit["exponent"]) for n in (fit["to"], last))
                lines.append(Line("exact, extrapolated", points, EXTRAPOLATED, marker_every=0))
        panels.append(Panel(f"milliseconds, {pass_}", "tokens n", lines, (10, 10)))
    return panels_picture(name, panels, _source(record), _lengths_table(rows, record["fits"]))


def _kind(row: Row) -> str:
    return f"exact, {row['contender']}, d = {row['d']}" if row["g"] is None else (
        f"{row['contender']}, d = {row['d']}, g = {row['g']}"
    )  # fmt: skip


def _fastest_exact(rows: Sequence[Row]) -> list[str]:
    """Return the exact run of every d that takes the least time at the longest exact length."""
    exact = [row for row in rows if row["g"] is None]
    best = []
    for d in dict.fromkeys(row["d"] for row in exact):
        here = [row for row in exact if row["d"] == d]
        longest = max(row["n"] for row in here)
        best.append(
            _kind(min((row for row in here if row["n"] == longest), key=lambda row: float(row["ms"])))
        )
    return best


def _lengths_table(rows: Sequence[Row], fits: Sequence[Row]) -> str:
    lengths = sorted({row["n"] for row in rows})
    kinds = list(dict.fromkeys((_kind(row), row["pass"]) for row in rows))
    slopes = {(_kind(fit), fit["pass"]): fit["exponent"] for fit in fits}
    lines = [["n", *(f"{n:,}" for n in lengths), "exponent"]]
    for kind in kinds:
        times = {row["n"]: f"{row['ms']:.3g}" for row in rows if (_kind(row), row["pass"]) == kind}
        slope = f"{slopes[kind]:.3f}" if kind in slopes else ""
        lines.append([f"{kind[0]}, {kind[1]}", *(times.get(n, "") for n in lengths), slope])
    return f"milliseconds; exponents over n ≥ 4,096\n{table(lines, left=1)}"


AGAINST = {"features": "features", "multiply_adds": "multiply-adds", "ms": "milliseconds"}


@figure
def lowrank_baselines(
    record: Record | None, *, against: str = "features", title: str | None = None
) -> Picture:
    """Error of O against features, multiply-adds or measured time, one panel per spread of the logits.

    The mean of V has one feature. Against the others, exact attention is its run with the least time. All
    runs, and the panels of the heads of a real model, are in the numbers.

    Args:
        record: the record of `python -m tools.bench lowrank`; None draws a placeholder.
        against: "features", "multiply_adds" (of a forward pass) or "ms".
        title: of the figure.

    Raises:
        ValueError: `against` is another word.
    """
    if against not in AGAINST:
        raise ValueError(f"against must be one of {', '.join(AGAINST)}, got {against!r}")
    xlabel = AGAINST[against]
    name = title or f"Error of linear attentions against {xlabel}"
    if record is None:
        return none_yet(name, "lowrank")
    named: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for problem, panel in panels_of(record["panels"]).items():
        for row in panel:
            slower = row["features"] is None and row is not fastest_exact(panel)
            if "refused" not in row and row[against] is not None and not slower:
                who = "fastest exact run" if row["features"] is None else row["contender"]
                points = named.setdefault(problem, {}).setdefault(who, [])
                points.append((float(row[against]), float(row["error"])))
    names = list(dict.fromkeys(who for panel in named.values() for who in panel))
    panels = []
    for problem, lines in named.items():
        shown = [Line(who, tuple(some), stroke_of(names.index(who)), len(some) > 1, 1)
                 for who, some in lines.items()]  # fmt: skip
        panels.append(Panel(f"error of O in %, {problem}", xlabel, shown, (10, 10)))
    return panels_picture(name, panels, _source(record), _contenders_table(record))


def _contenders_table(record: Record) -> str:
    """Format errors and times of all methods by problem, and the one with the least time below an error."""
    problems = panels_of([*record["panels"], *record["heads"]])
    counts = sorted({row["features"] or 0 for rows in problems.values() for row in rows})
    lines = [["problem", "features", *("none" if m == 0 else f"{m:,}" for m in counts)]]
    best = [["problem", *(f"fastest at ≤ {limit:g} %" for limit in LIMITS)]]
    for problem, rows in problems.items():
        for who in dict.fromkeys(row["contender"] for row in rows):
            cells = {row["features"] or 0: _cell(row) for row in rows if row["contender"] == who}
            lines.append([problem, who, *(cells.get(m, "") for m in counts)])
        best.append([problem, *(_fastest(fastest(rows, limit)) for limit in LIMITS)])
    head = "error of O in per cent, median over draws (milliseconds)"
    return f"{head}\n{table(lines, left=2)}\n\n{table(best, left=1)}"


def _cell(row: Row) -> str:
    return "refused" if "refused" in row else f"{row['error']:.3g} ({row['ms']:.2g})"


def _fastest(row: Row | None) -> str:
    if row is None:
        return DASH
    features = "" if row["features"] is None else f", {row['features']:,}"
    return f"{row['contender']}{features}: {row['ms']:.3g} ms"


# ---------------------------------------------------------------------- source
def _source(record: Record) -> str:
    return source_of(record, f", {with_unit(record['threads'], 'thread')}")


# ---------------------------------------------------------------------- bars of one row
LEFT, LONGEST, TOP, STEP, BAR = 170.0, 300.0, 102.0, 24.0, 15.0
GREY = "#BDBDBD"
FILLS = {"ours": Fill(BLUE, ""), "the script": Fill(SKY, "/"), "exact": Fill(GREY, "")}


@figure
def lowrank_times(record: Record | None, d: int = 12, g: int = 3, n: int | None = None) -> Picture:
    """Bars of milliseconds for one row at degree g, on a logarithmic scale: exact runs, the script, ours.

    A bar that is not exact is labelled with its quotient over the least exact time, the quotient of the
    multiply-adds, and the error in per cent. The metric is ‖x - y‖ / ‖x + y‖, of O, or of the largest of dQ,
    dK and dV if there is a gradient. The error of the mean of V is the control.

    Args:
        record: the record of `python -m tools.bench lowrank`; None draws a placeholder.
        d: head dimension.
        g: degree.
        n: tokens; None is the first recorded number at d, 10 · 2ᵈ for a published row.

    Raises:
        ValueError: d, g or n is not recorded; the message lists the recorded values.
    """
    if record is None:
        return none_yet("One row of the table", "lowrank")
    found = compared(record, d, g, n)
    n = tokens(record, d)[0] if n is None else n
    title = f"d = {d}, n = {n:,}, degree {g}: milliseconds of exact attention and of low rank"
    times = [one.ms for section in WHAT for row in record[section] for one in methods(row) if one.ms]
    source, note = source_of(record), "× over the fastest exact run; bars on one logarithmic scale"
    drawn: list[Element] = [Text(18, y, line, SMALL, colour=QUIET) for y, line in ((50, source), (68, note))]
    y = TOP
    for one in found:
        drawn.append(Text(18, y, one.what, NORMAL, bold=True))
        drawn += _bars(one.rows, y + 8, min(times), max(times))
        y += STEP * len(one.rows) + 40
    rows = [[one.what, *_facts(row)] for one in found for row in one.rows]
    heads = ["passes", "who", "ms", "over the fastest exact", "multiply-adds", "error"]
    sentences = ". ".join(" ".join(filter(None, [f"{what}: {who}", *others])) for what, who, *others in rows)
    return titled(
        title, (820.0, y - 10), f"{title}. {sentences}. {note}. {source}.",
        f"{table([heads, *rows], left=2)}\n{note}\n{source}", drawn,
    )  # fmt: skip


def _bars(rows: Sequence[Measured], top: float, low: float, high: float) -> Iterator[Element]:
    for at, row in enumerate(rows):
        y, end = top + STEP * at, LEFT
        yield Text(18, centred(y + BAR / 2, SMALL), row.who, SMALL)
        if row.ms is not None:
            length = 6 + LONGEST * log(row.ms / low) / max(log(high / low), 1e-9)
            fill = next(fill for name, fill in FILLS.items() if row.who.startswith(name))
            yield Rect(LEFT, y, length, BAR, *fill, INK, 0.7)
            end = LEFT + length + 8
        facts = ", ".join(filter(None, _facts(row)[1:]))
        yield Text(end, centred(y + BAR / 2, SMALL), facts, SMALL)


def _facts(row: Measured) -> list[str]:
    """Return name, milliseconds, both quotients and error as text."""
    ms = "" if row.ms is None else f"{figures(row.ms)} ms"
    quotient = "" if row.quotient is None else f"{figures(row.quotient)}×"
    adds = "" if row.multiply_adds is None else f"{figures(row.multiply_adds)}× fewer multiply-adds"
    off = "" if row.error is None else f"off by {figures(row.error)} %"
    return [row.who, ms, quotient, adds, off]


def lowrank_times_words(found: Sequence[Compared], d: int, g: int, n: int) -> str:
    """Return the headline: our forward pass compared with the baseline and the published script."""
    by_name = {row.who: row for row in found[0].rows}
    exact, ours = found[0].rows[0], found[0].rows[-1]
    script, control = by_name["the script"], by_name["mean of V"]
    better = "a smaller error" if (ours.error or 0.0) < (script.error or 0.0) else "a larger error"
    faster = "less time" if (ours.ms or 0.0) < (script.ms or 0.0) else "more time"
    quotient, adds, off, mean = (
        figures(x or 0.0) for x in (ours.quotient, ours.multiply_adds, ours.error, control.error)
    )
    return (
        f"Forward, d = {d}, n = {n:,}, degree {g}: {quotient} times as fast as the fastest exact run "
        f"({exact.who.removeprefix('exact, ')}), with {adds} times fewer multiply-adds, off by {off} % "
        f"(the mean of V: {mean} %). It has {better} and takes {faster} than the published script."
    )
