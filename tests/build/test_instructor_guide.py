"""The instructor's guide: its page is what its sources say, its commands are ours, and its record is true."""

import importlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from iocourse.cli import build_parser
from iocourse.course.exercise import exercises, find
from iocourse.course.project_paths import find_checkout
from iocourse.errors import UsageError
from tests.mutation import by_hand, recording
from tests.mutation.__main__ import main
from tests.mutation.references import INTERPRETED
from tests.mutation.report import Score
from tools.build import course
from tools.build import instructor_guide as guide
from tools.build.__main__ import parser as options_of_build

ROOT = find_checkout()
# Their links lead to pages of the site, and the site's own check follows them; most have no command.
OF_THE_SITE = {
    "api.md", "bench.md", "bounds.md", "changelog.md", "errata.md", "index.md", "schedules.md",
}  # fmt: skip
PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in OF_THE_SITE]
KNOWN = {"lab", "doctor", "count", "progress", "grade", "profile"}
OUTSIDE = {"python -m tools.build": options_of_build}  # of the checkout -> what reads its options


@pytest.mark.quick
def test_the_page_is_what_its_sources_say():
    assert list(guide.guide_problems(ROOT)) == []


def test_every_exercise_has_a_sentence_and_three_errors_or_more():
    said = guide.read_remarks(ROOT)
    assert list(said) == list(exercises())
    for name, remark in said.items():
        assert 3 <= len(remark.errors) <= 8, name
        assert remark.say.endswith((".", "?")) and "\n" not in remark.say
        assert not any(hint in remark.say for hint in exercises()[name].hints)
        assert all(what.endswith(".") for _, what in remark.errors)
    assert len({remark.say for remark in said.values()}) == len(said)


@pytest.mark.parametrize("name", ["0A", "1C", "4D", "5A", "8A", "17C"])
def test_what_is_recorded_of_an_exercise_is_what_its_check_says(name):
    suite = by_hand.suites(ROOT, find(name).lesson)[name]
    errors = [error for error, _ in guide.read_remarks(ROOT)[name].errors]
    assert by_hand.refused(name, suite, errors) == guide.read_record(ROOT)[name]["by hand"]["errors"]


def test_every_error_of_a_remark_is_a_mutant_that_its_suite_refuses():
    """Of lessons without kernels: the suites of the others cannot be read everywhere."""
    facts = guide.read_record(ROOT)
    for lesson in sorted({find(name).lesson for name in exercises()} - set(INTERPRETED)):
        for name, suite in by_hand.suites(ROOT, lesson).items():
            named = {mutant.name: mutant.fails for mutant in suite.mutants}
            for error, refusal in facts[name]["by hand"]["errors"].items():
                assert refusal["named by"] == named[error], (name, error)


# ------------------------------------------------------------------ a small checkout
@pytest.fixture
def checkout(tmp_path):
    """The checkout's own guide, in a folder where it may be broken."""
    for folder in ("docs", "solutions", "tests/mutants"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.ipynb*", "__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_checkout_without_remarks_has_no_page(tmp_path):
    assert guide.guide_page(tmp_path) is None and list(guide.guide_problems(tmp_path)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        (
            "exercises.md",
            "Exercise by exercise",
            "By hand",
            "docs/exercises.md is stale: run python -m tools.build",
        ),
        ("remarks/00.toml", "Let them draw", "Draw", "docs/exercises.md is stale: run python -m tools.build"),
        ("remarks/00.toml", '["0A"]', '["0.9"]', "docs/remarks speaks of 0.9, which is no exercise"),
        ("remarks/00.toml", '["0A"]', '["0.9"]', "docs/remarks/00.toml says nothing of exercise 0A"),
        (
            "remarks/00.toml",
            '["bytes"',
            '["bits"',
            "the errors of 0A are out of date: run python -m tests.mutation",
        ),
        ("mutants.json", "each word counts once", "each word", "the errors of 0A are out of date"),
        (
            "mutants.json",
            "by machine",
            "by chance",
            "no score of 0A: run python -m tests.mutation --only 0A --record",
        ),
    ],
)
def test_what_is_out_of_date_is_named_with_its_remedy(checkout, file, old, new, problem):
    edit(checkout / "docs" / file, old, new)
    assert any(problem in line for line in guide.guide_problems(checkout))


