r"""Read the lines below a display that bind its formulas to expressions of the library.

The lines are in neither notebook:

    $$ W_3 = 2Nd + 2Nd\left\lceil \frac{N}{B_r} \right\rceil, \qquad
       \text{footprint } B_r(2d + 2 + B_c) + B_c d . \tag{4.3} $$
    <!-- (4.3) W_3 = costs.flash_optimal(N, d, Br=Br, Bc=Bc).total -->
    <!-- (4.3) footprint = costs.flash_optimal(N, d, Br=Br, Bc=Bc).peak where Br <= N and Bc <= N -->

A line has, in this order:

* the tag in brackets, or (above) for the display above it if that has no tag, or a formula within a
  sentence above it, as it stands there: ``($4Nd + N$) = …``;
* the left side as displayed, with or without its LaTeX (``W_{\mathrm{B1}}`` or WB1), or the word that names
  the formula, such as footprint. It is missing if the formula has none. An expression of the library in
  its place is compared with the left side: ``(4.4) costs.flash_optimal(N, d, Br=Br, Bc=Bc).peak <= M``;
* the sign of the display: =, >=, <=, <, >, or ~ for ``\approx`` and ``\to``;
* the expression, in the names of `declared_numbers`. The other names are sizes: those of the formula as
  `latex` writes them, and more if the expression needs more. Sizes are positive integers (`display_sizes`).
  A negative right side of >= counts as 0, which is the bound that the library then gives;
* ``rounded down`` or ``rounded up`` if the library rounds the formula;
* ``within 0.01``, the largest relative difference; without it, both must be equal;
* ``with k = math.ceil(N / Br), F = lambda R: bounds.products_per_segment(R, d)`` for names that are not
  drawn;
* ``where M >= d**2 and Br <= N`` for the sizes to which the formula applies. A condition in the display
  must be one of the parts joined by ``and``.

A left side with several right sides takes one line for all of them, if they are equal, or one for each, in
their order. A formula that cannot be compared is listed with one of the `REASONS`, alone or with its
display:

    <!-- (1.3) not evaluated: entries of arrays -->
    <!-- (7.2) W_4 ~ not evaluated: order of growth -->
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tools.build.percent_format import Cell, is_declaration
from tools.build.rules import declared_numbers
from tools.build.rules.declared_numbers import DeclarationError

REASONS = {
    "entries of arrays": "products of matrices, and values of softmax: exercises and tests compute them",
    "derivative": "a derivative, or a rule for one",
    "sum over a set": "a sum, maximum or product over a set that no integer range gives",
    "definition": "it defines a symbol or a class, and no function of the library computes it",
    "step of a proof": "an inequality or equation between other formulas of the lesson",
    "order of growth": "constants or lower terms are left out",
}
_MARK = re.compile(r"\s*<!--\s*\((?:\d|above\b|\$)")
_LINE = re.compile(r"<!-- \((?P<tag>\d+\.\d+|above|\$[^$]+\$)\) (?P<text>\S.*?) -->")
_BINDING = re.compile(
    r"(?:(?:(?P<left>\S.*?) )??(?P<sign>=|>=|<=|<|>|~) )?"
    r"(?:not evaluated: (?P<reason>.+)|(?P<right>.+?)(?P<rounded> rounded (?:down|up))?"
    r"(?: within (?P<within>\S+))?(?: with (?P<names>.+?))?(?: where (?P<where>.+))?)"
)
_DISPLAY = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)
_TAG = re.compile(r"\\tag\{([^}]*)\}")


class DisplayError(ValueError):
    """A display or its binding line has a fault."""


@dataclass(frozen=True)
class Display:
    """A formula between two ``$$``, or one within a sentence that a line binds.

    Attributes:
        tag: its number, such as 4.3; empty if it has none; the formula between ``$`` if it is in a sentence.
        latex: its text without the tag.
        line: the line of the source on which it starts.
    """

    tag: str
    latex: str
    line: int


@dataclass(frozen=True)
class Binding:
    """The parts of a binding line, or of a line that lists a formula with a reason."""

    line: int
    left: str
    sign: str
    reason: str = ""
    right: str = ""
    rounded: str = ""
    within: float = 0.0
    names: Mapping[str, str] = field(default_factory=dict)
    where: str = ""


def is_binding(line: str) -> bool:
    """Return True for a binding line, or a line that looks like one."""
    return bool(_MARK.match(line))


def displays_of(cell: Cell) -> Iterator[Display]:
    """Yield the displays of a markdown cell."""
    text = "\n".join("" if is_declaration(line) else line for line in cell.lines)
    for found in _DISPLAY.finditer(text):
        tag = _TAG.search(found[1])
        line = cell.line + 1 + text.count("\n", 0, found.start())
        yield Display(tag[1] if tag else "", _TAG.sub("", found[1]).strip(), line)


def bindings_of(cell: Cell) -> tuple[list[tuple[Display, list[Binding]]], list[tuple[int, str]]]:
    """Return the displays of a markdown cell, with the formulas in sentences that a line binds, each with its
    lines, and (line, message) of faulty lines.
    """
    bound: list[tuple[Display, list[Binding]]] = [(display, []) for display in displays_of(cell)]
    faults = []
    for n, line in enumerate(cell.lines, cell.line + 1):
        if is_binding(line):
            try:
                tag, binding = read_line(line, n)
                if tag.startswith("$") and tag not in [one.tag for one, _ in bound]:
                    bound.append((_in_a_sentence(tag, cell, n), []))
                display = _display_of(tag, [one for one, _ in bound if one.line < n])
            except DisplayError as error:
                faults.append((n, str(error)))
            else:
                next(lines for one, lines in bound if one is display).append(binding)
    return bound, faults


def _display_of(tag: str, above: Sequence[Display]) -> Display:
    """Return the display that a line names. Raises DisplayError if it is not above the line."""
    if tag == "above":
        displays = [one for one in above if not one.tag.startswith("$")]
        if displays and not displays[-1].tag:
            return displays[-1]
        raise DisplayError("(above) needs a display without a tag above this line in its cell: write a tag")
    for one in above:
        if one.tag == tag:
            return one
    have = ", ".join(one.tag for one in above if one.tag) or "none"
    raise DisplayError(f"no display above this line in its cell has the tag {tag}; the tags there are {have}")


def _in_a_sentence(formula: str, cell: Cell, n: int) -> Display:
    """Return a formula between ``$``. Raises DisplayError if it does not stand above line `n` in its cell."""
    for at, line in enumerate(cell.lines, cell.line + 1):
        if at < n and formula in line and not is_declaration(line):
            return Display(formula, formula.strip("$"), at)
    raise DisplayError(f"the formula {formula} does not stand above this line in its cell: write it as there")


def read_line(line: str, n: int) -> tuple[str, Binding]:
    """Return the tag and the binding of line `n`. Raises DisplayError if the line has another form."""
    outer = _LINE.fullmatch(line)
    found = _BINDING.fullmatch(outer["text"]) if outer else None
    if not outer or not found or not (found["sign"] or found["reason"]):
        raise DisplayError(
            f"{line.strip()} cannot be read: write <!-- (4.3) W = expression where condition --> or "
            "<!-- (4.3) not evaluated: reason -->, on a separate line"
        )
    part = {name: text or "" for name, text in found.groupdict().items()}
    if part["reason"] and part["reason"] not in REASONS:
        raise DisplayError(f"unknown reason {part['reason']!r}; expected {', '.join(REASONS)}")
    for text in filter(None, (part["right"], part["where"])):
        parsed(text)
    return outer["tag"], Binding(
        n,
        part["left"],
        part["sign"],
        reason=part["reason"],
        right=part["right"],
        rounded=part["rounded"].strip(),
        within=_number(part["within"] or "0"),
        names=_names(part["names"]),
        where=part["where"],
    )


def parsed(expression: str) -> ast.Expression:
    """Return the syntax tree of an expression. Raises DisplayError if it is not valid Python."""
    try:
        return declared_numbers.parse(expression)
    except DeclarationError as error:
        raise DisplayError(str(error)) from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DisplayError(
            f"within {text} is not a number: write the relative difference, as in within 0.01"
        ) from None


def _names(text: str) -> dict[str, str]:
    """Return the expressions after `with`, by name."""
    call = parsed(f"dict({text})").body
    if not isinstance(call, ast.Call) or call.args or not all(one.arg for one in call.keywords):
        raise DisplayError(f"with {text} cannot be read: write name = expression, separated by commas")
    return {str(one.arg): ast.unparse(one.value) for one in call.keywords}
