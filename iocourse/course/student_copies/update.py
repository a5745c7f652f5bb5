"""Create, find and update the student's copies of the lessons, and list those with a newer text.

A copy of a notebook records its source in its metadata (`notebook.py`). A copy of a Markdown page, such as
the notation, records it in an invisible last line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ... import __version__
from ...errors import UsageError
from ...files import atomic_write
from ..project_paths import Course
from .merge import Merged, merge_copy
from .notebook import (
    Json,
    as_copy,
    fingerprints,
    lesson_of_copy,
    read_notebook,
    recorded_fingerprints,
    to_text,
)

RELOAD = "Notebooks that are open in JupyterLab show the old text. Use File, Reload Notebook from Disk."
KEPT = re.compile(r"kept-\d{8}-\d{6}-")  # prefix of the names of replaced files
_PAGE_END = re.compile(r"\n<!-- iocourse [\w.]+ ([0-9a-f]{12}) -->\n*\Z")


def lesson_notebooks(course: Course) -> dict[str, Json]:
    """Return the lessons by name. Raises UsageError if there are none, or one is not a valid notebook."""
    lessons = {}
    for path in course.notebooks():
        try:
            lessons[path.stem] = read_notebook(path)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return lessons


# ------------------------------------------------------------------ copying
def copy_missing(course: Course, lessons: dict[str, Json], names: Collection[str] = ()) -> list[str]:
    """Copy lessons and pages that are not yet in the work folder.

    Args:
        course: the course.
        lessons: the lessons by name.
        names: names of lessons and pages to copy; all if empty.

    Returns:
        The names of the copied files.

    Raises:
        UsageError: a copy cannot be written. The copies made before are complete.
    """
    texts = {f"{name}.ipynb": to_text(as_copy(lesson, name)) for name, lesson in lessons.items()}
    texts |= {path.name: _page_copy(_read(path)) for path in course.pages()}
    asked = {name: text for name, text in texts.items() if not names or Path(name).stem in names}
    places = {name: course.work / name for name in asked}
    # An interrupted copy leaves an empty file.
    there = {name for name, path in places.items() if path.exists() and path.stat().st_size > 0}
    missing = {name: text for name, text in asked.items() if name not in there}
    for name, text in missing.items():
        _write(course.work / name, text)
    return list(missing)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _write(path: Path, text: str | bytes) -> None:
    with _in_a_sentence(path):
        atomic_write(path, text)


@contextmanager
def _in_a_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"cannot write {path}: {why}. Your files are unchanged") from None


# ------------------------------------------------------------------ finding
@dataclass(frozen=True)
class Copy:
    """A student's copy of a lesson.

    Attributes:
        path: path of the file.
        lesson: name of the lesson that it is a copy of.
        notebook: the notebook; None if the file is not a valid notebook.
        fault: the reason why it is not valid; "" if it is.
    """

    path: Path
    lesson: str
    notebook: Json | None
    fault: str = ""


def find_copies(course: Course, lessons: dict[str, Json]) -> list[Copy]:
    """Return the student's copies of the lessons, except old files that an update has kept."""
    paths = sorted(path for path in course.work.glob("*.ipynb") if not KEPT.match(path.name))
    copies = (_copy(path, lessons) for path in paths if path.is_file() and path.stat().st_size)
    return [copy for copy in copies if copy.lesson]


def _copy(path: Path, lessons: dict[str, Json]) -> Copy:
    named = path.stem if path.stem in lessons else ""
    try:
        notebook = read_notebook(path)
    except UsageError as error:
        return Copy(path, named, None, str(error))
    return Copy(path, lesson_of_copy(notebook, lessons) or named, notebook)


