"""Figures of a record of `tools.bench depth`: error of low-rank attention over layers and at trained weights,
and training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, sqrt
from statistics import fmean
from typing import NamedTuple

import numpy as np

from ....console import number, table
from ..draw.line_chart import (
    Axis,
    Frame,
    Line,
    Panel,
    Scale,
    end_labels,
    every_line,
    frame_around,
    panels_picture,
)
from ..draw.palette import BOUND, QUIET, Stroke, stroke_of
from ..draw.picture import (
    SMALL,
    Element,
    Picture,
    Point,
    Record,
    Text,
    figure,
    none_yet,
    source_of,
    text_width,
    titled,
)
from ..draw.text import words

WIDTH, LEFT, TOP = 860.0, 78.0, 88.0
TALL, GAP = 300.0, 74.0  # height of a single chart; gap between two
UPPER, LOWER = 190.0, 240.0
AVERAGED = 10  # consecutive steps averaged to one point of a loss curve
LEAST = 1e-5  # losses are recorded to five digits; smaller differences are drawn at this value
HEAD = (
    "attention", "last loss", "largest difference", "validation, own", "validation, exact", "largest logit",
)  # fmt: skip
KEPT = ("validation_own", "validation_exact", "largest_logit")  # keys in a record of the last columns of HEAD
ERRORS = {
    "output": "scores",
    "dX": "gradient with respect to the input",
    "parameters": "gradient with respect to all parameters",
    "W_QK": "gradient with respect to W_Q and W_K",
}
TRAINED = "trained"


# ---------------------------------------------------------------------- error over layers
@figure
def depth_errors(record: Record | None, *, what: str = "parameters", title: str | None = None) -> Picture:
    """Relative error against the number of layers m, one line per degree, with √m and eᵐ for comparison.

    Args:
        record: the record of `python -m tools.bench depth`, or a new measurement {"layers": …}; None draws a
            placeholder.
        what: "output", "dX", "parameters" or "W_QK"; or "trained": charts of the gradient with respect to all
            parameters during training, with the errors of single layers and of all together.
        title: of the figure.

    Raises:
        ValueError: unknown `what`.
    """
    if what == TRAINED:
        return _trained_picture(record, title or "Error of the gradient at trained weights")
    if what not in ERRORS:
        raise ValueError(f"what must be one of {', '.join([*ERRORS, TRAINED])}, got {what!r}")
    name = title or f"Error over layers: {ERRORS[what]}"
    if record is None:
        return none_yet(name, "depth")
    errors = _by_degree(record["layers"]["rows"], what)
    dots = [Line(f"g = {g}", points, stroke_of(k), False, 1) for k, (g, points) in enumerate(errors.items())]
    laws = [law for line in dots for law in _laws(line, line is dots[-1])]
    chart = _chart([*laws, *dots], TOP, TALL, ("number of layers m", "relative error"), (2, 10))
    said = []
    for line in dots:
        (m, error), (last_m, last) = line.points[0], line.points[-1]
        said.append(
            f"For {line.label} the error grows from {error:.2g} at {words(m)} to {last:.2g} at "
            f"{words(last_m)} layers, by a factor of {last / error:.2g}; √m predicts {sqrt(last_m / m):.2g}."
        )
    alt = f"{name}: {' '.join(said)} Reference lines grow as √m, and one as eᵐ."
    return _measured_picture(name, record, chart, TOP + TALL, alt, _errors_table(errors))


def _by_degree(rows: Sequence[Record], what: str) -> dict[int, tuple[Point, ...]]:
    """Return by degree the points (layers, error), root mean square over seeds.

    Only rows whose gradient has the same degree are used.
    """
    found: dict[int, dict[int, list[float]]] = {}
    for row in rows:
        if row["gradient_degree"] == row["degree"]:
            found.setdefault(row["degree"], {}).setdefault(row["layers"], []).append(row[what])
    return {
        g: tuple((float(m), _mean(errors)) for m, errors in sorted(by.items()))
        for g, by in sorted(found.items())
    }


def _laws(line: Line, last: bool) -> Iterator[Line]:
    """Yield the reference lines from the first point on: √m, and for one degree also eᵐ, up to 6 layers."""
    (first, error), (stop, _) = line.points[0], line.points[-1]
    places = np.linspace(first, stop, 45)
    points = tuple((float(m), error * sqrt(m / first)) for m in places)
    yield Line("~ √m", points, Stroke(line.stroke.colour, (5, 4), ""), marker_every=0)
    if last:
        steep = tuple((float(m), error * exp(m - first)) for m in places if m - first < 6)
        yield Line("~ eᵐ", steep, Stroke(line.stroke.colour, (2, 3), ""), marker_every=0)


def _errors_table(errors: Mapping[int, tuple[Point, ...]]) -> str:
    places = [m for m, _ in next(iter(errors.values()))]
    rows = [["layers", *[f"g = {g}" for g in errors], "√m", "eᵐ / e"]]
    for k, m in enumerate(places):
        cells = [f"{points[k][1]:.2e}" for points in errors.values()]
        rows.append([words(m), *cells, f"{sqrt(m):.2f}", f"{exp(m - 1):,.1f}"])
    return table(rows, left=0)


# ---------------------------------------------------------------------- gradient at trained weights
def _trained_picture(record: Record | None, name: str) -> Picture:
    """Return the figure of the section `trained_gradient`."""
    part = (record or {}).get("trained_gradient")
    if record is None or part is None:
        return none_yet(name, "depth")
    by_bound: dict[float | None, list[Record]] = {}
    for row in part["rows"]:
        by_bound.setdefault(row["bound"], []).append(row)
    degrees = sorted({row["degree"] for row in part["rows"]})
    middle = degrees[len(degrees) // 2]  # one degree, because the error of a layer depends on it as well
    joint, alone, over_steps = [], [], []
    for k, (bound, rows) in enumerate(by_bound.items()):
        label, stroke = _logits(bound), stroke_of(3 + k)  # the first three belong to the degrees
        points = tuple((row["root_of_squares"], row["together"]) for row in rows)
        joint.append(Line(label, points, stroke, False, 1))
        some = [row for row in rows if row["degree"] == middle]
        pairs = tuple(pair for row in some for pair in zip(row["sigma"], row["alone"], strict=True))
        alone.append(Line(label, pairs, stroke, False, 1))
        over_steps.append(Panel(f"error of all layers together, {label}", "step", _steps(rows), (None, 10)))
    ends = [end for line in joint for point in line.points for end in point]
    diagonal = Line("equal", ((min(ends),) * 2, (max(ends),) * 2), BOUND, marker_every=0)
    panels = [
        Panel("error of all layers together", "root of sum of squares", [diagonal, *joint], (10, 10)),
        Panel(f"error of one layer alone, g = {middle}", "σ of its logits", alone, (10, 10)),
        *over_steps,
    ]
    ratios = [row["together"] / row["root_of_squares"] for row in part["rows"]]
    note = (
        "The error of all layers together is "
        f"{min(ratios):.2f} to {max(ratios):.2f} times the root of the sum of squares of the errors of the "
        f"layers alone, in {len(ratios)} cases. Errors over steps are root mean squares over seeds."
    )
    source = source_of(part if "date" in part else record)
    return panels_picture(name, panels, source, _trained_table(by_bound), note)


def _logits(bound: float | None) -> str:
    return "free logits" if bound is None else f"logits within ±{bound:g}"


def _steps(rows: Sequence[Record]) -> list[Line]:
    """Return one line per degree: `together` against the step, root mean square over seeds."""
    lines = []
    for k, degree in enumerate(sorted({row["degree"] for row in rows})):
        at: dict[int, list[float]] = {}
        for row in rows:
            if row["degree"] == degree:
                at.setdefault(row["step"], []).append(row["together"])
        points = tuple((float(step), _mean(errors)) for step, errors in sorted(at.items()))
        lines.append(Line(f"g = {degree}", points, stroke_of(k), marker_every=1))
    return lines


def _mean(values: Sequence[float]) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def _trained_table(by_bound: Mapping[float | None, Sequence[Record]]) -> str:
    lines = [["logits", "step", "g", "σ", "one layer alone", "root", "together"]]
    for bound, rows in by_bound.items():
        for step, g in sorted({(row["step"], row["degree"]) for row in rows}):
            some = [row for row in rows if (row["step"], row["degree"]) == (step, g)]
            spans = (
                (min(values), max(values))
                for values in ([x for row in some for x in row[key]] for key in ("sigma", "alone"))
            )
            ends = (f"{low:.2g} to {high:.2g}" for low, high in spans)
            means = (f"{_mean([row[key] for row in some]):.3g}" for key in ("root_of_squares", "together"))
            lines.append([_logits(bound), str(step), str(g), *ends, *means])
    return table(lines)


# ---------------------------------------------------------------------- training
class _Run(NamedTuple):
    """One training run: label, losses, and the distance of each loss from that of exact attention."""

    label: str
    losses: tuple[float, ...]
    off: tuple[float, ...]
    record: Record


@figure
def training_curves(record: Record | None, bound: float | None = 2.0, *, title: str | None = None) -> Picture:
    """Loss curves, and below them the difference of each to exact attention, 10 steps per point.

    Args:
        record: the record of `python -m tools.bench depth`, or a part {"training": {"runs": …}}; None draws a
            placeholder.
        bound: bound of the logits in the runs to show; None for runs without a bound.
        title: of the figure.

    Raises:
        ValueError: the record has no run of exact attention with this bound.
    """
    limit = "unbounded logits" if bound is None else f"logits within ±{bound:g}"
    name = title or f"Training with exact and approximate attention, {limit}"
    if record is None:
        return none_yet(name, "depth")
    exact, others = _runs(record["training"]["runs"], bound)
    curves = [Line("exact", _by_parts(exact.losses, fmean), BOUND, marker_every=0)]
    below = []
    for k, run in enumerate(others):
        curves.append(Line(run.label, _by_parts(run.losses, fmean), stroke_of(k), marker_every=0))
        largest = _by_parts([max(LEAST, off) for off in run.off], max)
        below.append(Line(run.label, largest, stroke_of(k), marker_every=max(1, len(run.off) // 60)))
    chart = _chart(curves, TOP, UPPER, ("", "loss (nats per character)"), (None, None), labelled=curves[:1])
    bottom = TOP + UPPER
    if below:
        axes = ("training step", "largest difference to exact")
        chart += _chart(below, bottom + GAP, LOWER, axes, (None, 10))
        bottom += GAP + LOWER
    said = [f"The last loss of exact attention is {exact.losses[-1]:.3f}."]
    said += [f"{run.label}: the largest difference is {max(run.off):.2g}." for run in others]
    rows: list[Sequence[str]] = [HEAD]
    for run in (exact, *others):
        kept = (number(run.record.get(key), 4) for key in KEPT)
        rows.append([run.label, f"{run.losses[-1]:.4f}", f"{max(run.off):.5f}", *kept])
    return _measured_picture(name, record, chart, bottom, f"{name}. {' '.join(said)}", table(rows, left=0))


def _runs(runs: Sequence[Record], bound: float | None) -> tuple[_Run, list[_Run]]:
    """Return the run of exact attention with this bound, and the other runs."""
    some = [run for run in runs if run["bound"] == bound]
    exact = next((run for run in some if run["attention"] == "exact"), None)
    if exact is None:
        there = list(dict.fromkeys(run["bound"] for run in runs))
        raise ValueError(f"bound must be one of {there} (recorded runs of exact attention), got {bound}")
    found = []
    for run in some:
        label = run["attention"] + (f", g = {run['degree']}" if run["degree"] else "")
        off = tuple(abs(a - b) for a, b in zip(run["losses"], exact["losses"], strict=True))
        found.append(_Run(label, tuple(run["losses"]), off, run))
    return next(run for run in found if run.label == "exact"), [run for run in found if run.label != "exact"]


def _by_parts(values: Sequence[float], of: Callable[[Sequence[float]], float]) -> tuple[Point, ...]:
    """Return one point for every 10 values, at the last of their steps."""
    parts = [(at, values[at : at + AVERAGED]) for at in range(0, len(values), AVERAGED)]
    return tuple((float(at + len(part)), of(part)) for at, part in parts)


# ---------------------------------------------------------------------- both
def _measured_picture(
    name: str, record: Record, chart: Sequence[Element], bottom: float, alt: str, numbers: str
) -> Picture:
    """Return the figure with title, source line and charts; `bottom` is the end of the last chart."""
    source = source_of(record)
    size = max(WIDTH, 36 + text_width(source, SMALL)), bottom + 58
    drawn = (Text(18, 52, source, SMALL, colour=QUIET), *chart)
    return titled(name, size, alt.strip(), f"{numbers}\n{source}", drawn)


def _chart(
    lines: Sequence[Line],
    top: float,
    height: float,
    axes: tuple[str, str],
    bases: tuple[int | None, int | None],
    labelled: Sequence[Line] | None = None,
) -> list[Element]:
    """Return one chart; the lines `labelled` (default: all) get end labels."""
    frame = frame_around(lines, Axis(LEFT, WIDTH - 210, bases[0]), Axis(top + height, top, bases[1], 1.25))
    if bases[1] is None:
        ys = [y for line in lines for _, y in line.points]
        frame = Frame(frame.x, Scale(min(ys), max(max(ys), min(ys) + LEAST), top + height, top))  # without 0
    labels = end_labels(frame, lines if labelled is None else labelled)
    return [*frame.elements(*axes), *every_line(frame, lines), *labels]
