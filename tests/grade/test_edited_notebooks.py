"""Tests that both graders give edited notebooks the same points and the same line for the teacher."""

import copy
import json
from functools import cache
from itertools import combinations
from pathlib import Path

import edited_notebooks
import nbgrader_points
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse.course.grade.batch import Grade
from iocourse.course.grade.grade_report import note_of
from iocourse.course.grade.grading import grade
from iocourse.course.grade.lesson_cells import read_lessons
from iocourse.course.grade.sandbox import Limits
from iocourse.course.grade.submissions import Submission, most_common_lesson, one_per_student
from iocourse.course.project_paths import find_course
from iocourse.course.student_copies import answers
from iocourse.course.student_copies.answers import find_answers
from iocourse.course.student_copies.merge import merge_copy
from iocourse.course.student_copies.notebook import as_copy, text_of

LESSONS = {lesson.stem: lesson for lesson in read_lessons(find_course(edited_notebooks.ROOT))}
NOTEBOOKS = {
    stem: json.loads((edited_notebooks.ROOT / "lessons" / f"{stem}.ipynb").read_text(encoding="utf-8"))
    for stem in LESSONS
}
LESSON = LESSONS[edited_notebooks.STEM]
EDITS = edited_notebooks.discovered()


def handed_in(notebook):
    """Return the notebook as the only submission of a class, after its lesson has been recognised."""
    one = Submission("x", Path("x.ipynb"), json.dumps(notebook).encode(), notebook)
    lessons = list(LESSONS.values())
    assert most_common_lesson([one], lessons) is LESSON
    return one_per_student([one], LESSON, lessons)[0]


def test_there_are_forty():
    assert len(EDITS) >= 40


@pytest.mark.parametrize("name", EDITS)
def test_both_graders_give_the_declared_points_and_line(name, monkeypatch, tmp_path):
    edit = EDITS[name]
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    monkeypatch.setenv("IOCOURSE_SEED", "1")
    ours = Grade(name, tuple(grade(handed_in(edited_notebooks.made(edit)), LESSON, 1, Limits(), False)))
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    theirs, line, said = nbgrader_points.graded(
        edited_notebooks.made(edit), edited_notebooks.lesson("lessons")
    )
    assert round(ours.points, 2) == edit.POINTS, [mark.why for mark in ours.marks]
    assert round(theirs, 2) == edit.POINTS, said
    assert note_of(ours) == line == edit.LINE != ""


def test_the_untouched_and_the_solved_notebook_have_no_line():
    for notebook in (edited_notebooks.lesson("lessons"), edited_notebooks.solved()):
        assert all(not one.notes and not one.fault for one in found(notebook, LESSON).values())


# ------------------------------------------------------------------ over all lessons
def found(notebook, lesson):
    return find_answers(notebook["cells"], lesson.wanted, lesson.own)


def positions(notebook, lesson):
    return {name: (answer.at, answer.cells) for name, answer in found(notebook, lesson).items()}


@pytest.fixture(scope="module")
def each_text_is_parsed_once():
    """Cache the parsed cells: the tests below make 300 notebooks from the cells of 31 lessons."""
    with pytest.MonkeyPatch.context() as patch:
        for pure in ("_parsed", "_names_bound"):
            patch.setattr(answers, pure, cache(getattr(answers, pure)))
        yield


@pytest.mark.parametrize("stem", LESSONS)
def test_in_every_lesson_each_exercise_is_found_in_its_own_cell(stem):
    cells = NOTEBOOKS[stem]["cells"]
    at = {
        name: cells[answer.at]["metadata"]["name"]
        for name, answer in found(NOTEBOOKS[stem], LESSONS[stem]).items()
    }
    assert at == {one.id: f"ex-{one.id}" for one in LESSONS[stem].exercises}


@pytest.mark.usefixtures("each_text_is_parsed_once")
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_renaming_of_ids_changes_what_is_graded(data):
    """Names are kept; ids are removed, replaced or permuted."""
    stem = data.draw(st.sampled_from(list(LESSONS)))
    before, notebook = positions(NOTEBOOKS[stem], LESSONS[stem]), copy.deepcopy(NOTEBOOKS[stem])
    ids = data.draw(st.permutations([cell["id"] for cell in notebook["cells"]]))
    kinds = data.draw(st.lists(st.integers(0, 6), min_size=len(ids), max_size=len(ids)))
    for cell, other, kind in zip(notebook["cells"], ids, kinds, strict=True):
        cell["id"] = (other, "0", "", None, 7, "new", f"{other}x")[kind]
    assert positions(notebook, LESSONS[stem]) == before


KEYS = ("name", "nbgrader", "tags", "deletable")
# What is left of a cell's metadata: some of its keys, or none of what the lesson had.
LEFT = [
    *(
        lambda had, gone=gone: {key: value for key, value in had.items() if key not in gone}
        for n in range(len(KEYS) + 1)
        for gone in combinations(KEYS, n)
    ),
    *5 * [lambda had: {}, lambda had: None, lambda had: {"name": 3, "nbgrader": []}],
]


@pytest.mark.usefixtures("each_text_is_parsed_once")
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_removal_of_metadata_changes_what_is_graded(data):
    """Ids are kept; any part of a cell's metadata is removed."""
    stem = data.draw(st.sampled_from(list(LESSONS)))
    before, notebook = positions(NOTEBOOKS[stem], LESSONS[stem]), copy.deepcopy(NOTEBOOKS[stem])
    size = len(notebook["cells"])
    left = data.draw(st.lists(st.sampled_from(LEFT), min_size=size, max_size=size))
    for cell, part_of in zip(notebook["cells"], left, strict=True):
        cell["metadata"] = part_of(cell["metadata"])
    assert positions(notebook, LESSONS[stem]) == before


@pytest.mark.parametrize("stem", LESSONS)
def test_without_ids_and_metadata_the_function_decides(stem):
    notebook = copy.deepcopy(NOTEBOOKS[stem])
    edited_notebooks.without_metadata(notebook)
    edited_notebooks.without_ids(notebook, 4)
    assert positions(notebook, LESSONS[stem]) == positions(NOTEBOOKS[stem], LESSONS[stem])


# ------------------------------------------------------------------ updates of a copy
def as_the_newer_text(lesson):
    """Return the lesson as in a later release: every cell has changed text, except exercise cells."""
    new = copy.deepcopy(lesson)
    for cell in new["cells"]:
        if "exercise" not in cell["metadata"].get("tags", ()):
            cell["source"] = [*cell["source"], "\n# a word more"]
    return new


@pytest.mark.parametrize("name", EDITS)
def test_an_update_puts_each_answer_that_is_found_into_the_cell_of_the_lesson(name):
    mine = as_copy(edited_notebooks.lesson("lessons"), edited_notebooks.STEM)
    for cell, answered in zip(mine["cells"], edited_notebooks.solved()["cells"], strict=True):
        cell["source"] = answered["source"]
    EDITS[name].change(mine)
    new = merge_copy(
        mine, as_the_newer_text(edited_notebooks.lesson("lessons")), edited_notebooks.STEM
    ).notebook
    before = {one: answer.at for one, answer in found(mine, LESSON).items()}
    once = [one for one, at in before.items() if at is not None and [*before.values()].count(at) == 1]
    for one in once:
        its = next(cell for cell in new["cells"] if cell["id"] == f"ex-{one}")
        assert text_of(its).split() == text_of(mine["cells"][before[one]]).split()
        assert its["metadata"]["name"] == f"ex-{one}"
    assert len(once) >= 2
