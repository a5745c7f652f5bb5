"""Explain an error inside a student's kernel: the line, the shapes of its tiles and the most likely cause.

Triton's interpreter reports errors of its internal code ("'NoneType' object has no attribute 'to_tensor'"),
wrapped once per function. This module finds the line of the student's cell.
"""

from __future__ import annotations

import builtins
import linecache
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from ..exercise import cause_of, exercises
from ..guard import LibrarySolutionUsed

HERE = str(Path(__file__).parents[2])  # the library
LIBRARIES = (HERE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))
LONGEST = 120  # characters of Triton's message
FRAME = "<frame>"  # key of the frame among a line's names; not a possible name in a kernel


class KernelError(RuntimeError):
    """An error inside a student's kernel; the message names the line."""


class Refusal(Exception):
    """The error message of Triton's compiler for a kernel."""


@dataclass(frozen=True)
class Line:
    """A line of a student's cell: number, text, and the values of its names at the time of the error."""

    number: int
    text: str
    names: dict[str, Any]
    cell: str = "your cell"


@contextmanager
def name_failing_line(cell: str = "") -> Iterator[None]:
    """Convert an error raised inside a kernel to a KernelError; leave other errors unchanged.

    `cell` is the file of the checked function: a line of another one is named with its function.
    """
    try:
        yield
    except Exception as error:
        cause = cause_of(error)
        if cause is error or isinstance(cause, (NotImplementedError, LibrarySolutionUsed)):
            raise
        frames = list(_frames_of_the_student(error))
        if not frames:
            raise
        frame, number = frames[-1]
        text = linecache.getline(frame.f_code.co_filename, number).strip()
        line = Line(number, text, {**frame.f_locals, FRAME: frame}, _cell_of(frame, cell))
        raise KernelError(error_at_line(line, cause)) from None


def error_at_line(line: Line, error: BaseException, before: str = "") -> str:
    """Return a message with the line, the shapes, the likely cause (after `before`) and Triton's message."""
    line = _numpy_before(line) if FRAME in line.names and _is_numpy(line, error) else line
    why = ": ".join(
        filter(None, [before, next((cause.says for cause in CAUSES if cause.fits(line, error)), "")])
    )
    own = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
    of_library = type(error).__module__.startswith("iocourse.") and not isinstance(error, Refusal)
    if not of_library:  # messages of the library end with advice
        own = _short(own)
    shapes = _shapes(line)
    return (
        f"line {line.number} of {line.cell}, `{line.text}`"
        + (f", where {shapes}" if shapes else "")
        + (f": {why} ({own})" if why else f": {own}")
    )


