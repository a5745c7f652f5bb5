"""Tests of all explorers in one notebook of JupyterLab in Chromium: accessibility tree and controls."""

import re
from functools import cache

import pytest
import skips
from explorer_page import WAIT, ExplorerPage, expect
from page_audit import spoken

from iocourse import schedules
from iocourse.course import explore
from iocourse.course.explore.figures.two_memories import arrived, sides
from iocourse.course.explore.widgets.explorer import EXPLORERS

skips.unless_installed("anywidget")

PICTURES = {"image", "img"}
SEEN = 640  # pixels of a notebook that JupyterLab shows in a window of 1366 × 768


@cache
def shells():
    """Return all explorers by name."""
    return {name: make() for name, make in EXPLORERS.items()}


def called(name):
    """Return the name of an explorer in its page."""
    return shells()[name].page()["name"]


def heard(page, name):
    """Return the accessibility tree of an explorer, as for a screen reader."""
    return spoken(page, f".iocourse-explorer[role=group][aria-label={called(name)!r}]")


def test_every_control_and_picture_has_a_name_and_all_explorers_move(shown):
    page = shown("all", f"display({', '.join(f'explore.{name}()' for name in EXPLORERS)})")
    page.locator(".iocourse-explorer").nth(len(EXPLORERS) - 1).wait_for(timeout=WAIT)
    _has_names(page)
    _traffic_explorer(ExplorerPage(page, "traffic explorer"))
    _two_memories(ExplorerPage(page, "two memories"))
    _kernel_explorer(ExplorerPage(page, "kernel explorer"))
    _tuning_table(ExplorerPage(page, "tuning table"))
    _low_rank_explorer(ExplorerPage(page, "low rank explorer"))
    assert (
        ExplorerPage(page, "tile tuner").title() == explore.tile_tuner().picture.title
    )  # not moved by others


def _has_names(page):
    """Assert that all elements have names, and that values are numbers as text."""
    for name, made in shells().items():
        told = heard(page, name)
        assert PICTURES & {one.role for one in told}, name
        assert [one for one in told if not one.name] == [], name
        assert ExplorerPage(page, called(name)).root.get_by_role("status").count() == 1, name
        said = {one.name: one.value for one in told if one.role == "slider"}
        for control in made.controls.values():
            if control.kind in ("slider", "player") and not control.hidden:
                shown = control.on_page(1, 1)
                assert said[control.label] == shown["texts"][shown["at"]], (name, control.label)


def _traffic_explorer(map_):
    best = schedules.best(4096, 64, 14336)
    said = map_.press("M (words of fast memory)", "ArrowLeft")
    assert f"M = 14,336: {best.schedule.title} (" in said and f"{best.cost.total:,}" in said
    assert map_.spoken("M (words of fast memory)") == "14,336"
    assert f"{best.cost.total:,}" in map_.words.inner_text()
    tick = map_.root.get_by_role("checkbox", name=best.schedule.title, exact=True)
    assert best.schedule.title not in map_.after(lambda: tick.press("Space")).partition("M = 14,336")[2]
    map_.after(lambda: tick.press("Space"))

    map_.drag((60, 0))
    M = int(map_.spoken("M (words of fast memory)").replace(",", ""))
    assert M > 16_384 and explore.traffic_map(4096, 64, M).alt == map_.description()
    assert "backward" in map_.choose("backward")
    assert map_.root.get_by_role("checkbox", name="B4 split_backward", exact=True).is_visible()
    assert not map_.root.get_by_role("checkbox", name="F2 flash2", exact=True).is_visible()


def _two_memories(film):
    def line(step):
        naive, flash = sides()
        return f"{naive.called} {arrived(naive, step):,} words, {flash.called} {arrived(flash, step):,}"

    film.root.get_by_text("no word has moved yet. Press play.").wait_for(timeout=WAIT)
    for _ in range(5):
        film.slider("move").press("ArrowRight")
    film.words.get_by_text(line(5)).wait_for(timeout=WAIT)
    film.button("one move forward").press("Enter")
    film.words.get_by_text(line(6)).wait_for(timeout=WAIT)
    film.button("one move back").press("Space")
    film.words.get_by_text(line(5)).wait_for(timeout=WAIT)
    film.root.get_by_role("status").get_by_text(line(5)).wait_for(timeout=WAIT, state="attached")
    play = film.button("play the moves")
    play.press("Enter")
    film.words.get_by_text("FlashAttention is finished; the other run continues").wait_for(timeout=WAIT)
    assert play.get_attribute("aria-pressed") == "true"
    play.press("Enter")
    film.page.wait_for_timeout(300)
    stands = film.words.inner_text()
    film.page.wait_for_timeout(300)
    assert film.words.inner_text() == stands and play.get_attribute("aria-pressed") == "false"
    film.slider("move").press("End")
    film.words.get_by_text("Both are finished, with the same O.").wait_for(timeout=WAIT)


