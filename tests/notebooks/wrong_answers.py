"""A solved notebook with one wrong answer: a mistake that somebody wrote down by hand for its exercise."""

import json
from functools import cache
from pathlib import Path

from tests.mutation.by_hand import suites

ROOT = Path(__file__).parents[2]
suites_of = cache(suites)


def with_wrong_answer(path):
    """The text of the notebook in which the first answer has its first mistake, and the exercise's id."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cell = next(one for one in notebook["cells"] if "exercise" in one["metadata"].get("tags", ()))
    exercise = cell["metadata"]["name"].removeprefix("ex-")
    text = "".join(cell["source"])
    for right, wrong in suites_of(ROOT, int(path.stem[:2]))[exercise].mutants[0].edits:
        assert right in text, f"{path.name}: {right!r} is not in the answer to {exercise}"
        text = text.replace(right, wrong)
    cell["source"] = text.splitlines(keepends=True)
    return json.dumps(notebook), exercise


def refused(result, exercise):
    """Whether nbval failed first at the check of this exercise, with a line that says what is wrong, and
    otherwise at nothing but checks of later exercises, which may use it.
    """
    report = result.text.partition(" short test summary info ")[0]  # which repeats it where CI is set
    said = [line for line in report.splitlines() if line.startswith("CheckFailed: ")]
    first = f"CheckFailed: exercise {exercise} is not solved: "
    return not result.passed and "".join(said).startswith(first) and f"\n{len(said)} failed" in result.text
