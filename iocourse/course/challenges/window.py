"""A sliding window whose ring of keys and values is twice as large as fast memory."""

from functools import partial

from ... import masks
from .challenge_spec import Challenge
from .rolling_rows import rolling_rows

WIDTH = 256  # keys to either side


def _window(N: int) -> masks.Window:
    return masks.Window(N, WIDTH)


CHALLENGE = Challenge(
    id="window",
    title="a window that does not fit",
    pass_="forward",
    N=2048,
    d=32,
    M=16 * 32**2,
    shapes=((1, 32), (300, 32), (777, 32), (400, 21)),
    unit=lambda N, d, M: N * d,
    per="Nd",
    mask=_window,
    known=partial(rolling_rows, B=26, rows=7, kept=66),
    idea="queries come and go in small blocks, one at a time",
)
