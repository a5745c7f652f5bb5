"""Open challenges: the `Challenge` class and the list of challenges. No optimal schedule is known for any.

`scoring.py` scores a schedule; `rolling_rows.py` is the best known schedule for two challenges.
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
    """An open problem without a budget: the score is the traffic of a schedule, and less is better.

    Attributes:
        id: short name.
        title: name in reports.
        pass_: "forward" or "backward".
        N, d, M: sequence length, head dimension and words of fast memory for the score.
        shapes: pairs (N, d) at which values are checked, with the same M.
        unit: function of N, d and M that returns the words of a score of 1.
        per: that unit as a formula, such as "N²d²/M".
        arrays: arrays that are passed to the schedule.
        inputs: arrays that a schedule must load completely.
        mask: function that returns the mask for N tokens; None if every query attends to every key.
        dry: the problem is too large for numbers, so words are counted on shapes only.
        whole_rows: also print the lower bound for schedules that move complete rows.
        known: a schedule with its tiles that moves fewer words than any of the library; None if unknown.
        idea: short description of `known`; students see it together with its words.
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
        """Convert words to the challenge's unit."""
        return words / self.unit(self.N, self.d, self.M)

    def lower_bound(self, **smaller_class: Any) -> tuple[int, str]:
        """Return the best proved lower bound in words, and its id, for all schedules or a class of them."""
        sizes = (self.pass_, self.N, self.d, self.M)
        return bounds.lower_bound(*sizes, mask=self.mask(self.N), given_weights=False, **smaller_class)

    def options(self, N: int) -> dict[str, Any]:
        """Return the keyword arguments of a schedule other than tile sizes: the mask, if there is one."""
        mask = self.mask(N)
        return {} if mask is None else {"mask": mask}


# The backward pass for M much larger than d²: the optimum is between 12 and 14 times N²d²/M words.
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
# The forward pass at M = d²: all schedules of complete rows move about 4N² words, and 2N² are proved.
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
# Random sparsity: a tenth of 64 × 64 blocks is not masked, at random positions, so no order is regular.
# ORDER of the 64 rows of blocks: the result of simulated annealing, which may not be optimal.
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
    idea="rows of tiles, loaded and freed one at a time",
)
# A sliding window of 256 keys on each side; its ring buffer of keys and values is twice as large as M.
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
    idea="small query blocks, loaded and freed one at a time",
)
CHALLENGES: tuple[Challenge, ...] = (BACKWARD, FORWARD, SPARSITY, WINDOW)


def find_challenge(which: str) -> Challenge:
    """Return the challenge with this id or title. Raises ValueError, which lists all challenges."""
    found = next((one for one in CHALLENGES if which in (one.id, one.title)), None)
    if found is None:
        there = ", ".join(f'"{one.id}" ({one.title})' for one in CHALLENGES)
        raise ValueError(f"unknown challenge {which!r}. Available challenges: {there}")
    return found
