"""The ranks of a run as processes: `python -m iocourse.distributed.engines.member FOLDER` becomes them."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ...refusal import write_whole
from .errors import RankError, RankFailed
from .multiprocess import last_line
from .simulated import named
from .torch_backend import TorchLink


def split(folder: Path) -> None:
    """Become as many processes as there are ranks, and wait for them; say of one that died how it ended."""
    torch.set_num_threads(1)
    work = (folder / "work").read_bytes()
    size = len(pickle.loads(work)[1])
    ranks = {_born(folder, rank, work): rank for rank in range(size)}
    threading.Thread(target=_end_with_the_caller, args=[folder], daemon=True).start()
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid)
        if not (folder / f"left{rank}").exists():
            code, said = os.waitstatus_to_exitcode(status), last_line(folder / f"said{rank}")
            _leave(folder, rank, RankFailed(f"rank {rank} ended without a result (exit code {code}): {said}"))


def _end_with_the_caller(folder: Path) -> None:
    """End all ranks, and remove their folder, once the process that wants the results is no more."""
    while os.read(0, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _born(folder: Path, rank: int, work: bytes) -> int:
    """The process of a rank, which does its work and ends."""
    pid = os.fork()
    if pid:
        return pid
    said = os.open(folder / f"said{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1)
    os.dup2(said, 2)
    live(folder, rank, work)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def live(folder: Path, rank: int, work: bytes) -> None:
    """Do this rank's work, and leave its result or its error in the folder."""
    try:
        body, plans, timeout, backend = pickle.loads(work)
        store = dist.FileStore(str(folder / "store"), len(plans))
        result = body(rank, TorchLink(rank, len(plans), store, plans[rank], timeout, backend))
        sys.stdout.flush()
        _leave(folder, rank, None, result)
    except BaseException as error:
        told = named(rank, error)
        _leave(folder, rank, type(told)(str(told)))


def _leave(folder: Path, rank: int, failure: RankError | None, result: Any = None) -> None:
    write_whole(folder / f"left{rank}", pickle.dumps((failure, result)))


if __name__ == "__main__":
    split(Path(sys.argv[1]))
