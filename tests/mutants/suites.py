"""The suites of every lesson that can run here: a file for each lesson (lesson04.py, …) has them."""

from pathlib import Path

from harness import Suite

from tests.mutation.by_hand import suites
from tests.mutation.references import sources_of
from tools.build.notebook_execution import cannot_run

ROOT = Path(__file__).parents[2]


def cannot_run_lesson(number: int) -> str:
    """Why the lesson with this number cannot run here; "" where it can."""
    return cannot_run(sources_of(number)[0].read_text(encoding="utf-8"))


def load_suites() -> dict[str, Suite]:
    """The suites by exercise, in the order of the lessons."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("lesson*.py")):
        number = int(path.stem.removeprefix("lesson"))
        if not cannot_run_lesson(number):
            found.update(suites(ROOT, number))
    return found
