"""A made-up GPU with a simulated clock for exercise 14H: queue, L2 cache, disturbed laps and a slow host.

No wall clock is read, so that a run with the same seed has the same times. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import UsageError

WARM_UPS = 25  # launches that run slowly: the first one also compiles
FLUSH_MS = 0.05  # device time of one flush
FLUSH_HOST_MS, EVENT_HOST_MS = 0.002, 0.001  # host time of a flush and of an event
BURST, PERIOD = 5, 40  # disturbed launches, one after another, of this number of launches


@dataclass(frozen=True)
class Kernel:
    """The true times of a made-up kernel and of its launch.

    Attributes:
        ms: device time with an empty L2 cache, the time to measure.
        cached: fraction of `ms` that it takes if its inputs are in L2.
        host_ms: time in which the host launches it.
        compile_ms: additional host time of the first launch.
        slow: factor of the first launches, while the clock rate of the device rises.
        disturbed: whether `BURST` of `PERIOD` launches take three to nine times as long.
    """

    ms: float = 1.0
    cached: float = 1.0
    host_ms: float = 0.005
    compile_ms: float = 0.0
    slow: float = 1.0
    disturbed: bool = False


class Event:
    """A mark in the queue of a device."""

    def __init__(self, read: Callable[[], float | None]) -> None:
        """Create a mark; `read()` is its time, and None before the device has reached it."""
        self._read = read

    @property
    def reached(self) -> bool:
        """True if the device has reached the mark by now."""
        return self._read() is not None

    @property
    def ms(self) -> float:
        """The time at which the device reached the mark; raises UsageError before that."""
        at = self._read()
        if at is None:
            raise UsageError("the device has not reached this event: call device.synchronize() first")
        return at


class MadeUpDevice(NamedTuple):
    """A device that works through a queue while the host continues.

    Attributes:
        flush: queue work that empties L2.
        event: queue a mark; its attribute `ms` is the time at which the device reached it.
        synchronize: let the host wait until the queue is empty.
        now: return the clock of the host.
    """

    flush: Callable[[], None]
    event: Callable[[], Event]
    synchronize: Callable[[], None]
    now: Callable[[], float]


def simulated(kernel: Kernel, seed: int = 0) -> tuple[MadeUpDevice, Callable[[], None], Callable[[], int]]:
    """Return a device, the function that launches its kernel, and one that returns the number of launches.

    The kernel, the clocks and the number are variables of this function, so that the device does not show
    them. `seed` decides which launches are disturbed; with `PERIOD // BURST` successive seeds, each launch is
    disturbed on one device.
    """
    rng = np.random.default_rng(seed)
    host = free = 0.0  # the clock of the host, and the time at which the queue is empty
    warm, launches = False, 0  # whether L2 has the inputs

    def queue(device_ms: float, host_ms: float) -> None:
        """Let the host work, then add work to the queue; an idle device starts it at once."""
        nonlocal host, free
        host += host_ms
        free = max(free, host) + device_ms

    def flush() -> None:
        nonlocal warm
        queue(FLUSH_MS, FLUSH_HOST_MS)
        warm = False

    def event() -> Event:
        queue(0.0, EVENT_HOST_MS)
        at = free
        return Event(lambda: at if at <= host else None)

    def synchronize() -> None:
        nonlocal host
        host = max(host, free)

    def launch() -> None:
        """Queue the kernel, and return before the device has run it."""
        nonlocal warm, launches
        burst = kernel.disturbed and (launches + BURST * seed) % PERIOD < BURST
        factor = (kernel.cached if warm else 1.0) * (rng.uniform(3, 9) if burst else 1.0)
        factor *= (kernel.slow if launches < WARM_UPS else 1.0) * (1 + 0.004 * rng.uniform(-1, 1))
        queue(kernel.ms * factor, kernel.host_ms + (0.0 if launches else kernel.compile_ms))
        warm, launches = True, launches + 1

    return MadeUpDevice(flush, event, synchronize, lambda: host), launch, lambda: launches


def made_up(seed: int = 0, **kernel: float) -> tuple[MadeUpDevice, Callable[[], None]]:
    """Return a device and the function that launches its kernel; `kernel`: as `Kernel`."""
    device, launch, _ = simulated(Kernel(**kernel), seed)  # type: ignore[arg-type]
    return device, launch
