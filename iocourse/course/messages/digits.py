"""Two numbers in as few digits as tell them apart."""

from __future__ import annotations

import math

LEAST, MOST = 6, 17  # digits; with 17, different float64 numbers have different texts


def digits_of(tolerance: float) -> int:
    """How many digits say something where numbers are compared up to `tolerance`; six at the most.

    >>> digits_of(2e-5), digits_of(1e-9)
    (4, 6)
    """
    return max(1, min(LEAST, math.floor(-math.log10(tolerance)))) if tolerance else LEAST


def told_apart(one: float, other: float, grouped: str = "", least: int = LEAST) -> tuple[str, str]:
    """Both numbers in the fewest digits, from `least` on, in which they differ; `grouped` may be ",".

    >>> told_apart(268770123.0, 268770456.0)
    ('2.687701e+08', '2.687705e+08')
    """
    for digits in range(least, MOST + 1):
        texts = f"{one:{grouped}.{digits}g}", f"{other:{grouped}.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts
