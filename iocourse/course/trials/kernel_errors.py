"""What went wrong inside a student's kernel: the line, the shapes of its tiles, and the commonest cause.

Triton's interpreter reports an error as its own code met it ("'NoneType' object has no attribute
'to_tensor'"), wrapped once for each function it passed. Here the line of the student's cell is found again.
"""

from __future__ import annotations

import builtins
import linecache
import re
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from ...solution_guard import LibrarySolutionUsed
from ..exercise import cause_of

HERE = str(Path(__file__).parents[2])  # the library
LIBRARIES = (HERE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))
LONGEST = 120  # characters of Triton's own words
FRAME = "<frame>"  # among a line's names; no name that a kernel can have


class KernelError(RuntimeError):
    """An error inside a student's kernel, told by the line where it arose."""


class Refusal(Exception):
    """What Triton's compiler says about a kernel, in its own words."""


@dataclass(frozen=True)
class Line:
    """A line of a student's cell, what stands in it, and what its names were when it failed."""

    number: int
    text: str
    names: dict[str, Any]


@contextmanager
def name_failing_line() -> Iterator[None]:
    """What a kernel raises in this block becomes a KernelError; what is raised outside one stays as it is."""
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
        line = Line(number, text, {**frame.f_locals, FRAME: frame})
        raise KernelError(error_at_line(line, cause)) from None


def error_at_line(line: Line, error: BaseException, before: str = "") -> str:
    """Line, cause and shapes in one sentence, and Triton's own words behind it; `before` opens the cause."""
    line = _numpy_before(line) if FRAME in line.names and _is_numpy(line, error) else line
    why = ": ".join(
        filter(None, [before, next((cause.says for cause in CAUSES if cause.fits(line, error)), "")])
    )
    own = _short(str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}")
    shapes = _shapes(line)
    return (
        f"line {line.number} of your cell, `{line.text}`"
        + (f", where {shapes}" if shapes else "")
        + (f": {why} ({own})" if why else f": {own}")
    )


# ------------------------------------------------------------------ the line
def _frames_of_the_student(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Frames of kernels, the innermost last: below each wrapping, those that are no library's."""
    inner = error.__cause__
    while inner is not None:
        step = inner.__traceback__
        while step is not None:
            name = step.tb_frame.f_code.co_filename
            if not name.startswith(LIBRARIES) and linecache.getline(name, step.tb_lineno):
                yield step.tb_frame, step.tb_lineno
            step = step.tb_next
        inner = inner.__cause__


def _numpy_before(line: Line) -> Line:
    """The last line of the kernel up to this one that calls NumPy: its array is met only later."""
    code = line.names[FRAME].f_code
    for number in range(line.number, code.co_firstlineno - 1, -1):
        text = linecache.getline(code.co_filename, number).strip()
        if CALLS_NUMPY.search(text):
            return replace(line, number=number, text=text)
    return line


def _shapes(line: Line) -> str:
    """The tiles that the line names, in its order: `q is (32, 16) and k is (16, 16)`."""
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


# ------------------------------------------------------------------ the commonest causes
NAME = re.compile(r"(?<![.\w])[^\W\d]\w*")
CALLS_NUMPY = re.compile(r"\b(?:np|numpy)\.\w+")
UNKNOWN_NAME = re.compile(r"NameError\('(\w+) is not defined")  # as the compiler reports it
INDEXED = re.compile(r"([^\W\d]\w*)\s*\[")


@dataclass(frozen=True)
class Cause:
    """A mistake that many make: how it is recognised, and what is said about it."""

    fits: Callable[[Line, BaseException], bool]
    says: str


def _is_numpy(line: Line, error: BaseException) -> bool:
    brought = any(type(line.names.get(name)).__module__ == "numpy" for name in NAME.findall(line.text))
    return brought or (bool(CALLS_NUMPY.search(line.text)) and not isinstance(error, NameError))


def _indexes(line: Line, *, pointer: bool) -> bool:
    """Whether the line puts brackets behind a pointer of the kernel's, or behind a tile."""
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
    Cause(_is_numpy, "NumPy does not run inside a kernel: its words there begin with tl"),
    Cause(
        lambda line, error: "torch." in line.text,
        "torch does not run inside a kernel: its words there begin with tl",
    ),
    Cause(
        _says("Cannot access global variable"),
        "a kernel sees no more of the notebook than functions under @triton.jit and numbers made by "
        "tl.constexpr(...)",
    ),
    Cause(
        lambda line, error: any(name in vars(builtins) for name in UNKNOWN_NAME.findall(str(error))),
        "of Python's own functions a kernel may call range, min, max, len, float, int and print; the others "
        "are in tl",
    ),
    Cause(
        _says("Loop-carried variable"),
        "a name keeps its type and its shape through a loop: what grows to a tile starts as one, by tl.zeros "
        "or tl.full",
    ),
    Cause(
        _says("simultaneous multiple comparison"),
        "one comparison at a time: (0 <= i) & (i < n)",
    ),
    Cause(_says("for @:"), "tiles are multiplied by tl.dot, not by @"),
    Cause(
        lambda line, error: _at_an_index(error) and _indexes(line, pointer=True),
        "a pointer has no elements: tl.load fetches what lies at the pointer plus an offset",
    ),
    Cause(
        lambda line, error: _at_an_index(error) and _indexes(line, pointer=False),
        "a tile has no elements that can be picked: brackets only add an axis, by None",
    ),
    Cause(
        _says("does not support item assignment"),
        "a tile is not changed in place: tl.where makes another one",
    ),
    Cause(
        _says("make_shape_compatible", "Expected pointer argument to have shape", "cannot be block type"),
        "these shapes do not fit together: is an axis missing, as [:, None] or [None, :] adds it?",
    ),
    Cause(
        _says("must be of type tl.constexpr", "must have type `constexpr"),
        "a tile's size must be known before the launch: a parameter that is tl.constexpr",
    ),
    Cause(_says("must be a power of 2"), "the sides of a tile are powers of two"),
    Cause(
        _says("reduction dimensions", "equal ranks"),
        "tl.dot multiplies an (a, b) tile by a (b, c) tile",
    ),
)
