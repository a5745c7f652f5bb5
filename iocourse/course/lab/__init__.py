"""Open the course in JupyterLab: copy the lessons for the student, check the port, start the server."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from iocourse.console import exit_on_sigterm
from iocourse.course.progress import home
from iocourse.course.project_paths import FIRST, Course, find_course
from iocourse.course.student_copies import update
from iocourse.errors import UsageError
from iocourse.files import atomic_write, read_json

LAB_DEFAULTS = {
    # A click on the notation page shows it rendered, and no dialogue about news covers the first lesson.
    "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
}
# For Jupyter's server: messages of a kernel are sent at once, and a saved notebook shows its pictures.
OURS = (
    f"--ServerApp.kernel_websocket_connection_class={__name__}.server.PromptConnection",
    f"--ServerApp.contents_manager_class={__name__}.server.StillPictures",
)
INSTALL = 'python -m pip install "jupyterlab>=4.2"'
HIGHEST = 65_535  # port
EVERYWHERE = ("", "*")  # addresses


def update_copies(name: str = "") -> int:
    """Bring the student's copies up to date, those of one lesson where it has a name, and say what was done.

    Raises:
        UsageError: no lessons, none of this name, or a file that cannot be written.
    """
    course, lines = find_course(), 0
    for line in update.update(course, name):
        print(line, flush=True)
        lines += 1
    if not lines:
        print(f"nothing to do: {course.work} has the newest texts")
    return 0


def open_lab(*, browser: bool, options: Sequence[str] = ()) -> int:
    """Copy the lessons, start JupyterLab at the first one, print its URL and wait until it is stopped.

    Args:
        browser: whether JupyterLab may open a browser.
        options: passed on to JupyterLab, such as ``--port=9999``.

    Returns:
        JupyterLab's exit code.

    Raises:
        UsageError: no lessons, a copy cannot be written, JupyterLab is not installed, or the options ask for
            a port that is not to be had.
    """
    course = find_course()
    require_port(options)
    if importlib.util.find_spec("jupyterlab") is None:
        raise UsageError(f"JupyterLab is not installed here: {INSTALL}")
    _prepare(course)
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    env = os.environ | {"JUPYTER_TOKEN": token, "JUPYTER_CONFIG_PATH": _config_path()}
    server = subprocess.Popen(_command(course.root, browser, options), cwd=course.root, env=env)
    return _attend(server, token)


def require_port(options: Sequence[str]) -> None:
    """Raise UsageError where the options for JupyterLab name a port that it cannot listen on.

    JupyterLab would take another without a word, or end in a traceback. Without such an option it looks for a
    free one.
    """
    asked = _option("port", options)
    if asked is None:
        return
    if not re.fullmatch(r"\d{1,5}", asked) or int(asked) > HIGHEST:
        raise UsageError(
            f"--port must be an integer from 0 to {HIGHEST:,}, where 0 is any that is free; got {asked!r}"
        )
    ip = _option("ip", options) or "localhost"
    try:
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        socket.create_server(("" if ip in EVERYWHERE else ip, int(asked)), family=family).close()
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(
            f"cannot listen on port {asked} of {ip}: {why}. Leave out --port to get one that is free, "
            "or name another, such as --port=8890"
        ) from None


def _option(name: str, options: Sequence[str]) -> str | None:
    """The last value of an option, which JupyterLab takes as `--name=…`, `--name …`, `--ServerApp.name=…`."""
    given = re.compile(rf"--(?:(?:ServerApp|LabApp)\.)?{name}(?:=(.*))?")
    found = None
    for at, option in enumerate(options):
        if match := given.fullmatch(option):
            following = options[at + 1 : at + 2]
            found = match[1] if match[1] is not None else "".join(following)
    return found


def _prepare(course: Course) -> None:
    """Copy what is missing, and say what was there."""
    lessons = update.read_lessons(course)
    copies = update.find_copies(course, lessons)
    copied = update.copy_missing(course, lessons)
    if copied:
        print(f"copied to {course.work}: {_few(copied)}")
    if copies:
        print(f"as you left them in {course.work}: {_few([copy.path.name for copy in copies])}")
    for line in update.remarks(course, lessons, copies, copied):
        print(line)
    sys.stdout.flush()


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{len(names)} files, {names[0]} to {names[-1]}"


def _config_path() -> str:
    """Where JupyterLab looks for settings: ours are defaults, which the student's own override."""
    folder = home() / "jupyter"
    try:
        (folder / "labconfig").mkdir(parents=True, exist_ok=True)
        atomic_write(
            folder / "labconfig" / "default_setting_overrides.json", json.dumps(LAB_DEFAULTS, indent=1)
        )
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror or error}. The course and JupyterLab keep files in "
            "your home folder; start with another one, as in HOME=/tmp/me iocourse lab"
        ) from None
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_CONFIG_PATH")]))


def _command(root: Path, browser: bool, options: Sequence[str]) -> list[str]:
    # -P: a random.py of the student's in the current folder does not stand for Python's own.
    command = [sys.executable, "-P", "-m", f"{__name__}.server", f"--ServerApp.root_dir={root}"]
    command.append(f"--LabApp.default_url=/lab/tree/work/{FIRST}")
    command += OURS
    command.append("--Application.log_level=WARN")  # so that the address below stays in sight
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in most containers; JupyterLab would not start
        command.append("--allow-root")
    return [*command, *options]


def _attend(server: subprocess.Popen[bytes], token: str) -> int:
    """Print the URL once the server answers, then wait for its end; an interrupt ends it too."""
    with exit_on_sigterm():  # ended from outside, we end the server too
        try:
            url = _wait_for_url(server, token)
            if url:
                opened = f"\nThe course is open at\n    {url}\nStop it with Ctrl-C in this terminal.\n"
                print(opened, flush=True)
            code = server.wait()
            if code and not url:
                said = f"JupyterLab ended before it answered (exit code {code}); its own lines above say why"
                print(f"iocourse lab: {said}", file=sys.stderr)
            return code
        except KeyboardInterrupt:  # the terminal has sent it to JupyterLab too, which asks before it stops
            return _stop(server)
        finally:
            if server.poll() is None:
                server.terminate()


def _stop(server: subprocess.Popen[bytes]) -> int:
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
    return 0


def _wait_for_url(server: subprocess.Popen[bytes], token: str, seconds: float = 60) -> str:
    """The address of the first lesson, from the file in which the server describes itself; else empty."""
    from jupyter_core.paths import jupyter_runtime_dir

    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        for path in Path(jupyter_runtime_dir()).glob("jpserver-*.json"):
            facts = read_json(path)  # it may be written just now, or removed
            if facts.get("token") == token:
                return f"{facts['url']}lab/tree/work/{FIRST}?token={token}"
        time.sleep(0.1)
    return ""
