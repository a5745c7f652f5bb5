"""Atomic writing of files, and reading and writing of JSON objects."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def atomic_write(path: Path, text: str | bytes) -> None:
    """Write text (as UTF-8) or bytes to `path` so that a reader finds the old or the new file, never a part.

    A symbolic link is kept and its target replaced. A path that is not a regular file, such as a terminal, is
    written directly.
    """
    path, data = path.resolve(), text if isinstance(text, bytes) else text.encode("utf-8")
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or {} if it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, found: Any) -> None:
    """Write `found` as JSON to `path`, atomically."""
    atomic_write(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
