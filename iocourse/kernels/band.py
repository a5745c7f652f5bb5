"""Which keys a query sees, as the two numbers the kernels take."""

from __future__ import annotations

from typing import Any, NamedTuple

ALIGNMENTS = ("upper_left", "lower_right")


class Band(NamedTuple):
    """Query i sees key j where low ≤ j - i ≤ high; None: no limit on that side."""

    low: int | None
    high: int | None

    @property
    def flags(self) -> dict[str, bool]:
        """What a kernel is compiled for: which of the two limits there are."""
        return {"HAS_LOW": self.low is not None, "HAS_HIGH": self.high is not None}

    @property
    def numbers(self) -> tuple[int, int]:
        """(low, high) for a kernel, 0 where its flag says that there is no limit."""
        return self.low or 0, self.high or 0


def band_of(causal: Any, window: Any, n_q: int, n_k: int) -> Band:
    """The band that `attention`'s arguments ask for; n_q queries, n_k keys.

    Raises:
        ValueError: `causal` or `window` is none of the allowed values.
    """
    left, right, alignment = band_parts(causal, window)
    diagonal = n_k - n_q if alignment == "lower_right" else 0
    # A limit that no pair of these sizes passes is no limit: the kernel then needs no mask for it.
    low = None if left is None or diagonal - left <= 1 - n_q else diagonal - left
    high = None if right is None or diagonal + right >= n_k - 1 else diagonal + right
    return Band(low, high)


def band_parts(causal: Any, window: Any) -> tuple[int | None, int | None, str | None]:
    """Keys to the left and to the right of a query's own, None for no limit; and the causal alignment."""
    alignment = _alignment(causal)
    left, right = _window(window)
    if alignment:
        right = 0 if right is None else min(right, 0)
    return left, right, alignment


def _alignment(causal: Any) -> str | None:
    if causal is False:
        return None
    if causal is True:
        return ALIGNMENTS[0]
    if isinstance(causal, str) and causal in ALIGNMENTS:
        return causal
    raise ValueError(f"causal is {causal!r}; allowed: False, True (the same as 'upper_left'), 'lower_right'")


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    allowed = "a pair (left, right) of whole numbers of keys, each 0 or more, or None (or -1) for no limit"
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(f"window is {window!r}; allowed: None, or {allowed}")
    sides: list[int | None] = []
    for side in window:
        if side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < -1):
            raise ValueError(f"window is {window!r}; allowed: {allowed}")
        sides.append(None if side is None or side == -1 else side)
    return sides[0], sides[1]
