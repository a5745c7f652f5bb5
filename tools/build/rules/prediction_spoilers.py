"""Check that the answer of a prediction is not visible in the text below it.

Each cell tagged `predict` follows a text with ``**Predict** (guess)`` or ``**Predict** (compute)``. A call of
`measured` prints the answer. The first markdown below this call explains it and is folded: it begins with
``<details><summary>…</summary>``. The open text in the rest of the section must not contain an answer of two
digits or more, unless the text above the prediction already contains this number.
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
    """Return ``file:line: message`` for each prediction that is malformed or whose answer is visible.

    Args:
        cells: the source.
        solved: its solved notebook with outputs.
        path: name of the source in messages.
        labels: labels, such as 4.1, that do not count as numbers.
    """
    found = [*_unbalanced(cells)]
    cells = [part for cell in cells for part in _at_headings(cell)]
    told = [list(numerals([_open_text(cell)], labels)) for cell in cells]
    for n, cell in enumerate(cells):
        if "predict" in cell.tags:
            found += _spoiled(cells, n, solved, told)
    return [f"{path}:{line}: {message}" for line, message in found]


def _open_text(cell: Cell) -> str:
    """Return the text of a markdown cell without its folded parts; "" for a code cell."""
    return _FOLDED.sub("", "\n".join(side(cell, solved=False))) if cell.kind == "markdown" else ""


def _unbalanced(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    for cell in cells:
        text = "\n".join(cell.lines)
        if cell.kind == "markdown" and text.count("<details>") != text.count("</details>"):
            yield cell.line, "<details> and its </details> must be in the same cell"


def _spoiled(
    cells: Sequence[Cell], n: int, solved: dict[str, Any], told: Sequence[Sequence[Numeral]]
) -> Iterator[tuple[int, str]]:
    """Yield the faults of the prediction in cell `n`; `told` has the numbers in each cell's open text."""
    line = cells[n].line
    question = _QUESTION.search("\n".join(cells[n].lines))
    if question is None:
        yield line, 'a cell tagged predict must call predict("…", …)'
        return
    above = next((c for c in reversed(cells[:n]) if c.kind == "markdown"), None)
    kinds = KIND.findall("\n".join(above.lines)) if above else []
    if len(kinds) != 1 or kinds[0] not in PREDICTION:
        yield line, f'prediction {question[1]}: the text above it has no "**Predict** (guess)" or "(compute)"'
    below = list(takewhile(lambda c: not _opens_section(c), cells[n + 1 :]))
    reading = _first_text_after(f'measured("{question[1]}"', below)
    if reading is not None and not "\n".join(reading.lines).startswith(FOLD):
        yield reading.line, f"prediction {question[1]}: the text that explains it must begin with {FOLD}"
    known = [one for numbers in told[: n + 1] for one in numbers]
    answers = _answers(cells[n], question[1], solved)
    for cell, numbers in zip(below, told[n + 1 :], strict=False):
        for one in numbers:
            single = not one.others and len(re.findall(r"\d", one.text)) > 1
            asked_for = single and any(map(one.rounds, answers))
            if asked_for and not any(one.same(other) for other in known):
                yield (
                    cell.line,
                    f"prediction {question[1]}: {one.text} appears in open text below it: fold it",
                )


def _at_headings(cell: Cell) -> Iterator[Cell]:
    """Yield the parts of a markdown cell, split before each section heading."""
    starts = [n for n, line in enumerate(cell.lines) if cell.kind == "markdown" and line.startswith("## ")]
    for a, b in pairwise([0, *(n for n in starts if n), len(cell.lines)]):
        yield replace(cell, lines=cell.lines[a:b], line=cell.line + a)


def _opens_section(cell: Cell) -> bool:
    return cell.kind == "markdown" and cell.lines[:1] != () and cell.lines[0].startswith("## ")


def _first_text_after(call: str, cells: Sequence[Cell]) -> Cell | None:
    at = next((n for n, c in enumerate(cells) if c.kind == "code" and call in "\n".join(c.lines)), None)
    return None if at is None else next((c for c in cells[at:] if c.kind == "markdown"), None)


def _answers(cell: Cell, question: str, solved: dict[str, Any]) -> list[Decimal]:
    """Return the answers of a prediction: the numbers that the solved notebook predicts and measures."""
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
