"""Every test file of the checkout is collected by README's command, and what does not run is listed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import skips

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
# Finds the test files as pytest does, but does not import them, which would take ten times as long.
FINDER = """
import pytest

class Found(pytest.File):
    def collect(self):
        return []

def pytest_pycollect_makemodule(module_path, parent):
    print("found", module_path)
    return Found.from_parent(parent, path=module_path)
"""


def found(folder, tmp_path):
    """The test files that pytest finds in a checkout when it is called without arguments, as in README."""
    (tmp_path / "finder.py").write_text(FINDER, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-s", "--collect-only", "-p", "no:cacheprovider"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [*command, "-p", "finder"], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, run.stdout + run.stderr
    return {Path(line) for line in re.findall(r"^found (.*)$", run.stdout, re.MULTILINE)}


@pytest.fixture(scope="module")
def listed():
    """The conditions in the tests of the checkout."""
    return skips.listed()


def sources(*options):
    """The Python files of the checkout that git lists; without git, those of the tests."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return set(TESTS.rglob("*.py"))
    command = ["git", "ls-files", "-z", *options, "--", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()}


def has_tests(path):
    """Return True if the file defines tests, or if it has the name of a test file."""
    text = path.read_text(encoding="utf-8")
    return path.name.startswith("test_") or re.search(r"^def test_", text, re.MULTILINE) is not None


def test_every_test_file_of_the_checkout_is_collected(tmp_path):
    """A file with tests is collected, or it is one of those that a workflow runs by their names."""
    files = {path for path in sources() | set(TESTS.rglob("*.py")) if has_tests(path)}
    by_name = {path for path in files if path.name.startswith("every_")}
    assert len(files) > 250 and files - by_name == found(ROOT, tmp_path)


def test_git_ignores_no_file_of_the_tests():
    """A folder whose name is in .gitignore would be missing in every other checkout."""
    ignored = sources("--others", "--ignored", "--exclude-standard") if sources() else set()
    assert [path for path in ignored if TESTS in path.parents] == []


def test_no_name_of_a_folder_hides_its_tests(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    folders = ("build", "dist", "venv", "node_modules", "a.egg", "CVS", "deep/build/down")
    files = {tmp_path / "tests" / folder / f"test_{n}.py" for n, folder in enumerate(folders)}
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def test_it():\n    pass\n", encoding="utf-8")
    assert found(tmp_path, tmp_path) == files


def test_every_file_that_runs_only_by_its_name_is_run_by_a_workflow(listed):
    workflows = "".join(path.read_text(encoding="utf-8") for path in (ROOT / ".github").rglob("*.yml"))
    names = [one.place for one in listed if one.kind == skips.BY_NAME]
    assert len(names) == 5
    assert [name for name in names if not re.search(rf"pytest (-n 0 )?{name}\b", workflows)] == []


CONDITIONS = """
import pytest
import skip_without_interpreter
import skips

skips.unless_installed("furo", "sphinx")
if GPU is None:
    pytest.skip(f"no CUDA GPU: {why}", allow_module_level=True)
needs_uv = pytest.mark.skipif(uv is None, reason="uv is missing")


@pytest.mark.quick
@pytest.mark.xfail(strict=True)
def test_it(case):
    numba = pytest.importorskip("numba", reason="not installed")
    for n in range(many(10, 100)):
        if case:
            return
"""


def test_the_list_names_each_condition_with_its_reason_and_place(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(CONDITIONS, encoding="utf-8")
    (tmp_path / "tests" / "every_case.py").write_text('"""Minutes."""\n\ndef test_it():\n    pass\n')
    listed = skips.listed(tmp_path / "tests")
    assert [(one.kind, one.reason, one.condition, one.place) for one in listed if one.kind != skips.SKIP] == [
        (skips.BY_NAME, "Minutes.", "", "tests/every_case.py"),
        ("samples", "IOCOURSE_LONG=1 runs all", "10 instead of 100", "tests/test_it.py:16"),
        ("tests marked quick", skips.MARKED["quick"], "", "tests/test_it.py:12"),
        ("tests that end early", "the remaining lines do not apply", "case", "tests/test_it.py:18"),
    ]
    found = [one for one in listed if one.kind == skips.SKIP]
    assert [(one.reason, one.condition, one.place.partition(":")[2]) for one in found] == [
        ("", "", "13"),
        ("Triton cannot interpret kernels", "import skip_without_interpreter", "3"),
        ("furo is not installed", "", "6"),
        ("no CUDA GPU: {why}", "GPU is None", "8"),
        ("numba is not installed", "", "15"),
        ("sphinx is not installed", "", "6"),
        ("uv is missing", "uv is None", "9"),
    ]
    rules = {one.condition: one.in_ci for one in found}
    assert rules["GPU is None"] == "allowed in CI, because the runners of CI have no GPU"
    assert rules["uv is None"] == "fails a run in CI on Linux"


def test_each_skip_has_a_reason_and_each_reason_that_ci_allows_is_still_used(listed):
    reasons = [one.reason for one in listed if one.kind == skips.SKIP]
    assert all(reasons)
    allowed = skips.ALLOWED_IN_CI
    assert {start for start in allowed for reason in reasons if reason.startswith(start)} == set(allowed)


def test_the_command_prints_the_list(listed, capsys, monkeypatch):
    monkeypatch.setattr(skips, "listed", lambda: listed)
    skips.main()
    said = capsys.readouterr().out
    kinds = dict(re.findall(r"^(\w.*): (\d+)$", said, re.MULTILINE))
    assert kinds == {
        kind: str([one.kind for one in listed].count(kind)) for kind in {one.kind for one in listed}
    }
    assert (
        "\n  no CUDA GPU: kernels are tested in the interpreter (allowed in CI, because the runners" in said
    )
    assert len(re.findall(r"^    tests/\S+\.py", said, re.MULTILINE)) == len(listed) > 200
