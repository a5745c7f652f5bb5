"""Points for an answer: a share for one that is right in part, and none for one that does nothing."""

from __future__ import annotations

from collections.abc import Sequence

from .exercise import Exercise, Property


def most_points(exercise: Exercise) -> int:
    """The points for an answer with every property: the exercise's importance."""
    return exercise.importance


def points_of(exercise: Exercise, verdicts: Sequence[tuple[str, str | None]]) -> float:
    """The points for an answer of which `judge` says these verdicts.

    Properties count alike, and `idle` ones in the share in which the others hold: few words moved and
    inputs left as they were are worth nothing where nothing is right, half where half is.
    """
    held = {name for name, complaint in verdicts if complaint is None}
    working = [prop for prop in exercise.properties if not prop.idle]
    idling = [prop for prop in exercise.properties if prop.idle]
    right = _holding(working, held)
    counted = right + _holding(idling, held) * right / len(working)
    return most_points(exercise) * counted / len(exercise.properties)


def _holding(properties: Sequence[Property], held: set[str]) -> int:
    return sum(prop.name in held for prop in properties)
