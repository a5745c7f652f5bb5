"""The roofline explorer as an explorer: controls around `roofline_explorer_picture`."""

from __future__ import annotations

from ...gpu import CHIPS
from ..draw.html import in_html
from ..draw.picture import Picture
from ..facts.roofline_explorer import Sizes, records_of
from ..figures.roofline_explorer import picture_of, roofline_explorer_words
from .explorer import Explorer, explorer, without_widgets
from .panel import Control, by_name, choice, slider

SLIDERS = {
    "N": ("N (rows)", tuple(2**k for k in range(7, 18))),
    "d": ("d (columns)", (32, 64, 96, 128, 192, 256)),
    "H": ("H (of queries)", (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    "B": ("B (batches)", (1, 2, 4, 8, 16, 32, 64, 128)),
}
SHARES: dict[str, float] = {
    "1/64": 1 / 64,
    "1/32": 1 / 32,
    "1/16": 1 / 16,
    "1/8": 1 / 8,
    "1/4": 1 / 4,
    "1/2": 1 / 2,
    "1": 1.0,
}
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

    Where there are no widgets: the picture alone. Raises as `roofline_explorer_picture`.
    """
    sizes = Sizes(arch, N, d, H, H_kv, B, causal, density).checked()
    if without_widgets():
        return picture_of(sizes, records_of(None))
    return RooflineExplorer(sizes)


class RooflineExplorer(Explorer):
    """The explorer; its controls: arch, causal, N, d, H, H_kv, B, density. H_kv offers the divisors of H."""

    def __init__(self, sizes: Sizes) -> None:
        self._records = records_of(None)
        super().__init__(_controls(sizes))

    @property
    def setting(self) -> Sizes:
        """Where the controls stand."""
        return Sizes(*self._values(*Sizes._fields))

    @property
    def picture(self) -> Picture:
        return picture_of(self.setting, self._records)

    def _after(self, name: str) -> None:
        if name == "H":
            self._offer_divisors()

    def _said(self) -> str:
        return in_html([roofline_explorer_words(self.setting, self._records)])

    def _offer_divisors(self) -> None:
        """H_kv stays where it divides H, else goes to the next smaller number that does."""
        control, found = self.controls["H_kv"], divisors(self.value("H"))
        control.offered = by_name(found)
        control.value = max(one for one in found if one <= control.value)


def divisors(H: int) -> list[int]:
    """The numbers that divide H, from 1 to H."""
    return [one for one in range(1, H + 1) if H % one == 0]


def _controls(s: Sizes) -> list[Control]:
    sliders = {name: slider(name, *SLIDERS[name], getattr(s, name)) for name in SLIDERS}
    sliders["H_kv"] = slider("H_kv", "H_kv (of keys)", divisors(s.H), s.H_kv)
    shares = SHARES if s.density in SHARES.values() else SHARES | {f"{s.density:g}": s.density}
    shares = dict(sorted(shares.items(), key=lambda one: one[1]))
    return [
        choice("arch", "chip", CHIP_NAMES, s.arch),
        *(sliders[name] for name in ("N", "d", "H", "H_kv", "B")),
        Control("slider", "density", "density", shares, s.density),
        choice("causal", "mask", MASKS, s.causal),
    ]
