"""Timing of work on a GPU: CUDA events, a cold L2 cache, and the median of many repetitions (laps).

A stopwatch measures the laps. Their evaluation needs no GPU, and is tested with another stopwatch.
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
MOST_LEADS = 64  # maximum if Python needs longer: 3.6 ms on an H200


class NeedsCuda(RuntimeError):
    """Error: torch cannot use a CUDA device here."""


@dataclass(frozen=True)
class Timing:
    """Time of one piece of work in milliseconds: median, quartiles, and the number of laps.

    host_ms: median time in which the host queued a lap. host_bound: True if the device may have waited for
    the host in at least half of the laps, so that `ms` is partly host time.
    """

    ms: float
    quartiles_ms: tuple[float, float]
    repeats: int
    host_ms: float | None = None
    host_bound: bool = False


class Lap(float):
    """Time of one lap on the device in milliseconds, with the host's time."""

    host_ms: float  # time in which the host queued the lap
    late: bool  # True if the device started the lap before all of it was queued

    def __new__(cls, ms: float, host_ms: float, late: bool) -> Lap:
        """Create the float and set both attributes."""
        lap = super().__new__(cls, ms)
        lap.host_ms, lap.late = host_ms, late
        return lap


@dataclass(frozen=True)
class Staged:
    """Work in two stages: `before` runs untimed in each lap, and its result is passed to the timed `work`."""

    before: Callable[[], Any]
    work: Callable[[Any], object]


Work = Callable[[], object] | Staged


def ready(work: Work) -> Callable[[], object]:
    """Run the untimed stage, if there is one, and return the function to time."""
    if not isinstance(work, Staged):
        return work
    timed, made = work.work, work.before()
    return lambda: timed(made)


def cuda_unavailable_reason() -> str:
    """Return the reason why nothing can be timed on a GPU here; "" if it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed here"
    return "" if torch.cuda.is_available() else "there is no CUDA device that torch can use here"


def need_cuda(so: str) -> None:
    """Raise `NeedsCuda` if there is no GPU; `so`: the consequence, for the message."""
    reason = cuda_unavailable_reason()
    if reason:
        raise NeedsCuda(f"{reason}, {so}")


class CudaStopwatch:
    """Stopwatch for the current CUDA device: each lap is timed by two events, with a cold L2 cache.

    Before every lap a part of memory is overwritten. The device is still busy when Python has queued the lap,
    so only device time is measured. If Python needs longer, more is overwritten. Then a buffer of twice the
    size of L2 is read, so that no input of a lap is still cached. The buffer is not overwritten, because a
    lap would then include the write-back of dirty lines.
    """

    def __init__(self) -> None:
        """Allocate the buffers. Raises `NeedsCuda` if there is no GPU."""
        need_cuda("and CUDA events need one")
        import torch

        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._buffer = torch.zeros(max(2 * l2, 2**26) // 4, dtype=torch.float32, device="cuda")
        self._lead = torch.empty(LEAD_BYTES, dtype=torch.int8, device="cuda")

    def laps(self, work: Work, repeats: int) -> list[float]:
        """Run `work` until there are `repeats` laps, and return each as a `Lap`, without the untimed stage.

        A lap that the device started before the host had queued all of it is discarded, and twice as much is
        overwritten before the next laps. At `MOST_LEADS` such a lap counts, and is marked as late.
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
            del run  # also releases the result of the untimed stage
            if late and leads < MOST_LEADS:
                leads = min(MOST_LEADS, 2 * leads)
            else:
                taken.append((start, end, 1000 * (queued - began), late))
        torch.cuda.synchronize()
        return [Lap(start.elapsed_time(end), host_ms, late) for start, end, host_ms, late in taken]


def summary(laps: Sequence[float]) -> Timing:
    """Return median and quartiles of laps in milliseconds. Raises ValueError if there are none."""
    if not laps:
        raise ValueError("laps is empty: it must have one lap or more")
    low, middle, high = (float(x) for x in np.quantile(np.asarray(laps, dtype=np.float64), (0.25, 0.5, 0.75)))
    seen = [lap for lap in laps if isinstance(lap, Lap)]
    host_ms = median(lap.host_ms for lap in seen) if seen else None
    return Timing(middle, (low, high), len(laps), host_ms, 2 * sum(lap.late for lap in seen) >= len(laps))


def time_of(
    work: Work, *, stopwatch: CudaStopwatch | None = None, budget_ms: float = 200, least: int = 5,
    most: int = 200,
) -> Timing:  # fmt: skip
    """Warm up and time one piece of work.

    Args:
        work: a function, or `Staged` work.
        stopwatch: measures the laps. Default: a new `CudaStopwatch`.
        budget_ms: approximate total time of the laps.
        least: minimum number of laps.
        most: maximum number of laps.

    Raises:
        NeedsCuda: no stopwatch is given and there is no GPU.
    """
    watch = stopwatch or CudaStopwatch()
    return summary(watch.laps(work, _repeats(work, watch, budget_ms, least, most)))


def side_by_side(
    works: Mapping[str, Work], *, stopwatch: CudaStopwatch, rounds: int = 3, budget_ms: float = 60,
    least: int = 3, most: int = 50,
) -> dict[str, Timing | Exception]:  # fmt: skip
    """Time several pieces of work in one run: each of `rounds` repetitions times all, in rotated order.

    Clock drift and warming of the chip then affect all of them equally. The other arguments are as in
    `time_of`, for each repetition. If work raises an exception, this replaces its time; the others continue.
    """
    failed: dict[str, Exception] = {}
    repeats: dict[str, int] = {}
    laps: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(-1, rounds):  # -1: measure a lap to choose the number of laps
        names = [name for name in works if name not in failed]
        first = max(turn, 0) % len(names) if names else 0
        for name in names[first:] + names[:first]:
            try:
                if turn < 0:
                    repeats[name] = _repeats(works[name], stopwatch, budget_ms, least, most)
                else:
                    laps[name] += stopwatch.laps(works[name], repeats[name])
            except Exception as error:
                failed[name] = error.with_traceback(None)  # the traceback would keep tensors alive
    return {name: failed.get(name) or summary(laps[name]) for name in works}


def _repeats(work: Work, stopwatch: CudaStopwatch, budget_ms: float, least: int, most: int) -> int:
    """Warm up, and return the number of laps that fit in the budget."""
    for _ in range(WARM_UPS):
        ready(work)()
    lap = min(stopwatch.laps(work, 2))
    return max(least, min(most, int(budget_ms / lap) if lap > 0 else most))
