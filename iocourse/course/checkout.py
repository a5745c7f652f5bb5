"""Where the course's files lie: the checkout, its repository and its version."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..refusal import Refused

URL_LINE = 'Repository = "https://github.com/OWNER/REPO"'


@dataclass(frozen=True)
class Project:
    """What the notebooks must know about the repository they come from.

    Attributes:
        slug: ``OWNER/REPO`` on GitHub, the only host that Colab opens notebooks from.
        tag: the git tag that a hosted notebook installs and links to, ``v`` + version.
    """

    slug: str
    tag: str

    @property
    def requirement(self) -> str:
        """What pip is asked for where iocourse is not installed."""
        return f"iocourse @ git+https://github.com/{self.slug}@{self.tag}"

    def colab(self, path: str) -> str:
        """The link that opens the notebook at `path` (relative to the repository) in Colab."""
        return f"https://colab.research.google.com/github/{self.slug}/blob/{self.tag}/{path}"

    def page(self, path: str) -> str:
        """The link to the file at `path` as GitHub shows it."""
        return f"https://github.com/{self.slug}/blob/{self.tag}/{path}"


def find_checkout(start: Path | None = None) -> Path:
    """The root of the checkout that holds `start` (default: the current folder), else of this very module.

    Raises:
        Refused: neither lies in a checkout of the course.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents, Path(__file__).resolve().parents[2]):
        if _is_checkout(folder):
            return folder
    raise Refused(
        f"no checkout of the course at {start}: the lessons are not part of the installed package. "
        "Clone the repository and run iocourse inside it."
    )


def _is_checkout(folder: Path) -> bool:
    if not (folder / "lessons").is_dir() and not (folder / "solutions").is_dir():
        return False
    return _table(folder).get("name") == "iocourse"


def _table(root: Path) -> dict[str, Any]:
    try:
        text = (root / "pyproject.toml").read_text(encoding="utf-8")
        table = tomllib.loads(text).get("project", {})
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return table if isinstance(table, dict) else {}


def read_project(root: Path) -> Project:
    """Repository and version from `root`/pyproject.toml.

    Raises:
        Refused: the repository's URL or the version is missing; the message names the line to add.
    """
    table = _table(root)
    url = str(table.get("urls", {}).get("Repository", ""))
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", url)
    if match is None or match[1] == "OWNER/REPO":
        came = f"is {url!r}" if url else "is not set"
        raise Refused(
            f"the repository's GitHub address {came}; in {root / 'pyproject.toml'} add under [project.urls] "
            f"the line: {URL_LINE}"
        )
    if "version" not in table:
        raise Refused(f'in {root / "pyproject.toml"} add under [project] the line: version = "0.1.0"')
    return Project(match[1], f"v{table['version']}")


def exercise_ids(root: Path) -> tuple[str, ...]:
    """The ids of all exercises in the student's notebooks: a cell named ``ex-4B`` is exercise ``4.2``."""
    notebooks = (
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(root.glob("lessons/*.ipynb"))
    )
    cells = (cell["metadata"] for notebook in notebooks for cell in notebook["cells"])
    return tuple(c["name"].removeprefix("ex-") for c in cells if "exercise" in c.get("tags", ()))
