"""Closed forms of the Triton kernels in `iocourse.kernels`: what their loads and stores move, in words.

They are the forms of `flash2`, `split_backward` and `fused_backward` with what a kernel adds: many heads, Nq
≠ Nk, and masks met in whole tiles, because a tile that the diagonal cuts is loaded whole. The peak is 0: what
a program holds is measured by the compiler, in registers and bytes. A pass is the sum of its kernels
(`each_kernel`); block masks and packed sequences are problems of their own (`pairs`).
"""

from __future__ import annotations

from ..ledger import Ledger
from ..sizes import check_sizes
from .each_kernel import added, kernel_words, ledger_of, row_products
from .kernel_masks import Problem

__all__ = [
    "Problem",
    "attention_decode",
    "attention_forward",
    "attention_fused_backward",
    "attention_split_backward",
]


def attention_forward(problem: Problem, *, BM: int, BN: int) -> Ledger:
    """O and LSE: Nd + 2Nd⌈N/BM⌉ read, Nd + N written, for one head and no mask."""
    return kernel_words("forward", problem, BM=BM, BN=BN)


def attention_split_backward(
    problem: Problem, *, queries: tuple[int, int], keys: tuple[int, int], dlse: bool = False
) -> Ledger:
    """dQ, D and LSE / log 2, then dK and dV; `queries` and `keys` are the (BM, BN) of the two kernels.

    4Nd + N + 2Nd⌈N/BM⌉ + 2N' and 4Nd + ⌈N/BN⌉(2Nd + 2N') words for one head and no mask, N' being N up to a
    whole tile of each kernel.
    """
    return added(
        kernel_words("queries", problem, BM=queries[0], BN=queries[1], dlse=dlse, pad=keys[0]),
        kernel_words("keys", problem, BM=keys[0], BN=keys[1]),
    )


def attention_fused_backward(problem: Problem, *, BM: int, BN: int, dlse: bool = False) -> Ledger:
    """D, LSE / log 2 and zeros; then dK, dV and dQ at once, dQ by atomic additions: each is one read and one
    write.

    3Nd + N + 2N', then 4Nd + ⌈N/BN⌉(4Nd + 2N') words for one head and no mask, N' as above. dQ_sum is float32
    whatever the others are; scaling and casting it is torch's and is not counted.
    """
    return added(row_products(problem, dlse, BM, zeros=True), kernel_words("fused", problem, BM=BM, BN=BN))


def attention_decode(
    problem: Problem, *, parts: int, tiles: int = 1, last_merges: bool = False
) -> Ledger:  # fmt: skip
    """One query a head against Nk keys in `parts` stretches, then the merge; Nq is 1.

    2·B·H_kv·Nk·d words of K and V for each of the `tiles` of query heads that share them (one for up to 64),
    and B·H·(d + 1) words written and read again for each part. `last_merges`: each of the B·H_kv·tiles·parts
    programs adds to a counter too, an int32 that is read and written, and the last of a tile writes its 0.
    """
    parts, tiles = check_sizes(parts=parts, tiles=tiles)
    p, met, rows = problem, problem.keys * tiles, problem.queries
    found = {"O_parts": parts * rows * p.d, "LSE_parts": parts * rows}
    counters = p.B * p.H_kv * tiles if last_merges else 0
    arrived = {"arrived": counters * parts} if last_merges else {}
    return ledger_of(
        reads={"Q": parts * rows * p.d, "K": met * p.d, "V": met * p.d, **found, **arrived},
        writes={**found, "O": rows * p.d, "LSE": rows, **{name: n + counters for name, n in arrived.items()}},
        atomics=arrived,
    )
