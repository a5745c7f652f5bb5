"""Problems of the Triton kernels (band, block mask or packed sequences): rows and tiles that they load.

A call of attention is a `KernelProblem` with its sizes and the numbers of rows, keys and tiles that its
kernels load. The closed forms of `kernels` use them for every kind of problem. Words that programs read to
find their tiles are counted too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..sizes import check_sizes, plain_ints
from .closed_form import ceil_div

SPAN = 3  # indices per tile: start of its list, start of its partial tiles, end of its list


def rows_of_delta(d: int) -> int:
    """Return the queries per program of the kernel of D: about 8,192 entries of O, at most 32 rows."""
    return min(32, 8192 // max(16, 1 << (d - 1).bit_length()))


@dataclass(frozen=True)
class KernelProblem:
    """One call of attention: B batches, H heads of Nq queries, H_kv heads of Nk keys, dimension d, a band.

    Query i attends to key j if low ≤ j - i ≤ high; None means no limit. Causal is high = 0.
    """

    Nq: int
    Nk: int
    d: int
    low: int | None = None
    high: int | None = None
    B: int = 1
    H: int = 1
    H_kv: int = 1

    def __post_init__(self) -> None:
        plain_ints(self)

    @property
    def queries(self) -> int:
        """Rows of Q, summed over all heads."""
        return self.B * self.H * self.Nq

    @property
    def keys(self) -> int:
        """Rows of K, summed over the H_kv heads."""
        return self.B * self.H_kv * self.Nk

    def row_products_extra(self, BM: int) -> dict[str, int]:
        """Return the words, by array, that the kernel of D reads to find its rows; none for a band."""
        return {}

    def rows_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Return the words, by array, that programs of BM queries read to find keys; none for a band."""
        return {}

    def columns_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Return the words, by array, that programs of BN keys read to find queries; none for a band."""
        return {}

    def keys_met(self, BM: int, BN: int) -> int:
        """Return the rows of K that tiles of BM queries load, in tiles of BN: B·H·Σᵢ |keys(i)|."""
        return self.B * self.H * sum(keys for _, keys, _ in self._rows(BM, BN))

    def queries_met(self, BM: int, BN: int) -> int:
        """Return the rows of Q that tiles of BN keys load, in tiles of BM: B·H·Σⱼ |queries(j)|."""
        return self.B * self.H * sum(queries for _, queries, _ in self._columns(BM, BN))

    def whole_rows(self, block: int) -> int:
        """Return the rows of Q, summed over all heads, with each sequence padded to a multiple of `block`."""
        return self.B * self.H * ceil_div(self.Nq, block) * block

    def row_numbers_met(self, BM: int, BN: int) -> int:
        """Return the rows of `queries_met` with complete tiles: BM for every tile that is loaded."""
        return self.B * self.H * BM * sum(tiles for *_, tiles in self._columns(BM, BN))

    def rows_again(self, BM: int, BN: int) -> int:
        """Return the rows of Q, each counted once per tile of BN keys that its tile of BM queries loads."""
        return self.B * self.H * sum(rows * tiles for rows, _, tiles in self._rows(BM, BN))

    def columns_again(self, BM: int, BN: int) -> int:
        """Return the rows of K, each counted once per tile of BM queries that its tile of BN keys loads.

        Summed over all heads of Q.
        """
        return self.B * self.H * sum(rows * tiles for rows, _, tiles in self._columns(BM, BN))

    def rows_hit(self, BM: int, BN: int) -> int:
        """Return the rows of Q in tiles that load at least one key."""
        return self.B * self.H * sum(rows for rows, _, tiles in self._rows(BM, BN) if tiles)

    def columns_hit(self, BM: int, BN: int) -> int:
        """Return the rows of K, summed over the H_kv heads, in tiles that load at least one query."""
        return self.B * self.H_kv * sum(rows for rows, _, tiles in self._columns(BM, BN) if tiles)

    def pairs_met(self, BM: int, BN: int) -> int:
        """Return the number of scores in all tiles that the kernels by queries compute."""
        return self.B * self.H * sum(rows * keys for rows, keys, _ in self._rows(BM, BN))

    def pairs_met_by_keys(self, BM: int, BN: int) -> int:
        """Return the number of scores in all tiles that the kernels by keys compute."""
        return self.B * self.H * sum(rows * queries for rows, queries, _ in self._columns(BM, BN))

    def _rows(self, BM: int, BN: int) -> Iterator[tuple[int, int, int]]:
        return _met(self.Nq, self.Nk, BM, BN, self.low, self.high)

    def _columns(self, BM: int, BN: int) -> Iterator[tuple[int, int, int]]:
        below = None if self.high is None else -self.high
        above = None if self.low is None else -self.low
        return _met(self.Nk, self.Nq, BN, BM, below, above)


def _met(
    rows: int, columns: int, block: int, step: int, low: int | None, high: int | None
) -> Iterator[tuple[int, int, int]]:
    """Yield, per block of rows, its number of rows and the numbers of columns and tiles of `step` it loads.

    Tiles are loaded completely, except beyond the last column.
    """
    block, step = check_sizes(BM=block, BN=step)
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        begin = 0 if low is None else max(0, start + low)
        end = columns if high is None else min(columns, stop + high)
        first, last = begin // step, ceil_div(end, step)
        tiles = last - first if begin < end else 0
        yield stop - start, min(columns, last * step) - first * step if tiles else 0, tiles


@dataclass(frozen=True)
class BlockLists(KernelProblem):
    """Problem with a block mask: Booleans `pairs` (mb, mh, Nq, Nk); mb or mh is 1 for a shared mask."""

    pairs: NDArray[np.bool_] = field(default_factory=lambda: np.ones((1, 1, 1, 1), bool), compare=False)

    def tiles(self, BM: int, BN: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return (hit, cut), each (mb, mh, ⌈Nq/BM⌉, ⌈Nk/BN⌉): non-empty tiles, and partial tiles.

        A tile that extends beyond the last key is always partial.
        """
        rows, columns = ceil_div(self.Nq, BM), ceil_div(self.Nk, BN)
        mb, mh = self.pairs.shape[:2]
        seen = np.zeros((mb, mh, rows * BM, columns * BN), bool)
        seen[:, :, : self.Nq, : self.Nk] = self.pairs
        whole = seen.copy()
        whole[:, :, self.Nq :] = True  # rows out of bounds do not make a tile partial
        shape = (mb, mh, rows, BM, columns, BN)
        hit = np.asarray(seen.reshape(shape).any((3, 5)))
        return hit, np.asarray(hit & ~whole.reshape(shape).all((3, 5)))

    def _all_heads(self, counts: NDArray[np.int64]) -> int:
        """Return the sum of counts (mb, mh, …) over all batches and heads."""
        mb, mh = counts.shape[:2]
        return int(counts.sum() * (self.B // mb) * (self.H // mh))

    def keys_met(self, BM: int, BN: int) -> int:
        """Return the rows of K that tiles of queries load: the sizes of all non-empty tiles of keys."""
        hit, _ = self.tiles(BM, BN)
        return self._all_heads(hit * _sizes(self.Nk, BN))

    def queries_met(self, BM: int, BN: int) -> int:
        """Return the rows of Q that tiles of keys load: the sizes of all non-empty tiles of queries."""
        hit, _ = self.tiles(BM, BN)
        return self._all_heads(hit * _sizes(self.Nq, BM)[:, None])

    def row_numbers_met(self, BM: int, BN: int) -> int:
        """Return BM times the number of non-empty tiles."""
        return BM * self._all_heads(self.tiles(BM, BN)[0].astype(np.int64))

    def rows_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Return the words, by array, that programs of queries read to find their tiles.

        Each program reads its position in the order of work and its span, then one entry per non-empty tile,
        and per partial tile the index of its pattern and the pattern.
        """
        programs = self.B * self.H * ceil_div(self.Nq, BM)
        return {"order": programs, "spans": SPAN * programs} | self._lists(BM, BN)

    def columns_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Return the same for programs of keys, which process the heads of a group one after another."""
        tiles = ceil_div(self.Nk, BN)
        return {
            "order": self.B * self.H_kv * tiles,
            "spans": SPAN * self.B * self.H * tiles,
        } | self._lists(BM, BN)

    def _lists(self, BM: int, BN: int) -> dict[str, int]:
        hit, cut = self.tiles(BM, BN)
        slots = self._all_heads(cut.astype(np.int64))
        return {
            "entries": self._all_heads(hit.astype(np.int64)),
            "slots": slots,
            "patterns": slots * BM * BN,
        }


def _sizes(n: int, block: int) -> NDArray[np.int64]:
    """Return the number of rows of each tile of n rows, as an array."""
    return np.minimum(block, n - np.arange(0, n, block)).astype(np.int64)


@dataclass(frozen=True)
class PackedSequences(KernelProblem):
    """Problem of packed sequences: `lengths` are (queries, keys) of each, with sums Nq and Nk; B is 1.

    `lower_right`: the diagonal of the band ends in the last pair of each sequence. longest: (queries, keys)
    for which programs are started, at most Nq and Nk; None: those of the longest sequence.
    """

    lengths: tuple[tuple[int, int], ...] = ()
    lower_right: bool = False
    longest: tuple[int, int] | None = None

    @cached_property
    def _each(self) -> list[KernelProblem]:
        return [
            KernelProblem(n_q, n_k, self.d, *self._band(n_k - n_q), 1, self.H, self.H_kv)
            for n_q, n_k in self.lengths
        ]

    def _band(self, diagonal: int) -> tuple[int | None, int | None]:
        shift = diagonal if self.lower_right else 0
        return (
            None if self.low is None else self.low + shift,
            None if self.high is None else self.high + shift,
        )

    def keys_met(self, BM: int, BN: int) -> int:
        """Return the sum over the sequences; no tile extends into another sequence."""
        return sum(one.keys_met(BM, BN) for one in self._each)

    def queries_met(self, BM: int, BN: int) -> int:
        """Return the sum over the sequences."""
        return sum(one.queries_met(BM, BN) for one in self._each)

    def whole_rows(self, block: int) -> int:
        """Return the sum over the sequences."""
        return sum(one.whole_rows(block) for one in self._each)

    def row_numbers_met(self, BM: int, BN: int) -> int:
        """Return the sum over the sequences."""
        return sum(one.row_numbers_met(BM, BN) for one in self._each)

    def row_products_extra(self, BM: int) -> dict[str, int]:
        """Return the words of `cu_q` that the kernel of D reads: start and end of the sequence per program.

        Every sequence has as many programs as the longest one (see `longest`).
        """
        return {"cu_q": 2 * self._programs(self.H, 0, BM)}

    def rows_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Return the words of `cu_q` and `cu_k` that programs of queries read: starts and ends."""
        numbers = 2 * self._programs(self.H, 0, BM)
        return {"cu_q": numbers, "cu_k": numbers}

    def columns_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Return the words of `cu_q` and `cu_k` that programs of keys read: starts and ends."""
        numbers = 2 * self._programs(self.H_kv, 1, BN)
        return {"cu_q": numbers, "cu_k": numbers}

    def _programs(self, heads: int, side: int, block: int) -> int:
        longest = max((pair[side] for pair in self.lengths), default=0)
        if self.longest is not None:
            longest = self.longest[side]
        return len(self.lengths) * heads * ceil_div(longest, block)
