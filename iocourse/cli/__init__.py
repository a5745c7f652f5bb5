"""The command line: a thin face over the rooms of the library. Each command loads only what it needs."""

from __future__ import annotations

import argparse
import codecs
import importlib
import io
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from iocourse import __version__
from iocourse.errors import UsageError

Handler = Callable[[argparse.Namespace], int]
# Letters that an encoding may lack, in plain ones.
_PLAIN = {"–": "-", "—": "-", "−": "-", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~"}
_PLAIN |= {"√": "sqrt", "…": "...", "→": "->", "←": "<-", "“": '"', "”": '"', "‘": "'", "’": "'"}
_PLAIN |= {"█": "#", "▏": "|", "│": "|", "─": "-", "✓": "+", "✗": "x"}
# Commands of an earlier version, and what does the same in a checkout.
MOVED = {
    "bench": "python -m tools.bench WHAT",
    "mutants": "python -m tests.mutation",
    "release": "python -m tools.build",
    "site": "sphinx-build docs FOLDER",
}


class Parser(argparse.ArgumentParser):
    """Says in one line which argument was wrong."""

    def error(self, message: str) -> NoReturn:
        """Print the line and leave with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process where None.

    Returns:
        0 done, 1 found something wrong, 2 bad arguments, 130 interrupted.
    """
    print_anything()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in MOVED:
        now = MOVED[arguments[0]]
        print(f"iocourse {arguments[0]}: moved: run {now} in the root of a checkout", file=sys.stderr)
        return 2
    parser = build_parser(arguments[0] if arguments else "")
    parsed, extra = parser.parse_known_args(arguments)
    if extra and parsed.command != "lab":  # only `lab` passes options on
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    parsed.extra = extra
    return run_command(f"iocourse {parsed.command}", lambda: parsed.handler(parsed))


def run_command(name: str, command: Callable[[], int]) -> int:
    """The exit code of a command, whose errors of use are printed in one line that starts with its name."""
    try:
        code = int(command())
        print(end="", flush=True)  # also where there is nothing to write to
        return code
    except BrokenPipeError:  # whoever reads, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UsageError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"{name}: not enough memory: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def print_anything() -> None:
    """Let standard output and error take any text, also where their encoding lacks a character.

    A character that it lacks is printed as plain letters (× as x, … as ...), or else by its code.
    """
    codecs.register_error("iocourse.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="iocourse.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = ""
    for letter in error.object[error.start : error.end]:
        without_marks = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
        plain += _PLAIN.get(letter) or without_marks or letter.encode("ascii", "backslashreplace").decode()
    return plain, error.end


def build_parser(command: str = "") -> Parser:
    """The parser. `count` and `profile` bring their own options, and are loaded for those commands only."""
    parser = Parser(prog="iocourse", description="The I/O complexity of attention.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"iocourse {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_room(commands, command, "count", "count the words one schedule moves")
    _add_room(commands, command, "profile", "print the bytes that one launch must move")
    doctor = _add(commands, "doctor", _doctor, "look at this machine and say what it lacks")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    lab = _add(commands, "lab", _lab, "open the course in JupyterLab; further options go to JupyterLab")
    lab.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    lab.add_argument(
        "--update",
        metavar="LESSON",
        nargs="?",
        const="",
        help="open nothing: bring your copies of the lessons, or of this one, up to date, with your answers",
    )
    _add_progress(commands)
    _add_room(commands, command, "grade", "grade a folder of submissions to one lesson")
    return parser


Commands = argparse._SubParsersAction  # argparse has no public name for it


def _add(commands: Commands[Parser], name: str, handler: Handler, text: str) -> Parser:
    parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.set_defaults(handler=handler)
    return parser


def _add_room(commands: Commands[Parser], command: str, name: str, text: str) -> None:
    """A command whose room brings its own options and handler, and is loaded for it alone."""
    if command == name:
        importlib.import_module(f"iocourse.{name}").add_parser(commands)
    else:
        commands.add_parser(name, help=text)


def _add_progress(commands: Commands[Parser]) -> None:
    parser = _add(commands, "progress", _progress, "show what has been solved, and where that is kept")
    parser.add_argument("--json", action="store_true", help="print JSON")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--export", metavar="FILE", type=Path, help="write the progress to FILE")
    one.add_argument("--import", metavar="FILE", type=Path, dest="merge", help="merge FILE into the progress")
    one.add_argument("--reset", action="store_true", help="start afresh; the old file is kept")
    one.add_argument(
        "--cohort", metavar="FOLDER", type=Path, help="count a class's predictions, from exported files"
    )
    parser.add_argument(
        "--only",
        metavar="QUESTION",
        action="append",
        default=[],
        help="with --cohort: this question or lesson, such as 4.5 or 04; repeatable",
    )
    parser.add_argument(
        "--blind", action="store_true", help="with --cohort: do not say what came out, for a class to discuss"
    )
    parser.add_argument(
        "--figure", metavar="FILE", type=Path, help="with --cohort: also draw them, FILE.svg or FILE.png"
    )


def _doctor(arguments: argparse.Namespace) -> int:
    from iocourse.doctor import inspect_environment

    report = inspect_environment()
    print(report.to_json() if arguments.json else report)
    return 0


def _lab(arguments: argparse.Namespace) -> int:
    from iocourse.course.lab import open_lab, update_copies

    if arguments.update is not None:
        if arguments.extra:
            raise UsageError(f"--update takes one LESSON or none; got also {' '.join(arguments.extra)}")
        return update_copies(arguments.update)
    return open_lab(browser=not arguments.no_browser, options=arguments.extra)


def _progress(arguments: argparse.Namespace) -> int:
    from iocourse.course import progress

    if arguments.cohort:
        from iocourse.course import class_predictions

        found = class_predictions.class_histograms(arguments.cohort, arguments.only, blind=arguments.blind)
        print(class_predictions.as_text(found))
        if arguments.figure:
            class_predictions.draw(found, arguments.figure)
        return 0
    for option in ("only", "blind", "figure"):
        if getattr(arguments, option):
            raise UsageError(f"--{option} goes with --cohort FOLDER")
    if arguments.export:
        print(f"{progress.export_to(arguments.export)} exercises written to {arguments.export}")
    elif arguments.merge:
        print(f"{progress.import_from(arguments.merge)} exercises in {progress.location()}")
    elif arguments.reset:
        kept = progress.reset()
        print(f"started afresh; the old file is kept at {kept}" if kept else "there was nothing to reset")
    elif arguments.json:
        facts = {"path": str(progress.location()), "exercises": progress.load()}
        print(json.dumps(facts, indent=1, sort_keys=True))
    else:
        print(f"{progress.location()}\n\n{progress.table(progress.load(), _known_exercises())}")
    return 0


def _known_exercises() -> tuple[str, ...]:
    from iocourse.course.project_paths import exercise_ids, find_course

    try:
        return exercise_ids(find_course())
    except UsageError:  # installed without the lessons
        return ()
    except (ValueError, LookupError, TypeError):  # one of them is no notebook
        return ()
