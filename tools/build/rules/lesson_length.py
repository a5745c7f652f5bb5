"""Compute the length of a lesson (words, formulas, predictions, cells, minutes) and check its limits.

Reading takes one minute for 130 words and a quarter of a minute for a displayed formula; an inline formula
counts as one word. A listing takes one minute for 8 lines, blank lines not counted. Listings are code cells
of more than 50 lines, which is more than one screen, and cells with the tag `listing`, which a student must
read line by line to solve an exercise. Other cells add no minutes, because the text around them explains
what they do. Exercises take the minutes that they state. A prediction takes one minute if it is a guess,
two if it is computed. The build writes the minutes of reading and of exercises at the head of the lesson.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from tools.build.percent_format import Cell, shown, side

WORDS, CELLS, MINUTES, PICTURES = 3500, 60, 90, 1  # limits of a lesson: maxima, and the minimum of figures
FIRST = {"words": 1800, "pictures": 2}  # limits of lesson 00, for readers who have not chosen the course yet
OPENING = 5  # cells, at least one of them with a figure
START = 300  # words before the first prediction or exercise of these lessons:
_STARTS_SOON = re.compile(r"(0\db?|10|11b?|12|13b?|14[bc]?)_")  # add a lesson whose text follows this limit
WORDS_A_MINUTE = 130
FORMULA = 0.25  # minutes
LISTING = 50  # lines of code; a longer cell is read as a listing, and so is one with the tag `listing`
LINES_A_MINUTE = 8
PREDICTION = {"guess": 1, "compute": 2}  # minutes

KIND = re.compile(r"\*\*Predict\*\* \((\w+)\)")
_DISPLAYED, _INLINE = re.compile(r"\$\$.*?\$\$", re.DOTALL), re.compile(r"\$[^$]+\$")
_HIDDEN = re.compile(r"<!--.*?-->|</?\w[^>]*>|\]\([^)\s]*\)", re.DOTALL)  # comments, tags, targets of links
_PICTURE = re.compile(r"!\[[^\]]*\]\(")


@dataclass(frozen=True)
class LessonLength:
    """The length of a student's notebook.

    Attributes:
        words: words of the text, with one for each inline formula.
        formulas: displayed formulas.
        predictions: minutes of the predictions.
        cells: cells, without the folded cell that finds iocourse.
        listings: lines of code in listings.
        start: words before the first prediction or exercise.
    """

    words: int
    formulas: int
    predictions: int
    cells: int
    listings: int = 0
    start: int = 0

    @property
    def reading(self) -> int:
        """Minutes for reading and predicting, rounded up."""
        text = self.words / WORDS_A_MINUTE + FORMULA * self.formulas
        return math.ceil(text + self.listings / LINES_A_MINUTE + self.predictions)


def length_of(cells: Sequence[Cell]) -> LessonLength:
    """Return the length of a source, without the facts of exercises that the build fills in."""
    read = [cell for cell in cells if shown(cell, solved=False)]
    texts = ["\n".join(side(cell, solved=False)) for cell in read if cell.kind == "markdown"]
    predictions = sum(PREDICTION.get(kind, 0) for text in texts for kind in KIND.findall(text))
    formulas = sum(len(_DISPLAYED.findall(text)) for text in texts)
    code = (cell for cell in read if cell.kind == "code" and "exercise" not in cell.tags)
    lines = [(sum(map(bool, side(cell, solved=False))), "listing" in cell.tags) for cell in code]
    listings = sum(number for number, tagged in lines if tagged or number > LISTING)
    before = takewhile(lambda cell: not {"predict", "exercise"} & set(cell.tags), read)
    start = sum(words_of("\n".join(side(cell, solved=False))) for cell in before if cell.kind == "markdown")
    return LessonLength(sum(map(words_of, texts)), formulas, predictions, len(read), listings, start)


def words_of(text: str) -> int:
    """Return the number of words of a Markdown text: 1 for an inline formula, 0 for a displayed one."""
    plain = _HIDDEN.sub(" ", _INLINE.sub(" formula ", _DISPLAYED.sub(" ", text)))
    return sum(any(map(str.isalnum, word)) for word in plain.split())


def problems(length: LessonLength, exercises: int, solved: dict[str, Any], path: Path) -> Iterator[str]:
    """Yield ``file:1: message`` for each limit that a lesson exceeds and for each missing figure.

    Args:
        length: the length of its source.
        exercises: minutes of the exercises that are not optional.
        solved: its solved notebook with outputs.
        path: name of the source in messages.
    """
    first = FIRST if path.name.startswith("00_") else {}
    minutes = length.reading + exercises
    for name, found, most in (
        ("words", length.words, first.get("words", WORDS)),
        ("cells", length.cells, CELLS),
        ("minutes", minutes, MINUTES),
    ):
        if found > most:
            yield f"{path}:1: {found:,} {name}, expected at most {most:,}: move the rest to a part b"
    if _STARTS_SOON.match(path.name) and length.start > START:
        yield f"{path}:1: {length.start} words before the first question, expected at most {START}"
    least = first.get("pictures", PICTURES)
    if (drawn := sum(map(_pictures, solved["cells"]))) < least:
        yield f"{path}:1: {drawn} figures, expected at least {least}"
    if not any(map(_pictures, solved["cells"][:OPENING])):
        yield f"{path}:1: no figure in the first {OPENING} cells: add one"


def _pictures(cell: dict[str, Any]) -> int:
    """Return the number of figures in a cell of a solved notebook."""
    if cell["cell_type"] == "markdown":
        return len(_PICTURE.findall("".join(cell["source"])))
    return sum(any(kind.startswith("image/") for kind in one.get("data", {})) for one in cell["outputs"])
