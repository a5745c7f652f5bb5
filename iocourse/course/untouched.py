"""Whether a function leaves the arrays it is given as they were: later cells of a notebook need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .exercise import Property, Trial, differs
from .judging import each, idle


@dataclass(frozen=True)
class Watched(Trial):
    """A trial that also knows which of its input arrays the function wrote into."""

    changed: tuple[str, ...] = ()


def changed(given: Mapping[str, Any], afterwards: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of what is no longer as it was given."""
    return tuple(name for name, one in given.items() if differs(one, afterwards[name]))


def inputs_untouched() -> Property:
    """No input array is written into."""

    def judge(trial: Trial) -> str | None:
        written = trial.changed if isinstance(trial, Watched) else ()
        return f"{', '.join(written)} was changed in place" if written else None

    return idle(each("the inputs are left as they were", judge))
