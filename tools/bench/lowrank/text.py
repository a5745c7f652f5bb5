"""Plain-text report of the record of `python -m tools.bench lowrank`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from iocourse.console import DASH, paragraphs, table
from iocourse.course.explore.models.lowrank_record import FASTER_EXACT, LIMITS, fastest, panels_of
from iocourse.data.records import record_source
from tools.bench import Row, grouped
from tools.bench.lowrank.goals import JUDGED, goals, script_speedup

BUSY = 0.5  # tolerated excess of the load over the number of cores


def text(record: Row) -> str:
    """Format all tables, the goals, and the source of the measurement."""
    return paragraphs(
        _forward(record["forward"]), _gradient(record["gradient"]), _causal(record["causal"]),
        _scaling(record), _panels([*record["panels"], *record.get("heads", ())]),
        _goals(record),
        "\n".join(_said(record)),
    )  # fmt: skip


def _ms(x: float | None) -> str:
    """Format milliseconds with three significant digits, or as an integer from one second on."""
    return DASH if x is None else f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def _times(x: float | None) -> str:
    return DASH if x is None else f"{x:,.0f}×" if x >= 1000 else f"{x:.3g}×"


def _per_cent(x: float | None) -> str:
    return DASH if x is None else f"{x:.3f}" if x < 100 else f"{x:.0f}"


def _name(row: Row) -> str:
    return f"{row['d']}, {row['n']:,}"


def _published(row: Row) -> str:
    return f"{row['published_error']:.3f}, {row['published_speedup']:g}×"


def _forward(rows: Sequence[Row]) -> str:
    head = [
        "forward: d, n", "in place", "SDPA", "script: error*", "ms", "speed-up", "g", "error*", "ms",
        "speed-up", "torch", "usual", "their operator: error*", "ms", "published elsewhere",
    ]  # fmt: skip

    def line(row: Row, one: Row) -> list[str]:
        script = [_per_cent(row["their_error"]), _ms(row["their_ms"]), _times(script_speedup(row))]
        return [
            _name(row), _ms(row["in_place_ms"]), _ms(row["sdpa_ms"]), *script,
            str(one["g"]), _per_cent(one["judged_error"]), *_speed(one), _per_cent(one["error"]),
            _per_cent(one["their_error"]), _ms(one["their_operator_ms"]), _published(row),
        ]  # fmt: skip

    notes = [
        "one baseline: every speed-up is over exact softmax of this run, the faster of in place and SDPA.",
        FASTER_EXACT,
        "script: the published algorithm, reimplemented, with the error of that operator, which is not",
        "softmax; their operator: ours on it, in two passes; ours from arrays, and from tensors (torch)",
        "milliseconds, with every check; errors in per cent, with * ‖x - y‖ / ‖x + y‖, the published metric",
        "published elsewhere: on another machine, over another exact attention; not to be divided by these",
        *_skipped(rows),
    ]
    return "\n".join([_by_degree(head, rows, line, once=(0, 1, 2, 3, 4, 5, 14)), *notes])


def _by_degree(
    head: list[str], rows: Sequence[Row], line: Callable[[Row, Row], list[str]], once: Sequence[int]
) -> str:
    """Format one line per row and degree; the columns `once` are filled only in the first line of a row."""
    lines = [head]
    for row in rows:
        for at, one in enumerate(row["degrees"]):
            cells = enumerate(line(row, one))
            lines.append(["" if at and column in once else cell for column, cell in cells])
    return table(lines)


def _speed(one: Row) -> list[str]:
    """Format milliseconds and speed-up from arrays, and the speed-up from tensors."""
    return [_ms(one["ms"]), _times(one["speedup"]), _times(one["torch_speedup"])]


def _skipped(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the reasons for missing in-place times, each once."""
    yield from dict.fromkeys(
        f"in place: {row['in_place_note']}" for row in rows if row["in_place_ms"] is None
    )


def _gradient(rows: Sequence[Row]) -> str:
    head = [
        "forward+backward: d, n", "in place", "SDPA", "g", "worst*", "ms", "speed-up", "torch",
        "O", "dQ", "dK", "dV",
    ]  # fmt: skip

    def line(row: Row, one: Row) -> list[str]:
        left = [_name(row), _ms(row["in_place_ms"]), _ms(row["sdpa_ms"])]
        errors = map(_per_cent, one["errors"].values())
        return [*left, str(one["g"]), _per_cent(one["worst"]), *_speed(one), *errors]

    notes = [
        "softmax; * of dQ, dK, dV, in the published metric; O, dQ, dK, dV: usual relative errors",
        "in place: a hand-written exact gradient that computes each score once and knows dO from the start;",
        "speed-ups over the faster of it and SDPA's autograd; the published script has no gradient",
        FASTER_EXACT,
        *_skipped(rows),
    ]
    return "\n".join([_by_degree(head, rows, line, once=range(3)), *notes])


