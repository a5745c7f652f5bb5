"""Resource use of a kernel, without a GPU: compile it for a chip and read the machine code.

`job` describes a kernel and its arguments. Another process (`compile_worker`) compiles it, and its
report becomes `Resources`.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from .chips import REGISTER_UNIT, REGISTERS_A_THREAD, SCHEDULERS, chip_of
from .hot_loop import Loop

Surroundings = tuple[int, float, str, tuple[tuple[str, str], ...]]
SLOW, LIMIT = 60.0, 300.0  # seconds until a message about a slow kernel, and until compilation is aborted
MAIN = "notebook_kernel"  # the module that a notebook's own kernel becomes
_IMPORTS = "import triton\nimport triton.language as tl\n"
OPTIONS: dict[str, tuple[Collection[Any], str]] = {  # of a launch: allowed values, and their description
    "num_warps": ((1, 2, 4, 8, 16, 32), "1, 2, 4, 8, 16 or 32"),
    "num_stages": (range(1, 17), "1 to 16"),
    "num_ctas": ((1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
    "maxnreg": (range(1, 256), "1 to 255"),
    "enable_fp_fusion": ((True, False), "True or False"),
}
_TYPES = re.compile(r"float(16|32|64)|bfloat16|u?int(8|16|32|64)|bool")  # of a tensor's elements


class CompilationFailed(RuntimeError):
    """Error: the compiler failed, and the message quotes it, or it did not finish in time."""


@dataclass(frozen=True)
class Resources:
    """Resources that one compiled kernel uses.

    registers: 32-bit registers per thread, at most 255. spill_bytes: bytes of local memory per thread, used
    for spilled registers. shared_bytes: shared memory per program. tensor_core, async_copies,
    bulk_reductions: instructions of each kind in the PTX. seconds: compile time. mma_sync: tensor-core
    instructions with both operands in registers, the only kind before sm_90. hot_loop: instructions of one
    iteration of the inner loop; None if no loop multiplies or none was recorded. machine_code: fingerprint of
    what the compiler made, without names and line numbers.
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
    machine_code: str = field(default="", repr=False)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Resources:
        """Return a report from the names and values of a recorded row; other keys are ignored."""
        known = {one.name: facts[one.name] for one in fields(cls) if one.name in facts}
        loop = known.get("hot_loop")
        return cls(**{"seconds": 0.0} | known | {"hot_loop": None if loop is None else Loop(**loop)})

    @property
    def fits(self) -> bool:
        """True if the inner loop spills no registers and shared memory is within the chip's limit.

        Spills outside the loop cost one store and load per program and are accepted. Without a hot loop,
        no spills are accepted.
        """
        spilled = self.spill_bytes if self.hot_loop is None else self.hot_loop.spills
        return spilled == 0 and self.shared_bytes <= chip_of(self.arch).shared_bytes

    @property
    def programs_at_once(self) -> int:
        """Occupancy: the number of programs that one SM can hold."""
        return min(self.program_limits.values())

    @property
    def program_limits(self) -> dict[str, int]:
        """The number of programs that one SM could hold by each limit alone: registers, shared memory, warps
        and blocks. Shared memory is not rounded up to its unit of allocation.
        """
        chip = chip_of(self.arch)
        a_warp = -(-self.registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
        by_scheduler = chip.registers // SCHEDULERS // a_warp  # warps
        shared = self.shared_bytes + chip.reserved_bytes
        return {
            "registers": by_scheduler * SCHEDULERS // self.warps,
            "shared memory": chip.shared_bytes_per_sm // shared if shared else chip.blocks,
            "warps": chip.warps // self.warps,
            "blocks": chip.blocks,
        }

    def __str__(self) -> str:
        spills = f"{self.spill_bytes} bytes spilled" if self.spill_bytes else "nothing spilled"
        return (
            f"sm_{self.arch}: {self.registers} of {REGISTERS_A_THREAD} registers per thread, {spills}, "
            f"{self.shared_bytes / 1024:.1f} of {chip_of(self.arch).shared_bytes // 1024} KB shared memory, "
            f"{self.tensor_core} tensor-core and {self.async_copies} asynchronous copy instructions"
            f"{self._loop()}"
        )

    def _loop(self) -> str:
        """Return a clause about the inner loop and its products, "" if a record has no names of them."""
        if (loop := self.hot_loop) is None or loop.opcodes is None:
            return ""
        return f"; inner loop: {loop.instructions:,} instructions, {loop.products_in_words}"


def resources(kernel: Any, arch: int, *arguments: Any, **constants: Any) -> Resources:
    """Compile a kernel for an architecture, as for a launch with these arguments, and return its resources.

    Takes seconds, up to a minute for sm_75 and sm_100, and at most five minutes. Needs triton but no GPU.
    Text printed during compilation, for example by tl.static_print, is printed to stderr.

    Args:
        kernel: a function under @triton.jit, of a module or a notebook's cell; it may be interpreted here.
        arch: 75, 80, 89, 90 or 100.
        arguments: the launch's arguments in order; of tensors only type and alignment are used.
        constants: the kernel's tl.constexpr parameters; also num_warps, num_stages, enable_fp_fusion.

    Returns:
        Resources of the compiled kernel.

    Raises:
        ValueError: an unknown architecture, a missing argument, or an unknown option.
        TypeError: an argument or a constant of a type that cannot be compiled.
        CompilationFailed: the compiler fails, or does not finish in five minutes.
    """
    chip_of(arch)
    with tempfile.TemporaryDirectory() as folder:
        one = job(kernel, arch, arguments, {"enable_fp_fusion": True} | constants, Path(folder))
        (said,) = reports([one])
    if isinstance(said, CompilationFailed):
        raise said
    return said


# The job: a kernel and its arguments as JSON.


def job(
    kernel: Any, arch: int, arguments: tuple[Any, ...], constants: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Return the job with which `compile_worker` compiles `kernel` as for a launch with these arguments.

    Args:
        kernel: a function under @triton.jit, of a module or a notebook's cell; it may be interpreted here.
        arch: the architecture, such as 90 for sm_90.
        arguments: the launch's arguments in order: tensors, numbers, descriptors, None.
        constants: the kernel's tl.constexpr parameters, and options such as num_warps and num_stages.
        folder: directory for the source of a notebook's kernel.
    """
    function = _function(kernel)
    names = list(inspect.signature(function).parameters)
    options = {name: value for name, value in constants.items() if name not in names}
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: {function.__name__} has no such parameter. Use its own parameters or "
            f"{', '.join(OPTIONS)}"
        )
    if wrong := wrong_option(options):
        raise ValueError(wrong)
    if len(arguments) > len(names):
        raise ValueError(f"{function.__name__} takes {len(names)} arguments, got {len(arguments)}")
    given = dict(zip(names, arguments, strict=False)) | {n: v for n, v in constants.items() if n in names}
    absent = [name for name in names if name not in given]
    if absent:
        raise ValueError(f"{function.__name__} is missing the arguments {', '.join(absent)}")
    signature, values, aligned = specialised(function, given, set(_do_not_specialize(kernel)))
    for (at, *_), value in values:
        try:
            json.dumps(value)
        except TypeError:
            raise TypeError(
                f"{names[at]} is compiled in, so it must be a number, True, False, None, a string, or a "
                f"tuple of these, got {value!r}"
            ) from None
    return {
        **_place(function, folder),
        "arch": arch,
        "signature": signature,
        "constants": values,
        "aligned": aligned,
        "options": options,
    }


def wrong_option(options: Mapping[str, Any]) -> str:
    """Return what is wrong with the first wrong option of a launch, or ""; unknown names are ignored."""
    for name, value in options.items():
        allowed, words = OPTIONS.get(name, ((), ""))
        if words and (
            type(value) is not (bool if name == "enable_fp_fusion" else int) or value not in allowed
        ):
            return f"{name} must be {words}, got {value!r}"
    return ""


def described(job: dict[str, Any]) -> str:
    """Return the kernel of a job with its constants and options as text, for messages."""
    names = list(job["signature"])
    given = {names[at[0]]: value for at, value in job["constants"] if len(at) == 1} | job["options"]
    parts = (
        f"{name}={tuple(value['values']) if isinstance(value, dict) else value}"
        for name, value in given.items()
    )
    return f"{job['name']}({', '.join(parts)}) for sm_{job['arch']}"


def specialised(
    function: types.FunctionType, given: dict[str, Any], plain: Collection[str] = ()
) -> tuple[dict[str, Any], list[tuple[list[int], Any]], list[list[int]]]:
    """Return Triton's specialisation of a kernel for a launch with these arguments.

    Args:
        function: the Python function of the kernel.
        given: a value for each of its parameters.
        plain: parameters under `do_not_specialize`.

    Returns:
        The type of each parameter; the positions and values that are compiled in; the positions of multiples
        of 16. A NamedTuple that is compiled in becomes a dict of "fields" and "values", which JSON can store.
    """
    parameters = inspect.signature(function).parameters
    fixed = {name for name, one in parameters.items() if "constexpr" in str(one.annotation)}
    signature: dict[str, Any] = {}
    values: list[tuple[list[int], Any]] = []
    aligned: list[list[int]] = []
    for at, name in enumerate(parameters):
        if name in fixed:
            signature[name] = "constexpr"
            value = given[name]
            parts = getattr(value, "_fields", None)
            values.append(([at], {"fields": list(parts), "values": list(value)} if parts else value))
        else:
            try:
                signature[name] = _kinds(given[name], [at], name in plain, values, aligned)
            except TypeError as error:
                raise TypeError(f"{name} {error}") from None
    return signature, values, aligned


def _kinds(
    value: Any, path: list[int], plain: bool, values: list[tuple[list[int], Any]], aligned: list[list[int]]
) -> Any:
    """Return the type of an argument, or of each part of a tuple. Append what is compiled in to `values`, and
    positions of multiples of 16 to `aligned`.

    A NamedTuple, whose parts a kernel reads by name, becomes a dict of "fields" (names) and "kinds" (types).
    """
    if isinstance(value, tuple):
        # Triton ignores do_not_specialize within tuples.
        parts = [_kinds(one, [*path, at], False, values, aligned) for at, one in enumerate(value)]
        fields = getattr(value, "_fields", None)
        return {"fields": list(fields), "kinds": parts} if fields else parts
    kind = _type(value, plain)
    if kind == "constexpr":
        values.append((path, value))
    elif not plain and _divisible(value):
        aligned.append(path)
    return kind


def _function(kernel: Any) -> types.FunctionType:
    """Return the Python function of a kernel without its decorators."""
    function = kernel
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    if function is kernel or not inspect.isfunction(function):
        raise TypeError(f"kernel must be a function under @triton.jit, got a {type(kernel).__name__}")
    return function


def _do_not_specialize(kernel: Any) -> list[str]:
    stated = getattr(kernel, "do_not_specialize", None)
    if stated is None:  # an interpreted kernel does not store it; read the decorator in the source
        found = re.search(r"do_not_specialize=\[([^\]]*)\]", inspect.getsource(_function(kernel)))
        stated = re.findall(r"[\"'](\w+)[\"']", found[1]) if found else []
    return list(stated)


def _type(value: Any, plain: bool) -> str:
    """Return the type of an argument as Triton abbreviates it, or "constexpr" if it is compiled in."""
    if value is None or isinstance(value, bool):
        return "constexpr"
    if isinstance(value, int):
        if value == 1 and not plain:
            return "constexpr"
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    if isinstance(value, float):
        return "fp32"
    if hasattr(value, "block_shape"):
        return f"tensordesc<{_short(value.base.dtype)}{list(value.block_shape)}>"
    if hasattr(value, "data_ptr"):
        return f"*{_short(value.dtype)}"
    raise TypeError(f"must be or contain tensors, numbers, descriptors or None, got a {type(value).__name__}")


def _short(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if not _TYPES.fullmatch(name):
        raise TypeError(
            f"must be a tensor of float16, bfloat16, float32, float64, bool or integers, got {name}"
        )
    letters = {"float": "fp", "int": "i", "uint": "u"}
    short = re.sub(r"^(float|int|uint)", lambda found: letters[found[1]], name)
    return {"bfloat16": "bf16", "bool": "i1"}.get(name, short)


def _divisible(value: Any) -> bool:
    if isinstance(value, int):
        return value % 16 == 0
    return hasattr(value, "data_ptr") and value.data_ptr() % 16 == 0


def _place(function: types.FunctionType, folder: Path) -> dict[str, str]:
    """Return the module and name of a kernel, and its file if Python does not find the module by its name."""
    if function.__module__ != "__main__":
        place = {"module": function.__module__, "name": function.__name__}
        file = inspect.getsourcefile(function)
        found = PathFinder.find_spec(function.__module__)
        in_package = "." in function.__module__
        return (
            place
            if in_package or file is None or (found and found.origin == file)
            else place | {"file": file}
        )
    path = folder / f"{MAIN}.py"
    path.write_text(_IMPORTS + "\n\n".join(_sources(function, {})), encoding="utf-8")
    return {"module": MAIN, "name": function.__name__, "file": str(path)}


def _sources(function: types.FunctionType, seen: dict[str, str]) -> list[str]:
    """Return the sources of a notebook's kernel and of everything that it uses, dependencies first."""
    if function.__name__ in seen:
        return []
    seen[function.__name__] = ""
    parts: list[str] = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if name not in seen and value is not None:
            parts += _source_of(name, value, seen)
    return [*parts, inspect.getsource(function)]


def _source_of(name: str, value: Any, seen: dict[str, str]) -> list[str]:
    if inspect.ismodule(value):  # kernels may use numbers of other modules, such as math.inf
        seen[name] = ""
        return [f"import {value.__name__} as {name}"]
    used = getattr(value, "fn", None)
    if inspect.isfunction(used):
        if used.__module__ == "__main__":
            return _sources(used, seen)
        if not used.__module__.startswith("triton"):
            return [f"from {used.__module__} import {used.__name__} as {name}"]
    if type(value).__name__ == "constexpr":
        seen[name] = ""
        return [f"{name} = tl.constexpr({value.value!r})"]
    return []


# The process that compiles.


class _Compiler(subprocess.Popen[str]):
    """The compiler process, leader of a process group that includes the tools it starts.

    printed: file that receives the output of kernels, their modules and these tools.
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
        """Print the process's output since the last call to stderr."""
        self.printed.seek(0)
        if text := self.printed.read().decode(errors="replace").strip():
            print(f"Printed while {what} was compiled:\n{text}", file=sys.stderr)
        self.printed.truncate(0)


_idle: dict[Surroundings, _Compiler] = {}  # compilers without a job


def reports(jobs: Iterable[dict[str, Any]]) -> Iterator[Resources | CompilationFailed]:
    """Compile the jobs in one process, and yield the report of each as soon as it is ready.

    The process is kept for later calls, because starting it takes longer than compiling most kernels.
    """
    surroundings = _surroundings()
    process = _compiler(surroundings)
    answered = False
    try:
        for one in jobs:
            if process.poll() is not None:
                _end(process)
                process = _compiler(surroundings)
            report = _report(process, one) | {"arch": one["arch"]}
            yield CompilationFailed(report["error"]) if "error" in report else Resources.of(report)
        answered = process.poll() is None
    finally:
        if not answered or _idle.setdefault(surroundings, process) is not process:
            _end(process)


def _surroundings() -> Surroundings:
    """Return the state for which a compiler process is valid: parent process, time stamp of the newest
    kernel, import path and environment variables.
    """
    newest = max(path.stat().st_mtime for path in Path(__file__).parents[1].glob("kernels/*.py"))
    # The same import path as here. The current folder is last, and -P is set, so that a student's random.py
    # in it does not replace Python's.
    path = os.pathsep.join([*filter(None, sys.path), os.getcwd()])
    told = {name: value for name, value in os.environ.items() if name.startswith(("TRITON", "CUDA", "LLVM"))}
    told |= {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    return os.getpid(), newest, path, tuple(sorted(told.items()))


def _compiler(surroundings: Surroundings) -> _Compiler:
    """Return an idle compiler process for these surroundings, or start one."""
    if kept := _idle.pop(surroundings, None):
        if kept.poll() is None:
            return kept
        _end(kept)
    return _Compiler(surroundings)


def _report(process: _Compiler, job: dict[str, Any]) -> dict[str, Any]:
    """Send a job and return the compiler's report. A compiler that does not reply in time is killed, and the
    report then contains an error.
    """
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
        "error": f"{what}: not compiled within {LIMIT:g} s, so the compiler was stopped. Use a smaller "
        "tile, more warps or fewer stages"
    }


def _kill(process: _Compiler) -> None:
    """Kill a compiler and the tools that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: _Compiler) -> None:
    """Close a compiler's input, so that it exits; kill it if it does not exit within a second."""
    with process.printed, suppress(BrokenPipeError), process:  # leaving `process` closes its pipes and waits
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
