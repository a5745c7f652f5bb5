"""Find the submissions in a folder: one notebook per student, `anna.ipynb` or `anna/…/NN_name.ipynb`."""

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

from ...console import display_path
from ...errors import UsageError
from ..student_copies.notebook import text_of
from .lesson_cells import Lesson, lesson_of_cells

ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".rar", ".7z")
MOST = 50 << 20  # maximum bytes of a notebook
_CHECK = re.compile(r"""^check\(\s*["']""", re.MULTILINE)
DEEPEST = 50  # maximum nesting of lists and objects; valid notebooks need about 12


@dataclass(frozen=True)
class Submission:
    """The submission of one student.

    Attributes:
        name: name of the student, printable and valid as a file name.
        path: path of the notebook, or of the file or folder found instead.
        data: content of the file.
        notebook: the parsed notebook; empty if the content is not a valid notebook.
        fault: why no cell can be run; "" if cells can be run.
        others: further notebooks of the same student; empty after `one_per_student`.
    """

    name: str
    path: Path
    data: bytes
    notebook: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    others: tuple[Submission, ...] = ()

    @property
    def cells(self) -> list[dict[str, Any]]:
        """All cells of the notebook, of any type."""
        return list(self.notebook.get("cells", ()))


# ------------------------------------------------------------------ notebooks of each student
def find_submissions(folder: Path) -> list[Submission]:
    """Return all submissions in `folder`, sorted by name.

    A subfolder without a notebook is returned as a submission with a fault.

    Raises:
        UsageError: `folder` is not a directory, has no notebook, or has all notebooks one level deeper.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a directory. Expected a directory with one notebook per student "
            "(NAME.ipynb or NAME/….ipynb)"
        )
    found = {entry: list(_notebooks(entry)) for entry in _visible(folder)}
    handed_in = {entry: paths for entry, paths in found.items() if paths or _is_folder(entry)}
    if not any(handed_in.values()):
        raise UsageError(
            f"no notebook in {folder}. Expected one notebook per student (NAME.ipynb or NAME/….ipynb)"
        )
    _refuse_a_folder_of_folders(handed_in)
    by_name: dict[str, list[Submission]] = {}
    for entry, paths in handed_in.items():
        name = display_path(entry.name if _is_folder(entry) else entry.stem)
        read = [_read(name, path) for path in paths] or [Submission(name, entry, b"", fault=_empty(entry))]
        # Names that some file systems do not distinguish belong to one student.
        by_name.setdefault(unicodedata.normalize("NFC", name.casefold()), []).extend(read)
    chosen = [_with_exercises(several) for several in by_name.values()]
    all_of_them = [replace(one, others=tuple(others)) for one, *others in chosen]
    return sorted(all_of_them, key=lambda submission: submission.name)


def _empty(folder: Path) -> str:
    """Return the fault of a student's folder without a notebook; it names up to three files found there."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()][:3]
    inside = f", only {', '.join(display_path(path.name) for path in files)}" if files else ""
    unpack = " Unpack the archive." if any(path.suffix.lower() in ARCHIVES for path in files) else ""
    return f"no notebook (.ipynb) in the folder{inside}; nothing was graded: request the notebook.{unpack}"


def other_files(folder: Path) -> list[str]:
    """Return the names of visible files in `folder` that are not notebooks, such as a packed archive."""
    names = (entry.name for entry in _visible(folder) if not _is_folder(entry) and not _is_notebook(entry))
    return [display_path(name) for name in names]


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.name[:1] != "." and entry.name != "__MACOSX")


def _is_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink()


def _is_notebook(entry: Path) -> bool:
    return entry.suffix.lower() == ".ipynb" or entry.is_symlink()


def _notebooks(entry: Path) -> Iterator[Path]:
    """Yield the notebooks of one entry: the file itself, or all in a subfolder. Links are not followed."""
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
        raise UsageError(f"all notebooks are in {_told(only)}. Grade that folder")


def _with_exercises(several: list[Submission]) -> list[Submission]:
    """Return those notebooks of a student that contain a check cell, or all of them if none does."""
    return [one for one in several if any(_CHECK.search(text_of(cell)) for cell in one.cells)] or several


