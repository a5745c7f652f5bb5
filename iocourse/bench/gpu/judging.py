"""What the times say: ratios, means, and the goals they are held against. No GPU, no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log
from typing import Any, NamedTuple

Row = dict[str, Any]
PASSES = ("forward", "backward", "forward+backward")
OURS = "ours"
STATED_FOR = "H200"  # every goal, before anything was measured there


class Goal(NamedTuple):
    """What ours shall reach, and what it must reach.

    Attributes:
        what: the goal in words.
        where: what the rows it is about have in common, by key; a tuple stands for any of its values.
        goal: the number to reach.
        floor: the number that must be reached; None: none.
        shapes: how many rows a verdict takes.
        rival: the number of a row is how many times as fast as this contender ours is.
        figure: where there is no rival, what the row of ours holds by this key.
        over: what is judged of all rows: their geometric "mean", the "least", or the "largest", of which less
            is better.
    """

    what: str
    where: Mapping[str, Any]
    goal: float
    floor: float | None
    shapes: int
    rival: str = ""
    figure: str = ""
    over: str = "mean"


def geometric_mean(ratios: Sequence[float]) -> float:
    """(∏ ratios)^(1/n). Raises ValueError where there is none, or one is not above 0."""
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"ratios is {list(ratios)!r}; allowed: one number or more, all above 0")
    return exp(sum(log(ratio) for ratio in ratios) / len(ratios))


OVER: dict[str, Callable[[Sequence[float]], float]] = {"mean": geometric_mean, "least": min, "largest": max}


def with_ratios(rows: Iterable[Row], rival: str, keys: Sequence[str]) -> list[Row]:
    """Each row that has a time also with `ratio`: how many times as fast as the rival, None without it.

    `keys` are what two rows about the same work have in common, the pass aside.
    """
    known = list(rows)
    return [row | {"ratio": _ratio(known, row, rival, keys)} if "ms" in row else row for row in known]


def _ratio(rows: Sequence[Row], row: Row, rival: str, keys: Sequence[str]) -> float | None:
    """How many times as fast as the rival; of a contender with variants ("tutorial, warp…") the fastest."""
    times = [
        other["ms"]
        for other in rows
        if "ms" in other
        and other["contender"].split(", warp")[0] == rival
        and all(other[key] == row[key] for key in ("pass", *keys))
    ]
    return min(times) / row["ms"] if times else None


def means(rows: Iterable[Row], keys: Sequence[str], of: int) -> list[Row]:
    """The geometric mean of `ratio` for each value of `keys` and contender, and over how many shapes of
    `of`.
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row.get("ratio") is not None:
            groups.setdefault((*(row[key] for key in keys), row["contender"]), []).append(row["ratio"])
    return [
        dict(zip((*keys, "contender"), group, strict=True))
        | {"ratio": geometric_mean(ratios), "shapes": len(ratios), "of": of}
        for group, ratios in groups.items()
    ]


def compared(
    record: Row, rival: str, keys: Sequence[str], by: Sequence[str], of: int, goals: Iterable[Goal]
) -> Row:
    """A record of times with every row's ratio to the rival, the means of these, and the goals.

    Args:
        record: with `rows`.
        rival: who the ratios are to.
        keys: what two rows about the same work have in common, the pass aside.
        by: what the rows of a mean have in common, the contender aside.
        of: over how many shapes a mean should be.
        goals: what is judged.
    """
    rows = with_ratios(record["rows"], rival, keys)
    verdicts = {"goals_stated_for": STATED_FOR, "goals": judged(rows, goals, keys)}
    return record | {"rows": rows, "means": means(rows, by, of)} | verdicts


def judged(rows: Sequence[Row], goals: Iterable[Goal], keys: Sequence[str] = ()) -> list[Row]:
    """Every goal with what was reached and a verdict; part of the shapes is no verdict."""
    return [_judged(rows, goal, keys) for goal in goals]


def _judged(rows: Sequence[Row], goal: Goal, keys: Sequence[str]) -> Row:
    found = [
        _ratio(rows, row, goal.rival, keys) if goal.rival else row.get(goal.figure)
        for row in rows
        if row["contender"] == OURS and _meant(row, goal.where) and (not goal.rival or "ms" in row)
    ]
    numbers = [number for number in found if number is not None]
    reached = OVER[goal.over](numbers) if numbers else None
    return {
        "what": goal.what,
        "reached": reached,
        "goal": goal.goal,
        "floor": goal.floor,
        "shapes": len(numbers),
        "of": goal.shapes,
        "verdict": _verdict(goal, reached, len(numbers)),
    }


def _meant(row: Row, where: Mapping[str, Any]) -> bool:
    allowed = ((row[key], value if isinstance(value, tuple) else (value,)) for key, value in where.items())
    return all(came in values for came, values in allowed)


def _verdict(goal: Goal, reached: float | None, shapes: int) -> str:
    if reached is None or shapes < goal.shapes:
        have = "both times" if goal.rival else "the times it takes"
        return f"not judged: {shapes} of {goal.shapes} shapes have {have}"
    if _good(goal, reached, goal.goal):
        return "goal met"
    if goal.floor is None:
        return "goal missed"
    return "goal missed, floor met" if _good(goal, reached, goal.floor) else "floor missed"


def _good(goal: Goal, reached: float, wanted: float) -> bool:
    return reached <= wanted if goal.over == "largest" else reached >= wanted
