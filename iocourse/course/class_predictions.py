"""A class's predictions, from the progress its students exported: who expected what, without names.

The answers to each number of a question are counted into a histogram, the measured one is marked, and the
histograms are printed (`as_text`) or drawn (`draw`).
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..console import table
from ..errors import UsageError
from .predictions import Number, equal_in_the_digits_given, format_number
from .progress import Progress, parse
from .project_paths import find_checkout

MOST_IN_A_PICTURE = 24  # histograms
MOST = 8  # rows of a histogram; rarer answers share the last one
LONGEST = 40  # characters of a bar
_MEASURED = re.compile(r"^(\w+): (.+?) measured, ", re.MULTILINE)


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


def class_histograms(folder: Path, only: Sequence[str] = (), *, blind: bool = False) -> list[Histogram]:
    """The answers of a class, a histogram for each number that a student predicted.

    Args:
        folder: exported progress, a file per student.
        only: questions ("4.5") or lessons ("04"); all where empty.
        blind: without the measured answers, for a class that has not measured yet.

    Raises:
        UsageError: not a folder, no files, a broken one or two of one student; no answer to what `only`
            names; no checkout with the solved lessons.
    """
    students = read_class(folder)
    try:
        right = {} if blind else measured_answers(find_checkout())
    except UsageError as error:
        raise UsageError(f"what came out stands in solutions/; {error}, or ask with --blind") from None
    found = histograms(students, right)
    chosen = [one for one in found if not only or any(one.is_of(name) for name in only)]
    if not chosen:
        asked = f"a question of {', '.join(only)}" if only else "a question"
        raise UsageError(f"nobody in {folder} has written a prediction to {asked}")
    return chosen


def draw(found: Sequence[Histogram], file: Path) -> None:
    """Draw the histograms into a file, an SVG or a PNG as its name says.

    Raises:
        UsageError: another kind of file, or too many histograms for a picture.
    """
    if file.suffix not in (".svg", ".png"):
        raise UsageError(f"--figure {file} must end in .svg or .png")
    if len(found) > MOST_IN_A_PICTURE:
        told = f"{len(found)} histograms are too many for a picture, {MOST_IN_A_PICTURE} fit"
        raise UsageError(f"{told}: --only 04 takes those of a lesson, --only 4.5 those of a question")
    from ..explore.figures.prediction_histograms import prediction_histograms

    picture = prediction_histograms(
        {one.label: one.rows for one in found}, {one.label: one.right for one in found if one.right}
    )
    data = picture.to_png() if file.suffix == ".png" else picture.to_svg().encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def as_text(found: Sequence[Histogram]) -> str:
    """The histograms as plain text: each answer with a bar and its count, the right one marked."""
    return "\n\n".join(_one(histogram) for histogram in found)


def _one(histogram: Histogram) -> str:
    most = max(histogram.rows.values())
    rows = []
    for text, count in histogram.rows.items():
        bar = "#" * (count if most <= LONGEST else -(-count * LONGEST // most))
        rows.append(["right" if text == histogram.right else "", text, bar, count])
    total = sum(histogram.rows.values())
    known = f", {histogram.rows[histogram.right]} right" if histogram.right else ""
    return f"{histogram.label}: {total} answer{'s' * (total != 1)}{known}\n{table(rows, left=3)}"


# ------------------------------------------------------------------ counting
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
    counts = Counter(right if is_right(answer, right) else format_number(answer) for answer in answers)
    counts.setdefault(right, 0) if right else None
    sizes = {right if is_right(answer, right) else format_number(answer): answer for answer in answers}
    sizes |= {right: _number(right)} if right else {}
    in_order = sorted(counts, key=lambda text: (sizes[text] != sizes[text], sizes[text]))
    return Histogram(question, name, _few({text: counts[text] for text in in_order}, right), right)


def is_right(answer: Number, right: str) -> bool:
    """Whether an answer is what came out, to the digits it was given in."""
    if not right or format_number(answer) == right:
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


# ------------------------------------------------------------------ exported progress
def read_class(folder: Path) -> dict[str, Progress]:
    """The progress of each student by name, from one file per student: `anna.json` or `anna/….json`.

    Raises:
        UsageError: it is no folder, has no files, one that is no progress, or two of one student.
    """
    if not folder.is_dir():
        raise UsageError(f"--cohort must name a folder of exported progress; {folder} is none")
    within = {path: path.relative_to(folder).parts for path in sorted(folder.rglob("*.json"))}
    # Hidden folders, such as .ipynb_checkpoints, are left out.
    paths = [path for path, parts in within.items() if not any(part.startswith(".") for part in parts)]
    if not paths:
        how = "each student runs iocourse progress --export NAME.json"
        raise UsageError(f"no file NAME.json or NAME/….json in {folder}: {how}")
    by_name: dict[str, Path] = {}
    for path in paths:
        name = within[path][0] if len(within[path]) > 1 else path.stem
        if name in by_name:
            raise UsageError(
                f"two files of the student {name!r}, {by_name[name]} and {path}: rename or take away one"
            )
        by_name[name] = path
    return {name: _read(path) for name, path in by_name.items()}


def _read(path: Path) -> Progress:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


# ------------------------------------------------------------------ what was measured
@cache
def measured_answers(root: Path) -> Mapping[tuple[str, str], str]:
    """Question and name -> the number as `measured` prints it in the solved notebooks of a checkout."""
    cells = [cell for path in sorted((root / "solutions").glob("[0-9]*.ipynb")) for cell in _code(path)]
    calls = [call for cell in cells for call in _calls("".join(cell["source"]), "predict")]
    asked = {(question, name) for question, names in calls for name in names}
    found: dict[tuple[str, str], str] = {}
    for cell in cells:
        questions = _calls("".join(cell["source"]), "measured")
        streams = (output for output in cell["outputs"] if output["output_type"] == "stream")
        printed = "".join("".join(output["text"]) for output in streams)
        for name, value in _MEASURED.findall(printed):
            found |= {(q, name): value for q, _ in questions if (q, name) in asked}
    return found


def _code(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _calls(source: str, function: str) -> list[tuple[str, list[str]]]:
    """Question and names of each call of this function."""
    if f"{function}(" not in source or source.lstrip().startswith("%"):
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        (str(call.args[0].value), [keyword.arg for keyword in call.keywords if keyword.arg])
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == function
        if call.args and isinstance(call.args[0], ast.Constant)
    ]
