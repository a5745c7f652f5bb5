r"""Read arithmetic in LaTeX as a Python expression, and evaluate it with exact fractions.

``read(r"2Nd\left\lceil \frac N{B_r} \right\rceil")`` gives a formula with the Python ``2*N*d*ceil(over(N,
Br))``. The reader knows sums, products, powers, ``/``, ``\frac``, ``\sqrt``, ``\binom``, ``!``, ceilings,
floors, ``\min``, ``\max``, logarithms, ``\sum_{k=a}^{b}``, and ``\underbrace``, whose label it skips. It
refuses a ``/`` before a product, because LaTeX does not show what the ``/`` divides.

A name is a letter with its subscript and primes, or a word in ``\mathrm`` or ``\text``. In Python it has
the letters and digits alone: ``B_r`` is Br, ``B_{r1}`` Br1, ``H_{kv}`` Hkv, ``W_{\mathrm{B1}}`` WB1, ``N'``
Nprime, ``\ell`` ell, ``\lambda`` lambda\_, and ``\text{multiply-adds}`` multiply_adds.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile
from types import CodeType
from typing import Any

Number = Fraction | float

_GREEK = (
    "alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|phi|psi|omega"
    "|Phi|Psi|Sigma|Delta|Theta|Omega|ell"
)
_WORD = r"\\(?:text|mathrm|mathit|texttt|operatorname)\{[^{}]*\}"
_BRACED = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_SUBSCRIPT = rf"_\s*(?:{_BRACED}|{_WORD}|\\[A-Za-z]+|[A-Za-z0-9])"
_NAME = rf"(?:\\(?:{_GREEK})(?![A-Za-z])|{_WORD}|[A-Za-z])'*(?:{_SUBSCRIPT})?'*"
_TOKEN = re.compile(rf"{_NAME}|\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S")
_INVISIBLE = re.compile(
    r"(?<!\\)\\[,;!: ]|~|\\(?:displaystyle|left|right|(?:big|Big|bigg|Bigg)[lr]?)(?![A-Za-z])"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|\\,)(?=\d{3}(?!\d))")
_OPENING = ("(", "[", "{", r"\{", r"\lceil", r"\lfloor", r"\cases")
_CLOSING = (")", "]", "}", r"\}", r"\rceil", r"\rfloor", r"\endcases")


class Unreadable(ValueError):
    """The LaTeX has a token that cannot be read at its place; the message names it."""


@dataclass(frozen=True)
class Formula:
    """An expression that was read.

    Attributes:
        python: the same expression in Python.
        names: its names, also those of functions, as Python names.
    """

    python: str
    names: frozenset[str]
    code: CodeType

    def value(self, scope: Mapping[str, Any]) -> Number:
        """Return the value, exact unless a root, a logarithm or a float enters; `scope` gives each name."""
        value: Number = eval(self.code, {**_FUNCTIONS, **scope})
        return value


def tokens_of(text: str) -> list[str]:
    r"""Return the tokens of LaTeX without spaces; ``\quad`` and ``\qquad``, which separate formulas, stay."""
    text = _THOUSANDS.sub("", text)
    text = re.sub(r"\\[dt]frac(?![A-Za-z])", r"\\frac", text)
    return _TOKEN.findall(_INVISIBLE.sub(" ", text))


def text_of(tokens: Sequence[str]) -> str:
    """Return the tokens as LaTeX in one line."""
    text = ""
    for token in tokens:
        operator = token in ("+", "-", "=", r"\cdot", r"\le", r"\ge")
        apart = re.search(r"\\[A-Za-z]+$", text) and token[0].isalnum()
        text += f" {token} " if operator else f" {token}" if apart else token
    return text.strip()


def depths(tokens: Sequence[str]) -> list[int]:
    """Return for each token in how many brackets it stands; a bracket counts as outside of itself."""
    found, depth = [], 0
    for token in tokens:
        depth -= token in _CLOSING
        found.append(depth)
        depth += token in _OPENING
    return found


def python_name(token: str) -> str:
    r"""Return the Python name of a name in LaTeX: ``B_{r1}'`` is Br1prime."""
    word = re.sub(r"\\(?:text|mathrm|mathit|texttt|operatorname)\{([^{}]*)\}", _plain_word, token)
    name = re.sub(r"[^A-Za-z0-9_]", "", word.replace("'", "prime").replace("_", "").replace("\0", "_"))
    return f"{name}_" if keyword.iskeyword(name) else name


def _plain_word(found: re.Match[str]) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "\0", found[1].strip())


