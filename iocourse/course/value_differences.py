"""The scale 1/√d, forgotten or used twice: on the scores, or on a whole result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import exact


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


def factor_seen(got: Any, want: Any, inputs: Mapping[str, Any], tolerance: float = 1e-9) -> str | None:
    """Whether all of `got` is √d or 1/√d times `want`; d is the width of the input Q, or q."""
    d = _width(inputs)
    for name, factor in {"√d": d**0.5, "1/√d": (d or 1) ** -0.5}.items() if d > 1 else ():
        scaled = factor * np.asarray(want, dtype=np.float64)
        if _equal(np.asarray(got), scaled, tolerance):
            return f"all of yours is {name} times what is expected"
    return None


def _width(inputs: Mapping[str, Any]) -> int:
    shapes = [np.shape(inputs[name]) for name in ("Q", "q") if name in inputs]
    return shapes[0][-1] if shapes and len(shapes[0]) > 1 else 0


def _equal(got: Any, want: Any, tolerance: float) -> bool:
    if got.shape != want.shape or got.dtype.kind not in "iuf" or not np.isfinite(want).all():
        return False
    return bool(np.abs(got - want).max(initial=0.0) <= tolerance * (1 + np.abs(want).max(initial=0.0)))
