"""Mutants of the library: one change on a random line, drawn from each package by its share of the lines."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.operators import OPERATORS, Around

# Operators whose mutants can stay undetected. A different name or call mostly raises an error immediately and
# would only increase the detected share.
CHOSEN = ("comparisons", "arithmetic", "operands", "constants", "starts", "ranges", "maxima", "keywords",
          "conditions", "statements", "loops")  # fmt: skip
_NO_NAMES = Around((), ())


@dataclass(frozen=True)
class LibraryMutant:
    """A file of the library with one change.

    Attributes:
        file: path of the changed file, from the root of the checkout.
        line: the first changed line.
        operator: the operator that made it.
        before: the removed text.
        after: the text that replaces it.
        source: the complete file with the change; all other lines are unchanged.
    """

    file: str
    line: int
    operator: str
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        change = " → ".join(" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.file}:{self.line} {self.operator}: {change}"


def draw(root: Path, count: int, seed: int, only: str = "iocourse") -> list[LibraryMutant]:
    """Draw `count` mutants on different lines, from each package in proportion to its number of lines.

    Args:
        root: the checkout.
        count: number of mutants.
        seed: seed of the draw; the same sources and seed give the same mutants.
        only: the file or folder to draw from.
    """
    chance = random.Random(seed)
    rooms: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in sorted((root / only).rglob("*.py")) or [root / only]:
        name = path.relative_to(root)
        lines = len(path.read_text(encoding="utf-8").splitlines())
        rooms[name.parts[1]] += [(name.as_posix(), line) for line in range(1, lines + 1)]
    drawn: list[LibraryMutant] = []
    for room, quota in _shares({room: len(lines) for room, lines in rooms.items()}, count).items():
        chance.shuffle(rooms[room])
        wanted = len(drawn) + quota
        for file, line in rooms[room]:
            if len(drawn) == wanted:
                break
            if found := mutants_at(root, file, line):
                drawn.append(chance.choice(found))
    return drawn


def _shares(lines: dict[str, int], count: int) -> dict[str, int]:
    """Divide the count among the packages in proportion to their lines, by largest remainders."""
    exact = {room: count * of / sum(lines.values()) for room, of in lines.items()}
    shares = {room: int(share) for room, share in exact.items()}
    by_remainder = sorted(exact, key=lambda room: shares[room] - exact[room])
    for room in by_remainder[: count - sum(shares.values())]:
        shares[room] += 1
    return shares


def mutants_at(root: Path, file: str, line: int) -> list[LibraryMutant]:
    """All mutants whose change begins on this line."""
    source = (root / file).read_text(encoding="utf-8")
    tree = ast.parse(source)
    found = {}
    for node in _nodes(tree):
        if getattr(node, "lineno", 0) != line or _gives_names(node):
            continue
        before = ast.get_source_segment(source, node) or ""
        for operator in CHOSEN:
            for other in OPERATORS[operator](node, _NO_NAMES):
                after = _text(other, node)
                text = _replaced(source, node, after)
                if text not in found and _is_code(text) and ast.dump(ast.parse(text)) != ast.dump(tree):
                    found[text] = LibraryMutant(file, line, operator, before, after, text)
    return list(found.values())


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes that have a position in the text, without annotations."""
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield child
                    yield from _nodes(child)


def _gives_names(node: ast.AST) -> bool:
    """True for an assignment to a name, which would be undefined without it."""
    return isinstance(node, ast.Assign) and any(not isinstance(to, ast.Subscript) for to in node.targets)


def _text(other: ast.AST, node: ast.AST) -> str:
    """The text that replaces the node: a statement with its indentation, an expression in parentheses."""
    text = ast.unparse(ast.fix_missing_locations(other))
    if isinstance(other, ast.stmt):
        return text.replace("\n", "\n" + " " * getattr(node, "col_offset", 0))
    return text if isinstance(other, (ast.Slice, ast.Constant, ast.Name)) else f"({text})"


def _replaced(source: str, node: ast.AST, after: str) -> str:
    """Replace the node's text in the source. The columns of a node count bytes."""
    lines = source.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    changed = lines[first][:start] + after.encode() + lines[last][end:]
    return b"".join([*lines[:first], changed, *lines[last + 1 :]]).decode()


def _is_code(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True
