"""The exported progress of a class: one file a student, `anna.json` or `anna/….json`."""

from __future__ import annotations

from pathlib import Path

from ...refusal import Refused
from ..progress import Progress, parse


def read_cohort(folder: Path) -> dict[str, Progress]:
    """The progress of each student, by name.

    Raises:
        Refused: it is no folder, has no files, one that is no progress, or two of one student.
    """
    if not folder.is_dir():
        raise Refused(f"--cohort must name a folder of exported progress; {folder} is none")
    paths = [path for path in sorted(folder.rglob("*.json")) if _exported(path.relative_to(folder))]
    if not paths:
        how = "each student runs iocourse progress --export NAME.json"
        raise Refused(f"no file NAME.json or NAME/….json in {folder}: {how}")
    by_name: dict[str, Path] = {}
    for path in paths:
        name = _student(path.relative_to(folder))
        if name in by_name:
            raise Refused(
                f"two files of the student {name!r}, {by_name[name]} and {path}: rename or take away one"
            )
        by_name[name] = path
    return {name: _read(path) for name, path in by_name.items()}


def _exported(path: Path) -> bool:
    return not any(part.startswith(".") for part in path.parts)  # such as .ipynb_checkpoints


def _student(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else path.stem


def _read(path: Path) -> Progress:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}") from None
