"""What a kernel takes of a multiprocessor, without a GPU: compile it for a chip and read the machine code."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .chips import REGISTERS_A_THREAD, chip_of
from .compile_jobs import described, job
from .hot_loop import Loop

Surroundings = tuple[int, float, str, tuple[tuple[str, str], ...]]
SLOW, LIMIT = 60.0, 300.0  # seconds after which a message says that a kernel is slow, and it is given up


class CompilationFailed(RuntimeError):
    """The compiler refused a kernel, which the message then quotes, or did not finish."""


class _Compiler(subprocess.Popen[str]):
    """The process that compiles, leader of a process group with the tools it starts.

    printed: the file to which kernels, their modules and those tools print.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        _, _, path, told = surroundings
        self.printed = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        super().__init__(
            [sys.executable, "-P", "-u", "-m", "iocourse.gpu.compile_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.printed,
            start_new_session=True,
            text=True,
            env=os.environ | {"PYTHONPATH": path} | dict(told),
        )

    def say_printed(self, what: str) -> None:
        """Print to stderr what was printed since the last call."""
        self.printed.seek(0)
        if text := self.printed.read().decode(errors="replace").strip():
            print(f"Printed while {what} was compiled:\n{text}", file=sys.stderr)
        self.printed.truncate(0)


_idle: dict[Surroundings, _Compiler] = {}  # compilers that nobody is waiting for


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

    Takes seconds, up to a minute for sm_75 and sm_100, and at most five minutes. Needs triton, and no GPU.
    Text printed during compilation, for instance by tl.static_print, is passed on to stderr.

    Args:
        kernel: a function under @triton.jit, of a module or a notebook's cell; it may be interpreted here.
        arch: 75, 80, 89, 90 or 100.
        arguments: the launch's arguments in order; tensors stand for their type and alignment only.
        constants: the kernel's tl.constexpr parameters; also num_warps, num_stages, enable_fp_fusion.

    Raises:
        ValueError: an unknown architecture, a parameter that is not given, or an option that no launch takes.
        TypeError: an argument or a constant of a type that cannot be compiled.
        CompilationFailed: the compiler refuses, or does not finish in five minutes.
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
            if process.poll() is not None:
                _end(process)
                process = _compiler(surroundings)
            yield _read(_asked(process, one), one["arch"])
        answered = process.poll() is None
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


def _compiler(surroundings: Surroundings) -> _Compiler:
    """An idle compiler, or a new one."""
    if kept := _idle.pop(surroundings, None):
        if kept.poll() is None:
            return kept
        _end(kept)
    return _Compiler(surroundings)


def _asked(process: _Compiler, job: dict[str, Any]) -> dict[str, Any]:
    """The compiler's answer. A compiler that gives none has ended, or is ended here."""
    assert process.stdin is not None and process.stdout is not None
    what, line, heard = described(job), "", True
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        heard = bool(select.select([process.stdout], [], [], SLOW)[0])
        if not heard:
            print(f"{what}: not compiled after {SLOW:g} s; the limit is {LIMIT:g} s", file=sys.stderr)
            heard = bool(select.select([process.stdout], [], [], LIMIT - SLOW)[0])
        line = process.stdout.readline() if heard else ""
    if not heard:
        _kill(process)
    code = None if line else process.wait()
    process.say_printed(what)
    if line:
        said: dict[str, Any] = json.loads(line)
        return said
    if heard:
        return {"error": f"{what}: the compiler ended with exit code {code}"}
    return {
        "error": f"{what}: not compiled within {LIMIT:g} s, so the compiler was stopped. Take a smaller "
        "tile, more warps or fewer stages"
    }


def _kill(process: _Compiler) -> None:
    """End a compiler, and the tools it has started, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: _Compiler) -> None:
    """Close a compiler's input, which ends it; kill it if it is busy."""
    with process.printed, suppress(BrokenPipeError), process:  # which closes its pipes and waits for it
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            _kill(process)


@atexit.register
def _end_all() -> None:
    while _idle:
        (pid, *_), process = _idle.popitem()
        if pid == os.getpid():
            _end(process)


def _read(said: dict[str, Any], arch: int) -> Resources | CompilationFailed:
    return CompilationFailed(said["error"]) if "error" in said else Resources.of(said | {"arch": arch})
