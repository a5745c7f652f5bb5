"""Attention of one size on random input, run with any tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iocourse.gpu.timing import Work

if TYPE_CHECKING:
    from torch import Tensor

    from iocourse.kernels import Tile

KERNELS = ("forward", "fused", "queries", "keys")


class Problem:
    """q, k, v and dO of one size, full or causal, and the results of the shipped tiles."""

    def __init__(self, N: int, d: int, causal: bool, dtype: Any, B: int, H: int, device: str) -> None:
        """Draw q, k, v and dO (B, H, N, d), and compute what the shipped tiles give."""
        import torch

        from iocourse.kernels.host.visibility import Band, Seen

        self._seen = Seen(Band(None, 0 if causal else None))
        self._q, self._k, self._v, self._do = (
            torch.randn(B, H, N, d, device=device, dtype=torch.float32).to(dtype) for _ in range(4)
        )
        self._o, self._lse = self._forward()
        self._expected = {kernel: self.run(kernel) for kernel in KERNELS}

    def _forward(self) -> tuple[Tensor, Tensor]:
        from iocourse.kernels.host import operators

        o, lse = operators.forward(self._q, self._k, self._v, self._seen, self._q.shape[-1] ** -0.5, "whole")
        return o, lse

    def run(self, kernel: str) -> tuple[Tensor, ...]:
        """What a kernel gives: O and LSE, or the three gradients."""
        from iocourse.kernels.host import operators

        if kernel == "forward":
            return self._forward()
        given = (self._do, None, self._q, self._k, self._v, self._o, self._lse)
        scale = self._q.shape[-1] ** -0.5
        fixed = kernel != "fused"
        gradients: tuple[Tensor, ...] = operators.backward(*given, self._seen, scale, fixed, "whole")
        return gradients

    def work(self, kernel: str, tile: Tile) -> Work:
        """The kernel with this tile. Raises ValueError where its values are not those of the shipped tile."""
        from iocourse.kernels import using

        def work() -> tuple[Tensor, ...]:
            with using(**{kernel: tile}):
                return self.run(kernel)

        for found, expected in zip(work(), self._expected[kernel], strict=True):
            off = float((found.float() - expected.float()).norm() / expected.float().norm())
            if not off < 0.01:
                raise ValueError(f"its values differ from the shipped tile's by a relative {off:.2g}")
        return work
