"""Tests of `iocourse gpu` with a stub in place of a GPU: no time in these tests is a measurement."""

import json
import os
import sys
import time
import types
from pathlib import Path

import pytest
from command_line import refused
from fake_gpu import needs_the_interpreter
from own_gpu_stub import HOST_MS, LAP_MS, SMALL, InterpretedCpu

import iocourse
from iocourse.cli import main
from iocourse.course import own_gpu
from iocourse.course.own_gpu import compiled_run, timed_problems
from iocourse.course.own_gpu.compiled_run import NotTimed, Wrong, launcher_of, report_of, run_compiled
from iocourse.course.own_gpu.saved_answers import NoAnswer, SavedAnswers
from iocourse.course.own_gpu.timed_problems import PROBLEMS
from iocourse.data.records import NAMES, load_record
from iocourse.gpu import roofline

ROOT = Path(iocourse.__file__).parents[1]
STUB = Path(__file__).parents[1] / "own_gpu_stub.py"
LESSON_11 = next((ROOT / "solutions").glob("11_*.ipynb"))
EXERCISES = sorted(PROBLEMS)
NO_CUDA = "there is no CUDA device that torch can use here"


@pytest.fixture(scope="module")
def solved():
    """The answers of the solved notebooks."""
    return SavedAnswers(sorted((ROOT / "solutions").glob("1[0-3]*.ipynb")))


@pytest.fixture
def default_device():
    """Undo the default device that a run sets in this process."""
    needs_the_interpreter()
    import torch

    yield
    torch.set_default_device(None)


@pytest.fixture
def stubbed(monkeypatch):
    """Replace the GPU in the second process by the stub; returns a function to add an argument."""
    needs_the_interpreter()
    monkeypatch.setattr(own_gpu, "what_to_install", lambda: "")
    monkeypatch.setattr(own_gpu, "cuda_unavailable_reason", lambda: "")

    def start(*arguments):
        run = f"import runpy, sys; sys.argv = {['stub', *arguments]!r}; sys.path[:0] = {sys.path!r}; "
        monkeypatch.setattr(
            compiled_run, "PROGRAM", f"{run}runpy.run_path({str(STUB)!r}, run_name='__main__')"
        )

    start()
    return start


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(own_gpu, "what_to_install", lambda: "")
    monkeypatch.setattr(own_gpu, "cuda_unavailable_reason", lambda: NO_CUDA)


@pytest.fixture
def no_copies(tmp_path, monkeypatch):
    """Run in the root of a checkout without a student's copies; returns it."""
    (tmp_path / "lessons").symlink_to(ROOT / "lessons")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "iocourse"\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(folder, exercise, change, source=LESSON_11):
    """Return the path of a solved notebook in which the answer to an exercise is changed."""
    notebook = json.loads(source.read_text(encoding="utf-8"))
    cell = next(one for one in notebook["cells"] if one["metadata"].get("name") == f"ex-{exercise}")
    before = "".join(cell["source"])
    cell["source"] = change(before)
    assert cell["source"] != before
    path = folder / source.name
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


def run(path, exercise="11B"):
    """Run an exercise of a notebook in this process, with the stub."""
    return report_of(exercise, SavedAnswers([path]).cells_of(exercise), InterpretedCpu())


# --- problems --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", EXERCISES)
def test_every_solved_exercise_passes_with_the_words_of_the_closed_form(solved, default_device, exercise):
    from iocourse import traffic
    from iocourse.course.exercise import find
    from iocourse.course.own_gpu.timed_problems import Draw

    problem, cells = PROBLEMS[exercise], solved.cells_of(exercise)
    report = report_of(exercise, cells, InterpretedCpu())
    assert report["error"] <= problem.allowed and report["ms"] == LAP_MS and report["host_ms"] == HOST_MS
    launcher = launcher_of(find(exercise).function, cells, InterpretedCpu())
    inputs = problem.inputs(SMALL[exercise], Draw("cpu", problem.dtype))
    with traffic.count() as ledger:
        launcher(*inputs.arguments)
    words = problem.words(SMALL[exercise])
    assert (ledger.read, ledger.written) == (words.read, words.written)
    assert report["compulsory_bytes"] <= report["requested_bytes"] == problem.requested_bytes(SMALL[exercise])


