"""Tests of conftest.py: event loops and files left behind, warnings, test order and sandbox are reported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LOOP = """
import asyncio

def test_first():
    asyncio._set_running_loop(asyncio.new_event_loop())

def test_second():
    asyncio._set_running_loop(None)
"""
LEAVES = "import tempfile\n\ndef test_it():\n    tempfile.mkdtemp(prefix='iocourse-solution-')\n"
WARNS = {
    "a warning": "import warnings\n\ndef test_it():\n    warnings.warn('a new one', DeprecationWarning)\n",
    "of a file left open": "def test_it():\n    open(__file__)\n",
    "of an error nobody sees": """
class Bad:
    def __del__(self):
        raise ValueError("a new one")

def test_it():
    Bad()
""",
    "of a thread": """
import threading

def test_it():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
""",
}
SEVERAL = "import pytest\n\n@pytest.mark.parametrize('n', range(20))\ndef test_it(n):\n    pass\n"


def suite(file, *arguments, **env):
    """A run of pytest with the suite's own rules, in one process."""
    command = [sys.executable, "-m", "pytest", "-c", str(HERE.parent / "pyproject.toml"), "-n", "0"]
    command += [] if HERE in file.parents else ["-p", "conftest", f"--rootdir={file.parent}"]
    command += ["-p", "no:cacheprovider", "--color=no", str(file), *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": str(HERE)} | env
    return subprocess.run(command, cwd=HERE, env=env, capture_output=True, text=True)


@pytest.fixture
def written(tmp_path):
    """A function: text of a test file -> its path."""

    def write(text, name="test_written.py"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def test_an_event_loop_left_running_fails_the_test_that_leaves_it(written):
    said = suite(written(LOOP)).stdout
    assert "1 failed, 1 passed" in said and "an event loop is left running in this thread" in said
    assert "FAILED" in said and "::test_first" in said


def test_what_is_left_in_the_temporary_folder_fails_the_run_and_is_named_and_removed(written, tmp_path):
    (tmp_path / "temporary").mkdir()
    run = suite(written(LEAVES), TMPDIR=str(tmp_path / "temporary"))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED and "1 passed" in run.stdout
    assert re.search(r"LEFT BEHIND in the temporary folder: iocourse-solution-\w+", run.stdout)
    assert not list((tmp_path / "temporary").glob("iocourse-*"))


@pytest.mark.parametrize("of", WARNS)
def test_a_warning_that_is_not_known_is_an_error(of, written):
    run = suite(written(WARNS[of]))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout


def test_an_order_is_drawn_from_its_seed_and_told(written):
    files = [written(SEVERAL, f"test_{name}.py") for name in "abcdef"]

    def order(*told):
        said = suite(files[0], "-v", *files[1:], *told).stdout
        assert not told or f"--order {told[1]}" in said
        return re.findall(r"test_(\w)\.py::test_it\[(\d+)\]", said)

    plain, one, two = order(), order("--order", "1"), order("--order", "2")
    assert len(plain) == 120 and sorted(plain) == sorted(one) == sorted(two)
    assert len({tuple(plain), tuple(one), tuple(two)}) == 3 and one == order("--order", "1")


WALLS = HERE / "grade" / "test_attacks.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bubblewrap needs Linux")
def test_security_tests_that_are_not_run_are_told_loudly(tmp_path):
    said = suite(WALLS, "-m", "security", PATH=str(tmp_path)).stdout
    told = re.search(
        r"^3 SECURITY TESTS WERE NOT RUN: bubblewrap, .* is not installed\. Install it", said, re.M
    )
    assert told and "3 skipped" in said, said


def skipping(reason, how=""):
    """The text of a file with a skip, in a test or at the import of the file."""
    does = f"pytest.skip({reason!r}{how})"
    return f"import pytest\n\n{does if how else f'def test_it():{chr(10)}    {does}'}\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere CI may skip every test")
@pytest.mark.parametrize(
    ("reason", "how", "workers", "ci", "listed"),
    [
        ("not here", "", 0, "true", False),
        ("not here", ", allow_module_level=True", 1, "true", False),
        ("not here", "", 0, "", True),
        ("no CUDA GPU: not here", "", 0, "true", True),
    ],
    ids=["in a test", "at the import, with workers", "not in CI", "no GPU"],
)
def test_a_skip_fails_a_run_of_ci_unless_its_reason_is_listed(written, reason, how, workers, ci, listed):
    other = written("def test_it():\n    pass\n", "test_other.py")
    run = suite(written(skipping(reason, how)), other, "-n", workers, CI=ci)
    line = f"SKIPPED IN CI, but not one of the reasons in tests/skips.py: {reason}"
    assert run.returncode == (pytest.ExitCode.OK if listed else pytest.ExitCode.TESTS_FAILED), run.stdout
    assert (line in run.stdout) != listed and "1 passed, 1 skipped" in run.stdout


def test_there_is_no_such_line_where_none_is_skipped(written):
    said = suite(written("def test_it():\n    pass\n")).stdout
    assert "1 passed" in said and "SECURITY" not in said and "LEFT BEHIND" not in said
