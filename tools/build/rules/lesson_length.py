"""Whether a lesson fits an evening: its words, formulas, predictions, cells and minutes, computed.

A formula in a line counts as a word. What is read takes a minute for 130 words, a quarter of a minute for a
displayed formula, one minute for a prediction that is a guess and two for one that is computed. Exercises
take the minutes that they say. The build writes the two sums at the head of the lesson.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.build.percent_format import Cell, shown, side

WORDS, CELLS, MINUTES, PICTURES = 3500, 60, 90, 1  # a lesson at most; pictures at least
FIRST = {"words": 1800, "pictures": 2}  # for lesson 00, which somebody opens who has not decided yet
OPENING = 5  # cells, one of which shows a picture
WORDS_A_MINUTE = 130
FORMULA = 0.25  # minutes
PREDICTION = {"guess": 1, "compute": 2}  # minutes

KIND = re.compile(r"\*\*Predict\*\* \((\w+)\)")
_DISPLAYED, _INLINE = re.compile(r"\$\$.*?\$\$", re.DOTALL), re.compile(r"\$[^$]+\$")
_HIDDEN = re.compile(r"<!--.*?-->|</?\w[^>]*>|\]\([^)\s]*\)", re.DOTALL)  # comments, tags, targets of links
_PICTURE = re.compile(r"!\[[^\]]*\]\(")


@dataclass(frozen=True)
class LessonLength:
    """What a student of one lesson reads.

    Attributes:
        words: of the text, a formula in a line counting as one.
        formulas: displayed ones.
        predictions: minutes of the predictions.
        cells: of the student's notebook, without the folded one that finds iocourse.
    """

    words: int
    formulas: int
    predictions: int
    cells: int

    @property
    def reading(self) -> int:
        """Minutes of reading and predicting, rounded up."""
        return math.ceil(self.words / WORDS_A_MINUTE + FORMULA * self.formulas + self.predictions)


def length_of(cells: Sequence[Cell]) -> LessonLength:
    """What is in a source. Facts of exercises that the build writes into it are not counted."""
    read = [cell for cell in cells if shown(cell, solved=False)]
    texts = ["\n".join(side(cell, solved=False)) for cell in read if cell.kind == "markdown"]
    predictions = sum(PREDICTION.get(kind, 0) for text in texts for kind in KIND.findall(text))
    formulas = sum(len(_DISPLAYED.findall(text)) for text in texts)
    return LessonLength(sum(map(words_of, texts)), formulas, predictions, len(read))


def words_of(text: str) -> int:
    """The words of a text in Markdown; a formula in a line is one, a displayed one is none."""
    plain = _HIDDEN.sub(" ", _INLINE.sub(" formula ", _DISPLAYED.sub(" ", text)))
    return sum(any(map(str.isalnum, word)) for word in plain.split())


def problems(length: LessonLength, exercises: int, solved: dict[str, Any], path: Path) -> Iterator[str]:
    """Where a lesson is longer than an evening or shows too little, each as ``file:1: what``.

    Args:
        length: what its source has.
        exercises: minutes of those that are not optional.
        solved: its notebook with outputs.
        path: what messages call the source.
    """
    first = FIRST if path.name.startswith("00_") else {}
    minutes = length.reading + exercises
    for name, found, most in (
        ("words", length.words, first.get("words", WORDS)),
        ("cells", length.cells, CELLS),
        ("minutes", minutes, MINUTES),
    ):
        if found > most:
            yield f"{path}:1: {found:,} {name}, at most {most:,} in an evening; the rest moves to a second"
    least = first.get("pictures", PICTURES)
    if (drawn := sum(map(_pictures, solved["cells"]))) < least:
        yield f"{path}:1: {drawn} pictures, at least {least}"
    if not any(map(_pictures, solved["cells"][:OPENING])):
        yield f"{path}:1: no picture in its first {OPENING} cells"


def _pictures(cell: dict[str, Any]) -> int:
    """How many pictures a cell of a solved notebook shows."""
    if cell["cell_type"] == "markdown":
        return len(_PICTURE.findall("".join(cell["source"])))
    return sum(any(kind.startswith("image/") for kind in one.get("data", {})) for one in cell["outputs"])
