"""All mutants of a reference: one operator at one place each, and how a mutant is called."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tests.mutation import kernel_operators, operators, schedule_operators
from tests.mutation.operators import Around, around
from tests.mutation.references import exercise_source

GENERAL = operators.OPERATORS  # they know nothing of what an exercise is about
FIELD = schedule_operators.OPERATORS | kernel_operators.OPERATORS
OPERATORS = GENERAL | FIELD
_NO_CODE = (
    "annotation",
    "returns",
    "decorator_list",
    "targets",
    "optional_vars",
)  # fields that are left alone


@dataclass(frozen=True)
class Mutant:
    """A reference with one change.

    Attributes:
        exercise: the id of the exercise.
        operator: the operator that made it.
        before: the lines that are no longer there, without indentation.
        after: the lines that stand in their place.
        place: which of several equal lines of the reference, such as "2 of 3"; "" where there is one.
        source: the whole text with the change.
    """

    exercise: str
    operator: str
    before: str
    after: str
    source: str
    place: str = ""

    @property
    def line(self) -> str:
        """What is changed, and where several lines are equal, which."""
        return f"{self.before}  ({self.place})" if self.place else self.before

    @property
    def key(self) -> int:
        """A number that changes only when the exercise or the mutant does: what samples are drawn by."""
        return int(hashlib.sha256(f"{self.exercise}\n{self.source}".encode()).hexdigest()[:8], 16)


def mutants_of(exercise_id: str, operators: Collection[str] = ()) -> list[Mutant]:
    """Every mutant of an exercise's reference by these operators, each once; by the general ones where none
    is named.
    """
    tree = ast.parse(exercise_source(exercise_id, solved=True))
    reference = ast.unparse(tree)
    seen, found = {reference}, []
    for operator, text in _texts(tree, operators or GENERAL):
        if text not in seen:
            seen.add(text)
            found.append(_mutant(exercise_id, operator, reference, text))
    return found


def _texts(tree: ast.Module, operators: Collection[str]) -> Iterator[tuple[str, str]]:
    for number, function in enumerate(tree.body):
        if isinstance(function, ast.FunctionDef):
            names = around(function)
            for parent, field, at in [(tree, "body", number), *_places(function)]:
                for operator in OPERATORS:
                    if operator in operators:
                        yield from (
                            (operator, text) for text in _swapped(tree, parent, field, at, operator, names)
                        )


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Where nodes stand, outermost first: parent, field, and the place in a list."""
    for field, value in ast.iter_fields(node):
        if field in _NO_CODE:
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield node, field, at
                yield from _places(child)


def _swapped(
    tree: ast.Module, parent: ast.AST, field: str, at: int | None, operator: str, names: Around
) -> Iterator[str]:
    """The text of the whole with each replacement for the node at this place."""
    holder = getattr(parent, field)
    node = holder if at is None else holder[at]
    if field == "func" and isinstance(node, ast.Name):
        return  # what is called is no value
    for other in OPERATORS[operator](node, names):
        if at is None:
            setattr(parent, field, other)
        else:
            holder[at] = other
        try:
            yield ast.unparse(tree)
        finally:
            if at is None:
                setattr(parent, field, node)
            else:
                holder[at] = node


def _mutant(exercise_id: str, operator: str, reference: str, text: str) -> Mutant:
    """A mutant by the lines that differ: those of the reference, and those of the text."""
    old, new = ([line.strip() for line in one.splitlines()] for one in (reference, text))
    same = (n for n, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1])
    first = next(same, min(len(old), len(new)))
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    before, after = ("\n".join(side[first : len(side) - last]) for side in (old, new))
    equal = old.count(old[first]) if before else 0
    place = f"{1 + old[:first].count(old[first])} of {equal}" if equal > 1 else ""
    return Mutant(exercise_id, operator, before, after, text, place)