def test_a_page_that_is_missing_is_stale_and_release_writes_it(checkout):
    (checkout / guide.PAGE).unlink()
    assert list(guide.guide_problems(checkout)) == ["docs/exercises.md is stale: run python -m tools.build"]
    assert guide.guide_page(checkout) == (ROOT / guide.PAGE).read_text(encoding="utf-8")


def test_an_exercise_of_which_nothing_was_tried_has_no_score(checkout):
    facts = json.loads((checkout / guide.RECORD).read_text(encoding="utf-8"))
    facts["0A"]["by machine"] |= {"refused": 0, "open": 0, "accepted": 0, "of": 32}
    (checkout / guide.RECORD).write_text(json.dumps(facts), encoding="utf-8")
    said = guide.guide_page(checkout).split("### 0A")[1].split("###")[0]
    assert "the check refused: none tried; 2 more" in said


def test_release_writes_and_checks_the_page(monkeypatch):
    assert list(guide.guide_problems(ROOT)) == []
    monkeypatch.setattr(course, "guide_problems", lambda root: iter(["the guide is asked"]))
    monkeypatch.setattr(course, "_lesson_problems", lambda *args: iter(()))
    assert "the guide is asked" in course.check(ROOT)


def test_a_page_is_left_alone_while_something_is_missing(checkout):
    edit(checkout / "docs" / "remarks" / "00.toml", '["0A"]', '["0.9"]')
    assert guide.guide_page(checkout) is None


@pytest.mark.parametrize(
    "text",
    [
        '["0A"]\nsay = ""\nerrors = [["bytes", "Counts bytes."]]',
        '["0A"]\nsay = "So."\nerrors = []',
        '["0A"]\nsay = "So."\nerrors = [["bytes"]]',
        '["0A"]\nsay = "So."\nerrors = [["bytes", 8]]',
        '["0A"]\nsay = "So."\nerrors = [["bytes", "Counts bytes."]]\nmore = 1',
        "x = 3",
        "[",
    ],
)
def test_remarks_of_another_form_are_refused_in_a_line(tmp_path, text):
    (tmp_path / guide.REMARKS).mkdir(parents=True)
    (tmp_path / guide.REMARKS / "00.toml").write_text(text)
    with pytest.raises(UsageError, match=r"^[^\n]*00\.toml[^\n]*$"):
        guide.read_remarks(tmp_path)


def test_a_broken_record_is_refused(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / guide.RECORD).write_text("{")
    with pytest.raises(UsageError, match=r"mutants\.json is not JSON"):
        guide.read_record(tmp_path)


def test_records_are_merged_and_stay_in_order(tmp_path):
    recording.record_scores(tmp_path, [Score("10A", killed=3), Score("9A", killed=5, by_rule=1)], 16, "today")
    recording.record_refusals(tmp_path, {"9A": {"e": {"named by": "p", "read first": "q"}}}, "later")
    recording.record_scores(tmp_path, [Score("9A", killed=7)], 1, "later")
    found = json.loads((tmp_path / guide.RECORD).read_text())
    assert list(found) == ["9A", "10A"]
    assert found["9A"]["by machine"] | {"run": ""} == {
        "mutants": 7, "refused": 7, "no mistakes": 0, "open": 0, "accepted": 0, "known to pass": [],
        "of": 1, "run": "",
    }  # fmt: skip
    assert found["9A"]["by hand"]["run"] == "later" and found["10A"]["by machine"]["of"] == 16


