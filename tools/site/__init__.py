"""`iocourse site`: the course as pages, built offline: lessons, library, bounds, schedules, measurements."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from iocourse.course.project_paths import find_checkout
from iocourse.refusal import Refused

DESCRIPTION = """
Build the site of the course into FOLDER: the solved lessons with their outputs, the library's pages from its
docstrings, every bound with its proof and source, every schedule, the recorded measurements, and the
guides. Nothing is fetched. Warnings, broken links and pictures without words are errors, and then the site of
before stays. Exit code 0: built; 1: the sources are not right, and how; 2: refused, and a line that says why.
"""
NEEDED = {
    "sphinx": "sphinx",
    "myst_nb": "myst-nb",
    "furo": "furo",
    "sphinx-mathjax-offline": "sphinx-mathjax-offline",
}


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `site` to the subparsers of the command line and set its handler."""
    meaning = "build the site of the course"
    parser = commands.add_parser("site", help=meaning, description=DESCRIPTION, allow_abbrev=False)
    parser.set_defaults(handler=site)
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", type=Path, help="of the site; site in the checkout by default"
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="this lesson, such as 02; repeatable"
    )
    parser.add_argument(
        "--lite",
        metavar="PAGES",
        type=Path,
        help="carry these pages of docs/lite/build.py too, and link to them",
    )


def site(arguments: argparse.Namespace) -> int:
    """Build what the arguments name."""
    root = find_checkout()
    _require_sphinx()
    from tools.site.building import SiteFailed, build_site

    folder = (arguments.folder or root / "site").absolute()
    start = monotonic()
    try:
        made = build_site(root, folder, arguments.only, arguments.lite)
    except SiteFailed as error:
        print(error, file=sys.stderr)
        return 1
    took = monotonic() - start
    print(f"{made.lessons} lessons, {made.pages} pages in {took:.0f} s: {made.folder / 'index.html'}")
    return 0


def _require_sphinx() -> None:
    lacking = [package for name, package in NEEDED.items() if importlib.util.find_spec(name) is None]
    if lacking:
        raise Refused(f"{', '.join(lacking)} not installed here: python -m pip install {' '.join(lacking)}")
