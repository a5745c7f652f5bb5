"""The rule of points on four typical answers to every exercise: `typical_answers.toml` and doing nothing."""

import importlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from harness import drawn, solved
from suites import cannot_run_lesson
from typical_answers import KINDS, declared, typical_answers

from iocourse.course.checking import failed_properties, judge
from iocourse.course.exercise import NotReached, exercises, find
from iocourse.course.points import points_of
from iocourse.course.trials.rank_runs import run_distributed
from tests import typical_points
from tests.mutation.references import build

TYPICAL = [one for exercise_id in exercises() for one in typical_answers(exercise_id)]
MADE = [one for one in TYPICAL if one.make]
AT_LEAST_FOR_EXACT_TRAFFIC, AT_MOST_FOR_RIGHT_VALUES = 0.4, 0.6


def has_traffic(exercise):
    return any(one.traffic for one in exercise.properties)


def judged(one):
    """Return the exercise, the verdicts on the answer, and its share of the points."""
    exercise = find(one.id)
    if reason := cannot_run_lesson(exercise.lesson):
        pytest.skip(reason)
    verdicts = judge(exercise, one.make(), drawn(one.id, one.kind))
    return exercise, dict(verdicts), points_of(exercise, verdicts).total / exercise.importance


@pytest.mark.parametrize("exercise", exercises().values(), ids=lambda one: one.id)
def test_every_exercise_has_its_typical_answers(exercise):
    assert set(declared()[exercise.id]) == set(KINDS if has_traffic(exercise) else KINDS[:1])


@pytest.mark.parametrize("one", [one for one in MADE if one.kind == "factor"], ids=lambda one: one.id)
def test_a_forgotten_factor_with_exact_traffic_earns_at_least_two_fifths(one):
    exercise, said, share = judged(one)
    assert any(said[prop.name] for prop in exercise.properties if not prop.traffic)
    assert 0 < share < 1
    if has_traffic(exercise):
        assert not any(said[prop.name] for prop in exercise.properties if prop.traffic)
        assert share >= AT_LEAST_FOR_EXACT_TRAFFIC


@pytest.mark.parametrize(
    "one", [one for one in MADE if one.kind != "factor"], ids=lambda one: f"{one.id}-{one.kind}"
)
def test_right_values_with_untiled_or_doubled_traffic_earn_at_most_three_fifths(one):
    exercise, said, share = judged(one)
    assert not any(said[prop.name] for prop in exercise.properties if not prop.traffic)
    failed = [prop for prop in exercise.properties if said[prop.name] is not None]
    assert failed and not any(isinstance(said[prop.name], NotReached) for prop in failed)
    assert 0 < share <= AT_MOST_FOR_RIGHT_VALUES


def test_the_command_prints_the_points_that_are_tested(capsys):
    typical_points.main(["--only", "2A"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["answer", "values", "traffic", "total", "share"]
    for one, line in zip(typical_answers("2A"), lines, strict=True):
        *_, share = judged(one)
        assert line.split()[:2] == ["2A", one.kind] and line.split()[5] == f"{share:.0%}"


# ------------------------------------------------------------------ kernels and ranks that do nothing
KERNELS = [one.id for one in exercises().values() if one.run_case.__module__.endswith("kernel_launch")]
RANKS = [one.id for one in exercises().values() if one.run_case is run_distributed]


def share_of(exercise, answer):
    verdicts = judge(exercise, answer, drawn(exercise.id, "nothing"))
    assert failed_properties(verdicts)
    return points_of(exercise, verdicts).total


def told_shapes(exercise):
    """Return the exercise whose answers get the shapes of the results as their first argument."""

    def run_case(answer, case):
        expected = case.expected if isinstance(case.expected, tuple) else (case.expected,)
        return exercise.run_case(partial(answer, [np.shape(part) for part in expected]), case)

    return replace(exercise, run_case=run_case)


@pytest.fixture
def kernels_that_do_nothing():
    if reason := cannot_run_lesson("10"):
        pytest.skip(reason)
    return importlib.import_module("nothing_done")


@pytest.mark.parametrize("exercise_id", KERNELS)
def test_zeros_stored_by_kernels_after_the_right_loads_earn_nothing(exercise_id, kernels_that_do_nothing):
    assert share_of(find(exercise_id), kernels_that_do_nothing.zeros_stored(exercise_id)) == 0


@pytest.mark.parametrize("answer", ["input_copied", "zeros_of_torch"])
@pytest.mark.parametrize("exercise_id", KERNELS)
def test_copies_and_zeros_of_torch_earn_nothing(exercise_id, answer, kernels_that_do_nothing):
    assert share_of(told_shapes(find(exercise_id)), getattr(kernels_that_do_nothing, answer)) == 0


@pytest.mark.parametrize("exercise_id", RANKS)
def test_ranks_that_return_zeros_earn_nothing(exercise_id):
    reference = build(exercise_id, solved(exercise_id))

    def zeros(*given, **options):
        results = reference(*given, **options)
        return tuple(map(np.zeros_like, results)) if isinstance(results, tuple) else np.zeros_like(results)

    assert share_of(find(exercise_id), zeros) == 0


@pytest.mark.parametrize("exercise_id", RANKS)
def test_ranks_that_send_nothing_and_return_their_own_rows_earn_nothing(exercise_id):
    several = exercise_id == "18C"  # it returns three arrays

    def own_rows(me, *shards, **options):
        return shards[:3] if several else shards[0]

    assert share_of(find(exercise_id), own_rows) == 0
