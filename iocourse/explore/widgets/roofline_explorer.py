"""The roofline explorer as a widget: a thin shell of sliders around `roofline_explorer_picture`."""

from __future__ import annotations

from typing import Any

from ...gpu import CHIPS
from ..draw.picture import Picture
from ..facts.roofline_explorer import Sizes, records_of
from ..figures.roofline_explorer import picture_of, roofline_explorer_words
from .explorer import (
    Explorer,
    choice,
    explorer,
    in_html,
    options_of,
    steps_slider,
    wide,
    without_widgets,
    wrapped,
)

SLIDERS = {
    "N": ("N (rows)", tuple(2**k for k in range(7, 18))),
    "d": ("d (columns)", (32, 64, 96, 128, 192, 256)),
    "H": ("H (of queries)", (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    "B": ("B (batches)", (1, 2, 4, 8, 16, 32, 64, 128)),
}
SHARES = {"1/64": 1 / 64, "1/32": 1 / 32, "1/16": 1 / 16, "1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "1": 1.0}
MASKS = {"causal": True, "no mask": False}
CHIP_NAMES = {f"{chip.name} (sm_{arch})": arch for arch, chip in CHIPS.items()}


@explorer
def roofline_explorer(
    arch: int = 90,
    N: int = 4096,
    d: int = 128,
    H: int = 32,
    H_kv: int = 8,
    *,
    B: int = 1,
    causal: bool = True,
    density: float = 0.25,
) -> RooflineExplorer | Picture:
    """Sliders for N, d, heads, batches and the density of a block mask, under the roof of a chip.

    Where the environment variable IOCOURSE_WIDGETS is 0: the picture alone. Raises as
    `roofline_explorer_picture`.
    """
    sizes = Sizes(arch, N, d, H, H_kv, B, causal, density).checked()
    if without_widgets():
        return picture_of(sizes, records_of(None))
    return RooflineExplorer(sizes)


class RooflineExplorer(Explorer):
    """The widget. `setting` is where its controls stand, `picture` what it shows.

    Controls are plain ipywidgets in `controls`, by name (arch, mask, N, d, H, H_kv, B, density); `words` and
    `view` are the HTML widgets they write to, `box` holds them all. H_kv offers the divisors of H.
    """

    def __init__(self, sizes: Sizes) -> None:
        import ipywidgets as widgets

        self._records = records_of(None)
        self.words, self.view = widgets.HTML(), widgets.HTML()
        self.controls = _controls(sizes)
        for control in self.controls.values():
            control.observe(self._changed, "value")
        choices = [self.controls["arch"], self.controls["mask"]]
        sliders = wrapped(self.controls[name] for name in ("N", "d", "H", "H_kv", "B", "density"))
        self.box = widgets.VBox([*choices, sliders, self.words, self.view])
        self._draw()

    @property
    def setting(self) -> Sizes:
        """Where the controls stand."""
        at = {name: control.value for name, control in self.controls.items()}
        return Sizes(arch=CHIP_NAMES[at.pop("arch")], causal=MASKS[at.pop("mask")], **at)

    @property
    def picture(self) -> Picture:
        """What is shown now."""
        return picture_of(self.setting, self._records)

    def __repr__(self) -> str:
        stands = ", ".join(f"{name}={value!r}" for name, value in self.setting._asdict().items())
        return f"RooflineExplorer({stands})"

    def _changed(self, change: Any) -> None:
        if self._quiet:
            return
        if change["owner"] is self.controls["H"]:
            self._offer_divisors()
        self._draw()

    def _offer_divisors(self) -> None:
        """H_kv stays where it divides H, else goes to the next smaller number that does."""
        control, found = self.controls["H_kv"], divisors(self.controls["H"].value)
        value = max(one for one in found if one <= control.value)
        with self._together():
            control.options = options_of(found)
            control.value = value

    def _draw(self) -> None:
        setting = self.setting
        self.words.value = in_html(roofline_explorer_words(setting, self._records))
        self.view.value = picture_of(setting, self._records).to_svg()


def divisors(H: int) -> list[int]:
    """The numbers that divide H, from 1 to H."""
    return [one for one in range(1, H + 1) if H % one == 0]


def _controls(s: Sizes) -> dict[str, Any]:
    chip = next(name for name, arch in CHIP_NAMES.items() if arch == s.arch)
    mask = next(name for name, causal in MASKS.items() if causal == s.causal)
    sliders = {
        name: steps_slider(label, values, getattr(s, name)) for name, (label, values) in SLIDERS.items()
    }
    return {
        "arch": choice(CHIP_NAMES, chip, "chip"),
        "mask": choice(MASKS, mask, "mask"),
        **sliders,
        "H_kv": steps_slider("H_kv (of keys)", divisors(s.H), s.H_kv),
        "density": _density_slider(s.density),
    }


def _density_slider(value: float) -> Any:
    import ipywidgets as widgets

    shares = SHARES if value in SHARES.values() else SHARES | {f"{value:g}": value}
    options = sorted(shares.items(), key=lambda option: option[1])
    return widgets.SelectionSlider(options=options, value=value, description="density", **wide("430px"))
