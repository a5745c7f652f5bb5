"""The mask painter: tiles to be seen or hidden by stroke or key, and the words that the mask moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import masks
from ...machine import positive_int
from ...masks import BlockMask
from ..draw.html import in_html
from ..draw.picture import Picture
from ..facts.chosen import among
from ..figures.block_mask import GRID_AT, block_mask, headline, sparse, state_of, tile_at
from .explorer import Explorer, Grab, explorer, without_widgets
from .panel import Control, button, by_name, choice, slider, tick

MOST = 16  # tiles a side: as many as a hand can paint
KEPT = 200  # masks that undo goes back to
BY_KEY = "one tile: arrow keys and Space"

Tile = tuple[int, int]


class Preset(NamedTuple):
    """A mask from `iocourse.masks`: how it is made, and its parameters with (least, start, last)."""

    make: Callable[..., BlockMask]
    parameters: dict[str, tuple[int, int, int]]


def _dense(N: int, B: int) -> BlockMask:
    return BlockMask(N, np.ones((-(-N // B),) * 2, dtype=bool), B)


def _random(N: int, B: int, percent: int, seed: int) -> BlockMask:
    return masks.random(N, B, percent / 100, seed=seed)


SEED = (0, 0, 20)
PRESETS = {
    "causal": Preset(masks.causal, {}),
    "window": Preset(masks.sliding_window, {"w": (0, 1, MOST - 1)}),
    "bigbird": Preset(masks.bigbird, {"g": (0, 1, 4), "w": (0, 1, 4), "r": (0, 2, 8), "seed": SEED}),
    "strided": Preset(masks.strided, {"s": (1, 4, MOST)}),
    "random": Preset(_random, {"percent": (0, 20, 100), "seed": SEED}),
    "dense": Preset(_dense, {}),
}
LABELS = {
    "w": "w (window ±w tiles)",
    "g": "g (global tiles)",
    "r": "r (random tiles a row)",
    "s": "s (every s-th column)",
    "percent": "percent of tiles",
    "seed": "seed",
}


@explorer
def mask_painter(N: int = 1024, B: int = 64, d: int = 64, preset: str = "causal") -> MaskPainter | Picture:
    """Paint a mask of square tiles of side B: drag over tiles, click one, or choose it with the arrow keys.

    Starts from a preset: causal, window, bigbird, strided, random or dense. Where there are no widgets: the
    picture alone. Raises ValueError for sizes below 1, more than 16 x 16 tiles, an unknown preset.
    """
    N, B, d = positive_int("N", N), positive_int("B", B), positive_int("d", d)
    count = -(-N // B)
    if count > MOST:
        raise ValueError(
            f"N = {N} and B = {B} make {count} x {count} tiles; the painter holds {MOST} x {MOST}, "
            f"so B must be at least {-(-N // MOST)}"
        )
    (name,) = among("preset", PRESETS, [preset])
    painter = MaskPainter(N, B, d, name)
    return block_mask(painter.mask, d) if without_widgets() else painter


class Sizes(NamedTuple):
    """Tokens, the side of a tile, and columns."""

    N: int
    B: int
    d: int


class Stroke(NamedTuple):
    """A stroke of the pointer: whether it shows tiles, the mask it began with, and where it is by now."""

    shows: bool
    since: BlockMask
    at: Tile


class MaskPainter(Explorer):
    """The explorer. `mask` is what has been painted; the pointer paints the tiles that it passes.

    Its controls: preset, a slider for each parameter, causal, row, column, seen, undo, clear.
    """

    note = "Drag over tiles: the first decides whether they are shown or hidden."
    paints = True
    _stroke: Stroke | None = None

    def __init__(self, N: int, B: int, d: int, preset: str) -> None:
        self._sizes = Sizes(N, B, d)
        self._history: list[BlockMask] = []
        self.controls = {one.name: one for one in _controls(-(-N // B), preset)}
        self._start_parameters()
        self.mask = self._preset_mask()
        super().__init__(self.controls.values())

    @property
    def setting(self) -> Sizes:
        return self._sizes

    @property
    def cursor(self) -> Tile:
        """The tile that the keyboard shows or hides: (row, column)."""
        return self.value("row"), self.value("column")

    @property
    def picture(self) -> Picture:
        return block_mask(self.mask, self._sizes.d, cursor=self.cursor)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"undo": self._undo, "clear": self._clear}

    def __repr__(self) -> str:
        return f"{super().__repr__()}: {self.mask.tiles.sum()} tiles seen"

    # ------------------------------------------------------------------ by pointer
    def grabs(self) -> Iterable[Grab]:
        return [Grab(*GRID_AT, "crosshair")]

    def _pointed(self, kind: str, x: float, y: float) -> None:
        tile = tile_at(self.mask, x, y)
        if kind == "down" and self._has(tile):
            self._stroke = Stroke(not self.mask.tiles[tile], self.mask, tile)
        if self._stroke is not None:
            passed = filter(self._has, between(self._stroke.at, tile))
            self._paint(passed, self._stroke.shows, self._stroke.since)
            self._stroke = None if kind == "up" else self._stroke._replace(at=tile)

    def _has(self, tile: Tile) -> bool:
        return all(0 <= at < len(self.mask.tiles) for at in tile)

    # ------------------------------------------------------------------ what is painted
    def _paint(self, passed: Iterable[Tile], shows: bool, since: BlockMask) -> None:
        """Show or hide tiles, but for those that must stay; the cursor goes with them."""
        tiles = self.mask.tiles.copy()
        for tile in passed:
            self.controls["row"].value, self.controls["column"].value = tile
            self.note = self._objection(tiles, tile, shows)
            if not self.note:
                tiles[tile] = shows
        self._take(self._masked(tiles, self.mask.causal), since)

    def _objection(self, tiles: NDArray[np.bool_], tile: Tile, shows: bool) -> str:
        """Why a tile may not be shown or hidden; empty where it may."""
        row, column = tile
        if shows:
            later = self.mask.causal and column > row
            return f"Tile {row}, {column} holds later keys only, which a causal mask hides." if later else ""
        return self._must_keep(row) if tiles[tile] and tiles[row].sum() == 1 else ""

    def _must_keep(self, row: int) -> str:
        N, B, _ = self._sizes
        first, last = row * B, min((row + 1) * B, N) - 1
        return f"Row {row} must keep a tile: queries {first:,} to {last:,} would see no key."

    def _masked(self, tiles: NDArray[np.bool_], causal: bool) -> BlockMask:
        return BlockMask(self._sizes.N, tiles, self._sizes.B, causal=causal, allow_empty=True)

    def _take(self, mask: BlockMask, since: BlockMask) -> None:
        """Go on with another mask. What is taken since the same mask is one step of undo."""
        if mask != self.mask and self._history[-1:] != [since]:
            self._history = [*self._history, since][-KEPT:]
        self.mask = mask

    def _undo(self) -> None:
        self.note = "Undone." if self._history else "There is nothing to undo."
        self.mask = self._history.pop() if self._history else self.mask

    def _clear(self) -> None:
        self.note = ""
        self._take(self._masked(np.eye(len(self.mask.tiles), dtype=bool), self.mask.causal), self.mask)

    # ------------------------------------------------------------------ by controls
    def _after(self, name: str) -> None:
        self.note = ""
        if name == "seen":
            self._paint([self.cursor], self.value("seen"), self.mask)
        elif name == "causal":
            self._hide_later(self.value("causal"))
        elif name not in ("row", "column"):
            if name == "preset":
                self._start_parameters()
            self._take(self._preset_mask(), self.mask)

    def _hide_later(self, causal: bool) -> None:
        mask = self._masked(self.mask.tiles, causal)
        empty = np.flatnonzero(~mask.tiles.any(axis=1))
        if empty.size:
            self.note = self._must_keep(int(empty[0]))
        else:
            self._take(mask, self.mask)

    def _start_parameters(self) -> None:
        """Offer the parameters of the preset, and no others."""
        used = PRESETS[self.value("preset")].parameters
        for name in LABELS:
            control = self.controls[name]
            control.hidden = name not in used
            if name in used:
                least, control.value, last = used[name]
                control.offered = by_name(range(least, last + 1))

    def _preset_mask(self) -> BlockMask:
        made = PRESETS[self.value("preset")]
        return made.make(self._sizes.N, self._sizes.B, **{name: self.value(name) for name in made.parameters})

    # ------------------------------------------------------------------ what is shown
    def _fit(self) -> None:
        row, column = self.cursor
        self.controls["causal"].value = self.mask.causal
        self.controls["seen"].value = bool(self.mask.tiles[row, column])
        self.controls["seen"].label = f"tile {row}, {column} is seen"

    def _said(self) -> str:
        row, column = self.cursor
        return in_html([f"Tile {row}, {column}: {state_of(self.mask, row, column)}. {self.note}".strip()])

    def _spoken(self) -> str:
        return f"{super()._spoken()} {headline(sparse(self.mask, self._sizes.d))[0]}"


def between(start: Tile, end: Tile) -> Iterator[Tile]:
    """The tiles on the line from one to another, both included, each a neighbour of the one before."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
    rows, columns = (
        np.rint(np.linspace(*ends, steps + 1)).astype(int) for ends in zip(start, end, strict=True)
    )
    return zip(rows.tolist(), columns.tolist(), strict=True)


def _controls(count: int, preset: str) -> Iterator[Control]:
    yield choice("preset", "preset", list(PRESETS), preset)
    for name, label in LABELS.items():
        yield slider(name, label, [0], 0)
    yield tick("causal", "causal: hide later keys", False)
    yield button("undo", "undo", "back to the mask before the last stroke")
    yield button("clear", "diagonal only", "hide every tile but the diagonal")
    for name in ("row", "column"):
        yield replace(slider(name, name, range(count), 0), group=BY_KEY)
    yield replace(tick("seen", "tile 0, 0 is seen", True), group=BY_KEY, steers=("column", "row"))
