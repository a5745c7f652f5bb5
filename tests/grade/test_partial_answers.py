"""Tests that partly right answers get the same points from both graders, by the rule of points."""

import csv
import io
import json
import re
from functools import cache
from pathlib import Path

import edited_notebooks
import nbgrader_points
import numpy as np
import pytest

from iocourse.course.exercise import find
from iocourse.course.grade import grade_report
from iocourse.course.grade.batch import Grade
from iocourse.course.grade.grading import grade
from iocourse.course.grade.lesson_cells import read_lessons
from iocourse.course.grade.sandbox import Limits
from iocourse.course.grade.submissions import Submission
from iocourse.course.points import RULE
from iocourse.course.project_paths import find_course
from tests.grade.partial_answers import (
    PARTIAL,
    SEED,
    START,
    last_block_ignored,
    scale_forgotten,
    share,
    unchanged,
    zeros_after_the_reads,
)

ROOT = Path(__file__).parents[2]
STEM = "04_flash_forward"
CHANGED = ("4A", "4B", "4C")
LESSON = next(one for one in read_lessons(find_course(ROOT)) if one.stem == STEM)
WITHOUT_WORK = {"zeros_after_the_reads", "copy_of_an_input", "keys_read_and_not_used", "stub"}


def submission(answer):
    """Return the solved notebook with this change of its schedules, as a student would submit it."""
    made = edited_notebooks.solved(STEM)
    for name in CHANGED:
        cell = edited_notebooks.cell(made, f"ex-{name}")
        cell["source"] = answer(cell["source"])
    return Submission("anna", Path("anna.ipynb"), json.dumps(made).encode(), made)


@cache
def marks_of(answer):
    """Return the marks of `iocourse grade` for a notebook with this change of its schedules."""
    return grade(submission(answer), LESSON, SEED, Limits(), False)


@pytest.mark.parametrize("answer", PARTIAL, ids=lambda one: one.__name__)
def test_both_graders_give_the_points_of_the_rule(answer, monkeypatch, tmp_path):
    ours = {mark.id: mark for mark in marks_of(answer)}
    for name in CHANGED:
        points = share(name, answer.__name__)  # judged in this process, without a grader
        assert (ours[name].points, ours[name].parts) == (points.total, str(points)), ours[name].report
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    monkeypatch.setenv("IOCOURSE_SEED", str(SEED))
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    theirs, _, said = nbgrader_points.graded(
        submission(answer).notebook, edited_notebooks.lesson("lessons", STEM)
    )
    assert theirs == pytest.approx(sum(mark.points for mark in ours.values()), abs=4 * 0.5e-4)
    for mark in ours.values():
        assert f"of {mark.of} ({mark.parts})" in said


@pytest.mark.parametrize("exercise_id", CHANGED)
def test_what_partly_right_answers_to_a_schedule_earn(exercise_id):
    half = find(exercise_id).importance / 2
    for answer in (*PARTIAL, unchanged):
        points = share(exercise_id, answer.__name__)
        kind = answer.__name__
        if kind in WITHOUT_WORK:
            assert points.total == 0, kind
        elif kind == "unchanged" or (exercise_id, kind) == ("4B", "one_row_at_a_time"):  # 4B streams Q
            assert points.values == points.traffic == half, kind
        elif kind in ("one_row_at_a_time", "every_load_twice"):
            assert points.values == half and 0 < points.traffic <= half / 5, kind
        else:  # wrong values, exact traffic; two of these are tricks, which the guide names
            assert points.values < half and points.traffic == half, kind
    assert share(exercise_id, "stub").total == 0


@pytest.mark.parametrize("ending", ["__import__('os')._exit(1)", "raise SystemExit", "1 / 0"])
def test_a_function_that_ends_a_further_call_earns_nothing_and_harms_no_other_exercise(ending):
    """A function with a wrong result is called again with other numbers; refusing them hides what it uses."""
    drawn = len(find("4A").cases(np.random.default_rng(SEED)))
    made = submission(scale_forgotten)
    cell = edited_notebooks.cell(made.notebook, "ex-4A")
    late = f"    calls.append(1)\n    if len(calls) > {drawn}:\n        {ending}\n"
    cell["source"] = "calls = []\n" + cell["source"].replace(START, START + late)
    marks = grade(made, LESSON, SEED, Limits(), False)
    first, *others = marks
    assert first.points == 0 and "your function fails when it is called again" in first.report
    assert others and [mark.points for mark in others] == [
        mark.points for mark in marks_of(scale_forgotten)[1:]
    ]


# ------------------------------------------------------------------ what the feedback shows
def test_a_report_has_three_verdicts():
    found = set()
    for answer in (scale_forgotten, zeros_after_the_reads):
        for mark in marks_of(answer)[:3]:
            found |= set(re.findall(r"^  (holds|FAILS|not reached)  ", mark.report, re.MULTILINE))
    assert found == {"holds", "FAILS", "not reached"}


def test_the_feedback_shows_how_points_are_made():
    forgotten = marks_of(scale_forgotten)
    cells = grade_report._feedback(Grade("anna", tuple(forgotten)), submission(scale_forgotten), LESSON)[
        "cells"
    ]
    texts = {cell["id"]: "".join(cell["source"]) for cell in cells}
    for mark in forgotten:
        (row,) = (line for line in texts["feedback"].splitlines() if line.startswith(f"| {mark.id} "))
        assert row.endswith(f"| {mark.parts} |") and mark.parts.startswith("values ")
        assert texts[f"feedback-{mark.id}"].startswith(
            f"**{round(mark.points, 2):g} of {mark.of} points** ({mark.parts})\n"
        )
    assert forgotten[0].parts == "values 0.312 of 2.5, traffic 2.5 of 2.5"


def test_the_rule_is_shown_only_if_points_were_lost():
    forgotten = marks_of(scale_forgotten)
    assert grade_report._summary(Grade("anna", tuple(forgotten)), LESSON).endswith(f"\n\n{RULE}")
    assert RULE not in grade_report._summary(Grade("anna", tuple(marks_of(unchanged))), LESSON)


def test_the_reason_is_the_property_to_read_first():
    """A property of the values holds before it in the report, and another one fails with it."""
    marks = marks_of(last_block_ignored)
    (first,) = re.findall(
        r"^  FAILS  (.*?): .*\n +with it, and not tested apart: ", marks[0].report, re.MULTILINE
    )
    assert marks[0].why.startswith(f'"{first}" fails: ')
    grades = [Grade("anna", tuple(marks))]
    table = grade_report.as_table(grades, LESSON)
    assert f'4A "{first}" fails' in table and re.search(r"… \(and \d more\)$", table)
    (row,) = csv.DictReader(io.StringIO(grade_report.as_csv(grades, LESSON)))
    assert row["reasons"].startswith(f'4A, 4B, 4C "{first}" fails: ')


# ------------------------------------------------------------------ the guide
def test_the_guide_quotes_the_rule():
    text = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    quoted = " ".join(line.removeprefix("> ") for line in text.splitlines() if line.startswith("> "))
    assert RULE in quoted
