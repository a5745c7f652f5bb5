"""Create, rename and update the student's copies of the lessons, and list those with a newer text.

A copy of a notebook records its source in its metadata (`notebook.py`). A copy of a Markdown page, such as
the notation, and of `flash_attention.py` records it in its last line (`text_copy.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ...errors import UsageError
from ...files import atomic_write
from ..project_paths import Course
from .copies import Copy, find_copies, former_names, resolve_lesson_and_file, short_name
from .merge import Merged, merge_copy
from .moved_answers import answers_of, keys_elsewhere, with_moved_answers
from .notebook import Json, as_copy, fingerprints, read_notebook, recorded_fingerprints, to_text
from .opened_lesson import NOT_YET, may_have_file
from .text_copy import as_text_copy, has_newer_text, is_unchanged

REOPEN = "If a renamed notebook is open in JupyterLab, close it there and open it under its new name."
RELOAD = "Notebooks that are open in JupyterLab show the old text. Use File, Reload Notebook from Disk."


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
def copy_missing(
    course: Course, lessons: dict[str, Json], copies: Sequence[Copy], names: Collection[str] = ()
) -> list[str]:
    """Copy lessons, pages and `flash_attention.py` that are not yet in the work folder.

    Args:
        course: the course.
        lessons: the lessons by name.
        copies: the student's copies.
        names: names of lessons and files to copy; all if empty.

    Returns:
        The names of the copied files.

    Raises:
        UsageError: a copy cannot be written. The copies made before are complete.
    """
    texts = {f"{name}.ipynb": to_text(as_copy(lesson, name)) for name, lesson in lessons.items()}
    texts |= {path.name: as_text_copy(_read(path), path.suffix) for path in _files(course, lessons, copies)}
    asked = {name: text for name, text in texts.items() if not names or Path(name).stem in names}
    places = {name: course.work / name for name in asked}
    # An interrupted copy leaves an empty file.
    there = {name for name, path in places.items() if path.exists() and path.stat().st_size > 0}
    missing = {name: text for name, text in asked.items() if name not in there}
    for name, text in missing.items():
        _write(course.work / name, text)
    return list(missing)


def _files(course: Course, lessons: dict[str, Json], copies: Sequence[Copy]) -> list[Path]:
    """Return the paths of the pages, and of `flash_attention.py` if the student may have it."""
    return course.files() if may_have_file(course, lessons, copies) else course.pages()


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


# ------------------------------------------------------------------ renaming
def rename_copies(copies: Sequence[Copy], lessons: dict[str, Json]) -> tuple[list[Copy], list[str]]:
    """Rename each file that has a former name of its lesson, because links between lessons use present names.

    A file that exists is never replaced: then both files stay as they are.

    Args:
        copies: the student's copies.
        lessons: the lessons by name.

    Returns:
        The copies with their new paths, and a line for each file that has or had a former name. A last line
        follows if a file was renamed.

    Raises:
        UsageError: a file cannot be renamed.
    """
    now, lines = {copy.path.name: copy for copy in copies}, []
    former = [(lesson, f"{name}.ipynb") for lesson in lessons for name in reversed(former_names(lesson))]
    for lesson, old in former:
        copy = now.get(old)
        if copy is None or copy.lesson != lesson:
            continue
        path = copy.path.with_name(f"{lesson}.ipynb")
        if path.name in now:
            lines.append(_both(copy, now[path.name], lessons[lesson]))
            continue
        with _in_a_sentence(path):
            copy.path.replace(path)
        now = {path.name if name == old else name: one for name, one in now.items()}
        now[path.name] = replace(copy, path=path)
        lines.append(f"{old} is now {path.name}, the new name of its lesson")
    renamed = sorted(now.values(), key=lambda copy: copy.path)
    return renamed, lines if renamed == list(copies) else [*lines, REOPEN]


def _both(old: Copy, new: Copy, lesson: Json) -> str:
    """Return the line on two copies of a lesson: `old` has a former name of it, `new` the present one."""
    answers = [", ".join(answers_of(copy, lesson)) or "none" for copy in (old, new)]
    return (
        f"{old.path.name} has a former name of {new.path.name}; both files are kept. Your answers: "
        f"{answers[0]} in {old.path.name}, {answers[1]} in {new.path.name}"
    )


# ------------------------------------------------------------------ newer texts
def outdated_names(course: Course, lessons: dict[str, Json], copies: Sequence[Copy]) -> list[str]:
    """Return the lessons and files whose text has changed since the student's copy was made."""
    found = {c.lesson for c in copies if c.notebook and is_outdated(c.notebook, lessons[c.lesson], c.lesson)}
    return sorted(found) + [path.stem for path in course.files() if _file_is_outdated(path, course)]


