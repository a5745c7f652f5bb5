"""What the closed forms share: rounding up, a ledger, sizes worth trying, and sums over a mask's blocks."""

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
    """⌈a/b⌉ for whole numbers."""
    return -(-index(a) // index(b))


def form(function: Callable[P, Ledger]) -> Callable[P, Ledger]:
    """Make the function the closed form of the schedule of its name. Raises ValueError where two files do."""
    known = FORMS.setdefault(function.__name__, function)
    if known.__module__ != function.__module__:
        raise ValueError(f"{known.__module__} and {function.__module__} both define {function.__name__}")
    FORMS[function.__name__] = function
    return function


def closed_form(reads: dict[str, int], writes: dict[str, int], peak: int, shapes: dict[str, Shape]) -> Ledger:
    """A ledger whose `peak` is the footprint; `shapes` are those of the arrays that move."""
    names = reads.keys() | writes.keys()
    moved = {name: words_in(shape) for name, shape in shapes.items() if name in names}
    return Ledger(reads=reads, writes=writes, peak=peak, sizes=moved)


@dataclass(frozen=True)
class Sweep:
    """What blocks of one side meet on the other, summed over all of them.

    `met` is the number of rows (or columns) met, once for each block that meets them. `pairs` holds
    (size of the block, length of a run it meets): what footprints depend on.
    """

    met: int
    pairs: frozenset[tuple[int, int]]

    def widest(self, room: Callable[[int, int], int], b: int) -> int:
        """The largest room(size of a block, slice of at most b that it meets)."""
        return max(room(size, min(b, length)) for size, length in self.pairs)


def row_sweep(mask: Mask | None, N: int, Br: int) -> Sweep:
    """Blocks of Br rows and the columns they need; `mask` None hides nothing."""
    return _sweep(N, Br) if mask is None else _sweep(N, Br, mask.columns, mask.reach)


def column_sweep(mask: Mask | None, N: int, Bc: int) -> Sweep:
    """Blocks of Bc columns and the rows they need; `mask` None hides nothing."""
    return _sweep(N, Bc) if mask is None else _sweep(N, Bc, mask.visits, mask.reach)


def _sweep(
    N: int,
    b: int,
    needed: Callable[[int, int], Iterable[tuple[int, ...]]] | None = None,
    reach: int | None = None,
) -> Sweep:
    """`needed` gives the runs, from start to stop first, that a block start:stop meets; None: everything."""
    if needed is None:
        return Sweep(ceil_div(N, b) * N, frozenset({(min(b, N), N)}))
    met, pairs = 0, set[tuple[int, int]]()
    for start, times in _unlike_blocks(N, b, N if reach is None else reach):
        stop = min(N, start + b)
        lengths = [run[1] - run[0] for run in needed(start, stop)]
        met += times * sum(lengths)
        pairs |= {(stop - start, length) for length in lengths or [0]}
    return Sweep(met, frozenset(pairs))


def _unlike_blocks(N: int, b: int, reach: int) -> Iterator[tuple[int, int]]:
    """Where blocks begin, and for how many each stands: one for all that have more than `reach` rows before
    them and at least as many behind.
    """
    starts, first, end = range(0, N, b), reach // b + 1, (N - reach) // b
    if end <= first:
        yield from ((start, 1) for start in starts)
        return
    yield from ((start, 1) for start in starts[:first])
    yield starts[first], end - first
    yield from ((start, 1) for start in starts[end:])


def best_pair(cost: Callable[[int, int], int], extent: int, partner: Callable[[int], int]) -> tuple[int, int]:
    """(a, b) with the least cost(a, b): a runs over the sizes worth trying for `extent`, b = partner(a) ≥ 1.

    A size is worth trying where ⌈extent/a⌉ changes: about 2√extent of them.
    """
    pairs = [(a, b) for a in distinct_sizes(extent) if (b := partner(a)) >= 1]
    return min(pairs, key=lambda pair: cost(*pair))


def best_sizes(
    cost: Callable[..., int], extent: int, others: Callable[[int], tuple[int, ...]]
) -> tuple[int, ...]:
    """(a, *others(a)) as `best_pair` finds it, for a cost that no larger size raises; few sizes are tried.

    `others(a)` are sizes that no larger a raises. So a stretch of sizes costs at least what its largest a
    would with the others of its smallest: a promise. The stretch with the least is halved until it is one
    size, whose promise is its cost.
    """
    sizes = distinct_sizes(extent)

    def promise(start: int, stop: int) -> tuple[int, int, int]:
        return cost(sizes[start], *others(sizes[stop - 1])), start, stop

    fitting = bisect_left(sizes, 1, key=lambda a: min(others(a)))
    stretches = [promise(fitting, len(sizes))]
    while True:
        _, start, stop = heappop(stretches)  # of equals the largest sizes, as `best_pair` does
        if stop - start == 1:
            return sizes[start], *others(sizes[start])
        for half in ((start, (start + stop) // 2), ((start + stop) // 2, stop)):
            heappush(stretches, promise(*half))


def largest_square(form: Form, N: int, d: int, M: int) -> int:
    """The largest B, up to the larger of N and d, with a footprint form(N, d, B=B) of at most M words.

    Of the footprint one square of B x B words is a part, cut to N and d.
    """
    most = isqrt(M) if isqrt(M) < min(N, d) else max(N, d)
    return bisect_right(range(1, most + 1), M, key=lambda B: form(N, d, B=B).peak)


@lru_cache(maxsize=64)
def distinct_sizes(extent: int) -> tuple[int, ...]:
    """The smallest size for each value of ⌈extent/size⌉, from large to small: about 2√extent of them."""
    size = extent = positive_int("extent", extent)
    found = list[int]()
    while size >= 1:
        size = ceil_div(extent, ceil_div(extent, size))
        found.append(size)
        size -= 1
    return tuple(found)
