"""Tests of the published files: the sdist is the complete checkout; the wheel opens lessons without one."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import urllib.request
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from printed_examples import examples

from iocourse.doctor.install_command import EXTRAS

ROOT = Path(__file__).parents[1]
ANYWHERE = shutil.ignore_patterns("work", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", ".*.new")


def passing(folder, names):
    """Return the entries that a copy of the checkout omits: caches anywhere, and some folders at its root."""
    return ANYWHERE(folder, names) | ({".git", ".venv", "build", "dist"} if Path(folder) == ROOT else set())


MODULES = sorted((ROOT / "iocourse").rglob("*.py"))
LESSONS = {  # what a student has: not lessons/pytest.ini, which is for instructors in a checkout
    path.name: path.read_bytes()
    for path in (ROOT / "lessons").iterdir()
    if path.suffix in (".ipynb", ".md", ".py")
}
AT_ONCE = sorted(LESSONS.keys() - {"flash_attention.py"})  # copied before lesson 12 is opened
ADDRESS = re.compile(r"http://\S+/lab/tree/work/00_start_here\.ipynb\?token=(\w+)")


def built(source, out, *kinds):
    """Return the files that `python -m build` creates from a folder, without the network, by suffix."""
    pytest.importorskip("build", reason="build is not installed")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *kinds, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return {path.suffix: path for path in out.iterdir()}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The sdist, the wheel built from it, and the wheel of a copy of this tree."""
    tree, out = tmp_path_factory.mktemp("tree") / "tree", tmp_path_factory.mktemp("out")
    shutil.copytree(ROOT, tree, ignore=passing)
    (tree / "build" / "lib" / "iocourse" / "lessons").mkdir(parents=True)
    (tree / "build" / "lib" / "iocourse" / "lessons" / "00_long_gone.ipynb").write_text("{}")
    both = built(tree, out / "sdist")
    return both[".gz"], both[".whl"], built(tree, out / "wheel", "--wheel")[".whl"]


