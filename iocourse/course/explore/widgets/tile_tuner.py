"""Tile tuner: explorer around `tile_tuner_picture` with a draggable tile."""

from __future__ import annotations

from .... import schedules
from ..figures.tile_tuner import move_in_words, plane_of, tile_tuner_headline, tile_tuner_picture
from ..models.schedule_selection import ROW_TILED
from ..models.tile_tuner import TileTunerState, best_tiles, first_at_work, first_tiles, play, tile_sizes
from .controls import button, choice, player, player_steps, size_slider
from .explorer import Explorer, Grab, Shown, explorer

CONTROLS = (
    player(300),
    size_slider("N", "N (sequence length)", 1, 2**16, 2),
    size_slider("d", "d (head dimension)", 1, 2**8, 2),
    size_slider("M", "M (words of fast memory)", 2**4, 2**20, 4),
    size_slider("Br", "Br (rows per query block)", 1, 2**13, 4),
    size_slider("Bc", "Bc (rows per key block)", 1, 2**13, 4),
    choice("schedule", "schedule", ROW_TILED),
    button("best", "Best tile for M", "Set Br and Bc to the values with the least traffic"),
)
REACH = 14  # pixels around the corner in which it can be dragged


@explorer
class TileTuner(Explorer):
    """Interactive view of one tile size: traffic, memory footprint and a step player.

    Drag the corner of the tile or use the controls schedule, N, d, M, Br, Bc, best and step. Default tile:
    the largest square tile with a power of two as side that fits. Raises the errors of `tile_tuner_picture`.
    """

    def __init__(
        self,
        N: int = 1024,
        d: int = 64,
        M: int = 16384,
        schedule: str = "flash2",
        Br: int | None = None,
        Bc: int | None = None,
    ) -> None:
        state = TileTunerState(N, d, M, 1 if Br is None else Br, 1 if Bc is None else Bc, schedule).checked()
        start = first_tiles(schedule, N, d, M)
        state = state._replace(Br=Br or start[0], Bc=Bc or start[1])
        super().__init__(state._replace(step=first_at_work(state)), CONTROLS)

    def shown(self) -> Shown:
        x, y = plane_of(self.state).corner(self.state)
        corner = Grab(x - REACH, y - REACH, 2 * REACH, 2 * REACH, "nwse-resize")
        words = tile_tuner_headline(self.state, self.note)
        spoken = f"{move_in_words(self.state)}." if self.last == "step" else ""
        return Shown(tile_tuner_picture(*self.state), words, spoken, [corner])

    def _dragged(self, x: float, y: float) -> dict[str, int]:
        Br, Bc = plane_of(self.state).tile_at((x, y))
        return {"Br": Br, "Bc": Bc}

    def _fit(self) -> None:
        """Limit the player to the moves of the state."""
        played = play(self.state)
        self.controls["step"].offer(player_steps(len(played.moves) - 1, played.first + 1))

    def _best(self) -> str:
        N, d, M, _, _, name, _ = self.state
        best = best_tiles(name, N, d, M)
        if best is None:
            least = schedules.get(name).smallest_M(N, d)
            return f"No tile of {name} fits in M = {M:,}. The minimum is M = {least:,}."
        self._place(Br=best[0], Bc=best[1])
        sizes = ", ".join(f"{tile} = {size:,}" for tile, size in tile_sizes(self.state).items())
        return f"Least traffic for M = {M:,}: {sizes}."
