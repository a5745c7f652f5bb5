"""Open challenges: what a challenge is, and those there are. The best schedule is known for none.

`scoring.py` tries a schedule for one and prints its words; `rolling_rows.py` is the best one known for two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ... import bounds, masks
from ...machine import SlowArray
from ...masks import Mask
from .rolling_rows import rolling_rows


@dataclass(frozen=True)
class Challenge:
    """A problem of which no budget is known: fewer words are better.

    `arrays` are handed over, those of `inputs` each schedule must load; `mask` gives the mask for N tokens
    (None: every query sees every key). Words are those at (N, d, M); `shapes` are the (N, d) at which values
    are tried, with the same M. Where `dry`, nobody can run (N, d) on numbers: words are counted on shapes.
    `unit` are the words of a score of 1, which `per` says in letters. `whole_rows`: what is proved for whole
    rows alone is printed as well.
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
    mask: Callable[[int], Mask | None] = lambda N: None
    dry: bool = False
    whole_rows: bool = False
    known: Callable[..., SlowArray] | None = None
    idea: str = ""

    def score(self, words: int) -> float:
        """Words in the challenge's unit."""
        return words / self.unit(self.N, self.d, self.M)

    def lower_bound(self, **smaller_class: Any) -> tuple[int, str]:
        """The best proved lower bound and its id, for all schedules or a smaller class of them."""
        sizes = (self.pass_, self.N, self.d, self.M)
        return bounds.lower_bound(*sizes, mask=self.mask(self.N), given_weights=False, **smaller_class)

    def options(self, N: int) -> dict[str, Any]:
        """The keyword arguments of a schedule beside its tiles: the mask, where there is one."""
        mask = self.mask(N)
        return {} if mask is None else {"mask": mask}


# The backward pass where M is far above d²: between 12 and 14 times N²d²/M words.
BACKWARD = Challenge(
    id="backward",
    title="backward, between 12 and 14",
    pass_="backward",
    N=2**20,
    d=32,
    M=64 * 32**2,
    shapes=((1, 32), (61, 32), (1400, 32), (130, 21)),
    unit=lambda N, d, M: N**2 * d**2 / M,
    per="N²d²/M",
    arrays=("Q", "K", "V", "O", "dO", "LSE"),
    inputs=("Q", "K", "V", "dO"),
    dry=True,
    whole_rows=True,
)
# The forward pass at M = d²: schedules of whole rows meet there at 4N² words, and about 2N² are proved.
FORWARD = Challenge(
    id="forward",
    title="forward at M = d²",
    pass_="forward",
    N=2**16,
    d=64,
    M=64**2,
    shapes=((1, 64), (61, 64), (130, 64), (75, 45)),
    unit=lambda N, d, M: N**2 * d**2 / M,
    per="N²d²/M",
    dry=True,
)
# Random sparsity: of 64 × 64 tiles a tenth is seen, here and there, in whatever order one goes.
# ORDER of the 64 rows of tiles: what simulated annealing found, perhaps not the best.
ORDER = (
    39, 47, 10, 38, 42, 31, 60, 45, 40, 21, 0, 57, 18, 20, 34, 36, 23, 28, 25, 46, 51, 13,
    35, 5, 3, 52, 27, 32, 56, 24, 9, 44, 16, 19, 8, 6, 17, 48, 63, 29, 58, 43, 1, 37,
    55, 61, 59, 14, 22, 15, 7, 11, 50, 62, 26, 54, 49, 12, 30, 41, 33, 2, 53, 4,
)  # fmt: skip
SPARSITY = Challenge(
    id="sparsity",
    title="random sparsity",
    pass_="forward",
    N=2048,
    d=32,
    M=16 * 32**2,
    shapes=((1, 32), (300, 32), (777, 32), (400, 21)),
    unit=lambda N, d, M: N * d,
    per="Nd",
    mask=lambda N: masks.random(N, 32, 0.1, seed=8),
    known=partial(rolling_rows, B=32, rows=7, kept=23, order=ORDER),
    idea="rows of tiles come and go one at a time",
)
# A sliding window of 256 keys to either side, whose ring of keys and values is twice as large as fast memory.
WINDOW = Challenge(
    id="window",
    title="a window that does not fit",
    pass_="forward",
    N=2048,
    d=32,
    M=16 * 32**2,
    shapes=((1, 32), (300, 32), (777, 32), (400, 21)),
    unit=lambda N, d, M: N * d,
    per="Nd",
    mask=lambda N: masks.Window(N, 256),
    known=partial(rolling_rows, B=26, rows=7, kept=66),
    idea="queries come and go in small blocks, one at a time",
)
CHALLENGES: tuple[Challenge, ...] = (BACKWARD, FORWARD, SPARSITY, WINDOW)


def find(which: str) -> Challenge:
    """The challenge of this id or title. Raises ValueError that lists those there are."""
    found = next((one for one in CHALLENGES if which in (one.id, one.title)), None)
    if found is None:
        there = ", ".join(f'"{one.id}" ({one.title})' for one in CHALLENGES)
        raise ValueError(f"there is no challenge {which!r}; there are {there}")
    return found
