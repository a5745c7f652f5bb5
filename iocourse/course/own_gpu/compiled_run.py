"""The second process of `iocourse gpu`: run a student's cells with compiled kernels, compare and time them.

This module contains both ends. `run_compiled` starts a process per exercise, because a kernel that fails
leaves the GPU unusable for its process. The process (`main`) reads a job as JSON and prints a report as JSON.
"""

from __future__ import annotations

import json
import linecache
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...console import with_unit
from ...errors import error_text
from ...gpu.interpreter_lines import COMPILED_INSTEAD
from ...gpu.timing import CudaStopwatch, time_of
from ..exercise import find
from ..grade.submission_process import execute, notebook_names
from .saved_answers import Cell
from .timed_problems import PROBLEMS, Draw, Sizes, TimedProblem

PROGRAM = "from iocourse.course.own_gpu.compiled_run import main; main()"
SECONDS = 600.0  # time limit of one exercise; a float32 kernel can take a minute to compile
BUDGET_MS = 500  # approximate total time of the laps
OLDEST = (7, 5)  # compute capability of the oldest GPU that was compiled for
MEMORY = "not enough free GPU memory. Close other programs that use it"
Report = dict[str, Any]
Launcher = Callable[..., Any]


# ------------------------------------------------------------------ the command's end
def run_compiled(exercise_id: str, cells: Sequence[Cell]) -> Report:
    """Run one exercise in a second process and return its measured values, or a `fault`."""
    # Files instead of pipes, because a compiler that the process has started can outlive it and hold a pipe.
    with tempfile.TemporaryFile() as job, tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as log:
        job.write(json.dumps([exercise_id, cells]).encode())
        job.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=job, stdout=answer, stderr=log,
            env=os.environ | {"TRITON_INTERPRET": "0"}, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return {"fault": f"not finished after {SECONDS:g} seconds. Does every loop of the kernel end?"}
        finally:
            _end(process)
        answer.seek(0)
        log.seek(0)
        with suppress(ValueError):
            report: Report = json.loads(answer.read())
            return report
        lines = log.read().decode(errors="replace").strip().splitlines() or ["no error was printed"]
        return {"fault": f"the second process ended with exit code {code}: {lines[-1][:200]}"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it has started."""
    if hasattr(os, "killpg"):  # not on Windows
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


# ------------------------------------------------------------------ the process's end
class NotTimed(Exception):
    """The exercise is not timed; the message is the reason."""


class Wrong(NotTimed):
    """The student's function fails or returns wrong values."""

    def __str__(self) -> str:
        """Return the reason, and what to do."""
        return f"{super().__str__()}. Run its check in the notebook"


class CudaDevice:
    """The GPU that runs the kernels. In tests the CPU replaces it, with the interpreter and made-up times."""

    name = "cuda"
    replacements: Mapping[str, str] = COMPILED_INSTEAD

    def sizes(self, problem: TimedProblem) -> Sizes:
        """Return the sizes at which a problem is timed."""
        return problem.sizes

    def facts(self) -> str:
        """Return the device and the versions in one line. Raises NotTimed for an unsupported GPU."""
        import torch
        import triton

        name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        if torch.version.hip or (major, minor) < OLDEST:
            found = "is not an NVIDIA GPU" if torch.version.hip else f"has compute capability {major}.{minor}"
            raise NotTimed(f"{name} {found}; use an NVIDIA GPU of 7.5 (T4) or later")
        versions = f"torch {torch.__version__}, triton {triton.__version__}"
        return f"{name} (sm_{major}{minor}), Python {platform.python_version()}, {versions}"

    def stopwatch(self) -> Any:
        """Return the stopwatch that measures the laps."""
        return CudaStopwatch()

    def wait(self) -> None:
        """Wait for the kernels, so that their errors are raised here."""
        import torch

        torch.cuda.synchronize()


def report_of(exercise_id: str, cells: Sequence[Cell], device: CudaDevice) -> Report:
    """Run the cells, compare the values and time the launcher. Raises NotTimed with the reason."""
    import torch

    facts, problem = device.facts(), PROBLEMS[exercise_id]
    torch.set_default_device(device.name)
    launcher, sizes = launcher_of(find(exercise_id).function, cells, device), device.sizes(problem)
    inputs = problem.inputs(sizes, Draw(device.name, problem.dtype))
    results = results_of(launcher, problem, inputs.arguments, device)
    error = largest_error(problem, inputs.errors, results)
    timing = time_of(lambda: launcher(*inputs.arguments), stopwatch=device.stopwatch(), budget_ms=BUDGET_MS)
    tensors = [x for x in (*inputs.arguments, *results) if isinstance(x, torch.Tensor)]
    return vars(timing) | {
        "device": facts,
        "error": error,
        "allowed": problem.allowed,
        "flop": problem.flop(sizes) if problem.flop else None,
        "requested_bytes": problem.requested_bytes(sizes),
        "compulsory_bytes": sum(x.numel() * x.element_size() for x in tensors),
    }


def launcher_of(function: str, cells: Sequence[Cell], device: CudaDevice) -> Launcher:
    """Run the cells and return the launcher that they define. Errors in answers to other exercises pass."""
    names = notebook_names()
    for name, source, matters in cells:
        for old, new in device.replacements.items():
            source = source.replace(old, new)
        file = f"<{name}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # for Triton
        try:
            execute(source, file, names)
        except Exception as error:
            if matters:
                raise NotTimed(f"{name} raises {one_line(error)}") from None
    launcher: Launcher | None = names.get(function)
    if not callable(launcher):
        raise NotTimed(f"no cell defines {function}")
    return launcher


def results_of(
    launcher: Launcher, problem: TimedProblem, arguments: Sequence[Any], device: CudaDevice
) -> tuple[Any, ...]:
    """Call the launcher once and return its results. Raises Wrong if it fails or they are not finite."""
    import torch

    try:
        value = launcher(*arguments)
        device.wait()
    except NotImplementedError:
        raise NotTimed("not solved: it raises NotImplementedError") from None
    except Exception as error:
        if is_memory_error(error):
            raise
        raise Wrong(f"it raises {one_line(error)}") from None
    names, results = problem.results.split(), value if isinstance(value, (tuple, list)) else (value,)
    if len(results) != len(names) or not all(isinstance(x, torch.Tensor) for x in results):
        raise Wrong(f"it must return {with_unit(len(names), 'tensor')}: {', '.join(names)}")
    if wrong := [name for name, x in zip(names, results, strict=True) if not x.isfinite().all()]:
        raise Wrong(f"values that are not finite in {', '.join(wrong)}")
    return tuple(results)


def largest_error(problem: TimedProblem, errors: Callable[..., dict[str, float]], results: Any) -> float:
    """Return the largest error over the largest entry. Raises Wrong if it is more than allowed."""
    try:
        found = errors(*results)
    except (RuntimeError, IndexError) as error:
        if is_memory_error(error):
            raise
        raise Wrong(f"results of wrong shapes: {one_line(error)}") from None
    for name, share in found.items():
        if not share <= problem.allowed:
            limit = f"allowed {problem.allowed:.1e}"
            raise Wrong(f"wrong values: {name} has an error of {share:.1e} of its largest entry, {limit}")
    return max(found.values())


def is_memory_error(error: BaseException) -> bool:
    """Return True for the error that torch raises if the GPU's memory is full."""
    return type(error).__name__ == "OutOfMemoryError"


def one_line(error: BaseException, longest: int = 300) -> str:
    """Return an error in one line, without the middle if it is long."""
    text = " ".join(error_text(error).split())
    return text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"


def main(device: CudaDevice | None = None) -> None:
    """Read the job, run it, and print the report or {"fault": reason}. Output of cells is discarded."""
    exercise_id, cells = json.load(sys.stdin)
    answer = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        report = report_of(exercise_id, cells, device or CudaDevice())
    except NotTimed as reason:
        report = {"fault": str(reason)}
    except BaseException as error:  # also exit() in a cell
        report = {"fault": MEMORY if is_memory_error(error) else one_line(error)}
    with os.fdopen(answer, "w", encoding="utf-8") as file:
        json.dump(report, file)
