"""Which queries meet which keys in the Triton kernels: a band, a block mask, packed sequences.

A call of attention is a `KernelProblem`: its sizes, and how many rows, keys and tiles its kernels meet. The
closed forms of `kernels` hold for every kind; what programs read to find their tiles is counted too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..sizes import check_sizes, plain_ints
from .closed_form import ceil_div

SPAN = 3  # numbers that say where a tile's list begins, where its cut tiles begin, and where it ends


def rows_of_delta(d: int) -> int:
    """Queries of one program of the kernel that computes D: about 8,192 numbers of O, and no more than 32."""
    return min(32, 8192 // max(16, 1 << (d - 1).bit_length()))


@dataclass(frozen=True)
class KernelProblem:
    """Sizes of one call: B batches, H heads of Nq queries, H_kv heads of Nk keys, head size d, the band.

    Query i sees key j where low ≤ j - i ≤ high; None: no limit. Causal is high = 0.
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
        """Rows of Q, over all heads."""
        return self.B * self.H * self.Nq

    @property
    def keys(self) -> int:
        """Rows of K, over its own heads."""
        return self.B * self.H_kv * self.Nk

    def row_products_extra(self, BM: int) -> dict[str, int]:
        """Words that the kernel of D reads to find its rows; none here."""
        return {}

    def rows_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Words that programs of BM queries read to know which keys they see; none for a band."""
        return {}

    def columns_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Words that programs of BN keys read to know which queries see them; none for a band."""
        return {}

    def keys_met(self, BM: int, BN: int) -> int:
        """Rows of K that tiles of BM queries load in tiles of BN, over all heads of Q: B·H·Σᵢ |keys(i)|."""
        return self.B * self.H * sum(keys for _, keys, _ in self._rows(BM, BN))

    def queries_met(self, BM: int, BN: int) -> int:
        """Rows of Q that tiles of BN keys load in tiles of BM, over all heads of Q: B·H·Σⱼ |queries(j)|."""
        return self.B * self.H * sum(queries for _, queries, _ in self._columns(BM, BN))

    def whole_rows(self, block: int) -> int:
        """Rows of Q, over all heads, with the last `block` of every sequence filled up."""
        return self.B * self.H * ceil_div(self.Nq, block) * block

    def row_numbers_met(self, BM: int, BN: int) -> int:
        """The same of the rows of `queries_met`: BM for every tile that is met."""
        return self.B * self.H * BM * sum(tiles for *_, tiles in self._columns(BM, BN))

    def rows_again(self, BM: int, BN: int) -> int:
        """Rows of Q, each once for every tile of BN keys that its tile of BM queries meets."""
        return self.B * self.H * sum(rows * tiles for rows, _, tiles in self._rows(BM, BN))

    def columns_again(self, BM: int, BN: int) -> int:
        """Rows of K, each once for every tile of BM queries that its tile of BN keys meets, over all heads of
        Q.
        """
        return self.B * self.H * sum(rows * tiles for rows, _, tiles in self._columns(BM, BN))

    def rows_hit(self, BM: int, BN: int) -> int:
        """Rows of Q in tiles that meet any keys."""
        return self.B * self.H * sum(rows for rows, _, tiles in self._rows(BM, BN) if tiles)

    def columns_hit(self, BM: int, BN: int) -> int:
        """Rows of K, over its own heads, in tiles that meet any queries."""
        return self.B * self.H_kv * sum(rows for rows, _, tiles in self._columns(BM, BN) if tiles)

    def pairs_met(self, BM: int, BN: int) -> int:
        """Scores in all tiles that tiles of queries meet."""
        return self.B * self.H * sum(rows * keys for rows, keys, _ in self._rows(BM, BN))

    def pairs_met_by_keys(self, BM: int, BN: int) -> int:
        """Scores in all tiles that tiles of keys meet."""
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
    """For each block of rows: how many they are, and the columns and tiles of `step` that they load.

    Tiles are whole, cut off at the last column.
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
    """A block mask: `pairs` (mb, mh, Nq, Nk) booleans, mb and mh being 1 where batches or heads share it."""

    pairs: NDArray[np.bool_] = field(default_factory=lambda: np.ones((1, 1, 1, 1), bool), compare=False)

    def tiles(self, BM: int, BN: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(hit, cut), each (mb, mh, ⌈Nq/BM⌉, ⌈Nk/BN⌉): tiles with a pair that is seen, and those of them
        that are not seen whole. A tile that passes the last key is never whole.
        """
        rows, columns = ceil_div(self.Nq, BM), ceil_div(self.Nk, BN)
        mb, mh = self.pairs.shape[:2]
        seen = np.zeros((mb, mh, rows * BM, columns * BN), bool)
        seen[:, :, : self.Nq, : self.Nk] = self.pairs
        whole = seen.copy()
        whole[:, :, self.Nq :] = True  # queries past the last one ask for nothing
        shape = (mb, mh, rows, BM, columns, BN)
        hit = np.asarray(seen.reshape(shape).any((3, 5)))
        return hit, np.asarray(hit & ~whole.reshape(shape).all((3, 5)))

    def _all_heads(self, counts: NDArray[np.int64]) -> int:
        """The sum over all batches and heads of counts (mb, mh, …)."""
        mb, mh = counts.shape[:2]
        return int(counts.sum() * (self.B // mb) * (self.H // mh))

    def keys_met(self, BM: int, BN: int) -> int:
        """Rows of K loaded by tiles of queries: the sizes of all tiles of keys that are hit."""
        hit, _ = self.tiles(BM, BN)
        return self._all_heads(hit * _sizes(self.Nk, BN))

    def queries_met(self, BM: int, BN: int) -> int:
        """Rows of Q loaded by tiles of keys: the sizes of all tiles of queries that are hit."""
        hit, _ = self.tiles(BM, BN)
        return self._all_heads(hit * _sizes(self.Nq, BM)[:, None])

    def row_numbers_met(self, BM: int, BN: int) -> int:
        """BM for every tile that is hit."""
        return BM * self._all_heads(self.tiles(BM, BN)[0].astype(np.int64))

    def rows_extra(self, BM: int, BN: int) -> dict[str, int]:
        """Each program reads its place in the order of work and its span; then an entry for each tile, and
        for each cut tile the number of its pattern and the pattern.
        """
        programs = self.B * self.H * ceil_div(self.Nq, BM)
        return {"order": programs, "spans": SPAN * programs} | self._lists(BM, BN)

    def columns_extra(self, BM: int, BN: int) -> dict[str, int]:
        """The same for programs of keys, which do the heads of a group one after the other."""
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
    """Rows of each tile of n rows."""
    return np.minimum(block, n - np.arange(0, n, block)).astype(np.int64)


@dataclass(frozen=True)
class PackedSequences(KernelProblem):
    """Sequences one behind the other: `lengths` are (queries, keys) of each, whose sums are Nq and Nk;
    B is 1.

    lower_right: the band counts from a diagonal that ends in each sequence's last pair.
    """

    lengths: tuple[tuple[int, int], ...] = ()
    lower_right: bool = False

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
        """The sum over the sequences: no tile reaches into another."""
        return sum(one.keys_met(BM, BN) for one in self._each)

    def queries_met(self, BM: int, BN: int) -> int:
        """The sum over the sequences."""
        return sum(one.queries_met(BM, BN) for one in self._each)

    def whole_rows(self, block: int) -> int:
        """The sum over the sequences."""
        return sum(one.whole_rows(block) for one in self._each)

    def row_numbers_met(self, BM: int, BN: int) -> int:
        """The sum over the sequences."""
        return sum(one.row_numbers_met(BM, BN) for one in self._each)

    def row_products_extra(self, BM: int) -> dict[str, int]:
        """Each program reads where its queries begin and end; there are programs for the longest sequence."""
        return {"cu_q": 2 * self._programs(self.H, 0, BM)}

    def rows_extra(self, BM: int, BN: int) -> dict[str, int]:
        """The same, and where its keys begin and end."""
        numbers = 2 * self._programs(self.H, 0, BM)
        return {"cu_q": numbers, "cu_k": numbers}

    def columns_extra(self, BM: int, BN: int) -> dict[str, int]:
        """The same for programs of keys."""
        numbers = 2 * self._programs(self.H_kv, 1, BN)
        return {"cu_q": numbers, "cu_k": numbers}

    def _programs(self, heads: int, side: int, block: int) -> int:
        longest = max((pair[side] for pair in self.lengths), default=0)
        return len(self.lengths) * heads * ceil_div(longest, block)
