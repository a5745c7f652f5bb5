"""Tests of the instructor's guide: its page matches the sources; commands, links and minutes are valid."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from iocourse.cli import build_parser
from iocourse.course.checking import COURSE_WIDE, OWN
from iocourse.course.exercise import exercises
from iocourse.course.project_paths import find_checkout
from iocourse.errors import UsageError
from tests.mutation import recording
from tests.mutation.__main__ import main
from tests.mutation.report import Score
from tools.build import instructor_guide as guide
from tools.build.__main__ import parser as options_of_build

ROOT = find_checkout()
# Their links lead to pages of the site, which the test of the site follows; most have no command.
OF_THE_SITE = {
    "api.md", "bench.md", "bounds.md", "changelog.md", "errata.md", "index.md", "schedules.md",
}  # fmt: skip
PAGES = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in OF_THE_SITE]
KNOWN = {"lab", "doctor", "count", "progress", "grade", "profile"}
OUTSIDE = {"python -m tools.build": options_of_build}  # command of the checkout -> its parser


@pytest.mark.quick
def test_the_page_is_what_its_sources_say():
    assert list(guide.guide_problems(ROOT)) == []


def test_every_property_of_every_exercise_has_a_sentence():
    """There are no other keys either; the page is written only if both hold."""
    remarks = guide.read_remarks(ROOT)
    assert list(remarks.exercises) == list(exercises())
    for exercise in exercises().values():
        names = [prop.name for prop in exercise.properties]
        assert all(remarks.mistake(exercise.id, name) for name in (*COURSE_WIDE, *names)), exercise.id
        assert remarks.exercises[exercise.id].mistakes.keys() <= {*COURSE_WIDE, *names}, exercise.id


def test_what_is_said_to_a_student_is_one_sentence_of_its_own_and_no_hint():
    remarks = guide.read_remarks(ROOT).exercises
    for name, remark in remarks.items():
        assert remark.say.endswith((".", "?"))
        assert not any(hint in remark.say for hint in exercises()[name].hints)
    assert len({remark.say for remark in remarks.values()}) == len(remarks)


def test_a_sentence_on_a_property_names_a_mistake_and_no_mutant():
    """The sentence is in the third person and does not contain the name of a mutant of the tests."""
    remarks = guide.read_remarks(ROOT)
    sentences = [*remarks.shared.values()]
    for remark in remarks.exercises.values():
        sentences += remark.mistakes.values()
    folder = ROOT / "tests" / "mutants"
    files = [path.read_text(encoding="utf-8") for path in folder.glob("lesson*.py")]
    by_hand = {name for text in files for name in re.findall(r'Mutant\(\s*"([^"]+)"', text)}
    recorded = json.loads((folder / "recorded.json").read_text(encoding="utf-8"))
    operators = {mutant["operator"] for mutants in recorded.values() for mutant in mutants}
    assert by_hand and operators
    names = {name for name in by_hand | operators if "-" in name or "_" in name}
    for text in sentences:
        assert text.endswith(".") and text.split()[0][0].isupper() and text.split()[0].endswith("s"), text
        assert not any(name in text for name in names), text


@pytest.mark.parametrize("name", ["4A", "12A", "19E"])
def test_an_exercise_has_a_row_for_each_property(name):
    part = (ROOT / guide.PAGE).read_text(encoding="utf-8").split(f"### {name} ")[1].split("### ")[0]
    remarks = guide.read_remarks(ROOT)
    for prop in exercises()[name].properties:
        assert f"| {prop.name} | {remarks.mistake(name, prop.name)} |\n" in part


# ------------------------------------------------------------------ a small checkout
@pytest.fixture
def checkout(tmp_path):
    """Copy the guide and its sources to a folder in which a test can break them."""
    shutil.copytree(ROOT / guide.REMARKS, tmp_path / guide.REMARKS)
    (tmp_path / "solutions").mkdir()
    for path in [
        ROOT / guide.PAGE,
        ROOT / guide.RECORD,
        *(ROOT / "solutions").glob("*.py"),
        ROOT / "pyproject.toml",
    ]:
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    return tmp_path


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_checkout_without_remarks_has_no_page(tmp_path):
    assert guide.guide_page(tmp_path) is None and list(guide.guide_problems(tmp_path)) == []


OF_4A = '"K is read once" is not one of its properties; correct the key or delete it (properties: is correct'


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("exercises.md", "by exercise", "by hand", "docs/exercises.md is stale: run python -m tools.build"),
        ("remarks/00.toml", "Let them draw", "Draw", "docs/exercises.md is stale: run python -m tools.build"),
        ("remarks/00.toml", "Multiplies", "Counts", "docs/exercises.md is stale: run python -m tools.build"),
        (
            "remarks/00.toml", "0A", "0.9",
            "docs/remarks/00.toml: 0.9 is not an exercise; correct its id or delete its entry",
        ),
        (
            "remarks/00.toml", "0A", "0.9",
            'docs/remarks/00.toml: exercise 0A has no entry; add ["0A"] and ["0A".mistakes]',
        ),
        (
            "remarks/04.toml", "4A", "0A",
            "docs/remarks/04.toml: 0A is an exercise of another lesson; move it to docs/remarks/00.toml",
        ),
        (
            "remarks/04.toml", 'values equal exact attention" = "Divides', 'K is read once" = "Divides',
            f"docs/remarks/04.toml, exercise 4A: {OF_4A}",
        ),
        (
            "remarks/00.toml", '"returns the compulsory traffic" =', "#",
            'docs/remarks/00.toml, exercise 0A: property "returns the compulsory traffic" has no sentence; '
            'write under ["0A".mistakes], or in shared.toml if many exercises have it, which mistake of a '
            "student violates it",
        ),
        (
            "remarks/shared.toml", "Q is read once", "Q is read",
            'docs/remarks/shared.toml: no exercise needs the sentence on "Q is read"; correct the key',
        ),
        (
            "remarks/shared.toml", f'"{OWN}" =', "#",
            f'docs/remarks/shared.toml: "{OWN}" has no sentence; write which mistake of a student '
            "violates it",
        ),
        (
            "mutants.json", "by machine", "by chance",
            "docs/mutants.json: exercise 0A has no score; run python -m tests.mutation --only 0A --record",
        ),
    ],
)  # fmt: skip
def test_what_is_out_of_date_is_named_with_its_remedy(checkout, file, old, new, problem):
    edit(checkout / "docs" / file, old, new)
    assert any(line.startswith(problem) for line in guide.guide_problems(checkout))


def test_an_exercises_own_sentence_replaces_the_shared_one(checkout):
    shared = guide.read_remarks(checkout).mistake("4A", "Q is read once")
    edit(
        checkout / "docs/remarks/04.toml", '["4A".mistakes]', '["4A".mistakes]\n"Q is read once" = "Reads Q."'
    )
    remarks = guide.read_remarks(checkout)
    assert remarks.mistake("4A", "Q is read once") == "Reads Q."
    assert remarks.mistake("4C", "Q is read once") == shared
    assert "| Q is read once | Reads Q. |" in guide.guide_page(checkout)


def test_a_page_that_is_missing_is_stale_and_release_writes_it(checkout):
    (checkout / guide.PAGE).unlink()
    assert list(guide.guide_problems(checkout)) == ["docs/exercises.md is stale: run python -m tools.build"]
    assert guide.guide_page(checkout) == (ROOT / guide.PAGE).read_text(encoding="utf-8")


def test_an_exercise_of_which_nothing_was_tried_has_no_score(checkout):
    facts = json.loads((checkout / guide.RECORD).read_text(encoding="utf-8"))
    facts["0A"]["by machine"] |= {"refused": 0, "open": 0, "accepted": 0, "of": 32}
    (checkout / guide.RECORD).write_text(json.dumps(facts), encoding="utf-8")
    said = guide.guide_page(checkout).split("### 0A")[1].split("###")[0]
    assert "Mutants rejected: none run; 2 more were equivalent.\n" in said


def test_a_page_is_left_alone_while_something_is_missing(checkout):
    edit(checkout / "docs" / "remarks" / "00.toml", "0A", "0.9")
    assert guide.guide_page(checkout) is None


OF_0A = '["0A"]\nsay = "So."\n'
LINE = 'must be a sentence on one line, without "|", got'


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("00.toml", "[", "docs/remarks/00.toml is not valid TOML: "),
        ("00.toml", OF_0A + "say = 2", "docs/remarks/00.toml is not valid TOML: "),
        ("00.toml", "x = 3", 'docs/remarks/00.toml, exercise x: found 3; expected say = "…" and a table'),
        ("00.toml", '["0A"]', "docs/remarks/00.toml, exercise 0A: found nothing; expected say"),
        ("00.toml", OF_0A, "docs/remarks/00.toml, exercise 0A: found say; expected say"),
        ("00.toml", OF_0A + "errors = []", "docs/remarks/00.toml, exercise 0A: found say, errors; expected"),
        ("00.toml", '["0A"]\nsay = ""\nmistakes = {}', f"exercise 0A: \"say\" {LINE} ''"),
        ("00.toml", OF_0A + "mistakes = []", 'exercise 0A: found []; expected the table ["0A".mistakes]'),
        ("00.toml", OF_0A + 'mistakes = {p = " "}', f"exercise 0A: \"p\" {LINE} ' '"),
        ("00.toml", OF_0A + "mistakes = {p = 8}", f'exercise 0A: "p" {LINE} 8'),
        ("00.toml", OF_0A + 'mistakes = {p = "a|b"}', f"exercise 0A: \"p\" {LINE} 'a|b'"),
        ("shared.toml", 'p = ""', f"docs/remarks/shared.toml: \"p\" {LINE} ''"),
        ("shared.toml", 'p = """So.\nSo."""', f"shared.toml: \"p\" {LINE} 'So.\\nSo.'"),
    ],
)
def test_a_faulty_file_of_remarks_is_refused_in_a_line(tmp_path, file, text, message):
    (tmp_path / guide.REMARKS).mkdir(parents=True)
    (tmp_path / guide.REMARKS / file).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=rf"^docs/remarks/{file}[^\n]*$") as raised:
        guide.read_remarks(tmp_path)
    assert message in str(raised.value)


def test_a_broken_record_is_refused(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / guide.RECORD).write_text("{")
    with pytest.raises(UsageError, match=r"mutants\.json is not valid JSON"):
        guide.read_record(tmp_path)


def test_records_are_merged_and_stay_in_order(tmp_path):
    recording.record_scores(tmp_path, [Score("10A", killed=3), Score("9A", killed=5, by_rule=1)], 16, "today")
    recording.record_scores(tmp_path, [Score("9A", killed=7)], 1, "later")
    found = json.loads((tmp_path / guide.RECORD).read_text())
    assert list(found) == ["9A", "10A"]
    assert found["9A"]["by machine"] | {"run": ""} == {
        "mutants": 7, "refused": 7, "no mistakes": 0, "open": 0, "accepted": 0, "known to pass": [],
        "of": 1, "run": "",
    }  # fmt: skip
    assert found["10A"]["by machine"]["of"] == 16


@pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants run in processes that are forked")
def test_the_command_records_a_score(checkout, monkeypatch, capsys):
    monkeypatch.chdir(checkout)
    edit(checkout / guide.RECORD, '"by machine"', '"by chance"')
    main(["--only", "8D", "--record", "--seeds", "1", "--jobs", "1"])
    run = guide.read_record(checkout)["8D"]["by machine"]
    assert run["of"] == 1 and run["refused"] == run["mutants"] > 0 and run["run"].startswith("20")


def test_a_score_of_some_operators_is_not_recorded(capsys):
    assert main(["--record", "--operators", "starts", "--only", "0A"]) == 2
    assert "--record stores the score of all operators" in capsys.readouterr().err


# ------------------------------------------------------------------ the hand-written pages
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
    assert len(named) >= 40 and named - sections - set(exercises()) == set()


def test_the_minutes_of_a_plan_add_up():
    text = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    for heading, minutes in (("### 90 minutes", 90), ("### Half a day", 240)):
        plan = text.split(heading)[1].split("\n### ")[0]
        assert sum(int(found) for found in re.findall(r"^\| (\d+) \|", plan, re.MULTILINE)) == minutes
