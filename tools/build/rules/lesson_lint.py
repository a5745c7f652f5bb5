"""Check that the source of a lesson has all required parts, valid headings and no wide code lines."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.build.percent_format import Cell, side

SECTIONS = {
    "what you will learn": r"what you (will )?learn",
    "prerequisites": r"prerequisites?",
    "misconceptions": r"misconceptions?",
    "take-away": r"take-?aways?",
    "references": r"references|further reading",
}
MINUTES = re.compile(r"\b\d+\s*min(utes?)?\b|\bminutes\W+\d+", re.IGNORECASE)
NOTATION = re.compile(r"\]\((\./)?notation\.md(#[\w-]+)?\)")

WIDTH = 96  # characters of a code cell that fit in a browser window of 1280 pixels without scrolling


def problems(cells: Sequence[Cell], path: Path) -> list[str]:
    """Return ``file:line: message`` for each fault of a lesson."""
    found = [*_missing_parts(cells), *_heading_problems(cells), *_wide_code(cells)]
    return [f"{path}:{line}: {message}" for line, message in found]


def _wide_code(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    """Yield (line, message) for each code line of either side that is too wide to read without scrolling."""
    for cell in (cell for cell in cells if cell.kind == "code"):
        for line in sorted({line for solved in (True, False) for line in side(cell, solved=solved)}):
            if len(line) > WIDTH:
                yield (
                    cell.line,
                    f"code line of {len(line)} characters, expected at most {WIDTH}: {line.strip()[:40]}…",
                )


def _markdown(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    for cell in cells:
        if cell.kind == "markdown":
            yield from ((cell.line + n, text) for n, text in enumerate(cell.lines, 1))


def _missing_parts(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    lines = [text for _, text in _markdown(cells)]
    for name, pattern in SECTIONS.items():
        # A heading, or a line (possibly a list item) that starts in bold.
        label = re.compile(rf"^(#+ |[-*]? ?\*\*).*\b({pattern})\b", re.IGNORECASE)
        if not any(label.search(text) for text in lines):
            yield 1, f'no "{name}": add a heading or a line that starts with it in bold'
    if not any(NOTATION.search(text) for text in lines):
        yield 1, "no link to the notation page: add [notation](notation.md)"
    code = [text for cell in cells if cell.kind == "code" for text in cell.lines]
    if not any(re.search(r"(?<!def )\bpredict\(", text) for text in code):
        yield 1, "no predict(…): add a prediction before a measurement"
    if not any("exercise" in cell.tags for cell in cells):
        yield 1, 'no exercise: add a code cell with the tag "exercise"'
    opening = itertools.takewhile(lambda line: not line[1].startswith("## "), _markdown(cells))
    if not any(MINUTES.search(text) for _, text in opening):
        yield 1, "no minutes before the first section: add <!-- minutes -->"


def _heading_problems(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    for line, text in _markdown(cells):
        if not re.match(r"#{1,6} ", text):
            continue
        if "!" in text:
            yield line, f"exclamation mark in the heading {text!r}: remove it"
        if any(_is_emoji(character) for character in text):
            yield line, f"emoji in the heading {text!r}: remove it"


def _is_emoji(character: str) -> bool:
    """Return True for a pictograph, False for mathematical signs such as × and ∂."""
    return ord(character) == 0xFE0F or (unicodedata.category(character) == "So" and ord(character) > 0x2190)
