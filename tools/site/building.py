"""Building the site with Sphinx: whole and checked, or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iocourse.refusal import Refused
from tools.site.checking import LITE, pages_of, problems_of
from tools.site.sources import write_sources

MARK = ".iocourse-site"  # a folder with this file is a site of ours, and may be replaced
LONGEST = 40  # lines of Sphinx's complaints that are shown


class SiteFailed(Exception):
    """The site cannot be built as it stands; nothing was written (exit code 1)."""


@dataclass(frozen=True)
class Site:
    """A site that was built: where it lies, and how many lessons and pages it has."""

    folder: Path
    lessons: int
    pages: int


def build_site(root: Path, folder: Path, only: Sequence[str] = (), lite: Path | None = None) -> Site:
    """Build the site of the checkout at `root` into `folder`, in place of the one that is there.

    Args:
        root: of the checkout.
        folder: new, empty, or a site built before.
        only: beginnings of names of lessons, for a site with these alone.
        lite: the pages that docs/lite/build.py has made; they go along below `lite/`, and lessons lead there.

    Raises:
        Refused: `folder` holds something else, or something is missing; nothing is changed.
        SiteFailed: Sphinx warned, or a page has a broken link or a picture without words; nothing is changed.
    """
    check_folder(folder)
    in_lite = notebooks_of(lite) if lite else []
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="iocourse-site-") as kept:
        sources = Path(kept) / "sources"
        sources.mkdir()
        stems = write_sources(root, sources, only, in_lite)
        # Beside its place, so that to put it there is one step.
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
            made = Path(beside) / "new"
            _run_sphinx(root, sources, made, Path(kept) / "doctrees")
            if lite:
                shutil.copytree(lite, made / LITE)
            if found := problems_of(made):
                raise SiteFailed(_listed("the pages are not right", found))
            (made / MARK).write_text(
                "Built by iocourse site, which may replace this folder.\n", encoding="utf-8"
            )
            (made / ".nojekyll").touch()  # GitHub Pages would leave out folders that begin with _
            _put(made, folder, Path(beside) / "old")
    return Site(folder, len(stems), len(pages_of(folder)))


def check_folder(folder: Path) -> None:
    """Raise Refused where something stands at `folder` that is not ours to replace."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise Refused(
            f"FOLDER {folder} is no folder; allowed: a new one, an empty one, or a site built before"
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise Refused(
            f"FOLDER {folder} holds other files; allowed: a new one, an empty one, or a site built before"
        )


def notebooks_of(lite: Path) -> list[str]:
    """The names of the notebooks that pages of JupyterLite have, without `.ipynb`.

    Raises Refused where `lite` is not a folder of such pages.
    """
    found = sorted(path.stem for path in (lite / "files").glob("*.ipynb"))
    if not found or not (lite / "lab" / "index.html").is_file():
        raise Refused(
            f"--lite {lite} has no lab/index.html with notebooks in files/; "
            "allowed: a folder that docs/lite/build.py has made"
        )
    return found


def _run_sphinx(root: Path, sources: Path, made: Path, doctrees: Path) -> None:
    """Build, with all processors; on a terminal Sphinx shows how far it is."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "--fail-on-warning", "-j", "auto"]
    command += ["-d", str(doctrees), str(sources), str(made)]
    seen = sys.stderr.isatty()
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path, "TRITON_INTERPRET": "1", "PYTHONUTF8": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        done = subprocess.run(
            command if seen else [*command, "-q"], env=env, stdout=sys.stderr, stderr=complaints, check=False
        )
        if done.returncode:
            complaints.seek(0)
            said = complaints.read().replace(f"{sources}{os.sep}", "").splitlines()
            raise SiteFailed(_listed("Sphinx complains", [line for line in said if line.strip()]))


def _listed(what: str, lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - LONGEST} more"] if len(lines) > LONGEST else []
    return "\n".join([f"{what}:", *lines[:LONGEST], *more])


def _put(made: Path, folder: Path, old: Path) -> None:
    """The new site in the place of the old one, which comes back if that fails."""
    if folder.exists():
        os.replace(folder, old)
    try:
        os.replace(made, folder)
    except OSError:
        if old.exists():
            os.replace(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
