"""The low-rank explorer as a widget: a thin shell of controls around `low_rank_explorer_picture`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...data import real_heads
from ...lowrank.polynomials import NAMES
from ..draw.html import in_html
from ..draw.picture import Picture
from ..facts.logits import Logits, gaussian_logits, head_logits
from ..facts.lowrank_explorer import DEGREES, Facts, Setting, covering
from ..figures.lowrank_explorer import facts_of, picture_of
from . import controls as ui
from .explorer import Explorer, explorer, without_widgets

SLIDERS = {
    "degree": ("degree g", DEGREES),
    "d": ("d (columns)", (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    "n": ("n (tokens)", tuple(2**k for k in range(5, 23))),
    "M": ("M (words)", tuple(2**k for k in range(10, 21))),
}
FRACTIONS = {
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

    Beside Gaussian logits it offers the shipped heads, and Q and K where they are given. Where the
    environment variable IOCOURSE_WIDGETS is 0: the picture alone. Raises as `low_rank_explorer_picture`.
    """
    facts = facts_of(degree, n, M, d, polynomial, B, error, sigma, head, Q, K)
    if without_widgets():
        return picture_of(facts)
    return LowRankExplorer(facts, sigma, head)


class LowRankExplorer(Explorer):
    """The widget; its controls: data, polynomial, error, degree, d, n, M, B, sigma, cover.

    `data` are the logits it shows; d and sigma are those of Gaussian logits, other data has its own.
    """

    def __init__(self, facts: Facts, sigma: float, head: tuple[int, int] | None) -> None:
        self._given = facts.data if head is None and not facts.data.drawn else None
        self._sources: dict[str, tuple[int, int] | None] = {GAUSSIAN: None}
        self._sources |= {f"head {layer}.{number}": (layer, number) for layer, number in real_heads()}
        names = [*self._sources, *([GIVEN] if self._given else [])]
        at = GIVEN if self._given else ui.key_of(self._sources, head)
        asked = facts.s.error
        self._errors = ERRORS if asked in ERRORS.values() else {f"{100 * asked:.4g} %": asked} | ERRORS
        super().__init__(_controls(facts, sigma, names, at, self._errors))

    @property
    def setting(self) -> Setting:
        """Where the controls stand."""
        at = {name: self.controls[name].value for name in Setting._fields}
        return Setting(**at | {"error": self._errors[at["error"]]})

    @property
    def data(self) -> Logits:
        """The logits of the chosen source."""
        at = self.controls["data"].value
        if at == GIVEN and self._given is not None:
            return self._given
        head = self._sources[at]
        if head is not None:
            return head_logits(*head)
        return gaussian_logits(self.controls["d"].value, self.controls["sigma"].value)

    @property
    def picture(self) -> Picture:
        return picture_of(self._facts)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"cover": self._cover}

    def _stands(self) -> dict[str, Any]:
        return self.setting._asdict() | {"data": self.data.name}

    def _fit(self) -> None:
        self._facts = Facts(self.setting, self.data)  # what it works out serves the words and the picture
        for control in self._named("d", "sigma"):
            control.disabled = self.controls["data"].value != GAUSSIAN

    def _said(self) -> str:
        return in_html(self._facts.verdict)

    def _arranged(self) -> list[Any]:
        sliders = ui.wrapped(self._named(*SLIDERS, *FRACTIONS, "cover"))
        return [*self._named("data", "polynomial", "error"), sliders, self.words, self.view]

    def _cover(self) -> None:
        """The smallest B whose R covers the sampled logits."""
        slider, B = self.controls["B"], covering(self.data)
        with self._together():
            slider.options = _options({*(value for _, value in slider.options), B})
            slider.value = B
        self._draw()


def _controls(f: Facts, sigma: float, names: list[str], at: str, errors: dict[str, float]) -> dict[str, Any]:
    stands = {"d": f.data.d, "degree": f.s.degree, "n": f.s.n, "M": f.s.M}
    return {
        "data": ui.choice(names, at, "data"),
        "polynomial": ui.choice(NAMES, f.s.polynomial, "polynomial"),
        "error": ui.choice(errors, ui.key_of(errors, f.s.error), "allowed error"),
        **{name: ui.steps_slider(*slider, stands[name]) for name, slider in SLIDERS.items()},
        "B": _fractions("B", f.s.B),
        "sigma": _fractions("sigma", sigma),
        "cover": ui.button("cover the data", "the smallest B whose R covers the sampled logits"),
    }


def _fractions(name: str, value: float) -> Any:
    label, values = FRACTIONS[name]
    return ui.options_slider(label, _options({*values, value}), value)


def _options(values: Iterable[float]) -> list[tuple[str, float]]:
    return [(f"{value:g}", value) for value in sorted(values)]
