"""The grader's end of a submission's process: requests with a deadline; a process that misses it is ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from threading import Timer
from time import monotonic
from typing import Any

from . import sandbox
from .protocol import Unreadable, read, write
from .sandbox import Limits

SAID = 10_000  # bytes, the last, of what it wrote to standard error
START = 120.0  # seconds until Python and the library are there, on a machine with much to do


class Ended(Exception):
    """The process is gone; the message says why, for the student."""


class ProcessClient:
    """One submission's process, from its start to its end."""

    def __init__(self, limits: Limits, sandboxed: bool) -> None:
        self.limits, self._late = limits, False
        self.allow(START)
        self._home = tempfile.TemporaryDirectory(prefix="iocourse-grade-", ignore_cleanup_errors=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the session
        self._process = subprocess.Popen(
            sandbox.command(limits, sandboxed),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=sandbox.environment(sandbox.HOME if sandboxed else self._home.name),
            cwd=self._home.name,
        )
        try:
            self._in_time()  # "ready"
        except Ended:
            self.close()
            raise

    def allow(self, seconds: float) -> None:
        """From now on there are so many seconds."""
        self._allowed, self._due = seconds, monotonic() + seconds

    def ask(self, *message: Any) -> Any:
        """The answer to a message. Raises Ended where there is none in time; then the process is gone."""
        return self._in_time(message)

    def _in_time(self, *messages: Any) -> Any:
        """The next answer, after these messages; a process that does not read them is late as well."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        timer = Timer(max(0.0, self._due - monotonic()), self._too_late)
        timer.start()
        try:
            for message in messages:
                with contextlib.suppress(OSError):  # it has ended: what is missing below is its answer
                    write(asked, message)
            return read(answers, self.limits.answer)
        except EOFError:
            raise Ended(self._why()) from None
        except Unreadable as error:
            raise Ended(str(error)) from None
        finally:
            timer.cancel()

    def _too_late(self) -> None:
        self._late = True
        self._process.kill()

    def _why(self) -> str:
        if self._late:
            return f"took longer than {self._allowed:g} seconds"
        code = self._process.wait()
        self._said.seek(-min(SAID, self._said.seek(0, os.SEEK_END)), os.SEEK_END)
        lines = self._said.read(SAID).decode(errors="replace").strip().splitlines()
        return f"its process ended (exit code {code})" + (f": {lines[-1][:200]}" if lines else "")

    def close(self) -> None:
        """End the process and clear away what it wrote."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        self._home.cleanup()