def is_outdated(mine: Json, lesson: Json, name: str) -> bool:
    """Return True if the lesson has changed since the copy was made.

    Without a record of the source, return True if an update would change the copy.
    """
    now, base = fingerprints(lesson), recorded_fingerprints(mine)
    if fingerprints(mine) == now or base == now:
        return False
    return base is not None or fingerprints(merge_copy(mine, lesson, name).notebook) != fingerprints(mine)


def _file_is_outdated(path: Path, course: Course) -> bool:
    try:
        copy, now = _read(course.work / path.name), _read(path)
    except (OSError, UnicodeDecodeError):  # missing or not a text file: cannot be updated
        return False
    return bool(copy) and has_newer_text(copy, now, path.suffix)


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
        short = ", ".join(map(short_name, found))
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
        name: a lesson, page or other file, as in `resolve_lesson_and_file`; all copies if empty.

    Yields:
        One line per file that was handled, then a line on how to reload; nothing if every copy is current.

    Raises:
        UsageError: there is no such lesson, or a file cannot be written. Earlier updates are kept.
    """
    lessons = lesson_notebooks(course)
    copies = find_copies(course, lessons)
    files = {path.stem: path for path in course.files()}
    lesson, file = resolve_lesson_and_file(name, [*lessons, *files], copies) if name else ("", "")
    brought = {path.stem for path in _files(course, lessons, copies)}
    if lesson in files and lesson not in brought:
        yield NOT_YET
        return
    copies, lines = rename_copies(copies, lessons)
    yield from lines
    asked = [copy for copy in copies if lesson in ("", copy.lesson) and file in ("", copy.path.name)]
    wanted = {lesson} if lesson else {*lessons, *brought}
    wanted |= {home for copy in asked for home in keys_elsewhere(copy, lessons).values()}
    new = wanted - {copy.lesson for copy in copies}  # a renamed copy counts, so its lesson is not copied
    if new and (copied := copy_missing(course, lessons, copies, new)):
        yield f"copied: {', '.join(copied)}"
        copies = find_copies(course, lessons)
    names = {copy.path.name for copy in asked}
    moved = with_moved_answers(copies, lessons, names)
    told = ""
    yield from (f"{_called(copy)} was not updated: {_broken(copy)}" for copy in asked if not copy.notebook)
    # Copies that get an answer are written first, so that each answer is in a file at any time.
    for copy in sorted(moved, key=lambda copy: not copy.received):
        if copy.path.name in names or copy.received or copy.given:
            for told in _updated(copy, lessons[copy.lesson], course):
                yield told
    for path in (path for stem, path in files.items() if lesson in ("", stem)):
        for told in _updated_file(path, course):
            yield told
    if told:
        yield RELOAD


def _updated(copy: Copy, lesson: Json, course: Course) -> Iterator[str]:
    called = _called(copy)
    if copy.notebook is None:
        return
    outdated = is_outdated(copy.notebook, lesson, copy.lesson)
    if outdated or copy.received or copy.given:
        merged = merge_copy(copy.notebook, lesson, copy.lesson)
        text = to_text(merged.notebook)
        told = f"{called} has the {'new' if outdated else 'current'} text"
        kept = "; ".join(_what_was_kept(copy, merged, course.lessons / f"{copy.lesson}.ipynb"))
        if copy.edited:
            yield f"{told}{kept}; your old file is {_replaced(copy.path, text).name}"
        else:
            _write(copy.path, text)
            yield f"{told}{kept or '; your copy had no changes'}"


def _called(copy: Copy) -> str:
    name = copy.path.name
    return name if copy.path.stem == copy.lesson else f"{name}, a copy of {copy.lesson},"


def _broken(copy: Copy) -> str:
    """Return why a copy cannot be opened, and the remedy."""
    return f"{copy.fault}. Move the file away, and iocourse lab will create a new copy"


def _what_was_kept(copy: Copy, merged: Merged, lesson: Path) -> Iterator[str]:
    """Yield the parts of the line on a merged copy: kept, moved and homeless cells, and changed exercises."""
    others = f"{merged.others} other cell{'s' if merged.others > 1 else ''}"
    kept = [*merged.answers, *([others] if merged.others else [])]
    yield f" with your cells: {', '.join(kept)}" if kept else ""
    yield from (f"from {file}: {names}" for file, names in _by_file(copy.received))
    yield from (f"now in {file}: {names}" for file, names in _by_file(copy.given))
    if merged.asked_anew:
        yield f"the lesson has a new text for {', '.join(merged.asked_anew)}, see {lesson}"
    if merged.homeless:
        yield f"cells without a place in the lesson are at the end: {', '.join(merged.homeless)}"


def _by_file(moved: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each file of these moves with the names of its answers."""
    for file in dict.fromkeys(moved.values()):
        yield file, ", ".join(title for title, its in moved.items() if its == file)


def _updated_file(path: Path, course: Course) -> Iterator[str]:
    copy = course.work / path.name
    if not _file_is_outdated(path, course):
        return
    new = as_text_copy(_read(path), path.suffix)
    if is_unchanged(_read(copy), path.suffix):
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
