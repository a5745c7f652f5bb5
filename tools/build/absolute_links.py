"""Write notebooks with absolute links, for Colab.

In `lessons/` and `solutions/` links are relative, so a student's copies refer to each other without a
network. Colab opens a single notebook, so the links in its copy are absolute. A workflow makes these copies
for each release and stores them on a branch (`.github/workflows/colab.yml`).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from iocourse.course.student_copies.notebook import to_text
from iocourse.errors import UsageError
from iocourse.files import atomic_write
from tools.build.project import Project, read_project

LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")  # relative links: no scheme, no anchor of the same page
# The same with its text; not a picture.
TEXT_AND_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)" + LINK.pattern)
FOLDERS = ("lessons", "solutions")


def named(text: str, path: str) -> str:
    """Return the text that replaces a link to a file of the repository while its address is not claimed."""
    return text if text.strip("`") == path else f"{text} (`{path}` in the repository)"


def with_full_links(
    notebook: dict[str, Any], folder: str, project: Project, beside: Collection[str] = ()
) -> str:
    """Return the text of a notebook with absolute links, or with file names while the address is not claimed.

    Args:
        notebook: nbformat 4 JSON.
        folder: its folder in the checkout, ``lessons`` or ``solutions``.
        project: source of the addresses.
        beside: names of files that are copied with the notebook; links to them remain relative.
    """

    def full(found: re.Match[str]) -> str:
        said, target, anchor = found.groups()
        if target in beside:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if not project.claimed:
            return named(said, path)
        aim = project.colab(path) if path.endswith(".ipynb") else project.page(path) + (anchor or "")
        return f"[{said}]({aim})"

    cells = [
        cell | {"source": TEXT_AND_LINK.sub(full, "".join(cell["source"])).splitlines(keepends=True)}
        if cell["cell_type"] == "markdown"
        else cell
        for cell in notebook["cells"]
    ]
    return to_text(notebook | {"cells": cells})


def write_for_colab(root: Path, folder: Path) -> list[str]:
    """Write the notebooks that Colab opens below `folder`/TAG, and return their names.

    Args:
        root: the checkout; its notebooks are copied as they are.
        folder: a checkout of the branch that keeps them; notebooks of other releases in it are not changed.

    Raises:
        UsageError: there are no notebooks, or the repository's URL is unset or not claimed.
    """
    project = read_project(root)
    if not project.claimed:
        raise UsageError(
            f"the address https://github.com/{project.slug} is not claimed, so notebooks cannot link to it: "
            "follow docs/guide/publishing.md, then set claimed = true in pyproject.toml"
        )
    paths = [path for name in FOLDERS for path in sorted((root / name).glob("[0-9]*.ipynb"))]
    if not paths:
        raise UsageError(
            f"no notebook in {root / FOLDERS[0]} or {root / FOLDERS[1]}: run python -m tools.build first"
        )
    targets = [folder / project.tag / path.parent.name / path.name for path in paths]
    for path, target in zip(paths, targets, strict=True):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        target.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(target, with_full_links(notebook, path.parent.name, project))
    return [target.as_posix() for target in targets]