def _kernel_explorer(one):
    one.press("BM (queries)", "Home")
    assert one.description() == explore.kernel_explorer_picture(BM=16).alt
    one.after(lambda: one.button("Shipped tile").press("Enter"))
    assert "Launched by dispatch: 64 × 128, 4 warps, 3 stages" in one.words.inner_text()
    one.after(lambda: one.root.get_by_role("combobox", name="chip").select_option("T4 (sm_75)"))
    assert "Not timed: no time is recorded on T4" in one.words.inner_text()
    one.after(lambda: one.root.get_by_role("combobox", name="chip").select_option("H200 SXM (sm_90)"))
    one.after(lambda: one.root.get_by_role("combobox", name="kernel").select_option("draft"))
    one.choose("causal")
    one.after(lambda: one.button("Fastest recorded").press("Enter"))
    assert ": the fastest of the timed configurations." in one.words.inner_text()
    before = one.spoken("BM (queries)"), one.spoken("BN (keys)")
    one.drag((-50, 10))
    sides = re.search(r"(\d+) × (\d+)", one.title()).groups()
    assert sides == (one.spoken("BM (queries)"), one.spoken("BN (keys)")) != before


def _tuning_table(one):
    one.choose("largest")
    one.after(lambda: one.root.get_by_role("combobox", name="column").select_option("clock_model_tflops"))
    one.after(lambda: one.root.get_by_role("combobox", name="table").select_option("keys, d = 128"))
    one.press("rows per warpgroup, at least", "ArrowRight")
    expected = explore.tuning_table_picture("keys, d = 128", "clock_model_tflops", "largest", rows=32)
    assert (one.title(), one.description()) == (expected.title, expected.alt)


@pytest.mark.parametrize("name", ["kernel_explorer", "tuning_table"])
def test_control_headline_and_picture_are_seen_together_and_nothing_is_cut(name, shown):
    page = shown("wide", f"explore.{name}()")
    one = ExplorerPage(page, called(name))
    before = page.viewport_size
    page.set_viewport_size({"width": 1366, "height": 768})
    page.wait_for_timeout(500)
    boxes = [part.bounding_box() for part in (one.words, one.picture, one.root.locator(".panel"))]
    top, bottom = min(box["y"] for box in boxes), max(box["y"] + box["height"] for box in boxes)
    assert bottom - top < SEEN and boxes[2]["x"] + boxes[2]["width"] <= boxes[1]["x"]
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_timeout(1000)
    shape = one.root.evaluate("e => [e.className, e.scrollWidth - e.clientWidth]")
    across = one.picture.bounding_box()["width"] / float(one.picture.get_attribute("width"))
    assert shape == ["iocourse-explorer narrow", 0] and across > 0.65
    assert one.root.locator(".stage").evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    page.set_viewport_size(before)
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")


def test_a_cell_that_runs_again_keeps_its_state(shown, run_all):
    page = shown("again", "explore.kernel_explorer()")
    one = ExplorerPage(page, "kernel explorer")
    one.press("BM (queries)", "Home")
    moved = one.title()
    assert "16 × 128" in moved
    run_all(page)
    again = ExplorerPage(page, "kernel explorer")
    expect(again.picture.locator("title")).to_have_text(moved, timeout=WAIT)


def _low_rank_explorer(low):
    low.press("degree g", "ArrowRight")
    low.press("n (tokens)", "ArrowRight")
    low.choose("minimax")
    assert low.title().startswith("Minimax of degree 4: ") and "n = 65,536" in low.title()
    before = float(low.spoken("B (bound on entries)"))
    low.drag((-80, 0))
    B = float(low.spoken("B (bound on entries)"))
    expected = explore.low_rank_explorer_picture(4, 65_536, 16_384, polynomial="minimax", B=B)
    assert before > B and low.description() == expected.alt
    low.after(lambda: low.root.get_by_role("combobox", name="data").select_option("head 0.2"))
    assert low.slider("σ (std of logits)").is_disabled()
    low.after(lambda: low.button("Cover the data").press("Enter"))
    assert "The sampled logits are within ±R" in low.words.inner_text()
