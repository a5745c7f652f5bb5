"""Command `python -m tools.build`: write notebooks and generated parts of pages from their sources."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from iocourse.cli import Parser
from iocourse.course.project_paths import find_checkout
from iocourse.errors import UsageError
from tools import run_main

from . import BuildFailed, course
from .absolute_links import write_for_colab


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = Parser(prog="python -m tools.build", description="Write the notebooks from their sources.")
    made.add_argument("--check", action="store_true", help="list outdated files; write nothing")
    made.add_argument("--execute", action="store_true", help="also run unchanged notebooks")
    made.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="only this lesson, such as 02"
    )
    made.add_argument(
        "--colab", metavar="FOLDER", type=Path, help="write only the notebooks for Colab, into FOLDER"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Return 0 on success, 1 for a faulty or stale file, 2 for invalid arguments."""
    return run_main(parser(), build, argv)


def build(arguments: argparse.Namespace) -> int:
    """Write or check the course as the options request, print the result and return the exit code."""
    root = find_checkout()
    if arguments.colab:
        if arguments.check or arguments.execute or arguments.only:
            raise UsageError(
                "--colab copies the notebooks as they are, so it cannot be combined with --check, --execute "
                "or --only: leave these out"
            )
        written = write_for_colab(root, arguments.colab)
        print(f"wrote {len(written)} notebooks, {written[0]} the first")
        return 0
    try:
        if arguments.check:
            problems = course.check(root, only=arguments.only)
            print(
                *(problems or ["everything is up to date"]), sep="\n", file=sys.stderr if problems else None
            )
            return int(bool(problems))
        changed = course.write(root, force=arguments.execute, only=arguments.only)
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"wrote {name}" for name in changed) or "everything is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
