"""The kind `choice`: a function that picks one of many, a tile or a plan, judged by what its pick moves.

A lesson gives how an answer is read, what may be picked, and the closed form of a pick. The kind finds the
cheapest one that fits; whatever moves as few words and fits is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, TypeVar

import numpy as np

from ...ledger import Ledger
from ..exercise import Case, Exercise, Property, Trial, exercise
from ..properties import Form, idle, several, whole
from ..sample import Draw, Sample
from .schedule import require

T = TypeVar("T")
Tile = dict[str, int]


def tile_form(*names: str) -> Form[Tile]:
    """Answers that are as many whole numbers as there are names: the sizes of a tile."""

    def read(trial: Trial) -> Tile | None:
        sizes = [whole(size) for size in several(trial.value, len(names)) or (None,)]
        return None if None in sizes else dict(zip(names, sizes, strict=True))  # type: ignore[arg-type]

    return Form("returns two positive integers", read, f"a tile ({', '.join(names)})")


def choice(
    id: str,
    draw: Draw,
    form: Form[T],
    *,
    among: Callable[..., Iterable[T]] | None = None,
    moves: Callable[..., Ledger | float] | None = None,
    fewest: str = "no tile that fits moves fewer words",
    fits: str = "",
    also: Sequence[Property] = (),
    unit: str = "words",
    clue: Callable[[T], str] = lambda cheapest: "",
) -> Exercise:
    """Return the exercise of a choice.

    Args:
        id: the exercise, such as "4D".
        draw: yields the samples from a generator of random numbers.
        form: what an answer must be, and how it is read.
        among: what may be picked for the inputs, by name: all answers, or at least one of the cheapest.
        moves: the closed form of a pick, called with it and the inputs by name; a number, or a Ledger whose
            peak must not exceed the input M.
        fewest: the sentence that nothing cheaper may be picked.
        fits: the sentence that the pick fits in M words, where it must.
        also: properties between those two.
        unit: of the number that `moves` returns.
        clue: what may be said of the cheapest pick without naming it.

    Raises:
        ValueError: what may be picked or the closed form is missing. Drawing the cases raises it where
            nothing that may be picked fits.
    """
    require(
        id,
        ("exact result", among, "among, a function of the inputs that yields what may be picked"),
        ("closed form", moves, "moves, a function of a pick and of the inputs"),
    )
    assert among is not None and moves is not None

    def costs_of(pick: T, inputs: Any) -> tuple[float, int]:
        """What a pick moves, and its footprint."""
        found = moves(pick, **inputs)
        return (found.total, found.peak) if isinstance(found, Ledger) else (found, 0)

    def best(inputs: Any) -> tuple[T, float] | None:
        picks = ((pick, *costs_of(pick, inputs)) for pick in among(**inputs))
        fitting = [(pick, moved) for pick, moved, peak in picks if peak <= inputs.get("M", inf)]
        return min(fitting, key=lambda found: found[1], default=None)

    def case(sample: Sample) -> Case:
        found = best(sample.inputs)
        if found is None:
            raise ValueError(
                f"exercise {id}: nothing that may be picked fits in the case {sample.label!r}; "
                "among must yield a pick that does"
            )
        return Case(sample.label, sample.inputs, found[1], tags=sample.tag_set)

    def has_room(trial: Trial, pick: T) -> str | None:
        (_, peak), M = costs_of(pick, trial.case.inputs), trial.case.inputs["M"]
        return None if peak <= M else f"yours {_shown(pick)}: footprint {peak:,}, M = {M:,}"

    def moves_fewest(trial: Trial, pick: T) -> str | None:
        (moved, _), least = costs_of(pick, trial.case.inputs), trial.case.expected
        cheaper = best(trial.case.inputs) if moved > least * (1 + 1e-9) else None
        if cheaper is None:
            return None
        more = clue(cheaper[0])
        return f"yours {_shown(pick)}: {_number(moved)} {unit}, possible are {_number(least)}{more}"

    properties = [form.kept()] if form.name else []
    properties += [idle(form.must(fits, has_room))] if fits else []
    properties += [*also, form.must(fewest, moves_fewest)]
    return exercise(
        id,
        cases=lambda rng: [case(sample) for sample in draw(rng)],
        properties=properties,
    )


def _shown(pick: object) -> str:
    """A tile as Br=3, Bc=1; anything else as its text."""
    return ", ".join(f"{name}={size}" for name, size in pick.items()) if isinstance(pick, dict) else str(pick)


def _number(moved: float) -> str:
    return f"{moved:,}" if isinstance(moved, (int, np.integer)) else f"{moved:.6g}"
