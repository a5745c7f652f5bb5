"""Test of `iocourse lab`: the lessons are copied, and lesson 00 opens with a live kernel."""

import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from iocourse.course.student_copies.notebook import fingerprints, read_notebook, recorded_fingerprints

ROOT = Path(__file__).parents[2]
START = 120  # seconds until the address stands there, on a machine that is busy
ADDRESS = re.compile(r"http://\S+/lab/tree/work/00_start_here\.ipynb\?token=\w+")


@pytest.fixture
def checkout(tmp_path):
    """Return a folder with the lessons and the project files, without the rest of the checkout."""
    shutil.copytree(ROOT / "lessons", tmp_path / "lessons")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def student_lab(checkout, jupyter_environment, tmp_path):
    """Start `iocourse lab --no-browser` and return its address. Its new workspace has no open notebooks."""
    environment = jupyter_environment | {"JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces")}
    options = ["--ServerApp.port=0", "--LabApp.expose_app_in_browser=True"]
    options.append(f"--LabApp.app_settings_dir={jupyter_environment['SETTINGS_OVERRIDES']}")
    command = [sys.executable, "-m", "iocourse", "lab", "--no-browser", *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=checkout, env=environment, **pipes) as process:
        yield process, _read_until_address(process)
        process.terminate()


def _read_until_address(process):
    """Return the output up to the address; end a server that prints none, because reading would block."""
    said, stop = "", threading.Timer(START, process.terminate)
    stop.start()
    try:
        for line in process.stdout:
            said += line
            if ADDRESS.search(said):
                return said
    finally:
        stop.cancel()  # from here on the test's own time limit holds
    pytest.fail(f"iocourse lab printed no address:\n{said}")


def test_lab_copies_the_lessons_and_opens_the_first(checkout, student_lab, open_page, run_all):
    process, said = student_lab
    names = sorted(path.name for path in (checkout / "lessons").iterdir() if path.suffix in (".ipynb", ".md"))
    assert sorted(path.name for path in (checkout / "work").iterdir()) == names
    assert f"copied to {checkout / 'work'}: {len(names)} files, {names[0]} to notation.md" in said

    page = open_page(ADDRESS.search(said)[0])
    assert page.evaluate("jupyterapp.shell.currentWidget.context.path") == "work/00_start_here.ipynb"
    page.locator("h1", has_text="00 Start here").wait_for(timeout=240_000)  # the title, rendered
    run_all(page)
    assert page.locator(".jp-OutputArea-output").count() > 0

    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    saved = read_notebook(checkout / "work" / "00_start_here.ipynb")
    assert any(cell.get("execution_count") for cell in saved["cells"])
    assert fingerprints(saved) == recorded_fingerprints(saved)  # run and saved, and still untouched

    page.evaluate("void jupyterapp.commands.execute('docmanager:open', {path: 'work/notation.md'})")
    page.locator(".jp-MarkdownViewer h1").wait_for(timeout=240_000)  # rendered, not its text in an editor

    process.send_signal(signal.SIGINT)
    assert process.wait(240) == 0, process.stdout.read()
