"""The mask painter: tiles to be seen or hidden by stroke or key, and the words that the mask moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import masks
from ...machine import positive_int
from ...masks import BlockMask
from ..draw.text import in_html
from ..figures.block_mask import GRID_AT, block_mask, headline, sparse, state_of, tile_at
from ..models.schedule_selection import among
from .controls import button, by_name, choice, slider, tick
from .explorer import Explorer, Grab, Shown, explorer

MOST = 16  # tiles a side: as many as a hand can paint
BY_KEY = "one tile: arrow keys and Space"

Tile = tuple[int, int]

SEEDS = range(21)
PRESETS: dict[str, tuple[Callable[..., BlockMask], dict[str, Sequence[float]]]] = {  # and their parameters
    "causal": (masks.causal, {}),
    "window": (masks.sliding_window, {"w": range(MOST)}),
    "bigbird": (masks.bigbird, {"g": range(5), "w": range(5), "r": range(9), "seed": SEEDS}),
    "strided": (masks.strided, {"s": range(1, MOST + 1)}),
    "random": (masks.random, {"p": [percent / 100 for percent in range(101)], "seed": SEEDS}),
    "dense": (partial(masks.strided, s=1), {}),
}
PARAMETERS = (
    slider("w", "w (window ±w tiles)", value=1),
    slider("g", "g (global tiles)", value=1),
    slider("r", "r (random tiles a row)", value=2),
    slider("s", "s (every s-th column)", value=4),
    slider("p", "p (share of tiles)", value=0.2),
    slider("seed", "seed", value=0),
)
CONTROLS = (
    choice("preset", "preset", PRESETS.keys()),
    *PARAMETERS,
    tick("causal", "causal: hide later keys"),
    button("undo", "undo", "back to the mask before the last stroke"),
    button("clear", "diagonal only", "hide every tile but the diagonal"),
)


class Sizes(NamedTuple):
    """Tokens, the side of a tile, and columns."""

    N: int
    B: int
    d: int


@explorer
class MaskPainter(Explorer):
    """Paint a mask of square tiles of side B: drag over tiles, click one, or choose it with the arrow keys.

    Starts from a preset: causal, window, bigbird, strided, random or dense. Its controls: preset, a slider
    for each parameter, causal, row, column, seen, undo, clear. Raises ValueError for sizes below 1, more than
    16 x 16 tiles, an unknown preset.
    """

    note = "Drag over tiles: the first decides whether they are shown or hidden."
    _masks: tuple[BlockMask, ...] = ()  # those that undo goes back to, and the one that is shown
    _stroke: tuple[bool, tuple[BlockMask, ...], Tile] | None = None  # shows or hides; masks before; its end

    def __init__(self, N: int = 1024, B: int = 64, d: int = 64, preset: str = "causal") -> None:
        sizes = Sizes(positive_int("N", N), positive_int("B", B), positive_int("d", d))
        count = -(-N // B)
        if count > MOST:
            raise ValueError(
                f"N = {N} and B = {B} make {count} x {count} tiles; the painter holds {MOST} x {MOST}, "
                f"so B must be at least {-(-N // MOST)}"
            )
        among("preset", PRESETS, [preset])
        cursor = (slider(name, name, range(count), 0, group=BY_KEY) for name in ("row", "column"))
        seen = tick("seen", "tile 0, 0 is seen", group=BY_KEY, steers=("column", "row"))
        super().__init__(sizes, (*CONTROLS, *cursor, seen), preset=preset)

    @property
    def mask(self) -> BlockMask:
        """What has been painted; first, the preset."""
        return self._masks[-1]

    @property
    def cursor(self) -> Tile:
        """The tile that the keyboard shows or hides: (row, column)."""
        return self.value("row"), self.value("column")

    def shown(self) -> Shown:
        row, column = self.cursor
        picture = block_mask(self.mask, self.state.d, cursor=self.cursor)
        line = f"Tile {row}, {column}: {state_of(self.mask, row, column)}. {self.note}".strip()
        moved, _ = headline(sparse(self.mask, self.state.d))
        return Shown(picture, in_html([line]), f"{line} {moved}", [Grab(*GRID_AT, "crosshair")])

    def __repr__(self) -> str:
        return f"{super().__repr__()}: {self.mask.tiles.sum()} tiles seen"

    # ------------------------------------------------------------------ by pointer
    def _pointed(self, kind: str, x: float, y: float) -> None:
        tile = tile_at(self.mask, x, y)
        if kind == "down" and self._has(tile):
            self._stroke = not self.mask.tiles[tile], self._masks, tile
        elif kind == "up":  # which has no place where a browser takes the pointer away
            self._stroke = None
        if self._stroke is not None:
            shows, before, at = self._stroke
            self._paint(filter(self._has, between(at, tile)), shows)
            self._stroke = shows, before, tile

    def _has(self, tile: Tile) -> bool:
        return all(0 <= at < len(self.mask.tiles) for at in tile)

    # ------------------------------------------------------------------ what is painted
    def _paint(self, passed: Iterable[Tile], shows: bool) -> None:
        """Show or hide tiles, but for those that must stay; the cursor goes with them."""
        for tile in passed:
            self.controls["row"].value, self.controls["column"].value = tile
            tiles, self.note = self.mask.tiles.copy(), ""
            tiles[tile] = shows
            self._change(tiles, self.mask.causal)
            if shows and not self.mask.tiles[tile]:
                self.note = f"Tile {tile[0]}, {tile[1]} holds later keys only, which a causal mask hides."

    def _change(self, tiles: NDArray[np.bool_], causal: bool) -> None:
        """Go on with these tiles, unless they leave a row without one. A stroke is one step of undo."""
        N, B, _ = self.state
        mask = BlockMask(N, tiles, B, causal=causal, allow_empty=True)
        before = self._stroke[1] if self._stroke else self._masks
        if hidden := mask.unseen_rows():
            first, _ = hidden[0]
            queries = f"queries {first:,} to {min(first + B, N) - 1:,}"
            self.note = f"Row {first // B} must keep a tile: {queries} would see no key."
        else:
            self._masks = before if mask in before[-1:] else (*before, mask)

    def _undo(self) -> str:
        done, self._masks = len(self._masks) > 1, self._masks[:-1] or self._masks
        return "Undone." if done else "There is nothing to undo."

    def _clear(self) -> None:
        self._change(np.eye(len(self.mask.tiles), dtype=bool), self.mask.causal)

    # ------------------------------------------------------------------ by controls, and what they say
    def _after(self, name: str) -> None:
        if name == "seen":
            self._paint([self.cursor], self.value("seen"))
        elif name == "causal":
            self._change(self.mask.tiles, self.value("causal"))
        elif name not in ("row", "column"):
            self._take_preset()

    def _take_preset(self) -> None:
        """Go on with the mask of the preset, whose parameters are offered and no others."""
        make, parameters = PRESETS[self.value("preset")]
        for one in PARAMETERS:
            self.controls[one.name].hidden = one.name not in parameters
        for name, values in parameters.items():
            self.controls[name].offer(by_name(values))
        N, B, _ = self.state
        mask = make(N, B, **{name: self.value(name) for name in parameters})
        self._change(mask.tiles, mask.causal)

    def _fit(self) -> None:
        if not self._masks:
            self._take_preset()
        row, column = self.cursor
        self.controls["causal"].value = self.mask.causal
        self.controls["seen"].value = bool(self.mask.tiles[row, column])
        self.controls["seen"].label = f"tile {row}, {column} is seen"


def between(start: Tile, end: Tile) -> Iterator[Tile]:
    """The tiles on the line from one to another, both included, each a neighbour of the one before."""
    ends = list(zip(start, end, strict=True))
    places = 1 + max(abs(b - a) for a, b in ends)
    down, across = (np.linspace(a, b, places).round().astype(int).tolist() for a, b in ends)
    return zip(down, across, strict=True)
