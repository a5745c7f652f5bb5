"""Run of `python -m tests.mutation`: choose mutants, run the check on each, and score the exercises."""

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
    """Score the requested exercises.

    Args:
        only: ids of exercises, or of lessons ("07"); all if empty.
        operators: names of operators; all if empty.
        seeds: number of seeds on which a mutant must be rejected, at least 1.
        sample: try one mutant in `sample`, chosen by hash, so each run tries the same ones.
        every_seed: try a mutant that the first seed rejects on the others too, ten times the work.
        triton: include lessons whose kernels run in Triton's interpreter, one second per mutant. Without
            it they run only if `only` names them.
        jobs: mutants to run at the same time; None for one per processor.

    Raises:
        UsageError: if an exercise or operator is unknown, a number is below 1, or the system has no fork.
    """
    _refuse(operators, seeds=seeds, sample=sample, jobs=1 if jobs is None else jobs)
    asked = chosen(only, triton)
    prepare(asked)
    drawn = [m for e in asked for m in mutants_of(e, operators) if m.key % sample == 0]
    return scores(_told(drawn, range(seeds), jobs or os.cpu_count() or 1, every_seed), asked)


def _refuse(operators: Collection[str], **numbers: int) -> None:
    if not hasattr(os, "fork"):
        raise UsageError(
            "mutants run in forked processes, but this system has no fork. Run the command on Linux."
        )
    for name, number in numbers.items():
        if number < 1:
            raise UsageError(f"--{name} must be at least 1, got {number}")
    for operator in operators:
        if operator not in OPERATORS:
            raise UsageError(f"unknown operator {operator!r}, expected one of {', '.join(OPERATORS)}")


def chosen(only: Sequence[str], triton: bool) -> list[str]:
    """Ids of the exercises that `only` names; if it is empty, all ids, those of kernels only with `triton`.

    Raises:
        UsageError: if an exercise or lesson does not exist.
    """
    for name in only:
        if not any(_is(name, exercise) for exercise in exercises()):
            raise UsageError(
                f"--only must name an exercise or a lesson, got {name!r}; expected one of "
                f"{', '.join(exercises())}, or 04 for all of lesson 4"
            )
    if only:
        return [exercise for exercise in exercises() if any(_is(name, exercise) for name in only)]
    return [one.id for one in exercises().values() if triton or one.lesson[:2] not in INTERPRETED]


def _is(name: str, exercise: str) -> bool:
    return name == exercise or name == find(exercise).lesson[:2]


def prepare(chosen: Sequence[str]) -> None:
    """Set one thread for all libraries, because a fork has only one, and for kernels Triton's interpreter.

    Both variables are read when a library is imported.
    """
    for name, one in thread_settings.environment(1).items():
        os.environ.setdefault(name, one)
    lessons = {find(exercise).lesson[:2] for exercise in chosen}
    if lessons & set(INTERPRETED):
        os.environ["TRITON_INTERPRET"] = "1"
        for path in (path for lesson in sorted(lessons) for path in sources_of(lesson)):
            if reason := cannot_run(path.read_text(encoding="utf-8")):
                raise UsageError(f"lesson {path.stem} {reason}")


def _told(drawn: Sequence[Mutant], seeds: Sequence[int], jobs: int, every_seed: bool) -> Iterator[Verdict]:
    """Yield the verdicts and show a progress meter on standard error."""
    with progress_meter(f"{len(drawn):,} mutants", max(1, len(drawn))) as tell:
        for verdict in verdicts(drawn, seeds, jobs, every_seed=every_seed):
            tell(1)
            yield verdict
