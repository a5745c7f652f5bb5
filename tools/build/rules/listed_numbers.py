"""Reasons for which a number may be listed instead of computed, and the sentences that need a condition.

A number that a record or a default could give is never listed, so each reason has what it refuses.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from iocourse.course import explore  # noqa: F401  # registers all figures and explorers
from iocourse.course.explore.draw.picture import FIGURES
from iocourse.course.explore.widgets.explorer import EXPLORERS
from tools.build.rules.declared_numbers import DeclarationError
from tools.build.rules.number_parsing import RECORDED, Numeral

REASONS = {
    "definition": "a unit or constant of arithmetic: a power of 2 or 10, 60, 3,600, or an integer up to 12",
    "input": "a size of an example or exercise, chosen by the author",
    "output": "printed in the same section by a code cell that reads no record and no default",
}
# Words of a sentence that compares kernels or states a default. Code is not searched.
CLAIM = re.compile(
    r"\b(?:fast(?:er|est)|slow(?:er|est)|by default|the defaults?|defaults? (?:is|are)|no measurement"
    r"|no (?:recorded run|record)|the library (?:takes|uses|chooses))\b",
    re.IGNORECASE,
)
# Names whose functions read a record, a data sheet or a table of defaults.
# fmt: off
READERS = frozenset((
    "load_record", "format_record", "record_source", "CHIPS", "LINKS", "chip_of", "resources", "resources_of",
    "kernels", "choices_of", "time_model", "profile",
))
# fmt: on
_ONLY_TREE = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_MAGIC = re.compile(r"^(\s*)[%!].*", re.MULTILINE)
_READS = re.compile(r"load_record|CHIPS|LINKS|gpu\.choices|time_model")


def refuse_reason(reason: str, numeral: Numeral, printed: Collection[tuple[Decimal, Decimal]] | None) -> None:
    """Raise DeclarationError if a number may not be listed for this reason.

    printed: (value, place) of the outputs of the section whose cells read no record; None: the text has none.
    """
    if reason not in REASONS:
        raise DeclarationError(
            f"{numeral.text} is listed as {reason}; expected {', '.join(REASONS)}, or from LINK"
        )
    found = RECORDED.search(numeral.sentence)
    if found and not (reason == "definition" and _has_bytes(numeral)):
        raise DeclarationError(
            f'{numeral.text} is not listed as {reason}, because its sentence has "{found[0]}": write an '
            f'expression that reads the record or default, or from LINK: "{numeral.sentence}"'
        )
    if reason == "definition" and not _is_constant(numeral):
        raise DeclarationError(f"{numeral.text} is not a definition: {REASONS['definition']}")
    if reason == "output" and len(re.findall(r"\d", numeral.text)) < 2:
        raise DeclarationError(
            f"{numeral.text} has one digit, which any output may have: write an expression"
        )
    if reason == "output" and not _is_printed(numeral, printed or ()):
        raise DeclarationError(f"{numeral.text} is not {REASONS['output']}: write an expression")


def refuse_to_list_claim(words: str, reason: str, sentence: str) -> None:
    """Raise DeclarationError if the words of a claim may not be listed for this reason."""
    if reason != "definition":
        raise DeclarationError(f'"{words}" takes a condition, or as definition: "{sentence}"')
    if found := RECORDED.search(sentence.replace(words, "")):
        raise DeclarationError(
            f'"{words}" is not a definition, because its sentence has "{found[0]}": write a condition: '
            f'"{sentence}"'
        )


def refuse_arithmetic(numeral: Numeral, expression: str) -> None:
    """Raise DeclarationError if the sentence needs a record, and the expression reads none."""
    if found := RECORDED.search(numeral.sentence):
        raise DeclarationError(
            f"{expression} reads no record, default or function of the library, but the sentence has "
            f'"{found[0]}": "{numeral.sentence}"'
        )


def _is_constant(numeral: Numeral) -> bool:
    value = int(numeral.value)
    if numeral.others or numeral.value != value or value <= 0:
        return False
    power_of_2, power_of_10 = value & (value - 1) == 0, re.fullmatch("10*", str(value)) is not None
    return value <= 12 or power_of_2 or power_of_10 or value in (60, 3600)


def _has_bytes(numeral: Numeral) -> bool:
    """Return True for a number of bytes, as in "2 bytes per number on a GPU", and for 1 of any unit."""
    return numeral.value == 1 or bool(
        re.search(rf"{re.escape(numeral.text)}[ ~]*(?:bytes?|[KMG]i?B)\b", numeral.sentence)
    )


def _is_printed(numeral: Numeral, printed: Collection[tuple[Decimal, Decimal]]) -> bool:
    if numeral.others:
        sizes = {value for value, _ in printed}
        return {numeral.value, *numeral.others} <= sizes
    return any(place <= numeral.place and numeral.rounds(value) for value, place in printed)


# ---- code cells that read a record or a default ------------------------------------------------------------


def reading_cells(sources: Sequence[str]) -> list[bool]:
    """Return for each code cell, in order, whether it reads a record or default, also through a variable."""
    reading = set(READERS | _figures())
    found = []
    for source in sources:
        reads = False
        python = _MAGIC.sub(r"\1pass", source)
        for statement in compile(python, "", "exec", _ONLY_TREE).body:
            used, bound = set(_used(statement)), set(_bound(statement))
            if used & reading:
                reads = True
                reading |= bound
            else:
                reading -= bound  # the lesson uses this name for something else
        found.append(reads)
    return found


def _used(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from _parts(node)
            yield from (alias.name for alias in node.names)


def _bound(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom) and READERS & {*_parts(node)}:
            yield from (alias.asname or alias.name for alias in node.names)


def _parts(node: ast.ImportFrom) -> list[str]:
    """Return the parts of the module's name; none for the closed forms, which read no default."""
    parts = (node.module or "").split(".")
    return [] if "costs" in parts else parts


@cache
def _figures() -> frozenset[str]:
    """Return the figures and explorers whose module reads a record or a default."""
    made: dict[str, Any] = {**FIGURES, **EXPLORERS}
    modules = {name: sys.modules[inspect.unwrap(one).__module__] for name, one in made.items()}
    return frozenset(name for name, module in modules.items() if _READS.search(inspect.getsource(module)))
