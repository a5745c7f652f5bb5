"""Attention of one size on random input, run with any tile; and compiled for it before anything is timed.

Triton keeps what it compiles on disk, for every process of this user, under a key of the source, the types
and borders of the arguments, and the options. So the launches are written down as they will be made, on
tensors without memory, and handed to Triton's JIT by several processes, to be compiled and not started.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from itertools import product
from multiprocessing import get_context

import torch
from torch import Tensor

from iocourse.doctor.circumstances import circumstances
from iocourse.gpu.timing import Work
from iocourse.kernels import Tile, using
from iocourse.kernels.host.launches import written_down
from iocourse.kernels.host.operators import backward, forward
from iocourse.kernels.host.visibility import Band, Seen
from tools.bench.gpu.place import Place
from tools.bench.gpu.problem import Shape, normal
from tools.bench.gpu.values import relative_error
from tools.bench.tune.fitting import Search

SEED = 0
MOST = 16  # processes
SECONDS = 240.0  # that they may take together; what is not compiled then is compiled when it is timed
# One thing to compile: a problem, a kernel, and its tile.
Wanted = tuple[Shape, str, tuple[int, ...]]


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


def wanted(searches: Sequence[Search], shapes: Sequence[Shape]) -> list[Wanted]:
    """Everything that is going to be timed, the first candidates of every kernel first."""
    longest = max(len(tiles) for *_, tiles in searches)
    return [
        (shape, kernel, tuple(tiles[at]))
        for at, (d, kernel, tiles), shape in product(range(longest), searches, shapes)
        if at < len(tiles) and shape.d == d
    ]


def warm(arch: int, every: Sequence[Wanted]) -> None:
    """Compile everything in as many processes as there are cores, MOST at most, and wait for them."""
    processes = max(1, min(MOST, circumstances()["cores"], len(every)))
    pool = ProcessPoolExecutor(processes, get_context("spawn"))
    try:
        wait([pool.submit(compile_one, arch, *one) for one in every], SECONDS)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def compile_one(arch: int, shape: Shape, kernel: str, tile: tuple[int, ...]) -> None:
    """Compile the launches of one candidate. Where it cannot be, the one that times it is told why too."""
    with written_down(arch) as written:
        problem = Problem(shape, None)
        written.clear()  # those of the shipped tiles
        with using(**{kernel: tile}):
            problem.run(kernel)
        for launch in written:
            launch.kernel.warmup(*launch.arguments, grid=(1,), **launch.constants)
