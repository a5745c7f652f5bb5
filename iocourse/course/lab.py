"""Opening the course in JupyterLab: the student's own copies of the lessons, and a server that shows them."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from iocourse.course.checkout import find_checkout
from iocourse.course.progress import home
from iocourse.refusal import Refused, write_whole

FIRST = "00_start_here.ipynb"
LAB_DEFAULTS = {
    # A click on the notation page shows it rendered, and no dialogue about news covers the first lesson.
    "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
}
INSTALL = 'python -m pip install "jupyterlab>=4.2"'


def copy_lessons(root: Path) -> tuple[list[str], list[str]]:
    """Copy the lessons and the notation page to `root`/work, where the student writes.

    A file that is already there is the student's and stays as it is.

    Returns:
        The names copied, and the names kept.

    Raises:
        Refused: there are no lessons at `root`.
    """
    lessons = sorted((root / "lessons").glob("*.ipynb"))
    if not lessons:
        raise Refused(f"no lessons in {root / 'lessons'}: iocourse release makes them from solutions/")
    work = root / "work"
    work.mkdir(exist_ok=True)
    copied: list[str] = []
    kept: list[str] = []
    for source in [*lessons, *(root / "lessons").glob("notation.md")]:
        (copied if _copy_new(source, work / source.name) else kept).append(source.name)
    return copied, kept


def _copy_new(source: Path, target: Path) -> bool:
    """Copy unless there is something at `target`; an empty file is what an interrupted copy left there."""
    if target.exists() and target.stat().st_size:
        return False
    write_whole(target, source.read_text(encoding="utf-8"))
    return True


def open_lab(*, browser: bool, options: Sequence[str] = ()) -> int:
    """Copy the lessons, start JupyterLab at the first one, print its URL and wait until it is stopped.

    Args:
        browser: whether JupyterLab may open a browser.
        options: passed on to JupyterLab, such as ``--port=9999``.

    Returns:
        JupyterLab's exit code.

    Raises:
        Refused: no checkout, no lessons, or JupyterLab is not installed.
    """
    root = find_checkout()
    if importlib.util.find_spec("jupyterlab") is None:
        raise Refused(f"JupyterLab is not installed here: {INSTALL}")
    copied, kept = copy_lessons(root)
    for what, names in (("copied to work/", copied), ("kept in work/ as you left it", kept)):
        if names:
            print(f"{what}: {', '.join(names)}", flush=True)
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    env = os.environ | {"JUPYTER_TOKEN": token, "JUPYTER_CONFIG_PATH": _config_path()}
    server = subprocess.Popen(_command(root, browser, options), cwd=root, env=env)
    return _attend(server, token)


def _config_path() -> str:
    """Where JupyterLab looks for settings: ours are defaults, which the student's own override."""
    folder = home() / "jupyter"
    (folder / "labconfig").mkdir(parents=True, exist_ok=True)
    write_whole(folder / "labconfig" / "default_setting_overrides.json", json.dumps(LAB_DEFAULTS, indent=1))
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_CONFIG_PATH")]))


def _command(root: Path, browser: bool, options: Sequence[str]) -> list[str]:
    # The root is the checkout, so that links from work/ to ../solutions open too.
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}"]
    command.append(f"--LabApp.default_url=/lab/tree/work/{FIRST}")
    command.append("--Application.log_level=WARN")  # so that the address below stays in sight
    if not browser:
        command.append("--no-browser")
    if (
        hasattr(os, "geteuid") and os.geteuid() == 0
    ):  # as in most containers; JupyterLab would refuse to start
        command.append("--allow-root")
    return [*command, *options]


def _attend(server: subprocess.Popen[bytes], token: str) -> int:
    """Print the URL once the server answers, then wait for its end; an interrupt ends it too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside, we end the server too
    try:
        url = _wait_for_url(server, token)
        if url:
            print(f"\nThe course is open at\n    {url}\nStop it with Ctrl-C in this terminal.\n", flush=True)
        return server.wait()
    except KeyboardInterrupt:  # the terminal has sent it to JupyterLab as well, which asks before it stops
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
            try:
                facts = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):  # being written just now, or removed
                continue
            if facts.get("token") == token:
                return f"{facts['url']}lab/tree/work/{FIRST}?token={token}"
        time.sleep(0.1)
    return ""
