"""Messages between the grader and a submission's process: what comes from there is data and nothing else."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import IO, Any

import numpy as np

_HEAD = 8  # bytes that say how many follow
PARTS = 1_000_000  # lists, numbers outside arrays, … that an answer may have
# Pickle would call whatever a message names. These make numbers, arrays and containers, and no more.
_HARMLESS = {
    "builtins": {"complex", "set", "frozenset", "slice", "bytearray"},
    "collections": {"OrderedDict"},
    "fractions": {"Fraction"},
    "numpy": {"ndarray", "dtype"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "iocourse.machine.errors": {"FastMemoryFull"},
}
_OURS = ("iocourse.course.", "iocourse.ledger", "iocourse.grade.wire")  # dataclasses and named tuples


class Unreadable(Exception):
    """What came is no message."""


@dataclass(frozen=True)
class Foreign:
    """Stands for a part of an answer that is no data: its type's name."""

    kind: str

    def __repr__(self) -> str:
        return f"a {self.kind}"


class _Inert(pickle.Unpickler):
    """Reads data; whatever else a message names is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _HARMLESS.get(module, ()):
            return super().find_class(module, name)
        if module.startswith(_OURS) and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple)):
                return found
        raise Unreadable(f"{module}.{name} is no data")


def write(stream: IO[bytes], message: Any) -> None:
    """Send a message."""
    data = pickle.dumps(message, protocol=5)
    stream.write(len(data).to_bytes(_HEAD, "big") + data)
    stream.flush()


def read_trusted(stream: IO[bytes]) -> Any:
    """The next message of someone who may run code here. Raises EOFError where there is none."""
    return pickle.loads(_next(stream, None))


def read(stream: IO[bytes], most: int) -> Any:
    """The next message of at most so many bytes, from someone who may not.

    Raises:
        EOFError: there is none.
        Unreadable: it is too long, or no data.
    """
    data = _next(stream, most)
    try:
        message = _Inert(io.BytesIO(data)).load()
    except Exception as error:
        raise Unreadable(f"what its process sent is no answer ({type(error).__name__})") from None
    _refuse_endless(message)
    return message


def _refuse_endless(message: Any) -> None:
    """A list that holds one list a thousand times, and so on, is short to send and too long to look at."""
    parts, seen = [message], 0
    while parts:
        seen += 1
        if seen + len(parts) > PARTS:
            raise Unreadable(f"what its process sent is no answer, or one of more than {PARTS:,} parts")
        parts += _inside(parts.pop())


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, np.ndarray):
        return value.flat if value.dtype.hasobject else ()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    return vars(value).values() if is_dataclass(value) and not isinstance(value, type) else ()


def _next(stream: IO[bytes], most: int | None) -> bytes:
    head = stream.read(_HEAD)
    if len(head) < _HEAD:
        raise EOFError
    length = int.from_bytes(head, "big")
    if most is not None and length > most:
        raise Unreadable(f"what its process sent is no answer, or one of more than {most:,} bytes")
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def portable(value: Any) -> Any:
    """The value, with a `Foreign` for each part that would not be read at the other end."""
    try:
        _Inert(io.BytesIO(pickle.dumps(value, protocol=5))).load()
        return value
    except Exception:
        return _in_parts(value)


def _in_parts(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(map(portable, value))
    if type(value) is dict:
        return {portable(key): portable(part) for key, part in value.items()}
    if is_dataclass(value) and type(value).__module__.startswith(_OURS):
        return replace(value, **{f.name: portable(getattr(value, f.name)) for f in fields(value)})  # type: ignore[type-var]
    return Foreign(type(value).__name__)