def resolve_lesson_and_file(name: str, names: Sequence[str], copies: Sequence[Copy]) -> tuple[str, str]:
    """Resolve the argument of ``--update NAME`` to a lesson and a file.

    Args:
        name: ``4``, ``04``, ``04_flash_forward``, ``notation``, or the name of a file in the work folder.
        names: names of all lessons and pages.
        copies: the student's copies.

    Returns:
        The name of the lesson, and the name of the file; "" for all copies of the lesson.

    Raises:
        UsageError: there is no such lesson, page or copy.
    """
    wanted = Path(name).name
    for copy in copies:
        if wanted in (copy.path.name, copy.path.stem) and copy.path.stem not in names:
            return copy.lesson, copy.path.name
    asked = re.sub(r"\.(ipynb|md)$", "", wanted).lower()
    asked = f"0{asked}" if re.fullmatch(r"\d[a-z]?", asked) else asked
    found = [one for one in names if asked in (one, one.split("_")[0])]
    if not found:
        short = ", ".join(one.split("_")[0] for one in names)
        raise UsageError(f"--update: unknown lesson {name!r}. Available lessons: {short}")
    return found[0], ""


# ------------------------------------------------------------------ newer texts
def outdated_names(course: Course, lessons: dict[str, Json], copies: Sequence[Copy]) -> list[str]:
    """Return the lessons and pages whose text has changed since the student's copy was made."""
    found = {c.lesson for c in copies if c.notebook and is_outdated(c.notebook, lessons[c.lesson], c.lesson)}
    return sorted(found) + [path.stem for path in course.pages() if _page_is_outdated(path, course)]


def is_outdated(mine: Json, lesson: Json, name: str) -> bool:
    """Return True if the lesson has changed since the copy was made.

    Without a record of the source, return True if an update would change the copy.
    """
    now, base = fingerprints(lesson), recorded_fingerprints(mine)
    if fingerprints(mine) == now or base == now:
        return False
    return base is not None or fingerprints(merge_copy(mine, lesson, name).notebook) != fingerprints(mine)


def _page_is_outdated(path: Path, course: Course) -> bool:
    copy = course.work / path.name
    try:
        text, copied_from = _page_text(_read(copy))
        now = _read(path)
    except (OSError, UnicodeDecodeError):  # missing or not a text file: cannot be updated
        return False
    return text != now and copied_from != _hash(now)


def _page_copy(text: str) -> str:
    """Return the text of a page with a last line that records its source."""
    return f"{text}\n<!-- iocourse {__version__} {_hash(text)} -->\n"


def _page_text(copy: str) -> tuple[str, str]:
    """Return the text of a copy without the record, and the recorded hash; "" without a record."""
    found = _PAGE_END.search(copy)
    return _PAGE_END.sub("", copy), found[1] if found else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def update_remarks(
    course: Course, lessons: dict[str, Json], copies: Sequence[Copy], copied: Collection[str]
) -> Iterator[str]:
    """Yield the lines to print when the course is opened: newer texts, invalid files and renamed copies.

    Args:
        course: the course.
        lessons: the lessons by name.
        copies: the student's copies before missing ones were created.
        copied: names of the files that were created now.
    """
    if found := outdated_names(course, lessons, copies):
        short = ", ".join(name.split("_")[0] for name in found)
        yield f"newer text for {short}: run iocourse lab --update to get it; your answers are kept"
    for copy in copies:
        if copy.notebook is None:
            yield f"cannot open {copy.path.name}: {_broken(copy)}"
        elif f"{copy.lesson}.ipynb" in copied:
            yield f"{copy.path.name}, your copy of {copy.lesson}, is kept; {copy.lesson}.ipynb is a new copy"


