"""Cover of an exercise: for each property one mutant that it rejects, which the test suite repeats."""

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

SEEDS = (0, 2, 7, 13, 19)  # a mutant is recorded if its property rejects it on each
SECONDS = 60.0  # of processor time per exercise, two thirds of it for the operators of FIELD
FEW = 2  # a mutant that fails at most this many properties is accepted without a search for a better one
TRIES = 6  # mutants that are tried on all seeds before a property is left without one
FIRST = (
    "hidden_scores",
    "running_maxima",
    "starts",
    "torch_prepares_an_input",
)  # operators that are tried in any case


def declared(exercise_id: str) -> list[str]:
    """Names of the properties that the exercise declares; each needs a mutant."""
    return [one.name for one in find(exercise_id).properties]


def properties_of(exercise_id: str) -> list[str]:
    """Names of all properties that a mutant may fail: the declared ones and those of the whole course."""
    return [*dict.fromkeys([*declared(exercise_id), *COURSE_WIDE])]


def still_shown(exercise_id: str, rows: Iterable[RecordedMutant]) -> list[RecordedMutant]:
    """The recorded rows that still apply to the reference, without properties that no longer exist."""
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
    """Search a mutant for each wanted property, with these operators or with all, and return their rows.

    The operators of FIELD are tried first, then the general ones, until every property has a good mutant or
    the time is over. The mutant that fails the fewest properties is chosen; among equals, the first that its
    operator makes. A mutant that changes all values is chosen only if there is no other.
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
    """Yield mutants until every needed property has a good one or the time is over."""
    for mutant in mutants:
        good = {name for one in tried if one.failed and _rank(one) <= (False, FEW) for name in one.failed[0]}
        if good >= needed or _processor_seconds() > end:
            return
        yield mutant


def _rank(verdict: Verdict) -> tuple[bool, int]:
    return verdict.mutant.operator in WRONG_ALIKE, len(verdict.failed[0])


def _chosen(tried: Sequence[Verdict], wanted: Sequence[str]) -> dict[Mutant, list[str]]:
    """The chosen mutants, each with the properties that it is recorded for."""
    taken: dict[Mutant, list[str]] = {}

    @cache
    def failed(mutant: Mutant) -> set[str]:
        """Names of the properties that fail on every other seed."""
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
