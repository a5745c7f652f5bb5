"""The source of a lesson in percent format, and its two sides: the solved notebook and the student's.

One `.py` file contains both. A cell starts with ``# %%`` (code) or ``# %% [markdown]``, followed by
``tags=["exercise"] name="ex-4A"`` where it has any. A cell ``# %% [raw] name="about-4A"`` says in TOML what
`exercise_texts` reads; no notebook has it. In code cells

* the lines between ``### BEGIN SOLUTION hint`` and ``### END SOLUTION`` are the solution; the student
  finds ``# YOUR CODE HERE - hint`` and ``raise NotImplementedError`` in their place;
* of a line that ends in ``  #> replacement`` the student sees the replacement, the solved side the code.

The student's notebook has no outputs, except for those of cells tagged ``shown``, copied from the solved one.

The format is jupytext's, and a test compares both readings of every lesson. It is read here because a fault
must be reported with its line, also inside a cell, and because jupytext reads many faults as something else.
The markers are nbgrader's. Magics do not occur in sources, so that a linter reads them as plain Python;
the one magic the notebooks need, the install line, is added by the builder. Neither side shows what a
markdown cell declares for its numbers (see `rules.declared_numbers`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tools.build import BuildFailed

TAGS = (
    "setup", "given", "exercise", "check", "predict", "quiz", "hint", "shown",
    "solution-only", "student-only", "raises-exception",
    "nbval-ignore-output", "nbval-check-output", "nbval-skip", "nbval-raises-exception",
)  # fmt: skip
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\])*"'
_OPTION = re.compile(rf"\s+(\w+)=({_TEXT}|\[(?:{_TEXT}(?:, *{_TEXT})*)?\])")
_MARKER = re.compile(rf"# %%(?:\s+\[(?P<kind>markdown|raw)\])?(?P<options>(?:{_OPTION.pattern})*)\s*")
_SOLUTION = re.compile(r"(?P<indent>\s*)### (?P<edge>BEGIN|END) SOLUTION\b(?P<hint>.*)")
# ruff format turns "#>" into "# >"; both are the marker, or formatting would hand out the solutions.
_REPLACED = re.compile(r"(?P<indent>\s*)(?P<code>\S.*?)\s{2,}# ?>(?: (?P<student>.*))?")
_DECLARATION = re.compile(r"\s*<!--\s*(?:[-−.\d]|\w+(?:,\s*\w+)*\s*(?:=|from\b))")


class SourceError(BuildFailed):
    """A source that cannot be read as a lesson; the message starts with file and line."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")


@dataclass(frozen=True)
class Cell:
    """One cell as written in the source.

    Attributes:
        kind: ``markdown``, ``code`` or ``raw``.
        lines: the text; markdown and raw text without its comment signs, code with its solution markers.
        tags: as given in the source, each one of `TAGS`.
        name: stable name such as ``ex-4.2``, or empty.
        line: the line before its first one, counted from 1: the marker's, unless blank lines follow it.
    """

    kind: str
    lines: tuple[str, ...]
    tags: tuple[str, ...] = ()
    name: str = ""
    line: int = 0


def parse(text: str, path: Path) -> list[Cell]:
    """The cells of a percent-format source that its notebooks have.

    Raises:
        SourceError: text before the first cell, an unknown tag or option, markdown outside comments,
            a solution that is not closed, or an exercise that would hand out its answer.
    """
    return [cell for cell in all_cells(text, path) if cell.kind != "raw"]


def all_cells(text: str, path: Path) -> list[Cell]:
    """The same with the raw cells, which no notebook has. Raises SourceError as `parse` does."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("# %%")]
    has_header = lines[:1] == ["# ---"] and "# ---" in lines[1:]  # jupytext's
    for n in range(lines.index("# ---", 1) + 1 if has_header else 0, starts[0] if starts else len(lines)):
        if lines[n].strip():
            raise SourceError(path, n + 1, "text before the first cell; start with '# %% [markdown]'")
    for n, line in enumerate(lines, 1):
        if re.match(r"\s+# %%", line):
            raise SourceError(path, n, "a cell marker must stand at the start of its line")
    cells = [_cell(lines[a], lines[a + 1 : b], a + 1, path) for a, b in pairwise([*starts, len(lines)])]
    for cell in cells:
        _refuse_faults(cell, path)
    return cells


def _cell(marker: str, body: Sequence[str], line: int, path: Path) -> Cell:
    """The cell of one marker, which stands at `line`, and of the lines below it."""
    found = _MARKER.fullmatch(marker)
    options = {key: json.loads(value) for key, value in _OPTION.findall(found["options"])} if found else {}
    if unknown := sorted(options.keys() - {"tags", "name"}):
        raise SourceError(path, line, f"option {unknown[0]!r} is unknown; allowed: tags, name")
    tags, name = options.get("tags", []), options.get("name", "")
    if not found or isinstance(tags, str) or isinstance(name, list):
        raise SourceError(path, line, f'{marker!r}: allowed is # %% [markdown] tags=["…"] name="…", or [raw]')
    for tag in tags:
        if tag not in TAGS:
            raise SourceError(path, line, f"tag {tag!r} is unknown; allowed: {', '.join(TAGS)}")
    kind = found["kind"] or "code"
    if kind != "code":
        for n, text in enumerate(body, line + 1):
            if not text.startswith("# ") and text.strip() not in ("", "#"):
                raise SourceError(path, n, f"a {kind} line must start with '# ', this one is {text!r}")
        body = [text[2:] for text in body]
    blank = next((n for n, text in enumerate(body) if text.strip()), 0)
    return Cell(kind, _trim(body), tuple(tags), name, line + blank)


def _trim(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines without trailing spaces and without the blank lines around them."""
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    while kept and not kept[0]:
        kept.pop(0)
    return tuple(kept)


