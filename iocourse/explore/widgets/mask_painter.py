"""The mask painter: tiles to be seen or hidden by click or key, and the words that the mask moves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import masks
from ...machine import positive_int
from ...masks import BlockMask
from ..draw.picture import Picture
from ..facts.chosen import among
from ..figures.block_mask import HIDDEN, SEEN, block_mask, headline, sparse, state_of
from .explorer import Explorer, choice, explorer, in_html, wide, without_widgets, wrapped

MOST = 16  # tiles a side: each is a button
SYMBOLS = {
    "seen": "■",
    "seen up to the query": "◣",
    "hidden": "\u00a0",
}  # an empty label would not be drawn again
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


class MaskPainter(Explorer):
    """The widget. `mask` is what has been painted, `picture` what is shown.

    Controls are plain ipywidgets in `controls`, by name (preset, a slider for each parameter, causal, row,
    column, toggle, undo, clear); `cells` holds the button of each tile by (row, column). `words` and `view`
    are the HTML widgets they write to.
    """

    def __init__(self, N: int, B: int, d: int, preset: str) -> None:
        import ipywidgets as widgets

        self.N, self.B, self.d, self.note = N, B, d, ""
        count = -(-N // B)
        self.words, self.view = widgets.HTML(), widgets.HTML()
        self.controls = _controls(count, preset)
        self.cells = _cells(count)
        self._looks = {
            seen: widgets.ButtonStyle(button_color=SEEN if seen else HIDDEN) for seen in (True, False)
        }
        self._history: list[BlockMask] = []
        self.mask = self._preset()
        self.box = _arranged(self.controls, self.cells, count, self.words, self.view)
        self._listen()
        self._show()

    def _listen(self) -> None:
        for name in ("preset", *LABELS):
            self.controls[name].observe(self._preset_changed, "value")
        for name in ("row", "column"):
            self.controls[name].observe(self._cursor_changed, "value")
        self.controls["causal"].observe(self._causal_changed, "value")
        self.controls["toggle"].on_click(lambda _: self.toggle(*self.cursor))
        self.controls["undo"].on_click(lambda _: self.undo())
        self.controls["clear"].on_click(lambda _: self.clear())
        for (row, column), cell in self.cells.items():
            cell.on_click(partial(self._clicked, row, column))

    @property
    def cursor(self) -> tuple[int, int]:
        """The tile that the two sliders stand on: (row, column)."""
        return self.controls["row"].value, self.controls["column"].value

    @property
    def picture(self) -> Picture:
        """What is shown now."""
        return block_mask(self.mask, self.d, cursor=self.cursor)

    def __repr__(self) -> str:
        return f"MaskPainter(N={self.N}, B={self.B}, d={self.d}): {self.mask.tiles.sum()} tiles seen"

    # ------------------------------------------------------------------ what can be done
    def toggle(self, row: int, column: int) -> None:
        """Show a hidden tile or hide one that is seen; a row keeps at least one. The sliders go there."""
        with self._together():
            self.controls["row"].value, self.controls["column"].value = row, column
        tiles = self.mask.tiles.copy()
        tiles[row, column] = not tiles[row, column]
        if self.mask.causal and column > row:
            self.note = "It holds later keys only, which a causal mask hides."
            self._show()
        else:
            self._paint(tiles, self.mask.causal)

    def undo(self) -> None:
        """Back to the mask before the last change."""
        if self._history:
            self.mask, self.note = self._history.pop(), "Undone."
        else:
            self.note = "There is nothing to undo."
        self._show()

    def clear(self) -> None:
        """Hide every tile but those on the diagonal."""
        self._paint(np.eye(len(self.mask.tiles), dtype=bool), self.mask.causal)

    def _paint(self, tiles: NDArray[np.bool_], causal: bool) -> None:
        """Take a mask, or say which row of tiles it would leave without any."""
        mask = BlockMask(self.N, tiles, self.B, causal=causal, allow_empty=True)
        empty = np.flatnonzero(~mask.tiles.any(axis=1))
        if empty.size:
            row = int(empty[0])
            first, last = row * self.B, min((row + 1) * self.B, self.N) - 1
            self.note = f"Row {row} must keep a tile: queries {first:,} to {last:,} would see no key."
        else:
            self._take(mask)
            self.note = ""
        self._show()

    def _take(self, mask: BlockMask) -> None:
        self._history = [*self._history, self.mask][-KEPT:]
        self.mask = mask

    # ------------------------------------------------------------------ what the controls report
    def _clicked(self, row: int, column: int, _button: Any) -> None:
        self.toggle(row, column)

    def _cursor_changed(self, _change: Any) -> None:
        if not self._quiet:
            self.note = ""
            self._show()

    def _causal_changed(self, change: Any) -> None:
        if not self._quiet:
            self._paint(self.mask.tiles, change["new"])

    def _preset_changed(self, _change: Any) -> None:
        self._take(self._preset())
        self.note = ""
        self._show()

    def _preset(self) -> BlockMask:
        made = PRESETS[self.controls["preset"].value]
        return made.make(self.N, self.B, **{name: self.controls[name].value for name in made.parameters})

    # ------------------------------------------------------------------ what is shown
    def _show(self) -> None:
        """Bring controls, buttons, words and picture in line with the mask."""
        used = PRESETS[self.controls["preset"].value].parameters
        for name in LABELS:
            self.controls[name].layout.display = None if name in used else "none"
        with self._together():
            self.controls["causal"].value = self.mask.causal
        for at, cell in self.cells.items():
            self._paint_cell(cell, *at)
        row, column = self.cursor
        here = f"Tile {row}, {column}: {state_of(self.mask, row, column)}."
        self.words.value = in_html([*headline(sparse(self.mask, self.d)), f"{here} {self.note}"])
        self.view.value = self.picture.to_svg()

    def _paint_cell(self, cell: Any, row: int, column: int) -> None:
        seen = bool(self.mask.tiles[row, column])
        symbol = SYMBOLS[state_of(self.mask, row, column)]
        if cell.description != symbol:
            with cell.hold_sync():
                cell.description, cell.style = symbol, self._looks[seen]


def _cells(count: int) -> dict[tuple[int, int], Any]:
    """A button for each tile. The keyboard has two sliders instead of up to 256 stops."""
    import ipywidgets as widgets

    layout = widgets.Layout(width="24px", height="24px", padding="0", margin="0", border="1px solid #8C8C8C")
    off_the_keyboard = {"tabbable": False} if hasattr(widgets.Button, "tabbable") else {}
    return {
        (row, column): widgets.Button(
            description=" ", layout=layout, tooltip=f"tile {row}, {column}", **off_the_keyboard
        )
        for row in range(count)
        for column in range(count)
    }


def _controls(count: int, preset: str) -> dict[str, Any]:
    import ipywidgets as widgets

    found = {"preset": choice(PRESETS, preset, "preset")}
    ranges = {name: ends for made in PRESETS.values() for name, ends in made.parameters.items()}
    for name, (first, last) in ranges.items():
        low = 1 if name == "s" else 0
        found[name] = widgets.IntSlider(value=first, min=low, max=last, description=LABELS[name], **_wide())
    found["causal"] = widgets.Checkbox(value=False, description="causal: hide later keys", **_wide())
    for name in ("row", "column"):
        found[name] = widgets.IntSlider(
            value=0, min=0, max=count - 1, description=f"{name} of the tile", **_wide()
        )
    for name, label, tooltip in (
        ("toggle", "show or hide this tile", "the tile of the two sliders"),
        ("undo", "undo", "back to the mask before"),
        ("clear", "diagonal only", "hide every tile but the diagonal"),
    ):
        found[name] = widgets.Button(description=label, tooltip=tooltip, layout=widgets.Layout(width="auto"))
    return found


def _wide() -> dict[str, Any]:
    return wide("400px", "160px")


def _arranged(
    controls: dict[str, Any], cells: dict[tuple[int, int], Any], count: int, words: Any, view: Any
) -> Any:
    import ipywidgets as widgets

    grid = widgets.GridBox(
        list(cells.values()),
        layout=widgets.Layout(
            grid_template_columns=f"repeat({count}, 24px)", grid_gap="0", margin="4px 24px 8px 4px"
        ),
    )
    buttons = wrapped(controls[name] for name in ("toggle", "undo", "clear"))
    sliders = [controls[name] for name in (*LABELS, "causal", "row", "column")]
    beside = widgets.VBox([*sliders, buttons, words], layout=widgets.Layout(width="430px"))
    return widgets.VBox([controls["preset"], wrapped([grid, beside]), view])
