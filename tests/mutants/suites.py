"""Load the suites of all lessons that can run here, from one file per lesson (lesson04.py, …)."""

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
def cannot_run_lesson(number: str) -> str:
    """The reason why a part of the lesson with this number cannot run here; "" if all can."""
    reasons = (cannot_run(path.read_text(encoding="utf-8")) for path in sources_of(number))
    return next(filter(None, reasons), "")


def load_suites() -> dict[str, Suite]:
    """Return the suites by exercise id, in the order of the lessons."""
    lessons = {path.stem.removeprefix("lesson"): path for path in sorted(HERE.glob("lesson*.py"))}
    modules = (loaded(path, path.stem) for n, path in lessons.items() if not cannot_run_lesson(n))
    return {suite.id: suite for module in modules for suite in module.SUITES}


def load_recorded() -> list[tuple[str, RecordedMutant]]:
    """Return the recorded mutants of all lessons that can run here, each with its exercise id."""
    record = read_recorded(HERE.parents[1])
    known = [name for name in record if not cannot_run_lesson(find(name).lesson)]
    return [(name, row) for name in known for row in record[name]]
