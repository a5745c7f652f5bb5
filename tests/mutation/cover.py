"""The cover: for each property of an exercise one mutant that it refuses, which the suite makes again."""

from __future__ import annotations

import resource
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from iocourse.course.checking import COURSE_WIDE
from iocourse.course.exercise import find
from tests.mutation.kernel_operators import WRONG_ALIKE
from tests.mutation.mutant_process import Verdict, verdicts
from tests.mutation.mutants import FIELD, GENERAL, Mutant, mutants_of
from tests.mutation.references import exercise_source
from tools.build.recorded_mutants import RecordedMutant, change_between

SEEDS = (0, 2, 7, 13, 19)  # a mutant is recorded where its property refuses it on each
SECONDS = 60.0  # of processor time an exercise, two thirds of it for the operators of the field
FEW = 2  # a mutant that fails at most so many properties is good enough, and no better one is looked for
TRIES = 6  # mutants that are tried on all seeds until a property is given up
FIRST = (
    "hidden_scores",
    "running_maxima",
    "starts",
    "torch_prepares_an_input",
)  # operators tried in any case


def declared(exercise_id: str) -> list[str]:
    """The properties that the exercise has, for each of which a mutant is looked for."""
    return [one.name for one in find(exercise_id).properties]


def properties_of(exercise_id: str) -> list[str]:
    """The properties that may have a mutant: also those of every exercise, which laws of the suite show."""
    return [*dict.fromkeys([*declared(exercise_id), *COURSE_WIDE])]


def still_shown(exercise_id: str, rows: Iterable[RecordedMutant]) -> list[RecordedMutant]:
    """The rows that apply to the reference as it is, without properties that are gone."""
    reference, known = exercise_source(exercise_id, solved=True), properties_of(exercise_id)
    applying = [row for row in rows if row.made_of(reference) is not None]
    kept = ((row, tuple(name for name in row.properties if name in known)) for row in applying)
    return [
        RecordedMutant(properties, row.operator, row.line, row.removed, row.inserted)
        for row, properties in kept
        if properties
    ]


def cover(
    exercise_id: str,
    wanted: Sequence[str],
    *,
    operators: Collection[str] = (),
    jobs: int = 1,
    seconds: float = SECONDS,
) -> list[RecordedMutant]:
    """A mutant for each of the wanted properties for which one is found, by these operators or by all.

    Mutants by the operators of the field come first, then general ones, until those for all properties are
    good enough or the time is over. Of several the one that fails the fewest properties is taken, of equals
    the first that its operator makes; one that spoils all values only where there is no other.
    """
    tried: list[Verdict] = []
    began = _processor_seconds()
    for kind in (FIELD, GENERAL) if not operators else (operators,):
        made = mutants_of(exercise_id, kind)
        drawn = sorted(made, key=lambda one: (one.operator not in FIRST, one.key))
        end = began + seconds * (2 / 3 if kind is FIELD else 1)
        found = []
        needed = set(wanted) & set(declared(exercise_id))
        for verdict in verdicts(_until(drawn, tried, needed, end), SEEDS[:1], jobs, every_case=True):
            found.append(verdict)
            tried.append(verdict)
        tried[len(tried) - len(found) :] = sorted(found, key=lambda one: made.index(one.mutant))
    return _rows(exercise_id, _chosen([one for one in tried if one.failed], wanted))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _until(
    mutants: Iterable[Mutant], tried: Sequence[Verdict], needed: set[str], end: float
) -> Iterator[Mutant]:
    """The mutants, until those that were tried are good enough or the time is over."""
    for mutant in mutants:
        good = {name for one in tried if one.failed and _rank(one) <= (False, FEW) for name in one.failed[0]}
        if good >= needed or _processor_seconds() > end:
            return
        yield mutant


def _rank(verdict: Verdict) -> tuple[bool, int]:
    return verdict.mutant.operator in WRONG_ALIKE, len(verdict.failed[0])


def _chosen(tried: Sequence[Verdict], wanted: Sequence[str]) -> dict[Mutant, list[str]]:
    """The mutants that are taken, and the properties that each stands for."""
    taken: dict[Mutant, list[str]] = {}

    @cache
    def failed(mutant: Mutant) -> set[str]:
        """The properties that fail on each of the other seeds."""
        (verdict,) = verdicts([mutant], SEEDS[1:], 1, every_seed=True, every_case=True)
        complete = len(verdict.failed) == len(SEEDS) - 1
        return set.intersection(*map(set, verdict.failed)) if complete else set()

    for name in wanted:
        refused = [one for one in tried if name in one.failed[0]]
        ranked = sorted(refused, key=lambda one: (_rank(one), one.mutant not in taken))
        sure = (one.mutant for one in islice(ranked, TRIES) if name in failed(one.mutant))
        if (mutant := next(sure, None)) is not None:
            taken.setdefault(mutant, []).append(name)
    return taken


def _rows(exercise_id: str, taken: dict[Mutant, list[str]]) -> list[RecordedMutant]:
    reference = exercise_source(exercise_id, solved=True)
    return [
        RecordedMutant(tuple(names), mutant.operator, *change_between(reference, mutant.source))
        for mutant, names in taken.items()
    ]
