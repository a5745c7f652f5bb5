"""Where a benchmark runs: everything it asks of a GPU, in one small class that a test can stand in for."""

from __future__ import annotations

import gc

from iocourse.data.recorded import provenance, recorded
from iocourse.gpu.timing import CudaStopwatch, no_cuda
from iocourse.refusal import Refused
from tools.bench.device import device_facts


class Place:
    """The current CUDA device, and what takes its time."""

    device = "cuda"
    facts = staticmethod(device_facts)  # what a record says about it

    def __init__(self) -> None:
        """Make a stopwatch. Raises `NeedsCuda` where there is no GPU."""
        self.stopwatch = CudaStopwatch()
        import torch

        self._cuda = torch.cuda

    def free_bytes(self) -> int:
        """Memory for tensors: what the driver has free, and what torch holds for tensors to come."""
        held = self._cuda.memory_reserved() - self._cuda.memory_allocated()
        return int(self._cuda.mem_get_info()[0] + held)

    def tidy(self) -> None:
        """Give memory back that nobody uses any more: collect garbage and empty torch's cache."""
        gc.collect()
        self._cuda.empty_cache()


def nothing_compiled() -> str:
    """Why no kernel of ours runs compiled in this process; "" where it does."""
    if reason := no_cuda():
        return f"no GPU, {reason}"
    try:
        from iocourse.kernels import INTERPRETED
    except ImportError as error:
        return f"no kernels, {error}"
    return "kernels are interpreted in this process; unset TRITON_INTERPRET" if INTERPRETED else ""


def cuda_place(subject: str) -> Place:
    """The GPU of this process, where kernels are compiled for it.

    Raises Refused where there is none, triton is missing, or kernels are interpreted; the line says what can
    be done instead, and names the recorded run of the subject.
    """
    if reason := nothing_compiled():
        raise Refused(
            f"{reason}, and this subject times kernels on an NVIDIA GPU: run it where one is; "
            f"without one, `python -m tools.bench resources` compiles every kernel for every chip. "
            f"Shipped with the course: {provenance(recorded(subject))}."
        )
    return Place()
