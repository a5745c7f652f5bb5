"""Layouts: the rows that each rank owns (contiguous, zigzag, striped, or given as ranges).

P need not divide N: the sizes of the blocks then differ by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sizes import positive_int, zero_or_more

LAYOUTS = ("contiguous", "zigzag", "striped")
Placement = Sequence[Sequence[range]]  # for each rank its blocks of rows, in increasing order
Layout = str | Placement


def even_part(N: int, parts: int, which: int) -> range:
    """Return the rows of part `which` of N rows in `parts` consecutive parts; the first are longer by one."""
    size, longer = divmod(N, parts)
    start = which * size + min(which, longer)
    return range(start, start + size + (which < longer))


def blocks_of(layout: Layout, N: int, P: int, rank: int) -> tuple[range, ...]:
    """Return the rows that a rank owns as ranges: one, two for "zigzag", or those that `layout` contains.

    Zigzag cuts the rows into 2P blocks and gives rank p the blocks p and 2P - 1 - p. Striped gives it every
    P-th row. Raises ValueError with the name of the invalid argument.
    """
    N, P, rank = zero_or_more("N", N), positive_int("P", P), zero_or_more("rank", rank)
    if rank >= P:
        raise ValueError(f"rank must be from 0 to {P - 1} for P = {P}, got {rank}")
    if not isinstance(layout, str):
        return tuple(layout[rank])
    if layout == "contiguous":
        return (even_part(N, P, rank),)
    if layout == "striped":
        return (range(rank, N, P),)
    if layout == "zigzag":
        return even_part(N, 2 * P, rank), even_part(N, 2 * P, 2 * P - 1 - rank)
    raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, or ranges for each rank, got {layout!r}")


def rows_of(layout: Layout, N: int, P: int, rank: int) -> NDArray[np.int64]:
    """Return the rows that a rank owns, as an array of indices: `blocks_of`, concatenated."""
    return row_indices(blocks_of(layout, N, P, rank))


def row_indices(blocks: Sequence[range]) -> NDArray[np.int64]:
    """Return the rows of the blocks as one array of indices, in the order of the blocks."""
    return np.concatenate([np.arange(b.start, b.stop, b.step) for b in (range(0), *blocks)])


def row_count(layout: Layout, N: int, P: int, rank: int) -> int:
    """Return the number of rows that a rank owns."""
    return sum(map(len, blocks_of(layout, N, P, rank)))


def follows(layout: str, blocks: Sequence[Sequence[range]]) -> bool:
    """Return whether the blocks of all ranks have the order of a layout; their sizes may differ.

    Contiguous: each rank's rows follow those of the lower ranks. Zigzag: two blocks per rank, the first ones
    in the order of the ranks, then the second ones in the reverse order. Striped: exactly every P-th row.
    """
    P = len(blocks)
    if layout == "striped":
        N = sum(map(len, chain.from_iterable(blocks)))
        return all(row_indices(own).tolist() == list(range(rank, N, P)) for rank, own in enumerate(blocks))
    ordered = list(chain.from_iterable(blocks))
    if layout == "zigzag":
        if any(len(own) != 2 for own in blocks):
            return False
        ordered = [own[0] for own in blocks] + [own[1] for own in reversed(blocks)]
    ends = [end for one in ordered if one for end in (one[0], one[-1])]
    return ends == sorted(ends)


def check_lengths(lengths: Any, N: int) -> list[int]:
    """Return the lengths of packed sequences as integers; raise ValueError unless they sum to N rows."""
    told = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    if not isinstance(told, (list, tuple)):
        raise TypeError(f"texts must be a list of the lengths of the sequences, got {told!r}")
    found = [zero_or_more(f"texts[{k}]", length) for k, length in enumerate(told)]
    if sum(found) == N:
        return found
    said = f"texts must be the lengths of the sequences; they sum to {sum(found)}, but there are {N} rows"
    if found and found[0] == 0 and found[-1] == N and found == sorted(found):
        said += ". For cu_seqlens, pass the differences np.diff(cu_seqlens)"
    raise ValueError(said)


def check_layout(layout: Any, N: int, P: int) -> None:
    """Raise ValueError unless each of N rows has exactly one owner and each rank's blocks are increasing."""
    if isinstance(layout, str):
        blocks_of(layout, N, P, 0)
        return
    if len(layout) != P:
        raise ValueError(f"layout must contain the blocks of P = {P} ranks, got those of {len(layout)}")
    for rank, blocks in enumerate(layout):
        rows = list(chain.from_iterable(blocks))
        if rows != sorted(rows):
            raise ValueError(
                f"layout must list the rows of each rank in increasing order; rank {rank} differs"
            )
    owners = np.bincount(np.fromiter(chain.from_iterable(chain.from_iterable(layout)), int), minlength=N)
    if len(owners) != N or (owners != 1).any():
        wrong = int(np.flatnonzero(owners != 1)[0]) if (owners != 1).any() else N
        raise ValueError(
            f"layout must assign each of the {N} rows to exactly one rank; row {wrong} has none or several"
        )
