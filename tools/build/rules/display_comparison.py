"""Compare a statement of a display with the expression of the library that its binding line names."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tools.build import latex
from tools.build.latex import Formula, Number
from tools.build.rules.display_bindings import Binding, DisplayError
from tools.build.rules.display_parts import Condition, Statement, name_of
from tools.build.rules.display_sizes import FEWEST, Scope, Sizes, calls_the_library

_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
    "~": math.isclose,
}  # fmt: skip


def compare(statement: Statement, binding: Binding) -> None:
    """Compare a statement with its expressions of the library.

    Raises:
        DisplayError: the values differ, an expression raises an error or calls nothing of the library, the
            display has a condition that the line lacks, or few sizes satisfy the condition.
        Unreadable: the LaTeX cannot be read.
        DeclarationError: a name is unknown.
    """
    functions = {name for name, value in binding.names.items() if value.startswith("lambda")}
    pairs = [(latex.read(statement.right, functions), binding.right)]
    if binding.left and name_of(latex.tokens_of(binding.left)) != statement.name:
        pairs.append((latex.read(statement.left, functions), binding.left))
    expressions = [expression for _, expression in pairs]
    conditions = [
        (one, latex.read(one.left, functions), latex.read(one.right, functions))
        for one in statement.conditions
    ]
    formulas = [formula for formula, _ in pairs] + [side for _, *sides in conditions for side in sides]
    sizes = Sizes(binding, expressions, formulas)
    if not any(map(calls_the_library, (*expressions, *binding.names.values()))):
        raise DisplayError(
            f"{binding.right} calls nothing of the library: write the function that computes it"
        )
    for condition, left, right in conditions:
        holds = _test(condition.sign, left, right, sizes)
        sizes.refuse_other_condition(_text(condition), left.names | right.names, holds)
    values = [
        _compared(formula, text, statement.sign, binding, sizes, scope)
        for scope in sizes.fitting()
        for formula, text in pairs
    ]
    informative = sum(value != 0 for value in values)
    if informative < min(FEWEST, len(values)):
        raise DisplayError(f"is 0 for all but {informative} sizes drawn: write a condition with larger sizes")


def _compared(
    formula: Formula, expression: str, sign: str, binding: Binding, sizes: Sizes, scope: Scope
) -> Number:
    """Return the value of a formula. Raises DisplayError if the expression has another one."""
    shown = _value(formula, sizes, scope)
    if binding.rounded:
        shown = latex.floor(shown) if binding.rounded == "rounded down" else -latex.floor(-shown)
    if sign == ">=":  # no schedule moves fewer than 0 words, so the library has no negative bounds
        shown = max(shown, 0)
    computed = sizes.value(expression, scope)
    if not _agree(shown, computed, binding.within):
        raise DisplayError(
            f"is {_written(shown)}, but {expression} is {_written(computed)}, for {sizes.text(scope)}: "
            "correct one of them, or exclude these sizes after where"
        )
    return shown


def _value(formula: Formula, sizes: Sizes, scope: Scope) -> Number:
    try:
        return formula.value(_exact(scope))
    except (ArithmeticError, ValueError, TypeError) as error:
        raise DisplayError(f"raises {type(error).__name__} for {sizes.text(scope)}: {error}") from None


def _agree(shown: Number, computed: object, within: float) -> bool:
    plain = computed.item() if hasattr(computed, "item") else computed
    if isinstance(plain, bool) or not isinstance(plain, int | float | Fraction):
        raise DisplayError(f"the expression must give a number, got {type(plain).__name__}")
    return math.isclose(shown, plain, rel_tol=within) if within else latex.equal(shown, plain)


def _exact(scope: Scope) -> Scope:
    """Return a scope with fractions in place of integers, whose functions take and return them."""
    return {name: _called(value) if callable(value) else _fraction(value) for name, value in scope.items()}


def _fraction(value: object) -> object:
    return Fraction(value) if isinstance(value, int) else value


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: _fraction(function(*(int(x) if x == int(x) else x for x in given)))


def _test(sign: str, left: Formula, right: Formula, sizes: Sizes) -> Callable[[Scope], bool]:
    """Return the function that tells for which sizes a condition of the display holds."""
    return lambda scope: _HOLDS[sign](_value(left, sizes, scope), _value(right, sizes, scope))


def _text(condition: Condition) -> str:
    return f"{latex.text_of(condition.left)} {condition.sign} {latex.text_of(condition.right)}"


def _written(value: Any) -> str:
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, Fraction):
        return f"{float(plain):,.10g}" if plain.denominator > 1 else f"{plain.numerator:,}"
    return f"{plain:,}"
