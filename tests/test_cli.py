"""Tests of the command line: exit codes, one error line for a bad argument, and a fast start."""

import argparse
import importlib
import json
import os
import re
import socket
import subprocess
import sys
import types
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import refused

import iocourse
from iocourse import cli
from iocourse.cli import main
from iocourse.course import lab, progress
from iocourse.doctor import install_command

ROOT = Path(iocourse.__file__).parents[1]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*arguments, **options):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "iocourse", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env=env, **options
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "COMMAND"),
        (["lesson"], "'lesson'"),
        (["profile"], "WHAT is missing. Use one of: "),
        (["profile", "forward", "--heads", "x"], "'x'"),
        (["doctor", "--jso"], "--jso"),
        (["progress", "--export"], "--export"),
        (["progress", "--reset", "--import", "x"], "--import"),
        (["progress", "--import", "no-such-file"], "no-such-file"),
        (["gpu", "11B", "--tflops", "0"], "--tflops: expected a number above 0, got '0'"),
        (["gpu", "10C", "--gbytes", "fast"], "expected a number above 0, got 'fast'"),
        (["grade"], "DIR"),
        (["grade", "no-such-folder", "--csv", "x"], "no-such-folder is not a directory"),
        (["grade", ".", "--jobs", "0"], "--jobs must be at least 1, got 0"),
    ],
)
def test_a_bad_argument_is_named_in_one_line(capsys, arguments, part):
    assert part in refused(capsys, main, *arguments)


def test_python_m_iocourse_gives_the_same_exit_code():
    done = run("lesson")
    assert done.returncode == 2 and "'lesson'" in done.stderr
    assert run("--version").stdout == f"iocourse {iocourse.__version__}\n"


