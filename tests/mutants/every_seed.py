"""Verdicts on all seeds must agree: `pytest tests/mutants/every_seed.py`, `-k lesson04` for one lesson.

The suite (`test_exercises.py`) tries each answer on one seed, chosen by its name. Here each wrong answer is
tried on 20 seeds, and each right one on 300, because a student gets a new seed for every check.
"""

import pytest
from harness import SEEDS, failures, solved
from suites import load_recorded, load_suites

from iocourse.course.exercise import find
from tests.mutation.references import build

SUITES = load_suites().values()
RIGHT = range(300)  # seeds of right answers
wrong = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # wrong answers compute with whatever they read


def listed(entries):
    """Make parameters of the exercise, the name and the answer, with ids such as lesson04-4B-name."""
    return [
        pytest.param(exercise, *tried, id=f"lesson{find(exercise).lesson[:2]}-{exercise}-{name}")
        for exercise, name, *tried in entries
    ]


def accepting(exercise_id, function, fails):
    """The seeds, each with those of the properties `fails` that hold on it."""
    held = ((seed, set(fails) - set(failures(exercise_id, function, seed))) for seed in SEEDS)
    return [(seed, names) for seed, names in held if names]


def refusing(exercise_id, function):
    """The seeds, each with the properties that fail on it."""
    found = ((seed, failures(exercise_id, function, seed)) for seed in RIGHT)
    return [(seed, names) for seed, names in found if names]


@wrong
@pytest.mark.parametrize(
    ("exercise_id", "row"),
    listed((name, f"{row.operator}-line{row.line}", row) for name, row in load_recorded()),
)
def test_a_recorded_mutant_fails_its_properties_on_every_seed(exercise_id, row):
    assert accepting(exercise_id, build(exercise_id, row.made_of(solved(exercise_id))), row.properties) == []


@wrong
@pytest.mark.parametrize(
    ("exercise_id", "function", "fails"),
    listed((one.id, *answer) for one in SUITES for answer in one.wrong_answers()),
)
def test_a_wrong_answer_is_refused_on_every_seed(exercise_id, function, fails):
    assert accepting(exercise_id, function(), [fails]) == []


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("exercise_id", listed((one.id, "reference") for one in SUITES))
def test_the_reference_passes_on_every_seed(exercise_id):
    assert refusing(exercise_id, build(exercise_id, solved(exercise_id))) == []


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("exercise_id", "right"), listed((one.id, one.right.__name__, one.right) for one in SUITES)
)
def test_another_right_answer_passes_on_every_seed(exercise_id, right):
    assert refusing(exercise_id, right) == []
