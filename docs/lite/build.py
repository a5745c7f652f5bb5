"""Build the JupyterLite pages of lessons 00 to 09b, which need only NumPy and run in the reader's browser.

    python docs/lite/build.py build/lite WHEEL...

The wheels are that of iocourse and those that Pyodide does not have; the site serves them. The workflow
`.github/workflows/jupyterlite.yml` shows how to get them and what must be installed. The build downloads
nothing. When a page is opened, Python, NumPy and Matplotlib are loaded from Pyodide's server.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from iocourse.course.project_paths import find_checkout
from tools.build.absolute_links import with_full_links
from tools.build.project import Project, read_project
from tools.build.setup_cell import METADATA

NUMPY_ALONE = "0[0-9]*.ipynb"
PAGES = ("notation.md",)
# While the name is not claimed, the first cell of a lesson installs from a file only. In the browser, piplite
# finds the wheel of this site by its name, so the copies have this cell in addition. It turns the package
# index off, also in a copy that was downloaded and is opened on another site.
FROM_THIS_SITE = """\
# @title Install iocourse from this site, if the notebook runs in the browser
import sys as _sys
if _sys.platform == "emscripten":
    import piplite.piplite as _piplite
    _piplite._PIPLITE_DISABLE_PYPI = True  # the name is not claimed there
    %pip install -q "{requirement}"
"""
SETTINGS = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {"appName": "iocourse: the I/O complexity of attention"},
}


def copy_lessons(root: Path, folder: Path) -> None:
    """Copy the lessons and `PAGES` to `folder`; links to other files become absolute."""
    project = read_project(root)
    lessons = sorted((root / "lessons").glob(NUMPY_ALONE))
    beside = {path.name for path in lessons} | set(PAGES)
    for path in lessons:
        notebook = with_wheel_of_site(json.loads(path.read_text(encoding="utf-8")), project)
        text = with_full_links(notebook, "lessons", project, beside)
        (folder / path.name).write_text(text, encoding="utf-8")
    for name in PAGES:
        shutil.copy(root / "lessons" / name, folder)


def with_wheel_of_site(notebook: dict[str, Any], project: Project) -> dict[str, Any]:
    """Insert `FROM_THIS_SITE` before the first code cell, unless that cell installs by name itself."""
    if project.claimed:
        return notebook
    source = FROM_THIS_SITE.format(requirement=project.requirement).rstrip("\n").splitlines(keepends=True)
    cell = {"cell_type": "code", "execution_count": None, "id": "site", "metadata": METADATA, "outputs": []}
    cells = notebook["cells"]
    at = next(n for n, one in enumerate(cells) if one["cell_type"] == "code")
    return notebook | {"cells": [*cells[:at], cell | {"source": source}, *cells[at:]]}


def build(root: Path, out: Path, wheels: list[Path]) -> None:
    """Write the site to `out`, with `wheels` in its package index.

    Raises:
        subprocess.CalledProcessError: JupyterLite failed; it has printed the reason.
    """
    with tempfile.TemporaryDirectory(prefix="iocourse-lite-") as made:
        scratch = Path(made)
        (scratch / "contents").mkdir()
        copy_lessons(root, scratch / "contents")
        (scratch / "jupyter-lite.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        command = [sys.executable, "-m", "jupyter", "lite", "build", f"--lite-dir={scratch}"]
        command += [f"--contents={scratch / 'contents'}", f"--output-dir={out.resolve()}"]
        command += ["--apps=lab", "--no-unused-shared-packages", "--no-sourcemaps"]
        command += [f"--piplite-wheels={wheel.resolve()}" for wheel in wheels]
        subprocess.run(command, check=True, cwd=scratch)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("wheels", type=Path, nargs="+", help="pure Python wheels, including that of iocourse")
    given = parser.parse_args()
    if not any(wheel.name.startswith("iocourse-") for wheel in given.wheels):
        parser.error(
            f"WHEEL must include a wheel of iocourse, got {', '.join(wheel.name for wheel in given.wheels)}"
        )
    build(find_checkout(), given.out, given.wheels)


if __name__ == "__main__":
    main()
