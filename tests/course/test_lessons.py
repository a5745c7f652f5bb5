"""Tests of every lesson: exercises are in the sections that they name, and quoted bounds are correct."""

import re
from pathlib import Path

import pytest

from iocourse.bounds import BOUNDS
from iocourse.course.exercise import exercises
from tests.mutation.references import sources_of
from tools.build.percent_format import parse

SOLUTIONS = Path(__file__).parents[2] / "solutions"
EXERCISES = list(exercises().values())


def lesson_of(exercise):
    """Return the source of the exercise's lesson, both parts."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sources_of(exercise.lesson))


LESSONS = sorted({e.lesson for e in EXERCISES})


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_stub_and_check_stand_in_the_lesson_under_their_names(exercise):
    lesson = lesson_of(exercise)
    cell = lesson.split(f'# %% tags=["exercise"] name="ex-{exercise.id}"\n')[1].split("\n# %%")[0]
    assert f"def {exercise.function}(" in cell  # follows a kernel if the function launches one
    assert f'check("{exercise.id}", {exercise.function})' in lesson


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_hints_are_three_and_none_is_code(exercise):
    assert len(set(exercise.hints)) == 3
    assert not any(line in hint for hint in exercise.hints for line in ("for i in", "def ", "\n"))


def test_ids_are_those_of_the_lessons_and_functions_are_the_students():
    assert sorted({path.name.partition("_")[0] for path in SOLUTIONS.glob("[0-9]*.py")}) == LESSONS
    assert all(e.function.startswith("my_") for e in EXERCISES)


# ---- bounds that lessons quote by id ---------------------------------------------------------------------

QUOTED = re.compile(r"\bbounds? (`[^`]+`(?:(?:, | and |, and )`[^`]+`)*)")
SPOKEN = {"compulsory_sparse"}  # quoted as text, with the number of words per row and per column


def markdown_of(path):
    cells = parse(path.read_text(encoding="utf-8"), path)
    return "\n".join("\n".join(cell.lines) for cell in cells if cell.kind == "markdown")


def quoted_ids(text):
    return [id for names in QUOTED.findall(text) for id in re.findall(r"`([^`]+)`", names)]


def plain(latex):
    """Return a formula in lower case without spacing commands, because arXiv 2410.09397 writes n for N."""
    bare = re.sub(r"\\left|\\right|\\[,;! ]|\\quad|\s|\$", "", latex)
    return bare.replace("{,}", ",").lower()


def clauses(bound):
    """Return the statements of a bound's formula; an order is compared without its Θ or Ω."""
    for clause in re.split(r",\\quad(?: \\text\{so \})?", bound.formula):
        yield re.sub(r"^w=\\(theta|omega)\((.*)\)$", r"\2", plain(clause))


QUOTES = [(path, id) for path in sorted(SOLUTIONS.glob("[0-9]*.py")) for id in quoted_ids(markdown_of(path))]


@pytest.mark.parametrize(("path", "id"), QUOTES, ids=lambda x: getattr(x, "stem", x))
def test_a_bound_quoted_by_id_is_shown_with_its_formula(path, id):
    """The value of each formula is tested in tests/bounds."""
    shown = plain(markdown_of(path))
    assert id in SPOKEN or any(clause in shown for clause in clauses(BOUNDS[id]))


def test_every_kind_of_bound_is_quoted_by_a_lesson():
    assert {id for _, id in QUOTES} >= {
        *("compulsory", "A", "A_large", "A_small", "B_line", "B'", "B'_line", "saha_ye", "theta_attention"),
        *("compulsory_backward", "C", "C_line", "C_small", "theta_gradient", "D", "omega_sparse", "matmul"),
    }
