"""The suites of every lesson that can run here: a file for each lesson (lesson04.py, …) has them."""

from pathlib import Path

from harness import Suite

from iocourse.course.authoring.guide.by_hand import suites
from iocourse.course.authoring.kernel_lessons import cannot_run
from iocourse.course.authoring.mutation.references import sources_of

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
