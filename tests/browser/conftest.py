"""Fixtures: a JupyterLab server on a copy of the lessons, and Chromium.

A test takes `lab_page` (a function: notebook path -> Playwright page with the notebook open, its kernel idle)
and `run_all` (a function: page -> None once every cell has run). Without Chromium or Playwright it is
skipped, with the reason.
"""

import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright_thread import InPlaywrightThread

from iocourse.course.lab import OURS
from tools.build.notebook_execution import lesson_environment

ROOT = Path(__file__).parents[2]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
SETTINGS = {
    # Every cell is in the page, not only those in view.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
START = 240_000  # milliseconds for JupyterLab to load and a kernel to start
RUN = 240_000  # milliseconds for all cells of a lesson

LAB_IS_THERE = "window.jupyterapp?.restored.then(() => true)"
OPEN = """async path => {
    const widget = await window.jupyterapp.commands.execute('docmanager:open', {path});
    await widget.context.ready;
}"""
CLOSE = """async () => {
    const widget = window.jupyterapp.shell.currentWidget;
    await widget?.context?.save();
    widget?.close();
}"""
KERNEL_IS_IDLE = """() => {
    const context = window.jupyterapp?.shell?.currentWidget?.context;
    const kernel = context?.sessionContext?.session?.kernel;
    return context?.isReady && kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
}"""
RUN_ALL = """timeout => Promise.race([
    window.jupyterapp.commands.execute('notebook:run-all-cells').then(() => 'ran'),
    new Promise(late => setTimeout(() => late(`still running after ${timeout} ms`), timeout)),
])"""
ERRORS = """() => Array.from(window.jupyterapp.shell.currentWidget.content.model.cells)
    .flatMap(cell => cell.type === 'code' ? cell.sharedModel.outputs : [])
    .filter(output => output.output_type === 'error')
    .map(output => `${output.ename}: ${output.evalue}`)"""


@dataclass(frozen=True)
class Server:
    """A running JupyterLab: its address, its token and the folder it serves."""

    url: str
    token: str
    folder: Path

    def ask(self, path, method="GET"):
        """Return the body of a response of the server's API."""
        request = urllib.request.Request(f"{self.url}/{path}?token={self.token}", method=method)
        with urllib.request.urlopen(request, timeout=240) as answer:
            return answer.read()


@pytest.fixture(scope="session")
def chromium():
    """Return the browser, Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(CHROMIUM)} is on PATH")
    with InPlaywrightThread(playwright.sync_playwright()) as started:
        browser = started.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def jupyter_environment(tmp_path_factory):
    """Return the environment of a JupyterLab that shares nothing with that of the user."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    home = tmp_path_factory.mktemp("jupyter")
    (home / "settings").mkdir()
    (home / "settings" / "overrides.json").write_text(json.dumps(SETTINGS))
    with lesson_environment(ROOT, strict=False) as env:
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
            env[name] = str(home / name)
        env["SETTINGS_OVERRIDES"] = str(home / "settings")  # for --LabApp.app_settings_dir
        yield env


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory, jupyter_environment):
    """Start JupyterLab on a copy of `lessons/`, so running a notebook changes no file of the checkout."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(ROOT / "lessons", folder / "lessons")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}", secrets.token_hex(16), folder)
    command = [sys.executable, "-m", "iocourse.course.lab.server", "--no-browser", "--ip=127.0.0.1"]
    command += [f"--port={port}"]
    command += [*OURS, "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}", "--allow-root"]
    command += [f"--LabApp.app_settings_dir={jupyter_environment['SETTINGS_OVERRIDES']}"]
    command += ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None"]
    log = folder / "jupyter.log"
    with log.open("w") as file:
        env = jupyter_environment | {"JUPYTER_TOKEN": server.token}
        process = subprocess.Popen(command, env=env, stdout=file, stderr=file, cwd=folder)
    try:
        _wait_until_it_answers(server, process, log)
        yield server
    finally:
        process.terminate()
        process.wait(240)


def _wait_until_it_answers(server, process, log):
    end = time.monotonic() + START / 1000
    while time.monotonic() < end and process.poll() is None:
        try:
            return server.ask("api/status")
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def open_page(chromium):
    """Return a function: address in JupyterLab, and an element to wait for → loaded page."""
    contexts = []

    def opened(address, ready=KERNEL_IS_IDLE):
        context = chromium.new_context(viewport={"width": 1400, "height": 1000})
        contexts.append(context)
        page = context.new_page()
        page.goto(address, timeout=START)
        page.wait_for_function(ready, timeout=START)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def lab(lab_server, open_page):
    """Return JupyterLab without open notebooks, loaded once because loading is slow."""
    return open_page(f"{lab_server.url}/lab?token={lab_server.token}&reset", LAB_IS_THERE)


@pytest.fixture
def lab_page(lab_server, lab):
    """Return a function: notebook, such as ``lessons/04_flash_forward.ipynb`` → page with idle kernel."""

    def opened(path):
        lab.evaluate(OPEN, path)
        lab.wait_for_function(KERNEL_IS_IDLE, timeout=START)
        return lab

    yield opened
    # The next test gets a new kernel, not the one of this test.
    lab.evaluate(CLOSE)
    for session in json.loads(lab_server.ask("api/sessions")):
        lab_server.ask(f"api/sessions/{session['id']}", "DELETE")


@pytest.fixture
def run_all():
    """Return a function that runs all cells of the current notebook and fails if a cell raised an error."""

    def run(page, timeout=RUN):
        said = page.evaluate(RUN_ALL, timeout)
        assert said == "ran", said
        page.wait_for_function(KERNEL_IS_IDLE, timeout=timeout)
        errors = page.evaluate(ERRORS)
        assert not errors, "\n".join(errors)

    return run


@pytest.fixture
def shown(lab_server, lab_page, run_all):
    """Return a function: expression → page of a notebook whose only cell shows its value."""

    def show(name, expression):
        cell = {
            "id": "only", "cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None,
            "source": f"from iocourse.course import explore\n{expression}",
        }  # fmt: skip
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        (lab_server.folder / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        page = lab_page(f"{name}.ipynb")
        run_all(page)
        page.locator(".jp-OutputArea-output svg[role=img]").first.wait_for(timeout=START)
        return page

    return show
