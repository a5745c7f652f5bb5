"""Solved notebooks with one wrong answer, which is recorded as a mutant of its exercise."""

import json
from functools import cache
from pathlib import Path

from iocourse.course.checking import RUNS
from tests.mutation.references import exercise_source
from tools.build.recorded_mutants import read_recorded

recorded = cache(read_recorded)


def with_wrong_answer(path):
    """Replace the first answer by a wrong one that runs; return the notebook's text and the exercise's id."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cell = next(one for one in notebook["cells"] if "exercise" in one["metadata"].get("tags", ()))
    exercise = cell["metadata"]["name"].removeprefix("ex-")
    rows = recorded(Path(__file__).parents[2])[exercise]
    wrong = next(row for row in rows if RUNS not in row.properties)
    text = wrong.made_of(exercise_source(exercise, solved=True))
    assert text is not None, f"line {wrong.line} of the answer to {exercise} has changed"
    cell["source"] = text.splitlines(keepends=True)
    return json.dumps(notebook), exercise


def refused(result, exercise):
    """True if nbval failed first at the check of this exercise, with a line that states the mistake, and
    otherwise only at checks of later exercises, which may use the answer.
    """
    report = result.text.partition(" short test summary info ")[0]  # which repeats it where CI is set
    said = [line for line in report.splitlines() if line.startswith("CheckFailed: ")]
    first = f"CheckFailed: exercise {exercise} is not solved: "
    return not result.passed and "".join(said).startswith(first) and f"\n{len(said)} failed" in result.text