# ------------------------------------------------------------------ the line
def _frames_of_the_student(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of the student's kernels with their line numbers, the innermost last."""
    inner = error.__cause__
    while inner is not None:
        step = inner.__traceback__
        while step is not None:
            if _is_students(step.tb_frame, step.tb_lineno):
                yield step.tb_frame, step.tb_lineno
            step = step.tb_next
        inner = inner.__cause__


def _is_students(frame: FrameType, number: int) -> bool:
    name = frame.f_code.co_filename
    return not name.startswith(LIBRARIES) and bool(linecache.getline(name, number))


def line_in_progress() -> str:
    """Return the text of the student's line that is running, the innermost one, or ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_students(frame, frame.f_lineno):
        frame = frame.f_back
    return "" if frame is None else linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()


def _cell_of(frame: FrameType, cell: str) -> str:
    """Return "your cell", or the exercise and the function if the frame is not of the file `cell`."""
    name = frame.f_code.co_name
    if not cell or frame.f_code.co_filename == cell:
        return "your cell"
    ids = (one.id for one in exercises().values() if name.removesuffix("_kernel") in one.names)
    id = next(ids, "")
    return f"the cell of {id} (in {name})" if id else f"the cell with {name}"


def _numpy_before(line: Line) -> Line:
    """Return the last line of the kernel, up to this one, that calls NumPy: the error may arise later."""
    code = line.names[FRAME].f_code
    for number in range(line.number, code.co_firstlineno - 1, -1):
        text = linecache.getline(code.co_filename, number).strip()
        if CALLS_NUMPY.search(text):
            return replace(line, number=number, text=text)
    return line


def _shapes(line: Line) -> str:
    """List the shapes of the tiles in the line: `q is (32, 16) and k is (16, 16)`."""
    found = dict.fromkeys(NAME.findall(line.text))
    tiles = {name: line.names[name] for name in found if _is_tile(line.names.get(name))}
    said = [f"{name} is {tuple(map(int, tile.type.get_block_shapes()))}" for name, tile in tiles.items()]
    return ", ".join(said[:-1]) + (" and " if said[1:] else "") + said[-1] if said else ""


def _is_tile(value: Any) -> bool:
    kind: Any = getattr(value, "type", None)
    return hasattr(value, "handle") and hasattr(kind, "is_block") and bool(kind.is_block())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


# ------------------------------------------------------------------ common causes
NAME = re.compile(r"(?<![.\w])[^\W\d]\w*")
CALLS_NUMPY = re.compile(r"\b(?:np|numpy)\.\w+")
UNKNOWN_NAME = re.compile(r"NameError\('(\w+) is not defined")  # as the compiler reports it
INDEXED = re.compile(r"([^\W\d]\w*)\s*\[")


@dataclass(frozen=True)
class Cause:
    """A common mistake: a test for it, and its explanation."""

    fits: Callable[[Line, BaseException], bool]
    says: str


def _is_numpy(line: Line, error: BaseException) -> bool:
    brought = any(type(line.names.get(name)).__module__ == "numpy" for name in NAME.findall(line.text))
    return brought or (bool(CALLS_NUMPY.search(line.text)) and not isinstance(error, NameError))


def _indexes(line: Line, *, pointer: bool) -> bool:
    """Return whether the line indexes a pointer of the kernel, or a tile."""
    values = [line.names.get(name) for name in INDEXED.findall(line.text)]
    return any(_is_pointer(value) if pointer else _is_tile(value) for value in values)


def _is_pointer(value: Any) -> bool:
    kind: Any = getattr(value, "type", None)
    return hasattr(value, "handle") and hasattr(kind, "is_ptr") and bool(kind.is_ptr())


def _at_an_index(error: BaseException) -> bool:
    return any(said in str(error) for said in ("unsupported tensor index", "'int' object is not iterable"))


def _says(*parts: str) -> Callable[[Line, BaseException], bool]:
    return lambda line, error: any(part in str(error) for part in parts)


CAUSES = (
    Cause(_is_numpy, "NumPy does not run inside a kernel; use functions of tl"),
    Cause(
        lambda line, error: "torch." in line.text,
        "torch does not run inside a kernel; use functions of tl",
    ),
    Cause(
        _says("Cannot access global variable"),
        "a kernel can use only two kinds of globals: functions under @triton.jit and constants made with "
        "tl.constexpr(...)",
    ),
    Cause(
        lambda line, error: any(name in vars(builtins) for name in UNKNOWN_NAME.findall(str(error))),
        "a kernel may call only these functions of Python: range, min, max, len, float, int and print; use "
        "tl for others",
    ),
    Cause(
        _says("Loop-carried variable"),
        "a name must keep its type and shape in a loop: create an accumulator as a tile, with tl.zeros or "
        "tl.full",
    ),
    Cause(
        _says("simultaneous multiple comparison"),
        "chained comparisons are not supported; write (0 <= i) & (i < n)",
    ),
    Cause(_says("for @:"), "multiply tiles with tl.dot, not with @"),
    Cause(
        lambda line, error: _at_an_index(error) and _indexes(line, pointer=True),
        "a pointer cannot be indexed; use tl.load(pointer + offset)",
    ),
    Cause(
        lambda line, error: _at_an_index(error) and _indexes(line, pointer=False),
        "elements of a tile cannot be selected; brackets only add an axis, with None",
    ),
    Cause(
        _says("does not support item assignment"),
        "a tile cannot be modified in place; create a new one with tl.where",
    ),
    Cause(
        _says("make_shape_compatible", "Expected pointer argument to have shape", "cannot be block type"),
        "these shapes cannot be broadcast: is [:, None] or [None, :] missing?",
    ),
    Cause(
        _says("must be of type tl.constexpr", "must have type `constexpr"),
        "the size of a tile must be known before the launch; make it a tl.constexpr parameter",
    ),
    Cause(_says("must be a power of 2"), "the sides of a tile must be powers of two"),
    Cause(
        _says("operands must be same dtype"),
        "both factors of tl.dot must have one type: cast the float32 factor to that of the other one, as in "
        "p.to(v.dtype), which fits every type",
    ),
    Cause(
        _says("reduction dimensions", "equal ranks"),
        "tl.dot multiplies an (a, b) tile by a (b, c) tile",
    ),
)
