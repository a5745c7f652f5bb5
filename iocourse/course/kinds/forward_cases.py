"""Samples of forward kernels: inputs, exact attention, closed form and difficulty.

The difficulty is computed from the mask; a case has at most one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs.kernels import KernelProblem, attention_forward
from ..exercise import Draw, Sample
from ..trials.float32_inputs import FAR, Single, attention_of, far_apart, normal

Pairs = NDArray[np.bool_]
Difficulty = Callable[[Pairs, int, int], str]  # of the visible pairs (Nq, Nk), BM and BN; "" for none
ONE_TILE, ALL, FEW = "one tile of keys", "no mask", "few queries"
LATE, NOTHING = "rows whose first key is in a later tile", "rows that attend to no key"


def band(
    rng: np.random.Generator,
    BM: int,
    BN: int,
    Nq: int,
    d: int,
    difficulty: Difficulty,
    *,
    Nk: int | None = None,
    low: int | None = None,
    high: int | None = None,
    given: Mapping[str, Any] | None = None,
    far: bool = False,
) -> Sample:
    """Return a sample in which query i attends to the keys j with low ≤ j - i ≤ high (None: no limit).

    The student's function takes Q, K, V, the arguments in `given`, BM and BN. With `far`, scores are far from
    0, and this is the difficulty.
    """
    Nk, tile, given = Nk or Nq, {"BM": BM, "BN": BN}, given or {}
    Q, K, V = normal(rng, Nq, d), normal(rng, Nk, d), normal(rng, Nk, d)
    Q, K = far_apart(Q, K) if far else (Q, K)
    apart = np.arange(Nk)[None, :] - np.arange(Nq)[:, None]
    seen = (apart >= (-Nq if low is None else low)) & (apart <= (Nk if high is None else high))
    numbers = {name: value for name, value in given.items() if not isinstance(value, bool)}
    rows = {"N": Nq} if Nk == Nq else {"Nq": Nq, "Nk": Nk}
    return Sample(
        {**rows, "d": d, **numbers, **tile},
        {"Q": Q, "K": K, "V": V, **given, **tile},
        dict(zip(("O", "LSE"), attention_of(Q, K, V, seen), strict=True)),
        attention_forward(KernelProblem(Nq, Nk, d, low, high), BM=BM, BN=BN),
        (FAR if far else difficulty(seen, BM, BN),),
    )


def tile_difficulty(seen: Pairs, BM: int, BN: int) -> str:
    """Return `ONE_TILE` if one tile holds all keys, otherwise ""."""
    return ONE_TILE if seen.shape[1] <= BN else ""


def mask_difficulty(seen: Pairs, BM: int, BN: int) -> str:
    """Return the difficulty of the mask: a row without keys, a late first key, or a simple mask."""
    if not seen.any(axis=1).all():
        return NOTHING
    if any(_late(seen[at : at + BM], BN) for at in range(0, len(seen), BM)):
        return LATE
    return ALL if seen.all() else FEW if len(seen) < BM else ""


def _late(rows: Pairs, BN: int) -> bool:
    """Return whether a row attends to no key in the first tile of keys that these rows need."""
    first = int(rows.any(axis=0).argmax()) // BN * BN
    return not rows[:, first : first + BN].any(axis=1).all()


def tiles(high: int | None = None) -> Draw:
    """Return a generator of samples with and without ragged tiles.

    Less than one tile (twice, with equal sizes), one tile of keys, one key in the last tile, ragged queries,
    ragged queries and keys, wide, square and tall tiles, and scores far from 0.
    """

    def draw(rng: np.random.Generator) -> Iterator[Sample]:
        n = int(rng.integers(1, 15))
        small, large = [(32, 16, n, 16)] * 2, [(32, 16, 64 + n, 16), (32, 32, 96, 32), (16, 32, 65, 64)]
        for BM, BN, N, d in [*small, (16, 32, 30, 16), *large]:
            yield band(rng, BM, BN, N, d, tile_difficulty, high=high)
        yield band(rng, 32, 16, 32 + n, 16, tile_difficulty, high=high, far=True)

    return draw


def token_major(x: Single) -> Single:
    """Return heads (…, H, N, d) in the memory layout of a layer, with the heads of a token adjacent."""
    return np.ascontiguousarray(x.swapaxes(-3, -2)).swapaxes(-3, -2)
