"""`python -m tools.bench`: its arguments, its help, and what it does with a subject."""

import json
import re
import types

import pytest
from command_line import refused

from tools.bench import __main__ as command
from tools.bench import notebooks
from tools.bench.__main__ import main
from tools.build.notebook_execution import ExecutionFailed


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "WHAT is missing. Use one of: "),
        (["speed"], "'speed' is unknown. Use one of: "),
        (["notebooks", "--slow"], "--slow"),
        (["gpu", "--minutes", "x"], "invalid float value: 'x'"),
        (["visit"], "'visit' is unknown. Use one of: depth, emulator, explore, flash-attention-file, gpu, "),
    ],
)
def test_a_bad_argument_is_named_in_one_line(capsys, arguments, part):
    assert part in refused(capsys, main, *arguments)


def test_the_help_says_what_each_subject_measures(capsys):
    with pytest.raises(SystemExit) as leave:
        main(["--help"])
    lines = capsys.readouterr().out.split("\nsubjects:\n")[1].splitlines()
    assert leave.value.code == 0 and max(map(len, lines)) <= 100
    said = " ".join(" ".join(lines).split())
    for name, subject in command.SUBJECTS.items():
        assert f"{name} {' '.join(subject.HELP.split())}" in said


@pytest.fixture
def subject(monkeypatch):
    module = types.SimpleNamespace(
        NAME="waiting", HELP="how long nothing takes", asked=[], show=lambda result: f"{result['s']} s"
    )
    module.run = lambda quick: module.asked.append(quick) or {"s": 1 if quick else 2}
    monkeypatch.setattr(command, "SUBJECTS", {"waiting": module})
    return module


def test_it_prints_the_table_and_writes_the_numbers(subject, capsys, tmp_path):
    assert main(["waiting", "--quick", "--json", str(tmp_path / "a" / "n.json")]) == 0
    assert capsys.readouterr().out == "1 s\n" and subject.asked == [True]
    assert json.loads((tmp_path / "a" / "n.json").read_text()) == {"s": 1}
    assert main(["waiting"]) == 0 and subject.asked == [True, False]


def test_a_subject_that_writes_its_file_itself_gets_the_path(subject, tmp_path):
    def run(quick, file=None):
        file.write_text(json.dumps({"rows": 3}))
        return {"s": 1, "exit": 7}

    subject.run = run
    assert main(["waiting", "--json", str(tmp_path / "n.json")]) == 7
    assert json.loads((tmp_path / "n.json").read_text()) == {"rows": 3}, (
        "what is returned is not written again"
    )


def test_every_subject_has_a_name_and_says_what_it_measures():
    for name, module in command.SUBJECTS.items():
        assert name == module.NAME and module.HELP and callable(module.run) and callable(module.show)
    assert {"notebooks", "gpu", "lowrank", "resources"} <= command.SUBJECTS.keys()


def test_notebooks_times_each_one_and_says_on_what(tmp_path, monkeypatch):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "iocourse"\n')
    monkeypatch.chdir(tmp_path)
    code = {"cell_type": "code", "id": "a", "metadata": {}, "source": ["import time; time.sleep(0.2)"],
            "outputs": [], "execution_count": None}  # fmt: skip
    for name in ("00_a", "01_b"):
        text = json.dumps({"cells": [code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
        (tmp_path / "solutions" / f"{name}.ipynb").write_text(text)
    result = notebooks.run(quick=True)
    assert list(result["notebooks"]) == ["00_a", "01_b"] and result["repeats"] == 1 and result["cores"] >= 1
    assert all(0.2 < one["median_s"] < 30 for one in result["notebooks"].values())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"]) and result["versions"]["Python"]
    assert re.search(r"^all .* s .*median of 1", notebooks.show(result), re.MULTILINE)


def test_a_notebook_that_fails_names_the_cell(monkeypatch, capsys):
    def failing(quick):
        raise ExecutionFailed("00_a.ipynb: cell 3")

    monkeypatch.setattr(notebooks, "run", failing)
    assert main(["notebooks"]) == 1
    assert "00_a.ipynb: cell 3" in capsys.readouterr().err
