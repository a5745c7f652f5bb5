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

Fault = tuple[int, str]  # line of the source, message


def problems(cells: Sequence[Cell], path: Path) -> list[str]:
    """Return ``file:line: message`` for each fault of a display or a binding line of a lesson."""
    found: list[Fault] = []
    for cell in (cell for cell in cells if cell.kind == "markdown"):
        bound, faults = bindings_of(cell)
        found += faults
        for display, lines in bound:
            found += faults_of(display, lines, complete=bool(display.tag or lines))
    return [f"{path}:{line}: {message}" for line, message in sorted(found)]


def faults_of(display: Display, lines: Sequence[Binding], *, complete: bool = True) -> list[Fault]:
    """Return the faults of a display and its lines.

    Args:
        display: the display.
        lines: its binding lines, in their order.
        complete: True if each statement of the display must be bound or listed.
    """
    pairs, faults = matched(display, lines)
    unbound = []
    for statement, binding in pairs:
        shown = f"({display.tag or 'above'}) {_text((statement.name, statement.sign))}"
        if binding is None:
            unbound.append((display.line, _unbound(shown)))
        elif not binding.reason:
            faults += _differences(f"{shown} {latex.text_of(statement.right)}", statement, binding)
    return faults if faults or not complete else list(dict.fromkeys(unbound))


def matched(
    display: Display, lines: Sequence[Binding]
) -> tuple[list[tuple[Statement, Binding | None]], list[Fault]]:
    """Return each statement of a display with its line, if it has one, and the faults of other lines."""
    parts = _parts(display)
    if any(one.reason and not one.sign for one in lines):
        message = (
            "the whole display is listed with a reason, so it can have no other line: delete one of them"
        )
        faults = [(lines[-1].line, message)] if len(lines) > 1 else []
        return [(one, lines[0]) for statements in parts.values() for one in statements], faults
    chosen: dict[tuple[str, str], list[Binding]] = {part: [] for part in parts}
    faults = []
    for one in lines:
        try:
            chosen[_part(one, parts)].append(one)
        except DisplayError as error:
            faults.append((one.line, str(error)))
    pairs: list[tuple[Statement, Binding | None]] = []
    for part, statements in parts.items():
        own: list[Binding | None] = [*chosen[part]] or [None]
        if len(own) not in (1, len(statements)):
            message = (
                f"{_text(part)} has {len(statements)} right sides and {len(own)} lines: write one line for "
            )
            faults.append((chosen[part][0].line, message + "each, or one for all if they are equal"))
        pairs += [(one, own[min(n, len(own) - 1)]) for n, one in enumerate(statements)]
    return pairs, faults


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
    if _is_expression(binding.left):
        same_sign = [one for one in parts if one[1] == binding.sign]
        if len(same_sign) == 1:
            return same_sign[0]
    stands = ", ".join(map(_text, parts)) or "no formula"
    raise DisplayError(f"the display has {stands}, but this line has {_text(part)!r}: write one of them")


def _is_expression(left: str) -> bool:
    """Return True if the left side of a line is an expression of the library, not the name of a formula."""
    try:
        return bool(left) and calls_the_library(left)
    except DisplayError:
        return False


def _differences(shown: str, statement: Statement, binding: Binding) -> list[Fault]:
    """Return the fault of a statement that cannot be read or differs from the library, if it does."""
    try:
        compare(statement, binding)
    except (DisplayError, DeclarationError) as error:
        return [(binding.line, f"{shown}: {error}")]
    except Unreadable as error:
        advice = "Write LaTeX that tools/build/latex.py reads, or list the formula: not evaluated: reason"
        return [(binding.line, f"{shown}: {error}. {advice}")]
    return []


def _unbound(shown: str) -> str:
    condition = (
        ". If it is a condition, begin it with \\text{if} or \\text{where}"
        if shown.endswith(("<", "<=", ">", ">="))
        else ""
    )
    return (
        f"{shown} is not compared with the library: write <!-- {shown} expression of the library --> below "
        f"the display, or <!-- {shown} not evaluated: reason -->, with a reason of "
        f"{', '.join(REASONS)}{condition}"
    )
