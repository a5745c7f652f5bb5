"""By which number an answer has multiplied the scores, where it was not 1/√d."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import exact


def scale_seen(Q: Any, K: Any, V: Any, O: Any, tolerance: float = 1e-9) -> str | None:
    """None where O is no softmax(cQKᵀ)V for a likely c, else which c it is. Shapes (N, d), O (Nq, dv)."""
    d, wanted = Q.shape[1], f"1/√{Q.shape[1]} = {Q.shape[1] ** -0.5:.4g}"
    for name, scale in _likely(d).items():
        rows = exact.attention(Q, K, V, scale=scale)
        if np.shape(O) == rows.shape and np.abs(O - rows).max() <= tolerance * (1 + np.abs(rows).max()):
            return f"yours multiplies QKᵀ by {name}, expected {wanted}"
    return None


def _likely(d: int) -> dict[str, float]:
    """Forgotten, twice, by the wrong power, multiplied in place of divided, with the wrong sign."""
    return {
        "1": 1.0,
        f"1/{d}": 1 / d,
        f"√{d}": d**0.5,
        f"{d}": float(d),
        f"1/{d * d}": d**-2.0,
        f"-1/√{d}": -(d**-0.5),
        "0": 0.0,
    }
