"""Notebooks that are opened alone, with their links written in full.

In `lessons/` and `solutions/` links are relative: a student's copies lead to each other, also without a
network. Colab opens a notebook without its neighbours, so it gets a set of its own, made from these for each
release and kept on a branch (`.github/workflows/colab.yml`).
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

LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")  # relative ones: no scheme, not a place on the same page
# The same with its text; not a picture.
TEXT_AND_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)" + LINK.pattern)
FOLDERS = ("lessons", "solutions")


def named(text: str, path: str) -> str:
    """What stands in place of a link to a file of the repository while its address is not claimed."""
    return text if text.strip("`") == path else f"{text} (`{path}` in the repository)"


def with_full_links(
    notebook: dict[str, Any], folder: str, project: Project, beside: Collection[str] = ()
) -> str:
    """The text of a notebook whose relative links are in full, or named while the address is not claimed.

    Args:
        notebook: nbformat 4 JSON.
        folder: where it stands in the checkout, ``lessons`` or ``solutions``.
        project: whose addresses the links get.
        beside: names of files that stay beside the notebook; links to them remain as they are.
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
        root: the checkout, whose notebooks are taken as they stand.
        folder: the branch they are kept on; what other releases have there stays.

    Raises:
        UsageError: there is no notebook, or the repository's URL is unset or not claimed.
    """
    project = read_project(root)
    if not project.claimed:
        raise UsageError(
            f"the address https://github.com/{project.slug} is not claimed, so no notebook may link to it: "
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
