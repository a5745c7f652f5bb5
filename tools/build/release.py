"""Producing the course: from each source in `solutions/` the solved notebook and the student's in `lessons/`.

The same sources give the same bytes: ids do not depend on a cell's text, keys are sorted, and one changed
line of a source is one changed line in each notebook. The solved notebooks keep their saved outputs until
one of their code cells changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iocourse.console import steps
from iocourse.course.project_paths import Project, read_project
from iocourse.course.student_copies.notebook import to_text
from iocourse.refusal import Refused, write_whole
from tools.build import assignment, execution, pages
from tools.build.announcements import announce, minutes_of
from tools.build.first_cell import with_first_cell, without_first_cell
from tools.build.guide.page import PAGE, guide_page, guide_problems
from tools.build.kernel_lessons import cannot_run
from tools.build.links import LINK
from tools.build.rules import evening, lint, prose, surprises
from tools.build.rules.evening import Evening, evening_of
from tools.build.source import Cell, SourceError, cell_ids, parse, shown, side

Json = dict[str, Any]
NOTATION = re.compile(r"\]\((?:\./)?notation\.md")


class ReleaseFailed(Exception):
    """The course cannot be released as it stands; nothing was written (exit code 1)."""


@dataclass(frozen=True)
class Lesson:
    """One source with its two notebooks, not yet executed and without their first cell."""

    stem: str
    project: Project
    cells: tuple[Cell, ...]
    solved: Json
    student: Json
    evening: Evening
    exercises: int  # minutes


def read_lessons(root: Path, project: Project, only: Sequence[str] = ()) -> list[Lesson]:
    """Build both notebooks of every source in `root`/solutions, or of those whose name starts as in `only`.

    Raises:
        ReleaseFailed: a source cannot be read.
        Refused: there is no source, or none that `only` names.
    """
    paths = sorted((root / "solutions").glob("[0-9]*.py"))
    chosen = [path for path in paths if not only or path.stem.startswith(tuple(only))]
    if not chosen:
        have = ", ".join(path.stem for path in paths) or "none"
        wanted = " or ".join(only) or "[0-9]*.py"
        raise Refused(f"no source {wanted} in {root / 'solutions'}; there are: {have}")
    try:
        return [build(path, path.relative_to(root), project) for path in chosen]
    except SourceError as error:
        raise ReleaseFailed(str(error)) from None


def build(path: Path, label: Path, project: Project) -> Lesson:
    """Both notebooks of one source; `label` is what messages call the file."""
    written = parse(path.read_text(encoding="utf-8"), label)
    cells = announce(written, label)
    imports = assignment.brought(cells)
    cells = _with_named_setup(cells, label)
    ids = cell_ids(cells, path.stem, label)
    cells = _with_badges(cells, path.stem, project)
    named = list(zip(cells, ids, strict=True))
    solved = [_json_cell(cell, name, solved=True) for cell, name in named if shown(cell, solved=True)]
    student = [_handed_out(cell, name, imports, label) for cell, name in named if shown(cell, solved=False)]
    size = evening_of(written), minutes_of(written, label)
    return Lesson(path.stem, project, tuple(cells), _notebook(solved), _notebook(student), *size)


def _with_named_setup(cells: list[Cell], label: Path) -> list[Cell]:
    """The cells, of which the one tagged setup is named so. It is the first one of code, or there is none."""
    if not cells or cells[0].kind != "markdown" or not cells[0].lines[0].startswith("# "):
        raise SourceError(label, 1, "the first cell must be the title: markdown that starts with '# # Title'")
    first = next((n for n, cell in enumerate(cells) if cell.kind == "code"), len(cells))
    if any("setup" in cell.tags for cell in cells[first + 1 :]):
        raise SourceError(label, 1, "the cell tagged setup must be the first code cell, and the only one")
    if first == len(cells) or "setup" not in cells[first].tags:
        return cells
    return [*cells[:first], replace(cells[first], name="setup"), *cells[first + 1 :]]


def _with_badges(cells: list[Cell], stem: str, project: Project) -> list[Cell]:
    """Add links to both notebooks in Colab below the title, once the repository's address is claimed."""
    if not project.claimed:
        return cells
    title = cells[0]
    links = [  # words, not a badge from another server
        ("exercises", project.colab(f"lessons/{stem}.ipynb")),
        ("solutions", project.colab(f"solutions/{stem}.ipynb")),
    ]
    line = "Open in Colab: " + " · ".join(f"[{name}]({address})" for name, address in links)
    return [replace(title, lines=(title.lines[0], "", line, *title.lines[1:])), *cells[1:]]


