"""Numbers in words, as labels, sentences and tables say them."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def words(value: float) -> str:
    """A number as text: whole numbers with thousands separated, others with three or more figures."""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figures(value: float, count: int = 3) -> str:
    """A number rounded to so many figures, as `words` says it."""
    return words(float(f"{value:.{count}g}"))


def tick_label(value: float, base: int | None = None) -> str:
    """A tick's value as text: 16,384 or 5·10⁶ or 0.25."""
    if base == 10 and (value >= 1e5 or value < 1e-3):
        power = floor(log10(value) + 1e-9)
        lead = round(value / 10.0**power, 2)
        return ("" if lead == 1 else f"{lead:g}·") + "10" + str(power).translate(_SUPERSCRIPTS)
    return words(value)


def big(count: int) -> str:
    """A whole number as text, from a million million on to three figures."""
    return f"{count:,}" if count < 10**12 else tick_label(float(f"{count:.3g}"), 10)


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: Q, or Q and K, or Q, K and V."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
