"""Tests of `iocourse progress --cohort`: counting, comparison with measured values, figures, bad input."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

from iocourse.cli import main
from iocourse.course import class_predictions, predictions, progress
from iocourse.course.class_predictions import measured_answers
from iocourse.course.project_paths import find_checkout

ROOT = find_checkout()


def export(path, **questions):
    """Write a student's exported progress: `q4_5=dict(f1_best=6)` is a prediction to question 4.5."""
    entries = {
        "p" + key[1:].replace("_", "."): {"status": "seen", "attempts": 0, "hints": 0, "prediction": answer}
        for key, answer in questions.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(progress.dump(entries), encoding="utf-8")


@pytest.fixture
def klass(tmp_path):
    """Folder with the exported progress of three students, one of them in a subfolder."""
    folder = tmp_path / "class"
    export(folder / "ada.json", q4_5={"f1_best": 6.18, "f2_best": 8}, q0_2={"constant_traffic": False})
    export(folder / "bo.json", q4_5={"f1_best": 12}, q0_2={"constant_traffic": True})
    export(folder / "cy" / "progress.json", q4_5={"f1_best": 6.182}, q4_10={"footprint": 528})
    return folder


def test_answers_are_counted_and_the_right_one_is_marked(klass, capsys):
    assert main(["progress", "--cohort", str(klass), "--only", "4.5"]) == 0
    assert capsys.readouterr().out == (
        "4.5 f1_best: 3 answers, 2 right\n"
        "right  6.182  ##  2\n"
        "       12     #   1\n"
        "\n"
        "4.5 f2_best: 1 answer, 0 right\n"
        "right  4.1     0\n"
        "       8    #  1\n"
    )


def test_a_class_that_has_not_measured_yet_is_not_told(klass, tmp_path, capsys):
    file = tmp_path / "answers.svg"
    arguments = ["--only", "4.5", "--blind", "--figure", str(file)]
    assert main(["progress", "--cohort", str(klass), *arguments]) == 0
    said = capsys.readouterr().out
    assert said.startswith("4.5 f1_best: 3 answers\n") and "right" not in said and "4.1" not in said
    assert "right" not in file.read_text(encoding="utf-8")


def test_questions_come_in_the_order_of_the_lessons_and_no_name_is_said(klass, capsys):
    assert main(["progress", "--cohort", str(klass)]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^(\d\S+ \w+):", said, re.MULTILINE) == [
        "0.2 constant_traffic",
        "4.5 f1_best",
        "4.5 f2_best",
        "4.10 footprint",
    ]
    assert not re.search("ada|bo|cy", said)


def test_a_lesson_may_be_asked_for(klass):
    assert {one.question for one in class_predictions.class_histograms(klass, ["04"])} == {"4.5", "4.10"}


def test_what_a_lesson_recorded_is_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path / "home"))
    predictions.predict("4.10", footprint=512)
    (tmp_path / "class").mkdir()
    progress.export_to(tmp_path / "class" / "ada.json")
    capsys.readouterr()
    assert main(["progress", "--cohort", str(tmp_path / "class")]) == 0
    assert "       512  #  1\n" in capsys.readouterr().out


