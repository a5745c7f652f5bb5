"""The player of lesson 00 in JupyterLab and a real Chromium, by keyboard alone."""

import re

from iocourse.explore.figures.two_memories import arrived, sides

WAIT = 20_000  # milliseconds


def line(step):
    """What stands beside the picture at a step."""
    naive, flash = sides()
    return f"{naive.called} {arrived(naive, step):,} words, {flash.called} {arrived(flash, step):,}"


def test_it_is_stepped_played_and_paused_by_keyboard(shown):
    page = shown("memories", "explore.two_memories()")
    page.get_by_text("nothing has moved yet. Press play.").wait_for(timeout=WAIT)
    handle = page.locator(".widget-hslider", has_text=re.compile(r"^\s*move")).locator(".noUi-handle")
    for _ in range(5):
        handle.press("ArrowRight")
    page.get_by_text(line(5)).wait_for(timeout=WAIT)
    page.get_by_role("button", name="forward").press("Enter")
    page.get_by_text(line(6)).wait_for(timeout=WAIT)
    page.get_by_role("button", name="back", exact=True).press("Space")
    page.get_by_text(line(5)).wait_for(timeout=WAIT)
    play = page.locator(".jupyter-widgets.widget-play button").first
    play.press("Enter")
    page.get_by_text("FlashAttention is done; the other goes on").wait_for(timeout=WAIT)
    play.press("Enter")
    page.wait_for_timeout(500)
    stands = page.locator(".widget-html-content b").first.text_content()
    page.wait_for_timeout(500)
    assert page.locator(".widget-html-content b").first.text_content() == stands
    handle.press("End")
    page.get_by_text("Both are done, with the same O.").wait_for(timeout=WAIT)
