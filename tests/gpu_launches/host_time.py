"""CPU time of a forward and a backward pass of `attention` on the host: called directly, and as
PyTorch operators. No kernel runs: Triton's JIT prepares each launch, and the last step, which would
start it, does nothing.

    TRITON_INTERPRET=0 PYTHONPATH=. python tests/gpu_launches/host_time.py [ROUNDS]

For each backward pass it prints the number of function calls (Python and C) and the fewest microseconds of
both ways, with their ratios. The ratio of times is the median over all rounds, with quartiles. Both ways
make the same launches, so the ratio does not show what launches take.
"""

import json
import statistics
import sys
import time

import stub_driver
import torch

from iocourse.kernels import attention
from iocourse.kernels.host import torch_operator

CALLS = 40  # per round


def passes(deterministic):
    """A function that runs both passes of a small causal attention."""
    q, k, v = (torch.zeros(1, 2, 64, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gradient = torch.zeros_like(q)

    def run():
        o = attention(q, k, v, causal=True, deterministic=deterministic)
        torch.autograd.grad(o, (q, k, v), gradient)

    return run


def as_operators(run):
    """The same, as where something watches what is dispatched."""

    def watched():
        before, torch_operator._watched = torch_operator._watched, lambda *_: True
        try:
            run()
        finally:
            torch_operator._watched = before

    return watched


def calls(run):
    """Return the number of Python and C functions that one run calls in this thread."""
    count = 0

    def look(_frame, event, _function):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def microseconds(run):
    before = time.thread_time()
    for _ in range(CALLS):
        run()
    return (time.thread_time() - before) / CALLS * 1e6


def compared(deterministic, rounds):
    direct = passes(deterministic)
    ways = {"direct": direct, "operators": as_operators(direct)}
    for run in ways.values():
        run(), run()  # compiles, and fills what is kept
    counted = {way: calls(run) for way, run in ways.items()}
    said = {"calls": counted | {"ratio": round(counted["direct"] / counted["operators"], 3)}}
    if rounds < 2:
        return said
    timed = [{way: microseconds(run) for way, run in ways.items()} for _ in range(rounds)]
    low, middle, high = statistics.quantiles((one["direct"] / one["operators"] for one in timed), n=4)
    said["microseconds"] = {way: round(min(one[way] for one in timed), 1) for way in ways} | {
        "ratio": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)],
    }  # fmt: skip
    return said


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    stub_driver.install()
    stub_driver.Launcher.__call__ = lambda *_: None
    torch.set_num_threads(1)
    said = {name: compared(fixed, rounds) for name, fixed in (("fused", False), ("split", True))}
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
