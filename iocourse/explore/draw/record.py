"""Pictures of a recorded run: where its numbers come from, and what is drawn where there is none yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...data.recorded import NONE_YET, provenance
from .palette import QUIET
from .picture import NORMAL, Picture, Text, titled

Record = Mapping[str, Any]


def source_of(record: Record, also: str = "") -> str:
    """Device, versions and date of a record, what else is to be said, and whether it was a quick run."""
    if "date" not in record:
        return "measured just now"
    return provenance(dict(record)) + also + (", a quick run" if record.get("quick") else "")


def none_yet(title: str, subject: str) -> Picture:
    """The picture that says that nobody recorded `python -m tools.bench SUBJECT` yet."""
    said = f"{NONE_YET}: `python -m tools.bench {subject}` makes one"
    alt = f"{title}: nothing is drawn, because there is {said}."
    return titled(title, (480.0, 80.0), alt, f"0 rows: {said}", [Text(18, 58, said, NORMAL, colour=QUIET)])
