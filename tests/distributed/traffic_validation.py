"""Two counts of the traffic that do not use our ledgers: PyTorch's dispatcher and the loopback interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from iocourse.distributed.runner import run

BYTES = 8  # of a word, which is a float64


class ObservedTraffic(NamedTuple):
    """What one rank's calls of `torch.distributed` moved, in words by the name of the call."""

    received: Counter[str]
    sent: Counter[str]


def observe_dispatcher(schedule: Callable[..., Any], P: int, **given: Any) -> list[ObservedTraffic]:
    """Run on gloo, and count for each rank the words in the tensors of every `c10d` call it dispatches.

    Arguments as for `distributed.run`. Raises as it does.
    """
    told = [ObservedTraffic(Counter(), Counter()) for _ in range(P)]

    def watched(me: Any, **own: Any) -> Any:
        with _watch(told[me.rank]):
            return schedule(me, **own)

    run(watched, P, on="gloo", **given)
    return told


def _watch(observed: ObservedTraffic) -> Any:
    """A mode of PyTorch's dispatcher that sees every call of this thread."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc] # torch is not read by the type checker
        def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if called.namespace == "c10d":
                _record_call(observed, called.name().split("::")[1], args)
            return called(*args, **(kwargs or {}))

    return Watch()


def _record_call(observed: ObservedTraffic, name: str, args: Any) -> None:
    """Write down one call: of a gather what all others hold, of an exchange what is not one's own piece."""
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
    """Bytes that have arrived on the loopback interface since this machine started, of all its processes.

    Raises RuntimeError where the system does not tell: only Linux has /proc/net/dev.
    """
    table = Path("/proc/net/dev")
    lines = table.read_text().splitlines() if table.exists() else []
    for line in lines:
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    raise RuntimeError("this system has no /proc/net/dev with a line for lo; Linux has")


def observe_loopback(schedule: Callable[..., Any], P: int, **given: Any) -> tuple[int, int]:
    """(bytes that crossed the loopback interface during a run on gloo, 8 × the words its ranks sent).

    What other processes move meanwhile is in the first number too. Arguments as for `distributed.run`.
    """
    before = loopback_bytes()
    done = run(schedule, P, on="gloo", **given)
    return loopback_bytes() - before, BYTES * sum(ledger.words_sent for ledger in done.ledgers)
