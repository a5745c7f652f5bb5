"""Find the cell with the answer to each exercise in a notebook, regardless of the program that saved it.

A cell is looked up by its name, then by nbgrader's id, then by its cell id, and last by the function that it
defines at top level. A cell that defines the function of another exercise is not a candidate. Of several
candidates the last one before the check cell counts, because the check used that one. `iocourse grade`, its
feedback, the nbgrader settings and `iocourse lab --update` all use this module.
"""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .notebook import Json, bound_names, text_of

LONGEST = 200_000  # maximum characters of a cell that is parsed
LEVELS = ("name", "nbgrader id", "cell id")
SHOWN = 40  # maximum characters of a cell's first line in a message
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_DEFINITION = re.compile(r"^(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_KINDS = {"markdown": "Markdown", "raw": "Raw"}


@dataclass(frozen=True)
class Wanted:
    """Search key of one exercise: the ids, the function and the stub by which its cell is recognised.

    Attributes:
        exercise: id of the exercise, such as 2A.
        function: the name that its cell defines.
        cell: id of its cell in the lesson.
        stub: source of that cell in the lesson; "" if not known.
    """

    exercise: str
    function: str
    cell: str = ""
    stub: str = ""

    def ids(self, kind: str = "ex") -> tuple[str, str, str]:
        """The name, nbgrader id and cell id of the exercise cell, or of its check cell (kind "check")."""
        name = f"{kind}-{self.exercise}"
        dashed = name.replace(".", "-")
        return name, dashed, (self.cell or dashed) if kind == "ex" else dashed


@dataclass(frozen=True)
class AnswerCell:
    """The cell that holds the answer to an exercise.

    Attributes:
        at: position in the notebook, counted from 0; None if no cell can be graded.
        helpers: positions of cells added by the student that define names it uses.
        notes: lines for the teacher: how the cell was found, which was graded, what the student should do.
        fault: the same if no cell can be graded; otherwise "".
    """

    at: int | None = None
    helpers: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    fault: str = ""

    @property
    def cells(self) -> list[int]:
        """Positions of the cells to run, in the order of the notebook."""
        return sorted({*self.helpers, *([] if self.at is None else [self.at])})


def find_answers(
    cells: Sequence[Json], wanted: Sequence[Wanted], own: Mapping[str, str] | None = None
) -> dict[str, AnswerCell]:
    """Return the answer to each exercise, by the id of the exercise.

    Args:
        cells: all cells of the student's notebook.
        wanted: the exercises of the lesson.
        own: source by id of the lesson's own cells that are run. Names that they define are not searched in
            the student's cells. A note reports each of them that the notebook lacks.
    """
    own = own or {}
    parsed = [_Cell(at, cell) for at, cell in enumerate(cells)]
    provided = frozenset().union(*map(_names_bound, own.values()))
    there = {" ".join(cell.text.split()) for cell in parsed}
    missing = [name for name, text in own.items() if " ".join(text.split()) not in there]
    notes = [
        f"the lesson's cell {name} is missing or changed; the lesson's own text was run: no action needed"
        for name in missing
    ]
    return {one.exercise: _Search(parsed, one, wanted, provided, [*notes]).answer() for one in wanted}


def count_recognised(cells: Sequence[Json], wanted: Iterable[Wanted]) -> int:
    """Return how many of the exercises have a cell with their id or function, without parsing code."""
    ids = {one for cell in cells for one in _ids(cell) if one}
    text = "\n".join(text_of(cell)[:LONGEST] for cell in cells)
    functions = set(_DEFINITION.findall(text))
    return sum(bool(ids & set(one.ids())) or one.function in functions for one in wanted)


def _names_bound(text: str) -> set[str]:
    """Return the names that this code binds at top level."""
    code = _parsed(text)
    return set() if code is None else {name for node in code.body for name in bound_names(node)}


def notes_of(answers: Mapping[str, tuple[Sequence[str], str]]) -> str:
    """Return one line for the teacher: each note or fault once, preceded by the ids of its exercises.

    Args:
        answers: (notes, fault) of each exercise, by its id.
    """
    about: dict[str, list[str]] = {}
    for exercise, (notes, fault) in answers.items():
        for note in [*notes, *([fault] if fault else [])]:
            about.setdefault(note, []).append(exercise)
    told: dict[str, list[str]] = {}
    for note, ids in about.items():
        told.setdefault(", ".join(ids), []).append(note)
    return "; ".join(f"{ids}: {'; '.join(notes)}" for ids, notes in told.items())


class _Cell:
    """A cell with its position, its ids and the names that it defines."""

    def __init__(self, at: int, cell: Json) -> None:
        self.at, self.kind, self.text = at, cell.get("cell_type"), text_of(cell)
        self.ids = _ids(cell)

    @cached_property
    def bound(self) -> set[str]:
        """Names bound at top level. If the code cannot be parsed: functions whose `def` starts a line."""
        if _parsed(self.text) is None or self.kind != "code":
            return set(_DEFINITION.findall(self.text))
        return _names_bound(self.text)

    def __str__(self) -> str:
        lines = (line.strip() for line in self.text.splitlines())
        first = next(filter(None, lines), "empty")
        return f"cell {self.at + 1} ({first[:SHOWN]}{'…' if len(first) > SHOWN else ''})"


@dataclass
class _Search:
    """The search for the cell of one exercise."""

    cells: Sequence[_Cell]
    one: Wanted
    wanted: Sequence[Wanted]
    provided: Collection[str]
    notes: list[str] = field(default_factory=list)

    def answer(self) -> AnswerCell:
        """Return the answer: the cell to grade with its notes, or the fault."""
        code = [cell for cell in self.cells if cell.kind == "code"]
        levels = [[cell for cell in code if cell.ids[n] == self.one.ids()[n]] for n in range(len(LEVELS))]
        rule, candidates = self._chosen_level(levels, code)
        if not candidates:
            return AnswerCell(fault=self._missing())
        chosen = self._settled(candidates)
        if chosen is None:
            named = " and ".join(map(str, candidates))
            where = f"have the {LEVELS[rule]} of" if rule < len(LEVELS) else "define the function of"
            fault = f"{named} {where} exercise {self.one.exercise}, and no check cell follows them"
            return AnswerCell(fault=f"{fault}; none was graded: the student must choose one")
        self._note_the_rule(rule, chosen, levels)
        self._note_the_others(chosen, candidates, levels[rule] if rule < len(LEVELS) else candidates)
        helpers = self._helpers(chosen)
        return AnswerCell(chosen.at, helpers, tuple(self.notes))

    def _chosen_level(self, levels: Sequence[list[_Cell]], code: Sequence[_Cell]) -> tuple[int, list[_Cell]]:
        """Return (level, candidates): the first level in which a cell defines the function.

        If there is none, return the first level with a cell that does not belong to another exercise. The
        level after `LEVELS` means that the cells were found by their function.
        """
        defining = [[cell for cell in level if self.one.function in cell.bound] for level in levels]
        last = max((cell.at for level in defining for cell in level), default=-1)
        elsewhere = [cell for cell in code if self.one.function in cell.bound]
        for n, level in enumerate(defining):
            level = [cell for cell in level if n == 0 or not self._is_named_for_another(cell, n)]
            if level and not all(map(self._is_untouched, level)):
                return n, level
            if (
                level
            ):  # the stub is unchanged; the check used an answer in a new cell below it, if there is one
                check = self._check()
                own = [c for c in elsewhere if c.at > last and not self._is_untouched(c)]
                own = [c for c in own if check is not None and c.at < check]
                return (len(LEVELS), own) if own else (n, level)
        if elsewhere:
            return len(LEVELS), elsewhere
        for n, level in enumerate(levels):
            level = [cell for cell in level if not self._contradicts(cell, n)]
            if level:
                return n, level
        return 0, []

    def _is_untouched(self, cell: _Cell) -> bool:
        return bool(self.one.stub) and cell.text.split() == self.one.stub.split()

    def _is_named_for_another(self, cell: _Cell, level: int) -> bool:
        """Return True if an id of an earlier level belongs to another exercise."""
        others = [other.ids() for other in self.wanted if other.exercise != self.one.exercise]
        return any(cell.ids[n] == ids[n] for ids in others for n in range(level))

    def _contradicts(self, cell: _Cell, level: int) -> bool:
        others = [other for other in self.wanted if other.exercise != self.one.exercise]
        return self._is_named_for_another(cell, level) or any(o.function in cell.bound for o in others)

    def _check(self) -> int | None:
        """Return the position of the last check cell of the exercise, None if there is none."""
        ids = self.one.ids("check")
        call = re.compile(rf"""^check\(\s*["']{re.escape(self.one.exercise)}["']""", re.MULTILINE)
        found = [c.at for c in self.cells if any(map(_same, c.ids, ids)) or call.search(c.text)]
        return max(found, default=None)

    def _settled(self, candidates: Sequence[_Cell]) -> _Cell | None:
        """Return the last candidate before the check; without one, the last if all have the same text."""
        check = self._check()
        before = [cell for cell in candidates if check is not None and cell.at < check]
        if before:
            return before[-1]
        return candidates[-1] if len({cell.text for cell in candidates}) == 1 else None

    def _missing(self) -> str:
        """Return the fault of an exercise for which no code cell was found."""
        ids, exercise = self.one.ids(), self.one.exercise
        for cell in self.cells:
            if cell.kind in _KINDS and (any(map(_same, cell.ids, ids)) or self.one.function in cell.bound):
                return (
                    f"the cell of exercise {exercise} is a {_KINDS[str(cell.kind)]} cell; change it to Code "
                    f"and submit again: cell {cell.at + 1} was not graded"
                )
        return (
            f"the cell of exercise {exercise} was deleted, and no code cell defines {self.one.function}; "
            "nothing was graded: the student should answer in the lesson's own cells"
        )

    # -------------------------------------------------------------- notes for the teacher
    def _note_the_rule(self, rule: int, chosen: _Cell, levels: Sequence[Sequence[_Cell]]) -> None:
        marked, function = [cell for level in levels for cell in level], self.one.function
        if rule == len(LEVELS) and marked and all(map(self._is_untouched, marked)):
            note = (
                f"the lesson's cell is not filled in; {chosen}, which defines {function} below it, was "
                "graded: the student should answer in the lesson's cell"
            )
        elif rule == len(LEVELS) and marked:
            id_of = next(LEVELS[n] for n, own in enumerate(self.one.ids()) if marked[0].ids[n] == own)
            note = (
                f"{marked[0]} has its {id_of} but does not define {function}; {chosen} does and was graded: "
                "the student should answer each exercise in its own cell"
            )
        elif rule == len(LEVELS) and self._is_named_for_another(chosen, len(LEVELS)):
            note = (
                f"its own cell is missing; {chosen}, which defines {function}, was graded: "
                "the student should answer each exercise in its own cell"
            )
        elif rule == len(LEVELS):
            note = (
                "the cell has lost its name and its ids; it was found by the function it defines and graded: "
                "the student should keep the lesson's file and not copy it into a new one"
            )
        elif rule:
            note = (
                f"the cell has lost its name; it was found by its {LEVELS[rule]} and graded: no action needed"
            )
        elif len(levels[0]) == 1 and not _same(chosen.ids[2], self.one.ids()[2]):
            what = "another cell id than in the lesson" if chosen.ids[2] else "no cell id"
            note = f"the cell has {what}; it was found by its name and graded: no action needed"
        else:
            return
        self.notes.append(note)

    def _note_the_others(self, chosen: _Cell, candidates: Sequence[_Cell], same: Sequence[_Cell]) -> None:
        check, function = self._check(), self.one.function
        if function not in chosen.bound:
            self.notes.append(
                f"{chosen} does not define {function}; it was graded as it is: "
                "the student should keep the name of the function"
            )
        if len(same) > 1:
            places = ", ".join(str(cell.at + 1) for cell in same)
            last = check is not None and chosen.at < check
            why = "the last before its check" if last else "like the others"
            why = f"the only one that defines {function}" if len(candidates) == 1 else why
            alike = len({cell.text for cell in same}) == 1
            ask = "keep one of them" if alike else "keep the one that counts, because they differ"
            told = f"{len(same)} cells are marked as its cell (cells {places}); {chosen}, {why}, was graded"
            self.notes.append(f"{told}: the student should {ask}")
        others = [c for c in self.cells if c.kind == "code" and c not in same and function in c.bound]
        others = [c for c in others if not self._is_untouched(c) and c is not chosen]
        if others:
            told = (
                f"{' and '.join(map(str, others))} also defines {function} and was not graded; {chosen} was"
            )
            self.notes.append(f"{told}: the student must choose one")
        if check is None:
            self.notes.append("its check cell is missing; the answer was graded: no action needed")
        elif check == chosen.at:
            self.notes.append("its check is in the same cell; the answer was graded: no action needed")
        elif check < chosen.at:
            self.notes.append("its check cell is above the answer; the answer was graded: no action needed")

    # -------------------------------------------------------------- helper cells
    def _helpers(self, chosen: _Cell) -> tuple[int, ...]:
        """Return the positions of the student's own cells that the answer needs, directly or indirectly."""
        check = self._check()
        end = check if check is not None and check > chosen.at else len(self.cells)
        taken = {name for one in self.wanted for name in one.ids() + one.ids("check")}
        functions = {one.function for one in self.wanted}
        marked = set(self.one.ids())
        own = [
            cell
            for cell in self.cells[:end]
            if cell is not chosen and cell.kind == "code" and len(cell.text) <= LONGEST
            if not set(cell.ids) & (taken - marked) and not functions & cell.bound
        ]
        found: dict[int, str] = {}
        need, known = _needed(chosen.text), {*self.provided, *functions, *chosen.bound}
        while need - known:
            name = min(need - known)
            known.add(name)
            cell = next((cell for cell in reversed(own) if name in cell.bound), None)
            if cell is not None:
                found.setdefault(cell.at, name)
                known |= cell.bound
                need |= _needed(cell.text)
        for at, name in sorted(found.items()):
            self.notes.append(
                f"it uses {name} of cell {at + 1}, which is the student's own; both were graded: "
                "the student should move it into the cell of the exercise"
            )
        return tuple(sorted(found))


def _same(mine: str, theirs: str) -> bool:
    return bool(mine) and mine == theirs


def _ids(cell: Json) -> tuple[str, str, str]:
    """Return the name, nbgrader id and cell id of a cell; "" for each that is missing."""
    metadata = cell.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    nbgrader = metadata.get("nbgrader")
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else ""
    name, grade_id, own = (
        one if isinstance(one, str) else "" for one in (metadata.get("name"), grade_id, cell.get("id"))
    )
    return name, grade_id, own


def _parsed(text: str) -> ast.Module | None:
    """Parse the code of a cell without its magics; return None if it is not valid Python."""
    for source in (text, _MAGIC.sub(r"\1pass", text)) if len(text) <= LONGEST else ():
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def _needed(text: str) -> set[str]:
    """Return the global names that this code uses."""
    code = _parsed(text)
    if code is None:
        return set()
    try:
        table = symtable.symtable(ast.unparse(code), "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return set()
    return set(_globals(table))


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)
