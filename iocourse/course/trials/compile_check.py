"""Compile a student's kernels with the first stage of Triton's compiler, after the interpreter has run them.

The interpreter accepts Python code that no GPU can run: `np.maximum` of two numbers, `break`,
`reversed(range(n))`, or a sum that starts as a number and becomes a tile. The first stage, from Python to
Triton IR, checks types and shapes, takes milliseconds, and needs neither a GPU nor its tools.

When kernels are interpreted, the functions of Triton are interpreted too, for the whole process. The compiler
is therefore a second, private copy of Triton's modules.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...gpu.compilation import OPTIONS, specialised, wrong_option
from .kernel_errors import KernelError, Line, Refusal, error_at_line

ARCH = 90  # an H100; the first stage hardly depends on it
REFUSES = "the interpreter runs this line, but Triton's compiler rejects it"


# ------------------------------------------------------------------ launches
@dataclass(frozen=True)
class Launch:
    """One launch of an interpreted kernel: the arguments in order, and those by name, with options."""

    kernel: Any
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    signature: dict[str, Any]
    constants: dict[Any, Any]
    aligned: list[list[int]]  # positions of arguments that are multiples of 16

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that are not parameters of the kernel, such as num_warps."""
        return {name: value for name, value in self.named.items() if name not in self.signature}

    def fingerprint(self) -> Hashable:
        """Return a key that is equal for launches that compile alike."""
        kernels = tuple((at, kernel_fingerprint(one)) for at, one in self.constants.items())
        options = str(sorted(self.options.items()))
        return kernel_fingerprint(self.kernel), str(self.signature), kernels, options, str(self.aligned)


@dataclass
class Launches:
    """The distinct launches that `record_interpreted_launches` has noted; `compile` compiles each of them.

    Two launches are distinct if they differ in the kernel, in argument types or in constants.
    """

    seen: dict[str, Launch] = field(default_factory=dict)

    def compile(self) -> None:
        """Compile each launch. Raises KernelError if Triton rejects one."""
        for launch in self.seen.values():
            _compile(launch.kernel.fn, launch.signature, launch.constants)


