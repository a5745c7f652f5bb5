"""The kind `schedule`: a function on the two-level machine, tested for values, words moved and footprint.

A lesson passes the exact result, the closed form, a generator of samples and the properties. The kind makes
the cases from them: exact result, closed form, words of fast memory, label and tags. Properties select cases
by their tags; the label is only displayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...ledger import Ledger
from ..exercise import (
    Better,
    BoundComparison,
    Case,
    Draw,
    Exercise,
    NotReached,
    Property,
    RunCase,
    Sample,
    Trial,
    exercise,
    run_schedule,
)
from ..properties import array_names, every_input_loaded, fits_in_fast_memory, total_within


@dataclass(frozen=True)
class ScheduleCase(Case):
    """A case with the closed forms of likely other schedules, by the clause that explains each of them."""

    others: Mapping[str, Ledger] = field(default_factory=dict)


def one_more_of_each_kind(*, N: int, Br: int, Bc: int, n: int = 0, **_: Any) -> int:
    """Return the allowance: one more tile of scores and four words per row, never N × N (or N × n) scores."""
    r, c = min(Br, N), min(Bc, n or N)
    return r * c + 4 * r


def no_spare_word(**_: Any) -> int:
    """Return the allowance 0, for a schedule that must run in exactly its footprint."""
    return 0


def schedule_exercise(
    id: str,
    draw: Draw,
    *,
    equals: Callable[..., Any] | None = None,
    moves: Callable[..., Ledger] | None = None,
    values: Sequence[Property] = (),
    words: Sequence[Property] = (),
    loads: Property | None = None,
    spare: Callable[..., int] = no_spare_word,
    room: Property | None = None,
    total: Property | None = None,
    mistaken: Mapping[str, Callable[..., Ledger]] | None = None,
    run_case: RunCase = run_schedule,
    comparison: BoundComparison | None = None,
) -> Exercise:
    """Return the exercise of a schedule.

    Args:
        id: the exercise, such as "4A".
        draw: yields the samples, for a generator of random numbers.
        equals: the exact result, called with the inputs and facts by name; a tuple for several results.
        moves: the closed form, called with the sizes, the facts and those inputs that are not arrays. Its
            peak is the footprint.
        values: properties of the result, which the report lists first.
        words: properties of the words of each array, and of scratch.
        loads: the property of the arrays that must be loaded; default: all of them.
        spare: words of fast memory in addition to the footprint, called like the closed form.
        room: the property of fast memory; default: `fits_in_fast_memory()`.
        total: the property of all words together; default: `total_within()`.
        mistaken: closed forms of other schedules that are likely, by the clause that explains a result which
            reads the inputs as often.
        run_case: runs one case.
        comparison: sizes at which a solved schedule is compared with a lower bound.

    Raises:
        ValueError: the exact result, the closed form, or the properties of values or words are missing.
            Drawing the cases raises it where a case has no exact result, no words or no footprint.
    """
    require_parts(
        id,
        ("exact result", equals, "equals, a function of the inputs"),
        ("closed form", moves, "moves, a function of the sizes that returns a Ledger"),
        ("property of its values", values, "values"),
        ("property of its words", words, "words"),
    )
    assert equals is not None and moves is not None
    likely = mistaken or {}

    def case(sample: Sample) -> Case:
        expected, budget = equals(**sample.inputs, **sample.facts), sample.of(moves)
        checked = {"exact result": expected is not None, "words": budget.total, "footprint": budget.peak}
        for part, there in checked.items():
            if not there:
                raise ValueError(
                    f"exercise {id}: the case {sample.label!r} has no {part}; "
                    f"{'equals' if part == 'exact result' else 'moves'} must return it"
                )
        M = budget.peak + sample.of(spare)
        others = {said: sample.of(form) for said, form in likely.items()}
        return ScheduleCase(
            sample.label, sample.inputs, expected, M, budget, tags=sample.tag_set, others=others
        )

    moved = (room or fits_in_fast_memory(), loads or every_input_loaded(), *words, total or total_within())
    return exercise(
        id,
        cases=lambda rng: [case(sample) for sample in draw(rng)],
        properties=(*values, *(_with_cause(one) for one in moved)),
        run_case=run_case,
        comparison=comparison,
    )


def require_parts(id: str, *parts: tuple[str, Any, str]) -> None:
    """Raise ValueError for the first (part, value, what to pass) of an exercise whose value is missing."""
    for part, value, wanted in parts:
        if value is None or value == ():
            raise ValueError(f"exercise {id} has no {part}: pass {wanted}")


def _with_cause(asked: Property) -> Property:
    """Return the property; its message names another schedule if the inputs are read as often as there."""

    def judge(trials: Sequence[Trial]) -> str | None:
        said = asked.judge(trials)
        if not said or isinstance(said, (Better, NotReached)):
            return said
        others = [one.case.others if isinstance(one.case, ScheduleCase) else {} for one in trials]
        for cause in others[0]:
            if all(map(_reads_alike, trials, (known[cause] for known in others))):
                return f"{cause}: {said}"
        return said

    return replace(asked, judge=judge)


def _reads_alike(trial: Trial, form: Ledger) -> bool:
    names = array_names(trial.case)
    return all(trial.ledger.reads.get(name, 0) == form.reads.get(name, 0) for name in names)
