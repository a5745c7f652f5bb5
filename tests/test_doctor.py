"""Tests of the doctor: its report, that it runs without any package, and that its self-test can fail."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from iocourse import doctor
from iocourse.doctor import install_command

ROOT = Path(__file__).parents[1]
ALL = {name: "9.9" for name in doctor.PACKAGES}


def with_packages(monkeypatch: pytest.MonkeyPatch, **versions: str | None) -> None:
    """Make the doctor report these versions as installed (None: not installed), and 9.9 for all others."""
    monkeypatch.setattr(doctor, "installed", {**ALL, **versions}.get)


def prints(monkeypatch: pytest.MonkeyPatch, *, kernel: str = "328350.0", gpu: str = "null") -> None:
    """Make the processes that the doctor starts print this text."""
    monkeypatch.setattr(doctor, "_python", lambda *arguments, **_: gpu if arguments[0] == "-c" else kernel)


@pytest.fixture(scope="module")
def here() -> doctor.Report:
    return doctor.inspect_environment()


def test_versions_are_those_installed(here: doctor.Report):
    for name, version in here.packages.items():
        if version is not None:
            assert version == metadata.version(name)
            assert f"{name:<12} {version}" in str(here)
    assert here.packages["numpy"] is not None


def test_examining_loads_nothing_into_this_process():
    code = "import sys, iocourse.doctor as d; d.inspect_environment(); "
    code += "print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_json_and_text_say_the_same(here: doctor.Report):
    facts = json.loads(here.to_json())
    assert list(facts) == [
        "iocourse", "python", "platform", "packages", "gpu", "gpu_note", "ncu", "interpreter",
        "advice",
    ]  # fmt: skip
    assert facts["packages"] == here.packages
    assert all(f"- {line}" in str(here) for line in facts["advice"])
    assert repr(here) == str(here)


def test_the_interpreter_gives_the_known_answer_here(here: doctor.Report):
    for name in ("torch", "triton"):
        if here.packages[name] is None:
            pytest.skip(f"{name} is not installed")
    problem = doctor.cannot_interpret(here.packages["triton"], here.packages["numpy"])
    if problem:
        assert here.interpreter == f"failed: {problem}"
        pytest.skip(problem)
    assert here.interpreter == "passed: the kernel returned 328350, as expected"


def test_without_torch_and_triton_nothing_is_started(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch, torch=None, triton=None)
    monkeypatch.setattr(doctor, "_python", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.setattr(sys, "platform", "linux")
    report = doctor.inspect_environment()
    assert report.interpreter == "skipped: triton is not installed"
    assert report.gpu is None
    assert "torch is not installed" in report.gpu_note
    assert report.advice[-1].endswith(f" need torch and triton: {install_command.command('triton')}")


def test_torch_alone_is_missing(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch, torch=None)
    assert doctor.inspect_environment().interpreter == "skipped: torch is not installed"


def test_where_triton_has_no_wheels_nobody_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch, torch=None, triton=None)
    monkeypatch.setattr(sys, "platform", "darwin")
    report = doctor.inspect_environment()
    assert "Linux only" in str(report)
    assert '"triton' not in str(report)
    assert f"trains a small model, which needs torch: {install_command.command('torch')}" in str(report)


def test_numba_is_offered_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch)
    prints(monkeypatch)
    assert "faster with Numba" not in str(doctor.inspect_environment())
    with_packages(monkeypatch, numba=None)
    line = install_command.command("fast")
    assert f"is much faster with Numba: {line}" in str(doctor.inspect_environment())


@pytest.mark.parametrize("name", ["anywidget", "matplotlib", "ipywidgets", "jupyterlab"])
def test_advice_names_the_command_for_what_is_missing(monkeypatch: pytest.MonkeyPatch, name: str):
    with_packages(monkeypatch, **{name: None})
    prints(monkeypatch)
    report = doctor.inspect_environment()
    assert f"{name:<12} not installed" in str(report)
    line = install_command.command("lab" if name == "jupyterlab" else "course")
    assert re.search(rf"(?i)need.? {name}: {re.escape(line)}$", str(report), re.MULTILINE)


def test_lessons_with_kernels_are_named_where_they_can_run(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch)
    prints(monkeypatch)
    assert doctor.inspect_environment().advice[-1] == "Lessons 10-14, with Triton kernels, can run."
    for name in ("torch", "triton"):
        with_packages(monkeypatch, **{name: None})
        assert "with Triton kernels, can run" not in str(doctor.inspect_environment())


def test_a_wrong_answer_fails_the_self_test(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch)
    prints(monkeypatch, kernel="328349.0")
    report = doctor.inspect_environment()
    assert report.interpreter == "failed: the kernel returned 328349, expected 328350"
    assert "will not run" in report.advice[-1]


def test_one_process_is_asked_for_both(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch)
    asked, gpu = [], json.dumps({"name": "Some GPU", "compute_capability": "9.0"})
    monkeypatch.setattr(doctor, "_python", lambda *told, **_: asked.append(told) or f"{gpu}\n328350.0")
    report = doctor.inspect_environment()
    assert report.gpu_note == "Some GPU, compute capability 9.0" and len(asked) == 1
    assert report.interpreter == "passed: the kernel returned 328350, as expected"


def test_where_the_self_test_ends_the_process_the_gpu_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch)
    gpu = json.dumps({"name": "Some GPU", "compute_capability": "9.0"})

    def python(*arguments: str, **_: str) -> str:
        if any("selftest_kernel" in one for one in arguments):
            raise RuntimeError("Segmentation fault")
        return gpu

    monkeypatch.setattr(doctor, "_python", python)
    report = doctor.inspect_environment()
    assert report.gpu_note == "Some GPU, compute capability 9.0"
    assert report.interpreter == "failed: Segmentation fault"


@pytest.mark.parametrize("printed", ["", "Segmentation fault"])
def test_nonsense_fails_the_self_test(monkeypatch: pytest.MonkeyPatch, printed: str):
    with_packages(monkeypatch)
    prints(monkeypatch, kernel=printed, gpu=printed)
    report = doctor.inspect_environment()
    assert report.interpreter.startswith("failed: ")
    assert report.gpu_note.startswith("not checked: torch failed (")


def test_triton_before_3_7_and_numpy_from_2_4_is_named(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch, triton="3.6.0", numpy="2.5.1")
    prints(monkeypatch, kernel="")
    report = doctor.inspect_environment()
    assert report.interpreter.startswith("failed: triton 3.6.0 cannot interpret kernels with NumPy 2.5.1")
    assert '-m pip install "numpy>=2.0,<2.4"' in str(report)


@pytest.mark.parametrize(
    ("triton", "numpy", "works"),
    [
        ("3.7.1", "2.4.6", True),
        ("3.10.0", "2.5.0", True),
        ("3.6.0", "2.3.5", True),
        ("3.6.0", "2.4.0", False),
        ("3.6.0+git1", "2.10.1", False),
        ("4.0", "3.0", True),
        (None, "2.5.0", True),
    ],
)
def test_which_versions_interpret_together(triton: str | None, numpy: str, works: bool):
    assert (doctor.cannot_interpret(triton, numpy) == "") is works


@pytest.mark.parametrize(("capability", "old"), [("7.5", True), ("8.0", False), ("10.0", False)])
def test_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch, capability: str, old: bool):
    with_packages(monkeypatch)
    prints(monkeypatch, gpu=json.dumps({"name": "Some GPU", "compute_capability": capability}))
    report = doctor.inspect_environment()
    assert report.gpu == {"name": "Some GPU", "compute_capability": capability}
    assert f"Some GPU, compute capability {capability}" in str(report)
    assert ("older than Ampere" in str(report)) is old


def test_ncu_is_asked_for_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch):
    with_packages(monkeypatch)
    prints(monkeypatch)
    monkeypatch.setattr(doctor, "find_ncu", lambda: None)
    assert "not found; only `python -m tools.bench gpu` needs it" in str(doctor.inspect_environment())
    assert not any("ncu" in line for line in doctor.inspect_environment().advice)
    prints(monkeypatch, gpu=json.dumps({"name": "Some GPU", "compute_capability": "9.0"}))
    assert "not on PATH" in doctor.inspect_environment().advice[-1]
    monkeypatch.setattr(doctor, "find_ncu", lambda: "/opt/ncu")
    report = doctor.inspect_environment()
    assert "ncu          /opt/ncu" in str(report) and not any("ncu" in line for line in report.advice)


def test_a_process_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "SECONDS", 0.2)
    with pytest.raises(RuntimeError, match=r"no answer within 0\.2 seconds"):
        doctor._python("-c", "import time; time.sleep(60)")


def test_a_process_that_dies_says_why():
    with pytest.raises(RuntimeError, match="ImportError: broken"):
        doctor._python("-c", "raise ImportError('broken')")


def test_no_folder_of_ours_can_hide_a_module_of_torchs():
    assert doctor._python("-c", "import sys; print(sys.flags.safe_path)") == "True"


def test_a_blocked_import_counts_as_not_installed(monkeypatch: pytest.MonkeyPatch):
    assert doctor.installed("numpy") == metadata.version("numpy")
    assert doctor.installed("no-such-package") is None
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert doctor.installed("numpy") is None
