"""Keep points that follow another rule: the table that `--csv` names, and stored grades.

Points of two rules cannot be compared or added. So a table and a stored grade name their rule
(`points.RULE_NAME`); without a name they are of the first rule. Before a file of another rule would be
overwritten, it is renamed, and one line is printed.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ...console import printable
from ...errors import UsageError
from ...files import read_json
from ..points import RULE_NAME

COLUMN = "rule"  # of a table, and key of a stored grade
KEPT = "old-rule"  # in the name of a kept table; folder of kept grades


def rules_of(table: Path) -> set[str]:
    """Return the names of the rules in a table of points; "" for points without a name, {} for no points.

    Raises:
        UsageError: the file cannot be read, or is not a table of points.
    """
    try:
        text = table.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UsageError(
            f"--csv {table} exists and cannot be read ({error.strerror}), so its points cannot be kept. "
            "Choose another file"
        ) from None
    if not text.strip():
        return set()
    for separator in ",;\t":  # spreadsheets of some countries save with semicolons
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, restval="")
        try:
            if {"student", "points"} <= set(rows.fieldnames or ()):
                return {row[COLUMN] for row in rows} if COLUMN in (rows.fieldnames or ()) else {""}
        except csv.Error:
            continue
    raise UsageError(
        f"--csv must be a new file or a table of iocourse grade, but {table} has other content and would be "
        "overwritten. Choose another file"
    )


def keep_table(table: Path) -> str:
    """Rename an existing table whose points follow another rule; return a line for the user, otherwise "".

    Raises:
        UsageError: as `rules_of`, or the file cannot be renamed.
    """
    if not table.is_file():
        return ""
    others = rules_of(table) - {RULE_NAME}
    if not others:
        return ""
    path = table.resolve()  # of a link, the file that it points to
    kept = _free(path.with_name(f"{path.stem}-{KEPT}{path.suffix}"))
    _rename(path, kept)
    named = ", ".join(sorted(printable(one)[:60] for one in others if one))
    rule = f"another rule ({named})" if named else "an older rule (no column rule)"
    return f"{table} has points of {rule}: it is kept as {kept.name}, and the new points are in {table}"


def keep_grades(folder: Path) -> str:
    """Move stored grades of another rule to a subfolder; return a line for the user, or "" if there are none.

    Args:
        folder: the folder of the stored grades.

    Raises:
        UsageError: a file cannot be moved.
    """
    old = [path for path in sorted(folder.glob("*.json")) if _is_old(path)]
    for path in old:
        _rename(path, _free(folder / KEPT / path.name))
    if not old:
        return ""
    grades = "1 stored grade follows" if len(old) == 1 else f"{len(old)} stored grades follow"
    return f"{grades} an older rule of points: kept in {folder / KEPT}, and graded again by the present rule"


def _is_old(path: Path) -> bool:
    try:
        stored = read_json(path)
    except RecursionError:  # not written by the grader
        return False
    return "marks" in stored and stored.get(COLUMN) != RULE_NAME


def _free(path: Path) -> Path:
    """Return the path, or the first of path-2, path-3, … at which there is no file."""
    names = (path, *(path.with_name(f"{path.stem}-{n}{path.suffix}") for n in range(2, 1000)))
    return next(name for name in names if not name.exists() and not name.is_symlink())


def _rename(path: Path, kept: Path) -> None:
    try:
        kept.parent.mkdir(exist_ok=True)
        path.rename(kept)
    except OSError as error:
        raise UsageError(
            f"{path} has points of an older rule and cannot be renamed to {kept}: {error.strerror}. Move it "
            "to another folder"
        ) from None
