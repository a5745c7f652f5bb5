"""Points of an exercise: half for the values, half for the traffic.

This is the only rule. Reports, feedback, the CSV file and nbgrader take their points from here. `RULE` states
it in words, and the guide for teachers quotes it.

- A property that fails or is not reached earns nothing.
- The values' half is shared equally by the properties of the values. Those that wrong values can have too
  (`idle`, such as "is finite for large logits") count half until all others hold.
- The traffic's half is shared equally by the properties of traffic. If one of them fails, the others earn a
  fifth of their shares: a schedule that moves every word twice meets many of them and is still wrong.
- If all properties are of one kind, all points are of that kind.
- A schedule to repair has right values and some right traffic from the start, and both are marked `idle`.
  The traffic's half is shared by the other properties, those that the student repairs, and it is reduced to
  a fifth only if a property fails that the given schedule has. The values' half is paid in proportion to the
  repairs, so the unchanged schedule earns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .exercise import Exercise, NotReached, Property

RULE = (
    "Values and traffic each carry half of an exercise's points; without traffic, the values carry all. "
    "The points of each are divided equally among its properties, and each property that holds earns its "
    "part. If a property of traffic fails, the others earn a fifth of their parts. A property that wrong "
    "values can have too earns half of its part until the other properties of the values hold."
)
RULE_NAME = "values-and-traffic-1"  # in tables and stored grades; change it with the rule
HALF = 0.5  # of an exercise's points, for the values and for the traffic
MOST_WITH_A_FAULT = 0.2  # of the traffic's half, if a property of traffic fails
UNTIL_RIGHT = 0.5  # of its share earns a property that wrong values can have too


@dataclass(frozen=True)
class Points:
    """The points of one answer; `traffic` is None if no property is about it.

    Attributes:
        values: points for the values, and `values_of` their maximum.
        traffic: points for the traffic, and `traffic_of` their maximum.
    """

    values: float
    traffic: float | None
    values_of: float
    traffic_of: float

    @property
    def total(self) -> float:
        """All points of the answer."""
        return self.values + (self.traffic or 0.0)

    def __str__(self) -> str:
        """Return "values 2.5 of 2.5, traffic 0.3 of 2.5"."""
        parts = (("values", self.values, self.values_of), ("traffic", self.traffic, self.traffic_of))
        return ", ".join(f"{name} {got:.3g} of {of:.3g}" for name, got, of in parts if got is not None)


def points_of(exercise: Exercise, verdicts: Sequence[tuple[str, str | None]]) -> Points:
    """Return the points for the verdicts of `judge`: (name, None or a message) of each property.

    Verdicts without a property's name, such as one on an error, earn nothing for it.
    """
    held = {name for name, complaint in verdicts if complaint is None}
    failed = {name for name, said in verdicts if said is not None and not isinstance(said, NotReached)}
    values = [one for one in exercise.properties if not one.traffic]
    traffic = [one for one in exercise.properties if one.traffic]
    right, exact = _of_values(values, held), 0.0
    if traffic:
        repairs = _repairs(values, traffic)
        earning = repairs or traffic
        exact = sum(one.name in held for one in earning) / len(earning)
        if repairs:
            right *= exact
        kept = [one for one in traffic if one.idle] if repairs else traffic
        if any(one.name in failed for one in kept):
            exact *= MOST_WITH_A_FAULT
    most = float(exercise.importance)
    of_traffic = most * (HALF if values else 1.0) if traffic else 0.0
    of_values = most - of_traffic
    return Points(of_values * right, of_traffic * exact if traffic else None, of_values, of_traffic)


def how_paid(exercise: Exercise) -> str:
    """Return sentences that list the properties of an exercise by what they earn, for feedback."""
    values = [one for one in exercise.properties if not one.traffic]
    traffic = [one for one in exercise.properties if one.traffic]
    if repairs := _repairs(values, traffic):
        listed = f"The repairs are: {_listed(repairs)}. They earn the points for the traffic"
        return f"{listed}, and the points for the values in proportion. The rest must stay as it was given."
    idle = [one for one in values if one.idle]
    told = [f"Properties of the traffic: {_listed(traffic)}."] if traffic else []
    told += [f"Properties that wrong values can have too: {_listed(idle)}."] if idle else []
    return " ".join(told)


def _listed(some: Sequence[Property]) -> str:
    return "; ".join(f'"{one.name}"' for one in some)


def _repairs(values: Sequence[Property], traffic: Sequence[Property]) -> list[Property]:
    """Return the properties of traffic that a schedule to repair lacks; [] for any other exercise."""
    given = bool(values) and all(one.idle for one in values)
    return [one for one in traffic if given and not one.idle]


def _of_values(values: Sequence[Property], held: set[str]) -> float:
    """Return the share of the values' points, from 0 to 1."""
    if not values:
        return 0.0
    telling = [one for one in values if not one.idle] or values
    each_idle = 1.0 if all(one.name in held for one in telling) else UNTIL_RIGHT
    earned = (each_idle if one.idle else 1.0 for one in values if one.name in held)
    return sum(earned) / len(values)
