"""The map of the course: parts, lessons and their order, what each builds on, and former file names.

`lessons.toml`, next to this module, has one entry per lesson, in the order of the course:

* ``file``: name of its notebooks without the ending. Its beginning, such as ``04b``, is the lesson's number;
* ``title``: its title, with the number;
* ``former``: file names that the lesson had before, oldest first. Copies of students and
  links of the site are found by them;
* ``ids_of``: the name from which the ids of its cells are made; if it is missing, the oldest one. It does not
  change with `file`, because a student's copy is compared with the lesson cell by cell;
* ``main_path``: true for the lessons of the main path. It builds only on such lessons;
* ``builds_on``: numbers of the lessons that it needs, which come earlier in the map;
* ``exercises``: ids of its exercises. An id never gets another meaning; its number is that of the lesson for
  which it was written, and the entry gives its present lesson;
* ``you_will``: what a student does in the lesson, continuing "you will".
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from ..errors import UsageError

MAP = "iocourse/course/lessons.toml"
_FILE = re.compile(r"(\d\d[a-z]?)_[a-z0-9_]+")
_EXERCISE = re.compile(r"\d{1,2}[A-Z]")
_KEYS = {"file": str, "title": str, "ids_of": str, "you_will": str, "main_path": bool, "builds_on": list}
_KEYS |= {"exercises": list, "former": list}


@dataclass(frozen=True)
class Lesson:
    """One lesson of the map; the module's docstring explains the fields that `lessons.toml` has.

    Attributes:
        part: title of the part of the course to which it belongs.
        line: line of its ``file`` in the map, counted from 1.
    """

    file: str
    title: str
    part: str
    you_will: str
    builds_on: tuple[str, ...] = ()
    exercises: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    main_path: bool = False
    ids_of: str = ""
    line: int = field(default=0, compare=False)

    @property
    def number(self) -> str:
        """The number with its letter, such as ``04b``."""
        return self.file.partition("_")[0]

    @property
    def stem_of_ids(self) -> str:
        """The name from which the ids of its cells are made."""
        return self.ids_of or (self.former[0] if self.former else self.file)


@functools.cache
def course_map() -> Mapping[str, Lesson]:
    """Return every lesson by number, in the order of the course.

    Raises:
        UsageError: the map has an error; the message has its line.
    """
    return read_map(files(__package__).joinpath("lessons.toml").read_text(encoding="utf-8"))


def read_map(text: str) -> dict[str, Lesson]:
    """Return the lessons of a map in TOML, by number, in their order.

    Raises:
        UsageError: the text is not valid TOML, a key is unknown or missing, a number, name or exercise occurs
            twice, or a lesson builds on one that does not come before it.
    """
    try:
        parts = tomllib.loads(text).get("part", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{MAP} is not valid TOML: {error}") from None
    found: dict[str, Lesson] = {}
    for part in parts:
        for row in part.get("lesson", []):
            lesson = _lesson(row, part.get("title", ""), text)
            if lesson.number in found:
                other = found[lesson.number].file
                raise _fault(
                    lesson.line,
                    f"two lessons have the number {lesson.number}, {other} and {lesson.file}: "
                    "give one of them another number or letter",
                )
            found[lesson.number] = lesson
    if not found:
        raise UsageError(f"{MAP} has no lessons: add [[part]] and [[part.lesson]] with file and you_will")
    for lesson in found.values():
        _refuse_faults(lesson, found)
    return found


def _lesson(row: Mapping[str, object], part: str, text: str) -> Lesson:
    """Return one row of the map as a `Lesson`. Raises UsageError if a key or a value is wrong."""
    file = row.get("file")
    line = _line_of(text, f'file = "{file}"')
    if not isinstance(file, str) or not _FILE.fullmatch(file):
        of = f" (in the entry with the title {row.get('title')!r})" if file is None else ""
        raise _fault(line, f'file must be like "04b_debugging_a_schedule", got {file!r}{of}')
    if not part:
        raise _fault(line, f'{file} is in a part without a title: add title = "…" below [[part]]')
    for key, value in row.items():
        if key not in _KEYS:
            raise _fault(line, f"{file} has an unknown key {key!r}; expected one of {', '.join(_KEYS)}")
        texts = value if isinstance(value, list) else []
        if not isinstance(value, _KEYS[key]) or not all(isinstance(one, str) for one in texts):
            what = {str: "text", bool: "true or false", list: "a list of texts"}[_KEYS[key]]
            raise _fault(line, f"{key} of {file} must be {what}, got {value!r}")
    if not row.get("title"):
        raise _fault(line, f"{file} has no title: write the heading of its source, with the number")
    if not row.get("you_will"):
        raise _fault(line, f'{file} has no you_will: write what a student does, after "you will"')
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Lesson(**given, part=part, line=line)  # type: ignore[arg-type]


def _refuse_faults(lesson: Lesson, known: Mapping[str, Lesson]) -> None:
    """Raise UsageError if the lesson contradicts another one of the map."""
    order = list(known)
    if (told := re.match(r"\d\d[a-z]?\b", lesson.title)) and told[0] != lesson.number:
        raise _fault(
            lesson.line,
            f"the title of {lesson.file} must begin with its number {lesson.number}, got {lesson.title!r}",
        )
    for number in lesson.builds_on:
        if number not in known:
            raise _fault(
                lesson.line,
                f"{lesson.file} builds on {number!r}, which is not a lesson of the map: "
                "write the number of one",
            )
        if order.index(number) >= order.index(lesson.number):
            circle = _reaches(number, lesson.number, known)
            raise _fault(
                lesson.line,
                f"{lesson.file} builds on {number}, "
                + ("a circle, because that lesson needs it too" if circle else "which comes later in the map")
                + ": correct builds_on, or move a lesson",
            )
        if lesson.main_path and not known[number].main_path:
            raise _fault(
                lesson.line,
                f"{lesson.file} is on the main path, but builds on the elective {number}: "
                "correct main_path of one of them, or builds_on",
            )
    for other in known.values():
        if other is lesson:
            continue
        for name in {lesson.file, *lesson.former} & {other.file, *other.former}:
            raise _fault(
                lesson.line,
                f"{name} is a name of two lessons, {other.file} and {lesson.file}: remove it from one",
            )
        for id in set(lesson.exercises) & set(other.exercises):
            raise _fault(
                lesson.line,
                f"exercise {id} is in two lessons, {other.file} and {lesson.file}: remove it from one",
            )
    for id in lesson.exercises:
        if not _EXERCISE.fullmatch(id) or lesson.exercises.count(id) > 1:
            raise _fault(
                lesson.line, f"exercises of {lesson.file} must be different ids such as 4B, got {id!r}"
            )


def _reaches(start: str, aim: str, known: Mapping[str, Lesson], seen: frozenset[str] = frozenset()) -> bool:
    """Return True if lesson `start` builds, directly or not, on lesson `aim`."""
    if start == aim:
        return True
    onward = known[start].builds_on if start in known and start not in seen else ()
    return any(_reaches(number, aim, known, seen | {start}) for number in onward)


def _line_of(text: str, what: str) -> int:
    lines = text.splitlines()
    return next((n for n, line in enumerate(lines, 1) if line.strip() == what), 0)


def _fault(line: int, message: str) -> UsageError:
    return UsageError(f"{MAP}:{line}: {message}" if line else f"{MAP}: {message}")


# ---- look-ups ----------------------------------------------------------------------------------------------


def lesson_of(exercise_id: str) -> str:
    """Return the number of the lesson that has this exercise, such as "04b" for 4E.

    Raises:
        ValueError: no lesson of the map has it.
    """
    for lesson in course_map().values():
        if exercise_id in lesson.exercises:
            return lesson.number
    raise ValueError(f"no lesson has the exercise {exercise_id!r}: add it to the exercises of one in {MAP}")


def lesson_named(name: str) -> Lesson | None:
    """Return the lesson whose file has, or had, this name without ending, otherwise None."""
    return next((one for one in course_map().values() if name in (one.file, *one.former)), None)
