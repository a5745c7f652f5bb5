"""nbval on the command line: in the checkout and outside it, with correct and with wrong answers."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from long_runs import many
from test_without_torch import HIDING, INSTALL
from wrong_answers import refused, with_wrong_answer

from tools.build.notebook_execution import cannot_run, execute, lesson_environment

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "nbval.md"
SOLVED = sorted((ROOT / "solutions").glob("[0-9]*.ipynb"))
# A short lesson, and one of each other part: bounds, kernels, low rank, many devices.
ACTS = many(
    ["02_two_level_memory"],
    [
        "02_two_level_memory",
        "05_lower_bounds",
        "10_triton_basics",
        "15_polynomial_attention",
        "18_context_parallelism",
    ],
)
# Number of cells per lesson whose output depends on the machine or on time.
NOT_COMPARED = {"00": 1, "14c": 1, "16": 1, "17": 1, "17b": 1}


def commands():
    """Lines in the page's code blocks that name a notebook."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.endswith(".ipynb")]


def typed(command, folder, tmp_path):
    """Run a command line that begins with pytest, as a shell does."""
    program, *arguments = command.split()
    assert program == "pytest"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "IOCOURSE_"))}
    (tmp_path / "tmp").mkdir()
    env |= {"IOCOURSE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    env["IPYTHONDIR"] = str(tmp_path / "ipython")
    line = [sys.executable, "-m", "pytest", "--color=no", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=280)


def code_cells(path):
    return [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]


def passed(ran, path):
    """True if every code cell of the notebook passed."""
    return ran.returncode == 0 and f"{len(code_cells(path))} passed" in ran.stdout


def test_the_page_shows_a_command_for_each_of_the_two_ways():
    assert {line.split()[1] for line in commands()} == {"--nbval", "--nbval-lax"}


@pytest.mark.parametrize("command", commands())
def test_what_the_page_says_works_in_the_checkout(command, tmp_path):
    ran = typed(command, ROOT, tmp_path)
    assert passed(ran, ROOT / command.split()[-1]), ran.stdout + ran.stderr
    assert not (tmp_path / "home").exists(), "nothing was solved by whoever typed it"
    assert not list((tmp_path / "tmp").glob("iocourse*"))


def test_a_notebook_copied_alone_to_another_folder_passes_and_is_nobodys_progress(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    path = ROOT / "solutions" / "00_start_here.ipynb"
    shutil.copy(path, tmp_path / "elsewhere" / "mine.ipynb")
    ran = typed("pytest --nbval mine.ipynb", tmp_path / "elsewhere", tmp_path)
    assert passed(ran, path), ran.stdout + ran.stderr
    assert not (tmp_path / "home").exists() and not list((tmp_path / "tmp").glob("iocourse*"))


@pytest.mark.parametrize("marked", [True, False])
def test_a_run_of_a_copy_by_another_program_is_nobodys_progress_because_of_the_mark(
    marked, tmp_path, fork_kernels
):
    fork_kernels("")
    notebook = json.loads((ROOT / "solutions" / "00_start_here.ipynb").read_text(encoding="utf-8"))
    if not marked:
        notebook["cells"] = [cell for cell in notebook["cells"] if cell["id"] != "install"]
    with lesson_environment(ROOT, strict=False) as env:
        execute(notebook, name="a copy", folder=tmp_path, env=env)
        assert Path(env["IOCOURSE_HOME"], "progress.json").exists() != marked


@pytest.mark.parametrize("stem", ACTS)
def test_lax_refuses_a_wrong_answer(stem, tmp_path, nbval):
    path = ROOT / "solutions" / f"{stem}.ipynb"
    if reason := cannot_run(path.read_text(encoding="utf-8")):
        pytest.skip(reason)
    text, exercise = with_wrong_answer(path)
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    result = nbval(tmp_path / path.name, strict_outputs=False)
    assert refused(result, exercise), result


def test_all_cells_are_compared_but_for_five_that_depend_on_the_machine_or_on_time():
    tagged, compared = {}, 0
    for path in SOLVED:
        for cell in code_cells(path):
            tags = set(cell["metadata"].get("tags", ()))
            assert not tags & {"nbval-skip", "nbval-raises-exception", "raises-exception"}, path.name
            assert not re.search(r"^\s*#\s*(NBVAL|PYTEST_VALIDATE)_", "".join(cell["source"]), re.MULTILINE)
            if "nbval-ignore-output" in tags:
                number = path.stem.split("_")[0]
                tagged[number] = tagged.get(number, 0) + 1
            else:  # only the first cell is saved without a run, and it prints nothing
                assert (cell["execution_count"] is None) == (cell["id"] == "install")
                compared += cell["id"] != "install"
    assert tagged == NOT_COMPARED
    assert compared + sum(tagged.values()) + len(SOLVED) == sum(len(code_cells(path)) for path in SOLVED)


@pytest.mark.parametrize("folder", ["solutions", "lessons"])
def test_no_cell_has_outputs_without_a_count(folder):
    """nbval reports such a cell as an error even if it compares no outputs."""
    for path in sorted((ROOT / folder).glob("[0-9]*.ipynb")):
        for cell in code_cells(path):
            assert cell["execution_count"] is not None or not cell["outputs"], (path.name, cell["id"])


def test_lesson_00_passes_lax_unsolved(nbval):
    path = ROOT / "lessons" / "00_start_here.ipynb"
    result = nbval(path, strict_outputs=False)
    assert result.passed and f"{len(code_cells(path))} passed" in result.text, result


WITHOUT_TORCH = [  # a lesson, and the start of its first cell that needs torch
    ("10_triton_basics", 'os.environ["TRITON_INTERPRET"]'),
    ("16_low_rank_gradient", "class LowRank("),
    ("17_error_growth_and_training", "def gradient_errors("),
]


@pytest.mark.parametrize(("stem", "first"), many(WITHOUT_TORCH[1:2], WITHOUT_TORCH))
def test_without_torch_lax_passes_and_strict_fails_at_the_first_cell_that_needs_it_with_what_to_install(
    stem, first, tmp_path, nbval
):
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    path = ROOT / "solutions" / f"{stem}.ipynb"
    hidden = {"hidden": tmp_path}
    lax = nbval(path, strict_outputs=False, **hidden)
    assert lax.passed and f"{len(code_cells(path))} passed" in lax.text, lax
    strict = nbval(path, strict_outputs=True, **hidden)
    needs = next(at for at, cell in enumerate(code_cells(path)) if first in "".join(cell["source"]))
    _, number, report, *_ = re.split(r"^Cell (\d+): Cell outputs differ$", strict.text, flags=re.MULTILINE)
    assert not strict.passed and int(number) == needs and INSTALL.search(report), strict


def test_every_cell_that_imports_kernels_has_a_saved_line_to_compare_what_to_install_with():
    """For a cell without saved text, nbval reports that there is an output but does not show it."""
    imports = [
        cell for path in SOLVED for cell in code_cells(path) if "TritonMissing" in "".join(cell["source"])
    ]
    assert len(imports) == 7
    for cell in imports:
        assert [one["name"] for one in cell["outputs"]] == ["stdout"]
