"""Stands in for a GPU where benchmarks are tested: no time in these tests is a measurement."""

import dataclasses
import json

import pytest

from iocourse.gpu.timing import ready
from tools.bench import contests, steps
from tools.bench.contest import FIRST

LAP = 1e9  # milliseconds; so long that few laps fill any time budget


class MadeUpWatch:
    """Runs the work, and makes the time up."""

    def laps(self, work, repeats):
        ready(work)()
        return [LAP] * repeats


class CpuPlace:
    """Stands in for a GPU."""

    device = "cpu"

    def __init__(self, free=10**9):
        self.stopwatch, self.free = MadeUpWatch(), free

    def facts(self):
        return {"name": "no GPU but a test", "arch": 90, "multiprocessors": 2}

    def free_bytes(self):
        return self.free

    def tidy(self):
        pass

    def sm_mhz(self):
        return 1980.0

    def close(self):
        pass


def in_a_hurry(monkeypatch):
    """Reduce timing to the fewest runs of an interpreted kernel: no warm-up, one repetition."""
    from functools import partial

    from iocourse.gpu import timing
    from tools.bench import contest

    monkeypatch.setattr(timing, "WARM_UPS", 0)
    monkeypatch.setattr(contest, "side_by_side", partial(timing.side_by_side, rounds=1, least=1))


def measured(name, asked, field, place, quick=False, **changes):
    """Return the record of a step at these shapes and with these implementations."""
    change = {"shapes": lambda quick: asked, "contenders": lambda place: field, **changes}
    contest = dataclasses.replace(contests.CONTESTS[name], **change)
    return [part for _, part in steps.contested(name, contest, steps.Visit(place, quick)) if part][-1]


def holds_numbers(record):
    """Return True if a record can be stored as JSON: no tensor, no NaN, no infinity."""
    return json.loads(json.dumps(record, allow_nan=False)) is not None


def by_contender(record, pass_):
    """Return the rows of a pass by implementation, from a record with one shape."""
    return {row["contender"]: row for row in record["rows"] if row["pass"] == pass_}


def is_wrong(record, pass_="forward", how=": "):
    """Return True if a row was not timed because its values are wrong, with details of the error."""
    return next(row for name, row in by_contender(record, pass_).items() if name in FIRST)[
        "refused"
    ].startswith(f"its values are wrong{how}")


def needs_the_interpreter():
    """Skip where kernels cannot run on CPU tensors."""
    pytest.importorskip("triton")
    from iocourse.doctor import cannot_interpret, installed

    problem = cannot_interpret(installed("triton"), installed("numpy"))
    if problem:
        pytest.skip(problem)
    from iocourse.kernels import INTERPRETED

    if not INTERPRETED:
        pytest.skip("kernels are compiled here, and this test is about CPU tensors")
