"""Low-rank attention as an explorer: controls around `low_rank_explorer_picture`, whose R can be dragged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from ...data import real_heads
from ...lowrank.polynomials import NAMES
from ..draw.html import paragraph
from ..draw.picture import Picture
from ..facts.logits import Logits, gaussian_logits, head_logits
from ..facts.lowrank_explorer import DEGREES, Facts, Setting, covering
from ..figures.lowrank_explorer import B_at, bound_line, facts_of, picture_of
from .explorer import Explorer, Grab, explorer, without_widgets
from .panel import Control, button, choice, slider

SLIDERS: dict[str, tuple[str, tuple[float, ...]]] = {
    "degree": ("degree g", tuple(DEGREES)),
    "d": ("d (columns)", (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    "n": ("n (tokens)", tuple(2**k for k in range(5, 23))),
    "M": ("M (words)", tuple(2**k for k in range(10, 21))),
    "B": ("B (of entries)", tuple(float(f"{2 ** (k / 4):.3g}") for k in range(-12, 13))),
    "sigma": ("σ (of logits)", (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)),
}
ERRORS = {"10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001}
GAUSSIAN, GIVEN = "Gaussian", "Q and K"


@explorer
def low_rank_explorer(
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
) -> LowRankExplorer | Picture:
    """Controls for degree, polynomial, sizes, the entry bound B and the data; errors, words and a verdict.

    Beside Gaussian logits it offers the shipped heads, and Q and K where they are given. Where there are no
    widgets: the picture alone. Raises as `low_rank_explorer_picture`.
    """
    facts = facts_of(degree, n, M, d, polynomial, B, error, sigma, head, Q, K)
    if without_widgets():
        return picture_of(facts)
    return LowRankExplorer(facts, sigma, head)


class LowRankExplorer(Explorer):
    """The explorer; its controls: data, polynomial, error, degree, d, n, M, B, sigma, cover.

    `data` are the logits it shows; d and sigma are those of Gaussian logits, other data has its own. The line
    at R = B²√d can be dragged.
    """

    words_below = True

    def __init__(self, facts: Facts, sigma: float, head: tuple[int, int] | None) -> None:
        self._heads = {f"head {layer}.{number}": (layer, number) for layer, number in real_heads()}
        self._given = facts.data if head is None and not facts.data.drawn else None
        names = [GAUSSIAN, *self._heads, *([GIVEN] if self._given else [])]
        at = f"head {head[0]}.{head[1]}" if head else GIVEN if self._given else GAUSSIAN
        super().__init__(_controls(facts, sigma, choice("data", "data", names, at)))

    @property
    def setting(self) -> Setting:
        """Where the controls stand."""
        return Setting(*self._values(*Setting._fields))

    @property
    def data(self) -> Logits:
        """The logits of the chosen source."""
        at = self.value("data")
        if at == GIVEN and self._given is not None:
            return self._given
        return (
            head_logits(*self._heads[at])
            if at in self._heads
            else gaussian_logits(*self._values("d", "sigma"))
        )

    @property
    def picture(self) -> Picture:
        return picture_of(self._facts)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"cover": self._cover}

    def grabs(self) -> Iterable[Grab]:
        return [Grab(*bound_line(self._facts), "ew-resize")]

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind == "move":
            self._bound(B_at(self._facts, x))

    def _stands(self) -> dict[str, Any]:
        return self.setting._asdict() | {"data": self.data.name}

    def _fit(self) -> None:
        self._facts = Facts(self.setting, self.data)  # what it works out serves the words and the picture
        for name in ("d", "sigma"):
            self.controls[name].disabled = self.value("data") != GAUSSIAN

    def _said(self) -> str:
        return paragraph(escape(line) for line in self._facts.verdict[1:])  # the first is in the picture

    def _spoken(self) -> str:
        return self._facts.verdict[0]

    def _cover(self) -> None:
        """The smallest B whose R covers the sampled logits."""
        self.controls["B"].value = covering(self.data)

    def _bound(self, B: float) -> None:
        offered = self.controls["B"].offered.values()
        self.controls["B"].move_to(min(max(B, min(offered)), max(offered)))


def _controls(f: Facts, sigma: float, data: Control) -> list[Control]:
    stands = {"d": f.data.d, "degree": f.s.degree, "n": f.s.n, "M": f.s.M, "B": f.s.B, "sigma": sigma}
    sliders = {name: slider(name, *SLIDERS[name], stands[name]) for name in stands}
    sliders["B"].free = True
    asked = f.s.error
    errors = ERRORS if asked in ERRORS.values() else {f"{100 * asked:.4g} %": asked} | ERRORS
    return [
        *(sliders[name] for name in ("degree", "B", "n", "M")),
        choice("polynomial", "polynomial", NAMES, f.s.polynomial),
        choice("error", "allowed error", errors, asked),
        data,
        *(sliders[name] for name in ("d", "sigma")),
        button("cover", "cover the data", "the smallest B whose R covers the sampled logits"),
    ]
