"""Predictions of a class, from the progress that its students exported; names of students are not shown.

The answers to each number of a question are counted in a histogram, the measured value is marked, and the
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

MOST_IN_A_PICTURE = 24  # maximum number of histograms in a figure
MOST = 8  # maximum rows of a histogram; rarer answers share the last one
LONGEST = 40  # maximum characters of a bar
_MEASURED = re.compile(r"^(\w+): (.+?) measured, ", re.MULTILINE)


@dataclass(frozen=True)
class Histogram:
    """Histogram of the answers to one number of one question.

    Attributes:
        question: id of the question, such as "4.5".
        name: name of the number in the question.
        rows: number of students by answer (as text), sorted by the value of the answer.
        right: the measured value as text; "" if not known.
    """

    question: str
    name: str
    rows: Mapping[str, int]
    right: str

    @property
    def label(self) -> str:
        """Question and name of the number, such as "4.5 f1_best"."""
        return f"{self.question} {self.name}"

    def is_of(self, name: str) -> bool:
        """Return True if it belongs to this question ("4.5") or lesson ("04")."""
        return name == self.question or name == f"{int(self.question.split('.')[0]):02d}"


def class_histograms(folder: Path, only: Sequence[str] = (), *, blind: bool = False) -> list[Histogram]:
    """Return a histogram for each number that at least one student predicted.

    Args:
        folder: folder of exported progress, one file per student.
        only: questions ("4.5") or lessons ("04") to include; all if empty.
        blind: leave out the measured values, for a class that has not measured yet.

    Raises:
        UsageError: `folder` is not a directory, has no files, an invalid file or two of one student; no
            student answered a question in `only`; the solved lessons are missing without a checkout.
    """
    students = read_class(folder)
    try:
        right = {} if blind else measured_answers(find_checkout())
    except UsageError as error:
        raise UsageError(f"the measured values are in solutions/; {error}, or use --blind") from None
    found = histograms(students, right)
    chosen = [one for one in found if not only or any(one.is_of(name) for name in only)]
    if not chosen:
        asked = f"a question of {', '.join(only)}" if only else "a question"
        raise UsageError(f"no student in {folder} has written a prediction to {asked}")
    return chosen


def draw(found: Sequence[Histogram], file: Path) -> None:
    """Draw the histograms to `file`, as SVG or PNG according to its suffix.

    Raises:
        UsageError: the suffix is not .svg or .png, there are too many histograms for one figure, or a PNG
            is requested and matplotlib is missing.
    """
    if file.suffix not in (".svg", ".png"):
        raise UsageError(f"--figure must end in .svg or .png, got {file}")
    if len(found) > MOST_IN_A_PICTURE:
        told = f"{len(found)} histograms are too many for one figure, expected at most {MOST_IN_A_PICTURE}"
        raise UsageError(f"{told}. Select a lesson (--only 04) or a question (--only 4.5)")
    from .explore.figures.prediction_histograms import prediction_histograms

    picture = prediction_histograms(
        {one.label: one.rows for one in found}, {one.label: one.right for one in found if one.right}
    )
    try:
        data = picture.to_png() if file.suffix == ".png" else picture.to_svg().encode()
    except ModuleNotFoundError as error:
        raise UsageError(f"{error}. A file that ends in .svg does not need it") from None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def as_text(found: Sequence[Histogram]) -> str:
    """Format the histograms as text: each answer with a bar and its count; the measured value is marked."""
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
    """Return a histogram for each number that was predicted, in the order of the lessons.

    Args:
        students: progress of each student, by name.
        right: measured value as text, by question and name.
    """
    given: dict[tuple[str, str], list[Number]] = {}
    for progress in students.values():
        for key, answer in _answers(progress):
            given.setdefault(key, []).append(answer)
    known = list(dict.fromkeys([*right, *given]))
    order = sorted(given, key=lambda key: (_place(key[0]), known.index(key)))
    return [_histogram(*key, given[key], right.get(key, "")) for key in order]


def _place(question: str) -> tuple[int, int, str]:
    """Return a sort key that puts 1.2b after 1.2a, and 1.10 after both."""
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
    """Return True if an answer equals the measured value `right`, rounded to the digits of the answer."""
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
    """Keep the most frequent answers and the measured value, in order, and combine the others in one row."""
    if len(counts) <= MOST:
        return dict(counts)
    ranked = sorted(counts, key=lambda text: (text != right, -counts[text]))
    kept = set(ranked[: MOST - 1])
    rest = {text: count for text, count in counts.items() if text not in kept}
    return {t: c for t, c in counts.items() if t in kept} | {f"{len(rest)} others": sum(rest.values())}


# ------------------------------------------------------------------ exported progress
def read_class(folder: Path) -> dict[str, Progress]:
    """Return the progress of each student by name, from one file per student: `anna.json` or `anna/….json`.

    Raises:
        UsageError: `folder` is not a directory, has no files, an invalid file, or two of one student.
    """
    if not folder.is_dir():
        raise UsageError(
            f"--cohort must be a directory of exported progress, but {folder} is not a directory"
        )
    within = {path: path.relative_to(folder).parts for path in sorted(folder.rglob("*.json"))}
    # Hidden folders, such as .ipynb_checkpoints, are left out.
    paths = [path for path, parts in within.items() if not any(part.startswith(".") for part in parts)]
    if not paths:
        how = "Students export it with iocourse progress --export NAME.json"
        raise UsageError(f"{folder} contains no progress files (NAME.json or NAME/….json). {how}")
    by_name: dict[str, Path] = {}
    for path in paths:
        name = within[path][0] if len(within[path]) > 1 else path.stem
        if name in by_name:
            raise UsageError(
                f"student {name!r} has two files, {by_name[name]} and {path}. Rename or remove one"
            )
        by_name[name] = path
    return {name: _read(path) for name, path in by_name.items()}


def _read(path: Path) -> Progress:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


# ------------------------------------------------------------------ measured values
@cache
def measured_answers(root: Path) -> Mapping[tuple[str, str], str]:
    """Return the measured values in the solved notebooks of a checkout, by question and name.

    The values are texts as `measured` prints them.
    """
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
    """Return the question and the keyword names of each call of this function in a cell."""
    if f"{function}(" not in source or source.lstrip().startswith("%"):
        return []
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        (str(call.args[0].value), [keyword.arg for keyword in call.keywords if keyword.arg])
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == function
        if call.args and isinstance(call.args[0], ast.Constant)
    ]
