"""What a student has seen, tried and solved: one small JSON file, written whole, never lost."""

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
DRIVE = Path("/content/drive/MyDrive")  # a student's Google Drive in Colab, whose machines are forgotten
_nobodys: Progress = {}
_warned: dict[str | tuple[str, type[Warning], int], int] = {}  # by Python: what was shown already
_CHALLENGE = "challenge "  # before a challenge's id: its entry is no exercise
Entry = dict[str, Any]
Progress = dict[str, Entry]


def home() -> Path:
    """The folder of the course's own files: IOCOURSE_HOME, else a mounted Drive's folder `iocourse`, else the
    user's data folder on this system.
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
    """The progress file, whether it exists yet or not."""
    return home() / "progress.json"


def _is_nobodys() -> bool:
    """Whether a solved notebook runs here, or a submission that nbgrader grades: what it solves was not
    solved by whoever runs it. It is known to this process alone, and no file is read or written.
    """
    return is_solved_notebook() or nbgrader_execution() == "autograde"


def load() -> Progress:
    """The recorded exercises by id. A file that cannot be read as progress is set aside with a warning.

    Raises:
        OSError: the file can neither be read nor set aside, as on a read-only disk.
    """
    if _is_nobodys():
        return deepcopy(_nobodys)
    _settle_on_drive()
    return _read(location())


def _settle_on_drive(*, writing: bool = False) -> None:
    """Where a Drive is mounted: take along what this machine has recorded, and say once where it is kept."""
    path, mine = location(), _on_this_machine() / "progress.json"
    if path.parent != DRIVE / "iocourse" or (path.exists() and not mine.exists()):
        return
    try:
        if mine.exists():
            with _locked():
                atomic_write(path, dump(merge(_read(path), _read(mine))))
                mine.replace(_free_name(mine, "on-drive"))
        elif not writing:
            return
    except OSError as error:  # such as a full Drive: this machine's file stays, and is tried again
        warn_once(f"progress could not be written to Drive: {error}")
        return
    print(f"Your progress is kept on your Drive from now on: {path}")


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
            raise OSError(f"{error}; and it cannot be set aside: {why}") from None
        warn_once(f"progress starts afresh; the old file is kept at {aside} ({error})")
        return {}


def _say_it_is_not_kept(error: OSError) -> None:
    warn_once(
        f"progress could not be written: {error}. Lessons and checks go on without it; to keep it, set "
        "IOCOURSE_HOME to a folder that can be written"
    )


def _free_name(path: Path, what: str) -> Path:
    """A name beside `path` that is not taken yet."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = (path.with_name(f"{path.stem}.{what}-{stamp}-{n}.json") for n in range(1, 1000))
    return next(name for name in names if not name.exists())


def parse(text: str, name: str) -> Progress:
    """The exercises of a progress file.

    Args:
        text: the file's text.
        name: what messages call the file.

    Raises:
        UsageError: not a progress file; the message says where and what.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from None
    facts = data if isinstance(data, dict) else {}
    version = facts.get("format")
    if isinstance(version, int) and version != FORMAT:
        raise UsageError(
            f"{name} has format {version}, and this version of iocourse reads format {FORMAT}"
            + ("; update iocourse" if version > FORMAT else "")
        )
    if version != FORMAT or not isinstance(facts.get("exercises"), dict):
        raise UsageError(f'{name} is no progress file: expected {{"format": {FORMAT}, "exercises": {{…}}}}')
    for key, entry in data["exercises"].items():
        _refuse_faults(key, entry, name)
    return dict(data["exercises"])


def _refuse_faults(key: str, entry: Any, name: str) -> None:
    if not key.isprintable():
        raise UsageError(f"{name}: exercise {key!r} is no name that can be printed")
    if not isinstance(entry, dict) or entry.get("status") not in STATUSES:
        came = entry.get("status") if isinstance(entry, dict) else entry
        raise UsageError(f"{name}: exercise {key!r} has status {came!r}; allowed: {', '.join(STATUSES)}")
    for field in ("attempts", "hints"):
        count = entry.get(field)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise UsageError(
                f"{name}: exercise {key!r} has {field} {count!r}; allowed: a whole number from 0"
            )
    words = entry.get("words", 1)
    if not isinstance(words, int) or isinstance(words, bool) or words < 1:
        raise UsageError(f"{name}: {key!r} has words {words!r}; allowed: a whole number from 1")
    if key.startswith(_CHALLENGE) != ("words" in entry):
        raise UsageError(f"{name}: {key!r} has {'no ' if 'words' not in entry else ''}words")
    predicted = entry.get("prediction", 0)
    numbers = list(predicted.values()) if isinstance(predicted, dict) else [predicted]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise UsageError(f"{name}: exercise {key!r} has prediction {predicted!r}; allowed: numbers by name")


def dump(progress: Progress) -> str:
    """The text of a progress file."""
    return json.dumps({"format": FORMAT, "exercises": progress}, indent=1, sort_keys=True) + "\n"


def record(exercise_id: str, status: str, *, hint: int = 0, prediction: Any = None) -> Entry:
    """Note that an exercise was seen, tried or solved, and return what is now known about it.

    Args:
        exercise_id: such as ``4.2``.
        status: ``seen`` (a hint or a prediction), ``tried`` (a failed check) or ``solved`` (a passed one).
            Tried and solved count as an attempt until it is solved. A status never gets worse.
        hint: level of a hint just shown, from 1.
        prediction: what the student predicted, as JSON can hold it; the first prediction stays.

    Raises:
        ValueError: an unknown status.
    """
    if status not in STATUSES:
        raise ValueError(f"status {status!r} is unknown; allowed: {', '.join(STATUSES)}")
    try:
        with _changing() as progress:
            entry = progress[exercise_id] = _advanced(progress.get(exercise_id), status, hint, prediction)
    except OSError as error:  # a read-only disk must not stop a lesson
        _say_it_is_not_kept(error)
        return _advanced(None, status, hint, prediction)
    return entry


def record_words(challenge_id: str, words: int) -> None:
    """Keep the fewest words of the student's schedules for a challenge, and how many were counted."""
    key = _CHALLENGE + challenge_id
    try:
        with _changing() as progress:
            entry = progress.get(key) or {"status": "seen", "attempts": 0, "hints": 0, "words": words}
            fewest = min(words, entry["words"])
            progress[key] = entry | {"attempts": entry["attempts"] + 1, "words": fewest}
    except OSError as error:
        _say_it_is_not_kept(error)


