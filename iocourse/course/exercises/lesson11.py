"""Exercises of lessons 11 and 11b: the forward pass, its two loops, bands, many heads, and a repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ... import exact
from ...costs.kernels import KernelProblem, attention_forward
from ..exercise import Case, Sample
from ..kinds.forward_cases import (
    ALL,
    LATE,
    NOTHING,
    ONE_TILE,
    Pairs,
    band,
    mask_difficulty,
    tiles,
    token_major,
)
from ..kinds.kernel import ATTENTION, FAR_FROM_0, LSE, O, kernel_exercise
from ..kinds.sixteen_bits import sixteen_bit_exercise
from ..trials.compiled_launch import Target
from ..trials.float32_inputs import FAR, Single, far_apart, normal
from ..trials.kernel_launch import launch_and_count_masks, masks_only, words_exactly

ALONE = {("O", ONE_TILE): "O is correct when one tile holds all keys"}

FORWARD = kernel_exercise("11A", "O LSE", tiles(), ALONE | ATTENTION, loads="Q K V")
REPAIR = kernel_exercise("11E", "O LSE", tiles(high=0), ALONE | ATTENTION, loads="Q K V")


# ------------------------------------------------------------------ 11B two loops
CAUSAL, FULL = "causal", "full"


def _of_mask(seen: Pairs, BM: int, BN: int) -> str:
    return FULL if seen.all() and len(seen) > 1 else CAUSAL


def causal_and_full(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield causal and full attention, ragged or not, with wide, square and tall tiles and many full blocks.

    The last sample is small and causal with scores far from 0. d differs from BM and BN, because masked tiles
    are counted by size.
    """
    n = int(rng.integers(1, 15))
    for high, BM, BN, N, d in [
        (0, 16, 16, 96 + n, 64),
        (None, 32, 16, 65, 64),
        (0, 16, 32, 96, 64),
        (0, 32, 32, 96 + n, 16),
        (0, 32, 16, 65, 64),
        (None, 32, 32, 64, 16),
        *[(0, 16, 16, n, 64)] * 2,  # the same sizes, other numbers
    ]:
        yield band(rng, BM, BN, N, d, _of_mask, high=high, given={"causal": high == 0})
    yield band(rng, 16, 16, 20, 64, _of_mask, high=0, given={"causal": True}, far=True)


