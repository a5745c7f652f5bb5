"""Random sparsity: of 64 × 64 tiles a tenth is seen, here and there, in whatever order one goes."""

from ... import masks
from .setting import Challenge

SIDE = 32  # tokens of a tile


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
)
