"""Pytest plugin for mutants of the library: measure which tests reach which lines, or run chosen tests.

A group is a test function, together with the exercise if the first parameter is one. It is measured on its
first and its middle parameter.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest


def group_of(nodeid: str) -> str:
    """The function of a test, and the exercise if its parameters begin with one: `tests/a.py::test_b[4A`."""
    function, _, parameters = nodeid.partition("[")
    exercise = re.match(r"\d+[A-Z]\b", parameters)
    return f"{function}[{exercise[0]}" if exercise else function


def _spent() -> float:
    """Processor seconds of this process and of its child processes that have ended."""
    return time.process_time() + sum(os.times()[2:4])


class Measured:
    """Measure the lines that each group reaches in this process, and its processor seconds."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.tests: dict[str, int] = defaultdict(int)
        self.failed: set[str] = set()
        folder = str(Path.cwd() / "iocourse")
        self.coverage = coverage.Coverage(data_file=None, config_file=False, source=[folder], messages=False)
        self.coverage.start()
        # A test may end a thread at any line, even while it holds this lock; the next thread would then wait
        # forever. Python's global lock is enough, since a process runs one test at a time.
        self.coverage._collector.data_lock = None

    @pytest.hookimpl(trylast=True)  # type: ignore[untyped-decorator]
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep two tests of each group."""
        groups: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            groups[group_of(item.nodeid)].append(item)
        for name, group in groups.items():
            self.tests[name] = len(group)
        kept = {id(one) for group in groups.values() for one in (group[0], group[len(group) // 2])}
        items[:] = [item for item in items if id(item) in kept]

    @pytest.hookimpl(wrapper=True)  # type: ignore[untyped-decorator]
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Assign the executed lines and the processor time to the group of this test."""
        name = group_of(item.nodeid)
        self.coverage.switch_context(name)
        before = _spent()
        try:
            return (yield)
        finally:
            self.seconds[name].append(_spent() - before)
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the group of a failed test. It fails without a mutant, so it cannot detect one."""
        if report.failed:
            self.failed.add(group_of(report.nodeid))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the measurements, one file per worker."""
        self.coverage.stop()
        data = self.coverage.get_data()
        groups = sorted(self.seconds)
        number = {name: at for at, name in enumerate(groups)}
        lines = {
            Path(file).relative_to(Path.cwd()).as_posix(): {
                line: [number[name] for name in names if name]
                for line, names in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        about = [
            (name, sum(self.seconds[name]) / len(self.seconds[name]) * self.tests[name], name in self.failed)
            for name in groups
        ]
        worker = getattr(session.config, "workerinput", {}).get("workerid", "gw")
        target = self.file.with_name(f"{self.file.name}.{worker}")
        target.write_text(json.dumps({"groups": about, "lines": lines}), encoding="utf-8")


class Chosen:
    """Run only the groups that a file lists, in its order."""

    def __init__(self, file: Path) -> None:
        self.order = {name: at for at, name in enumerate(json.loads(file.read_text(encoding="utf-8")))}

    @pytest.hookimpl(trylast=True)  # type: ignore[untyped-decorator]
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of the listed groups, sorted by the list."""
        items[:] = [item for item in items if group_of(item.nodeid) in self.order]
        items.sort(key=lambda item: self.order[group_of(item.nodeid)])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options --reach and --groups; a run takes one of them."""
    parser.addoption(
        "--reach", type=Path, metavar="FILE", help="write which lines each group of tests reaches"
    )
    parser.addoption("--groups", type=Path, metavar="FILE", help="run these groups, in this order")


@pytest.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
def pytest_configure(config: pytest.Config) -> None:
    """Register the requested plugin before any file of the library is imported."""
    if config.option.reach and (hasattr(config, "workerinput") or not config.option.numprocesses):
        config.pluginmanager.register(Measured(config.option.reach))
    if config.option.groups:
        config.pluginmanager.register(Chosen(config.option.groups))
