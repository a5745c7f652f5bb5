"""A visit on one page: what ran, what was cut off, what was reached, and what to do with the records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iocourse.console import crossed, paragraphs, table
from iocourse.data.recorded import provenance
from iocourse.refusal import read_json
from tools.bench import Row
from tools.bench.gpu.judging import cell
from tools.bench.visit.state import how_far, record_path

FILE = "summary.txt"
TO_COMMIT = (
    "to ship them: python -m tools.build, then git add iocourse/data/bench lessons solutions && git commit"
)


def text(visit: Row) -> str:
    """The plan, the lines of what was installed, or the summary."""
    if "plan" in visit:
        return _plan(visit)
    if "installed" in visit:
        return "\n".join([*visit["installed"], "", TO_COMMIT])
    records, out = _read(visit), visit["out"]
    to_go_on = [
        f"records: {out}/records; what was said: {out}/logs; to go on: the same command again",
        f"to put them where lessons read them: python -m tools.bench visit --install --out {out}",
        TO_COMMIT,
    ]
    # Device, versions and date are those of a record, for this process looked at no device.
    measured = next((record for record in records.values() if "device" in record), visit)
    return paragraphs(
        visit.get("stopped", ""), _steps(visit, records), _goals(records), _tiles(records),
        "\n".join(to_go_on) if records else "", provenance(measured),
    )  # fmt: skip


def _plan(visit: Row) -> str:
    """Every step with its share of the minutes."""
    lines = (
        [one["name"], one["about"], one.get("state", "to come"), f"{one['minutes']:.1f}"]
        for one in visit["steps"]
    )
    return table([["step", "", "so far", "minutes"], *lines], left=3, gap=3)


def _read(visit: Row) -> dict[str, Row]:
    """The records there are, by the names of their steps."""
    files = {one["name"]: record_path(Path(visit["out"]), one["name"]) for one in visit["steps"]}
    return {name: record for name, file in files.items() if (record := read_json(file))}


def _steps(visit: Row, records: Mapping[str, Row]) -> str:
    lines = [["", "state", "seconds", "at most", "of its shapes"]]
    for one in visit["steps"]:
        share = f"{how_far(records[one['name']]):.0%}" if one["name"] in records else ""
        times = [f"{one['seconds']:.0f}", str(one["limit"])] if "limit" in one else ["", ""]
        lines.append([one["name"], one.get("state", "to come"), *times, share])
    spent = f"{visit['seconds'] / 60:.1f} of {visit['minutes']:g} minutes"
    return f"the visit so far, {spent}\n{table(lines, left=2)}"


def _goals(records: Mapping[str, Row]) -> str:
    """The verdict on each goal that a record speaks of; those without enough shapes are left out."""
    lines = [
        [name, goal["what"], f"{goal['reached']:.3f}", f"{goal['goal']:.2f}", goal["verdict"]]
        for name, record in records.items()
        for goal in record.get("goals", [])
        if not goal["verdict"].startswith("not judged")
    ]
    return table([["goals", "", "reached", "goal", ""], *lines], left=2) if lines else ""


def _tiles(records: Mapping[str, Row]) -> str:
    """What tune found, and what becomes of it."""
    found = [
        f"  {row['kernel']}, d = {row['d']}, {cell(row['causal'])}: {crossed(row['tile'])}"
        for row in records.get("tune", {}).get("tiles", ())
    ]
    said = (
        "faster tiles that tune found. The step `again` times them; --install ships them, and its record in "
        "the place of attention's"
    )
    return "\n".join([said, *found]) if found else ""
