"""The roofline explorer as an explorer: controls around `roofline_explorer_picture`."""

from __future__ import annotations

from ...gpu import CHIPS
from ..draw.text import in_html
from ..figures.roofline import picture_of, roofline_explorer_words
from ..models.roofline_explorer import Sizes, records_of
from .controls import Control, by_name, choice, slider
from .explorer import Explorer, Shown, explorer

SHARES = {"1/64": 1 / 64, "1/32": 1 / 32, "1/16": 1 / 16, "1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "1": 1.0}
CHIP = choice("arch", "chip", {f"{chip.name} (sm_{arch})": arch for arch, chip in CHIPS.items()})
MASK = choice("causal", "mask", {"causal": True, "no mask": False})
CONTROLS = (
    CHIP,
    slider("N", "N (rows)", (2**k for k in range(7, 18))),
    slider("d", "d (columns)", (32, 64, 96, 128, 192, 256)),
    slider("H", "H (of queries)", (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    slider("H_kv", "H_kv (of keys)"),
    slider("B", "B (batches)", (1, 2, 4, 8, 16, 32, 64, 128)),
    Control("slider", "density", "density", SHARES),
    MASK,
)


@explorer
class RooflineExplorer(Explorer):
    """Sliders for N, d, heads, batches and the density of a block mask, under the roof of a chip.

    Its controls: arch, causal, N, d, H, H_kv, B, density. H_kv offers the divisors of H. Raises as
    `roofline_explorer_picture`.
    """

    def __init__(
        self,
        arch: int = 90,
        N: int = 4096,
        d: int = 128,
        H: int = 32,
        H_kv: int = 8,
        *,
        B: int = 1,
        causal: bool = True,
        density: float = 0.25,
    ) -> None:
        super().__init__(Sizes(arch, N, d, H, H_kv, B, causal, density).checked(), CONTROLS)

    def shown(self) -> Shown:
        words = in_html([roofline_explorer_words(self.setting, records_of(None))])
        return Shown(picture_of(self.setting, records_of(None)), words)

    def _fit(self) -> None:
        H = self.value("H")
        self.controls["H_kv"].offer(by_name(one for one in range(1, H + 1) if H % one == 0))