@contextmanager
def record_interpreted_launches() -> Iterator[Launches]:
    """Yield the launches of interpreted kernels in the block.

    The interpreter ignores each option of a launch; here a wrong one raises KernelError.
    """
    from triton.runtime.interpreter import InterpretedFunction

    found, run = Launches(), InterpretedFunction.run

    def noted(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        _test_options(self.fn, kwargs)
        done = run(self, *args, grid=grid, warmup=warmup, **kwargs)
        _note(found, self, args, kwargs)  # after the run, so that an error of the interpreter comes first
        return done

    InterpretedFunction.run = noted
    try:
        yield found
    finally:
        InterpretedFunction.run = run


def _test_options(function: types.FunctionType, given: dict[str, Any]) -> None:
    """Raise KernelError if an option of a launch is unknown, or has a value with which no GPU runs it."""
    names = inspect.signature(function).parameters
    options = {name: value for name, value in given.items() if name not in names}
    wrong = wrong_option(options)
    unknown = [name for name in options if name not in OPTIONS and name not in _rare_options()]
    if unknown and not wrong:
        wrong = f"{unknown[0]} is neither a parameter of the kernel nor an option: use {', '.join(OPTIONS)}"
    if wrong:
        raise KernelError(f"in the launch of {function.__name__}, {wrong}. Leave it out for the default")


@functools.cache
def _rare_options() -> frozenset[str]:
    """Return the names of all options of the compiler for NVIDIA GPUs."""
    from triton.backends.nvidia.compiler import CUDAOptions

    return frozenset(inspect.signature(CUDAOptions).parameters)


def _note(found: Launches, kernel: Any, args: tuple[Any, ...], kwargs: Any) -> None:
    function = kernel.fn
    names = inspect.signature(function).parameters
    bound = inspect.getcallargs(function, *args, **{n: v for n, v in kwargs.items() if n in names})
    kinds, values, aligned = specialised(function, bound)
    signature = {name: _kind(kind) for name, kind in kinds.items()}
    constants = {tuple(at): value for at, value in values}
    key = f"{id(function)} {signature} {constants}"
    found.seen.setdefault(key, Launch(kernel, args, kwargs, signature, constants, aligned))


def _kind(kind: Any) -> Any:
    """Convert a type from the form of `gpu.jobs` to that of the compiler: lists become tuples."""
    return tuple(map(_kind, kind)) if isinstance(kind, list) else kind


# ------------------------------------------------------------------ the compiler
class Compiler:
    """A second copy of Triton's modules, by name, in which kernels are compiled instead of interpreted."""

    def __init__(self) -> None:
        import triton  # noqa: F401

        from ...doctor.fast_interpreter import cache_shapes

        machine_code = {name: module for name, module in _modules().items() if name.startswith("triton._C")}
        self.modules: dict[str, types.ModuleType] = machine_code  # can be loaded only once
        with self.in_place():
            for name in ("triton.language", "triton.compiler.compiler"):
                importlib.import_module(name)
            cache_shapes(sys.modules["triton.language"])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace Triton's modules by these within the block, also for late imports."""
        first, interpret = _modules(), os.environ.pop("TRITON_INTERPRET", None)
        _replace_modules(first, self.modules)
        try:
            yield
        finally:
            self.modules = _modules()
            _replace_modules(self.modules, first)
            if interpret is not None:
                os.environ["TRITON_INTERPRET"] = interpret


def _modules() -> dict[str, types.ModuleType]:
    return {name: m for name, m in sys.modules.items() if name == "triton" or name.startswith("triton.")}


def _replace_modules(there: dict[str, types.ModuleType], modules: dict[str, types.ModuleType]) -> None:
    for name in there:
        del sys.modules[name]
    sys.modules.update(modules)


@functools.cache
def compiler() -> Compiler:
    """Return the second copy of Triton's modules, created at the first call."""
    return Compiler()


MOST_TAKEN = 1000
_taken: set[Hashable] = set()  # fingerprints of compiled kernels: most cases of an exercise compile alike


def _compile(function: types.FunctionType, signature: dict[str, Any], constants: dict[Any, Any]) -> None:
    """Compile a kernel with these types and constants. Raises KernelError if the compiler rejects it."""
    asked = (
        kernel_fingerprint(function),
        str(signature),
        tuple((at, kernel_fingerprint(one)) for at, one in constants.items()),
    )
    if asked in _taken:
        return
    _put_to_compiler(function, signature, constants)
    if len(_taken) >= MOST_TAKEN:
        _taken.clear()
    _taken.add(asked)


def _put_to_compiler(
    function: types.FunctionType, signature: dict[str, Any], constants: dict[Any, Any]
) -> None:
    kernels: dict[int, Any] = {}
    try:
        with compiler().in_place():
            known = {at: _for_compiler(value, kernels) for at, value in constants.items()}
            _to_triton_ir(_kernel(function, kernels), signature, known)
    except Exception as error:
        raise KernelError(_told(error, kernels)) from None


def to_ptx(launch: Launch, arch: int, ptx_version: int) -> dict[str, Any]:
    """Compile a launch up to the text that NVIDIA's assembler takes, without starting another process.

    Returns:
        The text `ptx`, bytes of `shared` memory and the number of `warps`.
    """
    kernels: dict[int, Any] = {}
    with compiler().in_place():
        made: Any = sys.modules["triton.compiler.compiler"]
        known = {at: _for_compiler(value, kernels) for at, value in launch.constants.items()}
        source = made.ASTSource(
            fn=_kernel(launch.kernel.fn, kernels),
            signature=launch.signature,
            constexprs=known,
            attrs={tuple(at): [["tt.divisibility", 16]] for at in launch.aligned},
        )
        target = made.GPUTarget("cuda", arch, 32)
        backend, context = made.make_backend(target), made.ir.context()
        made.ir.load_dialects(context)
        backend.load_dialects(context)
        options = backend.parse_options(launch.options | {"ptx_version": ptx_version})
        helpers = backend.get_codegen_implementation(options), backend.get_module_map()
        module = source.make_ir(target, options, *helpers, context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        metadata = {**options.__dict__, "target": target}
        for name, stage in stages.items():
            if name == "cubin":
                break
            module = stage(module, metadata)
    return {"ptx": str(module), "shared": int(metadata["shared"]), "warps": int(metadata["num_warps"])}


def _to_triton_ir(kernel: Any, signature: dict[str, Any], constants: dict[Any, Any]) -> None:
    made: Any = sys.modules["triton.compiler.compiler"]
    source = made.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    target = made.GPUTarget("cuda", ARCH, 32)
    backend, context = made.make_backend(target), made.ir.context()
    made.ir.load_dialects(context)
    backend.load_dialects(context)
    options = backend.parse_options({"sanitize_overflow": False})  # which only a debug build asserts
    source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )


# ------------------------------------------------------------------ a kernel and its globals
def _kernel(function: types.FunctionType, made: dict[int, Any]) -> Any:
    """Return a kernel for the compiler with copies of all functions it uses; `made` has them by id."""
    if id(function) not in made:
        names = _names(function.__code__)
        seen: dict[str, Any] = {"__name__": function.__module__}
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        copied = types.FunctionType(function.__code__, seen, function.__name__, function.__defaults__, cells)
        copied.__module__, copied.__annotations__ = function.__module__, function.__annotations__
        made[id(function)] = sys.modules["triton.runtime.jit"].JITFunction(copied)
        seen |= {n: _for_compiler(v, made) for n, v in function.__globals__.items() if n in names}
        for cell, own in zip(cells, function.__closure__ or (), strict=True):
            cell.cell_contents = _for_compiler(own.cell_contents, made)
    return made[id(function)]


def _names(code: types.CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _for_compiler(value: Any, made: dict[int, Any]) -> Any:
    """Return the value of a global of a kernel as the compiler's copy of Triton has it."""
    if isinstance(value, types.ModuleType):
        return sys.modules.get(value.__name__, value)
    kind, language = type(value).__name__, sys.modules["triton.language"]
    own: Any = value.fn if kind == "InterpretedFunction" else value
    tritons = str(getattr(own, "__module__", "")).startswith("triton")
    if tritons and hasattr(own, "__name__"):
        return getattr(sys.modules.get(own.__module__), own.__name__, value)
    if kind == "InterpretedFunction":
        return _kernel(own, made)
    if tritons and kind == "constexpr":
        return language.constexpr(value.value)
    if tritons and kind == "dtype":
        return language.dtype(value.name)
    return value


def kernel_fingerprint(value: Any, around: tuple[Any, ...] = ()) -> Hashable:
    """Return a hash key of a kernel and its globals, equal for kernels that compile alike."""
    own: Any = value.fn if type(value).__name__ == "InterpretedFunction" else value
    if not isinstance(own, types.FunctionType) or own.__module__.startswith("triton."):
        return type(own), getattr(own, "__module__", ""), getattr(own, "__name__", repr(own))
    if own in around:
        return "itself"
    names, cells = _names(own.__code__), [cell.cell_contents for cell in own.__closure__ or ()]
    seen = [(name, one) for name, one in own.__globals__.items() if name in names]
    parts = (*seen, *enumerate(cells), ("defaults", own.__defaults__), ("types", own.__annotations__))
    return own.__code__, tuple((name, kernel_fingerprint(one, (*around, own))) for name, one in parts)


# ------------------------------------------------------------------ the compiler's message
def _told(error: BaseException, kernels: dict[int, Any]) -> str:
    """Return the rejected line (the innermost one of the student) and the reason."""
    began = {kernel.src: _line_of_def(kernel) for kernel in kernels.values()}
    line = Line(0, "", {})
    cause: Any = error
    while True:
        source: Any = getattr(cause, "src", None)
        number: int | None = getattr(getattr(cause, "node", None), "lineno", None)
        if source in began and number is not None:
            line = Line(began[source] + number - 1, source.splitlines()[number - 1].strip(), {})
        if cause.__cause__ is None:
            break
        cause = cause.__cause__
    said = getattr(cause, "error_message", None) or f"{type(cause).__name__}: {cause}"
    return error_at_line(line, Refusal(said), REFUSES)


def _line_of_def(kernel: Any) -> int:
    """Return the number of the line with `def` in the student's cell."""
    before = next(at for at, line in enumerate(kernel.raw_src) if line.lstrip().startswith("def "))
    return int(kernel.starting_line_number) + before
