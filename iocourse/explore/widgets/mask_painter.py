"""The mask painter: tiles to be seen or hidden by click or key, and the words that the mask moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import masks
from ...machine import positive_int
from ...masks import BlockMask
from ..draw.html import in_html
from ..draw.picture import Picture
from ..facts.chosen import among
from ..figures.block_mask import HIDDEN, SEEN, block_mask, headline, sparse, state_of
from . import controls as ui
from .explorer import Explorer, explorer, without_widgets

MOST = 16  # tiles a side: each is a button
SYMBOLS = {"seen": "■", "seen up to the query": "◣", "hidden": "\u00a0"}  # "" would not be drawn again
KEPT = 200  # masks that undo goes back to


class Preset(NamedTuple):
    """A mask from `iocourse.masks`: how it is made, and its parameters with (start, last)."""

    make: Callable[..., BlockMask]
    parameters: dict[str, tuple[int, int]]


def _dense(N: int, B: int) -> BlockMask:
    return BlockMask(N, np.ones((-(-N // B),) * 2, dtype=bool), B)


def _random(N: int, B: int, percent: int, seed: int) -> BlockMask:
    return masks.random(N, B, percent / 100, seed=seed)


PRESETS = {
    "causal": Preset(masks.causal, {}),
    "window": Preset(masks.sliding_window, {"w": (1, MOST - 1)}),
    "bigbird": Preset(masks.bigbird, {"g": (1, 4), "w": (1, 4), "r": (2, 8), "seed": (0, 20)}),
    "strided": Preset(masks.strided, {"s": (4, MOST)}),
    "random": Preset(_random, {"percent": (20, 100), "seed": (0, 20)}),
    "dense": Preset(_dense, {}),
}
BUTTONS = {
    "toggle": ("show or hide this tile", "the tile of the two sliders"),
    "undo": ("undo", "back to the mask before"),
    "clear": ("diagonal only", "hide every tile but the diagonal"),
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
    """Paint a mask of square tiles of side B: click a tile, or choose it with two sliders and press a button.

    Starts from a preset: causal, window, bigbird, strided, random or dense. Where the environment variable
    IOCOURSE_WIDGETS is 0: the picture alone. Raises ValueError for sizes below 1, more than 16 x 16 tiles, an
    unknown preset.
    """
    N, B, d = positive_int("N", N), positive_int("B", B), positive_int("d", d)
    count = -(-N // B)
    if count > MOST:
        raise ValueError(
            f"N = {N} and B = {B} make {count} x {count} tiles; the painter holds {MOST} x {MOST}, "
            f"so B must be at least {-(-N // MOST)}"
        )
    (name,) = among("preset", PRESETS, [preset])
    start = {key: first for key, (first, _) in PRESETS[name].parameters.items()}
    if without_widgets():
        return block_mask(PRESETS[name].make(N, B, **start), d)
    return MaskPainter(N, B, d, name)


class Sizes(NamedTuple):
    """Tokens, the side of a tile, and columns."""

    N: int
    B: int
    d: int


class MaskPainter(Explorer):
    """The widget. `mask` is what has been painted; `cells` holds the button of each tile by (row, column).

    Its controls: preset, a slider for each parameter, causal, row, column, toggle, undo, clear.
    """

    def __init__(self, N: int, B: int, d: int, preset: str) -> None:
        import ipywidgets as widgets

        self._sizes, count = Sizes(N, B, d), -(-N // B)
        self.cells = _cells(count)
        self._looks = {
            seen: widgets.ButtonStyle(button_color=SEEN if seen else HIDDEN) for seen in (True, False)
        }
        self._history: list[BlockMask] = []
        controls = _controls(count, preset)
        self.mask = _made(self._sizes, controls)
        for (row, column), cell in self.cells.items():
            cell.on_click(partial(self._pressed, partial(self.toggle, row, column)))
        super().__init__(controls)

    @property
    def setting(self) -> Sizes:
        return self._sizes

    @property
    def cursor(self) -> tuple[int, int]:
        """The tile that the two sliders stand on: (row, column)."""
        return self.controls["row"].value, self.controls["column"].value

    @property
    def picture(self) -> Picture:
        return block_mask(self.mask, self._sizes.d, cursor=self.cursor)

    def actions(self) -> dict[str, Callable[[], None]]:
        return {"toggle": lambda: self.toggle(*self.cursor), "undo": self.undo, "clear": self.clear}

    def __repr__(self) -> str:
        return f"{super().__repr__()}: {self.mask.tiles.sum()} tiles seen"

    # ------------------------------------------------------------------ what can be done
    def toggle(self, row: int, column: int) -> None:
        """Show a hidden tile or hide one that is seen; a row keeps at least one. The sliders go there."""
        with self._together():
            self.controls["row"].value, self.controls["column"].value = row, column
        tiles = self.mask.tiles.copy()
        tiles[row, column] = not tiles[row, column]
        if self.mask.causal and column > row:
            self.note = "It holds later keys only, which a causal mask hides."
        else:
            self._paint(tiles, self.mask.causal)
        self._draw()

    def undo(self) -> None:
        """Back to the mask before the last change."""
        if self._history:
            self.mask, self.note = self._history.pop(), "Undone."
        else:
            self.note = "There is nothing to undo."
        self._draw()

    def clear(self) -> None:
        """Hide every tile but those on the diagonal."""
        self._paint(np.eye(len(self.mask.tiles), dtype=bool), self.mask.causal)
        self._draw()

    def _paint(self, tiles: NDArray[np.bool_], causal: bool) -> None:
        """Take a mask, or say which row of tiles it would leave without any."""
        N, B, _ = self._sizes
        mask = BlockMask(N, tiles, B, causal=causal, allow_empty=True)
        empty = np.flatnonzero(~mask.tiles.any(axis=1))
        if empty.size:
            row = int(empty[0])
            first, last = row * B, min((row + 1) * B, N) - 1
            self.note = f"Row {row} must keep a tile: queries {first:,} to {last:,} would see no key."
        else:
            self._take(mask)
            self.note = ""

    def _take(self, mask: BlockMask) -> None:
        self._history = [*self._history, self.mask][-KEPT:]
        self.mask = mask

    # ------------------------------------------------------------------ from controls to picture
    def _after(self, name: str) -> None:
        self.note = ""
        if name == "causal":
            self._paint(self.mask.tiles, self.controls["causal"].value)
        elif name not in ("row", "column"):
            self._take(_made(self._sizes, self.controls))

    def _fit(self) -> None:
        used = PRESETS[self.controls["preset"].value].parameters
        for name in LABELS:
            self.controls[name].layout.display = None if name in used else "none"
        self.controls["causal"].value = self.mask.causal
        for at, cell in self.cells.items():
            self._paint_cell(cell, *at)

    def _said(self) -> str:
        here = f"Tile {self.cursor[0]}, {self.cursor[1]}: {state_of(self.mask, *self.cursor)}."
        return in_html([*headline(sparse(self.mask, self._sizes.d)), f"{here} {self.note}"])

    def _arranged(self) -> list[Any]:
        import ipywidgets as widgets

        columns = len(self.mask.tiles)
        look = {"grid_template_columns": f"repeat({columns}, 24px)", "margin": "4px 24px 8px 4px"}
        grid = widgets.GridBox(list(self.cells.values()), layout=widgets.Layout(grid_gap="0", **look))
        buttons = ui.wrapped(self._named("toggle", "undo", "clear"))
        sliders = self._named(*LABELS, "causal", "row", "column")
        beside = ui.column([*sliders, buttons, self.words], width="430px")
        return [self.controls["preset"], ui.wrapped([grid, beside]), self.view]

    def _paint_cell(self, cell: Any, row: int, column: int) -> None:
        seen = bool(self.mask.tiles[row, column])
        symbol = SYMBOLS[state_of(self.mask, row, column)]
        if cell.description != symbol:
            with cell.hold_sync():
                cell.description, cell.style = symbol, self._looks[seen]


def _made(sizes: Sizes, controls: Mapping[str, Any]) -> BlockMask:
    """The mask of the preset that the controls stand on."""
    made = PRESETS[controls["preset"].value]
    return made.make(sizes.N, sizes.B, **{name: controls[name].value for name in made.parameters})


def _cells(count: int) -> dict[tuple[int, int], Any]:
    """A button for each tile. The keyboard has two sliders instead of up to 256 stops."""
    import ipywidgets as widgets

    layout = widgets.Layout(width="24px", height="24px", padding="0", margin="0", border="1px solid #8C8C8C")
    places = np.ndindex(count, count)
    return {at: ui.mouse_button(" ", f"tile {at[0]}, {at[1]}", layout) for at in places}


def _controls(count: int, preset: str) -> dict[str, Any]:
    found = {"preset": ui.choice(PRESETS, preset, "preset")}
    ranges = {name: ends for made in PRESETS.values() for name, ends in made.parameters.items()}
    for name, (first, last) in ranges.items():
        found[name] = ui.int_slider(LABELS[name], 1 if name == "s" else 0, last, first, **_wide())
    found["causal"] = ui.checkbox("causal: hide later keys", False, **_wide())
    for name in ("row", "column"):
        found[name] = ui.int_slider(f"{name} of the tile", 0, count - 1, 0, **_wide())
    return found | {name: ui.button(*texts, width="auto") for name, texts in BUTTONS.items()}


def _wide() -> dict[str, Any]:
    return ui.wide("400px", "160px")
