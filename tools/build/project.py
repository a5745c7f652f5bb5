"""Read the repository's address and the version from pyproject.toml, and build links from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from iocourse.course.project_paths import pyproject_table
from iocourse.errors import UsageError

COLAB_BRANCH = "colab"
URL_LINE = 'Repository = "https://github.com/OWNER/REPO"'


@dataclass(frozen=True)
class Project:
    """The repository of the notebooks, for links and installation.

    Attributes:
        slug: ``OWNER/REPO`` on GitHub, the only host from which Colab opens notebooks.
        tag: the git tag of this version, ``v`` + version.
        claimed: True if the slug and the name on the package index belong to the publisher of the course;
            otherwise nothing is installed from them.
    """

    slug: str
    tag: str
    claimed: bool = False

    @property
    def version(self) -> str:
        """The version, as in `pyproject.toml`."""
        return self.tag.removeprefix("v")

    @property
    def requirement(self) -> str:
        """The argument of pip for what a notebook needs: this version or a bug fix of it."""
        return f"iocourse[course]~={self.version}"

    def colab(self, path: str) -> str:
        """Return the link that opens a notebook in Colab, from the branch of `python -m tools.build --colab`.

        Args:
            path: path in the checkout, such as ``lessons/00_start_here.ipynb``.
        """
        return f"https://colab.research.google.com/github/{self.slug}/blob/{COLAB_BRANCH}/{self.tag}/{path}"

    def page(self, path: str) -> str:
        """Return the link to the page of the file at `path` on GitHub."""
        return f"https://github.com/{self.slug}/blob/{self.tag}/{path}"


def read_project(root: Path) -> Project:
    """Return the project of `root`/pyproject.toml.

    Raises:
        UsageError: the repository's URL or the version is missing, or `claimed` is not a boolean; the message
            names the line.
    """
    table = pyproject_table(root)
    url = str(table.get("urls", {}).get("Repository", ""))
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", url)
    if match is None or match[1] == "OWNER/REPO":
        came = f"is {url!r}" if url else "is not set"
        raise UsageError(
            f"the repository's GitHub address {came}; in {root / 'pyproject.toml'}, add the line {URL_LINE} "
            "under [project.urls]"
        )
    if "version" not in table:
        raise UsageError(
            f'{root / "pyproject.toml"} has no version; add the line version = "0.1.0" under [project]'
        )
    claimed = pyproject_table(root, "tool", "iocourse").get("claimed", False)
    if not isinstance(claimed, bool):
        raise UsageError(f"claimed in {root / 'pyproject.toml'} must be true or false, got {claimed!r}")
    return Project(match[1], f"v{table['version']}", claimed)
