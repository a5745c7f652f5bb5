"""Explorers of low-rank attention: errors and traffic with a draggable R, and the table of lesson 17b."""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple

from ....data import real_heads
from ....data.records import load_record
from ....lowrank.polynomials import NAMES
from ..draw.text import in_html, paragraph
from ..figures.lowrank_explorer import B_at, bound_line, draw_lowrank_explorer, facts_of
from ..figures.lowrank_results import lowrank_times, lowrank_times_words
from ..models.lowrank_explorer import (
    DEGREES,
    Facts,
    Logits,
    gaussian_logits,
    head_logits,
    smallest_covering_B,
)
from ..models.lowrank_record import compared, degrees, sizes, tokens
from .controls import button, by_name, choice, slider
from .explorer import Explorer, Grab, Shown, explorer

# ---------------------------------------------------------------------- errors, traffic, recommendation
ERRORS = {"10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001}
HEADS = {f"head {layer}.{number}": (layer, number) for layer, number in real_heads()}
GAUSSIAN, GIVEN = "Gaussian", "Q and K"
SIGMAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
SIZES = (
    slider("degree", "degree g", DEGREES),
    slider("B", "B (bound on entries)", (float(f"{2 ** (k / 4):.3g}") for k in range(-12, 13)), free=True),
    slider("n", "n (tokens)", (2**k for k in range(5, 23))),
    slider("M", "M (words of fast memory)", (2**k for k in range(10, 21))),
    choice("polynomial", "polynomial", NAMES),
)
GAUSSIANS = (
    slider("d", "d (head dimension)", (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    slider("sigma", "σ (std of logits)", SIGMAS),
)
COVER = button("cover", "Cover the data", "Set B to the smallest value whose R covers the sampled logits")


@explorer
class LowRankExplorer(Explorer):
    """Interactive view of low-rank attention: errors, traffic and a recommendation.

    Data: Gaussian logits (with d and sigma), the shipped heads, and Q and K if given. Drag the line at
    R = B²√d or use the controls data, polynomial, error, degree, d, n, M, B, sigma and cover. Raises the
    errors of `low_rank_explorer_picture`.
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
        self._drawn: dict[str, float] = {"d": facts.data.d, "sigma": sigma}
        super().__init__(facts.s, controls, data=at, **self._drawn)

    @property
    def data(self) -> Logits:
        """The logits of the selected data."""
        at = self.value("data")
        if at == GAUSSIAN:
            return gaussian_logits(int(self._drawn["d"]), self._drawn["sigma"])
        return head_logits(*HEADS[at]) if at in HEADS else self._given

    def shown(self) -> Shown:
        choice, *others = self._facts.verdict  # the first text is in the figure
        line = Grab(*bound_line(self._facts), "ew-resize")
        words = paragraph(map(escape, [*others, self.note]))
        return Shown(draw_lowrank_explorer(self._facts), words, f"{choice} {self.note}".rstrip(), [line])

    def _dragged(self, x: float, y: float) -> dict[str, float]:
        return {"B": B_at(self._facts, x)}

    def __repr__(self) -> str:
        return f"{super().__repr__()}  # {self.data.name}"

    def _after(self, name: str) -> None:
        if name in self._drawn:
            self._drawn[name] = self.value(name)

    def _fit(self) -> None:
        self._facts = Facts(self.state, self.data)  # computed once for figure, text and region
        drawn = self.value("data") == GAUSSIAN
        # Other data have their d and σ: the sliders show them, and return to those of Gaussian logits.
        shown = self._drawn if drawn else {"d": self.data.d, "sigma": float(f"{self.data.std:.3g}")}
        for name, value in shown.items():
            self.controls[name].value, self.controls[name].disabled = value, not drawn

    def _cover(self) -> str:
        self.controls["B"].value = smallest_covering_B(self.data)
        return f"B = {self.value('B'):g} is the smallest whose R covers the sampled logits."


# ---------------------------------------------------------------------- the recorded table
class RecordedRow(NamedTuple):
    """Selected d, degree and number of tokens."""

    d: int
    g: int
    n: int


@explorer
class LowrankTable(Explorer):
    """Interactive view of the shipped record of `python -m tools.bench lowrank`; nothing is measured.

    Controls: row, a pair (d, n), and g, with the degrees recorded there. Without a record it has no controls,
    and the figure names the command that creates one. Raises the errors of `lowrank_times`.
    """

    def __init__(self, d: int = 12, g: int = 3, n: int | None = None) -> None:
        self._record = load_record("lowrank")
        controls = []
        if self._record:
            n = tokens(self._record, d)[0] if n is None else n
            rows = [(d, n) for d in sizes(self._record) for n in sorted(tokens(self._record, d))]
            controls = [
                choice("row", "row", {f"d = {d}, n = {n:,}": (d, n) for d, n in rows}),
                slider("g", "degree g", degrees(self._record, d, n)),
            ]
        super().__init__(RecordedRow(d, g, n or 0), controls, row=(d, n))

    @property
    def state(self) -> RecordedRow:
        """The selected d, degree and n."""
        if not self.controls:
            return RecordedRow(*self._start)
        d, n = self.value("row")
        return RecordedRow(d, self.value("g"), n)

    def shown(self) -> Shown:
        picture = lowrank_times(self._record, *self.state)
        known = self._record and compared(self._record, *self.state)
        words = lowrank_times_words(known, *self.state) if known else picture.alt
        return Shown(picture, in_html([words]))

    def _after(self, name: str) -> None:
        if name == "row":
            d, n = self.value("row")
            self.controls["g"].offer(by_name(degrees(self._record or {}, d, n)))
