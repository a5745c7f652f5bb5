"""`python -m tests.mutation`: change each reference in one place and verify that its check rejects it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from iocourse.cli import Parser
from iocourse.console import with_progress_bar
from iocourse.course.project_paths import find_checkout
from iocourse.data.records import run_metadata
from iocourse.errors import UsageError
from iocourse.files import write_json
from tools import run_main
from tools.build.recorded_mutants import RECORDED, read_recorded, write_recorded

from . import mutation_run, report
from .cover import SECONDS, cover, declared, properties_of, still_shown
from .recording import record_scores


def parser() -> Parser:
    """Build the parser of the options."""
    made = Parser(
        prog="python -m tests.mutation",
        description="Change each reference in one place and verify that its check rejects the change.",
    )
    made.add_argument(
        "--only",
        metavar="EXERCISE",
        action="append",
        default=[],
        help="only this exercise or lesson; repeatable",
    )
    made.add_argument(
        "--operators",
        metavar="LIST",
        type=_names,
        default=[],
        help="operators, separated by commas, such as starts,ranges (default: all)",
    )
    made.add_argument(
        "--seeds",
        metavar="N",
        type=int,
        default=10,
        help="seeds on which a mutant must be rejected (default: 10)",
    )
    made.add_argument(
        "--sample", metavar="K", type=int, default=1, help="try one mutant in K, chosen by hash (default: 1)"
    )
    made.add_argument(
        "--every-seed", action="store_true", help="try a rejected mutant on the other seeds too"
    )
    made.add_argument("--triton", action="store_true", help="include lessons 10 to 14, one second per mutant")
    made.add_argument(
        "--jobs", metavar="J", type=int, help="mutants to run at the same time (default: one per processor)"
    )
    made.add_argument("--json", metavar="FILE", type=Path, help="also write the scores to FILE")
    kept = made.add_mutually_exclusive_group()
    kept.add_argument(
        "--record", action="store_true", help="also store the scores for the instructor's guide"
    )
    kept.add_argument(
        "--record-cover",
        action="store_true",
        help="record one mutant per property for the test suite",
    )
    made.add_argument(
        "--missing", action="store_true", help="with --record-cover: keep recorded mutants that still apply"
    )
    made.add_argument(
        "--seconds", metavar="S", type=float, default=SECONDS,
        help=f"with --record-cover: processor time per exercise (default: {SECONDS:g})",
    )  # fmt: skip
    return made


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return 0 if every score holds, 1 if one does not, 2 for invalid arguments."""
    return run_main(parser(), mutants, argv)


def mutants(arguments: argparse.Namespace) -> int:
    """Run the requested mutants, print the scores, and store them where an option requests it."""
    if arguments.record_cover:
        return _cover(arguments)
    if arguments.record and arguments.operators:
        raise UsageError("--record stores the score of all operators. Remove --operators.")
    options = ("only", "operators", "seeds", "sample", "every_seed", "triton", "jobs")
    found = mutation_run.run(**{name: getattr(arguments, name) for name in options})
    print(report.summary(found))
    if arguments.json:
        write_json(arguments.json, report.as_json(found))
    if arguments.record:
        record_scores(find_checkout(), found, arguments.sample, _today_with("numpy", "triton"))
    return 0 if all(score.holds for score in found) else 1


def _cover(arguments: argparse.Namespace) -> int:
    """Record a mutant for each property and return 1 if a property has none.

    Each exercise is stored when it is complete, so an interrupted run keeps its results.
    """
    root = find_checkout()
    exercises = mutation_run.chosen(arguments.only, triton=True)
    mutation_run.prepare(exercises)
    jobs, lacking = arguments.jobs or os.cpu_count() or 1, 0
    for name in with_progress_bar(exercises, "exercises"):
        kept = still_shown(name, read_recorded(root).get(name, ())) if arguments.missing else []
        shown = {one for row in kept for one in row.properties}
        wanted = [one for one in properties_of(name) if one not in shown]
        if set(wanted) & set(declared(name)) or not kept:
            options = {"operators": arguments.operators, "jobs": jobs, "seconds": arguments.seconds}
            kept += cover(name, wanted, **options)
        write_recorded(root, read_recorded(root) | {name: tuple(kept)})
        for one in wanted:
            if one in declared(name) and not any(one in row.properties for row in kept):
                print(f'{name}: no mutant fails "{one}"')
                lacking += 1
    print(f"{len(exercises)} exercises recorded in {RECORDED}, {lacking} properties without a mutant")
    return int(lacking > 0)


def _today_with(*packages: str) -> str:
    """Today's date and the versions of Python and of these packages, in the form that records use."""
    facts = run_metadata(*packages)
    return f"{facts['date']}, " + ", ".join(
        f"{name} {version}" for name, version in facts["versions"].items()
    )


if __name__ == "__main__":
    sys.exit(main())
