"""Copies of text files (Markdown pages and `flash_attention.py`), which record their source in the last line.

The line is invisible on a rendered page, and a comment in Python.
"""

from __future__ import annotations

import hashlib
import re

from ... import __version__

# By the suffix of the file: the text before and after the record.
_MARKS = {".md": ("<!-- ", " -->"), ".py": ("# ", "")}


def as_text_copy(text: str, suffix: str) -> str:
    """Return the text of a file with a last line that records its source.

    Args:
        text: text of the file.
        suffix: suffix of its name, ".md" or ".py".
    """
    before, after = _MARKS[suffix]
    return f"{text}\n{before}iocourse {__version__} {_hash(text)}{after}\n"


def is_unchanged(copy: str, suffix: str) -> bool:
    """Return True if a copy has the text that it was made from."""
    text, copied_from = _split(copy, suffix)
    return _hash(text) == copied_from


def has_newer_text(copy: str, now: str, suffix: str) -> bool:
    """Return True if the file has another text than the copy, and than the file that the copy is from."""
    text, copied_from = _split(copy, suffix)
    return text != now and copied_from != _hash(now)


def _split(copy: str, suffix: str) -> tuple[str, str]:
    """Return the text of a copy without the record, and the recorded hash; "" without a record."""
    before, after = map(re.escape, _MARKS[suffix])
    record = re.compile(rf"\n{before}iocourse [\w.]+ ([0-9a-f]{{12}}){after}\n*\Z")
    found = record.search(copy)
    return record.sub("", copy), found[1] if found else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
