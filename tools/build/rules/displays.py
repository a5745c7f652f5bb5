"""Check that the displays of a lesson agree with the library, where `display_bindings` binds them to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.build import latex
from tools.build.latex import Unreadable
from tools.build.percent_format import Cell
from tools.build.rules.declared_numbers import DeclarationError
from tools.build.rules.display_bindings import REASONS, Binding, Display, DisplayError, bindings_of
from tools.build.rules.display_comparison import compare
from tools.build.rules.display_parts import Statement, name_of, statements_of
from tools.build.rules.display_sizes import calls_the_library

# The lessons in which a display may be neither bound nor listed.
UNFINISHED = (
    "00", "01", "02", "03", "04", "04b", "05", "05b", "06", "06b", "07", "07b", "08", "08b", "09", "09b",
    "13", "13b", "14", "14b", "15", "15b", "16", "17", "17b", "18", "19",
)  # fmt: skip


def problems(cells: Sequence[Cell], path: Path) -> list[str]:
    """Return ``file:line: message`` for each fault of a display or a binding line of a lesson."""
    finished = path.stem.partition("_")[0] not in UNFINISHED
    found: list[tuple[int, str]] = []
    for cell in (cell for cell in cells if cell.kind == "markdown"):
        bound, faults = bindings_of(cell)
        found += faults
        for display, lines in bound:
            found += faults_of(display, lines, complete=finished and bool(display.tag or lines))
    return [f"{path}:{line}: {message}" for line, message in sorted(found)]


def faults_of(display: Display, lines: Sequence[Binding], *, complete: bool = True) -> list[tuple[int, str]]:
    """Return (line, message) for each fault of a display and its lines.

    Args:
        display: the display.
        lines: its binding lines, in their order.
        complete: True if each statement of the display must be bound or listed.
    """
    if any(one.reason and not one.sign for one in lines):
        if len(lines) == 1:
            return []
        return [
            (lines[0].line, "the whole display is listed, so it can have no other line: delete one of them")
        ]
    parts = _parts(display)
    chosen: dict[tuple[str, str], list[Binding]] = {part: [] for part in parts}
    faults = []
    for one in lines:
        try:
            chosen[_part(one, parts)].append(one)
        except DisplayError as error:
            faults.append((one.line, str(error)))
    label = f"({display.tag or 'above'})"
    for part, bindings in chosen.items():
        if bindings:
            faults += _faults_of_part(f"{label} {_text(part)}", parts[part], bindings)
        elif complete and not faults:
            faults.append((display.line, _unbound(f"{label} {_text(part)}")))
    return faults


def _parts(display: Display) -> dict[tuple[str, str], list[Statement]]:
    """Return the statements of a display by left side and sign."""
    parts: dict[tuple[str, str], list[Statement]] = {}
    for statement in statements_of(display.latex):
        parts.setdefault((statement.name, statement.sign), []).append(statement)
    return parts


def _text(part: tuple[str, str]) -> str:
    return " ".join(part).strip()


def _part(binding: Binding, parts: Mapping[tuple[str, str], Sequence[Statement]]) -> tuple[str, str]:
    """Return the left side and sign that a line binds. Raises DisplayError unless the display has one."""
    part = name_of(latex.tokens_of(binding.left)), binding.sign
    if part in parts:
        return part
    if not binding.left or _is_expression(binding.left):
        same_sign = [one for one in parts if one[1] == binding.sign]
        if len(same_sign) == 1:
            return same_sign[0]
    stands = ", ".join(map(_text, parts)) or "no formula"
    raise DisplayError(f"the display has {stands}, but this line has {_text(part)!r}: write one of them")


def _is_expression(left: str) -> bool:
    """Return True if the left side of a line is an expression of the library, not the name of a formula."""
    try:
        return calls_the_library(left)
    except DisplayError:
        return False


def _faults_of_part(
    shown: str, statements: Sequence[Statement], bindings: Sequence[Binding]
) -> list[tuple[int, str]]:
    """Return the faults of the lines of one left side: one line for all its right sides, or one for each."""
    if len(bindings) not in (1, len(statements)):
        message = (
            f"{shown} has {len(statements)} right sides and {len(bindings)} lines: write one line for each, "
        )
        return [(bindings[0].line, message + "or one for all if they are equal")]
    faults = []
    for n, statement in enumerate(statements):
        binding = bindings[min(n, len(bindings) - 1)]
        try:
            if not binding.reason:
                compare(statement, binding)
        except (DisplayError, DeclarationError) as error:
            faults.append((binding.line, f"{shown} {latex.text_of(statement.right)}: {error}"))
        except Unreadable as error:
            message = (
                f"{shown} {latex.text_of(statement.right)}: {error}. Write the formula in the LaTeX that "
            )
            faults.append(
                (binding.line, message + "tools/build/latex.py reads, or list it: not evaluated: reason")
            )
    return faults


def _unbound(shown: str) -> str:
    return (
        f"{shown} is not compared with the library: write <!-- {shown} expression of the library --> below "
        f"the display, or <!-- {shown} not evaluated: reason -->, with a reason of {', '.join(REASONS)}"
    )
