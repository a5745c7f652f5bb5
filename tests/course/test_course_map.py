"""Tests of the map of the course: what it refuses, with the line, and the look-ups."""

import pytest

from iocourse.course.course_map import MAP, course_map, lesson_named, lesson_of, read_map
from iocourse.course.exercise import exercises
from iocourse.errors import UsageError

TWO = """[[part]]
title = "Sums"

[[part.lesson]]
file = "00_one"
title = "00 One"
main_path = true
exercises = ["0A"]
you_will = "add"

[[part.lesson]]
file = "01_two"
title = "01 Two"
former = ["01_zwei"]
main_path = true
builds_on = ["00"]
exercises = ["1A"]
you_will = "add again"
"""


def test_a_map_is_read_in_its_order():
    one, two = read_map(TWO).values()
    assert (one.number, one.part, one.stem_of_ids, one.line) == ("00", "Sums", "00_one", 5)
    assert (two.number, two.stem_of_ids, two.builds_on, two.line) == ("01", "01_zwei", ("00",), 12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('builds_on = ["00"]', 'builds_on = ["07"]', ":12: 01_two builds on '07', which is not a lesson"),
        ('builds_on = ["00"]', 'builds_on = ["01"]', ":12: 01_two builds on 01, a circle"),
        ('exercises = ["0A"]', 'builds_on = ["01"]', ":5: 00_one builds on 01, a circle"),
        ('file = "01_two"', 'file = "00_two"', ":12: two lessons have the number 00, 00_one and"),
        ('["01_zwei"]', '["00_one"]', ":5: 00_one is a name of two lessons"),
        ('exercises = ["1A"]', 'exercises = ["0A"]', ":5: exercise 0A is in two lessons, 01_two and 00_one"),
        ('exercises = ["1A"]', 'exercises = ["1A", "1A"]', ":12: exercises of 01_two must be different ids"),
        ('exercises = ["1A"]', 'exercises = ["one"]', ":12: exercises of 01_two must be .* got 'one'"),
        ('file = "01_two"', 'file = "two"', ":12: file must be like \"04b_debugging_a_schedule\", got 'two'"),
        ('file = "01_two"', 'fiel = "01_two"', ": file must be like"),
        ('title = "01 Two"\n', "", ":12: 01_two has no title"),
        (
            'title = "01 Two"',
            'title = "02 Two"',
            ":12: the title of 01_two must begin with its number 01, got",
        ),
        ('you_will = "add again"', "", ":12: 01_two has no you_will"),
        ('you_will = "add again"', 'you_wil = "add"', ":12: 01_two has an unknown key 'you_wil'"),
        ("main_path = true", 'main_path = "yes"', ":5: main_path of 00_one must be true or false, got 'yes'"),
        ('builds_on = ["00"]', 'builds_on = "00"', ":12: builds_on of 01_two must be a list of texts"),
        ('builds_on = ["00"]', "builds_on = [0]", ":12: builds_on of 01_two must be a list of texts"),
        ('title = "Sums"\n', "", ":4: 00_one is in a part without a title"),
        (
            "main_path = true\nexercises",
            "main_path = false\nexercises",
            ":12: 01_two is on the main path, but",
        ),
        ("[[part]]", "[[part]", " is not valid TOML"),
        (TWO, "", " has no lessons"),
    ],
)
def test_a_faulty_map_is_refused_with_its_line(old, new, message):
    assert old in TWO
    with pytest.raises(UsageError, match=MAP + message):
        read_map(TWO.replace(old, new, 1))


def test_every_exercise_is_in_one_lesson_and_in_the_order_of_the_course():
    listed = [id for lesson in course_map().values() for id in lesson.exercises]
    assert sorted(listed) == sorted(exercises())
    assert lesson_of("4E") == exercises()["4E"].lesson == "04b"
    with pytest.raises(ValueError, match="no lesson has the exercise '99Z'"):
        lesson_of("99Z")


def test_a_lesson_is_found_by_its_file_name_and_by_a_former_one():
    now = lesson_named("10_triton_basics")
    assert now is lesson_named("10_first_kernels") is course_map()["10"]
    assert lesson_named("10") is None and lesson_named("nothing") is None


def test_the_main_path_builds_only_on_itself():
    main = [one for one in course_map().values() if one.main_path]
    path = [one.number for one in main]
    assert path[0] == "00" and len(path) >= 12
    assert all(set(one.builds_on) <= set(path) for one in main)
