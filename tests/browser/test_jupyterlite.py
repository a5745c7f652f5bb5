"""Tests of the lessons as JupyterLite: contents of the build, and a page in Chromium.

The pages are in the folder named by IOCOURSE_LITE, as the workflow builds them. Python does not run here,
because it is loaded from the server of Pyodide.
"""

import functools
import hashlib
import http.server
import json
import os
import re
import runpy
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import yaml

import iocourse
from tools.build.project import Project

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "lite" / "build.py"
WORKFLOW = ROOT / ".github" / "workflows" / "jupyterlite.yml"
NAMES = sorted(path.name for path in (ROOT / "lessons").glob("0[0-9]*.ipynb"))


def test_what_is_put_in_links_to_its_neighbours_there_and_to_the_web_for_the_rest(tmp_path):
    runpy.run_path(str(SCRIPT))["copy_lessons"](ROOT, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*NAMES, "notation.md"]
    assert [name[:2] for name in NAMES if "b_" not in name] == [f"0{n}" for n in range(10)]
    for path in tmp_path.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        assert "](notation.md" in text  # the local page, not the one on the web
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", text):
            assert (tmp_path / target).exists(), target


def test_without_the_courses_wheel_nothing_is_built(tmp_path):
    command = [sys.executable, str(SCRIPT), str(tmp_path / "out"), "other-1.0-py3-none-any.whl"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "WHEEL must include a wheel of iocourse, got other-1.0" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_workflow_builds_the_pages_and_looks_at_them():
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["build"]["steps"]
    lines = "\n".join(step.get("run", "") for step in steps)
    assert "docs/lite/build.py build/lite build/wheels/*.whl" in lines
    assert (
        f"IOCOURSE_LITE=build/lite python -m pytest -n 0 {Path(__file__).relative_to(ROOT).as_posix()}"
        in lines
    )
    assert steps[-1]["with"]["path"] == "build/lite"


def test_the_site_is_deployed_with_these_pages_below_lite():
    called = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    site = yaml.safe_load(WORKFLOW.with_name("site.yml").read_text(encoding="utf-8"))
    assert "workflow_call" in called[True]  # YAML reads "on" as true
    assert site["jobs"]["lite"]["uses"] == f"./{WORKFLOW.relative_to(ROOT).as_posix()}"
    assert site["jobs"]["build"]["needs"] == "lite"
    steps = site["jobs"]["build"]["steps"]
    fetched, built = (
        next(k for k, step in enumerate(steps) if what in f"{step.get('uses')} {step.get('run')}")
        for what in ("actions/download-artifact@", "sphinx-build ")
    )
    kept = called["jobs"]["build"]["steps"][-1]["with"]
    assert fetched < built and steps[fetched]["with"]["name"] == kept["name"]
    lite = steps[fetched]["with"]["path"]
    assert steps[built]["run"] == (
        f"sphinx-build -W --keep-going -j auto -d build/doctrees docs site -D iocourse_lite={lite}"
    )
    assert steps[-1]["with"]["path"] == "site"


@pytest.fixture(scope="module")
def pages():
    """Return the folder of the built pages."""
    if "IOCOURSE_LITE" not in os.environ:
        pytest.skip("IOCOURSE_LITE names no folder of pages built by docs/lite/build.py")
    return Path(os.environ["IOCOURSE_LITE"]).resolve()


@pytest.fixture
def browser(monkeypatch):
    """Function (source) that runs a cell as JupyterLite does; it returns the requests of piplite.

    piplite is a stub. As in `pyodide_kernel.litetransform`, a line %pip becomes a call before the cell runs.
    """
    requests, module = [], types.ModuleType("piplite.piplite")
    module._PIPLITE_DISABLE_PYPI = False
    package = types.ModuleType("piplite")
    package.piplite = module
    package.install = lambda what: requests.append((what, module._PIPLITE_DISABLE_PYPI))
    monkeypatch.setitem(sys.modules, "piplite", package)
    monkeypatch.setitem(sys.modules, "piplite.piplite", module)
    monkeypatch.setattr(sys, "platform", "emscripten")

    def run(source):
        call = r'\1__import__("piplite").install(\2)'
        exec(re.sub(r"^(\s*)%pip install -q (.*)$", call, source, flags=re.MULTILINE), {})
        return requests

    return run


def site_cells(claimed):
    """Return the sources of the code cells that a lesson with one cell has in the pages."""
    insert = runpy.run_path(str(SCRIPT))["with_wheel_of_site"]
    notebook = {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "source": ["pass"]}]}
    made = insert(notebook, Project("owner/course", "v0.2.0", claimed=claimed))
    return ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]


def test_in_the_browser_the_wheel_is_from_the_site_and_never_from_the_package_index(browser):
    first, rest = site_cells(claimed=False)
    assert browser(first) == [("iocourse[course]~=0.2.0", True)] and rest == "pass"


def test_where_the_name_is_claimed_the_first_cell_is_enough():
    assert site_cells(claimed=True) == ["pass"]


def test_a_lesson_from_these_pages_can_be_opened_elsewhere(browser, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert browser(site_cells(claimed=False)[0]) == []


def test_each_lesson_of_the_pages_has_that_cell_before_all_other_code(tmp_path):
    runpy.run_path(str(SCRIPT))["copy_lessons"](ROOT, tmp_path)
    for path in tmp_path.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert [cell["id"] for cell in cells if cell["cell_type"] == "code"][:2] == ["site", "install"]


def test_the_index_of_the_pages_has_the_wheel_that_the_lessons_ask_for(pages):
    index = json.loads((pages / "pypi" / "all.json").read_text())
    assert {"anywidget", "ipywidgets", "psygnal"} <= set(index)
    (wheel,) = index["iocourse"]["releases"][iocourse.__version__]
    content = (pages / "pypi" / wheel["url"].rpartition("/")[2]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == wheel["digests"]["sha256"]
    cells = json.loads((pages / "files" / NAMES[4]).read_text(encoding="utf-8"))["cells"]
    first = "".join(next(cell for cell in cells if cell["id"] == "site")["source"])
    assert f'%pip install -q "iocourse[course]~={iocourse.__version__}"' in first


def test_a_lesson_is_shown(pages, chromium):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(pages))
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    try:
        page.goto(f"http://127.0.0.1:{server.server_port}/lab/index.html?path=04_flash_forward.ipynb")
        page.get_by_role("heading", name="04 FlashAttention's forward pass").first.wait_for(timeout=60_000)
        page.get_by_text("import numpy as np").first.wait_for(timeout=60_000)
        for name in NAMES:
            assert page.locator(".jp-DirListing-itemText", has_text=name).count() == 1
        assert page.get_by_text("find_spec").count() == 0  # folded
    finally:
        page.close()
        server.shutdown()
        server.server_close()
