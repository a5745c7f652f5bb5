"""The tile tuner of lesson 04 in JupyterLab and a real Chromium, moved with the keyboard."""

import json
import re
from statistics import median

import pytest

from iocourse import bounds, costs

LESSON = "lessons/04_flash_forward.ipynb"
WAIT = 20_000  # milliseconds
# Picture and words travel in two messages, in either order.
CHANGED = """([title, words]) => {
    const outputs = [...document.querySelectorAll('.widget-html-content')];
    const drawn = outputs.find(output => output.querySelector('svg title'));
    const said = outputs.find(output => output.innerText.includes('words moved,'));
    return drawn.querySelector('title').textContent !== title && said?.innerText !== words;
}"""


class Tuner:
    """The widget as its user has it: labels, handles, a picture and a line of words."""

    def __init__(self, page):
        self.page = page
        self.picture = page.locator(".widget-html-content svg[role=img]").first
        self.words = page.locator(".widget-html-content", has_text="words moved,").first
        self.picture.wait_for(timeout=WAIT)

    def press(self, slider, key):
        """A key on the handle of a slider, and the title of the picture that follows."""
        row = self.page.locator(".widget-hslider", has_text=slider).first
        return self._moved(lambda: row.locator(".noUi-handle").press(key))

    def choose_best_tiles(self):
        """The button for the best tiles, and the title of the picture that follows."""
        button = self.page.get_by_role("button", name="best tiles for M")
        return self._moved(lambda: button.press("Enter"))

    def _moved(self, act):
        """What the picture says after `act`, when picture and words have both arrived."""
        before, words = self.title(), self.words.inner_text()
        act()
        self.page.wait_for_function(CHANGED, arg=[before, words], timeout=WAIT)
        return self.title()

    def title(self):
        """The title of the picture: schedule, sizes, tiles."""
        return self.picture.locator("title").text_content()

    def sizes(self):
        """The sizes in the title, by name."""
        found = re.findall(r"(\w+) = ([\d,]+)", self.title())
        return {name: int(value.replace(",", "")) for name, value in found}


@pytest.fixture
def tuner(lab_page, run_all):
    """The tile tuner on lesson 04, every cell of the unsolved lesson run."""
    page = lab_page(LESSON)
    run_all(page)
    return Tuner(page)


def expected(sizes):
    """What the words must say, from the closed form and the bound."""
    N, d, M = (sizes[name] for name in ("N", "d", "M"))
    total = costs.flash2(N, d, Br=sizes["Br"], Bc=sizes["Bc"]).total
    least, _ = bounds.lower_bound("forward", N, d, M)
    return f"{total:,} words moved, {total / least:.2f} × the lower bound of {least:,}"


def test_sliders_move_with_the_keyboard_and_the_picture_and_the_words_follow(tuner, title_stopwatch, capsys):
    start, pixels = tuner.sizes(), tuner.picture.screenshot()
    assert expected(start) in tuner.words.inner_text()

    tuner.press("M (words)", "ArrowLeft")
    moved = tuner.sizes()
    assert moved["M"] < start["M"]
    assert expected(moved) in tuner.words.inner_text()
    assert tuner.picture.screenshot() != pixels
    assert f"M = {moved['M']:,}" in tuner.picture.inner_html()

    tuner.press("Br (rows of Q)", "ArrowRight")
    taller = tuner.sizes()
    assert taller["Br"] > moved["Br"]
    assert expected(taller) in tuner.words.inner_text() != expected(moved)

    for _ in range(12):
        if "does not fit" in tuner.words.inner_text():
            break
        tuner.press("M (words)", "ArrowLeft")
    assert "does not fit: short of" in tuner.picture.inner_html()

    tuner.choose_best_tiles()
    assert expected(tuner.sizes()) in tuner.words.inner_text()
    assert "Fewest words for M" in tuner.words.inner_text()
    assert "does not fit" not in tuner.words.inner_text()
    _print_latency(tuner, title_stopwatch, capsys)


def _print_latency(tuner, stopwatch, capsys):
    tuner.page.evaluate(stopwatch)
    for key in ("ArrowRight", "ArrowLeft") * 10:
        tuner.press("M (words)", key)
    tuner.page.wait_for_function("() => window.latencies.length >= 19", timeout=WAIT)
    took = sorted(tuner.page.evaluate("window.latencies"))
    with capsys.disabled():
        print(
            f"\nkey press to pixels: {took[0]:.0f} / {median(took):.0f} / {took[-1]:.0f} ms (min/median/max)"
        )


def test_the_step_player_walks_through_the_trace(tuner):
    picture = tuner.picture
    assert "Move 1: load Q" in picture.inner_html()
    row = tuner.page.locator(".widget-hslider", has_text=re.compile(r"^\s*move")).first
    row.locator(".noUi-handle").press("ArrowRight")
    picture.get_by_text("Move 2:").wait_for(timeout=WAIT)
    tuner.page.locator(".widget-play button").first.click()
    picture.get_by_text(re.compile(r"^Move [5-9]:")).wait_for(timeout=WAIT)


def test_the_saved_picture_has_its_alternative_text(tuner):
    outputs = tuner.page.evaluate(
        """() => JSON.stringify(jupyterapp.shell.currentWidget.context.model.toJSON().cells
            .flatMap(cell => cell.outputs ?? []))"""
    )
    bundles = [
        one
        for one in json.loads(outputs)
        if "application/vnd.jupyter.widget-view+json" in one.get("data", {})
    ]
    assert len(bundles) == 1
    assert bundles[0]["data"]["image/png"]
    assert "lower bound" in "".join(bundles[0]["data"]["text/plain"])
    assert "lower bound" in bundles[0]["metadata"]["image/png"]["alt"]
