"""What holds for every lesson: its exercises are announced as they are, and stand where they say."""

from pathlib import Path

import pytest

from iocourse.course.exercise import exercises

SOLUTIONS = Path(__file__).parents[2] / "solutions"
EXERCISES = list(exercises().values())
HEAD = "# | Exercise | Title | Difficulty | Importance | Minutes |"


def lesson_of(exercise):
    return next(SOLUTIONS.glob(f"{int(exercise.id.split('.')[0]):02d}_*.py")).read_text(encoding="utf-8")


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_the_table_and_the_box_say_what_the_exercise_is(exercise):
    lesson = lesson_of(exercise)
    facts = f"{exercise.difficulty} of 5 | {exercise.importance} of 5 | {exercise.minutes}"
    assert HEAD in lesson
    assert f"# | {exercise.id} | {exercise.title} | {facts} |" in lesson
    assert f"**Exercise {exercise.id}** {exercise.title} · {exercise.box}." in lesson


LESSONS = sorted({e.id.split(".")[0] for e in EXERCISES}, key=int)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_minutes_of_the_exercises_add_up(lesson):
    own = [e for e in EXERCISES if e.id.split(".")[0] == lesson]
    optional = 12 if lesson == "2" else 0  # 2.4 is announced as an extra
    total = sum(e.minutes for e in own) - optional
    assert f"of which {total} are for the" in lesson_of(own[0])


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_stub_and_check_stand_in_the_lesson_under_their_names(exercise):
    lesson = lesson_of(exercise)
    assert f'# %% tags=["exercise"] name="ex-{exercise.id}"\ndef {exercise.function}(' in lesson
    assert f'check("{exercise.id}", {exercise.function})' in lesson


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
def test_hints_are_three_and_none_is_code(exercise):
    assert len(set(exercise.hints)) == 3
    assert not any(line in hint for hint in exercise.hints for line in ("for i in", "def ", "\n"))


def test_ids_are_those_of_the_lessons_and_functions_are_the_students():
    assert LESSONS == [str(int(path.name[:2])) for path in sorted(SOLUTIONS.glob("[0-9]*.py"))]
    assert all(e.function.startswith("my_") for e in EXERCISES)
