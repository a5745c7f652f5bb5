"""Equivalent mutants: changes that are not mistakes, by a rule or by a list with verifiable reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

from tests.mutation.listed import EQUIVALENT, OPEN, Entry
from tests.mutation.mutants import Mutant

Rule = Callable[[Mutant], bool]
RULES: dict[str, Rule] = {}  # by the sentence that gives the reason


def _rule(why: str) -> Callable[[Rule], Rule]:
    def keep(rule: Rule) -> Rule:
        RULES[why] = rule
        return rule

    return keep


@_rule("blocks are disjoint and visited once: their order changes no traffic, and sums only by rounding")
def _order_of_blocks(mutant: Mutant) -> bool:
    turned = "|".join(re.findall(r"^for (\w+) in (?=.*\.blocks\()", mutant.before, re.MULTILINE))
    return mutant.operator == "loops" and bool(turned) and not _asked_for_place(turned, mutant.source)


def _asked_for_place(blocks: str, source: str) -> bool:
    """True if the code reads the position of one of these blocks."""
    return re.search(rf"\b({blocks})\.(first|last|start|stop)\b", source) is not None


@_rule("both arrays have the same shape according to the docstring")
def _equal_shapes(mutant: Mutant) -> bool:
    swapped = _one_other_name(mutant.before, mutant.after, r"\b(\w+)\.shape\b|\b(?:len|empty_like)\((\w+)\)")
    groups = re.findall(r"\w+(?:, \w+)+(?: and \w+)?", _docstring(mutant.source)) if swapped else []
    return any(swapped <= set(re.findall(r"\w+", group)) for group in groups)


@_rule("float32 is the default type of torch")
def _torchs_own_type(mutant: Mutant) -> bool:
    dropped = mutant.before.replace(", dtype=torch.float32", "", 1)
    return mutant.operator == "keywords" and dropped == mutant.after != mutant.before


def _one_other_name(before: str, after: str, pattern: str) -> set[str]:
    """The two names if the texts differ in exactly one match of the pattern; otherwise an empty set."""
    olds, news = list(re.finditer(pattern, before)), list(re.finditer(pattern, after))
    apart = [(a, b) for a, b in zip(olds, news, strict=False) if a[0] != b[0]]
    if len(olds) != len(news) or len(apart) != 1:
        return set()
    a, b = apart[0]
    same = before[: a.start()] == after[: b.start()] and before[a.end() :] == after[b.end() :]
    return {a[1] or a[2], b[1] or b[2]} if same else set()


def _docstring(source: str) -> str:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return " ".join(ast.get_docstring(function) or "" for function in functions)


def why_equivalent(mutant: Mutant) -> str:
    """The reason why this mutant is not a mistake, from a rule or from the list; "" if none is known."""
    return why_by_rule(mutant) or _listed(EQUIVALENT, mutant)


def why_by_rule(mutant: Mutant) -> str:
    """The sentence of the first rule that recognises this mutant as equivalent; "" if no rule does."""
    return next((why for why, rule in RULES.items() if rule(mutant)), "")


def why_open(mutant: Mutant) -> str:
    """The reason why this mistake is accepted so far; "" if it is not listed in OPEN."""
    return _listed(OPEN, mutant)


def _listed(entries: Mapping[str, tuple[Entry, ...]], mutant: Mutant) -> str:
    return next((entry[0] for entry in entries.get(mutant.exercise, ()) if names(entry, mutant)), "")


def names(entry: Entry, mutant: Mutant) -> bool:
    """True if the entry lists this mutant: its original line and its new line."""
    _, before, *afters = entry
    return mutant.line == before and mutant.after in afters


def changes(entries: Mapping[str, tuple[Entry, ...]]) -> Iterator[tuple[str, str, str]]:
    """Yield every listed change: exercise, original line, new line."""
    for exercise, listed in entries.items():
        for _, before, *afters in listed:
            yield from ((exercise, before, after) for after in afters)
