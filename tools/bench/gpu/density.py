"""Does time follow the share of tiles that a mask leaves? A line through times, and how far they lie off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iocourse.console import number, table
from tools.bench import Row, grouped
from tools.bench.gpu.contenders import FIRST

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
KIND = "random, "  # what the names of its masks begin with
# The names of masks with these shares of their tiles seen.
NAMES = {KIND + (f"1/{round(1 / share)}" if share < 1 else "all"): share for share in SHARES}
LEAST = 3  # points through which a line says something


def line(points: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """time ≈ s · dense + overhead: dense, overhead, and the largest |line - time| / time.

    Of points (s, milliseconds) the squares of relative deviations have the least sum. Raises ValueError where
    fewer than three have different s: any line meets these.
    """
    if len({s for s, _ in points}) < LEAST:
        raise ValueError(f"points is {list(points)!r}; allowed: {LEAST} or more, of different s")
    s, ms = np.asarray(points, dtype=np.float64).T
    dense, overhead = np.polyfit(s, ms, 1, w=1 / ms)
    off = np.abs(s * dense + overhead - ms) / ms
    return float(dense), float(overhead), float(off.max())


def lines(rows: Sequence[Row], unmasked: str) -> list[Row]:
    """A line for each d, N and pass of which every share was timed: points [[s, ms], …], and what they give.

    unmasked_ms is the time of the kernel that knows of no mask, `unmasked`, None where it was not timed.
    """
    keys = ("d", "N", "pass", "contender")
    mine = (row for row in rows if row["contender"] in FIRST and "ms" in row)
    found = []
    for kind, some in grouped(mine, keys).items():
        here = {row["mask"]: row for row in some}
        if here.keys() >= NAMES.keys():
            points = [[here[name]["density"], here[name]["ms"]] for name in NAMES]
            dense, overhead, off = line(points)
            one = {"points": points, "dense_ms": dense, "overhead_ms": overhead, "deviation": off}
            one["unmasked_ms"] = here.get(unmasked, {}).get("ms")
            found.append(dict(zip(keys, kind, strict=True)) | one)
    return found


def text_of(found: Sequence[Row]) -> str:
    """The lines as a table: milliseconds of each share, and of the line."""
    shares = (name.removeprefix(KIND) for name in NAMES)
    cells = [["d, N, pass", *shares, "dense", "overhead", "no mask", "largest deviation"]]
    for one in found:
        times = [ms for _, ms in one["points"]] + [one["dense_ms"], one["overhead_ms"], one["unmasked_ms"]]
        name = f"{one['d']}, {one['N']}, {one['pass']}"
        cells.append([name, *(number(ms, 3) for ms in times), f"{one['deviation']:.1%}"])
    said = "milliseconds of ours against the share s of tiles seen, and the line s · dense + overhead"
    return f"{said}\n{table(cells)}" if found else ""
