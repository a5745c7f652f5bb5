"""The roofline: a chip multiplies no faster than its tensor cores, and no faster than its memory feeds them.

attainable FLOP/s = min(peak, intensity · bandwidth), intensity = FLOP / bytes moved (Williams, Waterman,
Patterson 2009). Counts are those every attention benchmark uses: a product of (m, k) by (k, n) is 2mkn FLOP,
the forward pass has two, the backward pass five, exponentials and sums are not counted.
"""

from __future__ import annotations

from ..costs.kernels import KernelProblem
from .chips import Chip

PASSES = ("forward", "backward", "forward+backward")
# 4·B·H·N²·d forward; five products instead of two backward, however many a kernel really computes.
TIMES_FORWARD = {"forward": 1.0, "backward": 2.5, "forward+backward": 3.5}


def flops(pass_: str, *, B: int, H: int, N: int, d: int, causal: bool = False) -> float:
    """FLOP of one pass by the convention: 4·B·H·N²·d forward, 2.5 times that backward; half of it if causal.

    Raises ValueError for an unknown pass.
    """
    _check(pass_)
    return TIMES_FORWARD[pass_] * 4.0 * B * H * N * N * d * (0.5 if causal else 1.0)


def _check(pass_: str) -> None:
    if pass_ not in TIMES_FORWARD:
        raise ValueError(f"pass_ is {pass_!r}; allowed: {', '.join(PASSES)}")


def compulsory_bytes(pass_: str, problem: KernelProblem, itemsize: int) -> int:
    """Bytes that any kernel moves through the GPU's memory: each input read once, each result written once.

    Forward reads Q, K, V and writes O, LSE; backward reads these five and dO, and writes dQ, dK, dV. LSE is
    float32, the others have `itemsize` bytes. Forward and backward together: both, with O and LSE in between.
    """
    _check(pass_)
    queries, keys = problem.queries * problem.d * itemsize, problem.keys * problem.d * itemsize
    row_sums = 4 * problem.queries
    forward = 2 * queries + 2 * keys + row_sums
    backward = 4 * queries + 4 * keys + row_sums
    return {"forward": forward, "backward": backward}.get(pass_, forward + backward)


def arithmetic_intensity(flop: float, moved: float) -> float:
    """FLOP a byte. Raises ValueError unless bytes are moved."""
    if moved <= 0:
        raise ValueError(f"moved is {moved!r}; allowed: more than 0 bytes")
    return flop / moved


def attainable_tflops(flop_a_byte: float, chip: Chip) -> float:
    """TFLOP/s that the chip allows at this intensity: min(peak, intensity · bandwidth)."""
    return min(chip.tensor_tflops, flop_a_byte * chip.gbytes_per_s / 1000)


def ridge_point(chip: Chip) -> float:
    """FLOP a byte where the roof bends: below it memory is the limit, above it the tensor cores."""
    return 1000 * chip.tensor_tflops / chip.gbytes_per_s


def tflops(flop: float, ms: float) -> float:
    """TFLOP/s of work that took `ms` milliseconds. Raises ValueError unless that is more than 0."""
    if ms <= 0:
        raise ValueError(f"ms is {ms!r}; allowed: more than 0 milliseconds")
    return flop / ms / 1e9
