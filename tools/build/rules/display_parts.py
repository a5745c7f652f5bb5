r"""Split a display into the statements that it makes: a left side, a sign and a right side.

``W = a + b \approx c, \qquad \text{footprint } f`` makes three: ``W = a + b``, ``W ~ c`` and ``footprint =
f``. Formulas are separated by ``\qquad``, ``\quad``, a comma, or words in ``\text``. Words before a formula
without a left side name it, as "footprint" does; other words are for the reader. A formula after "or" is
one more right side of the statement before it, and so is each line of ``cases``. A relation in brackets, or
after "where", "if", "when", "for", "for every" or "for all", is a condition of the statement before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tools.build.latex import depths, tokens_of

SIGNS = {
    "=": "=", r"\ge": ">=", r"\geq": ">=", r"\le": "<=", r"\leq": "<=", "<": "<", ">": ">",
    r"\approx": "~", r"\to": "~",
}  # fmt: skip
_SEPARATORS = (r"\qquad", r"\quad", ",", r"\\", "&")
_OPERATORS = (*SIGNS, "+", "-", "/", r"\cdot", r"\times", "^")
_CONDITION = re.compile(r"(?:where|if|when|for every|for all)\b|for$")
Tokens = Sequence[str]


@dataclass(frozen=True)
class Condition:
    """A relation under which a statement of the display holds."""

    left: Tokens
    sign: str
    right: Tokens


@dataclass
class Statement:
    """One relation of a display.

    Attributes:
        name: the left side without typesetting, as `name_of` writes it; empty if there is none.
        sign: a value of `SIGNS`.
        left: the tokens of the left side.
        right: the tokens of the right side.
        conditions: the relations after it that restrict it.
    """

    name: str
    sign: str
    left: Tokens
    right: Tokens
    conditions: list[Condition] = field(default_factory=list)


def name_of(tokens: Tokens) -> str:
    r"""Return tokens without typesetting: ``W_{\mathrm{B1}}``, ``W_B1`` and ``WB1`` have the name WB1."""
    return re.sub(r"\\(?:text|mathrm|mathit|texttt)\b|[\\{}_\s:]", "", "".join(tokens))


def statements_of(latex: str) -> list[Statement]:
    """Return the statements of a display, in its order."""
    latex = re.sub(r"\\(?:begin|end)\{aligned\}", "", latex)
    latex = latex.replace(r"\begin{cases}", r"\cases").replace(r"\end{cases}", r"\endcases")
    latex = re.sub(r"\\\\\[[^\]]*\]", r"\\\\", latex)
    found: list[Statement] = []
    for words, tokens in _segments(tokens_of(latex)):
        if found and words == "or" and tokens:
            found.append(Statement(found[-1].name, found[-1].sign, found[-1].left, tokens))
        elif found and (conditions := _conditions(words, tokens)):
            found[-1].conditions += conditions
        elif tokens and not _CONDITION.match(words):
            found += _relations(words, tokens)
    return found


def _segments(tokens: Tokens) -> Iterator[tuple[str, list[str]]]:
    """Yield (words before it, tokens) of each formula of the display."""
    words, segment = "", list[str]()
    at_depth = depths(tokens)
    for n, token in enumerate(tokens):
        following = tokens[n + 1] if n + 1 < len(tokens) else ""
        if at_depth[n] or not (token in (*_SEPARATORS, ".") or _is_prose(token, segment, following)):
            segment.append(token)
            continue
        if words or segment:
            yield words, segment
        words, segment = "", []
        if token.startswith(r"\text"):
            words = token.removeprefix(r"\text{").removesuffix("}").strip()
    if words or segment:
        yield words, segment


def _is_prose(token: str, before: Tokens, following: str) -> bool:
    r"""Return True for ``\text`` that is not an operand of the formula around it."""
    if not re.match(r"\\text\{", token) or (before and before[-1] in _OPERATORS):
        return False
    return bool(before) or following not in _OPERATORS


def _conditions(words: str, tokens: Tokens) -> list[Condition]:
    """Return the relations of a condition, two for a chain such as ``d < M < N``; empty for another text."""
    in_brackets = tokens[:1] == ["("] and tokens[-1:] == [")"] and any(one in SIGNS for one in tokens)
    inner = tokens[1:-1] if in_brackets and not words else tokens
    if not (_CONDITION.match(words) or (in_brackets and not words)):
        return []
    return [Condition(left, sign, right) for (_, left), (sign, right) in pairwise(_sides(inner))]


def _sides(tokens: Tokens) -> list[tuple[str, list[str]]]:
    """Return (sign before it, tokens) of each side of a chain of relations; the first sign is empty."""
    sides: list[tuple[str, list[str]]] = [("", [])]
    for token, depth in zip(tokens, depths(tokens), strict=True):
        if depth == 0 and token in SIGNS:
            sides.append((SIGNS[token], []))
        else:
            sides[-1][1].append(token)
    return sides


def _relations(words: str, tokens: Tokens) -> Iterator[Statement]:
    """Yield the statements of one chain: in ``W ≥ a = b``, also b is at most W."""
    (_, left), *others = _sides(tokens)
    if not others:
        name = "footprint" if "footprint" in words else name_of([words])
        yield Statement(name, "=", [], left)
    holds = "="
    for sign, right in others:
        holds = sign if sign != "=" else holds
        for side, conditions in _cases(right):
            yield Statement(name_of(left), holds, left, side, conditions)


def _cases(right: list[str]) -> Iterator[tuple[Tokens, list[Condition]]]:
    r"""Yield (tokens, conditions) of a right side, or of each line of it in ``cases``."""
    if right[:1] != [r"\cases"] or right[-1:] != [r"\endcases"]:
        yield right, []
        return
    segments = list(_segments(right[1:-1]))
    for (_, side), (words, tokens) in zip(segments[::2], segments[1::2], strict=False):
        yield side, _conditions(words or "if", tokens)
