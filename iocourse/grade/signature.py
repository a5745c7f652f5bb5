"""The signature of a kept grade (HMAC): only the grader can write it, with a key in the user's home."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from functools import cache
from pathlib import Path

from ..course.progress import home
from ..errors import UsageError

BYTES = 32  # of a key


def sign(*parts: bytes) -> str:
    """The signature of these parts, as text."""
    told = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(_key(), told, hashlib.sha256).hexdigest()


@cache
def library_hash() -> str:
    """A short name for the source of `iocourse` as it is: grades hold for what judged them."""
    house = Path(__file__).parents[1]
    told = hashlib.sha256()
    for path in sorted(house.rglob("*.py")):
        told.update(path.relative_to(house).as_posix().encode() + b"\0" + path.read_bytes())
    return told.hexdigest()


def _key() -> bytes:
    place = home() / "grading-key"
    if not place.exists():
        _make(place)
    try:
        key = bytes.fromhex(place.read_text(encoding="ascii"))
    except ValueError:
        key = b""
    if len(key) != BYTES:
        raise UsageError(f"{place} is damaged: delete it, and grades are made anew")
    return key


def _make(place: Path) -> None:
    """Write a key, unless another run was first: a reader finds a whole one, and all runs find the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")  # for its owner alone
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(BYTES))
        _appear(name, place)
    finally:
        Path(name).unlink(missing_ok=True)


def _appear(name: str, place: Path) -> None:
    try:
        os.link(name, place)
    except OSError:  # another run was first, or this file system has no links
        if not place.exists():
            os.replace(name, place)
