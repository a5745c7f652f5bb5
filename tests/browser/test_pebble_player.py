"""Tests of the pebble player in JupyterLab in Chromium: keyboard, and clicks on the graph."""

import pytest
from explorer_page import WAIT, ExplorerPage, expect

from iocourse.pebbling import dot, optimum, softmax_row

DOT = optimum(dot(2), 3)


class Player(ExplorerPage):
    """Driver of the player, whose figure title contains the move."""

    def until(self, end):
        """Wait until the title of the figure ends with this text."""
        self.page.wait_for_function(
            "end => document.querySelector('.iocourse-explorer svg title').textContent.endsWith(end)",
            arg=end,
            timeout=WAIT,
        )

    def vertex(self, name):
        """Select a vertex in the list."""
        self.root.get_by_role("combobox", name="vertex", exact=True).select_option(name)

    def click(self, name):
        """Click on a vertex of the figure."""
        self.root.locator(".grab").nth(dot(2).vertices.index(name)).click()


@pytest.fixture
def player(shown):
    """Return the player in a notebook."""
    return Player(shown("pebbles", "explore.pebble_player()"), "pebble player")


def test_the_optimum_is_played_and_a_game_is_won_by_keyboard_and_by_clicks(player):
    _played(player)
    _won_by_keyboard(player)
    _clicked(player)
    player.choose("play the optimum")
    player.choose("softmax row, n = 3")
    longer = optimum(softmax_row(3), 3)
    player.until(f"the start, before {len(longer.moves)} moves")
    player.slider("move").press("End")  # further than before
    player.until(f"move {len(longer.moves)} of {len(longer.moves)}, {longer.moves[-1]}")


def _played(player):
    for number, move in enumerate(DOT.moves[:6], start=1):
        if number % 3:
            player.slider("move").press("ArrowRight")
        else:
            player.button("one move forward").press("Enter")
        player.until(f"move {number} of {len(DOT.moves)}, {move}")
    player.button("one move back").press("Space")
    player.until(f", {DOT.moves[4]}")
    player.root.get_by_role("status").get_by_text("b1 is deleted from fast memory.").wait_for(
        timeout=WAIT, state="attached"
    )
    play = player.button("play the moves")
    play.press("Enter")
    assert play.get_attribute("aria-pressed") == "true"
    player.until(f", {DOT.moves[-1]}")


def _won_by_keyboard(player):
    """All moves by the buttons of legal moves; focus is kept when a button disappears."""
    player.choose("try yourself")
    for number, move in enumerate(DOT.moves, start=1):
        player.vertex(str(move.vertex))
        player.button(str(move)).press("Enter")
        player.until(f"move {number} of {number}, {move}")
        expect(player.root.get_by_role("combobox", name="vertex", exact=True)).to_be_focused(timeout=WAIT)
    player.words.get_by_text("Finished: 7 words moved, the minimum.").wait_for(timeout=WAIT)
    player.button("undo").press("Enter")
    player.words.get_by_text("Undone: store s.").wait_for(timeout=WAIT)
    player.button("restart").press("Enter")
    player.until(": the start")


def _clicked(player):
    """A single legal move is made; two give buttons at the vertex; without any, the reason is shown."""
    for number, (vertex, move) in enumerate((("a1", "load a1"), ("b1", "load b1"), ("p1", "compute p1"))):
        player.click(vertex)
        player.until(f"move {number + 1} of {number + 1}, {move}")
    player.click("p2")
    player.words.get_by_text("No legal move at p2: its parent a2 has no red pebble.").wait_for(timeout=WAIT)
    player.click("p1")
    menu = player.root.locator(".picture fieldset")
    expect(menu.get_by_role("button")).to_have_text(["store p1", "delete p1"], timeout=WAIT)
    _is_as_wide_as_its_buttons(menu)
    menu.get_by_role("button", name="store p1").click()
    player.until("move 4 of 4, store p1")
    expect(menu).to_have_count(0, timeout=WAIT)
    expect(player.button("delete p1")).to_be_visible(timeout=WAIT)


def _is_as_wide_as_its_buttons(menu):
    """The menu covers no more of the graph than necessary."""
    first, last = (menu.get_by_role("button").nth(k).bounding_box() for k in (0, -1))
    frame = menu.bounding_box()
    left, right = first["x"] - frame["x"], frame["x"] + frame["width"] - last["x"] - last["width"]
    assert 0 < left < 16 and 0 < right < 16
