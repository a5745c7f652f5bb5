"""Results of `lowrank.advise` for the real heads that are shipped with the course."""

from __future__ import annotations

import numpy as np

from iocourse import exact
from iocourse.console import DASH, table
from iocourse.data import provenance, real_head, real_heads
from iocourse.lowrank import advise
from tools.bench import Row

ERROR = 0.01


def measured() -> Row:
    """Return the spread and size of each head's logits, and the degree and rank for an error of 1 %."""
    return {"model": provenance()["model"], "error": ERROR, "rows": [_row(*pair) for pair in real_heads()]}


def _row(layer: int, head: int) -> Row:
    one = real_head(layer, head)
    found = advise(one.Q, one.K, error=ERROR)
    largest = float(np.abs(exact.scores(one.Q.astype(np.float64), one.K.astype(np.float64))).max())
    return {
        "layer": layer,
        "head": head,
        "N": found.n,
        "d": found.d,
        "logit_std": round(found.logit_std, 3),
        "largest_logit": round(largest, 2),
        "error_at_4": float(f"{found.errors[3]:.3g}"),
        "degree": found.degree,
        "rank": found.rank,
        "break_even": found.break_even,
        "exact_is_better": found.exact_is_better,
    }


def show(result: Row) -> str:
    """Format one line per head, and the number of heads for which low rank is better."""
    rows = result["rows"]
    lines = [["layer", "head", "N", "logit std", "largest", "error, g = 4", "degree", "rank", "break-even N"]]
    for row in rows:
        known = [str(row[key]) for key in ("layer", "head", "N")]
        logits = [f"{row['logit_std']:.2f}", f"{row['largest_logit']:.1f}", f"{row['error_at_4']:.2g}"]
        takes = [f"{row[key]:,}" if row["degree"] else DASH for key in ("rank", "break_even")]
        lines.append([*known, *logits, str(row["degree"] or "> 12"), *takes])
    usable = sum(not row["exact_is_better"] for row in rows)
    said = f"{len(rows)} heads of {result['model']}: degree and rank for an error of {result['error']:.0%}"
    better = f"low rank is the better choice for {usable} of {len(rows)}"
    return "\n".join([said, table(lines, left=0), better])
