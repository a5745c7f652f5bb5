"""Tests of the recorded mistakes: one that no longer applies is reported with the command to record it."""

import json
from pathlib import Path

import pytest

from iocourse.errors import UsageError
from tools.build import BuildFailed, course
from tools.build.percent_format import parse
from tools.build.recorded_mutants import (
    RECORDED,
    RecordedMutant,
    change_between,
    read_recorded,
    recorded_problems,
    write_recorded,
)

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "solutions" / "01_naive_attention.py"
REFERENCE = "def f(a):  # a comment\n    b = a\n\n    return (b)"
COMMAND = "run python -m tests.mutation --record-cover --missing --only"


def lesson(old="\n", new="\n"):
    """Return the cells of lesson 01 with `old` replaced by `new` in its text."""
    text = SOURCE.read_text(encoding="utf-8")
    assert old in text
    return parse(text.replace(old, new), SOURCE)


@pytest.mark.parametrize(
    "lines", [["return b"], ["b = a", "b = a", "return b"], ["b = a", "return b", "pass"]]
)
def test_a_change_applies_again_and_comments_do_not_count(lines):
    text = "\n".join(["def f(a):", *(f"    {line}" for line in lines)])
    line, removed, inserted = change_between(REFERENCE, text)
    row = RecordedMutant(("p",), "statements", line, removed, inserted)
    assert row.made_of(REFERENCE.replace("a comment", "another")) == text
    assert row.made_of("def f(a):\n    c = 2 * a\n    return c") is None


def test_what_is_recorded_applies():
    assert list(recorded_problems(ROOT, [lesson()])) == []


def test_what_no_longer_applies_is_named_and_stops_the_build(monkeypatch):
    row = next(row for row in read_recorded(ROOT)["1A"] if any("E.sum" in line for line in row.removed))
    cells = lesson("return E / E.sum(", "return E * 1.0 / E.sum(")
    (problem, *_) = [one for one in recorded_problems(ROOT, [cells]) if f'"{row.properties[0]}"' in one]
    assert problem == (
        f"{RECORDED.as_posix()}: lesson 01, exercise 1A: the mistake for "
        f'"{row.properties[0]}" changes line {row.line}, which is different now: {COMMAND} 1A'
    )
    monkeypatch.setattr(course, "recorded_problems", lambda root, lessons: iter([problem]))
    with pytest.raises(BuildFailed, match=r"exercise 1A: the mistake for .* changes line"):
        course.write(ROOT, only=["01"])
    monkeypatch.setattr(course, "_lesson_problems", lambda *args: iter(()))
    assert problem in course.check(ROOT, only=["01"])


@pytest.mark.parametrize(
    ("exercise", "properties", "problem"),
    [
        ("99Z", ["p"], "exercise 99Z is not an exercise"),
        ("2A", ["is fast"], 'lesson 02, exercise 2A: has no property "is fast"'),
    ],
)
def test_what_is_recorded_of_nothing_is_named(tmp_path, exercise, properties, problem):
    row = RecordedMutant(tuple(properties), "statements", 1, (), ("x = 1",))
    write_recorded_as(tmp_path, exercise, row)
    (said,) = recorded_problems(tmp_path, [lesson()])
    assert said == f"{RECORDED.as_posix()}: {problem}: {COMMAND} {exercise}"


def write_recorded_as(root, exercise, row):
    (root / RECORDED).parent.mkdir(parents=True)
    write_recorded(root, {"1A": (row,)})
    text = (root / RECORDED).read_text(encoding="utf-8").replace('"1A"', f'"{exercise}"')
    (root / RECORDED).write_text(text, encoding="utf-8")


def test_a_checkout_without_a_record_has_no_problems(tmp_path):
    assert read_recorded(tmp_path) == {} and list(recorded_problems(tmp_path, [lesson()])) == []


@pytest.mark.parametrize("text", ["[", "3", '{"1A": [{"line": 1}]}', json.dumps({"1A": [3]})])
def test_a_broken_record_is_refused_in_a_line(tmp_path, text):
    (tmp_path / RECORDED).parent.mkdir(parents=True)
    (tmp_path / RECORDED).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"recorded\.json cannot be read"):
        read_recorded(tmp_path)
