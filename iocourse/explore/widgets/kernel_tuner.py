"""The kernel tuner as an explorer: controls around its picture, whose map of tiles can be touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...costs.each_kernel import KERNELS, SLICED
from ..draw.picture import Picture
from ..facts.compiled_tiles import START, START_SLICE, Setting, best, record_of, rows_of, shipped, start
from ..facts.kernel_tuner import kernel_tuner_words, sides
from ..figures.kernel_tuner import map_of, picture_of
from .explorer import Explorer, Grab, explorer, without_widgets
from .panel import Control, button, choice, slider
from .roofline_explorer import CHIP_NAMES, MASKS

SLIDERS = {
    "d": ("d (columns)", (64, 128, 192, 256, 320, 512, 768, 1024)),
    "BM": ("BM (queries)", (16, 32, 64, 128, 256)),
    "BN": ("BN (keys)", (16, 32, 64, 128, 256)),
    "BD": ("BD (slice of d)", (16, 32, 64, 128, 256)),
    "warps": ("warps", (1, 2, 4, 8, 16)),
    "N": ("N (rows)", tuple(2**k for k in range(7, 17))),
}
BITS = {"16 bit": 2, "32 bit": 4}


@explorer
def kernel_tuner(
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
) -> KernelTuner | Picture:
    """Controls for chip, kernel, d, tile and warps; live footprint, recorded resources and words moved.

    Where BM, BN, BD or warps is None it starts from the tile that the kernels ship with. Where there are no
    widgets: the picture alone. Raises as `kernel_tuner_picture`.
    """
    rows = rows_of(record_of(None))
    plain = Setting(arch, d, itemsize, kernel, START, START, START_SLICE if kernel in SLICED else None)
    plain = plain._replace(N=N, causal=causal).checked()
    given, ships = {"BM": BM, "BN": BN, "BD": BD, "warps": warps}, start(plain, rows)
    setting = ships.with_tile(
        **{name: getattr(ships, name) if one is None else one for name, one in given.items()}
    )
    setting.checked()
    if without_widgets():
        return picture_of(setting, record_of(None))
    return KernelTuner(setting)


class KernelTuner(Explorer):
    """The explorer; its controls: arch, kernel, itemsize, causal, d, BM, BN, BD, warps, N, shipped, best.

    A tile can be chosen in the map of recorded ones.
    """

    def __init__(self, setting: Setting) -> None:
        self._record = record_of(None)
        self._rows = rows_of(self._record)
        super().__init__(_controls(setting))

    @property
    def setting(self) -> Setting:
        """Where the controls stand."""
        setting = Setting(*self._values(*Setting._fields))
        return setting if setting.kernel in SLICED else setting._replace(BD=None)

    @property
    def picture(self) -> Picture:
        return picture_of(self.setting, self._record)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"shipped": self._shipped, "best": self._best}

    def grabs(self) -> Iterable[Grab]:
        return [Grab(*map_of(self._rows, self.setting).box, "pointer")]

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind != "up":
            BM, BN = map_of(self._rows, self.setting).tile_at(x, y)
            self._place(self.setting._replace(BM=BM, BN=BN))
            self.note = ""

    def _after(self, name: str) -> None:
        self.note = ""
        if name == "kernel":
            self._place(start(self.setting, self._rows))

    def _fit(self) -> None:
        self.controls["BD"].disabled = self.setting.BD is None

    def _said(self) -> str:
        return kernel_tuner_words(self.setting, self._record, self.note)

    def _place(self, setting: Setting) -> None:
        """Move the tile's controls."""
        for name in ("BM", "BN", "BD", "warps"):
            if getattr(setting, name) is not None:
                self.controls[name].value = getattr(setting, name)

    def _shipped(self) -> None:
        self._take(shipped(self._rows, self.setting), "The tile that the kernels ship with")

    def _best(self) -> None:
        self._take(best(self._rows, self.setting), "Fewest words of the recorded tiles that fit")

    def _take(self, found: Setting | None, said: str) -> None:
        if found is None:
            self.note = "No such tile is recorded for this kernel, chip, d, type and mask."
        else:
            self.note = f"{said}: {sides(found)}."
            self._place(found)


def _controls(s: Setting) -> list[Control]:
    return [
        choice("kernel", "kernel", KERNELS, s.kernel),
        choice("arch", "chip", CHIP_NAMES, s.arch),
        *(slider(name, *SLIDERS[name], getattr(s, name) or START_SLICE) for name in SLIDERS),
        choice("itemsize", "numbers", BITS, s.itemsize),
        choice("causal", "mask", MASKS, s.causal),
        button("shipped", "shipped tile", "the tile that the kernels ship with here"),
        button("best", "fewest words", "the recorded tile that fits the chip and moves the fewest words"),
    ]
