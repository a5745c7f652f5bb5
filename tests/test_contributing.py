"""Run the steps of CONTRIBUTING.md and docs/guide/adding.md in a scratch copy: insert their examples into the
files that they name, and run their "Check:" lines.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_architecture import ROOMS

ROOT = Path(__file__).parents[1]
PAGES = ("CONTRIBUTING.md", "docs/guide/adding.md")
EXAMPLE = re.compile(
    r"^`(?P<file>[\w/.]+)`(?:, (?P<place>at its end|(?:in|instead of) `[^\n]*`))?\n\n"
    r"```(?:python|toml)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
CHECK = re.compile(r"^Check: `(.+)`$", re.MULTILINE)
STEPS = re.compile(
    r"^Then `python -m (?:.+\n)+", re.MULTILINE
)  # a paragraph of commands, to be run in this order
COPIED = (
    "iocourse",
    "tools",
    "solutions",
    "tests/bounds",
    "tests/mutation",
    "tests/schedules",
    "tests/explore",
    "tests/mutants",
    "tests/course",
)


def place(before: str, where: str, code: str) -> str:
    """Return the text of a file with an example in it.

    It stands "at its end", "in `LINE`" (after LINE), or "instead of `LINE`".
    """
    if where == "at its end":
        return f"{before}\n\n{code}"
    how, line = where.removesuffix("`").split(" `")
    assert before.count(f"\n{line}\n") == 1, f"expected one line {line!r}"
    return before.replace(f"\n{line}\n", f"\n{code}" if how == "instead of" else f"\n{line}\n{code}")


@pytest.fixture(scope="module")
def text():
    return "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)


@pytest.fixture(scope="module")
def examples(text):
    found = EXAMPLE.findall(text)
    assert len(found) == text.count("```python\n") + text.count("```toml\n") == 12
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory, examples):
    """A copy of the needed part of the checkout, with every example in its file."""
    root = tmp_path_factory.mktemp("scratch")
    for folder in COPIED:  # with what Python has compiled, which it compares with the sources
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("*.ipynb"))
    (root / "docs").mkdir()
    shared = (
        f"tests/{name}.py" for name in ("conftest", "long_runs", "other_processor", "page_audit", "skips")
    )
    for file in ("pyproject.toml", "docs/proofs.toml", *shared):
        shutil.copy(ROOT / file, root / file)
    for name, where, code in examples:
        file = root / name
        assert file.exists() == bool(where), f"{name}: a new file has no place, and another has one"
        file.write_text(place(file.read_text("utf-8"), where, code) if where else code, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def python(scratch):
    """A function that runs a Python command in the scratch copy and returns its result."""
    env = os.environ | {"PYTHONPATH": str(scratch)}
    how = {"cwd": scratch, "env": env, "capture_output": True, "text": True, "check": False}
    return lambda *command: subprocess.run([sys.executable, *command], **how)


@pytest.fixture(scope="module")
def printed(python):
    """A function that runs a Python command in the scratch copy and returns its output; it must succeed."""

    def run(*command: str) -> str:
        done = python(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def steps(printed, text):
    """The commands after the example of an exercise, in the order of the page, with what each prints."""
    (paragraph,) = STEPS.findall(text)
    commands = re.findall(r"`python (-m [^`]+)`", paragraph)
    return [(command, printed(*command.split())) for command in commands]


@pytest.fixture(scope="module")
def checked(python, text, steps):
    """The number of passed tests per file, from one run of all lines "Check: `pytest …`"."""
    chosen = {}  # file of tests -> which of its tests
    for line in CHECK.findall(text):
        command, *arguments = shlex.split(line)
        if command == "pytest":
            assert arguments[:2] == ["-n", "0"] and arguments[-2] == "-k", line
            chosen |= dict.fromkeys(arguments[2:-2], arguments[-1])
    assert len(chosen) == 8
    chosen_tests = " or ".join(f"({Path(file).name} and ({names}))" for file, names in chosen.items())
    done = python("-m", "pytest", "-v", "-n", "0", "-p", "no:cacheprovider", *chosen, "-k", chosen_tests)

    def count(file: str) -> int:
        outcomes = re.findall(rf"^{re.escape(file)}::.* ([A-Z]+) +\[ *\d+%\]$", done.stdout, re.MULTILINE)
        assert set(outcomes) == {"PASSED"}, done.stdout + done.stderr
        return len(outcomes)

    return count


def test_the_page_is_short_and_names_every_room(text):
    lines = (ROOT / PAGES[0]).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    rooms = [line.split("|")[1] for line in lines if line.startswith("| `")]
    named = [name.strip("/") for cell in rooms for name in re.findall(r"`([\w/]+)`", cell)]
    assert sorted(named) == sorted({*ROOMS} - {"__main__"}), "the table of rooms"


def test_every_file_and_command_that_is_named_exists(text):
    """Of those that no example makes; a pattern such as lessonNN is one name for many files."""
    made = {name for name, where, _ in EXAMPLE.findall(text) if not where}
    paths = re.findall(r"(?<![\w/])((?:iocourse|tests|docs|solutions|tools)/[\w/*.-]+\.\w+)", text)
    for path in {*paths} - made:
        pattern = path.replace("NN", "00").replace("_name", "_start_here")
        assert list(ROOT.glob(pattern)), f"{path} is named, but there is no such file"


def test_the_schedule_is_listed_in_its_place_and_moves_what_its_closed_form_says(printed, text, checked):
    names = [line.split()[0] for line in printed("-m", "iocourse", "count", "--list").splitlines()[1:]]
    assert names.index("one_row") == names.index("resident_keys") + 1  # after the others of its pass
    (command,) = [line for line in CHECK.findall(text) if line.startswith("iocourse ")]
    assert "one_row" in printed("-m", *command.split())
    assert checked("tests/schedules/test_schedule_invariants.py") >= 4


def test_the_schedule_is_in_figures(printed):
    code = """
