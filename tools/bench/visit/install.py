"""The records of a visit put where the package ships them from, and lessons read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iocourse.data import recorded as shipped
from iocourse.gpu.measured import tiles_of
from iocourse.refusal import Refused, read_json, write_json
from tools.bench import Row
from tools.bench.visit.plan import Step
from tools.bench.visit.state import how_far, record_path

FOLDER = Path(shipped.__file__).parent / "bench"


def install(out: Path, known: Sequence[Step]) -> list[str]:
    """Put every record that a lesson can read into the package; a line for each says what became of it.

    What is shipped is not replaced by less: a quick record takes the place of none that is whole. Tiles come
    first, for with them the times of the step `again` are attention's. Raises Refused where a record is no
    benchmark's, or there is none.
    """
    order = sorted(known, key=lambda step: step.shipped != "tune")
    found = [line for step in order if step.shipped and (line := _installed(out, step))]
    if not found:
        raise Refused(f"--out {out} holds no record; allowed: the folder of a visit")
    return found


def _installed(out: Path, step: Step) -> str:
    file = record_path(out, "again" if step.name == "attention" and _with_measured_tiles(out) else step.name)
    if not (record := read_json(file)):
        return ""
    absent = [key for key in ("subject", "date", "versions", "device") if key not in record]
    if absent or record["subject"] != step.shipped:
        lacks = ", ".join(absent) or "its subject"
        raise Refused(f"{file} is no record of bench {step.shipped}: it lacks {lacks}")
    if step.shipped == "tune":
        tiles_of(record)  # refuses rows that no launch could take
    target = FOLDER / f"{step.shipped}.json"
    before = read_json(target)
    if before and _fullness(before) > _fullness(record):
        return f"{target} is left as it is: it holds more than {file}"
    write_json(target, record)
    return f"{target} written, from {file}"


def _fullness(record: Row) -> tuple[bool, float]:
    """Whether a record is that of a whole run, and how much of what was asked for it holds."""
    return not record.get("quick"), how_far(record)


def _with_measured_tiles(out: Path) -> bool:
    """Whether the package has the tiles that tune found: then the times with these are the package's."""
    tiles = read_json(record_path(out, "tune")).get("tiles")
    known = read_json(FOLDER / "tune.json").get("tiles")
    return bool(tiles) and tiles == known and record_path(out, "again").is_file()
