"""The same passes as Triton kernels, for every head at once: compiled on a GPU, interpreted elsewhere."""

from __future__ import annotations

from torch import Tensor

from ...kernels import launch_low_rank
from ..polynomials import CLIP
from .passes import BatchForward, BatchSetting


def forward(Q: Tensor, K: Tensor, V: Tensor, s: BatchSetting) -> BatchForward:
    """As `tensors.passes.forward`: Q (H, n, d), K (H, n_k, d), V (H, n_k, d_v), also of 16-bit types."""
    found = launch_low_rank.forward(
        Q[None], K[None], V[None], s.plan, s.weights[:, 0], _variance(Q, s), scale=s.factor, shift=_shift(s)
    )
    return BatchForward(*(x[0] for x in found))


def backward(
    Q: Tensor, K: Tensor, V: Tensor, f: BatchForward, dO: Tensor, s: BatchSetting
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV, as `tensors.passes.backward`."""
    forward_found = (f.O[None], f.den[None], f.T[None])
    dQ, dK, dV = launch_low_rank.backward(
        Q[None], K[None], V[None], *forward_found, dO[None], s.plan, s.weights[:, 0], _variance(Q, s),
        scale=s.factor, shift=_shift(s),
    )  # fmt: skip
    return dQ[0], dK[0], dV[0]


def _variance(Q: Tensor, s: BatchSetting) -> Tensor | None:
    """(1, H, n): σ² of each query's logits, clipped; None where all rows share their coefficients."""
    if s.covariance is None:
        return None
    x = Q.float() * s.factor
    return ((x @ s.covariance.float()) * x).sum(-1).clamp(max=CLIP)[None]


def _shift(s: BatchSetting) -> Tensor | None:
    return None if s.shift is None else s.shift[None, :, 0]