def _refuse_faults(cell: Cell, path: Path) -> None:
    """Raise SourceError where a solution is not marked as it must be, or one of the sides is not Python."""
    begun = 0  # the line where a solution begins that has not ended yet
    for n, line in enumerate(cell.lines, cell.line + 1):
        if mark := _SOLUTION.match(line):
            if (mark["edge"] == "BEGIN") == bool(begun):
                raise SourceError(path, n, "### BEGIN SOLUTION and ### END SOLUTION must alternate")
            begun = 0 if begun else n
            if begun and not mark["indent"]:
                message = "a solution outside a function would stop the student's Run all; put it into a "
                raise SourceError(path, n, message + "function, or end its lines in '  #> replacement'")
    if begun:
        raise SourceError(path, begun, "### BEGIN SOLUTION without ### END SOLUTION")
    if "exercise" in cell.tags and not cell.name:
        raise SourceError(path, cell.line, 'an exercise cell needs a name, such as name="ex-4.2"')
    if "exercise" in cell.tags and side(cell, solved=True) == side(cell, solved=False):
        raise SourceError(
            path, cell.line, f"exercise {cell.name} has no solution: its answer would be handed out"
        )
    for solved in (True, False) if cell.kind == "code" else ():
        numbered = list(_code(cell, solved))
        text = "\n".join(line for _, line in numbered)
        try:
            compile(text, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            at, _ = numbered[min(error.lineno or 1, len(numbered)) - 1]
            name = "solved" if solved else "student's"
            raise SourceError(path, cell.line + at, f"the {name} side is not Python: {error.msg}") from None


def side(cell: Cell, *, solved: bool) -> tuple[str, ...]:
    """The cell's lines as the solved notebook or as the student's notebook shows them."""
    if cell.kind == "markdown":
        return _trim([line for line in cell.lines if not is_declaration(line)])
    return tuple(line for _, line in _code(cell, solved))


def is_declaration(line: str) -> bool:
    """Whether a line of markdown declares something, or means to: neither notebook shows it."""
    return bool(_DECLARATION.match(line))


def _code(cell: Cell, solved: bool) -> Iterator[tuple[int, str]]:
    """One side of a code cell, each line with the number, from 1, of the cell's line it comes from."""
    inside = False  # of a solution
    for n, line in enumerate(cell.lines, 1):
        if mark := _SOLUTION.match(line):
            inside = mark["edge"] == "BEGIN"
            if inside and not solved:
                hint = mark["hint"].strip()
                yield n, f"{mark['indent']}# YOUR CODE HERE" + (f" - {hint}" if hint else "")
                yield n, f"{mark['indent']}raise NotImplementedError"
        elif solved or not inside:
            replaced = _REPLACED.fullmatch(line)
            if not replaced:
                yield n, line
            elif text := replaced["code" if solved else "student"]:
                yield n, replaced["indent"] + text


def shown(cell: Cell, *, solved: bool) -> bool:
    """Whether the cell occurs on this side at all."""
    return ("student-only" if solved else "solution-only") not in cell.tags


def cell_ids(cells: Sequence[Cell], stem: str, path: Path) -> list[str]:
    """One id per cell, which does not change when the cell's text does.

    A named cell keeps its name; characters that nbformat forbids in ids (the dot) become ``-``. The others
    are numbered from the last named cell on, so that a new cell changes the ids of few neighbours only.
    """
    ids: list[str] = []
    anchor, count = stem, 0
    for cell in cells:
        anchor, count = (cell.name, 0) if cell.name else (anchor, count + 1)
        fresh = hashlib.sha256(f"{stem}/{anchor}/{count}".encode()).hexdigest()[:8]
        ids.append(re.sub(r"[^A-Za-z0-9_-]", "-", cell.name)[:64] or fresh)
        if ids[-1] in ids[:-1]:
            raise SourceError(path, cell.line, f"two cells have the id {ids[-1]!r}; names must differ")
    return ids
