"""A challenge: a problem at one size, the shapes at which values are tried, and the unit of the score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ... import bounds
from ...discovery import files_of
from ...machine import SlowArray
from ...masks import Mask

NOT_CHALLENGES = ("challenge_spec", "library_best", "scoring", "rolling_rows")  # the other files here


def no_mask(N: int) -> None:
    """Every query sees every key."""


@dataclass(frozen=True)
class Challenge:
    """A problem of which no budget is known: fewer words are better.

    `arrays` are handed over, those of `inputs` each schedule must load; `mask` gives the mask for N tokens.
    Words are those at (N, d, M); `shapes` are the (N, d) at which values are tried, with the same M. Where
    `dry`, nobody can run (N, d) on numbers: words are counted on shapes. `unit` are the words of a score of
    1, which `per` says in letters. `whole_rows`: what is proved for whole rows alone is told as well.
    `known` is a schedule with its tiles that moves fewer words than any of the library, `idea` says it in a
    few words; students are shown its words and its idea.
    """

    id: str
    title: str
    pass_: str
    N: int
    d: int
    M: int
    shapes: tuple[tuple[int, int], ...]
    unit: Callable[[int, int, int], float]
    per: str
    arrays: tuple[str, ...] = ("Q", "K", "V")
    inputs: tuple[str, ...] = ("Q", "K", "V")
    mask: Callable[[int], Mask | None] = no_mask
    dry: bool = False
    whole_rows: bool = False
    known: Callable[..., SlowArray] | None = None
    idea: str = ""

    def score(self, words: int) -> float:
        """Words in the challenge's unit."""
        return words / self.unit(self.N, self.d, self.M)

    def floor(self, **smaller_class: Any) -> tuple[int, str]:
        """The best proved lower bound and its id, for all schedules or a smaller class of them."""
        sizes = (self.pass_, self.N, self.d, self.M)
        return bounds.lower_bound(*sizes, mask=self.mask(self.N), given_weights=False, **smaller_class)

    def told(self, N: int) -> dict[str, Any]:
        """What a schedule is told beside its tiles: the mask, where there is one."""
        mask = self.mask(N)
        return {} if mask is None else {"mask": mask}


_challenges: dict[str, Challenge] = {}


def challenges() -> Mapping[str, Challenge]:
    """Every challenge by id, in the order of their files' names."""
    if not _challenges:
        from . import __name__ as package
        from . import __path__ as path

        found = (module.CHALLENGE for module in files_of(package, path, beside=NOT_CHALLENGES))
        _challenges.update({challenge.id: challenge for challenge in found})
    return _challenges


def find(which: str) -> Challenge:
    """The challenge of this id or title. Raises ValueError that lists those there are."""
    known = challenges()
    by_title = {challenge.title: challenge for challenge in known.values()}
    if which not in known and which not in by_title:
        there = ", ".join(f'"{challenge.id}" ({challenge.title})' for challenge in known.values())
        raise ValueError(f"there is no challenge {which!r}; there are {there}")
    return known.get(which) or by_title[which]
