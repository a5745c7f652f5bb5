"""The variables that simulate another processor act on every library, and `--processor` sets them."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import other_processor
import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(
    not other_processor.CAN, reason="the variables that simulate another processor are for x86-64"
)


@pytest.mark.parametrize("processor", other_processor.PROCESSORS)
def test_each_library_uses_what_the_processor_has(processor):
    assert other_processor.differences(processor) == {}


def test_each_variable_changes_what_its_library_uses():
    """Without the variables every library uses more, if this processor has AVX2."""
    here, simulated = other_processor.used(None), other_processor.used("Nehalem")
    installed = {"torch": find_spec("torch"), "MKL": find_spec("torch"), "Numba": find_spec("numba")}
    expected = [name for name in other_processor.USED["Nehalem"] if installed.get(name, True)]
    if sys.platform == "linux":  # where the wheels show their BLAS
        assert [*simulated] == expected
    if here["NumPy"] == simulated["NumPy"]:
        pytest.skip("this processor has no AVX2, so there is nothing to leave out")
    assert {name for name in here if here[name] == simulated[name]} == set()


def test_the_option_sets_the_variables_for_every_worker_and_says_so(tmp_path):
    (tmp_path / "test_written.py").write_text(
        "import other_processor\n\ndef test_it():\n"
        "    assert other_processor._used_here().items() <= other_processor.USED['Nehalem'].items()\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest"]
    command += ["-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-n", "1", "--processor", "Nehalem"]
    env = other_processor.environment(None) | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(
        [*command, str(tmp_path)], env=env, cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert "processor: Nehalem, simulated: OpenBLAS Nehalem, NumPy baseline" in done.stdout, done.stderr
    assert "1 passed" in done.stdout, done.stdout


def test_an_option_without_effect_is_an_error(monkeypatch):
    monkeypatch.setitem(other_processor.USED["Nehalem"], "NumPy", "another")
    with pytest.raises(pytest.UsageError, match=r"^--processor Nehalem has no effect here: NumPy uses base"):
        other_processor.simulate("Nehalem")
