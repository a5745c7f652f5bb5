"""Ranks as processes of their own, on gloo; on NCCL by the name of the backend alone, a GPU a rank.

One process loads torch and splits into the ranks: `python -m iocourse.distributed.engines.multiprocess DIR`.
They share a folder with what they have to do, the file by which they find each other, and what they leave: no
port is needed, and nothing stays.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ...files import atomic_write
from ..rank import CannotShip, Plan, RankError, RankFailed, TimedOut, name_late_ranks
from .simulated import rank_error
from .torch_backend import TorchTransport

START = 60.0  # seconds that processes may take to start; then the time-out begins
POLL = 0.01  # seconds between two looks at the folder
PATIENCE = 2.0  # seconds for the rank that failed to say so, where others have only lost it


def run_processes(
    body: Callable[..., Any], plans: Sequence[Plan], timeout: float, backend: str = "gloo"
) -> list[Any]:
    """What body(rank, transport) returns for each rank, each in a process of its own.

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
        (folder / "work").write_bytes(pickled((body, list(plans), timeout, backend)))
        parent = _start(folder)
        try:
            return _results(folder, parent, len(plans), timeout)
        finally:
            _kill(parent)


def pickled(what: Any) -> bytes:
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
    command = [sys.executable, "-P", "-m", "iocourse.distributed.engines.multiprocess", str(folder)]
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # nothing is written: that it closes tells the ranks that we are gone
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **told, "PYTHONPATH": paths},
            start_new_session=True,  # so that it and its ranks can be ended together
        )


def _kill(parent: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(parent.pid, signal.SIGKILL)
    parent.wait()
    assert parent.stdin is not None
    parent.stdin.close()


def _results(folder: Path, parent: subprocess.Popen[bytes], size: int, timeout: float) -> list[Any]:
    """Read what each rank leaves, in the order in which they end."""
    left: dict[int, Any] = {}
    until, begun = time.monotonic() + START, False
    while len(left) < size:
        over = parent.poll() is not None
        if not begun and all((folder / f"output{rank}").exists() for rank in range(size)):
            until, begun = time.monotonic() + timeout + PATIENCE, True
        left |= _read_results(folder, set(range(size)) - set(left))
        if any(failure for failure, _ in left.values()):
            raise _cause(folder, size)
        late = ", ".join(str(rank) for rank in range(size) if rank not in left)
        if late and over:
            how = "lost the process that had started it" if begun else "did not begin"
            raise RankError(f"rank {late} {how}: {last_line(folder / 'output')}")
        if late and time.monotonic() > until:
            seconds = f"{timeout:g} seconds" if begun else f"{START:g} seconds, before it began"
            raise TimedOut(f"rank {late} did not end within {seconds}: its process was ended")
        time.sleep(POLL)
    for rank in range(size):
        for line in (folder / f"output{rank}").read_text(errors="replace").splitlines():
            print(f"rank {rank}: {line}")
    return [left[rank][1] for rank in range(size)]


def _read_results(folder: Path, ranks: set[int]) -> dict[int, tuple[RankError | None, Any]]:
    """What those of the ranks that have ended left: (error, result)."""
    found = {rank: folder / f"result{rank}" for rank in sorted(ranks)}
    return {rank: pickle.loads(path.read_bytes()) for rank, path in found.items() if path.exists()}


def _cause(folder: Path, size: int) -> RankError:
    """The error to tell: a rank's own before that of one that waited for it, which may be there sooner."""
    until = time.monotonic() + PATIENCE
    while True:
        left = _read_results(folder, set(range(size)))
        failures = [one for one, _ in left.values() if one is not None]
        own = [one for one in failures if not isinstance(one, TimedOut)]
        if own:
            return own[0]
        if len(left) == size or time.monotonic() > until:
            return name_late_ranks(failures[0], [rank for rank in range(size) if rank not in left])
        time.sleep(POLL)


def last_line(printed: Path) -> str:
    """The last line that was printed."""
    lines = printed.read_text(errors="replace").strip().splitlines() if printed.exists() else []
    return lines[-1] if lines else "it said nothing"


# ---------------------------------------------------------------------- within the process that splits
def fork_ranks(folder: Path) -> None:
    """Become as many processes as there are ranks, and wait for them; say of one that died how it ended."""
    torch.set_num_threads(1)
    work = (folder / "work").read_bytes()
    size = len(pickle.loads(work)[1])
    ranks = {_fork_rank(folder, rank, work): rank for rank in range(size)}
    threading.Thread(target=_end_with_caller, args=[folder], daemon=True).start()
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid)
        if not (folder / f"result{rank}").exists():
            code, said = os.waitstatus_to_exitcode(status), last_line(folder / f"output{rank}")
            _write_result(
                folder, rank, RankFailed(f"rank {rank} ended without a result (exit code {code}): {said}")
            )


def _end_with_caller(folder: Path) -> None:
    """End all ranks, and remove their folder, once the process that wants the results is no more."""
    while os.read(0, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _fork_rank(folder: Path, rank: int, work: bytes) -> int:
    """The process of a rank, which does its work and ends."""
    pid = os.fork()
    if pid:
        return pid
    output = os.open(folder / f"output{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    run_rank(folder, rank, work)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_rank(folder: Path, rank: int, work: bytes) -> None:
    """Do this rank's work, and leave its result or its error in the folder."""
    try:
        body, plans, timeout, backend = pickle.loads(work)
        store = dist.FileStore(str(folder / "store"), len(plans))
        result = body(rank, TorchTransport(rank, len(plans), store, plans[rank], timeout, backend))
        sys.stdout.flush()
        _write_result(folder, rank, None, result)
    except BaseException as error:
        told = rank_error(rank, error)
        _write_result(folder, rank, type(told)(str(told)))


def _write_result(folder: Path, rank: int, failure: RankError | None, result: Any = None) -> None:
    atomic_write(folder / f"result{rank}", pickle.dumps((failure, result)))


if __name__ == "__main__":
    fork_ranks(Path(sys.argv[1]))
