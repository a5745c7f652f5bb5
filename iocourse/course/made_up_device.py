"""A made-up GPU with a simulated clock for exercise 14H: queue, L2 cache, disturbed laps and a slow host.

No wall clock is read, so that a run with the same seed has the same times. Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError

WARM_UPS = 25  # launches that run slowly: the first one also compiles
FLUSH_MS = 0.05  # device time of one flush


@dataclass(frozen=True)
class Kernel:
    """The true times of a made-up kernel and of its launch.

    Attributes:
        ms: device time with an empty L2 cache, the time to measure.
        cached: fraction of `ms` that it takes if its inputs are in L2.
        host_ms: time in which the host launches it.
        compile_ms: additional host time of the first launch.
        slow: factor of the first launches, while the clock rate of the device rises.
        disturbed: fraction of the launches that take three to nine times as long.
    """

    ms: float = 1.0
    cached: float = 1.0
    host_ms: float = 0.005
    compile_ms: float = 0.0
    slow: float = 1.0
    disturbed: float = 0.0


class Event:
    """A mark in the queue of a device."""

    def __init__(self, device: MadeUpDevice, at: float) -> None:
        """Mark the time `at` of the device clock."""
        self._device, self._at = device, at

    @property
    def reached(self) -> bool:
        """True if the device has reached the mark by now."""
        return self._at <= self._device.now()

    @property
    def ms(self) -> float:
        """The time at which the device reached the mark; raises UsageError before that."""
        if not self.reached:
            raise UsageError("the device has not reached this event: call device.synchronize() first")
        return self._at


class MadeUpDevice:
    """A device that works through a queue while the host continues.

    device.flush(): queue work that empties L2.
    device.event(): queue a mark; its attribute `ms` is the time at which the device reached it.
    device.synchronize(): let the host wait until the queue is empty.
    device.now(): the clock of the host.
    """

    def __init__(self, kernel: Kernel, seed: int = 0) -> None:
        """Create an idle device for one kernel; `seed` decides which launches are disturbed."""
        self.launches = 0
        self._kernel, self._rng = kernel, np.random.default_rng(seed)
        self._host = self._free = 0.0  # the clock of the host, and the time at which the queue is empty
        self._warm = False  # whether L2 has the inputs

    def now(self) -> float:
        """Return the clock of the host."""
        return self._host

    def synchronize(self) -> None:
        """Let the host wait until the device has finished all work in its queue."""
        self._host = max(self._host, self._free)

    def flush(self) -> None:
        """Queue work that overwrites L2; it keeps the device busy for `FLUSH_MS`."""
        self._queue(FLUSH_MS, host_ms=0.002)
        self._warm = False

    def event(self) -> Event:
        """Queue a mark, and return it."""
        self._queue(0.0, host_ms=0.001)
        return Event(self, self._free)

    def launch(self) -> None:
        """Queue the kernel, and return before the device has run it."""
        one, self.launches = self._kernel, self.launches + 1
        slow = one.slow if self.launches <= WARM_UPS else 1.0
        disturbed = self._rng.uniform(3, 9) if self._rng.random() < one.disturbed else 1.0
        noise = 1 + 0.004 * self._rng.uniform(-1, 1)
        time = one.ms * (one.cached if self._warm else 1.0) * slow * disturbed * noise
        self._queue(time, one.host_ms + (one.compile_ms if self.launches == 1 else 0.0))
        self._warm = True

    def _queue(self, device_ms: float, host_ms: float) -> None:
        """Let the host work, then add work to the queue; an idle device starts it at once."""
        self._host += host_ms
        self._free = max(self._free, self._host) + device_ms


def made_up(seed: int = 0, **kernel: float) -> tuple[MadeUpDevice, Callable[[], None]]:
    """Return a device and the function that launches its kernel; `kernel`: as `Kernel`."""
    device = MadeUpDevice(Kernel(**kernel), seed)
    return device, device.launch
