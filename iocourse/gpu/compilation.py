"""What a kernel takes of a multiprocessor, without a GPU: compile it for a chip and read the machine code.

A kernel and its arguments are written down as a job (`job`), which another process compiles
(`compile_worker`), and what that one reports is `Resources`.
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
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .chips import REGISTERS_A_THREAD, chip_of
from .hot_loop import Loop

Surroundings = tuple[int, float, str, tuple[tuple[str, str], ...]]
SLOW, LIMIT = 60.0, 300.0  # seconds after which a message says that a kernel is slow, and it is given up
MAIN = "notebook_kernel"  # the module that a notebook's own kernel becomes
_IMPORTS = "import triton\nimport triton.language as tl\n"
OPTIONS: dict[str, tuple[Collection[Any], str]] = {  # of a launch: the values allowed, and how to say them
    "num_warps": ((1, 2, 4, 8, 16, 32), "1, 2, 4, 8, 16 or 32"),
    "num_stages": (range(1, 17), "1 to 16"),
    "num_ctas": ((1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
    "maxnreg": (range(1, 256), "1 to 255"),
    "enable_fp_fusion": ((True, False), "True or False"),
}
_TYPES = re.compile(r"float(16|32|64)|bfloat16|u?int(8|16|32|64)|bool")  # of a tensor's elements


class CompilationFailed(RuntimeError):
    """The compiler refused a kernel, which the message then quotes, or did not finish."""


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


# The job: a kernel and its arguments, written down.


def job(
    kernel: Any, arch: int, arguments: tuple[Any, ...], constants: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """What `compile_worker` needs to compile `kernel` as a launch with these arguments would be compiled.

    Args:
        kernel: a function under @triton.jit, interpreted here or not, of a module or of a notebook's cell.
        arch: 90 for sm_90, say.
        arguments: what the launch would be given, in order: tensors, numbers, descriptors, None.
        constants: the kernel's tl.constexpr parameters, and num_warps, num_stages and the like.
        folder: where the source of a notebook's kernel is written.
    """
    function = _function(kernel)
    names = list(inspect.signature(function).parameters)
    options = {name: value for name, value in constants.items() if name not in names}
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: {function.__name__} has no such parameter; allowed besides its own: "
            f"{', '.join(OPTIONS)}"
        )
    for name, value in options.items():
        allowed, words = OPTIONS[name]
        if type(value) is not (bool if name == "enable_fp_fusion" else int) or value not in allowed:
            raise ValueError(f"{name} is {value!r}; allowed: {words}")
    if len(arguments) > len(names):
        raise ValueError(f"{function.__name__} takes {len(names)} arguments, {len(arguments)} were given")
    given = dict(zip(names, arguments, strict=False)) | {n: v for n, v in constants.items() if n in names}
    absent = [name for name in names if name not in given]
    if absent:
        raise ValueError(f"{function.__name__} is not given {', '.join(absent)}")
    signature, values, aligned = specialised(function, given, set(_do_not_specialize(kernel)))
    for (at, *_), value in values:
        try:
            json.dumps(value)
        except TypeError:
            raise TypeError(
                f"{names[at]} is {value!r}; allowed for a value that is compiled in: a number, True, False, "
                "None, a string, or a tuple of these"
            ) from None
    return {
        **_place(function, folder),
        "arch": arch,
        "signature": signature,
        "constants": values,
        "aligned": aligned,
        "options": options,
    }


def described(job: dict[str, Any]) -> str:
    """The kernel of a job with its constants and options, for a message."""
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
    """What a launch of a kernel's function with these arguments is compiled for.

    Args:
        function: the Python function of the kernel.
        given: a value for each of its parameters.
        plain: parameters that Triton was told not to specialize.

    Returns:
        The type of each parameter, the values that are compiled in, with where they stand, and the places of
        what is a multiple of 16. A NamedTuple that is compiled in becomes {"fields": …, "values": …}, so that
        JSON can hold it.
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
    """The type of an argument, or of each part of a tuple; notes what is compiled in and what is aligned.

    A NamedTuple, whose parts a kernel reads by name, becomes {"fields": names, "kinds": types}.
    """
    if isinstance(value, tuple):
        # Triton does not look into tuples for what is not to be specialized.
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
    """The Python function of a kernel, under whatever decorators."""
    function = kernel
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    if function is kernel or not inspect.isfunction(function):
        raise TypeError(f"kernel is a {type(kernel).__name__}; allowed: a function under @triton.jit")
    return function


def _do_not_specialize(kernel: Any) -> list[str]:
    stated = getattr(kernel, "do_not_specialize", None)
    if stated is None:  # an interpreted kernel forgets it; the decorator's own arguments are in the source
        found = re.search(r"do_not_specialize=\[([^\]]*)\]", inspect.getsource(_function(kernel)))
        stated = re.findall(r"[\"'](\w+)[\"']", found[1]) if found else []
    return list(stated)


def _type(value: Any, plain: bool) -> str:
    """The type of an argument in Triton's own short names; "constexpr" for what a launch compiles in."""
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
    raise TypeError(f"is or holds a {type(value).__name__}; allowed: tensors, numbers, descriptors, None")


def _short(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if not _TYPES.fullmatch(name):
        raise TypeError(
            f"is a tensor of {name}; allowed: float16, bfloat16, float32, float64, bool and integers"
        )
    letters = {"float": "fp", "int": "i", "uint": "u"}
    short = re.sub(r"^(float|int|uint)", lambda found: letters[found[1]], name)
    return {"bfloat16": "bf16", "bool": "i1"}.get(name, short)


def _divisible(value: Any) -> bool:
    if isinstance(value, int):
        return value % 16 == 0
    return hasattr(value, "data_ptr") and value.data_ptr() % 16 == 0


def _place(function: types.FunctionType, folder: Path) -> dict[str, str]:
    if function.__module__ != "__main__":
        return {"module": function.__module__, "name": function.__name__}
    path = folder / f"{MAIN}.py"
    path.write_text(_IMPORTS + "\n\n".join(_sources(function, {})), encoding="utf-8")
    return {"module": MAIN, "name": function.__name__, "file": str(path)}


def _sources(function: types.FunctionType, seen: dict[str, str]) -> list[str]:
    """The sources of a notebook's kernel and of what it uses, what is used first."""
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
    if inspect.ismodule(value) and value.__name__.split(".")[0] == "triton":
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
            report = _report(process, one) | {"arch": one["arch"]}
            yield CompilationFailed(report["error"]) if "error" in report else Resources.of(report)
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


def _report(process: _Compiler, job: dict[str, Any]) -> dict[str, Any]:
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
