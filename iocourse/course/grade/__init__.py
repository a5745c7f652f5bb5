"""`iocourse grade`: grade a folder of submissions; each one runs in a separate, isolated process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...files import atomic_write
from ..project_paths import find_course
from . import grade_report, old_points, sandbox, submissions
from .batch import Grade, grade_all
from .lesson_cells import Lesson, read_lessons
from .sandbox import Limits, cores

DESCRIPTION = """
Grade a folder of submissions to one lesson. Exercise cells are found by name, nbgrader id, cell id or
function. Each submission runs in a separate process inside bubblewrap and is judged outside of it. The output
is a table with one row per student (total points, points per exercise, first reason for lost points), then
one line per notebook that differs from the lesson's structure. Grades and the CSV file are saved after
every submission. After an interrupt (exit code 130) the same command continues and grades only new
submissions. Exit code 0: all submissions were graded; exit code 2: none was graded, and an error line gives
the reason.
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `grade` to the subparsers of the command line and set its handler."""
    meaning = "grade a folder of submissions to one lesson"
    parser = commands.add_parser("grade", help=meaning, description=DESCRIPTION, allow_abbrev=False)
    parser.set_defaults(handler=grade)
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="NAME.ipynb or NAME/….ipynb, one per student"
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        type=Path,
        help="also write a table to FILE: student, lesson, points, of, each exercise, rule, reasons, notes; "
        "an existing table whose points follow another rule is kept under another name",
    )
    parser.add_argument(
        "--feedback",
        metavar="FOLDER",
        type=Path,
        help="also write FOLDER/NAME.ipynb: the submission with a report below each exercise",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=cores(),
        help="submissions graded in parallel (default: all cores)",
    )
    parser.add_argument(
        "--no-sandbox",
        action="store_true",
        help="run submissions without bubblewrap, with the permissions of your account: they can then read "
        "and change your files, use your network and forge their points",
    )


def grade(arguments: argparse.Namespace, limits: Limits | None = None) -> int:
    """Run `iocourse grade` and return its exit code.

    Args:
        arguments: the parsed command line.
        limits: resources that one submission may use; default `Limits()`.

    Returns:
        0 if all submissions were graded, 130 after an interrupt.

    Raises:
        UsageError: an argument is invalid, or nothing can be graded.
    """
    limits = limits or Limits()
    if arguments.jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {arguments.jobs}")
    folder, sandboxed = arguments.folder, not arguments.no_sandbox
    handed_in = submissions.find_submissions(folder)
    if arguments.feedback and arguments.feedback.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"--feedback must be outside {folder}, because its notebooks would be read as submissions"
        )
    grade_report.require_writable(arguments.csv, arguments.feedback, handed_in)
    lessons = read_lessons(find_course())
    lesson = submissions.most_common_lesson(handed_in, lessons)
    handed_in = submissions.one_per_student(handed_in, lesson, lessons)
    if sandboxed:
        sandbox.require_bubblewrap(limits)
    _tell_what_is_left_out(folder, arguments.csv)
    table = arguments.csv
    stream = bool(table and table.exists() and not table.is_file())  # to a pipe, write only the final table
    as_it_goes = partial(_write_table, table, lesson) if table and not stream else None
    grades, complete = grade_all(folder, handed_in, lesson, limits, sandboxed, arguments.jobs, as_it_goes)
    print(grade_report.as_table(grades, lesson))
    for line in grade_report.notes(grades):
        print(line)
    if table:
        _write_table(table, lesson, grades)
    if arguments.feedback:
        grade_report.write_feedback(arguments.feedback, grades, handed_in, lesson)
    if not complete:
        told = f"{len(grades)} of {len(handed_in)} graded and saved; run the same command again to continue"
        print(told, file=sys.stderr)
    return 0 if complete else 130


def _write_table(path: Path, lesson: Lesson, grades: Sequence[Grade]) -> None:
    if line := old_points.keep_table(path):
        print(line, file=sys.stderr)
    atomic_write(path, grade_report.as_csv(grades, lesson))


def _tell_what_is_left_out(folder: Path, ours: Path | None) -> None:
    own = ours if ours and ours.parent.resolve() == folder.resolve() else None
    others = [
        name
        for name in submissions.other_files(folder)
        if not (own and (name == own.name or name.startswith(f"{own.stem}-{old_points.KEPT}")))
    ]
    if others:
        more = ", …" if len(others) > 9 else ""
        print(f"not graded, because they are not notebooks: {', '.join(others[:9])}{more}", file=sys.stderr)
