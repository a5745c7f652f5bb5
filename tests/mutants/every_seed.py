"""Every verdict is the same on all seeds: `pytest tests/mutants/every_seed.py`, `-k lesson04` for one lesson.

The suite asks the same of each on one seed, drawn by its name (`test_exercises.py`).
"""

import pytest
from harness import SEEDS, failures, mutate
from suites import load_suites

from iocourse.course.exercise import find
from tests.mutation.references import build, exercise_source

SUITES = load_suites()


def listed(of):
    """Parameters with ids such as lesson04-4.2-name: `of` gives pairs of a name and what is tried."""
    return [
        pytest.param(suite.id, *tried, id=f"lesson{find(suite.id).lesson:02d}-{suite.id}-{name}")
        for suite in SUITES.values()
        for name, *tried in of(suite)
    ]


def accepting(exercise_id, function, fails):
    """The seeds on which the property `fails` holds."""
    return [seed for seed in SEEDS if fails not in failures(exercise_id, function, seed)]


@pytest.mark.parametrize(
    ("exercise_id", "mutant"), listed(lambda suite: [(mutant.name, mutant) for mutant in suite.mutants])
)
def test_a_mutant_fails_its_property_on_every_seed(exercise_id, mutant):
    assert accepting(exercise_id, mutate(exercise_id, mutant), mutant.fails) == []


@pytest.mark.parametrize(
    ("exercise_id", "function", "fails"),
    listed(lambda suite: [(function.__name__, function, fails) for function, fails in suite.cheats]),
)
def test_a_cheat_is_refused_on_every_seed(exercise_id, function, fails):
    assert accepting(exercise_id, function, fails) == []


@pytest.mark.parametrize("exercise_id", listed(lambda suite: [("reference",)]))
def test_the_reference_passes_on_every_seed(exercise_id):
    reference = build(exercise_id, exercise_source(exercise_id, solved=True))
    assert [(seed, failures(exercise_id, reference, seed)) for seed in SEEDS] == [(s, []) for s in SEEDS]


@pytest.mark.parametrize(
    ("exercise_id", "function"),
    listed(lambda suite: [(function.__name__, function) for function in suite.right]),
)
def test_another_right_answer_passes_on_every_seed(exercise_id, function):
    assert [(seed, failures(exercise_id, function, seed)) for seed in SEEDS] == [(s, []) for s in SEEDS]
