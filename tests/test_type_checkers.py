"""Type checkers and editors know every public name: mypy --strict on code that uses them, and jedi."""

import inspect
import subprocess
import sys
from pathlib import Path

import jedi
import pytest
from printed_examples import examples

from iocourse import bounds, schedules

ROOT = Path(__file__).parents[1]
NAMES = {"bounds": bounds.__all__, "schedules": schedules.__all__}
# Each line with the words of the error that it must cause.
WRONG = {
    "bounds.theorem_Z": 'no attribute "theorem_Z"',
    "bounds.isqrt": 'no attribute "isqrt"',
    "bounds.theorem_A + 1": "Unsupported operand types",
    "schedules.flash2 + 1": "Unsupported operand types",
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """Return the errors of mypy in each file: README's example, all public names, and mistakes."""
    folder = tmp_path_factory.mktemp("typed")
    (example,) = examples(ROOT / "README.md")
    every = [f"{room}.{name}" for room, names in NAMES.items() for name in names]
    imported = "from iocourse import bounds, schedules\n"
    files = {
        "readme.py": example.code,
        "names.py": imported + "\n".join(every),
        "star.py": "from iocourse.bounds import *\n" + "\n".join(NAMES["bounds"]),
        "wrong.py": imported + "\n".join(WRONG),
    }
    for name, code in files.items():
        (folder / name).write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert "Found" in done.stdout, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    return {name: [line for line in lines if line.startswith(f"{name}:")] for name in files}


@pytest.mark.parametrize("file", ["readme.py", "names.py", "star.py"])
def test_a_type_checker_knows_every_public_name(errors, file):
    assert errors[file] == []


def test_a_type_checker_finds_mistakes(errors):
    assert len(errors["wrong.py"]) == len(WRONG)
    for at, (error, words) in enumerate(zip(errors["wrong.py"], WRONG.values(), strict=True), start=2):
        assert error.startswith(f"wrong.py:{at}:") and words in error


KERNEL_CALLS = {
    "attention(q, q, q, causal=True, tile_d='never')": "",
    "attention_varlen(q, q, q, q, q, longest=(1, 2))": "",
    "attention(q, q, q, casual=True)": 'Unexpected keyword argument "casual"',
    "attention(q, q)": 'Missing positional argument "v"',
    "attention(q, q, q, causal=0.5)": 'Argument "causal" to "attention" has incompatible type',
    "attention_varlen(q, q, q, q, q, tile_d='never')": 'Unexpected keyword argument "tile_d"',
    "attention_varlen_with_lse(q, q, q, q, q, tile_d='never')": 'Unexpected keyword argument "tile_d"',
}


def test_a_type_checker_knows_the_arguments_of_the_kernels(tmp_path):
    """With the project's settings, by which mypy does not read torch."""
    lines = ["from iocourse.kernels import attention, attention_varlen, attention_varlen_with_lse", "q = 0"]
    file = tmp_path / "calls.py"
    file.write_text("\n".join([*lines, *KERNEL_CALLS]), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir"]
    command += [str(ROOT / ".mypy_cache"), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "Found" in done.stdout, done.stdout + done.stderr
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    wrong = {at: words for at, words in enumerate(KERNEL_CALLS.values(), start=3) if words}
    assert len(errors) == len(wrong), errors
    for error, (at, words) in zip(errors, wrong.items(), strict=True):
        assert f"calls.py:{at}: error: {words}" in error


@pytest.mark.parametrize(
    "name", ["attention", "attention_with_lse", "attention_varlen", "attention_varlen_with_lse"]
)
def test_an_editor_shows_the_arguments_of_the_kernels(name):
    """In a file, and in a notebook."""
    kernels = pytest.importorskip("iocourse.kernels", exc_type=ImportError)
    function = getattr(kernels, name)
    code = f"from iocourse.kernels import {name}\n{name}("
    in_file = jedi.Script(code, project=jedi.Project(ROOT)).get_signatures()
    in_notebook = jedi.Interpreter(f"{name}(", [{name: function}]).get_signatures()
    for (found,) in (in_file, in_notebook):
        assert [one.name for one in found.params] == list(inspect.signature(function).parameters)


@pytest.mark.parametrize("room", NAMES)
def test_an_editor_completes_every_public_name(room):
    """In a file, where jedi reads the sources, and in a notebook, where it reads the objects."""
    line = f"{room}."
    in_file = jedi.Script(f"from iocourse import {room}\n{line}", project=jedi.Project(ROOT)).complete()
    in_notebook = jedi.Interpreter(
        line, [{room: {"bounds": bounds, "schedules": schedules}[room]}]
    ).complete()
    for found in (in_file, in_notebook):
        assert {one.name for one in found} >= set(NAMES[room])


def test_a_notebook_completes_the_fields_of_a_schedule_and_of_a_bound():
    for thing, fields in (
        ("schedules.flash2", {"tiles", "cost"}),
        ("bounds.theorem_A", {"formula", "order"}),
    ):
        found = jedi.Interpreter(f"{thing}.", [{"bounds": bounds, "schedules": schedules}]).complete()
        assert {one.name for one in found} >= fields
