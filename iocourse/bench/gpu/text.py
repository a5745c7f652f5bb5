"""The result of a benchmark of kernels as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from iocourse.data.recorded import provenance

from .judging import OURS, PASSES

Result = dict[str, Any]
Row = dict[str, Any]
SHORT = {
    "ours, deterministic": "ours, det.",
    "ours, materialised": "ours, mater.",
    "ours, whole rows": "ours, whole",
    "FlexAttention": "Flex",
    "tutorial, warp-specialised": "tut., warp",
}
DASH = "–"
COLUMN = 16


class Layout(NamedTuple):
    """How the rows of a result become tables.

    Attributes:
        tables: keys whose values name a table.
        lines: keys whose values name a line of it.
        figure: the key of what is shown of every contender.
        unit: of that figure.
        last: more of ours at the end of a line: key and heading.
        rival: whom the means are relative to.
        checked: what the errors were measured on.
    """

    tables: tuple[str, ...]
    lines: tuple[str, ...]
    figure: str
    unit: str
    last: tuple[tuple[str, str], ...]
    rival: str = ""
    checked: str = "one head of every shape"


def text(result: Result, layout: Layout, *more: str) -> str:
    """All tables, one below the other, `more` before the goals, and where it was measured."""
    parts = [
        *_tables(result, layout), _means(result, layout), _errors(result, layout), _refusals(result), *more,
        _goals(result), provenance(result),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def number(x: float | None, digits: int) -> str:
    """A number with so many digits after the point, a dash where there is none."""
    return DASH if x is None else f"{x:.{digits}f}"


def _tables(result: Result, layout: Layout) -> Iterator[str]:
    """The figure of every contender, one row a shape."""
    rows = result["rows"]
    for key in _kinds(rows, layout.tables):
        some = [row for row in rows if _of(row, layout.tables) == key]
        names = [name for name in result["contenders"] if any(row["contender"] == name for row in some)]
        about = ", ".join(_said(name, value) for name, value in zip(layout.tables, key, strict=True))
        yield "\n".join([f"{layout.unit}, {about}", *_table(some, names, layout)])


def _table(rows: Sequence[Row], names: Sequence[str], layout: Layout) -> Iterator[str]:
    widths = [
        2 + max(len(name), *(len(_cell(row[name])) for row in rows)) if name != "causal" else 8
        for name in layout.lines
    ]
    # A column of full and causal needs no heading.
    heads = ["" if name == "causal" else name for name in layout.lines]
    left = "".join(f"{head:<{width}}" for head, width in zip(heads, widths, strict=True))
    middle = "".join(f"{SHORT.get(name, name):>{COLUMN}}" for name in names)
    yield left + middle + "".join(f"{head:>{len(head) + 3}}" for _, head in layout.last)
    for key in _kinds(rows, layout.lines):
        here = {row["contender"]: row for row in rows if _of(row, layout.lines) == key}
        left = "".join(f"{_cell(value):<{width}}" for value, width in zip(key, widths, strict=True))
        middle = "".join(f"{number(here.get(name, {}).get(layout.figure), 1):>{COLUMN}}" for name in names)
        ours = here.get(OURS, {})
        yield left + middle + "".join(f"{number(ours.get(x), 2):>{len(y) + 3}}" for x, y in layout.last)


def _kinds(rows: Sequence[Row], keys: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(_of(row, keys) for row in rows))


def _of(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[key] for key in keys)


def _cell(value: Any) -> str:
    return {True: "causal", False: "full"}[value] if isinstance(value, bool) else str(value)


def _said(name: str, value: Any) -> str:
    return f"{name} = {value}" if isinstance(value, int) and not isinstance(value, bool) else _cell(value)


def _means(result: Result, layout: Layout) -> str:
    """One row a contender, one column a pass and head size; a block for whatever else differs."""
    rows = result.get("means", [])
    others = tuple(key for key in layout.tables if key not in ("pass", "d"))
    blocks = []
    for kind in _kinds(rows, others):
        some = [row for row in rows if _of(row, others) == kind]
        columns = [(pass_, d) for pass_ in PASSES for d in sorted({row["d"] for row in some})]
        about = ", ".join(_said(name, value) for name, value in zip(others, kind, strict=True))
        lines = [
            f"times as fast as {layout.rival}, geometric mean over shapes (how many), {about}",
            f"{'':<28}" + "".join(f"{f'{pass_}, {d}':>23}" for pass_, d in columns),
        ]
        for name in dict.fromkeys(row["contender"] for row in some):
            mine = {(row["pass"], row["d"]): row for row in some if row["contender"] == name}
            cells = (
                f"{mine[key]['ratio']:.3f} ({mine[key]['shapes']})" if key in mine else DASH
                for key in columns
            )
            lines.append(f"{name:<28}" + "".join(f"{cell:>23}" for cell in cells))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _errors(result: Result, layout: Layout) -> str:
    """The largest relative error of each contender over all shapes."""
    rows = result["errors"]
    if not rows:
        return ""
    what = [
        key for key in ("O", "dQ", "dK", "dV", "worst_block") if any(row.get(key) is not None for row in rows)
    ]
    lines = [
        f"largest relative error against float64, {layout.checked}",
        f"{'':<40}" + "".join(f"{name.replace('_', ' '):>13}" for name in what) + f"{'bit-equal':>13}",
    ]
    for dtype, name in _kinds(rows, ("dtype", "contender")):
        some = [row for row in rows if (row["dtype"], row["contender"]) == (dtype, name)]
        found = ([row[key] for row in some if key in row] for key in what)
        cells = "".join(f"{max(values):>13.1e}" if values else f"{DASH:>13}" for values in found)
        equal = [row["bit_equal"] for row in some if "bit_equal" in row]
        said = f"{sum(equal)} of {len(equal)}" if equal else DASH
        lines.append(f"{f'{dtype} {name}':<40}{cells}{said:>13}")
    return "\n".join(lines)


def _refusals(result: Result) -> str:
    """Each reason once, with how many rows it stands for."""
    counts: dict[tuple[str, str], int] = {}
    for row in [*result["rows"], *result.get("density_rows", [])]:
        if "refused" in row:
            key = (f"{row['contender']}, {row['dtype']}", row["refused"])
            counts[key] = counts.get(key, 0) + 1
    lines = [f"{who} ({count} rows): {reason}" for (who, reason), count in counts.items()]
    return "\n".join(["not timed", *lines]) if lines else ""


def _goals(result: Result) -> str:
    """Every goal with its floor, what was reached, and the verdict."""
    width = 2 + max(len(goal["what"]) for goal in result["goals"])
    lines = [
        f"goals, stated for an {result['goals_stated_for']}; this is {result['device']['name']}",
        f"{'':<{width}}{'reached':>9}{'goal':>7}{'floor':>7}",
    ]
    for goal in result["goals"]:
        numbers = f"{number(goal['reached'], 3):>9}{goal['goal']:>7.2f}{number(goal['floor'], 2):>7}"
        lines.append(f"{goal['what']:<{width}}{numbers}  {goal['verdict']}")
    return "\n".join(lines)
