"""Ranks as separate processes, with gloo, or with NCCL (one GPU per rank) by the argument `backend`.

One process imports torch and forks the ranks: `python -m iocourse.distributed.engines.multiprocess DIR`. DIR
contains the pickled task, the rendezvous file and the results, and is deleted at the end. No port is needed.
"""

from __future__ import annotations

import errno
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

from ...doctor import install_command
from ...files import atomic_write
from ..rank import CannotShip, Plan, RankError, RankFailed, TimedOut, name_late_ranks
from .simulated import rank_error
from .torch_backend import TorchTransport

START = 60.0  # seconds that processes may take to start; then the time-out begins
POLL = 0.01  # seconds between two reads of the folder
NO_SPACE = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
FULL = errno.ENOSPC  # exit code of a process that cannot write its result or its error
PATIENCE = 2.0  # seconds to wait for the error of the rank that failed, after others report a lost connection


def run_processes(
    body: Callable[..., Any], plans: Sequence[Plan], timeout: float, backend: str = "gloo"
) -> list[Any]:
    """Run body(rank, transport) in one process per rank and return the results in the order of the ranks.

    The ranks end if this process dies.

    Raises:
        RankError: the error of the first rank that fails; the other ranks are ended.
            Also if the temporary folder is full.
        TimedOut: if a rank does not end in time; the message contains its number.
        CannotShip: if the schedule uses an object that cannot be pickled.
    """
    if not hasattr(os, "fork"):
        raise RankError('on="processes" needs os.fork, which this system lacks. Use on="gloo" (threads).')
    if find_spec("cloudpickle") is None:
        raise RankError(
            'on="processes" needs the package cloudpickle, which is not installed. Install it with: '
            f"{install_command.command('torch')}"
        )
    work = pickled((body, list(plans), timeout, backend))
    try:
        with tempfile.TemporaryDirectory(prefix="ranks-") as name:
            folder = Path(name)
            (folder / "work").write_bytes(work)
            parent = _start(folder)
            try:
                return _results(folder, parent, len(plans), timeout)
            finally:
                _kill(parent)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise _full() from None
        raise


def _full() -> RankError:
    return RankError(
        f"the temporary folder {tempfile.gettempdir()} is full, and the ranks exchange their results there. "
        "Delete files, or set TMPDIR to another folder"
    )


def pickled(what: Any) -> bytes:
    """Pickle `what`, including functions defined in a notebook, for a process of the same Python version.

    Raises CannotShip, with the cause, if an object cannot be pickled.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(what))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CannotShip(f"the schedule cannot be sent to other processes: {error}") from None


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that forks the ranks. Each rank uses one thread, because all share the same cores."""
    told = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    # The current folder comes last (and -P), so that a student's random.py does not hide Python's module.
    paths = os.pathsep.join([*filter(None, sys.path), os.getcwd()])
    command = [sys.executable, "-P", "-m", "iocourse.distributed.engines.multiprocess", str(folder)]
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # nothing is written; its end tells the child that this process ended
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
    """Collect the result files of all ranks, print the output of the ranks and return the results by rank."""
    left: dict[int, Any] = {}
    until, begun = time.monotonic() + START, False
    while len(left) < size:
        over = parent.poll() is not None
        # The limit is for the schedule: it begins when every rank is forked, after torch has been imported.
        if not begun and all((folder / f"output{rank}").exists() for rank in range(size)):
            until, begun = time.monotonic() + timeout + PATIENCE, True
        if over and parent.returncode == FULL:
            raise _full()
        left |= _read_results(folder, set(range(size)) - set(left))
        if any(failure for failure, _ in left.values()):
            raise _cause(folder, size)
        late = ", ".join(str(rank) for rank in range(size) if rank not in left)
        if late and over:
            how = "lost its parent process" if begun else "did not start"
            raise RankError(f"rank {late} {how}: {last_line(folder / 'output')}")
        if late and time.monotonic() > until:
            seconds = f"{timeout:g} seconds" if begun else f"{START:g} seconds, before it started"
            raise TimedOut(f"rank {late} did not end within {seconds}; its process was killed")
        time.sleep(POLL)
    for rank in range(size):
        for line in (folder / f"output{rank}").read_text(errors="replace").splitlines():
            print(f"rank {rank}: {line}")
    return [left[rank][1] for rank in range(size)]


def _read_results(folder: Path, ranks: set[int]) -> dict[int, tuple[RankError | None, Any]]:
    """Return (error, result) of those of the ranks that have written their result file."""
    found = {rank: folder / f"result{rank}" for rank in sorted(ranks)}
    return {rank: pickle.loads(path.read_bytes()) for rank, path in found.items() if path.exists()}


def _cause(folder: Path, size: int) -> RankError:
    """Return the error to raise: a rank's original error rather than the time-out of a rank that waited."""
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
    """Return the last non-empty line of the file `printed`, or a note that nothing was printed."""
    lines = printed.read_text(errors="replace").strip().splitlines() if printed.exists() else []
    return lines[-1] if lines else "it printed nothing"


# ---------------------------------------------------------------------- in the process that forks
def fork_ranks(folder: Path) -> None:
    """Fork one process per rank and wait for all; write an error result for a rank that died without one."""
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
            if code == FULL:
                os._exit(FULL)
            _write_result(
                folder, rank, RankFailed(f"rank {rank} ended without a result (exit code {code}): {said}")
            )


def _end_with_caller(folder: Path) -> None:
    """Wait until the calling process has ended (stdin closes); then delete the folder and kill all ranks."""
    while os.read(0, 1):
        pass
    for _ in range(100):  # a rank may create a file while the folder is being deleted
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
    os.killpg(0, signal.SIGKILL)


def _fork_rank(folder: Path, rank: int, work: bytes) -> int:
    """Fork the process of one rank and return its id; the child runs the rank and exits."""
    pid = os.fork()
    if pid:
        return pid
    output = os.open(folder / f"output{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    run_rank(folder, rank, work)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: the clean-up of the process that forks must not run in a rank.
    os._exit(0)


def run_rank(folder: Path, rank: int, work: bytes) -> None:
    """Run the pickled task for this rank and write its result or its error to the folder."""
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
    """Write the result or the error of a rank; end this process with the code FULL if the folder is full."""
    try:
        # Atomic, because the caller reads the file as soon as it exists.
        atomic_write(folder / f"result{rank}", pickle.dumps((failure, result)))
    except OSError as error:
        if error.errno in NO_SPACE:
            os._exit(FULL)
        raise


if __name__ == "__main__":
    fork_ranks(Path(sys.argv[1]))