# ------------------------------------------------------------------ updating
def update(course: Course, name: str = "") -> Iterator[str]:
    """Update the student's copies to the current texts.

    Copies without changes are replaced. The student's cells of an edited copy are merged into the new text,
    and the old file is kept next to it. Files that are not notebooks are not modified.

    Args:
        course: the course.
        name: a lesson, page or file, as in `resolve_lesson_and_file`; all copies if empty.

    Yields:
        One line per file that was handled, then a line on how to reload; nothing if every copy is current.

    Raises:
        UsageError: there is no such lesson, or a file cannot be written. Earlier updates are kept.
    """
    lessons = lesson_notebooks(course)
    copies = find_copies(course, lessons)
    pages = {path.stem: path for path in course.pages()}
    lesson, file = resolve_lesson_and_file(name, [*lessons, *pages], copies) if name else ("", "")
    asked = [copy for copy in copies if lesson in ("", copy.lesson) and file in ("", copy.path.name)]
    wanted = {lesson} if lesson else {*lessons, *pages}
    new = wanted - {copy.lesson for copy in copies}  # a renamed copy counts, so its lesson is not copied
    if new and (copied := copy_missing(course, lessons, new)):
        yield f"copied: {', '.join(copied)}"
    told = ""
    yield from (f"{_called(copy)} was not updated: {_broken(copy)}" for copy in asked if not copy.notebook)
    for copy in asked:
        for told in _updated(copy, lessons[copy.lesson], course):
            yield told
    for path in (path for stem, path in pages.items() if lesson in ("", stem)):
        for told in _updated_page(path, course):
            yield told
    if told:
        yield RELOAD


def _updated(copy: Copy, lesson: Json, course: Course) -> Iterator[str]:
    called = _called(copy)
    if copy.notebook and is_outdated(copy.notebook, lesson, copy.lesson):
        merged = merge_copy(copy.notebook, lesson, copy.lesson)
        text = to_text(merged.notebook)
        if fingerprints(copy.notebook) == recorded_fingerprints(copy.notebook):
            _write(copy.path, text)
            yield f"{called} has the new text; your copy had no changes"
        else:
            old = _replaced(copy.path, text)
            told = "; ".join([*_what_was_kept(merged, course.lessons / f"{copy.lesson}.ipynb")])
            yield f"{called} has the new text{told}; your old file is {old.name}"


def _called(copy: Copy) -> str:
    name = copy.path.name
    return name if copy.path.stem == copy.lesson else f"{name}, a copy of {copy.lesson},"


def _broken(copy: Copy) -> str:
    """Return why a copy cannot be opened, and the remedy."""
    return f"{copy.fault}. Move the file away, and iocourse lab will create a new copy"


def _what_was_kept(merged: Merged, lesson: Path) -> Iterator[str]:
    """Yield the parts of the line on a merged copy: kept cells, changed exercises, cells without a place."""
    others = f"{merged.others} other cell{'s' if merged.others > 1 else ''}"
    kept = [*merged.answers, *([others] if merged.others else [])]
    yield f" with your cells: {', '.join(kept)}" if kept else ""
    if merged.asked_anew:
        yield f"the lesson has a new text for {', '.join(merged.asked_anew)}, see {lesson}"
    if merged.homeless:
        yield f"cells without a place in the lesson are at the end: {', '.join(merged.homeless)}"


def _updated_page(path: Path, course: Course) -> Iterator[str]:
    copy = course.work / path.name
    if not _page_is_outdated(path, course):
        return
    text, copied_from = _page_text(_read(copy))
    new = _page_copy(_read(path))
    if _hash(text) == copied_from:
        _write(copy, new)
        yield f"{path.name} has the new text; your copy had no changes"
    else:
        yield f"{path.name} has the new text; your changed copy is {_replaced(copy, new).name}"


def _replaced(path: Path, text: str) -> Path:
    """Write `text` to `path`, keep the old content under a new name, and return the path of the old file.

    If either cannot be written, nothing changes.
    """
    old = _free_name(path)
    with _in_a_sentence(path):
        atomic_write(old, path.read_bytes())
        try:
            atomic_write(path, text)
        except BaseException:
            old.unlink()
            raise
    return old


def _free_name(path: Path) -> Path:
    """Return an unused path in the same folder. The date comes first, because file lists cut long names."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    ends = ("", *(f"-{n}" for n in range(2, 1000)))
    names = (path.with_name(f"kept-{stamp}-{path.stem}{end}{path.suffix}") for end in ends)
    return next(name for name in names if not name.exists())
