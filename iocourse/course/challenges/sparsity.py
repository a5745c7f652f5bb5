"""Random sparsity: of 64 × 64 tiles a tenth is seen, here and there, in whatever order one goes."""

from functools import partial

from ... import masks
from .challenge_spec import Challenge
from .rolling_rows import rolling_rows

SIDE = 32  # tokens of a tile
# Of the 64 rows of tiles: what simulated annealing found, perhaps not the best.
ORDER = (
    39, 47, 10, 38, 42, 31, 60, 45, 40, 21, 0, 57, 18, 20, 34, 36, 23, 28, 25, 46, 51, 13,
    35, 5, 3, 52, 27, 32, 56, 24, 9, 44, 16, 19, 8, 6, 17, 48, 63, 29, 58, 43, 1, 37,
    55, 61, 59, 14, 22, 15, 7, 11, 50, 62, 26, 54, 49, 12, 30, 41, 33, 2, 53, 4,
)  # fmt: skip


def _scattered(N: int) -> masks.BlockMask:
    return masks.random(N, SIDE, 0.1, seed=8)


CHALLENGE = Challenge(
    id="sparsity",
    title="random sparsity",
    pass_="forward",
    N=2048,
    d=32,
    M=16 * 32**2,
    shapes=((1, 32), (300, 32), (777, 32), (400, 21)),
    unit=lambda N, d, M: N * d,
    per="Nd",
    mask=_scattered,
    known=partial(rolling_rows, B=SIDE, rows=7, kept=23, order=ORDER),
    idea="rows of tiles come and go one at a time",
)
