"""Rows of an array, read so that each lane holds a row, and written back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from .writer import Numbers, Program, Vector, Word

# Of four lanes of one vector, 0 to 3, and the same four of another one, 4 to 7, in every quarter of 16 lanes:
LOW, HIGH = (0, 4, 1, 5), (2, 6, 3, 7)  # pairs
EVEN, ODD = (0, 1, 4, 5), (2, 3, 6, 7)  # halves


def woven(x: Vector, y: Vector, order: Sequence[int]) -> Vector:
    """These lanes of each four lanes of x and y."""
    lanes = x.program.lanes
    return x.shuffled(y, [at + i % 4 + i // 4 * lanes for at in range(0, lanes, 4) for i in order])


def parted(size: int, x: Vector, y: Vector, odd: bool) -> Vector:
    """Of the parts of x and y that have `size` lanes each the first, third …, or the others."""
    return x.shuffled(y, [lane for lane in range(2 * x.program.lanes) if lane // size % 2 == odd])


def pieces(columns: int, most: int = 4) -> list[tuple[int, int]]:
    """(first, width) of pieces of a row whose widths are powers of 2, `most` at the most."""
    found, at = [], 0
    while at < columns:
        width = min(most, 1 << (columns - at).bit_length() - 1)
        found.append((at, width))
        at += width
    return found


def turned(rows: Sequence[Vector]) -> list[Vector]:
    """Four by four lanes of four vectors, columns for rows."""
    a, b, c, d = rows
    low, high = (woven(a, b, LOW), woven(c, d, LOW)), (woven(a, b, HIGH), woven(c, d, HIGH))
    return [woven(x, y, order) for x, y in (low, high) for order in (EVEN, ODD)]


def columns_of(p: Program, A: Numbers, d: int, first: Word, last: Word) -> list[Vector]:
    """The d columns of rows from `first` on of A (…, d), a row a lane; beyond `last` that row again."""

    def write(A: Numbers, first: Word, last: Word, found: Numbers) -> None:
        starts = [(first + row * d).least(last) for row in range(p.lanes)]
        for column in range(0, d, 4):
            width = min(4, d - column)
            quarters = [_four(p, A + (start + column), width) for start in starts]
            for i, x in enumerate(turned([_joined(quarters[i::4]) for i in range(4)])[:width]):
                found.put((column + i) * p.lanes, x)

    p.routine(
        f"columns of {d}", ("numbers", "word", "word", "numbers"), write, A, first * d, last * d, p.spare
    )
    return [p.spare.vector(i * p.lanes) for i in range(d)]


def _four(p: Program, A: Numbers, width: int) -> Vector:
    """The first `width` numbers of A in four lanes."""
    if width == 4:
        return A.vector(0, 4)
    if width == 1:
        return p.gathered([A.number()], 4)
    pair = A.vector(0, 2)
    return p.gathered([pair.lane(0), pair.lane(1)] + [A.number(2)] * (width - 2), 4)


def _joined(parts: Sequence[Vector]) -> Vector:
    """One vector from as many of four lanes as fill it."""
    while len(parts) > 1:
        width = 2 * parts[0].width
        parts = [x.shuffled(y, range(width)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def put_columns(p: Program, A: Numbers, first: Word, stop: Word, columns: Sequence[Vector]) -> None:
    """Rows from `first` on of A (…, d) from their d columns, a lane a row; only those before `stop`."""
    d = len(columns)

    def write(A: Numbers, many: Word, given: Numbers) -> None:
        beyond = many < p.lanes * d
        target = p.either(beyond, p.spare, A)
        put_turned(p, target, d, [given.vector(i * p.lanes) for i in range(d)])
        with p.when(beyond), p.loop(0, many) as i:
            A.put_number(i, p.spare.number(i))

    for i, x in enumerate(columns):
        p.spare.put(i * p.lanes, x)
    kinds = ("numbers", "word", "numbers")
    p.routine(f"put columns of {d}", kinds, write, A + first * d, (stop - first) * d, p.spare)


def put_turned(p: Program, A: Numbers, stride: int, columns: Sequence[Vector]) -> None:
    """Rows of A, a lane each, each `stride` numbers after the last, from their columns."""
    for column in range(0, len(columns), 4):
        some = list(columns[column : column + 4])
        rows = turned(some + p.zeros(4 - len(some)))
        for row in range(p.lanes):
            _put(A + (row * stride + column), rows[row % 4], row // 4 * 4, len(some))


def _put(A: Numbers, vector: Vector, lane: int, many: int) -> None:
    """`many` neighbouring lanes of a vector to A."""
    for at, width in pieces(many):
        A.put(at, vector.shuffled(vector, range(lane + at, lane + at + width)))


def sums_of(vectors: Sequence[Vector], zero: Vector) -> list[Vector]:
    """The sum of each vector's lanes, a sum a lane, in order; 0 in lanes beyond the last."""

    def halved(level: list[Vector], half: Callable[[Vector, Vector, bool], Vector]) -> list[Vector]:
        level = level + [zero] * (len(level) % 2)
        return [half(x, y, False) + half(x, y, True) for x, y in zip(level[::2], level[1::2], strict=True)]

    level = halved(list(vectors), lambda x, y, odd: woven(x, y, HIGH if odd else LOW))
    level = halved(level, lambda x, y, odd: woven(x, y, ODD if odd else EVEN))
    size = zero.program.lanes // 2
    while size >= 4:
        level = halved(level, partial(parted, size))
        size //= 2
    return level


def add_sums(A: Numbers, vectors: Sequence[Vector], zero: Vector) -> None:
    """A[i] += the sum of the lanes of vector i."""
    lanes = zero.program.lanes
    for at, found in enumerate(sums_of(vectors, zero)):
        many = min(lanes, len(vectors) - at * lanes)
        for first, width in pieces(many, lanes):
            part = found if width == lanes else found.shuffled(found, range(first, first + width))
            A.put(at * lanes + first, A.vector(at * lanes + first, width) + part)


def column_of(p: Program, A: Numbers, first: Word, last: Word) -> Vector:
    """A from `first` on, a lane a number; beyond `last` that number again."""
    beyond = last - first < p.lanes - 1
    with p.when(beyond), p.loop(0, p.lanes) as lane:
        p.spare.put_number(lane, A.number((first + lane).least(last)))
    source: Numbers = p.either(beyond, p.spare, A + first)
    return source.vector()


def put_column(p: Program, A: Numbers, first: Word, stop: Word, column: Vector) -> None:
    """A from `first` on, only those before `stop`."""
    beyond = stop - first < p.lanes
    p.either(beyond, p.spare, A + first).put(0, column)
    with p.when(beyond), p.loop(0, stop - first) as lane:
        A.put_number(first + lane, p.spare.number(lane))