def test_help_lists_every_command_of_the_contract(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    commands = re.findall(r"^    (\w+) ", said, re.MULTILINE)
    assert commands == ["count", "profile", "doctor", "lab", "progress", "gpu", "grade"]


@pytest.mark.parametrize("rest", [[], ["attention", "--quick"], ["--check"], ["--help"]])
@pytest.mark.parametrize("name", cli.MOVED)
def test_a_command_that_has_left_says_where_it_went(capsys, name, rest):
    now = cli.MOVED[name]
    said = refused(capsys, main, name, *rest)
    assert said == f"iocourse {name}: moved; run {now} in the root of a checkout\n"
    place = now.removeprefix("python -m ").split()[0].replace(".", "/")
    assert (ROOT / place / "__main__.py").is_file() or (ROOT / now.split()[1] / "conf.py").is_file()


@pytest.mark.parametrize(
    "arguments", [["--version"], ["progress"], ["bench"], ["lab", "-h"], ["gpu", "-h"], ["profile", "-h"]]
)
def test_the_start_loads_nothing_heavy(arguments):
    code = (
        f"import sys\nfrom iocourse.cli import main\ntry: main({arguments!r})\nexcept SystemExit: pass\n"
        "print('heavy:', sorted({'matplotlib', 'torch', 'triton', 'nbformat'} & set(sys.modules)))"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    ).stdout
    assert said.splitlines()[-1] == "heavy: []"


def test_an_interrupt_ends_without_a_traceback(monkeypatch):
    monkeypatch.setattr(progress, "load", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["progress"]) == 130


# --- doctor ----------------------------------------------------------------------------------------------


def test_doctor_prints_the_report_as_text_and_as_json(monkeypatch, capsys):
    from iocourse import doctor

    report = types.SimpleNamespace(to_json=lambda: '{"python": "3"}')
    monkeypatch.setattr(doctor, "inspect_environment", lambda: report)
    assert main(["doctor", "--json"]) == 0 and json.loads(capsys.readouterr().out) == {"python": "3"}
    assert main(["doctor"]) == 0 and capsys.readouterr().out == f"{report}\n"


# --- progress --------------------------------------------------------------------------------------------


def test_progress_shows_the_path_and_a_table(capsys, home):
    progress.record("4B", "solved")
    assert main(["progress"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{home / 'progress.json'}\n") and re.search(
        r"^4B +solved +1 +0$", said, re.MULTILINE
    )


def test_progress_as_json(capsys, home):
    progress.record("4B", "tried")
    assert main(["progress", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == str(home / "progress.json") and facts["exercises"]["4B"]["status"] == "tried"


def test_progress_travels_by_export_reset_and_import(capsys, tmp_path):
    progress.record("4B", "solved")
    file = str(tmp_path / "mine.json")
    assert main(["progress", "--export", file]) == 0
    assert main(["progress", "--reset"]) == 0
    backup = re.search(r"^progress reset; the old file is (.*)$", capsys.readouterr().out, re.MULTILINE)[1]
    assert "4B" in Path(backup).read_text() and progress.load() == {}
    assert main(["progress", "--import", file]) == 0 and progress.load()["4B"]["status"] == "solved"


def test_progress_is_shown_beside_a_broken_lesson(capsys, tmp_path, monkeypatch):
    root = checkout(tmp_path, monkeypatch)
    for text in ("{", '{"cells": 3}', "[]"):
        (root / "lessons" / "00_start_here.ipynb").write_text(text)
        assert main(["progress"]) == 0
        assert "exercises solved: 0 of 0" in capsys.readouterr().out


def test_progress_knows_the_exercises_of_the_lessons(capsys, tmp_path, monkeypatch):
    checkout(tmp_path, monkeypatch)
    assert main(["progress"]) == 0
    assert re.search(r"^0A +- ", capsys.readouterr().out, re.MULTILINE)


# --- lab -------------------------------------------------------------------------------------------------


def checkout(folder, monkeypatch):
    """A checkout with two lessons and a notation page, the current folder."""
    (folder / "lessons").mkdir()
    cell = {"cell_type": "code", "metadata": {"name": "ex-0A", "tags": ["exercise"]}, "source": []}
    (folder / "lessons" / "00_start_here.ipynb").write_text(json.dumps({"cells": [cell]}))
    (folder / "lessons" / "01_next.ipynb").write_text('{"cells": []}')
    (folder / "lessons" / "notation.md").write_text("# Notation\n")
    (folder / "pyproject.toml").write_text('[project]\nname = "iocourse"\n')
    monkeypatch.chdir(folder)
    return folder


def test_lab_copies_the_lessons_and_never_overwrites(tmp_path, monkeypatch, started, capsys):
    root = checkout(tmp_path, monkeypatch)
    (root / "work").mkdir()
    (root / "work" / "01_next.ipynb").write_text("my work")
    assert main(["lab"]) == 0
    said = capsys.readouterr().out
    assert f"copied to {root / 'work'}: 00_start_here.ipynb, notation.md" in said
    assert f"unchanged in {root / 'work'}: 01_next.ipynb" in said
    assert "cannot open 01_next.ipynb: not a valid notebook" in said
    assert (root / "work" / "01_next.ipynb").read_text() == "my work"
    assert (root / "work" / "notation.md").read_text().startswith("# Notation\n\n<!-- iocourse ")
    assert main(["lab"]) == 0 and "copied" not in capsys.readouterr().out


def test_an_interrupted_copy_of_a_lesson_is_made_again(tmp_path, monkeypatch, started):
    root = checkout(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["lab"]) == 130 and not list((root / "work").iterdir())
    monkeypatch.undo()
    monkeypatch.chdir(root)
    (root / "work" / "00_start_here.ipynb").touch()  # what an earlier version left behind
    assert main(["lab", "--update", "00"]) == 0
    copy, lesson = (
        json.loads((root / place / "00_start_here.ipynb").read_text()) for place in ("work", "lessons")
    )
    assert copy["cells"] == lesson["cells"] and copy["cells"]


def test_a_reader_that_has_seen_enough_ends_a_command_in_silence():
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -m iocourse count --list | true"
    for _ in range(3):
        done = subprocess.run(
            ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"],
            capture_output=True,
            text=True,
            env=env,
            check=False,
        )
        assert done.stderr == "" and done.stdout == "0\n"


def test_lab_starts_jupyterlab_of_this_python_at_lesson_00(tmp_path, monkeypatch, started):
    root = checkout(tmp_path, monkeypatch)
    assert main(["lab", "--no-browser", "--port=0", "--ServerApp.quit_button=False"]) == 0
    ((command, cwd, token),) = started
    assert command[:4] == [sys.executable, "-P", "-m", "iocourse.course.lab.server"]
    assert cwd == root and len(token) == 48
    assert "--LabApp.default_url=/lab/tree/work/00_start_here.ipynb" in command
    assert "--no-browser" in command and command[-2:] == ["--port=0", "--ServerApp.quit_button=False"]
    assert set(lab.OURS) <= set(command)
    main(["lab"])
    assert "--no-browser" not in started[1][0] and token not in " ".join(command)


def test_other_modules_start_processes_while_the_lab_is_replaced(started):
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0 and not started
    assert importlib.util.find_spec("iocourse").name == "iocourse"


def test_a_page_of_the_lab_is_told_at_once_what_its_kernel_says(monkeypatch):
    channels = pytest.importorskip("jupyter_server.services.kernels.connection.channels")
    module, kind = lab.OURS[0].partition("=")[2].rsplit(".", 1)
    connection_class = getattr(importlib.import_module(module), kind)
    handler = Mock(spec=channels.KernelWebsocketHandler)
    monkeypatch.setattr(channels.ZMQChannelsWebsocketConnection, "connect", lambda self: "connected")
    assert connection_class(websocket_handler=handler).connect() == "connected"
    handler.set_nodelay.assert_called_once_with(True)


def test_lab_without_jupyterlab_names_the_pip_command(tmp_path, monkeypatch, capsys):
    checkout(tmp_path, monkeypatch)
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert install_command.command("lab") in refused(capsys, main, "lab")
    assert not (tmp_path / "work").exists()


def test_a_random_py_in_the_current_folder_does_not_stand_for_pythons_own(tmp_path):
    (tmp_path / "random.py").write_text("x = 3\n")
    done = run("progress", cwd=tmp_path)
    assert done.returncode == 0 and "exercises solved: 0 of" in done.stdout, done.stderr


def test_lab_whose_folder_cannot_be_written_says_what_to_do(tmp_path, monkeypatch, capsys, started):
    root = checkout(tmp_path, monkeypatch)
    (root / "file").touch()
    monkeypatch.setenv("IOCOURSE_HOME", str(root / "file" / "home"))
    assert main(["lab", "--no-browser"]) == 2 and not started
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Start with another one, for example HOME=/tmp/me iocourse lab" in said


@pytest.mark.parametrize(
    "ask",
    [("--port={}",), ("--port", "{}"), ("--ServerApp.port={}",), ("--port=0", "--port={}", "--ip=127.0.0.1")],
)
def test_lab_on_a_port_that_is_taken_says_so(tmp_path, monkeypatch, capsys, started, ask):
    checkout(tmp_path, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = refused(capsys, main, "lab", *(part.format(port) for part in ask))
        assert f"cannot listen on port {port} of " in line and "in use" in line and "such as --port=" in line
        assert not started and not (tmp_path / "work").exists()
    assert main(["lab", *(part.format(port) for part in ask)]) == 0 and started


@pytest.mark.parametrize("port", ["99999", "abc", "-3", ""])
def test_lab_names_a_port_that_is_none(tmp_path, monkeypatch, capsys, started, port):
    checkout(tmp_path, monkeypatch)
    line = refused(capsys, main, "lab", f"--port={port}")
    assert f"--port must be an integer from 0 to 65,535 (0: any free port), got {port!r}" in line
    assert not started


def test_lab_says_when_jupyterlab_ends_before_it_answers(capfd, monkeypatch):
    pytest.importorskip("jupyter_core", reason="jupyter_core is not installed")
    server = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    assert lab._attend(server, "token") == 3
    assert "iocourse lab: JupyterLab ended before it was ready (exit code 3)" in capfd.readouterr().err


def test_lab_outside_a_checkout_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "iocourse.course.project_paths.__file__", str(tmp_path / "site" / "iocourse" / "course" / "x.py")
    )
    assert "needs a checkout of the course" in refused(capsys, main, "lab")


def test_lab_without_lessons_says_what_makes_them(tmp_path, monkeypatch, capsys, started):
    root = checkout(tmp_path, monkeypatch)
    for path in (root / "lessons").iterdir():
        path.unlink()
    line = refused(capsys, main, "lab")
    assert "Build them from solutions/ with python -m tools.build" in line and not started


def test_the_parser_of_count_comes_from_its_own_module(monkeypatch):
    made = types.ModuleType("iocourse.count")
    made.add_parser = lambda commands: commands.add_parser("count").set_defaults(handler=lambda arguments: 7)
    monkeypatch.setitem(sys.modules, "iocourse.count", made)
    assert main(["count"]) == 7


@pytest.mark.parametrize("name", ["count", "profile", "course.grade"])
def test_every_option_of_a_command_says_what_it_is_and_none_is_cut_short(name):
    commands = argparse.ArgumentParser().add_subparsers()
    importlib.import_module(f"iocourse.{name}").add_parser(commands)
    parser = commands.choices[name.rpartition(".")[2]]
    assert not parser.allow_abbrev and all(option.help for option in parser._actions)
