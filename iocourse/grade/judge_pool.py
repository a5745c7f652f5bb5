"""Run the judges in parallel, a process per submission: an answer can disturb only its own judge."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Generic, TypeVar

from ..errors import UsageError
from .sandbox import Limits, apply_limits

T = TypeVar("T")
_REFUSED, _FAILED = b"refused ", b"failed "


@dataclass(frozen=True)
class _Judge(Generic[T]):
    item: T
    process: BaseProcess
    heard: Connection  # nothing where all went well, else why not
    due: float  # on the monotonic clock

    def verdict(self, ended: bool) -> str:
        """Why there is no result, "" where there is one. Raises UsageError where no answer is at fault."""
        if not ended:
            self.end()
            return "judging its answers took too long"
        self.process.join()
        said = self._said()
        if said.startswith(_REFUSED):
            raise UsageError(said.removeprefix(_REFUSED).decode())
        if said:
            return f"its answers cannot be judged: {said.removeprefix(_FAILED).decode()}"
        code = self.process.exitcode
        return f"its answers ended the judge (exit code {code})" if code else ""

    def _said(self) -> bytes:
        try:
            return self.heard.recv_bytes()
        except (EOFError, OSError):  # it has ended without a word
            return b""

    def end(self) -> None:
        """End the process, and with it that of the submission."""
        self.process.kill()
        self.process.join()


def side_by_side(
    work: Callable[[T], None], items: Sequence[T], jobs: int, seconds: float, scratch: str
) -> Iterator[tuple[T, str]]:
    """Each item as it is done, with "" or the reason why `work` did not end well on it.

    Args:
        work: what is done with an item, in a process of its own.
        items: in the order in which they are begun.
        jobs: how many at once.
        seconds: after which a process is ended.
        scratch: folder for temporary files, which the caller clears away.

    Raises:
        UsageError: `work` raised it.
    """
    waiting, judges = list(reversed(items)), dict[int, _Judge[T]]()
    try:
        while waiting or judges:
            while waiting and len(judges) < jobs:
                judge = _begun(work, waiting.pop(), seconds, scratch)
                judges[judge.process.sentinel] = judge
            left = min(judge.due for judge in judges.values()) - monotonic()
            ended = wait([judge.process.sentinel for judge in judges.values()], max(0.0, left))
            for key, judge in list(judges.items()):
                if key in ended or judge.due <= monotonic():
                    del judges[key]
                    yield judge.item, judge.verdict(key in ended)
    finally:
        for judge in judges.values():
            judge.end()


def _begun(work: Callable[[T], None], item: T, seconds: float, scratch: str) -> _Judge[T]:
    heard, told = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_work, args=(work, item, scratch, told))
    process.start()
    told.close()
    return _Judge(item, process, heard, monotonic() + seconds)


def _work(work: Callable[[T], None], item: T, scratch: str, told: Connection) -> None:
    """Interrupts are for the first process, which clears away what is left in `scratch`; and no answer makes
    the judge take more memory than a submission may.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = scratch
    apply_limits(Limits())
    try:
        work(item)
    except UsageError as refused:
        told.send_bytes(_REFUSED + str(refused).encode())
    except Exception as error:
        told.send_bytes(_FAILED + f"{type(error).__name__}: {error}"[:200].encode("utf-8", "replace"))
