"""`tools.bench visit` without a GPU: what runs when, what is left when it is cut off, what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iocourse.cli import main
from iocourse.gpu import measured
from iocourse.refusal import Refused
from tools.bench import visit
from tools.bench.visit import install, state, tuned
from tools.bench.visit.plan import Step, limit, part_path, record_path, steps

# A measurement of five shapes, whose record grows; it says its process first, and may take its time or fail.
GROWING = """
import json, os, sys, time
print(os.getpid())
for done in range(1, 6):
    record = {"subject": "toy", "date": "1970-01-01", "versions": {}, "shapes": {"asked": 5, "done": done}}
    with open(sys.argv[1] + ".new", "w") as file:
        json.dump(record, file)
    os.replace(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


def growing(out, name, seconds=0.0, code=0, minutes=1.0):
    """A step that measures, and leaves a record."""
    command = [sys.executable, "-c", GROWING, str(part_path(out, name)), str(seconds), str(code)]
    return Step(name, "a toy", minutes, {name: command}, True)


def checks(*lines, code=0):
    """The step that checks values, which says these lines."""
    command = [sys.executable, "-c", f"print({chr(10).join(lines)!r}); raise SystemExit({code})"]
    return Step("values", "toy checks", 1, {"values-1": command, "values-2": command})


@pytest.fixture
def out(tmp_path):
    (tmp_path / "visit" / "records").mkdir(parents=True)
    return tmp_path / "visit"


@pytest.fixture
def planned(monkeypatch):
    """A function that puts steps in the place of the plan's, on a machine that has a GPU."""
    monkeypatch.setattr(visit, "no_cuda", lambda: "")

    def put(*some):
        monkeypatch.setattr(visit, "steps", lambda out, tutorial=None: list(some))

    return put


def states(out):
    return {name: one["state"] for name, one in state.load(out)["steps"].items()}


def done(out, name):
    return json.loads(record_path(out, name).read_text())["shapes"]["done"]


def test_the_plan_is_shown_without_a_gpu_and_its_minutes_are_those_asked_for(capsys, tmp_path):
    assert main(["bench", "visit", "--list", "--minutes", "30", "--out", str(tmp_path / "none")]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [step.name for step in steps(tmp_path)]
    assert sum(float(line.split()[-1]) for line in lines) == pytest.approx(30, abs=0.5)
    assert not (tmp_path / "none").exists()


def test_the_order_is_values_first_and_the_tutorial_only_where_there_is_one(tmp_path):
    names = [step.name for step in steps(tmp_path, tmp_path / "06.py")]
    assert names[:5] == ["machine", "values", "attention", "tune", "tutorial"] and names[-1] == "again"
    assert [name for name in names if name != "tutorial"] == [step.name for step in steps(tmp_path)]
    assert len(steps(tmp_path)[1].commands) == 8


def test_what_a_step_leaves_is_shared_out_among_those_to_come(tmp_path):
    toys = [growing(tmp_path, name, minutes=minutes) for name, minutes in (("a", 1), ("b", 3))]
    assert [limit(toys[0], toys, 80), limit(toys[1], toys[1:], 70)] == [20, 70]


def test_finished_steps_are_not_repeated_and_one_that_failed_is(planned, out, capsys):
    planned(growing(out, "a"), growing(out, "b", code=3), growing(out, "c"))
    assert main(["bench", "visit", "--out", str(out)]) == 0
    assert states(out) == {"a": "done", "b": "failed", "c": "done"} and done(out, "c") == 5
    first = state.load(out)["steps"]["b"]
    assert first["codes"] == {"b": 3} and first["seconds"] > 0 and sys.executable in first["commands"]["b"]
    capsys.readouterr()
    planned(growing(out, "a"), growing(out, "b"), growing(out, "c"))
    assert main(["bench", "visit", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "--- b: done" in said and "--- a" not in said and "--- c" not in said
    assert main(["bench", "visit", "--out", str(out), "--only", "a"]) == 0
    assert "--- a: done" in capsys.readouterr().out
    assert "c  done " in (out / "summary.txt").read_text()


def test_a_step_that_takes_too_long_is_cut_off_and_then_comes_last(planned, out, capsys, monkeypatch):
    monkeypatch.setattr(visit, "ENOUGH", 0.1)
    planned(growing(out, "slow", seconds=0.6), growing(out, "b"))
    assert main(["bench", "visit", "--out", str(out), "--minutes", "0.05"]) == 0
    assert states(out) == {"slow": "cut off", "b": "done"} and 1 <= done(out, "slow") < 5
    assert "slow  cut off" in (out / "summary.txt").read_text()
    planned(growing(out, "slow"), growing(out, "b"), growing(out, "late"))
    capsys.readouterr()
    assert main(["bench", "visit", "--out", str(out), "--minutes", "2"]) == 0
    said = capsys.readouterr().out
    assert said.index("--- late") < said.index("--- slow") and done(out, "slow") == 5
    assert main(["bench", "visit", "--out", str(out), "--minutes", "0.01"]) == 2
    assert "--minutes is 0.01, and" in capsys.readouterr().err


def test_a_second_try_that_gets_less_far_spoils_nothing(out):
    part = part_path(out, "a")
    for found, left in ((2, 2), (1, 2), (4, 4), (4, 4)):
        part.write_text(json.dumps({"shapes": {"asked": 5, "done": found}}))
        state.keep_better(out, "a")
        assert done(out, "a") == left and not part.exists()
    part.write_text('{"shapes": {"asked": 5, "do')
    state.keep_better(out, "a")
    assert done(out, "a") == 4


def test_a_sitting_ends_before_a_step_that_would_not_fit(planned, out, capsys):
    planned(growing(out, "a"), growing(out, "b"))
    assert main(["bench", "visit", "--out", str(out), "--minutes", "40", "--sitting", "2"]) == 0
    assert states(out) == {"a": "done"}  # with the whole sitting, and b has 40 minutes to itself
    assert state.load(out)["steps"]["a"]["limit"] == 120
    assert main(["bench", "visit", "--out", str(out), "--minutes", "40", "--sitting", "2"]) == 0
    assert states(out) == {"a": "done", "b": "done"}


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_visit
from tools.bench import visit
out = Path(sys.argv[2])
visit.no_cuda = lambda: ""
visit.steps = lambda *_: [test_visit.growing(out, "a"), test_visit.growing(out, "b", seconds=0.5)]
visit.run(False, out=out)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what ends with its parent is known on Linux")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_visit_that_is_ended_leaves_no_process_and_all_it_measured(planned, out, how):
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(out)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _until(lambda: part_path(out, "b").exists())
    running.send_signal(how)
    assert running.wait(280) != 0
    child = int((out / "logs" / "b.log").read_text().split()[0])
    _until(lambda: not _runs(child))
    assert states(out)["a"] == "done" and states(out)["b"] in ("running", "cut off")
    planned(growing(out, "a"), growing(out, "b", code=7))
    visit.run(False, out=out)
    assert states(out) == {"a": "done", "b": "failed"} and done(out, "b") == 5


def _until(holds):
    end = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(process):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


def test_wrong_values_are_said_aloud_and_nothing_is_timed(planned, out, capsys):
    wrong = checks("d=64: holds", "d=128: WRONG, errs by 7", "1 failed on a toy", code=1)
    planned(wrong, growing(out, "a"))
    assert main(["bench", "visit", "--out", str(out)]) == 1
    said = capsys.readouterr().out
    assert "VALUES ARE WRONG" in said and "d=128: WRONG, errs by 7" in said and "d=64" not in said
    assert "values-1: 1 failed on a toy" in said and states(out) == {"values": "failed"}
    assert main(["bench", "visit", "--out", str(out), "--anyway"]) == 0
    assert states(out) == {"values": "failed", "a": "done"}


def test_values_that_cannot_be_checked_stop_the_visit_too(planned, out, capsys):
    planned(checks("ImportError: no torch", code=1), growing(out, "a"))
    assert main(["bench", "visit", "--out", str(out)]) == 1
    assert "could not be checked (--anyway goes on):\nvalues-1: ImportError" in capsys.readouterr().out
    planned(Step("values", "no checks here", 1, {}), growing(out, "a"))
    assert main(["bench", "visit", "--out", str(out)]) == 1
    assert "tests/kernels/on_gpu.py is in the repository and not in the package" in capsys.readouterr().out
    planned(checks("d=64: holds"), growing(out, "a"))
    assert main(["bench", "visit", "--out", str(out)]) == 0
    assert states(out) == {"values": "done", "a": "done"}


def test_a_command_that_is_not_there_is_a_failed_step(planned, out):
    planned(Step("a", "a toy", 1, {"a": [str(out / "nothing")]}))
    visit.run(False, out=out)
    assert states(out) == {"a": "failed"} and "No such file" in (out / "logs" / "a.log").read_text()


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--minutes", "0"], "--minutes is 0; allowed: more than 0"),
        (["--minutes", "-3"], "--minutes is -3; allowed: more than 0"),
        (["--minutes", "nan"], "--minutes is nan; allowed: more than 0"),
        (["--sitting", "0"], "--sitting is 0; allowed: more than 0"),
        (["--only", "speed"], "--only 'speed' is no step of this visit; allowed: a"),
        (["--tutorial", "nowhere.py"], "--tutorial nowhere.py is no file"),
        (["--quick"], "--quick is not for visit"),
    ],
)
def test_bad_arguments_are_refused(planned, out, capsys, arguments, complaint):
    planned(growing(out, "a"))
    assert main(["bench", "visit", "--out", str(out), *arguments]) == 2
    assert complaint in capsys.readouterr().err and not (out / "visit.json").exists()


def test_without_a_gpu_it_is_refused(monkeypatch, out, capsys):
    monkeypatch.setattr(visit, "no_cuda", lambda: "there is no GPU in this test")
    assert main(["bench", "visit", "--out", str(out)]) == 2
    assert "there is no GPU in this test, and a visit times kernels" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_or_is_in_use_is_refused(planned, out, tmp_path, capsys):
    planned(growing(out, "a"))
    (tmp_path / "file").write_text("mine")
    assert main(["bench", "visit", "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written (File exists)" in capsys.readouterr().err
    with state.alone(out):
        assert main(["bench", "visit", "--out", str(out)]) == 2
    assert "is in use by another visit" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"steps": {}}', '{"seconds": 0, "steps": {"a": {"state": "?"}}}']
)
def test_a_state_that_cannot_be_read_is_refused_and_left(planned, out, capsys, text):
    planned(growing(out, "a"))
    (out / "visit.json").write_text(text)
    assert main(["bench", "visit", "--out", str(out)]) == 2
    assert "is not the state of a visit" in capsys.readouterr().err
    assert (out / "visit.json").read_text() == text


def test_the_steps_run_compiled_and_say_what_they_do_at_once(planned, out):
    show = "import os; print(os.environ['TRITON_INTERPRET'], os.environ['PYTHONUNBUFFERED'])"
    planned(Step("a", "a toy", 1, {"a": [sys.executable, "-c", show]}))
    visit.run(False, out=out)
    assert (out / "logs" / "a.log").read_text() == "0 1\n" and os.environ["TRITON_INTERPRET"] == "1"


# Records, where lessons read them.


@pytest.fixture
def package(monkeypatch, tmp_path):
    monkeypatch.setattr(install, "FOLDER", tmp_path / "package")
    return tmp_path / "package"


def put(path, **facts):
    record = {"subject": "decode", "date": "1970-01-01", "versions": {}, "device": {"name": "a toy"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record | {"shapes": {"asked": 6, "done": 6}} | facts))


def test_a_record_is_installed_and_never_in_the_place_of_more(out, package, capsys):
    put(record_path(out, "decode"), quick=True)
    assert main(["bench", "visit", "--install", "--out", str(out)]) == 0
    assert "git add iocourse/data/bench" in capsys.readouterr().out
    assert json.loads((package / "decode.json").read_text())["quick"] is True
    for held in ({"quick": False}, {"quick": False, "shapes": {"asked": 6, "done": 2}}):
        put(package / "decode.json", **held)
        (line,) = install.install(out, steps(out))
        assert "is left as it is: it holds more than" in line
    put(record_path(out, "decode"), quick=False, shapes={"asked": 6, "done": 5})
    assert "written" in install.install(out, steps(out))[0]


def test_what_is_no_record_is_not_installed(out, package):
    with pytest.raises(Refused, match="holds no record"):
        install.install(out, steps(out))
    put(record_path(out, "decode"), subject="varlen")
    with pytest.raises(Refused, match="is no record of bench decode"):
        install.install(out, steps(out))
    assert not package.exists()


FASTER = {"arch": 90, "kernel": "forward", "d": 64, "itemsize": 2, "causal": True, "tile": [64, 32, 4, 2]}


def test_tiles_that_tune_found_are_timed_once_more_and_then_shipped(out, package):
    again, tune = steps(out)[-1], record_path(out, "tune")
    for tiles, why in ((None, "tune has left no record"), ([], "no tile that is worth"), ([FASTER], "")):
        if tiles is not None:
            put(tune, subject="tune", kernels=[], asked=1, tiles=tiles)
        assert why in visit.needless(out, again) and bool(why) == bool(visit.needless(out, again))
    for name in ("attention", "again"):
        put(record_path(out, name), subject="attention", which=name)
    tune.rename(tune.with_suffix(".later"))
    for found, which in ((False, "attention"), (True, "again")):
        if found:
            tune.with_suffix(".later").rename(tune)
        install.install(out, steps(out))
        assert json.loads((package / "attention.json").read_text())["which"] == which
    assert json.loads((package / "tune.json").read_text())["tiles"] == [FASTER]


def test_the_step_again_takes_them_and_nonsense_is_not_shipped(out, package, monkeypatch):
    mine = {}
    monkeypatch.setattr(measured, "measured", lambda: mine)
    tuned.take({"tiles": [FASTER]})
    assert mine == {(90, "forward", 64, 2, True): (64, 32, 4, 2)}
    put(record_path(out, "tune"), subject="tune", kernels=[], asked=1, tiles=[FASTER | {"tile": [48] * 4}])
    with pytest.raises(Refused, match=r"the measured tile \[48, 48, 48, 48\] of forward cannot run on sm_90"):
        install.install(out, steps(out))
    assert not package.exists()


def test_the_summary_names_the_tiles_that_tune_found(out):
    put(record_path(out, "tune"), subject="tune", kernels=[], asked=1, tiles=[FASTER])
    said = visit.show(visit._record(out, steps(out), state.load(out), 45.0))
    assert "  forward, d = 64, causal: 64×32×4×2" in said
