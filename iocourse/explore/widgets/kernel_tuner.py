"""The kernel tuner as an explorer: controls around its picture, whose map of tiles can be touched."""

from __future__ import annotations

from typing import Any

from ...costs.kernels import KERNELS, SLICED
from ..figures.kernel_tuner import map_of, picture_of
from ..models import compiler_reports as tiles
from ..models.compiler_reports import START, START_SLICE, Setting, record_of, rows_of
from ..models.kernel_tuner import kernel_tuner_words, sides
from .controls import button, choice, slider
from .explorer import Explorer, Grab, Shown, explorer
from .roofline_explorer import CHIP, MASK

CONTROLS = (
    choice("kernel", "kernel", KERNELS),
    CHIP,
    slider("d", "d (columns)", (64, 128, 192, 256, 320, 512, 768, 1024)),
    slider("BM", "BM (queries)", (16, 32, 64, 128, 256)),
    slider("BN", "BN (keys)", (16, 32, 64, 128, 256)),
    slider("BD", "BD (slice of d)", (16, 32, 64, 128, 256), START_SLICE),
    slider("warps", "warps", (1, 2, 4, 8, 16)),
    slider("N", "N (rows)", (2**k for k in range(7, 17))),
    choice("itemsize", "numbers", {"16 bit": 2, "32 bit": 4}),
    MASK,
    button("shipped", "shipped tile", "the tile that the kernels ship with here"),
    button("best", "fewest words", "the recorded tile that fits the chip and moves the fewest words"),
)


@explorer
class KernelTuner(Explorer):
    """Controls for chip, kernel, d, tile and warps; live footprint, recorded resources and words moved.

    Where BM, BN, BD or warps is None it starts from the tile that the kernels ship with. A tile can be chosen
    in the map of recorded ones. Its controls: arch, kernel, itemsize, causal, d, BM, BN, BD, warps, N,
    shipped, best. Raises as `kernel_tuner_picture`.
    """

    def __init__(
        self,
        arch: int = 90,
        d: int = 128,
        itemsize: int = 2,
        kernel: str = "forward",
        BM: int | None = None,
        BN: int | None = None,
        BD: int | None = None,
        warps: int | None = None,
        *,
        N: int = 4096,
        causal: bool = True,
    ) -> None:
        self._record = record_of(None)
        self._rows = rows_of(self._record)
        plain = Setting(arch, d, itemsize, kernel, START, START, START_SLICE if kernel in SLICED else None)
        ships = tiles.start(plain._replace(N=N, causal=causal).checked(), self._rows)
        given: dict[str, Any] = {"BM": BM, "BN": BN, "BD": BD, "warps": warps}
        setting = ships._replace(**{name: one for name, one in given.items() if one is not None})
        super().__init__(setting.checked(), CONTROLS)

    def shown(self) -> Shown:
        words = kernel_tuner_words(self.setting, self._record, self.note)
        tile_map = Grab(*map_of(self._rows, self.setting).box)
        return Shown(picture_of(self.setting, self._record), words, grabs=[tile_map])

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind != "up":
            BM, BN = map_of(self._rows, self.setting).tile_at(x, y)
            self._place(BM=BM, BN=BN)
            self.note = ""

    def _after(self, name: str) -> None:
        if name == "kernel":
            self._place(**tiles.start(self.setting, self._rows)._asdict())

    def _fit(self) -> None:
        self.controls["BD"].disabled = self.value("kernel") not in SLICED

    def _shipped(self) -> str:
        return self._take(tiles.shipped(self._rows, self.setting), "The tile that the kernels ship with")

    def _best(self) -> str:
        return self._take(tiles.best(self._rows, self.setting), "Fewest words of the recorded tiles that fit")

    def _take(self, found: Setting | None, said: str) -> str:
        if found is None:
            return "No such tile is recorded for this kernel, chip, d, type and mask."
        self._place(**found._asdict())
        return f"{said}: {sides(found)}."
