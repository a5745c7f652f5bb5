"""Write the notebooks and pages of the course that have changed, or list those that are out of date.

The same sources give the same bytes: ids do not depend on the text of a cell, keys are sorted, and one
changed line of a source changes one line in each notebook. The solved notebooks keep their saved outputs
until one of their code cells changes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from iocourse.console import with_progress_bar
from iocourse.course.student_copies.notebook import to_text
from iocourse.files import atomic_write
from tools.build import BuildFailed, exercise_texts, generated_sections, lesson_tables, notebook_execution
from tools.build.absolute_links import LINK
from tools.build.instructor_guide import PAGE, guide_page, guide_problems
from tools.build.lesson import Json, Lesson, read_lessons
from tools.build.lesson_tables import Row
from tools.build.notebook_execution import cannot_run
from tools.build.percent_format import Cell
from tools.build.project import read_project
from tools.build.recorded_mutants import recorded_problems
from tools.build.rules import (
    choices_file,
    cross_references,
    displays,
    glossary,
    lesson_length,
    lesson_lint,
    number_check,
    number_pages,
    prediction_spoilers,
    style_check,
)
from tools.build.setup_cell import with_first_cell, without_first_cell


def write(root: Path, *, force: bool = False, only: Sequence[str] = ()) -> list[str]:
    """Write the changed notebooks, the generated parts of pages, and the instructor's guide.

    Args:
        root: the checkout.
        force: run every notebook, also those whose code is unchanged.
        only: lesson numbers or beginnings of their names; by default all lessons.

    Returns:
        The files written, relative to `root`.

    Raises:
        UsageError: the repository's URL is unset, or there is no such lesson.
        BuildFailed: a source, a display, a cell or an output has an error; no notebook and no page was
            changed.
    """
    if faults := lesson_tables.entries_without_source(root):
        raise BuildFailed("\n".join(faults))
    texts: dict[Path, str] = {}
    about = exercise_texts.data_text(root)
    changed_data = _read(root / exercise_texts.DATA) != about
    if changed_data:  # before the lessons are read, because their exercises use these texts
        atomic_write(root / exercise_texts.DATA, about)
    project = read_project(root)
    if faults := generated_sections.records_without_origin(root):
        raise BuildFailed("\n".join(faults))
    lessons = read_lessons(root, project, only)
    if faults := list(recorded_problems(root, [lesson.cells for lesson in lessons])):
        raise BuildFailed("\n".join(faults))
    if faults := [fault for one in lessons for fault in displays.problems(one.cells, _source(one))]:
        raise BuildFailed("\n".join(faults))
    every = read_lessons(root, project) if only else lessons  # README's tables have a row for each lesson
    if faults := [] if only else choices_file.problems(root):
        raise BuildFailed("\n".join(faults))
    if faults := _map_faults(root, every):  # before notebooks are run, which takes minutes
        raise BuildFailed("\n".join(faults))
    for lesson in with_progress_bar(lessons, "lessons built"):
        path = Path("solutions") / f"{lesson.stem}.ipynb"
        kept = None if force else with_saved_outputs(lesson.solved, root / path)
        texts |= both_texts(lesson, kept or run_solved(lesson, root))
    texts |= generated_sections.pages(root, rows(root, every), project)
    texts |= {PAGE: page} if (page := guide_page(root)) else {}
    if not only and (counts := style_check.lower_counts(root)):
        texts[style_check.COUNTS] = counts
    changed = [path for path, text in texts.items() if _read(root / path) != text]
    for path in changed:
        atomic_write(root / path, texts[path])
    data = [exercise_texts.DATA] if changed_data else []
    return [*(path.as_posix() for path in (*data, *changed)), *generated_sections.write_figure(root)]


def check(root: Path, *, only: Sequence[str] = ()) -> list[str]:
    """Return one message for each file that is out of date or violates a rule; empty if there is none.

    Args:
        root: the checkout.
        only: lesson numbers or beginnings of their names; by default all lessons and the pages.

    Raises:
        UsageError: the repository's URL is unset, or there is no such lesson.
        BuildFailed: a source cannot be read.
    """
    if faults := lesson_tables.entries_without_source(root) or generated_sections.records_without_origin(
        root
    ):
        return faults
    stale = _read(root / exercise_texts.DATA) != exercise_texts.data_text(root)
    found = [f"{exercise_texts.DATA.as_posix()} is stale: run python -m tools.build"] if stale else []
    project = read_project(root)
    lessons = read_lessons(root, project)
    labels = number_check.course_labels([lesson.cells for lesson in lessons])
    chosen = read_lessons(root, project, only) if only else lessons
    found += [problem for lesson in chosen for problem in _lesson_problems(lesson, root, labels)]
    known = cross_references.targets((lesson.cells for lesson in lessons), lesson_tables.lessons_of_map(root))
    for lesson in chosen:
        found += cross_references.problems(lesson.cells, _source(lesson), known)
    found += cross_references.repeated_labels((_source(lesson), lesson.cells) for lesson in lessons)
    found += recorded_problems(root, [lesson.cells for lesson in chosen])
    if not only:
        found += _map_faults(root, lessons)
        found += cross_references.page_problems(root, known)
        stems = {lesson.stem for lesson in lessons}
        for path in sorted((root / "solutions").glob("*.ipynb")) + sorted((root / "lessons").glob("*.ipynb")):
            if path.stem not in stems:
                found.append(
                    f"{path.parent.name}/{path.name} has no source solutions/{path.stem}.py: delete it"
                )
        found += [*generated_sections.problems(root, rows(root, lessons), project), *guide_problems(root)]
        found += [*style_check.problems(root), *glossary.problems(root)]
        found += number_pages.problems(root, labels)
        found += choices_file.problems(root)
    return found


def _lesson_problems(lesson: Lesson, root: Path, labels: Collection[str]) -> Iterator[str]:
    kept = with_saved_outputs(lesson.solved, root / "solutions" / f"{lesson.stem}.ipynb")
    for path, text in both_texts(lesson, kept or lesson.solved).items():
        never_run = kept is None and path.parts[0] == "solutions"
        if never_run or _read(root / path) != text:
            yield f"{path.as_posix()} is stale: run python -m tools.build"
    for where, fault in _faults(kept or lesson.solved):
        yield f"solutions/{lesson.stem}.ipynb: {where} {fault}"
    source = _source(lesson)
    yield from lesson_lint.problems(lesson.cells, source)
    yield from displays.problems(lesson.cells, source)
    if kept is not None:  # otherwise the saved outputs belong to other code
        yield from _number_problems(lesson, kept, root, labels)
        yield from prediction_spoilers.problems(lesson.cells, kept, source, labels)
        yield from lesson_length.problems(lesson.length, lesson.exercises, kept, source)
    for folder, notebook in (("solutions", lesson.solved), ("lessons", lesson.student)):
        text = "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
        for target in dict.fromkeys(found[1] for found in LINK.finditer(text)):
            if not (root / folder / target).exists():
                new = lesson_tables.present_names(root).get(target.removesuffix(".ipynb"))
                advice = f"write {new}.ipynb" if new else "correct it"
                yield f"{folder}/{lesson.stem}.ipynb links to {target}, which does not exist: {advice}"


def _source(lesson: Lesson) -> Path:
    return Path("solutions") / f"{lesson.stem}.py"


def _without_next(lesson: Lesson, root: Path) -> list[Cell]:
    """Return the cells without the sentences on the next lessons, whose numbers are bound in the map."""
    lessons, number = lesson_tables.lessons_of_map(root), lesson.stem.partition("_")[0]
    onward = lesson_tables.what_comes_next(number, lessons) if number in lessons else "<!-- next -->"
    return [
        replace(cell, lines=tuple(line.replace(onward, "") for line in cell.lines))
        if cell.kind == "markdown"
        else cell
        for cell in lesson.cells
    ]


def _number_problems(lesson: Lesson, solved: Json, root: Path, labels: Collection[str]) -> Iterator[str]:
    source = _source(lesson)
    hints = number_pages.hint_passages((root / source).read_text(encoding="utf-8"), source)
    yield from number_check.problems(_without_next(lesson, root), solved, source, labels, hints=hints)


def _faults(notebook: Json) -> Iterator[tuple[str, str]]:
    """Yield (label of a cell, reason) for each output that cannot be saved."""
    for n, cell in enumerate(notebook["cells"]):
        for fault in notebook_execution.faults(cell, cell.get("outputs", [])):
            yield notebook_execution.cell_label(cell, n), fault


def rows(root: Path, lessons: Sequence[Lesson]) -> list[Row]:
    """Return what the tables of lessons contain, in the order of the map; empty if `root` has no map."""
    built = {one.stem: one for one in lessons}
    return [
        Row(entry, built[entry.file].length.reading + built[entry.file].exercises, _needs(built[entry.file]))
        for entry in lesson_tables.lessons_of_map(root).values()
        if entry.file in built
    ]


def _needs(lesson: Lesson) -> str:
    code = (line for cell in lesson.cells if cell.kind == "code" for line in cell.lines)
    return lesson_tables.needs("\n".join(code))


def _map_faults(root: Path, lessons: Sequence[Lesson]) -> list[str]:
    """Return one message for each difference between the map and these lessons, which must be all."""
    sources = {one.stem: one.cells for one in lessons}
    return list(lesson_tables.problems(lesson_tables.lessons_of_map(root), sources))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


# ---- notebooks with their outputs --------------------------------------------------------------------------


def both_texts(lesson: Lesson, ran: Json) -> dict[Path, str]:
    """Return the text of both notebooks by path, with their first cells.

    `ran` is the solved notebook with outputs. The student's notebook gets the outputs and execution counts of
    the cells tagged `shown`. The counts are needed because nbval rejects outputs without them.
    """
    shown = {c["id"] for c in lesson.student["cells"] if "shown" in c["metadata"].get("tags", [])}
    student = _with_runs(lesson.student, {c["id"]: c for c in _code(ran) if c["id"] in shown})
    name, project = f"{lesson.stem}.ipynb", lesson.project
    return {
        Path("solutions") / name: to_text(with_first_cell(ran, project, solved=True)),
        Path("lessons") / name: to_text(with_first_cell(student, project)),
    }


def with_saved_outputs(built: Json, path: Path) -> Json | None:
    """Return `built` with the outputs stored at `path`, or None if its code has changed or was never run."""
    try:
        stored = without_first_cell(json.loads(path.read_text(encoding="utf-8")))
        unrun = any(cell["execution_count"] is None and cell["source"] for cell in _code(stored))
        if unrun or _what_runs(stored) != _what_runs(built):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    in_order = zip(_code(built), _code(stored), strict=True)  # ids may have changed since
    return _with_runs(built, {cell["id"]: run for cell, run in in_order})


def _code(notebook: Json) -> list[Json]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _what_runs(notebook: Json) -> list[tuple[str, bool]]:
    cells = _code(notebook)
    return [("".join(c["source"]), "raises-exception" in c["metadata"].get("tags", [])) for c in cells]


def _with_runs(notebook: Json, runs: Mapping[str, Json]) -> Json:
    """Return the notebook with the outputs and execution counts of `runs`, matched by cell id."""
    cells = [
        cell | {key: runs[cell["id"]][key] for key in ("outputs", "execution_count")}
        if cell["id"] in runs
        else cell
        for cell in notebook["cells"]
    ]
    return notebook | {"cells": cells}


def run_solved(lesson: Lesson, root: Path) -> Json:
    """Run the lesson's solved notebook and return it with normalised outputs.

    Raises:
        BuildFailed: a cell raised an error or has an output that cannot be saved (the message names the
            cell), or the lesson runs kernels and triton is not installed.
    """
    name = f"solutions/{lesson.stem}.ipynb"
    if reason := cannot_run(to_text(lesson.solved)):
        raise BuildFailed(f"{name} {reason}")
    with notebook_execution.lesson_environment(root, strict=True) as env:
        ran = notebook_execution.execute(lesson.solved, name=name, folder=root / "solutions", env=env)
    if found := [f"{name}: {where}\n  {fault}" for where, fault in _faults(ran)]:
        raise BuildFailed("\n".join(found))
    for cell in _code(ran):
        cell["outputs"] = notebook_execution.normalise(cell["outputs"])
    return _with_runs(lesson.solved, {cell["id"]: cell for cell in _code(ran)})
