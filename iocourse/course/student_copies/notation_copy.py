"""The student's copy of a Markdown page, the notation: an invisible last line records what was copied."""

from __future__ import annotations

import hashlib
import re

from ... import __version__

_SAID = re.compile(r"\n<!-- iocourse [\w.]+ ([0-9a-f]{12}) -->\n*\Z")


def as_copy(text: str) -> str:
    """The page with a line that says what it was copied from."""
    return f"{text}\n<!-- iocourse {__version__} {_hash(text)} -->\n"


def body(copy: str) -> str:
    """The text of a copy without that line."""
    return _SAID.sub("", copy)


def recorded(copy: str) -> str:
    """The hash of the text that was copied; "" where it does not say."""
    found = _SAID.search(copy)
    return found[1] if found else ""


def is_untouched(copy: str, text: str) -> bool:
    """Whether the student has changed nothing in it, as far as it says; `text` is the page's now."""
    return _hash(body(copy)) == recorded(copy) or body(copy) == text


def is_outdated(copy: str, text: str) -> bool:
    """Whether the page's `text` is another than the one that was copied."""
    return body(copy) != text and recorded(copy) != _hash(text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
