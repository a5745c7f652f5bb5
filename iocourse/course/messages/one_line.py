"""A warning in one line."""

from __future__ import annotations

import warnings

_seen: dict[str | tuple[str, type[Warning], int], int] = {}  # by Python: what was shown already


def warn(what: str) -> None:
    """Warn once, without the place in the library, which says nothing to a student."""
    warnings.warn_explicit(what, UserWarning, "<iocourse>", 1, registry=_seen)
