"""The kernels with the programs of each launch from the last to the first: a GPU runs them in any order.

`test_decode` has other orders for programs that count which is last. To run all tests of kernels this way:

    IOCOURSE_PROGRAMS=reversed pytest tests/kernels
"""

import fuzz
import pytest
import skip_without_interpreter  # noqa: F401

from iocourse.course.trials.kernel_launch import programs_reversed


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("seed", range(24))
def test_cases_drawn_by_chance(seed):
    with programs_reversed():
        assert fuzz.worst(fuzz.drawn(seed)) <= 1
