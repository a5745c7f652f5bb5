"""Tables and sentences that are made from the map of the course (`iocourse/course/lessons.toml`).

These are README's two tables, the tables of docs/guide/lessons.md, the plan and the lists of prerequisites in
docs/teaching.md, what the letter of 04b means, and the last paragraph of each lesson. `problems` compares the
map with the sources.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iocourse.course.course_map import MAP, Lesson, read_map
from iocourse.errors import UsageError
from tools.build.notebook_execution import runs_kernels
from tools.build.percent_format import Cell
from tools.build.project import Project

HEAD = ("lesson", "minutes", "builds on", "needs")
# Sections and formulas, and the link to the notation page.
_ASIDE = re.compile(r"\d+\.\d+|(?:Signs|Symbols) and terms.*")
LETTERS = (  # what the letter in 04b means; written once, here, and copied to pages by the build
    "A letter after a number marks a further part of a lesson: 04b continues lesson 04. Such parts are\n"
    "electives. The main path needs none of them, but some electives build on one, as the tables show."
)
SESSIONS = 2  # per week, in the plan and in the course of the main path


@dataclass(frozen=True)
class Row:
    """One row of the tables: the facts of a lesson that are not in the map.

    Attributes:
        lesson: its entry in the map.
        minutes: of reading and of the exercises that are not optional.
        needs: packages that its code needs.
    """

    lesson: Lesson
    minutes: int
    needs: str


def lessons_of_map(root: Path) -> dict[str, Lesson]:
    """Return the lessons by number, in the order of the course; empty if `root` has no map.

    Raises:
        UsageError: the map has an error; the message has its line.
    """
    path = root / MAP
    return read_map(path.read_text(encoding="utf-8")) if path.is_file() else {}


def entries_without_source(root: Path) -> list[str]:
    """Return one message for each lesson of the map that has no file in solutions/."""
    return [
        f"{MAP}:{lesson.line}: no solutions/{lesson.file}.py: write it, or delete the entry"
        for lesson in lessons_of_map(root).values()
        if not (root / "solutions" / f"{lesson.file}.py").is_file()
    ]


def present_names(root: Path) -> dict[str, str]:
    """Return the present file name of each lesson by its former ones, without endings."""
    return {former: lesson.file for lesson in lessons_of_map(root).values() for former in lesson.former}


def problems(lessons: Mapping[str, Lesson], sources: Mapping[str, Sequence[Cell]]) -> Iterator[str]:
    """Yield one message for each difference between the map and the sources.

    Args:
        lessons: the map; if it is empty there are no problems.
        sources: the cells of each source as written, by the name of its file without ending.
    """
    if not lessons:
        return
    files = {lesson.file: lesson for lesson in lessons.values()}
    for stem, cells in sources.items():
        path = f"solutions/{stem}.py"
        if stem not in files:
            yield f'{path}:1: the map has no such lesson: add [[part.lesson]] with file = "{stem}" to {MAP}'
            continue
        onward = what_comes_next(files[stem].number, lessons)
        yield from _differences(files[stem], onward, cells, path)


def _differences(lesson: Lesson, onward: str, cells: Sequence[Cell], path: str) -> Iterator[str]:
    """Yield one message for each difference between a source and its entry in the map."""
    title = cells[0].lines[0].removeprefix("# ")
    if title != lesson.title:
        yield f"{path}:2: the title is {title!r}, but in {MAP}:{lesson.line} it is {lesson.title!r}"
    written = tuple(cell.name.removeprefix("ex-") for cell in cells if "exercise" in cell.tags)
    if sorted(written) != sorted(lesson.exercises):
        had, has = (", ".join(ids) or "none" for ids in (lesson.exercises, written))
        yield f"{path}:1: the lesson has the exercises {has}, but {MAP}:{lesson.line} lists {had}"
    for cell in cells:
        for n, line in enumerate(cell.lines, cell.line + 1):
            if line.startswith("**Prerequisites**") and (named := prerequisites(line)) != [*lesson.builds_on]:
                had, has = (", ".join(numbers) or "no lesson" for numbers in (lesson.builds_on, named))
                yield f"{path}:{n}: the prerequisites name {has}, but {MAP}:{lesson.line} has {had}"
    if not any(
        line.startswith("**What comes next.**") and onward in line for cell in cells for line in cell.lines
    ):
        yield f"{path}:1: no line **What comes next.** <!-- next -->: add it near the end"


def prerequisites(line: str) -> list[str]:
    """Return the numbers of the lessons that a line of prerequisites names, in order."""
    return sorted(set(re.findall(r"\b(?<!/)([0-2]\d[a-z]?)\b(?!_)", _ASIDE.sub("", line))))


def needs(code: str) -> str:
    """Return the packages that the code of a lesson needs, as the last column of the lesson table."""
    if runs_kernels(code):
        return "Triton"
    return "NumPy, torch in part" if re.search(r"^\s*import torch\b", code, re.MULTILINE) else "NumPy"


# ---- README and the guide ----------------------------------------------------------------------------------


def readme_tables(rows: Sequence[Row], project: Project) -> dict[str, str]:
    """Return README's tables by marker name: the main path ("spine") and the electives."""
    return {
        name: _table([row for row in rows if row.lesson.main_path == main], project)
        for name, main in (("spine", True), ("electives", False))
    }


