"""Find the submissions in a folder, a notebook per student: `anna.ipynb` or `anna/…/NN_name.ipynb`."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..console import display_path
from ..course.student_copies.notebook import text_of
from ..errors import UsageError
from .lesson_cells import Lesson, lesson_of

ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".rar", ".7z")
MOST = 50 << 20  # bytes of a notebook
_CHECK = re.compile(r"""^check\(\s*["']""", re.MULTILINE)
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
        others: further notebooks of the same name; `one_per_student` leaves none.
    """

    name: str
    path: Path
    data: bytes
    notebook: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    others: tuple[Submission, ...] = ()

    @property
    def cells(self) -> list[dict[str, Any]]:
        """All cells of the notebook, of any kind."""
        return list(self.notebook.get("cells", ()))


# ------------------------------------------------------------------ who handed in what
def find(folder: Path) -> list[Submission]:
    """Every submission in `folder`, by name; a folder without a notebook is one with a fault.

    Raises:
        UsageError: it is not a folder, has no notebooks, or has them one folder deeper.
    """
    if not folder.is_dir():
        raise UsageError(f"DIR must be a folder of notebooks, one a student; {folder} is none")
    found = {entry: list(_notebooks(entry)) for entry in _visible(folder)}
    handed_in = {entry: paths for entry, paths in found.items() if paths or _is_folder(entry)}
    if not any(handed_in.values()):
        raise UsageError(
            f"no notebook in {folder}: put them there as NAME.ipynb or NAME/….ipynb, one a student"
        )
    _refuse_a_folder_of_folders(handed_in)
    by_name: dict[str, list[Submission]] = {}
    for entry, paths in handed_in.items():
        name = display_path(entry.name if _is_folder(entry) else entry.stem)
        read = [_read(name, path) for path in paths] or [Submission(name, entry, b"", fault=_empty(entry))]
        # Some file systems do not distinguish these names.
        by_name.setdefault(unicodedata.normalize("NFC", name.casefold()), []).extend(read)
    chosen = [_with_exercises(several) for several in by_name.values()]
    all_of_them = [replace(one, others=tuple(others)) for one, *others in chosen]
    return sorted(all_of_them, key=lambda submission: submission.name)


def _empty(folder: Path) -> str:
    """What is wrong with a folder without a notebook, with the first files that are in it."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()][:3]
    inside = f", only {', '.join(display_path(path.name) for path in files)}" if files else ""
    unpack = " Unpack the archive." if any(path.suffix.lower() in ARCHIVES for path in files) else ""
    return f"there is no notebook (.ipynb) in the folder{inside}; nothing was graded: ask for it.{unpack}"


def other_files(folder: Path) -> list[str]:
    """Files in `folder` that are no notebooks, such as an archive that nobody has unpacked."""
    names = (entry.name for entry in _visible(folder) if not _is_folder(entry) and not _is_notebook(entry))
    return [display_path(name) for name in names]


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
        raise UsageError(f"all notebooks lie in {_told(only)}: grade that folder")


def _with_exercises(several: list[Submission]) -> list[Submission]:
    """Of a student's notebooks those that have a check; all of them where none has."""
    return [one for one in several if any(_CHECK.search(text_of(cell)) for cell in one.cells)] or several


def _told(path: Path) -> str:
    return str(Path(*map(display_path, path.parts)))


# ------------------------------------------------------------------ what is in it
def _read(name: str, path: Path) -> Submission:
    try:
        fault = _unreadable(path)
        data = b"" if fault else path.read_bytes()
    except OSError as error:
        return Submission(name, path, b"", fault=f"its file cannot be read: {error.strerror}")
    if fault:
        return Submission(name, path, b"", fault=fault)
    if not data.strip():
        return Submission(name, path, data, fault="its file is empty; it was not graded: ask for it again")
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


def most_common_lesson(submissions: Sequence[Submission], lessons: Sequence[Lesson]) -> Lesson:
    """The lesson that most of them are submissions of.

    Raises:
        UsageError: none is of any lesson, or as many are of another one.
    """
    every = [one for first in submissions for one in (first, *first.others)]
    found = [lesson for lesson in (lesson_of(one.cells, lessons) for one in every) if lesson]
    if not found:
        raise UsageError("no submission has an exercise cell of this course: students start from lessons/")
    counts = Counter(lesson.stem for lesson in found).most_common()
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        (one, many), (other, _) = counts[:2]
        raise UsageError(f"{many} of the notebooks are of {one} and {many} of {other}: one folder per lesson")
    return next(lesson for lesson in found if lesson.stem == counts[0][0])


def one_per_student(
    submissions: Sequence[Submission], lesson: Lesson, lessons: Sequence[Lesson]
) -> list[Submission]:
    """One notebook per student; a student with none of this lesson, or with several, has a fault instead.

    The same file twice is one notebook.
    """
    return [_one_notebook(one, lesson, lessons) for one in submissions]


def _one_notebook(first: Submission, lesson: Lesson, lessons: Sequence[Lesson]) -> Submission:
    several = [first, *first.others]
    of = [lesson_of(one.cells, lessons) for one in several]
    right = [one for one, its in zip(several, of, strict=True) if its and its.stem == lesson.stem]
    right = [one for n, one in enumerate(right) if one.data not in [other.data for other in right[:n]]]
    if len(right) == 1:
        return replace(right[0], name=first.name, others=())
    paths = " and ".join(_told(Path(*one.path.parts[-2:])) for one in (right or several))
    if right:
        fault = f"{len(right)} notebooks have this name, {paths}; neither was graded: ask which one counts"
    elif first.fault:
        return replace(first, others=())
    elif its := next(filter(None, of), None):
        fault = f"{paths} is of {its.stem}, not of {lesson.stem}; it was not graded: use another folder"
    else:
        fault = f"{paths} has no exercise cell of {lesson.stem}; it was not graded: ask for the right file"
    return Submission(first.name, first.path, fault.encode("utf-8", "replace"), {}, fault)
