"""The real heads that are shipped with the course: what `lowrank.advise` says of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from iocourse import exact
from iocourse.data import provenance, real_head, real_heads
from iocourse.lowrank import advise

ERROR = 0.01


def measured() -> dict[str, Any]:
    """Spread and size of each head's logits, and the degree and rank that an error of 1 % would take."""
    return {"model": provenance()["model"], "error": ERROR, "rows": [_row(*pair) for pair in real_heads()]}


def _row(layer: int, head: int) -> dict[str, Any]:
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


def show(result: dict[str, Any]) -> str:
    """One line a head, and how many could use it."""
    lines = [
        f"{len(result['rows'])} heads of {result['model']}: what an error of {result['error']:.0%} takes",
        f"{'layer':>6}{'head':>6}{'N':>7}{'logit std':>11}{'largest':>9}{'error, g = 4':>14}{'degree':>8}"
        f"{'rank':>15}{'pays from N':>15}",
    ]
    for row in result["rows"]:
        degree, rank, least = (row[key] for key in ("degree", "rank", "break_even"))
        words = [f"{rank:>15,}", f"{least:>15,}"] if degree else [f"{'–':>15}"] * 2
        lines.append(
            f"{row['layer']:>6}{row['head']:>6}{row['N']:>7}{row['logit_std']:>11.2f}"
            f"{row['largest_logit']:>9.1f}{row['error_at_4']:>14.2g}{degree or '> 12':>8}{''.join(words)}"
        )
    usable = sum(not row["exact_is_better"] for row in result["rows"])
    return "\n".join([*lines, f"low rank would be the better choice for {usable} of {len(result['rows'])}"])
