"""Tests of `python -m iocourse.schedules NAME`, which runs one schedule on a small input."""

import os
import subprocess
import sys

import pytest

from iocourse.schedules import REGISTRY, report
from iocourse.schedules.__main__ import main

# Runs every schedule after hiding all packages but NumPy and this one.
NUMPY_ALONE = """
import contextlib, io, runpy, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {"numpy", "iocourse", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)

sys.meta_path.insert(0, Hidden())
from iocourse.schedules import REGISTRY
for name in REGISTRY:
    sys.argv = ["schedules", name, "--N", "20"]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        runpy.run_module("iocourse.schedules", run_name="__main__", alter_sys=True)
    assert "emulator: the same words moved" in printed.getvalue(), name
print(len(REGISTRY))
"""


def python(*arguments, cwd, **how):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=280, **how)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_schedule_prints_its_traffic_its_errors_and_a_bound(name, capsys):
    assert main([name]) == 0
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert REGISTRY[name].__doc__.startswith(first) and first.endswith(".")
    assert second.startswith(f"{name} at N=128, d=8, M=512")
    (bound,) = [line for line in rest if line.startswith("lower bound (")]
    assert float(bound.rpartition("ratio ")[2]) >= 1
    (moved,) = [line for line in rest if line.endswith("in fast memory at once")]
    (run,) = [line for line in rest if line.startswith("emulator: ")]
    footprint = moved.split("at most ")[1].split()[0]
    assert run.startswith(f"emulator: the same words moved, peak {footprint} words, largest error against ")
    assert run.endswith((" below 1e-12", " below 1e-11"))
    softmax = [line for line in rest if line.startswith("largest error against softmax attention")]
    assert len(softmax) == (REGISTRY[name].approximates is not None)


def test_sizes_can_be_chosen(capsys):
    assert main(["flash2", "--N", "50", "--d", "4", "--M", "99"]) == 0
    assert "flash2 at N=50, d=4, M=99, tiles Br=8, Bc=1\n" in capsys.readouterr().out


def test_without_a_name_it_lists_all(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.split() == list(REGISTRY)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["flash3"], "unknown schedule 'flash3'; known schedules are naive, flash2, "),
        (["flash2", "--N", "0"], "N must be at least 1, got 0"),
        (["block_sparse", "--N", "0"], "N must be at least 1, got 0"),
        (
            ["flash2", "--M", "34"],
            "M = 34 is too small for flash2 with N = 128, d = 8. It needs at least M = 35",
        ),
    ],
)
def test_a_bad_argument_is_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"python -m iocourse.schedules: {said}")


def test_another_traffic_than_that_of_the_closed_form_is_told_per_array(capsys, monkeypatch):
    honest = report.run

    def other_words(*args, **kwargs):
        done = honest(*args, **kwargs)
        done.ledger.reads["K"] *= 2
        done.ledger.peak += 1
        return done

    monkeypatch.setattr(report, "run", other_words)
    assert main(["flash2"]) == 1
    *_, run, keys, peak = capsys.readouterr().out.splitlines()
    assert run.startswith("emulator: not the words of the closed form, peak 511 words, ")
    assert keys.startswith("K read 10×, closed form ") and keys.endswith(" 5×")
    assert peak.startswith("peak of fast memory 511 words, closed form ") and peak.endswith(" 510")


def test_it_runs_in_another_folder_without_a_warning_in_any_encoding(tmp_path):
    for encoding in ("utf-8", "ascii"):
        done = python(
            *("-X", "utf8=0", "-W", "error", "-m", "iocourse.schedules", "naive"),
            cwd=tmp_path,
            env=os.environ | {"PYTHONIOENCODING": encoding},
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert ("P = softmax(S)" in done.stdout) and ("√" in done.stdout) == (encoding == "utf-8")


def test_numpy_alone_is_enough(tmp_path):
    done = python("-W", "error", "-c", NUMPY_ALONE, cwd=tmp_path)
    assert (done.stdout.strip(), done.returncode) == (str(len(REGISTRY)), 0), done.stderr
