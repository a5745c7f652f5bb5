"""Tests that every case of every exercise can be sent to the process of a submission."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from iocourse.course.exercise import exercises
from tests.mutation.references import INTERPRETED, build, exercise_source, sources_of
from tools.build.notebook_execution import cannot_run


@pytest.fixture(params=exercises().values(), ids=lambda exercise: exercise.id)
def exercise(request):
    if reason := cannot_run(sources_of(request.param.lesson)[0].read_text(encoding="utf-8")):
        pytest.skip(reason)
    return request.param


def test_every_case_arrives_as_it_was_sent(exercise):
    for case in exercise.cases(np.random.default_rng(0)):
        sent = replace(case, expected=None, budget=None)
        arrived = pickle.loads(pickle.dumps(sent, protocol=5))
        kept = (type(case), case.label, list(case.inputs))
        assert (type(arrived), arrived.label, list(arrived.inputs)) == kept


def test_the_reference_runs_on_every_case_without_what_is_expected_of_it(exercise):
    reference = build(exercise.id, exercise_source(exercise.id, solved=True))
    cases = exercise.cases(np.random.default_rng(0))
    for case in cases[:1] if exercise.lesson[:2] in INTERPRETED else cases:
        trial = exercise.run_case(reference, replace(case, expected=None, budget=None))
        assert trial.error is None, (case.label, trial.error)
