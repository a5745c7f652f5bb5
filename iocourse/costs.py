"""What each schedule must cost: closed forms in words, as functions of the sizes and the tiles.

Each function returns a `Ledger` whose `peak` is the footprint, the exact number of words of fast
memory the schedule needs. The formulas are stated for the loop orders in `iocourse.schedules`; a
property test holds that machine and formula agree to the word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .ledger import Ledger
from .sizes import check_sizes


def ceil_div(a: int, b: int) -> int:
    """⌈a/b⌉ for whole numbers."""
    return -(-a // b)


def _ledger(reads: dict[str, int], writes: dict[str, int], peak: int, sizes: dict[str, int]) -> Ledger:
    return Ledger(reads=reads, writes=writes, peak=peak, sizes=sizes)


def _attention_sizes(N: int, d: int) -> dict[str, int]:
    return {"Q": N * d, "K": N * d, "V": N * d, "O": N * d, "LSE": N}


def matmul(m: int, n: int, k: int, *, bm: int, bn: int) -> Ledger:
    """C = AB with A (m, k), B (k, n): a bm x bn tile of C stays, columns of A and rows of B stream past.

    mk⌈n/bn⌉ + kn⌈m/bm⌉ + mn words; footprint bm·bn + bm + bn with tiles cut to the matrix.
    """
    check_sizes(m=m, n=n, k=k, bm=bm, bn=bn)
    am, an = min(bm, m), min(bn, n)
    return _ledger(
        reads={"A": m * k * ceil_div(n, bn), "B": k * n * ceil_div(m, bm)},
        writes={"C": m * n},
        peak=am * an + am + an,
        sizes={"A": m * k, "B": k * n, "C": m * n},
    )


def naive(N: int, d: int, *, Br: int, Bc: int, Bm: int, Bn: int, lse: bool = False) -> Ledger:
    """S and P written out in full: Br rows of Q at a time, softmax in pieces of Bc, Bm x Bn tiles of O.

    Nd + Nd⌈N/Br⌉ + N² (scores), (p + 1)N² with p = 1 where a row fits and 2 otherwise (softmax),
    N²⌈d/Bn⌉ + Nd⌈N/Bm⌉ + Nd (output). Footprint max(Br·d + d + Br, Bc + 2, Bm·Bn + Bm + Bn).
    """
    check_sizes(N=N, d=d, Br=Br, Bc=Bc, Bm=Bm, Bn=Bn)
    passes = 1 if Bc >= N else 2
    r, c, mm, nn = min(Br, N), min(Bc, N), min(Bm, N), min(Bn, d)
    return _ledger(
        reads={
            "Q": N * d,
            "K": N * d * ceil_div(N, Br),
            "S": passes * N * N,
            "P": N * N * ceil_div(d, Bn),
            "V": N * d * ceil_div(N, Bm),
        },
        writes={"S": N * N, "P": N * N, "O": N * d, "LSE": N * lse},
        peak=max(r * d + d + r, c + 2, mm * nn + mm + nn),
        sizes={**_attention_sizes(N, d), "S": N * N, "P": N * N},
    )


def flash1(N: int, d: int, *, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """FlashAttention-1's order (2205.14135, Algorithm 1): K_j, V_j stay; Q, O, m, l come and go.

    3Nd + 2N + ⌈N/Bc⌉(3Nd + 4N) words; footprint 2Bc·d + Br(2d + 2 + Bc).
    """
    check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    passes = ceil_div(N, Bc)
    r, c = min(Br, N), min(Bc, N)
    return _ledger(
        reads={
            "Q": N * d * passes,
            "O": N * d * passes,
            "m": N * passes,
            "l": N * passes,
            "K": N * d,
            "V": N * d,
        },
        writes={"O": N * d * (passes + 1), "m": N * (passes + 1), "l": N * (passes + 1), "LSE": N * lse},
        peak=2 * c * d + r * (2 * d + 2 + c),
        sizes={**_attention_sizes(N, d), "m": N, "l": N},
    )


def _row_blocks(N: int, d: int, Br: int, lse: bool, peak: int) -> Ledger:
    passes = ceil_div(N, Br)
    return _ledger(
        reads={"Q": N * d, "K": N * d * passes, "V": N * d * passes},
        writes={"O": N * d, "LSE": N * lse},
        peak=peak,
        sizes=_attention_sizes(N, d),
    )


def flash2(N: int, d: int, *, Br: int, Bc: int, lse: bool = False) -> Ledger:
    """FlashAttention-2's order (2307.08691, Algorithm 1): Q_i, O_i stay; K and V stream past.

    2Nd + 2Nd⌈N/Br⌉ words (+ N for LSE); footprint Br(2d + 2 + Bc) + 2Bc·d.
    """
    check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    r, c = min(Br, N), min(Bc, N)
    return _row_blocks(N, d, Br, lse, r * (2 * d + 2 + c) + 2 * c * d)


def flash_optimal(N: int, d: int, *, Br: int, Bc: int = 1, lse: bool = False) -> Ledger:
    """The same order with V_j in K_j's place: its leading constant 4 is the least possible (Theorem A).

    2Nd + 2Nd⌈N/Br⌉ words (+ N for LSE); footprint Br(2d + 2 + Bc) + Bc·d.
    """
    check_sizes(N=N, d=d, Br=Br, Bc=Bc)
    r, c = min(Br, N), min(Bc, N)
    return _row_blocks(N, d, Br, lse, r * (2 * d + 2 + c) + c * d)


def best_pair(cost: Callable[[int, int], int], extent: int, partner: Callable[[int], int]) -> tuple[int, int]:
    """(a, b) with the least cost(a, b): a runs over the sizes worth trying for `extent`, b = partner(a) ≥ 1.

    A size is worth trying where ⌈extent/a⌉ changes: about 2√extent of them.
    """
    pairs = [(a, partner(a)) for a in distinct_sizes(extent) if partner(a) >= 1]
    return min(pairs, key=lambda pair: cost(*pair))


def distinct_sizes(extent: int) -> Iterable[int]:
    """The smallest size for each value of ⌈extent/size⌉, from large to small: about 2√extent of them."""
    size = extent
    while size >= 1:
        count = ceil_div(extent, size)
        size = ceil_div(extent, count)
        yield size
        size -= 1