def _told(path: Path) -> str:
    return str(Path(*map(display_path, path.parts)))


# ------------------------------------------------------------------ content of a notebook
def _read(name: str, path: Path) -> Submission:
    try:
        fault = _unreadable(path)
        data = b"" if fault else path.read_bytes()
    except OSError as error:
        return Submission(name, path, b"", fault=f"cannot read the file: {error.strerror}")
    if fault:
        return Submission(name, path, b"", fault=fault)
    if not data.strip():
        return Submission(name, path, data, fault="the file is empty; it was not graded: request it again")
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        fault = f"the file is not UTF-8 (byte {error.start:,}): save it again in JupyterLab"
        return Submission(name, path, data, fault=fault)
    except (ValueError, RecursionError) as error:
        return Submission(name, path, data, fault=f"the file is not a valid notebook: {error}")
    fault = _fault(notebook)
    kept = not fault or fault.startswith("its kernel")
    return Submission(name, path, data, notebook if kept else {}, fault)


def _unreadable(path: Path) -> str:
    if path.is_symlink():
        return "the submission is a link to another file: submit the notebook itself"
    if not path.is_file():
        return "the submission is not a file: submit a notebook"
    size = path.stat().st_size
    return (
        f"the file has {size >> 20:,} MB, expected at most {MOST >> 20}: clear its outputs"
        if size > MOST
        else ""
    )


def _fault(notebook: Any) -> str:
    if _deeper(notebook):
        return f"the file is not a valid notebook: its JSON is nested more than {DEEPEST} levels deep"
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(_is_cell(cell) for cell in cells):
        return "the file is not a notebook of format 4: open it in JupyterLab and save it"
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
    """Return the lesson to which most notebooks belong.

    Raises:
        UsageError: no notebook belongs to a lesson, or two lessons have the same number of notebooks.
    """
    every = [one for first in submissions for one in (first, *first.others)]
    found = [lesson for lesson in (lesson_of_cells(one.cells, lessons) for one in every) if lesson]
    if not found:
        raise UsageError(
            "no submission contains an exercise cell of this course. Students must start from lessons/"
        )
    counts = Counter(lesson.stem for lesson in found).most_common()
    if len(counts) > 1 and counts[0][1] == counts[1][1]:
        (one, many), (other, _) = counts[:2]
        raise UsageError(
            f"{many} of the notebooks belong to {one} and {many} to {other}. Use one folder per lesson"
        )
    return next(lesson for lesson in found if lesson.stem == counts[0][0])


def one_per_student(
    submissions: Sequence[Submission], lesson: Lesson, lessons: Sequence[Lesson]
) -> list[Submission]:
    """Return one submission per student, with a fault if there is not exactly one notebook of the lesson.

    Identical files count as one notebook.
    """
    return [_one_notebook(one, lesson, lessons) for one in submissions]


def _one_notebook(first: Submission, lesson: Lesson, lessons: Sequence[Lesson]) -> Submission:
    several = [first, *first.others]
    of = [lesson_of_cells(one.cells, lessons) for one in several]
    right = [one for one, its in zip(several, of, strict=True) if its and its.stem == lesson.stem]
    right = [one for n, one in enumerate(right) if one.data not in [other.data for other in right[:n]]]
    if len(right) == 1:
        return replace(right[0], name=first.name, others=())
    paths = " and ".join(_told(Path(*one.path.parts[-2:])) for one in (right or several))
    if right:
        fault = (
            f"{len(right)} notebooks have this name, {paths}; none was graded: the student must choose one"
        )
    elif first.fault:
        return replace(first, others=())
    elif its := next(filter(None, of), None):
        fault = f"{paths} belongs to {its.stem}, not to {lesson.stem}; it was not graded: use another folder"
    else:
        fault = f"{paths} has no exercise cell of {lesson.stem}; it was not graded: request the correct file"
    return Submission(first.name, first.path, fault.encode("utf-8", "replace"), {}, fault)
