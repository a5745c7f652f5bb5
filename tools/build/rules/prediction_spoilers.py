"""Whether a prediction can be made: nothing that stands open below it tells its answer.

Each cell tagged `predict` follows a text with ``**Predict** (guess)`` or ``**Predict** (compute)``. The text
that reads what `measured` printed is folded: the first markdown below it begins with
``<details><summary>…</summary>``. And no number of two digits or more that was asked for stands in the open
text of the rest of its section, unless it stood in the text above the prediction.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from tools.build.percent_format import Cell, side
from tools.build.rules.lesson_length import KIND, PREDICTION
from tools.build.rules.number_parsing import Numeral, numerals

FOLD = "<details><summary>"
_FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
_QUESTION = re.compile(r'\bpredict\("([^"]+)"')
_MEASURED = re.compile(r"^\w+: (-?[\d.,]+(?:e[+-]?\d+)?) measured, ", re.MULTILINE)


def problems(cells: Sequence[Cell], solved: dict[str, Any], path: Path, labels: Collection[str]) -> list[str]:
    """Every prediction that is spoiled or cannot be read as one, each as ``file:line: what``.

    Args:
        cells: the source.
        solved: its notebook with outputs.
        path: what messages call the source.
        labels: items, such as 4.1, that are no numbers.
    """
    found = [*_unbalanced(cells)]
    cells = [part for cell in cells for part in _at_headings(cell)]
    told = [list(numerals([_open_text(cell)], labels)) for cell in cells]
    for n, cell in enumerate(cells):
        if "predict" in cell.tags:
            found += _spoiled(cells, n, solved, told)
    return [f"{path}:{line}: {message}" for line, message in found]


def _open_text(cell: Cell) -> str:
    """What a reader of a markdown cell sees before unfolding anything; nothing of a cell of code."""
    return _FOLDED.sub("", "\n".join(side(cell, solved=False))) if cell.kind == "markdown" else ""


def _unbalanced(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    for cell in cells:
        text = "\n".join(cell.lines)
        if cell.kind == "markdown" and text.count("<details>") != text.count("</details>"):
            yield cell.line, "a <details> and its </details> stand in one cell"


def _spoiled(
    cells: Sequence[Cell], n: int, solved: dict[str, Any], told: Sequence[Sequence[Numeral]]
) -> Iterator[tuple[int, str]]:
    """What is wrong with the prediction in cell `n`; `told` are the numbers in the open text of each cell."""
    line = cells[n].line
    question = _QUESTION.search("\n".join(cells[n].lines))
    if question is None:
        yield line, 'a cell tagged predict calls predict("…", …)'
        return
    above = next((c for c in reversed(cells[:n]) if c.kind == "markdown"), None)
    kinds = KIND.findall("\n".join(above.lines)) if above else []
    if len(kinds) != 1 or kinds[0] not in PREDICTION:
        yield line, f'prediction {question[1]}: the text above it has no "**Predict** (guess)" or "(compute)"'
    below = list(takewhile(lambda c: not _opens_section(c), cells[n + 1 :]))
    reading = _first_text_after(f'measured("{question[1]}"', below)
    if reading is not None and not "\n".join(reading.lines).startswith(FOLD):
        yield reading.line, f"prediction {question[1]}: the text that reads it must begin with {FOLD}"
    known = [one for numbers in told[: n + 1] for one in numbers]
    answers = _answers(cells[n], question[1], solved)
    for cell, numbers in zip(below, told[n + 1 :], strict=False):
        for one in numbers:
            asked_for = len(re.findall(r"\d", one.text)) > 1 and any(map(one.rounds, answers))
            if asked_for and not any(one.same(other) for other in known):
                yield cell.line, f"prediction {question[1]}: {one.text} stands in open text below it"


def _at_headings(cell: Cell) -> Iterator[Cell]:
    """A markdown cell cut before each heading of a section, so that a section ends where its text does."""
    starts = [n for n, line in enumerate(cell.lines) if cell.kind == "markdown" and line.startswith("## ")]
    for a, b in pairwise([0, *(n for n in starts if n), len(cell.lines)]):
        yield replace(cell, lines=cell.lines[a:b], line=cell.line + a)


def _opens_section(cell: Cell) -> bool:
    return cell.kind == "markdown" and cell.lines[:1] != () and cell.lines[0].startswith("## ")


def _first_text_after(call: str, cells: Sequence[Cell]) -> Cell | None:
    at = next((n for n, c in enumerate(cells) if c.kind == "code" and call in "\n".join(c.lines)), None)
    return None if at is None else next((c for c in cells[at:] if c.kind == "markdown"), None)


def _answers(cell: Cell, question: str, solved: dict[str, Any]) -> list[Decimal]:
    """The numbers asked for: those the solved notebook predicts and those it measured."""
    tree = ast.parse("\n".join(side(cell, solved=True)))
    given = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword)]
    numbers = [ast.literal_eval(value) for value in given if isinstance(value, (ast.Constant, ast.UnaryOp))]
    said = [
        "".join(output.get("text", ""))
        for one in solved["cells"]
        if one["cell_type"] == "code" and f'measured("{question}"' in "".join(one["source"])
        for output in one["outputs"]
    ]
    measured = [text.replace(",", "") for one in said for text in _MEASURED.findall(one)]
    predicted = [str(one) for one in numbers if isinstance(one, (int, float)) and not isinstance(one, bool)]
    return list(map(Decimal, (*predicted, *measured)))
