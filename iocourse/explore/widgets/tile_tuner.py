"""The tile tuner as an explorer: controls around `tile_tuner_picture`, whose tile can be dragged."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ... import schedules
from ..draw.picture import Picture
from ..facts.chosen import ROW_TILED
from ..facts.tile_tuner import Setting, best_tiles, first_at_work, first_tiles, play, tiles_of
from ..figures.tile_tuner import plane_of, tile_tuner_picture, tile_tuner_words
from .explorer import Explorer, Grab, explorer, without_widgets
from .panel import button, choice, moves, player, size_slider

SIZES = {
    "N": ("N (rows)", 1, 2**16, 2),
    "d": ("d (columns)", 1, 2**8, 2),
    "M": ("M (words)", 2**4, 2**20, 4),
    "Br": ("Br (rows of Q)", 1, 2**13, 4),
    "Bc": ("Bc (rows of K)", 1, 2**13, 4),
}
REACH = 14  # pixels around the corner where it can be taken hold of


@explorer
def tile_tuner(
    N: int = 1024,
    d: int = 64,
    M: int = 16384,
    schedule: str = "flash2",
    Br: int | None = None,
    Bc: int | None = None,
) -> TileTuner | Picture:
    """Drag a tile, or move N, d, M, Br, Bc; live words, footprint against M, and a player of the moves.

    Without Br and Bc it starts from the largest square tile of a power of two that fits. Where there are no
    widgets: the picture alone. Raises as `tile_tuner_picture`.
    """
    setting = Setting(N, d, M, 1 if Br is None else Br, 1 if Bc is None else Bc, schedule).checked()
    start = first_tiles(schedule, N, d, M)
    setting = setting._replace(Br=Br or start[0], Bc=Bc or start[1])
    setting = setting._replace(step=first_at_work(setting))
    return tile_tuner_picture(*setting) if without_widgets() else TileTuner(setting)


class TileTuner(Explorer):
    """The explorer; its controls: schedule, N, d, M, Br, Bc, best, step. The tile's corner can be dragged."""

    _held: tuple[float, float] | None = None  # from the pointer to the corner that it took hold of

    def __init__(self, setting: Setting) -> None:
        sizes = [size_slider(name, *SIZES[name], getattr(setting, name)) for name in SIZES]
        best = button("best", "best tiles for M", "Br and Bc that move the fewest words")
        schedule = choice("schedule", "schedule", ROW_TILED, setting.schedule)
        super().__init__([player(300, setting.step, setting.step), *sizes, schedule, best])

    @property
    def setting(self) -> Setting:
        """Where the controls stand."""
        return Setting(*self._values(*Setting._fields))

    @property
    def picture(self) -> Picture:
        return tile_tuner_picture(*self.setting)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"best": self._best}

    def grabs(self) -> Iterable[Grab]:
        x, y = plane_of(self.setting).corner(self.setting)
        return [Grab(x - REACH, y - REACH, 2 * REACH, 2 * REACH, "nwse-resize")]

    def _pointed(self, kind: str, x: float, y: float) -> None:
        if kind == "down":
            corner = plane_of(self.setting).corner(self.setting)
            self._held = corner[0] - x, corner[1] - y
        elif self._held and kind == "move":
            self._place(plane_of(self.setting).tile_at((x + self._held[0], y + self._held[1])))
            self.note = ""
        elif kind == "up":
            self._held = None

    def _place(self, tile: tuple[int, int]) -> None:
        for name, value in zip(("Br", "Bc"), tile, strict=True):
            self.controls[name].move_to(min(value, SIZES[name][2]))

    def _after(self, name: str) -> None:
        if name != "step":
            self.note = ""

    def _fit(self) -> None:
        """The player ends where the moves end."""
        step, played = self.controls["step"], play(self.setting)
        step.offered = moves(len(played.moves) - 1, played.first + 1)
        step.value = min(step.value, len(played.moves) - 1)

    def _said(self) -> str:
        return tile_tuner_words(self.setting, self.note)

    def _best(self) -> None:
        N, d, M, _, _, name, _ = self.setting
        best = best_tiles(name, N, d, M)
        if best is None:
            least = schedules.get(name).smallest_M(N, d)
            self.note = f"No tile of {name} fits M = {M:,}: the smallest M that works is {least:,} words."
        else:
            self._place(best)
            sizes = ", ".join(f"{tile} = {size:,}" for tile, size in tiles_of(self.setting).items())
            self.note = f"Fewest words for M = {M:,}: {sizes}."