def test_bytes_and_flop_are_those_of_the_formulas():
    N, d, BM = (PROBLEMS["11B"].sizes[name] for name in ("N", "d", "BM"))
    assert PROBLEMS["11B"].requested_bytes(PROBLEMS["11B"].sizes) == 4 * (2 * N * d + 2 * N * d * N // BM + N)
    for exercise, pass_ in (("11A", "forward"), ("11F", "forward"), ("12D", "backward")):
        at = PROBLEMS[exercise].sizes
        flop = roofline.flops(pass_, B=1, H=at.get("H", 1), N=at["N"], d=at["d"])
        assert PROBLEMS[exercise].flop(at) == flop
    one_product = {PROBLEMS[id].flop(at) / n for id, n in (("12B", 3), ("12C", 4), ("12D", 5))}
    assert one_product == {2 * at["H"] * at["N"] ** 2 * at["d"]}  # at: sizes of 12D
    at = PROBLEMS["13C"].sizes
    N, w = at["N"], at["window"]
    assert PROBLEMS["13C"].flop(at) == PROBLEMS["11C"].flop(at) == 4 * at["d"] * (N * w - w * (w - 1) // 2)
    half = PROBLEMS["11F"]
    assert half.requested_bytes(half.sizes) < 2.1 * half.words(half.sizes).total


def test_recorded_rates_are_those_of_the_records():
    answers = {row["answer"]: row for row in load_record("answers")["rows"]}
    one = PROBLEMS["11B"].recorded()
    assert one.rate == answers["float32 ieee 64x32 w4"]["tflops"] and "H200" in one.source
    assert answers["float32 ieee 64x32 w4"]["N"] == PROBLEMS["11B"].sizes["N"]
    assert (PROBLEMS["11B"].sizes["BM"], PROBLEMS["11B"].sizes["BN"]) == (64, 32)
    half, at = PROBLEMS["11F"].recorded(), PROBLEMS["11F"].sizes
    assert half.rate == answers["reference"]["tflops"]
    problem = load_record("answers")["problem"]
    assert f"N = {at['N']:,}, d = {at['d']}, not causal, {at['BM']} x {at['BN']}" in problem
    assert PROBLEMS["12A"].recorded().rate == 1000 * load_record("roofs")["copy_tb_s"]


def test_recorded_lines_say_what_was_run():
    said = {exercise: PROBLEMS[exercise].recorded().text for exercise in EXERCISES}
    for exercise in ("10B", "10C", "12A"):
        assert said[exercise] == "torch copies 4 GiB (no kernel of this exercise)"
    for exercise in ("11A", "11B"):
        assert said[exercise] == "a float32 forward kernel of this size and tile: 1.995 ms"
    assert said["11F"] == "the reference answer of 11F: 0.658 ms"
    # A float32 run is recorded for 11A and 11B, so no other line may claim that all records have 16 bits.
    assert {said[one] for one in EXERCISES if not PROBLEMS[one].recorded().rate} == {
        "not recorded in float32"
    }


def test_no_record_has_the_kernels_that_are_called_not_recorded():
    without = [one for one in PROBLEMS.values() if one.recorded().rate is None]
    assert {one.dtype for one in without} == {"float32"}
    records = [load_record(name) or {} for name in NAMES if name != "answers"]
    types_ = {row.get("dtype") for record in records for row in record.get("rows", ()) if "tflops" in row}
    assert "float32" not in types_


def test_lines_about_the_interpreter_are_replaced_in_every_lesson(solved):
    for exercise in EXERCISES:
        text = "\n".join(source for _, source, _ in solved.cells_of(exercise))
        for old, new in compiled_run.COMPILED_INSTEAD.items():
            assert text.count(old) == 1, exercise
            text = text.replace(old, new)
        assert "INTERPRET" in text and '"] = "1"' not in text


# --- faults of an answer ---------------------------------------------------------------------------------


def test_wrong_values_are_not_timed(tmp_path, default_device):
    path = changed(tmp_path, "11B", lambda text: text.replace("seen = seen &", "seen = seen |"))
    assert run(path)["ms"] == LAP_MS  # only the causal mask is wrong, which is not timed
    path = changed(tmp_path, "11B", lambda text: text.replace("l = l * old +", "l = l +"))
    with pytest.raises(Wrong, match=r"wrong values: O has an error of .* allowed 6.1e-05. Run its check"):
        run(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("return O, LSE", "return O"), "it must return 2 tensors: O, LSE"),
        (lambda text: text.replace("return O, LSE", "return O[:-9], LSE"), "results of wrong shapes"),
        (lambda text: text.replace("return O, LSE", "return O / 0, LSE"), "values that are not finite in O"),
        (lambda text: text.replace("N, d = Q.shape", "1 / 0"), "it raises ZeroDivisionError"),
        (lambda text: text.replace("N, d = Q.shape", "raise NotImplementedError"), "not solved: it raises"),
        (lambda text: text + "\n1 / 0", r"cell \d+ raises ZeroDivisionError: division by zero"),
        (lambda text: text + "\ndel my_two_loops", "no cell defines my_two_loops"),
    ],
)
def test_the_reason_is_named(tmp_path, default_device, change, reason):
    with pytest.raises(NotTimed, match=reason):
        run(changed(tmp_path, "11B", change))


