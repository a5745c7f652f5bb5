"""Message protocol between the grader and the process of a submission. Answers are read as data only.

The grader sends pickles. The process answers in restricted JSON: strings, numbers and None are sent directly,
any other value as [kind, part, …]. Reading an answer calls only the constructors that the tables below list.
"""

from __future__ import annotations

import base64
import json
import math
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import IO, Any

import numpy as np

from ...console import printable
from ...machine.errors import FastMemoryFull

_HEAD = 8  # bytes of the length that precedes each message
PARTS = 1_000_000  # maximum number of lists, scalars, … in an answer
DEPTH = 50  # maximum depth of nested lists
_BITS = 13_000  # maximum size of an integer, because Python parses at most 4,300 digits
_OURS = (
    "iocourse.course.",
    "iocourse.ledger",
    "iocourse.distributed.ledger",
    "iocourse.course.grade.protocol",
)  # modules whose dataclasses and named tuples are sent by name
_NUMBERS = re.compile(r"[<>|=]?[biufcSU][0-9]{1,6}")  # dtypes without object pointers


class Unreadable(Exception):
    """The data received are not a valid answer."""


@dataclass(frozen=True, eq=False)
class Foreign:
    """Placeholder for a part of an answer that is not plain data; it holds the name of the part's type."""

    kind: str

    def __repr__(self) -> str:
        return f"a {self.kind}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)


def foreign(kind: str) -> Foreign:
    """Return a placeholder whose class is called `kind`, because complaints about an answer name its type."""
    placeholder: Foreign = type(kind, (Foreign,), {})(kind)
    return placeholder


# ------------------------------------------------------------------ from the grader
def write_request(stream: IO[bytes], message: Any) -> None:
    """Send a message from the grader to the process of a submission, as a pickle."""
    _send(stream, pickle.dumps(message, protocol=5))


def read_request(stream: IO[bytes]) -> Any:
    """Read the next message of the grader, which is trusted. Raises EOFError at the end of the stream."""
    return pickle.loads(_next(stream, None))


# ------------------------------------------------------------------ to the grader
def write_answer(stream: IO[bytes], message: Any) -> None:
    """Send an answer to the grader, with a `Foreign` in place of each part that is not plain data."""
    _send(stream, json.dumps(_Writer().plain(message)).encode())


def read_answer(stream: IO[bytes], most: int) -> Any:
    """Read the next answer without running any of its code.

    Args:
        stream: output of the process of a submission.
        most: maximum length in bytes.

    Raises:
        EOFError: the stream has ended.
        Unreadable: the answer is too long or not valid.
    """
    data = _next(stream, most)
    try:
        return _Reader().value(json.loads(data))
    except Unreadable:
        raise
    except Exception as error:  # also RecursionError and MemoryError
        raise Unreadable(
            f"its process sent data that is not a valid answer ({type(error).__name__})"
        ) from None


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_HEAD, "big") + data)
    stream.flush()


def _next(stream: IO[bytes], most: int | None) -> bytes:
    head = stream.read(_HEAD)
    if len(head) < _HEAD:
        raise EOFError
    length = int.from_bytes(head, "big")
    if most is not None and length > most:
        raise Unreadable(f"its process sent data that is not a valid answer, or more than {most:,} bytes")
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


class _Walk:
    """Counter of the parts and the nesting depth of an answer, so that reading or writing it terminates."""

    def __init__(self) -> None:
        self.parts = self.depth = 0

    def enter(self) -> None:
        """Count one more part, one level deeper. Raises Unreadable if there are more than `PARTS`."""
        self.parts += 1
        self.depth += 1
        if self.parts > PARTS:
            raise Unreadable(
                f"its process sent data that is not a valid answer, or more than {PARTS:,} parts"
            )

    def leave(self) -> None:
        """Return to the enclosing level."""
        self.depth -= 1


