"""The source of a lesson in percent format, and its two sides: the solved notebook and the student's.

One `.py` file holds both. A cell starts with ``# %%`` (code) or ``# %% [markdown]``, followed by
``tags=["exercise"] name="ex-4.2"`` where it has any. In code cells

* the lines between ``### BEGIN SOLUTION hint`` and ``### END SOLUTION`` are the solution; the student
  finds ``# YOUR CODE HERE - hint`` and ``raise NotImplementedError`` in their place;
* of a line that ends in ``  #> replacement`` the student sees the replacement, the solved side the code.

The student's notebook brings no outputs, but for those of cells tagged ``shown``, which are the solved one's.

The markers are nbgrader's. Magics do not occur in sources, so that a linter reads them as plain Python;
the one magic the notebooks need, the install line, is put in by the builder. Neither side shows what a
markdown cell declares for its numbers (see `declared`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.build.rules.declared import is_declaration

TAGS = (
    "setup",
    "given",
    "exercise",
    "check",
    "predict",
    "quiz",
    "hint",
    "shown",
    "solution-only",
    "student-only",
    "nbval-ignore-output",
    "nbval-check-output",
    "nbval-skip",
    "nbval-raises-exception",
    "raises-exception",
)
_OPTION = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\[[^\]]*\])')
_STOPS = "would stop the student's Run all; put it into a function, or end its lines in '  #> replacement'"
# ruff format turns "#>" into "# >"; both are the marker, or formatting would hand out the solutions.
_REPLACED = re.compile(r"^(?P<indent>\s*)(?P<code>\S.*?)\s{2,}# ?>(?: (?P<student>.*))?$")


class SourceError(ValueError):
    """A source that cannot be read as a lesson; the message starts with file and line."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")


@dataclass(frozen=True)
class Cell:
    """One cell as written in the source.

    Attributes:
        kind: ``markdown`` or ``code``.
        lines: the text; markdown without its comment signs, code with its solution markers.
        tags: as given in the source, each one of `TAGS`.
        name: stable name such as ``ex-4.2``, or empty.
        line: where the cell starts in its file, counted from 1.
    """

    kind: str
    lines: tuple[str, ...]
    tags: tuple[str, ...] = ()
    name: str = ""
    line: int = 0


def parse(text: str, path: Path) -> list[Cell]:
    """The cells of a percent-format source.

    Raises:
        SourceError: text before the first cell, an unknown tag or option, markdown outside comments,
            a solution that is not closed, or an exercise that would hand out its answer.
    """
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("# %%")]
    _refuse_stray_text(lines[_after_header(lines) : starts[0] if starts else len(lines)], path)
    for n, line in enumerate(lines):
        if re.match(r"\s+# %%", line):
            raise SourceError(path, n + 1, "a cell marker must stand at the start of its line")
    cells = [_cell(lines[a:b], a + 1, path) for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]
    for cell in cells:
        _refuse_faults(cell, path)
    return cells


def _after_header(lines: Sequence[str]) -> int:
    """Where the text starts after an optional jupytext header between two ``# ---`` lines."""
    if lines and lines[0].rstrip() == "# ---" and "# ---" in lines[1:]:
        return lines.index("# ---", 1) + 1
    return 0


def _refuse_stray_text(lines: Sequence[str], path: Path) -> None:
    if any(line.strip() for line in lines):
        raise SourceError(path, 1, "text before the first cell; start with '# %% [markdown]'")


def _cell(block: Sequence[str], line: int, path: Path) -> Cell:
    rest = block[0][len("# %%") :]
    kind = "markdown" if rest.split()[:1] == ["[markdown]"] else "code"
    options = rest.replace("[markdown]", "", 1)
    if _OPTION.sub("", options).strip() or (rest and not rest[0].isspace()):
        raise SourceError(path, line, f'{block[0]!r}: allowed is # %% [markdown] tags=["…"] name="…"')
    tags, name = _read_options(options, line, path)
    body = block[1:]
    if kind == "markdown":
        body = [_uncomment(text, line + n, path) for n, text in enumerate(body, 1)]
    return Cell(kind, _trim(body), tags, name, line)


