"""The suites of every lesson that can run here: a file for each lesson (lesson04.py, …) has them."""

import importlib.util
from pathlib import Path

from harness import Suite

from iocourse.course.authoring.kernel_lessons import cannot_run
from iocourse.course.authoring.mutation.references import lesson_source


def cannot_run_lesson(number: str) -> str:
    """Why the lesson with this number, such as "10", cannot run here; "" where it can."""
    return cannot_run(lesson_source(int(number)).read_text(encoding="utf-8"))


def load_suites() -> dict[str, Suite]:
    """The suites by exercise, in the order of the lessons."""
    suites = {}
    for path in sorted(Path(__file__).parent.glob("lesson*.py")):
        if cannot_run_lesson(path.stem.removeprefix("lesson")):
            continue
        spec = importlib.util.spec_from_file_location(f"mutants_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        suites.update({suite.id: suite for suite in module.SUITES})
    return suites
