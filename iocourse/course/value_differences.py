"""How a wrong value differs: the digits that show it, and a scale 1/√d that is missing or used twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import exact

LEAST, MOST = 6, 17  # digits; with 17, different float64 numbers have different texts


def fewest_digits(tolerance: float) -> int:
    """The number of significant digits in a comparison up to `tolerance`, at most six.

    >>> fewest_digits(2e-5), fewest_digits(1e-9)
    (4, 6)
    """
    return max(1, min(LEAST, math.floor(-math.log10(tolerance)))) if tolerance else LEAST


def format_apart(one: float, other: float, grouped: str = "", least: int = LEAST) -> tuple[str, str]:
    """Both numbers in the fewest digits, from `least` on, in which they differ; `grouped` may be ",".

    >>> format_apart(268770123.0, 268770456.0)
    ('2.687701e+08', '2.687705e+08')
    """
    for digits in range(least, MOST + 1):
        texts = f"{one:{grouped}.{digits}g}", f"{other:{grouped}.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def scale_seen(Q: Any, K: Any, V: Any, O: Any, tolerance: float = 1e-9) -> str | None:
    """Which likely wrong c makes O = softmax(cQKᵀ)V; None if there is none. Shapes (N, d), O (Nq, dv)."""
    d, wanted = Q.shape[1], f"1/√{Q.shape[1]} = {Q.shape[1] ** -0.5:.4g}"
    likely = {  # forgotten, twice, a wrong power, multiplied instead of divided, the wrong sign
        "1": 1.0,
        f"1/{d}": 1 / d,
        f"√{d}": d**0.5,
        f"{d}": float(d),
        f"1/{d * d}": d**-2.0,
        f"-1/√{d}": -(d**-0.5),
        "0": 0.0,
    }
    for name, scale in likely.items():
        rows = exact.attention(Q, K, V, scale=scale)
        if np.shape(O) == rows.shape and np.abs(O - rows).max() <= tolerance * (1 + np.abs(rows).max()):
            return f"yours multiplies QKᵀ by {name}, expected {wanted}"
    return None


def factor_seen(got: Any, want: Any, inputs: Mapping[str, Any], tolerance: float = 1e-9) -> str | None:
    """A clause if all of `got` is √d or 1/√d times `want`; d is the width of the input Q, or q."""
    shapes = [np.shape(inputs[name]) for name in ("Q", "q") if name in inputs]
    d = shapes[0][-1] if shapes and len(shapes[0]) > 1 else 0
    for name, factor in {"√d": d**0.5, "1/√d": (d or 1) ** -0.5}.items() if d > 1 else ():
        scaled = factor * np.asarray(want, dtype=np.float64)
        if _equal(np.asarray(got), scaled, tolerance):
            return f"all of yours is {name} times what is expected"
    return None


def _equal(got: Any, want: Any, tolerance: float) -> bool:
    if got.shape != want.shape or got.dtype.kind not in "iuf" or not np.isfinite(want).all():
        return False
    return bool(np.abs(got - want).max(initial=0.0) <= tolerance * (1 + np.abs(want).max(initial=0.0)))
