"""Four typical answers to every exercise: a factor forgotten, untiled, twice the traffic, and nothing.

`typical_answers.toml` declares the first three for each exercise. The tests judge them and compare their
points with the rule (`iocourse.course.points`). `python -m tests.typical_points` prints the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness import Mutant, launched_twice, mutate, solved

from iocourse.course.exercise import find
from tests.mutation.references import build
from tools.build.recorded_mutants import read_recorded

HERE = Path(__file__).parent
KINDS = ("factor", "untiled", "twice")  # of the declared answers; "nothing" is the same for all exercises
Answer = Callable[..., Any]


@dataclass(frozen=True)
class Typical:
    """A typical answer.

    Attributes:
        id: its exercise.
        kind: one of KINDS.
        how: the change of the reference, in words or code.
        make: returns the function; None if the exercise has no such answer, and `how` is then the reason.
    """

    id: str
    kind: str
    how: str
    make: Callable[[], Answer] | None


@cache
def declared() -> Mapping[str, Mapping[str, Any]]:
    """Return the declarations by exercise."""
    return tomllib.loads((HERE / "typical_answers.toml").read_text(encoding="utf-8"))


def typical_answers(exercise_id: str) -> Iterator[Typical]:
    """Yield the declared answers to an exercise, in the order of KINDS."""
    given = declared().get(exercise_id, {})
    for kind in KINDS:
        if kind in given:
            yield _typical(exercise_id, kind, given[kind])


def _typical(exercise_id: str, kind: str, given: Mapping[str, Any]) -> Typical:
    made = partial(Typical, exercise_id, kind)
    if "none" in given:
        return made(given["none"], None)
    if "recorded" in given:
        rows = [
            row for row in read_recorded(HERE.parents[1])[exercise_id] if row.operator == given["recorded"]
        ]
        row = rows[given.get("number", 0)]
        change = f"{' '.join(map(str.strip, row.removed))} → {' '.join(map(str.strip, row.inserted))}"
        return made(change, lambda: build(exercise_id, row.made_of(solved(exercise_id))))
    if "edits" in given:
        edits = [tuple(edit) for edit in given["edits"]]
        change = "; ".join(f"{old.strip()} → {new.strip()}" for old, new in edits)
        return made(change, lambda: mutate(exercise_id, Mutant(kind, "", *edits)))
    if "tiles" in given:
        size = given["tiles"]
        return made(
            f"every tile size is {size}", lambda: tiles_of(size, build(exercise_id, solved(exercise_id)))
        )
    if "every" in given:
        return made(f"every {given['every']} twice", lambda: _twice(exercise_id, given["every"]))
    raise ValueError(f"typical_answers.toml: {exercise_id}.{kind} has none of the known keys: {dict(given)}")


# ------------------------------------------------------------------ changes of any reference
def tiles_of(size: int, reference: Answer) -> Answer:
    """Return the function that calls the reference with this size in place of each given tile size."""

    def untiled(*given: Any, **tiles: Any) -> Any:
        return reference(*given, **{name: size if isinstance(n, int) else n for name, n in tiles.items()})

    return untiled


def _twice(exercise_id: str, what: str) -> Answer:
    if what == "launch":
        return mutate(exercise_id, launched_twice(find(exercise_id).function))
    reference = build(exercise_id, solved(exercise_id))
    return lambda m, *given, **tiles: reference(_Twice(m, what), *given, **tiles)


class _Twice:
    """A machine on which every load (or store) happens twice; its footprint is that of one."""

    def __init__(self, machine: Any, what: str) -> None:
        self._machine, self._what = machine, what

    def load(self, array: Any, rows: Any = None, cols: Any = None, *, into: Any = None) -> Any:
        if into is not None:
            into.free()
        if self._what == "load":
            self._machine.load(array, rows, cols).free()
        return self._machine.load(array, rows, cols)

    def store(self, tile: Any, array: Any, rows: Any = None, cols: Any = None) -> None:
        for _ in range(2 if self._what == "store" else 1):
            self._machine.store(tile, array, rows, cols)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)
