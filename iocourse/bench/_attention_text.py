"""The result of `iocourse bench attention` as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._judging import FLASH, OURS, PASSES

Result = dict[str, Any]
SHORT = {
    "ours, deterministic": "ours, det.",
    "FlexAttention": "Flex",
    "tutorial, warp-specialised": "tut., warp",
}
DASH = "–"


def text(result: Result) -> str:
    """All tables, one below the other."""
    parts = [*_tables(result), _means(result), _errors(result), _refusals(result), _goals(result)]
    return "\n\n".join(part for part in parts if part)


def _tables(result: Result) -> Iterator[str]:
    """TFLOP/s, one table a type, pass and head size, one row a shape."""
    rows = result["rows"]
    for key in dict.fromkeys((row["dtype"], row["pass"], row["d"]) for row in rows):
        some = [row for row in rows if (row["dtype"], row["pass"], row["d"]) == key]
        dtype, pass_, d = key
        names = [name for name in result["contenders"] if any(row["contender"] == name for row in some)]
        head = "".join(f"{SHORT.get(name, name):>16}" for name in names)
        lines = [f"TFLOP/s, {dtype}, d = {d}, {pass_}", f"{'N':<14}{head}{'ours / flash':>14}"]
        for N, causal in dict.fromkeys((row["N"], row["causal"]) for row in some):
            here = {row["contender"]: row for row in some if (row["N"], row["causal"]) == (N, causal)}
            cells = "".join(f"{_number(here.get(name, {}).get('tflops'), 1):>16}" for name in names)
            ratio = _number(here.get(OURS, {}).get("ratio"), 2)
            lines.append(f"{N:<6}{'causal' if causal else 'full':<8}{cells}{ratio:>14}")
        yield "\n".join(lines)


def _number(x: float | None, digits: int) -> str:
    return DASH if x is None else f"{x:.{digits}f}"


def _means(result: Result) -> str:
    """One row a contender, one column a pass and head size."""
    rows = result["means"]
    blocks = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        some = [row for row in rows if row["dtype"] == dtype]
        heads = sorted({row["d"] for row in some})
        columns = [(pass_, d) for pass_ in PASSES for d in heads]
        lines = [
            f"times as fast as {FLASH}, geometric mean over shapes (how many), {dtype}",
            f"{'':<28}" + "".join(f"{f'{pass_}, {d}':>22}" for pass_, d in columns),
        ]
        for name in dict.fromkeys(row["contender"] for row in some):
            mine = {(row["pass"], row["d"]): row for row in some if row["contender"] == name}
            cells = (
                f"{mine[key]['ratio']:.3f} ({mine[key]['shapes']})" if key in mine else DASH
                for key in columns
            )
            lines.append(f"{name:<28}" + "".join(f"{cell:>22}" for cell in cells))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _errors(result: Result) -> str:
    """The largest relative error of each contender over all shapes."""
    rows = result["errors"]
    if not rows:
        return ""
    what = ("O", "dQ", "dK", "dV", "worst_block")
    lines = [
        "largest relative error against float64, one head of every shape",
        f"{'':<40}" + "".join(f"{name.replace('_', ' '):>13}" for name in what) + f"{'bit-equal':>13}",
    ]
    for dtype, name in dict.fromkeys((row["dtype"], row["contender"]) for row in rows):
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
    for row in result["rows"]:
        if "refused" in row:
            key = (f"{row['contender']}, {row['dtype']}", row["refused"])
            counts[key] = counts.get(key, 0) + 1
    lines = [f"{who} ({count} rows): {reason}" for (who, reason), count in counts.items()]
    return "\n".join(["not timed", *lines]) if lines else ""


def _goals(result: Result) -> str:
    """Every goal with its floor, what was reached, and the verdict."""
    lines = [
        f"goals, stated for an {result['goals_stated_for']}; this is {result['device']['name']}",
        f"{'':<60}{'reached':>9}{'goal':>7}{'floor':>7}",
    ]
    for goal in result["goals"]:
        numbers = f"{_number(goal['ratio'], 3):>9}{goal['goal']:>7.2f}{_number(goal['floor'], 2):>7}"
        lines.append(f"{goal['what']:<60}{numbers}  {goal['verdict']}")
    return "\n".join(lines)
