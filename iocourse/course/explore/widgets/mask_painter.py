"""Mask painter: explorer that shows or hides tiles of a mask by pointer or key, with the traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .... import masks
from ....machine import positive_int
from ....masks import BlockMask
from ..draw.text import in_html
from ..figures.block_mask import GRID_AT, block_mask, block_mask_headline, sparse, state_of, tile_at
from ..models.schedule_selection import among
from .controls import button, by_name, choice, slider, tick
from .explorer import Explorer, Grab, Shown, explorer

MOST = 16  # tiles per side
BY_KEY = "one tile: arrow keys and Space"

Tile = tuple[int, int]

SEEDS = range(21)
PRESETS: dict[
    str, tuple[Callable[..., BlockMask], dict[str, Sequence[float]]]
] = {  # with the options of their parameters
    "causal": (masks.causal, {}),
    "window": (masks.sliding_window, {"w": range(MOST)}),
    "bigbird": (masks.bigbird, {"g": range(5), "w": range(5), "r": range(9), "seed": SEEDS}),
    "strided": (masks.strided, {"s": range(1, MOST + 1)}),
    "random": (masks.random, {"p": [percent / 100 for percent in range(101)], "seed": SEEDS}),
    "dense": (partial(masks.strided, s=1), {}),
}
PAINTED = "painted"  # shown instead of a preset once the mask is no longer that of a preset
PARAMETERS = (
    slider("w", "w (window ±w tiles)", value=1),
    slider("g", "g (global tiles)", value=1),
    slider("r", "r (random tiles per row)", value=2),
    slider("s", "s (every s-th column)", value=4),
    slider("p", "p (share of tiles)", value=0.2),
    slider("seed", "seed", value=0),
)
CONTROLS = (
    choice("preset", "preset", PRESETS.keys()),
    *PARAMETERS,
    tick("causal", "causal: mask later keys"),
    button("undo", "undo", "Restore the mask before the last stroke"),
    button("clear", "diagonal only", "Hide all tiles except the diagonal"),
)


class Sizes(NamedTuple):
    """Sequence length, tile side and head dimension."""

    N: int
    B: int
    d: int


@explorer
class MaskPainter(Explorer):
    """Interactive editor of a mask of square tiles of side B, with the traffic of block-sparse attention.

    Drag over tiles, click one, or select one with the arrow keys. Presets: causal, window, bigbird, strided,
    random and dense. Controls: preset, a slider for each parameter, causal, row, column, seen, undo, clear.

    Raises:
        ValueError: a size below 1, more than 16 x 16 tiles, or an unknown preset.
    """

    note = "Drag over tiles to show or hide them, as the first one."
    _masks: tuple[BlockMask, ...] = ()  # the history for undo; the last is shown
    _stroke: tuple[bool, tuple[BlockMask, ...], Tile] | None = None  # show or hide, masks before, last tile

    def __init__(self, N: int = 1024, B: int = 64, d: int = 64, preset: str = "causal") -> None:
        sizes = Sizes(positive_int("N", N), positive_int("B", B), positive_int("d", d))
        count = -(-N // B)
        if count > MOST:
            raise ValueError(
                f"B must be at least {-(-N // MOST)} for N = {N} (at most {MOST} x {MOST} tiles), got {B}, "
                f"which gives {count} x {count} tiles"
            )
        among("preset", PRESETS, [preset])
        cursor = (slider(name, name, range(count), 0, group=BY_KEY) for name in ("row", "column"))
        seen = tick("seen", "tile 0, 0 is visible", group=BY_KEY, steers=("column", "row"))
        super().__init__(sizes, (*CONTROLS, *cursor, seen), preset=preset)

    @property
    def mask(self) -> BlockMask:
        """The current mask, initially the preset."""
        return self._masks[-1]

    @property
    def cursor(self) -> Tile:
        """The tile selected for the keyboard, (row, column)."""
        return self.value("row"), self.value("column")

    def shown(self) -> Shown:
        row, column = self.cursor
        picture = block_mask(self.mask, self.state.d, cursor=self.cursor)
        line = f"Tile {row}, {column}: {state_of(self.mask, row, column)}. {self.note}".strip()
        moved, _ = block_mask_headline(sparse(self.mask, self.state.d))
        return Shown(picture, in_html([line]), f"{line} {moved}", [Grab(*GRID_AT, "crosshair")])

    def __repr__(self) -> str:
        return f"{super().__repr__()}  # {self.mask.tiles.sum()} tiles visible"

    # ------------------------------------------------------------------ by pointer
    def _pointed(self, kind: str, x: float, y: float) -> None:
        tile = tile_at(self.mask, x, y)
        if kind == "down" and self._has(tile):
            self._stroke = not self.mask.tiles[tile], self._masks, tile
        elif kind == "up":  # without a position if the browser cancels the pointer
            self._stroke = None
        if self._stroke is not None:
            shows, before, at = self._stroke
            self._paint(filter(self._has, between(at, tile)), shows)
            self._stroke = shows, before, tile

    def _has(self, tile: Tile) -> bool:
        return all(0 <= at < len(self.mask.tiles) for at in tile)

    # ------------------------------------------------------------------ painting
    def _paint(self, passed: Iterable[Tile], shows: bool) -> None:
        """Show or hide tiles, except those that must stay visible; move the cursor to the last one."""
        for tile in passed:
            self.controls["row"].value, self.controls["column"].value = tile
            tiles, self.note = self.mask.tiles.copy(), ""
            tiles[tile] = shows
            self._change(tiles, self.mask.causal)
            if shows and not self.mask.tiles[tile]:
                self.note = (
                    f"Tile {tile[0]}, {tile[1]} contains only later keys, which the causal mask hides."
                )

    def _change(self, tiles: NDArray[np.bool_], causal: bool) -> None:
        """Use these tiles as the mask unless a row would be empty. A stroke is one step of undo."""
        N, B, _ = self.state
        mask = BlockMask(N, tiles, B, causal=causal, allow_empty=True)
        before = self._stroke[1] if self._stroke else self._masks
        if hidden := mask.unseen_rows():
            first, _ = hidden[0]
            queries = f"queries {first:,} to {min(first + B, N) - 1:,}"
            self.note = f"Row {first // B} must keep a tile, because {queries} would attend to no key."
        else:
            self._masks = before if mask in before[-1:] else (*before, mask)

    def _undo(self) -> str:
        done, self._masks = len(self._masks) > 1, self._masks[:-1] or self._masks
        return "Undone." if done else "Nothing to undo."

    def _clear(self) -> None:
        self._change(np.eye(len(self.mask.tiles), dtype=bool), self.mask.causal)

    # ------------------------------------------------------------------ by controls
    def _after(self, name: str) -> None:
        if name == "seen":
            self._paint([self.cursor], self.value("seen"))
        elif name == "causal":
            self._change(self.mask.tiles, self.value("causal"))
        elif name not in ("row", "column") and self.value("preset") != PAINTED:
            self._take_preset()

    def _take_preset(self) -> None:
        """Use the mask of the selected preset."""
        self._offer_parameters()
        mask = self._preset_mask(self.value("preset"))
        self._change(mask.tiles, mask.causal)

    def _offer_parameters(self) -> None:
        """Show the parameters of the selected preset only."""
        _, parameters = PRESETS.get(self.value("preset"), (None, {}))
        for one in PARAMETERS:
            self.controls[one.name].hidden = one.name not in parameters
        for name, values in parameters.items():
            self.controls[name].offer(by_name(values))

    def _preset_mask(self, preset: str) -> BlockMask:
        make, parameters = PRESETS[preset]
        N, B, _ = self.state
        return make(N, B, **{name: self.value(name) for name in parameters})

    def _fit(self) -> None:
        if not self._masks:
            self._take_preset()
        # After a stroke or an undo: the preset whose mask this is, the selected one first.
        names = sorted(PRESETS, key=lambda name: name != self.value("preset"))
        shown = (name for name in names if self._preset_mask(name) == self.mask)
        self.controls["preset"].value = next(shown, PAINTED)
        self._offer_parameters()
        row, column = self.cursor
        self.controls["causal"].value = self.mask.causal
        self.controls["seen"].value = bool(self.mask.tiles[row, column])
        self.controls["seen"].label = f"tile {row}, {column} is visible"


def between(start: Tile, end: Tile) -> Iterator[Tile]:
    """Return the tiles on the line from `start` to `end`, both included, each adjacent to the next."""
    ends = list(zip(start, end, strict=True))
    places = 1 + max(abs(b - a) for a, b in ends)
    down, across = (np.linspace(a, b, places).round().astype(int).tolist() for a, b in ends)
    return zip(down, across, strict=True)
