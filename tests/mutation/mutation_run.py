"""What `tests.mutation` does: choose mutants, put each to its check, and say each exercise's score."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence

from iocourse.console import progress_meter
from iocourse.course.exercise import exercises, find
from iocourse.doctor import thread_settings
from iocourse.errors import UsageError
from tests.mutation.mutant_process import Verdict, verdicts
from tests.mutation.mutants import OPERATORS, Mutant, mutants_of
from tests.mutation.references import INTERPRETED, sources_of
from tests.mutation.report import Score, scores
from tools.build.notebook_execution import cannot_run


def run(
    *,
    only: Sequence[str] = (),
    operators: Collection[str] = (),
    seeds: int = 10,
    sample: int = 1,
    every_seed: bool = False,
    triton: bool = False,
    jobs: int | None = None,
) -> list[Score]:
    """The score of every exercise that is asked for.

    Args:
        only: ids of exercises, or of lessons ("07"); every one where none is named.
        operators: names of operators, all where none is named.
        seeds: how many seeds a mutant must be refused on; from 1.
        sample: one in so many mutants, drawn by hash: the same ones each time.
        every_seed: try also what the first seed refuses on the others: ten times the work.
        triton: lessons whose kernels run in Triton's interpreter too, at a second a mutant. They are left out
            where no exercise is named.
        jobs: mutants at a time; as many as there are processors where None.

    Raises:
        UsageError: an exercise or operator that is not there, a number below 1, a system without fork.
    """
    _refuse(operators, seeds=seeds, sample=sample, jobs=1 if jobs is None else jobs)
    asked = chosen(only, triton)
    prepare(asked)
    drawn = [m for e in asked for m in mutants_of(e, operators) if m.key % sample == 0]
    return scores(_told(drawn, range(seeds), jobs or os.cpu_count() or 1, every_seed), asked)


def _refuse(operators: Collection[str], **numbers: int) -> None:
    if not hasattr(os, "fork"):
        raise UsageError("mutants run in processes that are forked, and this system has no fork; Linux has")
    for name, number in numbers.items():
        if number < 1:
            raise UsageError(f"--{name} must be at least 1, got {number}")
    for operator in operators:
        if operator not in OPERATORS:
            raise UsageError(f"operator {operator!r} is unknown; allowed: {', '.join(OPERATORS)}")


def chosen(only: Sequence[str], triton: bool) -> list[str]:
    """Ids of the exercises that `only` names, or of all, those of kernels with `triton`.

    Raises:
        UsageError: there is no such exercise.
    """
    for name in only:
        if not any(_is(name, exercise) for exercise in exercises()):
            raise UsageError(
                f"--only {name!r} is no exercise; allowed: {', '.join(exercises())}, or 04 for all of 4"
            )
    if only:
        return [exercise for exercise in exercises() if any(_is(name, exercise) for name in only)]
    return [one.id for one in exercises().values() if triton or one.lesson not in INTERPRETED]


def _is(name: str, exercise: str) -> bool:
    return name == exercise or name == f"{find(exercise).lesson:02d}"


def prepare(chosen: Sequence[str]) -> None:
    """One thread for everybody, as a fork has but one, and the interpreter for kernels, before they load."""
    for name, one in thread_settings.environment(1).items():
        os.environ.setdefault(name, one)
    lessons = {find(exercise).lesson for exercise in chosen}
    if lessons & set(INTERPRETED):
        os.environ["TRITON_INTERPRET"] = "1"
        for path in (path for lesson in sorted(lessons) for path in sources_of(lesson)):
            if reason := cannot_run(path.read_text(encoding="utf-8")):
                raise UsageError(f"lesson {path.stem} {reason}")


def _told(drawn: Sequence[Mutant], seeds: Sequence[int], jobs: int, every_seed: bool) -> Iterator[Verdict]:
    """The verdicts, while a line on standard error says how far they are."""
    with progress_meter(f"{len(drawn):,} mutants", max(1, len(drawn))) as tell:
        for verdict in verdicts(drawn, seeds, jobs, every_seed=every_seed):
            tell(1)
            yield verdict
