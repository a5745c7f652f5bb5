"""Explorers of GPU kernels: one configuration of a kernel, and a table of timed configurations."""

from __future__ import annotations

from ....gpu import CHIPS
from ..figures import kernel_explorer as drawing
from ..models.kernel_explorer import KERNELS, Configuration, fastest, shipped, shipped_records
from .controls import button, choice, slider, tick
from .explorer import Explorer, Grab, Shown, explorer

CHIP = choice("arch", "chip", {f"{chip.name} (sm_{arch})": arch for arch, chip in CHIPS.items()})
SIZES = drawing.SIZES
CONTROLS = (
    choice("kernel", "kernel", KERNELS),
    CHIP,
    choice("d", "d", {str(d): d for d in (64, 128, 256, 512)}),
    choice("causal", "mask", {"no mask": False, "causal": True}),
    slider("BM", "BM (queries)", SIZES),
    slider("BN", "BN (keys)", SIZES),
    slider("warps", "warps", (1, 2, 4, 8, 16)),
    slider("stages", "stages", (1, 2, 3, 4)),
    button("shipped", "Shipped tile", "Set the configuration that dispatch launches"),
    button("fastest", "Fastest recorded", "Set the configuration with the shortest recorded time"),
    slider("N", "N (sequence length)", (2**k for k in range(7, 17))),
    choice("itemsize", "numbers", {"16 bits": 2, "32 bits": 4}),
    tick("narrow", "narrow page", hidden=True),
)


@explorer
class KernelExplorer(Explorer):
    """Interactive `kernel_explorer_picture`: one configuration of one Triton kernel on one chip.

    Click a tile in the map or use the controls kernel, arch, d, causal, BM, BN, warps, stages, N, itemsize,
    shipped and fastest. Another kernel begins with its shipped configuration. Raises the errors of
    `kernel_explorer_picture`.
    """

    beside = True
    resumes = True

    def __init__(
        self,
        arch: int = 90,
        d: int = 64,
        kernel: str = "forward",
        BM: int | None = None,
        BN: int | None = None,
        warps: int | None = None,
        stages: int | None = None,
        *,
        N: int = 4096,
        causal: bool = False,
        itemsize: int = 2,
    ) -> None:
        self._records = shipped_records()
        sizes = {"N": N, "causal": causal, "itemsize": itemsize}
        super().__init__(drawing.start(arch, d, kernel, BM, BN, warps, stages, **sizes), CONTROLS)

    def shown(self) -> Shown:
        s, narrow = self.state, self.value("narrow")
        picture = drawing.draw_kernel_explorer(s, self._records, narrow)
        headline = drawing.kernel_explorer_headline(s, self._records, self.note)
        return Shown(picture, headline, grabs=[Grab(*drawing.map_of(s, narrow).box)])

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind == "down":
            s = self.state
            BM, BN = drawing.map_of(s, self.value("narrow")).tile_at(x, y)
            at = drawing.shown_in_cell(drawing.facts(s, self._records), BM, BN)
            self._place(**(at or s.configuration._replace(BM=BM, BN=BN))._asdict())
            self.note = ""

    def _after(self, name: str) -> None:
        if name == "kernel":
            self._place(**shipped(self.state)._asdict())

    def _shipped(self) -> str:
        return self._take(shipped(self.state), "Launched by dispatch")

    def _fastest(self) -> str:
        found = fastest(drawing.facts(self.state, self._records).found)
        if found is None:
            return "No time is recorded for this kernel, chip, d, mask and element size."
        return self._take(found.at, "Fastest recorded")

    def _take(self, at: Configuration, said: str) -> str:
        self._place(**at._asdict())
        return f"{said}: {at}."


