"""The line of the student's own code in which an error arose, and the shapes of what stands on it."""

from __future__ import annotations

import linecache
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ..machine import Slow, Tile, TileFreed

MOST_SHAPES = 6
INDENT = "\n         "  # under the name of a property in a report
_OURS = str(Path(__file__).resolve().parents[1])
_PYTHON = sysconfig.get_paths()["stdlib"]
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


def line_of(error: BaseException) -> str:
    """`line 3: s = q @ k   with q (4, 6), k (2, 6)`; "" where no line of the student's took part."""
    found = [(frame, number) for frame, number in _frames(error) if _is_students(frame.f_code.co_filename)]
    if not found:
        return ""
    frame, number = found[-1]
    text = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    gone = error.serial if isinstance(error, TileFreed) else None
    shapes = ", ".join(_shapes(frame.f_locals, text, gone))
    return f"line {number}{f': {text}' if text else ''}{f'   with {shapes}' if shapes else ''}"


def below(text: str) -> str:
    """`text` on a line of its own under a property's complaint; "" for none."""
    return f"{INDENT}{text}" if text else ""


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_students(file: str) -> bool:
    """Neither ours nor Python's nor of an installed package: a cell of a notebook, or the student's file."""
    if file.startswith(("<frozen", "<__array_function__")):
        return False
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return not installed and not file.startswith((_OURS, _PYTHON))


def _shapes(known: dict[str, Any], text: str, gone: int | None) -> list[str]:
    """The shapes of what is named on a line; where the line is not to be had, of every tile there is.

    `gone` is the serial number of the tile that had been freed before the error. By now its with blocks have
    ended and freed the others as well, so nothing is said of those.
    """
    names = dict.fromkeys(_NAME.findall(text)) if text else [n for n in known if isinstance(known[n], Tile)]
    shapes = {name: _shape(known[name], gone) for name in names if name in known}
    return [f"{name} {shape}" for name, shape in shapes.items() if shape][:MOST_SHAPES]


def _shape(value: Any, gone: int | None) -> str:
    try:
        shape = tuple(int(n) for n in value.shape)
    except Exception:  # no array, or one of a kind that cannot even be asked
        return ""
    if isinstance(value, Tile) and gone is not None and value._serial == gone:
        return f"{shape}, freed"
    return f"{shape} in slow memory" if isinstance(value, Slow) else str(shape)
