"""The lessons that need NumPy alone, 00 to 09b, as pages that run in the reader's browser: JupyterLite.

    python docs/lite/build.py build/lite WHEEL...

WHEEL is that of iocourse, and those that Pyodide does not have: they are served from the site itself. How to
get them, and what must be installed, stands in `.github/workflows/jupyterlite.yml`. Nothing is fetched while
the site is built. When a page is opened, Python, NumPy and Matplotlib come from Pyodide's server.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from iocourse.course.project_paths import find_checkout
from tools.build.absolute_links import with_full_links
from tools.build.project import read_project

NUMPY_ALONE = "0[0-9]*.ipynb"
PAGES = ("notation.md",)
SETTINGS = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {"appName": "iocourse: the I/O complexity of attention"},
}


def copy_lessons(root: Path, folder: Path) -> None:
    """Put the lessons and the pages beside them into `folder`; links to what is not there lead to the web."""
    lessons = sorted((root / "lessons").glob(NUMPY_ALONE))
    beside = {path.name for path in lessons} | set(PAGES)
    for path in lessons:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        text = with_full_links(notebook, "lessons", read_project(root), beside)
        (folder / path.name).write_text(text, encoding="utf-8")
    for name in PAGES:
        shutil.copy(root / "lessons" / name, folder)


def build(root: Path, out: Path, wheels: list[Path]) -> None:
    """Write the site to `out`, with `wheels` in its own package index.

    Raises:
        subprocess.CalledProcessError: JupyterLite failed, and has printed why.
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
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument(
        "wheels", type=Path, nargs="+", help="pure Python wheels, that of iocourse among them"
    )
    given = parser.parse_args()
    if not any(wheel.name.startswith("iocourse-") for wheel in given.wheels):
        parser.error(f"no wheel of iocourse among {', '.join(wheel.name for wheel in given.wheels)}")
    build(find_checkout(), given.out, given.wheels)


if __name__ == "__main__":
    main()
