"""Points of an answer: a share if it is right in part, none if it does nothing."""

from __future__ import annotations

from collections.abc import Sequence

from .exercise import Exercise, Property


def most_points(exercise: Exercise) -> int:
    """The points of an answer that has every property: the exercise's importance."""
    return exercise.importance


def points_of(exercise: Exercise, verdicts: Sequence[tuple[str, str | None]]) -> float:
    """The points of an answer, from the verdicts that `judge` returns for it.

    All properties have the same weight. Those that an answer which does nothing has as well (`idle`: few
    words moved, inputs not modified) count in the share in which the others hold.
    """
    held = {name for name, complaint in verdicts if complaint is None}
    working = [prop for prop in exercise.properties if not prop.idle]
    idling = [prop for prop in exercise.properties if prop.idle]
    right = _holding(working, held)
    counted = right + _holding(idling, held) * right / len(working)
    return most_points(exercise) * counted / len(exercise.properties)


def _holding(properties: Sequence[Property], held: set[str]) -> int:
    return sum(prop.name in held for prop in properties)
