"""Progress of a student (exercises seen, tried and solved) in one JSON file, which is replaced atomically."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

from iocourse import console
from iocourse.course.run_context import is_solved_notebook, nbgrader_execution
from iocourse.errors import UsageError
from iocourse.files import atomic_write

STATUSES = ("seen", "tried", "solved")  # each one includes those before it
FORMAT = 1
DRIVE = Path("/content/drive/MyDrive")  # the student's Google Drive in Colab, where machines are temporary
_nobodys: Progress = {}  # progress of solved notebooks and of nbgrader, kept in this process only
_warned: dict[str | tuple[str, type[Warning], int], int] = {}  # registry of the warnings already shown
_CHALLENGE = "challenge "  # prefix of the keys that belong to challenges, not to exercises
Entry = dict[str, Any]
Progress = dict[str, Entry]


def home() -> Path:
    """Return the folder of the course's own files.

    IOCOURSE_HOME comes first, then `iocourse` on a mounted Google Drive, then the user's data folder.
    """
    if os.environ.get("IOCOURSE_HOME"):
        return Path(os.environ["IOCOURSE_HOME"]).expanduser()
    return DRIVE / "iocourse" if DRIVE.is_dir() else _on_this_machine()


def _on_this_machine() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Application Support"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "iocourse"


def location() -> Path:
    """Return the path of the progress file, which need not exist."""
    return home() / "progress.json"


def _is_nobodys() -> bool:
    """Return True if this process runs a solved notebook or a submission graded by nbgrader.

    The user did not solve those exercises, so they are recorded only in this process and not in a file.
    """
    return is_solved_notebook() or nbgrader_execution() == "autograde"


def load() -> Progress:
    """Return the recorded exercises by id. An invalid progress file is renamed, with a warning.

    Raises:
        OSError: the file cannot be read or renamed, as on a read-only disk.
    """
    if _is_nobodys():
        return deepcopy(_nobodys)
    _settle_on_drive()
    return _read(location())


def _settle_on_drive(*, writing: bool = False) -> None:
    """If a Drive is mounted, move this machine's progress to it and print once where it is stored."""
    path, mine = location(), _on_this_machine() / "progress.json"
    if path.parent != DRIVE / "iocourse" or (path.exists() and not mine.exists()):
        return
    try:
        if mine.exists():
            with _locked():
                atomic_write(path, dump(merge_progress(_read(path), _read(mine))))
                mine.replace(_free_name(mine, "on-drive"))
        elif not writing:
            return
    except OSError as error:  # for example a full Drive: keep this machine's file and try again later
        warn_once(f"progress could not be written to Drive: {error}")
        return
    print(f"Your progress is now stored on your Drive: {path}")


def _read(path: Path) -> Progress:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (UsageError, UnicodeDecodeError) as error:
        aside = _free_name(path, "unreadable")
        try:
            path.replace(aside)
        except OSError as why:
            raise OSError(f"{error}; and the file cannot be renamed: {why}") from None
        warn_once(f"progress was reset, because the file is invalid; it is kept at {aside} ({error})")
        return {}


def _say_it_is_not_kept(error: OSError) -> None:
    warn_once(
        f"progress could not be written: {error}. Lessons and checks work without it; to record it, set "
        "IOCOURSE_HOME to a writable folder"
    )


def _free_name(path: Path, what: str) -> Path:
    """Return an unused path in the same folder as `path`, with `what` and the time in its name."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = (path.with_name(f"{path.stem}.{what}-{stamp}-{n}.json") for n in range(1, 1000))
    return next(name for name in names if not name.exists())


def parse(text: str, name: str) -> Progress:
    """Return the exercises of a progress file, by id.

    Args:
        text: content of the file.
        name: name of the file in messages.

    Raises:
        UsageError: not a valid progress file; the message names the exercise and the fault.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not valid JSON: {error}") from None
    facts = data if isinstance(data, dict) else {}
    version = facts.get("format")
    if isinstance(version, int) and version != FORMAT:
        raise UsageError(
            f"{name} has format {version}, but this version of iocourse reads format {FORMAT}"
            + ("; update iocourse" if version > FORMAT else "")
        )
    if version != FORMAT or not isinstance(facts.get("exercises"), dict):
        raise UsageError(
            f'{name} is not a progress file. Expected {{"format": {FORMAT}, "exercises": {{…}}}}'
        )
    for key, entry in data["exercises"].items():
        _refuse_faults(key, entry, name)
    return dict(data["exercises"])


