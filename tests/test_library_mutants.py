"""Tests of library mutants: how they are drawn, which tests run, the report; and of rarely run CI jobs."""

import ast
import json
import os
import re
import shlex
from collections import Counter
from pathlib import Path

import other_processor
import pytest
import yaml

from tests.mutation import __main__ as of_references
from tests.mutation import library
from tests.mutation.library_mutants import draw, mutants_at
from tests.mutation.reach import group_of

ROOT = Path(__file__).parents[1]
SOURCE = '''def whole(a, b=2):
    """Words of two parts: 1 + 1."""
    if a and b > 1:
        return a * b  # ü
    print(f"{a + b}")
    return -a
'''


@pytest.fixture
def small(tmp_path):
    """A checkout of two rooms, one of ten lines and one of two."""
    for name, text in {"one/parts.py": SOURCE * 5, "two.py": "A = 1\nB = A + 1\n"}.items():
        (tmp_path / "iocourse" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "iocourse" / name).write_text(text, encoding="utf-8")
    return tmp_path


def changes(root, line):
    return {mutant.after for mutant in mutants_at(root, "iocourse/one/parts.py", line)}


def test_a_mutant_changes_one_place_and_nothing_beside_it(small):
    assert changes(small, 1) == {"3", "1"} and changes(small, 2) == set()
    assert {"(a or b > 1)", "(b >= 1)", "(b <= 1)", "2", "0", "a", "(b > 1)", "pass"} < changes(small, 3)
    assert changes(small, 4) == {"(a / b)", "(a + b)", "a", "b"} and changes(small, 5) == {"pass"}
    for line in range(1, 7):
        for mutant in mutants_at(small, "iocourse/one/parts.py", line):
            lines = mutant.source.splitlines()
            ast.parse(mutant.source)
            assert lines[: line - 1] == (SOURCE * 5).splitlines()[: line - 1] and lines[-1] == "    return -a"


def test_rooms_are_drawn_from_by_their_lines_each_line_once_and_again_the_same(small):
    drawn = draw(small, 12, seed=3)
    assert Counter(mutant.file for mutant in drawn) == {"iocourse/one/parts.py": 11, "iocourse/two.py": 1}
    assert len({(mutant.file, mutant.line) for mutant in drawn}) == 12
    assert drawn == draw(small, 12, seed=3) != draw(small, 12, seed=4)
    assert {mutant.file for mutant in draw(small, 2, seed=3, only="iocourse/two.py")} == {"iocourse/two.py"}


def test_the_share_has_an_interval_and_leaves_equivalents_out():
    verdicts = [library.KILLED] * 81 + [library.SURVIVED] * 12 + [library.OUT_OF_TIME] * 7
    said = library.summary([*verdicts, *[library.EQUIVALENT] * 5])
    assert "105 mutants: 81 killed, 7 out of time, 12 survived, 0 reached by no test, 5 equivalent" in said
    assert said.endswith("Noticed 88% of 100; 95 % interval 80% to 93%.")


def test_a_draw_of_equivalents_only_has_no_share():
    assert library.summary([library.EQUIVALENT] * 2) == "2 mutants, all equivalent: no share of mistakes."


def stale(root):
    """Return the listed changes that are no longer mutants, or have no reason."""
    return [
        (file, line, before, after)
        for (file, line, before, after), why in library.listed_equivalents(root).items()
        if not why.strip()
        or not any(
            (one.before, one.after) == (before, after)
            for n, text in enumerate((root / file).read_text(encoding="utf-8").splitlines(), 1)
            if text.strip() == line
            for one in mutants_at(root, file, n)
        )
    ]


def test_a_listed_equivalent_is_recognised_and_a_stale_one_is_found(small):
    mutant = next(one for one in mutants_at(small, "iocourse/one/parts.py", 1) if one.after == "3")
    entries = (library.change_of(small, mutant), ("iocourse/two.py", "A = 1", "1", "7"))
    path = small / library.LISTED
    path.parent.mkdir(parents=True)
    path.write_text(
        "\n".join(
            f'[["{file}"]]\nline = \'{line}\'\nbefore = "{before}"\nafter = "{after}"\nwhy = "a reason"'
            for file, line, before, after in entries
        ),
        encoding="utf-8",
    )
    assert library.listed_equivalents(small)[library.change_of(small, mutant)] == "a reason"
    assert stale(small) == [entries[1]]
    assert stale(ROOT) == []