def _table(rows: Sequence[Row], project: Project) -> str:
    """Return a Markdown table of lessons, with links to Colab once the repository's address is claimed."""
    head = [*HEAD, "opens in"] if project.claimed else list(HEAD)
    rule = ["---", "---:", *["---"] * (len(head) - 2)]
    return "\n".join(_line(cells) for cells in (head, rule, *(_cells(row, project) for row in rows)))


def _cells(row: Row, project: Project) -> list[str]:
    cells = [_links(row.lesson), str(row.minutes), ", ".join(row.lesson.builds_on), row.needs]
    return (
        [*cells, f"[Colab]({project.colab(f'lessons/{row.lesson.file}.ipynb')})"]
        if project.claimed
        else cells
    )


def _links(lesson: Lesson, to_root: str = "") -> str:
    """Return links to both notebooks; `to_root` leads from the page to the root of the checkout."""
    file = f"{lesson.file}.ipynb"
    return f"[{lesson.title}]({to_root}lessons/{file}) · [solution]({to_root}solutions/{file})"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def guide_parts(lessons: Mapping[str, Lesson]) -> dict[str, str]:
    """Return the generated parts of docs/guide/lessons.md, by marker name."""
    return {"letters": LETTERS, "lessons": guide_tables(lessons)}


def guide_tables(lessons: Mapping[str, Lesson]) -> str:
    """Return the tables of docs/guide/lessons.md: for each part of the course, what a student does."""
    parts = dict.fromkeys(lesson.part for lesson in lessons.values())
    return "\n\n".join(
        _guide_table(part, [one for one in lessons.values() if one.part == part]) for part in parts
    )


def _guide_table(part: str, lessons: Sequence[Lesson]) -> str:
    rows = [(_links(one, "../../"), "yes" if one.main_path else "", one.you_will) for one in lessons]
    table = [("lesson", "main path", "you will"), ("---",) * 3, *rows]
    return "\n".join([f"## {part}", "", *map(_line, table)])


# ---- the guide for teachers --------------------------------------------------------------------------------


def teaching_parts(root: Path, lessons: Mapping[str, Lesson]) -> dict[str, str]:
    """Return the generated parts of docs/teaching.md, by marker name. Raises as `plan_table`."""
    return {
        "letters": LETTERS,
        "plan": plan_table(root, lessons),
        "main-path": main_path_in_weeks(lessons),
        "prerequisites": prerequisites_list(lessons),
    }


def prerequisites_list(lessons: Mapping[str, Lesson]) -> str:
    """Return one sentence with the lessons that each elective and each lesson from 05 on builds on."""
    late = [one for one in lessons.values() if one.builds_on and one.number >= "05"]
    return (
        "Prerequisites from lesson 05 on: "
        + "; ".join(f"{one.number} needs {_and(one.builds_on)}" for one in late)
        + "."
    )


