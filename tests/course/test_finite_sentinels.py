"""Tests that softmax kernels with a finite number instead of -inf are rejected if a score can be lower.

The cases have scores of -10^25 and below. -10^30 is accepted if the row attends to a key, because it is below
every score that float32 inputs of a model can have. In 10C the numbers themselves are the input, down to the
end of float32, and -10^30 is refused.
"""

import re

import pytest

from tools.build.notebook_execution import cannot_run

if reason := cannot_run("import torch, triton\n"):
    pytest.skip(reason, allow_module_level=True)

from iocourse.course.checking import judge
from iocourse.course.exercise import find
from tests.mutation.references import build, exercise_source

KERNELS = ["10C", "11A", "11B", "11C", "11D", "11E", "13C", "13D", "14C", "14D"]
SEES_NOTHING = {"11C", "13C", "14C"}  # the result of a row without a key reveals the number
ANY_FLOAT32 = {"10C"}  # its rows are near the end of float32


def failing(exercise_id, number):
    source = exercise_source(exercise_id, solved=True)
    infinite = re.compile(r'float\("-inf"\)|-float\("inf"\)')
    assert infinite.search(source)
    answer = build(exercise_id, infinite.sub(number, source))
    return [name for name, complaint in judge(find(exercise_id), answer, 3) if complaint]


@pytest.mark.parametrize("exercise_id", KERNELS)
def test_what_is_above_a_score_is_refused(exercise_id):
    assert failing(exercise_id, "-1.0e20")


@pytest.mark.parametrize("exercise_id", [one for one in KERNELS if one not in SEES_NOTHING | ANY_FLOAT32])
def test_what_is_below_every_score_is_accepted(exercise_id):
    assert failing(exercise_id, "-1.0e30") == []


@pytest.mark.parametrize("exercise_id", sorted(SEES_NOTHING | ANY_FLOAT32))
def test_what_is_above_some_result_is_refused(exercise_id):
    assert failing(exercise_id, "-1.0e30")