def _causal(rows: Sequence[Row]) -> str:
    head = [
        "causal: d, n", "SDPA", "forward", "g", "forward ms", "speed-up", "both ms", "speed-up", "torch",
        "O", "dQ", "dK", "dV",
    ]  # fmt: skip

    def line(row: Row, one: Row) -> list[str]:
        left = [_name(row), _ms(row["sdpa_ms"]), _ms(row["sdpa_forward_ms"])]
        alone = [str(one["g"]), _ms(one["forward_ms"]), _times(one["forward_speedup"])]
        return [*left, *alone, *_speed(one), *map(_per_cent, one["errors"].values())]

    notes = [
        "usual relative errors in per cent; SDPA: both passes, and forward alone",
        FASTER_EXACT,
        *_skipped(rows),
    ]
    return "\n".join([_by_degree(head, rows, line, once=range(3)), *notes])


def _scaling(record: Row) -> str:
    rows, keys = record["scaling"], ("contender", "d", "g", "threads", "pass")
    lengths, fits = sorted({row["n"] for row in rows}), grouped(record["fits"], keys)
    lines = [["milliseconds at n", *(_power(n) for n in lengths), "exponent"]]
    for kind, some in grouped(rows, keys).items():
        here = {row["n"]: row["ms"] for row in some}
        exponent = f"{fits[kind][0]['exponent']:.3f}" if kind in fits else DASH
        lines.append([_kind(*kind), *(_ms(here.get(n)) for n in lengths), exponent])
    errors = (
        f"d = {row['d']}, g = {row['g']}, {_power(row['n'])}: O {row['O']:.3f} %, dQ {row['dQ']:.3f} %"
        for row in record["scaling_errors"]
        if row["n"] in (lengths[0], lengths[-1])
    )
    extra = (_extrapolated(fit, lengths[-1]) for fit in record["fits"] if fit["to"] < lengths[-1])
    found = ["exponents over n ≥ 2¹³", "errors at sampled queries: " + "; ".join(errors), *extra]
    return "\n".join([table(lines), *found, _memory(record["memory"])])


def _kind(who: str, d: int, g: int | None, threads: int, pass_: str) -> str:
    degree = "" if g is None else f", g = {g}"
    return f"{who}, d = {d}{degree}, {threads} thread{'s' * (threads != 1)}, {pass_}"


def _power(n: int) -> str:
    small = str(n.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"2{small}" if n & (n - 1) == 0 else f"{n:,}"


def _extrapolated(fit: Row, n: int) -> str:
    seconds = fit["ms_at_1"] * n ** fit["exponent"] / 1000
    kind = _kind(fit["contender"], fit["d"], fit["g"], fit["threads"], fit["pass"])
    return f"extrapolated, not measured: {kind} at {_power(n)}: {seconds:,.0f} s"


def _memory(found: Row) -> str:
    about = f"peak memory of a gradient, n = {found['n']:,}, d = {found['d']}, g = {found['g']}"
    if "refused" in found:
        return f"{about}: not measured, {found['refused']}"
    return (
        f"{about}: grown by {found['grown'] / 1e6:,.0f} MB; inputs, outputs, gradients and states are "
        f"{found['held'] / 1e6:,.0f} MB: {found['ratio']:.3f}×"
    )


def _panels(rows: Sequence[Row]) -> str:
    """Format a table per problem, and the fastest method below some errors."""
    blocks, best = [], [["fastest at an error of at most", *(f"{limit:g} %" for limit in LIMITS)]]
    for problem, panel in panels_of(rows).items():
        some = {(row["contender"], row["features"]): row for row in panel}
        counts = sorted({m for _, m in some if m is not None})
        names = dict.fromkeys(row["contender"] for row in panel)
        lines = [[f"{problem}: features", "none", *map(str, counts)]]
        lines += [[name, *(_cell(some.get((name, m))) for m in (None, *counts))] for name in names]
        blocks.append(table(lines))
        best.append([problem, *(_fastest(fastest(panel, limit)) for limit in LIMITS)])
    notes = (
        "relative error of O in per cent, values of mean 0, the median over draws (milliseconds)\n"
        "Nyström and WildCat compute in float64: their milliseconds are not those of float32"
    )
    return "\n\n".join([*blocks, table(best), notes])


def _fastest(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return DASH
    features = "" if row["features"] is None else f", {row['features']:,}"
    return f"{row['contender']}{features}: {_ms(row['ms'])} ms"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    return "refused" if "refused" in row else f"{row['error']:.3g} ({row['ms']:.2g})"


def _goals(record: Row) -> str:
    lines = [["goals", "wanted", "reached", ""]]
    lines += [[row[key] for key in ("what", "wanted", "reached", "verdict")] for row in goals(record)]
    return "\n".join([table(lines), *JUDGED, FASTER_EXACT])


def _said(record: Row) -> Iterator[str]:
    threads = record["threads"]
    yield (
        f"{'a quick run, ' * record['quick']}{threads} thread{'s' * (threads != 1)} for all, ours with "
        f"{record['engine']}; warm, interleaved, medians, freed memory kept; {record['seconds']} s in total"
    )
    load, cores = record["load"], record["cores"]
    if load is not None and load + threads > cores + BUSY:
        yield (
            f"other programs were running at the start (load {load:.1f}, {cores} cores). They slow long "
            "laps more than short ones, so the speed-ups here are too large"
        )
    yield record_source(record)
