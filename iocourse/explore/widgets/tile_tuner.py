"""The tile tuner as a widget: a thin shell of sliders around `tile_tuner_picture`."""

from __future__ import annotations

from typing import Any

from ... import schedules
from ..draw.picture import Picture
from ..facts.chosen import ROW_TILED
from ..facts.tile_tuner import Setting, best_tiles, first_tiles, play, tiles_of
from ..figures.tile_tuner import tile_tuner_picture, tile_tuner_words
from .explorer import Explorer, explorer, move_to, size_slider, wide, without_widgets

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
    """The widget. `setting` is where its controls stand, `picture` what it shows.

    Controls are plain ipywidgets in `controls`, by name (N, d, M, Br, Bc, schedule, best, step, play);
    `words` and `view` are the HTML widgets they write to, `box` holds them all.
    """

    def __init__(self, setting: Setting) -> None:
        import ipywidgets as widgets

        self._quiet = True
        self.note = ""
        self.words, self.view = widgets.HTML(), widgets.HTML()
        self.controls = {name: size_slider(*SIZES[name], getattr(setting, name)) for name in SIZES}
        self.controls |= _other_controls(setting)
        for name in (*SIZES, "schedule", "step"):
            self.controls[name].observe(self._changed, "value")
        self.controls["best"].on_click(self._best)
        self.box = _arranged(self.controls, self.words, self.view)
        self._quiet = False
        self._draw()

    @property
    def setting(self) -> Setting:
        """Where the controls stand."""
        return Setting(*(self.controls[name].value for name in Setting._fields))

    @property
    def picture(self) -> Picture:
        """What is shown now."""
        return tile_tuner_picture(*self.setting)

    def __repr__(self) -> str:
        stands = ", ".join(f"{name}={value!r}" for name, value in self.setting._asdict().items())
        return f"TileTuner({stands})"

    def _changed(self, change: Any) -> None:
        if self._quiet:
            return
        if change["owner"] is not self.controls["step"]:
            self.note = ""
        self._draw()

    def _draw(self) -> None:
        self._fit_step()
        setting = self.setting
        names = schedules.get(setting.schedule).tile_names
        for name in ("Br", "Bc"):
            self.controls[name].disabled = name not in names
        self.words.value = tile_tuner_words(setting, self.note)
        self.view.value = tile_tuner_picture(*setting).to_svg()

    def _fit_step(self) -> None:
        """The player ends where the moves end."""
        last = len(play(self.setting._replace(step=0)).moves) - 1
        step, player = self.controls["step"], self.controls["play"]
        if step.max != last:
            with self._together():
                step.max = player.max = last  # a value beyond it moves there

    def _best(self, _button: Any) -> None:
        N, d, M, _, _, name, _ = self.setting
        best = best_tiles(name, N, d, M)
        if best is None:
            least = schedules.get(name).smallest_M(N, d)
            self.note = f"No tile of {name} fits M = {M:,}: the smallest M that works is {least:,} words."
        else:
            with self._together():
                for slider, value in zip(("Br", "Bc"), best, strict=True):
                    move_to(self.controls[slider], value)
            sizes = ", ".join(f"{tile} = {size:,}" for tile, size in tiles_of(self.setting).items())
            self.note = f"Fewest words for M = {M:,}: {sizes}."
        self._draw()


def _other_controls(setting: Setting) -> dict[str, Any]:
    import ipywidgets as widgets

    step = widgets.IntSlider(
        value=0, min=0, max=1, description="move", readout=False, **wide("600px", "60px")
    )
    player = widgets.Play(value=0, min=0, max=1, interval=300, description="play the moves")
    widgets.jslink((player, "value"), (step, "value"))
    return {
        "schedule": widgets.Dropdown(
            options=ROW_TILED, value=setting.schedule, description="schedule", **wide("300px")
        ),
        "best": widgets.Button(
            description="best tiles for M", tooltip="Br and Bc that move the fewest words"
        ),
        "step": step,
        "play": player,
    }


def _arranged(controls: dict[str, Any], words: Any, view: Any) -> Any:
    import ipywidgets as widgets

    left = widgets.VBox([controls[name] for name in ("schedule", "N", "d", "M")])
    right = widgets.VBox([controls[name] for name in ("best", "Br", "Bc")])
    wrap = widgets.Layout(flex_flow="row wrap")
    sizes = widgets.HBox([left, right], layout=wrap)
    player = widgets.HBox([controls["play"], controls["step"]], layout=wrap)
    return widgets.VBox([sizes, player, words, view])
