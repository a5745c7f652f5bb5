"""Read and evaluate the declarations of a text: expressions that compute its numbers, or list them.

A declaration is a separate line in the cell or below the paragraph of its numbers. Readers do not see it. It
has one of these forms:

    <!-- 8,832 = costs.flash1(64, 8, Br=16, Bc=16).total -->
    <!-- 1.29, 1.33 = row("attention", d=64)["ratio"], row("attention", d=128)["ratio"] -->
    <!-- 64 × 64 = tile("forward", 90, 128) -->
    <!-- f2 = costs.flash2(64, 8, Br=16, Bc=16) -->
    <!-- "by default" if choice("backward pass", launch(90, 64)).value == "two-pass" -->
    <!-- 4.673 from https://arxiv.org/abs/2408.13233 -->
    <!-- 1,024 as definition -->

The first three compute the number as it is written, rounded; a product of sizes takes one value for each
size. The fourth names a value for the declarations below it, also in later cells. The fifth has a condition
that must be true, for a sentence with the quoted words. The sixth gives the source of what cannot be computed
here, by a link in the text. The last lists a number for one of the `REASONS` in `listed_numbers`.

Expressions can use Python's built-in functions, the names in `PLACES`, the public names of `iocourse` and its
subpackages, the exercises of a lesson, such as `lesson03`, and the functions in `record_lookup`. They are
evaluated in every check. No notebook is run.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import numbers
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import iocourse
from iocourse.doctor.triton_missing import missing
from tools.build.rules import record_lookup
from tools.build.rules.number_parsing import DIGITS, Numeral, numerals

PLACES = {
    "np": "numpy",
    "math": "math",
    "statistics": "statistics",
    "inspect": "inspect",
    "re": "re",
    "load_record": "iocourse.data.records:load_record",
    "real_head": "iocourse.data:real_head",
    "real_heads": "iocourse.data:real_heads",
    "CHIPS": "iocourse.gpu:CHIPS",
    "LINKS": "iocourse.gpu.chips:LINKS",
    "kernel_costs": "iocourse.costs.kernels",
    "roofline": "iocourse.gpu.roofline",
    "choices": "iocourse.kernels.host.choices",
    "diagnosis": "iocourse.course.diagnosis",
    **{name: f"{record_lookup.__name__}:{name}" for name in record_lookup.__all__},
}
ARITHMETIC = frozenset(
    {"np", "math", "statistics", "inspect", "re", *dir(builtins)}
)  # names that read nothing of the project
LINE = re.compile(r'^<!-- (?P<left>"[^"]*"|\S.*?) (?P<sign>=|from|as|if) (?P<right>.*\S) -->$')
_NAMES = re.compile(r"[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*")


class DeclarationError(ValueError):
    """A declaration cannot be read or does not give its numbers."""


@dataclass(frozen=True)
class Declaration:
    """One declaration: numbers, names or quoted words, and what follows the sign.

    Attributes:
        numbers: the numbers on the left; empty if names or words are there.
        names: the names on the left; empty if numbers or words are there.
        words: the quoted words on the left; empty if numbers or names are there.
        sign: "=", "if" (a condition), "from" (a source) or "as" (a reason).
        right: the expression, the source or the reason.
    """

    numbers: tuple[Numeral, ...]
    names: tuple[str, ...]
    words: str
    sign: str
    right: str


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
    left, sign, right = found["left"], found["sign"], found["right"]
    if left.startswith('"'):
        if sign == "=":
            raise DeclarationError(f"quoted words take a condition, <!-- {left} if expression -->")
        return Declaration((), (), left[1:-1], sign, right)
    if sign == "if":
        raise DeclarationError(f"a condition is for quoted words, got {left}; write <!-- {left} = … -->")
    if _NAMES.fullmatch(left) and sign == "=":
        return Declaration((), tuple(left.split(", ")), "", sign, right)
    parts = left.split(", ")
    read_numbers = [list(numerals([part])) for part in parts]
    if any(len(one) != 1 or one[0].text != part for one, part in zip(read_numbers, parts, strict=True)):
        raise DeclarationError(
            f"the left side must be numbers or names, separated by a comma and a space, got {left!r}"
        )
    return Declaration(tuple(one[0] for one in read_numbers), (), "", sign, right)


def evaluate(declaration: Declaration, known: Mapping[str, Any]) -> list[Any]:
    """Return one value for each number or name of the declaration; `known` has the names bound above it.

    Raises:
        DeclarationError: the expression is not valid Python, has an unknown name, raises an error, or gives
            another number of values.
        ImportError: it needs torch or triton, which are not installed.
    """
    tree = parse(declaration.right)
    names = used_names(declaration.right)
    try:
        import_submodules(tree)
        scope = {name: known[name] if name in known else look_up(name) for name in names}
        value = eval(compile(tree, "<declared>", "eval"), scope)
        wanted = len(declaration.numbers or declaration.names or (declaration.words,))
        given = [value] if wanted == 1 else list(value)
    except DeclarationError:
        raise
    except Exception as error:
        if isinstance(error, ImportError) and missing():
            raise
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
    """Raise DeclarationError unless `value`, rounded to the digits of `numeral`, is this number.

    A value halfway between two numbers is neither: 0.5 is not 1.
    """
    if numeral.others:
        sizes = tuple(value) if isinstance(value, tuple | list) else (value,)
        if sizes != (int(numeral.value), *map(int, numeral.others)):
            raise DeclarationError(f"{expression} gives {sizes}, but the text has {numeral.text}")
        return
    exact = as_decimal(value)
    if exact is None:
        raise DeclarationError(f"{expression} must give a finite real number, got {value!r}")
    off = min(abs(exact - numeral.value), abs(abs(exact) - numeral.value))
    if off >= numeral.place / 2:
        raise DeclarationError(f"{expression} gives {exact:,}, but the text has {numeral.text}")


def refuse_unless_true(words: str, value: object, expression: str) -> None:
    """Raise DeclarationError unless the condition of a sentence with these words is True."""
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value
    if not isinstance(plain, bool):
        raise DeclarationError(f"{expression} must be True or False, got {value!r}")
    if not plain:
        raise DeclarationError(f'{expression} is False, but the text has "{words}"')


def as_decimal(value: object) -> Decimal | None:
    """Return a finite real number of Python or NumPy as a Decimal; None for other values, also booleans."""
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value
    if isinstance(plain, bool) or not isinstance(plain, numbers.Real):
        return None
    if isinstance(plain, Fraction):
        return Decimal(plain.numerator) / plain.denominator
    exact = Decimal(repr(plain))
    return exact if exact.is_finite() else None


def import_submodules(tree: ast.AST) -> None:
    """Import the submodules of `iocourse` that an expression names, as in `course.predictions.CLOSE`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"[\w.]+", name := ast.unparse(node)):
            _import_submodule(name)


@cache
def _import_submodule(name: str) -> None:
    with suppress(ModuleNotFoundError):  # the name of an object
        importlib.import_module(f"iocourse.{name}")


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
