"""Which schedules a figure draws: by name among the dense ones of a pass, or all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ... import schedules
from ...machine import positive_int
from ...schedules import Schedule


def _row_tiled(schedule: Schedule) -> bool:
    """Whether its tiles of Br x Bc scores are made of whole rows of Q and K, whose room grows with d."""
    return {"Br", "Bc"} <= set(schedule.tile_names) and schedule.smallest_M(1, 2) > schedule.smallest_M(1, 1)


# What a reader has met when fast memories are large: the lines of `traffic_vs_memory`, and what the tile
# tuner can draw.
ROW_TILED = tuple(schedule.name for schedule in schedules.of_pass("forward") if _row_tiled(schedule))


def chosen(pass_: str, names: Sequence[str] | None = None) -> list[Schedule]:
    """The dense schedules of a pass called `names`, in that order, or all in the order of the course.

    Raises ValueError that lists the names there are, or the passes.
    """
    known = {schedule.name: schedule for schedule in schedules.of_pass(pass_)}
    return [known[name] for name in among(f"dense {pass_} schedule", known, names)]


def row_tiled(name: str) -> Schedule:
    """A schedule that the tile tuner can draw. Raises ValueError that lists those there are."""
    among("schedule with tiles of Br x Bc scores", ROW_TILED, [name])
    return schedules.get(name)


def among(kind: str, known: Collection[str], names: Sequence[str] | None) -> list[str]:
    """`names`, or all of `known`. Raises ValueError that says which is no such `kind`."""
    for name in names or ():
        if name not in known:
            raise ValueError(f"there is no {kind} {name!r}; there are {', '.join(known)}")
    return list(known if names is None else names)


def range_of(name: str, of: str, ends: tuple[int, int]) -> tuple[int, int]:
    """First and last value of `of`. Raises ValueError where either is below 1, or the range is empty."""
    low, high = (positive_int(name, end) for end in ends)
    if low >= high:
        raise ValueError(f"{name} = ({low}, {high}): the first {of} must be smaller than the last")
    return low, high