def test_an_error_in_the_answer_to_another_exercise_passes(tmp_path, default_device):
    assert run(changed(tmp_path, "11A", lambda text: text + "\n1 / 0"))["ms"] == LAP_MS


def test_unsolved_and_missing_answers(tmp_path):
    lesson = ROOT / "lessons" / LESSON_11.name
    with pytest.raises(NoAnswer, match=r"not solved: its cell is unchanged. Is the notebook saved\?"):
        SavedAnswers([lesson]).cells_of("11B")
    with pytest.raises(
        NoAnswer, match=r"no notebook of lesson 10_triton_basics in .*11_.*; pass it with --file"
    ):
        SavedAnswers([lesson]).cells_of("10D")
    path = changed(tmp_path, "11B", lambda text: "")
    notebook = json.loads(path.read_text())
    notebook["cells"] = [one for one in notebook["cells"] if one["metadata"].get("name") != "ex-11B"]
    path.write_text(json.dumps(notebook))
    with pytest.raises(NoAnswer, match=r"no code cell defines my_two_loops$"):
        SavedAnswers([path]).cells_of("11B")


def test_files_that_are_not_notebooks_of_the_course(tmp_path):
    (tmp_path / "bad.ipynb").write_text("{")
    (tmp_path / "other.ipynb").write_text('{"cells": [], "metadata": {}}')
    files = [tmp_path / name for name in ("bad.ipynb", "other.ipynb", "missing.ipynb")]
    faults = list(SavedAnswers(files).faults.values())
    assert faults[0].startswith("not a valid notebook") and faults[1].startswith("no exercise that")
    assert faults[2].startswith("cannot read the file")


def test_copies_in_the_work_folder_are_found(tmp_path, monkeypatch):
    (tmp_path / "lessons").mkdir()
    for name in ("00_start_here", LESSON_11.stem, "12_flash_attention_backward_triton"):
        (tmp_path / "lessons" / f"{name}.ipynb").write_bytes(
            (ROOT / "lessons" / f"{name}.ipynb").read_bytes()
        )
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "iocourse"\n')
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine.ipynb").write_bytes(LESSON_11.read_bytes())
    for name in ("00_start_here", "12_flash_attention_backward_triton"):
        (tmp_path / "work" / f"{name}.ipynb").write_text("{")
    monkeypatch.chdir(tmp_path)
    answers = SavedAnswers([])
    assert answers.cells_of("11B")[-1][2]
    (fault,) = answers.faults  # lesson 00 has no kernel
    assert Path(fault).name == "12_flash_attention_backward_triton.ipynb"


# --- the second process ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("import os; os._exit(3)", "the second process ended with exit code 3: no error was printed"),
        ("import os; os.abort()", "exit code -6"),
        ("import sys; sys.exit('no triton')", "exit code 1: no triton"),
        ("print('not a report')", "exit code 0"),
    ],
)
def test_a_process_that_dies_is_one_line(monkeypatch, program, fault):
    monkeypatch.setattr(compiled_run, "PROGRAM", program)
    said = run_compiled("11B", [])["fault"]
    assert fault in said and "\n" not in said


