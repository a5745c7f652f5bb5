"""Make the student's copies, find them again, list those whose lesson has a newer text, and update them.

A copy of a notebook carries in its metadata what it was copied from (`notebook.py`), a copy of a Markdown
page, the notation, in an invisible last line.
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
from .merge import Merged, merge
from .notebook import Json, as_copy, fingerprints, lesson_of, read_notebook, recorded_fingerprints, to_text

RELOAD = "What is open in JupyterLab shows the old text: there, File, Reload Notebook from Disk."
KEPT = re.compile(r"kept-\d{8}-\d{6}-")  # how the name of an old file begins
_PAGE_END = re.compile(r"\n<!-- iocourse [\w.]+ ([0-9a-f]{12}) -->\n*\Z")


def read_lessons(course: Course) -> dict[str, Json]:
    """The lessons by name. Raises UsageError where there are none, or one is broken."""
    lessons = {}
    for path in course.notebooks():
        try:
            lessons[path.stem] = read_notebook(path)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return lessons


# ------------------------------------------------------------------ copying
def copy_missing(course: Course, lessons: dict[str, Json], names: Collection[str] = ()) -> list[str]:
    """Copy the lessons and pages of these names (all where empty) that are not in the work folder.

    Returns:
        The files copied.

    Raises:
        UsageError: a copy cannot be written; those before it are whole.
    """
    texts = {f"{name}.ipynb": to_text(as_copy(lesson, name)) for name, lesson in lessons.items()}
    texts |= {path.name: _page_copy(_read(path)) for path in course.pages()}
    asked = {name: text for name, text in texts.items() if not names or Path(name).stem in names}
    places = {name: course.work / name for name in asked}
    # An empty file is what an interrupted copy has left.
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
        raise UsageError(f"{path} cannot be written: {why}; nothing is lost, nothing half-written") from None


# ------------------------------------------------------------------ finding
@dataclass(frozen=True)
class Copy:
    """A file of the student's.

    Attributes:
        path: where it lies.
        lesson: the name of the lesson that it is a copy of.
        notebook: what stands in it; None where it is no notebook.
        fault: why not.
    """

    path: Path
    lesson: str
    notebook: Json | None
    fault: str = ""


def find_copies(course: Course, lessons: dict[str, Json]) -> list[Copy]:
    """The student's copies of the lessons, but for those that an update has kept beside a newer one."""
    paths = sorted(path for path in course.work.glob("*.ipynb") if not KEPT.match(path.name))
    copies = (_copy(path, lessons) for path in paths if path.is_file() and path.stat().st_size)
    return [copy for copy in copies if copy.lesson]


def _copy(path: Path, lessons: dict[str, Json]) -> Copy:
    named = path.stem if path.stem in lessons else ""
    try:
        notebook = read_notebook(path)
    except UsageError as error:
        return Copy(path, named, None, str(error))
    return Copy(path, lesson_of(notebook, lessons) or named, notebook)


def resolve_name(name: str, names: Sequence[str], copies: Sequence[Copy]) -> tuple[str, str]:
    """What ``--update NAME`` means: a lesson, and the one file that is meant, "" for all copies of it.

    Args:
        name: ``4``, ``04``, ``04_flash_forward``, ``notation``, or the name of a file in the work folder.
        names: of all lessons and pages.
        copies: the student's.

    Raises:
        UsageError: it is none of them.
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
        raise UsageError(f"--update {name!r} is no lesson; there are: {short}")
    return found[0], ""


# ------------------------------------------------------------------ what is newer
def outdated_names(course: Course, lessons: dict[str, Json], copies: Sequence[Copy]) -> list[str]:
    """The lessons and pages whose text is another now than the one that the student's was copied from."""
    found = {c.lesson for c in copies if c.notebook and is_outdated(c.notebook, lessons[c.lesson], c.lesson)}
    return sorted(found) + [path.stem for path in course.pages() if _page_is_outdated(path, course)]


def is_outdated(mine: Json, lesson: Json, name: str) -> bool:
    """Whether the lesson has another text now; where a copy is silent, whether an update would change it."""
    now, base = fingerprints(lesson), recorded_fingerprints(mine)
    if fingerprints(mine) == now or base == now:
        return False
    return base is not None or fingerprints(merge(mine, lesson, name).notebook) != fingerprints(mine)


def _page_is_outdated(path: Path, course: Course) -> bool:
    copy = course.work / path.name
    try:
        text, copied_from = _page_text(_read(copy))
        now = _read(path)
    except (OSError, UnicodeDecodeError):  # not there, or no text: nothing to bring up to date
        return False
    return text != now and copied_from != _hash(now)


