"""Mutants of the library: lines drawn at random, from each room by its share of the lines, changed once."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.operators import OPERATORS, Around

# Those whose mutants can go unnoticed. A name or a call in another's place mostly ends in an error at once,
# and would only raise the share.
CHOSEN = ("comparisons", "arithmetic", "operands", "constants", "starts", "ranges", "maxima", "keywords",
          "conditions", "statements", "loops")  # fmt: skip
_NO_NAMES = Around((), ())


@dataclass(frozen=True)
class LibraryMutant:
    """A file of the library with one change.

    Attributes:
        file: which, as a path from the root of the checkout.
        line: the first line of what is changed.
        operator: the operator that made it.
        before: the text that is no longer there.
        after: the text that stands in its place.
        source: the whole file with the change; all other lines stay where they are, or move together.
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
    """`count` mutants: as many of each room as its share of the lines, each on a line of its own.

    Args:
        root: the checkout.
        count: how many.
        seed: of the draw; with the same sources it draws the same again.
        only: the file or folder they are drawn from.
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
    """The count divided in proportion, by the largest remainders."""
    exact = {room: count * of / sum(lines.values()) for room, of in lines.items()}
    shares = {room: int(share) for room, share in exact.items()}
    by_remainder = sorted(exact, key=lambda room: shares[room] - exact[room])
    for room in by_remainder[: count - sum(shares.values())]:
        shares[room] += 1
    return shares


def mutants_at(root: Path, file: str, line: int) -> list[LibraryMutant]:
    """Every mutant whose change begins on this line."""
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
    """All nodes that have a place in the text and are no annotation."""
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield child
                    yield from _nodes(child)


def _gives_names(node: ast.AST) -> bool:
    """Whether names are missing without the statement."""
    return isinstance(node, ast.Assign) and any(not isinstance(to, ast.Subscript) for to in node.targets)


def _text(other: ast.AST, node: ast.AST) -> str:
    """What stands in the node's place: a statement indented as it was, an expression in parentheses."""
    text = ast.unparse(ast.fix_missing_locations(other))
    if isinstance(other, ast.stmt):
        return text.replace("\n", "\n" + " " * getattr(node, "col_offset", 0))
    return text if isinstance(other, (ast.Slice, ast.Constant, ast.Name)) else f"({text})"


def _replaced(source: str, node: ast.AST, after: str) -> str:
    """The text with another in the place of a node, whose columns count bytes."""
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
