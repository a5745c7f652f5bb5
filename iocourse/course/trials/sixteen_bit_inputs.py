"""Inputs in float16 and bfloat16 for forward kernels, and the error that rounding to 16 bits allows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ...costs.kernels import KernelProblem, attention_forward
from ..exercise import Case, Sample
from .float32_inputs import FAR

TYPES = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # the unit roundoff of each type
SMALLEST_HALF = 2.0**-25  # half of the distance between float16 numbers below 2^-14, whose error is absolute
# The error of a weight in float32, relative and per unit of the largest score of its row. Correct kernels
# reach 2^-20 (tests/course/test_sixteen_bits.py); the sum of weights that were rounded to 16 bits, 2^-16.
SINGLE = 2.0**-19
LARGE_SCORES = "large scores"  # a tag
FAR_BELOW = {"float16": -(2.0**15), "bfloat16": -(2.0**85)}  # a number of Q, exact in its type
COMPILED = "compiled"  # a tag: the launch of this case is compiled for a chip


class BFloat16(np.ndarray[tuple[int, ...], np.dtype[np.float32]]):
    """Float32 numbers that are exact in bfloat16, which NumPy lacks; a kernel gets them as bfloat16."""


def rounded(x: NDArray[np.floating], dtype: str) -> NDArray[np.floating]:
    """Return the numbers rounded to this type: a float16 array, or a `BFloat16` array."""
    if dtype == "float16":
        return x.astype(np.float16)
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    nearest = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000  # ties to even; the inputs are finite
    return nearest.astype(np.uint32).view(np.float32).view(BFloat16)


def type_of(case: Case) -> str:
    """Return "float16" or "bfloat16", the type of the case's inputs."""
    return "bfloat16" if isinstance(case.inputs["Q"], BFloat16) else "float16"


def sixteen_bit_attention(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield causal and full attention in both types: ragged, small, with large scores, and one to compile.

    The student's function takes Q, K, V, causal, BM and BN, and returns O and LSE.
    """
    n = int(rng.integers(1, 15))
    for dtype in TYPES:
        for tag, causal, BM, BN, N, d in [
            ("", True, 32, 32, 80 + n, 64),
            ("", False, 32, 16, 65, 32),  # one key in the last tile
            ("", True, 16, 32, n, 64),
            (LARGE_SCORES, True, 32, 16, 64 + n, 64),
            (FAR, True, 16, 16, 33, 64),  # likewise
            (COMPILED, True, 128, 64, 256, 64),
            (COMPILED, False, 128, 64, 128, 64),
        ]:
            Q, K, V = rng.standard_normal((3, N, d))
            Q *= 6 if tag == LARGE_SCORES else 1
            if tag == FAR:
                _move_far(Q, K, dtype)
            arrays = {name: rounded(x, dtype) for name, x in (("Q", Q), ("K", K), ("V", V))}
            yield _sample(arrays, dtype, causal, BM, BN, tag)


def _move_far(Q: NDArray[np.float64], K: NDArray[np.float64], dtype: str) -> None:
    """Change Q and K in place, so that three of four rows have scores far from 0, each with one weight of 1.

    The scores of these rows are 64 j + 512 for key j, the negative of it, and from -2^18 (float16) or -2^88
    (bfloat16) down. A finite number in place of -inf exceeds some of them.
    """
    d = Q.shape[1]
    K[:, 0] = 64 + 8 * np.arange(len(K))
    Q[:, 0] = 0
    for first, number in ((1, -8 * d**0.5), (2, FAR_BELOW[dtype]), (3, 8 * d**0.5)):
        Q[first::4] = 0
        Q[first::4, 0] = number


def _sample(
    arrays: dict[str, NDArray[np.floating]], dtype: str, causal: bool, BM: int, BN: int, tag: str
) -> Sample:
    N, d = arrays["Q"].shape
    S, V = _scores(arrays, causal), arrays["V"].astype(np.float64)
    return Sample(
        {"N": N, "d": d, "causal": causal, "BM": BM, "BN": BN},
        {**arrays, "causal": causal, "BM": BM, "BN": BN},
        {"O": exact.softmax(S) @ V, "LSE": exact.log_sum_exp(S)},
        attention_forward(KernelProblem(N, N, d, high=0 if causal else None), BM=BM, BN=BN),
        (dtype, tag),
    )


def _scores(arrays: dict[str, NDArray[np.floating]], causal: bool) -> NDArray[np.float64]:
    q, k = (np.asarray(arrays[name], dtype=np.float64) for name in "QK")
    mask = np.where(np.tri(len(q), dtype=bool), 0.0, -np.inf) if causal else None
    return exact.scores(q, k, mask=mask)


def allowed_errors(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest error that rounding allows in each element of O (N, d) and of LSE (N,).

    A kernel rounds each weight and each element of O once to 16 bits, so O may differ by
    u (Σ P |V| + |O|), where u is the unit roundoff. Float16 numbers below 2^-14 have an absolute error of
    2^-25 in place of a relative one. Scores, maxima and sums are in float32, whose error is `SINGLE` times
    the largest score of the row. If the scores are far apart, the weights are exact, whatever their size.
    """
    arrays = {name: case.inputs[name] for name in "QKV"}
    S, V = _scores(arrays, case.inputs["causal"]), abs(arrays["V"].astype(np.float64))
    u, least = TYPES[type_of(case)], SMALLEST_HALF if type_of(case) == "float16" else 0.0
    seen = np.isfinite(S)
    single = SINGLE * np.maximum(1.0, abs(np.where(seen, S, 0.0)).max(axis=1))
    averages = exact.softmax(S) @ V
    of_weights = np.full(len(S), SINGLE) if case.has(FAR) else single
    O = u * (averages + abs(case.expected[0])) + least * (seen @ V + 1) + 2 * of_weights[:, None] * averages
    return O, single
