"""The tile tuner as a widget: a thin shell of sliders around `tile_tuner_picture`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import schedules
from ..draw.picture import Picture
from ..facts.chosen import ROW_TILED
from ..facts.tile_tuner import Setting, best_tiles, first_tiles, play, tiles_of
from ..figures.tile_tuner import tile_tuner_picture, tile_tuner_words
from . import controls as ui
from .explorer import Explorer, explorer, without_widgets

SIZES = {
    "N": ("N (rows)", 1, 2**16, 2),
    "d": ("d (columns)", 1, 2**8, 2),
    "M": ("M (words)", 2**4, 2**20, 4),
    "Br": ("Br (rows of Q)", 1, 2**13, 4),
    "Bc": ("Bc (rows of K)", 1, 2**13, 4),
}


@explorer
def tile_tuner(
    N: int = 1024,
    d: int = 64,
    M: int = 16384,
    schedule: str = "flash2",
    Br: int | None = None,
    Bc: int | None = None,
) -> TileTuner | Picture:
    """Sliders for N, d, M, Br and Bc; live words, footprint against M, and a step player of the first moves.

    Without Br and Bc it starts from the largest square tile of a power of two that fits. Where the
    environment variable IOCOURSE_WIDGETS is 0: the picture alone. Raises as `tile_tuner_picture`.
    """
    setting = Setting(N, d, M, 1 if Br is None else Br, 1 if Bc is None else Bc, schedule).checked()
    start = first_tiles(schedule, N, d, M)
    setting = setting._replace(Br=Br or start[0], Bc=Bc or start[1])
    if without_widgets():
        return tile_tuner_picture(*setting)
    return TileTuner(setting)


class TileTuner(Explorer):
    """The widget; its controls: N, d, M, Br, Bc, schedule, best, step, play."""

    def __init__(self, setting: Setting) -> None:
        sizes = {name: ui.size_slider(*SIZES[name], getattr(setting, name)) for name in SIZES}
        super().__init__(sizes | _other_controls(setting))

    @property
    def setting(self) -> Setting:
        """Where the controls stand."""
        return Setting(*self._values(*Setting._fields))

    @property
    def picture(self) -> Picture:
        return tile_tuner_picture(*self.setting)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"best": self._best}

    def _after(self, name: str) -> None:
        if name != "step":
            self.note = ""

    def _fit(self) -> None:
        self._fit_step()
        names = schedules.get(self.setting.schedule).tile_names
        for name in ("Br", "Bc"):
            self.controls[name].disabled = name not in names

    def _said(self) -> str:
        return tile_tuner_words(self.setting, self.note)

    def _arranged(self) -> list[Any]:
        left, right = (
            ui.column(self._named("schedule", "N", "d", "M")),
            ui.column(self._named("best", "Br", "Bc")),
        )
        return [ui.wrapped([left, right]), ui.wrapped(self._named("play", "step")), self.words, self.view]

    def _fit_step(self) -> None:
        """The player ends where the moves end."""
        last = len(play(self.setting._replace(step=0)).moves) - 1
        step, player = self.controls["step"], self.controls["play"]
        step.max = player.max = last  # a value beyond it moves there

    def _best(self) -> None:
        N, d, M, _, _, name, _ = self.setting
        best = best_tiles(name, N, d, M)
        if best is None:
            least = schedules.get(name).smallest_M(N, d)
            self.note = f"No tile of {name} fits M = {M:,}: the smallest M that works is {least:,} words."
        else:
            with self._together():
                for slider, value in zip(("Br", "Bc"), best, strict=True):
                    ui.move_to(self.controls[slider], value)
            sizes = ", ".join(f"{tile} = {size:,}" for tile, size in tiles_of(self.setting).items())
            self.note = f"Fewest words for M = {M:,}: {sizes}."
        self._draw()


def _other_controls(setting: Setting) -> dict[str, Any]:
    import ipywidgets as widgets

    schedule = widgets.Dropdown(
        options=ROW_TILED, value=setting.schedule, description="schedule", **ui.wide("300px")
    )
    best = ui.button("best tiles for M", "Br and Bc that move the fewest words")
    return {"schedule": schedule, "best": best, **ui.player(300, readout=False, **ui.wide("600px", "60px"))}
