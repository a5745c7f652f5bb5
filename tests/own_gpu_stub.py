"""Stands in for a GPU in the second process of `iocourse gpu`: the CPU, the interpreter and made-up times."""

import os
from types import MappingProxyType

os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, in the place of the command's 0

import torch

from iocourse.course.own_gpu import compiled_run
from iocourse.gpu.timing import Lap, ready

LAP_MS, HOST_MS = 2.0, 0.5


class MadeUpWatch:
    """Runs the work once, and makes the times up; `late`: the laps began before they were queued."""

    def __init__(self, late=False):
        self.late = late

    def laps(self, work, repeats):
        ready(work)()
        return [Lap(LAP_MS, HOST_MS, self.late)] * repeats


class InterpretedCpu(compiled_run.CudaDevice):
    """Runs the kernels in the interpreter, on the small sizes of the problems."""

    name = "cpu"
    replacements = MappingProxyType({})

    def __init__(self, late=False):
        self.stopwatch = MadeUpWatch(late)

    def sizes(self, problem):
        return problem.small

    def facts(self):
        return "no GPU but a test"

    def start(self):
        torch.set_default_device("cpu")

    def wait(self):
        pass
