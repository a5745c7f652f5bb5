"""Installation of the records of a GPU run into the package: `python -m tools.bench gpu --install FILE`.

Every part of the file that is a record becomes `iocourse/data/bench/NAME.json` as it is; rows of two runs are
never mixed. A part must have device, versions, date, the commit of a checkout without changed files, and at
least one result. It replaces a shipped record, but a quick run never replaces a complete one, if

1. its kernels are those of today and the shipped record's are not, even if it has fewer shapes; or
2. that is true of both or of none, it has no smaller share of its shapes done, and with equal shares no
   earlier date.

The tiles of `tune` also become rows of `iocourse/data/choices.json`. A line names each row of that file whose
stated gain is not that of a new record; edit these rows, and `python -m tools.build --check` checks them.

Kernels are those of today if they compile to the same machine code with today's default tiles, see
`iocourse.data.records.kernels_remark`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from iocourse.data import records
from iocourse.data.records import CHANGED, kernels_remark, missing_metadata
from iocourse.errors import UsageError
from iocourse.files import atomic_write, read_json, write_json
from tools.bench import Row
from tools.bench.contest import reason_of
from tools.bench.gpu import NAME, how_far
from tools.bench.measured_tiles import tiles_of

FOLDER = Path(records.__file__).parent / "bench"
UNSHIPPED = ("compile",)  # parts that measure nothing
CALLED = {"counters": "profile"}  # names of records that are not those of their steps
DECODE = ("decode_parts", "decode_merge")
# The pairs of the kernels that each comparison times; its other parts may have run any kernel.
PAIRS: dict[str, tuple[str, ...]] = {
    "attention": ("band",), "sparse": ("band", "block_mask"), "varlen": ("packed",), "decode": ("band",),
    "small-cache": ("band",),
}  # fmt: skip
WIDEST = 512  # columns of the largest complete rows, and the size at which slices are compiled


def installed(file: Path) -> list[str]:
    """Install the parts of a file, and return one line about each. Raises UsageError if this command did not
    write the file, or none of its parts is a valid record.
    """
    whole = read_json(file)
    if whole.get("subject") != NAME:
        raise UsageError(f"--install must be a file that --json of this command wrote, got {file}")
    parts = {
        name: part
        for name, part in whole.items()
        if isinstance(part, dict) and "subject" in part and name not in UNSHIPPED
    }
    faults = {name: fault for name, part in parts.items() if (fault := _fault(part))}
    refused = [f"{name} is not installed, because {fault}" for name, fault in faults.items()]
    good = {name: part for name, part in parts.items() if name not in faults}
    if not good:
        raise UsageError("\n".join([f"--install {file} contains no valid record", *refused]))
    # Tiles first: afterwards rows of choices.json may disagree with other new records, which is a fault.
    order = sorted(good, key=lambda name: name != "tune")
    lines = {name: _installed(name, good[name]) for name in order}
    written = {CALLED.get(name, name): part for name, part in good.items() if " written" in lines[name][0]}
    return [*chain(*lines.values()), *_stale(written), *refused]


def _stale(written: Mapping[str, Row]) -> list[str]:
    """Return a line for each row of choices.json that states other times than a record that was written."""
    from tools.bench import choices

    return choices.stale(choices.FILE.read_text(encoding="utf-8"), written)


def _fault(part: Row) -> str:
    """Return the reason why a part must not be shipped, or ""."""
    if absent := missing_metadata(part):
        return f"it is not a valid record: missing {', '.join(absent)}"
    commit = str(part["commit"])
    if commit.endswith("+"):
        return (
            f"the checkout of {commit[:7]} had changed files, so its code is unknown. Commit, and run again"
        )
    if not re.fullmatch("[0-9a-f]{7,40}", commit):
        return f"its code is unknown: {commit}. Run it in a checkout of the repository"
    try:
        nothing = how_far(part) == 0
        if "tiles" in part or part["subject"] == "tune":
            tiles_of(part)
    except (KeyError, TypeError, ZeroDivisionError):
        return "it does not state how many of its shapes are done"
    except UsageError as error:
        return str(error)
    return "it was cut off before its first result" if nothing else ""


def _installed(name: str, part: Row) -> list[str]:
    """Write a valid part, unless the shipped record is better, and return lines about it. The tiles of `tune`
    are also written into choices.json; if that file would have a fault, nothing is written.
    """
    target = FOLDER / f"{CALLED.get(name, name)}.json"
    before = read_json(target)
    if isinstance(part.get("kernels_code"), dict):
        part = part | {"kernels_code": narrowed(part)}
    if reason := _worse(part, before):
        return [f"{target} is unchanged, because it {reason}"]
    changes = list[str]()
    if name == "tune":
        from tools.bench import choices

        try:
            text, changes = choices.with_record(choices.FILE.read_text(encoding="utf-8"), part)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            return [f"{target} is unchanged, because its tiles cannot be read: {reason_of(error)}"]
        if faults := choices.faults(text, {name: part}):
            return [f"{target} is unchanged, because with its tiles {fault}" for fault in faults]
        atomic_write(choices.FILE, text)
    write_json(target, part)
    return ["; ".join([f"{target} written", *_remarks(part, before)]), *changes]


def _worse(part: Row, before: Row) -> str:
    """Return the advantage of the shipped record over the part, or "" if the part replaces it."""
    if not before:
        return ""
    if not before.get("quick") and part.get("quick"):
        return "is not of a quick run"
    if before.get("quick") and not part.get("quick"):
        return ""
    if of_today(before) != of_today(part):
        return "is of today's kernels" if of_today(before) else ""
    if how_far(before) > how_far(part):
        return f"is more complete: {how_far(before):.0%} of its shapes, here {how_far(part):.0%}"
    if how_far(before) == how_far(part) and before["date"] > part["date"]:
        return f"is newer: {before['date']}, here {part['date']}"
    return ""


def of_today(record: Row) -> bool:
    """Return True if a record's kernels are known to be those of today, or it has none."""
    return "kernels_code" not in record or not kernels_remark(record)