def test_a_group_is_a_function_and_an_exercise():
    names = (
        "tests/a.py::test_b",
        "tests/a.py::test_b[1A-x]",
        "tests/a.py::test_b[1Ab]",
        "tests/a.py::test_b[16]",
    )
    assert [group_of(name) for name in names] == [
        "tests/a.py::test_b", "tests/a.py::test_b[1A", "tests/a.py::test_b", "tests/a.py::test_b"
    ]  # fmt: skip


def checkout_with_tests(small):
    (small / "tests" / "mutation").mkdir(parents=True)
    for name in ("__init__.py", "reach.py"):
        text = (ROOT / "tests" / "mutation" / name).read_text(encoding="utf-8")
        (small / "tests" / "mutation" / name).write_text(text, encoding="utf-8")
    (small / "iocourse" / "__init__.py").write_text("", encoding="utf-8")
    (small / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # the root that names begin at
    test = "from iocourse.one.parts import whole\n\ndef test_product():\n    assert whole(3) == 6\n"
    (small / "tests" / "test_parts.py").write_text(test, encoding="utf-8")
    locked = """import coverage

def test_two():
    measured = coverage.Coverage.current()
    lock = measured._collector.data_lock if measured else None
    if lock:
        lock.acquire()  # like a thread that is ended while it holds the lock
    import iocourse.two
"""
    (small / "tests" / "test_two.py").write_text(locked, encoding="utf-8")
    return small


@pytest.mark.skipif(os.name == "nt", reason="processes are stopped by their group, which Windows has not")
@pytest.mark.timeout(120)
def test_the_tests_that_reach_a_line_are_found_and_kill_what_they_can(small, tmp_path):
    copy = checkout_with_tests(small)
    reach = library._reach(copy, tmp_path / "reach.json", 1)
    assert [name for name, _, failed in reach["groups"] if not failed] == [
        "tests/test_parts.py::test_product", "tests/test_two.py::test_two"
    ]  # fmt: skip
    last = len((SOURCE * 5).splitlines())
    assert {str(last - 2), str(last)} & set(reach["lines"]["iocourse/one/parts.py"]) == {str(last - 2)}
    reached, unreached = (mutants_at(copy, "iocourse/one/parts.py", line)[0] for line in (last - 2, last))
    for mutant, wanted in ((reached, library.KILLED), (unreached, library.SURVIVED)):
        runs, _ = library._reaching(copy, mutant, reach, 60)
        assert library._verdict(copy, mutant, runs, 60)[0] == wanted
    assert (copy / "iocourse" / "one" / "parts.py").read_text(encoding="utf-8") == SOURCE * 5
    assert json.loads((tmp_path / "reach.json").read_text())["state"] == reach["state"]


def test_every_job_that_runs_rarely_is_a_command_that_exists():
    path = ROOT / ".github" / "workflows" / "weekly.yml"
    (job,) = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    page = (ROOT / "docs" / "guide" / "tests.md").read_text(encoding="utf-8")
    for one in job["strategy"]["matrix"]["include"]:
        command = re.sub(r"\$\{\{.*?\}\}", "1", one["run"])
        words = [word for word in shlex.split(command) if not re.match(r"IOCOURSE_\w+=", word)]
        assert words[:2] == ["python", "-m"]
        parser = {"tests.mutation": of_references, "tests.mutation.library": library}.get(words[2])
        if parser is None:
            names = [f"--processor={name}" for name in other_processor.PROCESSORS]
            assert words[2] == "pytest"
            assert all(word in names or (ROOT / word).exists() for word in words[3:])
        else:
            parser.parser().parse_args(words[3:])
        assert words[2] in page
