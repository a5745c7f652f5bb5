"""Candidates compiled before they are timed, by several processes at once.

Triton keeps what it compiles on disk, for every process of this user, under a key of the source, the types
and borders of the arguments, and the options. So the launches are written down as they will be made, on
tensors without memory, and handed to Triton's JIT to be compiled and not started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

from ..gpu.problem import filled
from .fitting import BYTES, candidates
from .problem import KERNELS, Problem

if TYPE_CHECKING:
    from iocourse.kernels.host.launches import Launch

MOST = 16  # processes
SECONDS = 240.0  # that they may take together; what is not compiled then is compiled when it is timed
# One thing to compile: head size, causal or not, kernel, and its tile.
Wanted = tuple[int, bool, str, tuple[int, ...]]


def wanted(arch: int, heads: Sequence[int], quick: bool) -> list[Wanted]:
    """Everything that `tuned` is going to time, the first candidates of every kernel first."""
    from iocourse.kernels.host.tiles import tiles_for

    found: list[tuple[int, Wanted]] = []
    for d, kernel, causal in product(heads, KERNELS, (False, True)):
        tiles = candidates(kernel, getattr(tiles_for(arch, d, BYTES), kernel), arch, d, quick)
        found += [(at, (d, causal, kernel, tuple(tile))) for at, tile in enumerate(tiles)]
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def warm(arch: int, every: Sequence[Wanted], N: int, dtype: str) -> None:
    """Compile everything in as many processes as there are cores, MOST at most, and wait for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = max(1, min(MOST, cores, len(every)))
    command = [sys.executable, "-m", __name__, json.dumps([arch, N, dtype])]
    shares = [json.dumps(every[k::count]) for k in range(count)]
    running = [subprocess.Popen([*command, share], stderr=subprocess.DEVNULL) for share in shares]
    until = time.monotonic() + SECONDS
    try:
        for one in running:
            with suppress(subprocess.TimeoutExpired):
                one.wait(max(0.0, until - time.monotonic()))
    finally:
        for one in running:
            one.kill()


def launches(arch: int, one: Wanted, N: int, dtype: str) -> list[Launch]:
    """The launches of one candidate as they will be made."""
    from iocourse.kernels import using
    from iocourse.kernels.host.launches import written_down

    d, causal, kernel, tile = one
    with written_down(arch) as written:
        problem = Problem(filled(dtype, d, N, causal), None)
        written.clear()  # those of the shipped tiles
        with using(**{kernel: tile}):
            problem.run(kernel)
        return list(written)


def compile_all(arch: int, every: Sequence[Wanted], N: int, dtype: str) -> int:
    """Compile the launches of each candidate; how many could be. What could not says why when it is timed."""
    done = 0
    for one in every:
        with suppress(Exception):
            for launch in launches(arch, one, N, dtype):
                launch.kernel.warmup(*launch.arguments, grid=(1,), **launch.constants)
            done += 1
    return done


if __name__ == "__main__":
    (_arch, _N, _dtype), _every = (json.loads(text) for text in sys.argv[1:])
    compile_all(_arch, _every, _N, _dtype)
