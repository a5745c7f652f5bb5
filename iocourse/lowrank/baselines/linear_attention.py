"""What they all share: a product taken from the other end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]  # float32 or float64, a token a row


def linear(left: Rows, right: Rows, v: Rows) -> Rows:
    """(left rightᵀ)V over the sums of its rows: features (n, m), v (n, d_v); n × n is never formed."""
    ones = np.ones((len(v), 1), v.dtype)
    both = left @ (right.T @ np.hstack([v, ones]))  # (n, d_v + 1)
    found: Rows = both[:, :-1] / both[:, -1:]
    return found
