"""Check that the numbers and claims of a text are bound to what they come from, or listed with a reason.

`number_parsing` defines which numbers are measured, `declared_numbers` how one is bound or listed, and
`listed_numbers` the reasons and the words that claim something. Each measured number needs a declaration in
its own passage: a markdown cell of a lesson, or what `number_pages` takes for one in a page or docstring. So
does each sentence that claims something.

The other numbers of a lesson need evidence: an output (text, or the description of a figure) or a line of
code with the number, as written or with more digits, or a declaration of the same cell or an earlier one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from tools.build.percent_format import Cell, is_declaration
from tools.build.rules import declared_numbers, listed_numbers
from tools.build.rules.declared_numbers import Declaration, DeclarationError
from tools.build.rules.display_bindings import is_binding
from tools.build.rules.number_parsing import Numeral, labels_of, numerals, sentence_at, values

Json = dict[str, Any]
Problem = tuple[int, str]  # line of the source, what is wrong there
Evidence = list[tuple[Decimal, Decimal]]  # value and place of the numbers in outputs, sorted
NOWHERE = (
    "is not in an output or a line of code of this lesson: correct it, or write below it "
    "<!-- number = expression --> or <!-- number as input -->"
)
UNBOUND = (
    "is not bound: write below it <!-- {0} = expression --> with a record, a default or a function of the "
    "library, or list it: <!-- {0} from LINK -->, or <!-- {0} as definition, input or output -->"
)
UNCLAIMED = 'has no condition: write below it <!-- "{0}" if expression -->, or <!-- "{0}" from LINK -->'
_NOT_SAID = re.compile(r"`[^`\n]*`|\*+\"[^\"\n]*\"\*+")  # code, and a misconception that is quoted


@dataclass(frozen=True)
class Passage:
    """Lines that share their declarations.

    Attributes:
        lines: the text with its declarations.
        line: the number of its first line in the file.
        printed: numbers that the code cells of its sections print without a record; None outside.
        evidence: whether all its claims need evidence, as those of a lesson's markdown.
    """

    lines: Sequence[str]
    line: int
    printed: Evidence | None = None
    evidence: bool = False


def course_labels(lessons: Sequence[Sequence[Cell]]) -> set[str]:
    """Return the labels, such as 4.1, to which these lessons can refer."""
    texts = ("\n".join(cell.lines) for cell in chain.from_iterable(lessons) if cell.kind == "markdown")
    return set().union(*map(labels_of, texts))


def problems(
    cells: Sequence[Cell],
    solved: Json,
    path: Path,
    labels: Collection[str],
    *,
    hints: Sequence[Passage] = (),
) -> list[str]:
    """Return ``file:line: message`` for each number or claim that is not bound, and each faulty declaration.

    Args:
        cells: the source.
        solved: its solved notebook with outputs.
        path: name of the source in messages.
        labels: see `course_labels`.
        hints: its raw cells.
    """
    text = check_lesson(cells, solved, labels, hints=hints)
    return [f"{path}:{line}: {message}" for line, message in sorted(text.problems)]


def check_lesson(
    cells: Sequence[Cell],
    solved: Json,
    labels: Collection[str],
    *,
    hints: Sequence[Passage] = (),
) -> CheckedText:
    """Return the numbers of a lesson, bound, listed and unbound, with its problems; see `problems`."""
    passages, shown = lesson_passages(cells, solved)
    passages = sorted([*passages, *hints], key=lambda passage: passage.line)
    return CheckedText(passages, labels, shown)


def lesson_passages(cells: Sequence[Cell], solved: Json) -> tuple[list[Passage], Evidence]:
    """Return the markdown cells of a lesson, and the numbers in its code and outputs."""
    sections, at = _printed(solved), ""
    passages = []
    for cell in cells:
        if cell.kind == "markdown":
            headings = [at, *(line for line in cell.lines if line.startswith("## "))]
            printed = list(chain.from_iterable(sections.get(one, []) for one in headings))
            passages.append(Passage(cell.lines, cell.line + 1, printed, evidence=True))
            at = headings[-1]
    return passages, sorted(set(chain.from_iterable(map(values, _shown(solved)))))


def without_declarations(cell: Cell) -> list[str]:
    """Return the lines of a cell, with each declaration replaced by an empty line."""
    return _visible(cell.lines)


def _visible(lines: Iterable[str]) -> list[str]:
    return ["" if is_declaration(line) else line for line in lines]


class CheckedText:
    """The numbers and names that a text has declared so far, filled from top to bottom.

    Attributes:
        problems: the line and message of each fault.
        tally: how many measured numbers and claims are bound, listed by reason, and unbound.
    """

    def __init__(
        self, passages: Sequence[Passage], labels: Collection[str], shown: Evidence | None = None
    ) -> None:
        """Check the passages; `shown` has the outputs and code of a lesson, None for another text."""
        self.labels, self.shown = labels, shown
        texts = [_visible(passage.lines) for passage in passages]
        self.links = {link for text in texts for link in re.findall(r"https?://[^\s)>]+", "\n".join(text))}
        self.written = [one for text in texts for one in numerals(text, labels)]
        self.borne: list[Numeral] = []
        self.named: dict[str, Any] = {}
        self.reads: set[str] = set()  # names whose value reads the project
        self.skipped: set[str] = set()  # names that cannot be evaluated without torch or triton
        self.waiting: dict[str, int] = {}  # names not yet used -> their line
        self.tally: Counter[str] = Counter()
        self.problems = [*chain.from_iterable(map(self._judge, passages)), *self._unused()]

    def _judge(self, passage: Passage) -> Iterator[Problem]:
        """Yield the faults of a passage: wrong declarations, and numbers and claims without one."""
        visible = _visible(passage.lines)
        stands = list(numerals(visible, self.labels))
        kinds: list[tuple[Declaration, str]] = []  # what the passage declares, and how that is counted
        for n, line in enumerate(passage.lines, passage.line):
            if is_declaration(line) and not is_binding(line):
                try:
                    declaration = declared_numbers.read(line.strip())
                    kinds.append((declaration, self._kind(declaration)))
                    yield from self._declare(declaration, n, passage, stands)
                except DeclarationError as error:
                    yield n, str(error)
        for one in stands:
            own = [kind for it, kind in kinds if any(one.same(number) for number in it.numbers)]
            if one.measured:
                self.tally[own[0] if own else "unbound"] += 1
                if not own:
                    yield passage.line + one.line, f'{one.text} {UNBOUND.format(one.text)}: "{one.sentence}"'
            elif one.claims and passage.evidence and not self._has_evidence(one):
                yield passage.line + one.line, f'{one.text} {NOWHERE}: "{one.sentence}"'
        yield from self._claims(visible, passage, kinds)

    def _claims(
        self, visible: Sequence[str], passage: Passage, kinds: Sequence[tuple[Declaration, str]]
    ) -> Iterator[Problem]:
        """Yield a fault for each sentence that claims something without a condition."""
        text = _NOT_SAID.sub(lambda found: " " * len(found[0]), "\n".join(visible))
        quoted = [(it.words, kind) for it, kind in kinds if it.words]
        for found in listed_numbers.CLAIM.finditer(text):
            sentence = sentence_at("\n".join(visible), found.start())
            own = [kind for words, kind in quoted if found[0] in words and words in sentence]
            if sentence.endswith("?"):
                continue
            self.tally[own[0] if own else "unbound"] += 1
            if not own:
                line = passage.line + text.count("\n", 0, found.start())
                yield line, f'"{found[0]}" {UNCLAIMED.format(found[0])}: "{sentence}"'

    def _unused(self) -> Iterator[Problem]:
        """Yield a fault for each name that is declared but never used."""
        for name, line in self.waiting.items():
            yield line, f"the name {name} is declared but never used: delete the line"

    def _kind(self, declaration: Declaration) -> str:
        """Return how a declaration is counted: bound, arithmetic, source, or the reason."""
        if declaration.sign in ("from", "as"):
            return "source" if declaration.sign == "from" else declaration.right
        return "bound" if self._reads(declaration.right) else "arithmetic"

    def _reads(self, expression: str) -> bool:
        """Return True if an expression reads a record, a default or the library, also through a name."""
        names = declared_numbers.used_names(expression)
        return bool((names - declared_numbers.ARITHMETIC - self.named.keys()) | (names & self.reads))

    def _declare(
        self, declaration: Declaration, n: int, passage: Passage, stands: Sequence[Numeral]
    ) -> Iterator[Problem]:
        """Yield a fault for each sentence that a declaration does not confirm; `n` is its line.

        Raises:
            DeclarationError: the declaration itself is wrong.
        """
        self.borne += declaration.numbers  # also if the value is wrong, so that one fault gives one message
        for one in declaration.numbers:
            if not any(one.same(other) for other in stands):
                raise DeclarationError(f"{one.text} is declared but does not appear in this cell")
        if declaration.words and not list(_sentences_of(declaration, passage, stands)):
            raise DeclarationError(f'"{declaration.words}" is declared but does not appear in this cell')
        if declaration.sign == "from":
            if declaration.right not in self.links:
                raise DeclarationError(f"{declaration.right} must be a link in the text of this lesson")
        elif declaration.sign == "as":
            yield from self._list(declaration, passage, stands)
        else:
            yield from self._compute(declaration, n, passage, stands)

    def _list(
        self, declaration: Declaration, passage: Passage, stands: Sequence[Numeral]
    ) -> Iterator[Problem]:
        if declaration.words:
            for line, sentence in _sentences_of(declaration, passage, stands):
                try:
                    listed_numbers.refuse_to_list_claim(declaration.words, declaration.right, sentence)
                except DeclarationError as error:
                    yield line, str(error)
        for one in stands:
            if any(one.same(number) for number in declaration.numbers) and one.measured:
                try:
                    listed_numbers.refuse_reason(declaration.right, one, passage.printed)
                except DeclarationError as error:
                    yield passage.line + one.line, str(error)

    def _compute(
        self, declaration: Declaration, n: int, passage: Passage, stands: Sequence[Numeral]
    ) -> Iterator[Problem]:
        reads = self._reads(declaration.right)
        if declaration.numbers:
            declared_numbers.refuse_bare_numbers(declaration.right)
        if declaration.words and not reads:
            raise DeclarationError(f"{declaration.right} must read a record, a default or the library")
        if not reads:
            self._refuse_unknown_literals(declaration)
        names = declared_numbers.used_names(declaration.right)
        for name in names:
            self.waiting.pop(name, None)
        try:
            given = [] if names & self.skipped else declared_numbers.evaluate(declaration, self.named)
        except ImportError:  # torch or triton is not installed here
            given = []
        except DeclarationError as error:
            sentences = list(_sentences_of(declaration, passage, stands))
            if not sentences:
                raise
            yield from ((line, f'{error}: "{sentence}"') for line, sentence in sentences)
            return
        if not given:
            self.skipped |= set(declaration.names)
            return
        for name, value in zip(declaration.names, given, strict=False):
            self.named[name], self.waiting[name] = value, n
            self.reads |= {name} if reads else set()
        for number, value in zip(declaration.numbers, given, strict=False):
            for one in stands:
                if one.same(number) and one.value == number.value:
                    try:
                        declared_numbers.refuse_unless_it_gives(one, value, declaration.right)
                        if one.measured and not reads:
                            listed_numbers.refuse_arithmetic(one, declaration.right)
                    except DeclarationError as error:
                        yield passage.line + one.line, f'{error}: "{one.sentence}"'
        if declaration.words:
            try:
                declared_numbers.refuse_unless_true(declaration.words, given[0], declaration.right)
            except DeclarationError as error:
                for line, sentence in _sentences_of(declaration, passage, stands):
                    yield line, f'{error}: "{sentence}"'

    def _refuse_unknown_literals(self, declaration: Declaration) -> None:
        for literal in declared_numbers.literals(declaration.right):
            others = [one for one in self.written if not any(one.same(own) for own in declaration.numbers)]
            if not (self._is_shown(literal) or any(literal.same(one) for one in others)):
                raise DeclarationError(
                    f"{literal.text} in {declaration.right} does not appear elsewhere in this lesson"
                )

    def _has_evidence(self, one: Numeral) -> bool:
        return self._is_shown(one) or any(one.same(other) for other in self.borne)

    def _is_shown(self, numeral: Numeral) -> bool:
        shown = self.shown or []
        at = bisect_left(shown, (numeral.value - numeral.place / 2,))
        near = takewhile(lambda one: numeral.rounds(one[0]), islice(shown, at, None))
        return any(place <= numeral.place for _, place in near)


def _sentences_of(
    declaration: Declaration, passage: Passage, stands: Sequence[Numeral]
) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each sentence with a number or the words of a declaration."""
    for one in stands:
        if any(one.same(number) for number in declaration.numbers):
            yield passage.line + one.line, one.sentence
    if declaration.words:
        text = "\n".join(_visible(passage.lines))
        words = r"\s+".join(map(re.escape, declaration.words.split()))
        for found in re.finditer(words, text):
            yield passage.line + text.count("\n", 0, found.start()), sentence_at(text, found.start())


def _printed(solved: Json) -> dict[str, Evidence]:
    """Return the numbers in the outputs of each section, by heading, of cells that read no record."""
    code = [cell for cell in solved["cells"] if cell["cell_type"] == "code"]
    reads = iter(listed_numbers.reading_cells(["".join(cell["source"]) for cell in code]))
    found: dict[str, Evidence] = {}
    at = ""
    for cell in solved["cells"]:
        if cell["cell_type"] == "code":
            if not next(reads):
                found.setdefault(at, []).extend(chain.from_iterable(map(values, _outputs(cell))))
        else:
            lines = "".join(cell["source"]).splitlines()
            at = next((line for line in reversed(lines) if line.startswith("## ")), at)
    return found


def _shown(solved: Json) -> Iterator[str]:
    """Yield the code, the text outputs and the descriptions of figures in a solved notebook."""
    for cell in solved["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])
            yield from _outputs(cell)


def _outputs(cell: Json) -> Iterator[str]:
    for output in cell["outputs"]:
        yield "".join(output.get("text", ""))
        data = output.get("data", {}).items()
        yield from ("".join(text) for kind, text in data if kind.startswith("text/"))
        yield from (facts.get("alt", "") for facts in output.get("metadata", {}).values())