def _json_cell(cell: Cell, cell_id: str, *, solved: bool) -> Json:
    text = "\n".join(side(cell, solved=solved))
    if solved and cell.kind == "markdown":  # the notation page lies beside the student's notebooks
        text = NOTATION.sub("](../lessons/notation.md", text)
    metadata: Json = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.name:
        metadata["name"] = cell.name
    made: Json = {"cell_type": cell.kind, "id": cell_id, "metadata": metadata}
    made["source"] = text.splitlines(keepends=True)
    return made | ({"execution_count": None, "outputs": []} if cell.kind == "code" else {})


def _handed_out(cell: Cell, cell_id: str, imports: Mapping[str, str], label: Path) -> Json:
    """A cell of the student's notebook, which is an assignment for nbgrader."""
    made = _json_cell(assignment.standing_alone(cell, imports), cell_id, solved=False)
    told = assignment.metadata(cell, cell_id, label)
    return made | {"metadata": made["metadata"] | {"nbgrader": told}} if told else made


def _notebook(cells: list[Json]) -> Json:
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def finished(lesson: Lesson, notebook: Json, *, solved: bool) -> str:
    """One of the lesson's notebooks as it is written: with its first cell."""
    return to_text(with_first_cell(notebook, lesson.project, solved=solved))


def _code(notebook: Json) -> list[Json]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _what_runs(notebook: Json) -> list[tuple[str, bool]]:
    cells = _code(notebook)
    return [("".join(c["source"]), "raises-exception" in c["metadata"].get("tags", [])) for c in cells]


def with_saved_outputs(built: Json, path: Path) -> Json | None:
    """`built` with the outputs stored at `path`, or None where its code was never run as it is now."""
    try:
        stored = without_first_cell(json.loads(path.read_text(encoding="utf-8")))
        unrun = any(cell["execution_count"] is None and cell["source"] for cell in _code(stored))
        if unrun or _what_runs(stored) != _what_runs(built):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _with_runs(built, _code(stored))


def _with_runs(notebook: Json, runs: Sequence[Json]) -> Json:
    """The notebook with outputs and counts of `runs`, its code cells as they were run."""
    fresh = iter(runs)
    cells = [_with_run(c, next(fresh)) if c["cell_type"] == "code" else c for c in notebook["cells"]]
    return notebook | {"cells": cells}


def _with_run(cell: Json, run: Json) -> Json:
    return cell | {"outputs": run["outputs"], "execution_count": run["execution_count"]}


def with_shown_outputs(student: Json, solved: Json) -> Json:
    """The student's notebook with the saved outputs of its cells tagged `shown`, seen before any has run, and
    the count of that run: nbval refuses outputs without one.
    """
    runs = {cell["id"]: cell for cell in _code(solved)}
    cells = [
        _with_run(cell, runs[cell["id"]]) if "shown" in cell["metadata"].get("tags", []) else cell
        for cell in student["cells"]
    ]
    return student | {"cells": cells}


def run_solved(lesson: Lesson, root: Path) -> Json:
    """The lesson's solved notebook with fresh outputs, normalised.

    Raises:
        ReleaseFailed: a cell raised, or shows what cannot be saved; names the cell. Or the lesson runs
            kernels, and there is no triton here.
    """
    name = f"solutions/{lesson.stem}.ipynb"
    if reason := cannot_run(to_text(lesson.solved)):
        raise ReleaseFailed(f"{name} {reason}")
    try:
        with execution.lesson_environment(root, strict=True) as env:
            ran = execution.execute(lesson.solved, name=name, folder=root / "solutions", env=env)
    except execution.ExecutionFailed as error:
        raise ReleaseFailed(str(error)) from None
    _refuse_faults(ran, name)
    runs = [cell | {"outputs": execution.normalise(cell["outputs"])} for cell in _code(ran)]
    return _with_runs(lesson.solved, runs)


def _refuse_faults(notebook: Json, name: str) -> None:
    found = [
        f"{name}: {execution.cell_label(cell, n)}\n  {fault}"
        for n, cell in enumerate(notebook["cells"])
        for fault in execution.faults(cell, cell.get("outputs", []))
    ]
    if found:
        raise ReleaseFailed("\n".join(found))


