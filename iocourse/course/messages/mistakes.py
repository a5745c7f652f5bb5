"""The commonest mistakes, recognised by the error that they end in, each with a sentence about its cause."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..exercise import told

Shape = tuple[int, ...]
Advice = Callable[[str], str]  # of the error's text; "" where it has none to give
_SHAPE = re.compile(r"\((\d+(?:, ?\d+)*),?\)")

NO_ROWS = (
    "Say which rows: a block of m.blocks, a slice or a pair (start, stop). Fast memory holds a part of an "
    "array, so a whole one is seldom meant."
)
NO_AXIS = (
    "One number a row meets rows of several: keep its axis with keepdims=True, or give it one, x[:, None]."
)
TRANSPOSED = "@ joins the last axis on the left to the first on the right: is a .T missing?"
ONE_TRUTH = "An array is neither true nor false: np.where and np.maximum choose entry by entry."
NOT_RUN = "Is it spelt so, and has the cell above that makes it been run?"
NONE = "Something is None: a function without return gives it, and so does one that works in place."
TL_OUTSIDE = "What begins with tl runs in a kernel alone, under @triton.jit; outside one it is np, or torch."
WHOLE = "An array of whole numbers cannot take up fractions in place: begin with floating-point numbers."


def _always(sentence: str) -> Advice:
    return lambda text: sentence


def _missing_axis(text: str) -> str:
    """NumPy lines shapes up from their last axis: (rows,) does not fit beside (rows, cols)."""
    shapes = [tuple(int(n) for n in found.split(",")) for found in _SHAPE.findall(text)]
    vectors, matrices = ([s for s in shapes if len(s) == axes] for axes in (1, 2))
    return NO_AXIS if any(v == matrix[:1] for v in vectors for matrix in matrices) else ""


MISTAKES: tuple[tuple[str, Advice], ...] = (
    (r"(load|store)\(\) missing .*'rows'", _always(NO_ROWS)),
    (
        r"matmul: Input operand .* mismatch| @ .*: shapes .* do not match|shapes .* not aligned",
        _always(TRANSPOSED),
    ),
    (r"could not be broadcast|: shapes .* do not match|does not fit", _missing_axis),
    (r"truth value of an array|by a truth test", _always(ONE_TRUTH)),
    (r"(^|raised )NameError", _always(NOT_RUN)),
    (r"Did you forget to add @triton\.jit", _always(TL_OUTSIDE)),
    (r"'NoneType'", _always(NONE)),
    (r"Cannot cast ufunc .* to dtype\('u?int", _always(WHOLE)),
)


def advice(error: Exception) -> str:
    """A sentence about what such an error mostly comes from; "" for an error that is not recognised."""
    text = told(error)
    return next((say(text) for pattern, say in MISTAKES if re.search(pattern, text)), "")
