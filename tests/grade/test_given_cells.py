"""Tests that the cells of a lesson that the grader runs define every name that its exercises use."""

import ast
import builtins
import json
from pathlib import Path

import pytest

from iocourse.course.grade.lesson_cells import read_lessons, text_of
from iocourse.course.project_paths import find_course

ROOT = Path(__file__).parents[2]
LESSONS = read_lessons(find_course(ROOT))


def names(source):
    """Return two sets: names that a cell defines, at top level or in functions, and names that it uses."""
    tree = ast.parse(source)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    made = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            made |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            made.add(node.name)
    return made, used


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_every_name_that_a_solution_uses_is_given_or_its_own(lesson):
    solved = json.loads((ROOT / "solutions" / f"{lesson.stem}.ipynb").read_text(encoding="utf-8"))
    theirs = {cell["id"]: text_of(cell) for cell in solved["cells"]}
    known = set(dir(builtins))
    for place in lesson.places:
        made, used = names(theirs[place.cell] if place.exercise else place.source)
        known |= made
        assert used <= known, (place.cell, used - known)


def test_every_exercise_of_the_course_has_a_place():
    from iocourse.course.exercise import exercises

    places = [place.asks for lesson in LESSONS for place in lesson.places if place.asks]
    assert sorted(places) == sorted(exercises())  # 12D has its place in lesson 13b