def read(latex: str | Sequence[str], functions: Collection[str] = ()) -> Formula:
    """Return the formula that LaTeX, or a list of its tokens, shows.

    Args:
        latex: the text of one expression.
        functions: names of functions; a bracket after another name is a factor.

    Raises:
        Unreadable: a token cannot be read at its place.
    """
    tokens = tokens_of(latex) if isinstance(latex, str) else list(latex)
    reader = _Reader(tokens, functions)
    python = reader.sum()
    if reader.left:
        raise Unreadable(f"{reader.left[0]!r} cannot be read{reader.place()}")
    return Formula(python, frozenset(reader.names), compile(python, "<display>", "eval"))


class _Reader:
    """Recursive descent over the tokens; each method takes the tokens of its part and returns Python."""

    def __init__(self, tokens: Sequence[str], functions: Collection[str]) -> None:
        self.left = list(tokens)
        self.done: list[str] = []
        self.functions = functions
        self.names: set[str] = set()

    def place(self) -> str:
        return f" after {' '.join(self.done[-4:])}" if self.done else " at the beginning"

    def peek(self) -> str:
        return self.left[0] if self.left else ""

    def take(self, wanted: str = "") -> str:
        """Return the next token. Raises Unreadable if there is none, or if it is not the one wanted."""
        token = self.peek()
        if not token or (wanted and token != wanted):
            found = repr(token) if token else "the end"
            raise Unreadable(
                f"{found} cannot be read{self.place()}" + (f"; expected {wanted}" if wanted else "")
            )
        self.done.append(self.left.pop(0))
        return token

    # ---- sums, products, powers ----------------------------------------------------------------------------
    def sum(self) -> str:
        sign = self.take() if self.peek() in ("-", "+") else ""
        python = sign.replace("+", "") + self.product()
        while self.peek() in ("+", "-"):
            python += f" {self.take()} {self.product()}"
        return python

    def product(self) -> str:
        python = self.power()
        while True:
            token = self.peek()
            if token in (r"\cdot", r"\times"):
                self.take()
                python += f"*{self.power()}"
            elif token == "/":
                self.take()
                python = f"over({python}, {self.power()})"
                if self.starts_a_factor():
                    raise Unreadable(f"{self.peek()!r} after a / can be read in two ways; write \\frac")
            elif self.starts_a_factor():
                python += f"*{self.power()}"
            else:
                return python

    def starts_a_factor(self) -> bool:
        token = self.peek()
        return token in _ATOMS or bool(re.match(rf"\d|{_NAME}", token))

    def power(self) -> str:
        python = self.atom()
        while self.peek() == "!":
            self.take()
            python = f"factorial({python})"
        if self.peek() == "^":
            self.take()
            exponent = self.argument()
            python = f"{python}**{exponent}" if exponent.isdigit() else f"power({python}, {exponent})"
        return python

    # ---- atoms ---------------------------------------------------------------------------------------------
    def atom(self) -> str:
        token = self.peek()
        if token in _ATOMS:
            self.take()
            return _ATOMS[token](self)
        return self.number_or_name(self.take())

    def number_or_name(self, token: str) -> str:
        if re.fullmatch(r"\d+", token):
            return token
        if re.fullmatch(r"\d+\.\d+", token):
            return f"Fraction({token!r})"
        if not re.fullmatch(_NAME, token):
            self.done.pop()
            raise Unreadable(f"{token!r} cannot be read{self.place()}")
        name = python_name(token)
        self.names.add(name)
        if name in self.functions:
            self.take("(")
            return f"{name}({', '.join(self.list_to(')'))})"
        return name

    def argument(self) -> str:
        r"""Read what follows ``^`` or ``\frac``: a group, or one token, of a number its first digit."""
        if self.peek() == "{":
            self.take()
            return self.closed("}")
        if re.fullmatch(r"\d{2,}", self.peek()):
            self.left[0:1] = [self.peek()[0], self.peek()[1:]]
        return self.atom()

    def closed(self, closing: str) -> str:
        python = self.sum()
        self.take(closing)
        return python

    def list_to(self, closing: str) -> list[str]:
        items = [self.sum()]
        while self.peek() == ",":
            self.take()
            items.append(self.sum())
        self.take(closing)
        return items

    def bracket(self, closing: str) -> str:
        return f"({self.closed(closing)})"

    def fraction(self) -> str:
        return f"over({self.argument()}, {self.argument()})"

    def binomial(self) -> str:
        return f"binomial({self.argument()}, {self.argument()})"

    def root(self) -> str:
        return f"sqrt({self.argument()})"

    def rounded(self, function: str, closing: str) -> str:
        return f"{function}({self.closed(closing)})"

    def extreme(self, function: str) -> str:
        closing = {"(": ")", r"\{": r"\}"}.get(self.peek())
        if closing is None:
            raise Unreadable(f"{self.peek()!r} cannot be read{self.place()}; expected ( or \\{{")
        self.take()
        return f"{function}({', '.join(self.list_to(closing))})"

    def logarithm(self) -> str:
        base = ""
        if self.peek() == "_":
            self.take()
            base = f", {self.argument()}"
        python = f"log({self.power()}{base})"
        if self.starts_a_factor():
            raise Unreadable(f"{self.peek()!r} after a logarithm can be read in two ways; write brackets")
        return python

    def range_sum(self) -> str:
        r"""Read ``\sum_{k=a}^{b}`` and the product that follows it."""
        self.take("_")
        self.take("{")
        index = python_name(self.take())
        self.take("=")
        first = self.closed("}")
        self.take("^")
        last = self.argument()
        known = set(self.names)
        body = self.product()
        self.names -= {index} - known
        return f"total({body} for {index} in between({first}, {last}))"

    def underbrace(self) -> str:
        self.take("{")
        python = self.bracket("}")
        if self.peek() == "_":
            self.take()
            label = list(
                takewhile(lambda one: one[1] or one[0] != "}", zip(self.left, depths(self.left), strict=True))
            )
            for _ in range(len(label) + 1):
                self.take()
        return python


