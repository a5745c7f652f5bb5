"""Figure of the predictions of a class: one histogram per question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ....console import table, with_unit
from ..draw.palette import BLUE, QUIET, SKY
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Rect,
    Text,
    centred,
    example,
    figure,
    text_width,
    titled,
)

COLUMNS = 3
ROW, HEAD, GAP = 22.0, 30.0, 26.0  # pixels per answer, per heading, between histograms
BAR = 150.0  # length for the most frequent answer


@example(
    {"4.5 f1_best": {"4": 3, "6": 21, "8": 2}, "4.5 f2_best": {"4": 26}, "9.1 gap": {"0": 1, "3 others": 4}},
    {"4.5 f1_best": "6", "4.5 f2_best": "4"},
)
@example({"0.2 constant_traffic": {"False": 0, "True": 1}}, {"0.2 constant_traffic": "False"})
@figure
def prediction_histograms(answers: Mapping[str, Mapping[str, int]], right: Mapping[str, str]) -> Picture:
    """Histograms of the predictions of a class: a bar for each answer, the correct one hatched.

    Args:
        answers: question → answer as text → number of students.
        right: question → correct answer, if it is known.

    Raises:
        ValueError: there is nothing to draw, or a count is negative.
    """
    if not answers or not all(answers.values()):
        raise ValueError("answers must contain at least one question, each with at least one answer")
    for name, counts in answers.items():
        if min(counts.values()) < 0:
            raise ValueError(f"answers[{name!r}] must have counts of at least 0, got {min(counts.values())}")
    wide, note = 0.0, text_width("999 correct", SMALL)
    for name, counts in answers.items():
        wide = max(wide, 40 + max(_labels(counts) + BAR + 8 + note, 1.1 * text_width(name, NORMAL)))
    drawn, names, top = list[Element](), list(answers), 56.0
    for row in (names[start : start + COLUMNS] for start in range(0, len(names), COLUMNS)):
        for column, name in enumerate(row):
            drawn += _histogram(18 + column * wide, top, name, answers[name], right.get(name))
        top += HEAD + ROW * max(len(answers[name]) for name in row) + GAP
    title = "Predictions and their frequency"
    alt = f"{title}: a bar for each answer{', the correct one hatched and marked' if right else ''}."
    for name, counts in answers.items():
        told = ", ".join(f"{text} {with_unit(count, 'time')}" for text, count in counts.items())
        alt += f" {name}: {told}{f'; correct: {right[name]}' if right.get(name) else ''}."
    rows = [
        [name, text, count, "correct" if text == right.get(name) else ""]
        for name, counts in answers.items()
        for text, count in counts.items()
    ]
    numbers = table([["question", "answer", "students", ""], *rows], left=2)
    size = 18 + wide * min(COLUMNS, len(names)), top - GAP + 12
    return titled(title, size, alt, numbers, drawn)


def _labels(counts: Sequence[str] | Mapping[str, int]) -> float:
    return 8 + max(text_width(text, NORMAL) for text in counts)


def _histogram(
    left: float, top: float, name: str, counts: Mapping[str, int], right: str | None
) -> Iterator[Element]:
    yield Text(left, top + 14, name, NORMAL, bold=True)
    start, most = left + _labels(counts), max(counts.values()) or 1
    for k, (text, count) in enumerate(counts.items()):
        y = top + HEAD + ROW * k
        mine = text == right
        length = BAR * count / most
        yield Text(start - 8, centred(y + 8, NORMAL), text, NORMAL, "end")
        yield Rect(start, y, max(length, 1), 16, SKY, "/" if mine else "", BLUE if mine else QUIET)
        note = f"{count} correct" if mine else str(count)
        yield Text(start + length + 8, centred(y + 8, SMALL), note, SMALL, bold=mine)
