"""A visit on one page: what ran, what was cut off, what was reached, and what to do with the records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from iocourse.bench import Row
from iocourse.console import table
from iocourse.data.recorded import provenance

from .plan import record_path
from .state import how_far, read_record

FILE = "summary.txt"


def text(visit: Row) -> str:
    """The plan, the lines of what was installed, or the summary."""
    if "plan" in visit:
        return _plan(visit)
    if "installed" in visit:
        return "\n".join([*visit["installed"], "", *_to_commit()])
    parts = [visit.get("stopped", ""), _steps(visit), *_goals(visit), _tiles(visit), _records(visit)]
    return "\n\n".join(part for part in (*parts, _provenance(visit)) if part)


def _plan(visit: Row) -> str:
    """Every step with its share of the minutes."""
    lines = [["step", "", "so far", "minutes"]]
    for one in visit["steps"]:
        lines.append([one["name"], one["about"], one.get("state", "to come"), f"{one['minutes']:.1f}"])
    return table(lines, left=3, gap=3)


def _steps(visit: Row) -> str:
    lines = [["", "state", "seconds", "at most", "of its shapes"]]
    for one in visit["steps"]:
        record = read_record(record_path(Path(visit["out"]), one["name"])) if one["recorded"] else None
        share = f"{how_far(record):.0%}" if record is not None else ""
        times = [f"{one['seconds']:.0f}", str(one["limit"])] if "limit" in one else ["", ""]
        lines.append([one["name"], one.get("state", "to come"), *times, share])
    spent = f"{visit['seconds'] / 60:.1f} of {visit['minutes']:g} minutes"
    return f"the visit so far, {spent}\n{table(lines, left=2)}"


def _goals(visit: Row) -> Iterator[str]:
    """The verdict on each goal that a record speaks of; those without enough shapes are left out."""
    lines = []
    for one, record in _measured(visit):
        for goal in record.get("goals", []):
            if not goal["verdict"].startswith("not judged"):
                numbers = f"{goal['reached']:.3f}", f"{goal['goal']:.2f}"
                lines.append([one["name"], goal["what"], *numbers, goal["verdict"]])
    if lines:
        yield table([["goals", "", "reached", "goal", ""], *lines], left=2)


def _measured(visit: Row) -> Iterator[tuple[Row, Row]]:
    for one in visit["steps"]:
        record = read_record(record_path(Path(visit["out"]), one["name"])) if one["recorded"] else None
        if record is not None:
            yield one, record


def _tiles(visit: Row) -> str:
    """What tune found, and how to use it."""
    tune = next((record for one, record in _measured(visit) if one["name"] == "tune"), None)
    if tune is None or not tune["rows"]:
        return ""
    said = (
        "tune's rows for TABLE in iocourse/kernels/host/tiles.py. The step `again` times them; once they are "
        "pasted, --install takes its record instead of attention's"
    )
    return "\n".join([said, *tune["rows"]])


def _records(visit: Row) -> str:
    if not any(True for _ in _measured(visit)):
        return ""
    out = visit["out"]
    return "\n".join([
        f"records: {out}/records; what was said: {out}/logs; to go on: the same command again",
        f"to put them where lessons read them: iocourse bench visit --install --out {out}",
        *_to_commit(),
    ])  # fmt: skip


def _to_commit() -> list[str]:
    return [
        "to ship them: iocourse release, then git add iocourse/data/bench lessons solutions && git commit"
    ]


def _provenance(visit: Row) -> str:
    """Device, versions and date: those of a record, for this process looked at no device."""
    record = next((record for _, record in _measured(visit) if "device" in record), visit)
    return provenance(record)
