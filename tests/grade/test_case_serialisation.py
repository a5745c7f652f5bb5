"""A grader sends every case to the process in which the submission runs."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from iocourse.course.exercise import exercises
from tests.mutation.references import sources_of
from tools.build.notebook_execution import cannot_run


@pytest.mark.parametrize("exercise", exercises().values(), ids=lambda exercise: exercise.id)
def test_every_case_arrives_as_it_was_sent(exercise):
    if reason := cannot_run(sources_of(exercise.lesson)[0].read_text(encoding="utf-8")):
        pytest.skip(reason)
    for case in exercise.cases(np.random.default_rng(0)):
        sent = replace(case, expected=None, budget=None)
        arrived = pickle.loads(pickle.dumps(sent, protocol=5))
        assert (type(arrived), arrived.label, list(arrived.inputs)) == (
            type(case),
            case.label,
            list(case.inputs),
        )
