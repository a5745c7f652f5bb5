"""Rows of an array, read so that each lane holds a row, and written back."""

from __future__ import annotations

from collections.abc import Sequence

from .writer import LANES, Numbers, Program, Vector, Word

LOW = [
    0,
    16,
    1,
    17,
    4,
    20,
    5,
    21,
    8,
    24,
    9,
    25,
    12,
    28,
    13,
    29,
]  # pairs of the first halves of four lanes each
HIGH = [lane + 2 for lane in LOW]
EVEN = [0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29]
ODD = [lane + 2 for lane in EVEN]


def pieces(columns: int, most: int = 4) -> list[tuple[int, int]]:
    """(first, width) of pieces of a row whose widths are powers of 2, `most` at the most."""
    found, at = [], 0
    while at < columns:
        width = min(most, 1 << (columns - at).bit_length() - 1)
        found.append((at, width))
        at += width
    return found


def turned(rows: Sequence[Vector]) -> list[Vector]:
    """Four by four within each quarter of four vectors, columns for rows."""
    a, b, c, d = rows
    low, high = (a.shuffled(b, LOW), c.shuffled(d, LOW)), (a.shuffled(b, HIGH), c.shuffled(d, HIGH))
    return [x.shuffled(y, lanes) for x, y in (low, high) for lanes in (EVEN, ODD)]


def columns_of(p: Program, A: Numbers, d: int, first: Word, last: Word) -> list[Vector]:
    """The d columns of rows first … first + 15 of A (…, d), a row a lane; beyond `last` that row again."""

    def write(A: Numbers, first: Word, last: Word, found: Numbers) -> None:
        starts = [(first + row * d).least(last) for row in range(LANES)]
        for column in range(0, d, 4):
            width = min(4, d - column)
            quarters = [_four(p, A + (start + column), width) for start in starts]
            for i, x in enumerate(turned([_joined(quarters[i::4]) for i in range(4)])[:width]):
                found.put((column + i) * LANES, x)

    p.routine(
        f"columns of {d}", ("numbers", "word", "word", "numbers"), write, A, first * d, last * d, p.spare
    )
    return [p.spare.vector(i * LANES) for i in range(d)]


def _four(p: Program, A: Numbers, width: int) -> Vector:
    """The first `width` numbers of A in four lanes."""
    if width == 4:
        return A.vector(0, 4)
    if width == 1:
        return p.lanes([A.number()], 4)
    pair = A.vector(0, 2)
    return p.lanes([pair.lane(0), pair.lane(1)] + [A.number(2)] * (width - 2), 4)


def _joined(parts: Sequence[Vector]) -> Vector:
    """One vector from four of four lanes."""
    first, second = (x.shuffled(y, range(8)) for x, y in (parts[:2], parts[2:]))
    return first.shuffled(second, range(16))


def put_columns(p: Program, A: Numbers, first: Word, stop: Word, columns: Sequence[Vector]) -> None:
    """Rows first … first + 15 of A (…, d) from their d columns; only those before `stop`."""
    d = len(columns)

    def write(A: Numbers, many: Word, given: Numbers) -> None:
        beyond = many < LANES * d
        target = p.either(beyond, p.spare, A)
        put_turned(p, target, d, [given.vector(i * LANES) for i in range(d)])
        with p.when(beyond), p.loop(0, many) as i:
            A.put_number(i, p.spare.number(i))

    for i, x in enumerate(columns):
        p.spare.put(i * LANES, x)
    kinds = ("numbers", "word", "numbers")
    p.routine(f"put columns of {d}", kinds, write, A + first * d, (stop - first) * d, p.spare)


def put_turned(p: Program, A: Numbers, stride: int, columns: Sequence[Vector]) -> None:
    """16 rows of A, each `stride` numbers after the last, from their columns."""
    for column in range(0, len(columns), 4):
        some = list(columns[column : column + 4])
        rows = turned(some + p.zeros(4 - len(some)))
        for row in range(LANES):
            _put(A + (row * stride + column), rows[row % 4], row // 4 * 4, len(some))


def _put(A: Numbers, vector: Vector, lane: int, many: int) -> None:
    """`many` neighbouring lanes of a vector to A."""
    for at, width in pieces(many):
        A.put(at, vector.shuffled(vector, range(lane + at, lane + at + width)))


def sums_of(vectors: Sequence[Vector], zero: Vector) -> list[Vector]:
    """The sum of each vector's lanes, 16 sums a vector, in order; 0 in lanes beyond the last."""
    level = list(vectors)
    for first, second in ((LOW, HIGH), (EVEN, ODD), (HALF, OTHER_HALF), (EVEN_QUARTERS, ODD_QUARTERS)):
        level += [zero] * (len(level) % 2)
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [x.shuffled(y, first) + x.shuffled(y, second) for x, y in pairs]
    return level


HALF, OTHER_HALF = [*range(8), *range(16, 24)], [*range(8, 16), *range(24, 32)]
EVEN_QUARTERS = [*range(4), *range(8, 12), *range(16, 20), *range(24, 28)]
ODD_QUARTERS = [lane + 4 for lane in EVEN_QUARTERS]


def add_sums(A: Numbers, vectors: Sequence[Vector], zero: Vector) -> None:
    """A[i] += the sum of the lanes of vector i."""
    for at, found in enumerate(sums_of(vectors, zero)):
        many = min(LANES, len(vectors) - at * LANES)
        for first, width in pieces(many, LANES):
            part = found if width == LANES else found.shuffled(found, range(first, first + width))
            A.put(at * LANES + first, A.vector(at * LANES + first, width) + part)


def column_of(p: Program, A: Numbers, first: Word, last: Word) -> Vector:
    """A[first … first + 15]; beyond `last` that number again."""
    beyond = last - first < LANES - 1
    with p.when(beyond), p.loop(0, LANES) as lane:
        p.spare.put_number(lane, A.number((first + lane).least(last)))
    source: Numbers = p.either(beyond, p.spare, A + first)
    return source.vector()


def put_column(p: Program, A: Numbers, first: Word, stop: Word, column: Vector) -> None:
    """A[first … first + 15], only those before `stop`."""
    beyond = stop - first < LANES
    p.either(beyond, p.spare, A + first).put(0, column)
    with p.when(beyond), p.loop(0, stop - first) as lane:
        A.put_number(first + lane, p.spare.number(lane))
