"""CONTRIBUTING.md is done as it says: its examples go into a scratch copy, in the files it names alone."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = re.compile(
    r"^`(?P<file>[\w/.]+\.py)`(?:, at its end)?\n\n```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
COPIED = (
    "iocourse",
    "tools",
    "solutions",
    "tests/mutation",
    "tests/schedules",
    "tests/explore",
    "tests/mutants",
    "tests/course",
)
# A file of tests -> what those about an example have in their names.
ABOUT = {
    "tests/schedules/test_schedule_invariants.py": "one_row",
    "tests/course/test_challenges.py": "causal",
    "tests/explore/test_every_figure.py": "score_square",
    "tests/explore/test_every_explorer.py": "square_explorer",
    "tests/mutants/test_exercises.py": "0B and not 10B",
}


@pytest.fixture(scope="module")
def examples():
    found = EXAMPLE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(found) == 8
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory, examples):
    """A copy of what is needed with every example in its file, a new one or at the end of one there is."""
    root = tmp_path_factory.mktemp("scratch")
    for folder in COPIED:  # with what Python has compiled, which it compares with the sources
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("*.ipynb"))
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / file, root / file)
    for name, code in examples:
        file = root / name
        before = file.read_text(encoding="utf-8") + "\n\n" if file.exists() else ""
        file.write_text(before + code, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def python(scratch):
    """A function: a Python command -> how it ended, in the scratch copy."""
    env = os.environ | {"PYTHONPATH": str(scratch)}
    how = {"cwd": scratch, "env": env, "capture_output": True, "text": True, "check": False}
    return lambda *command: subprocess.run([sys.executable, *command], **how)


@pytest.fixture(scope="module")
def said(python):
    """What a Python command of the scratch copy prints; it must succeed."""

    def run(*command: str) -> str:
        done = python(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def passed(python):
    """How many tests of a file are about an example; all must pass. One run has all: starting takes long."""
    chosen = " or ".join(f"({Path(file).name} and {example})" for file, example in ABOUT.items())
    done = python("-m", "pytest", "-v", "-n", "0", "-p", "no:cacheprovider", *ABOUT, "-k", chosen)

    def count(file: str) -> int:
        outcomes = re.findall(rf"^{re.escape(file)}::.* ([A-Z]+) +\[ *\d+%\]$", done.stdout, re.MULTILINE)
        assert set(outcomes) == {"PASSED"}, done.stdout + done.stderr
        return len(outcomes)

    return count


def test_the_schedule_is_listed_in_its_place_and_kept_to_the_laws(said, passed):
    names = [line.split()[0] for line in said("-m", "iocourse", "count", "--list").splitlines()[1:]]
    assert names.index("flash2") < names.index("one_row") < names.index("flash_optimal")
    counted = said("-m", "iocourse", "count", "one_row", "--N", "64", "--d", "8", "--M", "100", "--run")
    assert "one_row" in counted
    assert passed("tests/schedules/test_schedule_invariants.py") >= 4


def test_the_schedule_is_in_pictures(said):
    code = """
from iocourse import explore
print(explore.traffic_vs_memory(256, 16, ["flash2", "one_row"]).numbers)
print("and", explore.traffic_map(256, 16).to_svg())
"""
    chart, traffic_map = said("-c", code).split("\nand", 1)
    assert "one_row" in chart and "one_row" in traffic_map


def test_the_challenge_is_found_and_its_librarys_best_is_counted(passed):
    assert passed("tests/course/test_challenges.py") >= 3


def test_the_figure_is_found_and_held_to_account(said, passed):
    code = "from iocourse import explore; print(explore.score_square(512, 64).alt, dir(explore))"
    alt, names = said("-c", code).split(" [", 1)
    assert alt.endswith("each of the four arrays 32,768.") and "'score_square'" in names
    assert passed("tests/explore/test_every_figure.py") >= 4


def test_the_explorer_is_found_and_held_to_account(said, passed):
    code = """
from iocourse import explore
square = explore.square_explorer()
square.set("d", 32)
x, y, width, height, _ = square.grabs[0]
square.touched("down", x + width / 2, y)
square.touched("move", x + width / 2 + 20, y)
print(square, square.words)
"""
    assert re.search(r"SquareExplorer\(N=512, d=64\).*<b>The scores are 8 times as large", said("-c", code))
    assert passed("tests/explore/test_every_explorer.py") >= 8


def test_the_exercise_is_in_its_lesson_and_its_suite_holds(said, passed):
    code = """
from pathlib import Path
from tools.build.lesson import build
from tools.build.project import Project
path = Path("solutions/00_start_here.py")
for cell in build(path, path, Project("owner/course", "v1")).student["cells"]:
    print("".join(cell["source"]))
"""
    lesson = said("-c", code)
    assert "| 0B | The words of the scores | 1 of 5 | 2 of 5 | 2 |" in lesson
    assert "**Exercise 0B** The words of the scores · difficulty 1 of 5" in lesson
    assert "return N * N" not in lesson
    assert passed("tests/mutants/test_exercises.py") >= 8


def test_the_examples_are_in_the_style_of_the_house(said, examples):
    for command in (["check"], ["format", "--check", "--force-exclude"]):
        said("-m", "ruff", *command, *(name for name, _ in examples))
    typed = [name for name, _ in examples if name.startswith("iocourse/explore")]
    # Of all that they import, mypy remembers here what it has seen in the checkout.
    said("-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), *typed)