def _remarks(part: Row, before: Row) -> Iterator[str]:
    """Yield what a user must know about a part that was written."""
    if (far := how_far(part)) < 1:
        yield f"cut off at {far:.0%} of its shapes"
    if before and how_far(before) > far:
        yield f"the record that it replaces has {how_far(before):.0%}, of kernels that have changed since"
    if "kernels_code" not in part:
        return
    ran, known = part["versions"].get("triton"), part["kernels_code"]
    if isinstance(known, dict) and known and ran not in known:
        yield f"its kernels are compared as compiled by Triton {', '.join(known)}, not {ran}"
    if remark := kernels_remark(part):
        yield "its kernels have changed since" if remark == CHANGED else "its kernels cannot be compared"


def narrowed(part: Row) -> dict[str, dict[str, str]]:
    """Return the known fingerprints of the kernels that a part has timed, for each version of Triton; {} if
    none of them compiled all these kernels. A kernel that is not timed does not age the record.
    """
    wanted = {
        version: {name: digits for name, digits in rows.items() if _is_timed(name, part)}
        for version, rows in part["kernels_code"].items()
    }
    if not any(rows and all(rows.values()) for rows in wanted.values()):
        return {}
    known = {version: {name: one for name, one in rows.items() if one} for version, rows in wanted.items()}
    return {version: rows for version, rows in known.items() if rows}


def _is_timed(name: str, part: Row) -> bool:
    """Return True if a part may have timed a kernel (`records.kernel_row`); parts without shapes: any."""
    _, kernel, d, width, _, pairs, *group = name.split()
    if group and part["subject"] in PAIRS:  # these time heads that share keys only in the decode step
        return False
    if (part["subject"] == "decode") != (kernel in DECODE) and part["subject"] in PAIRS:
        return False
    if pairs not in PAIRS.get(part["subject"], (pairs,)):
        return False
    rows = [row for row in part.get("rows", ()) if isinstance(row, dict) and {"d", "dtype"} <= row.keys()]
    rows = [*rows, *part.get("density_rows", ())]
    sizes = {(min(WIDEST, _columns(row["d"])), 4 if row["dtype"] == "float32" else 2) for row in rows}
    return (int(d), int(width)) in sizes or part["subject"] not in PAIRS


def _columns(d: Any) -> int:
    """Return the width of the row of the tile table that a head size uses: 64, 128, 256, 512, …"""
    return max(64, 1 << (int(d) - 1).bit_length())
