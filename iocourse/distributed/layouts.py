"""Which rows a rank owns: contiguous, zigzag, striped, or as told. N need not divide: sizes differ by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sizes import positive_int, zero_or_more

LAYOUTS = ("contiguous", "zigzag", "striped")
Placement = Sequence[Sequence[range]]  # for each rank its blocks of rows, from low to high
Layout = str | Placement


def even_part(N: int, parts: int, which: int) -> range:
    """The rows of part `which` of `parts` that lie one after the other; the first ones are longer by one."""
    size, longer = divmod(N, parts)
    start = which * size + min(which, longer)
    return range(start, start + size + (which < longer))


def blocks_of(layout: Layout, N: int, P: int, rank: int) -> tuple[range, ...]:
    """The rows that a rank owns of N, as ranges: one, or two where the layout is "zigzag", or those told.

    Zigzag cuts the rows into 2P blocks and gives rank p the blocks p and 2P - 1 - p; striped gives it each
    P-th row. Raises ValueError that names the argument.
    """
    N, P, rank = zero_or_more("N", N), positive_int("P", P), zero_or_more("rank", rank)
    if rank >= P:
        raise ValueError(f"rank = {rank} is none of the P = {P} ranks; allowed are 0 to {P - 1}")
    if not isinstance(layout, str):
        return tuple(layout[rank])
    if layout == "contiguous":
        return (even_part(N, P, rank),)
    if layout == "striped":
        return (range(rank, N, P),)
    if layout == "zigzag":
        return even_part(N, 2 * P, rank), even_part(N, 2 * P, 2 * P - 1 - rank)
    raise ValueError(f"layout = {layout!r} is unknown; there are {', '.join(LAYOUTS)}")


def rows_of(layout: Layout, N: int, P: int, rank: int) -> NDArray[np.int64]:
    """The rows that a rank owns of N, in order: `blocks_of` as an array of indices."""
    return row_indices(blocks_of(layout, N, P, rank))


def row_indices(blocks: Sequence[range]) -> NDArray[np.int64]:
    """The rows of some blocks, in their order."""
    return np.concatenate([np.arange(b.start, b.stop, b.step) for b in (range(0), *blocks)])


def row_count(layout: Layout, N: int, P: int, rank: int) -> int:
    """How many of N rows a rank owns."""
    return sum(map(len, blocks_of(layout, N, P, rank)))


def check_layout(layout: Any, N: int, P: int) -> None:
    """Raise ValueError unless each of N rows has one owner among P ranks, with blocks from low to high."""
    if isinstance(layout, str):
        blocks_of(layout, N, P, 0)
        return
    if len(layout) != P:
        raise ValueError(f"layout has the blocks of {len(layout)} ranks; it must have those of P = {P}")
    for rank, blocks in enumerate(layout):
        rows = list(chain.from_iterable(blocks))
        if rows != sorted(rows):
            raise ValueError(f"layout gives rank {rank} blocks that do not go from low to high")
    owners = np.bincount(np.fromiter(chain.from_iterable(chain.from_iterable(layout)), int), minlength=N)
    if len(owners) != N or (owners != 1).any():
        wrong = int(np.flatnonzero(owners != 1)[0]) if (owners != 1).any() else N
        raise ValueError(f"layout must give each of the {N} rows to one rank; row {wrong} has not one owner")
