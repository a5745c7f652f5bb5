"""The repository's address and the version, as in pyproject.toml, and the links made of them."""

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
    """What the notebooks must know about the repository they come from.

    Attributes:
        slug: ``OWNER/REPO`` on GitHub, the only host that Colab opens notebooks from.
        tag: the git tag of this version, ``v`` + version.
        claimed: whether slug, and the name on the package index, belong to those who publish the course;
            nothing is installed from them otherwise.
    """

    slug: str
    tag: str
    claimed: bool = False

    @property
    def version(self) -> str:
        """As in `pyproject.toml`."""
        return self.tag.removeprefix("v")

    @property
    def requirements(self) -> tuple[str, ...]:
        """What pip is asked for where iocourse is not installed: one after the other, until one is there;
        nothing while they are not claimed.
        """
        by_name = f"iocourse~={self.version}"  # this version, or one that mends it
        repository = f"iocourse @ git+https://github.com/{self.slug}@{self.tag}"
        return (by_name, repository) if self.claimed else ()

    def colab(self, path: str) -> str:
        """The link that opens a notebook in Colab, on the branch that `python -m tools.build --colab` fills.

        Args:
            path: in the checkout, such as ``lessons/00_start_here.ipynb``.
        """
        return f"https://colab.research.google.com/github/{self.slug}/blob/{COLAB_BRANCH}/{self.tag}/{path}"

    def page(self, path: str) -> str:
        """The link to the file at `path` as GitHub shows it."""
        return f"https://github.com/{self.slug}/blob/{self.tag}/{path}"


def read_project(root: Path) -> Project:
    """Repository and version from `root`/pyproject.toml, and whether the repository's address is claimed.

    Raises:
        UsageError: the repository's URL or the version is missing, or `claimed` is neither true nor false;
            the message names the line.
    """
    table = pyproject_table(root)
    url = str(table.get("urls", {}).get("Repository", ""))
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?", url)
    if match is None or match[1] == "OWNER/REPO":
        came = f"is {url!r}" if url else "is not set"
        raise UsageError(
            f"the repository's GitHub address {came}; in {root / 'pyproject.toml'} add under [project.urls] "
            f"the line: {URL_LINE}"
        )
    if "version" not in table:
        raise UsageError(f'in {root / "pyproject.toml"} add under [project] the line: version = "0.1.0"')
    claimed = pyproject_table(root, "tool", "iocourse").get("claimed", False)
    if not isinstance(claimed, bool):
        raise UsageError(f"in {root / 'pyproject.toml'} claimed is {claimed!r}; allowed: true or false")
    return Project(match[1], f"v{table['version']}", claimed)