def _refuse_faults(key: str, entry: Any, name: str) -> None:
    if not key.isprintable():
        raise UsageError(f"{name}: the exercise name {key!r} is not printable")
    if not isinstance(entry, dict) or entry.get("status") not in STATUSES:
        came = entry.get("status") if isinstance(entry, dict) else entry
        raise UsageError(
            f"{name}: the status of exercise {key!r} must be {' or '.join(STATUSES)}, got {came!r}"
        )
    for field in ("attempts", "hints"):
        count = entry.get(field)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise UsageError(
                f"{name}: the {field} of exercise {key!r} must be an integer of at least 0, got {count!r}"
            )
    words = entry.get("words", 1)
    if not isinstance(words, int) or isinstance(words, bool) or words < 1:
        raise UsageError(f"{name}: the words of {key!r} must be an integer of at least 1, got {words!r}")
    if key.startswith(_CHALLENGE) != ("words" in entry):
        raise UsageError(f"{name}: {key!r} has {'no ' if 'words' not in entry else ''}words")
    predicted = entry.get("prediction", 0)
    numbers = list(predicted.values()) if isinstance(predicted, dict) else [predicted]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise UsageError(
            f"{name}: the prediction of exercise {key!r} must be numbers by name, got {predicted!r}"
        )


def dump(progress: Progress) -> str:
    """Return the content of a progress file."""
    return json.dumps({"format": FORMAT, "exercises": progress}, indent=1, sort_keys=True) + "\n"


def record(exercise_id: str, status: str, *, hint: int = 0, prediction: Any = None) -> Entry:
    """Record that an exercise was seen, tried or solved.

    Args:
        exercise_id: such as ``4B``, or ``p4.2`` for a prediction.
        status: ``seen`` (a hint or a prediction), ``tried`` (a failed check) or ``solved`` (a passed one).
            ``tried`` and ``solved`` count as an attempt until the exercise is solved. A status never gets
            worse.
        hint: level of the hint shown, from 1; 0 for none.
        prediction: the student's prediction, as JSON data. A later prediction does not replace it.

    Returns:
        The updated entry of the exercise: status, attempts, hints and prediction.

    Raises:
        ValueError: `status` is unknown.
    """
    if status not in STATUSES:
        raise ValueError(f"status must be {' or '.join(STATUSES)}, got {status!r}")
    try:
        with _changing() as progress:
            entry = progress[exercise_id] = _advanced(progress.get(exercise_id), status, hint, prediction)
    except OSError as error:  # for example a read-only disk, which must not stop a lesson
        _say_it_is_not_kept(error)
        return _advanced(None, status, hint, prediction)
    return entry


def record_words(challenge_id: str, words: int) -> None:
    """Record a schedule for a challenge: store the fewest words so far, and count the attempt."""
    key = _CHALLENGE + challenge_id
    try:
        with _changing() as progress:
            entry = progress.get(key) or {"status": "seen", "attempts": 0, "hints": 0, "words": words}
            fewest = min(words, entry["words"])
            progress[key] = entry | {"attempts": entry["attempts"] + 1, "words": fewest}
    except OSError as error:
        _say_it_is_not_kept(error)


def best_words(challenge_id: str) -> int | None:
    """Return the fewest words recorded for a challenge; None if there are none or the file is unreadable."""
    try:
        words = load().get(_CHALLENGE + challenge_id, {}).get("words")
    except OSError as error:
        warn_once(f"cannot read your earlier results: {error}")
        return None
    return None if words is None else int(words)


