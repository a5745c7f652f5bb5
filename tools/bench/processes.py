"""Several programs at once, whose lines are read as they are printed."""

from __future__ import annotations

import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

WAIT = 1.0  # seconds after which None is yielded, so that the caller can look at the time


class Printed(NamedTuple):
    """A line that a program printed; or its end, with its exit code and the last line of its errors."""

    name: str
    line: str
    code: int | None = None


def printed_by(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], at_once: int, wait: float = WAIT
) -> Iterator[Printed | None]:  # fmt: skip
    """Run the commands, at most `at_once` at a time, and yield what they print; None if none printed anything
    for `wait` seconds. When the iterator is closed, all of them are killed.
    """
    said: queue.Queue[Printed] = queue.Queue()
    waiting, running = list(commands), dict[str, tuple[subprocess.Popen[str], IO[str]]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                name = waiting.pop(0)
                file: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed below
                running[name] = _start(commands[name], environment, file), file
                threading.Thread(target=_listen, args=[name, running[name][0], said], daemon=True).start()
            try:
                one = said.get(timeout=wait)
            except queue.Empty:
                yield None
                continue
            if one.code is not None:
                _, errors = running.pop(one.name)
                one = one._replace(line=_last_line(errors))
                errors.close()
            yield one
    finally:
        for process, errors in running.values():
            process.kill()
            process.wait()
            errors.close()


def _start(command: Sequence[str], environment: Mapping[str, str], errors: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True,
        env=os.environ | dict(environment),
    )  # fmt: skip


def _listen(name: str, process: subprocess.Popen[str], said: queue.Queue[Printed]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            said.put(Printed(name, line.rstrip("\n")))
    said.put(Printed(name, "", process.wait()))


def _last_line(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors if line.strip()]
    return lines[-1] if lines else ""