class _Writer(_Walk):
    def plain(self, value: Any) -> Any:
        """Return the value in the JSON form of an answer."""
        self.enter()
        try:
            if self.depth < DEPTH - 1:  # a Foreign needs two levels
                return self._plain(value)
            return ["Foreign", type(value).__name__]
        finally:
            self.leave()

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            return value if value.bit_length() < _BITS else ["Foreign", "int of thousands of digits"]
        if kind in _PARTED:
            return [kind.__name__, *map(self.plain, _PARTED[kind](value))]
        if kind is np.ndarray and value.dtype == object:
            return ["objects", list(value.shape), *map(self.plain, value.flat)]
        if (kind is np.ndarray or isinstance(value, np.generic)) and _NUMBERS.fullmatch(value.dtype.str):
            data = base64.b64encode(value.tobytes()).decode()
            return ["array" if kind is np.ndarray else "scalar", value.dtype.str, list(value.shape), data]
        if record_class(name_of(kind)) is kind:
            return [name_of(kind), *(self.plain(part) for part in _fields(value))]
        return ["Foreign", kind.__name__]


class _Reader(_Walk):
    def value(self, plain: Any) -> Any:
        """Rebuild the value from its JSON form."""
        self.enter()
        try:
            if plain is None or type(plain) in (bool, str, float, int):
                return plain
            if type(plain) is not list or self.depth > DEPTH or type(plain[0]) is not str:
                raise ValueError("not a value")
            return self._made(*plain)
        finally:
            self.leave()

    def _made(self, kind: str, *parts: Any) -> Any:
        if kind == "array":
            return _array(*parts)
        if kind == "scalar":
            return _array(*parts)[()]
        if kind == "objects":
            return self._objects(*parts)
        made: Callable[..., Any] | None = _MADE.get(kind) or record_class(kind)
        if made is None:
            raise ValueError(f"{kind} is not a kind of value")
        return made(*map(self.value, parts))

    def _objects(self, shape: Any, *parts: Any) -> Any:
        if _length(shape) != len(parts):
            raise ValueError("the array does not match its shape")
        made = np.empty(len(parts), object)
        for place, part in enumerate(parts):
            made[place] = self.value(part)
        return made.reshape(shape)


def _array(dtype: Any, shape: Any, data: Any) -> Any:
    if not _NUMBERS.fullmatch(dtype):
        raise ValueError(f"{dtype} is not a numeric dtype")
    kind, raw = np.dtype(dtype), base64.b64decode(data, validate=True)
    if _length(shape) * kind.itemsize != len(raw):
        raise ValueError("the array does not match its shape")
    return np.frombuffer(bytearray(raw), kind).reshape(shape) if raw else np.empty(shape, kind)


def _length(shape: Any) -> int:
    if type(shape) is not list or not all(type(n) is int and 0 <= n <= PARTS * PARTS for n in shape):
        raise ValueError("not a shape")
    return math.prod(shape)


def _pairs(of: dict[Any, Any]) -> Iterator[Any]:
    for pair in of.items():
        yield from pair


_PARTED: dict[type, Callable[[Any], Any]] = {
    list: iter,
    tuple: iter,
    set: iter,
    frozenset: iter,
    dict: _pairs,
    complex: lambda one: (one.real, one.imag),
    Fraction: lambda one: (one.numerator, one.denominator),
    Foreign: lambda one: (one.kind,),
    # The advice is not sent, because it can refer to a complete run.
    FastMemoryFull: lambda one: (str(one), one.short, one.asked),
}
_MADE: dict[str, Callable[..., Any]] = {
    "list": lambda *parts: list(parts),
    "tuple": lambda *parts: parts,
    "set": lambda *parts: set(parts),
    "frozenset": lambda *parts: frozenset(parts),
    "dict": lambda *parts: dict(zip(parts[::2], parts[1::2], strict=True)),
    "complex": lambda real, imag: complex(float(real), float(imag)),
    "Fraction": lambda over, under: Fraction(int(over), int(under)),
    "Foreign": lambda kind: foreign(printable(str(kind))[:60]),
    "FastMemoryFull": lambda said, short, asked: FastMemoryFull(str(said), int(short), str(asked)),
}


def name_of(kind: type) -> str:
    """Return the name of a record's type in an answer: "module:qualified name"."""
    return f"{kind.__module__}:{kind.__qualname__}"


def record_class(name: str) -> Any:
    """Return the dataclass or named tuple of this name in an imported module of `_OURS`, or None."""
    module, _, own = name.partition(":")
    kind = getattr(sys.modules.get(module), own, None) if module.startswith(_OURS) else None
    named = isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
    return kind if named or (isinstance(kind, type) and is_dataclass(kind)) else None


def _fields(record: Any) -> Iterator[Any]:
    if isinstance(record, tuple):
        yield from record
    else:
        yield from (getattr(record, field.name) for field in fields(record))
