"""The submissions in a folder: one notebook a student, `anna.ipynb` or `anna/…/03_online_softmax.ipynb`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..refusal import Refused
from .lesson import Lesson, lesson_of, text_of


@dataclass(frozen=True)
class Submission:
    """What a student handed in.

    Attributes:
        name: the student's.
        path: the notebook.
        data: its bytes.
        notebook: what they say; empty where they are no notebook.
        fault: why none of it can be run, "" where it can.
    """

    name: str
    path: Path
    data: bytes
    notebook: dict[str, Any] = field(default_factory=dict)
    fault: str = ""

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Its code cells."""
        return [cell for cell in self.notebook.get("cells", ()) if cell.get("cell_type") == "code"]

    def texts(self, cell_id: str) -> list[str]:
        """What stands in the cells with this id: one text, unless somebody deleted or doubled it."""
        return [text_of(cell) for cell in self.cells if id_of(cell) == cell_id]


def id_of(cell: dict[str, Any]) -> str:
    """A cell's id, or where an old notebook format has none, its name as ids are written."""
    name = cell.get("metadata", {}).get("name", "")
    return str(cell.get("id") or str(name).replace(".", "-"))


def find(folder: Path) -> list[Submission]:
    """Every submission in `folder`, by name.

    Raises:
        Refused: it is no folder, has no notebooks, or two of one name.
    """
    if not folder.is_dir():
        raise Refused(f"DIR must be a folder of notebooks, one a student; {folder} is none")
    paths = [path for path in sorted(folder.rglob("*.ipynb")) if _handed_in(path.relative_to(folder))]
    if not paths:
        raise Refused(f"no notebook in {folder}: put them there as NAME.ipynb or NAME/….ipynb, one a student")
    by_name: dict[str, Path] = {}
    for path in paths:
        name = _name(path.relative_to(folder))
        if name in by_name:
            raise Refused(
                f"two submissions of the name {name!r}, {by_name[name]} and {path}: rename or take away one"
            )
        by_name[name] = path
    return [_read(name, path) for name, path in sorted(by_name.items())]


def _handed_in(path: Path) -> bool:
    return not any(part.startswith(".") for part in path.parts)  # such as .ipynb_checkpoints


def _name(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else path.stem


def _read(name: str, path: Path) -> Submission:
    data = path.read_bytes()
    try:
        notebook = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Submission(
            name, path, data, fault=f"its file is not UTF-8 (byte {error.start:,}): save it again"
        )
    except (ValueError, RecursionError) as error:
        return Submission(name, path, data, fault=f"its file is no notebook: {error}")
    fault = _fault(notebook)
    return Submission(
        name, path, data, notebook if fault.startswith("its kernel") or not fault else {}, fault
    )


def _fault(notebook: Any) -> str:
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(_is_cell(cell) for cell in cells):
        return "its file is no notebook of format 4: open and save it in JupyterLab"
    metadata = notebook.get("metadata")
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    language = kernel.get("language", "python") if isinstance(kernel, dict) else "python"
    return (
        "" if language == "python" else f"its kernel is for {language!r}: choose Python 3 and save it again"
    )


def _is_cell(cell: Any) -> bool:
    return (
        isinstance(cell, dict)
        and isinstance(cell.get("metadata", {}), dict)
        and isinstance(cell.get("source", ""), (str, list))
    )


def the_lesson(submissions: Sequence[Submission], lessons: Sequence[Lesson]) -> Lesson:
    """The lesson that they are submissions of.

    Raises:
        Refused: some are of another lesson than the others, or none is of any.
    """
    of = {one.name: lesson_of([id_of(cell) for cell in one.cells], lessons) for one in submissions}
    found = {lesson.stem: lesson for lesson in of.values() if lesson}
    if not found:
        raise Refused("no submission has an exercise cell of this course: students start from lessons/")
    names = {stem: [name for name, lesson in of.items() if lesson and lesson.stem == stem] for stem in found}
    most, *others = sorted(names, key=lambda stem: -len(names[stem]))
    if others:
        strays = "; ".join(f"{', '.join(names[stem][:3])} of {stem}" for stem in others)
        raise Refused(f"{len(names[most])} submissions are of {most}, but {strays}: a folder for each lesson")
    return found[most]
