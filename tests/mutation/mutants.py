"""All mutants of a reference: one operator applied in one place, described by the lines that it changes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tests.mutation import kernel_operators, operators, schedule_operators
from tests.mutation.operators import Around, around
from tests.mutation.references import exercise_source

GENERAL = operators.OPERATORS  # these do not depend on the topic of an exercise
FIELD = schedule_operators.OPERATORS | kernel_operators.OPERATORS
OPERATORS = GENERAL | FIELD
_NO_CODE = (
    "annotation",
    "returns",
    "decorator_list",
    "targets",
    "optional_vars",
)  # fields that are not changed


@dataclass(frozen=True)
class Mutant:
    """A reference with one change.

    Attributes:
        exercise: the id of the exercise.
        operator: the operator that made it.
        before: the removed lines, without indentation.
        after: the lines that replace them.
        place: position among equal lines of the reference, such as "2 of 3"; "" if the line is unique.
        source: the complete source with the change.
    """

    exercise: str
    operator: str
    before: str
    after: str
    source: str
    place: str = ""

    @property
    def line(self) -> str:
        """The changed lines, with their position if several lines are equal."""
        return f"{self.before}  ({self.place})" if self.place else self.before

    @property
    def key(self) -> int:
        """A hash of exercise and source, by which samples are drawn."""
        return int(hashlib.sha256(f"{self.exercise}\n{self.source}".encode()).hexdigest()[:8], 16)


def mutants_of(exercise_id: str, operators: Collection[str] = ()) -> list[Mutant]:
    """All different mutants of an exercise's reference by these operators, or by the general ones if none is
    named.
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
    """Yield the positions of all nodes, outermost first: parent, field, and index in a list or None."""
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
    """Yield the complete source once per replacement of the node in this place."""
    holder = getattr(parent, field)
    node = holder if at is None else holder[at]
    if field == "func" and isinstance(node, ast.Name):
        return  # the name of a called function is not a value
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
    """Describe a mutant by the lines in which the reference and the text differ."""
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
