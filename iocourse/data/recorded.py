"""Measurements that were made once on a named machine and are shipped with the package: never edited by hand.

>>> recorded("notebooks")["subject"]
'notebooks'
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

NAMES = (
    "attention",
    "decode",
    "depth",
    "hot-loops",
    "lowrank",
    "notebooks",
    "resources",
    "small-cache",
    "sparse",
    "tune",
    "varlen",
)
NONE_YET = "no recorded run yet"


def recorded(name: str) -> dict[str, Any] | None:
    """What `iocourse bench NAME` gave in the run that is shipped, or None where there is no recorded run yet.

    Raises ValueError for a name that no record is kept of.
    """
    if name not in NAMES:
        raise ValueError(f"name is {name!r}; allowed: {', '.join(NAMES)}")
    file = resources.files(__package__).joinpath("bench", f"{name}.json")
    if not file.is_file():
        return None
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def provenance(record: dict[str, Any] | None) -> str:
    """Where a record comes from, in one line: device, versions, date; "no recorded run yet" for None."""
    if record is None:
        return NONE_YET
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return ", ".join(part for part in (_device(record.get("device")), versions, record["date"]) if part)


def _device(device: dict[str, Any] | None) -> str:
    """'NVIDIA H200 (sm_90, driver 570.1)'; a record that needs no device has none."""
    if not device:
        return ""
    facts = [f"sm_{device['arch']}"] if device.get("arch") else []
    facts += [f"driver {device['driver']}"] if device.get("driver") else []
    return f"{device['name']} ({', '.join(facts)})" if facts else str(device["name"])
