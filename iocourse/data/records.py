"""A shipped record of times as plain text: contenders as columns, one row per shape.

>>> print(shown(None))
no recorded run yet
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..console import number, paragraphs, table
from .recorded import provenance

Rows = Sequence[dict[str, Any]]
_FIGURES = {"tflops": "TFLOP/s", "gbytes_per_s": "GB/s of K and V"}
_OF_OURS = {
    "density": "share of pairs", "saved": "padding saved", "ratio": "ours / rival",
    "of_saved": "of the saved", "share": "of the copy", "us": "ours, µs",
}  # fmt: skip
_OF_LINES = ("d", "N", "pass", "dense_ms", "overhead_ms", "deviation")


def shown(record: dict[str, Any] | None) -> str:
    """The rows of a record as tables, a line for each reason not to time, and where it was measured.

    The last columns of a table are about the first contender, which is ours. None: there is no record.
    """
    if record is None:
        return provenance(None)
    rows = [*record["rows"], *record.get("density_rows", [])]
    kinds = dict.fromkeys((row["dtype"], row["d"], row["pass"]) for row in rows)
    reasons = dict.fromkeys(f"{row['contender']}: {row['refused']}" for row in rows if "refused" in row)
    lines = [[number(x, 3) if isinstance(x := one[key], float) else x for key in _OF_LINES]
             for one in record.get("lines", [])]  # fmt: skip
    return paragraphs(
        *(_table(record["contenders"], rows, kind) for kind in kinds),
        "not timed\n" + "\n".join(reasons) if reasons else "",
        f"time of ours ≈ share of pairs · dense + overhead\n{table([_OF_LINES, *lines])}" if lines else "",
        provenance(record),
    )


def _table(contenders: Sequence[str], rows: Rows, kind: tuple[str, int, str]) -> str:
    """One type, head size and pass: a line per shape."""
    some = [row for row in rows if (row["dtype"], row["d"], row["pass"]) == kind]
    labels = [key for key in list(some[0])[: list(some[0]).index("contender")] if key not in ("dtype", "d")]
    labels = [key for key in labels if len({row[key] for row in some}) > 1] or labels[:1]
    figure = next((key for key in _FIGURES if any(key in row for row in some)), "ms")
    names = [name for name in contenders if any(row["contender"] == name for row in some)]
    more = [key for key in _OF_OURS if any(key in row for row in some if row["contender"] == names[0])]
    lines: list[list[object]] = [[*labels, *names, *(_OF_OURS[key] for key in more)]]
    for at in dict.fromkeys(tuple(row[key] for key in labels) for row in some):
        here = {row["contender"]: row for row in some if tuple(row[key] for key in labels) == at}
        figures = (number(here.get(name, {}).get(figure), 1) for name in names)
        ours = (number(here.get(names[0], {}).get(key), 2) for key in more)
        lines.append([*at, *figures, *ours])
    dtype, d, pass_ = kind
    return f"{_FIGURES.get(figure, 'ms')}, {dtype}, d = {d}, {pass_}\n{table(lines, left=len(labels))}"
