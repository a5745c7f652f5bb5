"""Whether every number of a lesson's text stands in the same lesson's outputs or code, or is declared.

What counts as a number that has to be borne out stands in `number_parsing`, how one is declared in
`declared_numbers`. A number is borne out where an output (text, or the words beside a picture) or a line of
code shows it, as written or with more digits; where a declaration of its own cell computes it; or of an
earlier one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from tools.build.percent_format import Cell, is_declaration
from tools.build.rules import declared_numbers
from tools.build.rules.declared_numbers import DeclarationError
from tools.build.rules.number_parsing import Numeral, labels_of, numerals, values

Json = dict[str, Any]
Problem = tuple[int, str]  # line of the source, what is wrong there
NOWHERE = "stands in no output and no line of code of this lesson, and no expression is declared for it"


def course_labels(lessons: Sequence[Sequence[Cell]]) -> set[str]:
    """The items, such as 4.1, that the texts of these lessons may refer to."""
    texts = ("\n".join(cell.lines) for cell in chain.from_iterable(lessons) if cell.kind == "markdown")
    return set().union(*map(labels_of, texts))


def problems(cells: Sequence[Cell], solved: Json, path: Path, labels: Collection[str]) -> list[str]:
    """Every number of the text that nothing bears out, every faulty declaration, each as ``file:line: what``.

    Args:
        cells: the source.
        solved: its notebook with outputs.
        path: what messages call the source.
        labels: see `course_labels`.
    """
    lesson = _Lesson(cells, solved, labels)
    found = chain(*(lesson.judge(cell) for cell in cells if cell.kind == "markdown"), lesson.unused())
    return [f"{path}:{line}: {message}" for line, message in sorted(found)]


def without_declarations(cell: Cell) -> list[str]:
    """The lines of a cell, blank where they declare something."""
    return ["" if is_declaration(line) else line for line in cell.lines]


class _Lesson:
    """What a lesson has shown and declared, filled from its top to its bottom."""

    def __init__(self, cells: Sequence[Cell], solved: Json, labels: Collection[str]) -> None:
        self.labels = labels
        texts = [without_declarations(cell) for cell in cells if cell.kind == "markdown"]
        self.links = {link for text in texts for link in re.findall(r"https?://[^\s)]+", "\n".join(text))}
        self.written = [one for text in texts for one in numerals(text, labels)]
        self.shown = sorted(set(chain.from_iterable(map(values, _shown(solved)))))
        self.borne: list[Numeral] = []
        self.named: dict[str, Any] = {}
        self.waiting: dict[str, int] = {}  # names not yet used -> their line

    def judge(self, cell: Cell) -> Iterator[Problem]:
        """What is wrong with a cell's declarations, and with the numbers that are left."""
        visible = without_declarations(cell)
        stands = list(numerals(visible, self.labels))
        for n, line in enumerate(cell.lines, cell.line + 1):
            if is_declaration(line):
                try:
                    self._declare(line, n, stands)
                except DeclarationError as error:
                    yield n, str(error)
        for one in stands:
            if one.claims and not (self._is_shown(one) or any(one.same(other) for other in self.borne)):
                yield cell.line + 1 + one.line, f'{one.text} {NOWHERE}: "{one.sentence}"'

    def unused(self) -> Iterator[Problem]:
        """The names that are bound and never used."""
        for name, line in self.waiting.items():
            yield line, f"the name {name} is declared and never used"

    def _declare(self, line: str, n: int, stands: Sequence[Numeral]) -> None:
        declaration = declared_numbers.read(line)
        self.borne += declaration.numbers  # also where the value is wrong: one fault, one message
        for one in declaration.numbers:
            if not any(one.same(other) for other in stands):
                raise DeclarationError(f"{one.text} is declared and does not stand in this cell")
        if declaration.quoted:
            if declaration.right not in self.links:
                raise DeclarationError(f"{declaration.right} is no link that the text of this lesson shows")
            return
        if declaration.numbers:
            declared_numbers.refuse_bare_numbers(declaration.right)
        self._refuse_unknown_literals(declaration)
        for name in declared_numbers.used_names(declaration.right):
            self.waiting.pop(name, None)
        given = declared_numbers.evaluate(declaration, self.named)
        for number, value in zip(declaration.numbers, given, strict=False):
            declared_numbers.refuse_unless_it_gives(number, value, declaration.right)
        for name, value in zip(declaration.names, given, strict=False):
            self.named[name], self.waiting[name] = value, n

    def _refuse_unknown_literals(self, declaration: declared_numbers.Declaration) -> None:
        for literal in declared_numbers.literals(declaration.right):
            others = [one for one in self.written if not any(one.same(own) for own in declaration.numbers)]
            if not (self._is_shown(literal) or any(literal.same(one) for one in others)):
                raise DeclarationError(
                    f"{literal.text} in {declaration.right} stands nowhere else in this lesson"
                )

    def _is_shown(self, numeral: Numeral) -> bool:
        at = bisect_left(self.shown, (numeral.value - numeral.place / 2,))
        near = takewhile(lambda one: numeral.rounds(one[0]), islice(self.shown, at, None))
        return any(place <= numeral.place for _, place in near)


def _shown(solved: Json) -> Iterator[str]:
    """Code, text outputs and the descriptions of pictures."""
    for cell in solved["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])
            for output in cell["outputs"]:
                yield "".join(output.get("text", ""))
                data = output.get("data", {}).items()
                yield from ("".join(text) for kind, text in data if kind.startswith("text/"))
                yield from (facts.get("alt", "") for facts in output.get("metadata", {}).values())
