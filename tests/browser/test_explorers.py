"""The memory explorer and the mask painter in JupyterLab and a real Chromium, moved with the keyboard."""

import re
from statistics import median

from iocourse import masks, schedules
from iocourse.explore.facts.memory_map import moves
from iocourse.explore.figures.block_mask import headline, sparse

WAIT = 20_000  # milliseconds

TEXT = """() => Array.from(document.querySelectorAll('.widget-html-content'))
    .map(part => part.textContent).join(' ')"""

# From each key press or click to the frame after the last change of text that follows it.
STOPWATCH = (
    """() => {
    const shown = """
    + TEXT
    + """;
    window.latencies = [];
    let started = null, before = shown();
    for (const kind of ['keydown', 'mousedown'])
        document.addEventListener(kind, () => {
            started = performance.now();
            window.latencies.push(null);
        }, true);
    new MutationObserver(() => {
        const now = shown();
        if (started === null || now === before) return;
        const [start, place] = [started, window.latencies.length - 1];
        before = now;
        requestAnimationFrame(() => setTimeout(() => {
            window.latencies[place] = performance.now() - start;
        }));
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""
)
QUIET = 250  # milliseconds between two presses, so that what follows belongs to the first


def words(page):
    """All text that the widget shows, the description of its picture included."""
    return page.evaluate(TEXT)


def until(page, text):
    """Wait until the widget shows `text`; all it shows then."""
    page.wait_for_function(f"text => ({TEXT})().includes(text)", arg=text, timeout=WAIT)
    return words(page)


def handle(page, label):
    """The handle of a slider."""
    return page.locator(".widget-hslider", has_text=label).first.locator(".noUi-handle")


def print_latency(page, capsys, what):
    """What the stopwatch has measured."""
    took = sorted(page.evaluate("window.latencies"))
    assert len(took) == 16
    with capsys.disabled():
        print(f"\n{what}: {took[0]:.0f} / {median(took):.0f} / {took[-1]:.0f} ms (min/median/max)")


def test_the_memory_explorer_follows_keys(shown, capsys):
    page = shown("explorer", "explore.memory_explorer(N=4096, d=64, M=16384)")
    assert f"M = 16,384: {schedules.best(4096, 64, 16384).schedule.title} (" in words(page)
    handle(page, "M (words)").press("ArrowLeft")
    best = schedules.best(4096, 64, 14336)
    said = until(page, "M = 14,336:")
    assert f"{best.schedule.title} (" in said and f"{best.cost.total:,}" in said

    tick = page.get_by_role("checkbox", name="flash_optimal")
    tick.press("Space")
    others = [one for one in schedules.of_pass("forward") if one.name != "flash_optimal"]
    second = moves(others, 4096, 64, 14336)[0]
    assert second.words == best.cost.total
    until(page, f"M = 14,336: {second.schedule.title} (")
    page.wait_for_function(f"() => !({TEXT})().includes('flash_optimal')", timeout=WAIT)  # the table follows
    tick.press("Space")
    until(page, "M = 14,336: F3 flash_optimal (")
    page.get_by_role("checkbox", name="Saha and Ye, large").press("Space")
    until(page, "Saha and Ye, large")

    page.get_by_role("button", name="backward").press("Enter")
    backward = schedules.best(4096, 64, 14336, "backward")
    assert f"{backward.cost.total:,}" in until(page, f"{backward.schedule.title} (")
    page.get_by_role("checkbox", name="split_backward").wait_for(timeout=WAIT)

    page.evaluate(STOPWATCH)
    for key in ("ArrowRight", "ArrowLeft") * 8:
        before = words(page)
        handle(page, "M (words)").press(key)
        page.wait_for_function(f"old => ({TEXT})() !== old", arg=before, timeout=WAIT)
        page.wait_for_timeout(QUIET)
    print_latency(page, capsys, "memory explorer, key press to pixels")


def test_the_mask_painter_follows_keys_and_clicks(shown, capsys):
    page = shown("painter", "explore.mask_painter(N=1024, B=64, d=64)")
    tiles = masks.causal(1024, 64).tiles.copy()

    def expected():
        return headline(sparse(masks.BlockMask(1024, tiles, 64, causal=True), 64))[0]

    assert expected() in words(page)
    for _ in range(3):
        handle(page, "row of the tile").press("ArrowRight")
    handle(page, "column of the tile").press("ArrowRight")
    until(page, "Tile 3, 1: seen.")
    page.get_by_role("button", name="show or hide this tile").press("Space")
    tiles[3, 1] = False
    assert expected() in until(page, "Tile 3, 1: hidden.")

    page.get_by_title("tile 5, 2", exact=True).click()
    tiles[5, 2] = False
    assert expected() in until(page, "Tile 5, 2: hidden.")
    page.get_by_title("tile 0, 0", exact=True).click()
    assert expected() in until(page, "Row 0 must keep a tile: queries 0 to 63 would see no key.")
    page.get_by_role("button", name="undo").press("Enter")
    tiles[5, 2] = True
    assert expected() in until(page, "Undone.")

    page.get_by_role("button", name="bigbird").press("Enter")
    until(page, headline(sparse(masks.bigbird(1024, 64, 1, 1, 2), 64))[0])
    handle(page, re.compile("random tiles")).press("ArrowRight")
    bigbird = masks.bigbird(1024, 64, 1, 1, 3)
    until(page, headline(sparse(bigbird, 64))[0])
    painted = page.locator(".widget-gridbox button", has_text="■")
    assert painted.count() == bigbird.tiles.sum()

    page.evaluate(STOPWATCH)
    for column in range(4, 12):
        for state in ("hidden", "seen"):
            page.get_by_title(f"tile 0, {column}", exact=True).click()
            until(page, f"Tile 0, {column}: {state}.")
            page.wait_for_timeout(QUIET)
    print_latency(page, capsys, "mask painter, click to pixels")
