"""`python -m tools.build`: the notebooks and the generated parts of pages, from their sources."""

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
    """The options."""
    made = Parser(prog="python -m tools.build", description="Make the notebooks from their sources.")
    made.add_argument("--check", action="store_true", help="only say what is out of date")
    made.add_argument("--execute", action="store_true", help="run unchanged notebooks too")
    made.add_argument("--only", metavar="NAME", action="append", default=[], help="this lesson, such as 02")
    made.add_argument(
        "--colab", metavar="FOLDER", type=Path, help="write the notebooks that Colab opens, and nothing else"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 something is wrong or stale, 2 bad arguments."""
    return run_main(parser(), build, argv)


def build(arguments: argparse.Namespace) -> int:
    """What the options ask for."""
    root = find_checkout()
    if arguments.colab:
        if arguments.check or arguments.execute or arguments.only:
            raise UsageError(
                "--colab takes the notebooks as they stand: leave --check, --execute and --only away"
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
