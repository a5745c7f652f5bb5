"""Program that measures the memory growth of a process while it computes the gradient of new inputs.

`python -m tools.bench.lowrank.memory N D G THREADS` prints JSON. Before the first reading, everything is
imported, compiled, and run once on a short sequence.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import iocourse.lowrank as lowrank

STATUS = Path("/proc/self/status")
SHORT = 512  # tokens of the run before the first reading


def resident() -> int:
    """Return the resident bytes of this process now, or their maximum if the system only has that."""
    return _status("VmRSS") or most()


def most() -> int:
    """Return the maximum of resident bytes of this process so far."""
    found = _status("VmHWM")
    if found:
        return found
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _status(name: str) -> int:
    """Return a line of /proc/self/status in bytes, 0 if it is missing."""
    if not STATUS.is_file():
        return 0
    lines = (line.split() for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines())
    return next((1024 * int(line[1]) for line in lines if line[:1] == [f"{name}:"]), 0)


def gradient(n: int, d: int, g: int, threads: int) -> float:
    """Compute the gradient of new inputs. Return one of its numbers, so that all of it is kept to the end."""
    source = np.random.default_rng(n)
    q, k, v, do = (source.standard_normal((n, d), dtype=np.float32) for _ in range(4))
    q /= np.float32(d**0.5)
    k /= np.float32(d**0.5)
    found = lowrank.gradient(q, k, v, do, degree=g, scale=1.0, threads=threads)
    return float(found.dK[-1, -1])


def main() -> None:
    """Read the sizes from the arguments, measure, and print the result as JSON."""
    n, d, g, threads = map(int, sys.argv[1:])
    gradient(SHORT, d, g, threads)
    before = resident()
    gradient(n, d, g, threads)
    print(json.dumps({"before": before, "peak": most(), "grown": most() - before}))


if __name__ == "__main__":
    main()
