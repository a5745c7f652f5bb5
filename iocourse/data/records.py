"""Recorded measurements, shipped with the package: made once on a named machine, and never edited by hand.

>>> load_record("notebooks")["subject"]
'notebooks'
>>> print(format_record(None))
no recorded run yet
"""
# <!-- "no recorded run yet" if data.records.NONE_YET == "no recorded run yet" -->

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from ..console import number, paragraphs, table

_AWAITED = (
    "answers",
    "attention",
    "attention-lengths",
    "attention-tutorial",
    "decode",
    "depth",
    "hot-loops",
    "lessons",
    "lowrank",
    "notebooks",
    "profile",
    "resources",
    "roofs",
    "small-cache",
    "sparse",
    "sparse-lines",
    "tune",
    "values",
    "varlen",
)
_BENCH = resources.files(__package__).joinpath("bench")
# Records that lessons, pages and kernels load, also before they exist, and all others of the folder.
NAMES = tuple(
    sorted({*_AWAITED, *(file.name[:-5] for file in _BENCH.iterdir() if file.name.endswith(".json"))})
)
COMPILED = "resources", "hot-loops"  # records of compiled kernels, each of one version of Triton
NONE_YET = "no recorded run yet"
CHANGED = "measured before a later change of the kernels or of their tiles"
NOT_COMPARED = "with kernels that cannot be compared with those of today"
Rows = Sequence[dict[str, Any]]
_FIGURES = {"tflops": "TFLOP/s", "gbytes_per_s": "GB/s of K and V"}
_OF_OURS = {
    "density": "share of pairs", "saved": "padding saved",
    "of_saved": "of the saved", "share": "of the copy", "us": "ours, µs",
}  # fmt: skip
_OF_LINES = ("d", "N", "pass", "dense_ms", "overhead_ms", "deviation")
_RIVALS = ("SDPA", "FlexAttention", "varlen_attn", "tutorial")  # how names of other projects' kernels begin
_HEAD_SIZE = "have the same last dimension and to be less than or equal to 256"  # in an error of PyTorch


def load_record(name: str) -> dict[str, Any] | None:
    """Return the shipped record of this name (written by `tools.bench`), or None if no run is recorded yet.

    Raises ValueError for a name that is not in `NAMES`.
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}; got {name!r}")
    file = resources.files(__package__).joinpath("bench", f"{name}.json")
    if not file.is_file():
        return None
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def record_source(record: dict[str, Any] | None) -> str:
    """Describe the source of a record in one line: device, versions, date; `NONE_YET` for None.

    For a record of our kernels the line also has the commit, and a remark if they are not those of today; for
    a record of other code it has the description of what was timed.
    """
    if record is None:
        return NONE_YET
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    timed = record.get("timed", "")
    if "kernels_code" in record and "commit" in record:
        timed = f"commit {record['commit'][:7]}{'+' if record['commit'].endswith('+') else ''}"
    changed = kernels_remark(record) if "kernels_code" in record and "commit" in record else ""
    parts = (_device(record.get("device")), versions, record["date"], timed, changed)
    return ", ".join(part for part in parts if part)


def _device(device: dict[str, Any] | None) -> str:
    """Format a record's device, as in 'NVIDIA H200 (sm_90, driver 570.1)'; "" for None."""
    if not device:
        return ""
    facts = [f"sm_{device['arch']}"] if device.get("arch") else []
    facts += [f"driver {device['driver']}"] if device.get("driver") else []
    facts += [f"{device['vector_bits']}-bit vectors"] if device.get("vector_bits") else []
    return f"{device['name']} ({', '.join(facts)})" if facts else str(device["name"])


def missing_metadata(record: dict[str, Any]) -> list[str]:
    """Return the missing ones of device, versions, date and commit; `cores` may replace device (CPU), and
    `timed`, which describes code outside this repository, may replace the commit.
    """
    there = {
        "device": (record.get("device") or {}).get("name") or record.get("cores"),
        "versions": record.get("versions"),
        "date": record.get("date"),
        "commit": record.get("commit") or record.get("timed"),
    }
    return [name for name, value in there.items() if not value]


def format_record(record: dict[str, Any] | None) -> str:
    """Format a record: its rows as tables, one line per reason why something was not timed, and its source.

    The last columns of a table belong to the first implementation, which is ours. The last one has its speed
    relative to the implementation of other projects with the smallest time. None gives `NONE_YET`.
    """
    if record is None:
        return record_source(None)
    rows = [*record["rows"], *record.get("density_rows", [])]
    kinds = dict.fromkeys((row["dtype"], row["d"], row["pass"]) for row in rows)
    reasons = dict.fromkeys(
        f"{row['contender']}: {_reason(row['refused'])}" for row in rows if "refused" in row
    )
    lines = [[number(x, 3) if isinstance(x := one[key], float) else x for key in _OF_LINES]
             for one in record.get("lines", [])]  # fmt: skip
    return paragraphs(
        *(_table(record["contenders"], rows, kind) for kind in kinds),
        "not timed\n" + "\n".join(reasons) if reasons else "",
        f"time of ours ≈ share of pairs · dense + overhead\n{table([_OF_LINES, *lines])}" if lines else "",
        record_source(record),
    )


