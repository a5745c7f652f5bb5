"""Two numbers in as few digits as tell them apart."""

from __future__ import annotations

LEAST, MOST = 6, 17  # digits; with 17, different float64 numbers have different texts


def told_apart(one: float, other: float, grouped: str = "") -> tuple[str, str]:
    """Both numbers in the fewest digits, from six on, in which they differ; `grouped` may be ",".

    >>> told_apart(268770123.0, 268770456.0)
    ('2.687701e+08', '2.687705e+08')
    """
    for digits in range(LEAST, MOST + 1):
        texts = f"{one:{grouped}.{digits}g}", f"{other:{grouped}.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts
