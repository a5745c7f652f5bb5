"""Does time follow the share of tiles that a mask leaves? A line through times, and how far they lie off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .judging import OURS, Row

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
KIND = "random, "  # what the names of its masks begin with
LEAST = 3  # points through which a line says something


def name_of(share: float) -> str:
    """The name of the mask with this share of its tiles seen."""
    return f"{KIND}1/{round(1 / share)}" if share < 1 else f"{KIND}all"


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """time ≈ s · dense + overhead: dense, overhead, and the largest |line - time| / time.

    Args:
        points: (s, milliseconds), three or more of different s. The sum of the squares of their relative
            deviations is least.

    Raises:
        ValueError: there are fewer points, which any line meets.
    """
    if len({s for s, _ in points}) < LEAST:
        raise ValueError(f"points is {list(points)!r}; allowed: {LEAST} or more, of different s")
    s, ms = np.asarray(points, dtype=np.float64).T
    a = np.stack([s, np.ones_like(s)], axis=1) / ms[:, None]  # (points, 2)
    dense, overhead = np.linalg.lstsq(a, np.ones_like(ms), rcond=None)[0]
    off = np.abs(s * dense + overhead - ms) / ms
    return float(dense), float(overhead), float(off.max())


def lines(rows: Sequence[Row], unmasked: str) -> list[Row]:
    """A line for each d, N and pass of which every share was timed; `unmasked`: the mask that hides nothing.

    Returns:
        d, N, pass, contender, points [[s, ms], …], dense_ms, overhead_ms, deviation, and unmasked_ms: the
        time of the kernel that knows of no mask, None where it was not timed.
    """
    found = []
    mine = [row for row in rows if row["contender"] == OURS and "ms" in row]
    for d, N, pass_ in dict.fromkeys((row["d"], row["N"], row["pass"]) for row in mine):
        here = {row["mask"]: row for row in mine if (row["d"], row["N"], row["pass"]) == (d, N, pass_)}
        names = [name_of(share) for share in SHARES]
        if not all(name in here for name in names):
            continue
        points = [(here[name]["density"], here[name]["ms"]) for name in names]
        dense, overhead, deviation = line(points)
        found.append(
            {
                "d": d, "N": N, "pass": pass_, "contender": OURS, "points": [list(point) for point in points],
                "dense_ms": dense, "overhead_ms": overhead, "deviation": deviation,
                "unmasked_ms": here.get(unmasked, {}).get("ms"),
            }
        )  # fmt: skip
    return found


def text_of(found: Sequence[dict[str, Any]]) -> str:
    """The lines as a table: milliseconds of each share, and of the line."""
    if not found:
        return ""
    heads = "".join(f"{name_of(share).removeprefix(KIND):>9}" for share in SHARES)
    shown = [
        "milliseconds of ours against the share s of tiles seen, and the line s · dense + overhead",
        f"{'d, N, pass':<32}{heads}{'dense':>9}{'overhead':>10}{'no mask':>9}{'largest deviation':>19}",
    ]
    for one in found:
        times = "".join(f"{ms:>9.3f}" for _, ms in one["points"])
        plain = "–" if one["unmasked_ms"] is None else f"{one['unmasked_ms']:.3f}"
        shown.append(
            f"{one['d']}, {one['N']}, {one['pass']:<20}".ljust(32)
            + f"{times}{one['dense_ms']:>9.3f}{one['overhead_ms']:>10.3f}{plain:>9}{one['deviation']:>19.1%}"
        )
    return "\n".join(shown)
