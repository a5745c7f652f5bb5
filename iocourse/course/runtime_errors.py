"""An error in a student's function: the line that raised it, the shapes on that line, the likely cause."""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..machine import SlowArray, Tile, UseAfterFree
from .exercise import error_text

MOST_SHAPES = 6
INDENT = "\n         "  # under the name of a property in a report
_OURS = str(Path(__file__).resolve().parents[1])
_PYTHON = sysconfig.get_paths()["stdlib"]
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")

Advice = Callable[[str], str]  # from the error's text; "" if there is none
_SHAPE = re.compile(r"\((\d+(?:, ?\d+)*),?\)")

NO_ROWS = (
    "Say which rows: a block of m.blocks, a slice or a pair (start, stop). Fast memory holds a part of an "
    "array, so a whole one is seldom meant."
)
NO_AXIS = "If one operand has one value per row, keep its axis: use keepdims=True or x[:, None]."
TRANSPOSED = "@ joins the last axis on the left to the first on the right: is a .T missing?"
ONE_TRUTH = "An array is neither true nor false: np.where and np.maximum choose entry by entry."
NOT_RUN = "Is it spelt so, and has the cell above that makes it been run?"
NONE = "Something is None: a function without return gives it, and so does one that works in place."
TL_OUTSIDE = "What begins with tl runs in a kernel alone, under @triton.jit; outside one it is np, or torch."
WHOLE = "An array of whole numbers cannot take up fractions in place: begin with floating-point numbers."


# ------------------------------------------------------------------ where it was raised
def line_of(error: BaseException) -> str:
    """`line 3: s = q @ k   with q (4, 6), k (2, 6)`; "" if no line of the student's code took part."""
    frames = traceback.walk_tb(error.__traceback__)
    found = [(frame, number) for frame, number in frames if _is_students(frame.f_code.co_filename)]
    if not found:
        return ""
    frame, number = found[-1]
    text = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    gone = error.serial if isinstance(error, UseAfterFree) else None
    shapes = ", ".join(_shapes(frame.f_locals, text, gone))
    return f"line {number}{f': {text}' if text else ''}{f'   with {shapes}' if shapes else ''}"


def below(text: str) -> str:
    """`text` on a line of its own under a property's complaint; "" for none."""
    return f"{INDENT}{text}" if text else ""


def _is_students(file: str) -> bool:
    """Neither ours nor Python's nor of an installed package: a cell of a notebook, or the student's file."""
    if file.startswith(("<frozen", "<__array_function__")):
        return False
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return not installed and not file.startswith((_OURS, _PYTHON))


def _shapes(known: dict[str, Any], text: str, gone: int | None) -> list[str]:
    """The shapes of the arrays that a line names; if its text is not available, of every tile.

    `gone` is the serial number of the tile that had been freed before the error. By now its with blocks have
    ended and freed the other tiles as well, so those are not marked as freed.
    """
    names = dict.fromkeys(_NAME.findall(text)) if text else [n for n in known if isinstance(known[n], Tile)]
    shapes = {name: _shape(known[name], gone) for name in names if name in known}
    return [f"{name} {shape}" for name, shape in shapes.items() if shape][:MOST_SHAPES]


def _shape(value: Any, gone: int | None) -> str:
    try:
        shape = tuple(int(n) for n in value.shape)
    except Exception:  # not an array, or one whose shape cannot be read
        return ""
    if isinstance(value, Tile) and gone is not None and value._serial == gone:
        return f"{shape}, freed"
    return f"{shape} in slow memory" if isinstance(value, SlowArray) else str(shape)


# ------------------------------------------------------------------ what it usually means
def likely_cause(error: BaseException) -> str:
    """A sentence about the usual cause of such an error; "" for an error that is not recognised."""
    text = error_text(error)
    return next((say(text) for pattern, say in MISTAKES if re.search(pattern, text)), "")


def _always(sentence: str) -> Advice:
    return lambda text: sentence


def _missing_axis(text: str) -> str:
    """NumPy aligns shapes from their last axis, so (rows,) does not fit (rows, cols)."""
    shapes = [tuple(int(n) for n in found.split(",")) for found in _SHAPE.findall(text)]
    vectors, matrices = ([s for s in shapes if len(s) == axes] for axes in (1, 2))
    return NO_AXIS if any(v == matrix[:1] for v in vectors for matrix in matrices) else ""


MISTAKES: tuple[tuple[str, Advice], ...] = (
    (r"(load|store)\(\) missing .*'rows'", _always(NO_ROWS)),
    (
        r"matmul: Input operand .* mismatch| @ .*: shapes .* do not match|shapes .* not aligned",
        _always(TRANSPOSED),
    ),
    (r"(could not|cannot) be broadcast|does not fit", _missing_axis),
    (r"truth value of an array|by a truth test", _always(ONE_TRUTH)),
    (r"(^|raised )NameError", _always(NOT_RUN)),
    (r"Did you forget to add @triton\.jit", _always(TL_OUTSIDE)),
    (r"'NoneType'", _always(NONE)),
    (r"Cannot cast ufunc .* to dtype\('u?int", _always(WHOLE)),
)
