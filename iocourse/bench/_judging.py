"""What the times say: ratios, geometric means, and the goals they are held against. No GPU, no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Any, NamedTuple

Row = dict[str, Any]
PASSES = ("forward", "backward", "forward+backward")
LENGTHS = (1024, 2048, 4096, 8192, 16384)
MASKS = (False, True)  # causal
WHOLE = len(LENGTHS) * len(MASKS)  # shapes that a mean is taken over
OURS, FLASH, CUDNN, TUTORIAL = "ours", "SDPA flash", "SDPA cuDNN", "tutorial"


class Goal(NamedTuple):
    """Ours shall be `goal` times as fast as `rival`, and must be `floor` times as fast (None: no floor)."""

    pass_: str
    d: int
    dtype: str
    rival: str
    goal: float
    floor: float | None


# Stated for an H200, before anything was measured there.
STATED_FOR = "H200"
GOALS = (
    Goal("forward", 64, "bfloat16", FLASH, 1.25, 1.15),
    Goal("forward", 128, "bfloat16", FLASH, 1.30, 1.15),
    *(Goal("backward", d, "bfloat16", FLASH, 1.15, 1.0) for d in (64, 128)),
    *(Goal("forward+backward", d, "bfloat16", FLASH, 1.20, 1.05) for d in (64, 128)),
    *(Goal("forward", d, "float16", TUTORIAL, 1.08, None) for d in (64, 128)),
    *(Goal("forward", d, "bfloat16", CUDNN, 0.72, None) for d in (64, 128)),
    *(Goal("backward", d, "bfloat16", CUDNN, 0.62, None) for d in (64, 128)),
)


def geometric_mean(ratios: Sequence[float]) -> float:
    """(∏ ratios)^(1/n). Raises ValueError where there is none, or one is not above 0."""
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"ratios is {list(ratios)!r}; allowed: one number or more, all above 0")
    return exp(sum(log(ratio) for ratio in ratios) / len(ratios))


def with_ratios(rows: Iterable[Row]) -> list[Row]:
    """Each row that has a time also with `ratio`: how many times as fast as SDPA flash, None without it."""
    known = list(rows)
    return [
        row | {"ratio": None if (flash := _time(known, row, FLASH)) is None else flash / row["ms"]}
        if "ms" in row
        else row
        for row in known
    ]


def _time(rows: list[Row], like: Row, contender: str) -> float | None:
    """Milliseconds of a contender at the shape and pass of a row; of the tutorial, its faster variant."""
    times = [
        row["ms"]
        for row in rows
        if "ms" in row and _same_work(row, like) and row["contender"].split(", warp")[0] == contender
    ]
    return min(times, default=None)


def _same_work(a: Row, b: Row) -> bool:
    return all(a[key] == b[key] for key in ("dtype", "d", "N", "causal", "pass"))


def means(rows: list[Row]) -> list[Row]:
    """The geometric mean of `ratio` for each type, pass, d and contender, and over how many shapes of all."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row.get("ratio") is not None:
            key = (row["dtype"], row["pass"], row["d"], row["contender"])
            groups.setdefault(key, []).append(row["ratio"])
    names = ("dtype", "pass", "d", "contender")
    return [
        dict(zip(names, key, strict=True))
        | {"ratio": geometric_mean(ratios), "shapes": len(ratios), "of": WHOLE}
        for key, ratios in groups.items()
    ]


def judged(rows: list[Row]) -> list[Row]:
    """Every goal with the mean that was reached and a verdict; part of the shapes is no verdict."""
    return [_judged(rows, goal) for goal in GOALS]


def _judged(rows: list[Row], goal: Goal) -> Row:
    ratios = [
        rival / row["ms"]
        for row in rows
        if _meant(row, goal) and "ms" in row and (rival := _time(rows, row, goal.rival)) is not None
    ]
    mean = geometric_mean(ratios) if ratios else None
    return {
        "what": f"{goal.pass_}, d = {goal.d}, {goal.dtype}, against {goal.rival}",
        "ratio": mean,
        "goal": goal.goal,
        "floor": goal.floor,
        "shapes": len(ratios),
        "of": WHOLE,
        "verdict": _verdict(goal, mean, len(ratios)),
    }


def _meant(row: Row, goal: Goal) -> bool:
    wanted = (goal.pass_, goal.d, goal.dtype, OURS)
    return (row["pass"], row["d"], row["dtype"], row["contender"]) == wanted


def _verdict(goal: Goal, mean: float | None, shapes: int) -> str:
    if mean is None or shapes < WHOLE:
        return f"not judged: {shapes} of {WHOLE} shapes have both times"
    if mean >= goal.goal:
        return "goal met"
    if goal.floor is None:
        return "goal missed"
    return "goal missed, floor met" if mean >= goal.floor else "floor missed"