def test_the_command_records_what_refuses_an_error(checkout, monkeypatch, capsys):
    monkeypatch.chdir(checkout)
    kept = guide.read_record(checkout)
    edit(checkout / guide.RECORD, "each word counts once", "each word")
    assert main(["--only", "0A", "--remarks"]) == 0
    assert capsys.readouterr().out == "6 errors of 1 exercises recorded in docs/mutants.json\n"
    assert guide.read_record(checkout)["0A"]["by hand"]["errors"] == kept["0A"]["by hand"]["errors"]
    assert guide.read_record(checkout)["4A"] == kept["4A"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants run in processes that are forked")
def test_the_command_records_a_score(checkout, monkeypatch, capsys):
    monkeypatch.chdir(checkout)
    edit(checkout / guide.RECORD, '"by machine"', '"by chance"')
    main(["--only", "8D", "--record", "--seeds", "1", "--jobs", "1"])
    run = guide.read_record(checkout)["8D"]["by machine"]
    assert run["of"] == 1 and run["refused"] == run["mutants"] > 0 and run["run"].startswith("20")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["bytes"', '["bits"', "the remark on 0A names 'bits'; its mutants: output forgotten"),
        ('["0A"]', '["0.9"]', ""),
    ],
)
def test_a_remark_on_no_mutant_is_refused(checkout, monkeypatch, capsys, old, new, said):
    monkeypatch.chdir(checkout)
    edit(checkout / "docs" / "remarks" / "00.toml", old, new)
    assert main(["--only", "0A", "--remarks"]) == (2 if said else 0)
    assert said in capsys.readouterr().err


def test_a_score_of_some_operators_is_not_recorded(capsys):
    assert main(["--record", "--operators", "starts", "--only", "0A"]) == 2
    assert "--record keeps the score of all operators" in capsys.readouterr().err


def test_a_mutant_that_its_check_accepts_is_no_common_error():
    suite = by_hand.suites(ROOT, 0)["0A"]
    harness = importlib.import_module("harness")
    right = harness.Mutant(
        "right", "nothing moves that is neither input nor output", ("words_Q,", "words_Q, ")
    )
    with pytest.raises(UsageError, match="does not fail in 'nothing moves"):
        by_hand.refused("0A", harness.Suite("0A", (right,), suite.right), ["right"])


# ------------------------------------------------------------------ what the pages say
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_of_the_pages_are_understood(path):
    text = path.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    commands = [line for line in blocks.splitlines() if line.startswith("iocourse ")]
    inline = re.findall(r"`(iocourse [^`]+)`", text)
    commands += [command for command in inline if len(command.split()) > 2]
    assert {command.split()[1] for command in inline} <= KNOWN
    outside = re.findall(r"\b(python -m t[^`\n]+)", text)
    assert commands or inline or outside
    for command in commands:
        words = shlex.split(command)[1:]
        parsed, extra = build_parser(words[0]).parse_known_args(words)
        assert not extra and parsed.handler, command
    for command in outside:
        words = shlex.split(command)
        OUTSIDE[" ".join(words[:3])]().parse_args(words[3:])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_of_the_pages_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert all("://" in target or (path.parent / target).exists() for target in targets)


def test_exercises_and_sections_that_the_plans_name_exist():
    text = (
        (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8").split("## Plans")[1].split("## What a")[0]
    )
    sections = {
        number
        for source in Path(ROOT / "solutions").glob("[0-9]*.py")
        for number in re.findall(r"^# ## (\d+\.\d+) ", source.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"\b\d{1,2}(?:\.\d{1,2}|[A-Z])\b", text))
    assert len(named) > 40 and named - sections - set(exercises()) == set()


def test_the_minutes_of_a_plan_add_up():
    text = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    for heading, minutes in (("### 90 minutes", 90), ("### Half a day", 240)):
        plan = text.split(heading)[1].split("\n### ")[0]
        assert sum(int(found) for found in re.findall(r"^\| (\d+) \|", plan, re.MULTILINE)) == minutes
