"""Measurements side by side, one module a subject, or one folder where it takes several files.

A subject is what this folder holds with ``NAME`` and ``HELP`` (text), ``run(quick) -> dict`` (the numbers,
as JSON can hold them) and ``show(result) -> str`` (the same as a table). `iocourse bench` finds it by itself.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, Protocol, cast

from iocourse.discovery import files_of

Row = dict[str, Any]


class Subject(Protocol):
    """What a module of this folder offers."""

    NAME: str
    HELP: str

    def run(self, quick: bool) -> Row:
        """Measure; `quick` asks for the fewest repeats that still say something."""

    def show(self, result: Row) -> str:
        """The result as plain text."""


def subjects() -> dict[str, Subject]:
    """Every subject by its name. What has no name, such as the folder `gpu`, is shared by subjects."""
    files = files_of(__name__, __path__)
    return {file.NAME: cast(Subject, file) for file in files if hasattr(file, "NAME")}


def circumstances(*packages: str) -> Row:
    """What every record needs: date, cores, commit, and the versions of Python and of `packages`."""
    versions = {"Python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"date": date.today().isoformat(), "cores": cores, "versions": versions, "commit": _commit()}


def _commit() -> str:
    """The commit of the checkout that runs, with a "+" where files have changed; without one, the version."""
    git = ["git", "-C", str(Path(__file__).parents[2])]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True).returncode != 0
    except (OSError, subprocess.CalledProcessError):
        return f"iocourse {metadata.version('iocourse')}, not a checkout"
    return head.stdout.strip() + ("+" if changed else "")


def laps(seconds: Sequence[float], digits: int) -> Row:
    """What a record says of work that was timed several times: each time in seconds, and their median."""
    return {"seconds": [round(s, digits) for s in seconds], "median_s": round(median(seconds), digits)}


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values they have under these keys, in the order in which the values come first."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def verdict(reached: float, goal: float, floor: float | None = None, *, less: bool = False) -> str:
    """What is said of a number beside its goal and floor, of which it is to be no less, or no more."""
    sign = -1 if less else 1
    if sign * reached >= sign * goal:
        return "goal met"
    if floor is None:
        return "goal missed"
    return "goal missed, floor met" if sign * reached >= sign * floor else "floor missed"
