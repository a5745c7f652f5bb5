"""Tests of the fields of exercises, which raw cells of the sources contain and the build stores as data."""

import json
from pathlib import Path

import pytest

from iocourse.course import exercise as declarations
from iocourse.course.exercise import exercises
from tools.build import exercise_texts, lesson
from tools.build.__main__ import main
from tools.build.percent_format import SourceError, all_cells
from tools.build.project import Project

ROOT = Path(__file__).parents[2]
FIXTURE = (Path(__file__).parents[1] / "notebooks" / "fixture_lesson.py").read_text(encoding="utf-8")
PATH = Path("solutions") / "01_sum.py"


def texts(source):
    return exercise_texts.texts_of(all_cells(source, PATH), PATH)


def test_the_texts_of_an_exercise_are_read_from_its_cell_and_its_check():
    assert texts(FIXTURE) == {
        "0A": {
            "function": "add",
            "title": "A sum",
            "difficulty": 1,
            "importance": 4,
            "minutes": 5,
            "hints": ["Two numbers.", "One sign between them.", "The sign is a plus."],
        }
    }


def test_no_notebook_shows_the_cell(tmp_path):
    path = tmp_path / "01_sum.py"
    path.write_text(FIXTURE, encoding="utf-8")
    made = lesson.build(path, PATH, Project("owner/repo", "v1.2.3"))
    for notebook in (made.solved, made.student):
        assert "One sign between them" not in json.dumps(notebook)


def test_the_library_has_the_texts_of_every_source():
    data = json.loads((ROOT / exercise_texts.DATA).read_text(encoding="utf-8"))
    assert list(data) == list(exercises())
    for id, one in exercises().items():
        lists = {name: list(getattr(one, name)) for name in ("hints", "helpers") if name in data[id]}
        assert data[id] == {name: getattr(one, name) for name in data[id]} | lists


def test_helpers_are_stored_only_where_they_are_listed():
    with_helpers = FIXTURE.replace("minutes = 5", 'minutes = 5\n# helpers = ["carry"]')
    assert texts(with_helpers)["0A"]["helpers"] == ["carry"] and "helpers" not in texts(FIXTURE)["0A"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('# title = "A sum"\n', "", "about-0A: title must be a non-empty string, got nothing"),
        (
            "difficulty = 1",
            "difficulty = 6",
            "difficulty must be an integer from 1 to 5, got 6",
        ),
        ("importance = 4", "importance = true", "importance must be an integer from 1 to 5, got True"),
        ("minutes = 5", "minutes = 0", "minutes must be an integer of at least 1, got 0"),
        (
            ', "The sign is a plus."]',
            "]",
            "hints must be a list of three non-empty strings, got ['Two numbers.', ",
        ),
        (
            "minutes = 5",
            "minuts = 5",
            "unknown field 'minuts'; expected title, difficulty, importance, minutes",
        ),
        ("minutes = 5", "minutes is 5", "about-0A is not valid TOML"),
        (
            "minutes = 5",
            "minutes = 5\n# helpers = []",
            "helpers must be a list of names of functions, got []",
        ),
        ('name="about-0A"', 'name="about-0B"', 'exercise 0A needs a cell # %% [raw] name="about-0A"'),
        ('check("0A", add', 'print("0A", add', 'exercise 0A needs a check cell, check("0A", function)'),
        ('# %% tags=["exercise"]', "# %%", "must be about an exercise of this lesson, got '0A'"),
    ],
)
def test_a_faulty_cell_is_named_with_its_place(old, new, complaint):
    assert old in FIXTURE
    with pytest.raises(SourceError) as failed:
        texts(FIXTURE.replace(old, new))
    assert str(failed.value).startswith("solutions/01_sum.py:") and complaint in str(failed.value)


def test_what_changed_in_a_source_is_stale_until_the_build_writes_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "iocourse"\nversion = "1.2.3"\n'
        '[project.urls]\nRepository = "https://github.com/owner/repo"\n'
    )
    for folder in ("lessons", "solutions", "iocourse/data"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / PATH).write_text(FIXTURE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert "iocourse/course/exercises.json is stale: run python -m tools.build" in capsys.readouterr().err
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("wrote iocourse/course/exercises.json\n")
    assert json.loads((tmp_path / exercise_texts.DATA).read_text(encoding="utf-8")) == texts(FIXTURE)
    main(["--check"])
    assert "exercises.json" not in capsys.readouterr().err


def test_an_exercise_without_texts_is_refused_by_name():
    with pytest.raises(ValueError, match=r'exercise \'99A\' has no title.*name="about-99A".*tools\.build'):
        declarations.exercise("99A", cases=lambda rng: [], properties=())
