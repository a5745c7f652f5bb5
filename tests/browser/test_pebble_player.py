"""The pebble player in JupyterLab and a real Chromium, by keyboard alone."""

import re
from statistics import median

import pytest

from iocourse.pebbling import Game, dot, optimum, softmax_row

WAIT = 20_000  # milliseconds
DOT = optimum(dot(2), 3)
GAME = Game(dot(2), 3)


@pytest.fixture
def page(shown):
    """The page of a notebook that shows the player."""
    return shown("pebbles", "explore.pebble_player()")


def until(page, title):
    """Wait until the picture's title ends so."""
    page.wait_for_function(
        "end => document.querySelector('.widget-html-content svg title').textContent.endsWith(end)",
        arg=title,
        timeout=WAIT,
    )


def test_the_optimum_is_played_and_a_game_is_won_by_keyboard(page, title_stopwatch, capsys):
    page.evaluate(title_stopwatch)
    handle = page.locator(".widget-hslider", has_text=re.compile(r"^\s*move")).locator(".noUi-handle")
    for number, move in enumerate(DOT.moves, start=1):
        if number % 3:
            handle.press("ArrowRight")
        else:
            page.get_by_role("button", name="forward").press("Enter")
        until(page, f"move {number} of {len(DOT.moves)}, {move}")
    page.get_by_role("button", name="back", exact=True).press("Space")
    until(page, f", {DOT.moves[-2]}")

    page.get_by_role("button", name="try yourself").press("Enter")
    until(page, ": the start")
    for number, (move, state) in enumerate(zip(DOT.moves, DOT.replay(), strict=False), start=1):
        legal = GAME.legal(state)
        for _ in range(legal.index(move)):
            page.get_by_role("button", name="next legal move").press("Enter")
        page.get_by_role("button", name=f": {move}").press("Enter")
        until(page, f"move {number} of {number}, {move}")
    page.get_by_text("Finished: 7 words moved, and no pebbling moves fewer.").wait_for(timeout=WAIT)
    page.get_by_role("button", name="undo").press("Enter")
    page.get_by_text("Taken back: store s.").wait_for(timeout=WAIT)
    page.get_by_role("button", name="restart", exact=True).press("Enter")
    until(page, ": the start")
    page.get_by_title("load b2", exact=True).click()
    until(page, "move 1 of 1, load b2")

    page.get_by_role("button", name="play the optimum").press("Enter")
    page.get_by_role("button", name="softmax row").press("Enter")
    longer = optimum(softmax_row(3), 3)
    until(page, f"the start, before {len(longer.moves)} moves")
    for number, move in enumerate(longer.moves[: len(DOT.moves) + 1], start=1):  # further than before
        handle.press("ArrowRight")
        until(page, f"move {number} of {len(longer.moves)}, {move}")
    page.wait_for_timeout(300)
    took = sorted(page.evaluate("window.latencies"))
    assert len(took) > 20
    with capsys.disabled():
        print(
            f"\nkey press to pixels: {took[0]:.0f} / {median(took):.0f} / {took[-1]:.0f} ms (min/median/max)"
        )
