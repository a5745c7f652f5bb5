"""IOCOURSE_PROGRAMS=reversed runs the programs of every launch from the last to the first."""

import os
from contextlib import nullcontext

import pytest

from iocourse.course.trials.kernel_launch import programs_reversed


@pytest.fixture(autouse=True)
def order_of_programs():
    asked = os.environ.get("IOCOURSE_PROGRAMS") == "reversed"
    with programs_reversed() if asked else nullcontext():
        yield
