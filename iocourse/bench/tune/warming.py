"""Candidates compiled before they are timed, by several processes at once.

Triton keeps what it compiles on disk, for every process of this user, under a key of the source, the types
and borders of the arguments, and the options. So the launches are written down as they will be made, on
tensors without memory, and handed to Triton's JIT to be compiled and not started.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from itertools import product
from multiprocessing import get_context

from iocourse.bench import circumstances
from iocourse.kernels import using
from iocourse.kernels.host.launches import written_down

from ..gpu.problem import Shape
from .fitting import Search
from .problem import Problem

MOST = 16  # processes
SECONDS = 240.0  # that they may take together; what is not compiled then is compiled when it is timed
# One thing to compile: a problem, a kernel, and its tile.
Wanted = tuple[Shape, str, tuple[int, ...]]


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
