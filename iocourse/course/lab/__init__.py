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
from iocourse.course.student_copies.copies import find_copies
from iocourse.doctor import install_command
from iocourse.errors import UsageError
from iocourse.files import atomic_write, read_json

LAB_DEFAULTS = {
    # A click on the notation page shows it rendered, and no dialogue about news covers the first lesson.
    "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
}
# Options for Jupyter's server: send kernel messages at once, and show figures in saved notebooks.
OURS = (
    f"--ServerApp.kernel_websocket_connection_class={__name__}.server.PromptConnection",
    f"--ServerApp.contents_manager_class={__name__}.server.StillPictures",
)
HIGHEST = 65_535  # port
EVERYWHERE = ("", "*")  # addresses


def update_copies(name: str = "") -> int:
    """Update the student's copies, all or those of one lesson, print a line per file and return exit code 0.

    Args:
        name: a lesson, page or other file; all copies if empty.

    Raises:
        UsageError: there are no lessons, none of this name, or a file cannot be written.
    """
    course, lines = find_course(), 0
    for line in update.update(course, name):
        print(line, flush=True)
        lines += 1
    if not lines:
        print(f"nothing to do: all texts in {course.work} are current")
    return 0


def open_lab(*, browser: bool, options: Sequence[str] = ()) -> int:
    """Copy the lessons, start JupyterLab at the first one, print its URL and wait until it is stopped.

    Args:
        browser: True if JupyterLab may open a browser.
        options: options for JupyterLab, such as ``--port=9999``.

    Returns:
        JupyterLab's exit code.

    Raises:
        UsageError: there are no lessons, a copy cannot be written, JupyterLab is not installed, or the port
            in the options cannot be used.
    """
    course = find_course()
    require_port(options)
    if importlib.util.find_spec("jupyterlab") is None:
        raise UsageError(f"JupyterLab is not installed. Install it with {install_command.command('lab')}")
    _prepare(course)
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    env = os.environ | {"JUPYTER_TOKEN": token, "JUPYTER_CONFIG_PATH": _config_path()}
    server = subprocess.Popen(_command(course.root, browser, options), cwd=course.root, env=env)
    return _attend(server, token)


def require_port(options: Sequence[str]) -> None:
    """Check that JupyterLab can listen on the port in its options, if there is one.

    JupyterLab would silently use another port or end with a traceback. Without the option it uses a free one.

    Raises:
        UsageError: the port is not valid or cannot be used.
    """
    asked = _option("port", options)
    if asked is None:
        return
    if not re.fullmatch(r"\d{1,5}", asked) or int(asked) > HIGHEST:
        raise UsageError(f"--port must be an integer from 0 to {HIGHEST:,} (0: any free port), got {asked!r}")
    ip = _option("ip", options) or "localhost"
    try:
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        socket.create_server(("" if ip in EVERYWHERE else ip, int(asked)), family=family).close()
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while")[0]
        raise UsageError(
            f"cannot listen on port {asked} of {ip}: {why}. Omit --port to use a free port, or choose "
            "another, such as --port=8890"
        ) from None


def _option(name: str, options: Sequence[str]) -> str | None:
    """Return the last value of an option (`--name=…`, `--name …` or `--ServerApp.name=…`), or None."""
    given = re.compile(rf"--(?:(?:ServerApp|LabApp)\.)?{name}(?:=(.*))?")
    found = None
    for at, option in enumerate(options):
        if match := given.fullmatch(option):
            following = options[at + 1 : at + 2]
            found = match[1] if match[1] is not None else "".join(following)
    return found


def _prepare(course: Course) -> None:
    """Copy the missing lessons, and print which files were renamed, which copied and which existed."""
    lessons = update.lesson_notebooks(course)
    copies, renamed = update.rename_copies(find_copies(course, lessons), lessons)
    for line in renamed:
        print(line)
    copied = update.copy_missing(course, lessons, copies)
    if copied:
        print(f"copied to {course.work}: {_few(copied)}")
    if copies:
        print(f"unchanged in {course.work}: {_few([copy.path.name for copy in copies])}")
    for line in update.update_remarks(course, lessons, copies, copied):
        print(line)
    sys.stdout.flush()


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{len(names)} files, {names[0]} to {names[-1]}"


def _config_path() -> str:
    """Write default settings of JupyterLab, which the user's own override, and return its search path."""
    folder = home() / "jupyter"
    try:
        (folder / "labconfig").mkdir(parents=True, exist_ok=True)
        atomic_write(
            folder / "labconfig" / "default_setting_overrides.json", json.dumps(LAB_DEFAULTS, indent=1)
        )
    except OSError as error:
        raise UsageError(
            f"cannot write {folder}: {error.strerror or error}. The course and JupyterLab need a writable "
            "home folder. Start with another one, for example HOME=/tmp/me iocourse lab"
        ) from None
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_CONFIG_PATH")]))


def _command(root: Path, browser: bool, options: Sequence[str]) -> list[str]:
    # -P: a student's random.py in the current folder must not hide Python's module.
    command = [sys.executable, "-P", "-m", f"{__name__}.server", f"--ServerApp.root_dir={root}"]
    command.append(f"--LabApp.default_url=/lab/tree/work/{FIRST}")
    command += OURS
    command.append("--Application.log_level=WARN")  # so that log lines do not hide the printed URL
    if not browser:
        command.append("--no-browser")
    if (
        hasattr(os, "geteuid") and os.geteuid() == 0
    ):  # in most containers; otherwise JupyterLab does not start
        command.append("--allow-root")
    return [*command, *options]


def _attend(server: subprocess.Popen[bytes], token: str) -> int:
    """Print the URL when the server is ready, wait for its end, and return its exit code; Ctrl-C stops it."""
    with exit_on_sigterm():  # on SIGTERM, stop the server too
        try:
            url = _wait_for_url(server, token)
            if url:
                opened = f"\nThe course is open at\n    {url}\nStop it with Ctrl-C in this terminal.\n"
                print(opened, flush=True)
            code = server.wait()
            if code and not url:
                said = f"JupyterLab ended before it was ready (exit code {code}); see its messages above"
                print(f"iocourse lab: {said}", file=sys.stderr)
            return code
        except KeyboardInterrupt:  # JupyterLab received it too, and would prompt for confirmation
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
    """Return the URL of the first lesson, from the server's runtime file; "" if it does not start in time."""
    from jupyter_core.paths import jupyter_runtime_dir

    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        for path in Path(jupyter_runtime_dir()).glob("jpserver-*.json"):
            facts = read_json(path)  # empty if the file is incomplete or was removed
            if facts.get("token") == token:
                return f"{facts['url']}lab/tree/work/{FIRST}?token={token}"
        time.sleep(0.1)
    return ""
