"""Lower bounds as objects: a formula with its source, regime, status and class of schedules."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

__all__ = ["BOUNDS", "STATUSES", "Bound", "NotProved", "OnlyAsymptotic", "OutsideRegime"]

OUR_CONSTANTS = "published argument, constants ours"
STATUSES = ("proved here", "published", OUR_CONSTANTS, "claimed", "asymptotic only", "open")
# Classes of schedules in `lower_bound`, with the option that restricts a pass to the class.
CLASSES = {
    "any": "every schedule, also an approximation",
    "exact": "every schedule that is not an approximation",
    "once": "recompute=False: no score is computed twice",
    "own weights": "given_weights=False: P is not an input",
    "whole rows": "whole_rows=True: complete rows are moved, in steps of at most 2d words",
}


class OutsideRegime(ValueError):
    """A bound was evaluated at sizes outside its regime."""


class OnlyAsymptotic(ValueError):
    """A bound with an unknown constant was evaluated in words; it has an `order` only."""


class NotProved(ValueError):
    """An open question, neither proved nor refuted as far as this course knows, was evaluated in words."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on the words W that a pass moves: `bound(...)` returns it in words, at least 0.

    `formula` is LaTeX, `status` one of `STATUSES`, `passes` the passes to which it applies, `holds_for` the
    class of algorithms, and `not_about` the cases that it does not cover although they look similar.
    `schedules` is the key in `CLASSES` of the class for which `lower_bound` takes it, or "" if it does not. A
    bound whose formula is negative is 0. `M` counts every word of fast memory: pass M + 4 for a run on the
    machine, whose four registers are free. Raises `OutsideRegime` if `regime` does not hold, `OnlyAsymptotic`
    if a constant is unknown and `NotProved` if the status is "open"; the last two have an `order` instead.
    """

    id: str
    title: str
    formula: str
    source: str
    regime: str
    status: str
    passes: tuple[str, ...]
    schedules: str
    holds_for: str
    not_about: str
    evaluate: Callable[..., Any]

    def __call__(self, *sizes: int, **named: Any) -> int:
        if self.status == "asymptotic only":
            raise OnlyAsymptotic(
                f"{self.id} has a constant that its source does not state, so it cannot be evaluated in "
                f"words. Use order(...) for the value of the expression"
            )
        if self.status == "open":
            raise NotProved(
                f"{self.id} is an open question, not a theorem, so it cannot be evaluated in words. "
                "Use order(...) for the value of the expression"
            )
        words: int = self.evaluate(*sizes, **named)
        return max(0, words)

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Names of the sizes that it requires: N, d and M; under a mask nnz, or rows and columns, not N."""
        parameters = inspect.signature(self.evaluate).parameters.values()
        return tuple(one.name for one in parameters if one.default is one.empty)

    def at(self, sizes: Mapping[str, int], **named: Any) -> int:
        """Return the bound in words for those of `sizes` that it requires."""
        return self(*(sizes[name] for name in self.sizes), **named)

    @property
    def in_words(self) -> bool:
        """True if the bound can be evaluated in words, because all its constants are known."""
        return self.status not in ("asymptotic only", "open")

    def order(self, *sizes: int, **named: Any) -> float:
        """Return the expression inside Θ or Ω, or of an open question; it is an order of growth, not words.

        Raises ValueError for a bound whose constants are known.
        """
        if self.in_words:
            raise ValueError(
                f"order() is for bounds with unknown constants, but those of {self.id} are known. "
                f"Call the bound itself for the number of words"
            )
        return float(self.evaluate(*sizes, **named))


BOUNDS: dict[str, Bound] = {}
Exported = TypeVar("Exported", bound=Callable[..., Any])


def public(function: Exported) -> Exported:
    """Add a function to the names that `import *` takes from its file, which do not include its helpers."""
    vars(sys.modules[function.__module__]).setdefault("__all__", []).append(function.__name__)
    return function


def bound(
    *,
    id: str,
    title: str,
    formula: str,
    source: str,
    regime: str,
    status: str,
    passes: tuple[str, ...],
    holds_for: str,
    schedules: str = "",
    not_about: str = "",
    among: dict[str, Bound] = BOUNDS,
) -> Callable[[Callable[..., Any]], Bound]:
    """Register the decorated function, which evaluates the formula, as a Bound under `id`.

    The arguments are the fields of Bound. `among` is the dict to which it is added; `distributed` has a
    separate one. A function whose name begins with _ is found by the id only.

    Raises:
        ValueError: `status` or `schedules` is unknown.
    """
    if status not in STATUSES:
        raise ValueError(f"status of {id} must be one of {', '.join(STATUSES)}, got {status!r}")
    if schedules not in ("", *CLASSES):
        raise ValueError(f"schedules of {id} must be one of {', '.join(CLASSES)} or empty, got {schedules!r}")

    def register(evaluate: Callable[..., Any]) -> Bound:
        if among is BOUNDS and evaluate.__name__[0] != "_":
            public(evaluate)
        made = Bound(
            id, title, formula, source, regime, status, passes, schedules, holds_for, not_about, evaluate
        )
        among[id] = made
        return made

    return register


def require(id: str, regime: str, holds: bool, **sizes: int) -> None:
    """Raise `OutsideRegime`, with the bound, its regime and the sizes, unless `holds`."""
    if not holds:
        given = ", ".join(f"{name} = {value}" for name, value in sizes.items())
        raise OutsideRegime(f"{id} is stated for {regime}, got {given}")
