"""Tests of the notebooks for Colab, whose links are absolute, and of the workflow that stores them."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from iocourse.errors import UsageError
from tools.build import absolute_links
from tools.build.__main__ import main
from tools.build.absolute_links import with_full_links, write_for_colab
from tools.build.project import Project, read_project

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "colab.yml"
PROJECT = Project("owner/course", "v1.0.0", claimed=True)
ANY_LINK = re.compile(r"(?:\]\(|(?:href|src)=[\"'])([^)\"'\s]+)")


def links_of(path):
    """Return the target of every link and picture in a notebook's text, without formulas and code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return ANY_LINK.findall(re.sub(r"`[^`]*`|\$[^$]*\$", "", text))


@pytest.fixture(scope="module")
def branch(tmp_path_factory):
    """Write the notebooks for Colab as if the address were claimed, and return their folder."""
    folder = tmp_path_factory.mktemp("colab")
    (folder / "v0.0.1").mkdir()
    (folder / "v0.0.1" / "old.ipynb").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(absolute_links, "read_project", lambda root: replace(read_project(root), claimed=True))
        write_for_colab(ROOT, folder)
    return folder


def test_no_link_is_relative_and_each_leads_to_what_the_branch_or_the_repository_has(branch):
    project = read_project(ROOT)
    here, there = project.colab(""), project.page("")
    notebooks = sorted((branch / project.tag).glob("*/*.ipynb"))
    assert len(notebooks) == 2 * len(list((ROOT / "lessons").glob("*.ipynb")))
    relative = {link for path in ROOT.glob("lessons/*.ipynb") for link in links_of(path) if ":" not in link}
    assert len(relative) > 20  # there is something to do
    seen = set()
    for path in notebooks:
        for link in links_of(path):
            assert link.startswith(("https://", "#")), f"{path.name}: {link}"
            if link.startswith(here):
                assert (branch / project.tag / link.removeprefix(here)).is_file(), link
            elif link.startswith(there):
                assert (ROOT / link.removeprefix(there).split("#")[0]).is_file(), link
            seen.add(link)
    aims = {
        os.path.normpath(Path(path.parent.name) / link.split("#")[0])
        for path in ROOT.glob("[ls]*s/*.ipynb")
        for link in links_of(path)
        if ":" not in link and link.split("#")[0].endswith(".ipynb")
    }
    assert {link.removeprefix(here) for link in seen if link.startswith(here)} == aims and len(aims) > 40


def test_only_links_differ_and_other_releases_stay(branch):
    assert (branch / "v0.0.1" / "old.ipynb").exists()
    name = "lessons/05_lower_bounds.ipynb"
    theirs = json.loads((branch / read_project(ROOT).tag / name).read_text(encoding="utf-8"))
    ours = json.loads((ROOT / name).read_text(encoding="utf-8"))
    assert theirs | {"cells": 0} == ours | {"cells": 0}
    for a, b in zip(theirs["cells"], ours["cells"], strict=True):
        assert a == b or a["cell_type"] == "markdown"
        strip = [re.sub(r"\]\([^)]*\)", "]()", "".join(cell["source"])) for cell in (a, b)]
        assert strip[0] == strip[1]


@pytest.mark.parametrize(
    ("link", "folder", "full"),
    [
        ("04b_x.ipynb", "lessons", PROJECT.colab("lessons/04b_x.ipynb")),
        ("./04b_x.ipynb", "solutions", PROJECT.colab("solutions/04b_x.ipynb")),
        ("../lessons/notation.md#chips", "solutions", PROJECT.page("lessons/notation.md") + "#chips"),
        ("beside.md", "lessons", "beside.md"),
        ("#here", "lessons", "#here"),
        ("https://example.org/a", "lessons", "https://example.org/a"),
    ],
)
def test_each_kind_of_link(link, folder, full):
    notebook = {"cells": [{"cell_type": "markdown", "source": [f"a [b]({link}),\n", "c"]}]}
    made = json.loads(with_full_links(notebook, folder, PROJECT, beside=["beside.md"]))
    assert made["cells"][0]["source"] == [f"a [b]({full}),\n", "c"]
    unclaimed = replace(PROJECT, claimed=False)
    (cell,) = json.loads(with_full_links(notebook, folder, unclaimed, beside=["beside.md"]))["cells"]
    text = "".join(cell["source"])
    assert PROJECT.slug not in text and ("[b](" in text) == (PROJECT.slug not in full)


CLAIMED = (ROOT / "pyproject.toml").read_text(encoding="utf-8").replace("claimed = false", "claimed = true")


def test_nothing_is_written_while_the_address_is_not_claimed(tmp_path):
    text = CLAIMED.replace("claimed = true", "claimed = false")
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"is not claimed.*publishing\.md.*claimed = true"):
        write_for_colab(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_where_there_is_no_notebook_or_another_option_it_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text(CLAIMED, encoding="utf-8")
    with pytest.raises(UsageError, match=r"no notebook in .*: run python -m tools.build first"):
        write_for_colab(tmp_path, tmp_path / "out")
    monkeypatch.chdir(ROOT)
    assert main(["--check", "--colab", str(tmp_path / "out")]) == 2
    assert "cannot be combined with --check" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="needs a POSIX bash")
def test_the_workflow_puts_each_release_beside_the_others_on_the_branch(tmp_path):
    """Run the lines of the workflow with a local repository instead of GitHub."""
    steps = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["colab"]["steps"]
    lines = [step["run"].replace("python -m tools.build", '"$PYTHON" -m tools.build') for step in steps[3:]]
    assert len(lines) == 2
    course, remote = tmp_path / "course", tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    env = os.environ | {"BRANCH_OF": str(remote), "PYTHON": os.sys.executable, "PYTHONPATH": str(ROOT)}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for version in ("1.0.0", "1.1.0", "1.1.0"):  # the last changes nothing
        shutil.rmtree(course, ignore_errors=True)
        (course / "lessons").mkdir(parents=True)
        shutil.copy(ROOT / "lessons" / "00_start_here.ipynb", course / "lessons")
        text = re.sub(r'(?m)^version = ".*"', f'version = "{version}"', CLAIMED)
        (course / "pyproject.toml").write_text(text)
        for line in lines:
            subprocess.run(
                ["bash", "-ec", line], cwd=course, env=env | {"GITHUB_REF_NAME": version}, check=True
            )
    kept = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "colab"], cwd=remote, capture_output=True, text=True
    )
    assert kept.stdout.split() == [f"v{v}/lessons/00_start_here.ipynb" for v in ("1.0.0", "1.1.0")]
    log = subprocess.run(["git", "log", "--format=%s", "colab"], cwd=remote, capture_output=True, text=True)
    assert log.stdout.splitlines() == ["Notebooks of 1.1.0", "Notebooks of 1.0.0"]