def _advanced(entry: Entry | None, status: str, hint: int, prediction: Any) -> Entry:
    old = entry or {"status": "seen", "attempts": 0, "hints": 0}
    new = old | {"status": _better(old["status"], status), "hints": max(old["hints"], hint)}
    new["attempts"] = old["attempts"] + (status != "seen" and old["status"] != "solved")
    if prediction is not None:
        new.setdefault("prediction", prediction)
    return new


def _better(a: str, b: str) -> str:
    return max(a, b, key=STATUSES.index)


@contextmanager
def _changing() -> Iterator[Progress]:
    """Yield the recorded progress and write the changes at the end, under a lock against other notebooks."""
    if _is_nobodys():
        yield _nobodys
        return
    _settle_on_drive(writing=True)
    with _locked():
        progress = _read(location())
        yield progress
        atomic_write(location(), dump(progress))


@contextmanager
def _locked() -> Iterator[None]:
    lock = location().with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(100):
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            time.sleep(0.02)
    # After two seconds the process that held the lock has ended without removing it; it is removed below.
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def merge_progress(mine: Progress, other: Progress) -> Progress:
    """Merge two records: take the better status and the higher counts; prefer predictions of `mine`."""
    return {key: _merged(mine.get(key), other.get(key)) for key in sorted({*mine, *other})}


def _merged(mine: Entry | None, other: Entry | None) -> Entry:
    if mine is None or other is None:
        return dict(mine or other or {})
    new = other | mine | {"status": _better(mine["status"], other["status"])}
    if "words" in mine and "words" in other:
        new["words"] = min(mine["words"], other["words"])
    return new | {field: max(mine[field], other[field]) for field in ("attempts", "hints")}


def export_to(path: Path) -> int:
    """Write the progress to `path` for another machine, and return the number of exercises in it."""
    progress = load()
    atomic_write(path, dump(progress))
    return len(progress)


def import_from(path: Path) -> int:
    """Merge the progress at `path` into this machine's, and return the number of exercises recorded now.

    Raises:
        UsageError: `path` cannot be read or is not a progress file. The progress is unchanged then.
    """
    try:
        other = parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    with _changing() as known:
        known.update(merge_progress(known, other))
        return len(known)


def reset() -> Path | None:
    """Delete the recorded progress, and return the path of the backup; None if nothing was recorded."""
    if _is_nobodys():
        _nobodys.clear()
        return None
    _settle_on_drive()
    path = location()
    if not path.exists():
        return None
    backup = _free_name(path, "backup")
    path.replace(backup)
    return backup


def table(progress: Progress, known: tuple[str, ...] = ()) -> str:
    """Format the progress as a table with one exercise per line, and a summary.

    Args:
        progress: the recorded exercises by id.
        known: ids of all exercises, which are listed even if not started.
    """
    predictions = {key for key in progress if re.match(r"p\d", key)}
    challenges = {key for key in progress if key.startswith(_CHALLENGE)}
    ids = sorted({*progress, *known} - predictions - challenges, key=_by_number)
    blank: Entry = {"status": "-", "attempts": 0, "hints": 0}
    entries = [progress.get(key, blank) for key in ids]
    rows = [(key, e["status"], e["attempts"], e["hints"]) for key, e in zip(ids, entries, strict=True)]
    head = ("exercise", "status", "attempts", "hints")
    solved = sum(entry["status"] == "solved" for entry in entries)
    last = f"exercises solved: {solved} of {len(ids)}{'' if known else ' started'}; "
    last += f"predictions made: {len(predictions)}"
    lines = [console.table([head, *rows], left=2, gap=1, least=(10, 8, 8, 6)), last]
    return "\n".join([*lines, *(f"{key}: {progress[key]['words']:,} words" for key in sorted(challenges))])


def warn_once(what: str) -> None:
    """Show a one-line warning once, without a file and line of the library."""
    warnings.warn_explicit(what, UserWarning, "<iocourse>", 1, registry=_warned)


def _by_number(key: str) -> tuple[tuple[int, int | str], ...]:
    """Return a sort key that puts 10A after 2B, and names after numbers."""
    parts = re.findall("[0-9]{1,9}|[^0-9]+", key)
    return tuple((0, int(part)) if re.fullmatch("[0-9]{1,9}", part) else (1, part) for part in parts)
