"""Closed forms of the Triton kernels in `iocourse.kernels`: what their loads and stores move, in words.

They are the forms of `flash2`, `split_backward` and `fused_backward` with what a kernel adds: many heads, Nq
≠ Nk, and masks met in whole tiles, because a tile that the diagonal cuts is loaded whole. The peak is 0: what
a program holds is measured by the compiler, in registers and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ledger import Ledger
from ..sizes import positive_int
from .parts import ceil_div


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

    def keys_met(self, BM: int, BN: int) -> int:
        """Rows of K that tiles of BM queries load in tiles of BN, over all heads of Q: B·H·Σᵢ |keys(i)|."""
        return self.B * self.H * _met(self.Nq, self.Nk, BM, BN, self.low, self.high)

    def queries_met(self, BM: int, BN: int) -> int:
        """Rows of Q that tiles of BN keys load in tiles of BM, over all heads of Q: B·H·Σⱼ |queries(j)|."""
        below = None if self.high is None else -self.high
        above = None if self.low is None else -self.low
        return self.B * self.H * _met(self.Nk, self.Nq, BN, BM, below, above)


def _met(rows: int, columns: int, block: int, step: int, low: int | None, high: int | None) -> int:
    """Columns that blocks of rows load in whole tiles of `step`, cut off at the last column."""
    positive_int("BM", block), positive_int("BN", step)
    met = 0
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        begin = 0 if low is None else max(0, start + low)
        end = columns if high is None else min(columns, stop + high)
        if begin < end:
            met += min(columns, ceil_div(end, step) * step) - begin // step * step
    return met


def _ledger(reads: dict[str, int], writes: dict[str, int], atomics: dict[str, int] | None = None) -> Ledger:
    return Ledger(reads=reads, writes=writes, atomics=atomics or {})


def attention_forward(problem: Problem, *, BM: int, BN: int) -> Ledger:
    """O and LSE: Nd + 2Nd⌈N/BM⌉ read, Nd + N written, for one head and no mask."""
    p, met = problem, problem.keys_met(BM, BN)
    return _ledger(
        reads={"Q": p.queries * p.d, "K": met * p.d, "V": met * p.d},
        writes={"O": p.queries * p.d, "LSE": p.queries},
    )


def _row_products(p: Problem, dlse: bool) -> dict[str, int]:
    """What D = rowsum(dO ∘ O) reads; with a gradient of LSE that too, and LSE, to know empty rows."""
    rows = {"O": p.queries * p.d, "dO": p.queries * p.d}
    return rows | ({"LSE": p.queries, "dLSE": p.queries} if dlse else {})


def _columns_stay(p: Problem, met: int) -> tuple[dict[str, int], dict[str, int]]:
    """dK and dV from every tile of queries that sees a tile of keys."""
    reads = {"Q": met * p.d, "dO": met * p.d, "LSE": met, "D": met, "K": p.keys * p.d, "V": p.keys * p.d}
    return reads, {"dK": p.keys * p.d, "dV": p.keys * p.d}


def _sum(*parts: dict[str, int]) -> dict[str, int]:
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
    return _ledger(
        reads=_sum(_row_products(p, dlse), first, reads),
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
    return _ledger(
        reads=_sum(_row_products(p, dlse), reads, added),
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
    return _ledger(
        reads={"Q": parts * rows * p.d, "K": met * p.d, "V": met * p.d, **found},
        writes={**found, "O": rows * p.d, "LSE": rows},
    )
