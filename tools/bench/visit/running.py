"""Commands of a step: each a process of its own with a log of its own, ended when the step's time is up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

GRACE = 5.0  # seconds between asking a process to end and ending it
PAUSE = 0.1  # between two looks at what the processes have said


def run_commands(commands: Mapping[str, Sequence[str]], logs: Mapping[str, Path], limit: float,
                 environment: Mapping[str, str]) -> tuple[dict[str, int | None], bool]:  # fmt: skip
    """Run commands at once, for `limit` seconds at most; what each says goes to its log, and here if alone.

    Returns exit codes by label (None: it could not start), and whether time was up. Whatever ends this
    function, Ctrl-C too, ends the processes it started.
    """
    started, over, cut = time.monotonic(), False, False
    running: dict[str, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        stack.callback(_end, running)
        for label, command in commands.items():
            logs[label].parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(logs[label].open("wb"))
            try:
                running[label] = _start(command, log, environment)
            except OSError as error:
                log.write(f"{error}\n".encode())
        said = stack.enter_context(next(iter(logs.values())).open("rb")) if len(commands) == 1 else None
        while not over:
            time.sleep(PAUSE)
            cut = time.monotonic() - started > limit
            if cut:
                _end(running)
            over = all(one.poll() is not None for one in running.values())
            if said is not None:  # what has been said since the last look
                print(said.read().decode("utf-8", "replace"), end="", flush=True)
    return {label: running[label].wait() if label in running else None for label in commands}, cut


def _start(command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # A group of its own: ending it ends what it started too.
    options: dict[str, Any] = {"stdout": log, "stderr": subprocess.STDOUT, "env": environment}
    if os.name == "posix":
        options |= {"process_group": 0, "preexec_fn": _die_with_parent}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)


def _die_with_parent() -> None:
    """Ask Linux to end this process when the visit is killed: nothing may run beside the next one."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _end(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Ctrl-C for each that still runs, and after a grace the end of its whole group."""
    alive = [one for one in running.values() if one.poll() is None]
    for number in (signal.SIGINT, getattr(signal, "SIGKILL", signal.SIGTERM)):
        for one in alive:
            with suppress(ProcessLookupError, PermissionError):  # it is gone
                os.killpg(one.pid, number) if os.name == "posix" else one.terminate()
        until = time.monotonic() + GRACE
        while any(one.poll() is None for one in alive) and time.monotonic() < until:
            time.sleep(PAUSE)
