"""Where a site may be put, what it needs, and that a failed build leaves what was there."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from iocourse import site
from iocourse.cli import main
from iocourse.course import project_paths
from tools.site import building

ROOT = project_paths.find_checkout()


def refused(capsys, *arguments):
    """The one line that a refused command prints."""
    assert main(["site", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


@pytest.fixture
def quick(monkeypatch):
    """Sphinx is left out: a build writes one page, or what `quick["page"]` says."""
    page = {"page": "<title>new</title>"}

    def sources(root, folder, only=(), in_lite=()):
        page["in_lite"] = list(in_lite)
        return ["04_flash_forward"]

    def sphinx(root, sources, made, doctrees):
        made.mkdir()
        (made / "index.html").write_text(page["page"])

    monkeypatch.setattr(building, "write_sources", sources)
    monkeypatch.setattr(building, "_run_sphinx", sphinx)
    return page


def files(folder):
    """Path → text of every file below."""
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_a_new_an_empty_and_an_old_site_are_taken(tmp_path, quick, capsys):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty", "deep/er", "new"):
        assert main(["site", str(tmp_path / name)]) == 0
        assert files(tmp_path / name)["index.html"] == "<title>new</title>"
    assert f"1 lessons, 1 pages in 0 s: {tmp_path / 'new' / 'index.html'}" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"new", "empty", "deep"}  # nothing is left beside


def test_what_is_no_site_of_ours_is_refused_and_kept(tmp_path, quick, capsys):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    before = files(tmp_path)
    assert "file is no folder; allowed: a new one, an empty one, or a site" in refused(
        capsys, tmp_path / "file"
    )
    assert "full holds other files; allowed: a new one, an empty" in refused(capsys, tmp_path / "full")
    assert "link is no folder" in refused(capsys, tmp_path / "link")
    assert files(tmp_path) == before


def test_a_build_that_fails_leaves_the_site_that_was_there(tmp_path, quick, capsys):
    main(["site", str(tmp_path / "site")])
    before = files(tmp_path)
    quick["page"] = '<a href="nowhere.html">x</a>'
    assert main(["site", str(tmp_path / "site")]) == 1
    assert "the pages are not right:\nindex.html: no such place: nowhere.html\n" in capsys.readouterr().err
    assert files(tmp_path) == before


def test_a_full_disk_leaves_the_site_that_was_there(tmp_path, quick, capsys, monkeypatch):
    main(["site", str(tmp_path / "site")])
    before = files(tmp_path)
    capsys.readouterr()
    swap, calls = os.replace, []

    def full(source, target):
        calls.append(target)
        if len(calls) == 2:  # the old site is aside, the new one does not get there
            raise OSError(28, "No space left on device")
        swap(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert "No space left on device" in refused(capsys, tmp_path / "site")
    assert files(tmp_path) == before


@pytest.fixture
def lite(tmp_path):
    """A folder as docs/lite/build.py makes it, with a page that our own checks would refuse."""
    pages = {"lab/index.html": "<img src=a.png><a href=nowhere>x</a>", "files/04_flash_forward.ipynb": "{}"}
    for name, text in pages.items():
        (tmp_path / "lite" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lite" / name).write_text(text)
    return tmp_path / "lite"


def test_pages_of_jupyterlite_go_along_and_links_to_them_are_checked(tmp_path, quick, lite, capsys):
    quick["page"] = '<title>new</title><a href="lite/lab/index.html?path=04_flash_forward.ipynb">x</a>'
    assert main(["site", str(tmp_path / "site")]) == 1  # the link leads nowhere without them
    assert "no such place: lite/lab/index.html" in capsys.readouterr().err and quick["in_lite"] == []
    assert main(["site", str(tmp_path / "site"), "--lite", str(lite)]) == 0
    assert "1 lessons, 1 pages" in capsys.readouterr().out and quick["in_lite"] == ["04_flash_forward"]
    assert {k: v for k, v in files(tmp_path / "site").items() if k.startswith("lite/")} == {
        f"lite/{name}": text for name, text in files(lite).items()
    }


def test_what_are_no_pages_of_jupyterlite_is_refused(tmp_path, quick, lite, capsys):
    (lite / "lab" / "index.html").unlink()
    for folder in (lite, tmp_path / "missing"):
        said = refused(capsys, tmp_path / "site", "--lite", folder)
        assert f"--lite {folder} has no lab/index.html" in said and "docs/lite/build.py" in said
    assert not (tmp_path / "site").exists()


def test_what_sphinx_complains_of_is_shown_and_nothing_is_written(tmp_path, monkeypatch, capfd):
    def sources(root, folder, *rest):
        (folder / "conf.py").write_text("")
        (folder / "index.md").write_text("x")
        return []

    monkeypatch.setattr(building, "write_sources", sources)
    assert main(["site", str(tmp_path / "site")]) == 1  # no index.rst: Sphinx knows no Markdown here
    assert capfd.readouterr().err.startswith("Sphinx complains:\n")
    assert list(tmp_path.iterdir()) == []


def test_without_sphinx_it_says_what_to_install(capsys, monkeypatch):
    find = importlib.util.find_spec
    absent = ("myst_nb", "sphinx-mathjax-offline")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in absent else find(name, *a)
    )
    said = refused(capsys)
    assert "myst-nb, sphinx-mathjax-offline not installed here: python -m pip install" in said
    assert "furo" not in said


def test_from_an_installed_package_it_is_refused(capsys, monkeypatch, tmp_path):
    def none():
        raise project_paths.Refused("no checkout of the course at here")

    monkeypatch.setattr(site, "find_checkout", none)
    assert "no checkout of the course" in refused(capsys, tmp_path / "site")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_option_is_named(capsys):
    with pytest.raises(SystemExit) as leave:
        main(["site", "--fast"])
    assert leave.value.code == 2 and "--fast" in capsys.readouterr().err


def test_the_command_line_loads_no_sphinx_for_other_commands():
    code = "import sys, iocourse.cli as cli; cli.build_parser(); print('tools.site' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(ROOT)
    )
    assert done.stdout == "False\n"
