"""Stands in for a GPU in the second process of `iocourse gpu`: the CPU, the interpreter and made-up times.

As a program, `python own_gpu_stub.py [late]` is that process.
"""

import os
import sys

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported; the command has set 0

from iocourse.course.own_gpu import compiled_run
from iocourse.gpu.timing import Lap, ready

LAP_MS, HOST_MS = 2.0, 0.5
_ATTENTION = {"N": 70, "d": 16, "BM": 16, "BN": 16}
SMALL = {  # sizes for the interpreter, ragged
    "10B": {"rows": 40, "columns": 24, "BM": 16, "BN": 16},
    "10C": {"rows": 5, "n": 70, "BLOCK": 32},
    "10D": {"m": 40, "n": 33, "k": 50, "BM": 16, "BN": 16, "BK": 16},
    "11A": _ATTENTION,
    "11B": _ATTENTION,
    "11C": {**_ATTENTION, "window": 20},
    "11D": {**_ATTENTION, "B": 1, "H": 2, "H_kv": 1},
    "11F": _ATTENTION,
    "12A": {"H": 2, "N": 70, "d": 16, "BM": 16},
    "12B": {**_ATTENTION, "H": 2},
    "12C": {**_ATTENTION, "H": 2},
    "12D": {**_ATTENTION, "H": 2},
    "13C": {**_ATTENTION, "window": 20},
}


class MadeUpWatch:
    """Runs the work once, and makes the times up; `late`: the laps began before they were queued."""

    def __init__(self, late):
        self.late = late

    def laps(self, work, repeats):
        ready(work)()
        return [Lap(LAP_MS, HOST_MS, self.late)] * repeats


class InterpretedCpu(compiled_run.CudaDevice):
    """Runs the kernels in the interpreter, on small problems."""

    name = "cpu"
    replacements = {"unchanged": "unchanged"}  # noqa: RUF012

    def __init__(self, late=False):
        self.late = late

    def sizes(self, problem):
        ids = {id(one): exercise for exercise, one in compiled_run.PROBLEMS.items()}
        return SMALL[ids[id(problem)]]

    def facts(self):
        return "no GPU but a test"

    def stopwatch(self):
        return MadeUpWatch(self.late)

    def wait(self):
        pass


if __name__ == "__main__":
    compiled_run.main(InterpretedCpu(late="late" in sys.argv))
