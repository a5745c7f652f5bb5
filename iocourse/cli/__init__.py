"""Command line `iocourse`: parse the arguments and call the library. A command imports only what it needs."""

from __future__ import annotations

import argparse
import codecs
import importlib
import io
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import NoReturn

from iocourse import __version__
from iocourse.errors import UsageError

# The module of the course that adds its commands. No other place of the library names the course.
COURSE = "iocourse.course.commands"
Handler = Callable[[argparse.Namespace], int]
# ASCII replacements for characters that an output encoding may lack.
_PLAIN = {"–": "-", "—": "-", "−": "-", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~"}
_PLAIN |= {"√": "sqrt", "…": "...", "→": "->", "←": "<-", "“": '"', "”": '"', "‘": "'", "’": "'"}
_PLAIN |= {"█": "#", "▏": "|", "│": "|", "─": "-", "✓": "+", "✗": "x"}
# Commands of an earlier version, with the command that replaces each in a checkout.
MOVED = {
    "bench": "python -m tools.bench WHAT",
    "mutants": "python -m tests.mutation",
    "release": "python -m tools.build",
    "site": "sphinx-build docs FOLDER",
}


class Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one line instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message and a hint to --help, and exit with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; None for those of the process.

    Returns:
        The exit code: 0 success, 1 a problem was found, 2 bad arguments, 130 interrupted.
    """
    print_anything()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in MOVED:
        now = MOVED[arguments[0]]
        print(f"iocourse {arguments[0]}: moved; run {now} in the root of a checkout", file=sys.stderr)
        return 2
    parser = build_parser(arguments[0] if arguments else "")
    parsed, extra = parser.parse_known_args(arguments)
    if extra and not getattr(parsed, "passes_options_on", False):
        parser.prog = f"iocourse {parsed.command}"  # whose --help the message names
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    parsed.extra = extra
    return run_command(f"iocourse {parsed.command}", lambda: parsed.handler(parsed))


def run_command(name: str, command: Callable[[], int]) -> int:
    """Run a command and return its exit code; print usage errors in one line that starts with `name`."""
    try:
        code = int(command())
        print(end="", flush=True)  # raises BrokenPipeError here rather than at exit
        return code
    except BrokenPipeError:  # the reader, such as head, closed the pipe
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
    """Make standard output and error accept any text, even if their encoding lacks a character.

    Such a character is printed in ASCII (× as x, … as ...), or otherwise as its code.
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
    """Return the parser. The options of count and profile, and the course, are imported only if needed."""
    parser = Parser(prog="iocourse", description="The I/O complexity of attention.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"iocourse {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_room(commands, command, "count", "count the words that one schedule moves")
    _add_room(commands, command, "profile", "print the bytes that one launch must move")
    doctor = add_command(commands, "doctor", _doctor, "check this machine and list what is missing")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    if command not in ("count", "profile", "doctor"):
        importlib.import_module(COURSE).add_parsers(commands, command)
    return parser


Commands = argparse._SubParsersAction  # argparse lacks a public name for it


def add_command(commands: Commands[Parser], name: str, handler: Handler, text: str) -> Parser:
    """Add a command and return its parser; `handler` gets the parsed arguments and returns the exit code."""
    parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.set_defaults(handler=handler)
    return parser


def _add_room(commands: Commands[Parser], command: str, name: str, text: str) -> None:
    """Add a command whose options and handler are in iocourse.<name>, imported only for that command."""
    if command == name:
        importlib.import_module(f"iocourse.{name}").add_parser(commands)
    else:
        commands.add_parser(name, help=text)


def _doctor(arguments: argparse.Namespace) -> int:
    from iocourse.doctor import inspect_environment

    report = inspect_environment()
    print(report.to_json() if arguments.json else report)
    return 0
