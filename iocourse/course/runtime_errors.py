"""Explain an error in a student's function: the line that raised it, its shapes and the likely cause."""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import error_text
from ..machine import SlowArray, Tile, UseAfterFree

MOST_SHAPES = 6
INDENT = "\n         "  # under the name of a property in a report
_OURS = str(Path(__file__).resolve().parents[1])
_PYTHON = sysconfig.get_paths()["stdlib"]
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")

Advice = Callable[[str], str]  # from the text of the error to a sentence, or ""
_SHAPE = re.compile(r"\((\d+(?:, ?\d+)*),?\)")

NO_ROWS = (
    "Pass the rows: a block of m.blocks, a slice or a pair (start, stop). A complete array seldom fits in "
    "fast memory."
)
NO_AXIS = "If one operand has one value per row, keep its axis: use keepdims=True or x[:, None]."
TRANSPOSED = "@ sums over the last axis of the left and the first axis of the right operand: is .T missing?"
ONE_TRUTH = (
    "An array has no truth value: use np.where or np.maximum, which work entry by entry. To combine "
    "conditions, write & for and, | for or, and brackets: (a < b) & (c < d)."
)
NOT_RUN = "Is the name spelt correctly, and has the cell that defines it been run?"
NONE = "A value is None: functions without return, and methods that work in place, return None."
TL_OUTSIDE = "Functions of tl run only in a kernel under @triton.jit; outside a kernel use np or torch."
WHOLE = "An integer array cannot store fractions in place: create it with a floating-point dtype."


# ------------------------------------------------------------------ where it was raised
def failing_line(error: BaseException) -> str:
    """Return `line 3: s = q @ k   with q (4, 6), k (2, 6)`, or "" without a line of the student's code."""
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
    """Return `text` on a new line under the message of a property, or "" for no text."""
    return f"{INDENT}{text}" if text else ""


def _is_students(file: str) -> bool:
    """Return whether the file is a notebook cell or a student's file (not the library or a package)."""
    if file.startswith(("<frozen", "<__array_function__")):
        return False
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return not installed and not file.startswith((_OURS, _PYTHON))


def _shapes(known: dict[str, Any], text: str, gone: int | None) -> list[str]:
    """Return the shapes of the arrays named in a line, or of every tile if its text is not available.

    `gone` is the serial number of the tile that was freed before the error. The ends of with blocks have
    freed the other tiles since, so those are not marked as freed.
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


# ------------------------------------------------------------------ the likely cause
def likely_cause(error: BaseException) -> str:
    """Return a sentence about the usual cause of such an error, or "" if it is not recognised."""
    text = error_text(error)
    return next((say(text) for pattern, say in MISTAKES if re.search(pattern, text)), "")


def _always(sentence: str) -> Advice:
    return lambda text: sentence


def _missing_axis(text: str) -> str:
    """Return NO_AXIS for shapes (rows,) and (rows, cols): NumPy aligns shapes from the last axis."""
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
