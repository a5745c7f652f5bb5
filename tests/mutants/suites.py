"""The suites of every lesson that can run here: a file for each lesson (lesson04.py, …) has them."""

import importlib.util
from pathlib import Path

from harness import Suite

from iocourse.course.authoring.kernel_lessons import cannot_run
from iocourse.course.authoring.mutation.references import sources_of


def cannot_run_lesson(number: int) -> str:
    """Why the lesson with this number cannot run here; "" where it can."""
    return cannot_run(sources_of(number)[0].read_text(encoding="utf-8"))


def load_suites() -> dict[str, Suite]:
    """The suites by exercise, in the order of the lessons."""
    suites = {}
    for path in sorted(Path(__file__).parent.glob("lesson*.py")):
        if cannot_run_lesson(int(path.stem.removeprefix("lesson"))):
            continue
        spec = importlib.util.spec_from_file_location(f"mutants_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        suites.update({suite.id: suite for suite in module.SUITES})
    return suites
