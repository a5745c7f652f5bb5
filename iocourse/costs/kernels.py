"""Closed forms of the Triton kernels in `iocourse.kernels`: what their loads and stores move, in words.

They are the forms of `flash2`, `split_backward` and `fused_backward` with what a kernel adds: many heads, Nq
≠ Nk, and masks met in whole tiles, because a tile that the diagonal cuts is loaded whole. The peak is 0: what
a program holds is measured by the compiler, in registers and bytes. What a block mask or packed sequences
change stands in `pairs`, what slices of d change in `sliced_kernels`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ledger import Ledger
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


def ledger_of(reads: dict[str, int], writes: dict[str, int], atomics: dict[str, int] | None = None) -> Ledger:
    """A ledger without a peak."""
    return Ledger(reads=reads, writes=writes, atomics=atomics or {})


def attention_forward(problem: Problem, *, BM: int, BN: int) -> Ledger:
    """O and LSE: Nd + 2Nd⌈N/BM⌉ read, Nd + N written, for one head and no mask."""
    p, met = problem, problem.keys_met(BM, BN)
    return ledger_of(
        reads={"Q": p.queries * p.d, "K": met * p.d, "V": met * p.d, **p.rows_extra(BM, BN)},
        writes={"O": p.queries * p.d, "LSE": p.queries},
    )


def row_products(p: Problem, dlse: bool) -> dict[str, int]:
    """What D = rowsum(dO ∘ O) reads; with a gradient of LSE that too, and LSE, to know empty rows."""
    rows = {"O": p.queries * p.d, "dO": p.queries * p.d}
    return rows | ({"LSE": p.queries, "dLSE": p.queries} if dlse else {})


def _columns_stay(p: Problem, met: int) -> tuple[dict[str, int], dict[str, int]]:
    """dK and dV from every tile of queries that sees a tile of keys."""
    reads = {"Q": met * p.d, "dO": met * p.d, "LSE": met, "D": met, "K": p.keys * p.d, "V": p.keys * p.d}
    return reads, {"dK": p.keys * p.d, "dV": p.keys * p.d}


def sum_of(*parts: dict[str, int]) -> dict[str, int]:
    """Words by array, added up."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0) for part in parts) for name in names}


def attention_split_backward(
    problem: Problem, *, queries: tuple[int, int], keys: tuple[int, int], dlse: bool = False
) -> Ledger:
    """dQ and D, then dK and dV; `queries` and `keys` are the (BM, BN) of the two kernels.

    4Nd + N + 2Nd⌈N/BM⌉ + N and 4Nd + ⌈N/BN⌉(2Nd + 2N) words, for one head and no mask.
    """
    p, met = problem, problem.keys_met(*queries)
    first = {"Q": p.queries * p.d, "LSE": p.queries, "K": met * p.d, "V": met * p.d}
    reads, writes = _columns_stay(p, problem.queries_met(*keys))
    return ledger_of(
        reads=sum_of(row_products(p, dlse), first, reads, p.rows_extra(*queries), p.columns_extra(*keys)),
        writes={"D": p.queries, "dQ": p.queries * p.d, **writes},
    )


def attention_fused_backward(problem: Problem, *, BM: int, BN: int, dlse: bool = False) -> Ledger:
    """D, then dK, dV and dQ at once, dQ by atomic additions: each is one read and one write.

    2Nd + N, then 4Nd + ⌈N/BN⌉(4Nd + 2N) words, for one head and no mask. dQ is float32 whatever the others
    are; filling it with zeros and casting it are torch's and are not counted.
    """
    p, met = problem, problem.queries_met(BM, BN)
    reads, writes = _columns_stay(p, met)
    added = {"dQ": met * p.d}
    extra = sum_of(p.row_products_extra(ROWS_OF_D), p.columns_extra(BM, BN))
    return ledger_of(
        reads=sum_of(row_products(p, dlse), reads, added, extra),
        writes={"D": p.queries, **added, **writes},
        atomics=added,
    )


def attention_decode(problem: Problem, *, parts: int, tiles: int = 1) -> Ledger:
    """One query a head against Nk keys in `parts` stretches, then the merge; Nq is 1.

    2·B·H_kv·Nk·d words of K and V for each of the `tiles` of query heads that share them (one for up to 64),
    and B·H·(d + 1) words written and read again for each part.
    """
    p, met, rows = problem, problem.keys * positive_int("tiles", tiles), problem.queries
    found = {"O_parts": parts * rows * p.d, "LSE_parts": parts * rows}
    return ledger_of(
        reads={"Q": parts * rows * p.d, "K": met * p.d, "V": met * p.d, **found},
        writes={**found, "O": rows * p.d, "LSE": rows},
    )
