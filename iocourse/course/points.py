"""Points of an exercise: half for the values, half for the traffic.

This is the only rule. Reports, feedback, the CSV file and nbgrader take their points from here. `RULE` states
it in words; the guide for teachers quotes it.

- A property that fails or is not reached earns nothing.
- The values' half is shared equally by the properties of the values. Those that wrong values can have too
  (`idle`, such as "is finite for large logits") count half until all others hold.
- The traffic's half is shared equally by the properties of traffic. If one of them fails, at most a fifth of
  the half is paid: a schedule that moves every word twice meets many properties and is still wrong.
- If only one of the two is judged, it carries all points.
- A schedule that the student repairs already has right values and some right traffic. Both are marked `idle`
  and count by the share of the other properties that hold, so the unchanged schedule earns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .exercise import Exercise, NotReached, Property

RULE = (
    "Values and traffic each carry half of an exercise's points, and within a half every property counts "
    "equally. If a property of traffic fails, the traffic's half pays at most a fifth. A property that wrong "
    "values can have too counts half until the values are right. What is not reached earns nothing."
)
HALF = 0.5  # of an exercise's points, for the values and for the traffic
MOST_WITH_A_FAULT = 0.2  # of the traffic's half, if a property of traffic fails
UNTIL_RIGHT = 0.5  # of its share earns a property that wrong values can have too


@dataclass(frozen=True)
class Points:
    """The points of one answer; a part is None if the exercise does not judge it.

    Attributes:
        values: points for the values, and `values_of` their maximum.
        traffic: points for the traffic, and `traffic_of` their maximum.
    """

    values: float | None
    traffic: float | None
    values_of: float
    traffic_of: float

    @property
    def total(self) -> float:
        """All points of the answer."""
        return (self.values or 0.0) + (self.traffic or 0.0)

    def __str__(self) -> str:
        """Return "values 2.5 of 2.5, traffic 0.3 of 2.5"."""
        parts = (("values", self.values, self.values_of), ("traffic", self.traffic, self.traffic_of))
        return ", ".join(f"{name} {got:.3g} of {of:.3g}" for name, got, of in parts if got is not None)


def points_of(exercise: Exercise, verdicts: Sequence[tuple[str, str | None]]) -> Points:
    """Return the points for the verdicts of `judge`: (name, None or a message) of each property.

    Verdicts without a property's name, such as one on an error, earn nothing for it.
    """
    said = dict(verdicts)
    failed = {name for name, complaint in verdicts if complaint and not isinstance(complaint, NotReached)}
    held = {name for name, complaint in said.items() if complaint is None}
    values = [one for one in exercise.properties if not one.traffic]
    traffic = [one for one in exercise.properties if one.traffic]
    most = float(exercise.importance)
    if not traffic:
        return Points(most * _of_values(values, held), None, most, 0.0)
    if all(one.idle for one in values):
        return Points(None, most * _of_repair(exercise.properties, held), 0.0, most)
    half = HALF * most
    share = _share(traffic, held)
    if any(one.name in failed for one in traffic):
        share *= MOST_WITH_A_FAULT
    return Points(half * _of_values(values, held), half * share, half, most - half)


def _share(some: Sequence[Property], held: set[str]) -> float:
    return sum(one.name in held for one in some) / len(some) if some else 0.0


def _of_values(values: Sequence[Property], held: set[str]) -> float:
    telling, idle = [one for one in values if not one.idle], [one for one in values if one.idle]
    right = sum(one.name in held for one in telling)
    each = 1.0 if right == len(telling) else UNTIL_RIGHT
    return (right + each * sum(one.name in held for one in idle)) / len(values)


def _of_repair(properties: Sequence[Property], held: set[str]) -> float:
    repaired, given = [one for one in properties if not one.idle], [one for one in properties if one.idle]
    share = _share(repaired, held)
    return (share * len(repaired) + share * sum(one.name in held for one in given)) / len(properties)
