"""What a visit has done so far, kept in its folder, so that it goes on where it was cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iocourse.refusal import Refused, read_json
from tools.bench import Row
from tools.bench.gpu.text import done_of

FILE, LOCK = "visit.json", "lock"
DONE, CUT, FAILED, RUNNING, NEEDLESS = STATES = ("done", "cut off", "failed", "running", "not needed")


def record_path(out: Path, name: str) -> Path:
    """Where the record of a step is kept."""
    return out / "records" / f"{name}.json"


def part_path(out: Path, name: str) -> Path:
    """Where it is while the step runs, so that a second try that is cut off sooner spoils no first one."""
    return record_path(out, f"{name}.part")


def load(out: Path) -> Row:
    """The state in a folder: "seconds" spent, and "steps" by name; an empty one where none is kept.

    Raises Refused where the file is not what a visit wrote, and leaves it as it is.
    """
    file = out / FILE
    if not file.exists():
        return {"seconds": 0.0, "steps": {}}
    why = "it names states that no step has"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if all(one["state"] in STATES for one in found["steps"].values()) and found["seconds"] >= 0:
            return dict(found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
    raise Refused(
        f"{file} is not the state of a visit ({why}); move it away to begin anew, or choose another "
        "--out: the records beside it stay as they are"
    )


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Within this block no other visit uses the folder: two at once would time each other.

    Raises Refused where one does, or the folder cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("w", encoding="utf-8")
    except OSError as error:
        raise Refused(
            f"--out {out} cannot be written ({error.strerror}); allowed: a folder, or where one can be made"
        ) from None
    with file:
        with suppress(ImportError):  # Windows, where no GPU of ours is
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Refused(f"--out {out} is in use by another visit; wait until it has ended") from None
        yield


def how_far(record: Row) -> float:
    """How much of what was asked for a record holds, from 0 to 1; 0 for an empty one."""
    done, asked, _ = done_of(record) if record else (0, 1, "")
    return done / asked


def keep_better(out: Path, name: str) -> None:
    """Let what a step has left take the place of a record that holds no more than it; else it goes."""
    new, kept = part_path(out, name), record_path(out, name)
    if new.exists() and how_far(read_json(new)) >= how_far(read_json(kept)):
        new.replace(kept)
    new.unlink(missing_ok=True)
