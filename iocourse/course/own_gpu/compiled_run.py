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
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...console import with_unit
from ...errors import error_text
from ...gpu.timing import CudaStopwatch, time_of
from ..grade.submission_process import execute, notebook_names
from .saved_answers import Answer
from .timed_problems import PROBLEMS, Draw, Inputs, TimedProblem

Launcher = Callable[..., Any]
OLDEST = (7, 5)  # compute capability of the oldest GPU for which Triton compiles
BUDGET_MS = 500  # approximate total time of the laps
INTERPRETED = {  # replacements of a lesson's lines about the interpreter
    'os.environ["TRITON_INTERPRET"] = "1"': 'os.environ["TRITON_INTERPRET"] = "0"',
    "assert kernels.INTERPRETED": "assert not kernels.INTERPRETED",
}
CHECK_FIRST = "Run its check in the notebook"
SECONDS = 600.0  # time limit of one exercise; a float32 kernel can take a minute to compile
PROGRAM = "from iocourse.course.own_gpu.compiled_run import main; main()"


# ------------------------------------------------------------------ the command's end
def run_compiled(exercise_id: str, answer: Answer, seconds: float = SECONDS) -> dict[str, Any]:
    """Run one exercise in a second process and return its report: measured values, or a `fault`."""
    job = {"exercise": exercise_id, "function": answer.function, "cells": answer.cells}
    # Files and a process group, because the compiler that a process starts may outlive it and hold a pipe.
    with (
        tempfile.TemporaryFile() as asked,
        tempfile.TemporaryFile() as answers,
        tempfile.TemporaryFile() as said,
    ):
        asked.write(json.dumps(job).encode())
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=asked, stdout=answers, stderr=said,
            env=os.environ | {"TRITON_INTERPRET": "0"}, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return {"fault": f"not finished after {seconds:g} seconds; does a loop of the kernel end?"}
        finally:
            _end(process)
        answers.seek(0)
        said.seek(0)
        try:
            report: dict[str, Any] = json.loads(answers.read())
        except ValueError:
            last = (said.read().decode(errors="replace").strip().splitlines() or ["no error was printed"])[-1]
            return {"fault": f"its process ended with exit code {code}: {last[:200]}"}
        return report


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it has started."""
    if hasattr(os, "killpg"):  # not on Windows
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


# ------------------------------------------------------------------ the process's end
class Unusable(Exception):
    """The exercise cannot be timed. The message is the reason, and what the student can do."""


class CudaDevice:
    """The GPU on which kernels run. Tests replace it by the CPU, the interpreter and made-up times."""

    name = "cuda"
    replacements = INTERPRETED

    def __init__(self) -> None:
        self.stopwatch: Any = None

    def sizes(self, problem: TimedProblem) -> Any:
        """Return the sizes at which the problem is timed."""
        return problem.sizes

    def facts(self) -> str:
        """Describe the device and the versions in one line. Raises Unusable for an unsupported GPU."""
        import torch
        import triton

        name, (major, minor) = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
        if torch.version.hip or (major, minor) < OLDEST:
            found = "is not an NVIDIA GPU" if torch.version.hip else f"has compute capability {major}.{minor}"
            raise Unusable(f"{name} {found}; the kernels need an NVIDIA GPU of 7.5 (T4) or later")
        versions = (
            f"Python {platform.python_version()}, torch {torch.__version__}, triton {triton.__version__}"
        )
        return f"{name} (sm_{major}{minor}), {versions}"

    def start(self) -> None:
        """Make this device the default of torch, and prepare the stopwatch."""
        import torch

        torch.set_default_device(self.name)
        self.stopwatch = CudaStopwatch()

    def wait(self) -> None:
        """Wait until the kernels have ended, so that an error of a kernel is raised here."""
        import torch

        torch.cuda.synchronize()


def report_of(job: dict[str, Any], device: Any) -> dict[str, Any]:
    """Run one exercise. Raises Unusable if its values are wrong or it cannot be run.

    Args:
        job: `exercise`, the `function` to call, and its `cells`: name, source, and whether it must not raise.
        device: the device to run on.
    """
    problem = PROBLEMS[job["exercise"]]
    report = {"device": device.facts()}
    device.start()
    launcher = defined(job, device.replacements)
    sizes = device.sizes(problem)
    inputs = problem.inputs(sizes, Draw(device.name, problem.dtype))
    results = results_of(problem, job["function"], launcher, inputs, device)
    error = largest_error(problem, inputs, results)
    timing = time_of(lambda: launcher(*inputs.arguments), stopwatch=device.stopwatch, budget_ms=BUDGET_MS)
    tensors = [x for x in (*inputs.arguments, *results) if hasattr(x, "element_size")]
    return report | {
        "error": error, "allowed": problem.allowed, "ms": timing.ms,
        "quartiles_ms": timing.quartiles_ms, "laps": timing.repeats,
        "host_ms": timing.host_ms, "host_bound": timing.host_bound,
        "flop": problem.flop(sizes) if problem.flop else None,
        "requested_bytes": problem.requested_bytes(sizes),
        "compulsory_bytes": sum(x.numel() * x.element_size() for x in tensors),
    }  # fmt: skip


def defined(job: dict[str, Any], replacements: dict[str, str]) -> Launcher:
    """Run the cells and return the student's launcher. An error matters only in cells of the exercise."""
    names = notebook_names()
    for name, source, own in job["cells"]:
        for old, new in replacements.items():
            source = source.replace(old, new)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            execute(source, name, names)
        except Exception as error:
            if own:
                raise Unusable(f"{name.strip('<>')} raises {one_line(error)}") from None
    if not callable(names.get(job["function"])):
        raise Unusable(f"no cell defines {job['function']}")
    launcher: Launcher = names[job["function"]]
    return launcher


