"""Mutants written by hand, put to their checks: which property says what is wrong."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from iocourse.console import steps
from iocourse.course.checking import judge, read_first
from iocourse.course.exercise import find
from iocourse.discovery import loaded
from iocourse.errors import UsageError
from tests.mutation.mutation_run import prepare
from tools.build.instructor_guide import Remark

Refusals = dict[str, dict[str, str]]  # by error: the property that names it, and the one to read first


def suites(root: Path, lesson: int) -> dict[str, Any]:
    """The suites of a lesson, as `tests/mutants` of a checkout has them, by exercise.

    Raises:
        UsageError: the checkout has none for it.
    """
    path = root / "tests" / "mutants" / f"lesson{lesson:02d}.py"
    if not path.exists():
        raise UsageError(f"{path} does not exist: the guide is made in a checkout with its tests")
    with _importing_from(path.parent):
        module = loaded(path, f"mutants_{path.stem}")
    return {suite.id: suite for suite in module.SUITES}


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """The suites share `harness.py`, which lies beside them."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def refusals(root: Path, remarks: Mapping[str, Remark], chosen: Sequence[str]) -> dict[str, Refusals]:
    """What refuses the common errors of these exercises.

    Args:
        root: the checkout.
        remarks: which errors are common.
        chosen: ids of exercises.

    Raises:
        UsageError: a remark names no mutant of its exercise, or one that its check accepts; a lesson cannot
            run here.
    """
    prepare(chosen)
    found: dict[str, Refusals] = {}
    known: dict[int, dict[str, Any]] = {}
    for name in steps(chosen, "exercises"):
        lesson = find(name).lesson
        if lesson not in known:
            known[lesson] = suites(root, lesson)
        found[name] = refused(name, known[lesson][name], [error for error, _ in remarks[name].errors])
    return found


def refused(name: str, suite: Any, errors: Iterable[str]) -> Refusals:
    """What refuses each of these errors of an exercise."""
    mutants = {mutant.name: mutant for mutant in suite.mutants}
    if strange := [error for error in errors if error not in mutants]:
        raise UsageError(f"the remark on {name} names {strange[0]!r}; its mutants: {', '.join(mutants)}")
    return {error: _refusal(name, mutants[error]) for error in errors}


def _refusal(name: str, mutant: Any) -> dict[str, str]:
    harness = sys.modules["harness"]
    exercise = find(name)
    with redirect_stdout(io.StringIO()):
        function = harness.mutate(name, mutant)
        for seed in harness.SEEDS:
            failed = {one: said for one, said in judge(exercise, function, seed) if said is not None}
            if mutant.fails in failed:
                return {"named by": mutant.fails, "read first": read_first(exercise, failed)}
    raise UsageError(
        f"mutant {mutant.name!r} of {name} does not fail in {mutant.fails!r}: mend its suite first"
    )
