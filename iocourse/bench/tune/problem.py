"""Attention of one size on random input, run with any tile."""

from __future__ import annotations

import torch
from torch import Tensor

from iocourse.gpu.timing import Work
from iocourse.kernels import Tile, using
from iocourse.kernels.host.operators import backward, forward
from iocourse.kernels.host.visibility import Band, Seen

from ..gpu.place import Place
from ..gpu.problem import Shape, normal
from ..gpu.values import relative_error

SEED = 0


class Problem:
    """q, k, v and dO of one shape, and the results of the shipped tiles."""

    def __init__(self, shape: Shape, place: Place | None) -> None:
        """Draw q, k, v and dO (B, H, N, d), and compute what the shipped tiles give; place: None for tensors
        without memory, whose launches can be written down.
        """
        sizes = (shape.B, shape.H, shape.N, shape.d)
        nowhere = torch.empty(4, *sizes, dtype=getattr(torch, shape.dtype), device="meta").unbind()
        self._q, self._k, self._v, self._do = normal(sizes, 4, shape.dtype, place, SEED) if place else nowhere
        self._seen, self._scale = Seen(Band(None, 0 if shape.causal else None)), shape.d**-0.5
        self._o, self._lse = self.run("forward")
        self._expected: dict[str, tuple[Tensor, ...]] = {}

    def run(self, kernel: str) -> tuple[Tensor, ...]:
        """What a kernel gives: O and LSE, or the three gradients."""
        q, k, v, seen, scale = self._q, self._k, self._v, self._seen, self._scale
        if kernel == "forward":
            return tuple(forward(q, k, v, seen, scale, "whole"))
        fixed = kernel != "fused"
        return tuple(backward(self._do, None, q, k, v, self._o, self._lse, seen, scale, fixed, "whole"))

    def work(self, kernel: str, tile: Tile) -> Work:
        """The kernel with this tile. Raises ValueError where its values are not those of the shipped tile."""

        def work() -> tuple[Tensor, ...]:
            with using(**{kernel: tile}):
                return self.run(kernel)

        if kernel not in self._expected:
            self._expected[kernel] = self.run(kernel)
        for found, expected in zip(work(), self._expected[kernel], strict=True):
            off = relative_error(found, expected.double())
            if not off < 0.01:
                raise ValueError(f"its values differ from the shipped tile's by a relative {off:.2g}")
        return work
