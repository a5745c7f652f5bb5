"""Tests of the placeholder of a missing package, and of cells that need the package."""

import math

import numpy as np
import pytest

from iocourse.course import TritonMissing, attempt, check, missing_package, missing_packages, progress
from iocourse.course.missing_packages import RESTART, CellHooks, Placeholder, names_bound_from

LINE = f"{RESTART}\n"  # printed if no package is missing, as in the process of these tests

torch = Placeholder()
USES = {
    "a call": lambda: torch.zeros(3),
    "an element": lambda: torch.kernel[3],
    "its length": lambda: len(torch.x),
    "a loop": lambda: list(torch.x),
    "unpacking": lambda: (lambda a, b: a)(*torch.x),
    "a sum": lambda: 1 + torch.x,
    "an array's sum": lambda: np.ones(3) + torch.x,
    "NumPy": lambda: np.allclose(torch.x, 1.0),
    "an array of it": lambda: np.asarray(torch.x, dtype=float),
    "a comparison": lambda: torch.x < 1e-6,
    "equality": lambda: torch.x == torch.x,
    "truth": lambda: bool(torch.x),
    "a number": lambda: int(torch.x),
    "mathematics": lambda: math.sqrt(torch.x),
    "a format": lambda: f"{torch.x:,}",
    "a context": lambda: torch.no_grad.__enter__(),
    "an instance": lambda: isinstance(3, torch.Tensor),
}


@pytest.mark.parametrize("use", USES)
def test_no_use_of_a_placeholder_gives_a_value(use):
    with pytest.raises(TritonMissing):
        USES[use]()


def test_kernels_and_classes_can_be_defined():
    @torch.jit
    def kernel(X, BLOCK: torch.constexpr):
        raise AssertionError("is never run")

    class Function(torch.autograd.Function):
        def forward(self):
            return super().forward()

    @torch.jit(debug=True)
    def other(X):
        return X

    for stand in (kernel, other, Function, Function.apply):
        assert isinstance(stand, Placeholder) and repr(stand) == RESTART
        with pytest.raises(TritonMissing):
            stand(3)


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    """Shell of a notebook with the hooks, without `torch`."""
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    one = interactive.InteractiveShell()
    one.user_ns["torch"] = Placeholder()
    CellHooks.watched(one)
    capsys.readouterr()
    return one


def test_a_cell_that_needs_it_ends_with_one_line_and_counts_as_run(shell, capsys):
    done = shell.run_cell("before = 1\nprint(before)\nafter = torch.zeros(2)\nprint(after)")
    assert done.success and capsys.readouterr().out == "1\n" + LINE


def test_what_such_a_cell_did_not_come_to_bind_is_missing_too(shell, capsys):
    """Also if an earlier section has bound the name."""
    shell.run_cell("ledger, kept = 'of an earlier section', 1")
    shell.run_cell("kept = 2\nwith torch.count() as ledger:\n    words = 3\n\ndef helper():\n    inside = 1")
    assert shell.user_ns["kept"] == 2 and "inside" not in shell.user_ns
    assert all(isinstance(shell.user_ns[name], Placeholder) for name in ("ledger", "words", "helper"))
    capsys.readouterr()
    assert shell.run_cell("print(kept, f'{ledger:,}')").success
    assert capsys.readouterr().out == LINE


def test_an_error_raised_while_that_is_handled_is_the_same_lack(shell, capsys):
    assert shell.run_cell("try:\n    torch.ones(1)\nexcept torch.UsageError:\n    pass").success
    assert capsys.readouterr().out == LINE


def test_any_other_error_is_shown_as_ever(shell, capsys):
    done = shell.run_cell("1 / 0")
    assert not done.success and isinstance(done.error_in_exec, ZeroDivisionError)
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_the_names_that_a_cell_binds_from_a_line_on():
    cell = (
        "a = [x for x in y]\nfor i, j in b: k += 1\nimport c.d, e as f\nwith g as h:\n    m: int = (n := 1)\n"
    )
    assert list(names_bound_from(cell, 0)) == ["a", "i", "j", "k", "c", "f", "h", "m", "n"]
    assert list(names_bound_from(cell, 5)) == ["h", "m", "n"]


@pytest.mark.parametrize("judged", [{}, {"NBGRADER_EXECUTION": "autograde"}, {"IOCOURSE_STRICT": "1"}])
def test_where_a_notebook_is_judged_or_there_is_none_nothing_stands_in(judged, monkeypatch):
    if judged:
        # A shell whose cells cannot be modified.
        monkeypatch.setattr(missing_packages, "ipython_shell", object)
    for name, value in judged.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TritonMissing, match="for a test"):
        missing_package(TritonMissing("for a test"))


def test_in_a_notebook_that_somebody_reads_a_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(missing_packages, "ipython_shell", object)
    monkeypatch.setattr(missing_packages, "what_to_do", lambda: "install this")
    monkeypatch.setattr(missing_packages.CellHooks, "watched", lambda shell: None)
    assert isinstance(missing_package(TritonMissing("for a test")), missing_packages.Placeholder)
    assert capsys.readouterr().out == "install this\n"


def test_an_attempt_ends_with_the_lack():
    with pytest.raises(TritonMissing):
        attempt(lambda: torch.zeros(3))


@pytest.mark.parametrize(
    "answer", [torch.kernel, lambda X, BM, BN: torch.zeros(3)], ids=["kernel", "launcher"]
)
def test_a_check_says_what_to_install_and_tries_nothing(answer, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    assert check("10B", answer) is None
    assert capsys.readouterr().out == f"10B A transposed copy\n  not tried: {LINE}"
    assert not progress.load()
    monkeypatch.setenv("IOCOURSE_STRICT", "1")
    with pytest.raises(TritonMissing):
        check("10B", answer)
