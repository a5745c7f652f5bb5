"""The result of a benchmark of kernels as plain text."""

from __future__ import annotations

from collections.abc import Iterator

from iocourse.console import DASH, number, paragraphs, table
from iocourse.data.recorded import provenance
from tools.bench import Row, grouped
from tools.bench.gpu.contenders import FIRST, FLEX, SPECIALISED
from tools.bench.gpu.judging import PASSES, Layout, about, cell

SHORT = {FLEX: "Flex", SPECIALISED: "tut., warp"}


def text(result: Row, layout: Layout, *more: str) -> str:
    """All tables, one below the other, `more` before the goals, and where it was measured."""
    return paragraphs(
        *_tables(result, layout), *_means(result, layout), _errors(result, layout), _refusals(result), *more,
        _goals(result), cut_off(result), provenance(result),
    )  # fmt: skip


def done_of(record: Row) -> tuple[int, int, str]:
    """How much a record holds of how much that was asked for, and of what."""
    if "kernels" in record and "asked" in record:  # of tune
        return len(record["kernels"]), record["asked"], "kernels"
    counted = record.get("shapes", {"asked": 1, "done": 1})
    return counted["done"], counted["asked"], "shapes"


def cut_off(record: Row) -> str:
    """That a run was cut off, where it was."""
    done, asked, what = done_of(record)
    return f"cut off after {done} of {asked} {what}" if done < asked else ""


def _tables(result: Row, layout: Layout) -> Iterator[str]:
    """The figure of every contender, one row a shape."""
    # A column of full and causal needs no heading.
    heads = ["" if name == "causal" else name for name in layout.lines]
    for kind, rows in grouped(result["rows"], layout.tables).items():
        names = [name for name in result["contenders"] if any(row["contender"] == name for row in rows)]
        lines = [[*heads, *(SHORT.get(name, name) for name in names), *(head for _, head in layout.last)]]
        for shape, some in grouped(rows, layout.lines).items():
            here = {row["contender"]: row for row in some}
            figures = (number(here.get(name, {}).get(layout.figure), 1) for name in names)
            first: Row = next((here[name] for name in FIRST if name in here), {})
            last = (number(first.get(key), 2) for key, _ in layout.last)
            lines.append([*map(cell, shape), *figures, *last])
        yield f"{layout.unit}, {about(layout.tables, kind)}\n{table(lines, left=len(heads), gap=3)}"


def _means(result: Row, layout: Layout) -> Iterator[str]:
    """One row a contender, one column a pass and head size; a block for whatever else differs."""
    others = tuple(key for key in layout.tables if key not in ("pass", "d"))
    for kind, rows in grouped(result.get("means", []), others).items():
        columns = [(pass_, d) for pass_ in PASSES for d in sorted({row["d"] for row in rows})]
        lines = [["", *(f"{pass_}, {d}" for pass_, d in columns)]]
        for (name,), some in grouped(rows, ("contender",)).items():
            mine = {(row["pass"], row["d"]): f"{row['ratio']:.3f} ({row['shapes']})" for row in some}
            lines.append([name, *(mine.get(column, DASH) for column in columns)])
        said = f"times as fast as {layout.rival}, geometric mean over shapes (how many)"
        yield f"{said}, {about(others, kind)}\n{table(lines)}"


def _errors(result: Row, layout: Layout) -> str:
    """The largest relative error of each contender over all shapes."""
    rows = result["errors"]
    results = ("O", "dQ", "dK", "dV", "worst_block")
    what = [key for key in results if any(row.get(key) is not None for row in rows)]
    lines = [["", *(name.replace("_", " ") for name in what), "bit-equal"]]
    for (dtype, name), some in grouped(rows, ("dtype", "contender")).items():
        found = ([row[key] for row in some if key in row] for key in what)
        equal = [row["bit_equal"] for row in some if "bit_equal" in row]
        cells = (f"{max(values):.1e}" if values else DASH for values in found)
        lines.append([f"{dtype} {name}", *cells, f"{sum(equal)} of {len(equal)}" if equal else DASH])
    said = f"largest relative error against float64, {layout.checked}"
    return f"{said}\n{table(lines)}" if rows else ""


def _refusals(result: Row) -> str:
    """Each reason once, with how many rows it stands for."""
    refused = [row for row in [*result["rows"], *result.get("density_rows", [])] if "refused" in row]
    counts = grouped(refused, ("contender", "dtype", "refused"))
    lines = (f"{who}, {dtype} ({len(some)} rows): {why}" for (who, dtype, why), some in counts.items())
    return "\n".join(["not timed", *lines]) if refused else ""


def _goals(result: Row) -> str:
    """Every goal with its floor, what was reached, and the verdict."""
    lines, verdicts = [["", "reached", "goal", "floor"]], [""]
    for one in result["goals"]:
        lines.append([one["what"], number(one["reached"], 3), f"{one['goal']:.2f}", number(one["floor"], 2)])
        verdicts.append(f"  {one['verdict']}")
    stated = f"goals, stated for an {result['goals_stated_for']}; this is {result['device']['name']}"
    return "\n".join([stated, *map(str.__add__, table(lines).splitlines(), verdicts)])