def test_a_process_that_hangs_ends_with_all_that_it_has_started(monkeypatch, tmp_path):
    file = tmp_path / "pid"
    starts = "import subprocess, time; from pathlib import Path; p = subprocess.Popen(['sleep', '60']); "
    program = f"{starts}Path({str(file)!r}).write_text(str(p.pid)); time.sleep(60)"
    monkeypatch.setattr(compiled_run, "PROGRAM", program)
    monkeypatch.setattr(compiled_run, "SECONDS", 2.0)
    said = run_compiled("11B", [])["fault"]
    assert said == "not finished after 2 seconds. Does every loop of the kernel end?"
    pid = int(file.read_text())
    for _ in range(100):
        if not _alive(pid):
            return
        time.sleep(0.05)
    pytest.fail("a process is left behind")


def _alive(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_the_command_prints_values_time_and_rates(stubbed, capsys):
    stubbed("late")
    files = ["--file", str(LESSON_11), "--file", "missing.ipynb"]
    assert main(["gpu", "11b", "10A", "12B", "--tflops", "0.001", *files]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    problem, small = PROBLEMS["11B"], SMALL["11B"]
    rate = problem.flop(small) / LAP_MS / 1e9
    requested = problem.requested_bytes(small) / LAP_MS / 1e6
    for part in (
        "missing.ipynb: cannot read the file: No such file or directory\n",
        "11B: float32, N = 8,192, d = 64, BM = 64, BN = 32, not causal\n  your prediction  0.00 TFLOP/s\n",
        "no GPU but a test",
        "of the largest entry, allowed 6.1e-05\n",
        "2.000 ms, quartiles 2.000 and 2.000 ms, 200 laps",
        f"warning          {own_gpu.LATE}",
        f"rate             {rate:.2f} TFLOP/s, {rate / 0.001:.2f} of the prediction, 0.00 of the recorded",
        f"MB, {requested:,.1f} GB/s",
        f"recorded         {problem.recorded().rate:.2f} TFLOP/s  {problem.recorded().text}\n",
        "10A: it is not timed. Choose from 10B, 10C, ",
        "12B: no notebook of lesson 12",
    ):
        assert part in out
    assert out.index("your prediction") < out.index("device")


def test_wrong_values_print_no_time(stubbed, capsys, tmp_path):
    path = changed(tmp_path, "11B", lambda text: text.replace("l = l * old +", "l = l +"))
    assert main(["gpu", "11B", "--file", str(path), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["not_run"] == "" and said["exercises"][0]["fault"].startswith("wrong values: O")
    assert "ms" not in said["exercises"][0] and said["exercises"][0]["predicted"] is None


def test_nothing_solved_is_one_line(stubbed, capsys):
    assert main(["gpu", "--file", str(ROOT / "lessons" / LESSON_11.name)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("exercises: none that can be timed is solved in ") and out.count("\n") == 1


def test_the_notebook_of_colab_is_fetched(stubbed, capsys, monkeypatch):
    notebook = json.loads((ROOT / "lessons" / LESSON_11.name).read_text(encoding="utf-8"))
    request = lambda name, timeout_sec: {"ipynb": notebook} if name == "get_ipynb" else None  # noqa: E731
    message = types.SimpleNamespace(blocking_request=request)
    monkeypatch.setitem(sys.modules, "google.colab", types.SimpleNamespace(_message=message))
    own_gpu.time_in_colab("11B", tflops=1)
    assert capsys.readouterr().out == "11B: not solved: its cell is unchanged. Is the notebook saved?\n"
    for wrong in ({"tflops": -1}, {"tflops": float("nan")}, {"gbytes": 30}):
        own_gpu.time_in_colab("11B", **wrong)
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("iocourse gpu: ") and err.count("\n") == 1


# --- without a GPU, and the GPU itself -------------------------------------------------------------------


RECORDED = "11B  8.61 TFLOP/s  a float32 forward kernel of this size and tile: 1.995 ms"
NOT_RUN = f"No kernel was run, because {NO_CUDA}."


def no_gpu(capsys, *arguments):
    """Return the exit code and the printed lines of the command; nothing may be on standard error."""
    code = main(["gpu", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return code, out.splitlines()


def test_without_cuda_one_line_and_the_record(no_cuda, no_copies, capsys):
    source = PROBLEMS["11B"].recorded().source
    code, lines = no_gpu(capsys, "11B", "12B", " 11b ")
    assert code == 0 and lines[:2] == [f"{NOT_RUN} Recorded runs:", RECORDED]
    assert lines[2].split(maxsplit=1) == ["12B", "not recorded in float32"] and lines[3:] == [source]
    code, lines = no_gpu(capsys)
    assert code == 0 and len(lines) == len(PROBLEMS) + 2
    assert all(len(line) <= 80 for line in lines[1:-1])


def test_files_are_read_without_a_gpu(no_cuda, capsys, tmp_path):
    broken, text, empty = tmp_path / "broken.ipynb", tmp_path / "a.txt", tmp_path / "empty.ipynb"
    for path, content in ((broken, "{"), (text, "solved"), (empty, "")):
        path.write_text(content)
    for path, fault in (
        (broken, "not a valid notebook"),
        (text, "not a valid notebook"),
        (empty, "not a valid notebook"),
        (tmp_path, "cannot read the file: Is a directory"),
        (tmp_path / "missing.ipynb", "cannot read the file: No such file"),
        (next((ROOT / "lessons").glob("00_*.ipynb")), "no exercise that can be timed is in the notebook"),
    ):
        code, lines = no_gpu(capsys, "11B", "--file", str(path))
        assert code == 1 and lines[0].startswith(f"{path}: {fault}"), path
        assert lines[1:3] == [f"{NOT_RUN} Recorded runs:", RECORDED]
        code, lines = no_gpu(capsys, "--file", str(path))
        assert code == 1 and lines[1].startswith(NOT_RUN)
    assert main(["gpu", "11B", "--json", "--file", str(broken)]) == 1
    file, exercise = json.loads(capsys.readouterr().out)["exercises"]
    assert file["exercise"] == str(broken) and "fault" in file and "fault" not in exercise


def test_a_broken_copy_of_another_lesson_is_a_line_and_no_failure(no_cuda, no_copies, capsys):
    (no_copies / "work").mkdir()
    (no_copies / "work" / LESSON_11.name).write_bytes(LESSON_11.read_bytes())
    broken = no_copies / "work" / "12_flash_attention_backward_triton.ipynb"
    broken.write_text("{")
    line = f"{broken}: not a valid notebook"
    for asked, wanted in ((["11B"], 0), (["11B", "12B"], 1), (["12B"], 1), ([], 1)):
        code, lines = no_gpu(capsys, *asked)
        assert code == wanted and sum(one.startswith(line) for one in lines) == 1, asked
    assert main(["gpu", "11B", "--json"]) == 0
    file, exercise = json.loads(capsys.readouterr().out)["exercises"]
    assert file["exercise"] == str(broken) and not file["requested"] and "fault" not in exercise


def test_answers_are_judged_without_a_gpu(no_cuda, no_copies, capsys):
    assert no_gpu(capsys, "11B", "--file", str(LESSON_11))[0] == 0
    code, lines = no_gpu(capsys, "11B", "--file", str(ROOT / "lessons" / LESSON_11.name))
    assert code == 1 and lines[:2] == [
        "11B: not solved: its cell is unchanged. Is the notebook saved?",
        f"{NOT_RUN} Recorded runs:",
    ]
    code, lines = no_gpu(capsys, "--file", str(ROOT / "lessons" / LESSON_11.name))
    assert code == 1 and lines[0].startswith("exercises: none that can be timed is solved in ")
    code, lines = no_gpu(capsys, "12B", "--file", str(LESSON_11))
    assert code == 1 and lines[0].startswith("12B: no notebook of lesson 12_flash") and len(lines) == 3
    (no_copies / "work").mkdir()  # with unsolved copies, as `iocourse lab` makes them
    (no_copies / "work" / LESSON_11.name).write_bytes((ROOT / "lessons" / LESSON_11.name).read_bytes())
    assert no_gpu(capsys)[0] == 0
    assert no_gpu(capsys, "11B")[1][0] == "11B: not solved: its cell is unchanged. Is the notebook saved?"


def test_a_prediction_is_printed_next_to_the_record(no_cuda, no_copies, capsys):
    code, lines = no_gpu(capsys, "11B", "10B", "--tflops", "30")
    assert code == 0 and lines[1] == RECORDED.replace("FLOP/s", "FLOP/s, your prediction 30.00 TFLOP/s")
    assert lines[2].startswith("10B  4,294 GB/s") and "prediction" not in lines[2]
    assert main(["gpu", "--gbytes", "4000", "--json"]) == 0
    said = {one["exercise"]: one["predicted"] for one in json.loads(capsys.readouterr().out)["exercises"]}
    assert {one for one, predicted in said.items() if predicted == 4000} == {"10B", "10C", "12A"}
    assert said["11B"] is None


@pytest.mark.parametrize("device", ["no_cuda", "stubbed"])
def test_a_prediction_in_the_wrong_unit_names_the_right_option(request, capsys, device):
    request.getfixturevalue(device)
    lesson_11 = ["--file", str(LESSON_11)]
    for arguments, line in (
        (["10B", "12A", "--tflops", "30"], "--tflops: the rate of 10B, 12A is in GB/s; use --gbytes"),
        (["11B", "--tflops", "1", "--gbytes", "9"], "--gbytes: the rate of 11B is in TFLOP/s; use --tflops"),
    ):
        assert refused(capsys, main, "gpu", *arguments, *lesson_11) == f"iocourse gpu: {line}\n"


@pytest.mark.parametrize("rate", ["0", "-1", "inf", "nan", "1e999", ""])
def test_rates_without_meaning_are_refused(capsys, rate):
    for option in ("--tflops", "--gbytes"):
        said = refused(capsys, main, "gpu", f"{option}={rate}")
        assert f"argument {option}: expected a number above 0, got {rate!r}" in said


@pytest.mark.parametrize(
    ("exercise", "fault"),
    [
        ("99", "99: the course has no exercise of this name. Choose from 10B, "),
        ("", "'': the course has no exercise of this name. Choose from 10B, "),
        ("11e", "11E: it is not timed. Choose from 10B, "),
    ],
)
def test_a_wrong_exercise_is_named_first(no_cuda, no_copies, capsys, exercise, fault):
    code, lines = no_gpu(capsys, exercise)
    assert code == 1 and lines[0].startswith(fault) and lines[1:] == [NOT_RUN]
    code, lines = no_gpu(capsys, "11B", exercise)
    assert code == 1 and lines[0].startswith(fault) and lines[1:3] == [f"{NOT_RUN} Recorded runs:", RECORDED]


def test_the_help_lists_the_exercises_and_what_happens_without_a_gpu(capsys):
    with pytest.raises(SystemExit):
        main(["gpu", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    of_bytes = [exercise for exercise in PROBLEMS if PROBLEMS[exercise].unit == "GB/s"]
    assert f"one of {', '.join(PROBLEMS)} (default" in said and "Without a GPU, " in said
    assert of_bytes == ["10B", "10C", "12A"] and "predict for 10B, 10C and 12A" in said
    assert "Save the notebook first" in said
    assert refused(capsys, main, "gpu", "--bogus").endswith("--bogus (see iocourse gpu --help)\n")


def test_without_triton_the_line_names_how_to_install_it(capsys, monkeypatch):
    monkeypatch.setattr(
        own_gpu, "what_to_install", lambda: "triton is not installed here: pip install triton"
    )
    assert main(["gpu", "11B"]) == 0
    assert "because triton is not installed here: pip install triton. Rec" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("capability", "hip", "reason"),
    [
        ((7, 0), None, "Tesla has compute capability 7.0; use an NVIDIA GPU of 7.5"),
        ((9, 0), "6.0", "Tesla is not an NVIDIA GPU"),
        ((12, 0), None, ""),
    ],
)
def test_a_gpu_that_is_too_old_is_named(monkeypatch, capability, hip, reason):
    needs_the_interpreter()
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    if not reason:
        assert compiled_run.CudaDevice().facts().startswith("Tesla (sm_120), Python ")
        return
    with pytest.raises(NotTimed, match=reason):
        compiled_run.CudaDevice().facts()


@pytest.mark.parametrize("where", ["facts", "wait", "errors"])
def test_too_little_memory_is_one_line(monkeypatch, capfd, default_device, solved, where):
    import torch

    def full(*_, **__):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate\n2 GiB")

    class Full(InterpretedCpu):
        pass

    if where == "errors":  # while values are compared
        monkeypatch.setattr(timed_problems, "compared", full)
    else:
        monkeypatch.setattr(Full, where, full)
    job = json.dumps(["11B", solved.cells_of("11B")])
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(read=lambda: job))
    kept = os.dup(1)
    try:
        compiled_run.main(Full())
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    out = capfd.readouterr().out  # in this process with the output of the cells
    assert json.loads(out[out.index("{") :]) == {"fault": compiled_run.MEMORY}
