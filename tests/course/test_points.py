"""Tests of partial points: an answer that does nothing gets no points."""

from dataclasses import replace

import numpy as np
import pytest

from iocourse.course.checking import RUNS, judge, points_of
from iocourse.course.exercise import Case, Exercise, Property, exercises, run_schedule
from tests.mutation.references import INTERPRETED

NUMPY = [one for one in exercises().values() if one.lesson[:2] not in INTERPRETED]


OUTPUTS = ("Y", "C", "G", "L", "O", "dS", "dQ", "dK", "dV", "D")


# ------------------------------------------------------------------ answers that do nothing
def always(value):
    return lambda case, *given: value


def not_written(case, *given):
    raise NotImplementedError


def full_of(number):
    """Return this number in the expected shapes; 1 becomes True for each of several rows."""

    def answer(case, *given):
        want = case.expected if isinstance(case.expected, tuple) else (case.expected,)
        found = tuple(np.full(np.shape(part), float(number)) if np.ndim(part) else number for part in want)
        return found if isinstance(case.expected, tuple) else found[0]

    return answer


def first_input(case, *given):
    return next((one for one in given if isinstance(one, np.ndarray)), given[0])


def stored_zeros(case, machine, *arrays):
    """Schedule that loads nothing and stores zeros."""
    want = case.expected if isinstance(case.expected, tuple) else (case.expected,)
    sizes = {name: words for name, words in case.budget.sizes.items() if name in OUTPUTS}
    stored = []
    for part in want:
        name = next(one for one, words in sizes.items() if words == part.size)
        del sizes[name]
        stored.append(machine.new(name, part.shape))
        for row in machine.blocks(len(part), 1):
            with machine.zeros(row, *part.shape[1:]) as tile:
                machine.store(tile, stored[-1], row)
    return stored[0] if len(stored) == 1 else tuple(stored)


def loaded_and_stored_zeros(case, machine, *arrays):
    for array in arrays:
        for row in machine.blocks(array.shape[0], 1):
            machine.load(array, row).free()
    return stored_zeros(case, machine)


FUNCTIONS = {
    "return 0": always(0),
    "return None": always(None),  # and pass
    "the empty starter": not_written,
    "return (1, 1)": always((1, 1)),
    "return []": always([]),
    "return ()": always(()),
    "zeros": full_of(0),
    "ones": full_of(1),
    "the first input": first_input,
}
SCHEDULES = {"zeros": stored_zeros, "all loaded, zeros": loaded_and_stored_zeros}


def verdicts_on(exercise, cases, does):
    def run_case(student, case):
        def idler(*given, **named):
            return does(case, *given, *(one for one in named.values() if hasattr(one, "shape")))

        return exercise.run_case(idler, case)

    def idler():
        """Placeholder for an object that the exercise passes to the function."""

    return judge(replace(exercise, run_case=run_case, cases=lambda rng: cases), idler, 1)


@pytest.mark.parametrize("exercise", NUMPY, ids=lambda one: one.id)
def test_an_answer_that_does_nothing_is_worth_nothing(exercise):
    cases = exercise.cases(np.random.default_rng(1))
    schedules = SCHEDULES if exercise.run_case is run_schedule else {}
    found = {name: verdicts_on(exercise, cases, does) for name, does in (FUNCTIONS | schedules).items()}
    points = {name: points_of(exercise, verdicts) for name, verdicts in found.items()}
    assert not any(points.values()), points
    assert all(len(found[name]) == len(exercise.properties) for name in schedules)  # they ran


# ------------------------------------------------------------------ the rule
def made(**idle):
    properties = tuple(Property(name, lambda trials: None, idle=lazy) for name, lazy in idle.items())
    return Exercise("99.1", "", "f", 1, 4, 1, ("", "", ""), lambda rng: [Case("", {})], properties)


OF_FOUR = made(a=False, b=False, c=True, d=True)


@pytest.mark.parametrize(
    ("fails", "points"),
    [("", 4), ("a", 2), ("c", 3), ("ac", 1.5), ("cd", 2), ("ab", 0), ("abc", 0)],
)
def test_idle_properties_count_in_the_share_of_the_others(fails, points):
    verdicts = [(name, "wrong" if name in fails else None) for name in "abcd"]
    assert points_of(OF_FOUR, verdicts) == points


def test_what_does_not_run_is_worth_nothing():
    assert points_of(OF_FOUR, [(RUNS, "not written yet")]) == 0