def cut_tiles(case: Case) -> int:
    """Return the number of partial blocks, including those with out-of-bounds keys."""
    N, BM, BN = len(case.inputs["Q"]), case.inputs["BM"], case.inputs["BN"]
    columns = -(-N // BN) * BN
    i, j = np.arange(N)[:, None], np.arange(columns)[None, :]
    seen = (j < N) & ((j <= i) | (not case.inputs["causal"]))
    tiles = [seen[a : a + BM, b : b + BN] for a in range(0, N, BM) for b in range(0, columns, BN)]
    return sum(bool(tile.any() and not tile.all()) for tile in tiles)


LOOPS = kernel_exercise(
    "11B",
    "O LSE",
    causal_and_full,
    {
        ("O", FULL): "O is correct without a causal mask",
        ("O", CAUSAL): "O is correct with a causal mask",
        **LSE,
        **FAR_FROM_0,
    },
    loads="Q K V",
    words=words_exactly("moves exactly the words of the blocks that are not empty"),
    also=(masks_only(cut_tiles),),
    run_case=launch_and_count_masks,
)


# ------------------------------------------------------------------ 11C rows that attend to no key
def bands(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield bands with rows without keys, rows whose first key is in a later tile, and wide bands.

    For one tile of queries, the first and the last key are the same; one last tile has a single key. Rows
    with scores far from 0 have a late first key.
    """
    n, w = int(rng.integers(2, 8)), int(rng.integers(3, 8))
    for BM, BN, Nq, Nk, d, low, high in [
        (32, 16, 48 + n, 48 + n, 16, -w, 0),
        (16, 32, 56, 56, 16, -w, w),
        (16, 16, 40 + n, 16 + n, 16, -64, -24),  # causal, keys aligned to the right
        (16, 16, 40, 16 - w, 16, -w, 2),
        (64, 16, 17, 48, 16, -64, -16),  # only the last query attends to a key, the first one
        *[(16, 16, n, 48, 16, -64, 48 - n)] * 2,  # the same sizes, other numbers
        (16, 32, 33, 33, 32, -64, 64),
    ]:
        borders = {"low": low, "high": high}
        yield band(rng, BM, BN, Nq, d, mask_difficulty, Nk=Nk, low=low, high=high, given=borders)
    yield band(rng, 16, 16, 34, 16, mask_difficulty, low=-w, high=w, given={"low": -w, "high": w}, far=True)


EDGES = {
    ("O", ALL): "O is correct when every row attends to a key in every tile",
    ("O", LATE): "O is correct for rows whose first key is in a later tile",
    ("O", NOTHING): "a row that attends to no key has O = 0",
    ("LSE", NOTHING): "a row that attends to no key has LSE = -∞",
}
BAND = kernel_exercise("11C", "O LSE", bands, EDGES | ATTENTION)


# ------------------------------------------------------------------ 11D many heads
SHARED, LAYOUT = "keys shared", "other layouts"
Layout = Callable[[Single], Single]  # an array (B, H, N, d) in another memory layout


def heads(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield one head, several heads, K and V shared by groups or by all, batches, different memory layouts
    per tensor, the layout of a layer (heads within a token), and scores far from 0 (twice).
    """
    n = int(rng.integers(1, 15))
    drawn: list[tuple[int, int, int, int, int, int, int, list[Layout]]] = [
        (1, 1, 1, 40 + n, 16, 16, 32, [_plain] * 3),
        (2, 2, 2, 17, 32, 16, 16, [_plain] * 3),  # one key more than a tile, and another d
        (1, 4, 2, 20, 16, 32, 16, [_plain] * 3),
        (2, 2, 1, 16 + n, 16, 32, 16, [_plain] * 3),
        (2, 4, 2, 20, 16, 32, 16, [_cut_of(3), _padded, _cut_of(5)]),
        (2, 2, 2, 32, 16, 32, 16, [token_major] * 3),
    ]
    for B, H, H_kv, N, d, BM, BN, lies in drawn:
        Q, K, V = (how(normal(rng, B, h, N, d)) for how, h in zip(lies, (H, H_kv, H_kv), strict=True))
        yield _heads(Q, K, V, BM, BN, LAYOUT if lies[0] is not _plain else _of_heads(H, H_kv))
    for _ in range(2):
        Q, K, V = normal(rng, 3, 1, 1, 18, 16)
        yield _heads(*far_apart(Q, K), V, 32, 16, FAR)


def _of_heads(H: int, H_kv: int) -> str:
    return SHARED if H_kv < H else "several heads" if H > 1 else "one head"


def _heads(Q: Single, K: Single, V: Single, BM: int, BN: int, difficulty: str) -> Sample:
    (B, H, N, d), H_kv = Q.shape, K.shape[1]
    k, v = (np.repeat(x, H // H_kv, axis=1).astype(np.float64) for x in (K, V))
    words = attention_forward(KernelProblem(N, N, d, B=B, H=H, H_kv=H_kv), BM=BM, BN=BN)
    words.writes["LSE"] = 0  # this kernel does not store LSE
    return Sample(
        {"B": B, "H": H, "H_kv": H_kv, "N": N, "d": d, "BM": BM, "BN": BN},
        {"Q": Q, "K": K, "V": V, "BM": BM, "BN": BN},
        {"O": exact.attention(Q.astype(np.float64), k, v)},
        words,
        (difficulty,),
    )


def _plain(x: Single) -> Single:
    return x


def _padded(x: Single) -> Single:
    """Add padding between the rows."""
    return np.pad(x, [(0, 0)] * 3 + [(0, 4)])[..., : x.shape[3]]


def _cut_of(times: int) -> Layout:
    """Return a layout of heads within a token, as a slice of rows that are `times` as long."""

    def cut(x: Single) -> Single:
        room = np.pad(x.swapaxes(1, 2), [(0, 0)] * 3 + [(0, (times - 1) * x.shape[3])])
        return room[..., : x.shape[3]].swapaxes(1, 2)

    return cut


HEADS = kernel_exercise(
    "11D",
    "O",
    heads,
    {
        ("O", "one head"): "O is correct for one head",
        ("O", "several heads"): "each head uses its own keys",
        ("O", SHARED): "O is correct when heads share keys",
        ("O", LAYOUT): "uses the strides of the tensors",
        **O,
        **FAR_FROM_0,
    },
)

# ------------------------------------------------------------------ 11F sixteen bits
# Instructions per score in the inner loop, 128 × 64, d = 64, 4 warps, 3 stages. With Triton 3.7.1 the
# reference has 7.8 on sm_90 and 10.1 on sm_80, with the scale before the maximum 8.8 and 11.0. Refused are
# tl.exp and a loop that is masked throughout, which have 12.8 or more and 15.3 or more.
ON_90, ON_80 = {"3.7.1": 11.0}, {"3.7.1": 14.0}
SIXTEEN_BITS = sixteen_bit_exercise(
    "11F", (Target("float16", 90, ON_90), Target("bfloat16", 90, ON_90), Target("float16", 80, ON_80))
)

EXERCISES = (FORWARD, LOOPS, BAND, HEADS, SIXTEEN_BITS, REPAIR)
