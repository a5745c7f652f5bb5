"""When, where and with what something was measured: what every record says."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any


def circumstances(*packages: str) -> dict[str, Any]:
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
