"""Read and evaluate the declarations of a source: expressions that compute the numbers of its text.

A declaration is a separate line of a markdown cell, preferably the last, which is in neither notebook. It has
one of these forms:

    <!-- 8,832 = costs.flash1(64, 8, Br=16, Bc=16).total -->
    <!-- 12.25, 4.09 = 12 * (1 + 4 / (3 * 64)), 4 * (1 + 3 / (2 * 64)) -->
    <!-- f2 = costs.flash2(64, 8, Br=16, Bc=16) -->
    <!-- 4.673 from https://arxiv.org/abs/2408.13233 -->

The first two compute the number as it is written, rounded. The third names a value for the lines below it, in
this cell and later ones. The last gives the source of a number that cannot be computed here, by a link in the
text of the lesson. Expressions can use Python's built-in functions, the names in `PLACES`, the public names
of `iocourse`, its subpackages, and the exercises of a lesson, such as `lesson03`. No notebook is run.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import numbers
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import iocourse
from tools.build.rules.number_parsing import DIGITS, Numeral, numerals

PLACES = {
    "np": "numpy",
    "math": "math",
    "load_record": "iocourse.data.records:load_record",
    "real_head": "iocourse.data:real_head",
    "real_heads": "iocourse.data:real_heads",
    "CHIPS": "iocourse.gpu:CHIPS",
    "kernel_costs": "iocourse.costs.kernels",
}
LINE = re.compile(r"^<!-- (?P<left>\S.*?) (?P<sign>=|from) (?P<right>.*\S) -->$")
_NAMES = re.compile(r"[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*")


class DeclarationError(ValueError):
    """A declaration cannot be read or does not give its numbers."""


@dataclass(frozen=True)
class Declaration:
    """One declaration: the numbers that it computes or the names that it binds, and the expression.

    Attributes:
        numbers: the numbers on the left; empty if names are there.
        names: the names on the left; empty if numbers are there.
        right: the expression, or the source of a quoted number.
        quoted: True if `right` is a source.
    """

    numbers: tuple[Numeral, ...]
    names: tuple[str, ...]
    right: str
    quoted: bool


def read(line: str) -> Declaration:
    """Return the declaration on a line.

    Raises:
        DeclarationError: the line has another form.
    """
    found = LINE.match(line)
    if not found:
        raise DeclarationError(
            "a declaration must have the form <!-- 8,832 = expression -->, on a separate line"
        )
    left, quoted = found["left"], found["sign"] == "from"
    if _NAMES.fullmatch(left) and not quoted:
        return Declaration((), tuple(left.split(", ")), found["right"], quoted)
    parts = left.split(", ")
    read_numbers = [list(numerals([part])) for part in parts]
    if any(len(one) != 1 or one[0].text != part for one, part in zip(read_numbers, parts, strict=True)):
        raise DeclarationError(
            f"the left side must be numbers or names, separated by a comma and a space, got {left!r}"
        )
    return Declaration(tuple(one[0] for one in read_numbers), (), found["right"], quoted)


def evaluate(declaration: Declaration, known: Mapping[str, Any]) -> list[Any]:
    """Return one value for each number or name of the declaration; `known` has the names bound above it.

    Raises:
        DeclarationError: the expression is not valid Python, has an unknown name, raises an error, or gives
            another number of values.
    """
    names = used_names(declaration.right)
    scope = {name: known[name] if name in known else look_up(name) for name in names}
    try:
        value = eval(compile(parse(declaration.right), "<declared>", "eval"), scope)
        wanted = len(declaration.numbers or declaration.names)
        given = [value] if wanted == 1 else list(value)
    except Exception as error:
        raise DeclarationError(f"{declaration.right} raises {type(error).__name__}: {error}") from None
    if len(given) != wanted:
        raise DeclarationError(f"{declaration.right} must give {wanted} values, got {len(given)}")
    return given


def parse(expression: str) -> ast.Expression:
    """Return the syntax tree of the expression. Raises DeclarationError if it is not valid Python."""
    try:
        return ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise DeclarationError(f"{expression} is not valid Python: {error.msg}") from None


def refuse_bare_numbers(expression: str) -> None:
    """Raise DeclarationError if the expression, or a value in its tuple, is a constant."""
    body = parse(expression).body
    if any(isinstance(one, ast.Constant) for one in (body.elts if isinstance(body, ast.Tuple) else [body])):
        raise DeclarationError(f"{expression} is a constant: write an expression that computes the number")


def literals(expression: str) -> Iterator[Numeral]:
    """Yield the literal numbers of three digits or more in the expression."""
    for node in ast.walk(parse(expression)):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            for one in numerals([(ast.get_source_segment(expression, node) or "").replace("_", "")]):
                if sum(character.isdigit() for character in one.text) >= DIGITS:
                    yield one


def used_names(expression: str) -> set[str]:
    """Return the free names of an expression."""
    nodes = list(ast.walk(parse(expression)))
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return loaded - bound - {node.arg for node in nodes if isinstance(node, ast.arg)}


def refuse_unless_it_gives(numeral: Numeral, value: object, expression: str) -> None:
    """Raise DeclarationError unless `value`, rounded to the digits of `numeral`, is this number."""
    exact = as_decimal(value)
    if exact is None:
        raise DeclarationError(f"{expression} must give a finite real number, got {value!r}")
    if not numeral.rounds(exact):
        raise DeclarationError(f"{expression} gives {exact:,}, but the text has {numeral.text}")


def as_decimal(value: object) -> Decimal | None:
    """Return a finite real number of Python or NumPy as a Decimal; None for other values, also booleans."""
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value
    if isinstance(plain, bool) or not isinstance(plain, numbers.Real):
        return None
    if isinstance(plain, Fraction):
        return Decimal(plain.numerator) / plain.denominator
    exact = Decimal(repr(plain))
    return exact if exact.is_finite() else None


def look_up(name: str) -> Any:
    """Return the value of a name that expressions can use. Raises DeclarationError if it is unknown."""
    if hasattr(builtins, name):
        return getattr(builtins, name)
    if name in iocourse.__all__:
        return getattr(iocourse, name)
    if name in PLACES:
        module, _, attribute = PLACES[name].partition(":")
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found
    for package in ("iocourse", "iocourse.course.exercises"):
        if importlib.util.find_spec(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
    raise DeclarationError(f"unknown name {name}; expected {', '.join(PLACES)}, or a public name of iocourse")
