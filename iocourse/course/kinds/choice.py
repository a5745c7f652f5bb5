"""The kind `choice`: a function that selects one of many tiles or plans, tested for the words that it moves.

A lesson passes the form of the result, the possible choices, and the closed form of a choice. The kind finds
the cheapest choice that fits. Every choice that fits and moves as few words is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, TypeVar

import numpy as np

from ...ledger import Ledger
from ..exercise import Case, Draw, Exercise, NotReached, Property, Sample, Trial, exercise
from ..properties import Form, idle, several, whole
from .schedule import require_parts

T = TypeVar("T")
TileSizes = dict[str, int]


def tile_form(*names: str) -> Form[TileSizes]:
    """Return the form of a tile: one positive integer per name."""

    def read(trial: Trial) -> TileSizes | None:
        sizes = [whole(size) for size in several(trial.value, len(names)) or (None,)]
        return None if None in sizes else dict(zip(names, sizes, strict=True))  # type: ignore[arg-type]

    return Form("returns two positive integers", read, f"a tile ({', '.join(names)})")


def choice_exercise(
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
        form: the form of a result.
        among: called with the inputs by name; yields all choices, or at least one of the cheapest.
        moves: the closed form of a choice, called with it and the inputs by name; a number, or a Ledger whose
            peak must not exceed the input M.
        fewest: name of the property that no choice is cheaper.
        fits: name of the property that the choice fits in M words; "" for none.
        also: properties between those two.
        unit: the unit of the number that `moves` returns.
        clue: a clause about the cheapest choice that does not reveal it.

    Raises:
        ValueError: `among` or `moves` is missing. Drawing the cases raises it if no choice fits.
    """
    require_parts(
        id,
        ("exact result", among, "among, a function of the inputs that yields the possible choices"),
        ("closed form", moves, "moves, a function of a choice and of the inputs"),
    )
    assert among is not None and moves is not None

    def costs_of(pick: T, inputs: Any) -> tuple[float, int]:
        """Return the words that a choice moves, and its footprint."""
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
                f"exercise {id}: no possible choice fits in the case {sample.label!r}; "
                "among must yield one that fits"
            )
        return Case(sample.label, sample.inputs, found[1], tags=sample.tag_set)

    def has_room(trial: Trial, pick: T) -> str | None:
        (_, peak), M = costs_of(pick, trial.case.inputs), trial.case.inputs["M"]
        return None if peak <= M else f"{_shown(pick)} needs {peak:,} words, but M = {M:,}"

    def moves_fewest(trial: Trial, pick: T) -> str | None:
        (moved, peak), least = costs_of(pick, trial.case.inputs), trial.case.expected
        cheaper = best(trial.case.inputs) if moved > least * (1 + 1e-9) else None
        if cheaper is None:  # a choice that needs more than M may move few words
            fitting = not fits or peak <= trial.case.inputs["M"]
            return None if fitting else NotReached(f"{_shown(pick)} does not fit")
        more = clue(cheaper[0])
        return f"{_shown(pick)} moves {_number(moved)} {unit}, the minimum is {_number(least)}{more}"

    properties = [form.kept()] if form.name else []
    properties += [idle(form.must(fits, has_room))] if fits else []
    properties += [*also, form.must(fewest, moves_fewest)]
    return exercise(
        id,
        cases=lambda rng: [case(sample) for sample in draw(rng)],
        properties=properties,
    )


def _shown(pick: object) -> str:
    """Format a tile as Br=3, Bc=1, and any other choice with str."""
    return ", ".join(f"{name}={size}" for name, size in pick.items()) if isinstance(pick, dict) else str(pick)


def _number(moved: float) -> str:
    return f"{moved:,}" if isinstance(moved, (int, np.integer)) else f"{moved:.6g}"
