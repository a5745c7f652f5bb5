"""Explorers of GPU kernels: the kernel tuner with a clickable map of tiles, and the roofline explorer."""

from __future__ import annotations

from typing import Any

from ....costs.kernels import KERNELS, SLICED
from ....gpu import CHIPS
from ..draw.text import in_html
from ..figures import kernel_tuner, roofline
from ..models.kernel_tuner import (
    START,
    START_SLICE,
    KernelTunerState,
    best_tile,
    kernel_tuner_words,
    record_of,
    record_rows,
    shipped_tile,
    start_tile,
    tile_label,
)
from ..models.roofline_explorer import RooflineState, records_of
from .controls import Control, button, by_name, choice, slider
from .explorer import Explorer, Grab, Shown, explorer

CHIP = choice("arch", "chip", {f"{chip.name} (sm_{arch})": arch for arch, chip in CHIPS.items()})
MASK = choice("causal", "mask", {"causal": True, "no mask": False})


# ---------------------------------------------------------------------- one tile of one kernel
TUNER_CONTROLS = (
    choice("kernel", "kernel", KERNELS),
    CHIP,
    slider("d", "d (head dimension)", (64, 128, 192, 256, 320, 512, 768, 1024)),
    slider("BM", "BM (queries)", (16, 32, 64, 128, 256)),
    slider("BN", "BN (keys)", (16, 32, 64, 128, 256)),
    slider("BD", "BD (slice of d)", (16, 32, 64, 128, 256), START_SLICE),
    slider("warps", "warps", (1, 2, 4, 8, 16)),
    slider("N", "N (sequence length)", (2**k for k in range(7, 17))),
    choice("itemsize", "numbers", {"16 bit": 2, "32 bit": 4}),
    MASK,
    button("shipped", "Shipped tile", "Set the tile that is shipped for these sizes"),
    button("best", "Least traffic", "Set the recorded tile that fits and has the least traffic"),
)


@explorer
class KernelTuner(Explorer):
    """Interactive view of one tile of a Triton kernel: footprint, recorded resources and traffic.

    Click a tile in the map of recorded tiles or use the controls arch, kernel, itemsize, causal, d, BM, BN,
    BD, warps, N, shipped and best. Defaults of BM, BN, BD and warps: those of the shipped tile. Raises the
    errors of `kernel_tuner_picture`.
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
        self._rows = record_rows(self._record)
        plain = KernelTunerState(
            arch, d, itemsize, kernel, START, START, START_SLICE if kernel in SLICED else None
        )
        ships = start_tile(plain._replace(N=N, causal=causal).checked(), self._rows)
        given: dict[str, Any] = {"BM": BM, "BN": BN, "BD": BD, "warps": warps}
        state = ships._replace(**{name: one for name, one in given.items() if one is not None})
        super().__init__(state.checked(), TUNER_CONTROLS)

    def shown(self) -> Shown:
        words = kernel_tuner_words(self.state, self._record, self.note)
        tile_map = Grab(*kernel_tuner.map_of(self._rows, self.state).box)
        return Shown(kernel_tuner.draw_kernel_tuner(self.state, self._record), words, grabs=[tile_map])

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind != "up":
            BM, BN = kernel_tuner.map_of(self._rows, self.state).tile_at(x, y)
            self._place(BM=BM, BN=BN)
            self.note = ""

    def _after(self, name: str) -> None:
        if name == "kernel":
            self._place(**start_tile(self.state, self._rows)._asdict())

    def _fit(self) -> None:
        self.controls["BD"].disabled = self.value("kernel") not in SLICED

    def _shipped(self) -> str:
        return self._take(shipped_tile(self._rows, self.state), "Shipped tile of this kernel")

    def _best(self) -> str:
        return self._take(best_tile(self._rows, self.state), "Least traffic of the recorded tiles that fit")

    def _take(self, found: KernelTunerState | None, said: str) -> str:
        if found is None:
            return "No such tile is recorded for this kernel, chip, d, element size and mask."
        self._place(**found._asdict())
        return f"{said}: {tile_label(found)}."


# ---------------------------------------------------------------------- roofline
SHARES = {"1/64": 1 / 64, "1/32": 1 / 32, "1/16": 1 / 16, "1/8": 1 / 8, "1/4": 1 / 4, "1/2": 1 / 2, "1": 1.0}
ROOFLINE_CONTROLS = (
    CHIP,
    slider("N", "N (sequence length)", (2**k for k in range(7, 18))),
    slider("d", "d (head dimension)", (32, 64, 96, 128, 192, 256)),
    slider("H", "H (query heads)", (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)),
    slider("H_kv", "H_kv (key heads)"),
    slider("B", "B (batch size)", (1, 2, 4, 8, 16, 32, 64, 128)),
    Control("slider", "density", "density", SHARES),
    MASK,
)


@explorer
class RooflineExplorer(Explorer):
    """Interactive `roofline_explorer_picture`: four attention passes under the roofline of a chip.

    Controls: arch, causal, N, d, H, H_kv, B and density (of the block mask). The options of H_kv are the
    divisors of H. Raises the errors of `roofline_explorer_picture`.
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
        super().__init__(RooflineState(arch, N, d, H, H_kv, B, causal, density).checked(), ROOFLINE_CONTROLS)

    def shown(self) -> Shown:
        words = in_html([roofline.roofline_explorer_words(self.state, records_of(None))])
        return Shown(roofline.draw_roofline(self.state, records_of(None)), words)

    def _fit(self) -> None:
        H = self.value("H")
        self.controls["H_kv"].offer(by_name(one for one in range(1, H + 1) if H % one == 0))
