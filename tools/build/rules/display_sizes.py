"""Draw the sizes on which a formula of a display and its expression of the library are compared.

Sizes are positive integers: often 1, often smaller than a tile, rarely a multiple of one. The seed is
fixed, so that a check gives the same answer each time.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cache
from types import CodeType
from typing import Any

from tools.build.latex import Formula
from tools.build.rules import declared_numbers
from tools.build.rules.declared_numbers import DeclarationError
from tools.build.rules.display_bindings import Binding, DisplayError, parsed

DRAWS = 150  # sizes on which a formula is compared
TRIES = 6000  # sizes drawn at most to satisfy a condition
FEWEST = 20  # sizes that must satisfy it
DIFFERENT = 4  # different sizes among them
LARGEST = (4, 12, 40, 40, 200, 100_000)  # one of these bounds the sizes of a draw

Scope = dict[str, Any]  # a value for each name


class Sizes:
    """The sizes for one binding line.

    Attributes:
        names: the names for which a size is drawn: those of the formulas, and those of the line that are
            neither after `with` nor of the library.
    """

    def __init__(self, binding: Binding, expressions: Sequence[str], formulas: Sequence[Formula]) -> None:
        self._binding = binding
        self._conditions = [ast.unparse(part) for part in _between_and(binding.where)]
        texts = [*expressions, *self._conditions, *binding.names.values()]
        shown: set[str] = set().union(*(formula.names for formula in formulas))
        used: set[str] = set().union(*map(declared_numbers.used_names, texts))
        free = (used | shown) - set(binding.names)
        if unused := set(binding.names) - used - shown:
            have = ", ".join(sorted(shown))
            raise DisplayError(f"with {', '.join(unused)}: not used; the names of the formula are {have}")
        known = {name for name in free - shown if _is_known(name, texts)}
        self._library = {name: declared_numbers.look_up(name) for name in known}
        self.names = sorted(free - known)

    def drawn(self) -> Iterator[Scope]:
        """Yield sizes and the values after `with`, whether or not the condition holds."""
        rng = random.Random(1)
        for _ in range(TRIES):
            largest = rng.choice(LARGEST)
            scope: Scope = {name: _draw(rng, largest) for name in self.names}
            for name, expression in self._binding.names.items():
                scope[name] = self.value(expression, scope)
            yield scope

    def fitting(self) -> Iterator[Scope]:
        """Yield the sizes for which the condition holds, each once. Raises DisplayError if few are drawn."""
        seen: set[tuple[int, ...]] = set()
        count = 0
        for scope in self.drawn():
            if all(self.value(part, scope) for part in self._conditions):
                sizes = tuple(scope[name] for name in self.names)
                if sizes not in seen:
                    yield scope
                seen.add(sizes)
                count += 1
                if count == DRAWS:
                    return
        if count < FEWEST or (self.names and len(seen) < DIFFERENT):
            raise DisplayError(
                f"where {self._binding.where} holds for {count} of {TRIES} sizes drawn, {len(seen)} of them "
                "different: write a wider condition, or define a size after with"
            )

    def value(self, expression: str, scope: Scope) -> Any:
        """Return the value of a Python expression. Raises DisplayError if it raises an error."""
        try:
            return eval(_compiled(expression), {**self._library, **scope})
        except Exception as error:
            raise DisplayError(
                f"{expression} raises {type(error).__name__} for {self.text(scope)}: {error}. If the formula "
                "does not hold there, exclude it after where"
            ) from None

    def text(self, scope: Scope) -> str:
        """Return the sizes as text, such as ``N = 3, d = 1``."""
        values = {name: scope[name] for name in (*self.names, *self._binding.names) if name in scope}
        numbers = [f"{name} = {value}" for name, value in values.items() if not callable(value)]
        return ", ".join(numbers) or "every size"

    def refuse_other_condition(self, text: str, names: Set[str], holds: Callable[[Scope], bool]) -> None:
        """Raise DisplayError unless a part of `where` has these names and holds for the same sizes."""
        scopes = list(self.drawn())  # all of them, so that some have the size at the limit of the condition
        shown = [holds(scope) for scope in scopes]
        same_names = [part for part in self._conditions if declared_numbers.used_names(part) == names]
        if shown not in ([bool(self.value(part, scope)) for scope in scopes] for part in same_names):
            raise DisplayError(f"the display has the condition {text}: write it after where, joined by and")


def calls_the_library(expression: str) -> bool:
    """Return True if an expression calls a function of iocourse that is more than arithmetic."""
    calls = (node for node in ast.walk(parsed(expression)) if isinstance(node, ast.Call))
    return any(_is_of_iocourse(_root(call.func)) and not _is_arithmetic(call.func) for call in calls)


def _draw(rng: random.Random, largest: int) -> int:
    """Return 1, or a size up to `largest`: small ones are as likely as large ones in two of five cases."""
    power = int(largest ** rng.random())
    return rng.choice((1, power, power, rng.randint(1, largest), rng.randint(1, largest)))


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<binding>", "eval")


def _between_and(where: str) -> list[ast.expr]:
    """Return the parts of a condition that `and` joins."""
    if not where:
        return []
    body = parsed(where).body
    return body.values if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And) else [body]


def _is_known(name: str, texts: Sequence[str]) -> bool:
    """Return True for a name of the library or of Python. Raises DeclarationError if another is called."""
    try:
        declared_numbers.look_up(name)
    except DeclarationError:
        nodes = (node for text in texts for node in ast.walk(parsed(text)))
        if any(_root(node) == name for node in nodes if isinstance(node, ast.Attribute | ast.Call)):
            raise
        return False
    return True


def _root(node: ast.AST) -> str:
    """Return the first name of ``a.b(c).d``; empty if it starts with something else."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _is_of_iocourse(name: str) -> bool:
    try:
        value = declared_numbers.look_up(name) if name else None
    except DeclarationError:
        return False
    return str(getattr(value, "__module__", None) or getattr(value, "__name__", "")).startswith("iocourse")


def _is_arithmetic(function: ast.expr) -> bool:
    """Return True for `costs.ceil_div`, with which a formula could be typed again."""
    return isinstance(function, ast.Attribute) and function.attr == "ceil_div"
