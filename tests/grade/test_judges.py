"""Tests that a crash or an endless loop of one judge process affects only its own submission."""

import os
import signal
import time
from functools import partial

import pytest

from iocourse.course.grade.batch import run_judges
from iocourse.errors import UsageError


def dies(how):
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "leaves":
        os._exit(3)
    elif how == "raises":
        raise ValueError("an \ud800 answer")
    elif how == "never ends":
        time.sleep(100)
    elif how == "full disk":
        raise UsageError("cannot write: no space left")


WHY = {
    "fine": "",
    "is killed": "its answers terminated the judge process (exit code -9)",
    "leaves": "its answers terminated the judge process (exit code 3)",
    "raises": "its answers cannot be judged: ValueError: an ? answer",
    "never ends": "judging its answers took too long",
    "fine too": "",
}


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_judge_that_ends_badly_costs_its_own_submission_only(jobs, tmp_path):
    assert dict(run_judges(dies, list(WHY), jobs, 3, str(tmp_path))) == WHY


def test_what_is_nobodys_answers_fault_ends_the_command_and_every_judge(tmp_path):
    an_hour = 3600  # if the endless judge were waited for, the time limit of this test would stop it
    with pytest.raises(UsageError, match="no space left"):
        list(run_judges(dies, ["never ends", "full disk"], 2, an_hour, str(tmp_path)))


def changes_the_class(known, name):
    known.append(name)
    if len(known) > 1:
        raise ValueError(f"knows of {known}")


def test_no_judge_knows_what_another_has_seen(tmp_path):
    done = run_judges(partial(changes_the_class, []), ["anna", "eve", "zoe"], 1, 60, str(tmp_path))
    assert dict(done) == {"anna": "", "eve": "", "zoe": ""}