def main_path_in_weeks(lessons: Mapping[str, Lesson]) -> str:
    """Return the sentence on a course of the main path with one lesson per session."""
    path = [one.number for one in lessons.values() if one.main_path]
    return (
        f"The main path has {len(path)} lessons ({', '.join(path)}). With one lesson\n"
        f"per session and {SESSIONS} sessions per week it takes {-(-len(path) // SESSIONS)} weeks."
    )


def plan_table(root: Path, lessons: Mapping[str, Lesson]) -> str:
    """Return the plan of four weeks as a Markdown table.

    Raises:
        UsageError: a session has an unknown lesson or one whose prerequisites come later, or an exercise of
            another lesson.
    """
    plan = tomllib.loads((root / MAP).read_text(encoding="utf-8")).get("plan", {}).get("session", [])
    weeks: dict[int, list[Mapping[str, Any]]] = {}
    seen: set[str] = set()
    for session in plan:
        weeks.setdefault(session["week"], []).append(session)
        for branch in session.get("branches", [session.get("lessons", [])]):
            _refuse_early(branch, seen, lessons, session["week"])
        seen |= set(session.get("lessons", []))
        _refuse_foreign(session, lessons)
    rows = [("week", "first session", "second session", "at home"), ("---",) * 4]
    return "\n".join(map(_line, [*rows, *(_week(week, some) for week, some in weeks.items())]))


def _week(week: int, sessions: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the row of one week."""
    if branches := sessions[0].get("branches"):
        either = "; or ".join(", then ".join(branch) for branch in branches)
        return (
            str(week),
            f"a branch: {either}",
            "the second lesson of the branch",
            "two exercises of the branch",
        )
    cells = [f"{', '.join(s['lessons'])}: {s['topic']} ({', '.join(s['exercises'])})" for s in sessions]
    return str(week), *cells, ", ".join(id for session in sessions for id in session.get("at_home", []))


def _refuse_early(branch: Sequence[str], seen: set[str], lessons: Mapping[str, Lesson], week: int) -> None:
    done = set(seen)
    for number in branch:
        if number not in lessons:
            raise UsageError(f"{MAP}: week {week} of the plan has the unknown lesson {number!r}")
        if lacking := [one for one in lessons[number].builds_on if one not in done]:
            raise UsageError(f"{MAP}: week {week} of the plan has lesson {number} before {_and(lacking)}")
        done.add(number)


def _refuse_foreign(session: Mapping[str, Any], lessons: Mapping[str, Lesson]) -> None:
    there = {id for number in session.get("lessons", []) for id in lessons[number].exercises}
    for id in [*session.get("exercises", []), *session.get("at_home", [])]:
        if id not in there:
            raise UsageError(
                f"{MAP}: week {session['week']} of the plan has exercise {id}, which is not in its lessons "
                f"{_and(session['lessons'])}"
            )


def _and(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


# ---- the last paragraph of a lesson ------------------------------------------------------------------------


def what_comes_next(number: str, lessons: Mapping[str, Lesson]) -> str:
    """Return the sentences on the lessons that follow a lesson: on the main path, and the electives."""
    order = list(lessons.values())
    after = order[order.index(lessons[number]) + 1 :]
    onward = next((one for one in after if one.main_path), None)
    if not after:
        return "This was the last lesson of the course."
    if after[0] is onward:
        return _leads("The main path continues with", onward)
    if not lessons[number].main_path:
        path = f" The main path continues with {_link(onward)}." if onward else ""
        return _leads("The next elective is", after[0]) + path
    electives = after[: after.index(onward)] if onward else after
    path = _leads("The main path continues with", onward) if onward else "The main path ends here."
    several = "Electives that follow here:" if len(electives) > 1 else "An elective that follows here:"
    return f"{path} {several} {'; '.join(_with_electives(one, lessons) for one in electives)}."


def _leads(start: str, lesson: Lesson) -> str:
    return f"{start} {_link(lesson)}. In it you will {lesson.you_will}."


def _with_electives(lesson: Lesson, lessons: Mapping[str, Lesson]) -> str:
    """Return the link to an elective, with the electives on which it builds."""
    before = [number for number in lesson.builds_on if not lessons[number].main_path]
    return f"{_link(lesson)}{f' (after {_and(before)})' if before else ''}"


def _link(lesson: Lesson) -> str:
    return f"[{lesson.title}]({lesson.file}.ipynb)"
