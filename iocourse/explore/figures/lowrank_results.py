"""A recorded run of `tools.bench lowrank`: the published rows, how time grows, and who else there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...console import counted, table
from ..draw.line_chart import Line, Panel, panels_picture
from ..draw.palette import BLACK, QUIET, Stroke, stroke_of
from ..draw.picture import Picture, Record, figure, none_yet, source_of
from ..models.lowrank_record import FASTER_EXACT

Row = Mapping[str, Any]
ELSEWHERE = "published (forward), another machine"
PUBLISHED = Stroke(BLACK, (), "square")
THEIRS = Stroke(QUIET, (5, 3), "plus")
EXTRAPOLATED = Stroke(QUIET, (2, 4), "")
SECTIONS = ("forward", "gradient", "causal")
PASSES = ("forward", "forward+backward")


@figure
def lowrank_rows(record: Record | None, *, section: str = "forward", title: str | None = None) -> Picture:
    """Error and speed-up of each published row, ours of every degree beside what was published elsewhere.

    All speed-ups but the published ones are over one baseline, the record's faster exact softmax attention.
    Errors are in the published metric, ‖x - y‖ / ‖x + y‖, and of softmax, as the times are: forward of O;
    gradient the worst of dQ, dK, dV with the time of both passes; causal O with the time of the forward pass.

    Args:
        record: of `tools.bench lowrank`, as `recorded("lowrank")` gives it; None: the picture says so.
        section: "forward", "gradient" or "causal".
        title: of the picture.

    Raises:
        ValueError: another section, or one without rows.
    """
    if section not in SECTIONS:
        raise ValueError(f"section is {section!r}; allowed: {', '.join(SECTIONS)}")
    name = title or f"Low rank beside the published rows: {section}"
    if record is None:
        return none_yet(name, "lowrank")
    rows: Sequence[Row] = record[section]
    if not rows:
        raise ValueError(f"record has no rows of {section}")
    error, speed = _READ[section]
    lines = [_row_lines(rows, error, "published_error"), _row_lines(rows, speed, "published_speedup")]
    if section == "forward":
        points = tuple((float(row["d"]), row["baseline_ms"] / row["their_ms"]) for row in rows)
        lines[1].append(Line("their algorithm here", points, THEIRS, marker_every=1))
    panels = [
        Panel("error in their metric, %", "d (n = 10 · 2ᵈ)", lines[0], (None, 10)),
        Panel("speed-up over exact attention", "d (n = 10 · 2ᵈ)", lines[1], (None, 10)),
    ]
    return panels_picture(name, panels, _source(record), _rows_table(rows, error, speed), FASTER_EXACT)


_READ: dict[str, tuple[Callable[[Row], float], Callable[[Row], float]]] = {
    "forward": (lambda one: float(one["judged_error"]), lambda one: float(one["speedup"])),
    "gradient": (lambda one: float(one["worst"]), lambda one: float(one["speedup"])),
    "causal": (lambda one: float(one["their_errors"]["O"]), lambda one: float(one["forward_speedup"])),
}


def _points(rows: Sequence[Row], key: str) -> tuple[tuple[float, float], ...]:
    return tuple((float(row["d"]), float(row[key])) for row in rows if row[key] is not None)


def _row_lines(rows: Sequence[Row], number: Callable[[Row], float], published: str) -> list[Line]:
    """A line for what was published and one for each degree."""
    lines = [Line(ELSEWHERE, _points(rows, published), PUBLISHED, marker_every=1)]
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
    """Milliseconds against tokens, both logarithmic, forward and forward with backward; SDPA as far as it was
    measured, and beyond that its line through n ≥ 2¹³, which is extrapolated.

    Args:
        record: of `python -m tools.bench lowrank`; None: the picture says that there is no recorded run yet.
        title: of the picture.
    """
    name = title or "Time against tokens, low rank and exact"
    if record is None:
        return none_yet(name, "lowrank")
    rows = [row for row in record["scaling"] if row["threads"] == record["threads"]]
    last = max(row["n"] for row in rows)
    panels = []
    for pass_ in PASSES:
        some = [row for row in rows if row["pass"] == pass_]
        fits = [fit for fit in record["fits"] if fit["pass"] == pass_ and fit["contender"] == "SDPA"]
        lines = [*_length_lines(some), *_extrapolated(fits, last)]
        panels.append(Panel(f"milliseconds, {pass_}", "tokens n", lines, (10, 10)))
    return panels_picture(name, panels, _source(record), _lengths_table(rows, record["fits"]))


def _kind(row: Row) -> str:
    degree = "" if row["g"] is None else f", g = {row['g']}"
    return f"{row['contender']}, d = {row['d']}{degree}"


def _length_lines(rows: Sequence[Row]) -> list[Line]:
    kinds = sorted({_kind(row) for row in rows}, key=lambda kind: (kind.startswith("SDPA"), kind))
    return [
        Line(
            kind, tuple((float(row["n"]), float(row["ms"])) for row in rows if _kind(row) == kind),
            stroke_of(at), marker_every=1,
        )
        for at, kind in enumerate(kinds)
    ]  # fmt: skip


def _extrapolated(fits: Sequence[Row], last: int) -> list[Line]:
    """From the last measured length on, one line for each d; all under one name."""
    return [
        Line(
            "SDPA, extrapolated",
            tuple((float(n), fit["ms_at_1"] * n ** fit["exponent"]) for n in (fit["to"], last)),
            EXTRAPOLATED, marker_every=0,
        )
        for fit in fits
        if fit["to"] < last and fit["threads"] == 1
    ]  # fmt: skip


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
def lowrank_contenders(
    record: Record | None, *, against: str = "features", title: str | None = None
) -> Picture:
    """Error of O against the number of features, or against measured time; a panel for each spread of logits.

    Args:
        record: of `python -m tools.bench lowrank`; None: the picture says that there is no recorded run yet.
        against: "features" or "ms".
        title: of the picture.

    Raises:
        ValueError: `against` is neither.
    """
    if against not in ("features", "ms"):
        raise ValueError(f"against is {against!r}; allowed: features, ms")
    name = title or f"Error of linear attentions against {'features' if against == 'features' else 'time'}"
    if record is None:
        return none_yet(name, "lowrank")
    rows = [row for row in record["panels"] if "refused" not in row and row[against] is not None]
    names = list(dict.fromkeys(row["contender"] for row in rows))
    panels = []
    for spread in dict.fromkeys(row["spread"] for row in rows):
        some = [row for row in rows if row["spread"] == spread]
        lines = [_contender(some, who, against, at) for at, who in enumerate(names)]
        shown = [line for line in lines if line.points]
        xlabel = "features" if against == "features" else "milliseconds"
        panels.append(Panel(f"error of O in %, logits spread by {spread:g}", xlabel, shown, (10, 10)))
    return panels_picture(name, panels, _source(record), _contenders_table(record["panels"]))


def _contender(rows: Sequence[Row], who: str, against: str, position: int) -> Line:
    points = tuple((float(row[against]), float(row["error"])) for row in rows if row["contender"] == who)
    return Line(who, points, stroke_of(position), len(points) > 1, 1)


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
    return f"error of O in per cent, the median over draws (milliseconds)\n{table(lines, left=0)}"


# ---------------------------------------------------------------------- in words
def _source(record: Record) -> str:
    return source_of(record, f", {counted(record['threads'], 'thread')}")
