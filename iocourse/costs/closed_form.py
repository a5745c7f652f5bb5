"""Shared functions of the closed forms: rounding up, ledgers, searches for tile sizes, sums over a mask."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from math import isqrt
from operator import index
from typing import ParamSpec

from ..ledger import Ledger
from ..masks import Mask
from ..sizes import Shape, positive_int, words_in

P = ParamSpec("P")
Form = Callable[..., Ledger]
FORMS: dict[str, Form] = {}


def ceil_div(a: int, b: int) -> int:
    """Return ⌈a/b⌉ for integers a and b."""
    return -(-index(a) // index(b))


def form(function: Callable[P, Ledger]) -> Callable[P, Ledger]:
    """Register the function as the closed form of its name. Raises ValueError if another file has one."""
    known = FORMS.setdefault(function.__name__, function)
    if known.__module__ != function.__module__:
        raise ValueError(f"{known.__module__} and {function.__module__} both define {function.__name__}")
    FORMS[function.__name__] = function
    return function


def closed_form(reads: dict[str, int], writes: dict[str, int], peak: int, shapes: dict[str, Shape]) -> Ledger:
    """Return a ledger whose `peak` is the footprint. `shapes` must include all arrays that are moved."""
    names = reads.keys() | writes.keys()
    moved = {name: words_in(shape) for name, shape in shapes.items() if name in names}
    return Ledger(reads=reads, writes=writes, peak=peak, sizes=moved)


@dataclass(frozen=True)
class Sweep:
    """One pass over all blocks of rows (or columns), and the columns (or rows) that each block needs.

    `met`: number of needed columns, summed over the blocks. `pairs`: all pairs (block size, length of a
    contiguous range of needed columns), which determine the footprint.
    """

    met: int
    pairs: frozenset[tuple[int, int]]

    def widest(self, room: Callable[[int, int], int], b: int) -> int:
        """Return the maximum of `room`(block size, slice size), with slices of at most b needed columns."""
        return max(room(size, min(b, length)) for size, length in self.pairs)


def row_sweep(mask: Mask | None, N: int, Br: int) -> Sweep:
    """Return the sweep of blocks of Br rows over the columns they need; `mask` None masks nothing."""
    if mask is None:
        return _sweep(N, Br)
    return _sweep(N, Br, mask.columns, mask.reach, short_first=mask.short_first(Br))


def column_sweep(mask: Mask | None, N: int, Bc: int) -> Sweep:
    """Return the sweep of blocks of Bc columns over the rows they need; `mask` None masks nothing."""
    if mask is None:
        return _sweep(N, Bc)
    return _sweep(N, Bc, mask.visits, mask.reach, short_first=mask.short_first(Bc, columns=True))


def _sweep(
    N: int,
    b: int,
    needed: Callable[[int, int], Iterable[tuple[int, ...]]] | None = None,
    reach: int | None = None,
    *,
    short_first: bool = False,
) -> Sweep:
    """Return the sweep of blocks of size b; `needed(start, stop)` yields the ranges they need, None all."""
    if needed is None:
        return Sweep(ceil_div(N, b) * N, frozenset({(min(b, N), N)}))
    met, pairs = 0, set[tuple[int, int]]()
    begin = -(-N % b) if short_first else 0
    for start, times in _unlike_blocks(N, b, N if reach is None else reach, begin):
        start, stop = max(0, start), min(N, start + b)
        lengths = [run[1] - run[0] for run in needed(start, stop)]
        met += times * sum(lengths)
        pairs |= {(stop - start, length) for length in lengths or [0]}
    return Sweep(met, frozenset(pairs))


def _unlike_blocks(N: int, b: int, reach: int, begin: int) -> Iterator[tuple[int, int]]:
    """Yield (start, times) of blocks: one represents all with more than `reach` rows before and after them.

    All blocks in the middle need equally many columns. The first block starts at `begin`.
    """
    starts, first, end = range(begin, N, b), reach // b + 1, (N - reach) // b
    if end <= first:
        yield from ((start, 1) for start in starts)
        return
    yield from ((start, 1) for start in starts[:first])
    yield starts[first], end - first
    yield from ((start, 1) for start in starts[end:])


def best_pair(cost: Callable[[int, int], int], extent: int, partner: Callable[[int], int]) -> tuple[int, int]:
    """Return (a, b) with the least cost(a, b), for a in distinct_sizes(extent) and b = partner(a) ≥ 1."""
    pairs = [(a, b) for a in distinct_sizes(extent) if (b := partner(a)) >= 1]
    return min(pairs, key=lambda pair: cost(*pair))


def best_sizes(
    cost: Callable[..., int], extent: int, others: Callable[[int], tuple[int, ...]]
) -> tuple[int, ...]:
    """Return (a, *others(a)) with the least cost, as `best_pair` does, by branch and bound.

    Requires that cost does not increase with any size, and others(a) does not increase with a. Then the cost
    of the largest a of an interval, with the others of its smallest a, is a lower bound for the interval. The
    interval with the least bound is halved until it is one size, whose bound is its cost.
    """
    sizes = distinct_sizes(extent)

    def promise(start: int, stop: int) -> tuple[int, int, int]:
        return cost(sizes[start], *others(sizes[stop - 1])), start, stop

    fitting = bisect_left(sizes, 1, key=lambda a: min(others(a)))
    stretches = [promise(fitting, len(sizes))]
    while True:
        _, start, stop = heappop(stretches)  # if equal, the largest sizes, as in `best_pair`
        if stop - start == 1:
            return sizes[start], *others(sizes[start])
        for half in ((start, (start + stop) // 2), ((start + stop) // 2, stop)):
            heappush(stretches, promise(*half))


def largest_square(form: Form, N: int, d: int, M: int) -> int:
    """Return the largest B ≤ max(N, d) whose footprint form(N, d, B=B).peak is at most M words.

    Requires that the footprint includes one tile of B x B words, cut to N and d.
    """
    most = isqrt(M) if isqrt(M) < min(N, d) else max(N, d)
    return bisect_right(range(1, most + 1), M, key=lambda B: form(N, d, B=B).peak)


@lru_cache(maxsize=64)
def distinct_sizes(extent: int) -> tuple[int, ...]:
    """Return the smallest size for each value of ⌈extent/size⌉, in descending order: about 2√extent sizes."""
    size = extent = positive_int("extent", extent)
    found = list[int]()
    while size >= 1:
        size = ceil_div(extent, ceil_div(extent, size))
        found.append(size)
        size -= 1
    return tuple(found)