def release(root: Path, *, force: bool = False, only: Sequence[str] = ()) -> list[str]:
    """Write what changed: notebooks, the parts of pages that `pages.py` says, the guide to the exercises.

    Args:
        root: the checkout.
        force: run every notebook, not only those whose code changed.
        only: names (or their beginnings) of the lessons to build; all where empty.

    Returns:
        The files written, relative to `root`.

    Raises:
        Refused: the repository's URL is unset, or there is no such lesson.
        ReleaseFailed: a source, a cell or an output is at fault; then no file was touched.
    """
    texts: dict[Path, str] = {}
    project = read_project(root)
    if faults := pages.records_without_origin(root):
        raise ReleaseFailed("\n".join(faults))
    lessons = read_lessons(root, project, only)
    for lesson in steps(lessons, "lessons built"):
        path = Path("solutions") / f"{lesson.stem}.ipynb"
        kept = None if force else with_saved_outputs(lesson.solved, root / path)
        ran = kept or run_solved(lesson, root)
        texts[path] = finished(lesson, ran, solved=True)
        student = with_shown_outputs(lesson.student, ran)
        texts[Path("lessons") / path.name] = finished(lesson, student, solved=False)
    texts |= pages.pages(root, {} if only else rows(lessons), project)
    texts |= {PAGE: page} if (page := guide_page(root)) else {}
    changed = [path for path, text in texts.items() if _read(root / path) != text]
    for path in changed:
        write_whole(root / path, texts[path])
    return [*(path.as_posix() for path in changed), *pages.write_figure(root)]


def rows(lessons: Sequence[Lesson]) -> dict[str, str]:
    """Number of a lesson -> its row in README's tables."""
    return {
        one.stem.partition("_")[0]: pages.lesson_row(
            one.stem, one.cells, one.evening.reading + one.exercises, one.project
        )
        for one in lessons
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def check(root: Path, *, only: Sequence[str] = ()) -> list[str]:
    """Why the course as it stands is not what its sources say, one line each; empty where all is well.

    Args:
        root: the checkout.
        only: names (or their beginnings) of the lessons to look at; all, and the pages, where empty.

    Raises:
        Refused: the repository's URL is unset, or there is no such lesson.
        ReleaseFailed: a source cannot be read.
    """
    if faults := pages.records_without_origin(root):
        return faults
    project = read_project(root)
    lessons = read_lessons(root, project)
    labels = prose.course_labels([lesson.cells for lesson in lessons])
    chosen = read_lessons(root, project, only) if only else lessons
    found = [problem for lesson in chosen for problem in _lesson_problems(lesson, root, labels)]
    if only:
        return found
    return [
        *found,
        *_strays(root, lessons),
        *pages.problems(root, rows(lessons), project),
        *guide_problems(root),
    ]


def _lesson_problems(lesson: Lesson, root: Path, labels: Collection[str]) -> Iterator[str]:
    path = root / "solutions" / f"{lesson.stem}.ipynb"
    kept = with_saved_outputs(lesson.solved, path)
    if kept is None or finished(lesson, kept, solved=True) != _read(path):
        yield f"solutions/{lesson.stem}.ipynb is stale: run python -m tools.build"
    student = with_shown_outputs(lesson.student, kept or lesson.solved)
    if finished(lesson, student, solved=False) != _read(root / "lessons" / path.name):
        yield f"lessons/{lesson.stem}.ipynb is stale: run python -m tools.build"
    for n, cell in enumerate((kept or lesson.solved)["cells"]):
        for fault in execution.faults(cell, cell.get("outputs", [])):
            yield f"solutions/{lesson.stem}.ipynb: {execution.cell_label(cell, n)} {fault}"
    source = Path("solutions") / f"{lesson.stem}.py"
    yield from lint.problems(lesson.cells, source)
    if kept is not None:  # else its outputs are of other code
        yield from prose.problems(lesson.cells, kept, source, labels)
        yield from surprises.problems(lesson.cells, kept, source, labels)
        yield from evening.problems(lesson.evening, lesson.exercises, kept, source)
    yield from _dead_links(lesson.solved, root / "solutions", lesson.stem)
    yield from _dead_links(lesson.student, root / "lessons", lesson.stem)


def _dead_links(notebook: Json, folder: Path, stem: str) -> Iterator[str]:
    text = "\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
    for target in dict.fromkeys(found[1] for found in LINK.finditer(text)):
        if not (folder / target).exists():
            yield f"{folder.name}/{stem}.ipynb links to {target}, which does not exist"


def _strays(root: Path, lessons: Sequence[Lesson]) -> Iterator[str]:
    stems = {lesson.stem for lesson in lessons}
    for folder in ("solutions", "lessons"):
        for path in sorted((root / folder).glob("*.ipynb")):
            if path.stem not in stems:
                yield f"{folder}/{path.name} has no source solutions/{path.stem}.py"