def _read_options(text: str, line: int, path: Path) -> tuple[tuple[str, ...], str]:
    options = {key: json.loads(value) for key, value in _OPTION.findall(text)}
    unknown = sorted(set(options) - {"tags", "name"})
    if unknown:
        raise SourceError(path, line, f"option {unknown[0]!r} is unknown; allowed: tags, name")
    tags = tuple(options.get("tags", ()))
    for tag in tags:
        if tag not in TAGS:
            raise SourceError(path, line, f"tag {tag!r} is unknown; allowed: {', '.join(TAGS)}")
    return tags, options.get("name", "")


def _uncomment(text: str, line: int, path: Path) -> str:
    if not text.strip() or text.rstrip() == "#":
        return ""
    if not text.startswith("# "):
        raise SourceError(path, line, f"a markdown line must start with '# ', this one is {text!r}")
    return text[2:]


def _trim(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines without trailing spaces and without the blank lines around them."""
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    while kept and not kept[0]:
        kept.pop(0)
    return tuple(kept)


def _refuse_faults(cell: Cell, path: Path) -> None:
    marks = [(n, m) for n, line in enumerate(cell.lines) if (m := _mark(line))]
    for (n, mark), expected in zip(marks, "BE" * len(marks), strict=False):
        if mark != expected:
            raise SourceError(
                path, cell.line + n + 1, "### BEGIN SOLUTION and ### END SOLUTION must alternate"
            )
        if mark == "B" and not cell.lines[n].startswith(" "):
            raise SourceError(path, cell.line + n + 1, f"a solution outside a function {_STOPS}")
    if len(marks) % 2:
        raise SourceError(path, cell.line, "### BEGIN SOLUTION without ### END SOLUTION")
    if "exercise" in cell.tags:
        _refuse_open_exercise(cell, path)
    for solved in (True, False) if cell.kind == "code" else ():
        try:
            compile("\n".join(side(cell, solved=solved)), str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError as error:
            name = "solved" if solved else "student's"
            raise SourceError(path, cell.line, f"the {name} side is not Python: {error.msg}") from None


def _refuse_open_exercise(cell: Cell, path: Path) -> None:
    if not cell.name:
        raise SourceError(path, cell.line, 'an exercise cell needs a name, such as name="ex-4.2"')
    if side(cell, solved=True) == side(cell, solved=False):
        raise SourceError(
            path, cell.line, f"exercise {cell.name} has no solution: its answer would be handed out"
        )


def _mark(line: str) -> str:
    """``B`` where a solution begins, ``E`` where it ends, else empty."""
    found = re.match(r"\s*### (BEGIN|END) SOLUTION\b", line)
    return found[1][0] if found else ""


def side(cell: Cell, *, solved: bool) -> tuple[str, ...]:
    """The cell's lines as the solved notebook or as the student's notebook shows them."""
    if cell.kind == "markdown":
        return _trim([line for line in cell.lines if not is_declaration(line)])
    return tuple(_solved_lines(cell.lines) if solved else _student_lines(cell.lines))


def _solved_lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if not _mark(line):
            found = _REPLACED.match(line)
            yield found["indent"] + found["code"] if found else line


def _student_lines(lines: Sequence[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        mark = _mark(line)
        if mark == "B":
            yield from _stub(line)
        inside = mark == "B" or (inside and mark != "E")
        if mark or inside:
            continue
        found = _REPLACED.match(line)
        if not found:
            yield line
        elif found["student"]:
            yield found["indent"] + found["student"]


def _stub(line: str) -> Iterator[str]:
    indent = line[: len(line) - len(line.lstrip())]
    hint = line.split("SOLUTION", 1)[1].strip()
    yield f"{indent}# YOUR CODE HERE" + (f" - {hint}" if hint else "")
    yield f"{indent}raise NotImplementedError"


def shown(cell: Cell, *, solved: bool) -> bool:
    """Whether the cell occurs on this side at all."""
    return ("student-only" if solved else "solution-only") not in cell.tags


def cell_ids(cells: Sequence[Cell], stem: str, path: Path) -> list[str]:
    """One id a cell, which does not change when the cell's text does.

    A named cell keeps its name; characters that nbformat forbids in ids (the dot) become ``-``. The others
    are numbered from the last named cell on, so that a new cell moves the ids of few neighbours only.
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
