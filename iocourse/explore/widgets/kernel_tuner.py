"""The kernel tuner as a widget: a thin shell of controls around `kernel_tuner_picture`."""

from __future__ import annotations

from typing import Any

from ...costs.each_kernel import KERNELS, SLICED
from ...gpu import CHIPS
from ..draw.picture import Picture
from ..facts.compiled_tiles import START, START_SLICE, Setting, best, record_of, rows_of, shipped, start
from ..facts.kernel_tuner import kernel_tuner_words, sides
from ..figures.kernel_tuner import picture_of
from .explorer import Explorer, choice, explorer, move_to, steps_slider, without_widgets, wrapped

SLIDERS = {
    "d": ("d (columns)", (64, 128, 192, 256, 320, 512, 768, 1024)),
    "BM": ("BM (queries)", (16, 32, 64, 128, 256)),
    "BN": ("BN (keys)", (16, 32, 64, 128, 256)),
    "BD": ("BD (slice of d)", (16, 32, 64, 128, 256)),
    "warps": ("warps", (1, 2, 4, 8, 16)),
    "N": ("N (rows)", tuple(2**k for k in range(7, 17))),
}
BITS = {"16 bit": 2, "32 bit": 4}
MASKS = {"causal": True, "no mask": False}


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

    Where BM, BN, BD or warps is None it starts from the tile that the kernels ship with. Where the
    environment variable IOCOURSE_WIDGETS is 0: the picture alone. Raises as `kernel_tuner_picture`.
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
    """The widget. `setting` is where its controls stand, `picture` what it shows.

    Controls are plain ipywidgets in `controls`, by name (arch, kernel, bits, mask, d, BM, BN, BD, warps, N,
    shipped, best); `words` and `view` are the HTML widgets they write to, `box` holds them all.
    """

    def __init__(self, setting: Setting) -> None:
        import ipywidgets as widgets

        self.note = ""
        self._record = record_of(None)
        self._rows = rows_of(self._record)
        self.words, self.view = widgets.HTML(), widgets.HTML()
        self.controls = _controls(setting)
        for name in ("arch", "kernel", "bits", "mask", *SLIDERS):
            self.controls[name].observe(self._changed, "value")
        self.controls["shipped"].on_click(self._shipped)
        self.controls["best"].on_click(self._best)
        self.box = _arranged(self.controls, self.words, self.view)
        self._draw()

    @property
    def setting(self) -> Setting:
        """Where the controls stand."""
        at = {name: control.value for name, control in self.controls.items() if hasattr(control, "value")}
        at["BD"] = at["BD"] if at["kernel"] in SLICED else None
        chip, bits, mask = at.pop("arch"), at.pop("bits"), at.pop("mask")
        return Setting(arch=_CHIPS[chip], itemsize=BITS[bits], causal=MASKS[mask], **at)

    @property
    def picture(self) -> Picture:
        """What is shown now."""
        return picture_of(self.setting, self._record)

    def __repr__(self) -> str:
        stands = ", ".join(f"{name}={value!r}" for name, value in self.setting._asdict().items())
        return f"KernelTuner({stands})"

    def _changed(self, change: Any) -> None:
        if self._quiet:
            return
        self.note = ""
        if change["owner"] is self.controls["kernel"]:
            self._place(start(self.setting, self._rows))
        self._draw()

    def _draw(self) -> None:
        setting = self.setting
        self.controls["BD"].disabled = setting.BD is None
        self.words.value = kernel_tuner_words(setting, self._record, self.note)
        self.view.value = picture_of(setting, self._record).to_svg()

    def _place(self, setting: Setting) -> None:
        """Move the tile's controls, without drawing."""
        with self._together():
            for name in ("BM", "BN", "BD", "warps"):
                value = getattr(setting, name)
                if value is not None:
                    move_to(self.controls[name], value)

    def _shipped(self, _button: Any) -> None:
        self._take(shipped(self._rows, self.setting), "The tile that the kernels ship with")

    def _best(self, _button: Any) -> None:
        self._take(best(self._rows, self.setting), "Fewest words of the recorded tiles that fit")

    def _take(self, found: Setting | None, said: str) -> None:
        if found is None:
            self.note = "No such tile is recorded for this kernel, chip, d, type and mask."
        else:
            self.note = f"{said}: {sides(found)}."
            self._place(found)
        self._draw()


_CHIPS = {f"{chip.name} (sm_{arch})": arch for arch, chip in CHIPS.items()}


def _controls(s: Setting) -> dict[str, Any]:
    import ipywidgets as widgets

    chip = next(name for name, arch in _CHIPS.items() if arch == s.arch)
    bits = next(name for name, size in BITS.items() if size == s.itemsize)
    mask = next(name for name, causal in MASKS.items() if causal == s.causal)
    sliders = {
        name: steps_slider(label, values, getattr(s, name) or START_SLICE)
        for name, (label, values) in SLIDERS.items()
    }
    return {
        "arch": choice(_CHIPS, chip, "chip"),
        "kernel": choice(KERNELS, s.kernel, "kernel"),
        "bits": choice(BITS, bits, "numbers"),
        "mask": choice(MASKS, mask, "mask"),
        **sliders,
        "shipped": widgets.Button(
            description="shipped tile", tooltip="the tile that the kernels ship with here"
        ),
        "best": widgets.Button(
            description="fewest words",
            tooltip="the recorded tile that fits the chip and moves the fewest words",
        ),
    }


def _arranged(controls: dict[str, Any], words: Any, view: Any) -> Any:
    import ipywidgets as widgets

    choices = [controls["arch"], controls["kernel"], wrapped(controls[name] for name in ("bits", "mask"))]
    sliders = wrapped(controls[name] for name in SLIDERS)
    buttons = wrapped(controls[name] for name in ("shipped", "best"))
    return widgets.VBox([*choices, sliders, buttons, words, view])
