"""Print the points of typical answers to the exercises: a factor forgotten, untiled, and words moved twice.

`python -m tests.typical_points` judges the answers that `tests/mutants/typical_answers.toml` declares. A line
has the points of values and of traffic, their total, its share of the exercise's points, and the change of
the reference. `--only 4A` judges one exercise, and `--report` also prints what the student reads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from iocourse.course.checking import judge, report
from iocourse.course.exercise import Exercise, exercises, find
from iocourse.course.points import points_of

sys.path.insert(0, str(Path(__file__).parent / "mutants"))  # pytest does so for the tests in that folder

from harness import drawn
from suites import cannot_run_lesson
from typical_answers import Typical, typical_answers

HEAD = f"{'':4} {'answer':8} {'values':>6} {'traffic':>7} {'total':>6} {'share':>6}  change of the reference"
WIDE = 60  # characters of a change


def lines_of(exercise: Exercise, *, with_report: bool = False) -> Iterator[str]:
    """Yield a line for each typical answer to the exercise, and the report below it if requested."""
    if reason := cannot_run_lesson(exercise.lesson):
        yield f"{exercise.id:4} not run: {reason}"
        return
    for one in typical_answers(exercise.id):
        yield from _lines(exercise, one, with_report)


def _lines(exercise: Exercise, one: Typical, with_report: bool) -> Iterator[str]:
    if one.make is None:
        yield f"{exercise.id:4} {one.kind:8} none: {one.how}"
        return
    seed = drawn(one.id, one.kind)  # as in test_typical_points.py
    verdicts = judge(exercise, one.make(), seed)
    points = points_of(exercise, verdicts)
    numbers = f"{points.values:6.2f} {'-' if points.traffic is None else f'{points.traffic:.2f}':>7}"
    change = " ".join(one.how.split())
    shown = change if len(change) <= WIDE else f"{change[: WIDE - 1]}…"
    share = points.total / exercise.importance
    yield f"{exercise.id:4} {one.kind:8} {numbers} {points.total:6.2f} {share:6.0%}  {shown}"
    if with_report:
        yield report(exercise, verdicts, seed)


def main(given: Sequence[str] | None = None) -> None:
    """Print the table of one exercise, or of all that can run here."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.typical_points", description="Print the points of typical answers."
    )
    parser.add_argument("--only", metavar="ID", choices=list(exercises()), help="one exercise, such as 4A")
    parser.add_argument("--report", action="store_true", help="also print the report on each answer")
    options = parser.parse_args(given)
    print(HEAD)
    for exercise in [find(options.only)] if options.only else exercises().values():
        for line in lines_of(exercise, with_report=options.report):
            print(line, flush=True)


if __name__ == "__main__":
    main()