def members(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_has_the_lessons_and_the_pages_they_link_to(published):
    _, wheel, _ = published
    inside = "iocourse/lessons/"
    found = {name.removeprefix(inside): data for name, data in members(wheel).items() if inside in name}
    assert found == LESSONS
    for name, data in found.items():
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", _prose(name, data)):
            assert target.removeprefix("./") in found, f"{name} links to {target}"


def _prose(name, data):
    if not name.endswith(".ipynb"):
        return data.decode("utf-8")
    cells = json.loads(data)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_the_sdist_builds_the_same_wheel_as_the_tree(published):
    one, other = members(published[1]), members(published[2])
    assert {name for name in one | other if one.get(name) != other.get(name)} == set()


def test_the_wheel_is_a_few_megabytes(published):
    assert published[1].stat().st_size < 4e6


def test_the_sdist_is_the_whole_checkout(published):
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout to compare with")
    asked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in asked.stdout.split("\0") if name and (ROOT / name).exists()}
    with tarfile.open(published[0]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert [
        name for name in packed if name.startswith(("docs/api/", "docs/lessons/"))
    ] == []  # made by Sphinx
    assert tracked - packed == set(), "add them to MANIFEST.in"


def bare_python(home):
    """Create a Python in `home` with the packages of this one but without this checkout.

    Returns its path and its folder of packages.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(
        subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    )
    packages = {str(Path(module.__file__).parents[1]) for module in (pytest, __import__("numpy"))}
    (site / "of_the_tests.pth").write_text("\n".join(packages), encoding="utf-8")
    return python, site


def install(python, *what):
    """Install into `python` with the pip of this Python, without the network."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    subprocess.run([*command, "--no-deps", "--no-index", *map(str, what)], check=True)


def closure(*names):
    """The distributions of these packages and of all that they require, without extras."""
    found, wanted = {}, list(names)
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name not in found:
            found[name] = one = metadata.distribution(name)
            lines = map(Requirement, one.requires or ())
            wanted += [r.name for r in lines if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found.values()


def python_with(home, wheel, *names):
    """A Python that has the wheel with these extras, and of other packages only what they require.

    The packages are links to those of this Python.
    """
    if os.name == "nt":
        pytest.skip("links to folders need a privilege on Windows")
    python, site = bare_python(home)
    (site / "of_the_tests.pth").unlink()
    with zipfile.ZipFile(wheel) as archive:
        (stated,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    lines = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", stated, re.MULTILINE)]
    asked = {
        r.name
        for r in lines
        for extra in ("", *names)
        if r.marker is None or r.marker.evaluate({"extra": extra})
    }
    for one in closure(*asked):
        for top in {file.parts[0] for file in one.files if file.parts[0] != ".."}:
            if not (site / top).exists():
                (site / top).symlink_to(one.locate_file(top))
    install(python, wheel)
    return python


def run_alone(python, program, folder, env):
    """Run a program in this Python, which sees no other packages, and return what it printed."""
    command = [str(python), "-c", program]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


LIBRARY = """
import numpy as np
from iocourse import bounds, costs, distributed, exact, lowrank, pebbling, run, schedules, sweeps
from iocourse.course import check, explore, progress
from iocourse.doctor.triton_missing import TritonMissing

Q, K, V, dO = np.random.default_rng(0).standard_normal((4, 16, 4))
for one in (schedules.flash2, schedules.small_cache, schedules.naive):
    tiles = one.tiles(16, 4, 200)
    assert run(one, M=200, Q=Q, K=K, V=V, **tiles).ledger == getattr(costs, one.name)(16, 4, **tiles)
assert bounds.lower_bound("forward", 64, 4, 64)[0] > 0
assert len(pebbling.optimum(pebbling.dot(2), 3).moves) == 15
assert sweeps.min_cost("forward", 4.0)
ring = distributed.run(distributed.get("ring"), 4, Q=Q, K=K, V=V)
np.testing.assert_allclose(ring.O, exact.attention(Q, K, V))
assert lowrank.attention(Q / 4, K / 4, V, degree=2, engine="numpy").shape == (16, 4)
assert lowrank.attention(Q / 4, K / 4, V, degree=2).shape == (16, 4)
picture = explore.tile_tuner()
assert "<svg" in picture.to_svg()
try:
    picture.to_png()
except ModuleNotFoundError as error:
    print(error)
try:
    import iocourse.kernels
except TritonMissing as error:
    print(error)
"""


@pytest.fixture(scope="module")
def alone(published, tmp_path_factory):
    """A Python that has the wheel and NumPy."""
    return python_with(tmp_path_factory.mktemp("alone"), published[1])


def test_numpy_alone_is_enough_for_the_library(alone, environment, folder):
    (example,) = examples(ROOT / "README.md")
    assert run_alone(alone, example.code, folder, environment) == example.output
    png, kernels = run_alone(alone, LIBRARY, folder, environment).splitlines()
    names = " ".join(f'"{one}"' for one in EXTRAS["course"])
    assert png.startswith("a figure as PNG needs matplotlib, which is not installed here: ") and names in png
    assert kernels.startswith("torch and triton are not installed here: ") and '"triton>=' in kernels


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("count flash2 --N 100 --d 8 --M 500 --run", 0, "emulator: the same words moved"),
        ("count --list", 0, "flash2"),
        ("progress", 0, "exercises solved: 0 of"),
        ("progress --cohort class --blind --figure class.svg", 0, "f1_best"),
        ("grade class --no-sandbox", 0, "anna"),
        ("doctor", 0, "jupyterlab   not installed"),
        (
            "progress --cohort class --blind --figure class.png",
            2,
            "needs matplotlib, which is not installed here: ",
        ),
        ("lab", 2, "JupyterLab is not installed. Install it with "),
        ("profile forward --closed-form", 2, "torch and triton are not installed here: "),
    ],
)
def test_a_command_asks_for_an_extra_only_where_it_fails_without(
    alone, environment, folder, arguments, code, says
):
    (folder / "class").mkdir()
    entry = {"status": "seen", "attempts": 0, "hints": 0, "prediction": {"f1_best": 12}}
    if "grade" in arguments:
        shutil.copy(ROOT / "solutions" / "02_two_level_memory.ipynb", folder / "class" / "anna.ipynb")
    else:
        (folder / "class" / "anna.json").write_text(json.dumps({"format": 1, "exercises": {"p4.5": entry}}))
    command = [str(alone), "-m", "iocourse", *arguments.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert says in (done.stderr if code else done.stdout)
    if code:
        assert done.stderr.count("\n") == 1 and " pip install " in done.stderr
    if "grade" in arguments:
        solved = re.search(r"^anna +(\d+)((?: +\d+)+)$", done.stdout, re.MULTILINE)
        assert solved and int(solved[1]) == sum(map(int, solved[2].split())) > 0


NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance()
from iocourse.course import explore
assert explore.tile_tuner().still().to_png().startswith(b"\\x89PNG")
shown, _ = explore.tile_tuner()._repr_mimebundle_()
print(*sorted(shown))
"""


def test_the_extra_course_is_enough_for_a_figure_and_an_explorer(published, environment, folder, tmp_path):
    python = python_with(tmp_path / "course", published[1], "course")
    printed = run_alone(python, NOTEBOOK, folder, environment)
    assert printed.split() == ["application/vnd.jupyter.widget-view+json", "image/png", "text/plain"]


@pytest.fixture(scope="module")
def installed(published, tmp_path_factory):
    """A Python that has the wheel installed."""
    python, _ = bare_python(tmp_path_factory.mktemp("venv"))
    install(python, published[1])
    return python


def test_the_folder_that_holds_an_editable_clone_imports_it(tmp_path):
    """Python started in the parent folder of a clone named iocourse finds the package, as everywhere else."""
    clone, elsewhere = tmp_path / "iocourse", tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copytree(ROOT, clone, ignore=passing)
    python, site = bare_python(clone / ".venv")
    install(python, "--no-build-isolation", "--editable", clone)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "from iocourse.course import check; import iocourse; print(iocourse.__file__)"
    for folder in (tmp_path, elsewhere, clone, clone / "lessons"):
        done = subprocess.run(
            [python, "-c", code], cwd=folder, env=bare, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"in {folder}: {done.stderr}"
        assert Path(done.stdout.strip()).resolve() == (clone / "iocourse" / "__init__.py").resolve()
    (entry,) = site.glob("__editable__*iocourse*.pth")
    assert entry.read_text(encoding="utf-8").strip() == str(clone)


@pytest.fixture
def environment(tmp_path):
    """Return the environment of a new user: an empty home, and no checkout on the path."""
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JUPYTER_TOKEN")}
    shared = Path(sys.prefix) / "share" / "jupyter"  # where pip would have put JupyterLab's pages
    return bare | {
        "HOME": str(tmp_path / "home"),
        "IOCOURSE_HOME": str(tmp_path / "home" / "iocourse"),
        "JUPYTER_PATH": str(shared),
        "JUPYTERLAB_DIR": str(shared / "lab"),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "home" / "jupyter"),
        "JUPYTER_DATA_DIR": str(tmp_path / "home" / "data"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "home" / "runtime"),
    }


@pytest.fixture
def folder(tmp_path):
    """An empty folder to work in."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_lab_opens_the_course_from_an_empty_folder(installed, environment, folder):
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    command = [str(installed), "-m", "iocourse", "lab", "--no-browser", "--ServerApp.port=0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "encoding": "utf-8"}
    with subprocess.Popen(command, cwd=folder, env=environment, **pipes) as process:
        stop = threading.Timer(280, process.kill)  # reading below waits for ever otherwise
        stop.start()
        try:
            address = _address(process)
            assert _contents(address)["cells"][0]["source"].startswith("# 00 ")
        finally:
            stop.cancel()
            process.terminate()
    assert sorted(path.name for path in (folder / "work").iterdir()) == AT_ONCE


def test_a_notebook_alone_gets_the_file_to_copy_from_the_wheel(installed, environment, folder):
    """As in Colab: the package is installed, and there are no other files of the course."""
    cell = "from iocourse.course.flash_attention_file import copy_flash_attention\ncopy_flash_attention()"
    told = run_alone(installed, cell, folder, environment)
    assert told.startswith("flash_attention.py is in the folder of this notebook")
    (copy,) = folder.iterdir()
    assert copy.read_bytes().startswith(LESSONS[copy.name])
    from_wheel = "from iocourse.course.flash_attention_file import packaged_file; print(packaged_file())"
    assert "site-packages" in run_alone(installed, from_wheel, folder, environment)


def _address(process):
    said = ""
    for line in process.stdout:
        said += line
        if found := ADDRESS.search(said):
            assert re.search(r"^copied to .*work: \d+ files", said, re.MULTILINE)
            return found
    pytest.fail(f"iocourse lab printed no address:\n{said}")


def _contents(address):
    url = address[0].replace("/lab/tree/", "/api/contents/")
    with urllib.request.urlopen(url, timeout=240) as answer:
        return json.load(answer)["content"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["release"], "moved; run python -m tools.build in the root of a checkout"),
        (["bench", "notebooks"], "moved; run python -m tools.bench WHAT in the root of a checkout"),
        (["progress", "--cohort", "class", "--only", "04"], "needs a checkout of the course"),
        (["grade", "class"], "no submission contains an exercise cell"),
    ],
)
def test_what_needs_a_checkout_says_so_in_a_sentence(installed, environment, folder, arguments, says):
    (folder / "class").mkdir()
    (folder / "class" / "anna.json").write_text('{"format": 1, "exercises": {}}')
    (folder / "class" / "bo.ipynb").write_text('{"cells": [], "metadata": {}}')
    command = [str(installed), "-m", "iocourse", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert says in done.stderr


def test_progress_lists_the_exercises_of_the_lessons_in_the_wheel(installed, environment, folder):
    command = [str(installed), "-m", "iocourse", "progress"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    asked = sum(data.count(b'"exercise"') for data in LESSONS.values())
    assert re.search(rf"exercises solved: 0 of {asked}\b", done.stdout)


def test_the_wheel_holds_nothing_of_the_tools(published):
    tops = {name.split("/")[0] for name in members(published[1])}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"iocourse"}


EVERY_MODULE = """
import importlib, os, pkgutil, sys
import iocourse
os.environ["TRITON_INTERPRET"] = "1"
assert "site-packages" in iocourse.__file__, iocourse.__file__
walked = (module.name for module in pkgutil.walk_packages(iocourse.__path__, "iocourse."))
found = [name for name in walked if not name.endswith("__main__")]
lacking = set()
for name in found:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if "torch" not in str(error) and "triton" not in str(error) and "numba" not in str(error).lower():
            raise
        lacking.add(name)
print(len(found), len(lacking))
"""


def test_every_module_of_the_package_imports_without_the_checkout(installed, environment, folder):
    """Modules may fail with a message if torch, triton or Numba is missing; here all are installed."""
    done = subprocess.run(
        [str(installed), "-c", EVERY_MODULE], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found, lacking = map(int, done.stdout.split())
    assert found == sum(1 for path in MODULES if path.name != "__main__.py") - 1  # the package itself
    if all(importlib.util.find_spec(name) for name in ("torch", "triton", "numba")):
        assert lacking == 0


def test_every_import_of_every_lesson_works_without_the_checkout(installed, environment, folder):
    """Imports anywhere in a lesson's cells, in one Python: each is a line that a student runs."""
    lines = {
        ast.unparse(node)
        for path in sorted((ROOT / "solutions").glob("[0-9]*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    ours = sorted(line for line in lines if re.match(r"(from|import) (iocourse|tools|tests)\b", line))
    assert len(ours) > 60
    for_kernels = [
        line for line in ours if re.search(r"\b(torch|kernels|traffic|compiled|layers|training)\b", line)
    ]
    here = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
    program = "\n".join(line for line in ours if here or line not in for_kernels)
    env = environment | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [str(installed), "-c", program], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_class_is_counted_and_graded_without_the_checkout(installed, environment, folder):
    """`progress --cohort` and `grade` on a class's files, which hold one right answer and one prediction."""
    (folder / "class").mkdir()
    entry = {"status": "seen", "attempts": 0, "hints": 0, "prediction": {"f1_best": 12}}
    (folder / "class" / "anna.json").write_text(json.dumps({"format": 1, "exercises": {"p4.5": entry}}))
    shutil.copy(ROOT / "solutions" / "00_start_here.ipynb", folder / "class" / "anna.ipynb")
    run = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    ask = [str(installed), "-m", "iocourse"]
    counted = subprocess.run([*ask, "progress", "--cohort", "class", "--blind"], **run)
    assert (counted.returncode, counted.stderr) == (0, "") and "f1_best" in counted.stdout
    (folder / "class" / "anna.json").unlink()
    graded = subprocess.run([*ask, "grade", "class", "--csv", "points.csv"], **run)
    assert graded.returncode == 0, graded.stderr
    assert "anna" in (folder / "points.csv").read_text()
