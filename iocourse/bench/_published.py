"""The published protocol of 2408.13233, written anew: its data, its operator and its error, row by row.

Queries and keys are normal, divided by √d, and the scores are not scaled again. Their operator divides column j
of exp(QKᵀ) by the sum of row j, in the exact and in the approximate code alike; that is not softmax, which
divides row i by the sum of row i. Their error is ‖x - y‖ / ‖x + y‖, half of the usual relative error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

SEED = 2
ROWS = range(4, 13)  # d; n = 10 · 2ᵈ
# As printed in the paper's table: d -> (error in per cent, speed-up).
TABLE = {
    4: (4.673, 1.42), 5: (2.505, 1.73), 6: (2.846, 2.58), 7: (1.838, 3.90), 8: (2.005, 9.43),
    9: (1.620, 26.4), 10: (1.286, 26.7), 11: (1.558, 40.3), 12: (0.773, 79.0),
}  # fmt: skip


class Data(NamedTuple):
    """One row's q, k, v, each (n, d) float32."""

    d: int
    q: Tensor
    k: Tensor
    v: Tensor


def rows() -> Iterator[Data]:
    """The nine rows, drawn one after the other from one generator."""
    import torch

    source = torch.Generator().manual_seed(SEED)
    for d in ROWS:
        n = 10 * 2**d
        q, k, v = (torch.randn(1, 1, n, d, generator=source)[0, 0] for _ in range(3))
        yield Data(d, q / d**0.5, k / d**0.5, v)


def their_error(x: Tensor, y: Tensor) -> float:
    """‖x - y‖ / ‖x + y‖, in per cent."""
    return 100 * float((x - y).norm() / (x + y).norm())
