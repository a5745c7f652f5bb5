"""The submissions in a folder: one notebook a student, `anna.ipynb` or `anna/…/03_online_softmax.ipynb`."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..console import shown
from ..refusal import Refused
from .lesson import Lesson, lesson_of, text_of

MOST = 50 << 20  # bytes of a notebook
DEEPEST = 50  # lists and objects one in another; notebooks have a dozen


@dataclass(frozen=True)
class Submission:
    """What a student handed in.

    Attributes:
        name: the student's, as it can be shown and as files can be called.
        path: the notebook, or what is in its place.
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


# ------------------------------------------------------------------ who handed in what
def find(folder: Path) -> list[Submission]:
    """Every submission in `folder`, by name; a folder without a notebook is one with a fault.

    Raises:
        Refused: it is no folder, has no notebooks, has them one folder deeper, or two of one name.
    """
    if not folder.is_dir():
        raise Refused(f"DIR must be a folder of notebooks, one a student; {folder} is none")
    found = {entry: list(_notebooks(entry)) for entry in _visible(folder)}
    handed_in = {entry: paths for entry, paths in found.items() if paths or _is_folder(entry)}
    if not any(handed_in.values()):
        raise Refused(f"no notebook in {folder}: put them there as NAME.ipynb or NAME/….ipynb, one a student")
    _refuse_a_folder_of_folders(handed_in)
    by_name: dict[str, list[Submission]] = {}
    for entry, paths in handed_in.items():
        name = shown(entry.name if _is_folder(entry) else entry.stem)
        read = [_read(name, path) for path in paths] or [Submission(name, entry, b"", fault=_EMPTY)]
        by_name.setdefault(_alike(name), []).extend(read)
    chosen = [_only_one(several) for several in by_name.values()]
    _refuse_doubles([several for several in chosen if len(several) > 1])
    return sorted((one for (one,) in chosen), key=lambda submission: submission.name)


_EMPTY = "there is no notebook (.ipynb) in the folder"


def not_handed_in(folder: Path) -> list[str]:
    """Files in `folder` that are no notebooks, such as an archive that nobody has unpacked."""
    names = (entry.name for entry in _visible(folder) if not _is_folder(entry) and not _is_notebook(entry))
    return [shown(name) for name in names]


def _alike(name: str) -> str:
    """The same for names that some file systems do not tell apart."""
    return unicodedata.normalize("NFC", name.casefold())


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.name[:1] != "." and entry.name != "__MACOSX")


def _is_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink()


def _is_notebook(entry: Path) -> bool:
    return entry.suffix.lower() == ".ipynb" or entry.is_symlink()


def _notebooks(entry: Path) -> Iterator[Path]:
    """The notebooks that an entry of the folder stands for; links count, and are not followed."""
    if not _is_folder(entry):
        yield from [entry] if _is_notebook(entry) else []
        return
    for top, folders, files in os.walk(entry):
        folders[:] = sorted(name for name in folders if name[:1] != ".")  # such as .ipynb_checkpoints
        paths = (Path(top, name) for name in sorted(files) if name[:1] != ".")
        yield from (path for path in paths if path.suffix.lower() == ".ipynb")


def _refuse_a_folder_of_folders(handed_in: dict[Path, list[Path]]) -> None:
    with_notebooks = [(entry, paths) for entry, paths in handed_in.items() if paths and _is_folder(entry)]
    if len(with_notebooks) != 1 or len(handed_in) != 1:
        return
    ((only, paths),) = with_notebooks
    if len({path.relative_to(only).parts[0] for path in paths}) > 1:
        raise Refused(f"all notebooks lie in {_told(only)}: grade that folder")


def _only_one(several: list[Submission]) -> list[Submission]:
    """Of a student's notebooks the one that has exercises; all of them where there is no such one."""
    lessons = [one for one in several if any(id_of(cell).startswith("ex-") for cell in one.cells)]
    return lessons if len(lessons) == 1 else several


def _refuse_doubles(doubles: list[list[Submission]]) -> None:
    if not doubles:
        return
    one, other = doubles[0][:2]
    more = [several[0].name for several in doubles[1:]]
    also = f" (and so for {', '.join(more[:5])}{', …' if len(more) > 5 else ''})" if more else ""
    paths = f"{_told(one.path)} and {_told(other.path)}"
    raise Refused(f"two submissions of the name {one.name!r}, {paths}{also}: rename or take away one")


def _told(path: Path) -> str:
    return str(Path(*map(shown, path.parts)))


# ------------------------------------------------------------------ what is in it
def _read(name: str, path: Path) -> Submission:
    try:
        fault = _unreadable(path)
        data = b"" if fault else path.read_bytes()
    except OSError as error:
        return Submission(name, path, b"", fault=f"its file cannot be read: {error.strerror}")
    if fault:
        return Submission(name, path, b"", fault=fault)
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        fault = f"its file is not UTF-8 (byte {error.start:,}): save it again"
        return Submission(name, path, data, fault=fault)
    except (ValueError, RecursionError) as error:
        return Submission(name, path, data, fault=f"its file is no notebook: {error}")
    fault = _fault(notebook)
    kept = not fault or fault.startswith("its kernel")
    return Submission(name, path, data, notebook if kept else {}, fault)


def _unreadable(path: Path) -> str:
    if path.is_symlink():
        return "it is a link to another file: hand in the notebook itself"
    if not path.is_file():
        return "it is no file: hand in a notebook"
    size = path.stat().st_size
    return (
        f"its file has {size >> 20:,} MB, allowed are {MOST >> 20}: clear its outputs" if size > MOST else ""
    )


def _fault(notebook: Any) -> str:
    if _deeper(notebook):
        return f"its file is nested more than {DEEPEST} deep, as no notebook is"
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(_is_cell(cell) for cell in cells):
        return "its file is no notebook of format 4: open and save it in JupyterLab"
    metadata = notebook.get("metadata")
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    language = kernel.get("language", "python") if isinstance(kernel, dict) else "python"
    return (
        "" if language == "python" else f"its kernel is for {language!r}: choose Python 3 and save it again"
    )


def _deeper(notebook: Any) -> bool:
    level = [notebook]
    for _ in range(DEEPEST):
        level = [part for value in level for part in _parts(value)]
    return bool(level)


def _parts(value: Any) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()


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
