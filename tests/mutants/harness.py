"""How an exercise is put to the test: its stub, its reference, its mutants, other right answers, and cheats.

The stub and the reference are read from the lesson's source, as a student and an instructor get them. A
mutant is the reference with one plausible mistake in it, written as a textual replacement.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from iocourse.course.checking import judge
from iocourse.course.exercise import find
from tests.mutation.references import build, exercise_source

SEEDS = range(20)  # a verdict is the same on each of them: `every_seed.py` tries all, the suite one by name


class Mutant:
    """The reference with each `(old, new)` replaced; its check must fail in the property called `fails`."""

    def __init__(self, name: str, fails: str, *edits: tuple[str, str]) -> None:
        self.name, self.fails, self.edits = name, fails, edits


MINUS_INF = 'float("-inf")'
FINITE = ("0.0", "-100.0", "-1e6")  # what is taken for minus infinity by those who do not trust it


def finite(fails: str, name: str, place: str, values: tuple[str, ...] = FINITE) -> tuple[Mutant, ...]:
    """Mutants with a finite number where `place`, a piece of the reference, has minus infinity."""
    return tuple(
        Mutant(f"{name}{value}", fails, (place, place.replace(MINUS_INF, value))) for value in values
    )


@dataclass(frozen=True)
class Suite:
    """What is known about one exercise beyond its reference: at least four mutants and two other answers.

    `right` are differently written correct functions, `cheats` pairs of a function and the property that
    must refuse it.
    """

    id: str
    mutants: tuple[Mutant, ...]
    right: tuple[Callable[..., Any], ...]
    cheats: tuple[tuple[Callable[..., Any], str], ...] = field(default=())


def called(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A cheat of one expression, which stands where it is listed, under a name that says what it does."""
    function.__name__ = name
    return function


def drawn(*names: str) -> int:
    """One of the seeds, by the names of what is tried: the same one each time."""
    return SEEDS[int(hashlib.sha256(" ".join(names).encode()).hexdigest(), 16) % len(SEEDS)]


@functools.cache  # to find the lesson of a mutant takes as long as to judge some of them
def solved(exercise_id: str) -> str:
    """The text of the reference, which mutants change."""
    return exercise_source(exercise_id, solved=True)


def mutate(exercise_id: str, mutant: Mutant) -> Callable[..., Any]:
    """The reference with the mutant's edits; each must change something."""
    source = solved(exercise_id)
    for old, new in mutant.edits:
        if old not in source:
            raise AssertionError(
                f"mutant {mutant.name!r} of {exercise_id} changes nothing: {old!r} is not there"
            )
        source = source.replace(old, new)
    return build(exercise_id, source)


def failures(exercise_id: str, function: Any, seed: int) -> list[str]:
    """Names of the properties that fail, in the report's order."""
    return [name for name, complaint in judge(find(exercise_id), function, seed) if complaint is not None]


KEPT = """def kept_by_shape(function):
    kept = {}

    def first_of_this_shape(*given):
        key = tuple(getattr(one, "shape", one) for one in given)
        if key not in kept:
            kept[key] = function(*given)
        return kept[key]

    return first_of_this_shape


@kept_by_shape
"""


def kept_by_shape(fails: str, function: str) -> Mutant:
    """The reference, whose first answer to inputs of some shapes is its answer to all inputs of them."""
    return Mutant("kept-by-shape", fails, (f"def {function}(", f"{KEPT}def {function}("))
