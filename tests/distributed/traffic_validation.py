"""Two traffic counts that are independent of the ledgers: PyTorch's dispatcher and the loopback interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from iocourse.distributed.runner import run

BYTES = 8  # per word, a float64


class ObservedTraffic(NamedTuple):
    """Words moved by one rank's calls of `torch.distributed`, by the name of the call."""

    received: Counter[str]
    sent: Counter[str]


def observe_dispatcher(schedule: Callable[..., Any], P: int, **given: Any) -> list[ObservedTraffic]:
    """Run on gloo, and count the words in the tensors of every `c10d` call that each rank dispatches.

    Arguments and errors as for `distributed.run`.
    """
    told = [ObservedTraffic(Counter(), Counter()) for _ in range(P)]

    def watched(me: Any, **own: Any) -> Any:
        with _watch(told[me.rank]):
            return schedule(me, **own)

    run(watched, P, on="gloo", **given)
    return told


def _watch(observed: ObservedTraffic) -> Any:
    """Return a TorchDispatchMode that records every `c10d` call of this thread."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc] # torch is not read by the type checker
        def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if called.namespace == "c10d":
                _record_call(observed, called.name().split("::")[1], args)
            return called(*args, **(kwargs or {}))

    return Watch()


def _record_call(observed: ObservedTraffic, name: str, args: Any) -> None:
    """Record one call; an all-gather counts the words of all other ranks."""
    if name == "send":
        observed.sent[name] += sum(tensor.numel() for tensor in args[0])
    elif name == "recv_":
        observed.received[name] += sum(tensor.numel() for tensor in args[0])
    elif name == "alltoall_base_":
        observed.received[name] += args[0].numel()
        observed.sent[name] += args[1].numel()
    elif name == "_allgather_base_":
        others = args[0].numel() - args[1].numel()
        observed.received[name] += others
        observed.sent[name] += others


def loopback_bytes() -> int:
    """Return the bytes received on the loopback interface since this machine started, by all processes.

    Raises RuntimeError on systems other than Linux, which have no /proc/net/dev.
    """
    table = Path("/proc/net/dev")
    lines = table.read_text().splitlines() if table.exists() else []
    for line in lines:
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    raise RuntimeError("cannot count loopback traffic: no /proc/net/dev with a line for lo (needs Linux)")


def observe_loopback(schedule: Callable[..., Any], P: int, **given: Any) -> tuple[int, int]:
    """Return (bytes on the loopback interface during a run on gloo, 8 × the words that its ranks sent).

    The first number includes the traffic of other processes. Arguments as for `distributed.run`.
    """
    before = loopback_bytes()
    done = run(schedule, P, on="gloo", **given)
    return loopback_bytes() - before, BYTES * sum(ledger.words_sent for ledger in done.ledgers)
