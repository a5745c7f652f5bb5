"""Check that every number in a lesson's text has evidence in its outputs or code, or is declared.

`number_parsing` defines which numbers need evidence, `declared_numbers` how one is declared. Evidence is an
output (text, or the description of a figure) or a line of code with the number, as written or with more
digits, or a declaration of the same cell or an earlier one that computes it.
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
from tools.build.rules.display_bindings import is_binding
from tools.build.rules.number_parsing import Numeral, labels_of, numerals, values

Json = dict[str, Any]
Problem = tuple[int, str]  # line of the source, what is wrong there
NOWHERE = "is not in an output or a line of code of this lesson, and no expression is declared for it"


def course_labels(lessons: Sequence[Sequence[Cell]]) -> set[str]:
    """Return the labels, such as 4.1, to which these lessons can refer."""
    texts = ("\n".join(cell.lines) for cell in chain.from_iterable(lessons) if cell.kind == "markdown")
    return set().union(*map(labels_of, texts))


def problems(cells: Sequence[Cell], solved: Json, path: Path, labels: Collection[str]) -> list[str]:
    """Return ``file:line: message`` for each number without evidence and each faulty declaration.

    Args:
        cells: the source.
        solved: its solved notebook with outputs.
        path: name of the source in messages.
        labels: see `course_labels`.
    """
    lesson = _Lesson(cells, solved, labels)
    found = chain(*(lesson.judge(cell) for cell in cells if cell.kind == "markdown"), lesson.unused())
    return [f"{path}:{line}: {message}" for line, message in sorted(found)]


def without_declarations(cell: Cell) -> list[str]:
    """Return the lines of a cell, with each declaration replaced by an empty line."""
    return ["" if is_declaration(line) else line for line in cell.lines]


class _Lesson:
    """The numbers that a lesson has shown and declared so far, filled from top to bottom."""

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
        """Yield the faults of a cell: wrong declarations, and numbers without evidence."""
        visible = without_declarations(cell)
        stands = list(numerals(visible, self.labels))
        for n, line in enumerate(cell.lines, cell.line + 1):
            if is_declaration(line) and not is_binding(line):
                try:
                    self._declare(line, n, stands)
                except DeclarationError as error:
                    yield n, str(error)
        for one in stands:
            if one.claims and not (self._is_shown(one) or any(one.same(other) for other in self.borne)):
                yield cell.line + 1 + one.line, f'{one.text} {NOWHERE}: "{one.sentence}"'

    def unused(self) -> Iterator[Problem]:
        """Yield a fault for each name that is declared but never used."""
        for name, line in self.waiting.items():
            yield line, f"the name {name} is declared but never used: delete the line"

    def _declare(self, line: str, n: int, stands: Sequence[Numeral]) -> None:
        declaration = declared_numbers.read(line)
        self.borne += declaration.numbers  # also if the value is wrong, so that one fault gives one message
        for one in declaration.numbers:
            if not any(one.same(other) for other in stands):
                raise DeclarationError(f"{one.text} is declared but does not appear in this cell")
        if declaration.quoted:
            if declaration.right not in self.links:
                raise DeclarationError(f"{declaration.right} must be a link in the text of this lesson")
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
                    f"{literal.text} in {declaration.right} does not appear elsewhere in this lesson"
                )

    def _is_shown(self, numeral: Numeral) -> bool:
        at = bisect_left(self.shown, (numeral.value - numeral.place / 2,))
        near = takewhile(lambda one: numeral.rounds(one[0]), islice(self.shown, at, None))
        return any(place <= numeral.place for _, place in near)


def _shown(solved: Json) -> Iterator[str]:
    """Yield the code, the text outputs and the descriptions of figures in a solved notebook."""
    for cell in solved["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])
            for output in cell["outputs"]:
                yield "".join(output.get("text", ""))
                data = output.get("data", {}).items()
                yield from ("".join(text) for kind, text in data if kind.startswith("text/"))
                yield from (facts.get("alt", "") for facts in output.get("metadata", {}).values())