def best_words(challenge_id: str) -> int | None:
    """The fewest words recorded for a challenge; None where there are none, or none can be read."""
    try:
        words = load().get(_CHALLENGE + challenge_id, {}).get("words")
    except OSError as error:
        warn_once(f"what you reached before cannot be read: {error}")
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
    """What is recorded, to be changed and then written; no second notebook writes in between."""
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
    # After two seconds whoever held the lock has died with it: go on, and take it away below.
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def merge(mine: Progress, other: Progress) -> Progress:
    """Both together: the better status and the higher counts win; of two predictions mine stays."""
    return {key: _merged(mine.get(key), other.get(key)) for key in sorted({*mine, *other})}


def _merged(mine: Entry | None, other: Entry | None) -> Entry:
    if mine is None or other is None:
        return dict(mine or other or {})
    new = other | mine | {"status": _better(mine["status"], other["status"])}
    if "words" in mine and "words" in other:
        new["words"] = min(mine["words"], other["words"])
    return new | {field: max(mine[field], other[field]) for field in ("attempts", "hints")}


def export_to(path: Path) -> int:
    """Write the progress to `path`, to carry it to another machine; returns how many exercises it holds."""
    progress = load()
    atomic_write(path, dump(progress))
    return len(progress)


def import_from(path: Path) -> int:
    """Merge the progress at `path` into this machine's; returns how many exercises are known now.

    Raises:
        UsageError: `path` cannot be read or is no progress file; nothing has changed then.
    """
    try:
        other = parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    with _changing() as known:
        known.update(merge(known, other))
        return len(known)


def reset() -> Path | None:
    """Start afresh; returns where the old file is kept, None where there was none."""
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
    """The exercises as plain text, one a line, with those of `known` that were not begun."""
    predictions = {key for key in progress if re.match(r"p\d", key)}
    challenges = {key for key in progress if key.startswith(_CHALLENGE)}
    ids = sorted({*progress, *known} - predictions - challenges, key=_by_number)
    blank: Entry = {"status": "-", "attempts": 0, "hints": 0}
    entries = [progress.get(key, blank) for key in ids]
    rows = [(key, e["status"], e["attempts"], e["hints"]) for key, e in zip(ids, entries, strict=True)]
    head = ("exercise", "status", "attempts", "hints")
    solved = sum(entry["status"] == "solved" for entry in entries)
    last = f"exercises solved: {solved} of {len(ids)}{'' if known else ' begun'}; "
    last += f"predictions written down: {len(predictions)}"
    lines = [console.table([head, *rows], left=2, gap=1, least=(10, 8, 8, 6)), last]
    return "\n".join([*lines, *(f"{key}: {progress[key]['words']:,} words" for key in sorted(challenges))])


def warn_once(what: str) -> None:
    """Warn once, in one line, without the place in the library."""
    warnings.warn_explicit(what, UserWarning, "<iocourse>", 1, registry=_warned)


def _by_number(key: str) -> tuple[tuple[int, int | str], ...]:
    """Sort 10A after 2B, and names after numbers."""
    parts = re.findall("[0-9]{1,9}|[^0-9]+", key)
    return tuple((0, int(part)) if re.fullmatch("[0-9]{1,9}", part) else (1, part) for part in parts)
