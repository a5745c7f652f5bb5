"""Ranks as processes of their own, on gloo; on NCCL by the name of the backend alone, a GPU a rank.

One process loads torch and splits into the ranks. They share a folder with what they have to do, the file by
which they find each other, and what they leave: no port is needed, and nothing stays.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .base import Plan
from .errors import CannotShip, RankError, TimedOut, naming_the_late

START = 60.0  # seconds that processes may take to start; then the time-out begins
POLL = 0.01  # seconds between two looks at the folder
PATIENCE = 2.0  # seconds for the rank that failed to say so, where others have only lost it


def between_processes(
    body: Callable[..., Any], plans: Sequence[Plan], timeout: float, backend: str = "gloo"
) -> list[Any]:
    """What body(rank, link) returns for each rank, each in a process of its own.

    Raises the first rank's RankError and ends the others; TimedOut where one is late, which names it;
    CannotShip where the schedule uses what cannot be sent. Should this process die, they end too.
    """
    if not hasattr(os, "fork"):
        raise RankError('this system cannot split a process: on="gloo" runs the ranks as threads')
    if find_spec("cloudpickle") is None:
        raise RankError(
            'on="processes" sends your function with cloudpickle, which is not installed here: '
            'python -m pip install "cloudpickle>=2.2"'
        )
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        (folder / "work").write_bytes(shipped((body, list(plans), timeout, backend)))
        mother = _start(folder)
        try:
            return _results(folder, mother, len(plans), timeout)
        finally:
            _end(mother)


def shipped(what: Any) -> bytes:
    """`what` as bytes for a Python of the same version, with functions that a cell of a notebook defines.

    Raises CannotShip that says what cannot be sent.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(what))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CannotShip(f"the schedule cannot be sent to other processes: {error}") from None


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """The process that becomes the ranks. Each thinks with one thread: they share the machine."""
    told = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    # Python's own modules before a random.py of the student's in the current folder: hence -P, and last.
    paths = os.pathsep.join([*filter(None, sys.path), os.getcwd()])
    command = [sys.executable, "-P", "-m", "iocourse.distributed.engines.member", str(folder)]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # nothing is written: that it closes tells the ranks that we are gone
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **told, "PYTHONPATH": paths},
            start_new_session=True,  # so that it and its ranks can be ended together
        )


def _end(mother: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(mother.pid, signal.SIGKILL)
    mother.wait()
    assert mother.stdin is not None
    mother.stdin.close()


def _results(folder: Path, mother: subprocess.Popen[bytes], size: int, timeout: float) -> list[Any]:
    """Read what each rank leaves, in the order in which they end."""
    left: dict[int, Any] = {}
    until, begun = time.monotonic() + START, False
    while len(left) < size:
        over = mother.poll() is not None
        if not begun and all((folder / f"said{rank}").exists() for rank in range(size)):
            until, begun = time.monotonic() + timeout + PATIENCE, True
        left |= _left(folder, set(range(size)) - set(left))
        if any(failure for failure, _ in left.values()):
            raise _worst(folder, size)
        late = ", ".join(str(rank) for rank in range(size) if rank not in left)
        if late and over:
            raise RankError(f"rank {late} {_how(begun)}: {last_line(folder / 'said')}")
        if late and time.monotonic() > until:
            seconds = f"{timeout:g} seconds" if begun else f"{START:g} seconds, before it began"
            raise TimedOut(f"rank {late} did not end within {seconds}: its process was ended")
        time.sleep(POLL)
    _print_what_they_said(folder, size)
    return [left[rank][1] for rank in range(size)]


def _how(begun: bool) -> str:
    return "lost the process that had started it" if begun else "did not begin"


def _left(folder: Path, ranks: set[int]) -> dict[int, tuple[RankError | None, Any]]:
    """What those of the ranks that have ended left: (error, result)."""
    found = {rank: folder / f"left{rank}" for rank in sorted(ranks)}
    return {rank: pickle.loads(path.read_bytes()) for rank, path in found.items() if path.exists()}


def _worst(folder: Path, size: int) -> RankError:
    """The error to tell: a rank's own before that of one that waited for it, which may be there sooner."""
    until = time.monotonic() + PATIENCE
    while True:
        left = _left(folder, set(range(size)))
        failures = [one for one, _ in left.values() if one is not None]
        own = [one for one in failures if not isinstance(one, TimedOut)]
        if own:
            return own[0]
        if len(left) == size or time.monotonic() > until:
            return naming_the_late(failures[0], [rank for rank in range(size) if rank not in left])
        time.sleep(POLL)


def _print_what_they_said(folder: Path, size: int) -> None:
    for rank in range(size):
        for line in (folder / f"said{rank}").read_text(errors="replace").splitlines():
            print(f"rank {rank}: {line}")


def last_line(said: Path) -> str:
    """The last thing that was said."""
    lines = said.read_text(errors="replace").strip().splitlines() if said.exists() else []
    return lines[-1] if lines else "it said nothing"
