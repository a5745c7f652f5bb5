"""What a kernel takes of a multiprocessor, without a GPU: compile it for a chip and read the machine code."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .chips import REGISTERS_A_THREAD, chip_of
from .hot_loop import Loop
from .jobs import job

Surroundings = tuple[int, float, str, tuple[tuple[str, str], ...]]
_idle: dict[Surroundings, subprocess.Popen[str]] = {}  # compilers that nobody is waiting for


class CompilationFailed(RuntimeError):
    """The compiler refused a kernel; the message is its last line."""


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes.

    registers: 32-bit registers a thread, 255 at most. spill_bytes: bytes of local memory a thread, where what
    did not fit into registers lives. shared_bytes: shared memory of one program. tensor_core, async_copies,
    bulk_reductions: instructions of each kind in the PTX. seconds: how long compiling took. mma_sync: the
    tensor-core instructions that take both operands from registers, all there were before sm_90. hot_loop:
    what one step of it issues; None where no loop multiplies, or none was recorded.
    """

    arch: int
    registers: int
    spill_bytes: int
    shared_bytes: int
    warps: int
    tensor_core: int
    async_copies: int
    bulk_reductions: int
    seconds: float
    mma_sync: int = 0
    hot_loop: Loop | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Resources:
        """A report out of names and values, as a recorded row has them; what else it says is left out."""
        known = {field.name: facts[field.name] for field in fields(cls) if field.name in facts}
        loop = known.get("hot_loop")
        return cls(**{"seconds": 0.0} | known | {"hot_loop": None if loop is None else Loop(**loop)})

    @property
    def fits(self) -> bool:
        """The hot loop keeps its registers, and shared memory is within the chip's.

        What is spilled outside that loop is stored and loaded once a program. Without a hot loop, nothing
        may be spilled at all.
        """
        spilled = self.spill_bytes if self.hot_loop is None else self.hot_loop.spills
        return spilled == 0 and self.shared_bytes <= chip_of(self.arch).shared_bytes

    @property
    def programs_at_once(self) -> int:
        """How many such programs one multiprocessor can hold: registers, shared memory and 64 warps allow
        it.
        """
        chip = chip_of(self.arch)
        a_warp = -(-self.registers * 32 // 256) * 256  # registers are handed out to a warp in units of 256
        by_registers = chip.registers // (a_warp * self.warps)
        by_shared = (chip.shared_bytes + 1024) // (self.shared_bytes + 1024)  # 1 KB a block is the system's
        return max(0, min(by_registers, by_shared, 64 // self.warps))

    def __str__(self) -> str:
        spills = f"{self.spill_bytes} bytes spilled" if self.spill_bytes else "nothing spilled"
        return (
            f"sm_{self.arch}: {self.registers} of {REGISTERS_A_THREAD} registers a thread, {spills}, "
            f"{self.shared_bytes / 1024:.1f} of {chip_of(self.arch).shared_bytes // 1024} KB shared memory, "
            f"{self.tensor_core} tensor-core and {self.async_copies} asynchronous copy instructions"
        )


def resources(kernel: Any, arch: int, *arguments: Any, **constants: Any) -> Resources:
    """Compile a kernel for an architecture, as a launch with these arguments would, and report what it takes.

    Takes seconds, and up to a minute for sm_75 and sm_100. Needs triton, and no GPU.

    Args:
        kernel: a function under @triton.jit, of a module or a notebook's cell; it may be interpreted here.
        arch: 75, 80, 89, 90 or 100.
        arguments: the launch's arguments in order; tensors stand for their type and alignment only.
        constants: the kernel's tl.constexpr parameters; also num_warps, num_stages, enable_fp_fusion.

    Raises:
        ValueError: an unknown architecture, or a parameter that is not given.
        CompilationFailed: the compiler refuses.
    """
    chip_of(arch)
    with tempfile.TemporaryDirectory() as folder:
        one = job(kernel, arch, arguments, {"enable_fp_fusion": True} | constants, Path(folder))
        (said,) = reports([one])
    if isinstance(said, CompilationFailed):
        raise said
    return said


def reports(jobs: Iterable[dict[str, Any]]) -> Iterator[Resources | CompilationFailed]:
    """The report of each job, as soon as it is there; one process compiles them all.

    It is kept for the next who asks, as it takes longer to start than most kernels to compile.
    """
    surroundings = _surroundings()
    process = _compiler(surroundings)
    answered = False
    try:
        for one in jobs:
            yield _read(_asked(process, one), one["arch"])
        answered = True
    finally:
        if not answered or _idle.setdefault(surroundings, process) is not process:
            _end(process)


def _surroundings() -> Surroundings:
    """What a compiler must have been started in: process, newest kernel, what it imports and reads."""
    newest = max(path.stat().st_mtime for path in Path(__file__).parents[1].glob("kernels/*.py"))
    # What can be imported here can be there; the current folder last, and -P, so that a random.py of the
    # student's in it does not stand for Python's own.
    path = os.pathsep.join([*filter(None, sys.path), os.getcwd()])
    told = {name: value for name, value in os.environ.items() if name.startswith(("TRITON", "CUDA", "LLVM"))}
    told |= {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    return os.getpid(), newest, path, tuple(sorted(told.items()))


def _compiler(surroundings: Surroundings) -> subprocess.Popen[str]:
    """An idle compiler, or a new one."""
    if kept := _idle.pop(surroundings, None):
        if kept.poll() is None:
            return kept
        _end(kept)
    _, _, path, told = surroundings
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "iocourse.gpu._compile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | dict(told),
    )


def _asked(process: subprocess.Popen[str], job: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise CompilationFailed(f"the compiler ended with exit code {process.wait()}")
    said: dict[str, Any] = json.loads(line)
    return said


def _end(process: subprocess.Popen[str]) -> None:
    with process:  # which closes its input and waits for it
        pass


@atexit.register
def _end_all() -> None:
    while _idle:
        (pid, *_), process = _idle.popitem()
        if pid == os.getpid():
            _end(process)


def _read(said: dict[str, Any], arch: int) -> Resources | CompilationFailed:
    return CompilationFailed(said["error"]) if "error" in said else Resources.of(said | {"arch": arch})