from iocourse.course import explore
print(explore.traffic_vs_memory(256, 16, ["flash2", "one_row"]).numbers)
print("and", explore.traffic_map(256, 16).to_svg())
"""
    chart, traffic_map = printed("-c", code).split("\nand", 1)
    assert "one_row" in chart and "one_row" in traffic_map


def test_the_bound_is_evaluated_has_a_proof_and_no_schedule_beats_it(printed, checked):
    code = """
import tomllib
from iocourse import bounds
from iocourse.distributed.bounds import BOUNDS as ACROSS_RANKS
proofs = tomllib.load(open("docs/proofs.toml", "rb"))
print(bounds.BOUNDS["A_simple"](100, 8, 64), sorted(proofs) == sorted(bounds.BOUNDS | ACROSS_RANKS))
print("theorem_A_simple" in bounds.__all__, bounds.theorem_A_simple is bounds.BOUNDS["A_simple"])
"""
    assert printed("-c", code) == "19872 True\nTrue True\n"
    # The formula, that it is an integer, and that `lower_bound` may omit it.
    assert checked("tests/bounds/test_bounds.py") == 3
    assert checked("tests/schedules/test_no_schedule_beats_a_bound.py") >= 2


def test_the_figure_is_found_and_passes_what_every_figure_must(printed, checked):
    code = "from iocourse.course import explore; print(explore.score_square(512, 64).alt, dir(explore))"
    alt, names = printed("-c", code).split(" [", 1)
    assert alt.endswith("S has 262,144 words and Q has 32,768.") and "'score_square'" in names
    assert checked("tests/explore/test_every_figure.py") >= 4
    assert checked("tests/explore/test_contrast.py") >= 1


def test_the_challenge_is_found_and_the_best_of_the_library_is_counted(checked):
    assert checked("tests/course/test_challenges.py") >= 3


def test_the_explorer_is_found_and_passes_what_every_explorer_must(printed, checked):
    code = """
from iocourse.course import explore
square = explore.square_explorer()
square.set("d", 32)
x, y, width, height, _ = square.grabs[0]
square.touched("down", x + width / 2, y)
square.touched("move", x + width / 2 + 20, y)
print(square, square.words)
"""
    assert re.search(
        r"explore\.square_explorer\(N=512, d=64\).*<b>The scores are 8 times as large", printed("-c", code)
    )
    assert checked("tests/explore/test_every_explorer.py") >= 8


def test_the_exercise_is_in_its_lesson_and_its_mutants_are_rejected(printed, steps, checked):
    code = """
from pathlib import Path
from tools.build.lesson import build
from tools.build.project import Project
path = Path("solutions/00_start_here.py")
for cell in build(path, path, Project("owner/course", "v1")).student["cells"]:
    print("".join(cell["source"]))
"""
    lesson = printed("-c", code)
    assert "| 0B | The words of the scores | 1 of 5 | 2 of 5 | 2 |" in lesson
    assert "**Exercise 0B** The words of the scores · difficulty 1 of 5" in lesson
    assert "return N * N" not in lesson
    (_, written), (_, recorded) = steps
    assert "wrote solutions/00_start_here.ipynb" in written
    assert recorded.startswith("1 exercises recorded in tests/mutants/recorded.json, 0 properties")
    assert checked("tests/mutants/test_exercises.py") >= 8


def test_the_examples_keep_the_rules_for_code(printed, examples):
    files = sorted({name for name, _, _ in examples if name.endswith(".py")})
    for command in (["check"], ["format", "--check", "--force-exclude"]):
        printed("-m", "ruff", *command, *files)
    typed = [name for name in files if name.startswith(("iocourse/course/explore", "iocourse/bounds"))]
    # Of all that they import, mypy remembers here what it has seen in the checkout.
    printed("-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), *typed)