def test_rare_answers_share_a_row_and_the_right_one_keeps_its_own(klass):
    for n in range(20):
        export(klass / f"s{n}.json", q4_10={"footprint": 1000 + n // 2})
    (found,) = class_predictions.class_histograms(klass, ["4.10"])
    assert len(found.rows) == class_predictions.MOST and found.rows["528"] == 1
    assert sum(found.rows.values()) == 21 and list(found.rows)[-1] == "4 others"


@pytest.mark.parametrize(
    ("answer", "right", "is_right"),
    [
        (6, "6.182", True),  # to the digits it was given in
        (6.1, "6.182", False),
        (True, "False", False),
        (0, "False", True),
        (1_000, "1,000", True),
        (0.12345678, "0.1235", True),  # all printed digits
        (3, "", False),
        (float("nan"), "3", False),
    ],
)
def test_an_answer_is_right_to_the_digits_given(answer, right, is_right):
    assert class_predictions.is_right(answer, right) is is_right


def test_the_solved_notebooks_say_what_was_measured_for_nearly_all():
    right = measured_answers(ROOT)
    asked = {
        (question, name)
        for path in (ROOT / "solutions").glob("[0-9]*.py")
        for question, names in re.findall(
            r'^predict\("([^"]+)", (.*?)\)', path.read_text(encoding="utf-8"), re.MULTILINE
        )
        for name in re.findall(r"(\w+)=", names)
    }
    assert right[("4.5", "f1_best")] == "6.182" and right[("0.2", "linear_traffic")] == "False"
    assert {question for question, _ in asked - set(right)} <= {
        "9.9a",
        "9.9b",
        "14.6",
    }  # answers in words; measured on a GPU


def test_the_picture_has_the_numbers_in_words(klass, tmp_path, capsys):
    file = tmp_path / "pictures" / "answers.svg"
    assert main(["progress", "--cohort", str(klass), "--only", "04", "--figure", str(file)]) == 0
    told = ET.fromstring(file.read_text(encoding="utf-8")).find("{http://www.w3.org/2000/svg}desc").text
    assert "4.5 f1_best: 6.182 2 times, 12 1 time; correct: 6.182." in told
    png = tmp_path / "answers.png"
    assert main(["progress", "--cohort", str(klass), "--only", "4.10", "--figure", str(png)]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")


BROKEN = '{"format": 1, "exercises": {"p4.5": {"status": "done"}}}'


@pytest.mark.parametrize(
    ("files", "arguments", "said"),
    [
        ({}, [], "contains no progress files (NAME.json or NAME/….json)"),
        ({"notes.txt": "hello"}, [], "Students export it with iocourse progress --export NAME.json"),
        ({"ada.json": "{"}, [], "ada.json is not valid JSON"),
        ({"ada.json": BROKEN}, [], "ada.json: the status of exercise 'p4.5' must be seen or tried or solved"),
        ({"ada.json": "{}", "ada/ada.json": "{}"}, [], "student 'ada' has two files"),
        ({"ada/1.json": "{}", "ada/2.json": "{}"}, [], "student 'ada' has two files"),
        ({"ada.json": progress.dump({})}, [], "has written a prediction to a question"),
        ({"ada.json": progress.dump({})}, ["--only", "99"], "a prediction to a question of 99"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, files, arguments, said):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert main(["progress", "--cohort", str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_bad_arguments_are_one_line(klass, tmp_path, capsys):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "latin.json").write_bytes(b"\xff")
    for arguments, said in (
        (["--cohort", str(tmp_path / "nowhere")], "must be a directory"),
        (["--cohort", str(klass), "--figure", "answers.gif"], "must end in .svg or .png"),
        (["--figure", "answers.png"], "--figure can only be used with --cohort FOLDER"),
        (["--only", "04"], "--only can only be used with --cohort FOLDER"),
        (["--blind"], "--blind can only be used with --cohort FOLDER"),
        (["--cohort", str(tmp_path / "other")], f"cannot read {tmp_path / 'other' / 'latin.json'}: "),
    ):
        assert main(["progress", *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_too_many_histograms_for_a_picture_are_refused(tmp_path, capsys):
    names = {f"n{k}": k for k in range(class_predictions.MOST_IN_A_PICTURE + 1)}
    export(tmp_path / "ada.json", q4_5=names)
    assert main(["progress", "--cohort", str(tmp_path), "--figure", str(tmp_path / "x.svg")]) == 2
    error = capsys.readouterr().err
    assert (
        "25 histograms are too many for one figure, expected at most 24. Select a lesson (--only 04)" in error
    )


def test_a_prediction_of_another_form_is_passed_over(tmp_path):
    entry = {"status": "seen", "attempts": 0, "hints": 0}
    entries = {
        "p4.5": entry | {"prediction": 3},
        "p4.10": entry | {"prediction": {"footprint": 3}},
        "px": entry,
    }
    (tmp_path / "ada.json").write_text(json.dumps({"format": 1, "exercises": entries}))
    assert [one.label for one in class_predictions.class_histograms(tmp_path)] == ["4.10 footprint"]
