"""How long work on a GPU takes: CUDA events around it, a cold L2 before it, the median of many.

A stopwatch takes the laps; what is made of them needs no GPU, and is tested with another stopwatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

WARM_UPS = 3
LEAD_BYTES, LEADS = 2**28, 8  # overwritten before every lap, so that the GPU does not wait for Python
MOST_LEADS = 64  # where Python needs longer: 3.6 ms on an H200


class NeedsCuda(RuntimeError):
    """There is no CUDA device that torch can use here."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one piece of work: the median, its quartiles, and how many laps were taken.

    `host_ms` is the median time in which the host queued a lap. `host_bound` says that in half of the laps or
    more the device may have waited for the host, so that `ms` is partly the time of the host.
    """

    ms: float
    quartiles_ms: tuple[float, float]
    repeats: int
    host_ms: float | None = None
    host_bound: bool = False


class Lap(float):
    """Milliseconds of one lap on the device, with what the host did meanwhile."""

    host_ms: float  # in which the host queued it
    late: bool  # whether the device had begun it before all of it was queued

    def __new__(cls, ms: float, host_ms: float, late: bool) -> Lap:
        """Make a number that has the two attributes."""
        lap = super().__new__(cls, ms)
        lap.host_ms, lap.late = host_ms, late
        return lap


@dataclass(frozen=True)
class Staged:
    """Work in two stages, of which only the second is timed: it gets what the first made for this lap."""

    before: Callable[[], Any]
    work: Callable[[Any], object]


Work = Callable[[], object] | Staged


def ready(work: Work) -> Callable[[], object]:
    """The stage to be timed, with the one before it done."""
    if not isinstance(work, Staged):
        return work
    timed, made = work.work, work.before()
    return lambda: timed(made)


def cuda_unavailable_reason() -> str:
    """Why nothing can be timed on a GPU here; "" where it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed here"
    return "" if torch.cuda.is_available() else "there is no CUDA device that torch can use here"


def need_cuda(so: str) -> None:
    """Raises `NeedsCuda` where there is no GPU; `so` says what that means."""
    reason = cuda_unavailable_reason()
    if reason:
        raise NeedsCuda(f"{reason}, {so}")


class CudaStopwatch:
    """Laps on the current CUDA device, each between two events and each with a cold L2.

    Before every lap 2 GiB are overwritten, at an H200's 4.8 TB/s 0.45 ms: what Python queues meanwhile finds
    the device busy still, and what is timed is the device. If Python needs longer, more is overwritten. Then
    a buffer of twice the L2's size is read, so that no lap finds its inputs where the last one left them. It
    is not overwritten: a lap would then pay for lines that are written back to make room.
    """

    def __init__(self) -> None:
        """Allocate the buffers. Raises `NeedsCuda` where there is no GPU."""
        need_cuda("and CUDA events need one")
        import torch

        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._buffer = torch.zeros(max(2 * l2, 2**26) // 4, dtype=torch.float32, device="cuda")
        self._lead = torch.empty(LEAD_BYTES, dtype=torch.int8, device="cuda")

    def laps(self, work: Work, repeats: int) -> list[float]:
        """Run `work` until there are `repeats` laps; each a `Lap`, without what comes before it.

        A lap that the device began before the host had queued all of it is not counted, and twice as much is
        overwritten before the next ones. From `MOST_LEADS` on it counts, and says that it was late.
        """
        import torch

        leads, taken = LEADS, list[tuple[Any, Any, float, bool]]()
        while len(taken) < repeats:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(leads):
                self._lead.zero_()
            run = ready(work)
            self._buffer.sum()
            start.record()
            began = perf_counter()
            run()
            end.record()
            queued, late = perf_counter(), bool(start.query())
            del run  # and with it what the first stage made
            if late and leads < MOST_LEADS:
                leads = min(MOST_LEADS, 2 * leads)
            else:
                taken.append((start, end, 1000 * (queued - began), late))
        torch.cuda.synchronize()
        return [Lap(start.elapsed_time(end), host_ms, late) for start, end, host_ms, late in taken]


def summary(laps: Sequence[float]) -> Timing:
    """Median and quartiles of laps in milliseconds. Raises ValueError where there is none."""
    if not laps:
        raise ValueError("laps is empty; allowed: one lap or more")
    low, middle, high = (float(x) for x in np.quantile(np.asarray(laps, dtype=np.float64), (0.25, 0.5, 0.75)))
    seen = [lap for lap in laps if isinstance(lap, Lap)]
    host_ms = median(lap.host_ms for lap in seen) if seen else None
    return Timing(middle, (low, high), len(laps), host_ms, 2 * sum(lap.late for lap in seen) >= len(laps))


def time_of(
    work: Work, *, stopwatch: CudaStopwatch | None = None, budget_ms: float = 200, least: int = 5,
    most: int = 200,
) -> Timing:  # fmt: skip
    """The time of one piece of work, warmed up first, by a `CudaStopwatch` where no other is given.

    `budget_ms` is about how long the laps together may take; there are `least` at least and `most` at most.
    Raises `NeedsCuda` where no stopwatch is given and there is no GPU.
    """
    watch = stopwatch or CudaStopwatch()
    return summary(watch.laps(work, _repeats(work, watch, budget_ms, least, most)))


def side_by_side(
    works: Mapping[str, Work], *, stopwatch: CudaStopwatch, rounds: int = 3, budget_ms: float = 60,
    least: int = 3, most: int = 50,
) -> dict[str, Timing | Exception]:  # fmt: skip
    """Several pieces of work by name in one run: every round takes laps of each, and begins with another one.

    A clock that drifts, or a chip that grows warm, then meets all of them alike. The other arguments are as
    of `time_of`, for each round. Work that raises keeps its exception in place of a time; the others go on.
    """
    failed: dict[str, Exception] = {}
    repeats: dict[str, int] = {}
    laps: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(-1, rounds):  # before the first round: how long a lap is
        names = [name for name in works if name not in failed]
        first = max(turn, 0) % len(names) if names else 0
        for name in names[first:] + names[:first]:
            try:
                if turn < 0:
                    repeats[name] = _repeats(works[name], stopwatch, budget_ms, least, most)
                else:
                    laps[name] += stopwatch.laps(works[name], repeats[name])
            except Exception as error:
                failed[name] = error.with_traceback(None)  # which would keep its tensors alive
    return {name: failed.get(name) or summary(laps[name]) for name in works}


def _repeats(work: Work, stopwatch: CudaStopwatch, budget_ms: float, least: int, most: int) -> int:
    """Warm up, then how many laps fit the budget."""
    for _ in range(WARM_UPS):
        ready(work)()
    lap = min(stopwatch.laps(work, 2))
    return max(least, min(most, int(budget_ms / lap) if lap > 0 else most))
