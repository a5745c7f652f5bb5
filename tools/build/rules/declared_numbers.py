"""Expressions that a source declares for the numbers of a text, and what they give.

In a markdown cell a line of its own, at best the last, which neither notebook shows, says one of

    <!-- 8,832 = costs.flash1(64, 8, Br=16, Bc=16).total -->
    <!-- 12.25, 4.09 = 12 * (1 + 4 / (3 * 64)), 4 * (1 + 3 / (2 * 64)) -->
    <!-- f2 = costs.flash2(64, 8, Br=16, Bc=16) -->
    <!-- 4.673 from https://arxiv.org/abs/2408.13233 -->

The first two compute the number as it is written, rounded; the third names a value for the lines below it, in
this cell and later ones; the last says where a number comes from that nobody here can compute, by a link that
the lesson shows its reader. Known are Python's own functions, the names in `PLACES`, the public names of
`iocourse` and its subpackages. No notebook is run.
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
    """A declaration that cannot be read, or does not give its numbers."""


@dataclass(frozen=True)
class Declaration:
    """One line: the numbers it bears out or the names it binds, and how.

    Attributes:
        numbers: as on the left; empty where names stand there.
        names: as on the left; empty where numbers stand there.
        right: the expression, or the source of a number that is quoted.
        quoted: whether `right` is a source.
    """

    numbers: tuple[Numeral, ...]
    names: tuple[str, ...]
    right: str
    quoted: bool


def read(line: str) -> Declaration:
    """The declaration on a line.

    Raises:
        DeclarationError: says what is wrong with its form.
    """
    found = LINE.match(line)
    if not found:
        raise DeclarationError("a declaration reads <!-- 8,832 = expression --> on a line of its own")
    left, quoted = found["left"], found["sign"] == "from"
    if _NAMES.fullmatch(left) and not quoted:
        return Declaration((), tuple(left.split(", ")), found["right"], quoted)
    parts = left.split(", ")
    read_numbers = [list(numerals([part])) for part in parts]
    if any(len(one) != 1 or one[0].text != part for one, part in zip(read_numbers, parts, strict=True)):
        raise DeclarationError(f"{left!r} is neither numbers nor names, separated by a comma and a space")
    return Declaration(tuple(one[0] for one in read_numbers), (), found["right"], quoted)


def evaluate(declaration: Declaration, known: Mapping[str, Any]) -> list[Any]:
    """One value for each number or name of the declaration; `known` are the names bound above it.

    Raises:
        DeclarationError: the expression does not parse, has an unknown name, raises, or gives too few values.
    """
    names = used_names(declaration.right)
    scope = {name: known[name] if name in known else _look_up(name) for name in names}
    try:
        value = eval(compile(parse(declaration.right), "<declared>", "eval"), scope)
        wanted = len(declaration.numbers or declaration.names)
        given = [value] if wanted == 1 else list(value)
    except Exception as error:
        raise DeclarationError(f"{declaration.right} raises {type(error).__name__}: {error}") from None
    if len(given) != wanted:
        raise DeclarationError(f"{declaration.right} gives {len(given)} values for {wanted}")
    return given


def parse(expression: str) -> ast.Expression:
    """The expression's tree. Raises DeclarationError where it is no Python."""
    try:
        return ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise DeclarationError(f"{expression} does not parse: {error.msg}") from None


def refuse_bare_numbers(expression: str) -> None:
    """Raises DeclarationError where the expression, or a value it lists, is a number written down."""
    body = parse(expression).body
    if any(isinstance(one, ast.Constant) for one in (body.elts if isinstance(body, ast.Tuple) else [body])):
        raise DeclarationError(f"{expression} computes nothing: a number is no reason for itself")


def literals(expression: str) -> Iterator[Numeral]:
    """The numbers of three digits or more that the expression itself writes down."""
    for node in ast.walk(parse(expression)):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            for one in numerals([(ast.get_source_segment(expression, node) or "").replace("_", "")]):
                if sum(character.isdigit() for character in one.text) >= DIGITS:
                    yield one


def used_names(expression: str) -> set[str]:
    """The names an expression reads and does not bind itself."""
    nodes = list(ast.walk(parse(expression)))
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return loaded - bound - {node.arg for node in nodes if isinstance(node, ast.arg)}


def refuse_unless_it_gives(numeral: Numeral, value: object, expression: str) -> None:
    """Raises DeclarationError where `value`, rounded as `numeral` is written, is another number."""
    exact = as_decimal(value)
    if exact is None:
        raise DeclarationError(f"{expression} gives {value!r}, which is no number")
    if not numeral.rounds(exact):
        raise DeclarationError(f"{expression} gives {exact:,}, the text says {numeral.text}")


def as_decimal(value: object) -> Decimal | None:
    """A finite real number, of Python or NumPy; None for everything else, truth values among it."""
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value
    if isinstance(plain, bool) or not isinstance(plain, numbers.Real):
        return None
    if isinstance(plain, Fraction):
        return Decimal(plain.numerator) / plain.denominator
    exact = Decimal(repr(plain))
    return exact if exact.is_finite() else None


def _look_up(name: str) -> Any:
    if hasattr(builtins, name):
        return getattr(builtins, name)
    if name in iocourse.__all__:
        return getattr(iocourse, name)
    if name in PLACES:
        module, _, attribute = PLACES[name].partition(":")
        found = importlib.import_module(module)
        return getattr(found, attribute) if attribute else found
    if importlib.util.find_spec(f"iocourse.{name}"):
        return importlib.import_module(f"iocourse.{name}")
    raise DeclarationError(f"{name} is not known here: {', '.join(PLACES)}, or a public name of iocourse")
