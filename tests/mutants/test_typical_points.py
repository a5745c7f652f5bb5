"""The rule of points on four typical answers to every exercise: `typical_answers.toml` and doing nothing."""

import pytest
from harness import drawn
from suites import cannot_run_lesson
from typical_answers import KINDS, declared, typical_answers

from iocourse.course.checking import judge
from iocourse.course.exercise import NotReached, exercises, find
from iocourse.course.points import points_of
from tests import typical_points

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