def _page_copy(text: str) -> str:
    """The page with a line that says what it was copied from."""
    return f"{text}\n<!-- iocourse {__version__} {_hash(text)} -->\n"


def _page_text(copy: str) -> tuple[str, str]:
    """The text of a copy without that line, and the hash in it; "" where it does not say."""
    found = _PAGE_END.search(copy)
    return _PAGE_END.sub("", copy), found[1] if found else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def remarks(
    course: Course, lessons: dict[str, Json], copies: Sequence[Copy], copied: Collection[str]
) -> Iterator[str]:
    """What to say of the `copies` that were there when the course is opened, and others were `copied`."""
    if found := outdated_names(course, lessons, copies):
        short = ", ".join(name.split("_")[0] for name in found)
        yield f"newer text for {short}: iocourse lab --update brings it and keeps your answers"
    for copy in copies:
        if copy.notebook is None:
            yield f"{copy.path.name} does not open: {_broken(copy)}"
        elif f"{copy.lesson}.ipynb" in copied:
            yield f"{copy.path.name} stays, your copy of {copy.lesson}; {copy.lesson}.ipynb is a fresh one"


# ------------------------------------------------------------------ updating
def update(course: Course, name: str = "") -> Iterator[str]:
    """Bring the student's copies up to date: all, or those of the lesson (or the file) of this name.

    Untouched copies are renewed. In edited ones the student's cells stand in the new text, and the old file
    is kept beside the new one. Files that are no notebooks are left alone.

    Yields:
        A line for each file, when it is done, and what to do then; nothing where all texts are the newest.

    Raises:
        UsageError: there is no such lesson, or a file cannot be written; what was done before stays done.
    """
    lessons = read_lessons(course)
    copies = find_copies(course, lessons)
    pages = {path.stem: path for path in course.pages()}
    lesson, file = resolve_name(name, [*lessons, *pages], copies) if name else ("", "")
    asked = [copy for copy in copies if lesson in ("", copy.lesson) and file in ("", copy.path.name)]
    wanted = {lesson} if lesson else {*lessons, *pages}
    new = wanted - {copy.lesson for copy in copies}  # so none of a lesson that the student has renamed
    if new and (copied := copy_missing(course, lessons, new)):
        yield f"copied: {', '.join(copied)}"
    told = ""
    yield from (f"{_called(copy)} is left as it is: {_broken(copy)}" for copy in asked if not copy.notebook)
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
        merged = merge(copy.notebook, lesson, copy.lesson)
        text = to_text(merged.notebook)
        if fingerprints(copy.notebook) == recorded_fingerprints(copy.notebook):
            _write(copy.path, text)
            yield f"{called} has the new text; you had changed nothing in it"
        else:
            old = _replaced(copy.path, text)
            told = "; ".join([*_what_was_kept(merged, course.lessons / f"{copy.lesson}.ipynb")])
            yield f"{called} has the new text{told}; as it was: {old.name}"


def _called(copy: Copy) -> str:
    name = copy.path.name
    return name if copy.path.stem == copy.lesson else f"{name}, a copy of {copy.lesson},"


def _broken(copy: Copy) -> str:
    """Why a copy does not open, and what helps."""
    return f"{copy.fault}. Once it is moved away, iocourse lab makes a fresh copy"


def _what_was_kept(merged: Merged, lesson: Path) -> Iterator[str]:
    """What stands in the new text, and what the student must look at."""
    others = f"{merged.others} other cell{'s' if merged.others > 1 else ''}"
    kept = [*merged.answers, *([others] if merged.others else [])]
    yield f" with what is yours: {', '.join(kept)}" if kept else ""
    if merged.asked_anew:
        yield f"the lesson has another text for {', '.join(merged.asked_anew)} now, see {lesson}"
    if merged.homeless:
        yield f"at its end what the lesson no longer has: {', '.join(merged.homeless)}"


def _updated_page(path: Path, course: Course) -> Iterator[str]:
    copy = course.work / path.name
    if not _page_is_outdated(path, course):
        return
    text, copied_from = _page_text(_read(copy))
    new = _page_copy(_read(path))
    if _hash(text) == copied_from:
        _write(copy, new)
        yield f"{path.name} has the new text; you had changed nothing in it"
    else:
        yield f"{path.name} has the new text; with your changes: {_replaced(copy, new).name}"


def _replaced(path: Path, text: str) -> Path:
    """Write `text` to `path`, and what was there beside it, or neither. Returns where the old one is."""
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
    """A free name beside `path`; the date stands first, for where names are listed their ends are cut."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    ends = ("", *(f"-{n}" for n in range(2, 1000)))
    names = (path.with_name(f"kept-{stamp}-{path.stem}{end}{path.suffix}") for end in ends)
    return next(name for name in names if not name.exists())
