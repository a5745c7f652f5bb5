"""Measure the CPU time of one run at many stack depths, with and without `with_preallocated_frames`.

    OMP_NUM_THREADS=1 TRITON_INTERPRET=1 PYTHONPATH=. python tests/machine/stack_depths.py [REPEATS]

It times a schedule on the emulator and a kernel in Triton's interpreter at every second of 240 depths. It
prints the ratio of the times without and with preallocated frames: its median over the depths, its maximum,
and the share of the depths where it is above 1.1. Each time is the minimum of the repeats, which alternate.
"""

import gc
import statistics
import sys
import time

import numpy as np
import torch

from iocourse import kernels
from iocourse.doctor import fast_interpreter
from iocourse.machine import run
from iocourse.schedules.flash_optimal import flash_optimal

DEPTHS = range(0, 240, 2)


def at(depth, work):
    """Return work(), called `depth` frames deeper."""
    return work() if depth == 0 else at(depth - 1, work)


def emulated():
    """Return a function that runs a schedule on a small input."""
    rng, N, d, M = np.random.default_rng(0), 96, 32, 2048
    Q, K, V = (rng.standard_normal((N, d)) for _ in range(3))
    tiles = flash_optimal.tiles(N, d, M)
    return lambda: run(flash_optimal, M=M, Q=Q, K=K, V=V, **tiles)


def interpreted():
    """Return a function that launches a kernel on a small input."""
    q, k, v = (torch.randn(1, 1, 96, 32) for _ in range(3))
    return lambda: kernels.attention(q, k, v)


def seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def ratios(module, work, repeats):
    """Return, for each depth, the time without preallocated frames divided by the time with them."""
    room, found = module.with_preallocated_frames, []
    for depth in DEPTHS:
        with_room, without = [], []
        for _ in range(repeats):
            for times, way in ((with_room, room), (without, lambda work: work())):
                module.with_preallocated_frames = way
                times.append(at(depth, lambda: seconds(work)))
        found.append(min(without) / min(with_room))
        gc.collect()
    module.with_preallocated_frames = room
    return found


def main(repeats):
    gc.disable()
    for name, module, work in (
        ("emulator", sys.modules["iocourse.machine.run"], emulated()),
        ("interpreter", fast_interpreter, interpreted()),
    ):
        work()
        found = ratios(module, work, repeats)
        share = sum(ratio > 1.1 for ratio in found) / len(found)
        median = statistics.median(found)
        print(f"{name:12} median {median:.2f}, maximum {max(found):.2f}, above 1.1: {share:.0%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5)
