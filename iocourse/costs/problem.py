"""Sizes of one call of attention, and how many rows, keys and tiles its kernels meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..sizes import positive_int
from .parts import ceil_div

ROWS_OF_D = 32  # queries of one program of the kernel that computes D, for d to 256


@dataclass(frozen=True)
class Problem:
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
    positive_int("BM", block), positive_int("BN", step)
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        begin = 0 if low is None else max(0, start + low)
        end = columns if high is None else min(columns, stop + high)
        first, last = begin // step, ceil_div(end, step)
        tiles = last - first if begin < end else 0
        yield stop - start, min(columns, last * step) - first * step if tiles else 0, tiles
