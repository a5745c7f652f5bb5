"""Edit one token of a display, as a slip of the pen would, and see whether the check finds it.

`python -m tests.display_edits` tries every edit of every display with a tag and prints how many are found, by
lesson.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tools.build.percent_format import parse
from tools.build.rules.display_bindings import Binding, Display, bindings_of
from tools.build.rules.displays import faults_of, matched

ROOT = Path(__file__).parents[1]
_FIXED = r"\}_\{(?:[^{}]|\{[^{}]*\})*\}|\\(?:text|texttt|begin|end)\{[^{}]*\}"  # labels of braces, words
_SUBSCRIPT = r"_(?:\{(?:[^{}]|\{[^{}]*\})*\}|[A-Za-z0-9])"
_GREEK = r"\\(?:alpha|beta|gamma|eta|sigma|tau|rho|lambda|ell)(?![A-Za-z])"
_NAME = rf"(?:\\mathrm\{{[^{{}}]*\}}|{_GREEK}|[A-Za-z])'*(?:{_SUBSCRIPT})?'*"
_TOKEN = re.compile(rf"{_FIXED}|{_NAME}|\\[A-Za-z]+|\\.|\d|\s+|.")
_PAIRS = {"+": "-", "-": "+", r"\lceil": r"\lfloor", r"\lfloor": r"\lceil"}
_CLOSING = {r"\lceil": r"\rceil", r"\lfloor": r"\rfloor"}


def edits(latex: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, edited text) for each edit of one token of a display.

    A digit becomes the next one, + becomes -, a ceiling becomes a floor, a name becomes another name of the
    display, and a name with its exponent is dropped.
    """
    tokens = _TOKEN.findall(latex)
    names = sorted({token for token in tokens if re.fullmatch(_NAME, token)})
    for n, token in enumerate(tokens):
        before, after = tokens[:n], tokens[n + 1 :]
        if token.isdigit():
            kind = "exponent" if before[-1:] == ["^"] else "digit"
            yield kind, "".join([*before, str((int(token) + 1) % 10), *after])
        elif token in ("+", "-"):
            yield "sign", "".join([*before, _PAIRS[token], *after])
        elif token in _CLOSING:
            yield "rounding", "".join([*before, _PAIRS[token], *_closed(token, after)])
        elif re.fullmatch(_NAME, token):
            yield from (("name", "".join([*before, other, *after])) for other in names if other != token)
            yield "dropped", "".join([*before, *_without_exponent(after)])


def _closed(opening: str, after: Sequence[str]) -> list[str]:
    """Return the tokens after a ceiling or floor, with the other closing bracket."""
    depth, tokens = 1, list(after)
    for n, token in enumerate(tokens):
        depth += (token == opening) - (token == _CLOSING[opening])
        if depth == 0:
            tokens[n] = _CLOSING[_PAIRS[opening]]
            return tokens
    raise ValueError(f"{opening} is not closed")


def _without_exponent(after: Sequence[str]) -> Sequence[str]:
    return after[2:] if after[:1] == ["^"] and after[1:2] != ["{"] else after


def displays_of_lesson(path: Path) -> Iterator[tuple[Display, list[Binding]]]:
    """Yield the displays of a lesson that have a tag or a line, each with its lines."""
    for cell in parse(path.read_text(encoding="utf-8"), path):
        if cell.kind == "markdown":
            yield from (pair for pair in bindings_of(cell)[0] if pair[0].tag or pair[1])


def is_bound(lines: Sequence[Binding]) -> bool:
    """Return True if at least one formula of the display is compared with the library."""
    return any(one.right for one in lines)


def changes_a_bound_formula(display: Display, edited: str, lines: Sequence[Binding]) -> bool:
    """Return True unless the edit changes only formulas that are listed with a reason."""
    old, new = (matched(one, lines)[0] for one in (display, replace(display, latex=edited)))
    if len(old) != len(new):
        return True
    pairs = zip(old, new, strict=True)
    return any(line is not None and not line.reason for (one, line), (other, _) in pairs if one != other)


def is_found(display: Display, edited: str, lines: Sequence[Binding]) -> bool:
    """Return True if the check refuses the edited display."""
    return bool(faults_of(replace(display, latex=edited), lines))


def report() -> Iterator[str]:
    """Yield a line for each lesson with a tagged display, and one for all."""
    totals = Counter[str]()
    for path in sorted((ROOT / "solutions").glob("*.py")):
        counts = Counter[str]()
        for display, lines in displays_of_lesson(path):
            if display.tag:
                tried = [edited for _, edited in edits(display.latex)]
                found = [edited for edited in tried if is_bound(lines) and is_found(display, edited, lines)]
                counts += Counter(displays=1, bound=is_bound(lines), edits=len(tried), found=len(found))
        totals += counts
        yield _line(path.stem, counts)
    yield _line("all", totals)


def _line(name: str, counts: Counter[str]) -> str:
    share = counts["found"] / max(1, counts["edits"])
    numbers = f"{counts['displays']:4} displays, {counts['bound']:4} bound"
    return f"{name:28} {numbers}, {counts['found']:5} of {counts['edits']:5} edits found ({share:.0%})"


if __name__ == "__main__":
    print(*report(), sep="\n")
