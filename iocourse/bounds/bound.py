"""What a lower bound is: a formula with its source, its regime, its status and the class it speaks about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..solution_guard import library_solution, require_unblocked

OUR_CONSTANTS = "published argument, constants ours"
STATUSES = ("proved here", "published", OUR_CONSTANTS, "claimed", "asymptotic only", "open")


class OutsideRegime(ValueError):
    """A bound was asked for sizes it is not stated for."""


class OnlyAsymptotic(ValueError):
    """A bound whose constant is unknown was asked for a number of words."""


class NotProved(ValueError):
    """What nobody has proved or refuted, as far as this course knows, was asked for a number of words."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on the words W that a pass moves: `bound(...)` evaluates it in words, never below 0.

    `formula` is LaTeX, `status` one of `STATUSES`, `passes` the passes it may be compared with, `holds_for`
    the class of algorithms it speaks about, `not_about` what it is easily taken for and is not. A bound that
    says nothing at these sizes is 0. `M` counts every word of fast memory: pass M + 4 for a run on the
    machine, whose four registers are free. Raises `OutsideRegime` where `regime` does not hold,
    `OnlyAsymptotic` where a constant is hidden and `NotProved` where the status is "open"; such a bound has
    an `order` instead.
    """

    id: str
    title: str
    formula: str
    source: str
    regime: str
    status: str
    passes: tuple[str, ...]
    holds_for: str
    not_about: str
    evaluate: Callable[..., Any]

    def __call__(self, *sizes: int, **named: Any) -> int:
        require_unblocked(f"iocourse.bounds, bound {self.id},")
        if self.status == "asymptotic only":
            raise OnlyAsymptotic(
                f"{self.id} hides a constant that its source does not give, so it is no number of words; "
                f"order(...) gives the value of the expression inside"
            )
        if self.status == "open":
            raise NotProved(
                f"{self.id} is a question and no theorem, so it is no number of words; order(...) gives the "
                "value of the expression"
            )
        return max(0, int(self.evaluate(*sizes, **named)))

    @property
    def in_words(self) -> bool:
        """True where the bound is a number of words: stated with every constant."""
        return self.status not in ("asymptotic only", "open")

    def order(self, *sizes: int, **named: Any) -> float:
        """The expression inside Θ or Ω, or of an open question: a shape to plot, not a number of words.

        Raises ValueError for a bound whose constants are known.
        """
        require_unblocked(f"iocourse.bounds, bound {self.id},")
        if self.in_words:
            raise ValueError(f"the constants of {self.id} are known; call it for the number of words")
        return float(self.evaluate(*sizes, **named))


BOUNDS: dict[str, Bound] = {}


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
    not_about: str = "",
    among: dict[str, Bound] = BOUNDS,
) -> Callable[[Callable[..., Any]], Bound]:
    """Register the decorated function, which evaluates the formula, under `id`.

    `among` is the list it goes into: a room of its own, such as `distributed`, has one of its own.
    """

    def register(evaluate: Callable[..., Any]) -> Bound:
        guarded = library_solution(evaluate)
        made = Bound(id, title, formula, source, regime, status, passes, holds_for, not_about, guarded)
        among[id] = made
        return made

    return register


def require(id: str, regime: str, holds: bool, **sizes: int) -> None:
    """Raise `OutsideRegime` naming the bound, its regime and the sizes, unless `holds`."""
    if not holds:
        given = ", ".join(f"{name} = {value}" for name, value in sizes.items())
        raise OutsideRegime(f"{id} is stated for {regime}; here {given}")
