"""The file `flash_attention.py`: where it is, and the copy that lesson 12 puts next to the notebook."""

from __future__ import annotations

import sys
from pathlib import Path

from iocourse.course.project_paths import FILE, PACKAGED, is_checkout
from iocourse.course.student_copies.text_copy import as_text_copy, has_newer_text, is_unchanged
from iocourse.files import atomic_write

IN_PLACE = f"{FILE} is in the folder of this notebook (in a checkout of the course: in lessons/)"
KEPT = f"{FILE} in the folder of this notebook is your changed file; it is kept"
MISSING = f"{FILE} is missing from this installation of iocourse; install iocourse again"


def packaged_file() -> Path | None:
    """Return the path of the file in the installed wheel, or in the checkout with this module, or None."""
    checkout = Path(__file__).resolve().parents[2]
    places = (folder / FILE for folder in (PACKAGED, checkout / "lessons"))
    return next((path for path in places if path.is_file()), None)


def copy_flash_attention() -> None:
    """Copy `flash_attention.py` into the current folder, that of the notebook, and print where it is.

    A changed file is never replaced; an unchanged copy of an older version is. In a checkout of the course,
    except in its folder `work`, nothing is copied: Python imports the file from `lessons/`. The printed line
    is the same there, because a saved notebook is compared with its outputs in other folders too.
    """
    source = packaged_file()
    if source is None:
        print(MISSING)
        return
    if _stays_in_lessons(Path.cwd()):
        _import_from(source.parent)
        print(IN_PLACE)
        return
    try:
        kept = _keeps_a_changed_file(source, Path(FILE))
    except OSError as error:
        _import_from(source.parent)
        print(f"cannot write {FILE} here: {error.strerror or error}. It is imported from {source.parent}")
        return
    print(KEPT if kept else IN_PLACE)


def _stays_in_lessons(folder: Path) -> bool:
    """Return True if the folder is in a checkout, outside the folder of the student's copies."""
    root = next((one for one in (folder, *folder.parents) if is_checkout(one)), None)
    return root is not None and not folder.is_relative_to(root / "work")


def _import_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _keeps_a_changed_file(source: Path, target: Path) -> bool:
    """Write the copy, unless there is a current one or a changed file; return True if it is changed."""
    text = source.read_text(encoding="utf-8")
    try:
        mine = target.read_text(encoding="utf-8")
    except FileNotFoundError:
        mine = ""
    except UnicodeDecodeError:
        return True
    unchanged = mine == text or is_unchanged(mine, target.suffix)
    if mine and not unchanged:
        return True
    if not mine or has_newer_text(mine, text, target.suffix):  # an interrupted copy leaves an empty file
        atomic_write(target, as_text_copy(text, target.suffix))
    return False
