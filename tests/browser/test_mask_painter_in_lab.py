"""Tests of the mask painter in JupyterLab in Chromium: keyboard, click, stroke and touch."""

import pytest
from explorer_page import WAIT, ExplorerPage

from iocourse import masks
from iocourse.course.explore.figures.block_mask import block_mask_headline, sparse

SIDE = 16  # tiles


class Painter(ExplorerPage):
    """Driver of the painter of 16 x 16 tiles, with its expected state."""

    def __init__(self, page):
        super().__init__(page, "mask painter")
        self.tiles = masks.causal(1024, 64).tiles.copy()
        self.root.locator(".grab").scroll_into_view_if_needed()
        self.box = self.root.locator(".grab").bounding_box()

    def place(self, row, column):
        """Return the centre of a tile on the page."""
        across, down = ((at + 0.5) / SIDE for at in (column, row))
        return self.box["x"] + across * self.box["width"], self.box["y"] + down * self.box["height"]

    def until(self, text):
        """Wait for this text, and for the traffic of the mask of `tiles` in the live region."""
        self.words.get_by_text(text).wait_for(timeout=WAIT)
        mask = masks.BlockMask(1024, self.tiles, 64, causal=True)
        live = self.root.get_by_role("status").get_by_text(block_mask_headline(sparse(mask, 64))[0])
        live.wait_for(timeout=WAIT, state="attached")
        assert self.title().startswith(f"{mask.tiles.sum()} of 256 tiles visible")

    def tile(self, row, column):
        """Return the check box of a tile, by its name while the cursor is on the tile."""
        return self.root.get_by_role("checkbox", name=f"tile {row}, {column} is visible", exact=True)


@pytest.fixture
def painter(shown):
    """Return the painter in a notebook."""
    return Painter(shown("painter", "explore.mask_painter(N=1024, B=64, d=64)"))


def test_a_mask_is_painted_by_keyboard_by_click_by_strokes_and_by_finger(painter):
    _by_keyboard(painter)
    _by_mouse(painter)
    _by_finger(painter)
    _from_a_preset(painter)


def _by_keyboard(painter):
    """Sliders or arrow keys on the check box select a tile; Space shows and hides it."""
    for _ in range(3):
        painter.slider("row").press("ArrowRight")
    painter.slider("column").press("ArrowRight")
    painter.until("Tile 3, 1: visible.")
    painter.tile(3, 1).press("Space")
    painter.tiles[3, 1] = False
    painter.until("Tile 3, 1: empty.")
    assert not painter.tile(3, 1).is_checked()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        painter.page.keyboard.press(key)
    painter.until("Tile 5, 2: visible.")
    assert painter.tile(5, 2).is_checked() and painter.spoken("row") == "5"


def _by_mouse(painter):
    mouse = painter.page.mouse
    mouse.click(*painter.place(5, 2))
    painter.tiles[5, 2] = False
    painter.until("Tile 5, 2: empty.")
    mouse.click(*painter.place(0, 0))
    painter.until("Row 0 must keep a tile, because queries 0 to 63 would attend to no key.")
    mouse.move(*painter.place(8, 1))
    mouse.down()
    mouse.move(*painter.place(8, 6))  # one step of the mouse over five tiles
    mouse.move(*painter.place(12, 6), steps=3)
    mouse.up()
    painter.tiles[8, 1:7] = painter.tiles[8:13, 6] = False
    painter.until("Tile 12, 6: empty.")
    painter.button("undo").press("Enter")
    painter.tiles[8, 1:7] = painter.tiles[8:13, 6] = True
    painter.until("Undone.")


def _by_finger(painter):
    """A finger on the mask paints without scrolling the page; a tap shows or hides one tile."""
    finger = painter.page.context.new_cdp_session(painter.page)

    def touch(kind, *tile):
        points = [dict(zip("xy", painter.place(*tile), strict=True))] if tile else []
        finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

    touch("Start", 9, 2)
    for tile in ((9, 4), (9, 7), (13, 7)):
        touch("Move", *tile)
    touch("End")
    painter.tiles[9, 2:8] = painter.tiles[9:14, 7] = False
    painter.until("Tile 13, 7: empty.")
    assert painter.root.locator(".grab").bounding_box() == painter.box
    touch("Start", 9, 2)
    touch("End")
    painter.tiles[9, 2] = True
    painter.until("Tile 9, 2: visible.")
    finger.detach()


def _from_a_preset(painter):
    """Only the parameters of the preset are shown as controls."""
    preset = painter.root.get_by_role("combobox", name="preset", exact=True)
    painter.after(lambda: preset.select_option("bigbird"))
    painter.press("r (random tiles per row)", "ArrowRight")
    assert painter.title().startswith(f"{masks.bigbird(1024, 64, 1, 1, 3).tiles.sum()} of 256 tiles visible")
    assert not painter.slider("s (every s-th column)").is_visible()
