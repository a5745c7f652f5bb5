"""How an exercise is put to the test: its stub, its reference, its mutants, other right answers, and cheats.

The stub and the reference are read from the lesson's source, as a student and an instructor get them. A
mutant is the reference with one plausible mistake in it, written as a textual replacement.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iocourse.course.authoring.source import Cell, parse, side
from iocourse.course.checking import judge
from iocourse.course.exercise import find

SOLUTIONS = Path(__file__).parents[2] / "solutions"
SEEDS = (0, 1, 2)
INTERPRETED = range(10, 15)  # lessons whose kernels run in Triton's interpreter, a thousand times slower


class Mutant:
    """The reference with each `(old, new)` replaced; its check must fail in the property called `fails`."""

    def __init__(self, name: str, fails: str, *edits: tuple[str, str]) -> None:
        self.name, self.fails, self.edits = name, fails, edits


MINUS_INF = 'float("-inf")'
FINITE = ("0.0", "-100.0", "-10000.0")  # what is taken for minus infinity by those who do not trust it


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


def lesson_of(exercise_id: str) -> int:
    """The number of the lesson an exercise belongs to: 4 for 4.2."""
    return int(exercise_id.split(".")[0])


@functools.cache
def lesson_cells(number: int) -> list[Cell]:
    """The cells of a lesson: lesson 4 is the source that starts with 04_."""
    path = next(SOLUTIONS.glob(f"{number:02d}_*.py"))
    return parse(path.read_text(encoding="utf-8"), path)


def exercise_source(exercise_id: str, *, solved: bool) -> str:
    """The text of the exercise's cell, as solved or as the student finds it."""
    cell = next(c for c in lesson_cells(lesson_of(exercise_id)) if c.name == f"ex-{exercise_id}")
    return "\n".join(side(cell, solved=solved))


def _preamble(exercise_id: str) -> str:
    """What an exercise's cell may rely on: the lesson's imports, its kernels with what launches them, and the
    solved exercises before this one.
    """
    lines: list[str] = []
    for cell in lesson_cells(lesson_of(exercise_id)):
        if cell.name == f"ex-{exercise_id}":
            break
        if cell.kind == "code":
            text = "\n".join(side(cell, solved=True))
            lines.append(text if "exercise" in cell.tags else _kept(text))
    return "\n".join(lines)


def _kept(text: str) -> str:
    """The imports of an ordinary cell, and its functions where one of them is a kernel."""
    kinds = (ast.Import, ast.ImportFrom) + ((ast.FunctionDef,) if "@triton.jit" in text else ())
    return "\n".join(ast.unparse(node) for node in ast.parse(text).body if isinstance(node, kinds))


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    """Run `source` as a file called `name` whose text can be looked up, as triton.jit does."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)


@functools.cache
def _before(exercise_id: str) -> dict[str, Any]:
    """What the notebook knows when it comes to the exercise: run once, and copied for whoever adds to it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    _execute(_preamble(exercise_id), f"<before {exercise_id}>", namespace)
    return namespace


def build(exercise_id: str, source: str) -> Callable[..., Any]:
    """The function that `source` defines, in the namespace it has in the notebook."""
    namespace = dict(_before(exercise_id))
    _execute(source, f"<exercise {exercise_id}>", namespace)
    function: Callable[..., Any] = namespace[find(exercise_id).function]
    return function


def mutate(exercise_id: str, mutant: Mutant) -> Callable[..., Any]:
    """The reference with the mutant's edits; each must change something."""
    source = exercise_source(exercise_id, solved=True)
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
