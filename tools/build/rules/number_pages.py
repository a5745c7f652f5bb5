"""The numbers and claims of pages, remarks, the map, docstrings and hints, checked as in `number_check`.

A passage is a paragraph, a list item or a table, with the declarations in it or directly below it. In TOML it
is a table, and a declaration is a comment. In a docstring, declarations are comments directly below it:

    def tile() -> int:
        "Return the tile, which is 1.09 × as fast as the table's."
        # <!-- 1.09 = … -->

Lines between two markers of generated parts, and code, are not searched.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from iocourse.course.course_map import MAP
from tools.build.percent_format import all_cells, is_declaration
from tools.build.rules.number_check import CheckedText, Passage

PAGES = ("README.md", "docs/*.md", "docs/guide/*.md", "docs/explore/*.md", "lessons/notation.md")
# Generated as a whole, history, or a list of what changed.
NOT_SEARCHED = ("docs/exercises.md", "docs/errata.md", "docs/changelog.md")
_GENERATED = re.compile(r"<!-- (?P<name>[\w-]+) -->\n.*?<!-- /(?P=name) -->", re.DOTALL)
_FENCED = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+).*?^(?P=indent)(?P=fence) *$", re.DOTALL | re.MULTILINE
)
_INLINE = re.compile(r"`[^`\n]*`")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")


def problems(root: Path, labels: Collection[str]) -> list[str]:
    """Return ``file:line: message`` for each number or claim of these texts that is not bound or listed."""
    return [
        f"{name}:{line}: {message}"
        for name, text in checked_texts(root, labels)
        for line, message in sorted(text.problems)
    ]


def checked_texts(root: Path, labels: Collection[str]) -> Iterator[tuple[str, CheckedText]]:
    """Yield the name of each file with its checked text."""
    for path, passages in text_passages(root):
        yield path.relative_to(root).as_posix(), CheckedText(passages, labels)


def text_passages(root: Path) -> Iterator[tuple[Path, list[Passage]]]:
    """Yield every page, file of remarks and module of a checkout with its passages."""
    pages = [path for pattern in PAGES for path in sorted(root.glob(pattern))]
    for path in pages:
        if path.relative_to(root).as_posix() not in NOT_SEARCHED:
            yield path, page_passages(path.read_text(encoding="utf-8"))
    for path in [*sorted((root / "docs" / "remarks").glob("*.toml")), *root.glob(MAP)]:
        yield path, toml_passages(path.read_text(encoding="utf-8").splitlines())
    for path in sorted((root / "iocourse").rglob("*.py")):
        if passages := docstring_passages(path.read_text(encoding="utf-8")):
            yield path, passages


def page_passages(text: str) -> list[Passage]:
    """Return the paragraphs, list items and tables of a page, each with its declarations."""
    for pattern in (_GENERATED, _FENCED):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    shown = [line if is_declaration(line) else _INLINE.sub("`…`", line) for line in text.splitlines()]
    found: list[Passage] = []
    block: list[str] = []
    lines = [*shown, ""]
    for n, line in enumerate(lines, 1):
        if line.strip() and not (block and _ITEM.match(line)):
            block.append(line)
            continue
        found = _with(found, block, n - len(block))
        block = [line] if line.strip() else []
    return _with(found, block, len(lines) - len(block) + 1)


def _with(found: list[Passage], block: list[str], line: int) -> list[Passage]:
    """Return the passages with a further block; one of declarations alone belongs to the passage above it."""
    if not block:
        return found
    if found and all(map(is_declaration, block)):
        above = found[-1]
        gap = line - above.line - len(above.lines)
        return [*found[:-1], Passage([*above.lines, *[""] * gap, *block], above.line)]
    return [*found, Passage(block, line)]


def toml_passages(lines: list[str]) -> list[Passage]:
    """Return the blocks between empty lines; a comment with a declaration is read as one."""
    found: list[Passage] = []
    start = 0
    for n, line in enumerate([*lines, ""]):
        if not line.strip():
            block = [_uncommented(one) for one in lines[start:n]]
            found += [Passage(block, start + 1)] if block else []
            start = n + 1
    return found


def _uncommented(line: str) -> str:
    plain = line.strip().removeprefix("# ")
    return plain if is_declaration(plain) else line


def docstring_passages(source: str) -> list[Passage]:
    """Return each docstring of a module, with the declarations in comments below it."""
    lines = source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or not ast.get_docstring(node):
            continue
        first, last = node.body[0].lineno - 1, node.body[0].end_lineno or 0
        end = last
        while end < len(lines) and not lines[end].strip():  # ruff leaves a line free below a class
            end += 1
        while end < len(lines) and is_declaration(lines[end].strip().removeprefix("# ")):
            end += 1
        block = [*lines[first:last], *map(_uncommented, lines[last:end])]
        found.append(Passage(block, first + 1))
    return sorted(found, key=lambda passage: passage.line)


def hint_passages(source: str, path: Path) -> list[Passage]:
    """Return the raw cells of a lesson, which have the texts and hints of its exercises."""
    cells = [cell for cell in all_cells(source, path) if cell.kind == "raw"]
    return [Passage([_uncommented(line) for line in cell.lines], cell.line + 1) for cell in cells]


def table(tallies: dict[str, Counter[str]]) -> str:
    """Return the counts of bound, listed and unbound numbers by file, as aligned lines."""
    kinds = ["bound", "arithmetic", "source", "definition", "input", "output", "unbound"]
    total = sum(tallies.values(), Counter[str]())
    head = f"{'file':45}" + "".join(f"{kind:>11}" for kind in kinds)
    rows = [*tallies.items(), ("all", total)]
    return "\n".join([head, *(f"{name:45}" + "".join(f"{one[k]:>11}" for k in kinds) for name, one in rows)])
