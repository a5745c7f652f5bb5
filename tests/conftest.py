"""Shared setup of all tests: a private home for progress, Hypothesis without randomness or deadlines, and
Triton's interpreter.
"""

import asyncio
import gc
import os
import random
import runpy
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("iocourse", derandomize=True, deadline=None, database=None)
settings.load_profile("iocourse")

# One thread a process: `-n auto` already fills the cores, and what NumPy and PyTorch are given here is so
# small that threads spend their time waiting for each other. Processes that tests start inherit it.
# The file is run by its path, as to import it would load NumPy.
_threads = runpy.run_path(str(Path(__file__).parents[1] / "iocourse" / "doctor" / "thread_settings.py"))
for _name, _one in _threads["environment"](1).items():
    os.environ.setdefault(_name, _one)

# What is imported and collected, millions of objects, stays to the end: looking through it for garbage, again
# and again, is a tenth of all time. See `pytest_collection_finish`.
gc.disable()

# Triton reads it when it is imported, and any test module may be first to do that. Tests of kernels run in
# the interpreter even where there is a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Keep compiled files, so that workers and the processes that tests start do not recompile them, even if the
# environment (as in container images) disables them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# JupyterLab brings a checker of web addresses, which whoever imports nbformat waits two seconds for. Nothing
# here has addresses to check, and jsonschema does without it.
sys.modules.setdefault("rfc3987_syntax", None)

# Processes that tests start must end on Ctrl-C. A shell that runs pytest in the background has it ignore
# SIGINT, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_home = tempfile.TemporaryDirectory(prefix="iocourse-home-", ignore_cleanup_errors=True)
_temporary = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--order SEED`: run files, and the tests of each, in an order drawn from the seed."""
    parser.addoption("--order", type=int, metavar="SEED", help="shuffle files, and the tests of each")


def pytest_configure(config: pytest.Config) -> None:
    """Keep tests away from the user's progress, and place their temporary files in a folder of this run.

    `pytest_sessionfinish` checks which files remain in it. pytest's own temporary files are elsewhere.
    """
    os.environ["IOCOURSE_HOME"] = _home.name
    if not hasattr(config, "workerinput"):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        config.stash[_temporary] = Path(tempfile.mkdtemp(prefix="iocourse-tests-"))
        os.environ["TMPDIR"] = tempfile.tempdir = str(config.stash[_temporary])


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Print the seed, so that an order can be repeated."""
    seed = config.getoption("--order")
    return [] if seed is None else [f"order: files, and the tests of each, as --order {seed} has them"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use one worker more than cores, because a worker waits for a browser or server a third of the time."""
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick`, ignore files without a quick test, because importing all takes half a minute."""
    if config.option.markexpr == "quick" and collection_path.suffix == ".py":
        return "mark.quick" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move tests with an individual time limit to the front; a long test started last would delay the end."""
    seed = config.getoption("--order")
    if seed is None:
        items.sort(key=lambda item: item.get_closest_marker("timeout") is None)
        return
    drawn = random.Random(seed)
    drawn.shuffle(items)
    files = sorted({item.path for item in items})
    drawn.shuffle(files)
    items.sort(key=lambda item: files.index(item.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze the objects made so far, so that garbage collection examines only objects of the tests."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that leaves files of iocourse in the temporary folder."""
    if _left_behind(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _left_behind(config: pytest.Config) -> list[str]:
    """Return the files of iocourse left in the temporary folder; homes of workers are removed later."""
    folder = config.stash.get(_temporary, None)
    ours = [] if folder is None else [*folder.glob("iocourse-*"), *folder.glob("ranks-*")]
    return sorted(path.name for path in ours if not path.name.startswith("iocourse-home-"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print left files and skipped security tests in red."""
    for name in _left_behind(config):
        terminalreporter.write_line(f"LEFT BEHIND in the temporary folder: {name}", red=True, bold=True)
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skipped if "security" in report.keywords]
    for reason in sorted(set(reasons)):
        line = f"{reasons.count(reason)} SECURITY TESTS WERE NOT RUN: {reason.removeprefix('Skipped: ')}"
        terminalreporter.write_line(line, red=True, bold=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the session left behind."""
    _home.cleanup()
    if _temporary in config.stash:
        shutil.rmtree(config.stash[_temporary], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Run each test with preallocated stack frames, so that its depth in pytest does not make it slow.

    Fails a test that leaves an event loop running, because no other test in this process could run one.
    """
    from iocourse.machine.run import with_preallocated_frames  # here, because it loads NumPy

    test = pyfuncitem.obj
    pyfuncitem.obj = lambda **given: with_preallocated_frames(partial(test, **given))
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test
        if asyncio._get_running_loop() is not None:
            pytest.fail("an event loop is left running in this thread, by this test or a fixture of it")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Path, str]]:
    """Replace the servers of `iocourse lab`; returns the command, folder and token of each started server."""
    from iocourse.course import lab

    commands = []

    class Server:
        def __init__(self, command, cwd, env):
            commands.append((command, cwd, env["JUPYTER_TOKEN"]))

        def poll(self):
            return 0

        def wait(self):
            return 0

    monkeypatch.setattr(lab.subprocess, "Popen", Server)
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: name)
    return commands
