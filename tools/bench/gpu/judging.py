"""What the times say: ratios, means, and the goals they are held against. No GPU, no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log
from typing import Any, NamedTuple

from iocourse.gpu.roofline import PASSES as PASSES
from tools.bench import Row, grouped, verdict
from tools.bench.gpu.contenders import FIRST


class Layout(NamedTuple):
    """How the rows of a result are compared, and how they become tables."""

    tables: tuple[str, ...]  # keys whose values name a table
    lines: tuple[str, ...]  # keys whose values name a line of it
    figure: str  # the key of what is shown of every contender
    unit: str  # of that figure
    last: tuple[tuple[str, str], ...]  # more of ours at the end of a line: key and heading
    rival: str = ""  # whom ratios and means are relative to
    shapes: int = 0  # over how many a mean should be
    checked: str = "one head of every shape"  # what the errors were measured on

    @property
    def same_work(self) -> tuple[str, ...]:
        """What two rows about the same work have in common, the pass among it."""
        return (*self.tables, *self.lines)


class Goal(NamedTuple):
    """What ours shall reach, and what it must reach."""

    # What its rows have in common, by key; a tuple stands for any of its values. Without a contender: FIRST.
    where: Mapping[str, Any]
    goal: float  # the number to reach
    floor: float | None  # the number that must be reached; None: none
    shapes: int  # how many rows a verdict takes
    rival: str = ""  # where no figure is judged: how many times as fast as this contender ours is
    figure: str = ""  # what is judged of a row of ours, by its key
    over: str = "mean"  # of all rows' figures, by its name in OVER
    called: str = ""  # the goal in words, where `where` and `rival` do not say it

    @property
    def what(self) -> str:
        """The goal in words: 'forward, d = 64, bfloat16, against SDPA flash'."""
        return self.called or f"{about(self.where, self.where.values())}, against {self.rival}"


def about(names: Iterable[str], values: Iterable[Any]) -> str:
    """'bfloat16, d = 64, forward': numbers by their names, full and causal by theirs."""
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name} = {value}" if type(value) is int else cell(value) for name, value in pairs)


def cell(value: Any) -> str:
    """A fact of a row in a table."""
    return {True: "causal", False: "full"}[value] if isinstance(value, bool) else str(value)


def geometric_mean(ratios: Sequence[float]) -> float:
    """(∏ ratios)^(1/n). Raises ValueError where there is none, or one is not above 0."""
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"ratios is {list(ratios)!r}; allowed: one number or more, all above 0")
    return exp(sum(log(ratio) for ratio in ratios) / len(ratios))


# What is judged of all rows; of the largest, less is better.
OVER: dict[str, Callable[[Sequence[float]], float]] = {"mean": geometric_mean, "least": min, "largest": max}


def with_ratios(rows: Sequence[Row], layout: Layout) -> list[Row]:
    """Each row that has a time also with `ratio`: how many times as fast as the rival, None without it."""
    times = _times_of(rows, layout.rival, layout.same_work)
    return timed_with(rows, lambda row: {"ratio": times(row)}) if layout.rival else list(rows)


def timed_with(rows: Iterable[Row], more: Callable[[Row], Row]) -> list[Row]:
    """The rows, those that have a time with more that follows from it."""
    return [row | more(row) if "ms" in row else row for row in rows]


def _times_of(rows: Sequence[Row], rival: str, same_work: Sequence[str]) -> Callable[[Row], float | None]:
    """How many times as fast as the rival a row is; of one with variants ("tutorial, warp…") the fastest."""
    known = (row for row in rows if "ms" in row and row["contender"].split(", warp")[0] == rival)
    best = {work: min(row["ms"] for row in some) for work, some in grouped(known, same_work).items()}

    def ratio(row: Row) -> float | None:
        ms: float | None = best.get(tuple(row.get(key) for key in same_work))
        return None if ms is None or "ms" not in row else ms / row["ms"]

    return ratio


def means(rows: Iterable[Row], layout: Layout) -> list[Row]:
    """The geometric mean of `ratio` for each table and contender, over how many shapes, `of` how many."""
    keys = (*layout.tables, "contender")
    found = []
    for kind, some in grouped((row for row in rows if row.get("ratio") is not None), keys).items():
        mean = {"ratio": geometric_mean([row["ratio"] for row in some])}
        found.append(dict(zip(keys, kind, strict=True)) | mean | {"shapes": len(some), "of": layout.shapes})
    return found


def compared(record: Row, layout: Layout, goals: Iterable[Goal], more: Callable[[Row], Row] = dict) -> Row:
    """A record of times with every row's ratio to the rival and what `more` makes of these, the means, and
    the goals, about rows and `lines`, which are stated for an H200. Of a quick run none is judged.
    """
    record = more(record | {"rows": with_ratios(record["rows"], layout)})
    rows, points = record["rows"], [*record["rows"], *record.get("lines", ())]
    quick = record.get("quick", False)
    verdicts = [judged(points, goal, layout.same_work, quick=quick) for goal in goals]
    return record | {"means": means(rows, layout), "goals_stated_for": "H200", "goals": verdicts}


def judged(rows: Sequence[Row], goal: Goal, same_work: Sequence[str] = (), *, quick: bool = False) -> Row:
    """A goal with what was reached and a verdict; part of the shapes, or a quick run, is no verdict."""
    figure = _times_of(rows, goal.rival, same_work) if goal.rival else lambda row: row.get(goal.figure)
    ours = (row for row in rows if _meant(row, {"contender": FIRST} | dict(goal.where)))
    numbers = [number for number in map(figure, ours) if number is not None]
    reached = OVER[goal.over](numbers) if numbers else None
    if reached is None or len(numbers) < goal.shapes:
        have = "both times" if goal.rival else "the times it takes"
        said = f"not judged: {len(numbers)} of {goal.shapes} shapes have {have}"
    elif quick:
        said = "not judged: a quick run"
    else:
        said = verdict(reached, goal.goal, goal.floor, less=goal.over == "largest")
    return {
        "what": goal.what, "reached": reached, "goal": goal.goal, "floor": goal.floor,
        "shapes": len(numbers), "of": goal.shapes, "verdict": said,
    }  # fmt: skip


def _meant(row: Row, where: Mapping[str, Any]) -> bool:
    wanted = ((key, value if isinstance(value, tuple) else (value,)) for key, value in where.items())
    return all(row.get(key) in values for key, values in wanted)