_ATOMS: dict[str, Callable[[_Reader], str]] = {
    "(": lambda r: r.bracket(")"),
    "{": lambda r: r.bracket("}"),
    r"\frac": _Reader.fraction,
    r"\binom": _Reader.binomial,
    r"\sqrt": _Reader.root,
    r"\lceil": lambda r: r.rounded("ceil", r"\rceil"),
    r"\lfloor": lambda r: r.rounded("floor", r"\rfloor"),
    r"\min": lambda r: r.extreme("min"),
    r"\max": lambda r: r.extreme("max"),
    r"\log": _Reader.logarithm,
    r"\ln": _Reader.logarithm,
    r"\sum": _Reader.range_sum,
    r"\underbrace": _Reader.underbrace,
}


# ---- functions of the Python expressions -------------------------------------------------------------------
_ROOT_BITS = 200  # binary digits of a root after the point
_ROOT_ERROR = Fraction(1, 2**100)  # larger than the error of a formula with roots
_LARGEST_EXPONENT = 10_000


def floor(x: Number) -> int:
    """Return the largest integer that is at most x, where the error of a root does not count."""
    return math.floor(x + (_ROOT_ERROR if isinstance(x, Fraction) else abs(x) * 1e-14))


def equal(x: Number, y: Number) -> bool:
    """Return True if two values are equal up to the error of roots, or up to rounding errors of a float."""
    if isinstance(x, float) or isinstance(y, float):
        return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9)
    return abs(x - y) <= _ROOT_ERROR


def _ceil(x: Number) -> int:
    return -floor(-x)


def _over(x: Number, y: Number) -> Number:
    return x / y if isinstance(x, float) or isinstance(y, float) else Fraction(x) / Fraction(y)


def _sqrt(x: Number) -> Number:
    """Return the root as a fraction, exact for the square of a fraction."""
    if isinstance(x, float):
        return math.sqrt(x)
    numerator, denominator = Fraction(x).as_integer_ratio()
    root = math.isqrt(numerator * denominator * 4**_ROOT_BITS)
    return Fraction(root, denominator * 2**_ROOT_BITS)


def _power(x: Number, y: Number) -> Number:
    if isinstance(x, float) or isinstance(y, float) or 2 * y != int(2 * y):
        return math.pow(x, y)
    if y > _LARGEST_EXPONENT:
        raise OverflowError(f"the exponent {int(y):,} is too large")
    return Fraction(x) ** int(y) if y == int(y) else Fraction(_sqrt(x)) ** int(2 * y)


_FUNCTIONS: dict[str, Any] = {
    "Fraction": Fraction,
    "ceil": _ceil,
    "floor": floor,
    "over": _over,
    "sqrt": _sqrt,
    "power": _power,
    "log": math.log,
    "binomial": lambda n, k: math.comb(int(n), int(k)),
    "factorial": lambda n: math.factorial(int(n)),
    "min": min,
    "max": max,
    "total": sum,
    "between": lambda first, last: range(int(first), int(last) + 1),
}
