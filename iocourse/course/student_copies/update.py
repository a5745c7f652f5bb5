"""Make the student's copies, list those whose lesson has a newer text, and bring them up to date."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from ...errors import UsageError
from ...files import atomic_write
from ..project_paths import Course
from . import notation_copy
from .discovery import Copy, chosen, find_copies
from .merge import Merged, merge
from .notebook import Json, as_copy, prints, read_notebook, recorded, to_text

RELOAD = "What is open in JupyterLab shows the old text: there, File, Reload Notebook from Disk."


def read_lessons(course: Course) -> dict[str, Json]:
    """The lessons by name. Raises UsageError where there are none, or one is broken."""
    return {path.stem: _read_lesson(path) for path in course.notebooks()}


def _read_lesson(path: Path) -> Json:
    try:
        return read_notebook(path)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


# ------------------------------------------------------------------ copying
def copy_missing(course: Course, lessons: dict[str, Json], names: Collection[str] = ()) -> list[str]:
    """Copy the lessons and pages of these names (all where empty) that are not in the work folder.

    Returns:
        The files copied.

    Raises:
        UsageError: a copy cannot be written; those before it are whole.
    """
    texts = {f"{name}.ipynb": to_text(as_copy(lesson, name)) for name, lesson in lessons.items()}
    texts |= {path.name: notation_copy.as_copy(_read(path)) for path in course.pages()}
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


# ------------------------------------------------------------------ what is newer
def newer(course: Course, lessons: dict[str, Json], copies: Sequence[Copy]) -> list[str]:
    """The lessons and pages whose text is another now than the one that the student's was copied from."""
    found = {c.lesson for c in copies if c.notebook and is_outdated(c.notebook, lessons[c.lesson], c.lesson)}
    return sorted(found) + [path.stem for path in course.pages() if _page_is_outdated(path, course)]


def is_outdated(mine: Json, lesson: Json, name: str) -> bool:
    """Whether the lesson has another text now; where a copy is silent, whether an update would change it."""
    now, base = prints(lesson), recorded(mine)
    if prints(mine) == now or base == now:
        return False
    return base is not None or prints(merge(mine, lesson, name).notebook) != prints(mine)


def _page_is_outdated(path: Path, course: Course) -> bool:
    copy = course.work / path.name
    try:
        return notation_copy.is_outdated(_read(copy), _read(path))
    except (OSError, UnicodeDecodeError):  # not there, or no text: nothing to bring up to date
        return False


def remarks(
    course: Course, lessons: dict[str, Json], copies: Sequence[Copy], copied: Collection[str]
) -> Iterator[str]:
    """What to say of the `copies` that were there when the course is opened, and others were `copied`."""
    if found := newer(course, lessons, copies):
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
    lesson, file = chosen(name, [*lessons, *pages], copies) if name else ("", "")
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
        if prints(copy.notebook) == recorded(copy.notebook):
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
    mine, now = _read(copy), _read(path)
    if notation_copy.is_untouched(mine, now):
        _write(copy, notation_copy.as_copy(now))
        yield f"{path.name} has the new text; you had changed nothing in it"
    else:
        old = _replaced(copy, notation_copy.as_copy(now))
        yield f"{path.name} has the new text; with your changes: {old.name}"


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
