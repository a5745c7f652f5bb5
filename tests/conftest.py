"""Shared configuration of all tests: a private home for progress, deterministic Hypothesis, and Triton's
interpreter.
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
from types import SimpleNamespace

import other_processor
import pytest
import skips
from hypothesis import settings

settings.register_profile("iocourse", derandomize=True, deadline=None, database=None)
settings.load_profile("iocourse")

# One thread per process: `-n auto` already fills the cores, and the arrays of the tests are so small that
# threads would mostly wait for each other. Processes that tests start inherit the setting.
# The file is run by its path, because importing it would load NumPy.
_threads = runpy.run_path(str(Path(__file__).parents[1] / "iocourse" / "doctor" / "thread_settings.py"))
for _name, _one in _threads["environment"](1).items():
    os.environ.setdefault(_name, _one)

# Imported modules and collected tests, millions of objects, live to the end. Searching them repeatedly for
# garbage would take a tenth of the total time. See `pytest_collection_finish`.
gc.disable()

# Triton reads the variable when it is imported, and any test module may be the first to import it. Tests of
# kernels run in the interpreter even on a machine with a GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Keep compiled files, also if the environment disables them, as container images do. Otherwise every worker
# and each of the many processes that tests start would compile all files again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# JupyterLab installs a checker of web addresses, which adds two seconds to an import of nbformat. No test
# checks addresses, and jsonschema works without it.
sys.modules.setdefault("rfc3987_syntax", None)

# Processes that tests start must end on Ctrl-C. A shell that runs pytest in the background has it ignore
# SIGINT, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_home = tempfile.TemporaryDirectory(prefix="iocourse-home-", ignore_cleanup_errors=True)
_temporary = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--order SEED`, which shuffles the files and the tests of each file by the seed, and `--processor`,
    which sets the variables of another processor for the whole run.
    """
    parser.addoption("--order", type=int, metavar="SEED", help="shuffle files, and the tests of each")
    names = [*other_processor.PROCESSORS]
    parser.addoption("--processor", choices=names, help="simulate another processor, see docs/guide/tests.md")


def pytest_configure(config: pytest.Config) -> None:
    """Set a private home, so that no test reads or writes the user's progress, and one temporary folder.

    `pytest_sessionfinish` reports files that are left in this folder; only pytest's own are elsewhere.
    """
    os.environ["IOCOURSE_HOME"] = _home.name
    if not hasattr(config, "workerinput"):
        if processor := config.getoption("--processor"):
            other_processor.simulate(processor)
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        config.stash[_temporary] = Path(tempfile.mkdtemp(prefix="iocourse-tests-"))
        os.environ["TMPDIR"] = tempfile.tempdir = str(config.stash[_temporary])


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Print the seed in the header, so that an order can be repeated, and a simulated processor."""
    seed, processor = config.getoption("--order"), config.getoption("--processor")
    order = [] if seed is None else [f"order: files, and the tests of each, as --order {seed} has them"]
    if processor is None:
        return order
    using = ", ".join(f"{name} {value}" for name, value in other_processor.USED[processor].items())
    return [*order, f"processor: {processor}, simulated: {using}"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than cores, because a worker waits a third of its time for a browser or a server."""
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a quick test under `-m quick`; importing all files would take half a minute."""
    if config.option.markexpr == "quick" and collection_path.suffix == ".py":
        return "mark.quick" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests by `--order`, or else tests with a time limit first: long tests must not start last."""
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
    """Enable garbage collection for objects that are created from now on."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that leaves files of iocourse in the temporary folder, or that hides a test from CI."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")  # workers have none
    wrong = _left_behind(session.config) or (reporter and _hidden(reporter))
    if wrong and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _hidden(reporter: pytest.TerminalReporter) -> list[str]:
    """Reasons for which tests were skipped, and which CI does not allow."""
    reports = reporter.stats.get("skipped", [])
    return skips.hidden(report.longrepr[2].removeprefix("Skipped: ") for report in reports)


def _left_behind(config: pytest.Config) -> list[str]:
    """Names of our files in the temporary folder, without the homes of workers, which they remove."""
    folder = config.stash.get(_temporary, None)
    ours = [] if folder is None else [*folder.glob("iocourse-*"), *folder.glob("ranks-*")]
    return sorted(path.name for path in ours if not path.name.startswith("iocourse-home-"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print left files, and skipped tests of CI and of security, in red."""
    for name in _left_behind(config):
        terminalreporter.write_line(f"LEFT BEHIND in the temporary folder: {name}", red=True, bold=True)
    for reason in _hidden(terminalreporter):
        line = f"SKIPPED IN CI, but not one of the reasons in tests/skips.py: {reason}"
        terminalreporter.write_line(line, red=True, bold=True)
    skipped = terminalreporter.stats.get("skipped", [])
    # A file that was skipped in a worker has no keywords.
    reasons = [report.longrepr[2] for report in skipped if "security" in getattr(report, "keywords", ())]
    for reason in sorted(set(reasons)):
        line = f"{reasons.count(reason)} SECURITY TESTS WERE NOT RUN: {reason.removeprefix('Skipped: ')}"
        terminalreporter.write_line(line, red=True, bold=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the home and the temporary folder of the session."""
    _home.cleanup()
    if _temporary in config.stash:
        shutil.rmtree(config.stash[_temporary], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Preallocate frames for the test, because its depth below pytest must not make it slow, and fail a test
    that leaves an event loop running, because no other test in this process could then run one.
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
    """Replace the servers of `iocourse lab`, and return the command, folder and token of each."""
    from iocourse.course import lab

    commands = []

    class Server:
        def __init__(self, command, cwd, env):
            commands.append((command, cwd, env["JUPYTER_TOKEN"]))

        def poll(self):
            return 0

        def wait(self):
            return 0

    # Names of this module alone: others start processes and find modules as usual.
    subprocess = SimpleNamespace(Popen=Server, TimeoutExpired=lab.subprocess.TimeoutExpired)
    monkeypatch.setattr(lab, "subprocess", subprocess)
    monkeypatch.setattr(lab, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=str)))
    return commands
