"""Ratios of the best schedules' traffic to the lower bound, for every size at which the course claims one."""

from __future__ import annotations

from typing import Any, NamedTuple

from iocourse.data.records import run_metadata
from iocourse.schedules import Comparison, against_bound

NAME = "ratios"
HELP = "words moved over the proved lower bound, by closed form"


class Claim(NamedTuple):
    """A schedule at one size, and the ratio that it must not reach; None: the ratio is only shown."""

    schedule: str
    N: int
    d: int
    M: int
    recompute: bool = True
    goal: float | None = None


LARGE = 64 * 64**2  # words: 64 d² at d = 64
CLAIMS = (
    Claim("flash_optimal", 8192, 64, 58_368, goal=1.20),
    Claim("flash_optimal", 8192, 64, 16_384, recompute=False, goal=1.10),
    Claim("small_cache", 2**20, 4096, 16_384, goal=1.10),
    *(Claim("split_backward", N, 64, LARGE) for N in (8192, 16_384)),
    *(Claim("split_backward", N, 64, LARGE, goal=1.45) for N in (32_768, 65_536, 2**17, 2**22)),
)


def comparisons() -> list[tuple[Claim, Comparison]]:
    """Return every claim with its comparison: the schedule's words and the bound."""
    return [(claim, against_bound(*claim[:4], recompute=claim.recompute)) for claim in CLAIMS]


def run(quick: bool) -> dict[str, Any]:
    """Return the record. Nothing is timed, so `quick` has no effect."""
    rows = [_row(claim, found) for claim, found in comparisons()]
    return {"subject": NAME, **run_metadata("numpy"), "measured": rows}


def _row(claim: Claim, found: Comparison) -> dict[str, Any]:
    sizes = {"schedule": claim.schedule, "N": claim.N, "d": claim.d, "M": claim.M}
    kind = {"recompute": claim.recompute, "tiles": found.tiles, "words": found.words}
    ratio = {"bound": found.bound, "bound_id": found.bound_id, "ratio": round(found.ratio, 4)}
    return sizes | kind | ratio | {"goal": claim.goal}


def show(result: dict[str, Any]) -> str:
    """Format the record as a table with one line per claim."""
    lines = [f"{'schedule':<16}{'N':>10}{'d':>6}{'M':>9}{'words':>22}{'bound':>22}  by   ratio  goal"]
    for row in result["measured"]:
        goal = "" if row["goal"] is None else f"{row['goal']:.2f}"
        lines.append(
            f"{row['schedule']:<16}{row['N']:>10,}{row['d']:>6,}{row['M']:>9,}{row['words']:>22,}"
            f"{row['bound']:>22,}  {row['bound_id']:<4}{row['ratio']:>6.3f}  {goal}"
        )
    return "\n".join(lines)
