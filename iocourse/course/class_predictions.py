"""Answers counted: a histogram for each number that a question asks for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..console import table
from .predictions import Number, equal_in_the_digits_given, shown
from .progress import Progress

MOST = 8  # rows of a histogram; rarer answers share the last one
LONGEST = 40  # characters of a bar


@dataclass(frozen=True)
class Histogram:
    """The answers to one number of one question.

    Attributes:
        question: such as "4.5".
        name: what the number is called there.
        rows: each answer as text, and how many gave it, from the smallest on.
        right: the text of the answer that came out, "" where that is not known.
    """

    question: str
    name: str
    rows: Mapping[str, int]
    right: str

    @property
    def label(self) -> str:
        """Question and name."""
        return f"{self.question} {self.name}"

    def is_of(self, name: str) -> bool:
        """Whether it belongs to the question of this name, or to the lesson: "4.5" or "04"."""
        return name == self.question or name == f"{int(self.question.split('.')[0]):02d}"


def histograms(students: Mapping[str, Progress], right: Mapping[tuple[str, str], str]) -> list[Histogram]:
    """A histogram for each number that somebody predicted, in the order of the lessons."""
    given: dict[tuple[str, str], list[Number]] = {}
    for progress in students.values():
        for key, answer in _answers(progress):
            given.setdefault(key, []).append(answer)
    known = list(dict.fromkeys([*right, *given]))
    order = sorted(given, key=lambda key: (_place(key[0]), known.index(key)))
    return [_histogram(*key, given[key], right.get(key, "")) for key in order]


def _place(question: str) -> tuple[int, int, str]:
    """Sort 1.2b after 1.2a, and 1.10 after both."""
    lesson, number, letter = re.fullmatch(r"(\d+)\.(\d+)(.*)", question).groups()  # type: ignore[union-attr]
    return int(lesson), int(number), letter


def _answers(progress: Progress) -> Iterator[tuple[tuple[str, str], Number]]:
    for key, entry in progress.items():
        predicted = entry.get("prediction")
        if re.match(r"p\d+\.\d", key) and isinstance(predicted, dict):
            yield from (((key[1:], name), answer) for name, answer in predicted.items())


def _histogram(question: str, name: str, answers: Sequence[Number], right: str) -> Histogram:
    counts = Counter(right if is_right(answer, right) else shown(answer) for answer in answers)
    counts.setdefault(right, 0) if right else None
    sizes = {right if is_right(answer, right) else shown(answer): answer for answer in answers}
    sizes |= {right: _number(right)} if right else {}
    in_order = sorted(counts, key=lambda text: (sizes[text] != sizes[text], sizes[text]))
    return Histogram(question, name, _few({text: counts[text] for text in in_order}, right), right)


def is_right(answer: Number, right: str) -> bool:
    """Whether an answer is what came out, to the digits it was given in."""
    if not right or shown(answer) == right:
        return bool(right)
    came = _number(right)
    if isinstance(answer, bool) or isinstance(came, bool):
        return bool(answer) == bool(came)
    return equal_in_the_digits_given(answer, came)


def _number(text: str) -> Number:
    if text in ("True", "False"):
        return text == "True"
    plain = text.replace(",", "")
    return int(plain) if re.fullmatch(r"-?\d+", plain) else float(plain)


def _few(counts: Mapping[str, int], right: str) -> dict[str, int]:
    """The commonest answers and the right one, in their order; the rest together."""
    if len(counts) <= MOST:
        return dict(counts)
    ranked = sorted(counts, key=lambda text: (text != right, -counts[text]))
    kept = set(ranked[: MOST - 1])
    rest = {text: count for text, count in counts.items() if text not in kept}
    return {t: c for t, c in counts.items() if t in kept} | {f"{len(rest)} others": sum(rest.values())}


def as_text(found: Sequence[Histogram]) -> str:
    """The histograms as plain text: each answer with a bar and its count, the right one marked."""
    return "\n\n".join(_one(histogram) for histogram in found)


def _one(histogram: Histogram) -> str:
    most = max(histogram.rows.values())
    rows = [
        [_mark(text, histogram), text, _bar(count, most), count] for text, count in histogram.rows.items()
    ]
    total = sum(histogram.rows.values())
    answers = f"{total} answer{'s' * (total != 1)}"
    known = f", {histogram.rows[histogram.right]} right" if histogram.right else ""
    return f"{histogram.label}: {answers}{known}\n{table(rows, left=3)}"


def _mark(text: str, histogram: Histogram) -> str:
    return "right" if text == histogram.right else ""


def _bar(count: int, most: int) -> str:
    return "#" * (count if most <= LONGEST else -(-count * LONGEST // most))
