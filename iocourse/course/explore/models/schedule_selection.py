"""Select the schedules that a figure draws, and check names and ranges in its arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .... import schedules
from ....machine import positive_int
from ....schedules import Schedule


def _row_tiled(schedule: Schedule) -> bool:
    """Return True if Br x Bc tiles of scores use complete rows of Q and K (the footprint grows with d)."""
    return {"Br", "Bc"} <= set(schedule.tile_names) and schedule.smallest_M(1, 2) > schedule.smallest_M(1, 1)


# Schedules for large fast memories: the default lines of `traffic_vs_memory`, and those of the tile tuner.
ROW_TILED = tuple(schedule.name for schedule in schedules.of_pass("forward") if _row_tiled(schedule))


def select_schedules(pass_: str, names: Sequence[str] | None = None) -> list[Schedule]:
    """Return the dense schedules `names` of a pass in this order, or all in the order of the registry.

    Raises:
        ValueError: an unknown name or pass; the message lists the known ones.
    """
    known = {schedule.name: schedule for schedule in schedules.of_pass(pass_)}
    return [known[name] for name in among(f"dense {pass_} schedule", known, names)]


def row_tiled(name: str) -> Schedule:
    """Return the schedule `name` if the tile tuner can draw it. Raises ValueError that lists all of them."""
    among("schedule with tiles of Br x Bc scores", ROW_TILED, [name])
    return schedules.get(name)


def among(kind: str, known: Collection[str], names: Sequence[str] | None) -> list[str]:
    """Return `names`, or all of `known` if None. Raises ValueError for a name that is not in `known`."""
    for name in names or ():
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}; expected one of {', '.join(known)}")
    return list(known if names is None else names)


def range_of(name: str, of: str, ends: tuple[int, int]) -> tuple[int, int]:
    """Return the checked range of `of`. Raises ValueError if an end is below 1 or the range is empty."""
    low, high = (positive_int(name, end) for end in ends)
    if low >= high:
        raise ValueError(f"{name} must be a first {of} and a larger last one, got ({low}, {high})")
    return low, high
