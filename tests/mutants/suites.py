"""The suites of every lesson that can run here: a file for each lesson (lesson04.py, …) has them."""

from functools import cache
from pathlib import Path

from harness import Suite

from iocourse.course.exercise import find
from iocourse.discovery import loaded
from tests.mutation.references import sources_of
from tools.build.notebook_execution import cannot_run
from tools.build.recorded_mutants import RecordedMutant, read_recorded

HERE = Path(__file__).parent


@cache
def cannot_run_lesson(number: int) -> str:
    """Why the lesson with this number cannot run here; "" where it can."""
    return cannot_run(sources_of(number)[0].read_text(encoding="utf-8"))


def load_suites() -> dict[str, Suite]:
    """The suites by exercise, in the order of the lessons."""
    lessons = {int(path.stem.removeprefix("lesson")): path for path in sorted(HERE.glob("lesson*.py"))}
    modules = (loaded(path, path.stem) for n, path in lessons.items() if not cannot_run_lesson(n))
    return {suite.id: suite for module in modules for suite in module.SUITES}


def load_recorded() -> list[tuple[str, RecordedMutant]]:
    """The recorded mutants of every lesson that can run here, with the exercise of each."""
    record = read_recorded(HERE.parents[1])
    return [
        (name, row)
        for name, rows in record.items()
        if not cannot_run_lesson(find(name).lesson)
        for row in rows
    ]
