"""Roofline model: attainable FLOP/s of a chip, limited by its tensor cores or its memory bandwidth.

attainable FLOP/s = min(peak, intensity · bandwidth), intensity = FLOP / bytes moved (Williams, Waterman,
Patterson 2009). FLOP are counted as in all attention benchmarks: a product of (m, k) by (k, n) is 2mkn FLOP,
the forward pass has two products, the backward pass five, and exponentials and sums are not counted.
"""

from __future__ import annotations

from ..costs.kernels import KernelProblem
from .chips import Chip

PASSES = ("forward", "backward", "forward+backward")
# 4·B·H·N²·d forward; backward five products instead of two, even for kernels that compute seven.
TIMES_FORWARD = {"forward": 1.0, "backward": 2.5, "forward+backward": 3.5}


def flops(pass_: str, *, B: int, H: int, N: int, d: int, causal: bool = False) -> float:
    """Return the FLOP of one pass: 4·B·H·N²·d forward, 2.5 times this backward, and half of it if causal.

    Raises ValueError for an unknown pass.
    """
    # <!-- 2.5 = roofline.TIMES_FORWARD["backward"] -->
    _check(pass_)
    return TIMES_FORWARD[pass_] * 4.0 * B * H * N * N * d * (0.5 if causal else 1.0)


def _check(pass_: str) -> None:
    if pass_ not in TIMES_FORWARD:
        raise ValueError(f"pass_ must be one of {', '.join(PASSES)}; got {pass_!r}")


def compulsory_bytes(pass_: str, problem: KernelProblem, itemsize: int) -> int:
    """Return the compulsory traffic in bytes: each input read once and each result written once.

    Forward reads Q, K, V and writes O, LSE; backward reads these five and dO, and writes dQ, dK, dV. LSE is
    float32, the others have `itemsize` bytes. "forward+backward" is the sum of both.

    Raises ValueError for an unknown pass.
    """
    _check(pass_)
    queries, keys = problem.queries * problem.d * itemsize, problem.keys * problem.d * itemsize
    row_sums = 4 * problem.queries
    forward = 2 * queries + 2 * keys + row_sums
    backward = 4 * queries + 4 * keys + row_sums
    return {"forward": forward, "backward": backward}.get(pass_, forward + backward)


def arithmetic_intensity(flop: float, moved: float) -> float:
    """Return FLOP per byte. Raises ValueError unless `moved` (bytes) is more than 0."""
    if moved <= 0:
        raise ValueError(f"moved must be more than 0 bytes, got {moved!r}")
    return flop / moved


def attainable_tflops(flop_a_byte: float, chip: Chip) -> float:
    """Return the attainable TFLOP/s of a chip at this intensity: min(peak, intensity · bandwidth)."""
    return min(chip.tensor_tflops, flop_a_byte * chip.gbytes_per_s / 1000)


def ridge_point(chip: Chip) -> float:
    """Return a chip's ridge point in FLOP per byte: below it kernels are memory-bound, else compute-bound."""
    return 1000 * chip.tensor_tflops / chip.gbytes_per_s


def tflops(flop: float, ms: float) -> float:
    """Return the TFLOP/s of work that took `ms` milliseconds. Raises ValueError unless ms is more than 0."""
    if ms <= 0:
        raise ValueError(f"ms must be more than 0 milliseconds, got {ms!r}")
    return flop / ms / 1e9
