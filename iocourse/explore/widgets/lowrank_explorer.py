"""Low-rank attention as an explorer: controls around `low_rank_explorer_picture`, whose R can be dragged."""

from __future__ import annotations

from html import escape
from typing import Any

from ...data import real_heads
from ...lowrank.polynomials import NAMES
from ..draw.text import paragraph
from ..figures.lowrank_explorer import B_at, bound_line, facts_of, picture_of
from ..models.logits import Logits, gaussian_logits, head_logits
from ..models.lowrank_explorer import DEGREES, Facts, covering
from .controls import button, choice, slider
from .explorer import Explorer, Grab, Shown, explorer

ERRORS = {"10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001}
HEADS = {f"head {layer}.{number}": (layer, number) for layer, number in real_heads()}
GAUSSIAN, GIVEN = "Gaussian", "Q and K"
SIGMAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
SIZES = (
    slider("degree", "degree g", DEGREES),
    slider("B", "B (of entries)", (float(f"{2 ** (k / 4):.3g}") for k in range(-12, 13)), free=True),
    slider("n", "n (tokens)", (2**k for k in range(5, 23))),
    slider("M", "M (words)", (2**k for k in range(10, 21))),
    choice("polynomial", "polynomial", NAMES),
)
GAUSSIANS = (
    slider("d", "d (columns)", (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    slider("sigma", "σ (of logits)", SIGMAS),
)
COVER = button("cover", "cover the data", "the smallest B whose R covers the sampled logits")


@explorer
class LowRankExplorer(Explorer):
    """Controls for degree, polynomial, sizes, the entry bound B and the data; errors, words and a verdict.

    Beside Gaussian logits it offers the shipped heads, and Q and K where they are given; d and sigma are
    those of Gaussian logits, other data has its own. The line at R = B²√d can be dragged. Its controls: data,
    polynomial, error, degree, d, n, M, B, sigma, cover. Raises as `low_rank_explorer_picture`.
    """

    words_below = True

    def __init__(
        self,
        degree: int = 3,
        n: int | None = None,
        M: int = 16_384,
        *,
        d: int | None = None,
        polynomial: str = "hermite",
        B: float | None = None,
        error: float = 0.01,
        sigma: float = 0.3,
        head: tuple[int, int] | None = None,
        Q: Any = None,
        K: Any = None,
    ) -> None:
        facts = facts_of(degree, n, M, d, polynomial, B, error, sigma, head, Q, K)
        self._given = facts.data
        at = f"head {head[0]}.{head[1]}" if head else GAUSSIAN if facts.data.drawn else GIVEN
        data = choice("data", "data", list(dict.fromkeys([GAUSSIAN, *HEADS, at])))
        errors = choice("error", "allowed error", ERRORS | {f"{100 * error:.4g} %": error})
        controls = [*SIZES, errors, data, *GAUSSIANS, COVER]
        super().__init__(facts.s, controls, data=at, d=facts.data.d, sigma=sigma)

    @property
    def data(self) -> Logits:
        """The logits of the chosen source."""
        at = self.value("data")
        if at == GAUSSIAN:
            return gaussian_logits(self.value("d"), self.value("sigma"))
        return head_logits(*HEADS[at]) if at in HEADS else self._given

    def shown(self) -> Shown:
        choice, *others = self._facts.verdict  # the choice is in the picture
        line = Grab(*bound_line(self._facts), "ew-resize")
        words = paragraph(map(escape, [*others, self.note]))
        return Shown(picture_of(self._facts), words, f"{choice} {self.note}".rstrip(), [line])

    def _dragged(self, x: float, y: float) -> dict[str, float]:
        return {"B": B_at(self._facts, x)}

    def __repr__(self) -> str:
        return f"{super().__repr__()}: {self.data.name}"

    def _fit(self) -> None:
        self._facts = Facts(self.setting, self.data)  # what it works out serves all that is shown
        for one in GAUSSIANS:
            self.controls[one.name].disabled = self.value("data") != GAUSSIAN

    def _cover(self) -> str:
        self.controls["B"].value = covering(self.data)
        return f"B = {self.value('B'):g} is the smallest whose R covers the sampled logits."