def results_of(
    problem: TimedProblem, function: str, launcher: Launcher, inputs: Inputs, device: Any
) -> tuple[Any, ...]:
    """Call the launcher once and return its results, all finite. Raises Unusable otherwise."""
    try:
        value = launcher(*inputs.arguments)
        device.wait()
    except NotImplementedError:
        raise Unusable(f"{function} is not written yet") from None
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        raise Unusable(f"{function} raises {one_line(error)}. {CHECK_FIRST}") from None
    names = problem.results.split()
    results = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(results) != len(names) or not all(hasattr(x, "isfinite") for x in results):
        raise Unusable(f"{function} must return {with_unit(len(names), 'tensor')}, {', '.join(names)}")
    for name, x in zip(names, results, strict=True):
        if not bool(x.isfinite().all()):
            raise Unusable(f"{name} is wrong: it has entries that are not finite. {CHECK_FIRST}")
    return results


def largest_error(problem: TimedProblem, inputs: Inputs, results: tuple[Any, ...]) -> float:
    """Return the largest error over the largest entry of a result. Raises Unusable if it is not allowed."""
    try:
        errors = inputs.errors(*results)
    except (RuntimeError, IndexError) as error:  # of shapes that do not match
        raise Unusable(f"the results have wrong shapes: {one_line(error)}. {CHECK_FIRST}") from None
    shares = {name: error / largest for name, (error, largest) in errors.items()}
    for name, share in shares.items():
        if not share <= problem.allowed:
            found = f"largest error {share:.1e} of the largest entry, allowed {problem.allowed:.1e}"
            raise Unusable(f"{name} is wrong: {found}. {CHECK_FIRST}")
    return max(shares.values())


def one_line(error: BaseException, longest: int = 300) -> str:
    """Return the text of an error in one line of limited length; long messages keep both ends."""
    text = " ".join(error_text(error).split())
    return text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"


def main(device: Any = None) -> None:
    """Read the job, run it and print the report, or {"fault": reason}. Cells cannot print."""
    job, answers = json.load(sys.stdin), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        report = report_of(job, device or CudaDevice())
    except Unusable as reason:
        report = {"fault": str(reason)}
    except BaseException as error:  # also exit() in a cell
        short = "the GPU has not enough free memory; close other programs that use it"
        known = type(error).__name__ == "OutOfMemoryError"
        report = {"fault": short if known else one_line(error)}
    print(json.dumps(report), file=answers, flush=True)
