"""The low-rank explorer as a widget: a thin shell of controls around `low_rank_explorer_picture`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...data import real_heads
from ...lowrank.polynomials import NAMES
from ..draw.picture import Picture
from ..facts.logits import Logits, gaussian_logits, head_logits
from ..facts.lowrank_explorer import DEGREES, Facts, Setting, covering
from ..figures.lowrank_explorer import facts_of, picture_of
from .explorer import Explorer, choice, explorer, in_html, steps_slider, wide, without_widgets, wrapped

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
    """The widget. `setting` is where its controls stand, `data` whose logits it shows, `picture` how.

    Controls are plain ipywidgets in `controls`, by name (data, polynomial, error, degree, d, n, M, B, sigma,
    cover); `words` and `view` are the HTML widgets they write to, `box` holds them all. d and sigma are those
    of Gaussian logits; other data has its own.
    """

    def __init__(self, facts: Facts, sigma: float, head: tuple[int, int] | None) -> None:
        import ipywidgets as widgets

        given = head is None and not facts.data.drawn
        self._sources: dict[str, tuple[int, int] | None] = {GAUSSIAN: None}
        self._sources |= {f"head {layer}.{number}": (layer, number) for layer, number in real_heads()}
        self._given = facts.data if given else None
        names = [*self._sources, *([GIVEN] if given else [])]
        at = GIVEN if given else GAUSSIAN if head is None else f"head {head[0]}.{head[1]}"
        self.words, self.view = widgets.HTML(), widgets.HTML()
        asked = facts.s.error
        self._errors = ERRORS if asked in ERRORS.values() else {f"{100 * asked:.4g} %": asked} | ERRORS
        self.controls = _controls(facts, sigma, names, at, self._errors)
        for name, control in self.controls.items():
            if name != "cover":
                control.observe(self._changed, "value")
        self.controls["cover"].on_click(self._cover)
        self.box = _arranged(self.controls, self.words, self.view)
        self._draw()

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
        """What is shown now."""
        return picture_of(Facts(self.setting, self.data))

    def __repr__(self) -> str:
        stands = ", ".join(f"{name}={value!r}" for name, value in self.setting._asdict().items())
        return f"LowRankExplorer({stands}, data={self.data.name!r})"

    def _changed(self, change: Any) -> None:
        if not self._quiet:
            self._draw()

    def _draw(self) -> None:
        gaussian = self.controls["data"].value == GAUSSIAN
        for name in ("d", "sigma"):
            self.controls[name].disabled = not gaussian
        facts = Facts(self.setting, self.data)
        self.words.value = in_html(facts.verdict)
        self.view.value = picture_of(facts).to_svg()

    def _cover(self, _button: Any) -> None:
        """The smallest B whose R covers the sampled logits."""
        slider, B = self.controls["B"], covering(self.data)
        with self._together():
            slider.options = _options({*(value for _, value in slider.options), B})
            slider.value = B
        self._draw()


def _controls(f: Facts, sigma: float, names: list[str], at: str, errors: dict[str, float]) -> dict[str, Any]:
    import ipywidgets as widgets

    stands = {"d": f.data.d, "degree": f.s.degree, "n": f.s.n, "M": f.s.M}
    return {
        "data": choice(names, at, "data"),
        "polynomial": choice(NAMES, f.s.polynomial, "polynomial"),
        "error": choice(
            errors, next(name for name, one in errors.items() if one == f.s.error), "allowed error"
        ),
        **{name: steps_slider(label, values, stands[name]) for name, (label, values) in SLIDERS.items()},
        "B": _fractions("B", f.s.B),
        "sigma": _fractions("sigma", sigma),
        "cover": widgets.Button(
            description="cover the data", tooltip="the smallest B whose R covers the sampled logits"
        ),
    }


def _fractions(name: str, value: float) -> Any:
    import ipywidgets as widgets

    label, values = FRACTIONS[name]
    return widgets.SelectionSlider(
        options=_options({*values, value}), value=value, description=label, **wide("430px")
    )


def _options(values: Iterable[float]) -> list[tuple[str, float]]:
    return [(f"{value:g}", value) for value in sorted(values)]


def _arranged(controls: dict[str, Any], words: Any, view: Any) -> Any:
    import ipywidgets as widgets

    choices = [controls[name] for name in ("data", "polynomial", "error")]
    sliders = wrapped(controls[name] for name in (*SLIDERS, *FRACTIONS, "cover"))
    return widgets.VBox([*choices, sliders, words, view])