def _reason(refused: str) -> str:
    """Return the reason of a refusal as one clause."""
    return "head size above 256" if _HEAD_SIZE in refused else refused.split(". ")[0].split(";")[0]


def _against_fastest(here: Mapping[str, dict[str, Any]], ours: str) -> str:
    """Return our speed relative to the rival with the smallest time, and its name; a dash without times."""
    ms = {name: row["ms"] for name, row in here.items() if "ms" in row}
    rivals = [name for name in ms if name.startswith(_RIVALS)]
    if ours not in ms or not rivals:
        return number(None, 2)
    fastest = min(rivals, key=lambda name: ms[name])
    return f"{number(ms[fastest] / ms[ours], 2)} {fastest}"


def _table(contenders: Sequence[str], rows: Rows, kind: tuple[str, int, str]) -> str:
    """Format the rows of one type, head size and pass as a table with one line per shape."""
    some = [row for row in rows if (row["dtype"], row["d"], row["pass"]) == kind]
    labels = [key for key in list(some[0])[: list(some[0]).index("contender")] if key not in ("dtype", "d")]
    labels = [key for key in labels if len({row[key] for row in some}) > 1] or labels[:1]
    figure = next((key for key in _FIGURES if any(key in row for row in some)), "ms")
    names = [name for name in contenders if any(row["contender"] == name for row in some)]
    more = [key for key in _OF_OURS if any(key in row for row in some if row["contender"] == names[0])]
    rivals = any("ratio" in row for row in some)
    last = ["ours / fastest rival"] if rivals else []
    lines: list[list[object]] = [[*labels, *names, *(_OF_OURS[key] for key in more), *last]]
    for at in dict.fromkeys(tuple(row[key] for key in labels) for row in some):
        here = {row["contender"]: row for row in some if tuple(row[key] for key in labels) == at}
        figures = (number(here.get(name, {}).get(figure), 1) for name in names)
        ours = (number(here.get(names[0], {}).get(key), 2) for key in more)
        lines.append([*at, *figures, *ours, *([_against_fastest(here, names[0])] if rivals else [])])
    dtype, d, pass_ = kind
    return f"{_FIGURES.get(figure, 'ms')}, {dtype}, d = {d}, {pass_}\n{table(lines, left=len(labels))}"


def run_metadata(*packages: str) -> dict[str, Any]:
    """Return the metadata of every record: date, cores, commit, and versions of Python and of `packages`."""
    versions = {"Python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"date": date.today().isoformat(), "cores": cores, "versions": versions, "commit": _commit()}


def _commit() -> str:
    """Return the commit of this checkout, with a "+" if files have changed; or, without one, the version."""
    git = ["git", "-C", str(Path(__file__).parents[2])]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True).returncode != 0
    except (OSError, subprocess.CalledProcessError):
        return f"iocourse {metadata.version('iocourse')}, not a checkout"
    return head.stdout.strip() + ("+" if changed else "")


@cache
def kernels_code() -> dict[str, dict[str, str]]:
    """Return a fingerprint of every kernel as compiled: {version of Triton: {`kernel_row`: digits}}; "" for a
    kernel whose machine code is not recorded.

    They are read from the records of compiled kernels, because a plain install has no compiler. A record of
    times stores those of its commit, so that the two files can be compared. A fingerprint covers machine
    code, constants, shared memory and warps, so it depends on the tile as well.
    """
    found: dict[str, dict[str, str]] = {}
    for record in filter(None, map(load_record, COMPILED)):
        of_version = found.setdefault(record["versions"]["triton"], {})
        of_version |= {kernel_row(row): row.get("machine_code", "") for row in record["shipped"]}
    return found


def kernel_row(row: Mapping[str, Any]) -> str:
    """Return the name of a compiled kernel: architecture, kernel, d, bytes per number, causal or full, pairs,
    and the query heads per key head if they share keys.

    The tile is not part of the name: with another default tile it is the same kernel, changed. Kernels of
    decoding are compiled for one number of heads, which is not part of their names.
    """
    causal, group = "causal" if row["causal"] else "full", row.get("group", 1)
    shared = "" if group == 1 or row["kernel"].startswith("decode") else f" group={group}"
    return f"sm_{row['arch']} {row['kernel']} {row['d']} {row['bytes']} {causal} {row['pairs']}{shared}"


def kernels_remark(record: Mapping[str, Any]) -> str:
    """Return a remark if the kernels of a record are not known to be those of today, otherwise "".

    They are compared for each version of Triton for which both sides know every fingerprint. "kernels_code"
    is a string in records made before machine code was compared; their kernels have changed since.
    """
    then, now = record["kernels_code"], kernels_code()
    if isinstance(then, str):
        return CHANGED
    both = [
        [(digits, now[version].get(name)) for name, digits in rows.items()]
        for version, rows in then.items()
        if version in now
    ]
    known = [pairs for pairs in both if pairs and "" not in {one for pair in pairs for one in pair}]
    if any(before != after for pairs in known for before, after in pairs):
        return CHANGED
    return "" if known and not record["commit"].endswith("+") else NOT_COMPARED
